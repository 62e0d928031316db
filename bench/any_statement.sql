-- The same, by a hundred calls in one statement
SELECT name, token FROM (SELECT name, shedlock_acquire_token(name, '10 min') AS token FROM unnest(shedlock_permits('any', 100)) name OFFSET 0) n
WHERE token IS NOT NULL \gset
SELECT shedlock_release(:name, :token);
