-- CALL shedlock_run goes on, run after run, while a tick of its job is due.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse

SET timezone = 'UTC';
CREATE TABLE goes_on (id serial, tick text, attempt text);
CREATE FUNCTION pg_temp.pass(job text, years integer) RETURNS void LANGUAGE sql AS $$
	UPDATE _shedlock_tick SET tick = tick - years * interval '1 year', claimed_at = claimed_at - years * interval '1 year' WHERE name = job;
	UPDATE _shedlock_history SET tick = tick - years * interval '1 year' WHERE name = job;
	UPDATE _shedlock_job SET since = since - years * interval '1 year' WHERE name = job
$$;
CREATE FUNCTION pg_temp.years_ago(tick timestamptz) RETURNS numeric LANGUAGE sql AS $$
	SELECT extract(year FROM shedlock_tick('@yearly')) - extract(year FROM tick)
$$;
CREATE FUNCTION pg_temp.tick_runs(job text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(concat_ws(' ', pg_temp.years_ago(tick), attempt, outcome), ', ' ORDER BY token) FROM shedlock_history WHERE name = job
$$;
CREATE FUNCTION goes_on_note() RETURNS void LANGUAGE sql AS $$
	INSERT INTO goes_on (tick, attempt) VALUES (current_setting('shedlock.tick'), current_setting('shedlock.attempt'))
$$;
-- Ends a CALL that would go on for ever.
CREATE FUNCTION pg_temp.few(job text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	ASSERT (SELECT count(*) < 4 FROM shedlock_history WHERE name = job), 'too many runs';
END
$$;

-- A backlog in one CALL; each run reads its own tick, commits, and is told.
SELECT shedlock_job('backlog', '@yearly', catch_up => 'all'), pg_temp.pass('backlog', 4);
CALL shedlock_run('backlog', 'SELECT goes_on_note(); SELECT pg_temp.years_ago(now())');
SELECT pg_temp.tick_runs('backlog');
SELECT string_agg(concat(pg_temp.years_ago(tick::timestamptz), ' ', attempt), ', ' ORDER BY id) AS read, count(DISTINCT xmin::text) AS transactions FROM goes_on;
SELECT current_setting('shedlock.tick') AS tick;

-- It stops at the first failure; the next one goes on from there.
TRUNCATE goes_on;
SELECT shedlock_job('stops', '@yearly', catch_up => 'all'), pg_temp.pass('stops', 3);
CALL shedlock_run('stops', 'SELECT goes_on_note(); SELECT 1 / (SELECT count(*) - 2 FROM goes_on)');
SELECT pg_temp.tick_runs('stops');
CALL shedlock_run('stops', 'SELECT 1');
SELECT pg_temp.tick_runs('stops');

-- After shedlock_again the older tick, and then the newer one; with one attempt and more
SELECT shedlock_job('older', '@yearly'), pg_temp.pass('older', 1);
CALL shedlock_run('older', 'SELECT 1');
SELECT pg_temp.pass('older', 1), shedlock_again('older');
CALL shedlock_run('older', 'SELECT 1');
SELECT pg_temp.tick_runs('older');
SELECT shedlock_job('older', '@yearly', attempts => 3), pg_temp.pass('older', 1), shedlock_again('older');
CALL shedlock_run('older', 'SELECT 1 / 0');
SELECT pg_temp.tick_runs('older');
CALL shedlock_run('older', 'SELECT 1');
SELECT pg_temp.tick_runs('older');

-- A tick that its own command gives again is for the next CALL.
SELECT shedlock_job('own', 'every 36500 days');
CALL shedlock_run('own', 'SELECT shedlock_again(''own''), pg_temp.few(''own'')');
SELECT count(*) FROM shedlock_history WHERE name = 'own';
CALL shedlock_run('own', 'SELECT 1');
CALL shedlock_run('own', 'SELECT 1');
SELECT attempt, left(command, 28) AS command FROM shedlock_history WHERE name = 'own' ORDER BY token;
-- So are the newer ones behind it.
SELECT shedlock_job('own backlog', '@yearly', catch_up => 'all'), pg_temp.pass('own backlog', 2);
CALL shedlock_run('own backlog', 'SELECT shedlock_again(''own backlog''), pg_temp.few(''own backlog'')');
SELECT pg_temp.tick_runs('own backlog');
CALL shedlock_run('own backlog', 'SELECT 1', on_busy => 'error');
SELECT pg_temp.tick_runs('own backlog');

-- It stops without a word if another run cannot begin: paused, kept, taken.
SELECT shedlock_job(job, '@yearly', catch_up => 'all'), pg_temp.pass(job, 2) FROM unnest('{ends paused, ends kept, ends forgotten, ends changed, ends skipped}'::text[]) job;
CALL shedlock_run('ends paused', 'SELECT shedlock_pause(''ends paused'', ''2100-01-01'')', on_busy => 'error');
CALL shedlock_run('ends kept', 'SELECT 1', '2 h', '1 h', on_busy => 'error');
SELECT pg_temp.tick_runs('ends paused'), pg_temp.tick_runs('ends kept');
-- It goes by what is declared now.
CALL shedlock_run('ends forgotten', 'SELECT shedlock_forget(''ends forgotten''), pg_temp.few(''ends forgotten'')');
SELECT pg_temp.tick_runs('ends forgotten');
CALL shedlock_run('ends changed', 'SELECT shedlock_job(''ends changed'', ''@yearly'', catch_up => ''all'', max_late => ''1 s'')');
SELECT pg_temp.tick_runs('ends changed');
CALL shedlock_run('ends skipped', 'SELECT shedlock_skip(''ends skipped'')');
SELECT pg_temp.tick_runs('ends skipped');

-- What is no job has one run.
CALL shedlock_run('no job', 'SELECT 1');
SELECT count(*) FROM shedlock_history WHERE name = 'no job';

-- Inside another run, too; the outer one keeps its lock and its tick.
TRUNCATE goes_on;
SELECT shedlock_job('inner', '@yearly', catch_up => 'all'), pg_temp.pass('inner', 2), shedlock_job('outer', 'every 36500 days');
CREATE PROCEDURE goes_on_outer() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM goes_on_note();
	COMMIT;
	PERFORM shedlock_assert('outer');
END
$$;
CALL shedlock_run('outer', 'CALL shedlock_run(''inner'', ''CALL goes_on_outer()'')');
SELECT pg_temp.tick_runs('inner');
SELECT outcome FROM shedlock_history WHERE name = 'outer';
SELECT count(DISTINCT tick) FROM goes_on;

-- A long backlog needs no more memory than a short one.
CREATE TABLE goes_on_memory (id serial, bytes bigint);
SELECT shedlock_job('long', 'every 10 s', catch_up => 'all');
UPDATE _shedlock_job SET since = since - interval '1000 s' WHERE name = 'long';
CALL shedlock_run('long', 'INSERT INTO goes_on_memory (bytes) SELECT sum(total_bytes) FROM pg_backend_memory_contexts');
SELECT count(*) >= 100 AS runs, max(bytes) FILTER (WHERE id > 20) - max(bytes) FILTER (WHERE id <= 20) < 500000 AS bounded FROM goes_on_memory;
DROP TABLE goes_on_memory;

-- Each run has the whole of lock_at_most_for and of statement_timeout.
SELECT shedlock_job('times', '@yearly', catch_up => 'all', lock_at_most_for => '4 s'), pg_temp.pass('times', 3);
SET statement_timeout = '3 s';
CALL shedlock_run('times', 'SELECT pg_sleep(1.5)');
RESET statement_timeout;
SELECT pg_temp.tick_runs('times');

-- It does not wait for a tick that comes soon: that has a timer of its own.
SELECT date_trunc('second', clock_timestamp()) - interval '15 s' AS from \gset
SELECT shedlock_job('soon', 'every 20 s from ' || to_char(:'from'::timestamptz, 'YYYY-MM-DD HH24:MI:SS'));
CALL shedlock_run('soon', format('SELECT pg_sleep(greatest(0, extract(epoch FROM %L - clock_timestamp())))', :'from'::timestamptz + interval '18.5 s'));
SELECT count(*) FILTER (WHERE tick > (SELECT min(ended_at) FROM shedlock_history WHERE name = 'soon')) AS waited_for FROM shedlock_history WHERE name = 'soon';

SELECT * FROM pg_temp.my_locks();
DROP TABLE goes_on;
DROP FUNCTION goes_on_note();
DROP PROCEDURE goes_on_outer();
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history, _shedlock_stats;
