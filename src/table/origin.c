/*-------------------------------------------------------------------------
 *
 * origin.c
 *	  Where the holder of a session lock or run ran, and whether it can be alive.
 *
 * The lock table of this server proves that a holder is gone only if the holder ran on
 * this server.  So its lock counts as a lease if it was acquired
 *
 * - in another cluster: the table was restored, upgraded or replicated logically.  A
 *   table has the first token that was drawn in this cluster, so that rows need not
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
#include "access/xact.h"
#include "access/xlog.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

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

/* The first token of this cluster in that table of locks; all, until that is known */
static int64 first_own_token = 0;
static Oid	first_own_relid = InvalidOid;

/*
 * read_first_token - the first token that was drawn in this cluster; 0 if none was
 *
 * *certain: it cannot be rolled back any more.
 */
static int64
read_first_token(Oid nsp, bool *certain)
{
	ShedlockStore store;
	int64		token = 0;

	ShedlockOpenToRead(&store, nsp, "shedlock_cluster");
	if (ShedlockFetch(&store, Int64GetDatum((int64) GetSystemIdentifier())))
	{
		bool		isnull;

		token = DatumGetInt64(slot_getattr(store.slot, Anum_first_token, &isnull));
		*certain = !TransactionIdIsCurrentTransactionId(
														DatumGetTransactionId(slot_getsysattr(store.slot, MinTransactionIdAttributeNumber, &isnull)));
	}
	ShedlockClose(&store);
	return token;
}

/*
 * learn_cluster - find out which tokens were drawn in this cluster
 */
static void
learn_cluster(Relation locks)
{
	bool		certain = false;

	if (first_own_relid == RelationGetRelid(locks))
		return;
	first_own_token = read_first_token(RelationGetNamespace(locks), &certain);
	if (first_own_token == 0)
		first_own_token = PG_INT64_MAX;
	first_own_relid = certain ? RelationGetRelid(locks) : InvalidOid;
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
	if ((row->kind != SHEDLOCK_SESSION && row->kind != SHEDLOCK_RUN) || RecoveryInProgress())
		return;
	learn_cluster(locks);
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
 */
static void
write_cluster(Oid nsp, int64 token)
{
	ShedlockStore store;
	ShedlockColumns columns;

	ShedlockOpen(&store, nsp, "shedlock_cluster");
	ShedlockNewColumns(&store, &columns);
	ShedlockSetColumn(&columns, Anum_system_identifier,
					  Int64GetDatum((int64) GetSystemIdentifier()));
	ShedlockSetColumn(&columns, Anum_first_token, Int64GetDatum(token));
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
 * row: as the acquisition has written it.  old: the row before.  If another transaction
 * writes the same now, that is enough.
 */
void
ShedlockWriteOrigin(Relation locks, const ShedlockRow *row, const ShedlockRow *old)
{
	Oid			nsp = RelationGetNamespace(locks);

	if (row->kind == SHEDLOCK_SESSION || row->kind == SHEDLOCK_RUN)
	{
		learn_cluster(locks);
		if (row->token < first_own_token)
			write_cluster(nsp, row->token);
	}
	if (ShedlockTimelineIsOver(old->timeline) && !is_written(nsp, old->timeline))
		write_timeline(nsp, old->timeline);
}
