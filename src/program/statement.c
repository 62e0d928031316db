/*-------------------------------------------------------------------------
 *
 * statement.c
 *	  The statements that the program sends.
 *
 * Each is allocated.  Whatever search_path says, they call functions of pg_catalog and of the
 * extension.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "program/server.h"

/*
 * BeginStatement - begin to write a statement
 */
void
BeginStatement(Statement *statement)
{
	statement->stream = open_memstream(&statement->string, &statement->length);

	if (statement->stream == NULL)
		Die(EXIT_NO_RESOURCES, "out of memory");
}

/*
 * EndStatement - the statement that was written
 */
char *
EndStatement(Statement *statement)
{
	if (fclose(statement->stream) != 0)
		Die(EXIT_NO_RESOURCES, "out of memory");
	return statement->string;
}

/*
 * AddLiteral - add a string constant
 */
void
AddLiteral(Statement *statement, Server *server, const char *value)
{
	char	   *literal = PQescapeLiteral(server->conn, value, strlen(value));

	if (literal == NULL)
	{
		ComplainOfConnection(server, 0);
		exit(EXIT_USAGE);
	}
	fputs(literal, statement->stream);
	PQfreemem(literal);
}

/*
 * add_argument - add a named argument, if it is given
 */
static void
add_argument(Statement *statement, Server *server, const char *name, const char *value)
{
	if (value == NULL)
		return;
	fprintf(statement->stream, ", %s => ", name);
	AddLiteral(statement, server, value);
}

/*
 * add_printable - add a named argument that people read; any bytes will do
 */
static void
add_printable(Statement *statement, Server *server, const char *name, const char *value)
{
	char	   *printable = value ? PrintableText(value, !TakesUnicode(server)) : NULL;

	add_argument(statement, server, name, printable);
	free(printable);
}

/*
 * add_duration - add a named argument in microseconds
 */
static void
add_duration(Statement *statement, const char *name, Usec duration)
{
	fprintf(statement->stream, ", %s => '%lld microseconds'", name, (long long) duration);
}

/*
 * begin_call - begin a call of a function of the extension, with the name of the job
 */
static void
begin_call(Statement *statement, Server *server, const char *function)
{
	fprintf(statement->stream, "%s.%s(name => ", server->schema, function);
	AddLiteral(statement, server, server->options->name);
}

/*
 * add_time_until - add an expression: in how many microseconds of the server's clock that is
 */
static void
add_time_until(Statement *statement, const char *when)
{
	fprintf(statement->stream,
			"(pg_catalog.date_part('epoch', %s OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp())"
			" OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8", when);
}

/*
 * add_lease - add an expression: how much longer the lock is held, and whether that is less than
 * was asked for
 *
 * answer: what the call of the statement that has written that returns.  It makes the expression
 * depend on the call, so that it is computed afterwards.
 */
static void
add_lease(Statement *statement, Server *server, Usec length, const char *token, const char *answer)
{
	fputs("(SELECT pg_catalog.concat_ws(' ', ", statement->stream);
	add_time_until(statement, "l.lock_until");
	fprintf(statement->stream,
			", l.lock_until OPERATOR(pg_catalog.<) (pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+)"
			" '%lld microseconds'::pg_catalog.interval)) FROM ",
			(long long) length);
	begin_call(statement, server, "_shedlock_lock_until");
	fprintf(statement->stream, ", token => %s) l(lock_until) WHERE %s IS NOT NULL)", token, answer);
}

/*
 * StatementOfJob - the statement that declares the job
 */
char *
StatementOfJob(Server *server)
{
	const Options *options = server->options;
	Statement	statement;

	BeginStatement(&statement);
	fputs("SELECT ", statement.stream);
	begin_call(&statement, server, "shedlock_job");
	add_argument(&statement, server, "schedule", options->schedule);
	add_argument(&statement, server, "time_zone", options->time_zone);
	add_argument(&statement, server, "attempts", options->attempts);
	add_argument(&statement, server, "backoff", options->backoff);
	add_argument(&statement, server, "catch_up", options->catch_up);
	add_argument(&statement, server, "max_late", options->max_late);
	add_argument(&statement, server, "overdue_after", options->overdue_after);
	add_argument(&statement, server, "slow_after", options->slow_after);
	if (options->at_most != NEVER)
		add_duration(&statement, "lock_at_most_for", options->at_most);
	add_printable(&statement, server, "description", options->job_description);
	fputs(")", statement.stream);
	return EndStatement(&statement);
}

/*
 * StatementOfBegin - the statement that begins the run; BEGIN_COLUMNS are what it asks for
 */
char *
StatementOfBegin(Server *server, Usec wait)
{
	const Options *options = server->options;
	Statement	statement;

	BeginStatement(&statement);
	fputs("SELECT b.token, b.attempt, b.reason, "
		  "pg_catalog.to_char(pg_catalog.timezone('UTC', b.tick), 'YYYY-MM-DD\"T\"HH24:MI:SS.US'), "
		  SESSION ", b.state, ", statement.stream);
	add_time_until(&statement, "b.next_at");
	fputs(", ", statement.stream);
	add_lease(&statement, server, options->lease.length, "b.token", "b.token");
	fputs(" FROM ", statement.stream);
	begin_call(&statement, server, "shedlock_run_begin");
	add_duration(&statement, "lease", options->lease.length);
	add_argument(&statement, server, "lock_at_least_for", options->at_least);
	if (wait > 0)
		add_duration(&statement, "wait", wait);
	add_printable(&statement, server, "locked_by", options->locked_by);
	add_printable(&statement, server, "description", options->description);
	add_argument(&statement, server, "request", server->request);
	fputs(") b", statement.stream);
	return EndStatement(&statement);
}

/*
 * StatementOfExtend - the statement that extends the lease, and asks how long it lasts
 */
char *
StatementOfExtend(Server *server, const Run *run)
{
	Statement	statement;
	char		token[32];

	(void) snprintf(token, sizeof(token), "%lld", (long long) run->token);
	BeginStatement(&statement);
	fputs("SELECT e.extended, " SESSION ", ", statement.stream);
	add_lease(&statement, server, run->lease.length, token, "e.extended");
	fputs(" FROM ", statement.stream);
	begin_call(&statement, server, "shedlock_extend");
	fprintf(statement.stream, ", token => %lld", (long long) run->token);
	add_duration(&statement, "lock_at_most_for", run->lease.length);
	fputs(") e(extended)", statement.stream);
	return EndStatement(&statement);
}

/*
 * StatementOfEnd - the statement that ends the run
 *
 * message: or NULL.  exit_code: of the command, or -1.
 */
char *
StatementOfEnd(Server *server, const Run *run, const char *outcome, const char *message, int exit_code)
{
	Statement	statement;

	BeginStatement(&statement);
	fputs("SELECT ", statement.stream);
	begin_call(&statement, server, "shedlock_run_end");
	fprintf(statement.stream, ", token => %lld", (long long) run->token);
	add_argument(&statement, server, "outcome", outcome);
	add_argument(&statement, server, "message", message);
	if (exit_code >= 0)
		fprintf(statement.stream, ", exit_code => %d", exit_code);
	fputs("), " SESSION, statement.stream);
	return EndStatement(&statement);
}
