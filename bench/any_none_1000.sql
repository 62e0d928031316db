SELECT * FROM shedlock_acquire_any(shedlock_permits('none', 1000), 1000);
