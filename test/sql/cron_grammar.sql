-- The grammar of schedules is a subset of pg_cron's: what is accepted means the same there.
SET timezone = 'UTC';
SET datestyle = 'ISO';

-- Accepted: the first three ticks from Thursday, the 1st of January 2026, on
SELECT to_json(schedule) AS schedule, array_to_string(ARRAY[to_char(a, 'YY-MM-DD HH24:MI'), to_char(b, 'YY-MM-DD HH24:MI'), to_char(c, 'YY-MM-DD HH24:MI')], ', ') AS ticks
FROM unnest(ARRAY[
	-- minutes and hours
	'* * * * *', '0 * * * *', '59 * * * *', '05 * * * *', '0000005 * * * *', '*/20 * * * *', '*/1 * * * *', '*/59 * * * *',
	'*/60 * * * *', '*/020 * * * *', '1-3 * * * *', '3-3 * * * *', '0-59 * * * *', '10-30/10 * * * *', '10-30/7 * * * *',
	'10-30/21 * * * *', '0-59/20 * * * *', '1,2 * * * *', '2,1 * * * *', '2,2 * * * *', '1,3,5-7,59 * * * *', '*,5 * * * *', '5,* * * * *',
	'*/30,5 * * * *', '5,*/30 * * * *', '1-2,10-20/5 * * * *', '0 0 * * *', '0 23 * * *', '30 3-5,22 * * *', '0 */2 * * *', '0 */23 * * *',
	'0 */24 * * *', '0 9-17/4 * * *', '0 009 * * *', '59 23 * * *', '* 0 * * *', '*/30 0-1 * * *',
	-- days of the month
	'0 0 1 * *', '0 0 31 * *', '0 0 30 * *', '0 0 29 * *', '0 0 1,15 * *', '0 0 10-12 * *', '0 0 */10 * *', '0 0 */31 * *', '0 0 1-31/15 * *', '0 0 $ * *',
	'0 0 $ 2 *', '0 0 $ 2-4 *', '0 0 29 2 *', '0 0 29,30 2 *', '0 0 31 1,4 *', '0 0 30 2,4 *',
	-- months
	'0 0 1 1 *', '0 0 1 12 *', '0 0 1 jan *', '0 0 1 FEB *', '0 0 1 Mar *', '0 0 1 aPr *', '0 0 1 may *', '0 0 1 jun *', '0 0 1 jul *',
	'0 0 1 aug *', '0 0 1 sep *', '0 0 1 oct *', '0 0 1 nov *', '0 0 1 dec *', '0 0 1 jan-mar *', '0 0 1 1-mar *', '0 0 1 feb-12/5 *',
	'0 0 1 jan,6,DEC *', '0 0 1 */6 *', '0 0 1 */12 *', '0 0 1 01 *',
	-- days of the week
	'0 0 * * 0', '0 0 * * 1', '0 0 * * 6', '0 0 * * 7', '0 0 * * sun', '0 0 * * MON', '0 0 * * Tue', '0 0 * * weD', '0 0 * * thu', '0 0 * * fri', '0 0 * * sat',
	'0 0 * * mon-fri', '0 0 * * 0-7', '0 0 * * 5-7', '0 0 * * fri-7', '0 0 * * sun-tue', '0 0 * * 1-5/2', '0 0 * * */7', '0 0 * * */2', '0 0 * * 0,7',
	-- both: one is enough, unless one begins with "*"
	'0 0 13 * fri', '0 0 13 * */2', '0 0 */2 * mon', '0 0 *,13 * fri', '0 0 13 * *,5', '0 0 1-31 * mon', '0 0 13 * 0-6', '0 0 $ * mon', '0 0 $ * */2', '0 0 31 2 mon', '0 0 29 2 */7',
	-- blanks
	'  0 0 1 1 *', '0 0 1 1 *  ', '0  0   1 1 *', E'0\t0\t1\t1\t*', E'\t0 0 1 1 *\t', E'0 0 1 1 *\n', E'0 0 1 1 *\r\n', E'\n0 0 1 1 *',
	-- names
	'@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly', ' @daily ', E'@daily\n']) WITH ORDINALITY AS s(schedule, n),
	 shedlock_next_tick(schedule, after => '2025-12-31 23:59:59') a,
	 shedlock_next_tick(schedule, after => a) b,
	 shedlock_next_tick(schedule, after => b) c
ORDER BY n;

-- doc/reference.md: the first Monday of each month
SELECT to_char(t, 'FMDay YYYY-MM-DD HH24:MI') AS first_monday
FROM generate_series(timestamptz '2026-01-01', '2026-12-01', '1 month') m, shedlock_next_tick('0 5 */31,1-7 * mon', 'UTC', m) t;

-- Refused, with the position
CREATE FUNCTION pg_temp.refusal(schedule text, time_zone text DEFAULT 'UTC') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text;
	detail text;
BEGIN
	RETURN shedlock_next_tick(schedule, time_zone);
EXCEPTION WHEN others THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
	RETURN SQLSTATE || ': ' || CASE WHEN message LIKE 'invalid schedule%' THEN detail ELSE concat_ws(': ', message, nullif(detail, '')) END;
END
$$;
SELECT to_json(left(schedule, 25)) AS schedule, pg_temp.refusal(schedule)
FROM unnest(ARRAY[
	-- too few fields, and too many
	'', ' ', E'\n', '*', '* ', '0 3', '0 3 *', '* * * *', '* * * * ', '* * * * * *', '0 3 * * * 2026', '0 3 * * * * *', '0 3 * * *;', '0 3 * * * # nightly',
	-- out of range
	'60 * * * *', '99999999999999999999 * * * *', '-1 * * * *', '0 24 * * *', '0 0 0 * *', '0 0 32 * *', '0 0 1 0 *', '0 0 1 13 *', '0 0 * * 8',
	'0-60 * * * *', '0 0-24 * * *', '0 0 0-5 * *', '0 0 1-32 * *', '0 0 1 1-13 *', '0 0 * * 0-8',
	-- ranges
	'5- * * * *', '5-', '-5 * * * *', '5-- * * * *', '30-10 * * * *', '0 22-4 * * *', '0 0 20-10 * *', '0 0 1 dec-jan *', '0 0 * * sat-sun', '0 0 * * 5-sun', '1-5-7 * * * *',
	'*-5 * * * *', '5-* * * * *', '0 0 $-5 * *', '0 0 1-$ * *',
	-- steps
	'*/0 * * * *', '*/00 * * * *', '*/ * * * *', '*/-5 * * * *', '*/61 * * * *', '*/120 * * * *', '0 */25 * * *', '0 0 */32 * *', '0 0 1 */13 *', '0 0 * * */8', '10-30/61 * * * *', '*/10000 * * * *', '*/99999999999999999999 * * * *', '5/10 * * * *', '0 9/2 * * *', '0-30/0 * * * *',
	'*/5/5 * * * *', '*/a * * * *', '*/* * * * *', '1-5/2-3 * * * *', '0 0 * */jan *', '0 0 $/2 * *', '0 0 * * mon/2', '*/5.5 * * * *',
	-- lists
	'1, * * * *', ',1 * * * *', '1,,2 * * * *', '1,60 * * * *', '1;2 * * * *', '1 ,2 * * * *', '1, 2 * * * *', '0 0 1,$ * *', '0 0 $,1 * *', '0 0 $$ * *', '0 0 * $ *', '$ * * * *', '0 0 * * $',
	-- junk behind a range, which pg_cron skips
	'0; 3 * * *', '5foo * * * *', '*5 * * * *', '0* * * * *', '** * * * *', '0 3* * * *', '0 3 *; * *', '0 0 1 janx *', '0 0 1 january *', '0 0 * * monday', '0 0 * * mon2', '0 0 * * 5L', '0 0 * * 5#2', '0 0 15W * *', '0 0 L * *',
	'0 0 ? * *', '0 0 1 * ?', 'H * * * *', '+5 * * * *', '0x5 * * * *', '1.5 * * * *', '''5'' * * * *',
	-- names
	'jan * * * *', '0 mon * * *', '0 0 mon * *', '0 0 * mon *', '0 0 * * jan', '0 0 1 ja *', '0 0 * * su', '0 0 1 foo *', '0 0 1 1jan *',
	'@reboot', '@restart', '@every 5m', '@', '@Daily', '@daily x', '@dail', '0 @daily', '@daily @daily', '# comment',
	-- no fields
	'30 seconds', '1 second', '5 minutes', 'a b c d e', 'every day', '0 3 * * *' || chr(1), '0' || chr(10) || '3 * * *', chr(13) || '0 3 * * *', '0 3 ä * *', 'ä', '1' || repeat(',1', 500) || ' * * * *',
	-- no day of these months
	'0 0 30 2 *', '0 0 31 2 *', '0 0 31 4,6,9,11 *', '0 0 30-31 2 *', '0 0 31 apr */2', '0 0 30,31 feb */7', '@yearly 2']) WITH ORDINALITY AS s(schedule, n)
ORDER BY n;

-- The hint is for who comes from another scheduler
CREATE FUNCTION pg_temp.hint(schedule text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	RETURN shedlock_next_tick(schedule);
EXCEPTION WHEN invalid_parameter_value THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN hint;
END
$$;
SELECT pg_temp.hint(schedule), string_agg(schedule, '  |  ' ORDER BY n) AS schedules
FROM unnest(string_to_array('0 0 3 * * *,0 3 * * * 2026,* * * * * *,0 0 ? * *,0 0 ? * MON,0 0 12 L * ?,0 0 L * *,0 0 LW * *,0 0 15W * *,0 0 * * 5L,0 0 * * 6#3,0 0 0 JUL WED,CRON_TZ=Europe/Berlin 0 3 * * *,TZ=UTC 0 3 * * *,@every 5m,@every 1h30m,5 minutes,30 seconds,1 day,every,every day,every 5 parsecs,everyday,every 5,@reboot,@dailly,H * * * *,H/15 * * * *,H H * * *,0 0 * * sat-sun,0 0 * * 6-0,*/120 * * * *,0 9/2 * * *,nightly,,0 25 * * *,1.5 * * * *', ',')) WITH ORDINALITY AS s(schedule, n)
GROUP BY 1 ORDER BY min(n);

-- Periods: the last tick and the next three from Thursday, the 1st of January 2026, on
SELECT to_json(schedule) AS schedule, time_zone, to_char(a, 'YY-MM-DD HH24:MI:SS') AS first, b - a AS second, c - b AS third
FROM (VALUES ('every 10 min', 'UTC'), ('every 10 minutes', 'utc'), ('EVERY 90 MIN', 'UTC'), ('every 1 second', 'UTC'), ('every 1.5 s', 'UTC'), ('every 1 day', 'UTC'), ('every 7 days', 'UTC'),
	('every 1 day 12:00', 'UTC'), ('every 36:00', 'UTC'), ('every PT2H', 'UTC'), ('every P2D', 'UTC'), ('  every   1  hour ', 'UTC'), (E'every\t1 hour\n', 'UTC'), ('every 36600 days', 'UTC'),
	('every 7 days from 2026-01-05', 'UTC'), ('every 14 days from 2026-01-05 03:00', 'UTC'), ('every 14 days from 2026-01-05 03:00', 'Europe/Berlin'), ('every 14 days from 2026-01-05 03:00', 'Asia/Kolkata'),
	('every 14 days from 2026-01-05T03:00:30', 'UTC'), ('every 14 days from 2026-01-05T03:00Z', 'UTC'), ('every 14 days from 2026-01-05 03:00+01', 'UTC'), ('every 14 days from 2026-01-05 03:00:00-03:30', 'UTC'),
	('every 1 hour from 2000-01-01 00:17', 'UTC'), ('every 1 hour from 2026-01-01', 'UTC'), ('Every 1 Hour From 9999-12-31', 'UTC'), ('every 1 day from 2026-03-29 02:30', 'Europe/Berlin'),
	('every 1 hour from 1900-01-01', 'UTC')) AS s(schedule, time_zone),
	 shedlock_next_tick(schedule, time_zone, '2025-12-31 23:59:59') a,
	 shedlock_next_tick(schedule, time_zone, a) b,
	 shedlock_next_tick(schedule, time_zone, b) c;
SELECT shedlock_next_tick(E'every 1 day \t from  2026-01-01 06:00', 'UTC', '2026-01-05 00:00+00') = '2026-01-05 06:00+00' AS blanks;
SELECT shedlock_tick('every 1 day from 9999-12-31') AS before_it, shedlock_tick('every 1 day') = date_trunc('day', clock_timestamp() + '30 s') AS today,
	   shedlock_tick('every 1 day from 2026-01-01 06:00') = date_bin('1 day', clock_timestamp() + '30 s', '2026-01-01 06:00') AS at_six;
-- nothing in a session changes what a text means
SET intervalstyle = 'sql_standard';
SET datestyle = 'SQL, DMY';
SET timezone = 'Asia/Tokyo';
SELECT extract(epoch FROM shedlock_next_tick('every 14 days from 2026-05-06 03:00', 'UTC', to_timestamp(0)))::bigint = extract(epoch FROM timestamptz '2026-05-06 03:00Z')::bigint AS same,
	   shedlock_next_tick('every 1 day 2 hours', 'UTC', to_timestamp(0)) - to_timestamp(0) AS length;
RESET intervalstyle;
SET datestyle = 'ISO';
SET timezone = 'UTC';
SELECT to_json(left(schedule, 45)) AS schedule, pg_temp.refusal(schedule, time_zone)
FROM (VALUES ('every 0 min', 'UTC'), ('every -5 min', 'UTC'), ('every 1 day -2 hours', 'UTC'), ('every -1 day 36:00', 'UTC'), ('every 999 ms', 'UTC'), ('every 1 month', 'UTC'), ('every 1 year', 'UTC'), ('every 36601 days', 'UTC'),
	('every 99999999999 days', 'UTC'), ('every 9999999999999 hours', 'UTC'), ('every infinity', 'UTC'), ('every ' || repeat(' 1 s', 60), 'UTC'), ('every 5', 'UTC'), ('every @ 5 min ago', 'UTC'), ('every five min', 'UTC'), ('every 5 min 5 min', 'UTC'), ('every min', 'UTC'),
	('every 5 min until 2026-01-05', 'UTC'), ('every 5 min from', 'UTC'), ('every 5 min from ', 'UTC'), ('every from 2026-01-05', 'UTC'), ('every 5 min from now', 'UTC'), ('every 5 min from today', 'UTC'), ('every 5 min from 05.01.2026', 'UTC'),
	('every 5 min from 2026-1-5', 'UTC'), ('every 5 min from 2026-02-29', 'UTC'), ('every 5 min from 2026-13-01', 'UTC'), ('every 5 min from 2026-00-01', 'UTC'), ('every 5 min from 2026-01-05 24:00', 'UTC'), ('every 5 min from 2026-01-05 3:00', 'UTC'),
	('every 5 min from 2026-01-05 03:60', 'UTC'), ('every 5 min from 2026-01-05 03:00:60', 'UTC'), ('every 5 min from 2026-01-05 03:00+16', 'UTC'), ('every 5 min from 2026-01-05 03:00 CET', 'UTC'), ('every 5 min from 2026-01-05 from 2026-01-06', 'UTC'),
	('every 5 min from 0000-01-05', 'UTC'), ('every 5 min from infinity', 'UTC'), ('every 5 min', 'Europe/Berlin'), ('every 5 min from 2026-01-05 03:00Z', 'Europe/Berlin'), ('every 5 min', 'Mars/Olympus')) AS s(schedule, time_zone);

-- Time zones are those of pg_timezone_names: in a rule of POSIX, which SET TIME ZONE accepts,
-- east and west are the other way round.
SELECT time_zone, shedlock_next_tick('0 0 * * *', time_zone, '2026-06-15 12:00') AS tick
FROM unnest('{UTC, utc, GMT, Europe/Berlin, europe/BERLIN, Asia/Kolkata, Etc/GMT-2, etc/gmt+5, Etc/GMT0, Asia/Tokyo}'::text[]) time_zone;
SELECT to_json(left(time_zone, 25)) AS time_zone, left(pg_temp.refusal('0 0 * * *', time_zone), 60) AS refusal
FROM unnest(ARRAY['', ' ', 'Europe/Nowhere', 'Berlin', '+01:00', '2', '-3', 'UTC+2', 'Berlin+1', 'X3', 'ABC-5:30', '<+03>-3', 'Etc/GMT+20', 'GMT+2', 'EST5EDT,M3.2.0,M11.1.0', '../../../etc/passwd', 'Europe', repeat('x', 300)]) time_zone;
-- The server keeps each zone that it has read, so a rule is not read, in a row neither.
CREATE FUNCTION pg_temp.kept() RETURNS bigint LANGUAGE sql AS $$
	SELECT coalesce(sum(total_bytes), 0)::bigint FROM pg_backend_memory_contexts WHERE name = 'Timezones'
$$;
INSERT INTO _shedlock_job (name, schedule, time_zone, attempts, backoff, catch_up, overdue_after, since, created_at, created_by, declared_at, declared_by, turns)
SELECT 'cron_grammar ' || n, '0 0 * * *', 'X' || n, 1, '1 min', 'latest', '5 min', now(), now(), '', now(), '', 0 FROM generate_series(1, 500) n;
SELECT pg_temp.kept() AS kept \gset
SELECT count(DISTINCT pg_temp.refusal('0 0 * * *', 'Y' || n)) AS refused FROM generate_series(1, 500) n;
SELECT count(*) AS shown, count(next_due) AS due FROM shedlock_jobs WHERE name LIKE 'cron_grammar %';
SELECT pg_temp.kept() - :kept AS grown;
DELETE FROM _shedlock_job WHERE name LIKE 'cron_grammar %';
SELECT pg_temp.refusal(NULL), pg_temp.refusal('* * * * *', NULL);
SELECT shedlock_tick(NULL);
SELECT shedlock_tick('* * * * *', NULL);
SELECT shedlock_next_tick('* * * * *', 'UTC', NULL);

-- In full
SELECT shedlock_tick('0 3 * * mon-8');
SELECT shedlock_tick('0 3 * * *', 'Europe/Nowhere');

-- By default, the tick that a timer which fires now is for, and the next one
SELECT tick IN (date_trunc('minute', before), date_trunc('minute', later + '15 s'::interval)) AS now,
	   shedlock_next_tick('* * * * *') - clock_timestamp() BETWEEN '0' AND '1 min' AS next
FROM (SELECT clock_timestamp() AS before, shedlock_tick('* * * * *') AS tick, clock_timestamp() AS later) t;
