-- A job that nobody calls.

-- show declare
SELECT shedlock_job('send-report', 'every 1 day',
	overdue_after => '2 s');
