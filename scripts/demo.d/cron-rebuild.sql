-- A job that takes longer than its minute.

-- show schedule
SELECT cron.schedule('rebuild-unguarded', '* * * * *',
	$$CALL demo.rebuild('without')$$);
SELECT shedlock_cron_schedule('rebuild', '* * * * *',
	$$CALL demo.rebuild('with')$$);

-- pg_cron's history has no names, and forgets those of jobs that are gone.
INSERT INTO demo.job SELECT jobid, jobname FROM cron.job ON CONFLICT DO NOTHING;
