/*-------------------------------------------------------------------------
 *
 * acquire.c
 *	  Taking a lock: both halves, in this order, with no gap between them.
 *
 *	1. Read the row.  Held, kept or paused: refused, nothing was touched.
 *	2. Try the advisory half in exclusive mode, to the end of the transaction.
 *	   Not available: refused.  Nobody waits here.
 *	3. Read the row again.  Whoever had the advisory half before us had
 *	   committed, or rolled back, before letting go of it, so this read sees
 *	   the last word of all users of this library.  Refused now: the advisory
 *	   half goes back at once.
 *	4. Read the clock, draw the token, write the row.
 *
 * Until this transaction ends the advisory half keeps everybody off, then the
 * row does.  A rollback undoes both.  A writer that does not take the advisory
 * half can have the row locked in step 4; it gets 100 ms to go away, during
 * which the advisory half stays ours.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "base/breakage.h"
#include "lock/lock.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

/*
 * fill_row - what the row says once the lock is taken
 */
static void
fill_row(const ShedlockRequest *request, TimestampTz now, int64 token,
		 ShedlockRow *row)
{
	Interval   *at_most = request->at_most;

	/* A session lock without limit shows the default to whoever reads times. */
	if (at_most == NULL)
		at_most = ShedlockIntervalSetting(shedlock_default_lock_at_most_for);

	row->name = request->name.str;
	row->lock_until = ShedlockAddInterval(now, at_most);
	row->locked_at = now;
	row->locked_by = ShedlockLockedBy(request->locked_by, token);
	row->token = token;
	row->kind = request->kind;
	row->locked_role = GetUserId();
	row->keep_until = DT_NOBEGIN;
	if (request->at_least)
	{
		row->keep_until = ShedlockAddInterval(now, request->at_least);
		row->lock_until = Max(row->lock_until, row->keep_until);
	}
	row->at_most = request->at_most;
	row->pid = MyProcPid;
	row->backend_start = MyStartTimestamp;
	row->timeline = GetWALInsertionTimeLine();
	row->paused_until = DT_NOBEGIN;
	row->paused_by = NULL;
	row->pause_reason = NULL;
}

/*
 * write_row - steps 3 and 4, with the advisory half held
 *
 * Returns false, with the verdict, if the lock is not free after all.
 */
static bool
write_row(ShedlockStore *store, const ShedlockRequest *request,
		  ShedlockResult *result)
{
	int			tries = 0;
	int64		token = 0;

	for (;;)
	{
		ShedlockRow *row = &result->row;
		ShedlockRow old;
		TimestampTz now;
		bool		written;

		ShedlockRereadRow(store, request->name.str, row);
		now = ShedlockBroken(TRANSACTION_TIME) ?
			GetCurrentTransactionStartTimestamp() : GetCurrentTimestamp();
		result->verdict = ShedlockJudge(row, &request->name, now, true);
		if (result->verdict != SHEDLOCK_FREE && !ShedlockBroken(NO_SECOND_READ))
			return false;

		if (token == 0 || token <= row->token)
			token = ShedlockNextToken(request->name.nsp, row);
		ShedlockBreakDelay();
		old = *row;
		fill_row(request, now, token, row);
		written = old.found ?
			ShedlockUpdateRow(store, row, false) == TM_Ok :
			ShedlockInsertRow(store, row);
		if (written)
		{
			if (old.found && old.kind == SHEDLOCK_RUN)
				ShedlockHistoryLost(request->name.nsp, old.token);
			return true;
		}
		*row = old;
		if (!ShedlockAwaitForeignLock(&tries))
		{
			result->verdict = SHEDLOCK_BUSY;
			return false;
		}
	}
}

/*
 * ShedlockAcquire - take a lock if it is free; never wait for a holder
 *
 * Returns true if it is taken, with result->row as written; else false, with
 * result->verdict and the row that stood in the way.  Locks: see above;
 * RowExclusiveLock on the table is the caller's.
 */
bool
ShedlockAcquire(ShedlockStore *store, const ShedlockRequest *request,
				ShedlockResult *result)
{
	const ShedlockName *name = &request->name;
	ShedlockRow *row = &result->row;
	TimestampTz deadline = DT_NOEND;
	bool		known;

	ShedlockCheckPromises(store);
	ShedlockReadRow(store, name->str, row);
	result->verdict = ShedlockJudge(row, name, GetCurrentTimestamp(), false);
	if (result->verdict != SHEDLOCK_FREE)
		return false;

	known = lock_held_by_me(&name->tag, ShareLock) ||
		lock_held_by_me(&name->tag, ExclusiveLock);
	ShedlockBreakDelay();
	if (!ShedlockBroken(NO_ADVISORY_HALF) && !ShedlockTryLock(&name->tag, ExclusiveLock))
	{
		result->verdict = SHEDLOCK_BUSY;
		return false;
	}
	if (!write_row(store, request, result))
	{
		ShedlockUnlock(&name->tag, ExclusiveLock);
		return false;
	}

	/* A rollback frees it. */
	ShedlockUseSession();
	ShedlockWakeLater(&name->tag);
	ShedlockCommitDurably();

	if (known)
		ShedlockReleaseStaleHoldings(name->str);
	if (request->kind == SHEDLOCK_LEASE)
		ShedlockRememberLease(row->token);
	else
	{
		if (row->at_most)
			deadline = row->lock_until;
		ShedlockAddHolding(name, row->token, request->kind == SHEDLOCK_RUN, deadline);
	}
	if (shedlock_log_locks)
		ereport(LOG,
				(errmsg("lock \"%s\" acquired by \"%s\" until %s",
						name->str, row->locked_by,
						deadline == DT_NOEND && request->kind != SHEDLOCK_LEASE ?
						"its session ends" : ShedlockTimeString(row->lock_until))));
	return true;
}

/*
 * ShedlockTellOfBlock - tell whoever works in a transaction block what true means
 *
 * Drivers open one unasked, and roll it back when the connection is closed: the
 * lock, or tick, has then never been the caller's.  Once a session: whoever means
 * it so need not read it each time.  Behind a pool that is once a server session.
 * Not in a savepoint: it looks like a function's EXCEPTION block in autocommit.
 */
void
ShedlockTellOfBlock(const ShedlockName *name, bool is_tick)
{
	static bool told = false;

	if (told || !IsTransactionBlock() || IsSubTransaction())
		return;
	told = true;
	ereport(NOTICE,
			(is_tick ?
			 errmsg("tick of lock \"%s\" is not claimed until this transaction commits", name->str) :
			 errmsg("lock \"%s\" is not held until this transaction commits", name->str),
			 errhint("Turn on autocommit and send it as a statement of its own, or commit before the work.")));
}
