-- What the demo counts from.  Every table here is written by the jobs
-- themselves, or copied from pg_cron's own history: nothing is assumed.

CREATE SCHEMA demo;

-- The race: one row for each time a replica came to a job, run or skipped.  What
-- it was told was decided between came_at and noted_at, however slow the machine.
CREATE TABLE demo.race (
	variant text NOT NULL,				-- with, without
	job text NOT NULL,
	tick integer NOT NULL,
	replica integer NOT NULL,
	ran boolean NOT NULL,
	came_at timestamptz NOT NULL,
	noted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	left_at timestamptz,				-- when a lease had been given back
	PRIMARY KEY (variant, job, tick, replica)
);

-- The kills: who was killed when, and who had the lock next.
CREATE TABLE demo.takeover (
	scene text PRIMARY KEY,
	killed_at timestamptz,
	lock_until timestamptz,				-- as shedlock_locks showed it
	refused integer NOT NULL DEFAULT 0, -- tries of the other replica that were refused
	taken_at timestamptz
);

-- The hosts: the steps of their script, from the file that it writes.
CREATE TABLE demo.backup (
	host text NOT NULL,
	tick timestamptz NOT NULL,
	attempt integer NOT NULL,
	step integer NOT NULL,
	at numeric NOT NULL,				-- seconds since 1970
	PRIMARY KEY (host, tick, attempt, step)
);

-- The watchers: what they told of, from the file that their command writes.
CREATE TABLE demo.told (
	at numeric NOT NULL,				-- seconds since 1970
	news jsonb NOT NULL
);

-- The pg_cron jobs: one row per run.
CREATE TABLE demo.run (
	variant text NOT NULL,				-- with, without
	job text NOT NULL,
	server text NOT NULL,				-- whose pg_cron started it
	started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	ended_at timestamptz,
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY
);

-- The first minute in which all of these jobs ran.  A job that is scheduled when a minute
-- begins runs for it or for the next one.
CREATE VIEW demo.first_minute AS
SELECT CASE WHEN count(*) = 7 THEN max(first) END AS minute
FROM (SELECT min(tick) AS first
	  FROM shedlock_history
	  WHERE name IN ('vacuum-orders', 'add-order', 'divide', 'endless')
	  GROUP BY name
	  UNION ALL
	  SELECT min(date_trunc('minute', started_at))
	  FROM demo.run
	  WHERE job = 'report'
	  GROUP BY variant, CASE variant WHEN 'without' THEN server END) job;

-- Names of server A's pg_cron jobs, those that are gone included.
CREATE TABLE demo.job (jobid bigint PRIMARY KEY, jobname text NOT NULL);

-- What pg_cron says it started, on both servers.
CREATE TABLE demo.fired (
	server text NOT NULL,
	job text NOT NULL,
	tick timestamptz NOT NULL,
	status text NOT NULL,
	message text
);

-- When the job rebuild was scheduled again, and when it may end.
CREATE TABLE demo.rescheduled (at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE demo.rebuilt (at timestamptz NOT NULL DEFAULT clock_timestamp());

CREATE TABLE demo.orders (id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT clock_timestamp());
INSERT INTO demo.orders (at) SELECT clock_timestamp() FROM generate_series(1, 10000);
CREATE TABLE demo.added (at timestamptz NOT NULL DEFAULT clock_timestamp());

-- A job that outlives its minute: it works until the demo has seen the next one.
CREATE PROCEDURE demo.rebuild(variant text)
LANGUAGE plpgsql AS $$
DECLARE
	run_id bigint;
BEGIN
	INSERT INTO demo.run VALUES (variant, 'rebuild', 'A') RETURNING id INTO run_id;
	COMMIT;
	WHILE NOT EXISTS (SELECT FROM demo.rebuilt) LOOP
		PERFORM pg_sleep(0.2);
		COMMIT;
	END LOOP;
	UPDATE demo.run SET ended_at = clock_timestamp() WHERE id = run_id;
END
$$;
