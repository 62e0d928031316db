-- The jobs of server B's pg_cron: report again, run on server A's database.
-- psql sets :host, the folder of the socket of server A.

-- show report
SELECT cron.schedule('report-unguarded', '* * * * *',
	$$INSERT INTO demo.run VALUES ('without', 'report', 'B')$$);
SELECT shedlock_cron_schedule('report', '* * * * *',
	$$INSERT INTO demo.run VALUES ('with', 'report', 'B')$$);
-- Server B's pg_cron runs them in the database of server A.
UPDATE cron.job SET nodename = :'host';
