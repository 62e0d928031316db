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
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program/server.h"

/* Notifications bring no two rounds that are closer. */
#define ROUND_NAP			(500 * USEC_PER_MS)

/* From a round without an answer to the next, and from a command that failed to its next try */
#define RETRY_FIRST			USEC_PER_SEC
#define RETRY_MAX			(300 * USEC_PER_SEC)

/*
 * An open transaction that has seen the same news would hold up the statements of a watcher.  The
 * server does not notice that one of them is given up, so it ends them by itself: else each try
 * would leave a session.  Less than PATIENCE.
 */
#define LOCK_PATIENCE		"SET LOCAL lock_timeout = '10s'; "

/* Changes in one answer: more of them would be too long for READS_MAX on a network with small packets. */
#define NEWS_MAX			100

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

/* What the command has of them in its environment */
static const char *const variables[] = {
	[COLUMN_NAME] = "SHEDLOCK_NAME",
	[COLUMN_PROBLEM] = "SHEDLOCK_PROBLEM",
	[COLUMN_STATE] = "SHEDLOCK_STATE",
	[COLUMN_SINCE] = "SHEDLOCK_SINCE",
	[COLUMN_MESSAGE] = "SHEDLOCK_MESSAGE",
	[COLUMN_DESCRIPTION] = "SHEDLOCK_DESCRIPTION"
};

/* A change of which the command, or the server, could not be told yet */
typedef struct Trial
{
	struct Trial *next;
	char	   *key;			/* see key_of() */
	char	   *name;			/* of the job; its other changes wait */
	bool		told;			/* the command was; the server is to be told */
	Usec		nap;			/* from the last try to the next */
	Usec		again_at;		/* the next one */
} Trial;

typedef struct Watcher
{
	const Options *options;
	Server	   *server;
	char	   *alive;			/* --alive, or NULL */
	Usec		alive_at;		/* it is run at no look before */
	int			children;		/* signalfd of SIGCHLD */
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
 * free_trial - take a trial out of the list
 */
static void
free_trial(Trial **trial)
{
	Trial	   *old = *trial;

	*trial = old->next;
	free(old->key);
	free(old->name);
	free(old);
}

/*
 * open_input - a file with one line, to be read; or -1
 */
static int
open_input(const char *line)
{
	int			file = memfd_create("shedlock", MFD_CLOEXEC);

	if (file >= 0 && (dprintf(file, "%s\n", line) < 0 || lseek(file, 0, SEEK_SET) != 0))
	{
		(void) close(file);
		return -1;
	}
	return file;
}

/*
 * execute - become the command
 *
 * news: the row of the change, or NULL.
 */
static void
__attribute__((noreturn))
execute(Watcher *watcher, char *const *command, const PGresult *news, int row, pid_t parent)
{
	sigset_t	none;
	int			problem;

	(void) setpgid(0, 0);
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_NO_RESOURCES);
	ForgetServer(watcher->server);
	if (news)
	{
		int			input = open_input(PQgetvalue(news, row, COLUMN_JSON));

		if (input < 0 || dup2(input, STDIN_FILENO) < 0)
			Die(EXIT_NO_RESOURCES, "could not write the input of \"%s\": %s", command[0], strerror(errno));
		for (int column = COLUMN_NAME; column < COLUMN_JSON; column++)
			(void) setenv(variables[column], PQgetvalue(news, row, column), 1);
	}
	(void) signal(SIGPIPE, SIG_DFL);
	(void) signal(SIGTSTP, SIG_DFL);
	(void) signal(SIGTTOU, SIG_DFL);
	(void) sigemptyset(&none);
	(void) sigprocmask(SIG_SETMASK, &none, NULL);
	(void) execvp(command[0], command);
	problem = errno;
	Complain("could not execute \"%s\": %s", command[0], strerror(problem));
	_exit(problem == ENOENT ? EXIT_NO_COMMAND : EXIT_NO_EXEC);
}

/*
 * await - wait for a process, which has had its time at some instant; returns its wait status
 *
 * Then it is told to end, with its process group, and what has not ended later is killed.  The
 * system gives its process ID to no other process while the group has members.
 */
static int
await(const Watcher *watcher, pid_t pid)
{
	Usec		end = Now() + watcher->options->each_at_most;
	int			number = SIGTERM;
	int			status;

	while (waitpid(pid, &status, WNOHANG) != pid)
	{
		struct pollfd child = {.fd = watcher->children,.events = POLLIN};
		struct signalfd_siginfo ignored;

		if (poll(&child, 1, PollTimeout(end)) > 0)
			(void) !read(watcher->children, &ignored, sizeof(ignored));
		if (Now() < end)
			continue;
		SignalCommand(number);
		number = SIGKILL;
		end = Now() + watcher->options->lease.kill_after;
	}
	if (number == SIGKILL)
	{
		while (Now() < end && kill(-pid, 0) == 0)
			Nap(KILL_NAP);
		(void) kill(-pid, SIGKILL);
	}
	return status;
}

/*
 * run - run a command; returns whether it has succeeded
 */
static bool
run(Watcher *watcher, char *const *command, const PGresult *news, int row)
{
	pid_t		parent = getpid();
	pid_t		pid = fork();
	int			status;

	if (pid < 0)
	{
		Complain("could not create a process: %s", strerror(errno));
		return false;
	}
	if (pid == 0)
		execute(watcher, command, news, row, parent);
	(void) setpgid(pid, pid);
	WatchCommand(pid);
	status = await(watcher, pid);
	if (WIFSIGNALED(status))
		Complain("\"%s\" was ended by signal %d (%s)", command[0], WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (status != 0)
		Complain("\"%s\" has failed with exit status %d", command[0], WEXITSTATUS(status));
	return status == 0;
}

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
 * tell_server - tell the server that a change was told; returns whether it knows
 */
static bool
tell_server(Server *server, const PGresult *news, int row)
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
 * try_change - tell the command of a change, and then the server; returns whether that is done
 *
 * If it fails, it is for a later round.
 */
static bool
try_change(Watcher *watcher, const PGresult *news, int row)
{
	char	   *key = key_of(news, row);
	Trial	  **trial = find_trial(watcher, key);

	if (*trial == NULL)
	{
		char	   *name = strdup(PQgetvalue(news, row, COLUMN_NAME));

		*trial = calloc(1, sizeof(Trial));
		if (*trial == NULL || name == NULL)
			Die(EXIT_NO_RESOURCES, "out of memory");
		(*trial)->key = key;
		(*trial)->name = name;
	}
	else
		free(key);
	if (Now() < (*trial)->again_at)
		return false;
	if (!(*trial)->told && run(watcher, watcher->options->command, news, row))
	{
		(*trial)->told = true;
		(*trial)->nap = 0;
	}
	if ((*trial)->told && tell_server(watcher->server, news, row))
	{
		free_trial(trial);
		return true;
	}
	(*trial)->nap = (*trial)->nap == 0 ? RETRY_FIRST : (*trial)->nap * 2;
	if ((*trial)->nap > RETRY_MAX)
		(*trial)->nap = RETRY_MAX;
	(*trial)->again_at = Now() + (*trial)->nap;
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
 * ask_for_news - ask for the changes that were not told; NULL, with the connection closed, if
 * there is no answer
 *
 * trials, most: see statement_of_news().
 */
static PGresult *
ask_for_news(Server *server, const Trial *trials, int most)
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
		server->tried = true;
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
	news = ask_for_news(watcher->server, watcher->trials, NEWS_MAX);
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
		(void) run(watcher, alive, NULL, 0);
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
	sigset_t	child;

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
	(void) sigemptyset(&child);
	(void) sigaddset(&child, SIGCHLD);
	(void) sigemptyset(&ends);
	(void) sigaddset(&ends, SIGTERM);
	(void) sigaddset(&ends, SIGINT);
	(void) sigaddset(&ends, SIGQUIT);
	(void) sigaddset(&ends, SIGHUP);
	(void) sigprocmask(SIG_BLOCK, &child, NULL);
	(void) sigprocmask(SIG_BLOCK, &ends, NULL);
	watcher.children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	watcher.server = NewServer(options, signalfd(-1, &ends, SFD_CLOEXEC));
	if (watcher.children < 0 || watcher.server->wakeup < 0)
		Die(EXIT_NO_RESOURCES, "could not watch: %s", strerror(errno));
	while (!ToldToEnd(watcher.server))
		rest(watcher.server, look(&watcher));
	Disconnect(watcher.server);
	exit(EXIT_SUCCESS);
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
	news = begun ? ask_for_news(server, NULL, INT_MAX) : NULL;
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
