/*-------------------------------------------------------------------------
 *
 * status.c
 *	  Both halves of every lock that is not free, and the stats, for the views.
 *
 * The scan sees all versions of the rows.  One snapshot says which of them are committed,
 * because an update can move a row past a scan that judges each version as of its own time.
 * The others are of locks that are being acquired, which are shown, too.  The scan itself
 * has no snapshot: at SERIALIZABLE that would leave predicate locks.  The lock table is
 * read first: a lease or run that begins between the two reads is shown without its holder, not
 * left out.  A session lock is still free then.
 *
 * The lock table has no names, and the key of a name costs more than reading its row.  So only
 * if a lock is in use that was not shown, a second scan looks for its name among the free ones.
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
#include "funcapi.h"
#include "lock/lock.h"
#include "miscadmin.h"
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
	ShedlockUse use;
	bool		shown;
} KeyStatus;

/* What the lines are made of */
typedef struct LockStatus
{
	ReturnSetInfo *rsinfo;
	Oid			nsp;
	ShedlockStore store;		/* the table */
	Snapshot	snapshot;
	HTAB	   *lock_table;		/* of KeyStatus */
	TimestampTz now;
	bool		shows_all;		/* also names that the caller may not use */
	MemoryContext context;		/* of one row */
	List	   *open;			/* ShedlockRow, written by open transactions
								 * that use the lock, the last one first */
	bool		looks_for_use;	/* in the second scan */
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
		KeyStatus	empty = {.key = holder->key,.use.known = true};
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
			ShedlockAddToUse(&entry->use, holder);
	}
	return hash;
}

/*
 * put_row - one line of the result, unless the name is hidden from the caller
 */
static void
put_row(const LockStatus *status, const ShedlockRow *row, ShedlockState state,
		KeyStatus *entry)
{
	bool		of_process = state == SHEDLOCK_HELD && !ShedlockCountsAsLease(row);
	int			pid = of_process ? row->pid : entry ? entry->use.pid : 0;

	/* in the order of the columns of _shedlock_status() */
	Datum		values[] = {
		CStringGetTextDatum(row->name),
		CStringGetTextDatum(shedlock_state_names[state]),
		CStringGetTextDatum(shedlock_kind_names[row->kind]),
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
	if (entry)
		entry->shown = true;
	if (status->shows_all || ShedlockMayUseName(row->name))
		tuplestore_putvalues(status->rsinfo->setResult, status->rsinfo->setDesc, values, nulls);
}

/*
 * find_key - what the lock table has for the lock of that name, or NULL; sets its tag
 */
static KeyStatus *
find_key(const LockStatus *status, ShedlockName *name)
{
	uint64		key = ShedlockKey(name->str, name->len);

	ShedlockSetTag(&name->tag, SHEDLOCK_CLASS_LOCK, key);
	return hash_search(status->lock_table, &key, HASH_FIND, NULL);
}

/*
 * show_lock - show the lock of the row in the store's slot, unless it is free by that
 *
 * This transaction does not see the version before one that it wrote, so its own counts as
 * committed, unless it has acquired the lock.  Keeps what an open transaction has written of a
 * lock that it uses.
 */
static void
show_lock(LockStatus *status)
{
	TupleTableSlot *slot = status->store.slot;
	MemoryContext caller = CurrentMemoryContext;
	ShedlockState state;
	ShedlockRow row;
	ShedlockName name = {.nsp = status->nsp};
	KeyStatus  *entry;
	TransactionId xmin;
	bool		own;
	bool		counts;
	bool		is_open;

	/* Most rows are of this kind: nothing is computed for them. */
	if (!status->looks_for_use && ShedlockSlotIsFree(slot, status->now))
		return;

	/* Of any other version, what is stored out of line may be gone. */
	xmin = HeapTupleHeaderGetXmin(ExecFetchSlotHeapTuple(slot, false, NULL)->t_data);
	own = TransactionIdIsCurrentTransactionId(xmin);
	counts = table_tuple_satisfies_snapshot(status->store.rel, slot, status->snapshot);
	is_open = !own && XidInMVCCSnapshot(xmin, status->snapshot) && !TransactionIdDidAbort(xmin);
	if (!counts && !is_open)
		return;

	MemoryContextReset(status->context);
	MemoryContextSwitchTo(status->context);
	ShedlockSlotToRow(slot, &row);
	name.str = row.name;
	name.len = (int) strlen(name.str);
	entry = find_key(status, &name);
	if (counts && !(own && entry && entry->use.exclusive && row.kind != SHEDLOCK_RELEASED))
	{
		ShedlockLearnOrigin(status->store.rel, &row);
		state = ShedlockJudge(&row, &name, status->now, entry ? &entry->use : SHEDLOCK_MINE);
		if (state == SHEDLOCK_IN_USE ? status->looks_for_use && entry && !entry->shown :
			state != SHEDLOCK_FREE && !status->looks_for_use)
			put_row(status, &row, state, entry);
		MemoryContextSwitchTo(caller);
		return;
	}
	MemoryContextSwitchTo(caller);
	if (entry && (entry->use.by_other || row.kind != SHEDLOCK_RELEASED))
	{
		ShedlockRow *copy = palloc(sizeof(ShedlockRow));

		ShedlockSlotToRow(slot, copy);
		status->open = lcons(copy, status->open);
	}
}

/*
 * scan_locks - show the locks of all versions of rows
 */
static void
scan_locks(LockStatus *status)
{
	ShedlockStore *store = &status->store;
	TableScanDesc scan = begin_table_scan(store->rel, SnapshotAny);

	while (table_scan_getnextslot(scan, ForwardScanDirection, store->slot))
	{
		CHECK_FOR_INTERRUPTS();
		show_lock(status);
	}
	table_endscan(scan);
}

/*
 * show_open - show the locks that open transactions have acquired or use, and whose row they
 * have written
 */
static void
show_open(LockStatus *status)
{
	ListCell   *lc;

	foreach(lc, status->open)
	{
		ShedlockRow *row = lfirst(lc);
		ShedlockName name = {.str = row->name,.len = (int) strlen(row->name)};
		KeyStatus  *entry = find_key(status, &name);

		CHECK_FOR_INTERRUPTS();
		if (!entry->shown)
			put_row(status, row, entry->use.exclusive && row->kind != SHEDLOCK_RELEASED ?
					SHEDLOCK_UNCOMMITTED : SHEDLOCK_IN_USE, entry);
	}
}

/*
 * show_in_use - show the locks that are in use, if there is one that was not shown
 */
static void
show_in_use(LockStatus *status)
{
	HASH_SEQ_STATUS seq;
	KeyStatus  *entry;

	hash_seq_init(&seq, status->lock_table);
	while ((entry = hash_seq_search(&seq)))
		status->looks_for_use |= entry->use.pids != NIL && !entry->shown;
	if (status->looks_for_use)
	{
		scan_locks(status);
		show_open(status);
	}
}

PG_FUNCTION_INFO_V1(_shedlock_status);
/*
 * _shedlock_status() - the locks that are not free
 *
 * Hides names that the caller may not use, unless it has the privileges of pg_read_all_stats.
 */
Datum
_shedlock_status(PG_FUNCTION_ARGS)
{
	LockStatus	status = {
		.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo,
		.nsp = ShedlockSchema(fcinfo)
	};

	InitMaterializedSRF(fcinfo, 0);
	status.lock_table = read_lock_table();
	status.shows_all = ShedlockMaySee(InvalidOid);
	status.now = GetCurrentTimestamp();
	status.context = AllocSetContextCreate(CurrentMemoryContext, "shedlock status row",
										   ALLOCSET_SMALL_SIZES);
	ShedlockOpen(&status.store, status.nsp, "shedlock", AccessShareLock);
	status.snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan_locks(&status);
	show_open(&status);
	show_in_use(&status);
	UnregisterSnapshot(status.snapshot);
	ShedlockClose(&status.store, AccessShareLock);
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(_shedlock_stats);
/*
 * _shedlock_stats() - the stats of the names that the caller may see
 */
Datum
_shedlock_stats(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	ShedlockShowStats(ShedlockSchema(fcinfo), ((ReturnSetInfo *) fcinfo->resultinfo)->setResult);
	return (Datum) 0;
}
