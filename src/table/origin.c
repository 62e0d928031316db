/*-------------------------------------------------------------------------
 *
 * origin.c
 *	  Where the holder of a session lock or run ran, and whether it can be alive.
 *
 * The lock table of this server proves that a holder is gone only if the holder ran on
 * this server.  So its lock counts as a lease if it was acquired
 *
 * - in another cluster: the table was restored, upgraded or replicated logically.  A
 *   table has the first tokens that were drawn in this cluster, so that rows need not
 *   name their cluster.
 * - on another timeline, whose holders may live on an isolated server; unless that
 *   timeline provably ended with a shutdown checkpoint (base/walend.c).  The WAL that
 *   proves it is recycled some day, so the next acquisition of such a lock writes down
 *   what was found.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

enum
{
	Anum_none,
	SHEDLOCK_CLUSTER_COLUMNS(SHEDLOCK_ATTNUM)
};

/* How long a search without a proof counts: another session may find one. */
#define FORGET_AFTER	(10 * USECS_PER_SEC)

/* What this process knows of a timeline. */
typedef struct Known
{
	TimeLineID	timeline;
	bool		ended;			/* with a shutdown checkpoint */
	int64		looked_at;		/* on the steady clock */
} Known;

static Known *known = NULL;
static int	known_count = 0;

/* The least token that is known to be of this cluster, in that table of locks */
static int64 first_own_token = 0;
static Oid	first_own_relid = InvalidOid;

/*
 * read_first_token - the least token that was written down for this cluster
 *
 * PG_INT64_MAX if there is none.  Sets *certain if no rollback can undo that.
 */
static int64
read_first_token(Oid nsp, bool *certain)
{
	ShedlockStore store;
	TableScanDesc scan;
	int64		first = PG_INT64_MAX;

	*certain = true;
	ShedlockOpenToRead(&store, nsp, "shedlock_cluster");
	scan = begin_table_scan(store.rel, SnapshotSelf);
	while (table_scan_getnextslot(scan, ForwardScanDirection, store.slot))
	{
		bool		isnull;
		Datum		id = slot_getattr(store.slot, Anum_system_identifier, &isnull);
		Datum		xmin = slot_getsysattr(store.slot, MinTransactionIdAttributeNumber, &isnull);

		if ((uint64) DatumGetInt64(id) != GetSystemIdentifier())
			continue;
		first = Min(first, DatumGetInt64(slot_getattr(store.slot, Anum_first_token, &isnull)));
		if (TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin)))
			*certain = false;
	}
	table_endscan(scan);
	ShedlockClose(&store);
	return first;
}

/*
 * ShedlockLearnCluster - find out whether the lock of a row was acquired in this cluster
 *
 * locks: the table of the row.  Does nothing for rows whose kind has no process.  Another
 * session may have committed a smaller token than this process knows, so a row with a
 * smaller one reads the table of clusters again.  Reads no file, so the caller may hold
 * the advisory half.
 */
void
ShedlockLearnCluster(Relation locks, const ShedlockRow *row)
{
	bool		certain;

	if (!SHEDLOCK_IS_OF_PROCESS(row->kind) ||
		(first_own_relid == RelationGetRelid(locks) && row->token >= first_own_token))
		return;
	first_own_relid = InvalidOid;
	first_own_token = read_first_token(RelationGetNamespace(locks), &certain);
	if (certain)
		first_own_relid = RelationGetRelid(locks);
}

/*
 * find_known - what this process knows of a timeline, or NULL
 */
static Known *
find_known(TimeLineID timeline)
{
	for (int i = 0; i < known_count; i++)
	{
		if (known[i].timeline == timeline)
			return &known[i];
	}
	return NULL;
}

/*
 * add_known - room for what this process learns of a timeline
 */
static Known *
add_known(TimeLineID timeline)
{
	Size		size = (Size) (known_count + 1) * sizeof(Known);

	known = known ? repalloc(known, size) : MemoryContextAlloc(TopMemoryContext, size);
	memset(&known[known_count], 0, sizeof(Known));
	known[known_count].timeline = timeline;
	return &known[known_count++];
}

/*
 * key_of - a timeline's primary key: other clusters have timelines of that number, too
 */
static Datum
key_of(TimeLineID timeline)
{
	return CStringGetTextDatum(psprintf(UINT64_FORMAT "/%u", GetSystemIdentifier(), timeline));
}

/*
 * is_written - does the table say that the timeline has ended?
 */
static bool
is_written(Oid nsp, TimeLineID timeline)
{
	ShedlockStore store;
	bool		found;

	ShedlockOpenToRead(&store, nsp, "shedlock_timeline");
	found = ShedlockFetch(&store, key_of(timeline));
	ShedlockClose(&store);
	return found;
}

/*
 * learn_timeline - find out whether a timeline has ended
 */
static void
learn_timeline(Oid nsp, TimeLineID timeline)
{
	Known	   *entry = find_known(timeline);

	if (entry && (entry->ended || ShedlockSteadyNow() - entry->looked_at < FORGET_AFTER))
		return;
	if (entry == NULL)
		entry = add_known(timeline);
	entry->ended = is_written(nsp, timeline) || ShedlockTimelineEnded(timeline);
	entry->looked_at = ShedlockSteadyNow();
}

/*
 * ShedlockLearnOrigin - find out what is known of where the holder of a lock ran
 *
 * locks: the table of the row.  Does nothing for rows whose kind has no process.  Reads
 * nothing for the current timeline, once the cluster is known.  Of another one it reads
 * the WAL, at most once in a while, so the caller holds no advisory lock.
 */
void
ShedlockLearnOrigin(Relation locks, const ShedlockRow *row)
{
	if (!SHEDLOCK_IS_OF_PROCESS(row->kind) || RecoveryInProgress())
		return;
	ShedlockLearnCluster(locks, row);
	if (row->timeline != GetWALInsertionTimeLine())
		learn_timeline(RelationGetNamespace(locks), row->timeline);
}

/*
 * ShedlockIsOfThisCluster - was the lock acquired in this cluster?
 */
bool
ShedlockIsOfThisCluster(const ShedlockRow *row)
{
	return row->token >= first_own_token;
}

/*
 * ShedlockTimelineIsOver - is every process of that timeline known to be gone?
 */
bool
ShedlockTimelineIsOver(TimeLineID timeline)
{
	const Known *entry = find_known(timeline);

	return entry && entry->ended;
}

/*
 * write_cluster - write down that tokens from this one on are of this cluster
 *
 * Each of the first acquisitions writes its own token, because the others may be rolled
 * back, or may commit with a smaller one.
 */
static void
write_cluster(Oid nsp, int64 token)
{
	ShedlockStore store;
	ShedlockColumns columns;

	ShedlockOpen(&store, nsp, "shedlock_cluster");
	ShedlockNewColumns(&store, &columns);
	ShedlockSetColumn(&columns, Anum_first_token, Int64GetDatum(token));
	ShedlockSetColumn(&columns, Anum_system_identifier,
					  Int64GetDatum((int64) GetSystemIdentifier()));
	(void) ShedlockInsert(&store, &columns);
	ShedlockClose(&store);
}

/*
 * write_timeline - write down that a timeline has ended
 */
static void
write_timeline(Oid nsp, TimeLineID timeline)
{
	ShedlockStore store;
	ShedlockColumns columns;

	ShedlockOpen(&store, nsp, "shedlock_timeline");
	ShedlockNewColumns(&store, &columns);
	ShedlockSetColumn(&columns, 1, key_of(timeline));
	(void) ShedlockInsert(&store, &columns);
	ShedlockClose(&store);
}

/*
 * ShedlockWriteOrigin - write down what has been found, in a transaction that acquires a lock
 *
 * row: as the acquisition has written it.  old: the row before.  If an open transaction
 * writes the same timeline, and is rolled back, a later acquisition writes it.
 */
void
ShedlockWriteOrigin(Relation locks, const ShedlockRow *row, const ShedlockRow *old)
{
	Oid			nsp = RelationGetNamespace(locks);

	ShedlockLearnCluster(locks, row);
	if (SHEDLOCK_IS_OF_PROCESS(row->kind) && row->token < first_own_token)
		write_cluster(nsp, row->token);
	if (SHEDLOCK_IS_OF_PROCESS(old->kind) && ShedlockTimelineIsOver(old->timeline) &&
		!is_written(nsp, old->timeline))
		write_timeline(nsp, old->timeline);
}
