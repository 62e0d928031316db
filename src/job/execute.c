/*-------------------------------------------------------------------------
 *
 * execute.c
 *	  Checks and executes the command of a run, as a client's own statement.
 *
 * The command runs in portals of its own, outside SPI, while the extension has
 * no transaction, snapshot or row lock open.  So VACUUM, CREATE INDEX
 * CONCURRENTLY and procedures that commit work.  SPI is used only to commit: it
 * also drops the snapshot that the portal of the CALL holds.
 *
 * An error is handled as SPI_commit() handles its own: the transaction is
 * aborted and another one started.  The portal of the CALL survives because it
 * is older than both.
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
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

/* The innermost run whose command is being executed */
static ShedlockRun *executing = NULL;

static emit_log_hook_type next_emit_log_hook = NULL;

/* A command, for its error context callback. */
typedef struct CommandContext
{
	ErrorContextCallback callback;
	const char *command;
	bool		in_shared_call; /* a CALL or DO among other statements */
} CommandContext;

/*
 * explain_error - error context callback: errors point into the command
 *
 * Without it the position would count in the query that called the function.  The server
 * does not say that a COMMIT fails because of the statements around its CALL.
 */
static void
explain_error(void *arg)
{
	const CommandContext *context = arg;
	int			pos = geterrposition();

	if (pos > 0)
	{
		errposition(0);
		internalerrposition(pos);
		internalerrquery(context->command);
	}
	if (context->in_shared_call && geterrcode() == ERRCODE_INVALID_TRANSACTION_TERMINATION)
		errhint("The statements of a command are one transaction.  A procedure that commits must be the only statement.");
}

/*
 * push_command - let errors point into the command from now on
 */
static void
push_command(CommandContext *context, const char *command)
{
	context->callback.callback = explain_error;
	context->callback.arg = context;
	context->callback.previous = error_context_stack;
	context->command = command;
	context->in_shared_call = false;
	error_context_stack = &context->callback;
}

/*
 * ShedlockGetCommand - the text argument that is the command to guard
 *
 * Sets *parsetrees.  Errors: 22004; 42601 if it does not parse; 22023 if it is
 * empty; 0A000 if it has a statement that cannot be guarded.
 */
char *
ShedlockGetCommand(FunctionCallInfo fcinfo, int argno, List **parsetrees)
{
	CommandContext context;
	char	   *command;
	ListCell   *lc;

	ShedlockRefuseNull(PG_ARGISNULL(argno), "command", NULL);
	command = text_to_cstring(PG_GETARG_TEXT_PP(argno));
	push_command(&context, command);
	*parsetrees = pg_parse_query(command);
	error_context_stack = context.callback.previous;

	if (*parsetrees == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("command is empty")));
	foreach(lc, *parsetrees)
	{
		Node	   *stmt = lfirst_node(RawStmt, lc)->stmt;

		if (IsA(stmt, TransactionStmt))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("%s cannot be used in a guarded command",
							GetCommandTagName(CreateCommandTag(stmt))),
					 errhint("shedlock_run commits the command by itself.  For commits in between, CALL a procedure that commits.")));

		/* The client of a CALL does not expect COPY; pg_cron would hang. */
		if (IsA(stmt, CopyStmt) && ((CopyStmt *) stmt)->filename == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("%s cannot be used in a guarded command",
							((CopyStmt *) stmt)->is_from ? "COPY FROM STDIN" : "COPY TO STDOUT"),
					 errhint("COPY from or to a file or a program on the server can.")));
	}
	return command;
}

/*
 * keep_warning - remember the last WARNING of a command for the history
 *
 * A command can succeed without doing anything, like VACUUM of another role's
 * table.  The server calls this hook at any time for what it logs, so nothing
 * here can fail.  When the process exits, the memory of the run may be gone.
 */
static void
keep_warning(ErrorData *edata)
{
	if (executing && edata->elevel == WARNING && edata->message &&
		!proc_exit_inprogress)
	{
		ShedlockClip(executing->warning, edata->message, SHEDLOCK_MESSAGE_MAX);
		executing->warned = true;
	}
	if (next_emit_log_hook)
		next_emit_log_hook(edata);
}

/*
 * ShedlockKeepWarnings - install the hook; for _PG_init()
 */
void
ShedlockKeepWarnings(void)
{
	next_emit_log_hook = emit_log_hook;
	emit_log_hook = keep_warning;
}

/*
 * ShedlockCommitAndStart - commit, and start a transaction without a snapshot
 */
void
ShedlockCommitAndStart(void)
{
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
}

/*
 * ShedlockRestartStatementTimeout - give what follows the whole time of a statement
 */
void
ShedlockRestartStatementTimeout(void)
{
	disable_timeout(STATEMENT_TIMEOUT, false);
	if (StatementTimeout > 0)
		enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);
}

/*
 * ShedlockTakeError - end the handling of the current error, for PG_CATCH()
 *
 * Aborts the transaction and starts another one.  Returns the error in that
 * context, which becomes the current one.
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
 * exec_simple_query() does the same for a client's string.  'all' has logged the
 * CALL with the command in it; 'ddl' and 'mod' do not look into the CALL.
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
 * run_statement - do as exec_simple_query() does, but discard the result
 */
static void
run_statement(RawStmt *parsetree, const char *command, bool is_top_level)
{
	CommandTag	tag = CreateCommandTag(parsetree->stmt);
	bool		snapshot_set = analyze_requires_snapshot(parsetree);
	List	   *plans;
	Portal		portal;
	QueryCompletion qc;

	if (snapshot_set)
		PushActiveSnapshot(GetTransactionSnapshot());

	/* The analysis changes the tree, and the command may be run again. */
	plans = pg_analyze_and_rewrite_fixedparams(copyObject(parsetree), command, NULL, 0, NULL);
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
 * ShedlockRunCommand - execute all statements of a command, and commit
 *
 * They share one transaction unless they end it themselves.  Retakes the
 * advisory half of the run after each statement.  before_commit: called after the last
 * one; or NULL.  Errors: those of the command.
 */
void
ShedlockRunCommand(ShedlockRun *run, void (*before_commit) (ShedlockRun *))
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "shedlock_run statement",
												  ALLOCSET_DEFAULT_SIZES);
	bool		is_top_level = list_length(run->parsetrees) == 1;
	CommandContext errors;
	ListCell   *lc;

	log_command(run);
	push_command(&errors, run->command);
	foreach(lc, run->parsetrees)
	{
		RawStmt    *parsetree = lfirst_node(RawStmt, lc);
		ShedlockHolding *holding;

		/* for the plan; portals have memory of their own */
		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
		errors.in_shared_call = !is_top_level &&
			(IsA(parsetree->stmt, CallStmt) || IsA(parsetree->stmt, DoStmt));
		run_statement(parsetree, run->command, is_top_level);
		errors.in_shared_call = false;
		MemoryContextSwitchTo(caller);

		holding = ShedlockFindHolding(&run->request.name, 0);
		if (holding)
			ShedlockRetakeHolding(holding);

		/*
		 * Each statement has its own time, as in a client's string of
		 * statements, and a SET before it counts.
		 */
		ShedlockRestartStatementTimeout();
	}
	if (before_commit)
		before_commit(run);
	ShedlockCommitAndStart();
	error_context_stack = errors.callback.previous;
	MemoryContextDelete(context);
}

/*
 * show_attempt - let the command of that run read its tick; NULL: there is no run
 *
 * The tick is in UTC and in a style that every DateStyle reads.  before: the run whose
 * tick is shown, or NULL.  failed: as for ShedlockShowAttempt(); then this raises no error.
 */
static void
show_attempt(const ShedlockRun *run, const ShedlockRun *before, bool failed)
{
	char		tick[MAXDATELEN + 1] = "";
	char		attempt[MAXINT8LEN + 1] = "";
	struct pg_tm tm;
	fsec_t		fsec;

	if (!(run && run->attempt > 0) && !(before && before->attempt > 0))
		return;
	if (run && run->attempt > 0 && timestamp2tm(run->tick, NULL, &tm, &fsec, NULL, NULL) == 0)
	{
		tm.tm_isdst = 0;		/* without it there is no "+00" */
		EncodeDateTime(&tm, fsec, true, 0, NULL, USE_ISO_DATES, tick);
		pg_ltoa(run->attempt, attempt);
	}
	ShedlockShowAttempt(tick, attempt, failed);
}

/*
 * ShedlockCommitBegin - commit that a run begins, whose command can read its tick
 *
 * It is shown before the commit: a ROLLBACK in the command must not hide the tick from
 * parallel workers.  If the commit fails, what was shown before is shown again.
 */
void
ShedlockCommitBegin(const ShedlockRun *run)
{
	PG_TRY();
	{
		show_attempt(run, executing, false);
		ShedlockCommitAndStart();
	}
	PG_CATCH();
	{
		show_attempt(executing, run, true);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/*
 * ShedlockTryCommand - execute the command of a run that has begun
 *
 * before_commit: as for ShedlockRunCommand().  Returns the error that ended the command,
 * or NULL.  A transaction is open and clean either way.
 */
ErrorData *
ShedlockTryCommand(ShedlockRun *run, void (*before_commit) (ShedlockRun *))
{
	MemoryContext context = CurrentMemoryContext;
	ShedlockRun *outer = executing;
	ErrorData  *volatile edata = NULL;

	PG_TRY();
	{
		if (!ShedlockCommitIsSafe())
			ereport(ERROR,
					(errcode(ERRCODE_QUERY_CANCELED),
					 errmsg("canceling run of lock \"%s\" because its start has not been confirmed by the synchronous standby",
							run->request.name.str),
					 errdetail("The wait for the standby was canceled.")));
		executing = run;
		ShedlockRunCommand(run, before_commit);
		executing = outer;
	}
	PG_CATCH();
	{
		executing = outer;
		edata = ShedlockTakeError(context);
	}
	PG_END_TRY();
	show_attempt(outer, run, false);
	return edata;
}
