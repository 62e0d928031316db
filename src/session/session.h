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

/* How things stand with a holding; a rollback may bring the state before back. */
typedef struct ShedlockHoldingState
{
	struct ShedlockHoldingState *before;	/* NULL: this is committed */
	SubTransactionId made_in;	/* if it is not */
	bool		held;			/* acquired, and not released */
	int64		deadline;		/* steady clock; DT_NOEND: no limit */
} ShedlockHoldingState;

/* A session lock or a run of this session. */
typedef struct ShedlockHolding
{
	struct ShedlockHolding *next;
	LOCKTAG		tag;
	int64		token;
	bool		is_run;
	bool		upgraded;		/* has got its session-level lock */
	int			sentinel_number;	/* what ShedlockWatchReset returned then */
	ShedlockHoldingState state;
	char		name[FLEXIBLE_ARRAY_MEMBER];
} ShedlockHolding;

/* deadline.c */
extern int64 ShedlockDeadlineAt(TimestampTz until);
extern void ShedlockSetDeadlines(int64 session, int64 run);
extern void ShedlockWatchRuns(bool watch);
extern int64 ShedlockRunDeadline(void);
extern bool ShedlockRunDeadlinePassed(void);
extern void ShedlockForgetRunDeadlinePassed(void);

/* lease.c */
extern int	ShedlockWatchReset(void);
extern bool ShedlockWasReset(int watched);
extern void ShedlockRememberLease(int64 token);
extern bool ShedlockLeaseOfSession(int64 token);
extern void ShedlockLeasesAtEnd(bool is_prepare);

/* holdings.c */
extern ShedlockHolding *ShedlockFindHolding(const ShedlockName *name, int64 token);
extern void ShedlockAddHolding(const ShedlockName *name, int64 token, bool is_run,
							   TimestampTz until);
extern void ShedlockReleaseHolding(ShedlockHolding *holding);
extern void ShedlockReleaseStaleHoldings(const ShedlockName *name);
extern void ShedlockExtendHolding(ShedlockHolding *holding, TimestampTz until);
extern bool ShedlockHolds(const ShedlockName *name, int64 token);
extern void ShedlockRetakeHolding(ShedlockHolding *holding);
extern void ShedlockForgetRun(const ShedlockName *name, int64 token);
extern void ShedlockTouchSession(void);
extern const char *ShedlockOutlivedLock(void);
extern void ShedlockSessionPreCommit(void);
extern void ShedlockSessionPrePrepare(void);
extern void ShedlockSessionCommit(bool is_safe);
extern void ShedlockSessionAbort(SubTransactionId subid);
extern void ShedlockHandOverChanges(SubTransactionId subid, SubTransactionId parent);
extern void ShedlockSessionExit(int code, Datum arg);

/* durability.c */
extern void ShedlockCommitDurably(void);
extern void ShedlockCommitDurablyAgain(void);
extern void ShedlockBeginRelease(void);
extern void ShedlockEndRelease(void);
extern void ShedlockDurabilityPrePrepare(void);
extern void ShedlockDurabilityPreCommit(void);
extern void ShedlockDurabilityCommit(void);
extern bool ShedlockCommitIsSafe(void);
extern void ShedlockCommitLocally(void);
extern void ShedlockDurabilityReset(void);

/* sends.c */
extern void ShedlockNotifyAtCommit(const char *payload);
extern void ShedlockSignalAtCommit(const ShedlockName *name, int pid,
								   TimestampTz backend_start, int signo);
extern bool ShedlockIsSignaled(int pid, TimestampTz backend_start, int signo);
extern void ShedlockEventsPreCommit(void);
extern void ShedlockSignalsPrePrepare(void);
extern void ShedlockSendsCommit(void);
extern void ShedlockSignalsAwait(void);
extern void ShedlockSendsSubCommit(SubTransactionId subid, SubTransactionId parent);
extern void ShedlockSendsSubAbort(SubTransactionId subid);
extern void ShedlockSendsReset(void);

/* ends.c */
extern void ShedlockRegisterEnds(void);

#endif							/* SHEDLOCK_SESSION_H */
