-- A hundred problems of jobs that were well: 25 of each kind, from job-100 on.
SET client_min_messages = warning;
SET session_replication_role = replica;
-- later than the tokens that were written by hand
SELECT setval('shedlock_token_seq', 100000000);

-- overdue: their last run was a year ago
UPDATE _shedlock_job SET created_at = created_at - interval '400 days', declared_at = declared_at - interval '400 days', since = since - interval '400 days'
WHERE name IN (SELECT 'job-' || n FROM generate_series(100, 124) n);
UPDATE _shedlock_tick SET tick = tick - interval '400 days' WHERE name IN (SELECT 'job-' || n FROM generate_series(100, 124) n);

-- gave up: one attempt, and it failed
SELECT count(shedlock_again('job-' || n)) FROM generate_series(125, 149) n;
SELECT count(shedlock_run_end(name, token, 'failed'))
FROM (SELECT 'job-' || n AS name FROM generate_series(125, 149) n) j, shedlock_run_begin(name);

-- slow: at work for an hour
UPDATE _shedlock_job SET slow_after = '1 min' WHERE name IN (SELECT 'job-' || n FROM generate_series(150, 174) n);
SELECT count(shedlock_again('job-' || n)) FROM generate_series(150, 174) n;
SELECT count(token) FROM (SELECT 'job-' || n AS name FROM generate_series(150, 174) n) j, shedlock_run_begin(name, '1 day');
UPDATE shedlock SET locked_at = locked_at - interval '1 hour' WHERE name IN (SELECT 'job-' || n FROM generate_series(150, 174) n);

-- cron: fired at other times than those of the declaration
SELECT count(*) FROM (SELECT cron.alter_job(jobid, '0 0 29 2 *') FROM cron.job WHERE jobname IN (SELECT 'job-' || n FROM generate_series(175, 199) n) OFFSET 0) j;
