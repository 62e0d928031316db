/*-------------------------------------------------------------------------
 *
 * acquire.c
 *	  Acquiring a lock: both halves, in this order, with no gap between them.
 *
 *	1 read the row: if it refuses, nothing was touched (I3)
 *	2 try the advisory half in exclusive mode, without waiting (I2)
 *	3 read the row again, which has the last word of all users of this library (I12), and ask
 *	  the caller (request->confirm); if one refuses, release the advisory half at once
 *	4 read the clock (I4), draw the token (I7), write the row
 *
 * src/README says why.  Until this transaction ends the advisory half keeps other acquirers
 * out, then the row does (I1).  A rollback undoes both (I6).  A writer that does not use the
 * advisory half can have the row locked in step 4; this call waits 100 ms for it to end, and
 * keeps the advisory half meanwhile.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "lock/lock.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

/* The margin of clock_margin(): a hundredth, between these, if there is that much time */
#define MARGIN_FROM		(10 * USECS_PER_SEC)
#define MARGIN_MIN		(USECS_PER_SEC / 10)
#define MARGIN_MAX		(2 * USECS_PER_SEC)

/*
 * clock_margin - how much longer other servers believe in a lock than its own server
 *
 * In microseconds.  The server of a session lock or run ends the session, or cancels the
 * command, at its lock_at_most_for.  After a failover another server goes by lock_until,
 * and its clock may be ahead a little.
 */
static int64
clock_margin(const ShedlockRow *row)
{
	int64		at_most;

	if (!SHEDLOCK_IS_OF_PROCESS(row->kind) || row->at_most == NULL)
		return 0;
	at_most = ShedlockIntervalMicroseconds(row->at_most);
	return at_most < MARGIN_FROM ? 0 : Max(MARGIN_MIN, Min(at_most / 100, MARGIN_MAX));
}

/*
 * ShedlockHolderEnd - when this server ends the holder of a session lock or run
 *
 * DT_NOEND without lock_at_most_for, or if the row was set to infinity by hand.  Do not
 * call this for rows that count as leases.
 */
TimestampTz
ShedlockHolderEnd(const ShedlockRow *row)
{
	if (row->at_most == NULL || TIMESTAMP_NOT_FINITE(row->lock_until))
		return DT_NOEND;
	return row->lock_until - clock_margin(row);
}

/*
 * ShedlockSetTimes - set the end of a lock from row->at_most, counted from now
 *
 * at_least NULL: keep_until stays.  No lock ends before keep_until.  A session
 * lock without limit shows the default to those who read times.
 */
void
ShedlockSetTimes(ShedlockRow *row, TimestampTz now, const Interval *at_least)
{
	if (at_least)
		row->keep_until = ShedlockAddInterval(now, at_least);
	row->lock_until =
		ShedlockAddInterval(now, row->at_most ? row->at_most : ShedlockIntervalSetting(shedlock_default_lock_at_most_for));
	row->lock_until = Max(row->lock_until, row->keep_until) + clock_margin(row);
}

/*
 * fill_row - what the row says after an acquire
 */
static void
fill_row(const ShedlockRequest *request, TimestampTz now, int64 token,
		 ShedlockRow *row)
{
	row->name = request->name.str;
	row->locked_at = now;
	row->locked_by = ShedlockLockedBy(request->locked_by, token);
	row->token = token;
	row->kind = request->kind;
	row->locked_role = GetUserId();
	row->at_most = request->at_most;
	row->keep_until = DT_NOBEGIN;
	ShedlockSetTimes(row, now, request->at_least);
	row->pid = MyProcPid;
	row->backend_start = MyStartTimestamp;
	row->origin = ShedlockOrigin();
	row->paused_until = DT_NOBEGIN;
	row->paused_by = NULL;
	row->pause_reason = NULL;
}

/*
 * write_row - steps 3 and 4, with the advisory half held
 *
 * Returns false, with the state, if the lock is not free after all; or with
 * SHEDLOCK_FREE if the caller does not want it any more.
 */
static bool
write_row(ShedlockStore *store, const ShedlockRequest *request,
		  ShedlockResult *result)
{
	ShedlockRow *row = &result->row;
	int			tries = 0;
	int64		token = 0;

	for (;;)
	{
		ShedlockRow old;
		TimestampTz now;

		ShedlockRereadRow(store, request->name.str, row);
		now = GetCurrentTimestamp();
		result->state = ShedlockJudge(row, &request->name, now, SHEDLOCK_MINE);
		if (result->state != SHEDLOCK_FREE)
			return false;
		if (request->confirm && !request->confirm(request->confirm_arg))
			return false;

		if (token == 0 || token <= row->token)
			token = ShedlockNextToken(request->name.nsp, row);
		old = *row;
		fill_row(request, now, token, row);
		if (ShedlockWriteRow(store, row, false))
		{
			if (old.found && SHEDLOCK_IS_RUN(old.kind) &&
				ShedlockHistoryLost(request->name.nsp, &old))
				result->lost_run = old.token;
			ShedlockWriteOrigin(store->rel, &old);
			return true;
		}
		*row = old;
		if (!ShedlockAwaitForeignLock(&tries))
		{
			result->state = SHEDLOCK_IN_USE;
			return false;
		}
	}
}

/*
 * ShedlockAcquire - acquire a lock if it is free; never wait for a holder
 *
 * Returns true if it is acquired, with result->row as written.  If it returns
 * false, result has the state and the row that stood in the way; the state is
 * SHEDLOCK_FREE if request->confirm has returned false.  That function is called with the
 * advisory half held, before anything is written, and again if a foreign writer has
 * changed the row meanwhile; it must write nothing.  Errors: those of
 * ShedlockCheckPromises(), ShedlockNextToken(), ShedlockWrite() and, for a session lock
 * or run, ShedlockDeadlineAt(); 53200 if the lock table is full.  Locks: the advisory half,
 * exclusive, to the end of the transaction; the caller has the table open with
 * RowExclusiveLock.
 */
bool
ShedlockAcquire(ShedlockStore *store, const ShedlockRequest *request,
				ShedlockResult *result)
{
	const ShedlockName *name = &request->name;
	ShedlockRow *row = &result->row;

	ShedlockCheckPromises(store);
	ShedlockReadRow(store, name->str, row);
	result->state = ShedlockJudge(row, name, GetCurrentTimestamp(), NULL);
	if (result->state != SHEDLOCK_FREE)
		return false;

	if (!ShedlockTryLock(&name->tag, ExclusiveLock))
	{
		result->state = SHEDLOCK_IN_USE;
		return false;
	}

	/* A rollback frees the lock; a commit does not. */
	ShedlockWakeAtRollback(&name->tag);
	if (!write_row(store, request, result))
	{
		ShedlockUnlock(&name->tag, ExclusiveLock);

		/* The try of a waiter may have failed because of this call alone. */
		if (result->state == SHEDLOCK_FREE)
			ShedlockWake(&name->tag);
		return false;
	}

	ShedlockCommitDurably();

	ShedlockReleaseStaleHoldings(name);
	if (SHEDLOCK_IS_LEASE(request->kind))
		ShedlockRememberLease(row->token);
	else
		ShedlockAddHolding(name, row->token, request->kind == SHEDLOCK_RUN,
						   ShedlockHolderEnd(row));
	if (shedlock_log_locks)
		ereport(LOG,
				(errmsg("lock \"%s\" acquired by \"%s\" until %s",
						name->str, row->locked_by,
						row->at_most ? ShedlockTimeString(row->lock_until) :
						request->kind == SHEDLOCK_RUN ? "its command ends" : "its session ends")));
	return true;
}

/*
 * ShedlockNoticeBlock - tell a caller in a transaction block what true means
 *
 * Drivers open a block unasked, and roll it back when the connection is closed:
 * the lock, or tick, was never the caller's then.  Once a session, because a
 * caller that uses blocks on purpose need not read it each time; behind a pool
 * that is once a server session.  Not in a savepoint, which looks like a
 * function's EXCEPTION block in autocommit.
 */
void
ShedlockNoticeBlock(const ShedlockName *name, bool is_tick)
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
