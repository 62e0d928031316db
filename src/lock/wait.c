/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  Waiting for a lock.
 *
 * A waiter never queues for the advisory half.  It holds a marker, a lock of
 * SHEDLOCK_CLASS_WAITER in share mode under the lock's key, and then in a loop
 * resets its latch, tries to acquire, and sleeps on the latch.  The marker is
 * there before the first try: whoever frees the lock after that try finds it
 * (wake.c).
 *
 * What nobody is woken for, the waiter finds out by itself: it sleeps no
 * longer than to the end of the lease, and never over RECHECK_MS, which
 * covers COMMIT PREPARED, DISCARD ALL and writers that do not know of waiters.
 *
 * The deadlock detector knows nothing of such a wait, but it always ends: by
 * the caller's limit, lock_timeout, statement_timeout or cancel.
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
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define RECHECK_MS		1000

/* A run that has lost its advisory half is over when its process is. */
#define RECHECK_RUN_MS	50

/*
 * lock_timeout_end - when lock_timeout ends a wait that began then
 *
 * The server arms that timeout in the lock manager's queue only.
 */
static int64
lock_timeout_end(int64 start)
{
	return LockTimeout > 0 ? start + LockTimeout * INT64CONST(1000) : DT_NOEND;
}

/*
 * report_lock_timeout - complain as the server does
 */
static void
report_lock_timeout(const ShedlockName *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("canceling statement due to lock timeout"),
			 errdetail("The lock \"%s\" is not free.", name->str)));
}

/*
 * ShedlockAwaitLock - nap before the next try for the advisory half
 *
 * To be called after each failed try, with start 0 at first.  Raises 55P03 when
 * lock_timeout ends the wait.
 */
void
ShedlockAwaitLock(const ShedlockName *name, int64 *start, long ms)
{
	if (*start == 0)
		*start = ShedlockSteadyNow();
	if (ShedlockSteadyNow() >= lock_timeout_end(*start))
		report_lock_timeout(name);
	ShedlockNap(ms);
}

/*
 * earliest - when the row may let us in, nobody waking us
 */
static TimestampTz
earliest(const ShedlockResult *result, TimestampTz now)
{
	switch (result->verdict)
	{
		case SHEDLOCK_HELD:
		case SHEDLOCK_KEPT:
			if (result->row.kind == SHEDLOCK_RUN)
				return TimestampTzPlusMilliseconds(now, RECHECK_RUN_MS);
			/* A session lock is not over with its time: do not spin on it. */
			return result->row.lock_until > now ? result->row.lock_until : DT_NOEND;
		case SHEDLOCK_PAUSED:
			return result->row.paused_until;
		default:
			return DT_NOEND;
	}
}

/*
 * nap_ms - milliseconds until the next try, at most RECHECK_MS
 *
 * left: microseconds until the wait is over.
 */
static long
nap_ms(int64 left, const ShedlockResult *result)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz then = Min(earliest(result, now),
						   TimestampTzPlusMilliseconds(now, RECHECK_MS));
	long		ms = TimestampDifferenceMilliseconds(now, then);

	if (left < RECHECK_MS * INT64CONST(1000))
		ms = Min(ms, (long) (left / 1000) + 1);
	return Max(1, ms);
}

/*
 * ShedlockAcquireWait - take a lock, waiting for it at most that long
 *
 * As ShedlockAcquire() otherwise.  Errors: 55P03 when lock_timeout ends the
 * wait, 57014 when cancelled.  The time is counted on the steady clock: moving the server's
 * clock does not make a wait longer or shorter.  While it waits the caller's
 * snapshot stays as it is.
 */
bool
ShedlockAcquireWait(ShedlockStore *store, const ShedlockRequest *request,
					const Interval *wait, ShedlockResult *result)
{
	int64		start = ShedlockSteadyNow();
	int64		give_up = start + ShedlockIntervalMicroseconds(wait);
	int64		timeout = lock_timeout_end(start);
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "shedlock wait",
												  ALLOCSET_SMALL_SIZES);
	LOCKTAG		marker;
	bool		taken;

	ShedlockTagOfClass(&marker, &request->name.tag, SHEDLOCK_CLASS_WAITER);
	(void) ShedlockTryLock(&marker, ShareLock);

	for (;;)
	{
		int64		now;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(context);
		taken = ShedlockAcquire(store, request, result);
		MemoryContextSwitchTo(caller);
		if (taken)
			break;

		now = ShedlockSteadyNow();
		if (now >= give_up)
			break;
		if (now >= timeout)
			report_lock_timeout(&request->name);

		/* The latch is set if somebody let go after our try. */
		ShedlockCloseUnused(store);
		ShedlockNap(nap_ms(Min(give_up, timeout) - now, result));
		MemoryContextReset(context);
		ShedlockOpen(store, request->name.nsp, "shedlock");
	}

	ShedlockUnlock(&marker, ShareLock);
	return taken;
}
