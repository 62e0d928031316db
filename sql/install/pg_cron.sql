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
	OUT schedule text,
	OUT time_zone text,
	OUT catch_up text,
	OUT max_late interval,
	OUT attempts integer,
	OUT backoff interval,
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
	schedule text DEFAULT NULL,
	time_zone text DEFAULT NULL,
	catch_up text DEFAULT NULL,
	max_late interval DEFAULT NULL,
	attempts integer DEFAULT NULL,
	backoff interval DEFAULT NULL,
	scheduled_at timestamptz DEFAULT NULL)
RETURNS text LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_call(text, text, interval, interval, interval, text, text, text, text, interval, integer, interval, timestamptz) IS
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

CREATE FUNCTION _shedlock_cron_forget(lock_name text, username text)
RETURNS boolean LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_forget(text, text) IS
'Forgets what the role of a job that is guarded no more may forget of it: its ticks and schedule, or the schedule; returns false if that is nothing';

CREATE FUNCTION _shedlock_cron_timezone()
RETURNS text LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_timezone() IS
'Returns the time zone of pg_cron''s schedules: cron.timezone, or GMT before pg_cron 1.5';

CREATE FUNCTION _shedlock_cron_seconds(schedule text)
RETURNS interval LANGUAGE C IMMUTABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_seconds(text) IS
'Returns the time between two runs of a pg_cron schedule in seconds; NULL for any other schedule';

CREATE FUNCTION _shedlock_cron_due(
	schedule text,
	time_zone text,
	at timestamptz,
	OUT last_due timestamptz,
	OUT next_due timestamptz)
RETURNS record LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_due(text, text, timestamptz) IS
'Returns when a schedule was last due, at that time or before, and when it is due next; NULL for what cannot be told, as for @reboot';

CREATE FUNCTION _shedlock_cron_late_tick(schedule text, time_zone text, fire text)
RETURNS timestamptz LANGUAGE C STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_late_tick(text, text, text) IS
'Returns the next tick of a schedule at which pg_cron does not fire the job; NULL if there is none within a year';

CREATE FUNCTION _shedlock_cron_lost_tick(schedule text, once_every interval, at timestamptz)
RETURNS timestamptz LANGUAGE C STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_cron_lost_tick(text, interval, timestamptz) IS
'Returns when a pg_cron schedule is next due in a period whose tick the previous run has claimed, because summer time begins; NULL if never within a year';

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

-- own: the job's own schedule.  fired: the schedule that pg_cron has so far.
-- call_zone: the time zone of a job that is given none.
CREATE FUNCTION _shedlock_cron_plan(
	job text,
	own text,
	fired text,
	each_minute boolean,
	call_zone text,
	INOUT once_every interval,
	INOUT time_zone text,
	INOUT fire text,
	OUT schedule text)
RETURNS record
LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
#variable_conflict use_variable
DECLARE
	has_no_ticks CONSTANT boolean := own ~ '^[ \t\n]*@reboot([ \t\n]|$)';
BEGIN
	IF once_every IS NULL AND NOT has_no_ticks THEN
		schedule := own;
		time_zone := coalesce(time_zone, call_zone);
		-- pg_cron never fires these two: see _shedlock_cron_wanted()
		IF fire ~ '^[ \t\n]*@(yearly|annually)([ \t\n]|$)' THEN
			fire := '0 0 1 1 *';
		END IF;
		fire := coalesce(fire, CASE WHEN each_minute AND fired = own THEN '* * * * *' ELSE fired END);
		RETURN;
	END IF;

	IF time_zone IS NOT NULL OR fire IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'invalid_parameter_value',
			MESSAGE = format('job "%s" cannot have %s', job, CASE WHEN fire IS NULL THEN 'time_zone' ELSE 'fire' END),
			DETAIL = CASE WHEN once_every IS NULL THEN 'Its schedule, @reboot, has no ticks.'
						  ELSE format('Its ticks are periods of %s, counted in UTC, and it is fired by its own schedule.', once_every) END,
			HINT = 'Pass a cron expression as the schedule, and leave out once_every.  To remove it from a guarded job, define the whole job again with shedlock_cron_schedule, also its database, username and active.  A job without a name must be unguarded first.';
	END IF;
	fire := own;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_plan(text, text, text, boolean, text, interval, text, text) IS
'Returns the ticks that a guarded job claims, and the schedule by which pg_cron fires it';

CREATE FUNCTION _shedlock_cron_advise(
	changed boolean,
	job text,
	lock_name text,
	lock_at_most_for interval,
	database text,
	once_every interval,
	lost timestamptz,
	late timestamptz,
	lock_table regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
BEGIN
	IF NOT changed THEN
		RETURN;
	END IF;
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
			HINT = 'Leave out once_every: the job claims the ticks of its schedule then.';
	END IF;
	IF late IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = format('pg_cron does not fire job "%s" at %s, when it is due', job, late),
			DETAIL = 'The run for that tick begins when pg_cron fires the job next.',
			HINT = 'Let the minutes and hours of fire include those of the schedule.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_advise(boolean, text, text, interval, text, interval, timestamptz, timestamptz, regclass) IS
'Warns of what the guard does not cover: no limit, another database, a tick lost to summer time, or one at which the job is not fired';

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
	OUT old_fire text)
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
	SELECT j.jobid, j.command, CASE WHEN (j.database, j.active) = (database, active) THEN j.schedule END
	INTO old_id, old_command, old_fire
	FROM cron.job j
	WHERE j.jobname::text = job_name AND j.username = username;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_wanted(text, text, text, text, boolean) IS
'Checks the arguments of shedlock_cron_schedule, fills in defaults, and returns the job that it replaces, with its schedule if nothing else changes';

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
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL,
	database text DEFAULT NULL,
	username text DEFAULT NULL,
	active boolean DEFAULT true,
	time_zone text DEFAULT NULL,
	attempts integer DEFAULT NULL,
	backoff interval DEFAULT NULL,
	catch_up text DEFAULT NULL,
	max_late interval DEFAULT NULL,
	fire text DEFAULT NULL)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT b.jobid
	FROM _shedlock_cron_wanted($1, $2, $7, $8, $9) w
		 CROSS JOIN LATERAL _shedlock_guarded_call(w.old_command) g
		 CROSS JOIN LATERAL _shedlock_cron_name_is_shared($1, w.username) s(is_shared)
		 CROSS JOIN LATERAL _shedlock_cron_lock_name(g.name, false, NULL::bigint, $1, w.username, s.is_shared, $1) n(lock_name)
		 CROSS JOIN LATERAL _shedlock_cron_plan($1, w.schedule, w.schedule,
			pg_catalog.num_nonnulls($10, $11, $13, $14) OPERATOR(pg_catalog.>) 0, _shedlock_cron_timezone(),
			COALESCE($6, _shedlock_cron_seconds(w.schedule)), $10, $15) p
		 CROSS JOIN LATERAL _shedlock_cron_call(n.lock_name, $3, $4, $5, p.once_every, NULL::text,
			p.schedule, p.time_zone, $13, $14, $11, $12,
			CASE WHEN w.old_fire OPERATOR(pg_catalog.=) p.fire AND
					  NOT (g.once_every, g.schedule, g.time_zone) IS DISTINCT FROM (p.once_every, p.schedule, p.time_zone)
				 THEN g.scheduled_at END) c(call)
		 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, NULL::text, w.username, w.database) x
		 CROSS JOIN LATERAL _shedlock_cron_refuse($1, x.danger) d
		 CROSS JOIN LATERAL _shedlock_cron_put($1, p.fire, c.call, w.database, w.username, w.active, w.old_id) b(jobid)
		 CROSS JOIN LATERAL _shedlock_cron_advise(true, $1, n.lock_name, $4, w.database, p.once_every,
			_shedlock_cron_lost_tick(p.fire, p.once_every, pg_catalog.clock_timestamp()),
			_shedlock_cron_late_tick(p.schedule, p.time_zone, p.fire), 'shedlock'::regclass) a;
END;

COMMENT ON FUNCTION shedlock_cron_schedule(text, text, text, interval, interval, interval, text, text, boolean, text, integer, interval, text, interval, text) IS
'Creates or replaces a guarded pg_cron job; returns its ID';

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
'Removes a pg_cron job, and forgets its ticks; returns false if there is none of that name';

CREATE FUNCTION _shedlock_cron_changes(
	job text,
	was_guarded boolean,
	before text[],
	after text[])
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	changes CONSTANT text := (
		SELECT string_agg(format('%s %s instead of %s', u.name, coalesce(u.after, 'none'), coalesce(u.before, 'none')), ', ' ORDER BY u.n)
		FROM unnest('{lock_at_most_for,lock_at_least_for,once_every,schedule,time_zone,attempts,backoff,catch_up,max_late,fire}'::text[],
					before, after) WITH ORDINALITY u(name, before, after, n)
		WHERE u.after IS DISTINCT FROM u.before);
BEGIN
	IF was_guarded AND changes IS NOT NULL THEN
		RAISE NOTICE USING
			MESSAGE = format('job "%s" now has %s', job, changes),
			HINT = 'What is not passed stays as it is.  To remove something, define the whole job again with shedlock_cron_schedule, also its database, username and active.  A job without a name must be unguarded and guarded again.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_changes(text, boolean, text[], text[]) IS
'Raises a NOTICE that names what has changed in the guard of a job';

CREATE FUNCTION shedlock_cron_guard(
	job text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	once_every interval DEFAULT NULL,
	time_zone text DEFAULT NULL,
	attempts integer DEFAULT NULL,
	backoff interval DEFAULT NULL,
	catch_up text DEFAULT NULL,
	max_late interval DEFAULT NULL,
	fire text DEFAULT NULL)
RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT n.lock_name
	FROM _shedlock_cron_job($1, true, false) j
		 CROSS JOIN LATERAL _shedlock_guarded_call(j.command) g
		 CROSS JOIN LATERAL (
			SELECT _shedlock_shown(COALESCE(j.job_name, j.jobid::text)) AS job,
				   COALESCE(g.schedule, j.schedule) AS schedule,
				   COALESCE($2, g.lock_at_most_for) AS at_most,
				   COALESCE($3, g.lock_at_least_for) AS at_least,
				   COALESCE($6, g.attempts) AS attempts,
				   COALESCE($7, g.backoff) AS backoff,
				   COALESCE($8, g.catch_up) AS catch_up,
				   COALESCE($9, g.max_late) AS max_late) w
		 CROSS JOIN LATERAL _shedlock_cron_name_is_shared(j.job_name, j.username) s(is_shared)
		 CROSS JOIN LATERAL _shedlock_cron_lock_name(g.name, true, j.jobid, j.job_name, j.username, s.is_shared, w.job) n(lock_name)
		 CROSS JOIN LATERAL _shedlock_cron_plan(w.job, w.schedule, j.schedule,
			pg_catalog.num_nonnulls($5, $6, $8, $9) OPERATOR(pg_catalog.>) 0,
			CASE WHEN g.schedule IS NULL THEN _shedlock_cron_timezone() ELSE COALESCE(g.time_zone, 'UTC') END,
			COALESCE($4, g.once_every, _shedlock_cron_seconds(w.schedule)), $5, $10) p
		 CROSS JOIN LATERAL _shedlock_cron_call(n.lock_name, COALESCE(g.command, j.command), w.at_most, w.at_least, p.once_every,
			g.on_busy, p.schedule, p.time_zone, w.catch_up, w.max_late, w.attempts, w.backoff,
			CASE WHEN j.schedule OPERATOR(pg_catalog.=) p.fire AND
					  NOT (g.once_every, g.schedule, g.time_zone) IS DISTINCT FROM (p.once_every, p.schedule, p.time_zone)
				 THEN g.scheduled_at END) c(call)
		 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, NULL::text, j.username, j.database) x
		 CROSS JOIN LATERAL _shedlock_cron_refuse(w.job, x.danger) d
		 CROSS JOIN LATERAL _shedlock_cron_rewrite(w.job, j.jobid, j.job_name, j.database, j.username, j.schedule, j.command,
			p.fire, c.call) r(done)
		 CROSS JOIN LATERAL _shedlock_cron_changes(w.job, g.name IS NOT NULL,
			ARRAY[g.lock_at_most_for::text, g.lock_at_least_for::text, g.once_every::text, _shedlock_shown(g.schedule), g.time_zone,
				  g.attempts::text, g.backoff::text, g.catch_up, g.max_late::text, _shedlock_shown(j.schedule)],
			ARRAY[w.at_most::text, w.at_least::text, p.once_every::text, _shedlock_shown(p.schedule), p.time_zone,
				  w.attempts::text, w.backoff::text, w.catch_up, w.max_late::text, _shedlock_shown(p.fire)]) t
		 CROSS JOIN LATERAL _shedlock_cron_advise(r.done, w.job, n.lock_name, w.at_most, j.database, p.once_every,
			_shedlock_cron_lost_tick(p.fire, p.once_every, pg_catalog.clock_timestamp()),
			_shedlock_cron_late_tick(p.schedule, p.time_zone, p.fire), 'shedlock'::regclass) a;
END;

COMMENT ON FUNCTION shedlock_cron_guard(text, interval, interval, interval, text, integer, interval, text, interval, text) IS
'Guards a pg_cron job with a lock, or changes the arguments of a guarded job that are not NULL here; returns the name of the lock';

CREATE FUNCTION shedlock_cron_unguard(job text)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_cron_require();
	SELECT r.done
	FROM _shedlock_cron_job($1, true, false) j
		 CROSS JOIN LATERAL _shedlock_guarded_call(j.command) g
		 CROSS JOIN LATERAL _shedlock_cron_rewrite(_shedlock_shown(COALESCE(j.job_name, j.jobid::text)),
			j.jobid, j.job_name, j.database, j.username, j.schedule, j.command,
			COALESCE(g.schedule, j.schedule), g.command) r(done)
		 CROSS JOIN LATERAL _shedlock_cron_forget(
			CASE WHEN r.done AND j.database OPERATOR(pg_catalog.=) pg_catalog.current_database() THEN g.name END, j.username) f;
END;

COMMENT ON FUNCTION shedlock_cron_unguard(text) IS
'Restores the original command and schedule of a guarded pg_cron job, and forgets its ticks; returns false if the job was not guarded';

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
	OUT outcome text,
	OUT message text)
RETURNS record
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF has_table_privilege('cron.job_run_details', 'SELECT') THEN
		SELECT d.start_time, d.end_time, d.status, d.return_message
		INTO started_at, ended_at, outcome, message
		FROM cron.job_run_details d
		WHERE d.jobid = job AND d.start_time IS NOT NULL
		ORDER BY d.runid DESC
		LIMIT 1;
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_cron_last_run(bigint) IS
'Returns what pg_cron has recorded of the last run of a job, if the caller can see that';

-- A job is overdue if it was due when pg_cron should have fired it last, 90 seconds
-- ago or more, no run has started since, and nothing explains that: a run that still
-- goes on, a pause, the at-least time, a tick that one of its runs has used up, or
-- that it was scheduled later.  A claim by shedlock_once also prevents runs, and is
-- shown, but explains nothing.  Runs that the reader cannot see in shedlock_history
-- count as well.  The barrier keeps functions in the reader's WHERE from seeing the
-- rows of other names.  All locks are looked up in one call, because each call reads the
-- server's lock table; and most jobs are called alike.
CREATE VIEW shedlock_cron_jobs WITH (security_barrier) AS
WITH job AS MATERIALIZED (
	SELECT r AS j, c AS g
	FROM _shedlock_cron_rows(_shedlock_cron_is_readable()) r
		 CROSS JOIN LATERAL _shedlock_guarded_call(r.command) c),
status AS MATERIALIZED (
	SELECT s.name, s.state, s.kind
	FROM _shedlock_status(ARRAY(
		SELECT DISTINCT (job.g).name FROM job)) s),
way AS MATERIALIZED (
	SELECT w.schema_name, w.username, w.database, p.problem
	FROM (SELECT DISTINCT (job.g).schema_name, (job.j).username, (job.j).database
		  FROM job WHERE (job.g).name IS NOT NULL) w
		 CROSS JOIN LATERAL _shedlock_cron_danger('shedlock'::regclass, w.schema_name, w.username, w.database) p)
SELECT j.jobid,
	   j.job_name,
	   d.guarded,
	   d.schedule,
	   d.time_zone,
	   CASE WHEN j.schedule OPERATOR(pg_catalog.<>) d.schedule THEN j.schedule END AS fire,
	   j.database,
	   j.username,
	   j.active,
	   g.name AS lock_name,
	   COALESCE(g.command, j.command) AS command,
	   g.lock_at_most_for,
	   g.lock_at_least_for,
	   g.once_every,
	   g.attempts,
	   g.backoff,
	   g.catch_up,
	   g.max_late,
	   COALESCE(h.started_at, c.started_at) AS last_started,
	   COALESCE(h.ended_at, c.ended_at) AS last_ended,
	   COALESCE(h.outcome, c.outcome) AS last_outcome,
	   COALESCE(h.message, c.message) AS last_message,
	   t.tick AS tick_claimed,
	   t.claimed_by,
	   CASE WHEN j.active THEN e.next_due END AS next_due,
	   CASE WHEN d.shown THEN COALESCE(s.state, 'free') END AS lock_state,
	   o.overdue,
	   CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_roles a WHERE a.rolname OPERATOR(pg_catalog.=) j.username) THEN
				pg_catalog.format('role "%s" is gone: pg_cron''s launcher fails at this job each second, and starts no job of any role', j.username)
			WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_database a WHERE a.datname OPERATOR(pg_catalog.=) j.database) THEN
				pg_catalog.format('database "%s" is gone: pg_cron cannot start it', j.database)
			WHEN x.problem IS NOT NULL THEN x.problem
			WHEN y.late IS NOT NULL THEN
				pg_catalog.format('pg_cron does not fire it at %s, when it is due, but later', y.late)
			WHEN d.guarded AND NOT d.here THEN
				pg_catalog.format('unknown: it runs in database "%s", and whether it is overdue can be seen only there', j.database)
			WHEN d.guarded AND NOT d.shown THEN
				pg_catalog.format('unknown: shedlock.role_prefix reserves lock "%s" for other roles', g.name)
			WHEN o.overdue IS NOT NULL THEN NULL
			WHEN d.due IS NULL THEN
				pg_catalog.format('unknown: cannot tell when schedule "%s" was last due', j.schedule)
			ELSE 'unknown: no run of it is recorded, nor when it was scheduled; shedlock_cron_guard records that' END AS problem
FROM job
	 CROSS JOIN LATERAL (SELECT (job.j).*) j
	 CROSS JOIN LATERAL (SELECT (job.g).*) g
	 CROSS JOIN LATERAL _shedlock_cron_due(j.schedule, NULL::text,
		pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '90 seconds'::interval) f
	 CROSS JOIN LATERAL (
		SELECT g.name IS NOT NULL AS guarded,
			   j.database OPERATOR(pg_catalog.=) pg_catalog.current_database() AS here,
			   j.database OPERATOR(pg_catalog.=) pg_catalog.current_database() AND
			   _shedlock_may_use(g.name) AS shown,
			   COALESCE(g.schedule, j.schedule) AS schedule,
			   CASE WHEN g.schedule IS NULL THEN _shedlock_cron_timezone()
					ELSE COALESCE(g.time_zone, 'UTC') END AS time_zone,
			   CASE WHEN g.schedule IS NULL THEN f.last_due
					ELSE (_shedlock_cron_due(g.schedule, COALESCE(g.time_zone, 'UTC'), f.last_due)).last_due END AS due) d
	 CROSS JOIN LATERAL _shedlock_cron_late_tick(g.schedule, d.time_zone, j.schedule) y(late)
	 CROSS JOIN LATERAL _shedlock_cron_last_run(CASE WHEN NOT d.guarded THEN j.jobid END) c
	 LEFT JOIN LATERAL (
		-- With = the planner could read all tokens backward, every one of them for a
		-- job that never ran.
		SELECT r.token, r.started_at
		FROM _shedlock_history r
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
		SELECT k.tick,
			   -- without a client address, which pg_stat_activity would hide, too; with
			   -- shedlock.role_prefix, only for a run that shedlock_history shows
			   CASE WHEN pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') THEN k.claimed_by::text
					WHEN NOT COALESCE(pg_catalog.current_setting('shedlock.role_prefix', true)::boolean, false) OR
						 EXISTS (SELECT FROM shedlock_history r
								 WHERE r.token OPERATOR(pg_catalog.=) k.token AND
									   r.name OPERATOR(pg_catalog.=) k.name)
					THEN pg_catalog.regexp_replace(k.claimed_by::text,
						'@[[:xdigit:]]*[.:][[:xdigit:].:]*(%[^ ]+)?( #[0-9]+)?$', E'\\2') END AS claimed_by,
			   EXISTS (SELECT FROM _shedlock_history r
					   WHERE r.token OPERATOR(pg_catalog.=) k.token AND
							 r.name OPERATOR(pg_catalog.=) k.name) AS by_run,
			   -- from when on a firing is for another tick; periods are counted in UTC
			   CASE WHEN g.once_every IS NULL THEN k.tick
					ELSE pg_catalog.timezone('UTC', pg_catalog.timezone('UTC', k.tick)
						 OPERATOR(pg_catalog.+) g.once_every
						 OPERATOR(pg_catalog.-) LEAST(g.once_every OPERATOR(pg_catalog./) 4::double precision,
													  '30 seconds'::interval)) END AS used_until
		FROM _shedlock_tick k
		WHERE k.name OPERATOR(pg_catalog.=) g.name AND d.shown AND
			  -- what can be computed with, and every driver reads: see shedlock_locks
			  k.tick OPERATOR(pg_catalog.>) '0001-01-02 00:00:00+00' AND
			  k.tick OPERATOR(pg_catalog.<) '9000-01-01 00:00:00+00') t ON true
	 CROSS JOIN LATERAL _shedlock_cron_due(d.schedule, d.time_zone,
		GREATEST(pg_catalog.clock_timestamp(), t.used_until)) e
	 LEFT JOIN way x ON g.name IS NOT NULL AND x.schema_name IS NOT DISTINCT FROM g.schema_name AND
		x.username OPERATOR(pg_catalog.=) j.username AND x.database OPERATOR(pg_catalog.=) j.database
	 LEFT JOIN status s ON s.name OPERATOR(pg_catalog.=) g.name AND d.shown
	 CROSS JOIN LATERAL (
		SELECT CASE WHEN NOT j.active THEN false
					WHEN NOT d.guarded THEN
						c.outcome OPERATOR(pg_catalog.<>) 'running' AND c.started_at OPERATOR(pg_catalog.<) d.due
					WHEN s.state OPERATOR(pg_catalog.=) 'held' AND
						 s.kind OPERATOR(pg_catalog.=) ANY (ARRAY['run', 'leased run']) THEN false
					WHEN s.state OPERATOR(pg_catalog.=) 'paused' OR s.state OPERATOR(pg_catalog.=) 'kept' THEN false
					WHEN t.by_run AND CASE WHEN g.once_every IS NULL THEN d.due OPERATOR(pg_catalog.<=) t.used_until
										   ELSE d.due OPERATOR(pg_catalog.<) t.used_until END THEN false
					WHEN d.shown THEN GREATEST(l.started_at, g.scheduled_at) OPERATOR(pg_catalog.<) d.due
			   END AS overdue) o;

COMMENT ON VIEW shedlock_cron_jobs IS
'The reader''s pg_cron jobs, for superusers those of all roles, with their guards, their last run and whether they are overdue';
COMMENT ON COLUMN shedlock_cron_jobs.jobid IS 'Number of the job in cron.job';
COMMENT ON COLUMN shedlock_cron_jobs.job_name IS 'Name of the job; NULL if it has none';
COMMENT ON COLUMN shedlock_cron_jobs.guarded IS 'Whether its command is a CALL of shedlock_run with constants';
COMMENT ON COLUMN shedlock_cron_jobs.schedule IS 'Schedule of the job, whose ticks it claims unless it has once_every';
COMMENT ON COLUMN shedlock_cron_jobs.time_zone IS 'Time zone of the schedule';
COMMENT ON COLUMN shedlock_cron_jobs.fire IS 'Schedule by which pg_cron fires the job, if that is another one';
COMMENT ON COLUMN shedlock_cron_jobs.database IS
'Database that the job runs in; the columns from last_started on are NULL for a guarded job of another one, except next_due and problem';
COMMENT ON COLUMN shedlock_cron_jobs.username IS 'Role that the job runs as';
COMMENT ON COLUMN shedlock_cron_jobs.active IS 'Whether pg_cron starts the job';
COMMENT ON COLUMN shedlock_cron_jobs.lock_name IS 'Name of the lock; NULL for a job that is not guarded';
COMMENT ON COLUMN shedlock_cron_jobs.command IS 'The command, without the CALL around it';
COMMENT ON COLUMN shedlock_cron_jobs.lock_at_most_for IS 'A run that takes longer is cancelled; NULL for no limit';
COMMENT ON COLUMN shedlock_cron_jobs.lock_at_least_for IS 'The lock is held for at least this long';
COMMENT ON COLUMN shedlock_cron_jobs.once_every IS 'The job runs once in each period of this length';
COMMENT ON COLUMN shedlock_cron_jobs.attempts IS 'Number of runs that a tick can have; NULL for one';
COMMENT ON COLUMN shedlock_cron_jobs.backoff IS 'Time from the end of a failed first attempt to the second; NULL for one minute';
COMMENT ON COLUMN shedlock_cron_jobs.catch_up IS 'What becomes of missed ticks: latest or all; NULL for latest';
COMMENT ON COLUMN shedlock_cron_jobs.max_late IS 'No attempt begins later than that after its tick; NULL for no limit';
COMMENT ON COLUMN shedlock_cron_jobs.last_started IS
'When the latest run under this lock began, whatever started it; NULL if the reader cannot see it in shedlock_history; for a job that is not guarded, this and the next three columns as in cron.job_run_details';
COMMENT ON COLUMN shedlock_cron_jobs.last_ended IS 'When that run ended';
COMMENT ON COLUMN shedlock_cron_jobs.last_outcome IS 'Outcome of that run, as in shedlock_history';
COMMENT ON COLUMN shedlock_cron_jobs.last_message IS 'Message of the error';
COMMENT ON COLUMN shedlock_cron_jobs.tick_claimed IS
'The latest tick that was claimed or run; this and claimed_by, lock_state and overdue are NULL for a name that shedlock.role_prefix reserves for other roles';
COMMENT ON COLUMN shedlock_cron_jobs.claimed_by IS
'What claimed the tick: a run of the job, or a caller of shedlock_once or shedlock_once_every';
COMMENT ON COLUMN shedlock_cron_jobs.next_due IS
'When the job is due next for a tick that is not claimed; NULL if it is not active, or that cannot be told; for a schedule in seconds, at the latest';
COMMENT ON COLUMN shedlock_cron_jobs.lock_state IS 'State of the lock, as in shedlock_locks, or free';
COMMENT ON COLUMN shedlock_cron_jobs.overdue IS
'Whether the job was due 90 seconds ago or more, has not started since, and nothing explains why; if no run is later, since it was scheduled; NULL if unknown: see problem';
COMMENT ON COLUMN shedlock_cron_jobs.problem IS
'That its role or database is gone, which role could make the job call another procedure, that the job calls another schema or there is another shedlock_run, that pg_cron fires it too late, or why overdue is unknown; NULL if there is no problem';
