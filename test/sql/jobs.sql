-- shedlock_job says what a job is; the same said again changes nothing.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE ROLE regress_shedlock_alice;
CREATE ROLE regress_shedlock_bob;
SET SESSION AUTHORIZATION regress_shedlock_alice;

-- Each change is a line of the server's log.
SET client_min_messages = log;
SELECT shedlock_job('jobs', '0 3 * * mon', 'Europe/Berlin');
SELECT shedlock_job('jobs', '0 3 * * mon', 'Europe/Berlin');
SELECT shedlock_job('jobs', '0 3 * * mon', 'Europe/Berlin', attempts => 3, backoff => '10 min', max_late => '6 h', slow_after => '30 min',
					lock_at_most_for => '2 h', lock_at_least_for => '1 min', overdue_after => '1 h', catch_up => 'all', description => 'ask alice');
SELECT shedlock_job('jobs', '0 5 * * mon', 'UTC', 3, '5 min', 'all', '6 h', '1 h', '30 min', '2 h', '1 min', 'ask bob');
-- What is left out has its default; it does not stay as it is.
SELECT shedlock_job('jobs', '0 5 * * mon');
SELECT shedlock_forget('jobs');
SELECT shedlock_forget('jobs');
RESET client_min_messages;
SELECT shedlock_job('jobs', '0 5 * * mon', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT shedlock_job('jobs', '0 5 * * mon');
SELECT * FROM (SELECT name, schedule, time_zone, attempts, backoff, catch_up, max_late, overdue_after, slow_after, lock_at_most_for, lock_at_least_for,
					  description, declared_by, created_by, declared_at = created_at AS once FROM shedlock_jobs WHERE name = 'jobs') j \gx
RESET SESSION AUTHORIZATION;

-- What is unchanged takes no transaction ID, and writes no version of the row.
SELECT ctid, xmin FROM _shedlock_job WHERE name = 'jobs' \gset
BEGIN;
SELECT shedlock_job('jobs', '0 5 * * mon'), pg_current_xact_id_if_assigned();
SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation = '_shedlock_job'::regclass;
COMMIT;
SELECT ctid = :'ctid' AS ctid, xmin = :'xmin' AS xmin FROM _shedlock_job WHERE name = 'jobs';

-- Schedules are compared as they are read, durations by their length.  The row keeps the text.
CREATE FUNCTION pg_temp.compare(a text, b text, zone text DEFAULT 'UTC', zone_b text DEFAULT 'UTC') RETURNS text
LANGUAGE sql AS $$
	SELECT shedlock_job('jobs compared', a, zone); SELECT shedlock_job('jobs compared', b, zone_b)
$$;
SELECT a, b, pg_temp.compare(a, b)
FROM (VALUES ('0 0 * * *', '@daily'), ('@daily', ' 0   0 * *	*'), ('0 3 * * mon', '0 3 * * MON'), ('0 3 * * sun', '0 3 * * 7'), ('0 3 * * 1-5', '0 3 * * mon,tue,wed,thu,fri'),
			 ('* * * * *', '*/1 * * * *'), ('0-59 3 * * *', '* 3 * * *'), ('0 3 1-31 * mon', '0 3 * * mon'), ('0 3 $ * *', '0 3 31 * *'),
			 ('every 1 day', 'EVERY  24 hours'), ('every 60 min', '@hourly'), ('every 1 week', 'every P7D'),
			 ('every 1 day from 2026-01-05', 'every 1 day from 2026-01-05T01:00+01'), ('every 1 day from 2026-01-05', 'every 1 day')) v(a, b);
SELECT pg_temp.compare('0 3 * * *', '0 3 * * *', 'Europe/Berlin', 'europe/berlin'), pg_temp.compare('0 3 * * *', '0 3 * * *', 'Europe/Berlin', 'UTC'),
	   pg_temp.compare('every 1 day from 2026-01-05 03:00', 'every 1 day from 2026-01-05 02:00Z', 'Europe/Berlin');
SELECT shedlock_job('jobs compared', '@daily', backoff => '60 s', max_late => '24:00', overdue_after => '30 days', description => '');
SELECT shedlock_job('jobs compared', '0 0 * * *', backoff => '00:01', max_late => '1 day', overdue_after => '1 month', description => '');
SELECT schedule, time_zone, overdue_after FROM shedlock_jobs WHERE name = 'jobs compared';
SELECT shedlock_job('jobs compared', '0 0 * * *', backoff => '00:01', max_late => '1 day', overdue_after => '1 month');

-- What people bring along who come from another scheduler is refused with what to write instead.
CREATE FUNCTION pg_temp.refused(schedule text, zone text DEFAULT 'UTC') RETURNS text
LANGUAGE sql AS $$
	SELECT pg_temp.error_of(format('SELECT shedlock_job(''jobs refused'', %L, %L)', schedule, zone))
$$;
\pset format unaligned
\pset tuples_only on
SELECT pg_temp.refused(schedule)
FROM unnest(ARRAY['0 0 3 * * *', '0 3 * * * 2026', '0 0 3 * * ?', '0 3 ? * mon', '0 3 L * *', '0 3 * * 5L', '0 3 15W * *', '0 3 LW * *', '0 3 * * mon#1', 'CRON_TZ=Europe/Berlin 0 3 * * *',
				  'TZ=UTC 0 3 * * *', '@every 5m', '@reboot', '@Daily', '5 minutes', '30 seconds', 'H 3 * * *', 'H H * * *', '0 3 * * sat-sun', '0 3 * * SAT-SUN', '0 3 * * 6-0', '*/120 * * * *', '0 */25 * * *', '5/15 * * * *', '0 3 * *', E'0 3 * * *\n0 4 * * *']) schedule;
SELECT pg_temp.refused(schedule)
FROM unnest('{every,every day,every 5,every 0.5 s,every 0 s,every -1 day,every 1 day -1 hour,every 1 month,every 1 year,every 36601 days,every 200 years,every infinity,every 5 min 10 min,
			 every 5 min at 03:00,every 5 min from,every 1 day from now,every 1 day from 05.01.2026,every 1 day from 2026-02-29,every 1 day from 2026-01-05 24:00,every 1 day from 2026-01-05 03:00 CET}'::text[]) schedule;
SELECT pg_temp.refused(E'0 3 * * *\a');
SELECT pg_temp.refused(E'every 1\x0bday');
SELECT split_part(pg_temp.refused(repeat('*', 1001)), E'\n', 2);
SELECT pg_temp.refused('0 3 * * *', zone)
FROM unnest('{UTC+2,Berlin+1,X3,<+02>-2,CET-1CEST,Europe/Nowhere,+02,""}'::text[]) zone;
SELECT pg_temp.refused('every 1 day', 'Europe/Berlin');
SELECT pg_temp.refused('every 1 day from 2026-01-05 03:00Z', 'Europe/Berlin');
SELECT pg_temp.error_of(format('SELECT shedlock_job(''jobs refused'', ''@daily'', %s)', argument))
FROM unnest(ARRAY['attempts => 0', 'attempts => 1001', 'backoff => ''-1 s''', 'backoff => ''61 min''', 'backoff => ''1 day -1 hour''', 'catch_up => ''none''', 'max_late => ''0''', 'max_late => ''-1 min''',
				  'max_late => ''101 years''', 'overdue_after => ''0''', 'slow_after => ''0''', 'lock_at_most_for => ''0''', 'lock_at_least_for => ''-1 s''', 'lock_at_most_for => ''1 min'', lock_at_least_for => ''2 min''',
				  'description => repeat(''x'', 256)', 'description => repeat(''é'', 128)', 'description => E''two\nlines''', 'description => E''\u202e''']) argument;
SELECT pg_temp.error_of(format('SELECT shedlock_job(%s)', arguments))
FROM unnest(ARRAY['NULL, ''@daily''', '''jobs refused'', NULL', ''''', ''@daily''', 'repeat(''x'', 256), ''@daily''', 'E''\n'', ''@daily''', 'name => ''jobs refused''']) arguments;
\pset tuples_only off
\pset format aligned
SELECT count(*) FROM shedlock_jobs WHERE name = 'jobs refused';
-- What is near to that is allowed.
SELECT schedule, zone, shedlock_job('jobs allowed', schedule, zone, attempts => 1000, backoff => '1 h', max_late => '100 years', lock_at_least_for => '0', description => repeat('é', 127))
FROM (VALUES ('0 5 */31,1-7 * mon', 'UTC'), ('0 3 $ * *', 'Etc/GMT-2'), ('0 3 * * 6-7', 'Etc/GMT+12'), ('0 */2 * * *', 'Etc/GMT0'), ('0 */24 * * *', 'America/New_York'), ('0 3 29 2 *', 'America/St_Johns'), ('every 1 s', 'UTC'),
			 ('every 36500 days', 'UTC'), ('every 36600 days', 'UTC'), ('every PT90M', 'UTC'), ('every 14 days from 2026-01-05 03:00', 'Europe/Berlin'), ('every 14 days from 2026-01-05T03:00:30-02:30', 'UTC'),
			 (E'\t0\t3 * * *\r\n', 'UTC')) v(schedule, zone);
SELECT to_json(schedule) FROM shedlock_jobs WHERE name = 'jobs allowed';

-- Ticks of cron expressions, and of periods from an instant, count from a minute before the first
-- declaration on; the current period counts, unless it is too late for it, or something began in it.
SET client_min_messages = warning;
CREATE FUNCTION pg_temp.shown(tick timestamptz) RETURNS text
LANGUAGE sql AS $$ SELECT CASE WHEN tick > clock_timestamp() - interval '2 min' AND tick < clock_timestamp() THEN 'recent' ELSE left(tick::text, 10) END $$;
CREATE FUNCTION pg_temp.ticks(pattern text) RETURNS TABLE (name text, schedule text, state text, since text, carried text, last_tick text, attempt int, outcome text)
LANGUAGE sql AS $$
	SELECT name, schedule, state,
		   CASE j.since WHEN v.declared_at THEN 'now' WHEN v.declared_at - interval '1 min' THEN 'a minute ago' ELSE left((j.since + interval '1 us')::text, 10) END,
		   pg_temp.shown(j.carried), pg_temp.shown(last_tick), attempt, last_outcome
	FROM shedlock_jobs v JOIN (SELECT name, since, carried FROM _shedlock_job) j USING (name) WHERE name LIKE pattern ORDER BY name COLLATE "C"
$$;
SELECT shedlock_once('new 6', '2026-01-01'), shedlock_once('new 7', '2026-01-01'), shedlock_once('new 8', '2026-01-01');
UPDATE _shedlock_tick SET claimed_at = '1960-01-01' WHERE name = 'new 7';
SELECT shedlock_job('new 1', '* * * * *'), shedlock_job('new 2', '@yearly'), shedlock_job('new 3', 'every 36500 days'), shedlock_job('new 4', 'every 36500 days', max_late => '1 min'),
	   shedlock_job('new 5', 'every 36500 days from 2001-01-01'), shedlock_job('new 6', 'every 36500 days'), shedlock_job('new 7', 'every 10000 days'), shedlock_job('new 8', '* * * * *'),
	   shedlock_job('new 9', 'every 1 day from 2100-01-01');
SELECT * FROM pg_temp.ticks('new %');
SELECT next_due FROM shedlock_jobs WHERE name = 'new 9';
-- Other settings leave that as it is.
UPDATE _shedlock_job SET since = '2002-01-01' WHERE name = 'new 2';
SELECT shedlock_job('new 2', '0 0 1 1 *', attempts => 2, description => 'as before');
SELECT * FROM pg_temp.ticks('new 2');

-- Another schedule: a tick of the old one that is due counts once more, until a newer one comes; it runs once.
SELECT shedlock_job('other 1', '* * * * *'), shedlock_job('other 1', '@yearly');
SELECT shedlock_job('other 2', 'every 36500 days'), shedlock_job('other 2', '@yearly');
SELECT shedlock_job('other 3', 'every 36500 days'), shedlock_job('other 3', 'every 15000 days');
SELECT shedlock_job('other 4', 'every 36500 days'), shedlock_job('other 4', 'every 15000 days', catch_up => 'all');
-- of a backlog the last one; of several changes the last one that had one; none that was too late, or is too late now
SELECT shedlock_job('other 5', '0 0 1 1 *', catch_up => 'all');
UPDATE _shedlock_job SET since = '2001-06-01' WHERE name = 'other 5';
SET client_min_messages = error;
SELECT shedlock_job('other 5', '0 0 2 1 *');
SET client_min_messages = warning;
SELECT shedlock_job('other 6', 'every 36500 days'), shedlock_job('other 6', '0 3 1 1 *'), shedlock_job('other 6', '0 4 1 1 *');
SELECT shedlock_job('other 7', 'every 36500 days'), shedlock_job('other 7', '@yearly', max_late => '1 h');
SELECT shedlock_job('other 8', '@yearly', max_late => '1 s');
UPDATE _shedlock_job SET since = '2001-06-01' WHERE name = 'other 8';
SELECT shedlock_job('other 8', '0 0 2 1 *');
SELECT carried = shedlock_tick('@yearly') AS last_one FROM _shedlock_job WHERE name = 'other 5';
SELECT * FROM pg_temp.ticks('other %') WHERE name <> 'other 5';
\set ECHO none
SELECT 'CALL shedlock_run(''other ' || n || ''', ''SELECT 1'')' FROM generate_series(1, 8) n, generate_series(1, 2)
\gexec
\set ECHO all
SELECT * FROM pg_temp.ticks('other %') WHERE name <> 'other 5';
SELECT name, count(*), count(DISTINCT tick) FROM shedlock_history WHERE name LIKE 'other %' GROUP BY name ORDER BY name;
-- A WARNING tells which ticks of a backlog, and of a change before, are dropped.
SELECT shedlock_job('dropped', 'every 9000 days from 2000-01-01 00:00:00', catch_up => 'all');
UPDATE _shedlock_job SET since = '1999-01-01' WHERE name = 'dropped';
SELECT shedlock_job('dropped', '@yearly', catch_up => 'all');
SELECT shedlock_job('dropped', '0 1 1 1 *', catch_up => 'all');
UPDATE _shedlock_job SET since = shedlock_tick('0 1 1 1 *') - interval '1 s' WHERE name = 'dropped';
SELECT shedlock_job('dropped', '0 2 1 1 *', catch_up => 'all');
-- attempts that are left; not what had them all, or is too late
SELECT shedlock_job('dropped 2', 'every 9000 days from 2000-01-01 00:00:00', attempts => 2, catch_up => 'all'),
	   shedlock_job('dropped 3', 'every 9000 days from 2000-01-01 00:00:00', catch_up => 'all'),
	   shedlock_job('dropped 4', 'every 9000 days from 2000-01-01 00:00:00', catch_up => 'all', max_late => '9000 days');
INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by, token, attempt, done, retry_at) VALUES ('dropped 2', '2000-01-01', '2000-01-01', '', 1, 1, false, '2000-01-02'),
	('dropped 3', '2000-01-01', '2000-01-01', '', 2, 1, false, 'infinity');
UPDATE _shedlock_job SET since = '1999-01-01' WHERE name LIKE 'dropped _';
SELECT shedlock_job('dropped 2', '@yearly', attempts => 2, catch_up => 'all');
SELECT shedlock_job('dropped 3', '@yearly', catch_up => 'all');
SELECT shedlock_job('dropped 4', '@yearly', catch_up => 'all');
-- a tick before one that was skipped
SELECT shedlock_job('dropped 5', 'every 9000 days from 2000-01-01 00:00:00', catch_up => 'all');
INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by, done, skipped) VALUES ('dropped 5', '1999-06-01', '1999-06-01', '', true, '2024-08-22');
UPDATE _shedlock_job SET since = '1999-01-01' WHERE name = 'dropped 5';
SELECT shedlock_job('dropped 5', '@yearly', catch_up => 'all');
SELECT name, carried FROM _shedlock_job WHERE name LIKE 'dropped _' ORDER BY name;

-- What has begun by the old one keeps its attempts; periods count from now on if something began less than one of them ago.
SELECT shedlock_job('begun 1', 'every 36500 days', attempts => 3, backoff => '0'), shedlock_job('begun 2', 'every 36500 days'), shedlock_job('begun 3', 'every 36500 days'),
	   shedlock_job('begun 4', 'every 36500 days'), shedlock_job('begun 5', 'every 36500 days');
\set ECHO none
\set VERBOSITY sqlstate
SELECT 'CALL shedlock_run(''begun ' || n || ''', ''SELECT 1 / 0'')' FROM generate_series(1, 4) n
\gexec
\set VERBOSITY default
\set ECHO all
SELECT shedlock_once('begun 5', now());
UPDATE _shedlock_tick SET claimed_at = '1960-01-01' WHERE name = 'begun 3';
SELECT shedlock_job('begun 1', '@yearly', attempts => 3, backoff => '0'), shedlock_job('begun 2', 'every 10000 days'), shedlock_job('begun 3', 'every 10000 days'),
	   shedlock_job('begun 4', 'every 10000 days', max_late => '1 min'), shedlock_job('begun 5', 'every 1000 days');
SELECT * FROM pg_temp.ticks('begun %');
CALL shedlock_run('begun 1', 'SELECT 1');
SELECT * FROM pg_temp.ticks('begun 1');
-- A run at work goes on, and its end writes its tick.
SELECT shedlock_job('work', 'every 36500 days', attempts => 2, backoff => '0');
SELECT token FROM shedlock_run_begin('work') \gset
SELECT shedlock_job('work', '@yearly', attempts => 2, backoff => '0');
SELECT shedlock_run_end('work', :token, 'failed');
SELECT * FROM pg_temp.ticks('work');
CALL shedlock_run('work', 'SELECT 1');
SELECT * FROM pg_temp.ticks('work');

-- A job that is forgotten and declared again runs no tick twice, and has no attempts left of before.
\set declare_again 'SELECT shedlock_job(\'again 1\', \'* * * * *\'), shedlock_job(\'again 2\', \'every 36500 days\'), shedlock_job(\'again 3\', \'every 36500 days\', attempts => 3, backoff => \'0\'), shedlock_job(\'again 4\', \'* * * * *\', attempts => 3, backoff => \'0\');'
:declare_again
\set VERBOSITY sqlstate
CALL shedlock_run('again 1', 'SELECT 1');
CALL shedlock_run('again 2', 'SELECT 1');
CALL shedlock_run('again 3', 'SELECT 1 / 0');
CALL shedlock_run('again 4', 'SELECT 1 / 0');
SELECT shedlock_forget('again ' || n) FROM generate_series(1, 4) n;
SELECT name FROM shedlock_jobs WHERE name LIKE 'again%';
:declare_again
SELECT a.state, b.state FROM pg_temp.ticks('again 2') a, pg_temp.ticks('again 3') b;
CALL shedlock_run('again 1', 'SELECT 1');
CALL shedlock_run('again 2', 'SELECT 1');
CALL shedlock_run('again 3', 'SELECT 1');
CALL shedlock_run('again 4', 'SELECT 1');
\set VERBOSITY default
SELECT name, count(*) = count(DISTINCT tick) AS once FROM shedlock_history WHERE name LIKE 'again %' GROUP BY name ORDER BY name;

-- A rollback undoes it, also one to a savepoint.
BEGIN;
SELECT shedlock_job('rollback', '@daily');
SAVEPOINT s;
SELECT shedlock_job('rollback', '@hourly'), shedlock_forget('rollback');
ROLLBACK TO s;
SELECT schedule FROM shedlock_jobs WHERE name = 'rollback';
ROLLBACK;
SELECT schedule FROM shedlock_jobs WHERE name = 'rollback';
BEGIN;
SELECT shedlock_job('rollback', '@daily'), shedlock_job('rollback', '@daily'), shedlock_job('rollback', '@hourly'), shedlock_forget('rollback'), shedlock_job('rollback', '@weekly');
COMMIT;
SELECT schedule FROM shedlock_jobs WHERE name = 'rollback';

-- at any isolation level; not where nothing may be written
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT shedlock_job('rollback', '@weekly'), shedlock_job('rollback', '@daily');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT schedule FROM shedlock_jobs WHERE name = 'rollback';
SELECT shedlock_job('rollback', '@monthly'), shedlock_forget('rollback'), shedlock_job('rollback', '@yearly');
COMMIT;
SET default_transaction_read_only = on;
SELECT pg_temp.error_of('SELECT shedlock_job(''rollback'', ''@yearly'')');
SELECT pg_temp.error_of('SELECT shedlock_forget(''rollback'')');
RESET default_transaction_read_only;

-- No search_path misleads it.
CREATE TEMP TABLE _shedlock_job (name text);
SET search_path = pg_temp, public;
SELECT shedlock_job('rollback', '@daily'), (SELECT count(*) FROM pg_temp._shedlock_job);
SET search_path = '';
SELECT public.shedlock_job('rollback', '@daily'), public.shedlock_job('rollback', '@hourly');
RESET search_path;
DROP TABLE pg_temp._shedlock_job;

-- Whoever has the privileges of the role that created a job can change it; unchanged needs none.
SELECT declared_by, created_by FROM shedlock_jobs WHERE name = 'jobs';
SET SESSION AUTHORIZATION regress_shedlock_bob;
SELECT shedlock_job('jobs', '0 5 * * mon');
SELECT pg_temp.error_of('SELECT shedlock_job(''jobs'', ''0 6 * * mon'')');
SELECT pg_temp.error_of('SELECT shedlock_forget(''jobs'')');
RESET SESSION AUTHORIZATION;
GRANT regress_shedlock_alice TO regress_shedlock_bob;
SET SESSION AUTHORIZATION regress_shedlock_bob;
SELECT shedlock_job('jobs', '0 6 * * mon');
SELECT declared_by, created_by FROM shedlock_jobs WHERE name = 'jobs';
RESET SESSION AUTHORIZATION;
REVOKE regress_shedlock_alice FROM regress_shedlock_bob;
SET SESSION AUTHORIZATION regress_shedlock_bob;
SELECT left(pg_temp.error_of('SELECT shedlock_job(''jobs'', ''0 7 * * mon'')'), 5) AS error;
RESET SESSION AUTHORIZATION;
SELECT shedlock_job('jobs', '0 7 * * mon');
SELECT created_by FROM shedlock_jobs WHERE name = 'jobs';
-- of a role that is gone: superusers; one of the same name has it again
DROP ROLE regress_shedlock_alice;
SET SESSION AUTHORIZATION regress_shedlock_bob;
SELECT left(pg_temp.error_of('SELECT shedlock_job(''jobs'', ''0 8 * * mon'')'), 5) AS error;
RESET SESSION AUTHORIZATION;
SELECT shedlock_job('jobs', '0 8 * * mon');
CREATE ROLE regress_shedlock_alice;
SET ROLE regress_shedlock_alice;
SELECT shedlock_job('jobs', '0 9 * * mon'), shedlock_forget('jobs'), shedlock_job('jobs', '0 9 * * mon');
RESET ROLE;
-- With shedlock.role_prefix the prefix alone decides.
SET shedlock.role_prefix = on;
SELECT shedlock_job('regress_shedlock_bob:job', '@daily');
SET ROLE regress_shedlock_bob;
SELECT shedlock_job('regress_shedlock_bob:job', '@hourly'), shedlock_forget('regress_shedlock_bob:job');
SELECT pg_temp.error_of('SELECT shedlock_job(''regress_shedlock_alice:job'', ''@hourly'')');
SELECT pg_temp.error_of('SELECT shedlock_job(''jobs'', ''0 9 * * mon'')');
SELECT pg_temp.error_of('SELECT shedlock_forget(''jobs'')');
RESET ROLE;
RESET shedlock.role_prefix;
-- The table is nobody's.
SET ROLE regress_shedlock_alice;
SELECT command, pg_temp.error_of(command || ' _shedlock_job' || rest)
FROM (VALUES ('SELECT FROM', ''), ('INSERT INTO', ' DEFAULT VALUES'), ('UPDATE', ' SET name = name'), ('DELETE FROM', ''), ('TRUNCATE', ''), ('LOCK', '')) v(command, rest);
RESET ROLE;

SELECT * FROM pg_temp.my_locks();
DROP ROLE regress_shedlock_alice, regress_shedlock_bob;
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history, _shedlock_stats;
