/*-------------------------------------------------------------------------
 *
 * output.c
 *	  Copies what the command writes to its standard streams.
 *
 * It is for the guardian, which nothing may block: a thread for each stream, because a
 * terminal that is stopped takes none for any time.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "program/program.h"

/* A thread that passes on what the command writes to a standard stream */
typedef struct Copier
{
	int			stream;
	int			ends[2];		/* of the pipe from the command; -1: none */
	int			to;
	Tail	   *tail;			/* or NULL */
	_Atomic bool writing;		/* it does not read until that is done, and
								 * unset */
	pthread_t	thread;
} Copier;

static Copier copiers[] = {
	{.stream = STDOUT_FILENO,.ends = {-1, -1}},
	{.stream = STDERR_FILENO,.ends = {-1, -1}}
};

#define COPIERS				2

/*
 * OpenPipes - create the pipes of the streams that are copied
 *
 * output, error: descriptors that get what the command writes to the stream of that name;
 * -1: that stream is not copied.  tail gets the end of standard error, unless it is NULL.
 * Ends the process if there is no pipe.
 */
void
OpenPipes(int output, int error, Tail *tail)
{
	copiers[0].to = output;
	copiers[1].to = error;
	copiers[1].tail = tail;
	for (int i = 0; i < COPIERS; i++)
	{
		if (copiers[i].to >= 0 && pipe2(copiers[i].ends, O_CLOEXEC) != 0)
			Die(EXIT_NO_RESOURCES, "could not create a pipe: %s", strerror(errno));
	}
}

/*
 * ConnectOutput - in the command's process: let its streams write to the pipes
 */
void
ConnectOutput(void)
{
	for (int i = 0; i < COPIERS; i++)
	{
		if (copiers[i].ends[1] >= 0)
			(void) dup2(copiers[i].ends[1], copiers[i].stream);
	}
}

/*
 * copy - thread: pass on what the command writes, and keep its end
 */
static void *
copy(void *arg)
{
	Copier	   *copier = arg;
	char		data[4096];
	ssize_t		length;
	bool		complained = false;

	while ((length = read(copier->ends[0], data, sizeof(data))) > 0 || (length < 0 && errno == EINTR))
	{
		if (length > 0 && copier->tail)
			AppendTail(copier->tail, data, (size_t) length);
		atomic_store(&copier->writing, true);
		if (length > 0 && !WriteAll(copier->to, data, (size_t) length) && !complained)
		{
			Complain("could not write all output of the command: %s", strerror(errno));
			complained = true;
		}
		if (!atomic_exchange(&copier->writing, false))
			break;
	}
	return NULL;
}

/*
 * CopyOutput - start the threads, after the command: that is a child of the main thread
 *
 * Kills all children, and ends the process, if there is no thread.
 */
void
CopyOutput(void)
{
	for (int i = 0; i < COPIERS; i++)
	{
		int			error;

		if (copiers[i].ends[0] < 0)
			continue;
		(void) close(copiers[i].ends[1]);
		error = pthread_create(&copiers[i].thread, NULL, copy, &copiers[i]);
		if (error != 0)
		{
			KillChildren();
			Die(EXIT_NO_RESOURCES, "could not create a thread: %s", strerror(error));
		}
	}
}

/*
 * OutputCopied - have the threads ended?  They do when no process has a pipe any more
 *
 * Does not wait.  Joins those that have, and closes their pipes.
 */
bool
OutputCopied(void)
{
	bool		copied = true;

	for (int i = 0; i < COPIERS; i++)
	{
		if (copiers[i].ends[0] < 0)
			continue;
		if (pthread_tryjoin_np(copiers[i].thread, NULL) != 0)
			copied = false;
		else
		{
			(void) close(copiers[i].ends[0]);
			copiers[i].ends[0] = -1;
		}
	}
	return copied;
}

/*
 * AbandonOutput - read into the tail what its thread has not read, because it cannot write
 *
 * For the history.  That thread reads no more.
 */
void
AbandonOutput(void)
{
	for (int i = 0; i < COPIERS; i++)
	{
		Copier	   *copier = &copiers[i];
		char		data[4096];
		ssize_t		length;
		int			left = 0;

		if (copier->ends[0] < 0 || copier->tail == NULL || !atomic_exchange(&copier->writing, false))
			continue;
		(void) ioctl(copier->ends[0], FIONREAD, &left);
		for (; left > 0 && (length = read(copier->ends[0], data, sizeof(data))) > 0; left -= (int) length)
			AppendTail(copier->tail, data, (size_t) length);
	}
}
