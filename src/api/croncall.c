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

#include "api/api.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
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
	{"on_busy", TEXTOID},
	{"schedule", TEXTOID},
	{"time_zone", TEXTOID},
	{"catch_up", TEXTOID},
	{"max_late", INTERVALOID},
	{"attempts", INT4OID},
	{"backoff", INTERVALOID}
};

#define NUM_RUN_ARGS		((int) lengthof(run_args))

enum
{
	ARG_NAME,
	ARG_COMMAND,
	ARG_AT_MOST,
	ARG_AT_LEAST,
	ARG_EVERY,
	ARG_BUSY,
	ARG_SCHEDULE,
	ARG_TIME_ZONE
};

enum
{
	COL_SCHEMA_NAME = NUM_RUN_ARGS,
	COL_SCHEDULED_AT,
	NUM_GUARDED_CALL_COLS
};

/*
 * type_name - how a CALL names the type of an argument, in pg_catalog
 */
static const char *
type_name(Oid type)
{
	return type == INTERVALOID ? "interval" : type == INT4OID ? "int4" : "text";
}

/*
 * interval_text - an interval in a style that every IntervalStyle reads
 */
static char *
interval_text(const Interval *span)
{
	char	   *result = palloc(MAXDATELEN + 1);
	struct pg_itm itm;

	interval2itm(*span, &itm);
	EncodeInterval(&itm, INTSTYLE_POSTGRES, result);
	return result;
}

/*
 * arg_text - an argument of _shedlock_cron_call, as the text of a literal
 *
 * NULL for null.
 */
static const char *
arg_text(FunctionCallInfo fcinfo, int argno)
{
	if (PG_ARGISNULL(argno))
		return NULL;
	switch (run_args[argno].type)
	{
		case INTERVALOID:
			return interval_text(PG_GETARG_INTERVAL_P(argno));
		case INT4OID:
			return psprintf("%d", PG_GETARG_INT32(argno));
		default:
			return text_to_cstring(PG_GETARG_TEXT_PP(argno));
	}
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
	ShedlockName name;
	ShedlockJob job;
	List	   *parsetrees;
	StringInfoData buf;

	ShedlockGetName(fcinfo, ARG_NAME, &name);
	(void) ShedlockGetCommand(fcinfo, ARG_COMMAND, &parsetrees);
	ShedlockCheckTimes(ShedlockGetInterval(fcinfo, ARG_AT_MOST, 0),
					   ShedlockGetInterval(fcinfo, ARG_AT_LEAST, shedlock_default_lock_at_least_for),
					   name.str);
	(void) ShedlockJobOfCall(fcinfo, ARG_EVERY, ARG_SCHEDULE, name.str, &job);

	initStringInfo(&buf);
	appendStringInfo(&buf, "CALL %s.%s(",
					 quote_identifier(get_namespace_name(name.nsp)), RUN_PROCEDURE);
	for (int i = 0; i < NUM_RUN_ARGS; i++)
	{
		const char *value = arg_text(fcinfo, i);

		if (value == NULL && i == ARG_BUSY)
			value = "skip";
		appendStringInfo(&buf, "%s%s => %s::pg_catalog.%s", i > 0 ? ", " : "",
						 run_args[i].name, value ? quote_literal_cstr(value) : "NULL",
						 type_name(run_args[i].type));
	}
	appendStringInfo(&buf, ") %s",
					 scheduled_at_comment(PG_ARGISNULL(NUM_RUN_ARGS) ? GetCurrentTimestamp() :
										  PG_GETARG_TIMESTAMPTZ(NUM_RUN_ARGS)));
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
 * read_constant - value of an argument that is a constant or null
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
			strcmp(strVal(llast(cast->names)), type_name(type)) != 0 ||
			!read_typmod(cast->typmods, &typmod))
			return false;
		expr = ((TypeCast *) expr)->arg;
	}
	con = (A_Const *) expr;
	if (!IsA(con, A_Const))
		return false;
	*isnull = con->isnull;
	if (con->isnull)
		return true;
	if (type == INT4OID && IsA(&con->val, Integer))
		*value = Int32GetDatum(intVal(&con->val));
	else if (!IsA(&con->val, String))
		return false;
	else if (type == INT4OID)
		*value = DirectFunctionCall1(int4in, CStringGetDatum(strVal(&con->val)));
	else if (type == INTERVALOID)
		*value = DirectFunctionCall3(interval_in, CStringGetDatum(strVal(&con->val)),
									 ObjectIdGetDatum(InvalidOid), Int32GetDatum(typmod));
	else
		*value = CStringGetTextDatum(strVal(&con->val));
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
 * read_schedule - the cron expression of a call that has one
 *
 * Returns false if shedlock_run would refuse it.
 */
static bool
read_schedule(const Datum *values, const bool *isnull, ShedlockSchedule *schedule)
{
	return ShedlockParseSchedule(TextDatumGetCString(values[ARG_SCHEDULE]),
								 isnull[ARG_TIME_ZONE] ? "UTC" :
								 TextDatumGetCString(values[ARG_TIME_ZONE]), true, schedule);
}

/*
 * read_args - the arguments of a call of shedlock_run, which are constants
 *
 * Returns false if one is no constant, or the call has others than shedlock_run.
 */
static bool
read_args(const List *args, Datum *values, bool *isnull)
{
	bool		given[NUM_RUN_ARGS] = {false};
	int			position = 0;
	ListCell   *lc;

	foreach(lc, args)
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

		/* Views compute with values that shedlock_run would accept. */
		if (run_args[i].type == INTERVALOID && !isnull[i])
			ShedlockCheckDuration(DatumGetIntervalP(values[i]), run_args[i].name, NULL,
								  true, 0, NULL);

		/* Messages show these; a schedule is parsed, and can have blanks. */
		if (run_args[i].type == TEXTOID && i != ARG_COMMAND && i != ARG_SCHEDULE && !isnull[i])
			ShedlockCheckText(TextDatumGetCString(values[i]), run_args[i].name);
	}
	return true;
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
	FuncCall   *call;
	ShedlockName name;
	ShedlockSchedule schedule;
	TimestampTz scheduled_at;
	Node	   *stmt;

	if (list_length(parsetree_list) != 1)
		return false;
	stmt = linitial_node(RawStmt, parsetree_list)->stmt;
	if (!IsA(stmt, CallStmt))
		return false;
	call = ((CallStmt *) stmt)->funccall;
	if (strcmp(strVal(llast(call->funcname)), RUN_PROCEDURE) != 0)
		return false;

	/* The server would refuse a call without a name or command. */
	if (!read_args(call->args, values, isnull) || isnull[ARG_NAME] || isnull[ARG_COMMAND])
		return false;

	ShedlockMakeName(InvalidOid, TextDatumGetCString(values[ARG_NAME]), &name);

	/* Views compute with its schedule, too. */
	if (!isnull[ARG_SCHEDULE] && !read_schedule(values, isnull, &schedule))
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

/*
 * try_guarded_call - as read_guarded_call(), but without errors
 *
 * Returns false for a command that does not parse, too.
 */
static bool
try_guarded_call(const char *command, Datum *values, bool *isnull)
{
	MemoryContext oldcontext = CurrentMemoryContext;
	volatile bool found = false;

	memset(isnull, true, NUM_GUARDED_CALL_COLS * sizeof(bool));

	/*
	 * These errors can be caught without a subtransaction: the grammar and
	 * the input functions take no locks, pins or snapshots and read no
	 * catalogs; they leave only memory.  Running out of memory, a cancel and
	 * the like still end the query.
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
	return found;
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
	Datum		values[NUM_GUARDED_CALL_COLS] = {0};
	bool		isnull[NUM_GUARDED_CALL_COLS];

	if (!try_guarded_call(text_to_cstring(PG_GETARG_TEXT_PP(0)), values, isnull))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(ShedlockFormAnswer(fcinfo, values, isnull));
}

/*
 * next_tick - the next tick of a guarded call; DT_NOEND if it has none
 *
 * A CALL that was written by hand can have a period that shedlock_run refuses.
 */
static TimestampTz
next_tick(const Datum *values, const bool *isnull, TimestampTz now)
{
	ShedlockSchedule schedule = {0};

	if (!isnull[ARG_EVERY])
	{
		schedule.period = ShedlockIntervalMicroseconds(DatumGetIntervalP(values[ARG_EVERY]));
		if (schedule.period == 0)
			return DT_NOEND;
	}
	else if (isnull[ARG_SCHEDULE] || !read_schedule(values, isnull, &schedule))
		return DT_NOEND;
	return ShedlockNextTick(&schedule, now);
}

/*
 * notice_unfired - tell the caller about one job, if pg_cron does not fire it in time
 *
 * The columns of the row: ID, schedule, command.  The message has nothing that the owner of
 * the job has written: it would pass for the extension's own advice.
 */
static void
notice_unfired(const ShedlockName *name, HeapTuple row, TupleDesc desc)
{
	const char *jobid = SPI_getvalue(row, desc, 1);
	TimestampTz now = GetCurrentTimestamp();
	Datum		values[NUM_GUARDED_CALL_COLS] = {0};
	bool		isnull[NUM_GUARDED_CALL_COLS];
	ShedlockSchedule fire;
	TimestampTz fired_at;

	if (!try_guarded_call(SPI_getvalue(row, desc, 3), values, isnull) ||
		strcmp(TextDatumGetCString(values[ARG_NAME]), name->str) != 0 ||
		!ShedlockParseFire(SPI_getvalue(row, desc, 2), &fire))
		return;
	fired_at = ShedlockNextTick(&fire, now);
	if (fired_at < next_tick(values, isnull, now))
		return;
	ereport(NOTICE,
			(errmsg("pg_cron does not fire job %s before %s", jobid, ShedlockTimeString(fired_at)),
			 errdetail("Its next tick has come by then."),
			 errhint("To run it now, read its command, and execute it as its role: SELECT username, command FROM cron.job WHERE jobid = %s;",
					 jobid)));
}

/*
 * ShedlockNoticeUnfired - name each job of a lock that pg_cron does not fire before its
 * next tick, with the query for the CALL to run it by hand
 *
 * Looks only at what the caller can read in cron.job.
 */
void
ShedlockNoticeUnfired(const ShedlockName *name)
{
	if (!ShedlockReadsCron())
		return;
	SPI_connect();
	if (SPI_execute("SELECT j.jobid, j.schedule, j.command FROM cron.job j "
					"WHERE j.active AND j.database OPERATOR(pg_catalog.=) pg_catalog.current_database() "
					"ORDER BY j.jobid", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read cron.job");
	for (uint64 i = 0; i < SPI_processed; i++)
		notice_unfired(name, SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
	SPI_finish();
}
