/*-------------------------------------------------------------------------
 *
 * tick.c
 *	  The state of a job's ticks, one row for each name.
 *
 * Ticks of a name only move forward, except by shedlock_again().  A claim by
 * shedlock_once() uses a tick up; a run begins an attempt at it.
 *
 * Both hold the tick's advisory lock exclusively to the end of their transaction,
 * for which other callers never wait (I2); after the commit the row keeps them off
 * (I12).  A rollback undoes both (I6).  The end of a run and administrators write
 * the row without that lock.  A writer with the lock sees that by the row's version.
 * The end of a run holds the advisory half of its lock, so a caller that has acquired
 * the lock reads what the last run has made of the tick (begin.c).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "job/job.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_TICK_COLUMNS(SHEDLOCK_ATTNUM)
};

/*
 * ShedlockTickFromColumns - the state in a row of _shedlock_tick
 *
 * What the fields point to is palloc'd.  A schedule or period that would be refused now
 * counts as none.
 */
void
ShedlockTickFromColumns(const Datum *values, const bool *nulls, ShedlockTick *last)
{
	ShedlockPlan *plan = &last->plan;

#define VALUE(column)	values[Anum_##column - 1]
#define IS_NULL(column) nulls[Anum_##column - 1]

	memset(last, 0, sizeof(*last));
	last->found = true;
	last->tick = DatumGetTimestampTz(VALUE(tick));
	last->claimed_at = DatumGetTimestampTz(VALUE(claimed_at));
	last->claimed_by = TextDatumGetCString(VALUE(claimed_by));
	last->token = IS_NULL(token) ? 0 : DatumGetInt64(VALUE(token));
	last->attempt = DatumGetInt32(VALUE(attempt));
	last->done = DatumGetBool(VALUE(done));
	last->again = DatumGetBool(VALUE(again));
	last->retry_at = IS_NULL(retry_at) ? DT_NOBEGIN : DatumGetTimestampTz(VALUE(retry_at));

	if (!IS_NULL(period))
	{
		plan->period = ShedlockCopyInterval(DatumGetIntervalP(VALUE(period)));
		plan->schedule.period = ShedlockIntervalMicroseconds(plan->period);
		last->has_schedule = ShedlockIsPeriod(plan->period);
	}
	else if (!IS_NULL(schedule) && !IS_NULL(time_zone))
		last->has_schedule = ShedlockFindSchedule(TextDatumGetCString(VALUE(schedule)),
												  TextDatumGetCString(VALUE(time_zone)), true,
												  &plan->schedule);
	last->has_plan = !IS_NULL(attempts) && !IS_NULL(backoff) && !IS_NULL(catch_up) &&
		ShedlockFindCatchUp(TextDatumGetCString(VALUE(catch_up)), &plan->catch_up_all);
	if (last->has_plan)
	{
		plan->max_late = IS_NULL(max_late) ? NULL : ShedlockCopyInterval(DatumGetIntervalP(VALUE(max_late)));
		plan->attempts = DatumGetInt32(VALUE(attempts));
		plan->backoff = ShedlockCopyInterval(DatumGetIntervalP(VALUE(backoff)));
	}
#undef VALUE
#undef IS_NULL
}

/*
 * read_tick - read the state of a name's ticks, as committed now
 *
 * Leaves the name's row in the store.
 */
static void
read_tick(ShedlockStore *store, const ShedlockName *name, ShedlockTick *last)
{
	memset(last, 0, sizeof(*last));
	if (!ShedlockFetch(store, CStringGetTextDatum(name->str)))
		return;
	slot_getallattrs(store->slot);
	ShedlockTickFromColumns(store->slot->tts_values, store->slot->tts_isnull, last);
}

/*
 * ShedlockRereadTick - read the state again if it has changed
 *
 * *last must be unchanged since it was read, or the store just opened.
 */
void
ShedlockRereadTick(ShedlockStore *store, const ShedlockName *name, ShedlockTick *last)
{
	if (!ShedlockIsCurrent(store))
		read_tick(store, name, last);
}

/*
 * ShedlockLookUpTick - read the state of a name's ticks, without writing it later
 *
 * As read_tick(); opens and closes the table itself.
 */
void
ShedlockLookUpTick(const ShedlockName *name, ShedlockTick *last)
{
	ShedlockStore store;

	ShedlockOpen(&store, name->nsp, "_shedlock_tick", AccessShareLock);
	read_tick(&store, name, last);
	ShedlockClose(&store, AccessShareLock);
}

/*
 * ShedlockLockTick - try to get the tick's advisory lock, exclusively
 *
 * It belongs to the current subtransaction.  Never waits.
 */
bool
ShedlockLockTick(const ShedlockName *name)
{
	LOCKTAG		tag;

	ShedlockTagOfClass(&tag, &name->tag, SHEDLOCK_CLASS_TICK);
	return ShedlockTryLock(&tag, ExclusiveLock);
}

/*
 * ShedlockUnlockTick - release the tick's advisory lock
 *
 * Call this only if nothing was written.
 */
void
ShedlockUnlockTick(const ShedlockName *name)
{
	LOCKTAG		tag;

	ShedlockTagOfClass(&tag, &name->tag, SHEDLOCK_CLASS_TICK);
	ShedlockUnlock(&tag, ExclusiveLock);
}

/*
 * set_column - set a column, to null unless it has a value
 */
static void
set_column(ShedlockColumns *columns, int attnum, bool has_value, Datum value)
{
	if (has_value)
		ShedlockSetColumn(columns, attnum, value);
	else
		ShedlockSetNull(columns, attnum);
}

/*
 * set_plan - set the columns of the schedule, and of a plan if a run has one
 */
static void
set_plan(ShedlockColumns *columns, const ShedlockTick *last)
{
	const ShedlockPlan *plan = &last->plan;
	bool		is_cron = last->has_schedule && plan->period == NULL;

	set_column(columns, Anum_period, plan->period != NULL, IntervalPGetDatum(plan->period));
	set_column(columns, Anum_schedule, is_cron,
			   is_cron ? CStringGetTextDatum(plan->schedule.text) : 0);
	set_column(columns, Anum_time_zone, is_cron,
			   is_cron ? CStringGetTextDatum(pg_get_timezone_name(plan->schedule.zone)) : 0);
	set_column(columns, Anum_catch_up, last->has_plan,
			   CStringGetTextDatum(plan->catch_up_all ? "all" : "latest"));
	set_column(columns, Anum_max_late, plan->max_late != NULL, IntervalPGetDatum(plan->max_late));
	set_column(columns, Anum_attempts, last->has_plan, Int32GetDatum(plan->attempts));
	set_column(columns, Anum_backoff, plan->backoff != NULL, IntervalPGetDatum(plan->backoff));
}

/*
 * ShedlockWriteTick - write the state of a name's ticks
 *
 * last->found: the row that the store read last is updated; else a row is inserted.
 * wait: wait for a row lock, as an UPDATE does.  Returns false if the row was
 * changed since, or cannot be written now: the caller reads it again.
 */
bool
ShedlockWriteTick(ShedlockStore *store, const ShedlockName *name,
				  const ShedlockTick *last, bool wait)
{
	ShedlockColumns columns;

	ShedlockNewColumns(store, &columns);
	ShedlockSetColumn(&columns, Anum_tick, TimestampTzGetDatum(last->tick));
	ShedlockSetColumn(&columns, Anum_claimed_at, TimestampTzGetDatum(last->claimed_at));
	ShedlockSetColumn(&columns, Anum_claimed_by, CStringGetTextDatum(last->claimed_by));
	set_column(&columns, Anum_token, last->token != 0, Int64GetDatum(last->token));
	ShedlockSetColumn(&columns, Anum_attempt, Int32GetDatum(last->attempt));
	ShedlockSetColumn(&columns, Anum_done, BoolGetDatum(last->done));
	ShedlockSetColumn(&columns, Anum_again, BoolGetDatum(last->again));
	set_column(&columns, Anum_retry_at, last->retry_at != DT_NOBEGIN,
			   TimestampTzGetDatum(last->retry_at));
	set_plan(&columns, last);

	if (!last->found)
		ShedlockSetColumn(&columns, Anum_name, CStringGetTextDatum(name->str));
	return ShedlockWrite(store, &columns, wait);
}

/*
 * ShedlockGiveUpTick - record that no further attempt follows the last run of a tick, if it has
 * one
 *
 * before: the state of the name's ticks that the caller has replaced.  Returns true if that
 * run has ended already, and listeners are to be told.
 */
bool
ShedlockGiveUpTick(const ShedlockName *name, const ShedlockTick *before)
{
	return before->found && !before->done && before->token != 0 &&
		ShedlockHistoryGaveUp(name, before->token);
}

/*
 * is_claimed - has that tick, or a later one, been claimed or run?
 */
static bool
is_claimed(ShedlockStore *store, const ShedlockName *name, TimestampTz tick,
		   ShedlockTick *last)
{
	read_tick(store, name, last);
	return last->found && last->tick >= tick && !last->again;
}

/*
 * ShedlockClaimTick - claim a tick that is not claimed
 *
 * plan: has the period of the schedule; NULL, for callers that name their ticks,
 * leaves that of an earlier claim.  The schedule of runs stays in any case.  Returns
 * true if the tick is claimed when the caller commits, and sets *before to the state
 * before that.  Locks: the tick's advisory lock, exclusive, to the end of the
 * transaction unless it returns false; never waits for a claim.
 */
bool
ShedlockClaimTick(const ShedlockName *name, TimestampTz tick, const ShedlockPlan *plan,
				  ShedlockTick *before)
{
	ShedlockStore store;
	ShedlockTick last;
	bool		claimed = false;

	ShedlockOpen(&store, name->nsp, "_shedlock_tick", RowExclusiveLock);
	ShedlockCheckPromises(&store);
	if (!is_claimed(&store, name, tick, &last) && ShedlockLockTick(name))
	{
		int			tries = 0;

		while (!is_claimed(&store, name, tick, &last))
		{
			*before = last;
			last.tick = last.found ? Max(tick, last.tick) : tick;
			last.claimed_at = GetCurrentTimestamp();
			last.claimed_by = ShedlockLockedBy(NULL, 0);
			last.token = 0;
			last.attempt = 0;
			last.done = true;
			last.again = false;
			last.retry_at = DT_NOBEGIN;
			if (plan && !last.has_plan)
			{
				last.has_schedule = true;
				last.plan = *plan;
			}
			claimed = ShedlockWriteTick(&store, name, &last, false);
			if (claimed || !ShedlockAwaitForeignLock(&tries))
				break;
		}
		if (!claimed)
			ShedlockUnlockTick(name);
	}
	ShedlockClose(&store, NoLock);
	if (claimed)
		ShedlockCommitDurably();	/* (I9) */
	return claimed;
}

/*
 * change_tick - change the state of a name's ticks, if it is still the caller's
 *
 * change: changes *last, or returns false if there is nothing to change; called
 * again if the row has changed meanwhile.  Waits for a row lock as an UPDATE does,
 * but not for a name's first claim, which has no row yet.  Returns true if it was
 * written, when the caller commits.
 */
static bool
change_tick(const ShedlockName *name, bool (*change) (ShedlockTick *last, void *arg), void *arg)
{
	ShedlockStore store;
	ShedlockTick last;
	bool		changed;
	bool		written = false;

	ShedlockOpen(&store, name->nsp, "_shedlock_tick", RowExclusiveLock);
	for (bool wait = false; !written; wait = true)
	{
		read_tick(&store, name, &last);
		changed = last.found && change(&last, arg);
		if (!changed)
			break;
		written = ShedlockWriteTick(&store, name, &last, wait);
	}
	ShedlockClose(&store, NoLock);
	return changed;
}

/* A run whose tick is used up, for close_tick(). */
typedef struct ClosedRun
{
	const ShedlockName *lock;
	int64		token;
} ClosedRun;

/*
 * close_tick - use a tick up; for change_tick()
 *
 * A run that has ended meanwhile has settled its tick itself.
 */
static bool
close_tick(ShedlockTick *last, void *arg)
{
	const ClosedRun *run = arg;
	ShedlockRow row;

	if (last->token != run->token || last->done)
		return false;
	ShedlockLookUpRow(run->lock, &row);
	if (row.token != run->token || row.kind == SHEDLOCK_RELEASED)
		return false;
	last->done = true;
	last->retry_at = DT_NOBEGIN;
	return true;
}

/*
 * ShedlockCloseTick - use up the tick of that run, if it has one and has not ended
 *
 * Whatever becomes of the run, no further attempt follows.
 */
void
ShedlockCloseTick(const ShedlockName *name, int64 token)
{
	ClosedRun	run = {.lock = name,.token = token};

	if (change_tick(name, close_tick, &run))
		ShedlockCommitDurably();
}

/* The end of a run, for end_tick(). */
typedef struct RunEnd
{
	int64		token;
	ShedlockOutcome outcome;
	bool		gave_up;		/* no attempt is left */
	bool		durable;		/* a crash must not undo it */
} RunEnd;

/*
 * use_up_passed - use up the ticks that passed during a run that has succeeded
 *
 * A scheduler that has queued these ticks fires for them now, back to back.  A run
 * shorter than the time to the next tick has missed none, even if that has come: its
 * timer may fire for it as late as the run's own did.  A tick that had come when the run
 * began, because shedlock_again() allowed an older one, is for the next caller.
 */
static void
use_up_passed(ShedlockTick *last, TimestampTz now)
{
	const ShedlockSchedule *schedule = &last->plan.schedule;
	TimestampTz passed = ShedlockPreviousTick(schedule, now);

	if (passed > Max(last->tick, last->claimed_at) &&
		now - last->claimed_at >= ShedlockNextTick(schedule, last->tick) - last->tick)
	{
		last->tick = passed;
		last->attempt = 0;
	}
}

/*
 * end_tick - what the end of a run makes of its tick; for change_tick()
 */
static bool
end_tick(ShedlockTick *last, void *arg)
{
	RunEnd	   *end = arg;
	const ShedlockPlan *plan = &last->plan;
	TimestampTz now = GetCurrentTimestamp();

	/* shedlock_cancel() may have used the tick up since the last look. */
	end->gave_up = false;
	if (last->token != end->token || last->done)
		return false;
	end->durable = plan->attempts > 1;
	if (end->outcome == SHEDLOCK_SUCCEEDED)
	{
		last->done = true;
		last->retry_at = DT_NOBEGIN;
		if (last->has_schedule && !plan->catch_up_all && !last->again)
			use_up_passed(last, now);
		return true;
	}
	end->gave_up = !last->again && last->attempt >= plan->attempts;
	if (last->has_plan)			/* else it was written by hand */
		last->retry_at = ShedlockRetryAt(now, plan->backoff, last->attempt);
	return true;
}

/*
 * ShedlockEndTick - write what the end of that run makes of its tick
 *
 * Only success uses the tick up.  Does nothing if the tick has another run or claim, or is
 * used up.  Returns true if the run was the last attempt, and failed.
 */
bool
ShedlockEndTick(const ShedlockName *name, int64 token, ShedlockOutcome outcome)
{
	RunEnd		end = {.token = token,.outcome = outcome};

	if (change_tick(name, end_tick, &end) && end.durable)
		ShedlockCommitDurably();
	return end.gave_up;
}

/*
 * allow_again - for change_tick()
 */
static bool
allow_again(ShedlockTick *last, void *arg)
{
	last->again = true;
	*(TimestampTz *) arg = last->tick;
	return true;
}

/*
 * ShedlockAllowTickAgain - let the next caller claim or run the last tick once more
 *
 * Returns false if no claim is committed; else sets *tick.
 */
bool
ShedlockAllowTickAgain(const ShedlockName *name, TimestampTz *tick)
{
	bool		allowed = change_tick(name, allow_again, tick);

	if (allowed)
		ShedlockCommitDurably();
	return allowed;
}

/*
 * ShedlockForgetTick - delete the state of a name's ticks, and log that
 *
 * Returns false if there is none that is committed.  Waits for a row lock as a
 * DELETE does.
 */
bool
ShedlockForgetTick(const ShedlockName *name)
{
	ShedlockStore store;
	bool		found;

	ShedlockOpen(&store, name->nsp, "_shedlock_tick", RowExclusiveLock);
	while ((found = ShedlockFetch(&store, CStringGetTextDatum(name->str))) &&
		   !ShedlockDelete(&store, true))
		CHECK_FOR_INTERRUPTS();
	ShedlockClose(&store, NoLock);
	if (found)
		ereport(LOG,
				(errmsg("ticks of lock \"%s\" forgotten by role %s",
						name->str, ShedlockActingRole())));
	return found;
}

/*
 * drop_schedule - for change_tick()
 *
 * Without a schedule the tick is like one that was only claimed: used up, and never
 * overdue.
 */
static bool
drop_schedule(ShedlockTick *last, void *arg)
{
	if (!last->has_plan || last->token != *(int64 *) arg)
		return false;
	last->done = true;
	last->again = false;
	last->retry_at = DT_NOBEGIN;
	last->has_schedule = false;
	last->has_plan = false;
	memset(&last->plan, 0, sizeof(last->plan));
	return true;
}

/*
 * ShedlockForgetSchedule - use up the last tick of a name, forget its schedule, and log that
 *
 * token: of the last run, or 0.  No tick runs twice after that.  Returns false if the last
 * run is another one, or no run has used a schedule.  Waits for a row lock as an UPDATE
 * does.
 */
bool
ShedlockForgetSchedule(const ShedlockName *name, int64 token)
{
	bool		found = change_tick(name, drop_schedule, &token);

	if (found)
		ereport(LOG,
				(errmsg("schedule of lock \"%s\" forgotten by role %s",
						name->str, ShedlockActingRole())));
	return found;
}

/*
 * ShedlockTickIsOld - was the tick claimed, and has the next one come, before limit?
 *
 * Until then the row keeps a second caller off.  A tick that has another attempt, or
 * was given again, or whose run is at work, is not old.  A tick that was written by hand
 * may be infinite: no other one comes.
 */
bool
ShedlockTickIsOld(Oid nsp, TupleTableSlot *slot, TimestampTz limit)
{
	ShedlockTick last;
	ShedlockName name;
	ShedlockHistoryRun run;

	slot_getallattrs(slot);
	ShedlockTickFromColumns(slot->tts_values, slot->tts_isnull, &last);
	if (last.claimed_at >= limit || last.again ||
		(!last.done && last.attempt < last.plan.attempts) ||
		(last.has_schedule && ShedlockNextTick(&last.plan.schedule, last.tick) >= limit))
		return false;
	if (last.done || last.token == 0)
		return true;
	ShedlockMakeName(nsp, TextDatumGetCString(slot->tts_values[Anum_name - 1]), &name);
	ShedlockReadRun(&name, last.token, &run);
	return run.outcome != SHEDLOCK_RUNNING;
}
