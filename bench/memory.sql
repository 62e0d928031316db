-- Memory of one session after many calls of each function: a line for each phase with its
-- name, bytes in memory contexts added since the start, and kilobytes of memory that only
-- this process uses.  calls, runs: how many.  The server must not wait for the disk here,
-- because time is not measured.
CREATE TEMP TABLE measured (n serial, phase text, bytes bigint, kb bigint);

-- The bytes in use, without the free ones that a context keeps
CREATE FUNCTION pg_temp.measure(phase text) RETURNS void
LANGUAGE sql AS $$
	INSERT INTO measured (phase, bytes, kb)
	SELECT phase, sum(used_bytes),
		   (regexp_match(pg_read_file('/proc/self/status'), 'RssAnon:\s+(\d+)'))[1]::bigint
	FROM pg_backend_memory_contexts;
$$;

-- Each function once a turn, as a service calls it; most of them twice, by session and
-- by token.
CREATE PROCEDURE pg_temp.leases(turns int)
LANGUAGE plpgsql AS $$
DECLARE
	held bigint;
BEGIN
	FOR i IN 1..turns LOOP
		held := shedlock_acquire_token('memory', '10 min', '0 s', '1 ms', 'somebody');
		IF held IS NULL OR shedlock_acquire('memory') OR shedlock_acquire('busy') OR
			shedlock_token('memory') <> held OR NOT shedlock_extend('memory', held, '20 min', '0 s') OR
			shedlock_assert('memory', held) <> held THEN
			RAISE 'wrong answer';
		END IF;
		COMMIT;
		IF NOT shedlock_release('memory', held) THEN
			RAISE 'wrong answer';
		END IF;
		COMMIT;
	END LOOP;
END $$;

CREATE PROCEDURE pg_temp.session_locks(turns int)
LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..turns LOOP
		IF NOT shedlock_acquire_session('memory session', '10 min') THEN
			RAISE 'wrong answer';
		END IF;
		COMMIT;
		IF NOT shedlock_extend('memory session') OR NOT shedlock_release('memory session') THEN
			RAISE 'wrong answer';
		END IF;
		COMMIT;
	END LOOP;
END $$;

CREATE PROCEDURE pg_temp.ticks(turns int, before int)
LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..turns LOOP
		IF NOT shedlock_once('memory tick', '2001-01-01'::timestamptz + (before + i) * interval '1 s') THEN
			RAISE 'wrong answer';
		END IF;
		PERFORM shedlock_once_every('memory period', '3650 days');
		COMMIT;
	END LOOP;
END $$;

-- Refused calls within one statement must not use more and more memory until its end.
-- Runs are statements of their own.
-- What is kept permanently exists after a few calls.
\set n 1000
CALL pg_temp.leases(:n);
CALL pg_temp.session_locks(:n);
CALL pg_temp.ticks(:n, 0);
SELECT count(*) FROM generate_series(1, :n) WHERE shedlock_acquire('busy');
SELECT format('CALL shedlock_run(%L, %L)', 'memory run', 'SELECT 1') FROM generate_series(1, :n) \gexec
SELECT pg_temp.measure('start');

-- A thousand turns in each statement: a procedure keeps a few bytes until its end for each
-- COMMIT of an UPDATE; that memory is the server's (15 at least).
SELECT format('CALL pg_temp.leases(%s)', :n) FROM generate_series(1, :calls / :n) \gexec
SELECT pg_temp.measure('leases');
SELECT format('CALL pg_temp.session_locks(%s)', :n) FROM generate_series(1, :calls / :n) \gexec
SELECT pg_temp.measure('session locks');
SELECT format('CALL pg_temp.ticks(%s, %s)', :n, :n * i) FROM generate_series(1, :calls / :n) i \gexec
SELECT pg_temp.measure('ticks');
-- In FROM the function would list all numbers first, and malloc() keeps some of that memory.
SELECT count(*) FROM (SELECT generate_series(1, :calls)) calls WHERE shedlock_acquire('busy');
SELECT pg_temp.measure('refused');
SELECT format('CALL shedlock_run(%L, %L)', 'memory run', 'SELECT 1') FROM (SELECT generate_series(1, :runs)) calls \gexec
SELECT pg_temp.measure('runs');

\o
SELECT phase, bytes - lag(bytes) OVER (ORDER BY n), kb - lag(kb) OVER (ORDER BY n) FROM measured ORDER BY n OFFSET 1;
