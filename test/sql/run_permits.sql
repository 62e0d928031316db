-- Runs of a job with permits: as many at once as there are permits, one for each tick.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse

SET timezone = 'UTC';
CREATE ROLE regress_shedlock_permits_a;
CREATE ROLE regress_shedlock_permits_b;
CREATE TABLE permits (what text);
-- Begins so many runs, if they can begin.
CREATE FUNCTION pg_temp.start(job text, permits integer DEFAULT NULL, runs integer DEFAULT 1) RETURNS TABLE (token bigint, tick timestamptz, attempt integer, reason text, lock text, permit integer) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. runs LOOP
		RETURN QUERY SELECT b.token, b.tick, b.attempt, pg_temp.mask(b.reason), b.lock, b.permit FROM shedlock_run_begin(job, permits => start.permits) b;
	END LOOP;
END
$$;
-- The permits that are held.
CREATE FUNCTION pg_temp.held(job text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(name, ' ' ORDER BY name) FROM shedlock_locks WHERE split_part(name, '/', 1) = job AND state = 'held'
$$;
-- Ends the runs at work.
CREATE FUNCTION pg_temp.end_all(job text) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FILTER (WHERE shedlock_run_end(name, token)) FROM shedlock_history WHERE name = job AND outcome = 'running'
$$;

-- Three runs have a permit each; the fourth is refused, and writes nothing.
CREATE TEMP TABLE run AS SELECT b.* FROM pg_temp.start('permits', 3, 3) b;
SELECT lock, permit, num_nulls(tick, attempt, reason) AS nulls, token > 0 AS token FROM run ORDER BY permit;
SELECT * FROM pg_temp.start('permits', 3);
SELECT name, state, kind, locked_by ~ '#' AS locked_by FROM shedlock_locks ORDER BY name;
SELECT name, permit, outcome, token IN (SELECT token FROM run) AS token FROM shedlock_history ORDER BY permit;

-- Each end frees one, by the name of the job, and by that of the lock.
SELECT token AS one FROM run WHERE permit = 1 \gset
SELECT token AS two FROM run WHERE permit = 2 \gset
SELECT token AS three FROM run WHERE permit = 3 \gset
SELECT shedlock_run_end('permits', :one), pg_temp.held('permits');
SELECT shedlock_run_end('permits/2', :two, 'failed', 'disk full', 28), pg_temp.held('permits');
SELECT permit, outcome, message, exit_code FROM shedlock_history ORDER BY permit;
SELECT name, runs_succeeded, runs_failed FROM shedlock_stats WHERE name = 'permits';
-- The same end again, by either name
SELECT shedlock_run_end('permits/1', :one), shedlock_run_end('permits', :one);
\set VERBOSITY sqlstate
SELECT shedlock_run_end('permits/1', :one, 'failed');
-- A wrong token, and one of another lock or job
SELECT shedlock_run_end('permits', 1000000000);
SELECT shedlock_run_end('permits/1', :three);
SELECT token AS other FROM pg_temp.start('permits other', 1) \gset
SELECT shedlock_run_end('permits', :other), shedlock_run_end('permits/1', :other);
SELECT shedlock_run_end('permits other', :three), shedlock_run_end('permits other/1', :three);
SELECT pg_temp.held('permits'), pg_temp.held('permits other'), shedlock_run_end('permits other', :other);

-- A run is extended, asserted and fenced by the name of its lock.
SELECT shedlock_extend('permits/3', :three, '2 h'), shedlock_assert('permits/3', :three) = :three AS asserted, shedlock_token('permits/3') = :three AS token;
SELECT remaining > '1 h 59 min' AS extended FROM shedlock_locks;
SELECT shedlock_extend('permits', :three);
SELECT pg_temp.error_of(format('SELECT shedlock_assert(%L, %s)', 'permits', :three));
SELECT pg_temp.error_of(format('SELECT shedlock_release(%L, %s)', 'permits/3', :three));
\set VERBOSITY terse

-- Three and three again
SELECT permit FROM pg_temp.start('permits', 3, 2) ORDER BY permit;
SELECT reason FROM pg_temp.start('permits', 3);
SELECT pg_temp.end_all('permits');
-- More permits than others have: the greatest number counts.
SELECT count(token) FROM pg_temp.start('permits', 2, 4);
SELECT count(token) FROM pg_temp.start('permits', 3, 4);
SELECT count(token) FROM pg_temp.start('permits', 2, 4);
SELECT pg_temp.held('permits'), pg_temp.end_all('permits');

-- One permit is a lock of another name than that of a job without permits.
SELECT lock, permit FROM pg_temp.start('permits', 1);
SELECT lock, permit FROM pg_temp.start('permits');
SELECT reason FROM pg_temp.start('permits', 1);
SELECT reason FROM pg_temp.start('permits');
SELECT shedlock_acquire('permits/1'), shedlock_acquire('permits/2'), shedlock_acquire('permits');
SELECT pg_temp.held('permits'), pg_temp.end_all('permits');
-- Any other holder of such a lock has the permit.
SELECT count(token), count(reason) FROM pg_temp.start('permits', 2, 2);
SELECT pg_temp.end_all('permits'), shedlock_release('permits/2');

-- The same request has the same answer.
SELECT token AS one, lock AS lock_one, permit AS permit_one FROM shedlock_run_begin('permits', permits => 2, request => 'r1') \gset
SELECT token = :one AS token, lock = :'lock_one' AS lock, permit = :permit_one AS permit, reason FROM shedlock_run_begin('permits', permits => 2, request => 'r1');
SELECT token <> :one AS token, lock <> :'lock_one' AS lock FROM shedlock_run_begin('permits', permits => 2, request => 'r2');
SELECT token, lock, reason FROM shedlock_run_begin('permits', permits => 2, request => 'r3');
SELECT token = :one AS token, lock = :'lock_one' AS lock FROM shedlock_run_begin('permits', permits => 2, request => 'r1');
SELECT pg_temp.end_all('permits');
SELECT token, lock, permit, pg_temp.mask(reason) FROM shedlock_run_begin('permits', permits => 2, request => 'r1');
SELECT token = :one AS token, permit = :permit_one AS permit FROM shedlock_history WHERE request = 'r1';

-- What is refused
SELECT p, pg_temp.error_of(format('SELECT shedlock_run_begin(%L, permits => %s)', 'permits', p)) FROM unnest('{0,-1,1001}'::int[]) p;
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''permits'', permits => 101, wait => ''1 s'')');
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''permits'', permits => 0, wait => ''1 s'')');
CALL shedlock_run('permits', 'SELECT 1', permits => 0);
CALL shedlock_run('permits', 'SELECT 1', permits => 1001);
-- The lock of a permit has a longer name.
SELECT count(token) FROM pg_temp.start(repeat('x', 253), 9);
SELECT pg_temp.error_of(format('SELECT shedlock_run_begin(%L, permits => 10)', repeat('x', 253))) ~ '^22023 ' AS refused;
SELECT pg_temp.end_all(repeat('x', 253));
SELECT count(*) FROM shedlock_locks;
-- So many are not.
SELECT lock ~ '^permits/\d+$' AS lock, permit BETWEEN 1 AND 1000 AS permit FROM pg_temp.start('permits', 1000);
SELECT count(token) FROM shedlock_run_begin('permits', permits => 100, wait => '1 s');
SELECT pg_temp.end_all('permits');

-- The command of a run reads its permit.  Nobody can set it, and it ends with the run.
SHOW shedlock.permit;
CALL shedlock_run('permits', 'INSERT INTO permits SELECT current_setting(''shedlock.permit'') || current_setting(''shedlock.tick'')', permits => 1);
CALL shedlock_run('permits', 'INSERT INTO permits SELECT current_setting(''shedlock.permit'') || '' of attempt '' || current_setting(''shedlock.attempt'')', permits => 1, once_every => '36500 days');
CALL shedlock_run('permits', 'INSERT INTO permits SELECT ''none'' || current_setting(''shedlock.permit'')');
CALL shedlock_run('permits', 'SET shedlock.permit = 2', permits => 1);
TABLE permits;
SHOW shedlock.permit;
SET shedlock.permit = '1';
SELECT name, permit, attempt, outcome, command FROM shedlock_history WHERE command ~ 'shedlock.permit' ORDER BY token;

SELECT max(token) AS last FROM shedlock_history \gset
-- A nested call for the same job only executes its command.  A call for another job, and
-- one without permits, is another run.
TRUNCATE permits;
CALL shedlock_run('permits', 'CALL shedlock_run(''permits'', ''INSERT INTO permits SELECT current_setting(''''shedlock.permit'''')'', permits => 1)', permits => 1);
CALL shedlock_run('permits', 'CALL shedlock_run(''permits'', ''INSERT INTO permits SELECT pg_temp.held(''''permits'''')'', permits => 3)', permits => 1);
CALL shedlock_run('permits', 'CALL shedlock_run(''permits'', ''INSERT INTO permits SELECT ''''none'''' || current_setting(''''shedlock.permit'''') || '''' '''' || pg_temp.held(''''permits'''')'')', permits => 1);
CALL shedlock_run('permits', 'CALL shedlock_run(''permits other'', ''INSERT INTO permits SELECT current_setting(''''shedlock.permit'''') || '''' '''' || pg_temp.held(''''permits'''') || '''' '''' || pg_temp.held(''''permits other'''')'', permits => 1)', permits => 1);
CALL shedlock_run('permits', 'CALL shedlock_run(''permits/1'', ''INSERT INTO permits VALUES (''''same lock'''')'', on_busy => ''error'')', permits => 1);
TABLE permits;
SELECT name, permit, outcome FROM shedlock_history WHERE token > :last ORDER BY token;
SELECT * FROM pg_temp.my_locks();
-- A run of a command is refused like any other.
SELECT count(token) FROM pg_temp.start('permits', 2, 2);
CALL shedlock_run('permits', 'SELECT 1', permits => 2);
\set VERBOSITY default
CALL shedlock_run('permits', 'SELECT 1', permits => 2, on_busy => 'error');
\set VERBOSITY terse
CALL shedlock_run('permits', 'SELECT 1', permits => 3);
SELECT outcome, permit FROM shedlock_history WHERE command = 'SELECT 1';
SELECT pg_temp.end_all('permits');

-- A pause of the job refuses all of them, and disturbs none.
SELECT permit BETWEEN 1 AND 3 AS begun FROM pg_temp.start('permits', 3);
SELECT shedlock_pause('permits', reason => 'why not');
UPDATE shedlock SET paused_by = 'somebody' WHERE paused_by IS NOT NULL;
SELECT reason FROM pg_temp.start('permits', 3);
SELECT reason FROM pg_temp.start('permits');
\set VERBOSITY default
CALL shedlock_run('permits', 'SELECT 1', permits => 3);
\set VERBOSITY terse
SELECT count(*) FROM shedlock_acquire_any(shedlock_permits('permits', 3), 3);
SELECT pg_temp.end_all('permits');
SELECT count(*) FILTER (WHERE shedlock_release(name)) AS released FROM shedlock_locks WHERE kind = 'lease';
SELECT pg_temp.mask(shedlock_why('permits'));
-- Also if the lock of the same name is held, and for a new job with a schedule
SELECT shedlock_resume('permits'), shedlock_acquire('permits'), shedlock_pause('permits');
UPDATE shedlock SET paused_by = 'somebody' WHERE paused_by IS NOT NULL;
SELECT reason FROM pg_temp.start('permits', 3);
SELECT shedlock_release('permits');
SELECT reason FROM pg_temp.start('permits', 3);
SELECT shedlock_pause('permits new');
UPDATE shedlock SET paused_by = 'somebody' WHERE paused_by IS NOT NULL;
SELECT pg_temp.mask(reason) FROM shedlock_run_begin('permits new', schedule => '@yearly', permits => 2);
SELECT pg_temp.mask(reason) FROM shedlock_run_begin('permits new', once_every => '36500 days', permits => 2);
SELECT shedlock_resume('permits new'), shedlock_resume('permits');
SELECT lock ~ '^permits/[123]$' AS begun FROM pg_temp.start('permits', 3);
SELECT pg_temp.end_all('permits');
-- A pause of one of them leaves the others.
SELECT shedlock_pause('permits/2');
UPDATE shedlock SET paused_by = 'somebody' WHERE paused_by IS NOT NULL;
SELECT permit FROM pg_temp.start('permits', 3, 3) ORDER BY permit;
SELECT reason FROM pg_temp.start('permits', 3);
SELECT pg_temp.end_all('permits'), shedlock_resume('permits/2');

-- A forced release of one of them cancels its run, and uses its tick up.
SELECT lock, tick AT TIME ZONE 'UTC' AS tick, attempt FROM shedlock_run_begin('permits tick', once_every => '36500 days', attempts => 3, permits => 1);
SELECT lock FROM pg_temp.start('permits tick', 2);
SELECT shedlock_force_release('permits tick');
\set VERBOSITY sqlstate
SELECT shedlock_force_release('permits tick/1');
\set VERBOSITY terse
SELECT name, permit, outcome, attempt, sqlstate FROM shedlock_history WHERE name = 'permits tick' ORDER BY token;
SELECT pg_temp.mask(reason) FROM shedlock_run_begin('permits tick', once_every => '36500 days', attempts => 3, permits => 2);
SELECT last_outcome, next_attempt_at FROM shedlock_schedules WHERE name = 'permits tick';
SELECT pg_temp.held('permits tick'), pg_temp.end_all('permits tick');
-- shedlock_cancel has no command to cancel.
SELECT shedlock_cancel('permits tick'), shedlock_cancel('permits tick/2');

-- shedlock_why
SELECT shedlock_why('permits never');
SELECT pg_temp.mask(shedlock_why('permits other'));
SELECT permit FROM pg_temp.start('permits other', 1);
SELECT pg_temp.mask(shedlock_why('permits other'));
SELECT pg_temp.mask(shedlock_why('permits other/1'));
SELECT permit FROM pg_temp.start('permits other', 2);
SELECT pg_temp.mask(shedlock_why('permits other'));
SELECT pg_temp.end_all('permits other');
SELECT pg_temp.mask(shedlock_why('permits other'));
SELECT pg_temp.mask(shedlock_why('permits tick'));
SELECT permit FROM shedlock_run_begin('permits tick', once_every => '36500 days', attempts => 5, permits => 1) r;
SELECT shedlock_again('permits tick');
SELECT pg_temp.mask(shedlock_why('permits tick'));
SELECT permit, attempt FROM shedlock_run_begin('permits tick', once_every => '36500 days', attempts => 5, permits => 1);
SELECT pg_temp.mask(shedlock_why('permits tick'));
SELECT pg_temp.end_all('permits tick');

-- With catch_up all, ticks have their runs one after the other, also of callers without permits.
SELECT permit IN (1, 2) AS begun FROM shedlock_run_begin('permits all', once_every => '1 h', catch_up => 'all', permits => 2);
UPDATE shedlock_tick SET tick = tick - interval '1 h' WHERE name = 'permits all';
SELECT pg_temp.mask(reason) FROM shedlock_run_begin('permits all', once_every => '1 h', catch_up => 'all', permits => 2);
SELECT pg_temp.mask(reason) FROM shedlock_run_begin('permits all', once_every => '1 h', catch_up => 'all');
SELECT token FROM shedlock_run_begin('permits all', once_every => '1 h', catch_up => 'all', permits => 2, wait => '10 ms');
CALL shedlock_run('permits all', 'SELECT 1', once_every => '1 h', catch_up => 'all', permits => 2, on_busy => 'error');
SELECT pg_temp.end_all('permits all');
SELECT permit IN (1, 2) AS begun FROM shedlock_run_begin('permits all', once_every => '1 h', catch_up => 'all', permits => 2);
SELECT pg_temp.end_all('permits all');

-- Counters are those of the job.
SELECT name, runs_succeeded, runs_failed, runs_cancelled, runs_lost, gave_up FROM shedlock_stats WHERE name ~ '^permits' ORDER BY name COLLATE "C";
SELECT name, succeeded = runs_succeeded AS succeeded, failed = runs_failed AS failed
FROM (SELECT name, count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded, count(*) FILTER (WHERE outcome = 'failed') AS failed FROM shedlock_history GROUP BY name) h
	 JOIN shedlock_stats s USING (name) WHERE name ~ '^permits' ORDER BY name COLLATE "C";

-- A run whose lease is over is lost.  The next run that has its permit logs and counts it.
SELECT token AS dead, lock AS dead_lock FROM pg_temp.start('permits lost', 2) \gset
UPDATE shedlock SET lock_until = '2026-01-01', locked_at = '2026-01-01' WHERE name = :'dead_lock';
SELECT outcome, permit = split_part(:'dead_lock', '/', 2)::int AS permit FROM shedlock_history WHERE token = :dead;
\set VERBOSITY sqlstate
SELECT shedlock_run_end('permits lost', :dead);
\set VERBOSITY terse
SELECT count(token) FROM pg_temp.start('permits lost', 2, 3);
SELECT outcome FROM shedlock_run_log WHERE token = :dead;
\set VERBOSITY sqlstate
SELECT shedlock_run_end('permits lost', :dead);
\set VERBOSITY terse
SELECT pg_temp.end_all('permits lost');
SELECT runs_succeeded, runs_lost FROM shedlock_stats WHERE name = 'permits lost';

-- A prefix of names is that of the job.
GRANT INSERT ON permits TO regress_shedlock_permits_a;
SET shedlock.role_prefix = on;
SET ROLE regress_shedlock_permits_a;
SELECT lock, reason FROM pg_temp.start('regress_shedlock_permits_a:job', 1);
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''regress_shedlock_permits_b:job'', permits => 1)');
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''job'', permits => 1)');
SELECT pg_temp.end_all('regress_shedlock_permits_a:job');
RESET ROLE;
RESET shedlock.role_prefix;
-- Another role neither ends nor reads the run.
SET ROLE regress_shedlock_permits_a;
SELECT token AS one, lock AS lock_one FROM shedlock_run_begin('permits role', permits => 1, request => 'r1') \gset
SET ROLE regress_shedlock_permits_b;
SELECT pg_temp.error_of(format('SELECT shedlock_run_end(%L, %s)', name, :one)) FROM unnest('{permits role,permits role/1}'::text[]) name;
SELECT token, reason FROM shedlock_run_begin('permits role', permits => 1, request => 'r1');
SELECT count(*) FROM shedlock_history;
RESET ROLE;
SELECT shedlock_run_end('permits role', :one);

-- A run at work stays in the history, however old it is.  Those that have ended go.
TRUNCATE shedlock_run_log;
SELECT count(token) FROM pg_temp.start('permits old', 3, 3);
UPDATE shedlock_run_log SET started_at = '2020-01-01' WHERE name = 'permits old';
SELECT shedlock_run_end(name, min(token)) FROM shedlock_history WHERE name = 'permits old' GROUP BY name;
UPDATE shedlock_run_log SET ended_at = started_at WHERE ended_at > started_at;
\c -
SET shedlock.history_keep = '50 d';
CALL shedlock_run('permits prune', 'SELECT 1');
SELECT outcome, count(*) FROM shedlock_history WHERE name = 'permits old' GROUP BY outcome;
SELECT shedlock_run_end(name, token) FROM shedlock_history WHERE name = 'permits old';
UPDATE shedlock_run_log SET ended_at = started_at WHERE ended_at > started_at;
\c -
SET shedlock.history_keep = '50 d';
CALL shedlock_run('permits prune', 'SELECT 1');
-- The last run of a name stays.
SELECT outcome, count(*) FROM shedlock_history WHERE name = 'permits old' GROUP BY outcome;
-- So does one without a permit that is at work beside it.  One whose lock is forgotten goes.
TRUNCATE shedlock_run_log;
SELECT FROM shedlock_run_begin('permits beside') \gset
SELECT FROM shedlock_run_begin('permits beside', permits => 2) \gset
SELECT lock FROM shedlock_run_begin('permits forgotten', permits => 2) \gset
SELECT FROM shedlock_run_begin('permits forgotten', permits => 2) \gset
SET session_replication_role = replica;
DELETE FROM shedlock WHERE name = :'lock';
RESET session_replication_role;
UPDATE shedlock_run_log SET started_at = '2020-01-01';
\c -
CALL shedlock_run('permits prune', 'SELECT 1');
SELECT name, count(*) FROM shedlock_run_log WHERE name ~ '^permits (beside|forgotten)' GROUP BY name ORDER BY name;
SELECT shedlock_run_end('permits beside', min(token), 'failed') FROM shedlock_run_log WHERE name = 'permits beside';
SELECT runs_failed FROM shedlock_stats WHERE name = 'permits beside';

TRUNCATE shedlock, shedlock_tick, shedlock_run_log, shedlock_run_stat;
DROP TABLE permits;
DROP ROLE regress_shedlock_permits_a, regress_shedlock_permits_b;
