/*-------------------------------------------------------------------------
 *
 * pause.c
 *	  For administrators: pausing a lock, and resuming it.
 *
 * EXECUTE is granted only to the owner.  Each act writes a line to the server log, with the
 * role.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/api.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

/* The time between two tries for the advisory half in share mode. */
#define SHARE_NAP_MS		10

/*
 * set_pause - pause a lock until that time, or end its pause if it is DT_NOBEGIN
 *
 * Returns false if there was no pause to end.  Locks: the advisory half in share mode to the
 * end of the transaction; waits for an acquire that is not committed.
 */
static bool
set_pause(const ShedlockName *name, TimestampTz until, char *reason)
{
	bool		pauses = until != DT_NOBEGIN;
	char	   *role = pauses ? GetUserNameFromId(GetUserId(), false) : NULL;
	bool		written = false;
	int			tries = 0;
	ShedlockWait wait = {0};
	ShedlockStore store;
	ShedlockRow row;

	ShedlockOpen(&store, name->nsp, "shedlock", RowExclusiveLock);
	if (pauses)
		ShedlockCheckPromises(&store);
	for (;;)
	{
		while (!ShedlockTryShare(&name->tag))
			ShedlockAwaitShare(name, &wait, SHARE_NAP_MS);
		wait.suspect = 0;
		ShedlockReadHeldRow(&store, name->str, &row);
		if (!pauses && !(row.found && row.paused_until > GetCurrentTimestamp()))
		{
			ShedlockUnlock(&name->tag, ShareLock);
			break;
		}
		if (!row.found)
		{
			row.name = name->str;
			row.lock_until = row.locked_at = GetCurrentTimestamp();
			row.locked_by = "";
			row.kind = SHEDLOCK_RELEASED;
			row.keep_until = DT_NOBEGIN;
		}

		/* Until when something was in the way of a run: state.c. */
		row.paused_until = pauses ? until : GetCurrentTimestamp();
		row.paused_by = role;
		row.pause_reason = reason;
		written = ShedlockWriteRow(&store, &row, true);
		if (written)
			break;

		/* The transaction that has inserted the row may want to acquire. */
		ShedlockUnlock(&name->tag, ShareLock);
		if (!row.found)
			ShedlockAwaitInserter(&store, name, &tries);
	}
	ShedlockEndWait(&wait);
	ShedlockClose(&store, NoLock);
	if (written && pauses)
		ShedlockCommitDurably();
	if (written)
		ShedlockTellLock(pauses ? "paused" : "resumed", name, row.token, until);
	return written;
}

/*
 * notice_missed - tell which tick of a job will be made up after a pause
 *
 * One that is skipped is not.
 */
static void
notice_missed(const ShedlockName *name, TimestampTz until)
{
	ShedlockJob job;
	ShedlockTick last;
	TimestampTz tick;

	ShedlockLookUpJob(name, &job);
	ShedlockLookUpTick(name, &last);
	if (!job.is_readable ||
		ShedlockNextTick(&job.schedule, Max(Max(last.tick, job.since), GetCurrentTimestamp())) >= until)
		return;

	tick = TIMESTAMP_IS_NOEND(until) ? until : ShedlockPreviousTick(&job.schedule, until - 1);
	if (until > ShedlockLastTime(tick, &job) || (!job.catch_up_all && tick == last.skipped))
		return;
	if (job.catch_up_all)
		ereport(NOTICE,
				(errmsg("the ticks of job \"%s\" that come during the pause will be made up", name->str),
				 job.max_late ? errdetail("Those later than its max_late will not.") : 0));
	else
		ereport(NOTICE,
				(TIMESTAMP_IS_NOEND(until) ?
				 errmsg("the last tick of job \"%s\" that comes during the pause will be made up", name->str) :
				 errmsg("tick %s of job \"%s\" will be made up after the pause",
						ShedlockTimeString(tick), name->str),
				 job.max_late ? errdetail("The next call for the job does that, unless another tick comes before it, or its max_late is over.") :
				 errdetail("The next call for the job does that, unless another tick comes before it.")));
}

/*
 * is_due - is a run of a job due?
 */
static bool
is_due(const ShedlockName *name)
{
	ShedlockJob job;
	ShedlockTick last;

	ShedlockLookUpJob(name, &job);
	ShedlockLookUpTick(name, &last);
	return job.found && ShedlockFindDue(&last, &job, GetCurrentTimestamp()).attempt > 0;
}

PG_FUNCTION_INFO_V1(shedlock_pause);
/*
 * shedlock_pause(name, until, reason) - refuse the lock to all until then
 *
 * Pauses a name that was never used, too: it may be that of a future job.
 */
Datum
shedlock_pause(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	TimestampTz until;
	char	   *reason;

	ShedlockBeginCall(fcinfo, "shedlock_pause()", &name);
	ShedlockRefuseNull(PG_ARGISNULL(1), "end of the pause", name.str);
	until = PG_GETARG_TIMESTAMPTZ(1);
	if (until <= GetCurrentTimestamp())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("end of the pause of lock \"%s\" must be in the future", name.str)));
	reason = ShedlockGetText(fcinfo, 2, SHEDLOCK_REASON_MAX, "reason");
	(void) ShedlockWarnIfUnknown(&name, "Check the spelling.  The lock is paused anyway; shedlock_resume ends that.");
	(void) set_pause(&name, until, reason);
	notice_missed(&name, until);
	ereport(LOG,
			(errmsg("lock \"%s\" paused until %s by role %s",
					name.str, ShedlockTimeString(until), ShedlockActingRole())));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(shedlock_resume);
/*
 * shedlock_resume(name) - end a pause
 *
 * pg_cron, which may fire the job first at its next tick, is to make up what was missed.
 */
Datum
shedlock_resume(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	bool		paused;

	ShedlockBeginCall(fcinfo, "shedlock_resume()", &name);
	paused = set_pause(&name, DT_NOBEGIN, NULL);
	if (paused)
	{
		ereport(LOG,
				(errmsg("lock \"%s\" resumed by role %s", name.str, ShedlockActingRole())));
		if (is_due(&name))
			ShedlockRunSoon(fcinfo, &name);
	}
	else
		(void) ShedlockWarnIfUnknown(&name, NULL);
	PG_RETURN_BOOL(paused);
}
