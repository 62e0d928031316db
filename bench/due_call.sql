CALL shedlock_run('bench not due', 'SELECT 1');
