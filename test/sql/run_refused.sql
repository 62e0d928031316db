-- What a run cannot do is refused before the lock is acquired.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

-- Refused: calls that cannot commit.
BEGIN;
CALL shedlock_run('refused', 'SELECT 1');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN;
SAVEPOINT s;
CALL shedlock_run('refused', 'SELECT 1');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT 1 AS one \; CALL shedlock_run('refused', 'SELECT 1');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('refused', 'SELECT 1') \; SELECT 1 AS one;
\echo :LAST_ERROR_SQLSTATE
DO $$BEGIN CALL shedlock_run('refused', 'SELECT 1'); END$$;
\echo :LAST_ERROR_SQLSTATE
CREATE FUNCTION run_refused() RETURNS void
LANGUAGE plpgsql AS $$BEGIN CALL shedlock_run('refused', 'SELECT 1'); END$$;
SELECT run_refused();
\echo :LAST_ERROR_SQLSTATE
DROP FUNCTION run_refused();
CREATE PROCEDURE run_refused()
LANGUAGE plpgsql AS $$BEGIN CALL shedlock_run('refused', 'SELECT 1'); END$$;
CALL run_refused();
\echo :LAST_ERROR_SQLSTATE
CREATE OR REPLACE PROCEDURE run_refused()
LANGUAGE plpgsql AS $$BEGIN COMMIT; CALL shedlock_run('refused', 'SELECT 1'); END$$;
CALL run_refused();
\echo :LAST_ERROR_SQLSTATE
DROP PROCEDURE run_refused();
CREATE PROCEDURE run_refused()
LANGUAGE sql AS $$CALL shedlock_run('refused', 'SELECT 1')$$;
CALL run_refused();
\echo :LAST_ERROR_SQLSTATE
DROP PROCEDURE run_refused();
SELECT shedlock_run('refused', 'SELECT 1');
\echo :LAST_ERROR_SQLSTATE

-- Refused: commands that exchange data with the client, or that begin or end transactions.
CREATE TABLE run_refused (n int);
CALL shedlock_run('refused', 'COPY run_refused FROM STDIN');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('refused', 'COPY run_refused TO STDOUT');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
CALL shedlock_run('refused', 'COPY (SELECT 1) TO STDOUT');
CALL shedlock_run('refused', 'INSERT INTO run_refused VALUES (1); COPY run_refused TO STDOUT');
CALL shedlock_run('refused', 'BEGIN');
CALL shedlock_run('refused', 'START TRANSACTION');
CALL shedlock_run('refused', 'BEGIN; INSERT INTO run_refused VALUES (1); COMMIT');
CALL shedlock_run('refused', 'INSERT INTO run_refused VALUES (1); COMMIT; SELECT 1');
CALL shedlock_run('refused', 'END');
CALL shedlock_run('refused', 'COMMIT AND CHAIN');
CALL shedlock_run('refused', 'ROLLBACK');
CALL shedlock_run('refused', 'ABORT');
CALL shedlock_run('refused', 'SAVEPOINT s');
CALL shedlock_run('refused', 'RELEASE s');
CALL shedlock_run('refused', 'ROLLBACK TO s');
CALL shedlock_run('refused', 'PREPARE TRANSACTION ''refused''');
CALL shedlock_run('refused', 'COMMIT PREPARED ''refused''');
CALL shedlock_run('refused', 'ROLLBACK PREPARED ''refused''');
\set VERBOSITY default
CALL shedlock_run('refused', 'COMMIT');
\echo :LAST_ERROR_SQLSTATE

-- Refused: texts that are not a command.
CALL shedlock_run('refused', NULL);
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('refused', '');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
CALL shedlock_run('refused', ' ');
CALL shedlock_run('refused', ';');
CALL shedlock_run('refused', E'; ;\n;');
CALL shedlock_run('refused', '-- SELECT 1');
CALL shedlock_run('refused', '/* SELECT 1 */');
CALL shedlock_run('refused', 'SELCT 1');
CALL shedlock_run('refused', 'SELECT (1');
CALL shedlock_run('refused', 'SELECT ''1');
CALL shedlock_run('refused', 'INSERT INTO run_refused VALUES (1); SELECT (');
\set VERBOSITY default

-- Refused: other bad arguments.
CALL shedlock_run('refused', 'SELECT 1', on_busy => 'wait');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('refused', 'SELECT 1', on_busy => NULL);
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('refused', 'SELECT 1', on_busy => 'SKIP');
CALL shedlock_run('refused', 'SELECT 1', '0');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('refused', 'SELECT 1', '-1 s');
CALL shedlock_run('refused', 'SELECT 1', '1 h', '-1 s');
CALL shedlock_run('refused', 'SELECT 1', '1 h', '2 h');
CALL shedlock_run('refused', 'SELECT 1', '1000 years');

-- Refused calls did, acquired and recorded nothing.
SELECT count(*) FROM run_refused;
SELECT count(*) FROM shedlock WHERE name = 'refused';
SELECT count(*) FROM shedlock_history WHERE name = 'refused';
SELECT * FROM pg_temp.my_locks();

-- The check for pg_cron's jobs raises the same errors, and executes nothing.
SELECT pg_temp.error_of($$SELECT _shedlock_cron_call('refused', 'COMMIT')$$);
SELECT pg_temp.error_of($$SELECT _shedlock_cron_call('refused', '-- SELECT 1')$$);
SELECT pg_temp.error_of($$SELECT _shedlock_cron_call('refused', 'SELCT 1')$$);
SELECT pg_temp.error_of($$SELECT _shedlock_cron_call('refused', NULL)$$);
SELECT pg_temp.error_of($$SELECT _shedlock_cron_call('refused', 'INSERT INTO run_refused VALUES (1)')$$);
SELECT count(*) FROM run_refused;

DROP TABLE run_refused;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
