/*-------------------------------------------------------------------------
 *
 * advisory.h
 *	  The advisory half of a lock: the server's lock table, and waking.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_ADVISORY_H
#define SHEDLOCK_ADVISORY_H

#include "base/base.h"
#include "nodes/pg_list.h"

/* A process that holds a lock of one of shedlock's classes. */
typedef struct ShedlockHolder
{
	uint16		lockclass;
	uint64		key;
	int			pid;			/* 0: a prepared transaction */
	TransactionId prepared_xid; /* valid only if pid is 0 */
	bool		exclusive;
} ShedlockHolder;

/* The holders of a lock. */
typedef struct ShedlockUse
{
	bool		known;			/* false: the rest was not read yet */
	bool		exclusive;		/* then there is one holder */
	bool		by_other;		/* another process or a prepared transaction */
	int			pid;			/* of such a holder, or if there is none, of
								 * this process; 0: a prepared transaction, or
								 * nobody */
	List	   *pids;			/* of all holders */
} ShedlockUse;

/* How long a waiter that is woken has time to react. */
#define SHEDLOCK_REACT_MS		8

/* A place in the line of those who wait for a lock. */
typedef struct ShedlockPlaceInLine
{
	LOCKTAG		tag;			/* of the lock */
	LOCKTAG		marker;
	VirtualTransactionId *ahead;	/* who waited before, in order */
	int			nahead;
	bool		yields;			/* naps so that those ahead can react */
} ShedlockPlaceInLine;

/* The places of a process that waits for one of some locks. */
typedef struct ShedlockLines
{
	int			n;
	ShedlockPlaceInLine *places;
} ShedlockLines;

/* locktable.c */
extern bool ShedlockTryLock(const LOCKTAG *tag, LOCKMODE mode);
extern void ShedlockUnlock(const LOCKTAG *tag, LOCKMODE mode);
extern List *ShedlockHolders(const LOCKTAG *tag);
extern int	ShedlockBlockedHolder(const LOCKTAG *tag);
extern void ShedlockAddToUse(ShedlockUse *use, const ShedlockHolder *holder);
extern void ShedlockReadUse(const LOCKTAG *tag, ShedlockUse *use);
extern bool ShedlockBackendAlive(int pid, TimestampTz backend_start);

/* wake.c */
extern bool ShedlockTryShare(const LOCKTAG *tag);
extern void ShedlockWakeLater(const LOCKTAG *tag);
extern void ShedlockWakeAtRollback(const LOCKTAG *tag);
extern void ShedlockWakeAtRelease(bool is_commit, bool top_level);
extern void ShedlockWake(const LOCKTAG *tag);

/* line.c */
extern bool ShedlockJoinLines(ShedlockLines *lines, const ShedlockName *names, int n);
extern bool ShedlockYields(const ShedlockLines *lines);
extern bool ShedlockTurn(ShedlockLines *lines, bool woken, bool over);
extern void ShedlockLeaveLines(ShedlockLines *lines);

#endif							/* SHEDLOCK_ADVISORY_H */
