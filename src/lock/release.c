/*-------------------------------------------------------------------------
 *
 * release.c
 *	  Giving a lock back.
 *
 * The row is written as released, not deleted: ShedLock's Java clients
 * remember that a row exists.  Its at-least time is honoured by lock_until.
 * The advisory half of a lease was never held; that of a session lock goes
 * once the released row is visible (holdings.c).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/breakage.h"
#include "lock/lock.h"
#include "mb/pg_wchar.h"

/*
 * ShedlockSetReleased - what the row says once the lock is given back
 *
 * keep: honour the at-least time.  A ShedLock client whose lock this is proves
 * its ownership by locked_by, and by a clock that may be behind ours: its next
 * extend must not find its name there any more.
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

/*
 * ShedlockRelease - give a lock back
 *
 * Returns false, with a WARNING, if it was not the caller's or no longer held.
 * Errors: 22004, 42501, 55P03; 0A000 for a session lock of another session and for a
 * run.  Locks: the advisory half in share mode to the end of the transaction.
 * Waits for a row lock as an UPDATE does.
 */
bool
ShedlockRelease(const ShedlockName *name, int64 token)
{
	ShedlockStore store;
	ShedlockRow row;
	ShedlockHolding *holding;
	TimestampTz now;
	bool		mine;

	ShedlockBeginRelease();

	ShedlockOpen(&store, name->nsp, "shedlock");
	if (ShedlockBroken(NO_OWNER_CHECK))
	{
		ShedlockReadRow(&store, name->str, &row);
		token = row.token;
	}
	while ((mine = ShedlockSecure(&store, name, token, &row, &now)))
	{
		ShedlockCheckSession(&row, name, "released");
		holding = row.kind == SHEDLOCK_LEASE ? NULL :
			ShedlockFindHolding(name->str, row.token);
		if (holding && holding->is_run)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("lock \"%s\" is released by shedlock_run when its command ends",
							name->str)));
		ShedlockSetReleased(&row, now, true);
		if (ShedlockUpdateRow(&store, &row, true) == TM_Ok)
			break;

		/* Somebody was faster, and the lock need not be mine any more. */
		ShedlockUnlock(&name->tag, ShareLock);
	}
	ShedlockClose(&store);

	if (!mine)
	{
		ShedlockWarnLoss(&row, name, token, now);

		/* Its row was deleted: do not keep everybody off for nothing. */
		holding = ShedlockFindHolding(name->str, token);
		if (holding && !holding->is_run)
		{
			ShedlockWakeLater(&name->tag);
			ShedlockReleaseHolding(holding);
		}
	}
	else
	{
		if (holding)
			ShedlockReleaseHolding(holding);
		ShedlockEndRelease();
		if (shedlock_log_locks)
			ereport(LOG,
					(errmsg("lock \"%s\" released, token " INT64_FORMAT,
							name->str, row.token)));
	}
	return mine;
}
