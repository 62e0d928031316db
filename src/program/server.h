/*-------------------------------------------------------------------------
 *
 * server.h
 *	  The connection to the server, for connection.c and server.c.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_SERVER_H
#define SHEDLOCK_SERVER_H

#include <libpq-fe.h>

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
};

/* An expression for NoteSession() */
#define SESSION				"pg_catalog.pg_backend_pid()"

/* connection.c */
extern bool ConnectServer(Server *server);
extern PGresult *Ask(Server *server, const char *statement, Usec until, bool interruptible);
extern void NoteSession(Server *server, const PGresult *result, int column);
extern bool HasClass(const PGresult *result, const char *class);
extern void ShowError(Server *server, const PGresult *result);
extern void ComplainOfConnection(const Server *server);

#endif							/* SHEDLOCK_SERVER_H */
