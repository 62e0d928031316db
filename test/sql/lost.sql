-- A caller that no longer owns a lock is told why.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

-- The error of an assert; the other functions give it as a WARNING.
CREATE FUNCTION pg_temp.told(name text, token bigint DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
	SELECT pg_temp.error_of(format('SELECT shedlock_assert(%L, %L)', name, token))
$$;

SELECT pg_temp.told('lost never');
SELECT pg_temp.told('lost never', 1);
SELECT shedlock_release('lost never');
SELECT shedlock_extend('lost never');

SELECT shedlock_acquire_token('lost expired', '10 ms') AS token \gset
SELECT pg_sleep(0.05);
SELECT pg_temp.told('lost expired');
SELECT pg_temp.told('lost expired', :token);

SELECT shedlock_acquire_token('lost released') AS token \gset
SELECT shedlock_release('lost released');
SELECT pg_temp.told('lost released');
SELECT pg_temp.told('lost released', :token);

SELECT shedlock_acquire_token('lost superseded', '10 ms') AS token \gset
SELECT pg_sleep(0.05);
SELECT shedlock_acquire('lost superseded', locked_by => 'somebody');
SELECT pg_temp.told('lost superseded', :token);

BEGIN;
SELECT shedlock_acquire_token('lost undone') AS token \gset
ROLLBACK;
SELECT pg_temp.told('lost undone', :token);
SELECT shedlock_acquire('lost undone');
BEGIN;
SELECT shedlock_release('lost undone');
SELECT shedlock_acquire_token('lost undone') AS token \gset
ROLLBACK;
SELECT pg_temp.told('lost undone', :token);

-- A WARNING has the words of the error.
SELECT shedlock_acquire('lost', locked_by => 'somebody');
UPDATE shedlock SET token = 1000, locked_by = 'somebody #1000', locked_at = '2026-01-02 03:04:05',
	lock_until = '2026-01-02 04:04:05' WHERE name = 'lost';
SET timezone = 'UTC';
SELECT shedlock_release('lost');
SELECT shedlock_extend('lost');
SELECT shedlock_release('lost', 999);
SELECT shedlock_release('lost', 1001);
UPDATE shedlock SET kind = NULL WHERE name = 'lost';
SELECT shedlock_release('lost', 1000);
RESET timezone;

-- After a reset the session no longer owns its locks.
SELECT shedlock_acquire('lost reset');
SELECT shedlock_acquire_session('lost reset session');
SELECT pg_advisory_unlock_all();
SELECT pg_temp.told('lost reset');
SELECT pg_temp.told('lost reset session');

-- Another session is told who acquired the lock, or that the holder's session has ended.
SELECT shedlock_acquire_token('lost other', locked_by => 'somebody') AS token \gset
SELECT shedlock_acquire_session('lost dead', locked_by => 'somebody');
SELECT shedlock_token('lost dead') AS dead \gset
\c -
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
SELECT shedlock_acquire('lost gone') FROM shedlock_acquire('lost dead', wait => '10 s');
SELECT pg_temp.error_of('SELECT shedlock_assert(''lost other'')');
SELECT pg_temp.error_of(format('SELECT shedlock_assert(''lost dead'', %s)', :dead));

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
