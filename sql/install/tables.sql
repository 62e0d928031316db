/* Tables */

CREATE SEQUENCE shedlock_token_seq AS bigint CACHE 1 NO CYCLE;

COMMENT ON SEQUENCE shedlock_token_seq IS
'Fencing tokens; all locks of the database share one number space';

-- name, lock_until, locked_at and locked_by are those of ShedLock's documented
-- table: the UTC wall clock as timestamp without time zone.  src/table/table.h has the
-- order of the columns.  An update writes to the WAL everything from the first
-- column that it changes to the last one, so the columns that a release changes
-- come first, then those that an acquire changes.
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
'The durable half of every lock: one row for each name that was ever acquired; shared with ShedLock''s Java clients';
COMMENT ON COLUMN shedlock.name IS 'Name of the lock';
COMMENT ON COLUMN shedlock.kind IS 'lease, session or run; NULL after the owner has released the lock';
COMMENT ON COLUMN shedlock.lock_until IS 'End of the lock, UTC; a lease expires at this time';
COMMENT ON COLUMN shedlock.locked_at IS 'When the lock was acquired, UTC';
COMMENT ON COLUMN shedlock.locked_by IS 'Name of the holder, for people to read';
COMMENT ON COLUMN shedlock.token IS 'Fencing token of the last acquisition';
COMMENT ON COLUMN shedlock.backend_start IS 'Start time of the server process that acquired the lock';
COMMENT ON COLUMN shedlock.pid IS 'Process ID of the server process that acquired the lock';
COMMENT ON COLUMN shedlock.locked_role IS 'Role that acquired the lock';
COMMENT ON COLUMN shedlock.timeline IS 'WAL timeline on which the lock was acquired';
COMMENT ON COLUMN shedlock.keep_until IS 'The lock is not free before this time, UTC: the end of lock_at_least_for';
COMMENT ON COLUMN shedlock.lock_at_most_for IS 'Longest time that the holder asked for; NULL for a session lock or run without a limit';
COMMENT ON COLUMN shedlock.paused_until IS 'The lock cannot be acquired before this time';
COMMENT ON COLUMN shedlock.paused_by IS 'Role that paused the lock';
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

COMMENT ON TABLE shedlock_tick IS 'The latest tick that was claimed, for each name';
COMMENT ON COLUMN shedlock_tick.name IS 'Name of the job';
COMMENT ON COLUMN shedlock_tick.tick IS 'The latest tick that was claimed';
COMMENT ON COLUMN shedlock_tick.claimed_at IS 'When the tick was claimed';
COMMENT ON COLUMN shedlock_tick.claimed_by IS 'Name of the caller that claimed the tick, for people to read';
COMMENT ON COLUMN shedlock_tick.token IS 'Token of the run that claimed the tick; NULL if shedlock_once or shedlock_once_every claimed it';
COMMENT ON COLUMN shedlock_tick.period IS 'Period of the schedule; NULL if only shedlock_once has claimed ticks';
COMMENT ON COLUMN shedlock_tick.again IS 'Whether the next caller can claim the tick once more';

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

COMMENT ON TABLE shedlock_run_log IS 'Runs of guarded commands; the view shedlock_history shows them';
COMMENT ON COLUMN shedlock_run_log.token IS 'Fencing token of the run';
COMMENT ON COLUMN shedlock_run_log.name IS 'Name of the lock';
COMMENT ON COLUMN shedlock_run_log.command IS 'The guarded command';
COMMENT ON COLUMN shedlock_run_log.tick IS 'Tick that the run is for';
COMMENT ON COLUMN shedlock_run_log.started_at IS 'When the lock was acquired';
COMMENT ON COLUMN shedlock_run_log.ended_at IS 'When the outcome was recorded';
COMMENT ON COLUMN shedlock_run_log.outcome IS 'running, succeeded, failed, timed out, cancelled or lost';
COMMENT ON COLUMN shedlock_run_log.sqlstate IS 'SQLSTATE of the error';
COMMENT ON COLUMN shedlock_run_log.message IS 'Message of the error';
COMMENT ON COLUMN shedlock_run_log.run_role IS 'Role that ran the command';
COMMENT ON COLUMN shedlock_run_log.locked_by IS 'Name of the holder, for people to read';
COMMENT ON COLUMN shedlock_run_log.pid IS 'Process ID of the server process that ran the command';
COMMENT ON COLUMN shedlock_run_log.warning IS 'Last WARNING of the command that the server logged';

SELECT pg_catalog.pg_extension_config_dump('shedlock_token_seq', '');
-- A row that the trigger refuses would fail the whole restore.  It refuses leases
-- without a token, which the protocol does not write, unless they hold no time
-- and do not lie ahead.  Token 0 and paused_until -infinity count as NULL.
SELECT pg_catalog.pg_extension_config_dump('shedlock',
	'WHERE token <> 0 OR kind IS NULL OR kind <> ''lease'' OR paused_until > ''-infinity'' OR lock_until <= locked_at AND lock_until <= timezone(''UTC'', now())');
SELECT pg_catalog.pg_extension_config_dump('shedlock_tick', '');
SELECT pg_catalog.pg_extension_config_dump('shedlock_run_log', '');
