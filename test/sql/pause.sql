-- A paused lock is refused to every caller, and its holder finishes its work.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SELECT shedlock_pause('pause');
SELECT shedlock_acquire('pause'), shedlock_acquire_token('pause'), shedlock_acquire_session('pause');
SELECT name, state, kind, paused, paused_until, paused_by = current_user AS paused_by, pause_reason, pid
FROM shedlock_locks WHERE name = 'pause';
SELECT shedlock_resume('pause');
SELECT shedlock_resume('pause');
SELECT shedlock_acquire('pause');

-- The holder can extend, assert and release the lock; the next acquirer is refused.
SELECT shedlock_pause('pause', '2100-01-01 00:00+00', 'not tonight');
SELECT shedlock_extend('pause', lock_at_most_for => '2 h'), shedlock_token('pause') > 0 AS token;
SELECT shedlock_assert('pause') > 0 AS asserted;
SELECT name, state, paused_until AT TIME ZONE 'UTC' AS paused_until, pause_reason
FROM shedlock_locks WHERE name = 'pause';
SELECT held_for > '0' AS held FROM shedlock_locks WHERE name = 'pause';
SELECT shedlock_release('pause');
SELECT shedlock_acquire('pause');
SELECT name, state, kind, held_for FROM shedlock_locks WHERE name = 'pause';

-- A skipped run says who paused the lock, until when, and why.
UPDATE shedlock SET paused_by = 'somebody' WHERE name = 'pause';
SET timezone = 'UTC';
CALL shedlock_run('pause', 'SELECT 1');
CALL shedlock_run('pause', 'SELECT 1', on_busy => 'error');
\echo :LAST_ERROR_SQLSTATE
UPDATE shedlock SET pause_reason = NULL WHERE name = 'pause';
CALL shedlock_run('pause', 'SELECT 1');
RESET timezone;
SELECT count(*) FROM shedlock_history WHERE name = 'pause';

-- The last pause counts, from now on.
SELECT shedlock_pause('pause', clock_timestamp() + '3 s', 'a little');
SELECT shedlock_acquire('pause');
SELECT pg_sleep(3);
SELECT count(*) FROM shedlock_locks WHERE name = 'pause';
SELECT shedlock_resume('pause');
SELECT shedlock_acquire('pause');
SELECT paused_until, paused_by, pause_reason FROM shedlock WHERE name = 'pause';
SELECT shedlock_release('pause');

-- A session can pause its own session lock and its own run.
SELECT shedlock_acquire_session('pause session');
SELECT shedlock_pause('pause session');
SELECT shedlock_assert('pause session') > 0 AS asserted;
SELECT shedlock_release('pause session');
SELECT shedlock_acquire_session('pause session');
CALL shedlock_run('pause run', 'SELECT shedlock_pause(''pause run'')');
SELECT outcome FROM shedlock_history WHERE name = 'pause run';
SELECT name, state FROM shedlock_locks WHERE name IN ('pause run', 'pause session') ORDER BY name;

-- A pause does not refuse the claim of a tick.
SELECT shedlock_once('pause run', '2026-01-01');

-- A pause that is rolled back has no effect, nor has one that its transaction resumes.
BEGIN;
SELECT shedlock_pause('pause undone');
SELECT shedlock_acquire('pause undone');
ROLLBACK;
SELECT shedlock_acquire('pause undone');
BEGIN;
SELECT shedlock_pause('pause undone');
SELECT shedlock_resume('pause undone');
COMMIT;
SELECT shedlock_release('pause undone'), shedlock_acquire('pause undone');
SELECT * FROM pg_temp.my_locks();

SELECT pg_temp.error_of('SELECT shedlock_pause(''pause'', NULL)');
SELECT pg_temp.error_of('SELECT shedlock_pause(''pause'', clock_timestamp())');
SELECT pg_temp.error_of('SELECT shedlock_pause(''pause'', ''-infinity'')');
SELECT pg_temp.error_of('SELECT shedlock_pause(''pause'', reason => repeat(''n'', 256))');
SELECT shedlock_acquire('pause');

-- A row that another unique index refuses
CREATE UNIQUE INDEX pause_holder ON shedlock (locked_by);
SELECT shedlock_pause('pause one');
SELECT shedlock_pause('pause two');
DROP INDEX pause_holder;

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
