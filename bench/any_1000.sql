SELECT count(*) FROM shedlock_acquire_any(shedlock_permits('all', 1000), 1000, '10 min');
SELECT count(shedlock_release(name)) FROM unnest(shedlock_permits('all', 1000)) name;
