/*-------------------------------------------------------------------------
 *
 * due.c
 *	  The library's rule of what is due, for test/t/run-due-model.pl.
 *
 * The rule has no SQL function of its own, because the time is an argument of it.  This
 * library is linked with the objects of shedlock, and takes nothing from an installed one.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "job/job.h"
#include "utils/builtins.h"
#include "utils/typcache.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(due);

/*
 * get_tick - the first argument, a row of _shedlock_tick
 */
static void
get_tick(FunctionCallInfo fcinfo, ShedlockTick *last)
{
	HeapTupleHeader header = PG_GETARG_HEAPTUPLEHEADER(0);
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(header),.t_data = header};
	TupleDesc	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(header), -1);
	Datum	   *values = palloc((Size) desc->natts * sizeof(Datum));
	bool	   *nulls = palloc((Size) desc->natts * sizeof(bool));

	heap_deform_tuple(&tuple, desc, values, nulls);
	ReleaseTupleDesc(desc);
	ShedlockTickFromColumns(values, nulls, last);
}

/*
 * due(last, schedule, period, catch_up, max_late, attempts, at) - what is due at that time
 *
 * last: a row of _shedlock_tick without nulls that the table does not have; or null.  The
 * rest as the arguments of shedlock_run; the schedule is in UTC.
 */
Datum
due(PG_FUNCTION_ARGS)
{
	static const char *const actions[] = {
		[SHEDLOCK_NOTHING] = "none",
		[SHEDLOCK_REGISTER] = "register",
		[SHEDLOCK_RUN_TICK] = "run",
	};
	ShedlockTick last = {0};
	ShedlockPlan plan = {0};
	ShedlockDue answer;
	Datum		values[3];
	bool		nulls[3] = {false, false, false};

	if (!PG_ARGISNULL(0))
		get_tick(fcinfo, &last);
	plan.period = ShedlockGetInterval(fcinfo, 2, 0);
	if (plan.period)
		ShedlockPeriodSchedule(plan.period, "", &plan.schedule);
	else
		(void) ShedlockParseSchedule(text_to_cstring(PG_GETARG_TEXT_PP(1)), "UTC", false,
									 &plan.schedule);
	if (!ShedlockFindCatchUp(text_to_cstring(PG_GETARG_TEXT_PP(3)), &plan.catch_up_all))
		elog(ERROR, "invalid value for catch_up");
	plan.max_late = ShedlockGetInterval(fcinfo, 4, 0);
	plan.attempts = PG_GETARG_INT32(5);

	answer = ShedlockFindDue(&last, &plan, PG_GETARG_TIMESTAMPTZ(6));
	values[0] = CStringGetTextDatum(actions[answer.action]);
	values[1] = TimestampTzGetDatum(answer.tick);
	values[2] = Int32GetDatum(answer.attempt);
	nulls[1] = nulls[2] = answer.action == SHEDLOCK_NOTHING;
	return ShedlockFormAnswer(fcinfo, values, nulls);
}
