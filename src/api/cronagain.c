/*-------------------------------------------------------------------------
 *
 * cronagain.c
 *	  Lets pg_cron run a job once more, soon.
 *
 * pg_cron fires a job by its own schedule, perhaps once a day, and so would not do before
 * tomorrow what shedlock_again allows today, and never what came due in a pause that
 * shedlock_resume ends.  So these make a job of pg_cron for this run, of the same role, which is
 * fired each minute.  The first thing that the CALL of that job commits is the end of it.  So
 * wherever the server dies nothing is left behind: either pg_cron fires it after the restart, or
 * it is gone.  It stays while the lock is paused or not free, and if its role cannot connect any
 * more.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "api/api.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* The arguments of shedlock_run */
#define RUN_ARGS			5

static const Oid run_args[RUN_ARGS] = {TEXTOID, TEXTOID, INTERVALOID, INTERVALOID, TEXTOID};

PG_FUNCTION_INFO_V1(_shedlock_cron_once);

/*
 * once_command - the command of the job that runs another job once
 */
static char *
once_command(Oid nsp, const char *jobid)
{
	return psprintf("CALL %s._shedlock_cron_once('%s'::pg_catalog.int8)",
					quote_identifier(get_namespace_name(nsp)), jobid);
}

/*
 * fire_once - make the job that runs a job once, unless there is one
 */
static void
fire_once(Oid nsp, const char *jobid)
{
	SPI_connect();
	ShedlockQueryCron("INSERT INTO cron.job (schedule, command, nodename, nodeport, database, username) "
					  "SELECT '* * * * *', $1, j.nodename, j.nodeport, j.database, j.username "
					  "FROM cron.job j WHERE j.jobid::pg_catalog.text OPERATOR(pg_catalog.=) $2 AND "
					  "NOT EXISTS (SELECT FROM cron.job o WHERE o.command OPERATOR(pg_catalog.=) $1 AND "
					  "o.username OPERATOR(pg_catalog.=) j.username)",
					  once_command(nsp, jobid), jobid);
	SPI_finish();
}

/*
 * run_soon - see to it that one job runs soon
 *
 * The messages have nothing that the owner of the job has written: it would pass for the
 * extension's own advice.
 */
static void
run_soon(Oid nsp, const ShedlockGuardedJob *job)
{
	TimestampTz now = GetCurrentTimestamp();
	ShedlockSchedule fire;
	TimestampTz fired_at;

	if (!job->active || !ShedlockParseFire(job->schedule, &fire))
		return;
	fired_at = ShedlockNextTick(&fire, now);
	if (fired_at <= now + USECS_PER_MINUTE)
		return;
	if (superuser() && !job->has_more_args)
	{
		fire_once(nsp, job->jobid);
		ereport(NOTICE,
				(errmsg("pg_cron will fire job %s once at the next full minute", job->jobid),
				 errdetail("By its schedule it would not be fired before %s.", ShedlockTimeString(fired_at))));
	}
	else
		ereport(NOTICE,
				(errmsg("pg_cron does not fire job %s before %s", job->jobid, ShedlockTimeString(fired_at)),
				 errhint("To run it now, execute its command as its role: SELECT username, command FROM cron.job WHERE jobid = %s;",
						 job->jobid)));
}

/*
 * ShedlockRunSoon - see to it that pg_cron runs the jobs that guard a name within a minute
 */
void
ShedlockRunSoon(FunctionCallInfo fcinfo, const ShedlockName *name)
{
	List	   *jobs = ShedlockGuardedJobs(fcinfo, name);
	ShedlockCaller caller;
	ListCell   *lc;

	ShedlockBecome(ShedlockOwner(fcinfo), &caller);
	foreach(lc, jobs)
		run_soon(name->nsp, lfirst(lc));
	ShedlockBecomeAgain(&caller);
}

/*
 * read_command - the command of a job, or NULL if that is gone, or is none of this role and database
 */
static char *
read_command(const char *id, const char *role)
{
	char	   *command = NULL;

	SPI_connect();
	ShedlockQueryCron("SELECT j.command FROM cron.job j "
					  "WHERE j.jobid::pg_catalog.text OPERATOR(pg_catalog.=) $1 AND "
					  "j.username OPERATOR(pg_catalog.=) $2 AND "
					  "j.database OPERATOR(pg_catalog.=) pg_catalog.current_database()", id, role);
	if (SPI_processed > 0)
		command = MemoryContextStrdup(PortalContext,
									  SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1));
	SPI_finish();
	return command;
}

/*
 * must_wait - is the lock held, kept or paused, so that no run can begin?
 */
static bool
must_wait(Oid nsp, char *lock_name)
{
	ShedlockName name;
	ShedlockRow row;
	ShedlockUse use = {0};

	ShedlockMakeName(nsp, lock_name, &name);
	ShedlockLookUpRow(&name, &row);
	return ShedlockJudge(&row, &name, GetCurrentTimestamp(), &use) != SHEDLOCK_FREE;
}

/*
 * take_call - find what a job calls that is to be run now, and delete the job that runs it once
 *
 * Returns false if there is nothing to run.  The job stays as long as the lock is not free: what
 * shedlock_again has allowed is still to come.
 */
static bool
take_call(Oid nsp, int64 jobid, const char *role, ShedlockGuardedCall *guarded)
{
	char	   *id = psprintf(INT64_FORMAT, jobid);
	char	   *command = read_command(id, role);
	bool		runs = command && ShedlockReadGuardedCall(command, guarded) && !guarded->has_more_args;

	if (runs && must_wait(nsp, guarded->name))
		return false;
	SPI_connect();
	ShedlockQueryCron("DELETE FROM cron.job j WHERE j.command OPERATOR(pg_catalog.=) $1 AND "
					  "j.username OPERATOR(pg_catalog.=) $2", once_command(nsp, id), role);
	SPI_finish();
	return runs;
}

/*
 * run_once - run a command as shedlock_run does
 *
 * Errors: 42501 if the caller may not call that.
 */
static void
run_once(FunctionCallInfo fcinfo, const ShedlockGuardedCall *guarded)
{
	LOCAL_FCINFO(call, RUN_ARGS);

	if (!ShedlockMayExecute(ShedlockSchema(fcinfo), "shedlock_run", run_args, RUN_ARGS))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for procedure %s", "shedlock_run")));
	InitFunctionCallInfoData(*call, fcinfo->flinfo, RUN_ARGS, InvalidOid, fcinfo->context, NULL);
	for (int i = 0; i < RUN_ARGS; i++)
		call->args[i].isnull = true;
	call->args[0].value = CStringGetTextDatum(guarded->name);
	call->args[1].value = CStringGetTextDatum(guarded->command);
	call->args[4].value = CStringGetTextDatum("skip");
	call->args[0].isnull = call->args[1].isnull = call->args[4].isnull = false;
	(void) shedlock_run(call);
}

/*
 * _shedlock_cron_once(jobid) - run a job of pg_cron once, as shedlock_run does
 *
 * Does nothing if it is no guarded job of the caller, or its CALL has got arguments since that
 * are not passed on.  A role's default_transaction_read_only does not keep the job from being
 * deleted: it would be fired for ever.
 */
Datum
_shedlock_cron_once(PG_FUNCTION_ARGS)
{
	ShedlockCaller caller;
	MemoryContext oldcontext;
	ShedlockGuardedCall guarded;
	Oid			owner = ShedlockOwner(fcinfo);
	bool		runs;

	ShedlockCheckRunContext(fcinfo);
	ShedlockRefuseNull(PG_ARGISNULL(0), "job", NULL);
	PreventCommandDuringRecovery("CALL shedlock_run");
	XactReadOnly = false;
	oldcontext = MemoryContextSwitchTo(PortalContext);
	ShedlockBecome(owner, &caller);
	runs = ShedlockReadsCron() && superuser() &&
		take_call(ShedlockSchema(fcinfo), PG_GETARG_INT64(0), GetUserNameFromId(caller.role, false), &guarded);
	ShedlockBecomeAgain(&caller);
	ShedlockCommitAndStart();
	EnsurePortalSnapshotExists();
	if (runs)
		run_once(fcinfo, &guarded);
	MemoryContextSwitchTo(oldcontext);
	PG_RETURN_VOID();
}
