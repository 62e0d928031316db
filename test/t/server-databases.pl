# Locks belong to one database, whatever schema its extension is in.  A session
# survives that the extension is dropped and created again while it is connected.

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

# The extension is not trusted: ownership of a database is not enough.
$node->safe_psql('postgres', 'CREATE ROLE plain LOGIN; CREATE DATABASE plain OWNER plain');
my ($denied, $stdout, $stderr) = $node->psql('plain', 'CREATE EXTENSION shedlock', extra_params => [ '-U', 'plain' ]);
is($denied, 3, 'only a superuser can install the extension');
like($stderr, qr/permission denied to create extension "shedlock"/, 'other roles get an error that says so');

# The same name in two databases, for each lock half
$node->safe_psql('postgres', "SELECT shedlock_acquire('lease', '1 hour')");
is($node->safe_psql('other', "SELECT elsewhere.shedlock_acquire('lease', '1 hour')"), 't',
	'a lease of another database does not exclude callers here');
my $here = session($node);
my $there = session($node, dbname => 'other');
is(ask($here, "SELECT shedlock_acquire_session('session')"), 't', 'a session lock is acquired in one database');
is(ask($there, "SELECT elsewhere.shedlock_acquire_session('session')"), 't', 'a session lock of the same name is acquired in the other');
is($node->safe_psql('other', "SELECT elsewhere.shedlock_acquire('session')"), 'f', 'it excludes others in the other database');
$node->psql('postgres', "SELECT shedlock_force_release('session')");
is($node->safe_psql('other', "SELECT state FROM elsewhere.shedlock_locks WHERE name = 'session'"), 'held',
	'force-release ends only the lock of its own database');
reap($here);
ask($there, "BEGIN; SELECT elsewhere.shedlock_acquire('open')");
is($node->safe_psql('postgres', "SELECT shedlock_acquire('open')"), 't', 'an open acquire of another database does not exclude callers here');
is($node->safe_psql('postgres', "SELECT count(*) FROM shedlock_locks WHERE name IN ('session', 'open')"), '1',
	'the view shows the locks of its database');
ask($there, 'ROLLBACK');
is($node->safe_psql('postgres', "SELECT shedlock_once('tick', '2026-01-01')"), 't', 'a tick is claimed in one database');
is($node->safe_psql('other', "SELECT elsewhere.shedlock_once('tick', '2026-01-01')"), 't', 'a tick of the same name is claimed in the other');

# A run, and its row in a copy of its database
my $copied = session($node);
$copied->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('copied', 'SELECT pg_sleep(600)');\n");
ok(defined await($node, "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'copied'"), 'a run is in progress');
my $copy = $node->safe_psql('postgres', "SELECT format('(%L, %L, %L, %L, %L, %s, %L, %s, %s)', name, kind, lock_until, locked_at, locked_by, token, backend_start, pid, origin) FROM shedlock WHERE name = 'copied'");
$node->safe_psql('other', "INSERT INTO elsewhere.shedlock (name, kind, lock_until, locked_at, locked_by, token, backend_start, pid, origin) VALUES $copy");
is($node->safe_psql('other', "SELECT state FROM elsewhere.shedlock_locks WHERE name = 'copied'"), 'lost', 'in the copy of the database it counts as a lease');
is($node->safe_psql('other', "SELECT elsewhere.shedlock_cancel('copied'), elsewhere.shedlock_acquire('copied'), elsewhere.shedlock_force_release('copied'), elsewhere.shedlock_acquire('copied')"), 'f|f|t|t', 'in the copy the run cannot be ended, and its lock can be released by force');
is($node->safe_psql('postgres', "SELECT shedlock_force_release('copied')"), 't', 'the run continued until it was force-released in its own database');
reap($copied);

# The extension finds its tables without a search_path, and no search_path misleads it.
is($node->safe_psql('other', "CREATE TABLE public.shedlock (name text); CREATE TABLE public._shedlock_tick (name text);"
		  . "SET search_path = public; SELECT elsewhere.shedlock_acquire('path'); SELECT elsewhere.shedlock_once('path', now());"
		  . 'SELECT count(*) FROM public.shedlock'),
	"t\nt\n0", 'tables of the same name in the search_path stay untouched');
is($node->safe_psql('other', "SET search_path = ''; CALL elsewhere.shedlock_run('run', 'CREATE TABLE public.done()');"
		  . 'SELECT outcome FROM elsewhere.shedlock_history'),
	'succeeded', 'an empty search_path is enough');
$there->quit;

# A relation of the same name
$node->safe_psql('postgres', 'CREATE DATABASE taken');
$node->safe_psql('taken', 'CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp, locked_at timestamp, locked_by varchar(255))');
my ($status, $out, $err) = $node->psql('taken', "\\set VERBOSITY verbose\nCREATE EXTENSION shedlock");
like($err, qr/42P07: relation "shedlock" already exists in schema public.*HINT: .*CREATE EXTENSION shedlock SCHEMA scheduling/s,
	'CREATE EXTENSION next to a table of ShedLock: the hint names the solution');
$node->safe_psql('taken', 'CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling');
is($node->safe_psql('taken', "SELECT scheduling.shedlock_acquire('x')"), 't', 'the solution in the hint works');

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
like($session->{heard}, qr/ERROR: .*does not exist/, 'prepared statements raise the same error');
is(ask($session, 'SELECT 1'), '1', 'the session continues');

$node->safe_psql('postgres', 'CREATE EXTENSION shedlock');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('held over')"), 'f',
	'after CREATE EXTENSION a session lock from before excludes others');
is(ask($session, "SELECT shedlock_release('held over')"), 'f', 'its session releases it, and the answer is false');
like($session->{heard}, qr/WARNING: .*"held over" is not held/, 'a WARNING says that it was lost');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('held over')"), 't', 'the lock is free after that');
is(ask($session, "SELECT shedlock_acquire_session('held over 2')"), 't', 'its session acquires its second lock again');
is(ask($session, "SELECT shedlock_release('held over 2')"), 't', 'its session releases the second lock');
is(ask($session, "SELECT shedlock_acquire('x', '1 hour')"), 't', 'leases of the dropped tables are gone');
is(ask($session, "SELECT shedlock_release('x')"), 't', 'the session acquires and releases leases in the new tables');
is(ask($session, "SELECT shedlock_once('x', '2026-01-01')"), 't', 'the session claims ticks in the new tables');
ask($session, "CALL shedlock_run('x', 'SELECT 1')");
is($session->{heard}, '', 'the session runs guarded commands');
is($node->safe_psql('postgres', 'SELECT name, outcome FROM shedlock_history'), 'x|succeeded', 'the new history has the run');

# In one session, in one transaction, in another schema
ask($session, "SELECT shedlock_acquire_session('moved')");
ask($session, 'BEGIN; DROP EXTENSION shedlock; CREATE SCHEMA new; CREATE EXTENSION shedlock SCHEMA new; COMMIT');
is($session->{heard}, '', 'a session that holds a lock moves the extension to another schema');
is(ask($session, "SELECT new.shedlock_release('moved')"), 'f', 'the session releases the lock there, and the answer is false');
is($node->safe_psql('postgres', "SELECT new.shedlock_acquire('moved')"), 't', 'the lock is free after that');
is(ask($session, 'SELECT count(*) FROM new.shedlock_locks'), '1', 'the views work');

# Dropped while a guarded command runs
my $runner = session($node);
ask($session, 'SELECT pg_advisory_lock(1)');
$runner->query_until(qr/running/, "\\echo running\nCALL new.shedlock_run('run', 'SELECT pg_advisory_xact_lock_shared(1)');\n");
ok(defined await($node, "SELECT count(*) = 1 FROM new.shedlock_locks WHERE name = 'run'"), 'a run is in progress');
is(error_of($node, 'DROP EXTENSION shedlock'), 'no error', 'DROP EXTENSION succeeds during a run');
ask($session, 'SELECT pg_advisory_unlock(1)');
is(ask($runner, 'SELECT 1'), '1', 'the session of the run continues');
like($runner->{heard}, qr/WARNING: +could not release lock "run"/, 'a WARNING says that the end could not be recorded');
is(ask($runner, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 21324 AND pid = pg_backend_pid()"), '0',
	'the run has released its advisory lock');
$runner->quit;
$session->quit;

# Each character between U+0080 and U+FFFF that an encoding has: names have those that
# people can see, and a client with another encoding can read every view.
my %invisible = (
	UTF8 => [ 0x80 .. 0x9F, 0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B .. 0x180F, 0x200B .. 0x200F,
		0x2028 .. 0x202E, 0x2060 .. 0x206F, 0x3164, 0xFE00 .. 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF0 .. 0xFFFB ],
	LATIN1 => [ 0x80 .. 0x9F, 0xAD ],
	ISO_8859_8 => [ 0x80 .. 0x9F, 0xAD, 0x200E, 0x200F ],
	WIN1252 => [0xAD],
	WIN1255 => [ 0xAD, 0x200E, 0x200F ],
	WIN1256 => [ 0xAD, 0x200C .. 0x200F ],
	EUC_JP => []);
foreach my $encoding (sort keys %invisible)
{
	my $database = lc $encoding;

	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0 ENCODING $encoding LOCALE 'C'");
	$node->safe_psql($database, "CREATE EXTENSION shedlock; GRANT INSERT (name, lock_until, locked_at, locked_by) ON shedlock TO plain");
	my $refused = $node->safe_psql($database, <<~'SQL');
		CREATE TABLE refused (c integer);
		DO $$
		DECLARE
			code integer;
			c text;
		BEGIN
			FOREACH code IN ARRAY ARRAY(SELECT generate_series(128, 65535) EXCEPT SELECT generate_series(55296, 57343)) LOOP
				CONTINUE WHEN current_setting('server_encoding') <> 'UTF8' AND code > 9999;
				BEGIN
					c := convert_from(CASE WHEN code < 2048 THEN set_byte(set_byte('\x0000', 0, 192 + code / 64), 1, 128 + code % 64)
						ELSE set_byte(set_byte(set_byte('\x000000', 0, 224 + code / 4096), 1, 128 + code / 64 % 64), 2, 128 + code % 64) END, 'UTF8');
				EXCEPTION WHEN OTHERS THEN
					CONTINUE;
				END;
				BEGIN
					PERFORM shedlock_token('a' || c);
				EXCEPTION WHEN invalid_parameter_value THEN
					INSERT INTO refused VALUES (code);
				END;
			END LOOP;
		END $$;
		SELECT string_agg(c::text, ' ' ORDER BY c) FROM refused;
		SQL
	is($refused, join(' ', @{ $invisible{$encoding} }), "$encoding: the characters that a name cannot have");
}

# In SQL_ASCII nobody knows what a byte beyond ASCII means.
$node->safe_psql('postgres', "CREATE DATABASE sql_ascii TEMPLATE template0 ENCODING SQL_ASCII LOCALE 'C'");
$node->safe_psql('sql_ascii', 'CREATE EXTENSION shedlock');
my $high = "'caf' || convert_from('\\xe9', 'SQL_ASCII')";
my $row = "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) SELECT %s, n %s, n, %s FROM timezone('utc', clock_timestamp()) n";
like(error_of($node, $_, dbname => 'sql_ascii'), qr/^22023: lock name must not contain control or invisible characters/, "SQL_ASCII: $_")
  foreach "SELECT shedlock_acquire($high)", "SELECT shedlock_pause($high)", sprintf($row, $high, "+ interval '1 h'", "'host'"),
  sprintf($row, $high, "- interval '1 h'", "'host'");
$node->safe_psql('sql_ascii', sprintf($row, "'job'", "+ interval '1 h'", $high));
is($node->safe_psql('sql_ascii', "SET client_encoding = 'UTF8'; SELECT name, locked_by FROM shedlock_locks"), 'job|caf?',
	'SQL_ASCII: a client with UTF8 reads the locks, whatever bytes a ShedLock client has written');

$node->stop;
done_testing();
