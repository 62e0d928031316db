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

#include "access/xact.h"
#include "job/job.h"
#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

const char *const shedlock_beginning_names[] = {
	[SHEDLOCK_BEGUN] = "begun",
	[SHEDLOCK_NOT_DUE] = "not due",
	[SHEDLOCK_BUSY] = "held",
	[SHEDLOCK_ON_HOLD] = "paused",
	[SHEDLOCK_CLAIMED] = "claimed",
	[SHEDLOCK_REPEATED] = "repeated",
};

/* What one try of a call that may wait found. */
typedef struct Try
{
	ShedlockRun *run;
	TimestampTz give_up;		/* the end of its wait; DT_NOBEGIN: it does
								 * not wait */
	bool		hasty;			/* nor for an open transaction that has
								 * written the tick's row */
	bool		knows_job;		/* the next try need not read it */
	ShedlockJob job;
	bool		tick_in_use;	/* an open transaction has written the tick's
								 * row */
	bool		written;		/* the state of the ticks */
	ShedlockStore ticks;		/* this and the next three: if it has a job */
	ShedlockTick last;			/* as read last */
	TimestampTz now;			/* when that was read */
	ShedlockDue due;			/* by these two */
	const char *claimed;		/* what an open transaction has; or NULL */
	ShedlockState refused_for;	/* if not that */
	ShedlockBeginning beginning;
	bool		is_quiet;		/* as in ShedlockAnswer */
	int64		given_up;		/* last run of a tick that gets no more; or 0 */
} Try;

/*
 * look_up_job - read what is declared now
 */
static void
look_up_job(Try *try)
{
	if (!try->knows_job)
		ShedlockLookUpJob(&try->run->request.name, &try->job);
	try->knows_job = false;
}

/*
 * await_tick - sleep until the tick that a timer firing now is a little early for
 *
 * The call holds nothing meanwhile, so that nothing starts before its tick and nobody
 * is kept from anything.  It does not sleep if a timeout would end it, or if an older
 * tick is to be made up now.  The sleep ends after SHEDLOCK_RUN_EARLY, whatever becomes
 * of the server's clock.  A CALL commits first, because its portal has a snapshot; and the
 * sleep takes nothing from the statement_timeout of its command.  Obeys cancels.
 */
static void
await_tick(Try *try)
{
	bool		commit = try->run->request.kind == SHEDLOCK_RUN;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz tick = ShedlockTickOfTimer(&try->job.schedule, now, SHEDLOCK_RUN_EARLY);
	int64		give_up = ShedlockSteadyNow() + SHEDLOCK_RUN_EARLY;

	if (tick <= now || tick <= try->job.since || transaction_ends_by(tick) ||
		(get_timeout_active(STATEMENT_TIMEOUT) && get_timeout_finish_time(STATEMENT_TIMEOUT) <= tick))
		return;
	if (try->job.catch_up_all)
	{
		ShedlockLookUpTick(&try->run->request.name, &try->last);
		if (ShedlockFindDue(&try->last, &try->job, now).attempt > 0)
			return;
	}
	try->knows_job = false;
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
 * cut_to_cap - a duration of the job, or the caller's cap if that is shorter; or NULL
 */
static Interval *
cut_to_cap(Interval *span)
{
	if (span && ShedlockIsOverCap(span, shedlock_max_lock_at_most_for))
		return ShedlockIntervalSetting(shedlock_max_lock_at_most_for);
	return span;
}

/*
 * shorter - the shorter one of a duration and its limit; NULL: none
 */
static Interval *
shorter(Interval *span, Interval *limit)
{
	if (span && limit && ShedlockIntervalMicroseconds(limit) < ShedlockIntervalMicroseconds(span))
		return limit;
	return span;
}

/*
 * set_times - how long the lock may be held: what the call says, or the job, or the setting
 *
 * The lease of a run outside the database is no longer than the run may take.  Nor is the time
 * that the lock of any run is kept: a command would be cancelled only when that is over.
 */
static void
set_times(ShedlockRun *run, const ShedlockJob *job)
{
	ShedlockRequest *request = &run->request;
	Interval   *longest = cut_to_cap(job->at_most);
	Interval   *shortest = cut_to_cap(job->at_least);

	if (shortest == NULL)
		shortest = ShedlockIntervalSetting(shedlock_default_lock_at_least_for);
	request->at_least = run->at_least ? run->at_least : shortest;
	request->at_most = run->at_most ? run->at_most : longest;
	if (request->kind == SHEDLOCK_LEASED_RUN)
	{
		if (run->at_most == NULL)
			request->at_most = ShedlockIntervalSetting(shedlock_default_lock_at_most_for);
		request->at_most = shorter(request->at_most, longest);
	}
	else
		longest = request->at_most;
	request->at_least = shorter(request->at_least, longest);
}

/*
 * find_due - find what is due now, from the tick's row as committed now
 *
 * A CALL that has made a run makes no other one of the same tick: one that shedlock_again()
 * allows in the command is for the next call.
 */
static void
find_due(Try *try)
{
	ShedlockRereadTick(&try->ticks, &try->run->request.name, &try->last);
	try->now = GetCurrentTimestamp();
	try->due = ShedlockFindDue(&try->last, &try->job, try->now);
	if (try->run->attempt > 0 && try->due.tick == try->run->tick)
		try->due.attempt = 0;
}

/*
 * gave_up_at - when a tick had no attempt left, after which none was skipped or succeeded
 */
static TimestampTz
gave_up_at(const ShedlockTick *last, const Try *try)
{
	if (last->tick == try->due.tick)
		return last->gave_up_at;
	if (ShedlockHasSkipped(last, &try->job) && last->skipped < try->due.tick)
		return DT_NOBEGIN;
	if (last->gave_up_at >= try->job.created_at || !ShedlockGivesUp(last, &try->job))
		return last->gave_up_at;
	/* The clock may have been set back since the job was created. */
	return Max(try->now, try->job.created_at);
}

/*
 * set_state - what the tick's row says of a run that begins
 */
static void
set_state(ShedlockTick *last, const ShedlockRun *run, const Try *try)
{
	last->gave_up_at = gave_up_at(last, try);
	last->tick = try->due.tick;
	last->claimed_at = GetCurrentTimestamp();
	last->claimed_by = ShedlockLockedBy(run->request.locked_by, run->token);
	last->token = run->token;
	last->attempt = try->due.attempt;
	last->done = false;
	last->again_at = DT_NOBEGIN;
	last->period = NULL;

	/* Nobody writes the end of an attempt that dies.  The first one is free. */
	last->retry_at = try->due.attempt > 1 ?
		ShedlockRetryAt(last->claimed_at, try->job.backoff, try->due.attempt) : DT_NOBEGIN;
}

/*
 * write_state - write what is due to the tick's row, with its advisory lock held
 *
 * Finds it again if another writer has changed the row meanwhile.  Returns true if it
 * was written; try->last stays as it was before.  Returns false if the row is locked
 * for 100 ms, or nothing is due after the change.
 */
static bool
write_state(Try *try)
{
	int			tries = 0;

	do
	{
		ShedlockTick next = try->last;

		set_state(&next, try->run, try);
		try->written = ShedlockWriteTick(&try->ticks, &next, false);
		if (try->written)
			return true;
		if (!ShedlockAwaitForeignLock(&tries))
			return false;
		find_due(try);
	} while (try->due.attempt > 0);
	return false;
}

/*
 * may_begin - is a run still due, and can its tick be claimed? for ShedlockAcquire()
 *
 * Asked with the advisory half held.  A tick whose run is at work is due again as far as
 * its row says, because that run may have died.  If the run has ended after the row was
 * read, the lock is free, and the tick used up.  Another tick can be due by now.
 *
 * A row that an open transaction has written, also the first one of the name, cannot be
 * claimed, and to wait for that with the advisory half held would keep an administrator from
 * it.
 */
static bool
may_begin(void *arg)
{
	Try		   *try = arg;

	find_due(try);
	try->tick_in_use = ShedlockIsBeingChanged(&try->ticks);
	return try->due.attempt > 0 && !try->tick_in_use;
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
	run->request.confirm = try->job.found ? may_begin : NULL;
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
 * refuse - why the lock was refused
 */
static ShedlockBeginning
refuse(Try *try, const ShedlockResult *result)
{
	if (try->tick_in_use)
	{
		try->claimed = "The row of its tick is being changed by an open transaction.";
		return SHEDLOCK_CLAIMED;
	}
	try->refused_for = ShedlockRefusedFor(&try->run->request.name, result);
	switch (try->refused_for)
	{
		case SHEDLOCK_PAUSED:
			return SHEDLOCK_ON_HOLD;
		case SHEDLOCK_IN_USE:
		case SHEDLOCK_UNCOMMITTED:
			return SHEDLOCK_CLAIMED;
		case SHEDLOCK_KEPT:
			try->is_quiet = try->job.found;
			return SHEDLOCK_BUSY;
		default:
			/* the very run of the tick that is due? */
			try->is_quiet = try->job.found && try->due.tick == try->last.tick &&
				result->row.token == try->last.token &&
				ShedlockIsHeld(&result->row, &try->run->request.name, GetCurrentTimestamp());
			return SHEDLOCK_BUSY;
	}
}

/*
 * begin_attempt - acquire the lock, and write that an attempt at a tick begins
 *
 * Errors: 55P03 if the row of the tick is locked for 100 ms, or a writer without the
 * advisory half, like an administrator, has used up the tick.
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
		if (try->tick_in_use && !try->hasty && ShedlockAwaitForeignLock(&tries))
			continue;
		return result->state == SHEDLOCK_FREE ? SHEDLOCK_NOT_DUE : refuse(try, result);
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
	return SHEDLOCK_BEGUN;
}

/*
 * try_tick - begin a run of the tick that is due, if one is
 */
static ShedlockBeginning
try_tick(Try *try, ShedlockResult *result)
{
	const ShedlockName *name = &try->run->request.name;
	ShedlockBeginning beginning = SHEDLOCK_NOT_DUE;

	ShedlockOpen(&try->ticks, name->nsp, "_shedlock_tick", RowExclusiveLock);
	find_due(try);
	if (try->due.attempt > 0)
	{
		if (ShedlockLockTick(name))
		{
			/* What was read without the lock may have changed. */
			find_due(try);
			if (try->due.attempt > 0)
				beginning = begin_attempt(try, result);
			if (!try->written)
				ShedlockUnlockTick(name);
		}
		else
		{
			try->claimed = "Its tick is being claimed by an open transaction.";
			result->state = SHEDLOCK_IN_USE;
			beginning = SHEDLOCK_CLAIMED;
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
	look_up_job(try);
	set_times(try->run, &try->job);
	if (try->job.found)
		return try_tick(try, result);

	/* A CALL does not go on if its command has forgotten the job. */
	if (try->run->attempt > 0 || try->run->needs_job)
	{
		ShedlockLookUpTick(&try->run->request.name, &try->last);
		try->now = GetCurrentTimestamp();
		return SHEDLOCK_NOT_DUE;
	}
	return acquire(try, result) ? SHEDLOCK_BEGUN : refuse(try, result);
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
	ShedlockBeginning beginning = SHEDLOCK_REPEATED;
	ShedlockHistoryRun past;
	ShedlockName both;
	char	   *role = psprintf("%u", GetUserId());

	both.str = psprintf("%s%c%s", role, '\0', run->client_request);
	both.len = (int) (strlen(role) + 1 + strlen(run->client_request));
	ShedlockSetTag(&both.tag, SHEDLOCK_CLASS_TICK, ShedlockKey(both.str, both.len));
	if (!ShedlockLockTick(&both))
	{
		/* What the try before has read is gone. */
		look_up_job(try);
		ShedlockLookUpTick(&run->request.name, &try->last);
		try->claimed = "Its request is being answered in an open transaction.";
		result->state = SHEDLOCK_IN_USE;
		return SHEDLOCK_CLAIMED;
	}
	ShedlockHistoryFindRequest(run->request.name.nsp, run->client_request, &past);
	if (past.token == 0)
		beginning = try_once(try, result);
	if (beginning != SHEDLOCK_BEGUN && !try->written)
		ShedlockUnlockTick(&both);
	return beginning;
}

/*
 * next_at - when a call of this name can succeed; DT_NOEND if that cannot be foreseen
 *
 * If nothing was due, a tick may have come since.
 */
static TimestampTz
next_at(const Try *try)
{
	const ShedlockName *name = &try->run->request.name;
	ShedlockRow row;

	ShedlockLookUpRow(name, &row);
	return ShedlockNextAt(name, &row, &try->last, &try->job,
						  try->beginning == SHEDLOCK_NOT_DUE ? try->now : GetCurrentTimestamp());
}

/*
 * is_over - is there nothing more to wait for?
 *
 * A tick is worth the wait only if it comes before the wait ends; and the run of the tick
 * that is due is at work.
 */
static bool
is_over(const Try *try, ShedlockResult *result)
{
	if (try->beginning == SHEDLOCK_BEGUN || try->beginning == SHEDLOCK_REPEATED || try->is_quiet)
		return true;
	result->look_at = DT_NOEND;
	if (try->beginning != SHEDLOCK_NOT_DUE)
		return false;
	if (try->give_up != DT_NOBEGIN)
		result->look_at = ShedlockNextTime(&try->last, &try->job, GetCurrentTimestamp());
	return result->look_at > try->give_up;
}

/*
 * try_to_begin - begin a run, for ShedlockWaitFor()
 */
static bool
try_to_begin(void *arg, ShedlockResult *result)
{
	Try		   *try = arg;
	ShedlockRun *run = try->run;

	/* if nothing is due, nobody looks at the lock: an old look says nothing */
	memset(result, 0, sizeof(*result));
	try->claimed = NULL;
	try->is_quiet = false;
	if (run->client_request)
		try->beginning = try_request(try, result);
	else
		try->beginning = try_once(try, result);

	if (try->beginning == SHEDLOCK_BEGUN)
		ShedlockHistoryStart(&run->request.name, &result->row, run->command, run->tick,
							 run->attempt, run->client_request,
							 run->request.kind == SHEDLOCK_LEASED_RUN ? cut_to_cap(try->job.at_most) : NULL);
	return is_over(try, result);
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
	const ShedlockTick *before = try->job.found ? &try->last : NULL;

	if (lost_run != 0)
		ShedlockTellEnd(nsp, lost_run, before);
	if (try->given_up != 0 && try->given_up != lost_run)
		ShedlockTellRun("gave up", false, nsp, try->given_up, before);
	ShedlockTellRun("started", true, nsp, try->run->token, NULL);
}

/*
 * reason - why no run has begun, in words
 */
static const char *
reason(const Try *try, const ShedlockResult *result)
{
	if (try->claimed)
		return try->claimed;
	if (try->beginning == SHEDLOCK_NOT_DUE)
		return ShedlockTickReason(&try->run->request.name, &try->last, &try->job, try->now);
	if (try->beginning == SHEDLOCK_REPEATED)
		return "This request has begun a run.";
	return ShedlockStateReason(&result->row, try->refused_for);
}

/*
 * begin - begin a run, if one is due and its lock is free, or becomes so during the wait
 *
 * explain: also say why it is not due, and when to come back, because finding that out costs
 * more than the answer.
 */
static void
begin(Try *try, const Interval *wait, bool explain, ShedlockAnswer *answer)
{
	ShedlockResult result = {0};
	const ShedlockName *name = &try->run->request.name;

	if (wait)
		try->give_up = GetCurrentTimestamp() + ShedlockIntervalMicroseconds(wait);

	/* Whether a run is due is not worth a wait in the line. */
	if (!try_to_begin(try, &result) && wait)
		(void) ShedlockWaitFor(name, 1, wait, try_to_begin, try, &result);
	answer->beginning = try->beginning;

	/*
	 * A caller that claims the tick in an open transaction is taken to run
	 * it.
	 */
	answer->is_quiet = try->is_quiet || (try->claimed && !try->tick_in_use);
	answer->reason = NULL;
	answer->next_at = DT_NOEND;
	if (try->beginning == SHEDLOCK_BEGUN)
	{
		answer->next_at = Max(result.row.lock_until, result.row.keep_until);
		tell_begin(try, result.lost_run);
	}
	else if (explain || !(try->beginning == SHEDLOCK_NOT_DUE || try->is_quiet))
		answer->reason = reason(try, &result);
	if (explain && try->beginning != SHEDLOCK_BEGUN && try->beginning != SHEDLOCK_REPEATED)
		answer->next_at = next_at(try);
}

/*
 * ShedlockBeginRun - begin a run, if one is due and its lock is free
 *
 * wait: how long to wait for the lock or the tick, or NULL.  explain: as for begin().  A call
 * that comes a little early waits for its tick.  If the run has begun, the caller commits.
 * Errors: 55P03 if the row of its tick is locked, or lock_timeout ends the wait.  Locks: the
 * tick's advisory lock, that of its request and the advisory half, exclusive, to the end of the
 * transaction if it has begun.
 */
void
ShedlockBeginRun(ShedlockRun *run, const Interval *wait, bool explain, ShedlockAnswer *answer)
{
	Try			try = {.run = run,.give_up = DT_NOBEGIN};

	look_up_job(&try);
	try.knows_job = true;

	/* A CALL that has made a run was not fired for the tick that comes. */
	if (try.job.is_readable && run->attempt == 0)
		await_tick(&try);

	/* A role's default_transaction_read_only is meant for its own work. */
	if (run->request.kind == SHEDLOCK_RUN)
		XactReadOnly = false;
	begin(&try, wait, explain, answer);
}

/*
 * ShedlockTryRun - as ShedlockBeginRun(), but wait for no tick
 *
 * A caller that does not ask for the reason has other names to try: for it this does not wait
 * for an open transaction that has written the tick's row, either.
 */
void
ShedlockTryRun(ShedlockRun *run, bool explain, ShedlockAnswer *answer)
{
	Try			try = {.run = run,.give_up = DT_NOBEGIN,.hasty = !explain};

	begin(&try, NULL, explain, answer);
}
