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
PG_FUNCTION_INFO_V1(_shedlock_cron_seconds);
PG_FUNCTION_INFO_V1(_shedlock_cron_due);
PG_FUNCTION_INFO_V1(_shedlock_cron_late_tick);
PG_FUNCTION_INFO_V1(_shedlock_cron_lost_tick);

/*
 * cron_zone - time zone of pg_cron's schedules
 *
 * The server shows the setting only to superusers, but it is no secret: the runs of
 * a job show it to every role that can see the job.
 */
static const char *
cron_zone(void)
{
	const char *zone = GetConfigOption("cron.timezone", true, false);

	return zone && zone[0] ? zone : "GMT";
}

/*
 * _shedlock_cron_timezone() - see cron_zone()
 */
Datum
_shedlock_cron_timezone(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(cron_zone()));
}

/*
 * seconds_of - how many seconds lie between two runs of a schedule like '10 seconds'
 *
 * Returns 0 for any other schedule.
 */
static int
seconds_of(const char *str)
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
 * _shedlock_cron_seconds(schedule) - see seconds_of(); null for 0
 */
Datum
_shedlock_cron_seconds(PG_FUNCTION_ARGS)
{
	Interval   *span = palloc0(sizeof(Interval));

	span->time = seconds_of(text_to_cstring(PG_GETARG_TEXT_PP(0))) * USECS_PER_SEC;
	if (span->time == 0)
		PG_RETURN_NULL();
	PG_RETURN_INTERVAL_P(span);
}

/*
 * ShedlockParseFire - read a schedule of pg_cron
 *
 * Returns false if it is not a valid cron expression.
 */
bool
ShedlockParseFire(const char *text, ShedlockSchedule *schedule)
{
	return ShedlockParseSchedule(text, cron_zone(), true, schedule);
}

/*
 * _shedlock_cron_due(schedule, time_zone, at) - when a schedule is due around an instant
 *
 * time_zone: null is pg_cron's.  Returns the last time at or before it, and the next one
 * after it; null for what cannot be told, as for @reboot.  The runs of a schedule in
 * seconds are that far apart, at no particular second.
 */
Datum
_shedlock_cron_due(PG_FUNCTION_ARGS)
{
	Datum		values[2] = {0};
	bool		isnull[2] = {true, true};
	ShedlockSchedule schedule;

	if (!PG_ARGISNULL(0) && !PG_ARGISNULL(2))
	{
		char	   *str = text_to_cstring(PG_GETARG_TEXT_PP(0));
		TimestampTz at = PG_GETARG_TIMESTAMPTZ(2);
		int			seconds = seconds_of(str);
		TimestampTz last = DT_NOBEGIN;
		TimestampTz next = DT_NOEND;

		if (seconds > 0 && !TIMESTAMP_NOT_FINITE(at))
		{
			last = at - seconds * USECS_PER_SEC;
			next = at + seconds * USECS_PER_SEC;
		}
		else if (ShedlockParseSchedule(str, ShedlockGetWord(fcinfo, 1, cron_zone()), true,
									   &schedule))
		{
			last = ShedlockPreviousTick(&schedule, at);
			next = ShedlockNextTick(&schedule, at);
		}
		values[0] = TimestampTzGetDatum(last);
		values[1] = TimestampTzGetDatum(next);
		isnull[0] = !IS_VALID_TIMESTAMP(last);
		isnull[1] = !IS_VALID_TIMESTAMP(next);
	}
	PG_RETURN_DATUM(ShedlockFormAnswer(fcinfo, values, isnull));
}

/*
 * _shedlock_cron_late_tick(schedule, time_zone, fire) - the next tick at which pg_cron
 * does not fire the job
 *
 * fire: pg_cron's schedule.  Strict.  Returns null if it fires at each tick of a year.
 * A schedule that cannot be parsed, and one in seconds, is not looked at.
 */
Datum
_shedlock_cron_late_tick(PG_FUNCTION_ARGS)
{
	char	   *fire_text = text_to_cstring(PG_GETARG_TEXT_PP(2));
	TimestampTz tick = GetCurrentTimestamp();
	TimestampTz end = tick + LOOK_AHEAD;
	ShedlockSchedule schedule;
	ShedlockSchedule fire;

	if (!ShedlockParseSchedule(text_to_cstring(PG_GETARG_TEXT_PP(0)),
							   text_to_cstring(PG_GETARG_TEXT_PP(1)), true, &schedule) ||
		!ShedlockParseFire(fire_text, &fire) ||
		strcmp(fire.text, EACH_MINUTE) == 0 || ShedlockSameSchedule(&schedule, &fire))
		PG_RETURN_NULL();
	for (int i = 0; i < LOOK_AHEAD_TICKS; i++)
	{
		tick = ShedlockNextTick(&schedule, tick);
		if (tick > end)
			break;
		if (ShedlockPreviousTick(&fire, tick) != tick)
			PG_RETURN_TIMESTAMPTZ(tick);
	}
	PG_RETURN_NULL();
}

/*
 * wall_clock - local time of an instant
 */
static Timestamp
wall_clock(TimestampTz at, pg_tz *zone)
{
	struct pg_tm tm;
	fsec_t		fsec;
	int			offset;

	if (timestamp2tm(at, &offset, &tm, &fsec, NULL, zone) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("timestamp out of range")));
	return at - offset * USECS_PER_SEC;
}

/*
 * _shedlock_cron_lost_tick(schedule, once_every, at) - when a job is skipped next because
 * summer time begins
 *
 * Periods are counted in UTC, schedules in pg_cron's time zone.  When summer time begins
 * there, two runs are an hour closer than the wall clock shows, and can both be in a
 * period as long as the time between them.  Strict.  Returns null if that does not
 * happen within a year.
 */
Datum
_shedlock_cron_lost_tick(PG_FUNCTION_ARGS)
{
	Interval   *every = PG_GETARG_INTERVAL_P(1);
	TimestampTz last = PG_GETARG_TIMESTAMPTZ(2);
	TimestampTz end = last + LOOK_AHEAD;
	ShedlockSchedule schedule;
	ShedlockSchedule period;

	if (!ShedlockParseFire(text_to_cstring(PG_GETARG_TEXT_PP(0)), &schedule))
		PG_RETURN_NULL();
	ShedlockPeriodSchedule(every, "", &period);
	last = ShedlockNextTick(&schedule, last);
	for (int i = 0; i < LOOK_AHEAD_TICKS && last <= end; i++)
	{
		TimestampTz tick = ShedlockNextTick(&schedule, last);

		if (tick > end)
			break;
		if (wall_clock(tick, schedule.zone) - wall_clock(last, schedule.zone) >= period.period &&
			ShedlockTickOfTimer(&period, tick, SHEDLOCK_CLAIM_EARLY) ==
			ShedlockTickOfTimer(&period, last, SHEDLOCK_CLAIM_EARLY))
			PG_RETURN_TIMESTAMPTZ(tick);
		last = tick;
	}
	PG_RETURN_NULL();
}
