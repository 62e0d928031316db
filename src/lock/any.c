/*-------------------------------------------------------------------------
 *
 * any.c
 *	  Acquiring one lock, or some of several.
 *
 * Nothing waits for one while it holds another, so there is no deadlock.  The names are
 * tried in random order, so that callers with the same names seldom meet.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "lock/lock.h"
#include "miscadmin.h"

static void
shuffle(int *order, int n)
{
	for (int i = 0; i < n; i++)
	{
		int			j = (int) pg_prng_uint64_range(&pg_global_prng_state, 0, (uint64) i);

		order[i] = order[j];
		order[j] = i;
	}
}

/*
 * try_some - try to acquire as many as are wanted, or fewer; for ShedlockWaitFor()
 *
 * Sets any->tokens.  *refusal: if none is acquired, the one that ends first, for the length
 * of a nap; refusal is NULL if the caller does not wait.
 */
static bool
try_some(void *arg, ShedlockResult *refusal)
{
	ShedlockAny *any = arg;
	int		   *order = palloc((Size) any->n * sizeof(int));
	ShedlockStore store;
	int			got = 0;

	shuffle(order, any->n);
	ShedlockOpen(&store, any->names[0].nsp, "shedlock", RowExclusiveLock);
	for (int i = 0; i < any->n && got < any->count; i++)
	{
		ShedlockResult result = {0};

		CHECK_FOR_INTERRUPTS();
		any->request.name = any->names[order[i]];
		if (ShedlockAcquire(&store, &any->request, &result))
		{
			any->tokens[order[i]] = result.row.token;
			got++;
		}
		else if (refusal && (i == 0 || ShedlockNapMs(&result) < ShedlockNapMs(refusal)))
			*refusal = result;
	}
	ShedlockClose(&store, got == 0 ? RowExclusiveLock : NoLock);
	return got > 0;
}

/*
 * ShedlockAcquireAny - acquire one lock, or some of several
 *
 * Sets any->tokens: 0 for a lock that was not acquired.  wait: at most that long until
 * one of them could be acquired; or NULL.  While it waits it holds none.  Returns true if
 * a lock was acquired.  Errors: those of ShedlockAcquire() and ShedlockWaitFor().  Locks:
 * the advisory half of each, exclusive, to the end of the transaction.
 */
bool
ShedlockAcquireAny(ShedlockAny *any, const Interval *wait)
{
	ShedlockResult refusal = {0};

	any->tokens = palloc0((Size) any->n * sizeof(int64));
	if (wait)
		return ShedlockWaitFor(any->names, any->n, wait, try_some, any, &refusal);
	return try_some(any, NULL);
}
