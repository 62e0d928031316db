/*-------------------------------------------------------------------------
 *
 * shield.c
 *	  Steps after the commit record, where an error would be a PANIC (I13).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/base.h"
#include "miscadmin.h"

/*
 * ShedlockShield - take a step, and drop the error that ends it, if one does
 *
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
