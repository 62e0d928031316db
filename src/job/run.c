/*-------------------------------------------------------------------------
 *
 * run.c
 *	  CALL shedlock_run(): any command, once.
 *
 *	1. Acquire the lock, write that an attempt at the tick begins, record the run, and
 *	   commit (begin.c).
 *	2. Execute the command (execute.c).
 *	3. Release the lock, settle the tick, record the outcome, and commit all that with the
 *	   command's work, or in a transaction of its own (finish.c).
 *	4. Raise the error of the command again.  If there is none, begin again while a tick is
 *	   due.
 *
 * A command can drop the advisory half (DISCARD ALL).  It is retaken after each
 * statement; until then the row, which names this process and its start, keeps
 * the lock held.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job/job.h"
#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* More runs within runs than a job needs */
#define NESTING_MAX		32

/* Calls of shedlock_run in progress, those that are part of another run included */
static int	nesting = 0;

/*
 * skip - tell the client and the server's log why a run is skipped
 *
 * Errors: 55P03 if the caller wants an error.
 */
static void
skip(const ShedlockRun *run, const char *detail)
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
 * begin_run - step 1, but for the commit
 *
 * again: the CALL has made a run already.  Returns false if the run is skipped (I3).  A run
 * that is not due is no news: timers fire more often than that.
 */
static bool
begin_run(ShedlockRun *run, bool again)
{
	ShedlockAnswer answer;

	PreventCommandDuringRecovery("shedlock_run()");
	ShedlockBeginRun(run, NULL, message_level_is_interesting(DEBUG1), &answer);
	if (answer.beginning == SHEDLOCK_BEGUN)
		return true;
	if (answer.beginning != SHEDLOCK_NOT_DUE && !answer.is_quiet && !again)
		skip(run, answer.reason);
	else if (answer.reason)
		ereport(DEBUG1,
				(errmsg_internal("run of lock \"%s\" is not due", run->request.name.str),
				 errdetail_internal("%s", answer.reason)));
	return false;
}

/*
 * is_over_time - has this run, which has that holding, outlived its lock_at_most_for?
 *
 * holding: NULL if the run has ended, or has lost its lock.
 */
static bool
is_over_time(const ShedlockRun *run, const ShedlockHolding *holding)
{
	int64		deadline = run->ended ? run->deadline : DT_NOEND;

	if (holding)
		deadline = holding->state.deadline;
	return ShedlockRunDeadlinePassed() && ShedlockSteadyNow() >= deadline;
}

/*
 * execute_run - steps 2 to 4 of a run that has begun
 */
static void
execute_run(ShedlockRun *run)
{
	const char *name = run->request.name.str;
	ShedlockHolding *holding;
	bool		over_time;

	ShedlockWatchRuns(true);
	run->error = ShedlockTryCommand(run, ShedlockEndInCommand);
	ShedlockWatchRuns(false);

	/*
	 * What has committed is a success, whatever cancel or error came after
	 * that.
	 */
	holding = ShedlockFindHolding(&run->request.name, run->token);
	run->ended = run->end_written && holding == NULL;
	over_time = is_over_time(run, holding);
	if (run->ended || run->error == NULL)
		run->outcome = SHEDLOCK_SUCCEEDED;
	else if (run->error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		run->outcome = SHEDLOCK_FAILED;
	else if (!over_time)
		run->outcome = SHEDLOCK_CANCELLED;
	else
	{
		/* The server says that the user asked for it. */
		run->outcome = SHEDLOCK_TIMED_OUT;
		run->error->message =
			psprintf("canceling statement due to lock_at_most_for of lock \"%s\"", name);
	}
	if (nesting == 1 || over_time)
		ShedlockForgetRunDeadlinePassed();
	ShedlockEndRun(run);

	if (run->error)
	{
		/* A cancel that comes too late must not replace it. */
		HOLD_CANCEL_INTERRUPTS();
		ereport(LOG,
				(errmsg("run of lock \"%s\": %s", name, shedlock_outcome_names[run->outcome]),
				 errdetail_internal("%s", run->error->message),
				 errhidestmt(true)));
		RESUME_CANCEL_INTERRUPTS();
		ReThrowError(run->error);
	}
}

/*
 * make_runs - run a command, and again while a tick of its job is due
 *
 * So an older tick that shedlock_again() has allowed takes the place of none, and a backlog is
 * made up although a scheduler fires once a tick.  Ends with the first run that fails, with one
 * whose lock could not be released, and with the one during which the client went away: a job
 * whose work takes longer than its period would never let the session go.
 */
static void
make_runs(ShedlockRun *run)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "shedlock_run run", ALLOCSET_DEFAULT_SIZES);
	bool		again = false;

	MemoryContextSwitchTo(context);
	while (begin_run(run, again))
	{
		ShedlockCommitBegin(run);
		execute_run(run);
		if (run->attempt == 0 || ShedlockFindHolding(&run->request.name, run->token))
			break;
		ShedlockCommitAndStart();
		ShedlockCheckClient();
		EnsurePortalSnapshotExists();
		ShedlockRestartStatementTimeout();
		run->end_written = run->warned = run->ended = false;
		run->events = NIL;
		run->warning[0] = '\0';
		again = true;

		/* A backlog can have a million ticks. */
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

/*
 * ShedlockGuardCommand - run a command under a lock of its own
 *
 * Commits.  Inside a run of the same lock, the command is part of that run.
 * Errors: 25006; 55P03 if the lock is busy and run->error_if_busy is set; 54000 if
 * nested too deeply; 57014 past lock_at_most_for; those of the command.
 */
void
ShedlockGuardCommand(ShedlockRun *run)
{
	const ShedlockHolding *holding;

	if (nesting == NESTING_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("calls of shedlock_run are nested too deeply"),
				 errdetail("They can be nested at most %d deep.",
						   NESTING_MAX)));
	nesting++;
	PG_TRY();
	{
		holding = ShedlockFindHolding(&run->request.name, 0);
		if (holding && holding->is_run)
		{
			ShedlockCommitAndStart();
			ShedlockRunCommand(run, NULL);
		}
		else
			make_runs(run);
	}
	PG_FINALLY();
	{
		nesting--;
		ShedlockForgetRun(&run->request.name, run->token);
		ShedlockWatchRuns(nesting > 0);
	}
	PG_END_TRY();
}
