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
	origin integer,
	keep_until timestamp,
	lock_at_most_for interval,
	paused_until timestamptz,
	paused_by text,
	pause_reason text,
	CONSTRAINT shedlock_pkey PRIMARY KEY (name),
	CONSTRAINT shedlock_name_check CHECK (name OPERATOR(pg_catalog.<>) ''),
	CONSTRAINT shedlock_kind_check
		CHECK (kind OPERATOR(pg_catalog.=) 'lease' OR kind OPERATOR(pg_catalog.=) 'session' OR
			   kind OPERATOR(pg_catalog.=) 'run' OR kind OPERATOR(pg_catalog.=) 'leased run')
) WITH (fillfactor = 70);

COMMENT ON TABLE shedlock IS
'The durable half of every lock: one row for each name that was ever acquired; shared with ShedLock''s Java clients';
COMMENT ON COLUMN shedlock.name IS 'Name of the lock';
COMMENT ON COLUMN shedlock.kind IS 'lease, session, run or leased run; NULL after the owner has released the lock';
COMMENT ON COLUMN shedlock.lock_until IS 'End of the lock, UTC; a lease expires at this time, the holder of a session lock or run is ended a little sooner';
COMMENT ON COLUMN shedlock.locked_at IS 'When the lock was acquired, UTC';
COMMENT ON COLUMN shedlock.locked_by IS 'Name of the holder, for people to read';
COMMENT ON COLUMN shedlock.token IS 'Fencing token of the last acquisition';
COMMENT ON COLUMN shedlock.backend_start IS 'Start time of the server process that acquired the lock';
COMMENT ON COLUMN shedlock.pid IS 'Process ID of the server process that acquired the lock';
COMMENT ON COLUMN shedlock.locked_role IS 'Role that acquired the lock';
COMMENT ON COLUMN shedlock.origin IS 'Where the lock was acquired: WAL timeline XOR a hash of the cluster and database';
COMMENT ON COLUMN shedlock.keep_until IS 'The lock is not free before this time, UTC: the end of lock_at_least_for';
COMMENT ON COLUMN shedlock.lock_at_most_for IS 'Longest time that the holder asked for; NULL for a session lock or run without a limit';
COMMENT ON COLUMN shedlock.paused_until IS 'The lock cannot be acquired before this time';
COMMENT ON COLUMN shedlock.paused_by IS 'Role that paused the lock';
COMMENT ON COLUMN shedlock.pause_reason IS 'Why the lock was paused';

CREATE TABLE _shedlock_job (
	name varchar(255) COLLATE "C" NOT NULL,
	schedule text NOT NULL,
	time_zone text NOT NULL,
	attempts integer NOT NULL,
	backoff interval NOT NULL,
	catch_up text NOT NULL,
	max_late interval,
	overdue_after interval NOT NULL,
	slow_after interval,
	lock_at_most_for interval,
	lock_at_least_for interval,
	description text,
	since timestamptz NOT NULL,
	carried timestamptz,
	spent_token bigint,
	created_at timestamptz NOT NULL,
	created_by text NOT NULL,
	declared_at timestamptz NOT NULL,
	declared_by text NOT NULL,
	turns integer NOT NULL,
	CONSTRAINT _shedlock_job_pkey PRIMARY KEY (name)
) WITH (fillfactor = 70);

COMMENT ON TABLE _shedlock_job IS 'The jobs that shedlock_job has declared';
COMMENT ON COLUMN _shedlock_job.name IS 'Name of the job';
COMMENT ON COLUMN _shedlock_job.schedule IS 'Schedule of the job, as it was given';
COMMENT ON COLUMN _shedlock_job.time_zone IS 'Time zone of the schedule';
COMMENT ON COLUMN _shedlock_job.attempts IS 'Number of runs that a tick can have';
COMMENT ON COLUMN _shedlock_job.backoff IS 'Time from the end of a failed first attempt to the second; each later one doubles it';
COMMENT ON COLUMN _shedlock_job.catch_up IS 'What becomes of missed ticks: latest or all';
COMMENT ON COLUMN _shedlock_job.max_late IS 'No attempt begins later than that after its tick';
COMMENT ON COLUMN _shedlock_job.overdue_after IS 'The job is overdue if a run that is due has not begun for that long';
COMMENT ON COLUMN _shedlock_job.slow_after IS 'A run that takes longer is slow';
COMMENT ON COLUMN _shedlock_job.lock_at_most_for IS 'Longest time that a run may take';
COMMENT ON COLUMN _shedlock_job.lock_at_least_for IS 'The lock is held for at least this long';
COMMENT ON COLUMN _shedlock_job.description IS 'What the job is, and whose, for people to read';
COMMENT ON COLUMN _shedlock_job.since IS 'Ticks count after this';
COMMENT ON COLUMN _shedlock_job.carried IS 'A tick of the schedule before this one that was due, and counts as long as no later one has';
COMMENT ON COLUMN _shedlock_job.spent_token IS 'Token of a run before the job was created, whose tick has no attempt left';
COMMENT ON COLUMN _shedlock_job.created_at IS 'When the job was declared first';
COMMENT ON COLUMN _shedlock_job.created_by IS 'Role that declared it first, without whose privileges nobody changes it';
COMMENT ON COLUMN _shedlock_job.declared_at IS 'When the declaration changed last';
COMMENT ON COLUMN _shedlock_job.declared_by IS 'Role that changed it last';
COMMENT ON COLUMN _shedlock_job.turns IS 'Number of changes of which each came within an hour of the one before';

-- A declaration and the state of its ticks are two rows, so that an open transaction
-- that declares a job holds up no run of it.
CREATE TABLE _shedlock_tick (
	name varchar(255) COLLATE "C" NOT NULL,
	tick timestamptz NOT NULL,
	claimed_at timestamptz NOT NULL,
	claimed_by varchar(255) NOT NULL,
	token bigint,
	attempt integer NOT NULL DEFAULT 0,
	done boolean NOT NULL DEFAULT true,
	again_at timestamptz,
	retry_at timestamptz,
	skipped timestamptz,
	gave_up_at timestamptz,
	period interval,
	CONSTRAINT _shedlock_tick_pkey PRIMARY KEY (name)
) WITH (fillfactor = 50);

COMMENT ON TABLE _shedlock_tick IS 'The latest tick of each name that was claimed or run, and what becomes of it';
COMMENT ON COLUMN _shedlock_tick.name IS 'Name of the job';
COMMENT ON COLUMN _shedlock_tick.tick IS 'The latest tick that was claimed or run; -infinity if none was';
COMMENT ON COLUMN _shedlock_tick.claimed_at IS 'When the tick was claimed, or its last attempt began';
COMMENT ON COLUMN _shedlock_tick.claimed_by IS 'Name of the caller that claimed the tick, for people to read';
COMMENT ON COLUMN _shedlock_tick.token IS 'Token of the last run of the tick; NULL if shedlock_once or shedlock_once_every claimed it';
COMMENT ON COLUMN _shedlock_tick.attempt IS 'Number of runs of the tick that have begun';
COMMENT ON COLUMN _shedlock_tick.done IS 'Whether the tick is used up, whatever attempts are left';
COMMENT ON COLUMN _shedlock_tick.again_at IS 'When shedlock_again allowed the next caller to claim or run the tick once more';
COMMENT ON COLUMN _shedlock_tick.retry_at IS 'The next attempt does not begin before this time; infinity after the last one has failed';
COMMENT ON COLUMN _shedlock_tick.skipped IS 'A tick that shedlock_skip has used up';
COMMENT ON COLUMN _shedlock_tick.gave_up_at IS 'When a tick had no attempt left; NULL after a later one succeeded or was skipped, and after shedlock_again';
COMMENT ON COLUMN _shedlock_tick.period IS 'Period of shedlock_once_every, if that claimed the tick';

CREATE TABLE _shedlock_timeline (
	timeline text COLLATE "C" NOT NULL,
	ended_at timestamptz NOT NULL,
	CONSTRAINT _shedlock_timeline_pkey PRIMARY KEY (timeline)
);

COMMENT ON TABLE _shedlock_timeline IS 'WAL timelines that provably ended with a shutdown checkpoint: no holder of their session locks and runs is left';
COMMENT ON COLUMN _shedlock_timeline.timeline IS 'System identifier of the cluster, a slash, and the number of the timeline';
COMMENT ON COLUMN _shedlock_timeline.ended_at IS 'Time of the shutdown checkpoint, rounded down to a second: what began later may be alive';

CREATE TABLE _shedlock_history (
	token bigint NOT NULL,
	name varchar(255) COLLATE "C" NOT NULL,
	command text,
	tick timestamptz,
	attempt integer,
	started_at timestamptz NOT NULL,
	ended_at timestamptz,
	outcome text NOT NULL,
	sqlstate text,
	message text,
	locked_role oid NOT NULL,
	locked_by varchar(255) NOT NULL,
	pid integer NOT NULL,
	warning text,
	exit_code integer,
	gave_up boolean NOT NULL DEFAULT false,
	request text,
	limit_at timestamptz,
	CONSTRAINT _shedlock_history_pkey PRIMARY KEY (token)
) WITH (fillfactor = 70);

CREATE INDEX _shedlock_history_name_idx ON _shedlock_history (name, token);

-- Not BRIN: once old runs are pruned and their pages used again, a range of pages has
-- runs of all times, and each insert writes to it as to a B-tree.
CREATE INDEX _shedlock_history_started_at_idx ON _shedlock_history (started_at);
CREATE INDEX _shedlock_history_request_idx ON _shedlock_history (request)
	WHERE request IS NOT NULL;

-- A job that ran often, but not lately, would be looked for among the last runs of all:
-- the planner does not know when a name ran.  Without statistics it uses the index.
ALTER TABLE _shedlock_history ALTER COLUMN name SET STATISTICS 0;

COMMENT ON TABLE _shedlock_history IS 'Runs; the view shedlock_history shows them';
COMMENT ON COLUMN _shedlock_history.token IS 'Fencing token of the run';
COMMENT ON COLUMN _shedlock_history.name IS 'Name of the job and of its lock';
COMMENT ON COLUMN _shedlock_history.command IS 'The guarded command, or the description of work outside the database';
COMMENT ON COLUMN _shedlock_history.tick IS 'Tick that the run is for';
COMMENT ON COLUMN _shedlock_history.attempt IS 'Number of the attempt among the runs of its tick';
COMMENT ON COLUMN _shedlock_history.started_at IS 'When the lock was acquired';
COMMENT ON COLUMN _shedlock_history.ended_at IS 'When the outcome was recorded';
COMMENT ON COLUMN _shedlock_history.outcome IS 'running, succeeded, failed, timed out, cancelled, returned or lost; or skipped, of a tick without a run';
COMMENT ON COLUMN _shedlock_history.sqlstate IS 'SQLSTATE of the error';
COMMENT ON COLUMN _shedlock_history.message IS 'Message of the error, or what the caller of shedlock_run_end says';
COMMENT ON COLUMN _shedlock_history.locked_role IS 'Role that began the run';
COMMENT ON COLUMN _shedlock_history.locked_by IS 'Name of the holder, for people to read';
COMMENT ON COLUMN _shedlock_history.pid IS 'Process ID of the server process that began the run';
COMMENT ON COLUMN _shedlock_history.warning IS 'Last WARNING of the command that the server logged';
COMMENT ON COLUMN _shedlock_history.exit_code IS 'Exit code of a program, as the caller of shedlock_run_end says';
COMMENT ON COLUMN _shedlock_history.gave_up IS 'Whether no further attempt follows, although none succeeded; a run that is recorded as running may succeed yet';
COMMENT ON COLUMN _shedlock_history.request IS 'Text by which the caller of shedlock_run_begin recognizes the run';
COMMENT ON COLUMN _shedlock_history.limit_at IS 'When the lease of a run outside the database ends at the latest, by the lock_at_most_for of its job';

CREATE TABLE _shedlock_stats (
	name varchar(255) COLLATE "C" NOT NULL,
	runs_succeeded bigint NOT NULL,
	runs_failed bigint NOT NULL,
	runs_timed_out bigint NOT NULL,
	runs_cancelled bigint NOT NULL,
	runs_lost bigint NOT NULL,
	gave_up bigint NOT NULL,
	run_seconds double precision NOT NULL,
	last_success_at timestamptz,
	last_failure_at timestamptz,
	stats_since timestamptz NOT NULL,
	CONSTRAINT _shedlock_stats_pkey PRIMARY KEY (name)
) WITH (fillfactor = 70);

COMMENT ON TABLE _shedlock_stats IS 'Counters of the runs of each name; the view shedlock_stats shows them';
COMMENT ON COLUMN _shedlock_stats.name IS 'Name of the job';
COMMENT ON COLUMN _shedlock_stats.runs_succeeded IS 'Number of runs that succeeded';
COMMENT ON COLUMN _shedlock_stats.runs_failed IS 'Number of runs that failed';
COMMENT ON COLUMN _shedlock_stats.runs_timed_out IS 'Number of runs that timed out';
COMMENT ON COLUMN _shedlock_stats.runs_cancelled IS 'Number of runs that were cancelled';
COMMENT ON COLUMN _shedlock_stats.runs_lost IS 'Number of runs that were lost';
COMMENT ON COLUMN _shedlock_stats.gave_up IS 'Number of ticks that have no attempt left, although none succeeded; one that fails again after shedlock_again counts again';
COMMENT ON COLUMN _shedlock_stats.run_seconds IS 'Sum of the durations of all these runs, but for the lost ones';
COMMENT ON COLUMN _shedlock_stats.last_success_at IS 'When a run last succeeded';
COMMENT ON COLUMN _shedlock_stats.last_failure_at IS 'When a run last failed, timed out or was found to be lost';
COMMENT ON COLUMN _shedlock_stats.stats_since IS 'When the counters began';

-- A row is there from the first sight of a problem until its end was told.
CREATE TABLE _shedlock_told (
	name text COLLATE "C" NOT NULL,
	problem text COLLATE "C" NOT NULL,
	since timestamptz NOT NULL,
	message text NOT NULL,
	description text,
	begin_told boolean NOT NULL DEFAULT false,
	over_at timestamptz,
	CONSTRAINT _shedlock_told_pkey PRIMARY KEY (name, problem)
) WITH (fillfactor = 70);

COMMENT ON TABLE _shedlock_told IS 'Problems that shedlock_news has seen, and whose end was not told yet';
COMMENT ON COLUMN _shedlock_told.name IS 'Name of the job';
COMMENT ON COLUMN _shedlock_told.problem IS 'What is wrong, as in shedlock_problems';
COMMENT ON COLUMN _shedlock_told.since IS 'When the problem began';
COMMENT ON COLUMN _shedlock_told.message IS 'What is wrong, for people to read';
COMMENT ON COLUMN _shedlock_told.description IS 'What the job is, and whose';
COMMENT ON COLUMN _shedlock_told.begin_told IS 'Whether shedlock_tell was told that somebody heard of the problem';
COMMENT ON COLUMN _shedlock_told.over_at IS 'When shedlock_news saw that the problem is over';

SELECT pg_catalog.pg_extension_config_dump('shedlock_token_seq', '');
-- A row that the trigger refuses would fail the whole restore.  It refuses leases
-- without a token, which the protocol does not write, unless they hold no time
-- and do not lie ahead.  Token 0 and paused_until -infinity count as NULL.
SELECT pg_catalog.pg_extension_config_dump('shedlock',
	'WHERE token <> 0 OR kind IS NULL OR kind <> ''lease'' OR paused_until > ''-infinity'' OR lock_until <= locked_at AND lock_until <= timezone(''UTC'', now())');
SELECT pg_catalog.pg_extension_config_dump('_shedlock_job', '');
SELECT pg_catalog.pg_extension_config_dump('_shedlock_tick', '');
SELECT pg_catalog.pg_extension_config_dump('_shedlock_history', '');
SELECT pg_catalog.pg_extension_config_dump('_shedlock_stats', '');
SELECT pg_catalog.pg_extension_config_dump('_shedlock_told', '');
