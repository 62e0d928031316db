/*-------------------------------------------------------------------------
 *
 * tree.c
 *	  The processes below this one.
 *
 * The process is a subreaper (prctl(2)): a descendant whose parent has ended becomes
 * its child.  So to kill all children again and again kills all descendants, also
 * those with a session or a process group of their own.  A child that has ended
 * keeps its process ID until it is reaped here, so its signals cannot reach a
 * stranger.  Other descendants get the signal as well, as far as they are seen: on a
 * busy machine each generation that has to end first costs time.  Their IDs were read a
 * moment before, and the system gives IDs out in turn.
 *
 * The kernel lists the children of each thread in /proc.  That shows processes of any
 * user, and the time it takes does not depend on the other processes of the system.
 * Of other processes than this one the main thread's are enough.
 *
 * KillChildren() may be called in a signal handler: it only makes system calls.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program/program.h"

/* How far signals go below a child at once, and how many bytes of IDs are read at a time */
#define DEPTH_MAX			8
#define LIST_SIZE			4096

static int	own_children = -1;	/* the list of this process */
static pid_t command = 0;		/* until it is reaped */
static bool command_ended = false;
static int	command_status;

/*
 * WatchCommand - note the command's process, which leads a process group
 */
void
WatchCommand(pid_t pid)
{
	command = pid;
}

/*
 * CommandEnded - has the command ended?  Sets its wait status.
 */
bool
CommandEnded(int *status)
{
	*status = command_status;
	return command_ended;
}

/*
 * ReapChildren - reap all children that have ended; are there others?
 */
bool
ReapChildren(void)
{
	int			status;
	pid_t		pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
	{
		if (pid == command)
		{
			command_ended = true;
			command_status = status;
			command = 0;
		}
	}
	return pid == 0;
}

/*
 * list_name - the name of the list of a process's children
 */
static void
list_name(pid_t pid, char *name)
{
	char		digits[24];
	char	   *at = digits + sizeof(digits);

	*--at = '\0';
	for (; pid > 0; pid /= 10)
		*--at = (char) ('0' + pid % 10);
	(void) strcpy(name, "/proc/");
	(void) strcat(name, at);
	(void) strcat(name, "/task/");
	(void) strcat(name, at);
	(void) strcat(name, "/children");
}

/*
 * FindChildren - prepare for the signals below, once in each process
 *
 * The file stays open, because a command may use up all descriptors of the system.
 */
void
FindChildren(void)
{
	char		name[80];
	char		self[24] = "";

	if (readlink("/proc/self", self, sizeof(self) - 1) <= 0 || atoi(self) != (int) getpid())
		Die(EXIT_NO_RESOURCES, "/proc does not show this process: is it that of another PID namespace?");
	if (own_children >= 0)
		(void) close(own_children);
	list_name(getpid(), name);
	own_children = open(name, O_RDONLY | O_CLOEXEC);
	if (own_children < 0)
		Die(EXIT_NO_RESOURCES, "could not open \"%s\": %s", name, strerror(errno));
}

/*
 * open_children - open the list of a process's children; -1 if it is gone
 */
static int
open_children(pid_t parent)
{
	char		name[80];

	if (parent == getpid())
		return own_children;
	list_name(parent, name);
	return open(name, O_RDONLY | O_CLOEXEC);
}

/*
 * read_children - read a part of a list: IDs, each followed by a blank
 *
 * Returns how many bytes it has, 0 at the end.
 */
static size_t
read_children(int file, off_t at, char *list)
{
	ssize_t		length = pread(file, list, LIST_SIZE - 1, at);

	while (length > 0 && list[length - 1] != ' ')
		length--;
	if (length < 0)
		length = 0;
	list[length] = '\0';
	return (size_t) length;
}

/*
 * signal_below - send a signal to the descendants of a process, the lowest ones first
 *
 * *refused: set to one that may not be signalled.
 */
static void
signal_below(pid_t parent, int number, int depth, pid_t *refused)
{
	char		list[LIST_SIZE];
	int			file = open_children(parent);
	off_t		read = 0;
	size_t		length;

	if (file < 0)
		return;
	while ((length = read_children(file, read, list)) > 0)
	{
		read += (off_t) length;
		for (const char *at = list; *at != '\0'; at++)
		{
			pid_t		pid = 0;

			for (; *at >= '0' && *at <= '9'; at++)
				pid = pid * 10 + (*at - '0');
			if (depth < DEPTH_MAX)
				signal_below(pid, number, depth + 1, refused);
			if (kill(pid, number) != 0 && errno == EPERM)
				*refused = pid;
		}
	}
	if (file != own_children)
		(void) close(file);
}

/*
 * SignalCommand - send a signal to the command and its process group
 *
 * The group has the ID of the command's process, which is taken until that is reaped.
 * The command may have moved to another group.
 */
void
SignalCommand(int number)
{
	if (command <= 0)
		return;
	(void) kill(-command, number);
	if (getpgid(command) != command)
		(void) kill(command, number);
}

/*
 * SignalDescendants - send a signal to all processes below this one
 */
void
SignalDescendants(int number)
{
	pid_t		refused;

	signal_below(getpid(), number, 0, &refused);
}

/*
 * KillOnce - send SIGKILL to all processes below this one; says if that is refused
 */
void
KillOnce(void)
{
	static const char text[] = "shedlock: waiting for a process that it is not permitted to kill\n";
	static bool warned = false;
	pid_t		refused = 0;

	SignalCommand(SIGKILL);
	signal_below(getpid(), SIGKILL, 0, &refused);
	if (refused != 0 && !warned)
		WriteError(text, sizeof(text) - 1);
	warned = warned || refused != 0;
}

/*
 * KillChildren - kill all processes below this one; returns when none is left
 */
void
KillChildren(void)
{
	while (ReapChildren())
	{
		KillOnce();
		Nap(KILL_NAP);
	}
}
