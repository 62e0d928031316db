-- last 20 runs
SELECT * FROM shedlock_history LIMIT 20;
-- last 20 runs of a name
SELECT * FROM shedlock_history WHERE name = 'job-7' LIMIT 20;
-- runs of the last hour
SELECT * FROM shedlock_history WHERE started_at > now() - interval '1 hour';
-- last success of a name
SELECT * FROM shedlock_history WHERE name = 'job-7' AND outcome = 'succeeded' LIMIT 1;
-- last 20 runs of a name, sorted
SELECT * FROM shedlock_history WHERE name = 'job-7' ORDER BY started_at DESC LIMIT 20;
-- failures of the last day, sorted
SELECT * FROM shedlock_history WHERE outcome <> 'succeeded' AND started_at > now() - interval '1 day' ORDER BY started_at;
-- shedlock_locks
SELECT * FROM shedlock_locks;
-- count(*)
SELECT count(*) FROM shedlock;
-- shedlock_jobs
SELECT * FROM shedlock_jobs;
-- shedlock_cron_jobs
SELECT * FROM shedlock_cron_jobs;
-- shedlock_why
SELECT shedlock_why('job-7');
