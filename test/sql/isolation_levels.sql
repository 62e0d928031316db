-- The isolation level changes no answer, and raises no serialization failure.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE FUNCTION pg_temp.siread() RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(*) FROM pg_locks
	WHERE mode = 'SIReadLock' AND pid = pg_backend_pid() AND
		  relation IN (SELECT oid FROM pg_class WHERE relname LIKE 'shedlock%')
$$;

BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM shedlock WHERE name = 'level';
SELECT shedlock_acquire('level');
SELECT shedlock_acquire('level');
SELECT shedlock_extend('level', lock_at_most_for => '2 h');
SELECT shedlock_release('level');
SELECT shedlock_acquire('level', '10 ms');
SELECT pg_sleep(0.05);
SELECT shedlock_acquire('level');
SELECT shedlock_assert('level') > 0 AS asserted;
SELECT shedlock_once('level', '2026-01-01'), shedlock_once('level', '2026-01-01'),
	   shedlock_once('level', '2026-01-02');
COMMIT;
SELECT shedlock_acquire('level');

BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) > 0 AS snapshot FROM pg_class;
SELECT shedlock_acquire('level');
SELECT shedlock_release('level');
SELECT shedlock_acquire('level');
SELECT shedlock_extend('level');
SELECT shedlock_assert('level') > 0 AS asserted;
SELECT shedlock_acquire_session('level session');
SELECT shedlock_once('level', '2026-01-02'), shedlock_once('level', '2026-01-03');
SELECT count(*) FROM shedlock_locks WHERE name LIKE 'level%';
SELECT pg_temp.siread();
COMMIT;
SELECT shedlock_release('level'), shedlock_release('level session');

-- The same holds if the level is the default, also for a run.
SET default_transaction_isolation = 'serializable';
SELECT shedlock_acquire('level');
CALL shedlock_run('level run', 'SHOW transaction_isolation');
SELECT name, outcome FROM shedlock_history WHERE name LIKE 'level%';
RESET default_transaction_isolation;

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
