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
#include "funcapi.h"
#include "job/job.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/* A run that begins so long after its tick is not late. */
#define ON_TIME_MAX		USECS_PER_MINUTE

enum
{
	Anum_none,
	SHEDLOCK_TICK_COLUMNS(SHEDLOCK_ATTNUM)
};

/*
 * get_schedule - the schedule of the arguments schedule and time_zone
 *
 * Errors: 22004, 22023.
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

PG_FUNCTION_INFO_V1(shedlock_next_tick);
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
	ShedlockRefuseNull(PG_ARGISNULL(2), "after", NULL);
	tick = ShedlockNextTick(&schedule, PG_GETARG_TIMESTAMPTZ(2));
	if (tick == DT_NOEND)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(tick);
}

/*
 * shown_schedule - the schedule in a row of _shedlock_tick, for people to read
 *
 * A cron expression is shown as it is, even if it cannot be parsed any more.  Returns 0
 * if there is none.
 */
static Datum
shown_schedule(const Datum *values, const bool *nulls)
{
	if (!nulls[Anum_period - 1])
		return CStringGetTextDatum(ShedlockPeriodText(DatumGetIntervalP(values[Anum_period - 1])));
	return nulls[Anum_schedule - 1] ? 0 : values[Anum_schedule - 1];
}

/*
 * put_schedule - one line of _shedlock_schedules(), if the name has a schedule
 */
static void
put_schedule(ReturnSetInfo *rsinfo, const ShedlockName *name, const TupleTableSlot *slot)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = DT_NOEND;
	TimestampTz attempt_at = DT_NOEND;
	TimestampTz since = DT_NOEND;
	Datum		schedule = shown_schedule(slot->tts_values, slot->tts_isnull);
	Datum		values[11];
	bool		nulls[lengthof(values)];
	ShedlockTick last;
	ShedlockRow row;
	ShedlockHistoryRun run;
	bool		at_work;
	bool		paused;

	if (schedule == 0)
		return;
	ShedlockTickFromColumns(slot->tts_values, slot->tts_isnull, &last);
	ShedlockReadRun(name, last.token, &run);
	at_work = SHEDLOCK_MAY_RUN(run.outcome);
	ShedlockLookUpRow(name, &row);
	paused = row.paused_until > now;
	if (last.has_schedule)
		next = ShedlockNextTick(&last.plan.schedule, Max(now, last.tick));
	if (last.has_schedule && last.has_plan && !at_work)
		attempt_at = ShedlockNextAttempt(&last, &last.plan, now);
	if (last.has_schedule && last.has_plan && !paused &&
		!(at_work && ShedlockFindDue(&last, &last.plan, now).tick == last.tick))
		since = ShedlockDueSince(&last, &last.plan, now);

	/* in the order of the columns of _shedlock_schedules() */
	values[0] = CStringGetTextDatum(name->str);
	values[1] = schedule;
	values[2] = slot->tts_values[Anum_time_zone - 1];
	values[4] = CStringGetTextDatum(shedlock_outcome_names[run.outcome]);
	values[5] = Int32GetDatum(last.attempt);
	values[6] = slot->tts_values[Anum_attempts - 1];
	values[9] = 0;
	values[10] = BoolGetDatum(paused);

	memset(nulls, false, sizeof(nulls));
	nulls[2] = slot->tts_isnull[Anum_time_zone - 1];
	nulls[4] = run.outcome == SHEDLOCK_NO_RUN || !ShedlockMaySee(run.role);
	nulls[6] = slot->tts_isnull[Anum_attempts - 1];
	ShedlockShowTime(last.tick, &values[3], &nulls[3]);
	ShedlockShowTime(attempt_at, &values[7], &nulls[7]);
	ShedlockShowTime(next, &values[8], &nulls[8]);
	nulls[9] = TIMESTAMP_NOT_FINITE(since) || now - since <= ON_TIME_MAX;
	if (!nulls[9])
		values[9] = DirectFunctionCall2(timestamp_mi, TimestampGetDatum(now),
										TimestampGetDatum(since + ON_TIME_MAX));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

PG_FUNCTION_INFO_V1(_shedlock_schedules);
/*
 * _shedlock_schedules() - the names that have a schedule or period
 *
 * Hides names that the caller may not use, unless it has the privileges of
 * pg_read_all_stats.  Reads what is committed now: a REPEATABLE READ transaction that
 * has claimed a tick sees its row twice.
 */
Datum
_shedlock_schedules(PG_FUNCTION_ARGS)
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
	context = AllocSetContextCreate(caller, "shedlock schedules row", ALLOCSET_SMALL_SIZES);
	ShedlockOpen(&store, nsp, "_shedlock_tick", AccessShareLock);
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
			put_schedule(rsinfo, &name, store.slot);
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
 *
 * Errors: 22004, 22023, 42501.
 */
Datum
shedlock_why(PG_FUNCTION_ARGS)
{
	ShedlockName name;

	ShedlockGetName(fcinfo, 0, &name);
	PG_RETURN_TEXT_P(cstring_to_text(ShedlockWhy(&name)));
}
