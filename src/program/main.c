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
#include <stdlib.h>
#include <string.h>

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
 * dry_run - show the times of the lease, and what a run would be told now
 */
static int
dry_run(const Options *options)
{
	const Lease *lease = &options->lease;
	int			status;

	printf("lease: %.6g s, extended every %.6g s\n", seconds(lease->length), seconds(lease->heartbeat));
	printf("without an extension: SIGTERM after %.6g s, SIGKILL after %.6g s\n",
		   seconds(LeaseStop(lease, lease->length)), seconds(LeaseKill(lease, lease->length)));
	if (options->at_most != NEVER)
		printf("at most: SIGTERM after %.6g s, SIGKILL %.6g s later\n",
			   seconds(options->at_most), seconds(lease->kill_after));

	/* If a stream is closed, the connection would take its place. */
	flush_output();
	HoldStreams();
	status = ShowWhy(NewServer(options, -1));
	flush_output();
	return status;
}

int
main(int argc, char **argv)
{
	static Options options;

	ParseOptions(argc, argv, &options);
	return options.dry_run ? dry_run(&options) : KeepRun(&options);
}
