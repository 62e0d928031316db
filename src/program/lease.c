/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  The times of a lease.
 *
 * The server reads its clock after the statement was sent.  So the lease lasts at
 * least until its length after the instant before the sending, which is what this
 * program counts from: the end.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "program/program.h"

/* How many extensions a lease has time for, and how long one waits at most */
#define HEARTBEATS			6
#define HEARTBEAT_MAX		(30 * USEC_PER_SEC)

/* A server that is busy, but there, may take so long to extend a short lease. */
#define PATIENCE_MIN		(500 * USEC_PER_MS)

/* A margin smaller than this is less than a busy machine needs to wake a process. */
#define MARGIN_MIN			(250 * USEC_PER_MS)

/* For clocks that run at different rates, and for a machine that stands still for seconds */
#define MARGIN_SHARE		20

/* --kill-after, unless given */
#define KILL_AFTER_MAX		(10 * USEC_PER_SEC)
#define KILL_AFTER_SHARE	4

/*
 * MakeLease - set the other times of a lease by its length and kill_after
 *
 * A negative kill_after becomes the default.  Returns 0, or the shortest length that
 * allows for kill_after.
 */
Usec
MakeLease(Lease *lease)
{
	bool		by_default = lease->kill_after < 0;

	if (by_default)
	{
		lease->kill_after = lease->length / KILL_AFTER_SHARE;
		if (lease->kill_after > KILL_AFTER_MAX)
			lease->kill_after = KILL_AFTER_MAX;
	}
	lease->heartbeat = lease->length / HEARTBEATS;
	if (lease->heartbeat > HEARTBEAT_MAX)
		lease->heartbeat = HEARTBEAT_MAX;
	lease->margin = MARGIN_MIN + lease->length / MARGIN_SHARE;

	/* There is time for two extensions that fail, and for one that does not. */
	if (lease->length / 2 >= lease->kill_after + lease->margin)
		return 0;
	if (by_default)				/* grows with the length */
		return MARGIN_MIN / (MARGIN_SHARE / 2 - 1 - MARGIN_SHARE / KILL_AFTER_SHARE) * MARGIN_SHARE;
	return (lease->kill_after + MARGIN_MIN) / (MARGIN_SHARE / 2 - 1) * MARGIN_SHARE;
}

/*
 * ShortenLease - set the times of a lease that lasts no longer than that, and ends then
 *
 * Of less than 0.4 s nothing is left for the command: the run is lost.
 */
void
ShortenLease(Lease *lease, Usec length)
{
	lease->length = length;
	if (lease->kill_after > length / KILL_AFTER_SHARE)
		lease->kill_after = length / KILL_AFTER_SHARE;
	(void) MakeLease(lease);
}

/*
 * LeasePatience - how long an extension may take until it is sent by another connection
 */
Usec
LeasePatience(const Lease *lease)
{
	return lease->heartbeat > PATIENCE_MIN ? lease->heartbeat : PATIENCE_MIN;
}

/*
 * LeaseStop - when the command gets SIGTERM
 */
Usec
LeaseStop(const Lease *lease, Usec end)
{
	return LeaseKill(lease, end) - lease->kill_after;
}

/*
 * LeaseKill - when the guardian kills all processes
 */
Usec
LeaseKill(const Lease *lease, Usec end)
{
	return end - lease->margin;
}

/*
 * LeaseLastResort - when the keeper kills them, because the guardian did not
 */
Usec
LeaseLastResort(const Lease *lease, Usec end)
{
	return end - lease->margin / 2;
}
