# Locks are of one database, wherever its extension is installed; and a session
# survives that the extension is dropped and made again under it.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main');
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE SCHEMA elsewhere; CREATE EXTENSION shedlock SCHEMA elsewhere');

# Not trusted: the owner of a database is not enough.
$node->safe_psql('postgres', 'CREATE ROLE plain LOGIN; CREATE DATABASE plain OWNER plain');
my ($denied, $stdout, $stderr) = $node->psql('plain', 'CREATE EXTENSION shedlock', extra_params => [ '-U', 'plain' ]);
is($denied, 3, 'only a superuser installs it');
like($stderr, qr/permission denied to create extension "shedlock"/, 'and others are told so');

# The same name in two databases, each half of it
$node->safe_psql('postgres', "SELECT shedlock_acquire('lease', '1 hour')");
is($node->safe_psql('other', "SELECT elsewhere.shedlock_acquire('lease', '1 hour')"), 't',
	'a lease of another database is no obstacle');
my $here = session($node);
my $there = session($node, dbname => 'other');
is(ask($here, "SELECT shedlock_acquire_session('session')"), 't', 'a session lock is taken here');
is(ask($there, "SELECT elsewhere.shedlock_acquire_session('session')"), 't', 'and there');
is($node->safe_psql('other', "SELECT elsewhere.shedlock_acquire('session')"), 'f', 'and excludes others there');
$node->psql('postgres', "SELECT shedlock_force_release('session')");
is($node->safe_psql('other', "SELECT state FROM elsewhere.shedlock_locks WHERE name = 'session'"), 'held',
	'force ends only the one of its own database');
reap($here);
ask($there, "BEGIN; SELECT elsewhere.shedlock_acquire('open')");
is($node->safe_psql('postgres', "SELECT shedlock_acquire('open')"), 't', 'an open acquire of another database is no obstacle');
is($node->safe_psql('postgres', "SELECT count(*) FROM shedlock_locks WHERE name IN ('session', 'open')"), '1',
	'the view shows the locks of its database');
ask($there, 'ROLLBACK');
is($node->safe_psql('postgres', "SELECT shedlock_once('tick', '2026-01-01')"), 't', 'a tick is claimed here');
is($node->safe_psql('other', "SELECT elsewhere.shedlock_once('tick', '2026-01-01')"), 't', 'and there');

# A run, and a row as a copy of its database has it
my $copied = session($node);
$copied->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('copied', 'SELECT pg_sleep(600)');\n");
ok(defined await($node, "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'copied'"), 'a run is under way');
my $copy = $node->safe_psql('postgres', "SELECT format('(%L, %L, %L, %L, %L, %s, %L, %s, %s)', name, kind, lock_until, locked_at, locked_by, token, backend_start, pid, timeline) FROM shedlock WHERE name = 'copied'");
$node->safe_psql('other', "INSERT INTO elsewhere.shedlock (name, kind, lock_until, locked_at, locked_by, token, backend_start, pid, timeline) VALUES $copy");
is($node->safe_psql('other', "SELECT count(*) FROM elsewhere.shedlock_locks WHERE name = 'copied'"), '0', 'it is none of the copy');
is($node->safe_psql('other', "SELECT elsewhere.shedlock_cancel('copied'), elsewhere.shedlock_force_release('copied'), elsewhere.shedlock_acquire('copied')"), 'f|f|t', 'where it cannot be ended, and its lock is free');
is($node->safe_psql('postgres', "SELECT shedlock_force_release('copied')"), 't', 'it went on until its own database ends it');
reap($copied);

# No search_path is needed to get at the extension's tables, and none misleads it.
is($node->safe_psql('other', "CREATE TABLE public.shedlock (name text); CREATE TABLE public.shedlock_tick (name text);"
		  . "SET search_path = public; SELECT elsewhere.shedlock_acquire('path'); SELECT elsewhere.shedlock_once('path', now());"
		  . 'SELECT count(*) FROM public.shedlock'),
	"t\nt\n0", 'tables of the same name in the search_path stay untouched');
is($node->safe_psql('other', "SET search_path = ''; CALL elsewhere.shedlock_run('run', 'CREATE TABLE public.done()');"
		  . 'SELECT outcome FROM elsewhere.shedlock_history'),
	'succeeded', 'an empty search_path is enough');
$there->quit;

# A relation in the way
$node->safe_psql('postgres', 'CREATE DATABASE taken');
$node->safe_psql('taken', 'CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp, locked_at timestamp, locked_by varchar(255))');
my ($status, $out, $err) = $node->psql('taken', "\\set VERBOSITY verbose\nCREATE EXTENSION shedlock");
like($err, qr/42P07: relation "shedlock" already exists in schema public.*HINT: .*CREATE EXTENSION shedlock SCHEMA scheduling/s,
	'a table of ShedLock in the way: the hint names the way out');
$node->safe_psql('taken', 'CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling');
is($node->safe_psql('taken', "SELECT scheduling.shedlock_acquire('x')"), 't', 'which works');

# DROP EXTENSION under a session that has used all of it
my $session = session($node);
ask($session, 'PREPARE acquire AS SELECT shedlock_acquire($1, $2)');
ask($session, "EXECUTE acquire('x', '1 hour')");
ask($session, "SELECT shedlock_acquire_session('held over'), shedlock_acquire_session('held over 2', '1 hour')");
ask($session, "SELECT shedlock_once('x', '2026-01-01')");
ask($session, 'SELECT count(*) FROM shedlock_locks');
my $took = seconds { $node->safe_psql('postgres', 'DROP EXTENSION shedlock') };
cmp_ok($took, '<', 5 * slowness($node), 'DROP EXTENSION does not wait for a session lock');
ask($session, "SELECT shedlock_release('held over')");
like($session->{heard}, qr/function shedlock_release\(unknown\) does not exist/, 'without the extension its functions are gone');
ask($session, "EXECUTE acquire('x', '1 hour')");
like($session->{heard}, qr/ERROR: .*does not exist/, 'and prepared statements say so');
is(ask($session, 'SELECT 1'), '1', 'the session lives on');

$node->safe_psql('postgres', 'CREATE EXTENSION shedlock');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('held over')"), 'f',
	'after CREATE EXTENSION a session lock that is still held excludes others');
is(ask($session, "SELECT shedlock_release('held over')"), 'f', 'its session can let go of it');
like($session->{heard}, qr/WARNING: .*"held over" is not held/, 'and is told that it was lost');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('held over')"), 't', 'then it is free');
is(ask($session, "SELECT shedlock_acquire_session('held over 2')"), 't', 'and can take the other one anew');
is(ask($session, "SELECT shedlock_release('held over 2')"), 't', 'and release it');
is(ask($session, "SELECT shedlock_acquire('x', '1 hour')"), 't', 'leases of the old tables are gone with them');
is(ask($session, "SELECT shedlock_release('x')"), 't', 'and the session takes and releases new ones');
is(ask($session, "SELECT shedlock_once('x', '2026-01-01')"), 't', 'and claims ticks');
ask($session, "CALL shedlock_run('x', 'SELECT 1')");
is($session->{heard}, '', 'and runs commands');
is($node->safe_psql('postgres', 'SELECT name, outcome FROM shedlock_history'), 'x|succeeded', 'which are in the new history');

# In one session, in one transaction, in another schema
ask($session, "SELECT shedlock_acquire_session('moved')");
ask($session, 'BEGIN; DROP EXTENSION shedlock; CREATE SCHEMA new; CREATE EXTENSION shedlock SCHEMA new; COMMIT');
is($session->{heard}, '', 'a session that holds a lock moves the extension');
is(ask($session, "SELECT new.shedlock_release('moved')"), 'f', 'and lets go of the lock');
is($node->safe_psql('postgres', "SELECT new.shedlock_acquire('moved')"), 't', 'and then it is free');
is(ask($session, 'SELECT count(*) FROM new.shedlock_locks'), '1', 'and the views work');

# Gone while a guarded command runs
my $runner = session($node);
ask($session, 'SELECT pg_advisory_lock(1)');
$runner->query_until(qr/running/, "\\echo running\nCALL new.shedlock_run('run', 'SELECT pg_advisory_xact_lock_shared(1)');\n");
ok(defined await($node, "SELECT count(*) = 1 FROM new.shedlock_locks WHERE name = 'run'"), 'a run is going on');
is(error_of($node, 'DROP EXTENSION shedlock'), 'no error', 'the extension is dropped beside it');
ask($session, 'SELECT pg_advisory_unlock(1)');
is(ask($runner, 'SELECT 1'), '1', 'its session lives on');
like($runner->{heard}, qr/WARNING: +could not release lock "run"/, 'and says that it could not record the end');
is(ask($runner, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 21324 AND pid = pg_backend_pid()"), '0',
	'but has released the lock');
$runner->quit;
$session->quit;

$node->stop;
done_testing();
