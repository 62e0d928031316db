-- A tick has as many runs as its job has attempts, until one succeeds.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse

SET timezone = 'UTC';
CREATE TABLE attempts (tick text, attempt text, note text);
-- A year passes, so that the last tick is due.
CREATE FUNCTION pg_temp.due(job text) RETURNS void LANGUAGE sql AS $$
	UPDATE _shedlock_tick SET tick = tick - interval '1 year' WHERE name = job;
	UPDATE _shedlock_history SET tick = tick - interval '1 year' WHERE name = job;
	UPDATE _shedlock_job SET since = since - interval '1 year' WHERE name = job
$$;
-- The time of the next attempt comes.
CREATE FUNCTION pg_temp.retry(job text) RETURNS void LANGUAGE sql AS $$
	UPDATE _shedlock_tick SET retry_at = clock_timestamp() WHERE name = job AND isfinite(retry_at)
$$;
CREATE FUNCTION pg_temp.state(job text, OUT attempt integer, OUT done boolean, OUT backoff text) LANGUAGE sql AS $$
	SELECT t.attempt, t.done, CASE WHEN isfinite(t.retry_at) THEN date_trunc('minute', t.retry_at - h.ended_at + interval '10 s')::text ELSE t.retry_at::text END
	FROM _shedlock_tick t LEFT JOIN shedlock_history h ON h.token = t.token WHERE t.name = job
$$;
CREATE FUNCTION pg_temp.tick_runs(job text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(attempt || ' ' || outcome || CASE WHEN gave_up THEN ' gave up' ELSE '' END, ', ' ORDER BY token) FROM shedlock_history WHERE name = job
$$;

-- A run that failed is repeated after the backoff, which doubles.
SELECT shedlock_job('attempts', '@yearly', attempts => 4, backoff => '20 min');
CALL shedlock_run('attempts', 'SELECT 1 / 0');
SELECT pg_temp.due('attempts');
CALL shedlock_run('attempts', 'SELECT 1 / 0');
SELECT * FROM pg_temp.state('attempts');
CALL shedlock_run('attempts', 'SELECT 1 / 0');
SELECT pg_temp.retry('attempts');
CALL shedlock_run('attempts', 'SELECT pg_sleep(20)', '100 ms');
SELECT * FROM pg_temp.state('attempts');
SELECT pg_temp.retry('attempts');
CALL shedlock_run('attempts', 'SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(20)');
SELECT * FROM pg_temp.state('attempts');
SELECT pg_temp.retry('attempts');
CALL shedlock_run('attempts', 'SELECT 1 / 0');
SELECT * FROM pg_temp.state('attempts');
SELECT pg_temp.retry('attempts');
CALL shedlock_run('attempts', 'SELECT 1');
SELECT pg_temp.tick_runs('attempts');

-- Attempts that are declared later are for ticks whose last attempt has not ended.
SELECT shedlock_job('attempts', '@yearly', attempts => 6, backoff => '20 min');
CALL shedlock_run('attempts', 'SELECT 1');
SELECT pg_temp.due('attempts');
CALL shedlock_run('attempts', 'SELECT 1 / 0');
SELECT shedlock_job('attempts', '@yearly', backoff => '20 min');
SELECT pg_temp.retry('attempts');
CALL shedlock_run('attempts', 'SELECT 1');
SELECT shedlock_job('attempts', '@yearly', attempts => 2, backoff => '20 min');
CALL shedlock_run('attempts', 'SELECT 1 / 0');
SELECT pg_temp.tick_runs('attempts');

-- With one attempt a tick that failed is used up.
SELECT shedlock_job('attempts one', '@yearly');
SELECT pg_temp.due('attempts one');
CALL shedlock_run('attempts one', 'SELECT 1 / 0');
CALL shedlock_run('attempts one', 'SELECT 1 / 0');
SELECT pg_temp.tick_runs('attempts one');
-- shedlock_again: one more, and then as many as the job has.
SELECT shedlock_again('attempts one');
CALL shedlock_run('attempts one', 'SELECT 1 / 0');
CALL shedlock_run('attempts one', 'SELECT 1 / 0');
SELECT shedlock_job('attempts one', '@yearly', attempts => 4);
CALL shedlock_run('attempts one', 'SELECT 1 / 0');
SELECT shedlock_again('attempts one');
CALL shedlock_run('attempts one', 'SELECT 1 / 0');
SELECT pg_temp.retry('attempts one');
CALL shedlock_run('attempts one', 'SELECT 1');
CALL shedlock_run('attempts one', 'SELECT 1');
SELECT pg_temp.tick_runs('attempts one');

-- A newer tick ends the attempts of an older one, and the history says so; but with all
-- they come first.
SELECT shedlock_job('attempts newer', '@yearly', attempts => 3, backoff => '0');
SELECT pg_temp.due('attempts newer');
CALL shedlock_run('attempts newer', 'SELECT 1 / 0');
SELECT pg_temp.due('attempts newer');
CALL shedlock_run('attempts newer', 'SELECT 1 / 0');
SELECT pg_temp.due('attempts newer');
SELECT shedlock_job('attempts newer', '@yearly', attempts => 3, backoff => '0', catch_up => 'all');
CALL shedlock_run('attempts newer', 'SELECT 1');
SELECT pg_temp.tick_runs('attempts newer');

-- A run that died is repeated at once, from the second loss on after the backoff.  Its
-- attempt counted when it began.
SELECT shedlock_job('attempts lost', '@yearly', attempts => 3, backoff => '20 min');
SELECT pg_temp.due('attempts lost');
SELECT attempt, reason FROM shedlock_run_begin('attempts lost');
UPDATE shedlock SET lock_until = locked_at WHERE name = 'attempts lost';
SELECT attempt, reason FROM shedlock_run_begin('attempts lost');
UPDATE shedlock SET lock_until = locked_at WHERE name = 'attempts lost';
SELECT attempt, regexp_replace(reason, '\d\d\d\d-\d\d-\d\d \d\d:\d\d:[0-9.]+\+00', 'T', 'g') ~ 'outcome: lost\.  Attempt 3 of 3 is due at T\.$' AS reason
FROM shedlock_run_begin('attempts lost');
SELECT date_trunc('minute', retry_at - claimed_at) AS backoff FROM _shedlock_tick WHERE name = 'attempts lost';
SELECT pg_temp.retry('attempts lost');
SELECT attempt, reason FROM shedlock_run_begin('attempts lost');
SELECT pg_temp.tick_runs('attempts lost');
-- That it was the last one is known as soon as it is lost, and whoever notices the loss.
UPDATE shedlock SET lock_until = locked_at WHERE name = 'attempts lost';
SELECT pg_temp.tick_runs('attempts lost');
SELECT pg_temp.retry('attempts lost');
SELECT reason ~ 'outcome: lost\.  No attempt is left; the next tick is ' AS reason
FROM shedlock_run_begin('attempts lost');
SELECT shedlock_acquire('attempts lost'), shedlock_release('attempts lost');
SELECT pg_temp.tick_runs('attempts lost');
SELECT gave_up FROM shedlock_stats WHERE name = 'attempts lost';
-- The next tick counts it.
SELECT pg_temp.due('attempts lost');
CALL shedlock_run('attempts lost', 'SELECT 1');
SELECT pg_temp.tick_runs('attempts lost');
SELECT gave_up FROM shedlock_stats WHERE name = 'attempts lost';
-- shedlock_again takes it back, until that attempt is lost, too.
SELECT shedlock_job('attempts again', '@yearly');
SELECT pg_temp.due('attempts again');
SELECT state FROM shedlock_run_begin('attempts again');
UPDATE shedlock SET lock_until = locked_at WHERE name = 'attempts again';
SELECT pg_temp.tick_runs('attempts again');
SELECT shedlock_again('attempts again');
SELECT pg_temp.tick_runs('attempts again');
SELECT state FROM shedlock_run_begin('attempts again');
SELECT pg_temp.tick_runs('attempts again');
UPDATE shedlock SET lock_until = locked_at WHERE name = 'attempts again';
SELECT pg_temp.tick_runs('attempts again');
-- A claim of a later tick leaves a run that is at work; if that is lost, no attempt follows.
SELECT shedlock_job('attempts claimed', '@yearly', attempts => 3);
SELECT pg_temp.due('attempts claimed');
SELECT state FROM shedlock_run_begin('attempts claimed');
SELECT shedlock_once('attempts claimed', clock_timestamp());
SELECT pg_temp.tick_runs('attempts claimed');
UPDATE shedlock SET lock_until = locked_at WHERE name = 'attempts claimed';
SELECT pg_temp.tick_runs('attempts claimed');

-- No backoff is longer than an hour, so what ends later is of a clock that was set back.
SELECT shedlock_job('attempts clock', '@yearly', attempts => 2, backoff => '20 min');
SELECT pg_temp.due('attempts clock');
CALL shedlock_run('attempts clock', 'SELECT 1 / 0');
UPDATE _shedlock_tick SET retry_at = clock_timestamp() + interval '55 min' WHERE name = 'attempts clock';
SELECT state FROM shedlock_run_begin('attempts clock');
UPDATE _shedlock_tick SET retry_at = clock_timestamp() + interval '70 min' WHERE name = 'attempts clock';
SELECT state, attempt FROM shedlock_run_begin('attempts clock');

-- The command reads its tick and attempt; a nested run its own, or none.
SELECT shedlock_job('attempts seen', '@yearly', attempts => 9, backoff => '0');
SELECT shedlock_job(job, 'every 36500 days') FROM unnest('{attempts inner, attempts inner fails, attempts set, attempts parallel}'::text[]) job;
SELECT pg_temp.due('attempts seen');
CREATE FUNCTION pg_temp.note(note text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO attempts VALUES (current_setting('shedlock.tick'), current_setting('shedlock.attempt'), note)
$$;
SET timezone = 'Asia/Kathmandu';
SET datestyle = 'German';
CALL shedlock_run('attempts seen', 'SELECT 1 / 0');
SELECT pg_temp.note('none');
CALL shedlock_run('attempts seen', $$
	RESET ALL; SET client_min_messages = warning; RESET shedlock.tick; SELECT pg_temp.note('second attempt')$$);
SELECT shedlock_again('attempts seen');
CALL shedlock_run('attempts seen', $$CALL shedlock_run('attempts inner', 'SELECT pg_temp.note(''inner'')')$$);
SELECT shedlock_again('attempts seen');
CALL shedlock_run('attempts seen', $$CALL shedlock_run('attempts plain', 'SELECT pg_temp.note(''plain'')')$$);
SELECT shedlock_again('attempts seen');
CALL shedlock_run('attempts seen', $$CALL shedlock_run('attempts seen', 'SELECT pg_temp.note(''same lock'')')$$);
SELECT shedlock_again('attempts seen');
CALL shedlock_run('attempts seen', $$CALL shedlock_run('attempts inner fails', 'SELECT 1 / 0')$$);
CALL shedlock_run('attempts without', 'SELECT pg_temp.note(''in the end'')');
RESET datestyle;
RESET client_min_messages;
SET timezone = 'UTC';
SELECT CASE tick WHEN to_char(shedlock_tick('@yearly'), 'YYYY-MM-DD HH24:MI:SS"+00"') THEN 'its tick' ELSE tick END AS tick, attempt, note
FROM attempts;

-- Nobody else sets them.
SET shedlock.tick = 'x';
SET shedlock.attempt = '7';
SELECT set_config('shedlock.attempt', '7', true);
ALTER ROLE CURRENT_USER SET shedlock.attempt = '7';
CALL shedlock_run('attempts set', 'SET shedlock.attempt = 7');
DO $$ BEGIN PERFORM set_config('shedlock.tick', '', false); END $$;
RESET shedlock.tick;
SHOW shedlock.attempt;

-- Parallel workers read them, too.
CREATE TABLE attempts_parallel AS SELECT n FROM generate_series(1, 1000) n;
SELECT name AS parallel_mode FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SET :parallel_mode = on;
CALL shedlock_run('attempts parallel', 'CREATE TABLE attempts_read AS SELECT count(*) FROM attempts_parallel WHERE current_setting(''shedlock.attempt'') = ''1''
	AND current_setting(''shedlock.tick'') = ''1970-01-01 00:00:00+00''');
RESET :parallel_mode;
SELECT * FROM attempts_read;
SELECT * FROM pg_temp.my_locks();

DROP TABLE attempts, attempts_parallel, attempts_read;
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history, _shedlock_stats;
