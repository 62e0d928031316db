-- An administrator can end the lock of any holder, and is told what that means.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

-- A lease ends, but the work of its holder goes on.
SELECT shedlock_acquire_token('admin', '1 h', '30 min') AS token \gset
UPDATE shedlock SET locked_by = 'somebody' WHERE name = 'admin';
SELECT shedlock_force_release('admin');
SELECT shedlock_force_release('admin');
SELECT kind, keep_until FROM shedlock WHERE name = 'admin';
\set VERBOSITY sqlstate
SELECT shedlock_release('admin', :token);
\set VERBOSITY default
SELECT shedlock_acquire('admin');
SELECT shedlock_release('admin');

-- The at-least time of a released lock ends, too.
SELECT shedlock_acquire('admin', '1 h', '30 min');
SELECT shedlock_release('admin');
SELECT shedlock_acquire('admin');
SELECT shedlock_force_release('admin');
SELECT shedlock_acquire('admin');
SELECT shedlock_release('admin');

-- A free lock, or one that was never acquired, is not released.
SELECT shedlock_force_release('admin');
SELECT shedlock_force_release('admin never');
SELECT count(*) FROM shedlock WHERE name = 'admin never';
SELECT shedlock_once('admin tick', '2026-01-01');
SELECT shedlock_force_release('admin tick');

-- A force-release that is rolled back changes nothing.
SELECT shedlock_acquire('admin');
UPDATE shedlock SET locked_by = 'somebody' WHERE name = 'admin';
BEGIN;
SELECT shedlock_force_release('admin');
SELECT shedlock_acquire('admin');
ROLLBACK;
SELECT shedlock_acquire('admin');
SELECT shedlock_assert('admin') > 0 AS asserted;

-- A lock can be force-released and acquired in one transaction.
BEGIN;
SELECT shedlock_force_release('admin');
SELECT shedlock_acquire('admin');
COMMIT;
SELECT shedlock_assert('admin') > 0 AS asserted;
SELECT shedlock_release('admin');

-- An administrator cannot force-release a session lock or run of its own session; the
-- hint names the simpler way.
SELECT shedlock_acquire_session('admin session');
SELECT pg_temp.error_of('SELECT shedlock_force_release(''admin session'')');
SELECT shedlock_assert('admin session') > 0 AS asserted;
SELECT shedlock_release('admin session');
CALL shedlock_run('admin run', 'SELECT shedlock_force_release(''admin run'')');
SELECT pg_temp.mask(message) AS message FROM shedlock_history WHERE name = 'admin run';
SELECT pg_temp.error_of('SELECT shedlock_force_release(''admin run'')');

-- A session lock is free once its session has ended, or kept for its at-least time,
-- which a force-release ends.
SELECT shedlock_acquire_session('admin dead');
SELECT pg_advisory_unlock_all();
SELECT shedlock_acquire_session('admin kept', lock_at_least_for => '1 h');
SELECT pg_advisory_unlock_all();
SELECT name, state FROM shedlock_locks WHERE name IN ('admin dead', 'admin kept');
SELECT shedlock_force_release('admin kept');
SELECT name, state FROM shedlock_locks WHERE name IN ('admin dead', 'admin kept');
SELECT shedlock_acquire('admin kept');

-- A cancel ends the command of a run, and nothing else.
SELECT shedlock_cancel('admin never'), shedlock_resume('admin never');
\set VERBOSITY sqlstate
SELECT shedlock_cancel('admin never');
\set VERBOSITY default
SELECT shedlock_cancel('admin tick');
SELECT shedlock_cancel('admin');
SELECT shedlock_cancel('admin run');
SELECT shedlock_acquire('admin lease');
SELECT shedlock_cancel('admin lease');
SELECT shedlock_acquire_session('admin session');
SELECT shedlock_cancel('admin session');
\set VERBOSITY sqlstate
SELECT shedlock_cancel('admin session');
\set VERBOSITY default

-- A run does not cancel itself: what has used up its tick would be rolled back.
SELECT shedlock_job('admin cancel', 'every 36500 days', attempts => 2);
CALL shedlock_run('admin cancel', 'SELECT shedlock_cancel(''admin cancel'')');
\echo :LAST_ERROR_SQLSTATE
SELECT outcome, sqlstate, message FROM shedlock_history WHERE name = 'admin cancel';
SELECT shedlock_acquire('admin cancel');
SELECT shedlock_release('admin session');
SELECT * FROM pg_temp.my_locks();

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
