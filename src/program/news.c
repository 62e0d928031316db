/*-------------------------------------------------------------------------
 *
 * news.c
 *	  What the server has to tell of jobs: the changes that were not told yet.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <stdlib.h>

#include "program/server.h"

/*
 * An open transaction that has seen the same news would hold up the statements of a watcher.  The
 * server does not notice that one of them is given up, so it ends them by itself: else each try
 * would leave a session.  Less than PATIENCE.
 */
#define LOCK_PATIENCE		"SET LOCAL lock_timeout = '10s'; "

/*
 * statement_of_news - the statement that asks for the changes that were not told
 *
 * trials: the later one of them comes up again, the later those of its job are asked for.  So
 * however many fail, they keep no other from being told.  most: how many; the first ones.
 */
static char *
statement_of_news(Server *server, const Trial *trials, int most)
{
	Statement	statement;

	BeginStatement(&statement);
	fprintf(statement.stream,
			LOCK_PATIENCE "SELECT name, problem, state, since, message, description, json FROM ("
			"SELECT n.name, n.problem, n.state, pg_catalog.to_json(n.since) OPERATOR(pg_catalog.#>>) '{}' AS since, "
			"n.message, n.description, pg_catalog.row_to_json(n) AS json, pg_catalog.row_number() OVER () AS number "
			"FROM %s.shedlock_news() n) n ORDER BY (SELECT pg_catalog.min(t.again_at) FROM (VALUES "
			"(NULL::pg_catalog.text, NULL::pg_catalog.int8)", server->schema);
	for (; trials; trials = trials->next)
	{
		fputs(", (", statement.stream);
		AddLiteral(&statement, server, trials->name);
		fprintf(statement.stream, ", %lld)", (long long) trials->again_at);
	}
	fprintf(statement.stream,
			") t(name, again_at) WHERE t.name OPERATOR(pg_catalog.=) n.name) NULLS FIRST, number LIMIT %d", most);
	return EndStatement(&statement);
}

/*
 * AskForNews - ask for the changes that were not told; NULL, with the connection closed, if
 * there is no answer
 *
 * trials, most: see statement_of_news().
 */
PGresult *
AskForNews(Server *server, const Trial *trials, int most)
{
	PGresult   *result = NULL;
	char	   *statement;

	if (!ConnectServer(server) || FindSchema(server) != 0)
		return NULL;
	statement = statement_of_news(server, trials, most);
	result = Ask(server, statement, ROWS(COLUMNS), Now() + PATIENCE, true);
	free(statement);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		server->complained = false;
		return result;
	}
	if (result && !ToldToEnd(server))
		ShowError(server, result);
	PQclear(result);
	Disconnect(server);
	return NULL;
}

/*
 * TellServer - tell the server that a change was told; returns whether it knows
 */
bool
TellServer(Server *server, const PGresult *news, int row)
{
	static const int arguments[] = {COLUMN_NAME, COLUMN_PROBLEM, COLUMN_SINCE, COLUMN_STATE};
	Statement	statement;
	PGresult   *result;
	char	   *text;
	bool		told;

	if (!ConnectServer(server))
		return false;
	BeginStatement(&statement);
	fprintf(statement.stream, LOCK_PATIENCE "SELECT %s.shedlock_tell(", server->schema);
	for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++)
	{
		fputs(i > 0 ? ", " : "", statement.stream);
		AddLiteral(&statement, server, PQgetvalue(news, row, arguments[i]));
	}
	fputs(")", statement.stream);
	text = EndStatement(&statement);

	result = Ask(server, text, 1, Now() + PATIENCE, false);
	free(text);
	told = PQresultStatus(result) == PGRES_TUPLES_OK && !server->unconfirmed;
	if (!told && result)
		ShowError(server, result);
	PQclear(result);
	return told;
}

/*
 * ShowNews - print what would be told now, a line of JSON each; returns the exit status of the
 * program
 *
 * In a transaction that is rolled back, so that nothing counts as seen.
 */
int
ShowNews(Server *server)
{
	PGresult   *begun;
	PGresult   *news;
	int			status = ConnectServer(server) ? FindSchema(server) : EXIT_NO_SERVER;

	if (status != 0)
		return status;
	begun = Ask(server, "BEGIN", 0, Now() + PATIENCE, false);
	news = begun ? AskForNews(server, NULL, INT_MAX) : NULL;
	if (news == NULL)
	{
		ComplainOnce(server, "the server did not answer");
		status = EXIT_NO_SERVER;
	}
	for (int row = 0; news && row < PQntuples(news); row++)
	{
		char	   *line = PQgetvalue(news, row, COLUMN_JSON);

		MaskControls(line);
		puts(line);
	}
	PQclear(news);
	PQclear(begun);
	Disconnect(server);
	return status;
}
