-- Times are the clock's, never those of a transaction that began long ago.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

BEGIN;
SELECT now() AS start \gset
SELECT pg_sleep(0.3);
SELECT shedlock_acquire('old_now', '3 s');
SELECT shedlock_acquire('old_now');
SELECT shedlock_acquire('old_now long', '1 h', '1 h');
SELECT shedlock_acquire_session('old_now session', '1 h');
SELECT shedlock_once('old_now', '2026-01-01');
SELECT shedlock_once_every('old_now period', '100 ms');
SELECT name, locked_at - :'start'::timestamptz AT TIME ZONE 'UTC' >= '0.3 s' AS locked_at, lock_until - locked_at AS lasts,
	   keep_until - locked_at AS kept
FROM shedlock WHERE name LIKE 'old_now%' ORDER BY name;
SELECT name, claimed_at - :'start' >= '0.3 s' AS claimed_at
FROM _shedlock_tick WHERE name LIKE 'old_now%' ORDER BY name;
SELECT tick - :'start' >= '0.2 s' AS tick FROM _shedlock_tick WHERE name = 'old_now period';

-- A lease that expired since the transaction began has expired.
SELECT pg_sleep(3);
SELECT pg_temp.error_of('SELECT shedlock_assert(''old_now'')');
SELECT shedlock_acquire('old_now');

-- An extend and a release use the clock, too.
SELECT shedlock_extend('old_now', lock_at_most_for => '30 min');
SELECT lock_until - :'start'::timestamptz AT TIME ZONE 'UTC' >= '30 min 3.3 s' AS lock_until
FROM shedlock WHERE name = 'old_now';
SELECT shedlock_release('old_now');
SELECT lock_until - :'start'::timestamptz AT TIME ZONE 'UTC' BETWEEN '3.3 s' AND '1 min' AS lock_until
FROM shedlock WHERE name = 'old_now';
SELECT shedlock_release('old_now session');
COMMIT;

-- Within one statement the second call sees that the first one's lease has expired.
SELECT shedlock_acquire('old_now row', '100 ms') AS first, pg_sleep(0.2) AS sleep,
	   shedlock_acquire('old_now row', '1 h') AS second;

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
