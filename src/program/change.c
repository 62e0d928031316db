/*-------------------------------------------------------------------------
 *
 * change.c
 *	  Runs a command of --watch: that of one change, or that of --alive.
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program/server.h"

/* What the command has of them in its environment */
static const char *const variables[] = {
	[COLUMN_NAME] = "SHEDLOCK_NAME",
	[COLUMN_PROBLEM] = "SHEDLOCK_PROBLEM",
	[COLUMN_STATE] = "SHEDLOCK_STATE",
	[COLUMN_SINCE] = "SHEDLOCK_SINCE",
	[COLUMN_MESSAGE] = "SHEDLOCK_MESSAGE",
	[COLUMN_DESCRIPTION] = "SHEDLOCK_DESCRIPTION"
};

static int	children;			/* signalfd of SIGCHLD */

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
execute(Server *server, char *const *command, const PGresult *news, int row, pid_t parent)
{
	sigset_t	none;
	int			problem;

	(void) setpgid(0, 0);
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_NO_RESOURCES);
	ForgetServer(server);
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
await(const Options *options, pid_t pid)
{
	Usec		end = Now() + options->each_at_most;
	int			number = SIGTERM;
	int			status;

	while (waitpid(pid, &status, WNOHANG) != pid)
	{
		struct pollfd child = {.fd = children,.events = POLLIN};
		struct signalfd_siginfo ignored;

		if (poll(&child, 1, PollTimeout(end)) > 0)
			(void) !read(children, &ignored, sizeof(ignored));
		if (Now() < end)
			continue;
		SignalCommand(number);
		number = SIGKILL;
		end = Now() + options->lease.kill_after;
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
 * WatchChildren - watch for the ends of commands, before the first one is run
 *
 * Returns false, with errno, if the system refuses a descriptor.
 */
bool
WatchChildren(void)
{
	sigset_t	child;

	(void) sigemptyset(&child);
	(void) sigaddset(&child, SIGCHLD);
	(void) sigprocmask(SIG_BLOCK, &child, NULL);
	children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	return children >= 0;
}

/*
 * RunCommand - run a command to its end; returns whether it has succeeded
 *
 * news: the row of the change, or NULL.
 */
bool
RunCommand(Server *server, char *const *command, const PGresult *news, int row)
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
		execute(server, command, news, row, parent);
	(void) setpgid(pid, pid);
	WatchCommand(pid);
	status = await(server->options, pid);
	if (WIFSIGNALED(status))
		Complain("\"%s\" was ended by signal %d (%s)", command[0], WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (status != 0)
		Complain("\"%s\" has failed with exit status %d", command[0], WEXITSTATUS(status));
	return status == 0;
}
