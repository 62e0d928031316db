-- A run executes what cannot run in a transaction, and what commits by itself.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE TABLE run_table (n int PRIMARY KEY, m int);
INSERT INTO run_table SELECT n, n FROM generate_series(1, 1000) n;
DELETE FROM run_table WHERE n % 2 = 0;

CALL shedlock_run('run maintenance', 'VACUUM (ANALYZE) run_table');
SELECT reltuples FROM pg_class WHERE oid = 'run_table'::regclass;
CALL shedlock_run('run maintenance', 'VACUUM FULL run_table', '1 h', '0');
CALL shedlock_run('run maintenance', 'ANALYZE run_table');
CALL shedlock_run('run maintenance', 'CREATE INDEX CONCURRENTLY run_table_m ON run_table (m)');
SELECT indisvalid FROM pg_index WHERE indexrelid = 'run_table_m'::regclass;
CALL shedlock_run('run maintenance', 'REINDEX INDEX CONCURRENTLY run_table_m');
CALL shedlock_run('run maintenance', 'REINDEX TABLE CONCURRENTLY run_table');
CALL shedlock_run('run maintenance', 'CLUSTER run_table USING run_table_m');
CALL shedlock_run('run maintenance', 'DROP INDEX CONCURRENTLY run_table_m');
SELECT count(*) FROM pg_class WHERE relname = 'run_table_m';
CREATE MATERIALIZED VIEW run_view AS SELECT n, m FROM run_table;
CREATE UNIQUE INDEX ON run_view (n);
INSERT INTO run_table VALUES (2, 2);
CALL shedlock_run('run maintenance', 'REFRESH MATERIALIZED VIEW CONCURRENTLY run_view');
SELECT count(*) FROM run_view;
CALL shedlock_run('run maintenance', 'CHECKPOINT');

-- These would wait for a transaction or a snapshot of shedlock_run itself.
CALL shedlock_run('run maintenance', 'CREATE DATABASE regression_shedlock TEMPLATE template0');
CALL shedlock_run('run maintenance', 'ALTER DATABASE regression_shedlock SET work_mem = ''1MB''');
SELECT count(*) FROM pg_database WHERE datname = 'regression_shedlock';
CALL shedlock_run('run maintenance', 'DROP DATABASE regression_shedlock');
SELECT count(*) FROM pg_database WHERE datname = 'regression_shedlock';
CALL shedlock_run('run maintenance', 'ALTER SYSTEM SET shedlock.log_skipped_runs = off');
SELECT setting FROM pg_file_settings WHERE name = 'shedlock.log_skipped_runs' ORDER BY seqno DESC LIMIT 1;
CALL shedlock_run('run maintenance', 'ALTER SYSTEM RESET shedlock.log_skipped_runs');
SELECT count(*) FROM pg_file_settings WHERE name = 'shedlock.log_skipped_runs';

-- A command can commit in the middle.
CREATE TABLE run_batches (n int, xid xid8);
CREATE PROCEDURE run_batch(fail_at int DEFAULT NULL)
LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..3 LOOP
		INSERT INTO run_batches VALUES (i, pg_current_xact_id());
		COMMIT;
		IF i = fail_at THEN
			RAISE EXCEPTION 'failed in batch %', i;
		END IF;
	END LOOP;
	INSERT INTO run_batches VALUES (0, pg_current_xact_id());
	ROLLBACK;
END
$$;
CALL shedlock_run('run batches', 'CALL run_batch()');
SELECT count(*), count(DISTINCT xid) AS transactions, min(n) FROM run_batches;
CALL shedlock_run('run batches', 'CALL run_batch(2)');
SELECT count(*), count(DISTINCT xid) AS transactions FROM run_batches;
CALL shedlock_run('run batches', $call$
DO $$
BEGIN
	FOR i IN 1..3 LOOP
		INSERT INTO run_batches VALUES (i, pg_current_xact_id());
		COMMIT;
		IF (SELECT state FROM shedlock_locks WHERE name = 'run batches') IS DISTINCT FROM 'held' THEN
			RAISE EXCEPTION 'not held';
		END IF;
	END LOOP;
END
$$
$call$);
SELECT count(*), count(DISTINCT xid) AS transactions FROM run_batches;
SELECT * FROM pg_temp.runs('run batches');
SELECT * FROM pg_temp.my_locks();

-- A command of several statements can do none of that, as without shedlock_run.
\set VERBOSITY sqlstate
CALL shedlock_run('run batches', 'SELECT 1; VACUUM run_table');
\set VERBOSITY default
CALL shedlock_run('run batches', 'SELECT 1; CALL run_batch()');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run batches', 'SET work_mem = ''1MB''; DO $$BEGIN COMMIT; END$$; SELECT 1');
-- Alone it may commit, and other errors have no such hint.
CALL shedlock_run('run batches', 'DO $$BEGIN BEGIN COMMIT; EXCEPTION WHEN division_by_zero THEN END; END$$');
-- What a procedure needs it can set itself, and then commit.
CREATE PROCEDURE run_set()
LANGUAGE plpgsql AS $$
BEGIN
	SET work_mem = '3MB';
	COMMIT;
	RAISE NOTICE 'work_mem is %', current_setting('work_mem');
END
$$;
CALL shedlock_run('run batches', 'CALL run_set()');
RESET work_mem;
DROP PROCEDURE run_set();

SELECT command FROM shedlock_history WHERE name = 'run maintenance' AND outcome <> 'succeeded';
DROP PROCEDURE run_batch(int);
DROP TABLE run_batches;
DROP MATERIALIZED VIEW run_view;
DROP TABLE run_table;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
