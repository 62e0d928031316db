-- shedlock_problems has what is wrong with jobs now; shedlock_news, what of that was not told yet.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
SET intervalstyle = 'postgres';
SET client_min_messages = warning;
CREATE FUNCTION pg_temp.problems() RETURNS TABLE (name text, problem text, since text, message text)
LANGUAGE sql AS $$
	SELECT name, problem, CASE WHEN since BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() THEN 'now' WHEN since < clock_timestamp() THEN 'long ago' END, message
	FROM shedlock_problems ORDER BY name, problem
$$;
-- A job that was declared, and was last run, so long ago.
CREATE FUNCTION pg_temp.age(job text, ago interval) RETURNS void
LANGUAGE sql AS $$
	UPDATE _shedlock_job SET created_at = created_at - ago, declared_at = declared_at - ago, since = since - ago WHERE name = job;
	UPDATE _shedlock_tick SET tick = tick - ago, claimed_at = claimed_at - ago, gave_up_at = gave_up_at - ago, skipped = skipped - ago WHERE name = job;
	UPDATE shedlock SET lock_until = lock_until - ago, locked_at = locked_at - ago WHERE name = job;
$$;
-- Begins a run; ends one.
CREATE FUNCTION pg_temp.start(job text) RETURNS bigint LANGUAGE sql AS $$ SELECT token FROM shedlock_run_begin(job, '1 h') $$;
CREATE FUNCTION pg_temp.finish(job text, outcome text) RETURNS boolean
LANGUAGE sql AS $$ SELECT shedlock_run_end(job, token, outcome) FROM shedlock WHERE name = job $$;

SELECT shedlock_job('report', '@yearly', attempts => 2, backoff => '0', overdue_after => '10 min', slow_after => '90 min', description => 'Ann''s');
SELECT * FROM pg_temp.problems();

-- overdue: not declared long ago, not paused, no run at work
SELECT pg_temp.age('report', '366 days') \gset
SELECT * FROM pg_temp.problems();
SELECT name, description FROM shedlock_problems;
SELECT shedlock_pause('report') \gset
SELECT * FROM pg_temp.problems();
SELECT shedlock_resume('report') \gset
UPDATE shedlock SET paused_until = '2001-01-01';
SELECT pg_temp.start('report') > 0 AS began;
SELECT * FROM pg_temp.problems();

-- slow, as long as it is at work
UPDATE shedlock SET locked_at = locked_at - interval '91 min' WHERE name = 'report';
SELECT * FROM pg_temp.problems();
SELECT pg_temp.finish('report', 'failed') \gset
SELECT * FROM pg_temp.problems();

-- gave up, after the last attempt; also when the next tick is due, is being run, and fails once
SELECT pg_temp.start('report') > 0 AS began;
SELECT * FROM pg_temp.problems();
SELECT pg_temp.finish('report', 'failed') \gset
SELECT * FROM pg_temp.problems();
SELECT shedlock_pause('report') \gset
SELECT * FROM pg_temp.problems();
SELECT shedlock_resume('report') \gset
UPDATE shedlock SET paused_until = '2001-01-01';
SELECT pg_temp.age('report', '366 days') \gset
SELECT * FROM pg_temp.problems();
SELECT pg_temp.start('report') > 0 AS began;
SELECT * FROM pg_temp.problems();
SELECT pg_temp.finish('report', 'returned') \gset
SELECT pg_temp.start('report') > 0 AS began;
SELECT pg_temp.finish('report', 'failed') \gset
SELECT * FROM pg_temp.problems();
SELECT pg_temp.start('report') > 0 AS began;
SELECT pg_temp.finish('report', 'succeeded') \gset
SELECT * FROM pg_temp.problems();

-- until shedlock_again, whose attempt can give up, too
SELECT pg_temp.age('report', '366 days') \gset
SELECT pg_temp.start('report') > 0 AS began;
SELECT pg_temp.finish('report', 'failed') \gset
SELECT pg_temp.start('report') > 0 AS began;
SELECT pg_temp.finish('report', 'timed out') \gset
SELECT problem FROM pg_temp.problems();
SELECT shedlock_again('report');
SELECT * FROM pg_temp.problems();
SELECT pg_temp.start('report') > 0 AS began;
SELECT * FROM pg_temp.problems();
SELECT pg_temp.finish('report', 'failed') \gset
SELECT problem, since FROM pg_temp.problems();

-- until a later tick is skipped: one that is due, or one that was to come and has
SELECT pg_temp.age('report', '366 days') \gset
SELECT problem FROM pg_temp.problems();
SELECT shedlock_skip('report') IS NOT NULL AS skipped;
SELECT problem FROM pg_temp.problems();
SELECT pg_temp.age('report', '366 days') \gset
SELECT pg_temp.start('report') > 0 AS began;
SELECT pg_temp.finish('report', 'failed') \gset
SELECT pg_temp.start('report') > 0 AS began;
SELECT pg_temp.finish('report', 'failed') \gset
SELECT shedlock_skip('report') IS NOT NULL AS skipped;
SELECT problem FROM pg_temp.problems();
UPDATE _shedlock_tick SET skipped = shedlock_tick('@yearly'), tick = tick - interval '366 days', gave_up_at = gave_up_at - interval '366 days';
SELECT problem FROM pg_temp.problems();

-- the last attempt is lost: nobody has noticed; then the next one finds it
UPDATE _shedlock_tick SET skipped = NULL;
SELECT pg_temp.start('report') > 0 AS began;
SELECT pg_temp.finish('report', 'failed') \gset
SELECT pg_temp.start('report') > 0 AS began;
UPDATE _shedlock_tick SET gave_up_at = NULL;
SELECT problem FROM pg_temp.problems();
UPDATE shedlock SET lock_until = locked_at + interval '1 us';
SELECT problem, since FROM pg_temp.problems();
SELECT pg_temp.age('report', '366 days') \gset
SELECT problem FROM pg_temp.problems();
SELECT pg_temp.start('report') > 0 AS began;
SELECT * FROM pg_temp.problems();

-- also if the clock was set back after the job was created
UPDATE _shedlock_job SET created_at = '2300-01-01', declared_at = '2300-01-01';
SELECT pg_temp.finish('report', 'failed') \gset
SELECT pg_temp.start('report') > 0 AS began;
SELECT pg_temp.finish('report', 'failed') \gset
SELECT pg_temp.age('report', '366 days') \gset
SELECT pg_temp.start('report') > 0 AS began;
SELECT problem, message FROM pg_temp.problems();
UPDATE _shedlock_job SET created_at = '2001-01-01', declared_at = '2001-01-01';
UPDATE _shedlock_tick SET gave_up_at = '2001-01-02';

-- what was given up before a job was forgotten and declared again is no problem of that
SELECT pg_temp.finish('report', 'failed') \gset
SELECT shedlock_forget('report');
SELECT * FROM pg_temp.problems();
SELECT shedlock_job('report', '@yearly', description => 'Ann''s');
SELECT * FROM pg_temp.problems();

-- overdue: as long as an attempt was to come, nothing else could begin, until a claim used it up
SELECT shedlock_job('in turn', '@yearly', catch_up => 'all', attempts => 2, backoff => '1 h', overdue_after => '10 min');
SELECT pg_temp.age('in turn', '400 years') \gset
SELECT pg_temp.start('in turn') > 0 AS began;
SELECT pg_temp.finish('in turn', 'failed') \gset
SELECT pg_temp.age('in turn', '30 min') \gset
SELECT count(*) FROM pg_temp.problems();
SELECT shedlock_once_every('in turn', '36500 days');
SELECT count(*) FROM pg_temp.problems();
SELECT pg_temp.age('in turn', '11 min') \gset
SELECT name, problem FROM pg_temp.problems();
SELECT shedlock_forget('in turn');

-- problem of shedlock_jobs; since when is not known before somebody has looked
UPDATE _shedlock_job SET schedule = 'never';
SELECT * FROM pg_temp.problems();

-- A problem is news until it is told; and so is its end, also if nobody was told that it began
SELECT name, problem, state, since <= clock_timestamp() AS since, message, description FROM shedlock_news();
SELECT since IS NOT NULL AS since FROM shedlock_problems;
SELECT since FROM shedlock_news() \gset
SELECT shedlock_tell('report', 'job', '2001-01-01', 'begun'), shedlock_tell('report', 'overdue', :'since', 'begun'), shedlock_tell('repor', 'job', :'since', 'begun'), shedlock_tell('report', 'job', :'since', 'over'), shedlock_tell('report', 'job', :'since', 'told'), shedlock_tell(NULL, 'job', :'since', 'begun') AS nothing;
SELECT count(*) FROM shedlock_news();
SELECT shedlock_tell('report', 'job', :'since', 'begun'), (SELECT count(*) FROM shedlock_news());
SELECT shedlock_tell('report', 'job', :'since', 'begun') AS again;
SELECT shedlock_forget('report');
SELECT name, problem, state, since = :'since' AS since, message, description FROM shedlock_news();
SELECT shedlock_tell('report', 'job', :'since', 'over'), (SELECT count(*) FROM shedlock_news());
SELECT shedlock_tell('report', 'job', :'since', 'over') AS again, (SELECT count(*) FROM _shedlock_told) AS rows;

SELECT shedlock_job('report', '@yearly');
UPDATE _shedlock_job SET schedule = 'never';
SELECT state FROM shedlock_news();
UPDATE _shedlock_job SET schedule = '@yearly';
SELECT state, since FROM shedlock_news() \gset
SELECT :'state' AS state, shedlock_tell('report', 'job', :'since', 'begun');
SELECT state FROM shedlock_news();

-- The end is told before the problem begins again.
UPDATE _shedlock_job SET schedule = 'never';
SELECT state FROM shedlock_news();
SELECT shedlock_tell('report', 'job', :'since', 'over');
SELECT state, since > :'since' AS later FROM shedlock_news();

-- Without news nothing is written; a standby cannot note any.
SELECT shedlock_tell('report', 'job', since, 'begun') FROM shedlock_news();
BEGIN;
SELECT count(*) FROM shedlock_news();
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
ROLLBACK;
BEGIN READ ONLY;
SELECT pg_temp.error_of('SELECT shedlock_news()');
ROLLBACK;

-- Only for whom it was granted to; it sees what the role cannot.
CREATE ROLE regress_shedlock_watcher;
SET ROLE regress_shedlock_watcher;
SELECT pg_temp.error_of('SELECT shedlock_news()');
SELECT pg_temp.error_of($$SELECT shedlock_tell('report', 'job', now(), 'begun')$$);
RESET ROLE;
GRANT EXECUTE ON FUNCTION shedlock_news(), shedlock_tell TO regress_shedlock_watcher;
SET shedlock.role_prefix = on;
SET ROLE regress_shedlock_watcher;
SELECT count(*) FROM shedlock_problems;
SELECT count(*) FROM shedlock_news();
RESET ROLE;
RESET shedlock.role_prefix;
SELECT problem FROM shedlock_problems;
SELECT shedlock_forget('report');
SET ROLE regress_shedlock_watcher;
SELECT state, shedlock_tell(name, problem, since, state) FROM shedlock_news();
RESET ROLE;
DROP OWNED BY regress_shedlock_watcher;
DROP ROLE regress_shedlock_watcher;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history, _shedlock_stats, _shedlock_told;
