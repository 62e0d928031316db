/*-------------------------------------------------------------------------
 *
 * write.c
 *	  Writes rows of any of the extension's tables.
 *
 * Writes go through the table access method: no triggers, rules or privileges of the
 * caller, and no wait unless the caller asks for it (I2).  ShedlockCheckPromises()
 * refuses tables with constraints that would not be checked.  A new row is inserted
 * speculatively, like INSERT ... ON CONFLICT does, so that a row that another session
 * has inserted meanwhile is a conflict and no error.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/*
 * open_indexes - prepare ExecInsertIndexTuples()
 *
 * Range table index 0: there is no range table to say which columns an update
 * changes.  No update of the extension changes an indexed column.
 */
static ResultRelInfo *
open_indexes(ShedlockStore *store, bool speculative)
{
	ResultRelInfo *relinfo = makeNode(ResultRelInfo);

	if (shedlock_never_waits)
		ShedlockLockIndexes(store->rel);
	InitResultRelInfo(relinfo, store->rel, 0, NULL, 0);
	ExecOpenIndices(relinfo, speculative);
	return relinfo;
}

/*
 * ShedlockNewColumns - start to form a row
 */
void
ShedlockNewColumns(ShedlockStore *store, ShedlockColumns *columns)
{
	Size		natts = (Size) RelationGetDescr(store->rel)->natts;

	columns->values = palloc0(natts * (sizeof(Datum) + 2 * sizeof(bool)));
	columns->replace = (bool *) (columns->values + natts);
	columns->nulls = columns->replace + natts;
	memset(columns->nulls, true, natts * sizeof(bool));
}

/*
 * ShedlockSetColumn, ShedlockSetNull - give a column its value
 */
void
ShedlockSetColumn(ShedlockColumns *columns, int attnum, Datum value)
{
	columns->values[attnum - 1] = value;
	columns->nulls[attnum - 1] = false;
	columns->replace[attnum - 1] = true;
}

void
ShedlockSetNull(ShedlockColumns *columns, int attnum)
{
	columns->nulls[attnum - 1] = true;
	columns->replace[attnum - 1] = true;
}

/*
 * fill_added - set columns that were added to the table to their defaults
 *
 * The extension's own columns that are not set are null, whatever their defaults are now.
 * Returns true if the constraints of such columns must be checked.
 */
static bool
fill_added(ShedlockStore *store, const ShedlockColumns *columns, EState *estate)
{
	TupleDesc	desc = RelationGetDescr(store->rel);
	bool		added = false;

	for (int i = ShedlockOwnColumns(store->rel); i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Node	   *expr;

		if (att->attisdropped)
			continue;
		added |= att->attnotnull || att->attgenerated;
		expr = att->attgenerated ? NULL : build_column_default(store->rel, i + 1);
		if (expr)
		{
			ExprState  *state = ExecPrepareExpr((Expr *) expr, estate);

			added = true;
			columns->values[i] = ExecEvalExprSwitchContext(state, GetPerTupleExprContext(estate),
														   &columns->nulls[i]);
		}
	}
	return added;
}

/*
 * may_need_toast - may the server store values of the row out of line, or remove them?
 */
static bool
may_need_toast(HeapTuple tuple)
{
	return HeapTupleHasExternal(tuple) || tuple->t_len > TOAST_TUPLE_THRESHOLD;
}

/*
 * form_slot - a slot with the row to write
 *
 * compute: also compute generated columns that were added to the table, all of them,
 * as an INSERT does.
 */
static TupleTableSlot *
form_slot(ShedlockStore *store, const ShedlockColumns *columns, bool compute)
{
	TupleDesc	desc = RelationGetDescr(store->rel);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
	HeapTuple	tuple = heap_form_tuple(desc, columns->values, columns->nulls);

	if (may_need_toast(tuple))
		ShedlockLockToast(store->rel);
	ExecStoreHeapTuple(tuple, slot, true);
	slot->tts_tableOid = RelationGetRelid(store->rel);
	if (compute && desc->constr && desc->constr->has_generated_stored)
	{
		EState	   *estate = CreateExecutorState();
		ResultRelInfo *relinfo = makeNode(ResultRelInfo);

		InitResultRelInfo(relinfo, store->rel, 0, NULL, 0);
		ExecComputeStoredGenerated(relinfo, estate, slot, CMD_INSERT);
		FreeExecutorState(estate);
	}
	return slot;
}

/*
 * insert - insert a row without waiting for another transaction
 *
 * is_new: no other one draws its key, so that a row with it is an error.  Returns false if there
 * is a row with that key, committed or not.  The row is taken back then, unless it is new: other
 * sessions that meet it now wait for the speculative insertion lock only, not for the whole
 * transaction.  To confirm it costs a record of WAL.
 */
static bool
insert(ShedlockStore *store, const ShedlockColumns *columns, bool is_new)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *relinfo = open_indexes(store, !is_new);
	bool		added = fill_added(store, columns, estate);
	TupleTableSlot *slot = form_slot(store, columns, added);
	bool		conflict = false;
	uint32		token = is_new ? 0 : SpeculativeInsertionLockAcquire(GetCurrentTransactionId());

	if (added)
		ExecConstraints(relinfo, slot, estate);
	if (is_new)
		table_tuple_insert(store->rel, slot, GetCurrentCommandId(true), 0, NULL);
	else
		table_tuple_insert_speculative(store->rel, slot,
									   GetCurrentCommandId(true), 0, NULL, token);

	/* As for a deferrable constraint: a duplicate is reported at once. */
	list_free(insert_index_tuples(relinfo, slot, estate, false, true, &conflict,
								  UPDATED_NO_INDEX));
	if (!is_new)
	{
		table_tuple_complete_speculative(store->rel, slot, token, !conflict);
		SpeculativeInsertionLockRelease(GetCurrentTransactionId());
	}
	if (!conflict)
		ShedlockRememberPlace(store, columns->values[0], &slot->tts_tid);

	ExecCloseIndices(relinfo);
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);

	/* Make it visible to the next read. */
	CommandCounterIncrement();
	return !conflict;
}

/*
 * ShedlockInsertNew - insert a row whose key was drawn for it
 *
 * Costs less than ShedlockWrite().  If it returns false, the row is there twice, and the
 * caller raises an error.
 */
bool
ShedlockInsertNew(ShedlockStore *store, const ShedlockColumns *columns)
{
	return insert(store, columns, true);
}

/*
 * check_not_newer - raise an error if the current command itself wrote the row
 *
 * SnapshotSelf shows such a row, but the server does not let the command change it.
 */
static void
check_not_newer(ShedlockStore *store)
{
	HeapTupleHeader row = ExecFetchSlotHeapTuple(store->slot, false, NULL)->t_data;

	if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row)) &&
		HeapTupleHeaderGetCmin(row) >= GetCurrentCommandId(false))
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
				 errmsg("row of table \"%s\" was already written by the current command",
						RelationGetRelationName(store->rel)),
				 errhint("Call the function in a statement of its own.")));
}

/*
 * lock_unless_free - lock the row for an update, unless it is locked
 *
 * Returns TM_Ok if the update can be tried.  Sets *wait if it has locked the row:
 * without wait, heap_update() takes a lock of its own transaction for another's; with
 * wait, it has nothing to wait for.
 *
 * A row that was not locked when it was read is not locked here, because that adds 56
 * bytes of WAL to the 333 of an acquire and its release.  If another transaction locks
 * the row after that, heap_update() returns TM_BeingModified, which is right; but the
 * server never calls it so, and asserts that this does not happen.  A foreign writer
 * that keeps locking and unlocking a row fails that assertion within a second, so a
 * build with assertions always takes the lock.
 */
static TM_Result
lock_unless_free(ShedlockStore *store, bool *wait)
{
	TupleTableSlot *slot;
	TM_FailureData failure;
	TM_Result	result;

#ifndef USE_ASSERT_CHECKING
	if (ExecFetchSlotHeapTuple(store->slot, false, NULL)->t_data->t_infomask & HEAP_XMAX_INVALID)
		return TM_Ok;
#endif
	slot = table_slot_create(store->rel, NULL);
	result = table_tuple_lock(store->rel, &store->slot->tts_tid, SnapshotSelf, slot,
							  GetCurrentCommandId(true), LockTupleNoKeyExclusive,
							  LockWaitSkip, 0, &failure);
	ExecDropSingleTupleTableSlot(slot);
	*wait = result == TM_Ok;
	return result == TM_WouldBlock ? TM_BeingModified : result;
}

/*
 * lock_for_change - lock what the server opens when it updates or deletes the row that was
 * fetched last
 *
 * It opens the indexes to know their columns, and remembers these.
 */
static void
lock_for_change(ShedlockStore *store)
{
	if (may_need_toast(ExecFetchSlotHeapTuple(store->slot, false, NULL)))
		ShedlockLockToast(store->rel);
	if (shedlock_never_waits && !index_columns_known(store->rel))
		ShedlockLockIndexes(store->rel);
}

/*
 * update - replace columns of the row that was fetched last
 *
 * As ShedlockWrite().
 */
static bool
update(ShedlockStore *store, ShedlockColumns *columns, bool wait)
{
	TupleTableSlot *slot;
	TM_FailureData failure;
	LockTupleMode lockmode;
	UpdatedIndexes updated = UPDATED_NO_INDEX;
	TM_Result	result = TM_Ok;
	bool		waits = wait;
	uint32		holdoff = QueryCancelHoldoffCount;

	check_not_newer(store);
	if (wait && shedlock_never_waits)
		ShedlockRefuseToWait();
	if (!wait)
		result = lock_unless_free(store, &wait);
	if (result != TM_Ok)
		return false;
	slot_getallattrs(store->slot);
	for (int i = 0; i < store->slot->tts_nvalid; i++)
	{
		if (!columns->replace[i])
		{
			columns->values[i] = store->slot->tts_values[i];
			columns->nulls[i] = store->slot->tts_isnull[i];
		}
	}
	lock_for_change(store);
	slot = form_slot(store, columns, true);
	if (waits)
		QueryCancelHoldoffCount = 0;
	result = update_tuple(store->rel, &store->slot->tts_tid, slot,
						  GetCurrentCommandId(true), wait,
						  &failure, &lockmode, &updated);
	QueryCancelHoldoffCount = holdoff;

	if (result == TM_Ok && updated != UPDATED_NO_INDEX)
	{
		EState	   *estate = CreateExecutorState();
		ResultRelInfo *relinfo = open_indexes(store, false);

		/* The key is unchanged: no conflict is possible. */
		list_free(insert_index_tuples(relinfo, slot, estate, true, false, NULL,
									  updated));
		ExecCloseIndices(relinfo);
		FreeExecutorState(estate);
		store->place->root = slot->tts_tid;
	}
	if (result == TM_Ok)
	{
		store->place->version = slot->tts_tid;
		CommandCounterIncrement();
	}
	ExecDropSingleTupleTableSlot(slot);
	return result == TM_Ok;
}

/*
 * ShedlockWrite - update the row that was fetched last, or insert one if none was found
 *
 * wait: an update waits for a transaction that has the row locked, as UPDATE does.  A cancel
 * ends the wait even where a caller holds off cancels.  An insert waits for nobody.  Returns
 * false if nothing was written: the row was updated or deleted by another transaction, is
 * locked, or is there already, committed or not.  Errors: 27000 if the current command wrote
 * the row; with wait, 55P03 if shedlock_never_waits is set.
 */
bool
ShedlockWrite(ShedlockStore *store, ShedlockColumns *columns, bool wait)
{
	return TTS_EMPTY(store->slot) ? insert(store, columns, false) : update(store, columns, wait);
}

/*
 * ShedlockAwaitInserter - wait for the transaction that inserted the row of a name, after an insert failed
 *
 * *tries: 0 at first.  Waits for the transaction as an INSERT does.  Errors: 23505 if there is
 * none, and the insert has failed for 100 ms.
 */
void
ShedlockAwaitInserter(ShedlockStore *store, const ShedlockName *name, int *tries)
{
	TransactionId inserter = ShedlockInserter(store, CStringGetTextDatum(name->str));

	if (TransactionIdIsValid(inserter))
		XactLockTableWait(inserter, NULL, NULL, XLTW_None);
	else if (!ShedlockAwaitForeignLock(tries))
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("could not insert the row of lock \"%s\"", name->str),
				 errdetail("Another unique index of the table refuses it.")));
}

/*
 * ShedlockDelete - delete the row that was fetched last
 *
 * wait: wait for a transaction that has the row locked, as DELETE does.  Returns true if it was
 * deleted.  Errors: 27000 if the current command wrote the row.
 */
bool
ShedlockDelete(ShedlockStore *store, bool wait)
{
	TM_FailureData failure;
	TM_Result	result;

	check_not_newer(store);
	lock_for_change(store);
	result = delete_tuple(store->rel, &store->slot->tts_tid, GetCurrentCommandId(true), wait,
						  &failure);
	if (result == TM_Ok)
		CommandCounterIncrement();
	return result == TM_Ok;
}
