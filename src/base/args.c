/*-------------------------------------------------------------------------
 *
 * args.c
 *	  Arguments of the SQL functions: texts, durations, who is calling.
 *
 * Errors: 22004 for a null that is not allowed, 22023 for a value out of
 * range.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/base.h"
#include "catalog/pg_authid.h"
#include "common/ip.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

/*
 * ShedlockSchema - the schema of the extension
 *
 * Found by the function that was called, on each call: there is no search_path
 * to mislead it and no cache to go stale with DROP EXTENSION.
 */
Oid
ShedlockSchema(FunctionCallInfo fcinfo)
{
	return get_func_namespace(fcinfo->flinfo->fn_oid);
}

/*
 * control_character - the first that a terminal takes for an order, or NULL
 *
 * len: its length in bytes.
 */
static char *
control_character(char *str, int *len)
{
	for (unsigned char *p = (unsigned char *) str; *p; p++)
	{
		*len = 1;
		if (*p < ' ' || *p == 0x7F)
			return (char *) p;
		/* U+0080 to U+009F */
		*len = 2;
		if (*p == 0xC2 && p[1] >= 0x80 && p[1] <= 0x9F &&
			GetDatabaseEncoding() == PG_UTF8)
			return (char *) p;
	}
	return NULL;
}

/*
 * ShedlockCheckText - complain about control characters in a text
 *
 * Other people read it, in messages as it is.
 */
void
ShedlockCheckText(char *str, const char *what)
{
	int			len;

	if (control_character(str, &len))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not have control characters", what)));
}

/*
 * ShedlockMaskText - question marks for the control characters in a text
 */
void
ShedlockMaskText(char *str)
{
	int			len;

	while ((str = control_character(str, &len)) != NULL)
		memset(str, '?', (Size) len);
}

/*
 * ShedlockGetName - the argument that names the lock
 */
void
ShedlockGetName(FunctionCallInfo fcinfo, int argno, ShedlockName *name)
{
	if (PG_ARGISNULL(argno))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lock name must not be null")));
	ShedlockMakeName(ShedlockSchema(fcinfo),
					 text_to_cstring(PG_GETARG_TEXT_PP(argno)), name);
	ShedlockCheckText(name->str, "lock name");
	ShedlockCheckMayUse(name);
}

/*
 * ShedlockGetToken - a token argument; 0 if it is null
 */
int64
ShedlockGetToken(FunctionCallInfo fcinfo, int argno)
{
	int64		token;

	if (PG_ARGISNULL(argno))
		return 0;
	token = PG_GETARG_INT64(argno);
	if (token <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("token must be positive")));
	return token;
}

/*
 * ShedlockGetInterval - an interval argument; NULL if it is null
 */
Interval *
ShedlockGetInterval(FunctionCallInfo fcinfo, int argno)
{
	return PG_ARGISNULL(argno) ? NULL : PG_GETARG_INTERVAL_P(argno);
}

/*
 * ShedlockIntervalSetting - the interval of a setting in seconds
 */
Interval *
ShedlockIntervalSetting(int seconds)
{
	Interval   *span = palloc0(sizeof(Interval));

	span->time = seconds * USECS_PER_SEC;
	return span;
}

/*
 * capped_setting - the interval of a setting in seconds, or the cap if that is less
 */
static Interval *
capped_setting(int seconds)
{
	if (shedlock_max_lock_at_most_for > 0)
		seconds = Min(seconds, shedlock_max_lock_at_most_for);
	return ShedlockIntervalSetting(seconds);
}

/*
 * ShedlockDefaultAtMost - longest time of a lease when the caller names none
 */
Interval *
ShedlockDefaultAtMost(void)
{
	return capped_setting(shedlock_default_lock_at_most_for);
}

/*
 * ShedlockDefaultAtLeast - shortest time of a lock when the caller names none
 *
 * NULL if there is none.
 */
Interval *
ShedlockDefaultAtLeast(void)
{
	return shedlock_default_lock_at_least_for > 0 ?
		capped_setting(shedlock_default_lock_at_least_for) : NULL;
}

/*
 * interval_days - length of an interval in days, as its epoch counts them
 */
static double
interval_days(const Interval *span)
{
	return span->month / MONTHS_PER_YEAR * DAYS_PER_YEAR +
		span->month % MONTHS_PER_YEAR * (double) DAYS_PER_MONTH +
		span->day + (double) span->time / USECS_PER_DAY;
}

/*
 * ShedlockCheckDuration - complain unless a duration is positive and sane
 *
 * what: its argument's name.  name: that of the lock, or NULL.
 */
void
ShedlockCheckDuration(const Interval *span, const char *what, const char *name,
					  bool zero_ok)
{
	double		days = interval_days(span);

	/*
	 * The calendar's months are shorter or longer than that: less a few days
	 * they could be over before they begin.
	 */
	if (span->month != 0 && (span->month < 0 || span->day < 0 || span->time < 0))
		days = -1;
	if (days < 0 || (days == 0 && !zero_ok))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 name == NULL ? errmsg(zero_ok ? "%s must not be negative" : "%s must be positive", what) :
				 errmsg(zero_ok ? "%s of lock \"%s\" must not be negative" : "%s of lock \"%s\" must be positive",
						what, name)));
	if (days > SHEDLOCK_YEARS_MAX * 366.0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 name == NULL ? errmsg("%s is too long", what) :
				 errmsg("%s of lock \"%s\" is too long", what, name),
				 errdetail("It can be at most %d years.", SHEDLOCK_YEARS_MAX)));
}

/*
 * ShedlockCheckAtLeast - complain if the shortest time is over the longest
 */
void
ShedlockCheckAtLeast(const Interval *at_least, const Interval *at_most,
					 const char *name)
{
	if (interval_days(at_least) > interval_days(at_most))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock_at_least_for is longer than lock_at_most_for for lock \"%s\"",
						name)));
}

/*
 * ShedlockIsOverCap - is a duration longer than so many seconds?
 *
 * Whatever the calendar: a month counts as 31 days.  0 seconds: there is no cap.
 */
bool
ShedlockIsOverCap(const Interval *span, int seconds)
{
	return seconds > 0 &&
		((int64) span->month * 31 + span->day) * USECS_PER_DAY + span->time >
		seconds * USECS_PER_SEC;
}

/*
 * ShedlockCheckCap - complain if a duration is longer than a setting allows
 */
void
ShedlockCheckCap(const Interval *span, const char *what, const char *name,
				 int seconds, const char *setting)
{
	if (ShedlockIsOverCap(span, seconds))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s of lock \"%s\" is too long", what, name),
				 errdetail("The setting %s allows %s.",
						   setting, GetConfigOptionByName(setting, NULL, false))));
}

/*
 * ShedlockCheckTimes - complain unless a lock can be held for these
 *
 * Either can be NULL.
 */
void
ShedlockCheckTimes(const Interval *at_most, const Interval *at_least, const char *name)
{
	if (at_most)
	{
		ShedlockCheckDuration(at_most, "lock_at_most_for", name, false);
		ShedlockCheckCap(at_most, "lock_at_most_for", name,
						 shedlock_max_lock_at_most_for, "shedlock.max_lock_at_most_for");
	}
	if (at_least)
	{
		ShedlockCheckDuration(at_least, "lock_at_least_for", name, true);
		ShedlockCheckCap(at_least, "lock_at_least_for", name,
						 shedlock_max_lock_at_most_for, "shedlock.max_lock_at_most_for");
	}
	if (at_most && at_least)
		ShedlockCheckAtLeast(at_least, at_most, name);
}

/*
 * ShedlockAddInterval - that much later, on the UTC wall clock
 *
 * Months and days are the calendar's, but no session's time zone has a say.
 */
Timestamp
ShedlockAddInterval(Timestamp when, const Interval *span)
{
	return DatumGetTimestamp(DirectFunctionCall2(timestamp_pl_interval,
												 TimestampGetDatum(when),
												 IntervalPGetDatum(span)));
}

/*
 * ShedlockIntervalMicroseconds - length of a checked interval, exactly
 */
int64
ShedlockIntervalMicroseconds(const Interval *span)
{
	return ((int64) span->month * 30 + span->day) * USECS_PER_DAY + span->time;
}

/*
 * ShedlockGetText - a text argument of at most maxchars characters
 *
 * For other people to read, on one line.  Returns NULL if it is null.
 */
char *
ShedlockGetText(FunctionCallInfo fcinfo, int argno, int maxchars, const char *what)
{
	char	   *str;

	if (PG_ARGISNULL(argno))
		return NULL;
	str = text_to_cstring(PG_GETARG_TEXT_PP(argno));
	if (pg_mbstrlen(str) > maxchars)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is too long", what),
				 errdetail("It can have at most %d characters.", maxchars)));
	ShedlockCheckText(str, what);
	return str;
}

/*
 * client_address - where the client is, as pg_stat_activity has it
 */
static const char *
client_address(void)
{
	static char host[NI_MAXHOST];

	if (MyBEEntry == NULL ||
		MyBEEntry->st_clientaddr.addr.ss_family == AF_UNSPEC)
		return "[internal]";
	if (MyBEEntry->st_clientaddr.addr.ss_family == AF_UNIX)
		return "[local]";
	if (pg_getnameinfo_all(&MyBEEntry->st_clientaddr.addr,
						   (int) MyBEEntry->st_clientaddr.salen,
						   host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
		return "[unknown]";
	return host;
}

/*
 * ShedlockLockedBy - what goes into locked_by
 *
 * given: the caller's text, or NULL.  A ShedLock client proves its ownership
 * by this text alone, and takes its host's name for it: the token at the end
 * keeps ours distinct from that.  token 0: none.
 */
char *
ShedlockLockedBy(const char *given, int64 token)
{
	StringInfoData buf;

	initStringInfo(&buf);
	if (given)
		appendStringInfoString(&buf, given);
	else
		appendStringInfo(&buf, "%s@%s",
						 application_name && application_name[0] ? application_name :
						 GetUserNameFromId(GetSessionUserId(), false),
						 client_address());
	if (token != 0)
		appendStringInfo(&buf, " #" INT64_FORMAT, token);
	return buf.data;
}

/*
 * ShedlockMaySee - may the caller know what that role did?
 *
 * The rule of pg_stat_activity and of shedlock_history.
 */
bool
ShedlockMaySee(Oid role)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		(OidIsValid(role) && has_privs_of_role(GetUserId(), role));
}

/*
 * ShedlockActingRole - the role that acts as an administrator, for the log
 */
const char *
ShedlockActingRole(void)
{
	char	   *role = GetUserNameFromId(GetUserId(), false);

	if (GetUserId() == GetSessionUserId())
		return psprintf("\"%s\"", role);
	return psprintf("\"%s\" (session user \"%s\")", role,
					GetUserNameFromId(GetSessionUserId(), false));
}

/*
 * ShedlockTimeString - a time for messages, in the session's time zone
 *
 * The result is palloc'd: messages may have several.
 */
const char *
ShedlockTimeString(TimestampTz when)
{
	return pstrdup(timestamptz_to_str(when));
}
