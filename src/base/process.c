/*-------------------------------------------------------------------------
 *
 * process.c
 *	  What this process does: the steady clock, short sleeps, its callbacks, and steps whose
 *	  errors do not reach the caller.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/base.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/resowner.h"

void		(*shedlock_register_ends) (void) = NULL;

/*
 * ShedlockSteadyNow - microseconds on a clock that cannot be set
 */
int64
ShedlockSteadyNow(void)
{
	struct timespec now;

	(void) clock_gettime(SHEDLOCK_STEADY_CLOCK, &now);
	return (int64) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

/*
 * ShedlockNap - sleep that long, or until the latch is set; process interrupts
 *
 * Returns true if the latch was set.
 */
bool
ShedlockNap(long ms)
{
	static uint32 wait_event = 0;
	int			events;

	if (wait_event == 0)
		wait_event = wait_event_named("ShedlockWait");
	events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					   ms, wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return (events & WL_LATCH_SET) != 0;
}

/*
 * ShedlockCheckClient - end the session if its client is gone
 *
 * Call this after a sleep and before something is acquired, which a client that is gone
 * would never use or release.  The server itself looks only when it reads or writes,
 * unless client_connection_check_interval is set.
 */
void
ShedlockCheckClient(void)
{
	if (MyProcPort == NULL || !WaitEventSetCanReportClosed() || pq_check_connection())
		return;
	ClientConnectionLost = true;
	InterruptPending = true;
	CHECK_FOR_INTERRUPTS();
}

/*
 * ShedlockUseSession - register the callbacks at the ends of transactions and of the process, at
 * the first call in this process
 *
 * They are not registered when the library is loaded, because the postmaster loads a
 * preloaded library, and because a session that is only ever refused does not need them.  They
 * call most of the library, and most of it can be the first to need them, so module.c names them.
 */
void
ShedlockUseSession(void)
{
	if (shedlock_register_ends == NULL)
		return;
	shedlock_register_ends();
	shedlock_register_ends = NULL;
}

/*
 * ShedlockShield - take a step after the commit record, where an error would be a PANIC (I13)
 *
 * Drops the error that ends it, if one does.
 * For errors of allocation only: the step holds no lock or pin of the server's where it can
 * fail.  Not for rollbacks: the error that made them is still to be thrown, and would be
 * dropped, too.
 */
void
ShedlockShield(void (*step) (const void *arg), const void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	uint32		interrupts = InterruptHoldoffCount;
	uint32		cancels = QueryCancelHoldoffCount;

	PG_TRY();
	{
		step(arg);
	}
	PG_CATCH();
	{
		/* An error resets these. */
		InterruptHoldoffCount = interrupts;
		QueryCancelHoldoffCount = cancels;
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
}

/*
 * ShedlockTrySubtransaction - take a step in a subtransaction of the open transaction
 *
 * Returns NULL, or the error that undid it.
 */
ErrorData *
ShedlockTrySubtransaction(void (*step) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	uint32		cancels = QueryCancelHoldoffCount;
	ErrorData  *volatile failure = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		step(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		QueryCancelHoldoffCount = cancels;
		MemoryContextSwitchTo(context);
		failure = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return failure;
}
