-- Calls that crashed the server, or whose answer was wrong.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

-- An interval over a cap that no setting has.
SELECT pg_temp.error_of($$SELECT shedlock_run_begin('attacked', once_every => '1 day', backoff => '2 h')$$);

-- A request is none if it is empty.
SELECT pg_temp.error_of($$SELECT shedlock_run_begin('attacked', request => '')$$);

-- Rows that were written by hand: a run of theirs ends.
SELECT token FROM shedlock_run_begin('attacked plan', once_every => '1 day', attempts => 3) \gset
UPDATE _shedlock_tick SET backoff = NULL WHERE name = 'attacked plan';
SELECT shedlock_run_end('attacked plan', :token, 'failed');
SELECT attempt, done, retry_at, attempts FROM _shedlock_tick WHERE name = 'attacked plan';
SELECT token FROM shedlock_run_begin('attacked catch-up', once_every => '1 day', attempts => 3) \gset
UPDATE _shedlock_tick SET catch_up = 'never' WHERE name = 'attacked catch-up';
SELECT shedlock_run_end('attacked catch-up', :token, 'failed');

-- The run of a released lock is not ended by its worker, even with the same outcome.
SELECT token FROM shedlock_run_begin('attacked force') \gset
SET client_min_messages = error;
SELECT shedlock_force_release('attacked force');
SELECT outcome, sqlstate FROM pg_temp.runs('attacked force');
SELECT shedlock_run_end('attacked force', :token, 'cancelled');
RESET client_min_messages;

-- A purge spares a tick that has another attempt, or was given again.
SELECT token FROM shedlock_run_begin('attacked purge', once_every => '1 s', attempts => 2) \gset
SELECT shedlock_run_end('attacked purge used', token, 'failed') FROM shedlock_run_begin('attacked purge used', once_every => '1 s');
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
CALL shedlock_run('attacked workers', 'CALL attacked()', once_every => '1 day');
DROP PROCEDURE attacked();
DROP FUNCTION attacked_tick();
DROP TABLE attacked;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
