/*-------------------------------------------------------------------------
 *
 * finish.c
 *	  The end of a run: its lock given back, its outcome logged.
 *
 * All of it is written as write.c writes, so that it does not matter which role,
 * search_path or default_transaction_read_only the command left behind.
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
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/*
 * begin_bookkeeping - whatever the command has made the session's defaults
 *
 * The server wants a snapshot to be there when values are read that may be
 * stored out of line.  A run whose wait for the standby was cut short does not
 * begin another one.
 */
static void
begin_bookkeeping(void)
{
	XactReadOnly = false;
	XactIsoLevel = XACT_READ_COMMITTED;
	PushActiveSnapshot(GetTransactionSnapshot());
	if (!ShedlockCommitIsSafe())
		ShedlockCommitLocally();
}

/*
 * end_bookkeeping - commit it
 */
static void
end_bookkeeping(void)
{
	PopActiveSnapshot();
	ShedlockCommitAndStart();
}

/*
 * release_run - write that the lock is given back
 *
 * A row lock of somebody else is waited for, and that wait can be cancelled.
 */
static void
release_run(ShedlockRun *run)
{
	const ShedlockName *name = &run->request.name;
	ShedlockHolding *holding = ShedlockFindHolding(name->str, run->token);
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = NULL;
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

		/* The wait may be long: what the last look has left behind is enough. */
		if (context == NULL)
			context = AllocSetContextCreate(caller, "shedlock end", ALLOCSET_SMALL_SIZES);
		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
	}
	MemoryContextSwitchTo(caller);
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
try_end(ShedlockRun *run, const char *outcome, const ErrorData *edata)
{
	MemoryContext context = CurrentMemoryContext;
	uint32		holdoff = QueryCancelHoldoffCount;
	int			lock_timeout = LockTimeout;
	ErrorData  *volatile failure = NULL;

	/* Held off, it would not end a wait here, but what comes after that. */
	LockTimeout = 0;
	HOLD_CANCEL_INTERRUPTS();
	PG_TRY();
	{
		begin_bookkeeping();
		release_run(run);
		if (outcome)
		{
			if (run->every)
				ShedlockClaimTicksOfRun(&run->request.name, run->every,
										run->started_at, run->token);
			ShedlockHistoryEnd(run->request.name.nsp, run->token, outcome, edata,
							   run->warning);
		}
		end_bookkeeping();
	}
	PG_CATCH();
	{
		failure = ShedlockTakeError(context);
	}
	PG_END_TRY();
	LockTimeout = lock_timeout;

	/* An error can come from where cancels were let through. */
	QueryCancelHoldoffCount = holdoff;
	return failure;
}

/*
 * try_prune - keep the history short; not worth failing for
 */
static void
try_prune(const ShedlockRun *run)
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
		ErrorData  *failure = ShedlockTakeError(context);

		ereport(WARNING,
				(errcode(failure->sqlerrcode),
				 errmsg("could not prune the history of runs: %s", failure->message)));
	}
	PG_END_TRY();
}

/*
 * ShedlockEndRun - step 3, in a transaction that has just been started
 *
 * Cancels are held off, and so is statement_timeout: a lock must not be
 * stranded because somebody cancelled a command that was over already.  The
 * lock is worth more than the history, so that it is tried alone if both
 * cannot be had; the next one to come finds the run lost.  If even that fails
 * the lock stays until this process ends or tries a run of that name again.
 */
void
ShedlockEndRun(ShedlockRun *run, const char *outcome, const ErrorData *edata)
{
	ErrorData  *failure;

	disable_timeout(STATEMENT_TIMEOUT, false);
	failure = try_end(run, outcome, edata);
	if (failure == NULL)
	{
		try_prune(run);
		return;
	}

	/* A message obeys a cancel that waits: not before the lock is let go of. */
	HOLD_CANCEL_INTERRUPTS();
	ereport(WARNING,
			(errcode(failure->sqlerrcode),
			 errmsg("could not log outcome \"%s\" of lock \"%s\": %s",
					outcome, run->request.name.str, failure->message)));
	RESUME_CANCEL_INTERRUPTS();
	failure = try_end(run, NULL, NULL);
	if (failure == NULL)
		return;
	ereport(WARNING,
			(errcode(failure->sqlerrcode),
			 errmsg("could not release lock \"%s\": %s",
					run->request.name.str, failure->message),
			 errhint("It stays held until this session ends, or until it calls shedlock_run with that name again.")));
}
