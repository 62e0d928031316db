/*-------------------------------------------------------------------------
 *
 * jobfuncs.c
 *	  The SQL functions for runs: shedlock_run and what the history says.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "executor/spi.h"
#include "job/job.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

/*
 * check_context - complain unless we may commit
 *
 * A CALL is atomic in a transaction block, in a string of several statements,
 * in a function, and when the procedure is SECURITY DEFINER or has settings.
 * From DO or another procedure we could commit, but SPI would still be in use.
 * In a pipeline what came before would be committed, or rolled back, with us.
 */
static void
check_context(FunctionCallInfo fcinfo)
{
	CallContext *context = fcinfo->context && IsA(fcinfo->context, CallContext) ?
	castNode(CallContext, fcinfo->context) : NULL;

	if (IsTransactionBlock() || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
		/* translator: %s represents an SQL statement name */
				 errmsg("%s cannot run inside a transaction block", "CALL shedlock_run"),
				 errhint("Turn on autocommit, and send it as a statement of its own.")));
#ifdef XACT_FLAGS_PIPELINING
	if (MyXactFlags & (int) XACT_FLAGS_PIPELINING)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot be executed within a pipeline", "CALL shedlock_run")));
#endif
	if (context == NULL || context->atomic || SPI_inside_nonatomic_context())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot be executed from a function, a DO block or a string of several statements",
						"CALL shedlock_run"),
				 errhint("Send it as a statement of its own.")));
}

/*
 * make_run - check the arguments
 */
static ShedlockRun *
make_run(FunctionCallInfo fcinfo)
{
	ShedlockRun *run = palloc0(sizeof(ShedlockRun));
	ShedlockRequest *request = &run->request;
	ErrorContextCallback errcallback;
	char	   *on_busy;

	ShedlockGetName(fcinfo, 0, &request->name);
	request->kind = SHEDLOCK_RUN;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("command must not be null")));
	run->command = text_to_cstring(PG_GETARG_TEXT_PP(1));
	ShedlockPushCommand(&errcallback, run->command);
	run->parsetrees = pg_parse_query(run->command);
	error_context_stack = errcallback.previous;
	ShedlockCheckCommand(run->parsetrees);

	request->at_most = ShedlockGetInterval(fcinfo, 2, 0);
	request->at_least = ShedlockGetInterval(fcinfo, 3, shedlock_default_lock_at_least_for);
	ShedlockCheckTimes(request->at_most, request->at_least, request->name.str);

	run->every = ShedlockGetInterval(fcinfo, 4, 0);
	if (run->every)
		run->tick = ShedlockCurrentTick(run->every, request->name.str);

	on_busy = PG_ARGISNULL(5) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(5));
	if (on_busy && strcmp(on_busy, "error") == 0)
		run->error_if_busy = true;
	else if (on_busy == NULL || strcmp(on_busy, "skip") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for on_busy: \"%s\"", on_busy ? on_busy : "NULL"),
				 errhint("It can be \"skip\" or \"error\".")));
	return run;
}

PG_FUNCTION_INFO_V1(shedlock_run);
/*
 * shedlock_run(name, command, at_most, at_least, once_every, on_busy) - run a
 * command under a lock of its own
 *
 * Errors: 22004, 22023, 25001, 0A000; those of ShedlockGuardCommand().
 */
Datum
shedlock_run(PG_FUNCTION_ARGS)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context;
	ShedlockRun *run;

	check_context(fcinfo);

	/*
	 * Survives our commits.  On error it goes with the portal of the CALL.
	 */
	context = AllocSetContextCreate(PortalContext, "shedlock_run",
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	run = make_run(fcinfo);

	ShedlockGuardCommand(run);

	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(_shedlock_run_outcome);
/*
 * _shedlock_run_outcome(token, name, logged) - outcome of a run at this moment
 *
 * logged: what the caller's snapshot says.  Null if the view does not show it to
 * the caller.
 */
Datum
_shedlock_run_outcome(PG_FUNCTION_ARGS)
{
	int64		token = PG_GETARG_INT64(0);
	char	   *str = text_to_cstring(PG_GETARG_TEXT_PP(1));
	char	   *logged = text_to_cstring(PG_GETARG_TEXT_PP(2));
	ShedlockName name;

	if (strcmp(logged, "running") != 0)
		PG_RETURN_DATUM(PG_GETARG_DATUM(2));
	if (RecoveryInProgress())
		PG_RETURN_TEXT_P(cstring_to_text("unknown"));

	ShedlockMakeName(ShedlockSchema(fcinfo), str, &name);
	if (!ShedlockHistoryMaySee(name.nsp, token))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(ShedlockHistoryOutcome(&name, token, logged)));
}
