# The extension can be updated, dropped and created again while clients use it.  Locks
# that an update finds held stay held, and no client crashes or waits forever; each gets
# an answer or an error that names the reason.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main');

# A newer version in a folder of its own: a view and a function are replaced,
# and a column and a function are new.
my $scripts = private_scripts($node);
my $version = $node->safe_psql('postgres', "SELECT extversion FROM pg_extension WHERE extname = 'shedlock'");
my $newer = "$version.9";
PostgreSQL::Test::Utils::append_to_file(
	"$scripts/shedlock--$version--$newer.sql", q{
DO $$
BEGIN
	EXECUTE format('CREATE OR REPLACE VIEW shedlock_locks AS SELECT v.*, 1 AS more FROM (%s) v',
		rtrim(pg_get_viewdef('shedlock_locks'::regclass), ';'));
END $$;
ALTER TABLE shedlock ADD COLUMN team text NOT NULL DEFAULT 'nobody';
CREATE OR REPLACE FUNCTION shedlock_token(name text) RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shedlock_token';
CREATE FUNCTION shedlock_mine(name text) RETURNS boolean LANGUAGE sql VOLATILE PARALLEL UNSAFE AS $$ SELECT @extschema@.shedlock_token(name) IS NOT NULL $$;
});
my %session;
sub started
{
	my ($name, @sql) = @_;
	$session{$name} = session($node);
	my @answers = map { ask($session{$name}, $_) } @sql;
	is($session{$name}->{heard}, '', "$name: has begun");
	return $answers[-1];
}

# Sends a statement that takes time; finished() waits for its end.
sub begun
{
	my ($name, $sql) = @_;
	$session{$name} ||= session($node);
	$session{$name}->{stderr} = '';
	$session{$name}->query_until(qr/begun/, "\\echo begun\n$sql;\n");
	return;
}

sub finished
{
	my ($name) = @_;
	my $answer = $session{$name}->query_until(qr/finished/, "\\echo finished\n");
	my $err = $session{$name}->{stderr};
	$session{$name}->{stderr} = '';
	return ($answer =~ s/\n?finished\n?\z//r, $err);
}

started('blocker', 'SELECT pg_advisory_lock(1), pg_advisory_lock(2)');
my $token = started('lease', "PREPARE extend AS SELECT shedlock_extend('lease')", "SELECT shedlock_acquire_token('lease', '1 h')");
started('session lock', 'PREPARE state AS SELECT state FROM shedlock_locks WHERE name = $1', "SELECT shedlock_acquire_session('session lock')",
	"EXECUTE state('session lock')");
started('timed', "SELECT shedlock_acquire_session('timed', '10 min')");
started('fence', "SELECT shedlock_acquire('fence', '1 h')", "BEGIN; SELECT shedlock_assert('fence')");
begun('run', "CALL shedlock_run('run', 'SELECT pg_advisory_xact_lock_shared(1)')");
begun('waiter', "SELECT shedlock_acquire('session lock', wait => '1 h')");
ok(defined await($node, "SELECT waiters = 1 FROM shedlock_locks WHERE name = 'session lock'"), 'a waiter waits');
ok(defined await($node, "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'run'"), 'a run is in progress');
begun('admin', 'SET client_min_messages = warning; ALTER EXTENSION shedlock UPDATE TO \'' . "$newer'");
ok(defined await($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'ALTER EXTENSION'}),
	'an update that alters the table waits for an open fence');
ask($session{fence}, 'COMMIT');
is($session{fence}->{heard}, '', 'the fence ends');
is(join('', finished('admin')), '', 'ALTER EXTENSION UPDATE: waits for no other client');
is($node->safe_psql('postgres', 'SELECT extversion FROM pg_extension WHERE extname = $$shedlock$$'), $newer, 'the new version is installed');
is($node->safe_psql('postgres', 'SELECT name, state, kind, more FROM shedlock_locks ORDER BY name'),
	"fence|held|lease|1\nlease|held|lease|1\nrun|held|run|1\nsession lock|held|session|1\ntimed|held|session|1", 'held locks stay held');
is($node->safe_psql('postgres', "SELECT name, shedlock_acquire(name) FROM unnest('{fence,lease,run,session lock,timed}'::text[]) name"),
	"fence|f\nlease|f\nrun|f\nsession lock|f\ntimed|f", 'held locks exclude others');
is(ask($session{lease}, 'EXECUTE extend'), 't', 'a session continues with its prepared statement');
is(ask($session{lease}, "SELECT shedlock_mine('lease'), shedlock_release('lease')"), 't|t', 'a session can call the new functions');
is(ask($session{fence}, "BEGIN; SELECT shedlock_assert('fence', shedlock_token('fence')) > 0; COMMIT; SELECT shedlock_release('fence')"), "t\nt", 'a lease is asserted and released');
is(ask($session{'session lock'}, "EXECUTE state('session lock')"), 'held', 'a view is planned again');
is(ask($session{timed}, "SELECT shedlock_extend('timed', lock_at_most_for => '20 min'), shedlock_release('timed')"), 't|t', 'a session lock is extended and released');
is(ask($session{'session lock'}, "SELECT shedlock_release('session lock')"), 't', 'another session lock is released');
is((finished('waiter'))[0], 't', 'the waiter acquires the released session lock');
is($node->safe_psql('postgres', "SELECT team FROM shedlock WHERE name = 'session lock'"), 'nobody', 'new columns have their defaults');
my ($out, $err);

# Dropped by another session, while a waiter waits, a run is in progress and a fence is
# open
ask($session{blocker}, 'SELECT pg_advisory_unlock(1)');
is((finished('run'))[1], '', 'the run ends');
is($node->safe_psql('postgres', "SELECT outcome FROM shedlock_history WHERE name = 'run'"), 'succeeded', 'the run is logged as succeeded');
begun('run', "CALL shedlock_run('run', 'SELECT pg_advisory_xact_lock_shared(2)')");
started('holder', "SELECT shedlock_acquire_session('wanted')");
begun('waiter', "SELECT shedlock_acquire('wanted', wait => '1 h')");
started('fence', "SELECT shedlock_acquire('fence', '1 h')", "BEGIN; SELECT shedlock_assert('fence')");
ok(defined await($node, "SELECT waiters = 1 FROM shedlock_locks WHERE name = 'wanted'"), 'a waiter waits');
ok(defined await($node, "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'run'"), 'a run is in progress');
like(error_of($node, "SET lock_timeout = '200 ms'; DROP EXTENSION shedlock"), qr/^55P03/, 'DROP EXTENSION waits for an open fence');
ask($session{fence}, 'COMMIT');
$node->safe_psql('postgres', 'DROP EXTENSION shedlock');
pass('DROP EXTENSION does not wait for a waiter, a run or a session lock');
($out, $err) = finished('waiter');
like($err, qr/ERROR: +relation "shedlock" of extension "shedlock" does not exist/, 'the waiter gets an error that says that the extension is gone');
ask($session{holder}, "SELECT shedlock_release('wanted')");
like($session{holder}->{heard}, qr/ERROR: +function shedlock_release\(unknown\) does not exist/, 'the holder gets an error that says that the function is gone');
ask($session{blocker}, 'SELECT pg_advisory_unlock(2)');
($out, $err) = finished('run');
like($err, qr/WARNING: +could not release lock "run": relation "shedlock" of extension "shedlock" does not exist/, 'the run gets a WARNING that says that the table is gone');
unlike($err, qr/ERROR|FATAL/, 'the command of the run has succeeded');
is(ask($session{$_}, 'SELECT 1'), '1', "$_: the session continues") foreach 'waiter', 'holder', 'run', 'fence';
is($node->safe_psql('postgres', 'CREATE EXTENSION shedlock; SELECT shedlock_acquire($$run$$), shedlock_acquire($$fence$$), shedlock_acquire($$wanted$$)'), 't|t|f',
	'created again: only the lock that a session still holds excludes others');
is(ask($session{run}, "SELECT shedlock_release('run')"), 'f', 'a session cannot release the lease of another session');
ask($session{run}, "CALL shedlock_run('again', 'SELECT')");
is($session{run}->{heard}, '', 'the session of the run runs a command again');
is(ask($session{waiter}, "SELECT shedlock_acquire('again', wait => '1 s')"), 't', 'the session of the waiter acquires a lock again');
ask($session{waiter}, "SELECT shedlock_release('again')");
is(ask($session{holder}, "SELECT shedlock_release('wanted')"), 'f', 'the holder\'s release returns false and frees its old lock');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('wanted')"), 't', 'the old lock is free after that');

# The session itself drops the extension, with locks, fences and a claim of its own
started('self', "SELECT shedlock_acquire('l', '1 h'), shedlock_acquire_session('s'), shedlock_acquire_session('t', '1 h')",
	"BEGIN; SET LOCAL client_min_messages = warning; SELECT shedlock_assert('l'), shedlock_assert('s'), shedlock_once('tick', '2026-01-01'), shedlock_acquire('new'), shedlock_acquire_session('new session'); SET LOCAL client_min_messages = notice");
ask($session{self}, 'DROP EXTENSION shedlock');
is($session{self}->{heard}, '', 'a session with a lease, session locks, fences and a claim drops the extension');
ask($session{self}, 'CREATE EXTENSION shedlock; COMMIT');
is($session{self}->{heard}, '', 'it creates the extension again in the same transaction');
is(ask($session{self}, "SELECT shedlock_release('l'), shedlock_acquire('l'), shedlock_release('l')"), 'f|t|t', 'its leases are gone');
is(ask($session{self}, "SELECT shedlock_acquire_session('new session'), shedlock_release('new session')"), 't|t', 'a new session lock is acquired and released');
is(ask($session{self}, "SELECT shedlock_acquire_session('s'), shedlock_release('s'), shedlock_release('t')"), 't|t|f', 'its old session locks are gone');
is($node->safe_psql('postgres', "SELECT name, shedlock_acquire(name) FROM unnest('{l,s,t,new,new session}'::text[]) name"),
	"l|t\ns|t\nt|t\nnew|t\nnew session|t", 'no advisory lock is left');

# A guarded command that drops the extension, or also creates it again
foreach my $command ('DROP EXTENSION shedlock', 'DROP EXTENSION shedlock; CREATE EXTENSION shedlock', 'BEGIN; DROP EXTENSION shedlock; ROLLBACK')
{
	my $runner = $session{runner} ||= session($node);

	ask($runner, 'CREATE EXTENSION IF NOT EXISTS shedlock');
	ask($runner, "CALL shedlock_run('itself', '$command')");
	unlike($runner->{heard}, qr/FATAL|PANIC|server closed/, "$command, guarded: the session continues");
	note($runner->{heard});
	is(ask($runner, 'SELECT 1'), '1', 'the session answers');
	ask($runner, 'SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS shedlock; RESET client_min_messages');
	is($node->safe_psql('postgres', "SELECT shedlock_acquire('itself', '1 ms'), count(*) FROM shedlock_locks WHERE name = 'itself' AND kind = 'run'"), 't|0',
		'the lock is free');
	ask($runner, "CALL shedlock_run('another', 'SELECT')");
	is($runner->{heard}, '', 'the session runs guarded commands');
}

ok(!grep({ /PANIC|was terminated by signal|TRAP/ } PostgreSQL::Test::Utils::slurp_file($node->logfile)), 'no process has crashed');
$node->stop;
done_testing();
