/*-------------------------------------------------------------------------
 *
 * due.c
 *	  The library's rules of what is due, and when, for test/t/run-due-model.pl;
 *	  and the tick before an instant, for run-schedule-oracle.pl.
 *
 * The rules have no SQL functions of their own, because the time is an argument of them.  This
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
#include "utils/timestamp.h"
#include "utils/typcache.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(due);
PG_FUNCTION_INFO_V1(previous_tick);

/*
 * deform - the columns of an argument that is a row
 */
static void
deform(HeapTupleHeader header, Datum **values, bool **nulls)
{
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(header),.t_data = header};
	TupleDesc	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(header), -1);

	*values = palloc((Size) desc->natts * sizeof(Datum));
	*nulls = palloc((Size) desc->natts * sizeof(bool));
	heap_deform_tuple(&tuple, desc, *values, *nulls);
	ReleaseTupleDesc(desc);
}

/*
 * due(job, last, at, free_since) - what is due at that time, when something is due from then
 * on, when one more attempt at the last tick may begin, and since when a run could have begun
 *
 * job: a row of _shedlock_job.  last: one of _shedlock_tick; a tick of -infinity, and a claim
 * of that time, stand for none.  Times that there are not are null.
 */
Datum
due(PG_FUNCTION_ARGS)
{
	TimestampTz at = PG_GETARG_TIMESTAMPTZ(2);
	ShedlockTick last;
	ShedlockJob job;
	ShedlockDue answer;
	Datum	   *columns;
	bool	   *isnull;
	Datum		values[5];
	bool		nulls[5] = {false};
	TimestampTz times[3];

	deform(PG_GETARG_HEAPTUPLEHEADER(0), &columns, &isnull);
	ShedlockJobFromColumns(columns, isnull, &job);
	deform(PG_GETARG_HEAPTUPLEHEADER(1), &columns, &isnull);
	ShedlockTickFromColumns(columns, isnull, &last);

	answer = ShedlockFindDue(&last, &job, at);
	times[0] = ShedlockNextTime(&last, &job, at);
	times[1] = ShedlockNextAttempt(&last, &job, at);
	times[2] = ShedlockDueSince(&last, &job, at, PG_GETARG_TIMESTAMPTZ(3));
	values[0] = TimestampTzGetDatum(answer.tick);
	values[1] = Int32GetDatum(answer.attempt);
	nulls[0] = nulls[1] = answer.attempt == 0;
	for (int i = 0; i < 3; i++)
	{
		values[2 + i] = TimestampTzGetDatum(times[i]);
		nulls[2 + i] = times[i] == DT_NOEND;
	}
	return ShedlockFormAnswer(fcinfo, values, nulls);
}

/*
 * previous_tick(schedule, time_zone, at) - the last tick at an instant or before it
 *
 * Returns null if there is none.
 */
Datum
previous_tick(PG_FUNCTION_ARGS)
{
	ShedlockSchedule schedule;
	TimestampTz tick;

	(void) ShedlockParseSchedule(text_to_cstring(PG_GETARG_TEXT_PP(0)),
								 text_to_cstring(PG_GETARG_TEXT_PP(1)), false, &schedule);
	tick = ShedlockPreviousTick(&schedule, PG_GETARG_TIMESTAMPTZ(2));
	if (tick == DT_NOBEGIN)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(tick);
}
