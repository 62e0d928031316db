/* Problems, and who has heard of them */

-- Messages name neither the error of a run nor its command, which not everybody may see.  Only
-- a watcher knows since when the problems are there that come without a time.  A job of pg_cron
-- can name any job, also one that the reader may not see.  What is wrong with it is told as a
-- problem of that job only if its role may use that name: else the job's own would be no news.
-- Several jobs of pg_cron can have one name, and are one problem.
CREATE VIEW shedlock_problems AS
WITH job AS MATERIALIZED (SELECT * FROM _shedlock_jobs())
SELECT p.name,
	   p.problem,
	   COALESCE(p.since, t.since) AS since,
	   p.message,
	   p.description
FROM (SELECT j.name, x.problem, x.since, x.message, j.description
	  FROM job j
		   CROSS JOIN LATERAL (VALUES
			  ('overdue', j.overdue_since IS NOT NULL, j.overdue_since,
			   pg_catalog.format('A run of "%s" is overdue', j.name)),
			  ('gave up', j.gave_up_since IS NOT NULL, j.gave_up_since,
			   pg_catalog.format('The attempts of "%s" are over, and none has succeeded', j.name)),
			  ('slow', j.slow_since IS NOT NULL, j.slow_since,
			   pg_catalog.format('A run of "%s" has been at work for longer than %s', j.name, j.slow_after)),
			  ('job', j.problem IS NOT NULL, NULL,
			   pg_catalog.format('Job "%s": %s', j.name, j.problem))) x(problem, is_there, since, message)
	  WHERE x.is_there
	  UNION ALL
	  SELECT c.name, 'cron', NULL,
			 pg_catalog.string_agg(pg_catalog.format('Job %s of pg_cron: %s', c.jobid, c.problem), '; ' ORDER BY c.jobid),
			 pg_catalog.min(j.description)
	  FROM (SELECT c.jobid, c.problem, c.guarded,
				   CASE WHEN _shedlock_cron_may_use(c.username, n.name) THEN n.name
						ELSE pg_catalog.format('cron:%s', c.jobid) END AS name
			FROM shedlock_cron_jobs c
				 CROSS JOIN LATERAL (SELECT COALESCE(c.name, _shedlock_shown(c.job_name)) AS name) n
			WHERE NOT pg_catalog.starts_with(c.problem, 'unknown:')) c
		   LEFT JOIN job j ON c.guarded AND j.name OPERATOR(pg_catalog.=) c.name
	  GROUP BY c.name) p
	 LEFT JOIN _shedlock_told t ON t.name OPERATOR(pg_catalog.=) p.name AND
		t.problem OPERATOR(pg_catalog.=) p.problem AND t.over_at IS NULL;

COMMENT ON VIEW shedlock_problems IS 'What is wrong with jobs now; empty if all is well';
COMMENT ON COLUMN shedlock_problems.name IS 'Name of the job';
COMMENT ON COLUMN shedlock_problems.problem IS
'overdue: a run could have begun for longer than overdue_after; gave up: a tick has no attempt left, and none has succeeded since; slow: a run has been at work for longer than slow_after; job: problem of shedlock_jobs; cron: problem of shedlock_cron_jobs';
COMMENT ON COLUMN shedlock_problems.since IS 'Since when; for job and cron since shedlock_news has seen it first, or NULL';
COMMENT ON COLUMN shedlock_problems.message IS 'What is wrong, for people to read';
COMMENT ON COLUMN shedlock_problems.description IS 'What the job is, and whose';

-- Sees all problems, whatever the caller may see: a watcher with fewer privileges than the one before would
-- take what it cannot see for over.  One statement, so that both changes are of one look.
CREATE FUNCTION shedlock_news(
	OUT name text,
	OUT problem text,
	OUT state text,
	OUT since timestamptz,
	OUT message text,
	OUT description text)
RETURNS SETOF record LANGUAGE SQL VOLATILE SECURITY DEFINER PARALLEL UNSAFE
BEGIN ATOMIC
	WITH problem AS MATERIALIZED (SELECT * FROM shedlock_problems),
	new AS (
		INSERT INTO _shedlock_told AS t (name, problem, since, message, description)
		SELECT p.name, p.problem, COALESCE(p.since, pg_catalog.clock_timestamp()), p.message, p.description FROM problem p
		ON CONFLICT DO NOTHING)
	UPDATE _shedlock_told t SET over_at = pg_catalog.clock_timestamp()
	WHERE t.over_at IS NULL AND
		  NOT EXISTS (SELECT FROM problem p
					  WHERE p.name OPERATOR(pg_catalog.=) t.name AND p.problem OPERATOR(pg_catalog.=) t.problem);

	SELECT t.name, t.problem, CASE WHEN t.begin_told THEN 'over' ELSE 'begun' END, t.since, t.message, t.description
	FROM _shedlock_told t
	WHERE NOT t.begin_told OR t.over_at IS NOT NULL
	ORDER BY CASE WHEN t.begin_told THEN t.over_at ELSE t.since END, t.name, t.problem;
END;

COMMENT ON FUNCTION shedlock_news() IS
'Returns the problems that have begun or are over, and that shedlock_tell was not told of yet';

CREATE FUNCTION shedlock_tell(name text, problem text, since timestamptz, state text)
RETURNS boolean LANGUAGE SQL VOLATILE SECURITY DEFINER PARALLEL UNSAFE
BEGIN ATOMIC
	WITH begun AS (
		UPDATE _shedlock_told t SET begin_told = true
		WHERE t.name OPERATOR(pg_catalog.=) $1 AND t.problem OPERATOR(pg_catalog.=) $2 AND
			  t.since OPERATOR(pg_catalog.=) $3 AND $4 OPERATOR(pg_catalog.=) 'begun' AND NOT t.begin_told
		RETURNING 1),
	over AS (
		DELETE FROM _shedlock_told t
		WHERE t.name OPERATOR(pg_catalog.=) $1 AND t.problem OPERATOR(pg_catalog.=) $2 AND
			  t.since OPERATOR(pg_catalog.=) $3 AND $4 OPERATOR(pg_catalog.=) 'over' AND t.begin_told AND t.over_at IS NOT NULL
		RETURNING 1)
	SELECT EXISTS (SELECT FROM begun) OR EXISTS (SELECT FROM over);
END;

COMMENT ON FUNCTION shedlock_tell(text, text, timestamptz, text) IS
'Notes that somebody has heard of that news, whose state is begun or over; returns false if that was noted before';
