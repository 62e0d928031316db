-- Unscheduled and scheduled again, a job is a new one for pg_cron, which lets
-- the old run go on.

-- show unschedule
SELECT cron.unschedule('rebuild-unguarded');
SELECT shedlock_cron_unschedule('rebuild');

\ir cron-rebuild.sql
INSERT INTO demo.rescheduled DEFAULT VALUES;
