/*-------------------------------------------------------------------------
 *
 * status.c
 *	  Both halves of every lock that is not free, for the views.
 *
 * The table is read with a dirty snapshot, which also shows what open
 * transactions have written, because a lock that is being acquired is worth a
 * line.  The lock table is read first: a lock that is acquired between the two
 * reads is shown without its holder, not left out.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "funcapi.h"
#include "lock/lock.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/* Columns of _shedlock_status() */
enum
{
	COL_NAME,
	COL_STATE,
	COL_KIND,
	COL_LOCK_UNTIL,
	COL_LOCKED_AT,
	COL_LOCKED_BY,
	COL_TOKEN,
	COL_LOCKED_ROLE,
	COL_WAITERS,
	COL_PID,
	COL_PAUSED_UNTIL,
	COL_PAUSED_BY,
	COL_PAUSE_REASON,
	NUM_COLS
};

/* What the lock table has under a key. */
typedef struct KeyStatus
{
	uint64		key;			/* hash key: must be first */
	int			waiters;
	int			exclusive_pid;	/* 0: none, or a prepared transaction */
	bool		exclusive;
	List	   *pids;			/* of all holders */
	bool		shown;			/* by a committed row */
} KeyStatus;

/*
 * read_lock_table - hash of KeyStatus by key
 */
static HTAB *
read_lock_table(void)
{
	HASHCTL		ctl;
	HTAB	   *hash;
	List	   *holders = ShedlockHolders(NULL);
	ListCell   *lc;

	ctl.keysize = sizeof(uint64);
	ctl.entrysize = sizeof(KeyStatus);
	ctl.hcxt = CurrentMemoryContext;
	hash = hash_create("shedlock status", 64, &ctl,
					   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	foreach(lc, holders)
	{
		ShedlockHolder *holder = lfirst(lc);
		KeyStatus  *entry;
		bool		found;

		if (holder->lockclass != SHEDLOCK_CLASS_LOCK &&
			holder->lockclass != SHEDLOCK_CLASS_WAITER)
			continue;
		entry = hash_search(hash, &holder->key, HASH_ENTER, &found);
		if (!found)
			memset((char *) entry + sizeof(uint64), 0, sizeof(KeyStatus) - sizeof(uint64));
		if (holder->lockclass == SHEDLOCK_CLASS_WAITER)
		{
			entry->waiters++;
			continue;
		}
		entry->pids = lappend_int(entry->pids, holder->pid);
		if (holder->exclusive)
		{
			entry->exclusive = true;
			entry->exclusive_pid = holder->pid;
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
	bool		of_process = row->kind == SHEDLOCK_SESSION || row->kind == SHEDLOCK_RUN;

	*pid = 0;
	if (of_process && RecoveryInProgress())
		return "unknown";
	if (ShedlockCountsAsLease(row))
	{
		/* A fence keeps the lock from being free after its lease has expired. */
		if (entry && !entry->exclusive && entry->pids != NIL &&
			row->kind != SHEDLOCK_RELEASED)
		{
			*pid = linitial_int(entry->pids);
			return "held";
		}
		if (row->lock_until > now)
		{
			if (entry && entry->pids != NIL)
				*pid = linitial_int(entry->pids);
			return row->kind == SHEDLOCK_RELEASED ? "kept" :
				of_process ? "lost" : "held";
		}
	}
	else
	{
		if ((entry && list_member_int(entry->pids, row->pid)) ||
			(row->kind == SHEDLOCK_RUN &&
			 ShedlockBackendAlive(row->pid, row->backend_start)))
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
put_row(ReturnSetInfo *rsinfo, const ShedlockRow *row, const char *state,
		const KeyStatus *entry, int pid)
{
	Datum		values[NUM_COLS];
	bool		nulls[NUM_COLS] = {false};

	values[COL_NAME] = CStringGetTextDatum(row->name);
	values[COL_STATE] = CStringGetTextDatum(state);
	values[COL_KIND] = CStringGetTextDatum(ShedlockKindText(row->kind));
	values[COL_LOCK_UNTIL] = TimestampTzGetDatum(row->lock_until);
	values[COL_LOCKED_AT] = TimestampTzGetDatum(row->locked_at);
	values[COL_LOCKED_BY] = CStringGetTextDatum(ShedlockShownBy(row));
	values[COL_TOKEN] = Int64GetDatum(row->token);
	nulls[COL_TOKEN] = row->token == 0;
	values[COL_LOCKED_ROLE] = ObjectIdGetDatum(row->locked_role);
	nulls[COL_LOCKED_ROLE] = !OidIsValid(row->locked_role);
	values[COL_WAITERS] = Int32GetDatum(entry ? entry->waiters : 0);
	values[COL_PID] = Int32GetDatum(pid);
	nulls[COL_PID] = pid == 0;
	values[COL_PAUSED_UNTIL] = TimestampTzGetDatum(row->paused_until);
	nulls[COL_PAUSED_UNTIL] = row->paused_until == DT_NOBEGIN;
	nulls[COL_PAUSED_BY] = row->paused_by == NULL;
	if (row->paused_by)
		values[COL_PAUSED_BY] = CStringGetTextDatum(row->paused_by);
	nulls[COL_PAUSE_REASON] = row->pause_reason == NULL;
	if (row->pause_reason)
		values[COL_PAUSE_REASON] = CStringGetTextDatum(row->pause_reason);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * is_committed - is this the version of the row that counts?
 *
 * This transaction does not see the version before one that it wrote, so that
 * its own counts, too, unless it holds the advisory half exclusively.
 */
static bool
is_committed(TupleTableSlot *slot, const SnapshotData *dirty, const KeyStatus *entry)
{
	bool		isnull;
	Datum		xmin = slot_getsysattr(slot, MinTransactionIdAttributeNumber, &isnull);

	return !TransactionIdIsValid(dirty->xmin) &&
		!(entry && entry->exclusive &&
		  TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin)));
}

/*
 * scan_locks - show the locks that are not free by their committed rows
 *
 * Returns a list of ShedlockRow: what open transactions have written of locks
 * that they hold exclusively.
 */
static List *
scan_locks(Relation rel, HTAB *lock_table, ReturnSetInfo *rsinfo)
{
	bool		shows_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	TimestampTz now = GetCurrentTimestamp();
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "shedlock status row",
												  ALLOCSET_SMALL_SIZES);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	SnapshotData dirty;
	TableScanDesc scan;
	List	   *uncommitted = NIL;

	InitDirtySnapshot(dirty);
	scan = begin_table_scan(rel, &dirty);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		ShedlockRow row;
		KeyStatus  *entry;
		const char *state = NULL;
		bool		visible;
		bool		committed;
		int			pid;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
		ShedlockSlotToRow(slot, &row);
		visible = shows_all || ShedlockMayUseName(row.name);
		entry = find_key(lock_table, row.name);
		committed = is_committed(slot, &dirty, entry);
		if (visible && committed)
			state = committed_state(&row, entry, now, &pid);
		if (state)
			put_row(rsinfo, &row, state, entry, pid);
		MemoryContextSwitchTo(caller);

		if (state && entry)
			entry->shown = true;
		if (visible && !committed && entry && entry->exclusive &&
			row.kind != SHEDLOCK_RELEASED)
		{
			ShedlockRow *copy = palloc(sizeof(ShedlockRow));

			ShedlockSlotToRow(slot, copy);
			uncommitted = lappend(uncommitted, copy);
		}
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	return uncommitted;
}

PG_FUNCTION_INFO_V1(_shedlock_status);
/*
 * _shedlock_status() - the locks that are not free
 *
 * Hides names that the caller may not use, unless it has the privileges of
 * pg_read_all_stats.  Locks: AccessShareLock on the table, to the end of the
 * transaction.
 */
Datum
_shedlock_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	HTAB	   *lock_table;
	Relation	rel;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	lock_table = read_lock_table();
	rel = ShedlockOpenForScan(ShedlockSchema(fcinfo), "shedlock");
	foreach(lc, scan_locks(rel, lock_table, rsinfo))
	{
		ShedlockRow *row = lfirst(lc);
		KeyStatus  *entry = find_key(lock_table, row->name);

		CHECK_FOR_INTERRUPTS();
		if (!entry->shown)
			put_row(rsinfo, row, "uncommitted", entry, entry->exclusive_pid);
	}
	table_close(rel, NoLock);
	return (Datum) 0;
}
