/*-------------------------------------------------------------------------
 *
 * server.h
 *	  The connection to the server, and what is done with its answers.
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
	bool		unicode;		/* the database can store every character */
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

/* How long a statement that does not wait for a lock may take, beyond the time it has */
#define PATIENCE			(30 * USEC_PER_SEC)

/* For Ask(): an answer of any number of rows with so many columns */
#define ROWS(columns)		(-(columns))

/* A statement that is being written */
typedef struct Statement
{
	FILE	   *stream;
	char	   *string;
	size_t		length;
} Statement;

/* connection.c */
extern bool ConnectServer(Server *server);
extern bool ToldToEnd(const Server *server);
extern void WaitForWord(const Server *server, Usec until);
extern PGresult *Ask(Server *server, const char *statement, int columns, Usec until, bool interruptible);
extern void ComplainOnce(Server *server, const char *text);
extern bool HasClass(const PGresult *result, const char *class);
extern void ShowError(Server *server, const PGresult *result);
extern void ComplainOfConnection(const Server *server, Usec quiet_for);

/* events.c */
extern void NoteSession(Server *server, const PGresult *result, int column);

/* statement.c */
extern void BeginStatement(Statement *statement);
extern char *EndStatement(Statement *statement);
extern void AddLiteral(Statement *statement, Server *server, const char *value);
extern char *StatementOfJob(Server *server);
extern char *StatementOfBegin(Server *server, Usec wait);
extern char *StatementOfExtend(Server *server, const Run *run);
extern char *StatementOfEnd(Server *server, const Run *run, const char *outcome, const char *message,
							int exit_code);

/* server.c */
extern int	FindSchema(Server *server);
extern int	RefusedWith(const PGresult *result);

/* news.c */

/* The columns of a change, and the JSON of all of them */
enum
{
	COLUMN_NAME,
	COLUMN_PROBLEM,
	COLUMN_STATE,
	COLUMN_SINCE,
	COLUMN_MESSAGE,
	COLUMN_DESCRIPTION,
	COLUMN_JSON,
	COLUMNS
};

/* A change of which the command, or the server, could not be told yet */
typedef struct Trial
{
	struct Trial *next;
	char	   *key;			/* a text that only this change has */
	bool		told;			/* the command was; the server is to be told */
	Usec		nap;			/* from the last try to the next */
	Usec		again_at;		/* the next one */
	char		name[];			/* of the job; its other changes wait */
} Trial;

extern PGresult *AskForNews(Server *server, const Trial *trials, int most);
extern bool TellServer(Server *server, const PGresult *news, int row);

/* change.c */
extern bool WatchChildren(void);
extern bool RunCommand(Server *server, char *const *command, const PGresult *news, int row);

#endif							/* SHEDLOCK_SERVER_H */
