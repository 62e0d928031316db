/*-------------------------------------------------------------------------
 *
 * changes.c
 *	  What open (sub)transactions have made of a session lock or run.
 *
 * The state of a holding is the top of a stack: below it are the states that the
 * rollbacks of the open subtransactions would bring back (I6), down to the one
 * that is committed.
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

/*
 * ShedlockRulingDeadline - when the session or run must end, as things stand
 *
 * committing_since: when PRE_COMMIT was, 0 before that.  All on the steady clock;
 * DT_NOEND: never.
 */
int64
ShedlockRulingDeadline(const ShedlockHoldingState *state, int64 committing_since)
{
	int64		latest = state->deadline;

	while (state->before)
	{
		state = state->before;
		latest = Max(latest, state->deadline);
	}
	if (committing_since != 0 && state->deadline > committing_since &&
		state->set_in == InvalidSubTransactionId)
		return state->deadline;
	return latest;
}

/*
 * ShedlockChangeState - call this before a change of the state
 */
void
ShedlockChangeState(ShedlockHoldingState *state)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	ShedlockHoldingState *before;

	if (state->set_in == subid)
		return;
	before = MemoryContextAlloc(TopMemoryContext, sizeof(ShedlockHoldingState));
	*before = *state;
	state->before = before;
	state->set_in = subid;
}

/*
 * forget_before - the last change needs no undo
 */
static void
forget_before(ShedlockHoldingState *state)
{
	ShedlockHoldingState *before = state->before;

	state->before = before->before;
	pfree(before);
}

/*
 * ShedlockForgetChanges - no change needs undo; raises no error (I13)
 */
void
ShedlockForgetChanges(ShedlockHoldingState *state)
{
	while (state->before)
		forget_before(state);
	state->set_in = InvalidSubTransactionId;
}

/*
 * ShedlockHandOverChange - hand the change of a subtransaction to its parent
 */
void
ShedlockHandOverChange(ShedlockHoldingState *state, SubTransactionId subid,
					   SubTransactionId parent)
{
	if (state->set_in != subid)
		return;
	state->set_in = parent;
	if (state->before && state->before->set_in == parent)
		forget_before(state);
}

/*
 * ShedlockUndoChanges - undo the change of a subtransaction; raises no error
 *
 * subid: invalid for the changes of the whole transaction.  Returns false if
 * nothing is left, because that was when the lock was acquired.
 */
bool
ShedlockUndoChanges(ShedlockHoldingState *state, SubTransactionId subid)
{
	while (state->set_in != InvalidSubTransactionId &&
		   (subid == InvalidSubTransactionId || state->set_in == subid))
	{
		ShedlockHoldingState *before = state->before;

		if (before == NULL)
			return false;
		*state = *before;
		pfree(before);
	}
	return true;
}
