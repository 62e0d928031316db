-- A purge deletes unused rows, a bounded number of them a call.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
SET client_min_messages = warning;

-- Names and ticks that were last used a year ago.
INSERT INTO shedlock (name, lock_until, locked_at, locked_by, kind)
SELECT 'purge ' || n, now() - interval '1 year', now() - interval '1 year', 'somebody',
	   CASE WHEN n % 2 = 0 THEN 'lease' END
FROM generate_series(1, 1500) n;
INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by)
SELECT 'purge ' || n, now() - interval '1 year', now() - interval '1 year', 'somebody'
FROM generate_series(1, 700) n;
SELECT shedlock_purge('2 years', true);
SELECT shedlock_purge('1 day', ticks => true);
SELECT count(*) FROM shedlock WHERE name LIKE 'purge %';
SELECT shedlock_purge('1 day', ticks => true);
SELECT shedlock_purge('1 day', ticks => true);
SELECT shedlock_purge('1 day', ticks => true);
SELECT count(*) FROM shedlock WHERE name LIKE 'purge %';
SELECT count(*) FROM _shedlock_tick WHERE name LIKE 'purge %';
SELECT * FROM pg_temp.my_locks();

-- A purge spares locks that are held, paused or kept, and session locks.
SELECT shedlock_acquire('purge held'), shedlock_acquire_session('purge session'),
	   shedlock_acquire('purge kept', '1 h', '1 h'), shedlock_release('purge kept'),
	   shedlock_acquire('purge free'), shedlock_release('purge free'),
	   shedlock_acquire('purge paused', '1 ms');
SELECT shedlock_pause('purge paused');
SELECT shedlock_acquire('purge for ever'), shedlock_acquire('purge expired', '1 ms');
UPDATE shedlock SET lock_until = 'infinity' WHERE name = 'purge for ever';
SELECT shedlock_once('purge', '2026-01-01');
SELECT pg_sleep(0.01);
SELECT shedlock_purge('1 min');
SELECT shedlock_purge('0');
SELECT name, kind FROM shedlock WHERE name LIKE 'purge%' ORDER BY name;
SELECT count(*) FROM _shedlock_tick WHERE name = 'purge';
SELECT shedlock_release('purge held'), shedlock_assert('purge session') > 0 AS asserted, shedlock_release('purge session');

-- A transaction that purges a lock can acquire it; after a rollback the row is as
-- before.
SELECT shedlock_acquire('purge open'), shedlock_release('purge open');
BEGIN;
SELECT shedlock_purge('0') > 0 AS purged;
SELECT shedlock_acquire('purge open');
SELECT count(*) FROM shedlock WHERE name = 'purge open';
ROLLBACK;
SELECT kind, count(*) FROM shedlock WHERE name = 'purge open' GROUP BY kind;
SELECT * FROM pg_temp.my_locks();

-- A purge deletes ticks only if told to, and only if their period ended that long ago.
INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by, period)
SELECT 'purge tick ' || label, CASE label WHEN 'infinite' THEN 'infinity' ELSE tick - age END,
	   '2001-01-01', 'somebody', CASE label WHEN 'instant' THEN NULL ELSE period END
FROM (VALUES ('instant', interval '0'), ('old', '4000 days'), ('recent', '1000 days'), ('current', '0'), ('infinite', '0')) v(label, age),
	 (SELECT interval '1000 days') p(period),
	 date_bin(period, now(), '1970-01-01 00:00+00') tick;
-- Those of a job stay, whatever its schedule, as long as it is declared.
SELECT shedlock_job('purge tick ' || label, '* * * * *') FROM unnest('{job,forgotten,nonsense}'::text[]) label;
UPDATE _shedlock_job SET schedule = 'nonsense' WHERE name = 'purge tick nonsense';
INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by) SELECT name, '2001-01-01', '2001-01-01', 'somebody' FROM _shedlock_job;
SELECT shedlock_forget('purge tick forgotten');
SELECT shedlock_purge('0') < 0 AS purged, count(*) FROM _shedlock_tick WHERE name LIKE 'purge tick%';
SELECT shedlock_purge('1500 days', ticks => true) > 0 AS purged;
SELECT name FROM _shedlock_tick WHERE name LIKE 'purge tick%' ORDER BY name;
SELECT shedlock_purge('0', ticks => true) > 0 AS purged;
SELECT name FROM _shedlock_tick WHERE name LIKE 'purge tick%' ORDER BY name;

-- So a period is claimed once, whatever is purged meanwhile; an instant that the
-- caller names can be claimed again after the purge.
SELECT shedlock_once_every('purge period', '36500 days'), shedlock_once('purge instant', '2026-01-01');
SELECT shedlock_job('purge run', 'every 36500 days');
CALL shedlock_run('purge run', 'SELECT 1');
SELECT name, period FROM _shedlock_tick WHERE name IN ('purge period', 'purge instant', 'purge run') ORDER BY name;
SELECT shedlock_purge('0', ticks => true) > 0 AS purged;
SELECT shedlock_once_every('purge period', '36500 days'), shedlock_once('purge instant', '2026-01-01');
CALL shedlock_run('purge run', 'SELECT 1');
SELECT count(*) FROM shedlock_history WHERE name = 'purge run';
-- A claim of an instant does not end the period of the claim before it.
SELECT shedlock_once('purge period', clock_timestamp());
SELECT shedlock_purge('0', ticks => true), shedlock_once_every('purge period', '36500 days');

-- Those of a job that was forgotten stay until they are old, so that no run of it is repeated.
SELECT shedlock_forget('purge run'), shedlock_purge('1 day', ticks => true) > 0 AS purged;
SELECT shedlock_job('purge run', 'every 36500 days');
CALL shedlock_run('purge run', 'SELECT 1');
SELECT count(*) FROM shedlock_history WHERE name = 'purge run';

-- Those of a paused name stay: the last one is made up.
SELECT shedlock_once_every('purge paused', '1 hour'), shedlock_pause('purge paused');
UPDATE _shedlock_tick SET tick = '2001-01-01Z', claimed_at = '2001-01-01Z' WHERE name = 'purge paused';
SELECT shedlock_purge('0', ticks => true) > 0 AS purged, count(*) FROM _shedlock_tick WHERE name = 'purge paused';
SELECT shedlock_resume('purge paused'), shedlock_purge('0', ticks => true) > 0 AS purged;

-- The last attempt at a tick keeps its tick as long as it is at work.
SELECT shedlock_job('purge at work', 'every 1 hour');
SELECT count(*) FROM shedlock_run_begin('purge at work', '1 day');
SELECT shedlock_forget('purge at work');
UPDATE _shedlock_tick SET tick = '2001-01-01Z', claimed_at = '2001-01-01Z' WHERE name = 'purge at work';
UPDATE _shedlock_history SET tick = '2001-01-01Z' WHERE name = 'purge at work';
SELECT shedlock_purge('0', ticks => true) > 0 AS purged, count(*) FROM _shedlock_tick WHERE name = 'purge at work';
SELECT shedlock_run_end('purge at work', shedlock_token('purge at work'), 'failed');
SELECT outcome, gave_up FROM shedlock_history WHERE name = 'purge at work';
SELECT shedlock_purge('0', ticks => true) > 0 AS purged;
SELECT count(*) FROM _shedlock_tick WHERE name = 'purge at work';

-- A purged name starts again, but its tokens still grow.
SELECT shedlock_acquire_token('purge again') AS token \gset
SELECT shedlock_release('purge again');
SELECT shedlock_purge('0') > 0 AS purged;
SELECT count(*) FROM shedlock WHERE name = 'purge again';
SELECT shedlock_acquire_token('purge again') > :token AS grows;

SELECT pg_temp.error_of('SELECT shedlock_purge(NULL)');
SELECT pg_temp.error_of('SELECT shedlock_purge(''1 day'', NULL)');
SELECT pg_temp.error_of('SELECT shedlock_purge(''-1 day'')');
SELECT pg_temp.error_of('SELECT shedlock_purge(''1000 years'')');

-- A thousand session locks that are held past their lock_until do not keep a purge from
-- the rows after them.
TRUNCATE shedlock;
SET shedlock.default_lock_at_most_for = '1s';
SELECT count(*) FROM generate_series(1, 1000) i WHERE shedlock_acquire_session('purge outlived ' || i);
SELECT shedlock_acquire('purge after'), shedlock_release('purge after');
RESET shedlock.default_lock_at_most_for;
DO $$ BEGIN WHILE EXISTS (SELECT FROM shedlock WHERE lock_until >= timezone('UTC', clock_timestamp())) LOOP PERFORM pg_sleep(0.05); END LOOP; END $$;
SELECT shedlock_purge('0'), count(*) FROM shedlock WHERE name = 'purge after';
SELECT count(*) FROM shedlock WHERE name = 'purge after';
DISCARD ALL;
SELECT shedlock_purge('0');

TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history;
