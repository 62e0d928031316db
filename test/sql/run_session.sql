-- Whatever a command does to its session, the run's end is recorded and the
-- lock released.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE ROLE regress_shedlock_weak;
CREATE SCHEMA run_elsewhere;
CREATE TABLE run_elsewhere.shedlock (n int);
CREATE TABLE run_held (state text);
GRANT INSERT ON run_held TO PUBLIC;

-- A command can change the role, search_path, read-only transactions and row security.
CALL shedlock_run('run session', 'SET ROLE regress_shedlock_weak');
SELECT current_user;
RESET ROLE;
CALL shedlock_run('run session', 'SET SESSION AUTHORIZATION regress_shedlock_weak');
RESET SESSION AUTHORIZATION;
CALL shedlock_run('run session', 'SET ROLE regress_shedlock_weak; SELECT 1 / 0');
SELECT current_user <> 'regress_shedlock_weak' AS reverted;
CALL shedlock_run('run session', 'SET search_path = run_elsewhere');
SHOW search_path;
RESET search_path;
CALL shedlock_run('run session', 'SET search_path = ''''; SET row_security = off');
RESET search_path;
RESET row_security;
CALL shedlock_run('run session', 'SET default_transaction_read_only = on');
RESET default_transaction_read_only;
CALL shedlock_run('run session', 'SET TRANSACTION READ ONLY');
CALL shedlock_run('run session', 'SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SELECT 1');
CALL shedlock_run('run session', 'SET default_transaction_isolation = ''serializable''');
RESET default_transaction_isolation;
CALL shedlock_run('run session', 'SET default_table_access_method = heap; SET default_tablespace = pg_default; SET synchronous_commit = off');
RESET ALL;
SELECT * FROM pg_temp.runs('run session');
SELECT * FROM pg_temp.my_locks();
SELECT count(*) FROM shedlock_locks WHERE name = 'run session';

-- A command can set a role that it has created, and a command can drop a role.
CALL shedlock_run('run role', 'CREATE ROLE regress_shedlock_gone; SET ROLE regress_shedlock_gone');
RESET ROLE;
CALL shedlock_run('run role', 'DROP ROLE regress_shedlock_gone');
SELECT outcome FROM pg_temp.runs('run role');

-- SET statement_timeout applies to the statements after it, and to each of them
-- separately, as in a client's string of statements.  A statement that must be cancelled
-- sleeps for long, and every other one has two seconds to spare.
CREATE TEMP TABLE timeouts (n int, before text, command text);
INSERT INTO timeouts VALUES
	(1, '0', 'SET statement_timeout = ''200 ms''; SELECT pg_sleep(20)'),
	(2, '0', 'SET LOCAL statement_timeout = ''200 ms''; SELECT pg_sleep(20)'),
	(3, '1 h', 'SET statement_timeout = ''200 ms''; SELECT pg_sleep(20)'),
	(4, '3 s', 'SET statement_timeout = ''1 h''; SELECT pg_sleep(3.1)'),
	(5, '3 s', 'SET statement_timeout = 0; SELECT pg_sleep(3.1)'),
	(6, '3 s', 'SELECT pg_sleep(1); SELECT pg_sleep(1); SELECT pg_sleep(1); SELECT pg_sleep(1)'),
	(7, '3 s', 'SELECT 1; SELECT pg_sleep(20)');
\set VERBOSITY sqlstate
SELECT format('SET statement_timeout = %L', before), format('CALL shedlock_run(''run timeout %s'', %L)', n, command)
FROM timeouts ORDER BY n \gexec
RESET statement_timeout;
\set VERBOSITY default
SELECT n, before, outcome FROM timeouts JOIN shedlock_history ON name = 'run timeout ' || n ORDER BY n;

-- A statement that drops all advisory locks leaves the run's lock held by its row, and
-- the advisory half is acquired again after the statement.
SELECT shedlock_acquire('run lease'), shedlock_acquire_session('run other');
CALL shedlock_run('run reset', 'SELECT pg_advisory_unlock_all();
	INSERT INTO run_held SELECT state || (SELECT '' with '' || mode FROM pg_locks WHERE locktype = ''advisory'' AND objsubid = 21324 AND pid = l.pid)
	FROM shedlock_locks l WHERE name = ''run reset''');
TABLE run_held;
SELECT count(*) FROM shedlock_locks WHERE name = 'run other';
CALL shedlock_run('run reset', 'INSERT INTO run_held SELECT state FROM shedlock_locks, pg_advisory_unlock_all() WHERE name = ''run reset''');
CALL shedlock_run('run reset', 'SELECT pg_advisory_unlock_all() WHERE shedlock_acquire(''run reset'')');
\set VERBOSITY sqlstate
CALL shedlock_run('run reset', 'SELECT pg_advisory_unlock_all()');
\set VERBOSITY default
CALL shedlock_run('run reset', 'DISCARD ALL');
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
SELECT shedlock_acquire_session('run other');
CALL shedlock_run('run reset', 'DO $$
BEGIN
	PERFORM pg_advisory_unlock_all();
	COMMIT;
	RAISE WARNING ''held after the commit: %'', (SELECT array_agg(name) FROM shedlock_locks WHERE name IN (''run reset'', ''run other'') AND shedlock_assert(name) > 0);
END $$');
SELECT * FROM pg_temp.runs('run reset');
SELECT * FROM pg_temp.my_locks();
CALL shedlock_run('run reset failed', 'DO $$ BEGIN PERFORM pg_advisory_unlock_all(); RAISE ''after the reset''; END $$');
SELECT * FROM pg_temp.runs('run reset failed');
SELECT * FROM pg_temp.my_locks();
CALL shedlock_run('run reset', 'DISCARD ALL', '1 h');
CALL shedlock_run('run reset', 'DISCARD PLANS');
CALL shedlock_run('run reset', 'DISCARD TEMP');
CALL shedlock_run('run reset', 'CLOSE ALL');
CALL shedlock_run('run reset', 'DEALLOCATE ALL');
CALL shedlock_run('run reset', 'RESET ALL');
SELECT outcome, count(*) FROM shedlock_history WHERE name = 'run reset' GROUP BY outcome;
SELECT count(*) FROM shedlock_locks WHERE name = 'run reset';

-- A command can acquire locks, and release or leave them.
CALL shedlock_run('run locks', 'SELECT shedlock_acquire(''run inner''), shedlock_acquire_session(''run inner session'')');
CALL shedlock_run('run locks', 'SELECT shedlock_release(''run inner''), shedlock_release(''run inner session'')');
CALL shedlock_run('run locks', 'SELECT shedlock_acquire_session(''run inner session''), 1 / (SELECT 0)');
SELECT name, state FROM shedlock_locks WHERE name LIKE 'run inner%';

-- A command can assert and extend the lock of its run, but not release it.
CALL shedlock_run('run own', 'SELECT shedlock_assert(''run own''), shedlock_token(''run own'') > 0');
CALL shedlock_run('run own', 'SELECT shedlock_extend(''run own'', lock_at_most_for => ''1 h'')', '10 min');
CALL shedlock_run('run own', 'SELECT shedlock_release(''run own'')');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run own', 'INSERT INTO run_held SELECT coalesce(shedlock_acquire(''run own'')::text, '''')');
SELECT state FROM run_held WHERE state IN ('true', 'false');
SELECT outcome FROM shedlock_history WHERE name = 'run own' ORDER BY token;

DROP SCHEMA run_elsewhere CASCADE;
DROP TABLE run_held;
DROP ROLE regress_shedlock_weak;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
