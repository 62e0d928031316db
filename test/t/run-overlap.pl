# While a guarded command runs, shedlock holds only the advisory lock.  Runs of two
# clients never overlap.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main', conf => "autovacuum = off\n");
my $dbname = 'postgres';
my $watcher = session($node);
my $runner = session($node);
my $pid = pid_of($runner);

$node->safe_psql(
	$dbname, q{
CREATE TABLE work (i int);
CREATE TABLE progress (step int);
CREATE TABLE enough ();
-- runs until the watcher has written the row that ends it
CREATE PROCEDURE steps(n int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..n LOOP
		INSERT INTO progress VALUES (i);
		COMMIT;
		PERFORM pg_sleep(0.1);
		EXIT WHEN EXISTS (SELECT FROM enough);
	END LOOP;
END $$;
-- fails if two run it at once, and commits before its end
CREATE FUNCTION alone(locks int DEFAULT 1) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF NOT (SELECT bool_and(pg_try_advisory_xact_lock(i)) FROM generate_series(1, locks) i) THEN
		RAISE 'two runs overlap';
	END IF;
	PERFORM pg_sleep(0.002);
END $$;
});

# A procedure that commits repeatedly: each of its snapshots is short-lived.
$runner->query_until(qr/running/, "\\echo running\nCALL shedlock_run('steps', 'CALL steps(4000)', '10 min');\n");
ok(defined await($watcher, 'SELECT count(*) > 1 FROM progress'), 'a procedure that commits is running');

# Two steps later nothing is left of the snapshot and transaction from before.
sub goes_on
{
	my $step = ask($watcher, 'SELECT coalesce(max(step), 0) FROM progress');

	return await($watcher, "SELECT max(step) >= $step + 2 FROM progress") && await($watcher, "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $pid");
}

my ($held_back, $with_xid, $samples) = (0, 0, 0);
foreach my $i (1 .. 12)
{
	my $xid = ask($watcher, 'INSERT INTO work VALUES (1) RETURNING txid_current() % (2 ^ 32)::bigint');

	ask($watcher, 'INSERT INTO work VALUES (1)') foreach 1 .. 3;
	goes_on();
	my $row = ask($watcher, "SELECT coalesce(backend_xmin::text::bigint > $xid, true), backend_xid IS NULL FROM pg_stat_activity WHERE pid = $pid");
	$samples++;
	$held_back++ if $row =~ /^f/;
	$with_xid++ if $row =~ /f$/;
}
is($held_back, 0, "its snapshot is never old ($samples samples), so VACUUM can make progress");
cmp_ok($with_xid, '<', 3, 'the run has no transaction open apart from those of the command');

is(ask($watcher, "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE l.pid = $pid AND c.relname LIKE 'shedlock%'"),
	'0', 'no table or index of shedlock is locked while the command runs');
is( ask($watcher, "SELECT string_agg(mode || ' ' || objsubid, ', ' ORDER BY objsubid) FROM pg_locks WHERE pid = $pid AND locktype = 'advisory'"),
	'ShareLock 21324, ShareLock 21326', 'the run holds its advisory lock and the marker of a session that was not reset, and nothing else');
is(ask($watcher, "SELECT pid, kind, state, query ~ 'CALL steps\\(4000\\)' FROM shedlock_locks WHERE name = 'steps'"),
	"$pid|run|held|t", 'the view shows the statement with the lock');
is(ask($watcher, "SELECT query ~ '^CALL shedlock_run' FROM pg_stat_activity WHERE pid = $pid"), 't', 'pg_stat_activity shows the CALL');

# Other sessions can write the rows that the run wrote, and change the tables.
ask($watcher, "SET lock_timeout = '2s'; BEGIN; SELECT * FROM shedlock WHERE name = 'steps' FOR UPDATE; "
	  . 'LOCK shedlock, _shedlock_history, _shedlock_tick IN ACCESS EXCLUSIVE MODE; ROLLBACK; RESET lock_timeout');
is($watcher->{heard}, '', 'other sessions can lock shedlock\'s rows and tables');
ask($watcher, 'INSERT INTO enough DEFAULT VALUES');
is(ask($runner, "SELECT 'idle'"), 'idle', 'the run ends');
is(ask($watcher, "SELECT outcome FROM shedlock_history WHERE name = 'steps'"), 'succeeded', 'the run has succeeded');
is(ask($watcher, 'SELECT count(*) > 1 AND count(*) = max(step) FROM progress'), 't', 'all work of the run is done');

# What VACUUM removes while a run is in progress
ask($watcher, 'DELETE FROM enough; DELETE FROM progress');
$runner->query_until(qr/running/, "\\echo running\nCALL shedlock_run('vacuum meanwhile', 'CALL steps(4000)');\n");
ok(defined await($watcher, "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'vacuum meanwhile'"), 'another run is in progress');
ask($watcher, 'DELETE FROM work');
goes_on();
ask($watcher, 'VACUUM (VERBOSE) work');
like($watcher->{heard}, qr/(\d+) removed, 0 remain, 0 are dead but not yet removable/, 'VACUUM during a run removes rows that died after its start');
is(ask($watcher, "SELECT count(*) FROM shedlock_locks WHERE name = 'vacuum meanwhile'"), '1', 'that run is still in progress');
ask($watcher, 'INSERT INTO enough DEFAULT VALUES');
ask($runner, "SELECT 'idle'");

# VACUUM as the guarded command itself
ask($watcher, 'INSERT INTO work SELECT generate_series(1, 1000); DELETE FROM work');
ask($runner, "CALL shedlock_run('vacuum', 'VACUUM (VERBOSE, ANALYZE) work')");
like($runner->{heard}, qr/1000 removed, 0 remain, 0 are dead but not yet removable/, 'a guarded VACUUM removes dead rows');

# Maintenance that cannot complete, as doc/pg_cron.md describes: a cancelled REINDEX
# leaves an invalid index each time; a VACUUM by a role without the privilege succeeds.
my $writer = session($node);
$node->safe_psql($dbname, 'CREATE INDEX work_i ON work (i); CREATE ROLE stranger LOGIN');
ask($writer, 'BEGIN; INSERT INTO work VALUES (1)');
foreach my $left (1 .. 2)
{
	$runner->query_until(qr/running/, "\\echo running\nCALL shedlock_run('reindex', 'REINDEX INDEX CONCURRENTLY work_i');\n");
	ok(defined await($watcher, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid"), 'a REINDEX waits for a writer');
	ask($watcher, "SELECT shedlock_cancel('reindex')");
	ask($runner, "SELECT 'idle'");
	is(ask($watcher, 'SELECT count(*) FROM pg_index WHERE NOT indisvalid'), $left, 'a cancelled REINDEX leaves an invalid index');
}
ask($writer, 'ROLLBACK');
$writer->quit;
my (undef, undef, $said) = $node->psql($dbname, "CALL shedlock_run('not mine', 'VACUUM work')", extra_params => [ '-U', 'stranger' ]);
like($said, qr/WARNING: .*skipping/, 'a VACUUM without the privilege is skipped with a WARNING');
is(ask($watcher, "SELECT outcome FROM shedlock_history WHERE name = 'not mine'"), 'succeeded', 'the run of a skipped VACUUM succeeds');

# Several clients, repeatedly
my $script = PostgreSQL::Test::Utils::tempdir . '/overlap.sql';
PostgreSQL::Test::Utils::append_to_file($script, "CALL shedlock_run('overlap', 'SELECT alone()');\n");
$node->command_ok(
	[ 'pgbench', '-n', '-c', '4', '-j', '2', '-T', '4', '-f', $script, '-h', $node->host, '-p', $node->port, $dbname ],
	'four clients run the same command as fast as they can');
is(ask($watcher, "SELECT DISTINCT outcome FROM shedlock_history WHERE name = 'overlap'"), 'succeeded', 'no two runs overlap');
cmp_ok(ask($watcher, "SELECT count(*) FROM shedlock_history WHERE name = 'overlap'"), '>', 50, 'there were many runs');
cmp_ok(ask($watcher, "SELECT count(DISTINCT pid) FROM shedlock_history WHERE name = 'overlap'"), '>', 1, 'more than one client has run the command');
is(ask($watcher, q{SELECT count(*) FROM (SELECT started_at < lag(ended_at) OVER (ORDER BY token) AS early
	FROM shedlock_history WHERE name = 'overlap') s WHERE early}), '0', 'each run begins after the end of the previous one');

# No run meets a lock of the last one's transaction: to release so many takes a while.
$script = PostgreSQL::Test::Utils::tempdir . '/locks.sql';
PostgreSQL::Test::Utils::append_to_file($script, "CALL shedlock_run('locks', 'SELECT alone(2000)');\n");
$node->command_ok(
	[ 'pgbench', '-n', '-c', '3', '-T', '3', '-f', $script, '-h', $node->host, '-p', $node->port, $dbname ],
	'three clients run a command that acquires many locks');
cmp_ok(ask($watcher, "SELECT count(*) FROM shedlock_history WHERE name = 'locks' AND outcome = 'succeeded'"), '>', 10, 'there were many runs with many locks');

# The same with a command that releases all advisory locks, at its end, too
$node->safe_psql($dbname, q{
CREATE TABLE unlocks (i int);
CREATE FUNCTION unlock_all() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_unlock_all();
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER unlocks AFTER INSERT ON unlocks
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION unlock_all()});
$script = PostgreSQL::Test::Utils::tempdir . '/reset.sql';
PostgreSQL::Test::Utils::append_to_file($script, "CALL shedlock_run('reset', 'SELECT pg_advisory_unlock_all(); INSERT INTO unlocks DEFAULT VALUES; SELECT alone(1000)');\n");
$node->command_ok(
	[ 'pgbench', '-n', '-c', '3', '-T', '3', '-f', $script, '-h', $node->host, '-p', $node->port, $dbname ],
	'three clients run a command that releases all advisory locks');
is(ask($watcher, "SELECT DISTINCT outcome FROM shedlock_history WHERE name = 'reset'"), 'succeeded', 'no two of these runs overlap');
cmp_ok(ask($watcher, "SELECT count(*) FROM shedlock_history WHERE name = 'reset'"), '>', 10, 'there were many of these runs');

# A failed run is logged; its statement is logged with the error, only once.
my $logged = -s $node->logfile;
$node->psql($dbname, "CALL shedlock_run('failed', 'CALL shedlock_run(''failed inner'', ''SELECT 1 / 0'')')");
my $log = slurp_file($node->logfile, $logged);
is(join(' ', $log =~ /run of lock "([^"]*)": failed/g), 'failed inner failed', 'nested runs that fail are logged');
is(scalar(() = $log =~ /STATEMENT: /g), 1, 'their statement is logged once');

# A statement that log_statement selects is logged once, like a client's own statement.
sub logged_statements
{
	my ($setting, $call) = @_;
	my $from = -s $node->logfile;

	local $ENV{PGOPTIONS} = "-c log_statement=$setting -c client_min_messages=error";

	$node->safe_psql($dbname, $call);
	return [ slurp_file($node->logfile, $from) =~ /statement: (.*)/g ];
}
my %guarded = (ddl => 'CREATE TABLE logged (i int)', mod => 'INSERT INTO work VALUES (7)', all => 'SELECT 7');

foreach my $case ([ 'none', [] ], [ 'ddl', ['ddl'] ], [ 'mod', [ 'ddl', 'mod' ] ])
{
	my ($setting, $wanted) = @$case;

	$node->safe_psql($dbname, 'SET client_min_messages = error; DROP TABLE IF EXISTS logged');
	is_deeply([ map { @{ logged_statements($setting, "CALL shedlock_run('log $_', '$guarded{$_}')") } } 'ddl', 'mod', 'all' ],
		[ map { $guarded{$_} } @$wanted ], "log_statement = $setting");
}
is_deeply(logged_statements('all', "CALL shedlock_run('log', 'SELECT 7')"), ["CALL shedlock_run('log', 'SELECT 7')"], 'log_statement = all: the CALL contains the command');
is_deeply(logged_statements('ddl', "CALL shedlock_run('log', 'SELECT 7; DROP TABLE logged; SELECT 8')"), ['SELECT 7; DROP TABLE logged; SELECT 8'], 'several statements are logged as one string');
is_deeply(logged_statements('ddl', "CALL shedlock_run('log', 'CALL shedlock_run(''log inner'', ''DROP TABLE IF EXISTS logged'')')"), ['DROP TABLE IF EXISTS logged'], 'log_statement applies to a nested run');
is_deeply(logged_statements('ddl', "SELECT shedlock_acquire('log'); CALL shedlock_run('log', 'DROP TABLE IF EXISTS logged')"), [], 'a skipped run executes nothing');

# A run ends with its process.
$runner->query_until(qr/running/, "\\echo running\nCALL shedlock_run('ended', 'SELECT pg_sleep(600)', '10 min');\n");
ok(defined await($watcher, "SELECT outcome = 'running' FROM shedlock_history WHERE name = 'ended'"), 'a run is in progress');
is(ask($watcher, "SELECT shedlock_acquire('ended')"), 'f', 'the run excludes others');
my $took = seconds
{
	ask($watcher, "SELECT pg_terminate_backend($pid, 5000)");
	ok(defined await($watcher, "SELECT shedlock_acquire('ended')"), 'its process is terminated: the lock is free');
};
cmp_ok($took, '<', 3 * slowness($node), 'the lock of a terminated run is free at once');
is(ask($watcher, "SELECT outcome, ended_at IS NULL, pid FROM shedlock_history WHERE name = 'ended'"), "lost|t|$pid", 'a terminated run is lost');
like(last_words($runner), qr/terminating connection/, 'the client of a terminated run is told');
$watcher->quit;

$node->stop;
done_testing();
