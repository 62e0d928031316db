-- A free lock is acquired; a held lock is refused, also to the session that holds it.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SELECT shedlock_acquire('acquire');
SELECT shedlock_acquire('acquire');
SELECT shedlock_acquire_token('acquire');
SELECT shedlock_acquire_session('acquire');

-- The row: ShedLock's four columns in UTC, whatever the session's time zone,
-- and the holder.
SET timezone = 'Asia/Tokyo';
SELECT lock_until - locked_at AS lasts,
	   clock_timestamp() AT TIME ZONE 'UTC' - locked_at BETWEEN '0' AND '1 min' AS in_utc,
	   locked_by = current_setting('application_name') || '@' ||
				   coalesce(host(inet_client_addr()), '[local]') || ' #' || token AS locked_by,
	   token = shedlock_token('acquire') AS token,
	   kind,
	   locked_role = current_user::regrole AS locked_role,
	   keep_until,
	   lock_at_most_for,
	   pid = pg_backend_pid() AS pid,
	   backend_start = (SELECT a.backend_start FROM pg_stat_activity a
						WHERE a.pid = pg_backend_pid()) AS backend_start,
	   origin IS NOT NULL AS origin,
	   paused_until, paused_by, pause_reason
FROM shedlock WHERE name = 'acquire' \gx
RESET timezone;

-- A committed lease has no advisory half, an uncommitted one has.
SELECT * FROM pg_temp.my_locks();
BEGIN;
SELECT shedlock_acquire('acquire open');
SELECT * FROM pg_temp.my_locks();
COMMIT;
SELECT * FROM pg_temp.my_locks();

-- A refused acquire leaves no lock behind: not even one on the table, which would keep an
-- ALTER TABLE waiting, and that the release.
BEGIN;
SELECT shedlock_acquire('acquire'), (SELECT count(*) FROM shedlock_acquire_any('{acquire}')) AS of_some;
SELECT * FROM pg_temp.my_locks();
SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation IN ('shedlock'::regclass, 'shedlock_pkey'::regclass);
COMMIT;

-- Every argument can be given by name, and as a parameter without a type.
SELECT shedlock_acquire(locked_by => 'worker 7', name => 'acquire named',
						lock_at_least_for => '1 min', lock_at_most_for => '90 min', wait => '0');
SELECT lock_until - locked_at AS lasts, keep_until - locked_at AS at_least,
	   lock_at_most_for, locked_by = 'worker 7 #' || token AS locked_by
FROM shedlock WHERE name = 'acquire named';
PREPARE acquire AS SELECT shedlock_acquire($1, $2, $3, $4, $5);
EXECUTE acquire('acquire prepared', '5 min', NULL, NULL, NULL);
EXECUTE acquire('acquire prepared', '5 min', NULL, NULL, NULL);
PREPARE acquire_token AS SELECT shedlock_acquire_token($1, $2) IS NULL AS refused;
EXECUTE acquire_token('acquire token', '5 min');
EXECUTE acquire_token('acquire token', '5 min');
DEALLOCATE ALL;

-- A lock that one statement acquires twice is refused the second time.
SELECT n, shedlock_acquire('acquire ' || (n % 3)) FROM generate_series(1, 6) n;
SELECT shedlock_acquire('acquire if') AS got \gset
\if :got
\echo taken
\endif
SELECT count(*) FROM generate_series(1, 3) WHERE shedlock_acquire('acquire where');

-- A lease outlives its session; other sessions see it held until it expires.
SELECT shedlock_acquire('acquire short', '3 s');
SELECT shedlock_acquire('acquire short');
\c -
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
SELECT shedlock_acquire('acquire');
SELECT pg_sleep(3);
SELECT shedlock_acquire('acquire short', '1 min');
SELECT shedlock_acquire('acquire short');
SELECT pid = pg_backend_pid() AS mine, lock_until - locked_at AS lasts
FROM shedlock WHERE name = 'acquire short';

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
