CALL shedlock_run('bench run', 'INSERT INTO written VALUES (1)');
