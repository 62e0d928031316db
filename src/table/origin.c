/*-------------------------------------------------------------------------
 *
 * origin.c
 *	  Where the holder of a session lock or run ran, and whether it can be alive.
 *
 * src/README has the rules.  The WAL that proves that a timeline was shut down is recycled
 * some day, so the next acquisition of such a lock writes down what was found.  The old
 * server may have been started again, and its rows replicated logically: a holder that began
 * after the shutdown, or in the same second, may live.
 *
 * The row's column origin is a number of four bytes: the timeline XOR a hash of the cluster
 * and database.  The origin of another cluster is not that of a timeline of this cluster,
 * unless by a chance of one in four billion.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_TIMELINE_COLUMNS(SHEDLOCK_ATTNUM)
};

/* How long a search without a proof counts: another session may find one. */
#define FORGET_AFTER	(10 * USECS_PER_SEC)

/* What this process knows of a timeline. */
typedef struct Known
{
	TimeLineID	timeline;
	TimestampTz ended_at;		/* shutdown checkpoint, or DT_NOBEGIN */
	int64		looked_at;		/* on the steady clock */
} Known;

static Known *known = NULL;
static int	known_count = 0;

/*
 * home - a hash of this cluster and database
 *
 * Other versions of this library in the same cluster must compute the same (I11).
 */
static uint32
home(void)
{
	static uint32 hash = 0;

	if (hash == 0)
	{
		uint64		cluster = GetSystemIdentifier();

		hash = hash_combine(hash_bytes((unsigned char *) &cluster, sizeof(cluster)),
							murmurhash32(MyDatabaseId));
	}
	return hash;
}

/*
 * ShedlockOrigin - where this process runs, and acquires locks; 0 in recovery
 *
 * The timeline of a process does not change after recovery.
 */
uint32
ShedlockOrigin(void)
{
	static uint32 origin = 0;

	if (origin == 0 && !RecoveryInProgress())
		origin = GetWALInsertionTimeLine() ^ home();
	return origin;
}

/*
 * timeline_of - the timeline that an origin names; nonsense for other clusters
 */
static TimeLineID
timeline_of(uint32 origin)
{
	return origin ^ home();
}

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

static Known *
add_known(TimeLineID timeline)
{
	Size		size = (Size) (known_count + 1) * sizeof(Known);

	known = known ? repalloc(known, size) : MemoryContextAlloc(TopMemoryContext, size);
	memset(&known[known_count], 0, sizeof(Known));
	known[known_count].timeline = timeline;
	known[known_count].ended_at = DT_NOBEGIN;
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
 * written_end - when the timeline has ended by the table, or DT_NOBEGIN
 */
static TimestampTz
written_end(Oid nsp, TimeLineID timeline)
{
	ShedlockStore store;
	TimestampTz ended_at = DT_NOBEGIN;
	bool		isnull;

	ShedlockOpen(&store, nsp, "_shedlock_timeline", AccessShareLock);
	if (ShedlockFetch(&store, key_of(timeline)))
		ended_at = DatumGetTimestampTz(slot_getattr(store.slot, Anum_ended_at, &isnull));
	ShedlockClose(&store, AccessShareLock);
	return ended_at;
}

/*
 * ShedlockLearnOrigin - find out what is known of where the holder of a lock ran
 *
 * locks: the table of the row.  Does nothing for rows whose kind has no process, or whose
 * origin is this one.  Of another one it reads the WAL, at most once in a while, so the
 * caller holds no advisory lock.
 */
void
ShedlockLearnOrigin(Relation locks, const ShedlockRow *row)
{
	TimeLineID	timeline = timeline_of(row->origin);
	Known	   *entry;

	if (!SHEDLOCK_IS_OF_PROCESS(row->kind) || row->origin == ShedlockOrigin() ||
		RecoveryInProgress())
		return;
	entry = find_known(timeline);
	if (entry && (entry->ended_at != DT_NOBEGIN || ShedlockSteadyNow() - entry->looked_at < FORGET_AFTER))
		return;
	if (entry == NULL)
		entry = add_known(timeline);
	entry->ended_at = written_end(RelationGetNamespace(locks), timeline);
	if (entry->ended_at == DT_NOBEGIN)
		entry->ended_at = ShedlockTimelineShutdown(timeline);
	entry->looked_at = ShedlockSteadyNow();
}

/*
 * ShedlockOriginIsOver - is the process that acquired a lock known to be gone?
 *
 * For rows of another origin.
 */
bool
ShedlockOriginIsOver(const ShedlockRow *row)
{
	const Known *entry = find_known(timeline_of(row->origin));

	return entry && row->backend_start < entry->ended_at;
}

/*
 * ShedlockWriteOrigin - write down what has been found, in a transaction that acquires a lock
 *
 * old: the row before.  If an open transaction writes the same timeline, and is rolled
 * back, a later acquisition writes it.
 */
void
ShedlockWriteOrigin(Relation locks, const ShedlockRow *old)
{
	Oid			nsp = RelationGetNamespace(locks);
	TimeLineID	timeline = timeline_of(old->origin);
	ShedlockStore store;
	ShedlockColumns columns;

	if (!SHEDLOCK_IS_OF_PROCESS(old->kind) || old->origin == ShedlockOrigin() ||
		!ShedlockOriginIsOver(old) || written_end(nsp, timeline) != DT_NOBEGIN)
		return;
	ShedlockOpen(&store, nsp, "_shedlock_timeline", RowExclusiveLock);
	ShedlockNewColumns(&store, &columns);
	ShedlockSetColumn(&columns, Anum_timeline, key_of(timeline));
	ShedlockSetColumn(&columns, Anum_ended_at, TimestampTzGetDatum(find_known(timeline)->ended_at));
	(void) ShedlockWrite(&store, &columns, false);
	ShedlockClose(&store, NoLock);
}
