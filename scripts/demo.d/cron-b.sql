-- The jobs of server B's pg_cron: those of part 4, run on server A's database.
-- psql sets :host and :port of server A.
SELECT shedlock_cron_schedule('report', '* * * * *',
	$$INSERT INTO demo.run (variant, job, server) VALUES ('with', 'report', 'B')$$,
	lock_at_most_for => '5 min', once_every => '1 min');
SELECT cron.schedule('report-unguarded', '* * * * *',
	$$INSERT INTO demo.run (variant, job, server) VALUES ('without', 'report', 'B')$$);

UPDATE cron.job SET nodename = :'host', nodeport = :port;
