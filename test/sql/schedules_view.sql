-- shedlock_schedules has each name with a schedule or period.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
SET intervalstyle = 'postgres';
SET client_min_messages = warning;
CREATE ROLE regress_shedlock_view;
CREATE FUNCTION pg_temp.show(job text) RETURNS TABLE (schedule text, time_zone text, last_tick numeric, outcome text, attempt text, next_attempt text, next_due numeric, overdue boolean, paused boolean)
LANGUAGE sql AS $$
	SELECT schedule, time_zone, extract(year FROM shedlock_tick('@yearly')) - extract(year FROM last_tick), last_outcome, concat_ws(' of ', attempt, attempts),
		   CASE WHEN next_attempt_at <= clock_timestamp() THEN 'now' WHEN next_attempt_at < clock_timestamp() + '1 day' THEN 'soon' WHEN next_attempt_at IS NOT NULL THEN 'far' END,
		   extract(year FROM next_due) - extract(year FROM shedlock_tick('@yearly')), overdue > '0', paused
	FROM shedlock_schedules WHERE name = job
$$;

-- A schedule and a period, of a run and of a claim; a tick that was named has none.
CALL shedlock_run('view', 'SELECT 1', schedule => '@yearly', attempts => 2);
CALL shedlock_run('view period', 'SELECT 1', once_every => '36500 days');
SELECT shedlock_once_every('view claim', '36500 days'), shedlock_once('view once', '2026-01-01') \gset
SELECT name, schedule, time_zone, last_outcome, attempt, attempts, next_attempt_at, overdue, paused FROM shedlock_schedules ORDER BY name;
SELECT last_tick, next_due FROM shedlock_schedules WHERE name LIKE 'view _%' ORDER BY name;

-- due since long ago, however many ticks were missed; not while paused
UPDATE _shedlock_tick SET tick = tick - interval '3 years' WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
SELECT overdue - (clock_timestamp() - (shedlock_tick('@yearly') - interval '2 years')) BETWEEN '-2 min' AND '0' AS overdue FROM shedlock_schedules WHERE name = 'view';
SELECT shedlock_pause('view', '2100-01-01') \gset
SELECT * FROM pg_temp.show('view');
SELECT shedlock_resume('view') \gset
-- at work, failed, due again, given up, succeeded
SELECT token FROM shedlock_run_begin('view', schedule => '@yearly', attempts => 2, backoff => '1 h') \gset
SELECT * FROM pg_temp.show('view');
SELECT shedlock_run_end('view', :token, 'failed') \gset
SELECT * FROM pg_temp.show('view');
UPDATE _shedlock_tick SET retry_at = clock_timestamp() - interval '2 min' WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
SELECT overdue < '1 h' AS since_retry FROM shedlock_schedules WHERE name = 'view';
SELECT token FROM shedlock_run_begin('view', schedule => '@yearly', attempts => 2, backoff => '1 h') \gset
UPDATE shedlock SET lock_until = locked_at WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
SELECT shedlock_again('view') \gset
SELECT * FROM pg_temp.show('view');
CALL shedlock_run('view', 'SELECT 1', schedule => '@yearly', catch_up => 'all');
SELECT * FROM pg_temp.show('view');
UPDATE _shedlock_tick SET tick = tick - interval '3 years' WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
-- What is given up is not overdue.
UPDATE _shedlock_tick SET catch_up = 'latest', max_late = '1 s' WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
-- A claim that is missed is not overdue.
UPDATE _shedlock_tick SET tick = '1800-01-01' WHERE name = 'view claim';
SELECT name, next_due, overdue FROM shedlock_schedules WHERE name = 'view claim';

-- The outcome is shown to those who see it in the history.
SET ROLE regress_shedlock_view;
SELECT name, schedule, last_outcome FROM shedlock_schedules WHERE name = 'view period';
RESET ROLE;
GRANT pg_read_all_stats TO regress_shedlock_view;
SET ROLE regress_shedlock_view;
SELECT name, schedule, last_outcome FROM shedlock_schedules WHERE name = 'view period';
RESET ROLE;

-- With shedlock.role_prefix the names of others are hidden.
INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by, period) VALUES ('regress_shedlock_view:job', '2026-01-01', '2026-01-01', '', '1 h');
SET shedlock.role_prefix = on;
SET ROLE regress_shedlock_view;
SELECT count(*) > 1 AS all FROM shedlock_schedules;
RESET ROLE;
REVOKE pg_read_all_stats FROM regress_shedlock_view;
SET ROLE regress_shedlock_view;
SELECT name FROM shedlock_schedules;
RESET ROLE;
RESET shedlock.role_prefix;

-- Rows that were written by hand raise no error.
INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by, schedule, time_zone, catch_up, attempts, backoff, done, attempt, token)
SELECT concat_ws(' ', 'hand', schedule, time_zone, tick, catch_up), tick, '2026-01-01', '', schedule, time_zone, catch_up, 3, '1 min', false, 1, -1
FROM unnest('{@yearly, nonsense, NULL}'::text[]) schedule, unnest('{UTC, Nowhere, NULL}'::text[]) time_zone,
	 unnest('{infinity, -infinity, 4714-11-24 BC, 294276-12-31}'::timestamptz[]) tick, unnest('{all, latest, some}'::text[]) catch_up
WHERE schedule IS NOT NULL OR time_zone IS NOT NULL;
INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by, period, catch_up, attempts, backoff, done, attempt)
SELECT concat_ws(' ', 'hand', period, tick), tick, '2026-01-01', '', period, 'latest', 3, '1 min', false, 1
FROM unnest('{0, -1 h, 1 month, 1 h, 178000000 years}'::interval[]) period, unnest('{infinity, -infinity, 4714-11-24 BC, 294276-12-31}'::timestamptz[]) tick;
SELECT count(*), count(DISTINCT name) FROM shedlock_schedules WHERE name LIKE 'hand%';
SELECT count(*) FROM _shedlock_tick, LATERAL shedlock_why(name) WHERE name LIKE 'hand%';

-- A transaction that reads the tables by an older snapshot sees each name once, as it is now.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT shedlock_once_every('view claim', '36500 days');
SELECT name, last_tick FROM shedlock_schedules WHERE name = 'view claim';
ROLLBACK;

SELECT * FROM pg_temp.my_locks();
DROP ROLE regress_shedlock_view;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
