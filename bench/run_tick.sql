CALL shedlock_run('bench run tick', 'SELECT 1', schedule => '* * * * *', time_zone => 'Europe/Berlin', catch_up => 'all');
