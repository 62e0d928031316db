/*-------------------------------------------------------------------------
 *
 * runs.c
 *	  The history: the runs of a name, and those that are removed.
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
#include "miscadmin.h"
#include "nodes/primnodes.h"
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
	SHEDLOCK_HISTORY_COLUMNS(SHEDLOCK_ATTNUM)
};

/*
 * A call removes the oldest runs, and stops after PRUNE_MAX of them, or KEPT_MAX that stay, or
 * ENTRIES_MAX entries of the index: those of runs that were removed remain as long as another
 * transaction can see them.  It then looks at random pages, until it has removed PRUNE_MAX, or
 * IDLE_PAGES had none to remove.
 */
#define PRUNE_MAX		100
#define KEPT_MAX		16
#define ENTRIES_MAX		1000
#define IDLE_PAGES		4

typedef struct
{
	ShedlockStore *store;
	TimestampTz now;
	TimestampTz limit;			/* a run that began before that is old */
	Relation	name_index;		/* NULL until an old run is met */
	TupleTableSlot *last;		/* for the last run of a name */
	int			kept;			/* old runs that stay or are locked, and those
								 * of the future */
	int			removed;		/* the others */
	int			entries;		/* of the index, of runs of any kind */
} Pruning;

/*
 * has_names - is that index one of names and tokens?
 */
static bool
has_names(Relation index)
{
	Form_pg_index form = index->rd_index;

	return form->indnkeyatts >= 2 && form->indkey.values[0] == Anum_name &&
		form->indkey.values[1] == Anum_token && RelationGetIndexPredicate(index) == NIL;
}

/*
 * has_requests - is that index one of all requests that are not null?
 */
static bool
has_requests(Relation index)
{
	List	   *predicate = RelationGetIndexPredicate(index);
	NullTest   *test = predicate == NIL ? NULL : linitial(predicate);

	if (index->rd_index->indkey.values[0] != Anum_request || list_length(predicate) > 1)
		return false;
	return test == NULL ||
		(IsA(test, NullTest) && test->nulltesttype == IS_NOT_NULL &&
		 IsA(test->arg, Var) && ((Var *) test->arg)->varattno == Anum_request);
}

/*
 * open_index - open the index that fits
 *
 * By its columns: the table's owner can have replaced it by one of another name.
 */
static Relation
open_index(Relation rel, bool (*fits) (Relation index), const char *columns)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = ShedlockOpenIndex(lfirst_oid(lc));

		if (index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisvalid && fits(index))
			return index;
		ShedlockCloseIndex(index);
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("table \"%s\" of extension \"shedlock\" has no index of %s",
					RelationGetRelationName(rel), columns)));
}

/*
 * open_name_index - open the index of names and tokens
 */
static Relation
open_name_index(Relation rel)
{
	return open_index(rel, has_names, "name and token");
}

/*
 * is_own - is the run in a slot one that the caller's role began?
 */
static bool
is_own(TupleTableSlot *slot)
{
	bool		isnull;

	return DatumGetObjectId(slot_getattr(slot, Anum_locked_role, &isnull)) == GetUserId();
}

/*
 * begin_scan_of_runs - begin a scan of the runs with a name or request, for backward steps
 *
 * value: of the first column of the index.  Of a name, the last run comes first.
 */
static IndexScanDesc
begin_scan_of_runs(ShedlockStore *store, Relation index, const char *value, Snapshot snapshot)
{
	ScanKeyData key;
	IndexScanDesc scan;

	ScanKeyEntryInitialize(&key, 0, 1, BTEqualStrategyNumber, InvalidOid,
						   index->rd_indcollation[0], F_TEXTEQ,
						   CStringGetTextDatum(value));
	scan = begin_index_scan(store->rel, index, snapshot, 1);
	index_rescan(scan, &key, 1, NULL, 0);
	return scan;
}

/*
 * find_run - the last committed run with a name or request
 *
 * fits: which index to use; columns: of it, for the message.  own: one of the caller's role.
 * Uses a snapshot of its own: when a run ends, its row can move past a scan that sees each row
 * as of its own time.  The scan itself has another one, because at SERIALIZABLE it would leave
 * predicate locks on the pages of other names.
 */
static void
find_run(Oid nsp, bool (*fits) (Relation index), const char *columns, const char *value, bool own,
		 ShedlockHistoryRun *past)
{
	ShedlockStore store;
	Relation	index;
	Snapshot	snapshot;
	IndexScanDesc scan;

	memset(past, 0, sizeof(*past));
	ShedlockOpen(&store, nsp, "_shedlock_history", AccessShareLock);
	index = open_index(store.rel, fits, columns);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = begin_scan_of_runs(&store, index, value, SnapshotAny);
	while (past->token == 0 && index_getnext_slot(scan, BackwardScanDirection, store.slot))
	{
		if (table_tuple_satisfies_snapshot(store.rel, store.slot, snapshot) &&
			(!own || is_own(store.slot)))
			ShedlockSlotToHistoryRun(store.slot, past);
	}
	index_endscan(scan);
	UnregisterSnapshot(snapshot);
	ShedlockCloseIndex(index);
	ShedlockClose(&store, AccessShareLock);
}

/*
 * ShedlockHistoryFind - read what the history has of the last run of a name
 */
void
ShedlockHistoryFind(const ShedlockName *name, ShedlockHistoryRun *past)
{
	find_run(name->nsp, has_names, "name and token", name->str, false, past);
}

/*
 * ShedlockHistoryFindRequest - the same of the run that a request of the caller's role began
 */
void
ShedlockHistoryFindRequest(Oid nsp, const char *request, ShedlockHistoryRun *past)
{
	find_run(nsp, has_requests, "request", request, true, past);
}

/*
 * is_last_run - is that run the last one of its name?
 *
 * It may be at work.  Ticks that were skipped since have no run; of them only the last counts,
 * if nothing followed it.
 */
static bool
is_last_run(Pruning *pruning, const ShedlockHistoryRun *run)
{
	IndexScanDesc scan;
	bool		is_last = false;

	scan = begin_scan_of_runs(pruning->store, pruning->name_index, run->name, SnapshotSelf);
	while (index_getnext_slot(scan, BackwardScanDirection, pruning->last))
	{
		ShedlockHistoryRun later;

		ShedlockSlotToHistoryRun(pruning->last, &later);
		is_last = later.token == run->token;
		if (is_last || later.outcome != SHEDLOCK_SKIPPED || run->outcome == SHEDLOCK_SKIPPED)
			break;
	}
	index_endscan(scan);
	return is_last;
}

/*
 * has_just_ended - did the run in the store's slot take so long that only its begin is old?
 */
static bool
has_just_ended(Pruning *pruning)
{
	bool		isnull;
	Datum		ended = slot_getattr(pruning->store->slot, Anum_ended_at, &isnull);

	return !isnull && DatumGetTimestampTz(ended) >= pruning->limit;
}

/*
 * prune_run - remove the run in the store's slot if it is old, has ended, and is not its
 * name's last
 *
 * Returns false if it is not old, so that no later run can be.
 */
static bool
prune_run(Pruning *pruning)
{
	ShedlockStore *store = pruning->store;
	ShedlockHistoryRun run;
	TimestampTz started;
	bool		isnull;

	started = DatumGetTimestampTz(slot_getattr(store->slot, Anum_started_at, &isnull));
	if (started > pruning->now)
	{
		/* The clock was ahead then; later runs may be old. */
		pruning->kept++;
		return true;
	}
	if (started >= pruning->limit)
		return false;
	if (pruning->name_index == NULL)
	{
		pruning->name_index = open_name_index(store->rel);
		pruning->last = table_slot_create(store->rel, NULL);
	}
	ShedlockSlotToHistoryRun(store->slot, &run);
	if (!has_just_ended(pruning) && !is_last_run(pruning, &run) &&
		ShedlockDelete(store, false))
		pruning->removed++;
	else
		pruning->kept++;
	return true;
}

/*
 * prune_front - prune the oldest runs, in the order of their tokens
 *
 * index_getnext_slot() would pass the entries of removed runs without being asked to.
 */
static void
prune_front(Pruning *pruning)
{
	ShedlockStore *store = pruning->store;
	IndexScanDesc scan;
	bool		is_old = true;

	scan = begin_index_scan(store->rel, ShedlockPrimaryKey(store), SnapshotSelf, 0);
	index_rescan(scan, NULL, 0, NULL, 0);
	while (is_old && pruning->removed < PRUNE_MAX && pruning->kept < KEPT_MAX &&
		   pruning->entries < ENTRIES_MAX && index_getnext_tid(scan, ForwardScanDirection))
	{
		pruning->entries++;
		if (index_fetch_heap(scan, store->slot))
			is_old = prune_run(pruning);
	}
	index_endscan(scan);
}

/*
 * prune_random_page - prune the runs on a random page of the table
 *
 * Returns whether it has removed one.
 */
static bool
prune_random_page(Pruning *pruning)
{
	ShedlockStore *store = pruning->store;
	BlockNumber npages = RelationGetNumberOfBlocks(store->rel);
	uint64		page = pg_prng_uint64_range(&pg_global_prng_state, 0, npages - 1);
	ItemPointerData first = {{(uint16) (page >> 16), (uint16) page}, FirstOffsetNumber};
	ItemPointerData last = first;
	int			removed = pruning->removed;
	TableScanDesc scan;

	last.ip_posid = MaxOffsetNumber;
	scan = begin_tid_range_scan(store->rel, SnapshotSelf, &first, &last);
	while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection, store->slot))
		(void) prune_run(pruning);
	table_endscan(scan);
	return pruning->removed > removed;
}

/*
 * ShedlockHistoryPrune - remove runs older than shedlock.history_keep
 *
 * The last run of each name stays: it tells when a job last ran.  So does a run that is
 * at work.
 *
 * Each call removes some, the oldest first.  The last runs of jobs that no longer exist
 * gather at the front, where each call meets them first, and a process may call this
 * only once.  So a call that meets KEPT_MAX of them, or ENTRIES_MAX entries, also looks at
 * some random pages: it reads no more however many runs there are, and each old run is
 * found in time.  Where a page has room for few runs, many pages have an old one, and it
 * looks at more of them.  A random token instead of a page would not do, because leases
 * draw from the same sequence, and most tokens lie in the gaps.
 */
void
ShedlockHistoryPrune(Oid nsp)
{
	ShedlockStore store;
	Pruning		pruning = {.store = &store};

	ShedlockOpen(&store, nsp, "_shedlock_history", RowExclusiveLock);
	pruning.now = GetCurrentTimestamp();
	pruning.limit = pruning.now - shedlock_history_keep * USECS_PER_SEC;
	prune_front(&pruning);
	if (pruning.kept >= KEPT_MAX || pruning.entries >= ENTRIES_MAX)
	{
		for (int idle = 0; idle < IDLE_PAGES && pruning.removed < PRUNE_MAX;)
			idle += !prune_random_page(&pruning);
	}
	if (pruning.name_index)
	{
		ExecDropSingleTupleTableSlot(pruning.last);
		ShedlockCloseIndex(pruning.name_index);
	}
	ShedlockClose(&store, NoLock);
}
