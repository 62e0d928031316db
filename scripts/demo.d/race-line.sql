-- One tick of the race on one line.  psql sets :tick.
WITH job AS (
	SELECT variant, job, count(*) FILTER (WHERE ran) AS runs,
		   string_agg(CASE WHEN ran THEN replica::text ELSE '.' END, '' ORDER BY replica) AS line
	FROM demo.race
	WHERE tick = :tick
	GROUP BY variant, job
), side AS (
	SELECT variant, sum(runs) AS runs,
		   max(line) FILTER (WHERE job = 'send-mail') AS mail,
		   max(line) FILTER (WHERE job = 'refresh-prices') AS prices,
		   max(line) FILTER (WHERE job = 'write-invoices') AS invoices
	FROM job
	GROUP BY variant
)
SELECT format('  %4s', :tick) ||
	   string_agg(format('  %-8s %-8s %-8s %4s', mail, prices, invoices, runs), '' ORDER BY variant DESC)
FROM side;
