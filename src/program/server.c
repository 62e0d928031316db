/*-------------------------------------------------------------------------
 *
 * server.c
 *	  The lock on the server: begins, extends and ends the run.
 *
 * Each statement stands alone, so it may go to another session, another server or
 * through a pooler.  A connection that fails is replaced by the next statement; what
 * makes that safe is the request of shedlock_run_begin, and the token.
 *
 * Only a connect blocks: libpq looks up names synchronously, and limits the time for
 * each host only in a blocking connect.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "program/program.h"

/* How long a statement that does not wait for a lock may take, beyond the time it has */
#define PATIENCE			(30 * USEC_PER_SEC)

/* shedlock_run_begin waits that long for a tick that is near. */
#define EARLY_MAX			(30 * USEC_PER_SEC)

/* How long the answer to a cancel may take */
#define CANCEL_PATIENCE		(5 * USEC_PER_SEC)

struct Server
{
	const Options *options;
	int			wakeup;			/* readable: the program was told to end */
	PGconn	   *conn;			/* NULL: not connected */
	char	   *schema;			/* of the extension, quoted; NULL: not known
								 * yet */
	char		request[33];
	bool		warned;			/* the last answer came with a WARNING */
	bool		complained;		/* since the last answer that counts */
};

/* Settings of the connection, where the user has not set them */
static const char *const connection_defaults[][2] = {
	{"fallback_application_name", "shedlock"},
	{"connect_timeout", "2"},
	{"keepalives_idle", "10"},
	{"keepalives_interval", "5"},
	{"keepalives_count", "3"},
	{"tcp_user_timeout", "25000"}
};

#define DEFAULTS			(sizeof(connection_defaults) / sizeof(connection_defaults[0]))

/*
 * NewServer - prepare for connections; connects to nothing yet
 *
 * wakeup: a descriptor that becomes readable to end a wait for the lock.
 */
Server *
NewServer(const Options *options, int wakeup)
{
	static Server the_server;
	Server	   *server = &the_server;
	unsigned char bytes[16];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		Die(EXIT_NO_RESOURCES, "could not get random numbers");
	for (size_t i = 0; i < sizeof(bytes); i++)
		(void) snprintf(server->request + 2 * i, 3, "%02x", bytes[i]);
	server->options = options;
	server->wakeup = wakeup;
	return server;
}

/*
 * disconnect - close the connection
 */
static void
disconnect(Server *server)
{
	PQfinish(server->conn);
	server->conn = NULL;
}

/*
 * receive_notice - show WARNINGs, and note that there was one
 */
static void
receive_notice(void *arg, const PGresult *result)
{
	Server	   *server = arg;
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);

	if (severity == NULL || strcmp(severity, "WARNING") != 0)
		return;
	server->warned = true;
	Complain("%s%s%s", PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY),
			 detail ? ": " : "", detail ? detail : "");
}

/*
 * is_given - has the user set a keyword, by the environment or a service file?
 */
static bool
is_given(const PQconninfoOption *known, const char *keyword)
{
	for (; known->keyword; known++)
	{
		if (strcmp(known->keyword, keyword) == 0)
			return known->val != NULL;
	}
	return false;
}

/*
 * find_settings - the settings of a connection, of the environment and its service file
 *
 * A service that the connection string names is of the environment for PQconndefaults(),
 * but not for the command.
 */
static PQconninfoOption *
find_settings(const char *dbname)
{
	const char *inherited = getenv("PGSERVICE");
	PQconninfoOption *given = NULL;
	PQconninfoOption *settings;

	if (dbname && (strchr(dbname, '=') || strstr(dbname, "://")))
		given = PQconninfoParse(dbname, NULL);
	for (PQconninfoOption *option = given; option && option->keyword; option++)
	{
		if (strcmp(option->keyword, "service") == 0 && option->val)
			(void) setenv("PGSERVICE", option->val, 1);
	}
	PQconninfoFree(given);
	settings = PQconndefaults();
	if (inherited)
		(void) setenv("PGSERVICE", inherited, 1);
	else
		(void) unsetenv("PGSERVICE");
	return settings;
}

/*
 * connect_writable - connect, by default only to a server that can write
 *
 * That default is a variable of the environment, because PQconndefaults() does not tell
 * whether a service file has "any" or nothing.
 */
static PGconn *
connect_writable(const char *const *keywords, const char *const *values)
{
	static const char variable[] = "PGTARGETSESSIONATTRS";
	bool		inherited = getenv(variable) != NULL;
	PGconn	   *conn;

	(void) setenv(variable, "read-write", 0);
	conn = PQconnectdbParams(keywords, values, 1);
	if (!inherited)
		(void) unsetenv(variable);
	return conn;
}

/*
 * complain_of_connection - say what libpq says, on one line
 */
static void
complain_of_connection(const Server *server)
{
	char	   *message = strdup(PQerrorMessage(server->conn));

	if (message == NULL)
		return;
	for (char *end = message + strlen(message); end > message && end[-1] == '\n';)
		*--end = '\0';
	for (char *at = message; *at != '\0'; at++)
	{
		if (*at == '\n')
			*at = ';';
	}
	Complain("%s", message);
	free(message);
}

/*
 * connect_server - connect, if the program is not connected
 *
 * What the connection string says comes last, and so counts.
 */
static bool
connect_server(Server *server)
{
	const char *keywords[DEFAULTS + 3];
	const char *values[DEFAULTS + 3];
	PQconninfoOption *known;
	int			count = 0;

	if (server->conn)
		return true;
	known = find_settings(server->options->dbname);
	for (size_t i = 0; i < DEFAULTS; i++)
	{
		if (known && is_given(known, connection_defaults[i][0]))
			continue;
		keywords[count] = connection_defaults[i][0];
		values[count++] = connection_defaults[i][1];
	}
	PQconninfoFree(known);
	keywords[count] = "dbname";
	values[count++] = server->options->dbname;

	/* That of the texts the program makes, whatever the user sets */
	keywords[count] = "client_encoding";
	values[count++] = "UTF8";
	keywords[count] = NULL;

	server->conn = connect_writable(keywords, values);
	if (PQstatus(server->conn) != CONNECTION_OK || PQsetnonblocking(server->conn, 1) != 0)
	{
		if (!server->complained)
			complain_of_connection(server);
		server->complained = true;
		disconnect(server);
		return false;
	}
	(void) PQsetNoticeReceiver(server->conn, receive_notice, server);
	return true;
}

/*
 * ForgetServer - close the descriptor of the connection in a child process
 *
 * The connection itself belongs to the parent.
 */
void
ForgetServer(Server *server)
{
	if (server->conn)
		(void) close(PQsocket(server->conn));
}

/*
 * await_server - wait until the connection can be read or written, or told to end
 *
 * Returns false at that instant, or if the program was told to end.
 */
static bool
await_server(Server *server, Usec until, bool interruptible)
{
	struct pollfd polls[] = {
		{.fd = PQsocket(server->conn),.events = POLLIN},
		{.fd = interruptible ? server->wakeup : -1,.events = POLLIN}
	};
	int			flushed = PQflush(server->conn);

	if (flushed < 0 || Now() >= until)
		return false;
	if (flushed > 0)
		polls[0].events |= POLLOUT;
	(void) poll(polls, 2, PollTimeout(until));
	return polls[1].revents == 0;
}

/*
 * read_answer - the last result of what was sent; NULL if it does not come in time
 *
 * An error is the last result of its statements.
 */
static PGresult *
read_answer(Server *server, Usec until, bool interruptible)
{
	PGresult   *last = NULL;

	for (;;)
	{
		PGresult   *result;

		while (PQisBusy(server->conn))
		{
			if (!await_server(server, until, interruptible) || !PQconsumeInput(server->conn))
			{
				PQclear(last);
				return NULL;
			}
		}
		result = PQgetResult(server->conn);
		if (result == NULL)
			return last;
		PQclear(last);
		last = result;
	}
}

/*
 * cancel - cancel the statement, and wait for its answer
 */
static PGresult *
cancel(Server *server)
{
	PGcancel   *request = PQgetCancel(server->conn);
	char		error[256];

	if (request)
		(void) PQcancel(request, error, sizeof(error));
	PQfreeCancel(request);
	return read_answer(server, Now() + CANCEL_PATIENCE, false);
}

/*
 * send_statement - send a statement for which no timeouts of the server count
 *
 * Those that are set for the role would end a wait or an extension, and the program must
 * hear of a wait for the standby that was cancelled.  All of a query
 * string is one transaction, so SET LOCAL needs no block; a setting of the session would
 * stay with the next client of a pooler.
 */
static bool
send_statement(Server *server, const char *statement)
{
	static const char start[] = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; "
	"SET LOCAL client_min_messages = warning; ";
	const char *more = PQserverVersion(server->conn) >= 170000 ? "SET LOCAL transaction_timeout = 0; " : "";
	size_t		size = sizeof(start) + strlen(more) + strlen(statement);
	char	   *text = malloc(size);
	bool		sent;

	if (text == NULL)
		Die(EXIT_NO_RESOURCES, "out of memory");
	(void) snprintf(text, size, "%s%s%s", start, more, statement);
	sent = PQsendQuery(server->conn, text) == 1;
	free(text);
	return sent;
}

/*
 * ask - send a statement, and wait for its answer
 *
 * interruptible: cancel it when the program is told to end.  Returns NULL, with the
 * connection closed, if there is no answer.
 */
static PGresult *
ask(Server *server, const char *statement, Usec until, bool interruptible)
{
	PGresult   *result = NULL;

	server->warned = false;
	if (send_statement(server, statement))
	{
		result = read_answer(server, until, interruptible);
		if (result == NULL && interruptible && Now() < until && PQstatus(server->conn) == CONNECTION_OK)
			result = cancel(server);
	}
	if (result == NULL)
		disconnect(server);
	return result;
}

/*
 * Statements
 */

typedef struct Text
{
	FILE	   *stream;
	char	   *text;
	size_t		length;
} Text;

static void
begin_text(Text *text)
{
	text	  ->stream = open_memstream(&text->text, &text->length);

	if (text->stream == NULL)
		Die(EXIT_NO_RESOURCES, "out of memory");
}

static const char *
end_text(Text *text)
{
	if (fclose(text->stream) != 0)
		Die(EXIT_NO_RESOURCES, "out of memory");
	return text->text;
}

/*
 * add_literal - add a string constant; NULL is null
 */
static void
add_literal(Text *text, Server *server, const char *value)
{
	char	   *literal = value ? PQescapeLiteral(server->conn, value, strlen(value)) : NULL;

	if (value && literal == NULL)
	{
		complain_of_connection(server);
		exit(EXIT_USAGE);
	}
	fputs(literal ? literal : "NULL", text->stream);
	PQfreemem(literal);
}

/*
 * add_argument - add a named argument, if it is given
 */
static void
add_argument(Text *text, Server *server, const char *name, const char *value)
{
	if (value == NULL)
		return;
	fprintf(text->stream, ", %s => ", name);
	add_literal(text, server, value);
}

/*
 * TakesUnicode - can the database store every character?
 */
bool
TakesUnicode(const Server *server)
{
	const char *encoding = server->conn ? PQparameterStatus(server->conn, "server_encoding") : NULL;

	return encoding && strcmp(encoding, "UTF8") == 0;
}

/*
 * add_printable - add a named argument that people read; any bytes will do
 */
static void
add_printable(Text *text, Server *server, const char *name, const char *value)
{
	char	   *printable = value ? PrintableText(value, !TakesUnicode(server)) : NULL;

	add_argument(text, server, name, printable);
	free(printable);
}

/*
 * add_duration - add a named argument in microseconds
 */
static void
add_duration(Text *text, const char *name, Usec duration)
{
	fprintf(text->stream, ", %s => '%lld microseconds'", name, (long long) duration);
}

/*
 * statement_of_begin - the statement that begins the run
 */
static const char *
statement_of_begin(Server *server, Text *text, Usec wait)
{
	const Options *options = server->options;

	begin_text(text);
	fprintf(text->stream,
			"SELECT token, attempt, reason, "
			"pg_catalog.to_char(pg_catalog.timezone('UTC', tick), 'YYYY-MM-DD\"T\"HH24:MI:SS.US') "
			"FROM %s.shedlock_run_begin(name => ", server->schema);
	add_literal(text, server, options->name);
	add_duration(text, "lock_at_most_for", options->lease.length);
	add_argument(text, server, "lock_at_least_for", options->at_least);
	add_argument(text, server, "once_every", options->once_every);
	add_argument(text, server, "schedule", options->schedule);
	add_argument(text, server, "time_zone", options->time_zone);
	add_argument(text, server, "catch_up", options->catch_up);
	add_argument(text, server, "max_late", options->max_late);
	add_argument(text, server, "attempts", options->attempts);
	add_argument(text, server, "backoff", options->backoff);
	if (wait > 0)
		add_duration(text, "wait", wait);
	add_printable(text, server, "locked_by", options->locked_by);
	add_printable(text, server, "description", options->description);
	add_argument(text, server, "request", server->request);
	fputs(")", text->stream);
	return end_text(text);
}

/*
 * show_error - say what the server says, once until it gives an answer
 */
static void
show_error(Server *server, const PGresult *result)
{
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);

	if (!server->complained)
		Complain("%s%s%s%s%s", message ? message : "the server did not answer",
				 detail ? "\n  " : "", detail ? detail : "",
				 hint ? "\n  " : "", hint ? hint : "");
	server->complained = true;
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
	result = ask(server,
				 "SELECT pg_catalog.quote_ident(n.nspname) "
				 "FROM pg_catalog.pg_extension e, pg_catalog.pg_namespace n "
				 "WHERE e.extname OPERATOR(pg_catalog.=) 'shedlock' AND n.oid OPERATOR(pg_catalog.=) e.extnamespace",
				 Now() + PATIENCE, false);
	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1)
		server->schema = strdup(PQgetvalue(result, 0, 0));
	else if (PQresultStatus(result) == PGRES_TUPLES_OK)
		Complain("database \"%s\" has no extension shedlock: CREATE EXTENSION shedlock", PQdb(server->conn));
	else if (result)
	{
		show_error(server, result);
		disconnect(server);
	}
	PQclear(result);
	return server->schema ? 0 : EXIT_NO_SERVER;
}

/*
 * has_class - is the SQLSTATE of a result in a class?
 */
static bool
has_class(const PGresult *result, const char *class)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return sqlstate && strncmp(sqlstate, class, 2) == 0;
}

/*
 * read_run - read the answer of shedlock_run_begin
 *
 * Returns 0, or EXIT_BUSY, whatever --busy-exit says: that may be 0.
 */
static int
read_run(Server *server, const PGresult *result, Run *run)
{
	char	   *end;

	if (PQgetisnull(result, 0, 0))
	{
		if (server->options->verbose || isatty(STDERR_FILENO))
			Complain("\"%s\" is not run.  %s", server->options->name, PQgetvalue(result, 0, 2));
		return EXIT_BUSY;
	}
	run->token = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	run->attempt = PQgetisnull(result, 0, 1) ? 0 : atoi(PQgetvalue(result, 0, 1));
	if (run->attempt > 0)
	{
		/* without a fraction of zero */
		(void) snprintf(run->tick, sizeof(run->tick) - 1, "%s", PQgetvalue(result, 0, 3));
		for (end = run->tick + strlen(run->tick); end[-1] == '0' && strchr(run->tick, '.');)
			*--end = '\0';
		if (end[-1] == '.')
			*--end = '\0';
		strcpy(end, "Z");
	}
	return 0;
}

/*
 * told_to_end - was the program told to end?
 */
static bool
told_to_end(const Server *server)
{
	struct pollfd wakeup = {.fd = server->wakeup,.events = POLLIN};

	return poll(&wakeup, 1, 0) > 0;
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
	Text text;
	Usec		sent;
	int			status;

	if (!connect_server(server))
		return -1;
	status = find_schema(server);
	if (status != 0)
		return server->conn ? status : -1;
	(void) statement_of_begin(server, &text, wait);
	sent = Now();
	result = ask(server, text.text, sent + wait + EARLY_MAX + PATIENCE, true);
	free(text.text);

	run->end = sent + server->options->lease.length;
	if (result == NULL)
		*uncertain = true;
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		status = read_run(server, result, run);
	else if (result == NULL || told_to_end(server))
		status = -1;
	else
	{
		show_error(server, result);
		status = has_class(result, "22") ? EXIT_USAGE : EXIT_NO_SERVER;

		/*
		 * The connection fails, the server shuts down, it is a standby now,
		 * or the transaction was not serializable.
		 */
		if (has_class(result, "08") || has_class(result, "57") || has_class(result, "25") ||
			has_class(result, "40"))
			status = -1;
	}
	if (status == -1)
		disconnect(server);
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

	while (Now() < give_up && !told_to_end(server))
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
 * follow, as long as the run that it may have begun has time left.  They wait for the
 * lock, because the first statement may still be at work, and hold it.  Returns 0, or the
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
		if (status == 0 && (was_uncertain || server->warned || Now() - start > options->lease.heartbeat))
			return refresh(server, run);
		if (status >= 0)
			return status == EXIT_USAGE && was_uncertain ? EXIT_NO_SERVER : status;

		if (uncertain)
		{
			Usec		lost = LeaseStop(&options->lease, Now() + options->lease.length);

			was_uncertain = true;
			if (wait_end < lost)
				wait_end = lost;
		}
		if (told_to_end(server) || Now() >= wait_end)
			return EXIT_NO_SERVER;
		Nap(RETRY_NAP);
	}
}

/*
 * ask_about_run - ask a question about the run that is answered with yes or no
 *
 * An answer with a WARNING is not known to the synchronous standby, unless it is no.
 */
static Answer
ask_about_run(Server *server, const char *question, Usec until)
{
	PGresult   *result = ask(server, question, until, false);
	Answer		answer = ANSWER_NONE;

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		if (strcmp(PQgetvalue(result, 0, 0), "f") == 0)
			answer = ANSWER_NO;
		else if (!server->warned)
			answer = ANSWER_YES;
	}
	else if (result)
	{
		show_error(server, result);
		disconnect(server);
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
	Text text;
	Usec		sent;

	if (!connect_server(server))
		return ANSWER_NONE;
	begin_text(&text);
	fprintf(text.stream, "SELECT %s.shedlock_extend(name => ", server->schema);
	add_literal(&text, server, server->options->name);
	fprintf(text.stream, ", token => %lld", (long long) run->token);
	add_duration(&text, "lock_at_most_for", lease->length);
	fputs(")", text.stream);
	(void) end_text(&text);
	sent = Now();
	answer = ask_about_run(server, text.text, sent + LeasePatience(lease));
	free(text.text);
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
	Text text;

	if (!connect_server(server))
		return ANSWER_NONE;
	begin_text(&text);
	fprintf(text.stream, "SELECT %s.shedlock_run_end(name => ", server->schema);
	add_literal(&text, server, server->options->name);
	fprintf(text.stream, ", token => %lld", (long long) run->token);
	add_argument(&text, server, "outcome", outcome);
	add_argument(&text, server, "message", message);
	if (exit_code >= 0)
		fprintf(text.stream, ", exit_code => %d", exit_code);
	fputs(")", text.stream);
	(void) end_text(&text);
	answer = ask_about_run(server, text.text, Now() + LeasePatience(&server->options->lease));
	free(text.text);
	return answer;
}

/*
 * ShowWhy - show what a run would be told now; returns the exit status of the program
 */
int
ShowWhy(Server *server)
{
	PGresult   *result;
	Text text;
	int			status;

	if (!connect_server(server))
		return EXIT_NO_SERVER;
	status = find_schema(server);
	if (status != 0)
		return status;
	begin_text(&text);
	fprintf(text.stream, "SELECT %s.shedlock_why(", server->schema);
	add_literal(&text, server, server->options->name);
	fputs(")", text.stream);
	result = ask(server, end_text(&text), Now() + PATIENCE, false);
	free(text.text);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		puts(PQgetvalue(result, 0, 0));
	else
	{
		show_error(server, result);
		status = EXIT_NO_SERVER;
	}
	PQclear(result);
	return status;
}

/*
 * CloseServer - close the connection
 */
void
CloseServer(Server *server)
{
	disconnect(server);
}
