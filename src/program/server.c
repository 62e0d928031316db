/*-------------------------------------------------------------------------
 *
 * server.c
 *	  The lock on the server: declares the job; begins, extends and ends the run.
 *
 * A statement whose answer is lost is sent again, on another connection.  What makes that
 * safe is that a declaration can be repeated, the request of shedlock_run_begin, and the token.
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

/* How far the tick may be that a call waits for, without --wait */
#define EARLY_MAX			(30 * USEC_PER_SEC)

/* The second try follows after RETRY_NAP, each later one after twice the time, up to this */
#define BEGIN_NAP_MAX		(2 * USEC_PER_SEC)

/* How many columns StatementOfBegin() asks for */
#define BEGIN_COLUMNS		8

/* The longest name of a schema, in quotes; what is longer does not come from PostgreSQL */
#define SCHEMA_MAX			(2 * 4 * 255 + 2)

volatile sig_atomic_t MayEndAtOnce = 0;

/* What is known while a run is being begun */
typedef struct Beginning
{
	Usec		wait_end;		/* of --wait */
	Usec		nap;			/* from an attempt without an answer to the
								 * next */
	bool		declared;		/* the job is, or need not be */
	bool		uncertain;		/* a run may have begun, though there is no
								 * answer */
	Usec		tick_at;		/* the call that was refused is made again
								 * then; or NEVER */
} Beginning;

/*
 * FindSchema - find the extension's schema
 *
 * Returns 0 or the exit status of the program.
 */
int
FindSchema(Server *server)
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
 * read_lease - read how long the lock is held; sets the end of the lease
 *
 * sent: when the statement was, so not later than the server has read its clock.  The job's
 * lock_at_most_for may have cut the lease short: then it cannot be extended any more, and an end
 * that was known before is as right.  Returns false if the answer does not say it.
 */
static bool
read_lease(const PGresult *result, int column, Usec sent, Run *run)
{
	char	   *end;
	long long	left = strtoll(PQgetvalue(result, 0, column), &end, 10);

	if (left <= 0 || (strcmp(end, " t") != 0 && strcmp(end, " f") != 0))
		return false;
	if (left > run->lease.length)
		left = run->lease.length;
	run->renewed = sent;
	run->at_end = strcmp(end, " t") == 0 ? ENDING_JOB_LIMIT : ENDING_LOST;
	if (sent + left > run->end)
		run->end = sent + left;
	return true;
}

/*
 * note_tick - note until when a call that was refused sleeps, and then asks again; or never
 *
 * It does so once: the next tick is that of another call.  With --wait the server has waited,
 * and the call takes no longer than that.
 */
static void
note_tick(const Server *server, const PGresult *result, Beginning *beginning)
{
	Usec		now = Now();
	Usec		latest = server->options->wait < 0 ? now + EARLY_MAX : beginning->wait_end;
	int64_t		left = read_number(result, 6, INT_MAX);
	bool		again = beginning->tick_at != NEVER || beginning->uncertain;

	beginning->tick_at = NEVER;
	if (!again && left > 0 && now + left < latest && strcmp(PQgetvalue(result, 0, 5), "not due") == 0)
		beginning->tick_at = now + left;
}

/*
 * read_run - read the answer of shedlock_run_begin
 *
 * Returns 0; EXIT_BUSY, whatever --busy-exit says: that may be 0; or -1 if the answer
 * makes no sense.
 */
static int
read_run(Server *server, const PGresult *result, Usec sent, Run *run, Beginning *beginning)
{
	if (PQgetisnull(result, 0, 0))
	{
		note_tick(server, result, beginning);
		if (beginning->tick_at == NEVER && (server->options->verbose || isatty(STDERR_FILENO)))
			Complain("\"%s\" was not run: %s", server->options->name, PQgetvalue(result, 0, 2));
		return EXIT_BUSY;
	}
	NoteSession(server, result, 4);
	run->token = read_number(result, 0, INT64_MAX);
	if (run->token > 0 && (PQgetisnull(result, 0, 1) || read_tick(result, run)) &&
		read_lease(result, 7, sent, run))
		return 0;
	run->token = 0;
	run->attempt = 0;
	ComplainOnce(server, "the server begins a run, but does not say which");
	return -1;
}

/*
 * RefusedWith - the exit status of the program after the server has refused a statement
 *
 * An SQLSTATE of class 22 is about what the caller has given.
 */
int
RefusedWith(const PGresult *result)
{
	return HasClass(result, "22") ? EXIT_USAGE : EXIT_NO_SERVER;
}

/*
 * refuse - the server has refused a statement; returns -1 to try again, or the exit status
 */
static int
refuse(Server *server, const PGresult *result)
{
	ShowError(server, result);

	/*
	 * The connection fails, the server shuts down, it is a standby now, or
	 * the transaction was not serializable.
	 */
	if (HasClass(result, "08") || HasClass(result, "57") || HasClass(result, "25") ||
		HasClass(result, "40"))
		return -1;
	return RefusedWith(result);
}

/*
 * declare - declare the job, if the program was told what it is
 *
 * Returns 0, -1 to try again, or the exit status of the program.
 */
static int
declare(Server *server, Beginning *beginning)
{
	PGresult   *result;
	char	   *statement;
	int			status = -1;

	if (beginning->declared)
		return 0;
	statement = StatementOfJob(server);
	result = Ask(server, statement, 1, Now() + PATIENCE, true);
	free(statement);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		const char *word = PQgetvalue(result, 0, 0);

		beginning->declared = true;
		status = 0;
		if (server->options->verbose && strcmp(word, "unchanged") != 0)
			Complain("job \"%s\" was %s", server->options->name, word);
	}
	else if (result && !ToldToEnd(server))
		status = refuse(server, result);
	PQclear(result);
	if (status == -1)
		Disconnect(server);
	return status;
}

/*
 * sleep_until_tick - sleep until the tick, without a connection
 *
 * Returns false if there is none to wait for, or the program was told to end.
 */
static bool
sleep_until_tick(Server *server, const Beginning *beginning)
{
	if (beginning->tick_at == NEVER)
		return false;
	Disconnect(server);
	while (Now() < beginning->tick_at && !ToldToEnd(server))
		WaitForWord(server, beginning->tick_at);
	return !ToldToEnd(server);
}

/*
 * prepare_to_begin - connect, find the extension, and declare the job
 *
 * Returns 0, -1 to try again, or the exit status of the program.
 */
static int
prepare_to_begin(Server *server, Beginning *beginning)
{
	int			status;
	bool		connected;

	MayEndAtOnce = 1;
	connected = ConnectServer(server);
	MayEndAtOnce = 0;
	if (!connected)
		return -1;
	status = FindSchema(server);
	if (status != 0)
		return server->conn ? status : -1;
	if (ToldToEnd(server))
		return -1;
	return declare(server, beginning);
}

/*
 * try_to_begin - one attempt to begin the run
 *
 * Returns -1 to try again, 0, or the exit status of the program.  *uncertain is set if
 * a run may have begun although there is no answer.
 */
static int
try_to_begin(Server *server, Run *run, Beginning *beginning, bool *uncertain)
{
	PGresult   *result;
	char	   *statement;
	Usec		wait;
	Usec		sent;
	int			status = prepare_to_begin(server, beginning);

	if (status != 0)
		return status;
	sent = Now();
	wait = beginning->wait_end > sent ? beginning->wait_end - sent : 0;
	statement = StatementOfBegin(server, wait);
	result = Ask(server, statement, BEGIN_COLUMNS, sent + wait + PATIENCE, true);
	free(statement);

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		status = read_run(server, result, sent, run, beginning);
	else if (result == NULL || ToldToEnd(server))
		status = -1;
	else
		status = refuse(server, result);
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
	Usec		give_up = LeaseStop(&run->lease, Now() + run->lease.length);

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
 * settle - make sure that the lease of a run that has begun is fresh, and is judged right
 *
 * start: when the call was made.  Time that a wait has taken counts; and a cancelled wait for the
 * standby counts as no answer.  Returns 0, or the exit status of the program.
 */
static int
settle(Server *server, Run *run, const Beginning *beginning, Usec start)
{
	int			status = 0;

	if (beginning->uncertain || server->unconfirmed || Now() - start > run->lease.heartbeat)
		status = refresh(server, run);
	if (status == 0 && run->at_end == ENDING_JOB_LIMIT)
		ShortenLease(&run->lease, run->end - run->renewed);
	return status;
}

/*
 * may_try_again - may another attempt follow one that has had no answer?
 *
 * Without --wait one attempt is made to reach a server.  If its answer is lost others follow,
 * as long as the run that the first of them may have begun has time left.  They wait for the
 * lock, because the first statement may still be at work, and hold it.
 */
static bool
may_try_again(Server *server, const Run *run, Beginning *beginning, bool uncertain)
{
	if (uncertain && !beginning->uncertain)
	{
		Usec		lost = LeaseStop(&run->lease, Now() + run->lease.length);

		beginning->uncertain = true;
		if (beginning->wait_end < lost)
			beginning->wait_end = lost;
	}
	if (ToldToEnd(server))
		return false;
	if (Now() < beginning->wait_end)
		return true;
	ComplainOnce(server, "the server did not answer");
	return false;
}

/*
 * await_next_try - sleep between two attempts that have had no answer
 *
 * A server that refuses each connection is not asked all the time.  A run that may have begun is
 * asked for soon.
 */
static void
await_next_try(const Server *server, Beginning *beginning)
{
	Usec		until = Now() + (beginning->uncertain ? RETRY_NAP : beginning->nap);

	WaitForWord(server, until < beginning->wait_end ? until : beginning->wait_end);
	beginning->nap = beginning->nap * 2 < BEGIN_NAP_MAX ? beginning->nap * 2 : BEGIN_NAP_MAX;
}

/*
 * BeginRun - begin the run, with a lease that is fresh
 *
 * Returns 0, or the exit status of the program; run->token may be set in both cases.
 */
int
BeginRun(Server *server, Run *run)
{
	const Options *options = server->options;
	Beginning	beginning = {
		.wait_end = Now() + (options->wait > 0 ? options->wait : 0),
		.nap = RETRY_NAP,
		.declared = options->schedule == NULL,
		.tick_at = NEVER
	};

	run->lease = options->lease;
	for (;;)
	{
		Usec		start = Now();
		bool		uncertain = false;
		int			status = try_to_begin(server, run, &beginning, &uncertain);

		if (status == 0)
			return settle(server, run, &beginning, start);
		if (status == EXIT_BUSY && sleep_until_tick(server, &beginning))
			continue;
		if (status >= 0)
			return status == EXIT_USAGE && beginning.uncertain ? EXIT_NO_SERVER : status;
		if (!may_try_again(server, run, &beginning, uncertain))
			return EXIT_NO_SERVER;
		await_next_try(server, &beginning);
		if (ToldToEnd(server))
			return EXIT_NO_SERVER;
	}
}

/*
 * ask_about_run - ask a question about the run that is answered with yes or no, and SESSION
 *
 * columns: what it asks for, at least these two.  An answer that is not known to be on the
 * synchronous standby is none, unless it is no.  Nor is any other word.  *result: of an answer
 * that is yes; the caller clears it.
 */
static Answer
ask_about_run(Server *server, char *question, int columns, Usec until, PGresult **result)
{
	Answer		answer = ANSWER_NONE;

	*result = Ask(server, question, columns, until, false);
	free(question);
	if (PQresultStatus(*result) == PGRES_TUPLES_OK)
	{
		const char *word = PQgetvalue(*result, 0, 0);

		NoteSession(server, *result, 1);
		if (strcmp(word, "f") == 0)
			answer = ANSWER_NO;
		else if (strcmp(word, "t") == 0 && !server->unconfirmed)
			answer = ANSWER_YES;
	}
	else if (*result)
	{
		ShowError(server, *result);
		Disconnect(server);
	}
	if (answer != ANSWER_NONE)
		server->complained = false;
	return answer;
}

/*
 * ExtendRun - try to extend the lease; sets run->end if it is extended
 *
 * The server says no to an extension that the job's lock_at_most_for cuts short, and how long the
 * lock is still held.
 *
 * ANSWER_NO: the lock is lost.
 */
Answer
ExtendRun(Server *server, Run *run)
{
	Answer		answer;
	PGresult   *result;
	char	   *statement;
	Usec		sent;

	if (!ConnectServer(server))
		return ANSWER_NONE;
	statement = StatementOfExtend(server, run);
	sent = Now();
	answer = ask_about_run(server, statement, 3, sent + LeasePatience(&run->lease), &result);
	if (answer == ANSWER_YES && !read_lease(result, 2, sent, run))
		answer = ANSWER_NONE;
	else if (answer == ANSWER_NO && !server->unconfirmed && read_lease(result, 2, sent, run))
		answer = ANSWER_YES;
	PQclear(result);
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
	PGresult   *result;

	if (!ConnectServer(server))
		return ANSWER_NONE;
	answer = ask_about_run(server, StatementOfEnd(server, run, outcome, message, exit_code), 2,
						   Now() + LeasePatience(&run->lease), &result);
	PQclear(result);
	return answer;
}
