SELECT shedlock_tick('0 3 * * *', 'Europe/Berlin');
