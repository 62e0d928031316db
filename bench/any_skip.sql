-- Claims a hundred of ten thousand rows until the transaction ends; nothing is written.
BEGIN;
SELECT id FROM queue WHERE NOT done LIMIT 100 FOR UPDATE SKIP LOCKED;
COMMIT;
