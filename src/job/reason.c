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

/*
 * ShedlockIsKept - is a lock that was refused kept by its at-least time alone?
 *
 * Without the advisory half, a dead holder's at-least time looks held.
 */
bool
ShedlockIsKept(const ShedlockName *name, const ShedlockResult *result)
{
	const ShedlockRow *row = &result->row;

	return result->verdict == SHEDLOCK_KEPT ||
		(result->verdict == SHEDLOCK_HELD && !ShedlockCountsAsLease(row) &&
		 !ShedlockHolderLives(row, name, false));
}

/*
 * ShedlockBusyReason - why an acquire was refused; palloc'd
 */
char *
ShedlockBusyReason(const ShedlockName *name, const ShedlockResult *result)
{
	const ShedlockRow *row = &result->row;

	if (result->verdict == SHEDLOCK_PAUSED)
		return psprintf("It was paused by \"%s\" until %s%s%s.",
						row->paused_by ? row->paused_by : "",
						TIMESTAMP_IS_NOEND(row->paused_until) ?
						"shedlock_resume" : ShedlockTimeString(row->paused_until),
						row->pause_reason ? ": " : "",
						row->pause_reason ? row->pause_reason : "");
	if (ShedlockIsKept(name, result))
		return psprintf("It was last held by \"%s\" and is kept until %s by its lock_at_least_for.",
						ShedlockShownBy(row),
						ShedlockTimeString(row->kind == SHEDLOCK_RELEASED ?
										   row->lock_until : row->keep_until));
	if (!row->found || row->kind == SHEDLOCK_RELEASED ||
		(result->verdict == SHEDLOCK_BUSY && SHEDLOCK_IS_LEASE(row->kind)))
		return pstrdup("It is being acquired by an open transaction.");
	return psprintf("It has been held by \"%s\" since %s.",
					ShedlockShownBy(row), ShedlockTimeString(row->locked_at));
}

/*
 * add_last_tick - say what became of the last tick
 *
 * Who ran it, and how that ended, only to callers to whom shedlock_history shows the
 * run.  The role of a claim without a run is not known.  Returns true if a run of it
 * is at work.
 */
static bool
add_last_tick(StringInfo buf, const ShedlockName *name, const ShedlockTick *last)
{
	const char *tick = ShedlockTimeString(last->tick);
	const char *outcome = last->token != 0 ? ShedlockRunOutcome(name, last->token) : NULL;
	bool		is_running = outcome && strcmp(outcome, "running") == 0;

	if (last->claimed_by[0] == '\0')
		appendStringInfo(buf, "Tick %s had passed before the job had this schedule.", tick);
	else if (!ShedlockHistoryMaySee(name->nsp, last->token))
		appendStringInfo(buf, is_running ? "A run of tick %s is at work." :
						 "Tick %s was claimed.", tick);
	else if (last->token != 0 && last->attempt == 0)
		appendStringInfo(buf, "Tick %s passed while an older one was run by \"%s\"; outcome: %s.", tick,
						 last->claimed_by, outcome ? outcome : "not in the history any more");
	else if (last->token == 0)
		appendStringInfo(buf, "Tick %s was claimed at %s by \"%s\".", tick,
						 ShedlockTimeString(last->claimed_at), last->claimed_by);
	else
		appendStringInfo(buf, "Attempt %d at tick %s began at %s by \"%s\"; outcome: %s.",
						 last->attempt, tick, ShedlockTimeString(last->claimed_at),
						 last->claimed_by, outcome ? outcome : "not in the history any more");
	return is_running;
}

/*
 * ShedlockTickReason - why no run is due, in one or two sentences; palloc'd
 *
 * Call this when ShedlockFindDue() does not return a run.
 */
char *
ShedlockTickReason(const ShedlockName *name, const ShedlockTick *last,
				   const ShedlockPlan *plan, TimestampTz now)
{
	TimestampTz next = ShedlockNextTick(&plan->schedule, last->found ? Max(now, last->tick) : now);
	StringInfoData buf;
	bool		is_running = false;

	initStringInfo(&buf);
	if (last->found)
		is_running = add_last_tick(&buf, name, last);
	else
		appendStringInfoString(&buf, "No tick has come yet.");
	if (is_running)
		return buf.data;

	if (last->found && !last->done && last->attempt < plan->attempts &&
		now < last->retry_at && last->retry_at <= ShedlockLastTime(last->tick, plan))
		appendStringInfo(&buf, " Attempt %d of %d is due at %s.", last->attempt + 1,
						 plan->attempts, ShedlockTimeString(last->retry_at));
	else if (!TIMESTAMP_IS_NOEND(next))
		appendStringInfo(&buf, " The next tick is %s.", ShedlockTimeString(next));
	return buf.data;
}
