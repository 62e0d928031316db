/*-------------------------------------------------------------------------
 *
 * outcome.c
 *	  What became of a run, as of now.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "job/job.h"
#include "utils/timestamp.h"

/*
 * ShedlockCountsAsRun - is a run at work on this server, if the lock is held?
 *
 * One that began before a failover is lost, although its lock still counts as a lease.
 */
bool
ShedlockCountsAsRun(const ShedlockRow *row)
{
	return row->kind == SHEDLOCK_LEASED_RUN ||
		(row->kind == SHEDLOCK_RUN && !ShedlockCountsAsLease(row));
}

/*
 * ShedlockReadRun - read what the history has of a run, with its outcome as of now
 *
 * A run without a holder is lost only if the history, read after the lock, still says that it is
 * running.
 */
void
ShedlockReadRun(const ShedlockName *name, int64 token, ShedlockHistoryRun *run)
{
	ShedlockHistoryRead(name->nsp, token, run);
	if (run->outcome != SHEDLOCK_RUNNING)
		return;
	if (RecoveryInProgress())
		run->outcome = SHEDLOCK_RUN_UNKNOWN;
	else
	{
		ShedlockRow row;

		ShedlockLookUpRow(name, &row);
		if (row.token == token && ShedlockIsHeld(&row, name, GetCurrentTimestamp()) &&
			ShedlockCountsAsRun(&row))
			return;
		ShedlockHistoryRead(name->nsp, token, run);
		if (run->outcome == SHEDLOCK_RUNNING)
			run->outcome = ShedlockLostOutcome(run, &row);
	}
}
