/*-------------------------------------------------------------------------
 *
 * run.c
 *	  CALL shedlock_run(): any command, once.
 *
 *	1. Take the lock (and claim the tick, and log the run), commit.
 *	2. Run the command and commit its work (execute.c).
 *	3. Release the lock, log the outcome, commit (finish.c).  With once_every,
 *	   the ticks that came meanwhile are claimed, too: a scheduler that has
 *	   queued them does not start the command for them, back to back.  An error
 *	   of the command is raised again after that.
 *
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
#include "executor/spi.h"
#include "job/job.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

/* More runs within runs than anybody means to have. */
#define NESTING_MAX		32

/* Calls of shedlock_run in progress, those for a lock of this session included. */
static int	nesting = 0;

/*
 * skip - say why a run does not happen: to the client, and in the server's log
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
		return pstrdup("It is being taken by an open transaction.");
	return psprintf("It has been held by \"%s\" since %s.",
					ShedlockShownBy(row), ShedlockTimeString(row->locked_at));
}

/*
 * tick_detail - who claimed the tick, and what became of it
 *
 * For those who may see that in shedlock_history: of a claim without a run
 * nobody knows the role.
 */
static char *
tick_detail(const ShedlockRun *run, const ShedlockTick *last)
{
	char	   *outcome = NULL;

	if (last->tick < run->tick)
		return psprintf("Tick %s is being claimed by an open transaction.",
						ShedlockTimeString(run->tick));
	if (!ShedlockHistoryMaySee(run->request.name.nsp, last->token))
		return psprintf("Tick %s was claimed.", ShedlockTimeString(last->tick));
	if (last->token != 0)
		outcome = ShedlockHistoryOutcome(&run->request.name, last->token, NULL);
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
begin_run(ShedlockRun *run)
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
	run->started_at = result.row.locked_at;
	run->token = result.row.token;

	if (run->every && !ShedlockClaimTick(name, run->tick, run->every, run->token, &last))
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
 * run_is_over_time - has this run outlived its lock_at_most_for?
 */
static bool
run_is_over_time(const ShedlockRun *run)
{
	ShedlockHolding *holding = ShedlockFindHolding(run->request.name.str, run->token);

	return ShedlockRunDeadlinePassed() && holding &&
		ShedlockSteadyNow() >= holding->state.deadline;
}

/*
 * outcome_of - the word for the history
 */
static const char *
outcome_of(const ShedlockRun *run, const ErrorData *edata)
{
	if (edata->sqlerrcode != ERRCODE_QUERY_CANCELED)
		return "failed";
	return run_is_over_time(run) ? "timed out" : "cancelled";
}

/*
 * guarded_run - steps 2 and 3 of a run that has its lock
 */
static void
guarded_run(ShedlockRun *run)
{
	bool		watched_before = ShedlockWatchRuns(false);

	PG_TRY();
	{
		ErrorData  *edata = ShedlockTryCommand(run);
		const char *outcome = edata ? outcome_of(run, edata) : "succeeded";

		/* The server says that the user asked for it. */
		if (strcmp(outcome, "timed out") == 0)
			edata->message = psprintf("canceling statement due to lock_at_most_for of lock \"%s\"",
									  run->request.name.str);
		if (!watched_before || run_is_over_time(run))
			ShedlockForgetRunDeadlinePassed();
		ShedlockEndRun(run, outcome, edata);

		if (edata)
		{
			/* A cancel that comes too late must not take its place. */
			HOLD_CANCEL_INTERRUPTS();
			ereport(LOG,
					(errmsg("run of lock \"%s\": %s", run->request.name.str, outcome),
					 errdetail_internal("%s", edata->message),
					 errhidestmt(true)));
			RESUME_CANCEL_INTERRUPTS();
			ReThrowError(edata);
		}
	}
	PG_FINALLY();
	{
		ShedlockForgetRun(run->request.name.str, run->token);
		(void) ShedlockWatchRuns(watched_before);
	}
	PG_END_TRY();
}

/*
 * ShedlockGuardCommand - run a command under a lock of its own
 *
 * Commits.  Errors: 25006; 55P03 if it is busy and run->error_if_busy says so;
 * 54000 if nested too deeply; 57014 past lock_at_most_for; whatever the command
 * raises.
 */
void
ShedlockGuardCommand(ShedlockRun *run)
{
	if (nesting == NESTING_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("calls of shedlock_run are nested too deeply"),
				 errdetail("There can be %d of them, one in the command of the other.",
						   NESTING_MAX)));
	nesting++;
	PG_TRY();
	{
		ShedlockHolding *holding = ShedlockFindHolding(run->request.name.str, 0);

		if (holding && holding->is_run)
		{
			/* The lock is this session's already: the command is part of it. */
			ShedlockCommitAndStart();
			ShedlockRunCommand(run);
		}
		else if (begin_run(run))
		{
			ShedlockCommitAndStart();
			guarded_run(run);
		}
	}
	PG_FINALLY();
	{
		nesting--;
	}
	PG_END_TRY();
}
