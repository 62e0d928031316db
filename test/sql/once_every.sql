-- A period of a schedule is claimed once, counted in UTC from the epoch.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

-- The tick of the time that is a quarter of the period, but at most 30 s, later.
CREATE FUNCTION pg_temp.tick(at timestamptz, every interval) RETURNS timestamptz
LANGUAGE sql AS $$
	SELECT to_timestamp(floor(extract(epoch FROM at + least(every / 4, '30 s')) /
							  extract(epoch FROM every)) * extract(epoch FROM every))
$$;
-- Claims, and returns whether the tick is that of an instant during the claim.
CREATE FUNCTION pg_temp.claim(every interval, OUT claimed boolean, OUT right_tick boolean)
LANGUAGE plpgsql AS $$
DECLARE
	before timestamptz := clock_timestamp();
BEGIN
	claimed := shedlock_once_every('once_every ' || every, every);
	SELECT tick BETWEEN pg_temp.tick(before, every) AND pg_temp.tick(clock_timestamp(), every)
	INTO right_tick
	FROM _shedlock_tick WHERE name = 'once_every ' || every;
END
$$;

-- The session's time zone has no effect, even if its days and hours are not those of UTC.
SET timezone = 'Asia/Kathmandu';
SELECT every, c.*
FROM unnest('{1 day, 7 days, 90 days, 1 h, 90 min, 40 s, 3 s, 0.5 s, 1 day 12 h}'::interval[]) every,
	 LATERAL pg_temp.claim(every) c;
SET timezone = 'America/St_Johns';
SELECT every, c.claimed
FROM unnest('{7 days, 90 days}'::interval[]) every,
	 LATERAL pg_temp.claim(every) c;
RESET timezone;

-- A timer that fires early, by up to a quarter of the period but at most 30 s, claims the
-- coming tick.
CREATE FUNCTION pg_temp.period(around numeric, due_from numeric, due_to numeric) RETURNS interval
LANGUAGE sql AS $$
	SELECT p * interval '1 s'
	FROM extract(epoch FROM clock_timestamp()) AS now,
		 generate_series(around, around + 10, 0.0001) AS p
	WHERE p - now % p BETWEEN due_from AND due_to
	LIMIT 1
$$;
SELECT around, due_from, due_to, every IS NOT NULL AS found,
	   shedlock_once_every('once_every early ' || n, every) AS claimed
FROM (VALUES (1, 86400, 25, 29), (2, 86400, 80, 90), (3, 100, 20, 24), (4, 100, 80, 98)) v(n, around, due_from, due_to),
	 LATERAL pg_temp.period(around, due_from, due_to) AS every;
SELECT name, tick > claimed_at AS coming FROM _shedlock_tick WHERE name LIKE 'once_every early%' ORDER BY name;

-- Since 1970 there has been one period of 100 years.
SELECT shedlock_once_every('once_every', '36500 days');
SELECT shedlock_once_every('once_every', '36500 days');
SELECT shedlock_once_every(every => '36500 days', name => 'once_every');
SELECT tick AT TIME ZONE 'UTC' AS tick FROM _shedlock_tick WHERE name = 'once_every';

-- The next period is another tick.
SELECT shedlock_once_every('once_every short', '200 ms');
SELECT pg_sleep(0.25);
SELECT shedlock_once_every('once_every short', '200 ms');

-- A claim by shedlock_once counts, too.
SELECT shedlock_once('once_every mixed', clock_timestamp() + '50 s');
SELECT shedlock_once_every('once_every mixed', '1 s');

-- A claim of a later tick refuses the claims of the period, until shedlock_again admits
-- one caller.
SELECT shedlock_once('once_every ahead', clock_timestamp() + '50 s');
SELECT shedlock_once_every('once_every ahead', '36500 days');
SELECT shedlock_again('once_every ahead');
SELECT shedlock_once_every('once_every ahead', '36500 days'), shedlock_once_every('once_every ahead', '36500 days');
SELECT tick > clock_timestamp() AS ahead, again_at IS NOT NULL AS again FROM _shedlock_tick WHERE name = 'once_every ahead';

-- The same holds for runs of a job: the history has the tick of the period.  A shedlock_again
-- during a run counts for the next call.  It is about the tick of that run, which the
-- ticks that come meanwhile do not replace.
SET client_min_messages = warning;
SELECT shedlock_job('once_every run', 'every 36500 days');
SELECT shedlock_once('once_every run', clock_timestamp() + '50 s');
CALL shedlock_run('once_every run', 'SELECT 1');
SELECT shedlock_again('once_every run');
CALL shedlock_run('once_every run', 'SELECT 1 / 0');
CALL shedlock_run('once_every run', 'SELECT 2');
SELECT shedlock_again('once_every run');
CALL shedlock_run('once_every run', 'SELECT shedlock_again(''once_every run'')');
CALL shedlock_run('once_every run', 'SELECT 3');
CALL shedlock_run('once_every run', 'SELECT 4');
SELECT command, outcome, tick AT TIME ZONE 'UTC' AS tick FROM shedlock_history WHERE name = 'once_every run' ORDER BY token;
SELECT shedlock_job('once_every long', 'every 1 s');
CALL shedlock_run('once_every long', 'SELECT shedlock_again(''once_every long''), pg_sleep(1.5)');
SELECT t.tick = h.tick AS same_tick, h.tick < clock_timestamp() - interval '1 s' AS passed, again_at IS NOT NULL AS again
FROM _shedlock_tick t JOIN shedlock_history h USING (name) WHERE name = 'once_every long';
RESET client_min_messages;

SELECT pg_temp.error_of($$SELECT shedlock_once_every('once_every', '1 month')$$);
SELECT pg_temp.error_of($$SELECT shedlock_once_every('once_every', '1 year')$$);
SELECT pg_temp.error_of($$SELECT shedlock_once_every('once_every', '0')$$);
SELECT pg_temp.error_of($$SELECT shedlock_once_every('once_every', '-1 day')$$);
SELECT pg_temp.error_of($$SELECT shedlock_once_every('once_every', NULL)$$);

TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history;
