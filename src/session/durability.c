/*-------------------------------------------------------------------------
 *
 * durability.c
 *	  How firmly a transaction commits.
 *
 * For an acquire, an extend or a claim synchronous_commit is raised to "on" (I9), by the GUC
 * machinery, because the wait for the standby goes by a mode that the assign hook sets.  The
 * setting reverts with the end of the transaction.
 *
 * A release may be lost: then the lock is kept longer.  So a transaction that
 * wrote nothing else commits asynchronously.  It wrote nothing else if it
 * had no xid before its first release, if each further release began where the
 * last one ended in the WAL, and if no WAL followed.  (WAL without an xid is
 * the clean-up that any SELECT may do, which the server's own commits do not
 * wait for either.)  Deferred triggers have run by then.  (What another library
 * writes in its own PRE_COMMIT, if that comes later, would share the
 * asynchronous commit.)  Lowering needs no hook: a commit that is asynchronous
 * never asks for the standby.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "session/session.h"
#include "storage/lwlock.h"
#include "utils/guc.h"

/* What this transaction is, and where in the WAL its last release ended. */
static bool must_be_durable = false;
static bool commit_locally = false;
static bool only_releases = false;
static XLogRecPtr release_end = InvalidXLogRecPtr;

/*
 * How this commit is to wait for the standby; and how, and up to where in the WAL, the last
 * one did that had to wait, and whether a signal came that may have ended the wait.
 */
static int	commit_wait_mode = SYNC_REP_NO_WAIT;
static int	last_wait_mode = SYNC_REP_NO_WAIT;
static XLogRecPtr last_wait_end = InvalidXLogRecPtr;
static bool last_wait_disturbed = false;

/* What synchronous_commit was before a release lowered it; -1: it was not. */
static int	saved_synchronous_commit = -1;

/*
 * ShedlockCommitDurably - this transaction makes a promise that its commit must keep
 */
void
ShedlockCommitDurably(void)
{
	ShedlockUseSession();
	must_be_durable = true;
}

/*
 * ShedlockCommitDurablyAgain - this transaction repeats a promise of an earlier one
 *
 * That one may have been answered before it reached the synchronous standby, by a cancel.
 * The server waits for a transaction only if it has an xid and has written WAL: an empty
 * message gives it both, and this transaction has nothing else to write.
 */
void
ShedlockCommitDurablyAgain(void)
{
	(void) log_empty_message("shedlock");
	ShedlockCommitDurably();
}

/*
 * ShedlockBeginRelease - a release is about to write
 */
void
ShedlockBeginRelease(void)
{
	ShedlockUseSession();
	if (release_end == InvalidXLogRecPtr)
		only_releases = !TransactionIdIsValid(GetTopTransactionIdIfAny());
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
 * What is prepared keeps other sessions off on the standby, too, after a
 * promotion; COMMIT PREPARED then waits as its own session says.
 */
void
ShedlockDurabilityPrePrepare(void)
{
	if (must_be_durable && synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH)
		set_synchronous_commit("on");
}

/*
 * wait_mode - for what a commit with this synchronous_commit waits at the standby
 */
static int
wait_mode(void)
{
	switch (synchronous_commit)
	{
		case SYNCHRONOUS_COMMIT_REMOTE_WRITE:
			return SYNC_REP_WAIT_WRITE;
		case SYNCHRONOUS_COMMIT_REMOTE_FLUSH:
			return SYNC_REP_WAIT_FLUSH;
		case SYNCHRONOUS_COMMIT_REMOTE_APPLY:
			return SYNC_REP_WAIT_APPLY;
		default:
			return SYNC_REP_NO_WAIT;
	}
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
	else if (only_releases && release_end != InvalidXLogRecPtr &&
			 XactLastRecEnd == release_end)
	{
		saved_synchronous_commit = synchronous_commit;
		synchronous_commit = SYNCHRONOUS_COMMIT_OFF;
	}
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) && XactLastRecEnd != InvalidXLogRecPtr)
		commit_wait_mode = wait_mode();
}

/*
 * ShedlockDurabilityCommit - note a commit that had to wait for the standby
 *
 * XactLastCommitEnd itself is moved by each transaction that wrote WAL, but the server
 * waits only for those that have an xid, too: VACUUM has none.
 */
void
ShedlockDurabilityCommit(void)
{
	if (commit_wait_mode == SYNC_REP_NO_WAIT)
		return;
	last_wait_mode = commit_wait_mode;
	last_wait_end = XactLastCommitEnd;

	/* Set with each cancel, and cleared only where interrupts are obeyed. */
	last_wait_disturbed = InterruptPending;
}

/*
 * ShedlockCommitIsSafe - has the last commit of this process that had to wait
 * for a synchronous standby reached it?
 *
 * True if there is to be no standby.  A cancel, or statement_timeout, ends the
 * wait for it with a warning.  What is to run once must not go on then: on a
 * primary that is cut off, its successor may be running it.  A wait also ends when
 * synchronous_standby_names is emptied, which a session reads only with its next
 * statement; then no cancel has come.  A signal of another kind counts like one: what
 * could begin then fails, and is tried again.  Of the server's private state this reads only
 * how far the standby is, and not whether there is to be one: minor releases have changed
 * that.  Locks: SyncRepLock, shared, for a moment.
 */
bool
ShedlockCommitIsSafe(void)
{
	bool		safe;

	if (max_wal_senders == 0 || last_wait_mode == SYNC_REP_NO_WAIT || !last_wait_disturbed ||
		SyncRepStandbyNames == NULL || SyncRepStandbyNames[0] == '\0')
		return true;
	LWLockAcquire(SyncRepLock, LW_SHARED);
	safe = WalSndCtl->lsn[last_wait_mode] >= last_wait_end;
	LWLockRelease(SyncRepLock);
	return safe;
}

/*
 * ShedlockCommitLocally - this transaction need not wait for the standby
 *
 * Not even if it must be durable: a wait for the standby was cut short already.
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
	if (saved_synchronous_commit >= 0)
		synchronous_commit = saved_synchronous_commit;
	saved_synchronous_commit = -1;
	must_be_durable = false;
	commit_locally = false;
	only_releases = false;
	release_end = InvalidXLogRecPtr;
	commit_wait_mode = SYNC_REP_NO_WAIT;
}
