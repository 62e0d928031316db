/*-------------------------------------------------------------------------
 *
 * shedlock.h
 *	  What the files of the extension share.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_H
#define SHEDLOCK_H

#include "advisory/advisory.h"
#include "base/base.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "session/session.h"
#include "table/table.h"
#include "utils/rel.h"

/* Why a lock is not free, or that it is. */
typedef enum ShedlockVerdict
{
	SHEDLOCK_FREE,
	SHEDLOCK_HELD,				/* the row is alive */
	SHEDLOCK_KEPT,				/* nobody has it, but its at-least time runs */
	SHEDLOCK_PAUSED,
	SHEDLOCK_BUSY				/* only the advisory half says so */
} ShedlockVerdict;

/* The last claim of a name's ticks. */
typedef struct ShedlockTick
{
	bool		found;			/* false: none of the rest is set */
	TimestampTz tick;
	TimestampTz claimed_at;
	char	   *claimed_by;
	int64		token;			/* of the run; 0 if shedlock_once() claimed it */
	bool		again;			/* it can be claimed once more */
} ShedlockTick;

/* What an acquire asks for; the durations are checked. */
typedef struct ShedlockRequest
{
	ShedlockName name;
	ShedlockKind kind;
	Interval   *at_most;		/* NULL: no limit (session lock, run) */
	Interval   *at_least;		/* NULL: none */
	char	   *locked_by;		/* NULL: made of the connection */
} ShedlockRequest;

/* What an acquire got. */
typedef struct ShedlockResult
{
	ShedlockVerdict verdict;	/* SHEDLOCK_FREE: it is ours now */
	ShedlockRow row;			/* as it is now, or as it stood in the way */
} ShedlockResult;

/* A call of shedlock_run.  All of it outlives the transactions it makes. */
typedef struct ShedlockRun
{
	ShedlockRequest request;
	char	   *command;
	List	   *parsetrees;		/* of the command */
	Interval   *every;			/* NULL: it has no tick */
	TimestampTz tick;
	bool		error_if_busy;
	TimestampTz started_at;		/* once it is taken */
	int64		token;
	char		warning[SHEDLOCK_MESSAGE_MAX + SHEDLOCK_CLIP_NOTE]; /* the last one of the
																	 * command, or "" */
} ShedlockRun;

/* judge.c */
extern bool ShedlockCountsAsLease(const ShedlockRow *row);
extern bool ShedlockHolderLives(const ShedlockRow *row, const ShedlockName *name,
								bool have_advisory);
extern ShedlockVerdict ShedlockJudge(const ShedlockRow *row, const ShedlockName *name,
									 TimestampTz now, bool have_advisory);
extern bool ShedlockIsOfMyRole(const ShedlockRow *row);
extern bool ShedlockIsMine(const ShedlockRow *row, const ShedlockName *name,
						   int64 token, TimestampTz now);
extern char *ShedlockLossDetail(const ShedlockRow *row, const ShedlockName *name,
								int64 token, TimestampTz now);

/* acquire.c */
extern bool ShedlockAcquire(ShedlockStore *store, const ShedlockRequest *request,
							ShedlockResult *result);
extern void ShedlockTellOfBlock(const ShedlockName *name, bool is_tick);

/* wait.c */
extern bool ShedlockAcquireWait(ShedlockStore *store, const ShedlockRequest *request,
								const Interval *wait, ShedlockResult *result);
extern void ShedlockAwaitLock(const ShedlockName *name, int64 *start, long ms);

/* fence.c */
extern bool ShedlockSecure(ShedlockStore *store, const ShedlockName *name,
						   int64 token, ShedlockRow *row, TimestampTz *now);
extern void ShedlockCheckSession(const ShedlockRow *row, const ShedlockName *name,
								 const char *what);
extern void ShedlockWarnLoss(const ShedlockRow *row, const ShedlockName *name,
							 int64 token, TimestampTz now);
extern int64 ShedlockAssert(const ShedlockName *name, int64 token);
extern int64 ShedlockTokenOf(const ShedlockName *name);

/* extend.c */
extern bool ShedlockExtend(const ShedlockName *name, int64 token, Interval *at_most,
						   Interval *at_least);

/* release.c */
extern bool ShedlockRelease(const ShedlockName *name, int64 token);
extern void ShedlockSetReleased(ShedlockRow *row, TimestampTz now, bool keep);

/* tick.c */
extern TimestampTz ShedlockCurrentTick(const Interval *every, const char *name);
extern bool ShedlockTickIsClaimed(const ShedlockName *name, TimestampTz tick,
								  ShedlockTick *last);
extern bool ShedlockClaimTick(const ShedlockName *name, TimestampTz tick,
							  const Interval *period, int64 token,
							  ShedlockTick *last);
extern void ShedlockClaimTicksOfRun(const ShedlockName *name, const Interval *every,
									TimestampTz started_at, int64 token);
extern bool ShedlockTickIsOld(TupleTableSlot *slot, TimestampTz limit);

/* run.c */
extern void ShedlockGuardCommand(ShedlockRun *run);

/* execute.c */
extern void ShedlockCommitAndStart(void);
extern ErrorData *ShedlockTakeError(MemoryContext context);
extern void ShedlockKeepWarnings(void);
extern void ShedlockRunCommand(ShedlockRun *run);
extern ErrorData *ShedlockTryCommand(ShedlockRun *run);

/* finish.c */
extern void ShedlockEndRun(ShedlockRun *run, const char *outcome,
						   const ErrorData *edata);

/* command.c */
extern void ShedlockCheckCommand(List *parsetree_list);
extern void ShedlockPushCommand(ErrorContextCallback *errcallback, char *command);

/* outcome.c */
extern char *ShedlockHistoryOutcome(const ShedlockName *name, int64 token,
									char *logged);

#endif							/* SHEDLOCK_H */
