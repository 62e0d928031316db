/*-------------------------------------------------------------------------
 *
 * server.c
 *	  The lock on the server: begins, extends and ends the run.
 *
 * A statement whose answer is lost is sent again, on another connection.  What makes that
 * safe is the request of shedlock_run_begin, and the token.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program/server.h"

/* How long a statement that does not wait for a lock may take, beyond the time it has */
#define PATIENCE			(30 * USEC_PER_SEC)

/* shedlock_run_begin waits that long for a tick that is near. */
#define EARLY_MAX			(30 * USEC_PER_SEC)

/* The longest name of a schema, in quotes; what is longer does not come from PostgreSQL */
#define SCHEMA_MAX			(2 * 4 * 255 + 2)

volatile sig_atomic_t MayEndAtOnce = 0;

/* A statement that is being written */
typedef struct Statement
{
	FILE	   *stream;
	char	   *string;
	size_t		length;
} Statement;

static void
begin_statement(Statement *statement)
{
	statement->stream = open_memstream(&statement->string, &statement->length);

	if (statement->stream == NULL)
		Die(EXIT_NO_RESOURCES, "out of memory");
}

static const char *
end_statement(Statement *statement)
{
	if (fclose(statement->stream) != 0)
		Die(EXIT_NO_RESOURCES, "out of memory");
	return statement->string;
}

/*
 * add_literal - add a string constant; NULL is null
 */
static void
add_literal(Statement *statement, Server *server, const char *value)
{
	char	   *literal = value ? PQescapeLiteral(server->conn, value, strlen(value)) : NULL;

	if (value && literal == NULL)
	{
		ComplainOfConnection(server, 0);
		exit(EXIT_USAGE);
	}
	fputs(literal ? literal : "NULL", statement->stream);
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
	add_literal(statement, server, value);
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
 * statement_of_begin - the statement that begins the run
 *
 * What an older server lacks is named only if the user has asked for it.
 */
static const char *
statement_of_begin(Server *server, Statement *statement, Usec wait)
{
	const Options *options = server->options;

	begin_statement(statement);
	fprintf(statement->stream,
			"SELECT token, attempt, reason, "
			"pg_catalog.to_char(pg_catalog.timezone('UTC', tick), 'YYYY-MM-DD\"T\"HH24:MI:SS.US'), " SESSION " "
			"FROM %s.shedlock_run_begin(name => ", server->schema);
	add_literal(statement, server, options->name);
	add_duration(statement, "lease", options->lease.length);
	add_argument(statement, server, "lock_at_least_for", options->at_least);
	add_argument(statement, server, "once_every", options->once_every);
	add_argument(statement, server, "schedule", options->schedule);
	add_argument(statement, server, "time_zone", options->time_zone);
	add_argument(statement, server, "catch_up", options->catch_up);
	add_argument(statement, server, "max_late", options->max_late);
	add_argument(statement, server, "attempts", options->attempts);
	add_argument(statement, server, "backoff", options->backoff);
	if (wait > 0)
		add_duration(statement, "wait", wait);
	add_printable(statement, server, "locked_by", options->locked_by);
	add_printable(statement, server, "description", options->description);
	add_argument(statement, server, "request", server->request);
	fputs(")", statement->stream);
	return end_statement(statement);
}

/*
 * find_schema - find the extension's schema
 *
 * Returns 0 or the exit status of the program.
 */
static int
find_schema(Server *server)
{
	PGresult   *result;

	if (server->schema)
		return 0;
	result = Ask(server,
				 "SELECT (SELECT pg_catalog.quote_ident(n.nspname) "
				 "FROM pg_catalog.pg_extension e, pg_catalog.pg_namespace n "
				 "WHERE e.extname OPERATOR(pg_catalog.=) 'shedlock' AND n.oid OPERATOR(pg_catalog.=) e.extnamespace)",
				 1, Now() + PATIENCE, true);
	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQgetlength(result, 0, 0) > 0)
		server->schema = strndup(PQgetvalue(result, 0, 0), SCHEMA_MAX);
	else if (ToldToEnd(server))
		Disconnect(server);
	else if (PQresultStatus(result) == PGRES_TUPLES_OK)
		Complain("database \"%s\" has no extension shedlock: CREATE EXTENSION shedlock", PQdb(server->conn));
	else
	{
		if (result)
			ShowError(server, result);
		Disconnect(server);
	}
	PQclear(result);
	return server->schema && server->conn ? 0 : EXIT_NO_SERVER;
}

/*
 * read_number - read a value that is a number from 1 to most; 0 if it is something else
 */
static int64_t
read_number(const PGresult *result, int column, int64_t most)
{
	const char *text = PQgetvalue(result, 0, column);
	char	   *end;
	long long	number = strtoll(text, &end, 10);

	return *end == '\0' && number >= 1 && number < most ? number : 0;
}

/*
 * read_tick - read the tick of the run, and the number of the attempt; false if they are not
 */
static bool
read_tick(const PGresult *result, Run *run)
{
	const char *tick = PQgetvalue(result, 0, 3);
	char	   *end;

	run->attempt = (int) read_number(result, 1, INT_MAX);
	if (run->attempt == 0 || *tick == '\0' || strlen(tick) + sizeof("Z") > sizeof(run->tick))
		return false;

	/* without a fraction of zero */
	end = stpcpy(run->tick, tick);
	while (strchr(run->tick, '.') && (end[-1] == '0' || end[-1] == '.'))
		*--end = '\0';
	(void) strcpy(end, "Z");
	return true;
}

/*
 * read_run - read the answer of shedlock_run_begin
 *
 * Returns 0; EXIT_BUSY, whatever --busy-exit says: that may be 0; or -1 if the answer
 * makes no sense.
 */
static int
read_run(Server *server, const PGresult *result, Run *run)
{

	if (PQgetisnull(result, 0, 0))
	{
		if (server->options->verbose || isatty(STDERR_FILENO))
			Complain("\"%s\" was not run: %s", server->options->name, PQgetvalue(result, 0, 2));
		return EXIT_BUSY;
	}
	NoteSession(server, result, 4);
	run->token = read_number(result, 0, INT64_MAX);
	if (run->token > 0 && (PQgetisnull(result, 0, 1) || read_tick(result, run)))
		return 0;
	memset(run, 0, sizeof(*run));
	ComplainOnce(server, "the server begins a run, but does not say which");
	return -1;
}

/*
 * refused_with - the exit status of the program after the server has refused a statement
 *
 * An SQLSTATE of class 22 is about what the caller has given.
 */
static int
refused_with(const PGresult *result)
{
	return HasClass(result, "22") ? EXIT_USAGE : EXIT_NO_SERVER;
}

/*
 * try_to_begin - one attempt to begin the run
 *
 * Returns -1 to try again, 0, or the exit status of the program.  *uncertain is set if
 * a run may have begun although there is no answer.
 */
static int
try_to_begin(Server *server, Run *run, Usec wait, bool *uncertain)
{
	PGresult   *result;
	Statement	statement;
	Usec		sent;
	int			status;
	bool		connected;

	MayEndAtOnce = 1;
	connected = ConnectServer(server);
	MayEndAtOnce = 0;
	if (!connected)
		return -1;
	status = find_schema(server);
	if (status != 0)
		return server->conn ? status : -1;
	if (ToldToEnd(server))
		return -1;
	(void) statement_of_begin(server, &statement, wait);
	sent = Now();
	result = Ask(server, statement.string, 5, sent + wait + EARLY_MAX + PATIENCE, true);
	free(statement.string);

	run->end = sent + server->options->lease.length;
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		status = read_run(server, result, run);
	else if (result == NULL || ToldToEnd(server))
		status = -1;
	else
	{
		ShowError(server, result);
		status = refused_with(result);

		/*
		 * The connection fails, the server shuts down, it is a standby now,
		 * or the transaction was not serializable.
		 */
		if (HasClass(result, "08") || HasClass(result, "57") || HasClass(result, "25") ||
			HasClass(result, "40"))
			status = -1;
	}
	if (status == -1)
	{
		*uncertain = result == NULL || PQresultStatus(result) == PGRES_TUPLES_OK;
		Disconnect(server);
	}
	PQclear(result);
	return status;
}

/*
 * refresh - extend the lease of a run that has just begun until that is confirmed
 *
 * Returns 0, or the exit status of the program.
 */
static int
refresh(Server *server, Run *run)
{
	const Lease *lease = &server->options->lease;
	Usec		give_up = LeaseStop(lease, Now() + lease->length);

	while (Now() < give_up && !ToldToEnd(server))
	{
		switch (ExtendRun(server, run))
		{
			case ANSWER_YES:
				return 0;
			case ANSWER_NO:
				return EXIT_LOST;
			case ANSWER_NONE:
				Nap(RETRY_NAP);
		}
	}
	return EXIT_LOST;
}

/*
 * BeginRun - begin the run, with a lease that is fresh
 *
 * Without --wait one attempt is made to reach a server.  If its answer is lost others
 * follow, as long as the run that the first of them may have begun has time left.  They
 * wait for the lock, because the first statement may still be at work, and hold it.  Returns 0, or the
 * exit status of the program; run->token may be set in both cases.
 */
int
BeginRun(Server *server, Run *run)
{
	const Options *options = server->options;
	Usec		wait_end = Now() + (options->wait > 0 ? options->wait : 0);
	bool		was_uncertain = false;

	for (;;)
	{
		Usec		start = Now();
		bool		uncertain = false;
		int			status = try_to_begin(server, run, wait_end > start ? wait_end - start : 0, &uncertain);

		/*
		 * Time that a wait has taken; and a cancelled wait for the standby
		 * counts as none.
		 */
		if (status == 0 && (was_uncertain || server->unconfirmed || Now() - start > options->lease.heartbeat))
			return refresh(server, run);
		if (status >= 0)
			return status == EXIT_USAGE && was_uncertain ? EXIT_NO_SERVER : status;

		if (uncertain && !was_uncertain)
		{
			Usec		lost = LeaseStop(&options->lease, Now() + options->lease.length);

			was_uncertain = true;
			if (wait_end < lost)
				wait_end = lost;
		}
		if (ToldToEnd(server))
			return EXIT_NO_SERVER;
		if (Now() >= wait_end)
		{
			ComplainOnce(server, "the server did not answer");
			return EXIT_NO_SERVER;
		}
		Nap(RETRY_NAP);
	}
}

/*
 * ask_about_run - ask a question about the run that is answered with yes or no, and SESSION
 *
 * An answer that is not known to be on the synchronous standby is none, unless it is no.
 * Nor is any other word.
 */
static Answer
ask_about_run(Server *server, const char *question, Usec until)
{
	PGresult   *result = Ask(server, question, 2, until, false);
	Answer		answer = ANSWER_NONE;

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		const char *word = PQgetvalue(result, 0, 0);

		NoteSession(server, result, 1);
		if (strcmp(word, "f") == 0)
			answer = ANSWER_NO;
		else if (strcmp(word, "t") == 0 && !server->unconfirmed)
			answer = ANSWER_YES;
	}
	else if (result)
	{
		ShowError(server, result);
		Disconnect(server);
	}
	if (answer != ANSWER_NONE)
		server->complained = false;
	PQclear(result);
	return answer;
}

/*
 * ExtendRun - try to extend the lease; sets run->end if it is extended
 *
 * ANSWER_NO: the lock is lost.
 */
Answer
ExtendRun(Server *server, Run *run)
{
	const Lease *lease = &server->options->lease;
	Answer		answer;
	Statement	statement;
	Usec		sent;

	if (!ConnectServer(server))
		return ANSWER_NONE;
	begin_statement(&statement);
	fprintf(statement.stream, "SELECT %s.shedlock_extend(name => ", server->schema);
	add_literal(&statement, server, server->options->name);
	fprintf(statement.stream, ", token => %lld", (long long) run->token);
	add_duration(&statement, "lock_at_most_for", lease->length);
	fputs("), " SESSION, statement.stream);
	(void) end_statement(&statement);
	sent = Now();
	answer = ask_about_run(server, statement.string, sent + LeasePatience(lease));
	free(statement.string);
	if (answer == ANSWER_YES)
		run->end = sent + lease->length;
	return answer;
}

/*
 * EndRun - try to end the run
 *
 * message: or NULL.  exit_code: of the command, or -1.  ANSWER_NO: the lock was lost
 * before.
 */
Answer
EndRun(Server *server, const Run *run, const char *outcome, const char *message, int exit_code)
{
	Answer		answer;
	Statement	statement;

	if (!ConnectServer(server))
		return ANSWER_NONE;
	begin_statement(&statement);
	fprintf(statement.stream, "SELECT %s.shedlock_run_end(name => ", server->schema);
	add_literal(&statement, server, server->options->name);
	fprintf(statement.stream, ", token => %lld", (long long) run->token);
	add_argument(&statement, server, "outcome", outcome);
	add_argument(&statement, server, "message", message);
	if (exit_code >= 0)
		fprintf(statement.stream, ", exit_code => %d", exit_code);
	fputs("), " SESSION, statement.stream);
	(void) end_statement(&statement);
	answer = ask_about_run(server, statement.string, Now() + LeasePatience(&server->options->lease));
	free(statement.string);
	return answer;
}

/*
 * ask_to_show - send a statement that is complete, and free it
 */
static PGresult *
ask_to_show(Server *server, Statement *statement)
{
	PGresult   *result = Ask(server, end_statement(statement), 1, Now() + PATIENCE, false);

	free(statement->string);
	return result;
}

/*
 * show_answer - print a text of the server; returns the exit status of the program
 */
static int
show_answer(Server *server, PGresult *result, const char *head)
{
	int			status = 0;

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		char	   *text = PQgetvalue(result, 0, 0);

		MaskControls(text);
		printf("%s%s\n", head, text);
	}
	else
	{
		if (result)
			ShowError(server, result);
		else
			ComplainOnce(server, "the server did not answer");
		status = refused_with(result);
	}
	PQclear(result);
	return status;
}

/*
 * check_call - have the server check the arguments of the call; returns the exit status
 *
 * It is asked to begin the run in a transaction that cannot write: shedlock_run_begin
 * refuses that when it has read and checked its arguments.
 */
static int
check_call(Server *server)
{
	Statement	begin;
	Statement	check;
	PGresult   *result;

	(void) statement_of_begin(server, &begin, 0);
	begin_statement(&check);
	fprintf(check.stream, "SET LOCAL transaction_read_only = on; %s", begin.string);
	free(begin.string);
	result = ask_to_show(server, &check);
	if (!HasClass(result, "25"))
		return show_answer(server, result, "");
	PQclear(result);
	return 0;
}

/*
 * show_ticks - print the next three ticks of --schedule, in its time zone
 */
static int
show_ticks(Server *server)
{
	const char *zone = server->options->time_zone ? server->options->time_zone : "UTC";
	const char *const names[] = {"a", "b", "c"};
	char		head[80];
	Statement	statement;

	begin_statement(&statement);
	fputs("SELECT pg_catalog.concat_ws(', '", statement.stream);
	for (int i = 0; i < 3; i++)
	{
		fputs(", pg_catalog.to_char(pg_catalog.timezone(", statement.stream);
		add_literal(&statement, server, zone);
		fprintf(statement.stream, ", %s), 'Dy YYYY-MM-DD HH24:MI')", names[i]);
	}
	fputs(") FROM ", statement.stream);
	for (int i = 0; i < 3; i++)
	{
		fprintf(statement.stream, "%s%s.shedlock_next_tick(", i > 0 ? ", " : "", server->schema);
		add_literal(&statement, server, server->options->schedule);
		fputs(", ", statement.stream);
		add_literal(&statement, server, zone);
		fprintf(statement.stream, "%s%s) %s", i > 0 ? ", " : "", i > 0 ? names[i - 1] : "", names[i]);
	}
	(void) snprintf(head, sizeof(head), "next ticks (%s): ", zone);
	return show_answer(server, ask_to_show(server, &statement), head);
}

/*
 * ShowCall - check the call, and show its next ticks and what a run would be told now
 *
 * Returns the exit status of the program.
 */
int
ShowCall(Server *server)
{
	Statement	statement;
	int			status = ConnectServer(server) ? find_schema(server) : EXIT_NO_SERVER;

	if (status == 0)
		status = check_call(server);
	if (status == 0 && server->options->schedule)
		status = ConnectServer(server) ? show_ticks(server) : EXIT_NO_SERVER;
	if (status != 0 || !ConnectServer(server))
		return status != 0 ? status : EXIT_NO_SERVER;
	begin_statement(&statement);
	fprintf(statement.stream, "SELECT %s.shedlock_why(", server->schema);
	add_literal(&statement, server, server->options->name);
	fputs(")", statement.stream);
	return show_answer(server, ask_to_show(server, &statement), "");
}
