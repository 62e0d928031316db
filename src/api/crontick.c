/*-------------------------------------------------------------------------
 *
 * crontick.c
 *	  When pg_cron fires a job, and which of the job's ticks that misses.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/api.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

/* A schedule is looked at for a year, or for so many ticks. */
#define LOOK_AHEAD			(INT64CONST(366) * USECS_PER_DAY)
#define LOOK_AHEAD_TICKS	1000

#define SECONDS_MAX			59
#define EACH_MINUTE			"* * * * *"

PG_FUNCTION_INFO_V1(_shedlock_cron_timezone);
PG_FUNCTION_INFO_V1(_shedlock_cron_own_schedule);
PG_FUNCTION_INFO_V1(_shedlock_cron_problem);

/*
 * ShedlockCronZone - time zone of pg_cron's schedules
 *
 * The server shows the setting only to superusers, but it is no secret: the runs of
 * a job show it to every role that can see the job.
 */
const char *
ShedlockCronZone(void)
{
	const char *zone = GetConfigOption("cron.timezone", true, false);

	return zone && zone[0] && pg_strcasecmp(zone, "GMT") != 0 ? zone : "UTC";
}

/*
 * _shedlock_cron_timezone() - see ShedlockCronZone()
 */
Datum
_shedlock_cron_timezone(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(ShedlockCronZone()));
}

/*
 * is_cron_zone - has pg_cron that time zone?
 */
static bool
is_cron_zone(pg_tz *zone)
{
	pg_tz	   *own = pg_tzset(ShedlockCronZone());
	long		offset;
	long		own_offset;

	return own && (strcmp(pg_get_timezone_name(own), pg_get_timezone_name(zone)) == 0 ||
				   (pg_get_timezone_offset(own, &own_offset) &&
					pg_get_timezone_offset(zone, &offset) && own_offset == offset));
}

/*
 * ShedlockCronSeconds - how many seconds lie between two runs of a schedule like '10 seconds'
 *
 * Returns 0 for any other schedule.
 */
int
ShedlockCronSeconds(const char *str)
{
	static const char *const blanks = " \t\r\n";
	int			seconds = 0;

	str += strspn(str, blanks);
	for (; *str >= '0' && *str <= '9'; str++)
		seconds = Min(seconds * 10 + (*str - '0'), SECONDS_MAX + 1);
	str += strspn(str, blanks);
	if (seconds > SECONDS_MAX || pg_strncasecmp(str, "second", 6) != 0)
		return 0;
	str += 6;
	if (*str == 's' || *str == 'S')
		str++;
	str += strspn(str, blanks);
	return *str ? 0 : seconds;
}

/*
 * cron_text - a cron expression as pg_cron is to have it
 *
 * Since version 1.6.0 it assigns these two to no month, so that they never fire.
 */
static const char *
cron_text(const ShedlockSchedule *schedule)
{
	if (strcmp(schedule->text, "@yearly") == 0 || strcmp(schedule->text, "@annually") == 0)
		return "0 0 1 1 *";
	return schedule->text;
}

/*
 * copy_of - the schedule of a job in pg_cron's words; NULL if it has none
 */
static const char *
copy_of(const ShedlockSchedule *schedule)
{
	if (schedule->period == 0)
		return is_cron_zone(schedule->zone) ? cron_text(schedule) : NULL;
	if (schedule->has_from || schedule->period % USECS_PER_SEC != 0 ||
		schedule->period > SECONDS_MAX * USECS_PER_SEC)
		return NULL;
	return psprintf("%d second%s", (int) (schedule->period / USECS_PER_SEC),
					schedule->period == USECS_PER_SEC ? "" : "s");
}

/*
 * needs_both_days - does pg_cron fire only where both days match, although one is enough?
 */
static bool
needs_both_days(const ShedlockSchedule *fire)
{
	const char *setting = GetConfigOption("cron.match_dom_and_dow", true, false);
	bool		on;

	return fire->either_day && setting && parse_bool(setting, &on) && on;
}

/*
 * ShedlockParseFire - read a schedule of pg_cron
 *
 * Returns false if it is not a valid cron expression.
 */
bool
ShedlockParseFire(const char *text, ShedlockSchedule *schedule)
{
	return ShedlockParseSchedule(text, ShedlockCronZone(), true, schedule);
}

/*
 * check_fire - read and check what is to fire a job; returns it as pg_cron is to have it
 */
static const char *
check_fire(const char *fire)
{
	ShedlockSchedule schedule;

	if (ShedlockCronSeconds(fire) > 0)
		return fire;
	(void) ShedlockParseSchedule(fire, ShedlockCronZone(), false, &schedule);
	if (schedule.period != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("pg_cron cannot fire by \"%s\"", schedule.text),
				 errhint("Pass a cron expression as fire.")));
	if (needs_both_days(&schedule))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("pg_cron does not fire by \"%s\" on each of its days", schedule.text),
				 errdetail("It names days of the month and of the week, and cron.match_dom_and_dow is on: pg_cron fires only where both match."),
				 errhint("Turn that setting off, or pass fire => '%s'.", EACH_MINUTE)));
	return cron_text(&schedule);
}

/*
 * retries - can a job have more runs than ticks?
 */
static bool
retries(const ShedlockJob *job)
{
	return job->attempts > 1 || job->catch_up_all;
}

/*
 * ShedlockFireFor - the schedule by which pg_cron fires a job
 *
 * given: what the caller wants, or NULL.
 */
const char *
ShedlockFireFor(const ShedlockJob *job, const char *given)
{
	const char *copy = copy_of(&job->schedule);

	if (given)
		return check_fire(given);
	if (copy == NULL || (job->schedule.period == 0 && (retries(job) || job->max_late)))
		return EACH_MINUTE;
	return check_fire(copy);
}

/*
 * ShedlockMissedTick - the next tick of a schedule at which pg_cron does not fire the job
 *
 * Returns DT_NOEND if it fires at each tick of a year, and for a fire that cannot be read.
 * Seconds have no instants of their own.
 */
TimestampTz
ShedlockMissedTick(const ShedlockSchedule *schedule, const char *fire_text)
{
	TimestampTz tick = GetCurrentTimestamp();
	TimestampTz end = tick + LOOK_AHEAD;
	ShedlockSchedule fire;

	if (!ShedlockParseFire(fire_text, &fire))
		return schedule->period != 0 &&
			ShedlockCronSeconds(fire_text) * USECS_PER_SEC > schedule->period ?
			ShedlockNextTick(schedule, tick) : DT_NOEND;
	if (ShedlockSameSchedule(schedule, &fire) ||
		(schedule->period == 0 && strcmp(fire.text, EACH_MINUTE) == 0))
		return DT_NOEND;
	for (int i = 0; i < LOOK_AHEAD_TICKS; i++)
	{
		tick = ShedlockNextTick(schedule, tick);
		if (tick > end)
			break;
		if (ShedlockPreviousTick(&fire, tick) != tick)
			return tick;
	}
	return DT_NOEND;
}

/*
 * may_see - may the caller know what is declared by that name?
 *
 * The CALL of a job of pg_cron can name any lock.
 */
static bool
may_see(const ShedlockName *name)
{
	return ShedlockMayUseName(name->str) || ShedlockMaySee(InvalidOid);
}

/*
 * _shedlock_cron_own_schedule(name, fire) - the schedule that a job has without a guard
 *
 * fire: pg_cron's schedule so far, for a job that is not declared.  One whose name the caller may
 * not use counts as such.  Strict.
 */
Datum
_shedlock_cron_own_schedule(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	ShedlockJob job;
	const char *copy;

	ShedlockMakeName(ShedlockSchema(fcinfo), text_to_cstring(PG_GETARG_TEXT_PP(0)), &name);
	if (!may_see(&name))
		PG_RETURN_DATUM(PG_GETARG_DATUM(1));
	ShedlockLookUpJob(&name, &job);
	if (!job.is_readable)
		PG_RETURN_DATUM(PG_GETARG_DATUM(1));
	copy = copy_of(&job.schedule);
	if (copy == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pg_cron has no schedule like that of job \"%s\"", name.str),
				 errdetail("It is \"%s\" in time zone \"%s\".", job.schedule.text, job.time_zone),
				 errhint("Give the job its command and a schedule of pg_cron with cron.alter_job.")));
	PG_RETURN_TEXT_P(cstring_to_text(copy));
}

/*
 * find_problem - why a job that is guarded does not run as it is declared; NULL if it does
 */
static const char *
find_problem(const ShedlockJob *job, const char *fire_text)
{
	ShedlockSchedule fire;
	bool		is_cron = ShedlockParseFire(fire_text, &fire);
	TimestampTz tick;

	if (!job->found)
		return "it is not declared, and so runs each time that pg_cron fires it";
	if (!job->is_readable)
		return NULL;
	if (is_cron && needs_both_days(&fire))
		return "cron.match_dom_and_dow is on, so that pg_cron fires it only where both of its days match";

	/* Where pg_cron has no such schedule, each minute is its best. */
	tick = ShedlockMissedTick(&job->schedule, fire_text);
	if (tick != DT_NOEND &&
		!(is_cron && strcmp(fire.text, EACH_MINUTE) == 0 && copy_of(&job->schedule) == NULL))
		return psprintf("pg_cron does not fire it at %s, when it is due", ShedlockTimeString(tick));
	tick = ShedlockNextTick(&job->schedule, GetCurrentTimestamp());
	if (is_cron && retries(job) && strcmp(fire.text, EACH_MINUTE) != 0 &&
		ShedlockNextTick(&fire, tick) >= ShedlockNextTick(&job->schedule, tick))
		return "pg_cron fires it only at its ticks, so that no other run follows between them";
	return NULL;
}

/*
 * _shedlock_cron_problem(name, fire, jobid) - see find_problem(), with the call that corrects it
 *
 * fire: pg_cron's schedule.  A job that is fired @reboot needs no declaration.  The CALL of a
 * job can name any lock, also one that the caller may not use.  Strict.
 */
Datum
_shedlock_cron_problem(PG_FUNCTION_ARGS)
{
	char	   *fire = text_to_cstring(PG_GETARG_TEXT_PP(1));
	ShedlockName name;
	ShedlockJob job;
	const char *problem;

	ShedlockMakeName(ShedlockSchema(fcinfo), text_to_cstring(PG_GETARG_TEXT_PP(0)), &name);
	if (!may_see(&name))
		PG_RETURN_TEXT_P(cstring_to_text(psprintf("unknown: shedlock.role_prefix reserves lock \"%s\" for other roles",
												  name.str)));
	ShedlockLookUpJob(&name, &job);
	if (!job.found && strncmp(fire + strspn(fire, " \t\n"), "@reboot", 7) == 0)
		PG_RETURN_NULL();
	problem = find_problem(&job, fire);
	if (problem == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s; SELECT shedlock_cron_guard('" INT64_FORMAT "') corrects that",
											  problem, PG_GETARG_INT64(2))));
}
