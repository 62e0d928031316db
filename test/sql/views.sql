-- shedlock_locks shows every lock that is not free: its state, its kind and its holder.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE FUNCTION pg_temp.shown(pattern text)
RETURNS TABLE (name text, state text, kind text, mine boolean, remaining interval, waiters int)
LANGUAGE sql AS $$
	SELECT name, state, kind, pid = pg_backend_pid(),
		   date_trunc('minute', remaining + '30 s'), waiters
	FROM shedlock_locks WHERE name LIKE pattern ORDER BY name
$$;

SELECT shedlock_acquire('views lease', '10 min'), shedlock_acquire_session('views session', '20 min'),
	   shedlock_acquire('views kept', '1 h', '30 min'), shedlock_release('views kept'),
	   shedlock_acquire_session('views dead', NULL, '40 min'),
	   shedlock_acquire('views free'), shedlock_release('views free'),
	   shedlock_acquire('views expired', '1 ms'), pg_sleep(0.01);
SELECT shedlock_pause('views paused');
SELECT shedlock_pause('views lease', '2100-01-01', 'holder goes on');
SELECT * FROM pg_temp.shown('views%');

-- held_for is shown only for a held lock.
SELECT name, held_for < '1 min' AS held_for, locked_at IS NOT NULL AS locked_at
FROM shedlock_locks WHERE name LIKE 'views%' ORDER BY name;

-- The process is shown only while it has the advisory half, because with a pooler the
-- process of a lease serves another client by now.
SELECT name, pid = pg_backend_pid() AS mine, application_name = current_setting('application_name') AS application_name,
	   query LIKE 'SELECT name, pid%' AS query
FROM shedlock_locks WHERE name IN ('views lease', 'views session') ORDER BY name;

-- All columns of a held lock are shown.
SELECT name, state, kind,
	   held_for BETWEEN '0' AND '1 min' AS held_for,
	   clock_timestamp() - locked_at BETWEEN '0' AND '1 min' AS locked_at,
	   lock_until - locked_at AS lasts,
	   locked_by = current_setting('application_name') || '@' ||
				   coalesce(host(inet_client_addr()), '[local]') || ' #' || token AS locked_by,
	   token = shedlock_token('views session') AS token,
	   paused_until, paused_by, pause_reason
FROM shedlock_locks WHERE name = 'views session' \gx

-- The view is correct inside a transaction that acquires, extends or releases.
BEGIN;
SELECT shedlock_acquire('views open'), shedlock_acquire_session('views open session'),
	   shedlock_acquire('views free'), shedlock_acquire('views undone');
SELECT shedlock_release('views undone');
SELECT shedlock_extend('views lease', lock_at_most_for => '50 min');
SELECT shedlock_release('views session');
SELECT * FROM pg_temp.shown('views%');
ROLLBACK;

-- A fence is an advisory half, too.
BEGIN;
SELECT shedlock_assert('views lease') > 0 AS asserted;
SELECT * FROM pg_temp.shown('views lease');
COMMIT;

-- A run is shown while it runs.
CREATE TABLE views_seen AS SELECT * FROM pg_temp.shown('nothing');
CALL shedlock_run('views run', 'INSERT INTO views_seen SELECT * FROM pg_temp.shown(''views run'')', '10 min');
SELECT * FROM views_seen;
SELECT * FROM pg_temp.shown('views run');
DROP TABLE views_seen;

-- A session lock or run from before a promotion or a point-in-time recovery
-- may have its holder on another server: it is lost, and held until its lock_until.
SELECT pg_advisory_unlock_all();
UPDATE shedlock SET origin = origin # 1000000 WHERE name IN ('views session', 'views dead');
SELECT * FROM pg_temp.shown('views session');
SELECT shedlock_acquire('views session');
UPDATE shedlock SET lock_until = '2026-01-01' WHERE name = 'views session';
SELECT shedlock_acquire('views session');

-- A lock whose session has ended is kept for its at-least time, or is free at once.
UPDATE shedlock SET origin = origin # 1000000 WHERE name = 'views dead';
SELECT * FROM pg_temp.shown('views dead');
SELECT held_for FROM shedlock_locks WHERE name = 'views dead';
SELECT shedlock_acquire_session('views gone');
SELECT pg_advisory_unlock_all();
SELECT * FROM pg_temp.shown('views gone');

-- A version that nobody sees any more is not read: what is stored out of line may be gone.
SELECT string_agg(chr(131072 + n * n * 7919 % 40000), '') AS long FROM generate_series(1, 200) n \gset
SELECT shedlock_acquire(:'long', '1 h', locked_by => :'long'), shedlock_pause(:'long', reason => :'long');
SELECT count(*) FROM shedlock_locks WHERE name = :'long';
SELECT shedlock_resume(:'long');
SELECT reltoastrelid::regclass AS toast FROM pg_class WHERE oid = 'shedlock'::regclass \gset
VACUUM :toast;
SELECT count(*) FROM shedlock_locks WHERE name = :'long';

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
