/*-------------------------------------------------------------------------
 *
 * ends.c
 *	  The ends of transactions, subtransactions and processes, in order.
 *
 * What the server does at the end of a transaction, and what hangs on it:
 *
 *	deferred triggers
 *	PRE_COMMIT			session-level locks are added; synchronous_commit is set
 *	commit record, flush, wait for the synchronous standby
 *	rows become visible to others
 *	COMMIT or ABORT		session-level locks go; deadlines are armed
 *	transaction-level locks go
 *	AFTER_LOCKS			waiters are woken
 *
 * So there is no instant at which a lock's row is not yet visible and its
 * advisory half is free.  None of this writes to a table.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "session/session.h"
#include "storage/ipc.h"
#include "utils/resowner.h"

/*
 * xact_callback - see above
 */
static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			ShedlockSessionPreCommit();
			ShedlockDurabilityPreCommit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			ShedlockSessionPrePrepare();
			ShedlockDurabilityPrePrepare();
			break;
		case XACT_EVENT_COMMIT:
			ShedlockDurabilityReset();
			ShedlockLeasesAtEnd(false);
			ShedlockSessionCommit();
			break;
		case XACT_EVENT_PREPARE:
			ShedlockDurabilityReset();
			ShedlockLeasesAtEnd(true);
			ShedlockSessionPrepared();
			break;
		case XACT_EVENT_ABORT:
			ShedlockDurabilityReset();
			ShedlockLeasesAtEnd(false);
			ShedlockSessionAbort();
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
	}
}

/*
 * subxact_callback - runs before the locks of an aborted subtransaction go
 */
static void
subxact_callback(SubXactEvent event, SubTransactionId subid,
				 SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		ShedlockSessionSubCommit(subid, parent);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		ShedlockSessionSubAbort(subid);
}

/*
 * release_callback - runs after the locks of a resource owner are released
 *
 * A subtransaction that commits hands its locks to its parent.
 */
static void
release_callback(ResourceReleasePhase phase, bool is_commit, bool is_top_level,
				 void *arg)
{
	if (phase == RESOURCE_RELEASE_AFTER_LOCKS && (is_top_level || !is_commit))
		ShedlockWakeAtRelease(is_top_level);
}

/*
 * exit_callback - runs after all locks of the process are gone, and before it
 * gives up its place in shared memory
 */
static void
exit_callback(int code, Datum arg)
{
	ShedlockSessionExit();
}

/*
 * ShedlockRegisterEnds - hook into the ends of this process's transactions
 */
void
ShedlockRegisterEnds(void)
{
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
	RegisterResourceReleaseCallback(release_callback, NULL);
	on_shmem_exit(exit_callback, (Datum) 0);
}
