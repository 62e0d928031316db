/*-------------------------------------------------------------------------
 *
 * finish.c
 *	  Ends a run: releases its lock, logs its outcome, and says it later.
 *
 * The command may have left any role, search_path and default_transaction_*
 * behind.  Writes do not depend on them (write.c).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "job/job.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/*
 * release_run - write that the lock is released, unless it was lost
 *
 * Waits for a foreign row lock as an UPDATE does.  Only that wait can be
 * cancelled.
 */
static void
release_run(const ShedlockRun *run)
{
	const ShedlockName *name = &run->request.name;
	ShedlockHolding *holding = ShedlockFindHolding(name->str, run->token);
	bool		written = false;
	ShedlockStore store;
	ShedlockRow row;

	ShedlockOpen(&store, name->nsp, "shedlock");
	(void) ShedlockTryShare(&name->tag);
	for (bool wait = false; !written; wait = true)
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
		if (wait)
			RESUME_CANCEL_INTERRUPTS();
		written = ShedlockUpdateRow(&store, &row, wait) == TM_Ok;
		if (wait)
			HOLD_CANCEL_INTERRUPTS();
	}
	ShedlockClose(&store);
	if (holding)
		ShedlockReleaseHolding(holding);
}

/*
 * end_run - release the lock, claim missed ticks, and log the outcome
 */
static void
end_run(const ShedlockRun *run)
{
	release_run(run);
	if (run->every)
		ShedlockClaimTicksOfRun(run);
	ShedlockHistoryEnd(run->request.name.nsp, run->token, run->outcome,
					   run->error, run->warning);
}

/*
 * prune_history - keep the history short
 */
static void
prune_history(const ShedlockRun *run)
{
	ShedlockHistoryPrune(run->request.name.nsp);
}

/*
 * try_step - one of the above in the current transaction, which it commits
 *
 * Values that are stored out of line need an active snapshot.  A run whose wait
 * for the standby was cancelled does not begin another wait.  Returns the error
 * that the step failed with, or NULL.
 */
static ErrorData *
try_step(const ShedlockRun *run, void (*step) (const ShedlockRun *))
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *volatile failure = NULL;

	PG_TRY();
	{
		XactReadOnly = false;
		XactIsoLevel = XACT_READ_COMMITTED;
		PushActiveSnapshot(GetTransactionSnapshot());
		if (!ShedlockCommitIsSafe())
			ShedlockCommitLocally();
		step(run);
		PopActiveSnapshot();
		ShedlockCommitAndStart();
	}
	PG_CATCH();
	{
		failure = ShedlockTakeError(context);
	}
	PG_END_TRY();
	return failure;
}

/*
 * ShedlockEndRun - end a run whose command has ended
 *
 * Expects a transaction that has just been started, and leaves another one.
 * Holds off cancels and timeouts, because a cancel that comes after the command
 * must not strand the lock.  The lock is worth more than the history, so if
 * both fail the lock is released alone: the next holder logs the run as lost
 * (I10).  If even that fails, the lock stays held until this process ends or begins
 * another run of the name.  Reports failures as WARNINGs.
 */
void
ShedlockEndRun(const ShedlockRun *run)
{
	const char *name = run->request.name.str;
	uint32		holdoff = QueryCancelHoldoffCount;
	int			lock_timeout = LockTimeout;
	ErrorData  *failure;
	bool		logged;

	disable_timeout(STATEMENT_TIMEOUT, false);

	/* lock_timeout would not end a wait here, but whatever follows. */
	LockTimeout = 0;
	HOLD_CANCEL_INTERRUPTS();
	failure = try_step(run, end_run);
	logged = failure == NULL;
	if (!logged)
	{
		/* The error ended the holdoff, and a message obeys a pending cancel. */
		QueryCancelHoldoffCount = holdoff + 1;
		ereport(WARNING,
				(errcode(failure->sqlerrcode),
				 errmsg("could not log outcome \"%s\" of lock \"%s\": %s",
						run->outcome, name, failure->message)));
		failure = try_step(run, release_run);
	}
	QueryCancelHoldoffCount = holdoff;
	LockTimeout = lock_timeout;

	if (failure)
		ereport(WARNING,
				(errcode(failure->sqlerrcode),
				 errmsg("could not release lock \"%s\": %s", name, failure->message),
				 errhint("It stays held until this session ends, or until it calls shedlock_run with that name again.")));
	else if (logged && (failure = try_step(run, prune_history)) != NULL)
		ereport(WARNING,
				(errcode(failure->sqlerrcode),
				 errmsg("could not prune the history of runs: %s", failure->message)));
}

/*
 * run_lives - does a run still hold its lock on this server?
 */
static bool
run_lives(const ShedlockName *name, int64 token)
{
	ShedlockStore store;
	ShedlockRow row;

	ShedlockOpenToRead(&store, name->nsp, "shedlock");
	ShedlockReadRow(&store, name->str, &row);
	ShedlockClose(&store);
	return row.found && row.token == token && row.kind == SHEDLOCK_RUN &&
		!ShedlockCountsAsLease(&row) && ShedlockHolderLives(&row, name, false);
}

/*
 * ShedlockRunOutcome - the outcome of a run as of now; NULL if it is not logged
 *
 * A run without a holder is lost only if the log, read after the lock, still says
 * that it is running.
 */
const char *
ShedlockRunOutcome(const ShedlockName *name, int64 token)
{
	char	   *outcome = ShedlockHistoryLogged(name->nsp, token);

	if (outcome == NULL || strcmp(outcome, "running") != 0 || run_lives(name, token))
		return outcome;
	outcome = ShedlockHistoryLogged(name->nsp, token);
	return outcome == NULL || strcmp(outcome, "running") == 0 ? "lost" : outcome;
}
