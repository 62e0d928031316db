-- The counters of a name grow by one with each run that ends, in the transaction that
-- records its outcome, and fall only if they are reset.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse
TRUNCATE _shedlock_stats;

CREATE FUNCTION pg_temp.stats(OUT name text, OUT succeeded bigint, OUT failed bigint, OUT timed_out bigint, OUT cancelled bigint,
							  OUT lost bigint, OUT gave_up bigint) RETURNS SETOF record
LANGUAGE sql AS $$
	SELECT name, runs_succeeded, runs_failed, runs_timed_out, runs_cancelled, runs_lost, gave_up FROM shedlock_stats ORDER BY name
$$;
-- Makes a run of shedlock_run_begin one whose lease has expired.
CREATE FUNCTION pg_temp.expire(lock_name text) RETURNS void
LANGUAGE sql AS $$
	UPDATE shedlock SET lock_until = timezone('UTC', clock_timestamp() - interval '1 s'), keep_until = NULL WHERE name = lock_name
$$;

-- Each outcome of a command has its counter.
CALL shedlock_run('stats', 'SELECT 1');
CALL shedlock_run('stats', 'SELECT 1');
CALL shedlock_run('stats', 'SELECT 1 / 0');
CALL shedlock_run('stats', 'SELECT pg_sleep(20)', '200 ms');
CALL shedlock_run('stats', 'SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(20)');
SELECT * FROM pg_temp.stats();
SELECT s.run_seconds / h.seconds BETWEEN 0.5 AND 1.5 AS seconds, s.last_success_at - h.success BETWEEN '-1 s' AND '1 s' AS success,
	   s.last_failure_at - h.failure BETWEEN '-1 s' AND '1 s' AS failure, s.stats_since - h.first BETWEEN '-1 s' AND '1 s' AS since
FROM shedlock_stats s, (
	SELECT extract(epoch FROM sum(duration)) AS seconds, max(ended_at) FILTER (WHERE outcome = 'succeeded') AS success,
		   max(ended_at) FILTER (WHERE outcome = 'timed out') AS failure, min(ended_at) AS first
	FROM shedlock_history WHERE name = 'stats') h
WHERE s.name = 'stats';

-- A skipped run, a lease and a session lock are not counted.
SELECT shedlock_acquire('stats lease'), shedlock_acquire_session('stats session');
CALL shedlock_run('stats lease', 'SELECT 1');
SELECT shedlock_release('stats lease'), shedlock_release('stats session');
SELECT shedlock_job('stats', 'every 36500 days');
CALL shedlock_run('stats', 'SELECT 1');
CALL shedlock_run('stats', 'SELECT 1');
-- shedlock_forget would begin the counters anew.
DELETE FROM _shedlock_job;
SELECT * FROM pg_temp.stats();

-- So does each outcome of a run outside the database; the same end again is not counted.
\set ECHO none
SELECT shedlock_stats_reset();
SELECT format('SELECT shedlock_run_end(''stats'', token, %1$L), shedlock_run_end(''stats'', token, %1$L) FROM shedlock_run_begin(''stats'')', outcome)
FROM unnest('{succeeded,failed,timed out,cancelled}'::text[]) outcome
\gexec
\set ECHO all
SELECT * FROM pg_temp.stats();
SELECT token FROM shedlock_run_begin('stats') \gset
SELECT shedlock_run_end('stats', :token);
SELECT shedlock_run_end('stats', :token);
SET client_min_messages = error;
SELECT shedlock_run_end('stats', :token, 'failed');
RESET client_min_messages;
SELECT * FROM pg_temp.stats();

-- Savepoints and rollbacks
SELECT token FROM shedlock_run_begin('stats') \gset
BEGIN;
SELECT shedlock_run_end('stats', :token);
ROLLBACK;
SELECT * FROM pg_temp.stats();
BEGIN;
SAVEPOINT s;
SELECT shedlock_run_end('stats', :token, 'failed');
SELECT failed FROM pg_temp.stats();
ROLLBACK TO s;
SELECT failed FROM pg_temp.stats();
SELECT shedlock_run_end('stats', :token, 'cancelled');
COMMIT;
SELECT * FROM pg_temp.stats();

-- Several runs that end in one statement
SELECT bool_and(shedlock_run_end(name, token))
FROM unnest('{stats many 0,stats many 1,stats many 0}'::text[]) name, shedlock_run_begin(name);
DO $$
DECLARE
	run bigint;
BEGIN
	FOR i IN 1..3 LOOP
		SELECT token INTO run FROM shedlock_run_begin('stats many 0');
		PERFORM shedlock_run_end('stats many 0', run);
	END LOOP;
END
$$;
SELECT name, succeeded FROM pg_temp.stats() WHERE name LIKE 'stats many%';

-- Nested runs count each for itself.
CALL shedlock_run('stats outer', 'CALL shedlock_run(''stats inner'', ''SELECT 1'')');
CALL shedlock_run('stats outer', 'CALL shedlock_run(''stats inner'', ''SELECT 1 / 0'')');
CALL shedlock_run('stats outer', 'CALL shedlock_run(''stats outer'', ''SELECT 1'')');
SELECT * FROM pg_temp.stats() WHERE name ~ 'er$';

-- A tick that has no attempt left is given up once: by its last run, or by the next tick.
-- After shedlock_again it can be given up once more.
SELECT shedlock_stats_reset();
SELECT shedlock_job('stats ticks', 'every 36500 days', attempts => 2, backoff => '1 us'), shedlock_job('stats passed', 'every 36500 days', attempts => 2);
CALL shedlock_run('stats ticks', 'SELECT 1 / 0');
SELECT failed, gave_up FROM pg_temp.stats();
CALL shedlock_run('stats ticks', 'SELECT 1 / 0');
SELECT failed, gave_up FROM pg_temp.stats();
SELECT shedlock_again('stats ticks');
CALL shedlock_run('stats ticks', 'SELECT 1 / 0');
SELECT failed, gave_up FROM pg_temp.stats();
UPDATE _shedlock_tick SET tick = tick - interval '73000 days' WHERE name = 'stats ticks';
CALL shedlock_run('stats ticks', 'SELECT 1');
SELECT succeeded, failed, gave_up FROM pg_temp.stats();
SELECT shedlock_stats_reset();
CALL shedlock_run('stats passed', 'SELECT 1 / 0');
UPDATE _shedlock_tick SET tick = tick - interval '73000 days' WHERE name = 'stats passed';
SELECT failed, gave_up FROM pg_temp.stats();
CALL shedlock_run('stats passed', 'SELECT 1');
SELECT succeeded, failed, gave_up FROM pg_temp.stats();

-- A run that is released by force is cancelled.  A run that was not ended is lost as soon
-- as the lock is acquired again or its row deleted: by then it is counted, once.
SELECT shedlock_stats_reset();
SET client_min_messages = error;
SELECT token FROM shedlock_run_begin('stats forced') \gset
SELECT shedlock_force_release('stats forced'), shedlock_force_release('stats forced');
SELECT shedlock_run_end('stats forced', :token);
SELECT token AS acquired FROM shedlock_run_begin('stats acquired') \gset
SELECT pg_temp.expire('stats acquired');
SELECT runs_lost FROM shedlock_stats WHERE name = 'stats acquired';
SELECT shedlock_run_end('stats acquired', :acquired);
SELECT shedlock_acquire('stats acquired'), shedlock_release('stats acquired'), shedlock_acquire('stats acquired');
SELECT shedlock_run_end('stats acquired', :acquired);
SELECT count(token) FROM shedlock_run_begin('stats begun');
SELECT pg_temp.expire('stats begun');
SELECT shedlock_run_end('stats begun', token) FROM shedlock_run_begin('stats begun');
SELECT count(token) FROM shedlock_run_begin('stats java');
SELECT pg_temp.expire('stats java');
INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
SELECT 'stats java', t + interval '1 h', t, 'a host' FROM timezone('UTC', clock_timestamp()) t
ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_at = excluded.locked_at, locked_by = excluded.locked_by
WHERE shedlock.lock_until <= excluded.locked_at;
SELECT count(token) FROM shedlock_run_begin('stats deleted');
SELECT pg_temp.expire('stats deleted');
DELETE FROM shedlock WHERE name = 'stats deleted';
SELECT count(token) FROM shedlock_run_begin('stats purged');
SELECT pg_temp.expire('stats purged');
UPDATE shedlock SET locked_at = '2026-01-01', lock_until = '2026-01-01' WHERE name = 'stats purged';
SELECT shedlock_purge('1 day') > 0 AS purged;
RESET client_min_messages;
SELECT * FROM pg_temp.stats();
SELECT name, run_seconds = 0 AS no_time, last_failure_at IS NOT NULL AS failure FROM shedlock_stats WHERE runs_lost > 0 ORDER BY name;
SELECT bool_and(s.runs = h.runs) AS as_in_history
FROM (SELECT name, runs_succeeded + runs_cancelled + runs_lost AS runs FROM shedlock_stats) s
	 FULL JOIN (SELECT name, count(*) AS runs FROM shedlock_history GROUP BY name) h USING (name)
WHERE name ~ 'stats (forced|acquired|begun|java|deleted|purged)$';

-- Neither the history nor the locks hold the counters.
SELECT shedlock_stats_reset();
SET shedlock.history_keep = 0;
\set ECHO none
SELECT 'CALL shedlock_run(''stats kept'', ''SELECT 1'')' FROM generate_series(1, 17) \gexec
\set ECHO all
RESET shedlock.history_keep;
SELECT count(*) < 17 AS pruned FROM shedlock_history WHERE name = 'stats kept';
SELECT shedlock_purge('0', true) > 0 AS purged;
SELECT * FROM pg_temp.stats();

-- The longest name
SELECT repeat('日', 85) AS long_name, repeat('x', 255) AS longer_name \gset
CALL shedlock_run(:'long_name', 'SELECT 1');
CALL shedlock_run(:'longer_name', 'SELECT 1');
SELECT length(name), succeeded FROM pg_temp.stats();

-- Reset of a name, of one that has no counters, and of all
SELECT stats_since AS since FROM shedlock_stats WHERE name = 'stats kept' \gset
SELECT shedlock_stats_reset(:'long_name');
SELECT shedlock_stats_reset('stats nobody');
SELECT shedlock_stats_reset('');
SELECT length(name), succeeded FROM pg_temp.stats();
SELECT shedlock_stats_reset('stats kept');
CALL shedlock_run('stats kept', 'SELECT 1 / 0');
SELECT runs_succeeded, runs_failed, last_success_at, stats_since > :'since' AS since FROM shedlock_stats WHERE name = 'stats kept';
BEGIN;
SELECT shedlock_stats_reset();
SELECT count(*) FROM shedlock_stats;
ROLLBACK;
SELECT count(*) FROM shedlock_stats;
BEGIN;
SELECT shedlock_stats_reset('stats kept');
SELECT shedlock_run_end('stats kept', token) FROM shedlock_run_begin('stats kept');
SELECT shedlock_stats_reset();
COMMIT;
SELECT count(*) FROM shedlock_stats;
BEGIN READ ONLY;
SELECT shedlock_stats_reset();
ROLLBACK;
BEGIN READ ONLY;
SELECT shedlock_stats_reset('stats kept');
ROLLBACK;
SELECT shedlock_stats_reset(NULL);

-- What a command leaves behind does not hinder the counting.
CREATE ROLE regress_shedlock_stats;
CALL shedlock_run('stats left', 'SET default_transaction_read_only = on; SET default_transaction_isolation = serializable; SET ROLE regress_shedlock_stats; SET search_path = pg_catalog');
SELECT current_role, current_setting('default_transaction_read_only');
SET SESSION AUTHORIZATION DEFAULT;
RESET ALL;
CALL shedlock_run('stats left', 'SET TRANSACTION READ ONLY; SELECT 1');
SELECT * FROM pg_temp.stats();

-- A role without rights reads the counters, and neither resets nor writes them.
SET ROLE regress_shedlock_stats;
CALL shedlock_run('stats of a plain role', 'SELECT 1');
SELECT * FROM pg_temp.stats();
SELECT pg_temp.error_of('SELECT shedlock_stats_reset()');
SELECT pg_temp.error_of('SELECT shedlock_stats_reset(''stats of a plain role'')');
SELECT pg_temp.error_of('UPDATE _shedlock_stats SET runs_failed = 0');
SELECT left(pg_temp.error_of('UPDATE shedlock_stats SET runs_failed = 0'), 5) AS error;
RESET ROLE;

-- With shedlock.role_prefix on, a role sees and resets those of its own names; a role
-- that sees all resets no more than that.
CREATE ROLE regress_shedlock_stats_b;
GRANT EXECUTE ON FUNCTION shedlock_stats_reset(text) TO PUBLIC;
SELECT shedlock_stats_reset();
CALL shedlock_run('regress_shedlock_stats:job', 'SELECT 1');
CALL shedlock_run('regress_shedlock_stats_b:job', 'SELECT 1');
CALL shedlock_run('stats of nobody', 'SELECT 1');
CREATE FUNCTION pg_temp.removed(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE format('EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM shedlock_stats WHERE name = %L', name) INTO plan;
	RETURN plan->0->'Plan'->>'Rows Removed by Filter';
END
$$;
SET shedlock.role_prefix = on;
SET ROLE regress_shedlock_stats;
SELECT name FROM pg_temp.stats();
-- EXPLAIN does not tell a name of another role from one that does not exist.
SELECT pg_temp.removed('regress_shedlock_stats_b:job') AS exists, pg_temp.removed('regress_shedlock_stats_b:none') AS none;
SELECT pg_temp.error_of('SELECT shedlock_stats_reset(''regress_shedlock_stats_b:job'')');
SELECT shedlock_stats_reset();
RESET ROLE;
SELECT name FROM pg_temp.stats();
GRANT pg_monitor TO regress_shedlock_stats;
SET ROLE regress_shedlock_stats;
SELECT name FROM pg_temp.stats();
SELECT shedlock_stats_reset();
SELECT pg_temp.error_of('SELECT shedlock_stats_reset(''stats of nobody'')');
SELECT name FROM pg_temp.stats();
RESET ROLE;
RESET shedlock.role_prefix;
REVOKE EXECUTE ON FUNCTION shedlock_stats_reset(text) FROM PUBLIC;
DROP ROLE regress_shedlock_stats, regress_shedlock_stats_b;

-- If the table was altered so that no run could be counted, none begins, because its end
-- would fail.  If that happens during a run, its lock is released all the same, and its tick
-- used up.
\set VERBOSITY default
\set SHOW_CONTEXT never
SELECT shedlock_stats_reset();
SELECT token FROM shedlock_run_begin('stats open') \gset
SELECT shedlock_job('stats altered', 'every 36500 days', attempts => 3);
CALL shedlock_run('stats altered', 'ALTER TABLE _shedlock_stats RENAME gave_up TO given_up; ALTER TABLE _shedlock_stats ALTER runs_lost DROP NOT NULL');
SELECT outcome FROM shedlock_history WHERE name = 'stats altered';
SELECT state FROM shedlock_locks WHERE name = 'stats altered';
SELECT done, shedlock_again(name) FROM _shedlock_tick WHERE name = 'stats altered';
CALL shedlock_run('stats altered', 'DO $$BEGIN RAISE NOTICE ''at work''; END$$');
SELECT pg_temp.error_of('SELECT * FROM shedlock_run_begin(''stats altered'')');
SELECT pg_temp.error_of(format('SELECT shedlock_run_end(''stats open'', %s)', :token));
SELECT shedlock_acquire('stats altered'), shedlock_release('stats altered');
ALTER TABLE _shedlock_stats ALTER runs_lost SET NOT NULL;
ALTER TABLE _shedlock_stats RENAME given_up TO gave_up;
SELECT shedlock_run_end('stats open', :token);
SELECT * FROM pg_temp.stats();
ALTER TABLE _shedlock_stats ADD CONSTRAINT stats_few CHECK (runs_succeeded < 2);
CALL shedlock_run('stats open', 'SELECT 1');
ALTER TABLE _shedlock_stats DROP CONSTRAINT stats_few;
ALTER TABLE _shedlock_stats SET UNLOGGED;
CALL shedlock_run('stats open', 'SELECT 1');
ALTER TABLE _shedlock_stats SET LOGGED;
ALTER TABLE _shedlock_stats ADD note text NOT NULL DEFAULT 'none';
CALL shedlock_run('stats open', 'SELECT 1');
CALL shedlock_run('stats other', 'SELECT 1');
SELECT name, runs_succeeded, note FROM _shedlock_stats ORDER BY name;
ALTER TABLE _shedlock_stats DROP note;

-- Its row deleted, or changed, by hand
DELETE FROM _shedlock_stats WHERE name = 'stats open';
CALL shedlock_run('stats open', 'SELECT 1');
CALL shedlock_run('stats other', 'UPDATE _shedlock_stats SET runs_failed = 7 WHERE name = ''stats other''');
SELECT * FROM pg_temp.stats();

TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history, _shedlock_stats;
