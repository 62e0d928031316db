SELECT * FROM shedlock_acquire_any(shedlock_permits('none', 100), 1);
