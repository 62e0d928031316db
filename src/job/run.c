/*-------------------------------------------------------------------------
 *
 * run.c
 *	  CALL shedlock_run(): any command, once.
 *
 *	1. Acquire the lock, claim the tick, log the run, and commit.
 *	2. Execute the command and commit its work (execute.c).
 *	3. Release the lock, log the outcome, and commit (finish.c).  With once_every,
 *	   also claim the ticks that came meanwhile, because a scheduler that has
 *	   queued them would start the command for them, back to back.  After that,
 *	   raise the error of the command again.
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

#include "access/xact.h"
#include "executor/spi.h"
#include "job/job.h"
#include "miscadmin.h"
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
 * busy_detail - why an acquire was refused
 */
static char *
busy_detail(const ShedlockName *name, const ShedlockResult *result)
{
	const ShedlockRow *row = &result->row;
	bool		kept = result->verdict == SHEDLOCK_KEPT;

	/* Without the advisory half, a dead holder's at-least time looks held. */
	if (result->verdict == SHEDLOCK_HELD && !ShedlockCountsAsLease(row))
		kept = !ShedlockHolderLives(row, name, false);

	if (result->verdict == SHEDLOCK_PAUSED)
		return psprintf("It was paused by \"%s\" until %s%s%s.",
						row->paused_by ? row->paused_by : "",
						TIMESTAMP_IS_NOEND(row->paused_until) ?
						"shedlock_resume" : ShedlockTimeString(row->paused_until),
						row->pause_reason ? ": " : "",
						row->pause_reason ? row->pause_reason : "");
	if (kept)
		return psprintf("It was last held by \"%s\" and is kept until %s by its lock_at_least_for.",
						ShedlockShownBy(row),
						ShedlockTimeString(row->kind == SHEDLOCK_RELEASED ?
										   row->lock_until : row->keep_until));
	if (!row->found || row->kind == SHEDLOCK_RELEASED ||
		(result->verdict == SHEDLOCK_BUSY && row->kind == SHEDLOCK_LEASE))
		return pstrdup("It is being acquired by an open transaction.");
	return psprintf("It has been held by \"%s\" since %s.",
					ShedlockShownBy(row), ShedlockTimeString(row->locked_at));
}

/*
 * tick_detail - what claimed the tick, and the outcome of that run
 *
 * Only for callers to whom shedlock_history shows the run.  The role of a claim
 * without a run is not known.
 */
static char *
tick_detail(const ShedlockRun *run, const ShedlockTick *last)
{
	const char *outcome = NULL;

	if (last->tick < run->tick)
		return psprintf("Tick %s is being claimed by an open transaction.",
						ShedlockTimeString(run->tick));
	if (!ShedlockHistoryMaySee(run->request.name.nsp, last->token))
		return psprintf("Tick %s was claimed.", ShedlockTimeString(last->tick));
	if (last->token != 0)
		outcome = ShedlockRunOutcome(&run->request.name, last->token);
	return psprintf("Tick %s was claimed at %s by \"%s\"%s%s.",
					ShedlockTimeString(last->tick),
					ShedlockTimeString(last->claimed_at), last->claimed_by,
					outcome ? "; outcome: " : "", outcome ? outcome : "");
}

/*
 * begin_run - step 1, but for the commit
 *
 * Returns false, having written nothing, if the run is skipped (I3).  Looks at
 * the tick first, because a claimed tick is the usual reason.
 */
static bool
begin_run(ShedlockRun *run)
{
	const ShedlockName *name = &run->request.name;
	ShedlockStore store;
	ShedlockResult result;
	ShedlockTick last;
	bool		acquired;

	/* A role's default_transaction_read_only is meant for its own work. */
	PreventCommandDuringRecovery("shedlock_run()");
	XactReadOnly = false;

	if (run->every && ShedlockTickIsClaimed(name, run->tick, &last))
	{
		skip(run, tick_detail(run, &last));
		return false;
	}

	ShedlockOpen(&store, name->nsp, "shedlock");
	acquired = ShedlockAcquire(&store, &run->request, &result);
	ShedlockClose(&store);
	if (!acquired)
	{
		skip(run, busy_detail(name, &result));
		return false;
	}
	run->started_at = result.row.locked_at;
	run->token = result.row.token;

	if (run->every &&
		!ShedlockClaimTick(name, run->tick, run->every, run->token, true, &last))
	{
		/* Another session claimed the tick meanwhile: undo the acquire. */
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
 * is_over_time - has this run outlived its lock_at_most_for?
 */
static bool
is_over_time(const ShedlockRun *run)
{
	ShedlockHolding *holding = ShedlockFindHolding(run->request.name.str, run->token);

	return ShedlockRunDeadlinePassed() && holding &&
		ShedlockSteadyNow() >= holding->state.deadline;
}

/*
 * execute_run - steps 2 and 3 of a run that has begun
 */
static void
execute_run(ShedlockRun *run)
{
	const char *name = run->request.name.str;
	bool		over_time;

	ShedlockWatchRuns(true);
	run->error = ShedlockTryCommand(run);
	ShedlockWatchRuns(false);
	over_time = is_over_time(run);
	if (run->error == NULL)
		run->outcome = "succeeded";
	else if (run->error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		run->outcome = "failed";
	else if (!over_time)
		run->outcome = "cancelled";
	else
	{
		/* The server says that the user asked for it. */
		run->outcome = "timed out";
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
				(errmsg("run of lock \"%s\": %s", name, run->outcome),
				 errdetail_internal("%s", run->error->message),
				 errhidestmt(true)));
		RESUME_CANCEL_INTERRUPTS();
		ReThrowError(run->error);
	}
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
	ShedlockHolding *holding = ShedlockFindHolding(run->request.name.str, 0);

	if (nesting == NESTING_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("calls of shedlock_run are nested too deeply"),
				 errdetail("There can be %d of them, one in the command of the other.",
						   NESTING_MAX)));
	nesting++;
	PG_TRY();
	{
		if (holding && holding->is_run)
		{
			ShedlockCommitAndStart();
			ShedlockRunCommand(run);
		}
		else if (begin_run(run))
		{
			ShedlockCommitAndStart();
			execute_run(run);
		}
	}
	PG_FINALLY();
	{
		nesting--;
		ShedlockForgetRun(run->request.name.str, run->token);
		ShedlockWatchRuns(nesting > 0);
	}
	PG_END_TRY();
}
