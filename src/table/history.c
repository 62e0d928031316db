/*-------------------------------------------------------------------------
 *
 * history.c
 *	  The log of runs.
 *
 * The transaction that acquires the lock of a run logs it as running, and the one that
 * releases the lock logs the outcome (I6).  A process that dies writes no tables (I10):
 * its run stays logged as running until the lock's next acquirer logs it as lost.  The
 * view shows it as lost at once (finish.c).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "common/pg_prng.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_RUN_LOG_COLUMNS(SHEDLOCK_ATTNUM)
};

/* A call removes at most PRUNE_MAX of the oldest runs, and stops after KEPT_MAX that stay. */
#define PRUNE_MAX		100
#define KEPT_MAX		16

typedef struct
{
	ShedlockStore *store;
	TimestampTz limit;			/* a run that began before that is old */
	Relation	name_index;		/* NULL until an old run is met */
	TupleTableSlot *newer;
	int			kept;			/* old runs that stay */
	int			removed;		/* the others, or they are locked */
} Pruning;

/* Bytes of a command that are kept. */
#define COMMAND_MAX		8192

/*
 * ShedlockClip - copy at most max bytes of a text, and its length if it has more
 *
 * to: room for max + SHEDLOCK_CLIP_NOTE bytes.  Allocates nothing and cannot fail.
 */
void
ShedlockClip(char *to, const char *str, int max)
{
	int			len = (int) strlen(str);

	if (len <= max)
		memcpy(to, str, (size_t) len + 1);
	else
		snprintf(to, (size_t) max + SHEDLOCK_CLIP_NOTE, "%.*s... (%d bytes)",
				 pg_mbcliplen(str, len, max), str, len);
}

/*
 * set_clipped - set a column to a text that any role can make as long as it likes
 */
static void
set_clipped(ShedlockColumns *columns, int attnum, const char *str, int max)
{
	char	   *clipped = palloc((Size) max + SHEDLOCK_CLIP_NOTE);

	ShedlockClip(clipped, str, max);
	ShedlockSetColumn(columns, attnum, CStringGetTextDatum(clipped));
}

/*
 * ShedlockHistoryStart - log a run whose lock was acquired
 *
 * row: as the acquire has written it.  tick: NULL if the run has none.  Errors: 23505 if
 * the token was drawn twice; those of ShedlockOpen() and ShedlockCheckPromises().
 */
void
ShedlockHistoryStart(const ShedlockName *name, const ShedlockRow *row,
					 const char *command, const TimestampTz *tick)
{
	ShedlockStore store;
	ShedlockColumns columns;

	ShedlockOpen(&store, name->nsp, "shedlock_run_log");
	ShedlockCheckPromises(&store);
	ShedlockNewColumns(&store, &columns);
	ShedlockSetColumn(&columns, Anum_token, Int64GetDatum(row->token));
	ShedlockSetColumn(&columns, Anum_name, CStringGetTextDatum(name->str));
	set_clipped(&columns, Anum_command, command, COMMAND_MAX);
	if (tick)
		ShedlockSetColumn(&columns, Anum_tick, TimestampTzGetDatum(*tick));
	ShedlockSetColumn(&columns, Anum_started_at, TimestampTzGetDatum(row->locked_at));
	ShedlockSetColumn(&columns, Anum_outcome, CStringGetTextDatum("running"));
	ShedlockSetColumn(&columns, Anum_run_role, ObjectIdGetDatum(row->locked_role));
	ShedlockSetColumn(&columns, Anum_locked_by, CStringGetTextDatum(row->locked_by));
	ShedlockSetColumn(&columns, Anum_pid, Int32GetDatum(row->pid));

	if (!ShedlockInsert(&store, &columns))
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("token " INT64_FORMAT " is in the history already", row->token),
				 errhint("The sequence shedlock_token_seq was set back.")));
	ShedlockClose(&store);
}

/*
 * outcome_of - the logged outcome of the run that was fetched last
 */
static char *
outcome_of(ShedlockStore *store)
{
	bool		isnull;

	return TextDatumGetCString(slot_getattr(store->slot, Anum_outcome, &isnull));
}

/*
 * ShedlockHistoryEnd - log the outcome of a run, unless it has one or was pruned
 *
 * edata: the error that ended the run, or NULL.  warning: the last one of its command,
 * or "".  Warns, and logs nothing, if a foreign writer has the row locked for 100 ms.
 */
void
ShedlockHistoryEnd(Oid nsp, int64 token, const char *outcome,
				   const ErrorData *edata, const char *warning)
{
	ShedlockStore store;
	int			tries = 0;

	ShedlockOpen(&store, nsp, "shedlock_run_log");
	while (ShedlockFetch(&store, Int64GetDatum(token)) &&
		   strcmp(outcome_of(&store), "running") == 0)
	{
		ShedlockColumns columns;

		ShedlockNewColumns(&store, &columns);
		ShedlockSetColumn(&columns, Anum_outcome, CStringGetTextDatum(outcome));
		if (strcmp(outcome, "lost") != 0)
			ShedlockSetColumn(&columns, Anum_ended_at,
							  TimestampTzGetDatum(GetCurrentTimestamp()));
		if (edata)
		{
			ShedlockSetColumn(&columns, Anum_sqlstate, CStringGetTextDatum(unpack_sql_state(edata->sqlerrcode)));
			set_clipped(&columns, Anum_message, edata->message, SHEDLOCK_MESSAGE_MAX);
		}
		if (warning[0] != '\0')
			ShedlockSetColumn(&columns, Anum_warning, CStringGetTextDatum(warning));
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
 * ShedlockHistoryLost - log that a run of a dead session is lost
 */
void
ShedlockHistoryLost(Oid nsp, int64 token)
{
	ShedlockHistoryEnd(nsp, token, "lost", NULL, "");
}

/*
 * ShedlockHistoryLogged - the logged outcome of a run; NULL if it is not logged
 */
char *
ShedlockHistoryLogged(Oid nsp, int64 token)
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
 * open_name_index - open the index of names and tokens
 *
 * By its columns: the table's owner can have replaced it by one of another name.
 */
static Relation
open_name_index(Relation rel)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Form_pg_index form = index->rd_index;

		if (index->rd_rel->relam == BTREE_AM_OID && form->indisvalid &&
			form->indnkeyatts >= 2 && form->indkey.values[0] == Anum_name &&
			form->indkey.values[1] == Anum_token &&
			RelationGetIndexPredicate(index) == NIL)
			return index;
		index_close(index, AccessShareLock);
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("table \"%s\" of extension \"shedlock\" has no index of name and token",
					RelationGetRelationName(rel))));
}

/*
 * is_last_run - is there no newer run of the name in the store's slot?
 */
static bool
is_last_run(ShedlockStore *store, Relation name_index, TupleTableSlot *slot)
{
	bool		isnull;
	ScanKeyData keys[2];
	IndexScanDesc scan;
	bool		newer;

	ScanKeyEntryInitialize(&keys[0], 0, 1, BTEqualStrategyNumber, InvalidOid,
						   name_index->rd_indcollation[0], F_TEXTEQ,
						   slot_getattr(store->slot, Anum_name, &isnull));
	ScanKeyEntryInitialize(&keys[1], 0, 2, BTGreaterStrategyNumber, InvalidOid,
						   InvalidOid, F_INT8GT,
						   slot_getattr(store->slot, Anum_token, &isnull));
	scan = begin_index_scan(store->rel, name_index, SnapshotSelf, 2);
	index_rescan(scan, keys, 2, NULL, 0);
	newer = index_getnext_slot(scan, ForwardScanDirection, slot);
	index_endscan(scan);
	return !newer;
}

/*
 * prune_run - remove the run in the store's slot if it is old and not its name's last
 *
 * Returns false if it is not old.
 */
static bool
prune_run(Pruning *pruning)
{
	ShedlockStore *store = pruning->store;
	ItemPointerData tid = store->slot->tts_tid;
	bool		isnull;

	if (DatumGetTimestampTz(slot_getattr(store->slot, Anum_started_at, &isnull)) >= pruning->limit)
		return false;
	if (pruning->name_index == NULL)
	{
		pruning->name_index = open_name_index(store->rel);
		pruning->newer = table_slot_create(store->rel, NULL);
	}
	if (is_last_run(store, pruning->name_index, pruning->newer))
		pruning->kept++;
	else
	{
		(void) ShedlockDelete(store, &tid);
		pruning->removed++;
	}
	return true;
}

/*
 * prune_front - prune the oldest runs, in the order of their tokens
 */
static void
prune_front(Pruning *pruning)
{
	ShedlockStore *store = pruning->store;
	IndexScanDesc scan;

	scan = begin_index_scan(store->rel, ShedlockPrimaryKey(store), SnapshotSelf, 0);
	index_rescan(scan, NULL, 0, NULL, 0);
	while (pruning->removed < PRUNE_MAX && pruning->kept < KEPT_MAX &&
		   index_getnext_slot(scan, ForwardScanDirection, store->slot) &&
		   prune_run(pruning))
		;
	index_endscan(scan);
}

/*
 * prune_random_page - prune the runs on a random page of the table
 */
static void
prune_random_page(Pruning *pruning)
{
	ShedlockStore *store = pruning->store;
	BlockNumber npages = RelationGetNumberOfBlocks(store->rel);
	uint64		page = pg_prng_uint64_range(&pg_global_prng_state, 0, npages - 1);
	ItemPointerData first = {{(uint16) (page >> 16), (uint16) page}, FirstOffsetNumber};
	ItemPointerData last = first;
	TableScanDesc scan;

	last.ip_posid = MaxOffsetNumber;
	scan = begin_tid_range_scan(store->rel, SnapshotSelf, &first, &last);
	while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection, store->slot))
		(void) prune_run(pruning);
	table_endscan(scan);
}

/*
 * ShedlockHistoryPrune - remove runs older than shedlock.history_keep
 *
 * The last run of each name stays: it tells when a job last ran.  A run that is at work
 * is the last of its name.
 *
 * Each call removes some, the oldest first.  The last runs of jobs that no longer exist
 * gather at the front, where each call meets them first, and a process may call this
 * only once.  So a call that meets KEPT_MAX of them also looks at one random page: it
 * reads no more however many runs there are, and each old run is found in time.  A
 * random token instead of a page would not do, because leases draw from the same
 * sequence, and most tokens lie in the gaps.
 */
void
ShedlockHistoryPrune(Oid nsp)
{
	ShedlockStore store;
	Pruning		pruning = {.store = &store};

	ShedlockOpen(&store, nsp, "shedlock_run_log");
	pruning.limit = GetCurrentTimestamp() - shedlock_history_keep * USECS_PER_SEC;
	prune_front(&pruning);
	if (pruning.kept == KEPT_MAX)
		prune_random_page(&pruning);
	if (pruning.name_index)
	{
		ExecDropSingleTupleTableSlot(pruning.newer);
		index_close(pruning.name_index, AccessShareLock);
	}
	ShedlockClose(&store);
}
