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
#include "job/job.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

/* The run whose command is being executed, the innermost one. */
static ShedlockRun *executing = NULL;

static emit_log_hook_type next_emit_log_hook = NULL;

/*
 * keep_warning - the last WARNING of a command is for the history, too
 *
 * A command can succeed and have done nothing, as VACUUM of another role's table.
 * The server calls this for what it logs, at any moment: so the text goes into
 * room that is there, and nothing here can fail.  When the process exits that
 * room may be gone.
 */
static void
keep_warning(ErrorData *edata)
{
	if (executing && edata->elevel == WARNING && edata->message &&
		!proc_exit_inprogress)
		ShedlockClip(executing->warning, edata->message, SHEDLOCK_MESSAGE_MAX);
	if (next_emit_log_hook)
		next_emit_log_hook(edata);
}

/*
 * ShedlockKeepWarnings - from now on see what is logged; for _PG_init()
 */
void
ShedlockKeepWarnings(void)
{
	next_emit_log_hook = emit_log_hook;
	emit_log_hook = keep_warning;
}

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
 * log_command - log the command if log_statement asks for one of its statements
 *
 * As exec_simple_query() does it for a client's string.  The CALL around it is
 * logged by 'all' only, with the command in its text or its parameters: to 'ddl'
 * and 'mod' it is no such statement, and what it executes is not seen.
 */
static void
log_command(const ShedlockRun *run)
{
	ListCell   *lc;

	if (log_statement == LOGSTMT_NONE || log_statement == LOGSTMT_ALL)
		return;
	foreach(lc, run->parsetrees)
	{
		if ((int) GetCommandLogLevel(lfirst(lc)) <= log_statement)
		{
			ereport(LOG,
					(errmsg("statement: %s", run->command),
					 errhidestmt(true)));
			return;
		}
	}
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

	log_command(run);
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
	ShedlockRun *outer = executing;
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
		executing = run;
		ShedlockRunCommand(run);
		executing = outer;
		(void) ShedlockWatchRuns(false);
	}
	PG_CATCH();
	{
		executing = outer;
		(void) ShedlockWatchRuns(false);
		edata = ShedlockTakeError(context);
	}
	PG_END_TRY();
	return edata;
}
