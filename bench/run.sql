CALL shedlock_run('bench run', 'SELECT 1');
