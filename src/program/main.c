/*-------------------------------------------------------------------------
 *
 * main.c
 *	  The program shedlock.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program/program.h"

/*
 * seconds - a duration, for people to read
 */
static double
seconds(Usec duration)
{
	return (double) duration / (double) USEC_PER_SEC;
}

/*
 * flush_output - write what was printed; exits if that fails
 */
static void
flush_output(void)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		Die(EXIT_FAILURE, "could not write to standard output: %s", strerror(errno));
}

/*
 * can_execute - may this user execute a file?
 */
static bool
can_execute(const char *file)
{
	struct stat status;

	return stat(file, &status) == 0 && S_ISREG(status.st_mode) && access(file, X_OK) == 0;
}

/*
 * show_command - show where the command is, as execvp(3) looks for it; returns the exit status
 */
static int
show_command(const char *command)
{
	const char *path = getenv("PATH");
	bool		refused = false;
	char		file[PATH_MAX];

	if (strchr(command, '/'))
	{
		if (can_execute(command))
		{
			printf("command: %s\n", command);
			return 0;
		}
		Complain("could not execute \"%s\"", command);
		return access(command, F_OK) == 0 ? EXIT_NO_EXEC : EXIT_NO_COMMAND;
	}
	if (path == NULL)
		path = "/bin:/usr/bin";
	for (const char *end; path != NULL; path = *end == ':' ? end + 1 : NULL)
	{
		end = strchrnul(path, ':');
		(void) snprintf(file, sizeof(file), "%.*s%s%s", (int) (end - path), path, end > path ? "/" : "", command);
		if (*command != '\0' && can_execute(file))
		{
			printf("command: %s\n", file);
			return 0;
		}
		refused = refused || (*command != '\0' && access(file, F_OK) == 0);
	}
	if (refused)
	{
		Complain("could not execute \"%s\"", command);
		return EXIT_NO_EXEC;
	}
	Complain("could not find \"%s\" in PATH", command);
	return EXIT_NO_COMMAND;
}

/*
 * show_at_most - print when --at-most ends the command
 *
 * That of a job includes the time that the command has to end, because the lock is free then.
 */
static void
show_at_most(const Options *options)
{
	Lease		lease = options->lease;
	Usec		stop = options->at_most;
	Usec		kill_at = stop + lease.kill_after;

	if (options->schedule)
	{
		if (options->at_most < lease.length)
			ShortenLease(&lease, options->at_most);
		stop = LeaseStop(&lease, options->at_most);
		kill_at = LeaseKill(&lease, options->at_most);
	}
	printf("at most: SIGTERM after %.6g s, SIGKILL %.6g s later\n", seconds(stop), seconds(kill_at - stop));
}

/*
 * dry_run - check the call, and show the times of the lease and what a run would be told now
 *
 * Nothing is run or changed.  Without a server neither schedule nor name can be judged.
 */
static int
dry_run(const Options *options)
{
	const Lease *lease = &options->lease;
	int			command = 0;
	int			status;

	printf("lease: %.6g s, extended every %.6g s\n", seconds(lease->length), seconds(lease->heartbeat));
	printf("without an extension: SIGTERM after %.6g s, SIGKILL after %.6g s\n",
		   seconds(LeaseStop(lease, lease->length)), seconds(LeaseKill(lease, lease->length)));
	if (options->at_most != NEVER)
		show_at_most(options);

	if (options->command)
		command = show_command(options->command[0]);

	/* If a stream is closed, the connection would take its place. */
	flush_output();
	HoldStreams();
	status = options->watch ? ShowNews(NewServer(options, -1)) : ShowCall(NewServer(options, -1));
	flush_output();
	return status != 0 ? status : command;
}

int
main(int argc, char **argv)
{
	static Options options;

	ParseOptions(argc, argv, &options);
	if (options.dry_run)
		return dry_run(&options);
	return options.watch ? Supervise(&options) : KeepRun(&options);
}
