SELECT shedlock_acquire_token('one name', '10 min') AS token \gset
SELECT shedlock_release('one name', :token);
