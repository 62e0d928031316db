SELECT shedlock_tick('*/5 * * * *');
