/* pg_cron */

-- A call must not find the extension's objects by the name of their schema,
-- because the owner of the schema can rename it and create another one of that
-- name.  So the functions that people call, and the view, have bodies that the
-- server parsed when they were created.  A parsed body cannot name objects of
-- pg_cron, which may not be installed yet.  A plpgsql body can, and calls nothing
-- but pg_catalog and cron; its arguments bring what it needs of the extension.  In
-- a parsed body, a function whose arguments come from another one is called after
-- that one.

CREATE FUNCTION _shedlock_guarded_call(
	job_command text,
	OUT name text,
	OUT command text,
	OUT schema_name text)
RETURNS record LANGUAGE C STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_guarded_call(text) IS
'Returns what a command that is a CALL of shedlock_run says; nulls for every other command';

CREATE FUNCTION _shedlock_cron_call(name text, command text, old_call text DEFAULT NULL)
RETURNS text LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_call(text, text, text) IS
'Returns the CALL of shedlock_run with these arguments, or the one that the job has; raises the errors that shedlock_run would raise before it runs the command';

CREATE PROCEDURE _shedlock_cron_once(jobid bigint)
LANGUAGE C AS 'MODULE_PATHNAME';

COMMENT ON PROCEDURE _shedlock_cron_once(bigint) IS
'Runs a guarded pg_cron job of the caller, and before that deletes the job of pg_cron that calls this';

CREATE FUNCTION _shedlock_cron_require()
RETURNS void LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_require() IS
'Raises an error unless pg_cron is installed in this database';

CREATE FUNCTION _shedlock_cron_is_readable()
RETURNS boolean LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_is_readable() IS
'Returns true if pg_cron is installed in this database and the caller can read cron.job';

CREATE FUNCTION _shedlock_cron_name_is_shared(job_name text, username text)
RETURNS boolean LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_name_is_shared(text, text) IS
'Returns true if another role has a pg_cron job of that name; false for callers that cannot use pg_cron';

CREATE FUNCTION _shedlock_cron_may_use(username text, lock_name text)
RETURNS boolean LANGUAGE C STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_may_use(text, text) IS
'Returns true if shedlock.role_prefix lets that role use locks of that name';

CREATE FUNCTION _shedlock_cron_declare(
	lock_name text,
	schedule text,
	fire text,
	username text,
	database text,
	keeps boolean,
	is_guarded boolean)
RETURNS text LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_declare(text, text, text, text, text, boolean, boolean) IS
'Declares the job that a pg_cron job is guarded as, in the name of its role, unless it is of another database; returns the schedule that is to fire it';

CREATE FUNCTION _shedlock_cron_forget(lock_name text, username text)
RETURNS boolean LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_forget(text, text) IS
'Forgets a job that is guarded no more, as far as the role of the pg_cron job may; returns false if it does not';

CREATE FUNCTION _shedlock_cron_timezone()
RETURNS text LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_timezone() IS
'Returns the time zone of pg_cron''s schedules: cron.timezone, or UTC for GMT and before pg_cron 1.5';

CREATE FUNCTION _shedlock_cron_own_schedule(lock_name text, fire text)
RETURNS text LANGUAGE C STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_own_schedule(text, text) IS
'Returns the schedule of a declared job in pg_cron''s words, or what fires it if it is not declared; raises an error if there are no such words';

CREATE FUNCTION _shedlock_cron_problem(lock_name text, fire text, jobid bigint)
RETURNS text LANGUAGE C STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_problem(text, text, bigint) IS
'Returns why pg_cron does not run a guarded job as it is declared; NULL if it does';

CREATE FUNCTION _shedlock_cron_job(
	job text,
	by_id boolean,
	missing_ok boolean,
	OUT jobid bigint,
	OUT job_name text,
	OUT schedule text,
	OUT command text,
	OUT database text,
	OUT username text)
RETURNS record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	ids bigint[];
	owners text;
BEGIN
	IF job IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'job must not be null';
	END IF;

	IF by_id THEN
		SELECT array_agg(j.jobid) INTO ids FROM cron.job j WHERE j.jobid::text = job;
	END IF;
	IF ids IS NULL THEN
		SELECT array_agg(j.jobid), string_agg(format('job %s of role "%s"', j.jobid, j.username), ', ' ORDER BY j.jobid)
		INTO ids, owners
		FROM cron.job j WHERE j.jobname::text = job;
	END IF;

	IF cardinality(ids) > 1 THEN
		RAISE EXCEPTION USING
			ERRCODE = 'ambiguous_alias',
			MESSAGE = format('job name "%s" is ambiguous', job),
			DETAIL = format('It is the name of %s.', owners),
			HINT = CASE WHEN by_id THEN 'Pass the ID of the job.'
						ELSE 'Use cron.unschedule with the ID of the job.' END;
	ELSIF ids IS NULL AND NOT missing_ok THEN
		RAISE EXCEPTION USING
			ERRCODE = 'undefined_object',
			MESSAGE = format('job "%s" does not exist', job),
			HINT = 'Pass the ID or name of a job in cron.job, which shows the jobs of other roles only to superusers.';
	END IF;

	SELECT j.jobid, j.jobname::text, j.schedule, j.command, j.database, j.username
	INTO jobid, job_name, schedule, command, database, username
	FROM cron.job j WHERE j.jobid = ids[1];
END
$$;

COMMENT ON FUNCTION _shedlock_cron_job(text, boolean, boolean) IS
'Returns the pg_cron job with this ID, or else this name';

-- old_name: name of the lock that guards the job so far, or NULL.  A run may hold it.
-- shown: job_name in messages.
CREATE FUNCTION _shedlock_cron_lock_name(
	old_name text,
	keep_any boolean,
	jobid bigint,
	job_name text,
	username text,
	is_shared boolean,
	shown text)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
DECLARE
	-- quoted, because either name can have a dot
	shared_name CONSTANT text := quote_ident(username) || '.' || quote_ident(job_name);
BEGIN
	-- Only superusers can use a name without a role before the colon.
	IF current_setting('shedlock.role_prefix', true) = 'on' THEN
		RETURN CASE WHEN keep_any AND old_name LIKE '%:%' THEN old_name
					ELSE username || ':' || coalesce(job_name, 'cron.' || jobid) END;
	ELSIF old_name IS NOT NULL AND (keep_any OR old_name IN (job_name, shared_name)) THEN
		RETURN old_name;
	ELSIF job_name IS NULL THEN
		RETURN 'cron:' || jobid;
	ELSIF NOT is_shared THEN
		RETURN job_name;
	END IF;

	RAISE NOTICE USING
		MESSAGE = format('lock of job "%s" is named "%s"', shown, quote_ident(username) || '.' || quote_ident(shown)),
		DETAIL = 'Another role has a job of the same name.';
	RETURN shared_name;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_lock_name(text, boolean, bigint, text, text, boolean, text) IS
'Returns the name of the lock that guards a pg_cron job';

-- job: its name in messages
CREATE FUNCTION _shedlock_cron_rewrite(
	job text,
	jobid bigint,
	job_name text,
	database text,
	username text,
	old_schedule text,
	old_command text,
	schedule text,
	command text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF command IS NULL OR (schedule, command) = (old_schedule, old_command) THEN
		RETURN false;
	ELSIF has_function_privilege('cron.alter_job(bigint, text, text, text, text, boolean)', 'EXECUTE') THEN
		PERFORM cron.alter_job(job_id => $2, schedule => $8, command => $9);
	ELSIF job_name IS NOT NULL AND username = current_user AND database = current_database() THEN
		-- replaces these two, and nothing else
		PERFORM cron.schedule($3, $8, $9);
	ELSE
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('permission denied to change job "%s"', job),
			DETAIL = 'Only roles that can execute cron.alter_job can change a job that has no name, or that belongs to another role or database.',
			HINT = format('An administrator can GRANT EXECUTE ON FUNCTION cron.alter_job TO %I.', current_user);
	END IF;
	RAISE LOG USING MESSAGE = format('command of job "%s" changed by role "%s"', job, current_user);
	RETURN true;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_rewrite(text, bigint, text, text, text, text, text, text, text) IS
'Replaces the schedule and the command of a pg_cron job; returns false if they stay, or the command is NULL';

-- The CALL of a job is text, which names the schema of the extension.  The owner
-- of that schema can rename it, and put a shedlock_run of its own into a new schema
-- of that name.  The job would call that, with the privileges of the job's role.
-- A member of a role counts as that role here, because it can become that role.
-- A role that can read or write files of the server, or run programs on it, counts
-- as a superuser.
-- A job in another database calls what has that name there.  This database knows
-- only the owner of that database, who is pg_database_owner there and can create
-- schemas; it does not know which other roles can, or own the schema.
-- call_schema: schema that the CALL names; NULL for that of the extension.
-- refused: the job that must not be created with the privileges of a superuser, or NULL.
CREATE FUNCTION _shedlock_cron_danger(
	lock_table regclass,
	call_schema text,
	username text,
	database text,
	refused text DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	r record;
	p record;
	danger text;
BEGIN
	SELECT n.oid AS nsp, n.nspname, d.datname = current_database() AS here, a.oid AS owner, a.rolname AS owner_name, j.oid AS job_role
	INTO r
	FROM pg_class c
		 JOIN pg_namespace n ON n.oid = c.relnamespace
		 JOIN pg_database d ON d.datname = database
		 JOIN pg_roles a ON a.oid = CASE
			WHEN d.datname = current_database() AND n.nspowner <> 'pg_database_owner'::regrole THEN n.nspowner
			ELSE d.datdba END
		 LEFT JOIN pg_roles j ON j.rolname = username
	WHERE c.oid = lock_table;

	SELECT a.oid, a.rolname INTO p
	FROM pg_roles a
	WHERE (a.rolsuper OR a.rolname IN ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files')) AND
		  pg_has_role(r.job_role, a.oid, 'MEMBER') AND NOT pg_has_role(r.owner, a.oid, 'MEMBER') AND
		  NOT EXISTS (SELECT FROM pg_roles s WHERE s.rolsuper AND pg_has_role(r.owner, s.oid, 'MEMBER'))
	ORDER BY a.oid <> r.job_role, a.rolsuper DESC, a.rolname
	LIMIT 1;
	IF FOUND THEN
		danger := format('role "%s" can replace the schema of shedlock_run in database "%s", which the job calls as ',
						 r.owner_name, database) ||
			CASE p.oid WHEN r.job_role THEN format('superuser "%s"', username)
					   ELSE format('role "%s", a member of "%s"', username, p.rolname) END;
	END IF;
	IF danger IS NOT NULL AND refused IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('job "%s" cannot be guarded because it runs with the privileges of a superuser', refused),
			DETAIL = upper(left(danger, 1)) || substr(danger, 2) || '.',
			HINT = 'Make a superuser the owner of the extension''s schema, or of the other database that the job runs in: ALTER SCHEMA ... OWNER TO ..., ALTER DATABASE ... OWNER TO ... .  Or let another role own the job.';
	END IF;
	RETURN CASE
		WHEN danger IS NOT NULL THEN danger
		WHEN r.here AND call_schema <> r.nspname THEN
			format('calls shedlock_run of schema "%s", but the extension is in "%s"; shedlock_cron_guard corrects that',
				   call_schema, r.nspname)
		WHEN r.here AND (SELECT count(*) FROM pg_proc f WHERE f.pronamespace = r.nsp AND f.proname = 'shedlock_run') > 1 THEN
			format('schema "%s" has another shedlock_run: the call can fail as not unique', r.nspname)
		WHEN NOT pg_has_role(r.owner, r.job_role, 'MEMBER') THEN
			format('role "%s" can replace the schema of shedlock_run in database "%s", and so run anything as role "%s"',
				   r.owner_name, database, username) END;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_danger(regclass, text, text, text, text) IS
'Returns which role can make a guarded job call another procedure, or what else is wrong with its call; NULL if nothing is; raises an error for a job that must not be created';

CREATE FUNCTION _shedlock_cron_wanted(
	job_name text,
	INOUT database text,
	INOUT username text,
	INOUT active boolean,
	OUT old_id bigint,
	OUT old_command text)
RETURNS record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
	IF job_name IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'job name must not be null';
	ELSIF octet_length(job_name) > 63 AND EXISTS (
		SELECT FROM pg_attribute a
		WHERE a.attrelid = 'cron.job'::regclass AND a.attname = 'jobname' AND a.atttypid = 'name'::regtype)
	THEN
		RAISE EXCEPTION USING
			ERRCODE = 'invalid_parameter_value',
			MESSAGE = 'job name is too long',
			DETAIL = 'pg_cron before version 1.5 truncates the names of jobs to 63 bytes.';
	END IF;

	database := coalesce(database, current_database());
	username := coalesce(username, current_user);
	active := coalesce(active, true);
	SELECT j.jobid, j.command INTO old_id, old_command
	FROM cron.job j
	WHERE j.jobname::text = job_name AND j.username = username;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_wanted(text, text, text, boolean) IS
'Checks the arguments of shedlock_cron_schedule, fills in defaults, and returns the job that it replaces';

CREATE FUNCTION _shedlock_cron_put(
	job_name text,
	schedule text,
	command text,
	database text,
	username text,
	active boolean,
	old_id bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	id bigint;
BEGIN
	IF username = current_user AND (old_id IS NOT NULL OR (database = current_database() AND active)) THEN
		id := cron.schedule(job_name, schedule, command);

		-- it does not change what it has no arguments for
		IF EXISTS (SELECT FROM cron.job j
				   WHERE j.jobid = id AND (j.database <> database OR j.active <> active))
		THEN
			PERFORM cron.alter_job(job_id => id, database => database, active => active);
		END IF;
	ELSIF old_id IS NOT NULL THEN
		PERFORM cron.alter_job(job_id => old_id, schedule => schedule, command => command,
							   database => database, active => active);
		id := old_id;
	ELSE
		id := cron.schedule_in_database(job_name, schedule, command, database,
										nullif(username, current_user), active);
	END IF;
	RAISE LOG USING MESSAGE = format('job "%s" scheduled by role "%s"', job_name, current_user);
	RETURN id;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_put(text, text, text, text, text, boolean, bigint) IS
'Creates or replaces a pg_cron job; returns its ID';

CREATE FUNCTION _shedlock_cron_remove(jobid bigint, job_name text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF jobid IS NULL OR NOT cron.unschedule(jobid) THEN
		RETURN false;
	END IF;
	RAISE LOG USING MESSAGE = format('job "%s" unscheduled by role "%s"', job_name, current_user);
	RETURN true;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_remove(bigint, text) IS
'Removes a pg_cron job; returns false for NULL';

CREATE FUNCTION shedlock_cron_schedule(
	job_name text,
	schedule text,
	command text,
	database text DEFAULT NULL,
	username text DEFAULT NULL,
	active boolean DEFAULT true,
	fire text DEFAULT NULL)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT b.jobid
	FROM _shedlock_cron_wanted($1, $4, $5, $6) w
		 CROSS JOIN LATERAL _shedlock_guarded_call(w.old_command) g
		 CROSS JOIN LATERAL _shedlock_cron_name_is_shared($1, w.username) s(is_shared)
		 CROSS JOIN LATERAL _shedlock_cron_lock_name(g.name, false, NULL::bigint, $1, w.username, s.is_shared, $1) n(lock_name)
		 CROSS JOIN LATERAL _shedlock_cron_call(n.lock_name, $3, NULL::text) c(call)
		 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, NULL::text, w.username, w.database, $1) x
		 CROSS JOIN LATERAL _shedlock_cron_declare(n.lock_name, $2, $7, w.username, w.database, false, false) p(fire)
		 CROSS JOIN LATERAL _shedlock_cron_put($1, p.fire, c.call, w.database, w.username, w.active, w.old_id) b(jobid);
END;

COMMENT ON FUNCTION shedlock_cron_schedule(text, text, text, text, text, boolean, text) IS
'Creates or replaces a guarded pg_cron job, and declares it; returns its ID';

CREATE FUNCTION shedlock_cron_unschedule(job_name text)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT r.done
	FROM _shedlock_cron_job($1, false, true) j
		 CROSS JOIN LATERAL _shedlock_guarded_call(j.command) g
		 CROSS JOIN LATERAL _shedlock_cron_remove(j.jobid, $1) r(done)
		 CROSS JOIN LATERAL _shedlock_cron_forget(
			CASE WHEN r.done AND j.database OPERATOR(pg_catalog.=) pg_catalog.current_database() THEN g.name END, j.username) f;
END;

COMMENT ON FUNCTION shedlock_cron_unschedule(text) IS
'Removes a pg_cron job, and forgets the job; returns false if there is none of that name';

CREATE FUNCTION shedlock_cron_guard(job text, fire text DEFAULT NULL)
RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT n.lock_name
	FROM _shedlock_cron_job($1, true, false) j
		 CROSS JOIN LATERAL _shedlock_guarded_call(j.command) g
		 CROSS JOIN LATERAL _shedlock_shown(COALESCE(j.job_name, j.jobid::text)) w(job)
		 CROSS JOIN LATERAL _shedlock_cron_name_is_shared(j.job_name, j.username) s(is_shared)
		 CROSS JOIN LATERAL _shedlock_cron_lock_name(g.name, true, j.jobid, j.job_name, j.username, s.is_shared, w.job) n(lock_name)
		 CROSS JOIN LATERAL _shedlock_cron_call(n.lock_name, COALESCE(g.command, j.command), j.command) c(call)
		 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, NULL::text, j.username, j.database, w.job) x
		 CROSS JOIN LATERAL _shedlock_cron_declare(n.lock_name, j.schedule, $2, j.username, j.database, true, g.name IS NOT NULL) p(fire)
		 CROSS JOIN LATERAL _shedlock_cron_rewrite(w.job, j.jobid, j.job_name, j.database, j.username, j.schedule, j.command,
			p.fire, c.call) r(done);
END;

COMMENT ON FUNCTION shedlock_cron_guard(text, text) IS
'Guards a pg_cron job, declares it unless it is declared, and lets pg_cron fire it as it is declared; returns the name of its lock';

CREATE FUNCTION shedlock_cron_unguard(job text)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT r.done
	FROM _shedlock_cron_job($1, true, false) j
		 CROSS JOIN LATERAL _shedlock_guarded_call(j.command) g
		 CROSS JOIN LATERAL (
			SELECT CASE WHEN j.database OPERATOR(pg_catalog.=) pg_catalog.current_database() THEN g.name END AS name) w
		 CROSS JOIN LATERAL _shedlock_cron_own_schedule(w.name, j.schedule) o(schedule)
		 CROSS JOIN LATERAL _shedlock_cron_rewrite(_shedlock_shown(COALESCE(j.job_name, j.jobid::text)),
			j.jobid, j.job_name, j.database, j.username, j.schedule, j.command,
			COALESCE(o.schedule, j.schedule), g.command) r(done)
		 CROSS JOIN LATERAL _shedlock_cron_forget(CASE WHEN r.done THEN w.name END, j.username) f;
END;

COMMENT ON FUNCTION shedlock_cron_unguard(text) IS
'Restores the original command and schedule of a guarded pg_cron job, and forgets the job; returns false if it was not guarded';

CREATE FUNCTION _shedlock_cron_rows(
	readable boolean,
	OUT jobid bigint,
	OUT job_name text,
	OUT schedule text,
	OUT command text,
	OUT database text,
	OUT username text,
	OUT active boolean)
RETURNS SETOF record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 40
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	IF readable THEN
		RETURN QUERY
			SELECT j.jobid, j.jobname::text, j.schedule, j.command, j.database, j.username, j.active
			FROM cron.job j;
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_rows(boolean) IS
'Returns the pg_cron jobs that the caller can see';

-- pg_cron records no start of a job that it could not connect for.
CREATE FUNCTION _shedlock_cron_last_run(
	job bigint,
	OUT started_at timestamptz,
	OUT ended_at timestamptz,
	OUT outcome text)
RETURNS record
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF has_table_privilege('cron.job_run_details', 'SELECT') THEN
		SELECT d.start_time, d.end_time, d.status
		INTO started_at, ended_at, outcome
		FROM cron.job_run_details d
		WHERE d.jobid = job AND d.start_time IS NOT NULL
		ORDER BY d.runid DESC
		LIMIT 1;
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_last_run(bigint) IS
'Returns what pg_cron has recorded of the last run of a job, if the caller can see that';

-- pg_cron's jobs, each with the declared job of the same name.  Most are called in the same
-- way, so what is wrong with a call is looked up once.  A call can name any schema, and what is
-- wrong with it is shown to those who watch, too.
CREATE VIEW shedlock_cron_jobs AS
WITH job AS MATERIALIZED (
	SELECT r AS j, c AS g
	FROM _shedlock_cron_rows(_shedlock_cron_is_readable()) r
		 CROSS JOIN LATERAL _shedlock_guarded_call(r.command) c),
way AS MATERIALIZED (
	SELECT w.schema_name, w.username, w.database, p.problem
	FROM (SELECT DISTINCT (job.g).schema_name, (job.j).username, (job.j).database
		  FROM job WHERE (job.g).name IS NOT NULL) w
		 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, w.schema_name, w.username, w.database, NULL::text) p(problem))
SELECT j.jobid,
	   j.job_name,
	   g.name IS NOT NULL AS guarded,
	   g.name,
	   COALESCE(d.schedule, j.schedule) AS schedule,
	   COALESCE(d.time_zone, _shedlock_cron_timezone()) AS time_zone,
	   CASE WHEN j.schedule OPERATOR(pg_catalog.<>) d.schedule THEN j.schedule END AS fire,
	   j.database,
	   j.username,
	   j.active,
	   COALESCE(g.command, j.command) AS command,
	   d.state,
	   d.last_tick,
	   COALESCE(d.last_outcome, c.outcome) AS last_outcome,
	   COALESCE(d.last_started_at, c.started_at) AS last_started_at,
	   COALESCE(d.last_duration, c.ended_at OPERATOR(pg_catalog.-) c.started_at) AS last_duration,
	   d.next_due,
	   d.overdue,
	   _shedlock_shown(CASE
			WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_roles a WHERE a.rolname OPERATOR(pg_catalog.=) j.username) THEN
				pg_catalog.format('role "%s" is gone: pg_cron''s launcher fails at this job each second, and starts no job of any role', j.username)
			WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_database a WHERE a.datname OPERATOR(pg_catalog.=) j.database) THEN
				pg_catalog.format('database "%s" is gone: pg_cron cannot start it', j.database)
			WHEN x.problem IS NOT NULL THEN x.problem
			WHEN g.name IS NULL THEN NULL
			WHEN NOT h.here THEN
				pg_catalog.format('unknown: it runs in database "%s", and how it is doing can be seen only there', j.database)
			ELSE _shedlock_cron_problem(g.name, j.schedule, j.jobid) END) AS problem
FROM job
	 CROSS JOIN LATERAL (SELECT (job.j).*) j
	 CROSS JOIN LATERAL (SELECT (job.g).*) g
	 CROSS JOIN LATERAL (SELECT j.database OPERATOR(pg_catalog.=) pg_catalog.current_database() AS here) h
	 CROSS JOIN LATERAL _shedlock_cron_last_run(CASE WHEN g.name IS NULL THEN j.jobid END) c
	 LEFT JOIN shedlock_jobs d ON h.here AND d.name OPERATOR(pg_catalog.=) g.name
	 LEFT JOIN way x ON g.name IS NOT NULL AND x.schema_name IS NOT DISTINCT FROM g.schema_name AND
		x.username OPERATOR(pg_catalog.=) j.username AND x.database OPERATOR(pg_catalog.=) j.database;

COMMENT ON VIEW shedlock_cron_jobs IS
'The reader''s pg_cron jobs, for superusers those of all roles, beside what shedlock_jobs shows of those that are guarded';
COMMENT ON COLUMN shedlock_cron_jobs.jobid IS 'Number of the job in cron.job';
COMMENT ON COLUMN shedlock_cron_jobs.job_name IS 'Name of the job in cron.job; NULL if it has none';
COMMENT ON COLUMN shedlock_cron_jobs.guarded IS 'Whether its command is a CALL of shedlock_run with constants';
COMMENT ON COLUMN shedlock_cron_jobs.name IS 'Name of the job in shedlock_jobs, and of its lock; NULL for a job that is not guarded';
COMMENT ON COLUMN shedlock_cron_jobs.schedule IS 'Schedule of the job as it is declared; pg_cron''s if it is not';
COMMENT ON COLUMN shedlock_cron_jobs.time_zone IS 'Time zone of the schedule';
COMMENT ON COLUMN shedlock_cron_jobs.fire IS 'Schedule by which pg_cron fires the job, if that is another one';
COMMENT ON COLUMN shedlock_cron_jobs.database IS
'Database that the job runs in; a guarded job of another one can be seen in shedlock_jobs there';
COMMENT ON COLUMN shedlock_cron_jobs.username IS 'Role that the job runs as';
COMMENT ON COLUMN shedlock_cron_jobs.active IS 'Whether pg_cron starts the job';
COMMENT ON COLUMN shedlock_cron_jobs.command IS 'The command, without the CALL around it';
COMMENT ON COLUMN shedlock_cron_jobs.state IS 'This and what follows up to overdue is as in shedlock_jobs';
COMMENT ON COLUMN shedlock_cron_jobs.last_tick IS 'The latest tick that was claimed or run';
COMMENT ON COLUMN shedlock_cron_jobs.last_outcome IS
'Outcome of its last run; for a job that is not guarded, this and the next two are those of the last run in cron.job_run_details';
COMMENT ON COLUMN shedlock_cron_jobs.last_started_at IS 'When that run began';
COMMENT ON COLUMN shedlock_cron_jobs.last_duration IS 'How long it took';
COMMENT ON COLUMN shedlock_cron_jobs.next_due IS 'The next tick';
COMMENT ON COLUMN shedlock_cron_jobs.overdue IS 'For how long a run could have begun that has not';
COMMENT ON COLUMN shedlock_cron_jobs.problem IS
'That its role or database is gone, which role could make the job call another procedure, that the job calls another schema or there is another shedlock_run, that it is not declared, or that pg_cron does not fire it as it is declared; NULL if there is no problem';
