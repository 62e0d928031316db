/*-------------------------------------------------------------------------
 *
 * lock.h
 *	  The protocol: both halves of a lock together.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_LOCK_H
#define SHEDLOCK_LOCK_H

#include "session/session.h"
#include "table/table.h"

/* That a lock is free, or why not; the texts are in judge.c. */
typedef enum ShedlockState
{
	SHEDLOCK_FREE,
	SHEDLOCK_HELD,				/* the row is alive */
	SHEDLOCK_LOST,				/* likewise, but its process ran elsewhere: it
								 * counts as a lease */
	SHEDLOCK_KEPT,				/* without holder; its at-least time runs */
	SHEDLOCK_PAUSED,
	SHEDLOCK_IN_USE,			/* only the advisory half says so */
	SHEDLOCK_UNCOMMITTED,		/* likewise, and a row that is not committed */
	SHEDLOCK_UNKNOWN			/* on a standby, which has no advisory half */
} ShedlockState;

#define SHEDLOCK_HAS_HOLDER(state)	((state) == SHEDLOCK_HELD || (state) == SHEDLOCK_LOST)

/* For ShedlockJudge(): this call holds the advisory half, exclusively. */
#define SHEDLOCK_MINE	(&(ShedlockUse) {.known = true})

/* What an acquire asks for; the durations are checked. */
typedef struct ShedlockRequest
{
	ShedlockName name;
	ShedlockKind kind;
	Interval   *at_most;		/* NULL: no limit (session lock, run) */
	Interval   *at_least;		/* NULL: none */
	char	   *locked_by;		/* NULL: made from the connection */
	bool		(*confirm) (void *arg); /* does the caller still want the
										 * lock? NULL: it does */
	void	   *confirm_arg;
} ShedlockRequest;

/* What an acquire got. */
typedef struct ShedlockResult
{
	ShedlockState state;		/* SHEDLOCK_FREE: acquired, or not confirmed */
	ShedlockRow row;			/* as written, or as it stood in the way */
	int64		lost_run;		/* that held the lock before; 0 if none did */
	TimestampTz look_at;		/* a waiter tries again then, if not sooner;
								 * 0: there is no such time */
} ShedlockResult;

/* One lock, or some of several. */
typedef struct ShedlockAny
{
	ShedlockRequest request;	/* its name: the one tried last */
	ShedlockName *names;		/* each once, in the order of their bytes */
	int			n;				/* 1 or more */
	int			count;			/* how many are wanted; 1 or more */
	int64	   *tokens;			/* of each name; 0: not acquired */
} ShedlockAny;

/* A wait for a lock; zero before the first nap. */
typedef struct ShedlockWait
{
	int64		start;			/* steady clock */
	int64		checked;		/* for a deadlock; steady clock */
	int			suspect;		/* process that seemed to wait for this one */
	MemoryContext context;		/* of the tries */
} ShedlockWait;

/* judge.c */
extern bool ShedlockCountsAsLease(const ShedlockRow *row);
extern const char *const shedlock_state_names[];
extern ShedlockState ShedlockJudge(const ShedlockRow *row, const ShedlockName *name,
								   TimestampTz now, ShedlockUse *use);
extern bool ShedlockIsHeld(const ShedlockRow *row, const ShedlockName *name,
						   TimestampTz now);
extern bool ShedlockCallerHasRole(const ShedlockRow *row);
extern void ShedlockCheckRole(const ShedlockRow *row, const ShedlockName *name);
extern bool ShedlockCallerOwns(const ShedlockRow *row, const ShedlockName *name,
							   int64 token, TimestampTz now);
extern char *ShedlockLossDetail(const ShedlockRow *row, int64 token, TimestampTz now);

/* acquire.c */
extern TimestampTz ShedlockHolderEnd(const ShedlockRow *row);
extern void ShedlockSetTimes(ShedlockRow *row, TimestampTz now, const Interval *at_least);
extern bool ShedlockAcquire(ShedlockStore *store, const ShedlockRequest *request,
							ShedlockResult *result);
extern void ShedlockNoticeBlock(const ShedlockName *name, bool is_tick);

/* wait.c */
extern long ShedlockNapMs(const ShedlockResult *result);
extern bool ShedlockWaitFor(const ShedlockName *names, int n, const Interval *limit,
							bool (*attempt) (void *arg, ShedlockResult *result),
							void *arg, ShedlockResult *result);
extern void ShedlockAwaitShare(const ShedlockName *name, ShedlockWait *wait, long ms);
extern void ShedlockEndWait(const ShedlockWait *wait);

/* any.c */
extern bool ShedlockAcquireAny(ShedlockAny *any, const Interval *wait);

/* owner.c */
extern int64 ShedlockAssert(const ShedlockName *name, int64 token);
extern int64 ShedlockTokenOf(const ShedlockName *name);
extern bool ShedlockExtend(const ShedlockName *name, int64 token, Interval *at_most,
						   Interval *at_least);
extern bool ShedlockRelease(const ShedlockName *name, int64 token);
extern bool ShedlockReleaseLeasedRun(const ShedlockName *name, int64 token, bool keep);
extern void ShedlockReportLoss(const ShedlockName *name, int64 token);
extern void ShedlockSetReleased(ShedlockRow *row, TimestampTz now, bool keep);

#endif							/* SHEDLOCK_LOCK_H */
