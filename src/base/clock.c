/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The steady clock and short sleeps.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/base.h"
#include "miscadmin.h"
#include "storage/latch.h"

/* How long an acquire waits for a row that a foreign writer has locked. */
#define FOREIGN_LOCK_TRIES		20
#define FOREIGN_LOCK_NAP_MS		5

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
 * While set, what would wait for another transaction raises an error.  It is set while the
 * end of a run is written into the transaction of its command (job/finish.c), which can
 * hold any lock.
 */
bool		shedlock_never_waits = false;

/*
 * ShedlockRefuseToWait - raise the error that stands for a wait: 55P03
 */
void
ShedlockRefuseToWait(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("another transaction has a table or row of extension \"shedlock\" locked")));
}

/*
 * ShedlockAwaitForeignLock - nap before another try to write a row that is locked
 *
 * The writer that has it locked does not use the advisory half.  Call this after each
 * failed try, with *tries 0 at first.  Returns false after 100 ms.
 */
bool
ShedlockAwaitForeignLock(int *tries)
{
	if (shedlock_never_waits)
		ShedlockRefuseToWait();
	if (++*tries > FOREIGN_LOCK_TRIES)
		return false;
	ShedlockNap(FOREIGN_LOCK_NAP_MS);
	return true;
}
