/*-------------------------------------------------------------------------
 *
 * croncall.c
 *	  The CALL of a guarded pg_cron job: how it is written and read back.
 *
 * pg_cron keeps nothing about a job but its command, so the CALL itself is
 * where the name of the lock, the durations and the original command of a
 * guarded job are kept.  It is read with the server's own grammar: whatever
 * quoting the CALL was written with, what comes out is what the server would
 * have run.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "job/job.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(_shedlock_cron_call);
PG_FUNCTION_INFO_V1(_shedlock_guarded_call);

#define RUN_PROCEDURE		"shedlock_run"

/* The time that ends the command of a guarded job; each 9 stands for a digit. */
#define SCHEDULED_AT		"/* scheduled at 9999-99-99 99:99:99+00 */"
#define SCHEDULED_AT_DIGITS 16	/* where they begin */

/*
 * Arguments of shedlock_run, which are the first columns of
 * _shedlock_guarded_call.
 */
#define NUM_RUN_ARGS		6
#define NUM_RUN_TEXT_ARGS	2	/* required ones, at the front */

enum
{
	COL_SCHEMA_NAME = NUM_RUN_ARGS,
	COL_SCHEDULED_AT,
	NUM_GUARDED_CALL_COLS
};

static const char *const run_arg_names[NUM_RUN_ARGS] = {
	"name", "command", "lock_at_most_for", "lock_at_least_for", "once_every", "on_busy"
};

static const Oid run_arg_types[NUM_RUN_ARGS] = {
	TEXTOID, TEXTOID, INTERVALOID, INTERVALOID, INTERVALOID, TEXTOID
};

/*
 * append_argument - "NAME => VALUE::pg_catalog.TYPE" to the text of a CALL
 *
 * value NULL: null.  The literals mean the same whatever the session that runs
 * the CALL has for standard_conforming_strings and IntervalStyle.
 */
static void
append_argument(StringInfo buf, int argno, const char *value)
{
	appendStringInfo(buf, "%s%s => %s::pg_catalog.%s", argno > 0 ? ", " : "",
					 run_arg_names[argno], value ? quote_literal_cstr(value) : "NULL",
					 run_arg_types[argno] == INTERVALOID ? "interval" : "text");
}

/*
 * interval_text - an interval in a style that every IntervalStyle reads; NULL
 * for NULL
 */
static char *
interval_text(const Interval *span)
{
	struct pg_itm itm;
	char	   *result;

	if (span == NULL)
		return NULL;
	result = palloc(MAXDATELEN + 1);
	interval2itm(*span, &itm);
	EncodeInterval(&itm, INTSTYLE_POSTGRES, result);
	return result;
}

/*
 * _shedlock_cron_call - the command of a guarded job
 *
 * Arguments are those of shedlock_run and the time of the scheduling, NULL for
 * now.  Raises the errors that shedlock_run would raise before it runs the
 * command.
 *
 * A role that may create objects in the schema can make procedures of the same
 * name.  With all arguments given, each cast to its type, the server takes none
 * of those: it prefers an exact match, and finds the call ambiguous rather than
 * fill in defaults.
 */
Datum
_shedlock_cron_call(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	char	   *command;
	Interval   *at_most = ShedlockGetInterval(fcinfo, 2, 0);
	Interval   *at_least = ShedlockGetInterval(fcinfo, 3, 0);
	Interval   *every = ShedlockGetInterval(fcinfo, 4, 0);
	char	   *on_busy = PG_ARGISNULL(5) ? "skip" : text_to_cstring(PG_GETARG_TEXT_PP(5));
	TimestampTz scheduled_at = PG_ARGISNULL(6) ? GetCurrentTimestamp() : PG_GETARG_TIMESTAMPTZ(6);
	ErrorContextCallback errcallback;
	List	   *parsetree_list;
	struct pg_tm tm;
	fsec_t		fsec;
	StringInfoData buf;

	ShedlockGetName(fcinfo, 0, &name);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("command must not be null")));
	command = text_to_cstring(PG_GETARG_TEXT_PP(1));

	ShedlockPushCommand(&errcallback, command);
	parsetree_list = raw_parser(command, RAW_PARSE_DEFAULT);
	error_context_stack = errcallback.previous;

	ShedlockCheckCommand(parsetree_list);

	ShedlockCheckTimes(at_most,
					   ShedlockGetInterval(fcinfo, 3, shedlock_default_lock_at_least_for),
					   name.str);
	if (every)
		(void) ShedlockCurrentTick(every, name.str);

	initStringInfo(&buf);
	appendStringInfo(&buf, "CALL %s.%s(",
					 quote_identifier(get_namespace_name(name.nsp)), RUN_PROCEDURE);
	append_argument(&buf, 0, name.str);
	append_argument(&buf, 1, command);
	append_argument(&buf, 2, interval_text(at_most));
	append_argument(&buf, 3, interval_text(at_least));
	append_argument(&buf, 4, interval_text(every));
	append_argument(&buf, 5, on_busy);
	appendStringInfoChar(&buf, ')');

	/* only what four digits can say is read back */
	if (timestamp2tm(scheduled_at, NULL, &tm, &fsec, NULL, NULL) == 0 &&
		tm.tm_year > 0 && tm.tm_year <= 9999)
		appendStringInfo(&buf, " %.*s%04d-%02d-%02d %02d:%02d:%02d+00 */",
						 SCHEDULED_AT_DIGITS, SCHEDULED_AT, tm.tm_year, tm.tm_mon,
						 tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(buf.data, buf.len));
}

/*
 * interval_typmod - type modifier of an interval as the grammar gives it
 *
 * typmods: of INTERVAL '90' MINUTE and the like.
 */
static int32
interval_typmod(List *typmods)
{
	Datum		fields[2];
	int			n = 0;
	ListCell   *lc;

	if (typmods == NIL)
		return -1;
	if (list_length(typmods) > 2)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid INTERVAL type modifier")));
	foreach(lc, typmods)
	{
		A_Const    *con = lfirst(lc);

		if (!IsA(con, A_Const) || con->isnull || !IsA(&con->val, Integer))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid INTERVAL type modifier")));
		fields[n++] = CStringGetDatum(psprintf("%d", intVal(&con->val)));
	}
	return DatumGetInt32(DirectFunctionCall1(intervaltypmodin,
											 PointerGetDatum(construct_array(fields, n, CSTRINGOID,
																			 -2, false, TYPALIGN_CHAR))));
}

/*
 * read_constant - value of an argument that is a string constant or null
 *
 * Returns false if it is anything else.
 */
static bool
read_constant(Node *expr, Oid type, Datum *value, bool *isnull)
{
	List	   *typmods = NIL;
	A_Const    *con;

	if (IsA(expr, TypeCast))
	{
		TypeName   *cast = ((TypeCast *) expr)->typeName;
		const char *castname = strVal(llast(cast->names));

		if (cast->setof || cast->pct_type || cast->arrayBounds != NIL)
			return false;
		if (strcmp(castname, type == INTERVALOID ? "interval" : "text") != 0)
			return false;
		typmods = cast->typmods;
		expr = ((TypeCast *) expr)->arg;
	}
	if (!IsA(expr, A_Const))
		return false;
	con = (A_Const *) expr;
	if (con->isnull)
	{
		*isnull = true;
		return true;
	}
	if (!IsA(&con->val, String))
		return false;

	*isnull = false;
	if (type == INTERVALOID)
		*value = DirectFunctionCall3(interval_in,
									 CStringGetDatum(strVal(&con->val)),
									 ObjectIdGetDatum(InvalidOid),
									 Int32GetDatum(interval_typmod(typmods)));
	else
		*value = CStringGetTextDatum(strVal(&con->val));
	return true;
}

/*
 * read_scheduled_at - the time at the end of the command of a guarded job
 *
 * Returns false if there is none, or no time that _shedlock_cron_call writes.
 */
static bool
read_scheduled_at(const char *command, TimestampTz *result)
{
	size_t		len = strlen(command);
	const char *comment = command + len - strlen(SCHEDULED_AT);
	struct pg_tm tm = {0};
	struct pg_tm date;

	if (len < strlen(SCHEDULED_AT))
		return false;
	for (int i = 0; SCHEDULED_AT[i] != '\0'; i++)
		if (SCHEDULED_AT[i] == '9' ? !isdigit((unsigned char) comment[i]) :
			comment[i] != SCHEDULED_AT[i])
			return false;

	if (sscanf(comment + SCHEDULED_AT_DIGITS, "%4d-%2d-%2d %2d:%2d:%2d", &tm.tm_year,
			   &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec) != 6 ||
		tm.tm_year < 1 || tm.tm_mon < 1 || tm.tm_mon > MONTHS_PER_YEAR ||
		tm.tm_hour >= HOURS_PER_DAY || tm.tm_min >= MINS_PER_HOUR || tm.tm_sec >= SECS_PER_MINUTE)
		return false;
	j2date(date2j(tm.tm_year, tm.tm_mon, tm.tm_mday), &date.tm_year, &date.tm_mon, &date.tm_mday);
	return date.tm_mon == tm.tm_mon && date.tm_mday == tm.tm_mday &&
		tm2timestamp(&tm, 0, NULL, result) == 0;
}

/*
 * read_guarded_call - arguments of a command that is nothing but a guarded call
 *
 * Returns false if it is anything else, whatever schema it names: a job of
 * another database has the extension in a schema of that database.
 */
static bool
read_guarded_call(const char *command, Datum *values, bool *isnull)
{
	List	   *parsetree_list = raw_parser(command, RAW_PARSE_DEFAULT);
	bool		given[NUM_RUN_ARGS] = {false};
	int			position = 0;
	FuncCall   *call;
	TimestampTz scheduled_at;
	Node	   *stmt;
	ListCell   *lc;

	if (list_length(parsetree_list) != 1)
		return false;
	stmt = linitial_node(RawStmt, parsetree_list)->stmt;
	if (!IsA(stmt, CallStmt))
		return false;
	call = ((CallStmt *) stmt)->funccall;
	if (strcmp(strVal(llast(call->funcname)), RUN_PROCEDURE) != 0)
		return false;

	foreach(lc, call->args)
	{
		Node	   *arg = lfirst(lc);
		int			i = position;

		if (IsA(arg, NamedArgExpr))
		{
			for (i = 0; i < NUM_RUN_ARGS; i++)
				if (strcmp(((NamedArgExpr *) arg)->name, run_arg_names[i]) == 0)
					break;
			arg = (Node *) ((NamedArgExpr *) arg)->arg;
		}
		else
			position++;
		if (i >= NUM_RUN_ARGS || given[i] ||
			!read_constant(arg, run_arg_types[i], &values[i], &isnull[i]))
			return false;
		given[i] = true;
	}

	/* Without these there is no call that the server would run. */
	for (int i = 0; i < NUM_RUN_TEXT_ARGS; i++)
		if (isnull[i])
			return false;

	/* Nor with such durations, and views compute with them. */
	for (int i = 0; i < NUM_RUN_ARGS; i++)
		if (run_arg_types[i] == INTERVALOID && !isnull[i])
			ShedlockCheckDuration(DatumGetIntervalP(values[i]), run_arg_names[i], NULL, true, 0, NULL);

	if (list_length(call->funcname) > 1)
	{
		values[COL_SCHEMA_NAME] =
			CStringGetTextDatum(strVal(list_nth(call->funcname, list_length(call->funcname) - 2)));
		isnull[COL_SCHEMA_NAME] = false;
	}
	if (read_scheduled_at(command, &scheduled_at))
	{
		values[COL_SCHEDULED_AT] = TimestampTzGetDatum(scheduled_at);
		isnull[COL_SCHEDULED_AT] = false;
	}
	return true;
}

/*
 * mentions_run - does the text have the name of shedlock_run anywhere
 *
 * Spares most commands the parser.
 */
static bool
mentions_run(const char *command)
{
	for (const char *p = command; *p; p++)
		if (pg_strncasecmp(p, RUN_PROCEDURE, strlen(RUN_PROCEDURE)) == 0)
			return true;
	return false;
}

/*
 * _shedlock_guarded_call - the arguments of a CALL shedlock_run
 *
 * Returns null for every command that is not one with constant arguments, also
 * for one that does not parse.
 */
Datum
_shedlock_guarded_call(PG_FUNCTION_ARGS)
{
	char	   *command = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Datum		values[NUM_GUARDED_CALL_COLS] = {0};
	bool		isnull[NUM_GUARDED_CALL_COLS];
	MemoryContext oldcontext = CurrentMemoryContext;
	volatile bool found = false;
	TupleDesc	tupdesc;

	if (!mentions_run(command))
		PG_RETURN_NULL();
	memset(isnull, true, sizeof(isnull));

	/*
	 * No subtransaction is needed to go on after these errors: the grammar
	 * and the input function of interval take no locks, pins or snapshots and
	 * read no catalogs; all that they leave is memory.  Out of memory,
	 * cancelled and the like still end the query.
	 */
	PG_TRY();
	{
		found = read_guarded_call(command, values, isnull);
	}
	PG_CATCH();
	{
		switch (ERRCODE_TO_CATEGORY(geterrcode()))
		{
			case ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION:
			case ERRCODE_DATA_EXCEPTION:
			case ERRCODE_FEATURE_NOT_SUPPORTED:
			case ERRCODE_PROGRAM_LIMIT_EXCEEDED:
				break;
			default:
				PG_RE_THROW();
		}
		MemoryContextSwitchTo(oldcontext);
		FlushErrorState();
	}
	PG_END_TRY();

	if (!found)
		PG_RETURN_NULL();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, isnull)));
}
