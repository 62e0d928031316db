/*-------------------------------------------------------------------------
 *
 * history.c
 *	  The log of runs.
 *
 * A row is written with the lock ('running'), in the same transaction, and
 * once more with the release.  A run that died keeps 'running' until somebody
 * acquires its lock, who writes 'lost'; the view shows that at once
 * (outcome.c).
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
	Anum_pid,
	Anum_warning
};

/* Among the oldest rows at most that many are removed, and met that stay. */
#define PRUNE_MAX		100
#define KEPT_MAX		16

typedef struct
{
	ShedlockStore *store;
	TimestampTz limit;			/* who began before that is old */
	Relation	name_index;		/* NULL until an old row is met */
	TupleTableSlot *newer;
	int			kept;			/* old rows that stay */
	int			nold;
	ItemPointerData old[Max(PRUNE_MAX, MaxHeapTuplesPerPage)];	/* to be removed */
} Pruning;

/* Bytes of a command that are kept; what is longer ends in "..." and its length. */
#define COMMAND_MAX		8192

/*
 * ShedlockClip - copy a text, or its beginning and its length if it is too long
 *
 * to: room for max + SHEDLOCK_CLIP_NOTE bytes.  Needs no memory and cannot fail.
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
 * set_clipped - store a text that may be of any length
 *
 * Everybody may log runs, and they stay for long.
 */
static void
set_clipped(ShedlockColumns *columns, int attnum, const char *str, int max)
{
	char	   *clipped = palloc((Size) max + SHEDLOCK_CLIP_NOTE);

	ShedlockClip(clipped, str, max);
	ShedlockSetText(columns, attnum, clipped);
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
	ShedlockCheckPromises(&store);
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
 * edata: the error that ended it, or NULL.  warning: the last one of its command,
 * or "".  An outcome that is there already stays, and a row that was pruned is
 * not missed.
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
		ShedlockSetText(&columns, Anum_outcome, outcome);
		if (strcmp(outcome, "lost") != 0)
			ShedlockSetColumn(&columns, Anum_ended_at,
							  TimestampTzGetDatum(GetCurrentTimestamp()));
		if (edata)
		{
			ShedlockSetText(&columns, Anum_sqlstate, unpack_sql_state(edata->sqlerrcode));
			set_clipped(&columns, Anum_message, edata->message, SHEDLOCK_MESSAGE_MAX);
		}
		if (warning[0] != '\0')
			ShedlockSetText(&columns, Anum_warning, warning);
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
 * ShedlockHistoryLost - log that a run which somebody else began is lost
 */
void
ShedlockHistoryLost(Oid nsp, int64 token)
{
	ShedlockHistoryEnd(nsp, token, "lost", NULL, "");
}

/*
 * ShedlockHistoryLogged - outcome of a run as far as it is logged, or NULL
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
 * The table's owner can have replaced it by one of another name.
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
 * look_at - shall the run in the store's slot be removed?
 *
 * Returns false if it is young.
 */
static bool
look_at(Pruning *pruning)
{
	ShedlockStore *store = pruning->store;
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
		pruning->old[pruning->nold++] = store->slot->tts_tid;
	return true;
}

/*
 * look_at_front - look at the oldest runs, which is the order of tokens
 */
static void
look_at_front(Pruning *pruning)
{
	ShedlockStore *store = pruning->store;
	IndexScanDesc scan;

	scan = begin_index_scan(store->rel, ShedlockPrimaryKey(store), SnapshotSelf, 0);
	index_rescan(scan, NULL, 0, NULL, 0);
	while (pruning->nold < PRUNE_MAX && pruning->kept < KEPT_MAX &&
		   index_getnext_slot(scan, ForwardScanDirection, store->slot) &&
		   look_at(pruning))
		;
	index_endscan(scan);
}

/*
 * look_at_any_page - look at the runs on a page of the table, at random
 */
static void
look_at_any_page(Pruning *pruning)
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
		(void) look_at(pruning);
	table_endscan(scan);
}

/*
 * remove_old - remove the runs that were found old
 */
static void
remove_old(Pruning *pruning)
{
	while (pruning->nold > 0)
		(void) ShedlockDelete(pruning->store, &pruning->old[--pruning->nold]);
}

/*
 * ShedlockHistoryPrune - remove runs older than shedlock.history_keep
 *
 * But the last one of each name stays: it tells when a job ran last.  A run that
 * is at work is one of these.
 *
 * Oldest first, and only some of them a call.  The last runs of jobs that are
 * gone gather at the front, where each call would meet them first, and a process
 * need not live for more than one.  So a call that has met KEPT_MAX of them looks
 * at a page at random, too: it reads no more than that, however many runs there
 * are, and each old run is come upon in time.  A random token would not do: the
 * leases draw from the same sequence, and most tokens lie in the gaps.
 */
void
ShedlockHistoryPrune(Oid nsp)
{
	ShedlockStore store;
	Pruning		pruning;

	ShedlockOpen(&store, nsp, "shedlock_run_log");
	pruning.store = &store;
	pruning.limit = GetCurrentTimestamp() - shedlock_history_keep * USECS_PER_SEC;
	pruning.name_index = NULL;
	pruning.kept = pruning.nold = 0;

	look_at_front(&pruning);
	remove_old(&pruning);
	if (pruning.kept == KEPT_MAX)
	{
		look_at_any_page(&pruning);
		remove_old(&pruning);
	}

	if (pruning.name_index)
	{
		ExecDropSingleTupleTableSlot(pruning.newer);
		index_close(pruning.name_index, AccessShareLock);
	}
	ShedlockClose(&store);
}
