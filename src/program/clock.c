/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The clock of all deadlines.
 *
 * CLOCK_BOOTTIME cannot be set, and counts while the system is suspended: the
 * server's clock goes on meanwhile, and gives the lock to another caller.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <time.h>

#include "program/program.h"

/*
 * Now - the instant now
 */
Usec
Now(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_BOOTTIME, &now);
	return (Usec) now.tv_sec * USEC_PER_SEC + now.tv_nsec / 1000;
}

/*
 * Nap - sleep; a signal ends it
 *
 * May be called in a signal handler.
 */
void
Nap(Usec duration)
{
	struct timespec time = {
		.tv_sec = duration / USEC_PER_SEC,
		.tv_nsec = duration % USEC_PER_SEC * 1000
	};

	(void) nanosleep(&time, NULL);
}

/*
 * PollTimeout - the timeout of a poll() until an instant, in milliseconds
 *
 * poll() does not count the time of a suspension, so it sleeps a minute at most.
 */
int
PollTimeout(Usec until)
{
	Usec		now = Now();

	if (until <= now)
		return 0;
	if (until - now >= 60 * USEC_PER_SEC)
		return 60 * 1000;
	return (int) ((until - now + USEC_PER_MS - 1) / USEC_PER_MS);
}
