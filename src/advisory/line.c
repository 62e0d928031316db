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
 * A process that is stopped does not react: its latch is set, and stays set.  So waiters
 * pass over those ahead whose latches are set.  But a process whose latch has just been set
 * will run soon, and has SHEDLOCK_REACT_MS for that: a waiter that is woken behind such a
 * process naps first.
 *
 * A waiter whose nap is over tries only if nobody ahead of it has left since it looked
 * last.  Otherwise the lock is being handed over, and its turn comes.
 *
 * Anything may set a latch, again and again.  So a nap that was interrupted before it was the
 * waiter's turn goes on to its end (lock/wait.c).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "advisory/advisory.h"
#include "storage/latch.h"

/*
 * look - forget who was ahead and has left
 *
 * Both lists are in the order of the line, and those who were there before this waiter
 * are at the head of it.
 */
static void
look(ShedlockPlaceInLine *place)
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
 * none_reacts - have those ahead all been woken, and not reacted?
 */
static bool
none_reacts(const ShedlockPlaceInLine *place)
{
	for (int i = 0; i < place->nahead; i++)
	{
		PGPROC	   *proc = vxid_get_proc(place->ahead[i]);

		if (proc && !latch_is_set(&proc->procLatch))
			return false;
	}
	return true;
}

/*
 * ShedlockJoinLines - get a place in the line of those who wait for each of these locks
 *
 * Returns true if nobody is ahead in one of them, so that the caller may try at once.
 * Allocates in the caller's memory context.  Locks: a marker of each lock, until
 * ShedlockLeaveLines() or the end of the transaction.  An error, a cancel or the end of the
 * process passes a wake-up on.
 */
bool
ShedlockJoinLines(ShedlockLines *lines, const ShedlockName *names, int n)
{
	bool		may_try = false;

	lines->n = n;
	lines->places = palloc((Size) n * sizeof(ShedlockPlaceInLine));
	for (ShedlockPlaceInLine *place = lines->places; place < lines->places + n; place++, names++)
	{
		place->tag = names->tag;
		ShedlockTagOfClass(&place->marker, &names->tag, SHEDLOCK_CLASS_WAITER);

		/*
		 * A waiter that joins between these two calls counts as behind: that
		 * does no harm.
		 */
		place->ahead = GetLockConflicts(&place->marker, ExclusiveLock, &place->nahead);
		(void) ShedlockTryLock(&place->marker, ShareLock);
		ShedlockWakeAtRollback(&names->tag);
		place->yields = place->nahead > 0 && none_reacts(place);
		may_try |= place->nahead == 0;
	}
	return may_try;
}

/*
 * ShedlockYields - does this process nap so that others can react?
 *
 * The next nap must not be longer than SHEDLOCK_REACT_MS then.
 */
bool
ShedlockYields(const ShedlockLines *lines)
{
	for (int i = 0; i < lines->n; i++)
	{
		if (lines->places[i].yields)
			return true;
	}
	return false;
}

/*
 * turn - is it the turn of this process in one line?  As ShedlockTurn()
 */
static bool
turn(ShedlockPlaceInLine *place, bool woken, bool over)
{
	int			before = place->nahead;
	bool		yielded = place->yields;

	look(place);
	place->yields = false;
	if (place->nahead == 0)
		return true;
	if (over && !yielded && place->nahead == before)
		return true;
	if ((!woken && !yielded) || !none_reacts(place))
		return false;
	place->yields = !(over && yielded);
	return !place->yields;
}

/*
 * ShedlockTurn - is it the turn of this process to try?  Call this after each nap
 *
 * woken: its latch was set.  over: the nap has had its full length.
 */
bool
ShedlockTurn(ShedlockLines *lines, bool woken, bool over)
{
	bool		any = false;

	for (int i = 0; i < lines->n; i++)
		any |= turn(&lines->places[i], woken, over);
	return any;
}

/*
 * ShedlockLeaveLines - give up the places
 *
 * A wake-up that this process has not used is passed on, unless it holds the lock now.
 */
void
ShedlockLeaveLines(ShedlockLines *lines)
{
	for (ShedlockPlaceInLine *place = lines->places; place < lines->places + lines->n; place++)
	{
		ShedlockUnlock(&place->marker, ShareLock);
		if (!lock_held_by_me(&place->tag, ExclusiveLock))
			ShedlockWake(&place->tag);
		pfree(place->ahead);
	}
	pfree(lines->places);
}
