-- The counts of every job, from what the jobs and pg_cron wrote.

-- As shedlock_once_every counts: a quarter of the period belongs to the next one.
CREATE FUNCTION demo.second(t timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE RETURN floor(extract(epoch FROM t) + 0.25);

-- A duplicate is a run of a tick that another replica ran too.  With shedlock, of
-- a job that goes by the clock, it is a run that came while the lock was surely
-- held, or in a second that surely had its run: when the machine is so busy that
-- a timer comes later than that, the job is run again, and rightly so.
CREATE VIEW demo.race_duplicate AS
SELECT r.variant, r.job, count(*) AS duplicates
FROM demo.race r
WHERE r.ran AND
	  EXISTS (SELECT FROM demo.race q
			  WHERE q.variant = r.variant AND q.job = r.job AND q.ran AND
					(q.noted_at, q.tick, q.replica) < (r.noted_at, r.tick, r.replica) AND
					CASE WHEN r.variant = 'without' OR r.job = 'write-invoices' THEN q.tick = r.tick
						 WHEN r.job = 'send-mail' THEN
							  greatest(r.noted_at - q.came_at, q.noted_at - r.came_at) < interval '700 ms'
						 ELSE demo.second(q.came_at) = demo.second(r.noted_at) AND
							  demo.second(r.came_at) = demo.second(q.noted_at)
					END)
GROUP BY r.variant, r.job;

-- A wrong skip is one that no run explains: nobody can have held the lock then,
-- had that second, or claimed that tick or a later one.
CREATE VIEW demo.race_wrong_skip AS
SELECT s.job, count(*) AS skips
FROM demo.race s
WHERE NOT s.ran AND
	  NOT EXISTS (SELECT FROM demo.race q
				  WHERE q.variant = s.variant AND q.job = s.job AND q.ran AND
						CASE s.job
						WHEN 'write-invoices' THEN q.tick >= s.tick
						WHEN 'send-mail' THEN q.came_at <= s.noted_at AND
							 s.came_at <= greatest(q.noted_at + interval '700 ms', q.left_at)
						ELSE demo.second(q.came_at) <= demo.second(s.noted_at) AND
							 demo.second(q.noted_at) >= demo.second(s.came_at)
						END)
GROUP BY s.job;

CREATE VIEW demo.race_count AS
SELECT r.variant, r.job, r.ticks, r.tries, r.runs, coalesce(d.duplicates, 0) AS duplicates
FROM (SELECT variant, job, count(DISTINCT tick) AS ticks, count(*) AS tries, count(*) FILTER (WHERE ran) AS runs
	  FROM demo.race
	  GROUP BY variant, job) r
	 LEFT JOIN demo.race_duplicate d USING (variant, job);

-- pg_cron: every run has a variant and a tick; those of part 6 are in the
-- history only.
CREATE VIEW demo.cron_run AS
SELECT 'with' AS variant, name AS job, tick, started_at, ended_at
FROM shedlock_history
WHERE name IN ('vacuum-orders', 'add-order', 'divide', 'endless')
UNION ALL
SELECT variant, job, date_trunc('minute', started_at), started_at, ended_at
FROM demo.run;

-- A duplicate is a run of a tick that ran already or, for the job that
-- outlives its minute, a run that began during another.
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
SELECT j.n, j.part, j.job, w.ticks, w.tries, w.runs, w.tries - w.runs AS skips, w.duplicates,
	   o.runs AS runs_without, o.duplicates AS duplicates_without
FROM (VALUES (1, 1, 'send-mail'), (2, 1, 'refresh-prices'), (3, 1, 'write-invoices'),
			 (4, 6, 'vacuum-orders'), (5, 6, 'add-order'), (6, 6, 'divide'), (7, 6, 'endless'),
			 (8, 7, 'report'), (9, 8, 'rebuild')) AS j (n, part, job)
	 JOIN demo.count w USING (job)
	 LEFT JOIN demo.count o ON o.job = j.job AND o.variant = 'without'
WHERE w.variant = 'with';
