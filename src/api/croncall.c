/*-------------------------------------------------------------------------
 *
 * croncall.c
 *	  Writes the CALL of a guarded pg_cron job, and reads it back.
 *
 * pg_cron stores nothing about a job but its command, so the CALL stores the name of the job
 * and the original command: a table of the extension's own would contradict it as soon as a
 * job is changed by cron.schedule or restored without it.  The server's own grammar reads it,
 * because only that finds what the server would run, however the CALL is written.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/api.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#define RUN_PROCEDURE		"shedlock_run"

/* The arguments of shedlock_run that a guarded CALL has; it may have others, too. */
static const char *const call_args[] = {"name", "command"};

#define NUM_CALL_ARGS		((int) lengthof(call_args))

/*
 * constant_of - the text of an argument that is a constant; NULL if it is anything else, or null
 */
static char *
constant_of(Node *expr)
{
	A_Const    *con;

	if (IsA(expr, TypeCast))
	{
		TypeName   *cast = ((TypeCast *) expr)->typeName;

		if (cast->setof || cast->pct_type || cast->arrayBounds != NIL || cast->typmods != NIL ||
			strcmp(strVal(llast(cast->names)), "text") != 0)
			return NULL;
		expr = ((TypeCast *) expr)->arg;
	}
	con = (A_Const *) expr;
	return IsA(con, A_Const) && !con->isnull && IsA(&con->val, String) ? strVal(&con->val) : NULL;
}

/*
 * read_args - the name and the command of a call of shedlock_run
 *
 * Returns false if one of them is no constant.  All others may be what they like.
 */
static bool
read_args(const List *args, ShedlockGuardedCall *call)
{
	char	  **values[] = {&call->name, &call->command};
	int			position = 0;
	ListCell   *lc;

	foreach(lc, args)
	{
		Node	   *arg = lfirst(lc);
		int			i = position;

		if (IsA(arg, NamedArgExpr))
		{
			for (i = 0; i < NUM_CALL_ARGS; i++)
				if (strcmp(((NamedArgExpr *) arg)->name, call_args[i]) == 0)
					break;
			arg = (Node *) ((NamedArgExpr *) arg)->arg;
		}
		else
			position++;
		if (i >= NUM_CALL_ARGS)
			call->has_more_args = true;
		else if (*values[i] || (*values[i] = constant_of(arg)) == NULL)
			return false;
	}
	return call->name && call->command;
}

/*
 * read_guarded_call - read a command that is nothing but a guarded call
 *
 * Returns false if it is anything else.  Accepts any schema, because a job of
 * another database has the extension in a schema of that database.
 */
static bool
read_guarded_call(const char *command, ShedlockGuardedCall *result)
{
	List	   *parsetree_list = raw_parser(command, RAW_PARSE_DEFAULT);
	FuncCall   *call;
	ShedlockName name;
	Node	   *stmt;

	if (list_length(parsetree_list) != 1)
		return false;
	stmt = linitial_node(RawStmt, parsetree_list)->stmt;
	if (!IsA(stmt, CallStmt))
		return false;
	call = ((CallStmt *) stmt)->funccall;
	if (strcmp(strVal(llast(call->funcname)), RUN_PROCEDURE) != 0 || !read_args(call->args, result))
		return false;
	ShedlockMakeName(InvalidOid, result->name, &name);
	ShedlockCheckText(result->name, "name");
	if (list_length(call->funcname) > 1)
		result->schema = strVal(list_nth(call->funcname, list_length(call->funcname) - 2));
	return true;
}

/*
 * ShedlockReadGuardedCall - as read_guarded_call(), but without errors
 *
 * Returns false for a command that does not parse, too.
 */
bool
ShedlockReadGuardedCall(const char *command, ShedlockGuardedCall *call)
{
	MemoryContext oldcontext = CurrentMemoryContext;
	volatile bool found = false;

	memset(call, 0, sizeof(*call));

	/*
	 * These errors can be caught without a subtransaction: the grammar and
	 * the check of a name take no locks, pins or snapshots and read no
	 * catalogs; they leave only memory.  Running out of memory, a cancel and
	 * the like still end the query.
	 */
	PG_TRY();
	{
		found = read_guarded_call(command, call);
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

/*
 * keep_call - the CALL that a job has, with the schema of the extension; NULL if it has none
 *
 * So the other arguments of one that was written by hand stay, unless it names another schema in
 * a way of its own.
 */
static char *
keep_call(const ShedlockName *name, char *command)
{
	char	   *schema = get_namespace_name(name->nsp);
	ShedlockGuardedCall call;
	char	   *begin;

	if (!ShedlockReadGuardedCall(command, &call) || strcmp(call.name, name->str) != 0)
		return NULL;
	if (call.schema == NULL || strcmp(call.schema, schema) == 0)
		return command;
	begin = psprintf("CALL %s.%s(", quote_identifier(call.schema), RUN_PROCEDURE);
	if (strncmp(command, begin, strlen(begin)) != 0)
		return NULL;
	return psprintf("CALL %s.%s(%s", quote_identifier(schema), RUN_PROCEDURE, command + strlen(begin));
}

PG_FUNCTION_INFO_V1(_shedlock_cron_call);
/*
 * _shedlock_cron_call(name, command, old_call) - the command of a guarded job
 *
 * old_call: the one so far, or null.  Raises the errors that shedlock_run would raise before it
 * runs the command.
 *
 * A role that may create objects in the schema can make procedures of the same name.  The
 * server calls none of those.  Both arguments are cast to the types of shedlock_run, so that no
 * other procedure is a better match, and of two that match alike, by default arguments or in
 * another order, the server calls neither: it reports the call as not unique.  The literals do
 * not depend on the settings of the session that runs the CALL.
 */
Datum
_shedlock_cron_call(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	char	   *command;
	char	   *call = NULL;
	List	   *parsetrees;

	ShedlockGetName(fcinfo, 0, &name);
	command = ShedlockGetCommand(fcinfo, 1, &parsetrees);
	if (!PG_ARGISNULL(2))
		call = keep_call(&name, text_to_cstring(PG_GETARG_TEXT_PP(2)));
	if (call == NULL)
		call = psprintf("CALL %s.%s(%s => %s::pg_catalog.text, %s => %s::pg_catalog.text)",
						quote_identifier(get_namespace_name(name.nsp)), RUN_PROCEDURE,
						call_args[0], quote_literal_cstr(name.str),
						call_args[1], quote_literal_cstr(command));
	PG_RETURN_TEXT_P(cstring_to_text(call));
}

PG_FUNCTION_INFO_V1(_shedlock_guarded_call);
/*
 * _shedlock_guarded_call - the name, command and schema of a CALL shedlock_run
 *
 * Returns null for every command that is not one with constants, also for one that does not
 * parse.
 */
Datum
_shedlock_guarded_call(PG_FUNCTION_ARGS)
{
	ShedlockGuardedCall call;
	Datum		values[3] = {0};
	bool		isnull[3] = {false};

	if (!ShedlockReadGuardedCall(text_to_cstring(PG_GETARG_TEXT_PP(0)), &call))
		PG_RETURN_NULL();
	values[0] = CStringGetTextDatum(call.name);
	values[1] = CStringGetTextDatum(call.command);
	isnull[2] = call.schema == NULL;
	if (call.schema)
		values[2] = CStringGetTextDatum(call.schema);
	PG_RETURN_DATUM(ShedlockFormAnswer(fcinfo, values, isnull));
}
