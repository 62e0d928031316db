/*-------------------------------------------------------------------------
 *
 * outcome.c
 *	  What has become of a run, by its log and its lock.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job/job.h"

/*
 * run_lives - does a run still hold its lock on this server?
 */
static bool
run_lives(const ShedlockName *name, int64 token)
{
	ShedlockStore store;
	ShedlockRow row;

	ShedlockOpenToRead(&store, name->nsp, "shedlock");
	ShedlockReadRow(&store, name->str, &row);
	ShedlockClose(&store);
	return row.found && row.token == token && row.kind == SHEDLOCK_RUN &&
		!ShedlockCountsAsLease(&row) && ShedlockHolderLives(&row, name, false);
}

/*
 * ShedlockHistoryOutcome - outcome of a run at this moment
 *
 * logged: what the caller has read, which may be older than the end of the
 * run, or NULL.  A run without holder is lost only if the log, read after the
 * lock, still says that it runs.  Returns NULL if the log does not have it.
 */
char *
ShedlockHistoryOutcome(const ShedlockName *name, int64 token, char *logged)
{
	char	   *outcome = logged ? logged : ShedlockHistoryLogged(name->nsp, token);

	if (outcome == NULL || strcmp(outcome, "running") != 0 ||
		run_lives(name, token))
		return outcome;
	outcome = ShedlockHistoryLogged(name->nsp, token);
	if (outcome == NULL || strcmp(outcome, "running") == 0)
		outcome = pstrdup("lost");
	return outcome;
}
