# An acquire, extend or claim that was answered with true is on disk and on the
# synchronous standby, whatever synchronous_commit says; a release alone does not
# wait for the disk.

use strict;
use warnings FATAL => 'all';
use FindBin;
use List::Util qw(max min);
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

# Only the statements under test write or flush WAL.
my $node = start_node('main',
	allows_streaming => 1,
	conf => "max_prepared_transactions = 5\nautovacuum = off\nwal_writer_delay = 10s\nwal_writer_flush_after = 1GB\ncheckpoint_timeout = 1h\n");
my $dbname = 'postgres';

$node->safe_psql(
	$dbname, q{
CREATE TABLE work (i int);
INSERT INTO work VALUES (0);
CREATE TABLE checked (i int);
CREATE FUNCTION write_work() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO work VALUES (1);
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON checked
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION write_work();
CREATE TABLE seen (bytes numeric);
CREATE FUNCTION acquire_quickly(name text) RETURNS boolean
LANGUAGE sql SET synchronous_commit = off AS 'SELECT shedlock_acquire(name)';

});

# A temporary table writes no WAL, so the trigger's work is the first WAL after the
# release, and comes as late as possible.
my $late_only = q{CREATE TEMP TABLE late (i int);
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION write_work()};

# The WAL writer writes whole pages when it likes, so the statements must not cross the end
# of one.
my $new_page = q{SELECT pg_logical_emit_message(false, '', repeat('x', 2000))
WHERE 8192 - (pg_current_wal_insert_lsn() - '0/0'::pg_lsn) % 8192 < 2000};

# What may be missing on disk although no commit is: at any time, the background writer's
# record of running transactions (56 bytes), and a page header (24 bytes) at the end of a
# page.  The least that a commit and its work leave is larger.
my $slack = 80;

# Returns how many bytes of WAL are not on disk after some statements.
sub unflushed
{
	my ($setting, $prepare, $sql) = @_;
	my $out = $node->safe_psql($dbname,
		"SET synchronous_commit = on; $prepare; $new_page; INSERT INTO work VALUES (0); SET synchronous_commit = $setting;\n"
		  . "\\o /dev/null\n$sql;\n\\o\n"
		  . "SELECT 'unflushed ' || (pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn());\n"
		  . 'SHOW synchronous_commit');

	is((split /\n/, $out)[-1], $setting, "  synchronous_commit is $setting afterwards");
	$out =~ /unflushed (\d+)/ or die $out;
	return $1;
}

sub is_durable
{
	my ($claim, @args) = @_;

	cmp_ok(unflushed(@args), '<=', $slack, $claim);
	return;
}

# Once more, with other names, if nothing is missing: the WAL writer flushes every 10 s.
sub is_asynchronous
{
	my ($claim, @args) = @_;
	my $bytes = unflushed(@args);

	$bytes = unflushed(map { s/\('(\w+)'\)/('$1 again')/gr } @args) if $bytes <= $slack;
	cmp_ok($bytes, '>', $slack, $claim);
	return;
}

is_asynchronous('control: an INSERT with synchronous_commit = off is not on disk',
	'off', '', 'INSERT INTO work VALUES (1)');

# Promises
is_durable('an acquire is on disk', 'off', '', "SELECT shedlock_acquire('a')");
is_durable('an acquire with its token is on disk', 'off', '', "SELECT shedlock_acquire_token('b')");
is_durable('an acquire of a session lock is on disk', 'off', '', "SELECT shedlock_acquire_session('c')");
is_durable('an acquire over a released row is on disk', 'off',
	"SELECT shedlock_acquire('d'); SELECT shedlock_release('d')", "SELECT shedlock_acquire('d')");
is_durable('an extend is on disk', 'off', "SELECT shedlock_acquire('e')", "SELECT shedlock_extend('e', lock_at_most_for => '2 h')");
is_durable('a claim is on disk', 'off', '', "SELECT shedlock_once('f', now())");
is_durable('a claim of a period is on disk', 'off', '', "SELECT shedlock_once_every('g', '1 day')");
is_durable('an acquire in a transaction with other work is on disk', 'off', '',
	"BEGIN; INSERT INTO work VALUES (1); SELECT shedlock_acquire('h'); INSERT INTO work VALUES (1); COMMIT");
is_durable('an acquire is on disk although synchronous_commit was set after it', 'on', '',
	"BEGIN; SELECT shedlock_acquire('i'); SET LOCAL synchronous_commit = off; COMMIT");
is_durable('an acquire in a savepoint is on disk', 'off', '',
	"BEGIN; SAVEPOINT s; SELECT shedlock_acquire('j'); RELEASE s; COMMIT");
is_durable('an acquire and its release in one transaction are on disk', 'on', '',
	"BEGIN; SELECT shedlock_acquire('k'); SELECT shedlock_release('k'); COMMIT");
is_durable('an acquire in a function with a setting of its own is on disk', 'off', '', "SELECT acquire_quickly('m')");
is_durable('an acquire that a DO block commits is on disk', 'off', '',
	"DO 'BEGIN PERFORM shedlock_acquire(''n''); COMMIT; END'");
is_durable('an acquire with a wait is on disk', 'off', '', "SELECT shedlock_acquire('o', wait => '1 s')");
is_asynchronous('the next transaction keeps its own synchronous_commit = off', 'off', '',
	"SELECT shedlock_acquire('l'); INSERT INTO work VALUES (1)");

is_asynchronous('work before a fence keeps synchronous_commit = off', 'off', "SELECT shedlock_acquire('p')",
	"BEGIN; INSERT INTO work VALUES (1); SELECT shedlock_assert('p'); COMMIT");

# Releases
sub held
{
	my ($name) = @_;

	return "SELECT shedlock_acquire('$name')";
}

is_asynchronous('a release alone does not wait for the disk', 'on', held('r1'), "SELECT shedlock_release('r1')");
is_asynchronous('a release of a session lock does not wait for the disk', 'on', "SELECT shedlock_acquire_session('r2')", "SELECT shedlock_release('r2')");
is_asynchronous('several releases in one transaction do not wait for the disk', 'on', held('r3') . ';' . held('r4'),
	"BEGIN; SELECT shedlock_release('r3'); SELECT shedlock_release('r4'); COMMIT");
is_durable('work before the release is on disk', 'on', held('r6'),
	"BEGIN; INSERT INTO work VALUES (1); SELECT shedlock_release('r6'); COMMIT");
is_durable('work after the release is on disk', 'on', held('r7'),
	"BEGIN; SELECT shedlock_release('r7'); INSERT INTO work VALUES (1); COMMIT");
is_durable('work between two releases is on disk', 'on', held('r8') . ';' . held('r9'),
	"BEGIN; SELECT shedlock_release('r8'); INSERT INTO work VALUES (1); SELECT shedlock_release('r9'); COMMIT");
is_durable('work of a deferred trigger is on disk', 'on', held('r10'),
	"BEGIN; INSERT INTO checked VALUES (1); SELECT shedlock_release('r10'); COMMIT");
is_asynchronous('control: an INSERT into a temporary table does not make the release wait', 'on',
	held('r22') . '; CREATE TEMP TABLE late (i int)',
	"BEGIN; SELECT shedlock_release('r22'); INSERT INTO late VALUES (1); COMMIT");
is_durable('work of a deferred trigger is on disk, even if nothing else follows the release', 'on', held('r23') . "; $late_only",
	"BEGIN; SELECT shedlock_release('r23'); INSERT INTO late VALUES (1); COMMIT");
is_durable('work of a deferred trigger that was queued before the release is on disk', 'on', held('r24') . "; $late_only",
	"BEGIN; INSERT INTO late VALUES (1); SELECT shedlock_release('r24'); COMMIT");
is_durable('the next transaction of a DO block with a release is on disk', 'on', held('r25'),
	"DO 'BEGIN PERFORM shedlock_release(''r25''); COMMIT; INSERT INTO work VALUES (1); END'");
is_durable('work in a savepoint before the release is on disk', 'on', held('r11'),
	"BEGIN; SAVEPOINT s; INSERT INTO work VALUES (1); RELEASE s; SELECT shedlock_release('r11'); COMMIT");
is_durable('work in a savepoint after the release is on disk', 'on', held('r12'),
	"BEGIN; SELECT shedlock_release('r12'); SAVEPOINT s; INSERT INTO work VALUES (1); RELEASE s; COMMIT");
is_durable('work before a savepoint with the release is on disk', 'on', held('r13'),
	"BEGIN; INSERT INTO work VALUES (1); SAVEPOINT s; SELECT shedlock_release('r13'); RELEASE s; COMMIT");
is_durable('work after a rolled-back release is on disk', 'on', held('r14'),
	"BEGIN; SAVEPOINT s; SELECT shedlock_release('r14'); ROLLBACK TO s; INSERT INTO work VALUES (1); COMMIT");
is_durable('work in the transaction of a release that returns false is on disk', 'on', 'SET client_min_messages = error',
	"BEGIN; SELECT shedlock_release('r15'); INSERT INTO work VALUES (1); COMMIT");
is_durable('a row lock in the transaction of a release is on disk', 'on', held('r16'),
	"BEGIN; SELECT shedlock_release('r16'); SELECT * FROM work WHERE i = 0 LIMIT 1 FOR UPDATE; COMMIT");
is_durable('a claim in the transaction of a release is on disk', 'on', held('r17'),
	"BEGIN; SELECT shedlock_release('r17'); SELECT shedlock_once('r17', now()); COMMIT");
is_durable('an extend in the transaction of a release is on disk', 'on', held('r18') . ';' . held('r19'),
	"BEGIN; SELECT shedlock_extend('r18'); SELECT shedlock_release('r19'); COMMIT");
is_durable('the next transaction after a release is on disk', 'on', held('r20'),
	"SELECT shedlock_release('r20'); INSERT INTO work VALUES (1)");
is_durable('work of a guarded command is on disk', 'on', 'SELECT 1',
	"CALL shedlock_run('r21', 'INSERT INTO work VALUES (1)')");


# The command checks that its own lock is on disk before the command begins.
$node->safe_psql($dbname,
	q{SET synchronous_commit = off;
CALL shedlock_run('seen', 'INSERT INTO seen SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()')});
cmp_ok($node->safe_psql($dbname, 'SELECT bytes FROM seen'), '<=', 40, 'the lock of a run is on disk before its command begins');

# Listeners that are not told of a run do not slow it down.  Returns the least bytes of WAL
# of a run, and the most transactions that write.
sub cost_of_run
{
	my ($notify, $command) = @_;
	my $look = q{SELECT 'at', pg_current_wal_insert_lsn() - '0/0', pg_snapshot_xmax(pg_current_snapshot())};
	my ($status, $out) = $node->psql($dbname, "SET shedlock.notify = '$notify';\n" . "$look;\nCALL shedlock_run('cost', '$command');\n" x 12 . $look, on_error_stop => 0);
	my @at = map { [ split /\|/ ] } grep { /^at/ } split /\n/, $out;

	return (min(map { $at[$_][1] - $at[ $_ - 1 ][1] } 2 .. 12), max(map { $at[$_][2] - $at[ $_ - 1 ][2] } 2 .. 12));
}

my ($silent_bytes, $silent_writes) = cost_of_run('none', 'SELECT 1');
my ($bytes, $writes) = cost_of_run('failures', 'SELECT 1');
cmp_ok($bytes, '<=', $silent_bytes + 40, "with shedlock.notify = failures a run that succeeds writes as much WAL as with none ($silent_bytes)");
is($writes, $silent_writes, '  in as many transactions');
is((cost_of_run('failures', 'SELECT 1 / 0'))[1], (cost_of_run('none', 'SELECT 1 / 0'))[1] + 1, 'control: a run that fails is told in another transaction');

# Proof: sessions with synchronous_commit = off do all of it, then the server crashes.
my $session = session($node);
ask($session, 'SET synchronous_commit = off');
my $token = ask($session, "SELECT shedlock_acquire_token('crash', '1 hour')");
$node->stop('immediate');
reap($session);
$node->start;
is($node->safe_psql($dbname, "SELECT token FROM shedlock_locks WHERE name = 'crash'"), $token,
	'an acquire that was answered survives a crash');

$session = session($node);
ask($session, 'SET synchronous_commit = off');
ask($session, "SELECT shedlock_extend('crash', $token, '3 hours')");
$node->stop('immediate');
reap($session);
$node->start;
is($node->safe_psql($dbname, "SELECT remaining > '2 hours' FROM shedlock_locks WHERE name = 'crash'"), 't',
	'an extend that was answered survives a crash');

$session = session($node);
ask($session, 'SET synchronous_commit = off');
is(ask($session, "SELECT shedlock_once('crash', '2026-01-01')"), 't', 'a claim is answered');
$node->stop('immediate');
reap($session);
$node->start;
is($node->safe_psql($dbname, "SELECT shedlock_once('crash', '2026-01-01')"), 'f', 'a claim that was answered survives a crash');

# A token that an open transaction has seen is not drawn again.  After a checkpoint
# the sequence logs its next number, and then no more for some numbers.
foreach my $call ('shedlock_token', 'shedlock_assert')
{
	$node->safe_psql($dbname, 'CHECKPOINT');
	$session = session($node);
	ask($session, "BEGIN; SELECT shedlock_acquire('open')");
	$token = ask($session, "SELECT $call('open')");
	$node->stop('immediate');
	reap($session);
	$node->start;
	cmp_ok($node->safe_psql($dbname, "SELECT shedlock_acquire_token('open'), shedlock_release('open')") =~ s/\|.*//r, '>', $token,
		"a token that $call returned in an open transaction is not drawn again after a crash");
}

# A synchronous standby that is missing
foreach my $name ('local', 'off', 'remote_write')
{
	$node->safe_psql($dbname, "SELECT shedlock_acquire('to extend $name'), shedlock_acquire_token('to release $name')");
}
my $ended = $node->safe_psql($dbname, "SELECT token FROM shedlock_run_begin('ended', '1 h')");
$node->safe_psql($dbname, "SELECT shedlock_run_end('ended', $ended), shedlock_run_begin('begun', '1 h', request => 'r')");
$node->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'\n");
$node->reload;
ok(defined await($node, "SELECT current_setting('synchronous_standby_names') = 'nobody'"),
	'the server requires a standby');

sub waits_for_standby
{
	my ($claim, $sql, $setting) = @_;
	my $client = session($node);
	my $pid = pid_of($client);

	ask($client, "SET synchronous_commit = $setting");
	$client->query_until(qr/asked/, "\\echo asked\n$sql;\n");
	ok( defined await($node, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid"),
		"$claim with synchronous_commit = $setting waits for the standby");
	$node->safe_psql($dbname, "SELECT pg_cancel_backend($pid)");
	like(ask($client, 'SHOW synchronous_commit'), qr{^(t\n)?$setting$}, '  the setting is unchanged');
	like($client->{heard}, qr/WARNING:  canceling wait for synchronous replication/,
		'  the cancelled session gets a warning');
	$client->quit;
	return;
}

foreach my $setting ('local', 'off', 'remote_write')
{
	my $row_token = $node->safe_psql($dbname, "SELECT token FROM shedlock WHERE name = 'to extend $setting'");

	waits_for_standby('an acquire', "SELECT shedlock_acquire('sync $setting')", $setting);
	waits_for_standby('an extend', "SELECT shedlock_extend('to extend $setting', token => $row_token)", $setting);
	waits_for_standby('a claim', "SELECT shedlock_once('sync $setting', now())", $setting);
	waits_for_standby('an acquisition by ShedLock', "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) SELECT 'java $setting', now + '1 h', now, 'java' FROM timezone('UTC', clock_timestamp()) now", $setting);
	waits_for_standby('an extension by ShedLock', "UPDATE shedlock SET lock_until = lock_until + '1 h'::interval WHERE name = 'java $setting' AND locked_by = 'java'", $setting);
	waits_for_standby('the end of a run that is sent again', "SELECT shedlock_run_end('ended', $ended)", $setting);
	waits_for_standby('a request that is sent again', "SELECT token IS NOT NULL FROM shedlock_run_begin('begun', '1 h', request => 'r')", $setting);
	waits_for_standby('a pause', "SELECT shedlock_pause('paused $setting') IS NOT NULL", $setting);
	waits_for_standby('an acquire that is prepared',
		"BEGIN; SELECT shedlock_acquire('prepared $setting'); PREPARE TRANSACTION 'prepared $setting'", $setting);
	$node->safe_psql($dbname, "SET synchronous_commit = local; ROLLBACK PREPARED 'prepared $setting'");
}

my $row_token = $node->safe_psql($dbname, "SELECT token FROM shedlock WHERE name = 'to release local'");
my ($answer, $hung);

$node->psql($dbname, "SELECT shedlock_release('to release local', $row_token)",
	stdout => \$answer, timeout => 60, timed_out => \$hung);
ok(!$hung, 'a release does not wait for the standby');
is($answer, 't', 'the release returns true');
is($node->safe_psql($dbname, "SELECT shedlock_acquire('crash')"), 'f', 'a refused acquire does not wait for the standby');

$node->stop('immediate');
done_testing();
