/*-------------------------------------------------------------------------
 *
 * server.h
 *	  The connection to the server, for connection.c, events.c and server.c.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_SERVER_H
#define SHEDLOCK_SERVER_H

#include <libpq-fe.h>
#include <sys/resource.h>

#include "program/program.h"

struct Server
{
	const Options *options;
	int			wakeup;			/* readable: the program was told to end */
	PGconn	   *conn;			/* NULL: not connected */
	char	   *schema;			/* of the extension, quoted; NULL: not known
								 * yet */
	char		request[33];
	bool		unconfirmed;	/* the last answer may not be on the standby */
	bool		complained;		/* since the last answer that counts */
	bool		direct;			/* no pooler lends the session to others */
	bool		tried;			/* LISTEN was sent */
	bool		listening;		/* the session LISTENs */
	bool		deaf;			/* no session may LISTEN any more */
	int			strangers;		/* events about others' runs since the last
								 * answer */
	int			shown;			/* texts of the server */
	struct rlimit memory;		/* that the command may take */
};

/* An expression for NoteSession() */
#define SESSION				"pg_catalog.pg_backend_pid()"

/* connection.c */
extern bool ConnectServer(Server *server);
extern bool ToldToEnd(const Server *server);
extern PGresult *Ask(Server *server, const char *statement, int columns, Usec until, bool interruptible);
extern void ComplainOnce(Server *server, const char *text);
extern bool HasClass(const PGresult *result, const char *class);
extern void ShowError(Server *server, const PGresult *result);
extern void ComplainOfConnection(const Server *server, Usec quiet_for);

/* events.c */
extern void NoteSession(Server *server, const PGresult *result, int column);

#endif							/* SHEDLOCK_SERVER_H */
