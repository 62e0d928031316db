-- The jobs of server A's pg_cron.

-- show guarded
SELECT shedlock_cron_schedule('vacuum-orders', '* * * * *',
	'VACUUM (ANALYZE) demo.orders',
	lock_at_most_for => '30 min', once_every => '1 min');
SELECT shedlock_cron_schedule('add-order', '* * * * *',
	'INSERT INTO demo.added DEFAULT VALUES',
	lock_at_most_for => '30 s', once_every => '1 min');
SELECT shedlock_cron_schedule('divide', '* * * * *',
	'SELECT 1/0', lock_at_most_for => '30 s', once_every => '1 min');
SELECT shedlock_cron_schedule('endless', '* * * * *',
	'SELECT pg_sleep(600)',
	lock_at_most_for => '3 s', once_every => '1 min');

-- The same job on both servers, both on this database.
-- show report
SELECT cron.schedule('report-unguarded', '* * * * *',
	$$INSERT INTO demo.run VALUES ('without', 'report', 'A')$$);
SELECT shedlock_cron_schedule('report', '* * * * *',
	$$INSERT INTO demo.run VALUES ('with', 'report', 'A')$$,
	lock_at_most_for => '5 min', once_every => '1 min');

\ir cron-rebuild.sql
