/*-------------------------------------------------------------------------
 *
 * wake.c
 *	  Waking those who wait for a lock.
 *
 * A waiter (wait.c) holds a marker, a lock of SHEDLOCK_CLASS_WAITER in share
 * mode under the lock's key.  Whoever frees a lock sets the latches of all who
 * hold the marker, once the advisory half is really gone: a transaction callback
 * would be too early, since the locks are released after it.  So a transaction
 * remembers the keys that its end may free (ShedlockWakeLater), and a resource
 * release callback behind RESOURCE_RELEASE_LOCKS does the rest; for a session
 * lock that ends with its process, an exit callback that runs after the locks
 * are gone.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "advisory/advisory.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"

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
 * ShedlockTryShare - take the advisory half in share mode to the end of the
 * transaction, without waiting
 *
 * Whoever frees the lock afterwards is not the last: the waiters are woken
 * when this transaction ends, too.
 */
bool
ShedlockTryShare(const LOCKTAG *tag)
{
	if (!ShedlockTryLock(tag, ShareLock))
		return false;
	ShedlockWakeLater(tag);
	return true;
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
