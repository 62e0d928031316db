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

/* locktable.c */
extern bool ShedlockTryLock(const LOCKTAG *tag, LOCKMODE mode);
extern void ShedlockUnlock(const LOCKTAG *tag, LOCKMODE mode);
extern List *ShedlockHolders(const LOCKTAG *tag);
extern bool ShedlockHeldByPid(const LOCKTAG *tag, int pid);
extern bool ShedlockBackendAlive(int pid, TimestampTz backend_start);

/* wake.c */
extern bool ShedlockTryShare(const LOCKTAG *tag);
extern void ShedlockWakeLater(const LOCKTAG *tag);
extern void ShedlockWakeAtRelease(bool top_level);
extern void ShedlockWake(const LOCKTAG *tag);

#endif							/* SHEDLOCK_ADVISORY_H */
