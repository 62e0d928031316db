-- shedlock_adopt refuses a table that it cannot take over, and puts a view of the same
-- shape in the place of any other one.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
SET client_min_messages = warning;
SET datestyle = ISO;
CREATE SCHEMA adopt;
GRANT USAGE ON SCHEMA adopt TO PUBLIC;
CREATE ROLE regress_adopt_owner;
CREATE ROLE regress_adopt_app;
CREATE ROLE regress_adopt_reader;
CREATE ROLE regress_adopt_other;
CREATE TABLE adopt.model (
	name varchar(64) NOT NULL PRIMARY KEY,
	lock_until timestamp NOT NULL,
	locked_at timestamp NOT NULL,
	locked_by varchar(255) NOT NULL);

-- Returns the error of adopting adopt.t after this change to it; leaves nothing.
CREATE FUNCTION pg_temp.refusal_after(change text, call text DEFAULT 'SELECT shedlock_adopt(''adopt.t'')') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	CREATE TABLE adopt.t (LIKE adopt.model INCLUDING ALL);
	EXECUTE change;
	answer := pg_temp.error_of(call);
	RAISE USING ERRCODE = 'SH999';
EXCEPTION WHEN SQLSTATE 'SH999' THEN
	RETURN answer;
END
$$;
CREATE FUNCTION pg_temp.utc() RETURNS timestamp
LANGUAGE sql AS 'SELECT timezone(''UTC'', clock_timestamp())';
\pset format unaligned
\pset tuples_only on

-- Refused: anything but a table of the caller
SELECT pg_temp.error_of('SELECT shedlock_adopt(NULL)');
SELECT pg_temp.error_of('SELECT shedlock_adopt(''adopt.model'', NULL)');
SELECT pg_temp.error_of('SELECT shedlock_adopt(''adopt.model'', locked_at_column => ''lock_until'')');
SELECT pg_temp.error_of('SELECT shedlock_adopt(''adopt.nothing'')');
SELECT pg_temp.error_of('SELECT shedlock_adopt(1::oid::regclass)');
SELECT pg_temp.error_of('SELECT shedlock_adopt(''shedlock'')');
CREATE VIEW adopt.v AS SELECT * FROM adopt.model;
SELECT pg_temp.error_of('SELECT shedlock_adopt(''adopt.v'')');
DROP VIEW adopt.v;
CREATE TABLE adopt.p (LIKE adopt.model) PARTITION BY LIST (name);
SELECT pg_temp.error_of('SELECT shedlock_adopt(''adopt.p'')');
DROP TABLE adopt.p;
CREATE TEMP TABLE tempo (LIKE adopt.model INCLUDING ALL);
SELECT regexp_replace(pg_temp.error_of('SELECT shedlock_adopt(''tempo'')'), 'pg_temp_\d+', 'pg_temp');
DROP TABLE tempo;
GRANT EXECUTE ON FUNCTION shedlock_adopt TO regress_adopt_other;
GRANT SELECT ON adopt.model TO PUBLIC;
ALTER TABLE adopt.model OWNER TO regress_adopt_owner;
SET ROLE regress_adopt_other;
SELECT pg_temp.error_of('SELECT shedlock_adopt(''adopt.model'')');
SET ROLE regress_adopt_reader;
SELECT pg_temp.error_of('SELECT shedlock_adopt(''adopt.model'')');
RESET ROLE;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT pg_temp.error_of('SELECT shedlock_adopt(''adopt.model'')');
COMMIT;
BEGIN READ ONLY;
SELECT substr(pg_temp.error_of('SELECT shedlock_adopt(''adopt.model'')'), 1, 5);
COMMIT;

-- Refused: a table that does not have ShedLock's shape
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t RENAME name TO "lock name"');
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t DROP locked_by');
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t ALTER lock_until TYPE timestamptz');
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t ALTER lock_until TYPE timestamptz, ALTER locked_at TYPE timestamptz;
	SET LOCAL timezone = ''America/Los_Angeles'';
	INSERT INTO adopt.t VALUES (''x'', now(), now(), ''host'');
	ALTER TABLE adopt.t ALTER COLUMN lock_until TYPE timestamp USING timezone(''UTC'', lock_until);
	ALTER TABLE adopt.t ALTER COLUMN locked_at TYPE timestamp USING timezone(''UTC'', locked_at)');
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t ALTER locked_at TYPE date');
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t ALTER locked_by TYPE integer USING 1');
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t DROP CONSTRAINT t_pkey');
SELECT substr(pg_temp.refusal_after('ALTER TABLE adopt.t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (name) DEFERRABLE'), 1, 5);
SELECT substr(pg_temp.refusal_after('ALTER TABLE adopt.t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (name, locked_by)'), 1, 5);
SELECT substr(pg_temp.refusal_after('ALTER TABLE adopt.t DROP CONSTRAINT t_pkey;
	CREATE UNIQUE INDEX ON adopt.t (name) WHERE name <> ''x'''), 1, 5);
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t DROP CONSTRAINT t_pkey; CREATE UNIQUE INDEX ON adopt.t (name) INCLUDE (locked_by)');
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t ADD tenant integer NOT NULL');

-- Refused: a table with dependent objects, which would be lost; the error names them.
SELECT pg_temp.refusal_after('CREATE VIEW adopt.v AS SELECT name FROM adopt.t');
SELECT pg_temp.refusal_after('CREATE MATERIALIZED VIEW adopt.v AS SELECT name FROM adopt.t');
SELECT pg_temp.refusal_after('CREATE TABLE adopt.f (name text, FOREIGN KEY (name) REFERENCES adopt.t)');
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t ADD FOREIGN KEY (name) REFERENCES adopt.model');
SELECT pg_temp.refusal_after('CREATE TRIGGER tr BEFORE UPDATE ON adopt.t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()');
SELECT pg_temp.refusal_after('CREATE RULE r AS ON DELETE TO adopt.t DO INSTEAD NOTHING');
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON adopt.t USING (true)');
SELECT pg_temp.refusal_after('CREATE TABLE adopt.child () INHERITS (adopt.t)');
SELECT pg_temp.refusal_after('CREATE FUNCTION adopt.f() RETURNS SETOF adopt.t LANGUAGE sql AS ''SELECT * FROM adopt.t''');
SET client_min_messages = error;	-- about wal_level
SELECT pg_temp.refusal_after('CREATE PUBLICATION regress_adopt FOR TABLE adopt.t');
SET client_min_messages = warning;
-- Accepted: constraints, indexes and statistics of the table itself.
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t ADD CHECK (lock_until IS NOT NULL), ADD CHECK (name <> locked_by), ADD n serial,
	ADD l integer GENERATED ALWAYS AS (length(locked_by)) STORED;
	CREATE INDEX ON adopt.t (locked_by);
	CREATE STATISTICS adopt.s ON locked_by, name FROM adopt.t');
-- Refused: expressions, whose functions would run with the privileges of the caller.
CREATE FUNCTION adopt.trap(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE FUNCTION pg_temp.trapped(change text) RETURNS text
LANGUAGE sql AS $$
SELECT pg_temp.refusal_after(change || '; CREATE OR REPLACE FUNCTION adopt.trap(text) RETURNS text
	LANGUAGE plpgsql IMMUTABLE AS ''BEGIN RAISE ''''sprung''''; END''')
$$;
SELECT pg_temp.trapped('CREATE INDEX trap_idx ON adopt.t ((adopt.trap(''x'') || name))');
SELECT pg_temp.trapped('CREATE INDEX trap_idx ON adopt.t (locked_by) WHERE adopt.trap(''x'') = name');
SELECT pg_temp.trapped('ALTER TABLE adopt.t ADD EXCLUDE ((adopt.trap(''x'') || name) WITH =)');
SELECT pg_temp.trapped('CREATE STATISTICS adopt.trap ON (adopt.trap(''x'') || name), name FROM adopt.t');
SELECT pg_temp.trapped('SET LOCAL constraint_exclusion = on; ALTER TABLE adopt.t ADD CHECK (adopt.trap(''x'') <> ''y'')');
DROP FUNCTION adopt.trap(text);

-- Refused: rows that ShedLock cannot have written, or whose times are not in UTC
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t ALTER locked_by DROP NOT NULL;
	INSERT INTO adopt.t VALUES (''x'', pg_temp.utc(), pg_temp.utc(), NULL)');
SELECT pg_temp.refusal_after('ALTER TABLE adopt.t ALTER name TYPE text;
	INSERT INTO adopt.t VALUES (repeat(''x'', 256), pg_temp.utc(), pg_temp.utc(), ''host'')');
SELECT substr(pg_temp.refusal_after('ALTER TABLE adopt.t ALTER locked_by TYPE text;
	INSERT INTO adopt.t VALUES (''x'', pg_temp.utc(), pg_temp.utc(), repeat(''x'', 256))'), 1, 5);
SELECT substr(pg_temp.refusal_after('INSERT INTO adopt.t VALUES ('''', pg_temp.utc(), pg_temp.utc(), ''host'')'), 1, 5);
SELECT pg_temp.refusal_after(format('INSERT INTO adopt.t VALUES (''visible'', pg_temp.utc(), pg_temp.utc(), ''host''), (%L, pg_temp.utc(), pg_temp.utc(), ''host'')', n))
FROM unnest(ARRAY[E'clear\x1b[2J', repeat(E'\n', 64)]) n;
SELECT pg_temp.refusal_after('INSERT INTO adopt.t VALUES
	(''berlin'', pg_temp.utc() + interval ''2 h'', pg_temp.utc() + interval ''2 h'', ''host''),
	(''other'', pg_temp.utc(), pg_temp.utc(), ''host'')');
SELECT pg_temp.refusal_after('INSERT INTO adopt.t VALUES (''x'', ''infinity'', ''infinity'', ''host'')');
SELECT pg_temp.refusal_after('INSERT INTO adopt.t VALUES
	(''los angeles'', pg_temp.utc(), pg_temp.utc() - interval ''8 h'', ''host''),
	(''other'', pg_temp.utc(), pg_temp.utc() - interval ''2 days'', ''host''),
	(''never'', pg_temp.utc(), ''-infinity'', ''host'')');
SELECT substr(pg_temp.refusal_after(format('INSERT INTO adopt.t VALUES (''x'', pg_temp.utc(), pg_temp.utc() - interval ''%s'', ''host'')', d)), 1, 5)
FROM unnest('{1 h 1 min 50 s,13 h 58 min 30 s}'::text[]) d;
SELECT d, pg_temp.refusal_after(format('INSERT INTO adopt.t VALUES (''x'', pg_temp.utc(), pg_temp.utc() - interval ''%s'', ''host'')', d))
FROM unnest('{0,-9 min,30 min,1 h 5 min,15 h}'::text[]) d;
SELECT pg_temp.refusal_after('INSERT INTO adopt.t VALUES (''x'', pg_temp.utc(), pg_temp.utc() - interval ''8 h'', ''host'')',
	'SELECT shedlock_adopt(''adopt.t'', check_clock => false)');

-- Refused: the name for the old table is in use, by a relation or a type.
SELECT pg_temp.refusal_after('CREATE SEQUENCE adopt.t_before_shedlock');
SELECT pg_temp.refusal_after('CREATE TYPE adopt.t_before_shedlock AS ENUM ()');

-- Refused: a lock that is held in both tables
SELECT shedlock_acquire('both');
SELECT pg_temp.refusal_after('INSERT INTO adopt.t VALUES (''both'', pg_temp.utc() + interval ''1 h'', pg_temp.utc(), ''host'')');
SELECT shedlock_release('both');
DELETE FROM shedlock;

-- Held and free locks are copied, also those whose names the extension's table has.
CREATE TABLE adopt.t (LIKE adopt.model INCLUDING ALL);
INSERT INTO adopt.t VALUES
('live', pg_temp.utc() + interval '1 h', pg_temp.utc() - interval '5 s', 'host'),
('free', pg_temp.utc() - interval '1 h', pg_temp.utc() - interval '26 h', 'host'),
('live, free here', pg_temp.utc() + interval '1 h', pg_temp.utc() - interval '4 s', 'host'),
('live, session lost here', pg_temp.utc() + interval '10 min', pg_temp.utc() - interval '4 s', 'host'),
('live, paused here', pg_temp.utc() + interval '1 h', pg_temp.utc() - interval '3 s', 'host'),
('free, live here', pg_temp.utc() - interval '1 s', pg_temp.utc() - interval '1 day 30 min', 'host'),
('free, session here', pg_temp.utc() - interval '1 s', pg_temp.utc() - interval '1 day 30 min', 'host'),
('free, free here, later', pg_temp.utc() + interval '3 s', pg_temp.utc() - interval '1 day 30 min', 'host'),
('free, free here, earlier', pg_temp.utc() - interval '2 days', pg_temp.utc() - interval '3 days', 'host'),
('for ever', 'infinity', pg_temp.utc() - interval '2 s', 'host');
SELECT shedlock_acquire('live, free here'), shedlock_release('live, free here');
SELECT shedlock_acquire_session('live, session lost here');
UPDATE shedlock SET pid = 0, kind = 'session' WHERE name = 'live, session lost here';
SET client_min_messages = error;
SELECT shedlock_release('live, session lost here');
SET client_min_messages = warning;
SELECT shedlock_pause('live, paused here', reason => 'migration');
SELECT shedlock_acquire('free, live here'), shedlock_acquire_session('free, session here');
SELECT shedlock_acquire('free, free here, later'), shedlock_release('free, free here, later');
SELECT shedlock_acquire('free, free here, earlier'), shedlock_release('free, free here, earlier');
SELECT max(token) AS before FROM shedlock \gset
SELECT pg_sleep(3);
SELECT shedlock_adopt('adopt.t') AS taken_over;
SELECT s.name, s.kind, s.token > :before AS new_token, s.locked_by = 'host' AS theirs,
	s.lock_until IS NOT DISTINCT FROM o.lock_until AS same_until, s.locked_at IS NOT DISTINCT FROM o.locked_at AS same_at,
	s.pid IS NULL AND s.backend_start IS NULL AND s.locked_role IS NULL AS clean, s.paused_until
FROM adopt.t_before_shedlock o JOIN shedlock s USING (name) ORDER BY name COLLATE "C";
SELECT name, state, kind FROM shedlock_locks ORDER BY name COLLATE "C";
SELECT name, shedlock_acquire(name, wait => '0') FROM adopt.t ORDER BY name COLLATE "C";
SELECT count(*), count(DISTINCT token) FROM shedlock WHERE name IN (SELECT name FROM adopt.t_before_shedlock);
-- Every role can read their tokens, but only superusers can use them.
CREATE ROLE regress_shedlock_anybody;
SET ROLE regress_shedlock_anybody;
SELECT pg_temp.error_of(format('SELECT shedlock_release(%L, %s)', name, token)) FROM shedlock_locks WHERE name = 'for ever';
RESET ROLE;
DROP ROLE regress_shedlock_anybody;
\d adopt.t
SELECT shedlock_release('free, session here'), shedlock_resume('live, paused here');
SELECT pg_temp.error_of('SELECT shedlock_adopt(''adopt.t'')');
DROP VIEW adopt.t;
ALTER TABLE adopt.t_before_shedlock RENAME TO t;
SELECT pg_temp.error_of('SELECT shedlock_adopt(''adopt.t'')');
DROP TABLE adopt.t;
DELETE FROM shedlock WHERE lock_until <= pg_temp.utc();
SELECT shedlock_force_release(name) FROM shedlock_locks, (SELECT set_config('client_min_messages', 'error', false)) q;
SET client_min_messages = warning;
DELETE FROM shedlock;

-- Accepted: names that need quotes, columns of other names and in another order, a
-- column that ShedLock does not know, names of the maximum length
CREATE SCHEMA "My %s Schema";
CREATE TABLE "My %s Schema"."Lock ""Table" (
	"lockedBy" text NOT NULL,
	id bigint GENERATED ALWAYS AS IDENTITY,
	"locked %I at" timestamp(3) NOT NULL,
	gone integer,
	"lock name" text PRIMARY KEY,
	"until" timestamp(0) NOT NULL);
ALTER TABLE "My %s Schema"."Lock ""Table" DROP gone;
INSERT INTO "My %s Schema"."Lock ""Table" VALUES ('host', DEFAULT, pg_temp.utc(), 'a ''quoted'' "name"', pg_temp.utc() + interval '1 h');
SELECT shedlock_adopt('"My %s Schema"."Lock ""Table"', 'lock name', 'until', 'locked %I at', 'lockedBy');
\d+ "My %s Schema"."Lock ""Table"
SELECT indexrelid::regclass FROM pg_index WHERE indrelid = '"My %s Schema"."Lock ""Table_before_shedlock"'::regclass;
SELECT "lock name", "until" > pg_temp.utc() FROM "My %s Schema"."Lock ""Table";
INSERT INTO "My %s Schema"."Lock ""Table" ("lock name", "until", "locked %I at", "lockedBy")
VALUES ('new', pg_temp.utc() + interval '1 h', pg_temp.utc(), 'host')
ON CONFLICT ("lock name") DO UPDATE SET "until" = EXCLUDED."until" WHERE "Lock ""Table"."until" <= pg_temp.utc();
SELECT name, token > 0 AS token, kind FROM shedlock ORDER BY name;
SELECT repeat('ä', 31) || 'x' AS long \gset
CREATE TABLE adopt.:"long" (LIKE adopt.model INCLUDING ALL);
SELECT shedlock_adopt(format('adopt.%I', :'long')::regclass);
SELECT relname, octet_length(relname::text), relkind FROM pg_class WHERE relname LIKE 'ää%' AND relkind IN ('r', 'v') ORDER BY relkind;
DROP SCHEMA "My %s Schema" CASCADE;
DROP VIEW adopt.:"long";
SET client_min_messages = error;
SELECT shedlock_force_release(name) FROM shedlock_locks;
SET client_min_messages = warning;
DELETE FROM shedlock;

-- The view has the owner and the grants of the old table, also those that grantees
-- made, and none from default privileges, if a superuser adopts an owner's table.
CREATE TABLE adopt.t (LIKE adopt.model INCLUDING ALL);
GRANT CREATE ON SCHEMA adopt TO regress_adopt_owner;
ALTER TABLE adopt.t OWNER TO regress_adopt_owner;
ALTER DEFAULT PRIVILEGES IN SCHEMA adopt GRANT ALL ON TABLES TO regress_adopt_other;
SET ROLE regress_adopt_owner;
REVOKE TRUNCATE ON adopt.t FROM regress_adopt_owner;
GRANT SELECT, INSERT, UPDATE ON adopt.t TO regress_adopt_app WITH GRANT OPTION;
GRANT SELECT (name, locked_by) ON adopt.t TO PUBLIC;
GRANT UPDATE (lock_until) ON adopt.t TO regress_adopt_reader WITH GRANT OPTION;
SET ROLE regress_adopt_app;
GRANT SELECT ON adopt.t TO regress_adopt_reader WITH GRANT OPTION;
SET ROLE regress_adopt_reader;
GRANT UPDATE (lock_until), SELECT (lock_until) ON adopt.t TO regress_adopt_other;
RESET ROLE;
CREATE VIEW adopt_acl AS
SELECT relname, pg_get_userbyid(relowner) AS owner, attname,
	-- 17 has a privilege m
	replace((SELECT string_agg(x::text, ' ' ORDER BY x::text COLLATE "C") FROM unnest(coalesce(attacl, relacl)) x), 'tm/', 't/') AS acl
FROM pg_class c LEFT JOIN (SELECT attrelid, attname, attacl FROM pg_attribute WHERE attacl IS NOT NULL UNION ALL
						   SELECT oid, '', NULL FROM pg_class) a ON attrelid = c.oid
WHERE relnamespace = 'adopt'::regnamespace AND relkind IN ('r', 'v') AND relname LIKE 't%';
SELECT owner, attname, acl FROM adopt_acl ORDER BY attname;
SELECT shedlock_adopt('adopt.t');
SELECT owner, attname, acl FROM adopt_acl WHERE relname = 't' ORDER BY attname;
SELECT current_user = session_user AS same_role, current_setting('role') AS role;
SELECT grantee, string_agg(privilege_type, ', ' ORDER BY privilege_type)
FROM information_schema.role_table_grants WHERE table_schema = 'public' AND table_name = 'shedlock' AND grantee LIKE 'regress%'
GROUP BY grantee;
SELECT grantee, privilege_type, string_agg(column_name, ', ' ORDER BY ordinal_position)
FROM information_schema.role_column_grants g JOIN information_schema.columns USING (table_schema, table_name, column_name)
WHERE table_schema = 'public' AND table_name = 'shedlock' AND grantee LIKE 'regress%' AND privilege_type <> 'SELECT'
GROUP BY grantee, privilege_type;
-- The owner of the view cannot write the columns that only the extension writes.
SET ROLE regress_adopt_owner;
SELECT pg_temp.error_of(c) FROM unnest(ARRAY[
	'UPDATE shedlock SET token = 9223372036854775807', 'UPDATE shedlock SET pid = pg_backend_pid()',
	'UPDATE shedlock SET paused_until = ''infinity'', paused_by = ''boss''',
	'INSERT INTO shedlock (name, lock_until, locked_at, locked_by, token) VALUES (''x'', now(), now(), ''x'', 0)']) c;
RESET ROLE;

-- ShedLock's own statements work for a role that has only its grants on the view.
SET ROLE regress_adopt_app;
INSERT INTO adopt.t (name, lock_until, locked_at, locked_by)
VALUES ('app', timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => 10.000), timezone('utc', CURRENT_TIMESTAMP), 'host')
ON CONFLICT (name) DO UPDATE SET lock_until = EXCLUDED.lock_until
WHERE t.name = 'app' AND t.lock_until <= timezone('utc', CURRENT_TIMESTAMP)
RETURNING name;
UPDATE adopt.t SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = 'app' AND locked_by = 'host' RETURNING name;
\set VERBOSITY sqlstate
DELETE FROM adopt.t;
SELECT count(*) FROM shedlock;
SET ROLE regress_adopt_other;
SELECT name FROM adopt.t;
SELECT locked_at FROM adopt.t;
\set VERBOSITY default
RESET ROLE;
DROP VIEW adopt.t;
DROP TABLE adopt.t_before_shedlock;
REVOKE ALL ON shedlock FROM regress_adopt_owner;
ALTER DEFAULT PRIVILEGES IN SCHEMA adopt REVOKE ALL ON TABLES FROM regress_adopt_other;
-- The view of a table without grants has no grants.
SET ROLE regress_adopt_owner;
CREATE TABLE adopt.t (LIKE adopt.model INCLUDING ALL);
RESET ROLE;

-- An owner that is not a superuser is told step by step which privileges are missing.
SELECT substr(pg_temp.error_of('SET LOCAL ROLE regress_adopt_owner; SELECT shedlock_adopt(''adopt.t'')'), 1, 5);
GRANT EXECUTE ON FUNCTION shedlock_adopt TO regress_adopt_owner;
SELECT pg_temp.error_of('SET LOCAL ROLE regress_adopt_owner; SELECT shedlock_adopt(''adopt.t'')');
GRANT SELECT, INSERT (name, lock_until, locked_at, locked_by), UPDATE (name, lock_until, locked_at, locked_by)
	ON shedlock TO regress_adopt_owner;
SELECT pg_temp.error_of('SET LOCAL ROLE regress_adopt_owner; SELECT shedlock_adopt(''adopt.t'')');
GRANT INSERT, UPDATE ON shedlock TO regress_adopt_owner;
SELECT pg_temp.error_of('SET LOCAL ROLE regress_adopt_owner; SELECT shedlock_adopt(''adopt.t'')');
GRANT USAGE ON SEQUENCE shedlock_token_seq TO regress_adopt_owner;
GRANT SELECT, INSERT ON adopt.t TO regress_adopt_app WITH GRANT OPTION;
SET ROLE regress_adopt_app;
GRANT INSERT ON adopt.t TO regress_adopt_reader;
SET SESSION AUTHORIZATION regress_adopt_owner;
INSERT INTO adopt.t VALUES ('mine', pg_temp.utc() + interval '1 h', pg_temp.utc(), 'host');
SELECT shedlock_adopt('adopt.t');
RESET SESSION AUTHORIZATION;
-- The owner may not become the app's role, so it makes the reader's grant itself.
SELECT owner, attname, acl FROM adopt_acl WHERE relname = 't' ORDER BY attname;
SELECT shedlock_acquire('mine');
-- The view also works if its owner may write the four columns only.
REVOKE INSERT, UPDATE ON shedlock FROM regress_adopt_owner;
GRANT INSERT (name, lock_until, locked_at, locked_by), UPDATE (name, lock_until, locked_at, locked_by) ON shedlock TO regress_adopt_owner;
SET ROLE regress_adopt_owner;
INSERT INTO adopt.t VALUES ('theirs', pg_temp.utc() + interval '1 h', pg_temp.utc(), 'host')
ON CONFLICT (name) DO UPDATE SET name = EXCLUDED.name, lock_until = EXCLUDED.lock_until, locked_at = EXCLUDED.locked_at, locked_by = EXCLUDED.locked_by;
UPDATE adopt.t SET name = name, lock_until = pg_temp.utc() WHERE name = 'theirs' RETURNING name;
RESET ROLE;

DROP VIEW adopt_acl;
SET client_min_messages = error;
SELECT shedlock_force_release('mine');
DROP SCHEMA adopt CASCADE;
DROP OWNED BY regress_adopt_owner, regress_adopt_app, regress_adopt_reader, regress_adopt_other;
DROP ROLE regress_adopt_owner, regress_adopt_app, regress_adopt_reader, regress_adopt_other;
TRUNCATE shedlock;
