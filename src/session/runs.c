/*-------------------------------------------------------------------------
 *
 * runs.c
 *	  The runs whose commands this process is executing, innermost first.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "session/session.h"

static ShedlockActiveRun *active_runs = NULL;

/*
 * ShedlockEnterRun - the command of that run begins
 */
void
ShedlockEnterRun(ShedlockActiveRun *run)
{
	run->outer = active_runs;
	active_runs = run;
}

/*
 * ShedlockLeaveRun - the innermost run is over
 */
void
ShedlockLeaveRun(void)
{
	active_runs = active_runs->outer;
}

/*
 * ShedlockInRun - does this process execute the command of any run?
 */
bool
ShedlockInRun(void)
{
	return active_runs != NULL;
}

/*
 * ShedlockRunIsActive - is that run on the stack of this process?
 */
bool
ShedlockRunIsActive(const char *name, int64 token)
{
	for (ShedlockActiveRun *run = active_runs; run; run = run->outer)
	{
		if (run->token == token && strcmp(run->name, name) == 0)
			return true;
	}
	return false;
}
