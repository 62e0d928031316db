# A crash of the server shortens no lease, and ends session locks and runs.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main', conf => "max_prepared_transactions = 5\nrestart_after_crash = on\n");
my $dbname = 'postgres';

# A session holds one lock of each kind, and has transactions open, when the server
# crashes.
sub take_all
{
	my ($round) = @_;
	my %held;

	$held{lease} = $node->safe_psql($dbname, "SELECT shedlock_acquire_token('lease $round', '1 hour')");
	$held{short} = $node->safe_psql($dbname, "SELECT shedlock_acquire_token('short $round', '1 ms')");
	$held{kept} = $node->safe_psql($dbname,
		"SELECT shedlock_acquire_token('kept $round', '1 hour', '1 hour');"
		  . "SELECT shedlock_release('kept $round')");
	$held{tick} = $node->safe_psql($dbname, "SELECT shedlock_once('tick $round', '2026-01-01')");

	$held{session} = session($node);
	ask($held{session}, "SELECT shedlock_acquire_session('session $round')");
	ask($held{session}, "SELECT shedlock_acquire_session('session kept $round', NULL, '1 hour')");

	$held{open} = session($node);
	ask($held{open}, "BEGIN; SELECT shedlock_acquire('open $round', '1 hour')");
	$held{open_token} = ask($held{open}, "SELECT shedlock_token('open $round')");
	ask($held{open}, "SELECT shedlock_once('open tick $round', '2026-01-01')");

	$held{run} = session($node);
	ask($held{run}, "SELECT shedlock_job('run $round', 'every 20000 days')");
	$held{run}->query_until(qr/started/, "\\echo started\nCALL shedlock_run('run $round', 'SELECT pg_sleep(600)');\n");
	ok(defined await($node, "SELECT state = 'held' FROM shedlock_locks WHERE name = 'run $round'"),
		"$round: a run is in progress");
	return \%held;
}

sub check_all
{
	my ($round, $held) = @_;
	my $history = "SELECT outcome, ended_at IS NULL FROM shedlock_history WHERE name = 'run $round'";
	my $lost = "SELECT runs_lost FROM shedlock_stats WHERE name = 'run $round'";

	is($node->safe_psql($dbname, "SELECT state, kind, remaining > '59 min' FROM shedlock_locks WHERE name = 'lease $round'"),
		'held|lease|t', "$round: a lease is held for its whole time");
	is($node->safe_psql($dbname, "SELECT shedlock_acquire('lease $round', '1 hour')"),
		'f', "$round: a lease is refused to other callers");
	is($node->safe_psql($dbname, "SELECT shedlock_release('lease $round', $held->{lease})"),
		't', "$round: the token of a lease releases it");
	is($node->safe_psql($dbname, "SELECT shedlock_acquire('short $round', '1 hour')"),
		't', "$round: a lock whose lease has expired is free");
	is($node->safe_psql($dbname,
			"SELECT state FROM shedlock_locks WHERE name = 'kept $round';"
			  . "SELECT shedlock_acquire('kept $round')"),
		"kept\nf", "$round: a released lock is kept for its at-least time");

	is($node->safe_psql($dbname, "SELECT count(*) FROM shedlock_locks WHERE name = 'session $round'"),
		'0', "$round: a session lock is no longer shown");
	is($node->safe_psql($dbname, "SELECT shedlock_acquire('session $round', '1 hour')"),
		't', "$round: a session lock is free at once");
	is($node->safe_psql($dbname, "SELECT shedlock_acquire('session kept $round', '1 hour')"),
		'f', "$round: a session lock with an at-least time stays kept");

	is($node->safe_psql($dbname, "SELECT shedlock_acquire('open $round', '1 hour')"),
		't', "$round: an uncommitted acquire leaves nothing");
	is($node->safe_psql($dbname, "SELECT shedlock_once('open tick $round', '2026-01-01')"),
		't', "$round: an uncommitted claim leaves nothing");
	is($node->safe_psql($dbname, "SELECT shedlock_once('tick $round', '2026-01-01')"),
		'f', "$round: a claimed tick stays claimed");

	is($node->safe_psql($dbname, $history), 'lost|t', "$round: a run shows as lost before another caller asks");
	like($node->safe_psql($dbname, "SELECT reason FROM shedlock_run_begin('run $round')"),
		qr/^Attempt 1 at tick .*; outcome: lost/, "$round: its tick is not due, and the reason says so");
	is($node->safe_psql($dbname, "SELECT outcome FROM _shedlock_history WHERE name = 'run $round'"),
		'running', "$round: the history has not recorded that yet");
	is($node->safe_psql($dbname, $lost), '', "$round: and it is not counted");
	is($node->safe_psql($dbname, "SELECT shedlock_acquire('run $round', '1 hour')"),
		't', "$round: the lock of a lost run is free at once");
	is($node->safe_psql($dbname, $history), 'lost|t', "$round: the run is still lost afterwards");
	is($node->safe_psql($dbname, "SELECT outcome FROM _shedlock_history WHERE name = 'run $round'"),
		'lost', "$round: the next acquire records the loss");
	is($node->safe_psql($dbname, $lost), '1', "$round: and counts it");
	$node->safe_psql($dbname, "SELECT shedlock_force_release('run $round')");
	like($node->safe_psql($dbname, "SELECT reason FROM shedlock_run_begin('run $round')"),
		qr/^Attempt 1 at tick .*; outcome: lost/, "$round: the tick of a lost run is not due after that");

	my $token = $node->safe_psql($dbname, "SELECT shedlock_acquire_token('new $round')");
	cmp_ok($token, '>', $held->{open_token},
		"$round: tokens keep growing, even past an uncommitted one");
	foreach my $session (qw(session open run))
	{
		reap($held->{$session});
	}
	return;
}

my $held = take_all('immediate');
$node->stop('immediate');
$node->start;
check_all('immediate', $held);

# The postmaster restarts the server when a backend dies like this.
$held = take_all('kill');
my $victim = session($node);
my $pid = pid_of($victim);
my $log = -s $node->logfile;
kill 'KILL', $pid;
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log);
ok(await_after_crash($node, 'SELECT true'), 'kill: the server is back');
reap($victim);
check_all('kill', $held);

# shedlock_force_release must refuse and name the prepared transaction.
sub force_release_names_it
{
	my ($when) = @_;
	my ($status, $out, $err) = $node->psql($dbname, "\\set VERBOSITY verbose\nSELECT shedlock_force_release('prepared')");
	my ($xid) = $err =~ /55006: .*"prepared" is in use by a prepared transaction\nDETAIL:  Its transaction ID is (\d+)\./
	  or diag($err);

	is($node->safe_psql($dbname, "SELECT gid FROM pg_prepared_xacts WHERE transaction = '" . ($xid // 0) . "'"),
		'a lease', "prepared: cannot be ended by force, but the error names the transaction, $when");
}

# A prepared transaction survives the end of its session.
my $session = session($node);
my $token = ask($session, "BEGIN; SELECT shedlock_acquire_token('prepared', '1 hour')");
ask($session, "PREPARE TRANSACTION 'a lease'");
is($session->{heard}, '', 'prepared: a lease can be prepared');
is(ask($session, "SELECT shedlock_token('prepared') IS NULL"), 't', 'prepared: its session no longer owns it');
force_release_names_it('before a restart');
$node->stop('immediate');
reap($session);
$node->start;
is($node->safe_psql($dbname, "SELECT shedlock_acquire('prepared')"), 'f',
	'prepared: held after a restart');
is($node->safe_psql($dbname, "SELECT state, pid IS NULL FROM shedlock_locks WHERE name = 'prepared'"),
	'uncommitted|t', 'prepared: the view shows it without a process');
force_release_names_it('after a restart');
$node->safe_psql($dbname, "COMMIT PREPARED 'a lease'");
is($node->safe_psql($dbname, "SELECT state, token FROM shedlock_locks WHERE name = 'prepared'"),
	"held|$token", 'prepared: after the commit it is an ordinary lease');
is($node->safe_psql($dbname, "SELECT shedlock_acquire('prepared')"), 'f', 'prepared: after the commit it excludes others');
is($node->safe_psql($dbname, "SELECT shedlock_release('prepared', $token)"), 't',
	'prepared: its token releases it');

$session = session($node);
ask($session, "BEGIN; SELECT shedlock_acquire('given up', '1 hour'); PREPARE TRANSACTION 'b'");
is($node->safe_psql($dbname, "SELECT shedlock_acquire('given up', '1 hour')"), 'f',
	'prepared: the lock is held before a rollback');
$node->safe_psql($dbname, "ROLLBACK PREPARED 'b'");
is($node->safe_psql($dbname, "SELECT shedlock_acquire('given up', '1 hour')"), 't',
	'prepared: the lock is free after a rollback');
ask($session, "BEGIN; SELECT shedlock_acquire_session('not this'); PREPARE TRANSACTION 'c'");
like($session->{heard}, qr/cannot PREPARE a transaction that has acquired.* a session lock/,
	'prepared: a session lock cannot be prepared');
is(ask($session, "SELECT shedlock_acquire('not this', '1 hour')"), 't', 'prepared: the error leaves no lock held');
$session->quit;

$node->stop;
done_testing();
