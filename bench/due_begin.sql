SELECT token FROM shedlock_run_begin('bench not due', '1 min');
