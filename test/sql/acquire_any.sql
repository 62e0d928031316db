-- shedlock_acquire_any acquires some of several locks.  Each is a lease like any other.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

-- What a call acquires: the names in the order of the answer
CREATE FUNCTION pg_temp.names_of(names text[], count integer DEFAULT 1, wait interval DEFAULT NULL)
RETURNS text[] LANGUAGE sql AS $$
	SELECT coalesce(array_agg(a.name), '{}')
	FROM shedlock_acquire_any(names, count, wait => wait) a
$$;
-- Releases all that this session holds.
CREATE PROCEDURE pg_temp.free() LANGUAGE plpgsql AS $$
BEGIN
	ASSERT (SELECT bool_and(shedlock_release(name)) FROM shedlock_locks WHERE state = 'held');
END
$$;
-- The row versions of the table, all of them
CREATE FUNCTION pg_temp.versions() RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(name || xmin || ctid, ',' ORDER BY name) FROM shedlock
$$;

-- count: one, or as many as are free.
SELECT cardinality(pg_temp.names_of('{a,b,c}')) AS acquired;
CALL pg_temp.free();
SELECT cardinality(pg_temp.names_of('{a,b,c}', 1)) AS acquired;
CALL pg_temp.free();
SELECT cardinality(pg_temp.names_of('{a,b,c}', 2)) AS acquired;
CALL pg_temp.free();
SELECT pg_temp.names_of('{a,b,c}', 3);
CALL pg_temp.free();
SELECT pg_temp.names_of('{a,b,c}', 1000000);
CALL pg_temp.free();
SELECT cardinality(pg_temp.names_of('{a,b,c}', 2)) AS first, cardinality(pg_temp.names_of('{a,b,c}', 2)) AS second,
	   cardinality(pg_temp.names_of('{a,b,c}', 2)) AS third;
CALL pg_temp.free();

-- The answer is in the order of the names, each once, with the token of its row.
SELECT pg_temp.names_of('{c,a,d,b}', 4);
CALL pg_temp.free();
SELECT pg_temp.names_of('{c,a,c,c,a}', 4);
CALL pg_temp.free();
SELECT pg_temp.names_of('{{c,a},{b,c}}', 4);
CALL pg_temp.free();
CREATE TEMP TABLE answer AS SELECT * FROM shedlock_acquire_any('{b,a}', 2);
SELECT a.name, a.token = s.token AS same FROM answer a JOIN shedlock s USING (name);
CALL pg_temp.free();
SELECT pg_temp.names_of('{}'), pg_temp.names_of('{}', 5), pg_temp.names_of('{}', wait => '1 h');

-- What is refused writes nothing: no transaction ID, no row version, no advisory lock.
SELECT shedlock_acquire('b'), shedlock_acquire_session('c'), shedlock_pause('d');
SELECT pg_temp.versions() AS before \gset
BEGIN;
SELECT pg_temp.names_of('{b,c,d}', 3), pg_temp.names_of('{b,c,d}', wait => '20 ms');
SELECT pg_current_xact_id_if_assigned();
SELECT * FROM pg_temp.my_locks();
COMMIT;
SELECT pg_temp.versions() = :'before' AS same;

-- A paused name is refused as others are.
SELECT pg_temp.names_of('{a,b,c,d}', 4);
SELECT shedlock_resume('d');
SELECT pg_temp.names_of('{a,b,c,d}', 4);
CALL pg_temp.free();

-- They are leases: with a limit, an at-least time and a text of the caller.
SELECT count(*) FROM shedlock_acquire_any('{a,b}', 2, '2 h', '1 h', locked_by => 'me');
SELECT name, kind, pg_temp.mask(locked_by) AS locked_by, lock_at_most_for, lock_until - locked_at AS lasts, keep_until - locked_at AS kept
FROM shedlock WHERE name IN ('a', 'b') ORDER BY name;
SELECT name, kind, state FROM shedlock_locks WHERE name IN ('a', 'b') ORDER BY name;
SELECT token AS token_a FROM shedlock WHERE name = 'a' \gset
SELECT shedlock_extend('a', lock_at_most_for => '3 h'), shedlock_extend('a', :token_a, '3 h'),
	   shedlock_assert('a') = :token_a AS asserted, shedlock_token('a') = :token_a AS token;
SELECT shedlock_release('a'), shedlock_release('b');
SELECT name, state FROM shedlock_locks WHERE name IN ('a', 'b') ORDER BY name;
SELECT pg_temp.names_of('{a,b}');
SET client_min_messages = error;
SELECT shedlock_force_release('a'), shedlock_force_release('b');
SELECT pg_temp.names_of('{a,b}', 2);
SELECT shedlock_force_release('a') AS forced;
SELECT shedlock_release('a'), shedlock_release('b');
RESET client_min_messages;

-- A wait
SELECT cardinality(pg_temp.names_of('{a,b,c}', wait => '10 s')) AS acquired;
SELECT cardinality(pg_temp.names_of('{a,b,c}', 3, wait => '10 s')) AS acquired;
SELECT pg_temp.names_of('{a,b,c}', 3, wait => '0');
SELECT pg_temp.names_of('{a,b,c}', 3, wait => '50 ms');
SELECT * FROM pg_temp.my_locks();
CALL pg_temp.free();

-- It sees the end of leases, though no session wakes it.
SELECT count(*) FROM shedlock_acquire_any('{a,b}', 2, '1 s');
SELECT cardinality(pg_temp.names_of('{a,b}', wait => '30 s')) > 0 AS acquired;
SELECT pg_sleep(1);
SELECT cardinality(pg_temp.names_of('{a,b}', 2)) < 2 AS acquired_the_rest;
CALL pg_temp.free();
SELECT * FROM pg_temp.my_locks();

-- The server's timeouts end it.  The message names a lock that is not free.
SELECT shedlock_acquire('b');
SET lock_timeout = '100 ms';
SELECT pg_temp.error_of($$SELECT shedlock_acquire_any('{b}', wait => '30 s')$$);
RESET lock_timeout;
SET statement_timeout = '100 ms';
SELECT shedlock_acquire_any('{b}', wait => '30 s');
RESET statement_timeout;
SELECT * FROM pg_temp.my_locks();
CALL pg_temp.free();

-- Arguments
SELECT pg_temp.error_of('SELECT shedlock_acquire_any(' || args || ')')
FROM unnest(ARRAY['NULL', 'ARRAY[NULL]', 'ARRAY[''a'', NULL]', 'ARRAY['''']', 'ARRAY[repeat(''n'', 256)]',
				  'ARRAY[''a'', E''b\n'']', '''{a}'', 0', '''{a}'', -1', '''{a}'', NULL', '''{a}'', lock_at_most_for => ''0''', '''{a}'', wait => ''-1 s''',
				  '''{a}'', lock_at_most_for => ''1 h'', lock_at_least_for => ''2 h''',
				  '''{a}'', locked_by => repeat(''n'', 201)', '''{a}'', locked_by => E''a\n''',
				  'shedlock_permits(''a'', 1000) || ''b''::text',
				  'shedlock_permits(''a'', 101), wait => ''0''']) args;
SELECT * FROM pg_temp.my_locks();
SELECT count(*) FROM shedlock WHERE kind IS NOT NULL;
SELECT count(*) FROM shedlock_acquire_any(shedlock_permits('a', 1000), 1000);
SELECT count(*) FROM shedlock_acquire_any(shedlock_permits('a', 1000), 1000);
SELECT count(*) FROM shedlock_acquire_any(shedlock_permits('a', 100), 1000, wait => '0');
CALL pg_temp.free();

-- The caps apply.
SET shedlock.max_lock_at_most_for = '10 min';
SET shedlock.max_wait = '1 min';
SELECT pg_temp.error_of($$SELECT shedlock_acquire_any('{a}', lock_at_most_for => '11 min')$$);
SELECT pg_temp.error_of($$SELECT shedlock_acquire_any('{a}', wait => '2 min')$$);
SELECT cardinality(pg_temp.names_of('{a,b}', 2));
SELECT name, lock_at_most_for FROM shedlock WHERE name IN ('a', 'b') ORDER BY name;
RESET shedlock.max_lock_at_most_for;
RESET shedlock.max_wait;
CALL pg_temp.free();

-- Each name must be one that the caller may use.
CREATE ROLE regress_shedlock_any;
SET shedlock.role_prefix = on;
SET ROLE regress_shedlock_any;
SELECT pg_temp.error_of($$SELECT shedlock_acquire_any('{regress_shedlock_any:a,b}', 2)$$);
SELECT cardinality(pg_temp.names_of('{regress_shedlock_any:a,regress_shedlock_any:b}', 2)) AS acquired;
CALL pg_temp.free();
RESET ROLE;
RESET shedlock.role_prefix;
DROP ROLE regress_shedlock_any;

BEGIN READ ONLY;
SELECT pg_temp.error_of($$SELECT shedlock_acquire_any('{a}')$$);
COMMIT;

-- A rollback, also to a savepoint or in a function, gives all of them back.
BEGIN;
SELECT cardinality(pg_temp.names_of('{a,b}', 2));
SAVEPOINT s;
SELECT cardinality(pg_temp.names_of('{c,d}', 2));
SELECT * FROM pg_temp.my_locks();
ROLLBACK TO s;
SELECT * FROM pg_temp.my_locks();
SELECT pg_temp.names_of('{c,d,e,f}', 4);
ROLLBACK;
SELECT * FROM pg_temp.my_locks();
SELECT count(*) FROM shedlock WHERE kind IS NOT NULL;
DO $$
BEGIN
	PERFORM shedlock_acquire_any('{a,b}', 2);
	BEGIN
		PERFORM shedlock_acquire_any('{c,d}', 2);
		PERFORM shedlock_acquire_any('{g,h}', 2), shedlock_acquire_any(ARRAY['i', ''], 2);
	EXCEPTION WHEN invalid_parameter_value THEN
	END;
	PERFORM shedlock_acquire_any('{g,h}', 2);
	PERFORM shedlock_acquire_any('{a,z}', 2);
END
$$;
SELECT array_agg(name ORDER BY name) FROM shedlock_locks WHERE state = 'held';
CALL pg_temp.free();

-- An error is rolled back like any other: to the savepoint before it.
SELECT last_value + 3 AS last FROM shedlock_token_seq \gset
BEGIN;
ALTER SEQUENCE shedlock_token_seq MAXVALUE :last;
SELECT shedlock_acquire('a');
SELECT left(pg_temp.error_of($$SELECT shedlock_acquire('b'), shedlock_acquire_any('{c,d}', 2)$$), 5);
SELECT * FROM pg_temp.my_locks();
ROLLBACK;

-- In a CTE, for each row of a query, and in the list of a SELECT.  The planner counts on
-- ten rows.
WITH a AS (SELECT * FROM shedlock_acquire_any('{a,b}', 2)) SELECT name FROM a WHERE name = 'b';
SELECT n, name FROM unnest('{a,c}'::text[]) n LEFT JOIN LATERAL shedlock_acquire_any(ARRAY[n, n || '2'], 2) ON true ORDER BY n, name;
SELECT (shedlock_acquire_any('{d,e}', 2)).name;
CALL pg_temp.free();
CREATE FUNCTION pg_temp.estimate(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan->0->'Plan'->'Plan Rows';
END
$$;
SELECT pg_temp.estimate($$SELECT * FROM shedlock_acquire_any('{a}')$$);
SELECT pg_temp.estimate($$SELECT * FROM unnest('{a,c}'::text[]) n, shedlock_acquire_any(ARRAY[n, n || '2'])$$);

-- The order is random: of eight names, sixty calls acquire more than one as the first.
CREATE FUNCTION pg_temp.random_name() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	which text := name FROM shedlock_acquire_any('{a,b,c,d,e,f,g,h}');
BEGIN
	PERFORM shedlock_release(which);
	RETURN which;
END
$$;
SELECT count(DISTINCT pg_temp.random_name()) > 1 AS random FROM generate_series(1, 60);

-- Permits
SELECT shedlock_permits('a', 3), shedlock_permits(NULL, 1), shedlock_permits('a', NULL);
SELECT cardinality(shedlock_permits('a', 1000));
-- A name is checked before its permits are named: these would be two gigabytes.
SELECT pg_temp.error_of($$SELECT shedlock_permits(repeat('x', 2000000), 1000)$$), pg_temp.error_of($$SELECT shedlock_permits(E'a\nb', 1)$$), pg_temp.error_of($$SELECT shedlock_permits('', 1)$$);
SELECT pg_temp.error_of(format('SELECT shedlock_permits(''a'', %s)', n)) FROM unnest('{0,-1,1001}'::integer[]) n;
SELECT cardinality(pg_temp.names_of(shedlock_permits('a', 3), 2));
SELECT cardinality(pg_temp.names_of(shedlock_permits('a', 3), 2));
SELECT cardinality(pg_temp.names_of(shedlock_permits('a', 3), 2));
SELECT array_agg(name ORDER BY name) FROM shedlock_locks WHERE state = 'held';
CALL pg_temp.free();

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
