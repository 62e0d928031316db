/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Which leases are this session's, for callers without a token.
 *
 * A lease is owned by the session that took it.  The row has the process and
 * its start, which is all the proof there is to keep; only a reset (DISCARD
 * ALL, pg_advisory_unlock_all) must make the session forget, since behind a
 * pool that is where one client ends and the next begins.  A session-level
 * lock of SHEDLOCK_CLASS_SENTINEL is dropped by the same statements: when it is
 * gone, leases with older tokens are not ours, and session locks are over
 * (holdings.c).  Their own locks do not tell: a fence, or a new lock of the same
 * name, has the same tag and mode.
 *
 * PREPARE TRANSACTION gives its leases away, too: the tokens that it drew are
 * remembered as ranges.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "session/session.h"

/* More ranges than this: the oldest leases are forgotten with them. */
#define PREPARED_RANGES_MAX		64

typedef struct TokenRange
{
	int64		first;
	int64		last;
} TokenRange;

/* Leases with tokens from here on are ours; 0: none since the last reset. */
static int64 first_token = 0;

/* The token of the last of them. */
static int64 last_token = 0;

/* Tokens of leases that this transaction took; 0: none. */
static int64 xact_first_token = 0;
static int64 xact_last_token = 0;

/* Tokens of leases that were given away by PREPARE TRANSACTION, ascending. */
static TokenRange prepared[PREPARED_RANGES_MAX];
static int	prepared_count = 0;

/* How often this session was reset, as far as it matters. */
static int	resets = 0;

/*
 * sentinel_tag - the lock that a reset of this session drops
 */
static void
sentinel_tag(LOCKTAG *tag)
{
	ShedlockSetTag(tag, SHEDLOCK_CLASS_SENTINEL, (uint64) MyProcPid);
}

/*
 * sentinel_is_held - has the session not been reset since ShedlockWatchReset?
 */
static bool
sentinel_is_held(void)
{
	LOCKTAG		tag;

	sentinel_tag(&tag);
	return lock_held_by_me(&tag, ShareLock);
}

/*
 * ShedlockWatchReset - from here on the session owns something that a reset ends
 *
 * Returns what ShedlockWasReset is to be asked with.
 */
int
ShedlockWatchReset(void)
{
	LOCKTAG		tag;

	if (!sentinel_is_held())
	{
		sentinel_tag(&tag);
		(void) LockAcquire(&tag, ShareLock, true, true);
		resets++;
		first_token = 0;
	}
	return resets;
}

/*
 * ShedlockWasReset - has the session been reset since ShedlockWatchReset?
 */
bool
ShedlockWasReset(int watched)
{
	return watched != resets || !sentinel_is_held();
}

/*
 * ShedlockRememberLease - this session took a lease with that token
 */
void
ShedlockRememberLease(int64 token)
{
	(void) ShedlockWatchReset();

	/* The extension may have been made anew, with a new sequence. */
	if (first_token == 0 || token <= last_token)
	{
		first_token = token;
		prepared_count = 0;
	}
	if (xact_first_token == 0)
		xact_first_token = token;
	xact_last_token = token;
	last_token = token;
}

/*
 * ShedlockLeaseOfSession - may this session do without the token?
 *
 * token: of a row that was written by this process.
 */
bool
ShedlockLeaseOfSession(int64 token)
{
	if (first_token == 0 || token < first_token || !sentinel_is_held())
		return false;
	for (int i = 0; i < prepared_count; i++)
	{
		if (token >= prepared[i].first && token <= prepared[i].last)
			return false;
	}
	return true;
}

/*
 * forget_prepared - the leases of this transaction belong to their tokens only
 *
 * Between the tokens of two transactions that were prepared one after the
 * other no lease of this session can lie that it still owns, unless it took
 * one: then its token starts a range of its own.
 */
static void
forget_prepared(void)
{
	if (xact_first_token == 0)
		return;
	if (prepared_count == PREPARED_RANGES_MAX)
	{
		first_token = prepared[0].last + 1;
		memmove(&prepared[0], &prepared[1],
				(PREPARED_RANGES_MAX - 1) * sizeof(TokenRange));
		prepared_count--;
	}
	prepared[prepared_count].first = xact_first_token;
	prepared[prepared_count].last = xact_last_token;
	prepared_count++;
}

/*
 * ShedlockLeasesAtEnd - this transaction ends, whatever way
 */
void
ShedlockLeasesAtEnd(bool is_prepare)
{
	if (is_prepare)
		forget_prepared();
	xact_first_token = 0;
	xact_last_token = 0;
}
