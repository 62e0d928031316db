/*-------------------------------------------------------------------------
 *
 * state.c
 *	  How a job is doing now, and when a call for a run of it can succeed.
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

/* A tick that is further ahead was run, or a job declared, before the clock was set back. */
#define AHEAD_MAX		USECS_PER_MINUTE

/* So many changes, each within an hour of the one before, are no accident. */
#define TURNS_MAX		3

/* When to look again for what ends by an act that nobody can foresee. */
#define LOOK_AGAIN		USECS_PER_SEC

/* The same while a run has the lock: its end may come any time before its lease does. */
#define LOOK_FOR_END	USECS_PER_MINUTE

const char *const shedlock_job_state_names[] = {
	[SHEDLOCK_JOB_RUNNING] = "running",
	[SHEDLOCK_JOB_PAUSED] = "paused",
	[SHEDLOCK_JOB_RETRYING] = "retrying",
	[SHEDLOCK_JOB_DUE] = "due",
	[SHEDLOCK_JOB_GAVE_UP] = "gave up",
	[SHEDLOCK_JOB_NEW] = "new",
	[SHEDLOCK_JOB_WAITING] = "waiting",
	[SHEDLOCK_JOB_UNKNOWN] = "unknown",
};

/*
 * ShedlockFreeSince - since when nothing has been in the way of a run, or until when something is
 *
 * Nobody knows when a session lock or run has ended whose process died: from its begin on.
 */
TimestampTz
ShedlockFreeSince(const ShedlockRow *row, bool held, TimestampTz now)
{
	TimestampTz since = row->lock_until;

	if (!row->found)
		return DT_NOBEGIN;
	if (!ShedlockCountsAsLease(row))
		since = held ? now : Max(row->locked_at, row->keep_until);
	return Max(since, row->paused_until);
}

/*
 * gave_up - are the attempts at the last tick used up without a success?
 *
 * Until a later tick is run or skipped, or shedlock_again() allows one more attempt.
 */
static bool
gave_up(const ShedlockTick *last, const ShedlockJob *job, TimestampTz now)
{
	return last->token != 0 && last->token != job->spent_token && !last->done &&
		last->attempt > 0 && job->carried <= last->tick &&
		!(ShedlockHasSkipped(last, job) && last->skipped <= now);
}

/*
 * gave_up_since - since when the attempts at a tick are used up; DT_NOEND if none are
 *
 * last: after which no tick has succeeded.  What is not written yet is that the last run is lost,
 * or that a later tick has ended the attempts.  free_since: see ShedlockFreeSince().
 */
static TimestampTz
gave_up_since(const ShedlockStanding *standing, const ShedlockJob *job, TimestampTz now,
			  TimestampTz free_since)
{
	const ShedlockTick *last = &standing->last;

	if (last->gave_up_at >= job->created_at && !(ShedlockHasSkipped(last, job) && last->skipped <= now))
		return last->gave_up_at;
	if (standing->at_work || standing->run.outcome == SHEDLOCK_RUN_UNKNOWN ||
		standing->attempt_at != DT_NOEND || !gave_up(last, job, now))
		return DT_NOEND;
	return Max(last->claimed_at, standing->run.token != 0 && standing->run.ended_at != DT_NOBEGIN ?
			   standing->run.ended_at : Min(free_since, now));
}

/*
 * slow_since - since when the run that has the lock has been at work for too long; DT_NOEND if not
 */
static TimestampTz
slow_since(const ShedlockRow *row, const ShedlockJob *job, TimestampTz now)
{
	TimestampTz since;

	if (job->slow_after == NULL ||
		pg_add_s64_overflow(row->locked_at, ShedlockIntervalMicroseconds(job->slow_after), &since))
		return DT_NOEND;
	return since <= now ? since : DT_NOEND;
}

/*
 * overdue_since - since when a run could have begun, if that is too long ago; DT_NOEND if not
 */
static TimestampTz
overdue_since(const ShedlockTick *last, const ShedlockJob *job, TimestampTz now,
			  TimestampTz free_since)
{
	TimestampTz since = ShedlockDueSince(last, job, now, free_since);

	return since != DT_NOEND && now - since > ShedlockIntervalMicroseconds(job->overdue_after) ?
		since : DT_NOEND;
}

/*
 * problem_of - what needs attention; palloc'd, or NULL
 */
static const char *
problem_of(const ShedlockTick *last, const ShedlockJob *job, TimestampTz now)
{
	if (!job->is_readable)
		return "its schedule cannot be read any more";
	if (job->turns >= TURNS_MAX && job->declared_at > now - USECS_PER_HOUR)
		return psprintf("declared in turns: changed %d times, each time within an hour of the last, lately by role \"%s\"",
						job->turns, job->declared_by);
	if (job->since > now + AHEAD_MAX)
		return psprintf("its ticks count only after %s: the clock was set back; shedlock_job with the same settings ends that",
						ShedlockTimeString(job->since));
	if (last->tick > now + AHEAD_MAX && last->again_at == DT_NOBEGIN)
		return psprintf("its last tick, %s, is in the future: the clock was set back; shedlock_again ends that",
						ShedlockTimeString(last->tick));
	return NULL;
}

/*
 * state_of - the first state that holds
 */
static ShedlockJobState
state_of(const ShedlockStanding *standing, const ShedlockJob *job, const ShedlockDue *due,
		 TimestampTz now)
{
	const ShedlockTick *last = &standing->last;

	if (standing->run.outcome == SHEDLOCK_RUN_UNKNOWN)
		return SHEDLOCK_JOB_UNKNOWN;
	if (standing->at_work)
		return SHEDLOCK_JOB_RUNNING;
	if (standing->paused)
		return SHEDLOCK_JOB_PAUSED;
	if (standing->attempt_at != DT_NOEND && last->attempt > 0 && last->tick >= job->carried)
		return SHEDLOCK_JOB_RETRYING;
	if (due->attempt > 0)
		return SHEDLOCK_JOB_DUE;
	if (gave_up(last, job, now))
		return SHEDLOCK_JOB_GAVE_UP;
	if (last->claimed_at < job->created_at)
		return SHEDLOCK_JOB_NEW;
	return SHEDLOCK_JOB_WAITING;
}

/*
 * ShedlockFindStanding - how a job is doing now
 *
 * Reads the lock before the ticks and the history, so that a run that ends meanwhile is shown
 * as ended, or at work; and again if one has begun meanwhile, which would pass for lost.
 */
void
ShedlockFindStanding(const ShedlockName *name, const ShedlockJob *job, ShedlockStanding *standing)
{
	ShedlockTick *last = &standing->last;
	TimestampTz now;
	ShedlockRow row;
	bool		held;
	ShedlockDue due;
	TimestampTz free_since;

	do
	{
		CHECK_FOR_INTERRUPTS();
		ShedlockLookUpRow(name, &row);
		ShedlockLookUpTick(name, last);
		ShedlockReadRun(name, last->token, &standing->run);
		now = GetCurrentTimestamp();
		held = ShedlockIsHeld(&row, name, now);
	} while (!held && standing->run.outcome == SHEDLOCK_RUNNING);
	due = ShedlockFindDue(last, job, now);

	standing->now = now;
	standing->at_work = held && ShedlockCountsAsRun(&row);
	standing->paused = row.paused_until > now;
	standing->attempt_at = standing->at_work || standing->run.outcome == SHEDLOCK_RUN_UNKNOWN ?
		DT_NOEND : ShedlockNextAttempt(last, job, now);
	standing->next_due = ShedlockComingTick(last, job, now);
	standing->state = state_of(standing, job, &due, now);
	standing->problem = problem_of(last, job, now);
	free_since = ShedlockFreeSince(&row, held, now);
	standing->overdue_since =
		standing->at_work || standing->paused || standing->state == SHEDLOCK_JOB_UNKNOWN ?
		DT_NOEND : overdue_since(last, job, now, free_since);
	standing->gave_up_since = gave_up_since(standing, job, now, free_since);
	standing->slow_since = standing->at_work ? slow_since(&row, job, now) : DT_NOEND;
}

/*
 * ShedlockNextAt - the first time at which a call for a run of the name can succeed, as far as
 * can be foreseen
 *
 * row: its lock.  DT_NOEND: there is none, because it is paused without end, or has no more
 * ticks.  Assumes that a call was refused, or would have been, at that time, now.
 */
TimestampTz
ShedlockNextAt(const ShedlockName *name, const ShedlockRow *row, const ShedlockTick *last,
			   const ShedlockJob *job, TimestampTz now)
{
	TimestampTz at = now;
	bool		held = ShedlockIsHeld(row, name, now);

	if (row->found)
	{
		if (ShedlockCountsAsLease(row))
			at = Max(at, row->lock_until);
		else if (!held)
			at = Max(at, row->keep_until);
		else if (ShedlockHolderEnd(row) != DT_NOEND)
			at = Max(at, ShedlockHolderEnd(row));
		at = Max(at, row->paused_until);
	}
	if (job->found)
		at = ShedlockNextTime(last, job, at);
	if (held && SHEDLOCK_IS_RUN(row->kind))
		at = Min(at, now + LOOK_FOR_END);
	return at <= now ? now + LOOK_AGAIN : at;
}
