-- A lock that is acquired and released again and again stays on its page: dead versions
-- are pruned on the way, whatever the backend remembers of its row.
DO $$
BEGIN
	FOR i IN 1..2000 LOOP
		IF NOT shedlock_acquire('no_bloat') OR NOT shedlock_release('no_bloat') THEN
			RAISE 'round %', i;
		END IF;
		COMMIT;
	END LOOP;
END
$$;
SELECT pg_relation_size('shedlock') / current_setting('block_size')::int <= 3 AS few_pages,
	   pg_relation_size('shedlock_pkey') / current_setting('block_size')::int <= 3 AS few_index_pages;

-- So do the counters of a job, with each of its runs.  All versions would need 17 pages; an
-- old snapshot, as of autovacuum, keeps some of them.
DO $$
DECLARE
	run bigint;
BEGIN
	FOR i IN 1..1000 LOOP
		SELECT token INTO run FROM shedlock_run_begin('no_bloat run');
		COMMIT;
		IF NOT shedlock_run_end('no_bloat run', run, CASE i % 2 WHEN 0 THEN 'succeeded' ELSE 'failed' END) THEN
			RAISE 'round %', i;
		END IF;
		COMMIT;
	END LOOP;
END
$$;
SELECT runs_succeeded, runs_failed FROM shedlock_stats WHERE name = 'no_bloat run';
SELECT pg_relation_size('_shedlock_stats') / current_setting('block_size')::int <= 10 AS few_pages,
	   pg_relation_size('_shedlock_stats_pkey') / current_setting('block_size')::int <= 4 AS few_index_pages;

TRUNCATE shedlock, _shedlock_tick, _shedlock_history, _shedlock_stats;
