/*-------------------------------------------------------------------------
 *
 * jobfuncs.c
 *	  The SQL functions for runs and ticks.
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
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * check_context - raise an error unless the CALL can commit
 *
 * A CALL is atomic in a transaction block, in a string of several statements,
 * in a function, and when the procedure is SECURITY DEFINER or has settings.  It
 * can commit in DO or another procedure, but SPI would be in use then.  In a
 * pipeline it would also commit, or roll back, the statements before it.
 */
static void
check_context(FunctionCallInfo fcinfo)
{
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
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic || SPI_inside_nonatomic_context())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot be executed from a function, a DO block or a string of several statements",
						"CALL shedlock_run"),
				 errhint("Send it as a statement of its own.")));
}

/*
 * make_run - read and check the arguments of shedlock_run
 */
static ShedlockRun *
make_run(FunctionCallInfo fcinfo)
{
	ShedlockRun *run = palloc0(sizeof(ShedlockRun));
	ShedlockRequest *request = &run->request;
	char	   *on_busy = PG_ARGISNULL(5) ? "NULL" : text_to_cstring(PG_GETARG_TEXT_PP(5));

	ShedlockGetName(fcinfo, 0, &request->name);
	request->kind = SHEDLOCK_RUN;
	run->command = ShedlockGetCommand(fcinfo, 1, &run->parsetrees);

	request->at_most = ShedlockGetInterval(fcinfo, 2, 0);
	request->at_least = ShedlockGetInterval(fcinfo, 3, shedlock_default_lock_at_least_for);
	ShedlockCheckTimes(request->at_most, request->at_least, request->name.str);

	run->every = ShedlockGetInterval(fcinfo, 4, 0);
	if (run->every)
		run->tick = ShedlockCurrentTick(run->every, request->name.str);

	run->error_if_busy = strcmp(on_busy, "error") == 0;
	if (!run->error_if_busy && strcmp(on_busy, "skip") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for on_busy: \"%s\"", on_busy),
				 errhint("It can be \"skip\" or \"error\".")));
	return run;
}

PG_FUNCTION_INFO_V1(shedlock_run);
/*
 * shedlock_run(name, command, lock_at_most_for, lock_at_least_for, once_every,
 * on_busy) - run a command under a lock of its own
 *
 * The run is allocated in the portal of the CALL, which survives commits.
 * Errors: 22004, 22023, 25001, 0A000; those of ShedlockGuardCommand().
 */
Datum
shedlock_run(PG_FUNCTION_ARGS)
{
	MemoryContext caller;

	check_context(fcinfo);
	caller = MemoryContextSwitchTo(PortalContext);
	ShedlockGuardCommand(make_run(fcinfo));
	MemoryContextSwitchTo(caller);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(_shedlock_run_outcome);
/*
 * _shedlock_run_outcome(token, name, logged) - outcome of a run as of now
 *
 * logged: what the caller's snapshot shows.  Returns null if shedlock_history does
 * not show the run to the caller, "unknown" on a standby.
 */
Datum
_shedlock_run_outcome(PG_FUNCTION_ARGS)
{
	int64		token = PG_GETARG_INT64(0);
	const char *outcome = text_to_cstring(PG_GETARG_TEXT_PP(2));
	ShedlockName name;

	if (strcmp(outcome, "running") != 0)
		PG_RETURN_DATUM(PG_GETARG_DATUM(2));
	if (RecoveryInProgress())
		PG_RETURN_TEXT_P(cstring_to_text("unknown"));

	ShedlockMakeName(ShedlockSchema(fcinfo), text_to_cstring(PG_GETARG_TEXT_PP(1)), &name);
	if (!ShedlockHistoryMaySee(name.nsp, token))
		PG_RETURN_NULL();
	outcome = ShedlockRunOutcome(&name, token);
	PG_RETURN_TEXT_P(cstring_to_text(outcome ? outcome : "lost"));
}

/*
 * claim - claim a tick for a caller without a run
 */
static bool
claim(const ShedlockName *name, TimestampTz tick, const Interval *period)
{
	ShedlockTick last;
	bool		claimed = ShedlockClaimTick(name, tick, period, 0, true, &last);

	if (claimed)
		ShedlockNoticeBlock(name, true);
	return claimed;
}

PG_FUNCTION_INFO_V1(shedlock_once);
/*
 * shedlock_once(name, tick) - claim a scheduled instant
 *
 * Returns true for one caller.  Errors: 22004, 22023, 25006.
 */
Datum
shedlock_once(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	TimestampTz tick;

	ShedlockBeginCall(fcinfo, "shedlock_once()", &name);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("tick of lock \"%s\" must not be null", name.str)));
	tick = PG_GETARG_TIMESTAMPTZ(1);
	if (TIMESTAMP_NOT_FINITE(tick))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tick of lock \"%s\" must be finite", name.str)));
	if (tick > GetCurrentTimestamp() + SHEDLOCK_TICK_AHEAD_MAX * USECS_PER_SEC)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tick of lock \"%s\" is in the future", name.str),
				 errdetail("A tick can be at most %d seconds ahead of the server's clock.",
						   SHEDLOCK_TICK_AHEAD_MAX),
				 errhint("Ticks only move forward: a claim in the future would stop the job until then.")));
	PG_RETURN_BOOL(claim(&name, tick, NULL));
}

PG_FUNCTION_INFO_V1(shedlock_once_every);
/*
 * shedlock_once_every(name, every) - claim the current period of a schedule
 *
 * Returns true for one caller.  Errors: 22004, 22023, 25006.
 */
Datum
shedlock_once_every(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	Interval   *every;

	ShedlockBeginCall(fcinfo, "shedlock_once_every()", &name);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("period of lock \"%s\" must not be null", name.str)));
	every = PG_GETARG_INTERVAL_P(1);
	PG_RETURN_BOOL(claim(&name, ShedlockCurrentTick(every, name.str), every));
}

PG_FUNCTION_INFO_V1(shedlock_again);
/*
 * shedlock_again(name) - allow the last tick to be claimed once more
 *
 * The next caller can claim it, even if a newer tick has come.  Warns and returns
 * false if no claim is committed.  Errors: 22004, 22023, 25006.
 */
Datum
shedlock_again(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	TimestampTz tick;
	bool		allowed;

	ShedlockBeginCall(fcinfo, "shedlock_again()", &name);
	allowed = ShedlockAllowTickAgain(&name, &tick);
	if (allowed)
		ereport(LOG,
				(errmsg("tick %s of lock \"%s\" given again by role %s",
						ShedlockTimeString(tick), name.str, ShedlockActingRole())));
	else
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no tick of lock \"%s\" was claimed", name.str)));
	PG_RETURN_BOOL(allowed);
}
