/* Jobs and runs */

CREATE FUNCTION shedlock_job(
	name text,
	schedule text,
	time_zone text DEFAULT 'UTC',
	attempts integer DEFAULT 1,
	backoff interval DEFAULT '1 min',
	catch_up text DEFAULT 'latest',
	max_late interval DEFAULT NULL,
	overdue_after interval DEFAULT '5 min',
	slow_after interval DEFAULT NULL,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	description text DEFAULT NULL)
RETURNS text LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_job(text, text, text, integer, interval, text, interval, interval, interval, interval, interval, text) IS
'Declares a job: its schedule, its attempts and when it is overdue; returns created, changed or unchanged';

CREATE FUNCTION shedlock_forget(name text)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_forget(text) IS
'Forgets a job that is no more, and its counters; returns false if there is none';

CREATE PROCEDURE shedlock_run(
	name text,
	command text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	on_busy text DEFAULT 'skip')
LANGUAGE C AS 'MODULE_PATHNAME';

COMMENT ON PROCEDURE shedlock_run(text, text, interval, interval, text) IS
'Runs a command while holding the lock; of a job, for each tick that is due; skips the command if the lock is not free';

CREATE FUNCTION shedlock_run_begin(
	name text,
	lease interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL,
	description text DEFAULT NULL,
	request text DEFAULT NULL,
	OUT token bigint,
	OUT tick timestamptz,
	OUT attempt integer,
	OUT state text,
	OUT reason text,
	OUT next_at timestamptz)
RETURNS record LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_run_begin(text, interval, interval, interval, text, text, text) IS
'Begins a run whose work is outside the database, under a lease; returns its token, or why no run begins and when to come back';

CREATE FUNCTION shedlock_next(
	names text[],
	lease interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL,
	request text DEFAULT NULL,
	OUT name text,
	OUT token bigint,
	OUT tick timestamptz,
	OUT attempt integer,
	OUT state text,
	OUT reason text,
	OUT next_at timestamptz)
RETURNS record LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_next(text[], interval, interval, text, text) IS
'Begins a run, as shedlock_run_begin does, of the job that has waited longest of those that are due; returns its name and token, or when to come back';

CREATE FUNCTION shedlock_run_end(
	name text,
	token bigint,
	outcome text DEFAULT 'succeeded',
	message text DEFAULT NULL,
	exit_code integer DEFAULT NULL)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_run_end(text, bigint, text, text, integer) IS
'Ends a run of shedlock_run_begin: releases its lock and records its outcome; returns false if the lock was lost';
