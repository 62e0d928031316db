/*-------------------------------------------------------------------------
 *
 * session.c
 *	  What this session owns, and what becomes of it when things end.
 *
 * A lease is owned by the session that took it, for callers without a token.
 * The row has the process and its start, which is all the proof there is to
 * keep; only a reset (DISCARD ALL, pg_advisory_unlock_all) must make the
 * session forget, since behind a pool that is where one client ends and the
 * next begins.  A session-level lock of SHEDLOCK_CLASS_SENTINEL is dropped by
 * the same statements: when it is gone, leases with older tokens are not ours,
 * and session locks are over.  Their own locks do not tell: a fence, or a new
 * lock of the same name, has the same tag and mode.
 * PREPARE TRANSACTION gives its leases away, too: the tokens that it drew are
 * remembered as ranges.
 *
 * Session locks and runs are listed here (ShedlockHolding).  While the
 * transaction that takes one is open, its advisory half is the exclusive,
 * transaction-level lock of any acquire.  PRE_COMMIT adds the session-level
 * lock in share mode, which needs no room in shared memory, since the process
 * has an entry for this lock already.  If the transaction fails after that,
 * ABORT takes it back.  A release keeps it until COMMIT, because anything
 * earlier would let others in before the released row is visible.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "shedlock.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* More ranges than this: the oldest leases are forgotten with them. */
#define PREPARED_RANGES_MAX		64

typedef struct TokenRange
{
	int64		first;
	int64		last;
} TokenRange;

static dlist_head holdings = DLIST_STATIC_INIT(holdings);

/* Leases with tokens from here on are ours; 0: none since the last reset. */
static int64 first_token = 0;

/* The token of the last of them. */
static int64 last_token = 0;

/* Tokens of leases that this transaction took; 0: none. */
static int64 xact_first_token = 0;
static int64 xact_last_token = 0;

/* Tokens of leases that were given away by PREPARE TRANSACTION, ascending. */
static TokenRange prepared[PREPARED_RANGES_MAX];
static int	prepared_count = 0;

/* How often this session was reset, as far as it matters. */
static int	resets = 0;

/* This transaction took, released, extended or fenced a session lock. */
static bool session_touched = false;

/* When the commit of this transaction began, which may wait for a standby; 0 before. */
static int64 committing_since = 0;

/*
 * sentinel_tag - the lock that a reset of this session drops
 */
static void
sentinel_tag(LOCKTAG *tag)
{
	ShedlockSetTag(tag, SHEDLOCK_CLASS_SENTINEL, (uint64) MyProcPid);
}

/*
 * sentinel_is_held - has the session not been reset since ShedlockRememberLease?
 */
static bool
sentinel_is_held(void)
{
	LOCKTAG		tag;

	sentinel_tag(&tag);
	return lock_held_by_me(&tag, ShareLock);
}

/*
 * notice_reset - from here on the session owns something that a reset ends
 */
static void
notice_reset(void)
{
	LOCKTAG		tag;

	if (sentinel_is_held())
		return;
	sentinel_tag(&tag);
	(void) LockAcquire(&tag, ShareLock, true, true);
	resets++;
	first_token = 0;
}

/*
 * ShedlockRememberLease - this session took a lease with that token
 */
void
ShedlockRememberLease(int64 token)
{
	notice_reset();

	/* The extension may have been made anew, with a new sequence. */
	if (first_token == 0 || token <= last_token)
	{
		first_token = token;
		prepared_count = 0;
	}
	if (xact_first_token == 0)
		xact_first_token = token;
	xact_last_token = token;
	last_token = token;
}

/*
 * ShedlockLeaseOfSession - may this session do without the token?
 *
 * Given that the row was written by this process.
 */
bool
ShedlockLeaseOfSession(const ShedlockRow *row)
{
	if (first_token == 0 || row->token < first_token || !sentinel_is_held())
		return false;
	for (int i = 0; i < prepared_count; i++)
	{
		if (row->token >= prepared[i].first && row->token <= prepared[i].last)
			return false;
	}
	return true;
}

/*
 * forget_prepared - the leases of this transaction belong to their tokens only
 *
 * Between the tokens of two transactions that were prepared one after the
 * other no lease of this session can lie that it still owns, unless it took
 * one: then its token starts a range of its own.
 */
static void
forget_prepared(void)
{
	if (xact_first_token == 0)
		return;
	if (prepared_count == PREPARED_RANGES_MAX)
	{
		first_token = prepared[0].last + 1;
		memmove(&prepared[0], &prepared[1],
				(PREPARED_RANGES_MAX - 1) * sizeof(TokenRange));
		prepared_count--;
	}
	prepared[prepared_count].first = xact_first_token;
	prepared[prepared_count].last = xact_last_token;
	prepared_count++;
}

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
		notice_reset();
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
		ShedlockArmDeadlines();
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
 * ShedlockReleaseStaleHoldings - let go of session locks whose rows are gone
 *
 * To be called when this transaction has taken the lock of that name, which
 * was free by its row: TRUNCATE, or DROP EXTENSION, has taken the row away from
 * under what we hold, and nobody would get the lock when the new one ends.
 */
void
ShedlockReleaseStaleHoldings(const char *name)
{
	dlist_iter	iter;

	dlist_foreach(iter, &holdings)
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, node, iter.cur);

		if (holding->released_in == InvalidSubTransactionId && !holding->is_run &&
			strcmp(holding->name, name) == 0)
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
	ShedlockArmDeadlines();
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
			(errmsg("advisory locks were dropped while lock \"%s\" was held",
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
 * ShedlockNextDeadline - when the next session lock, or run, must end
 *
 * DT_NOEND if none must.
 */
int64
ShedlockNextDeadline(bool of_runs)
{
	int64		next = DT_NOEND;
	dlist_iter	iter;

	dlist_foreach(iter, &holdings)
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, node, iter.cur);
		int64		deadline = holding->deadline;
		int64		committed;

		if (rules_in_commit(holding, &committed))
			deadline = committed;
		else
			for (ShedlockExtension *extension = holding->extension; extension;
				 extension = extension->outer)
				deadline = Max(deadline, extension->old_deadline);
		if (holding->is_run == of_runs)
			next = Min(next, deadline);
	}
	return next;
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
	return holding->upgraded && holding->resets == resets && sentinel_is_held();
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
 * Then its deadline must not end whoever has the session now.  A run is not
 * over with its advisory half.
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
	ShedlockArmDeadlines();
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
			notice_reset();
		if (LockAcquire(&holding->tag, ShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not keep lock \"%s\" for the session", holding->name)));
		holding->upgraded = true;
		holding->resets = resets;
	}
	if (extended)
	{
		committing_since = ShedlockSteadyNow();
		ShedlockArmDeadlines();
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
	xact_first_token = 0;
	xact_last_token = 0;
	session_touched = false;
	committing_since = 0;
}

/*
 * ShedlockSessionPrepared - the leases go with the prepared transaction
 */
void
ShedlockSessionPrepared(void)
{
	forget_prepared();
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
	ShedlockArmDeadlines();
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
	ShedlockArmDeadlines();
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
 * The client has been told no more than that an administrator ended it, so
 * that the log has to have the reason.
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
