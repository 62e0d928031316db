# The server's clock is moved by an hour, forward and back, and by seconds.
#
# A session lock or a run never has two holders, and no move ends it, because it ends
# with its session.  lock_at_most_for of both, and a wait, last as long as requested.
# A claimed tick is not claimed again.
#
# Times that are stored as a time of day move with the clock: leases, lock_at_least_for
# and pauses end early if the clock is set forward.  If it is set back they end late,
# and so does a lock that has just been released: no caller acquires it early.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use POSIX qw(strftime);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use SkewedClock;
use Test::More;
use Time::HiRes qw(time sleep);

my $hour = 3600;

# How far the clock is ahead
sub clock_offset
{
	my ($session) = @_;

	return ask($session, 'SELECT extract(epoch FROM clock_timestamp())') - time;
}

my $node = with_skewed_clock { start_node('main') };

# An observer that was connected before the clock was moved
my $psql = session($node);

sub holds
{
	my ($sql, $claim) = @_;

	return is(ask($psql, "SELECT $sql"), 't', $claim);
}

sub fails
{
	my ($sql, $claim) = @_;

	return is(ask($psql, "SELECT $sql"), 'f', $claim);
}

# Sends a statement; the answer comes later.
sub begin
{
	my ($session, $sql) = @_;

	$session->{stderr} = '';
	$session->query_until(qr/sent/, "\\echo sent\n$sql;\n\\echo done\n");
	return;
}

# Returns whether the server has answered what begin() sent.
sub is_done
{
	my ($session) = @_;

	$session->{run}->pump_nb;
	return $session->{stdout} =~ /done/;
}

# Works until the blocker commits.  Each try sets a timeout of the server, which makes
# the server check all timeouts that are due by the time of day.
my $blocker = session($node);
ask($blocker, 'SELECT pg_advisory_lock(1)');
my $work = q{
DO $$
BEGIN
	SET LOCAL lock_timeout = '50ms';
	LOOP
		BEGIN
			PERFORM pg_advisory_xact_lock(1);
			EXIT;
		EXCEPTION WHEN lock_not_available THEN
		END;
	END LOOP;
END
$$};

sub run_of
{
	my ($name, $at_most) = @_;

	return sprintf 'CALL shedlock_run(%s, $work$%s$work$, %s)', "'$name'", $work, $at_most ? "'$at_most'" : 'NULL';
}

# Holders that stay during the whole test
my %stays;
foreach my $name ('session', 'session of 10 min')
{
	$stays{$name} = session($node);
	ask($stays{$name},
		$name eq 'session' ? "SELECT shedlock_acquire_session('$name')" : "SELECT shedlock_acquire_session('$name', '10 min')");
}
foreach my $name ('run', 'run of 10 min')
{
	$stays{$name} = session($node);
	begin($stays{$name}, run_of($name, $name eq 'run' ? undef : '10 min'));
	ok(defined await($psql, "SELECT count(*) = 1 FROM shedlock_history WHERE name = '$name' AND outcome = 'running'"),
		"$name: the run is in progress");
}
my %pids = map { $_ => ask($psql, "SELECT pid FROM shedlock_locks WHERE name = '$_'") } keys %stays;

sub check_who_stays
{
	my ($when) = @_;

	# its process checks its timeouts
	ask($stays{$_}, "SET statement_timeout = '50ms'; SELECT pg_sleep(10); RESET statement_timeout")
	  foreach 'session', 'session of 10 min';
	foreach my $name (sort keys %stays)
	{
		my $run = $name =~ /run/;

		is(ask($psql, "SELECT state, pid FROM shedlock_locks WHERE name = '$name'"),
			"held|$pids{$name}", "$when: $name: its holder holds it");
		fails("shedlock_acquire_session('$name')", "$when: $name: it is refused to others");
		like(
			error_of($node, "CALL shedlock_run('$name', 'SELECT 1', on_busy => 'error')"),
			qr/^55P03: could not obtain lock "$name"/,
			"$when: $name: it is refused to a run");
		is(ask($psql, "SELECT outcome FROM shedlock_history WHERE name = '$name' ORDER BY token DESC LIMIT 1"),
			'running', "$when: $name: the run is in progress")
		  if $run;
	}
	return;
}

# Durations by the monotonic clock during which the clock is moved: four seconds, if that
# is enough to start all sessions.
my $span = int(4 * slowness($node));

sub move_clock
{
	my ($to, $when) = @_;
	my %timed = (
		'a session lock' => {
			sql => "SELECT shedlock_acquire_session('$when, session', '$span s')",
			gone => 1 },
		'a session lock, its process checking other timeouts' => {
			sql => "SELECT shedlock_acquire_session('$when, busy session', '$span s')",
			then => $work,
			gone => 1 },
		'a session lock extended to 4 s' => {
			sql => "SELECT shedlock_acquire_session('$when, extended', '1 hour')",
			then => "SELECT shedlock_extend('$when, extended', lock_at_most_for => '$span s')",
			gone => 1 },
		'a run' => {
			then => "CALL shedlock_run('$when, run', 'SELECT pg_advisory_lock(1)', '$span s')",
			expected => qr/canceling statement due to lock_at_most_for/ },
		'a run that checks other timeouts' => {
			then => run_of("$when, busy run", "$span s"),
			expected => qr/canceling statement due to lock_at_most_for/ },
		'a wait' => {
			then => "SELECT 'got it: ' || shedlock_acquire('session', wait => '$span s')",
			expected => qr/got it: false/ },
		'a wait under a lock_timeout' => {
			sql => "SET lock_timeout = '${span}s'",
			then => "SELECT shedlock_acquire('session', wait => '10 min')",
			expected => qr/canceling statement due to lock timeout/ });

	foreach my $claim (sort keys %timed)
	{
		my $it = $timed{$claim};
		my $session = $it->{session} = session($node);

		$it->{pid} = pid_of($session);
		$it->{since} = time;
		ask($session, $it->{sql}) if $it->{sql};
		begin($session, $it->{then}) if $it->{then};
	}
	ok(defined await($psql, "SELECT waiters = 2 FROM shedlock_locks WHERE name = 'session'"), "$when: two waiters wait");

	set_clock($to);

	my $limit = time + $PostgreSQL::Test::Utils::timeout_default;
	while ((grep { !$_->{took} } values %timed) && time < $limit)
	{
		my %alive = map { $_ => 1 } split /\n/, ask($psql, 'SELECT pid FROM pg_stat_activity');

		foreach my $it (grep { !$_->{took} } values %timed)
		{
			$it->{took} = time - $it->{since}
			  if $it->{gone} ? !$alive{ $it->{pid} } : is_done($it->{session});
		}
		sleep(0.05);
	}

	foreach my $claim (sort keys %timed)
	{
		my $it = $timed{$claim};
		my $took = $it->{took} || 0;

		ok($took, "$when: $claim ends");
		note(sprintf '%s: %s: %.2f s', $when, $claim, $took);
		cmp_ok($took, '>=', $span - 0.05, "$when: $claim: not before its time");
		cmp_ok($took, '<', $span + 16, "$when: $claim: but soon after it");
		like($it->{session}{stdout} . $it->{session}{stderr}, $it->{expected}, "$when: $claim: with the expected result")
		  if $it->{expected};
		reap($it->{session});
	}
	foreach my $name ("$when, session", "$when, busy session", "$when, extended", "$when, run", "$when, busy run")
	{
		ok(defined await($psql, "SELECT shedlock_acquire('$name')"), "$when: the lock \"$name\" is free after that");
		holds("shedlock_release('$name')", "$when: the lock \"$name\" works as before");
	}
	is( ask($psql, "SELECT string_agg(outcome, ' ') FROM shedlock_history WHERE name IN ('$when, run', '$when, busy run')"),
		'timed out timed out',
		"$when: the runs are in the history");

	cmp_ok(abs(clock_offset($psql) - $to), '<', 1, "$when: the clock has moved for a session that was there before");
	my $new = session($node);
	cmp_ok(abs(clock_offset($new) - $to), '<', 1, "$when: the clock has moved for a new session");
	my $took = seconds
	{
		ask($new, "SET statement_timeout = '500ms'; SELECT pg_advisory_lock(1)");
	};
	like($new->{heard}, qr/canceling statement due to statement timeout/, "$when: the server's timeouts work");
	cmp_ok($took, '>=', 0.5, "$when: a statement_timeout does not fire early");
	cmp_ok($took, '<', 20, "$when: a statement_timeout fires soon");
	$new->quit;
	check_who_stays($when);
	return;
}

check_who_stays('before');

#
# An hour forward
#

foreach my $lock (['lease of 30 min', '30 min', '0'], ['lease of 2 h', '2 hours', '0'],
	['kept for 20 min', '1 hour', '20 min'], ['kept for 90 min', '2 hours', '90 min'])
{
	holds("shedlock_acquire('$lock->[0]', '$lock->[1]', '$lock->[2]')", "$lock->[0] is taken");
}
holds("shedlock_release('$_')", "$_ is released") foreach 'kept for 20 min', 'kept for 90 min';
fails("shedlock_acquire('$_')", "$_ is refused") foreach 'kept for 20 min', 'kept for 90 min';
holds("shedlock_acquire('paused for 3 s') AND shedlock_release('paused for 3 s')", 'a lock is used');
ask($psql, "SELECT shedlock_pause('paused for 30 min', clock_timestamp() + interval '30 min'), shedlock_pause('paused')");

my $fence = session($node);
my $late_token = ask($fence, "SELECT shedlock_acquire_token('fenced', '30 min')");
ask($fence, "BEGIN; SELECT shedlock_assert('fenced')");

my $extender = session($node);
ask($extender, "SELECT shedlock_acquire('extended in time', '30 min')");
ask($extender, "SELECT shedlock_acquire('not extended', '30 min')");

my $waiter = session($node);
ask($psql, "SELECT shedlock_acquire('awaited', '30 min')");
begin($waiter, "SELECT 'got it: ' || shedlock_acquire('awaited', wait => '1 hour')");
ok(defined await($psql, "SELECT waiters = 1 FROM shedlock_locks WHERE name = 'awaited'"), 'a waiter waits for a lease');

holds("shedlock_once_every('hourly', '1 hour')", 'the tick of this hour is claimed');
holds("shedlock_once('by name', clock_timestamp())", 'a tick is claimed by its name');
ask($psql, "CALL shedlock_run('past', 'SELECT 1')");
ask($psql, "SELECT shedlock_job('past', 'every 1 h')");
ask($psql, "CALL shedlock_run('past', 'SELECT 1')");
is(ask($psql, "SELECT DISTINCT outcome FROM shedlock_history WHERE name = 'past'"), 'succeeded', 'a tick is claimed by a run');

move_clock($hour, 'an hour forward');

holds("shedlock_acquire('lease of 30 min', '1 min')", 'forward: a lease of 30 min has expired');
fails("shedlock_acquire('lease of 2 h')", 'forward: a lease of 2 h is held');
holds("shedlock_acquire('kept for 20 min', '1 min')", 'forward: an at-least time of 20 min has ended');
fails("shedlock_acquire('kept for 90 min', '1 min')", 'forward: an at-least time of 90 min continues');
holds("shedlock_acquire('paused for 30 min', '1 min')", 'forward: a pause of 30 min has ended');
fails("shedlock_acquire('paused')", 'forward: a pause without an end continues');

fails("shedlock_acquire('fenced')", 'forward: a fence keeps an expired lease');
ask($fence, 'COMMIT');
holds("shedlock_acquire('fenced', '1 min')", 'forward: the fenced lock is free after the transaction');
is(ask($fence, "SELECT shedlock_release('fenced', $late_token)"), 'f', 'forward: the fenced lease is lost after the transaction');
like($fence->{heard}, qr/superseded/, 'forward: the holder is told that it was superseded');

is(ask($extender, "SELECT shedlock_extend('not extended')"), 'f', 'forward: an expired lease cannot be extended');
like($extender->{heard}, qr/expired/, 'forward: the holder is told that it expired');

like($waiter->query_until(qr/done/, ''), qr/got it: true/, 'forward: a waiter acquires the expired lease');

holds("shedlock_once_every('hourly', '1 hour')", 'forward: another tick can be claimed');
fails("shedlock_once_every('hourly', '1 hour')", 'forward: once');
holds("shedlock_once('by name', clock_timestamp())", 'forward: another tick can be claimed by its name');
# the first run of a session prunes
$node->safe_psql('postgres', "SET shedlock.history_keep = '30min'; CALL shedlock_run('forward', 'SELECT 1')");
is( ask($psql, "SELECT string_agg(name, ' ' ORDER BY token) FROM shedlock_history WHERE name NOT LIKE '%hour%'"),
	'run run of 10 min past forward',
	'forward: runs of an hour ago are pruned, except those in progress and the last of a name');

my $true_time = strftime('%Y-%m-%d %H:%M:%S', gmtime);
like(
	error_of($node,
		"INSERT INTO shedlock (name, lock_until, locked_at, locked_by) "
		  . "VALUES ('java', timestamp '$true_time' + interval '1 min', '$true_time', 'host')"),
	qr/^22008/,
	'forward: a ShedLock client that uses its own clock gets an error');

# The end of a client frees its session lock by the moved clock, too.
my $holder = session($node);
ask($holder, "SELECT shedlock_acquire_session('of a dead client')");
kill_client($holder);
ok(defined await($psql, "SELECT shedlock_acquire('of a dead client')"), 'forward: the session lock of a dead client is free');

#
# And back
#

ask($psql, "SELECT shedlock_job('back', 'every 1 h')");
ask($psql, "CALL shedlock_run('back', 'SELECT 1')");
my $short_token = ask($psql, "SELECT shedlock_acquire_token('lease of 3 s', '3 s')");
ask($psql, "SELECT shedlock_acquire('released later', '3 s')");
ask($psql, "SELECT shedlock_acquire('kept for 3 s', '1 min', '3 s'), shedlock_release('kept for 3 s')");
ask($psql, "SELECT shedlock_pause('paused for 3 s', clock_timestamp() + interval '3 s')");
ask($fence, "SELECT shedlock_acquire('fenced again', '1 hour'); BEGIN; SELECT shedlock_assert('fenced again')");

holds("shedlock_acquire('just given back') AND shedlock_release('just given back')", 'a lock is acquired and released');
holds("shedlock_acquire('just given back') AND shedlock_release('just given back')", 'the released lock can be acquired');

# some seconds of real time go by in this
move_clock(0, 'an hour back');

foreach my $name ('lease of 3 s', 'released later', 'kept for 3 s', 'paused for 3 s', 'fenced again', 'just given back')
{
	fails("shedlock_acquire('$name')", "back: nobody gets \"$name\"");
}
holds("remaining > '59 min' FROM shedlock_locks WHERE name = 'lease of 3 s'", 'back: a lease lasts an hour longer');
holds("shedlock_extend('lease of 3 s', $short_token, '1 s')", 'back: its owner extends the lease');
my $took = await($psql, "SELECT shedlock_acquire('lease of 3 s', '1 min')");
cmp_ok($took, '>=', 0.9, 'back: the extended lease does not end early by the new clock');
cmp_ok($took, '<', 20, 'back: the extended lease ends soon after its time');
holds("shedlock_release('released later')", 'back: an owner releases a lease');
holds("shedlock_acquire('released later', '1 min')", 'back: the released lease is free');
holds("shedlock_force_release('kept for 3 s')", 'back: an administrator force-releases a kept lock');
holds("shedlock_acquire('kept for 3 s', '1 min')", 'back: the kept lock is free after that');
holds("shedlock_force_release('just given back')", 'back: an administrator force-releases a lock whose release is in the future');
holds("shedlock_acquire('just given back', '1 min')", 'back: that lock is free after that');
holds("shedlock_resume('paused for 3 s')", 'back: an administrator ends a pause');
holds("shedlock_acquire('paused for 3 s', '1 min')", 'back: the paused lock is free after that');
is(ask($fence, "COMMIT; SELECT shedlock_release('fenced again')"), 't', 'back: a fence ends with its transaction');

fails("shedlock_once_every('hourly', '1 hour')", 'back: the tick of this hour is not claimed again');
fails("shedlock_once('by name', clock_timestamp())", 'back: a tick by its name is not claimed again');
like(ask($psql, "SELECT reason FROM shedlock_run_begin('back')"), qr/^Attempt 1 at tick .*; outcome: succeeded/,
	'back: a tick of a run is not run again');
$node->safe_psql('postgres', "CALL shedlock_run('history', 'SELECT 1')");
is( ask($psql, "SELECT string_agg(name, ' ' ORDER BY token) FROM shedlock_history WHERE name NOT LIKE '%hour%'"),
	'run run of 10 min past forward back history',
	'back: the history keeps its rows');

# An hour behind the true time, before the first tick.  Another hour may begin meanwhile.
holds("shedlock_once_every('next', '1 hour')", 'a tick is claimed');
my $tick = ask($psql, "SELECT tick FROM _shedlock_tick WHERE name = 'next'");
move_clock(-$hour, 'an hour behind');
fails("shedlock_once_every('next', '1 hour')", 'behind: an earlier tick cannot be claimed');
holds("shedlock_once_every('new', '1 hour')", 'behind: a tick of another name can be claimed');
ask($psql, "SELECT shedlock_acquire('by the late clock', '10 min')");
move_clock(0, 'at the true time again');
fails("shedlock_once('next', '$tick')", 'the true time: the tick stays claimed');
holds("shedlock_once_every('new', '1 hour')", 'the true time: the next tick of the other name can be claimed');
holds("shedlock_acquire('by the late clock')", 'the true time: a lease by the late clock has expired');

#
# Some seconds
#

move_clock(5, 'five seconds forward');
move_clock(0, 'five seconds back');

#
# The end of the holders that stayed
#

ask($blocker, 'SELECT pg_advisory_unlock(1)');
foreach my $name ('run', 'run of 10 min')
{
	$stays{$name}->query_until(qr/done/, '');
	is(ask($psql, "SELECT outcome FROM shedlock_history WHERE name = '$name'"), 'succeeded', "$name: the run ends");
	holds("shedlock_acquire('$name')", "$name: its lock is free");
}
foreach my $name ('session', 'session of 10 min')
{
	is(ask($stays{$name}, "SELECT shedlock_release('$name')"), 't', "$name: the session lock is released");
}

$_->quit foreach values %stays, $fence, $extender, $waiter, $blocker, $psql;
$node->stop;
done_testing();
