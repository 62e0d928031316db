/*-------------------------------------------------------------------------
 *
 * judge.c
 *	  What a row means: is the lock free, who owns it, how was it lost.
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
 * ShedlockCountsAsLease - does the lock last until its time, whatever its kind?
 *
 * So does a session lock or run whose holder may live on another server (table/origin.c).
 */
bool
ShedlockCountsAsLease(const ShedlockRow *row)
{
	return !SHEDLOCK_IS_OF_PROCESS(row->kind) ||
		(row->origin != ShedlockOrigin() && !ShedlockOriginIsOver(row));
}

static bool
is_of_this_backend(const ShedlockRow *row)
{
	return row->pid == MyProcPid && row->backend_start == MyStartTimestamp;
}

/*
 * holder_lives - does a session lock or run still have its holder? (I8)
 *
 * Not for rows that count as leases.  A process never conflicts with its own locks, so that
 * for its own locks its memory decides.
 */
static bool
holder_lives(const ShedlockRow *row, const ShedlockName *name, ShedlockUse *use)
{
	/* Its timeline has ended, and another process may have the pid now. */
	if (row->origin != ShedlockOrigin())
		return false;
	if (is_of_this_backend(row))
		return ShedlockHolds(name, row->token);

	/* A guarded command may drop its advisory locks: its process decides. */
	if (row->kind != SHEDLOCK_RUN)
	{
		if (!use->known)
			ShedlockReadUse(&name->tag, use);
		if (!list_member_int(use->pids, row->pid))
			return false;
	}
	/* Another process may have its pid now, and may have fenced this lock. */
	return ShedlockBackendAlive(row->pid, row->backend_start);
}

const char *const shedlock_state_names[] = {
	[SHEDLOCK_FREE] = "free",
	[SHEDLOCK_HELD] = "held",
	[SHEDLOCK_LOST] = "lost",
	[SHEDLOCK_KEPT] = "kept",
	[SHEDLOCK_PAUSED] = "paused",
	[SHEDLOCK_IN_USE] = "in use",
	[SHEDLOCK_UNCOMMITTED] = "uncommitted",
	[SHEDLOCK_UNKNOWN] = "unknown",
};

/*
 * judge_row - as ShedlockJudge(), but a lock that is only in use is free
 */
static ShedlockState
judge_row(const ShedlockRow *row, const ShedlockName *name, TimestampTz now, ShedlockUse *use)
{
	bool		of_process = row->found && SHEDLOCK_IS_OF_PROCESS(row->kind);

	if (of_process && RecoveryInProgress())
		return SHEDLOCK_UNKNOWN;
	if (row->found && ShedlockCountsAsLease(row))
	{
		if (row->lock_until > now)
			return row->kind == SHEDLOCK_RELEASED ? SHEDLOCK_KEPT :
				of_process ? SHEDLOCK_LOST : SHEDLOCK_HELD;
	}
	else if (row->found)
	{
		if ((use || is_of_this_backend(row)) && holder_lives(row, name, use))
			return SHEDLOCK_HELD;
		if (row->keep_until > now)
			return use ? SHEDLOCK_KEPT : SHEDLOCK_HELD;
	}
	return row->paused_until > now ? SHEDLOCK_PAUSED : SHEDLOCK_FREE;
}

/*
 * ShedlockJudge - the state of a lock by its row, which is committed, and its advisory half
 *
 * use: who holds the advisory half; if it is not known yet, this reads the server's lock table
 * when that decides, and sets *use.  NULL, before the try for the advisory half, which
 * decides: the holder of a session lock or run counts as gone unless it is this process, and
 * what its at-least time keeps counts as held.
 */
ShedlockState
ShedlockJudge(const ShedlockRow *row, const ShedlockName *name,
			  TimestampTz now, ShedlockUse *use)
{
	ShedlockState state = judge_row(row, name, now, use);

	if (state != SHEDLOCK_FREE || use == NULL)
		return state;
	if (!use->known)
		ShedlockReadUse(&name->tag, use);

	/* What this transaction has released counts as released. */
	if (use->by_other ||
		(use->pids != NIL && row->found && row->kind != SHEDLOCK_RELEASED))
		return SHEDLOCK_IN_USE;
	return SHEDLOCK_FREE;
}

/*
 * ShedlockIsHeld - has a lock a holder, whether it is paused or not?
 *
 * A lock that is being acquired, or fenced, has none.  This reads the server's lock table for
 * a session lock of another session only.
 */
bool
ShedlockIsHeld(const ShedlockRow *row, const ShedlockName *name, TimestampTz now)
{
	ShedlockUse use = {0};

	return SHEDLOCK_HAS_HOLDER(judge_row(row, name, now, &use));
}

/*
 * ShedlockCallerHasRole - has the caller the privileges of the role that
 * acquired the lock?
 *
 * If that role is not known, only superusers have them: tokens can be guessed.
 */
bool
ShedlockCallerHasRole(const ShedlockRow *row)
{
	return OidIsValid(row->locked_role) ? has_privs_of_role(GetUserId(), row->locked_role) :
		superuser();
}

/*
 * ShedlockCheckRole - raise 42501 unless ShedlockCallerHasRole()
 *
 * The log names both roles, which the caller need not know.
 */
void
ShedlockCheckRole(const ShedlockRow *row, const ShedlockName *name)
{
	const char *role;

	if (ShedlockCallerHasRole(row))
		return;
	role = GetUserNameFromId(row->locked_role, true);
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for lock \"%s\"", name->str),
			 errdetail("It can be used only by roles with the privileges of the role that acquired it."),
			 errdetail_log("Role \"%s\" acquired it; role %s does not have its privileges.",
						   role ? role : "unknown", ShedlockActingRole())));
}

/*
 * ShedlockCallerOwns - does the caller own this lock, and is it alive?
 *
 * token 0: the caller gives none, so that this session must have acquired the
 * lock.  Raises 42501 without the privileges of the role that acquired it: a
 * session can serve several roles, and ANALYZE and others call functions with
 * the rights of a table's owner in the session of another role.  A session lock
 * of another session counts as alive here: only its advisory half can tell.
 */
bool
ShedlockCallerOwns(const ShedlockRow *row, const ShedlockName *name,
				   int64 token, TimestampTz now)
{
	bool		proved;

	if (token != 0)
		proved = row->token == token;
	else
		proved = is_of_this_backend(row) &&
			(!SHEDLOCK_IS_LEASE(row->kind) || ShedlockLeaseOfSession(row->token));
	if (!row->found || row->kind == SHEDLOCK_RELEASED || !proved)
		return false;
	ShedlockCheckRole(row, name);
	if (ShedlockCountsAsLease(row))
		return row->lock_until > now;
	if (row->origin != ShedlockOrigin())
		return false;
	return !is_of_this_backend(row) || ShedlockHolds(name, row->token);
}

/*
 * acquirer - who acquired the lock and when, for callers that may see that
 */
static char *
acquirer(const ShedlockRow *row)
{
	if (!ShedlockMaySee(row->locked_role))
		return pstrdup("another caller");
	return psprintf("\"%s\" at %s", ShedlockShownBy(row),
					ShedlockTimeString(row->locked_at));
}

/*
 * ShedlockLossDetail - what became of a lock that the caller does not own
 *
 * Call this after ShedlockCallerOwns() has returned false.  Returns a sentence
 * for DETAIL.
 */
char *
ShedlockLossDetail(const ShedlockRow *row, int64 token, TimestampTz now)
{
	if (!row->found)
		return pstrdup(token ?
					   "It was never acquired, or the transaction that acquired it was rolled back." :
					   "It was never acquired.");
	if (token > row->token)
		return psprintf("Token " INT64_FORMAT " never acquired it, or the transaction that acquired it was rolled back or is still open.",
						token);
	if (token != 0 && token < row->token)
		return psprintf("Token " INT64_FORMAT " was superseded by token " INT64_FORMAT ", acquired by %s.",
						token, row->token, acquirer(row));
	if (row->kind == SHEDLOCK_RELEASED)
		return psprintf("It was released; its last token is " INT64_FORMAT ".",
						row->token);
	if (ShedlockCountsAsLease(row) && row->lock_until <= now)
		return psprintf("It expired at %s.", ShedlockTimeString(row->lock_until));
	if (token == 0 && !is_of_this_backend(row))
		return psprintf("It was acquired by %s.", acquirer(row));
	return pstrdup(SHEDLOCK_IS_LEASE(row->kind) ?
				   "This session was reset or has prepared the transaction that acquired it; only its token proves its ownership now." :
				   "The session that acquired it has ended or was reset.");
}
