/*-------------------------------------------------------------------------
 *
 * events.c
 *	  What the server tells of runs, while the command is at work.
 *
 * LISTEN is the only statement that leaves something in the session, so it is sent only
 * where no pooler lends the session to others.  PgBouncer would pass the notifications to
 * the client that has the session then.
 *
 * Anybody who may connect can send notifications.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "program/server.h"

/* How many events about others' runs may come from one answer to the next */
#define STRANGERS_MAX		10000

/*
 * NoteSession - note whether the session is the connection's own
 *
 * column: of the value of SESSION.  Poolers that lend a session to several clients give
 * each client a process ID that they have made up, so that they can cancel its statements.
 */
void
NoteSession(Server *server, const PGresult *result, int column)
{
	server->direct = atoi(PQgetvalue(result, 0, column)) == PQbackendPID(server->conn);
}

/*
 * Listen - LISTEN to what the extension tells of runs, unless it was tried or cannot be
 *
 * A server that refuses, as a standby does, is not asked again by this connection.
 */
void
Listen(Server *server)
{
	PGresult   *result;

	if (!server->direct || server->tried || server->deaf)
		return;
	server->tried = true;
	result = Ask(server, "LISTEN shedlock", 0, Now() + LeasePatience(&server->options->lease), false);
	server->listening = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
}

/*
 * ListeningSocket - what becomes readable with the next notification, or -1
 */
int
ListeningSocket(const Server *server)
{
	return server->listening ? PQsocket(server->conn) : -1;
}

/*
 * HearsOf - has a notification come that has this token? 0: has any?
 *
 * Does not wait.  A connection that is broken tells nothing more; the next statement finds
 * out, and replaces it.  If too many come about others' runs, the connection is closed, and
 * no other one LISTENs.
 */
bool
HearsOf(Server *server, int64_t token)
{
	bool		heard = false;
	char		quoted[24];
	PGnotify   *notification;

	if (!server->listening)
		return false;
	if (!PQconsumeInput(server->conn))
	{
		server->listening = false;
		return false;
	}
	(void) snprintf(quoted, sizeof(quoted), "\"%lld\"", (long long) token);
	while ((notification = PQnotifies(server->conn)) != NULL)
	{
		if (token == 0 || strstr(notification->extra, quoted))
			heard = true;
		else
			server->strangers++;
		PQfreemem(notification);
	}
	if (server->strangers > STRANGERS_MAX)
	{
		server->deaf = true;
		Disconnect(server);
	}
	return heard;
}
