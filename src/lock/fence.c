/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  Holding a lock of mine firm to the end of a transaction.
 *
 * Whoever writes to the row of a lock that is held, or fences it, takes the
 * advisory half in share mode to the end of its transaction: then an acquirer
 * can be neither in the middle of taking the lock, nor take it before this
 * transaction's word on it is final.  Share mode, so that the owner's
 * connections stand beside each other.  A try can fail because an acquirer is
 * just probing, or has just committed; the owner of a living lock never gives
 * up for that.  It ends: whoever holds the advisory half of a living lock
 * exclusively for longer is an administrator who ends it.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "base/breakage.h"
#include "lock/lock.h"
#include "utils/timestamp.h"

/*
 * require_token - complain about a call without token, if the role is set to
 * be careful
 *
 * A session lock or run needs none: nobody shares its session.
 */
static void
require_token(const ShedlockRow *row, const ShedlockName *name)
{
	if (!shedlock_require_token || row->kind == SHEDLOCK_SESSION ||
		row->kind == SHEDLOCK_RUN)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("token of lock \"%s\" must not be null", name->str),
			 errdetail("The setting shedlock.require_token is on."),
			 errhint("Pass the token that shedlock_acquire_token returned.")));
}

/*
 * ShedlockSecure - hold a lock of mine firm to the end of this transaction
 *
 * Returns true with the row and the clock if it is mine and alive; nobody
 * takes it before this transaction ends.  Else false, with the row that shows
 * why.  Errors: 42501; 22004 without token if shedlock.require_token is on;
 * 55P03 when lock_timeout ends the wait.
 * Locks: the advisory half in share mode.
 */
bool
ShedlockSecure(ShedlockStore *store, const ShedlockName *name, int64 token,
			   ShedlockRow *row, TimestampTz *now)
{
	ShedlockWait wait = {0};
	bool		mine;

	for (;;)
	{
		ShedlockReadRow(store, name->str, row);
		*now = GetCurrentTimestamp();
		if (token == 0)
			require_token(row, name);
		mine = ShedlockCallerOwns(row, name, token, *now);
		ShedlockBreakDelay();
		if (!mine || ShedlockTryShare(&name->tag))
			break;
		ShedlockAwaitLock(name, &wait, 1);
	}
	ShedlockEndWait(&wait);
	if (!mine)
		return false;

	ShedlockRereadRow(store, name->str, row);
	*now = GetCurrentTimestamp();
	if (ShedlockCallerOwns(row, name, token, *now))
	{
		if (row->kind == SHEDLOCK_LEASE)
			return true;
		ShedlockTouchSession();
		if (ShedlockCountsAsLease(row) || ShedlockHolderLives(row, name, false))
			return true;
	}
	ShedlockUnlock(&name->tag, ShareLock);
	return false;
}

/*
 * ShedlockCheckSession - only the session of a session lock can change it
 *
 * what: the verb, for the message.  The advisory half of such a lock is in the
 * hands of its own process, and so is the timer that ends it.
 */
void
ShedlockCheckSession(const ShedlockRow *row, const ShedlockName *name,
					 const char *what)
{
	if (row->kind == SHEDLOCK_LEASE || ShedlockCountsAsLease(row) ||
		ShedlockFindHolding(name->str, row->token))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("lock \"%s\" can be %s only by the session that holds it",
					name->str, what),
			 errdetail("It is held by the session with process ID %d.", row->pid),
			 errhint("End that session, or use shedlock_force_release.")));
}

/*
 * report_loss - say that a lock is not the caller's, and what became of it
 */
static void
report_loss(int elevel, const ShedlockName *name, int64 token, const char *detail)
{
	ereport(elevel,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 token != 0 ?
			 errmsg("lock \"%s\" is not held by token " INT64_FORMAT, name->str, token) :
			 errmsg("lock \"%s\" is not held by this session", name->str),
			 errdetail_internal("%s", detail)));
}

/*
 * ShedlockWarnLoss - say that a lock was lost, and how
 */
void
ShedlockWarnLoss(const ShedlockRow *row, const ShedlockName *name, int64 token,
				 TimestampTz now)
{
	char	   *detail = ShedlockLossDetail(row, token, now);

	report_loss(WARNING, name, token, detail);
	if (shedlock_log_locks)
		ereport(LOG,
				(errmsg("lock \"%s\" lost", name->str),
				 errdetail_internal("%s", detail)));
}

/*
 * flush_token - make sure that the token of the row read last is never drawn again
 *
 * To be called before shedlock_token and shedlock_assert answer.  In the
 * transaction that took the lock nothing is on disk yet: after a crash the sequence
 * could hand the token out again.
 */
static void
flush_token(ShedlockStore *store)
{
	bool		isnull;
	Datum		xmin = slot_getsysattr(store->slot, MinTransactionIdAttributeNumber, &isnull);

	if (TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin)))
		XLogFlush(XactLastRecEnd);
}

/*
 * ShedlockAssert - fence: nobody takes my lock before this transaction ends
 *
 * Returns the lock's token.  Errors: 22004, 42501, 55P03; 55000 if it is not the
 * caller's or no longer held.  Locks: the advisory half in share mode to the end
 * of the transaction.
 */
int64
ShedlockAssert(const ShedlockName *name, int64 token)
{
	ShedlockStore store;
	ShedlockRow row;
	TimestampTz now;

	ShedlockOpen(&store, name->nsp, "shedlock");
	if (!ShedlockSecure(&store, name, token, &row, &now))
		report_loss(ERROR, name, token, ShedlockLossDetail(&row, token, now));
	flush_token(&store);
	ShedlockClose(&store);
	return row.token;
}

/*
 * ShedlockTokenOf - fencing token of the lock that this session holds
 *
 * 0 if it holds none, or one of a role whose privileges the caller has not.
 */
int64
ShedlockTokenOf(const ShedlockName *name)
{
	ShedlockStore store;
	ShedlockRow row;
	bool		mine;

	ShedlockOpenToRead(&store, name->nsp, "shedlock");
	ShedlockReadRow(&store, name->str, &row);
	mine = row.found && ShedlockCallerHasRole(&row) &&
		ShedlockCallerOwns(&row, name, 0, GetCurrentTimestamp());
	if (mine)
		flush_token(&store);
	ShedlockClose(&store);
	return mine ? row.token : 0;
}
