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
 * is_paused - was the job of the tick that was fetched last paused since limit?
 */
static bool
is_paused(ShedlockStore *store, TimestampTz limit)
{
	ShedlockName name;
	ShedlockRow lock;
	bool		isnull;
	Datum		d = slot_getattr(store->slot, 1, &isnull);

	ShedlockMakeName(RelationGetNamespace(store->rel), TextDatumGetCString(d), &name);
	ShedlockLookUpRow(&name, &lock);
	return lock.found && lock.paused_until >= limit;
}

/*
 * is_old - is what was fetched last free, and was it not used since limit?
 *
 * have_advisory: as for ShedlockJudge().  Sets *row if the table is that of the
 * locks.  The ticks of a paused job stay: the last one is made up after the pause.
 */
static bool
is_old(ShedlockStore *store, uint16 lockclass, TimestampTz limit,
	   bool have_advisory, ShedlockRow *row)
{
	ShedlockName name;

	if (lockclass == SHEDLOCK_CLASS_TICK)
		return ShedlockTickIsOld(RelationGetNamespace(store->rel), store->slot, limit) &&
			!is_paused(store, limit);
	ShedlockSlotToRow(store->slot, row);
	if (row->lock_until >= limit || row->paused_until >= limit)
		return false;
	ShedlockMakeName(RelationGetNamespace(store->rel), row->name, &name);
	if (have_advisory)
		return ShedlockJudge(row, &name, GetCurrentTimestamp(), true) == SHEDLOCK_FREE;
	ShedlockLearnOrigin(store->rel, row);
	return ShedlockCountsAsLease(row) || !ShedlockHolderLives(row, &name, false);
}

/*
 * old_names - at most max names of rows that may be deleted
 *
 * The scan judges each row, so that session locks held past their lock_until
 * do not use up max: a repeated purge would never get past them.
 */
static List *
old_names(ShedlockStore *store, uint16 lockclass, TimestampTz limit, int max)
{
	TableScanDesc scan = begin_table_scan(store->rel, SnapshotSelf);
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "shedlock purge",
												  ALLOCSET_SMALL_SIZES);
	List	   *names = NIL;

	while (list_length(names) < max &&
		   table_scan_getnextslot(scan, ForwardScanDirection, store->slot))
	{
		ShedlockRow row;
		bool		isnull;
		bool		old;

		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(context);
		old = is_old(store, lockclass, limit, false, &row);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(context);
		if (old)
			names = lappend(names,
							TextDatumGetCString(slot_getattr(store->slot, 1, &isnull)));
	}
	table_endscan(scan);
	MemoryContextDelete(context);
	return names;
}

/*
 * purge_table - delete at most max old rows of a table; return how many
 *
 * Skips each name whose advisory lock is not free.  Holds the advisory locks of the
 * others to the end of the transaction: until then an acquirer sees the row and
 * must not update it (I12).
 */
static int
purge_table(Oid nsp, const char *table, uint16 lockclass, TimestampTz limit,
			int max)
{
	ShedlockStore store;
	int			purged = 0;
	List	   *names;
	ListCell   *lc;

	ShedlockOpen(&store, nsp, table, RowExclusiveLock);
	ShedlockCheckPromises(&store);
	names = old_names(&store, lockclass, limit, max);
	foreach(lc, names)
	{
		ShedlockName name;
		LOCKTAG		tag;
		ShedlockRow row = {0};

		CHECK_FOR_INTERRUPTS();
		ShedlockMakeName(nsp, lfirst(lc), &name);
		ShedlockTagOfClass(&tag, &name.tag, lockclass);
		if (!ShedlockTryLock(&tag, ExclusiveLock))
			continue;
		if (ShedlockFetch(&store, CStringGetTextDatum(name.str)) &&
			is_old(&store, lockclass, limit, true, &row) &&
			ShedlockDelete(&store, false) == TM_Ok)
		{
			if (row.found && SHEDLOCK_IS_RUN(row.kind) &&
				ShedlockHistoryLost(nsp, row.token))
				ShedlockTellEnd(nsp, row.token, NULL);
			purged++;
		}
		else
			ShedlockUnlock(&tag, ExclusiveLock);
	}
	ShedlockClose(&store, NoLock);
	return purged;
}

PG_FUNCTION_INFO_V1(shedlock_purge);
/*
 * shedlock_purge(older_than, ticks) - delete free locks not used for that long
 *
 * ticks: also delete ticks that are used up and were claimed that long ago, if the next
 * tick of their schedule had come by then, and no run of it is at work.  Returns the
 * number of rows.  Errors: 22004, 22023, those of ShedlockCheckMayWrite() and
 * ShedlockCheckPromises().  Locks: the advisory lock of each deleted name, exclusive, to
 * the end of the transaction.
 */
Datum
shedlock_purge(PG_FUNCTION_ARGS)
{
	Oid			nsp = ShedlockSchema(fcinfo);
	TimestampTz limit;
	int			purged;

	ShedlockCheckMayWrite("shedlock_purge()");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", PG_ARGISNULL(0) ? "older_than" : "ticks")));
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
