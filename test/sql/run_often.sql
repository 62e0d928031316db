-- 5,000 runs in one session leave no memory, portal, lock or timer behind.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE TABLE run_often (n int);
CREATE FUNCTION pg_temp.memory() RETURNS bigint
LANGUAGE sql AS $$ SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts $$;
-- One run in fifty fails, and as many are skipped.
CREATE FUNCTION pg_temp.calls(count int) RETURNS SETOF text
LANGUAGE sql AS $$
	SELECT format('CALL shedlock_run(%L, %L, %L)', 'often ' || CASE WHEN n % 50 = 2 THEN 'held' ELSE (n % 10)::text END,
				  CASE WHEN n % 50 = 1 THEN 'INSERT INTO run_often VALUES (1); SELECT 1 / 0'
					   WHEN n % 50 = 3 THEN 'CALL shedlock_run(''often inner'', ''SELECT 1'')'
					   ELSE 'SELECT 1' END,
				  CASE WHEN n % 2 = 0 THEN '1 h' END)
	FROM generate_series(1, count) n
$$;
SELECT shedlock_acquire('often held');

\set ECHO none
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SELECT pg_temp.calls(500) \gexec
SELECT pg_temp.memory() AS before \gset
SELECT pg_temp.calls(5000) \gexec
RESET client_min_messages;
\set VERBOSITY default
\set ECHO all

SELECT pg_temp.memory() - :before < 100000 AS no_growth;
SELECT count(*) FROM pg_cursors;
SELECT count(*) FROM pg_prepared_statements;
SELECT locktype, mode, count(*) FROM pg_locks
WHERE pid = pg_backend_pid() AND (locktype <> 'relation' OR relation::regclass::text ~ 'shedlock|often') AND locktype <> 'virtualxid'
GROUP BY locktype, mode;
SELECT outcome, count(*) FROM shedlock_history WHERE name LIKE 'often%' GROUP BY outcome ORDER BY outcome;
SELECT count(*) FROM run_often;
SELECT name, state FROM shedlock_locks WHERE name LIKE 'often%';
SELECT name FROM pg_backend_memory_contexts WHERE name ~ 'shedlock_run';

DROP TABLE run_often;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
