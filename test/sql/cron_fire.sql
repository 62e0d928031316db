-- When pg_cron fires a guarded job, which of the job's ticks that misses, and which schedule a
-- job has without its guard.  These functions need no pg_cron.
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set VERBOSITY default

-- What a job of this database is declared as, and what fires it
CREATE FUNCTION pg_temp.fire(schedule text, fire text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
	SELECT _shedlock_cron_declare('cron_fire', schedule, fire, current_user, current_database(), false, false)
$$;
CREATE FUNCTION pg_temp.job() RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' | ', schedule, time_zone, attempts, backoff, catch_up, max_late, overdue_after) FROM shedlock_jobs WHERE name = 'cron_fire'
$$;
SELECT pg_temp.fire('0 9 * * *'), pg_temp.job();
-- again, and with other settings
SELECT pg_temp.fire('0 9 * * *'), pg_temp.fire('0  9 * * * '), pg_temp.fire('*/5 * * * *'), pg_temp.job();
SELECT shedlock_job('cron_fire', '*/5 * * * *', 'Asia/Kolkata', 1, '2 min', overdue_after => '1 h') \g /dev/null
SELECT pg_temp.fire('0 9 * * *'), pg_temp.job();
SET cron.timezone = 'Asia/Kolkata';
SELECT pg_temp.fire('0 9 * * *'), pg_temp.job();
SELECT shedlock_job('cron_fire', '0 9 * * *', 'Asia/Kolkata', attempts => 2), pg_temp.fire('0 9 * * *'), pg_temp.fire('0 9 * * *', '*/5 * * * *'), pg_temp.fire('30 seconds');
SELECT shedlock_job('cron_fire', '0 9 * * *', 'Asia/Kolkata', catch_up => 'all'), pg_temp.fire('0 9 * * *');
SELECT shedlock_job('cron_fire', '0 9 * * *', 'Asia/Kolkata', max_late => '1 h'), pg_temp.fire('0 9 * * *');
-- the time zone of a new job, and of periods
SELECT shedlock_forget('cron_fire'), pg_temp.fire('@yearly'), pg_temp.job();
SELECT pg_temp.fire('every 90 min'), pg_temp.job();
SELECT shedlock_forget('cron_fire'), pg_temp.fire('every 14 days from 2026-01-05 03:00'), pg_temp.job();
SELECT shedlock_forget('cron_fire'), pg_temp.fire('10 seconds'), pg_temp.job();
RESET cron.timezone;
SELECT shedlock_forget('cron_fire'), pg_temp.fire('@daily'), pg_temp.job();
SET cron.timezone = 'gmt';
SELECT _shedlock_cron_timezone();
RESET cron.timezone;

-- In pg_cron's words
SELECT schedule, pg_temp.fire(schedule) AS fire, _shedlock_cron_own_schedule('cron_fire', 'so far') AS own
FROM unnest(ARRAY[E'  5 4   * *\t* \n', '@hourly', '@weekly', ' @yearly ', '@annually', '0 5 */31,1-7 * mon', '1 second', '59 Seconds', '  05seconds ', 'every 1 min - 1 s', 'every 2 seconds']) schedule;
SELECT pg_temp.fire(schedule) AS fire FROM unnest(ARRAY['every 1 min', 'every 10 min', 'every 1 day', 'every 60 s from 2026-01-05']) schedule;
SELECT _shedlock_cron_own_schedule('nobody', '17 * * * *');
SELECT _shedlock_cron_own_schedule('cron_fire', '17 * * * *');
SELECT pg_temp.fire('every 90 min') \g /dev/null
SELECT _shedlock_cron_own_schedule('cron_fire', '17 * * * *');
SELECT shedlock_job('cron_fire', '0 9 * * *', 'America/New_York') \g /dev/null
SELECT _shedlock_cron_own_schedule('cron_fire', '17 * * * *');
SELECT shedlock_job('cron_fire', '0 9 * * *', 'Etc/UCT'), _shedlock_cron_own_schedule('cron_fire', '17 * * * *');
SELECT shedlock_job('cron_fire', '0 9 * * *', 'Etc/GMT-1') \g /dev/null
SELECT _shedlock_cron_own_schedule('cron_fire', '17 * * * *');

-- A name of other roles counts as not declared.
SET shedlock.role_prefix = on;
SET ROLE pg_signal_backend;
SELECT _shedlock_cron_own_schedule('cron_fire', '17 * * * *');
RESET ROLE;
SELECT _shedlock_cron_may_use('regress_gone', 'cron_fire') AS one_that_is_gone;
RESET shedlock.role_prefix;
SELECT _shedlock_cron_may_use('regress_gone', 'cron_fire') AS one_that_is_gone;

-- Refused, and nothing is declared
SELECT shedlock_forget('cron_fire');
SELECT pg_temp.fire('@reboot');
SELECT pg_temp.fire('60 seconds');
SELECT pg_temp.fire('0; 3 * * *');
SELECT pg_temp.fire(NULL);
SELECT pg_temp.fire('0 3 * * *', 'often');
SELECT pg_temp.fire('0 3 * * *', 'every 5 min');
SELECT pg_temp.fire('0 3 * * *', '@reboot');
SELECT _shedlock_cron_declare('cron_fire', '0 3 * * *', NULL, 'nobody_of_that_name', current_database(), false, false);
SET cron.match_dom_and_dow = on;
SELECT pg_temp.fire('0 3 13 * fri');
SELECT pg_temp.fire('0 3 * * *', '0 3 1-31 * 0-6');
SELECT count(*) FROM shedlock_jobs WHERE name = 'cron_fire';
-- not so where one of them begins with "*", and where pg_cron fires each minute
SELECT pg_temp.fire('0 3 */2 * fri'), pg_temp.fire('0 3 13 * fri', '* * * * *');
SET cron.match_dom_and_dow = off;
SELECT pg_temp.fire('0 3 13 * fri');
RESET cron.match_dom_and_dow;

-- A job that is kept stays as it is declared; one of another database is not declared here
SELECT _shedlock_cron_declare('cron_fire', '17 * * * *', NULL, current_user, current_database(), true, false), pg_temp.job();
SELECT shedlock_forget('cron_fire');
SELECT _shedlock_cron_declare('cron_fire', '17 * * * *', NULL, current_user, current_database(), true, true), pg_temp.job();
SELECT _shedlock_cron_declare($$it's$$, '@yearly', NULL, current_user, 'else', false, false);
SELECT _shedlock_cron_declare('elsewhere', '30 seconds', '* * * * *', current_user, 'else', true, true);
SELECT _shedlock_cron_declare('elsewhere', '*/15 * * * *', NULL, current_user, 'else', true, true);
SELECT _shedlock_cron_declare('elsewhere', '0; 3 * * *', NULL, current_user, 'else', false, false);
SELECT count(*) FROM shedlock_jobs WHERE name IN ('elsewhere', $$it's$$);

-- pg_cron must fire at each tick.  The zone that needs no summer time makes the tick's time plain.
CREATE FUNCTION pg_temp.problem(schedule text, fire text, time_zone text DEFAULT 'UTC', attempts integer DEFAULT 1) RETURNS text LANGUAGE sql AS $$
	SELECT shedlock_job('cron_fire', schedule, time_zone, attempts);
	SELECT regexp_replace(_shedlock_cron_problem('cron_fire', fire, 12), '\d{4}-\d\d-\d\d', 'DAY')
$$;
SELECT schedule, fire, time_zone, pg_temp.problem(schedule, fire, time_zone)
FROM (VALUES
	('0 9 * * *', '0 9 * * *', 'UTC'), ('0 9 * * *', '* * * * *', 'UTC'), ('5 9 * * *', '*/5 * * * *', 'UTC'), ('5 9 * * *', '*/10 * * * *', 'UTC'), ('0 9 * * *', '0 10 * * *', 'UTC'),
	('0 9 * * *', '0 9 * * *', 'Asia/Kolkata'), ('0 9 * * *', '30 3 * * *', 'Asia/Kolkata'), ('0 9 * * *', '0 13,14 * * *', 'America/New_York'),
	('0 9 * * *', '50 seconds', 'UTC'), ('0 9 * * *', '@reboot', 'UTC'), ('0 9 * * *', 'what', 'UTC')) v(schedule, fire, time_zone);
SELECT schedule, fire, pg_temp.problem(schedule, fire) ~ '^pg_cron does not fire it at DAY \S+, when it is due; SELECT shedlock_cron_guard\(''12''\) corrects that$' AS misses
FROM (VALUES
	('every 10 min', '*/10 * * * *'), ('every 15 min', '*/10 * * * *'), ('every 1 min', '* * * * *'), ('every 30 seconds', '* * * * *'), ('every 1 min from 2026-01-01 00:00:30', '*/2 * * * *'),
	('every 30 seconds', '30 seconds'), ('every 30 seconds', '31 seconds'), ('every 30 seconds', '10 seconds')) v(schedule, fire);
-- Where pg_cron has no such schedule it misses some ticks, and nothing corrects that.
SELECT schedule, pg_temp.problem(schedule, '* * * * *') AS none
FROM unnest(ARRAY['every 90 seconds', 'every 1 min from 2026-01-01 00:00:30']) schedule;
-- 09:00 in New York is 13:00 or 14:00
SELECT pg_temp.problem('0 9 * * *', '0 13 * * *', 'America/New_York') ~ '^pg_cron does not fire it at DAY 14:00:00\+00, when it is due' AS in_winter,
	   pg_temp.problem('0 9 * * *', '0 14 * * *', 'America/New_York') ~ '^pg_cron does not fire it at DAY 13:00:00\+00, when it is due' AS in_summer;
-- and between them, for attempts and a backlog
SELECT fire, attempts, pg_temp.problem('0 9 * * *', fire, 'UTC', attempts)
FROM (VALUES ('0 9 * * *', 1), ('0 9 * * *', 2), ('0 9,10 * * *', 2), ('* * * * *', 2), ('30 seconds', 2)) v(fire, attempts);
SELECT pg_temp.problem('every 10 min', '*/10 * * * *', 'UTC', 2), pg_temp.problem('every 10 min', '*/5 * * * *', 'UTC', 2);
SELECT shedlock_job('cron_fire', '* * * * *', catch_up => 'all'), _shedlock_cron_problem('cron_fire', '* * * * *', 12);
SET cron.match_dom_and_dow = on;
SELECT pg_temp.problem('0 9 13 * fri', '0 9 13 * fri'), pg_temp.problem('0 9 13 * fri', '* * * * *') AS none;
RESET cron.match_dom_and_dow;
SELECT shedlock_forget('cron_fire'), _shedlock_cron_problem('cron_fire', '0 9 * * *', 12) AS undeclared, _shedlock_cron_problem('cron_fire', ' @reboot', 12) AS not_due;

-- In the name of the job's role: only who has its privileges, and may guard jobs
CREATE ROLE regress_shedlock_cron;
CREATE ROLE regress_shedlock_other;
SELECT _shedlock_cron_declare('cron_fire', '0 9 * * *', NULL, 'regress_shedlock_cron', current_database(), false, false);
SELECT created_by, declared_by FROM shedlock_jobs WHERE name = 'cron_fire';
SET ROLE regress_shedlock_cron;
SELECT _shedlock_cron_declare('cron_fire', '0 10 * * *', NULL, 'regress_shedlock_cron', current_database(), false, false);
RESET ROLE;
GRANT EXECUTE ON FUNCTION shedlock_cron_guard TO regress_shedlock_cron, regress_shedlock_other;
SET ROLE regress_shedlock_cron;
SELECT _shedlock_cron_declare('cron_fire', '0 10 * * *', NULL, 'regress_shedlock_cron', current_database(), false, false);
SELECT _shedlock_cron_declare('cron_fire', '0 11 * * *', NULL, 'regress_shedlock_other', current_database(), false, false);
SET ROLE regress_shedlock_other;
SELECT _shedlock_cron_declare('cron_fire', '0 11 * * *', NULL, 'regress_shedlock_other', current_database(), false, false);
SELECT _shedlock_cron_declare('cron_fire', '0 11 * * *', NULL, 'regress_shedlock_cron', current_database(), false, false);
RESET ROLE;
-- a superuser is not the deputy of that role
SELECT _shedlock_cron_declare('cron_fire', '0 11 * * *', NULL, 'regress_shedlock_other', current_database(), false, false);
SELECT schedule, created_by, declared_by FROM shedlock_jobs WHERE name = 'cron_fire';
SELECT shedlock_forget('cron_fire');
DROP OWNED BY regress_shedlock_cron, regress_shedlock_other;
DROP ROLE regress_shedlock_cron, regress_shedlock_other;
