/*-------------------------------------------------------------------------
 *
 * status.c
 *	  Both halves of every lock that is not free, and the stats, for the views.
 *
 * The scan sees all versions of the rows.  One snapshot says which of them are committed,
 * because an update can move a row past a scan that judges each version as of its own time.
 * The others are of locks that are being acquired, which are shown, too.  The scan itself
 * has no snapshot: at SERIALIZABLE that would leave predicate locks.  The lock table is
 * read first: a lock that is acquired between the two reads is shown without its
 * holder, not left out.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "lock/lock.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/* What the lock table has under a key */
typedef struct KeyStatus
{
	uint64		key;			/* hash key: must be first */
	int			waiters;
	List	   *pids;			/* of all holders; 0: a prepared transaction */
	bool		exclusive;		/* then there is one holder */
	bool		shown;			/* by a committed row */
} KeyStatus;

/* What the lines are made of */
typedef struct LockStatus
{
	ReturnSetInfo *rsinfo;
	ShedlockStore store;		/* the table */
	Snapshot	snapshot;
	HTAB	   *lock_table;		/* of KeyStatus */
	TimestampTz now;
	bool		shows_all;		/* also names that the caller may not use */
	MemoryContext context;		/* of one row */
	List	   *uncommitted;	/* ShedlockRow, written by open transactions
								 * that hold the lock exclusively, the last
								 * one first */
} LockStatus;

/*
 * read_lock_table - hash of KeyStatus by key
 */
static HTAB *
read_lock_table(void)
{
	HASHCTL		ctl = {.keysize = sizeof(uint64)};
	HTAB	   *hash;
	ListCell   *lc;

	ctl.entrysize = sizeof(KeyStatus);
	ctl.hcxt = CurrentMemoryContext;
	hash = hash_create("shedlock status", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	foreach(lc, ShedlockHolders(NULL))
	{
		ShedlockHolder *holder = lfirst(lc);
		KeyStatus	empty = {.key = holder->key};
		KeyStatus  *entry;
		bool		found;

		if (holder->lockclass != SHEDLOCK_CLASS_LOCK &&
			holder->lockclass != SHEDLOCK_CLASS_WAITER)
			continue;
		entry = hash_search(hash, &holder->key, HASH_ENTER, &found);
		if (!found)
			*entry = empty;
		if (holder->lockclass == SHEDLOCK_CLASS_WAITER)
			entry->waiters++;
		else
		{
			entry->pids = lappend_int(entry->pids, holder->pid);
			entry->exclusive |= holder->exclusive;
		}
	}
	return hash;
}

/*
 * find_key - what the lock table has for the lock of that name, or NULL
 */
static KeyStatus *
find_key(HTAB *lock_table, const char *name)
{
	uint64		key = ShedlockKey(name, (int) strlen(name));

	return hash_search(lock_table, &key, HASH_FIND, NULL);
}

/*
 * committed_state - the state of a lock by its committed row; NULL if it is free
 *
 * Sets *pid to the process that holds the advisory half, or 0.
 */
static const char *
committed_state(const ShedlockRow *row, const KeyStatus *entry,
				TimestampTz now, int *pid)
{
	bool		of_process = SHEDLOCK_IS_OF_PROCESS(row->kind);
	bool		in_use = entry && entry->pids != NIL;

	*pid = 0;
	if (of_process && RecoveryInProgress())
		return "unknown";
	if (ShedlockCountsAsLease(row))
	{
		/* A fence keeps the lock from being free after its lease has expired. */
		bool		fenced = in_use && !entry->exclusive && row->kind != SHEDLOCK_RELEASED;

		if (in_use && (fenced || row->lock_until > now))
			*pid = linitial_int(entry->pids);
		if (fenced)
			return "held";
		if (row->lock_until > now)
			return row->kind == SHEDLOCK_RELEASED ? "kept" :
				of_process ? "lost" : "held";
	}
	else
	{
		if (!ShedlockDiedWithTimeline(row) &&
			((in_use && list_member_int(entry->pids, row->pid)) ||
			 (row->kind == SHEDLOCK_RUN &&
			  ShedlockBackendAlive(row->pid, row->backend_start))))
		{
			*pid = row->pid;
			return "held";
		}
		if (row->keep_until > now)
			return "kept";
	}
	return row->paused_until > now ? "paused" : NULL;
}

/*
 * put_row - one line of the result
 */
static void
put_row(const LockStatus *status, const ShedlockRow *row, const char *state,
		const KeyStatus *entry, int pid)
{
	/* in the order of the columns of _shedlock_status() */
	Datum		values[] = {
		CStringGetTextDatum(row->name),
		CStringGetTextDatum(state),
		CStringGetTextDatum(ShedlockKindText(row->kind)),
		0, 0,
		CStringGetTextDatum(ShedlockShownBy(row)),
		Int64GetDatum(row->token),
		ObjectIdGetDatum(row->locked_role),
		Int32GetDatum(entry ? entry->waiters : 0),
		Int32GetDatum(pid),
		BoolGetDatum(row->paused_until > status->now),
		0,
		row->paused_by ? CStringGetTextDatum(row->paused_by) : 0,
		row->pause_reason ? CStringGetTextDatum(row->pause_reason) : 0
	};
	bool		nulls[lengthof(values)] = {
		false, false, false, false, false, false,
		row->token == 0,
		!OidIsValid(row->locked_role),
		false,
		pid == 0,
		false, false,
		row->paused_by == NULL,
		row->pause_reason == NULL
	};

	ShedlockShowTime(row->lock_until, &values[3], &nulls[3]);
	ShedlockShowTime(row->locked_at, &values[4], &nulls[4]);
	ShedlockShowTime(row->paused_until, &values[11], &nulls[11]);
	tuplestore_putvalues(status->rsinfo->setResult, status->rsinfo->setDesc, values, nulls);
}

/*
 * show_lock - show the lock of the row in a slot, if it is not free by a committed row
 *
 * This transaction does not see the version before one that it wrote, so its own counts as
 * committed, unless it holds the lock exclusively.  Keeps what an open transaction has
 * written of a lock that it holds exclusively.  Returns whether the lock was shown.
 */
static bool
show_lock(TupleTableSlot *slot, void *arg)
{
	LockStatus *status = arg;
	MemoryContext caller;
	ShedlockRow row;
	KeyStatus  *entry;
	const char *state = NULL;
	TransactionId xmin;
	bool		own;
	bool		counts;
	bool		is_open;
	bool		exclusive;
	bool		visible;
	int			pid;

	/* Most rows are of this kind: nothing is computed for them. */
	if (ShedlockSlotIsFree(slot, status->now))
		return false;

	/* Of any other version, what is stored out of line may be gone. */
	xmin = HeapTupleHeaderGetXmin(ExecFetchSlotHeapTuple(slot, false, NULL)->t_data);
	own = TransactionIdIsCurrentTransactionId(xmin);
	counts = table_tuple_satisfies_snapshot(status->store.rel, slot, status->snapshot);
	is_open = !own && XidInMVCCSnapshot(xmin, status->snapshot) && !TransactionIdDidAbort(xmin);
	if (!counts && !is_open)
		return false;
	MemoryContextReset(status->context);
	caller = MemoryContextSwitchTo(status->context);
	ShedlockSlotToRow(slot, &row);
	entry = find_key(status->lock_table, row.name);
	exclusive = entry && entry->exclusive;
	visible = status->shows_all || ShedlockMayUseName(row.name);
	if (visible && counts && !(exclusive && own))
	{
		ShedlockLearnOrigin(status->store.rel, &row);
		state = committed_state(&row, entry, status->now, &pid);
		if (state)
			put_row(status, &row, state, entry, pid);
		if (state && entry)
			entry->shown = true;
	}
	else if (visible && exclusive && row.kind != SHEDLOCK_RELEASED)
	{
		ShedlockRow *copy = MemoryContextAlloc(caller, sizeof(ShedlockRow));

		MemoryContextSwitchTo(caller);
		ShedlockSlotToRow(slot, copy);
		status->uncommitted = lcons(copy, status->uncommitted);
	}
	MemoryContextSwitchTo(caller);
	return state != NULL;
}

/*
 * scan_locks - show the locks that are not free by their committed rows
 */
static void
scan_locks(LockStatus *status)
{
	ShedlockStore *store = &status->store;
	TableScanDesc scan = begin_table_scan(store->rel, SnapshotAny);

	while (table_scan_getnextslot(scan, ForwardScanDirection, store->slot))
	{
		CHECK_FOR_INTERRUPTS();
		(void) show_lock(store->slot, status);
	}
	table_endscan(scan);
}

/*
 * look_up_locks - the same of some names only, by the primary key
 */
static void
look_up_locks(LockStatus *status, ArrayType *names)
{
	Datum	   *elems;
	bool	   *nulls;
	int			count;

	deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &elems, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!nulls[i])
			ShedlockFetchVersions(&status->store, elems[i], show_lock, status);
	}
}

PG_FUNCTION_INFO_V1(_shedlock_status);
/*
 * _shedlock_status(names) - the locks that are not free; with names, those of them
 *
 * names: each once, or null.  Hides names that the caller may not use, unless it has the
 * privileges of pg_read_all_stats.  Locks: AccessShareLock on the table.
 */
Datum
_shedlock_status(PG_FUNCTION_ARGS)
{
	LockStatus	status = {.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo};
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	status.lock_table = read_lock_table();
	status.shows_all = ShedlockMaySee(InvalidOid);
	status.now = GetCurrentTimestamp();
	status.context = AllocSetContextCreate(CurrentMemoryContext, "shedlock status row",
										   ALLOCSET_SMALL_SIZES);
	ShedlockOpen(&status.store, ShedlockSchema(fcinfo), "shedlock", AccessShareLock);
	status.snapshot = RegisterSnapshot(GetLatestSnapshot());
	if (PG_ARGISNULL(0))
		scan_locks(&status);
	else
		look_up_locks(&status, PG_GETARG_ARRAYTYPE_P(0));
	foreach(lc, status.uncommitted)
	{
		ShedlockRow *row = lfirst(lc);
		KeyStatus  *entry = find_key(status.lock_table, row->name);

		CHECK_FOR_INTERRUPTS();
		if (!entry->shown)
			put_row(&status, row, "uncommitted", entry, linitial_int(entry->pids));
		entry->shown = true;
	}
	UnregisterSnapshot(status.snapshot);
	ShedlockClose(&status.store, AccessShareLock);
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(_shedlock_stats);
/*
 * _shedlock_stats() - the stats of the names that the caller may see
 *
 * Locks: AccessShareLock on the table.
 */
Datum
_shedlock_stats(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	ShedlockShowStats(ShedlockSchema(fcinfo), ((ReturnSetInfo *) fcinfo->resultinfo)->setResult);
	return (Datum) 0;
}
