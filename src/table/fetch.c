/*-------------------------------------------------------------------------
 *
 * fetch.c
 *	  Finds a row of a table by its primary key.
 *
 * Rows are read with SnapshotSelf, which sees what is committed now and what this
 * transaction wrote.  The transaction's own snapshot can be as old as the transaction,
 * and an MVCC snapshot at SERIALIZABLE would leave predicate locks that make acquirers
 * of different names fail.
 *
 * A row is looked for where this process last found it, then by the index; what it
 * remembers need not be true (see src/README).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/smgr.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* How often a row is looked for by the index. */
#define LOOKS			3

/* A row is read without pruning while its page has room for this many versions. */
#define ROOM_FOR_VERSIONS	4

/* Where rows were last found: sets of places, by the hash of the row's key. */
#define PLACE_SETS		512
#define PLACES_IN_SET	8
static ShedlockPlace places[PLACE_SETS][PLACES_IN_SET];

/*
 * begin_key_scan - begin a scan of the primary key for one row
 */
static IndexScanDesc
begin_key_scan(ShedlockStore *store, Datum value, Snapshot snapshot)
{
	Relation	index = ShedlockPrimaryKey(store);
	ScanKeyData key;
	IndexScanDesc scan;

	ScanKeyEntryInitialize(&key, 0, 1, BTEqualStrategyNumber, InvalidOid,
						   index->rd_indcollation[0],
						   index->rd_opcintype[0] == INT8OID ? F_INT8EQ : F_TEXTEQ,
						   value);
	scan = begin_index_scan(store->rel, index, snapshot, 1);
	index_rescan(scan, &key, 1, NULL, 0);
	return scan;
}

/*
 * fetch_by_index - find the row by its primary key, with that snapshot
 *
 * The entries of one key are in the order of their places.  Many of them lead to
 * versions that only an old snapshot needs; the row has mostly moved to later pages, so
 * the last entry is tried first.
 *
 * Sets *root to the place in the index entry, where the row's versions begin.
 */
static bool
fetch_by_index(ShedlockStore *store, Snapshot snapshot, ItemPointer root)
{
	IndexScanDesc scan;
	ItemPointer tid;
	bool		found = false;

	ExecClearTuple(store->slot);
	scan = begin_key_scan(store, store->key, snapshot);
	while (!found && (tid = index_getnext_tid(scan, BackwardScanDirection)) != NULL)
	{
		*root = *tid;
		found = index_fetch_heap(scan, store->slot);
	}
	index_endscan(scan);
	return found;
}

static uint32
hash_key(const ShedlockStore *store)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(store->rel), 0);

	if (att->atttypid == INT8OID)
		return murmurhash32((uint32) DatumGetInt64(store->key));
	return hash_bytes((unsigned char *) VARDATA_ANY(DatumGetPointer(store->key)),
					  (int) text_size(DatumGetPointer(store->key)));
}

/*
 * place_of - where this process last found the row
 *
 * If it has not, the root is invalid, and another row of the set is forgotten.
 */
static ShedlockPlace *
place_of(ShedlockStore *store)
{
	static unsigned victim = 0;
	Oid			relid = RelationGetRelid(store->rel);
	uint32		hash = hash_key(store);
	ShedlockPlace *set = places[hash % PLACE_SETS];
	ShedlockPlace *place;

	for (place = set; place < set + PLACES_IN_SET && OidIsValid(place->relid); place++)
	{
		if (place->hash == hash && place->relid == relid)
			return place;
	}
	if (place == set + PLACES_IN_SET)
		place = &set[victim++ % PLACES_IN_SET];
	place->relid = relid;
	place->hash = hash;
	ItemPointerSetInvalid(&place->root);
	return place;
}

/*
 * has_page - does the table have the page of that place?
 *
 * The number of pages that the server has cached saves a system call.  It is never too
 * large: TRUNCATE and VACUUM lock the table and make every process forget the number
 * before they truncate it.
 */
static bool
has_page(Relation rel, ItemPointer tid)
{
	BlockNumber page = ItemPointerGetBlockNumber(tid);
	BlockNumber cached = RelationGetSmgr(rel)->smgr_cached_nblocks[MAIN_FORKNUM];

	return (cached != InvalidBlockNumber && page < cached) ||
		page < RelationGetNumberOfBlocks(rel);
}

/*
 * has_key - does the row in the slot have the key?
 *
 * Compares bytes: what is equal only by a collation is found by the index.
 */
static bool
has_key(ShedlockStore *store)
{
	bool		isnull;
	Datum		key = slot_getattr(store->slot, 1, &isnull);
	text	   *found;
	text	   *wanted;

	if (TupleDescAttr(RelationGetDescr(store->rel), 0)->atttypid == INT8OID)
		return DatumGetInt64(key) == DatumGetInt64(store->key);
	found = DatumGetTextPP(key);
	wanted = DatumGetTextPP(store->key);
	return text_size(found) == text_size(wanted) &&
		memcmp(VARDATA_ANY(found), VARDATA_ANY(wanted), text_size(found)) == 0;
}

/*
 * has_room - does the page of the row in the slot have room for more versions of it?
 *
 * A guess, because the page is not locked, like the server's when it decides whether to
 * prune.
 */
static bool
has_room(TupleTableSlot *slot)
{
	BufferHeapTupleTableSlot *bslot = (BufferHeapTupleTableSlot *) slot;

	return !TTS_IS_BUFFERTUPLE(slot) ||
		PageGetExactFreeSpace(BufferGetPage(bslot->buffer)) >=
		ROOM_FOR_VERSIONS * MAXALIGN(bslot->base.tuple->t_len);
}

/*
 * fetch_version - fetch the version that this process had last, if it is still current
 *
 * This does not prune the page, which would add WAL to each update of the row, and so
 * it gives up when the page is nearly full.
 */
static bool
fetch_version(ShedlockStore *store)
{
	ItemPointer tid = &store->place->version;

	return has_page(store->rel, tid) &&
		table_tuple_fetch_row_version(store->rel, tid, SnapshotSelf, store->slot) &&
		has_key(store) && has_room(store->slot);
}

/*
 * fetch_chain - fetch the current version from where the row's versions begin
 *
 * This follows the versions, and prunes the page, like an index scan.
 */
static bool
fetch_chain(ShedlockStore *store)
{
	ItemPointerData tid = store->place->root;
	IndexFetchTableData *heap;
	bool		call_again = false;
	bool		found;

	ExecClearTuple(store->slot);
	if (!has_page(store->rel, &tid))
		return false;
	heap = begin_index_fetch(store->rel);
	found = table_index_fetch_tuple(heap, &tid, SnapshotSelf, store->slot, &call_again, NULL);
	table_index_fetch_end(heap);
	return found && has_key(store);
}

/*
 * ShedlockFetch - put the row with this primary key into store->slot
 *
 * Returns false if there is none, after it has looked three times by the index: if an
 * update that moves the row to another page commits during the scan, the scan can pass
 * the new version before the commit and the old one after it, and the owner of a lock
 * must not take that for a loss.
 *
 * The slot keeps the page pinned until the next fetch or the close.
 */
bool
ShedlockFetch(ShedlockStore *store, Datum key)
{
	store->key = key;
	store->place = place_of(store);
	ExecClearTuple(store->slot);
	if (!SHEDLOCK_CACHES || !ItemPointerIsValid(&store->place->root) ||
		!(fetch_version(store) || fetch_chain(store)))
	{
		ItemPointerData root;
		int			looks = 0;

		while (!fetch_by_index(store, SnapshotSelf, &root))
		{
			if (++looks == LOOKS)
				return false;
		}
		store->place->root = root;
	}
	store->place->version = store->slot->tts_tid;
	return true;
}

/*
 * ShedlockRememberPlace - remember where this transaction has inserted the row with that key
 */
void
ShedlockRememberPlace(ShedlockStore *store, Datum key, ItemPointer tid)
{
	store->key = key;
	store->place = place_of(store);
	store->place->root = store->place->version = *tid;
}

/*
 * ShedlockIsCurrent - would a fetch find the version that was fetched last?
 *
 * No tuple moves within a page while the page is pinned.
 */
bool
ShedlockIsCurrent(ShedlockStore *store)
{
	return !TTS_EMPTY(store->slot) &&
		table_tuple_satisfies_snapshot(store->rel, store->slot, SnapshotSelf);
}

/*
 * ShedlockInserter - the open transaction that has inserted the row with that key, if any
 *
 * Leaves no row in the slot.
 */
TransactionId
ShedlockInserter(ShedlockStore *store, Datum key)
{
	SnapshotData dirty;
	ItemPointerData root;
	bool		found;

	store->key = key;
	InitDirtySnapshot(dirty);
	found = fetch_by_index(store, &dirty, &root);
	ExecClearTuple(store->slot);
	return found ? dirty.xmin : InvalidTransactionId;
}

/*
 * ShedlockIsBeingChanged - has another open transaction changed the row that was fetched last?
 *
 * Also if none was found, and one has inserted it.  A row that is only locked is not changed.
 */
bool
ShedlockIsBeingChanged(ShedlockStore *store)
{
	SnapshotData dirty;

	if (TTS_EMPTY(store->slot))
		return TransactionIdIsValid(ShedlockInserter(store, store->key));
	InitDirtySnapshot(dirty);
	return table_tuple_satisfies_snapshot(store->rel, store->slot, &dirty) &&
		TransactionIdIsValid(dirty.xmax);
}
