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
 * run_lives - does a run still hold its lock on this server?
 */
static bool
run_lives(const ShedlockName *name, int64 token)
{
	ShedlockRow row;

	ShedlockLookUpRow(name, &row);
	return row.token == token && ShedlockIsHeld(&row, name, GetCurrentTimestamp()) &&
		(row.kind == SHEDLOCK_LEASED_RUN ||
		 (row.kind == SHEDLOCK_RUN && !ShedlockCountsAsLease(&row)));
}

/*
 * ShedlockRunOutcome - the outcome of a run as of now; NULL if it is not logged
 *
 * A run without a holder is lost only if the log, read after the lock, still says
 * that it is running.  "unknown": it is running according to the log, on a standby,
 * which has no holders.
 */
const char *
ShedlockRunOutcome(const ShedlockName *name, int64 token)
{
	ShedlockLogged logged;

	ShedlockHistoryRead(name->nsp, token, &logged);
	if (logged.token == 0)
		return NULL;
	if (strcmp(logged.outcome, "running") != 0)
		return logged.outcome;
	if (RecoveryInProgress())
		return "unknown";
	if (run_lives(name, token))
		return logged.outcome;
	ShedlockHistoryRead(name->nsp, token, &logged);
	return logged.token == 0 || strcmp(logged.outcome, "running") == 0 ? "lost" : logged.outcome;
}
