/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  Registers the callbacks at the ends of transactions and of the process.
 *
 * The callbacks call most of the library, and most of the library can be the first to
 * need them, so module.c names them here.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/base.h"

void		(*shedlock_register_ends) (void) = NULL;

/*
 * ShedlockUseSession - register the callbacks, at the first call in this process
 *
 * They are not registered when the library is loaded, because the postmaster loads a
 * preloaded library, and because a session that is only ever refused does not need them.
 */
void
ShedlockUseSession(void)
{
	if (shedlock_register_ends == NULL)
		return;
	shedlock_register_ends();
	shedlock_register_ends = NULL;
}
