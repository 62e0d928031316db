/*-------------------------------------------------------------------------
 *
 * run.c
 *	  CALL shedlock_run(): any command, once.
 *
 *	1. Take the lock (and claim the tick, and log the run), commit.
 *	2. Run the command in portals of its own, as the client's own statement
 *	   would run: no transaction, snapshot or row lock of ours is open, so that
 *	   VACUUM, CREATE INDEX CONCURRENTLY and procedures that commit work.
 *	   Commit its work.
 *	3. Release the lock, log the outcome, commit.  With once_every, the ticks
 *	   that came meanwhile are claimed, too: a scheduler that has queued them
 *	   does not start the command for them, back to back.  An error of the
 *	   command is raised again after that.
 *
 * SPI is used for nothing but its commits: they also let go of the snapshot
 * that the CALL's portal holds.  An error in step 2 is handled as SPI_commit()
 * handles its own: the transaction is aborted, another one is started, and the
 * portal of the CALL lives on, since it was made before either.
 *
 * All bookkeeping is written as row.c writes, so that it does not matter which
 * role, search_path or default_transaction_read_only the command left behind.
 * What a command can drop is the advisory half (DISCARD ALL): it is taken again
 * after each statement, and until then the row with this process's ID and
 * start stands for it.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "parser/parser.h"
#include "shedlock.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* A call of shedlock_run.  All of it outlives the transactions it makes. */
typedef struct Run
{
	ShedlockRequest request;
	char	   *command;
	List	   *parsetrees;		/* of the command */
	Interval   *every;			/* NULL: it has no tick */
	TimestampTz tick;
	bool		error_if_busy;
	int64		token;			/* once it is taken */
	struct Run *outer;			/* the run whose command this call is */
} Run;

static Run *active_runs = NULL;

/*
 * ShedlockRunIsActive - is that run on the stack of this process?
 */
bool
ShedlockRunIsActive(const char *name, int64 token)
{
	for (Run *run = active_runs; run; run = run->outer)
	{
		if (run->token == token && strcmp(run->request.name.str, name) == 0)
			return true;
	}
	return false;
}

/*
 * check_context - complain unless we may commit
 *
 * A CALL is atomic in a transaction block, in a string of several statements,
 * in a function, and when the procedure is SECURITY DEFINER or has settings.
 * From DO or another procedure we could commit, but SPI would still be in use.
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
				 errmsg("%s cannot run inside a transaction block", "CALL shedlock_run")));
	if (context == NULL || context->atomic || SPI_inside_nonatomic_context())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot be executed from a function, a DO block or a string of several statements",
						"CALL shedlock_run"),
				 errhint("Send it as a statement of its own.")));
}

/*
 * copy_interval - of an argument, or NULL
 */
static Interval *
copy_interval(FunctionCallInfo fcinfo, int argno)
{
	Interval   *arg = ShedlockGetInterval(fcinfo, argno);
	Interval   *copy = NULL;

	if (arg)
	{
		copy = palloc(sizeof(Interval));
		*copy = *arg;
	}
	return copy;
}

/*
 * push_command - from now on errors point into the command
 */
static void
push_command(ErrorContextCallback *errcallback, char *command)
{
	errcallback->callback = ShedlockPositionInCommand;
	errcallback->arg = command;
	errcallback->previous = error_context_stack;
	error_context_stack = errcallback;
}

/*
 * make_run - check the arguments
 */
static Run *
make_run(FunctionCallInfo fcinfo)
{
	Run		   *run = palloc0(sizeof(Run));
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
	push_command(&errcallback, run->command);
	run->parsetrees = pg_parse_query(run->command);
	error_context_stack = errcallback.previous;
	ShedlockCheckCommand(run->parsetrees);

	request->at_most = copy_interval(fcinfo, 2);
	if (request->at_most)
		ShedlockCheckDuration(request->at_most, "lock_at_most_for",
							  request->name.str, false);
	request->at_least = copy_interval(fcinfo, 3);
	if (request->at_least)
		ShedlockCheckDuration(request->at_least, "lock_at_least_for",
							  request->name.str, true);
	else if (shedlock_default_lock_at_least_for > 0)
		request->at_least = ShedlockIntervalSetting(shedlock_default_lock_at_least_for);
	if (request->at_least && request->at_most)
		ShedlockCheckAtLeast(request->at_least, request->at_most, request->name.str);

	run->every = copy_interval(fcinfo, 4);
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

/*
 * commit_and_start - commit, and go on in a new transaction
 *
 * No snapshot is active afterwards.
 */
static void
commit_and_start(void)
{
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
}

/*
 * skip - say why a run does not happen: to the client, and in the server's log
 */
static void
skip(const Run *run, const char *detail)
{
	const char *name = run->request.name.str;

	if (run->error_if_busy)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock \"%s\"", name),
				 errdetail_internal("%s", detail)));
	if (shedlock_log_skipped_runs)
		ereport(LOG,
				(errmsg("skipping run of lock \"%s\"", name),
				 errdetail_internal("%s", detail)));
	ereport(NOTICE,
			(errmsg("skipping run of lock \"%s\"", name),
			 errdetail_internal("%s", detail)));
}

/*
 * busy_detail - who has the lock
 */
static char *
busy_detail(const ShedlockName *name, const ShedlockResult *result)
{
	const ShedlockRow *row = &result->row;
	bool		kept = result->verdict == SHEDLOCK_KEPT;

	/* The at-least time of a dead holder looks like a lock that is held. */
	if (result->verdict == SHEDLOCK_HELD && !ShedlockCountsAsLease(row))
		kept = !ShedlockHolderLives(row, name, false);

	if (result->verdict == SHEDLOCK_PAUSED)
		return psprintf("It is paused until %s by \"%s\"%s%s.",
						ShedlockTimeString(row->paused_until),
						row->paused_by ? row->paused_by : "",
						row->pause_reason ? ": " : "",
						row->pause_reason ? row->pause_reason : "");
	if (kept)
		return psprintf("It was last held by \"%s\" and is kept until %s by its lock_at_least_for.",
						row->locked_by,
						ShedlockTimeString(row->kind == SHEDLOCK_RELEASED ?
										   row->lock_until : row->keep_until));
	if (!row->found || row->kind == SHEDLOCK_RELEASED ||
		(result->verdict == SHEDLOCK_BUSY && row->kind == SHEDLOCK_LEASE))
		return pstrdup("It is being taken by an open transaction.");
	return psprintf("It is held by \"%s\" since %s.",
					row->locked_by, ShedlockTimeString(row->locked_at));
}

/*
 * tick_detail - who claimed the tick, and what became of it
 */
static char *
tick_detail(const Run *run, const ShedlockTick *last)
{
	char	   *outcome = NULL;

	if (last->tick < run->tick)
		return psprintf("Tick %s is being claimed by an open transaction.",
						ShedlockTimeString(run->tick));
	if (last->token != 0)
		outcome = ShedlockHistoryOutcome(run->request.name.nsp, last->token);
	return psprintf("Tick %s was claimed at %s by \"%s\"%s%s.",
					ShedlockTimeString(last->tick),
					ShedlockTimeString(last->claimed_at), last->claimed_by,
					outcome ? "; outcome: " : "", outcome ? outcome : "");
}

/*
 * begin_run - step 1
 *
 * Returns false if the run is skipped; nothing is written then.  The tick is
 * looked at first, because a tick that was claimed is the usual reason.
 */
static bool
begin_run(Run *run)
{
	const ShedlockName *name = &run->request.name;
	ShedlockStore store;
	ShedlockResult result;
	ShedlockTick last;
	bool		taken;

	/* A role's setting is meant for its own work. */
	PreventCommandDuringRecovery("shedlock_run()");
	XactReadOnly = false;

	if (run->every && ShedlockTickIsClaimed(name, run->tick, &last))
	{
		skip(run, tick_detail(run, &last));
		return false;
	}

	ShedlockOpen(&store, name->nsp, "shedlock");
	taken = ShedlockAcquire(&store, &run->request, &result);
	ShedlockClose(&store);
	if (!taken)
	{
		skip(run, busy_detail(name, &result));
		return false;
	}
	run->token = result.row.token;

	if (run->every && !ShedlockClaimTick(name, run->tick, run->token, &last))
	{
		/* Somebody was faster: let go of the lock again. */
		char	   *detail = tick_detail(run, &last);

		SPI_connect_ext(SPI_OPT_NONATOMIC);
		SPI_rollback();
		SPI_finish();
		skip(run, detail);
		return false;
	}
	ShedlockHistoryStart(name, &result.row, run->command,
						 run->every ? &run->tick : NULL);
	return true;
}

/*
 * run_statement - as exec_simple_query() does it, but with the result thrown
 * away
 */
static void
run_statement(RawStmt *parsetree, const char *command, bool is_top_level)
{
	CommandTag	tag = CreateCommandTag(parsetree->stmt);
	bool		snapshot_set = false;
	List	   *plans;
	Portal		portal;
	QueryCompletion qc;

	if (analyze_requires_snapshot(parsetree))
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		snapshot_set = true;
	}
	plans = pg_analyze_and_rewrite_fixedparams(parsetree, command, NULL, 0, NULL);
	plans = pg_plan_queries(plans, command, CURSOR_OPT_PARALLEL_OK, NULL);
	if (snapshot_set)
		PopActiveSnapshot();
	CHECK_FOR_INTERRUPTS();

	/* Not the unnamed portal: that is the CALL. */
	portal = CreateNewPortal();
	portal->visible = false;
	PortalDefineQuery(portal, NULL, command, tag, plans, NULL);
	PortalStart(portal, NULL, 0, InvalidSnapshot);
	InitializeQueryCompletion(&qc);
	(void) portal_run(portal, is_top_level, None_Receiver, &qc);
	PortalDrop(portal, false);
	CommandCounterIncrement();
}

/*
 * run_command - step 2: all statements, in one transaction as far as they
 * leave it alone
 */
static void
run_command(Run *run)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "shedlock_run statement",
												  ALLOCSET_DEFAULT_SIZES);
	bool		is_top_level = list_length(run->parsetrees) == 1;
	ErrorContextCallback errcallback;
	ListCell   *lc;

	push_command(&errcallback, run->command);
	foreach(lc, run->parsetrees)
	{
		ShedlockHolding *holding;

		/* The plan and all that; portals have memory of their own. */
		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
		run_statement(lfirst_node(RawStmt, lc), run->command, is_top_level);
		MemoryContextSwitchTo(caller);

		holding = ShedlockFindHolding(run->request.name.str, 0);
		if (holding)
			ShedlockRetakeHolding(holding);

		/* SET statement_timeout counts for the statements after it. */
		if (StatementTimeout == 0)
			disable_timeout(STATEMENT_TIMEOUT, false);
		else if (!get_timeout_active(STATEMENT_TIMEOUT))
			enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);
	}
	commit_and_start();
	error_context_stack = errcallback.previous;
	MemoryContextDelete(context);
}

/*
 * run_is_over_time - has this run outlived its lock_at_most_for?
 */
static bool
run_is_over_time(const Run *run)
{
	ShedlockHolding *holding = ShedlockFindHolding(run->request.name.str, run->token);

	return ShedlockRunDeadlinePassed() && holding &&
		GetCurrentTimestamp() >= holding->deadline;
}

/*
 * take_error - catch the error that is being handled, and start anew
 *
 * Returns the error, in that context.  A transaction is open and clean
 * afterwards.  This is what SPI_commit() does with an error of its own.
 */
static ErrorData *
take_error(MemoryContext context)
{
	ErrorData  *edata;

	MemoryContextSwitchTo(context);
	edata = CopyErrorData();
	FlushErrorState();
	AbortCurrentTransaction();
	StartTransactionCommand();
	MemoryContextSwitchTo(context);
	return edata;
}

/*
 * begin_bookkeeping - whatever the command has made the session's defaults
 *
 * The server wants a snapshot to be there when values are read that may be
 * stored out of line.
 */
static void
begin_bookkeeping(void)
{
	XactReadOnly = false;
	XactIsoLevel = XACT_READ_COMMITTED;
	PushActiveSnapshot(GetTransactionSnapshot());
}

/*
 * end_bookkeeping - commit it
 */
static void
end_bookkeeping(void)
{
	PopActiveSnapshot();
	commit_and_start();
}

/*
 * release_run - write that the lock is given back
 *
 * A row lock of somebody else is waited for, and that wait can be cancelled.
 */
static void
release_run(Run *run)
{
	const ShedlockName *name = &run->request.name;
	ShedlockHolding *holding = ShedlockFindHolding(name->str, run->token);
	ShedlockStore store;
	ShedlockRow row;

	ShedlockOpen(&store, name->nsp, "shedlock");
	(void) ShedlockTryShare(&name->tag);
	for (;;)
	{
		ShedlockReadRow(&store, name->str, &row);
		if (!row.found || row.token != run->token || row.kind != SHEDLOCK_RUN)
		{
			ereport(WARNING,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("lock \"%s\" was lost while its command ran", name->str)));
			break;
		}
		ShedlockSetReleased(&row, GetCurrentTimestamp(), true);
		if (ShedlockUpdateRow(&store, &row, false) == TM_Ok)
			break;
		RESUME_CANCEL_INTERRUPTS();
		ShedlockNap(10);
		HOLD_CANCEL_INTERRUPTS();
	}
	ShedlockClose(&store);
	if (holding)
		ShedlockReleaseHolding(holding);
}

/*
 * try_end - one try to release the lock, and to log the outcome unless it is
 * NULL
 *
 * Returns the error that it ended with, or NULL.
 */
static ErrorData *
try_end(Run *run, const char *outcome, const ErrorData *edata)
{
	MemoryContext context = CurrentMemoryContext;
	uint32		holdoff = QueryCancelHoldoffCount;
	ErrorData  *volatile failure = NULL;

	HOLD_CANCEL_INTERRUPTS();
	PG_TRY();
	{
		begin_bookkeeping();
		release_run(run);
		if (outcome)
		{
			if (run->every)
				ShedlockClaimTicksOfRun(&run->request.name, run->every, run->token);
			ShedlockHistoryEnd(run->request.name.nsp, run->token, outcome, edata);
		}
		end_bookkeeping();
	}
	PG_CATCH();
	{
		failure = take_error(context);
	}
	PG_END_TRY();

	/* An error can come from where cancels were let through. */
	QueryCancelHoldoffCount = holdoff;
	return failure;
}

/*
 * try_prune - keep the history short; not worth failing for
 */
static void
try_prune(const Run *run)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		begin_bookkeeping();
		ShedlockHistoryPrune(run->request.name.nsp);
		end_bookkeeping();
	}
	PG_CATCH();
	{
		ErrorData  *failure = take_error(context);

		ereport(WARNING,
				(errcode(failure->sqlerrcode),
				 errmsg("could not prune the history of runs: %s", failure->message)));
	}
	PG_END_TRY();
}

/*
 * end_run - step 3, in a transaction that has just been started
 *
 * Cancels are held off, and so is statement_timeout: a lock must not be
 * stranded because somebody cancelled a command that was over already.  The
 * lock is worth more than the history, so that it is tried alone if both
 * cannot be had; the next one to come finds the run lost.  If even that fails
 * the lock stays until this process ends or tries a run of that name again.
 */
static void
end_run(Run *run, const char *outcome, const ErrorData *edata)
{
	ShedlockHolding *holding;
	ErrorData  *failure;

	disable_timeout(STATEMENT_TIMEOUT, false);
	failure = try_end(run, outcome, edata);
	if (failure == NULL)
	{
		try_prune(run);
		return;
	}
	ereport(WARNING,
			(errcode(failure->sqlerrcode),
			 errmsg("could not log outcome \"%s\" of lock \"%s\": %s",
					outcome, run->request.name.str, failure->message)));
	failure = try_end(run, NULL, NULL);
	if (failure == NULL)
		return;
	ereport(WARNING,
			(errcode(failure->sqlerrcode),
			 errmsg("could not release lock \"%s\": %s",
					run->request.name.str, failure->message),
			 errhint("It stays held until this session ends, or until it calls shedlock_run with that name again.")));
	holding = ShedlockFindHolding(run->request.name.str, run->token);
	if (holding)
		ShedlockDropHolding(holding);
}

/*
 * outcome_of - the word for the history
 */
static const char *
outcome_of(const Run *run, const ErrorData *edata)
{
	if (edata->sqlerrcode != ERRCODE_QUERY_CANCELED)
		return "failed";
	return run_is_over_time(run) ? "timed out" : "cancelled";
}

/*
 * try_command - step 2; returns the error that ended it, or NULL
 *
 * A transaction is open and clean either way.
 */
static ErrorData *
try_command(Run *run)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *volatile edata = NULL;

	PG_TRY();
	{
		(void) ShedlockWatchRuns(true);
		run_command(run);
		(void) ShedlockWatchRuns(false);
	}
	PG_CATCH();
	{
		(void) ShedlockWatchRuns(false);
		edata = take_error(context);
	}
	PG_END_TRY();
	return edata;
}

/*
 * guarded_run - steps 2 and 3 of a run that has its lock
 */
static void
guarded_run(Run *run)
{
	bool		watched_before = ShedlockWatchRuns(false);

	run->outer = active_runs;
	active_runs = run;
	PG_TRY();
	{
		ErrorData  *edata = try_command(run);
		const char *outcome = edata ? outcome_of(run, edata) : "succeeded";

		/* The server says that the user asked for it. */
		if (strcmp(outcome, "timed out") == 0)
			edata->message = psprintf("canceling statement due to lock_at_most_for of lock \"%s\"",
									  run->request.name.str);
		if (run->outer == NULL || run_is_over_time(run))
			ShedlockForgetRunDeadlinePassed();
		end_run(run, outcome, edata);

		if (edata)
		{
			ereport(LOG,
					(errmsg("run of lock \"%s\": %s", run->request.name.str, outcome),
					 errdetail_internal("%s", edata->message)));
			ReThrowError(edata);
		}
	}
	PG_FINALLY();
	{
		active_runs = run->outer;
		(void) ShedlockWatchRuns(watched_before);
	}
	PG_END_TRY();
}

PG_FUNCTION_INFO_V1(shedlock_run);
/*
 * shedlock_run(name, command, at_most, at_least, once_every, on_busy) - run a
 * command under a lock of its own
 *
 * Errors: 22004, 22023, 25001, 25006, 0A000; 55P03 if it is busy and on_busy
 * says so; 57014 past lock_at_most_for; whatever the command raises.  Locks:
 * see the top of this file.
 */
Datum
shedlock_run(PG_FUNCTION_ARGS)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context;
	Run		   *run;

	check_context(fcinfo);

	/*
	 * Survives our commits.  On error it goes with the portal of the CALL.
	 */
	context = AllocSetContextCreate(PortalContext, "shedlock_run",
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	run = make_run(fcinfo);

	if (active_runs && ShedlockFindHolding(run->request.name.str, 0) &&
		ShedlockFindHolding(run->request.name.str, 0)->is_run)
	{
		/* The lock is this session's already: the command is part of it. */
		commit_and_start();
		run_command(run);
	}
	else if (begin_run(run))
	{
		commit_and_start();
		guarded_run(run);
	}

	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	PG_RETURN_VOID();
}
