-- A tick is claimed once, and ticks only move forward.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SELECT shedlock_once('once', '2026-01-01 00:00+00');
SELECT shedlock_once('once', '2026-01-01 00:00+00');
SELECT shedlock_once('once', '2026-01-01 01:00+01');
SELECT shedlock_once('once', '2025-12-31 23:59+00');
SELECT shedlock_once('once', '2026-01-01 00:01+00');
SELECT shedlock_once(tick => '2026-01-01 00:01+00', name => 'once');
SELECT shedlock_once('once other', '2026-01-01 00:01+00');
SELECT tick, clock_timestamp() - claimed_at BETWEEN '0' AND '1 min' AS claimed_at,
	   claimed_by = current_setting('application_name') || '@' ||
					coalesce(host(inet_client_addr()), '[local]') AS claimed_by,
	   token
FROM _shedlock_tick WHERE name = 'once';

-- A tick can be up to a minute ahead of the clock.
SELECT shedlock_once('once ahead', clock_timestamp() + '50 s');
SELECT pg_temp.error_of($$SELECT shedlock_once('once far', clock_timestamp() + '70 s')$$);
SELECT pg_temp.error_of($$SELECT shedlock_once('once far', 'infinity')$$);
SELECT pg_temp.error_of($$SELECT shedlock_once('once far', '-infinity')$$);
SELECT pg_temp.error_of($$SELECT shedlock_once('once far', NULL)$$);
SELECT shedlock_once('once far', '2026-01-01');

-- A tick whose claim is rolled back can be claimed again.
BEGIN;
SELECT shedlock_once('once undone', '2026-01-01');
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_once('once undone', '2026-01-01');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT shedlock_once('once undone', '2026-01-01');
ROLLBACK TO s;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_once('once undone', '2026-01-01');
COMMIT;
SELECT shedlock_once('once undone', '2026-01-01');
BEGIN;
SELECT shedlock_once('once undone', '2026-01-02');
ROLLBACK;
SELECT tick FROM _shedlock_tick WHERE name = 'once undone';
SELECT * FROM pg_temp.my_locks();

-- A claim is not a lock, and has no effect on locks.
SELECT shedlock_acquire('once');
SELECT shedlock_once('once', '2026-01-02');
SELECT shedlock_release('once');
SELECT count(*) FROM shedlock WHERE name = 'once other';
SELECT shedlock_acquire('once other');

-- After shedlock_again one more caller claims a tick, whichever one it names; the last
-- tick stays the last.
\set VERBOSITY terse
SELECT shedlock_again('once never');
SELECT shedlock_again('once');
SELECT shedlock_once('once', '2025-12-01');
SELECT tick AT TIME ZONE 'UTC' AS tick, again_at IS NOT NULL AS again FROM _shedlock_tick WHERE name = 'once';
SELECT shedlock_once('once', '2025-12-01'), shedlock_once('once', '2026-01-02');
SELECT shedlock_again('once'), shedlock_again('once');
SELECT shedlock_once('once', '2026-01-02'), shedlock_once('once', '2026-01-02');
-- A claim of a newer tick uses up shedlock_again, too.
SELECT shedlock_again('once');
SELECT shedlock_once('once', '2026-01-02 01:00'), shedlock_once('once', '2026-01-02 01:00');
-- A claim that is rolled back leaves the tick to the next caller; shedlock_again is rolled
-- back with its own transaction.
SELECT shedlock_again('once');
BEGIN;
SELECT shedlock_once('once', '2026-01-02 01:00');
SELECT shedlock_once('once', '2026-01-02 01:00');
ROLLBACK;
SELECT shedlock_once('once', '2026-01-02 01:00'), shedlock_once('once', '2026-01-02 01:00');
BEGIN;
SELECT shedlock_again('once');
SELECT shedlock_once('once', '2026-01-02 01:00');
SELECT shedlock_again('once');
ROLLBACK;
SELECT shedlock_once('once', '2026-01-02 01:00');
BEGIN;
SELECT shedlock_again('once');
SAVEPOINT s;
SELECT shedlock_once('once', '2026-01-02 01:00');
ROLLBACK TO s;
COMMIT;
SELECT shedlock_once('once', '2026-01-02 01:00'), shedlock_once('once', '2026-01-02 01:00');
SELECT pg_temp.error_of('SELECT shedlock_again(NULL)');
-- A refused claim leaves no lock on the table: an ALTER TABLE does not wait for whoever asked.
BEGIN;
SELECT shedlock_once('once', '2026-01-02 01:00'), shedlock_once('once', '2026-01-01');
SELECT relation::regclass, mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation = '_shedlock_tick'::regclass;
COMMIT;
SELECT * FROM pg_temp.my_locks();

-- A new session sees the claims of earlier ones.
\c -
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
SELECT shedlock_once('once', '2026-01-02 01:00');
SELECT shedlock_once('once', '2026-01-03');

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
