-- shedlock_jobs has each job that was declared, and how it is doing.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
SET client_min_messages = warning;
CREATE ROLE regress_shedlock_view;
-- A schedule whose tick is months away
SELECT CASE WHEN extract(month FROM now()) BETWEEN 4 AND 9 THEN '@yearly' ELSE '0 0 1 7 *' END AS yearly \gset
-- Ticks are shown as a number of years, attempts as soon if they come within a day.
CREATE FUNCTION pg_temp.years(tick timestamptz) RETURNS numeric
LANGUAGE sql RETURN extract(year FROM tick) - extract(year FROM shedlock_tick(:'yearly'));
CREATE FUNCTION pg_temp.show(job text) RETURNS TABLE (state text, last_tick numeric, last_outcome text, attempt text, next_attempt text, next_due numeric, overdue text, paused boolean)
LANGUAGE sql AS $$
	SELECT state, pg_temp.years(last_tick), last_outcome, concat_ws(' of ', attempt, attempts),
		   CASE WHEN next_attempt_at <= clock_timestamp() THEN 'now' WHEN next_attempt_at < clock_timestamp() + interval '1 day' THEN 'soon' ELSE 'far' || next_attempt_at END,
		   pg_temp.years(next_due),
		   CASE WHEN overdue > '364 days' THEN 'a year or more' ELSE date_trunc('minute', overdue)::text END, paused
	FROM shedlock_jobs WHERE name = job
$$;
-- A job that was declared, and was last run, so many years ago.
CREATE FUNCTION pg_temp.age(job text, years int) RETURNS void
LANGUAGE sql AS $$
	UPDATE _shedlock_job SET created_at = created_at - make_interval(years), declared_at = declared_at - make_interval(years), since = since - make_interval(years) WHERE name = job;
	UPDATE _shedlock_tick SET tick = tick - make_interval(years), claimed_at = claimed_at - make_interval(years) WHERE name = job;
	UPDATE shedlock SET lock_until = lock_until - make_interval(years), locked_at = locked_at - make_interval(years) WHERE name = job;
$$;

-- Only declared names are jobs.
CALL shedlock_run('view none', 'SELECT 1');
SELECT shedlock_once_every('view claim', '36500 days'), shedlock_once('view once', '2026-01-01');
SELECT count(*) FROM shedlock_jobs;
SELECT shedlock_job('view', :'yearly', attempts => 2, backoff => '1 h', overdue_after => '10 min', slow_after => '2 h', lock_at_most_for => '3 h', lock_at_least_for => '1 s', description => 'stocktaking');
SELECT name, schedule = :'yearly' AS schedule, time_zone, state, last_tick, last_outcome, last_started_at, last_duration, attempt, attempts, next_attempt_at, next_due = shedlock_next_tick(:'yearly') AS next_due,
	   overdue, paused, problem, clock_timestamp() - declared_at BETWEEN '0' AND '1 min' AS declared_at, declared_by = current_role AS declared_by, description, backoff, catch_up, max_late, overdue_after,
	   slow_after, lock_at_most_for, lock_at_least_for, created_at = declared_at AS created_at, created_by = current_role AS created_by
FROM shedlock_jobs \gx

-- new; due, and overdue since the oldest tick that was missed, or the declaration, or the end of a pause; paused
SELECT shedlock_job('view', :'yearly', attempts => 2, backoff => '1 h', lock_at_most_for => '1 h');
SELECT * FROM pg_temp.show('view');
UPDATE _shedlock_job SET since = since - interval '3 years' WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
SELECT pg_temp.age('view', 1);
SELECT * FROM pg_temp.show('view');
SELECT pg_temp.age('view', 2);
SELECT * FROM pg_temp.show('view');
SELECT shedlock_pause('view', '2100-01-01') \gset
SELECT * FROM pg_temp.show('view');
UPDATE shedlock SET paused_until = clock_timestamp() - interval '20 min' WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
UPDATE _shedlock_job SET overdue_after = '30 min' WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
UPDATE _shedlock_job SET overdue_after = '5 min' WHERE name = 'view';
-- running; retrying, soon and now; overdue since then
SELECT token FROM shedlock_run_begin('view') \gset
SELECT * FROM pg_temp.show('view');
SELECT last_started_at BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() AS started, last_duration FROM shedlock_jobs WHERE name = 'view';
SELECT shedlock_run_end('view', :token, 'failed') \gset
SELECT * FROM pg_temp.show('view');
SELECT last_duration BETWEEN '0' AND '1 min' AS took FROM shedlock_jobs WHERE name = 'view';
UPDATE _shedlock_tick SET retry_at = clock_timestamp() - interval '20 min' WHERE name = 'view';
UPDATE shedlock SET lock_until = lock_until - interval '30 min', locked_at = locked_at - interval '30 min' WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
-- paused comes before retrying, running before both; overdue counts from the end of the pause
SELECT shedlock_pause('view', '2100-01-01') \gset
SELECT state, paused FROM pg_temp.show('view');
SELECT shedlock_resume('view') \gset
SELECT state, overdue, paused FROM pg_temp.show('view');
SELECT token FROM shedlock_run_begin('view') \gset
SELECT shedlock_pause('view', '2100-01-01') \gset
SELECT state, paused FROM pg_temp.show('view');
SELECT shedlock_resume('view') \gset
-- gave up, whether it failed or is lost
UPDATE shedlock SET lock_until = locked_at WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
SELECT shedlock_job('view failed', 'every 36500 days');
SELECT token FROM shedlock_run_begin('view failed') \gset
SELECT shedlock_run_end('view failed', :token, 'timed out') \gset
SELECT state, last_outcome, attempt, next_attempt, overdue FROM pg_temp.show('view failed');
-- what shedlock_again allows
SELECT shedlock_again('view') \gset
SELECT * FROM pg_temp.show('view');
UPDATE _shedlock_tick SET again_at = again_at - interval '20 min' WHERE name = 'view';
UPDATE shedlock SET lock_until = lock_until - interval '1 h', locked_at = locked_at - interval '1 h', paused_until = paused_until - interval '1 h' WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
CALL shedlock_run('view', 'SELECT 1 / 0');
SELECT * FROM pg_temp.show('view');
-- waiting
SELECT shedlock_again('view') \gset
CALL shedlock_run('view', 'SELECT 1');
SELECT * FROM pg_temp.show('view');
-- The next ticks, and all of them
SELECT pg_temp.age('view', 3);
SELECT * FROM pg_temp.show('view');
UPDATE _shedlock_job SET catch_up = 'all' WHERE name = 'view';
SELECT * FROM pg_temp.show('view');
UPDATE _shedlock_job SET catch_up = 'latest' WHERE name = 'view';
-- A claim of a tick is no run of it.
SELECT shedlock_once('view', now()) \gset
SELECT state, last_outcome, attempt, next_attempt, overdue FROM pg_temp.show('view');

-- A job that nobody calls is overdue also if its ticks are too late by now, but for those before its declaration.
SELECT shedlock_job('view late', '*/5 * * * *', max_late => '1 s', overdue_after => '20 min');
SELECT overdue FROM pg_temp.show('view late');
UPDATE _shedlock_job SET declared_at = declared_at - interval '26 min', since = since - interval '1 year' WHERE name = 'view late';
SELECT overdue BETWEEN '20 min 50 s' AND '26 min 10 s' AS overdue FROM shedlock_jobs WHERE name = 'view late';
SELECT shedlock_pause('view late', '2100-01-01'), shedlock_resume('view late');
UPDATE shedlock SET paused_until = clock_timestamp() - interval '10 min' WHERE name = 'view late';
SELECT overdue FROM shedlock_jobs WHERE name = 'view late';

-- A session lock, a lease or a claim that is in the way: nothing is overdue before it ends.
SELECT shedlock_job('view held', 'every 36500 days');
UPDATE _shedlock_job SET declared_at = declared_at - interval '1 year', created_at = created_at - interval '1 year' WHERE name = 'view held';
SELECT state, overdue FROM pg_temp.show('view held');
SELECT shedlock_acquire_session('view held');
SELECT state, overdue FROM pg_temp.show('view held');
SELECT shedlock_release('view held'), shedlock_acquire('view held', '1 h');
SELECT state, overdue FROM pg_temp.show('view held');
UPDATE shedlock SET lock_until = lock_until - interval '70 min', locked_at = locked_at - interval '70 min' WHERE name = 'view held';
SELECT state, overdue FROM pg_temp.show('view held');
UPDATE _shedlock_job SET declared_at = '2100-01-01' WHERE name = 'view held';
SELECT state, overdue FROM pg_temp.show('view held');

-- problem: declared in turns; the clock was set back; the schedule cannot be read any more
SELECT shedlock_job('view turns', '@daily'), shedlock_job('view turns', '@hourly'), shedlock_job('view turns', '@daily');
SELECT problem FROM shedlock_jobs WHERE name = 'view turns';
SELECT shedlock_job('view turns', '@hourly'), shedlock_job('view turns', '@hourly');
SELECT replace(problem, current_role, 'somebody') AS problem FROM shedlock_jobs WHERE name = 'view turns';
UPDATE _shedlock_job SET declared_at = declared_at - interval '61 min' WHERE name = 'view turns';
SELECT problem FROM shedlock_jobs WHERE name = 'view turns';
SELECT shedlock_job('view turns', '@weekly');
SELECT problem FROM shedlock_jobs WHERE name = 'view turns';
SELECT shedlock_job('view ahead', '@yearly');
CALL shedlock_run('view ahead', 'SELECT 1');
SELECT shedlock_once('view ahead', clock_timestamp() + '50 s');
SELECT problem FROM shedlock_jobs WHERE name = 'view ahead';
UPDATE _shedlock_tick SET tick = '2100-01-01' WHERE name = 'view ahead';
SELECT problem FROM shedlock_jobs WHERE name = 'view ahead';
SELECT shedlock_again('view ahead');
SELECT problem, state FROM shedlock_jobs WHERE name = 'view ahead';
UPDATE _shedlock_job SET since = '2100-01-01' WHERE name = 'view ahead';
SELECT problem FROM shedlock_jobs WHERE name = 'view ahead';
SELECT shedlock_job('view ahead', '@yearly'), shedlock_job('view ahead', '@yearly');
SELECT problem FROM shedlock_jobs WHERE name = 'view ahead';
UPDATE _shedlock_job SET schedule = 'nonsense' WHERE name = 'view ahead';
SELECT problem, state, next_due, overdue FROM shedlock_jobs WHERE name = 'view ahead';
SELECT shedlock_job('view ahead', '@yearly');
SELECT count(*) FROM shedlock_jobs WHERE problem IS NOT NULL;
-- A tick that was carried over then does not stop the job.
SELECT shedlock_job('view carried', '@yearly');
UPDATE _shedlock_job SET since = '2100-01-01', carried = '2099-01-01' WHERE name = 'view carried';
SELECT shedlock_job('view carried', '@yearly');
SELECT problem, next_due = shedlock_next_tick('@yearly') AS next_due FROM shedlock_jobs WHERE name = 'view carried';
SELECT shedlock_forget('view carried');

-- The outcome is shown to those who see it in the history.
SELECT last_outcome, last_started_at IS NOT NULL AS started, last_duration IS NOT NULL AS took FROM shedlock_jobs WHERE name = 'view failed';
SET ROLE regress_shedlock_view;
SELECT state, schedule, attempt, last_outcome, last_started_at, last_duration FROM shedlock_jobs WHERE name = 'view failed';
RESET ROLE;
GRANT pg_read_all_stats TO regress_shedlock_view;
SET ROLE regress_shedlock_view;
SELECT state, last_outcome FROM shedlock_jobs WHERE name = 'view failed';
RESET ROLE;

-- With shedlock.role_prefix the names of others are hidden.
SELECT shedlock_job('regress_shedlock_view:job', '@daily');
SET shedlock.role_prefix = on;
SET ROLE regress_shedlock_view;
SELECT count(*) > 1 AS all FROM shedlock_jobs;
RESET ROLE;
REVOKE pg_read_all_stats FROM regress_shedlock_view;
SET ROLE regress_shedlock_view;
SELECT name FROM shedlock_jobs;
RESET ROLE;
RESET shedlock.role_prefix;

-- Rows that were written by hand raise no error.
INSERT INTO _shedlock_job (name, schedule, time_zone, attempts, backoff, catch_up, overdue_after, max_late, since, carried, created_at, created_by, declared_at, declared_by, turns)
SELECT concat_ws(' ', 'hand', schedule, time_zone, t, catch_up, span), schedule, time_zone, CASE WHEN span < '0' THEN -1 ELSE 3 END, '1 min', catch_up, span, span, t, t, t, '', t, '', 9
FROM unnest('{@yearly,every 1 s,nonsense}'::text[]) schedule, unnest('{UTC,Nowhere}'::text[]) time_zone, unnest('{all,latest,some}'::text[]) catch_up,
	 unnest('{infinity,-infinity,4714-11-24 BC,294276-12-31}'::timestamptz[]) t, unnest('{0,-1 h,178000000 years}'::interval[]) span;
INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by, token, attempt, done, again_at, retry_at, skipped)
SELECT name, CASE WHEN n % 2 = 0 THEN since ELSE '2001-01-01' END, since, '', CASE WHEN n % 3 = 0 THEN -1 END, 1, false, CASE WHEN n % 5 = 0 THEN since END, since, CASE WHEN n % 7 = 0 THEN since END
FROM (SELECT *, row_number() OVER (ORDER BY name) AS n FROM _shedlock_job WHERE name LIKE 'hand%') j WHERE n % 11 <> 0;
SELECT count(*), count(DISTINCT name) FROM shedlock_jobs WHERE name LIKE 'hand%';
SELECT count(*) FROM _shedlock_job, LATERAL shedlock_why(name) WHERE name LIKE 'hand%';
SELECT count(*) FROM shedlock_jobs WHERE name LIKE 'hand%' AND NOT (isfinite(last_tick) AND isfinite(next_due) AND isfinite(next_attempt_at));

-- A transaction that reads the tables by an older snapshot sees each name once, as it is now.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT shedlock_job('view turns', '@monthly'), shedlock_once('view turns', now() - interval '1 day');
SELECT name, schedule, last_tick = now() - interval '1 day' AS tick FROM shedlock_jobs WHERE name = 'view turns';
ROLLBACK;

SELECT * FROM pg_temp.my_locks();
DROP ROLE regress_shedlock_view;
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history, _shedlock_stats;
