-- A query of the last runs reads these runs and few others, however many there are, and
-- however long ago a job last ran.
INSERT INTO _shedlock_history (token, name, command, started_at, ended_at, outcome, locked_role, locked_by, pid)
SELECT n - 50000, CASE n % 3 WHEN 0 THEN 'reads often' WHEN 1 THEN 'reads ' || n % 100 ELSE 'reads ' || CASE WHEN n < 30000 THEN 'ago' ELSE 'lately' END END,
	   'SELECT 1', now() - (40000 - n) * interval '1 min', now(), CASE WHEN n % 10 < 7 THEN 'failed' ELSE 'succeeded' END, 10, 'somebody', 0
FROM generate_series(1, 40000) n;
ANALYZE _shedlock_history;

CREATE FUNCTION pg_temp.pages(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ' || query INTO plan;
	RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::int + (plan->0->'Plan'->>'Shared Read Blocks')::int;
END
$$;
-- The index on names has the runs of a name on pages of their own.
SELECT pg_temp.pages(query) <= most AS few, query
FROM (VALUES
	(20, 'SELECT * FROM shedlock_history LIMIT 20'),
	(20, 'SELECT * FROM shedlock_history ORDER BY token DESC LIMIT 20'),
	(40, 'SELECT * FROM shedlock_history WHERE name = ''reads often'' LIMIT 20'),
	(40, 'SELECT * FROM shedlock_history WHERE name = ''reads ago'' LIMIT 20'),
	(40, 'SELECT * FROM shedlock_history WHERE name = ''reads never'' LIMIT 20'),
	(30, 'SELECT * FROM shedlock_history WHERE started_at > now() - interval ''1 hour'''),
	(30, 'SELECT * FROM shedlock_history WHERE started_at > now() - interval ''1 hour'' ORDER BY started_at DESC LIMIT 20'),
	(30, 'SELECT name, outcome, count(*) FROM shedlock_history WHERE started_at > now() - interval ''1 hour'' GROUP BY name, outcome')) q (most, query);
SELECT pg_relation_size('_shedlock_history') / current_setting('block_size')::int > 600 AS many;

-- The view itself has the last run first.
SELECT token, name, outcome FROM shedlock_history LIMIT 2;
SELECT token, name, outcome FROM shedlock_history WHERE name = 'reads ago' AND outcome = 'succeeded' LIMIT 2;

-- The index of times has a run at once.
CALL shedlock_run('reads now', 'SELECT 1');
SELECT name, outcome FROM shedlock_history WHERE started_at > now() - interval '10 s' AND name LIKE 'reads n%';

-- What an acquire would be answered is looked up by the name.  The first call also reads
-- catalogs.
INSERT INTO shedlock (name, kind, lock_until, locked_at, locked_by)
SELECT 'reads ' || n, NULL, '2026-01-01', '2026-01-01', 'somebody' FROM generate_series(1, 20000) n;
SELECT shedlock_why('reads 1');
SELECT pg_temp.pages('SELECT shedlock_why(''reads 5000'')') <= 50 AS few,
	   pg_relation_size('shedlock') / current_setting('block_size')::int > 200 AS many;

-- Removed runs that an old transaction can still see do not make the end of a run slower.
BEGIN;
CREATE TABLE reads_old ();
PREPARE TRANSACTION 'reads old';
DELETE FROM _shedlock_history WHERE name <> 'reads now';
CREATE FUNCTION pg_temp.most_pages_of_ends() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	run bigint;
	most int := 0;
BEGIN
	-- one of them prunes the history
	FOR i IN 1..16 LOOP
		SELECT token INTO run FROM shedlock_run_begin('reads now');
		most := greatest(most, pg_temp.pages(format('SELECT shedlock_run_end(%L, %s)', 'reads now', run)));
	END LOOP;
	RETURN most;
END
$$;
SELECT pg_temp.most_pages_of_ends() <= 200 AS few;
ROLLBACK PREPARED 'reads old';

TRUNCATE shedlock, _shedlock_tick, _shedlock_history, _shedlock_stats;
