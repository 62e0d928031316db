/*-------------------------------------------------------------------------
 *
 * job.h
 *	  Runs, and the schedules and ticks that they are for.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_JOB_H
#define SHEDLOCK_JOB_H

#include "lock/lock.h"
#include "pgtime.h"

/* A timer may be this early, or a quarter of the distance of ticks if that is less. */
#define SHEDLOCK_EARLY_MAX	(30 * USECS_PER_SEC)

/*
 * The instants that are ticks: those of a cron expression in a time zone, or the
 * starts of periods, which are counted in UTC from 1970-01-01.
 */
typedef struct ShedlockSchedule
{
	int64		period;			/* microseconds; 0: what follows "from" counts */
	bool		has_from;		/* periods count from this, and no tick is
								 * before */
	TimestampTz from;
	uint64		minutes;		/* bit n: minute n; likewise below */
	uint32		hours;
	uint32		days;			/* of the month; bit 0: its last day */
	uint16		months;
	uint8		weekdays;		/* bit 0: Sunday */
	bool		either_day;		/* a day of the month or of the week is enough */
	bool		wildcard;		/* minute or hour begins with "*" */
	pg_tz	   *zone;
	const char *text;			/* the expression as it is stored */
} ShedlockSchedule;

/* The schedule of a job, and how often its ticks are run. */
typedef struct ShedlockPlan
{
	ShedlockSchedule schedule;
	Interval   *period;			/* NULL: it has a cron expression */
	bool		catch_up_all;	/* each missed tick is made up, not the last
								 * one alone */
	Interval   *max_late;		/* NULL: no limit */
	int			attempts;
	Interval   *backoff;
} ShedlockPlan;

/* The state of a name's ticks: a row of _shedlock_tick. */
typedef struct ShedlockTick
{
	bool		found;			/* false: the rest is zero */
	TimestampTz tick;
	TimestampTz claimed_at;
	char	   *claimed_by;
	int64		token;			/* of its last run; 0 for a claim */
	int			attempt;		/* runs of it that have begun */
	bool		done;			/* it is used up */
	bool		again;			/* it can be claimed or run once more */
	TimestampTz retry_at;		/* DT_NOBEGIN if null */
	bool		has_plan;		/* the rest was written by a run */
	bool		has_schedule;	/* one that can be parsed */
	ShedlockPlan plan;
} ShedlockTick;

/* What is due now. */
typedef enum ShedlockAction
{
	SHEDLOCK_NOTHING,
	SHEDLOCK_REGISTER,			/* note the tick as passed */
	SHEDLOCK_RUN_TICK
} ShedlockAction;

typedef struct ShedlockDue
{
	ShedlockAction action;
	TimestampTz tick;
	int			attempt;
} ShedlockDue;

/*
 * A run.  That of a command is a call of shedlock_run, which outlives the
 * transactions that it makes.
 */
typedef struct ShedlockRun
{
	ShedlockRequest request;	/* for its lock, which has the name of the job */
	char	   *command;		/* or what the caller says; or NULL */
	char	   *client_request; /* text that identifies the call, or NULL */
	ShedlockPlan *plan;			/* NULL: it has no tick */
	int64		token;			/* this and the next three: once it has begun */
	TimestampTz tick;
	int			attempt;
	List	   *parsetrees;		/* of the command, as all that follows */
	bool		error_if_busy;
	bool		end_written;	/* in the last transaction of the command */
	int64		deadline;		/* this and the next: if so; as in its holding */
	bool		warned;			/* the command has warned since */
	bool		ended;			/* its end is committed, as all that follows */
	ShedlockOutcome outcome;
	ErrorData  *error;			/* NULL: the command succeeded */
	List	   *events;			/* to be told after its end */
	char		warning[SHEDLOCK_MESSAGE_MAX + SHEDLOCK_CLIP_NOTE]; /* the last one of the
																	 * command, or "" */
} ShedlockRun;

/* Whether a run has begun. */
typedef enum ShedlockBeginning
{
	SHEDLOCK_BEGUN,
	SHEDLOCK_NOT_DUE,
	SHEDLOCK_REFUSED			/* the lock is not free */
} ShedlockBeginning;

/* every.c */
extern bool ShedlockIsEvery(const char *text);
extern const char *ShedlockReadEvery(const char *text, pg_tz *zone, ShedlockSchedule *schedule);

/* schedule.c */
extern bool ShedlockParseSchedule(const char *text, const char *zone, bool noerror,
								  ShedlockSchedule *schedule);
extern void ShedlockPeriodSchedule(const Interval *every, const char *name,
								   ShedlockSchedule *schedule);
extern bool ShedlockSameSchedule(const ShedlockSchedule *a, const ShedlockSchedule *b);

/* calendar.c */
extern TimestampTz ShedlockPreviousTick(const ShedlockSchedule *schedule, TimestampTz at);
extern TimestampTz ShedlockNextTick(const ShedlockSchedule *schedule, TimestampTz after);
extern TimestampTz ShedlockTickOfTimer(const ShedlockSchedule *schedule, TimestampTz now);

/* plan.c */
extern char *ShedlockPeriodText(const Interval *period);
extern bool ShedlockFindCatchUp(const char *text, bool *all);
extern bool ShedlockFindSchedule(const char *text, const char *zone, bool noerror,
								 ShedlockSchedule *schedule);
extern ShedlockPlan *ShedlockGetPlan(FunctionCallInfo fcinfo, int every, int first,
									 const char *name);

/* due.c */
extern TimestampTz ShedlockRetryAt(TimestampTz when, const Interval *backoff, int attempt);
extern TimestampTz ShedlockLastTime(TimestampTz tick, const ShedlockPlan *plan);
extern ShedlockDue ShedlockFindDue(const ShedlockTick *last, const ShedlockPlan *plan,
								   TimestampTz now);
extern TimestampTz ShedlockNextAttempt(const ShedlockTick *last, const ShedlockPlan *plan,
									   TimestampTz now);
extern TimestampTz ShedlockDueSince(const ShedlockTick *last, const ShedlockPlan *plan,
									TimestampTz now);

/* tick.c */
extern void ShedlockTickFromColumns(const Datum *values, const bool *nulls, ShedlockTick *last);
extern void ShedlockRereadTick(ShedlockStore *store, const ShedlockName *name,
							   ShedlockTick *last);
extern void ShedlockLookUpTick(const ShedlockName *name, ShedlockTick *last);
extern bool ShedlockLockTick(const ShedlockName *name);
extern void ShedlockUnlockTick(const ShedlockName *name);
extern bool ShedlockWriteTick(ShedlockStore *store, const ShedlockName *name,
							  const ShedlockTick *last, bool wait);
extern bool ShedlockGiveUpTick(const ShedlockName *name, const ShedlockTick *before);
extern bool ShedlockClaimTick(const ShedlockName *name, TimestampTz tick,
							  const ShedlockPlan *plan, ShedlockTick *before);
extern void ShedlockCloseTick(const ShedlockName *name, int64 token);
extern bool ShedlockEndTick(const ShedlockName *name, int64 token, ShedlockOutcome outcome);
extern bool ShedlockAllowTickAgain(const ShedlockName *name, TimestampTz *tick);
extern bool ShedlockForgetTick(const ShedlockName *name);
extern bool ShedlockForgetSchedule(const ShedlockName *name, int64 token);
extern bool ShedlockTickIsOld(Oid nsp, TupleTableSlot *slot, TimestampTz limit);

/* reason.c */
extern bool ShedlockIsKept(const ShedlockName *name, const ShedlockResult *result);
extern char *ShedlockBusyReason(const ShedlockName *name, const ShedlockResult *result);
extern char *ShedlockTickReason(const ShedlockName *name, const ShedlockTick *last,
								const ShedlockPlan *plan, TimestampTz now);
extern char *ShedlockWhy(const ShedlockName *name);

/* event.c */
extern bool ShedlockTells(bool is_normal);
extern void ShedlockTellBegin(Oid nsp, int64 token);
extern List *ShedlockEndEvents(Oid nsp, int64 token, const ShedlockTick *before);
extern void ShedlockTell(const List *events);
extern void ShedlockTellEnd(Oid nsp, int64 token, const ShedlockTick *before);
extern void ShedlockTellGaveUp(Oid nsp, int64 token, const ShedlockTick *before);
extern void ShedlockTellLock(const char *event, const ShedlockName *name, int64 token,
							 TimestampTz until);

/* begin.c */
extern void ShedlockAwaitTick(const ShedlockPlan *plan, const ShedlockName *name,
							  bool commit);
extern ShedlockBeginning ShedlockBeginRun(ShedlockRun *run, const Interval *wait,
										  bool explain, const char **reason);

/* outcome.c */
extern void ShedlockReadRun(const ShedlockName *name, int64 token, ShedlockHistoryRun *run);

/* execute.c */
extern char *ShedlockGetCommand(FunctionCallInfo fcinfo, int argno, List **parsetrees);
extern void ShedlockKeepWarnings(void);
extern void ShedlockCommitAndStart(void);
extern void ShedlockRestartStatementTimeout(void);
extern ErrorData *ShedlockTakeError(MemoryContext context);
extern void ShedlockRunCommand(ShedlockRun *run, void (*before_commit) (ShedlockRun *));
extern void ShedlockCommitBegin(const ShedlockRun *run);
extern ErrorData *ShedlockTryCommand(ShedlockRun *run,
									 void (*before_commit) (ShedlockRun *));

/* finish.c */
extern void ShedlockEndInCommand(ShedlockRun *run);
extern void ShedlockEndRun(ShedlockRun *run);
extern bool ShedlockEndLeasedRun(const ShedlockName *name, int64 token,
								 ShedlockEnding *ending);

/* run.c */
extern void ShedlockGuardCommand(ShedlockRun *run);

#endif							/* SHEDLOCK_JOB_H */
