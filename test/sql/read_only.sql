-- In a read-only transaction a function that writes raises the server's own error, at once.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SELECT shedlock_acquire_token('read_only') AS token \gset
CREATE TEMP TABLE calls (n int GENERATED ALWAYS AS IDENTITY, call text);
INSERT INTO calls (call) VALUES
	('shedlock_acquire(''read_only new'')'),
	('shedlock_acquire(''read_only'')'),
	('shedlock_acquire(''read_only'', wait => ''10 s'')'),
	('shedlock_acquire_token(''read_only new'')'),
	('shedlock_acquire_session(''read_only new'')'),
	('shedlock_acquire_any(''{read_only new}'')'),
	('shedlock_release(''read_only'')'),
	('shedlock_release(''read_only never'')'),
	('shedlock_extend(''read_only'')'),
	('shedlock_assert(''read_only'')'),
	('shedlock_token(''read_only'')'),
	('shedlock_once(''read_only'', ''2026-01-01'')'),
	('shedlock_once_every(''read_only'', ''1 day'')'),
	('shedlock_force_release(''read_only'')'),
	('shedlock_cancel(''read_only'')'),
	('shedlock_pause(''read_only'')'),
	('shedlock_resume(''read_only'')'),
	('shedlock_job(''read_only'', ''@daily'')'),
	('shedlock_run_begin(''read_only'')'),
	('shedlock_run_end(''read_only'', 1)'),
	('shedlock_again(''read_only'')'),
	('shedlock_skip(''read_only'')'),
	('shedlock_forget(''read_only'')'),
	('shedlock_purge(''1 day'')');
BEGIN READ ONLY;
SELECT call, pg_temp.error_of('SELECT ' || call) FROM calls ORDER BY n;
SELECT * FROM pg_temp.my_locks();
SELECT name, state FROM shedlock_locks WHERE name LIKE 'read_only%';
COMMIT;

-- A run works where transactions are read-only by default; only its command is read-only.
CREATE TABLE read_only_work (n int);
SET default_transaction_read_only = on;
SELECT pg_temp.error_of('SELECT shedlock_acquire(''read_only'')');
CALL shedlock_run('read_only run', 'SHOW transaction_read_only');
CALL shedlock_run('read_only run', 'INSERT INTO read_only_work VALUES (1)');
CALL shedlock_run('read_only run', 'SET transaction_read_only = off; INSERT INTO read_only_work VALUES (2)');
SHOW transaction_read_only;
RESET default_transaction_read_only;
SELECT * FROM read_only_work;
SELECT outcome, sqlstate, message FROM shedlock_history WHERE name = 'read_only run' ORDER BY token;
SELECT kind FROM shedlock WHERE name = 'read_only run';
SELECT * FROM pg_temp.my_locks();

-- The same holds for a role that may not write shedlock's tables.
CREATE ROLE regress_shedlock_reader;
GRANT INSERT ON read_only_work TO regress_shedlock_reader;
SET ROLE regress_shedlock_reader;
SET default_transaction_read_only = on;
CALL shedlock_run('read_only role', 'INSERT INTO read_only_work VALUES (3)');
CALL shedlock_run('read_only role', 'SELECT 1');
RESET default_transaction_read_only;
RESET ROLE;
SELECT outcome, sqlstate FROM shedlock_history WHERE name = 'read_only role' ORDER BY token;
REVOKE INSERT ON read_only_work FROM regress_shedlock_reader;
DROP ROLE regress_shedlock_reader;
DROP TABLE read_only_work;

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
