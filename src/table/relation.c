/*-------------------------------------------------------------------------
 *
 * relation.c
 *	  Locks the extension's tables, and what the server opens when it writes to them; waits
 *	  for locks of others, or refuses to.
 *
 * The server itself waits for the locks of indexes and of the tables for long values, and
 * such a wait can be neither refused nor bounded.  But it does not wait for what this
 * transaction has locked.
 *
 * All of these locks belong to the current subtransaction, like the rows that are written:
 * with a cursor's resource owner they would be released if the cursor fails later.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/sinval.h"
#include "table/table.h"
#include "utils/relcache.h"
#include "utils/resowner.h"

/* How long an acquire waits for a row that a foreign writer has locked. */
#define FOREIGN_LOCK_TRIES		20
#define FOREIGN_LOCK_NAP_MS		5

/*
 * While set, what would wait for another transaction raises an error.  It is set while the
 * end of a run is written into the transaction of its command (job/finish.c), which can
 * hold any lock.
 */
bool		shedlock_never_waits = false;

/*
 * ShedlockRefuseToWait - raise the error that stands for a wait: 55P03
 */
void
ShedlockRefuseToWait(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("another transaction has a table or row of extension \"shedlock\" locked")));
}

/*
 * ShedlockAwaitForeignLock - nap before another try to write a row that is locked
 *
 * The writer that has it locked does not use the advisory half.  Call this after each
 * failed try, with *tries 0 at first.  Returns false after 100 ms.
 */
bool
ShedlockAwaitForeignLock(int *tries)
{
	if (shedlock_never_waits)
		ShedlockRefuseToWait();
	if (++*tries > FOREIGN_LOCK_TRIES)
		return false;
	ShedlockNap(FOREIGN_LOCK_NAP_MS);
	return true;
}

/*
 * ShedlockLockRelation - lock a relation
 *
 * A cancel ends the wait even where a caller holds off cancels: anybody can lock a table and
 * leave the transaction open.  Error: 55P03 instead of a wait if shedlock_never_waits is set.
 */
void
ShedlockLockRelation(Oid relid, LOCKMODE lockmode)
{
	ResourceOwner caller = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	if (!ConditionalLockRelationOid(relid, lockmode))
	{
		uint32		holdoff = QueryCancelHoldoffCount;

		if (shedlock_never_waits)
			ShedlockRefuseToWait();
		QueryCancelHoldoffCount = 0;
		LockRelationOid(relid, lockmode);
		QueryCancelHoldoffCount = holdoff;
	}
	CurrentResourceOwner = caller;
}

/*
 * ShedlockUnlockRelation - release what ShedlockLockRelation() has locked
 */
void
ShedlockUnlockRelation(Oid relid, LOCKMODE lockmode)
{
	ResourceOwner caller = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	UnlockRelationOid(relid, lockmode);
	CurrentResourceOwner = caller;
}

/*
 * ShedlockLockIndexes - lock the indexes of a table that is locked, as a write opens them
 *
 * ALTER INDEX needs no lock on the table.  DROP INDEX does, and with CONCURRENTLY it waits
 * for those who have locked the table.  An index that CREATE INDEX CONCURRENTLY has added
 * meanwhile is in the list of the second look.
 *
 * Locks: RowExclusiveLock to the end of the transaction.
 */
void
ShedlockLockIndexes(Relation rel)
{
	uint64		inval_count;

	do
	{
		List	   *indexes;
		ListCell   *lc;

		inval_count = SharedInvalidMessageCounter;
		indexes = RelationGetIndexList(rel);
		foreach(lc, indexes)
			ShedlockLockRelation(lfirst_oid(lc), RowExclusiveLock);
		list_free(indexes);
	} while (inval_count != SharedInvalidMessageCounter);
}

/*
 * ShedlockOpenIndex - open an index of a table that is locked, for reading
 *
 * Locks: AccessShareLock, until ShedlockCloseIndex().
 */
Relation
ShedlockOpenIndex(Oid relid)
{
	ShedlockLockRelation(relid, AccessShareLock);
	return index_open(relid, NoLock);
}

/*
 * ShedlockCloseIndex - close such an index
 */
void
ShedlockCloseIndex(Relation index)
{
	Oid			relid = RelationGetRelid(index);

	index_close(index, NoLock);
	ShedlockUnlockRelation(relid, AccessShareLock);
}

/*
 * ShedlockLockToast - lock what a table has for values that are stored out of line
 *
 * Call this before a row is written that may have, or had, such values: few have.  Locks: as
 * ShedlockLockIndexes().
 */
void
ShedlockLockToast(Relation rel)
{
	Relation	toast;

	if (!OidIsValid(rel->rd_rel->reltoastrelid))
		return;
	ShedlockLockRelation(rel->rd_rel->reltoastrelid, RowExclusiveLock);
	toast = table_open(rel->rd_rel->reltoastrelid, NoLock);
	ShedlockLockIndexes(toast);
	table_close(toast, NoLock);
}
