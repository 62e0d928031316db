/*-------------------------------------------------------------------------
 *
 * due.c
 *	  Which tick of a job is due: a function of its declaration, the state of its ticks,
 *	  and the time.
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
#include "miscadmin.h"
#include "utils/timestamp.h"

/* The longest time between two attempts */
#define RETRY_MAX		USECS_PER_HOUR

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
 * ShedlockLastTime - the last time at which an attempt at a tick may begin; DT_NOEND for none
 */
TimestampTz
ShedlockLastTime(TimestampTz tick, const ShedlockJob *job)
{
	TimestampTz end;

	if (job->max_late == NULL ||
		pg_add_s64_overflow(tick, ShedlockIntervalMicroseconds(job->max_late), &end))
		return DT_NOEND;
	return end;
}

/*
 * open_state - the state of the ticks as the declaration has it
 *
 * A job that was forgotten and declared again owes its old ticks nothing.
 */
static ShedlockTick
open_state(const ShedlockTick *last, const ShedlockJob *job)
{
	ShedlockTick state = *last;

	if (state.token != 0 && state.token == job->spent_token)
		state.done = true;
	if (state.again_at < job->created_at)
		state.again_at = DT_NOBEGIN;
	if (job->carried > state.tick && job->carried != state.skipped)
	{
		state.tick = job->carried;
		state.token = 0;
		state.attempt = 0;
		state.done = false;
		state.retry_at = DT_NOBEGIN;
	}
	return state;
}

/*
 * ShedlockOpenTick - the tick whose attempts count; DT_NOBEGIN if there is none yet
 */
TimestampTz
ShedlockOpenTick(const ShedlockTick *last, const ShedlockJob *job)
{
	return open_state(last, job).tick;
}

/*
 * ShedlockHasSkipped - is there a tick of the job that was skipped, after the last one?
 *
 * It may be to come.  One of another schedule before is none of the job's any more, unless it
 * is carried over.
 */
bool
ShedlockHasSkipped(const ShedlockTick *last, const ShedlockJob *job)
{
	return last->skipped > last->tick && job->is_readable &&
		(last->skipped == job->carried ||
		 last->skipped == ShedlockPreviousTick(&job->schedule, last->skipped));
}

/*
 * has_attempt - has the last tick an attempt left, be it now or later?
 */
static bool
has_attempt(const ShedlockTick *state, const ShedlockJob *job, TimestampTz now)
{
	return !state->done && state->retry_at != DT_NOEND && state->attempt < job->attempts &&
		state->tick <= now && now <= ShedlockLastTime(state->tick, job);
}

/*
 * is_backing_off - is it too soon for the next attempt?
 *
 * A time far ahead was written before the clock was set back.
 */
static bool
is_backing_off(const ShedlockTick *state, TimestampTz now)
{
	return now < state->retry_at && state->retry_at <= now + RETRY_MAX;
}

/*
 * next_tick - the first tick after an instant that counts, and was not skipped
 */
static TimestampTz
next_tick(const ShedlockTick *state, const ShedlockJob *job, TimestampTz after)
{
	TimestampTz next = ShedlockNextTick(&job->schedule, Max(after, job->since));

	return next == state->skipped ? ShedlockNextTick(&job->schedule, next) : next;
}

/*
 * oldest_missed - the first tick after the last one that is not too late
 */
static TimestampTz
oldest_missed(const ShedlockTick *state, const ShedlockJob *job, TimestampTz now)
{
	TimestampTz after = state->tick;
	TimestampTz oldest;

	if (job->max_late &&
		!pg_sub_s64_overflow(now, ShedlockIntervalMicroseconds(job->max_late), &oldest))
		after = Max(after, oldest - 1);
	return next_tick(state, job, after);
}

/*
 * find_due - as ShedlockFindDue(), from the state as the declaration has it
 */
static ShedlockDue
find_due(const ShedlockTick *state, const ShedlockJob *job, TimestampTz now)
{
	const ShedlockDue nothing = {.attempt = 0};
	const ShedlockDue attempt = {state->tick, state->attempt + 1};
	ShedlockDue first = {.attempt = 1};
	TimestampTz last_time;

	first.tick = ShedlockPreviousTick(&job->schedule, now);
	if (state->again_at != DT_NOBEGIN)
	{
		if (state->tick <= now && state->tick != DT_NOBEGIN)
			return attempt;
		return TIMESTAMP_NOT_FINITE(first.tick) ? nothing : first;
	}
	if (job->catch_up_all)
	{
		if (has_attempt(state, job, now))
			return is_backing_off(state, now) ? nothing : attempt;
		first.tick = oldest_missed(state, job, now);
		return first.tick <= now ? first : nothing;
	}
	if (first.tick > Max(state->tick, job->since))
	{
		last_time = ShedlockLastTime(first.tick, job);
		return now <= last_time && first.tick != state->skipped ? first : nothing;
	}
	return has_attempt(state, job, now) && !is_backing_off(state, now) ? attempt : nothing;
}

/*
 * ShedlockFindDue - what is due at that time
 *
 * last: the state of the job's ticks.  Assumes that the lock is free: whether it is, is
 * asked next.  Nothing is due of a job whose schedule cannot be read.
 */
ShedlockDue
ShedlockFindDue(const ShedlockTick *last, const ShedlockJob *job, TimestampTz now)
{
	ShedlockTick state = open_state(last, job);
	ShedlockDue nothing = {.attempt = 0};

	return job->is_readable ? find_due(&state, job, now) : nothing;
}

/*
 * ShedlockComingTick - the next tick that was not skipped; DT_NOEND if there is none
 */
TimestampTz
ShedlockComingTick(const ShedlockTick *last, const ShedlockJob *job, TimestampTz now)
{
	ShedlockTick state = open_state(last, job);

	return job->is_readable ? next_tick(&state, job, Max(now, state.tick)) : DT_NOEND;
}

/*
 * ShedlockLapsedTick - the last tick that has come, if it had no run and is too late for one;
 * DT_NOBEGIN if not
 */
TimestampTz
ShedlockLapsedTick(const ShedlockTick *last, const ShedlockJob *job, TimestampTz now)
{
	ShedlockTick state = open_state(last, job);
	TimestampTz tick;

	if (!job->is_readable || job->max_late == NULL)
		return DT_NOBEGIN;
	tick = ShedlockPreviousTick(&job->schedule, now);
	if (tick <= Max(state.tick, job->since))
		tick = job->carried;
	return tick > last->tick && state.skipped != tick && now > ShedlockLastTime(tick, job) ?
		tick : DT_NOBEGIN;
}

/*
 * ShedlockNextTime - the first time from that on at which something is due; DT_NOEND for none
 */
TimestampTz
ShedlockNextTime(const ShedlockTick *last, const ShedlockJob *job, TimestampTz from)
{
	ShedlockTick state = open_state(last, job);
	TimestampTz at = job->is_readable ? from : DT_NOEND;

	/* Each turn comes to a time at which the answer can change. */
	while (at != DT_NOEND && find_due(&state, job, at).attempt == 0)
	{
		TimestampTz next = next_tick(&state, job, Max(at, state.tick));

		CHECK_FOR_INTERRUPTS();
		if (!state.done)
		{
			TimestampTz too_late = ShedlockLastTime(state.tick, job);

			if (is_backing_off(&state, at))
				next = Min(next, state.retry_at);
			if (state.tick > at)
				next = Min(next, state.tick);
			if (job->catch_up_all && too_late != DT_NOEND && too_late >= at)
				next = Min(next, too_late + 1);
		}
		at = next;
	}
	return at;
}

/*
 * ShedlockNextAttempt - when one more attempt at the last tick may begin
 *
 * now: at once.  DT_NOEND: none follows.  Assumes that no run of the tick is at work.
 */
TimestampTz
ShedlockNextAttempt(const ShedlockTick *last, const ShedlockJob *job, TimestampTz now)
{
	ShedlockTick state = open_state(last, job);
	TimestampTz at = now;
	ShedlockDue due;

	if (!job->is_readable || state.tick == DT_NOBEGIN)
		return DT_NOEND;
	if (state.again_at == DT_NOBEGIN && is_backing_off(&state, now))
		at = state.retry_at;
	due = find_due(&state, job, at);
	return due.attempt > 0 && due.tick == state.tick ? at : DT_NOEND;
}

/*
 * ShedlockDueSince - since when a run could have begun; DT_NOEND if none could
 *
 * free_since: since when neither a lock nor a pause has been in the way.  A tick that is too
 * late for its max_late counts, too, if it came after the job was declared and free: else a
 * job that nobody calls would never be overdue.  If several ticks were missed, counts from the
 * oldest one, although only the last of them may be made up.  If each is made up, none could
 * begin before the one before it was used up.
 */
TimestampTz
ShedlockDueSince(const ShedlockTick *last, const ShedlockJob *job, TimestampTz now,
				 TimestampTz free_since)
{
	ShedlockTick state = open_state(last, job);
	TimestampTz declared_at = job->declared_at;
	TimestampTz since;
	ShedlockDue due;

	if (!job->is_readable)
		return DT_NOEND;

	/* The clock was set back since. */
	if (declared_at > now)
		declared_at = DT_NOBEGIN;
	due = find_due(&state, job, now);
	if (state.again_at != DT_NOBEGIN)
		since = state.again_at;
	else if (due.attempt > 0 && due.tick == state.tick)
		since = state.retry_at <= now ? Max(state.tick, state.retry_at) : state.tick;
	else if (due.attempt == 0 && has_attempt(&state, job, now))
		return DT_NOEND;		/* it backs off, whatever else was missed */
	else
	{
		TimestampTz after = state.tick;

		/* Nobody makes up what is older than a tick that was skipped. */
		if (!job->catch_up_all && ShedlockHasSkipped(&state, job) && state.skipped <= now)
			after = state.skipped;
		if (due.attempt == 0)
			after = Max(after, declared_at);
		if (due.attempt == 0 && free_since != DT_NOBEGIN)
			after = Max(after, free_since - 1);
		since = next_tick(&state, job, after);
		if (since > now)
			return DT_NOEND;
		if (job->catch_up_all)
			since = Max(since, state.claimed_at);
	}
	return Max(since, Max(declared_at, free_since));
}
