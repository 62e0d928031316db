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

/* A timer that claims a tick may be this early, or a quarter of the distance of ticks. */
#define SHEDLOCK_CLAIM_EARLY	(30 * USECS_PER_SEC)

/* The same for one that begins a run: the call sleeps until the tick. */
#define SHEDLOCK_RUN_EARLY		(2 * USECS_PER_SEC)

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
	const char *text;			/* for people to read */
} ShedlockSchedule;

/* What shedlock_job has declared: a row of _shedlock_job. */
typedef struct ShedlockJob
{
	bool		found;			/* false: the rest is zero */
	bool		is_readable;	/* its schedule can be parsed */
	char	   *name;
	ShedlockSchedule schedule;
	char	   *schedule_text;	/* as it was given */
	char	   *time_zone;
	int			attempts;
	Interval   *backoff;
	const char *catch_up;		/* "all", "latest" or an unknown text */
	bool		catch_up_all;	/* each missed tick is made up, not the last
								 * one alone */
	Interval   *max_late;		/* NULL: no limit */
	Interval   *overdue_after;
	Interval   *slow_after;		/* NULL: no run is slow */
	Interval   *at_most;		/* this and the next: or NULL */
	Interval   *at_least;
	char	   *description;	/* or NULL */
	TimestampTz since;			/* ticks count after this */
	TimestampTz carried;		/* a tick of its schedule before, that was due
								 * then; DT_NOBEGIN if null */
	int64		spent_token;	/* of a run whose tick is used up; 0 if null */
	TimestampTz created_at;
	char	   *created_by;
	TimestampTz declared_at;
	char	   *declared_by;
	int			turns;			/* changes, each within an hour of the one
								 * before */
} ShedlockJob;

/* The state of a name's ticks: a row of _shedlock_tick. */
typedef struct ShedlockTick
{
	bool		found;			/* false: none was claimed or run, and the
								 * rest says so */
	char	   *name;
	TimestampTz tick;			/* DT_NOBEGIN: none */
	TimestampTz claimed_at;
	char	   *claimed_by;
	int64		token;			/* of its last run; 0 for a claim */
	int			attempt;		/* runs of it that have begun */
	bool		done;			/* it is used up */
	TimestampTz again_at;		/* it can be claimed or run once more;
								 * DT_NOBEGIN if null, as the next three */
	TimestampTz retry_at;		/* DT_NOEND: the last attempt has failed */
	TimestampTz skipped;		/* a later tick that is used up */
	TimestampTz gave_up_at;		/* a tick had no attempt left, and none has
								 * succeeded since */
	Interval   *period;			/* of a claim; or NULL */
} ShedlockTick;

/* What is due: an attempt at a tick. */
typedef struct ShedlockDue
{
	TimestampTz tick;
	int			attempt;		/* 0: nothing is due */
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
	bool		needs_job;		/* a name that is not declared has no run */
	Interval   *at_most;		/* this and the next: as the call says, or
								 * NULL */
	Interval   *at_least;
	int64		token;			/* this and the next three: once it has begun */
	TimestampTz tick;
	int			attempt;		/* 0: it has no tick */
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

/* Whether a run has begun, or why not; the texts are in begin.c. */
typedef enum ShedlockBeginning
{
	SHEDLOCK_BEGUN,
	SHEDLOCK_NOT_DUE,
	SHEDLOCK_BUSY,				/* the lock is held or kept */
	SHEDLOCK_ON_HOLD,			/* it is paused */
	SHEDLOCK_CLAIMED,			/* an open transaction has the lock, the tick
								 * or the request */
	SHEDLOCK_REPEATED			/* the request has begun a run before */
} ShedlockBeginning;

/* How a job is doing; the texts are in state.c. */
typedef enum ShedlockJobState
{
	SHEDLOCK_JOB_RUNNING,
	SHEDLOCK_JOB_PAUSED,
	SHEDLOCK_JOB_RETRYING,		/* its last tick has attempts left */
	SHEDLOCK_JOB_DUE,
	SHEDLOCK_JOB_GAVE_UP,		/* its last tick has none, and none succeeded */
	SHEDLOCK_JOB_NEW,			/* no run or claim since it was created */
	SHEDLOCK_JOB_WAITING,
	SHEDLOCK_JOB_UNKNOWN		/* on a standby, which has no holders */
} ShedlockJobState;

typedef struct ShedlockStanding
{
	TimestampTz now;			/* of what follows */
	ShedlockJobState state;
	ShedlockTick last;
	ShedlockHistoryRun run;		/* the last one of its tick */
	bool		at_work;		/* a run has the lock */
	bool		paused;
	TimestampTz attempt_at;		/* of one more attempt; DT_NOEND if none
								 * follows */
	TimestampTz next_due;		/* the next tick; DT_NOEND if there is none */
	TimestampTz overdue_since;	/* this and the next two: DT_NOEND if it has
								 * not that problem */
	TimestampTz gave_up_since;
	TimestampTz slow_since;
	const char *problem;		/* or NULL */
} ShedlockStanding;

/* What a call for a run is answered. */
typedef struct ShedlockAnswer
{
	ShedlockBeginning beginning;
	bool		is_quiet;		/* its tick is being run: no news */
	const char *reason;			/* for people; NULL if it has begun */
	TimestampTz next_at;		/* the next call can succeed then, or if the
								 * run has begun, when its lock is free by
								 * itself; DT_NOEND: not known */
} ShedlockAnswer;

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
extern TimestampTz ShedlockTickOfTimer(const ShedlockSchedule *schedule, TimestampTz now,
									   int64 early);

/* declared.c */
extern bool ShedlockFindCatchUp(const char *text, bool *all);
extern bool ShedlockFindSchedule(const char *text, const char *zone, bool noerror,
								 ShedlockSchedule *schedule);
extern void ShedlockSlotToJob(TupleTableSlot *slot, ShedlockJob *row);
extern void ShedlockReadJob(ShedlockStore *store, const ShedlockName *name, ShedlockJob *job);
extern void ShedlockLookUpJob(const ShedlockName *name, ShedlockJob *job);

/* due.c */
extern TimestampTz ShedlockRetryAt(TimestampTz when, const Interval *backoff, int attempt);
extern TimestampTz ShedlockLastTime(TimestampTz tick, const ShedlockJob *job);
extern TimestampTz ShedlockOpenTick(const ShedlockTick *last, const ShedlockJob *job);
extern bool ShedlockHasSkipped(const ShedlockTick *last, const ShedlockJob *job);
extern ShedlockDue ShedlockFindDue(const ShedlockTick *last, const ShedlockJob *job,
								   TimestampTz now);
extern TimestampTz ShedlockComingTick(const ShedlockTick *last, const ShedlockJob *job,
									  TimestampTz now);
extern TimestampTz ShedlockLapsedTick(const ShedlockTick *last, const ShedlockJob *job,
									  TimestampTz now);
extern TimestampTz ShedlockNextTime(const ShedlockTick *last, const ShedlockJob *job,
									TimestampTz from);
extern TimestampTz ShedlockNextAttempt(const ShedlockTick *last, const ShedlockJob *job,
									   TimestampTz now);
extern TimestampTz ShedlockDueSince(const ShedlockTick *last, const ShedlockJob *job,
									TimestampTz now, TimestampTz free_since);

/* outcome.c */
extern bool ShedlockCountsAsRun(const ShedlockRow *row);
extern void ShedlockReadRun(const ShedlockName *name, int64 token, ShedlockHistoryRun *run);

/* tick.c */
extern void ShedlockReadTick(ShedlockStore *store, const ShedlockName *name, ShedlockTick *last);
extern void ShedlockRereadTick(ShedlockStore *store, const ShedlockName *name,
							   ShedlockTick *last);
extern void ShedlockLookUpTick(const ShedlockName *name, ShedlockTick *last);
extern bool ShedlockLockTick(const ShedlockName *name);
extern void ShedlockUnlockTick(const ShedlockName *name);
extern bool ShedlockWriteTick(ShedlockStore *store, const ShedlockTick *row, bool wait);
extern bool ShedlockGivesUp(const ShedlockTick *before, const ShedlockJob *job);
extern bool ShedlockGiveUpTick(const ShedlockName *name, const ShedlockTick *before);
extern bool ShedlockClaimTick(const ShedlockName *name, TimestampTz tick, Interval *period,
							  ShedlockTick *before);
extern void ShedlockCloseTick(const ShedlockName *name, int64 token);
extern bool ShedlockEndTick(const ShedlockName *name, int64 token, ShedlockOutcome outcome);
extern bool ShedlockAllowTickAgain(const ShedlockName *name, TimestampTz *tick);
extern bool ShedlockSkipTick(const ShedlockName *name, TimestampTz *tick, ShedlockTick *before);
extern bool ShedlockForgetTick(const ShedlockName *name);
extern bool ShedlockTickIsOld(Oid nsp, TupleTableSlot *slot, TimestampTz limit);

/* declare.c */
extern bool ShedlockMayChange(const ShedlockJob *job);
extern const char *ShedlockDeclare(const ShedlockName *name, ShedlockJob *job,
								   void (*change) (const ShedlockJob *old, void *arg, ShedlockJob *job),
								   void *arg);
extern bool ShedlockForgetJob(const ShedlockName *name);

/* state.c */
extern TimestampTz ShedlockFreeSince(const ShedlockRow *row, bool held, TimestampTz now);
extern const char *const shedlock_job_state_names[];
extern void ShedlockFindStanding(const ShedlockName *name, const ShedlockJob *job,
								 ShedlockStanding *standing);
extern TimestampTz ShedlockNextAt(const ShedlockName *name, const ShedlockRow *row,
								  const ShedlockTick *last, const ShedlockJob *job,
								  TimestampTz now);

/* reason.c */
extern ShedlockState ShedlockRefusedFor(const ShedlockName *name, const ShedlockResult *result);
extern char *ShedlockStateReason(const ShedlockRow *row, ShedlockState state);
extern char *ShedlockTickReason(const ShedlockName *name, const ShedlockTick *last,
								const ShedlockJob *job, TimestampTz now);
extern char *ShedlockWhy(const ShedlockName *name);

/* event.c */
extern bool ShedlockTells(bool is_normal);
extern List *ShedlockEndEvents(Oid nsp, int64 token, const ShedlockTick *before);
extern void ShedlockTell(const List *events);
extern void ShedlockTellEnd(Oid nsp, int64 token, const ShedlockTick *before);
extern void ShedlockTellRun(const char *event, bool is_normal, Oid nsp, int64 token,
							const ShedlockTick *before);
extern void ShedlockTellLock(const char *event, const ShedlockName *name, int64 token,
							 TimestampTz until);

/* begin.c */
extern const char *const shedlock_beginning_names[];
extern void ShedlockBeginRun(ShedlockRun *run, const Interval *wait, bool explain,
							 ShedlockAnswer *answer);
extern void ShedlockTryRun(ShedlockRun *run, bool explain, ShedlockAnswer *answer);

/* pick.c */
extern void ShedlockPickRun(ShedlockRun *run, const ShedlockName *names, int n,
							const Interval *wait, ShedlockAnswer *answer);

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
