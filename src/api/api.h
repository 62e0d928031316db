/*-------------------------------------------------------------------------
 *
 * api.h
 *	  What the SQL functions share: pg_cron's jobs, and names that are not known.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_API_H
#define SHEDLOCK_API_H

#include "job/job.h"

/* What a guarded CALL says */
typedef struct ShedlockGuardedCall
{
	char	   *name;
	char	   *command;
	char	   *schema;			/* NULL: the CALL names none */
	bool		has_more_args;
} ShedlockGuardedCall;

/* A job of pg_cron that is guarded */
typedef struct ShedlockGuardedJob
{
	char	   *jobid;
	char	   *schedule;		/* by which pg_cron fires it */
	bool		active;
	bool		has_more_args;
} ShedlockGuardedJob;

/* The caller, while another role acts */
typedef struct ShedlockCaller
{
	Oid			role;
	int			sec_context;
} ShedlockCaller;

/* crontick.c */
extern const char *ShedlockCronZone(void);
extern int	ShedlockCronSeconds(const char *str);
extern bool ShedlockParseFire(const char *text, ShedlockSchedule *schedule);
extern const char *ShedlockFireFor(const ShedlockJob *job, const char *given);
extern TimestampTz ShedlockMissedTick(const ShedlockSchedule *schedule, const char *fire_text);

/* cron.c */
extern bool ShedlockReadsCron(void);
extern void ShedlockBecome(Oid role, ShedlockCaller *caller);
extern void ShedlockBecomeAgain(const ShedlockCaller *caller);
extern Oid	ShedlockOwner(FunctionCallInfo fcinfo);
extern void ShedlockQueryCron(const char *query, const char *first, const char *second);
extern bool ShedlockMayExecute(Oid nsp, const char *routine, const Oid *types, int ntypes);
extern List *ShedlockGuardedJobs(FunctionCallInfo fcinfo, const ShedlockName *name);

/* jobargs.c */
extern void ShedlockGetJob(FunctionCallInfo fcinfo, const char *name, ShedlockJob *job);
extern void ShedlockReschedule(const ShedlockJob *old, char *schedule, char *time_zone,
							   ShedlockJob *job);

/* croncall.c */
extern bool ShedlockReadGuardedCall(const char *command, ShedlockGuardedCall *call);

/* cronagain.c */
extern void ShedlockRunSoon(FunctionCallInfo fcinfo, const ShedlockName *name);

/* jobfuncs.c */
extern void ShedlockCheckRunContext(FunctionCallInfo fcinfo);
extern PGDLLEXPORT Datum shedlock_run(PG_FUNCTION_ARGS);

/* admin.c */
extern bool ShedlockWarnIfUnknown(const ShedlockName *name, const char *hint);

#endif							/* SHEDLOCK_API_H */
