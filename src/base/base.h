/*-------------------------------------------------------------------------
 *
 * base.h
 *	  The lowest floor: settings, arguments, names, the clock.
 *
 * Read src/README first: it has the words, the protocol, the lock order and the floors.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_BASE_H
#define SHEDLOCK_BASE_H

#include <time.h>

#include "base/compat.h"
#include "datatype/timestamp.h"
#include "fmgr.h"

/* Limits of arguments. */
#define SHEDLOCK_NAME_MAX		255 /* characters */
#define SHEDLOCK_LOCKED_BY_MAX	200 /* characters; " #token" follows */
#define SHEDLOCK_REASON_MAX		255 /* characters */
#define SHEDLOCK_REQUEST_MAX	255 /* characters */
#define SHEDLOCK_NAMES_MAX		1000	/* of one call */
#define SHEDLOCK_WAIT_NAMES_MAX	100 /* of one call that waits */
#define SHEDLOCK_YEARS_MAX		100 /* longest duration */
#define SHEDLOCK_TICK_AHEAD_MAX	60	/* seconds */

/*
 * Classes of shedlock's heavyweight locks: field4 of an advisory LOCKTAG, where the
 * server uses 1 and 2.  They, the key and the lock modes are a wire format between
 * versions of this library in one cluster: never change them (I11).
 */
#define SHEDLOCK_CLASS_LOCK		21324	/* the advisory half of a lock */
#define SHEDLOCK_CLASS_WAITER	21325	/* marker of a session that waits */
#define SHEDLOCK_CLASS_SENTINEL	21326	/* gone after the session is reset */
#define SHEDLOCK_CLASS_TICK		21327	/* an open claim of a tick, or answer
										 * to a request */

/* The clock of deadlines and waits, which cannot be set. */
#ifdef CLOCK_BOOTTIME
#define SHEDLOCK_STEADY_CLOCK	CLOCK_BOOTTIME
#else
#define SHEDLOCK_STEADY_CLOCK	CLOCK_MONOTONIC
#endif

/*
 * Caches that are only for speed, each in one place: a build with CACHES=no has none of
 * them, and does the same.
 */
#ifdef SHEDLOCK_NO_CACHES
#define SHEDLOCK_CACHES			false
#else
#define SHEDLOCK_CACHES			true
#endif

/* The name of a lock, checked. */
typedef struct ShedlockName
{
	char	   *str;
	int			len;			/* bytes */
	Oid			nsp;			/* schema of the extension */
	LOCKTAG		tag;			/* its advisory half */
} ShedlockName;

/* process.c */
extern int64 ShedlockSteadyNow(void);
extern bool ShedlockNap(long ms);
extern void ShedlockCheckClient(void);
extern void (*shedlock_register_ends) (void);
extern void ShedlockUseSession(void);
extern void ShedlockShield(void (*step) (const void *arg), const void *arg);
extern ErrorData *ShedlockTrySubtransaction(void (*step) (void *arg), void *arg);

/* settings.c */
enum
{
	SHEDLOCK_NOTIFY_NONE,
	SHEDLOCK_NOTIFY_FAILURES,
	SHEDLOCK_NOTIFY_ALL
};

extern int	shedlock_notify;
extern int	shedlock_default_lock_at_most_for;
extern int	shedlock_default_lock_at_least_for;
extern int	shedlock_max_lock_at_most_for;
extern int	shedlock_max_wait;
extern int	shedlock_history_keep;
extern int	shedlock_foreign_clock_tolerance;
extern bool shedlock_require_token;
extern bool shedlock_role_prefix;
extern bool shedlock_log_locks;
extern bool shedlock_log_skipped_runs;

extern void ShedlockDefineSettings(void);
extern void ShedlockShowAttempt(const char *tick, const char *attempt, bool failed);

/* name.c */
extern uint64 ShedlockKey(const char *name, int len);
extern void ShedlockSetTag(LOCKTAG *tag, uint16 lockclass, uint64 key);
extern void ShedlockTagOfClass(LOCKTAG *tag, const LOCKTAG *base, uint16 lockclass);
extern void ShedlockMakeName(Oid nsp, char *str, ShedlockName *name);
extern bool ShedlockMayUseName(const char *name);
extern void ShedlockCheckMayUse(const ShedlockName *name);

/* printable.c */
extern bool ShedlockMaskText(char *str);
extern void ShedlockCheckText(char *str, const char *what);

/* duration.c */
extern Interval *ShedlockIntervalSetting(int seconds);
extern Interval *ShedlockCopyInterval(const Interval *span);
extern Interval *ShedlockGetInterval(FunctionCallInfo fcinfo, int argno, int null_seconds);
extern bool ShedlockIsDuration(const Interval *span);
extern bool ShedlockIsPeriod(const Interval *span);
extern bool ShedlockIsOverCap(const Interval *span, int cap);
extern void ShedlockCheckDuration(const Interval *span, const char *what, const char *name,
								  bool zero_ok, int cap, const char *cap_setting);
extern void ShedlockCheckAtLeast(const Interval *at_least, const Interval *at_most,
								 const char *name);
extern void ShedlockCheckTimes(const Interval *at_most, const Interval *at_least,
							   const char *name);
extern Timestamp ShedlockAddInterval(Timestamp when, const Interval *span);
extern int64 ShedlockIntervalMicroseconds(const Interval *span);

/* args.c */
extern Oid	ShedlockSchema(FunctionCallInfo fcinfo);
extern void ShedlockRefuseNull(bool isnull, const char *what, const char *name);
extern void ShedlockGetName(FunctionCallInfo fcinfo, int argno, ShedlockName *name);
extern ShedlockName *ShedlockGetNames(FunctionCallInfo fcinfo, int argno, int max, int *n);
extern void ShedlockCheckMayWrite(const char *call);
extern void ShedlockBeginCall(FunctionCallInfo fcinfo, const char *call, ShedlockName *name);
extern int64 ShedlockGetToken(FunctionCallInfo fcinfo, int argno);
extern char *ShedlockGetText(FunctionCallInfo fcinfo, int argno, int maxchars,
							 const char *what);
extern char *ShedlockGetWord(FunctionCallInfo fcinfo, int argno, const char *if_null);
extern Datum ShedlockFormAnswer(FunctionCallInfo fcinfo, Datum *values, bool *isnull);
extern void ShedlockShowTime(TimestampTz when, Datum *value, bool *isnull);
extern char *ShedlockLockedBy(const char *given, int64 token);
extern bool ShedlockMaySee(Oid role);
extern const char *ShedlockActingRole(void);
extern const char *ShedlockTimeString(TimestampTz when);

#endif							/* SHEDLOCK_BASE_H */
