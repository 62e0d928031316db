/*-------------------------------------------------------------------------
 *
 * cron.c
 *	  pg_cron as it is in this database, for the SQL that schedules jobs.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/api.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(_shedlock_cron_require);
PG_FUNCTION_INFO_V1(_shedlock_cron_is_readable);
PG_FUNCTION_INFO_V1(_shedlock_cron_name_is_shared);
PG_FUNCTION_INFO_V1(_shedlock_cron_may_use);
PG_FUNCTION_INFO_V1(_shedlock_cron_declare);
PG_FUNCTION_INFO_V1(_shedlock_cron_forget);
PG_FUNCTION_INFO_V1(_shedlock_shown);

/*
 * cron_job_table - OID of pg_cron's table cron.job; InvalidOid without pg_cron
 *
 * Code of another relation of that name would run with the privileges of the
 * superuser that reads it.
 */
static Oid
cron_job_table(void)
{
	Oid			extension = get_extension_oid("pg_cron", true);
	Oid			nsp = get_namespace_oid("cron", true);
	Oid			relid = OidIsValid(nsp) ? get_relname_relid("job", nsp) : InvalidOid;

	if (!OidIsValid(extension) || !OidIsValid(relid) ||
		getExtensionOfObject(RelationRelationId, relid) != extension)
		return InvalidOid;
	return relid;
}

/*
 * _shedlock_cron_require - raise an error unless pg_cron is in this database
 */
Datum
_shedlock_cron_require(PG_FUNCTION_ARGS)
{
	if (!OidIsValid(cron_job_table()))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pg_cron is not installed in database \"%s\"",
						get_database_name(MyDatabaseId)),
				 errhint("Connect to the database that cron.database_name names, and run CREATE EXTENSION pg_cron there.")));
	PG_RETURN_VOID();
}

/*
 * uses_cron - does the caller have USAGE on the schema of cron.job?
 */
static bool
uses_cron(Oid job_table)
{
	return OidIsValid(job_table) &&
		DatumGetBool(DirectFunctionCall2(has_schema_privilege_id,
										 ObjectIdGetDatum(get_rel_namespace(job_table)),
										 CStringGetTextDatum("USAGE")));
}

/*
 * ShedlockReadsCron - is pg_cron in this database, and can the caller read its jobs?
 */
bool
ShedlockReadsCron(void)
{
	Oid			relid = cron_job_table();

	return uses_cron(relid) &&
		pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK;
}

/*
 * _shedlock_cron_is_readable() - see ShedlockReadsCron()
 */
Datum
_shedlock_cron_is_readable(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(ShedlockReadsCron());
}

/*
 * ShedlockBecome - let another role act; keep who calls
 *
 * After an error the abort of the transaction does what ShedlockBecomeAgain() does.
 */
void
ShedlockBecome(Oid role, ShedlockCaller *caller)
{
	GetUserIdAndSecContext(&caller->role, &caller->sec_context);
	SetUserIdAndSecContext(role, caller->sec_context | SECURITY_LOCAL_USERID_CHANGE);
}

/*
 * ShedlockBecomeAgain - let the caller act
 */
void
ShedlockBecomeAgain(const ShedlockCaller *caller)
{
	SetUserIdAndSecContext(caller->role, caller->sec_context);
}

/*
 * ShedlockOwner - the owner of the called function, and so of the extension
 */
Oid
ShedlockOwner(FunctionCallInfo fcinfo)
{
	HeapTuple	proc = SearchSysCache1(PROCOID, ObjectIdGetDatum(fcinfo->flinfo->fn_oid));
	Oid			owner;

	if (!HeapTupleIsValid(proc))
		elog(ERROR, "cache lookup failed for function %u", fcinfo->flinfo->fn_oid);
	owner = ((Form_pg_proc) GETSTRUCT(proc))->proowner;
	ReleaseSysCache(proc);
	return owner;
}

/*
 * ShedlockQueryCron - run a query on cron.job, whose parameters are these texts
 *
 * Needs SPI, and sees what this statement has changed.
 */
void
ShedlockQueryCron(const char *query, const char *first, const char *second)
{
	Oid			types[] = {TEXTOID, TEXTOID};
	Datum		values[] = {CStringGetTextDatum(first), CStringGetTextDatum(second)};

	if (SPI_execute_with_args(query, lengthof(types), types, values, NULL, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", query);
}

/*
 * _shedlock_cron_name_is_shared(name, username) - has another role a job of that name?
 *
 * If so, two locks of one name would make these jobs skip each other.  Row security
 * hides the jobs of other roles from the caller, so the owner of the extension reads
 * cron.job.  Returns false to a caller that cannot use pg_cron.
 */
Datum
_shedlock_cron_name_is_shared(PG_FUNCTION_ARGS)
{
	ShedlockCaller caller;
	bool		found;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || !uses_cron(cron_job_table()))
		PG_RETURN_BOOL(false);

	ShedlockBecome(ShedlockOwner(fcinfo), &caller);
	SPI_connect();
	ShedlockQueryCron("SELECT FROM cron.job j "
					  "WHERE j.jobname::pg_catalog.text OPERATOR(pg_catalog.=) $1 AND "
					  "j.username OPERATOR(pg_catalog.<>) $2 LIMIT 1",
					  text_to_cstring(PG_GETARG_TEXT_PP(0)), text_to_cstring(PG_GETARG_TEXT_PP(1)));
	found = SPI_processed > 0;
	SPI_finish();
	ShedlockBecomeAgain(&caller);
	PG_RETURN_BOOL(found);
}

/*
 * may_use - may a role use locks of that name?
 */
static bool
may_use(const char *rolname, const char *name)
{
	Oid			role = get_role_oid(rolname, true);
	ShedlockCaller caller;
	bool		result;

	if (!OidIsValid(role))
		return !shedlock_role_prefix;
	ShedlockBecome(role, &caller);
	result = ShedlockMayUseName(name);
	ShedlockBecomeAgain(&caller);
	return result;
}

/*
 * _shedlock_cron_may_use(username, lock_name) - may that role use locks of that name?
 *
 * Strict.
 */
Datum
_shedlock_cron_may_use(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(may_use(text_to_cstring(PG_GETARG_TEXT_PP(0)), text_to_cstring(PG_GETARG_TEXT_PP(1))));
}

/*
 * ShedlockGuardedJobs - the jobs that guard a name in this database: ShedlockGuardedJob
 *
 * The owner of the extension reads cron.job, because the jobs of other roles count, too.  A CALL
 * can name any lock: it guards none that its role may not use.
 */
List *
ShedlockGuardedJobs(FunctionCallInfo fcinfo, const ShedlockName *name)
{
	MemoryContext context = CurrentMemoryContext;
	ShedlockCaller caller;
	List	   *jobs = NIL;

	ShedlockBecome(ShedlockOwner(fcinfo), &caller);
	if (ShedlockReadsCron())
	{
		SPI_connect();
		ShedlockQueryCron("SELECT j.jobid, j.schedule, j.command, j.active, j.username FROM cron.job j "
						  "WHERE j.database OPERATOR(pg_catalog.=) $1 "
						  "ORDER BY j.jobid", get_database_name(MyDatabaseId), "");
		MemoryContextSwitchTo(context);
		for (uint64 i = 0; i < SPI_tuptable->numvals; i++)
		{
			HeapTuple	row = SPI_tuptable->vals[i];
			TupleDesc	columns = SPI_tuptable->tupdesc;
			ShedlockGuardedCall call;
			ShedlockGuardedJob *job;

			if (!ShedlockReadGuardedCall(SPI_getvalue(row, columns, 3), &call) ||
				strcmp(call.name, name->str) != 0 ||
				!may_use(SPI_getvalue(row, columns, 5), name->str))
				continue;
			job = palloc(sizeof(ShedlockGuardedJob));
			job->jobid = SPI_getvalue(row, columns, 1);
			job->schedule = SPI_getvalue(row, columns, 2);
			job->active = strcmp(SPI_getvalue(row, columns, 4), "t") == 0;
			job->has_more_args = call.has_more_args;
			jobs = lappend(jobs, job);
		}
		SPI_finish();
	}
	ShedlockBecomeAgain(&caller);
	return jobs;
}

/*
 * ShedlockMayExecute - may the caller execute that routine of the extension?
 */
bool
ShedlockMayExecute(Oid nsp, const char *routine, const Oid *types, int ntypes)
{
	Oid			oid = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
									  CStringGetDatum(routine),
									  PointerGetDatum(buildoidvector(types, ntypes)),
									  ObjectIdGetDatum(nsp));

	return OidIsValid(oid) &&
		DatumGetBool(DirectFunctionCall2(has_function_privilege_id, ObjectIdGetDatum(oid),
										 CStringGetTextDatum("EXECUTE")));
}

/*
 * job_of - what shedlock_job would be told of a job of pg_cron
 *
 * old: what is declared so far.  arg: the schedule, a char *.  Seconds are a period, and periods
 * count in UTC, which nobody has chosen for a cron expression.
 */
static void
job_of(const ShedlockJob *old, void *arg, ShedlockJob *job)
{
	char	   *schedule = arg;
	bool		has_zone = old->found && !(old->schedule.period != 0 && strcmp(old->time_zone, "UTC") == 0);
	char	   *zone = has_zone ? old->time_zone : pstrdup(ShedlockCronZone());
	int			seconds = ShedlockCronSeconds(schedule);
	ShedlockSchedule parsed;

	if (seconds > 0)
		schedule = psprintf("every %d seconds", seconds);
	if (ShedlockIsEvery(schedule + strspn(schedule, " \t\n")) &&
		!ShedlockParseSchedule(schedule, zone, true, &parsed))
		zone = pstrdup("UTC");
	ShedlockReschedule(old, schedule, zone, job);
}

/*
 * declare_as - declare a job of pg_cron in the name of a role; sets *job to what is declared
 */
static void
declare_as(Oid role, const ShedlockName *name, char *schedule, ShedlockJob *job)
{
	ShedlockCaller caller;

	if (!has_privs_of_role(GetUserId(), role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to declare jobs of role \"%s\"", GetUserNameFromId(role, false))));
	ShedlockBecome(role, &caller);
	ShedlockCheckMayUse(name);
	(void) ShedlockDeclare(name, job, job_of, schedule);
	ShedlockBecomeAgain(&caller);
}

/*
 * warn_of_missed - warn of a tick at which pg_cron does not fire the job
 */
static void
warn_of_missed(const ShedlockName *name, const ShedlockJob *job, const char *fire)
{
	TimestampTz missed = ShedlockMissedTick(&job->schedule, fire);

	if (missed != DT_NOEND)
		ereport(WARNING,
				(errmsg("pg_cron does not fire job \"%s\" at %s, when it is due",
						name->str, ShedlockTimeString(missed)),
				 errdetail("The run for that tick begins when pg_cron fires the job next."),
				 errhint("Let the minutes and hours of fire include those of the schedule.")));
}

/*
 * warn_of_elsewhere - warn that a job of another database must be declared there
 */
static void
warn_of_elsewhere(const ShedlockName *name, const ShedlockJob *job, const char *database)
{
	const char *schema = quote_identifier(get_namespace_name(name->nsp));

	ereport(WARNING,
			(errmsg("job \"%s\" runs in database \"%s\", where it must be declared", name->str, database),
			 errdetail("Its lock, its ticks and its history are in that database."),
			 errhint("Run there: CREATE EXTENSION IF NOT EXISTS shedlock SCHEMA %s; SELECT %s.shedlock_job(%s, %s, time_zone => %s);",
					 schema, schema, quote_literal_cstr(name->str),
					 quote_literal_cstr(job->schedule_text), quote_literal_cstr(job->time_zone))));
}

/*
 * check_may_guard - raise an error unless the caller may execute a function that guards jobs
 */
static void
check_may_guard(Oid nsp)
{
	static const Oid schedule_args[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, BOOLOID, TEXTOID};
	static const Oid guard_args[] = {TEXTOID, TEXTOID};

	if (!ShedlockMayExecute(nsp, "shedlock_cron_schedule", schedule_args, lengthof(schedule_args)) &&
		!ShedlockMayExecute(nsp, "shedlock_cron_guard", guard_args, lengthof(guard_args)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", "shedlock_job")));
}

/*
 * _shedlock_cron_declare(name, schedule, fire, username, database, keeps, is_guarded) - declare
 * the job that is to be guarded
 *
 * schedule: pg_cron's, or one of shedlock_job.  fire: or null.  username: the role of the job, in
 * whose name it is declared.  database: if it is another one, the job is not declared here.
 * keeps: a job that is declared stays as it is.  is_guarded: it is guarded already.  Returns the
 * schedule that is to fire it.
 */
Datum
_shedlock_cron_declare(PG_FUNCTION_ARGS)
{
	char	   *given = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	char	   *database = ShedlockGetWord(fcinfo, 4, "");
	char	   *schedule;
	bool		here = strcmp(database, get_database_name(MyDatabaseId)) == 0;
	bool		keeps = !PG_ARGISNULL(5) && PG_GETARG_BOOL(5);
	ShedlockName name;
	ShedlockJob old = {0};
	ShedlockJob job;
	const char *fire;

	ShedlockBeginCall(fcinfo, "shedlock_job()", &name);
	check_may_guard(name.nsp);
	ShedlockRefuseNull(PG_ARGISNULL(1), "schedule", NULL);

	/*
	 * What fires it can be another schedule than that which is declared
	 * there.
	 */
	if (!here && keeps && given == NULL && PG_GETARG_BOOL(6))
		PG_RETURN_DATUM(PG_GETARG_DATUM(1));
	schedule = text_to_cstring(PG_GETARG_TEXT_PP(1));
	if (here)
		ShedlockLookUpJob(&name, &old);
	keeps &= old.is_readable;
	if (keeps)
		job = old;
	else
		job_of(&old, schedule, &job);

	/* what pg_cron would refuse is not declared, either */
	fire = ShedlockFireFor(&job, given);
	if (!here)
		warn_of_elsewhere(&name, &job, database);
	else if (!keeps)
	{
		declare_as(get_role_oid(ShedlockGetWord(fcinfo, 3, ""), false), &name, schedule, &job);
		/* another declaration may have come in between */
		fire = ShedlockFireFor(&job, given);
	}
	if (here)
		warn_of_missed(&name, &job, fire);
	PG_RETURN_TEXT_P(cstring_to_text(fire));
}

/*
 * may_forget - may a role forget a job?
 *
 * The answer tells nothing of a name that the role may not use.
 */
static bool
may_forget(Oid role, const ShedlockName *name)
{
	bool		result;
	ShedlockJob job;
	ShedlockCaller caller;

	ShedlockLookUpJob(name, &job);
	ShedlockBecome(role, &caller);
	result = ShedlockMayUseName(name->str) && (!job.found || ShedlockMayChange(&job));
	ShedlockBecomeAgain(&caller);
	return result;
}

/*
 * _shedlock_cron_forget(name, username) - forget the job that was guarded
 *
 * username: role of the job of pg_cron.  Its privileges decide, not the caller's: that role
 * chooses the name in its CALL, and a superuser may remove it.  The caller must have them,
 * and may execute one of the functions that end a guard.  Strict.  Returns false if nothing
 * is forgotten, because it may not be, with a warning, or because another job is guarded by
 * that name.
 */
Datum
_shedlock_cron_forget(PG_FUNCTION_ARGS)
{
	Oid			role = get_role_oid(text_to_cstring(PG_GETARG_TEXT_PP(1)), true);
	Oid			nsp = ShedlockSchema(fcinfo);
	Oid			type = TEXTOID;
	ShedlockName name;
	bool		forgotten;

	if (!ShedlockMayExecute(nsp, "shedlock_cron_unschedule", &type, 1) &&
		!ShedlockMayExecute(nsp, "shedlock_cron_unguard", &type, 1))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", "shedlock_forget")));
	ShedlockMakeName(nsp, text_to_cstring(PG_GETARG_TEXT_PP(0)), &name);
	if (ShedlockGuardedJobs(fcinfo, &name) != NIL)
		PG_RETURN_BOOL(false);
	if (!OidIsValid(role) || !has_privs_of_role(GetUserId(), role) || !may_forget(role, &name))
	{
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("job \"%s\" is not forgotten", name.str),
				 errdetail("The role of the pg_cron job may not forget it."),
				 errhint("A role that may forget it can call shedlock_forget.")));
		PG_RETURN_BOOL(false);
	}
	ShedlockBeginCall(fcinfo, "shedlock_forget()", &name);
	forgotten = ShedlockForgetJob(&name);
	if (forgotten)
		(void) ShedlockResetStats(nsp, name.str);
	PG_RETURN_BOOL(forgotten);
}

/*
 * _shedlock_shown(str) - see ShedlockMaskText()
 *
 * A job of pg_cron can have any name and schedule, and a row of ShedLock's table any
 * name, which messages show to other roles.  Strict.
 */
Datum
_shedlock_shown(PG_FUNCTION_ARGS)
{
	char	   *str = text_to_cstring(PG_GETARG_TEXT_PP(0));

	(void) ShedlockMaskText(str);
	PG_RETURN_TEXT_P(cstring_to_text(str));
}
