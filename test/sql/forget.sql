-- shedlock_forget forgets the ticks and the schedule of a job that is no more.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SELECT shedlock_forget('forget');
CALL shedlock_run('forget', 'SELECT 1', once_every => '36500 days');
SELECT name FROM shedlock_schedules;
SELECT shedlock_forget('forget');
SELECT shedlock_forget('forget');
SELECT count(*) FROM _shedlock_tick;
SELECT name FROM shedlock_schedules;
-- The history and the lock stay; the name can be used anew.
SELECT outcome FROM shedlock_history WHERE name = 'forget';
SELECT count(*) FROM shedlock WHERE name = 'forget';
CALL shedlock_run('forget', 'SELECT 2', once_every => '36500 days');
SELECT count(*) FROM shedlock_history WHERE name = 'forget';

-- A rollback undoes it.
BEGIN;
SELECT shedlock_forget('forget');
ROLLBACK;
SELECT count(*) FROM _shedlock_tick;
BEGIN;
SELECT shedlock_once('forget new', '2026-01-01');
SELECT shedlock_forget('forget new');
SELECT shedlock_once('forget new', '2026-01-01');
COMMIT;
SELECT shedlock_once('forget new', '2026-01-01');

-- During a run, the run ends as ever and leaves no tick.
SELECT token FROM shedlock_run_begin('forget run', once_every => '36500 days') \gset
SELECT shedlock_forget('forget run');
SELECT shedlock_run_end('forget run', :token);
SELECT count(*) FROM _shedlock_tick WHERE name = 'forget run';
SELECT outcome FROM shedlock_history WHERE name = 'forget run';

SELECT pg_temp.error_of('SELECT shedlock_forget(NULL)');
SELECT pg_temp.error_of('SELECT shedlock_forget('''')');
SET default_transaction_read_only = on;
SELECT pg_temp.error_of('SELECT shedlock_forget(''forget'')');
RESET default_transaction_read_only;
SELECT * FROM pg_temp.my_locks();

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
