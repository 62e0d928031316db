/*-------------------------------------------------------------------------
 *
 * changes.c
 *	  What open (sub)transactions have made of a session lock or run.
 *
 * The changes of a transaction are a list, the last one first.  Each has the state
 * that its rollback brings back (I6).  Those of the innermost subtransaction come
 * first, so that its end looks at no others.  A subtransaction has at most one for
 * each holding.
 *
 * Which deadline rules when: An extend in an open transaction counts, and so does
 * what its rollback would bring back, so that the latest of these rules.  From
 * PRE_COMMIT on the deadline that is committed rules alone, unless it had passed
 * by then: the commit may wait for a standby without end, and no other server
 * would know of the new deadline.  After the end of the transaction there is only
 * one.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "session/session.h"
#include "utils/memutils.h"

/* The last one first. */
static ShedlockChange *changes = NULL;

/*
 * ShedlockLastChange - the last change of this transaction that was not undone, or NULL
 */
ShedlockChange *
ShedlockLastChange(void)
{
	return changes;
}

/*
 * ShedlockNoteChange - call this before a change of a holding
 */
void
ShedlockNoteChange(ShedlockHolding *holding)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	ShedlockChange *change = &holding->first_change;

	if (holding->last_change)
	{
		if (holding->last_change->made_in == subid)
			return;
		change = MemoryContextAlloc(TopMemoryContext, sizeof(ShedlockChange));
	}
	change->next = changes;
	change->before = holding->last_change;
	change->holding = holding;
	change->made_in = subid;
	change->state = holding->state;
	changes = holding->last_change = change;
}

/*
 * ShedlockRulingDeadline - when the session or run must end, as things stand
 *
 * committing_since: when PRE_COMMIT was, or 0 before it.  From PRE_COMMIT on a holding has
 * at most one change.  All on the steady clock; DT_NOEND: never.
 */
int64
ShedlockRulingDeadline(const ShedlockHolding *holding, int64 committing_since)
{
	int64		latest = holding->state.deadline;
	const ShedlockChange *change = holding->last_change;

	if (committing_since != 0 && change && change->state.held &&
		change->state.deadline > committing_since)
		return change->state.deadline;
	for (; change; change = change->before)
		latest = Max(latest, change->state.deadline);
	return latest;
}

/*
 * drop_change - remove a change, which is the last one of its holding, from the list
 */
static void
drop_change(ShedlockChange **link)
{
	ShedlockChange *change = *link;

	*link = change->next;
	change->holding->last_change = change->before;
	if (change != &change->holding->first_change)
		pfree(change);
}

/*
 * ShedlockForgetChange - the last change needs no undo; raises no error (I13)
 */
void
ShedlockForgetChange(void)
{
	drop_change(&changes);
}

/*
 * ShedlockUndoChange - undo the last change; raises no error
 */
void
ShedlockUndoChange(void)
{
	changes->holding->state = changes->state;
	drop_change(&changes);
}

/*
 * ShedlockHandOverChanges - hand the changes of a subtransaction to its parent
 */
void
ShedlockHandOverChanges(SubTransactionId subid, SubTransactionId parent)
{
	ShedlockChange **link = &changes;

	while (*link && (*link)->made_in == subid)
	{
		ShedlockChange *change = *link;

		if (change->before && change->before->made_in == parent)
			drop_change(link);
		else
		{
			change->made_in = parent;
			link = &change->next;
		}
	}
}
