-- lock_at_most_for of a job is how long a run of it may take.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
-- The NOTICE of an extend that is cut has a time in it.
SET client_min_messages = warning;
-- Time passes.
CREATE FUNCTION pg_temp.pass(job text, t interval) RETURNS void LANGUAGE sql AS $$
	UPDATE shedlock SET locked_at = locked_at - t, lock_until = lock_until - t, keep_until = keep_until - t WHERE name = job;
	UPDATE _shedlock_history SET started_at = started_at - t, limit_at = limit_at - t WHERE name = job AND outcome = 'running'
$$;
CREATE FUNCTION pg_temp.lasts(job text) RETURNS interval LANGUAGE sql AS $$ SELECT lock_until - locked_at FROM shedlock WHERE name = job $$;
CREATE FUNCTION pg_temp.log(job text) RETURNS TABLE (outcome text, gave_up boolean, duration interval, attempt integer) LANGUAGE sql AS $$
	SELECT outcome, gave_up, duration, attempt FROM shedlock_history WHERE name = job ORDER BY token
$$;

-- A lease is what the call says, or the setting, but no longer than that.
SELECT shedlock_job('limit', 'every 36500 days', attempts => 2, lock_at_most_for => '1 h');
SELECT token FROM shedlock_run_begin('limit', '5 min') \gset
SELECT pg_temp.lasts('limit');
SELECT shedlock_job(job, 'every 36500 days', lock_at_most_for => '1 h') FROM unnest('{limit long, limit default, limit setting}'::text[]) job;
SELECT state FROM shedlock_run_begin('limit long', '5 h');
SELECT state FROM shedlock_run_begin('limit default');
SET shedlock.default_lock_at_most_for = '2 h';
SELECT state FROM shedlock_run_begin('limit setting');
RESET shedlock.default_lock_at_most_for;
SELECT name, pg_temp.lasts(name) FROM shedlock WHERE name LIKE 'limit %' ORDER BY name;

-- An extend ends with it, and says that it does not last as long as it was asked to, whatever is
-- declared meanwhile.
SELECT shedlock_job('limit', 'every 36500 days', attempts => 2, lock_at_most_for => '3 h');
SELECT shedlock_extend('limit', :token, '30 min'), pg_temp.lasts('limit') BETWEEN '30 min' AND '31 min' AS lasts;
SELECT shedlock_extend('limit', :token, '5 h');
SELECT pg_temp.lasts('limit');
SELECT pg_temp.pass('limit', '50 min');
SELECT shedlock_extend('limit', :token, '5 min');
SELECT pg_temp.lasts('limit') BETWEEN '55 min' AND '56 min' AS lasts;
SELECT pg_temp.pass('limit', '4 min');
SELECT shedlock_extend('limit', :token), shedlock_extend('limit', :token, '5 h');
SELECT pg_temp.lasts('limit');
SELECT * FROM pg_temp.log('limit');
-- Then it is over, and has timed out, whoever notices that, and when.
SELECT pg_temp.pass('limit', '6 min');
SELECT * FROM pg_temp.log('limit');
\set VERBOSITY terse
SELECT regexp_replace(shedlock_why('limit'), '^.*outcome: ([a-z ]+)\..*$', '\1');
SELECT last_outcome, state FROM shedlock_jobs WHERE name = 'limit';
SET client_min_messages = error;
SELECT shedlock_extend('limit', :token), shedlock_run_end('limit', :token);
SET client_min_messages = warning;
SELECT runs_timed_out FROM shedlock_stats WHERE name = 'limit';
\set old_token :token
SELECT state, attempt FROM shedlock_run_begin('limit', '5 min');
SELECT * FROM pg_temp.log('limit');
SET client_min_messages = error;
SELECT shedlock_run_end('limit', :old_token, 'timed out');
SET client_min_messages = warning;
SELECT runs_timed_out, runs_lost, run_seconds FROM shedlock_stats WHERE name = 'limit';
-- A run that falls silent before is lost.
SELECT pg_temp.pass('limit', '6 min');
SELECT * FROM pg_temp.log('limit');
SELECT shedlock_acquire('limit'), shedlock_release('limit');
SELECT * FROM pg_temp.log('limit');
SELECT runs_timed_out, runs_lost FROM shedlock_stats WHERE name = 'limit';

-- So does the at-least time.
SELECT shedlock_job('limit least', 'every 36500 days', lock_at_most_for => '1 h');
SELECT token FROM shedlock_run_begin('limit least', '3 h', '2 h') \gset
SELECT pg_temp.lasts('limit least'), keep_until = lock_until AS kept FROM shedlock WHERE name = 'limit least';
SELECT shedlock_extend('limit least', :token, '30 min', '20 min');
SELECT shedlock_extend('limit least', :token, '3 h', '2 h');
SELECT pg_temp.lasts('limit least'), keep_until = lock_until AS kept FROM shedlock WHERE name = 'limit least';
SELECT pg_temp.pass('limit least', '61 min');
SELECT outcome, duration FROM pg_temp.log('limit least');

-- Without it a run can be extended for ever.
SELECT shedlock_job('limit none', 'every 36500 days');
SELECT token FROM shedlock_run_begin('limit none', '5 min') \gset
SELECT pg_temp.pass('limit none', '4 min');
SELECT shedlock_extend('limit none', :token, '24 h');
SELECT pg_temp.lasts('limit none') > '24 h' AS longer;
SELECT pg_temp.pass('limit none', '25 h');
SELECT * FROM pg_temp.log('limit none');

-- A CALL is canceled after it, unless it says another one.
SELECT shedlock_job('limit call', 'every 36500 days', attempts => 3, backoff => '0', lock_at_most_for => '200 ms');
CALL shedlock_run('limit call', 'SELECT pg_sleep(20)');
CALL shedlock_run('limit call', 'SELECT pg_sleep(20)', '100 ms');
CALL shedlock_run('limit call', 'SELECT pg_sleep(0.3)', '1 min');
-- Nor is its lock kept for longer, which would keep it from being canceled.
SET shedlock.default_lock_at_least_for = '20 s';
SELECT shedlock_job('limit cut', 'every 36500 days', lock_at_most_for => '200 ms'), shedlock_job('limit cut job', 'every 36500 days', lock_at_most_for => '2 h', lock_at_least_for => '1 h');
CALL shedlock_run('limit cut', 'SELECT pg_sleep(20)');
CALL shedlock_run('limit cut job', 'SELECT pg_sleep(20)', '200 ms');
CALL shedlock_run('limit cut call', 'SELECT pg_sleep(20)', '200 ms');
RESET shedlock.default_lock_at_least_for;
SELECT name, outcome, duration < '10 s' AS soon FROM shedlock_history WHERE name LIKE 'limit cut%' ORDER BY name;
SELECT outcome, attempt, duration BETWEEN '0.1 s' AND '10 s' AS duration FROM shedlock_history WHERE name = 'limit call' ORDER BY token;

-- What is over the caller's cap is cut to that, where the call would be refused.
SELECT shedlock_job(job, 'every 36500 days', lock_at_most_for => '3 h', lock_at_least_for => '150 min') FROM unnest('{limit capped, limit capped call, limit over}'::text[]) job;
SET shedlock.max_lock_at_most_for = '2 h';
SELECT token FROM shedlock_run_begin('limit capped') \gset
SELECT shedlock_extend('limit capped', :token, '2 h');
SELECT limit_at - started_at AS limit FROM _shedlock_history WHERE name = 'limit capped';
CALL shedlock_run('limit capped call', 'SELECT 1');
SELECT state FROM shedlock_run_begin('limit over', '3 h');
CALL shedlock_run('limit over', 'SELECT 1', '3 h');
RESET shedlock.max_lock_at_most_for;
SELECT name, pg_temp.lasts(name), keep_until - locked_at AS kept, lock_at_most_for FROM shedlock WHERE name ~ 'capped|over' ORDER BY name;

-- The at-least time is what the call says, or the job, or the setting.
SET shedlock.default_lock_at_least_for = '10 min';
SELECT shedlock_job('limit kept', 'every 36500 days', lock_at_least_for => '20 min'), shedlock_job('limit kept call', 'every 36500 days', lock_at_least_for => '20 min'),
	   shedlock_job('limit kept setting', 'every 36500 days'), shedlock_job('limit kept never', 'every 36500 days', lock_at_least_for => '0');
CALL shedlock_run('limit kept', 'SELECT 1');
CALL shedlock_run('limit kept call', 'SELECT 1', lock_at_least_for => '30 min');
CALL shedlock_run('limit kept setting', 'SELECT 1');
CALL shedlock_run('limit kept never', 'SELECT 1');
RESET shedlock.default_lock_at_least_for;
SELECT name, pg_temp.lasts(name) >= keep_until - locked_at AS lasts, keep_until - locked_at AS kept FROM shedlock WHERE name LIKE 'limit kept%' ORDER BY name;

SELECT * FROM pg_temp.my_locks();
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history, _shedlock_stats;
