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

#include "access/xlog.h"
#include "shedlock.h"
#include "utils/builtins.h"

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

PG_FUNCTION_INFO_V1(_shedlock_run_outcome);
/*
 * _shedlock_run_outcome(token, name, logged) - outcome of a run at this moment
 *
 * logged: what the caller's snapshot says.  Null if the view does not show it to
 * the caller.
 */
Datum
_shedlock_run_outcome(PG_FUNCTION_ARGS)
{
	int64		token = PG_GETARG_INT64(0);
	char	   *str = text_to_cstring(PG_GETARG_TEXT_PP(1));
	char	   *logged = text_to_cstring(PG_GETARG_TEXT_PP(2));
	ShedlockName name;

	if (strcmp(logged, "running") != 0)
		PG_RETURN_DATUM(PG_GETARG_DATUM(2));
	if (RecoveryInProgress())
		PG_RETURN_TEXT_P(cstring_to_text("unknown"));

	ShedlockMakeName(ShedlockSchema(fcinfo), str, &name);
	if (!ShedlockHistoryMaySee(name.nsp, token))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(ShedlockHistoryOutcome(&name, token, logged)));
}
