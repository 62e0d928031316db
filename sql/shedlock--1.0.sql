/* sql/shedlock--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION shedlock" to load this file. \quit

DO $do$
BEGIN
	IF pg_catalog.to_regclass('@extschema@.shedlock') IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'duplicate_table',
			MESSAGE = pg_catalog.format('relation "shedlock" already exists in schema %s', '@extschema@'),
			DETAIL = 'The extension keeps its locks in a table of that name.',
			HINT = 'Install it into a schema of its own: CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling.  A table of ShedLock''s Java clients is then taken over with shedlock_adopt.';
	END IF;
END
$do$;

-- A call is resolved among all functions of its name in the schema: one whose
-- arguments fit better is called instead of the extension's, with the rights of
-- the administrator that typed the call.
DO $do$
DECLARE
	path CONSTANT text := pg_catalog.current_setting('search_path');
	roles text;
BEGIN
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	SELECT string_agg(DISTINCT coalesce(quote_ident(r.rolname), 'PUBLIC') COLLATE "C", ', ') INTO roles
	FROM pg_namespace n
		 JOIN pg_database d ON d.datname = current_database()
		 CROSS JOIN LATERAL (
			SELECT n.nspowner
			UNION ALL
			SELECT x.grantee FROM aclexplode(n.nspacl) x WHERE x.privilege_type = 'CREATE') g(role)
		 LEFT JOIN pg_roles r ON r.oid = CASE g.role WHEN 'pg_database_owner'::regrole THEN d.datdba ELSE g.role END
	WHERE n.oid = '@extschema@'::regnamespace AND
		  -- a member of a superuser role can become that role
		  NOT EXISTS (SELECT FROM pg_roles s WHERE s.rolsuper AND pg_has_role(r.oid, s.oid, 'MEMBER'));
	IF roles IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = format('schema %s is not safe for the extension', '@extschema@'),
			DETAIL = format('Roles that are no superusers can create functions in it, which a superuser could call instead of those of the extension: %s.', roles),
			HINT = 'Install it into a schema that belongs to a superuser: CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling.';
	END IF;
	PERFORM set_config('search_path', path, true);
END
$do$;

--
-- Relations
--

CREATE SEQUENCE shedlock_token_seq AS bigint CACHE 1 NO CYCLE;

COMMENT ON SEQUENCE shedlock_token_seq IS
'Fencing tokens; one number space for all locks of the database';

-- name, lock_until, locked_at and locked_by are those of ShedLock's documented
-- table: UTC wall clock in timestamp without time zone.  The order of the
-- columns is known to src/row.c.  An update writes to the log what lies between
-- the first column that it changes and the last: what each release changes
-- stands together at the front, then what each acquire changes, then the rest.
CREATE TABLE shedlock (
	name varchar(255) COLLATE "C" NOT NULL,
	kind text DEFAULT 'lease',
	lock_until timestamp NOT NULL,
	locked_at timestamp NOT NULL,
	locked_by varchar(255) NOT NULL,
	token bigint,
	backend_start timestamptz,
	pid integer,
	locked_role oid,
	timeline integer,
	keep_until timestamp,
	lock_at_most_for interval,
	paused_until timestamptz,
	paused_by text,
	pause_reason text,
	CONSTRAINT shedlock_pkey PRIMARY KEY (name),
	CONSTRAINT shedlock_name_check CHECK (name OPERATOR(pg_catalog.<>) ''),
	CONSTRAINT shedlock_kind_check
		CHECK (kind OPERATOR(pg_catalog.=) 'lease' OR kind OPERATOR(pg_catalog.=) 'session' OR
			   kind OPERATOR(pg_catalog.=) 'run')
) WITH (fillfactor = 70);

COMMENT ON TABLE shedlock IS
'The durable half of each lock: one row per name that was ever taken; shared with ShedLock''s Java clients';
COMMENT ON COLUMN shedlock.name IS 'Name of the lock';
COMMENT ON COLUMN shedlock.kind IS 'lease, session or run; NULL once its owner has given it back';
COMMENT ON COLUMN shedlock.lock_until IS 'End of the lock, UTC; a lease is over when this has passed';
COMMENT ON COLUMN shedlock.locked_at IS 'When the lock was taken, UTC';
COMMENT ON COLUMN shedlock.locked_by IS 'Who took the lock, for people to read';
COMMENT ON COLUMN shedlock.token IS 'Fencing token of the last acquisition';
COMMENT ON COLUMN shedlock.backend_start IS 'When the server process that took the lock was started';
COMMENT ON COLUMN shedlock.pid IS 'Process ID of the server process that took the lock';
COMMENT ON COLUMN shedlock.locked_role IS 'Role that took the lock';
COMMENT ON COLUMN shedlock.timeline IS 'WAL timeline that the lock was taken on';
COMMENT ON COLUMN shedlock.keep_until IS 'End of the time that the lock is held at least, UTC';
COMMENT ON COLUMN shedlock.lock_at_most_for IS 'Longest time asked for at acquire; NULL for a session lock or run without limit';
COMMENT ON COLUMN shedlock.paused_until IS 'Nobody gets the lock before this time';
COMMENT ON COLUMN shedlock.paused_by IS 'Who paused the lock';
COMMENT ON COLUMN shedlock.pause_reason IS 'Why the lock was paused';

CREATE TABLE shedlock_tick (
	name varchar(255) COLLATE "C" NOT NULL,
	tick timestamptz NOT NULL,
	claimed_at timestamptz NOT NULL,
	claimed_by varchar(255) NOT NULL,
	token bigint,
	period interval,
	again boolean NOT NULL DEFAULT false,
	CONSTRAINT shedlock_tick_pkey PRIMARY KEY (name)
) WITH (fillfactor = 50);

COMMENT ON TABLE shedlock_tick IS 'The latest tick that was claimed for each name';
COMMENT ON COLUMN shedlock_tick.name IS 'Name of the job';
COMMENT ON COLUMN shedlock_tick.tick IS 'The latest scheduled instant that was claimed';
COMMENT ON COLUMN shedlock_tick.claimed_at IS 'When it was claimed';
COMMENT ON COLUMN shedlock_tick.claimed_by IS 'Who claimed it, for people to read';
COMMENT ON COLUMN shedlock_tick.token IS 'Token of the run that claimed it; NULL when shedlock_once did';
COMMENT ON COLUMN shedlock_tick.period IS 'Period of the schedule; NULL when only shedlock_once has claimed';
COMMENT ON COLUMN shedlock_tick.again IS 'Whether the next caller can claim it once more';

CREATE TABLE shedlock_run_log (
	token bigint NOT NULL,
	name varchar(255) COLLATE "C" NOT NULL,
	command text NOT NULL,
	tick timestamptz,
	started_at timestamptz NOT NULL,
	ended_at timestamptz,
	outcome text NOT NULL,
	sqlstate text,
	message text,
	run_role oid NOT NULL,
	locked_by varchar(255) NOT NULL,
	pid integer NOT NULL,
	warning text,
	CONSTRAINT shedlock_run_log_pkey PRIMARY KEY (token)
) WITH (fillfactor = 70);

CREATE INDEX shedlock_run_log_name_idx ON shedlock_run_log (name, token);

COMMENT ON TABLE shedlock_run_log IS 'Runs of guarded commands; read it through the view shedlock_history';
COMMENT ON COLUMN shedlock_run_log.token IS 'Fencing token of the run';
COMMENT ON COLUMN shedlock_run_log.name IS 'Name of the lock';
COMMENT ON COLUMN shedlock_run_log.command IS 'The guarded command';
COMMENT ON COLUMN shedlock_run_log.tick IS 'Scheduled instant that the run is for';
COMMENT ON COLUMN shedlock_run_log.started_at IS 'When the lock was taken';
COMMENT ON COLUMN shedlock_run_log.ended_at IS 'When the outcome was recorded';
COMMENT ON COLUMN shedlock_run_log.outcome IS 'running, succeeded, failed, timed out, cancelled or lost';
COMMENT ON COLUMN shedlock_run_log.sqlstate IS 'SQLSTATE of the error';
COMMENT ON COLUMN shedlock_run_log.message IS 'Message of the error';
COMMENT ON COLUMN shedlock_run_log.run_role IS 'Role that ran the command';
COMMENT ON COLUMN shedlock_run_log.locked_by IS 'Who ran it, for people to read';
COMMENT ON COLUMN shedlock_run_log.pid IS 'Process ID of the server process that ran it';
COMMENT ON COLUMN shedlock_run_log.warning IS 'Last WARNING of the command that the server logged';

SELECT pg_catalog.pg_extension_config_dump('shedlock_token_seq', '');
-- A lease without token was not taken by the protocol: the trigger would refuse
-- it, and with it all that is restored: so it would what it takes for null, and
-- a row without time on it that lies ahead.
SELECT pg_catalog.pg_extension_config_dump('shedlock',
	'WHERE token <> 0 OR kind IS NULL OR kind <> ''lease'' OR paused_until > ''-infinity'' OR lock_until <= locked_at AND lock_until <= timezone(''UTC'', now())');
SELECT pg_catalog.pg_extension_config_dump('shedlock_tick', '');
SELECT pg_catalog.pg_extension_config_dump('shedlock_run_log', '');

--
-- Writers who do not know of us
--

CREATE FUNCTION shedlock_row_trigger()
RETURNS trigger
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_row_trigger';

COMMENT ON FUNCTION shedlock_row_trigger() IS
'Has writes by ShedLock''s clients, or by hand, keep the rules of both halves';

CREATE TRIGGER shedlock_row
	BEFORE INSERT OR UPDATE OR DELETE ON shedlock
	FOR EACH ROW EXECUTE FUNCTION shedlock_row_trigger();

COMMENT ON TRIGGER shedlock_row ON shedlock IS
'Has writes by ShedLock''s clients, or by hand, keep the rules of both halves';

--
-- Acquire
--

CREATE FUNCTION shedlock_acquire(
	name text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_acquire';

COMMENT ON FUNCTION shedlock_acquire(text, interval, interval, interval, text) IS
'Takes a lease; false when the lock is not free';

CREATE FUNCTION shedlock_acquire_token(
	name text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_acquire_token';

COMMENT ON FUNCTION shedlock_acquire_token(text, interval, interval, interval, text) IS
'Takes a lease and gives its fencing token; NULL when the lock is not free';

CREATE FUNCTION shedlock_acquire_session(
	name text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_acquire_session';

COMMENT ON FUNCTION shedlock_acquire_session(text, interval, interval, interval, text) IS
'Takes a lock that is gone in the moment this session is gone; false when the lock is not free';

--
-- While it is held
--

CREATE FUNCTION shedlock_release(name text, token bigint DEFAULT NULL)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_release';

COMMENT ON FUNCTION shedlock_release(text, bigint) IS
'Gives a lock back; false when it was no longer held';

CREATE FUNCTION shedlock_extend(
	name text,
	token bigint DEFAULT NULL,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_extend';

COMMENT ON FUNCTION shedlock_extend(text, bigint, interval, interval) IS
'Sets the end of a held lock anew, counted from now; false when it was no longer held';

CREATE FUNCTION shedlock_assert(name text, token bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_assert';

COMMENT ON FUNCTION shedlock_assert(text, bigint) IS
'Token of the lock; raises an error unless it is held, and holds everybody else off until this transaction ends';

CREATE FUNCTION shedlock_token(name text)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_token';

COMMENT ON FUNCTION shedlock_token(text) IS
'Fencing token of the lock that this session holds; NULL when it holds none';

--
-- Ticks
--

CREATE FUNCTION shedlock_once(name text, tick timestamptz)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_once';

COMMENT ON FUNCTION shedlock_once(text, timestamptz) IS
'Claims a scheduled instant; true for one caller only';

CREATE FUNCTION shedlock_once_every(name text, every interval)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_once_every';

COMMENT ON FUNCTION shedlock_once_every(text, interval) IS
'Claims the current period of a schedule, counted in UTC from the epoch; true for one caller only';

--
-- The guard
--

CREATE PROCEDURE shedlock_run(
	name text,
	command text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL,
	on_busy text DEFAULT 'skip')
LANGUAGE C
AS 'MODULE_PATHNAME', 'shedlock_run';

COMMENT ON PROCEDURE shedlock_run(text, text, interval, interval, interval, text) IS
'Runs a command while it holds the lock, and skips it when the lock is not free';

--
-- Administration
--

CREATE FUNCTION shedlock_force_release(name text)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_force_release';

COMMENT ON FUNCTION shedlock_force_release(text) IS
'Ends a lock whoever holds it; false when it was free';

CREATE FUNCTION shedlock_cancel(name text)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_cancel';

COMMENT ON FUNCTION shedlock_cancel(text) IS
'Cancels the command of a run; false when none is running';

CREATE FUNCTION shedlock_pause(
	name text,
	until timestamptz DEFAULT 'infinity',
	reason text DEFAULT NULL)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_pause';

COMMENT ON FUNCTION shedlock_pause(text, timestamptz, text) IS
'Lets nobody take the lock until then; a holder finishes its work';

CREATE FUNCTION shedlock_resume(name text)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_resume';

COMMENT ON FUNCTION shedlock_resume(text) IS
'Ends a pause; false when the lock was not paused';

CREATE FUNCTION shedlock_again(name text)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_again';

COMMENT ON FUNCTION shedlock_again(text) IS
'Lets the next caller claim a tick although it is used; false when none was ever claimed';

CREATE FUNCTION shedlock_purge(older_than interval, ticks boolean DEFAULT false)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_purge';

COMMENT ON FUNCTION shedlock_purge(interval, boolean) IS
'Forgets free locks that were not used for that long, and ticks only when told to; at most 1,000 rows a call; gives their number';

--
-- Views
--

-- Both halves of every lock that is not free.  Everybody may call it, since a
-- view's functions run with the rights of whoever reads the view.
CREATE FUNCTION shedlock_status(
	OUT name text,
	OUT state text,
	OUT kind text,
	OUT lock_until timestamptz,
	OUT locked_at timestamptz,
	OUT locked_by text,
	OUT token bigint,
	OUT locked_role oid,
	OUT waiters integer,
	OUT pid integer,
	OUT paused_until timestamptz,
	OUT paused_by text,
	OUT pause_reason text)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_status';

COMMENT ON FUNCTION shedlock_status() IS
'The locks that are not free; read it through the view shedlock_locks';

CREATE VIEW shedlock_locks AS
SELECT s.name,
	   s.state,
	   s.kind,
	   CASE WHEN pg_catalog.isfinite(s.locked_at) AND
				 s.state OPERATOR(pg_catalog.<>) 'paused' AND s.state OPERATOR(pg_catalog.<>) 'kept'
			THEN pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) s.locked_at END AS held_for,
	   CASE WHEN pg_catalog.isfinite(s.lock_until) AND
				 s.lock_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
			THEN s.lock_until OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp() END AS remaining,
	   s.lock_until,
	   s.locked_at,
	   s.locked_by,
	   s.token,
	   s.waiters,
	   s.pid,
	   a.application_name,
	   a.query,
	   s.paused_until,
	   s.paused_by,
	   s.pause_reason,
	   pg_catalog.pg_get_userbyid(s.locked_role) AS locked_role
FROM shedlock_status() s
	 LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) s.pid;

COMMENT ON VIEW shedlock_locks IS 'The locks that are not free, and who holds them';
COMMENT ON COLUMN shedlock_locks.name IS 'Name of the lock';
COMMENT ON COLUMN shedlock_locks.state IS
'held; uncommitted: taken by an open transaction; kept: released or dead, its at-least time runs; lost: its holder is on another timeline; paused';
COMMENT ON COLUMN shedlock_locks.kind IS 'lease, session or run, as it was taken last; released: its holder gave it back, or it was never taken';
COMMENT ON COLUMN shedlock_locks.held_for IS 'Time since the lock was taken; NULL while nobody holds it: paused or kept';
COMMENT ON COLUMN shedlock_locks.remaining IS 'Time until lock_until; NULL when that is infinite or has passed';
COMMENT ON COLUMN shedlock_locks.lock_until IS 'When the lock is over, unless it is extended or released';
COMMENT ON COLUMN shedlock_locks.locked_at IS 'When the lock was taken last';
COMMENT ON COLUMN shedlock_locks.locked_by IS
'Who took the lock; without the address of a client that pg_stat_activity hides from the reader';
COMMENT ON COLUMN shedlock_locks.token IS 'Fencing token';
COMMENT ON COLUMN shedlock_locks.waiters IS 'Number of sessions that wait for the lock';
COMMENT ON COLUMN shedlock_locks.pid IS 'Server process that holds the advisory half; NULL when none does';
COMMENT ON COLUMN shedlock_locks.application_name IS 'application_name of that process';
COMMENT ON COLUMN shedlock_locks.query IS 'Statement of that process, as pg_stat_activity shows it';
COMMENT ON COLUMN shedlock_locks.paused_until IS 'Nobody gets the lock before this time';
COMMENT ON COLUMN shedlock_locks.paused_by IS 'Who paused the lock';
COMMENT ON COLUMN shedlock_locks.pause_reason IS 'Why the lock was paused';
COMMENT ON COLUMN shedlock_locks.locked_role IS 'Role that took the lock; locked_by may say anything';

CREATE FUNCTION shedlock_run_outcome(token bigint, name text, logged text)
RETURNS text
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_run_outcome';

COMMENT ON FUNCTION shedlock_run_outcome(bigint, text, text) IS
'Outcome of a run at this moment; read it through the view shedlock_history';

-- A run is lost in the moment that nothing holds its lock any more; the log
-- says so only after the next acquire.  The barrier keeps functions in the
-- reader's WHERE from seeing rows that the view hides.
CREATE VIEW shedlock_history WITH (security_barrier) AS
SELECT r.name,
	   r.token,
	   shedlock_run_outcome(r.token, r.name::text, r.outcome) AS outcome,
	   r.started_at,
	   r.ended_at,
	   r.ended_at OPERATOR(pg_catalog.-) r.started_at AS duration,
	   r.tick,
	   r.command,
	   r.sqlstate,
	   r.message,
	   pg_catalog.pg_get_userbyid(r.run_role) AS run_role,
	   r.locked_by,
	   r.pid,
	   r.warning
FROM shedlock_run_log r
WHERE pg_catalog.pg_has_role(r.run_role, 'USAGE') OR
	  pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE');

COMMENT ON VIEW shedlock_history IS
'Runs of guarded commands by roles whose privileges the reader has; all of them for pg_read_all_stats';
COMMENT ON COLUMN shedlock_history.name IS 'Name of the lock';
COMMENT ON COLUMN shedlock_history.token IS 'Fencing token of the run';
COMMENT ON COLUMN shedlock_history.outcome IS
'running, succeeded, failed, timed out, cancelled, lost: its server process died; unknown: on a standby';
COMMENT ON COLUMN shedlock_history.started_at IS 'When the lock was taken';
COMMENT ON COLUMN shedlock_history.ended_at IS 'When the outcome was recorded';
COMMENT ON COLUMN shedlock_history.duration IS 'Time between the two';
COMMENT ON COLUMN shedlock_history.tick IS 'Scheduled instant that the run is for';
COMMENT ON COLUMN shedlock_history.command IS 'The guarded command';
COMMENT ON COLUMN shedlock_history.sqlstate IS 'SQLSTATE of the error';
COMMENT ON COLUMN shedlock_history.message IS 'Message of the error';
COMMENT ON COLUMN shedlock_history.run_role IS 'Role that ran the command';
COMMENT ON COLUMN shedlock_history.locked_by IS 'Who ran it';
COMMENT ON COLUMN shedlock_history.pid IS 'Server process that ran it';
COMMENT ON COLUMN shedlock_history.warning IS
'Last WARNING of the command, whatever its outcome; NULL when log_min_messages keeps those out of the server''s log';

--
-- Moving in
--

-- What depends on the old table would go on with it, and see no lock any more.
CREATE FUNCTION _shedlock_adopt_dependents(old_table regclass)
RETURNS text
LANGUAGE sql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
SELECT string_agg(DISTINCT o.description COLLATE "C", ', ' ORDER BY o.description COLLATE "C")
FROM (
	SELECT CASE WHEN r.rulename = '_RETURN' THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
				ELSE pg_describe_object(d.classid, d.objid, d.objsubid) END
	FROM pg_depend d
		 LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
	WHERE d.deptype = 'n' AND d.classid <> 'pg_attrdef'::regclass AND
		  (d.refclassid = 'pg_class'::regclass AND d.refobjid = old_table OR
		   d.refclassid = 'pg_type'::regclass AND d.refobjid IN (
				SELECT t.oid FROM pg_class c JOIN pg_type t ON t.oid = c.reltype WHERE c.oid = old_table
				UNION ALL
				SELECT t.typarray FROM pg_class c JOIN pg_type t ON t.oid = c.reltype WHERE c.oid = old_table)) AND
		  -- the table's own
		  NOT (d.classid = 'pg_constraint'::regclass AND d.objid IN (
				SELECT c.oid FROM pg_constraint c WHERE c.conrelid = old_table AND c.contype <> 'f')) AND
		  NOT (d.classid = 'pg_class'::regclass AND d.objid IN (
				SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = old_table))
	UNION ALL
	SELECT pg_describe_object('pg_constraint'::regclass, c.oid, 0)
	FROM pg_constraint c WHERE c.conrelid = old_table AND c.contype = 'f'
	UNION ALL
	SELECT pg_describe_object('pg_trigger'::regclass, t.oid, 0)
	FROM pg_trigger t WHERE t.tgrelid = old_table AND NOT t.tgisinternal
	UNION ALL
	SELECT pg_describe_object('pg_rewrite'::regclass, r.oid, 0)
	FROM pg_rewrite r WHERE r.ev_class = old_table
	UNION ALL
	SELECT pg_describe_object('pg_policy'::regclass, p.oid, 0)
	FROM pg_policy p WHERE p.polrelid = old_table
	UNION ALL
	SELECT format('row security of table %s', c.oid::regclass)
	FROM pg_class c WHERE c.oid = old_table AND c.relrowsecurity
	UNION ALL
	SELECT pg_describe_object('pg_publication_rel'::regclass, p.oid, 0)
	FROM pg_publication_rel p WHERE p.prrelid = old_table
	UNION ALL
	SELECT format('table %s', CASE i.inhparent WHEN old_table THEN i.inhrelid ELSE i.inhparent END::regclass)
	FROM pg_inherits i WHERE old_table IN (i.inhparent, i.inhrelid)) o(description)
$$;

COMMENT ON FUNCTION _shedlock_adopt_dependents(regclass) IS
'What would be lost if another relation took the place of this table; NULL when there is nothing';

-- Called with the tables locked, so that nothing of them changes any more.
-- dependents: of _shedlock_adopt_dependents; held: names of locks in our table.
CREATE FUNCTION _shedlock_adopt_check(
	old_table regclass,
	columns name[],
	check_clock boolean,
	dependents text,
	held text[],
	ours regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
-- else CHECK constraints, too, are computed when a query is planned
SET constraint_exclusion = off
AS $$
#variable_conflict use_variable
DECLARE
	documented CONSTANT name[] := '{name,lock_until,locked_at,locked_by}';
	tolerance CONSTANT interval := coalesce(current_setting('shedlock.foreign_clock_tolerance', true), '10min');
	cap CONSTANT interval := coalesce(current_setting('shedlock.max_lock_at_most_for', true), '0');
	utc CONSTANT timestamp := timezone('UTC', clock_timestamp());
	a record;
	found_text text;
	found_at timestamp;
	hours numeric;
BEGIN
	FOR i IN 1..4 LOOP
		SELECT t.attnum, t.atttypid, c.collisdeterministic AS deterministic INTO a
		FROM pg_attribute t LEFT JOIN pg_collation c ON c.oid = t.attcollation
		WHERE t.attrelid = old_table AND t.attname = columns[i] AND t.attnum > 0 AND NOT t.attisdropped;
		IF NOT FOUND THEN
			RAISE EXCEPTION USING
				ERRCODE = 'undefined_column',
				MESSAGE = format('column "%s" of table %s does not exist', columns[i], old_table),
				DETAIL = 'A table of ShedLock has name, lock_until, locked_at and locked_by.',
				HINT = format('If it is named otherwise: %s_column => ''...''.', documented[i]);
		ELSIF a.atttypid = 'timestamptz'::regtype AND i IN (2, 3) THEN
			RAISE EXCEPTION USING
				ERRCODE = 'datatype_mismatch',
				MESSAGE = format('column "%s" of table %s is of type timestamp with time zone', columns[i], old_table),
				DETAIL = 'ShedLock''s usingDbTime() writes it rightly only in sessions whose time zone is UTC.',
				HINT = format('Convert it to UTC first, in the same transaction: ALTER TABLE %1$s ALTER COLUMN %2$I TYPE timestamp USING timezone(''UTC'', %2$I);',
							  old_table, columns[i]);
		ELSIF a.atttypid <> ALL (CASE WHEN i IN (2, 3) THEN '{timestamp}' ELSE '{varchar,text}' END::regtype[]) THEN
			RAISE EXCEPTION USING
				ERRCODE = 'datatype_mismatch',
				MESSAGE = format('column "%s" of table %s is of type %s', columns[i], old_table, a.atttypid::regtype),
				DETAIL = format('ShedLock''s %s is of type %s.', documented[i],
								CASE WHEN i IN (2, 3) THEN 'timestamp without time zone' ELSE 'character varying' END),
				HINT = 'Change its type with ALTER TABLE first, in the same transaction.';
		ELSIF i = 1 AND NOT a.deterministic THEN
			RAISE EXCEPTION USING
				ERRCODE = 'collation_mismatch',
				MESSAGE = format('column "%s" of table %s has a nondeterministic collation', columns[i], old_table),
				DETAIL = 'Locks whose names were equal by it would become different locks.',
				HINT = 'Change its collation with ALTER TABLE first.';
		ELSIF i = 1 AND NOT EXISTS (
			SELECT FROM pg_index x
			WHERE x.indrelid = old_table AND x.indisunique AND x.indisvalid AND x.indimmediate AND
				  x.indpred IS NULL AND x.indnkeyatts = 1 AND x.indkey[0] = a.attnum)
		THEN
			RAISE EXCEPTION USING
				ERRCODE = 'invalid_column_reference',
				MESSAGE = format('column "%s" of table %s is not unique', columns[i], old_table),
				DETAIL = 'ShedLock needs a primary key, or a unique index, of this column alone, that is not deferrable.',
				HINT = format('ALTER TABLE %s ADD PRIMARY KEY (%I);', old_table, columns[i]);
		END IF;
	END LOOP;

	SELECT string_agg(format('"%s"', t.attname), ', ' ORDER BY t.attnum) INTO found_text
	FROM pg_attribute t
	WHERE t.attrelid = old_table AND t.attnum > 0 AND NOT t.attisdropped AND t.attname <> ALL (columns) AND
		  t.attnotnull AND NOT t.atthasdef AND t.attidentity = '';
	IF found_text IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'feature_not_supported',
			MESSAGE = format('table %s has columns that ShedLock cannot fill', old_table),
			DETAIL = format('Neither null nor a default is possible in %s: somebody else writes to this table.', found_text),
			HINT = 'If these columns are not needed, drop them, or their NOT NULL, first.';
	END IF;

	IF dependents IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'dependent_objects_still_exist',
			MESSAGE = format('cannot adopt table %s because other objects depend on it', old_table),
			DETAIL = format('They would stay with the old table, where no lock is taken any more: %s.', dependents),
			HINT = 'Drop them first, in the same transaction, and make those that can refer to a view again after it.';
	END IF;

	-- The planner computes what is constant in these, with the rights of the role
	-- that plans a query; the functions are those of the table's owner.
	SELECT string_agg(o.description COLLATE "C", ', ' ORDER BY o.description COLLATE "C") INTO found_text
	FROM (
		SELECT pg_describe_object('pg_class'::regclass, x.indexrelid, 0)
		FROM pg_index x WHERE x.indrelid = old_table AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL)
		UNION ALL
		SELECT pg_describe_object('pg_statistic_ext'::regclass, x.oid, 0)
		FROM pg_statistic_ext x WHERE x.stxrelid = old_table AND x.stxexprs IS NOT NULL) o(description);
	IF found_text IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'feature_not_supported',
			MESSAGE = format('cannot adopt table %s because it has expressions in indexes or statistics', old_table),
			DETAIL = format('They would be computed with the rights of the role that adopts it: %s.', found_text),
			HINT = 'Drop them first, in the same transaction: ShedLock does not use them.';
	END IF;

	SELECT string_agg(format('"%s"', t.attname), ', ' ORDER BY t.attnum) INTO found_text
	FROM pg_attribute t
	WHERE t.attrelid = old_table AND t.attnum > 0 AND NOT t.attisdropped AND t.attname <> ALL (columns);
	IF found_text IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = format('columns of table %s are not in the view: %s', old_table, found_text),
			DETAIL = 'ShedLock does not use them; they stay in the renamed table.';
	END IF;

	EXECUTE format('SELECT o.%1$I::text FROM ONLY %5$s o WHERE o.%1$I IS NULL OR o.%2$I IS NULL OR o.%3$I IS NULL OR o.%4$I IS NULL LIMIT 1',
				   columns[1], columns[2], columns[3], columns[4], old_table) INTO found_text;
	GET DIAGNOSTICS hours = ROW_COUNT;
	IF hours > 0 THEN
		RAISE EXCEPTION USING
			ERRCODE = 'not_null_violation',
			MESSAGE = format('table %s has a row with a null in a column of ShedLock''s', old_table),
			DETAIL = format('It is that of lock %s.', quote_nullable(found_text)),
			HINT = 'ShedLock never writes nulls: correct or delete that row first.';
	END IF;

	EXECUTE format('SELECT o.%1$I FROM ONLY %3$s o WHERE char_length(o.%1$I) NOT BETWEEN 1 AND 255 OR char_length(o.%2$I) > 255 LIMIT 1',
				   columns[1], columns[4], old_table) INTO found_text;
	IF found_text IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = CASE found_text WHEN '' THEN 'invalid_parameter_value' ELSE 'string_data_right_truncation' END,
			MESSAGE = format('table %s has a row that is too long, or has no name', old_table),
			DETAIL = format('It is that of lock "%s"; %s and %s have at most 255 characters.',
							left(found_text, 60) || CASE WHEN char_length(found_text) > 60 THEN '...' ELSE '' END,
							columns[1], columns[4]),
			HINT = 'Delete that row if it is not used, or have the service use a shorter text.';
	END IF;

	-- Superusers use all names; a table that nobody else writes to has only good ones.
	-- The owner of a table decides who writes to it, and gets the tokens.
	IF coalesce(current_setting('shedlock.role_prefix', true)::boolean, false) THEN
		EXECUTE format($query$
			WITH owner AS (
				SELECT r.oid, r.rolsuper FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE c.oid = $1),
			writer(role) AS (
				SELECT a.grantee
				FROM (
					SELECT x.grantee
					FROM pg_class c, aclexplode(c.relacl) x
					WHERE c.oid = $1 AND x.privilege_type = 'UPDATE'
					UNION
					SELECT x.grantee
					FROM pg_attribute t, aclexplode(t.attacl) x
					WHERE t.attrelid = $1 AND NOT t.attisdropped AND x.privilege_type = 'UPDATE') a
					LEFT JOIN pg_roles r ON r.oid = a.grantee
				WHERE (SELECT w.rolsuper FROM owner w) AND r.rolsuper IS NOT TRUE
				UNION ALL
				SELECT w.oid FROM owner w WHERE NOT w.rolsuper)
			SELECT o.%1$I FROM ONLY %2$s o
			WHERE EXISTS (SELECT FROM writer) AND NOT EXISTS (
				SELECT FROM writer w JOIN pg_roles p ON p.rolname::text = split_part(o.%1$I::text, ':', 1)
				WHERE strpos(o.%1$I::text, ':') > 0 AND (w.role = 0 OR pg_has_role(w.role, p.oid, 'USAGE')))
			LIMIT 1$query$, columns[1], old_table) INTO found_text USING old_table;
		IF found_text IS NOT NULL THEN
			RAISE EXCEPTION USING
				ERRCODE = 'invalid_parameter_value',
				MESSAGE = format('no service could use lock "%s" of table %s any more', found_text, old_table),
				DETAIL = 'With shedlock.role_prefix on, a name begins with a role and a colon; the owner of the table has not the privileges of such a role. If the owner is a superuser, no role that may update the table has them.',
				HINT = 'Have the services use other names first, as in "app:job"; a row that no service uses can be deleted. If the services are trusted with each other''s names, ALTER TABLE ... OWNER TO a superuser first.';
		END IF;
	END IF;

	-- Clients whose wall clock is not UTC are seen by what they wrote.
	EXECUTE format('SELECT o.%1$I, o.%2$I FROM ONLY %3$s o WHERE o.%2$I > $1 ORDER BY 2 DESC LIMIT 1',
				   columns[1], columns[3], old_table) INTO found_text, found_at USING utc + tolerance;
	IF found_text IS NOT NULL THEN
		hours := CASE WHEN isfinite(found_at) THEN round((extract(epoch FROM found_at - utc) / 3600)::numeric, 1) END;
		RAISE EXCEPTION USING
			ERRCODE = 'datetime_field_overflow',
			MESSAGE = format('%s of lock "%s" in table %s is ahead of the current time in UTC', columns[3], found_text, old_table),
			DETAIL = format('It is %s, about %s ahead: a client wrote its local time, or has a wrong clock.',
							found_at, coalesce(trim_scale(hours) || ' hours', 'an infinite time')),
			HINT = 'Let all services use usingDbTime() or forceUtcTimeZone() first. A row that no service uses any more can be deleted.';
	END IF;

	IF cap > '0' THEN
		EXECUTE format('SELECT o.%1$I, o.%2$I FROM ONLY %3$s o WHERE o.%2$I > $1 ORDER BY 2 DESC LIMIT 1',
					   columns[1], columns[2], old_table) INTO found_text, found_at USING utc + cap + tolerance;
		IF found_text IS NOT NULL THEN
			RAISE EXCEPTION USING
				ERRCODE = 'invalid_parameter_value',
				MESSAGE = format('%s of lock "%s" in table %s is too far ahead', columns[2], found_text, old_table),
				DETAIL = format('It is %s; the setting shedlock.max_lock_at_most_for allows %s.', found_at, current_setting('shedlock.max_lock_at_most_for')),
				HINT = 'Wait until its service has released the lock; a row that no service uses can be deleted.';
		END IF;
	END IF;

	EXECUTE format('SELECT o.%1$I, o.%2$I FROM ONLY %3$s o WHERE isfinite(o.%2$I) ORDER BY 2 DESC LIMIT 1',
				   columns[1], columns[3], old_table) INTO found_text, found_at;
	hours := round((extract(epoch FROM utc - found_at) / 3600)::numeric);
	IF check_clock AND hours BETWEEN 1 AND 14 AND
	   abs(extract(epoch FROM utc - found_at) - hours * 3600) <= 120
	THEN
		RAISE EXCEPTION USING
			ERRCODE = 'datetime_field_overflow',
			MESSAGE = format('the most recent %s in table %s looks like local time', columns[3], old_table),
			DETAIL = format('Lock "%s" has %s, which is about %s hours behind the current time in UTC.', found_text, found_at, hours),
			HINT = 'Let all services use usingDbTime() or forceUtcTimeZone(). If they do, that lock was taken so many hours ago by chance: check_clock => false.';
	END IF;

	EXECUTE format('SELECT string_agg(format(''"%%s"'', o.%1$I), '', '' ORDER BY o.%1$I COLLATE "C") FROM ONLY %3$s o WHERE o.%2$I > $1 AND o.%1$I = ANY ($2)',
				   columns[1], columns[2], old_table) INTO found_text USING utc, held;
	IF found_text IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'object_in_use',
			MESSAGE = format('locks are held in both tables: %s', found_text),
			DETAIL = format('They cannot have two holders each in %s.', ours),
			HINT = 'Try again when one holder is done, or use another name in one of the services.';
	END IF;
	EXECUTE format('SELECT string_agg(format(''"%%s"'', o.%1$I), '', '' ORDER BY o.%1$I COLLATE "C") FROM ONLY %2$s o JOIN %3$s s ON s.name = o.%1$I COLLATE "C"',
				   columns[1], old_table, ours) INTO found_text;
	IF found_text IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = format('locks of the same name are one lock from now on: %s', found_text),
			DETAIL = format('They are in %s and in %s.', old_table, ours),
			HINT = 'If different services use the same name for different work, roll back, and rename one of them.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_check(regclass, name[], boolean, text, text[], regclass) IS
'Raises an error if this table of ShedLock''s cannot be taken over';

-- Grants that others gave on have to be given by the same roles, or their
-- REVOKE would miss them.  A role that may not become one of them leaves such
-- grants to the owner.
CREATE FUNCTION _shedlock_adopt_grants(old_table regclass, new_view regclass, columns name[])
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	caller CONSTANT text := current_setting('role');
	may_set_role CONSTANT boolean := current_user = CASE caller WHEN 'none' THEN session_user ELSE caller::name END;
	relation CONSTANT text := new_view::text;
	view_owner oid;
	view_schema oid;
	missing bigint;
	last_missing bigint;
	as_grantor boolean;
	g record;
BEGIN
	SELECT c.relowner, c.relnamespace INTO view_owner, view_schema FROM pg_class c WHERE c.oid = new_view;

	-- what default privileges gave, or the owner has given away
	FOR g IN
		SELECT DISTINCT x.grantee
		FROM pg_class c, aclexplode(c.relacl) x
		WHERE c.oid = new_view AND x.grantee <> view_owner
		UNION
		SELECT c.relowner FROM pg_class c WHERE c.oid = old_table AND c.relacl IS NOT NULL
	LOOP
		EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', relation,
					   CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END);
	END LOOP;

	LOOP
		missing := 0;
		FOR g IN
			WITH acl AS (
				SELECT c.oid AS relid, NULL::name AS column_name, x.*
				FROM pg_class c, aclexplode(c.relacl) x
				UNION ALL
				SELECT a.attrelid, a.attname, x.*
				FROM pg_attribute a, aclexplode(a.attacl) x
				WHERE NOT a.attisdropped)
			SELECT column_name, grantor, grantee, privilege_type, is_grantable
			FROM acl WHERE relid = old_table AND (column_name IS NULL OR column_name = ANY (columns))
			EXCEPT
			SELECT column_name, grantor, grantee, privilege_type, is_grantable
			FROM acl WHERE relid = new_view
		LOOP
			missing := missing + 1;
			as_grantor := g.grantor <> view_owner AND may_set_role AND
				pg_has_role(session_user, g.grantor, 'MEMBER') AND
				has_schema_privilege(g.grantor, view_schema, 'USAGE');

			-- its own grant option may come with one of the next
			CONTINUE WHEN as_grantor AND NOT CASE
				WHEN g.column_name IS NULL THEN has_table_privilege(g.grantor, new_view, g.privilege_type || ' WITH GRANT OPTION')
				ELSE has_column_privilege(g.grantor, new_view, g.column_name, g.privilege_type || ' WITH GRANT OPTION') END;

			IF as_grantor THEN
				PERFORM set_config('role', pg_get_userbyid(g.grantor), true);
			END IF;
			EXECUTE format('GRANT %s%s ON %s TO %s%s', g.privilege_type, ' (' || quote_ident(g.column_name) || ')', relation,
						   CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
						   CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
			IF as_grantor THEN
				PERFORM set_config('role', caller, true);
			END IF;
		END LOOP;

		-- with less each time, or no more to be had
		EXIT WHEN missing = 0 OR missing >= last_missing;
		last_missing := missing;
	END LOOP;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_grants(regclass, regclass, name[]) IS
'Gives a view the privileges of the table whose place it takes';

-- Locks both tables for shedlock_adopt, after it has seen that they can be, and
-- that the caller may do what follows.
CREATE FUNCTION _shedlock_adopt_lock(old_table regclass, columns name[], ours regclass, tokens regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- Our columns are for the extension alone.
	needed CONSTANT text := 'SELECT, INSERT (name, lock_until, locked_at, locked_by), UPDATE (name, lock_until, locked_at, locked_by)';
	relation text;
	r record;
	owner_name text;
BEGIN
	-- A schema is renamed under no lock but ROW EXCLUSIVE on pg_namespace, by the
	-- role that owns it.  What is named for a superuser from here to the end of
	-- the transaction stays what it is.
	IF (SELECT a.rolsuper FROM pg_roles a WHERE a.rolname = current_user) THEN
		LOCK TABLE pg_catalog.pg_namespace IN SHARE MODE;
	END IF;
	relation := old_table::text;

	IF old_table IS NULL OR array_position(columns, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'table and columns must not be null';
	ELSIF (SELECT count(DISTINCT c) FROM unnest(columns) c) < 4 THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'the four columns must be different ones';
	ELSIF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		-- It would read what was there before the clients were made to wait.
		RAISE EXCEPTION USING
			ERRCODE = 'feature_not_supported',
			MESSAGE = format('shedlock_adopt cannot run at isolation level %s', current_setting('transaction_isolation')),
			DETAIL = 'It would not see the locks that were taken last.',
			HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED;';
	END IF;

	SELECT c.relname, c.relkind, c.relowner, c.relnamespace, c.relpersistence, n.nspname INTO r
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.oid = old_table;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = format('table %s does not exist', relation);
	ELSIF old_table = ours THEN
		RAISE EXCEPTION USING
			ERRCODE = 'wrong_object_type',
			MESSAGE = format('table %s is that of the extension', relation),
			DETAIL = 'ShedLock''s clients can work on it as it is.',
			HINT = 'Give the table that your services have used so far.';
	ELSIF r.relkind <> 'r' OR r.relpersistence = 't' THEN
		RAISE EXCEPTION USING
			ERRCODE = 'wrong_object_type',
			MESSAGE = format('%s is not an ordinary table', relation),
			DETAIL = CASE
				WHEN EXISTS (SELECT FROM pg_rewrite w JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
							 WHERE w.ev_class = old_table AND d.refclassid = 'pg_class'::regclass AND d.refobjid = ours)
				THEN format('It is a view on %s, where the locks are already.', ours)
				ELSE format('It is a %s.', CASE r.relkind
					WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'p' THEN 'partitioned table'
					WHEN 'f' THEN 'foreign table' WHEN 'S' THEN 'sequence' WHEN 'r' THEN 'temporary table'
					ELSE 'relation of another kind' END) END,
			HINT = 'Give the table that has the rows; copy them to an ordinary table first if there is none.';
	ELSIF NOT pg_has_role(r.relowner, 'USAGE') THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('must be owner of table %s', relation),
			DETAIL = format('It belongs to role "%s".', pg_get_userbyid(r.relowner)),
			HINT = 'Have its owner, or a superuser, call shedlock_adopt.';
	END IF;

	-- The view reaches the locks with the rights of its owner.
	owner_name := quote_ident(pg_get_userbyid(r.relowner));
	IF NOT pg_has_role((SELECT c.relowner FROM pg_class c WHERE c.oid = ours), 'USAGE') AND
	   NOT (has_table_privilege(r.relowner, ours, 'SELECT') AND
			(SELECT bool_and(has_column_privilege(r.relowner, ours, c, p))
			 FROM unnest('{name,lock_until,locked_at,locked_by}'::text[]) c, unnest('{INSERT,UPDATE}'::text[]) p))
	THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('role %s may not write to table %s', owner_name, ours),
			DETAIL = 'It will own the view that takes the place of the old table.',
			HINT = format('An administrator can GRANT %s ON %s TO %s.', needed, ours, owner_name);
	END IF;
	IF NOT (SELECT bool_and(has_table_privilege(ours, p)) FROM unnest('{SELECT,INSERT,UPDATE}'::text[]) p) THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('role %I may not write to all columns of table %s', current_user, ours),
			DETAIL = 'Each lock that is taken over gets a token.',
			HINT = format('An administrator can call shedlock_adopt, or GRANT SELECT, INSERT, UPDATE ON %s TO %I for as long as it takes.', ours, current_user);
	END IF;
	IF NOT has_sequence_privilege(tokens, 'USAGE') THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('role %I may not draw tokens', current_user),
			DETAIL = 'Each lock that is taken over gets a token.',
			HINT = format('An administrator can GRANT USAGE ON SEQUENCE %s TO %I.',
						  tokens, current_user);
	END IF;

	BEGIN
		EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', relation);
	EXCEPTION WHEN insufficient_privilege THEN
		-- Somebody else moved it while we waited: the name is that of a view now,
		-- whose owner may not lock what is behind it.
		IF old_table::text = relation THEN
			RAISE;
		END IF;
	END;
	EXECUTE format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', ours);
	IF old_table::text <> relation THEN
		RAISE EXCEPTION USING
			ERRCODE = 'object_in_use',
			MESSAGE = format('table %s was renamed or dropped meanwhile', relation),
			HINT = 'Look whether somebody else has moved it.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_lock(regclass, name[], regclass, regclass) IS
'Raises an error if this table cannot be taken over by the caller, and locks it and ours';

CREATE FUNCTION _shedlock_adopt_move(
	old_table regclass,
	columns name[],
	held text[],
	ours regclass,
	tokens regclass,
	OUT rows bigint,
	OUT new_view regclass)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
-- else CHECK constraints, too, are computed when a query is planned
SET constraint_exclusion = off
AS $$
#variable_conflict use_variable
DECLARE
	relation CONSTANT text := old_table::text;
	needed CONSTANT text := 'SELECT, INSERT (name, lock_until, locked_at, locked_by), UPDATE (name, lock_until, locked_at, locked_by)';
	r record;
	owner_name text;
	new_name name;
	view_columns text;
	utc timestamp;
BEGIN
	SELECT c.relname, c.relowner, c.relnamespace, n.nspname INTO r
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.oid = old_table;
	owner_name := quote_ident(pg_get_userbyid(r.relowner));
	new_name := r.relname;
	WHILE octet_length(new_name || '_before_shedlock') > 63 LOOP
		new_name := left(new_name::text, -1);
	END LOOP;
	new_name := new_name || '_before_shedlock';
	IF EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = r.relnamespace AND c.relname = new_name) OR
	   EXISTS (SELECT FROM pg_type t WHERE t.typnamespace = r.relnamespace AND t.typname = new_name)
	THEN
		RAISE EXCEPTION USING
			ERRCODE = 'duplicate_table',
			MESSAGE = format('relation "%s" already exists', new_name),
			DETAIL = format('Table %s would be given that name.', relation),
			HINT = format('Rename or drop %I.%I first.', r.nspname, new_name);
	END IF;

	utc := timezone('UTC', clock_timestamp());
	-- A write that sets the token is left alone by the trigger.  Who took the locks
	-- is not known: their tokens are for the owner of the table that they were in.
	EXECUTE format($q$
		INSERT INTO %6$s AS s (name, lock_until, locked_at, locked_by, token, locked_role)
		SELECT o.%1$I, o.%2$I, o.%3$I, o.%4$I, nextval($4), $3
		FROM (SELECT * FROM ONLY %5$s ORDER BY %3$I, %1$I) o
		ON CONFLICT (name) DO UPDATE
		SET lock_until = EXCLUDED.lock_until, locked_at = EXCLUDED.locked_at, locked_by = EXCLUDED.locked_by,
			token = EXCLUDED.token, kind = 'lease', locked_role = EXCLUDED.locked_role, keep_until = NULL,
			lock_at_most_for = NULL, pid = NULL, backend_start = NULL, timeline = NULL
		WHERE s.name <> ALL ($1) AND (EXCLUDED.lock_until > $2 OR EXCLUDED.lock_until > s.lock_until)$q$,
		columns[1], columns[2], columns[3], columns[4], relation, ours)
		USING held, utc, r.relowner, tokens;
	GET DIAGNOSTICS rows = ROW_COUNT;

	IF NOT (has_table_privilege(r.relowner, ours, 'SELECT') AND
			(SELECT bool_and(has_column_privilege(r.relowner, ours, c, p))
			 FROM unnest('{name,lock_until,locked_at,locked_by}'::text[]) c, unnest('{INSERT,UPDATE}'::text[]) p))
	THEN
		EXECUTE format('GRANT %s ON %s TO %s', needed, ours, owner_name);
	END IF;
	EXECUTE format('ALTER TABLE %s RENAME TO %I', relation, new_name);
	SELECT string_agg(format('s.%I AS %I', ('{name,lock_until,locked_at,locked_by}'::name[])[array_position(columns, a.attname)],
							 a.attname), ', ' ORDER BY a.attnum)
	INTO view_columns
	FROM pg_attribute a
	WHERE a.attrelid = old_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = ANY (columns);
	EXECUTE format('CREATE VIEW %s AS SELECT %s FROM %s s', relation, view_columns, ours);
	EXECUTE format('COMMENT ON VIEW %s IS %L', relation,
				   format('The locks in %s, for ShedLock''s clients; %I was here before', ours, new_name));
	IF r.relowner <> (SELECT c.relowner FROM pg_class c WHERE c.oid = relation::regclass) THEN
		EXECUTE format('ALTER VIEW %s OWNER TO %s', relation, owner_name);
	END IF;
	new_view := relation;
	RAISE LOG USING MESSAGE = format('table %s taken over by role "%s"', relation, current_user);
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_move(regclass, name[], text[], regclass, regclass) IS
'Copies the locks of a table into ours, renames it, and makes the view in its place';

-- While both tables are locked, clients wait at the first one's name.  When it
-- comes free, the server looks that name up again, for statements that are
-- prepared as well, and finds the view.
CREATE FUNCTION shedlock_adopt(
	old_table regclass,
	name_column name DEFAULT 'name',
	lock_until_column name DEFAULT 'lock_until',
	locked_at_column name DEFAULT 'locked_at',
	locked_by_column name DEFAULT 'locked_by',
	check_clock boolean DEFAULT true)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_adopt_lock($1, ARRAY[$2, $3, $4, $5], 'shedlock'::regclass, 'shedlock_token_seq'::regclass);
	SELECT _shedlock_adopt_check($1, ARRAY[$2, $3, $4, $5], $6, _shedlock_adopt_dependents($1),
		ARRAY(SELECT s.name FROM shedlock_status() s WHERE s.state OPERATOR(pg_catalog.<>) 'paused'),
		'shedlock'::regclass);
	SELECT m.rows
	FROM _shedlock_adopt_move($1, ARRAY[$2, $3, $4, $5],
			ARRAY(SELECT s.name FROM shedlock_status() s WHERE s.state OPERATOR(pg_catalog.<>) 'paused'),
			'shedlock'::regclass, 'shedlock_token_seq'::regclass) m
		 CROSS JOIN LATERAL _shedlock_adopt_grants($1, m.new_view, ARRAY[$2, $3, $4, $5]) g;
END;

COMMENT ON FUNCTION shedlock_adopt(regclass, name, name, name, name, boolean) IS
'Takes over the locks of a table of ShedLock''s, and puts a view in its place; gives their number';

--
-- pg_cron
--

-- Nothing of the extension is found by the name of its schema when it is called,
-- since the role that owns the schema can rename it and make another one of that
-- name.  So the functions that people call, and the view, are bodies that the
-- server has parsed when they were made.  A body in plpgsql calls nothing but
-- pg_catalog and cron, which a parsed one cannot name where pg_cron is not
-- installed yet; what it needs of the extension is handed in.  In a parsed body a
-- function that needs what another one gives is called after that one.

-- What pg_cron runs is the job's command and nothing else, so the CALL keeps
-- all there is to know about a guarded job: the name of its lock, the
-- durations, and the original command.
CREATE FUNCTION _shedlock_guarded_call(
	job_command text,
	OUT name text,
	OUT command text,
	OUT lock_at_most_for interval,
	OUT lock_at_least_for interval,
	OUT once_every interval,
	OUT on_busy text,
	OUT schema_name text,
	OUT scheduled_at timestamptz)
RETURNS record
LANGUAGE C STABLE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', '_shedlock_guarded_call';

COMMENT ON FUNCTION _shedlock_guarded_call(text) IS
'Arguments of a command that is a CALL of shedlock_run with constants; nulls for every other command';

CREATE FUNCTION _shedlock_cron_call(
	name text,
	command text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL,
	on_busy text DEFAULT NULL,
	scheduled_at timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', '_shedlock_cron_call';

COMMENT ON FUNCTION _shedlock_cron_call(text, text, interval, interval, interval, text, timestamptz) IS
'The CALL of shedlock_run with these arguments; raises the errors that shedlock_run would raise before it runs the command';

CREATE FUNCTION _shedlock_cron_timezone()
RETURNS text
LANGUAGE C STABLE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', '_shedlock_cron_timezone';

COMMENT ON FUNCTION _shedlock_cron_timezone() IS
'Time zone of pg_cron''s schedules: cron.timezone, GMT before pg_cron 1.5';

CREATE FUNCTION _shedlock_cron_require()
RETURNS void
LANGUAGE C STABLE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', '_shedlock_cron_require';

COMMENT ON FUNCTION _shedlock_cron_require() IS
'Raises an error unless pg_cron is installed in this database';

CREATE FUNCTION _shedlock_cron_is_readable()
RETURNS boolean
LANGUAGE C STABLE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', '_shedlock_cron_is_readable';

COMMENT ON FUNCTION _shedlock_cron_is_readable() IS
'Whether pg_cron is installed in this database, and the caller may read cron.job';

CREATE FUNCTION _shedlock_cron_name_is_shared(job_name text, username text)
RETURNS boolean
LANGUAGE C STABLE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', '_shedlock_cron_name_is_shared';

COMMENT ON FUNCTION _shedlock_cron_name_is_shared(text, text) IS
'Whether another role has a pg_cron job of that name; false for callers who may not use pg_cron';

CREATE FUNCTION _shedlock_may_use(lock_name text)
RETURNS boolean
LANGUAGE C STABLE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', '_shedlock_may_use';

COMMENT ON FUNCTION _shedlock_may_use(text) IS
'Whether the caller may use the lock by shedlock.role_prefix, or sees all locks as a member of pg_read_all_stats';

CREATE FUNCTION _shedlock_cron_job(
	job text,
	by_id boolean,
	missing_ok boolean,
	OUT jobid bigint,
	OUT job_name text,
	OUT schedule text,
	OUT command text,
	OUT database text,
	OUT username text)
RETURNS record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	ids bigint[];
	owners text;
BEGIN
	IF job IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'job must not be null';
	END IF;

	IF by_id THEN
		SELECT array_agg(j.jobid) INTO ids FROM cron.job j WHERE j.jobid::text = job;
	END IF;
	IF ids IS NULL THEN
		SELECT array_agg(j.jobid), string_agg(format('job %s of role "%s"', j.jobid, j.username), ', ' ORDER BY j.jobid)
		INTO ids, owners
		FROM cron.job j WHERE j.jobname::text = job;
	END IF;

	IF cardinality(ids) > 1 THEN
		RAISE EXCEPTION USING
			ERRCODE = 'ambiguous_alias',
			MESSAGE = format('job name "%s" is ambiguous', job),
			DETAIL = format('It is that of %s.', owners),
			HINT = CASE WHEN by_id THEN 'Give the number of the job.'
						ELSE 'Use cron.unschedule with the number of the job.' END;
	ELSIF ids IS NULL AND NOT missing_ok THEN
		RAISE EXCEPTION USING
			ERRCODE = 'undefined_object',
			MESSAGE = format('job "%s" does not exist', job),
			HINT = 'Give the number or the name of a job in cron.job, which shows only superusers the jobs of other roles.';
	END IF;

	SELECT j.jobid, j.jobname::text, j.schedule, j.command, j.database, j.username
	INTO jobid, job_name, schedule, command, database, username
	FROM cron.job j WHERE j.jobid = ids[1];
END
$$;

COMMENT ON FUNCTION _shedlock_cron_job(text, boolean, boolean) IS
'Finds a pg_cron job by its name or, first of all, by its number';

-- old_name: of the lock that guards the job already, or NULL.  A run may hold it.
CREATE FUNCTION _shedlock_cron_lock_name(
	old_name text,
	keep_any boolean,
	jobid bigint,
	job_name text,
	username text,
	is_shared boolean)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
DECLARE
	-- quoted, since either name may have a dot
	shared_name CONSTANT text := quote_ident(username) || '.' || quote_ident(job_name);
BEGIN
	-- Then only superusers may use a name that does not begin with a role.
	IF current_setting('shedlock.role_prefix', true) = 'on' THEN
		RETURN CASE WHEN keep_any AND old_name LIKE '%:%' THEN old_name
					ELSE username || ':' || coalesce(job_name, 'cron.' || jobid) END;
	ELSIF old_name IS NOT NULL AND (keep_any OR old_name IN (job_name, shared_name)) THEN
		RETURN old_name;
	ELSIF job_name IS NULL THEN
		RETURN 'cron:' || jobid;
	ELSIF NOT is_shared THEN
		RETURN job_name;
	END IF;

	RAISE NOTICE USING
		MESSAGE = format('lock of job "%s" is named "%s"', job_name, shared_name),
		DETAIL = 'Another role has a job of the same name.';
	RETURN shared_name;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_lock_name(text, boolean, bigint, text, text, boolean) IS
'Name of the lock that guards a pg_cron job';

CREATE FUNCTION _shedlock_cron_advise(
	job text,
	lock_name text,
	lock_at_most_for interval,
	database text,
	once_every interval,
	lost timestamptz,
	ours regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
BEGIN
	IF lock_at_most_for IS NULL THEN
		RAISE NOTICE USING
			MESSAGE = format('no limit for lock "%s": a run holds it as long as it takes', lock_name),
			HINT = 'Give lock_at_most_for to have a run cancelled that takes longer.';
	END IF;
	IF database <> current_database() THEN
		RAISE WARNING USING
			MESSAGE = format('job "%s" runs in database "%s"', job, database),
			DETAIL = 'Its lock and its history are in that database.',
			HINT = format('There, too: CREATE EXTENSION shedlock SCHEMA %I.',
						  (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ours));
	END IF;
	IF lost IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = format('job "%s" will be skipped at %s', job, lost),
			DETAIL = format('When summer time begins, the run before it is in the same period of %s, which is counted in UTC.', once_every),
			HINT = format('Give half of that: once_every => ''%s''.', once_every / 2);
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_advise(text, text, interval, text, interval, timestamptz, regclass) IS
'Says what a guarded job has no guard against';

CREATE FUNCTION _shedlock_cron_rewrite(
	jobid bigint,
	job_name text,
	schedule text,
	database text,
	username text,
	command text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF $6 IS NULL THEN
		RETURN false;
	ELSIF has_function_privilege('cron.alter_job(bigint, text, text, text, text, boolean)', 'EXECUTE') THEN
		PERFORM cron.alter_job(job_id => $1, command => $6);
	ELSIF $2 IS NOT NULL AND $5 = current_user AND $4 = current_database() THEN
		-- replaces the command, and nothing else
		PERFORM cron.schedule($2, $3, $6);
	ELSE
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('permission denied to change job "%s"', coalesce($2, $1::text)),
			DETAIL = 'A job without a name, or in another database, can only be changed by roles that may execute cron.alter_job.',
			HINT = format('An administrator can GRANT EXECUTE ON FUNCTION cron.alter_job TO %I.', current_user);
	END IF;
	RAISE LOG USING MESSAGE = format('command of job "%s" changed by role "%s"', coalesce($2, $1::text), current_user);
	RETURN true;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_rewrite(bigint, text, text, text, text, text) IS
'Gives a pg_cron job another command; false when that is NULL';

-- The CALL of a job is text, which names the schema of the extension.  The role
-- that owns the schema can rename it, and put a shedlock_run of its own into
-- another one of that name: the job would call that with the rights of its role.
-- A member of a role counts as that role here, because it can become that role.
-- A role that reads or writes files of the server, or runs programs on it, counts
-- as a superuser.
-- A job in another database calls what is there under that name.  From here only
-- the owner of that database can be seen, who may make schemas in it and is
-- pg_database_owner there; not who owns the schema, or else may make one.
-- call_schema: the schema that the CALL names; NULL: that of the extension.
-- danger: why the job must not be made; problem: the same, or what is wrong else.
CREATE FUNCTION _shedlock_cron_danger(
	ours regclass,
	call_schema text,
	username text,
	database text,
	OUT danger text,
	OUT problem text)
RETURNS record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	r record;
	p record;
BEGIN
	SELECT n.oid AS nsp, n.nspname, d.datname = current_database() AS here, a.oid AS owner, a.rolname AS owner_name, j.oid AS job_role
	INTO r
	FROM pg_class c
		 JOIN pg_namespace n ON n.oid = c.relnamespace
		 JOIN pg_database d ON d.datname = database
		 JOIN pg_roles a ON a.oid = CASE
			WHEN d.datname = current_database() AND n.nspowner <> 'pg_database_owner'::regrole THEN n.nspowner
			ELSE d.datdba END
		 LEFT JOIN pg_roles j ON j.rolname = username
	WHERE c.oid = ours;

	SELECT a.oid, a.rolname INTO p
	FROM pg_roles a
	WHERE (a.rolsuper OR a.rolname IN ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files')) AND
		  pg_has_role(r.job_role, a.oid, 'MEMBER') AND NOT pg_has_role(r.owner, a.oid, 'MEMBER') AND
		  NOT EXISTS (SELECT FROM pg_roles s WHERE s.rolsuper AND pg_has_role(r.owner, s.oid, 'MEMBER'))
	ORDER BY a.oid <> r.job_role, a.rolsuper DESC, a.rolname
	LIMIT 1;
	IF FOUND THEN
		danger := format('role "%s" can replace the schema of shedlock_run in database "%s", which the job calls as ',
						 r.owner_name, database) ||
			CASE p.oid WHEN r.job_role THEN format('superuser "%s"', username)
					   ELSE format('role "%s", a member of "%s"', username, p.rolname) END;
	END IF;
	problem := CASE
		WHEN danger IS NOT NULL THEN danger
		WHEN r.here AND call_schema <> r.nspname THEN
			format('calls shedlock_run of schema "%s", but the extension is in "%s"; shedlock_cron_guard corrects that',
				   call_schema, r.nspname)
		WHEN r.here AND (SELECT count(*) FROM pg_proc f WHERE f.pronamespace = r.nsp AND f.proname = 'shedlock_run') > 1 THEN
			format('schema "%s" has another shedlock_run: the call can fail as not unique', r.nspname)
		WHEN NOT pg_has_role(r.owner, r.job_role, 'MEMBER') THEN
			format('role "%s" can replace the schema of shedlock_run in database "%s", and so run anything as role "%s"',
				   r.owner_name, database, username) END;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_danger(regclass, text, text, text) IS
'Which role can have a guarded job call something else, or what it does call; NULL for nothing of that';

CREATE FUNCTION _shedlock_cron_refuse(job text, danger text)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF danger IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('job "%s" cannot be guarded, since it runs with the rights of a superuser', job),
			DETAIL = upper(left(danger, 1)) || substr(danger, 2) || '.',
			HINT = 'Give the schema of the extension, and a database that is not this one, to a superuser: ALTER SCHEMA ... OWNER TO ..., ALTER DATABASE ... OWNER TO ... .  Or have another role own the job.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_refuse(text, text) IS
'Raises an error if there is a danger';

-- What shedlock_cron_schedule is to make, and the job that it replaces.
CREATE FUNCTION _shedlock_cron_wanted(
	job_name text,
	INOUT schedule text,
	INOUT database text,
	INOUT username text,
	INOUT active boolean,
	OUT old_id bigint,
	OUT old_command text,
	OUT same_schedule boolean)
RETURNS record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
#variable_conflict use_variable
BEGIN
	IF job_name IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'job name must not be null';
	ELSIF schedule IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'schedule must not be null';
	ELSIF octet_length(job_name) > 63 AND EXISTS (
		SELECT FROM pg_attribute a
		WHERE a.attrelid = 'cron.job'::regclass AND a.attname = 'jobname' AND a.atttypid = 'name'::regtype)
	THEN
		RAISE EXCEPTION USING
			ERRCODE = 'invalid_parameter_value',
			MESSAGE = 'job name is too long',
			DETAIL = 'Before version 1.5, pg_cron cuts the names of jobs at 63 bytes.';
	END IF;

	-- pg_cron reads these two, but from version 1.6.0 on puts them into no month,
	-- so that they never fire.
	IF schedule ~ '^[ \t\n]*@(yearly|annually)([ \t\n]|$)' THEN
		schedule := '0 0 1 1 *';
	END IF;

	database := coalesce(database, current_database());
	username := coalesce(username, current_user);
	active := coalesce(active, true);
	SELECT j.jobid, j.command, (j.schedule, j.database, j.active) = (schedule, database, active)
	INTO old_id, old_command, same_schedule
	FROM cron.job j
	WHERE j.jobname::text = job_name AND j.username = username;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_wanted(text, text, text, text, boolean) IS
'Checks the arguments of shedlock_cron_schedule, and finds the job that it replaces';

CREATE FUNCTION _shedlock_cron_put(
	job_name text,
	schedule text,
	command text,
	database text,
	username text,
	active boolean,
	old_id bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	id bigint;
BEGIN
	IF username = current_user AND (old_id IS NOT NULL OR (database = current_database() AND active)) THEN
		id := cron.schedule(job_name, schedule, command);

		-- which leaves alone what it has no arguments for
		IF EXISTS (SELECT FROM cron.job j
				   WHERE j.jobid = id AND (j.database <> database OR j.active <> active))
		THEN
			PERFORM cron.alter_job(job_id => id, database => database, active => active);
		END IF;
	ELSIF old_id IS NOT NULL THEN
		PERFORM cron.alter_job(job_id => old_id, schedule => schedule, command => command,
							   database => database, active => active);
		id := old_id;
	ELSE
		id := cron.schedule_in_database(job_name, schedule, command, database,
										nullif(username, current_user), active);
	END IF;
	RAISE LOG USING MESSAGE = format('job "%s" scheduled by role "%s"', job_name, current_user);
	RETURN id;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_put(text, text, text, text, text, boolean, bigint) IS
'Makes or replaces a pg_cron job; gives its number';

CREATE FUNCTION _shedlock_cron_remove(jobid bigint, job_name text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF jobid IS NULL OR NOT cron.unschedule(jobid) THEN
		RETURN false;
	END IF;
	RAISE LOG USING MESSAGE = format('job "%s" unscheduled by role "%s"', job_name, current_user);
	RETURN true;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_remove(bigint, text) IS
'Removes a pg_cron job; false for NULL';

CREATE FUNCTION _shedlock_cron_field(
	field text,
	low integer,
	high integer,
	names text[])
RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
DECLARE
	item text;
	part text[];
	bounds integer[];
	result integer[] := '{}';
BEGIN
	FOREACH item IN ARRAY string_to_array(lower(field), ',') LOOP
		part := regexp_match(item, '^(?:(\w+)|(\*)(?:/(\d{1,4}))?|(\w+)-(\w+)(?:/(\d{1,4}))?)$');
		bounds := ARRAY(
			SELECT CASE WHEN b.value ~ '^\d{1,4}$' THEN b.value::integer
						ELSE array_position(names, b.value) - 1 + low END
			FROM unnest(ARRAY[coalesce(part[1], part[4], low::text),
							  coalesce(part[1], part[5], high::text)]) WITH ORDINALITY AS b(value, n)
			ORDER BY b.n);
		IF part IS NULL OR array_position(bounds, NULL) IS NOT NULL OR
		   bounds[1] NOT BETWEEN low AND high OR bounds[2] NOT BETWEEN low AND high OR
		   coalesce(part[3], part[6], '1')::integer = 0
		THEN
			RETURN NULL;
		END IF;
		result := result || ARRAY(
			SELECT generate_series(bounds[1], bounds[2], coalesce(part[3], part[6], '1')::integer));
	END LOOP;
	RETURN ARRAY(SELECT DISTINCT v FROM unnest(result) v ORDER BY v DESC);
END
$$;

COMMENT ON FUNCTION _shedlock_cron_field(text, integer, integer, text[]) IS
'Values of one field of a cron schedule, the highest first; NULL when it cannot be read';

CREATE FUNCTION _shedlock_cron_fields(schedule text)
RETURNS text[]
LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
BEGIN
	RETURN regexp_split_to_array(
		CASE btrim(schedule, E' \t\r\n')
			WHEN '@yearly' THEN '0 0 1 1 *'
			WHEN '@annually' THEN '0 0 1 1 *'
			WHEN '@monthly' THEN '0 0 1 * *'
			WHEN '@weekly' THEN '0 0 * * 0'
			WHEN '@daily' THEN '0 0 * * *'
			WHEN '@midnight' THEN '0 0 * * *'
			WHEN '@hourly' THEN '0 * * * *'
			ELSE btrim(schedule, E' \t\r\n') END, '\s+');
END
$$;

COMMENT ON FUNCTION _shedlock_cron_fields(text) IS
'The five fields of a cron schedule';

CREATE FUNCTION _shedlock_cron_due(
	schedule text,
	at timestamptz,
	zone text,
	fields text[],
	minutes integer[],
	hours integer[],
	days integer[],
	months integer[],
	weekdays integer[])
RETURNS timestamptz
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
DECLARE
	wall CONSTANT timestamp := timezone(zone, at);
	seconds CONSTANT integer := substring(lower(schedule) FROM '^\s*0*([1-9]|[1-5]\d)\s*seconds?\s*$');
	day date;
	on_day boolean;
	on_weekday boolean;
	hour integer;
	minute integer;
	local timestamp;
	due timestamptz;
BEGIN
	-- These run that long after each other, at no particular second.
	IF seconds IS NOT NULL THEN
		RETURN at - make_interval(secs => seconds);
	ELSIF minutes IS NULL OR hours IS NULL OR days IS NULL OR months IS NULL OR weekdays IS NULL THEN
		RETURN NULL;
	END IF;

	FOR back IN 0..366 LOOP
		day := wall::date - back;
		CONTINUE WHEN extract(month FROM day)::integer <> ALL (months);
		on_day := extract(day FROM day)::integer = ANY (days) OR
			(fields[3] = '$' AND extract(day FROM day + 1) = 1);
		on_weekday := extract(dow FROM day)::integer = ANY (weekdays) OR
			extract(isodow FROM day)::integer = ANY (weekdays);

		-- Vixie's rule: two restrictions widen each other.
		CONTINUE WHEN NOT CASE WHEN fields[3] LIKE '*%' OR fields[5] LIKE '*%'
							   THEN on_day AND on_weekday ELSE on_day OR on_weekday END;

		FOREACH hour IN ARRAY hours LOOP
			CONTINUE WHEN day + make_interval(hours => hour) > wall;
			FOREACH minute IN ARRAY minutes LOOP
				local := day + make_interval(hours => hour, mins => minute);
				due := timezone(zone, local);

				-- In autumn an hour of the wall clock is twice.
				IF due > at AND timezone(zone, due - '1 hour'::interval) = local THEN
					due := due - '1 hour'::interval;
				END IF;

				-- In spring an hour of the wall clock never is.
				IF due <= at AND timezone(zone, due) = local THEN
					RETURN due;
				END IF;
			END LOOP;
		END LOOP;
	END LOOP;
	RETURN NULL;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_due(text, timestamptz, text, text[], integer[], integer[], integer[], integer[], integer[]) IS
'When a schedule with these fields was due last before or at that time';

CREATE FUNCTION _shedlock_cron_last_due(
	schedule text,
	at timestamptz DEFAULT pg_catalog.clock_timestamp())
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_due($1, $2, _shedlock_cron_timezone(), f.fields,
		_shedlock_cron_field(f.fields[1], 0, 59, '{}'::text[]),
		_shedlock_cron_field(f.fields[2], 0, 23, '{}'::text[]),
		CASE WHEN f.fields[3] OPERATOR(pg_catalog.=) '$' THEN '{}'::integer[]
			 ELSE _shedlock_cron_field(f.fields[3], 1, 31, '{}'::text[]) END,
		_shedlock_cron_field(f.fields[4], 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}'::text[]),
		_shedlock_cron_field(f.fields[5], 0, 7, '{sun,mon,tue,wed,thu,fri,sat}'::text[]))
	FROM _shedlock_cron_fields($1) f(fields);
END;

COMMENT ON FUNCTION _shedlock_cron_last_due(text, timestamptz) IS
'When a pg_cron schedule was due last; NULL for @reboot and when that is more than a year ago';

-- Ticks are counted in UTC, schedules in cron.timezone.  When summer time begins
-- there, two runs are an hour nearer to each other than they look, so that a
-- period as long as the time between them can have both.
CREATE FUNCTION _shedlock_cron_summers(zone text, at timestamptz)
RETURNS SETOF timestamptz
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 2
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	step CONSTANT interval := '30 min';
BEGIN
	RETURN QUERY
		SELECT g + step
		FROM generate_series(date_trunc('hour', at), at + '366 days'::interval, step) g
		WHERE timezone(zone, g + step) - timezone(zone, g) > step;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_summers(text, timestamptz) IS
'When summer time begins within a year';

CREATE FUNCTION _shedlock_cron_same_tick(
	zone text,
	once_every interval,
	due timestamptz,
	previous timestamptz)
RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	early CONSTANT interval := least(once_every / 4, '30 s'::interval);
	epoch CONSTANT timestamptz := 'epoch';
BEGIN
	RETURN timezone(zone, due) - timezone(zone, previous) >= once_every AND
		   date_bin(once_every, due + early, epoch) = date_bin(once_every, previous + early, epoch);
END
$$;

COMMENT ON FUNCTION _shedlock_cron_same_tick(text, interval, timestamptz, timestamptz) IS
'Whether two instants that look a period apart are in the same period';

CREATE FUNCTION _shedlock_cron_lost_tick(
	schedule text,
	once_every interval,
	at timestamptz DEFAULT pg_catalog.clock_timestamp())
RETURNS timestamptz
LANGUAGE sql STABLE STRICT PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT d.due
	FROM _shedlock_cron_timezone() z(zone)
		 CROSS JOIN LATERAL _shedlock_cron_summers(z.zone, $3) c(change)
		 CROSS JOIN LATERAL _shedlock_cron_last_due($1, c.change OPERATOR(pg_catalog.+) $2
			OPERATOR(pg_catalog.-) '1 us'::interval) d(due)
		 CROSS JOIN LATERAL _shedlock_cron_last_due($1, d.due OPERATOR(pg_catalog.-) '1 us'::interval) p(due)
	WHERE _shedlock_cron_same_tick(z.zone, $2, d.due, p.due)
	ORDER BY c.change
	LIMIT 1;
END;

COMMENT ON FUNCTION _shedlock_cron_lost_tick(text, interval, timestamptz) IS
'When a pg_cron schedule is due next in a period whose tick the run before has used, because summer time begins; NULL for never within a year';

CREATE FUNCTION shedlock_cron_schedule(
	job_name text,
	schedule text,
	command text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL,
	database text DEFAULT NULL,
	username text DEFAULT NULL,
	active boolean DEFAULT true)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT p.jobid
	FROM _shedlock_cron_wanted($1, $2, $7, $8, $9) w
		 CROSS JOIN LATERAL _shedlock_guarded_call(w.old_command) g
		 CROSS JOIN LATERAL _shedlock_cron_name_is_shared($1, w.username) s(is_shared)
		 CROSS JOIN LATERAL _shedlock_cron_lock_name(g.name, false, NULL::bigint, $1, w.username, s.is_shared) n(lock_name)
		 CROSS JOIN LATERAL _shedlock_cron_call(n.lock_name, $3, $4, $5, $6, NULL::text,
			CASE WHEN w.same_schedule THEN g.scheduled_at END) c(call)
		 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, NULL::text, w.username, w.database) x
		 CROSS JOIN LATERAL _shedlock_cron_refuse($1, x.danger) d
		 CROSS JOIN LATERAL _shedlock_cron_put($1, w.schedule, c.call, w.database, w.username, w.active, w.old_id) p(jobid)
		 CROSS JOIN LATERAL _shedlock_cron_advise($1, n.lock_name, $4, w.database, $6,
			_shedlock_cron_lost_tick(w.schedule, $6, pg_catalog.clock_timestamp()), 'shedlock'::regclass) a;
END;

COMMENT ON FUNCTION shedlock_cron_schedule(text, text, text, interval, interval, interval, text, text, boolean) IS
'Makes or replaces a guarded pg_cron job; gives its number';

CREATE FUNCTION shedlock_cron_unschedule(job_name text)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT r.done
	FROM _shedlock_cron_job($1, false, true) j
		 CROSS JOIN LATERAL _shedlock_cron_remove(j.jobid, $1) r(done);
END;

COMMENT ON FUNCTION shedlock_cron_unschedule(text) IS
'Removes a pg_cron job; false when there is none of that name';

CREATE FUNCTION _shedlock_cron_changes(
	job text,
	was_guarded boolean,
	old_durations interval[],
	new_durations interval[])
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	changes CONSTANT text := (
		SELECT string_agg(format('%s %s instead of %s', u.name, u.after, coalesce(u.before::text, 'none')), ', ' ORDER BY u.n)
		FROM unnest('{lock_at_most_for,lock_at_least_for,once_every}'::text[], old_durations, new_durations)
			 WITH ORDINALITY u(name, before, after, n)
		WHERE u.after IS DISTINCT FROM u.before);
BEGIN
	IF was_guarded AND changes IS NOT NULL THEN
		RAISE NOTICE USING
			MESSAGE = format('job "%s" has %s', job, changes),
			HINT = 'What is not given stays.  To remove a duration, call shedlock_cron_unguard first.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_changes(text, boolean, interval[], interval[]) IS
'Says which durations of a guarded job were changed';

CREATE FUNCTION shedlock_cron_guard(
	job text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL)
RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT n.lock_name
	FROM _shedlock_cron_job($1, true, false) j
		 CROSS JOIN LATERAL _shedlock_guarded_call(j.command) g
		 CROSS JOIN LATERAL (
			SELECT COALESCE($2, g.lock_at_most_for) AS at_most,
				   COALESCE($3, g.lock_at_least_for) AS at_least,
				   COALESCE($4, g.once_every) AS every) w
		 CROSS JOIN LATERAL _shedlock_cron_name_is_shared(j.job_name, j.username) s(is_shared)
		 CROSS JOIN LATERAL _shedlock_cron_lock_name(g.name, true, j.jobid, j.job_name, j.username, s.is_shared) n(lock_name)
		 CROSS JOIN LATERAL _shedlock_cron_call(n.lock_name, COALESCE(g.command, j.command), w.at_most, w.at_least, w.every,
			g.on_busy, g.scheduled_at) c(call)
		 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, NULL::text, j.username, j.database) x
		 CROSS JOIN LATERAL _shedlock_cron_refuse(COALESCE(j.job_name, j.jobid::text), x.danger) d
		 CROSS JOIN LATERAL _shedlock_cron_rewrite(j.jobid, j.job_name, j.schedule, j.database, j.username, c.call) r(done)
		 CROSS JOIN LATERAL _shedlock_cron_changes(COALESCE(j.job_name, j.jobid::text), g.name IS NOT NULL,
			ARRAY[g.lock_at_most_for, g.lock_at_least_for, g.once_every], ARRAY[w.at_most, w.at_least, w.every]) t
		 CROSS JOIN LATERAL _shedlock_cron_advise(COALESCE(j.job_name, j.jobid::text), n.lock_name, w.at_most, j.database, w.every,
			_shedlock_cron_lost_tick(j.schedule, w.every, pg_catalog.clock_timestamp()), 'shedlock'::regclass) a;
END;

COMMENT ON FUNCTION shedlock_cron_guard(text, interval, interval, interval) IS
'Puts a pg_cron job under a lock, or changes the durations of a guarded one that are not NULL; gives the name of the lock';

CREATE FUNCTION shedlock_cron_unguard(job text)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT r.done
	FROM _shedlock_cron_job($1, true, false) j
		 CROSS JOIN LATERAL _shedlock_guarded_call(j.command) g
		 CROSS JOIN LATERAL _shedlock_cron_rewrite(j.jobid, j.job_name, j.schedule, j.database, j.username, g.command) r(done);
END;

COMMENT ON FUNCTION shedlock_cron_unguard(text) IS
'Gives a guarded pg_cron job its own command back; false when it was not guarded';

CREATE FUNCTION _shedlock_cron_rows(
	readable boolean,
	OUT jobid bigint,
	OUT job_name text,
	OUT schedule text,
	OUT command text,
	OUT database text,
	OUT username text,
	OUT active boolean)
RETURNS SETOF record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 40
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	IF readable THEN
		RETURN QUERY
			SELECT j.jobid, j.jobname::text, j.schedule, j.command, j.database, j.username, j.active
			FROM cron.job j;
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_rows(boolean) IS
'The pg_cron jobs that the caller may see';

-- A job is overdue when no run has started since it was last due, 90 seconds
-- ago or more, and when nothing explains that: a run that still goes on, a
-- pause, the at-least time, a tick that a run of it has used, or that it was
-- scheduled later.  A claim by shedlock_once keeps it from running, too, and is
-- shown, but explains nothing.
-- Runs that the reader may not see in shedlock_history count for that all the
-- same.  The barrier keeps functions in the reader's WHERE from seeing the rows
-- of other names.
CREATE VIEW shedlock_jobs WITH (security_barrier) AS
SELECT j.jobid,
	   j.job_name,
	   j.schedule,
	   j.database,
	   j.username,
	   j.active,
	   g.name AS lock_name,
	   g.command,
	   g.lock_at_most_for,
	   g.lock_at_least_for,
	   g.once_every,
	   h.started_at AS last_started,
	   h.ended_at AS last_ended,
	   h.outcome AS last_outcome,
	   h.message AS last_message,
	   t.tick AS tick_claimed,
	   t.claimed_by,
	   t.next_tick,
	   CASE WHEN d.shown THEN COALESCE(s.state, 'free') END AS lock_state,
	   o.overdue,
	   CASE WHEN x.problem IS NOT NULL THEN x.problem
			WHEN NOT d.here THEN
				pg_catalog.format('runs in database "%s": whether it does can be seen only there', j.database)
			WHEN NOT d.shown THEN
				pg_catalog.format('lock "%s" is for other roles, by shedlock.role_prefix: what it does is not shown', g.name)
			WHEN o.overdue IS NOT NULL THEN NULL
			WHEN d.due IS NULL THEN
				pg_catalog.format('unknown: when schedule "%s" was due last cannot be told', j.schedule)
			ELSE 'unknown: it never ran, and when it was scheduled is not known; shedlock_cron_guard notes that' END AS problem
FROM _shedlock_cron_rows(_shedlock_cron_is_readable()) j
	 CROSS JOIN LATERAL _shedlock_guarded_call(j.command) g
	 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, g.schema_name, j.username, j.database) x
	 CROSS JOIN LATERAL (
		SELECT j.database OPERATOR(pg_catalog.=) pg_catalog.current_database() AS here,
			   j.database OPERATOR(pg_catalog.=) pg_catalog.current_database() AND
			   _shedlock_may_use(g.name) AS shown,
			   _shedlock_cron_last_due(j.schedule, pg_catalog.clock_timestamp()
													OPERATOR(pg_catalog.-) '90 seconds'::interval) AS due) d
	 LEFT JOIN LATERAL (
		-- With = the planner may walk all tokens backward for the latest one,
		-- to the very end for a job that never ran.
		SELECT r.token, r.started_at
		FROM shedlock_run_log r
		WHERE r.name OPERATOR(pg_catalog.>=) g.name AND
			  r.name OPERATOR(pg_catalog.<=) g.name AND d.shown
		ORDER BY r.name DESC, r.token DESC
		LIMIT 1) l ON true
	 LEFT JOIN LATERAL (
		SELECT r.started_at, r.ended_at, r.outcome, r.message
		FROM shedlock_history r
		WHERE r.token OPERATOR(pg_catalog.=) l.token
		LIMIT 1) h ON true
	 LEFT JOIN LATERAL (
		SELECT c.tick,
			   -- Without the address of a client, which pg_stat_activity hides, too; under
			   -- shedlock.role_prefix only that of a run which shedlock_history shows.
			   CASE WHEN pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') THEN c.claimed_by::text
					WHEN NOT COALESCE(pg_catalog.current_setting('shedlock.role_prefix', true)::boolean, false) OR
						 EXISTS (SELECT FROM shedlock_history r
								 WHERE r.token OPERATOR(pg_catalog.=) c.token AND
									   r.name OPERATOR(pg_catalog.=) c.name)
					THEN pg_catalog.regexp_replace(c.claimed_by::text,
						'@[[:xdigit:]]*[.:][[:xdigit:].:]*(%[^ ]+)?( #[0-9]+)?$', E'\\2') END AS claimed_by,
			   EXISTS (SELECT FROM shedlock_run_log r
					   WHERE r.token OPERATOR(pg_catalog.=) c.token AND
							 r.name OPERATOR(pg_catalog.=) c.name) AS by_run,
			   -- ticks are counted in UTC
			   pg_catalog.timezone('UTC', pg_catalog.timezone('UTC', c.tick)
										  OPERATOR(pg_catalog.+) g.once_every) AS next_tick
		FROM shedlock_tick c
		WHERE c.name OPERATOR(pg_catalog.=) g.name AND d.shown) t ON true
	 LEFT JOIN shedlock_locks s ON s.name OPERATOR(pg_catalog.=) g.name AND d.shown
	 CROSS JOIN LATERAL (
		SELECT CASE WHEN NOT j.active THEN false
					WHEN s.state OPERATOR(pg_catalog.=) 'held' AND s.kind OPERATOR(pg_catalog.=) 'run' THEN false
					WHEN s.state OPERATOR(pg_catalog.=) 'paused' OR s.state OPERATOR(pg_catalog.=) 'kept' THEN false
					WHEN t.by_run AND d.due OPERATOR(pg_catalog.+)
						 LEAST(g.once_every OPERATOR(pg_catalog./) 4::double precision, '30 seconds'::interval)
						 OPERATOR(pg_catalog.<) t.next_tick THEN false
					WHEN d.shown THEN GREATEST(l.started_at, g.scheduled_at) OPERATOR(pg_catalog.<) d.due
			   END AS overdue) o
WHERE g.name IS NOT NULL;

COMMENT ON VIEW shedlock_jobs IS
'The guarded pg_cron jobs of the reader, of all roles for superusers; how they run, and whether they do';
COMMENT ON COLUMN shedlock_jobs.jobid IS 'Number of the job in cron.job';
COMMENT ON COLUMN shedlock_jobs.job_name IS 'Name of the job; NULL when it has none';
COMMENT ON COLUMN shedlock_jobs.schedule IS 'Schedule of the job';
COMMENT ON COLUMN shedlock_jobs.database IS
'Database that the job runs in; the columns from last_started on are NULL unless it is this one';
COMMENT ON COLUMN shedlock_jobs.username IS 'Role that the job runs as';
COMMENT ON COLUMN shedlock_jobs.active IS 'Whether pg_cron starts the job';
COMMENT ON COLUMN shedlock_jobs.lock_name IS 'Name of the lock';
COMMENT ON COLUMN shedlock_jobs.command IS 'The guarded command, without the CALL around it';
COMMENT ON COLUMN shedlock_jobs.lock_at_most_for IS 'A run that takes longer is cancelled; NULL: no limit';
COMMENT ON COLUMN shedlock_jobs.lock_at_least_for IS 'The lock is held that long at least';
COMMENT ON COLUMN shedlock_jobs.once_every IS 'The job runs once in each period of this length';
COMMENT ON COLUMN shedlock_jobs.last_started IS
'When the latest run under this lock began, whoever started it; NULL when the reader may not see it in shedlock_history';
COMMENT ON COLUMN shedlock_jobs.last_ended IS 'When it ended';
COMMENT ON COLUMN shedlock_jobs.last_outcome IS 'How it ended, as in shedlock_history';
COMMENT ON COLUMN shedlock_jobs.last_message IS 'Message of its error';
COMMENT ON COLUMN shedlock_jobs.tick_claimed IS
'The latest tick that was claimed; NULL, as are claimed_by, next_tick, lock_state and overdue, for a name that shedlock.role_prefix keeps from the reader';
COMMENT ON COLUMN shedlock_jobs.claimed_by IS
'Who claimed it: a run of the job, or a caller of shedlock_once or shedlock_once_every';
COMMENT ON COLUMN shedlock_jobs.next_tick IS 'The next tick that can be claimed';
COMMENT ON COLUMN shedlock_jobs.lock_state IS 'State of the lock, as in shedlock_locks, or free';
COMMENT ON COLUMN shedlock_jobs.overdue IS
'The job was due 90 seconds ago or more, has not started since, and nothing explains why; counted from when it was scheduled if no run is later; NULL when that cannot be told: see problem';
COMMENT ON COLUMN shedlock_jobs.problem IS
'Which role could have the job call something else, that the job calls another schema or there is another shedlock_run, or why overdue cannot be told; NULL: no problem';

--
-- Privileges
--

-- ALTER DEFAULT PRIVILEGES may have given what is made here to others, or have
-- kept it from PUBLIC.  What follows starts from the server's own defaults.
DO $do$
DECLARE
	path CONSTANT text := pg_catalog.current_setting('search_path');
	member record;
	grantee text;
BEGIN
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	FOR member IN
		SELECT o.object, o.acl, quote_ident(pg_get_userbyid(o.owner)) AS owner_name
		FROM pg_extension e
			 JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
			 JOIN (
				SELECT 'pg_class'::regclass AS class, c.oid, c.relacl AS acl, c.relowner AS owner,
					   CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || c.oid::regclass AS object
				FROM pg_class c
				UNION ALL
				SELECT 'pg_proc'::regclass, p.oid, p.proacl, p.proowner, 'ROUTINE ' || p.oid::regprocedure
				FROM pg_proc p) o ON d.classid = o.class AND d.objid = o.oid
		WHERE e.extname = 'shedlock' AND o.acl IS NOT NULL
	LOOP
		FOR grantee IN
			SELECT DISTINCT CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(x.grantee)) END
			FROM aclexplode(member.acl) x
		LOOP
			EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', member.object, grantee);
		END LOOP;
		EXECUTE format('GRANT ALL ON %s TO %s', member.object, member.owner_name);
		IF member.object LIKE 'ROUTINE %' THEN
			EXECUTE format('GRANT EXECUTE ON %s TO PUBLIC', member.object);
		END IF;
	END LOOP;
	PERFORM set_config('search_path', path, true);
END
$do$;

-- To fire it takes no privilege.
REVOKE EXECUTE ON FUNCTION shedlock_row_trigger() FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_force_release(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_cancel(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_pause(text, timestamptz, text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_resume(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_again(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_purge(interval, boolean) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_adopt(regclass, name, name, name, name, boolean) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_cron_schedule(text, text, text, interval, interval, interval, text, text, boolean) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_cron_unschedule(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_cron_guard(text, interval, interval, interval) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_cron_unguard(text) FROM PUBLIC;

GRANT SELECT ON shedlock_locks, shedlock_history, shedlock_jobs TO PUBLIC;
