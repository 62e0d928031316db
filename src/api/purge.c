/*-------------------------------------------------------------------------
 *
 * purge.c
 *	  Forgetting locks and ticks that have not been used for a long time.
 *
 * EXECUTE is granted only to the owner.  Each call that deletes something writes
 * a line to the server log, with the role.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "job/job.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* One call deletes at most this many rows of both tables together. */
#define PURGE_MAX			1000

/*
 * is_old - is the lock or tick in the slot free, and was it not used since limit?
 *
 * have_advisory: this call holds its advisory half, exclusively.  Sets *name, which costs more than
 * to read the row, of what is old by its times; and *row, if the table is that of the locks.  The
 * ticks of a paused job stay: the last one is made up after the pause.
 */
static bool
is_old(ShedlockStore *store, TupleTableSlot *slot, uint16 lockclass, TimestampTz limit,
	   bool have_advisory, ShedlockName *name, ShedlockRow *row)
{
	Oid			nsp = RelationGetNamespace(store->rel);
	bool		isnull;

	if (lockclass == SHEDLOCK_CLASS_TICK)
	{
		ShedlockRow lock;

		if (!ShedlockTickIsOld(nsp, slot, limit))
			return false;
		ShedlockMakeName(nsp, TextDatumGetCString(slot_getattr(slot, 1, &isnull)), name);
		ShedlockLookUpRow(name, &lock);
		return !(lock.found && lock.paused_until >= limit);
	}
	ShedlockSlotToRow(slot, row);
	if (row->lock_until >= limit || row->paused_until >= limit)
		return false;
	ShedlockMakeName(nsp, row->name, name);
	if (have_advisory)
		return ShedlockJudge(row, name, GetCurrentTimestamp(), SHEDLOCK_MINE) == SHEDLOCK_FREE;
	ShedlockLearnOrigin(store->rel, row);
	return !ShedlockIsHeld(row, name, GetCurrentTimestamp());
}

/*
 * purge_row - delete the row in the slot if it is old; returns whether it was deleted
 *
 * A row whose advisory lock is not free stays.  The advisory lock is held to the end of
 * the transaction: until then an acquirer sees the row and must not update it (I12).
 */
static bool
purge_row(ShedlockStore *store, TupleTableSlot *slot, uint16 lockclass, TimestampTz limit)
{
	ShedlockName name;
	LOCKTAG		tag;
	ShedlockRow row = {0};

	if (!is_old(store, slot, lockclass, limit, false, &name, &row))
		return false;
	ShedlockTagOfClass(&tag, &name.tag, lockclass);
	if (!ShedlockTryLock(&tag, ExclusiveLock))
		return false;
	if (!ShedlockFetch(store, CStringGetTextDatum(name.str)) ||
		!is_old(store, store->slot, lockclass, limit, true, &name, &row) ||
		!ShedlockDelete(store, false))
	{
		ShedlockUnlock(&tag, ExclusiveLock);
		return false;
	}
	if (row.found && SHEDLOCK_IS_RUN(row.kind) && ShedlockHistoryLost(name.nsp, &row))
		ShedlockTellEnd(name.nsp, row.token, NULL);
	return true;
}

/*
 * purge_table - delete at most max old rows of a table; return how many
 */
static int
purge_table(Oid nsp, const char *table, uint16 lockclass, TimestampTz limit,
			int max)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "shedlock purge",
												  ALLOCSET_SMALL_SIZES);
	ShedlockStore store;
	TableScanDesc scan;
	TupleTableSlot *slot;
	int			purged = 0;

	ShedlockOpen(&store, nsp, table, RowExclusiveLock);
	ShedlockCheckPromises(&store);
	scan = begin_table_scan(store.rel, SnapshotSelf);
	slot = table_slot_create(store.rel, NULL);
	while (purged < max && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(context);
		purged += purge_row(&store, slot, lockclass, limit);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(context);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	ShedlockClose(&store, NoLock);
	return purged;
}

PG_FUNCTION_INFO_V1(shedlock_purge);
/*
 * shedlock_purge(older_than, ticks) - delete free locks not used for that long
 *
 * ticks: also delete ticks of names that are no job and were claimed that long ago, if the
 * period of the claim was over by then, and no run of it is at work.  Locks: the advisory
 * lock of each deleted name, exclusive, to the end of the transaction.
 */
Datum
shedlock_purge(PG_FUNCTION_ARGS)
{
	Oid			nsp = ShedlockSchema(fcinfo);
	TimestampTz limit;
	int			purged;

	ShedlockCheckMayWrite("shedlock_purge()");
	ShedlockRefuseNull(PG_ARGISNULL(0), "older_than", NULL);
	ShedlockRefuseNull(PG_ARGISNULL(1), "ticks", NULL);
	ShedlockCheckDuration(PG_GETARG_INTERVAL_P(0), "older_than", NULL, true, 0, NULL);
	limit = GetCurrentTimestamp() -
		ShedlockIntervalMicroseconds(PG_GETARG_INTERVAL_P(0));

	purged = purge_table(nsp, "shedlock", SHEDLOCK_CLASS_LOCK, limit, PURGE_MAX);
	if (PG_GETARG_BOOL(1))
		purged += purge_table(nsp, "_shedlock_tick", SHEDLOCK_CLASS_TICK, limit,
							  PURGE_MAX - purged);
	if (purged > 0)
		ereport(LOG,
				(errmsg("%d locks and ticks purged by role %s", purged, ShedlockActingRole())));
	PG_RETURN_INT64(purged);
}
