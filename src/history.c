/*-------------------------------------------------------------------------
 *
 * history.c
 *	  The log of runs.
 *
 * A row is written with the lock ('running'), in the same transaction, and
 * once more with the release.  A run that died keeps 'running' until somebody
 * acquires its lock, who writes 'lost'; the view shows that at once.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/xlog.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "shedlock.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Columns of shedlock_run_log, in the order of the install script. */
enum
{
	Anum_token = 1,
	Anum_name,
	Anum_command,
	Anum_tick,
	Anum_started_at,
	Anum_ended_at,
	Anum_outcome,
	Anum_sqlstate,
	Anum_message,
	Anum_run_role,
	Anum_locked_by,
	Anum_pid
};

/* At most that many old rows are removed with each run. */
#define PRUNE_MAX		100

/* Bytes of these that are kept; what is longer ends in "..." and its length. */
#define COMMAND_MAX		8192
#define MESSAGE_MAX		4096

/*
 * set_clipped - store a text that may be of any length
 *
 * Everybody may log runs, and they stay for long.
 */
static void
set_clipped(ShedlockColumns *columns, int attnum, const char *str, int max)
{
	int			len = (int) strlen(str);

	if (len > max)
		str = psprintf("%.*s... (%d bytes)", pg_mbcliplen(str, len, max), str, len);
	ShedlockSetText(columns, attnum, str);
}

/*
 * ShedlockHistoryStart - log a run that is about to start
 *
 * row: the lock's, as written.  tick: NULL if the run is for none.
 */
void
ShedlockHistoryStart(const ShedlockName *name, const ShedlockRow *row,
					 const char *command, const TimestampTz *tick)
{
	ShedlockStore store;
	ShedlockColumns columns;

	ShedlockOpen(&store, name->nsp, "shedlock_run_log");
	ShedlockNewColumns(&store, &columns);
	ShedlockSetColumn(&columns, Anum_token, Int64GetDatum(row->token));
	ShedlockSetText(&columns, Anum_name, name->str);
	set_clipped(&columns, Anum_command, command, COMMAND_MAX);
	if (tick)
		ShedlockSetColumn(&columns, Anum_tick, TimestampTzGetDatum(*tick));
	ShedlockSetColumn(&columns, Anum_started_at, TimestampTzGetDatum(row->locked_at));
	ShedlockSetText(&columns, Anum_outcome, "running");
	ShedlockSetColumn(&columns, Anum_run_role, ObjectIdGetDatum(row->locked_role));
	ShedlockSetText(&columns, Anum_locked_by, row->locked_by);
	ShedlockSetColumn(&columns, Anum_pid, Int32GetDatum(row->pid));

	if (!ShedlockInsert(&store, &columns))
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("token " INT64_FORMAT " is in the history already", row->token),
				 errhint("The sequence shedlock_token_seq was set back.")));
	ShedlockClose(&store);
}

/*
 * outcome_of - of the run that was fetched last
 */
static char *
outcome_of(ShedlockStore *store)
{
	bool		isnull;

	return TextDatumGetCString(slot_getattr(store->slot, Anum_outcome, &isnull));
}

/*
 * ShedlockHistoryEnd - log the outcome of a run
 *
 * edata: the error that ended it, or NULL.  An outcome that is there already
 * stays, and a row that was pruned is not missed.
 */
void
ShedlockHistoryEnd(Oid nsp, int64 token, const char *outcome, const ErrorData *edata)
{
	ShedlockStore store;
	int			tries = 0;

	ShedlockOpen(&store, nsp, "shedlock_run_log");
	while (ShedlockFetch(&store, Int64GetDatum(token)) &&
		   strcmp(outcome_of(&store), "running") == 0)
	{
		ShedlockColumns columns;

		ShedlockNewColumns(&store, &columns);
		ShedlockSetText(&columns, Anum_outcome, outcome);
		if (strcmp(outcome, "lost") != 0)
			ShedlockSetColumn(&columns, Anum_ended_at,
							  TimestampTzGetDatum(GetCurrentTimestamp()));
		if (edata)
		{
			ShedlockSetText(&columns, Anum_sqlstate, unpack_sql_state(edata->sqlerrcode));
			set_clipped(&columns, Anum_message, edata->message, MESSAGE_MAX);
		}
		if (ShedlockUpdate(&store, &columns, false) == TM_Ok)
			break;
		if (!ShedlockAwaitForeignLock(&tries))
		{
			ereport(WARNING,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not log outcome \"%s\" of the run with token " INT64_FORMAT,
							outcome, token),
					 errdetail("Its row in shedlock_run_log is locked.")));
			break;
		}
	}
	ShedlockClose(&store);
}

/*
 * logged_outcome - outcome of a run as far as it is logged, or NULL
 */
static char *
logged_outcome(Oid nsp, int64 token)
{
	ShedlockStore store;
	char	   *outcome = NULL;

	ShedlockOpenToRead(&store, nsp, "shedlock_run_log");
	if (ShedlockFetch(&store, Int64GetDatum(token)))
		outcome = outcome_of(&store);
	ShedlockClose(&store);
	return outcome;
}

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
 * ShedlockHistoryMaySee - does the view show this run to the caller?
 */
bool
ShedlockHistoryMaySee(Oid nsp, int64 token)
{
	ShedlockStore store;
	Oid			role = InvalidOid;
	bool		isnull;

	ShedlockOpenToRead(&store, nsp, "shedlock_run_log");
	if (ShedlockFetch(&store, Int64GetDatum(token)))
		role = DatumGetObjectId(slot_getattr(store.slot, Anum_run_role, &isnull));
	ShedlockClose(&store);
	return ShedlockMaySee(role);
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
	char	   *outcome = logged ? logged : logged_outcome(name->nsp, token);

	if (outcome == NULL || strcmp(outcome, "running") != 0 ||
		run_lives(name, token))
		return outcome;
	outcome = logged_outcome(name->nsp, token);
	if (outcome == NULL || strcmp(outcome, "running") == 0)
		outcome = pstrdup("lost");
	return outcome;
}

/*
 * slot_run_lives - the same for a row of the history
 */
static bool
slot_run_lives(Oid nsp, TupleTableSlot *slot)
{
	bool		isnull;
	ShedlockName name;

	ShedlockMakeName(nsp, TextDatumGetCString(slot_getattr(slot, Anum_name, &isnull)), &name);
	return run_lives(&name, DatumGetInt64(slot_getattr(slot, Anum_token, &isnull)));
}

/*
 * ShedlockHistoryPrune - remove runs older than shedlock.history_keep
 *
 * Oldest first, which is the order of tokens, and only some of them a call.
 */
void
ShedlockHistoryPrune(Oid nsp)
{
	TimestampTz limit = GetCurrentTimestamp() - shedlock_history_keep * USECS_PER_SEC;
	ItemPointerData old[PRUNE_MAX];
	int			n = 0;
	ShedlockStore store;
	IndexScanDesc scan;

	ShedlockOpen(&store, nsp, "shedlock_run_log");
	scan = begin_index_scan(store.rel, ShedlockPrimaryKey(&store), SnapshotSelf, 0);
	index_rescan(scan, NULL, 0, NULL, 0);
	while (n < PRUNE_MAX &&
		   index_getnext_slot(scan, ForwardScanDirection, store.slot))
	{
		bool		isnull;
		TimestampTz started_at =
		DatumGetTimestampTz(slot_getattr(store.slot, Anum_started_at, &isnull));

		if (started_at >= limit)
			break;
		if (strcmp(outcome_of(&store), "running") != 0 || !slot_run_lives(nsp, store.slot))
			old[n++] = store.slot->tts_tid;
	}
	index_endscan(scan);

	while (n > 0)
		(void) ShedlockDelete(&store, &old[--n]);
	ShedlockClose(&store);
}

PG_FUNCTION_INFO_V1(shedlock_run_outcome);
/*
 * shedlock_run_outcome(token, name, logged) - outcome of a run at this moment
 *
 * logged: what the caller's snapshot says.  Null if the view does not show it to
 * the caller.
 */
Datum
shedlock_run_outcome(PG_FUNCTION_ARGS)
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
