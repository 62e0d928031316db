/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  Waiting for a lock.
 *
 * A waiter never queues for the advisory half (I14).  It has a place in a line
 * (advisory/line.c) before the first try, so that a session that frees the lock after a try
 * finds it.  In a loop it sleeps on its latch, and tries when it is its turn.  For what
 * nobody wakes it (advisory/wake.c) it sleeps no longer than to the end of the lease, and
 * about RECHECK_MS.
 *
 * The deadlock detector does not see such a wait, but it always ends: by the
 * caller's limit, lock_timeout, statement_timeout or cancel.  The wait for the advisory
 * half in share mode has no limit, so it looks for a deadlock itself.  It does not see
 * one in which another process naps, too.
 *
 * The table is closed meanwhile.  A waiter may wait for hours; VACUUM FULL or
 * ALTER TABLE would wait for it, and the holder's release for them.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lock/lock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define RECHECK_MS		1000

/* A run that has lost its advisory half is over when its process is. */
#define RECHECK_RUN_MS	50

/*
 * await_lock - nap at most that long before the next try for a lock
 *
 * Call this after each failed try, with *wait zero at first.  A wait may be long:
 * from the first nap on each try runs in a memory context of its own, which this
 * resets; ShedlockEndWait() returns to the caller's.  Returns true if the latch of this
 * process was set.  Errors: 55P03 if lock_timeout ends the wait, because the server's own
 * timeout works only in the lock manager's queue; 57014 if cancelled.
 */
static bool
await_lock(const ShedlockName *name, ShedlockWait *wait, long ms)
{
	int64		now = ShedlockSteadyNow();

	if (wait->context == NULL)
	{
		wait->start = now;
		wait->context = AllocSetContextCreate(CurrentMemoryContext, "shedlock wait",
											  ALLOCSET_SMALL_SIZES);
		MemoryContextSwitchTo(wait->context);
	}
	MemoryContextReset(wait->context);
	if (LockTimeout > 0)
	{
		int64		left = wait->start + LockTimeout * INT64CONST(1000) - now;

		if (left <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("canceling statement due to lock timeout"),
					 errdetail("The lock \"%s\" is not free.", name->str)));
		ms = (long) Min(ms, left / 1000 + 1);
	}
	return ShedlockNap(ms);
}

/*
 * ShedlockAwaitShare - nap before the next try for the advisory half in share mode
 *
 * As await_lock().  Errors: also 40P01, each deadlock_timeout, if the transaction that
 * has the advisory half exclusively waits for a lock of this one.  That is asked twice, with
 * a failed try between: the first answer may be from before and after it gave the half back.
 */
void
ShedlockAwaitShare(const ShedlockName *name, ShedlockWait *wait, long ms)
{
	(void) await_lock(name, wait, ms);
	if (ShedlockSteadyNow() - Max(wait->start, wait->checked) >= DeadlockTimeout * INT64CONST(1000))
	{
		int			pid = ShedlockBlockedHolder(&name->tag);

		if (pid != 0 && pid == wait->suspect)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
					 errmsg("deadlock detected"),
					 errdetail("This process waits for lock \"%s\", which is in use by process %d; that waits for this process.",
							   name->str, pid)));
		wait->suspect = pid;
		if (pid == 0)
			wait->checked = ShedlockSteadyNow();
	}
}

/*
 * ShedlockEndWait - end a wait, if one began; what the last try allocated stays
 */
void
ShedlockEndWait(const ShedlockWait *wait)
{
	if (wait->context)
		MemoryContextSwitchTo(MemoryContextGetParent(wait->context));
}

/*
 * ShedlockNapMs - milliseconds until the next try, if no session wakes this one
 */
long
ShedlockNapMs(const ShedlockResult *result)
{
	const ShedlockRow *row = &result->row;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz then = TimestampTzPlusMilliseconds(now, RECHECK_MS);

	if (result->state == SHEDLOCK_PAUSED)
		then = Min(then, row->paused_until);
	else if (result->state != SHEDLOCK_IN_USE && row->kind == SHEDLOCK_RUN)
		then = TimestampTzPlusMilliseconds(now, RECHECK_RUN_MS);
	/* A session lock may outlast its time: do not spin on it. */
	else if (result->state != SHEDLOCK_IN_USE && row->lock_until > now)
		then = Min(then, row->lock_until);
	if (result->look_at > now)
		then = Min(then, result->look_at);
	return (long) Max(1, TimestampDifferenceMilliseconds(now, then));
}

/*
 * in_turn - the length of a nap that would be that long for the first in the line
 *
 * What ends at a known time ends for all waiters at once: each leaves the one before it
 * time to react.
 */
static long
in_turn(const ShedlockLines *lines, long ms)
{
	int			ahead = INT_MAX;

	if (ShedlockYields(lines))
		return Min(ms, SHEDLOCK_REACT_MS);
	for (int i = 0; i < lines->n; i++)
		ahead = Min(ahead, lines->places[i].nahead);
	return ms + Min(ahead, RECHECK_MS / SHEDLOCK_REACT_MS) * SHEDLOCK_REACT_MS;
}

/*
 * ShedlockWaitFor - wait for one of some locks, at most that long
 *
 * attempt: tries without waiting, and returns true when there is nothing more to wait
 * for; else *result says what stands in the way, and no table is locked.  It is called
 * at least once, and when it is this process's turn for one of the names (line.c).
 * Returns what the last try returned.  Errors: those of attempt; 55P03 if lock_timeout
 * ends the wait, 57014 if cancelled.  The time is counted on the steady clock, so that a
 * change of the server's clock does not change the wait.  While it waits the caller's
 * snapshot stays as it is.
 */
bool
ShedlockWaitFor(const ShedlockName *names, int n, const Interval *limit,
				bool (*attempt) (void *arg, ShedlockResult *result), void *arg,
				ShedlockResult *result)
{
	int64		give_up = ShedlockSteadyNow() + ShedlockIntervalMicroseconds(limit);
	ShedlockLines lines;
	ShedlockWait wait = {0};
	bool		may_try = ShedlockJoinLines(&lines, names, n);
	bool		tried = false;
	bool		done = false;
	int64		nap_end = 0;
	bool		goes_on = false;	/* the nap was interrupted for nothing */

	for (;;)
	{
		int64		now = ShedlockSteadyNow();
		int64		left = give_up - now;
		bool		yielded = ShedlockYields(&lines);
		bool		woken;
		bool		over;

		if (may_try || left <= 0)
		{
			done = attempt(arg, result);
			tried = true;
			now = ShedlockSteadyNow();
			left = give_up - now;
		}
		if (done || left <= 0)
			break;
		if (!goes_on)
			nap_end = now + in_turn(&lines, tried ? ShedlockNapMs(result) : RECHECK_MS) * INT64CONST(1000);

		/* The latch is set already if a session freed the lock after the try. */
		woken = await_lock(&names[0], &wait, (long) Max(1, (Min(nap_end - now, left) + 999) / 1000));
		ShedlockCheckClient();
		over = ShedlockSteadyNow() >= nap_end;
		may_try = ShedlockTurn(&lines, woken, over);
		goes_on = !may_try && !over && ShedlockYields(&lines) == yielded;
	}

	ShedlockEndWait(&wait);
	ShedlockLeaveLines(&lines);
	return done;
}
