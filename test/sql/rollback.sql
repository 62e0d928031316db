-- A rollback, also to a savepoint, leaves nothing acquired and nothing written, and
-- leaves a lock that was released or extended as it was.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

-- An acquire is undone.  A NOTICE says once per session that it counts from the commit,
-- but not if the commit comes by itself, nor if the lock is refused.
DO $$ BEGIN PERFORM shedlock_acquire('rollback do'); EXCEPTION WHEN OTHERS THEN RAISE; END $$;
BEGIN;
SELECT shedlock_acquire('rollback do');
SELECT shedlock_acquire('rollback');
ROLLBACK;
SELECT * FROM pg_temp.my_locks();
SELECT count(*) FROM shedlock WHERE name = 'rollback';
BEGIN;
SELECT shedlock_acquire('rollback');
SELECT 1 / 0;
COMMIT;
SELECT count(*) FROM shedlock WHERE name = 'rollback';
SELECT shedlock_acquire('rollback') AND 1 / (SELECT count(*) FROM _shedlock_tick WHERE name = 'rollback') > 0;
SELECT * FROM pg_temp.my_locks();
SELECT count(*) FROM shedlock WHERE name = 'rollback';

-- After a rollback to a savepoint the same transaction can acquire the lock.
BEGIN;
SAVEPOINT s;
SELECT shedlock_acquire('rollback');
ROLLBACK TO s;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_acquire('rollback');
SELECT shedlock_acquire('rollback');
RELEASE s;
COMMIT;
SELECT shedlock_acquire('rollback');

-- The same holds for an acquire through a cursor from before the savepoint.
BEGIN;
DECLARE c CURSOR FOR SELECT shedlock_acquire('rollback cursor');
SAVEPOINT s;
FETCH c;
ROLLBACK TO s;
SELECT * FROM pg_temp.my_locks();
COMMIT;

-- A savepoint that is released passes the lock on to the one around it.
BEGIN;
SAVEPOINT s;
SAVEPOINT t;
SELECT shedlock_acquire('rollback nested');
SELECT shedlock_acquire_session('rollback nested session');
RELEASE t;
ROLLBACK TO s;
SELECT * FROM pg_temp.my_locks();
SAVEPOINT t;
SELECT shedlock_acquire('rollback nested');
SELECT shedlock_acquire_session('rollback nested session');
RELEASE t;
RELEASE s;
COMMIT;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_release('rollback nested'), shedlock_release('rollback nested session');

-- A release is undone.
BEGIN;
SELECT shedlock_release('rollback');
ROLLBACK;
SELECT shedlock_acquire('rollback');
SELECT shedlock_assert('rollback') > 0 AS asserted;
BEGIN;
SAVEPOINT s;
SELECT shedlock_release('rollback');
ROLLBACK TO s;
SELECT shedlock_acquire('rollback');
COMMIT;
SELECT shedlock_assert('rollback') > 0 AS asserted;

-- An extend is undone.
SELECT lock_until AS before, token FROM shedlock WHERE name = 'rollback' \gset
BEGIN;
SELECT shedlock_extend('rollback', lock_at_most_for => '10 h', lock_at_least_for => '5 h');
ROLLBACK;
SELECT lock_until = :'before' AS lock_until, keep_until, lock_at_most_for, token = :token AS token
FROM shedlock WHERE name = 'rollback';
SELECT shedlock_release('rollback');
SELECT shedlock_acquire('rollback');

-- A session lock is undone in both halves.
BEGIN;
SELECT shedlock_acquire_session('rollback session');
ROLLBACK;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_acquire_session('rollback session', '1 h');
BEGIN;
SELECT shedlock_release('rollback session');
ROLLBACK;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_assert('rollback session') > 0 AS asserted;
BEGIN;
SAVEPOINT s;
SELECT shedlock_release('rollback session');
SELECT shedlock_acquire_session('rollback session');
ROLLBACK TO s;
SELECT shedlock_assert('rollback session') > 0 AS asserted;
COMMIT;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_acquire('rollback session');

-- A time limit of an extend that is rolled back does not end the session.
BEGIN;
SELECT shedlock_extend('rollback session', lock_at_most_for => '3 s');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT shedlock_extend('rollback session', lock_at_most_for => '3 s');
ROLLBACK TO s;
COMMIT;
SELECT pg_sleep(3.2);
SELECT shedlock_release('rollback session');

-- A session lock is undone if its commit fails late.
CREATE TABLE rollback_parent (n int PRIMARY KEY);
CREATE TABLE rollback_child (n int REFERENCES rollback_parent DEFERRABLE INITIALLY DEFERRED);
BEGIN;
SELECT shedlock_acquire_session('rollback late');
INSERT INTO rollback_child VALUES (1);
COMMIT;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_acquire('rollback late');
DROP TABLE rollback_child, rollback_parent;

-- Of many subtransactions half are rolled back.
DO $$
BEGIN
	FOR i IN 1..2000 LOOP
		BEGIN
			PERFORM shedlock_acquire('rollback many ' || i);
			PERFORM shedlock_acquire_session('rollback many session ' || i % 10);
			IF i % 2 = 0 THEN
				RAISE division_by_zero;
			END IF;
			PERFORM shedlock_release('rollback many session ' || i % 10);
		EXCEPTION WHEN division_by_zero THEN
		END;
	END LOOP;
END
$$;
SELECT * FROM pg_temp.my_locks();
SELECT kind, count(*), min(right(name, 1)), max(right(name, 1)) FROM shedlock
WHERE name LIKE 'rollback many%' GROUP BY kind ORDER BY kind;
SELECT count(*) FROM generate_series(1, 2000) n WHERE shedlock_acquire('rollback many ' || n);

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
