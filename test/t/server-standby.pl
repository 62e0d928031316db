# A standby refuses all calls at once and shows what it can know.  After its promotion
# leases continue, and a session or run of the old primary counts as alive until its
# lock_until.

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
my $limit = int(10 * $slowness) . ' s';

$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

# A lock of each kind that can be left after a failover
my $lease = $primary->safe_psql($dbname, "SELECT shedlock_acquire_token('lease', '1 hour')");
$primary->safe_psql($dbname, "SELECT shedlock_acquire('over', '1 ms'); SELECT shedlock_once('tick', '2026-01-01');"
	  . "SELECT shedlock_pause('paused', 'infinity', 'not tonight');"
	  . "SELECT shedlock_acquire('kept', '1 hour', '1 hour'); SELECT shedlock_release('kept')");

my $holder = session($primary);
ask($holder, "SELECT shedlock_acquire_session('session'), shedlock_acquire_session('session to force')");
my $session_token = ask($holder, "SELECT shedlock_acquire_session('session of a token'); "
	  . "SELECT shedlock_token('session of a token')");
$session_token =~ s/^t\n//;
ask($holder, "SELECT shedlock_acquire_session('limited session', '1 hour')");
my $runner = session($primary);
$runner->query_until(qr/running/, "\\echo running\nSELECT shedlock_job('run', 'every 36500 days', attempts => 2);\nCALL shedlock_run('run', 'SELECT pg_sleep(600)');\n");
ok(defined await($primary, "SELECT outcome = 'running' FROM shedlock_history"), 'a run is in progress');
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
	"shedlock_resume('paused')", "shedlock_again('paused')", "shedlock_purge('1 day')",
	"shedlock_run_begin('x')", "shedlock_run_end('x', 1)",
	"shedlock_job('x', '\@daily')", "shedlock_job('run', 'every 36500 days', attempts => 2)", "shedlock_skip('run')", "shedlock_forget('run')")
{
	my $error;
	my $took = seconds { $error = error_of($standby, "SELECT $call") };

	like($error, qr/^25006: .*cannot execute shedlock_\w+\(\) (in a read-only transaction|during recovery)/,
		"standby: $call is refused");
	cmp_ok($took, '<', 5 * $slowness, "standby: $call does not wait");
}
like(error_of($standby, "CALL shedlock_run('x', 'SELECT 1')"), qr/^25006: .*shedlock_run\(\) during recovery/,
	'standby: shedlock_run is refused');
like(error_of($standby, "SET default_transaction_read_only = off; CALL shedlock_run('run', 'SELECT 1')"),
	qr/^25006/, 'standby: shedlock_run is refused with default_transaction_read_only = off, too');

is($standby->safe_psql($dbname, 'SELECT name, state, kind, pid IS NULL FROM shedlock_locks ORDER BY name'), join("\n",
		'kept|kept|released|t',
		'lease|held|lease|t',
		'limited session|unknown|session|t',
		'paused|paused|released|t',
		'run|unknown|run|t',
		'session|unknown|session|t',
		'session of a token|unknown|session|t',
		'session to force|unknown|session|t'),
	'standby: the view shows the locks; states that need the primary are unknown');
is($standby->safe_psql($dbname, 'SELECT name, outcome FROM shedlock_history ORDER BY name'), "run|unknown",
	'standby: the outcome of a run is unknown');
is($standby->safe_psql($dbname, 'SELECT name, schedule, state, last_outcome, attempt, attempts, next_attempt_at, overdue, paused FROM shedlock_jobs'),
	'run|every 36500 days|unknown|unknown|1|2|||f', 'standby: the view shows the jobs');
like($standby->safe_psql($dbname, "SELECT shedlock_why('run')"),
	qr/^It was acquired by ".*" at .*; only the primary can tell whether it is still held\.\nAttempt 1 at tick .* began at .*; outcome: unknown\.$/,
	'standby: shedlock_why says what it can of a run');
like($standby->safe_psql($dbname, "SELECT shedlock_why('lease')"), qr/^It has been held by ".*" since .*\.  It ends at .* unless it is extended\.$/,
	'standby: shedlock_why says all of a lease');

# The primary is cut off, but alive, and so are the holders' connections to it.
is(ask($holder, "SELECT shedlock_extend('limited session', lock_at_most_for => '$limit')"), 't', 'a session lock has a short limit from now on');
my $limited = $primary->safe_psql($dbname, "SELECT lock_until FROM shedlock_locks WHERE name = 'limited session'");
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
$standby->promote;
is($standby->safe_psql($dbname, "SELECT state, kind FROM shedlock_locks WHERE name = 'limited session'; SELECT shedlock_acquire('limited session')"),
	"lost|session\nf", 'promoted: "limited session" is refused, because its holder may be alive');

my $states = join("\n",
	'kept|kept|released',
	'lease|held|lease',
	'paused|paused|released',
	'run|lost|run',
	'session|lost|session',
	'session of a token|lost|session',
	'session to force|lost|session');
is($standby->safe_psql($dbname, q{SELECT name, state, kind FROM shedlock_locks WHERE name <> 'limited session' ORDER BY name}), $states,
	'promoted: locks of sessions and runs of the old primary are lost');
is($standby->safe_psql($dbname, 'SELECT name, outcome FROM shedlock_history ORDER BY name'), "run|lost",
	'promoted: the run of the old primary is lost');
is($standby->safe_psql($dbname, 'SELECT name, state, last_outcome, next_attempt_at IS NOT NULL, attempt FROM shedlock_jobs'), 'run|retrying|lost|t|1',
	'promoted: one more attempt at its tick is due');
foreach my $name ('lease', 'kept', 'paused', 'run', 'session', 'session to force')
{
	is($standby->safe_psql($dbname, "SELECT shedlock_acquire('$name')"), 'f',
		"promoted: \"$name\" is refused, because its holder may be alive");
}
is($standby->safe_psql($dbname, q{SELECT name, state, kind FROM shedlock_locks WHERE name <> 'limited session' ORDER BY name}), $states,
	'promoted: the refused acquires changed nothing');
is($standby->safe_psql($dbname, "SELECT shedlock_once('tick', '2026-01-01')"), 'f', 'promoted: ticks stay claimed');
cmp_ok($standby->safe_psql($dbname, "SELECT shedlock_acquire_token('over', '1 hour')"),
	'>', $last_token, 'promoted: an expired lock is free, and its new token is above all old ones');

is($standby->safe_psql($dbname, "SELECT shedlock_extend('lease', $lease, '2 hours')"), 't',
	'promoted: a lease is extended by its token');
is($standby->safe_psql($dbname, "SELECT shedlock_release('lease', $lease)"), 't',
	'promoted: and released');
is($standby->safe_psql($dbname, "SELECT shedlock_acquire('lease')"), 't', 'promoted: the released lease is free');
is($standby->safe_psql($dbname, "SELECT shedlock_release('session of a token', $session_token)"), 't',
	'promoted: the token of a session lock releases it like a lease');
is($standby->safe_psql($dbname, "SELECT shedlock_acquire('session of a token')"), 't', 'promoted: the session lock released by its token is free');

is($standby->safe_psql($dbname, "SELECT shedlock_force_release('session to force')"), 't',
	'promoted: an administrator force-releases a session lock');
is($standby->safe_psql($dbname, "SELECT shedlock_acquire_session('session to force')"), 't', 'promoted: the force-released session lock is free');
is($standby->safe_psql($dbname, "SELECT shedlock_force_release('run')"), 't', 'promoted: an administrator force-releases the lock of a run');
is($standby->safe_psql($dbname, "SELECT shedlock_again('run')"), 't', 'promoted: and allows one more attempt');
my ($status, $out, $err) = $standby->psql($dbname, "CALL shedlock_run('run', 'CREATE TABLE again()')");
is($err, '', 'promoted: the command runs again after that');
is($standby->safe_psql($dbname, q{SELECT name, outcome FROM shedlock_history WHERE name = 'run' ORDER BY token}), "run|cancelled\nrun|succeeded",
	'promoted: the history shows both runs');
is($standby->safe_psql($dbname, 'SELECT name, runs_succeeded, runs_cancelled, runs_lost FROM shedlock_stats'), 'run|1|1|0',
	'promoted: each run is counted once');

ok(defined await($standby, "SELECT shedlock_acquire('limited session')", 't', 300),
	'promoted: a session lock with a lock_at_most_for is free after that time');
is($standby->safe_psql($dbname, "SELECT locked_at >= '$limited' FROM shedlock_locks WHERE name = 'limited session'"),
	't', 'promoted: it then has a new holder');
ok(defined await($primary, "SELECT count(*) = 0 FROM shedlock_locks WHERE name = 'limited session'", 't', 300),
	'the old primary has ended its session by then');

# A session lock of the new timeline is an ordinary one.
my $new_holder = session($standby);
ask($new_holder, "SELECT shedlock_acquire_session('new')");
is($standby->safe_psql($dbname, "SELECT state FROM shedlock_locks WHERE name = 'new'"), 'held',
	'promoted: new session locks are held');
kill_client($new_holder);
ok(defined await($standby, "SELECT shedlock_acquire('new')"), 'promoted: new session locks are free when their session ends');

reap($_) foreach ($holder, $runner);
$standby->stop('immediate');
$primary->stop('immediate');
done_testing();
