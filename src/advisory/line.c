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
 * set.  So when a lock is freed, a waiter must look again soon.  The last in the line is
 * woken for this, too, and watches: if the latch that was set last is still set after
 * SHEDLOCK_WATCH_MS, it wakes the next.  It watches until all have reacted, or until the
 * lock is handed over.  As long as a waiter watches, a release wakes one waiter.
 *
 * Everybody passes over those whose latches are set.  But one whose latch has just been
 * set will run soon.  So who is woken behind such a one tries only if it is known not to
 * react: to itself, or to a waiter that watches.  Otherwise it watches.  So one that is
 * stopped costs its delay at few of the hand-overs.
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
 * has_reacted - is its latch free, so that a session that frees the lock would set it?
 */
static bool
has_reacted(VirtualTransactionId vxid)
{
	PGPROC	   *proc = vxid_get_proc(vxid);

	return proc && !latch_is_set(&proc->procLatch);
}

/*
 * look - forget who was ahead and has left
 *
 * Both lists are in the order of the line, and those who were there before this waiter
 * are at the head of it.
 */
static void
look(ShedlockWaiter *place)
{
	VirtualTransactionId *line = GetLockConflicts(&place->marker, ExclusiveLock, NULL);
	int			left = 0;

	for (int i = 0; i < place->nahead; i++)
	{
		if (VirtualTransactionIdEquals(line[left], place->ahead[i]))
			place->ahead[left++] = place->ahead[i];
	}
	place->nahead = left;
	pfree(line);
}

/*
 * know_stuck - are all who have not reacted known not to react?
 *
 * n: how many they are at the head of the line.  One who watches may have found out.
 */
static bool
know_stuck(ShedlockWaiter *place, int n)
{
	VirtualTransactionId *knowing;

	if (n == 0 || VirtualTransactionIdEquals(place->ahead[n - 1], place->stuck))
		return true;
	knowing = GetLockConflicts(&place->watch, ShareLock, NULL);
	if (VirtualTransactionIdIsValid(knowing[0]))
		place->stuck = place->ahead[n - 1];
	pfree(knowing);
	return VirtualTransactionIdEquals(place->ahead[n - 1], place->stuck);
}

/*
 * watch - watch whether the last of n waiters that were woken reacts
 *
 * Its markers, which hinder nobody, tell the others: that it watches, and that it knows
 * of some that do not react.
 */
static void
watch(ShedlockWaiter *place, int n)
{
	bool		still = false;

	for (int i = 0; i < n && !still; i++)
		still = VirtualTransactionIdEquals(place->ahead[i], place->stuck);
	if (n > 0)
		place->watched = place->ahead[n - 1];
	else
		SetInvalidVirtualTransactionId(place->watched);

	if (!place->watching)
		place->watching = ShedlockTryLock(&place->watch, RowShareLock);
	if (still && !place->knows)
		place->knows = ShedlockTryLock(&place->watch, RowExclusiveLock);
	else if (!still && place->knows)
	{
		ShedlockUnlock(&place->watch, RowExclusiveLock);
		place->knows = false;
	}
}

/*
 * end_watch - take the markers of watch() away
 */
static void
end_watch(ShedlockWaiter *place)
{
	if (place->watching)
		ShedlockUnlock(&place->watch, RowShareLock);
	if (place->knows)
		ShedlockUnlock(&place->watch, RowExclusiveLock);
	place->watching = place->knows = false;
}

/*
 * count_woken - the number of waiters at the head of the line that have not reacted
 */
static int
count_woken(const ShedlockWaiter *place)
{
	int			n = 0;

	while (n < place->nahead && !has_reacted(place->ahead[n]))
		n++;
	return n;
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
	int			n;

	memset(place, 0, sizeof(*place));
	SetInvalidVirtualTransactionId(place->stuck);
	place->tag = *tag;
	ShedlockTagOfClass(&place->marker, tag, SHEDLOCK_CLASS_WAITER);
	ShedlockTagOfClass(&place->watch, tag, SHEDLOCK_CLASS_WATCH);

	/*
	 * A waiter that joins between these two calls counts as behind: that does
	 * no harm.
	 */
	place->ahead = GetLockConflicts(&place->marker, ExclusiveLock, &place->nahead);
	(void) ShedlockTryLock(&place->marker, ShareLock);
	ShedlockWakeAtRollback(tag);
	n = count_woken(place);
	if (know_stuck(place, n) && n == place->nahead)
		return true;
	if (n == place->nahead)
		watch(place, n);
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
	int			n;
	bool		turn;

	look(place);
	n = count_woken(place);
	if (n == place->nahead && know_stuck(place, n))
		turn = true;
	else if (woken)
	{
		watch(place, n);
		return false;
	}
	else if (place->watching && n > 0 &&
			 VirtualTransactionIdEquals(place->ahead[n - 1], place->watched))
	{
		place->stuck = place->watched;
		turn = n == place->nahead;
		if (!turn)
		{
			PGPROC	   *next = vxid_get_proc(place->ahead[n]);

			/* The next one asks whether a waiter watches. */
			watch(place, n + 1);
			if (next)
				SetLatch(&next->procLatch);
			return false;
		}
	}
	else if (place->watching && !know_stuck(place, n))
	{
		watch(place, n);
		return false;
	}
	else
		turn = place->nahead == before;

	end_watch(place);
	return turn;
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
