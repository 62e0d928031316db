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
 * transaction fails after that, it is released again.  A release keeps it until the
 * transaction's own locks are gone: anything earlier would let others in before the
 * released row is visible (I12), or before the end of what the lock guards.  After a
 * reset of the session (lease.c) it is gone: then a session lock is over, and a run
 * acquires its lock again.
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

/* Those that are held, by the low halves of their keys; the latest of a name first. */
static dlist_head first_buckets[16];
static dlist_head *buckets = first_buckets;
static uint32 bucket_count = lengthof(first_buckets);	/* a power of two */

static uint32 holding_count = 0;

static int	compare_ends(const pairingheap_node *a, const pairingheap_node *b, void *arg);

/* Session locks and runs that have a deadline, the next one first. */
static pairingheap session_queue = {.ph_compare = compare_ends};
static pairingheap run_queue = {.ph_compare = compare_ends};

/* The sentinel_number of the session locks that a reset would end; 0: there are none. */
static int	watched = 0;

/* This transaction acquired, released, extended or fenced a session lock. */
static bool session_touched = false;

/* When the commit of this transaction began, on the steady clock; 0 before. */
static int64 committing_since = 0;

/*
 * bucket_of - the bucket of all names with that lock tag
 */
static dlist_head *
bucket_of(const LOCKTAG *tag)
{
	return &buckets[tag->locktag_field3 & (bucket_count - 1)];
}

/*
 * make_room - have a bucket for each holding, and for one more
 */
static void
make_room(void)
{
	dlist_head *old = buckets;
	uint32		old_count = bucket_count;

	if (holding_count < bucket_count)
		return;
	buckets = MemoryContextAllocZero(TopMemoryContext, 2 * old_count * sizeof(dlist_head));
	bucket_count = 2 * old_count;
	for (uint32 i = 0; i < old_count; i++)
	{
		dlist_mutable_iter iter;

		dlist_foreach_modify(iter, &old[i])
		{
			ShedlockHolding *holding = dlist_container(ShedlockHolding, in_bucket, iter.cur);

			dlist_delete(iter.cur);
			dlist_push_tail(bucket_of(&holding->tag), iter.cur);
		}
	}
	if (old != first_buckets)
		pfree(old);
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
	dlist_iter	iter;

	dlist_foreach(iter, bucket_of(&name->tag))
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, in_bucket, iter.cur);

		if ((token == 0 || holding->token == token) &&
			strcmp(holding->name, name->str) == 0)
			return holding;
	}
	return NULL;
}

/*
 * compare_ends - the order of a queue; pairingheap.c has the largest first
 */
static int
compare_ends(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		a_ends_at = pairingheap_const_container(ShedlockHolding, in_queue, a)->ends_at;
	int64		b_ends_at = pairingheap_const_container(ShedlockHolding, in_queue, b)->ends_at;

	return (b_ends_at > a_ends_at) - (b_ends_at < a_ends_at);
}

/*
 * set_end - set ends_at, and its place in the queue; raises no error (I13)
 */
static void
set_end(ShedlockHolding *holding, int64 ends_at)
{
	pairingheap *queue = holding->is_run ? &run_queue : &session_queue;

	if (ends_at == holding->ends_at)
		return;
	if (holding->ends_at != DT_NOEND)
		pairingheap_remove(queue, &holding->in_queue);
	holding->ends_at = ends_at;
	if (ends_at != DT_NOEND)
		pairingheap_add(queue, &holding->in_queue);
}

/*
 * update_end - call this when the deadline that rules may have changed
 */
static void
update_end(ShedlockHolding *holding)
{
	set_end(holding, ShedlockRulingDeadline(holding, committing_since));
}

/*
 * next_end - what ends first; NULL if nothing in the queue does
 */
static ShedlockHolding *
next_end(pairingheap *queue)
{
	return pairingheap_is_empty(queue) ? NULL :
		pairingheap_container(ShedlockHolding, in_queue, pairingheap_first(queue));
}

/*
 * arm_deadlines - call this after the ends of holdings have changed
 */
static void
arm_deadlines(void)
{
	const ShedlockHolding *session = next_end(&session_queue);
	const ShedlockHolding *run = next_end(&run_queue);

	ShedlockSetDeadlines(session ? session->ends_at : DT_NOEND, run ? run->ends_at : DT_NOEND);
}

/*
 * ShedlockOutlivedLock - the name of a session lock past its deadline, or NULL
 */
const char *
ShedlockOutlivedLock(void)
{
	const ShedlockHolding *session = next_end(&session_queue);

	return session && ShedlockSteadyNow() >= session->ends_at ? session->name : NULL;
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
	make_room();
	holding = MemoryContextAllocZero(TopMemoryContext,
									 offsetof(ShedlockHolding, name) + (Size) name->len + 1);
	holding->ends_at = DT_NOEND;
	holding->tag = name->tag;
	holding->token = token;
	holding->is_run = is_run;
	memcpy(holding->name, name->str, (Size) name->len + 1);
	holding_count++;

	ShedlockNoteChange(holding);
	holding->state.held = true;
	dlist_push_head(bucket_of(&holding->tag), &holding->in_bucket);
	ShedlockSetDeadline(holding, deadline);
	update_end(holding);
	arm_deadlines();
}

/*
 * ShedlockReleaseHolding - release it when this transaction commits
 */
void
ShedlockReleaseHolding(ShedlockHolding *holding)
{
	ShedlockTouchSession();
	ShedlockNoteChange(holding);
	holding->state.held = false;
	dlist_delete(&holding->in_bucket);
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
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, bucket_of(&name->tag))
	{
		ShedlockHolding *holding = dlist_container(ShedlockHolding, in_bucket, iter.cur);

		if (!holding->is_run && strcmp(holding->name, name->str) == 0)
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
	ShedlockNoteChange(holding);
	ShedlockSetDeadline(holding, deadline);
	update_end(holding);
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
	if (holding->upgraded && !was_reset(holding))
		LockRelease(&holding->tag, ShareLock, true);
	if (holding->state.held)
		dlist_delete(&holding->in_bucket);
	set_end(holding, DT_NOEND);
	holding_count--;
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

	if (holding && holding->last_change == NULL)
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
	for (ShedlockChange *change = ShedlockLastChange(); change; change = change->next)
	{
		ShedlockHolding *holding = change->holding;

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
	for (ShedlockChange *change = ShedlockLastChange(); change; change = change->next)
		update_end(change->holding);
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
	session_touched = false;
	committing_since = 0;
	if (watched != 0 && ShedlockWasReset(watched))
	{
		watched = 0;
		for (uint32 i = 0; i < bucket_count; i++)
		{
			dlist_mutable_iter iter;

			dlist_foreach_modify(iter, &buckets[i])
			{
				ShedlockHolding *holding = dlist_container(ShedlockHolding, in_bucket, iter.cur);

				if (holding->is_run)
					continue;
				if (was_reset(holding))
					end_holding(holding);
				else
					watched = holding->sentinel_number;
			}
		}
	}
	arm_deadlines();
}

/*
 * ShedlockSessionCommit - apply what the transaction did to its holdings
 *
 * The rows are visible now (I12), and the transaction's own locks are gone.  Nothing
 * here can fail (I13).
 */
void
ShedlockSessionCommit(void)
{
	int64		now = committing_since != 0 ? ShedlockSteadyNow() : 0;
	ShedlockChange *change;

	if (!session_touched && watched == 0)
		return;
	while ((change = ShedlockLastChange()) != NULL)
	{
		ShedlockHolding *holding = change->holding;
		int64		ruling = ShedlockRulingDeadline(holding, committing_since);

		ShedlockForgetChange();
		if (!holding->state.held)
		{
			end_holding(holding);
			continue;
		}

		/* An extend that was not committed in time came too late. */
		ShedlockSetDeadline(holding, ruling <= now ? ruling : holding->state.deadline);
		update_end(holding);
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
	ShedlockChange *change;

	while ((change = ShedlockLastChange()) != NULL &&
		   (whole || change->made_in == subid))
	{
		ShedlockHolding *holding = change->holding;

		/* All that it has acquired of that name since then is undone already. */
		if (change->state.held && !holding->state.held)
			dlist_push_head(bucket_of(&holding->tag), &holding->in_bucket);
		else if (!change->state.held && holding->state.held)
			dlist_delete(&holding->in_bucket);
		ShedlockUndoChange();

		if (!holding->state.held && holding->last_change == NULL)
			end_holding(holding);
		else
			update_end(holding);
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
	for (uint32 i = 0; i < bucket_count; i++)
	{
		dlist_iter	iter;

		dlist_foreach(iter, &buckets[i])
			ShedlockWake(&dlist_container(ShedlockHolding, in_bucket, iter.cur)->tag);
	}
}
