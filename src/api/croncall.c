/*-------------------------------------------------------------------------
 *
 * croncall.c
 *	  Writes the CALL of a guarded pg_cron job, and reads it back.
 *
 * pg_cron stores nothing about a job but its command, so the CALL itself stores
 * the name of the lock, the durations and the original command: a table of the
 * extension's own would contradict it as soon as a job is changed by cron.schedule
 * or restored without it.  The server's own grammar reads it, because only that
 * finds what the server would run, however the CALL is written.  Later versions
 * read stored CALLs in the same way to rewrite them for other arguments.
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

#define RUN_PROCEDURE		"shedlock_run"

/* The comment at the end of the command of a guarded job, in UTC */
#define SCHEDULED_AT		"/* scheduled at %04d-%02d-%02d %02d:%02d:%02d+00 */"
#define SCHEDULED_AT_LEN	(sizeof("/* scheduled at 9999-99-99 99:99:99+00 */") - 1)

/* Arguments of shedlock_run: the first columns of _shedlock_guarded_call */
static const struct
{
	const char *name;
	Oid			type;
}			run_args[] = {
	{"name", TEXTOID},
	{"command", TEXTOID},
	{"lock_at_most_for", INTERVALOID},
	{"lock_at_least_for", INTERVALOID},
	{"once_every", INTERVALOID},
	{"on_busy", TEXTOID}
};

#define NUM_RUN_ARGS		((int) lengthof(run_args))

enum
{
	COL_SCHEMA_NAME = NUM_RUN_ARGS,
	COL_SCHEDULED_AT,
	NUM_GUARDED_CALL_COLS
};

/*
 * interval_text - an interval in a style that every IntervalStyle reads
 *
 * NULL for NULL.
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
 * scheduled_at_comment - the comment for a time; "" if four digits cannot say it
 */
static const char *
scheduled_at_comment(TimestampTz when)
{
	struct pg_tm tm;
	fsec_t		fsec;

	if (timestamp2tm(when, NULL, &tm, &fsec, NULL, NULL) != 0 ||
		tm.tm_year < 1 || tm.tm_year > 9999)
		return "";
	return psprintf(SCHEDULED_AT, tm.tm_year, tm.tm_mon, tm.tm_mday,
					tm.tm_hour, tm.tm_min, tm.tm_sec);
}

PG_FUNCTION_INFO_V1(_shedlock_cron_call);
/*
 * _shedlock_cron_call - the command of a guarded job
 *
 * Arguments: those of shedlock_run, and the time of the scheduling, NULL for now.
 * Raises the errors that shedlock_run would raise before it runs the command.
 *
 * A role that may create objects in the schema can make procedures of the same
 * name.  The server calls none of those, because all arguments are given and cast:
 * it prefers an exact match, and reports the call as ambiguous rather than fill in
 * defaults.  The literals do not depend on the settings of the session that runs
 * the CALL.
 */
Datum
_shedlock_cron_call(PG_FUNCTION_ARGS)
{
	Interval   *at_most = ShedlockGetInterval(fcinfo, 2, 0);
	Interval   *at_least = ShedlockGetInterval(fcinfo, 3, 0);
	Interval   *every = ShedlockGetInterval(fcinfo, 4, 0);
	const char *values[NUM_RUN_ARGS];
	ShedlockName name;
	ShedlockSchedule schedule;
	List	   *parsetrees;
	StringInfoData buf;

	ShedlockGetName(fcinfo, 0, &name);
	values[0] = name.str;
	values[1] = ShedlockGetCommand(fcinfo, 1, &parsetrees);
	ShedlockCheckTimes(at_most,
					   ShedlockGetInterval(fcinfo, 3, shedlock_default_lock_at_least_for),
					   name.str);
	if (every)
		ShedlockPeriodSchedule(every, name.str, &schedule);
	values[2] = interval_text(at_most);
	values[3] = interval_text(at_least);
	values[4] = interval_text(every);
	values[5] = PG_ARGISNULL(5) ? "skip" : text_to_cstring(PG_GETARG_TEXT_PP(5));

	initStringInfo(&buf);
	appendStringInfo(&buf, "CALL %s.%s(",
					 quote_identifier(get_namespace_name(name.nsp)), RUN_PROCEDURE);
	for (int i = 0; i < NUM_RUN_ARGS; i++)
		appendStringInfo(&buf, "%s%s => %s::pg_catalog.%s", i > 0 ? ", " : "",
						 run_args[i].name, values[i] ? quote_literal_cstr(values[i]) : "NULL",
						 run_args[i].type == INTERVALOID ? "interval" : "text");
	appendStringInfo(&buf, ") %s",
					 scheduled_at_comment(PG_ARGISNULL(6) ? GetCurrentTimestamp() :
										  PG_GETARG_TIMESTAMPTZ(6)));
	PG_RETURN_TEXT_P(cstring_to_text_with_len(buf.data, buf.len));
}

/*
 * read_typmod - the type modifier of an interval, of INTERVAL '90' MINUTE and such
 *
 * Returns false if the server would refuse it.
 */
static bool
read_typmod(List *typmods, int32 *typmod)
{
	Datum		fields[2];
	int			n = 0;
	ListCell   *lc;

	foreach(lc, typmods)
	{
		A_Const    *con = lfirst(lc);

		if (n == lengthof(fields) || !IsA(con, A_Const) || !IsA(&con->val, Integer))
			return false;
		fields[n++] = CStringGetDatum(psprintf("%d", intVal(&con->val)));
	}
	*typmod = n == 0 ? -1 :
		DatumGetInt32(DirectFunctionCall1(intervaltypmodin,
										  PointerGetDatum(construct_array(fields, n, CSTRINGOID,
																		  -2, false, TYPALIGN_CHAR))));
	return true;
}

/*
 * read_constant - value of an argument that is a string constant or null
 *
 * Returns false if it is anything else.
 */
static bool
read_constant(Node *expr, Oid type, Datum *value, bool *isnull)
{
	int32		typmod = -1;
	A_Const    *con;

	if (IsA(expr, TypeCast))
	{
		TypeName   *cast = ((TypeCast *) expr)->typeName;

		if (cast->setof || cast->pct_type || cast->arrayBounds != NIL ||
			strcmp(strVal(llast(cast->names)), type == INTERVALOID ? "interval" : "text") != 0 ||
			!read_typmod(cast->typmods, &typmod))
			return false;
		expr = ((TypeCast *) expr)->arg;
	}
	con = (A_Const *) expr;
	if (!IsA(con, A_Const) || !(con->isnull || IsA(&con->val, String)))
		return false;
	*isnull = con->isnull;
	if (!*isnull)
		*value = type != INTERVALOID ? CStringGetTextDatum(strVal(&con->val)) :
			DirectFunctionCall3(interval_in, CStringGetDatum(strVal(&con->val)),
								ObjectIdGetDatum(InvalidOid), Int32GetDatum(typmod));
	return true;
}

/*
 * read_scheduled_at - the time at the end of the command of a guarded job
 *
 * Returns false if there is none, or none that _shedlock_cron_call writes.
 */
static bool
read_scheduled_at(const char *command, TimestampTz *result)
{
	size_t		len = strlen(command);
	const char *comment = command + len - SCHEDULED_AT_LEN;
	struct pg_tm tm = {0};

	return len >= SCHEDULED_AT_LEN &&
		sscanf(comment, SCHEDULED_AT, &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
			   &tm.tm_hour, &tm.tm_min, &tm.tm_sec) == 6 &&
		tm2timestamp(&tm, 0, NULL, result) == 0 &&
		strcmp(comment, scheduled_at_comment(*result)) == 0;
}

/*
 * read_guarded_call - arguments of a command that is nothing but a guarded call
 *
 * Returns false if it is anything else.  Accepts any schema, because a job of
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
				if (strcmp(((NamedArgExpr *) arg)->name, run_args[i].name) == 0)
					break;
			arg = (Node *) ((NamedArgExpr *) arg)->arg;
		}
		else
			position++;
		if (i >= NUM_RUN_ARGS || given[i] ||
			!read_constant(arg, run_args[i].type, &values[i], &isnull[i]))
			return false;
		given[i] = true;

		/* Views compute with durations that the server would accept. */
		if (run_args[i].type == INTERVALOID && !isnull[i])
			ShedlockCheckDuration(DatumGetIntervalP(values[i]), run_args[i].name, NULL,
								  true, 0, NULL);
	}

	/* The server would refuse a call without a name or command. */
	if (isnull[0] || isnull[1])
		return false;
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

PG_FUNCTION_INFO_V1(_shedlock_guarded_call);
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

	memset(isnull, true, sizeof(isnull));

	/*
	 * These errors can be caught without a subtransaction: the grammar and
	 * the input function of interval take no locks, pins or snapshots and
	 * read no catalogs; they leave only memory.  Running out of memory, a
	 * cancel and the like still end the query.
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
