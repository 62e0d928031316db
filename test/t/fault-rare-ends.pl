# Rare obstacles to the end of a lock do no harm: the lock ends, the client or the
# history says how, and the next caller acquires it.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main', conf => "max_prepared_transactions = 5\nwal_level = logical\nmax_wal_senders = 5\nlisten_addresses = '127.0.0.1'\n");
my $runner = session($node);
my $other = session($node);
my $pid = pid_of($runner);
my $once = "'every 36500 days'";

$node->safe_psql('postgres', "SELECT shedlock_job('not begun', $once); SELECT shedlock_job('older locked', 'every 1 h', attempts => 2);"
	  . "SELECT shedlock_job(name, $once, attempts => 3, backoff => '0') FROM unnest('{fenced, forced, outer, inner}'::text[]) AS name");

# Starts a run that continues until the advisory lock is released.
sub begin_run
{
	my ($name, $then) = @_;
	my $command = 'SELECT pg_advisory_xact_lock_shared(1)' . ($then || '');

	ask($other, 'SELECT pg_advisory_lock(1)');
	$runner->{stderr} = '';
	$runner->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('$name', '$command');\n\\echo ended\n");
	ok(defined await($node, "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = $pid"), "$name: is in progress");
	return;
}

# Ends the run, and returns the client's messages.
sub end_of_run
{
	ask($runner, 'SELECT 1');
	return $runner->{heard};
}

# A foreign writer has locked the lock's row when the command ends.
my $waits = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid";
begin_run('row locked');
ask($other, "BEGIN; SELECT FROM shedlock WHERE name = 'row locked' FOR UPDATE; SELECT pg_advisory_unlock(1)");
ok(defined await($node, $waits), 'row locked: the release waits');
ask($other, 'COMMIT');
is(end_of_run(), '', 'row locked: the client gets no warning');
is($node->safe_psql('postgres', "SELECT outcome FROM shedlock_history WHERE name = 'row locked'"), 'succeeded', 'row locked: the outcome is logged');

# The same, and the release is cancelled.
begin_run('cancelled');
ask($other, "BEGIN; SELECT FROM shedlock WHERE name = 'cancelled' FOR UPDATE; SELECT pg_advisory_unlock(1)");
ok(defined await($node, $waits), 'cancelled: the release waits');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
$runner->{run}->pump until $runner->{stderr} =~ /could not record/ || !$runner->{run}->pumpable;
like($runner->{stderr}, qr/WARNING: +could not record outcome "succeeded" of lock "cancelled": canceling statement due to user request/, 'cancelled: the outcome is not logged');
ok(defined await($node, $waits), 'cancelled: the release of the lock still waits');
ask($other, 'COMMIT');
unlike(end_of_run(), qr/could not release/, 'cancelled: the lock is released');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('cancelled'), outcome FROM shedlock_history WHERE name = 'cancelled'"), 't|lost', 'cancelled: the lock is free, and the history shows the run as lost');

# The same, and the session with the row waits for a lock that the release holds.
ask($other, 'SET deadlock_timeout = 60000');
ask($runner, 'SET deadlock_timeout = 5000');
begin_run('row deadlock');
ask($other, "BEGIN; SELECT FROM shedlock WHERE name = 'row deadlock' FOR UPDATE; SELECT pg_advisory_unlock(1)");
ok(defined await($node, $waits), 'row deadlock: the release waits');
ask($other, 'LOCK TABLE shedlock; COMMIT');
like(end_of_run(), qr/\A(?:(?!ERROR).)*could not record outcome "succeeded" of lock "row deadlock": deadlock detected(?:(?!ERROR).)*\z/s, 'row deadlock: the client is told of the deadlock');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('row deadlock')"), 't', 'row deadlock: the lock is free');

# The row of the history is locked.
begin_run('history locked');
ask($other, "BEGIN; SELECT FROM _shedlock_history WHERE name = 'history locked' FOR UPDATE; SELECT pg_advisory_unlock(1)");
like(end_of_run(), qr/WARNING: +could not record outcome "succeeded" of the run with token \d+\nDETAIL: +Its row in _shedlock_history is locked/, 'history locked: a WARNING instead of a wait');
ask($other, 'COMMIT');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('history locked'), outcome FROM shedlock_history WHERE name = 'history locked'"), 't|lost', 'history locked: the lock is free');

# The same for a run of a later tick, which ends the attempts at the older one.
my $begin = q{shedlock_run_begin('older locked')};
ask($other, "SELECT shedlock_run_end('older locked', token, 'failed') FROM $begin");
ask($other, q{UPDATE _shedlock_tick SET tick = tick - interval '1 h' WHERE name = 'older locked'});
ask($other, q{BEGIN; SELECT FROM _shedlock_history WHERE name = 'older locked' FOR UPDATE});
is(ask($runner, "SELECT count(token) FROM $begin"), '1', 'older run locked: the later one begins');
like($runner->{heard}, qr/WARNING: +could not record gave_up of the run with token \d+\nDETAIL: +Its row in _shedlock_history is locked/, 'older run locked: a WARNING instead of a wait');
ask($other, 'COMMIT');

# A run that is ending is cancelled, or reaches its lock_timeout, while it waits: the
# lock is released all the same, and the client gets the command's error.
ask($runner, 'SET lock_timeout = 3000');
begin_run('deadlock');
ask($other, 'BEGIN; LOCK TABLE _shedlock_history; SELECT pg_advisory_unlock(1)');
ok(defined await($node, "SELECT count(*) = 1 FROM pg_locks WHERE pid = $pid AND relation = '_shedlock_history'::regclass AND NOT granted"), 'deadlock: the row of the history waits');
ask($other, 'LOCK TABLE shedlock; COMMIT');
like(end_of_run(), qr/\A(?:(?!ERROR).)*WARNING: +could not record outcome "succeeded" of lock "deadlock": deadlock detected(?:(?!ERROR).)*\z/s, 'deadlock: a WARNING and no error');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('deadlock')"), 't', 'deadlock: the lock is free');
begin_run('own error', '; SELECT 1 / 0');
ask($other, 'BEGIN; LOCK TABLE _shedlock_history; SELECT pg_advisory_unlock(1)');
ok(defined await($node, "SELECT count(*) = 1 FROM pg_locks WHERE pid = $pid AND relation = '_shedlock_history'::regclass AND NOT granted"), 'own error: the row of the history waits');
ask($other, "SELECT pg_cancel_backend($pid), pg_sleep(3.5); COMMIT");
like(end_of_run(), qr/ERROR: +division by zero/, 'own error: the client gets the command\'s error');
ask($_, 'RESET lock_timeout; RESET deadlock_timeout') foreach $runner, $other;

# Runs without an outcome are pruned like others, except those still in progress.
begin_run('lives');
$node->safe_psql('postgres', "UPDATE _shedlock_history SET outcome = 'running' WHERE name = 'own error'; CALL shedlock_run('own error', 'SELECT')");
$node->safe_psql('postgres', "SET shedlock.history_keep = 0; CALL shedlock_run('prunes', 'SELECT')");
is($node->safe_psql('postgres', "SELECT name, outcome FROM _shedlock_history WHERE name IN ('lives', 'own error') ORDER BY name"), "lives|running\nown error|succeeded", 'lives: the row of a run in progress stays');
ask($other, 'SELECT pg_advisory_unlock(1)');
like(end_of_run(), qr/\A(?:(?!ERROR|WARNING).)*\z/s, 'lives: the run ends without a warning');

# An isolated primary: the wait for its standby is cancelled.
$node->safe_psql('postgres', $_) foreach ("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", 'SELECT pg_reload_conf()');
ok(defined await($node, q{SELECT current_setting('synchronous_standby_names') = 'nobody'}), 'isolated: the server requires a standby');
$node->safe_psql('postgres', 'SELECT pg_sleep(0.5)');
like(error_of($node, "SET statement_timeout = '5s';\nCALL shedlock_run('isolated', 'CREATE TABLE isolated ()')"),
	qr/^57014: canceling run of lock "isolated" because its start has not been confirmed by the synchronous standby/, 'isolated: the command is not executed');

# A commit with too many events sends none, and keeps nobody from notifying while it waits for
# the standby.
my $other_pid = pid_of($other);
$other->query_until(qr/sent/, "\\echo sent\nSET shedlock.notify = 'all'; SET client_min_messages = error; BEGIN; SELECT count(shedlock_pause('many ' || i)) FROM generate_series(1, 1500) i; RESET client_min_messages; COMMIT;\n");
ok(defined await($node, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $other_pid"), 'many events: the commit waits for the standby');
is(error_of($node, "SET lock_timeout = '1s'; SET synchronous_commit = local; NOTIFY other"), 'no error', 'many events: another session notifies');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($other_pid)");
ask($other, q{RESET shedlock.notify; SET synchronous_commit = local; SELECT count(shedlock_resume('many ' || i)) FROM generate_series(1, 1500) i});
like($other->{heard}, qr/WARNING: +could not notify listeners/, 'many events: the client is warned');
ask($other, q{DELETE FROM shedlock WHERE name LIKE 'many %'; RESET synchronous_commit});

# A run whose begin cannot be committed leaves no tick behind: its notification waits for that
# of a commit which waits for the standby.
$other->query_until(qr/sent/, "\\echo sent\nBEGIN; CREATE TABLE notified (); NOTIFY other; COMMIT;\n");
ok(defined await($node, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $other_pid"), 'not begun: another session has notified');
ask($runner, "SET shedlock.notify = 'all'; SET statement_timeout = '50ms'; CALL shedlock_run('not begun', 'SELECT 1')");
like($runner->{heard}, qr/ERROR: +canceling statement due to statement timeout/, 'not begun: the CALL is cancelled');
like(ask($runner, "SELECT format('[%s]', current_setting('shedlock.tick') || current_setting('shedlock.attempt'))"), qr/^\[\]$/m, 'not begun: no tick is shown');
ask($runner, 'RESET statement_timeout; RESET shedlock.notify');

# The server is told that it needs no standby, which a session reads only with its next
# statement: a run that waits begins.
$runner->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('released', 'SELECT');\n");
ok(defined await($node, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid"), 'released: the begin of a run waits');
$node->safe_psql('postgres', $_) foreach ('ALTER SYSTEM RESET synchronous_standby_names', 'SELECT pg_reload_conf()');
ok(defined await($node, q{SELECT current_setting('synchronous_standby_names') = ''}), 'isolated: the server requires no standby again');
ask($runner, 'SELECT 1');
is($runner->{heard}, '', 'released: the run continues without the standby');
is($node->safe_psql('postgres', q{SELECT outcome FROM shedlock_history WHERE name = 'released'}), 'succeeded', 'released: it succeeds');
is($node->safe_psql('postgres', "CALL shedlock_run('isolated', 'CREATE TABLE isolated ()'); SELECT outcome FROM shedlock_history WHERE name = 'isolated' ORDER BY token"), "cancelled\nsucceeded", 'isolated: the next run succeeds');

# What VACUUM writes without a transaction ID has not reached the standby, and no commit waits
# for it: the last row keeps VACUUM from truncating the table.  The end of the
# run waits like any other commit.
my $primary = start_node('primary', allows_streaming => 1, conf => "wal_sender_timeout = 0\nwal_receiver_timeout = 0\nmax_locks_per_transaction = 1000\n");
my $standby = start_standby($primary, 'standby');
my $cleaner = session($primary);
my $keeper = session($primary);
my $cleaner_pid = pid_of($cleaner);
$primary->safe_psql('postgres', "SELECT shedlock_job(name, $once, attempts => 2, backoff => '0') FROM unnest('{vacuum, fails}'::text[]) AS name;"
	  . "SELECT shedlock_job(name, $once) FROM unnest('{shedlock_cancel, shedlock_force_release}'::text[]) AS name");
$primary->safe_psql('postgres', 'CREATE TABLE vacuumed AS SELECT generate_series(1, 1000) AS id; DELETE FROM vacuumed WHERE id < 1000');
ask($keeper, 'BEGIN; LOCK vacuumed IN SHARE UPDATE EXCLUSIVE MODE');
$cleaner->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('vacuum', 'VACUUM vacuumed');\n");
ok(defined await($primary, "SELECT wait_event = 'relation' FROM pg_stat_activity WHERE pid = $cleaner_pid"), 'vacuum: the command has begun');
my $receiver = $standby->safe_psql('postgres', 'SELECT pid FROM pg_stat_wal_receiver');
kill 'STOP', $receiver;
ask($keeper, 'COMMIT');
ok(defined await($primary, "SELECT wait_event = 'SyncRep' OR state = 'idle' FROM pg_stat_activity WHERE pid = $cleaner_pid"), 'vacuum: the command has ended');
is($primary->safe_psql('postgres', "SELECT wait_event FROM pg_stat_activity WHERE pid = $cleaner_pid"), 'SyncRep', 'vacuum: the end of the run waits for the standby');
kill 'CONT', $receiver;
is(ask($cleaner, 'SELECT 1'), '1', 'vacuum: the run ends');
is($cleaner->{heard}, '', 'vacuum: the client gets no warning');

# The end of a run is safe whatever the commits of its command have waited for.
$primary->safe_psql('postgres', 'CREATE TABLE waited (mode text); CREATE PROCEDURE wait_as(mode text) LANGUAGE plpgsql AS $$BEGIN INSERT INTO waited VALUES (mode); COMMIT; END$$');
foreach my $mode ('remote_write', 'remote_apply')
{
	is(ask($cleaner, "SET synchronous_commit = $mode; CALL shedlock_run('$mode', 'CALL wait_as(''$mode'')'); SELECT outcome FROM shedlock_history WHERE name = '$mode'"), 'succeeded', "$mode: a run ends");
	is($cleaner->{heard}, '', "$mode: the client gets no warning");
}
ask($cleaner, 'RESET synchronous_commit');

# An administrator ends a run whose end waits for the standby.  The call waits for that end.
# The command has many locks: the server releases them after the row is visible, and before
# the session's share of the advisory half.
my $locks = 'count(pg_advisory_xact_lock_shared(3, n)) FROM generate_series(1, 50000) n';
sub end_ending
{
	my ($name, $call, $run) = @_;
	my $administrator = session($primary);
	my $administrator_pid = pid_of($administrator);

	ask($keeper, 'SELECT pg_advisory_lock(1)');
	$cleaner->query_until(qr/begun/, "\\echo begun\n$run;\n");
	ok(defined await($primary, "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = $cleaner_pid"), "$name: the command has begun");
	kill 'STOP', $receiver;
	ask($keeper, 'SELECT pg_advisory_unlock(1)');
	ok(defined await($primary, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $cleaner_pid"), "$name: the end waits for the standby");
	$administrator->query_until(qr/asked/, "\\echo asked\nSELECT $call('$name');\n");
	ok(defined await($primary, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $administrator_pid"), "$name: the call waits for the end");
	kill 'CONT', $receiver;
	is(ask($administrator, 'SELECT 1'), "f\n1", "$name: the answer is false");
	like($administrator->{heard}, qr/NOTICE:  lock "$name" is not held/, "$name: a NOTICE says why");
	$administrator->quit;
	return;
}

# The call does no harm to the next run of the session.
foreach my $call ('shedlock_cancel', 'shedlock_force_release')
{
	ask($keeper, 'SELECT pg_advisory_lock(2)');
	end_ending($call, $call, "CALL shedlock_run('$call', 'SELECT pg_advisory_xact_lock_shared(1); SELECT $locks');\n"
		  . "CALL shedlock_run('next', 'SELECT pg_advisory_xact_lock_shared(2)')");
	ask($keeper, 'SELECT pg_advisory_unlock(2)');
	is(ask($cleaner, 'SELECT 1'), '1', "$call: the session goes on");
	is($primary->safe_psql('postgres', "SELECT name, outcome FROM shedlock_history WHERE name IN ('$call', 'next') ORDER BY token DESC LIMIT 2"),
		"next|succeeded\n$call|succeeded", "$call: both runs have succeeded");
}

# If that end has failed, the tick keeps its other attempt.
end_ending('fails', 'shedlock_cancel', q{CALL shedlock_run('fails', 'SELECT 1 / length(pg_advisory_xact_lock_shared(1)::text)')});
ask($cleaner, 'SELECT 1');
is($primary->safe_psql('postgres', "CALL shedlock_run('fails', 'SELECT'); SELECT attempt, outcome FROM shedlock_history WHERE name = 'fails' ORDER BY token"),
	"1|failed\n2|succeeded", 'fails: the other attempt is made');
$_->quit foreach $cleaner, $keeper;
$standby->stop;
$primary->stop;

# A fence outlives the process of a run: no other run of its tick begins.
my $run_fenced = "CALL shedlock_run('fenced', 'SELECT pg_advisory_xact_lock_shared(1)', on_busy => 'error')";
my $dies = session($node);
my $dies_pid = pid_of($dies);
ask($other, 'SELECT pg_advisory_lock(1)');
$dies->query_until(qr/begun/, "\\echo begun\n$run_fenced;\n");
ok(defined await($node, "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = $dies_pid"), 'fenced: the command has begun');
my $fenced = $node->safe_psql('postgres', "SELECT token FROM shedlock_history WHERE name = 'fenced'");
is(ask($other, "BEGIN; SELECT shedlock_assert('fenced', $fenced)"), $fenced, 'fenced: another session fences its lock');
terminate($node, $dies_pid);
reap($dies);
ask($other, 'SELECT pg_advisory_unlock(1)');
like(error_of($node, $run_fenced), qr/^55P03: /, 'fenced: no run begins');
ask($other, 'COMMIT');
is($node->safe_psql('postgres', "$run_fenced; SELECT attempt, outcome FROM shedlock_history WHERE name = 'fenced' ORDER BY token"), "1|lost\n2|succeeded", 'fenced: one begins after the fence');

# The same when an administrator ends the run: it stays ended, and its tick used up.
my $run_forced = $run_fenced =~ s/'fenced'/'forced'/r;
$dies = session($node);
$dies_pid = pid_of($dies);
ask($other, 'SELECT pg_advisory_lock(1)');
$dies->query_until(qr/begun/, "\\echo begun\n$run_forced;\n");
ok(defined await($node, "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = $dies_pid"), 'forced: the command has begun');
my $forced = $node->safe_psql('postgres', "SELECT token FROM shedlock_history WHERE name = 'forced'");
is(ask($other, "BEGIN; SELECT shedlock_assert('forced', $forced)"), $forced, 'forced: another session fences its lock');
my ($forced_status, $forced_stdout, $forced_stderr) = $node->psql('postgres', q{LISTEN shedlock; SELECT shedlock_force_release('forced')});
like($forced_stdout, qr/^t$/m, 'forced: the session is ended');
my @told = $forced_stdout =~ /"event" ?: ?"(\w+)"/g;
is("@told", 'cancelled forced', 'forced: ... which is told');
like($forced_stderr, qr/terminating the session .*WARNING:  lock "forced" is in use by an open transaction/s, 'forced: ... with a warning, because the lock is not free');
is($node->safe_psql('postgres', q{SELECT outcome, sqlstate FROM shedlock_history WHERE name = 'forced'}), 'cancelled|57014', 'forced: the run is cancelled');
ask($other, 'SELECT pg_advisory_unlock(1); COMMIT');
reap($dies);
is($node->safe_psql('postgres', q{SELECT shedlock_force_release('forced')}), 'f', 'forced: there is nothing to end after the fence');
is($node->safe_psql('postgres', "$run_forced; SELECT attempt, outcome FROM shedlock_history WHERE name = 'forced' ORDER BY token"), '1|cancelled', 'forced: no other attempt begins');

# In a pipeline, whose statements are one transaction; since PostgreSQL 18 a block
my $script = PostgreSQL::Test::Utils::tempdir . '/pipeline.sql';
PostgreSQL::Test::Utils::append_to_file($script, "\\startpipeline\nCREATE TABLE pipeline ();\nCALL shedlock_run('pipeline', 'SELECT');\n\\endpipeline\n");
$node->command_checks_all([ 'pgbench', '-n', '-t', '1', '-M', 'extended', '-f', $script, $node->connstr('postgres') ], 2, [qr//],
	[qr/CALL shedlock_run cannot (?:be executed within a pipeline|run inside a transaction block)/], 'pipeline: refused');
is($node->safe_psql('postgres', q{SELECT to_regclass('pipeline')}), '', 'pipeline: all of it is rolled back');

# The sequence draws tokens that are already in the history.
$node->safe_psql('postgres', "SELECT setval('shedlock_token_seq', max(token) - 1) FROM _shedlock_history");
like(error_of($node, "CALL shedlock_run('tokens again', 'SELECT')"), qr/^23505: token \d+ is in the history already/, 'tokens again: the run is refused');
$node->safe_psql('postgres', "SELECT setval('shedlock_token_seq', max(token)) FROM _shedlock_history");
is($node->safe_psql('postgres', "SELECT shedlock_acquire('tokens again')"), 't', 'tokens again: the lock is free');

# The row of a lost run is locked: nobody acquires its lock before that run is counted.
begin_run('uncounted');
terminate($node, $pid);
ask($other, q{BEGIN; SELECT FROM _shedlock_history WHERE name = 'uncounted' FOR UPDATE});
like(error_of($node, $_), qr/^55P03: could not record outcome "lost" of the run with token \d+/, "uncounted: refused: $_")
  foreach "SELECT shedlock_acquire('uncounted')", "CALL shedlock_run('uncounted', 'SELECT')", "DELETE FROM shedlock WHERE name = 'uncounted'";
ask($other, 'COMMIT; SELECT pg_advisory_unlock(1)');
reap($runner);
is($node->safe_psql('postgres', q{CALL shedlock_run('uncounted', 'SELECT'); SELECT runs_lost, runs_succeeded FROM shedlock_stats WHERE name = 'uncounted'}), '1|1', 'uncounted: the next run counts it');
$runner = session($node);
$pid = pid_of($runner);

# A client of ShedLock acquires the lock of a dead run.
begin_run('dead run');
terminate($node, $pid);
ask($other, 'SELECT pg_advisory_unlock(1)');
reap($runner);
my $utc = "clock_timestamp() AT TIME ZONE 'UTC'";
is($node->safe_psql('postgres', "UPDATE shedlock SET lock_until = $utc + '1 h', locked_at = $utc, locked_by = 'java' WHERE name = 'dead run' RETURNING kind"), 'lease', 'dead run: a foreign client acquires its lock');
is($node->safe_psql('postgres', "SELECT outcome FROM _shedlock_history WHERE name = 'dead run'"), 'lost', 'dead run: the acquire logs the run as lost');

# The lock of a dead run is purged, or its row deleted, before the next acquire.
foreach my $end ("UPDATE shedlock SET lock_until = locked_at WHERE name = 'forgotten'; SELECT shedlock_purge('0 s')", "DELETE FROM shedlock WHERE name = 'forgotten'")
{
	$runner = session($node);
	$pid = pid_of($runner);
	begin_run('forgotten');
	terminate($node, $pid);
	ask($other, 'SELECT pg_advisory_unlock(1)');
	reap($runner);
	$node->safe_psql('postgres', $end);
	is($node->safe_psql('postgres', "SELECT outcome, (SELECT count(*) FROM shedlock WHERE name = 'forgotten') FROM _shedlock_history WHERE name = 'forgotten' ORDER BY token DESC LIMIT 1"),
		'lost|0', "forgotten: the history shows the run as lost after $end");
}

# An administrator's force-release is rolled back: the owner's call waits for that.
my $owner = session($node);
my $owner_pid = pid_of($owner);
ask($owner, "SELECT shedlock_acquire('second thoughts', '10 min')");
ask($other, "BEGIN; SELECT shedlock_force_release('second thoughts')");
$owner->{stderr} = '';
$owner->query_until(qr/begun/, "\\echo begun\nSELECT 'extended: ' || shedlock_extend('second thoughts', lock_at_most_for => '10 min');\n");
ok(defined await($node, 'SELECT wait_event_type = $$Extension$$ FROM pg_stat_activity WHERE pid = ' . $owner_pid), 'second thoughts: an extend waits');
ask($other, 'ROLLBACK');
like(ask($owner, "SELECT shedlock_release('second thoughts')"), qr/^extended: true\nt$/, 'second thoughts: the extend succeeds after the rollback');
$owner->quit;

# A force-release of a lock that an open transaction acquires is refused at once.
ask($other, "BEGIN; SELECT shedlock_acquire('in use')");
is($node->safe_psql('postgres', q{CREATE FUNCTION pg_temp.refused() RETURNS interval LANGUAGE plpgsql AS $$
	DECLARE
		start timestamptz := clock_timestamp();
	BEGIN
		PERFORM shedlock_force_release('in use');
		RETURN NULL;
	EXCEPTION WHEN object_in_use THEN
		RETURN clock_timestamp() - start;
	END $$;
	SELECT least(pg_temp.refused(), pg_temp.refused(), pg_temp.refused()) < '0.9 s'}), 't', 'in use: force_release waits for no transaction');
ask($other, 'ROLLBACK');

# There is nothing to force-release once the session has ended.
my $ended = session($node);
ask($ended, "SELECT shedlock_acquire_session('ended')");
terminate($node, pid_of($ended));
reap($ended);
is($node->safe_psql('postgres', "SELECT shedlock_force_release('ended')"), 'f', 'ended: force_release returns false');

# The rows are deleted while a session holds its lock.
my $holder = session($node);
ask($holder, "SELECT shedlock_acquire_session('no row')");
$node->safe_psql('postgres', 'TRUNCATE shedlock');
is($node->safe_psql('postgres', "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('no row', $utc + '1 h', $utc, 'java') RETURNING name"), '', 'no row: a foreign client is turned away');
is($node->safe_psql('postgres', "SELECT lock_until <= $utc, kind FROM shedlock WHERE name = 'no row'"), 't|', 'no row: a row for its next try is there');

# Nested runs, whose session does not end when it is terminated, nor in time: the ticks of both
# are used up.
my $nested = q{CALL shedlock_run('outer', $$CALL shedlock_run('inner', 'SELECT pg_advisory_xact_lock_shared(1)')$$)};
my $nests = session($node);
my $nests_pid = pid_of($nests);
my $settled = q{SELECT string_agg(concat_ws(' ', h.name, outcome, done), ', ' ORDER BY token) FROM shedlock_history h JOIN _shedlock_tick USING (token) WHERE h.name IN ('outer', 'inner')};
ask($other, 'SELECT pg_advisory_lock(1)');
$nests->query_until(qr/begun/, "\\echo begun\n$nested;\n");
ok(defined await($node, "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = $nests_pid"), 'nested: the command has begun');
is($node->safe_psql('postgres', "BEGIN; SELECT shedlock_force_release('inner'); ROLLBACK; $settled"), "t\nouter running f, inner running f", 'nested: a rollback leaves them at work');
kill 'STOP', $nests_pid;
is($node->safe_psql('postgres', "SET statement_timeout = '2s'; SELECT shedlock_force_release('inner'); $settled"), "t\nouter cancelled t, inner cancelled t", 'nested: statement_timeout does not undo what is committed');
kill 'CONT', $nests_pid;
reap($nests);
ask($other, 'SELECT pg_advisory_unlock(1)');
is($node->safe_psql('postgres', "$nested; $settled"), 'outer cancelled t, inner cancelled t', 'nested: neither is begun again');

# A process that has ended before the commit is not signalled, and a transaction that ends one
# cannot be prepared.
my $gone = session($node);
ask($gone, "SELECT shedlock_acquire_session('gone'), shedlock_acquire_session('gone, too')");
is(ask($other, "BEGIN; SELECT shedlock_force_release('gone'), shedlock_force_release('gone, too')"), 't|t', 'gone: both locks of a session are force-released');
terminate($node, pid_of($gone));
reap($gone);
ask($other, 'COMMIT');
unlike($other->{heard}, qr/WARNING|ERROR/, 'gone: ... also if it has ended by then');
my $stays = session($node);
ask($stays, "SELECT shedlock_acquire_session('stays')");
ask($other, "BEGIN; SELECT shedlock_force_release('stays'); PREPARE TRANSACTION 'stays'");
like($other->{heard}, qr/ERROR: +cannot PREPARE a transaction that has ended/, 'stays: PREPARE TRANSACTION is refused');
is(ask($stays, "SELECT shedlock_release('stays')"), 't', 'stays: the session is not ended');
$stays->quit;

# A session does not end when it is terminated.
ask($holder, "SELECT shedlock_acquire_session('stopped')");
my $stopped = pid_of($holder);
kill('STOP', $stopped);
my ($status, $stdout, $stderr) = $node->psql('postgres', "SELECT shedlock_force_release('stopped')");
kill('CONT', $stopped);
is($stdout, 't', 'stopped: force_release has told the session to end');
like($stderr, qr/WARNING:  session that holds lock "stopped" did not end in time/, 'stopped: ... and warns that it has not ended');
like(slurp_file($node->logfile), qr/which held lock "stopped", terminated by role "postgres"/, 'stopped: ... and logs by whom');
ok(defined await($node, "SELECT shedlock_acquire('stopped')"), 'stopped: the lock is free after the session has ended');
reap($holder);

# No timer can be created.
my $poor = session($node);
PostgreSQL::Test::Utils::system_or_bail('prlimit', '--pid=' . pid_of($poor), '--sigpending=0');
ask($poor, "SELECT shedlock_acquire_session('no timer', '1 h')");
like($poor->{heard}, qr/ERROR: +could not create a timer for lock_at_most_for/, 'no timer: a session lock with lock_at_most_for is refused');
is(ask($poor, "SELECT shedlock_acquire_session('no timer')"), 't', 'no timer: the lock is free, and without lock_at_most_for it is acquired');
$poor->quit;

# Limits a process to its current memory plus an amount, or removes the limit.
sub limit_memory
{
	my ($of, $more_kb) = @_;
	my ($kb) = slurp_file("/proc/$of/status") =~ /^VmSize:\s+(\d+) kB/m;

	PostgreSQL::Test::Utils::system_or_bail('prlimit', "--pid=$of", '--as=' . (defined $more_kb ? ($kb + $more_kb) * 1024 : 'unlimited') . ':');
	return;
}

# The error of a command is so long that no memory is left to copy it: the run ends
# without an outcome.  The session then starts it again inside another run, as a run of
# its own.
my $short = session($node);
my $long = join(', ', map { "$_ = x" } qw(MESSAGE DETAIL HINT COLUMN CONSTRAINT DATATYPE TABLE SCHEMA));
limit_memory(pid_of($short), 360 * 1024);
ask($short, "CALL shedlock_run('no copy', 'DO \$\$ DECLARE x text := repeat(''x'', 16777216); BEGIN RAISE EXCEPTION USING $long; END \$\$')");
like($short->{heard}, qr/ERROR: +out of memory/, 'no copy: the client gets the reason');
limit_memory(pid_of($short));
is($node->safe_psql('postgres', "SELECT outcome FROM _shedlock_history WHERE name = 'no copy' ORDER BY token"), 'running', 'no copy: the run has no outcome');
ask($short, q{CALL shedlock_run('around', 'CALL shedlock_run(''no copy'', ''SELECT'')')});
is($short->{heard}, '', 'no copy: it can be started again inside another run');
is($node->safe_psql('postgres', "SELECT outcome FROM _shedlock_history WHERE name = 'no copy' ORDER BY token"), "lost\nsucceeded", 'no copy: it is then a run of its own');
$short->quit;

# No memory is left after the commit of a transaction, or when a session ends.  A wake-up
# takes more memory if max_connections is larger.  With this threshold malloc() gives such
# memory back when it is freed, so that it cannot be had again.
$ENV{MALLOC_MMAP_THRESHOLD_} = 65536;
my $control = "$PostgreSQL::Test::Utils::tmp_check/failmalloc";
PostgreSQL::Test::Utils::append_to_file($control, pack('l3', 0, 0, -1));
local $ENV{FAILMALLOC_FILE} = $control;
local $ENV{LD_PRELOAD} = $ENV{SHEDLOCK_FAILMALLOC} if $ENV{SHEDLOCK_FAILMALLOC};
my $crowd = start_node('crowd', conf => "max_connections = 20000\nmax_locks_per_transaction = 10\nmax_pred_locks_per_transaction = 10\n");
delete @ENV{qw(MALLOC_MMAP_THRESHOLD_ LD_PRELOAD)};
my $starved = session($crowd);
my $starved_pid = pid_of($starved);
my $waiter = session($crowd);

ask($starved, "SELECT shedlock_acquire_session('no memory')");
$waiter->query_until(qr/begun/, "\\echo begun\nSELECT shedlock_acquire('no memory', '1 h', wait => '10 min');\n");
ok(defined await($crowd, q{SELECT count(*) = 1 FROM pg_locks WHERE objsubid = 21325}), 'no memory: a waiter waits');
foreach my $end ('ROLLBACK', 'COMMIT')
{
	ask($starved, "BEGIN; SELECT shedlock_release('no memory')");
	limit_memory($starved_pid, 0);
	is(ask($starved, "$end;\nSELECT 'alive'"), 'alive', "no memory: a $end completes");
	limit_memory($starved_pid);
}
is(ask($waiter, 'SELECT 1'), "t\n1", 'no memory: the waiter acquires the lock');

# The same at the very instant at which the first waiter is looked up.
SKIP:
{
	skip 'SHEDLOCK_FAILMALLOC does not name the library that lets malloc() fail: see scripts/test', 4 unless $ENV{SHEDLOCK_FAILMALLOC};
	ask($waiter, "SELECT shedlock_release('no memory')");
	ask($starved, "SELECT shedlock_acquire_session('no memory')");
	$waiter->query_until(qr/begun/, "\\echo begun\nSELECT shedlock_acquire('no memory', '1 h', wait => '10 min');\n");
	ok(defined await($crowd, q{SELECT count(*) = 1 FROM pg_locks WHERE objsubid = 21325}), 'no memory for the list: a waiter waits');
	ask($starved, "BEGIN; SELECT shedlock_release('no memory')");
	open my $file, '+<', $control or die "$control: $!";
	syswrite $file, pack('l3', $starved_pid, 100_000, 1);
	is(ask($starved, "COMMIT;\nSELECT 'alive'"), 'alive', 'no memory for the list: a COMMIT completes');
	is((unpack 'l3', slurp_file($control))[2], -1, 'no memory for the list: malloc() has failed');
	is(ask($waiter, 'SELECT 1'), "t\n1", 'no memory for the list: the waiter acquires the lock');
}
ask($starved, "SELECT shedlock_acquire_session('no memory at exit')");
limit_memory($starved_pid, 0);
terminate($crowd, $starved_pid);
reap($starved);
is($crowd->safe_psql('postgres', "SELECT shedlock_acquire('no memory at exit')"), 't', 'no memory at exit: the lock is free');
unlike(slurp_file($crowd->logfile), qr/PANIC|out of memory|was terminated/, 'no memory: the log has no complaint');
$waiter->quit;
$crowd->stop;

# The server's lock table is full when a run ends, and has room again after a second.  A lock
# on a table needs such room as soon as others have strong locks on many tables.
my $full = start_node('full', conf => "max_connections = 10\nmax_locks_per_transaction = 50\nautovacuum = off\n");
my ($gate, $ends) = map { session($full) } 1, 2;
my $ends_pid = pid_of($ends);
$full->safe_psql('postgres', q{SELECT format('CREATE TABLE many_%s ()', i) FROM generate_series(1, 800) i \gexec});
ask($gate, "SELECT pg_advisory_lock(1), shedlock_job('full', $once)");
$ends->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('full', 'SELECT pg_advisory_xact_lock_shared(1)');\n");
ok(defined await($full, "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = $ends_pid"), 'full: a run is in progress');
ask($gate, q{DO $$
DECLARE
	name text;
	locked int := 0;
BEGIN
	PERFORM pg_advisory_lock(2), pg_advisory_unlock(2), pg_sleep(0);
	FOR name IN SELECT relname FROM pg_class WHERE relname ~ '^many_\d' LOOP
		EXECUTE format('LOCK %I IN SHARE MODE', name);
	END LOOP;
	LOOP
		BEGIN
			PERFORM pg_advisory_xact_lock(3, locked);
		EXCEPTION WHEN out_of_memory THEN
			EXIT;
		END;
		locked := locked + 1;
	END LOOP;
	PERFORM pg_advisory_unlock(1), pg_sleep(1);
	RAISE NOTICE '% more locks', locked;
END $$});
like($gate->{heard}, qr/NOTICE: +\d+ more locks/, 'full: the lock table was full');
ask($ends, 'SELECT 1');
is($ends->{heard}, '', 'full: the client gets no warning');
is(ask($ends, q{SELECT outcome, (SELECT done FROM _shedlock_tick WHERE name = 'full'), shedlock_acquire('full') FROM shedlock_history WHERE name = 'full'}),
	'succeeded|t|t', 'full: the end is written as soon as there is room');
$_->quit foreach $gate, $ends;
$full->stop;

# Over TCP the row has the client's address.
is($node->safe_psql('postgres', "SELECT shedlock_acquire('address'); SELECT locked_by ~ '\@127\\.0\\.0\\.1 #\\d+\$' FROM shedlock WHERE name = 'address'",
		connstr => 'host=127.0.0.1 port=' . $node->port . ' dbname=postgres'), "t\nt", 'address: locked_by has the client\'s address');

# Prepared transactions, and leases before, between and after them
my $many = session($node);
ask($many, 'SET client_min_messages = error');
sub prepare_lease { ask($many, "BEGIN; SELECT shedlock_acquire('prepared $_[0]', '1 h'); PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'") }
ask($many, "SELECT shedlock_acquire('before all', '1 h')");
prepare_lease(1);
my $token = ask($many, "SELECT shedlock_acquire_token('between', '1 h')");
prepare_lease(2);
ask($many, "SELECT shedlock_acquire('after all', '1 h')");
is(ask($many, "SELECT shedlock_release('prepared 1'), shedlock_release('prepared 2')"), 'f|f', 'prepared: their leases belong to their tokens');
is(ask($many, "SELECT shedlock_release('before all'), shedlock_release('after all')"), 't|t', 'prepared: leases before and after them belong to the session');
is(ask($many, "SELECT shedlock_release('between'), shedlock_release('between', $token)"), 'f|t', 'prepared: a lease between two of them belongs to its token');
$many->quit;

# The table has lost its primary key.
like(error_of($node, "BEGIN; ALTER TABLE shedlock DROP CONSTRAINT shedlock_pkey; SELECT shedlock_acquire('no key')"), qr/^42704: table "shedlock" of extension "shedlock" has no primary key/, 'no key: a call gets an error that says so');

# The table's owner has changed columns that the library relies on; rows of other types
# would crash it.  Views protect all columns of _shedlock_history and most of
# _shedlock_tick.
foreach ([ 'shedlock', 'ALTER token TYPE text', 6, 'bigint', "SELECT shedlock_acquire('altered')" ],
	[ 'shedlock', 'DROP lock_until, ADD lock_until timestamp', 3, 'timestamp without time zone', "SELECT shedlock_acquire('altered')" ],
	[ 'shedlock', 'ALTER pid TYPE text', 8, 'integer', 'SELECT count(*) FROM shedlock_locks' ],
	[ 'shedlock', 'ALTER lock_at_most_for TYPE text', 12, 'interval', "UPDATE shedlock SET locked_by = 'altered'" ],
	[ '_shedlock_tick', 'ALTER retry_at TYPE text', 9, 'timestamp with time zone', "SELECT shedlock_once('altered', '2026-11-21 00:00Z')" ],
	[ '_shedlock_job', 'ALTER turns TYPE text', 20, 'integer', "SELECT token FROM shedlock_run_begin('altered')" ])
{
	my ($table, $change, $column, $type, $call) = @$_;
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nBEGIN; ALTER TABLE $table $change; $call");
	like($err, qr/ERROR: +42804: table "$table" of extension "shedlock" was altered\n.*column number $column is not of type $type any more/,
		"$table, $change: a call gets an error that says so");
}
foreach ([ 'shedlock', 'ALTER locked_by DROP NOT NULL', 5, 'SELECT * FROM shedlock_locks' ],
	[ '_shedlock_tick', 'ALTER claimed_at DROP NOT NULL', 3, "SELECT shedlock_once('altered', '2026-11-21 00:00Z')" ],
	[ '_shedlock_job', 'ALTER schedule DROP NOT NULL', 2, "SELECT token FROM shedlock_run_begin('altered')" ],
	[ '_shedlock_history', 'ALTER outcome DROP NOT NULL', 8, "SELECT _shedlock_run_outcome(1, 'altered', 'running')" ])
{
	my ($table, $change, $column, $call) = @$_;
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nBEGIN; ALTER TABLE $table $change; $call");
	like($err, qr/ERROR: +42804: table "$table" of extension "shedlock" was altered\n.*column number $column can be null/,
		"$table, $change: a call gets an error that says so");
}
like(error_of($node, "BEGIN; ALTER TABLE shedlock SET UNLOGGED; SELECT shedlock_acquire('altered')"), qr/^42809: "shedlock" of extension "shedlock" is not an ordinary, logged table/, 'not logged: a call gets an error that says so');
like(error_of($node, "BEGIN; ALTER TABLE shedlock DROP CONSTRAINT shedlock_pkey; ALTER TABLE shedlock ADD PRIMARY KEY (locked_at, name); SELECT shedlock_acquire('altered')"),
	qr/^42804: table "shedlock" of extension "shedlock" was altered/, 'another key: a call gets an error that says so');

# Calls that begin something are refused if the library's writes would bypass a change
# to the table, before anything is written.
foreach ([ 'ALTER TABLE shedlock ADD CHECK (lock_until < locked_at) NOT VALID', "shedlock_acquire('altered')", '42809: table "shedlock" of extension "shedlock" was altered' ],
	[ 'ALTER TABLE _shedlock_tick ADD CHECK (true)', "shedlock_once('altered', '2026-11-21 00:00Z')", '42809: table "_shedlock_tick" of extension "shedlock" was altered' ],
	[ 'ALTER TABLE _shedlock_job ADD CHECK (true)', "shedlock_job('altered', '\@daily')", '42809: table "_shedlock_job" of extension "shedlock" was altered' ],
	[ 'ALTER TABLE shedlock DROP CONSTRAINT shedlock_kind_check, ADD CHECK (true)', "shedlock_acquire('altered')", '42809: table "shedlock" of extension "shedlock" was altered' ],
	[ 'ALTER TABLE shedlock ADD UNIQUE (name, locked_by) DEFERRABLE', "shedlock_acquire('altered')", '42809: table "shedlock" of extension "shedlock" was altered' ],
	[ 'ALTER TABLE _shedlock_tick ADD EXCLUDE (name WITH =) DEFERRABLE', "shedlock_once('altered', '2026-11-21 00:00Z')", '42809: table "_shedlock_tick" of extension "shedlock" was altered' ],
	[ 'CREATE TABLE job (name varchar(255) CONSTRAINT job_fk REFERENCES shedlock)', "shedlock_purge('0')", '42809: table "shedlock" of extension "shedlock" was altered' ],
	[ 'CREATE TABLE job (name varchar(255) PRIMARY KEY); ALTER TABLE shedlock ADD FOREIGN KEY (name) REFERENCES job NOT VALID', "shedlock_acquire('altered')", '42809: table "shedlock" of extension "shedlock" was altered' ],
	[ 'ALTER TABLE shedlock ADD CHECK (true)', "1; INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('altered', timezone('UTC', now()) + '1 h', timezone('UTC', now()), 'host')", '42809: table "shedlock" of extension "shedlock" was altered' ],
	[ 'TRUNCATE _shedlock_job; ALTER TABLE _shedlock_job ALTER max_late SET NOT NULL', "shedlock_job('altered', '\@daily')", '42809: table "_shedlock_job" of extension "shedlock" was altered' ],
	[ 'CREATE TABLE whole (LIKE shedlock) PARTITION BY LIST (name); ALTER TABLE whole ATTACH PARTITION shedlock DEFAULT', "shedlock_acquire('altered')", '42809: table "shedlock" of extension "shedlock" was altered' ],
	[ 'ALTER SEQUENCE shedlock_token_seq SET UNLOGGED', "shedlock_acquire('altered')", '42809: sequence "shedlock_token_seq" of extension "shedlock" was altered' ],
	[ 'ALTER SEQUENCE shedlock_token_seq CACHE 2', "shedlock_acquire('altered')", '42809: sequence "shedlock_token_seq" of extension "shedlock" was altered' ],
	[ 'CREATE PUBLICATION p FOR TABLE shedlock; ALTER TABLE shedlock REPLICA IDENTITY NOTHING', "shedlock_acquire('altered')", '55000: cannot update table "shedlock"' ],
	[ 'CREATE PUBLICATION p FOR TABLE shedlock WHERE (token > 0)', "shedlock_acquire('altered')", '42P10: cannot update table "shedlock"' ],
	[ q{CREATE PUBLICATION p FOR TABLE shedlock WITH (publish = 'delete'); ALTER TABLE shedlock REPLICA IDENTITY NOTHING}, "shedlock_acquire('altered')", '55000: cannot delete from table "shedlock"' ])
{
	my ($change, $call, $error) = @$_;

	like(error_of($node, "SELECT shedlock_acquire('warm up'), shedlock_release('warm up'); BEGIN; $change; SELECT $call"), qr/^\Q$error/, "$change: a call gets an error that says so");
	is(ask($other, "BEGIN; $change; SELECT count(*) >= 0 FROM shedlock_locks; ROLLBACK"), 't', '... reading the views gets no error');
}
is(error_of($node, "BEGIN; ALTER TABLE shedlock REPLICA IDENTITY NOTHING; SELECT shedlock_acquire('altered')"), 'no error', 'no replica identity is allowed without a publication');
is(error_of($node, "BEGIN; CREATE PUBLICATION p FOR TABLE shedlock; SELECT shedlock_acquire('altered')"), 'no error', 'a publication is allowed');
is(error_of($node, "BEGIN; ALTER TABLE shedlock DROP CONSTRAINT shedlock_kind_check, ADD UNIQUE (name, locked_by); SELECT shedlock_acquire('altered')"), 'no error', 'a missing CHECK constraint and an additional unique one are allowed');
like(ask($other, "BEGIN; ALTER TABLE shedlock ADD more text; SELECT shedlock_acquire('more'); ROLLBACK"), qr/t/, 'an additional column is allowed');

# What had begun before such a change ends all the same.
ask($other, "SELECT shedlock_acquire('altered lease', '1 h')");
# It begins early in a second, and ends in the next one.
ask($other, q{SELECT shedlock_job('alters', 'every 1 s'); SELECT pg_sleep(1.1 - extract(epoch FROM clock_timestamp())::numeric % 1)});
ask($other, q{CALL shedlock_run('alters', 'SELECT pg_sleep(1.2); ALTER TABLE shedlock ADD CONSTRAINT added CHECK (true);
	ALTER TABLE _shedlock_tick ADD CONSTRAINT added CHECK (true); ALTER TABLE _shedlock_history ADD CONSTRAINT added CHECK (true)')});
is($other->{heard}, '', 'a run that adds CHECK constraints: the client gets no warning');
is($node->safe_psql('postgres', q{SELECT h.outcome, s.kind IS NULL, t.tick > h.tick FROM shedlock_history h JOIN shedlock s USING (name) JOIN _shedlock_tick t USING (name) WHERE name = 'alters'}),
	'succeeded|t|t', '... its outcome is recorded, its lock free, and the ticks that it missed are claimed');
is(ask($other, "SELECT shedlock_extend('altered lease'), shedlock_assert('altered lease') > 0, shedlock_release('altered lease')"), 't|t|t', '... a held lock can be extended, asserted and released');
like(error_of($node, "SELECT $_"), qr/^42809: table "shedlock" of extension "shedlock" was altered/, "... no new call begins: $_")
  foreach "shedlock_acquire('altered lease')", "shedlock_purge('0')";
$node->safe_psql('postgres', 'ALTER TABLE shedlock DROP CONSTRAINT added');
like(error_of($node, "CALL shedlock_run('altered', 'SELECT')"), qr/^42809: table "_shedlock_history" of extension "shedlock" was altered/, '... no other run begins');
$node->safe_psql('postgres', 'ALTER TABLE _shedlock_tick DROP CONSTRAINT added; ALTER TABLE _shedlock_history DROP CONSTRAINT added');

# Foreign writers lock the row of a lock between its read and its update, at every
# possible instant.
my @scripts = map { PostgreSQL::Test::Utils::tempdir . "/$_.sql" } 'taken', 'locked';
PostgreSQL::Test::Utils::append_to_file($scripts[0], "SET client_min_messages = error;\nSELECT shedlock_acquire('row'), shedlock_release('row');\n");
PostgreSQL::Test::Utils::append_to_file($scripts[1], "BEGIN;\nSELECT FROM shedlock WHERE name = 'row' FOR UPDATE;\nCOMMIT;\n");
$node->command_ok([ 'pgbench', '-n', '-c', '4', '-T', '3', (map { ('-f', $_) } @scripts), $node->connstr('postgres') ], 'row: acquires and row locks race without an error');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('row')"), 't', 'row: the lock is free');

# The extension is dropped and created again while a caller waits for its table.
ask($other, 'SET client_min_messages = warning; BEGIN; DROP EXTENSION shedlock; CREATE EXTENSION shedlock');
my $late = session($node);
$late->query_until(qr/begun/, "\\echo begun\nSELECT 'created again: ' || shedlock_acquire('created again');\n");
ok(defined await($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ '^SELECT .created again'}), 'created again: a caller waits');
ask($other, 'COMMIT');
like(ask($late, 'SELECT 1'), qr/^created again: true$/m, 'created again: the caller acquires the lock in the new table');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('created again')"), 'f', 'created again: the lock excludes others');

# An administrator ends a run for whose lock a crowd waits: none of it is in the way.
$node->safe_psql('postgres', "SELECT shedlock_job('crowd', 'every 1 s', attempts => 3, backoff => '0')");
my ($worker, @crowd) = map { session($node) } 0 .. 15;
$worker->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('crowd', 'SELECT pg_sleep(3600)');\n");
ok(defined await($node, q{SELECT clock_timestamp() > tick + interval '2 s' FROM _shedlock_tick WHERE name = 'crowd'}), 'crowd: a run is in progress, and the next tick has come');
$_->query_until(qr/sent/, "\\echo sent\nSELECT token > 0 FROM shedlock_run_begin('crowd', wait => '1 h');\n") foreach @crowd;
ok(defined await($node, q{SELECT waiters = 15 FROM shedlock_locks WHERE name = 'crowd'}), 'crowd: fifteen callers wait for the lock');
is($node->safe_psql('postgres', q{SELECT shedlock_force_release('crowd')}), 't', 'crowd: the run is ended');
ok(defined await($node, q{SELECT string_agg(outcome, ' ' ORDER BY token) FROM shedlock_history WHERE name = 'crowd'}, 'cancelled running'), 'crowd: one of the callers begins the next run');
unlike(slurp_file($node->logfile), qr/ERROR: .*"crowd"/, 'crowd: no call fails');

reap($_) foreach $other, $late, $worker, @crowd;
$node->stop('immediate');
done_testing();
