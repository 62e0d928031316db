-- A run that cannot start is skipped, or raises an error, and says why.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
CREATE TABLE run_skipped (what text);

-- Skipped: the lock is held, by a lease or a session lock, or kept for its at-least time.
SELECT shedlock_acquire('skipped'), shedlock_acquire_session('skipped session'),
	   shedlock_acquire('skipped kept', '1 h', '1 h'), shedlock_release('skipped kept');
UPDATE shedlock SET locked_by = 'somebody', locked_at = '2026-01-02 03:04:05',
	keep_until = '2100-01-02', lock_until = '2100-01-02' WHERE name LIKE 'skipped%';
CALL shedlock_run('skipped', 'INSERT INTO run_skipped VALUES (1)');
CALL shedlock_run('skipped session', 'INSERT INTO run_skipped VALUES (1)');
CALL shedlock_run('skipped kept', 'INSERT INTO run_skipped VALUES (1)');
CALL shedlock_run('skipped', 'INSERT INTO run_skipped VALUES (1)', on_busy => 'error');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('skipped session', 'INSERT INTO run_skipped VALUES (1)', on_busy => 'error');
CALL shedlock_run('skipped kept', 'INSERT INTO run_skipped VALUES (1)', on_busy => 'error');
SELECT shedlock_job('skipped', 'every 36500 days');
CALL shedlock_run('skipped', 'INSERT INTO run_skipped VALUES (1)', on_busy => 'skip');
SELECT shedlock_release('skipped session');

-- Skipped: the session of the last holder has ended, but the lock is kept.
SELECT shedlock_acquire_session('skipped dead', lock_at_least_for => '1 h');
SELECT pg_advisory_unlock_all();
UPDATE shedlock SET locked_by = 'somebody', keep_until = '2100-01-02' WHERE name = 'skipped dead';
CALL shedlock_run('skipped dead', 'INSERT INTO run_skipped VALUES (1)');

-- A skipped run executes, logs and claims nothing.
SELECT count(*) FROM run_skipped;
SELECT count(*) FROM shedlock_history WHERE name LIKE 'skipped%';
SELECT count(*) FROM _shedlock_tick WHERE name LIKE 'skipped%';

-- Not due: the tick is used up.  That is silent, but a debugging message says when its run
-- began, and how it ended.
SELECT shedlock_job(job, 'every 36500 days') FROM unnest('{once, once failed}'::text[]) job;
CALL shedlock_run('once', 'INSERT INTO run_skipped VALUES (''once'')');
UPDATE _shedlock_tick SET claimed_at = '2026-01-02 03:04:05', claimed_by = 'somebody' WHERE name LIKE 'once%';
SET client_min_messages = debug1;
CALL shedlock_run('once', 'INSERT INTO run_skipped VALUES (''twice'')');
CALL shedlock_run('once', 'INSERT INTO run_skipped VALUES (''twice'')', on_busy => 'error');
\echo :SQLSTATE
RESET client_min_messages;
CALL shedlock_run('once', 'INSERT INTO run_skipped VALUES (''twice'')', on_busy => 'error');
CALL shedlock_run('once failed', 'SELECT 1 / 0');
UPDATE _shedlock_tick SET claimed_at = '2026-01-02 03:04:05', claimed_by = 'somebody' WHERE name LIKE 'once%';
SET client_min_messages = debug1;
CALL shedlock_run('once failed', 'INSERT INTO run_skipped VALUES (''twice'')');
RESET client_min_messages;
SELECT * FROM run_skipped;
SELECT name, tick, token IS NOT NULL AS token FROM _shedlock_tick WHERE name LIKE 'once%' ORDER BY name;
SELECT name, outcome, tick FROM shedlock_history WHERE name LIKE 'once%' ORDER BY token;
SELECT count(*) FROM shedlock_locks WHERE name LIKE 'once%';

-- After shedlock_again the same command runs once more, and under another name as often
-- as it is called.
SELECT shedlock_again('once failed');
CALL shedlock_run('once failed', 'INSERT INTO run_skipped VALUES (''again'')');
CALL shedlock_run('once failed', 'INSERT INTO run_skipped VALUES (''again'')');
CALL shedlock_run('no job', 'INSERT INTO run_skipped VALUES (''by hand'')');
CALL shedlock_run('no job', 'INSERT INTO run_skipped VALUES (''by hand'')');
SELECT * FROM run_skipped;

-- A claim by shedlock_once counts for runs, too.
SELECT shedlock_once('once mixed', '1970-01-01 00:00+00');
SELECT shedlock_job('once mixed', 'every 36500 days');
UPDATE _shedlock_tick SET claimed_at = '2026-01-02 03:04:05', claimed_by = 'somebody' WHERE name = 'once mixed';
SET client_min_messages = debug1;
CALL shedlock_run('once mixed', 'INSERT INTO run_skipped VALUES (''twice'')');
RESET client_min_messages;

-- The next period has a run of its own.
SELECT shedlock_job('once short', 'every 1 s');
CALL shedlock_run('once short', 'INSERT INTO run_skipped VALUES (''short'')');
SELECT pg_sleep(1.1);
CALL shedlock_run('once short', 'INSERT INTO run_skipped VALUES (''short'')');
SELECT count(*) >= 2 AS several, count(*) = count(DISTINCT tick) AS of_their_own, count(*) - (SELECT count(*) FROM run_skipped WHERE what = 'short') AS without
FROM shedlock_history WHERE name = 'once short';

-- A late run that goes on into the next period leaves that period to the next run, which the
-- same CALL makes.
SELECT shedlock_job('once late', 'every 8 s');
SELECT pg_sleep(8 - mod(extract(epoch FROM clock_timestamp()) + 4, 8)::float8);
CALL shedlock_run('once late', $$
	INSERT INTO run_skipped VALUES ('late');
	SELECT pg_sleep(8.2 - mod(extract(epoch FROM clock_timestamp()), 8)::float8) WHERE (SELECT count(*) FROM run_skipped WHERE what = 'late') = 1$$);
SELECT count(*), max(tick) - min(tick) AS apart FROM shedlock_history WHERE name = 'once late' AND outcome = 'succeeded';

-- A tick is claimed with the lock or not at all: after a pause the job can still claim it.
SELECT shedlock_pause('once paused', '2100-01-01', 'not tonight');
UPDATE shedlock SET paused_by = 'somebody' WHERE name = 'once paused';
SELECT shedlock_job('once paused', 'every 36500 days');
CALL shedlock_run('once paused', 'INSERT INTO run_skipped VALUES (''paused'')');
SELECT count(*) FROM _shedlock_tick WHERE name = 'once paused';
SELECT shedlock_resume('once paused');
CALL shedlock_run('once paused', 'INSERT INTO run_skipped VALUES (''resumed'')');
SELECT * FROM run_skipped;

SELECT * FROM pg_temp.my_locks();

DROP TABLE run_skipped;
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history;
