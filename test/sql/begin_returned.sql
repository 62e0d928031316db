-- A run that is returned gives its attempt back: the next caller begins it anew.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse

SET timezone = 'UTC';
CREATE FUNCTION pg_temp.log(job text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(concat_ws(' ', attempt, outcome, CASE WHEN gave_up THEN 'gave up' END), ', ' ORDER BY token) FROM shedlock_history WHERE name = job
$$;
-- Begins a run, and ends it.
CREATE FUNCTION pg_temp.try(job text, outcome text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	run record := shedlock_run_begin(job, '1 h');
BEGIN
	IF run.token IS NULL THEN
		RETURN run.state;
	END IF;
	PERFORM shedlock_run_end(job, run.token, outcome);
	RETURN concat_ws(' ', outcome, 'attempt', run.attempt);
END
$$;
CREATE FUNCTION pg_temp.retry(job text) RETURNS void LANGUAGE sql AS $$
	UPDATE _shedlock_tick SET retry_at = clock_timestamp() WHERE name = job AND isfinite(retry_at)
$$;
SET client_min_messages = warning;

-- The only attempt of a tick; the lock is free at once, also before its at-least time.
SELECT shedlock_job('returned', 'every 36500 days', lock_at_least_for => '10 min');
SELECT token, tick, attempt FROM shedlock_run_begin('returned', '1 h') \gset
SELECT shedlock_run_end('returned', :token, 'returned', 'the host goes down', 143);
SELECT state FROM shedlock_locks WHERE name = 'returned';
SELECT outcome, ended_at IS NOT NULL AS ended, attempt, gave_up, message, exit_code, sqlstate FROM shedlock_history WHERE name = 'returned';
SELECT state, last_outcome, attempt, overdue FROM shedlock_jobs WHERE name = 'returned';
SELECT tick = :'tick' AS same_tick, attempt FROM shedlock_run_begin('returned', '1 h');
-- The same end again is true, another one is not, and it is no end of the next run.
\set VERBOSITY sqlstate
SELECT shedlock_run_end('returned', :token, 'returned'), shedlock_run_end('returned', :token, 'succeeded');
\set VERBOSITY terse
SELECT shedlock_run_end('returned', token, 'returned') FROM shedlock WHERE name = 'returned';
SELECT pg_temp.try('returned', 'returned'), pg_temp.try('returned', 'returned'), pg_temp.try('returned', 'succeeded'), pg_temp.try('returned', 'succeeded');
SELECT pg_temp.log('returned');
SELECT runs_succeeded, runs_failed, runs_cancelled, runs_lost, gave_up, last_failure_at FROM shedlock_stats WHERE name = 'returned';

-- A CALL makes it, too.
SELECT shedlock_job('returned call', 'every 36500 days');
SELECT pg_temp.try('returned call', 'returned');
CALL shedlock_run('returned call', 'SELECT 1');
SELECT pg_temp.log('returned call');

-- A later attempt; it begins without another backoff.
SELECT shedlock_job('returned later', 'every 36500 days', attempts => 2, backoff => '1 h');
SELECT pg_temp.try('returned later', 'failed'), pg_temp.try('returned later', 'failed');
SELECT pg_temp.retry('returned later');
SELECT pg_temp.try('returned later', 'returned'), pg_temp.try('returned later', 'returned'), pg_temp.try('returned later', 'failed'), pg_temp.try('returned later', 'failed');
SELECT pg_temp.log('returned later');

-- An attempt that shedlock_again has allowed: it is allowed still, but once.
SELECT shedlock_again('returned later');
SELECT pg_temp.try('returned later', 'returned'), pg_temp.try('returned later', 'returned'), pg_temp.try('returned later', 'failed'), pg_temp.try('returned later', 'failed');
SELECT pg_temp.log('returned later');
SELECT shedlock_again('returned');
SELECT pg_temp.try('returned', 'returned');
UPDATE shedlock SET lock_until = locked_at WHERE name = 'returned';
SELECT pg_temp.try('returned', 'succeeded'), pg_temp.try('returned', 'succeeded');
-- of a tick with attempts left
SELECT shedlock_job('returned again', 'every 36500 days', attempts => 3, backoff => '0');
SELECT pg_temp.try('returned again', 'succeeded'), shedlock_again('returned again');
SELECT pg_temp.try('returned again', 'returned'), pg_temp.try('returned again', 'failed'), pg_temp.try('returned again', 'failed'), pg_temp.try('returned again', 'failed');
SELECT pg_temp.log('returned again');

-- shedlock_again during the run is no second attempt of it.
SELECT shedlock_job('returned meanwhile', 'every 36500 days');
SELECT token FROM shedlock_run_begin('returned meanwhile', '1 h') \gset
SELECT shedlock_again('returned meanwhile');
SELECT shedlock_run_end('returned meanwhile', :token, 'returned');
SELECT pg_temp.try('returned meanwhile', 'failed'), pg_temp.try('returned meanwhile', 'failed');
SELECT pg_temp.log('returned meanwhile');

-- When a newer tick has come, that one is run, and nothing was given up: no attempt was made.
SELECT shedlock_job('returned older', '@yearly');
UPDATE _shedlock_job SET since = since - interval '2 years' WHERE name = 'returned older';
SELECT token FROM shedlock_run_begin('returned older', '1 h') \gset
UPDATE _shedlock_tick SET tick = tick - interval '1 year', claimed_at = claimed_at - interval '1 year' WHERE name = 'returned older';
UPDATE _shedlock_history SET tick = tick - interval '1 year' WHERE name = 'returned older';
SELECT shedlock_run_end('returned older', :token, 'returned');
SELECT token FROM shedlock_run_begin('returned older', '1 h') \gset
SELECT problem FROM shedlock_problems WHERE name = 'returned older';
SELECT shedlock_run_end('returned older', :token, 'succeeded');
SELECT pg_temp.log('returned older');
SELECT runs_succeeded, gave_up FROM shedlock_stats WHERE name = 'returned older';
SELECT count(DISTINCT tick) AS ticks FROM shedlock_history WHERE name = 'returned older';

-- But not before an older one that shedlock_again has allowed.
SELECT shedlock_job('returned allowed', '@yearly', attempts => 3, backoff => '0');
UPDATE _shedlock_job SET since = since - interval '2 years' WHERE name = 'returned allowed';
SELECT pg_temp.try('returned allowed', 'succeeded');
UPDATE _shedlock_tick SET tick = tick - interval '1 year', claimed_at = claimed_at - interval '1 year' WHERE name = 'returned allowed';
UPDATE _shedlock_history SET tick = tick - interval '1 year' WHERE name = 'returned allowed';
SELECT shedlock_again('returned allowed'), pg_temp.try('returned allowed', 'returned'), pg_temp.try('returned allowed', 'succeeded'), pg_temp.try('returned allowed', 'succeeded');
SELECT pg_temp.log('returned allowed');
SELECT outcome, tick < shedlock_tick('@yearly') AS older FROM shedlock_history WHERE name = 'returned allowed' ORDER BY token;

-- Nor is one lost that began when it was too late for it by itself.
SELECT shedlock_job('returned late', '@yearly', attempts => 3, max_late => '1 s'), shedlock_again('returned late');
SELECT pg_temp.try('returned late', 'returned'), pg_temp.try('returned late', 'succeeded');
SELECT pg_temp.log('returned late');

-- A job that was forgotten, or has used up its tick, meanwhile
SELECT shedlock_job('returned gone', 'every 36500 days');
SELECT token FROM shedlock_run_begin('returned gone', '1 h') \gset
SELECT shedlock_forget('returned gone'), shedlock_job('returned gone', 'every 36500 days');
SELECT shedlock_run_end('returned gone', :token, 'returned');
SELECT pg_temp.try('returned gone', 'succeeded');
SELECT shedlock_job('returned claimed', '@yearly');
UPDATE _shedlock_job SET since = since - interval '1 year' WHERE name = 'returned claimed';
SELECT token FROM shedlock_run_begin('returned claimed', '1 h') \gset
SELECT shedlock_once('returned claimed', clock_timestamp());
SELECT shedlock_run_end('returned claimed', :token, 'returned');
SELECT pg_temp.try('returned claimed', 'succeeded');

-- A run of no job, and one whose end is rolled back
SELECT pg_temp.try('returned plain', 'returned'), pg_temp.log('returned plain');
SELECT shedlock_job('returned undone', 'every 36500 days');
SELECT token FROM shedlock_run_begin('returned undone', '1 h') \gset
BEGIN;
SELECT shedlock_run_end('returned undone', :token, 'returned');
ROLLBACK;
SELECT pg_temp.try('returned undone', 'succeeded');
SELECT shedlock_run_end('returned undone', :token, 'returned');
SELECT pg_temp.try('returned undone', 'succeeded');
SELECT pg_temp.log('returned undone');

SELECT * FROM pg_temp.my_locks();
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history, _shedlock_stats;
