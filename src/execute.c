/*-------------------------------------------------------------------------
 *
 * execute.c
 *	  Executing a guarded command, as the client's own statement would run.
 *
 * In portals of its own, outside SPI, and with no transaction, snapshot or row
 * lock of ours open, so that VACUUM, CREATE INDEX CONCURRENTLY and procedures
 * that commit work.  SPI is used for nothing but its commits: they also let go
 * of the snapshot that the portal of the CALL holds.
 *
 * An error is handled as SPI_commit() handles its own: the transaction is
 * aborted, another one is started, and the portal of the CALL lives on, since
 * it was made before either.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "shedlock.h"
#include "tcop/utility.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

/*
 * ShedlockCommitAndStart - commit, and go on in a new transaction
 *
 * No snapshot is active afterwards.
 */
void
ShedlockCommitAndStart(void)
{
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
}

/*
 * ShedlockTakeError - catch the error that is being handled, and start anew
 *
 * Returns the error, in that context.  A transaction is open and clean
 * afterwards.  This is what SPI_commit() does with an error of its own.
 */
ErrorData *
ShedlockTakeError(MemoryContext context)
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
 * ShedlockPushCommand - from now on errors point into the command
 */
void
ShedlockPushCommand(ErrorContextCallback *errcallback, char *command)
{
	errcallback->callback = ShedlockPositionInCommand;
	errcallback->arg = command;
	errcallback->previous = error_context_stack;
	error_context_stack = errcallback;
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
 * ShedlockRunCommand - step 2: all statements, in one transaction as far as they
 * leave it alone
 */
void
ShedlockRunCommand(ShedlockRun *run)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "shedlock_run statement",
												  ALLOCSET_DEFAULT_SIZES);
	bool		is_top_level = list_length(run->parsetrees) == 1;
	ErrorContextCallback errcallback;
	ListCell   *lc;

	ShedlockPushCommand(&errcallback, run->command);
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

		/*
		 * As in a client's string of statements, each has its own time, by
		 * what a SET before it says.
		 */
		disable_timeout(STATEMENT_TIMEOUT, false);
		if (StatementTimeout > 0)
			enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);
	}
	ShedlockCommitAndStart();
	error_context_stack = errcallback.previous;
	MemoryContextDelete(context);
}

/*
 * ShedlockTryCommand - step 2; returns the error that ended it, or NULL
 *
 * A transaction is open and clean either way.
 */
ErrorData *
ShedlockTryCommand(ShedlockRun *run)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *volatile edata = NULL;

	PG_TRY();
	{
		if (!ShedlockCommitIsSafe())
			ereport(ERROR,
					(errcode(ERRCODE_QUERY_CANCELED),
					 errmsg("canceling run of lock \"%s\" because it is not known to the synchronous standby",
							run->request.name.str),
					 errdetail("The wait for the standby was canceled.")));
		(void) ShedlockWatchRuns(true);
		ShedlockRunCommand(run);
		(void) ShedlockWatchRuns(false);
	}
	PG_CATCH();
	{
		(void) ShedlockWatchRuns(false);
		edata = ShedlockTakeError(context);
	}
	PG_END_TRY();
	return edata;
}
