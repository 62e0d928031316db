-- A session lock lasts as long as its session, unless the session releases it.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse

SELECT shedlock_acquire_session('session_lock');
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_acquire_session('session_lock');
SELECT shedlock_acquire('session_lock');
SELECT kind, lock_until - locked_at AS lasts, lock_at_most_for, pid = pg_backend_pid() AS pid
FROM shedlock WHERE name = 'session_lock';
SELECT state, kind, pid = pg_backend_pid() AS pid
FROM shedlock_locks WHERE name = 'session_lock';

-- A session lock does not expire at the time in its row, which is for ShedLock's clients.
UPDATE shedlock SET lock_until = locked_at - interval '1 day' WHERE name = 'session_lock';
SELECT shedlock_acquire('session_lock');
SELECT shedlock_assert('session_lock') > 0 AS asserted;
SELECT state FROM shedlock_locks WHERE name = 'session_lock';
SELECT shedlock_extend('session_lock');
SELECT lock_until - locked_at >= '1 h' AS extended FROM shedlock WHERE name = 'session_lock';
SELECT shedlock_release('session_lock');
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_release('session_lock');

-- Until the commit the transaction has the lock, in exclusive mode; the commit gives the
-- session share mode.
BEGIN;
SELECT shedlock_acquire_session('session_lock');
SELECT * FROM pg_temp.my_locks();
COMMIT;
SELECT * FROM pg_temp.my_locks();

-- A session lock that is released is held until the commit.
BEGIN;
SELECT shedlock_release('session_lock');
SELECT * FROM pg_temp.my_locks();
COMMIT;
SELECT * FROM pg_temp.my_locks();

-- A session lock can be acquired, released and acquired again in one transaction.
BEGIN;
SELECT shedlock_acquire_session('session_lock');
SELECT shedlock_release('session_lock');
SELECT shedlock_acquire_session('session_lock');
COMMIT;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_acquire_session('session_lock');
BEGIN;
SELECT shedlock_release('session_lock');
SELECT shedlock_acquire_session('session_lock');
COMMIT;
SELECT * FROM pg_temp.my_locks();

-- Its own session can release it by its token.
SELECT shedlock_release('session_lock', shedlock_token('session_lock'));
SELECT * FROM pg_temp.my_locks();

-- The session is not ended at the first limit of a lock that was extended, nor at the
-- limit of one that was released or rolled back.
SELECT shedlock_acquire_session('session_lock', '3 s');
SELECT shedlock_extend('session_lock', lock_at_most_for => '1 h');
SELECT shedlock_acquire_session('session_lock released', '3 s');
SELECT shedlock_release('session_lock released');
BEGIN;
SELECT shedlock_acquire_session('session_lock undone', '3 s');
ROLLBACK;
SELECT pg_sleep(3.2);
SELECT shedlock_assert('session_lock') > 0 AS asserted;

-- A reset, which ends the session of a pool's client, ends its session locks.
SELECT pg_advisory_unlock_all();
SELECT shedlock_release('session_lock');
SELECT shedlock_acquire_session('session_lock');

-- The same holds between a release, or a fence, and its commit; a lock that is acquired
-- after the reset stays.
BEGIN;
SELECT shedlock_release('session_lock');
SELECT pg_advisory_unlock_all();
SELECT shedlock_acquire_session('session_lock');
COMMIT;
SELECT * FROM pg_temp.my_locks();
BEGIN;
SELECT shedlock_assert('session_lock') > 0 AS asserted;
SELECT pg_advisory_unlock_all();
SELECT shedlock_token('session_lock');
SELECT shedlock_acquire_session('session_lock');
COMMIT;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_release('session_lock');
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_acquire_session('session_lock');

-- A lock that is acquired and not yet committed is not the session's, so it stays.
BEGIN;
SELECT shedlock_acquire_session('session_lock kept');
SELECT pg_advisory_unlock_all();
COMMIT;
SELECT shedlock_acquire_session('session_lock');
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_release('session_lock kept');

-- DISCARD ALL, which pools send, is such a reset.
DISCARD ALL;
SELECT count(*) FROM shedlock_locks WHERE name = 'session_lock';
SELECT shedlock_token('session_lock');
SELECT shedlock_acquire_session('session_lock');

-- It cannot outlive its session in a prepared transaction.
BEGIN;
SELECT shedlock_acquire_session('session_lock prepared');
PREPARE TRANSACTION 'session_lock';
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SELECT shedlock_assert('session_lock') > 0 AS asserted;
PREPARE TRANSACTION 'session_lock';
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SELECT shedlock_extend('session_lock');
PREPARE TRANSACTION 'session_lock';
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SELECT shedlock_release('session_lock');
PREPARE TRANSACTION 'session_lock';
\echo :LAST_ERROR_SQLSTATE
ROLLBACK PREPARED 'session_lock';
SELECT shedlock_assert('session_lock') > 0 AS asserted;
SELECT shedlock_acquire('session_lock prepared');

-- ANALYZE calls functions of the table's owner, which can neither acquire a session lock
-- nor use the session's locks.
CREATE ROLE regress_shedlock_owner;
CREATE SCHEMA session_lock_owned AUTHORIZATION regress_shedlock_owner;
SET ROLE regress_shedlock_owner;
CREATE FUNCTION session_lock_owned.f(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1';
CREATE TABLE session_lock_owned.t AS SELECT 1 AS n;
CREATE INDEX ON session_lock_owned.t (session_lock_owned.f(n));
CREATE OR REPLACE FUNCTION session_lock_owned.f(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
DECLARE
	call text;
	answer text;
BEGIN
	FOREACH call IN ARRAY '{shedlock_release(''session_lock''),"shedlock_extend(''session_lock'', lock_at_most_for => ''1 ms'')",shedlock_assert(''session_lock''),
						   shedlock_token(''session_lock''),"shedlock_acquire_session(''session_lock_owned'', ''1 ms'')",
						   shedlock_release(''session_lock lease''),shedlock_acquire(''session_lock owned'')}'::text[]
	LOOP
		BEGIN
			EXECUTE 'SELECT public.' || call INTO answer;
			RAISE NOTICE '%: %', call, answer;
		EXCEPTION WHEN insufficient_privilege THEN
			RAISE NOTICE '%: %', call, SQLERRM;
		END;
	END LOOP;
	RETURN 1;
END
$$;
RESET ROLE;
SELECT shedlock_acquire('session_lock lease');
ANALYZE session_lock_owned.t;
SELECT shedlock_assert('session_lock') > 0 AS asserted, shedlock_release('session_lock lease');
SET client_min_messages = warning;
DROP SCHEMA session_lock_owned CASCADE;
RESET client_min_messages;
DROP ROLE regress_shedlock_owner;

-- A session lock is free after the end of its session, long before its time.
SELECT shedlock_token('session_lock') AS token \gset
\c -
\set VERBOSITY sqlstate
SELECT shedlock_acquire('session_lock', wait => '10 s');
SELECT shedlock_release('session_lock', :token);

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
