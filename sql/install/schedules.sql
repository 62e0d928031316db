/* Schedules */

CREATE FUNCTION shedlock_tick(schedule text, time_zone text DEFAULT 'UTC')
RETURNS timestamptz LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_tick(text, text) IS
'Returns the tick of a schedule that a timer which fires now is for';

CREATE FUNCTION shedlock_next_tick(
	schedule text,
	time_zone text DEFAULT 'UTC',
	after timestamptz DEFAULT pg_catalog.clock_timestamp())
RETURNS timestamptz LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_next_tick(text, text, timestamptz) IS
'Returns the first tick of a schedule after an instant';
