/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  When this process begins to need callbacks at the ends of transactions.
 *
 * The callbacks call most of the library, and most of the library may be the
 * first to need them: so they are named here by module.c.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/base.h"

static void (*register_callbacks) (void) = NULL;

/*
 * ShedlockSetEnds - name the function that registers the callbacks
 */
void
ShedlockSetEnds(void (*callbacks) (void))
{
	register_callbacks = callbacks;
}

/*
 * ShedlockUseSession - hook into the ends of this process's transactions
 *
 * Not when the library is loaded: a preloaded library is loaded by the
 * postmaster, and a session that only gets refused pays for nothing.
 */
void
ShedlockUseSession(void)
{
	static bool registered = false;

	if (registered)
		return;
	register_callbacks();
	registered = true;
}
