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
PG_FUNCTION_INFO_V1(_shedlock_may_use);
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
 * _shedlock_cron_name_is_shared - has another role than username a job of that
 * name?
 *
 * If so, two locks of one name would make these jobs skip each other.  Row security
 * hides the jobs of other roles from the caller, so the owner of the extension reads
 * cron.job.  Returns false to a caller that cannot use pg_cron.
 */
Datum
_shedlock_cron_name_is_shared(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID, TEXTOID};
	Datum		values[] = {fcinfo->args[0].value, fcinfo->args[1].value};
	HeapTuple	proc;
	Oid			caller;
	int			sec_context;
	int			result;
	bool		found;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || !uses_cron(cron_job_table()))
		PG_RETURN_BOOL(false);

	proc = SearchSysCache1(PROCOID, ObjectIdGetDatum(fcinfo->flinfo->fn_oid));
	if (!HeapTupleIsValid(proc))
		elog(ERROR, "cache lookup failed for function %u", fcinfo->flinfo->fn_oid);
	GetUserIdAndSecContext(&caller, &sec_context);
	SetUserIdAndSecContext(((Form_pg_proc) GETSTRUCT(proc))->proowner,
						   sec_context | SECURITY_LOCAL_USERID_CHANGE);
	ReleaseSysCache(proc);

	SPI_connect();
	result = SPI_execute_with_args("SELECT FROM cron.job j "
								   "WHERE j.jobname::pg_catalog.text OPERATOR(pg_catalog.=) $1 AND "
								   "j.username OPERATOR(pg_catalog.<>) $2 LIMIT 1",
								   lengthof(types), types, values, NULL, true, 1);
	if (result != SPI_OK_SELECT)
		elog(ERROR, "could not read cron.job");
	found = SPI_processed > 0;
	SPI_finish();

	/* after an error the abort of the transaction does this */
	SetUserIdAndSecContext(caller, sec_context);
	PG_RETURN_BOOL(found);
}

/*
 * may_execute - may the caller execute that function of the extension, which has one
 * argument of type text?
 */
static bool
may_execute(Oid nsp, const char *function)
{
	Oid			type = TEXTOID;
	Oid			oid = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
									  CStringGetDatum(function),
									  PointerGetDatum(buildoidvector(&type, 1)),
									  ObjectIdGetDatum(nsp));

	return OidIsValid(oid) &&
		DatumGetBool(DirectFunctionCall2(has_function_privilege_id, ObjectIdGetDatum(oid),
										 CStringGetTextDatum("EXECUTE")));
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
	Oid			caller;
	int			sec_context;

	ShedlockLookUpJob(name, &job);
	GetUserIdAndSecContext(&caller, &sec_context);
	SetUserIdAndSecContext(role, sec_context | SECURITY_LOCAL_USERID_CHANGE);
	result = ShedlockMayUseName(name->str) && (!job.found || ShedlockMayChange(&job));

	/* after an error the abort of the transaction does this */
	SetUserIdAndSecContext(caller, sec_context);
	return result;
}

/*
 * _shedlock_cron_forget(name, username) - forget the job that was guarded
 *
 * username: role of the job of pg_cron.  Its privileges decide, not the caller's: that role
 * chooses the name in its CALL, and a superuser may remove it.  The caller must have them,
 * and may execute one of the functions that end a guard.  Strict.  Returns false if nothing
 * is forgotten, and warns if it may not be.  Errors: 42501, 25006.
 */
Datum
_shedlock_cron_forget(PG_FUNCTION_ARGS)
{
	Oid			role = get_role_oid(text_to_cstring(PG_GETARG_TEXT_PP(1)), true);
	Oid			nsp = ShedlockSchema(fcinfo);
	ShedlockName name;

	if (!may_execute(nsp, "shedlock_cron_unschedule") && !may_execute(nsp, "shedlock_cron_unguard"))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", "shedlock_forget")));
	ShedlockMakeName(nsp, text_to_cstring(PG_GETARG_TEXT_PP(0)), &name);
	if (!OidIsValid(role) || !has_privs_of_role(GetUserId(), role) || !may_forget(role, &name))
	{
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("job \"%s\" is not forgotten", name.str),
				 errdetail("The role of the pg_cron job may not forget it."),
				 errhint("Whoever may can call shedlock_forget.")));
		PG_RETURN_BOOL(false);
	}
	ShedlockBeginCall(fcinfo, "shedlock_forget()", &name);
	PG_RETURN_BOOL(ShedlockForgetJob(&name));
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

/*
 * _shedlock_may_use - may the caller use a lock, or see all of them?
 *
 * For shedlock_cron_jobs: the CALL of a job can name any lock.
 */
Datum
_shedlock_may_use(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(ShedlockMayUseName(text_to_cstring(PG_GETARG_TEXT_PP(0))) ||
				   ShedlockMaySee(InvalidOid));
}
