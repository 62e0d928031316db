-- An extend gives a held lock a new end, counted from now.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse

-- The time left of a lock, in full minutes.
CREATE FUNCTION pg_temp.left_of(name text)
RETURNS TABLE (at_most interval, at_least interval, lock_at_most_for interval)
LANGUAGE sql AS $$
	SELECT date_trunc('minute', lock_until - clock_timestamp() AT TIME ZONE 'UTC' + '30 s'),
		   date_trunc('minute', keep_until - clock_timestamp() AT TIME ZONE 'UTC' + '30 s'),
		   s.lock_at_most_for
	FROM shedlock s WHERE s.name = $1
$$;

SELECT shedlock_acquire_token('extend', '10 min') AS token \gset
SELECT * FROM pg_temp.left_of('extend');
SELECT shedlock_extend('extend', lock_at_most_for => '20 min');
SELECT * FROM pg_temp.left_of('extend');

-- The new end can be earlier; without a duration the last one counts.
SELECT shedlock_extend('extend', lock_at_most_for => '5 min');
SELECT * FROM pg_temp.left_of('extend');
UPDATE shedlock SET lock_until = lock_until - interval '2 min' WHERE name = 'extend';
SELECT * FROM pg_temp.left_of('extend');
SELECT shedlock_extend('extend');
SELECT * FROM pg_temp.left_of('extend');

-- The at-least time is unchanged unless given; the lock never ends before it.
SELECT shedlock_extend('extend', lock_at_most_for => '30 min', lock_at_least_for => '15 min');
SELECT * FROM pg_temp.left_of('extend');
SELECT shedlock_extend('extend', lock_at_most_for => '40 min');
SELECT * FROM pg_temp.left_of('extend');
SELECT shedlock_extend('extend', lock_at_most_for => '1 min');
SELECT * FROM pg_temp.left_of('extend');
SELECT shedlock_extend(lock_at_least_for => '0', name => 'extend', token => :token);
SELECT * FROM pg_temp.left_of('extend');

-- An extend keeps the token, the holder and the time of the acquire.
SELECT token = :token AS token, pid = pg_backend_pid() AS pid,
	   lock_until - locked_at > '1 min' AS locked_at, kind
FROM shedlock WHERE name = 'extend';

-- The default at the time of the acquire counts, not the present one.
SET shedlock.default_lock_at_most_for = '2 h';
SELECT shedlock_acquire('extend default');
SET shedlock.default_lock_at_most_for = '3 h';
SELECT shedlock_extend('extend default');
SELECT * FROM pg_temp.left_of('extend default');
RESET shedlock.default_lock_at_most_for;

-- A lock that is not held cannot be extended.
SELECT shedlock_extend('extend never', lock_at_most_for => '1 h');
SELECT shedlock_acquire('extend expired', '10 ms');
SELECT pg_sleep(0.05);
SELECT shedlock_extend('extend expired', lock_at_most_for => '1 h');
SELECT shedlock_acquire('extend expired');
SELECT shedlock_acquire('extend released');
SELECT shedlock_release('extend released');
SELECT shedlock_extend('extend released', lock_at_most_for => '1 h');
SELECT shedlock_acquire('extend released');
SELECT shedlock_extend('extend', 1000000000, '1 h');

-- Another session needs the token.
\c -
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse
SELECT shedlock_extend('extend', lock_at_most_for => '1 h');
SELECT lock_until - clock_timestamp() AT TIME ZONE 'UTC' > '30 min' AS extended
FROM shedlock WHERE name = 'extend';
SELECT shedlock_extend('extend', :token, '1 h', NULL);
SELECT lock_until - clock_timestamp() AT TIME ZONE 'UTC' > '30 min' AS extended
FROM shedlock WHERE name = 'extend';
SELECT shedlock_release('extend', :token);

-- A duration in the place of the token is an error, and does not shorten the lock.
SELECT shedlock_acquire('extend swapped', '10 min');
SELECT pg_temp.error_of($$SELECT shedlock_extend('extend swapped', '1 h')$$);
SELECT pg_temp.error_of($$SELECT shedlock_extend('extend swapped', '1 h'::interval)$$);
SELECT pg_temp.error_of($$SELECT shedlock_extend('extend swapped', '1 h', 1)$$);
SELECT shedlock_release('extend swapped');

-- Bad durations change nothing.
SELECT shedlock_acquire('extend bad', '10 min', '5 min');
SELECT pg_temp.error_of($$SELECT shedlock_extend('extend bad', lock_at_most_for => '0')$$);
SELECT pg_temp.error_of($$SELECT shedlock_extend('extend bad', lock_at_most_for => '-1 s')$$);
SELECT pg_temp.error_of($$SELECT shedlock_extend('extend bad', lock_at_most_for => '1 h', lock_at_least_for => '-1 s')$$);
SELECT pg_temp.error_of($$SELECT shedlock_extend('extend bad', lock_at_most_for => '1 h', lock_at_least_for => '2 h')$$);
SELECT pg_temp.error_of($$SELECT shedlock_extend('extend bad', lock_at_most_for => NULL, lock_at_least_for => '11 min')$$);
SELECT pg_temp.error_of($$SELECT shedlock_extend('extend bad', lock_at_most_for => '101 years')$$);
SELECT lock_until - locked_at AS lasts, keep_until - locked_at AS at_least
FROM shedlock WHERE name = 'extend bad';

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
