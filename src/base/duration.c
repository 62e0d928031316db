/*-------------------------------------------------------------------------
 *
 * duration.c
 *	  Durations: arguments and settings that are intervals, and their limits.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/base.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

/*
 * ShedlockIntervalSetting - an interval of so many seconds; NULL for 0
 *
 * It is shedlock.max_lock_at_most_for if that is shorter.
 */
Interval *
ShedlockIntervalSetting(int seconds)
{
	Interval   *span;

	if (seconds == 0)
		return NULL;
	if (shedlock_max_lock_at_most_for > 0)
		seconds = Min(seconds, shedlock_max_lock_at_most_for);
	span = palloc0(sizeof(Interval));
	span->time = seconds * USECS_PER_SEC;
	return span;
}

/*
 * ShedlockCopyInterval - a copy of an interval; palloc'd
 */
Interval *
ShedlockCopyInterval(const Interval *span)
{
	Interval   *copy = palloc(sizeof(Interval));

	*copy = *span;
	return copy;
}

/*
 * ShedlockGetInterval - a copy of an interval argument
 *
 * null_seconds: as for ShedlockIntervalSetting(), if the argument is null.
 */
Interval *
ShedlockGetInterval(FunctionCallInfo fcinfo, int argno, int null_seconds)
{
	if (PG_ARGISNULL(argno))
		return ShedlockIntervalSetting(null_seconds);
	return ShedlockCopyInterval(PG_GETARG_INTERVAL_P(argno));
}

/*
 * interval_days - length of an interval in days, as extract(epoch) counts them
 */
static double
interval_days(const Interval *span)
{
	return span->month / MONTHS_PER_YEAR * DAYS_PER_YEAR +
		span->month % MONTHS_PER_YEAR * (double) DAYS_PER_MONTH +
		span->day + (double) span->time / USECS_PER_DAY;
}

/*
 * signs_differ - has an interval parts of both signs?
 *
 * It can be short while a part of it, multiplied or added to a time, is out of range.  In a
 * short month, 1 month -29 days could end before it begins.
 */
static bool
signs_differ(const Interval *span)
{
	return (span->month < 0 || span->day < 0 || span->time < 0) &&
		(span->month > 0 || span->day > 0 || span->time > 0);
}

/*
 * ShedlockIsDuration - is an interval that was read from a row one that can be declared?
 *
 * What was written by hand can be too long to be counted in microseconds, and for some drivers
 * to be read.  NULL: there is nothing to be wrong.
 */
bool
ShedlockIsDuration(const Interval *span)
{
	double		length = span ? interval_days(span) : 0;

	return length >= 0 && length <= SHEDLOCK_YEARS_MAX * 366.0 && !(span && signs_differ(span));
}

/*
 * ShedlockIsPeriod - can an interval be the period of a schedule?
 */
bool
ShedlockIsPeriod(const Interval *span)
{
	return ShedlockIsDuration(span) && span->month == 0 && interval_days(span) > 0;
}

/*
 * ShedlockIsOverCap - is a duration longer than so many seconds?
 *
 * A month counts as 31 days.  cap 0: there is no cap.
 */
bool
ShedlockIsOverCap(const Interval *span, int cap)
{
	return cap > 0 &&
		((int64) span->month * 31 + span->day) * USECS_PER_DAY + span->time >
		cap * USECS_PER_SEC;
}

/*
 * ShedlockCheckDuration - raise an error unless a duration is positive and not too long
 *
 * span NULL: there is nothing to check.  what: the argument's name.  name: the lock's,
 * or NULL.  cap: the most seconds that it can have, or 0; cap_setting: the setting that
 * says so, or NULL.
 */
void
ShedlockCheckDuration(const Interval *span, const char *what, const char *name,
					  bool zero_ok, int cap, const char *cap_setting)
{
	double		length;
	bool		bad_sign;
	bool		too_long;

	if (span == NULL)
		return;
	length = interval_days(span);
	bad_sign = signs_differ(span) || length < 0 || (length == 0 && !zero_ok);
	too_long = length > SHEDLOCK_YEARS_MAX * 366.0;
	if (!bad_sign && !too_long && !ShedlockIsOverCap(span, cap))
		return;

	if (name)
		what = psprintf("%s of lock \"%s\"", what, name);
	if (bad_sign)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg(zero_ok ? "%s must not be negative" : "%s must be positive", what),
				 signs_differ(span) ?
				 errdetail("Its months, days and time have different signs.") : 0));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s is too long", what),
			 too_long ? errdetail("It can be at most %d years.", SHEDLOCK_YEARS_MAX) :
			 cap_setting == NULL ? errdetail("It can be at most %d seconds.", cap) :
			 errdetail("The setting %s allows %s.", cap_setting,
					   GetConfigOptionByName(cap_setting, NULL, false))));
}

/*
 * ShedlockCheckAtLeast - raise an error if lock_at_least_for is over lock_at_most_for
 */
void
ShedlockCheckAtLeast(const Interval *at_least, const Interval *at_most,
					 const char *name)
{
	if (interval_days(at_least) > interval_days(at_most))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 name ?
				 errmsg("lock_at_least_for is longer than lock_at_most_for for lock \"%s\"",
						name) :
				 errmsg("lock_at_least_for is longer than lock_at_most_for")));
}

/*
 * ShedlockCheckTimes - raise an error unless a lock can be held for these
 */
void
ShedlockCheckTimes(const Interval *at_most, const Interval *at_least, const char *name)
{
	ShedlockCheckDuration(at_most, "lock_at_most_for", name, false,
						  shedlock_max_lock_at_most_for, "shedlock.max_lock_at_most_for");
	ShedlockCheckDuration(at_least, "lock_at_least_for", name, true,
						  shedlock_max_lock_at_most_for, "shedlock.max_lock_at_most_for");
	if (at_most && at_least)
		ShedlockCheckAtLeast(at_least, at_most, name);
}

/*
 * ShedlockAddInterval - add an interval to a time of the UTC wall clock
 *
 * Months and days are those of the calendar, in no time zone.
 */
Timestamp
ShedlockAddInterval(Timestamp when, const Interval *span)
{
	return DatumGetTimestamp(DirectFunctionCall2(timestamp_pl_interval,
												 TimestampGetDatum(when),
												 IntervalPGetDatum(span)));
}

/*
 * ShedlockIntervalMicroseconds - length of a checked interval; a month has 30 days
 */
int64
ShedlockIntervalMicroseconds(const Interval *span)
{
	return ((int64) span->month * 30 + span->day) * USECS_PER_DAY + span->time;
}
