/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Which leases this session owns without their tokens.
 *
 * The session that acquired a lease owns it (I5), and the row names the process
 * and its start.  A reset (DISCARD ALL, pg_advisory_unlock_all) must end that
 * ownership, since a pool then gives the session to its next client.  The same
 * statements drop a session-level lock of SHEDLOCK_CLASS_SENTINEL.  Once that is
 * gone, the session owns no lease with an older token, its session locks are
 * over, and its runs acquire their advisory locks again (holdings.c).  Those
 * locks do not tell by themselves: a fence, or a new lock of the same name, has
 * the same tag and mode.
 *
 * A lease that was acquired in a transaction that is prepared belongs to its
 * token only.  Two tokens are remembered, of the first and of the last such lease,
 * so that leases acquired between two prepared transactions count, too.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "session/session.h"

/* The session owns leases from this token on; 0: none since the last reset. */
static int64 first_token = 0;

/* The token of the last lease that it acquired. */
static int64 last_token = 0;

/* The first token that the current transaction has drawn; 0: none. */
static int64 xact_first_token = 0;

/* PREPARE ended the ownership of these leases, and of those between them; or 0. */
static int64 first_prepared = 0;
static int64 last_prepared = 0;

/* The number of the sentinel: how many times it was acquired. */
static int	sentinel_number = 0;

/*
 * sentinel - the tag of the lock that a reset of this session drops
 */
static const LOCKTAG *
sentinel(void)
{
	static LOCKTAG tag;

	ShedlockSetTag(&tag, SHEDLOCK_CLASS_SENTINEL, (uint64) MyProcPid);
	return &tag;
}

/*
 * ShedlockWatchReset - from now on the session owns something that a reset ends
 *
 * Returns the argument for ShedlockWasReset().  Raises 53200 when the lock table
 * is full.
 */
int
ShedlockWatchReset(void)
{
	if (!lock_held_by_me(sentinel(), ShareLock))
	{
		(void) LockAcquire(sentinel(), ShareLock, true, true);
		sentinel_number++;
		first_token = 0;
	}
	return sentinel_number;
}

/*
 * ShedlockWasReset - has the session been reset since ShedlockWatchReset?
 */
bool
ShedlockWasReset(int watched)
{
	return watched != sentinel_number || !lock_held_by_me(sentinel(), ShareLock);
}

/*
 * ShedlockRememberLease - this session has acquired a lease with this token
 */
void
ShedlockRememberLease(int64 token)
{
	(void) ShedlockWatchReset();

	/* The extension may have been created again, with a new sequence. */
	if (first_token == 0 || token <= last_token)
	{
		first_token = xact_first_token = token;
		first_prepared = last_prepared = 0;
	}
	else if (xact_first_token == 0)
		xact_first_token = token;
	last_token = token;
}

/*
 * ShedlockLeaseOfSession - does this session own the lease without its token?
 *
 * token: of a row that this process wrote.
 */
bool
ShedlockLeaseOfSession(int64 token)
{
	return first_token != 0 && token >= first_token && !ShedlockWasReset(sentinel_number) &&
		(token < first_prepared || token > last_prepared);
}

/*
 * ShedlockLeasesAtEnd - the transaction commits, aborts or is prepared
 */
void
ShedlockLeasesAtEnd(bool is_prepare)
{
	if (is_prepare && xact_first_token != 0)
	{
		if (first_prepared == 0)
			first_prepared = xact_first_token;
		last_prepared = last_token;
	}
	xact_first_token = 0;
}
