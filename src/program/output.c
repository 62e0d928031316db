/*-------------------------------------------------------------------------
 *
 * output.c
 *	  Passes on what the command writes to standard error, and keeps its end.
 *
 * It is for the guardian, which nothing may block: a thread, because a terminal that is
 * stopped takes none for any time.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "program/program.h"

static int	ends[2] = {-1, -1}; /* of the pipe from the command; -1: none */
static Tail *kept_end;
static _Atomic bool writing;	/* the thread does not read until that is
								 * done, and unset */
static pthread_t thread;

/*
 * OpenPipe - create the pipe; tail gets the end of what is written to it
 *
 * Without this, the other functions do nothing, and standard error is the command's own.
 * Ends the process if there is no pipe.
 */
void
OpenPipe(Tail *tail)
{
	kept_end = tail;
	if (pipe2(ends, O_CLOEXEC) != 0)
		Die(EXIT_NO_RESOURCES, "could not create a pipe: %s", strerror(errno));
}

/*
 * ConnectOutput - in the command's process: let standard error write to the pipe
 */
void
ConnectOutput(void)
{
	if (ends[1] >= 0)
		(void) dup2(ends[1], STDERR_FILENO);
}

/*
 * write_all - write all of it, however long that takes, unless that fails
 */
static void
write_all(const char *data, size_t length)
{
	while (length > 0)
	{
		struct pollfd polls = {.fd = STDERR_FILENO,.events = POLLOUT};
		ssize_t		written = write(STDERR_FILENO, data, length);

		if (written >= 0)
		{
			data += written;
			length -= (size_t) written;
		}
		else if (errno == EAGAIN)
			(void) poll(&polls, 1, -1);
		else
			return;
	}
}

/*
 * copy - thread: pass on what the command writes, and keep its end
 */
static void *
copy(void *arg)
{
	char		data[4096];
	ssize_t		length;

	(void) arg;

	/* No signal interrupts this: the guardian blocks them. */
	while ((length = read(ends[0], data, sizeof(data))) > 0)
	{
		AppendTail(kept_end, data, (size_t) length);
		atomic_store(&writing, true);
		write_all(data, (size_t) length);
		if (!atomic_exchange(&writing, false))
			break;
	}
	return NULL;
}

/*
 * CopyOutput - start the thread, after the command: that is a child of the main thread
 *
 * Kills all children, and ends the process, if there is no thread.
 */
void
CopyOutput(void)
{
	int			error;

	if (ends[0] < 0)
		return;
	(void) close(ends[1]);
	error = pthread_create(&thread, NULL, copy, NULL);
	if (error != 0)
	{
		KillChildren();
		Die(EXIT_NO_RESOURCES, "could not create a thread: %s", strerror(error));
	}
}

/*
 * OutputCopied - has the thread ended?  It does when no process has the pipe any more
 *
 * Does not wait.  Joins a thread that has, and closes its pipe.
 */
bool
OutputCopied(void)
{
	if (ends[0] >= 0 && pthread_tryjoin_np(thread, NULL) == 0)
	{
		(void) close(ends[0]);
		ends[0] = -1;
	}
	return ends[0] < 0;
}

/*
 * AbandonOutput - read into the tail what the thread has not read, because it cannot write
 *
 * For the history.  The thread reads no more.
 */
void
AbandonOutput(void)
{
	char		data[4096];
	ssize_t		length;
	int			left = 0;

	if (ends[0] < 0 || !atomic_exchange(&writing, false))
		return;
	(void) ioctl(ends[0], FIONREAD, &left);
	for (; left > 0 && (length = read(ends[0], data, sizeof(data))) > 0; left -= (int) length)
		AppendTail(kept_end, data, (size_t) length);
}
