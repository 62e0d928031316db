/*-------------------------------------------------------------------------
 *
 * ledger.h
 *	  What has happened in a world, and what was promised about it.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef LEDGER_H
#define LEDGER_H

#include "job/job.h"

#define SECOND		USECS_PER_SEC
#define MINUTE		USECS_PER_MINUTE
#define HOUR		USECS_PER_HOUR
#define DAY			USECS_PER_DAY
#define FOREVER		(DAY * 36500)
#define OFFSETS_MAX 3

/* A schedule as the ledger has it: the same offsets in each cycle, counted from base. */
typedef struct Rhythm
{
	bool		is_cron;
	int64		cycle;
	int64		base;			/* after 1970 */
	int			n;
	int64		offsets[OFFSETS_MAX];	/* in order */
	char		text[120];
} Rhythm;

typedef struct Settings
{
	int			attempts;
	int64		backoff;
	bool		all;
	int64		max_late;
	int64		overdue_after;
} Settings;

typedef struct Promise
{
	const char *what;
	int64		checked;
	int64		broken;
	int64		world;			/* the first one that broke it */
} Promise;

extern Promise promises[];
extern int	promised;
extern int64 world_seed;
extern bool world_broken;
extern void promise(bool kept, const char *what);
extern void note(const char *format,...) pg_attribute_printf(1, 2);

extern TimestampTz plan_previous(const Rhythm *plan, TimestampTz at);
extern TimestampTz plan_next(const Rhythm *plan, TimestampTz after);

extern void ledger_reset(void);
extern void ledger_declared(const Rhythm *plan, const Settings *settings, const char *word);
extern void ledger_forgot(void);
extern void ledger_called(void);
extern void ledger_begun(TimestampTz tick, int attempt, int64 token, TimestampTz lease_end);
extern void ledger_refused(void);
extern void ledger_ended(int64 token, ShedlockOutcome outcome);
extern void ledger_cancelled(void);
extern void ledger_claimed(TimestampTz tick, bool claimed);
extern void ledger_again(void);
extern void ledger_skipped(TimestampTz tick);
extern void ledger_paused(TimestampTz until);
extern void ledger_jumped(void);
extern void ledger_passed(void);
extern void ledger_watched(const ShedlockStanding *standing);
extern bool ledger_is_free(TimestampTz at);
extern bool ledger_is_declared(void);
extern int64 ledger_at_work(void);

#endif							/* LEDGER_H */
