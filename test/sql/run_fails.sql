-- A command that fails gives the client its own error, and the lock is released.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE TABLE run_parent (n int PRIMARY KEY);
CREATE TABLE run_child (n int CONSTRAINT run_child_fk REFERENCES run_parent DEFERRABLE INITIALLY DEFERRED,
	CONSTRAINT run_child_check CHECK (n > 0));
INSERT INTO run_parent VALUES (1);
CREATE FUNCTION run_raise() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'it broke' USING ERRCODE = 'ZZ001', DETAIL = 'In two.', HINT = 'Glue it.',
		SCHEMA = 's', TABLE = 't', COLUMN = 'c', CONSTRAINT = 'k', DATATYPE = 'd';
END
$$;

-- Most commands run twice: without shedlock_run, and with it.
INSERT INTO run_parent VALUES (1);
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run fails', 'INSERT INTO run_parent VALUES (1)');
\echo :LAST_ERROR_SQLSTATE
SELECT run_raise();
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run fails', 'SELECT run_raise()');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO run_child VALUES (2);
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run fails', 'INSERT INTO run_child VALUES (2)');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM run_nowhere;
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run fails', 'SELECT * FROM run_nowhere');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run fails', 'SELECT 1; SELECT nothing FROM run_parent');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run fails', 'DO $$BEGIN PERFORM nothing; END$$');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run fails', 'VACUUM run_nowhere');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run fails', 'SELCT 1');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run fails', 'CALL shedlock_run(''run fails'', ''SELECT 1; SELECT * FROM run_nowhere'')');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run fails', 'CALL shedlock_run(''run fails inner'', ''SELECT * FROM run_nowhere'')');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('run fails', 'SET work_mem = ''nothing''');
\echo :LAST_ERROR_SQLSTATE

-- The error has the fields that programs read.
\set VERBOSITY sqlstate
CALL shedlock_run('run fields', 'INSERT INTO run_child VALUES (0)');
CALL shedlock_run('run fields', 'SELECT run_raise()');
\set VERBOSITY default

-- Nothing of their work stays, and the lock is free after each of them.
SELECT (SELECT count(*) FROM run_parent) AS parents, (SELECT count(*) FROM run_child) AS children;
SELECT * FROM pg_temp.runs('run fails');
SELECT * FROM pg_temp.runs('run fields');
SELECT * FROM pg_temp.my_locks();
SELECT count(*) FROM shedlock_locks WHERE name LIKE 'run f%';
SELECT shedlock_acquire('run fails');

-- The lock of a failed run is kept for its at-least time, too.
CALL shedlock_run('run fails kept', 'SELECT 1 / 0', lock_at_least_for => '1 h');
SELECT state FROM shedlock_locks WHERE name = 'run fails kept';

-- The session goes on as if the command had failed without shedlock_run.
SELECT count(*) FROM pg_cursors;
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype NOT IN ('virtualxid', 'relation', 'advisory');
BEGIN;
SELECT shedlock_acquire('run fails next');
ROLLBACK;
DROP TABLE run_child, run_parent;
DROP FUNCTION run_raise();
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
