CALL shedlock_run('bench not due', 'SELECT 1', schedule => '0 3 * * *', time_zone => 'Europe/Berlin');
