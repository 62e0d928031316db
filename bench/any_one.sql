-- One of a hundred is free.
SELECT name, token FROM shedlock_acquire_any(shedlock_permits('any', 100), 1, '10 min') \gset
SELECT shedlock_release(:name, :token);
