-- When a schedule of pg_cron was last due, and when it is due next
SET timezone = 'UTC';
SET datestyle = 'ISO';

-- 2026-11-21 is a Saturday.
SELECT schedule, last_due, next_due
FROM unnest(ARRAY[
	'* * * * *',
	'34 * * * *',
	'35 * * * *',
	'*/20 * * * *',
	'10-30/5 * * * *',
	'1,3,5-7,59 * * * *',
	'0 3 * * *',
	'0 13 * * *',
	'30 3-5,22 * * *',
	'0 0 1 * *',
	'0 0 1 jan *',
	'0 0 1 1-6/5 *',
	'0 0 * NOV,dec *',
	'0 0 * * 6',
	'0 0 * * sun',
	'0 0 * * 7',
	'0 0 * * mon-Fri',
	'0 0 13 * *',
	'0 0 13 * fri',
	'0 0 */2 * mon',
	'0 0 13 * */2',
	'0 12 $ * *',
	'0 12 $ * mon',
	'  5 4 * * *  ',
	'0 0 22 11 *',
	'0 0 29 2 *',
	'0 0 30 2 *',
	'30 seconds',
	'1 second',
	'59 Seconds',
	'  05seconds ',
	'@hourly',
	'@daily',
	'@midnight',
	'@weekly',
	'@monthly',
	'@yearly',
	'@annually',
	'@reboot']) AS schedule, _shedlock_cron_due(schedule, NULL, '2026-11-21 12:34:56');

-- A schedule that cannot be parsed is never due
SELECT schedule, last_due, next_due
FROM unnest(ARRAY[
	NULL,
	'',
	'* * * *',
	'60 * * * *',
	'* 24 * * *',
	'* * 0 * *',
	'* * 32 * *',
	'* * * 13 *',
	'* * * * 8',
	'5/10 * * * *',
	'*/0 * * * *',
	'5- * * * *',
	'1-99999999999 * * * *',
	'jan * * * *',
	'a b c d e',
	'0 seconds',
	'60 seconds',
	'1 minute',
	'0; 3 * * *',
	'second',
	'10 second s',
	'1.5 seconds']) AS schedule, _shedlock_cron_due(schedule, NULL, '2026-11-21 12:34:56');

-- A schedule is due at the exact instant, and not a moment before
SELECT at, last_due, next_due
FROM unnest('{2026-11-21 02:59:59.999999,2026-11-21 03:00:00}'::timestamptz[]) at, _shedlock_cron_due('0 3 * * *', NULL, at);
SELECT at, last_due, next_due FROM unnest('{-infinity,infinity}'::timestamptz[]) at, _shedlock_cron_due('10 seconds', NULL, at);
SELECT (_shedlock_cron_due('0 3 * * *', NULL, NULL)).*;

-- Schedules are in GMT, or the time zone that is given, whatever the session's is
SET timezone = 'Asia/Kolkata';
SELECT zone, last_due AT TIME ZONE 'UTC' AS last_due, next_due AT TIME ZONE 'UTC' AS next_due
FROM unnest('{NULL,Europe/Berlin,Mars/Olympus}'::text[]) zone, _shedlock_cron_due('0 3 * * *', zone, '2026-11-21 12:34:56 UTC');
RESET timezone;

-- Schedules in seconds
SELECT schedule, _shedlock_cron_seconds(schedule) AS seconds
FROM unnest('{10 seconds,  01SECOND ,59 seconds,060 seconds,4294967297 seconds,0 seconds,seconds,-1 seconds,1 second or so,* * * * *}'::text[]) schedule;

-- The next tick at which pg_cron does not fire the job
SELECT schedule, zone, fire, late
FROM (VALUES ('0 3 * * *', 'GMT', '0 3 * * *'), ('0 3 * * *', 'UTC', '0 3 * * *'), ('0 3 * * *', 'Europe/Berlin', '* * * * *'),
			 ('0 3 * * *', 'Europe/Berlin', '0 1,2 * * *'), ('30 * * * *', 'Asia/Kolkata', '0 * * * *'), ('*/20 * * * *', 'GMT', '*/10 * * * *'),
			 ('0 3 * * *', 'GMT', '10 seconds'), ('@reboot', 'GMT', '* * * * *'), ('0 3 * * *', NULL, '0 3 * * *')) t(schedule, zone, fire),
	 _shedlock_cron_late_tick(schedule, zone, fire) late;
SELECT schedule, fire,
	   date_part('hour', late AT TIME ZONE 'Europe/Berlin') AS hour, date_part('minute', late) AS minute
FROM (VALUES ('0 3 * * *', '0 2 * * *'), ('0 3 * * *', '0 1 * * *'), ('5 3 * * *', '*/10 * * * *')) t(schedule, fire),
	 _shedlock_cron_late_tick(schedule, 'Europe/Berlin', fire) late;

-- GMT has no daylight saving time, which could bring two runs closer together
SELECT _shedlock_cron_lost_tick('30 0 * * *', '1 day', now()), _shedlock_cron_lost_tick('30 0 * * *', NULL, now()),
	   _shedlock_cron_lost_tick('@reboot', '1 day', now());
