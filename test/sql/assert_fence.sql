-- An assert proves that the caller owns the lock, and fences it until the transaction ends.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SELECT shedlock_acquire_token('assert') AS token \gset
SELECT shedlock_assert('assert') = :token AS asserted;
SELECT shedlock_assert('assert', :token) = :token AS asserted;
SELECT * FROM pg_temp.my_locks();

BEGIN;
SELECT shedlock_assert('assert') > 0 AS asserted;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_assert('assert', :token) = :token AS asserted;
SELECT shedlock_acquire('assert');
SELECT * FROM pg_temp.my_locks();
COMMIT;
SELECT * FROM pg_temp.my_locks();

-- A fence ends with its savepoint.
BEGIN;
SAVEPOINT s;
SELECT shedlock_assert('assert') > 0 AS asserted;
SELECT * FROM pg_temp.my_locks();
ROLLBACK TO s;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_assert('assert') > 0 AS asserted;
RELEASE s;
SELECT * FROM pg_temp.my_locks();
ROLLBACK;
SELECT * FROM pg_temp.my_locks();

-- A fence that was made through a cursor does not end when the cursor fails later.
BEGIN;
DECLARE c CURSOR FOR SELECT shedlock_assert('assert') > 0 AS asserted, 1 / (2 - i) FROM generate_series(1, 2) i;
FETCH c;
SAVEPOINT s;
FETCH c;
ROLLBACK TO s;
SELECT * FROM pg_temp.my_locks();
COMMIT;

-- A lock that was acquired through such a cursor keeps its lock on the table, so that
-- another session's TRUNCATE cannot delete its row.
BEGIN;
DECLARE c CURSOR FOR SELECT shedlock_acquire('assert cursor'), 1 / (2 - i) FROM generate_series(1, 2) i;
FETCH c;
SAVEPOINT s;
FETCH c;
ROLLBACK TO s;
SELECT mode FROM pg_locks WHERE relation = 'shedlock'::regclass AND pid = pg_backend_pid() ORDER BY mode;
COMMIT;

-- An assert writes nothing.
BEGIN;
SELECT shedlock_assert('assert') > 0 AS asserted;
SELECT pg_current_xact_id_if_assigned();
COMMIT;

-- An assert that fails raises an error, so that the transaction cannot go on.
CREATE TABLE assert_work (n int);
BEGIN;
INSERT INTO assert_work VALUES (1);
\set VERBOSITY sqlstate
SELECT shedlock_assert('assert', :token + 1000000) > 0 AS asserted;
COMMIT;
\set VERBOSITY default
SELECT * FROM assert_work;
SELECT * FROM pg_temp.my_locks();
DROP TABLE assert_work;

-- An assert that fails keeps no advisory lock.
BEGIN;
SELECT pg_temp.error_of('SELECT shedlock_assert(''assert never'')');
SELECT * FROM pg_temp.my_locks();
COMMIT;

-- The transaction that acquires a lock can assert it.
BEGIN;
SELECT shedlock_acquire('assert new');
SELECT shedlock_assert('assert new') = shedlock_token('assert new') AS asserted;
SELECT shedlock_release('assert new');
SELECT pg_temp.error_of('SELECT shedlock_assert(''assert new'')');
COMMIT;

-- A session lock can be fenced, and is still held after the fence.
SELECT shedlock_acquire_session('assert session');
BEGIN;
SELECT shedlock_assert('assert session') > 0 AS asserted;
SELECT shedlock_assert('assert session', shedlock_token('assert session')) > 0 AS asserted;
SELECT * FROM pg_temp.my_locks();
COMMIT;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_release('assert session');
SELECT * FROM pg_temp.my_locks();

-- Another connection can fence with the token, and only with the token.
\c -
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
BEGIN;
SELECT shedlock_assert('assert', :token) = :token AS asserted;
SELECT * FROM pg_temp.my_locks();
COMMIT;
SELECT pg_temp.error_of('SELECT shedlock_assert(''assert'')');

-- A session does not own the lock of an ended session that had the same process ID.
SELECT shedlock_acquire_session('assert pid');
SELECT shedlock_token('assert pid') AS token \gset
\c -
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
UPDATE shedlock SET pid = pg_backend_pid() WHERE name = 'assert pid';
SELECT pg_temp.error_of($$SELECT shedlock_assert('assert pid')$$);
SELECT pg_temp.error_of(format('SELECT shedlock_assert(''assert pid'', %s)', :token));
SELECT shedlock_acquire('assert pid', wait => '1 min');

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
