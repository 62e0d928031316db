/*-------------------------------------------------------------------------
 *
 * stage.h
 *	  What the library sees of a simulated world: a clock, the rows of one name, its lock.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef STAGE_H
#define STAGE_H

#include "job/job.h"

/* The clock of the server. */
extern TimestampTz stage_clock;

/* The lock of the name. */
extern ShedlockRow stage_lock;

extern void stage_reset(TimestampTz now);

#endif							/* STAGE_H */
