/* pg_cron */

-- A call must not find the extension's objects by the name of their schema,
-- because the owner of the schema can rename it and create another one of that
-- name.  So the functions that people call, and the view, have bodies that the
-- server parsed when they were created.  A parsed body cannot name objects of
-- pg_cron, which may not be installed yet.  A plpgsql body can, and calls nothing
-- but pg_catalog and cron; its arguments bring what it needs of the extension.  In
-- a parsed body, a function whose arguments come from another one is called after
-- that one.

-- pg_cron stores nothing but the job's command, so the CALL keeps all that is
-- known about a guarded job: the name of its lock, the durations, and the original
-- command.
CREATE FUNCTION _shedlock_guarded_call(
	job_command text,
	OUT name text,
	OUT command text,
	OUT lock_at_most_for interval,
	OUT lock_at_least_for interval,
	OUT once_every interval,
	OUT on_busy text,
	OUT schema_name text,
	OUT scheduled_at timestamptz)
RETURNS record LANGUAGE C STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_guarded_call(text) IS
'Returns the arguments of a command that is a CALL of shedlock_run with constants; nulls for every other command';

CREATE FUNCTION _shedlock_cron_call(
	name text,
	command text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL,
	on_busy text DEFAULT NULL,
	scheduled_at timestamptz DEFAULT NULL)
RETURNS text LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_call(text, text, interval, interval, interval, text, timestamptz) IS
'Returns the CALL of shedlock_run with these arguments; raises the errors that shedlock_run would raise before it runs the command';

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

CREATE FUNCTION _shedlock_may_use(lock_name text)
RETURNS boolean LANGUAGE C STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_may_use(text) IS
'Returns true if shedlock.role_prefix lets the caller use the lock, or if the caller sees all locks as a member of pg_read_all_stats';

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
			HINT = CASE WHEN by_id THEN 'Pass the number of the job.'
						ELSE 'Use cron.unschedule with the number of the job.' END;
	ELSIF ids IS NULL AND NOT missing_ok THEN
		RAISE EXCEPTION USING
			ERRCODE = 'undefined_object',
			MESSAGE = format('job "%s" does not exist', job),
			HINT = 'Pass the number or name of a job in cron.job, which shows the jobs of other roles only to superusers.';
	END IF;

	SELECT j.jobid, j.jobname::text, j.schedule, j.command, j.database, j.username
	INTO jobid, job_name, schedule, command, database, username
	FROM cron.job j WHERE j.jobid = ids[1];
END
$$;

COMMENT ON FUNCTION _shedlock_cron_job(text, boolean, boolean) IS
'Returns the pg_cron job with this number, or else this name';

-- old_name: name of the lock that guards the job so far, or NULL.  A run may hold it.
CREATE FUNCTION _shedlock_cron_lock_name(
	old_name text,
	keep_any boolean,
	jobid bigint,
	job_name text,
	username text,
	is_shared boolean)
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
		MESSAGE = format('lock of job "%s" is named "%s"', job_name, shared_name),
		DETAIL = 'Another role has a job of the same name.';
	RETURN shared_name;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_lock_name(text, boolean, bigint, text, text, boolean) IS
'Returns the name of the lock that guards a pg_cron job';

CREATE FUNCTION _shedlock_cron_advise(
	job text,
	lock_name text,
	lock_at_most_for interval,
	database text,
	once_every interval,
	lost timestamptz,
	lock_table regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
BEGIN
	IF lock_at_most_for IS NULL THEN
		RAISE NOTICE USING
			MESSAGE = format('lock "%s" has no time limit: a run holds it for as long as it takes', lock_name),
			HINT = 'Pass lock_at_most_for to cancel runs that take longer.';
	END IF;
	IF database <> current_database() THEN
		RAISE WARNING USING
			MESSAGE = format('job "%s" runs in database "%s"', job, database),
			DETAIL = 'The lock and the history of the job are in that database.',
			HINT = format('Create the extension there, too: CREATE EXTENSION shedlock SCHEMA %I.',
						  (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = lock_table));
	END IF;
	IF lost IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = format('job "%s" will be skipped at %s', job, lost),
			DETAIL = format('Periods of %s are counted in UTC.  When summer time begins, that run and the previous one are in the same period.', once_every),
			HINT = format('Pass half of that period: once_every => ''%s''.', once_every / 2);
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_advise(text, text, interval, text, interval, timestamptz, regclass) IS
'Warns of what the guard does not cover: no limit, another database, a tick lost to summer time';

CREATE FUNCTION _shedlock_cron_rewrite(
	jobid bigint,
	job_name text,
	schedule text,
	database text,
	username text,
	command text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF $6 IS NULL THEN
		RETURN false;
	ELSIF has_function_privilege('cron.alter_job(bigint, text, text, text, text, boolean)', 'EXECUTE') THEN
		PERFORM cron.alter_job(job_id => $1, command => $6);
	ELSIF $2 IS NOT NULL AND $5 = current_user AND $4 = current_database() THEN
		-- replaces the command, and nothing else
		PERFORM cron.schedule($2, $3, $6);
	ELSE
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('permission denied to change job "%s"', coalesce($2, $1::text)),
			DETAIL = 'Only roles that can execute cron.alter_job can change a job that has no name, or that belongs to another role or database.',
			HINT = format('An administrator can GRANT EXECUTE ON FUNCTION cron.alter_job TO %I.', current_user);
	END IF;
	RAISE LOG USING MESSAGE = format('command of job "%s" changed by role "%s"', coalesce($2, $1::text), current_user);
	RETURN true;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_rewrite(bigint, text, text, text, text, text) IS
'Replaces the command of a pg_cron job; returns false if the new command is NULL';

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
-- danger: why the job must not be created; problem: the same, or what else is wrong.
CREATE FUNCTION _shedlock_cron_danger(
	lock_table regclass,
	call_schema text,
	username text,
	database text,
	OUT danger text,
	OUT problem text)
RETURNS record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	r record;
	p record;
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
	problem := CASE
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

COMMENT ON FUNCTION _shedlock_cron_danger(regclass, text, text, text) IS
'Returns which role can make a guarded job call another procedure, or what else is wrong with its call; NULL if nothing is';

CREATE FUNCTION _shedlock_cron_refuse(job text, danger text)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF danger IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('job "%s" cannot be guarded because it runs with the privileges of a superuser', job),
			DETAIL = upper(left(danger, 1)) || substr(danger, 2) || '.',
			HINT = 'Make a superuser the owner of the extension''s schema, or of the other database that the job runs in: ALTER SCHEMA ... OWNER TO ..., ALTER DATABASE ... OWNER TO ... .  Or let another role own the job.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_refuse(text, text) IS
'Raises an error if the danger is not NULL';

CREATE FUNCTION _shedlock_cron_wanted(
	job_name text,
	INOUT schedule text,
	INOUT database text,
	INOUT username text,
	INOUT active boolean,
	OUT old_id bigint,
	OUT old_command text,
	OUT same_schedule boolean)
RETURNS record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
#variable_conflict use_variable
BEGIN
	IF job_name IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'job name must not be null';
	ELSIF schedule IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'schedule must not be null';
	ELSIF octet_length(job_name) > 63 AND EXISTS (
		SELECT FROM pg_attribute a
		WHERE a.attrelid = 'cron.job'::regclass AND a.attname = 'jobname' AND a.atttypid = 'name'::regtype)
	THEN
		RAISE EXCEPTION USING
			ERRCODE = 'invalid_parameter_value',
			MESSAGE = 'job name is too long',
			DETAIL = 'pg_cron before version 1.5 truncates the names of jobs to 63 bytes.';
	END IF;

	-- pg_cron accepts these two, but since version 1.6.0 assigns them to no month, so
	-- that they never fire.
	IF schedule ~ '^[ \t\n]*@(yearly|annually)([ \t\n]|$)' THEN
		schedule := '0 0 1 1 *';
	END IF;

	database := coalesce(database, current_database());
	username := coalesce(username, current_user);
	active := coalesce(active, true);
	SELECT j.jobid, j.command, (j.schedule, j.database, j.active) = (schedule, database, active)
	INTO old_id, old_command, same_schedule
	FROM cron.job j
	WHERE j.jobname::text = job_name AND j.username = username;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_wanted(text, text, text, text, boolean) IS
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
'Creates or replaces a pg_cron job; returns its number';

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
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL,
	database text DEFAULT NULL,
	username text DEFAULT NULL,
	active boolean DEFAULT true)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT p.jobid
	FROM _shedlock_cron_wanted($1, $2, $7, $8, $9) w
		 CROSS JOIN LATERAL _shedlock_guarded_call(w.old_command) g
		 CROSS JOIN LATERAL _shedlock_cron_name_is_shared($1, w.username) s(is_shared)
		 CROSS JOIN LATERAL _shedlock_cron_lock_name(g.name, false, NULL::bigint, $1, w.username, s.is_shared) n(lock_name)
		 CROSS JOIN LATERAL _shedlock_cron_call(n.lock_name, $3, $4, $5, $6, NULL::text,
			CASE WHEN w.same_schedule THEN g.scheduled_at END) c(call)
		 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, NULL::text, w.username, w.database) x
		 CROSS JOIN LATERAL _shedlock_cron_refuse($1, x.danger) d
		 CROSS JOIN LATERAL _shedlock_cron_put($1, w.schedule, c.call, w.database, w.username, w.active, w.old_id) p(jobid)
		 CROSS JOIN LATERAL _shedlock_cron_advise($1, n.lock_name, $4, w.database, $6,
			_shedlock_cron_lost_tick(w.schedule, $6, pg_catalog.clock_timestamp()), 'shedlock'::regclass) a;
END;

COMMENT ON FUNCTION shedlock_cron_schedule(text, text, text, interval, interval, interval, text, text, boolean) IS
'Creates or replaces a guarded pg_cron job; returns its number';

CREATE FUNCTION shedlock_cron_unschedule(job_name text)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT r.done
	FROM _shedlock_cron_job($1, false, true) j
		 CROSS JOIN LATERAL _shedlock_cron_remove(j.jobid, $1) r(done);
END;

COMMENT ON FUNCTION shedlock_cron_unschedule(text) IS
'Removes a pg_cron job; returns false if there is none of that name';

CREATE FUNCTION _shedlock_cron_changes(
	job text,
	was_guarded boolean,
	old_durations interval[],
	new_durations interval[])
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	changes CONSTANT text := (
		SELECT string_agg(format('%s %s instead of %s', u.name, u.after, coalesce(u.before::text, 'none')), ', ' ORDER BY u.n)
		FROM unnest('{lock_at_most_for,lock_at_least_for,once_every}'::text[], old_durations, new_durations)
			 WITH ORDINALITY u(name, before, after, n)
		WHERE u.after IS DISTINCT FROM u.before);
BEGIN
	IF was_guarded AND changes IS NOT NULL THEN
		RAISE NOTICE USING
			MESSAGE = format('job "%s" now has %s', job, changes),
			HINT = 'Durations that are not passed stay as they are.  To remove one, call shedlock_cron_unguard first.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_changes(text, boolean, interval[], interval[]) IS
'Raises a NOTICE that names the changed durations of a guarded job';

CREATE FUNCTION shedlock_cron_guard(
	job text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL)
RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT n.lock_name
	FROM _shedlock_cron_job($1, true, false) j
		 CROSS JOIN LATERAL _shedlock_guarded_call(j.command) g
		 CROSS JOIN LATERAL (
			SELECT COALESCE($2, g.lock_at_most_for) AS at_most,
				   COALESCE($3, g.lock_at_least_for) AS at_least,
				   COALESCE($4, g.once_every) AS every,
				   COALESCE(j.job_name, j.jobid::text) AS job) w
		 CROSS JOIN LATERAL _shedlock_cron_name_is_shared(j.job_name, j.username) s(is_shared)
		 CROSS JOIN LATERAL _shedlock_cron_lock_name(g.name, true, j.jobid, j.job_name, j.username, s.is_shared) n(lock_name)
		 CROSS JOIN LATERAL _shedlock_cron_call(n.lock_name, COALESCE(g.command, j.command), w.at_most, w.at_least, w.every,
			g.on_busy, g.scheduled_at) c(call)
		 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, NULL::text, j.username, j.database) x
		 CROSS JOIN LATERAL _shedlock_cron_refuse(w.job, x.danger) d
		 CROSS JOIN LATERAL _shedlock_cron_rewrite(j.jobid, j.job_name, j.schedule, j.database, j.username, c.call) r(done)
		 CROSS JOIN LATERAL _shedlock_cron_changes(w.job, g.name IS NOT NULL,
			ARRAY[g.lock_at_most_for, g.lock_at_least_for, g.once_every], ARRAY[w.at_most, w.at_least, w.every]) t
		 CROSS JOIN LATERAL _shedlock_cron_advise(w.job, n.lock_name, w.at_most, j.database, w.every,
			_shedlock_cron_lost_tick(j.schedule, w.every, pg_catalog.clock_timestamp()), 'shedlock'::regclass) a;
END;

COMMENT ON FUNCTION shedlock_cron_guard(text, interval, interval, interval) IS
'Guards a pg_cron job with a lock, or changes those durations of a guarded job that are not NULL; returns the name of the lock';

CREATE FUNCTION shedlock_cron_unguard(job text)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT r.done
	FROM _shedlock_cron_job($1, true, false) j
		 CROSS JOIN LATERAL _shedlock_guarded_call(j.command) g
		 CROSS JOIN LATERAL _shedlock_cron_rewrite(j.jobid, j.job_name, j.schedule, j.database, j.username, g.command) r(done);
END;

COMMENT ON FUNCTION shedlock_cron_unguard(text) IS
'Restores the original command of a guarded pg_cron job; returns false if the job was not guarded';

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

-- A job is overdue if no run has started since it was last due, 90 seconds ago or
-- more, and nothing explains that: a run that still goes on, a pause, the at-least
-- time, a tick that one of its runs has claimed, or that it was scheduled later.  A
-- claim by shedlock_once also prevents runs, and is shown, but explains nothing.
-- Runs that the reader cannot see in shedlock_history count as well.  The barrier
-- keeps functions in the reader's WHERE from seeing the rows of other names.
CREATE VIEW shedlock_jobs WITH (security_barrier) AS
SELECT j.jobid,
	   j.job_name,
	   j.schedule,
	   j.database,
	   j.username,
	   j.active,
	   g.name AS lock_name,
	   g.command,
	   g.lock_at_most_for,
	   g.lock_at_least_for,
	   g.once_every,
	   h.started_at AS last_started,
	   h.ended_at AS last_ended,
	   h.outcome AS last_outcome,
	   h.message AS last_message,
	   t.tick AS tick_claimed,
	   t.claimed_by,
	   t.next_tick,
	   CASE WHEN d.shown THEN COALESCE(s.state, 'free') END AS lock_state,
	   o.overdue,
	   CASE WHEN x.problem IS NOT NULL THEN x.problem
			WHEN NOT d.here THEN
				pg_catalog.format('runs in database "%s": whether it is overdue can be seen only there', j.database)
			WHEN NOT d.shown THEN
				pg_catalog.format('shedlock.role_prefix reserves lock "%s" for other roles: its state is not shown', g.name)
			WHEN o.overdue IS NOT NULL THEN NULL
			WHEN d.due IS NULL THEN
				pg_catalog.format('unknown: cannot tell when schedule "%s" was last due', j.schedule)
			ELSE 'unknown: it never ran, and it is not known when it was scheduled; shedlock_cron_guard records that' END AS problem
FROM _shedlock_cron_rows(_shedlock_cron_is_readable()) j
	 CROSS JOIN LATERAL _shedlock_guarded_call(j.command) g
	 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, g.schema_name, j.username, j.database) x
	 CROSS JOIN LATERAL (
		SELECT j.database OPERATOR(pg_catalog.=) pg_catalog.current_database() AS here,
			   j.database OPERATOR(pg_catalog.=) pg_catalog.current_database() AND
			   _shedlock_may_use(g.name) AS shown,
			   _shedlock_cron_last_due(j.schedule, pg_catalog.clock_timestamp()
													OPERATOR(pg_catalog.-) '90 seconds'::interval) AS due) d
	 LEFT JOIN LATERAL (
		-- With = the planner could read all tokens backward, every one of them for a
		-- job that never ran.
		SELECT r.token, r.started_at
		FROM shedlock_run_log r
		WHERE r.name OPERATOR(pg_catalog.>=) g.name AND
			  r.name OPERATOR(pg_catalog.<=) g.name AND d.shown
		ORDER BY r.name DESC, r.token DESC
		LIMIT 1) l ON true
	 LEFT JOIN LATERAL (
		SELECT r.started_at, r.ended_at, r.outcome, r.message
		FROM shedlock_history r
		WHERE r.token OPERATOR(pg_catalog.=) l.token
		LIMIT 1) h ON true
	 LEFT JOIN LATERAL (
		SELECT c.tick,
			   -- without a client address, which pg_stat_activity would hide, too; with
			   -- shedlock.role_prefix, only for a run that shedlock_history shows
			   CASE WHEN pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') THEN c.claimed_by::text
					WHEN NOT COALESCE(pg_catalog.current_setting('shedlock.role_prefix', true)::boolean, false) OR
						 EXISTS (SELECT FROM shedlock_history r
								 WHERE r.token OPERATOR(pg_catalog.=) c.token AND
									   r.name OPERATOR(pg_catalog.=) c.name)
					THEN pg_catalog.regexp_replace(c.claimed_by::text,
						'@[[:xdigit:]]*[.:][[:xdigit:].:]*(%[^ ]+)?( #[0-9]+)?$', E'\\2') END AS claimed_by,
			   EXISTS (SELECT FROM shedlock_run_log r
					   WHERE r.token OPERATOR(pg_catalog.=) c.token AND
							 r.name OPERATOR(pg_catalog.=) c.name) AS by_run,
			   -- ticks are counted in UTC
			   pg_catalog.timezone('UTC', pg_catalog.timezone('UTC', c.tick)
										  OPERATOR(pg_catalog.+) g.once_every) AS next_tick
		FROM shedlock_tick c
		WHERE c.name OPERATOR(pg_catalog.=) g.name AND d.shown) t ON true
	 LEFT JOIN shedlock_locks s ON s.name OPERATOR(pg_catalog.=) g.name AND d.shown
	 CROSS JOIN LATERAL (
		SELECT CASE WHEN NOT j.active THEN false
					WHEN s.state OPERATOR(pg_catalog.=) 'held' AND s.kind OPERATOR(pg_catalog.=) 'run' THEN false
					WHEN s.state OPERATOR(pg_catalog.=) 'paused' OR s.state OPERATOR(pg_catalog.=) 'kept' THEN false
					WHEN t.by_run AND d.due OPERATOR(pg_catalog.+)
						 LEAST(g.once_every OPERATOR(pg_catalog./) 4::double precision, '30 seconds'::interval)
						 OPERATOR(pg_catalog.<) t.next_tick THEN false
					WHEN d.shown THEN GREATEST(l.started_at, g.scheduled_at) OPERATOR(pg_catalog.<) d.due
			   END AS overdue) o
WHERE g.name IS NOT NULL;

COMMENT ON VIEW shedlock_jobs IS
'The reader''s guarded pg_cron jobs, for superusers those of all roles, with their last run and whether they are overdue';
COMMENT ON COLUMN shedlock_jobs.jobid IS 'Number of the job in cron.job';
COMMENT ON COLUMN shedlock_jobs.job_name IS 'Name of the job; NULL if it has none';
COMMENT ON COLUMN shedlock_jobs.schedule IS 'Schedule of the job';
COMMENT ON COLUMN shedlock_jobs.database IS
'Database that the job runs in; the columns from last_started on are NULL if it is another one';
COMMENT ON COLUMN shedlock_jobs.username IS 'Role that the job runs as';
COMMENT ON COLUMN shedlock_jobs.active IS 'Whether pg_cron starts the job';
COMMENT ON COLUMN shedlock_jobs.lock_name IS 'Name of the lock';
COMMENT ON COLUMN shedlock_jobs.command IS 'The guarded command, without the CALL around it';
COMMENT ON COLUMN shedlock_jobs.lock_at_most_for IS 'A run that takes longer is cancelled; NULL for no limit';
COMMENT ON COLUMN shedlock_jobs.lock_at_least_for IS 'The lock is held for at least this long';
COMMENT ON COLUMN shedlock_jobs.once_every IS 'The job runs once in each period of this length';
COMMENT ON COLUMN shedlock_jobs.last_started IS
'When the latest run under this lock began, whatever started it; NULL if the reader cannot see it in shedlock_history';
COMMENT ON COLUMN shedlock_jobs.last_ended IS 'When that run ended';
COMMENT ON COLUMN shedlock_jobs.last_outcome IS 'Outcome of that run, as in shedlock_history';
COMMENT ON COLUMN shedlock_jobs.last_message IS 'Message of the error';
COMMENT ON COLUMN shedlock_jobs.tick_claimed IS
'The latest tick that was claimed; this and claimed_by, next_tick, lock_state and overdue are NULL for a name that shedlock.role_prefix reserves for other roles';
COMMENT ON COLUMN shedlock_jobs.claimed_by IS
'What claimed the tick: a run of the job, or a caller of shedlock_once or shedlock_once_every';
COMMENT ON COLUMN shedlock_jobs.next_tick IS 'The next tick that can be claimed';
COMMENT ON COLUMN shedlock_jobs.lock_state IS 'State of the lock, as in shedlock_locks, or free';
COMMENT ON COLUMN shedlock_jobs.overdue IS
'Whether the job was due 90 seconds ago or more, has not started since, and nothing explains why; if no run is later, since it was scheduled; NULL if unknown: see problem';
COMMENT ON COLUMN shedlock_jobs.problem IS
'Which role could make the job call another procedure, that the job calls another schema or there is another shedlock_run, or why overdue is unknown; NULL if there is no problem';
