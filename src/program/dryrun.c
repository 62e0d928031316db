/*-------------------------------------------------------------------------
 *
 * dryrun.c
 *	  What --dry-run asks the server, which changes nothing.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "program/server.h"

/* How many ticks are shown */
#define TICKS				3

/*
 * ask_to_show - send a statement, and free it
 */
static PGresult *
ask_to_show(Server *server, char *statement)
{
	PGresult   *result = Ask(server, statement, 1, Now() + PATIENCE, false);

	free(statement);
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
		status = RefusedWith(result);
	}
	PQclear(result);
	return status;
}

/*
 * check_call - have the server check the arguments of a call, and free it; returns the exit
 * status of the program
 *
 * It is asked for the call in a transaction that cannot write: shedlock_job and
 * shedlock_run_begin refuse that when they have read and checked their arguments.
 */
static int
check_call(Server *server, char *call)
{
	Statement	check;
	PGresult   *result;

	BeginStatement(&check);
	fprintf(check.stream, "SET LOCAL transaction_read_only = on; %s", call);
	free(call);
	result = ask_to_show(server, EndStatement(&check));
	if (!HasClass(result, "25"))
		return show_answer(server, result, "");
	PQclear(result);
	return 0;
}

/*
 * show_ticks - print the next ticks of the schedule, in its time zone
 */
static int
show_ticks(Server *server)
{
	const Options *options = server->options;
	const char *zone = options->time_zone ? options->time_zone : "UTC";
	const char *format = options->period ? "Dy YYYY-MM-DD HH24:MI:SS" : "Dy YYYY-MM-DD HH24:MI";
	char		head[80];
	Statement	statement;

	BeginStatement(&statement);
	fputs("SELECT pg_catalog.concat_ws(', '", statement.stream);
	for (int i = 0; i < TICKS; i++)
	{
		fputs(", pg_catalog.to_char(pg_catalog.timezone(", statement.stream);
		AddLiteral(&statement, server, zone);
		fprintf(statement.stream, ", tick%d), '%s')", i, format);
	}
	fputs(") FROM ", statement.stream);
	for (int i = 0; i < TICKS; i++)
	{
		fprintf(statement.stream, "%s%s.shedlock_next_tick(", i > 0 ? ", " : "", server->schema);
		AddLiteral(&statement, server, options->schedule);
		fputs(", ", statement.stream);
		AddLiteral(&statement, server, zone);
		if (i > 0)
			fprintf(statement.stream, ", tick%d", i - 1);
		fprintf(statement.stream, ") tick%d", i);
	}
	(void) snprintf(head, sizeof(head), "next ticks (%s): ", zone);
	return show_answer(server, ask_to_show(server, EndStatement(&statement)), head);
}

/*
 * show_why - print what a run would be told now
 */
static int
show_why(Server *server)
{
	Statement	statement;

	BeginStatement(&statement);
	fprintf(statement.stream, "SELECT %s.shedlock_why(", server->schema);
	AddLiteral(&statement, server, server->options->name);
	fputs(")", statement.stream);
	return show_answer(server, ask_to_show(server, EndStatement(&statement)), "");
}

/*
 * ShowCall - check the call, and show its next ticks and what a run would be told now
 *
 * Returns the exit status of the program.
 */
int
ShowCall(Server *server)
{
	bool		is_job = server->options->schedule != NULL;
	int			status = ConnectServer(server) ? FindSchema(server) : EXIT_NO_SERVER;

	if (status == 0 && is_job)
		status = check_call(server, StatementOfJob(server));
	if (status == 0)
		status = ConnectServer(server) ? check_call(server, StatementOfBegin(server, 0)) : EXIT_NO_SERVER;
	if (status == 0 && is_job)
		status = ConnectServer(server) ? show_ticks(server) : EXIT_NO_SERVER;
	if (status == 0)
		status = ConnectServer(server) ? show_why(server) : EXIT_NO_SERVER;
	return status;
}
