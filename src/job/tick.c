/*-------------------------------------------------------------------------
 *
 * tick.c
 *	  The state of a job's ticks, one row for each name.
 *
 * A claim and the begin of a run hold the tick's advisory lock exclusively to the end of their
 * transaction, for which other callers never wait (I2); after the commit the row keeps them off
 * (I12).  The end of a run and administrators write the row without that lock.  A writer with
 * the lock sees that by the row's version.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "job/job.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_TICK_COLUMNS(SHEDLOCK_ATTNUM)
};

/* The state of a name of which no tick was claimed or run. */
static const ShedlockTick no_tick = {
	.tick = DT_NOBEGIN,
	.claimed_at = DT_NOBEGIN,
	.claimed_by = "",
	.done = true,
	.again_at = DT_NOBEGIN,
	.retry_at = DT_NOBEGIN,
	.skipped = DT_NOBEGIN,
	.gave_up_at = DT_NOBEGIN
};

/*
 * slot_to_tick - the state in a row of _shedlock_tick; palloc'd
 */
static void
slot_to_tick(TupleTableSlot *slot, ShedlockTick *row)
{
	row->found = true;
	slot_getallattrs(slot);
	SHEDLOCK_TICK_COLUMNS(SHEDLOCK_FROM_SLOT);
}

/*
 * ShedlockReadTick - read the state of a name's ticks, as committed now
 *
 * Leaves the name's row in the store.
 */
void
ShedlockReadTick(ShedlockStore *store, const ShedlockName *name, ShedlockTick *last)
{
	*last = no_tick;
	last->name = name->str;
	if (ShedlockFetch(store, CStringGetTextDatum(name->str)))
		slot_to_tick(store->slot, last);
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
		ShedlockReadTick(store, name, last);
}

/*
 * ShedlockLookUpTick - as ShedlockReadTick(), without writing it later
 */
void
ShedlockLookUpTick(const ShedlockName *name, ShedlockTick *last)
{
	ShedlockStore store;

	ShedlockOpen(&store, name->nsp, "_shedlock_tick", AccessShareLock);
	ShedlockReadTick(&store, name, last);
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
 * ShedlockUnlockTick - release the tick's advisory lock, if nothing was written
 */
void
ShedlockUnlockTick(const ShedlockName *name)
{
	LOCKTAG		tag;

	ShedlockTagOfClass(&tag, &name->tag, SHEDLOCK_CLASS_TICK);
	ShedlockUnlock(&tag, ExclusiveLock);
}

/*
 * ShedlockWriteTick - write the state of a name's ticks
 *
 * The row that the store read last is updated, or one is inserted if it read none.
 * wait: wait for a row lock, as an UPDATE does.  Returns false if the row was
 * changed since, or cannot be written now: the caller reads it again.
 */
bool
ShedlockWriteTick(ShedlockStore *store, const ShedlockTick *row, bool wait)
{
	ShedlockColumns columns;

	ShedlockNewColumns(store, &columns);
	SHEDLOCK_TICK_COLUMNS(SHEDLOCK_TO_COLUMNS);
	return ShedlockWrite(store, &columns, wait);
}

/*
 * ShedlockGivesUp - does no attempt follow the last run before the write of a later tick?
 *
 * A job that was forgotten since has given up nothing, nor has one whose only attempt was given
 * back.
 */
bool
ShedlockGivesUp(const ShedlockTick *before, const ShedlockJob *job)
{
	return job->found && before->found && !before->done && before->attempt > 0 &&
		before->token != 0 && before->token != job->spent_token;
}

/*
 * ShedlockGiveUpTick - record that no attempt follows the last run before the caller's write
 *
 * Returns true if that run has ended already, and listeners are to be told.
 */
bool
ShedlockGiveUpTick(const ShedlockName *name, const ShedlockTick *before)
{
	ShedlockJob job;

	/* the usual case, which spares a look at the job */
	if (before->token == 0 || before->done)
		return false;
	ShedlockLookUpJob(name, &job);
	return ShedlockGivesUp(before, &job) && ShedlockHistoryGaveUp(name, before->token);
}

/*
 * is_claimed - has that tick, or a later one, been claimed or run?
 */
static bool
is_claimed(ShedlockStore *store, const ShedlockName *name, TimestampTz tick,
		   ShedlockTick *last)
{
	ShedlockReadTick(store, name, last);
	return (last->tick >= tick && last->again_at == DT_NOBEGIN) || last->skipped == tick;
}

/*
 * use_up - use a tick up without a run of it
 */
static void
use_up(ShedlockTick *last, TimestampTz tick)
{
	last->tick = tick;
	last->claimed_at = GetCurrentTimestamp();
	last->claimed_by = ShedlockLockedBy(NULL, 0);
	last->token = 0;
	last->attempt = 0;
	last->done = true;
	last->again_at = DT_NOBEGIN;
	last->retry_at = DT_NOBEGIN;
	last->gave_up_at = DT_NOBEGIN;
}

/*
 * ShedlockClaimTick - claim a tick that is not claimed
 *
 * period: that of the tick, or NULL.  Returns true if the tick is claimed when the caller
 * commits, and sets *before to the state before that.  Locks: the tick's advisory lock,
 * exclusive, to the end of the transaction unless it returns false; never waits for a claim.
 */
bool
ShedlockClaimTick(const ShedlockName *name, TimestampTz tick, Interval *period,
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
			use_up(&last, Max(tick, last.tick));

			/* A claim of an instant does not end the period before it. */
			if (period)
				last.period = period;
			claimed = ShedlockWriteTick(&store, &last, false);
			if (claimed || !ShedlockAwaitForeignLock(&tries))
				break;
		}
		if (!claimed)
			ShedlockUnlockTick(name);
	}
	ShedlockClose(&store, claimed ? NoLock : RowExclusiveLock);
	if (claimed)
		ShedlockCommitDurably();	/* (I9) */
	return claimed;
}

/* What the end of a run, or an administrator, makes of a tick. */
typedef struct TickAct
{
	const ShedlockName *name;
	bool		durable;		/* a crash must not undo it */
	int64		token;			/* this and the next two: of a run */
	ShedlockOutcome outcome;
	bool		gave_up;		/* no attempt is left */
	ShedlockJob job;			/* this and the rest: of an administrator */
	TimestampTz tick;			/* which one it was */
	bool		is_later;		/* it is skipped already, and to come after
								 * the next one */
	bool		older_due;		/* it is skipped already, and older ones are
								 * to be made up before it */
	bool		at_work;		/* it is skipped already, and a run of one
								 * before it is at work */
	ShedlockTick before;		/* what was used up without a run */
} TickAct;

/*
 * change_tick - change the state of a name's ticks
 *
 * change: changes *last, or returns false if there is nothing to change; called
 * again if the row has changed meanwhile.  It also makes the first row of a name.  Waits for
 * a row lock as an UPDATE does, and for a transaction that inserts the name's row.  Returns true if it
 * was written, when the caller commits.
 */
static bool
change_tick(bool (*change) (ShedlockTick *last, TickAct *act), TickAct *act)
{
	const ShedlockName *name = act->name;
	ShedlockStore store;
	ShedlockTick last;
	bool		changed;
	bool		written = false;
	int			tries = 0;

	ShedlockOpen(&store, name->nsp, "_shedlock_tick", RowExclusiveLock);
	for (bool wait = false; !written; wait = true)
	{
		ShedlockReadTick(&store, name, &last);
		changed = change(&last, act);
		if (!changed)
			break;
		written = ShedlockWriteTick(&store, &last, wait);
		if (!written && !last.found)
			ShedlockAwaitInserter(&store, name, &tries);
	}
	ShedlockClose(&store, NoLock);
	if (changed && act->durable)
		ShedlockCommitDurably();
	return changed;
}

/*
 * close_tick - use a tick up, unless its run has ended and settled it; for change_tick()
 */
static bool
close_tick(ShedlockTick *last, TickAct *act)
{
	ShedlockRow row;

	if (last->token != act->token || last->done)
		return false;
	ShedlockLookUpRow(act->name, &row);
	if (row.token != act->token || row.kind == SHEDLOCK_RELEASED)
		return false;
	last->done = true;
	last->retry_at = DT_NOBEGIN;
	return true;
}

/*
 * ShedlockCloseTick - let no further attempt follow that run, if it has a tick and has not ended
 */
void
ShedlockCloseTick(const ShedlockName *name, int64 token)
{
	TickAct		act = {.name = name,.durable = true,.token = token};

	(void) change_tick(close_tick, &act);
}

/*
 * use_up_passed - use up the ticks that passed during a run that has succeeded
 *
 * A scheduler that has queued these ticks fires for them now, back to back.  A run
 * shorter than the time to the next tick has missed none, even if that has come: its
 * timer may fire for it as late as the run's own did.  A tick that had come when the run
 * began, because shedlock_again() allowed an older one, is for the next caller.
 */
static void
use_up_passed(ShedlockTick *last, const ShedlockSchedule *schedule, TimestampTz now)
{
	TimestampTz passed = ShedlockPreviousTick(schedule, now);

	if (passed > Max(last->tick, last->claimed_at) &&
		now - last->claimed_at >= ShedlockNextTick(schedule, last->tick) - last->tick)
	{
		last->tick = passed;
		last->attempt = 0;
	}
}

/*
 * return_attempt - give an attempt back, as if it had not begun
 */
static void
return_attempt(ShedlockTick *last, const ShedlockJob *job, TimestampTz now)
{
	bool		too_late = last->claimed_at > ShedlockLastTime(last->tick, job);
	bool		superseded;

	superseded = job->is_readable && !job->catch_up_all &&
		ShedlockPreviousTick(&job->schedule, last->claimed_at) > Max(last->tick, job->since);
	last->attempt--;
	last->retry_at = DT_NOBEGIN;

	/* Such an attempt shedlock_again() has allowed. */
	if (superseded || too_late || last->attempt >= job->attempts)
		last->again_at = Max(now, job->created_at);
}

/*
 * end_tick - what the end of a run makes of its tick, by what is declared now; for change_tick()
 */
static bool
end_tick(ShedlockTick *last, TickAct *end)
{
	ShedlockJob job;
	TimestampTz now = GetCurrentTimestamp();

	/* shedlock_cancel() may have used the tick up since the last look. */
	end->gave_up = false;
	if (last->token != end->token || last->done)
		return false;
	ShedlockLookUpJob(end->name, &job);
	end->durable = job.attempts > 1;
	if (!job.found || job.spent_token == end->token || end->outcome == SHEDLOCK_SUCCEEDED)
	{
		last->done = true;
		last->retry_at = DT_NOBEGIN;
		if (end->outcome == SHEDLOCK_SUCCEEDED)
			last->gave_up_at = DT_NOBEGIN;
		if (end->outcome == SHEDLOCK_SUCCEEDED && job.is_readable && !job.catch_up_all &&
			last->again_at == DT_NOBEGIN)
			use_up_passed(last, &job.schedule, now);
	}
	else if (end->outcome == SHEDLOCK_RETURNED)
		return_attempt(last, &job, now);
	else
	{
		end->gave_up = last->again_at == DT_NOBEGIN && last->attempt >= job.attempts;

		/* The clock may have been set back since the job was created. */
		if (end->gave_up && last->gave_up_at < job.created_at)
			last->gave_up_at = Max(now, job.created_at);

		/* More attempts that are declared later are not for this tick. */
		last->retry_at = end->gave_up ? DT_NOEND :
			ShedlockRetryAt(now, job.backoff, last->attempt);
	}
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
	TickAct		end = {.name = name,.token = token,.outcome = outcome};

	(void) change_tick(end_tick, &end);
	return end.gave_up;
}

/*
 * allow_again - for change_tick()
 *
 * A tick that was skipped is taken back.  A name without a job needs a tick that was claimed.
 */
static bool
allow_again(ShedlockTick *last, TickAct *act)
{
	TimestampTz now = GetCurrentTimestamp();

	ShedlockLookUpJob(act->name, &act->job);
	if (act->job.found ? !act->job.is_readable : !last->found)
		return false;
	if (ShedlockHasSkipped(last, &act->job))
	{
		act->tick = last->skipped;
		last->skipped = DT_NOBEGIN;
		return true;
	}
	act->tick = act->job.found ? ShedlockOpenTick(last, &act->job) : last->tick;
	if (act->tick == DT_NOBEGIN && act->job.found)
		act->tick = ShedlockPreviousTick(&act->job.schedule, now);
	if (act->tick == DT_NOBEGIN)
		return false;

	/* What was allowed before the job was created does not count. */
	last->again_at = Max(now, act->job.created_at);
	last->gave_up_at = DT_NOBEGIN;
	return true;
}

/*
 * ShedlockAllowTickAgain - let callers claim or run *tick, the last one, once more, if there is one
 */
bool
ShedlockAllowTickAgain(const ShedlockName *name, TimestampTz *tick)
{
	TickAct		act = {.name = name,.durable = true};
	bool		allowed = change_tick(allow_again, &act);

	*tick = act.tick;
	return allowed;
}

/*
 * skip_tick - for change_tick()
 *
 * The tick that is due, if no run of it has begun, else the next one.  What was skipped of
 * another schedule counts only if it is a tick of this one, too.  A retry that is still to come
 * counts as due.  What is declared may have changed during a wait for the row.
 */
static bool
skip_tick(ShedlockTick *last, TickAct *act)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz coming;
	ShedlockTick ready = *last;
	ShedlockRow row;
	ShedlockDue due;
	bool		is_new;

	act->tick = DT_NOEND;
	act->before.found = false;
	ShedlockLookUpJob(act->name, &act->job);
	if (!act->job.is_readable)
		return false;
	coming = ShedlockNextTick(&act->job.schedule, Max(Max(now, last->tick), act->job.since));
	if (ready.retry_at != DT_NOEND)
		ready.retry_at = DT_NOBEGIN;
	due = ShedlockFindDue(&ready, &act->job, now);
	is_new = due.attempt > 0 && due.tick > last->tick;
	act->tick = last->skipped;
	if (last->skipped == coming)
		return false;

	/* Only one is remembered. */
	if (ShedlockHasSkipped(last, &act->job))
	{
		act->is_later = last->skipped > now;
		act->older_due = due.attempt > 0 && due.tick < last->skipped;
		ShedlockLookUpRow(act->name, &row);

		/* The end of a run needs its tick. */
		act->at_work = !last->done && last->token != 0 && row.token == last->token &&
			ShedlockIsHeld(&row, act->name, now);
		if (act->is_later || act->older_due || act->at_work)
			return false;
		act->before = *last;
		use_up(last, last->skipped);
	}

	/* If shedlock_again() has allowed something, it was this tick. */
	if (is_new)
	{
		last->gave_up_at = DT_NOBEGIN;
		last->again_at = DT_NOBEGIN;
	}
	act->tick = is_new ? due.tick : coming;
	last->skipped = act->tick;
	return act->tick != DT_NOEND;
}

/*
 * ShedlockSkipTick - use up the coming tick of a job, or the one that is due
 *
 * Sets *tick to it; to DT_NOEND if the name has no job, or the job no tick to come.  Sets *before
 * to the state before one that was skipped earlier, and is used up by this; not found if none
 * is.  Returns false if it was skipped before.  Errors: 55000 if another one is skipped.
 */
bool
ShedlockSkipTick(const ShedlockName *name, TimestampTz *tick, ShedlockTick *before)
{
	TickAct		act = {.name = name,.durable = true,.tick = DT_NOEND};
	bool		changed = change_tick(skip_tick, &act);

	if (act.is_later || act.older_due || act.at_work)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("tick %s of job \"%s\" is skipped already", ShedlockTimeString(act.tick), name->str),
				 act.is_later ? errdetail("Only one tick can be skipped at a time.") :
				 act.older_due ? errdetail("Older ticks are to be made up before another one can be skipped.") :
				 errdetail("A run of an older tick is at work."),
				 act.is_later ? errhint("shedlock_again takes that back.") : 0));
	*tick = act.tick;
	*before = act.before;
	return changed;
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
 * ShedlockTickIsOld - was the tick claimed, and has the next one come, before limit?
 *
 * Until then the row keeps a second caller off.  The ticks of a job stay as long as it is
 * declared.  A tick that was given again, or whose run is at work, is not old.  A tick that
 * was written by hand may be infinite: no other one comes.
 */
bool
ShedlockTickIsOld(Oid nsp, TupleTableSlot *slot, TimestampTz limit)
{
	ShedlockTick last;
	ShedlockName name;
	ShedlockHistoryRun run;
	ShedlockJob job;
	TimestampTz period_end;

	slot_to_tick(slot, &last);
	if (last.claimed_at >= limit || last.again_at != DT_NOBEGIN)
		return false;
	if (last.period &&
		(pg_add_s64_overflow(last.tick, ShedlockIntervalMicroseconds(last.period), &period_end) ||
		 period_end >= limit))
		return false;
	ShedlockMakeName(nsp, last.name, &name);
	ShedlockLookUpJob(&name, &job);
	if (job.found)
		return false;
	ShedlockReadRun(&name, last.token, &run);
	return run.outcome != SHEDLOCK_RUNNING;
}
