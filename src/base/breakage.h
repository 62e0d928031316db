/*-------------------------------------------------------------------------
 *
 * breakage.h
 *	  Breaking the protocol on purpose, to prove that a test would notice.
 *
 * The fault checker (test/faults/README) must find each of these.  They exist only in a
 * library built with SHEDLOCK_BREAKABLE=yes, which says so in the server's log and is
 * for tests only.  In any other build the conditions are constant, and the compiler
 * removes them.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_BREAKAGE_H
#define SHEDLOCK_BREAKAGE_H

#ifdef SHEDLOCK_BREAKABLE

enum
{
	BREAK_NONE,
	NO_ADVISORY_HALF,			/* acquire goes by the row alone */
	TRANSACTION_TIME,			/* acquire uses now() as the time */
	NO_SECOND_READ,				/* step 1 of acquire decides */
	NO_OWNER_CHECK,				/* release and extend change any owner's lock */
	TOKENS_REUSED,				/* each token is given twice */
	ATTEMPTS_UNCOUNTED,			/* the begin of a run does not count */
	SUCCESS_UNWRITTEN,			/* a success leaves its tick open */
	TICKS_SWALLOWED,			/* a success uses up the ticks that follow,
								 * too */
	PERMITS_EXCEEDED			/* there is one permit more */
};

extern int	shedlock_break;

extern void ShedlockDefineBreakage(void);
extern void ShedlockBreakDelay(void);

#define ShedlockBroken(what)	(shedlock_break == (what))

#else

#define ShedlockDefineBreakage()	((void) 0)
#define ShedlockBreakDelay()	((void) 0)
#define ShedlockBroken(what)	false

#endif

#endif							/* SHEDLOCK_BREAKAGE_H */
