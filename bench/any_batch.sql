-- Claims a hundred of a thousand names, and releases them.
\set lo random(0, 9) * 1000
SELECT array_agg(name) AS names, array_agg(token) AS tokens
FROM shedlock_acquire_any((SELECT array_agg('job-' || id) FROM queue WHERE id BETWEEN :lo AND :lo + 999), 100, '10 min') \gset
SELECT count(shedlock_release(name, token)) FROM unnest(:names::text[], :tokens::bigint[]) u(name, token);
