/*-------------------------------------------------------------------------
 *
 * module.c
 *	  Entry of the library, which needs no preloading.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job/job.h"
#include "miscadmin.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

/*
 * _PG_init - define the settings, and connect the floors
 *
 * Interrupts are held off because the server's messages about a setting obey a cancel.
 * No setting can be defined twice, so that a session in which only some are defined
 * could not load the library any more.
 */
void
_PG_init(void)
{
	HOLD_INTERRUPTS();
	ShedlockDefineSettings();
	shedlock_register_ends = ShedlockRegisterEnds;

	/* Last: a hook would outlive a library that failed to load. */
	ShedlockKeepWarnings();
	RESUME_INTERRUPTS();
}
