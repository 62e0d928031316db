/* Administration */

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
