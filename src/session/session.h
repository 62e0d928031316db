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

/* What a subtransaction has made of a holding; a rollback brings back the one before. */
typedef struct ShedlockHoldingState
{
	SubTransactionId set_in;	/* invalid: committed */
	bool		released;
	int64		deadline;		/* steady clock; DT_NOEND: no limit */
	struct ShedlockHoldingState *before;	/* NULL: not acquired yet, or no
											 * change is open */
} ShedlockHoldingState;

/* A session lock or a run of this session. */
typedef struct ShedlockHolding
{
	struct ShedlockHolding *next;
	LOCKTAG		tag;
	int64		token;
	bool		is_run;
	bool		upgraded;		/* has got its session-level lock */
	int			resets;			/* what ShedlockWatchReset returned then */
	ShedlockHoldingState state;
	char		name[FLEXIBLE_ARRAY_MEMBER];
} ShedlockHolding;

/* deadline.c */
extern int64 ShedlockDeadlineAt(TimestampTz until);
extern void ShedlockSetDeadlines(int64 session, int64 run);
extern void ShedlockWatchRuns(bool watch);
extern bool ShedlockRunDeadlinePassed(void);
extern void ShedlockForgetRunDeadlinePassed(void);

/* lease.c */
extern int	ShedlockWatchReset(void);
extern bool ShedlockWasReset(int watched);
extern void ShedlockRememberLease(int64 token);
extern bool ShedlockLeaseOfSession(int64 token);
extern void ShedlockLeasesAtEnd(bool is_prepare);

/* changes.c */
extern int64 ShedlockRulingDeadline(const ShedlockHoldingState *state,
									int64 committing_since);
extern void ShedlockChangeState(ShedlockHoldingState *state);
extern void ShedlockForgetChanges(ShedlockHoldingState *state);
extern void ShedlockHandOverChange(ShedlockHoldingState *state, SubTransactionId subid,
								   SubTransactionId parent);
extern bool ShedlockUndoChanges(ShedlockHoldingState *state, SubTransactionId subid);

/* holdings.c */
extern ShedlockHolding *ShedlockFindHolding(const char *name, int64 token);
extern void ShedlockAddHolding(const ShedlockName *name, int64 token, bool is_run,
							   TimestampTz until);
extern void ShedlockReleaseHolding(ShedlockHolding *holding);
extern void ShedlockReleaseStaleHoldings(const char *name);
extern void ShedlockExtendHolding(ShedlockHolding *holding, TimestampTz until);
extern bool ShedlockHolds(const char *name, int64 token);
extern void ShedlockRetakeHolding(ShedlockHolding *holding);
extern void ShedlockForgetRun(const char *name, int64 token);
extern void ShedlockTouchSession(void);
extern const char *ShedlockOutlivedLock(void);
extern void ShedlockSessionPreCommit(void);
extern void ShedlockSessionPrePrepare(void);
extern void ShedlockSessionCommit(void);
extern void ShedlockSessionAbort(SubTransactionId subid);
extern void ShedlockSessionSubCommit(SubTransactionId subid, SubTransactionId parent);
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

/* events.c */
extern void ShedlockNotifyAtCommit(const char *payload);
extern void ShedlockEventsPreCommit(void);
extern void ShedlockEventsSubCommit(SubTransactionId subid, SubTransactionId parent);
extern void ShedlockEventsSubAbort(SubTransactionId subid);
extern void ShedlockEventsReset(void);

/* ends.c */
extern void ShedlockRegisterEnds(void);

#endif							/* SHEDLOCK_SESSION_H */
