-- A nested call for the same lock only executes its command; for another lock it is another run.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE TABLE run_nested (what text);

-- The same lock: one run, also three deep.
CALL shedlock_run('nested', 'CALL shedlock_run(''nested'', ''INSERT INTO run_nested VALUES (1)'')');
CALL shedlock_run('nested', 'CALL shedlock_run(''nested'', ''CALL shedlock_run(''''nested'''', ''''INSERT INTO run_nested VALUES (2)'''')'')');
SELECT * FROM run_nested;
SELECT command, outcome FROM shedlock_history WHERE name = 'nested' ORDER BY token;
SELECT * FROM pg_temp.my_locks();
CALL shedlock_run('nested', 'CALL shedlock_run(''nested'', ''SELECT 1 / 0'')');
SELECT outcome, message FROM pg_temp.runs('nested');

-- Other locks: both are held while the inner command executes, and the inner one is
-- released first.
TRUNCATE run_nested;
CALL shedlock_run('nested outer', 'CALL shedlock_run(''nested inner'', ''INSERT INTO run_nested SELECT name || '''' '''' || state FROM shedlock_locks WHERE name LIKE ''''nested%'''''')');
SELECT * FROM run_nested ORDER BY what;
SELECT name, outcome FROM shedlock_history WHERE name IN ('nested outer', 'nested inner') ORDER BY token;
SELECT a.ended_at <= b.ended_at AS inner_first FROM shedlock_history a, shedlock_history b
WHERE a.name = 'nested inner' AND b.name = 'nested outer';
SELECT count(*) FROM shedlock_locks WHERE name LIKE 'nested%';
SELECT * FROM pg_temp.my_locks();

-- If the inner run fails, the outer one fails, too.
CALL shedlock_run('nested outer', 'CALL shedlock_run(''nested inner'', ''SELECT 1 / 0'')');
SELECT DISTINCT ON (name) name, outcome, message FROM shedlock_history WHERE name IN ('nested outer', 'nested inner') ORDER BY name, token DESC;

-- If the inner run is skipped, the outer one goes on.
SELECT shedlock_acquire('nested inner', locked_by => 'somebody');
UPDATE shedlock SET locked_by = 'somebody', locked_at = '2026-01-02 03:04:05' WHERE name = 'nested inner';
SET timezone = 'UTC';
CALL shedlock_run('nested outer', 'CALL shedlock_run(''nested inner'', ''SELECT 1 / 0'')');
CALL shedlock_run('nested outer', 'CALL shedlock_run(''nested inner'', ''SELECT 1'', on_busy => ''error'')');
RESET timezone;
SELECT outcome, message FROM pg_temp.runs('nested outer');
SELECT shedlock_release('nested inner');

-- The inner run is out of time, the outer one is not.
CALL shedlock_run('nested outer 2', 'CALL shedlock_run(''nested inner 2'', ''SELECT pg_sleep(20)'', ''2 s'')', '1 h');
\echo :LAST_ERROR_SQLSTATE
SELECT name, outcome, message FROM shedlock_history WHERE name LIKE 'nested % 2' ORDER BY token;

-- The outer run is out of time while the inner one executes.
CALL shedlock_run('nested outer 3', 'CALL shedlock_run(''nested inner 3'', ''SELECT pg_sleep(20)'', ''1 h'')', '2 s');
\echo :LAST_ERROR_SQLSTATE
SELECT name, outcome, message FROM shedlock_history WHERE name LIKE 'nested % 3' ORDER BY token;
SELECT pg_sleep(1.2) IS NOT NULL AS slept;

-- Of two times for the same lock the outer run's counts.
CALL shedlock_run('nested time', 'CALL shedlock_run(''nested time'', ''SELECT pg_sleep(0.3)'', ''100 ms'')', '1 h');
CALL shedlock_run('nested time', 'CALL shedlock_run(''nested time'', ''SELECT pg_sleep(20)'', ''1 h'')', '2 s');
SELECT outcome FROM pg_temp.runs('nested time');

-- The inner command can reset the session.
CALL shedlock_run('nested reset', 'CALL shedlock_run(''nested reset inner'', ''SELECT pg_advisory_unlock_all()'')');
SELECT name, outcome FROM shedlock_history WHERE name LIKE 'nested reset%' ORDER BY token;
SELECT count(*) FROM shedlock_locks WHERE name LIKE 'nested reset%';

-- A session lock of the same session is held, so the run is skipped.
SELECT shedlock_acquire_session('nested session');
\set VERBOSITY terse
CALL shedlock_run('nested session', 'SELECT 1 / 0');
CALL shedlock_run('nested', 'CALL shedlock_run(''nested session'', ''SELECT 1 / 0'')');
\set VERBOSITY default
SELECT shedlock_release('nested session');

-- shedlock_run cannot be one of several statements.
CALL shedlock_run('nested', 'SELECT 1; CALL shedlock_run(''nested inner'', ''SELECT 1'')');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM pg_temp.my_locks();

-- The depth has a limit, whether the locks differ or are the same.
CREATE TEMP VIEW deep AS
WITH RECURSIVE calls(n, others, one) AS
	(SELECT 0, 'SELECT 1', 'SELECT 1'
	UNION ALL
	SELECT n + 1, format('CALL shedlock_run(''deep %s'', $c%1$s$%s$c%1$s$)', n + 1, others), format('CALL shedlock_run(''deep'', $c%s$%s$c%1$s$)', n + 1, one)
	FROM calls WHERE n < 33)
SELECT * FROM calls;
SELECT others, one FROM deep WHERE n = 32 \gset
:others;
:one;
SELECT others, one FROM deep WHERE n = 33 \gset
:others;
\echo :LAST_ERROR_SQLSTATE
:one;
\echo :LAST_ERROR_SQLSTATE
SELECT outcome, count(*) FROM shedlock_history WHERE name LIKE 'deep%' GROUP BY outcome ORDER BY outcome;

DROP TABLE run_nested;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
