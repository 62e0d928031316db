/*-------------------------------------------------------------------------
 *
 * owner.c
 *	  What the owner of a lock can do: fence, extend and release it.
 *
 * Each of these holds the advisory half in share mode until its transaction ends (see
 * src/README).  A try can fail because an acquirer is probing, or has just committed; the
 * owner of a living lock tries until it succeeds.  Only an administrator who ends the lock
 * holds the advisory half of a living lock exclusively for longer.
 *
 * A released lock keeps its row, because ShedLock's Java clients remember that
 * it exists.  The advisory half of a session lock is released when that row is
 * visible (I12, see holdings.c).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "lock/lock.h"
#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

/* A write that took longer has waited for a row lock. */
#define ROW_WAIT_MS			100

/* A call by a caller that may own the lock. */
typedef struct OwnerCall
{
	const ShedlockName *name;
	int64		token;			/* 0: the session proves the ownership */
	Interval   *at_most;		/* of an extend; NULL: as it is */
	Interval   *at_least;		/* of an extend; NULL: as it is */
	bool		keep;			/* of an end: honour the at-least time */
	bool		cut;			/* of an extend: it ends before the time that
								 * was asked for */
	ShedlockStore store;
	ShedlockRow row;
	TimestampTz now;			/* the clock that decided */
	ShedlockHolding *holding;	/* of this session; NULL for a lease */
} OwnerCall;

/*
 * owns_lock - does the caller own the lock, by the row just read and the clock?
 */
static bool
owns_lock(OwnerCall *call)
{
	call->now = GetCurrentTimestamp();
	return ShedlockCallerOwns(&call->row, call->name, call->token, call->now);
}

/*
 * require_token - raise an error if shedlock.require_token forbids a call
 * without token
 *
 * A session lock or run needs no token, because its session is not shared.
 */
static void
require_token(const OwnerCall *call)
{
	ShedlockKind kind = call->row.kind;

	if (call->token == 0 && shedlock_require_token &&
		kind != SHEDLOCK_SESSION && kind != SHEDLOCK_RUN)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("token of lock \"%s\" must not be null", call->name->str),
				 errdetail("The setting shedlock.require_token is on."),
				 errhint("Pass the token that shedlock_acquire_token returned.")));
}

/*
 * fence - keep a lock that the caller owns until this transaction ends (I5)
 *
 * Returns true if the caller owns it and it is alive, false if it is lost.  The
 * call has the row and the clock that decided.  Errors: 42501; 22004 without
 * token if shedlock.require_token is on; those of ShedlockAwaitShare().
 * Locks: the advisory half in share mode.
 */
static bool
fence(OwnerCall *call)
{
	const ShedlockName *name = call->name;
	ShedlockRow *row = &call->row;
	ShedlockWait wait = {0};
	bool		owned;

	for (;;)
	{
		ShedlockReadRow(&call->store, name->str, row);
		require_token(call);
		owned = owns_lock(call);
		if (!owned || ShedlockTryShare(&name->tag))
			break;

		/* The row does not tell whether another session's holder is gone. */
		owned = ShedlockIsHeld(row, name, call->now);
		if (!owned)
			break;
		ShedlockAwaitShare(name, &wait, 1);
	}
	ShedlockEndWait(&wait);
	if (!owned)
		return false;

	/* Only what is read and measured under share cannot change any more (I4). */
	ShedlockRereadRow(&call->store, name->str, row);
	owned = owns_lock(call) && ShedlockIsHeld(row, name, call->now);
	if (!owned)
		ShedlockUnlock(&name->tag, ShareLock);
	else if (!SHEDLOCK_IS_LEASE(row->kind))
		ShedlockTouchSession();
	return owned;
}

/*
 * report_loss - report that the caller does not hold the lock, and why
 */
static void
report_loss(int elevel, const OwnerCall *call)
{
	char	   *detail = ShedlockLossDetail(&call->row, call->token, call->now);

	if (shedlock_log_locks)
		ereport(LOG,
				(errmsg("lock \"%s\" lost", call->name->str),
				 errdetail_internal("%s", detail)));
	ereport(elevel,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 call->token != 0 ?
			 errmsg("lock \"%s\" is not held by token " INT64_FORMAT, call->name->str, call->token) :
			 errmsg("lock \"%s\" is not held by this session", call->name->str),
			 errdetail_internal("%s", detail)));
}

/*
 * find_holding - find what this session remembers of a lock that it may change
 *
 * Raises an error if another session holds it: only that session has the
 * advisory half of its lock, and the timer that ends it.
 */
static void
find_holding(OwnerCall *call)
{
	const ShedlockRow *row = &call->row;

	call->holding = SHEDLOCK_IS_LEASE(row->kind) ? NULL :
		ShedlockFindHolding(call->name, row->token);
	if (call->holding == NULL && !ShedlockCountsAsLease(row))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("lock \"%s\" is held by another session", call->name->str),
				 errdetail("Only the session with process ID %d can extend or release it.", row->pid),
				 errhint("End that session, or use shedlock_force_release.")));
}

/*
 * update_owned - write a change to the row of a lock that the caller owns
 *
 * change: sets the new values in call->row.  Returns false if the lock is lost; the
 * row is not written then.  Waits for a row lock as an UPDATE does.
 */
static bool
update_owned(OwnerCall *call, void (*change) (OwnerCall *call))
{
	bool		owned;

	ShedlockOpen(&call->store, call->name->nsp, "shedlock", RowExclusiveLock);
	while ((owned = fence(call)))
	{
		find_holding(call);
		change(call);
		if (ShedlockWriteRow(&call->store, &call->row, true))
			break;

		/* A foreign writer was faster, and may have acquired the lock. */
		ShedlockUnlock(&call->name->tag, ShareLock);
	}
	ShedlockClose(&call->store, NoLock);
	return owned;
}

/*
 * flush_token - make sure that the token of the row read last is never drawn again
 *
 * Call this before a function returns a token (I7).  In the transaction that
 * acquired the lock nothing is on disk yet: after a crash the sequence could
 * draw the token again.
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
 * ShedlockAssert - fence a lock, and return its token
 *
 * Errors: those of fence(); 55000 if the caller does not own the lock any more.
 */
int64
ShedlockAssert(const ShedlockName *name, int64 token)
{
	OwnerCall	call = {.name = name,.token = token};

	ShedlockOpen(&call.store, name->nsp, "shedlock", RowExclusiveLock);
	if (!fence(&call))
		report_loss(ERROR, &call);
	flush_token(&call.store);
	ShedlockClose(&call.store, NoLock);
	return call.row.token;
}

/*
 * ShedlockTokenOf - return the token of the lock that this session holds
 *
 * Returns 0 if it holds none, or if the caller lacks the privileges of the role
 * that acquired it.
 */
int64
ShedlockTokenOf(const ShedlockName *name)
{
	OwnerCall	call = {.name = name};
	bool		owned;

	ShedlockOpen(&call.store, name->nsp, "shedlock", AccessShareLock);
	ShedlockReadRow(&call.store, name->str, &call.row);
	owned = call.row.found && ShedlockCallerHasRole(&call.row) && owns_lock(&call);
	if (owned)
		flush_token(&call.store);
	ShedlockClose(&call.store, AccessShareLock);
	return owned ? call.row.token : 0;
}

/*
 * set_end - what the row says after an extend
 *
 * A run outside the database cannot outlive the lock_at_most_for that its job had when it
 * began, whatever its at-least time.
 */
static void
set_end(OwnerCall *call)
{
	ShedlockRow *row = &call->row;

	if (call->at_most)
		row->at_most = call->at_most;
	else if (row->at_most &&
			 ShedlockIsOverCap(row->at_most, shedlock_max_lock_at_most_for))
		row->at_most = ShedlockIntervalSetting(shedlock_max_lock_at_most_for);
	if (call->at_least && row->at_most)
		ShedlockCheckAtLeast(call->at_least, row->at_most, call->name->str);
	ShedlockSetTimes(row, call->now, call->at_least);
	if (row->kind == SHEDLOCK_LEASED_RUN)
	{
		ShedlockHistoryRun run;

		ShedlockHistoryRead(call->name->nsp, row->token, &run);
		call->cut = run.token != 0 && row->lock_until > run.limit_at;
		if (call->cut)
		{
			row->lock_until = run.limit_at;
			row->keep_until = Min(row->keep_until, run.limit_at);
		}
	}
}

/*
 * ShedlockExtend - set the end of a lock, counted from now
 *
 * at_most NULL: the duration that was last said.  at_least NULL: unchanged.  This
 * can shorten a lock, but not to less than its at-least time.  Returns false, after a WARNING,
 * if the caller does not own the lock any more; and after a NOTICE, if the lock cannot be held
 * for so long: it ends sooner then, and a caller that goes by its own clock must not believe in
 * the time that it asked for.  Errors: those of fence(); 22023;
 * 0A000 for a session lock of another session.
 */
bool
ShedlockExtend(const ShedlockName *name, int64 token, Interval *at_most,
			   Interval *at_least)
{
	OwnerCall	call = {.name = name,.token = token,.at_most = at_most,.at_least = at_least};

	for (int tries = 0; tries < 2; tries++)
	{
		if (!update_owned(&call, set_end))
		{
			report_loss(WARNING, &call);
			return false;
		}

		/* The end counts from the end of a wait for a row lock. */
		if (!TimestampDifferenceExceeds(call.now, GetCurrentTimestamp(), ROW_WAIT_MS))
			break;
	}
	if (call.holding && call.row.at_most)
		ShedlockExtendHolding(call.holding, ShedlockHolderEnd(&call.row));
	ShedlockCommitDurably();
	if (shedlock_log_locks)
		ereport(LOG,
				(errmsg("lock \"%s\" extended until %s, token " INT64_FORMAT,
						name->str, ShedlockTimeString(call.row.lock_until), call.row.token)));
	if (call.cut)
		ereport(NOTICE,
				(errmsg("lock \"%s\" cannot be held for so long: it ends at %s",
						name->str, ShedlockTimeString(call.row.lock_until)),
				 errdetail("The lock_at_most_for of its job ends the lease of a run.")));
	return !call.cut;
}

/*
 * ShedlockSetReleased - set what the row says after a release
 *
 * keep: honour the at-least time.  A Java client proves its ownership by
 * locked_by, and by a clock that may be behind the server's: its next extend
 * must not find its name there.
 */
void
ShedlockSetReleased(ShedlockRow *row, TimestampTz now, bool keep)
{
	if (row->kind == SHEDLOCK_LEASE && row->pid == 0)
	{
		int			len = (int) strlen(row->locked_by);

		len = pg_mbcharcliplen(row->locked_by, len, SHEDLOCK_LOCKED_BY_MAX);
		row->locked_by = ShedlockLockedBy(pnstrdup(row->locked_by, (Size) len),
										  row->token);
	}
	row->kind = SHEDLOCK_RELEASED;
	row->lock_until = keep ? Max(now, row->keep_until) : now;
	if (!keep)
		row->keep_until = DT_NOBEGIN;
}

static void
set_released(OwnerCall *call)
{
	if (call->holding && call->holding->is_run)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("lock \"%s\" is released by shedlock_run when its command ends",
						call->name->str)));
	if (call->row.kind == SHEDLOCK_LEASED_RUN)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is held by a run", call->name->str),
				 errhint("Use shedlock_run_end.")));
	ShedlockSetReleased(&call->row, call->now, true);
}

static void
end_leased_run(OwnerCall *call)
{
	if (call->row.kind != SHEDLOCK_LEASED_RUN)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is not held by a run of shedlock_run_begin",
						call->name->str),
				 call->row.kind == SHEDLOCK_RUN ?
				 errdetail("It is held by a run of shedlock_run, which ends with its command.") :
				 errhint("Use shedlock_release.")));
	ShedlockSetReleased(&call->row, call->now, call->keep);
}

static void
log_release(const OwnerCall *call)
{
	if (shedlock_log_locks)
		ereport(LOG,
				(errmsg("lock \"%s\" released, token " INT64_FORMAT,
						call->name->str, call->row.token)));
}

/*
 * ShedlockRelease - release a lock
 *
 * Returns false, after a WARNING, if the caller does not own the lock any more.
 * Errors: those of fence(); 0A000 for a session lock of another session, and for
 * a run; 55000 for a leased run.
 */
bool
ShedlockRelease(const ShedlockName *name, int64 token)
{
	OwnerCall	call = {.name = name,.token = token};

	ShedlockBeginRelease();
	if (!update_owned(&call, set_released))
	{
		ShedlockHolding *holding = ShedlockFindHolding(name, token);

		report_loss(WARNING, &call);

		/* Its row was deleted: do not keep acquirers out for nothing. */
		if (holding && !holding->is_run)
		{
			ShedlockWakeLater(&name->tag);
			ShedlockReleaseHolding(holding);
		}
		return false;
	}
	if (call.holding)
		ShedlockReleaseHolding(call.holding);
	ShedlockEndRelease();
	log_release(&call);
	return true;
}

/*
 * ShedlockReleaseLeasedRun - release the lock of a run outside the database
 *
 * keep: honour its at-least time.  Returns false if the run does not hold it any more; the caller reports that.
 * Errors: those of fence(); 0A000 if another session holds it as a session lock or run;
 * 55000 if the lock is not that of such a run.
 */
bool
ShedlockReleaseLeasedRun(const ShedlockName *name, int64 token, bool keep)
{
	OwnerCall	call = {.name = name,.token = token,.keep = keep};

	if (!update_owned(&call, end_leased_run))
		return false;
	log_release(&call);
	return true;
}

/*
 * ShedlockReportLoss - warn that a token does not hold a lock any more, and why
 */
void
ShedlockReportLoss(const ShedlockName *name, int64 token)
{
	OwnerCall	call = {.name = name,.token = token};

	ShedlockLookUpRow(name, &call.row);
	call.now = GetCurrentTimestamp();
	report_loss(WARNING, &call);
}
