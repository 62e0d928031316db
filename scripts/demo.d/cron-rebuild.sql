-- Part 5: a job that takes 70 seconds, every minute.  Unscheduled and scheduled
-- again it is a new job for pg_cron, which lets the old run go on.
SELECT shedlock_cron_schedule('rebuild', '* * * * *', $$CALL demo.rebuild('with')$$,
	lock_at_most_for => '10 min');
SELECT cron.schedule('rebuild-unguarded', '* * * * *', $$CALL demo.rebuild('without')$$);

-- Its history has no names, and forgets those of jobs that are gone.
INSERT INTO demo.job SELECT jobid, jobname FROM cron.job ON CONFLICT DO NOTHING;
