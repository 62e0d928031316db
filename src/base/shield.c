/*-------------------------------------------------------------------------
 *
 * shield.c
 *	  Steps whose errors do not reach the caller.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/base.h"
#include "miscadmin.h"
#include "utils/resowner.h"

/*
 * ShedlockShield - take a step after the commit record, where an error would be a PANIC (I13)
 *
 * Drops the error that ends it, if one does.
 * For errors of allocation only: the step holds no lock or pin of the server's where it can
 * fail.  Not for rollbacks: the error that made them is still to be thrown, and would be
 * dropped, too.
 */
void
ShedlockShield(void (*step) (const void *arg), const void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	uint32		interrupts = InterruptHoldoffCount;
	uint32		cancels = QueryCancelHoldoffCount;

	PG_TRY();
	{
		step(arg);
	}
	PG_CATCH();
	{
		/* An error resets these. */
		InterruptHoldoffCount = interrupts;
		QueryCancelHoldoffCount = cancels;
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
}

/*
 * ShedlockTrySubtransaction - take a step in a subtransaction of the open transaction
 *
 * Returns NULL, or the error that undid it.
 */
ErrorData *
ShedlockTrySubtransaction(void (*step) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	uint32		cancels = QueryCancelHoldoffCount;
	ErrorData  *volatile failure = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		step(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		QueryCancelHoldoffCount = cancels;
		MemoryContextSwitchTo(context);
		failure = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return failure;
}
