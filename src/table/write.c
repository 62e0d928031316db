/*-------------------------------------------------------------------------
 *
 * write.c
 *	  Writing rows of our tables, whichever it is.
 *
 * Rows are written through the table access method, without triggers, rules
 * or privileges of the caller, and without ever waiting unless asked to.  What
 * must hold for them all the same is refused (ShedlockCheckPromises).  A new row
 * is inserted speculatively, as INSERT ... ON CONFLICT does it, so that a row that
 * appeared meanwhile is a conflict and no error.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "nodes/execnodes.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

/*
 * open_indexes - what ExecInsertIndexTuples() wants to know
 *
 * Range table index 0: there is no range table that could tell it which
 * columns an update changes.  None of ours changes an indexed column.
 */
static ResultRelInfo *
open_indexes(ShedlockStore *store, bool speculative)
{
	ResultRelInfo *relinfo = makeNode(ResultRelInfo);

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

	columns->values = palloc0(natts * sizeof(Datum));
	columns->nulls = palloc(natts * sizeof(bool));
	memset(columns->nulls, true, natts * sizeof(bool));
	columns->replace = palloc0(natts * sizeof(bool));
}

/*
 * ShedlockSetColumn, ShedlockSetNull, ShedlockSetText - give a column its value
 *
 * str NULL: null.
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

void
ShedlockSetText(ShedlockColumns *columns, int attnum, const char *str)
{
	if (str)
		ShedlockSetColumn(columns, attnum, CStringGetTextDatum(str));
	else
		ShedlockSetNull(columns, attnum);
}

/*
 * fill_added - give the columns that somebody added to the table their defaults
 *
 * Returns true if there are such columns: their constraints want to be checked.
 */
static bool
fill_added(ShedlockStore *store, const ShedlockColumns *columns, EState *estate)
{
	TupleDesc	desc = RelationGetDescr(store->rel);
	bool		added = false;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Node	   *expr;

		if (columns->replace[i] || att->attisdropped)
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
 * compute_generated - the values of generated columns that somebody added
 *
 * As for an INSERT: all of them, whatever has changed.
 */
static void
compute_generated(ShedlockStore *store, TupleTableSlot *slot)
{
	TupleConstr *constr = RelationGetDescr(store->rel)->constr;
	ResultRelInfo *relinfo;
	EState	   *estate;

	if (constr == NULL || !constr->has_generated_stored)
		return;
	estate = CreateExecutorState();
	relinfo = makeNode(ResultRelInfo);
	InitResultRelInfo(relinfo, store->rel, 0, NULL, 0);
	ExecComputeStoredGenerated(relinfo, estate, slot, CMD_INSERT);
	FreeExecutorState(estate);
}

/*
 * ShedlockInsert - insert a row without waiting for anybody
 *
 * Returns false if a row with that key is there, committed or not.
 */
bool
ShedlockInsert(ShedlockStore *store, const ShedlockColumns *columns)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *relinfo = open_indexes(store, true);
	bool		added = fill_added(store, columns, estate);
	HeapTuple	tuple = heap_form_tuple(RelationGetDescr(store->rel),
										columns->values, columns->nulls);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(store->rel),
													&TTSOpsHeapTuple);
	uint32		token;
	bool		conflict = false;

	ExecStoreHeapTuple(tuple, slot, false);
	slot->tts_tableOid = RelationGetRelid(store->rel);
	if (added)
	{
		compute_generated(store, slot);
		ExecConstraints(relinfo, slot, estate);
	}

	/*
	 * Other sessions that meet the tuple now wait for the speculative
	 * insertion lock only, not for the whole transaction.
	 */
	token = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());
	table_tuple_insert_speculative(store->rel, slot,
								   GetCurrentCommandId(true), 0, NULL, token);
	list_free(insert_index_tuples(relinfo, slot, estate, false, true, &conflict,
								  UPDATED_NO_INDEX));
	table_tuple_complete_speculative(store->rel, slot, token, !conflict);
	SpeculativeInsertionLockRelease(GetCurrentTransactionId());

	ExecCloseIndices(relinfo);
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);

	/* Make it visible to our next read. */
	CommandCounterIncrement();
	return !conflict;
}

/*
 * check_not_newer - complain if the current command itself has written the row
 *
 * We see it, but the server lets a command change nothing that it has written.
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
 * lock_unless_free - lock a row for an update, or say at once why not
 *
 * *wait is set if the row is locked: then the update does not wait, though it
 * may.  heap_update() that must not wait takes a lock of its own transaction for
 * another's, hence the lock here.
 *
 * A row that nobody had locked when it was read is spared the lock, which would
 * add 56 bytes to the log of an acquire and its release, 333 before.  If somebody
 * locks it after that, heap_update() returns TM_BeingModified, which is right;
 * but the server itself never calls it so, and asserts that this does not happen.
 * A foreign writer who locks and unlocks one row all the time brings a server with
 * assertions down within a second: that one always takes the lock.
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
 * ShedlockUpdate - replace columns of the row that was fetched last
 *
 * The others are filled in.  wait: wait for whoever has the row locked, as
 * UPDATE does; without it TM_BeingModified comes back.  Anything but TM_Ok:
 * nothing was written.
 */
TM_Result
ShedlockUpdate(ShedlockStore *store, ShedlockColumns *columns, bool wait)
{
	TupleDesc	desc = RelationGetDescr(store->rel);
	TupleTableSlot *slot;
	HeapTuple	tuple;
	TM_FailureData failure;
	LockTupleMode lockmode;
	UpdatedIndexes updated = UPDATED_NO_INDEX;
	TM_Result	result = TM_Ok;

	check_not_newer(store);
	if (!wait)
		result = lock_unless_free(store, &wait);
	if (result != TM_Ok)
		return result;
	slot_getallattrs(store->slot);
	for (int i = 0; i < desc->natts; i++)
	{
		if (!columns->replace[i])
		{
			columns->values[i] = store->slot->tts_values[i];
			columns->nulls[i] = store->slot->tts_isnull[i];
		}
	}
	tuple = heap_form_tuple(desc, columns->values, columns->nulls);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
	ExecStoreHeapTuple(tuple, slot, false);
	slot->tts_tableOid = RelationGetRelid(store->rel);
	compute_generated(store, slot);

	result = update_tuple(store->rel, &store->slot->tts_tid, slot,
						  GetCurrentCommandId(true), wait,
						  &failure, &lockmode, &updated);

	if (result == TM_Ok && updated != UPDATED_NO_INDEX)
	{
		EState	   *estate = CreateExecutorState();
		ResultRelInfo *relinfo = open_indexes(store, false);

		/* The key is as it was and the old row is ours: no conflict is left. */
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
	heap_freetuple(tuple);
	return result;
}

/*
 * ShedlockDelete - delete a row without waiting for anybody
 *
 * Anything but TM_Ok: nothing was deleted.
 */
TM_Result
ShedlockDelete(ShedlockStore *store, ItemPointer tid)
{
	TM_FailureData failure;
	TM_Result	result;

	if (tid == &store->slot->tts_tid)
		check_not_newer(store);
	result = delete_tuple(store->rel, tid, GetCurrentCommandId(true), &failure);
	if (result == TM_Ok)
		CommandCounterIncrement();
	return result;
}
