# A client that dies gives back a session lock at once, a lease when its time
# is over, and its run shows as lost.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(time sleep);

# The server notices a dead client while it waits for the next statement, or
# at once as the kernel closes the socket; a statement that runs has to look.
my $node = start_node('main', conf => "client_connection_check_interval = 200ms\n");
my $dbname = 'postgres';
my $at_once = 2;

# Starts a client that waits for a lock, and returns when it does.
sub waiter
{
	my ($lock, $how_long) = @_;
	my $waiter = session($node);

	$waiter->query_until(qr/asking/,
		"\\echo asking\nSELECT 'got it ' || shedlock_acquire('$lock', '1 min', wait => '$how_long');\n");
	ok(defined await($node, "SELECT waiters = 1 FROM shedlock_locks WHERE name = '$lock'"),
		"$lock: somebody waits for it");
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
cmp_ok($took, '<', $at_once * slowness($node), 'an idle client is killed: the waiter has its session lock in moments');
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
cmp_ok($took, '<', $at_once * slowness($node), 'a client is killed in a transaction: the waiter has its session lock in moments');
$waiter->quit;
is($node->safe_psql($dbname, "SELECT shedlock_acquire('open')"), 't', 'and what it had not committed is free, too');

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
cmp_ok($took, '<', ($at_once + 1) * slowness($node), 'a client is killed at work: client_connection_check_interval frees its session lock');
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
cmp_ok($took, '<', $at_once * slowness($node), 'a server process is terminated: the waiter has its session lock in moments');
$waiter->quit;
like(last_words($holder), qr/terminating connection/, 'and its client gets to know');

# A client that says goodbye
$holder = session($node);
ask($holder, "SELECT shedlock_acquire_session('goodbye')");
$waiter = waiter('goodbye', '1 min');
$took = seconds
{
	$holder->quit;
	$waiter->query_until(qr/got it true/, '');
};
cmp_ok($took, '<', $at_once * slowness($node), 'a client leaves: the waiter has its session lock in moments');
$waiter->quit;

# A lease does not depend on its client
$holder = session($node);
my $start = time;
ask($holder, "SELECT shedlock_acquire('lease', '12 s')");
kill_client($holder);
is($node->safe_psql($dbname, "SELECT state FROM shedlock_locks WHERE name = 'lease'"), 'held',
	'a client is killed: its lease is held');
is($node->safe_psql($dbname, "SELECT shedlock_acquire('lease')"), 'f', 'and nobody gets it');
is($node->safe_psql($dbname, "SELECT shedlock_acquire('lease', '1 min', wait => '2 min')"), 't',
	'a waiter gets it when its time is over');
$took = time - $start;
cmp_ok($took, '>=', 11.9, 'but not before that');
cmp_ok($took - 12, '<', 4 * slowness($node), 'and then soon');

# A waiter that dies takes nothing with it
$holder = session($node);
ask($holder, "SELECT shedlock_acquire_session('dead waiter')");
$waiter = waiter('dead waiter', '10 min');
kill_client($waiter);
ok(defined await($node, "SELECT waiters = 0 FROM shedlock_locks WHERE name = 'dead waiter'"),
	'a waiter is killed: nobody waits any more');
$holder->quit;
ok(defined await($node, "SELECT shedlock_acquire('dead waiter')"), 'and the lock is free afterwards');

# Runs
sub runner
{
	my ($lock) = @_;
	my $runner = session($node);
	my $runner_pid = pid_of($runner);

	$runner->query_until(qr/running/, "\\echo running\nCALL shedlock_run('$lock', 'SELECT pg_sleep(600)');\n");
	ok(defined await($node, "SELECT outcome = 'running' FROM shedlock_history WHERE name = '$lock'"),
		"$lock: it is going on");
	return ($runner, $runner_pid);
}

(my $runner, $pid) = runner('run of a dead client');
$took = seconds
{
	kill_client($runner);
	ok(defined await($node, "SELECT outcome = 'lost' FROM shedlock_history WHERE name = 'run of a dead client'"),
		'a run whose client dies is lost');
};
cmp_ok($took, '<', ($at_once + 1) * slowness($node), 'and shown so in moments');
is($node->safe_psql($dbname, "SELECT shedlock_acquire('run of a dead client')"), 't', 'and its lock is free');

($runner, $pid) = runner('terminated run');
$waiter = waiter('terminated run', '1 min');
$took = seconds
{
	terminate($node, $pid);
	$waiter->query_until(qr/got it true/, '');
};
cmp_ok($took, '<', $at_once * slowness($node), 'a run is terminated: the waiter has its lock in moments');
is($node->safe_psql($dbname, "SELECT outcome, ended_at IS NULL FROM shedlock_history WHERE name = 'terminated run'"),
	'lost|t', 'and it is lost');
$waiter->quit;
reap($runner);

$node->stop;
done_testing();
