/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  The plan of a job: its schedule, attempts, and what becomes of missed ticks.
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

#define ATTEMPTS_MAX		1000
#define BACKOFF_DEFAULT		USECS_PER_MINUTE

/*
 * ShedlockPeriodText - a period for people to read; palloc'd
 */
char *
ShedlockPeriodText(const Interval *period)
{
	return psprintf("every %s",
					DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(period))));
}

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
 * check_plan - raise an error unless the arguments of a plan make sense together
 */
static void
check_plan(const ShedlockPlan *plan, bool has_schedule, const char *time_zone, const char *name)
{
	if (plan->period && has_schedule)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock \"%s\" cannot have both once_every and a schedule", name)));
	if (!plan->period && !has_schedule &&
		(plan->attempts != 1 || plan->max_late || plan->catch_up_all))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("attempts, catch_up and max_late of lock \"%s\" need a schedule or once_every", name)));
	if (!has_schedule && pg_strcasecmp(time_zone, "UTC") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time_zone of lock \"%s\" needs a schedule", name),
				 plan->period ? errdetail("Periods are counted in UTC from the epoch.") : 0,
				 errhint("Pass a cron expression as schedule.")));
	if (plan->attempts < 1 || plan->attempts > ATTEMPTS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("attempts of lock \"%s\" must be between 1 and %d", name, ATTEMPTS_MAX)));
	ShedlockCheckDuration(plan->max_late, "max_late", name, false, 0, NULL);
	ShedlockCheckDuration(plan->backoff, "backoff", name, true, SECS_PER_HOUR, NULL);
}

/*
 * ShedlockGetPlan - the schedule of a run, and how often its ticks are run
 *
 * every: the argument once_every.  The six arguments from first on are schedule,
 * time_zone, catch_up, max_late, attempts and backoff; null stands for the default.
 * Returns NULL if the run has neither schedule nor period.  Errors: 22023.
 */
ShedlockPlan *
ShedlockGetPlan(FunctionCallInfo fcinfo, int every, int first, const char *name)
{
	ShedlockPlan *plan = palloc0(sizeof(ShedlockPlan));
	bool		has_schedule = !PG_ARGISNULL(first);
	char	   *schedule = ShedlockGetWord(fcinfo, first, "");
	char	   *time_zone = ShedlockGetWord(fcinfo, first + 1, "UTC");
	char	   *catch_up = ShedlockGetWord(fcinfo, first + 2, "latest");

	plan->period = ShedlockGetInterval(fcinfo, every, 0);
	if (!ShedlockFindCatchUp(catch_up, &plan->catch_up_all))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for catch_up: \"%s\"", catch_up),
				 errhint("It can be \"latest\" or \"all\".")));
	plan->max_late = ShedlockGetInterval(fcinfo, first + 3, 0);
	plan->attempts = PG_ARGISNULL(first + 4) ? 1 : PG_GETARG_INT32(first + 4);
	if (PG_ARGISNULL(first + 5))
	{
		plan->backoff = palloc0(sizeof(Interval));
		plan->backoff->time = BACKOFF_DEFAULT;
	}
	else
		plan->backoff = ShedlockGetInterval(fcinfo, first + 5, 0);
	check_plan(plan, has_schedule, time_zone, name);

	if (plan->period)
		ShedlockPeriodSchedule(plan->period, name, &plan->schedule);
	else if (!has_schedule)
		return NULL;
	else
		(void) ShedlockFindSchedule(schedule, time_zone, false, &plan->schedule);
	return plan;
}
