-- Only the owner releases a lock, and only while it is held.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse

-- The session that acquired the lock needs no token.
SELECT shedlock_acquire('release');
SELECT shedlock_release('release');
SELECT shedlock_release('release');

-- The row stays: ShedLock's Java clients remember that it exists.
SELECT kind, lock_until <= clock_timestamp() AT TIME ZONE 'UTC' AS over,
	   lock_until >= locked_at AS since, token IS NOT NULL AS token
FROM shedlock WHERE name = 'release';
SELECT shedlock_acquire('release');

-- A lock that is not held, has expired or was taken over is not released.
SELECT shedlock_release('release never');
SELECT shedlock_acquire('release expired', '10 ms');
SELECT pg_sleep(0.05);
SELECT shedlock_release('release expired');
SELECT shedlock_acquire_token('release over', '10 ms') AS old \gset
SELECT pg_sleep(0.05);
SELECT shedlock_acquire_token('release over') AS new \gset
SELECT :new > :old AS grows;
\set VERBOSITY sqlstate
SELECT shedlock_release('release over', :old);
\set VERBOSITY terse
SELECT shedlock_acquire('release over');

-- Another session needs the token, and the right one.
SELECT shedlock_acquire_token('release token') AS token \gset
\c -
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse
SELECT shedlock_release('release token');
SELECT shedlock_release('release token', NULL);
\set VERBOSITY sqlstate
SELECT shedlock_release('release token', :token - 1);
\set VERBOSITY terse
SELECT shedlock_release('release token', 1000000000);
SELECT shedlock_release('release token', 0);
SELECT shedlock_release('release token', -1);
SELECT shedlock_acquire('release token');
SELECT shedlock_release('release token', :token);
\set VERBOSITY sqlstate
SELECT shedlock_release('release token', :token);
\set VERBOSITY terse
SELECT shedlock_acquire('release token');

-- A lock can be acquired, released and acquired again in one transaction.
BEGIN;
SELECT shedlock_acquire('release twice');
SELECT shedlock_release('release twice');
SELECT shedlock_release('release twice');
SELECT shedlock_acquire('release twice');
COMMIT;
SELECT shedlock_acquire('release twice');
SELECT shedlock_release('release twice');

-- A session does not own its leases after a reset, because with a pool the next client
-- begins there.  The token still proves the ownership.
SELECT shedlock_acquire_token('release reset') AS token \gset
SELECT pg_advisory_unlock_all();
SELECT shedlock_release('release reset');
SELECT shedlock_acquire('release reset');
SELECT shedlock_release('release reset', :token);
SELECT shedlock_acquire_token('release reset') AS token \gset
SELECT shedlock_acquire('release after');
DISCARD ALL;
SELECT shedlock_release('release reset');
SELECT shedlock_acquire('release fresh');
SELECT shedlock_release('release fresh');
SELECT shedlock_release('release after');
SELECT shedlock_release('release reset', :token);

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
