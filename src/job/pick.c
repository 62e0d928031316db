/*-------------------------------------------------------------------------
 *
 * pick.c
 *	  Which of some jobs is due: begins a run of the one that has waited longest.
 *
 * A look reads declarations and ticks, and the locks of the jobs that are due.  It locks and
 * writes nothing, and decides nothing: each run is begun as any other one (begin.c), and a
 * caller that loses it to another goes on with the next job.
 *
 * A job has waited since it is due and its lock is free.  By its due time alone a job with a
 * long backlog would always come first, and starve the others.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "job/job.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* A call that waits looks again after that time, for what has no known time. */
#define LOOK_AGAIN_MS	1000

/* What a look has found of one job. */
typedef struct Sight
{
	const ShedlockName *name;
	ShedlockJob job;
	ShedlockTick last;
	TimestampTz looked_at;
	TimestampTz waits_since;	/* it is due; DT_NOEND: it is not */
	uint32		lot;			/* jobs that have waited equally long come in
								 * random order */
	TimestampTz next_at;		/* no call can succeed before */
	bool		saw_lock;		/* next_at takes account of it */
} Sight;

/*
 * find_next - when a call for the job can succeed, which could not at that time
 */
static void
find_next(Sight *sight, TimestampTz then)
{
	ShedlockRow row;

	ShedlockLookUpRow(sight->name, &row);
	sight->next_at = ShedlockNextAt(sight->name, &row, &sight->last, &sight->job, then);
	sight->saw_lock = true;
}

/*
 * look_at - is the job due and its lock free, as far as the rows say? Else, until when not?
 */
static void
look_at(Sight *sight, ShedlockStore *jobs, ShedlockStore *ticks)
{
	TimestampTz now;
	ShedlockRow row;

	sight->waits_since = sight->next_at = DT_NOEND;
	sight->lot = 0;
	sight->saw_lock = false;
	ShedlockReadJob(jobs, sight->name, &sight->job);
	if (!sight->job.found)
		return;
	ShedlockReadTick(ticks, sight->name, &sight->last);
	now = sight->looked_at = GetCurrentTimestamp();
	if (ShedlockFindDue(&sight->last, &sight->job, now).attempt == 0)
	{
		/*
		 * A run that may be at work can end, and its tick be due again, at
		 * any time.
		 */
		if (sight->last.token != 0 && !sight->last.done)
			find_next(sight, now);
		else
			sight->next_at = ShedlockNextTime(&sight->last, &sight->job, now);
		return;
	}
	ShedlockLookUpRow(sight->name, &row);
	if (ShedlockJudge(&row, sight->name, now, NULL) == SHEDLOCK_FREE)
	{
		sight->waits_since = ShedlockDueSince(&sight->last, &sight->job, now,
											  ShedlockFreeSince(&row, false, now));
		sight->lot = pg_prng_uint32(&pg_global_prng_state);
	}
	else
		find_next(sight, now);
}

/*
 * look - look at all of the jobs
 *
 * Errors: 42704 if none is declared.
 */
static void
look(Sight *sights, int n)
{
	Oid			nsp = sights[0].name->nsp;
	ShedlockStore jobs;
	ShedlockStore ticks;
	int			found = 0;

	ShedlockOpen(&jobs, nsp, "_shedlock_job", AccessShareLock);
	ShedlockOpen(&ticks, nsp, "_shedlock_tick", AccessShareLock);
	for (int i = 0; i < n; i++)
	{
		look_at(&sights[i], &jobs, &ticks);
		found += sights[i].job.found;
	}
	ShedlockClose(&ticks, AccessShareLock);
	ShedlockClose(&jobs, AccessShareLock);
	if (found == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 n == 1 ? errmsg("job \"%s\" does not exist", sights[0].name->str) :
				 errmsg("none of these %d jobs exists", n),
				 errhint("Jobs are declared by shedlock_job.")));
}

/*
 * warn_of_missing - warn of names that are not declared
 */
static void
warn_of_missing(const Sight *sights, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (!sights[i].job.found)
			ereport(WARNING,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("job \"%s\" does not exist", sights[i].name->str),
					 errhint("Jobs are declared by shedlock_job.")));
	}
}

/*
 * compare_waits - the job that has waited longest comes first, for qsort()
 */
static int
compare_waits(const void *a, const void *b)
{
	const Sight *one = a;
	const Sight *two = b;

	if (one->waits_since != two->waits_since)
		return one->waits_since < two->waits_since ? -1 : 1;
	return one->lot < two->lot ? -1 : one->lot > two->lot;
}

/*
 * begin_first - begin a run of the first job that another caller does not begin
 *
 * Returns true if there is nothing more to wait for.
 */
static bool
begin_first(Sight *sights, int n, ShedlockRun *run, ShedlockAnswer *answer)
{
	qsort(sights, (size_t) n, sizeof(Sight), compare_waits);
	for (int i = 0; i < n && sights[i].waits_since != DT_NOEND; i++)
	{
		CHECK_FOR_INTERRUPTS();
		run->request.name = *sights[i].name;
		ShedlockTryRun(run, false, answer);
		if (answer->beginning == SHEDLOCK_BEGUN || answer->beginning == SHEDLOCK_REPEATED)
			return true;
		find_next(&sights[i], GetCurrentTimestamp());
	}
	return false;
}

/*
 * soonest - the job that can be begun first; any one if nobody knows which
 *
 * Looks at the locks of as few jobs as it takes.  One of them is declared.
 */
static Sight *
soonest(Sight *sights, int n)
{
	for (;;)
	{
		Sight	   *first = sights;

		for (int i = 1; i < n; i++)
		{
			if (sights[i].job.found && (!first->job.found || sights[i].next_at < first->next_at))
				first = &sights[i];
		}
		if (first->saw_lock || first->next_at == DT_NOEND)
			return first;

		/* Its tick may have come since the look. */
		find_next(first, first->looked_at);
	}
}

/*
 * is_answered - has another call with the request of this one begun a run by now?
 */
static bool
is_answered(const ShedlockRun *run, Oid nsp)
{
	ShedlockHistoryRun past;

	if (run->client_request == NULL)
		return false;
	ShedlockHistoryFindRequest(nsp, run->client_request, &past);
	return past.token != 0;
}

/*
 * nap - sleep until a job can be due, the wait is over, or it is time to look again
 *
 * left: of the wait, in microseconds.
 */
static void
nap(const Sight *first, int64 left)
{
	long		ms = (long) Min(LOOK_AGAIN_MS, left / 1000 + 1);

	ms = Min(ms, TimestampDifferenceMilliseconds(GetCurrentTimestamp(), first->next_at));
	if (ms > 0)
		(void) ShedlockNap(ms);
	ShedlockCheckClient();
}

/*
 * ShedlockPickRun - begin a run of the job that has waited longest of those that are due
 *
 * run: all but its name; that is set if the run has begun.  wait: how long to wait for the
 * first of them, or NULL; nothing is held meanwhile.  If none has begun, *answer is that for the
 * job that can be begun first.  Errors: 42704 if no name is declared; those of
 * ShedlockBeginRun(), but lock_timeout does not end the wait, because it is not for a lock.
 * Locks: those of ShedlockBeginRun().
 */
void
ShedlockPickRun(ShedlockRun *run, const ShedlockName *names, int n, const Interval *wait,
				ShedlockAnswer *answer)
{
	int64		give_up = ShedlockSteadyNow() + (wait ? ShedlockIntervalMicroseconds(wait) : 0);
	Sight	   *sights = palloc((Size) n * sizeof(Sight));
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "shedlock look", ALLOCSET_DEFAULT_SIZES);
	bool		warned = false;

	run->needs_job = true;
	for (int i = 0; i < n; i++)
		sights[i].name = &names[i];
	MemoryContextSwitchTo(context);
	for (;;)
	{
		Sight	   *first;
		int64		left;

		look(sights, n);
		if (!warned)
			warn_of_missing(sights, n);
		warned = true;
		if (begin_first(sights, n, run, answer))
			break;
		first = soonest(sights, n);
		left = give_up - ShedlockSteadyNow();
		if (left <= 0 || is_answered(run, names[0].nsp))
		{
			run->request.name = *first->name;
			ShedlockTryRun(run, true, answer);
			break;
		}
		nap(first, left);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(caller);
}
