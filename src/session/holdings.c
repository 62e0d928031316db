/*-------------------------------------------------------------------------
 *
 * holdings.c
 *	  The session locks and runs of this session, and what becomes of them
 *	  when things end.
 *
 * While the transaction that acquires one (ShedlockHolding) is open, its
 * advisory half is the exclusive, transaction-level lock of any acquire.
 * PRE_COMMIT adds the session-level lock in share mode, which needs no room in
 * shared memory, since the process has an entry for this lock already.  If the
 * transaction fails after that, ABORT releases it.  A release keeps it until
 * COMMIT, because anything earlier would let others in before the released row
 * is visible (I12).  After a reset of the session (lease.c) it is gone: then a
 * session lock is over, and a run acquires its lock again.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "session/session.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* The latest first. */
static ShedlockHolding *holdings = NULL;

/* This transaction acquired, released, extended or fenced a session lock. */
static bool session_touched = false;

/* When the commit of this transaction began, on the steady clock; 0 before. */
static int64 committing_since = 0;

/*
 * ShedlockFindHolding - find a session lock or run of this session
 *
 * token 0: the latest of that name.  Returns NULL if there is none, or if this
 * transaction has released it.
 */
ShedlockHolding *
ShedlockFindHolding(const char *name, int64 token)
{
	for (ShedlockHolding *holding = holdings; holding; holding = holding->next)
	{
		if (!holding->state.released &&
			(token == 0 || holding->token == token) &&
			strcmp(holding->name, name) == 0)
			return holding;
	}
	return NULL;
}

/*
 * ruling_deadline - when the session or run must end, as things stand
 */
static int64
ruling_deadline(const ShedlockHolding *holding)
{
	return ShedlockRulingDeadline(&holding->state, committing_since);
}

/*
 * arm_deadlines - call this whenever a deadline that rules may have changed
 */
static void
arm_deadlines(void)
{
	int64		session = DT_NOEND;
	int64		run = DT_NOEND;

	for (ShedlockHolding *holding = holdings; holding; holding = holding->next)
	{
		int64	   *next = holding->is_run ? &run : &session;

		*next = Min(*next, ruling_deadline(holding));
	}
	ShedlockSetDeadlines(session, run);
}

/*
 * ShedlockOutlivedLock - the name of a session lock past its deadline, or NULL
 */
const char *
ShedlockOutlivedLock(void)
{
	for (ShedlockHolding *holding = holdings; holding; holding = holding->next)
	{
		if (!holding->is_run && ShedlockSteadyNow() >= ruling_deadline(holding))
			return holding->name;
	}
	return NULL;
}

/*
 * ShedlockTouchSession - this transaction must not be prepared
 */
void
ShedlockTouchSession(void)
{
	ShedlockUseSession();
	session_touched = true;
}

/*
 * ShedlockAddHolding - this transaction acquires a session lock or a run
 *
 * until: its lock_at_most_for, DT_NOEND for none.  Raises an error if there can
 * be no timer for that.
 */
void
ShedlockAddHolding(const ShedlockName *name, int64 token, bool is_run,
				   TimestampTz until)
{
	int64		deadline = ShedlockDeadlineAt(until);
	ShedlockHolding *holding;

	ShedlockTouchSession();
	holding = MemoryContextAllocZero(TopMemoryContext,
									 offsetof(ShedlockHolding, name) + (Size) name->len + 1);
	holding->tag = name->tag;
	holding->token = token;
	holding->is_run = is_run;
	holding->state.set_in = GetCurrentSubTransactionId();
	holding->state.deadline = deadline;
	memcpy(holding->name, name->str, (Size) name->len + 1);
	holding->next = holdings;
	holdings = holding;

	/* This looks at all of them: not for thousands that have no limit. */
	if (deadline != DT_NOEND)
		arm_deadlines();
}

/*
 * ShedlockReleaseHolding - release it when this transaction commits
 */
void
ShedlockReleaseHolding(ShedlockHolding *holding)
{
	ShedlockTouchSession();
	ShedlockChangeState(&holding->state);
	holding->state.released = true;
}

/*
 * ShedlockReleaseStaleHoldings - release session locks that have lost their row
 *
 * Call this when this transaction has acquired the lock of that name, which was
 * free by its row.  TRUNCATE or DROP EXTENSION has removed the row of what this
 * session holds, which would keep the lock busy after the end of the new one.
 */
void
ShedlockReleaseStaleHoldings(const char *name)
{
	for (ShedlockHolding *holding = holdings; holding; holding = holding->next)
	{
		if (!holding->state.released && !holding->is_run &&
			strcmp(holding->name, name) == 0)
			ShedlockReleaseHolding(holding);
	}
}

/*
 * ShedlockExtendHolding - set its deadline; changes.c says from when on it counts
 *
 * Raises an error if there can be no timer.
 */
void
ShedlockExtendHolding(ShedlockHolding *holding, TimestampTz until)
{
	int64		deadline = ShedlockDeadlineAt(until);

	ShedlockTouchSession();
	ShedlockChangeState(&holding->state);
	holding->state.deadline = deadline;
	arm_deadlines();
}

/*
 * was_reset - has DISCARD ALL or the like dropped its session-level lock?
 */
static bool
was_reset(const ShedlockHolding *holding)
{
	return holding->upgraded && ShedlockWasReset(holding->resets);
}

/*
 * ShedlockHolds - does this session still hold that session lock or run?
 */
bool
ShedlockHolds(const char *name, int64 token)
{
	ShedlockHolding *holding = ShedlockFindHolding(name, token);

	return holding && (holding->is_run || !was_reset(holding));
}

/*
 * ShedlockRetakeHolding - acquire the advisory half of a run again if a reset has
 * dropped it
 *
 * Acquirers that find it free meanwhile release it when they see that this
 * process lives.
 */
void
ShedlockRetakeHolding(ShedlockHolding *holding)
{
	int			resets;

	if (!holding->is_run || !was_reset(holding))
		return;

	/* First: if it fails, end_holding() must find the lock gone. */
	resets = ShedlockWatchReset();
	while (LockAcquire(&holding->tag, ShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		ShedlockNap(1);
	holding->resets = resets;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("advisory locks were dropped while lock \"%s\" was held",
					holding->name),
			 errdetail("DISCARD ALL and pg_advisory_unlock_all() do this.  The row kept the lock meanwhile, and the advisory lock has been acquired again.")));
}

/*
 * end_holding - release its session-level lock, unless a reset did, and forget it
 */
static void
end_holding(ShedlockHolding **link)
{
	ShedlockHolding *holding = *link;

	if (holding->upgraded && !was_reset(holding))
		LockRelease(&holding->tag, ShareLock, true);
	ShedlockForgetChanges(&holding->state);
	*link = holding->next;
	pfree(holding);
}

/*
 * ShedlockForgetRun - a run is over, whether its end could be recorded or not
 */
void
ShedlockForgetRun(const char *name, int64 token)
{
	ShedlockHolding **link = &holdings;

	while (*link && ((*link)->token != token || strcmp((*link)->name, name) != 0))
		link = &(*link)->next;
	if (*link)
		end_holding(link);
	arm_deadlines();
}

/*
 * ShedlockSessionPreCommit - add the session-level locks
 */
void
ShedlockSessionPreCommit(void)
{
	if (!session_touched)
		return;
	for (ShedlockHolding *holding = holdings; holding; holding = holding->next)
	{
		if (holding->upgraded || holding->state.released)
			continue;
		holding->resets = ShedlockWatchReset();
		if (LockAcquire(&holding->tag, ShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not keep lock \"%s\" for the session", holding->name)));
		holding->upgraded = true;
	}
	committing_since = ShedlockSteadyNow();
	arm_deadlines();
}

/*
 * ShedlockSessionPrePrepare - a session lock cannot outlive its session (I8)
 */
void
ShedlockSessionPrePrepare(void)
{
	if (session_touched)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has acquired, released, extended or asserted a session lock"),
				 errhint("Use a lease instead; see shedlock_acquire_token().")));
}

/*
 * end_transaction - what commit and rollback have in common
 */
static void
end_transaction(void)
{
	session_touched = false;
	committing_since = 0;
	arm_deadlines();
}

/*
 * ShedlockSessionCommit - apply what the transaction did to its holdings
 *
 * The rows are visible now, and the transaction's own locks are still held (I12).
 * Nothing here can fail (I13).  A session lock that was reset ends: its deadline
 * must not end the session of the pool's next client.
 */
void
ShedlockSessionCommit(void)
{
	int64		now = committing_since != 0 ? ShedlockSteadyNow() : 0;
	ShedlockHolding **link = &holdings;

	while (*link)
	{
		ShedlockHolding *holding = *link;
		ShedlockHoldingState *state = &holding->state;

		if (state->released || (!holding->is_run && was_reset(holding)))
		{
			end_holding(link);
			continue;
		}

		/* An extend that was not committed in time came too late. */
		if (ruling_deadline(holding) <= now)
			state->deadline = ruling_deadline(holding);
		ShedlockForgetChanges(state);
		link = &holding->next;
	}
	end_transaction();
}

/*
 * ShedlockSessionSubCommit - hand the changes of a subtransaction to its parent
 */
void
ShedlockSessionSubCommit(SubTransactionId subid, SubTransactionId parent)
{
	if (!session_touched)
		return;
	for (ShedlockHolding *holding = holdings; holding; holding = holding->next)
		ShedlockHandOverChange(&holding->state, subid, parent);
}

/*
 * ShedlockSessionAbort - undo what a subtransaction did to its holdings
 *
 * subid: invalid for the whole transaction.  Nothing here can fail.
 */
void
ShedlockSessionAbort(SubTransactionId subid)
{
	bool		whole = subid == InvalidSubTransactionId;
	ShedlockHolding **link = &holdings;

	/* Thousands of locks must not slow down each EXCEPTION of a function. */
	if (!whole && !session_touched)
		return;
	while (*link)
	{
		ShedlockHolding *holding = *link;

		if (!ShedlockUndoChanges(&holding->state, subid) ||
			(whole && !holding->is_run && was_reset(holding)))
			end_holding(link);
		else
			link = &holding->next;
	}
	if (whole)
		end_transaction();
	else
		arm_deadlines();
}

/*
 * ShedlockSessionExit - the process ends and its locks are gone: wake waiters
 */
void
ShedlockSessionExit(void)
{
	for (ShedlockHolding *holding = holdings; holding; holding = holding->next)
		ShedlockWake(&holding->tag);
}
