/*-------------------------------------------------------------------------
 *
 * line.c
 *	  The line of those who wait for a lock.
 *
 * The markers of the waiters (wake.c) are the line: the server keeps the holders of a
 * lock in the order in which they acquired it, and GetLockConflicts() lists them in this
 * order, without the caller.  So a waiter remembers who was there before it.  It tries
 * when it is woken and nobody is ahead of it: first come, first served.
 *
 * A stopped process cannot react.  Nobody sees that at once: its latch is set, and stays
 * set.  So when a lock is freed, somebody must look again soon.  The last in the line is
 * woken for this, too, and watches: if the latch that was set last is still set after
 * WATCH_MS, it wakes the next.  It watches until no latch is set, and has a marker of
 * SHEDLOCK_CLASS_WATCH meanwhile.  As long as there is one, a release wakes one waiter.
 * Those whose latches are set are passed over by everybody, so one that is stopped
 * costs its delay once.
 *
 * A waiter whose nap ends without a wake-up tries only if nobody ahead of it has left
 * since it looked last.  Otherwise the lock is being handed over, and its turn comes.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "advisory/advisory.h"
#include "storage/latch.h"

/*
 * count_ahead - forget who was ahead and has left
 *
 * Both lists are in the order of the line, and those who were there before this waiter
 * are at the head of it.
 */
static void
count_ahead(ShedlockWaiter *place)
{
	VirtualTransactionId *now = GetLockConflicts(&place->marker, ExclusiveLock, NULL);
	int			left = 0;

	for (int i = 0; i < place->nahead; i++)
	{
		if (VirtualTransactionIdEquals(now[left], place->ahead[i]))
			place->ahead[left++] = place->ahead[i];
	}
	place->nahead = left;
	pfree(now);
}

/*
 * begin_watch, end_watch - say to those who free the lock that this process watches
 */
static void
begin_watch(ShedlockWaiter *place)
{
	place->watching = ShedlockTryLock(&place->watch, ShareLock);
}

static void
end_watch(ShedlockWaiter *place)
{
	if (place->watching)
		ShedlockUnlock(&place->watch, ShareLock);
	place->watching = false;
}

/*
 * last_woken - the number of waiters at the head of the line whose latches are set
 *
 * *next: the process behind them, NULL if that is this one.
 */
static int
last_woken(const ShedlockWaiter *place, PGPROC **next)
{
	int			i;

	*next = NULL;
	for (i = 0; i < place->nahead; i++)
	{
		PGPROC	   *proc = vxid_get_proc(place->ahead[i]);

		if (proc && !latch_is_set(&proc->procLatch))
		{
			*next = proc;
			break;
		}
	}
	return i;
}

/*
 * ShedlockJoinLine - get a place in the line of those who wait for a lock
 *
 * Returns true if nobody is ahead, so that the caller may try at once.  Allocates in
 * the caller's memory context.  Locks: a marker, until ShedlockLeaveLine() or the end of
 * the transaction.  An error, a cancel or the end of the process passes a wake-up on.
 */
bool
ShedlockJoinLine(ShedlockWaiter *place, const LOCKTAG *tag)
{
	memset(place, 0, sizeof(*place));
	place->tag = *tag;
	ShedlockTagOfClass(&place->marker, tag, SHEDLOCK_CLASS_WAITER);
	ShedlockTagOfClass(&place->watch, tag, SHEDLOCK_CLASS_WATCH);

	/* Who comes between these two is behind: that does no harm. */
	place->ahead = GetLockConflicts(&place->marker, ExclusiveLock, &place->nahead);
	(void) ShedlockTryLock(&place->marker, ShareLock);
	ShedlockWakeAtRollback(tag);
	if (place->nahead == 0)
		return true;
	if (!ShedlockIsWatched(&place->watch, NULL))
		begin_watch(place);
	return false;
}

/*
 * ShedlockTurn - is it the turn of this process to try?  Call this after each nap
 *
 * woken: its latch was set.  If place->watching is set, the next nap must not be longer
 * than SHEDLOCK_WATCH_MS.
 */
bool
ShedlockTurn(ShedlockWaiter *place, bool woken)
{
	int			before = place->nahead;
	PGPROC	   *next;
	VirtualTransactionId last;
	int			n;

	if (before > 0)
		count_ahead(place);
	n = last_woken(place, &next);
	if (n > 0)
		last = place->ahead[n - 1];
	else
		SetInvalidVirtualTransactionId(last);

	if (place->nahead == 0)
	{
		end_watch(place);
		return true;
	}

	if (!place->watching)
	{
		if (!woken)
			return place->nahead == before;

		/* While somebody else watches, only those are woken whose turn it is. */
		if ((next == NULL && VirtualTransactionIdEquals(last, place->stuck)) ||
			ShedlockIsWatched(&place->watch, NULL))
			return true;
		begin_watch(place);
		place->watched = last;
		return !place->watching;
	}

	if (woken)
	{
		end_watch(place);
		return true;
	}
	if (n > 0 && VirtualTransactionIdEquals(last, place->watched))
	{
		place->stuck = last;
		if (next == NULL)
		{
			end_watch(place);
			return true;
		}
		SetLatch(&next->procLatch);
		place->watched = place->ahead[n];
		return false;
	}
	if (n > 0 && !VirtualTransactionIdEquals(last, place->stuck))
	{
		place->watched = last;
		return false;
	}
	end_watch(place);
	return place->nahead == before;
}

/*
 * ShedlockLeaveLine - give up the place
 *
 * A wake-up that this process has not used is passed on, unless it holds the lock now.
 */
void
ShedlockLeaveLine(ShedlockWaiter *place)
{
	end_watch(place);
	ShedlockUnlock(&place->marker, ShareLock);
	if (!lock_held_by_me(&place->tag, ExclusiveLock))
		ShedlockWake(&place->tag);
	pfree(place->ahead);
}
