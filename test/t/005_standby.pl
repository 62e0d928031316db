# A standby refuses at once and shows what it knows; after its promotion leases
# go on, and who held a lock on the old primary counts as alive until its time.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $primary = start_node('primary', allows_streaming => 1);
my $dbname = 'postgres';
my $slowness = slowness($primary);
my $limit = int(30 * $slowness) . ' s';

$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

# Everything of which something could be left after a failover
my $lease = $primary->safe_psql($dbname, "SELECT shedlock_acquire_token('lease', '1 hour')");
$primary->safe_psql($dbname, "SELECT shedlock_acquire('over', '1 ms'); SELECT shedlock_once('tick', '2026-01-01');"
	  . "SELECT shedlock_pause('paused', 'infinity', 'not tonight');"
	  . "SELECT shedlock_acquire('kept', '1 hour', '1 hour'); SELECT shedlock_release('kept')");

my $holder = session($primary);
ask($holder, "SELECT shedlock_acquire_session('session'), shedlock_acquire_session('session to force')");
my $session_token = ask($holder, "SELECT shedlock_acquire_session('session of a token'); "
	  . "SELECT shedlock_token('session of a token')");
$session_token =~ s/^t\n//;
ask($holder, "SELECT shedlock_acquire_session('limited session', '$limit')");
my $runner = session($primary);
$runner->query_until(qr/running/, "\\echo running\nCALL shedlock_run('run', 'SELECT pg_sleep(600)');\n");
ok(defined await($primary, "SELECT outcome = 'running' FROM shedlock_history"), 'a run is going on');
my $last_token = $primary->safe_psql($dbname, 'SELECT last_value FROM shedlock_token_seq');
$primary->safe_psql($dbname, "SELECT shedlock_once('last', now())");
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

# On the standby
foreach my $call (
	"shedlock_acquire('x')", "shedlock_acquire('x', wait => '1 hour')",
	"shedlock_acquire('lease')", "shedlock_acquire_token('x')",
	"shedlock_acquire_session('x')", "shedlock_release('lease', $lease)",
	"shedlock_extend('lease', token => $lease)", "shedlock_assert('lease', $lease)",
	"shedlock_token('lease')", "shedlock_once('x', now())",
	"shedlock_once_every('x', '1 day')", "shedlock_force_release('lease')",
	"shedlock_cancel('run')", "shedlock_pause('x')",
	"shedlock_resume('paused')", "shedlock_again('paused')", "shedlock_purge('1 day')")
{
	my $error;
	my $took = seconds { $error = error_of($standby, "SELECT $call") };

	like($error, qr/^25006: .*cannot execute shedlock_\w+\(\) (in a read-only transaction|during recovery)/,
		"standby: $call is refused");
	cmp_ok($took, '<', 5 * $slowness, "standby: $call does not wait");
}
like(error_of($standby, "CALL shedlock_run('x', 'SELECT 1')"), qr/^25006: .*shedlock_run\(\) during recovery/,
	'standby: shedlock_run is refused');
like(error_of($standby, "SET default_transaction_read_only = off; CALL shedlock_run('x', 'SELECT 1', once_every => '1 day')"),
	qr/^25006/, 'standby: however read-only is set');

is($standby->safe_psql($dbname, 'SELECT name, state, kind, pid IS NULL FROM shedlock_locks ORDER BY name'), join("\n",
		'kept|kept|released|t',
		'lease|held|lease|t',
		'limited session|unknown|session|t',
		'paused|paused|released|t',
		'run|unknown|run|t',
		'session|unknown|session|t',
		'session of a token|unknown|session|t',
		'session to force|unknown|session|t'),
	'standby: the locks are shown, and whose holders it cannot know');
is($standby->safe_psql($dbname, 'SELECT name, outcome FROM shedlock_history'), 'run|unknown',
	'standby: nor can it know how a run is doing');

# The primary is cut off, but alive, and so are the holders' connections to it.
$standby->promote;

my $states = join("\n",
	'kept|kept|released',
	'lease|held|lease',
	'limited session|lost|session',
	'paused|paused|released',
	'run|lost|run',
	'session|lost|session',
	'session of a token|lost|session',
	'session to force|lost|session');
is($standby->safe_psql($dbname, 'SELECT name, state, kind FROM shedlock_locks ORDER BY name'), $states,
	'promoted: what the old primary knew of is lost');
is($standby->safe_psql($dbname, 'SELECT name, outcome FROM shedlock_history'), 'run|lost',
	'promoted: so is the run');
foreach my $name ('lease', 'kept', 'limited session', 'paused', 'run', 'session', 'session to force')
{
	is($standby->safe_psql($dbname, "SELECT shedlock_acquire('$name')"), 'f',
		"promoted: nobody gets \"$name\", since its holder may live");
}
is($standby->safe_psql($dbname, 'SELECT name, state, kind FROM shedlock_locks ORDER BY name'), $states,
	'promoted: trying has changed nothing');
is($standby->safe_psql($dbname, "SELECT shedlock_once('tick', '2026-01-01')"), 'f', 'promoted: ticks stay claimed');
cmp_ok($standby->safe_psql($dbname, "SELECT shedlock_acquire_token('over', '1 hour')"),
	'>', $last_token, 'promoted: what was over is free, and its token is above all old ones');

is($standby->safe_psql($dbname, "SELECT shedlock_extend('lease', $lease, '2 hours')"), 't',
	'promoted: a lease is extended by its token');
is($standby->safe_psql($dbname, "SELECT shedlock_release('lease', $lease)"), 't',
	'promoted: and released');
is($standby->safe_psql($dbname, "SELECT shedlock_acquire('lease')"), 't', 'promoted: and then free');
is($standby->safe_psql($dbname, "SELECT shedlock_release('session of a token', $session_token)"), 't',
	'promoted: a session lock counts as a lease, which its token releases');
is($standby->safe_psql($dbname, "SELECT shedlock_acquire('session of a token')"), 't', 'promoted: and then it is free');

is($standby->safe_psql($dbname, "SELECT shedlock_force_release('session to force')"), 't',
	'promoted: an administrator who knows better ends a session lock');
is($standby->safe_psql($dbname, "SELECT shedlock_acquire_session('session to force')"), 't', 'promoted: and then it is free');
is($standby->safe_psql($dbname, "SELECT shedlock_force_release('run')"), 't', 'promoted: and a run');
my ($status, $out, $err) = $standby->psql($dbname, "CALL shedlock_run('run', 'CREATE TABLE again()')");
is($err, '', 'promoted: and then it runs');
is($standby->safe_psql($dbname, 'SELECT name, outcome FROM shedlock_history ORDER BY token'), "run|lost\nrun|succeeded",
	'promoted: which the history shows');

ok(defined await($standby, "SELECT shedlock_acquire('limited session')", 't', 300),
	'promoted: a session lock with a lock_at_most_for is free when that is over');
is($standby->safe_psql($dbname,
		"SELECT clock_timestamp() >= (SELECT locked_at + '$limit' FROM shedlock_locks WHERE name = 'limited session')"),
	'f', 'promoted: by then it has a new holder');
ok(defined await($primary, "SELECT count(*) = 0 FROM shedlock_locks WHERE name = 'limited session'", 't', 300),
	'and the old primary has ended its session by then');

# A session lock of the new timeline is one again.
my $new_holder = session($standby);
ask($new_holder, "SELECT shedlock_acquire_session('new')");
is($standby->safe_psql($dbname, "SELECT state FROM shedlock_locks WHERE name = 'new'"), 'held',
	'promoted: new session locks are held');
kill_client($new_holder);
ok(defined await($standby, "SELECT shedlock_acquire('new')"), 'promoted: and free when their session ends');

reap($_) foreach ($holder, $runner);
$standby->stop('immediate');
$primary->stop('immediate');
done_testing();
