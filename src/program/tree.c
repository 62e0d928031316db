/*-------------------------------------------------------------------------
 *
 * tree.c
 *	  The processes below this one.
 *
 * The process is a subreaper (prctl(2)): a descendant whose parent has ended becomes
 * its child.  So to kill all children again and again kills all descendants, also
 * those with a session or a process group of their own.  A child that has ended
 * keeps its process ID until it is reaped here, so the signals cannot reach a
 * stranger.  Other descendants are killed by a descriptor, as far as the system can:
 * on a busy machine each generation that has to end first costs time.
 *
 * KillChildren() may be called in a signal handler: it only makes system calls.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdalign.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program/program.h"

/* Older headers lack these; older systems answer ENOSYS. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open		434
#define SYS_pidfd_send_signal 424
#endif

#define KILL_NAP			(5 * USEC_PER_MS)
#define KILL_NAP_LONG		(500 * USEC_PER_MS)

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
 * SignalCommand - send a signal to the command's process group
 *
 * The group has the ID of the command's process, which is taken until that is reaped.
 */
void
SignalCommand(int number)
{
	if (command > 0)
		(void) kill(-command, number);
}

/*
 * read_parent - parent of a living process, by its folder in /proc; 0 if it has ended
 */
static pid_t
read_parent(int proc, const char *folder)
{
	char		stat[512];
	char	   *at;
	ssize_t		length;
	pid_t		parent = 0;
	int			process = openat(proc, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int			file;

	if (process < 0)
		return 0;
	file = openat(process, "stat", O_RDONLY | O_CLOEXEC);
	(void) close(process);
	if (file < 0)
		return 0;
	length = read(file, stat, sizeof(stat) - 1);
	(void) close(file);
	if (length <= 0)
		return 0;
	stat[length] = '\0';

	/* "pid (name) state parent ...": the name may contain anything */
	at = strrchr(stat, ')');
	if (at == NULL || at[1] != ' ' || at[2] == '\0' || at[3] != ' ' || at[2] == 'Z' || at[2] == 'X')
		return 0;
	for (at += 4; *at >= '0' && *at <= '9'; at++)
		parent = parent * 10 + (*at - '0');
	return parent;
}

/*
 * folder_name - write the name of a process's folder in /proc, which is its ID
 */
static const char *
folder_name(pid_t pid, char *room, size_t size)
{
	char	   *at = room + size;

	*--at = '\0';
	for (; pid > 0; pid /= 10)
		*--at = (char) ('0' + pid % 10);
	return at;
}

/*
 * is_below - is this process an ancestor of one with that parent?
 */
static bool
is_below(int proc, pid_t parent, pid_t me)
{
	char		room[24];

	while (parent > 1 && parent != me)
		parent = read_parent(proc, folder_name(parent, room, sizeof(room)));
	return parent == me;
}

/*
 * kill_descendant - kill a process that is no child, unless its ID has passed to a stranger
 *
 * Returns false if it may not be killed.
 */
static bool
kill_descendant(int proc, pid_t pid, pid_t me)
{
	int			process = (int) syscall(SYS_pidfd_open, pid, 0);
	bool		killed = true;

	if (process < 0)
		return true;
	if (is_below(proc, pid, me))
		killed = syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0) == 0 || errno != EPERM;
	(void) close(process);
	return killed;
}

/*
 * signal_processes - send a signal to the living children, or to all descendants
 *
 * Returns how many there are.  *refused: one of those that may not be signalled, or 0.
 */
static int
signal_processes(int number, bool all, pid_t *refused)
{
	alignas(struct dirent64) char entries[4096];
	int			proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int			found = 0;
	pid_t		me = getpid();
	ssize_t		length;

	*refused = 0;
	if (proc < 0)
		return 0;
	while ((length = getdents64(proc, entries, sizeof(entries))) > 0)
	{
		for (ssize_t at = 0; at < length;)
		{
			const struct dirent64 *entry = (const void *) (entries + at);
			const char *c = entry->d_name;
			pid_t		pid = 0;
			pid_t		parent;

			at += entry->d_reclen;
			for (; *c >= '0' && *c <= '9'; c++)
				pid = pid * 10 + (*c - '0');
			if (pid == 0 || *c != '\0')
				continue;
			parent = read_parent(proc, entry->d_name);
			if (parent != me && !(all && parent > 1 && is_below(proc, parent, me)))
				continue;
			found++;
			if (parent != me && number == SIGKILL ? !kill_descendant(proc, pid, me) :
				kill(pid, number) != 0 && errno == EPERM)
				*refused = pid;
		}
	}
	(void) close(proc);
	return found;
}

/*
 * SignalDescendants - send a signal to all processes below this one; returns how many
 */
int
SignalDescendants(int number)
{
	pid_t		refused;

	return signal_processes(number, true, &refused);
}

/*
 * warn_refused - say that a process has other privileges
 */
static void
warn_refused(pid_t pid)
{
	static const char start[] = "shedlock: waiting for a process that it may not kill: ";
	char		room[24];
	const char *folder = folder_name(pid, room, sizeof(room));

	WriteError(start, sizeof(start) - 1);
	WriteError(folder, strlen(folder));
	WriteError("\n", 1);
}

/*
 * KillChildren - kill all processes below this one; returns when none is left
 */
void
KillChildren(void)
{
	bool		warned = false;
	bool		all = true;
	pid_t		refused;

	/* Later rounds are for children, new ones as well: they are found faster. */
	for (; ReapChildren(); all = false)
	{
		SignalCommand(SIGKILL);
		(void) signal_processes(SIGKILL, all, &refused);
		if (refused != 0 && !warned)
		{
			warn_refused(refused);
			warned = true;
		}
		Nap(refused != 0 ? KILL_NAP_LONG : KILL_NAP);
	}
}
