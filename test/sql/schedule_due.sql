-- Which tick of a schedule a run is for.  All ticks here are starts of years in UTC, which
-- are far from now.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
CREATE FUNCTION pg_temp.back(job text, years integer) RETURNS void LANGUAGE sql AS $$
	UPDATE _shedlock_tick SET tick = tick - years * interval '1 year' WHERE name = job
$$;
CREATE FUNCTION pg_temp.took_years(job text, years integer) RETURNS void LANGUAGE sql AS $$
	UPDATE _shedlock_tick SET tick = tick - years * interval '1 year', claimed_at = claimed_at - years * interval '1 year' WHERE name = job
$$;
CREATE FUNCTION pg_temp.years_ago(tick timestamptz) RETURNS numeric LANGUAGE sql AS $$
	SELECT extract(year FROM shedlock_tick('@yearly')) - extract(year FROM tick)
$$;
-- The runs of a job, as years ago
CREATE FUNCTION pg_temp.tick_runs(job text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(pg_temp.years_ago(tick) || ' ' || attempt || ' ' || outcome, ', ' ORDER BY token) FROM shedlock_history WHERE name = job
$$;
CREATE TEMP VIEW ticks AS
SELECT name, pg_temp.years_ago(tick) AS years_ago, token IS NOT NULL AS run, attempt, done, again, retry_at IS NOT NULL AS retry,
	   period, schedule, time_zone, catch_up, max_late, attempts, backoff FROM _shedlock_tick;
\pset expanded on

-- The first call of a name runs the current period, but of a schedule it only notes that
-- the last tick has passed; unless that was within the last minute.
CALL shedlock_run('due first', 'SELECT 1', schedule => ' 0  0 1 JAN *');
SELECT * FROM pg_temp.ticks;
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly');
CALL shedlock_run('due period', 'SELECT 1', once_every => '36500 days', max_late => '36500 days', catch_up => 'all');
SELECT * FROM pg_temp.ticks WHERE name = 'due period';
\pset expanded off
SELECT name, tick, attempt, outcome FROM shedlock_history;

-- Of ticks that were missed, the last one is run once.
SELECT pg_temp.back('due first', 3);
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly');
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly');
SELECT pg_temp.tick_runs('due first');

-- all: each of them, the oldest first, one a call; and the last one after shedlock_again.
CALL shedlock_run('due all', 'SELECT 1', schedule => '@yearly', catch_up => 'all');
SELECT pg_temp.back('due all', 2);
CALL shedlock_run('due all', 'SELECT 1', schedule => '@yearly', catch_up => 'all');
CALL shedlock_run('due all', 'SELECT 1', schedule => '@yearly', catch_up => 'all');
CALL shedlock_run('due all', 'SELECT 1', schedule => '@yearly', catch_up => 'all');
SELECT shedlock_again('due all');
CALL shedlock_run('due all', 'SELECT 1', schedule => '@yearly', catch_up => 'all');
CALL shedlock_run('due all', 'SELECT 1', schedule => '@yearly', catch_up => 'all');
SELECT pg_temp.tick_runs('due all');

-- max_late: none that is older than that, also of all.
SELECT clock_timestamp() - shedlock_tick('@yearly') + '1 day' AS late \gset
CALL shedlock_run('due late', 'SELECT 1', schedule => '@yearly', catch_up => 'all', max_late => :'late');
SELECT pg_temp.back('due late', 5);
CALL shedlock_run('due late', 'SELECT 1', schedule => '@yearly', max_late => '1 s');
CALL shedlock_run('due late', 'SELECT 1', schedule => '@yearly', catch_up => 'all', max_late => :'late');
CALL shedlock_run('due late', 'SELECT 1', schedule => '@yearly', catch_up => 'all', max_late => :'late');
SELECT pg_temp.tick_runs('due late');

-- Another schedule or zone begins anew, and the log says so.  The same schedule can be
-- written in other ways.
SELECT pg_temp.back('due first', 3);
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly', time_zone => 'Asia/Tokyo');
SELECT years_ago, attempt, done, schedule, time_zone FROM pg_temp.ticks WHERE name = 'due first';
UPDATE _shedlock_tick SET tick = '1960-01-01' WHERE name = 'due first';
CALL shedlock_run('due first', 'SELECT 1', once_every => '36500 days');
SELECT attempt, done, period, schedule, time_zone FROM pg_temp.ticks WHERE name = 'due first';
CALL shedlock_run('due first', 'SELECT 1', schedule => '0 0 1 1 *');
SELECT pg_temp.back('due first', 1);
CALL shedlock_run('due first', 'SELECT 1', schedule => '@annually');
SELECT years_ago, attempt, done, period, schedule, time_zone FROM pg_temp.ticks WHERE name = 'due first';
SELECT tick, attempt FROM shedlock_history WHERE name = 'due first' AND tick = 'epoch';

-- A claim uses the tick up; a claim of a period leaves the schedule of the runs.
SELECT pg_temp.back('due first', 1);
SELECT shedlock_once('due first', shedlock_tick('@yearly'));
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly');
SELECT years_ago, run, attempt, done, schedule FROM pg_temp.ticks WHERE name = 'due first';
SELECT pg_temp.back('due first', 1);
SELECT shedlock_once_every('due first', '1 us');
SELECT run, attempt, done, period, schedule FROM pg_temp.ticks WHERE name = 'due first';
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly');
SELECT shedlock_once_every('due claimed', '36500 days');
CALL shedlock_run('due claimed', 'SELECT 1', once_every => '36500 days');
SELECT count(*) FROM shedlock_history WHERE name = 'due claimed';

-- A run without a schedule leaves the ticks as they are.
SELECT pg_temp.back('due first', 2);
CALL shedlock_run('due first', 'SELECT 1');
SELECT pg_temp.years_ago(tick) > 1 AS old FROM _shedlock_tick WHERE name = 'due first';
SELECT tick, attempt, outcome FROM shedlock_history WHERE name = 'due first' ORDER BY token DESC LIMIT 1;

-- A pause, and another holder, leave the tick for later; that is no silence, even at the
-- first call.
SELECT shedlock_pause('due first', '2100-01-01 01:00+00');
SELECT shedlock_pause('due all', '2100-01-01 01:00+00');
SELECT shedlock_pause('due all', clock_timestamp() + '1 s');
SELECT shedlock_resume('due all');
SELECT shedlock_pause('due first');
SELECT shedlock_pause('due first', '2100-01-01 01:00+00');
UPDATE shedlock SET paused_by = 'somebody' WHERE name = 'due first';
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly');
SELECT shedlock_resume('due first');
SELECT shedlock_pause('due paused', '2100-01-01');
UPDATE shedlock SET paused_by = 'somebody' WHERE name = 'due paused';
CALL shedlock_run('due paused', 'SELECT 1', schedule => '@yearly');
SELECT shedlock_resume('due paused');
SELECT count(*) FROM _shedlock_tick WHERE name = 'due paused';
SELECT shedlock_acquire('due first');
UPDATE shedlock SET locked_at = '2026-01-02 03:04:05', locked_by = 'somebody' WHERE name = 'due first';
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly');
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly', on_busy => 'error');
SELECT shedlock_release('due first');
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly');
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly', on_busy => 'error');
SELECT years_ago, run, attempt, done FROM pg_temp.ticks WHERE name = 'due first';

-- While its lock is kept, a tick is not due; that is silent.
SELECT pg_temp.back('due first', 1);
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly', lock_at_least_for => '1 h');
SELECT pg_temp.back('due first', 1);
CALL shedlock_run('due first', 'SELECT 1', schedule => '@yearly', on_busy => 'error');

-- A call that is not due writes nothing.
SELECT reason LIKE '%The next tick is ____-01-01 00:00:00+00.' AS reason, pg_current_xact_id_if_assigned() IS NULL AS unwritten
FROM shedlock_run_begin('due all', schedule => '@yearly');

-- A success uses up the ticks that passed meanwhile, but for all, and for a run that
-- began late and was shorter than the time between two ticks.
CALL shedlock_run('due long', 'SELECT 1', schedule => '@yearly');
SELECT pg_temp.back('due long', 3);
CALL shedlock_run('due long', $$SELECT pg_temp.took_years('due long', 2)$$, schedule => '@yearly');
SELECT years_ago, done FROM pg_temp.ticks WHERE name = 'due long';
SELECT pg_temp.back('due long', 3);
CALL shedlock_run('due long', $$SELECT pg_temp.took_years('due long', 2)$$, schedule => '@yearly', catch_up => 'all');
SELECT years_ago, done FROM pg_temp.ticks WHERE name = 'due long';
SELECT shedlock_forget('due long');
CALL shedlock_run('due long', 'SELECT 1', schedule => '@yearly');
SELECT pg_temp.back('due long', 3);
CALL shedlock_run('due long', $$SELECT pg_temp.back('due long', 2)$$, schedule => '@yearly');
SELECT years_ago, done FROM pg_temp.ticks WHERE name = 'due long';

-- A schedule whose times the clock always skips has no ticks.
CALL shedlock_run('due never', 'SELECT 1', schedule => '*/5 2 25-31 3 */7', time_zone => 'Europe/Berlin', on_busy => 'error');
SELECT * FROM shedlock_run_begin('due never', schedule => '*/5 2 25-31 3 */7', time_zone => 'Europe/Berlin', catch_up => 'all');
SELECT (SELECT count(*) FROM _shedlock_tick WHERE name = 'due never') AS ticks, (SELECT count(*) FROM shedlock_history WHERE name = 'due never') AS runs;

-- Arguments that make no sense together
\set VERBOSITY terse
CALL shedlock_run('due', 'SELECT 1', once_every => '1 day', schedule => '@daily');
CALL shedlock_run('due', 'SELECT 1', schedule => '@daily', catch_up => 'some');
CALL shedlock_run('due', 'SELECT 1', catch_up => 'all');
CALL shedlock_run('due', 'SELECT 1', max_late => '1 h');
CALL shedlock_run('due', 'SELECT 1', attempts => 2);
CALL shedlock_run('due', 'SELECT 1', time_zone => 'Europe/Berlin');
CALL shedlock_run('due', 'SELECT 1', once_every => '1 day', time_zone => 'Europe/Berlin');
CALL shedlock_run('due', 'SELECT 1', schedule => '@daily', attempts => 0);
CALL shedlock_run('due', 'SELECT 1', schedule => '@daily', attempts => 1001);
CALL shedlock_run('due', 'SELECT 1', schedule => '@daily', max_late => '0');
CALL shedlock_run('due', 'SELECT 1', schedule => '@daily', max_late => '-1 s');
CALL shedlock_run('due', 'SELECT 1', schedule => '@daily', backoff => '-1 s');
CALL shedlock_run('due', 'SELECT 1', schedule => '@daily', backoff => '61 min');
CALL shedlock_run('due', 'SELECT 1', schedule => '61 * * * *');
CALL shedlock_run('due', 'SELECT 1', schedule => '@daily', time_zone => 'Nowhere');
CALL shedlock_run('due', 'SELECT 1', schedule => '@yearly', time_zone => NULL, catch_up => NULL, max_late => NULL, attempts => NULL, backoff => NULL);
SELECT time_zone, catch_up, max_late, attempts, backoff FROM pg_temp.ticks WHERE name = 'due';
SELECT * FROM pg_temp.my_locks();

-- A period is a schedule, too; without "from" its first tick was in 1970
SELECT tick, attempt, reason FROM shedlock_run_begin('due every', '1 hour', schedule => 'every 36500 days');
SELECT shedlock_run_end('due every', token) FROM shedlock_history WHERE name = 'due every' AND outcome = 'running';
SELECT tick, attempt, reason IS NULL AS begun FROM shedlock_run_begin('due every', '1 hour', schedule => 'every 36500 days');
SELECT tick, attempt, reason FROM shedlock_run_begin('due every', '1 hour', schedule => 'every 36500 days from 2020-01-01 03:00', time_zone => 'Europe/Berlin');
SELECT shedlock_run_end('due every', token) FROM shedlock_history WHERE name = 'due every' AND outcome = 'running';
SELECT tick, attempt, reason IS NULL AS begun FROM shedlock_run_begin('due every', '1 hour', schedule => 'every 36500 days from 2120-01-01', attempts => 2);
SELECT schedule, time_zone, last_tick, next_due FROM shedlock_schedules WHERE name = 'due every';

DROP VIEW pg_temp.ticks;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
