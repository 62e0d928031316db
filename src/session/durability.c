/*-------------------------------------------------------------------------
 *
 * durability.c
 *	  How firmly a transaction of ours commits.
 *
 * An acquire, an extend or a claim that was answered with true must survive a
 * crash and a promotion of the synchronous standby, whatever the session's
 * synchronous_commit says: it is raised to "on".  It must go through the GUC
 * machinery, because the wait for the standby goes by a mode that is set by
 * the assign hook.  The setting reverts with the end of the transaction.
 *
 * A release may be lost: the lock is kept longer, that is all.  A transaction
 * that wrote nothing else commits asynchronously.  It wrote nothing else if it
 * had no xid before its first release, if each further release began where the
 * last one ended in the WAL, and if no WAL followed.  (WAL without an xid is
 * the clean-up that any SELECT may do, which the server's own commits do not
 * wait for either.)  Deferred triggers have run by then.  (What another
 * library writes in its own PRE_COMMIT after ours would share the asynchronous
 * commit.)  Lowering needs no hook: a commit that is asynchronous never asks
 * for the standby.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "session/session.h"
#include "storage/lwlock.h"
#include "utils/guc.h"

static bool must_be_durable = false;
static bool commit_locally = false;
static bool released = false;
static bool only_releases = false;
static XLogRecPtr release_end = InvalidXLogRecPtr;

/* Was the last commit, but for those of ShedlockCommitLocally, to wait for the standby? */
static bool last_commit_waits = false;

static bool lowered = false;
static int	saved_synchronous_commit;

/*
 * ShedlockCommitDurably - this transaction holds a promise
 */
void
ShedlockCommitDurably(void)
{
	ShedlockUseSession();
	must_be_durable = true;
}

/*
 * ShedlockBeginRelease - a release is about to write
 */
void
ShedlockBeginRelease(void)
{
	ShedlockUseSession();
	if (!released)
	{
		released = true;
		only_releases = !TransactionIdIsValid(GetTopTransactionIdIfAny());
	}
	else if (XactLastRecEnd != release_end)
		only_releases = false;
}

/*
 * ShedlockEndRelease - a release has written
 */
void
ShedlockEndRelease(void)
{
	release_end = XactLastRecEnd;
}

/*
 * set_synchronous_commit - to the end of this transaction
 */
static void
set_synchronous_commit(const char *value)
{
	(void) set_config_option("synchronous_commit", value,
							 PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
}

/*
 * ShedlockDurabilityPrePrepare - set synchronous_commit for PREPARE TRANSACTION
 *
 * A promise that is prepared goes along to the standby, and keeps others off
 * there; COMMIT PREPARED then waits as its own session says.
 */
void
ShedlockDurabilityPrePrepare(void)
{
	if (must_be_durable && synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH)
		set_synchronous_commit("on");
}

/*
 * ShedlockDurabilityPreCommit - set synchronous_commit for this commit
 */
void
ShedlockDurabilityPreCommit(void)
{
	if (commit_locally)
	{
		if (must_be_durable || synchronous_commit > SYNCHRONOUS_COMMIT_LOCAL_FLUSH)
			set_synchronous_commit("local");
	}
	else if (must_be_durable)
		ShedlockDurabilityPrePrepare();
	else if (released && only_releases && XactLastRecEnd == release_end &&
			 !shedlock_synchronous_release)
	{
		saved_synchronous_commit = synchronous_commit;
		synchronous_commit = SYNCHRONOUS_COMMIT_OFF;
		lowered = true;
	}
	if (!commit_locally && TransactionIdIsValid(GetTopTransactionIdIfAny()))
		last_commit_waits = synchronous_commit > SYNCHRONOUS_COMMIT_LOCAL_FLUSH;
}

/*
 * ShedlockCommitIsSafe - has the synchronous standby, if there is to be one,
 * got the last commit of this process that was to wait for it?
 *
 * A cancel, or statement_timeout, ends the wait for it with a warning.  What is
 * to run once must not go on then: on a primary that is cut off, its successor
 * may be running it.  Asks what the wait itself asks.
 */
bool
ShedlockCommitIsSafe(void)
{
	bool		safe;

	if (max_wal_senders == 0 || !last_commit_waits)
		return true;
	LWLockAcquire(SyncRepLock, LW_SHARED);
	safe = !commits_wait() || WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH] >= XactLastCommitEnd;
	LWLockRelease(SyncRepLock);
	return safe;
}

/*
 * ShedlockCommitLocally - this transaction need not wait for the standby, even
 * if it holds a promise: a wait for it was cut short already
 */
void
ShedlockCommitLocally(void)
{
	ShedlockUseSession();
	commit_locally = true;
}

/*
 * ShedlockDurabilityReset - the transaction is over
 */
void
ShedlockDurabilityReset(void)
{
	if (lowered)
		synchronous_commit = saved_synchronous_commit;
	lowered = false;
	must_be_durable = false;
	commit_locally = false;
	released = false;
}
