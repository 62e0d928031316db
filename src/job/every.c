/*-------------------------------------------------------------------------
 *
 * every.c
 *	  Schedules that are periods: "every INTERVAL [from TIMESTAMP]".
 *
 * The interval is read as the server reads one.  The timestamp has the form of ISO 8601,
 * which means the same whatever DateStyle is.  What is wrong is said in a sentence: the
 * server's own input functions would raise an error, and who reads a schedule that is
 * stored must not fail.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job/job.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#define BLANKS		" \t\r\n"

/* The longest interval, in bytes. */
#define INTERVAL_MAX	200

#define PERIOD_MAX	(SHEDLOCK_YEARS_MAX * INT64CONST(366) * USECS_PER_DAY)

/*
 * read_interval - read how long a period is, in microseconds; returns NULL, or what is wrong
 */
static const char *
read_interval(char *text, int64 *period)
{
	char		work[MAXDATELEN + INTERVAL_MAX];
	char	   *field[MAXDATEFIELDS];
	int			ftype[MAXDATEFIELDS];
	int			n;
	int			type = DTK_DELTA;
	struct pg_itm_in length;
	int			error;

	if (strlen(text) > INTERVAL_MAX)
		return "Its interval is too long.";

	/* The server takes these for blanks. */
	if (strpbrk(text, "\v\f"))
		return "Its interval has a control character.";
	error = ParseDateTime(text, work, sizeof(work), field, ftype, MAXDATEFIELDS, &n);
	if (error == 0)
		error = DecodeInterval(field, ftype, n, INTERVAL_FULL_RANGE, &type, &length);
	if (error == DTERR_BAD_FORMAT)
		error = DecodeISO8601Interval(text, &type, &length);

	/* A number alone would be seconds, which is what few mean. */
	if (error != 0 || type != DTK_DELTA || text[strspn(text, "0123456789.")] == '\0')
		return psprintf("Expected an interval behind \"every\", not \"%s\".", text);
	if (length.tm_year != 0 || length.tm_mon != 0)
		return "Its interval has months or years, whose length is not fixed.";
	if (length.tm_mday < 0 || length.tm_usec < 0)
		return "Its interval must be positive.";
	if (length.tm_mday > PERIOD_MAX / USECS_PER_DAY || length.tm_usec > PERIOD_MAX)
		return psprintf("Its interval can be at most %d years.", SHEDLOCK_YEARS_MAX);
	*period = length.tm_mday * USECS_PER_DAY + length.tm_usec;
	return *period < USECS_PER_SEC ? "Its interval must be at least one second." : NULL;
}

/*
 * read_digits - read that many digits, from low to high, behind a character or '\0'
 */
static bool
read_digits(const char **pos, char before, int digits, int low, int high, int *value)
{
	const char *digit = *pos;

	if (before && *digit++ != before)
		return false;
	*value = 0;
	for (int i = 0; i < digits; i++, digit++)
	{
		if (*digit < '0' || *digit > '9')
			return false;
		*value = *value * 10 + (*digit - '0');
	}
	*pos = digit;
	return *value >= low && *value <= high;
}

/*
 * read_date, read_time - read YYYY-MM-DD, and HH:MM[:SS] behind a blank or "T"
 */
static bool
read_date(const char **pos, struct pg_tm *tm)
{
	return read_digits(pos, '\0', 4, 1, 9999, &tm->tm_year) &&
		read_digits(pos, '-', 2, 1, MONTHS_PER_YEAR, &tm->tm_mon) &&
		read_digits(pos, '-', 2, 1, day_tab[isleap(tm->tm_year)][tm->tm_mon - 1], &tm->tm_mday);
}

static bool
read_time(const char **pos, struct pg_tm *tm)
{
	(*pos)++;
	return read_digits(pos, '\0', 2, 0, HOURS_PER_DAY - 1, &tm->tm_hour) &&
		read_digits(pos, ':', 2, 0, MINS_PER_HOUR - 1, &tm->tm_min) &&
		(**pos != ':' || read_digits(pos, ':', 2, 0, SECS_PER_MINUTE - 1, &tm->tm_sec));
}

/*
 * read_offset - read "Z", or +HH[:MM]; west is positive, as in tm2timestamp()
 */
static bool
read_offset(const char **pos, int *west)
{
	int			sign = **pos == '-' ? 1 : -1;
	int			hours;
	int			minutes = 0;

	*west = 0;
	if (**pos == 'Z' || **pos == 'z')
	{
		(*pos)++;
		return true;
	}
	if (!read_digits(pos, **pos == '-' ? '-' : '+', 2, 0, MAX_TZDISP_HOUR, &hours) ||
		(**pos == ':' && !read_digits(pos, ':', 2, 0, MINS_PER_HOUR - 1, &minutes)))
		return false;
	*west = sign * (hours * SECS_PER_HOUR + minutes * SECS_PER_MINUTE);
	return true;
}

/*
 * read_from - read the instant from which periods count
 *
 * Without an offset it is the zone's local time, and *local is set.  Returns NULL, or what
 * is wrong.
 */
static const char *
read_from(const char *text, pg_tz *zone, TimestampTz *from, bool *local)
{
	const char *pos = text;
	struct pg_tm tm = {0};
	int			west;
	bool		ok = read_date(&pos, &tm);

	if (ok && (*pos == ' ' || *pos == 'T'))
		ok = read_time(&pos, &tm);
	*local = *pos == '\0';
	if (ok && *local)
		west = DetermineTimeZoneOffset(&tm, zone);
	else
		ok = ok && read_offset(&pos, &west) && *pos == '\0';
	if (!ok || tm2timestamp(&tm, 0, &west, from) != 0)
		return psprintf("Expected a time such as 2026-01-05 03:00 behind \"from\", not \"%s\".", text);
	return NULL;
}

/*
 * find_from - the word "from" with blanks around it; or NULL
 */
static char *
find_from(char *text)
{
	for (char *pos = text; *pos; pos++)
	{
		if (strchr(BLANKS, pos[0]) && pg_strncasecmp(pos + 1, "from", 4) == 0 &&
			(pos[5] == '\0' || strchr(BLANKS, pos[5])))
			return pos;
	}
	return NULL;
}

/*
 * trim - cut blanks off both ends, in place
 */
static char *
trim(char *text)
{
	size_t		len;

	text	  +=strspn(text, BLANKS);

	len = strlen(text);
	while (len > 0 && strchr(BLANKS, text[len - 1]))
		text[	  --len] = '\0';
	return text;
}

/*
 * ShedlockIsEvery - does a schedule begin with the word "every"?
 */
bool
ShedlockIsEvery(const char *text)
{
	return pg_strncasecmp(text, "every", 5) == 0 && text[5] != '\0' && strchr(BLANKS, text[5]) != NULL;
}

/*
 * ShedlockReadEvery - read a schedule for which ShedlockIsEvery() is true
 *
 * zone: in which a "from" without offset is read.  Sets all of *schedule but its zone.
 * Returns NULL, or a sentence that says what is wrong.
 */
const char *
ShedlockReadEvery(const char *text, pg_tz *zone, ShedlockSchedule *schedule)
{
	char	   *copy = pstrdup(text);
	char	   *interval = copy + 5;
	char	   *from = find_from(interval);
	bool		local = false;
	const char *problem = NULL;

	if (from)
	{
		*from = '\0';
		problem = read_from(trim(from + 5), zone, &schedule->from, &local);
		schedule->has_from = true;
	}
	if (problem == NULL)
		problem = read_interval(trim(interval), &schedule->period);
	if (problem == NULL && !local && strcmp(pg_get_timezone_name(zone), "UTC") != 0)
		problem = "Periods are counted in UTC: another time zone is only for a \"from\" without an offset.";
	schedule->text = trim(pstrdup(text));
	return problem;
}
