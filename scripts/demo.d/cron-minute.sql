-- What the pg_cron jobs did in one minute.  psql sets :minute, seconds since 1970.

SELECT to_timestamp(:minute) AS minute, to_timestamp(:minute) + interval '6 s' AS seen \gset

SELECT format('  %s  %-14s %s', CASE row_number() OVER () WHEN 1 THEN to_char(:'minute'::timestamptz, 'HH24:MI') ELSE '     ' END,
			  name, what)
FROM (
	-- part 3, from the history that shedlock keeps
	(SELECT name, format('%s after %s s', outcome, round(extract(epoch FROM duration), 3)) ||
				  CASE outcome WHEN 'failed' THEN ': ' || message ELSE '' END AS what
	 FROM shedlock_history
	 WHERE name IN ('vacuum-orders', 'add-order', 'divide', 'endless') AND tick = :'minute'
	 ORDER BY array_position('{vacuum-orders,add-order,divide,endless}', name), started_at)
	UNION ALL
	-- part 4
	SELECT 'report', format('without: run by server %s; with: run by server %s',
							string_agg(server, ' and ' ORDER BY server) FILTER (WHERE variant = 'without'),
							string_agg(server, ' and ' ORDER BY server) FILTER (WHERE variant = 'with'))
	FROM demo.run
	WHERE job = 'report' AND started_at >= :'minute' AND started_at < :'seen'
	UNION ALL
	-- part 5
	SELECT 'rebuild', format('without: %s at a time; with: %s at a time',
							 count(*) FILTER (WHERE variant = 'without'), count(*) FILTER (WHERE variant = 'with'))
	FROM demo.run
	WHERE job = 'rebuild' AND started_at < :'seen' AND (ended_at > :'seen' OR ended_at IS NULL)
	UNION ALL
	SELECT '', 'both scheduled anew at ' || to_char(at, 'HH24:MI:SS') || ', in the middle of their run'
	FROM demo.rescheduled
	WHERE at >= :'minute' AND at < :'minute'::timestamptz + interval '1 min'
) line;
