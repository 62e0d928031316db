/*-------------------------------------------------------------------------
 *
 * ends.c
 *	  The ends of transactions, subtransactions and processes, in order.
 *
 * What the server does at the end of a transaction, and what shedlock does then:
 *
 *	deferred triggers
 *	PRE_COMMIT			adds session-level locks; sets synchronous_commit
 *	commit record, flush, wait for the synchronous standby
 *	rows become visible to others
 *	COMMIT or ABORT		COMMIT sends signals
 *	transaction-level locks are released
 *	AFTER_LOCKS			releases session-level locks; arms deadlines; wakes waiters;
 *						awaits the end of the sessions that were told to end
 *
 * So there is no instant at which a lock's row is not yet visible and its
 * advisory half is free (I12), and the next run meets no lock of the last one's
 * transaction.  None of this writes to a table (I10).
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

static emit_log_hook_type next_emit_log_hook = NULL;

/*
 * xact_callback - the steps above, but for the last one
 */
static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			ShedlockEventsPreCommit();
			ShedlockSessionPreCommit();
			ShedlockDurabilityPreCommit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			ShedlockSessionPrePrepare();
			ShedlockSignalsPrePrepare();
			ShedlockDurabilityPrePrepare();
			break;
		case XACT_EVENT_COMMIT:
			ShedlockDurabilityCommit();
			ShedlockSendsCommit();
			ShedlockDurabilityReset();
			ShedlockLeasesAtEnd(false);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			ShedlockSendsReset();
			ShedlockDurabilityReset();
			ShedlockLeasesAtEnd(event == XACT_EVENT_PREPARE);
			break;
		default:
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
	{
		ShedlockSendsSubCommit(subid, parent);
		ShedlockHandOverChanges(subid, parent);
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		ShedlockSendsSubAbort(subid);
		ShedlockSessionAbort(subid);
	}
}

/*
 * release_callback - runs after the locks of a resource owner are released
 *
 * At the end of a transaction it is called for each of its owners, and the first time
 * all of their locks are gone.  A subtransaction that commits hands its locks to its
 * parent.
 */
static void
release_callback(ResourceReleasePhase phase, bool is_commit, bool is_top_level,
				 void *arg)
{
	if (phase != RESOURCE_RELEASE_AFTER_LOCKS || (is_commit && !is_top_level))
		return;
	if (is_commit)
		ShedlockSessionCommit(ShedlockCommitIsSafe());
	else if (is_top_level)
		ShedlockSessionAbort(InvalidSubTransactionId);
	ShedlockWakeAtRelease(is_commit, is_top_level);
	if (is_commit)
		ShedlockSignalsAwait();
}

/*
 * explain_end - let the client and the log read why this session is ended
 *
 * The server's FATAL error only tells of an administrator.  In the log, since 19, a
 * detail names the process that sent the signal, but this one came from a timer.  This
 * allocates in the server's own memory for errors.
 */
static void
explain_end(ErrorData *edata)
{
	if (edata->elevel == FATAL && edata->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
	{
		const char *name = ShedlockOutlivedLock();

		if (name)
		{
			edata->detail = psprintf("Session lock \"%s\" has outlived its lock_at_most_for.",
									 name);
			edata->detail_log = NULL;
		}
	}
	if (next_emit_log_hook)
		next_emit_log_hook(edata);
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
	on_shmem_exit(ShedlockSessionExit, (Datum) 0);
	next_emit_log_hook = emit_log_hook;
	emit_log_hook = explain_end;
}
