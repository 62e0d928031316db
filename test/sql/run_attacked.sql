-- Calls that crashed the server, or whose answer was wrong.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

-- An interval over a cap that no setting has.
SELECT pg_temp.error_of($$SELECT shedlock_job('attacked', 'every 1 day', backoff => '2 h')$$);

-- A request is none if it is empty.
SELECT pg_temp.error_of($$SELECT shedlock_run_begin('attacked', request => '')$$);

-- Rows that were written by hand: a run of theirs ends, and a job that cannot be read is
-- not due.
SELECT shedlock_job(job, 'every 1 day', attempts => 3, lock_at_most_for => '1 h')
FROM unnest('{attacked schedule, attacked catch-up, attacked max_late, attacked backoff, attacked ages, attacked signs, attacked numbers, attacked times}'::text[]) job;
CREATE TEMP TABLE attacked_runs AS SELECT name, (shedlock_run_begin(name)).token FROM _shedlock_job ORDER BY name;
UPDATE _shedlock_job SET schedule = 'nonsense' WHERE name = 'attacked schedule';
UPDATE _shedlock_job SET catch_up = 'never' WHERE name = 'attacked catch-up';
UPDATE _shedlock_job SET max_late = '-1 day' WHERE name = 'attacked max_late';
UPDATE _shedlock_job SET backoff = '-1 h', overdue_after = '-1 year' WHERE name = 'attacked backoff';
UPDATE _shedlock_job SET backoff = '178000000 years' WHERE name = 'attacked ages';
UPDATE _shedlock_job SET slow_after = '-1 day 48 h' WHERE name = 'attacked signs';
UPDATE _shedlock_job SET attempts = -1, turns = -1, spent_token = 0 WHERE name = 'attacked numbers';
UPDATE _shedlock_job SET since = 'infinity', carried = 'infinity', created_at = '-infinity', declared_at = 'infinity' WHERE name = 'attacked times';
SELECT name, shedlock_run_end(name, token, 'failed') FROM attacked_runs;
SELECT name, b.token, b.state, regexp_replace(pg_temp.mask(b.reason), '^.*outcome: ', '') AS reason, b.next_at > clock_timestamp() AS ahead
FROM attacked_runs, LATERAL shedlock_run_begin(name) b;
SELECT name, state, problem FROM shedlock_jobs ORDER BY name;
-- Declared again, they can be read.
SELECT name, shedlock_job(name, 'every 1 day', attempts => 3, lock_at_most_for => '1 h', slow_after => CASE WHEN name = 'attacked signs' THEN interval '1 day' END)
FROM attacked_runs WHERE name NOT IN ('attacked numbers', 'attacked times');
SELECT name, problem FROM shedlock_jobs WHERE name NOT IN ('attacked numbers', 'attacked times') ORDER BY name;
UPDATE _shedlock_job SET since = '-infinity', carried = '-infinity' WHERE name = 'attacked times';
SELECT shedlock_again('attacked numbers'), shedlock_again('attacked times');
CALL shedlock_run('attacked numbers', 'SELECT 1');
CALL shedlock_run('attacked times', 'SELECT 1');
DROP TABLE attacked_runs;

-- The run of a released lock is not ended by its worker, even with the same outcome.
SELECT token FROM shedlock_run_begin('attacked force') \gset
SET client_min_messages = error;
SELECT shedlock_force_release('attacked force');
SELECT outcome, sqlstate FROM pg_temp.runs('attacked force');
SELECT shedlock_run_end('attacked force', :token, 'cancelled');
RESET client_min_messages;

-- A purge spares the ticks of jobs, and one that was given again.
SELECT shedlock_job('attacked purge', 'every 1 s', attempts => 2), shedlock_job('attacked purge gone', 'every 1 s');
SELECT token FROM shedlock_run_begin('attacked purge') \gset
SELECT shedlock_run_end('attacked purge gone', token, 'failed') FROM shedlock_run_begin('attacked purge gone');
SELECT shedlock_forget('attacked purge gone');
SELECT shedlock_once('attacked purge again', '2020-01-01');
SELECT shedlock_again('attacked purge again');
UPDATE _shedlock_tick SET tick = tick - '1 hour'::interval, claimed_at = claimed_at - '1 hour'::interval
WHERE name LIKE 'attacked purge%';
SELECT shedlock_purge('10 min', true) > 0 AS purged;
SELECT name FROM _shedlock_tick WHERE name LIKE 'attacked purge%' ORDER BY name;
SELECT shedlock_run_end('attacked purge', :token);

-- A parallel worker reads the tick after a ROLLBACK in the command, too.
CREATE TABLE attacked AS SELECT n FROM generate_series(1, 1000) n;
CREATE FUNCTION attacked_tick() RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$BEGIN RETURN current_setting('shedlock.tick') || current_setting('shedlock.attempt'); END$$;
CREATE PROCEDURE attacked() LANGUAGE plpgsql AS $$
DECLARE
	ticks integer;
	plan json;
BEGIN
	ROLLBACK;
	PERFORM set_config(s, '0', true)
	FROM unnest('{parallel_setup_cost, parallel_tuple_cost, min_parallel_table_scan_size}'::text[]) s;
	SET LOCAL parallel_leader_participation = off;
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT json) SELECT attacked_tick() FROM attacked' INTO plan;
	EXECUTE 'SELECT count(*) FROM (SELECT attacked_tick() AS tick FROM attacked OFFSET 0) t WHERE tick <> ''''' INTO ticks;
	RAISE NOTICE 'with workers: %; read in % of 1000 rows', (plan->0->'Plan'->>'Workers Launched')::integer > 0, ticks;
END
$$;
SELECT shedlock_job('attacked workers', 'every 1 day');
CALL shedlock_run('attacked workers', 'CALL attacked()');
DROP PROCEDURE attacked();
DROP FUNCTION attacked_tick();
DROP TABLE attacked;
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history;
