-- A row trigger makes the writes of ShedLock's clients and of manual SQL obey the same
-- rules as shedlock's functions.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

-- The library's statements, with the server's time and with the client's, which here
-- has microseconds, so that no test waits for the next millisecond.  Returns the number
-- of rows, by which the library tells whether it has the lock.
CREATE FUNCTION pg_temp.lib(mode text, what text, lock text, secs numeric DEFAULT 300, at_least numeric DEFAULT 0,
							who text DEFAULT 'host', tab text DEFAULT 'public.shedlock', zone text DEFAULT 'UTC')
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	qualifier CONSTANT text := regexp_replace(tab, '^.*\.', '');
	now CONSTANT text := to_char(timezone(zone, clock_timestamp()), 'YYYY-MM-DD HH24:MI:SS.US') || '+00';
	until CONSTANT text := to_char(timezone(zone, clock_timestamp()) + make_interval(secs => secs), 'YYYY-MM-DD HH24:MI:SS.US') || '+00';
	n bigint;
BEGIN
	EXECUTE format(CASE mode || ' ' || what
		WHEN 'db insert' THEN $q$
			INSERT INTO %1$s(name, lock_until, locked_at, locked_by) VALUES(%3$L, timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => %5$L), timezone('utc', CURRENT_TIMESTAMP), %4$L)
			ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => %5$L), locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = %4$L
			WHERE %2$s.name = %3$L AND %2$s.lock_until <= timezone('utc', CURRENT_TIMESTAMP)$q$
		WHEN 'db update' THEN $q$
			UPDATE %1$s SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => %5$L), locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = %4$L
			WHERE %2$s.name = %3$L AND %2$s.lock_until <= timezone('utc', CURRENT_TIMESTAMP)$q$
		WHEN 'db extend' THEN $q$
			UPDATE %1$s SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => %5$L)
			WHERE name = %3$L AND locked_by = %4$L AND lock_until > timezone('utc', CURRENT_TIMESTAMP)$q$
		WHEN 'db unlock' THEN $q$
			UPDATE %1$s SET lock_until = CASE WHEN locked_at + make_interval(secs => %6$L) > timezone('utc', CURRENT_TIMESTAMP) THEN locked_at + make_interval(secs => %6$L) ELSE timezone('utc', CURRENT_TIMESTAMP) END
			WHERE name = %3$L AND locked_by = %4$L$q$
		WHEN 'client insert' THEN $q$
			INSERT INTO %1$s(name, lock_until, locked_at, locked_by) VALUES(%3$L, %8$L, %7$L, %4$L)
			ON CONFLICT (name) DO UPDATE SET lock_until = %8$L, locked_at = %7$L, locked_by = %4$L WHERE %2$s.lock_until <= %7$L$q$
		WHEN 'client update' THEN $q$
			UPDATE %1$s SET lock_until = %8$L, locked_at = %7$L, locked_by = %4$L WHERE name = %3$L AND lock_until <= %7$L$q$
		WHEN 'client extend' THEN $q$
			UPDATE %1$s SET lock_until = %8$L WHERE name = %3$L AND locked_by = %4$L AND lock_until > %7$L$q$
		WHEN 'client unlock' THEN $q$
			UPDATE %1$s SET lock_until = greatest(%7$L::timestamp, %7$L::timestamp + make_interval(secs => %6$L)) WHERE name = %3$L AND locked_by = %4$L$q$
		END, tab, qualifier, lock, who, secs, at_least, now, until);
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN n;
END
$$;

CREATE TEMP TABLE lib AS
SELECT mode, 'foreign ' || mode AS name FROM (VALUES ('db'), ('client')) m(mode);
CREATE TEMP TABLE tokens (name text, token bigint);

-- Returns whether the lock of each mode has a larger token than at the last call.
CREATE FUNCTION pg_temp.larger() RETURNS TABLE (name text, larger_token boolean) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT s.name::text, s.token > coalesce((SELECT max(t.token) FROM tokens t WHERE t.name = s.name), 0)
		FROM shedlock s JOIN lib USING (name) ORDER BY 1;
	INSERT INTO tokens SELECT s.name, s.token FROM shedlock s JOIN lib USING (name);
END
$$;

CREATE FUNCTION pg_temp.row_of(lock text) RETURNS TABLE (locked_by text, kind text, role regrole, ours boolean, lasts text)
LANGUAGE sql AS $$
	SELECT locked_by, kind, locked_role::regrole, (keep_until, lock_at_most_for, pid, backend_start, origin, paused_until) IS DISTINCT FROM
			(NULL::timestamp, NULL::interval, NULL::integer, NULL::timestamptz, NULL::integer, NULL::timestamptz),
		   extract(epoch FROM date_trunc('minute', lock_until - locked_at)) || ' s'
	FROM shedlock WHERE name = lock
$$;
\set VERBOSITY terse
SET client_min_messages = error;

-- An INSERT ... ON CONFLICT of a new name makes a lease with a token.
SELECT mode, pg_temp.lib(mode, 'insert', name) FROM lib;
SELECT * FROM pg_temp.larger();
SELECT mode, r.locked_by, r.kind, r.role = current_user::regrole AS my_role, r.ours, r.lasts FROM lib, pg_temp.row_of(name) r;
SELECT mode, state, kind, locked_by FROM lib JOIN shedlock_locks USING (name) ORDER BY 1;

-- While a client holds a lock, other clients are turned away and acquirers are refused.
SELECT mode, pg_temp.lib(mode, 'insert', name, who => 'other') AS insert,
	   pg_temp.lib(mode, 'update', name, who => 'other') AS update,
	   pg_temp.lib(mode, 'extend', name, who => 'other') AS extend,
	   pg_temp.lib(mode, 'unlock', name, who => 'other') AS unlock FROM lib;
SELECT mode, shedlock_acquire(name), shedlock_acquire_session(name), shedlock_release(name), shedlock_token(name) FROM lib;
CALL shedlock_run('foreign db', 'SELECT 1', on_busy => 'error');
SELECT * FROM pg_temp.larger();

-- A client's extend and unlock keep the token and the holder.
SELECT mode, pg_temp.lib(mode, 'extend', name, 3600) FROM lib;
SELECT mode, r.locked_by, r.lasts >= '3600' AS extended FROM lib, pg_temp.row_of(name) r;
SELECT mode, pg_temp.lib(mode, 'unlock', name, at_least => 60) FROM lib;
SELECT mode, shedlock_acquire(name), pg_temp.lib(mode, 'update', name) FROM lib;
SELECT * FROM pg_temp.larger();
SELECT mode, pg_temp.lib(mode, 'unlock', name) FROM lib;

-- Clients are turned away from a lease of shedlock's until it is released; a client that
-- acquires the lock clears the extension's columns.
SELECT mode, shedlock_acquire(name, '1 hour') FROM lib;
SELECT * FROM pg_temp.larger();
SELECT mode, pg_temp.lib(mode, 'insert', name) AS insert, pg_temp.lib(mode, 'update', name) AS update,
	   pg_temp.lib(mode, 'extend', name) AS extend, pg_temp.lib(mode, 'unlock', name) AS unlock FROM lib;
SELECT mode, r.ours, shedlock_token(name) IS NOT NULL AS mine FROM lib, pg_temp.row_of(name) r;
SELECT mode, shedlock_release(name) FROM lib;
SELECT mode, pg_temp.lib(mode, 'update', name) FROM lib;
SELECT * FROM pg_temp.larger();
SELECT mode, r.locked_by, r.kind, r.ours FROM lib, pg_temp.row_of(name) r;
SELECT mode, pg_temp.lib(mode, 'unlock', name) FROM lib;
SELECT mode, pg_temp.lib(mode, 'insert', name, 0) AS no_time FROM lib;

-- Clients are turned away from a released lock during its at-least time.
SELECT mode, shedlock_acquire(name, '1 hour', '1 hour'), shedlock_release(name) FROM lib;
SELECT mode, pg_temp.lib(mode, 'insert', name) AS insert, pg_temp.lib(mode, 'update', name) AS update FROM lib;
SELECT mode, shedlock_force_release(name) FROM lib;

-- A client takes over an expired lease with a larger token, and the former holder is told.
SELECT mode, shedlock_acquire(name, '1 ms') FROM lib;
SELECT * FROM pg_temp.larger();
SELECT pg_sleep(0.01);
SELECT mode, CASE mode WHEN 'db' THEN pg_temp.lib(mode, 'insert', name) ELSE pg_temp.lib(mode, 'update', name) END FROM lib;
SELECT * FROM pg_temp.larger();
RESET client_min_messages;
SELECT shedlock_release('foreign db'), shedlock_extend('foreign client', lock_at_most_for => '1 h');
SELECT mode, pg_temp.error_of(format('SELECT shedlock_assert(%L, %s)', name, (SELECT min(token) FROM tokens t WHERE t.name = lib.name))) FROM lib;
SELECT mode, pg_temp.error_of(format('SELECT shedlock_assert(%L)', name)) FROM lib;
SET client_min_messages = error;
SELECT mode, state, locked_by FROM lib JOIN shedlock_locks USING (name) ORDER BY 1;
SELECT mode, pg_temp.lib(mode, 'unlock', name) FROM lib;

-- Clients are turned away from a session lock without a limit, also after its lock_until.
SELECT mode, shedlock_acquire_session(name) FROM lib;
SELECT mode, pg_temp.lib(mode, 'insert', name) AS insert, pg_temp.lib(mode, 'update', name) AS update FROM lib;
UPDATE shedlock SET lock_until = locked_at WHERE name LIKE 'foreign %';
SELECT mode, pg_temp.lib(mode, 'insert', name) AS insert, pg_temp.lib(mode, 'update', name) AS update FROM lib;
-- A client's lease that has expired before it is written does not change the holder.
UPDATE shedlock SET lock_until = lock_until - interval '1 ms', locked_at = timezone('UTC', clock_timestamp()), locked_by = 'late'
WHERE name LIKE 'foreign %' RETURNING name;
SELECT mode, r.kind, shedlock_release(name) FROM lib, pg_temp.row_of(name) r;
SELECT mode, pg_temp.lib(mode, 'insert', name) AS insert, pg_temp.lib(mode, 'unlock', name) AS unlock FROM lib;

-- Clients are turned away from a run, even if its command ends its time in the table.
CREATE TEMP TABLE seen AS SELECT name AS mode, name AS what, 0::bigint AS rows FROM lib LIMIT 0;
CALL shedlock_run('foreign db', $$UPDATE shedlock SET lock_until = locked_at WHERE name = 'foreign db';
	INSERT INTO seen SELECT mode, what, pg_temp.lib(mode, what, 'foreign db') FROM lib, (VALUES ('insert'), ('update')) v(what)$$);
SELECT * FROM seen;
SELECT pg_temp.lib('db', 'insert', 'foreign db'), pg_temp.lib('db', 'unlock', 'foreign db');
SELECT * FROM pg_temp.runs('foreign db');

-- Clients are turned away from a paused lock, and from a paused new name, which has a row.
SELECT mode, shedlock_pause(name), shedlock_pause('new ' || name) FROM lib;
SELECT mode, pg_temp.lib(mode, what, lock) FROM lib, (VALUES ('insert'), ('update')) v(what), LATERAL (VALUES (name), ('new ' || name)) n(lock);
SELECT mode, state FROM lib JOIN shedlock_locks USING (name) ORDER BY 1;
SELECT mode, shedlock_resume(name), shedlock_resume('new ' || name) FROM lib;
SELECT mode, pg_temp.lib(mode, 'insert', 'new ' || name) AS insert, pg_temp.lib(mode, 'update', name) AS update FROM lib;
SELECT mode, pg_temp.lib(mode, 'unlock', 'new ' || name) AS insert, pg_temp.lib(mode, 'unlock', name) AS update FROM lib;

-- A client can unlock a lock that was paused meanwhile; the next client is turned away.
SELECT mode, pg_temp.lib(mode, 'update', name), shedlock_pause(name) FROM lib;
SELECT mode, pg_temp.lib(mode, 'extend', name), pg_temp.lib(mode, 'unlock', name), pg_temp.lib(mode, 'update', name) FROM lib;
SELECT mode, shedlock_resume(name) FROM lib;

-- A rollback undoes a client's acquire, also a rollback to a savepoint.
BEGIN;
SELECT pg_temp.lib('db', 'update', 'foreign db');
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_acquire('foreign db');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT pg_temp.lib('db', 'insert', 'foreign new');
ROLLBACK TO s;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_acquire('foreign new'), shedlock_acquire('foreign db');
ROLLBACK;

-- A client that is turned away keeps no advisory lock.
SELECT shedlock_acquire('foreign db');
BEGIN;
SELECT pg_temp.lib('db', 'insert', 'foreign db'), pg_temp.lib('db', 'update', 'foreign db');
SELECT * FROM pg_temp.my_locks();
COMMIT;
SELECT shedlock_release('foreign db');

-- The rules hold under other names of the table: with its schema, with quotes, as a view.
CREATE SCHEMA "Old Locks";
CREATE VIEW "Old Locks"."Shed Lock" AS SELECT name, lock_until, locked_at, locked_by FROM shedlock;
SET search_path = pg_catalog;
SELECT tab, mode, pg_temp.lib(mode, 'insert', name, tab => tab) AS insert,
	   public.shedlock_acquire(name) AS ours, pg_temp.lib(mode, 'insert', name, tab => tab, who => 'other') AS other,
	   pg_temp.lib(mode, 'extend', name, tab => tab) AS extend, pg_temp.lib(mode, 'unlock', name, tab => tab) AS unlock,
	   pg_temp.lib(mode, 'update', name, tab => tab, who => 'other') AS update,
	   pg_temp.lib(mode, 'unlock', name, tab => tab, who => 'other') AS unlock
FROM lib, (VALUES ('public.shedlock'), ('"public"."shedlock"'), ('"Old Locks"."Shed Lock"')) t(tab);
RESET search_path;
SELECT * FROM pg_temp.larger();
SELECT mode, shedlock_acquire_session(name) FROM lib;
UPDATE shedlock SET lock_until = locked_at WHERE name LIKE 'foreign %';
SELECT mode, pg_temp.lib(mode, what, name, tab => '"Old Locks"."Shed Lock"') FROM lib, (VALUES ('insert'), ('update')) v(what);
SELECT mode, shedlock_release(name) FROM lib;

-- A role needs the privileges of ShedLock's users; to read the table is not enough.
CREATE ROLE regress_shedlock_service;
CREATE ROLE regress_shedlock_reader;
GRANT SELECT, INSERT, UPDATE ON shedlock TO regress_shedlock_service;
GRANT SELECT ON shedlock TO regress_shedlock_reader;
GRANT SELECT ON lib TO PUBLIC;
SET ROLE regress_shedlock_service;
SELECT mode, pg_temp.lib(mode, 'insert', 'service ' || mode) AS insert, pg_temp.lib(mode, 'unlock', 'service ' || mode) AS unlock,
	   pg_temp.lib(mode, 'update', 'service ' || mode) AS update FROM lib;
SELECT mode, r.role, r.kind FROM lib, pg_temp.row_of('service ' || mode) r;
SET ROLE regress_shedlock_reader;
SELECT mode, pg_temp.error_of(format('SELECT pg_temp.lib(%L, ''update'', %L)', mode, 'service ' || mode)) FROM lib;
RESET ROLE;
SELECT mode, shedlock_force_release('service ' || mode) FROM lib;
DELETE FROM shedlock WHERE name LIKE 'service %';
DROP OWNED BY regress_shedlock_service, regress_shedlock_reader;
DROP ROLE regress_shedlock_service, regress_shedlock_reader;

-- Services with roles of their own: one may acquire what another one has held, but only
-- roles with its privileges unlock, extend or rename what it acquired, by whatever means.
CREATE ROLE regress_shedlock_a;
CREATE ROLE regress_shedlock_a_too IN ROLE regress_shedlock_a;
CREATE ROLE regress_shedlock_b;
GRANT SELECT, INSERT (name, lock_until, locked_at, locked_by), UPDATE (name, lock_until, locked_at, locked_by)
	ON shedlock TO regress_shedlock_a, regress_shedlock_b;
SET ROLE regress_shedlock_a;
SELECT mode, pg_temp.lib(mode, 'insert', 'service ' || mode) AS insert FROM lib;
SELECT shedlock_acquire('service lease', '1 h', '1 h'), shedlock_acquire_session('service session'),
	   shedlock_acquire('service kept', '1 h', '1 h'), shedlock_release('service kept'), shedlock_acquire('service over', '1 ms');
SELECT token > 0 AS began FROM shedlock_run_begin('service run', '1 h');
SET ROLE regress_shedlock_b;
SELECT mode, what, pg_temp.error_of(format('SELECT pg_temp.lib(%L, %L, %L)', mode, what, 'service ' || mode))
FROM lib, (VALUES ('unlock'), ('extend')) w(what);
SELECT name, pg_temp.error_of(format('UPDATE shedlock SET %s WHERE name = %L', change, 'service ' || name))
FROM (VALUES ('lease'), ('session'), ('run'), ('kept'), ('over')) n(name),
	 (VALUES ('lock_until = timezone(''utc'', now())'), ('lock_until = lock_until + interval ''1 h''')) c(change)
WHERE name <> 'over' OR change LIKE '%1 h%';
SELECT pg_temp.error_of('UPDATE shedlock SET locked_by = ''me'', locked_at = locked_at + interval ''1 s'' WHERE name = ''service db''');
SELECT mode, pg_temp.lib(mode, 'update', 'service ' || mode) AS update FROM lib;
SELECT name, state, kind, locked_role FROM shedlock_locks WHERE name LIKE 'service %' ORDER BY name;
SET ROLE regress_shedlock_a_too;
SELECT mode, pg_temp.lib(mode, 'extend', 'service ' || mode) AS extend, pg_temp.lib(mode, 'unlock', 'service ' || mode) AS unlock FROM lib;
SET ROLE regress_shedlock_b;
SELECT mode, pg_temp.lib(mode, 'update', 'service ' || mode) AS update, pg_temp.lib(mode, 'unlock', 'service ' || mode) AS unlock FROM lib;
SELECT mode, r.role FROM lib, pg_temp.row_of('service ' || mode) r;
SET ROLE regress_shedlock_a;
SELECT shedlock_release('service session');
SELECT shedlock_run_end('service run', token) FROM shedlock WHERE name = 'service run';
RESET ROLE;
SELECT count(shedlock_force_release(name)) FROM shedlock WHERE name LIKE 'service %';
DELETE FROM shedlock WHERE name LIKE 'service %';
DROP OWNED BY regress_shedlock_a, regress_shedlock_a_too, regress_shedlock_b;
DROP ROLE regress_shedlock_a, regress_shedlock_a_too, regress_shedlock_b;

-- A client whose clock shows local time would acquire held locks, or lose its own at
-- once; it gets an error, and nothing is written.
RESET client_min_messages;
SELECT mode, shedlock_acquire(name, '30 min') FROM lib;
SELECT zone, lock, pg_temp.error_of(format('SELECT pg_temp.lib(''client'', ''insert'', %L, zone => %L)', lock, zone))
FROM (VALUES ('America/Los_Angeles'), ('Asia/Tokyo')) z(zone), (VALUES ('foreign client'), ('foreign new')) n(lock);
SELECT pg_temp.error_of('SELECT pg_temp.lib(''client'', ''update'', ''foreign client'', zone => ''Asia/Tokyo'')');
SELECT pg_temp.lib('client', 'update', 'foreign client', zone => 'America/Los_Angeles');
SELECT mode, shedlock_release(name) FROM lib;
SELECT pg_temp.error_of('SELECT pg_temp.lib(''client'', ''update'', ''foreign client'', zone => ''Asia/Tokyo'')');
SELECT count(*) FROM shedlock WHERE name = 'foreign new';
SET shedlock.foreign_clock_tolerance = '10 h';
SELECT pg_temp.lib('client', 'update', 'foreign client', zone => 'Asia/Tokyo');
RESET shedlock.foreign_clock_tolerance;
SELECT pg_temp.lib('client', 'unlock', 'foreign client');
SELECT locked_at, pg_temp.error_of(format('UPDATE shedlock SET lock_until = ''infinity'', locked_at = %L, locked_by = ''me'' WHERE name = ''foreign db''', locked_at))
FROM (VALUES ('infinity'), ('-infinity'), ('epoch')) t(locked_at);

-- A client whose clock is a little ahead acquires no held, kept or paused lock.
SELECT shedlock_acquire('foreign client', '30 s');
UPDATE shedlock SET lock_until = timezone('utc', clock_timestamp()) + interval '1 min', locked_at = timezone('utc', clock_timestamp()) + interval '8 min', locked_by = 'me'
WHERE name = 'foreign client';
SELECT locked_by = 'me' AS taken, shedlock_release('foreign client') FROM shedlock WHERE name = 'foreign client';

-- The lease of such a client lasts longer by that much.
INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
SELECT 'fast clock', n + interval '120 s' + interval '1 h', n + interval '120 s', 'host' FROM timezone('utc', clock_timestamp()) n;
SELECT remaining > '61 min' AS longer FROM shedlock_locks WHERE name = 'fast clock';
UPDATE shedlock SET lock_until = timezone('utc', clock_timestamp()) WHERE name = 'fast clock' AND locked_by = 'host';

-- Manual INSERTs: a row that holds nothing, one with the extension's columns, one that exists.
INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('by hand', 'epoch', 'epoch', 'me');
SELECT token, kind, locked_role FROM shedlock WHERE name = 'by hand';
INSERT INTO shedlock (name, lock_until, locked_at, locked_by, token, kind, origin) VALUES ('by hand 2', 'infinity', '2026-01-01', 'me', 7, 'session', 1);
SELECT token, kind, origin FROM shedlock WHERE name = 'by hand 2';
INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('by hand', 'epoch', 'epoch', 'me');
INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
VALUES ('by hand', timezone('utc', clock_timestamp()) + interval '1 h', timezone('utc', clock_timestamp()), 'me');

-- Manual UPDATEs: a new end of a held and of a free lock, and a new holder of a held one.
SELECT shedlock_acquire('by hand');
UPDATE shedlock SET lock_until = lock_until + interval '1 h', locked_by = 'me' WHERE name = 'by hand' RETURNING name;
UPDATE shedlock SET lock_until = lock_until + interval '1 h' WHERE name = 'by hand' RETURNING name;
SELECT shedlock_release('by hand');
UPDATE shedlock SET lock_until = 'infinity' WHERE name = 'by hand' RETURNING name;
SELECT shedlock_acquire('by hand');
UPDATE shedlock SET lock_until = 'epoch' WHERE name = 'by hand' RETURNING name;
SELECT shedlock_acquire('by hand');

-- A new end of a lock that was never acquired acquires it; a dump of its row can be restored.
INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
SELECT 'by hand 3', utc - interval '1 h', utc - interval '1 h', 'me' FROM timezone('utc', clock_timestamp()) utc;
UPDATE shedlock SET lock_until = lock_until + interval '2 h' WHERE name = 'by hand 3' RETURNING token > 0 AS token, kind;
SELECT shedlock_acquire('by hand 3');

-- A time in another zone is refused, even if the lease has no length.
INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
SELECT 'by hand 4', utc + interval '1 h', utc + interval '1 h', 'me' FROM timezone('utc', clock_timestamp()) utc;

-- The row of a lease, a session lock, a run, a pause or a client's lock cannot be deleted.
DELETE FROM shedlock WHERE name = 'by hand';
SELECT shedlock_release('by hand'), shedlock_acquire_session('by hand');
UPDATE shedlock SET lock_until = locked_at WHERE name = 'by hand';
DELETE FROM shedlock WHERE name = 'by hand';
SELECT shedlock_release('by hand'), shedlock_pause('by hand');
DELETE FROM shedlock WHERE name = 'by hand';
SELECT shedlock_resume('by hand');
CALL shedlock_run('by hand', 'DELETE FROM shedlock WHERE name = ''by hand''');
SELECT pg_temp.lib('db', 'insert', 'by hand');
DELETE FROM shedlock WHERE name = 'by hand';
SELECT pg_temp.error_of('DELETE FROM shedlock WHERE name = ''by hand''');
SELECT pg_temp.lib('db', 'unlock', 'by hand');
DELETE FROM shedlock WHERE name = 'by hand' RETURNING name;
SELECT pg_temp.lib('db', 'update', 'by hand') AS update, pg_temp.lib('db', 'insert', 'by hand') AS insert;

-- A lock cannot be renamed.
UPDATE shedlock SET name = 'by another name' WHERE name = 'by hand';

-- A lease by a slow clock that has expired before it is written is refused.
INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
	SELECT 'over', n - interval '1 min', n - interval '3 min', 'slow clock' FROM timezone('utc', clock_timestamp()) n;

-- An extend that comes too late does not end a pause.
SELECT pg_temp.lib('db', 'insert', 'paused late');
UPDATE shedlock SET lock_until = timezone('utc', clock_timestamp()) - interval '1 s' WHERE name = 'paused late';
SELECT shedlock_pause('paused late');
UPDATE shedlock SET lock_until = timezone('utc', clock_timestamp()) + interval '1 h' WHERE name = 'paused late' RETURNING name;
SELECT shedlock_resume('paused late'), shedlock_acquire('paused late');

-- A client whose clock is slow cannot extend a lock that was force-released.
INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
	SELECT 'by force', n + interval '1 h', n, 'slow clock' FROM timezone('utc', clock_timestamp()) n;
SET client_min_messages = 'warning';
SELECT shedlock_force_release('by force');
RESET client_min_messages;
UPDATE shedlock SET lock_until = lock_until + interval '1 h'
WHERE name = 'by force' AND locked_by = 'slow clock' AND lock_until > timezone('utc', clock_timestamp()) - interval '1 min' RETURNING name;
SELECT shedlock_acquire('by force'), shedlock_release('by force');

-- A client cannot lock for longer than the cap and the tolerance; a writer that knows the
-- extension's columns can.
SET shedlock.max_lock_at_most_for = '10 min';
SELECT mode, pg_temp.lib(mode, 'insert', 'capped ' || mode, 600), pg_temp.lib(mode, 'extend', 'capped ' || mode, 1100),
	   pg_temp.lib(mode, 'unlock', 'capped ' || mode), pg_temp.lib(mode, 'update', 'capped ' || mode, 600)
FROM lib;
SELECT mode, what, pg_temp.error_of(format('SELECT pg_temp.lib(%L, %L, %L, 1300)', mode, what, lock || mode))
FROM lib, (VALUES ('insert', 'over '), ('insert', 'capped '), ('extend', 'capped ')) w(what, lock);
SELECT pg_temp.lib('db', 'unlock', 'capped db'), pg_temp.error_of($$SELECT pg_temp.lib('db', 'update', 'capped db', 1300)$$);
SELECT pg_temp.error_of($$UPDATE shedlock SET lock_until = 'infinity' WHERE name = 'capped client'$$),
	   pg_temp.error_of($$INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('over', 'infinity', timezone('utc', clock_timestamp()), 'host')$$);
INSERT INTO shedlock (name, lock_until, locked_at, locked_by, token) VALUES ('capped', 'infinity', timezone('utc', clock_timestamp()), 'host', 1);
RESET shedlock.max_lock_at_most_for;

-- A client cannot acquire a lock whose name has control characters, nor insert the row of a
-- free one.  A row that exists already, or comes with a dump, can be extended, unlocked and purged.
SELECT mode, pg_temp.error_of(format('SELECT pg_temp.lib(%L, ''insert'', %L)', mode, E'\x1b[2Jforeign')) FROM lib;
INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES (E'terminal\n', 'epoch', 'epoch', 'host');
INSERT INTO shedlock (name, lock_until, locked_at, locked_by, token) VALUES (E'terminal\n', 'epoch', 'epoch', 'host', 1);
INSERT INTO shedlock (name, lock_until, locked_at, locked_by, token)
SELECT E'terminal\n' || mode, 'infinity', 'epoch', 'host', 1 FROM lib;
SELECT mode, pg_temp.error_of(format('SELECT pg_temp.lib(%L, ''update'', %L)', mode, E'terminal\n')) FROM lib;
SELECT mode, pg_temp.lib(mode, 'extend', E'terminal\n' || mode), pg_temp.lib(mode, 'unlock', E'terminal\n' || mode) FROM lib;
SELECT shedlock_purge('0') >= 3 AS purged;
SELECT count(*) FROM shedlock WHERE name LIKE E'terminal\n%';

-- Control characters in locked_by stay in the table, where a client compares its text;
-- views and messages leave them out.
SELECT pg_temp.lib('db', 'insert', 'terminal', who => E'\x1b[2J\u009Bhost@10.1.2.3\nNOTICE:  \u00A0'),
	   pg_temp.lib('db', 'extend', 'terminal', who => E'\x1b[2J\u009Bhost@10.1.2.3\nNOTICE:  \u00A0');
SELECT locked_by FROM shedlock_locks WHERE name = 'terminal';
SELECT pg_temp.error_of('SELECT shedlock_assert(''terminal'')');
SELECT shedlock_force_release('terminal');

-- A client's extend and unlock keep acquirers off until their transaction ends; a
-- write that is turned away does not.
SELECT pg_temp.lib('db', 'insert', 'fenced');
BEGIN;
SELECT pg_temp.lib('db', 'extend', 'fenced');
SELECT * FROM pg_temp.my_locks();
COMMIT;
BEGIN;
SELECT pg_temp.lib('db', 'unlock', 'fenced');
SELECT * FROM pg_temp.my_locks();
COMMIT;
SELECT shedlock_pause('fenced');
BEGIN;
SELECT pg_temp.lib('db', 'update', 'fenced');
SELECT * FROM pg_temp.my_locks();
COMMIT;
SELECT shedlock_resume('fenced');

-- Any UPDATE of a free lock passes if it leaves the lock free; but a session lock that
-- is held past its lock_until keeps its holder.
UPDATE shedlock SET locked_by = 'another host' WHERE name = 'fenced' RETURNING locked_by;
SELECT shedlock_acquire_session('outlived');
UPDATE shedlock SET lock_until = timezone('utc', clock_timestamp()) WHERE name = 'outlived' RETURNING name;
UPDATE shedlock SET lock_until = lock_until - interval '1 s' WHERE name = 'outlived' RETURNING name;
UPDATE shedlock SET locked_by = 'another host' WHERE name = 'outlived' RETURNING name;
SELECT shedlock_release('outlived');

-- A row that breaks a constraint gets the constraint's error; the trigger is for no other table.
\set VERBOSITY sqlstate
INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('', 'infinity', timezone('utc', now()), 'me');
INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES (NULL, 'infinity', timezone('utc', now()), 'me');
INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('by hand 3', NULL, timezone('utc', now()), 'me');
INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('by hand 3', 'infinity', timezone('utc', now()), NULL);
UPDATE shedlock SET locked_at = NULL;
UPDATE shedlock SET locked_by = NULL, lock_until = NULL;
INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES (repeat('n', 256), 'infinity', timezone('utc', now()), 'me');
SELECT _shedlock_row_trigger();
CREATE TABLE other_table (name text);
CREATE TRIGGER after AFTER INSERT ON other_table FOR EACH ROW EXECUTE FUNCTION _shedlock_row_trigger();
INSERT INTO other_table VALUES ('x');
CREATE TABLE "like ours" (name int8, lock_until int8, locked_at int8, locked_by int8);
CREATE TRIGGER before BEFORE INSERT ON "like ours" FOR EACH ROW EXECUTE FUNCTION _shedlock_row_trigger();
INSERT INTO "like ours" VALUES (4096, 1, 1, 4096);
DROP TABLE other_table, "like ours";
\set VERBOSITY terse

DROP SCHEMA "Old Locks" CASCADE;
TRUNCATE shedlock, _shedlock_history;
