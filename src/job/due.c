/*-------------------------------------------------------------------------
 *
 * due.c
 *	  Which tick of a job is due: a function of its state, its plan and the time.
 *
 * Nothing here reads a table or the clock, so that a test can compare it with a
 * model.  The caller holds the tick's advisory lock, or asks only to know.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "job/job.h"
#include "utils/timestamp.h"

/* The longest time between two attempts */
#define RETRY_MAX		USECS_PER_HOUR

/* Without catch-up, and at the first call of a name, older ticks have passed. */
#define FRESH_MAX		USECS_PER_MINUTE

/*
 * ShedlockRetryAt - when the attempt after this one may begin
 *
 * when: the end of the attempt, or its begin if it may die.  The time doubles with
 * each attempt, up to an hour.
 */
TimestampTz
ShedlockRetryAt(TimestampTz when, const Interval *backoff, int attempt)
{
	int64		pause = Min(ShedlockIntervalMicroseconds(backoff), RETRY_MAX);

	for (int i = 1; i < attempt && pause > 0 && pause < RETRY_MAX; i++)
		pause *= 2;
	return when + Min(pause, RETRY_MAX);
}

/*
 * ShedlockLastTime - the last time at which an attempt at a tick may begin
 *
 * DT_NOEND: there is none.
 */
TimestampTz
ShedlockLastTime(TimestampTz tick, const ShedlockPlan *plan)
{
	TimestampTz end;

	if (plan->max_late == NULL ||
		pg_add_s64_overflow(tick, ShedlockIntervalMicroseconds(plan->max_late), &end))
		return DT_NOEND;
	return end;
}

/*
 * run_tick - the answer that an attempt at a tick is due
 */
static ShedlockDue
run_tick(TimestampTz tick, int attempt)
{
	ShedlockDue due = {SHEDLOCK_RUN_TICK, tick, attempt};

	return due;
}

/*
 * next_attempt - is one more attempt at the last tick due?
 */
static ShedlockDue
next_attempt(const ShedlockTick *last, TimestampTz now)
{
	ShedlockDue nothing = {.action = SHEDLOCK_NOTHING};

	/* A time far ahead was written before the clock was set back. */
	if (now < last->retry_at && last->retry_at <= now + RETRY_MAX)
		return nothing;
	return run_tick(last->tick, last->attempt + 1);
}

/*
 * oldest_missed - the first tick after the last one that is not too late
 *
 * Skips all that is too late at once.
 */
static TimestampTz
oldest_missed(const ShedlockTick *last, const ShedlockPlan *plan, TimestampTz now)
{
	TimestampTz after = last->tick;
	TimestampTz oldest;

	if (plan->max_late &&
		!pg_sub_s64_overflow(now, ShedlockIntervalMicroseconds(plan->max_late), &oldest))
		after = Max(after, oldest - 1);
	return ShedlockNextTick(&plan->schedule, after);
}

/*
 * due_all - what is due if each missed tick is made up, the oldest first
 */
static ShedlockDue
due_all(const ShedlockTick *last, const ShedlockPlan *plan, TimestampTz now, bool attempt_left)
{
	ShedlockDue nothing = {.action = SHEDLOCK_NOTHING};
	TimestampTz next;

	if (attempt_left)
		return next_attempt(last, now);
	next = oldest_missed(last, plan, now);
	return next <= now ? run_tick(next, 1) : nothing;
}

/*
 * ShedlockFindDue - what is due at that time
 *
 * last: the state of the name's ticks, whose last->found is false for a new name.
 * Assumes that the lock is free: whether it is, is asked next.
 */
ShedlockDue
ShedlockFindDue(const ShedlockTick *last, const ShedlockPlan *plan, TimestampTz now)
{
	ShedlockDue due = {.action = SHEDLOCK_NOTHING};
	TimestampTz previous = ShedlockPreviousTick(&plan->schedule, now);
	bool		is_fresh = now - previous < FRESH_MAX;
	bool		is_new;
	bool		attempt_left;

	if (TIMESTAMP_NOT_FINITE(previous))
		return due;
	if (last->found && last->again)
		return last->tick <= now ? run_tick(last->tick, last->attempt + 1) : run_tick(previous, 1);

	/*
	 * What came before a job was known, or had this schedule, is past.  The
	 * row has the schedule of its tick, and does not change before the next
	 * one: callers with different schedules would change it at each call, and
	 * each would make the other's ticks pass.
	 */
	is_new = !last->found || !last->has_schedule ||
		!ShedlockSameSchedule(&last->plan.schedule, &plan->schedule);
	if (is_new && (!last->found || previous > last->tick))
	{
		if ((plan->schedule.period != 0 || is_fresh) && now <= ShedlockLastTime(previous, plan))
			return run_tick(previous, 1);
		due.action = SHEDLOCK_REGISTER;
		due.tick = previous;
		return due;
	}

	attempt_left = !last->done && last->attempt < plan->attempts &&
		last->tick <= now && now <= ShedlockLastTime(last->tick, plan);
	if (plan->catch_up_all && !is_new)
		return due_all(last, plan, now, attempt_left);
	if (previous == last->tick && attempt_left)
		return next_attempt(last, now);
	if (previous > last->tick && now <= ShedlockLastTime(previous, plan))
		return run_tick(previous, 1);
	return due;
}

/*
 * ShedlockNextAttempt - when one more attempt at the last tick may begin
 *
 * now: at once.  DT_NOEND: none follows.  Assumes that no run of the tick is at work.
 */
TimestampTz
ShedlockNextAttempt(const ShedlockTick *last, const ShedlockPlan *plan, TimestampTz now)
{
	TimestampTz at = now;
	ShedlockDue due;

	if (!last->found)
		return DT_NOEND;
	if (!last->again && last->retry_at > now && last->retry_at <= now + RETRY_MAX)
		at = last->retry_at;
	due = ShedlockFindDue(last, plan, at);
	return due.action == SHEDLOCK_RUN_TICK && due.tick == last->tick ? at : DT_NOEND;
}

/*
 * ShedlockDueSince - since when a run has been due; DT_NOEND if none is
 *
 * If several ticks were missed, counts from the oldest one, although only the last of
 * them may be made up.
 */
TimestampTz
ShedlockDueSince(const ShedlockTick *last, const ShedlockPlan *plan, TimestampTz now)
{
	ShedlockDue due = ShedlockFindDue(last, plan, now);

	if (due.action != SHEDLOCK_RUN_TICK)
		return DT_NOEND;
	if (due.tick == last->tick)
		return Max(last->tick, last->retry_at);
	return Min(due.tick, oldest_missed(last, plan, now));
}
