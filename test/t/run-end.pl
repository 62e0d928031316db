# A run that succeeds ends in the last transaction of its command: its lock is free, its
# outcome recorded and its tick used up if, and only if, the work is committed.  Where that
# is not possible it ends in a transaction of its own, and neither delays nor undoes the work.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main',
	allows_streaming => 1,
	conf => "track_commit_timestamp = on\nautovacuum = off\nwal_writer_delay = 10s\nwal_writer_flush_after = 1GB\n");
my $runner = session($node);
my $other = session($node);
my $pid = pid_of($runner);

$node->safe_psql(
	'postgres', q{
CREATE TABLE work (name text, part int);
CREATE TABLE checked (i int CONSTRAINT checked_twice UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE asserted (name text);
CREATE FUNCTION assert_lock() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shedlock_assert(NEW.name);
	RAISE WARNING 'asserted at the commit';
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON asserted
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION assert_lock();
CREATE PROCEDURE parts(name text) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO work VALUES (name, 1);
	COMMIT;
	INSERT INTO work VALUES (name, 2);
END $$;
CREATE PROCEDURE commits(name text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(1);
	INSERT INTO work VALUES (name, 1);
	COMMIT;
END $$;
CREATE ROLE nobody;
CREATE SCHEMA elsewhere;
});
ask($runner, 'SET client_min_messages = debug1');

# A call whose command does $work and inserts a row, and then what follows; of a job, if it
# is told what to declare.
sub call
{
	my ($name, %options) = @_;
	my $command = ($options{work} || '') . "INSERT INTO work VALUES ('$name', 1)" . ($options{then} || '');

	$node->safe_psql('postgres', "SELECT shedlock_job('$name', $options{job})") if $options{job};
	$command =~ s/'/''/g;
	return "CALL shedlock_run('$name', '$command'" . ($options{arguments} || '') . ');';
}

# Starts a call that continues until the advisory lock is released.
sub begin_call
{
	my ($name, %options) = @_;

	ask($other, 'SELECT pg_advisory_lock(1)');
	$options{work} = 'SELECT pg_advisory_xact_lock_shared(1);' . ($options{work} || '');
	my $sql = call($name, %options);

	$sql = "CALL shedlock_run('$options{around}', \$\$$sql\$\$, '$options{limit}');" if $options{around};
	begin_sql($name, $sql);
	ok(defined await($node, "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = $pid"), "$name: is in progress");
	return;
}

sub begin_sql
{
	my ($name, $sql) = @_;

	$runner->{stderr} = '';
	$runner->query_until(qr/begun/, "\\echo begun\n$sql\n");
	return;
}

# Returns all that the client has heard of it.
sub end_of_call
{
	ask($runner, 'SELECT 1');
	return $runner->{heard};
}

sub outcome
{
	my ($name) = @_;

	return $node->safe_psql('postgres', "SELECT outcome || coalesce(' ' || sqlstate, '') FROM _shedlock_history WHERE name = '$name'");
}

# Were all these written by one commit?  The end has a subtransaction of it.
sub together
{
	my ($name, @more) = @_;
	my $rows = join ' UNION ALL ', map { "SELECT xmin FROM $_ WHERE name = '$name'" } 'shedlock', '_shedlock_history', '_shedlock_stats', @more;

	return $node->safe_psql('postgres', "SELECT count(DISTINCT pg_xact_commit_timestamp(xmin)) = 1 FROM ($rows) r");
}

sub is_free
{
	my ($name) = @_;

	return is($node->safe_psql('postgres', "SELECT shedlock_acquire('$name'), shedlock_release('$name')"), 't|t', "$name: the lock is free");
}

# The run succeeds in the transaction of its command.
sub ends_in_command
{
	my ($name, $sql, @more) = @_;

	ask($runner, $sql || call($name));
	unlike($runner->{heard}, qr/of its own|WARNING|ERROR/, "$name: nothing is said");
	is(outcome($name), 'succeeded', "$name: succeeds");
	is(together($name, @more), 't', "$name: ends with the command's transaction");
	return;
}

# It succeeds in a transaction of its own, because of what the detail says.
sub ends_alone
{
	my ($name, $heard, $detail) = @_;

	like($heard, qr/DEBUG: +run of lock "\Q$name\E" ends in a transaction of its own\nDETAIL: +$detail/, "$name: ends in a transaction of its own");
	unlike($heard, qr/WARNING|ERROR/, "$name: the client gets no warning");
	is(outcome($name), 'succeeded', "$name: succeeds");
	return is_free($name);
}

# The command's transaction is rolled back, and the end in it, too.
sub ends_with_error
{
	my ($name, $heard, $error, $outcome) = @_;

	like($heard, qr/ERROR: +$error/, "$name: the client gets the error");
	unlike($heard, qr/WARNING/, "$name: and no warning");
	is(outcome($name), $outcome, "$name: $outcome");
	is($node->safe_psql('postgres', "SELECT count(*) FROM work WHERE name = '$name'"), '0', "$name: its work is rolled back");
	is($node->safe_psql('postgres', "SELECT runs_succeeded, runs_failed + runs_cancelled + runs_timed_out FROM shedlock_stats WHERE name = '$name'"), '0|1', "$name: is counted once");
	return is_free($name);
}

#
# In the command's transaction
#
ends_in_command('work', undef, 'work');
ends_in_command('read', "CALL shedlock_run('read', 'SELECT 1');");
ends_in_command('statements', call('statements', work => 'SELECT 1;', then => "; INSERT INTO work VALUES ('statements', 2)"), 'work');
ends_in_command('tick', call('tick', job => "'every 36500 days', attempts => 3"), 'work', '_shedlock_tick');
is($node->safe_psql('postgres', q{SELECT done FROM _shedlock_tick WHERE name = 'tick'}), 't', 'tick: it is used up');
ends_in_command('role', call('role', then => '; SET ROLE nobody; SET search_path = elsewhere'), 'public.work');
ask($runner, 'RESET ROLE; RESET search_path');
ends_in_command('tables locked', call('tables locked', work => 'LOCK shedlock, _shedlock_history, _shedlock_stats;'), 'work');
ends_in_command('own row', call('own row', work => "SELECT shedlock_extend('own row', lock_at_most_for => '1 hour');", arguments => ", '1 min'"), 'work');
ends_in_command('constraints', call('constraints', work => 'SET CONSTRAINTS ALL DEFERRED; INSERT INTO checked VALUES (0);'), 'work');
ends_in_command('outer', "CALL shedlock_run('outer', 'CALL shedlock_run(''inner'', ''SELECT 1'')');");
is(together('inner'), 't', 'inner: ends with the command\'s transaction');

# A command that controls its transactions: the last one.
ends_in_command('parts', "CALL shedlock_run('parts', 'CALL parts(''parts'')');", q{(SELECT xmin, name FROM work WHERE part = 2) w});
is(together('parts', 'work'), 'f', 'parts: the first part has another transaction');
ends_in_command('vacuum', "CALL shedlock_run('vacuum', 'VACUUM work');");
ends_in_command('concurrently', "CALL shedlock_run('concurrently', 'CREATE INDEX CONCURRENTLY work_name ON work (name)');");

# Deferred triggers are part of the command: the run holds its lock.
ask($runner, call('trigger', work => "INSERT INTO asserted VALUES ('trigger');"));
unlike($runner->{heard}, qr/ERROR|of its own/, 'trigger: can assert the lock');
is(together('trigger', 'work'), 't', 'trigger: ends with the command\'s transaction');
is($node->safe_psql('postgres', q{SELECT warning FROM shedlock_history WHERE name = 'trigger'}), 'asserted at the commit', 'trigger: its warning is recorded');

ask($runner, call('cursor', then => "; DECLARE asserting CURSOR WITH HOLD FOR SELECT shedlock_assert('cursor')"));
unlike($runner->{heard}, qr/ERROR|of its own/, 'cursor: can assert the lock');
is(together('cursor', 'work'), 't', 'cursor: ends with the command\'s transaction');

# After a crash the outcome is there if the work is, however firmly it was committed.
$node->safe_psql('postgres', 'SET synchronous_commit = off; ' . call('crash'));
$node->safe_psql('postgres', call('crash local', work => 'SET LOCAL synchronous_commit = off;'));
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', "SELECT count(*) FROM work WHERE name = '$_'"),
	outcome($_) eq 'succeeded' ? 1 : 0, "$_: succeeded if, and only if, the work is there")
  foreach 'crash', 'crash local';
is_free($_) foreach 'crash', 'crash local';
$_->quit foreach $runner, $other;
($runner, $other) = (session($node), session($node));
$pid = pid_of($runner);
ask($runner, 'SET client_min_messages = debug1');

#
# In a transaction of its own, because that of the command does not allow it
#
ask($runner, "CALL shedlock_run('read-only', 'SET TRANSACTION READ ONLY; SELECT 1');");
ends_alone('read-only', $runner->{heard}, 'The transaction of the command is read-only');
ask($runner, 'SET default_transaction_read_only = on');
ask($runner, "CALL shedlock_run('default read-only', 'SELECT 1');");
ends_alone('default read-only', $runner->{heard}, 'The transaction of the command is read-only');
ask($runner, 'RESET default_transaction_read_only');
foreach my $level ('repeatable read', 'serializable')
{
	ask($runner, "SET default_transaction_isolation = '$level'");
	ask($runner, call($level));
	ends_alone($level, $runner->{heard}, 'The transaction of the command has an isolation level');
	is(together($level, 'work'), 'f', "$level: not with the command's transaction");
}
ask($runner, 'RESET default_transaction_isolation');

# The end waits for a row or table, or gives up on it, after the work is committed.
my %due = (job => "'every 36500 days'", then => '; SET lock_timeout = 1');
foreach my $table ('shedlock', '_shedlock_tick')
{
	my $name = "row of $table";

	ask($runner, 'RESET lock_timeout');
	begin_call($name, %due);
	ask($other, "BEGIN; SELECT FROM $table WHERE name = '$name' FOR UPDATE; SELECT pg_advisory_unlock(1)");
	ok(defined await($node, "SELECT count(*) = 1 FROM work WHERE name = '$name'"), "$name: the work is committed");
	ok(defined await($node, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid"), "$name: its end waits");
	ask($other, 'COMMIT');
	ends_alone($name, end_of_call(), 'another transaction has a table or row');
}
# The table for long values has the long warning of one run.  A process that remembers the
# columns of indexes need not open them all, so it is made to forget.
my %locks = map { ("table $_" => "LOCK $_") } 'shedlock', '_shedlock_tick', '_shedlock_history', '_shedlock_stats';
$locks{"index $_"} = "ALTER INDEX $_ SET TABLESPACE pg_default" foreach split /\n/, $node->safe_psql('postgres', q{
	SELECT indexrelid::regclass FROM pg_index
	WHERE indrelid IN ('shedlock'::regclass, '_shedlock_tick'::regclass, '_shedlock_history'::regclass, '_shedlock_stats'::regclass)});
$locks{'long values'} = 'REINDEX TABLE ' . $node->safe_psql('postgres', q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = '_shedlock_history'::regclass});
my $warns = q{DO 'BEGIN raise warning ''%'', (SELECT string_agg(md5(i::text), NULL) FROM generate_series(1, 120) i); END';};
foreach my $name (sort keys %locks)
{
	my $is_long = $name eq 'long values';
	my @forget = map { "ALTER TABLE $_ ALTER name SET STATISTICS 0;" } $name =~ /^index/ ? ('shedlock', '_shedlock_tick', '_shedlock_history', '_shedlock_stats') : ();

	ask($runner, 'RESET lock_timeout');
	begin_call($name, %due, work => $is_long ? $warns : '');
	ask($other, "@forget BEGIN; $locks{$name}; SELECT pg_advisory_unlock(1)");
	ok(defined await($node, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid"), "$name: its end waits");
	is($node->safe_psql('postgres', "SELECT count(*) FROM work WHERE name = '$name'"), '1', "$name: the work is committed");
	is($node->safe_psql('postgres', "SELECT name FROM _shedlock_tick WHERE name = '$name' FOR UPDATE NOWAIT"), $name, "$name: the end has not locked a row")
	  if $name =~ /run_/;
	ask($other, 'COMMIT');
	my $heard = end_of_call() =~ s/WARNING: +\w{3840}\n//r;
	ends_alone($name, $heard, 'another transaction has a table or row');
}
ask($runner, 'RESET lock_timeout');
foreach my $table ('_shedlock_history', '_shedlock_stats')
{
	my $name = "row of $table";

	$node->safe_psql('postgres', "CALL shedlock_run('$name', 'SELECT 1')");
	begin_call($name);
	ask($other, "BEGIN; SELECT FROM $table WHERE name = '$name' FOR UPDATE; SELECT pg_advisory_unlock(1)");
	my $heard = end_of_call();
	ask($other, 'COMMIT');
	like($heard, qr/of its own\nDETAIL: +another transaction has a table or row.*WARNING: +could not/s, "$name: its end gives up in a transaction of its own");
	is($node->safe_psql('postgres', "SELECT count(*) FROM work WHERE name = '$name'"), '1', "$name: the work is committed");
	is_free($name);
}

# A run whose work is outside prunes the history in its last statement, which waits for nothing.
$node->safe_psql('postgres', q{
	SELECT shedlock_forget('long values');
	CALL shedlock_run('long values', 'SELECT 1');
	DELETE FROM _shedlock_history WHERE name <> 'long values'});
my $outside = session($node);
ask($outside, "SET shedlock.history_keep = 0; SET lock_timeout = '3s'");
my $token = ask($outside, q{SELECT token FROM shedlock_run_begin('outside', '1 h')});
ask($other, "BEGIN; $locks{'long values'}");
is(ask($outside, "SELECT shedlock_run_end('outside', $token)"), 't', 'outside: it ends while the table for long values is locked');
like($outside->{heard}, qr/could not prune the history of runs: another transaction has a table or row/, 'outside: its end prunes nothing, and has not waited');
ask($other, 'COMMIT');
is(ask($outside, q{SELECT count(*) FROM _shedlock_history WHERE name = 'long values'}), '2', 'outside: nothing was pruned');
$outside->quit;

# What ends such a wait: then history and counters go without the run, but its lock is free,
# and its tick used up.
sub wait_for_counters
{
	my ($name, %options) = @_;

	begin_call($name, %options, job => "'every 36500 days', attempts => 3");
	ask($other, 'BEGIN; LOCK _shedlock_stats; SELECT pg_advisory_unlock(1)');
	ok(defined await($node, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid"), "$name: its end waits for the counters");
	return;
}

sub ends_unlogged
{
	my ($name, $error) = @_;
	my $heard = end_of_call();

	like($heard, qr/WARNING: +could not record outcome "succeeded" of lock "$name": $error/, "$name: the client is told why");
	unlike($heard, qr/ERROR|could not release/, "$name: and nothing else");
	is($node->safe_psql('postgres', "SELECT count(*) FROM work WHERE name = '$name'"), '1', "$name: the work is committed");
	is_free($name);
	is($node->safe_psql('postgres', "SELECT done, attempt FROM _shedlock_tick WHERE name = '$name'"), 't|1', "$name: its tick is used up");
	is($node->safe_psql('postgres', "SELECT outcome FROM shedlock_history WHERE name = '$name'"), 'lost', "$name: the history shows it as lost");
	ask($other, 'COMMIT');
	return;
}

my $too_long = 'another transaction has a table or row of extension "shedlock" locked for too long';
wait_for_counters('waits cancel');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
ends_unlogged('waits cancel', 'canceling statement due to user request');
# long enough to be seen
my $seen = 2 * slowness($node);
wait_for_counters('waits lock_at_most_for', arguments => ", lock_at_most_for => '$seen s'");
ends_unlogged('waits lock_at_most_for', $too_long);
wait_for_counters('waits inside', around => 'waits around', limit => "$seen s");
like(end_of_call(), qr/could not record outcome "succeeded" of lock "waits inside": $too_long/, 'waits inside: not beyond the lock_at_most_for of the run around it');
is_free($_) foreach 'waits inside', 'waits around';
ask($other, 'COMMIT');
wait_for_counters('waits statement_timeout', then => "; SET statement_timeout = '${seen}s'");
ends_unlogged('waits statement_timeout', $too_long);
ask($runner, 'RESET statement_timeout');
wait_for_counters('waits shedlock_cancel');
is($node->safe_psql('postgres', q{SET statement_timeout = '60s'; SELECT shedlock_cancel('waits shedlock_cancel')}), 't', 'waits shedlock_cancel: the call does not wait');
ends_unlogged('waits shedlock_cancel', 'canceling statement due to user request');
wait_for_counters('waits force_release');
my $forces = session($node);
my $forces_pid = pid_of($forces);
$forces->query_until(qr/begun/, "\\echo begun\nSELECT shedlock_force_release('waits force_release');\n");
ok(defined await($node, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $forces_pid"), 'waits force_release: the call waits for the counters, too');
ask($other, 'COMMIT');
is(ask($forces, q{SELECT outcome FROM shedlock_history WHERE name = 'waits force_release'}), "t\ncancelled", 'waits force_release: the run is ended by force');
$forces->quit;
reap($runner);
$runner = session($node);
$pid = pid_of($runner);
ask($runner, 'SET client_min_messages = debug1');

# Its command can forget the job.
ask($runner, call('forgets', job => "'every 36500 days'", then => q{; SELECT shedlock_forget('forgets')}));
like($runner->{heard}, qr/not due\nDETAIL: +Attempt 1 at tick 1970-01-01 .*; outcome: succeeded/, 'forgets: the reason names the tick that was run');

# Nothing that is wrong with the end undoes the work.
ask($runner, call('lost', work => 'TRUNCATE shedlock;'));
like($runner->{heard}, qr/of its own\nDETAIL: +lock "lost" was lost.*WARNING: +lock "lost" was lost while its command ran/s, 'lost: the client is told, once');
is(outcome('lost'), 'succeeded', 'lost: the outcome is recorded');
ask($runner, call('unlogged', then => '; ALTER TABLE _shedlock_stats RENAME TO renamed'));
like($runner->{heard}, qr/of its own\nDETAIL: +relation "_shedlock_stats".*WARNING: +could not record outcome "succeeded" of lock "unlogged"/s, 'unlogged: the client is told');
$node->safe_psql('postgres', 'ALTER TABLE renamed RENAME TO _shedlock_stats');
is($node->safe_psql('postgres', "SELECT count(*) FROM work WHERE name = '$_'"), '1', "$_: the work is committed") foreach 'lost', 'unlogged';
is_free($_) foreach 'lost', 'unlogged';

#
# In a transaction of its own, because that of the command is rolled back
#
ask($runner, call('constraint', work => 'INSERT INTO checked VALUES (1), (1);'));
ends_with_error('constraint', $runner->{heard}, 'duplicate key value violates unique constraint "checked_twice"', 'failed 23505');

# The commit materializes the cursor, which fails or takes its time, after the end is written.
sub with_cursor
{
	my ($name, $query, %options) = @_;

	return call($name, then => "; DECLARE c CURSOR WITH HOLD FOR $query", %options);
}

ask($runner, with_cursor('commit', 'SELECT 1 / 0 FROM work'));
ends_with_error('commit', $runner->{heard}, 'division by zero', 'failed 22012');

my $sleeps = "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $pid";
begin_sql('cancel', with_cursor('cancel', 'SELECT pg_sleep(600)'));
ok(defined await($node, $sleeps), 'cancel: the commit takes its time');
is($node->safe_psql('postgres', q{SELECT shedlock_acquire('cancel'), outcome FROM shedlock_history WHERE name = 'cancel'}), 'f|running', 'cancel: the lock is held until the commit');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
ends_with_error('cancel', end_of_call(), 'canceling statement due to user request', 'cancelled 57014');

begin_sql('lock_at_most_for', with_cursor('lock_at_most_for', 'SELECT pg_sleep(600)', arguments => ", '1 s'"));
ends_with_error('lock_at_most_for', end_of_call(), 'canceling statement due to lock_at_most_for of lock "lock_at_most_for"', 'timed out 57014');

ask($runner, "SET statement_timeout = '1s'");
begin_sql('statement_timeout', with_cursor('statement_timeout', 'SELECT pg_sleep(600)'));
ends_with_error('statement_timeout', end_of_call(), 'canceling statement due to statement timeout', 'cancelled 57014');
ask($runner, 'RESET statement_timeout');

# The session can go on.
ends_in_command('afterwards', undef, 'work');

#
# The synchronous standby is gone.
#
my $standby = start_standby($node, 'standby');

# Cancels the wait of the run's commit.
sub cancel_wait
{
	my ($name, $meanwhile) = @_;

	$standby->stop;
	ask($other, 'SELECT pg_advisory_unlock(1)');
	ok(defined await($node, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid"), "$name: the commit waits");
	is($node->safe_psql('postgres', "SELECT shedlock_acquire('$name'), outcome FROM shedlock_history WHERE name = '$name'"), 'f|running', "$name: the lock is held meanwhile");
	$meanwhile->() if $meanwhile;
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	return end_of_call();
}

my $warning = 'canceling wait for synchronous replication due to user request';
begin_call('standby');
like(cancel_wait('standby'), qr/\A(?:(?!ERROR|of its own).)*WARNING: +$warning(?:(?!ERROR|of its own).)*\z/s, 'standby: the client is warned');
is(outcome('standby'), 'succeeded', 'standby: what has committed has succeeded');
is($node->safe_psql('postgres', q{SELECT warning FROM _shedlock_history WHERE name = 'standby'}), $warning, 'standby: the warning is recorded');
$standby->start;
is_free('standby');

# A command that has committed before does not wait a second time.
ask($other, 'SELECT pg_advisory_lock(1)');
begin_sql('standby twice', "CALL shedlock_run('standby twice', 'CALL commits(''standby twice'')');");
ok(defined await($node, "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = $pid"), 'standby twice: is in progress');
like(cancel_wait('standby twice'), qr/WARNING: +$warning.*of its own\nDETAIL: +The wait for the synchronous standby was canceled(?:(?!ERROR|$warning).)*\z/s, 'standby twice: ends in a transaction of its own');
is(outcome('standby twice'), 'succeeded', 'standby twice: what has committed has succeeded');
is($node->safe_psql('postgres', q{SELECT warning FROM _shedlock_history WHERE name = 'standby twice'}), $warning, 'standby twice: the warning is recorded');
$standby->start;
is_free('standby twice');

# The warning cannot be recorded.
my $renamer = session($node);
begin_call('standby unlogged');
like(cancel_wait(
		'standby unlogged',
		sub {
			$renamer->query_until(qr/begun/, "\\echo begun\nSET synchronous_commit = local; ALTER TABLE _shedlock_history RENAME TO renamed;\n");
			ok(defined await($node, q{SELECT count(*) = 1 FROM pg_locks WHERE relation = '_shedlock_history'::regclass AND NOT granted}), 'standby unlogged: the history is about to be renamed');
		}),
	qr/\A(?:(?!ERROR|of its own).)*WARNING: +$warning.*WARNING: +could not record a warning of the run of lock "standby unlogged": relation "_shedlock_history" of extension/s,
	'standby unlogged: the client is told');
ask($renamer, 'ALTER TABLE renamed RENAME TO _shedlock_history');
is(outcome('standby unlogged'), 'succeeded', 'standby unlogged: what has committed has succeeded');
$standby->start;
is_free('standby unlogged');

$_->quit foreach $runner, $other, $renamer;
$standby->stop;
$node->stop;
done_testing();
