-- timeline.sql - draws the runs of a database over time, as a page for a browser
--
--	psql -X -d mydb -f timeline.sql > runs.html
--	psql -X -d mydb -v since='7 days' -v zone=Europe/Berlin -f timeline.sql > runs.html
--	psql -X -d mydb -v since='2026-11-21 22:00' -v until='2026-11-22 06:00' -f timeline.sql > runs.html
--
-- The page is one file without scripts, and loads nothing.  It shows what the role can see in
-- shedlock_history, shedlock_jobs and shedlock_problems, without the commands, which may contain
-- passwords.

\set QUIET on
\set ON_ERROR_STOP on
\pset format unaligned
\pset tuples_only on
\pset recordsep '\n'
\pset null ''
\pset pager off
\timing off
-- The owner of the database can set another path for all its sessions.  With this one no
-- function, operator or type of another role is called: what is not of the server is written
-- with the extension's schema, which psql quotes.
SET search_path = pg_catalog, pg_temp;
\if :{?since}
\else
	\set since '1 day'
\endif
\if :{?until}
\else
	\set until now
\endif
\if :{?zone}
	SET TimeZone = :'zone';
\endif
SET client_encoding = 'UTF8';
SET DateStyle = 'ISO';
SET IntervalStyle = 'postgres';
SET extra_float_digits = 1;
SET default_transaction_read_only = on;
DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'shedlock') THEN
		RAISE 'database "%" does not have the extension shedlock', current_database();
	END IF;
END
$$;
SELECT nspname AS shedlock
FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace
WHERE extname = 'shedlock' \gset

-- Each line of the page is markup, a text of anybody's, and markup.  Only the last SELECT
-- handles these texts, and escapes all of them.
WITH
span AS (
	SELECT now() AS now, upto, CASE WHEN :'since' ~ '^\d{4}-' THEN :'since'::text::timestamptz
									ELSE upto - :'since'::text::interval END AS since,
		   pg_has_role('pg_read_all_stats', 'USAGE') AS sees_all
	FROM (SELECT least(now(), :'until'::text::timestamptz) AS upto) u
),
-- Twice the range, to know the tick before the first one in it.  When a run that is lost
-- ended is unknown.  Times that were written by hand may be of any year.
seen AS MATERIALIZED (
	SELECT name, token, outcome, started_at, ended_at, CASE WHEN outcome = 'lost' AND ended_at IS NULL THEN started_at ELSE least(ended_at, now) END AS till,
		   CASE WHEN tick > '0001-01-02 00:00Z' AND tick < '9000-01-01 00:00Z' THEN tick END AS tick, attempt,
		   gave_up, sqlstate, message, exit_code, locked_role, locked_by
	FROM :"shedlock".shedlock_history, span
	WHERE started_at <= upto AND isfinite(started_at) AND
		  (started_at > since - (upto - since) OR ended_at IS NULL OR ended_at >= since)
),
run AS MATERIALIZED (
	SELECT seen.*, row_number() OVER (ORDER BY started_at DESC, token DESC) AS n,
		   row_number() OVER (PARTITION BY name ORDER BY started_at DESC, token DESC) AS age
	FROM seen, span
	WHERE till >= since
),
-- What a bar has besides its colour
sign (outcome, class, letter, rank) AS (
	VALUES ('succeeded', 'ok', '', 1), ('failed', 'failed', 'F', 2), ('timed out', 'late', 'T', 3),
		   ('cancelled', 'off', 'C', 4), ('lost', 'lost', 'L', 5), ('running', 'runs', 'R', 6), ('unknown', 'off', '?', 7),
		   ('returned', 'off', 'B', 8), ('skipped', 'off', 'S', 9)
),
schedule AS MATERIALIZED (SELECT * FROM :"shedlock".shedlock_jobs),
pause AS (
	SELECT name, paused, paused_until, paused_by, pause_reason FROM :"shedlock".shedlock_locks WHERE paused
),
problem AS MATERIALIZED (SELECT * FROM :"shedlock".shedlock_problems),
trouble AS (
	SELECT p.name, now - min(p.since) FILTER (WHERE p.problem = 'overdue') AS overdue, string_agg(p.message, E'\n' ORDER BY p.problem) AS messages,
		   string_agg(CASE p.problem WHEN 'overdue' THEN 'overdue by ' || date_trunc('second', now - p.since) ELSE p.problem END, ', ' ORDER BY p.problem) AS problems
	FROM problem p, span GROUP BY p.name, now
),
job AS MATERIALIZED (
	SELECT row_number() OVER (ORDER BY problems IS NULL, NOT troubled, name COLLATE "C") AS n, j.*
	FROM (SELECT names.name, s.schedule, s.time_zone, s.last_tick, s.attempts, s.next_attempt_at, s.next_due, t.overdue, t.problems, t.messages,
				 p.paused, p.paused_until, p.paused_by, p.pause_reason,
				 coalesce(r.outcome NOT IN ('succeeded', 'running', 'returned', 'skipped'), false) AS troubled
		  FROM (SELECT name FROM run UNION SELECT name FROM schedule UNION SELECT name FROM pause UNION SELECT name FROM trouble) names
			   LEFT JOIN schedule s ON s.name = names.name LEFT JOIN pause p ON p.name = names.name
			   LEFT JOIN trouble t ON t.name = names.name LEFT JOIN run r ON r.name = names.name AND r.age = 1) j
),
-- Pixels: names until 230, times from 240 to 980, then what comes next
scale AS (
	SELECT 740 / greatest(extract(epoch FROM upto - since), 0.001)::float8 AS per_second, since, upto, now, sees_all,
		   36 + 26 * (SELECT count(*) FROM job) AS bottom
	FROM span
),
bar AS (
	SELECT r.*, class, letter, rank, 36 + 26 * (j.n - 1) AS y,
		   240 + per_second * extract(epoch FROM greatest(started_at, since) - since)::float8 AS x,
		   greatest(per_second * extract(epoch FROM least(till, upto) - greatest(started_at, since))::float8, 3) AS width
	FROM run r JOIN job j USING (name) JOIN sign s USING (outcome), scale
	WHERE r.n <= 10000
),
-- Of each tick that had a run, the one that follows by today's schedule.  A role that
-- does not see all runs cannot tell which ticks had none.
step AS (
	SELECT j.n, t.name, t.tick, coalesce(lead(tick) OVER (PARTITION BY t.name ORDER BY tick),
										 j.last_tick + interval '1 us') AS following,
		   :"shedlock".shedlock_next_tick(schedule, time_zone, tick) AS expected
	FROM (SELECT DISTINCT name, tick FROM seen WHERE tick IS NOT NULL) t JOIN job j USING (name)
	WHERE attempts IS NOT NULL AND next_due IS NOT NULL -- else its schedule cannot be read
),
gap AS (
	SELECT step.*, 36 + 26 * (n - 1) AS y, greatest(expected, since) AS a, least(following, upto) AS b
	FROM step, scale
	WHERE sees_all AND expected < following AND following > since AND expected < upto
),
-- The axis has at most ten labels, at round local times
axis AS (
	SELECT t, at, width, per_second, bottom, 240 + per_second * extract(epoch FROM at - since)::float8 AS x
	FROM scale,
		 LATERAL (SELECT w::interval AS width
				  FROM unnest('{1 s,2 s,5 s,10 s,30 s,1 min,2 min,5 min,10 min,15 min,30 min,1 h,2 h,3 h,6 h,12 h,
								1 day,2 days,7 days,28 days,364 days}'::text[]) WITH ORDINALITY u (w, o)
				  WHERE w::interval > (upto - since) / 10 OR o = 21 ORDER BY o LIMIT 1) step,
		 generate_series(date_bin(width, since AT TIME ZONE current_setting('TimeZone'), timestamp '2001-01-01'),
						 upto AT TIME ZONE current_setting('TimeZone'), width) t,
		 LATERAL (SELECT t AT TIME ZONE current_setting('TimeZone') AS at) z
	WHERE at BETWEEN since AND upto
),
outcome_count AS (
	SELECT s.*, count(run.token) AS runs FROM sign s LEFT JOIN run USING (outcome) GROUP BY 1, 2, 3, 4
),
summary AS (
	SELECT string_agg(format('%s %s', runs, outcome), ', ' ORDER BY rank) FILTER (WHERE runs > 0) AS counts FROM outcome_count
),
heading AS (
	SELECT format('Runs of shedlock in database %s', current_database()) AS what,
		   format('%s to %s, time zone %s', to_char(since, 'YYYY-MM-DD HH24:MI:SS'),
				  to_char(upto, 'YYYY-MM-DD HH24:MI:SS'), current_setting('TimeZone')) AS range
	FROM scale
),
line (part, k, l, before, raw, after) AS (
	SELECT 1, 0::bigint, 0::bigint, '<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en"><head><meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src ''none''; style-src ''unsafe-inline''"/>
<meta name="viewport" content="width=device-width"/><meta name="color-scheme" content="light dark"/>
<title>', format('%s, %s', what, range), '</title>
<style>
body { margin: 16px; background: var(--bg); color: var(--text); font: 14px sans-serif }
h1 { font-size: 20px; margin: 0 0 4px } h2 { font-size: 16px } p { margin: 4px 0 }
.legend span { margin-right: 16px; white-space: nowrap } .legend svg { vertical-align: -3px }
.scroll { overflow-x: auto } .scroll svg { min-width: 900px; width: 100%; height: auto }
table { border-collapse: collapse } th, td { text-align: left; vertical-align: top; padding: 2px 14px 2px 0 }
td { border-top: 1px solid var(--line); overflow-wrap: anywhere; white-space: pre-line } td:nth-child(-n+3) { white-space: nowrap }
td:nth-child(2) { white-space: normal; min-width: 8em; max-width: 20em }
</style></head><body>' FROM heading
	UNION ALL SELECT 2, 1, 0, '<h1>', what, '</h1>' FROM heading
	UNION ALL SELECT 2, 2, 0, '<p>', range, '</p>' FROM heading
	UNION ALL SELECT 2, 3, 0, '<p>', format('Server %s%s%s, PostgreSQL %s%s; drawn at %s for role %s',
			coalesce(nullif(current_setting('cluster_name'), '') || ', ', ''), :'HOST', ' port ' || :'PORT',
			current_setting('server_version'), CASE WHEN pg_is_in_recovery() THEN ', a standby' ELSE '' END,
			to_char(now, 'YYYY-MM-DD HH24:MI:SS'), current_user), '</p>' FROM scale
	UNION ALL SELECT 2, 4, 0, '<p>', 'This role sees only the runs of roles whose privileges it has,'
			|| ' so ticks without a run are not shown. A member of pg_read_all_stats sees all.', '</p>' FROM scale WHERE NOT sees_all
	UNION ALL SELECT 2, 5, 0, '<p>', format('%s runs are older than these 10000, and are not drawn.', count(*) - 10000), '</p>'
		FROM run HAVING count(*) > 10000
	UNION ALL SELECT 3, 0, 0, '<p class="legend">', '', ''
	UNION ALL SELECT 3, 1, rank, format('<span><svg width="26" height="18" aria-hidden="true"><rect class="%s" x="1" y="%s" width="12" height="%s"/>'
			'<text class="sign" x="20" y="13">%s</text></svg> ', class, CASE letter WHEN '' THEN 5 ELSE 2 END,
			CASE letter WHEN '' THEN 8 ELSE 14 END, letter), format('%s: %s', outcome, runs), '</span>'
		FROM outcome_count WHERE rank < 7 OR runs > 0
	UNION ALL SELECT 3, 2, 0, '<span><svg width="16" height="18" aria-hidden="true"><path class="tick" d="M8 3v12"/></svg> ', 'a tick', '</span>'
	UNION ALL SELECT 3, 3, 0, '<span><svg width="26" height="18" aria-hidden="true"><rect class="gap" x="1" y="5" width="20" height="8"/></svg> ',
			format('no run for a tick: %s', (SELECT count(*) FROM gap)), '</span>'
	UNION ALL SELECT 3, 4, 0, '<span><svg width="26" height="18" aria-hidden="true"><rect class="overdue" x="1" y="5" width="20" height="8"/></svg> ',
			format('overdue: %s', (SELECT count(overdue) FROM job)), '</span>'
	UNION ALL SELECT 3, 5, 0, '<span>', format('problems now: %s', (SELECT count(*) FROM problem)), '</span></p>'
	UNION ALL SELECT 4, 0, 0, format('<div class="scroll">
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 %s" width="1200" height="%1$s" role="img" aria-labelledby="shedlock-title shedlock-desc">
<title id="shedlock-title">', bottom + 26), what, '</title>' FROM heading, scale
	UNION ALL SELECT 4, 1, 0, '<desc id="shedlock-desc">', format('%s. %s', range, coalesce(counts, 'No runs')), format('</desc>
<style>
:root { --bg: #ffffff; --text: #1f2328; --weak: #59636e; --line: #d1d9e0; --band: #f6f8fa; --ok: #0072b2; --failed: #d0440b;
	--late: #e69f00; --off: #7d8590; --lost: #a0408c; --runs: #56b4e9 }
@media (prefers-color-scheme: dark) { :root { --bg: #0d1117; --text: #e6edf3; --weak: #9198a1; --line: #3d444d; --band: #151b23;
	--ok: #4493f8; --failed: #ff7b3d; --late: #f2c037; --off: #8d96a0; --lost: #e28fd0; --runs: #9bd8ff } }
svg text { fill: var(--text); font: 12px sans-serif } svg .weak { fill: var(--weak) } svg .bad { fill: var(--failed); font-weight: bold }
svg .sign { font: bold 10px sans-serif; text-anchor: middle } svg .mid { text-anchor: middle }
.page { fill: var(--bg) } .band { fill: var(--band) } .grid { stroke: var(--line) } .tick { stroke: var(--text); stroke-width: 1.2 }
.ok { fill: var(--ok) } .failed { fill: var(--failed) } .late { fill: var(--late) } .off { fill: var(--off) } .lost { fill: var(--lost) }
.runs { fill: var(--runs); stroke: var(--ok); stroke-dasharray: 3 2 }
.gap { fill: none; stroke: var(--failed); stroke-dasharray: 2 2 }
.overdue { fill: url(#shedlock-hatch); stroke: var(--failed) } .hatch { stroke: var(--failed); stroke-width: 2.5 }
.bar:hover { stroke: var(--text); stroke-width: 2 }
</style>
<defs><pattern id="shedlock-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch" d="M0 0v6"/></pattern>
<clipPath id="shedlock-names"><rect width="232" height="%s"/></clipPath></defs>
<rect class="page" width="100%%" height="100%%"/>', bottom) FROM heading, scale, summary
	UNION ALL SELECT 4, 2, n, format('<rect class="band" y="%s" width="1200" height="26"/>', 36 + 26 * (n - 1)), '', '' FROM job WHERE n % 2 = 1
	UNION ALL SELECT 4, 3, n, format('<text x="620" y="%s" class="mid">', 54), 'No runs in this range', '</text>' FROM (SELECT count(*) AS n FROM run) r WHERE n = 0
	UNION ALL SELECT 4, 4, 0, format('<path class="grid" d="M%s 24V%s"/><text class="weak mid" x="%1$s" y="%3$s">', round(x::numeric, 1), bottom, label),
			CASE WHEN t::time = '00:00' THEN to_char(t, 'FMDD Mon') WHEN width < '1 min' THEN to_char(t, 'HH24:MI:SS') ELSE to_char(t, 'HH24:MI') END, '</text>'
		FROM axis, unnest(ARRAY[16, bottom + 18]) AS label
	UNION ALL SELECT 4, 5, 0, format('<rect class="bar gap" x="%s" y="%s" width="%s" height="9"><title>',
			round((240 + per_second * extract(epoch FROM a - since))::numeric, 1), y + 10, round(greatest(per_second * extract(epoch FROM b - a), 4)::numeric, 1)),
			format(E'%s\nno run for tick %s%s', name, expected, CASE WHEN EXISTS (SELECT FROM job j WHERE j.n = gap.n AND
				:"shedlock".shedlock_next_tick(schedule, time_zone, expected) < following)
				THEN ' and the following ones until ' || following ELSE '' END), '</title></rect>' FROM gap, scale
	UNION ALL SELECT 4, 6, 0, format('<rect class="bar overdue" x="%s" y="%s" width="%s" height="9"><title>',
			round((240 + per_second * extract(epoch FROM a - since))::numeric, 1), y, round(greatest(per_second * extract(epoch FROM upto - a), 4)::numeric, 1)),
			format(E'%s\noverdue by %s', name, date_trunc('second', overdue)), '</title></rect>'
		FROM (SELECT name, overdue, 46 + 26 * (n - 1) AS y, greatest(now - overdue, since) AS a, scale.* FROM job, scale WHERE overdue IS NOT NULL) o WHERE a < upto
	UNION ALL SELECT 4, 6 + least(rank, 2), token, format('<rect class="bar %s" x="%s" y="%s" width="%s" height="%s"><title>', class,
			round(least(x, 977)::numeric, 1), CASE letter WHEN '' THEN y + 11 ELSE y + 9 END, round(width::numeric, 1), CASE letter WHEN '' THEN 7 ELSE 11 END),
			concat_ws(E'\n', name, outcome || CASE WHEN gave_up THEN ', gave up' ELSE '' END,
				'from ' || date_trunc('milliseconds', started_at) || coalesce(' to ' || date_trunc('milliseconds', ended_at), CASE outcome WHEN 'lost' THEN ', its end is unknown' ELSE '' END),
				CASE WHEN outcome <> 'lost' THEN 'for ' || date_trunc('milliseconds', till - started_at) END, 'tick ' || tick || ', attempt ' || attempt, 'role ' || locked_role || ', holder ' || locked_by,
				'token ' || token, 'SQLSTATE ' || sqlstate, 'exit code ' || exit_code, left(message, 400)), '</title></rect>' FROM bar
	UNION ALL SELECT 4, 9, 0, format('<path class="tick" d="M%s %sv4"/>', x, y), '', ''
		FROM (SELECT DISTINCT round((240 + per_second * extract(epoch FROM tick - since))::numeric) AS x, 36 + 26 * (j.n - 1) + 21 AS y
			  FROM run JOIN job j USING (name), scale WHERE tick BETWEEN since AND upto) t
	UNION ALL SELECT 4, 10, token, format('<text class="sign" x="%s" y="%s">%s</text>', round((x + least(width, 980 - x) / 2)::numeric, 1), y + 8, letter), '', ''
		FROM (SELECT *, row_number() OVER (PARTITION BY name, floor((x + width / 2) / 9) ORDER BY token DESC) AS nth FROM bar WHERE letter <> '') b WHERE nth = 1
	UNION ALL SELECT 4, 11, 2 * n, format('<text x="8" y="%s" clip-path="url(#shedlock-names)">', 36 + 26 * n - 8), CASE WHEN length(name) > 34 THEN left(name, 32) || '...' ELSE name END, '' FROM job
	UNION ALL SELECT 4, 11, 2 * n + 1, '<title>', concat_ws(E'\n', name, schedule || coalesce(', time zone ' || time_zone, '')), '</title></text>' FROM job
	UNION ALL SELECT 4, 12, 2 * n, format('<text x="992" y="%s" class="%s">', 36 + 26 * n - 8, CASE WHEN problems IS NOT NULL THEN 'bad' ELSE 'weak' END),
			CASE WHEN problems IS NOT NULL THEN concat_ws(', ', problems, CASE WHEN paused THEN 'paused' END)
				 WHEN paused THEN 'paused until ' || coalesce(to_char(paused_until, 'YYYY-MM-DD HH24:MI'), 'resumed')
				 WHEN next_attempt_at IS NOT NULL THEN 'attempt ' || to_char(next_attempt_at, 'YYYY-MM-DD HH24:MI:SS')
				 WHEN next_due IS NOT NULL THEN 'next ' || to_char(next_due, 'YYYY-MM-DD HH24:MI:SS') END, '' FROM job
	UNION ALL SELECT 4, 12, 2 * n + 1, '<title>', concat_ws(E'\n', name, messages, 'paused by ' || paused_by, pause_reason,
			'next attempt ' || next_attempt_at, 'next tick ' || next_due), '</title></text>' FROM job
	UNION ALL SELECT 4, 13, 0, '</svg></div>', '', ''
	UNION ALL SELECT 5, 0, 0, '<h2>Problems now</h2>
<table><thead><tr><th>Since</th><th>Name</th><th>Problem</th><th>Message</th><th>Description</th></tr></thead><tbody>', '', '' WHERE EXISTS (SELECT FROM problem)
	UNION ALL SELECT 5, place, cell, CASE cell WHEN 1 THEN '<tr><td>' ELSE '<td>' END, content, CASE cell WHEN 5 THEN '</td></tr>' ELSE '</td>' END
		FROM (SELECT row_number() OVER (ORDER BY since, name COLLATE "C", problem) AS place, * FROM problem) p,
			 LATERAL (VALUES (1, to_char(since, 'YYYY-MM-DD HH24:MI:SS')), (2, name), (3, problem), (4, message), (5, description)) c (cell, content)
		WHERE place <= 50
	UNION ALL SELECT 6, 0, 0, '</tbody></table>', '', '' WHERE EXISTS (SELECT FROM problem)
	UNION ALL SELECT 7, 0, 0, '<h2>Runs that did not succeed, the last ones first</h2>
<table><thead><tr><th>Started</th><th>Name</th><th>Outcome</th><th>Attempt</th><th>SQLSTATE</th><th>Message</th></tr></thead><tbody>', '', '' FROM (SELECT count(*) AS n FROM run WHERE outcome NOT IN ('succeeded', 'running')) r WHERE n > 0
	UNION ALL SELECT 7, place, cell, CASE cell WHEN 1 THEN '<tr><td>' ELSE '<td>' END, content, CASE cell WHEN 6 THEN '</td></tr>' ELSE '</td>' END
		FROM (SELECT row_number() OVER (ORDER BY started_at DESC, token DESC) AS place, * FROM bar WHERE outcome NOT IN ('succeeded', 'running')) b,
			 LATERAL (VALUES (1, to_char(started_at, 'YYYY-MM-DD HH24:MI:SS')), (2, name), (3, outcome || CASE WHEN gave_up THEN ', gave up' ELSE '' END), (4, attempt::text), (5, sqlstate), (6, left(message, 400))) c (cell, content)
		WHERE place <= 50
	UNION ALL SELECT 8, 0, 0, '</tbody></table>', '', '' FROM (SELECT count(*) AS n FROM run WHERE outcome NOT IN ('succeeded', 'running')) r WHERE n > 0
	UNION ALL SELECT 9, 0, 0, '</body></html>', '', ''
)
-- Control characters are not XML, and those of text direction would reorder the page.
SELECT before || replace(replace(replace(replace(
	regexp_replace(coalesce(raw, ''), '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]', '?', 'g'),
	'&', '&amp;'), '<', '&lt;'), '>', '&gt;'), '"', '&quot;') || after
FROM line
ORDER BY part, k, l;
