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
	bool		tick_locked;	/* an open transaction claims it, or answers
								 * the request */
	bool		paused;			/* the job, as the last try found it */
	bool		follows;		/* the last try was refused because of the
								 * last run with a tick */
	int			awaited;		/* its permit, or 0: not one of these */
	ShedlockResult pause;		/* of a job with permits, if it was paused
								 * meanwhile */
	bool		written;		/* the state of the ticks */
	ShedlockStore ticks;		/* this and the next three: if the run has a
								 * plan */
	ShedlockTick last;			/* as read last */
	TimestampTz now;			/* when that was read */
	ShedlockDue due;			/* by these two */
	ShedlockBeginning beginning;
	const char *reason;
	int64		given_up;		/* last run of a tick that gets no more; or 0 */
	bool	   *is_free;		/* while it waits for a permit: as for
								 * ShedlockWaitFor() */
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
 * job_is_paused - as far as the row of its name says, also if that lock is held
 *
 * Sets *result to a refusal if it is.
 */
static bool
job_is_paused(Try *try, ShedlockResult *result)
{
	ShedlockLookUpRow(&try->run->job, &result->row);
	try->paused = result->row.found && result->row.paused_until > GetCurrentTimestamp();
	if (try->paused)
		result->verdict = SHEDLOCK_PAUSED;
	return try->paused;
}

/*
 * find_due - find what is due now, from the tick's row as committed now
 */
static void
find_due(Try *try)
{
	ShedlockRereadTick(&try->ticks, &try->run->job, &try->last);
	try->now = GetCurrentTimestamp();
	try->due = ShedlockFindDue(&try->last, try->run->plan, try->now);
}

/*
 * not_due - the answer that no run is due, with the reason if the caller wants it
 */
static ShedlockBeginning
not_due(Try *try)
{
	if (try->explain)
		try->reason = ShedlockTickReason(&try->run->job, &try->last, try->run->plan,
										 try->now);
	return SHEDLOCK_NOT_DUE;
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
		try->written = ShedlockWriteTick(&try->ticks, &try->run->job, &next, false);
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
						run->job.str,
						schedule_text(&last->plan), schedule_text(run->plan))));
}

/*
 * confirm - may the run still begin? for ShedlockAcquire()
 *
 * A tick whose run is at work is due again as far as its row says, because that run may
 * have died.  If the run has ended after the row was read, the lock is free, and the
 * tick used up.  Another tick can be due by now.  The pause of a job with permits is in a
 * row that the lock does not guard.
 */
static bool
confirm(void *arg)
{
	Try		   *try = arg;

	if (try->run->has_permits && job_is_paused(try, &try->pause))
		return false;
	if (try->run->plan == NULL)
		return true;
	find_due(try);
	return try->due.action == SHEDLOCK_RUN_TICK;
}

/*
 * acquire_lock - acquire one of the locks that a run may have
 *
 * Returns false with the verdict SHEDLOCK_FREE if the run may not begin any more.
 */
static bool
acquire_lock(Try *try, ShedlockStore *locks, int which, ShedlockResult *result)
{
	ShedlockRun *run = try->run;

	run->request.name = run->locks[which];
	run->request.confirm = run->plan || run->has_permits ? confirm : NULL;
	run->request.confirm_arg = try;
	if (!ShedlockAcquire(locks, &run->request, result))
		return false;
	run->started_at = result->row.locked_at;
	run->token = result->row.token;
	run->permit = run->has_permits ? which + 1 : 0;
	return true;
}

/*
 * is_last_run - is a refused lock that of the last run with a tick?
 */
static bool
is_last_run(const Try *try, const ShedlockResult *result)
{
	const ShedlockRow *row = &result->row;

	return try->last.token != 0 && row->found && row->token == try->last.token &&
		result->verdict != SHEDLOCK_PAUSED;
}

/*
 * is_run_of - is a refused lock held by a run of the very tick that is due?
 */
static bool
is_run_of(const Try *try, const ShedlockResult *result)
{
	return try->due.tick == try->last.tick && is_last_run(try, result);
}

/*
 * follows_last_run - must the last run end before one of the tick that is due begins?
 *
 * It must if it is of the same tick, or if ticks are made up one after the other.
 */
static bool
follows_last_run(const Try *try)
{
	return try->run->plan && try->last.token != 0 &&
		(try->due.tick == try->last.tick || try->run->plan->catch_up == SHEDLOCK_CATCH_UP_ALL);
}

/*
 * find_last_run - find the lock of the last run with a tick among those of this one
 *
 * Returns -1 if it is none of these.
 */
static int
find_last_run(const Try *try, ShedlockStore *locks)
{
	for (int i = 0; i < try->run->nlocks && try->last.token != 0; i++)
	{
		ShedlockRow row;

		ShedlockReadRow(locks, try->run->locks[i].str, &row);
		if (row.found && row.token == try->last.token)
			return i;
	}
	return -1;
}

/*
 * last_run_lives - is the last run with a tick at work, with a lock that is none of these?
 *
 * Its caller has more permits than this one, or none.  Sets *result as its lock would.
 */
static bool
last_run_lives(Try *try, ShedlockResult *result)
{
	const ShedlockName *job = &try->run->job;
	ShedlockName *lock = &try->run->request.name;
	ShedlockLogged logged;

	ShedlockHistoryRead(job->nsp, try->last.token, &logged);
	if (logged.token == 0 || strcmp(logged.outcome, "running") != 0)
		return false;
	ShedlockMakeLockName(job, logged.permit, lock);
	ShedlockLookUpRow(lock, &result->row);
	result->verdict = ShedlockLook(&result->row, lock, GetCurrentTimestamp());
	return result->verdict == SHEDLOCK_HELD && is_last_run(try, result);
}

/*
 * acquire_permit - acquire one of the permits of the job
 *
 * first: number of the permit that is tried first, or -1.  The others are tried in random
 * order.  Returns false as acquire_lock(), with the refusal that ends first.
 */
static bool
acquire_permit(Try *try, ShedlockStore *locks, int first, ShedlockResult *result)
{
	int			n = try->run->nlocks;
	int		   *order = palloc((Size) n * sizeof(int));

	ShedlockShuffle(order, n);
	for (int i = 0; i < n && first >= 0; i++)
	{
		if (order[i] == first)
		{
			order[i] = order[0];
			order[0] = first;
		}
	}
	for (int i = 0; i < n; i++)
	{
		ShedlockResult one = {0};
		bool		acquired;

		CHECK_FOR_INTERRUPTS();
		acquired = acquire_lock(try, locks, order[i], &one);
		if (acquired || one.verdict == SHEDLOCK_FREE)
		{
			*result = try->paused ? try->pause : one;
			return acquired;
		}
		if (follows_last_run(try) && is_last_run(try, &one))
		{
			try->follows = true;
			try->awaited = order[i] + 1;
			*result = one;
			return false;
		}
		ShedlockKeepSoonest(result, &one, i == 0);
	}
	return false;
}

/*
 * acquire_some - acquire the lock of a run, or one of its permits; the table is open
 *
 * The lock of the last run with a tick is tried first: if that run has died, it is logged
 * as lost; if it is at work, and of the same tick, this one is not due.
 */
static bool
acquire_some(Try *try, ShedlockStore *locks, ShedlockResult *result)
{
	bool		has_permits = try->run->has_permits;
	int			last_run = -1;

	if (has_permits && job_is_paused(try, result))
		return false;
	if (has_permits || follows_last_run(try))
		last_run = find_last_run(try, locks);
	try->follows = last_run < 0 && follows_last_run(try) && last_run_lives(try, result);
	if (try->follows)
		return false;
	return has_permits ? acquire_permit(try, locks, last_run, result) :
		acquire_lock(try, locks, 0, result);
}

/*
 * acquire - acquire the lock of a run, or one of its permits
 *
 * Returns false as acquire_lock().
 */
static bool
acquire(Try *try, ShedlockResult *result)
{
	ShedlockStore locks;
	bool		acquired;

	ShedlockOpen(&locks, try->run->job.nsp, "shedlock");
	acquired = acquire_some(try, &locks, result);
	if (acquired)
		ShedlockClose(&locks);
	else
		ShedlockCloseUnused(&locks);
	return acquired;
}

/*
 * is_given_up - does the run that has begun end the attempts at the tick before?
 *
 * With permits, the last one of these may be at work.  If it fails, or is found to be lost,
 * that is noted then.
 */
static bool
is_given_up(const ShedlockRun *run, const ShedlockTick *before)
{
	ShedlockLogged logged;

	if (!before->found || before->done || before->token == 0 || before->tick == run->tick)
		return false;
	if (!run->has_permits)
		return true;
	ShedlockHistoryRead(run->job.nsp, before->token, &logged);
	return logged.token != 0 && strcmp(logged.outcome, "running") != 0;
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
	const ShedlockName *name = &run->job;
	const ShedlockTick *before = &try->last;

	ShedlockCheckPromises(&try->ticks);
	if (!acquire(try, result))
	{
		if (result->verdict == SHEDLOCK_FREE)
			return not_due(try);
		if (!is_run_of(try, result) &&
			(run->has_permits || !ShedlockIsKept(&run->request.name, result)))
			return SHEDLOCK_REFUSED;
		if (try->explain)
			try->reason = ShedlockBusyReason(&run->request.name, result);
		return SHEDLOCK_NOT_DUE;
	}
	if (!write_state(try))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not claim tick of lock \"%s\"", name->str),
				 errdetail("Its row in shedlock_tick is locked, or was changed meanwhile.")));
	run->tick = try->due.tick;
	run->attempt = try->due.attempt;
	if (is_given_up(run, before) && ShedlockHistoryGaveUp(name, before->token))
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
		if (try->due.action == SHEDLOCK_REGISTER && job_is_paused(try, result))
			return SHEDLOCK_REFUSED;
		if (try->due.action == SHEDLOCK_NOTHING || register_tick(try))
			return not_due(try);
	}
}

/*
 * try_tick - begin a run of the tick that is due, if one is
 */
static ShedlockBeginning
try_tick(Try *try, ShedlockResult *result)
{
	const ShedlockName *name = &try->run->job;
	ShedlockBeginning beginning = SHEDLOCK_NOT_DUE;

	try->tick_locked = false;
	ShedlockOpen(&try->ticks, name->nsp, "shedlock_tick");
	find_due(try);
	if (try->due.action == SHEDLOCK_NOTHING)
		beginning = not_due(try);
	else if (ShedlockLockTick(name))
	{
		beginning = decide(try, result);
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
		ShedlockClose(&try->ticks);
	else
		ShedlockCloseUnused(&try->ticks);
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
	ShedlockHistoryFindRequest(&run->job, run->client_request, &logged);
	return logged.token != 0;
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
 * That call and this one could have different permits.  Their advisory lock has the name
 * of the job and the request in its key, with a byte between them that no name has.
 */
static ShedlockBeginning
try_request(Try *try, ShedlockResult *result)
{
	const ShedlockRun *run = try->run;
	ShedlockBeginning beginning = SHEDLOCK_NOT_DUE;
	ShedlockName both;

	both.str = psprintf("%s%c%s", run->job.str, '\0', run->client_request);
	both.len = run->job.len + 1 + (int) strlen(run->client_request);
	ShedlockSetTag(&both.tag, SHEDLOCK_CLASS_TICK, ShedlockKey(both.str, both.len));
	try->tick_locked = !ShedlockLockTick(&both);
	if (try->tick_locked)
	{
		try->reason = "Its request is being answered in an open transaction.";
		result->verdict = SHEDLOCK_BUSY;
		return SHEDLOCK_NOT_DUE;
	}
	if (!was_requested(run))
		beginning = try_once(try, result);
	if (beginning != SHEDLOCK_BEGUN && !try->written)
		ShedlockUnlockTick(&both);
	return beginning;
}

/*
 * note_free - note what the next try waits for: one of the permits, that of the last run,
 * or the end of the pause
 */
static void
note_free(Try *try)
{
	try->is_free[0] = !try->paused;
	for (int i = 1; i <= try->run->nlocks; i++)
		try->is_free[i] = try->paused || (try->awaited != 0 && i != try->awaited);
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

	try->paused = try->follows = false;
	try->awaited = 0;
	if (run->has_permits && run->client_request)
		try->beginning = try_request(try, result);
	else
		try->beginning = try_once(try, result);

	if (try->beginning == SHEDLOCK_BEGUN)
		ShedlockHistoryStart(&run->job, &result->row, run->command, run->tick,
							 run->attempt, run->permit, run->client_request);
	if (try->is_free)
		note_free(try);
	return (try->beginning != SHEDLOCK_REFUSED && !try->tick_locked) || was_requested(run);
}

/*
 * give_up_lost - note that no attempt follows a run that is lost, if a later tick has come
 *
 * With permits, a run of that tick may have begun while the lost one was at work.  The lost
 * run may be one of another job, whose lock has the name of a permit.
 */
static void
give_up_lost(Oid nsp, int64 lost_run)
{
	ShedlockLogged logged;
	ShedlockName job;
	ShedlockTick last;

	ShedlockHistoryRead(nsp, lost_run, &logged);
	if (logged.token == 0 || logged.attempt == 0 || logged.permit == 0)
		return;
	ShedlockMakeName(nsp, logged.name, &job);
	ShedlockLookUpTick(&job, &last);
	if (last.found && last.tick != logged.tick)
		(void) ShedlockHistoryGaveUp(&job, lost_run);
}

/*
 * tell_begin - tell of a run that has begun, and of one before it that is lost
 *
 * lost_run: its token, or 0.
 */
static void
tell_begin(const Try *try, int64 lost_run)
{
	Oid			nsp = try->run->job.nsp;
	const ShedlockTick *before = try->run->plan ? &try->last : NULL;

	if (lost_run != 0)
		ShedlockTellEnd(nsp, lost_run, before);
	if (try->given_up != 0 && try->given_up != lost_run)
		ShedlockTellGaveUp(nsp, try->given_up, before);
	ShedlockTellBegin(nsp, try->run->token);
}

/*
 * busy_reason - why a run is refused
 */
static const char *
busy_reason(const Try *try, const ShedlockResult *result)
{
	const ShedlockRun *run = try->run;

	if (try->follows)
		return psprintf("It makes up one tick after the other, and a run of tick %s is at work.",
						ShedlockTimeString(try->last.tick));
	if (run->has_permits && !try->paused)
		return psprintf("None of its permits is free; there are %d.", run->nlocks);
	return ShedlockBusyReason(&run->request.name, result);
}

/*
 * wait_to_begin - try to begin, and wait for the lock or permit at most that long
 *
 * Who waits for a job that is paused waits for the job's own lock.
 */
static void
wait_to_begin(Try *try, const Interval *wait, ShedlockResult *result)
{
	ShedlockRun *run = try->run;
	ShedlockName *names;

	if (!run->has_permits)
	{
		(void) ShedlockWaitFor(run->locks, 1, NULL, wait, try_to_begin, try, result);
		return;
	}
	names = palloc((Size) (run->nlocks + 1) * sizeof(ShedlockName));
	try->is_free = palloc((Size) (run->nlocks + 1) * sizeof(bool));
	note_free(try);
	names[0] = run->job;
	memcpy(names + 1, run->locks, (Size) run->nlocks * sizeof(ShedlockName));
	(void) ShedlockWaitFor(names, run->nlocks + 1, try->is_free, wait, try_to_begin, try, result);
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
	Try			try = {.run = run};
	ShedlockResult result = {0};

	try.explain = explain;

	/* Whether a run is due is not worth a wait in the line. */
	if (!try_to_begin(&try, &result) && wait)
		wait_to_begin(&try, wait, &result);
	if (try.beginning == SHEDLOCK_BEGUN && result.lost_run != 0)
		give_up_lost(run->job.nsp, result.lost_run);
	if (try.beginning == SHEDLOCK_BEGUN)
		tell_begin(&try, result.lost_run);
	*reason = try.beginning == SHEDLOCK_REFUSED ? busy_reason(&try, &result) : try.reason;
	return try.beginning;
}
