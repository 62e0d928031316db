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
