/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  Waiting for a lock, and waking those who wait.
 *
 * A waiter never queues for the advisory half.  It holds a marker, a lock of
 * SHEDLOCK_CLASS_WAITER in share mode under the lock's key, and then in a loop
 * resets its latch, tries to acquire, and sleeps on the latch.  The marker is
 * there before the first try: whoever frees the lock after that try finds it.
 *
 * Whoever frees a lock sets the latches of all who hold the marker, once the
 * advisory half is really gone: a transaction callback would be too early,
 * since the locks are released after it.  So a transaction remembers the keys
 * that its end may free (ShedlockWakeLater), and a resource release callback
 * behind RESOURCE_RELEASE_LOCKS does the rest; for a session lock that ends
 * with its process, an exit callback that runs after the locks are gone.
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

#include "access/twophase.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "shedlock.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define RECHECK_MS		1000

/* A run that has lost its advisory half is over when its process is. */
#define RECHECK_RUN_MS	50

/* How long an acquire waits for a row that somebody else has locked. */
#define FOREIGN_LOCK_TRIES		20
#define FOREIGN_LOCK_NAP_MS		5

/* A key that the end of this transaction may free. */
typedef struct WakeEntry
{
	LOCKTAG		tag;
	SubTransactionId subid;		/* invalid: due at the next lock release */
} WakeEntry;

static WakeEntry *wake_entries = NULL;
static int	wake_count = 0;
static int	wake_size = 0;
static bool wake_due = false;

static uint32 wait_event = 0;

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
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 nap_ms(Min(give_up, timeout) - now, result),
						 wait_event_named(&wait_event, "ShedlockWait"));
		MemoryContextReset(context);
		ShedlockOpen(store, request->name.nsp, "shedlock");
	}

	ShedlockUnlock(&marker, ShareLock);
	return taken;
}

/*
 * ShedlockWakeLater - wake the waiters of a lock when this (sub)transaction ends
 */
void
ShedlockWakeLater(const LOCKTAG *tag)
{
	SubTransactionId subid = GetCurrentSubTransactionId();

	/* The same lock again, most likely. */
	if (wake_count > 0 && wake_entries[wake_count - 1].subid == subid &&
		memcmp(&wake_entries[wake_count - 1].tag, tag, sizeof(LOCKTAG)) == 0)
		return;

	ShedlockUseSession();
	if (wake_count == wake_size)
	{
		int			size = Max(16, wake_size * 2);

		wake_entries = wake_entries ?
			repalloc(wake_entries, (Size) size * sizeof(WakeEntry)) :
			MemoryContextAlloc(TopMemoryContext, (Size) size * sizeof(WakeEntry));
		wake_size = size;
	}
	wake_entries[wake_count].tag = *tag;
	wake_entries[wake_count].subid = subid;
	wake_count++;
}

/*
 * ShedlockWakeSubCommit - the parent frees the locks now
 *
 * What an open subtransaction has added is at the end.  A lock that the parent
 * has added just before need not be there twice, so that a loop of
 * subtransactions does not make the list grow.
 */
void
ShedlockWakeSubCommit(SubTransactionId subid, SubTransactionId parent)
{
	int			first = wake_count;

	while (first > 0 && wake_entries[first - 1].subid == subid)
		wake_entries[--first].subid = parent;
	if (first > 0 && first == wake_count - 1 &&
		memcmp(&wake_entries[first - 1], &wake_entries[first], sizeof(WakeEntry)) == 0)
		wake_count--;
}

/*
 * ShedlockWakeSubAbort - the locks of that subtransaction are about to go
 */
void
ShedlockWakeSubAbort(SubTransactionId subid)
{
	for (int i = wake_count - 1; i >= 0 && wake_entries[i].subid == subid; i--)
	{
		wake_entries[i].subid = InvalidSubTransactionId;
		wake_due = true;
	}
}

/*
 * ShedlockWakeAtRelease - locks have just been released: wake who is due
 *
 * Part of a transaction's end: past the commit an error would be a panic, so
 * nothing here raises one.
 */
void
ShedlockWakeAtRelease(bool top_level)
{
	int			kept = 0;

	if (wake_count == 0 || (!top_level && !wake_due))
		return;
	for (int i = 0; i < wake_count; i++)
	{
		if (top_level || wake_entries[i].subid == InvalidSubTransactionId)
			ShedlockWake(&wake_entries[i].tag);
		else
			wake_entries[kept++] = wake_entries[i];
	}
	wake_count = kept;
	wake_due = false;

	/* A transaction of many locks was an exception. */
	if (wake_count == 0 && wake_size > 1024)
	{
		pfree(wake_entries);
		wake_entries = NULL;
		wake_size = 0;
	}
}

/*
 * ShedlockWake - set the latch of everybody who waits for a lock
 *
 * All of them are in a transaction, so that GetLockConflicts() knows them.
 * A latch set for a process that does not wait any more does no harm.
 *
 * GetLockConflicts() has room for every transaction that there can be, and
 * raises an error if it cannot allocate it.  So it is allocated before, without
 * an error, and what has just been freed is there again.  Without it nobody is
 * woken, and the waiters find out by themselves.
 */
void
ShedlockWake(const LOCKTAG *tag)
{
	Size		transactions = (Size) (MaxBackends + max_prepared_xacts + 1);
	void	   *room = palloc_extended(transactions * sizeof(VirtualTransactionId),
									   MCXT_ALLOC_NO_OOM);
	LOCKTAG		marker;
	VirtualTransactionId *waiters;

	if (room == NULL)
		return;
	pfree(room);
	ShedlockTagOfClass(&marker, tag, SHEDLOCK_CLASS_WAITER);
	waiters = GetLockConflicts(&marker, ExclusiveLock, NULL);
	for (int i = 0; VirtualTransactionIdIsValid(waiters[i]); i++)
	{
		PGPROC	   *proc = vxid_get_proc(waiters[i]);

		if (proc)
			SetLatch(&proc->procLatch);
	}
	pfree(waiters);
}
