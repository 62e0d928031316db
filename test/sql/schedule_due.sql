-- Which tick of a job a run is for.  All ticks here are starts of years in UTC, which are
-- far from now, but for those of minutes and of single seconds.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
-- Years pass without a call.
CREATE FUNCTION pg_temp.pass(job text, years integer) RETURNS void LANGUAGE sql AS $$
	UPDATE _shedlock_tick SET tick = tick - years * interval '1 year', claimed_at = claimed_at - years * interval '1 year', skipped = skipped - years * interval '1 year' WHERE name = job;
	UPDATE _shedlock_history SET tick = tick - years * interval '1 year' WHERE name = job;
	UPDATE _shedlock_job SET since = since - years * interval '1 year', carried = carried - years * interval '1 year' WHERE name = job
$$;
CREATE FUNCTION pg_temp.years_ago(tick timestamptz) RETURNS numeric LANGUAGE sql AS $$
	SELECT extract(year FROM shedlock_tick('@yearly')) - extract(year FROM tick)
$$;
-- The runs of a job, as years ago
CREATE FUNCTION pg_temp.tick_runs(job text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(pg_temp.years_ago(tick) || coalesce(' ' || attempt, '') || ' ' || outcome, ', ' ORDER BY token) FROM shedlock_history WHERE name = job
$$;
CREATE TEMP VIEW ticks AS
SELECT name, pg_temp.years_ago(tick) AS years_ago, token IS NOT NULL AS run, attempt, done, again_at IS NOT NULL AS again, retry_at IS NOT NULL AS retry, skipped, period
FROM _shedlock_tick;

-- Of a new job ticks count that came less than a minute before.
SELECT shedlock_job('due first', ' 0  0 1 JAN *'), shedlock_job('due minute', '* * * * *');
CALL shedlock_run('due first', 'SELECT 1');
SELECT * FROM pg_temp.ticks;
CALL shedlock_run('due minute', 'SELECT 1');
SELECT min(tick) > min(declared_at) - interval '1 min' AS fresh FROM shedlock_history JOIN shedlock_jobs USING (name) WHERE name = 'due minute';
-- Of periods it is the current one, unless it is too late for that.
SELECT shedlock_job('due period', 'every 36500 days', max_late => '36500 days', catch_up => 'all');
SELECT shedlock_job('due late period', 'every 36500 days', max_late => '1 s');
CALL shedlock_run('due period', 'SELECT 1');
CALL shedlock_run('due late period', 'SELECT 1');
SELECT name, tick, attempt, outcome FROM shedlock_history WHERE name ~ 'period';
SELECT name, run, attempt, done, again, retry, skipped, period FROM pg_temp.ticks WHERE name ~ 'period';

-- Of ticks that were missed, the last one is run once.
SELECT pg_temp.pass('due first', 3);
CALL shedlock_run('due first', 'SELECT 1');
CALL shedlock_run('due first', 'SELECT 1');
SELECT pg_temp.tick_runs('due first');

-- all: each of them, the oldest first, in one CALL; and the last one after shedlock_again.
SELECT shedlock_job('due all', '@yearly', catch_up => 'all');
SELECT pg_temp.pass('due all', 2);
CALL shedlock_run('due all', 'SELECT 1');
SELECT pg_temp.tick_runs('due all');
SELECT shedlock_again('due all');
CALL shedlock_run('due all', 'SELECT 1');
CALL shedlock_run('due all', 'SELECT 1');
SELECT pg_temp.tick_runs('due all');

-- max_late: none that is older than that, also of all; a longer one brings ticks back.
SELECT clock_timestamp() - shedlock_tick('@yearly') + '1 day' AS late \gset
SELECT shedlock_job('due late', '@yearly', max_late => '1 s');
SELECT pg_temp.pass('due late', 5);
CALL shedlock_run('due late', 'SELECT 1');
SELECT pg_temp.tick_runs('due late');
SELECT shedlock_job('due late', '@yearly', catch_up => 'all', max_late => :'late');
CALL shedlock_run('due late', 'SELECT 1');
SELECT pg_temp.tick_runs('due late');
SELECT shedlock_job('due paused', '@yearly', max_late => '1 s');
SELECT shedlock_pause('due paused'), shedlock_resume('due paused');
SELECT shedlock_job('due paused', '@yearly', max_late => '1 s', catch_up => 'all');
SELECT shedlock_pause('due paused'), shedlock_resume('due paused');
SELECT shedlock_pause('due paused', '2100-06-01'), shedlock_resume('due paused');

-- Another schedule or zone runs no tick twice, and does not lose the last one that was due: that
-- counts until a later one does.  The same schedule can be written in other ways.
SELECT pg_temp.pass('due first', 3);
SELECT shedlock_job('due first', '@yearly', time_zone => 'Asia/Tokyo');
SELECT shedlock_job('due first', '0 0 1 1 *', time_zone => 'Asia/Tokyo');
SELECT pg_temp.years_ago(carried) FROM _shedlock_job WHERE name = 'due first';
CALL shedlock_run('due first', 'SELECT 1');
CALL shedlock_run('due first', 'SELECT 1');
SELECT pg_temp.tick_runs('due first');
SELECT shedlock_job('due first', 'every 36500 days');
CALL shedlock_run('due first', 'SELECT 1');
SELECT shedlock_job('due first', '@annually');
CALL shedlock_run('due first', 'SELECT 1');
SELECT pg_temp.tick_runs('due first');
SELECT pg_temp.pass('due first', 1);
CALL shedlock_run('due first', 'SELECT 1');
SELECT pg_temp.tick_runs('due first');

-- A claim uses the tick up.
SELECT pg_temp.pass('due first', 1);
SELECT shedlock_once('due first', shedlock_tick('@yearly'));
CALL shedlock_run('due first', 'SELECT 1');
SELECT * FROM pg_temp.ticks WHERE name = 'due first';
SELECT pg_temp.pass('due first', 1);
SELECT shedlock_once_every('due first', '1 us');
SELECT run, attempt, done, period FROM pg_temp.ticks WHERE name = 'due first';
CALL shedlock_run('due first', 'SELECT 1');
SELECT shedlock_once_every('due claimed', '36500 days');
SELECT shedlock_job('due claimed', 'every 36500 days');
CALL shedlock_run('due claimed', 'SELECT 1');
SELECT count(*) FROM shedlock_history WHERE name = 'due claimed';

-- A tick that is skipped gets no run; shedlock_again takes that back.
SELECT pg_temp.pass('due first', 1);
SELECT pg_temp.years_ago(shedlock_skip('due first', 'stocktaking'));
CALL shedlock_run('due first', 'SELECT 1');
SELECT outcome, message, tick = shedlock_tick('@yearly') AS tick, attempt, ended_at = started_at AS instant FROM shedlock_history WHERE name = 'due first' ORDER BY token DESC LIMIT 1;
SELECT shedlock_again('due first');
CALL shedlock_run('due first', 'SELECT 1');
SELECT outcome, tick = shedlock_tick('@yearly') AS tick, attempt FROM shedlock_history WHERE name = 'due first' ORDER BY token DESC LIMIT 1;
-- The coming one, if none is due, and that one alone
SELECT pg_temp.years_ago(shedlock_skip('due first')), pg_temp.years_ago(shedlock_skip('due first')) AS the_same;
SELECT next_due - shedlock_next_tick('@yearly') > interval '360 days' AS after_it FROM shedlock_jobs WHERE name = 'due first';
SELECT pg_temp.pass('due first', 1);
CALL shedlock_run('due first', 'SELECT 1');
-- What was skipped stays so when another one is.
SELECT pg_temp.years_ago(shedlock_skip('due first'));
CALL shedlock_run('due first', 'SELECT 1');
SELECT shedlock_again('due first'), shedlock_again('due first');
CALL shedlock_run('due first', 'SELECT 1');
SELECT pg_temp.tick_runs('due first');
-- With all, only if no older one is to be made up
SELECT shedlock_job('due skips', '@yearly', catch_up => 'all');
SELECT pg_temp.years_ago(shedlock_skip('due skips'));
SELECT pg_temp.pass('due skips', 1);
SELECT pg_temp.years_ago(shedlock_skip('due skips')), pg_temp.years_ago(shedlock_skip('due skips')) AS the_same;
UPDATE _shedlock_job SET since = since - interval '2 years' WHERE name = 'due skips';
UPDATE _shedlock_tick SET tick = tick - interval '2 years', skipped = skipped - interval '1 year' WHERE name = 'due skips';
SELECT pg_temp.error_of($$SELECT shedlock_skip('due skips')$$);
CALL shedlock_run('due skips', 'SELECT 1');
SELECT pg_temp.tick_runs('due skips');
-- A tick of the schedule before
SELECT shedlock_job('due carried', '@yearly');
SELECT pg_temp.pass('due carried', 1);
SELECT shedlock_job('due carried', '@yearly', time_zone => 'Asia/Tokyo');
SELECT shedlock_skip('due carried') = shedlock_tick('@yearly') AS carried;
CALL shedlock_run('due carried', 'SELECT 1');
SELECT shedlock_skip('due carried') = shedlock_next_tick('@yearly', 'Asia/Tokyo') AS coming;
CALL shedlock_run('due carried', 'SELECT 1');
SELECT pg_temp.tick_runs('due carried');

-- A pause, and another holder, leave the tick for later; that is no silence.
SELECT pg_temp.pass('due first', 2);
SELECT shedlock_pause('due first', '2100-01-01 01:00+00');
SELECT shedlock_pause('due all', '2100-01-01 01:00+00');
SELECT shedlock_pause('due all', clock_timestamp() + '1 s');
SELECT shedlock_resume('due all');
SELECT shedlock_pause('due first');
SELECT shedlock_pause('due first', '2100-01-01 01:00+00');
UPDATE shedlock SET paused_by = 'somebody' WHERE name = 'due first';
CALL shedlock_run('due first', 'SELECT 1');
SELECT shedlock_resume('due first');
SELECT shedlock_acquire('due first');
UPDATE shedlock SET locked_at = '2026-01-02 03:04:05', locked_by = 'somebody' WHERE name = 'due first';
CALL shedlock_run('due first', 'SELECT 1');
CALL shedlock_run('due first', 'SELECT 1', on_busy => 'error');
SELECT shedlock_release('due first');
CALL shedlock_run('due first', 'SELECT 1');
CALL shedlock_run('due first', 'SELECT 1', on_busy => 'error');
SELECT years_ago, run, attempt, done FROM pg_temp.ticks WHERE name = 'due first';

-- While its lock is kept, a tick is not due; that is silent.
SELECT pg_temp.pass('due first', 1);
CALL shedlock_run('due first', 'SELECT 1', lock_at_least_for => '1 h');
SELECT pg_temp.pass('due first', 1);
CALL shedlock_run('due first', 'SELECT 1', on_busy => 'error');

-- A call that is not due writes nothing.
SELECT state, reason LIKE '%The next tick is ____-01-01 00:00:00+00.' AS reason, next_at = shedlock_next_tick('@yearly') AS next_at, pg_current_xact_id_if_assigned() IS NULL AS unwritten
FROM shedlock_run_begin('due all');

-- A success uses up the ticks that passed meanwhile, but for all, and for a run that
-- began late and was shorter than the time between two ticks.
SELECT shedlock_job('due long', '@yearly');
SELECT pg_temp.pass('due long', 3);
SELECT token FROM shedlock_run_begin('due long', '1 h') \gset
SELECT pg_temp.pass('due long', 2);
SELECT shedlock_run_end('due long', :token);
SELECT years_ago, attempt, done FROM pg_temp.ticks WHERE name = 'due long';
SELECT pg_temp.pass('due long', 1);
SELECT shedlock_job('due long', '@yearly', catch_up => 'all');
SELECT token FROM shedlock_run_begin('due long', '1 h') \gset
SELECT pg_temp.pass('due long', 2);
SELECT shedlock_run_end('due long', :token);
SELECT years_ago, attempt, done FROM pg_temp.ticks WHERE name = 'due long';
SELECT shedlock_job('due long', '@yearly');
SELECT token FROM shedlock_run_begin('due long', '1 h') \gset
SELECT pg_temp.pass('due long', 2);
UPDATE _shedlock_tick SET claimed_at = clock_timestamp() WHERE name = 'due long';
SELECT shedlock_run_end('due long', :token);
SELECT years_ago, attempt, done FROM pg_temp.ticks WHERE name = 'due long';

-- What is forgotten and declared again owes its old ticks nothing, and runs none of them
-- twice.
SELECT pg_temp.pass('due long', 1);
SELECT shedlock_forget('due long');
SELECT shedlock_run_end('due long', token) FROM shedlock_run_begin('due long');
SELECT shedlock_job('due long', '@yearly');
CALL shedlock_run('due long', 'SELECT 1');
SELECT pg_temp.tick_runs('due long');
SELECT pg_temp.pass('due long', 1);
CALL shedlock_run('due long', 'SELECT 1');
SELECT pg_temp.tick_runs('due long');

-- A schedule whose times the clock always skips has no ticks.
SELECT shedlock_job('due never', '*/5 2 25-31 3 */7', 'Europe/Berlin', catch_up => 'all');
CALL shedlock_run('due never', 'SELECT 1', on_busy => 'error');
SELECT * FROM shedlock_run_begin('due never');
SELECT pg_temp.error_of($$SELECT shedlock_skip('due never')$$);
SELECT (SELECT count(*) FROM _shedlock_tick WHERE name = 'due never') AS ticks, (SELECT count(*) FROM shedlock_history WHERE name = 'due never') AS runs;

-- Periods are counted from 1970, or from what "from" says.
SELECT shedlock_job('due every', 'every 36500 days');
SELECT tick, attempt, shedlock_run_end('due every', token) FROM shedlock_run_begin('due every', '1 h');
SELECT shedlock_job('due every', 'every 36500 days from 2020-01-01 03:00', 'Europe/Berlin');
SELECT state, next_at FROM shedlock_run_begin('due every', '1 h');
SELECT shedlock_job('due from', 'every 36500 days from 2020-01-01 03:00', 'Europe/Berlin');
UPDATE _shedlock_job SET since = '2019-01-01' WHERE name = 'due from';
SELECT tick, attempt, shedlock_run_end('due from', token) FROM shedlock_run_begin('due from', '1 h');
SELECT shedlock_job('due from', 'every 36500 days from 2120-01-01', attempts => 2);
SELECT state, next_at FROM shedlock_run_begin('due from', '1 h');
SELECT schedule, time_zone, last_tick, next_due FROM shedlock_jobs WHERE name IN ('due every', 'due from') ORDER BY name;

SELECT * FROM pg_temp.my_locks();
DROP VIEW pg_temp.ticks;
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history, _shedlock_stats;
