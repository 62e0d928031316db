/*-------------------------------------------------------------------------
 *
 * session.h
 *	  What this process holds, and what becomes of it when things end.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_SESSION_H
#define SHEDLOCK_SESSION_H

#include "advisory/advisory.h"
#include "lib/ilist.h"

/* What a subtransaction that is open did to the deadline of a session lock. */
typedef struct ShedlockExtension
{
	SubTransactionId subid;
	int64		old_deadline;
	struct ShedlockExtension *outer;	/* of the subtransaction around it */
} ShedlockExtension;

/*
 * A session lock or a run of this backend.  The fields of type
 * SubTransactionId are invalid once the change is committed.
 */
typedef struct ShedlockHolding
{
	dlist_node	node;
	LOCKTAG		tag;
	int64		token;
	bool		is_run;
	bool		upgraded;		/* has its session-level lock */
	int			resets;			/* what ShedlockWatchReset said before that;
								 * not for runs */
	SubTransactionId acquired_in;
	SubTransactionId released_in;
	int64		deadline;		/* steady clock; DT_NOEND: no limit */
	ShedlockExtension *extension;	/* innermost that is not committed, or
									 * NULL */
	char		name[FLEXIBLE_ARRAY_MEMBER];
} ShedlockHolding;

/* A run whose command this process is executing. */
typedef struct ShedlockActiveRun
{
	const char *name;
	int64		token;
	struct ShedlockActiveRun *outer;	/* in whose command this one is */
} ShedlockActiveRun;

/* runs.c */
extern void ShedlockEnterRun(ShedlockActiveRun *run);
extern void ShedlockLeaveRun(void);
extern bool ShedlockInRun(void);
extern bool ShedlockRunIsActive(const char *name, int64 token);

/* deadline.c */
extern int64 ShedlockDeadlineAt(TimestampTz until);
extern void ShedlockSetDeadlines(int64 session, int64 run);
extern bool ShedlockWatchRuns(bool watch);
extern bool ShedlockRunDeadlinePassed(void);
extern void ShedlockForgetRunDeadlinePassed(void);

/* lease.c */
extern int	ShedlockWatchReset(void);
extern bool ShedlockWasReset(int watched);
extern void ShedlockRememberLease(int64 token);
extern bool ShedlockLeaseOfSession(int64 token);
extern void ShedlockLeasesAtEnd(bool is_prepare);

/* holdings.c */
extern ShedlockHolding *ShedlockFindHolding(const char *name, int64 token);
extern ShedlockHolding *ShedlockAddHolding(const ShedlockName *name, int64 token,
										   bool is_run, TimestampTz until);
extern void ShedlockReleaseHolding(ShedlockHolding *holding);
extern void ShedlockReleaseStaleHoldings(const char *name);
extern bool ShedlockHoldsSession(const char *name, int64 token);
extern void ShedlockDropHolding(ShedlockHolding *holding);
extern void ShedlockExtendHolding(ShedlockHolding *holding, TimestampTz until);
extern void ShedlockRetakeHolding(ShedlockHolding *holding);
extern void ShedlockTouchSession(void);
extern void ShedlockSessionPreCommit(void);
extern void ShedlockSessionPrePrepare(void);
extern void ShedlockSessionPrepared(void);
extern void ShedlockSessionCommit(void);
extern void ShedlockSessionAbort(void);
extern void ShedlockSessionSubCommit(SubTransactionId subid, SubTransactionId parent);
extern void ShedlockSessionSubAbort(SubTransactionId subid);
extern void ShedlockSessionExit(void);

/* durability.c */
extern void ShedlockCommitDurably(void);
extern void ShedlockBeginRelease(void);
extern void ShedlockEndRelease(void);
extern void ShedlockDurabilityPrePrepare(void);
extern void ShedlockDurabilityPreCommit(void);
extern bool ShedlockCommitIsSafe(void);
extern void ShedlockCommitLocally(void);
extern void ShedlockDurabilityReset(void);

/* ends.c */
extern void ShedlockRegisterEnds(void);

#endif							/* SHEDLOCK_SESSION_H */
