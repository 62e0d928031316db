-- A command that exceeds its lock_at_most_for is cancelled; without one it is not.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE FUNCTION pg_temp.timed_runs(name text) RETURNS TABLE (outcome text, message text, tenths int)
LANGUAGE sql AS $$
	SELECT h.outcome, h.message, floor(extract(epoch FROM h.duration) * 10)::int
	FROM shedlock_history h WHERE h.name = $1 ORDER BY h.token
$$;

CALL shedlock_run('run time', 'SELECT pg_sleep(20)', '300 ms');
\echo :LAST_ERROR_SQLSTATE
SELECT outcome, message, tenths >= 3 AS in_time FROM pg_temp.timed_runs('run time');
SELECT count(*) FROM shedlock_locks WHERE name = 'run time';
SELECT * FROM pg_temp.my_locks();
CALL shedlock_run('run time', 'SELECT pg_sleep(0.01)', '1 h');
CALL shedlock_run('run time', 'INSERT INTO nowhere VALUES (1)', '1 min');
\echo :LAST_ERROR_SQLSTATE

-- The cancel comes soon after that time.  A busy machine is late now and then, hence the tries.
CALL shedlock_run('run time soon', 'SELECT pg_sleep(20)', '300 ms');
CALL shedlock_run('run time soon', 'SELECT pg_sleep(20)', '300 ms');
CALL shedlock_run('run time soon', 'SELECT pg_sleep(20)', '300 ms');
SELECT min(tenths) BETWEEN 3 AND 15 AS in_time FROM pg_temp.timed_runs('run time soon');

-- The time is that of the whole command, and what the command did is rolled back.
CREATE TABLE run_time (n int);
CALL shedlock_run('run time sum', 'INSERT INTO run_time VALUES (1); SELECT pg_sleep(1.2); SELECT pg_sleep(1.2); SELECT pg_sleep(1.2); SELECT pg_sleep(20)', '2 s');
SELECT outcome, tenths BETWEEN 20 AND 50 AS in_time FROM pg_temp.timed_runs('run time sum');
SELECT count(*) FROM run_time;

-- The timer is off after the command has ended: no later statement of the session is
-- cancelled.
CALL shedlock_run('run time off', 'SELECT 1', '2 s');
CALL shedlock_run('run time off 2', 'SELECT 1 / 0', '2 s');
SELECT pg_sleep(2.2) IS NOT NULL AS slept;
CALL shedlock_run('run time off', 'SELECT pg_sleep(20)', '200 ms');
SELECT pg_sleep(1.2) IS NOT NULL AS slept;

-- Without lock_at_most_for a run has no limit, however short the default is.
SET shedlock.default_lock_at_most_for = '1 s';
CALL shedlock_run('run time none', 'SELECT pg_sleep(1.3); INSERT INTO run_time
	SELECT 1 FROM shedlock_locks WHERE name = ''run time none'' AND state = ''held'' AND remaining IS NULL');
RESET shedlock.default_lock_at_most_for;
SELECT count(*) FROM run_time;
SELECT outcome, tenths >= 13 AS whole FROM pg_temp.timed_runs('run time none');

-- A command that catches the cancel is cancelled again each second; until it ends the
-- lock is held.
CREATE FUNCTION run_stubborn(times int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
	cancels int := 0;
BEGIN
	WHILE cancels < times LOOP
		BEGIN
			PERFORM pg_sleep(20);
		EXCEPTION WHEN query_canceled THEN
			cancels := cancels + 1;
			INSERT INTO run_time SELECT 100 FROM shedlock_locks WHERE name LIKE 'run time stubborn%' AND state = 'held';
		END;
	END LOOP;
	RETURN cancels;
END
$$;
TRUNCATE run_time;
CALL shedlock_run('run time stubborn', 'SELECT run_stubborn(4)', '300 ms');
SELECT outcome, tenths BETWEEN 33 AND 60 AS each_second FROM pg_temp.timed_runs('run time stubborn');
SELECT n, count(*) FROM run_time GROUP BY n;
CALL shedlock_run('run time stubborn 2', 'SELECT run_stubborn(1); SELECT pg_sleep(20)', '300 ms');
SELECT outcome, tenths BETWEEN 12 AND 60 AS each_second FROM pg_temp.timed_runs('run time stubborn 2');
SELECT pg_sleep(1.2) IS NOT NULL AS slept;

-- A cancel by hand before that time is recorded as such.
CALL shedlock_run('run time cancelled', 'SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(20)', '1 h');
SELECT outcome, message FROM pg_temp.timed_runs('run time cancelled');

-- An extend moves the limit, and an extend that is rolled back does not.
CREATE PROCEDURE run_extend()
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shedlock_extend('run time extended', lock_at_most_for => '1 h');
	COMMIT;
	PERFORM pg_sleep(3.2);
END
$$;
CALL shedlock_run('run time extended', 'CALL run_extend()', '3 s');
SELECT outcome, tenths >= 32 AS whole FROM pg_temp.timed_runs('run time extended');
CREATE PROCEDURE run_extend_not()
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shedlock_extend('run time extended', lock_at_most_for => '1 h');
	ROLLBACK;
	PERFORM pg_sleep(20);
END
$$;
CALL shedlock_run('run time extended', 'CALL run_extend_not()', '2 s');
\echo :LAST_ERROR_SQLSTATE

-- A command that commits by itself is cancelled, too.
CREATE PROCEDURE run_slow()
LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..100 LOOP
		INSERT INTO run_time VALUES (i);
		COMMIT;
		PERFORM pg_sleep(0.2);
	END LOOP;
END
$$;
TRUNCATE run_time;
CALL shedlock_run('run time batches', 'CALL run_slow()', '2 s');
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) BETWEEN 2 AND 50 AS some FROM run_time;

DROP PROCEDURE run_extend(), run_extend_not(), run_slow();
DROP FUNCTION run_stubborn(int);
DROP TABLE run_time;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
