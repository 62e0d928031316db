/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  Waiting for a lock.
 *
 * A waiter never queues for the advisory half (I14).  It holds a marker, a lock
 * of SHEDLOCK_CLASS_WAITER in share mode under the lock's key, and then in a loop
 * tries to acquire, and sleeps on its latch.  The marker is there before the
 * first try, so that a session that frees the lock after a try finds it (wake.c).
 *
 * No wake-up comes from COMMIT PREPARED, DISCARD ALL, the end of a lease, and
 * writers that do not know of waiters: the waiter sleeps no longer than to the
 * end of the lease, and never over RECHECK_MS.
 *
 * The deadlock detector does not see such a wait, but it always ends: by the
 * caller's limit, lock_timeout, statement_timeout or cancel.
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
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define RECHECK_MS		1000

/* A run that has lost its advisory half is over when its process is. */
#define RECHECK_RUN_MS	50

/*
 * ShedlockAwaitLock - nap at most that long before the next try for a lock
 *
 * Call this after each failed try, with *wait zero at first.  A wait may be long:
 * from the first nap on each try runs in a memory context of its own, which this
 * resets; ShedlockEndWait() returns to the caller's.  Errors: 55P03 if
 * lock_timeout ends the wait, because the server's own timeout works only in the
 * lock manager's queue; 57014 if cancelled.
 */
void
ShedlockAwaitLock(const ShedlockName *name, ShedlockWait *wait, long ms)
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
	ShedlockNap(ms);
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
 * nap_ms - milliseconds until the next try, if no session wakes this one
 *
 * left: microseconds until the wait is over.
 */
static long
nap_ms(const ShedlockResult *result, int64 left)
{
	const ShedlockRow *row = &result->row;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz then = TimestampTzPlusMilliseconds(now, RECHECK_MS);

	if (result->verdict == SHEDLOCK_PAUSED)
		then = Min(then, row->paused_until);
	else if (result->verdict != SHEDLOCK_BUSY && row->kind == SHEDLOCK_RUN)
		then = TimestampTzPlusMilliseconds(now, RECHECK_RUN_MS);
	/* A session lock may outlast its time: do not spin on it. */
	else if (result->verdict != SHEDLOCK_BUSY && row->lock_until > now)
		then = Min(then, row->lock_until);
	return (long) Max(1, Min(TimestampDifferenceMilliseconds(now, then), left / 1000 + 1));
}

/*
 * ShedlockWaitFor - try to get a lock, and wait for it at most that long
 *
 * attempt: tries without waiting, and returns true when there is nothing more to wait
 * for; else *result says what stands in the way, and no table is locked.  Returns what
 * the last try returned.  Errors: those of attempt; 55P03 if lock_timeout ends the
 * wait, 57014 if cancelled.  The time is counted on the steady clock, so that a change
 * of the server's clock does not change the wait.  While it waits the caller's
 * snapshot stays as it is.
 */
bool
ShedlockWaitFor(const ShedlockName *name, const Interval *limit,
				bool (*attempt) (void *arg, ShedlockResult *result), void *arg,
				ShedlockResult *result)
{
	int64		give_up = ShedlockSteadyNow() + ShedlockIntervalMicroseconds(limit);
	ShedlockWait wait = {0};
	LOCKTAG		marker;
	bool		done;

	ShedlockTagOfClass(&marker, &name->tag, SHEDLOCK_CLASS_WAITER);
	(void) ShedlockTryLock(&marker, ShareLock);

	while (!(done = attempt(arg, result)))
	{
		int64		left = give_up - ShedlockSteadyNow();
		long		ms = nap_ms(result, left);

		if (left <= 0)
			break;
		/* The latch is set already if a session freed the lock after the try. */
		ShedlockAwaitLock(name, &wait, ms);
		ShedlockCheckClient();
	}

	ShedlockEndWait(&wait);
	ShedlockUnlock(&marker, ShareLock);
	return done;
}

/*
 * try_acquire - for ShedlockWaitFor()
 */
static bool
try_acquire(void *arg, ShedlockResult *result)
{
	const ShedlockRequest *request = arg;
	ShedlockStore store;
	bool		acquired;

	ShedlockOpen(&store, request->name.nsp, "shedlock");
	acquired = ShedlockAcquire(&store, request, result);
	if (acquired)
		ShedlockClose(&store);
	else
		ShedlockCloseUnused(&store);
	return acquired;
}

/*
 * ShedlockAcquireWait - acquire a lock, and wait for it at most that long
 *
 * As ShedlockAcquire() otherwise.  Errors: those of ShedlockWaitFor().
 */
bool
ShedlockAcquireWait(ShedlockRequest *request, const Interval *limit, ShedlockResult *result)
{
	return ShedlockWaitFor(&request->name, limit, try_acquire, request, result);
}
