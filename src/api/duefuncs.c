/*-------------------------------------------------------------------------
 *
 * duefuncs.c
 *	  What is due, for the views and the tests.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "funcapi.h"
#include "job/job.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/*
 * get_tick - the argument that is a row of shedlock_tick
 *
 * A value of the table's row type can have nulls that no row of the table has, and
 * anybody may call the function.
 */
static void
get_tick(FunctionCallInfo fcinfo, int argno, ShedlockTick *last)
{
	HeapTupleHeader header = PG_GETARG_HEAPTUPLEHEADER(argno);
	Relation	rel = table_open(get_typ_typrelid(HeapTupleHeaderGetTypeId(header)), AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(header)};
	Datum	   *values = palloc((Size) desc->natts * sizeof(Datum));
	bool	   *nulls = palloc((Size) desc->natts * sizeof(bool));

	tuple.t_data = header;
	ShedlockCheckColumns(rel);
	heap_deform_tuple(&tuple, desc, values, nulls);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (nulls[i] && att->attnotnull)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("column \"%s\" of a row of shedlock_tick must not be null",
							NameStr(att->attname))));
	}
	table_close(rel, AccessShareLock);
	ShedlockTickFromColumns(values, nulls, last);
}

/*
 * answer - the row that a function returns
 */
static Datum
answer(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls));
}

PG_FUNCTION_INFO_V1(_shedlock_due);
/*
 * _shedlock_due(last, schedule, time_zone, period, catch_up, max_late, attempts, at) -
 * what is due at that time
 *
 * last: a row of shedlock_tick, or null.  The rest as the arguments of shedlock_run.
 */
Datum
_shedlock_due(PG_FUNCTION_ARGS)
{
	static const char *const actions[] = {
		[SHEDLOCK_NOTHING] = "none",
		[SHEDLOCK_REGISTER] = "register",
		[SHEDLOCK_RUN_TICK] = "run",
	};
	ShedlockTick last = {0};
	ShedlockPlan plan = {0};
	ShedlockDue due;
	Datum		values[3];
	bool		nulls[3] = {false, false, false};

	if (!PG_ARGISNULL(0))
		get_tick(fcinfo, 0, &last);
	plan.period = ShedlockGetInterval(fcinfo, 3, 0);
	if (plan.period)
		ShedlockPeriodSchedule(plan.period, "", &plan.schedule);
	else
		ShedlockParseSchedule(ShedlockGetWord(fcinfo, 1, ""), ShedlockGetWord(fcinfo, 2, "UTC"),
							  &plan.schedule);
	(void) ShedlockFindCatchUp(ShedlockGetWord(fcinfo, 4, "latest"), &plan.catch_up);
	plan.max_late = ShedlockGetInterval(fcinfo, 5, 0);
	plan.attempts = PG_GETARG_INT32(6);

	due = ShedlockFindDue(&last, &plan, PG_GETARG_TIMESTAMPTZ(7));
	values[0] = CStringGetTextDatum(actions[due.action]);
	values[1] = TimestampTzGetDatum(due.tick);
	values[2] = Int32GetDatum(due.attempt);
	nulls[1] = nulls[2] = due.action == SHEDLOCK_NOTHING;
	return answer(fcinfo, values, nulls);
}
