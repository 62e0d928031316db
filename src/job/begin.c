/*-------------------------------------------------------------------------
 *
 * begin.c
 *	  Begins a run: its tick, its lock, and its entry in the history.
 *
 * They are written in one transaction, or none of them.  The tick is looked at first,
 * because that it is not due is the usual answer, and costs least.  Then, in this
 * order, and neither ever waits: the tick's advisory lock, so that nobody else decides
 * about it, and the lock.  All three are decided before anything is written, so that a
 * refusal has nothing to undo (I3).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/breakage.h"
#include "job/job.h"
#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

/* What one try of a call that may wait found. */
typedef struct Try
{
	ShedlockRun *run;
	bool		explain;		/* the caller wants to know why no run is due */
	bool		tick_locked;	/* by an open transaction that claims it */
	bool		written;		/* the state of the ticks */
	ShedlockBeginning beginning;
	const char *reason;
} Try;

/*
 * time_allows - would a sleep until then end before the statement does?
 */
static bool
time_allows(TimestampTz then)
{
	return !(get_timeout_active(STATEMENT_TIMEOUT) &&
			 get_timeout_finish_time(STATEMENT_TIMEOUT) <= then) &&
		!transaction_ends_by(then);
}

/*
 * ShedlockAwaitTick - sleep until the tick that a timer firing now is early for
 *
 * The call holds nothing meanwhile, so that nothing starts before its tick and nobody
 * is kept from anything.  It does not sleep if a timeout would end it, or if an older
 * tick is to be made up now.  The sleep ends after SHEDLOCK_EARLY_MAX, whatever becomes
 * of the server's clock.  commit: first commit, because the portal of a CALL has a
 * snapshot.  Obeys cancels.
 */
void
ShedlockAwaitTick(const ShedlockPlan *plan, const ShedlockName *name, bool commit)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz tick = ShedlockTickOfTimer(&plan->schedule, now);
	int64		give_up = ShedlockSteadyNow() + SHEDLOCK_EARLY_MAX;

	if (tick <= now || !time_allows(tick))
		return;
	if (plan->catch_up == SHEDLOCK_CATCH_UP_ALL)
	{
		ShedlockTick last;

		ShedlockLookUpTick(name, &last);
		if (ShedlockFindDue(&last, plan, now).action == SHEDLOCK_RUN_TICK)
			return;
	}
	if (commit)
		ShedlockCommitAndStart();
	while ((now = GetCurrentTimestamp()) < tick && ShedlockSteadyNow() < give_up)
		ShedlockNap((long) Min(1000, (tick - now) / 1000 + 1));

	/* Values that are stored out of line cannot be read without a snapshot. */
	if (commit)
		EnsurePortalSnapshotExists();
	/* The server does the work of a CALL, whether its client is there or not. */
	else
		ShedlockCheckClient();
}

/*
 * lock_is_paused - as far as the row says
 */
static bool
lock_is_paused(const ShedlockName *name, ShedlockResult *result)
{
	ShedlockLookUpRow(name, &result->row);
	result->verdict = ShedlockJudge(&result->row, name, GetCurrentTimestamp(), false);
	return result->verdict == SHEDLOCK_PAUSED;
}

/*
 * set_state - what the tick's row says of the plan and the caller
 */
static void
set_state(ShedlockTick *last, const ShedlockPlan *plan, const ShedlockDue *due, int64 token,
		  const char *locked_by)
{
	last->tick = due->tick;
	last->claimed_at = GetCurrentTimestamp();
	last->claimed_by = due->action == SHEDLOCK_REGISTER ? pstrdup("") :
		ShedlockLockedBy(locked_by, token);
	last->token = token;
	last->attempt = ShedlockBroken(ATTEMPTS_UNCOUNTED) ? due->attempt - 1 : due->attempt;
	last->done = due->action == SHEDLOCK_REGISTER;
	last->again = false;

	/* Nobody writes the end of an attempt that dies.  The first one is free. */
	last->retry_at = due->attempt > 1 ?
		ShedlockRetryAt(last->claimed_at, plan->backoff, due->attempt) : DT_NOBEGIN;
	last->has_schedule = true;
	last->has_plan = true;
	last->plan = *plan;
}

/*
 * write_state - write the tick's row, with its advisory lock held
 *
 * *due is found again if an administrator has changed the row meanwhile.  Returns the
 * row before.  Errors: 55P03 if the row is locked for 100 ms, or the change decides.
 */
static ShedlockTick
write_state(ShedlockStore *ticks, ShedlockRun *run, ShedlockTick last, ShedlockDue *due)
{
	const ShedlockName *name = &run->request.name;
	ShedlockAction action = due->action;
	int			tries = 0;

	for (;;)
	{
		ShedlockTick next = last;

		set_state(&next, run->plan, due, run->token, run->request.locked_by);
		if (ShedlockWriteTick(ticks, name, &next, false))
			return last;
		if (ShedlockAwaitForeignLock(&tries))
		{
			ShedlockReadTick(ticks, name, &last);
			*due = ShedlockFindDue(&last, run->plan, GetCurrentTimestamp());
			if (due->action == action)
				continue;
		}
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not claim tick of lock \"%s\"", name->str),
				 errdetail("Its row in shedlock_tick is locked, or was changed meanwhile.")));
	}
}

/*
 * schedule_text - a schedule for people to read
 */
static char *
schedule_text(const ShedlockPlan *plan)
{
	if (plan->period)
		return ShedlockPeriodText(plan->period);
	return psprintf("%s %s", plan->schedule.text, pg_get_timezone_name(plan->schedule.zone));
}

/*
 * log_schedule - log that a job has another schedule now
 */
static void
log_schedule(const ShedlockRun *run, const ShedlockTick *last)
{
	if (last->found && last->has_plan && last->has_schedule &&
		!ShedlockSameSchedule(&last->plan.schedule, &run->plan->schedule))
		ereport(LOG,
				(errmsg("schedule of lock \"%s\" changed from \"%s\" to \"%s\"",
						run->request.name.str,
						schedule_text(&last->plan), schedule_text(run->plan))));
}

/*
 * acquire - acquire the lock of a run
 */
static bool
acquire(ShedlockRun *run, ShedlockResult *result)
{
	ShedlockStore locks;
	bool		acquired;

	ShedlockOpen(&locks, run->request.name.nsp, "shedlock");
	acquired = ShedlockAcquire(&locks, &run->request, result);
	if (acquired)
	{
		ShedlockClose(&locks);
		run->started_at = result->row.locked_at;
		run->token = result->row.token;
	}
	else
		ShedlockCloseUnused(&locks);
	return acquired;
}

/*
 * is_run_of - is a refused lock held by a run of the very tick that is due?
 */
static bool
is_run_of(const ShedlockTick *last, const ShedlockDue *due, const ShedlockResult *result)
{
	const ShedlockRow *row = &result->row;

	return last->found && last->token != 0 && due->tick == last->tick &&
		row->found && row->token == last->token && result->verdict != SHEDLOCK_PAUSED;
}

/*
 * begin_attempt - acquire the lock, and write that an attempt at a tick begins
 *
 * Not due is also a call for the very tick that is being run, or whose lock is kept
 * by its at-least time.
 */
static ShedlockBeginning
begin_attempt(Try *try, ShedlockStore *ticks, const ShedlockTick *last, ShedlockDue *due,
			  ShedlockResult *result)
{
	ShedlockRun *run = try->run;
	const ShedlockName *name = &run->request.name;
	ShedlockTick before;

	ShedlockCheckPromises(ticks);
	if (!acquire(run, result))
	{
		if (!is_run_of(last, due, result) && !ShedlockIsKept(name, result))
			return SHEDLOCK_REFUSED;
		if (try->explain)
			try->reason = ShedlockBusyReason(name, result);
		return SHEDLOCK_NOT_DUE;
	}
	before = write_state(ticks, run, *last, due);
	try->written = true;
	run->tick = due->tick;
	run->attempt = due->attempt;
	if (before.found && !before.done && before.token != 0 && before.tick != due->tick)
		ShedlockHistoryGaveUp(name->nsp, before.token);
	log_schedule(run, &before);
	return SHEDLOCK_BEGUN;
}

/*
 * register_tick - write that a tick has passed before the job had this schedule
 *
 * A pause is as if nobody had called.
 */
static ShedlockBeginning
register_tick(Try *try, ShedlockStore *ticks, const ShedlockTick *last, ShedlockDue *due,
			  ShedlockResult *result)
{
	const ShedlockName *name = &try->run->request.name;

	if (lock_is_paused(name, result))
		return SHEDLOCK_REFUSED;
	ShedlockCheckPromises(ticks);
	(void) write_state(ticks, try->run, *last, due);
	try->written = true;
	log_schedule(try->run, last);
	if (try->explain)
	{
		ShedlockTick now;

		ShedlockReadTick(ticks, name, &now);
		try->reason = ShedlockTickReason(name, &now, try->run->plan, GetCurrentTimestamp());
	}
	return SHEDLOCK_NOT_DUE;
}

/*
 * decide - do what is due; with the tick's advisory lock held
 */
static ShedlockBeginning
decide(Try *try, ShedlockStore *ticks, ShedlockResult *result)
{
	const ShedlockName *name = &try->run->request.name;
	const ShedlockPlan *plan = try->run->plan;
	TimestampTz now;
	ShedlockTick last;
	ShedlockDue due;

	/* What was read without the lock may have changed. */
	ShedlockReadTick(ticks, name, &last);
	now = GetCurrentTimestamp();
	due = ShedlockFindDue(&last, plan, now);
	switch (due.action)
	{
		case SHEDLOCK_RUN_TICK:
			return begin_attempt(try, ticks, &last, &due, result);
		case SHEDLOCK_REGISTER:
			return register_tick(try, ticks, &last, &due, result);
		case SHEDLOCK_NOTHING:
			break;
	}
	if (try->explain)
		try->reason = ShedlockTickReason(name, &last, plan, now);
	return SHEDLOCK_NOT_DUE;
}

/*
 * try_tick - begin a run of the tick that is due, if one is
 */
static ShedlockBeginning
try_tick(Try *try, ShedlockResult *result)
{
	const ShedlockName *name = &try->run->request.name;
	const ShedlockPlan *plan = try->run->plan;
	ShedlockBeginning beginning = SHEDLOCK_NOT_DUE;
	TimestampTz now = GetCurrentTimestamp();
	ShedlockStore ticks;
	ShedlockTick last;

	try->tick_locked = false;
	ShedlockOpen(&ticks, name->nsp, "shedlock_tick");
	ShedlockReadTick(&ticks, name, &last);
	if (ShedlockFindDue(&last, plan, now).action == SHEDLOCK_NOTHING)
	{
		if (try->explain)
			try->reason = ShedlockTickReason(name, &last, plan, now);
	}
	else if (ShedlockLockTick(name))
	{
		beginning = decide(try, &ticks, result);
		if (!try->written)
			ShedlockUnlockTick(name);
	}
	else
	{
		try->tick_locked = true;
		try->reason = "Its tick is being claimed by an open transaction.";
		result->verdict = SHEDLOCK_BUSY;
	}

	if (try->written)
		ShedlockClose(&ticks);
	else
		ShedlockCloseUnused(&ticks);
	return beginning;
}

/*
 * was_requested - has another call with the same request begun the run?
 */
static bool
was_requested(const ShedlockRun *run)
{
	ShedlockLogged logged;

	if (run->client_request == NULL)
		return false;
	ShedlockHistoryFindRequest(&run->request.name, run->client_request, &logged);
	return logged.token != 0;
}

/*
 * try_to_begin - begin a run, for ShedlockWaitFor()
 *
 * Also worth a wait is a transaction that claims the tick: it may be rolled back.
 */
static bool
try_to_begin(void *arg, ShedlockResult *result)
{
	Try		   *try = arg;
	ShedlockRun *run = try->run;

	if (run->plan)
		try->beginning = try_tick(try, result);
	else
		try->beginning = acquire(run, result) ? SHEDLOCK_BEGUN : SHEDLOCK_REFUSED;

	if (try->beginning == SHEDLOCK_BEGUN)
		ShedlockHistoryStart(&run->request.name, &result->row, run->command, run->tick,
							 run->attempt, run->client_request);
	return (try->beginning != SHEDLOCK_REFUSED && !try->tick_locked) || was_requested(run);
}

/*
 * ShedlockBeginRun - begin a run, if one is due and its lock is free
 *
 * wait: how long to wait for the lock, or NULL.  *reason: why it has not begun; only if
 * explain is set when it is not due, because finding that out costs more than the
 * answer.  If it has begun, the caller commits.  Errors: 55P03 if the row of its tick
 * is locked, or lock_timeout ends the wait.  Locks: the tick's advisory lock and the
 * advisory half, exclusive, to the end of the transaction if it has begun.
 */
ShedlockBeginning
ShedlockBeginRun(ShedlockRun *run, const Interval *wait, bool explain, const char **reason)
{
	const ShedlockName *name = &run->request.name;
	Try			try = {.run = run};
	ShedlockResult result;

	try.explain = explain;
	if (wait)
		(void) ShedlockWaitFor(name, wait, try_to_begin, &try, &result);
	else
		(void) try_to_begin(&try, &result);
	*reason = try.beginning == SHEDLOCK_REFUSED ? ShedlockBusyReason(name, &result) : try.reason;
	return try.beginning;
}
