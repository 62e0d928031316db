-- A run executes queries, changes and definitions, and holds the lock meanwhile.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE TABLE run_work (n int PRIMARY KEY, what text);
CREATE TABLE run_seen (state text, kind text, mine boolean, token boolean, advisory text, locked_at_known boolean);

-- What the view shows while a command runs, as seen by the command itself.
CREATE FUNCTION run_look(lock_name text) RETURNS void
LANGUAGE sql AS $$
	INSERT INTO run_seen
	SELECT s.state, s.kind, s.pid = pg_backend_pid(), s.token = shedlock_token(lock_name),
		   (SELECT string_agg(l.mode, ',') FROM pg_locks l
			WHERE l.locktype = 'advisory' AND l.objsubid = 21324 AND l.pid = s.pid),
		   s.locked_at < clock_timestamp()
	FROM shedlock_locks s WHERE s.name = lock_name
$$;
CALL shedlock_run('run', 'SELECT run_look(''run'')');
SELECT * FROM run_seen;
SELECT * FROM pg_temp.my_locks();
SELECT kind, lock_until <= clock_timestamp() AT TIME ZONE 'UTC' AS over FROM shedlock WHERE name = 'run';

-- The command's work is committed, and its result is discarded.
CALL shedlock_run('run', 'INSERT INTO run_work VALUES (1, ''insert'')');
CALL shedlock_run('run', 'SELECT * FROM run_work');
CALL shedlock_run('run', 'INSERT INTO run_work VALUES (2, ''returning'') RETURNING *');
CALL shedlock_run('run', 'WITH w AS (UPDATE run_work SET n = 3 WHERE n = 2 RETURNING *) SELECT * FROM w');
CALL shedlock_run('run', 'VALUES (1), (2)');
CALL shedlock_run('run', 'TABLE run_work');
CALL shedlock_run('run', 'EXPLAIN ANALYZE DELETE FROM run_work WHERE n = 1');
SELECT * FROM run_work ORDER BY n;

-- Several statements are one transaction.
CALL shedlock_run('run', 'INSERT INTO run_work VALUES (10, ''first''); INSERT INTO run_work VALUES (11, ''second''); UPDATE run_work SET what = ''both'' WHERE n >= 10;');
CALL shedlock_run('run', 'INSERT INTO run_work VALUES (20, ''undone''); SELECT 1 / 0; INSERT INTO run_work VALUES (21, ''not reached'')');
SELECT * FROM run_work ORDER BY n;

-- A statement can use what the statement before it has defined.
CALL shedlock_run('run', 'CREATE TABLE run_made (n int); INSERT INTO run_made VALUES (1); ALTER TABLE run_made ADD m int DEFAULT 2; CREATE INDEX ON run_made (m);');
SELECT * FROM run_made;
CALL shedlock_run('run', 'DROP TABLE run_made');
CALL shedlock_run('run', 'CREATE TEMP TABLE run_temp ON COMMIT DROP AS SELECT 1');
CALL shedlock_run('run', 'CREATE TEMP TABLE run_temp AS SELECT 1 AS n');
CALL shedlock_run('run', 'INSERT INTO run_temp VALUES (2)');
SELECT * FROM run_temp;
CALL shedlock_run('run', 'TRUNCATE run_temp');
SELECT count(*) FROM run_temp;
CALL shedlock_run('run', 'CREATE TABLE run_as AS SELECT generate_series(1, 3) AS n; DROP TABLE run_as');

-- Prepared statements, cursors, NOTIFY and LISTEN work.
PREPARE run_insert AS INSERT INTO run_work VALUES ($1, 'prepared');
CALL shedlock_run('run', 'EXECUTE run_insert(30)');
CALL shedlock_run('run', 'PREPARE run_delete AS DELETE FROM run_work WHERE n = $1');
EXECUTE run_delete(30);
DEALLOCATE ALL;
CALL shedlock_run('run', 'NOTIFY run_work, ''done''');
CALL shedlock_run('run', 'LISTEN run_work');
SELECT pg_listening_channels();
CALL shedlock_run('run', 'UNLISTEN run_work');
CALL shedlock_run('run', 'DECLARE run_cursor CURSOR WITH HOLD FOR SELECT n FROM run_work ORDER BY n');
FETCH run_cursor;
CLOSE run_cursor;

-- COPY works between the server and its programs.
CALL shedlock_run('run', 'COPY run_work TO PROGRAM ''cat >/dev/null''');
CALL shedlock_run('run', 'COPY run_work FROM PROGRAM ''printf "40\tcopied\n"''');
SELECT * FROM run_work WHERE n = 40;

-- Blocks work, and their messages go to the client.
CALL shedlock_run('run', $call$DO $$BEGIN INSERT INTO run_work VALUES (50, 'do'); END$$$call$);
CALL shedlock_run('run', $call$DO $$BEGIN INSERT INTO run_work VALUES (51, 'do'); RAISE NOTICE 'to the client'; PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN RAISE WARNING 'caught'; END$$$call$);
SELECT * FROM run_work WHERE n >= 50 ORDER BY n;

SELECT outcome, count(*) FROM pg_temp.runs('run') GROUP BY outcome ORDER BY outcome;
SELECT name, statement FROM pg_cursors;
SELECT * FROM pg_temp.my_locks();

-- At-least and at-most can be given by name or position, or are the defaults.
CALL shedlock_run('run args', 'SELECT 1', '1 h', '30 min', 'skip');
SELECT kind, lock_until - locked_at AS lasts, keep_until - locked_at AS kept, lock_at_most_for
FROM shedlock WHERE name = 'run args';
\set VERBOSITY terse
CALL shedlock_run(command => 'SELECT 1', name => 'run args', on_busy => 'error');
\set VERBOSITY default
SELECT state FROM shedlock_locks WHERE name = 'run args';
SET shedlock.default_lock_at_least_for = '10 min';
CALL shedlock_run('run args default', 'SELECT 1');
SELECT keep_until - locked_at AS kept, lock_at_most_for FROM shedlock WHERE name = 'run args default';
CALL shedlock_run('run args none', 'SELECT 1', lock_at_least_for => '0');
SELECT count(*) FROM shedlock_locks WHERE name = 'run args none';
RESET shedlock.default_lock_at_least_for;

DROP TABLE run_work, run_seen;
DROP FUNCTION run_look(text);
DEALLOCATE ALL;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
