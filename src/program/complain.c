/*-------------------------------------------------------------------------
 *
 * complain.c
 *	  What the program says on standard error.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program/program.h"

/* How long a reader of standard error may take; less than the margin of a lease */
#define READER_PATIENCE		100 /* ms */

static void say(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));

/*
 * HoldStreams - let nothing else take the place of a standard stream that is closed
 */
void
HoldStreams(void)
{
	int			null;

	do
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (null >= 0 && null <= STDERR_FILENO);
	if (null >= 0)
		(void) close(null);
}

/*
 * WriteError - write to standard error, unless that would block
 *
 * The deadlines of a lease do not wait for a reader.  A pipe that is ready takes PIPE_BUF
 * bytes at once.  May be called in a signal handler.
 */
void
WriteError(const char *data, size_t length)
{
	struct pollfd polls = {.fd = STDERR_FILENO,.events = POLLOUT};

	if (poll(&polls, 1, READER_PATIENCE) > 0)
		(void) !write(STDERR_FILENO, data, length);
}

/*
 * WriteAll - write all of it, however long that takes; returns false if that fails
 *
 * May be called in a signal handler.
 */
bool
WriteAll(int file, const char *data, size_t length)
{
	while (length > 0)
	{
		struct pollfd polls = {.fd = file,.events = POLLOUT};
		ssize_t		written = write(file, data, length);

		if (written >= 0)
		{
			data += written;
			length -= (size_t) written;
		}
		else if (errno == EAGAIN)
			(void) poll(&polls, 1, -1);
		else if (errno != EINTR)
			return false;
	}
	return true;
}

static void
say(const char *format, va_list arguments)
{
	static const char head[] = "shedlock: ";
	char		line[PIPE_BUF];
	const size_t start = sizeof(head) - 1;
	size_t		length;

	(void) strcpy(line, head);
	(void) vsnprintf(line + start, sizeof(line) - start - 1, format, arguments);
	length = strlen(line);
	line[length++] = '\n';
	WriteError(line, length);
}

/*
 * Complain - write a line
 */
void
Complain(const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
}

/*
 * Die - write a line, and exit
 */
void
Die(int status, const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
	exit(status);
}
