/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The steady clock, and short sleeps.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/base.h"
#include "miscadmin.h"
#include "storage/latch.h"

/* How long an acquire waits for a row that somebody else has locked. */
#define FOREIGN_LOCK_TRIES		20
#define FOREIGN_LOCK_NAP_MS		5

static uint32 wait_event = 0;

/*
 * ShedlockSteadyNow - microseconds on a clock that nobody can set
 */
int64
ShedlockSteadyNow(void)
{
	struct timespec now;

	(void) clock_gettime(SHEDLOCK_STEADY_CLOCK, &now);
	return (int64) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

/*
 * ShedlockNap - sleep that long, or until the latch is set; obey interrupts
 */
void
ShedlockNap(long ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 ms, wait_event_named(&wait_event, "ShedlockWait"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * ShedlockAwaitForeignLock - wait a little for a row that a writer has locked
 * who knows nothing of the advisory half
 *
 * To be called after each failed write, with tries 0 at first.  Returns false
 * after 100 ms.
 */
bool
ShedlockAwaitForeignLock(int *tries)
{
	if (++*tries > FOREIGN_LOCK_TRIES)
		return false;
	ShedlockNap(FOREIGN_LOCK_NAP_MS);
	return true;
}
