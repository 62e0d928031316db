-- A wait ends as soon as the lock is free, or at the limit that the caller gave.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

-- Acquires, and returns how long that took, in tenths of a second.
CREATE FUNCTION pg_temp.timed(name text, wait interval, OUT taken boolean, OUT tenths int)
LANGUAGE plpgsql AS $$
DECLARE
	start timestamptz := clock_timestamp();
BEGIN
	taken := shedlock_acquire(name, '1 h', wait => wait);
	tenths := floor(extract(epoch FROM clock_timestamp() - start) * 10);
END
$$;

-- An acquire does not wait for a free lock, and waits for a held one only as long as
-- asked.  A busy machine is late now and then, hence the tries.
SELECT bool_and(taken) AS taken, min(tenths) < 5 AS at_once
FROM generate_series(1, 5) n, pg_temp.timed('wait ' || n, '10 s');
SELECT shedlock_acquire('wait');
SELECT wait, bool_or(taken) AS taken, min(tenths) < 5 AS at_once
FROM generate_series(1, 5) n, unnest(ARRAY['0', NULL]::interval[]) wait, pg_temp.timed('wait', wait + n * interval '0')
GROUP BY wait ORDER BY wait;
SELECT bool_or(taken) AS taken, min(tenths) BETWEEN 3 AND 8 AS in_time
FROM generate_series(1, 5) n, pg_temp.timed('wait', '300 ms' + n * interval '0');
SELECT * FROM pg_temp.my_locks();

-- A waiter sees the end of a lease, an at-least time or a pause, though no session wakes
-- it.  How soon it does is what t/lock-waiters measures.
CREATE FUNCTION pg_temp.after_end(name text, OUT taken boolean, OUT in_time boolean)
LANGUAGE plpgsql AS $$
DECLARE
	until timestamptz := (SELECT greatest(lock_until, paused_until) FROM shedlock_locks l WHERE l.name = after_end.name);
BEGIN
	taken := shedlock_acquire(name, '1 h', wait => '20 s');
	in_time := clock_timestamp() BETWEEN until AND until + '8 s';
END
$$;
SELECT shedlock_acquire('wait lease', '2 s');
SELECT * FROM pg_temp.after_end('wait lease');
SELECT shedlock_acquire('wait kept', '1 h', '2 s');
SELECT shedlock_release('wait kept');
SELECT * FROM pg_temp.after_end('wait kept');
SELECT shedlock_pause('wait paused', clock_timestamp() + '2 s');
SELECT * FROM pg_temp.after_end('wait paused');

-- A run whose tick is too old when the pause ends waits for the next tick, but reads little
-- meanwhile: a try a second.
CREATE FUNCTION pg_temp.buffers_of(query text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || query INTO plan;
	RETURN plan #>> '{0,Plan,Shared Hit Blocks}';
END
$$;
SELECT shedlock_job('wait late', to_char(clock_timestamp(), '"every 4 s from" YYYY-MM-DD"T"HH24:MI:SSOF'), max_late => '1 s');
SELECT shedlock_pause('wait late', clock_timestamp() + '1500 ms');
SELECT pg_temp.buffers_of($$SELECT FROM shedlock_run_begin('wait late', '1 min', wait => '5 s')$$) < 1000 AS few;

-- A lease is counted from its acquisition, not from the call.
SELECT clock_timestamp() AS start \gset
SELECT shedlock_acquire('wait start', '400 ms');
SELECT shedlock_acquire('wait start', '200 ms', wait => '10 s');
SELECT locked_at - :'start'::timestamptz AT TIME ZONE 'UTC' >= '400 ms' AS later, lock_until - locked_at AS lasts
FROM shedlock WHERE name = 'wait start';

-- The other forms wait, too.
SELECT shedlock_acquire('wait token', '300 ms');
SELECT shedlock_acquire_token('wait token', '1 ms', wait => '10 s') > 0 AS taken;
SELECT shedlock_acquire_session('wait token', wait => '10 s');
SELECT shedlock_acquire_session('wait token', wait => '100 ms');
SELECT shedlock_release('wait token');

-- The server's timeouts end a wait.
SET lock_timeout = '200 ms';
SELECT pg_temp.error_of($$SELECT shedlock_acquire('wait', wait => '10 s')$$);
SET lock_timeout = '20 s';
SELECT shedlock_acquire('wait', wait => '50 ms');
RESET lock_timeout;
SET statement_timeout = '200 ms';
SELECT shedlock_acquire('wait', wait => '10 s');
\echo :LAST_ERROR_SQLSTATE
RESET statement_timeout;
SELECT * FROM pg_temp.my_locks();

-- A wait that ends without the lock keeps nothing, also inside a transaction.
BEGIN;
SELECT shedlock_acquire('wait', wait => '50 ms');
SELECT * FROM pg_temp.my_locks();
SELECT pg_current_xact_id_if_assigned();
COMMIT;

SELECT pg_temp.error_of($$SELECT shedlock_acquire('wait', wait => '-1 s')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire('wait', wait => '1000 years')$$);

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
