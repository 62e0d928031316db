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
#include "api/api.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * ShedlockCheckRunContext - raise an error unless the CALL can commit
 *
 * A CALL is atomic in a transaction block, in a string of several statements,
 * in a function, and when the procedure is SECURITY DEFINER or has settings.  It
 * can commit in DO or another procedure, but SPI would be in use then.  In a
 * pipeline it would also commit, or roll back, the statements before it.
 */
void
ShedlockCheckRunContext(FunctionCallInfo fcinfo)
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
 * new_run - a run with nothing set, and no warning
 */
static ShedlockRun *
new_run(void)
{
	ShedlockRun *run = palloc(sizeof(ShedlockRun));

	/*
	 * Zeroing all of the room for a warning costs more than reading the
	 * arguments.
	 */
	memset(run, 0, offsetof(ShedlockRun, warning) + 1);
	return run;
}

/*
 * make_run - read and check the arguments of shedlock_run
 */
static ShedlockRun *
make_run(FunctionCallInfo fcinfo)
{
	ShedlockRun *run = new_run();
	ShedlockRequest *request = &run->request;
	char	   *on_busy = ShedlockGetWord(fcinfo, 4, "NULL");

	ShedlockGetName(fcinfo, 0, &request->name);
	request->kind = SHEDLOCK_RUN;
	run->command = ShedlockGetCommand(fcinfo, 1, &run->parsetrees);

	run->at_most = ShedlockGetInterval(fcinfo, 2, 0);
	run->at_least = ShedlockGetInterval(fcinfo, 3, 0);
	ShedlockCheckTimes(run->at_most, run->at_least, run->request.name.str);

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
 * shedlock_run(name, command, lock_at_most_for, lock_at_least_for, on_busy) - run a
 * command under a lock of its own
 *
 * The run is allocated in the portal of the CALL, which survives commits.
 */
Datum
shedlock_run(PG_FUNCTION_ARGS)
{
	MemoryContext caller;

	ShedlockCheckRunContext(fcinfo);
	caller = MemoryContextSwitchTo(PortalContext);
	ShedlockGuardCommand(make_run(fcinfo));
	MemoryContextSwitchTo(caller);
	PG_RETURN_VOID();
}

/*
 * form_answer - the row that shedlock_run_begin returns
 *
 * token: 0 if there is no run.  attempt: 0 if it has no tick.
 */
static Datum
form_answer(FunctionCallInfo fcinfo, int64 token, TimestampTz tick, int attempt,
			const ShedlockAnswer *answer)
{
	Datum		values[] = {
		Int64GetDatum(token), TimestampTzGetDatum(tick), Int32GetDatum(attempt),
		CStringGetTextDatum(shedlock_beginning_names[answer->beginning]),
		answer->reason ? CStringGetTextDatum(answer->reason) : 0,
		0
	};
	bool		isnull[] = {token == 0, attempt == 0, attempt == 0, false, answer->reason == NULL, false};

	ShedlockShowTime(answer->next_at, &values[5], &isnull[5]);
	return ShedlockFormAnswer(fcinfo, values, isnull);
}

/*
 * make_leased_run - read and check the arguments of shedlock_run_begin
 *
 * A call in a read-only transaction fails after that: so clients can have them checked.
 */
static ShedlockRun *
make_leased_run(FunctionCallInfo fcinfo)
{
	ShedlockRun *run = new_run();
	ShedlockRequest *request = &run->request;

	ShedlockGetName(fcinfo, 0, &request->name);
	request->kind = SHEDLOCK_LEASED_RUN;
	run->at_most = ShedlockGetInterval(fcinfo, 1, 0);
	run->at_least = ShedlockGetInterval(fcinfo, 2, 0);
	ShedlockCheckTimes(run->at_most, run->at_least, run->request.name.str);
	request->locked_by = ShedlockGetText(fcinfo, 4, SHEDLOCK_LOCKED_BY_MAX, "locked_by");
	run->command = PG_ARGISNULL(5) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(5));
	run->client_request = ShedlockGetText(fcinfo, 6, SHEDLOCK_REQUEST_MAX, "request");
	if (run->client_request && run->client_request[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("request must not be empty"),
				 errdetail("Each run needs a request of its own: repeating a request begins no other run.")));
	ShedlockCheckMayWrite("shedlock_run_begin()");
	return run;
}

/*
 * answer_request - the answer to a request that has begun a run before
 *
 * Returns false if there is no such run, or the caller has no request.
 */
static bool
answer_request(FunctionCallInfo fcinfo, const ShedlockRun *run, Datum *result)
{
	const ShedlockName *name = &run->request.name;
	ShedlockAnswer answer = {.beginning = SHEDLOCK_REPEATED,.next_at = DT_NOEND};
	ShedlockHistoryRun past;

	if (run->client_request == NULL)
		return false;
	ShedlockHistoryFind(name, run->client_request, &past);
	if (past.token == 0)
		return false;
	ShedlockReadRun(name, past.token, &past);
	if (past.outcome == SHEDLOCK_RUNNING)
	{
		ShedlockCommitDurablyAgain();
		answer.beginning = SHEDLOCK_BEGUN;
		*result = form_answer(fcinfo, past.token, past.tick, past.attempt, &answer);
	}
	else
	{
		answer.reason = psprintf("This request began the run with token " INT64_FORMAT "; outcome: %s.",
								 past.token, shedlock_outcome_names[past.outcome]);
		*result = form_answer(fcinfo, 0, 0, 0, &answer);
	}
	return true;
}

PG_FUNCTION_INFO_V1(shedlock_run_begin);
/*
 * shedlock_run_begin(name, lease, lock_at_least_for, wait, locked_by, description, request) -
 * begin a run whose work is outside the database, under a lease
 */
Datum
shedlock_run_begin(PG_FUNCTION_ARGS)
{
	ShedlockRun *run;
	const ShedlockName *name;
	Interval   *wait;
	ShedlockAnswer answer;
	Datum		result;

	run = make_leased_run(fcinfo);
	name = &run->request.name;

	/* A repeated request may wait longer than the first one did. */
	if (answer_request(fcinfo, run, &result))
		PG_RETURN_DATUM(result);
	wait = ShedlockGetInterval(fcinfo, 3, 0);
	ShedlockCheckDuration(wait, "wait", name->str, true, shedlock_max_wait, "shedlock.max_wait");
	ShedlockBeginRun(run, wait, true, &answer);
	if (answer.beginning == SHEDLOCK_BEGUN)
		ShedlockNoticeBlock(name, false);

	/* While this call waited, one with its request may have begun the run. */
	else if (answer_request(fcinfo, run, &result))
		PG_RETURN_DATUM(result);
	PG_RETURN_DATUM(form_answer(fcinfo, run->token, run->tick, run->attempt, &answer));
}

PG_FUNCTION_INFO_V1(shedlock_run_end);
/*
 * shedlock_run_end(name, token, outcome, message, exit_code) - end such a run
 */
Datum
shedlock_run_end(PG_FUNCTION_ARGS)
{
	ShedlockEnding ending = {0};
	ShedlockName name;
	int64		token;
	int32		exit_code;
	char	   *outcome = ShedlockGetWord(fcinfo, 2, "NULL");

	ShedlockBeginCall(fcinfo, "shedlock_run_end()", &name);
	token = ShedlockGetToken(fcinfo, 1);
	ShedlockRefuseNull(token == 0, "token", name.str);
	ending.outcome = ShedlockFindOutcome(outcome);
	if (ending.outcome < SHEDLOCK_SUCCEEDED || ending.outcome > SHEDLOCK_RETURNED)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid outcome: \"%s\"", outcome),
				 errhint("It can be \"succeeded\", \"failed\", \"timed out\", \"cancelled\" or \"returned\".")));
	if (!PG_ARGISNULL(3))
		ending.message = text_to_cstring(PG_GETARG_TEXT_PP(3));
	if (!PG_ARGISNULL(4))
	{
		exit_code = PG_GETARG_INT32(4);
		ending.exit_code = &exit_code;
	}
	PG_RETURN_BOOL(ShedlockEndLeasedRun(&name, token, &ending));
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
	ShedlockName name;
	ShedlockHistoryRun run;

	if (ShedlockFindOutcome(text_to_cstring(PG_GETARG_TEXT_PP(2))) != SHEDLOCK_RUNNING)
		PG_RETURN_DATUM(PG_GETARG_DATUM(2));
	ShedlockMakeName(ShedlockSchema(fcinfo), text_to_cstring(PG_GETARG_TEXT_PP(1)), &name);
	ShedlockReadRun(&name, PG_GETARG_INT64(0), &run);
	if (!ShedlockMaySee(run.role))
		PG_RETURN_NULL();
	if (run.outcome == SHEDLOCK_NO_RUN)
		run.outcome = SHEDLOCK_RUN_LOST;
	PG_RETURN_TEXT_P(cstring_to_text(shedlock_outcome_names[run.outcome]));
}

/*
 * claim - claim a tick for a caller without a run
 *
 * period: that of the tick, or NULL.
 */
static bool
claim(const ShedlockName *name, TimestampTz tick, Interval *period)
{
	ShedlockTick before;

	if (!ShedlockClaimTick(name, tick, period, &before))
		return false;
	if (ShedlockGiveUpTick(name, &before))
		ShedlockTellRun("gave up", false, name->nsp, before.token, &before);
	ShedlockNoticeBlock(name, true);
	return true;
}

PG_FUNCTION_INFO_V1(shedlock_once);
/*
 * shedlock_once(name, tick) - claim a scheduled instant
 */
Datum
shedlock_once(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	TimestampTz tick;

	ShedlockBeginCall(fcinfo, "shedlock_once()", &name);
	ShedlockRefuseNull(PG_ARGISNULL(1), "tick", name.str);
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
 */
Datum
shedlock_once_every(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	ShedlockSchedule schedule;
	Interval   *period;

	ShedlockBeginCall(fcinfo, "shedlock_once_every()", &name);
	ShedlockRefuseNull(PG_ARGISNULL(1), "period", name.str);
	period = PG_GETARG_INTERVAL_P(1);
	ShedlockPeriodSchedule(period, name.str, &schedule);
	PG_RETURN_BOOL(claim(&name, ShedlockTickOfTimer(&schedule, GetCurrentTimestamp(),
													SHEDLOCK_CLAIM_EARLY), period));
}
