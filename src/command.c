/*-------------------------------------------------------------------------
 *
 * command.c
 *	  The text of commands: what the guard refuses to run, and how the CALL
 *	  of a guarded pg_cron job is read back.
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
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "shedlock.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(shedlock_check_run);
PG_FUNCTION_INFO_V1(shedlock_guarded_call);
PG_FUNCTION_INFO_V1(shedlock_cron_timezone);

#define RUN_PROCEDURE		"shedlock_run"

/* Arguments of shedlock_run, which are the columns of shedlock_guarded_call. */
#define NUM_RUN_ARGS		6
#define NUM_RUN_TEXT_ARGS	2	/* required ones, at the front */

static const char *const run_arg_names[NUM_RUN_ARGS] = {
	"name", "command", "lock_at_most_for", "lock_at_least_for", "once_every", "on_busy"
};

static const Oid run_arg_types[NUM_RUN_ARGS] = {
	TEXTOID, TEXTOID, INTERVALOID, INTERVALOID, INTERVALOID, TEXTOID
};

/*
 * ShedlockCheckCommand - complain about what a guarded command cannot be
 */
void
ShedlockCheckCommand(List *parsetree_list)
{
	ListCell   *lc;

	if (parsetree_list == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("command is empty")));

	foreach(lc, parsetree_list)
	{
		Node	   *stmt = lfirst_node(RawStmt, lc)->stmt;

		if (IsA(stmt, TransactionStmt))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("%s cannot be used in a guarded command",
							GetCommandTagName(CreateCommandTag(stmt))),
					 errhint("shedlock_run commits the command by itself.  For commits in between, CALL a procedure that commits.")));

		/*
		 * The client of a CALL does not expect to take part in a COPY.
		 * pg_cron's launcher would even wait for ever.
		 */
		if (IsA(stmt, CopyStmt) && ((CopyStmt *) stmt)->filename == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("%s cannot be used in a guarded command",
							((CopyStmt *) stmt)->is_from ? "COPY FROM STDIN" : "COPY TO STDOUT"),
					 errhint("COPY from or to a file or a program on the server can.")));
	}
}

/*
 * ShedlockPositionInCommand - have an error point into the command
 *
 * An error context callback.  Without it the position would be taken for one
 * in the query that called us.
 */
void
ShedlockPositionInCommand(void *arg)
{
	int			pos = geterrposition();

	if (pos > 0)
	{
		errposition(0);
		internalerrposition(pos);
		internalerrquery((const char *) arg);
	}
}

/*
 * shedlock_check_run - raise what shedlock_run would raise before it runs
 */
Datum
shedlock_check_run(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	char	   *command;
	Interval   *at_most = ShedlockGetInterval(fcinfo, 2);
	Interval   *at_least = ShedlockGetInterval(fcinfo, 3);
	Interval   *every = ShedlockGetInterval(fcinfo, 4);
	ErrorContextCallback errcallback;
	List	   *parsetree_list;

	ShedlockGetName(fcinfo, 0, &name);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("command must not be null")));
	command = text_to_cstring(PG_GETARG_TEXT_PP(1));

	errcallback.callback = ShedlockPositionInCommand;
	errcallback.arg = command;
	errcallback.previous = error_context_stack;
	error_context_stack = &errcallback;
	parsetree_list = raw_parser(command, RAW_PARSE_DEFAULT);
	error_context_stack = errcallback.previous;

	ShedlockCheckCommand(parsetree_list);

	if (at_most)
		ShedlockCheckDuration(at_most, "lock_at_most_for", name.str, false);
	if (at_least)
		ShedlockCheckDuration(at_least, "lock_at_least_for", name.str, true);
	else if (shedlock_default_lock_at_least_for > 0)
		at_least = ShedlockIntervalSetting(shedlock_default_lock_at_least_for);
	if (at_most && at_least)
		ShedlockCheckAtLeast(at_least, at_most, name.str);
	if (every)
		(void) ShedlockCurrentTick(every, name.str);

	PG_RETURN_VOID();
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
 * read_guarded_call - arguments of a command that is nothing but a guarded call
 *
 * Returns false if it is anything else.  The schema is not looked at: a job of
 * another database has the extension in a schema of that database.
 */
static bool
read_guarded_call(const char *command, Datum *values, bool *isnull)
{
	List	   *parsetree_list = raw_parser(command, RAW_PARSE_DEFAULT);
	bool		given[NUM_RUN_ARGS] = {false};
	int			position = 0;
	FuncCall   *call;
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
			ShedlockCheckDuration(DatumGetIntervalP(values[i]), run_arg_names[i], NULL, true);
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
 * shedlock_guarded_call - the arguments of a CALL shedlock_run
 *
 * Returns null for every command that is not one with constant arguments, also
 * for one that does not parse.
 */
Datum
shedlock_guarded_call(PG_FUNCTION_ARGS)
{
	char	   *command = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Datum		values[NUM_RUN_ARGS] = {0};
	bool		isnull[NUM_RUN_ARGS];
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

/*
 * shedlock_cron_timezone - time zone of pg_cron's schedules
 *
 * Only superusers may read the setting, yet whoever may see a job sees by its
 * runs what the setting is.
 */
Datum
shedlock_cron_timezone(PG_FUNCTION_ARGS)
{
	const char *zone = GetConfigOption("cron.timezone", true, false);

	PG_RETURN_TEXT_P(cstring_to_text(zone && zone[0] ? zone : "GMT"));
}
