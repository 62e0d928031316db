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
 * form_answer - the row that shedlock_run_begin returns, or shedlock_next: with the name first
 *
 * The run's token is 0 if it has not begun, its attempt if it has no tick.
 */
static Datum
form_answer(FunctionCallInfo fcinfo, const ShedlockRun *run, const ShedlockAnswer *answer, bool named)
{
	bool		begun = run->token != 0;
	Datum		values[7] = {begun ? CStringGetTextDatum(run->request.name.str) : 0};
	bool		isnull[7] = {!begun};
	int			i = named ? 1 : 0;

	values[i] = Int64GetDatum(run->token);
	isnull[i++] = !begun;
	values[i] = TimestampTzGetDatum(run->tick);
	isnull[i++] = run->attempt == 0;
	values[i] = Int32GetDatum(run->attempt);
	isnull[i++] = run->attempt == 0;
	values[i++] = CStringGetTextDatum(shedlock_beginning_names[answer->beginning]);
	if (answer->reason)
		values[i] = CStringGetTextDatum(answer->reason);
	isnull[i++] = answer->reason == NULL;
	ShedlockShowTime(answer->next_at, &values[i], &isnull[i]);
	return ShedlockFormAnswer(fcinfo, values, isnull);
}

/*
 * get_leased_run - read and check the arguments that shedlock_run_begin and shedlock_next share
 *
 * The lease is argument 1.  locked_by, request: the numbers of these arguments.
 */
static ShedlockRun *
get_leased_run(FunctionCallInfo fcinfo, int locked_by, int request)
{
	ShedlockRun *run = new_run();

	run->request.kind = SHEDLOCK_LEASED_RUN;
	run->at_most = ShedlockGetInterval(fcinfo, 1, 0);
	run->request.locked_by = ShedlockGetText(fcinfo, locked_by, SHEDLOCK_LOCKED_BY_MAX, "locked_by");
	run->client_request = ShedlockGetText(fcinfo, request, SHEDLOCK_REQUEST_MAX, "request");
	if (run->client_request && run->client_request[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("request must not be empty"),
				 errdetail("Each run needs a request of its own: repeating a request begins no other run.")));
	return run;
}

/*
 * get_wait - the argument that says how long the call may wait; or NULL
 */
static Interval *
get_wait(FunctionCallInfo fcinfo, int argno, const char *name)
{
	Interval   *wait = ShedlockGetInterval(fcinfo, argno, 0);

	ShedlockCheckDuration(wait, "wait", name, true, shedlock_max_wait, "shedlock.max_wait");
	return wait;
}

/*
 * answer_request - answer a request that has begun a run before
 *
 * names: those of the call; the run of another one is not given.  Returns false if there is no
 * such run, or the caller has no request.
 */
static bool
answer_request(ShedlockRun *run, const ShedlockName *names, int n, ShedlockAnswer *answer)
{
	ShedlockHistoryRun past;
	ShedlockName name;
	ShedlockRow row;
	bool		is_asked = false;

	if (run->client_request == NULL)
		return false;
	ShedlockHistoryFindRequest(names[0].nsp, run->client_request, &past);
	if (past.token == 0)
		return false;
	ShedlockMakeName(names[0].nsp, past.name, &name);
	for (int i = 0; i < n; i++)
		is_asked |= strcmp(names[i].str, past.name) == 0;
	ShedlockReadRun(&name, past.token, &past);
	answer->beginning = SHEDLOCK_REPEATED;
	answer->reason = NULL;
	answer->next_at = DT_NOEND;
	if (is_asked && past.outcome == SHEDLOCK_RUNNING)
	{
		ShedlockCommitDurablyAgain();
		answer->beginning = SHEDLOCK_BEGUN;
		run->request.name = name;
		run->token = past.token;
		run->tick = past.tick;
		run->attempt = past.attempt;
		ShedlockLookUpRow(&name, &row);
		if (row.found && row.token == past.token)
			answer->next_at = Max(row.lock_until, row.keep_until);
	}
	else
		answer->reason = psprintf("This request began the run with token " INT64_FORMAT " of lock \"%s\"; outcome: %s.",
								  past.token, name.str, shedlock_outcome_names[past.outcome]);
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
	ShedlockRun *run = get_leased_run(fcinfo, 4, 6);
	ShedlockName *name = &run->request.name;
	Interval   *wait;
	ShedlockAnswer answer;

	ShedlockGetName(fcinfo, 0, name);
	run->at_least = ShedlockGetInterval(fcinfo, 2, 0);
	ShedlockCheckTimes(run->at_most, run->at_least, name->str);
	run->command = PG_ARGISNULL(5) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(5));

	/*
	 * After the others, so that clients can check them in a read-only
	 * transaction.
	 */
	ShedlockCheckMayWrite("shedlock_run_begin()");

	/* A repeated request may wait longer than the first one did. */
	if (answer_request(run, name, 1, &answer))
		PG_RETURN_DATUM(form_answer(fcinfo, run, &answer, false));
	wait = get_wait(fcinfo, 3, name->str);
	ShedlockBeginRun(run, wait, true, &answer);
	if (answer.beginning == SHEDLOCK_BEGUN)
		ShedlockNoticeBlock(name, false);

	/* While this call waited, one with its request may have begun the run. */
	else
		(void) answer_request(run, name, 1, &answer);
	PG_RETURN_DATUM(form_answer(fcinfo, run, &answer, false));
}

PG_FUNCTION_INFO_V1(shedlock_next);
/*
 * shedlock_next(names, lease, wait, locked_by, request) - begin a run of the job that has
 * waited longest of those that are due
 *
 * Returns its name and token, or why none has begun and when to come back.  Errors: those of
 * ShedlockPickRun(); 22023 if there are no names.
 */
Datum
shedlock_next(PG_FUNCTION_ARGS)
{
	ShedlockRun *run = get_leased_run(fcinfo, 3, 4);
	ShedlockName *names;
	int			n;
	Interval   *wait;
	ShedlockAnswer answer;

	names = ShedlockGetNames(fcinfo, 0, SHEDLOCK_NAMES_MAX, &n);
	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there must be at least one name")));
	ShedlockCheckTimes(run->at_most, NULL, NULL);
	ShedlockCheckMayWrite("shedlock_next()");
	if (answer_request(run, names, n, &answer))
		PG_RETURN_DATUM(form_answer(fcinfo, run, &answer, true));
	wait = get_wait(fcinfo, 2, NULL);
	ShedlockPickRun(run, names, n, wait, &answer);
	if (answer.beginning == SHEDLOCK_BEGUN)
		ShedlockNoticeBlock(&run->request.name, false);
	else
		(void) answer_request(run, names, n, &answer);
	PG_RETURN_DATUM(form_answer(fcinfo, run, &answer, true));
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
