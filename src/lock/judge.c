/*-------------------------------------------------------------------------
 *
 * judge.c
 *	  What a row means: is the lock free, is it mine, how was it lost.
 *
 * Nothing here reads or writes a table.  All of it compares with a clock that
 * the caller has read, so that one instant decides and is written.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "lock/lock.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/timestamp.h"

/*
 * ShedlockCountsAsLease - is the row over when its time is over?
 *
 * A session lock and a run are over when their holder is gone, which the lock
 * table proves only for the server that the holder is connected to.  On
 * another timeline (promotion, point-in-time recovery) the holder may live on
 * an isolated server.
 */
bool
ShedlockCountsAsLease(const ShedlockRow *row)
{
	return (row->kind != SHEDLOCK_SESSION && row->kind != SHEDLOCK_RUN) ||
		row->timeline != GetWALInsertionTimeLine();
}

/*
 * is_of_this_backend - was the row's last acquisition made by this process?
 */
static bool
is_of_this_backend(const ShedlockRow *row)
{
	return row->pid == MyProcPid && row->backend_start == MyStartTimestamp;
}

/*
 * ShedlockHolderLives - does a session lock or run still have its holder?
 *
 * Not to be asked of what counts as a lease.  have_advisory: this call holds
 * the advisory half exclusively, so that no other process has any of it.  Our
 * own locks never stand in our way, so that for a lock of this process what it
 * remembers decides.
 */
bool
ShedlockHolderLives(const ShedlockRow *row, const ShedlockName *name,
					bool have_advisory)
{
	if (is_of_this_backend(row))
		return ShedlockHolds(name->str, row->token);

	/*
	 * Another process may have its ID by now, this one even, and a fence of
	 * it.
	 */
	if (!ShedlockBackendAlive(row->pid, row->backend_start))
		return false;

	/*
	 * A guarded command may itself drop all advisory locks, so that a run is
	 * over only when its process is, too.
	 */
	return row->kind == SHEDLOCK_RUN ||
		(!have_advisory && ShedlockHeldByPid(&name->tag, row->pid));
}

/*
 * ShedlockJudge - is the lock free as far as the row is concerned?
 *
 * have_advisory: whether this call holds the advisory half exclusively.
 * Without it, a session lock or run of another session is given the benefit
 * of the doubt: the try for the advisory half decides.
 */
ShedlockVerdict
ShedlockJudge(const ShedlockRow *row, const ShedlockName *name,
			  TimestampTz now, bool have_advisory)
{
	if (!row->found)
		return SHEDLOCK_FREE;
	if (ShedlockCountsAsLease(row))
	{
		if (row->lock_until > now)
			return row->kind == SHEDLOCK_RELEASED ? SHEDLOCK_KEPT : SHEDLOCK_HELD;
	}
	else
	{
		if ((have_advisory || is_of_this_backend(row)) &&
			ShedlockHolderLives(row, name, have_advisory))
			return SHEDLOCK_HELD;
		if (row->keep_until > now)
			return have_advisory ? SHEDLOCK_KEPT : SHEDLOCK_HELD;
	}
	if (row->paused_until > now)
		return SHEDLOCK_PAUSED;
	return SHEDLOCK_FREE;
}

/*
 * ShedlockIsOfMyRole - has the caller the privileges of the role that took it?
 */
bool
ShedlockIsOfMyRole(const ShedlockRow *row)
{
	return !OidIsValid(row->locked_role) ||
		has_privs_of_role(GetUserId(), row->locked_role);
}

/*
 * ShedlockIsMine - does the caller own this lock, and is it alive?
 *
 * token 0: the caller gives none, so that this session must have taken it.
 * The caller must have the privileges of the role that took the lock, else
 * 42501: a session can serve several roles, and ANALYZE and others call
 * functions of a table's owner, with his rights, in the session of whoever
 * maintains it.  A session lock of another session counts as alive here: only
 * the advisory half can tell.
 */
bool
ShedlockIsMine(const ShedlockRow *row, const ShedlockName *name,
			   int64 token, TimestampTz now)
{
	if (!row->found || row->kind == SHEDLOCK_RELEASED)
		return false;

	if (token != 0)
	{
		if (row->token != token)
			return false;
	}
	else if (!is_of_this_backend(row))
		return false;
	else if (row->kind == SHEDLOCK_LEASE && !ShedlockLeaseOfSession(row->token))
		return false;
	if (!ShedlockIsOfMyRole(row))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for lock \"%s\"", name->str),
				 errdetail("It can be used only by roles with the privileges of the role that took it.")));

	if (ShedlockCountsAsLease(row))
		return row->lock_until > now;
	return !is_of_this_backend(row) || ShedlockHolderLives(row, name, false);
}

/*
 * ShedlockLossDetail - what became of a lock that is not the caller's
 *
 * Follows ShedlockIsMine() having said no.  Returns a sentence for DETAIL, with
 * who has it since when for those who may see that.
 */
char *
ShedlockLossDetail(const ShedlockRow *row, const ShedlockName *name,
				   int64 token, TimestampTz now)
{
	if (!row->found)
		return pstrdup(token ?
					   "It was never taken, or the transaction that took it was rolled back." :
					   "It was never taken.");

	if (token > row->token)
		return psprintf("Token " INT64_FORMAT " never took it, or the transaction that took it was rolled back or is still open.",
						token);
	if (token != 0 && token < row->token && !ShedlockMaySee(row->locked_role))
		return psprintf("Token " INT64_FORMAT " was superseded by token " INT64_FORMAT ".",
						token, row->token);
	if (token != 0 && token < row->token)
		return psprintf("Token " INT64_FORMAT " was superseded by token " INT64_FORMAT ", taken by \"%s\" at %s.",
						token, row->token, ShedlockShownBy(row),
						ShedlockTimeString(row->locked_at));
	if (row->kind == SHEDLOCK_RELEASED)
		return psprintf("It was released; its last token is " INT64_FORMAT ".",
						row->token);
	if (ShedlockCountsAsLease(row) && row->lock_until <= now)
		return psprintf("It expired at %s.", ShedlockTimeString(row->lock_until));
	if (token == 0 && !is_of_this_backend(row) && !ShedlockMaySee(row->locked_role))
		return pstrdup("It was taken by another session.");
	if (token == 0 && !is_of_this_backend(row))
		return psprintf("It was taken by \"%s\" at %s.",
						ShedlockShownBy(row), ShedlockTimeString(row->locked_at));
	if (row->kind == SHEDLOCK_LEASE)
		return pstrdup("This session was reset or has prepared the transaction that took it; only its token owns it now.");
	return pstrdup("The session that took it has ended or was reset.");
}
