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

#include "job/job.h"
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
 * gave_up - has the last tick had its attempts in vain?
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
 * problem_of - what somebody ought to look at; palloc'd, or NULL
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
 * as ended, or at work.
 */
void
ShedlockFindStanding(const ShedlockName *name, const ShedlockJob *job, ShedlockStanding *standing)
{
	ShedlockTick *last = &standing->last;
	TimestampTz now;
	ShedlockRow row;
	bool		held;
	ShedlockDue due;
	TimestampTz since = DT_NOEND;

	ShedlockLookUpRow(name, &row);
	ShedlockLookUpTick(name, last);
	ShedlockReadRun(name, last->token, &standing->run);
	now = GetCurrentTimestamp();
	held = ShedlockIsHeld(&row, name, now);
	due = ShedlockFindDue(last, job, now);

	standing->now = now;
	standing->at_work = held && ShedlockCountsAsRun(&row);
	standing->paused = row.paused_until > now;
	standing->attempt_at = standing->at_work || standing->run.outcome == SHEDLOCK_RUN_UNKNOWN ?
		DT_NOEND : ShedlockNextAttempt(last, job, now);
	standing->next_due = ShedlockComingTick(last, job, now);
	standing->state = state_of(standing, job, &due, now);
	standing->problem = problem_of(last, job, now);
	if (!standing->at_work && !standing->paused && standing->state != SHEDLOCK_JOB_UNKNOWN)
		since = ShedlockDueSince(last, job, now, ShedlockFreeSince(&row, held, now));
	standing->overdue = since != DT_NOEND && now - since > ShedlockIntervalMicroseconds(job->overdue_after) ?
		now - since : 0;
}

/*
 * ShedlockNextAt - the first time at which a call for a run of the name can succeed, as far as
 * can be foreseen
 *
 * row: its lock.  DT_NOEND: there is none, because it is paused for ever, or has no tick to
 * come.  Assumes that a call now would be refused.
 */
TimestampTz
ShedlockNextAt(const ShedlockName *name, const ShedlockRow *row, const ShedlockTick *last,
			   const ShedlockJob *job)
{
	TimestampTz now = GetCurrentTimestamp();
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
