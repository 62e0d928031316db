/*-------------------------------------------------------------------------
 *
 * holdings.c
 *	  The session locks and runs of this session, and what becomes of them
 *	  when things end.
 *
 * PRE_COMMIT adds the session-level lock in share mode, which needs no room in shared memory,
 * since the process has an entry for this lock already.  If the transaction fails after
 * that, it is released again.  A release keeps it until the transaction's own locks are
 * gone: anything earlier would let others in before the released row is visible (I12), or
 * before the end of what the lock guards.
 *
 * They are one list, and each acquire, release, extend and commit of one goes through it.
 * An acquire and its release take 14 microseconds of the processor with none of them, 19
 * with a hundred, and 92 with a thousand.  The server, too, goes through all locks of a
 * session at each commit, so without this list a thousand would still take some 60.
 *
 * A holding that the transaction has changed has the state before, which a rollback
 * brings back (I6); a subtransaction adds at most one.
 *
 * Which deadline rules when: An extend in an open transaction counts, and so does
 * what its rollback would bring back, so that the latest of these rules.  From
 * PRE_COMMIT on the earlier one of the new deadline and the committed one rules, unless
 * the latter had passed by then: the commit may wait for a standby without end, and
 * nobody knows whether that has it.  If a cancel has ended the wait, it rules afterwards,
 * too.  Else there is only one after the end of the transaction.
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

/* All that this session holds, or gets back if the transaction fails; the latest first. */
static ShedlockHolding *holdings = NULL;

/* The sentinel_number of the session locks that a reset would end; 0: there are none. */
static int	watched = 0;

/* This transaction acquired, released, extended or fenced a session lock. */
static bool session_touched = false;

/* When the commit of this transaction began, on the steady clock; 0 before. */
static int64 committing_since = 0;

static bool
is_held_as(const ShedlockHolding *holding, const ShedlockName *name)
{
	return holding->state.held &&
		holding->tag.locktag_field3 == name->tag.locktag_field3 &&
		strcmp(holding->name, name->str) == 0;
}

/*
 * ShedlockFindHolding - find a session lock or run of this session
 *
 * token 0: the latest of that name.  Returns NULL if there is none, or if this
 * transaction has released it.
 */
ShedlockHolding *
ShedlockFindHolding(const ShedlockName *name, int64 token)
{
	for (ShedlockHolding *holding = holdings; holding; holding = holding->next)
	{
		if (is_held_as(holding, name) && (token == 0 || holding->token == token))
			return holding;
	}
	return NULL;
}

/*
 * ends_at - when the session or run must end, as things stand
 *
 * On the steady clock; DT_NOEND: never.  From PRE_COMMIT on there is one state before at most.
 */
static int64
ends_at(const ShedlockHolding *holding)
{
	const ShedlockHoldingState *before = holding->state.before;
	int64		latest = holding->state.deadline;

	if (committing_since != 0 && before && before->held && before->deadline > committing_since)
		return Min(before->deadline, latest);
	for (; before; before = before->before)
		latest = Max(latest, before->deadline);
	return latest;
}

/*
 * arm_deadlines - call this after the ends of holdings may have changed; raises no error (I13)
 */
static void
arm_deadlines(void)
{
	int64		session = DT_NOEND;
	int64		run = DT_NOEND;

	for (const ShedlockHolding *holding = holdings; holding; holding = holding->next)
	{
		int64	   *first = holding->is_run ? &run : &session;

		*first = Min(*first, ends_at(holding));
	}
	ShedlockSetDeadlines(session, run);
}

/*
 * ShedlockOutlivedLock - the name of a session lock past its deadline, or NULL
 */
const char *
ShedlockOutlivedLock(void)
{
	int64		now = ShedlockSteadyNow();

	for (const ShedlockHolding *holding = holdings; holding; holding = holding->next)
	{
		if (!holding->is_run && ends_at(holding) <= now)
			return holding->name;
	}
	return NULL;
}

/*
 * note_change - call this before a change of a holding
 */
static void
note_change(ShedlockHolding *holding)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	ShedlockHoldingState *before;

	if (holding->state.made_in == subid)
		return;
	before = MemoryContextAlloc(TopMemoryContext, sizeof(ShedlockHoldingState));
	*before = holding->state;
	holding->state.before = before;
	holding->state.made_in = subid;
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
	memcpy(holding->name, name->str, (Size) name->len + 1);
	note_change(holding);
	holding->next = holdings;
	holdings = holding;
	holding->state.held = true;
	holding->state.deadline = deadline;
	arm_deadlines();
}

/*
 * ShedlockReleaseHolding - release it when this transaction commits
 */
void
ShedlockReleaseHolding(ShedlockHolding *holding)
{
	ShedlockTouchSession();
	note_change(holding);
	holding->state.held = false;
}

/*
 * ShedlockReleaseStaleHoldings - release session locks that have lost their row
 *
 * Call this when this transaction has acquired the lock of that name, which was
 * free by its row.  TRUNCATE or DROP EXTENSION has removed the row of what this
 * session holds, which would keep the lock busy after the end of the new one.
 */
void
ShedlockReleaseStaleHoldings(const ShedlockName *name)
{
	for (ShedlockHolding *holding = holdings; holding; holding = holding->next)
	{
		if (!holding->is_run && is_held_as(holding, name))
			ShedlockReleaseHolding(holding);
	}
}

/*
 * ShedlockExtendHolding - set its deadline; from when on it counts is said above
 *
 * Raises an error if there can be no timer.
 */
void
ShedlockExtendHolding(ShedlockHolding *holding, TimestampTz until)
{
	int64		deadline = ShedlockDeadlineAt(until);

	ShedlockTouchSession();
	note_change(holding);
	holding->state.deadline = deadline;
	arm_deadlines();
}

/*
 * was_reset - has DISCARD ALL or the like dropped its session-level lock?
 */
static bool
was_reset(const ShedlockHolding *holding)
{
	return holding->upgraded && ShedlockWasReset(holding->sentinel_number);
}

/*
 * ShedlockHolds - does this session still hold that session lock or run?
 */
bool
ShedlockHolds(const ShedlockName *name, int64 token)
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
	int			sentinel_number;

	if (!holding->is_run || !was_reset(holding))
		return;

	/* First: if it fails, end_holding() must find the lock gone. */
	sentinel_number = ShedlockWatchReset();
	while (LockAcquire(&holding->tag, ShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		ShedlockNap(1);
	holding->sentinel_number = sentinel_number;
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
end_holding(ShedlockHolding *holding)
{
	ShedlockHolding **link = &holdings;

	while (*link != holding)
		link = &(*link)->next;
	*link = holding->next;
	if (holding->upgraded && !was_reset(holding))
		LockRelease(&holding->tag, ShareLock, true);
	pfree(holding);
}

/*
 * ShedlockForgetRun - a run is over, whether its end could be recorded or not
 *
 * token 0: it has not begun.  What this transaction has changed ends with it.
 */
void
ShedlockForgetRun(const ShedlockName *name, int64 token)
{
	ShedlockHolding *holding = token != 0 ? ShedlockFindHolding(name, token) : NULL;

	if (holding && holding->state.before == NULL)
		end_holding(holding);
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
		if (holding->upgraded || !holding->state.held)
			continue;
		holding->sentinel_number = ShedlockWatchReset();
		if (LockAcquire(&holding->tag, ShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not keep lock \"%s\" for the session", holding->name)));
		holding->upgraded = true;
		if (watched == 0 && !holding->is_run)
			watched = holding->sentinel_number;
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
 *
 * A session lock that was reset ends: its deadline must not end the session of the
 * pool's next client.
 */
static void
end_transaction(void)
{
	bool		changed = session_touched;

	session_touched = false;
	committing_since = 0;
	if (watched != 0 && ShedlockWasReset(watched))
	{
		changed = true;
		watched = 0;
		for (ShedlockHolding *holding = holdings, *next; holding; holding = next)
		{
			next = holding->next;
			if (holding->is_run)
				continue;
			if (was_reset(holding))
				end_holding(holding);
			else
				watched = holding->sentinel_number;
		}
	}
	if (changed)
		arm_deadlines();
}

/*
 * ShedlockSessionCommit - apply what the transaction did to its holdings
 *
 * is_safe: the synchronous standby has the transaction, if there is to be one.  The rows are
 * visible now (I12), and the transaction's own locks are gone.  Nothing here can fail (I13).
 */
void
ShedlockSessionCommit(bool is_safe)
{
	int64		now = committing_since != 0 ? ShedlockSteadyNow() : 0;

	if (!session_touched && watched == 0)
		return;
	for (ShedlockHolding *holding = holdings, *next; holding; holding = next)
	{
		int64		ruling = ends_at(holding);

		next = holding->next;
		if (holding->state.before == NULL)
			continue;
		pfree(holding->state.before);
		holding->state.before = NULL;
		holding->state.made_in = InvalidSubTransactionId;
		if (!holding->state.held)
			end_holding(holding);
		else if (ruling <= now || !is_safe)
			holding->state.deadline = ruling;	/* an extend came too late */
	}
	end_transaction();
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

	if (!session_touched && (watched == 0 || !whole))
		return;
	for (ShedlockHolding *holding = holdings, *next; holding; holding = next)
	{
		ShedlockHoldingState *before;

		next = holding->next;
		while ((before = holding->state.before) != NULL &&
			   (whole || holding->state.made_in == subid))
		{
			holding->state = *before;
			pfree(before);
		}
		if (!holding->state.held && holding->state.before == NULL)
			end_holding(holding);
	}
	if (whole)
		end_transaction();
	else
		arm_deadlines();
}

/*
 * ShedlockHandOverChanges - hand the changes of a subtransaction to its parent
 */
void
ShedlockHandOverChanges(SubTransactionId subid, SubTransactionId parent)
{
	if (!session_touched)
		return;
	for (ShedlockHolding *holding = holdings; holding; holding = holding->next)
	{
		ShedlockHoldingState *state = &holding->state;
		ShedlockHoldingState *before = state->before;

		if (state->made_in != subid)
			continue;
		state->made_in = parent;
		if (before->made_in == parent)
		{
			state->before = before->before;
			pfree(before);
		}
	}
}

/*
 * ShedlockSessionExit - the process ends and its locks are gone: wake waiters
 *
 * For on_shmem_exit(): the process still has its place in shared memory.
 */
void
ShedlockSessionExit(int code, Datum arg)
{

	for (const ShedlockHolding *holding = holdings; holding; holding = holding->next)
		ShedlockWake(&holding->tag);
}
