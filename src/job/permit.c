/*-------------------------------------------------------------------------
 *
 * permit.c
 *	  Acquires the lock of a run: that of its job, or one of its permits.
 *
 * Permit n of a job is a lock like any other, of the name job/n.  What the lock of its own
 * name would do for a job without permits is asked for here:
 *
 * A pause of the job is in the row of its own name, which no permit guards.  It is read
 * with the advisory half of the permit held, so that no run begins after the commit of the
 * pause.
 *
 * A tick has one run at a time.  The last run with a tick can have another permit than
 * those that are free, or one that this caller does not have, because callers can have
 * different numbers of permits, or none.  So it is looked for, and looked at again with the
 * advisory half of the permit held.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/breakage.h"
#include "job/job.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

/*
 * note_awaited - note what the next try waits for: one of the permits, that of the last
 * run, or the end of the pause
 */
static void
note_awaited(ShedlockChoice *choice)
{
	bool		awaits_last = choice->last_lives && choice->last_which >= 0;

	if (choice->not_awaited == NULL)
		return;
	choice->not_awaited[0] = !choice->paused;
	for (int i = 0; i < choice->run->nlocks; i++)
		choice->not_awaited[i + 1] = choice->paused || (awaits_last && i != choice->last_which);
}

/*
 * ShedlockJobIsPaused - is the job paused, whoever holds the lock of its name?
 *
 * Sets *result to a refusal if it is.
 */
bool
ShedlockJobIsPaused(ShedlockChoice *choice, ShedlockResult *result)
{
	ShedlockRow row;

	ShedlockLookUpRow(&choice->run->job, &row);
	choice->paused = row.found && row.paused_until > GetCurrentTimestamp();
	if (choice->paused)
	{
		result->row = row;
		result->verdict = SHEDLOCK_PAUSED;
		note_awaited(choice);
	}
	return choice->paused;
}

/*
 * follows_last - must the last run end before one of the tick that is due begins?
 *
 * It must if it is of the same tick, or if ticks are made up one after the other.
 */
static bool
follows_last(const ShedlockChoice *choice)
{
	return choice->last && choice->last->token != 0 && !ShedlockBroken(TICK_RUN_TWICE) &&
		(choice->due->tick == choice->last->tick ||
		 choice->run->plan->catch_up == SHEDLOCK_CATCH_UP_ALL);
}

/*
 * find_last - find the lock that the last run with a tick had
 *
 * Sets last_lock, and last_which if it is one of those that this run may have.  The rows
 * of these tell it even if the history does not.
 */
static void
find_last(ShedlockChoice *choice)
{
	const ShedlockRun *run = choice->run;
	ShedlockLogged logged;
	ShedlockStore locks;

	if (choice->last_token == choice->last->token)
		return;
	choice->last_token = choice->last->token;
	choice->last_which = -1;
	ShedlockOpenToRead(&locks, run->job.nsp, "shedlock");
	for (int i = 0; i < run->nlocks && choice->last_which < 0; i++)
	{
		ShedlockRow row;

		ShedlockReadRow(&locks, run->locks[i].str, &row);
		if (row.found && row.token == choice->last_token)
			choice->last_which = i;
	}
	ShedlockClose(&locks);
	if (choice->last_which >= 0)
	{
		choice->last_lock = run->locks[choice->last_which];
		return;
	}
	ShedlockHistoryRead(run->job.nsp, choice->last_token, &logged);
	ShedlockMakeLockName(&run->job, logged.token == 0 ? 0 : logged.permit, &choice->last_lock);
}

/*
 * last_lives - is the last run with a tick at work?
 *
 * A pause of its permit does not change that.  Sets *result to a refusal if it is, with the
 * verdict SHEDLOCK_BUSY if that is open.
 */
static bool
last_lives(ShedlockChoice *choice, ShedlockResult *result)
{
	ShedlockRow row;
	ShedlockVerdict verdict;

	find_last(choice);
	verdict = ShedlockFindHeld(&choice->last_lock, &row);
	choice->last_lives = verdict != SHEDLOCK_FREE && row.token == choice->last->token;
	if (!choice->last_lives)
		return false;
	result->row = row;
	result->verdict = verdict;
	return true;
}

/*
 * ShedlockAwaitsLastRun - is the last run with a tick at work, and must it end first?
 */
bool
ShedlockAwaitsLastRun(ShedlockChoice *choice)
{
	return follows_last(choice) && last_lives(choice, &choice->refusal);
}

/*
 * tick_is_in_use - has an open transaction written the row of the tick?
 *
 * Such a transaction ends another run, or is an administrator's.  The run could not claim
 * its tick, and to wait for that with the advisory half held would keep an administrator
 * from it.
 */
static bool
tick_is_in_use(ShedlockChoice *choice)
{
	ShedlockResult in_use = {.verdict = SHEDLOCK_BUSY};

	choice->tick_in_use = ShedlockIsBeingChanged(choice->ticks);
	if (choice->tick_in_use)
		choice->refusal = in_use;
	return choice->tick_in_use;
}

/*
 * confirm - may the run still begin? for ShedlockAcquire()
 */
static bool
confirm(void *arg)
{
	ShedlockChoice *choice = arg;

	if (choice->run->has_permits && ShedlockJobIsPaused(choice, &choice->refusal))
		return false;
	if (choice->last == NULL)
		return true;
	return choice->is_still_due(choice->arg) && !tick_is_in_use(choice) &&
		!ShedlockAwaitsLastRun(choice);
}

/*
 * is_refused - has the last try found what no other permit changes?
 */
static bool
is_refused(const ShedlockChoice *choice)
{
	return choice->paused || choice->last_lives || choice->tick_in_use;
}

/*
 * acquire_lock - acquire one of the locks that a run may have
 *
 * Returns false with the verdict SHEDLOCK_FREE if the run is not due any more.
 */
static bool
acquire_lock(ShedlockChoice *choice, ShedlockStore *locks, int which, ShedlockResult *result)
{
	ShedlockRun *run = choice->run;

	run->request.name = run->locks[which];
	run->request.confirm = choice->last || run->has_permits ? confirm : NULL;
	run->request.confirm_arg = choice;
	if (ShedlockAcquire(locks, &run->request, result))
	{
		run->token = result->row.token;
		run->permit = run->has_permits ? which + 1 : 0;
		return true;
	}
	if (result->verdict == SHEDLOCK_FREE && is_refused(choice))
		*result = choice->refusal;
	return false;
}

/*
 * acquire_permit - acquire one of the permits of the job
 *
 * That of the last run with a tick is tried first: if that run has died, it is logged as
 * lost.  The others are tried in random order.  Returns false as acquire_lock(), with the
 * refusal that ends first.
 */
static bool
acquire_permit(ShedlockChoice *choice, ShedlockStore *locks, ShedlockResult *result)
{
	int			n = choice->run->nlocks;
	int		   *order = palloc((Size) n * sizeof(int));

	ShedlockShuffle(order, n);
	if (choice->last && choice->last->token != 0)
	{
		find_last(choice);
		for (int i = 0; i < n; i++)
		{
			if (order[i] == choice->last_which)
			{
				order[i] = order[0];
				order[0] = choice->last_which;
			}
		}
	}
	for (int i = 0; i < n; i++)
	{
		ShedlockResult one = {0};
		bool		acquired;

		CHECK_FOR_INTERRUPTS();
		acquired = acquire_lock(choice, locks, order[i], &one);
		if (acquired || one.verdict == SHEDLOCK_FREE || is_refused(choice))
		{
			*result = one;
			return acquired;
		}
		ShedlockKeepSoonest(result, &one, i == 0);
	}
	return false;
}

/*
 * ShedlockAcquireForRun - acquire the lock of a run, or one of its permits
 *
 * Returns false with the refusal, of the lock run->request.name, and choice->last_lives if
 * it is that of the last run with a tick; or with the verdict SHEDLOCK_FREE if the run is
 * not due any more.  Otherwise as ShedlockAcquire().
 */
bool
ShedlockAcquireForRun(ShedlockChoice *choice, ShedlockResult *result)
{
	ShedlockRun *run = choice->run;
	ShedlockStore locks;
	bool		acquired = false;

	choice->paused = choice->last_lives = choice->tick_in_use = false;
	choice->last_token = 0;
	ShedlockOpen(&locks, run->job.nsp, "shedlock");
	if (!(run->has_permits && ShedlockJobIsPaused(choice, result)) &&
		!(follows_last(choice) && last_lives(choice, result)))
		acquired = run->has_permits ? acquire_permit(choice, &locks, result) :
			acquire_lock(choice, &locks, 0, result);
	ShedlockCloseAfter(&locks, acquired);

	if (!acquired && choice->last_lives)
		run->request.name = choice->last_lock;
	note_awaited(choice);
	return acquired;
}

/*
 * ShedlockAwaitLockOfRun - wait for the lock of a run, or for one of its permits
 *
 * choice: of an attempt that has failed.  A call that waits for a paused job waits for the
 * job's own lock.  Otherwise as ShedlockWaitFor().
 */
bool
ShedlockAwaitLockOfRun(ShedlockChoice *choice, const Interval *limit,
					   bool (*attempt) (void *arg, ShedlockResult *result), void *arg,
					   ShedlockResult *result)
{
	const ShedlockRun *run = choice->run;
	ShedlockName *names;

	if (!run->has_permits)
		return ShedlockWaitFor(run->locks, 1, NULL, limit, attempt, arg, result);
	names = palloc((Size) (run->nlocks + 1) * sizeof(ShedlockName));
	names[0] = run->job;
	memcpy(names + 1, run->locks, (Size) run->nlocks * sizeof(ShedlockName));
	choice->not_awaited = palloc((Size) (run->nlocks + 1) * sizeof(bool));
	note_awaited(choice);
	return ShedlockWaitFor(names, run->nlocks + 1, choice->not_awaited, limit, attempt, arg, result);
}

/*
 * ShedlockRefusalReason - why ShedlockAcquireForRun() has returned false; palloc'd
 */
char *
ShedlockRefusalReason(const ShedlockChoice *choice, const ShedlockResult *result)
{
	const ShedlockRun *run = choice->run;

	if (choice->tick_in_use && result->verdict == SHEDLOCK_BUSY)
		return pstrdup("The row of its tick is being changed by an open transaction.");
	if (choice->last_lives && result->verdict == SHEDLOCK_HELD)
		return psprintf("It makes up one tick after the other, and a run of tick %s is at work.",
						ShedlockTimeString(choice->last->tick));
	if (run->has_permits && !is_refused(choice))
		return psprintf("None of its permits is free; there are %d.", run->nlocks);
	return ShedlockBusyReason(&run->request.name, result);
}
