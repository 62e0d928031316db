-- A tick has as many runs as attempts allows, until one succeeds.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse

SET timezone = 'UTC';
CREATE TABLE attempts (tick text, attempt text, note text);
-- The last tick becomes due.
CREATE FUNCTION pg_temp.due(job text) RETURNS void LANGUAGE sql AS $$
	UPDATE _shedlock_tick SET tick = tick - interval '1 year', done = true WHERE name = job
$$;
-- The time of the next attempt comes.
CREATE FUNCTION pg_temp.retry(job text) RETURNS void LANGUAGE sql AS $$
	UPDATE _shedlock_tick SET retry_at = clock_timestamp() WHERE name = job
$$;
CREATE FUNCTION pg_temp.state(job text, OUT attempt integer, OUT done boolean, OUT backoff interval) LANGUAGE sql AS $$
	SELECT t.attempt, t.done, date_trunc('minute', t.retry_at - h.ended_at + interval '10 s')
	FROM _shedlock_tick t LEFT JOIN shedlock_history h ON h.token = t.token WHERE t.name = job
$$;
CREATE FUNCTION pg_temp.tick_runs(job text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(attempt || ' ' || outcome || CASE WHEN gave_up THEN ' gave up' ELSE '' END, ', ' ORDER BY token) FROM shedlock_history WHERE name = job
$$;

-- A run that failed is repeated after the backoff, which doubles.
CALL shedlock_run('attempts', 'SELECT 1 / 0', schedule => '@yearly', attempts => 4, backoff => '20 min');
SELECT pg_temp.due('attempts');
CALL shedlock_run('attempts', 'SELECT 1 / 0', schedule => '@yearly', attempts => 4, backoff => '20 min');
SELECT * FROM pg_temp.state('attempts');
CALL shedlock_run('attempts', 'SELECT 1 / 0', schedule => '@yearly', attempts => 4, backoff => '20 min');
SELECT pg_temp.retry('attempts');
CALL shedlock_run('attempts', 'SELECT pg_sleep(20)', '100 ms', schedule => '@yearly', attempts => 4, backoff => '20 min');
SELECT * FROM pg_temp.state('attempts');
SELECT pg_temp.retry('attempts');
CALL shedlock_run('attempts', 'SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(20)', schedule => '@yearly', attempts => 4, backoff => '20 min');
SELECT * FROM pg_temp.state('attempts');
SELECT pg_temp.retry('attempts');
CALL shedlock_run('attempts', 'SELECT 1 / 0', schedule => '@yearly', attempts => 4, backoff => '20 min');
SELECT * FROM pg_temp.state('attempts');
SELECT pg_temp.retry('attempts');
CALL shedlock_run('attempts', 'SELECT 1', schedule => '@yearly', attempts => 4, backoff => '20 min');
SELECT pg_temp.tick_runs('attempts');

-- The caller's attempts decide.
CALL shedlock_run('attempts', 'SELECT 1', schedule => '@yearly', attempts => 5, backoff => '20 min');
SELECT pg_temp.tick_runs('attempts');
CALL shedlock_run('attempts', 'SELECT 1', schedule => '@yearly', attempts => 6, backoff => '20 min');
SELECT count(*) FROM shedlock_history WHERE name = 'attempts';

-- With one attempt a tick that failed is used up.
CALL shedlock_run('attempts one', 'SELECT 1 / 0', schedule => '@yearly');
SELECT pg_temp.due('attempts one');
CALL shedlock_run('attempts one', 'SELECT 1 / 0', schedule => '@yearly');
SELECT pg_temp.retry('attempts one');
CALL shedlock_run('attempts one', 'SELECT 1 / 0', schedule => '@yearly');
SELECT pg_temp.tick_runs('attempts one');
-- shedlock_again: one more, and then as many as the caller allows.
SELECT shedlock_again('attempts one');
CALL shedlock_run('attempts one', 'SELECT 1 / 0', schedule => '@yearly', attempts => 3);
SELECT pg_temp.retry('attempts one');
CALL shedlock_run('attempts one', 'SELECT 1', schedule => '@yearly', attempts => 3);
CALL shedlock_run('attempts one', 'SELECT 1', schedule => '@yearly', attempts => 3);
SELECT pg_temp.tick_runs('attempts one');
-- Also for an older tick, when a newer one has come.
SELECT pg_temp.due('attempts one');
SELECT shedlock_again('attempts one');
CALL shedlock_run('attempts one', 'SELECT 1', schedule => '@yearly');
SELECT extract(year FROM shedlock_tick('@yearly')) - extract(year FROM tick) AS years_ago, attempt, outcome
FROM shedlock_history WHERE name = 'attempts one' ORDER BY token DESC LIMIT 1;

-- A newer tick ends the attempts of an older one, and the history says so; but with all
-- they come first.
CALL shedlock_run('attempts newer', 'SELECT 1 / 0', schedule => '@yearly', attempts => 3);
SELECT pg_temp.due('attempts newer');
CALL shedlock_run('attempts newer', 'SELECT 1 / 0', schedule => '@yearly', attempts => 3);
UPDATE _shedlock_tick SET tick = tick - interval '1 year', retry_at = clock_timestamp() WHERE name = 'attempts newer';
CALL shedlock_run('attempts newer', 'SELECT 1 / 0', schedule => '@yearly', attempts => 3);
UPDATE _shedlock_tick SET tick = tick - interval '1 year', retry_at = clock_timestamp() WHERE name = 'attempts newer';
CALL shedlock_run('attempts newer', 'SELECT 1', schedule => '@yearly', attempts => 3, catch_up => 'all');
CALL shedlock_run('attempts newer', 'SELECT 1', schedule => '@yearly', attempts => 3, catch_up => 'all');
SELECT pg_temp.tick_runs('attempts newer');

-- A run that died is repeated at once, from the second loss on after the backoff.  Its
-- attempt counted when it began.
SELECT token IS NULL AS registered FROM shedlock_run_begin('attempts lost', schedule => '@yearly', attempts => 3, backoff => '20 min');
SELECT pg_temp.due('attempts lost');
SELECT attempt, reason FROM shedlock_run_begin('attempts lost', schedule => '@yearly', attempts => 3, backoff => '20 min');
UPDATE shedlock SET lock_until = locked_at WHERE name = 'attempts lost';
SELECT attempt, reason FROM shedlock_run_begin('attempts lost', schedule => '@yearly', attempts => 3, backoff => '20 min');
UPDATE shedlock SET lock_until = locked_at WHERE name = 'attempts lost';
SELECT attempt, regexp_replace(reason, '\d\d\d\d-\d\d-\d\d \d\d:\d\d:[0-9.]+\+00', 'T', 'g') ~ 'outcome: lost\.  Attempt 3 of 3 is due at T\.$' AS reason
FROM shedlock_run_begin('attempts lost', schedule => '@yearly', attempts => 3, backoff => '20 min');
SELECT date_trunc('minute', retry_at - claimed_at) AS backoff FROM _shedlock_tick WHERE name = 'attempts lost';
SELECT pg_temp.retry('attempts lost');
SELECT attempt, reason FROM shedlock_run_begin('attempts lost', schedule => '@yearly', attempts => 3, backoff => '20 min');
UPDATE shedlock SET lock_until = locked_at WHERE name = 'attempts lost';
SELECT pg_temp.retry('attempts lost');
SELECT reason ~ 'outcome: lost\.  No attempt is left; the next tick is ' AS reason
FROM shedlock_run_begin('attempts lost', schedule => '@yearly', attempts => 3, backoff => '20 min');
SELECT pg_temp.tick_runs('attempts lost');

-- The command reads its tick and attempt; a nested run its own, or none.
CALL shedlock_run('attempts seen', 'SELECT 1', schedule => '@yearly', attempts => 9, backoff => '0');
SELECT pg_temp.due('attempts seen');
CREATE FUNCTION pg_temp.note(note text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO attempts VALUES (current_setting('shedlock.tick'), current_setting('shedlock.attempt'), note)
$$;
SET timezone = 'Asia/Kathmandu';
SET datestyle = 'German';
CALL shedlock_run('attempts seen', 'SELECT 1 / 0', schedule => '@yearly', attempts => 9, backoff => '0');
SELECT pg_temp.note('none');
CALL shedlock_run('attempts seen', $$
	RESET ALL; SET client_min_messages = warning; RESET shedlock.tick; SELECT pg_temp.note('second attempt')$$, schedule => '@yearly', attempts => 9, backoff => '0');
SELECT shedlock_again('attempts seen');
CALL shedlock_run('attempts seen', $$CALL shedlock_run('attempts inner', 'SELECT pg_temp.note(''inner'')', once_every => '36500 days')$$, schedule => '@yearly', attempts => 9, backoff => '0');
SELECT shedlock_again('attempts seen');
CALL shedlock_run('attempts seen', $$CALL shedlock_run('attempts plain', 'SELECT pg_temp.note(''plain'')')$$, schedule => '@yearly', attempts => 9, backoff => '0');
SELECT shedlock_again('attempts seen');
CALL shedlock_run('attempts seen', $$CALL shedlock_run('attempts seen', 'SELECT pg_temp.note(''same lock'')', once_every => '36500 days')$$, schedule => '@yearly', attempts => 9, backoff => '0');
SELECT shedlock_again('attempts seen');
CALL shedlock_run('attempts seen', $$CALL shedlock_run('attempts inner fails', 'SELECT 1 / 0', once_every => '36500 days')$$, schedule => '@yearly', attempts => 9, backoff => '0');
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
CALL shedlock_run('attempts set', 'SET shedlock.attempt = 7', once_every => '36500 days');
DO $$ BEGIN PERFORM set_config('shedlock.tick', '', false); END $$;
RESET shedlock.tick;
SHOW shedlock.attempt;

-- Parallel workers read them, too.
CREATE TABLE attempts_parallel AS SELECT n FROM generate_series(1, 1000) n;
SELECT name AS parallel_mode FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SET :parallel_mode = on;
CALL shedlock_run('attempts parallel', 'CREATE TABLE attempts_read AS SELECT count(*) FROM attempts_parallel WHERE current_setting(''shedlock.attempt'') = ''1''
	AND current_setting(''shedlock.tick'') = ''1970-01-01 00:00:00+00''', once_every => '36500 days');
RESET :parallel_mode;
SELECT * FROM attempts_read;
SELECT * FROM pg_temp.my_locks();

DROP TABLE attempts, attempts_parallel, attempts_read;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
