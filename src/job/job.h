/*-------------------------------------------------------------------------
 *
 * job.h
 *	  Work that runs once: ticks, and commands under a lock.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_JOB_H
#define SHEDLOCK_JOB_H

#include "lock/lock.h"
#include "pgtime.h"

/*
 * The instants that are ticks: those of a cron expression in a time zone, or the
 * starts of periods, which are counted in UTC from the epoch.
 */
typedef struct ShedlockSchedule
{
	int64		period;			/* microseconds; 0: none of it, but the rest */
	uint64		minutes;		/* bit n: minute n; likewise below */
	uint32		hours;
	uint32		days;			/* of the month; bit 0: its last day */
	uint16		months;
	uint8		weekdays;		/* bit 0: Sunday */
	bool		either_day;		/* a day of the month or of the week is enough */
	bool		wildcard;		/* minute or hour begins with "*" */
	pg_tz	   *zone;
	const char *text;			/* the expression, as it is stored */
} ShedlockSchedule;

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

/* A call of shedlock_run, which outlives the transactions that it makes. */
typedef struct ShedlockRun
{
	ShedlockRequest request;
	char	   *command;
	List	   *parsetrees;		/* of the command */
	Interval   *every;			/* NULL: it has no tick */
	TimestampTz tick;
	bool		error_if_busy;
	TimestampTz started_at;		/* this and token: once it has begun */
	int64		token;
	const char *outcome;		/* this and error: once its command has ended */
	ErrorData  *error;			/* NULL: the command succeeded */
	char		warning[SHEDLOCK_MESSAGE_MAX + SHEDLOCK_CLIP_NOTE]; /* the last one of the
																	 * command, or "" */
} ShedlockRun;

/* schedule.c */
extern void ShedlockParseSchedule(const char *text, const char *zone,
								  ShedlockSchedule *schedule);
extern void ShedlockPeriodSchedule(const Interval *every, const char *name,
								   ShedlockSchedule *schedule);
extern bool ShedlockSameSchedule(const ShedlockSchedule *a, const ShedlockSchedule *b);
extern TimestampTz ShedlockPreviousTick(const ShedlockSchedule *schedule, TimestampTz at);
extern TimestampTz ShedlockNextTick(const ShedlockSchedule *schedule, TimestampTz after);
extern TimestampTz ShedlockTickOfTimer(const ShedlockSchedule *schedule, TimestampTz now);

/* tick.c */
extern TimestampTz ShedlockCurrentTick(const Interval *every, const char *name);
extern bool ShedlockTickIsClaimed(const ShedlockName *name, TimestampTz tick,
								  ShedlockTick *last);
extern bool ShedlockClaimTick(const ShedlockName *name, TimestampTz tick,
							  const Interval *period, int64 token, bool again,
							  ShedlockTick *last);
extern void ShedlockClaimTicksOfRun(const ShedlockRun *run);
extern bool ShedlockAllowTickAgain(const ShedlockName *name, TimestampTz *tick);
extern bool ShedlockTickIsOld(TupleTableSlot *slot, TimestampTz limit);

/* execute.c */
extern char *ShedlockGetCommand(FunctionCallInfo fcinfo, int argno, List **parsetrees);
extern void ShedlockKeepWarnings(void);
extern void ShedlockCommitAndStart(void);
extern ErrorData *ShedlockTakeError(MemoryContext context);
extern void ShedlockRunCommand(ShedlockRun *run);
extern ErrorData *ShedlockTryCommand(ShedlockRun *run);

/* finish.c */
extern void ShedlockEndRun(const ShedlockRun *run);
extern const char *ShedlockRunOutcome(const ShedlockName *name, int64 token);

/* run.c */
extern void ShedlockGuardCommand(ShedlockRun *run);

#endif							/* SHEDLOCK_JOB_H */
