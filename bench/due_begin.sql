SELECT token FROM shedlock_run_begin('bench not due', '1 min', schedule => '0 3 * * *', time_zone => 'Europe/Berlin');
