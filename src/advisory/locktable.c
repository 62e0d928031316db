/*-------------------------------------------------------------------------
 *
 * locktable.c
 *	  The advisory half: the server's lock table.
 *
 * No session queues on SHEDLOCK_CLASS_LOCK (I14): to the lock manager a queued
 * request stands in the way of the holder's own further requests.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/twophase.h"
#include "advisory/advisory.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/resowner.h"

static uint64
tag_key(const LOCKTAG *tag)
{
	return ((uint64) tag->locktag_field2 << 32) | tag->locktag_field3;
}

/*
 * ShedlockTryLock - acquire a lock to the end of the transaction, without waiting
 *
 * Returns false if it is not available.  Raises 53200 when the lock table is
 * full.  The lock belongs to the current subtransaction, like the rows that are
 * written under it, and not to a cursor around the call, which can end sooner or
 * later.
 */
bool
ShedlockTryLock(const LOCKTAG *tag, LOCKMODE mode)
{
	ResourceOwner caller = CurrentResourceOwner;
	bool		acquired;

	CurrentResourceOwner = CurTransactionResourceOwner;
	acquired = LockAcquire(tag, mode, false, true) != LOCKACQUIRE_NOT_AVAIL;
	CurrentResourceOwner = caller;
	return acquired;
}

/*
 * ShedlockUnlock - release what ShedlockTryLock() acquired in the same call
 */
void
ShedlockUnlock(const LOCKTAG *tag, LOCKMODE mode)
{
	ResourceOwner caller = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	LockRelease(tag, mode, false);
	CurrentResourceOwner = caller;
}

/*
 * prepared_xid - xid of the prepared transaction that holds a lock
 *
 * The lock is in the name of the session's virtual transaction, or after a
 * restart of the server in that of the xid itself.
 */
static TransactionId
prepared_xid(VirtualTransactionId vxid)
{
	bool		more;

	return vxid_is_backend(vxid) ? TwoPhaseGetXidByVirtualXID(vxid, &more) :
		(TransactionId) vxid.localTransactionId;
}

/*
 * ShedlockHolders - list the holders of a lock, as ShedlockHolder
 *
 * tag NULL: of all locks of shedlock's classes in this database.
 * GetLockStatusData() locks the whole lock table for a moment, so this is for
 * administration and for what cannot be decided otherwise: GetLockConflicts()
 * knows transactions only, and the holder of a session lock may be idle.
 */
List *
ShedlockHolders(const LOCKTAG *tag)
{
	LockData   *data = GetLockStatusData();
	List	   *holders = NIL;

	for (int i = 0; i < data->nelements; i++)
	{
		LockInstanceData *lock = &data->locks[i];
		ShedlockHolder *holder;

		if (lock->locktag.locktag_type != LOCKTAG_ADVISORY ||
			lock->locktag.locktag_field1 != MyDatabaseId ||
			lock->locktag.locktag_field4 < SHEDLOCK_CLASS_LOCK ||
			lock->locktag.locktag_field4 > SHEDLOCK_CLASS_TICK ||
			lock->holdMask == 0)
			continue;
		if (tag && (lock->locktag.locktag_field4 != tag->locktag_field4 ||
					tag_key(&lock->locktag) != tag_key(tag)))
			continue;

		holder = palloc0(sizeof(ShedlockHolder));
		holder->lockclass = lock->locktag.locktag_field4;
		holder->key = tag_key(&lock->locktag);
		holder->pid = lock->pid;
		holder->exclusive = (lock->holdMask & LOCKBIT_ON(ExclusiveLock)) != 0;

		if (lock->pid == 0)
			holder->prepared_xid = prepared_xid(lock_instance_vxid(lock));
		holders = lappend(holders, holder);
	}
	return holders;
}

/*
 * ShedlockAddToUse - note that a process holds a lock
 */
void
ShedlockAddToUse(ShedlockUse *use, const ShedlockHolder *holder)
{
	use->exclusive |= holder->exclusive;
	if (!use->by_other)
		use->pid = holder->pid;
	use->by_other |= holder->pid != MyProcPid;
	use->pids = lappend_int(use->pids, holder->pid);
}

/*
 * ShedlockReadUse - find out who holds a lock; *use is zero before
 */
void
ShedlockReadUse(const LOCKTAG *tag, ShedlockUse *use)
{
	ListCell   *lc;

	use->known = true;
	foreach(lc, ShedlockHolders(tag))
		ShedlockAddToUse(use, lfirst(lc));
}

/*
 * waits_for_me - does a process wait for a lock of this one, directly or through others?
 */
static bool
waits_for_me(int pid)
{
	List	   *waiters = list_make1_int(pid);

	for (int i = 0; i < list_length(waiters); i++)
	{
		Datum		blockers = DirectFunctionCall1(pg_blocking_pids,
												   Int32GetDatum(list_nth_int(waiters, i)));
		Datum	   *pids;
		int			n;

		deconstruct_array(DatumGetArrayTypeP(blockers), INT4OID, sizeof(int32), true, TYPALIGN_INT,
						  &pids, NULL, &n);
		for (int j = 0; j < n; j++)
		{
			if (DatumGetInt32(pids[j]) == MyProcPid)
				return true;
			waiters = list_append_unique_int(waiters, DatumGetInt32(pids[j]));
		}
	}
	return false;
}

/*
 * ShedlockBlockedHolder - the process that has a lock exclusively, and waits for a lock of
 * this one
 *
 * Returns 0 if there is none.  As pg_blocking_pids() does, this locks the whole lock table for
 * a moment.
 */
int
ShedlockBlockedHolder(const LOCKTAG *tag)
{
	ShedlockUse use = {0};

	ShedlockReadUse(tag, &use);
	return use.exclusive && use.pid != 0 && waits_for_me(use.pid) ? use.pid : 0;
}

/*
 * ShedlockBackendAlive - does a backend with that pid and start still live?
 *
 * Only backends of this database count, since the rows of a copied database name
 * processes of the original.  The backend status snapshot of this transaction is
 * thrown away, since it may be older than the question.
 */
bool
ShedlockBackendAlive(int pid, TimestampTz backend_start)
{
	PGPROC	   *proc;
	int			n;

	if (pid == MyProcPid)
		return backend_start == MyStartTimestamp;
	proc = BackendPidGetProc(pid);
	if (proc == NULL || proc->databaseId != MyDatabaseId)
		return false;

	pgstat_clear_backend_activity_snapshot();
	n = pgstat_fetch_stat_numbackends();
	for (int i = 1; i <= n; i++)
	{
		PgBackendStatus *entry = backend_status_entry(i);

		if (entry && entry->st_procpid == pid)
			return entry->st_proc_start_timestamp == backend_start;
	}
	return false;
}
