# The primary is cut off from its synchronous standby, which is promoted, and
# lives on with its clients: it gives nothing any more, and the new primary
# gives no lock before its lock_until.  By then a session lock or run with
# lock_at_most_for has come to its end on the old one.  What is not promised
# is shown as well.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $dbname = 'postgres';
my $old = start_node('old', allows_streaming => 1);

# Locks must outlive what is looked at first; those without a limit are over last.
my $slowness = slowness($old);
my $limit = int(20 * $slowness);
$old->append_conf('postgresql.conf', "shedlock.default_lock_at_most_for = '" . ($limit + 15) . "s'\n");
$old->restart;
# a sequence tells what began, although it was never committed
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
my $new = start_standby($old, 'new');

# Sends a statement that is not answered, and gives the server's process.
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

	ok(defined await($old, "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $pid"), "$name goes on");
	return $pid;
}

#
# While all is well
#
my %client = map { $_ => session($old) }
  ('limited session', 'extended session', 'unlimited session', 'limited run', 'extended run', 'unlimited run', 'released session', 'pool');
my %pid;

ask($client{'unlimited session'}, "SELECT shedlock_acquire_session('unlimited session')");
$pid{'unlimited run'} = run_by($client{'unlimited run'}, 'unlimited run', 'NULL', 'SELECT pg_sleep(600)');
ask($client{'released session'}, "SELECT shedlock_acquire_session('released session', '$limit s')");
ask($client{'limited session'}, "SELECT shedlock_acquire_session('limited session', '$limit s')");
ask($client{'extended session'}, "SELECT shedlock_acquire_session('extended session', '$limit s')");
$pid{'limited run'} = run_by($client{'limited run'}, 'limited run', "'$limit s'", 'SELECT pg_sleep(600)');
# its end has ticks to claim, and a history to prune
$old->safe_psql($dbname, "CALL shedlock_run('old run', 'SELECT'); CALL shedlock_run('old run', 'SELECT'); DELETE FROM shedlock WHERE name = 'old run'");
ask($client{'extended run'}, 'SET shedlock.history_keep = 0');
$pid{'extended run'} = run_by($client{'extended run'}, 'extended run', "'$limit s', once_every => '1 s'", 'CALL extend_when_cut_off()');
my $lease = ask($client{pool}, "SELECT shedlock_acquire_token('lease', '$limit s')");

my @names = ('extended run', 'extended session', 'lease', 'limited run', 'limited session', 'released session', 'unlimited run', 'unlimited session');

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
is($new->safe_psql($dbname, "SELECT count(*) FROM shedlock_locks WHERE state = 'lost'"), @names - 1,
	'the new primary takes all that sessions and runs hold for lost');

# What the old one answers with true is to be on its standby, and so it does not.
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
		't|t', 'while the new primary gives both');
}
is($old->safe_psql($dbname, 'SELECT last_value FROM began'), '1', 'cut off: no command of a new run begins');
my $took = seconds
{
	is($old->safe_psql($dbname, "SELECT shedlock_acquire('limited session')"), 'f', 'cut off: what is held is refused at once');
};
cmp_ok($took, '<', 5 * $slowness, 'which takes no standby');
is(ask($client{'released session'}, "SELECT shedlock_release('released session')"), 't',
	'cut off: a release is answered, and keeps the lock longer on the new primary');

# The lease has its end, which an extend cannot move without the standby.
is(ask($client{pool}, "SELECT shedlock_assert('lease', $lease)"), $lease, 'cut off: a lease is still alive on both sides');
$pid{pool} = send_only($client{pool}, "SELECT shedlock_extend('lease', $lease, '1 hour');");
$pid{'extended session'} = send_only($client{'extended session'}, "SELECT shedlock_extend('extended session', lock_at_most_for => '1 hour');");
foreach my $name ('pool', 'extended session', 'extended run')
{
	ok(defined await($old, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid{$name}"),
		"cut off: no answer to an extend ($name)");
}

#
# At lock_until
#
foreach my $name (grep { !/unlimited/ } @names)
{
	is(ask($waiter{$name}, 'SELECT 1'), "t\n1", "$name is free on the new primary in the end");
}
ok(defined await($old, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid{'extended session'}"),
	'by then the old one has ended the session whose extend was not answered');
like(last_words($client{'limited session'}), qr/FATAL:  terminating connection/,
	'and the idle one');
foreach my $name ('limited run', 'extended run')
{
	ok(defined await($old, "SELECT wait_event IS DISTINCT FROM 'PgSleep' FROM pg_stat_activity WHERE pid = $pid{$name}"),
		"and cancelled the command of the $name");
}
like(slurp_file($old->logfile), qr/canceling wait for synchronous replication due to user request/,
	'also of one that waited for its extend');
ok(defined await($old, "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $pid{'extended run'}"),
	'which does not wait for the standby again');
is($old->safe_psql($dbname, q{SELECT count(*) FROM shedlock_locks WHERE name = 'extended run'}), '0', 'and has given back its lock');
is($old->safe_psql($dbname, q{SELECT count(*) FROM shedlock_history WHERE name = 'old run'}), '1', 'pruned the history but for the last run of a name');
is($old->safe_psql($dbname, q{SELECT t.tick > s.locked_at AT TIME ZONE 'UTC' FROM shedlock_tick t JOIN shedlock s USING (name) WHERE name = 'extended run'}), 't',
	'and claimed the ticks that came meanwhile');
like(slurp_file($old->logfile), qr/Session lock "extended session" has outlived its lock_at_most_for/, 'which its log tells');
foreach my $name ('unlimited session', 'unlimited run')
{
	is(ask($waiter{$name}, 'SELECT 1'), "t\n1", "$name is free on the new primary in the end");
}
is($new->safe_psql($dbname, "SELECT string_agg(o.name, ', ') FROM old o JOIN shedlock s USING (name) WHERE s.locked_at < o.lock_until"),
	'', 'none before its lock_until');
is($new->safe_psql($dbname, "SELECT count(*) FROM old o JOIN shedlock s USING (name) WHERE s.token > o.token"), scalar @names,
	'each with a larger token');

#
# Not promised: whoever gave no lock_at_most_for is not told
#
is($old->safe_psql($dbname, "SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM shedlock_locks WHERE name LIKE 'unlimited%'"),
	'unlimited run held, unlimited session held', 'not promised: without a limit the old holders go on beside the new ones');
is(wait_event_of($pid{'unlimited run'}), 'PgSleep', 'with what they do');
is(ask($client{'unlimited session'}, "SELECT shedlock_assert('unlimited session') > 0"), 't', 'and the old server knows of no other');
send_only($client{'unlimited session'}, "BEGIN; SELECT shedlock_assert('unlimited session'); INSERT INTO work VALUES ('old'); COMMIT;");
ok(defined await($old, "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = 'COMMIT;'"),
	'but no write of theirs is ever confirmed');
is($old->safe_psql($dbname, 'SELECT count(*) FROM work'), '0', 'nor visible');

# Nor is anything promised once nobody waits for the standby.
$old->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
$old->reload;
is(ask($unanswered{'acquire on'}, 'SELECT 1'), "t\n1", 'not promised: an old primary that waits for no standby gives what the new one gave, too');
ok(defined await($old, 'SELECT last_value = 4 FROM began'), 'and runs its commands');

reap($_) foreach (values %client, values %unanswered, values %waiter);
$old->stop('immediate');
$new->stop('immediate');
done_testing();
