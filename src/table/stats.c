/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  The stats: counters of the runs of each name.
 *
 * The history is pruned, so a count of its rows falls.  These counters do not.  A run is
 * counted in the transaction that records its outcome, and where it records that: history.c.
 * Locks are not counted, because an acquire would write more for that.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "base/base.h"
#include "miscadmin.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_STATS_COLUMNS(SHEDLOCK_ATTNUM)
};

/* What is to be counted. */
typedef struct Increase
{
	int			counter;		/* column that grows by one */
	int			time;			/* column that is set to now, or 0 */
	double		seconds;		/* that the run took */
	bool		gave_up;		/* the run was the last attempt */
} Increase;

/*
 * start_row - the columns of a new row, before anything is counted
 */
static void
start_row(ShedlockColumns *columns, const char *name)
{
	ShedlockSetColumn(columns, Anum_name, CStringGetTextDatum(name));
	for (int attnum = Anum_runs_succeeded; attnum <= Anum_gave_up; attnum++)
		ShedlockSetColumn(columns, attnum, Int64GetDatum(0));
	ShedlockSetColumn(columns, Anum_run_seconds, Float8GetDatum(0));
	ShedlockSetColumn(columns, Anum_stats_since, TimestampTzGetDatum(GetCurrentTimestamp()));
}

/*
 * plus_one - the value of a counter plus one
 *
 * found: the row is in store->slot; else it is new.
 */
static Datum
plus_one(ShedlockStore *store, bool found, int counter)
{
	bool		isnull;

	return Int64GetDatum(1 + (found ? DatumGetInt64(slot_getattr(store->slot, counter, &isnull)) : 0));
}

/*
 * add - the columns that an increase changes; found as for plus_one()
 */
static void
add(ShedlockStore *store, ShedlockColumns *columns, bool found, const Increase *more)
{
	bool		isnull;
	double		seconds = more->seconds;

	if (found)
		seconds += DatumGetFloat8(slot_getattr(store->slot, Anum_run_seconds, &isnull));
	ShedlockSetColumn(columns, more->counter, plus_one(store, found, more->counter));
	if (more->gave_up)
		ShedlockSetColumn(columns, Anum_gave_up, plus_one(store, found, Anum_gave_up));
	ShedlockSetColumn(columns, Anum_run_seconds, Float8GetDatum(seconds));
	if (more->time)
		ShedlockSetColumn(columns, more->time, TimestampTzGetDatum(GetCurrentTimestamp()));
}

/*
 * ShedlockCheckStats - raise an error if runs could not be counted
 *
 * Call this before a run begins.  What ends it counts it, and an error there undoes that
 * end: its outcome would be lost, and its tick would be run again.  Errors: those of
 * ShedlockOpen() and ShedlockCheckPromises().
 */
void
ShedlockCheckStats(Oid nsp)
{
	ShedlockStore store;

	ShedlockOpen(&store, nsp, "_shedlock_stats", RowExclusiveLock);
	ShedlockCheckPromises(&store);
	ShedlockClose(&store, NoLock);
}

/*
 * ShedlockShowStats - put the stats of the names that the caller may see into a tuplestore
 *
 * As the query's snapshot shows them.
 */
void
ShedlockShowStats(Oid nsp, Tuplestorestate *stats)
{
	bool		shows_all = ShedlockMaySee(InvalidOid);
	ShedlockStore store;
	TableScanDesc scan;

	ShedlockOpen(&store, nsp, "_shedlock_stats", AccessShareLock);
	scan = begin_table_scan(store.rel, GetActiveSnapshot());
	while (table_scan_getnextslot(scan, ForwardScanDirection, store.slot))
	{
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (shows_all ||
			ShedlockMayUseName(TextDatumGetCString(slot_getattr(store.slot, Anum_name, &isnull))))
			tuplestore_puttupleslot(stats, store.slot);
	}
	table_endscan(scan);
	ShedlockClose(&store, AccessShareLock);
}

/*
 * count - add to the stats of a name
 *
 * Warns, and counts nothing, if the row is locked for 100 ms.
 */
static void
count(Oid nsp, const char *name, const Increase *more)
{
	ShedlockStore store;
	bool		written = false;
	int			tries = 0;

	ShedlockOpen(&store, nsp, "_shedlock_stats", RowExclusiveLock);
	do
	{
		ShedlockColumns columns;
		bool		found = ShedlockFetch(&store, CStringGetTextDatum(name));

		ShedlockNewColumns(&store, &columns);
		if (!found)
			start_row(&columns, name);
		add(&store, &columns, found, more);
		written = ShedlockWrite(&store, &columns, false);
	} while (!written && ShedlockAwaitForeignLock(&tries));
	ShedlockClose(&store, NoLock);
	if (!written)
		ereport(WARNING,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not count a run of lock \"%s\"", name),
				 errdetail("Its row in _shedlock_stats is locked.")));
}

/*
 * ShedlockCountEnd - count a run that has ended with that outcome
 *
 * duration: in microseconds.  gave_up: it was the last attempt.  An attempt that was returned
 * does not count.
 */
void
ShedlockCountEnd(Oid nsp, const char *name, ShedlockOutcome outcome, int64 duration, bool gave_up)
{
	static const Increase increases[] = {
		[SHEDLOCK_SUCCEEDED] = {.counter = Anum_runs_succeeded,.time = Anum_last_success_at},
		[SHEDLOCK_FAILED] = {.counter = Anum_runs_failed,.time = Anum_last_failure_at},
		[SHEDLOCK_TIMED_OUT] = {.counter = Anum_runs_timed_out,.time = Anum_last_failure_at},
		[SHEDLOCK_CANCELLED] = {.counter = Anum_runs_cancelled},
		[SHEDLOCK_RUN_LOST] = {.counter = Anum_runs_lost,.time = Anum_last_failure_at},
	};
	Increase	more;

	if (outcome == SHEDLOCK_RETURNED)
		return;
	more = increases[outcome];
	more.gave_up = gave_up;
	more.seconds = (double) Max(0, duration) / USECS_PER_SEC;
	count(nsp, name, &more);
}

/*
 * ShedlockCountGaveUp - count a tick that has no attempt left
 */
void
ShedlockCountGaveUp(Oid nsp, const char *name)
{
	const Increase more = {.counter = Anum_gave_up};

	count(nsp, name, &more);
}

/*
 * delete_all - delete the stats of all names that the caller may use
 */
static bool
delete_all(ShedlockStore *store)
{
	TableScanDesc scan = begin_table_scan(store->rel, SnapshotSelf);
	bool		deleted = false;

	while (table_scan_getnextslot(scan, ForwardScanDirection, store->slot))
	{
		bool		isnull;
		char	   *name = TextDatumGetCString(slot_getattr(store->slot, Anum_name, &isnull));

		CHECK_FOR_INTERRUPTS();
		if (ShedlockMayUseName(name) && ShedlockDelete(store, false))
			deleted = true;
		pfree(name);
	}
	table_endscan(scan);
	return deleted;
}

/*
 * ShedlockResetStats - set the stats of a name to zero, or all if it is NULL
 *
 * Returns false if there are none.  Counters that an open transaction changes stay if
 * all are reset; for one name that is an error after 100 ms: 55P03.
 */
bool
ShedlockResetStats(Oid nsp, const char *name)
{
	ShedlockStore store;
	bool		found;
	int			tries = 0;

	ShedlockOpen(&store, nsp, "_shedlock_stats", RowExclusiveLock);
	if (name == NULL)
		found = delete_all(&store);
	else
	{
		while ((found = ShedlockFetch(&store, CStringGetTextDatum(name))) &&
			   !ShedlockDelete(&store, false))
		{
			if (!ShedlockAwaitForeignLock(&tries))
				ereport(ERROR,
						(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						 errmsg("could not reset the counters of lock \"%s\"", name),
						 errdetail("An open transaction has changed or locked them."),
						 errhint("Try again.")));
		}
	}
	ShedlockClose(&store, NoLock);
	return found;
}
