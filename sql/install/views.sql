/* Views */

-- Both halves of every lock that is not free.  PUBLIC may call it, because the functions of
-- a view run with the privileges of the role that reads the view.
CREATE FUNCTION _shedlock_status(
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
	OUT paused boolean,
	OUT paused_until timestamptz,
	OUT paused_by text,
	OUT pause_reason text)
RETURNS SETOF record LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_status() IS
'Returns the locks that are not free; the view shedlock_locks shows them';

-- No column is infinite, or in a year that has not four digits: many drivers cannot read
-- that, and would fail at the whole answer because of one row.
CREATE VIEW shedlock_locks AS
SELECT s.name,
	   s.state,
	   s.kind,
	   CASE WHEN s.state OPERATOR(pg_catalog.<>) ALL (ARRAY['paused', 'kept', 'in use'])
			THEN pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) s.locked_at END AS held_for,
	   CASE WHEN s.lock_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
			THEN s.lock_until OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp() END AS remaining,
	   s.lock_until,
	   s.locked_at,
	   s.locked_by,
	   s.token,
	   s.waiters,
	   s.pid,
	   a.application_name,
	   a.query,
	   s.paused,
	   s.paused_until,
	   s.paused_by,
	   s.pause_reason,
	   pg_catalog.pg_get_userbyid(s.locked_role) AS locked_role
FROM _shedlock_status() s
	 LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) s.pid;

COMMENT ON VIEW shedlock_locks IS 'The locks that are not free, and their holders';
COMMENT ON COLUMN shedlock_locks.name IS 'Name of the lock';
COMMENT ON COLUMN shedlock_locks.state IS
'held; uncommitted: acquired by an open transaction; kept: released, or its holder died, before the end of lock_at_least_for; lost: acquired before a failover, or in another cluster, and counts as a lease; paused; in use: free but for an open transaction that keeps others off; unknown: cannot be told on a standby';
COMMENT ON COLUMN shedlock_locks.kind IS 'lease, session, run or leased run, as last acquired; released: the holder released the lock, or it was never acquired';
COMMENT ON COLUMN shedlock_locks.held_for IS 'Time since the lock was acquired; NULL in the states paused, kept and in use, which have no holder';
COMMENT ON COLUMN shedlock_locks.remaining IS 'Time until lock_until; NULL if that is NULL or in the past';
COMMENT ON COLUMN shedlock_locks.lock_until IS 'When the lock ends unless it is extended or released; its server ends the holder of a session lock or run a little sooner; NULL: when its session ends';
COMMENT ON COLUMN shedlock_locks.locked_at IS 'When the lock was last acquired';
COMMENT ON COLUMN shedlock_locks.locked_by IS
'Name of the holder; without a client address that pg_stat_activity would hide from the reader';
COMMENT ON COLUMN shedlock_locks.token IS 'Fencing token';
COMMENT ON COLUMN shedlock_locks.waiters IS 'Number of waiting sessions';
COMMENT ON COLUMN shedlock_locks.pid IS 'Server process that holds the advisory half; NULL if none does';
COMMENT ON COLUMN shedlock_locks.application_name IS 'application_name of that process';
COMMENT ON COLUMN shedlock_locks.query IS 'Statement of that process, as in pg_stat_activity';
COMMENT ON COLUMN shedlock_locks.paused IS 'Whether the lock is paused, whatever its state';
COMMENT ON COLUMN shedlock_locks.paused_until IS 'The lock cannot be acquired before this time; NULL for a paused lock: before shedlock_resume';
COMMENT ON COLUMN shedlock_locks.paused_by IS 'Role that paused the lock';
COMMENT ON COLUMN shedlock_locks.pause_reason IS 'Why the lock was paused';
COMMENT ON COLUMN shedlock_locks.locked_role IS 'Role that acquired the lock; locked_by is free text';

CREATE FUNCTION _shedlock_run_outcome(token bigint, name text, logged text)
RETURNS text LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_run_outcome(bigint, text, text) IS
'Returns the outcome of a run at this moment; the view shedlock_history shows it';

-- A run is lost as soon as nothing holds its lock any more; its row says so only after
-- the next acquire.  The barrier keeps functions in the reader's WHERE from seeing rows
-- that the view hides.
CREATE VIEW shedlock_history WITH (security_barrier) AS
SELECT r.name,
	   r.token,
	   _shedlock_run_outcome(r.token, r.name::text, r.outcome) AS outcome,
	   r.started_at,
	   r.ended_at,
	   CASE WHEN pg_catalog.isfinite(r.ended_at) AND pg_catalog.isfinite(r.started_at)
			THEN r.ended_at OPERATOR(pg_catalog.-) r.started_at END AS duration,
	   r.tick,
	   r.attempt,
	   CASE WHEN r.outcome OPERATOR(pg_catalog.<>) ALL ('{running,lost,timed out}'::text[]) THEN r.gave_up
			WHEN _shedlock_run_outcome(r.token, r.name::text, r.outcome) OPERATOR(pg_catalog.=) ANY ('{running,unknown}'::text[]) THEN false
			-- nobody has noticed yet that the last attempt is lost
			ELSE r.gave_up OR EXISTS (
				SELECT FROM _shedlock_job j
					 JOIN _shedlock_tick t ON t.name OPERATOR(pg_catalog.=) j.name
				WHERE j.name OPERATOR(pg_catalog.=) r.name AND t.token OPERATOR(pg_catalog.=) r.token AND
					  t.attempt OPERATOR(pg_catalog.>=) j.attempts AND NOT t.done AND t.again_at IS NULL)
	   END AND COALESCE((
		   -- shedlock_again can have allowed a run of its tick that has succeeded
		   SELECT l.tick OPERATOR(pg_catalog.<>) r.tick
		   FROM _shedlock_history l
		   WHERE l.name OPERATOR(pg_catalog.=) r.name AND l.token OPERATOR(pg_catalog.>) r.token AND
				 l.outcome OPERATOR(pg_catalog.<>) 'skipped' AND
				 (l.tick OPERATOR(pg_catalog.<>) r.tick OR
				  l.tick OPERATOR(pg_catalog.=) r.tick AND l.outcome OPERATOR(pg_catalog.=) 'succeeded')
		   ORDER BY l.token LIMIT 1), true) AS gave_up,
	   r.command,
	   r.sqlstate,
	   r.message,
	   r.exit_code,
	   pg_catalog.pg_get_userbyid(r.locked_role) AS locked_role,
	   r.locked_by,
	   r.pid,
	   r.warning,
	   r.request
FROM _shedlock_history r
WHERE pg_catalog.pg_has_role(r.locked_role, 'USAGE') OR
	  pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
ORDER BY r.token DESC;

COMMENT ON VIEW shedlock_history IS
'Runs by roles whose privileges the reader has, the last one first; all runs for pg_read_all_stats';
COMMENT ON COLUMN shedlock_history.name IS 'Name of the job and of its lock';
COMMENT ON COLUMN shedlock_history.token IS 'Fencing token of the run';
COMMENT ON COLUMN shedlock_history.outcome IS
'running; succeeded; failed; timed out; cancelled; returned: its attempt does not count; lost: its server process died, or its lease ended before the run did; skipped: of a tick that shedlock_skip used up, without a run; unknown: running according to the history, on a standby';
COMMENT ON COLUMN shedlock_history.started_at IS 'When the lock was acquired';
COMMENT ON COLUMN shedlock_history.ended_at IS 'When the outcome was recorded';
COMMENT ON COLUMN shedlock_history.duration IS 'Time between started_at and ended_at; null if one of them is infinite';
COMMENT ON COLUMN shedlock_history.tick IS 'Tick that the run is for';
COMMENT ON COLUMN shedlock_history.attempt IS 'Number of the attempt among the runs of its tick';
COMMENT ON COLUMN shedlock_history.gave_up IS 'Whether no further attempt follows, although none succeeded';
COMMENT ON COLUMN shedlock_history.command IS 'The guarded command, or the description of work outside the database';
COMMENT ON COLUMN shedlock_history.sqlstate IS 'SQLSTATE of the error';
COMMENT ON COLUMN shedlock_history.message IS 'Message of the error, or what the caller of shedlock_run_end says';
COMMENT ON COLUMN shedlock_history.exit_code IS 'Exit code of a program, as the caller of shedlock_run_end says';
COMMENT ON COLUMN shedlock_history.locked_role IS 'Role that began the run';
COMMENT ON COLUMN shedlock_history.locked_by IS 'Name of the holder';
COMMENT ON COLUMN shedlock_history.pid IS 'Server process that began the run';
COMMENT ON COLUMN shedlock_history.warning IS
'Last WARNING of the command, whatever its outcome; NULL if log_min_messages keeps warnings out of the server log';
COMMENT ON COLUMN shedlock_history.request IS 'Text by which the caller of shedlock_run_begin recognizes the run';

-- A condition that left rows out would show by EXPLAIN (ANALYZE) which other names there are.
CREATE FUNCTION _shedlock_stats()
RETURNS SETOF _shedlock_stats LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_stats() IS
'Returns the counters of the names that the caller may see; the view shedlock_stats shows them';

CREATE VIEW shedlock_stats AS
SELECT s.name,
	   s.runs_succeeded,
	   s.runs_failed,
	   s.runs_timed_out,
	   s.runs_cancelled,
	   s.runs_lost,
	   s.gave_up,
	   s.run_seconds,
	   s.last_success_at,
	   s.last_failure_at,
	   s.stats_since
FROM _shedlock_stats() s;

COMMENT ON VIEW shedlock_stats IS 'Counters of the runs of each name, which do not fall when the history is pruned';
COMMENT ON COLUMN shedlock_stats.name IS 'Name of the job';
COMMENT ON COLUMN shedlock_stats.runs_succeeded IS 'Number of runs that succeeded';
COMMENT ON COLUMN shedlock_stats.runs_failed IS 'Number of runs that failed';
COMMENT ON COLUMN shedlock_stats.runs_timed_out IS 'Number of runs that timed out';
COMMENT ON COLUMN shedlock_stats.runs_cancelled IS 'Number of runs that were cancelled';
COMMENT ON COLUMN shedlock_stats.runs_lost IS
'Number of runs that were lost, as far as the next acquisition of the lock has found them so';
COMMENT ON COLUMN shedlock_stats.gave_up IS 'Number of ticks that have no attempt left, although none succeeded; one that fails again after shedlock_again counts again';
COMMENT ON COLUMN shedlock_stats.run_seconds IS 'Sum of the durations of all these runs, but for the lost ones';
COMMENT ON COLUMN shedlock_stats.last_success_at IS 'When a run last succeeded';
COMMENT ON COLUMN shedlock_stats.last_failure_at IS 'When a run last failed, timed out or was found to be lost';
COMMENT ON COLUMN shedlock_stats.stats_since IS 'When the counters began';

-- The columns of _shedlock_job, and how the job is doing.
CREATE FUNCTION _shedlock_jobs(
	OUT name text,
	OUT schedule text,
	OUT time_zone text,
	OUT attempts integer,
	OUT backoff interval,
	OUT catch_up text,
	OUT max_late interval,
	OUT overdue_after interval,
	OUT slow_after interval,
	OUT lock_at_most_for interval,
	OUT lock_at_least_for interval,
	OUT description text,
	OUT since timestamptz,
	OUT carried timestamptz,
	OUT spent_token bigint,
	OUT created_at timestamptz,
	OUT created_by text,
	OUT declared_at timestamptz,
	OUT declared_by text,
	OUT turns integer,
	OUT state text,
	OUT last_tick timestamptz,
	OUT last_outcome text,
	OUT last_started_at timestamptz,
	OUT last_duration interval,
	OUT attempt integer,
	OUT next_attempt_at timestamptz,
	OUT next_due timestamptz,
	OUT overdue interval,
	OUT paused boolean,
	OUT problem text,
	OUT overdue_since timestamptz,
	OUT gave_up_since timestamptz,
	OUT slow_since timestamptz)
RETURNS SETOF record LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_jobs() IS
'Returns the jobs that were declared, and how they are doing; the views shedlock_jobs and shedlock_problems show them';

CREATE VIEW shedlock_jobs AS
SELECT j.name,
	   j.schedule,
	   j.time_zone,
	   j.state,
	   j.last_tick,
	   j.last_outcome,
	   j.last_started_at,
	   j.last_duration,
	   j.attempt,
	   j.attempts,
	   j.next_attempt_at,
	   j.next_due,
	   j.overdue,
	   j.paused,
	   j.problem,
	   j.declared_at,
	   j.declared_by,
	   j.description,
	   j.backoff,
	   j.catch_up,
	   j.max_late,
	   j.overdue_after,
	   j.slow_after,
	   j.lock_at_most_for,
	   j.lock_at_least_for,
	   j.created_at,
	   j.created_by
FROM _shedlock_jobs() j;

COMMENT ON VIEW shedlock_jobs IS 'The jobs that shedlock_job has declared, and how they are doing';
COMMENT ON COLUMN shedlock_jobs.name IS 'Name of the job, and of its lock';
COMMENT ON COLUMN shedlock_jobs.schedule IS 'Schedule of the job';
COMMENT ON COLUMN shedlock_jobs.time_zone IS 'Time zone of the schedule';
COMMENT ON COLUMN shedlock_jobs.state IS
'The first that holds of: running; paused; retrying: the last tick has attempts left; due; gave up: the last tick has none, and none succeeded; new: nothing was run or claimed since the job was created; waiting.  unknown: on a standby, which cannot tell whether a run is at work';
COMMENT ON COLUMN shedlock_jobs.last_tick IS 'The latest tick that was claimed or run, or that passed during a run';
COMMENT ON COLUMN shedlock_jobs.last_outcome IS
'Outcome of the last run of that tick, as in shedlock_history; this and the next two are NULL if the tick was claimed without a run, or if the reader cannot see the run there';
COMMENT ON COLUMN shedlock_jobs.last_started_at IS 'When that run began';
COMMENT ON COLUMN shedlock_jobs.last_duration IS 'How long it took; NULL while it is at work, and if it is lost';
COMMENT ON COLUMN shedlock_jobs.attempt IS 'Number of runs of that tick that have begun';
COMMENT ON COLUMN shedlock_jobs.attempts IS 'Number of runs that a tick can have';
COMMENT ON COLUMN shedlock_jobs.next_attempt_at IS 'When one more attempt at that tick may begin; NULL if none follows, or while a run is at work';
COMMENT ON COLUMN shedlock_jobs.next_due IS 'The next tick that was not skipped';
COMMENT ON COLUMN shedlock_jobs.overdue IS
'For how long a run could have begun that has not, if that is longer than overdue_after; NULL while a run is at work, and while the job is paused';
COMMENT ON COLUMN shedlock_jobs.paused IS 'Whether the job is paused';
COMMENT ON COLUMN shedlock_jobs.problem IS
'That it is declared in turns, that the clock was set back, or that its schedule cannot be read any more; NULL if there is no problem';
COMMENT ON COLUMN shedlock_jobs.declared_at IS 'When its declaration changed last';
COMMENT ON COLUMN shedlock_jobs.declared_by IS 'Role that changed it last';
COMMENT ON COLUMN shedlock_jobs.description IS 'What the job is, and whose';
COMMENT ON COLUMN shedlock_jobs.backoff IS 'Time from the end of a failed first attempt to the second; each later one doubles it';
COMMENT ON COLUMN shedlock_jobs.catch_up IS 'What becomes of missed ticks: latest or all';
COMMENT ON COLUMN shedlock_jobs.max_late IS 'No attempt begins later than that after its tick';
COMMENT ON COLUMN shedlock_jobs.overdue_after IS 'The job is overdue if a run that is due has not begun for that long';
COMMENT ON COLUMN shedlock_jobs.slow_after IS 'A run that takes longer is slow';
COMMENT ON COLUMN shedlock_jobs.lock_at_most_for IS 'Longest time that a run may take; NULL for no limit';
COMMENT ON COLUMN shedlock_jobs.lock_at_least_for IS 'The lock is held for at least this long';
COMMENT ON COLUMN shedlock_jobs.created_at IS 'When the job was declared first';
COMMENT ON COLUMN shedlock_jobs.created_by IS 'Role that declared it first: only roles with its privileges can change the job';

CREATE FUNCTION shedlock_why(name text)
RETURNS text LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_why(text) IS
'Says what an acquire or a run of the name would be answered now, and why';
