/*-------------------------------------------------------------------------
 *
 * schedulefuncs.c
 *	  The SQL functions for schedules: their ticks, and what is due.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "job/job.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

enum
{
	Anum_none,
	SHEDLOCK_JOB_COLUMNS(SHEDLOCK_ATTNUM)
	Anum_end
};

/* The columns of _shedlock_jobs(): those of a declaration, and how the job is doing. */
#define JOB_COLUMNS			(Anum_end - 1)
#define STANDING_COLUMNS	14

/*
 * get_schedule - the schedule of the arguments schedule and time_zone
 */
static void
get_schedule(FunctionCallInfo fcinfo, ShedlockSchedule *schedule)
{
	ShedlockRefuseNull(PG_ARGISNULL(0), "schedule", NULL);
	ShedlockRefuseNull(PG_ARGISNULL(1), "time zone", NULL);
	(void) ShedlockParseSchedule(text_to_cstring(PG_GETARG_TEXT_PP(0)),
								 text_to_cstring(PG_GETARG_TEXT_PP(1)), false, schedule);
}

PG_FUNCTION_INFO_V1(shedlock_tick);
/*
 * shedlock_tick(schedule, time_zone) - the tick that a timer which fires now is for
 */
Datum
shedlock_tick(PG_FUNCTION_ARGS)
{
	ShedlockSchedule schedule;
	TimestampTz tick;

	get_schedule(fcinfo, &schedule);
	tick = ShedlockTickOfTimer(&schedule, GetCurrentTimestamp(), SHEDLOCK_CLAIM_EARLY);
	if (tick == DT_NOBEGIN)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(tick);
}

PG_FUNCTION_INFO_V1(shedlock_next_tick);
/*
 * shedlock_next_tick(schedule, time_zone, after) - the first tick after an instant
 */
Datum
shedlock_next_tick(PG_FUNCTION_ARGS)
{
	ShedlockSchedule schedule;
	TimestampTz tick;

	get_schedule(fcinfo, &schedule);
	ShedlockRefuseNull(PG_ARGISNULL(2), "after", NULL);
	tick = ShedlockNextTick(&schedule, PG_GETARG_TIMESTAMPTZ(2));
	if (tick == DT_NOEND)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(tick);
}

/*
 * span - an interval of so many microseconds, as the difference of two times
 */
static Datum
span(int64 microseconds)
{
	return DirectFunctionCall2(timestamp_mi, TimestampGetDatum(microseconds), TimestampGetDatum(0));
}

/*
 * put_job - one line of _shedlock_jobs()
 *
 * slot: the row of its declaration.
 */
static void
put_job(ReturnSetInfo *rsinfo, const ShedlockName *name, TupleTableSlot *slot)
{
	ShedlockJob job;
	ShedlockStanding standing;
	const ShedlockHistoryRun *run = &standing.run;
	Datum		values[JOB_COLUMNS + STANDING_COLUMNS];
	bool		nulls[lengthof(values)] = {false};
	bool		sees_run;

	ShedlockSlotToJob(slot, &job);
	ShedlockFindStanding(name, &job, &standing);
	sees_run = run->outcome != SHEDLOCK_NO_RUN && ShedlockMaySee(run->role);
	memcpy(values, slot->tts_values, JOB_COLUMNS * sizeof(Datum));
	memcpy(nulls, slot->tts_isnull, JOB_COLUMNS * sizeof(bool));
	for (int i = 0; i < JOB_COLUMNS; i++)
	{
		Oid			type = TupleDescAttr(slot->tts_tupleDescriptor, i)->atttypid;

		if (type == TIMESTAMPTZOID && !nulls[i])
			ShedlockShowTime(DatumGetTimestampTz(values[i]), &values[i], &nulls[i]);
		if (type == INTERVALOID && !nulls[i])
			nulls[i] = !ShedlockIsDuration(DatumGetIntervalP(values[i]));
	}

	/* in the order of the columns of _shedlock_jobs() */
#define SET(column, condition, value) \
	do { nulls[JOB_COLUMNS + (column)] = !(condition); \
		values[JOB_COLUMNS + (column)] = nulls[JOB_COLUMNS + (column)] ? (Datum) 0 : (value); } while (0)
#define SET_TIME(column, when) \
	ShedlockShowTime(when, &values[JOB_COLUMNS + (column)], &nulls[JOB_COLUMNS + (column)])
	SET(0, true, CStringGetTextDatum(shedlock_job_state_names[standing.state]));
	SET_TIME(1, standing.last.tick);
	SET(2, sees_run, CStringGetTextDatum(shedlock_outcome_names[run->outcome]));
	SET_TIME(3, sees_run ? run->started_at : DT_NOEND);
	SET(4, sees_run && run->ended_at != DT_NOBEGIN, span(run->ended_at - run->started_at));
	SET(5, true, Int32GetDatum(standing.last.attempt));
	SET_TIME(6, standing.attempt_at);
	SET_TIME(7, standing.next_due);
	SET(8, standing.overdue_since != DT_NOEND, span(standing.now - standing.overdue_since));
	SET(9, true, BoolGetDatum(standing.paused));
	SET(10, standing.problem, CStringGetTextDatum(standing.problem));
	SET_TIME(11, standing.overdue_since);
	SET_TIME(12, standing.gave_up_since);
	SET_TIME(13, standing.slow_since);
#undef SET
#undef SET_TIME
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

PG_FUNCTION_INFO_V1(_shedlock_jobs);
/*
 * _shedlock_jobs() - the jobs that were declared, and how they are doing
 *
 * Hides names that the caller may not use, unless it has the privileges of
 * pg_read_all_stats.  Reads what is committed now: a REPEATABLE READ transaction that
 * has claimed a tick sees its row twice.
 */
Datum
_shedlock_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		shows_all = ShedlockMaySee(InvalidOid);
	Oid			nsp = ShedlockSchema(fcinfo);
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context;
	Snapshot	snapshot;
	ShedlockStore store;
	TableScanDesc scan;

	InitMaterializedSRF(fcinfo, 0);
	context = AllocSetContextCreate(caller, "shedlock jobs row", ALLOCSET_SMALL_SIZES);
	ShedlockOpen(&store, nsp, "_shedlock_job", AccessShareLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	/* A scan with the snapshot would leave a predicate lock at SERIALIZABLE. */
	scan = begin_table_scan(store.rel, SnapshotAny);
	while (table_scan_getnextslot(scan, ForwardScanDirection, store.slot))
	{
		ShedlockName name;

		CHECK_FOR_INTERRUPTS();
		if (!table_tuple_satisfies_snapshot(store.rel, store.slot, snapshot))
			continue;
		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
		slot_getallattrs(store.slot);
		ShedlockMakeName(nsp, TextDatumGetCString(store.slot->tts_values[Anum_name - 1]), &name);
		if (shows_all || ShedlockMayUseName(name.str))
			put_job(rsinfo, &name, store.slot);
		MemoryContextSwitchTo(caller);
	}
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	ShedlockClose(&store, AccessShareLock);
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(shedlock_why);
/*
 * shedlock_why(name) - what an acquire or a run would be answered now, and why
 */
Datum
shedlock_why(PG_FUNCTION_ARGS)
{
	ShedlockName name;

	ShedlockGetName(fcinfo, 0, &name);
	PG_RETURN_TEXT_P(cstring_to_text(ShedlockWhy(&name)));
}
