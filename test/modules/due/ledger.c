/*-------------------------------------------------------------------------
 *
 * ledger.c
 *	  Keeps a ledger of what has happened to a job, and checks the promises by it.
 *
 * It shares no code with the library: neither calendar nor rules, and it reads no row.  It
 * knows what was declared, which ticks were begun, claimed, skipped or used up, who has the
 * lock, and the clock.  What doc/reference.md says of jobs is all that it goes by.
 *
 * After the clock has jumped, only that holds which never ends: one run at a time, none before
 * its tick, and next_at.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "ledger.h"
#include "stage.h"

#define PROMISES_MAX	64
#define FACTS_MAX		20000

/* From 1970 to 2000 */
#define EPOCH			(INT64CONST(10957) * DAY)

/* What has become of a tick. */
typedef struct Fact
{
	TimestampTz tick;
	int			begun;			/* runs that count */
	int			allowed;		/* of these by shedlock_again */
	bool		closed;			/* it is used up */
	bool		gave_up;		/* the last attempt has ended, and failed */
	bool		spent;			/* its run was at work when the job was
								 * forgotten */
} Fact;

static struct
{
	bool		declared;
	Rhythm		plan;
	Settings	settings;
	TimestampTz counts;			/* ticks of the plan count after this */
	TimestampTz declared_at;	/* the last change */
	TimestampTz changed_at;		/* of the plan */
	bool		created;		/* that was the first declaration */
	TimestampTz begun_before;	/* the last begin before that */
	TimestampTz carried;		/* a tick of the plan before that was due */
	TimestampTz last;			/* the newest tick begun, claimed or used up */
	TimestampTz last_begun;		/* when a run or claim began */
	int64		token;			/* of the last tick's run */
	bool		again;
	bool		again_before;	/* the same, before the job was forgotten */
	TimestampTz skipped;
	TimestampTz taken_back;		/* a tick that was skipped before */
	TimestampTz retry_at;
	int64		at_work;		/* token; 0: nobody has the lock */
	TimestampTz lease_end;
	TimestampTz paused_until;
	TimestampTz free_since;
	TimestampTz kept_until;		/* by the clock before it was set back */
	TimestampTz freed_at;		/* the lock */
	int64		lapsed;			/* whose lease was over at its end, by the
								 * clock that it was then */
	TimestampTz called;
	bool		jumped;
	int			facts;
}			ledger;

static Fact facts[FACTS_MAX];

Promise		promises[PROMISES_MAX];
int			promised = 0;
int64		world_seed;
bool		world_broken;

/*
 * promise - a promise was kept, or not
 */
void
promise(bool kept, const char *what)
{
	Promise    *one = promises;

	while (one < promises + promised && one->what != what && strcmp(one->what, what) != 0)
		one++;
	if (one == promises + promised)
	{
		if (promised == PROMISES_MAX)
			elog(ERROR, "too many promises");
		memset(one, 0, sizeof(*one));
		one->what = what;
		promised++;
	}
	one->checked++;
	if (kept)
		return;
	if (one->broken++ == 0)
		one->world = world_seed;
	world_broken = true;
	note("BROKEN: %s", what);
}

/*
 * plan_previous - the last tick at or before an instant
 */
TimestampTz
plan_previous(const Rhythm *plan, TimestampTz at)
{
	int64		since_base = at + EPOCH - plan->base;
	int64		begin = at - since_base % plan->cycle;

	for (;;)
	{
		for (int i = plan->n; i-- > 0;)
		{
			if (begin + plan->offsets[i] <= at)
				return begin + plan->offsets[i];
		}
		begin -= plan->cycle;
	}
}

/*
 * plan_next - the first tick after an instant
 */
TimestampTz
plan_next(const Rhythm *plan, TimestampTz after)
{
	int64		since_base = after + EPOCH - plan->base;
	int64		begin = after - since_base % plan->cycle;

	for (;;)
	{
		for (int i = 0; i < plan->n; i++)
		{
			if (begin + plan->offsets[i] > after)
				return begin + plan->offsets[i];
		}
		begin += plan->cycle;
	}
}

static bool
same_plan(const Rhythm *a, const Rhythm *b)
{
	return a->is_cron == b->is_cron && a->cycle == b->cycle && a->base == b->base && a->n == b->n &&
		memcmp(a->offsets, b->offsets, (Size) a->n * sizeof(a->offsets[0])) == 0;
}

static bool
same_settings(const Settings *a, const Settings *b)
{
	return a->attempts == b->attempts && a->backoff == b->backoff && a->all == b->all &&
		a->max_late == b->max_late && a->overdue_after == b->overdue_after;
}

/*
 * find_fact - what is known of a tick; NULL for nothing
 */
static Fact *
find_fact(TimestampTz tick)
{
	for (int i = ledger.facts; i-- > 0;)
	{
		if (facts[i].tick == tick)
			return &facts[i];
	}
	return NULL;
}

static Fact *
fact_of(TimestampTz tick)
{
	Fact	   *fact = find_fact(tick);

	if (fact)
		return fact;
	if (ledger.facts == FACTS_MAX)
		elog(ERROR, "too many ticks");
	fact = &facts[ledger.facts++];
	memset(fact, 0, sizeof(*fact));
	fact->tick = tick;
	return fact;
}

static bool
is_closed(TimestampTz tick)
{
	const Fact *fact = find_fact(tick);

	return fact && (fact->closed || fact->spent);
}

/*
 * is_skipped - is there a tick of the job that was skipped, after the last one?
 */
static bool
is_skipped(void)
{
	return ledger.skipped > ledger.last &&
		(ledger.skipped == ledger.carried || ledger.skipped == plan_previous(&ledger.plan, ledger.skipped));
}

/*
 * owed - the tick of the schedule before that was due, if it still counts
 */
static TimestampTz
owed(void)
{
	return ledger.carried > ledger.last && !is_closed(ledger.carried) ? ledger.carried : DT_NOBEGIN;
}

/*
 * is_period - does the current period count when the plan is new?
 *
 * Whoever says from when on periods count names their begins, as with a cron expression.
 */
static bool
is_period(const Rhythm *plan)
{
	return !plan->is_cron && plan->base == 0;
}

/*
 * next_open - the first tick of the plan after an instant that was not skipped
 */
static TimestampTz
next_open(TimestampTz after)
{
	TimestampTz tick = plan_next(&ledger.plan, after);

	while (is_closed(tick))
		tick = plan_next(&ledger.plan, tick);
	return tick;
}

static bool
in_time(TimestampTz tick)
{
	return stage_clock - tick <= ledger.settings.max_late;
}

/*
 * is_open - has the last tick another attempt, now or after the backoff?
 */
static bool
is_open(void)
{
	const Fact *fact = find_fact(ledger.last);

	return fact && !fact->closed && !fact->spent && !fact->gave_up &&
		fact->begun < ledger.settings.attempts && ledger.last <= stage_clock &&
		in_time(ledger.last);
}

/*
 * backoff_is_over - an hour is the most, so a longer one is of another clock
 */
static bool
backoff_is_over(void)
{
	return stage_clock >= ledger.retry_at || ledger.retry_at > stage_clock + HOUR;
}

/*
 * is_last_at_work - has the last tick a run that can still settle it?
 */
static bool
is_last_at_work(void)
{
	const Fact *fact = find_fact(ledger.last);

	return ledger.at_work != 0 && ledger.at_work == ledger.token && fact && !fact->closed;
}

static int64
backoff_after(int attempt)
{
	int64		backoff = ledger.settings.backoff;

	while (--attempt > 0 && backoff < HOUR)
		backoff *= 2;
	return Min(backoff, HOUR);
}

/*
 * newest - the last tick of the plan, if it counts and nothing has begun for it
 *
 * DT_NOBEGIN: it does not.
 */
static TimestampTz
newest(void)
{
	TimestampTz tick = plan_previous(&ledger.plan, stage_clock);

	return tick > Max(ledger.counts, Max(ledger.last, owed())) ? tick : DT_NOBEGIN;
}

/*
 * oldest - with "all", the first tick that counts and is not too late; it may be to come
 */
static TimestampTz
oldest(void)
{
	return next_open(Max(Max(ledger.counts, Max(ledger.last, owed())),
						 stage_clock - ledger.settings.max_late - 1));
}

bool
ledger_is_free(TimestampTz at)
{
	return (ledger.at_work == 0 || at >= ledger.lease_end) && at >= Max(ledger.paused_until, ledger.kept_until);
}

bool
ledger_is_declared(void)
{
	return ledger.declared;
}

int64
ledger_at_work(void)
{
	return ledger.at_work;
}

void
ledger_reset(void)
{
	memset(&ledger, 0, sizeof(ledger));
	ledger.last = ledger.last_begun = ledger.carried = ledger.skipped = DT_NOBEGIN;
	ledger.taken_back = ledger.retry_at = ledger.paused_until = ledger.called = DT_NOBEGIN;
	ledger.free_since = 0;		/* long ago */
	ledger.kept_until = DT_NOBEGIN;
	world_broken = false;
}

/*
 * ledger_passed - time has passed: a lease or a pause may be over
 */
void
ledger_passed(void)
{
	if (ledger.at_work != 0 && stage_clock >= ledger.lease_end)
	{
		ledger.lapsed = ledger.at_work;
		ledger.at_work = 0;
		ledger.free_since = ledger.lease_end;
	}
	if (ledger.paused_until != DT_NOBEGIN && stage_clock >= ledger.paused_until)
	{
		ledger.free_since = Max(ledger.free_since, ledger.paused_until);
		ledger.paused_until = DT_NOBEGIN;
	}
}

/*
 * The current period of a plan that is new: does it count?
 */
static bool
period_counts(bool created, TimestampTz begin)
{
	if (!in_time(begin))
		return false;
	return created ? ledger.last_begun < begin : ledger.last_begun <= stage_clock - ledger.plan.cycle;
}

void
ledger_declared(const Rhythm *plan, const Settings *settings, const char *word)
{
	TimestampTz now = stage_clock;
	TimestampTz due;
	bool		created = !ledger.declared;

	/* Ticks that count only from a time to come do so because the clock was set back. */
	bool		same = !created && same_plan(plan, &ledger.plan) && ledger.counts <= now + MINUTE;

	promise(strcmp(word, created ? "created" : same && same_settings(settings, &ledger.settings) ?
				   "unchanged" : "changed") == 0,
			"a declaration is created, changed or unchanged as it differs");
	if (created)
		ledger.carried = DT_NOBEGIN;
	else if (!same && (due = newest()) != DT_NOBEGIN && in_time(due) && !is_closed(due))
		ledger.carried = due;
	else if (!same && ledger.carried > now)
		ledger.carried = DT_NOBEGIN;	/* the clock was set back */
	if (!same || !same_settings(settings, &ledger.settings))
		ledger.declared_at = now;
	ledger.declared = true;
	ledger.plan = *plan;
	ledger.settings = *settings;
	if (same)
		return;
	ledger.created = created;
	ledger.changed_at = now;
	ledger.begun_before = ledger.last_begun;
	ledger.counts = now;
	if (!is_period(plan))
		ledger.counts = now - MINUTE;
	else if (period_counts(created, plan_previous(plan, now)))
		ledger.counts = plan_previous(plan, now) - 1;
}

void
ledger_forgot(void)
{
	Fact	   *fact = find_fact(ledger.last);

	ledger.declared = false;
	ledger.again_before |= ledger.again;
	ledger.again = false;
	ledger.carried = DT_NOBEGIN;
	if (fact && ledger.at_work != 0 && ledger.at_work == ledger.token && !fact->closed)
		fact->spent = true;
	else if (fact)
		fact->closed = true;
}

void
ledger_called(void)
{
	ledger.called = stage_clock;
}

/*
 * check_again - what shedlock_again has allowed
 */
static void
check_again(TimestampTz tick)
{
	TimestampTz last = Max(ledger.last, owed());
	bool		comes = last != DT_NOBEGIN && last <= stage_clock;

	promise(tick == (comes ? last : plan_previous(&ledger.plan, stage_clock)),
			"again: the last tick runs, and of a job that has never run the last one that came");
}

/*
 * reopen - after the clock was set back, a run of an older tick opens what was after it
 *
 * Not what was skipped.
 */
static void
reopen(TimestampTz tick)
{
	for (int i = 0; i < ledger.facts; i++)
	{
		if (facts[i].tick > tick && facts[i].tick != ledger.skipped)
			facts[i].tick = DT_NOEND;
	}
}

/*
 * check_first - the first run of a tick
 */
static void
check_first(TimestampTz tick)
{
	const Rhythm *plan = &ledger.plan;
	TimestampTz before;

	promise(tick == ledger.carried || (plan_previous(plan, tick) == tick && tick > ledger.counts),
			"P7 extra: of what is before a declaration runs only what counts");
	if (tick <= ledger.changed_at && tick != ledger.carried && is_period(plan))
		promise(ledger.created ? ledger.begun_before < tick :
				ledger.begun_before <= ledger.changed_at - plan->cycle,
				"P7 early: no period runs for a declaration that comes less than a period after a begin");
	if (!ledger.settings.all)
		return;
	promise(!is_open() || owed() != DT_NOBEGIN, "all: an older tick uses up its attempts first");
	if (tick == ledger.carried)
		return;
	promise(owed() == DT_NOBEGIN || !in_time(owed()),
			"all: the tick of the schedule before comes first");
	before = plan_previous(plan, tick - 1);
	promise(before <= Max(ledger.counts, Max(ledger.last, owed())) || !in_time(before) ||
			is_closed(before), "all: no tick is left out");
}

/*
 * ledger_begun - a run has begun
 */
void
ledger_begun(TimestampTz tick, int attempt, int64 token, TimestampTz lease_end)
{
	TimestampTz now = stage_clock;
	Fact	   *fact;

	promise(ledger.at_work == 0, "P4 a job has one run at a time");
	promise(now >= ledger.paused_until, "no run begins in a pause");
	promise(tick <= now, "P3 no run begins before its tick");
	if (ledger.again)
		check_again(tick);
	if (tick < ledger.last)
		reopen(tick);
	fact = fact_of(tick);
	if (ledger.again)
	{
		fact->closed = fact->gave_up = fact->spent = false;
		fact->allowed++;
	}
	else if (!ledger.jumped)
	{
		promise(tick >= ledger.last, "P2 ticks run in order");
		promise(!fact->closed && !fact->spent, "no run of a tick that is used up, or was skipped");
		promise(!fact->gave_up, "more attempts do not revive a tick whose last one has ended");
		promise(fact->begun < ledger.settings.attempts + fact->allowed,
				"P1 a tick has as many runs as attempts");
		promise(in_time(tick), "no run begins later than max_late");
		promise(fact->begun == 0 || backoff_is_over(), "no run begins in the backoff");
		promise(ledger.settings.all || newest() <= tick, "latest: the newest tick runs");
		if (tick > ledger.last)
			check_first(tick);
	}
	promise(ledger.jumped || attempt == fact->begun + 1, "attempts are counted");
	fact->begun++;
	ledger.last = tick;
	ledger.last_begun = now;
	ledger.token = token;
	ledger.again = ledger.again_before = false;
	ledger.retry_at = attempt == 1 ? DT_NOBEGIN : now + backoff_after(attempt);
	ledger.at_work = token;
	ledger.lapsed = 0;
	ledger.kept_until = DT_NOBEGIN;
	ledger.lease_end = lease_end;
}

/*
 * ledger_refused - a call has found nothing due, although the lock was free
 */
void
ledger_refused(void)
{
	TimestampTz tick;

	promise(!ledger.again, "again: the next call runs");
	if (ledger.again)
		return;
	if (ledger.jumped)
	{
		promise(!is_open() || ledger.retry_at <= stage_clock + HOUR || newest() != DT_NOBEGIN ||
				owed() != DT_NOBEGIN, "a backoff of another clock is over");
		return;
	}
	if (owed() != DT_NOBEGIN && (ledger.settings.all || newest() == DT_NOBEGIN))
		promise(!in_time(owed()),
				"P7 lost: a tick that was due when the schedule changed still runs");
	else if (ledger.settings.all || newest() == DT_NOBEGIN)
		promise(!is_open() || !backoff_is_over(), "an open tick runs again after the backoff");
	if (ledger.settings.all)
	{
		tick = oldest();
		promise(tick > stage_clock || (owed() == DT_NOBEGIN && is_open()),
				"P5 all: each tick runs");
	}
	else if ((tick = newest()) != DT_NOBEGIN)
		promise(!in_time(tick) || is_closed(tick), tick > ledger.changed_at ?
				"P5 a tick that is called for runs" :
				"P6 a new schedule begins with what came in the last minute, or the current period");
}

/*
 * use_up_passed - a run that took longer than to the next tick has missed none
 */
static void
use_up_passed(void)
{
	const Rhythm *plan = &ledger.plan;
	TimestampTz passed = plan_previous(plan, stage_clock);

	if (ledger.settings.all || ledger.again || ledger.again_before || passed <= Max(ledger.last, ledger.last_begun) ||
		stage_clock - ledger.last_begun < plan_next(plan, ledger.last) - ledger.last)
		return;
	ledger.last = passed;
	fact_of(passed)->closed = true;
}

/*
 * ledger_ended - a run has ended, under its lease
 */
void
ledger_ended(int64 token, ShedlockOutcome outcome)
{
	Fact	   *fact = find_fact(ledger.last);

	ledger.at_work = ledger.lapsed = 0;
	ledger.free_since = ledger.freed_at = stage_clock;

	/* A claim may have come meanwhile. */
	if (ledger.token != token || fact == NULL || fact->closed)
		return;
	if (fact->spent || !ledger.declared || outcome == SHEDLOCK_SUCCEEDED)
	{
		fact->closed = true;
		if (ledger.declared && outcome == SHEDLOCK_SUCCEEDED)
			use_up_passed();
	}
	else if (outcome == SHEDLOCK_RETURNED)
	{
		bool		superseded = !ledger.settings.all &&
		plan_previous(&ledger.plan, ledger.last_begun) > Max(ledger.last, ledger.counts);

		/* No other attempt begins so, or so late, but one that was allowed. */
		fact->begun--;
		ledger.retry_at = DT_NOBEGIN;
		if ((superseded || fact->begun >= ledger.settings.attempts ||
			 ledger.last_begun - ledger.last > ledger.settings.max_late) && !ledger.jumped)
			ledger.again = true;
	}
	else
	{
		if (!ledger.again && fact->begun >= ledger.settings.attempts)
			fact->gave_up = true;
		ledger.retry_at = stage_clock + backoff_after(fact->begun);
	}
}

/*
 * ledger_cancelled - shedlock_cancel or shedlock_force_release is about to end the run
 */
void
ledger_cancelled(void)
{
	Fact	   *fact = find_fact(ledger.last);

	if (fact && ledger.at_work == ledger.token)
		fact->closed = true;
}

void
ledger_claimed(TimestampTz tick, bool claimed)
{
	Fact	   *fact;
	bool		begun = tick <= ledger.last && !ledger.again && !ledger.again_before;

	promise(ledger.jumped || claimed == (!begun && tick != ledger.skipped),
			"a claim is refused if the tick, or a later one, has begun or was skipped");
	if (!claimed)
		return;
	ledger.last = Max(tick, ledger.last);
	ledger.last_begun = stage_clock;
	ledger.token = 0;
	ledger.again = ledger.again_before = false;
	ledger.retry_at = DT_NOBEGIN;
	fact = fact_of(ledger.last);
	fact->begun = 0;
	fact->closed = true;
	fact->gave_up = false;
}

void
ledger_again(void)
{
	if (is_skipped())
	{
		ledger.taken_back = ledger.skipped;
		fact_of(ledger.skipped)->closed = false;
		ledger.skipped = DT_NOBEGIN;
	}
	else
		ledger.again = true;
}

void
ledger_skipped(TimestampTz tick)
{
	bool		is_due = false;
	TimestampTz due = ledger.settings.all ? oldest() : newest();
	TimestampTz coming = plan_next(&ledger.plan, Max(stage_clock, Max(ledger.last, ledger.counts)));

	/* Only one is remembered; what another schedule has left, and is none of this one, is not. */
	if (is_skipped() && ledger.skipped > stage_clock && ledger.skipped != coming)
	{
		promise(tick == DT_NOEND, "skip: nothing as long as a later one is skipped");
		return;
	}
	if (ledger.skipped > ledger.last && ledger.skipped != coming && !is_skipped())
		fact_of(ledger.skipped)->closed = false;
	if (ledger.skipped == coming)
		due = coming;
	else
	{
		if (owed() != DT_NOBEGIN && in_time(owed()) && (ledger.settings.all || due == DT_NOBEGIN))
			due = owed();
		is_due = due != DT_NOBEGIN && due <= stage_clock && in_time(due) &&
			!is_closed(due) && !(ledger.settings.all && owed() == DT_NOBEGIN && is_open());
		/* What shedlock_again has allowed is to begin first. */
		if (ledger.again)
		{
			due = ledger.last == DT_NOBEGIN && owed() == DT_NOBEGIN ?
				plan_previous(&ledger.plan, stage_clock) : owed();
			is_due = due != DT_NOBEGIN;
		}
		if (is_skipped() && ledger.skipped <= stage_clock)
		{
			promise(!(is_due && due < ledger.skipped) || tick == DT_NOEND,
					"skip: nothing as long as older ticks are to be made up");
			promise(ledger.jumped || !is_last_at_work() || tick == DT_NOEND,
					"skip: nothing as long as a run of an older tick is at work");
			if (tick == DT_NOEND)
				return;
			ledger.last = ledger.skipped;
			ledger.last_begun = stage_clock;
			ledger.token = 0;
			ledger.again = ledger.again_before = false;
			ledger.retry_at = DT_NOBEGIN;
		}
		if (is_due)
			ledger.again = ledger.again_before = false;
		else
			due = next_open(Max(stage_clock, Max(ledger.last, ledger.counts)));
	}
	promise(ledger.jumped || tick == due, "skip uses up the tick that is due, or the coming one");
	fact_of(tick)->closed = true;
	ledger.skipped = tick;
}

void
ledger_paused(TimestampTz until)
{
	ledger.paused_until = until;
	ledger_passed();
}

void
ledger_jumped(void)
{
	ledger.jumped = true;
	if (ledger.lapsed != 0 && ledger.lease_end > stage_clock)
		ledger.at_work = ledger.lapsed;
	else if (ledger.at_work == 0 && ledger.lapsed == 0)
		ledger.kept_until = ledger.freed_at;
}

/*
 * ledger_watched - somebody has looked at how the job is doing
 */
void
ledger_watched(const ShedlockStanding *standing)
{
	TimestampTz now = stage_clock;
	bool		overdue = standing->overdue_since != DT_NOEND;
	bool		is_free = ledger_is_free(now);
	const Fact *last = find_fact(ledger.last);
	bool		gave_up_late;	/* a retry would have come after max_late */
	TimestampTz quiet;
	TimestampTz missed;

	promise((standing->state == SHEDLOCK_JOB_RUNNING) == (ledger.at_work != 0),
			"state: a job is running as long as a run has the lock");
	promise(is_free || !overdue, "P9 no job is overdue while a run is at work, or in a pause");
	if (ledger.jumped || !is_free)
		return;
	promise(standing->state != SHEDLOCK_JOB_GAVE_UP ||
			(last && !last->closed && !last->spent && last->begun > 0 &&
			 (!is_open() || ledger.retry_at - ledger.last > ledger.settings.max_late ||
			  (!ledger.settings.all && ledger.retry_at >= plan_next(&ledger.plan, now)))),
			"state: a job has given up if its last tick has no attempt left");
	promise(standing->state != SHEDLOCK_JOB_GAVE_UP || standing->gave_up_since <= now,
			"P9 a job that has given up has that problem");
	promise(!(last && last->gave_up && newest() == DT_NOBEGIN && owed() == DT_NOBEGIN) ||
			ledger.again || is_skipped() ||
			standing->state != SHEDLOCK_JOB_WAITING,
			"state: a job that gave up does not wait");

	/* A tick that came too late for somebody who calls is an alarm, too. */
	quiet = Max(ledger.called, Max(ledger.declared_at, ledger.free_since));
	missed = Max(ledger.counts, ledger.last);
	if (!ledger.settings.all && !is_open() && owed() == DT_NOBEGIN &&
		(newest() == DT_NOBEGIN || !in_time(newest()) || is_closed(newest())))
		missed = Max(missed, Max(ledger.declared_at, ledger.free_since - 1));
	missed = next_open(missed);
	gave_up_late = ledger.settings.all && last && !last->closed && !is_open() &&
		now - ledger.last <= ledger.settings.max_late + ledger.settings.overdue_after;
	if (overdue && now - missed <= ledger.settings.max_late && ledger.taken_back <= ledger.last &&
		!gave_up_late)
		promise(now - quiet > ledger.settings.overdue_after,
				"P9 false alarm: no job is overdue that was called, changed or in the way lately");
	if (ledger.settings.all)
		quiet = Max(quiet, ledger.last_begun);	/* a claim, whose tick was in the way */
	else if (is_skipped() && ledger.skipped <= now)
		quiet = Max(quiet, ledger.skipped);
	missed = next_open(Max(Max(ledger.last, owed()), quiet));
	if (!overdue && !ledger.again && !(ledger.settings.all && is_open()))
		promise(now - missed <= ledger.settings.overdue_after,
				"P9 missed alarm: a job that nobody calls is overdue");
}
