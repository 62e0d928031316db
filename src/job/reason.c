/*-------------------------------------------------------------------------
 *
 * reason.c
 *	  Why a run does not begin, in words.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job/job.h"
#include "lib/stringinfo.h"
#include "utils/timestamp.h"

/* Bytes of a run's message that shedlock_why shows. */
#define ERROR_MAX	400

/*
 * ShedlockRefusedFor - the state that an acquire was refused for, as exactly as it can be told
 *
 * An acquire does not look for the holder of a session lock or run: it takes a lock that is
 * kept for one that is held, and one that is held for one that is in use.
 */
ShedlockState
ShedlockRefusedFor(const ShedlockName *name, const ShedlockResult *result)
{
	const ShedlockRow *row = &result->row;
	ShedlockUse use = {0};
	ShedlockState state;

	if (!row->found || ShedlockCountsAsLease(row) ||
		(result->state != SHEDLOCK_HELD && result->state != SHEDLOCK_IN_USE))
		return result->state;
	state = ShedlockJudge(row, name, GetCurrentTimestamp(), &use);
	if (state == SHEDLOCK_FREE)
		return result->state == SHEDLOCK_HELD ? SHEDLOCK_KEPT : SHEDLOCK_IN_USE;
	return state;
}

/*
 * ShedlockStateReason - why a lock in that state is refused; palloc'd
 */
char *
ShedlockStateReason(const ShedlockRow *row, ShedlockState state)
{
	switch (state)
	{
		case SHEDLOCK_PAUSED:
			return psprintf("It was paused by \"%s\" until %s%s%s.",
							row->paused_by ? row->paused_by : "",
							TIMESTAMP_IS_NOEND(row->paused_until) ?
							"shedlock_resume" : ShedlockTimeString(row->paused_until),
							row->pause_reason ? ": " : "",
							row->pause_reason ? row->pause_reason : "");
		case SHEDLOCK_KEPT:
			return psprintf("It was last held by \"%s\" and is kept until %s by its lock_at_least_for.",
							ShedlockShownBy(row),
							ShedlockTimeString(row->kind == SHEDLOCK_RELEASED ?
											   row->lock_until : row->keep_until));
		case SHEDLOCK_HELD:
		case SHEDLOCK_LOST:
			return psprintf("It has been held by \"%s\" since %s.",
							ShedlockShownBy(row), ShedlockTimeString(row->locked_at));
		case SHEDLOCK_UNKNOWN:
			return psprintf("It was acquired by \"%s\" at %s; only the primary can tell whether it is still held.",
							ShedlockShownBy(row), ShedlockTimeString(row->locked_at));
		default:
			return pstrdup("It is in use by an open transaction.");
	}
}

/*
 * add_error - say with which error a run ended, if it has ended badly and may be seen
 *
 * The text is that of another role, and may be long.  Returns whether it ended badly.
 */
static bool
add_error(StringInfo buf, const ShedlockHistoryRun *run)
{
	char		shown[ERROR_MAX + SHEDLOCK_CLIP_NOTE];

	if (run->outcome <= SHEDLOCK_SUCCEEDED || run->outcome == SHEDLOCK_RETURNED ||
		run->outcome == SHEDLOCK_RUN_UNKNOWN || !ShedlockMaySee(run->role))
		return false;
	if (run->message && run->message[0] != '\0')
	{
		ShedlockClip(shown, run->message, ERROR_MAX);
		(void) ShedlockMaskText(shown);
		appendStringInfo(buf, "\nIts message: %s", shown);
	}
	return true;
}

/*
 * add_last_tick - say what became of the last tick
 *
 * run: the last one of it, as of now.  Only callers to whom shedlock_history shows the run
 * learn its holder and outcome.  The role of a claim without a run is not known.
 */
static void
add_last_tick(StringInfo buf, const ShedlockTick *last, const ShedlockHistoryRun *run)
{
	const char *tick = ShedlockTimeString(last->tick);

	if (last->tick == DT_NOBEGIN)
		appendStringInfoString(buf, "No tick has been run yet.");
	else if (!ShedlockMaySee(run->role))
		appendStringInfo(buf, run->outcome == SHEDLOCK_RUNNING ? "A run of tick %s is at work." :
						 "Tick %s was claimed.", tick);
	else if (last->token != 0 && last->attempt == 0 && run->outcome != SHEDLOCK_RETURNED)
		appendStringInfo(buf, "Tick %s passed while an older one was run by \"%s\"; outcome: %s.", tick,
						 last->claimed_by, shedlock_outcome_names[run->outcome]);
	else if (last->token == 0)
		appendStringInfo(buf, "Tick %s was claimed at %s by \"%s\".", tick,
						 ShedlockTimeString(last->claimed_at), last->claimed_by);
	else
		appendStringInfo(buf, "Attempt %d at tick %s began at %s by \"%s\"; outcome: %s.",
						 last->attempt + (run->outcome == SHEDLOCK_RETURNED), tick,
						 ShedlockTimeString(last->claimed_at), last->claimed_by,
						 shedlock_outcome_names[run->outcome]);
}

/*
 * add_next_tick - say which tick comes next, which one was skipped or came too late, and that
 * the last gave up
 */
static void
add_next_tick(StringInfo buf, const char *separator, const ShedlockTick *last,
			  const ShedlockJob *job, TimestampTz now, bool gave_up)
{
	TimestampTz next = ShedlockComingTick(last, job, now);
	TimestampTz lapsed = ShedlockLapsedTick(last, job, now);

	if (lapsed != DT_NOBEGIN)
		appendStringInfo(buf, "%sTick %s had no run within its max_late.", separator,
						 ShedlockTimeString(lapsed));
	if (TIMESTAMP_IS_NOEND(next))
		return;
	if (ShedlockHasSkipped(last, job))
		appendStringInfo(buf, "%sTick %s is skipped.", separator, ShedlockTimeString(last->skipped));
	appendStringInfo(buf, gave_up && lapsed == DT_NOBEGIN ? "%sNo attempt is left; the next tick is %s." :
					 "%sThe next tick is %s.", separator, ShedlockTimeString(next));
}

/*
 * add_next - say when the next attempt or tick is due
 *
 * separator: from what was said before.  A caller that may not see the last run is not told
 * that its attempts are used up, either.  Returns true if no other attempt follows by itself.
 */
static bool
add_next(StringInfo buf, const char *separator, const ShedlockTick *last,
		 const ShedlockHistoryRun *run, const ShedlockJob *job, TimestampTz now)
{
	ShedlockDue due = ShedlockFindDue(last, job, now);
	TimestampTz attempt_at = ShedlockNextAttempt(last, job, now);

	if (!job->is_readable)
		appendStringInfo(buf, "%sIts schedule, \"%s\", cannot be read any more.", separator,
						 job->schedule_text);
	else if (due.attempt > 0 && job->attempts == 0)
		appendStringInfo(buf, "%sTick %s can be claimed now.", separator, ShedlockTimeString(due.tick));
	else if (due.attempt > 0)
		appendStringInfo(buf, "%sAttempt %d of %d at tick %s is due now.", separator, due.attempt,
						 Max(due.attempt, job->attempts), ShedlockTimeString(due.tick));
	else if (!TIMESTAMP_IS_NOEND(attempt_at))
		appendStringInfo(buf, "%sAttempt %d of %d is due at %s.", separator, last->attempt + 1,
						 job->attempts, ShedlockTimeString(attempt_at));
	else
		add_next_tick(buf, separator, last, job, now,
					  last->token != 0 && !last->done && ShedlockMaySee(run->role));
	return due.attempt == 0 && TIMESTAMP_IS_NOEND(attempt_at);
}

/*
 * add_tick - say what the last run was, and when the next one is due
 *
 * job: not found if the ticks have no schedule.  for_person: on lines of their own, with the
 * error of the last run, and the way out.
 */
static void
add_tick(StringInfo buf, const ShedlockName *name, const ShedlockTick *last,
		 const ShedlockJob *job, TimestampTz now, bool for_person)
{
	const char *separator = for_person ? "\n" : "  ";
	ShedlockHistoryRun run;
	bool		bad;

	ShedlockReadRun(name, last->token, &run);
	add_last_tick(buf, last, &run);
	bad = for_person && add_error(buf, &run);
	if (!job->found && last->again_at != DT_NOBEGIN)
		appendStringInfo(buf, "%sIt can be claimed once more.", separator);
	if (job->found && !SHEDLOCK_MAY_RUN(run.outcome) &&
		add_next(buf, separator, last, &run, job, now) && bad)
		appendStringInfoString(buf, "\nshedlock_again allows one more attempt.");
}

/*
 * ShedlockTickReason - what the last run was, and when the next one is due; palloc'd
 *
 * If ShedlockFindDue() does not return a run, this is the reason.
 */
char *
ShedlockTickReason(const ShedlockName *name, const ShedlockTick *last,
				   const ShedlockJob *job, TimestampTz now)
{
	StringInfoData buf;

	initStringInfo(&buf);
	add_tick(&buf, name, last, job, now, false);
	return buf.data;
}

/*
 * job_of_claims - a job that has the period of a claim, but no runs
 */
static void
job_of_claims(const ShedlockTick *last, ShedlockJob *job)
{
	if (last->period == NULL || !ShedlockIsPeriod(last->period))
		return;
	job->found = true;
	job->is_readable = true;
	job->schedule.period = ShedlockIntervalMicroseconds(last->period);
	job->since = DT_NOBEGIN;
	job->carried = DT_NOBEGIN;
	job->created_at = DT_NOBEGIN;
}

/*
 * lock_reason - what an acquire would be answered; palloc'd
 */
static char *
lock_reason(const ShedlockRow *row, ShedlockState state, const ShedlockUse *use, TimestampTz now)
{
	TimestampTz end;
	char	   *reason;

	if (state == SHEDLOCK_FREE)
	{
		if (row->token == 0)
			return pstrdup("It is free, and was never acquired.");
		reason = psprintf("It is free, and was last acquired by \"%s\" at %s.",
						  ShedlockShownBy(row), ShedlockTimeString(row->locked_at));
		if (row->lock_until > now)
			reason = psprintf("%s  Its holder has died; ShedLock's clients are refused until %s.",
							  reason, ShedlockTimeString(row->lock_until));
		return reason;
	}
	if (state == SHEDLOCK_IN_USE)
		return use->pid == 0 ? pstrdup("It is in use by a prepared transaction.") :
			psprintf("It is in use by process %d.", use->pid);
	reason = ShedlockStateReason(row, state);
	end = ShedlockCountsAsLease(row) ? row->lock_until : ShedlockHolderEnd(row);
	if (SHEDLOCK_HAS_HOLDER(state) && end != DT_NOEND && end > now)
		reason = psprintf("%s  It ends at %s%s.", reason, ShedlockTimeString(end),
						  state == SHEDLOCK_HELD ? " unless it is extended" : "");
	if (state == SHEDLOCK_LOST)
		reason = psprintf("%s  It was acquired before a failover or restore: if its holder is gone, shedlock_force_release frees it.",
						  reason);
	return reason;
}

/*
 * run_reason - what the run that holds a lock is, if it is not the last one of the tick;
 * or NULL
 *
 * token: of the lock.  A claim of a later tick takes the tick's row over from a run at work.
 */
static const char *
run_reason(const ShedlockName *name, int64 token, const ShedlockTick *last)
{
	ShedlockHistoryRun past;

	if (token == last->token)
		return NULL;
	ShedlockHistoryRead(name->nsp, token, &past);
	if (past.attempt > 0)
		return psprintf("That is a run of tick %s.", ShedlockTimeString(past.tick));
	return "That is a run without a tick.";
}

/*
 * add_last_run - say how the last run of a name without ticks ended
 *
 * token: of the last acquisition.  Says nothing of a run that is at work, or that the caller
 * may not see.
 */
static void
add_last_run(StringInfo buf, const ShedlockName *name, int64 token)
{
	ShedlockHistoryRun run;

	ShedlockReadRun(name, token, &run);
	if (run.outcome <= SHEDLOCK_RUNNING || !ShedlockMaySee(run.role))
		return;
	appendStringInfo(buf, "\nIts last run began at %s; outcome: %s.",
					 ShedlockTimeString(run.started_at), shedlock_outcome_names[run.outcome]);
	(void) add_error(buf, &run);
}

/*
 * ShedlockWhy - what an acquire or a run would be answered now, and why, in lines; palloc'd
 */
char *
ShedlockWhy(const ShedlockName *name)
{
	ShedlockUse use = {0};
	ShedlockState state;
	ShedlockRow row;
	ShedlockTick last;
	ShedlockJob job;
	ShedlockHistoryRun past;
	TimestampTz now;
	StringInfoData buf;
	const char *run = NULL;

	/* A lock that is released between these two is told to be in use. */
	ShedlockReadUse(&name->tag, &use);
	ShedlockLookUpRow(name, &row);
	ShedlockLookUpTick(name, &last);
	ShedlockLookUpJob(name, &job);
	if (!job.found)
		job_of_claims(&last, &job);
	now = GetCurrentTimestamp();
	state = ShedlockJudge(&row, name, now, &use);

	/*
	 * What this transaction has acquired is not committed, and what it only
	 * uses it could acquire.
	 */
	if (SHEDLOCK_HAS_HOLDER(state) && use.exclusive && !use.by_other)
		state = SHEDLOCK_UNCOMMITTED;
	else if (state == SHEDLOCK_IN_USE && !use.by_other)
		state = SHEDLOCK_FREE;

	initStringInfo(&buf);
	appendStringInfoString(&buf, lock_reason(&row, state, &use, now));
	if (state == SHEDLOCK_HELD && SHEDLOCK_IS_RUN(row.kind))
		run = run_reason(name, row.token, &last);
	if (run)
		appendStringInfo(&buf, "\n%s", run);
	else if (last.found || job.found)
	{
		appendStringInfoChar(&buf, '\n');
		add_tick(&buf, name, &last, &job, now, true);
	}
	else if (row.found && row.token != 0)
		add_last_run(&buf, name, row.token);
	else if (state == SHEDLOCK_FREE && !row.found)
	{
		ShedlockHistoryFind(name, &past);
		if (past.token == 0)
			appendStringInfoString(&buf, "\nNo lock or job has this name: it is new, or misspelled.");
	}
	return buf.data;
}
