-- A refused acquire writes nothing and keeps nothing.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SELECT shedlock_acquire('refused'), shedlock_acquire('refused session'),
	   shedlock_acquire('refused kept', '1 h', '1 h'),
	   shedlock_once('refused', '2026-01-01'), shedlock_once_every('refused period', '36500 days');
SELECT shedlock_release('refused session'), shedlock_release('refused kept');
SELECT shedlock_acquire_session('refused session');
SELECT shedlock_pause('refused paused');
SELECT shedlock_job('refused period', 'every 36500 days');

-- It leaves no transaction ID, no row version and no advisory lock.
SELECT array_agg(xmin::text || ctid::text ORDER BY name) AS rows FROM shedlock WHERE name LIKE 'refused%' \gset
SELECT array_agg(xmin::text || ctid::text ORDER BY name) AS ticks FROM _shedlock_tick WHERE name LIKE 'refused%' \gset
BEGIN;
SELECT name, shedlock_acquire(name), shedlock_acquire_token(name), shedlock_acquire_session(name),
	   shedlock_acquire(name, wait => '20 ms')
FROM unnest('{refused,refused session,refused kept,refused paused}'::text[]) name;
SELECT shedlock_once('refused', '2026-01-01'), shedlock_once_every('refused period', '36500 days');
SELECT pg_current_xact_id_if_assigned();
SELECT * FROM pg_temp.my_locks();
COMMIT;
SELECT array_agg(xmin::text || ctid::text ORDER BY name) = :'rows' AS rows FROM shedlock WHERE name LIKE 'refused%';
SELECT array_agg(xmin::text || ctid::text ORDER BY name) = :'ticks' AS ticks FROM _shedlock_tick WHERE name LIKE 'refused%';

-- It draws no token from the sequence.
SELECT last_value AS token FROM shedlock_token_seq \gset
SELECT count(*) FROM generate_series(1, 1000) WHERE shedlock_acquire('refused');
SELECT last_value = :token AS unused FROM shedlock_token_seq;

-- A skipped run writes nothing, either.
SELECT count(*) AS runs FROM _shedlock_history \gset
SET client_min_messages = warning;
CALL shedlock_run('refused', 'SELECT 1');
CALL shedlock_run('refused session', 'SELECT 1');
CALL shedlock_run('refused kept', 'SELECT 1');
CALL shedlock_run('refused paused', 'SELECT 1');
CALL shedlock_run('refused period', 'SELECT 1');
SELECT state, pg_current_xact_id_if_assigned() FROM shedlock_run_begin('refused period');
SELECT shedlock_job('refused period', 'every 36500 days'), pg_current_xact_id_if_assigned();
RESET client_min_messages;
SELECT count(*) = :runs AS runs FROM _shedlock_history;
SELECT array_agg(xmin::text || ctid::text ORDER BY name) = :'rows' AS rows FROM shedlock WHERE name LIKE 'refused%';

-- 1,000 refused calls write no byte of WAL.  The server itself writes some now and then,
-- hence the tries.
VACUUM shedlock, _shedlock_tick;
CHECKPOINT;
SELECT shedlock_acquire('refused'), shedlock_acquire('refused session'), shedlock_once('refused', '2026-01-01');
CREATE FUNCTION pg_temp.wal_of_refused(name text) RETURNS numeric
LANGUAGE plpgsql AS $$
DECLARE
	before pg_lsn;
	least numeric := 'infinity';
BEGIN
	FOR try IN 1..10 LOOP
		before := pg_current_wal_insert_lsn();
		FOR i IN 1..1000 LOOP
			IF shedlock_acquire(name) OR shedlock_once(name, '2026-01-01') THEN
				RAISE 'not refused';
			END IF;
		END LOOP;
		least := least(least, pg_current_wal_insert_lsn() - before);
		EXIT WHEN least = 0;
	END LOOP;
	RETURN least;
END
$$;
SELECT pg_temp.wal_of_refused('refused');
SELECT shedlock_once('refused session', '2026-01-01');
VACUUM shedlock, _shedlock_tick;
CHECKPOINT;
SELECT shedlock_acquire('refused session'), shedlock_once('refused session', '2026-01-01');
SELECT pg_temp.wal_of_refused('refused session');
SELECT shedlock_release('refused session');

TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history;
