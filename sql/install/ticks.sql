/* Ticks */

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
