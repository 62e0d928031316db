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

--
-- Relations
--

CREATE SEQUENCE shedlock_token_seq AS bigint CACHE 1 NO CYCLE;

COMMENT ON SEQUENCE shedlock_token_seq IS
'Fencing tokens; one number space for all locks of the database';

-- The first four columns are those of ShedLock's documented table: UTC wall
-- clock in timestamp without time zone.  The order of the columns is known to
-- src/row.c.
CREATE TABLE shedlock (
	name varchar(255) COLLATE "C" NOT NULL,
	lock_until timestamp NOT NULL,
	locked_at timestamp NOT NULL,
	locked_by varchar(255) NOT NULL,
	token bigint,
	kind text NOT NULL DEFAULT 'lease',
	locked_role oid,
	keep_until timestamp,
	lock_at_most_for interval,
	pid integer,
	backend_start timestamptz,
	timeline integer,
	paused_until timestamptz,
	paused_by text,
	pause_reason text,
	CONSTRAINT shedlock_pkey PRIMARY KEY (name),
	CONSTRAINT shedlock_kind_check
		CHECK (kind OPERATOR(pg_catalog.=) 'lease' OR kind OPERATOR(pg_catalog.=) 'session' OR
			   kind OPERATOR(pg_catalog.=) 'run' OR kind OPERATOR(pg_catalog.=) 'released')
) WITH (fillfactor = 50);

COMMENT ON TABLE shedlock IS
'The durable half of each lock: one row per name that was ever taken; shared with ShedLock''s Java clients';
COMMENT ON COLUMN shedlock.name IS 'Name of the lock';
COMMENT ON COLUMN shedlock.lock_until IS 'End of the lock, UTC; a lease is over when this has passed';
COMMENT ON COLUMN shedlock.locked_at IS 'When the lock was taken, UTC';
COMMENT ON COLUMN shedlock.locked_by IS 'Who took the lock, for people to read';
COMMENT ON COLUMN shedlock.token IS 'Fencing token of the last acquisition';
COMMENT ON COLUMN shedlock.kind IS 'lease, session, run, or released: given back by its owner';
COMMENT ON COLUMN shedlock.locked_role IS 'Role that took the lock';
COMMENT ON COLUMN shedlock.keep_until IS 'End of the time that the lock is held at least, UTC';
COMMENT ON COLUMN shedlock.lock_at_most_for IS 'Longest time asked for at acquire; NULL for a session lock or run without limit';
COMMENT ON COLUMN shedlock.pid IS 'Process ID of the server process that took the lock';
COMMENT ON COLUMN shedlock.backend_start IS 'When that server process was started';
COMMENT ON COLUMN shedlock.timeline IS 'WAL timeline that the lock was taken on';
COMMENT ON COLUMN shedlock.paused_until IS 'Nobody gets the lock before this time';
COMMENT ON COLUMN shedlock.paused_by IS 'Who paused the lock';
COMMENT ON COLUMN shedlock.pause_reason IS 'Why the lock was paused';

CREATE TABLE shedlock_tick (
	name varchar(255) COLLATE "C" NOT NULL,
	tick timestamptz NOT NULL,
	claimed_at timestamptz NOT NULL,
	claimed_by varchar(255) NOT NULL,
	token bigint,
	CONSTRAINT shedlock_tick_pkey PRIMARY KEY (name)
) WITH (fillfactor = 50);

COMMENT ON TABLE shedlock_tick IS 'The latest tick that was claimed for each name';
COMMENT ON COLUMN shedlock_tick.name IS 'Name of the job';
COMMENT ON COLUMN shedlock_tick.tick IS 'The latest scheduled instant that was claimed';
COMMENT ON COLUMN shedlock_tick.claimed_at IS 'When it was claimed';
COMMENT ON COLUMN shedlock_tick.claimed_by IS 'Who claimed it, for people to read';
COMMENT ON COLUMN shedlock_tick.token IS 'Token of the run that claimed it; NULL when shedlock_once did';

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

SELECT pg_catalog.pg_extension_config_dump('shedlock_token_seq', '');
SELECT pg_catalog.pg_extension_config_dump('shedlock', '');
SELECT pg_catalog.pg_extension_config_dump('shedlock_tick', '');
SELECT pg_catalog.pg_extension_config_dump('shedlock_run_log', '');

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
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	token bigint DEFAULT NULL)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_extend';

COMMENT ON FUNCTION shedlock_extend(text, interval, interval, bigint) IS
'Sets the end of a held lock anew, counted from now; false when it was no longer held';

CREATE FUNCTION shedlock_assert(name text, token bigint DEFAULT NULL)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_assert';

COMMENT ON FUNCTION shedlock_assert(text, bigint) IS
'Raises an error unless the lock is held, and holds everybody else off until this transaction ends';

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

CREATE FUNCTION shedlock_purge(older_than interval)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_purge';

COMMENT ON FUNCTION shedlock_purge(interval) IS
'Forgets free locks and ticks that were not used for that long, at most 1,000 a call; gives their number';

REVOKE EXECUTE ON FUNCTION shedlock_force_release(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_cancel(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_pause(text, timestamptz, text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_resume(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_purge(interval) FROM PUBLIC;

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
	   pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) s.locked_at AS held_for,
	   CASE WHEN pg_catalog.isfinite(s.lock_until)
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
	   s.pause_reason
FROM shedlock_status() s
	 LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) s.pid;

COMMENT ON VIEW shedlock_locks IS 'The locks that are not free, and who holds them';
COMMENT ON COLUMN shedlock_locks.name IS 'Name of the lock';
COMMENT ON COLUMN shedlock_locks.state IS
'held; uncommitted: taken by an open transaction; kept: released or dead, its at-least time runs; lost: its holder is on another timeline; paused';
COMMENT ON COLUMN shedlock_locks.kind IS 'lease, session, run, or released';
COMMENT ON COLUMN shedlock_locks.held_for IS 'Time since the lock was taken';
COMMENT ON COLUMN shedlock_locks.remaining IS 'Time until the lock is over, unless it is extended or released';
COMMENT ON COLUMN shedlock_locks.lock_until IS 'When the lock is over, unless it is extended or released';
COMMENT ON COLUMN shedlock_locks.locked_at IS 'When the lock was taken';
COMMENT ON COLUMN shedlock_locks.locked_by IS 'Who took the lock';
COMMENT ON COLUMN shedlock_locks.token IS 'Fencing token';
COMMENT ON COLUMN shedlock_locks.waiters IS 'Number of sessions that wait for the lock';
COMMENT ON COLUMN shedlock_locks.pid IS 'Server process that holds the advisory half; NULL when none does';
COMMENT ON COLUMN shedlock_locks.application_name IS 'application_name of that process';
COMMENT ON COLUMN shedlock_locks.query IS 'Statement of that process, as pg_stat_activity shows it';
COMMENT ON COLUMN shedlock_locks.paused_until IS 'Nobody gets the lock before this time';
COMMENT ON COLUMN shedlock_locks.paused_by IS 'Who paused the lock';
COMMENT ON COLUMN shedlock_locks.pause_reason IS 'Why the lock was paused';

-- A run is lost in the moment that nothing holds its lock any more; the log
-- says so only after the next acquire.
CREATE VIEW shedlock_history AS
SELECT r.name,
	   r.token,
	   CASE WHEN r.outcome OPERATOR(pg_catalog.<>) 'running' THEN r.outcome
			WHEN pg_catalog.pg_is_in_recovery() THEN 'unknown'
			WHEN s.pid IS NULL THEN 'lost'
			ELSE 'running' END AS outcome,
	   r.started_at,
	   r.ended_at,
	   r.ended_at OPERATOR(pg_catalog.-) r.started_at AS duration,
	   r.tick,
	   r.command,
	   r.sqlstate,
	   r.message,
	   pg_catalog.pg_get_userbyid(r.run_role) AS run_role,
	   r.locked_by,
	   r.pid
FROM shedlock_run_log r
	 LEFT JOIN shedlock_status() s
	 ON r.outcome OPERATOR(pg_catalog.=) 'running' AND s.token OPERATOR(pg_catalog.=) r.token
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

GRANT SELECT ON shedlock_locks, shedlock_history TO PUBLIC;

--
-- pg_cron
--
