/*-------------------------------------------------------------------------
 *
 * quiet.c
 *	  The files of --quiet: they hold the output of the command until it is shown.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "program/program.h"

/* The signals that end the program while it shows output */
static const int ending_signals[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGALRM};

#define ENDING_SIGNALS		(sizeof(ending_signals) / sizeof(ending_signals[0]))

static int	quiet_files[2] = {-1, -1};	/* output and error */

/*
 * new_file - a temporary file that no other process finds
 */
static int
new_file(void)
{
	FILE	   *stream = tmpfile();
	int			file = stream ? fcntl(fileno(stream), F_DUPFD_CLOEXEC, 0) : -1;

	if (file < 0)
		Die(EXIT_NO_RESOURCES, "could not create a temporary file: %s", strerror(errno));
	fclose(stream);
	return file;
}

/*
 * OpenQuietFiles - create the files; ends the program if that fails
 */
void
OpenQuietFiles(int *output, int *error)
{
	quiet_files[0] = *output = new_file();
	quiet_files[1] = *error = new_file();
}

/*
 * leave - signal handler: end the program, which only shows output any more
 */
static void
leave(int number)
{
	_exit(EXIT_SIGNAL + number);
}

/*
 * let_signals_end - let signals end the program, unless its caller ignores them
 */
static void
let_signals_end(void)
{
	struct sigaction action = {.sa_handler = leave};
	struct sigaction old;
	sigset_t	ending;

	(void) sigemptyset(&ending);
	for (size_t i = 0; i < ENDING_SIGNALS; i++)
	{
		(void) sigaddset(&ending, ending_signals[i]);
		if (sigaction(ending_signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			(void) sigaction(ending_signals[i], &action, NULL);
	}
	(void) sigprocmask(SIG_UNBLOCK, &ending, NULL);
}

/*
 * ShowQuietOutput - show what the files hold; without files, nothing
 *
 * A signal ends that, and the program.  May be called in a signal handler: pread() is not
 * in the list of signal-safety(7), but it is a system call and nothing else, as read() is.
 */
void
ShowQuietOutput(void)
{
	static const char lost[] = "shedlock: could not write all output of the command\n";
	char		data[8192];
	ssize_t		length;

	if (quiet_files[0] < 0)
		return;
	let_signals_end();
	for (int i = 0; i < 2; i++)
	{
		for (off_t at = 0; (length = pread(quiet_files[i], data, sizeof(data), at)) > 0; at += length)
		{
			if (WriteAll(i == 0 ? STDOUT_FILENO : STDERR_FILENO, data, (size_t) length))
				continue;
			WriteError(lost, sizeof(lost) - 1);
			break;
		}
	}
}
