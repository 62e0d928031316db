/*-------------------------------------------------------------------------
 *
 * begin.c
 *	  Begins a run: its tick, its lock, and its entry in the history.
 *
 * They are written in one transaction, or none of them.  The tick is looked at first,
 * because that it is not due is the usual answer, and costs least.  Then, in this
 * order, and neither ever waits: the tick's advisory lock, so that nobody else decides
 * about it, and the lock.  The tick is looked at again as soon as the advisory half is
 * held: the last run may have ended meanwhile, and that end writes the tick before the
 * lock is free.  All three are decided before anything is written, so that a refusal has
 * nothing to undo (I3).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

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
	bool		locked_out;		/* an open transaction claims the tick, or
								 * answers the request */
	bool		tick_in_use;	/* an open transaction has written the tick's
								 * row */
	bool		written;		/* the state of the ticks */
	ShedlockStore ticks;		/* this and the next three: if the run has a
								 * plan */
	ShedlockTick last;			/* as read last */
	TimestampTz now;			/* when that was read */
	ShedlockDue due;			/* by these two */
	ShedlockBeginning beginning;
	const char *reason;			/* NULL: what the tick's row says */
	int64		given_up;		/* last run of a tick that gets no more; or 0 */
} Try;

/*
 * ShedlockAwaitTick - sleep until the tick that a timer firing now is early for
 *
 * The call holds nothing meanwhile, so that nothing starts before its tick and nobody
 * is kept from anything.  It does not sleep if a timeout would end it, or if an older
 * tick is to be made up now.  The sleep ends after SHEDLOCK_EARLY_MAX, whatever becomes
 * of the server's clock.  commit: first commit, because the portal of a CALL has a
 * snapshot; and the sleep takes nothing from the statement_timeout of the command.  Obeys
 * cancels.
 */
void
ShedlockAwaitTick(const ShedlockPlan *plan, const ShedlockName *name, bool commit)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz tick = ShedlockTickOfTimer(&plan->schedule, now);
	int64		give_up = ShedlockSteadyNow() + SHEDLOCK_EARLY_MAX;

	if (tick <= now || transaction_ends_by(tick) ||
		(get_timeout_active(STATEMENT_TIMEOUT) && get_timeout_finish_time(STATEMENT_TIMEOUT) <= tick))
		return;
	if (plan->catch_up_all)
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
	{
		EnsurePortalSnapshotExists();
		ShedlockRestartStatementTimeout();
	}
	/* The server does the work of a CALL, whether its client is there or not. */
	else
		ShedlockCheckClient();
}

/*
 * find_due - find what is due now, from the tick's row as committed now
 */
static void
find_due(Try *try)
{
	ShedlockRereadTick(&try->ticks, &try->run->request.name, &try->last);
	try->now = GetCurrentTimestamp();
	try->due = ShedlockFindDue(&try->last, try->run->plan, try->now);
}

/*
 * set_state - what the tick's row says of the plan and the caller
 */
static void
set_state(ShedlockTick *last, const ShedlockRun *run, const ShedlockDue *due)
{
	const ShedlockPlan *plan = run->plan;

	last->tick = due->tick;
	last->claimed_at = GetCurrentTimestamp();
	last->claimed_by = due->action == SHEDLOCK_REGISTER ? pstrdup("") :
		ShedlockLockedBy(run->request.locked_by, run->token);
	last->token = run->token;
	last->attempt = due->attempt;
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
 * write_state - write what is due to the tick's row, with its advisory lock held
 *
 * Finds it again if another writer has changed the row meanwhile.  Returns true if it
 * was written; try->last stays as it was before.  Returns false if the row is locked
 * for 100 ms, or another action is due after the change.
 */
static bool
write_state(Try *try)
{
	ShedlockAction action = try->due.action;
	int			tries = 0;

	do
	{
		ShedlockTick next = try->last;

		set_state(&next, try->run, &try->due);
		try->written = ShedlockWriteTick(&try->ticks, &try->run->request.name, &next, false);
		if (try->written)
			return true;
		if (!ShedlockAwaitForeignLock(&tries))
			return false;
		find_due(try);
	} while (try->due.action == action);
	return false;
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
log_schedule(const Try *try)
{
	const ShedlockTick *last = &try->last;
	const ShedlockRun *run = try->run;

	if (last->found && last->has_plan && last->has_schedule &&
		!ShedlockSameSchedule(&last->plan.schedule, &run->plan->schedule))
		ereport(LOG,
				(errmsg("schedule of lock \"%s\" changed from \"%s\" to \"%s\"",
						run->request.name.str,
						schedule_text(&last->plan), schedule_text(run->plan))));
}

/*
 * may_begin - is a run still due, and can its tick be claimed? for ShedlockAcquire()
 *
 * Asked with the advisory half held.  A tick whose run is at work is due again as far as
 * its row says, because that run may have died.  If the run has ended after the row was
 * read, the lock is free, and the tick used up.  Another tick can be due by now.
 *
 * A row that an open transaction has written cannot be claimed, and to wait for that with
 * the advisory half held would keep an administrator from it.
 */
static bool
may_begin(void *arg)
{
	Try		   *try = arg;

	find_due(try);
	try->tick_in_use = ShedlockIsBeingChanged(&try->ticks);
	return try->due.action == SHEDLOCK_RUN_TICK && !try->tick_in_use;
}

/*
 * acquire - acquire the lock of the run
 *
 * Returns false with the state SHEDLOCK_FREE if the run is not due any more.  Otherwise
 * as ShedlockAcquire().
 */
static bool
acquire(Try *try, ShedlockResult *result)
{
	ShedlockRun *run = try->run;
	ShedlockStore locks;
	bool		acquired;

	try->tick_in_use = false;
	run->request.confirm = run->plan ? may_begin : NULL;
	run->request.confirm_arg = try;
	ShedlockOpen(&locks, run->request.name.nsp, "shedlock", RowExclusiveLock);
	acquired = ShedlockAcquire(&locks, &run->request, result);
	ShedlockClose(&locks, acquired ? NoLock : RowExclusiveLock);
	if (acquired)
		run->token = result->row.token;
	else if (try->tick_in_use && result->state == SHEDLOCK_FREE)
		result->state = SHEDLOCK_IN_USE;
	return acquired;
}

/*
 * is_at_work - was the lock refused because of the very run of the tick that is due?
 */
static bool
is_at_work(const Try *try, const ShedlockResult *result)
{
	return !try->tick_in_use && try->due.tick == try->last.tick &&
		result->row.token == try->last.token &&
		ShedlockIsHeld(&result->row, &try->run->request.name, GetCurrentTimestamp());
}

/*
 * begin_attempt - acquire the lock, and write that an attempt at a tick begins
 *
 * Not due is also a call for the very tick that is being run, or whose lock is kept
 * by its at-least time.  Errors: 55P03 if the row of the tick is locked for 100 ms, or a
 * writer without the advisory half, like an administrator, has used up the tick.
 */
static ShedlockBeginning
begin_attempt(Try *try, ShedlockResult *result)
{
	ShedlockRun *run = try->run;
	const ShedlockName *name = &run->request.name;
	const ShedlockTick *before = &try->last;
	int			tries = 0;

	ShedlockCheckPromises(&try->ticks);
	while (!acquire(try, result))
	{
		/* The end of another run takes a moment to commit. */
		if (try->tick_in_use && ShedlockAwaitForeignLock(&tries))
			continue;
		if (result->state == SHEDLOCK_FREE)
			return SHEDLOCK_NOT_DUE;
		if (!is_at_work(try, result) && !ShedlockIsKept(name, result))
			return SHEDLOCK_REFUSED;
		if (try->explain)
			try->reason = ShedlockBusyReason(name, result);
		return SHEDLOCK_NOT_DUE;
	}
	if (!write_state(try))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not claim tick of lock \"%s\"", name->str),
				 errdetail("Its row in _shedlock_tick is locked, or was changed meanwhile.")));
	run->tick = try->due.tick;
	run->attempt = try->due.attempt;
	if (before->tick != run->tick && ShedlockGiveUpTick(name, before))
		try->given_up = before->token;
	log_schedule(try);
	return SHEDLOCK_BEGUN;
}

/*
 * register_tick - write that a tick has passed before the job had this schedule
 *
 * Nothing is lost if the row is locked: the next call writes it.  Returns false if
 * another writer has changed the row, and something else is due.
 */
static bool
register_tick(Try *try)
{
	ShedlockCheckPromises(&try->ticks);
	if (!write_state(try))
		return try->due.action == SHEDLOCK_REGISTER;
	if (ShedlockGiveUpTick(&try->run->request.name, &try->last))
		ShedlockTellGaveUp(try->run->request.name.nsp, try->last.token, &try->last);
	log_schedule(try);
	if (try->explain)
		find_due(try);
	return true;
}

/*
 * decide - do what is due; with the tick's advisory lock held
 *
 * A pause is as if nobody had called.
 */
static ShedlockBeginning
decide(Try *try, ShedlockResult *result)
{
	for (;;)
	{
		/* What was read without the lock may have changed. */
		find_due(try);
		if (try->due.action == SHEDLOCK_RUN_TICK)
			return begin_attempt(try, result);
		if (try->due.action == SHEDLOCK_REGISTER)
		{
			ShedlockLookUpRow(&try->run->request.name, &result->row);
			if (result->row.paused_until > GetCurrentTimestamp())
			{
				result->state = SHEDLOCK_PAUSED;
				return SHEDLOCK_REFUSED;
			}
		}
		if (try->due.action == SHEDLOCK_NOTHING || register_tick(try))
			return SHEDLOCK_NOT_DUE;
	}
}

/*
 * try_tick - begin a run of the tick that is due, if one is
 */
static ShedlockBeginning
try_tick(Try *try, ShedlockResult *result)
{
	const ShedlockName *name = &try->run->request.name;
	ShedlockBeginning beginning = SHEDLOCK_NOT_DUE;

	try->locked_out = false;
	ShedlockOpen(&try->ticks, name->nsp, "_shedlock_tick", RowExclusiveLock);
	find_due(try);
	if (try->due.action != SHEDLOCK_NOTHING)
	{
		try->locked_out = !ShedlockLockTick(name);
		if (try->locked_out)
		{
			try->reason = "Its tick is being claimed by an open transaction.";
			result->state = SHEDLOCK_IN_USE;
		}
		else
		{
			beginning = decide(try, result);
			if (!try->written)
				ShedlockUnlockTick(name);
		}
	}

	ShedlockClose(&try->ticks, try->written ? NoLock : RowExclusiveLock);
	return beginning;
}

/*
 * try_once - begin a run, if one is due and its lock is free
 */
static ShedlockBeginning
try_once(Try *try, ShedlockResult *result)
{
	if (try->run->plan)
		return try_tick(try, result);
	return acquire(try, result) ? SHEDLOCK_BEGUN : SHEDLOCK_REFUSED;
}

/*
 * try_request - the same, unless another call with its request begins the run
 *
 * If this call waits, the run of that one may have begun and ended meanwhile.  Their
 * advisory lock has the role and the request in its key, with a byte between them that no
 * name has.
 */
static ShedlockBeginning
try_request(Try *try, ShedlockResult *result)
{
	const ShedlockRun *run = try->run;
	ShedlockBeginning beginning = SHEDLOCK_NOT_DUE;
	ShedlockHistoryRun past;
	ShedlockName both;
	char	   *role = psprintf("%u", GetUserId());

	both.str = psprintf("%s%c%s", role, '\0', run->client_request);
	both.len = (int) (strlen(role) + 1 + strlen(run->client_request));
	ShedlockSetTag(&both.tag, SHEDLOCK_CLASS_TICK, ShedlockKey(both.str, both.len));
	try->locked_out = !ShedlockLockTick(&both);
	if (try->locked_out)
	{
		try->reason = "Its request is being answered in an open transaction.";
		result->state = SHEDLOCK_IN_USE;
		return SHEDLOCK_NOT_DUE;
	}
	ShedlockHistoryFind(&run->request.name, run->client_request, &past);
	if (past.token != 0)
		try->reason = "This request has begun a run.";
	else
		beginning = try_once(try, result);
	if (beginning != SHEDLOCK_BEGUN && !try->written)
		ShedlockUnlockTick(&both);
	return beginning;
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

	try->reason = NULL;
	if (run->client_request)
		try->beginning = try_request(try, result);
	else
		try->beginning = try_once(try, result);

	if (try->beginning == SHEDLOCK_BEGUN)
		ShedlockHistoryStart(&run->request.name, &result->row, run->command, run->tick,
							 run->attempt, run->client_request);
	return try->beginning != SHEDLOCK_REFUSED && !try->locked_out;
}

/*
 * tell_begin - tell of a run that has begun, and of one before it that is lost
 *
 * lost_run: its token, or 0.
 */
static void
tell_begin(const Try *try, int64 lost_run)
{
	Oid			nsp = try->run->request.name.nsp;
	const ShedlockTick *before = try->run->plan ? &try->last : NULL;

	if (lost_run != 0)
		ShedlockTellEnd(nsp, lost_run, before);
	if (try->given_up != 0 && try->given_up != lost_run)
		ShedlockTellGaveUp(nsp, try->given_up, before);
	ShedlockTellBegin(nsp, try->run->token);
}

/*
 * ShedlockBeginRun - begin a run, if one is due and its lock is free
 *
 * wait: how long to wait for the lock, or NULL.  *reason: why it has not begun; only if
 * explain is set when it is not due, because finding that out costs more than the
 * answer.  If it has begun, the caller commits.  Errors: 55P03 if the row of its tick
 * is locked, or lock_timeout ends the wait.  Locks: the tick's advisory lock, that of its
 * request and the advisory half, exclusive, to the end of the transaction if it has begun.
 */
ShedlockBeginning
ShedlockBeginRun(ShedlockRun *run, const Interval *wait, bool explain, const char **reason)
{
	Try			try = {.run = run,.explain = explain};
	ShedlockResult result = {0};
	const ShedlockName *name = &run->request.name;

	/* Whether a run is due is not worth a wait in the line. */
	if (!try_to_begin(&try, &result) && wait)
		(void) ShedlockWaitFor(name, 1, wait, try_to_begin, &try, &result);
	if (try.beginning == SHEDLOCK_BEGUN)
		tell_begin(&try, result.lost_run);

	/* A wait may have ended in another refusal than that of its last acquire. */
	*reason = try.reason;
	if (try.beginning == SHEDLOCK_REFUSED)
		*reason = try.tick_in_use && result.state == SHEDLOCK_IN_USE ?
			"The row of its tick is being changed by an open transaction." :
			ShedlockBusyReason(name, &result);
	else if (try.beginning == SHEDLOCK_NOT_DUE && explain && !try.reason)
		*reason = ShedlockTickReason(name, &try.last, run->plan, try.now);
	return try.beginning;
}
