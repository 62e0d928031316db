/*-------------------------------------------------------------------------
 *
 * complain.c
 *	  What the program says on standard error.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stdlib.h>

#include "program/program.h"

static void say(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));

static void
say(const char *format, va_list arguments)
{
	flockfile(stderr);
	fputs("shedlock: ", stderr);
	(void) vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	funlockfile(stderr);
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
