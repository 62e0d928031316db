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

#include "base/base.h"
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
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(_shedlock_cron_timezone);
PG_FUNCTION_INFO_V1(_shedlock_cron_require);
PG_FUNCTION_INFO_V1(_shedlock_cron_is_readable);
PG_FUNCTION_INFO_V1(_shedlock_cron_name_is_shared);
PG_FUNCTION_INFO_V1(_shedlock_may_use);

/*
 * _shedlock_cron_timezone - time zone of pg_cron's schedules
 *
 * The server shows the setting only to superusers, but it is no secret: the runs of
 * a job show it to every role that can see the job.
 */
Datum
_shedlock_cron_timezone(PG_FUNCTION_ARGS)
{
	const char *zone = GetConfigOption("cron.timezone", true, false);

	PG_RETURN_TEXT_P(cstring_to_text(zone && zone[0] ? zone : "GMT"));
}

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
 * _shedlock_cron_is_readable - is pg_cron in this database, and can the caller
 * read its jobs?
 */
Datum
_shedlock_cron_is_readable(PG_FUNCTION_ARGS)
{
	Oid			relid = cron_job_table();

	PG_RETURN_BOOL(uses_cron(relid) &&
				   pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK);
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
 * _shedlock_may_use - may the caller use a lock, or see all of them?
 *
 * For shedlock_jobs: the CALL of a job can name any lock.
 */
Datum
_shedlock_may_use(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(ShedlockMayUseName(text_to_cstring(PG_GETARG_TEXT_PP(0))) ||
				   ShedlockMaySee(InvalidOid));
}
