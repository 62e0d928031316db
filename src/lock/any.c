/*-------------------------------------------------------------------------
 *
 * any.c
 *	  Acquiring some of several locks, or all of them.
 *
 * Each is a lock like any other, and is tried as any other is: nothing waits for one
 * while it holds another, so there is no deadlock.
 *
 * Some: the names are tried in random order, so that callers with the same names seldom
 * meet.
 *
 * All or nothing: the names are tried in the order of their bytes.  Of the callers that
 * try at the same time, the one that has the greatest of the names they share gets all
 * that it wants.  In random order two callers could refuse each other again and again.
 * A refusal writes nothing (I3): all rows are read, and all advisory halves are held,
 * before the first row is written.  Only a foreign writer can refuse a row after that.  A
 * subtransaction gives back what was acquired.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/pg_prng.h"
#include "lock/lock.h"
#include "miscadmin.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

/*
 * ShedlockShuffle - set order to the numbers from 0 to n - 1, in random order
 */
void
ShedlockShuffle(int *order, int n)
{
	for (int i = 0; i < n; i++)
	{
		int			j = (int) pg_prng_uint64_range(&pg_global_prng_state, 0, (uint64) i);

		order[i] = order[j];
		order[j] = i;
	}
}

/*
 * ShedlockKeepSoonest - keep the refusal that ends first, for the length of a nap
 */
void
ShedlockKeepSoonest(ShedlockResult *soonest, const ShedlockResult *refusal, bool is_first)
{
	if (is_first || ShedlockNapMs(refusal) < ShedlockNapMs(soonest))
		*soonest = *refusal;
}

/*
 * try_names - try to acquire n locks in that order, until there are enough
 *
 * Sets is_free of each that was tried, and all tokens.  Returns the number of locks
 * acquired.
 */
static int
try_names(ShedlockAny *any, ShedlockStore *store, const int *order, int n, ShedlockResult *refusal)
{
	ShedlockRequest request = any->request;
	int			refused = 0;
	int			got = 0;

	/* Those that the last try has set were undone. */
	memset(any->tokens, 0, (Size) any->n * sizeof(int64));
	for (int i = 0; i < n && got < any->count; i++)
	{
		int			which = order[i];
		ShedlockResult result = {0};

		CHECK_FOR_INTERRUPTS();
		request.name = any->names[which];
		any->is_free[which] = ShedlockAcquire(store, &request, &result);
		if (any->is_free[which])
		{
			any->tokens[which] = result.row.token;
			got++;
			continue;
		}
		ShedlockKeepSoonest(refusal, &result, refused++ == 0);
		if (any->all_or_nothing)
			break;
	}
	return got;
}

/*
 * try_some - try to acquire as many as are wanted, or fewer; for ShedlockWaitFor()
 */
static bool
try_some(void *arg, ShedlockResult *refusal)
{
	ShedlockAny *any = arg;
	int		   *order = palloc((Size) any->n * sizeof(int));
	ShedlockStore store;
	int			got;

	ShedlockShuffle(order, any->n);
	ShedlockOpenToAcquire(&store, any->names[0].nsp);
	got = try_names(any, &store, order, any->n, refusal);
	ShedlockCloseAfter(&store, got > 0);
	return got > 0;
}

/*
 * find_free - find the locks that look free; are there enough?  Reads only
 *
 * Sets is_free of each.  A lock that only its advisory half keeps busy looks free.
 */
static bool
find_free(ShedlockAny *any, ShedlockStore *store, ShedlockResult *refusal)
{
	int			refused = 0;

	for (int i = 0; i < any->n; i++)
	{
		const ShedlockName *name = &any->names[i];
		ShedlockResult result = {0};

		CHECK_FOR_INTERRUPTS();
		ShedlockReadRow(store, name->str, &result.row);
		result.verdict = ShedlockJudge(&result.row, name, GetCurrentTimestamp(), false);
		any->is_free[i] = result.verdict == SHEDLOCK_FREE;
		if (!any->is_free[i])
			ShedlockKeepSoonest(refusal, &result, refused++ == 0);
	}
	return any->n - refused >= any->count;
}

/*
 * take_free - acquire the advisory halves of those that look free, until there are enough
 *
 * Sets order[] to them, and is_free of each that turns out not to be free.  Returns
 * whether there are enough.
 */
static bool
take_free(ShedlockAny *any, ShedlockStore *store, int *order, ShedlockResult *refusal)
{
	int			left = 0;
	int			refused = 0;
	int			got = 0;

	for (int i = 0; i < any->n; i++)
		left += any->is_free[i];
	for (int i = 0; i < any->n && got < any->count && left >= any->count; i++)
	{
		const ShedlockName *name = &any->names[i];
		ShedlockResult result = {.verdict = SHEDLOCK_BUSY};

		if (!any->is_free[i])
			continue;
		CHECK_FOR_INTERRUPTS();
		if (ShedlockTryLock(&name->tag, ExclusiveLock))
		{
			ShedlockWakeAtRollback(&name->tag);
			ShedlockReadHeldRow(store, name->str, &result.row);
			result.verdict = ShedlockJudge(&result.row, name, GetCurrentTimestamp(), true);
			if (result.verdict != SHEDLOCK_FREE)
				ShedlockUnlock(&name->tag, ExclusiveLock);
		}
		any->is_free[i] = result.verdict == SHEDLOCK_FREE;
		if (any->is_free[i])
			order[got++] = i;
		else
		{
			ShedlockKeepSoonest(refusal, &result, refused++ == 0);
			left--;
		}
	}
	return got == any->count;
}

/*
 * acquire_all - acquire all that are wanted, in a subtransaction, or none
 */
static bool
acquire_all(ShedlockAny *any, ShedlockResult *refusal)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	int		   *order = palloc((Size) any->n * sizeof(int));
	volatile bool enough = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		ShedlockStore store;

		ShedlockOpenToAcquire(&store, any->names[0].nsp);
		enough = take_free(any, &store, order, refusal) &&
			try_names(any, &store, order, any->count, refusal) == any->count;
		ShedlockClose(&store);
		if (enough)
			ReleaseCurrentSubTransaction();
		else
			RollbackAndReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		ReThrowError(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return enough;
}

/*
 * try_all - try to acquire as many as are wanted, or none; for ShedlockWaitFor()
 */
static bool
try_all(void *arg, ShedlockResult *refusal)
{
	ShedlockAny *any = arg;
	ShedlockStore store;
	bool		enough;

	ShedlockOpen(&store, any->names[0].nsp, "shedlock");
	enough = find_free(any, &store, refusal);
	ShedlockCloseUnused(&store);
	return enough && acquire_all(any, refusal);
}

/*
 * ShedlockAcquireAny - acquire some of several locks, or all that are wanted
 *
 * Sets any->tokens: 0 for a lock that was not acquired.  wait: at most that long until
 * one of them, or all that are wanted, could be acquired; or NULL.  While it waits it
 * holds none.  Returns true if a lock was acquired.  Errors: those of ShedlockAcquire()
 * and ShedlockWaitFor().  Locks: the advisory half of each, exclusive, to the end of the
 * transaction.
 */
bool
ShedlockAcquireAny(ShedlockAny *any, const Interval *wait)
{
	bool		(*attempt) (void *arg, ShedlockResult *refusal);
	ShedlockResult refusal = {0};
	bool		acquired;

	/* If one lock is wanted, all or nothing is the same as some. */
	any->all_or_nothing &= any->count > 1;
	attempt = any->all_or_nothing ? try_all : try_some;
	any->request.brief = wait == NULL;
	any->is_free = palloc0((Size) any->n * sizeof(bool));
	any->tokens = palloc0((Size) any->n * sizeof(int64));
	if (wait)
		acquired = ShedlockWaitFor(any->names, any->n, any->is_free, wait, attempt, any, &refusal);
	else
		acquired = attempt(any, &refusal);
	if (!acquired)
		memset(any->tokens, 0, (Size) any->n * sizeof(int64));
	return acquired;
}
