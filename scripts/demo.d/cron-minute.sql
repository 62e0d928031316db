-- What the pg_cron jobs did in one minute.  psql sets :minute, seconds since
-- 1970, and :part.

SELECT to_timestamp(:minute) AS minute \gset

SELECT format('  %s  %-14s %s', CASE row_number() OVER () WHEN 1 THEN to_char(:'minute'::timestamptz, 'HH24:MI') ELSE '     ' END,
			  name, what)
FROM (
	-- from the history that shedlock keeps
	(SELECT name, format('%s after %s s', outcome, round(extract(epoch FROM duration), 3)) ||
				  CASE outcome WHEN 'failed' THEN ': ' || message ELSE '' END AS what
	 FROM shedlock_history
	 WHERE :part = 6 AND name IN ('vacuum-orders', 'add-order', 'divide', 'endless') AND tick = :'minute'
	 ORDER BY array_position('{vacuum-orders,add-order,divide,endless}', name), started_at)
	UNION ALL
	(SELECT 'report', format('%-17s run by server %s', variant || ' shedlock:', string_agg(server, ' and by server ' ORDER BY server))
	 FROM demo.run
	 WHERE :part = 7 AND job = 'report' AND date_trunc('minute', started_at) = :'minute'
	 GROUP BY variant
	 ORDER BY variant DESC)
	UNION ALL
	(SELECT 'rebuild', format('%-17s %s at work, begun %s', variant || ' shedlock:', count(*),
							  string_agg(to_char(started_at, 'HH24:MI:SS'), ' and ' ORDER BY started_at))
	 FROM demo.run
	 WHERE :part = 8 AND job = 'rebuild' AND date_trunc('minute', started_at) <= :'minute'
	 GROUP BY variant
	 ORDER BY variant DESC)
) line;
