/*-------------------------------------------------------------------------
 *
 * jobargs.c
 *	  The arguments that say what a job is.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/api.h"
#include "utils/builtins.h"

#define ATTEMPTS_MAX		1000
#define DESCRIPTION_MAX		255 /* bytes */

/* Between the fields of a schedule, and around it */
#define BLANKS				" \t\r\n"

static Interval default_backoff = {.time = USECS_PER_MINUTE};
static Interval default_overdue_after = {.time = 5 * USECS_PER_MINUTE};

/*
 * check_duration - as ShedlockCheckDuration(), of a setting of a job
 */
static void
check_duration(const Interval *span, const char *setting, const char *name, bool zero_ok, int cap)
{
	if (span)
		ShedlockCheckDuration(span, psprintf("%s of job \"%s\"", setting, name), NULL, zero_ok, cap, NULL);
}

/*
 * check_job - raise an error unless the settings of a job make sense
 */
static void
check_job(const ShedlockJob *job, const char *name)
{
	if (job->attempts < 1 || job->attempts > ATTEMPTS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("attempts of job \"%s\" must be between 1 and %d", name, ATTEMPTS_MAX)));
	check_duration(job->backoff, "backoff", name, true, SECS_PER_HOUR);
	check_duration(job->max_late, "max_late", name, false, 0);
	check_duration(job->overdue_after, "overdue_after", name, false, 0);
	check_duration(job->slow_after, "slow_after", name, false, 0);
	check_duration(job->at_most, "lock_at_most_for", name, false, 0);
	check_duration(job->at_least, "lock_at_least_for", name, true, 0);
	if (job->at_most && job->at_least)
		ShedlockCheckAtLeast(job->at_least, job->at_most, name);
}

/*
 * set_catch_up - set how a job catches up
 */
static void
set_catch_up(ShedlockJob *job, const char *catch_up)
{
	job->catch_up = catch_up;
	if (!ShedlockFindCatchUp(catch_up, &job->catch_up_all))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for catch_up: \"%s\"", catch_up),
				 errhint("It can be \"latest\" or \"all\".")));
}

/*
 * get_description - the argument description; NULL if it is null
 */
static char *
get_description(FunctionCallInfo fcinfo, int argno)
{
	char	   *description = ShedlockGetText(fcinfo, argno, INT_MAX, "description");

	if (description && strlen(description) > DESCRIPTION_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is too long", "description"),
				 errdetail("It can have at most %d bytes.", DESCRIPTION_MAX)));
	return description;
}

/*
 * set_schedule - set the schedule of a job
 *
 * It is kept as it was given, but on one line, which others read.
 */
static void
set_schedule(ShedlockJob *job, char *schedule, char *time_zone)
{
	size_t		len = strlen(schedule);

	job->is_readable = ShedlockFindSchedule(schedule, time_zone, false, &job->schedule);
	while (len > 0 && strchr(BLANKS, schedule[len - 1]))
		schedule[--len] = '\0';
	for (char *pos = schedule; (pos = strpbrk(pos, BLANKS)) != NULL; pos++)
		*pos = ' ';
	job->schedule_text = schedule + strspn(schedule, " ");
	job->time_zone = time_zone;
}

/*
 * ShedlockGetJob - the job that the arguments of shedlock_job say
 *
 * Null stands for the default.
 */
void
ShedlockGetJob(FunctionCallInfo fcinfo, const char *name, ShedlockJob *job)
{
	memset(job, 0, sizeof(*job));
	ShedlockRefuseNull(PG_ARGISNULL(1), "schedule", NULL);
	set_schedule(job, text_to_cstring(PG_GETARG_TEXT_PP(1)), ShedlockGetWord(fcinfo, 2, "UTC"));
	job->attempts = PG_ARGISNULL(3) ? 1 : PG_GETARG_INT32(3);
	job->backoff = PG_ARGISNULL(4) ? &default_backoff : ShedlockGetInterval(fcinfo, 4, 0);
	set_catch_up(job, ShedlockGetWord(fcinfo, 5, "latest"));
	job->max_late = ShedlockGetInterval(fcinfo, 6, 0);
	job->overdue_after = PG_ARGISNULL(7) ? &default_overdue_after : ShedlockGetInterval(fcinfo, 7, 0);
	job->slow_after = ShedlockGetInterval(fcinfo, 8, 0);
	job->at_most = ShedlockGetInterval(fcinfo, 9, 0);
	job->at_least = ShedlockGetInterval(fcinfo, 10, 0);
	job->description = get_description(fcinfo, 11);
	check_job(job, name);
}

/*
 * ShedlockReschedule - a job with another schedule
 *
 * old: its settings; if there is no such job, they are the defaults.
 */
void
ShedlockReschedule(const ShedlockJob *old, char *schedule, char *time_zone, ShedlockJob *job)
{
	*job = *old;
	set_schedule(job, schedule, time_zone);
	if (old->found)
		return;
	job->attempts = 1;
	job->backoff = &default_backoff;
	job->catch_up = "latest";
	job->overdue_after = &default_overdue_after;
}
