-- A duration is positive and has a limit; a bad one is refused before anything else.
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

-- PostgreSQL has infinite intervals from 17 on; before that this is not an interval.
SELECT left(pg_temp.at_most('infinity'), 5) IN ('22007', '22023') AS refused;
SELECT left(pg_temp.at_most('-infinity'), 5) IN ('22007', '22023') AS refused;

-- A lease never begins expired: months are as long as the calendar says, so that this
-- duration can be of any length around a day.
SELECT pg_temp.at_most('-11 months 335 days');
SELECT pg_temp.at_most('1 month -29 days');

-- Parts of different signs could be far out of range each.
SELECT pg_temp.at_most('1 day -1 h'), pg_temp.at_most('106751991 days -2562047783:00:00');
SELECT pg_temp.error_of(format('SELECT shedlock_once_every(''durations signs'', %L)', span)) FROM unnest('{-1 day 48 h, 106751991 days -2562047783:00:00}'::text[]) span;
SELECT shedlock_extend('durations signs', NULL, '1 h', '1 day -24 h');
SELECT count(*) FROM shedlock WHERE lock_until <= locked_at;

-- Good durations are added on the calendar of UTC.
SET timezone = 'America/New_York';
SELECT span, shedlock_acquire('durations ' || span, span) AS taken
FROM unnest('{0.000001, 00:00:01, 1 day, 36 h, 1 mon, 1 year, 100 years, 36500 days}'::interval[]) span;
SELECT lock_at_most_for, lock_until = locked_at + lock_at_most_for AS lasts
FROM shedlock WHERE name LIKE 'durations %' ORDER BY lock_at_most_for;
RESET timezone;

-- The at-least time can be zero; if it exceeds at-most, the message names the lock.
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations least', '1 h', '0')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations equal', '1 h', '1 h')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations over', '1 h', '61 min')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations over', NULL, '61 min')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire_token('durations over', '1 h', '61 min')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire_session('durations over', '1 h', '61 min')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations negative', '1 h', '-1 s')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations long', '1 h', '101 years')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire_session('durations zero', '0')$$);

-- A session lock without an at-most has no limit, so its at-least time can be any.
SELECT shedlock_acquire_session('durations session', NULL, '2 h');
SELECT lock_until - locked_at AS lasts FROM shedlock WHERE name = 'durations session';
SELECT shedlock_release('durations session');

-- The defaults apply, and bad defaults are refused.
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

-- A duration that exceeds its cap is refused by every function.  A lease without a
-- duration gets the shorter one of default and cap, as any lock does for its at-least
-- time, and a lock without a limit keeps none.
SELECT shedlock_acquire('durations capped extended', '1 day'), shedlock_acquire_session('durations capped extended session', '1 day');
SET shedlock.max_lock_at_most_for = '2 h';
SET shedlock.max_wait = '1 min';
SELECT call, pg_temp.error_of('SELECT ' || call) FROM unnest(ARRAY[
	$$shedlock_acquire('durations cap', '2 h')$$,
	$$shedlock_acquire('durations over', '02:00:00.000001')$$,
	$$shedlock_acquire_token('durations over', '1 day')$$,
	$$shedlock_acquire_session('durations over', '100 years')$$,
	$$shedlock_acquire_session('durations over', NULL, '3 h')$$,
	$$shedlock_extend('durations over', lock_at_most_for => '3 h')$$,
	$$shedlock_extend('durations over', lock_at_least_for => '3 h')$$,
	$$shedlock_acquire('durations over', wait => '61 s')$$,
	$$shedlock_acquire('durations cap wait', wait => '1 min')$$]) call;
CALL shedlock_run('durations over', 'SELECT 1', '3 h');
SET shedlock.default_lock_at_most_for = '1 d';
SET shedlock.default_lock_at_least_for = '3 h';
SELECT shedlock_acquire('durations least capped'), shedlock_acquire_session('durations least capped session');
SELECT keep_until - locked_at AS kept FROM shedlock WHERE name LIKE 'durations least capped%' ORDER BY name;
SELECT shedlock_release('durations least capped session');
RESET shedlock.default_lock_at_least_for;
SELECT shedlock_acquire('durations capped'), shedlock_acquire_session('durations capped session');
CREATE TABLE durations_run (lasts interval, lock_at_most_for interval);
CALL shedlock_run('durations capped run', $$INSERT INTO durations_run SELECT lock_until - locked_at, lock_at_most_for FROM shedlock WHERE name = 'durations capped run'$$);
SELECT * FROM durations_run;
DROP TABLE durations_run;
SELECT shedlock_extend('durations capped'), shedlock_extend('durations capped session'),
	   shedlock_extend('durations capped extended'), shedlock_extend('durations capped extended session');
SELECT name, date_trunc('minute', lock_until + '30 s' - timezone('UTC', now())) AS lasts, lock_at_most_for
FROM shedlock WHERE name LIKE 'durations capped%' AND kind IS NOT NULL ORDER BY name;
SET shedlock.default_lock_at_most_for = '1 h';
SELECT shedlock_acquire('durations capped default');
SELECT lock_at_most_for FROM shedlock WHERE name = 'durations capped default';
RESET shedlock.default_lock_at_most_for;
SELECT shedlock_release('durations capped session'), shedlock_release('durations capped extended session');

-- A month can have 31 days.
SET shedlock.max_lock_at_most_for = '30 d';
SELECT pg_temp.at_most('30 days'), pg_temp.at_most('1 month');
SET shedlock.max_lock_at_most_for = '31 d';
SELECT pg_temp.at_most('1 month');
RESET shedlock.max_lock_at_most_for;
RESET shedlock.max_wait;

-- A refused call acquires nothing, and a bad duration is refused for a held lock, too.
SELECT count(*) FROM shedlock WHERE name ~ 'over|negative|long|zero|short|both';
SELECT pg_temp.error_of($$SELECT shedlock_acquire('durations equal', '0')$$);

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
