-- _shedlock_cron_last_due returns when a schedule of pg_cron was last due.
SET timezone = 'UTC';
SET datestyle = 'ISO';

-- 2026-11-21 is a Saturday.
SELECT schedule, _shedlock_cron_last_due(schedule, '2026-11-21 12:34:56') AS last_due
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
	'@reboot']) AS schedule;

-- A schedule that pg_cron refuses was never due
SELECT schedule, _shedlock_cron_last_due(schedule) AS last_due
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
	'1.5 seconds']) AS schedule;

-- A schedule is due at the exact instant, and not a moment before
SELECT _shedlock_cron_last_due('0 3 * * *', '2026-11-21 03:00:00') AS at_it,
	   _shedlock_cron_last_due('0 3 * * *', '2026-11-21 02:59:59.999999') AS before_it;
SELECT clock_timestamp() - _shedlock_cron_last_due('* * * * *') < '61 s' AS now_by_default;

-- Schedules are in GMT, whatever the session's time zone
SET timezone = 'Asia/Kolkata';
SELECT _shedlock_cron_last_due('0 3 * * *', '2026-11-21 12:34:56 UTC') AT TIME ZONE 'UTC' AS utc;
RESET timezone;

-- GMT has no daylight saving time, which could bring two runs closer together
SELECT _shedlock_cron_lost_tick('30 0 * * *', '1 day'), _shedlock_cron_lost_tick('30 0 * * *', NULL);
