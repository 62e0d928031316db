/*-------------------------------------------------------------------------
 *
 * schedulefuncs.c
 *	  The SQL functions for the ticks of schedules.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job/job.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(shedlock_tick);
PG_FUNCTION_INFO_V1(shedlock_next_tick);

/*
 * get_schedule - the schedule of the arguments schedule and time_zone
 *
 * Errors: 22004, 22023.
 */
static void
get_schedule(FunctionCallInfo fcinfo, ShedlockSchedule *schedule)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", PG_ARGISNULL(0) ? "schedule" : "time zone")));
	ShedlockParseSchedule(text_to_cstring(PG_GETARG_TEXT_PP(0)),
						  text_to_cstring(PG_GETARG_TEXT_PP(1)), schedule);
}

/*
 * shedlock_tick(schedule, time_zone) - the tick that a timer which fires now is for
 *
 * Returns null if there is none.  Errors: 22004, 22023.
 */
Datum
shedlock_tick(PG_FUNCTION_ARGS)
{
	ShedlockSchedule schedule;
	TimestampTz tick;

	get_schedule(fcinfo, &schedule);
	tick = ShedlockTickOfTimer(&schedule, GetCurrentTimestamp());
	if (tick == DT_NOBEGIN)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(tick);
}

/*
 * shedlock_next_tick(schedule, time_zone, after) - the first tick after an instant
 *
 * Returns null if there is none.  Errors: 22004, 22023.
 */
Datum
shedlock_next_tick(PG_FUNCTION_ARGS)
{
	ShedlockSchedule schedule;
	TimestampTz tick;

	get_schedule(fcinfo, &schedule);
	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("after must not be null")));
	tick = ShedlockNextTick(&schedule, PG_GETARG_TIMESTAMPTZ(2));
	if (tick == DT_NOEND)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(tick);
}
