-- Included by the regression tests, which keep it out of their output.
-- Nothing of it outlives the session.

-- Loads the library; a setting of a library that is not loaded takes any value.
SELECT _shedlock_cron_timezone() \gset

-- Masks what differs from run to run: times, addresses, tokens, process IDs.
CREATE FUNCTION pg_temp.mask(str text) RETURNS text
LANGUAGE sql AS $$
	SELECT regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(str,
		'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? ?[-+A-Z0-9:]*', 'TIME', 'g'),
		'@[^ "]+ #', '@ADDRESS #', 'g'),
		'#\d+', '#N', 'g'),
		'(token( is)?) \d+', '\1 N', 'gi'),
		'(process ID( is| was)?) \d+', '\1 PID', 'gi')
$$;

-- Returns the whole error that a statement raises; of an undefined function without
-- detail and hint, which PostgreSQL 19 words in another way.
CREATE FUNCTION pg_temp.error_of(statement text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS
		state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
		detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	IF state = '42883' THEN
		RETURN state || ' ' || message;
	END IF;
	RETURN pg_temp.mask(state || ' ' || message ||
						coalesce(E'\nDETAIL ' || nullif(detail, ''), '') ||
						coalesce(E'\nHINT ' || nullif(hint, ''), ''));
END
$$;

-- shedlock's advisory locks that this session has in the lock table.
CREATE FUNCTION pg_temp.my_locks() RETURNS TABLE (class text, mode text, count bigint)
LANGUAGE sql AS $$
	SELECT CASE objsubid WHEN 21324 THEN 'lock' WHEN 21325 THEN 'waiter'
						 WHEN 21326 THEN 'sentinel' WHEN 21327 THEN 'tick' END,
		   mode, count(*)
	FROM pg_locks
	WHERE locktype = 'advisory' AND objsubid BETWEEN 21324 AND 21327 AND
		  pid = pg_backend_pid() AND objsubid <> 21326
	GROUP BY 1, 2
	ORDER BY 1, 2
$$;

-- The runs of a lock, the oldest first.
CREATE FUNCTION pg_temp.runs(name text) RETURNS TABLE (outcome text, sqlstate text, message text)
LANGUAGE sql AS $$
	SELECT h.outcome, h.sqlstate, h.message FROM shedlock_history h WHERE h.name = $1 ORDER BY h.token
$$;

\set ECHO all
