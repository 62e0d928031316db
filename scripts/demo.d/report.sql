-- Somebody calls it at last.

-- show run
CALL shedlock_run('send-report', 'SELECT 1');
