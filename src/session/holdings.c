/*-------------------------------------------------------------------------
 *
 * holdings.c
 *	  The session locks and runs of this session, and what becomes of them
 *	  when things end.
 *
 * While the transaction that takes one (ShedlockHolding) is open, its advisory
 * half is the exclusive, transaction-level lock of any acquire.  PRE_COMMIT
 * adds the session-level lock in share mode, which needs no room in shared
 * memory, since the process has an entry for this lock already.  If the
 * transaction fails after that, ABORT takes it back.  A release keeps it until
 * COMMIT, because anything earlier would let others in before the released row
 * is visible.  A reset of the session (lease.c) has dropped it: then a session
 * lock is over, and a run takes it again.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "lib/ilist.h"
#include "session/session.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

static dlist_head holdings = DLIST_STATIC_INIT(holdings);

/* This transaction took, released, extended or fenced a session lock. */
static bool session_touched = false;

/* When the commit of this transaction began, which may wait for a standby; 0 before. */
static int64 committing_since = 0;

/*
 * ShedlockFindHolding - the session lock or run of that name that we hold
 *
 * token 0: whatever its token is.  NULL if there is none, or if this
 * transaction has released it.
 */
ShedlockHolding *
ShedlockFindHolding(const char *name, int64 token)
{
	dlist_iter	iter;

	dlist_reverse_foreach(iter, &holdings)
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, node, iter.cur);

		if (holding->released_in == InvalidSubTransactionId &&
			(token == 0 || holding->token == token) &&
			strcmp(holding->name, name) == 0)
			return holding;
	}
	return NULL;
}

/*
 * rules_in_commit - does the deadline that is committed rule while this
 * transaction commits?
 *
 * committed: that deadline.  One that has passed before was overruled already.
 */
static bool
rules_in_commit(const ShedlockHolding *holding, int64 *committed)
{
	ShedlockExtension *extension = holding->extension;

	if (committing_since == 0 || extension == NULL)
		return false;
	while (extension->outer)
		extension = extension->outer;
	*committed = extension->old_deadline;
	return *committed > committing_since && *committed < holding->deadline;
}

/*
 * ruling_deadline - when it must end, as things stand
 */
static int64
ruling_deadline(const ShedlockHolding *holding)
{
	int64		deadline = holding->deadline;
	int64		committed;

	if (rules_in_commit(holding, &committed))
		return committed;
	for (ShedlockExtension *extension = holding->extension; extension;
		 extension = extension->outer)
		deadline = Max(deadline, extension->old_deadline);
	return deadline;
}

/*
 * next_deadline - when the next session lock, or run, must end
 *
 * DT_NOEND if none must.
 */
static int64
next_deadline(bool of_runs)
{
	int64		next = DT_NOEND;
	dlist_iter	iter;

	dlist_foreach(iter, &holdings)
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, node, iter.cur);

		if (holding->is_run == of_runs)
			next = Min(next, ruling_deadline(holding));
	}
	return next;
}

/*
 * explain_end - an error context callback: why this session is ended
 */
static void
explain_end(void *arg)
{
	dlist_iter	iter;

	if (geterrcode() != ERRCODE_ADMIN_SHUTDOWN)
		return;
	dlist_foreach(iter, &holdings)
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, node, iter.cur);

		if (!holding->is_run && ShedlockSteadyNow() >= ruling_deadline(holding))
			errcontext("session lock \"%s\" has outlived its lock_at_most_for",
					   holding->name);
	}
}

/*
 * push_explain_end - have the client read why its session is ended
 *
 * The callback is below those of all that runs, and stays there between
 * statements.  An error outside of them clears the stack: to be called again in
 * its rollback.  A second error in a failed block clears it once more: it is gone
 * then, also after the block's ROLLBACK, until deadlines are armed anew.
 */
static void
push_explain_end(void)
{
	static ErrorContextCallback callback = {.callback = explain_end};
	ErrorContextCallback **link = &error_context_stack;

	while (*link && *link != &callback)
		link = &(*link)->previous;
	*link = &callback;
}

/*
 * arm_deadlines - to be called whenever a deadline that rules may have changed
 */
static void
arm_deadlines(void)
{
	int64		session = next_deadline(false);

	ShedlockSetDeadlines(session, next_deadline(true));
	if (session != DT_NOEND)
		push_explain_end();
}

/*
 * ShedlockAddHolding - this transaction takes a session lock or a run
 *
 * until: its lock_at_most_for, DT_NOEND for none.
 */
ShedlockHolding *
ShedlockAddHolding(const ShedlockName *name, int64 token, bool is_run,
				   TimestampTz until)
{
	int64		deadline = ShedlockDeadlineAt(until);
	ShedlockHolding *holding;

	ShedlockTouchSession();
	if (!is_run)
		(void) ShedlockWatchReset();
	holding = MemoryContextAllocZero(TopMemoryContext,
									 offsetof(ShedlockHolding, name) + (Size) name->len + 1);
	holding->tag = name->tag;
	holding->token = token;
	holding->is_run = is_run;
	holding->acquired_in = GetCurrentSubTransactionId();
	holding->deadline = deadline;
	memcpy(holding->name, name->str, (Size) name->len + 1);
	dlist_push_tail(&holdings, &holding->node);

	/* This looks at all of them: not for thousands that have no limit. */
	if (deadline != DT_NOEND)
		arm_deadlines();
	return holding;
}

/*
 * ShedlockReleaseHolding - let go of it when this transaction commits
 */
void
ShedlockReleaseHolding(ShedlockHolding *holding)
{
	ShedlockTouchSession();
	holding->released_in = GetCurrentSubTransactionId();
}

/*
 * ShedlockReleaseStaleHoldings - let go of what has no row any more
 *
 * To be called when this transaction has taken the lock of that name, which
 * was free by its row: TRUNCATE, or DROP EXTENSION, has taken the row away from
 * under what we hold, and nobody would get the lock when the new one ends.  So
 * may a run that could not be ended.
 */
void
ShedlockReleaseStaleHoldings(const char *name)
{
	dlist_iter	iter;

	dlist_foreach(iter, &holdings)
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, node, iter.cur);

		if (holding->released_in == InvalidSubTransactionId &&
			strcmp(holding->name, name) == 0 &&
			!(holding->is_run && ShedlockRunIsActive(name, holding->token)))
			ShedlockReleaseHolding(holding);
	}
}

/*
 * ShedlockExtendHolding - give it another deadline when this transaction commits
 *
 * Until the commit begins the latest of all rules.  From then on the one that
 * is committed does, if it lies ahead: the commit can wait for a standby for
 * ever, and nobody but this process would know of the new one.  Each
 * subtransaction remembers what it changed.
 */
void
ShedlockExtendHolding(ShedlockHolding *holding, TimestampTz until)
{
	int64		deadline = ShedlockDeadlineAt(until);
	SubTransactionId subid = GetCurrentSubTransactionId();
	ShedlockExtension *extension = holding->extension;

	ShedlockTouchSession();
	if (extension == NULL || extension->subid != subid)
	{
		extension = MemoryContextAlloc(TopMemoryContext, sizeof(ShedlockExtension));
		extension->subid = subid;
		extension->old_deadline = holding->deadline;
		extension->outer = holding->extension;
		holding->extension = extension;
	}
	holding->deadline = deadline;
	arm_deadlines();
}

/*
 * forget_extension - the last change of the deadline needs no undo any more
 */
static void
forget_extension(ShedlockHolding *holding)
{
	ShedlockExtension *extension = holding->extension;

	holding->extension = extension->outer;
	pfree(extension);
}

/*
 * ShedlockRetakeHolding - take the advisory half of a run again if it was lost
 *
 * Acquirers who find it free meanwhile let go of it again when they see that
 * this process lives.
 */
void
ShedlockRetakeHolding(ShedlockHolding *holding)
{
	if (lock_held_by_me(&holding->tag, ShareLock))
		return;
	while (LockAcquire(&holding->tag, ShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		ShedlockNap(1);
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("advisory locks were dropped while lock \"%s\" was held",
					holding->name),
			 errdetail("DISCARD ALL and pg_advisory_unlock_all() do this; the lock was held on by its row and has its advisory half again.")));
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
 * drop_holding - forget a session lock or run
 */
static void
drop_holding(ShedlockHolding *holding)
{
	while (holding->extension)
		forget_extension(holding);
	dlist_delete(&holding->node);
	pfree(holding);
}

/*
 * has_session_lock - is its session-level lock there, or has a reset dropped it?
 *
 * A run takes it again after a reset.
 */
static bool
has_session_lock(const ShedlockHolding *holding)
{
	if (holding->is_run)
		return holding->upgraded && lock_held_by_me(&holding->tag, ShareLock);
	return holding->upgraded && !ShedlockWasReset(holding->resets);
}

/*
 * unlock_session - give back the session-level lock, unless a reset did
 */
static void
unlock_session(ShedlockHolding *holding)
{
	if (has_session_lock(holding))
		LockRelease(&holding->tag, ShareLock, true);
	holding->upgraded = false;
}

/*
 * was_reset - has DISCARD ALL or its like ended this session lock?
 *
 * Then its deadline must not end whoever has the session now, from the end of
 * this transaction on.  A run is not over with its advisory half.
 */
static bool
was_reset(const ShedlockHolding *holding)
{
	return holding->upgraded && !holding->is_run && !has_session_lock(holding);
}

/*
 * ShedlockHoldsSession - does this session hold the session lock with that token?
 */
bool
ShedlockHoldsSession(const char *name, int64 token)
{
	ShedlockHolding *holding = ShedlockFindHolding(name, token);

	return holding && !was_reset(holding);
}

/*
 * ShedlockDropHolding - let go of a run whose end could not be recorded
 */
void
ShedlockDropHolding(ShedlockHolding *holding)
{
	unlock_session(holding);
	drop_holding(holding);
	arm_deadlines();
}

/*
 * ShedlockSessionPreCommit - from the transaction's lock to the session's
 */
void
ShedlockSessionPreCommit(void)
{
	bool		extended = false;
	dlist_iter	iter;

	dlist_foreach(iter, &holdings)
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, node, iter.cur);

		if (holding->extension)
			extended = true;
		if (holding->acquired_in == InvalidSubTransactionId ||
			holding->released_in != InvalidSubTransactionId)
			continue;
		if (!holding->is_run)
			holding->resets = ShedlockWatchReset();
		if (LockAcquire(&holding->tag, ShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not keep lock \"%s\" for the session", holding->name)));
		holding->upgraded = true;
	}
	if (extended)
	{
		committing_since = ShedlockSteadyNow();
		arm_deadlines();
	}
}

/*
 * ShedlockSessionPrePrepare - a session's lock cannot outlive it
 */
void
ShedlockSessionPrePrepare(void)
{
	if (session_touched)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has taken, released, extended or asserted a session lock"),
				 errhint("Use a lease, see shedlock_acquire_token().")));
}

/*
 * end_of_transaction - common to all ways out
 */
static void
end_of_transaction(void)
{
	session_touched = false;
	committing_since = 0;
}

/*
 * ShedlockSessionPrepared - nothing of the session's was in it
 */
void
ShedlockSessionPrepared(void)
{
	end_of_transaction();
}

/*
 * ShedlockSessionCommit - make it so
 *
 * The rows are visible now and the transaction's own locks are still held.
 * Nothing here may raise an error.
 */
void
ShedlockSessionCommit(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &holdings)
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, node, iter.cur);
		int64		committed;

		if (holding->released_in != InvalidSubTransactionId || was_reset(holding))
		{
			unlock_session(holding);
			drop_holding(holding);
			continue;
		}
		holding->acquired_in = InvalidSubTransactionId;

		/* An extend that was not committed in time came too late. */
		if (rules_in_commit(holding, &committed) && committed <= ShedlockSteadyNow())
			holding->deadline = committed;
		while (holding->extension)
			forget_extension(holding);
	}
	end_of_transaction();
	arm_deadlines();
}

/*
 * undo - take back what a subtransaction did, or, with an invalid ID, what the
 * whole transaction did
 */
static void
undo(SubTransactionId subid)
{
#define DONE_IN(field) \
	((field) != InvalidSubTransactionId && \
	 (subid == InvalidSubTransactionId || (field) == subid))
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &holdings)
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, node, iter.cur);

		if (DONE_IN(holding->acquired_in) ||
			(subid == InvalidSubTransactionId && was_reset(holding)))
		{
			unlock_session(holding);
			drop_holding(holding);
			continue;
		}
		if (DONE_IN(holding->released_in))
			holding->released_in = InvalidSubTransactionId;
		while (holding->extension && DONE_IN(holding->extension->subid))
		{
			holding->deadline = holding->extension->old_deadline;
			forget_extension(holding);
		}
	}
	arm_deadlines();
#undef DONE_IN
}

/*
 * ShedlockSessionAbort - as if nothing had been
 */
void
ShedlockSessionAbort(void)
{
	undo(InvalidSubTransactionId);
	end_of_transaction();
}

/*
 * ShedlockSessionSubCommit - hand everything to the parent
 */
void
ShedlockSessionSubCommit(SubTransactionId subid, SubTransactionId parent)
{
	dlist_iter	iter;

	dlist_foreach(iter, &holdings)
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, node, iter.cur);

		if (holding->acquired_in == subid)
			holding->acquired_in = parent;
		if (holding->released_in == subid)
			holding->released_in = parent;
		if (holding->extension && holding->extension->subid == subid)
		{
			holding->extension->subid = parent;
			if (holding->extension->outer &&
				holding->extension->outer->subid == parent)
				forget_extension(holding);
		}
	}
}

/*
 * ShedlockSessionSubAbort - undo what that subtransaction did
 */
void
ShedlockSessionSubAbort(SubTransactionId subid)
{
	undo(subid);
}

/*
 * ShedlockSessionExit - the process ends and its locks are gone: wake waiters
 *
 * The FATAL error need not have had the reason, see push_explain_end(), so
 * that the log has to.
 */
void
ShedlockSessionExit(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &holdings)
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, node, iter.cur);

		ShedlockWake(&holding->tag);
		if (!holding->is_run && ShedlockSteadyNow() >= holding->deadline)
			ereport(LOG,
					(errmsg("session ended by lock_at_most_for of lock \"%s\"",
							holding->name)));
	}
}
