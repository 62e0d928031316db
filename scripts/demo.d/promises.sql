-- Every promise that the demo shows, and whether the data say that it was kept.

CREATE TABLE demo.promise (
	n integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	claim text NOT NULL,
	kept boolean,
	evidence text
);

INSERT INTO demo.promise (claim, kept, evidence)
SELECT format('%s: no run too many or too few', job),
	   runs > 0 AND duplicates = 0 AND NOT EXISTS (SELECT FROM demo.race_wrong_skip w WHERE w.job = c.job),
	   format('%s ticks, %s runs', ticks, runs)
FROM demo.race_count c
WHERE variant = 'with'
ORDER BY array_position('{send-mail,refresh-prices,write-invoices}', job);

INSERT INTO demo.promise (claim, kept, evidence)
SELECT 'the same without shedlock: duplicates', bool_and(duplicates > 0), format('%s duplicates', sum(duplicates))
FROM demo.race_count
WHERE variant = 'without';

-- How soon it is depends on the machine.  Without the kill it would not be for
-- longer than the other replica waits.
INSERT INTO demo.promise (claim, kept, evidence)
SELECT 'killed: the one that waits has its lock', taken_at >= killed_at,
	   format('after %s s', round(extract(epoch FROM taken_at - killed_at), 3))
FROM demo.takeover
WHERE scene = 'idle'
UNION ALL
SELECT 'killed in a statement: the same', taken_at >= killed_at,
	   format('after %s s', round(extract(epoch FROM taken_at - killed_at), 3))
FROM demo.takeover
WHERE scene = 'busy'
UNION ALL
SELECT 'killed: its lease stands until its time', refused > 0 AND taken_at >= lock_until,
	   format('taken %s s after it', round(extract(epoch FROM taken_at - lock_until), 3))
FROM demo.takeover
WHERE scene = 'lease';

-- What the history says of the hosts, and what their script itself wrote.  A step of
-- it takes 0.5 s.
INSERT INTO demo.promise (claim, kept, evidence)
SELECT 'a host vanishes: a second attempt follows',
	   array_agg(attempt || ' ' || outcome ORDER BY token) = '{1 lost,2 succeeded}' AND
	   count(DISTINCT tick) = 1 AND count(DISTINCT locked_by) = 2,
	   string_agg(attempt || ' ' || outcome, ', ' ORDER BY token)
FROM shedlock_history
WHERE name = 'nightly-backup'
UNION ALL
SELECT 'a host vanishes: never two scripts at once',
	   min(at) FILTER (WHERE attempt = 2) > max(at) FILTER (WHERE attempt = 1) + 0.5 AND
	   count(*) FILTER (WHERE attempt = 2) = 10 AND count(DISTINCT host) = 2 AND count(DISTINCT tick) = 1,
	   format('%s steps, then %s, %s s later', count(*) FILTER (WHERE attempt = 1), count(*) FILTER (WHERE attempt = 2),
			  round(min(at) FILTER (WHERE attempt = 2) - max(at) FILTER (WHERE attempt = 1), 2))
FROM demo.backup;

-- Ticks of the service's jobs, as its runs say.  A tick that was interrupted has two.
INSERT INTO demo.promise (claim, kept, evidence)
SELECT 'a service: each tick of ten jobs is done once',
	   count(DISTINCT name) = 10 AND count(DISTINCT (name, tick)) = count(*),
	   format('%s ticks, %s runs that succeeded', count(DISTINCT (name, tick)), count(*))
FROM shedlock_history
WHERE name LIKE 'job-%' AND outcome = 'succeeded'
UNION ALL
SELECT 'a replica is killed: others repeat its runs',
	   count(*) > 0 AND bool_and(second.attempt = 2 AND second.outcome = 'succeeded' AND split_part(second.locked_by, ' #', 1) <> split_part(first.locked_by, ' #', 1)),
	   format('%s lost, %s repeated', count(*), count(second.token))
FROM shedlock_history first LEFT JOIN shedlock_history second
	 ON second.name = first.name AND second.tick = first.tick AND second.token > first.token
WHERE first.name LIKE 'job-%' AND first.outcome = 'lost';

-- What the command of two watchers was told of a job.
INSERT INTO demo.promise (claim, kept, evidence)
SELECT 'nobody calls a job: that is told, and once',
	   count(*) = 1 AND bool_and(news ->> 'problem' = 'overdue' AND at > extract(epoch FROM declared_at + overdue_after)),
	   format('%s s after it was declared', round(max(at - extract(epoch FROM declared_at)), 1))
FROM demo.told JOIN shedlock_jobs ON name = news ->> 'name'
WHERE name = 'send-report' AND news ->> 'state' = 'begun'
UNION ALL
SELECT 'it runs: so is the end of that, and once',
	   count(*) = 1 AND bool_and(news ->> 'problem' = 'overdue' AND at > extract(epoch FROM started_at)),
	   format('%s s after the run began', round(max(at - extract(epoch FROM started_at)), 1))
FROM demo.told JOIN shedlock_history ON name = news ->> 'name'
WHERE name = 'send-report' AND news ->> 'state' = 'over';

-- Ticks as both launchers count them, runs as the history has them.
INSERT INTO demo.promise (claim, kept, evidence)
SELECT 'pg_cron: VACUUM runs under a lock',
	   bool_and(outcome = 'succeeded') AND max(vacuum_count) >= count(*),
	   format('%s runs, %s in pg_stat_user_tables', count(*), max(vacuum_count))
FROM shedlock_history, pg_stat_user_tables
WHERE name = 'vacuum-orders' AND relid = 'demo.orders'::regclass
UNION ALL
SELECT 'pg_cron: an INSERT is run once per tick',
	   count(*) > 0 AND count(DISTINCT tick) = count(*) AND count(*) = (SELECT count(*) FROM demo.added),
	   format('%s ticks, %s rows', count(DISTINCT tick), (SELECT count(*) FROM demo.added))
FROM shedlock_history
WHERE name = 'add-order'
UNION ALL
SELECT 'pg_cron: a failure is seen, its lock is free',
	   bool_and(outcome = 'failed' AND sqlstate = '22012') AND
	   (SELECT bool_and(status = 'failed' AND message LIKE '%division by zero%') FROM demo.fired WHERE job = 'divide') AND
	   NOT EXISTS (SELECT FROM shedlock_locks WHERE name = 'divide'),
	   format('%s runs, SQLSTATE %s', count(*), string_agg(DISTINCT sqlstate, ', '))
FROM shedlock_history
WHERE name = 'divide'
UNION ALL
SELECT 'pg_cron: lock_at_most_for ends a job',
	   bool_and(outcome = 'timed out' AND sqlstate = '57014' AND
				duration BETWEEN lock_at_most_for AND interval '599 s'),
	   format('%s runs, longest %s s', count(*), round(extract(epoch FROM max(duration)), 2))
FROM shedlock_history JOIN shedlock_jobs USING (name)
WHERE name = 'endless'
UNION ALL
SELECT 'pg_cron: no job has a duplicate', count(*) = 6 AND bool_and(duplicates = 0),
	   format('%s jobs, %s runs', count(*), sum(runs))
FROM demo.cron_count
WHERE variant = 'with'
UNION ALL
SELECT CASE variant WHEN 'with' THEN 'two servers: each tick is run once' ELSE 'the same without shedlock: duplicates' END,
	   CASE variant WHEN 'with' THEN duplicates = 0 AND runs = ticks AND tries > ticks ELSE duplicates > 0 END,
	   format('%s ticks, %s runs', ticks, runs)
FROM demo.cron_count
WHERE job = 'report'
UNION ALL
SELECT CASE variant WHEN 'with' THEN 'scheduled again: never two at once' ELSE 'the same without shedlock: two at once' END,
	   CASE variant
	   WHEN 'with' THEN duplicates = 0 AND tries > runs AND
						EXISTS (SELECT FROM shedlock_history WHERE name = 'rebuild' AND outcome = 'succeeded')
	   ELSE duplicates > 0
	   END,
	   format('%s ticks, %s runs', ticks, runs)
FROM demo.cron_count
WHERE job = 'rebuild';

-- No row, no proof: each promise above must have left one.
INSERT INTO demo.promise (claim, kept, evidence)
SELECT 'the demo: all of these were checked', count(*) = 22, format('%s of 22', count(*))
FROM demo.promise;
