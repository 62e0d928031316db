# When a client dies, its session lock is released at once, its lease expires at
# its time, and its run shows as lost.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(time sleep);

# The server notices that an idle client has died as soon as the kernel closes the
# socket; while a statement runs, the server has to check.
my $node = start_node('main', conf => "client_connection_check_interval = 200ms\n");
my $dbname = 'postgres';
my $at_once = 2;

# Starts a client that waits for a lock, and returns as soon as it waits.
sub waiter
{
	my ($lock, $how_long) = @_;
	my $waiter = session($node);

	$waiter->query_until(qr/asking/,
		"\\echo asking\nSELECT 'got it ' || shedlock_acquire('$lock', '1 min', wait => '$how_long');\n");
	ok(defined await($node, "SELECT waiters = 1 FROM shedlock_locks WHERE name = '$lock'"),
		"$lock: a client waits for the lock");
	return $waiter;
}

# A session lock, idle
my $holder = session($node);
ask($holder, "SELECT shedlock_acquire_session('idle')");
my $waiter = waiter('idle', '1 min');
my $took = seconds
{
	kill_client($holder);
	$waiter->query_until(qr/got it true/, '');
};
cmp_ok($took, '<', $at_once * slowness($node), 'an idle client is killed: the waiter acquires its session lock at once');
$waiter->quit;

# A session lock, in a transaction that holds the row of another lock as well
$holder = session($node);
ask($holder, "SELECT shedlock_acquire_session('in transaction')");
ask($holder, "BEGIN; SELECT shedlock_acquire('open'); SELECT shedlock_assert('in transaction')");
$waiter = waiter('in transaction', '1 min');
$took = seconds
{
	kill_client($holder);
	$waiter->query_until(qr/got it true/, '');
};
cmp_ok($took, '<', $at_once * slowness($node), 'a client is killed in a transaction: the waiter acquires its session lock at once');
$waiter->quit;
is($node->safe_psql($dbname, "SELECT shedlock_acquire('open')"), 't', 'the lock of its uncommitted acquire is free, too');

# A session lock, while a statement runs
$holder = session($node);
ask($holder, "SELECT shedlock_acquire_session('at work')");
$holder->query_until(qr/working/, "\\echo working\nSELECT pg_sleep(600);\n");
ok(defined await($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600);' AND state = 'active'"),
	'a statement runs');
$waiter = waiter('at work', '1 min');
$took = seconds
{
	kill_client($holder);
	$waiter->query_until(qr/got it true/, '');
};
cmp_ok($took, '<', ($at_once + 1) * slowness($node), 'a client is killed while a statement runs: client_connection_check_interval frees its session lock');
$waiter->quit;

# A backend that is terminated
$holder = session($node);
my $pid = pid_of($holder);
ask($holder, "SELECT shedlock_acquire_session('terminated')");
$waiter = waiter('terminated', '1 min');
$took = seconds
{
	terminate($node, $pid);
	$waiter->query_until(qr/got it true/, '');
};
cmp_ok($took, '<', $at_once * slowness($node), 'a server process is terminated: the waiter acquires its session lock at once');
$waiter->quit;
like(last_words($holder), qr/terminating connection/, 'a server process is terminated: its client is told');

# A client that disconnects
$holder = session($node);
ask($holder, "SELECT shedlock_acquire_session('goodbye')");
$waiter = waiter('goodbye', '1 min');
$took = seconds
{
	$holder->quit;
	$waiter->query_until(qr/got it true/, '');
};
cmp_ok($took, '<', $at_once * slowness($node), 'a client disconnects: the waiter acquires its session lock at once');
$waiter->quit;

# A lease does not depend on its client
$holder = session($node);
my $start = time;
ask($holder, "SELECT shedlock_acquire('lease', '12 s')");
kill_client($holder);
is($node->safe_psql($dbname, "SELECT state FROM shedlock_locks WHERE name = 'lease'"), 'held',
	'a client is killed: its lease stays held');
is($node->safe_psql($dbname, "SELECT shedlock_acquire('lease')"), 'f', 'a client is killed: its lease is refused to others');
is($node->safe_psql($dbname, "SELECT shedlock_acquire('lease', '1 min', wait => '2 min')"), 't',
	'a waiter acquires the lock after the lease has expired');
$took = time - $start;
cmp_ok($took, '>=', 11.9, 'the waiter does not acquire the lock earlier');
cmp_ok($took - 12, '<', 4 * slowness($node), 'the waiter acquires the lock soon after the expiry');

# A waiter that dies acquires nothing.
$holder = session($node);
ask($holder, "SELECT shedlock_acquire_session('dead waiter')");
$waiter = waiter('dead waiter', '10 min');
kill_client($waiter);
ok(defined await($node, "SELECT waiters = 0 FROM shedlock_locks WHERE name = 'dead waiter'"),
	'a waiter is killed: the lock has no waiter');
$holder->quit;
ok(defined await($node, "SELECT shedlock_acquire('dead waiter')"), 'a waiter is killed: the lock is free after its release');

# Runs
sub runner
{
	my ($lock) = @_;
	my $runner = session($node);
	my $runner_pid = pid_of($runner);

	$runner->query_until(qr/running/, "\\echo running\nCALL shedlock_run('$lock', 'SELECT pg_sleep(600)');\n");
	ok(defined await($node, "SELECT outcome = 'running' FROM shedlock_history WHERE name = '$lock'"),
		"$lock: the run is in progress");
	return ($runner, $runner_pid);
}

(my $runner, $pid) = runner('run of a dead client');
$took = seconds
{
	kill_client($runner);
	ok(defined await($node, "SELECT outcome = 'lost' FROM shedlock_history WHERE name = 'run of a dead client'"),
		'a run whose client dies is lost');
};
cmp_ok($took, '<', ($at_once + 1) * slowness($node), 'the view shows that at once');
is($node->safe_psql($dbname, "SELECT shedlock_acquire('run of a dead client')"), 't', 'the lock of a run whose client dies is free');

($runner, $pid) = runner('terminated run');
$waiter = waiter('terminated run', '1 min');
$took = seconds
{
	terminate($node, $pid);
	$waiter->query_until(qr/got it true/, '');
};
cmp_ok($took, '<', $at_once * slowness($node), 'a run is terminated: the waiter acquires its lock at once');
is($node->safe_psql($dbname, "SELECT outcome, ended_at IS NULL FROM shedlock_history WHERE name = 'terminated run'"),
	'lost|t', 'a terminated run is lost');
$waiter->quit;
reap($runner);

($runner, $pid) = runner('forced run');
terminate($node, $pid);
is($node->safe_psql($dbname, "SELECT shedlock_force_release('forced run')"), 'f', 'the lock of a terminated run is not held');
is($node->safe_psql($dbname, "SELECT outcome FROM _shedlock_history WHERE name = 'forced run'"), 'lost', 'a forced release logs a terminated run as lost');
reap($runner);

# The client of a call is gone, so another call repeats its request and waits.  That call
# stands still while the run of the first one begins and is lost.
my ($token, $answer);
$token = $node->safe_psql($dbname, "SELECT shedlock_acquire_token('asked twice', '1 hour')");
my $caller = session($node);
$pid = pid_of($caller);
$caller->query_until(qr/asking/, "\\echo asking\nSELECT 'got ' || coalesce(reason, 'a run') FROM shedlock_run_begin('asked twice', '1 min', request => 'one', wait => '1 hour');\n");
ok(defined await($node, "SELECT waiters = 1 FROM shedlock_locks WHERE name = 'asked twice'"), 'a call repeats a request, and waits');
kill 'STOP', $pid;
$node->safe_psql($dbname, "SELECT shedlock_release('asked twice', $token)");
$token = $node->safe_psql($dbname, "SELECT token FROM shedlock_run_begin('asked twice', '100 ms', request => 'one')");
ok(defined await($node, "SELECT outcome = 'lost' FROM shedlock_history WHERE name = 'asked twice'"), 'the run of the first call is lost');
kill 'CONT', $pid;
$answer = $caller->query_until(qr/got .*\n/, '');
like($answer, qr/got This request began the run with token $token of lock "[^"]+"; outcome: lost\./, 'the second call begins no run');
$caller->quit;

# A CALL whose client dies ends with its run, although a backlog of ticks is due.
$node->safe_psql($dbname, "SELECT shedlock_job('backlog', 'every 1 s', catch_up => 'all'); UPDATE _shedlock_job SET since = since - interval '1 min'");
$caller = session($node);
$pid = pid_of($caller);
$caller->query_until(qr/running/,
	"SET client_connection_check_interval = 0;\n\\echo running\nCALL shedlock_run('backlog', 'SELECT pg_sleep(1.5)');\n");
ok(defined await($node, "SELECT count(*) = 1 FROM shedlock_history WHERE name = 'backlog'"), 'a CALL makes up a backlog');
kill_client($caller);
ok(defined await($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid"), 'its client is killed: it ends');
is($node->safe_psql($dbname, "SELECT string_agg(outcome, ',') FROM shedlock_history WHERE name = 'backlog'"), 'succeeded', 'with the end of its run');

$node->stop;
done_testing();
