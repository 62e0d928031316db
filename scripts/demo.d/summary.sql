-- The counts of every job, from what the jobs and pg_cron wrote.

-- Race: a duplicate is a run of a tick that another replica ran too.
CREATE VIEW demo.race_count AS
SELECT variant, job, count(DISTINCT tick) AS ticks, count(*) AS tries,
	   count(*) FILTER (WHERE ran) AS runs,
	   count(*) FILTER (WHERE ran) - count(DISTINCT tick) FILTER (WHERE ran) AS duplicates
FROM demo.race
GROUP BY variant, job;

-- pg_cron: every run has a variant and a tick; those of part 3 are in the
-- history only.
CREATE VIEW demo.cron_run AS
SELECT 'with' AS variant, name AS job, tick, started_at, ended_at
FROM shedlock_history
WHERE name IN ('vacuum-orders', 'add-order', 'divide', 'endless')
UNION ALL
SELECT variant, job, date_trunc('minute', started_at), started_at, ended_at
FROM demo.run;

-- A duplicate is a run of a tick that ran already or, for the job that
-- outlives its minute, a run that began beside another.
CREATE VIEW demo.cron_duplicate AS
SELECT variant, job, count(*) AS duplicates
FROM (SELECT variant, job, tick,
			 row_number() OVER (PARTITION BY variant, job, tick ORDER BY started_at) > 1
			 OR job = 'rebuild' AND started_at < max(coalesce(ended_at, 'infinity')) OVER
				(PARTITION BY variant, job ORDER BY started_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS again
	  FROM demo.cron_run) r
WHERE again
GROUP BY variant, job;

CREATE VIEW demo.cron_count AS
SELECT f.variant, f.job, f.ticks, f.tries, coalesce(r.runs, 0) AS runs, coalesce(d.duplicates, 0) AS duplicates
FROM (SELECT CASE WHEN job LIKE '%-unguarded' THEN 'without' ELSE 'with' END AS variant,
			 replace(job, '-unguarded', '') AS job, count(DISTINCT tick) AS ticks, count(*) AS tries
	  FROM demo.fired
	  GROUP BY 1, 2) f
	 LEFT JOIN (SELECT variant, job, count(*) AS runs FROM demo.cron_run GROUP BY variant, job) r
	 USING (variant, job)
	 LEFT JOIN demo.cron_duplicate d USING (variant, job);

CREATE VIEW demo.count AS
SELECT * FROM demo.race_count UNION ALL SELECT * FROM demo.cron_count;

CREATE VIEW demo.summary AS
SELECT j.job, what, w.ticks, w.tries, w.runs, w.tries - w.runs AS skips, w.duplicates,
	   o.runs AS runs_without, o.duplicates AS duplicates_without
FROM (VALUES (1, 'send-mail', '8 replicas, lease'),
			 (2, 'refresh-prices', '8 replicas, period'),
			 (3, 'write-invoices', '8 replicas, tick'),
			 (4, 'vacuum-orders', 'pg_cron'),
			 (5, 'add-order', 'pg_cron'),
			 (6, 'divide', 'pg_cron, fails'),
			 (7, 'endless', 'pg_cron, too long'),
			 (8, 'report', 'pg_cron, 2 servers'),
			 (9, 'rebuild', 'pg_cron, made anew')) AS j (n, job, what)
	 JOIN demo.count w USING (job)
	 LEFT JOIN demo.count o ON o.job = j.job AND o.variant = 'without'
WHERE w.variant = 'with'
ORDER BY n;
