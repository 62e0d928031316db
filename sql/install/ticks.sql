/* Ticks */

CREATE FUNCTION shedlock_once(name text, tick timestamptz)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_once(text, timestamptz) IS
'Claims a tick; returns true for one caller at most';

CREATE FUNCTION shedlock_once_every(name text, every interval)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_once_every(text, interval) IS
'Claims the current period of a schedule, counted in UTC from the epoch; returns true for one caller at most';
