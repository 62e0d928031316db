-- The jobs of server A's pg_cron.

-- show guarded
SELECT shedlock_cron_schedule('vacuum-orders', '* * * * *',
	'VACUUM (ANALYZE) demo.orders');
SELECT shedlock_cron_schedule('add-order', '* * * * *',
	'INSERT INTO demo.added DEFAULT VALUES');
SELECT shedlock_cron_schedule('divide', '* * * * *',
	'SELECT 1/0');
SELECT shedlock_job('endless', '* * * * *',
	lock_at_most_for => '3 s');
SELECT shedlock_cron_schedule('endless', '* * * * *',
	'SELECT pg_sleep(600)');

-- The same job on both servers, both on this database.
-- show report
SELECT cron.schedule('report-unguarded', '* * * * *',
	$$INSERT INTO demo.run VALUES ('without', 'report', 'A')$$);
SELECT shedlock_cron_schedule('report', '* * * * *',
	$$INSERT INTO demo.run VALUES ('with', 'report', 'A')$$);

\ir cron-rebuild.sql
