/*-------------------------------------------------------------------------
 *
 * store.c
 *	  Reading and writing rows of our tables, whichever it is.
 *
 * Rows are found by primary key with SnapshotSelf: what is committed at this
 * moment, and what this transaction wrote.  The transaction's own snapshot may
 * be as old as the transaction, and an MVCC snapshot at SERIALIZABLE would
 * leave predicate locks that make acquirers of different names collide.
 *
 * Rows are written through the table access method, without triggers, rules
 * or privileges of the caller, and without ever waiting unless asked to.  A
 * new row is inserted speculatively, as INSERT ... ON CONFLICT does it, so
 * that a row that appeared meanwhile is a conflict and no error.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "breakage.h"
#include "catalog/namespace.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "rewrite/rewriteHandler.h"
#include "shedlock.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/sinval.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/*
 * Where rows were found last.  Most processes have to do with few locks; one
 * that has not falls back on the index.
 */
static ShedlockPlace places[64];

/*
 * relation_of - OID of a relation in the extension's schema
 */
static Oid
relation_of(Oid nsp, const char *relname)
{
	Oid			relid = get_relname_relid(relname, nsp);

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"%s\" of extension \"shedlock\" does not exist",
						relname)));
	return relid;
}

/*
 * open_relation - open a relation in the extension's schema
 *
 * Whoever had to wait for the lock may have waited for DROP EXTENSION: if the
 * catalogs have changed meanwhile, the name is looked up again.
 */
static Relation
open_relation(Oid nsp, const char *relname, LOCKMODE lockmode)
{
	for (;;)
	{
		uint64		inval_count = SharedInvalidMessageCounter;
		Oid			relid = relation_of(nsp, relname);

		LockRelationOid(relid, lockmode);
		if (inval_count == SharedInvalidMessageCounter ||
			relation_of(nsp, relname) == relid)
			return table_open(relid, NoLock);
		UnlockRelationOid(relid, lockmode);
	}
}

/*
 * open_store - open one of our tables
 *
 * The index is looked up under the lock on the table, which REINDEX
 * CONCURRENTLY waits for before it drops the one that it has replaced.
 */
static void
open_store(ShedlockStore *store, Oid nsp, const char *table, LOCKMODE lockmode)
{
	Oid			pkey;
	Form_pg_attribute keyatt;

	store->rel = open_relation(nsp, table, lockmode);
	pkey = primary_key_index(store->rel);
	if (!OidIsValid(pkey))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" of extension \"shedlock\" has no primary key", table)));
	store->index = index_open(pkey, AccessShareLock);
	store->slot = table_slot_create(store->rel, NULL);

	keyatt = TupleDescAttr(RelationGetDescr(store->index), 0);
	ScanKeyEntryInitialize(&store->key, 0, 1, BTEqualStrategyNumber, InvalidOid,
						   store->index->rd_indcollation[0],
						   keyatt->atttypid == INT8OID ? F_INT8EQ : F_TEXTEQ, (Datum) 0);
}

/*
 * ShedlockOpen - open one of our tables for reading and writing
 *
 * Takes RowExclusiveLock on it to the end of the transaction, as any INSERT
 * or UPDATE does.
 */
void
ShedlockOpen(ShedlockStore *store, Oid nsp, const char *table)
{
	open_store(store, nsp, table, RowExclusiveLock);
}

/*
 * ShedlockOpenToRead - the same for reading only
 *
 * With the lock that a query has on the table, from which we may be called:
 * with a stronger one it would deadlock with a REINDEX that has come between.
 */
void
ShedlockOpenToRead(ShedlockStore *store, Oid nsp, const char *table)
{
	open_store(store, nsp, table, AccessShareLock);
}

/*
 * ShedlockOpenForScan - open one of our tables to read all of it
 */
Relation
ShedlockOpenForScan(Oid nsp, const char *table)
{
	return open_relation(nsp, table, AccessShareLock);
}

/*
 * ShedlockClose - close it; the lock stays
 */
void
ShedlockClose(ShedlockStore *store)
{
	ExecDropSingleTupleTableSlot(store->slot);
	index_close(store->index, AccessShareLock);
	table_close(store->rel, NoLock);
}

/*
 * ShedlockCloseUnused - close it with its lock: nothing was written
 */
void
ShedlockCloseUnused(ShedlockStore *store)
{
	ExecDropSingleTupleTableSlot(store->slot);
	index_close(store->index, AccessShareLock);
	table_close(store->rel, RowExclusiveLock);
}

/*
 * fetch - find the row with this primary key by that snapshot
 *
 * *root is what the index has as its place, which is where its versions begin.
 */
static bool
fetch(ShedlockStore *store, Snapshot snapshot, ItemPointer root)
{
	IndexScanDesc scan;
	ItemPointer tid;
	bool		found = false;

	scan = begin_index_scan(store->rel, store->index, snapshot, 1);
	index_rescan(scan, &store->key, 1, NULL, 0);
	while (!found && (tid = index_getnext_tid(scan, ForwardScanDirection)) != NULL)
	{
		*root = *tid;
		found = index_fetch_heap(scan, store->slot);
	}
	index_endscan(scan);
	return found;
}

/*
 * place_of - where this process remembers the place of the row with this key
 */
static ShedlockPlace *
place_of(ShedlockStore *store, Datum key)
{
	uint32		hash = RelationGetRelid(store->rel);

	if (store->key.sk_func.fn_oid == F_TEXTEQ)
		hash ^= hash_bytes((unsigned char *) VARDATA(DatumGetPointer(key)),
						   (int) VARSIZE(DatumGetPointer(key)) - VARHDRSZ);
	else
		hash ^= (uint32) DatumGetInt64(key);
	return &places[hash % lengthof(places)];
}

/*
 * refetch - is the row with this key where this process has found it last?
 *
 * The second read of a call, that of a release, and that of whoever polls a
 * held lock need no index.  The versions are followed, and the page is pruned,
 * as by an index scan.  The place may be another row's by now, or gone.
 */
static bool
refetch(ShedlockStore *store)
{
	ItemPointerData tid = store->place->root;
	IndexFetchTableData *heap;
	bool		call_again = false;
	bool		found;
	bool		isnull;

	if (store->place->relid != RelationGetRelid(store->rel) ||
		ItemPointerGetBlockNumber(&tid) >= RelationGetNumberOfBlocks(store->rel))
		return false;
	heap = begin_index_fetch(store->rel);
	found = table_index_fetch_tuple(heap, &tid, SnapshotSelf, store->slot, &call_again, NULL);
	table_index_fetch_end(heap);
	return found &&
		DatumGetBool(FunctionCall2Coll(&store->key.sk_func, store->key.sk_collation,
									   slot_getattr(store->slot, 1, &isnull),
									   store->key.sk_argument));
}

/*
 * remember_place - of the row with the key
 */
static void
remember_place(ShedlockStore *store, const ItemPointerData *root)
{
	store->place->relid = RelationGetRelid(store->rel);
	store->place->root = *root;
}

/*
 * ShedlockFetch - put the row with this primary key into store->slot
 *
 * Returns false if there is none.  It looks a second time before it says so: a
 * row whose new version is stored elsewhere by an update that commits during
 * the scan can be missed, since the new version is passed too early and the
 * old one too late.  The owner of a lock must not take that for a loss.
 */
bool
ShedlockFetch(ShedlockStore *store, Datum key)
{
	ItemPointerData root;

	store->key.sk_argument = key;
	store->place = place_of(store, key);
	ExecClearTuple(store->slot);
	if (!refetch(store))
	{
		ExecClearTuple(store->slot);
		if (!fetch(store, SnapshotSelf, &root) && !fetch(store, SnapshotSelf, &root))
			return false;
		remember_place(store, &root);
	}
	ExecMaterializeSlot(store->slot);
	return true;
}

/*
 * ShedlockRowIsInProgress - has an open transaction inserted a row of that name?
 */
bool
ShedlockRowIsInProgress(ShedlockStore *store, const char *name)
{
	SnapshotData dirty;
	ItemPointerData root;
	bool		found;

	InitDirtySnapshot(dirty);
	store->key.sk_argument = CStringGetTextDatum(name);
	found = fetch(store, &dirty, &root);
	ExecClearTuple(store->slot);
	return found && TransactionIdIsValid(dirty.xmin);
}

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
 * ShedlockUpdate - replace columns of the row that was fetched last
 *
 * wait: wait for whoever has the row locked, as UPDATE does; without it
 * TM_BeingModified comes back.  Anything but TM_Ok: nothing was written.
 */
TM_Result
ShedlockUpdate(ShedlockStore *store, const ShedlockColumns *columns, bool wait)
{
	TupleDesc	desc = RelationGetDescr(store->rel);
	TupleTableSlot *slot;
	HeapTuple	tuple;
	HeapTuple	old;
	bool		free_old;
	TM_FailureData failure;
	LockTupleMode lockmode;
	UpdatedIndexes updated = UPDATED_NO_INDEX;
	TM_Result	result;

	old = ExecFetchSlotHeapTuple(store->slot, false, &free_old);
	tuple = heap_modify_tuple(old, desc, columns->values, columns->nulls,
							  columns->replace);
	if (free_old)
		heap_freetuple(old);
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
		remember_place(store, &slot->tts_tid);
	}
	if (result == TM_Ok)
		CommandCounterIncrement();
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

	result = delete_tuple(store->rel, tid, GetCurrentCommandId(true), &failure);
	if (result == TM_Ok)
		CommandCounterIncrement();
	return result;
}

/*
 * ShedlockNextToken - draw a fencing token
 *
 * To be called with the advisory half held exclusively, and to be followed by
 * the write of the row in the same hold: then the tokens of a lock grow in the
 * order of its acquisitions.
 */
int64
ShedlockNextToken(Oid nsp)
{
	int64		token = nextval_internal(relation_of(nsp, "shedlock_token_seq"), false);

	return ShedlockBroken(TOKENS_REUSED) ? (token + 1) / 2 : token;
}
