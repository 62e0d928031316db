/*-------------------------------------------------------------------------
 *
 * fetch.c
 *	  Finding a row of our tables by its primary key.
 *
 * Rows are found with SnapshotSelf: what is committed at this moment, and what
 * this transaction wrote.  The transaction's own snapshot may be as old as the
 * transaction, and an MVCC snapshot at SERIALIZABLE would leave predicate locks
 * that make acquirers of different names collide.
 *
 * A row is looked for where this process has had it last, then by the index.
 * What is found in either way counts only if it is visible and has the key, so
 * that what is remembered need not be true.
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
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* As long as there is room for these on its page, a row is read without pruning. */
#define ROOM_FOR_VERSIONS	4

/*
 * Where rows were found last: sets of places, by the hash of the row's key.
 * One that is not here is found by the index.
 */
#define PLACE_SETS		1024
#define PLACES_IN_SET	4
static ShedlockPlace places[PLACE_SETS][PLACES_IN_SET];

/*
 * fetch - find the row with this primary key by that snapshot
 *
 * *root is what the index has as its place, which is where its versions begin.
 */
static bool
fetch(ShedlockStore *store, Snapshot snapshot, ItemPointer root)
{
	Relation	index = ShedlockPrimaryKey(store);
	ScanKeyData key;
	IndexScanDesc scan;
	ItemPointer tid;
	bool		found = false;

	ScanKeyEntryInitialize(&key, 0, 1, BTEqualStrategyNumber, InvalidOid,
						   index->rd_indcollation[0],
						   store->key_is_text ? F_TEXTEQ : F_INT8EQ, store->key);
	scan = begin_index_scan(store->rel, index, snapshot, 1);
	index_rescan(scan, &key, 1, NULL, 0);
	while (!found && (tid = index_getnext_tid(scan, ForwardScanDirection)) != NULL)
	{
		*root = *tid;
		found = index_fetch_heap(scan, store->slot);
	}
	index_endscan(scan);
	return found;
}

/*
 * place_of - what this process remembers of the row with this key
 *
 * If that is nothing, another row of the set is forgotten for it.
 */
static ShedlockPlace *
place_of(ShedlockStore *store, Datum key)
{
	static unsigned victim = 0;
	Oid			relid = RelationGetRelid(store->rel);
	ShedlockPlace *set;
	ShedlockPlace *place;
	uint32		hash;

	if (store->key_is_text)
		hash = hash_bytes((unsigned char *) VARDATA(DatumGetPointer(key)),
						  (int) VARSIZE(DatumGetPointer(key)) - VARHDRSZ);
	else
		hash = hash_bytes_uint32((uint32) DatumGetInt64(key));

	set = places[hash % PLACE_SETS];
	for (place = set; place < set + PLACES_IN_SET; place++)
	{
		if (place->hash == hash && place->relid == relid)
			return place;
	}
	place = &set[victim++ % PLACES_IN_SET];
	place->relid = relid;
	place->hash = hash;
	ItemPointerSetInvalid(&place->root);
	return place;
}

/*
 * has_page - has the table a page of this number?
 *
 * Asking the file system is a system call.  A size that the server has seen
 * once is enough until it forgets it: who truncates a table locks it against
 * all others, and makes them forget before that, as the free space map relies
 * on, too.
 */
static bool
has_page(Relation rel, BlockNumber page)
{
	BlockNumber seen = RelationGetSmgr(rel)->smgr_cached_nblocks[MAIN_FORKNUM];

	return (seen != InvalidBlockNumber && page < seen) ||
		page < RelationGetNumberOfBlocks(rel);
}

/*
 * has_key - is the row in the slot the one that is looked for?
 *
 * By its bytes: what is equal only by some collation is found by the index.
 */
static bool
has_key(ShedlockStore *store)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(store->rel), 0);
	bool		isnull;
	Datum		key = slot_getattr(store->slot, 1, &isnull);

	return datum_image_eq(key, store->key, att->attbyval, att->attlen);
}

/*
 * has_room - can the row be written a few times more on its page?
 *
 * The answer is a guess, since the page is not locked, as that of the server
 * is when it decides whether to prune.
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
 * fetch_version - is the version that this process has had last still the one?
 *
 * This way does not prune the page, so that it is taken only as long as there
 * is room: rather once for many versions than for each.
 */
static bool
fetch_version(ShedlockStore *store)
{
	ItemPointer tid = &store->place->version;

	return has_page(store->rel, ItemPointerGetBlockNumber(tid)) &&
		table_tuple_fetch_row_version(store->rel, tid, SnapshotSelf, store->slot) &&
		has_key(store) && has_room(store->slot);
}

/*
 * fetch_chain - is the row among the versions that begin where it began last?
 *
 * The versions are followed, and the page is pruned, as by an index scan.
 */
static bool
fetch_chain(ShedlockStore *store)
{
	ItemPointerData tid = store->place->root;
	IndexFetchTableData *heap;
	bool		call_again = false;
	bool		found;

	ExecClearTuple(store->slot);
	if (!has_page(store->rel, ItemPointerGetBlockNumber(&tid)))
		return false;
	heap = begin_index_fetch(store->rel);
	found = table_index_fetch_tuple(heap, &tid, SnapshotSelf, store->slot, &call_again, NULL);
	table_index_fetch_end(heap);
	return found && has_key(store);
}

/*
 * refetch - is the row with this key where this process has found it last?
 *
 * A release, and whoever polls a held lock, need no index.  The place may be
 * another row's by now, or gone.
 */
static bool
refetch(ShedlockStore *store)
{
	return ItemPointerIsValid(&store->place->root) &&
		(fetch_version(store) || fetch_chain(store));
}

/*
 * ShedlockFetch - put the row with this primary key into store->slot
 *
 * Returns false if there is none.  It looks a second time before it says so: a
 * row whose new version is stored elsewhere by an update that commits during
 * the scan can be missed, since the new version is passed too early and the
 * old one too late.  The owner of a lock must not take that for a loss.
 *
 * The slot keeps the page pinned, until the next fetch or the close.
 */
bool
ShedlockFetch(ShedlockStore *store, Datum key)
{
	store->key = key;
	store->place = place_of(store, key);
	ExecClearTuple(store->slot);
	if (!refetch(store))
	{
		ItemPointerData root;

		ExecClearTuple(store->slot);
		if (!fetch(store, SnapshotSelf, &root) && !fetch(store, SnapshotSelf, &root))
			return false;
		store->place->root = root;
	}
	store->place->version = store->slot->tts_tid;
	return true;
}

/*
 * ShedlockIsCurrent - is what was fetched last what a fetch would find now?
 *
 * Nothing on a page moves while it is pinned.
 */
bool
ShedlockIsCurrent(ShedlockStore *store)
{
	return !TTS_EMPTY(store->slot) &&
		table_tuple_satisfies_snapshot(store->rel, store->slot, SnapshotSelf);
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
	store->key = CStringGetTextDatum(name);
	found = fetch(store, &dirty, &root);
	ExecClearTuple(store->slot);
	return found && TransactionIdIsValid(dirty.xmin);
}
