-- The history has every run and its outcome, for as long as shedlock.history_keep says.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse

CALL shedlock_run('history', 'SELECT 1');
CALL shedlock_run('history', 'SELECT 1 / 0');
CALL shedlock_run('history', 'DO $$BEGIN RAISE EXCEPTION ''Ouch: %'', 1 USING ERRCODE = ''ZZ001''; END$$');
CALL shedlock_run('history', 'SELECT pg_sleep(20)', '200 ms');
CALL shedlock_run('history', 'SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(20)');
SELECT shedlock_job('history', 'every 36500 days');
CALL shedlock_run('history', 'SELECT 2');
SELECT command, outcome, sqlstate, message, tick AT TIME ZONE 'UTC' AS tick
FROM shedlock_history WHERE name = 'history' ORDER BY token;
SELECT bool_and(started_at <= ended_at) AS ended_at, bool_and(duration = ended_at - started_at) AS duration,
	   bool_and(locked_role = current_user) AS locked_role, bool_and(pid = pg_backend_pid()) AS pid,
	   bool_and(locked_by LIKE '%#' || token) AS locked_by,
	   max(duration) BETWEEN '200 ms' AND '10 s' AS slept
FROM shedlock_history WHERE name = 'history';
SELECT clock_timestamp() - min(started_at) < '1 min' AS started_at FROM shedlock_history WHERE name = 'history';

-- A text that is too long is cut after a whole character, and its length is added.
SELECT format('SELECT %L', repeat('x', 8183)) AS just, format('/* %s */ SELECT 1', repeat('日', 100000)) AS longer,
	   $$DO 'BEGIN RAISE ''%'', repeat(''ä'', 5000); END'$$ AS loud, $$DO 'BEGIN RAISE ''%'', repeat(''ä'', 2048); END'$$ AS less \gset
CALL shedlock_run('history long', :'just');
CALL shedlock_run('history long', :'longer');
\set VERBOSITY sqlstate
CALL shedlock_run('history long', :'loud');
CALL shedlock_run('history long', :'less');
\set VERBOSITY terse
SELECT outcome, left(command, 12) AS command, octet_length(command) AS bytes, substring(command FROM '日?\.\.\. \(\d+ bytes\)$') AS command_end,
	   octet_length(message) AS message_bytes, substring(message FROM 'ä?\.\.\. \(\d+ bytes\)$') AS message_end
FROM shedlock_history WHERE name = 'history long' ORDER BY token;

-- The history has the last warning of a command, whatever its outcome, cut in the same way.
CREATE FUNCTION pg_temp.warn(message text) RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE WARNING '%', message; RAISE NOTICE 'no'; END$$;
CREATE ROLE regress_shedlock_history;
CREATE TABLE history_table ();
SET client_min_messages = error;
CALL shedlock_run('history warning', $$SELECT pg_temp.warn('one'); SELECT pg_temp.warn('two')$$);
CALL shedlock_run('history warning', 'SELECT 1');
CALL shedlock_run('history warning', $$SELECT pg_temp.warn('before'); SELECT 1 / 0$$);
CALL shedlock_run('history warning', $$SELECT pg_temp.warn(repeat('ä', 5000))$$);
CALL shedlock_run('history warning', $$CALL shedlock_run('history warning inner', 'SELECT pg_temp.warn(''inner'')')$$);
CALL shedlock_run('history warning', $$CALL shedlock_run('history warning', 'SELECT pg_temp.warn(''same lock'')')$$);
CALL shedlock_run('history warning', $$CALL shedlock_run('history warning inner', 'SELECT 1 / 0')$$);
CALL shedlock_run('history warning', $$CALL shedlock_run('history warning inner', 'UPDATE shedlock SET token = 1 WHERE name = ''history warning inner''')$$);
SET log_min_messages = error;
CALL shedlock_run('history warning', $$SELECT pg_temp.warn('not logged')$$);
RESET log_min_messages;
SELECT pg_temp.warn('of no run');
SELECT name, outcome, message, CASE WHEN warning LIKE 'ä%' THEN octet_length(warning) || right(warning, 17) ELSE warning END AS warning
FROM shedlock_history WHERE name LIKE 'history warning%' ORDER BY token;
SET ROLE regress_shedlock_history;
CALL shedlock_run('history vacuum', 'VACUUM history_table');
SELECT outcome, warning LIKE '%vacuum%' AS warning FROM shedlock_history;
RESET ROLE;
RESET client_min_messages;
DROP TABLE history_table;
DROP ROLE regress_shedlock_history;

-- The history has a run while it runs.
CREATE TABLE history_seen (outcome text, ended_at timestamptz, mine boolean);
CALL shedlock_run('history now', 'INSERT INTO history_seen SELECT outcome, ended_at, pid = pg_backend_pid()
	FROM shedlock_history WHERE name = ''history now''');
SELECT * FROM history_seen;
DROP TABLE history_seen;

-- If the process of a run has died, the view shows that at once, and the next acquire
-- writes it to the table.
SELECT shedlock_acquire_token('history dead', '1 h') AS token \gset
UPDATE shedlock SET kind = 'run', pid = 0, backend_start = '2026-01-01' WHERE name = 'history dead';
INSERT INTO _shedlock_history (token, name, command, started_at, outcome, locked_role, locked_by, pid)
VALUES (:token, 'history dead', 'SELECT 1', clock_timestamp(), 'running', current_user::regrole, 'somebody', 0);
SELECT outcome FROM shedlock_history WHERE name = 'history dead';
SELECT outcome FROM _shedlock_history WHERE name = 'history dead';
SELECT shedlock_acquire('history dead');
SELECT outcome, ended_at FROM _shedlock_history WHERE name = 'history dead';

-- Times that were written by hand can be infinite: then there is no duration.
UPDATE _shedlock_history SET started_at = '-infinity', ended_at = 'infinity' WHERE name = 'history dead';
SELECT outcome, started_at, ended_at, duration FROM shedlock_history WHERE name = 'history dead';
UPDATE _shedlock_history SET ended_at = started_at WHERE name = 'history dead';
SELECT outcome, started_at, ended_at, duration FROM shedlock_history WHERE name = 'history dead';

-- Each 16th run of a session, the first one included, deletes a bounded number of runs
-- that are older than shedlock.history_keep, also those without an outcome.  The last run
-- of a name stays.
INSERT INTO _shedlock_history (token, name, command, started_at, ended_at, outcome, locked_role, locked_by, pid)
SELECT -n, 'history old', 'SELECT 1', now() - interval '40 days', now() - interval '40 days',
	   CASE n WHEN 300 THEN 'running' ELSE 'succeeded' END, 10, 'somebody', 0
FROM generate_series(1, 301) n;
SHOW shedlock.history_keep;
\c -
SET shedlock.history_keep = '50 d';
CALL shedlock_run('history prune', 'SELECT 1');
SELECT count(*) FROM shedlock_history WHERE name = 'history old';
RESET shedlock.history_keep;
\c -
CALL shedlock_run('history prune', 'SELECT 1');
SELECT count(*), min(token), max(token) FROM shedlock_history WHERE name = 'history old';
\set ECHO none
SELECT 'CALL shedlock_run(''history prune'', ''SELECT 1'')' FROM generate_series(2, 16) \gexec
\set ECHO all
SELECT count(*) FROM shedlock_history WHERE name = 'history old';
CALL shedlock_run('history prune', 'SELECT 1');
SELECT count(*) FROM shedlock_history WHERE name = 'history old';
\c -
CALL shedlock_run('history prune', 'SELECT 1 / 0');
SELECT count(*), min(token), max(token) FROM shedlock_history WHERE name = 'history old';
SELECT count(*) FROM shedlock_history WHERE name = 'history prune';

-- The end of a leased run does it in the caller's transaction.  A run that began while the
-- clock was ahead keeps none of the others.
INSERT INTO _shedlock_history (token, name, command, started_at, ended_at, outcome, locked_role, locked_by, pid)
SELECT -n, 'history old', 'SELECT 1', began, began, 'succeeded', 10, 'somebody', 0
FROM generate_series(2, 5) n, LATERAL (SELECT now() + CASE n WHEN 5 THEN '5 years' ELSE '-40 days' END::interval) t(began);
\c -
SELECT token FROM shedlock_run_begin('history prune', '1 min') \gset
BEGIN;
SELECT shedlock_run_end('history prune', :token);
SELECT token FROM _shedlock_history WHERE name = 'history old' ORDER BY token;
ROLLBACK;
\c -
SELECT token FROM _shedlock_history WHERE name = 'history old' ORDER BY token;
SELECT shedlock_run_end('history prune', :token);
SELECT token FROM _shedlock_history WHERE name = 'history old' ORDER BY token;

-- A run that took longer than that stays for as long after its end.
SELECT token AS first FROM shedlock_run_begin('history prune', '1 min') \gset
UPDATE _shedlock_history SET started_at = started_at - interval '40 days' WHERE token = :first;
SELECT shedlock_run_end('history prune', :first);
SELECT token FROM shedlock_run_begin('history prune', '1 min') \gset
\c -
SELECT shedlock_run_end('history prune', :token);
SELECT outcome FROM shedlock_history WHERE token = :first;

-- So does the last run of a name, which may be at work, if ticks were skipped since.
INSERT INTO _shedlock_history (token, name, tick, started_at, outcome, locked_role, locked_by, pid)
SELECT -1000 - n, 'history skipped', now() - interval '40 days', now() - interval '40 days', CASE n WHEN 3 THEN 'running' ELSE 'skipped' END, 10, 'somebody', 0
FROM generate_series(1, 4) n;
\c -
CALL shedlock_run('history prune', 'SELECT 1');
SELECT token, outcome FROM _shedlock_history WHERE name = 'history skipped' ORDER BY token;

\c -
SET shedlock.history_keep = 0;
CALL shedlock_run('history prune', 'SELECT 1');
RESET shedlock.history_keep;
SELECT name, count(*), max(command) FROM shedlock_history WHERE name LIKE 'history %' AND name !~ 'warning|vacuum' GROUP BY name ORDER BY name;
TRUNCATE _shedlock_history;

-- The last runs of names that never ran again stay, and a run reads only a few of
-- them; old runs after them are deleted all the same.  Here each of a hundred nights,
-- long ago and far apart in tokens, began with such names.
INSERT INTO _shedlock_history (token, name, command, started_at, ended_at, outcome, locked_role, locked_by, pid)
SELECT night * 100000 + n, CASE WHEN n <= 30 THEN 'history gone ' || night || ' ' || n ELSE 'history other ' || n END, 'SELECT 1',
	   now() - interval '40 days', now() - interval '40 days', 'succeeded', 10, 'somebody', 0
FROM generate_series(-100, -1) night, generate_series(1, 70) n;
CREATE FUNCTION pg_temp.name_scans() RETURNS bigint LANGUAGE sql AS $$
	SELECT pg_stat_clear_snapshot();
	SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = '_shedlock_history_name_idx'
$$;
SELECT pg_stat_force_next_flush();
SELECT pg_temp.name_scans() AS scans \gset
\set ECHO none
SELECT 'CALL shedlock_run(''history prune'', ''SELECT 1'')' FROM generate_series(1, 16) \gexec
\set ECHO all
SELECT pg_stat_force_next_flush();
SELECT pg_temp.name_scans() - :scans BETWEEN 16 AND 100 + 16 + 4 * 100 AS bounded;
\set ECHO none
SELECT 'CALL shedlock_run(''history prune'', ''SELECT 1'')' FROM generate_series(1, 2400) \gexec
\set ECHO all
SELECT count(*) FROM _shedlock_history WHERE name LIKE 'history gone %';
SELECT count(*) < 1000 AS pruned, count(*) FILTER (WHERE token > -100000) AS last FROM _shedlock_history WHERE name LIKE 'history other %';
SELECT count(*) FROM shedlock_history WHERE name = 'history prune';

-- So they are where a page has room for few runs.
TRUNCATE _shedlock_history;
INSERT INTO _shedlock_history (token, name, command, started_at, ended_at, outcome, locked_role, locked_by, pid)
SELECT -n, 'history gone ' || n, '', now() - interval '40 days', now() - interval '40 days', 'succeeded', 10, 'somebody', 0
FROM generate_series(1, 30) n;
\c -
CREATE PROCEDURE pg_temp.run_wide() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..320 LOOP
		PERFORM shedlock_run_end('history wide', (shedlock_run_begin('history wide', description =>
			(SELECT string_agg(md5(format('%s %s', i, n)), '') FROM generate_series(1, 54) n))).token);
		COMMIT;
	END LOOP;
END $$;
SET shedlock.history_keep = 0;
SET client_min_messages = warning;
\set ECHO none
SELECT unnest('{CALL pg_temp.run_wide(),VACUUM _shedlock_history}'::text[]) FROM generate_series(1, 10) \gexec
\set ECHO all
RESET client_min_messages;
RESET shedlock.history_keep;
SELECT count(*) < 800 AS pruned FROM _shedlock_history WHERE name = 'history wide';

-- Without an index on name and token nothing is deleted; a new one is as good.
DROP INDEX _shedlock_history_name_idx;
CREATE INDEX history_half ON _shedlock_history (name, token) WHERE token > 0;
CREATE INDEX history_other_way ON _shedlock_history (token, name);
\c -
CALL shedlock_run('history prune', 'SELECT 1');
SELECT token FROM shedlock_run_begin('history prune', '1 min') \gset
\c -
SELECT shedlock_run_end('history prune', :token, 'failed');
SELECT outcome FROM shedlock_history WHERE token = :token;
CREATE INDEX _shedlock_history_name_idx ON _shedlock_history (name, token);
DROP INDEX history_half, history_other_way;
\c -
CALL shedlock_run('history prune', 'SELECT 1');

-- A skipped run deletes nothing and logs nothing.
SELECT count(*) AS runs FROM _shedlock_history \gset
\c -
SET shedlock.history_keep = 0;
SET client_min_messages = warning;
SELECT shedlock_acquire('history busy');
CALL shedlock_run('history busy', 'SELECT 1');
SELECT count(*) = :runs AS untouched FROM _shedlock_history;
RESET client_min_messages;
RESET shedlock.history_keep;

TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history;
