/* Administration */

CREATE FUNCTION shedlock_force_release(name text)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_force_release(text) IS
'Ends a lock, whichever session holds it; returns false if the lock was free';

CREATE FUNCTION shedlock_cancel(name text)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_cancel(text) IS
'Cancels the command of a run; returns false if none is running';

CREATE FUNCTION shedlock_pause(
	name text,
	until timestamptz DEFAULT 'infinity',
	reason text DEFAULT NULL)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_pause(text, timestamptz, text) IS
'Prevents acquisitions of the lock until then; the holder finishes its work';

CREATE FUNCTION shedlock_resume(name text)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_resume(text) IS
'Ends a pause; returns false if the lock was not paused';

CREATE FUNCTION shedlock_again(name text)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_again(text) IS
'Allows the last tick to be claimed or run once more, or takes a skipped one back; returns false if there is none';

CREATE FUNCTION shedlock_skip(name text, reason text DEFAULT NULL)
RETURNS timestamptz LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_skip(text, text) IS
'Uses up the coming tick of a job, or the one that is due and has no run yet; returns it';

CREATE FUNCTION shedlock_stats_reset(name text DEFAULT NULL)
RETURNS void LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_stats_reset(text) IS
'Sets the counters of a name to zero, or those of all names that the caller may use';

CREATE FUNCTION shedlock_purge(older_than interval, ticks boolean DEFAULT false)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_purge(interval, boolean) IS
'Deletes free locks, and ticks only if told to, that were unused for that long, at most 1,000 rows a call; returns their number';
