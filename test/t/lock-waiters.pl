# A waiter acquires a lock as soon as it is released, not at its next check a second
# later.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep);

my $node = start_node('main');
my $dbname = 'postgres';
my $rounds = 7;
my $waiter = session($node);
my $watcher = session($node);
my $holder;

# Uses the server's clock, like locked_at.
$node->safe_psql($dbname, 'CREATE TABLE let_go (at timestamptz)');

sub median
{
	my @sorted = sort { $a <=> $b } @_;

	return $sorted[ @sorted / 2 ];
}

# Has the holder acquire the lock, the waiter wait for it, and the holder release it.
# Returns the milliseconds from just before the release to the waiter's acquire.
sub hand_over
{
	my ($name, $take, $let_go) = @_;
	my $ms;

	$take->();
	$waiter->query_until(qr/asking/, "\\echo asking\nSELECT 'got it ' || shedlock_acquire('$name', '1 h', wait => '2 min');\n");
	await($watcher, "SELECT waiters = 1 FROM shedlock_locks WHERE name = '$name'") or die 'nobody waits';
	$let_go->();
	$waiter->query_until(qr/got it true/, '');
	$ms = ask($watcher, "SELECT round(1000 * extract(epoch FROM l.locked_at - g.at)) "
		  . "FROM shedlock_locks l, (SELECT max(at) AS at FROM let_go) g WHERE l.name = '$name'");
	ask($waiter, "SELECT shedlock_release('$name')");
	return $ms;
}

# Returns how many milliseconds more than ten a sleep of 10 ms takes, which is the time
# that a process waits for a processor.
sub late
{
	return ask($watcher, 'SELECT round(1000 * extract(epoch FROM clock_timestamp() - s.start)) - 10 '
		  . 'FROM (SELECT clock_timestamp() AS start) s, LATERAL (SELECT pg_sleep(0.01 + 0 * extract(epoch FROM s.start))) p');
}

# Checks that waiters were woken at once, by the measure of this machine.
sub in_moments
{
	my ($ms, $late, $claim) = @_;
	my $limit = 300 + 5 * median(@$late);

	note "$claim: @$ms ms, while a sleep is late by @$late";
  SKIP:
	{
		skip('this machine is too slow to tell a waiter that is woken from one that checks each second', 1) if $limit > 800;
		cmp_ok(median(@$ms), '<', $limit, $claim);
	}
	return;
}

my $now = 'INSERT INTO let_go VALUES (clock_timestamp())';

sub hand_over_often
{
	my ($claim, $take, $let_go) = @_;
	my (@ms, @late);

	(my $name = $claim) =~ s/'//g;
	foreach my $round (1 .. $rounds)
	{
		push @ms, hand_over($name, sub { $take->($name) }, sub { $let_go->($name) });
		push @late, late();
	}
	in_moments(\@ms, \@late, "$claim: the waiter acquires it at once, in most rounds");
	return;
}

$holder = session($node);
hand_over_often(
	'a lease is released',
	sub { ask($holder, "SELECT shedlock_acquire('$_[0]', '1 h')") },
	sub { ask($holder, "$now;\nSELECT shedlock_release('$_[0]')") });
hand_over_often(
	'a lease is released in a transaction',
	sub { ask($holder, "SELECT shedlock_acquire('$_[0]', '1 h')") },
	sub { ask($holder, "BEGIN; SELECT shedlock_release('$_[0]'); $now; COMMIT") });
hand_over_often(
	'a session lock is released',
	sub { ask($holder, "SELECT shedlock_acquire_session('$_[0]')") },
	sub { ask($holder, "$now;\nSELECT shedlock_release('$_[0]')") });
hand_over_often(
	'an acquire is rolled back',
	sub { ask($holder, "BEGIN; SELECT shedlock_acquire('$_[0]', '1 h')") },
	sub { ask($watcher, $now); ask($holder, 'ROLLBACK') });
hand_over_often(
	'an acquire fails',
	sub { ask($holder, "BEGIN; SELECT shedlock_acquire_session('$_[0]')") },
	sub { ask($watcher, $now); ask($holder, "SELECT 1/0;\nROLLBACK") });
hand_over_often(
	'an acquire is rolled back to a savepoint',
	sub { ask($holder, "BEGIN; SAVEPOINT s; SELECT shedlock_acquire('$_[0]', '1 h')") },
	sub { ask($watcher, $now); ask($holder, 'ROLLBACK TO s') });
ask($holder, 'ROLLBACK');
hand_over_often(
	'a lease is released by its token in another session',
	sub { ask($holder, "SELECT shedlock_acquire('$_[0]', '1 h')") },
	sub { ask($watcher, "$now;\nSELECT shedlock_release(name, token) FROM shedlock_locks WHERE name = '$_[0]'") });
hand_over_often(
	'a lease is force-released',
	sub { ask($holder, "SELECT shedlock_acquire('$_[0]', '1 h')") },
	sub { ask($watcher, "$now;\nSELECT shedlock_force_release('$_[0]')") });
my $utc = "timezone('utc', clock_timestamp())";
hand_over_often(
	'a client of ShedLock releases its lock',
	sub { ask($holder, "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES ('$_[0]', $utc + interval '1 h', $utc, 'host') "
			  . "ON CONFLICT (name) DO UPDATE SET lock_until = $utc + interval '1 h', locked_at = $utc, locked_by = 'host'") },
	sub { ask($holder, "$now;\nUPDATE shedlock SET lock_until = $utc WHERE name = '$_[0]' AND locked_by = 'host'") });
hand_over_often(
	'a pause is ended',
	sub { ask($holder, "SELECT shedlock_pause('$_[0]')") },
	sub { ask($holder, "$now;\nSELECT shedlock_resume('$_[0]')") });
hand_over_often(
	'a run ends',
	sub {
		$holder->query_until(qr/running/, "\\echo running\nCALL shedlock_run('$_[0]', 'SELECT pg_sleep(600)');\n");
		await($watcher, "SELECT kind = 'run' FROM shedlock_locks WHERE name = '$_[0]'");
	},
	sub { ask($watcher, "$now;\nSELECT shedlock_cancel('$_[0]')"); ask($holder, 'SELECT 1') });
$holder->quit;

# Holders whose session ends
$rounds = 5;
hand_over_often(
	'a client is killed that holds a session lock',
	sub { $holder = session($node); ask($holder, "SELECT shedlock_acquire_session('$_[0]')") },
	sub { ask($watcher, $now); kill_client($holder) });
hand_over_often(
	'a server process is terminated in a transaction',
	sub { $holder = session($node); ask($holder, "BEGIN; SELECT shedlock_acquire('$_[0]', '1 h')") },
	sub { ask($watcher, "$now;\nSELECT pg_terminate_backend(pid) FROM shedlock_locks WHERE name = '$_[0]'"); reap($holder) });
hand_over_often(
	'a session lock is force-released',
	sub { $holder = session($node); ask($holder, "SELECT shedlock_acquire_session('$_[0]')") },
	sub { ask($watcher, "$now;\nSELECT shedlock_force_release('$_[0]')"); reap($holder) });

# The same with a waiter for a session lock: the force-release must not end the waiter.
$holder = session($node);
ask($holder, "SELECT shedlock_acquire_session('successor')");
$waiter->query_until(qr/asking/, "\\echo asking\nSELECT 'got it ' || shedlock_acquire_session('successor', wait => '2 min');\n");
ok(defined await($watcher, "SELECT waiters = 1 FROM shedlock_locks WHERE name = 'successor'"), 'a session waits for a session lock');
is(ask($watcher, "SELECT shedlock_force_release('successor')"), 't', 'the holder of the session lock is force-released');
$waiter->query_until(qr/got it true/, '');
is(ask($watcher, "SELECT count(*) FROM shedlock_locks WHERE name = 'successor' AND state = 'held'"), '1',
	'the waiter acquires the session lock and keeps it');
is(ask($waiter, "SELECT shedlock_release('successor')"), 't', 'the waiter releases the session lock');
reap($holder);

# The end of a lease or an at-least time wakes no waiter; the waiter knows the time.
foreach my $end ("shedlock_acquire('NAME', '3.4 s')", "shedlock_acquire('NAME', '1 h', '3.4 s'), shedlock_release('NAME')",
	"shedlock_pause('NAME', clock_timestamp() + '3.4 s')")
{
	my (@ms, @late);

	foreach my $round (1 .. 3)
	{
		my $name = "end $round of $end";
		$name =~ s/'//g;
		(my $sql = $end) =~ s/NAME/$name/g;
		$node->safe_psql($dbname, "SELECT $sql");
		$node->safe_psql($dbname, "TRUNCATE let_go; INSERT INTO let_go SELECT greatest(lock_until, paused_until) FROM shedlock_locks WHERE name = '$name'");
		is(ask($waiter, "SELECT shedlock_acquire('$name', '1 h', wait => '2 min')"), 't', "$name: a waiter acquires it");
		push @ms, $node->safe_psql($dbname,
			"SELECT round(1000 * extract(epoch FROM locked_at - at)) FROM shedlock_locks, let_go WHERE name = '$name'");
		push @late, late();
	}
	in_moments(\@ms, \@late, "$end: the waiter acquires it at that time");
	cmp_ok((sort { $a <=> $b } @ms)[0], '>=', 0, "$end: the waiter does not acquire it earlier");
}

# Several waiters, one after the other
my @waiters = map { session($node) } 1 .. 5;
$holder = session($node);
ask($holder, "SELECT shedlock_acquire_session('many')");
foreach my $one (@waiters)
{
	$one->query_until(qr/asking/, "\\echo asking\nSELECT 'got it ' || shedlock_acquire('many', '1 h', wait => '60 s');\n"
		  . "SELECT 'let go ' || shedlock_release('many');\n");
}
ok(defined await($watcher, "SELECT waiters = 5 FROM shedlock_locks WHERE name = 'many'"), 'five waiters wait for one lock');
my $took = seconds
{
	ask($holder, "SELECT shedlock_release('many')");
	$_->query_until(qr/got it true\n*let go true/, '') foreach @waiters;
};
cmp_ok($took, '<', 4 * slowness($node), 'each of the five acquires it in turn');
$_->quit foreach (@waiters, $holder, $waiter, $watcher);

$node->stop;
done_testing();
