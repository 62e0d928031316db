/*-------------------------------------------------------------------------
 *
 * wake.c
 *	  Waking the sessions that wait for a lock.
 *
 * A waiter (lock/wait.c) holds a marker, a lock of SHEDLOCK_CLASS_WAITER in share mode under
 * the lock's key.  The session that frees a lock sets the latch of the first holder of the
 * marker, once the advisory half is really free: by a resource release callback after
 * RESOURCE_RELEASE_LOCKS for the locks that a transaction remembers, and for a session lock
 * that ends with its process by an exit callback.
 *
 * Only one waiter is woken, so a wake-up must not get lost.  The waiter that is woken
 * tries.  If it acquires the lock, the end of that wakes the next.  If it fails, another
 * session has the advisory half: the end of that transaction wakes again, or the row is
 * alive, and its end will.  If it leaves, it passes the wake-up on: at the end of its
 * wait, or by an entry in this list when an error, a cancel or the end of the process
 * ends it.
 *
 * Nobody wakes for these; the first waiter looks within a second, the others within two:
 *
 *	COMMIT PREPARED, ROLLBACK PREPARED, a reset of the session
 *	the end of a lease that was acquired since they looked last
 *	writers that do not know of waiters
 *	an acquire that gave up because a foreign writer has locked the row
 *	shedlock_purge, which has the advisory halves of what it deletes to its end
 *	a run that waits for its tick, or for an administrator's change of that, while its
 *	lock is free
 *	a lock freed while the first waiter is stopped
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
	bool		at_commit;		/* a commit frees it, too */
} WakeEntry;

/* At least as many as the locks that a call can wait for */
#define LOOK_BACK		128

static WakeEntry *wake_list = NULL;
static int	wake_count = 0;
static int	wake_size = 0;

/*
 * find_entry - the entry of a lock that a call by this subtransaction belongs to, or NULL
 *
 * The last one, or one that this subtransaction has added.  A long wait adds the same
 * few locks again and again; of a long list only the end is looked at.
 */
static WakeEntry *
find_entry(const LOCKTAG *tag, SubTransactionId subid)
{
	for (int i = wake_count - 1; i >= 0 && i >= wake_count - LOOK_BACK; i--)
	{
		WakeEntry  *entry = &wake_list[i];

		if ((i == wake_count - 1 || entry->subid == subid) &&
			memcmp(&entry->tag, tag, sizeof(LOCKTAG)) == 0)
			return entry;
	}
	return NULL;
}

/*
 * wake_later - remember a lock that the end of this (sub)transaction may free
 */
static void
wake_later(const LOCKTAG *tag, bool at_commit)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	WakeEntry  *entry = find_entry(tag, subid);

	ShedlockUseSession();
	if (entry == NULL)
	{
		if (wake_count == wake_size)
		{
			int			size = Max(16, wake_size * 2);

			wake_list = wake_list ?
				repalloc(wake_list, (Size) size * sizeof(WakeEntry)) :
				MemoryContextAlloc(TopMemoryContext, (Size) size * sizeof(WakeEntry));
			wake_size = size;
		}
		entry = &wake_list[wake_count++];
		entry->tag = *tag;
		entry->at_commit = false;
	}
	entry->subid = subid;
	entry->at_commit |= at_commit;
}

/*
 * ShedlockWakeLater - wake a waiter of a lock when this (sub)transaction ends
 */
void
ShedlockWakeLater(const LOCKTAG *tag)
{
	wake_later(tag, true);
}

/*
 * ShedlockWakeAtRollback - wake a waiter of a lock if this (sub)transaction is rolled
 * back
 */
void
ShedlockWakeAtRollback(const LOCKTAG *tag)
{
	wake_later(tag, false);
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
 * wake_after_commit - wake a waiter of a lock, for ShedlockShield()
 *
 * GetLockConflicts() raises an error only before it locks anything, when it allocates.  The
 * waiters find out by themselves then.
 */
static void
wake_after_commit(const void *tag)
{
	ShedlockWake((const LOCKTAG *) tag);
}

/*
 * ShedlockWakeAtRelease - wake waiters of locks that have just been released
 *
 * At the end of a subtransaction (!top_level) these are the locks that it added and
 * this process does not hold any more.  Raises no error after the commit record (I13).
 */
void
ShedlockWakeAtRelease(bool is_commit, bool top_level)
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
		else if (!is_commit)
			ShedlockWake(tag);
		else if (wake_list[i].at_commit)
			ShedlockShield(wake_after_commit, tag);
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
 * ShedlockWake - wake the first waiter of a lock that has not been woken yet
 *
 * All of them are in a transaction, so that GetLockConflicts() knows them.  A latch set
 * for a process that no longer waits does no harm.
 *
 * GetLockConflicts() has room for every transaction that there can be, and
 * raises an error if it cannot allocate it.  So that room is allocated before, without an
 * error, and what has just been freed is there again.  Without that memory nothing is
 * done, and the waiters find out by themselves, as for the list above.
 */
void
ShedlockWake(const LOCKTAG *tag)
{
	VirtualTransactionId *waiters;
	LOCKTAG		marker;
	void	   *room;
	int			n;

	ShedlockTagOfClass(&marker, tag, SHEDLOCK_CLASS_WAITER);
	if (LockWaiterCount(&marker) == 0)
		return;

	room = palloc_extended((Size) (MaxBackends + max_prepared_xacts + 1) * sizeof(VirtualTransactionId),
						   MCXT_ALLOC_NO_OOM);
	if (room == NULL)
		return;
	pfree(room);

	waiters = GetLockConflicts(&marker, ExclusiveLock, &n);
	for (int i = 0; i < n; i++)
	{
		PGPROC	   *proc = vxid_get_proc(waiters[i]);

		if (proc && !latch_is_set(&proc->procLatch))
		{
			SetLatch(&proc->procLatch);
			break;
		}
	}
	pfree(waiters);
}
