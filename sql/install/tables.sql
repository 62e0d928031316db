/* The relations, and what pg_dump keeps of them */

CREATE SEQUENCE shedlock_token_seq AS bigint CACHE 1 NO CYCLE;

COMMENT ON SEQUENCE shedlock_token_seq IS
'Fencing tokens; one number space for all locks of the database';

-- name, lock_until, locked_at and locked_by are those of ShedLock's documented
-- table: UTC wall clock in timestamp without time zone.  The order of the
-- columns is known to src/table/row.c.  An update writes to the log what lies between
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
