-- Every promise that the demo shows, and whether the data say that it was kept.

CREATE TABLE demo.promise (
	n integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	claim text NOT NULL,
	kept boolean,
	evidence text
);

-- The lease and once_every of the race go by the clock: a tick that a replica
-- came to more than 600 ms late, on a machine that was too busy, shows nothing
-- about them.  Neither does the tick after it, where the lease may still last.
CREATE VIEW demo.race_judged AS
SELECT job, tick, count(*) FILTER (WHERE ran) AS runs
FROM demo.race r
WHERE variant = 'with' AND
	  (job = 'write-invoices' OR
	   NOT EXISTS (SELECT FROM demo.race late
				   WHERE late.variant = 'with' AND late.job = r.job AND late.tick IN (r.tick, r.tick - 1) AND
						 late.tried_at > late.due + interval '600 ms'))
GROUP BY job, tick;

INSERT INTO demo.promise (claim, kept, evidence)
SELECT format('race, %s: one run per tick', job),
	   count(*) > 0 AND bool_and(runs = 1),
	   format('%s ticks, %s runs%s', count(*), sum(runs),
			  CASE WHEN count(*) < 20 THEN format(', %s ticks left out: this machine was too busy', 20 - count(*)) END)
FROM demo.race_judged
GROUP BY job
ORDER BY array_position('{send-mail,refresh-prices,write-invoices}', job);

INSERT INTO demo.promise (claim, kept, evidence)
SELECT 'race, without shedlock: duplicates', bool_and(duplicates > 0), format('%s duplicates', sum(duplicates))
FROM demo.race_count
WHERE variant = 'without';

INSERT INTO demo.promise (claim, kept, evidence)
SELECT 'killed: its session lock is free at once',
	   taken_at BETWEEN killed_at AND killed_at + interval '1 s', format('%s s', round(extract(epoch FROM taken_at - killed_at), 3))
FROM demo.takeover
WHERE scene = 'idle'
UNION ALL
SELECT 'killed in a statement: free when the server looks',
	   taken_at BETWEEN killed_at AND killed_at + interval '2 s', format('%s s', round(extract(epoch FROM taken_at - killed_at), 3))
FROM demo.takeover
WHERE scene = 'busy'
UNION ALL
SELECT 'killed: its lease is over before it is taken',
	   refused > 0 AND killed_at < lock_until AND taken_at BETWEEN lock_until AND lock_until + interval '1 s',
	   format('%s refusals, %s s after its end', refused, round(extract(epoch FROM taken_at - lock_until), 3))
FROM demo.takeover
WHERE scene = 'lease';

-- Ticks as both launchers count them, runs as the history has them.
INSERT INTO demo.promise (claim, kept, evidence)
SELECT 'pg_cron: VACUUM runs under the guard',
	   bool_and(outcome = 'succeeded') AND max(vacuum_count) >= count(*),
	   format('%s runs, the server counts %s', count(*), max(vacuum_count))
FROM shedlock_history, pg_stat_user_tables
WHERE name = 'vacuum-orders' AND relid = 'demo.orders'::regclass
UNION ALL
SELECT 'pg_cron: an INSERT is run once per tick',
	   count(DISTINCT date_trunc('minute', at)) = count(*) AND
	   count(*) = (SELECT ticks FROM demo.cron_count WHERE job = 'add-order'),
	   format('%s rows', count(*))
FROM demo.added
UNION ALL
SELECT 'pg_cron: a failure is seen, and frees the lock',
	   bool_and(outcome = 'failed' AND sqlstate = '22012') AND
	   (SELECT bool_and(status = 'failed' AND message LIKE '%division by zero%') FROM demo.fired WHERE job = 'divide') AND
	   NOT EXISTS (SELECT FROM shedlock_locks WHERE name = 'divide'),
	   format('%s runs, SQLSTATE %s', count(*), string_agg(DISTINCT sqlstate, ', '))
FROM shedlock_history
WHERE name = 'divide'
UNION ALL
SELECT 'pg_cron: lock_at_most_for ends a job',
	   bool_and(outcome = 'timed out' AND sqlstate = '57014' AND
				duration BETWEEN :'at_most'::interval AND :'at_most'::interval + interval '1.5 s'),
	   format('%s runs, the longest %s s', count(*), round(extract(epoch FROM max(duration)), 2))
FROM shedlock_history
WHERE name = 'endless'
UNION ALL
SELECT 'pg_cron: no job twice per tick or beside itself', count(*) = 6 AND bool_and(duplicates = 0),
	   format('%s jobs, %s runs, %s duplicates', count(*), sum(runs), sum(duplicates))
FROM demo.cron_count
WHERE variant = 'with'
UNION ALL
SELECT CASE variant WHEN 'with' THEN 'two servers: each tick once' ELSE 'two servers, without shedlock: ticks run twice' END,
	   CASE variant WHEN 'with' THEN duplicates = 0 AND runs = ticks AND tries > ticks ELSE duplicates > 0 END,
	   format('%s ticks, fired %s times, %s runs', ticks, tries, runs)
FROM demo.cron_count
WHERE job = 'report'
UNION ALL
SELECT CASE variant WHEN 'with' THEN 'scheduled anew: never beside itself' ELSE 'scheduled anew, without shedlock: beside itself' END,
	   CASE variant
	   WHEN 'with' THEN duplicates = 0 AND tries > runs AND
						EXISTS (SELECT FROM shedlock_history WHERE name = 'rebuild' AND outcome = 'succeeded')
	   ELSE duplicates > 0
	   END,
	   format('%s ticks, %s runs, %s beside another', ticks, runs, duplicates)
FROM demo.cron_count
WHERE job = 'rebuild';

-- No row, no proof: each promise above must have left one.
INSERT INTO demo.promise (claim, kept, evidence)
SELECT 'the demo: every promise was looked at', count(*) = 16, format('%s of 16', count(*))
FROM demo.promise;
