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

CREATE FUNCTION _shedlock_previous_tick(schedule text, time_zone text, at timestamptz)
RETURNS timestamptz LANGUAGE C STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_previous_tick(text, text, timestamptz) IS
'Returns the last tick of a schedule at an instant or before; NULL if the schedule is not valid';

/* When a pg_cron schedule is due */

CREATE FUNCTION _shedlock_cron_timezone()
RETURNS text LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_timezone() IS
'Returns the time zone of pg_cron''s schedules: cron.timezone, or GMT before pg_cron 1.5';

CREATE FUNCTION _shedlock_cron_last_due(
	schedule text,
	at timestamptz DEFAULT pg_catalog.clock_timestamp())
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
	-- Runs of a schedule in seconds are that far apart, at no particular second.
	SELECT COALESCE(
		$2 OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => pg_catalog.substring(pg_catalog.lower($1),
			'^[[:space:]]*0*([1-9]|[1-5][0-9])[[:space:]]*seconds?[[:space:]]*$')::double precision),
		_shedlock_previous_tick($1, _shedlock_cron_timezone(), $2));
END;

COMMENT ON FUNCTION _shedlock_cron_last_due(text, timestamptz) IS
'Returns when a pg_cron schedule was last due; NULL if that cannot be told, as for @reboot';

-- Ticks are counted in UTC, schedules in cron.timezone.  When summer time begins
-- there, two runs are an hour closer than the wall clock shows, and can both be in
-- a period as long as the time between them.
CREATE FUNCTION _shedlock_cron_summers(zone text, at timestamptz)
RETURNS SETOF timestamptz
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 2
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	step CONSTANT interval := '30 min';
BEGIN
	RETURN QUERY
		SELECT g + step
		FROM generate_series(date_trunc('hour', at), at + '366 days'::interval, step) g
		WHERE timezone(zone, g + step) - timezone(zone, g) > step;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_summers(text, timestamptz) IS
'Returns when summer time begins within a year';

CREATE FUNCTION _shedlock_cron_same_tick(
	zone text,
	once_every interval,
	due timestamptz,
	previous timestamptz)
RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	early CONSTANT interval := least(once_every / 4, '30 s'::interval);
	epoch CONSTANT timestamptz := 'epoch';
BEGIN
	RETURN timezone(zone, due) - timezone(zone, previous) >= once_every AND
		   date_bin(once_every, due + early, epoch) = date_bin(once_every, previous + early, epoch);
END
$$;

COMMENT ON FUNCTION _shedlock_cron_same_tick(text, interval, timestamptz, timestamptz) IS
'Returns true if two instants that are a period apart on the wall clock are in the same period';

CREATE FUNCTION _shedlock_cron_lost_tick(
	schedule text,
	once_every interval,
	at timestamptz DEFAULT pg_catalog.clock_timestamp())
RETURNS timestamptz
LANGUAGE sql STABLE STRICT PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT d.due
	FROM _shedlock_cron_timezone() z(zone)
		 CROSS JOIN LATERAL _shedlock_cron_summers(z.zone, $3) c(change)
		 CROSS JOIN LATERAL _shedlock_cron_last_due($1, c.change OPERATOR(pg_catalog.+) $2
			OPERATOR(pg_catalog.-) '1 us'::interval) d(due)
		 CROSS JOIN LATERAL _shedlock_cron_last_due($1, d.due OPERATOR(pg_catalog.-) '1 us'::interval) p(due)
	WHERE _shedlock_cron_same_tick(z.zone, $2, d.due, p.due)
	ORDER BY c.change
	LIMIT 1;
END;

COMMENT ON FUNCTION _shedlock_cron_lost_tick(text, interval, timestamptz) IS
'Returns when a pg_cron schedule is next due in a period whose tick the previous run has claimed, because summer time begins; NULL if never within a year';
