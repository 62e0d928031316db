-- Claims a hundred rows for ten minutes, and gives them back.
\set lo random(0, 9) * 1000
WITH claimed AS (
	UPDATE queue SET claimed_until = now() + '10 min'
	WHERE id IN (SELECT id FROM queue WHERE id BETWEEN :lo AND :lo + 999 AND claimed_until < now() LIMIT 100 FOR UPDATE SKIP LOCKED)
	RETURNING id)
SELECT array_agg(id) AS ids FROM claimed \gset
UPDATE queue SET claimed_until = '-infinity' WHERE id = ANY (:ids::integer[]);
