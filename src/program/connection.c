/*-------------------------------------------------------------------------
 *
 * connection.c
 *	  The connection to the server: opens it, and asks it questions.
 *
 * Each statement stands alone, so it may go to another session, another server or
 * through a pooler.  A connection that fails is replaced by the next statement.
 *
 * Only a connect blocks: libpq looks up names synchronously, and limits the time for
 * each host only in a blocking connect.
 *
 * The server is not trusted with more than the lock: whatever it sends takes a limited
 * time, a limited memory, and a limited room on standard error.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "program/server.h"

/* How long the answer to a cancel may take */
#define CANCEL_PATIENCE		(5 * USEC_PER_SEC)

/* How many reads an answer may take, of some kilobytes each.  One that counts needs few. */
#define READS_MAX			1000

/*
 * How many bytes of memory this process may take for what it reads: libpq has no limit of
 * its own.  Sanitizers need more.
 */
#ifndef MEMORY_MAX
#define MEMORY_MAX			(64 * 1024 * 1024)
#endif

/* How many WARNINGs and errors of the server are shown */
#define SHOWN_MAX			20

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
 * limit_memory - let this process take little more memory than it has
 *
 * What then gets none is a connection, which fails.  Does nothing if the system does not
 * tell how much it has.
 */
static void
limit_memory(struct rlimit *before)
{
	FILE	   *statm = fopen("/proc/self/statm", "re");
	unsigned long pages;
	struct rlimit limit;

	if (getrlimit(RLIMIT_DATA, before) != 0)
		before->rlim_cur = before->rlim_max = RLIM_INFINITY;
	limit = *before;
	if (statm && fscanf(statm, "%*u %*u %*u %*u %*u %lu", &pages) == 1)
	{
		limit.rlim_cur = pages * (rlim_t) sysconf(_SC_PAGESIZE) + MEMORY_MAX;
		if (limit.rlim_cur < before->rlim_cur)
			(void) setrlimit(RLIMIT_DATA, &limit);
	}
	if (statm)
		(void) fclose(statm);
}

/*
 * NewServer - prepare for connections; connects to nothing yet
 *
 * wakeup: a descriptor that becomes readable to end a wait for the lock.  A child process
 * prepares its own: that of its parent was forgotten.
 */
Server *
NewServer(const Options *options, int wakeup)
{
	static Server server;
	unsigned char bytes[16];

	server = (Server)
	{
		0
	};
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		Die(EXIT_NO_RESOURCES, "could not get random numbers");
	for (size_t i = 0; i < sizeof(bytes); i++)
		(void) snprintf(server.request + 2 * i, 3, "%02x", bytes[i]);
	server.options = options;
	server.wakeup = wakeup;
	limit_memory(&server.memory);
	return &server;
}

/*
 * Disconnect - close the connection
 */
void
Disconnect(Server *server)
{
	PQfinish(server->conn);
	server->conn = NULL;
	server->direct = false;
	server->tried = false;
	server->listening = false;
}

/*
 * may_show - may one more text of the server be shown?
 */
static bool
may_show(Server *server)
{
	if (server->shown <= SHOWN_MAX && ++server->shown > SHOWN_MAX)
		Complain("the server has more to say, which is not shown");
	return server->shown <= SHOWN_MAX;
}

/*
 * receive_notice - show WARNINGs, and note one that a commit has not reached the standby
 *
 * A wait for the standby that was cut short has no SQLSTATE of its own: the function of the
 * server tells.  A pooler's WARNING may have no function.
 */
static void
receive_notice(void *arg, const PGresult *result)
{
	Server	   *server = arg;
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);

	if (severity == NULL || strcmp(severity, "WARNING") != 0)
		return;
	server->unconfirmed |= function == NULL || strcmp(function, "SyncRepWaitForLSN") == 0;
	if (may_show(server))
		Complain("%s%s%s", message ? message : "WARNING", detail ? ": " : "", detail ? detail : "");
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
 * but not for the command.  setenv() may free what getenv() has returned.
 */
static PQconninfoOption *
find_settings(const char *dbname)
{
	const char *service = getenv("PGSERVICE");
	char	   *inherited = service ? strdup(service) : NULL;
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
	free(inherited);
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
	HideError();
	conn = PQconnectdbParams(keywords, values, 1);
	ShowErrorAgain();
	if (!inherited)
		(void) unsetenv(variable);
	return conn;
}

/*
 * ComplainOfConnection - say what libpq says, on one line
 *
 * quiet_for: not if that was said in that time on this host.
 */
void
ComplainOfConnection(const Server *server, Usec quiet_for)
{
	static const char hint[] = "; a password file that others can read is ignored, so its mode must be 0600";
	const char *from = PQerrorMessage(server->conn);
	char	   *message;
	char	   *end;

	/* libpq 19 says nothing if it lacks a descriptor */
	if (*from == '\0')
		from = "could not connect to the server";
	message = malloc(2 * strlen(from) + sizeof(hint));
	end = message;
	if (message == NULL)
	{
		Complain("could not connect to the server: out of memory");
		return;
	}
	for (; *from != '\0'; from++)
	{
		if (*from != '\n')
		{
			*end++ = *from;
			continue;
		}
		/* the next line may begin with a tab */
		from += strspn(from, "\n\t") - 1;
		if (from[1] != '\0')
		{
			*end++ = ';';
			*end++ = ' ';
		}
	}
	*end = '\0';
	/* HideError() has hidden what libpq says of that file */
	if (PQconnectionNeedsPassword(server->conn))
		memcpy(end, hint, sizeof(hint));
	if (!WasSaid(message, quiet_for))
		Complain("%s", message);
	free(message);
}

/*
 * ConnectServer - connect, if the program is not connected
 *
 * What the connection string says comes last, and so counts.
 */
bool
ConnectServer(Server *server)
{
	const char *keywords[DEFAULTS + 3];
	const char *values[DEFAULTS + 3];
	PQconninfoOption *known;
	const char *encoding;
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
			ComplainOfConnection(server, server->options->quiet_for);
		server->complained = true;
		Disconnect(server);
		return false;
	}
	(void) PQsetNoticeReceiver(server->conn, receive_notice, server);
	encoding = PQparameterStatus(server->conn, "server_encoding");
	server->unicode = encoding && strcmp(encoding, "UTF8") == 0;
	return true;
}

/*
 * ForgetServer - close the descriptor of the connection in a child process
 *
 * The connection itself belongs to the parent, and so does the limit of its memory.
 */
void
ForgetServer(Server *server)
{
	(void) setrlimit(RLIMIT_DATA, &server->memory);
	if (server->conn)
		(void) close(PQsocket(server->conn));
}

/*
 * WaitForWord - sleep until that instant, or a while less, unless the program is told to end
 */
void
WaitForWord(const Server *server, Usec until)
{
	struct pollfd wakeup = {.fd = server->wakeup,.events = POLLIN};

	(void) poll(&wakeup, 1, PollTimeout(until));
}

/*
 * ToldToEnd - was the program told to end?
 */
bool
ToldToEnd(const Server *server)
{
	struct pollfd wakeup = {.fd = server->wakeup,.events = POLLIN};

	return poll(&wakeup, 1, 0) > 0;
}

/*
 * await_server - wait until the connection can be read or written, or told to end
 *
 * Returns false at that instant, if the program was told to end, or after READS_MAX reads.
 */
static bool
await_server(Server *server, Usec until, bool interruptible, int *reads)
{
	struct pollfd polls[] = {
		{.fd = PQsocket(server->conn),.events = POLLIN},
		{.fd = interruptible ? server->wakeup : -1,.events = POLLIN}
	};
	int			flushed = PQflush(server->conn);

	if (flushed < 0)
		return false;
	if (flushed > 0)
		polls[0].events |= POLLOUT;

	/* What has arrived counts, even if this process was stopped until now. */
	(void) poll(polls, 2, PollTimeout(until));
	*reads += (polls[0].revents & POLLIN) != 0;
	return *reads <= READS_MAX && polls[1].revents == 0 && (polls[0].revents != 0 || Now() < until);
}

/*
 * read_answer - set *last to the last result of what was sent
 *
 * An error is the last result of its statements.  Returns false if the end of the answer
 * does not come in time; another call goes on with it.  No answer counts that takes more
 * than READS_MAX reads, which *reads counts, as one without end does, or that asks for a
 * COPY.
 */
static bool
read_answer(Server *server, Usec until, bool interruptible, int *reads, PGresult **last)
{
	for (;;)
	{
		PGresult   *result;

		while (PQisBusy(server->conn))
		{
			if (!await_server(server, until, interruptible, reads) || !PQconsumeInput(server->conn))
				return false;
		}
		result = PQgetResult(server->conn);
		if (result == NULL)
			return true;
		PQclear(*last);
		*last = result;
		switch (PQresultStatus(result))
		{
			case PGRES_COPY_IN:
			case PGRES_COPY_OUT:
			case PGRES_COPY_BOTH:
				*reads += READS_MAX;
				return false;
			default:
				break;
		}
	}
}

/*
 * send_cancel - thread: send the request to cancel a statement
 *
 * PQcancel() waits for a connection of its own, without a limit.
 */
static void *
send_cancel(void *request)
{
	char		error[256];

	(void) PQcancel(request, error, sizeof(error));
	PQfreeCancel(request);
	return NULL;
}

/*
 * cancel - cancel the statement, wait for the rest of its answer, and close the connection
 *
 * Returns as read_answer().
 *
 * A thread that still waits for a server that hangs ends with the program, which was told
 * to end.  If the statement ends before the cancel arrives, that would hit the next one.
 */
static bool
cancel(Server *server, int *reads, PGresult **last)
{
	PGcancel   *request = PQgetCancel(server->conn);
	bool		complete;
	pthread_t	thread;

	if (request && pthread_create(&thread, NULL, send_cancel, request) == 0)
		(void) pthread_detach(thread);
	else
		PQfreeCancel(request);
	complete = read_answer(server, Now() + CANCEL_PATIENCE, false, reads, last);
	Disconnect(server);
	return complete;
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
	const char *start = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL client_min_messages = warning; ";
	const char *more = PQserverVersion(server->conn) >= 170000 ? "SET LOCAL transaction_timeout = 0; " : "";
	size_t		size = strlen(start) + strlen(more) + strlen(statement) + 1;
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
 * is_expected - is this an answer to a statement that the program sends?
 *
 * columns: as for Ask().  An error counts if it comes from the server,
 * and so has an SQLSTATE.
 */
static bool
is_expected(const PGresult *result, int columns)
{
	if (PQresultStatus(result) == PGRES_FATAL_ERROR)
		return PQresultErrorField(result, PG_DIAG_SQLSTATE) != NULL;
	if (columns == 0)
		return PQresultStatus(result) == PGRES_COMMAND_OK;
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		return false;
	return columns > 0 ? PQntuples(result) == 1 && PQnfields(result) == columns : PQnfields(result) == -columns;
}

/*
 * Ask - send a statement, and wait for its answer
 *
 * columns: how many the only row has; 0: the statement returns no rows; or ROWS().
 * interruptible: cancel it when the program is told to end, and close the connection.
 * Returns a row or ROWS(), COMMAND_OK or an error of the server; NULL, with the connection closed,
 * if there is no such answer.
 */
PGresult *
Ask(Server *server, const char *statement, int columns, Usec until, bool interruptible)
{
	PGresult   *result = NULL;
	bool		complete = false;
	int			reads = 0;

	server->unconfirmed = false;
	if (send_statement(server, statement))
	{
		complete = read_answer(server, until, interruptible, &reads, &result);
		if (!complete && interruptible && ToldToEnd(server) && PQstatus(server->conn) == CONNECTION_OK)
			complete = cancel(server, &reads, &result);
	}
	if (complete && is_expected(result, columns))
	{
		server->strangers = 0;
		return result;
	}
	if ((complete && PQresultStatus(result) != PGRES_FATAL_ERROR) || reads > READS_MAX)
	{
		/* Its notifications may have been in the way of the answer. */
		server->deaf = true;
		ComplainOnce(server, "the server does not answer as one with shedlock does");
	}
	PQclear(result);
	Disconnect(server);
	return NULL;
}

/*
 * ComplainOnce - write a line about the server, once until it gives an answer
 */
void
ComplainOnce(Server *server, const char *text)
{
	if (!server->complained && may_show(server))
		Complain("%s", text);
	server->complained = true;
}

/*
 * ShowError - say what the server says, once until it gives an answer
 */
void
ShowError(Server *server, const PGresult *result)
{
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);

	if (!server->complained && may_show(server))
		Complain("%s%s%s%s%s", message ? message : "the server did not answer",
				 detail ? "\n  " : "", detail ? detail : "",
				 hint ? "\n  " : "", hint ? hint : "");
	server->complained = true;
}

/*
 * HasClass - is the SQLSTATE of a result in a class?
 */
bool
HasClass(const PGresult *result, const char *class)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return sqlstate && strncmp(sqlstate, class, 2) == 0;
}

/*
 * TakesUnicode - can the database of the last connection store every character?
 */
bool
TakesUnicode(const Server *server)
{
	return server->unicode;
}
