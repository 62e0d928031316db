-- Ticks around changes of the clock: a fixed time comes once a local day, at the end of
-- the gap if the clock skips it, and the first time if the clock shows it twice; others
-- come as often as the clock shows them.
SET timezone = 'UTC';
SET datestyle = 'ISO';

-- Returns the ticks from an instant to another one.
CREATE FUNCTION pg_temp.ticks(schedule text, zone text, low timestamptz, high timestamptz)
RETURNS TABLE (tick timestamptz) LANGUAGE plpgsql AS $$
BEGIN
	tick := low - '1 us'::interval;
	LOOP
		tick := shedlock_next_tick(schedule, zone, tick);
		EXIT WHEN tick IS NULL OR tick > high;
		RETURN NEXT;
	END LOOP;
END
$$;

SELECT zone, schedule, to_char(tick, 'YYYY-MM-DD HH24:MI') AS utc,
	   to_char(tick AT TIME ZONE zone, 'DD HH24:MI') AS local
FROM (VALUES
	-- 02:00 to 03:00 on the 29th of March does not exist; on the 25th of October it comes twice
	(1, 'Europe/Berlin', '30 2 * * *', '2026-03-28 00:00Z'::timestamptz, '2026-03-30 12:00Z'::timestamptz),
	(2, 'Europe/Berlin', '30 2 * * *', '2026-10-24 12:00Z', '2026-10-26 12:00Z'),
	(3, 'Europe/Berlin', '0,30 2-3 * * *', '2026-03-29 00:00Z', '2026-03-29 12:00Z'),
	(4, 'Europe/Berlin', '*/30 2 * * *', '2026-03-28 12:00Z', '2026-03-30 12:00Z'),
	(5, 'Europe/Berlin', '*/30 2 * * *', '2026-10-24 12:00Z', '2026-10-25 12:00Z'),
	(6, 'Europe/Berlin', '30 */2 * * *', '2026-03-28 22:00Z', '2026-03-29 04:00Z'),
	(7, 'Europe/Berlin', '0 3 * * *', '2026-03-28 12:00Z', '2026-03-29 12:00Z'),
	(8, 'Europe/Berlin', '0 3 * * *', '2026-10-24 12:00Z', '2026-10-25 12:00Z'),
	(9, 'Europe/Berlin', '30 2 29 3 *', '2025-01-01 00:00Z', '2028-01-01 00:00Z'),
	(10, 'America/New_York', '15 2 * * *', '2026-03-07 12:00Z', '2026-03-09 12:00Z'),
	(11, 'America/New_York', '15 1 * * *', '2026-10-31 12:00Z', '2026-11-02 12:00Z'),
	(12, 'America/New_York', '@hourly', '2026-11-01 04:30Z', '2026-11-01 07:30Z'),
	-- by half an hour, at two
	(13, 'Australia/Lord_Howe', '15 2 * * *', '2026-10-02 12:00Z', '2026-10-04 12:00Z'),
	(14, 'Australia/Lord_Howe', '45 1 * * *', '2026-04-03 12:00Z', '2026-04-05 12:00Z'),
	(15, 'Australia/Lord_Howe', '45 * * * *', '2026-04-04 13:00Z', '2026-04-04 16:20Z'),
	-- by two hours
	(16, 'Antarctica/Troll', '30 1,2 * * *', '2026-03-28 12:00Z', '2026-03-29 12:00Z'),
	(17, 'Antarctica/Troll', '30 1,2 * * *', '2026-10-24 12:00Z', '2026-10-25 12:00Z'),
	-- twice a year, for Ramadan
	(18, 'Africa/Casablanca', '30 2 * * *', '2026-02-14 12:00Z', '2026-02-15 12:00Z'),
	(19, 'Africa/Casablanca', '30 2 * * *', '2026-03-21 12:00Z', '2026-03-22 12:00Z'),
	-- a minute after midnight, which makes it yesterday again
	(20, 'America/St_Johns', '0 0 * * *', '2006-10-28 12:00Z', '2006-10-30 12:00Z'),
	(21, 'America/St_Johns', '30 23 * * *', '2006-10-28 12:00Z', '2006-10-30 12:00Z'),
	(22, 'America/St_Johns', '30 0 2 4 *', '2006-04-01 12:00Z', '2006-04-03 12:00Z'),
	-- at midnight
	(23, 'Africa/Cairo', '@daily', '2026-04-23 12:00Z', '2026-04-24 23:00Z'),
	(24, 'Africa/Cairo', '30 23 * * *', '2026-10-29 12:00Z', '2026-10-30 23:00Z'),
	(25, 'America/Santiago', '0 0 * * sun', '2026-09-05 12:00Z', '2026-09-07 12:00Z'),
	(26, 'America/Santiago', '59 23 * * sat', '2026-04-04 12:00Z', '2026-04-05 12:00Z'),
	-- there is no 30th of December 2011; three times of that day are due at the end of the gap
	(27, 'Pacific/Apia', '0 6,12,18 * * *', '2011-12-29 12:00Z', '2011-12-31 12:00Z'),
	(28, 'Pacific/Apia', '0 9 30 12 *', '2010-12-31 00:00Z', '2012-12-31 00:00Z'),
	(29, 'Pacific/Apia', '0 */6 30,31 12 *', '2011-12-29 12:00Z', '2011-12-31 12:00Z'),
	(30, 'Pacific/Kwajalein', '0 12 21 8 *', '1993-08-19 00:00Z', '1993-08-24 00:00Z'),
	-- by 15 minutes, by half an hour for good, and by three hours back
	(31, 'Asia/Kathmandu', '10 0 * * *', '1985-12-31 12:00Z', '1986-01-01 23:00Z'),
	(32, 'Asia/Pyongyang', '45 23 * * *', '2018-05-04 00:00Z', '2018-05-05 23:00Z'),
	(33, 'Antarctica/Casey', '0 1 * * *', '2010-03-03 20:00Z', '2010-03-06 00:00Z'),
	-- abbreviations and offsets, where the clock never changes
	(34, 'Etc/GMT+6', '30 2 * * *', '2026-03-28 12:00Z', '2026-03-29 12:00Z'),
	(35, 'Etc/GMT-14', '@monthly', '2026-02-01 00:00Z', '2026-04-01 00:00Z'))
	 AS v(n, zone, schedule, low, high),
	 LATERAL pg_temp.ticks(schedule, zone, low, high) WITH ORDINALITY AS t(tick, i)
ORDER BY n, i;

-- In the repeated hour: instants of the first time and of the second one
SELECT to_char(at, 'HH24:MI:SS.US') AS utc, to_char(at AT TIME ZONE 'Europe/Berlin', 'HH24:MI') AS local,
	   to_char(shedlock_next_tick('30 2 * * *', 'Europe/Berlin', at), 'DD HH24:MI') AS next
FROM unnest('{00:29:59.999999, 00:30, 00:30:00.000001, 00:59:59, 01:00, 01:29:59, 01:30, 01:45, 02:00}'::time[]) t,
	 timezone('UTC', '2026-10-25'::date + t) at;

-- Around the gap
SELECT to_char(at, 'HH24:MI:SS.US') AS utc, to_char(at AT TIME ZONE 'Europe/Berlin', 'HH24:MI') AS local,
	   to_char(shedlock_next_tick('30 2 * * *', 'Europe/Berlin', at), 'DD HH24:MI') AS next
FROM unnest('{00:59:59.999999, 01:00, 01:00:00.000001, 01:30}'::time[]) t,
	 timezone('UTC', '2026-03-29'::date + t) at;

-- Wildcards that the clock always skips have no tick; of times that are years away there is one
SELECT shedlock_tick('*/5 2 25-31 3 */7', 'Europe/Berlin') AS none,
	   shedlock_next_tick('*/5 2 25-31 3 */7', 'Europe/Berlin', '2026-01-01') AS never,
	   shedlock_next_tick('*/5 2 25-31 3 */7', 'UTC', '2026-01-01') AS in_utc;
SELECT shedlock_next_tick('0 0 29 2 *', 'UTC', '2096-03-01') AS leap_day,
	   shedlock_next_tick('0 0 29 2 */7', 'UTC', '2088-03-01') AS sunday;

-- The ends of time
SELECT shedlock_next_tick('* * * * *', 'UTC', 'infinity') AS never,
	   shedlock_next_tick('@yearly', 'UTC', '294276-01-01') AS none,
	   shedlock_next_tick('@yearly', 'UTC', '294275-07-01') AS last,
	   shedlock_next_tick('@yearly', 'UTC', '-infinity') AS first;
SELECT shedlock_next_tick('0 0 * * *', 'Etc/GMT-14', '2026-03-01') AS east,
	   shedlock_next_tick('0 0 * * *', 'Etc/GMT+12', '2026-03-01') AS west;
