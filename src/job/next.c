/*-------------------------------------------------------------------------
 *
 * next.c
 *	  When a call for a run can succeed, and since when it could.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job/job.h"
#include "utils/timestamp.h"

/* When to look again for what ends by an act that nobody can foresee. */
#define LOOK_AGAIN		USECS_PER_SEC

/* The same while a run has the lock: its end may come any time before its lease does. */
#define LOOK_FOR_END	USECS_PER_MINUTE

/*
 * ShedlockNextAt - the first time at which a call for a run of the name can succeed, as far as
 * can be foreseen
 *
 * row: its lock.  DT_NOEND: there is none, because it is paused for ever, or has no tick to
 * come.  Assumes that a call now would be refused.
 */
TimestampTz
ShedlockNextAt(const ShedlockName *name, const ShedlockRow *row, const ShedlockTick *last,
			   const ShedlockJob *job)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz at = now;
	bool		held = row->found && ShedlockIsHeld(row, name, now);

	if (row->found)
	{
		if (ShedlockCountsAsLease(row))
			at = Max(at, row->lock_until);
		else if (!held)
			at = Max(at, row->keep_until);
		else if (ShedlockHolderEnd(row) != DT_NOEND)
			at = Max(at, ShedlockHolderEnd(row));
		at = Max(at, row->paused_until);
	}
	if (job->found)
		at = ShedlockNextTime(last, job, at);
	if (held && SHEDLOCK_IS_RUN(row->kind))
		at = Min(at, now + LOOK_FOR_END);
	return at <= now ? now + LOOK_AGAIN : at;
}
