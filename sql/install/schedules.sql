/* When a pg_cron schedule is due */

CREATE FUNCTION _shedlock_cron_timezone()
RETURNS text LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_timezone() IS
'Returns the time zone of pg_cron''s schedules: cron.timezone, or GMT before pg_cron 1.5';

CREATE FUNCTION _shedlock_cron_field(
	field text,
	low integer,
	high integer,
	names text[])
RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
DECLARE
	item text;
	part text[];
	bounds integer[];
	result integer[] := '{}';
BEGIN
	FOREACH item IN ARRAY string_to_array(lower(field), ',') LOOP
		part := regexp_match(item, '^(?:(\w+)|(\*)(?:/(\d{1,4}))?|(\w+)-(\w+)(?:/(\d{1,4}))?)$');
		bounds := ARRAY(
			SELECT CASE WHEN b.value ~ '^\d{1,4}$' THEN b.value::integer
						ELSE array_position(names, b.value) - 1 + low END
			FROM unnest(ARRAY[coalesce(part[1], part[4], low::text),
							  coalesce(part[1], part[5], high::text)]) WITH ORDINALITY AS b(value, n)
			ORDER BY b.n);
		IF part IS NULL OR array_position(bounds, NULL) IS NOT NULL OR
		   bounds[1] NOT BETWEEN low AND high OR bounds[2] NOT BETWEEN low AND high OR
		   coalesce(part[3], part[6], '1')::integer = 0
		THEN
			RETURN NULL;
		END IF;
		result := result || ARRAY(
			SELECT generate_series(bounds[1], bounds[2], coalesce(part[3], part[6], '1')::integer));
	END LOOP;
	RETURN ARRAY(SELECT DISTINCT v FROM unnest(result) v ORDER BY v DESC);
END
$$;

COMMENT ON FUNCTION _shedlock_cron_field(text, integer, integer, text[]) IS
'Returns the values of one field of a cron schedule, the highest first; NULL if the field is not valid';

CREATE FUNCTION _shedlock_cron_fields(schedule text)
RETURNS text[]
LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
BEGIN
	RETURN regexp_split_to_array(
		CASE btrim(schedule, E' \t\r\n')
			WHEN '@yearly' THEN '0 0 1 1 *'
			WHEN '@annually' THEN '0 0 1 1 *'
			WHEN '@monthly' THEN '0 0 1 * *'
			WHEN '@weekly' THEN '0 0 * * 0'
			WHEN '@daily' THEN '0 0 * * *'
			WHEN '@midnight' THEN '0 0 * * *'
			WHEN '@hourly' THEN '0 * * * *'
			ELSE btrim(schedule, E' \t\r\n') END, '\s+');
END
$$;

COMMENT ON FUNCTION _shedlock_cron_fields(text) IS
'Returns the five fields of a cron schedule';

CREATE FUNCTION _shedlock_cron_due(
	schedule text,
	at timestamptz,
	zone text,
	fields text[],
	minutes integer[],
	hours integer[],
	days integer[],
	months integer[],
	weekdays integer[])
RETURNS timestamptz
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
DECLARE
	wall CONSTANT timestamp := timezone(zone, at);
	seconds CONSTANT integer := substring(lower(schedule) FROM '^\s*0*([1-9]|[1-5]\d)\s*seconds?\s*$');
	day date;
	on_day boolean;
	on_weekday boolean;
	hour integer;
	minute integer;
	local timestamp;
	due timestamptz;
BEGIN
	-- These runs are that far apart, at no particular second.
	IF seconds IS NOT NULL THEN
		RETURN at - make_interval(secs => seconds);
	ELSIF minutes IS NULL OR hours IS NULL OR days IS NULL OR months IS NULL OR weekdays IS NULL THEN
		RETURN NULL;
	END IF;

	FOR back IN 0..366 LOOP
		day := wall::date - back;
		CONTINUE WHEN extract(month FROM day)::integer <> ALL (months);
		on_day := extract(day FROM day)::integer = ANY (days) OR
			(fields[3] = '$' AND extract(day FROM day + 1) = 1);
		on_weekday := extract(dow FROM day)::integer = ANY (weekdays) OR
			extract(isodow FROM day)::integer = ANY (weekdays);

		-- Vixie's rule: if both are restricted, either is enough
		CONTINUE WHEN NOT CASE WHEN fields[3] LIKE '*%' OR fields[5] LIKE '*%'
							   THEN on_day AND on_weekday ELSE on_day OR on_weekday END;

		FOREACH hour IN ARRAY hours LOOP
			CONTINUE WHEN day + make_interval(hours => hour) > wall;
			FOREACH minute IN ARRAY minutes LOOP
				local := day + make_interval(hours => hour, mins => minute);
				due := timezone(zone, local);

				-- In autumn the wall clock shows an hour twice.
				IF due > at AND timezone(zone, due - '1 hour'::interval) = local THEN
					due := due - '1 hour'::interval;
				END IF;

				-- In spring the wall clock skips an hour.
				IF due <= at AND timezone(zone, due) = local THEN
					RETURN due;
				END IF;
			END LOOP;
		END LOOP;
	END LOOP;
	RETURN NULL;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_due(text, timestamptz, text, text[], integer[], integer[], integer[], integer[], integer[]) IS
'Returns when a schedule with these fields was last due, at that time or before';

CREATE FUNCTION _shedlock_cron_last_due(
	schedule text,
	at timestamptz DEFAULT pg_catalog.clock_timestamp())
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_due($1, $2, _shedlock_cron_timezone(), f.fields,
		_shedlock_cron_field(f.fields[1], 0, 59, '{}'::text[]),
		_shedlock_cron_field(f.fields[2], 0, 23, '{}'::text[]),
		CASE WHEN f.fields[3] OPERATOR(pg_catalog.=) '$' THEN '{}'::integer[]
			 ELSE _shedlock_cron_field(f.fields[3], 1, 31, '{}'::text[]) END,
		_shedlock_cron_field(f.fields[4], 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}'::text[]),
		_shedlock_cron_field(f.fields[5], 0, 7, '{sun,mon,tue,wed,thu,fri,sat}'::text[]))
	FROM _shedlock_cron_fields($1) f(fields);
END;

COMMENT ON FUNCTION _shedlock_cron_last_due(text, timestamptz) IS
'Returns when a pg_cron schedule was last due; NULL for @reboot, or if that is more than a year ago';

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
