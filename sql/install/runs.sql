/* Runs */

CREATE PROCEDURE shedlock_run(
	name text,
	command text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL,
	on_busy text DEFAULT 'skip',
	schedule text DEFAULT NULL,
	time_zone text DEFAULT 'UTC',
	catch_up text DEFAULT 'latest',
	max_late interval DEFAULT NULL,
	attempts integer DEFAULT 1,
	backoff interval DEFAULT '1 min')
LANGUAGE C AS 'MODULE_PATHNAME';

COMMENT ON PROCEDURE shedlock_run(text, text, interval, interval, interval, text, text, text, text, interval, integer, interval) IS
'Runs a command while holding the lock; skips the command if the lock is not free';

CREATE FUNCTION shedlock_run_begin(
	name text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL,
	schedule text DEFAULT NULL,
	time_zone text DEFAULT 'UTC',
	catch_up text DEFAULT 'latest',
	max_late interval DEFAULT NULL,
	attempts integer DEFAULT 1,
	backoff interval DEFAULT '1 min',
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL,
	description text DEFAULT NULL,
	request text DEFAULT NULL,
	OUT token bigint,
	OUT tick timestamptz,
	OUT attempt integer,
	OUT reason text)
RETURNS record LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_run_begin(text, interval, interval, interval, text, text, text, interval, integer, interval, interval, text, text, text) IS
'Begins a run whose work is outside the database, under a lease; returns its token, or the reason why no run begins';

CREATE FUNCTION shedlock_run_end(
	name text,
	token bigint,
	outcome text DEFAULT 'succeeded',
	message text DEFAULT NULL,
	exit_code integer DEFAULT NULL)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_run_end(text, bigint, text, text, integer) IS
'Ends a run of shedlock_run_begin: releases its lock and records its outcome; returns false if the lock was lost';
