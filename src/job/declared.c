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
 * ShedlockJobFromColumns - the declaration in a row of _shedlock_job
 *
 * What the fields point to is palloc'd.  A value that would be refused now makes it
 * unreadable: such a job has no ticks.
 */
void
ShedlockJobFromColumns(const Datum *values, const bool *nulls, ShedlockJob *job)
{
#define VALUE(column)	values[Anum_##column - 1]
#define TEXT(column)	(nulls[Anum_##column - 1] ? NULL : TextDatumGetCString(VALUE(column)))
#define INTERVAL(column) \
	(nulls[Anum_##column - 1] ? NULL : ShedlockCopyInterval(DatumGetIntervalP(VALUE(column))))

	memset(job, 0, sizeof(*job));
	job->found = true;
	job->schedule_text = TEXT(schedule);
	job->time_zone = TEXT(time_zone);
	job->attempts = DatumGetInt32(VALUE(attempts));
	job->backoff = INTERVAL(backoff);
	job->max_late = INTERVAL(max_late);
	job->overdue_after = INTERVAL(overdue_after);
	job->slow_after = INTERVAL(slow_after);
	job->at_most = INTERVAL(at_most);
	job->at_least = INTERVAL(at_least);
	job->description = TEXT(description);
	job->since = DatumGetTimestampTz(VALUE(since));
	job->carried = nulls[Anum_carried - 1] ? DT_NOBEGIN : DatumGetTimestampTz(VALUE(carried));
	job->spent_token = nulls[Anum_spent_token - 1] ? 0 : DatumGetInt64(VALUE(spent_token));
	job->created_at = DatumGetTimestampTz(VALUE(created_at));
	job->created_by = TEXT(created_by);
	job->declared_at = DatumGetTimestampTz(VALUE(declared_at));
	job->declared_by = TEXT(declared_by);
	job->turns = DatumGetInt32(VALUE(turns));
	job->is_readable = ShedlockFindCatchUp(TEXT(catch_up), &job->catch_up_all) &&
		!(job->max_late && ShedlockIntervalMicroseconds(job->max_late) <= 0) &&
		ShedlockFindSchedule(job->schedule_text, job->time_zone, true, &job->schedule);
#undef VALUE
#undef TEXT
#undef INTERVAL
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
	if (!ShedlockFetch(store, CStringGetTextDatum(name->str)))
		return;
	slot_getallattrs(store->slot);
	ShedlockJobFromColumns(store->slot->tts_values, store->slot->tts_isnull, job);
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
