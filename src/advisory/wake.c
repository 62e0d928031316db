/*-------------------------------------------------------------------------
 *
 * wake.c
 *	  Waking the sessions that wait for a lock.
 *
 * A waiter (wait.c) holds a marker, a lock of SHEDLOCK_CLASS_WAITER in share
 * mode under the lock's key.  The session that frees a lock sets the latch of
 * every holder of the marker, once the advisory half is really free: a
 * transaction callback would be too early, since the locks are released after
 * it.  So a transaction remembers the locks that its end may free, and a resource
 * release callback after RESOURCE_RELEASE_LOCKS does the rest; for a session
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

/*
 * A lock that the end of this transaction may free.  What a subtransaction has added
 * since it began is at the end of the list, and has its ID or a larger one, as
 * those have that began and were committed within it.
 */
typedef struct WakeEntry
{
	LOCKTAG		tag;
	SubTransactionId subid;		/* that added it last */
} WakeEntry;

static WakeEntry *wake_list = NULL;
static int	wake_count = 0;
static int	wake_size = 0;

/*
 * ShedlockWakeLater - wake the waiters of a lock when this (sub)transaction ends
 */
void
ShedlockWakeLater(const LOCKTAG *tag)
{
	ShedlockUseSession();
	if (wake_count == wake_size)
	{
		int			size = Max(16, wake_size * 2);

		wake_list = wake_list ?
			repalloc(wake_list, (Size) size * sizeof(WakeEntry)) :
			MemoryContextAlloc(TopMemoryContext, (Size) size * sizeof(WakeEntry));
		wake_size = size;
	}

	/* It is the same lock again, most likely. */
	if (wake_count == 0 || memcmp(&wake_list[wake_count - 1].tag, tag, sizeof(LOCKTAG)) != 0)
		wake_list[wake_count++].tag = *tag;
	wake_list[wake_count - 1].subid = GetCurrentSubTransactionId();
}

/*
 * ShedlockTryShare - acquire the advisory half in share mode to the end of the
 * transaction, without waiting
 *
 * Returns false if it is not available.  If the lock is freed while this
 * transaction holds share, the next try of its waiters fails; so they are woken
 * again when this transaction ends.
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
 * ShedlockWakeAtRelease - wake the waiters of locks that have just been released
 *
 * At the end of a subtransaction (!top_level) these are the locks that it added and
 * this process does not hold any more.  Raises no error: after the commit record that
 * would be a panic (I13).
 */
void
ShedlockWakeAtRelease(bool top_level)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	int			first = wake_count;
	int			end = wake_count;

	while (first > 0 && (top_level || wake_list[first - 1].subid >= subid))
		first--;
	wake_count = first;
	for (int i = first; i < end; i++)
	{
		const LOCKTAG *tag = &wake_list[i].tag;

		if (!top_level && (lock_held_by_me(tag, ShareLock) ||
						   lock_held_by_me(tag, ExclusiveLock)))
			wake_list[wake_count++] = wake_list[i];
		else
			ShedlockWake(tag);
	}

	/* A transaction of many locks was an exception. */
	if (wake_count == 0 && wake_size > 1024)
	{
		pfree(wake_list);
		wake_list = NULL;
		wake_size = 0;
	}
}

/*
 * ShedlockWake - set the latch of every session that waits for a lock
 *
 * All of them are in a transaction, so that GetLockConflicts() knows them.
 * A latch set for a process that no longer waits does no harm.
 *
 * GetLockConflicts() has room for every transaction that there can be, and
 * raises an error if it cannot allocate it.  So it is allocated before, without
 * an error, and what has just been freed is there again.  Without that memory
 * nothing is done, and the waiters find out by themselves within a second.
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
