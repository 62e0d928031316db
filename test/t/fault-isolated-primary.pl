# The primary is cut off from its synchronous standby, which is promoted.  The old
# primary and its clients stay alive.  It gives no more locks, and the new primary gives
# no lock before its lock_until.  By then a session lock or run with lock_at_most_for
# has ended on the old primary, although the clock of the new one is ahead by half of the
# margin.  The limits of the promise are shown as well.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use SkewedClock;
use Test::More;

my $dbname = 'postgres';
my $old = start_node('old', allows_streaming => 1);

# Locks must last longer than the first checks take; those without a limit end last.
my $slowness = slowness($old);
my $limit = int(20 * $slowness);
$old->append_conf('postgresql.conf', "shedlock.default_lock_at_most_for = '" . ($limit + 15) . "s'\n");
$old->restart;
# a sequence counts commands that began, although they never committed
$old->safe_psql($dbname, q{
CREATE TABLE work (who text);
CREATE SEQUENCE began;
SELECT setval('began', 1);
CREATE PROCEDURE extend_when_cut_off() LANGUAGE plpgsql AS $$
BEGIN
	WHILE EXISTS (SELECT FROM pg_stat_replication) LOOP
		PERFORM pg_sleep(0.1);
	END LOOP;
	PERFORM shedlock_extend('extended run', lock_at_most_for => '1 hour');
	COMMIT;
	PERFORM pg_sleep(600);
END $$;
});
my $ahead = $limit / 200;
my $new = with_skewed_clock { start_standby($old, 'new') };
set_clock($ahead);

# Sends a statement that gets no answer, and returns the server's process.
sub send_only
{
	my ($session, $sql) = @_;
	my $pid = pid_of($session);

	$session->query_until(qr/sent/, "\\echo sent\n$sql\n");
	return $pid;
}

sub wait_event_of
{
	my ($pid) = @_;

	return $old->safe_psql($dbname, "SELECT wait_event FROM pg_stat_activity WHERE pid = $pid");
}

sub run_by
{
	my ($session, $name, $at_most, $command) = @_;
	my $pid = send_only($session, "CALL shedlock_run('$name', '$command', $at_most);");

	ok(defined await($old, "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $pid"), "$name is in progress");
	return $pid;
}

#
# Before the cut
#
my %client = map { $_ => session($old) }
  ('limited session', 'extended session', 'cancelled session', 'shortened session', 'unlimited session', 'limited run', 'extended run', 'unlimited run', 'released session', 'pool');
my %pid;

ask($client{'unlimited session'}, "SELECT shedlock_acquire_session('unlimited session')");
$pid{'unlimited run'} = run_by($client{'unlimited run'}, 'unlimited run', 'NULL', 'SELECT pg_sleep(600)');
ask($client{'released session'}, "SELECT shedlock_acquire_session('released session', '$limit s')");
ask($client{'limited session'}, "SELECT shedlock_acquire_session('limited session', '$limit s')");
ask($client{$_}, "SELECT shedlock_acquire_session('$_', '$limit s')") foreach 'extended session', 'cancelled session';
ask($client{'shortened session'}, "SELECT shedlock_acquire_session('shortened session', '1 hour')");
$pid{'limited run'} = run_by($client{'limited run'}, 'limited run', "'$limit s'", 'SELECT pg_sleep(600)');
# its end has ticks to claim and history to prune
$old->safe_psql($dbname, "CALL shedlock_run('old run', 'SELECT'); CALL shedlock_run('old run', 'SELECT'); DELETE FROM shedlock WHERE name = 'old run'");
ask($client{'extended run'}, "SELECT shedlock_job('extended run', 'every 1 s')");
ask($client{'extended run'}, 'SET shedlock.history_keep = 0');
$pid{'extended run'} = run_by($client{'extended run'}, 'extended run', "'$limit s'", 'CALL extend_when_cut_off()');
my $lease = ask($client{pool}, "SELECT shedlock_acquire_token('lease', '$limit s')");

my @names = ('cancelled session', 'extended run', 'extended session', 'lease', 'limited run', 'limited session', 'released session', 'unlimited run', 'unlimited session');

#
# Cut off
#
$new->promote;
$new->safe_psql($dbname, 'CREATE TABLE old AS SELECT * FROM shedlock');
ok(defined await($old, 'SELECT count(*) = 0 FROM pg_stat_replication'), 'the old primary has lost its standby');

my %waiter;
foreach my $name (@names)
{
	$waiter{$name} = session($new);
	send_only($waiter{$name}, "SELECT shedlock_acquire('$name', '1 hour', wait => '10 min');");
}
is($new->safe_psql($dbname, "SELECT count(*) FROM shedlock_locks WHERE state = 'lost'"), @names - 1 + 1,
	'the new primary shows all locks of sessions and runs as lost');

# The old primary answers true only after the standby has confirmed, so it does not
# answer.
my %unanswered;
foreach my $setting ('on', 'local', 'off')
{
	my %calls = (
		acquire => "SELECT shedlock_acquire('new $setting', '1 hour');",
		claim => "SELECT shedlock_once('new $setting', '2026-01-01');",
		run => "CALL shedlock_run('new run $setting', 'SELECT nextval(''began'')');");

	foreach my $call (sort keys %calls)
	{
		my $session = session($old);
		my $pid;

		ask($session, "SET synchronous_commit = $setting");
		$pid = send_only($session, $calls{$call});
		ok(defined await($old, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid"),
			"cut off: no answer to a new $call with synchronous_commit = $setting");
		$unanswered{"$call $setting"} = $session;
	}
	is($new->safe_psql($dbname, "SELECT shedlock_acquire('new $setting', '1 hour'), shedlock_once('new $setting', '2026-01-01')"),
		't|t', 'the new primary gives the lock and the tick');
}
is($old->safe_psql($dbname, 'SELECT last_value FROM began'), '1', 'cut off: no command of a new run begins');
my $took = seconds
{
	is($old->safe_psql($dbname, "SELECT shedlock_acquire('limited session')"), 'f', 'cut off: a held lock is refused at once');
};
cmp_ok($took, '<', 5 * $slowness, 'a refusal does not wait for the standby');
is(ask($client{'released session'}, "SELECT shedlock_release('released session')"), 't',
	'cut off: a release is answered, and keeps the lock longer on the new primary');

# The lease ends at its time, and an extend needs the standby.
is(ask($client{pool}, "SELECT shedlock_assert('lease', $lease)"), $lease, 'cut off: a lease is still held on both sides');
$pid{pool} = send_only($client{pool}, "SELECT shedlock_extend('lease', $lease, '1 hour');");
$pid{$_} = send_only($client{$_}, "SELECT shedlock_extend('$_', lock_at_most_for => '1 hour');") foreach 'extended session', 'cancelled session';
foreach my $name ('pool', 'extended session', 'cancelled session', 'extended run')
{
	ok(defined await($old, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid{$name}"),
		"cut off: no answer to an extend ($name)");
}

# A cancel ends the wait, and not the limit that the standby knows.
$old->safe_psql($dbname, "SELECT pg_cancel_backend($pid{'cancelled session'})");
is(ask($client{'cancelled session'}, "SELECT shedlock_assert('cancelled session') > 0"), "t\nt", 'cut off: an extend whose wait was cancelled is answered');

# Nobody knows whether the standby has an extend that shortens the time.
$pid{'shortened session'} = send_only($client{'shortened session'}, "SELECT shedlock_extend('shortened session', lock_at_most_for => '2 s');");
ok(defined await($old, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid{'shortened session'}"),
	'cut off: a session is ended at the new limit while it waits for the answer to that');

#
# At lock_until
#
foreach my $name (grep { !/unlimited/ } @names)
{
	is(ask($waiter{$name}, 'SELECT 1'), "t\n1", "$name becomes free on the new primary");
}
foreach my $name ('extended session', 'cancelled session')
{
	ok(defined await($old, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid{$name}"),
		"by then the old primary has ended the session whose extend has not reached the standby ($name)");
}
like(last_words($client{'limited session'}), qr/FATAL:  terminating connection/,
	'the old primary has ended the idle session');
foreach my $name ('limited run', 'extended run')
{
	ok(defined await($old, "SELECT wait_event IS DISTINCT FROM 'PgSleep' FROM pg_stat_activity WHERE pid = $pid{$name}"),
		"the old primary has cancelled the command of the $name");
}
like(slurp_file($old->logfile), qr/canceling wait for synchronous replication due to user request/,
	'a run that waited for its extend was cancelled');
ok(defined await($old, "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $pid{'extended run'}"),
	'that run does not wait for the standby again');
is($old->safe_psql($dbname, q{SELECT count(*) FROM shedlock_locks WHERE name = 'extended run'}), '0', 'that run has released its lock');
is($old->safe_psql($dbname, q{SELECT count(*) FROM shedlock_history WHERE name = 'old run'}), '1', 'that run has pruned the history, except the last run of a name');
is($old->safe_psql($dbname, q{SELECT attempt, done, retry_at IS NOT NULL FROM _shedlock_tick WHERE name = 'extended run'}), '1|f|t',
	'the tick of that run, which was cancelled, has had one attempt');
like(slurp_file($old->logfile), qr/Session lock "extended session" has outlived its lock_at_most_for/, 'the log has the session lock whose limit ended the session');
foreach my $name ('unlimited session', 'unlimited run')
{
	is(ask($waiter{$name}, 'SELECT 1'), "t\n1", "$name becomes free on the new primary");
}
is($new->safe_psql($dbname, "SELECT string_agg(o.name, ', ') FROM old o JOIN shedlock s USING (name) WHERE s.token > o.token AND s.locked_at < o.lock_until"),
	'', 'no lock is free before its lock_until');
is($new->safe_psql($dbname, "SELECT count(*) FROM old o JOIN shedlock s USING (name)
	WHERE o.name LIKE 'limited%' AND s.locked_at - '$ahead s'::interval >= o.locked_at + '$limit s'::interval"),
	2, 'a clock that is ahead by half of the margin gives no lock before the old primary has ended its holder');
my ($ended) = slurp_file($old->logfile) =~ /(\S+ \S+ \S+) \[\d+\] \S+ FATAL:  terminating connection.*\n.*"limited session" has outlived/;
note('seconds from the end of the limited session to the next holder: ', $new->safe_psql($dbname,
	"SELECT extract(epoch FROM locked_at - '$ahead s'::interval - timezone('UTC', '$ended')) FROM shedlock WHERE name = 'limited session'")) if $ended;
is($new->safe_psql($dbname, "SELECT count(*) FROM old o JOIN shedlock s USING (name) WHERE s.token > o.token"), scalar @names,
	'each lock has a larger token');

#
# Not promised: a holder without lock_at_most_for is not ended
#
is($old->safe_psql($dbname, "SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM shedlock_locks WHERE name LIKE 'unlimited%'"),
	'unlimited run held, unlimited session held', 'not promised: without a limit the old holders continue while new ones hold the locks');
is(wait_event_of($pid{'unlimited run'}), 'PgSleep', 'the command of an old holder continues');
is(ask($client{'unlimited session'}, "SELECT shedlock_assert('unlimited session') > 0"), 't', 'the old server knows no other holder');
send_only($client{'unlimited session'}, "BEGIN; SELECT shedlock_assert('unlimited session'); INSERT INTO work VALUES ('old'); COMMIT;");
ok(defined await($old, "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = 'COMMIT;'"),
	'no write of the old holders is confirmed');
is($old->safe_psql($dbname, 'SELECT count(*) FROM work'), '0', 'no write of the old holders is visible');

# Nothing is promised either once the old primary waits for no standby.
$old->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
$old->reload;
is(ask($unanswered{'acquire on'}, 'SELECT 1'), "t\n1", 'not promised: an old primary that waits for no standby gives what the new one gave, too');
# A run whose session has got some signal meanwhile does not begin, as if its wait had been cancelled.
ask($unanswered{"run $_"}, 'SELECT 1') foreach 'on', 'local', 'off';
my $disturbed = () = slurp_file($old->logfile) =~ /ERROR:  canceling run of lock "new run \w+" because its start has not been confirmed/g;
is($old->safe_psql($dbname, q{CALL shedlock_run('new run on', $$SELECT nextval('began')$$); SELECT last_value FROM began}), 1 + 3 - $disturbed + 1,
	'it runs the commands, too, of calls that wait unless they were disturbed, and of later ones');

reap($_) foreach (values %client, values %unanswered, values %waiter);
$old->stop('immediate');
$new->stop('immediate');
done_testing();
