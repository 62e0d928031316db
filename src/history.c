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
	ShedlockSetText(&columns, Anum_command, command);
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

	ShedlockOpen(&store, nsp, "shedlock_run_log");
	if (ShedlockFetch(&store, Int64GetDatum(token)) &&
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
			ShedlockSetText(&columns, Anum_message, edata->message);
		}
		(void) ShedlockUpdate(&store, &columns, false);
	}
	ShedlockClose(&store);
}

/*
 * ShedlockHistoryOutcome - outcome of a run as far as it is logged, or NULL
 */
char *
ShedlockHistoryOutcome(Oid nsp, int64 token)
{
	ShedlockStore store;
	char	   *outcome = NULL;

	ShedlockOpen(&store, nsp, "shedlock_run_log");
	if (ShedlockFetch(&store, Int64GetDatum(token)))
		outcome = outcome_of(&store);
	ShedlockClose(&store);
	return outcome;
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
	Relation	index;
	IndexScanDesc scan;

	ShedlockOpen(&store, nsp, "shedlock_run_log");
	index = index_open(store.index, AccessShareLock);
	scan = begin_index_scan(store.rel, index, SnapshotSelf, 0);
	index_rescan(scan, NULL, 0, NULL, 0);
	while (n < PRUNE_MAX &&
		   index_getnext_slot(scan, ForwardScanDirection, store.slot))
	{
		bool		isnull;
		TimestampTz started_at =
		DatumGetTimestampTz(slot_getattr(store.slot, Anum_started_at, &isnull));

		if (started_at >= limit)
			break;
		if (strcmp(outcome_of(&store), "running") != 0)
			old[n++] = store.slot->tts_tid;
	}
	index_endscan(scan);
	index_close(index, NoLock);

	while (n > 0)
		(void) ShedlockDelete(&store, &old[--n]);
	ShedlockClose(&store);
}
