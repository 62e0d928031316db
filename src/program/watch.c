/*-------------------------------------------------------------------------
 *
 * watch.c
 *	  The work of --watch: tells a command what is wrong with jobs, and what is right again.
 *
 * It is the command of a run, and so of one host at a time: the guardian ends it when the lease
 * is over.  The server remembers what was told.  It is told of that after the command, so that a
 * watcher which dies in between tells twice, and never nothing.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include "program/server.h"

/* Notifications bring no two rounds that are closer. */
#define ROUND_NAP			(500 * USEC_PER_MS)

/* From a round without an answer to the next, and from a command that failed to its next try */
#define RETRY_FIRST			USEC_PER_SEC
#define RETRY_MAX			(300 * USEC_PER_SEC)

/* Changes in one answer: more of them would be too long for READS_MAX on a network with small packets. */
#define NEWS_MAX			100

typedef struct Watcher
{
	const Options *options;
	Server	   *server;
	char	   *alive;			/* --alive, or NULL */
	Usec		alive_at;		/* it is run at no look before */
	Trial	   *trials;
} Watcher;

/*
 * key_of - a text that only this change has; the caller frees it
 */
static char *
key_of(const PGresult *news, int row)
{
	Statement	key;

	BeginStatement(&key);
	for (int column = COLUMN_NAME; column <= COLUMN_SINCE; column++)
		fprintf(key.stream, "%s\n", PQgetvalue(news, row, column));
	return EndStatement(&key);
}

/*
 * find_trial - where the trial of a change is, or the end of the list
 */
static Trial **
find_trial(Watcher *watcher, const char *key)
{
	Trial	  **trial = &watcher->trials;

	while (*trial && strcmp((*trial)->key, key) != 0)
		trial = &(*trial)->next;
	return trial;
}

/*
 * new_trial - the trial of a change that was not tried yet
 */
static Trial *
new_trial(char *key, const char *name)
{
	Trial	   *trial = calloc(1, sizeof(Trial) + strlen(name) + 1);

	if (trial == NULL)
		Die(EXIT_NO_RESOURCES, "out of memory");
	trial->key = key;
	strcpy(trial->name, name);
	return trial;
}

/*
 * free_trial - take a trial out of the list
 */
static void
free_trial(Trial **trial)
{
	Trial	   *old = *trial;

	*trial = old->next;
	free(old->key);
	free(old);
}

/*
 * try_change - tell the command of a change, and then the server; returns whether that is done
 *
 * If it fails, it is for a later round.
 */
static bool
try_change(Watcher *watcher, const PGresult *news, int row)
{
	char	   *key = key_of(news, row);
	Trial	  **place = find_trial(watcher, key);
	Trial	   *trial = *place;

	if (trial == NULL)
		*place = trial = new_trial(key, PQgetvalue(news, row, COLUMN_NAME));
	else
		free(key);
	if (Now() < trial->again_at)
		return false;
	if (!trial->told && RunCommand(watcher->server, watcher->options->command, news, row))
	{
		trial->told = true;
		trial->nap = 0;
	}
	if (trial->told && TellServer(watcher->server, news, row))
	{
		free_trial(place);
		return true;
	}
	trial->nap = trial->nap == 0 ? RETRY_FIRST : trial->nap * 2;
	if (trial->nap > RETRY_MAX)
		trial->nap = RETRY_MAX;
	trial->again_at = Now() + trial->nap;
	return false;
}

/*
 * is_held_up - has an earlier change of the same name failed?
 */
static bool
is_held_up(const PGresult *news, int row, const bool *failed)
{
	for (int before = 0; before < row; before++)
	{
		if (failed[before] && strcmp(PQgetvalue(news, before, COLUMN_NAME), PQgetvalue(news, row, COLUMN_NAME)) == 0)
			return true;
	}
	return false;
}

/*
 * tell_all - tell all changes, those of a name in their order; returns how many could not be told
 *
 * Stops when it is told to end, and when the server does not answer.
 */
static int
tell_all(Watcher *watcher, const PGresult *news)
{
	int			rows = PQntuples(news);
	bool	   *failed = calloc((size_t) rows + 1, sizeof(bool));
	int			left = rows;

	if (failed == NULL)
		Die(EXIT_NO_RESOURCES, "out of memory");
	for (int row = 0; row < rows && !ToldToEnd(watcher->server) && watcher->server->conn; row++)
	{
		failed[row] = is_held_up(news, row, failed) || !try_change(watcher, news, row);
		left -= !failed[row];
	}
	free(failed);
	return left;
}

/*
 * listen_first - LISTEN, if the session is the connection's own, and nobody has yet
 *
 * Before the look at the news, so that nothing is missed.
 */
static void
listen_first(Server *server)
{
	PGresult   *result;

	if (server->tried || !ConnectServer(server))
		return;
	result = Ask(server, "SELECT " SESSION, 1, Now() + PATIENCE, true);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		NoteSession(server, result, 0);
		Listen(server);

		/* if the connection broke just now, the next one tells nothing yet */
		server->tried = server->conn != NULL;
	}
	PQclear(result);
}

/*
 * forget_trials - forget the trials of changes that are no news any more
 */
static void
forget_trials(Watcher *watcher, const PGresult *news)
{
	for (Trial **trial = &watcher->trials; *trial;)
	{
		bool		is_news = false;

		for (int row = 0; row < PQntuples(news) && !is_news; row++)
		{
			char	   *key = key_of(news, row);

			is_news = strcmp(key, (*trial)->key) == 0;
			free(key);
		}
		if (is_news)
			trial = &(*trial)->next;
		else
			free_trial(trial);
	}
}

/*
 * look - one round; returns when the next one is due
 */
static Usec
look(Watcher *watcher)
{
	const Options *options = watcher->options;
	char	   *alive[] = {"sh", "-c", watcher->alive, NULL};
	Usec		start = Now();
	Usec		next = start + options->every;
	PGresult   *news;
	int			left;

	listen_first(watcher->server);
	news = AskForNews(watcher->server, watcher->trials, NEWS_MAX);
	if (news == NULL)
		return Now() + RETRY_FIRST;
	if (PQntuples(news) < NEWS_MAX)
		forget_trials(watcher, news);
	left = tell_all(watcher, news);

	/* There may be more, or the end of what was told just now. */
	if (left < PQntuples(news))
		next = Now();
	else if (left == 0 && watcher->alive && start < watcher->alive_at)
		next = watcher->alive_at;
	else if (left == 0 && watcher->alive)
	{
		(void) RunCommand(watcher->server, alive, NULL, 0);
		watcher->alive_at = next;
	}
	PQclear(news);
	for (Trial *trial = watcher->trials; trial; trial = trial->next)
	{
		/* what was due, and not asked for, is no reason for another round */
		if (start < trial->again_at && trial->again_at < next)
			next = trial->again_at;
	}
	return next;
}

/*
 * rest - sleep until that instant, until the server tells of a run, or until told to end
 */
static void
rest(Server *server, Usec until)
{
	Usec		quiet = Now() + ROUND_NAP;

	while (Now() < until && !HearsOf(server, 0))
	{
		struct pollfd polls[] = {
			{.fd = server->wakeup,.events = POLLIN},
			{.fd = ListeningSocket(server),.events = POLLIN}
		};

		if (poll(polls, 2, PollTimeout(until)) > 0 && polls[0].revents != 0)
			return;
	}
	if (Now() < until)
		WaitForWord(server, quiet < until ? quiet : until);
}

/*
 * Watch - tell the command of each change, until this process is told to end
 *
 * A command that is at work then comes to its end first.
 */
void
Watch(const Options *options)
{
	Watcher		watcher = {.options = options};
	sigset_t	ends;

	if (options->alive)
		watcher.alive = strdup(options->alive);
	(void) prctl(PR_SET_NAME, "shedlock-watch");
	(void) signal(SIGPIPE, SIG_IGN);

	/*
	 * Ctrl-Z, or a message to a terminal with tostop: the lease would be
	 * extended, and no host would watch.
	 */
	(void) signal(SIGTSTP, SIG_IGN);
	(void) signal(SIGTTOU, SIG_IGN);
	(void) sigemptyset(&ends);
	(void) sigaddset(&ends, SIGTERM);
	(void) sigaddset(&ends, SIGINT);
	(void) sigaddset(&ends, SIGQUIT);
	(void) sigaddset(&ends, SIGHUP);
	(void) sigprocmask(SIG_BLOCK, &ends, NULL);
	watcher.server = NewServer(options, signalfd(-1, &ends, SFD_CLOEXEC));
	if (!WatchChildren() || watcher.server->wakeup < 0)
		Die(EXIT_NO_RESOURCES, "could not watch: %s", strerror(errno));
	while (!ToldToEnd(watcher.server))
		rest(watcher.server, look(&watcher));
	Disconnect(watcher.server);
	exit(EXIT_SUCCESS);
}
