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

static int	hidden = -1;		/* standard error, while it is hidden; or -1 */

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
 * HideError - let what libpq writes to standard error by itself go nowhere
 *
 * It does so while it connects, and as much as the server sends.
 */
void
HideError(void)
{
	int			null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (null < 0)
		return;
	hidden = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	if (hidden >= 0)
		(void) dup2(null, STDERR_FILENO);
	(void) close(null);
}

/*
 * ShowErrorAgain - undo HideError(), if it was called
 *
 * May be called in a signal handler.
 */
void
ShowErrorAgain(void)
{
	if (hidden < 0)
		return;
	(void) dup2(hidden, STDERR_FILENO);
	(void) close(hidden);
	hidden = -1;
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
 * MaskControls - replace control characters, which terminals obey and anybody may write
 *
 * U+0080 to U+009F are two bytes of UTF-8.
 */
void
MaskControls(char *line)
{
	for (unsigned char *at = (unsigned char *) line; *at != '\0'; at++)
	{
		if (at[0] == 0xC2 && at[1] >= 0x80 && at[1] <= 0x9F)
			*at++ = '?';
		else if ((*at >= ' ' && *at != 0x7F) || *at == '\n' || *at == '\t')
			continue;
		*at = '?';
	}
}

/*
 * say - write a line
 */
static void
say(const char *format, va_list arguments)
{
	static const char head[] = "shedlock: ";
	char		line[PIPE_BUF];
	const size_t start = sizeof(head) - 1;
	size_t		length;

	(void) strcpy(line, head);
	(void) vsnprintf(line + start, sizeof(line) - start - 1, format, arguments);
	MaskControls(line);
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
