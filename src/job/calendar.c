/*-------------------------------------------------------------------------
 *
 * calendar.c
 *	  The ticks of a schedule around an instant.
 *
 * The rule for changes of the clock is that of Vixie's cron: fixed times come once
 * a local day, others as often as the clock shows them.  A time is fixed if neither
 * its minute nor its hour begins with "*".  If the clock skips it, its tick is the
 * instant of the change; if the clock shows it twice, the first of the two.
 *
 * A time zone's changes cut time into segments, in which local time is UTC plus a
 * constant.  In a segment a tick is found by arithmetic.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job/job.h"
#include "port/pg_bitutils.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

/* The epoch of timestamps is 2000-01-01, that of periods and of pg_time_t 1970-01-01. */
#define EPOCH_DISTANCE	((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

#define MINS_PER_DAY	(MINS_PER_HOUR * HOURS_PER_DAY)

/*
 * Days in which a tick is looked for.  A Sunday that is a 29th of February can be 40
 * years away.  Some wildcards have no tick at all, because they are in an hour that
 * the clock always skips.
 */
#define HORIZON			(41 * 366)

/*
 * Days by which a tick can be away from the day of its local time in UTC, and for
 * which the clock may have shown a time before it shows it again.  No zone of the world
 * needs more than two; the format of their files allows a week.
 */
#define SLACK			16

/* Days that are looked at together from a matching day on; more than 2 * SLACK. */
#define WINDOW			40

static int64
floor_div(int64 a, int64 b)
{
	return a / b - (a % b < 0);
}

/*
 * find_day - the first matching day from *day on, or the last up to it
 *
 * Days are Julian.  Returns false if there is none until limit.
 */
static bool
find_day(const ShedlockSchedule *schedule, bool forward, int *day, int limit)
{
	while (forward ? *day <= limit : *day >= limit)
	{
		int			year;
		int			month;
		int			mday;
		int			length;

		j2date(*day, &year, &month, &mday);
		length = day_tab[isleap(year)][month - 1];
		if ((schedule->months & (1 << month)) == 0)
			*day += forward ? length + 1 - mday : -mday;
		else
		{
			bool		on_day = (schedule->days & (1U << mday)) != 0;
			bool		on_weekday = (schedule->weekdays & (1 << j2day(*day))) != 0;

			if (mday == length && (schedule->days & 1) != 0)
				on_day = true;
			if (schedule->either_day ? on_day || on_weekday : on_day && on_weekday)
				return true;
			*day += forward ? 1 : -1;
		}
	}
	return false;
}

/*
 * find_in_day - the first matching minute of a day from *minute on, or the last up to it
 */
static bool
find_in_day(const ShedlockSchedule *schedule, bool forward, int *minute)
{
	int			m = *minute % MINS_PER_HOUR;
	int			h = *minute / MINS_PER_HOUR;
	uint64		mask = forward ? UINT64_MAX << m : ~(UINT64_MAX << m << 1);
	uint64		minutes = schedule->minutes & mask;
	uint32		hours = schedule->hours & (1U << h);

	if (hours == 0 || minutes == 0)
	{
		minutes = schedule->minutes;
		hours = schedule->hours & (forward ? UINT32_MAX << h << 1 : ~(UINT32_MAX << h));
		if (hours == 0)
			return false;
	}
	*minute = forward ?
		pg_rightmost_one_pos32(hours) * MINS_PER_HOUR + pg_rightmost_one_pos64(minutes) :
		pg_leftmost_one_pos32(hours) * MINS_PER_HOUR + pg_leftmost_one_pos64(minutes);
	return true;
}

/*
 * find_local - the first or last matching local time from low to high
 *
 * Times are seconds since 1970 by the local clock.
 */
static bool
find_local(const ShedlockSchedule *schedule, bool forward, int64 low, int64 high,
		   int64 *found)
{
	int64		first = -floor_div(-low, SECS_PER_MINUTE);
	int64		last = floor_div(high, SECS_PER_MINUTE);
	int64		minute = forward ? first : last;
	int			begin = (int) floor_div(minute, MINS_PER_DAY) + UNIX_EPOCH_JDATE;
	int			limit = (int) floor_div(forward ? last : first, MINS_PER_DAY) + UNIX_EPOCH_JDATE;
	int			day = begin;
	int			in_day = (int) (minute - floor_div(minute, MINS_PER_DAY) * MINS_PER_DAY);

	while (find_day(schedule, forward, &day, limit))
	{
		if (day != begin)
			in_day = forward ? 0 : MINS_PER_DAY - 1;
		if (find_in_day(schedule, forward, &in_day))
		{
			minute = (int64) (day - UNIX_EPOCH_JDATE) * MINS_PER_DAY + in_day;
			*found = minute * SECS_PER_MINUTE;
			return minute >= first && minute <= last;
		}
		day += forward ? 1 : -1;
	}
	return false;
}

/*
 * find_in_window - the first or last tick from low to high, in seconds since 1970
 */
static bool
find_in_window(const ShedlockSchedule *schedule, bool forward, pg_time_t low,
			   pg_time_t high, pg_time_t *tick)
{
	pg_time_t	start = low - SLACK * SECS_PER_DAY; /* of a segment */
	int64		shown = PG_INT64_MIN;	/* local times before it were shown */
	bool		found = false;

	for (;;)
	{
		pg_time_t	end;		/* of the segment: the first instant behind it */
		long int	offset = 0;
		long int	next_offset;
		int			is_dst;
		bool		is_last;
		int64		local;
		int64		first;

		is_last = pg_next_dst_boundary(&start, &offset, &is_dst, &end, &next_offset,
									   &is_dst, schedule->zone) <= 0 || end > high;
		if (is_last)
			end = high + 1;
		first = Max(start, low) + offset;

		if (!schedule->wildcard && shown != PG_INT64_MIN)
		{
			/* What the clock skips comes at the change. */
			if (start >= low &&
				find_local(schedule, true, shown, start + offset - 1, &local))
			{
				*tick = start;
				found = true;
			}
			first = Max(first, shown);
		}
		if (!(found && forward) &&
			find_local(schedule, forward, first, end + offset - 1, &local))
		{
			*tick = local - offset;
			found = true;
		}
		if (is_last || (found && forward))
			return found;
		shown = Max(shown, end + offset);
		start = end;
	}
}

/*
 * find_tick - the first tick from a second on, or the last up to it
 *
 * at: seconds since 1970.  Returns false if there is none, or none near.
 */
static bool
find_tick(const ShedlockSchedule *schedule, bool forward, pg_time_t at, pg_time_t *tick)
{
	int			day = (int) floor_div(at, SECS_PER_DAY) + UNIX_EPOCH_JDATE;
	int			limit = forward ? day + HORIZON : Max(day - HORIZON, 0);

	day += forward ? -SLACK : SLACK;
	while (find_day(schedule, forward, &day, limit))
	{
		pg_time_t	start = (day - (pg_time_t) UNIX_EPOCH_JDATE) * SECS_PER_DAY;

		if (forward ?
			find_in_window(schedule, true, Max(at, start - SLACK * SECS_PER_DAY),
						   start + WINDOW * SECS_PER_DAY, tick) :
			find_in_window(schedule, false, start - WINDOW * SECS_PER_DAY,
						   Min(at, start + SLACK * SECS_PER_DAY), tick))
			return true;
		day += forward ? WINDOW - SLACK : SLACK - WINDOW;
	}
	return false;
}

/*
 * in_period - how long a period has run at an instant, in microseconds
 */
static int64
in_period(const ShedlockSchedule *schedule, TimestampTz at)
{
	int64		period = schedule->period;
	TimestampTz begin = schedule->has_from ? schedule->from : -EPOCH_DISTANCE;
	int64		rest = (at % period - begin % period) % period;

	return rest < 0 ? rest + period : rest;
}

/*
 * find_timestamp - as find_tick(), but of timestamps; DT_NOEND or DT_NOBEGIN if none
 */
static TimestampTz
find_timestamp(const ShedlockSchedule *schedule, bool forward, TimestampTz at)
{
	int64		distance = EPOCH_DISTANCE / USECS_PER_SEC;
	TimestampTz none = forward ? DT_NOEND : DT_NOBEGIN;
	pg_time_t	tick;

	if (!find_tick(schedule, forward, floor_div(at, USECS_PER_SEC) + distance + (forward ? 1 : 0), &tick))
		return none;
	tick -= distance;
	if (tick < MIN_TIMESTAMP / USECS_PER_SEC || tick >= END_TIMESTAMP / USECS_PER_SEC)
		return none;
	return tick * USECS_PER_SEC;
}

/*
 * ShedlockPreviousTick - the last tick at or before an instant; DT_NOBEGIN if none is near
 */
TimestampTz
ShedlockPreviousTick(const ShedlockSchedule *schedule, TimestampTz at)
{
	if (at < MIN_TIMESTAMP)
		return DT_NOBEGIN;
	at = Min(at, END_TIMESTAMP - 1);
	if (schedule->period == 0)
		return find_timestamp(schedule, false, at);
	at -= in_period(schedule, at);
	return at < (schedule->has_from ? schedule->from : MIN_TIMESTAMP) ? DT_NOBEGIN : at;
}

/*
 * ShedlockNextTick - the first tick after an instant; DT_NOEND if none is near
 */
TimestampTz
ShedlockNextTick(const ShedlockSchedule *schedule, TimestampTz after)
{
	int64		left;

	if (after >= END_TIMESTAMP)
		return DT_NOEND;
	after = Max(after, MIN_TIMESTAMP - 1);
	if (schedule->period == 0)
		return find_timestamp(schedule, true, after);
	if (schedule->has_from)
		after = Max(after, schedule->from - 1);
	left = schedule->period - in_period(schedule, after);
	return after >= END_TIMESTAMP - left ? DT_NOEND : after + left;
}

/*
 * ShedlockTickOfTimer - the tick that a timer which fires now is for
 *
 * early: a timer that is so many microseconds early, or a quarter of the distance of the ticks
 * around it, belongs to the coming tick.  Returns DT_NOBEGIN if there is neither that nor an
 * earlier one.
 */
TimestampTz
ShedlockTickOfTimer(const ShedlockSchedule *schedule, TimestampTz now, int64 early)
{
	TimestampTz previous = ShedlockPreviousTick(schedule, now);
	TimestampTz next = ShedlockNextTick(schedule, now);

	if (next == DT_NOEND)
		return previous;
	if (previous != DT_NOBEGIN)
		early = Min((next - previous) / 4, early);
	return next - now <= early ? next : previous;
}
