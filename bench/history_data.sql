-- A database with runs of thirty days, names, and jobs: :runs, :names, :jobs of them.
SET client_min_messages = warning;
CREATE EXTENSION pg_cron;
CREATE EXTENSION shedlock;

-- pg_cron fires none of them soon.
SELECT shedlock_cron_schedule('job-' || n, format('%s %s %s %s *', n % 60, n % 24, 1 + n % 28, 1 + extract(month FROM now())::int % 12),
							  'SELECT work()')
FROM generate_series(0, :jobs - 1) n;

-- written like the extension's own writes, without the trigger
SET session_replication_role = replica;
INSERT INTO _shedlock_history (token, name, command, tick, attempt, started_at, ended_at, outcome, locked_role, locked_by, pid)
SELECT n, 'job-' || n % :jobs, 'SELECT work()', date_trunc('minute', at), 1, at, at + interval '0.1 s',
	   CASE WHEN n / :jobs % 50 = 0 THEN 'failed' ELSE 'succeeded' END, 'pg_database_owner'::regrole, 'pg_cron@[local] #' || n, 4711
FROM generate_series(1, :runs) n, LATERAL (SELECT now() - (:runs - n) * (interval '30 days' / :runs)) t (at);

-- Most names are free.  Of each thousand one is held, and one holder has died.
INSERT INTO shedlock (name, kind, lock_until, locked_at, locked_by, token)
SELECT CASE WHEN n < :jobs THEN 'job-' ELSE 'lock-' END || n, CASE WHEN n % 1000 IN (1, 2) THEN 'lease' END,
	   CASE WHEN n % 1000 = 1 THEN timezone('UTC', now() + interval '1 week') ELSE '2026-01-01' END,
	   '2026-01-01', 'app@[local] #' || n, n
FROM generate_series(0, :names - 1) n;

INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by, token, attempt)
SELECT 'job-' || n % :jobs, date_trunc('hour', now()), now(), 'pg_cron@[local] #' || n, n, 1
FROM generate_series(:runs - :jobs + 1, :runs) n;
INSERT INTO _shedlock_stats
SELECT 'job-' || n, 9800, 200, 0, 0, 0, 0, 1000, now(), now(), now() - interval '30 days' FROM generate_series(0, :jobs - 1) n;
