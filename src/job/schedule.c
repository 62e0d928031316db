/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  Schedules: reading cron expressions and periods, and comparing them.
 *
 * The grammar of cron expressions is a subset of pg_cron's with the same meaning.  What
 * pg_cron skips without a word, such as the rest of "0;", is an error here, and so is a
 * step that is larger than its field: people who write it mean something else.
 *
 *	schedule = minute hour day month weekday | "@daily" and its like | period (every.c)
 *	field    = range {"," range};  a day of the month can also be "$", the last one
 *	range    = "*" ["/" step] | value | value "-" value ["/" step]
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "job/job.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "port/pg_bitutils.h"
#include "regex/regex.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* The longest schedule, in bytes. */
#define TEXT_MAX		1000

/* No number of a schedule is as large. */
#define NUMBER_MAX		9999

enum
{
	FIELD_MINUTE,
	FIELD_HOUR,
	FIELD_DAY,
	FIELD_MONTH,
	FIELD_WEEKDAY,
	FIELDS
};

typedef struct Field
{
	const char *what;
	int			low;
	int			high;
	int			values;			/* how many: Sunday has two */
	const char *names;			/* of low and what follows, three letters each */
	const char *allowed_names;	/* for messages */
} Field;

static const Field fields[FIELDS] = {
	{"minute", 0, 59, 60, "", ""},
	{"hour", 0, 23, 24, "", ""},
	{"day of month", 1, 31, 31, "", ""},
	{"month", 1, 12, 12, "janfebmaraprmayjunjulaugsepoctnovdec", "a name from jan to dec"},
	{"day of week", 0, 7, 7, "sunmontuewedthufrisat", "a name from sun to sat"}
};

static const char *const shorthands[][2] = {
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
	{"@monthly", "0 0 1 * *"},
	{"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@hourly", "0 * * * *"}
};

typedef struct Parser
{
	const char *begin;
	const char *pos;			/* what is read next */
	const Field *field;			/* NULL: none */
	uint64		bits[FIELDS];	/* bit n: value n */
	char	   *problem;		/* once it has failed */
} Parser;

/*
 * fail - note what was expected at the position
 */
static bool
fail(Parser *parser, const char *expected)
{
	char	   *field = parser->field ? psprintf(", in the field for the %s", parser->field->what) : "";

	parser->problem = psprintf("Expected %s at character %d%s.", expected,
							   (int) (parser->pos - parser->begin) + 1, field);
	return false;
}

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/*
 * read_value - read a number from low to high, or one of the names, which are as in Field
 */
static bool
read_value(Parser *parser, int low, int high, const char *names, int *value)
{
	const char *word = parser->pos;
	const char *end = word;

	*value = 0;
	for (; *end >= '0' && *end <= '9'; end++)
		*value = Min(*value * 10 + (*end - '0'), NUMBER_MAX);
	if (end == word)
	{
		*value = low - 1;
		for (int i = 0; names[i]; i += 3)
		{
			if (pg_strncasecmp(word, names + i, 3) == 0)
			{
				*value = parser->field->low + i / 3;
				end = word + 3;
				break;
			}
		}
	}
	if (*value < low || *value > high)
		return false;
	parser->pos = end;
	return true;
}

/*
 * read_range - read a range of a field, the first one or another, and what may follow it
 */
static bool
read_range(Parser *parser, bool first)
{
	const Field *field = parser->field;
	int			n = (int) (field - fields);
	bool		is_range = *parser->pos == '*';
	bool		has_step;
	int			low = field->low;
	int			high = field->high;
	int			step = 1;

	if (is_range)
		parser->pos++;
	else
	{
		if (!read_value(parser, low, high, field->names, &low))
			return fail(parser, psprintf("a number from %d to %d%s%s or \"*\"", field->low, field->high,
										 n == FIELD_DAY && first ? ", \"$\"" : *field->names ? ", " : "",
										 field->allowed_names));
		is_range = *parser->pos == '-';
		if (!is_range)
			high = low;
		else
		{
			parser->pos++;
			if (!read_value(parser, low, field->high, field->names, &high))
				return fail(parser, psprintf("a number from %d to %d%s%s", low, field->high,
											 *field->names ? " or " : "", field->allowed_names));
		}
	}
	has_step = is_range && *parser->pos == '/';
	if (has_step)
	{
		parser->pos++;
		if (!read_value(parser, 1, field->values, "", &step))
			return fail(parser, psprintf("a number from 1 to %d", field->values));
	}
	if (*parser->pos && *parser->pos != ',' && !is_blank(*parser->pos))
		return fail(parser, psprintf("%s\",\" or %s", !is_range ? "\"-\", " : has_step ? "" : "\"/\", ",
									 n == FIELD_WEEKDAY ? "the end" : "a blank"));

	for (int i = low; i <= high; i += step)
		parser->bits[n] |= UINT64CONST(1) << i;
	return true;
}

/*
 * read_field - read a field and the blanks behind it
 */
static bool
read_field(Parser *parser)
{
	if (parser->field == &fields[FIELD_DAY] && *parser->pos == '$')
	{
		parser->bits[FIELD_DAY] = 1;
		parser->pos++;
		if (*parser->pos && !is_blank(*parser->pos))
			return fail(parser, "a blank");
	}
	else
	{
		if (!read_range(parser, true))
			return false;
		while (*parser->pos == ',')
		{
			parser->pos++;
			if (!read_range(parser, false))
				return false;
		}
	}
	parser->pos += strspn(parser->pos, " \t");
	return true;
}

/*
 * has_day - can a day match?
 *
 * Each day of a year, also the 29th of February, can be each day of the week.
 */
static bool
has_day(const ShedlockSchedule *schedule)
{
	if (schedule->either_day || (schedule->days & 1) != 0)
		return true;
	for (int month = 1; month <= MONTHS_PER_YEAR; month++)
	{
		if ((schedule->months & (1 << month)) != 0 &&
			(int) pg_rightmost_one_pos32(schedule->days) <= day_tab[1][month - 1])
			return true;
	}
	return false;
}

/*
 * parse_fields - read five fields
 */
static bool
parse_fields(Parser *parser, ShedlockSchedule *schedule)
{
	const char *begin[FIELDS];
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < FIELDS; i++)
	{
		const char *end;

		parser->field = &fields[i];
		begin[i] = parser->pos;
		if (!read_field(parser))
			return false;
		end = parser->pos;
		while (is_blank(end[-1]))
			end--;
		appendStringInfo(&buf, "%s%.*s", i > 0 ? " " : "", (int) (end - begin[i]), begin[i]);
	}
	parser->field = NULL;
	if (*parser->pos)
		return fail(parser, "the end");

	schedule->minutes = parser->bits[FIELD_MINUTE];
	schedule->hours = (uint32) parser->bits[FIELD_HOUR];
	schedule->days = (uint32) parser->bits[FIELD_DAY];
	schedule->months = (uint16) parser->bits[FIELD_MONTH];
	schedule->weekdays = (uint8) ((parser->bits[FIELD_WEEKDAY] | parser->bits[FIELD_WEEKDAY] >> 7) & 0x7F);
	schedule->either_day = *begin[FIELD_DAY] != '*' && *begin[FIELD_WEEKDAY] != '*';
	schedule->wildcard = *begin[FIELD_MINUTE] == '*' || *begin[FIELD_HOUR] == '*';
	schedule->text = buf.data;
	if (!has_day(schedule))
	{
		parser->problem = "None of its months has one of its days.";
		return false;
	}
	return true;
}

/*
 * parse - set all of the schedule but its zone; returns NULL, or a sentence that says what is wrong
 */
static const char *
parse(const char *text, pg_tz *zone, ShedlockSchedule *schedule)
{
	Parser		parser;
	size_t		len = strlen(text);

	memset(schedule, 0, sizeof(*schedule));
	memset(&parser, 0, sizeof(parser));
	if (len > TEXT_MAX)
		return psprintf("It can have at most %d bytes.", TEXT_MAX);

	/* A text that was read from a file ends with a newline. */
	while (len > 0 && strchr(" \t\r\n", text[len - 1]))
		len--;
	parser.begin = pnstrdup(text, len);
	parser.pos = parser.begin + strspn(parser.begin, " \t\n");
	if (ShedlockIsEvery(parser.pos))
		return ShedlockReadEvery(parser.pos, zone, schedule);

	if (*parser.pos == '@')
	{
		for (int i = 0; i < (int) lengthof(shorthands); i++)
		{
			if (strcmp(parser.pos, shorthands[i][0]) == 0)
			{
				parser.pos = shorthands[i][1];
				(void) parse_fields(&parser, schedule);
				schedule->text = pstrdup(shorthands[i][0]);
				return NULL;
			}
		}
		(void) fail(&parser, "@yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly");
	}
	else
		(void) parse_fields(&parser, schedule);
	return parser.problem;
}

static bool
has_digit(const char *str)
{
	return strpbrk(str, "0123456789") != NULL;
}

/*
 * numbered_zones - the names with a digit in pg_timezone_names, as Etc/GMT-2; kept
 */
static List *
numbered_zones(void)
{
	static List *known = NIL;
	List	   *names = NIL;
	MemoryContext old;
	pg_tzenum  *all;
	pg_tz	   *zone;

	if (known)
		return known;
	old = MemoryContextSwitchTo(TopMemoryContext);
	all = pg_tzenumerate_start();
	while ((zone = pg_tzenumerate_next(all)) != NULL)
	{
		if (has_digit(pg_get_timezone_name(zone)))
			names = lappend(names, pstrdup(pg_get_timezone_name(zone)));
	}
	pg_tzenumerate_end(all);
	MemoryContextSwitchTo(old);
	return known = names;
}

/*
 * is_zone_name - can a text be the name of a zone, not a POSIX rule?
 *
 * To pg_tzset() a text that no file of the time zone directory has is a POSIX rule if an
 * offset from UTC can be read in it: UTC+2 and Berlin+2 are two hours *west* of Greenwich.
 * An offset has a digit, so only the few names with a digit are looked up.  This comes
 * before pg_tzset(), which keeps each zone that it knows to the end of the process: there
 * are as many rules as texts, but no more names than files.
 */
static bool
is_zone_name(const char *name)
{
	ListCell   *lc;

	if (!has_digit(name))
		return true;
	foreach(lc, numbered_zones())
	{
		if (pg_strcasecmp(lfirst(lc), name) == 0)
			return true;
	}
	return false;
}

/*
 * find_zone - a time zone of pg_timezone_names; or NULL
 */
static pg_tz *
find_zone(const char *name)
{
	pg_tz	   *zone = is_zone_name(name) ? pg_tzset(name) : NULL;

	return zone && pg_tz_acceptable(zone) ? zone : NULL;
}

typedef struct Hint
{
	const char *like;			/* regular expression of what was written */
	const char *hint;			/* what is to be written instead */
} Hint;

/* The first that fits counts.  People who come from another scheduler write such things. */
static const Hint hints[] = {
	{"^\\s*(cron_)?tz=",
	"Pass the time zone as time_zone."},
	{"^\\s*(@?every|\\d\\S*(\\s+\\S+)?\\s*$)",
	"Write a period as \"every 5 min\", or as \"every 14 days from 2026-01-05 03:00\"."},
	{"^\\s*@",
	"A schedule can be @yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly, and has five fields else."},
	{"[?#]|(^|[^a-z])[lw]+([^a-z]|$)",
	"\"*\" is any day and \"$\" the last one of the month; the first Monday is \"0 5 */31,1-7 * mon\"."},
	{"(^|[^a-z])h+([^a-z]|$)",
	"Choose a minute, such as \"17 * * * *\"."},
	{"^\\s*\\S+(\\s+\\S+){5}\\s*$",
	"There is no field for seconds or years: leave it out."},
	{"-(sun|0)",
	"Sunday is 0 and 7: write \"6-7\" for Saturday and Sunday."},
	{"^([^/]*[^-a-z0-9/])?[a-z0-9]+/",
	"A step follows \"*\" or a range: write \"5-59/15\", not \"5/15\"."},
	{"/",
	"A step cannot be larger than its field: for every two hours write \"0 */2 * * *\", or \"every 2 hours\"."},
	{"",
	"A schedule has five fields: minute, hour, day of month, month and day of week; or it is a period, such as \"every 5 min\"."},
};

/*
 * hint_for - the hint for a schedule that is refused
 */
static const char *
hint_for(char *text)
{
	int			i = 0;

	while (!RE_compile_and_execute(cstring_to_text(hints[i].like), text, (int) strlen(text),
								   REG_ADVANCED | REG_ICASE, C_COLLATION_OID, 0, NULL))
		i++;
	return hints[i].hint;
}

/*
 * ShedlockParseSchedule - read a schedule and its time zone
 *
 * schedule->text is a cron expression with single blanks, or a period as given; palloc'd.
 * Returns whether both are valid; also not valid is an expression for which no day can match.
 * Errors, unless noerror: 22023 if they are not.
 */
bool
ShedlockParseSchedule(const char *text, const char *zone, bool noerror, ShedlockSchedule *schedule)
{
	pg_tz	   *found = find_zone(zone);
	const char *problem = found ? parse(text, found, schedule) : NULL;

	schedule->zone = problem ? NULL : found;
	if (schedule->zone || noerror)
		return schedule->zone != NULL;
	if (problem)
	{
		char	   *shown = pnstrdup(text, (Size) pg_mbcliplen(text, (int) strlen(text), TEXT_MAX));
		const char *hint = hint_for(shown);

		(void) ShedlockMaskText(shown);
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid schedule: \"%s\"", shown),
				 errdetail_internal("%s", problem),
				 errhint("%s", hint)));
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("time zone \"%s\" not recognized", zone),
			 errhint("Use a name in pg_timezone_names: a region such as Europe/Berlin, or UTC, or Etc/GMT-2, which is two hours ahead of UTC.")));
}

/*
 * ShedlockPeriodSchedule - the schedule of periods of one length
 *
 * every: the period.  name: the lock's.  Errors: 22023, also for months, because their
 * length is not fixed.
 */
void
ShedlockPeriodSchedule(const Interval *every, const char *name, ShedlockSchedule *schedule)
{
	ShedlockCheckDuration(every, "period", name, false, 0, NULL);
	if (every->month != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("period of lock \"%s\" must not contain months or years", name),
				 errdetail("Ticks are counted in UTC from the epoch, in steps of one length."),
				 errhint("Compute the tick and pass it to shedlock_once.")));

	memset(schedule, 0, sizeof(*schedule));
	schedule->period = ShedlockIntervalMicroseconds(every);
}

/*
 * ShedlockSameSchedule - do two schedules mean the same?
 *
 * Their texts can differ in blanks, names and the like.
 */
bool
ShedlockSameSchedule(const ShedlockSchedule *a, const ShedlockSchedule *b)
{
	if (a->period != 0 || b->period != 0)
		return a->period == b->period && a->has_from == b->has_from && a->from == b->from;
	return a->minutes == b->minutes && a->hours == b->hours && a->days == b->days &&
		a->months == b->months && a->weekdays == b->weekdays &&
		a->either_day == b->either_day && a->wildcard == b->wildcard &&
		strcmp(pg_get_timezone_name(a->zone), pg_get_timezone_name(b->zone)) == 0;
}
