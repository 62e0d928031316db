/*-------------------------------------------------------------------------
 *
 * args.c
 *	  Arguments of the SQL functions: names, tokens, texts; their caller; rows that they
 *	  return.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/base.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "common/ip.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

/* What is known of functions that were called, until any function changes. */
#define KNOWN_FUNCTIONS 16

typedef struct KnownFunction
{
	Oid			oid;
	Oid			nsp;
	int32		typmod;			/* of the row that it returns; -1: not known */
} KnownFunction;

static KnownFunction known_functions[KNOWN_FUNCTIONS];

/*
 * forget_functions - a function has changed
 */
static void
forget_functions(Datum arg, CacheId cacheid, uint32 hash)
{
	memset(known_functions, 0, sizeof(known_functions));
}

/*
 * know_function - what is known of the called function
 */
static KnownFunction *
know_function(FunctionCallInfo fcinfo)
{
	static bool watched = false;
	Oid			oid = fcinfo->flinfo->fn_oid;
	KnownFunction *known = &known_functions[oid % KNOWN_FUNCTIONS];
	Oid			nsp;

	if (SHEDLOCK_CACHES && known->oid == oid)
		return known;
	if (!watched)
		CacheRegisterSyscacheCallback(PROCOID, forget_functions, 0);
	watched = true;
	nsp = get_func_namespace(oid);
	known->oid = oid;
	known->nsp = nsp;
	known->typmod = -1;
	return known;
}

/*
 * ShedlockSchema - the schema of the extension: that of the called function
 *
 * So no search_path misleads it.
 */
Oid
ShedlockSchema(FunctionCallInfo fcinfo)
{
	return know_function(fcinfo)->nsp;
}

/*
 * ShedlockRefuseNull - raise an error if a value that must be given is null
 *
 * what: the argument, for the message.  name: that of the lock, or NULL.
 */
void
ShedlockRefuseNull(bool isnull, const char *what, const char *name)
{
	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 name ? errmsg("%s of lock \"%s\" must not be null", what, name) :
				 errmsg("%s must not be null", what)));
}

/*
 * use_name - set *name to a name that a caller gives
 */
static void
use_name(Oid nsp, char *str, ShedlockName *name)
{
	ShedlockMakeName(nsp, str, name);
	ShedlockCheckText(name->str, "lock name");
	ShedlockCheckMayUse(name);
}

/*
 * ShedlockGetName - the argument that names the lock
 */
void
ShedlockGetName(FunctionCallInfo fcinfo, int argno, ShedlockName *name)
{
	ShedlockRefuseNull(PG_ARGISNULL(argno), "lock name", NULL);
	use_name(ShedlockSchema(fcinfo), text_to_cstring(PG_GETARG_TEXT_PP(argno)), name);
}

/*
 * ShedlockGetNames - the names in an array argument, at most max; palloc'd
 */
ShedlockName *
ShedlockGetNames(FunctionCallInfo fcinfo, int argno, int max, int *n)
{
	Oid			nsp = ShedlockSchema(fcinfo);
	ShedlockName *names;
	Datum	   *elems;
	bool	   *nulls;

	ShedlockRefuseNull(PG_ARGISNULL(argno), "lock names", NULL);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(argno), TEXTOID, -1, false, TYPALIGN_INT,
					  &elems, &nulls, n);
	if (*n > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("too many lock names"),
				 max < SHEDLOCK_NAMES_MAX ?
				 errdetail("A call that waits can have at most %d.", max) :
				 errdetail("There can be at most %d.", max)));
	names = palloc((Size) *n * sizeof(ShedlockName));
	for (int i = 0; i < *n; i++)
	{
		ShedlockRefuseNull(nulls[i], "lock name", NULL);
		use_name(nsp, TextDatumGetCString(elems[i]), &names[i]);
	}
	return names;
}

/*
 * ShedlockCheckMayWrite - check that a call may write
 *
 * call: the function, for the server's own messages.
 */
void
ShedlockCheckMayWrite(const char *call)
{
	PreventCommandIfReadOnly(call);
	PreventCommandIfParallelMode(call);
}

/*
 * ShedlockBeginCall - check that a call may write, and read its lock name
 *
 * The name is argument 0.
 */
void
ShedlockBeginCall(FunctionCallInfo fcinfo, const char *call, ShedlockName *name)
{
	ShedlockCheckMayWrite(call);
	ShedlockGetName(fcinfo, 0, name);
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
 * ShedlockGetText - a text argument of at most maxchars characters; NULL if it is null
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
 * ShedlockGetWord - a text argument, or the text that stands for null
 */
char *
ShedlockGetWord(FunctionCallInfo fcinfo, int argno, const char *if_null)
{
	return PG_ARGISNULL(argno) ? pstrdup(if_null) : text_to_cstring(PG_GETARG_TEXT_PP(argno));
}

/*
 * ShedlockFormAnswer - the row that a function with OUT arguments returns
 *
 * values, isnull: of the OUT arguments, in their order.
 */
Datum
ShedlockFormAnswer(FunctionCallInfo fcinfo, Datum *values, bool *isnull)
{
	KnownFunction *known = know_function(fcinfo);
	TupleDesc	tupdesc;
	Datum		answer;

	/* The session keeps the row types that it has numbered. */
	if (known->typmod < 0)
	{
		if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type must be a row type");
		known->typmod = tupdesc->tdtypmod;
		return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, isnull));
	}
	tupdesc = lookup_rowtype_tupdesc(RECORDOID, known->typmod);
	answer = HeapTupleGetDatum(heap_form_tuple(tupdesc, values, isnull));
	ReleaseTupleDesc(tupdesc);
	return answer;
}

/*
 * ShedlockShowTime - set a column of a view to a time, to null for one that not every
 * driver reads
 *
 * Drivers fail at infinity, at times before the year 1 and after 9999 in the session's time
 * zone, and with them all of the answer.
 */
void
ShedlockShowTime(TimestampTz when, Datum *value, bool *isnull)
{
	*value = TimestampTzGetDatum(when);
	*isnull = when < (date2j(1, 1, 2) - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY ||
		when >= (date2j(9999, 12, 31) - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY;
}

/*
 * client_address - the address of the client, as pg_stat_activity shows it
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
 * ShedlockLockedBy - the text for locked_by
 *
 * given: the caller's text, or NULL.  token: at the end, unless it is 0.  A ShedLock
 * client proves its ownership by this text alone, and uses the name of its host, which
 * has no such end.
 */
char *
ShedlockLockedBy(const char *given, int64 token)
{
	StringInfoData buf;

	initStringInfo(&buf);
	if (given)
		appendStringInfoString(&buf, given);
	else
	{
		appendStringInfoString(&buf, application_name && application_name[0] ? application_name :
							   GetUserNameFromId(GetSessionUserId(), false));
		appendStringInfoChar(&buf, '@');
		appendStringInfoString(&buf, client_address());
	}
	if (token != 0)
		appendStringInfo(&buf, " #" INT64_FORMAT, token);
	return buf.data;
}

/*
 * ShedlockMaySee - may the caller know what that role did?
 *
 * By the rule of pg_stat_activity.  InvalidOid: may it know what all roles did?
 */
bool
ShedlockMaySee(Oid role)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		(OidIsValid(role) && has_privs_of_role(GetUserId(), role));
}

/*
 * ShedlockActingRole - the caller's role, for the log; palloc'd
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
 * ShedlockTimeString - a time for messages, in the session's time zone; palloc'd
 */
const char *
ShedlockTimeString(TimestampTz when)
{
	return pstrdup(timestamptz_to_str(when));
}
