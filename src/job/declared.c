/*-------------------------------------------------------------------------
 *
 * declared.c
 *	  Reads what shedlock_job has declared.
 *
 * A call goes by what is committed when it looks, so that an open transaction that declares
 * a job holds nobody up, however long it stays open.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "job/job.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_JOB_COLUMNS(SHEDLOCK_ATTNUM)
};

/*
 * ShedlockFindCatchUp - read the name of a way to catch up; false if there is none
 */
bool
ShedlockFindCatchUp(const char *text, bool *all)
{
	*all = strcmp(text, "all") == 0;
	return *all || strcmp(text, "latest") == 0;
}

/* Schedules that were read before.  What a text and a zone mean never changes. */
#define KNOWN_SCHEDULES		64

typedef struct KnownSchedule
{
	char	   *expression;		/* as it was given; NULL: there is none */
	char	   *zone;			/* likewise */
	char	   *shown;			/* the text of the schedule */
	ShedlockSchedule schedule;
} KnownSchedule;

static KnownSchedule known_schedules[KNOWN_SCHEDULES];

/*
 * know_schedule - remember a schedule, and forget the one that had its place
 */
static void
know_schedule(KnownSchedule *known, const char *text, const char *zone,
			  const ShedlockSchedule *schedule)
{
	KnownSchedule old = *known;

	known->expression = NULL;
	if (old.expression)
	{
		pfree(old.expression);
		pfree(old.zone);
		pfree(old.shown);
	}
	known->schedule = *schedule;
	known->shown = MemoryContextStrdup(TopMemoryContext, schedule->text);
	known->zone = MemoryContextStrdup(TopMemoryContext, zone);
	known->expression = MemoryContextStrdup(TopMemoryContext, text);
}

/*
 * ShedlockFindSchedule - as ShedlockParseSchedule(), but read each schedule once
 */
bool
ShedlockFindSchedule(const char *text, const char *zone, bool noerror, ShedlockSchedule *schedule)
{
	uint32		hash = hash_combine(hash_bytes((const unsigned char *) text, (int) strlen(text)),
									hash_bytes((const unsigned char *) zone, (int) strlen(zone)));
	KnownSchedule *known = &known_schedules[hash % KNOWN_SCHEDULES];

	if (SHEDLOCK_CACHES && known->expression && strcmp(known->expression, text) == 0 &&
		strcmp(known->zone, zone) == 0)
	{
		*schedule = known->schedule;
		schedule->text = pstrdup(known->shown);
		return true;
	}
	if (!ShedlockParseSchedule(text, zone, noerror, schedule))
		return false;
	know_schedule(known, text, zone, schedule);
	return true;
}

/*
 * has_durations - is each duration of a declaration one that can be declared?
 */
static bool
has_durations(const ShedlockJob *row)
{
	return ShedlockIsDuration(row->backoff) && ShedlockIsDuration(row->max_late) &&
		ShedlockIsDuration(row->overdue_after) && ShedlockIsDuration(row->slow_after) &&
		ShedlockIsDuration(row->at_most) && ShedlockIsDuration(row->at_least);
}

/*
 * ShedlockSlotToJob - the declaration in a row of _shedlock_job
 *
 * What the fields point to is palloc'd.  A value that would be refused now makes it
 * unreadable: such a job has no ticks.
 */
void
ShedlockSlotToJob(TupleTableSlot *slot, ShedlockJob *row)
{
	memset(row, 0, sizeof(*row));
	row->found = true;
	slot_getallattrs(slot);
	SHEDLOCK_JOB_COLUMNS(SHEDLOCK_FROM_SLOT);
	row->is_readable = row->catch_up && ShedlockFindCatchUp(row->catch_up, &row->catch_up_all) &&
		has_durations(row) &&
		!(row->max_late && ShedlockIntervalMicroseconds(row->max_late) == 0) &&
		ShedlockFindSchedule(row->schedule_text, row->time_zone, true, &row->schedule);
}

/*
 * ShedlockReadJob - read a declaration, as committed now
 *
 * Leaves its row in the store.
 */
void
ShedlockReadJob(ShedlockStore *store, const ShedlockName *name, ShedlockJob *job)
{
	memset(job, 0, sizeof(*job));
	if (ShedlockFetch(store, CStringGetTextDatum(name->str)))
		ShedlockSlotToJob(store->slot, job);
}

/*
 * ShedlockLookUpJob - the same, without writing it later
 */
void
ShedlockLookUpJob(const ShedlockName *name, ShedlockJob *job)
{
	ShedlockStore store;

	ShedlockOpen(&store, name->nsp, "_shedlock_job", AccessShareLock);
	ShedlockReadJob(&store, name, job);
	ShedlockClose(&store, AccessShareLock);
}
