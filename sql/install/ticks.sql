/* Ticks */

CREATE FUNCTION shedlock_once(name text, tick timestamptz)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_once(text, timestamptz) IS
'Claims a tick; returns true for exactly one caller';

CREATE FUNCTION shedlock_once_every(name text, every interval)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_once_every(text, interval) IS
'Claims the current period of a schedule, counted in UTC from the epoch; returns true for exactly one caller';

CREATE FUNCTION _shedlock_due(
	last _shedlock_tick,
	schedule text,
	time_zone text,
	period interval,
	catch_up text,
	max_late interval,
	attempts integer,
	at timestamptz,
	OUT action text,
	OUT tick timestamptz,
	OUT attempt integer)
RETURNS record LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_due(_shedlock_tick, text, text, interval, text, interval, integer, timestamptz) IS
'Returns what a run with these arguments would find due at that time: run, register or none';
