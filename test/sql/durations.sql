-- A duration is positive and sane; a bad one is refused before anything else.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE FUNCTION pg_temp.at_most(at_most text) RETURNS text
LANGUAGE sql AS $$
	SELECT pg_temp.error_of(format('SELECT shedlock_acquire(%L, %L)', 'durations ' || at_most, at_most))
$$;
SELECT pg_temp.at_most('0');
SELECT pg_temp.at_most('-1 s');
SELECT pg_temp.at_most('-1 month');
SELECT pg_temp.at_most('1 day -25 h');
SELECT pg_temp.at_most('1 month -40 days');
SELECT pg_temp.at_most('101 years');
SELECT pg_temp.at_most('40000 days');
SELECT pg_temp.at_most('9000000 h');
SELECT pg_temp.at_most('178000000 years');
SELECT pg_temp.at_most('-178000000 years');

-- From 17 on there are infinite intervals, before that this is no interval.
SELECT left(pg_temp.at_most('infinity'), 5) IN ('22007', '22023') AS refused;
SELECT left(pg_temp.at_most('-infinity'), 5) IN ('22007', '22023') AS refused;

-- A lease is never born expired: months are as long as the calendar says, so
-- that this can be any length around a day.
SELECT pg_temp.at_most('-11 months 335 days');
SELECT pg_temp.at_most('1 month -29 days');
SELECT count(*) FROM shedlock WHERE lock_until <= locked_at;

-- Good ones, on the calendar of UTC.
SET timezone = 'America/New_York';
SELECT span, shedlock_acquire('durations ' || span, span) AS taken
FROM unnest('{0.000001, 00:00:01, 1 day, 36 h, 1 mon, 1 year, 100 years, 36500 days, 1 day -1 h}'::interval[]) span;
SELECT lock_at_most_for, lock_until = locked_at + lock_at_most_for AS lasts
FROM shedlock WHERE name LIKE 'durations %' ORDER BY lock_at_most_for;
RESET timezone;

-- At-least: zero will do; over at-most the message names the lock.
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations least', '1 h', '0')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations equal', '1 h', '1 h')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations over', '1 h', '61 min')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations over', NULL, '61 min')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire_token('durations over', '1 h', '61 min')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire_session('durations over', '1 h', '61 min')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations negative', '1 h', '-1 s')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations long', '1 h', '101 years')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire_session('durations zero', '0')$$);

-- Without an at-most a session lock has no limit, its at-least time is free.
SELECT shedlock_acquire_session('durations session', NULL, '2 h');
SELECT lock_until - locked_at AS lasts FROM shedlock WHERE name = 'durations session';
SELECT shedlock_release('durations session');

-- The defaults, and what they refuse.
SHOW shedlock.default_lock_at_most_for;
SHOW shedlock.default_lock_at_least_for;
SET shedlock.default_lock_at_most_for = '90 s';
SET shedlock.default_lock_at_least_for = '30 s';
SELECT shedlock_acquire('durations default');
SELECT shedlock_acquire_session('durations default session');
SELECT name, lock_until - locked_at AS lasts, keep_until - locked_at AS kept, lock_at_most_for
FROM shedlock WHERE name LIKE 'durations default%' ORDER BY name;
SELECT shedlock_release('durations default session');
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations short', '20 s')$$);
SET shedlock.default_lock_at_most_for = '10 s';
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations default both')$$);
\set VERBOSITY sqlstate
SET shedlock.default_lock_at_most_for = 0;
SET shedlock.default_lock_at_most_for = -1;
SET shedlock.default_lock_at_most_for = '1 fortnight';
SET shedlock.default_lock_at_least_for = -1;
\set VERBOSITY default
RESET shedlock.default_lock_at_most_for;
RESET shedlock.default_lock_at_least_for;

-- Nothing was taken by what was refused, and held locks get the same answer.
SELECT count(*) FROM shedlock WHERE name ~ 'over|negative|long|zero|short|both';
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations equal', '0')$$);

TRUNCATE shedlock, shedlock_tick, shedlock_run_log;
