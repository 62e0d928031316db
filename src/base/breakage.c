/*-------------------------------------------------------------------------
 *
 * breakage.c
 *	  The settings of a build that can be broken: see breakage.h.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/breakage.h"

#ifdef SHEDLOCK_BREAKABLE

#include "base/base.h"
#include "common/pg_prng.h"
#include "utils/guc.h"

int			shedlock_break = BREAK_NONE;
static int	break_delay = 0;

static const struct config_enum_entry break_options[] = {
	{"none", BREAK_NONE, false},
	{"no_advisory_half", NO_ADVISORY_HALF, false},
	{"transaction_time", TRANSACTION_TIME, false},
	{"no_second_read", NO_SECOND_READ, false},
	{"no_owner_check", NO_OWNER_CHECK, false},
	{"tokens_reused", TOKENS_REUSED, false},
	{"attempts_uncounted", ATTEMPTS_UNCOUNTED, false},
	{"success_unwritten", SUCCESS_UNWRITTEN, false},
	{"ticks_swallowed", TICKS_SWALLOWED, false},
	{"permits_exceeded", PERMITS_EXCEEDED, false},
	{NULL, 0, false}
};

/*
 * ShedlockDefineBreakage - define the settings, and warn of this build
 */
void
ShedlockDefineBreakage(void)
{
	DefineCustomEnumVariable("shedlock.break",
							 "Sets how the protocol is broken.",
							 NULL,
							 &shedlock_break,
							 BREAK_NONE, break_options,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("shedlock.break_delay",
							"Sets the longest delay between two steps of the protocol.",
							NULL,
							&break_delay,
							0, 0, 1000,
							PGC_SUSET, GUC_UNIT_MS,
							NULL, NULL, NULL);

	ereport(LOG,
			(errmsg("this build of shedlock can be broken on purpose: it is for tests only")));
}

/*
 * ShedlockBreakDelay - sleep for a random time between two steps
 */
void
ShedlockBreakDelay(void)
{
	if (break_delay > 0)
		ShedlockNap((long) pg_prng_uint64_range(&pg_global_prng_state, 1,
												(uint64) break_delay));
}

#endif
