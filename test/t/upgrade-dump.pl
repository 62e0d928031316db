# pg_dump includes locks, jobs, ticks, history and the state of the tokens.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
init_node($node);
$node->start;
$node->safe_psql('postgres', $_) foreach ('CREATE DATABASE source', 'CREATE DATABASE plain', 'CREATE DATABASE custom', 'CREATE ROLE app');

# A schema whose name needs quotes, and the role that acquired the locks
my $in = 'SET search_path = "My Locks"; ';
$node->safe_psql('source', 'CREATE SCHEMA "My Locks"; CREATE EXTENSION shedlock SCHEMA "My Locks"; '
	  . 'GRANT USAGE ON SCHEMA "My Locks" TO app');
$node->safe_psql('source', $in . "SELECT shedlock_acquire('over ' || i, '1 ms') FROM generate_series(1, 50) i");
my $token = $node->safe_psql('source', $in
	  . "SELECT shedlock_acquire_token('a \"quoted\" ''name''', '1 hour', '1 min', locked_by => E'by me \\\\ and you')");
my $app_token = $node->safe_psql('source', $in . "SET ROLE app; SELECT shedlock_acquire_token('of app', '1 hour')");
$node->safe_psql('source', $in . "SELECT shedlock_acquire('kept', '1 hour', '1 hour'); SELECT shedlock_release('kept');"
	  . "SELECT shedlock_once('tick', '2026-01-01 00:00+00'); SELECT shedlock_pause('paused', 'infinity', 'moving');");

# A job that has run, one that a role has declared but that nobody has called, and one whose
# missed tick another schedule has taken over
my $nightly = "shedlock_job('nightly', '0 3 * * *', 'Europe/Berlin', attempts => 3, lock_at_most_for => '2 h', description => 'a \"quoted\" ''text''')";
$node->safe_psql('source', $in . "SELECT shedlock_job('run', 'every 20000 days'); CALL shedlock_run('run', 'CREATE TABLE done()'); SET ROLE app; SELECT $nightly");
$node->safe_psql('source', $in . "SELECT shedlock_job('moved', 'every 1 h'); SELECT shedlock_job('moved', '0 0 1 1 *')");
my ($status, $out, $err) = $node->psql('source', $in . "CALL shedlock_run('fails', 'SELECT 1/0')");
# If a row did not satisfy the trigger, the restore of the whole table would fail.
$node->safe_psql('source', $in . "SET session_replication_role = replica; INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('unseen', '2026-01-02', '2026-01-01', 'replica');"
	  . "INSERT INTO shedlock (name, lock_until, locked_at, locked_by, token) VALUES ('unseen, token 0', 'infinity', '2026-01-01', 'forger', 0);"
	  . "INSERT INTO shedlock (name, lock_until, locked_at, locked_by, paused_until) VALUES ('unseen, paused', 'infinity', '2026-01-01', 'forger', '-infinity');"
	  . "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('unseen, ahead', 'infinity', 'infinity', 'forger')");
my $session = session($node, dbname => 'source');
ask($session, $in . "SELECT shedlock_acquire_session('session')");

is($node->safe_psql('source', $in . q{SELECT FROM shedlock_job('late', '@yearly'); UPDATE _shedlock_job SET schedule = 'never' WHERE name = 'late';
	SELECT state, shedlock_tell(name, problem, since, state) FROM shedlock_news()}), 'begun|t', 'the source has a problem that somebody has heard of');

my %queries = (
	told => 'SELECT t FROM "My Locks"._shedlock_told t ORDER BY name',
	locks => 'SELECT l FROM "My Locks".shedlock l WHERE name NOT LIKE $$unseen%$$ ORDER BY name',
	jobs => 'SELECT j FROM "My Locks"._shedlock_job j ORDER BY name',
	ticks => 'SELECT t FROM "My Locks"._shedlock_tick t ORDER BY name',
	history => 'SELECT h FROM "My Locks"._shedlock_history h ORDER BY token',
	counters => 'SELECT s FROM "My Locks"._shedlock_stats s ORDER BY name',
	tokens => 'SELECT last_value FROM "My Locks".shedlock_token_seq',
	comments => 'SELECT count(*) FROM pg_description d JOIN pg_class c ON d.objoid = c.oid WHERE relname LIKE \'shedlock%\'',
	privileges => 'SELECT relname, relacl FROM pg_class WHERE relname LIKE \'shedlock%\' ORDER BY 1');
my %before = map { $_ => $node->safe_psql('source', $queries{$_}) } keys %queries;
is(scalar(split /\n/, $before{locks}), 57, 'the source has locks to dump');
is(scalar(split /\n/, $before{jobs}), 4, 'the source has jobs to dump');
like($before{counters}, qr/\A\(fails,0,1,.*\n\(run,1,0,/, 'the source has counters to dump');

my $dump = PostgreSQL::Test::Utils::tempdir;
$node->command_ok([ 'pg_dump', '-d', $node->connstr('source'), '-f', "$dump/plain.sql" ], 'pg_dump writes SQL');
$node->command_ok([ 'pg_dump', '-d', $node->connstr('source'), '-Fc', '-f', "$dump/custom" ], 'pg_dump writes an archive');
my ($grants) = slurp_file('doc/operations.md') =~ /runs `pg_dump` needs USAGE on the extension's schema and SELECT on (.*?)\. /;
$grants = join ', ', $grants =~ /`(\w+)`/g;
$node->safe_psql('source', $in . qq{CREATE ROLE dumper LOGIN; GRANT USAGE ON SCHEMA "My Locks" TO dumper; GRANT SELECT ON $grants TO dumper; GRANT SELECT ON done TO dumper});
$node->command_ok([ 'pg_dump', '-U', 'dumper', '-d', $node->connstr('source'), '-f', "$dump/by_dumper.sql" ], 'the documented grants are enough for pg_dump');
$node->command_ok([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('plain'), '-f', "$dump/plain.sql" ],
	'psql restores the SQL');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('custom'), "$dump/custom" ], 'pg_restore restores the archive');

foreach my $db ('plain', 'custom')
{
	is($node->safe_psql($db, $queries{$_}), $before{$_}, "$db: $_ are the same") foreach sort keys %queries;

	is($node->safe_psql($db, $in . "SELECT name, state FROM shedlock_locks ORDER BY name"),
		"a \"quoted\" 'name'|held\nkept|kept\nof app|held\npaused|paused\nsession|lost",
		"$db: held leases are held; a session lock counts as a lease");
	is($node->safe_psql($db, $in . "SELECT shedlock_acquire('a \"quoted\" ''name''')"), 'f', "$db: a lease excludes others");
	is($node->safe_psql($db, $in . "SELECT shedlock_extend('a \"quoted\" ''name''', token => $token)"), 't', "$db: the token of a lease extends it");
	is($node->safe_psql($db, $in . "SELECT shedlock_release('of app', $app_token)"), 't', "$db: another token releases its lease");
	is($node->safe_psql($db, $in . "SELECT shedlock_acquire('paused')"), 'f', "$db: a pause continues");
	is($node->safe_psql($db, $in . "SELECT shedlock_acquire('kept')"), 'f', "$db: an at-least time continues");
	is($node->safe_psql($db, $in . "SELECT shedlock_acquire_session('session')"), 'f', "$db: the session lock cannot be acquired");
	is($node->safe_psql($db, $in . "SELECT shedlock_force_release('session')"), 't', "$db: the session lock can be released by force");

	my $new = session($node, dbname => $db);
	is(ask($new, $in . "SELECT shedlock_acquire_session('session'), shedlock_acquire_session('new')"), 't|t', "$db: it can be acquired then");
	is($node->safe_psql($db, $in . "SELECT name, state FROM shedlock_locks WHERE name IN ('session', 'new') ORDER BY name"),
		"new|held\nsession|held", "$db: session locks of this database are held");
	$new->quit;
	my $watcher = session($node, dbname => $db);
	ok(defined await($watcher, $in . "SELECT count(*) = 0 FROM shedlock_locks WHERE name IN ('session', 'new')"), "$db: they end with their session");
	$watcher->quit;
	is($node->safe_psql($db, $in . "SELECT shedlock_once('tick', '2026-01-01 00:00+00')"), 'f', "$db: ticks stay claimed");
	is($node->safe_psql($db, $in . "SELECT shedlock_job('run', 'every 20000 days'); SELECT $nightly"), "unchanged\nunchanged", "$db: jobs are declared as they were");
	like($node->safe_psql($db, $in . "SELECT state, reason FROM shedlock_run_begin('run')"),
		qr/^not due\|Attempt 1 at tick .*; outcome: succeeded/, "$db: a run is not repeated");
	is($node->safe_psql($db, $in . "SELECT state, created_by, attempts, lock_at_most_for, next_due = shedlock_next_tick('0 3 * * *', 'Europe/Berlin') FROM shedlock_jobs WHERE name = 'nightly'"),
		'new|app|3|02:00:00|t', "$db: a job that nobody has called is known");
	is($node->safe_psql($db, $in . "SET ROLE app; SELECT shedlock_job('nightly', '0 4 * * *', 'Europe/Berlin')"), 'changed', "$db: its creator changes it");
	like(error_of($node, $in . "SET ROLE app; SELECT shedlock_job('moved', '\@daily')", dbname => $db), qr/^42501: permission denied for job "moved"/, "$db: and no job of another role");
	is($node->safe_psql($db, $in . "SELECT attempt, tick = date_trunc('hour', tick) AND tick < now() FROM shedlock_run_begin('moved', '1 h')"), '1|t', "$db: a tick that was due before the dump is run");
	is($node->safe_psql($db, $in . 'SELECT name, outcome FROM shedlock_history ORDER BY name'), "fails|failed\nmoved|running\nrun|succeeded",
		"$db: the history shows the runs");
	cmp_ok($node->safe_psql($db, $in . "SELECT shedlock_acquire_token('over 1')"), '>', $app_token, "$db: tokens keep growing");
}
is(ask($session, $in . "SELECT shedlock_release('session')"), 't', 'the session lock was held in the source throughout');
$session->quit;

$node->stop;
done_testing();
