# The server ends a session that keeps a session lock longer than its
# lock_at_most_for, whatever the session does or did meanwhile.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = start_node('main', conf => "max_prepared_transactions = 2\n");
my %sessions;
my %taken;
my %pids;

# Acquires a session lock for 6 seconds, then runs the statements.
sub take
{
	my ($claim, @statements) = @_;
	my $session = session($node);

	$pids{$claim} = pid_of($session);
	is(ask($session, "SELECT shedlock_acquire_session('$claim', '6 s')"), 't', "$claim: it acquires the lock");
	$taken{$claim} = time;
	foreach my $statement (@statements)
	{
		ask($session, $statement);
	}
	$sessions{$claim} = $session;
	return;
}

# All sessions at the same time, because each has to wait for its end.
my @ended = (
	'idle',
	'idle in a transaction',
	'idle in a failed transaction',
	'after a syntax error',
	'after a division by zero',
	'after an error at commit',
	'after a cancelled statement',
	'after a statement that timed out',
	'after a rolled-back extend',
	'after an extend in a rolled-back savepoint',
	'after an extend in a released savepoint within it',
	'extended once, and again in a rolled-back savepoint',
	'after a rolled-back release',
	'after the release of another lock',
	'busy');

take('idle');
SKIP:
{
	my $process = "/proc/$pids{idle}";

	skip 'this system does not list the timers of a process', 1 unless -r "$process/timers";
	is(join(' ', slurp_file("$process/timers") =~ /^ClockID: (\d+)/mg), '7 7', 'idle: its timers keep running while the machine is suspended');
}
take('idle in a transaction', 'BEGIN; SELECT 1');
take('idle in a failed transaction', 'BEGIN; SELECT 1/0');
take('after a syntax error', 'SELEKT');
take('after a division by zero', 'SELECT 1/0', 'SELECT 1/0');
take('after an error at commit',
	'CREATE TEMP TABLE t (i int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)',
	'BEGIN; INSERT INTO t VALUES (1), (1); COMMIT');
take('after a cancelled statement', 'SELECT pg_cancel_backend(pg_backend_pid())');
take('after a statement that timed out', "SET statement_timeout = '50ms'; SELECT pg_sleep(10)");
take('after a rolled-back extend',
	"BEGIN; SELECT shedlock_extend('after a rolled-back extend', lock_at_most_for => '1 hour'); ROLLBACK");
take('after an extend in a rolled-back savepoint',
	'BEGIN; SAVEPOINT s',
	"SELECT shedlock_extend('after an extend in a rolled-back savepoint', lock_at_most_for => '1 hour')",
	'ROLLBACK TO s; COMMIT');
take('after an extend in a released savepoint within it',
	'BEGIN; SAVEPOINT s; SAVEPOINT t',
	"SELECT shedlock_extend('after an extend in a released savepoint within it', lock_at_most_for => '1 hour')",
	'RELEASE t; ROLLBACK TO s; COMMIT');
take('extended once, and again in a rolled-back savepoint',
	"BEGIN; SELECT shedlock_extend('extended once, and again in a rolled-back savepoint', lock_at_most_for => '7 s'); SAVEPOINT s",
	"SELECT shedlock_extend('extended once, and again in a rolled-back savepoint', lock_at_most_for => '1 hour')",
	'ROLLBACK TO s; COMMIT');
take('after a rolled-back release', "BEGIN; SELECT shedlock_release('after a rolled-back release'); ROLLBACK");
take('after the release of another lock',
	"SELECT shedlock_acquire_session('another', '1 hour'); SELECT shedlock_release('another')");
take('busy');
$sessions{busy}->query_until(qr/busy/, "\\echo busy\nSELECT pg_sleep(600);\n");

my @living = (
	'extended', 'extended within a transaction', 'shortened within a transaction', 'extended to more than once', 'extended in a savepoint, too',
	'released', 'reset by DISCARD ALL', 'reset by pg_advisory_unlock_all', 'reset in a failed transaction',
	'taken again after a reset',
	'acquired in a rolled-back transaction', 'without a limit');

take('extended', "SELECT shedlock_extend('extended', lock_at_most_for => '1 hour')");
take('extended within a transaction',
	"BEGIN; SELECT shedlock_extend('extended within a transaction', lock_at_most_for => '1 hour')");
take('shortened within a transaction',
	"SELECT shedlock_extend('shortened within a transaction', lock_at_most_for => '1 hour')",
	"BEGIN; SELECT shedlock_extend('shortened within a transaction', lock_at_most_for => '1 s')");
take('extended to more than once',
	"SELECT shedlock_extend('extended to more than once', lock_at_most_for => '7 s')",
	"BEGIN; SELECT shedlock_extend('extended to more than once', lock_at_most_for => '1 s'), shedlock_extend('extended to more than once', lock_at_most_for => '1 hour'); COMMIT");
take('extended in a savepoint, too',
	"BEGIN; SELECT shedlock_extend('extended in a savepoint, too', lock_at_most_for => '7 s'); SAVEPOINT s; SELECT shedlock_extend('extended in a savepoint, too', lock_at_most_for => '1 hour'); RELEASE s; COMMIT");
take('released', "SELECT shedlock_release('released')");

# A pool resets a session like this between two clients.
take('reset by DISCARD ALL', 'DISCARD ALL');
take('reset by pg_advisory_unlock_all', 'SELECT pg_advisory_unlock_all()');
take('reset in a failed transaction', 'BEGIN; SELECT pg_advisory_unlock_all(); SELECT 1/0; ROLLBACK');
take('taken again after a reset',
	"BEGIN; SELECT pg_advisory_unlock_all(); SELECT shedlock_acquire_session('taken again after a reset', '1 hour'); COMMIT");

foreach my $claim ('acquired in a rolled-back transaction', 'without a limit')
{
	$sessions{$claim} = session($node);
	$pids{$claim} = pid_of($sessions{$claim});
}
ask($sessions{'acquired in a rolled-back transaction'},
	"BEGIN; SELECT shedlock_acquire_session('acquired in a rolled-back transaction', '3 s'); ROLLBACK");
ask($sessions{'without a limit'},
	"SET shedlock.default_lock_at_most_for = '1s'; SELECT shedlock_acquire_session('without a limit')");

my %alive;
my %ended_after;
my $start = time;
while (keys %ended_after < @ended && time - $start < $PostgreSQL::Test::Utils::timeout_default)
{
	%alive = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity');
	foreach my $claim (@ended)
	{
		$ended_after{$claim} = time - $taken{$claim}
		  unless $alive{ $pids{$claim} } || $ended_after{$claim};
	}
	sleep(0.05);
}

my $slowness = slowness($node);
foreach my $claim (@ended)
{
	my $after = $ended_after{$claim} || 0;

	ok($after, "$claim: the server ends the session");
	cmp_ok($after, '>', 5.8, "$claim: not before its time");
	cmp_ok($after, '<', 20 * $slowness, "$claim: but soon after it");
	is($node->safe_psql('postgres', "SELECT shedlock_acquire('$claim')"), 't', "$claim: the lock is free");
	like(last_words($sessions{$claim}),
		qr/FATAL:  terminating connection due to administrator command\nDETAIL:  Session lock "$claim" has outlived its lock_at_most_for\./,
		"$claim: the client is told the reason");
}

# Sessions that live longer than the first lock_at_most_for
sleep(0.1) while time - $start < 8;
%alive = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity');
foreach my $claim (@living)
{
	ok($alive{ $pids{$claim} }, "$claim: the session continues");
}
foreach my $claim (grep { /^reset/ } @living)
{
	is($node->safe_psql('postgres', "SELECT shedlock_acquire('$claim')"), 't', "$claim: its lock is free");
}
foreach my $claim ('extended', 'extended to more than once', 'extended in a savepoint, too', 'taken again after a reset', 'without a limit')
{
	is($node->safe_psql('postgres', "SELECT shedlock_acquire('$claim')"), 'f', "$claim: the session holds the lock");
	is(ask($sessions{$claim}, "SELECT shedlock_release('$claim')"), 't', "$claim: the session releases the lock");
}

# An uncommitted extend counts while its transaction is open.
my $claim = 'extended within a transaction';
is(ask($sessions{$claim}, 'SELECT 1'), '1', "$claim: the session lives until the end of the transaction");
$start = time;
eval { ask($sessions{$claim}, 'ROLLBACK') };
ok(defined await($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pids{$claim}", 't'),
	"$claim: the session is ended after the rollback");
my $took = time - $start;
cmp_ok($took, '<', 4 * slowness($node), "$claim: the session is ended at once");

# Shortened
my $session = session($node);
my $pid = pid_of($session);
ask($session, "SELECT shedlock_acquire_session('shortened', '1 hour')");
$start = time;
is(ask($session, "SELECT shedlock_extend('shortened', lock_at_most_for => '1 s')"), 't', 'shortened: an extend can shorten, too');
ok(defined await($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 't'),
	'shortened: the server ends the session');
cmp_ok(time - $start, '>', 0.9, 'shortened: not before its time');
reap($session);

# A session with two locks, one of which reaches its limit first
$session = session($node);
$pid = pid_of($session);
ask($session, "SELECT shedlock_acquire_session('long', '1 hour')");
ask($session, "SELECT shedlock_acquire_session('short', '1 s')");
ok(defined await($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 't'),
	'two locks: the earlier limit ends the session');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('long')"), 't', 'two locks: both are free');
reap($session);

like(PostgreSQL::Test::Utils::slurp_file($node->logfile),
	qr/FATAL:  terminating connection due to administrator command\n.*DETAIL:  Session lock "short" has outlived its lock_at_most_for\./,
	'the log says which lock ended a session');

reap($_) foreach values %sessions;
$node->stop;
done_testing();
