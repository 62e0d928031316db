/*-------------------------------------------------------------------------
 *
 * module.c
 *	  Entry of the library.
 *
 * Everything works without preloading.
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
 * Interrupts are held off: a message that the server has about a setting would
 * obey a cancel, and the library would be there by half for as long as the
 * session lasts, since no setting can be defined twice.
 */
void
_PG_init(void)
{
	ShedlockCheckPlaceholders();

	HOLD_INTERRUPTS();
	ShedlockDefineSettings();
	ShedlockSetEnds(ShedlockRegisterEnds);

	/* Last: a hook would outlive a library that failed to load. */
	ShedlockKeepWarnings();
	RESUME_INTERRUPTS();
}
