/*-------------------------------------------------------------------------
 *
 * deadline.c
 *	  The timer that ends what has outlived its lock_at_most_for.
 *
 * A session lock past its time: the process ends itself as by
 * pg_terminate_backend(), so that a dead host frees the lock even while TCP
 * has not noticed.  A run past its time: its command is cancelled, and again
 * each second if it swallows that.
 *
 * The handler interrupts anything, so it looks at nothing but the variables of
 * this file.  An error at top level switches all timers off before the
 * transaction is aborted; they are armed again by the ABORT callback.  After an
 * error outside of any transaction, which only a faulty protocol message can
 * raise, the next end of a transaction does it.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "shedlock.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#define REPEAT_MS		1000

static volatile TimestampTz session_deadline = DT_NOEND;
static volatile TimestampTz run_deadline = DT_NOEND;
static volatile sig_atomic_t session_deadline_passed = false;
static volatile sig_atomic_t run_deadline_passed = false;

static bool runs_watched = false;
static TimeoutId timer = MAX_TIMEOUTS;	/* not registered yet */
static TimestampTz armed_for = DT_NOEND;

/*
 * deadline_handler - runs in the SIGALRM handler
 */
static void
deadline_handler(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now >= session_deadline)
	{
		session_deadline_passed = true;
		kill(MyProcPid, SIGTERM);
	}
	if (now >= run_deadline)
	{
		run_deadline_passed = true;
		QueryCancelPending = true;
		InterruptPending = true;
		SetLatch(MyLatch);
	}
}

/*
 * ShedlockArmDeadlines - set the timer to the next deadline, if there is one
 *
 * Runs in transaction callbacks: raises no error once the timer is registered.
 */
void
ShedlockArmDeadlines(void)
{
	TimestampTz next;

	session_deadline = ShedlockNextDeadline(false);
	run_deadline = runs_watched ? ShedlockNextDeadline(true) : DT_NOEND;
	next = Min(session_deadline, run_deadline);

	if (next == DT_NOEND)
	{
		if (armed_for != DT_NOEND)
			disable_timeout(timer, false);
	}
	else if (next != armed_for || !get_timeout_active(timer))
	{
		if (timer == MAX_TIMEOUTS)
			timer = RegisterTimeout(USER_TIMEOUT, deadline_handler);
		enable_timeout_every(timer, next, REPEAT_MS);
	}
	armed_for = next;
}

/*
 * ShedlockWatchRuns - whether a command runs that may be cancelled
 *
 * Returns what it was before, for nested runs.
 */
bool
ShedlockWatchRuns(bool watch)
{
	bool		before = runs_watched;

	runs_watched = watch;
	ShedlockArmDeadlines();
	return before;
}

/*
 * ShedlockSessionDeadlinePassed - has the timer ended this process?
 */
bool
ShedlockSessionDeadlinePassed(void)
{
	return session_deadline_passed;
}

/*
 * ShedlockRunDeadlinePassed - has the timer cancelled a run's command?
 */
bool
ShedlockRunDeadlinePassed(void)
{
	return run_deadline_passed;
}

/*
 * ShedlockForgetRunDeadlinePassed - that cancel has been dealt with
 *
 * It may still be pending: the command may have ended at the same instant.
 */
void
ShedlockForgetRunDeadlinePassed(void)
{
	if (run_deadline_passed)
		QueryCancelPending = false;
	run_deadline_passed = false;
}
