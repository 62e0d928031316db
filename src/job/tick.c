/*-------------------------------------------------------------------------
 *
 * tick.c
 *	  Claiming a scheduled instant: at most one caller for each.
 *
 * A claim is no lock: it has its own table and lock class, and never expires.
 * The claiming transaction holds an advisory lock exclusively, for which other
 * callers never wait (I2); after its commit the row keeps them off (I12).  Rolling
 * back ends the claim (I6).  Ticks of a name only move forward, so one row for each
 * name is enough.  shedlock_again() marks the row, so that one more caller can
 * claim the tick; that claim removes the mark.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/int.h"
#include "job/job.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_TICK_COLUMNS(SHEDLOCK_ATTNUM)
};

/* A timer may be this early, or a quarter of the period if that is less. */
#define EARLY_MAX		(30 * USECS_PER_SEC)

/* The epoch of timestamps is 2000-01-01, that of ticks 1970-01-01. */
#define EPOCH_DISTANCE	((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

/*
 * tick_at - the last tick at or before a time
 */
static TimestampTz
tick_at(TimestampTz when, int64 period)
{
	return (when + EPOCH_DISTANCE) / period * period - EPOCH_DISTANCE;
}

/*
 * ShedlockCurrentTick - the tick for a timer that fires now
 *
 * A timer that is a little early belongs to the coming tick.  every: the period.
 * Errors: 22023, also for months, because their length is not fixed.
 */
TimestampTz
ShedlockCurrentTick(const Interval *every, const char *name)
{
	int64		period;

	ShedlockCheckDuration(every, "period", name, false, 0, NULL);
	if (every->month != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("period of lock \"%s\" must not contain months or years", name),
				 errdetail("Ticks are counted in UTC from the epoch, in steps of one length."),
				 errhint("Compute the tick and pass it to shedlock_once.")));

	period = ShedlockIntervalMicroseconds(every);
	return tick_at(GetCurrentTimestamp() + Min(period / 4, EARLY_MAX), period);
}

/*
 * read_tick - the last claim of a name's ticks
 *
 * Leaves the name's row in the store.  Returns false if there is no row.
 */
static bool
read_tick(ShedlockStore *store, const ShedlockName *name, ShedlockTick *last)
{
	bool		isnull;
	Datum		d;

	last->found = ShedlockFetch(store, CStringGetTextDatum(name->str));
	if (!last->found)
		return false;
	last->tick = DatumGetTimestampTz(slot_getattr(store->slot, Anum_tick, &isnull));
	last->claimed_at = DatumGetTimestampTz(slot_getattr(store->slot, Anum_claimed_at, &isnull));
	last->claimed_by = TextDatumGetCString(slot_getattr(store->slot, Anum_claimed_by, &isnull));
	d = slot_getattr(store->slot, Anum_token, &isnull);
	last->token = isnull ? 0 : DatumGetInt64(d);
	last->again = DatumGetBool(slot_getattr(store->slot, Anum_again, &isnull));
	return true;
}

/*
 * tick_is_claimed - is that tick, or a later one, claimed?
 *
 * again: the caller may claim the tick that shedlock_again() has allowed.
 */
static bool
tick_is_claimed(ShedlockStore *store, const ShedlockName *name, TimestampTz tick,
				bool again, ShedlockTick *last)
{
	return read_tick(store, name, last) && last->tick >= tick &&
		!(again && last->again);
}

/*
 * ShedlockTickIsClaimed - would ShedlockClaimTick() find that tick claimed?
 */
bool
ShedlockTickIsClaimed(const ShedlockName *name, TimestampTz tick, ShedlockTick *last)
{
	ShedlockStore store;
	bool		claimed;

	ShedlockOpen(&store, name->nsp, "shedlock_tick");
	claimed = tick_is_claimed(&store, name, tick, true, last);
	ShedlockClose(&store);
	return claimed;
}

/*
 * write_claim - write the claim, with its advisory lock held
 *
 * last: the claim before.  A tick that shedlock_again() allows may be older.
 */
static bool
write_claim(ShedlockStore *store, const ShedlockName *name, TimestampTz tick,
			const Interval *period, int64 token, bool again,
			const ShedlockTick *last)
{
	ShedlockColumns columns;

	ShedlockNewColumns(store, &columns);
	ShedlockSetColumn(&columns, Anum_tick,
					  TimestampTzGetDatum(last->found ? Max(tick, last->tick) : tick));
	ShedlockSetColumn(&columns, Anum_claimed_at,
					  TimestampTzGetDatum(GetCurrentTimestamp()));
	ShedlockSetColumn(&columns, Anum_claimed_by, CStringGetTextDatum(ShedlockLockedBy(NULL, token)));
	if (token != 0)
		ShedlockSetColumn(&columns, Anum_token, Int64GetDatum(token));
	else
		ShedlockSetNull(&columns, Anum_token);
	if (period)
		ShedlockSetColumn(&columns, Anum_period, IntervalPGetDatum(period));
	if (again || !last->found)
		ShedlockSetColumn(&columns, Anum_again, BoolGetDatum(false));
	if (last->found)
		return ShedlockUpdate(store, &columns, false) == TM_Ok;
	ShedlockSetColumn(&columns, Anum_name, CStringGetTextDatum(name->str));
	return ShedlockInsert(store, &columns);
}

/*
 * ShedlockClaimTick - claim a tick that is not claimed
 *
 * period: of the schedule; NULL, for callers that name their ticks, leaves that of
 * an earlier claim.  token: of the run, or 0.  again: as for tick_is_claimed();
 * false at the end of a run.  Returns true if the tick is claimed when the caller
 * commits.  If it returns false, *last is the claim that is there, with tick 0 if
 * it is not committed.  Locks: the name's lock of SHEDLOCK_CLASS_TICK, exclusive,
 * to the end of the transaction unless it returns false; never waits for a claim.
 */
bool
ShedlockClaimTick(const ShedlockName *name, TimestampTz tick, const Interval *period,
				  int64 token, bool again, ShedlockTick *last)
{
	ShedlockStore store;
	LOCKTAG		tag;
	bool		claimed = false;

	memset(last, 0, sizeof(*last));
	ShedlockTagOfClass(&tag, &name->tag, SHEDLOCK_CLASS_TICK);
	ShedlockOpen(&store, name->nsp, "shedlock_tick");
	if (again)					/* the end of a run promises nothing new */
		ShedlockCheckPromises(&store);

	if (!tick_is_claimed(&store, name, tick, again, last) &&
		ShedlockTryLock(&tag, ExclusiveLock))
	{
		int			tries = 0;

		while (!tick_is_claimed(&store, name, tick, again, last))
		{
			claimed = write_claim(&store, name, tick, period, token, again, last);
			if (claimed || !ShedlockAwaitForeignLock(&tries))
				break;
		}
		if (!claimed)
			ShedlockUnlock(&tag, ExclusiveLock);
	}
	ShedlockClose(&store);
	if (claimed)
		ShedlockCommitDurably();	/* (I9) */
	return claimed;
}

/*
 * ShedlockClaimTicksOfRun - claim the ticks that came during a run
 *
 * A scheduler that has queued these ticks fires for them now, one after the
 * other.  A run shorter than a period has missed no tick, even if the next one has
 * come: a timer may fire for that as late as the run's own did.  A tick that
 * shedlock_again() has allowed meanwhile is for the next caller.
 */
void
ShedlockClaimTicksOfRun(const ShedlockRun *run)
{
	int64		period = ShedlockIntervalMicroseconds(run->every);
	TimestampTz now = GetCurrentTimestamp();
	ShedlockTick last;

	if (now - run->started_at >= period)
		(void) ShedlockClaimTick(&run->request.name, tick_at(now, period), run->every,
								 run->token, false, &last);
}

/*
 * ShedlockTickIsOld - was the tick claimed, and did its period end, before limit?
 *
 * Until the period ends, the row keeps a second caller off.  A tick that was
 * written by hand may be infinite: its period never ends.
 */
bool
ShedlockTickIsOld(TupleTableSlot *slot, TimestampTz limit)
{
	bool		isnull;
	TimestampTz claimed_at = DatumGetTimestampTz(slot_getattr(slot, Anum_claimed_at, &isnull));
	TimestampTz tick = DatumGetTimestampTz(slot_getattr(slot, Anum_tick, &isnull));
	Datum		period = slot_getattr(slot, Anum_period, &isnull);
	TimestampTz end;

	if (claimed_at >= limit || isnull)
		return claimed_at < limit;
	return !pg_add_s64_overflow(tick,
								ShedlockIntervalMicroseconds(DatumGetIntervalP(period)),
								&end) &&
		end < limit;
}

/*
 * ShedlockAllowTickAgain - let the next caller claim the last tick once more
 *
 * Returns false if no claim is committed; else sets *tick.  Waits for an open
 * claim as an UPDATE does, unless it is the name's first, which has no row yet.
 */
bool
ShedlockAllowTickAgain(const ShedlockName *name, TimestampTz *tick)
{
	ShedlockStore store;
	ShedlockTick last;
	bool		marked = false;

	ShedlockOpen(&store, name->nsp, "shedlock_tick");
	while (!marked && read_tick(&store, name, &last))
	{
		ShedlockColumns columns;

		ShedlockNewColumns(&store, &columns);
		ShedlockSetColumn(&columns, Anum_again, BoolGetDatum(true));
		marked = ShedlockUpdate(&store, &columns, true) == TM_Ok;
	}
	ShedlockClose(&store);
	if (marked)
	{
		ShedlockCommitDurably();
		*tick = last.tick;
	}
	return marked;
}
