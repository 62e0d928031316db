# pg_upgrade moves locks, jobs, ticks, history and the state of the tokens to a newer major
# version of PostgreSQL, and roles keep what they own.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

# scripts/test has also built the library for the older version: the folder, and the
# settings that let the older server find the library
my ($older, $conf) = ($ENV{SHEDLOCK_OLDER_POSTGRES}, $ENV{SHEDLOCK_OLDER_CONF});
plan skip_all => 'this needs a second, older major version of PostgreSQL' unless $older;

my $old = PostgreSQL::Test::Cluster->new('old', install_path => $older);
{
	local $ENV{TEMP_CONFIG} = $conf;
	init_node($old);
}
$old->start;
my $new = PostgreSQL::Test::Cluster->new('new');
init_node($new);
my $version = 'SELECT current_setting($$server_version_num$$)::int / 10000';
note('from ' . $old->safe_psql('postgres', $version));

# Dropped roles, so that the OIDs have gaps: no later role must get the OID of another.
$old->safe_psql('postgres', 'CREATE ROLE gone; DROP ROLE gone; CREATE ROLE app; CREATE SCHEMA "My Locks"; CREATE EXTENSION shedlock SCHEMA "My Locks"; GRANT USAGE ON SCHEMA "My Locks" TO app');
my $in = 'SET search_path = "My Locks"; ';
my $token = $old->safe_psql('postgres', $in . "SELECT shedlock_acquire_token('lease', '1 day')");
my $app_token = $old->safe_psql('postgres', $in . "SET ROLE app; SELECT shedlock_acquire_token('of app', '1 day')");
$old->safe_psql('postgres', $in . "SELECT shedlock_acquire('kept', '1 day', '1 day'); SELECT shedlock_release('kept');"
	  . "SELECT shedlock_once('tick', '2026-01-01 00:00+00'); SELECT shedlock_pause('paused', 'infinity', 'moving');"
	  . 'GRANT EXECUTE ON FUNCTION shedlock_pause(text, timestamptz, text) TO app; GRANT SELECT, INSERT, UPDATE ON shedlock TO app');
$old->safe_psql('postgres', $in . "SET ROLE app; SELECT shedlock_job('run', 'every 365 days', attempts => 2); CALL shedlock_run('run', 'SELECT')");
$old->safe_psql('postgres', $in . "SELECT shedlock_job('new', '0 3 * * *', 'Europe/Berlin', description => 'nobody has called it')");

# Locks that sessions held when the old server stopped
my $holder = session($old);
ask($holder, $in . "SELECT shedlock_acquire_session('session')");
my $runner = session($old);
$runner->query_until(qr/runs/, $in . "\n\\echo runs\nCALL shedlock_run('lost', 'SELECT pg_sleep(600)');\n");
await($old, q{SELECT count(*) = 1 FROM "My Locks".shedlock_locks l WHERE l.name = 'lost'});
$old->stop('immediate');
reap($_) foreach $holder, $runner;
$old->start;
my %queries = (
	locks => 'SELECT l FROM "My Locks".shedlock l ORDER BY name',
	jobs => 'SELECT j FROM "My Locks"._shedlock_job j ORDER BY name',
	ticks => 'SELECT t FROM "My Locks"._shedlock_tick t ORDER BY name',
	history => 'SELECT h FROM "My Locks".shedlock_history h ORDER BY token',
	counters => 'SELECT s FROM "My Locks".shedlock_stats s ORDER BY name',
	tokens => 'SELECT last_value FROM "My Locks".shedlock_token_seq',
	privileges => q{SELECT p.proname, p.proacl::text FROM pg_proc p WHERE p.proname LIKE 'shedlock%' UNION ALL SELECT relname, relacl::text FROM pg_class WHERE relname LIKE 'shedlock%' ORDER BY 1},
	extension => 'SELECT extversion, extnamespace::regnamespace FROM pg_extension WHERE extname = $$shedlock$$');
my %before = map { $_ => $old->safe_psql('postgres', $queries{$_}) } keys %queries;
$old->stop;

sub upgrade
{
	my ($from, $to) = @_;

	return PostgreSQL::Test::Utils::run_log(
		[ $to->config_data('--bindir') . '/pg_upgrade', '--no-sync', '-d', $from->data_dir, '-D', $to->data_dir,
			'-b', "$older/bin", '-B', $to->config_data('--bindir'), '-s', $to->host, '-p', $from->port, '-P', $to->port,
			'-U', 'postgres' ]);
}

# pg_upgrade cannot connect some minor versions; then it fails for any table.
chdir $PostgreSQL::Test::Utils::tmp_check;
my $upgraded = upgrade($old, $new);
unless ($upgraded)
{
	my $plain_old = PostgreSQL::Test::Cluster->new('plain_old', install_path => $older);
	my $plain_new = PostgreSQL::Test::Cluster->new('plain_new');

	{
		local $ENV{TEMP_CONFIG} = $conf;
		init_node($plain_old);
	}
	init_node($plain_new);
	$plain_old->start;
	$plain_old->safe_psql('postgres', 'CREATE TABLE plain (a int)');
	$plain_old->stop;
	plan skip_all => 'pg_upgrade from this version fails without the extension, too' unless upgrade($plain_old, $plain_new);
}
ok($upgraded, 'pg_upgrade succeeds') or die;
$new->start;
cmp_ok($new->safe_psql('postgres', $version), '>', $older =~ /(\d+)$/, 'the server is newer');
is($new->safe_psql('postgres', $queries{$_}), $before{$_}, "$_ are the same") foreach grep { $_ ne 'privileges' } sort keys %queries;
# MAINTAIN came with 17.
my ($privileges, $privileges_before) = map { s/m(?=[^|]*\/)//gr } $new->safe_psql('postgres', $queries{privileges}), $before{privileges};
is($privileges, $privileges_before, 'privileges are the same');
is($new->safe_psql('postgres', $in . 'SELECT name, state FROM shedlock_locks ORDER BY name'),
	"kept|kept\nlease|held\nlost|lost\nof app|held\npaused|paused\nsession|lost", 'held leases stay held, locks of sessions count as leases');
is($new->safe_psql('postgres', $in . "SELECT outcome FROM shedlock_history WHERE name = 'lost'"), 'lost', 'a run that died is lost');
is($new->safe_psql('postgres', $in . "SELECT shedlock_acquire('lease'), shedlock_acquire('of app'), shedlock_acquire('kept'), shedlock_acquire('paused')"),
	'f|f|f|f', 'held leases exclude others');
is($new->safe_psql('postgres', $in . "SELECT shedlock_acquire('session'), shedlock_acquire('lost')"), 'f|f', 'locks of sessions exclude others');
is($new->safe_psql('postgres', $in . "SELECT shedlock_force_release('session'), shedlock_force_release('lost')"), 't|t', 'they can be released by force');
is($new->safe_psql('postgres', $in . "SELECT shedlock_acquire('session'), shedlock_acquire('lost')"), 't|t', 'then they are free');
is($new->safe_psql('postgres', $in . "SELECT shedlock_extend('lease', token => $token), shedlock_release('lease', $token)"), 't|t', 'a token extends and releases its lease');
is($new->safe_psql('postgres', $in . "SET ROLE app; SELECT name FROM shedlock_history; SELECT shedlock_release('of app', $app_token)"), "run\nt",
	'a role sees its runs, and releases its lease');
is($new->safe_psql('postgres', $in . "SET ROLE app; SELECT shedlock_job('run', 'every 365 days', attempts => 2); SELECT state FROM shedlock_run_begin('run', '1 h')"),
	"unchanged\nnot due", 'a job is declared as it was, and its run is not repeated');
is($new->safe_psql('postgres', $in . "SELECT state, created_by, description FROM shedlock_jobs WHERE name = 'new'"), 'new|postgres|nobody has called it', 'a job that nobody has called is known');
is($new->safe_psql('postgres', $in . "SET ROLE app; SELECT shedlock_job('run', 'every 364 days')"), 'changed', 'the role that created a job changes it');
is($new->safe_psql('postgres', $in . "SELECT shedlock_once('tick', '2026-01-01 00:00+00')"), 'f', 'ticks stay claimed');
cmp_ok($new->safe_psql('postgres', $in . "SELECT shedlock_acquire_token('new')"), '>', $app_token, 'tokens keep growing');
is($new->safe_psql('postgres', $in . "CALL shedlock_run('after', 'VACUUM'); SELECT outcome FROM shedlock_history WHERE name = 'after'"), 'succeeded', 'guarded commands run');
$new->safe_psql('postgres', 'ALTER EXTENSION shedlock UPDATE');
is($new->safe_psql('postgres', 'DROP EXTENSION shedlock; CREATE EXTENSION shedlock; SELECT shedlock_acquire($$again$$)'), 't', 'the extension can be dropped and created again');

$new->stop;
done_testing();
