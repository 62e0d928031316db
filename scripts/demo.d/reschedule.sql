SELECT shedlock_cron_unschedule('rebuild');
SELECT cron.unschedule('rebuild-unguarded');
\ir cron-rebuild.sql
INSERT INTO demo.rescheduled DEFAULT VALUES;
