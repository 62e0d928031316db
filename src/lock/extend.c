/*-------------------------------------------------------------------------
 *
 * extend.c
 *	  Setting the end of a held lock anew.
 *
 * Counted from now, so that an extend can also shorten; but a lock never ends
 * before its at-least time.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lock/lock.h"

/*
 * set_end - what the row says once the lock is extended
 */
static void
set_end(ShedlockRow *row, const char *name, TimestampTz now,
		Interval *at_most, Interval *at_least)
{
	if (at_most)
		row->at_most = at_most;
	else if (row->at_most &&
			 ShedlockIsOverCap(row->at_most, shedlock_max_lock_at_most_for))
		row->at_most = ShedlockIntervalSetting(shedlock_max_lock_at_most_for);
	if (at_least)
	{
		if (row->at_most)
			ShedlockCheckAtLeast(at_least, row->at_most, name);
		row->keep_until = ShedlockAddInterval(now, at_least);
	}
	row->lock_until = ShedlockAddInterval(now, row->at_most ? row->at_most :
										  ShedlockIntervalSetting(shedlock_default_lock_at_most_for));
	row->lock_until = Max(row->lock_until, row->keep_until);
}

/*
 * ShedlockExtend - set the end anew
 *
 * at_most NULL: the duration of the acquire.  at_least NULL: unchanged.
 * Returns false, with a WARNING, if it was not the caller's or no longer held.
 * Errors: 22004, 22023, 42501, 55P03, 0A000 for a session lock of another session.
 * Locks: the advisory half in share mode to the end of the transaction.  Waits
 * for a row lock as an UPDATE does.
 */
bool
ShedlockExtend(const ShedlockName *name, int64 token, Interval *at_most,
			   Interval *at_least)
{
	ShedlockStore store;
	ShedlockRow row;
	ShedlockHolding *holding;
	TimestampTz now;
	bool		mine;

	ShedlockOpen(&store, name->nsp, "shedlock");
	while ((mine = ShedlockSecure(&store, name, token, &row, &now)))
	{
		ShedlockCheckSession(&row, name, "extended");
		set_end(&row, name->str, now, at_most, at_least);
		if (ShedlockUpdateRow(&store, &row, true) == TM_Ok)
			break;

		/* Somebody was faster, and the lock need not be mine any more. */
		ShedlockUnlock(&name->tag, ShareLock);
	}
	ShedlockClose(&store);

	if (!mine)
		ShedlockWarnLoss(&row, name, token, now);
	else
	{
		holding = row.kind == SHEDLOCK_LEASE ? NULL :
			ShedlockFindHolding(name->str, row.token);
		if (holding && row.at_most)
			ShedlockExtendHolding(holding, row.lock_until);
		ShedlockCommitDurably();
		if (shedlock_log_locks)
			ereport(LOG,
					(errmsg("lock \"%s\" extended until %s, token " INT64_FORMAT,
							name->str, ShedlockTimeString(row.lock_until), row.token)));
	}
	return mine;
}
