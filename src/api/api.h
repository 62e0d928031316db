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

/* crontick.c */
extern bool ShedlockParseFire(const char *text, ShedlockSchedule *schedule);

/* cron.c */
extern bool ShedlockReadsCron(void);

/* jobargs.c */
extern void ShedlockGetJob(FunctionCallInfo fcinfo, const char *name, ShedlockJob *job);
extern bool ShedlockJobOfCall(FunctionCallInfo fcinfo, int every, int first, const char *name,
							  ShedlockJob *job);

/* croncall.c */
extern void ShedlockNoticeUnfired(const ShedlockName *name);

/* admin.c */
extern bool ShedlockWarnIfUnknown(const ShedlockName *name, const char *hint);

#endif							/* SHEDLOCK_API_H */
