/*-------------------------------------------------------------------------
 *
 * due.c
 *	  Lives random worlds with one job in which the library decides, for
 *	  test/t/run-due-model.pl; and has the tick before an instant, for run-schedule-oracle.pl.
 *
 * A world has callers whose timers are exact, early, late, irregular or stopped; services and
 * crontabs that declare, one schedule or several in turns; runs that succeed, fail, die or give
 * their tick back; administrators who skip, allow again, claim, pause, forget and force; and in
 * some the clock jumps.  The library acts on the stage (stage.c), the ledger has what was
 * promised (ledger.c).  A world follows from its number alone.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/pg_prng.h"
#include "ledger.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "stage.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

PG_MODULE_MAGIC;

#define EVENTS_MAX	200
#define VARIANTS_MAX	4
#define CALLERS_MAX	3
#define RUNS_MAX	20000

/* How many cycles of its first schedule a world lasts. */
#define CYCLES		14

/* Numbers, of which pick() takes one; what is there twice, twice as often. */
#define PICK(...) \
	pick((const int64[]) {__VA_ARGS__}, (int) (sizeof((const int64[]) {__VA_ARGS__}) / sizeof(int64)))

typedef void (*Act) (int64 arg);

typedef struct Event
{
	int64		at;				/* true time */
	int64		number;			/* in the order in which they were made */
	Act			act;
	int64		arg;
} Event;

/* What is declared, one or the other. */
typedef struct Variant
{
	Rhythm		plan;
	Settings	settings;
} Variant;

/* A timer that calls. */
typedef struct Caller
{
	int64		every;			/* 0: it fires at the ticks of its variant */
	bool		is_uneven;
	int64		late;			/* such a timer's, or negative if it is early */
	double		declares;		/* how often it declares before it calls */
	int			variant;		/* which; -1: any */
	int64		stops;			/* this and the next: it does not call
								 * meanwhile */
	int64		resumes;
} Caller;

typedef struct Run
{
	int64		token;
	ShedlockOutcome outcome;	/* SHEDLOCK_RUN_LOST: it dies */
} Run;

static struct
{
	int64		now;			/* true time */
	int64		offset;			/* by which the clock has jumped */
	bool		is_whole;		/* all times are whole seconds */
	int64		cycle;			/* of the first variant */
	int64		end;
	Event		events[EVENTS_MAX];
	int			nevents;
	int64		number;
	Variant		variants[VARIANTS_MAX];
	int			nvariants;
	Caller		callers[CALLERS_MAX];
	int			ncallers;
	Run			runs[RUNS_MAX];
	int			nruns;
	int			outcomes;		/* which ones there are */
	double		rates[8];		/* of acts in a cycle */
	bool		jumps;			/* the clock does */
	ShedlockName name;
	int64		alarm;			/* number of the event that ends the pause */
}			world;

static pg_prng_state prng;
static StringInfo story = NULL;

/*
 * note - add a line to the story of the world, if it is told
 */
void
note(const char *format,...)
{
	int			needed = 0;

	if (story == NULL)
		return;
	appendStringInfo(story, "%s ", timestamptz_to_str(stage_clock));
	do
	{
		va_list		args;

		enlargeStringInfo(story, needed);
		va_start(args, format);
		needed = appendStringInfoVA(story, format, args);
		va_end(args);
	} while (needed != 0);
	appendStringInfoChar(story, '\n');
}

/*
 * Chance
 */
static int64
below(int64 n)
{
	return n <= 1 ? 0 : (int64) pg_prng_uint64_range(&prng, 0, (uint64) n - 1);
}

static bool
chance(double probability)
{
	return pg_prng_double(&prng) < probability;
}

static int64
pick(const int64 *values, int n)
{
	return values[below(n)];
}

/*
 * some_time - a random duration below that
 */
static int64
some_time(int64 limit)
{
	int64		some = below(limit);

	return world.is_whole ? some - some % SECOND : some;
}

/*
 * after - have something happen after a time
 */
static int64
after(int64 delay, Act act, int64 arg)
{
	Event		event = {world.now + Max(delay, 0), ++world.number, act, arg};
	int			place = world.nevents++;

	if (world.nevents > EVENTS_MAX)
		elog(ERROR, "too many events");
	/* the next one is the last */
	while (place > 0 && world.events[place - 1].at <= event.at)
	{
		world.events[place] = world.events[place - 1];
		place--;
	}
	world.events[place] = event;
	return event.number;
}

/*
 * Arguments of the library
 */
static Interval *
interval(int64 length)
{
	Interval   *span = palloc0(sizeof(Interval));

	/* In either way it is the same length. */
	if (chance(0.5))
		span->day = (int32) (length / DAY);
	span->time = length - span->day * DAY;
	return span;
}

static void
random_plan(Rhythm *plan)
{
	StringInfoData buf;

	memset(plan, 0, sizeof(*plan));
	initStringInfo(&buf);
	plan->n = 1;
	plan->is_cron = chance(0.5);
	if (plan->is_cron)
	{
		int64		first;
		int64		step;
		int64		hour = below(20);

		plan->cycle = PICK(10 * MINUTE, HOUR, HOUR, DAY, DAY);
		plan->n = (int) PICK(1, 1, 2, 3);
		step = plan->cycle == DAY ? HOUR : MINUTE;
		first = plan->cycle == DAY ? below(60) * MINUTE + hour * HOUR : below(plan->cycle / MINUTE - 6) * MINUTE;
		for (int i = 0; i < plan->n; i++)
		{
			plan->offsets[i] = first;
			first += (1 + below(2)) * step;
		}
		if (plan->cycle == DAY)
		{
			appendStringInfo(&buf, "%d ", (int) (plan->offsets[0] / MINUTE % 60));
			for (int i = 0; i < plan->n; i++)
				appendStringInfo(&buf, "%s%d", i ? "," : "", (int) (plan->offsets[i] / HOUR));
		}
		else
		{
			for (int64 begin = 0; begin < HOUR; begin += plan->cycle)
			{
				for (int i = 0; i < plan->n; i++)
					appendStringInfo(&buf, "%s%d", begin + i ? "," : "",
									 (int) ((begin + plan->offsets[i]) / MINUTE));
			}
			appendStringInfoString(&buf, " *");
		}
		appendStringInfoString(&buf, " * * *");
	}
	else
	{
		plan->cycle = PICK(40 * SECOND, 10 * MINUTE, HOUR, HOUR, 7 * HOUR, DAY, DAY);
		appendStringInfo(&buf, "every %d s", (int) (plan->cycle / SECOND));
		if (chance(0.4))
			plan->base = below(plan->cycle / MINUTE + 1) * MINUTE % plan->cycle;
		if (plan->base != 0)
			appendStringInfo(&buf, " from 1970-01-01T%02d:%02d:%02dZ", (int) (plan->base / HOUR),
							 (int) (plan->base / MINUTE % 60), (int) (plan->base / SECOND % 60));
	}
	if (buf.len >= (int) sizeof(plan->text))
		elog(ERROR, "schedule is too long: %s", buf.data);
	strcpy(plan->text, buf.data);
}

static void
random_settings(Settings *settings)
{
	settings->attempts = (int) PICK(1, 1, 2, 3);
	settings->backoff = PICK(0, MINUTE, 10 * MINUTE, 45 * MINUTE);
	settings->all = chance(0.33);
	settings->max_late = PICK(FOREVER, FOREVER, MINUTE, 10 * MINUTE, HOUR);
	settings->overdue_after = PICK(5 * MINUTE, 5 * MINUTE, HOUR);
}

/*
 * job_of - the arguments of shedlock_job
 */
static void
job_of(const Variant *variant, ShedlockJob *job)
{
	const Settings *settings = &variant->settings;

	memset(job, 0, sizeof(*job));
	/* Blanks make no other schedule. */
	job->schedule_text = psprintf(chance(0.3) ? " %s " : "%s", variant->plan.text);
	job->time_zone = pstrdup("UTC");
	job->is_readable = ShedlockFindSchedule(job->schedule_text, "UTC", false, &job->schedule);
	job->attempts = settings->attempts;
	job->backoff = interval(settings->backoff);
	job->catch_up = settings->all ? "all" : "latest";
	job->catch_up_all = settings->all;
	job->max_late = settings->max_late == FOREVER ? NULL : interval(settings->max_late);
	job->overdue_after = interval(settings->overdue_after);
}

/*
 * What happens in a world
 */
static void
declare(int variant)
{
	ShedlockJob job;
	const char *word;

	job_of(&world.variants[variant], &job);
	word = ShedlockDeclare(&world.name, &job, NULL, NULL);
	note("declare \"%s\" attempts %d backoff %d %s max_late %d overdue_after %d: %s", job.schedule_text,
		 job.attempts, (int) (world.variants[variant].settings.backoff / SECOND),
		 job.catch_up,
		 job.max_late ? (int) (world.variants[variant].settings.max_late / SECOND) : -1,
		 (int) (world.variants[variant].settings.overdue_after / SECOND), word);
	ledger_declared(&world.variants[variant].plan, &world.variants[variant].settings, word);
}

/*
 * check_early - no call before next_at succeeds, if nothing happens until then
 */
static void
check_early(const ShedlockTick *last, const ShedlockJob *job, TimestampTz at, TimestampTz next_at)
{
	promise(at <= stage_clock || at >= next_at || !ledger_is_free(at) ||
			ShedlockFindDue(last, job, at).attempt == 0, "P8 next_at: no call before succeeds");
}

/*
 * check_next_at - what a refused call was told
 */
static void
check_next_at(TimestampTz next_at)
{
	TimestampTz now = stage_clock;
	TimestampTz ends = ledger_at_work() != 0 ? now + MINUTE : DT_NOEND;
	TimestampTz at = now;
	ShedlockTick last;
	ShedlockJob job;

	promise(next_at > now && next_at <= ends,
			"P8 next_at is in the future, and within a minute while a run is at work");
	promise(next_at != DT_NOEND || stage_lock.paused_until == DT_NOEND,
			"P8 next_at: none only in a pause without end");
	if (next_at == DT_NOEND)
		return;
	ShedlockLookUpJob(&world.name, &job);
	ShedlockLookUpTick(&world.name, &last);
	promise(next_at == ends ||
			(ledger_is_free(next_at) && ShedlockFindDue(&last, &job, next_at).attempt > 0),
			"P8 next_at: a call then succeeds");
	for (int i = 1; i < 5; i++)
	{
		at = ShedlockNextTick(&job.schedule, at);
		check_early(&last, &job, at, next_at);
		check_early(&last, &job, now + (next_at - now) / 5 * i, next_at);
	}
	check_early(&last, &job, stage_lock.lock_until, next_at);
	check_early(&last, &job, stage_lock.paused_until, next_at);
	check_early(&last, &job, last.retry_at, next_at);
	check_early(&last, &job, next_at - 1, next_at);
}

static void end(int64 run);
static void jump(int64 by);

/*
 * work - have a run do something that ends, or not
 */
static void
work(int64 token, int64 lease)
{
	Run		   *run = &world.runs[world.nruns];
	int64		takes = PICK(0, SECOND, some_time(MINUTE), some_time(world.cycle / 8), some_time(world.cycle),
							 some_time(3 * world.cycle));
	static const ShedlockOutcome outcomes[] = {
		SHEDLOCK_SUCCEEDED, SHEDLOCK_FAILED, SHEDLOCK_RUN_LOST, SHEDLOCK_CANCELLED, SHEDLOCK_RETURNED
	};

	if (world.nruns == RUNS_MAX)
		elog(ERROR, "too many runs");
	run->token = token;
	do
		run->outcome = outcomes[below(lengthof(outcomes))];
	while ((world.outcomes & (1 << run->outcome)) == 0);
	/* one that dies may still go on, and end after its lease */
	after(run->outcome == SHEDLOCK_RUN_LOST ? lease + takes : takes, end, world.nruns++);
}

static void
call(void)
{
	int64		lease = PICK(MINUTE, 10 * MINUTE, HOUR, 6 * HOUR);
	ShedlockRun run = {.request.name = world.name,.request.kind = SHEDLOCK_LEASED_RUN};
	ShedlockAnswer answer;
	bool		asks = chance(0.25);

	if (!ledger_is_declared())
		return;
	run.at_most = interval(lease);
	ShedlockBeginRun(&run, NULL, asks, &answer);
	world.now = Max(world.now, stage_clock - world.offset);
	ledger_passed();
	ledger_called();
	if (answer.beginning == SHEDLOCK_BEGUN)
	{
		note("run %d begins: tick %s attempt %d, lease %d s", (int) run.token,
			 pstrdup(timestamptz_to_str(run.tick)), run.attempt, (int) (lease / SECOND));
		ledger_begun(run.tick, run.attempt, run.token, stage_clock + lease);
		work(run.token, lease);
		return;
	}
	if (ledger_is_free(stage_clock))
	{
		promise(answer.beginning == SHEDLOCK_NOT_DUE, "a lock that is free is no reason to refuse");
		ledger_refused();
	}
	if (asks)
		check_next_at(answer.next_at);
}

/*
 * release - free the lock, as the end of a run does
 */
static void
release(void)
{
	stage_lock.kind = SHEDLOCK_RELEASED;
	stage_lock.lock_until = stage_clock;
}

static void
end(int64 run)
{
	int64		token = world.runs[run].token;
	ShedlockOutcome outcome = world.runs[run].outcome;

	if (ledger_at_work() != token)
		return;
	note("run %d ends: %s", (int) token, shedlock_outcome_names[outcome]);
	if (outcome == SHEDLOCK_CANCELLED)
	{
		ledger_cancelled();
		ShedlockCloseTick(&world.name, token);
	}
	release();
	(void) ShedlockEndTick(&world.name, token, outcome);
	ledger_ended(token, outcome);

	/* A time to retry lies far ahead then. */
	if (outcome == SHEDLOCK_FAILED && world.jumps && chance(0.3))
		after(SECOND, jump, -2 * HOUR);
}

static void
timer(int64 n)
{
	Caller	   *caller = &world.callers[n];
	const Rhythm *plan = &world.variants[Max(caller->variant, 0)].plan;
	int64		wait = caller->every;

	if (world.now < caller->stops || world.now >= caller->resumes)
	{
		if (chance(caller->declares))
			declare(caller->variant < 0 ? (int) below(world.nvariants) : caller->variant);
		call();
	}
	if (wait == 0)
		wait = plan_next(plan, stage_clock - caller->late) + caller->late - stage_clock;
	else if (caller->is_uneven)
		wait = (int64) ((double) wait * (0.8 + 0.4 * pg_prng_double(&prng)));
	if (world.is_whole && caller->late % SECOND == 0)
		wait -= wait % SECOND;
	after(Max(wait, SECOND), timer, n);
}

static void
watch(int64 arg)
{
	ShedlockStanding standing;
	ShedlockJob job;

	if (ledger_is_declared())
	{
		ShedlockLookUpJob(&world.name, &job);
		ShedlockFindStanding(&world.name, &job, &standing);
		if (standing.overdue_since != DT_NOEND)
			note("overdue since %d s", (int) ((standing.now - standing.overdue_since) / SECOND));
		ledger_watched(&standing);
	}
	after(30 * SECOND + some_time(world.cycle / 4), watch, 0);
}

/*
 * Acts, each of which comes again and again
 */
static void
declare_some(int64 arg)
{
	declare((int) below(world.nvariants));
}

static void
allow_again(int64 arg)
{
	TimestampTz tick;

	if (!ledger_is_declared())
		return;
	promise(ShedlockAllowTickAgain(&world.name, &tick), "again: of a job there is always a tick");
	note("again: %s", pstrdup(timestamptz_to_str(tick)));
	ledger_again();
}

static void
skip(int64 arg)
{
	ShedlockTick before;
	TimestampTz tick;

	MemoryContext context = CurrentMemoryContext;

	if (!ledger_is_declared())
		return;
	PG_TRY();
	{
		(void) ShedlockSkipTick(&world.name, &tick, &before);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		tick = DT_NOEND;
	}
	PG_END_TRY();
	note("skip: %s", pstrdup(timestamptz_to_str(tick)));
	ledger_skipped(tick);
}

static void
forget(int64 arg)
{
	if (!ledger_is_declared())
		return;
	note("forget");
	(void) ShedlockForgetJob(&world.name);
	ledger_forgot();
	after(PICK(SECOND, 30 * SECOND, some_time(HOUR)), declare_some, 0);
}

static void
claim(int64 arg)
{
	TimestampTz tick = stage_clock;
	ShedlockTick before;
	bool		claimed;

	if (chance(0.5))
		tick = plan_previous(&world.variants[below(world.nvariants)].plan, tick);
	claimed = ShedlockClaimTick(&world.name, tick, NULL, &before);
	note("claim %s: %d", pstrdup(timestamptz_to_str(tick)), claimed);
	ledger_claimed(tick, claimed);
}

static void
pause_or_resume(int64 arg)
{
	TimestampTz until = stage_clock;

	if (stage_lock.paused_until <= stage_clock)
		until = chance(0.5) ? DT_NOEND : stage_clock + SECOND + some_time(6 * HOUR);
	note("pause until %s", pstrdup(timestamptz_to_str(until)));
	if (!stage_lock.found)
	{
		stage_lock.found = true;
		stage_lock.kind = SHEDLOCK_RELEASED;
		stage_lock.lock_until = stage_lock.locked_at = stage_clock;
		stage_lock.keep_until = DT_NOBEGIN;
		stage_lock.locked_by = "";
	}
	stage_lock.paused_until = until;
	ledger_paused(until);
}

static void
force(int64 arg)
{
	int64		token = ledger_at_work();

	if (token == 0)
		return;
	note("force");
	ledger_cancelled();
	ShedlockCloseTick(&world.name, token);
	release();
	ledger_ended(token, SHEDLOCK_CANCELLED);
}

static void
jump(int64 by)
{
	world.offset += by ? by : PICK(-HOUR, -10 * MINUTE, -SECOND, 10 * MINUTE, HOUR, DAY, -DAY);
	stage_clock = world.now + world.offset;
	note("the clock jumps");
	ledger_jumped();
	ledger_passed();
}

static const Act acts[] = {declare_some, allow_again, skip, forget, claim, pause_or_resume, force, jump};

static int64
act_after(int act)
{
	return (int64) (-log(1.0 - pg_prng_double(&prng)) * (double) world.cycle / world.rates[act]) + SECOND;
}

static void
act(int64 n)
{
	acts[n] (0);
	after(act_after((int) n), act, n);
}

/*
 * start - make a world
 */
static void
start(void)
{
	int64		outcomes[] = {
		1 << SHEDLOCK_SUCCEEDED,
		1 << SHEDLOCK_SUCCEEDED | 1 << SHEDLOCK_FAILED,
		1 << SHEDLOCK_FAILED | 1 << SHEDLOCK_RUN_LOST,
		1 << SHEDLOCK_SUCCEEDED | 1 << SHEDLOCK_FAILED | 1 << SHEDLOCK_RUN_LOST |
		1 << SHEDLOCK_CANCELLED | 1 << SHEDLOCK_RETURNED
	};
	static const double rates[][lengthof(acts)] = {
		/* declare, again, skip, forget, claim, pause, force, jump */
		{0},
		{1},
		{5},
		{1, 0, 0, 0.5},
		{0.5, 0.5, 1},
		{2, 1, 0.5, 0, 0.5, 1, 0.5},
		{0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3},
		{1, 1, 0.3, 0, 0.3, 0, 0, 0.5}
	};
	int			alternates;

	world.offset = world.nevents = world.number = world.nruns = 0;
	world.is_whole = chance(0.5);
	world.nvariants = (int) PICK(1, 2, 2, 3);
	for (int i = 0; i < world.nvariants; i++)
	{
		random_plan(&world.variants[i].plan);
		random_settings(&world.variants[i].settings);
	}
	if (chance(0.3))
	{
		world.variants[world.nvariants] = world.variants[0];
		random_settings(&world.variants[world.nvariants++].settings);
	}
	world.cycle = world.variants[0].plan.cycle;
	world.now = 9600 * DAY + below(DAY / SECOND) * SECOND + some_time(SECOND);
	world.end = world.now + CYCLES * world.cycle;
	world.outcomes = (int) pick(outcomes, lengthof(outcomes));
	memcpy(world.rates, rates[below(lengthof(rates))], sizeof(world.rates));
	world.jumps = world.rates[lengthof(acts) - 1] > 0;
	stage_reset(world.now);
	ledger_reset();

	/* a caller for each variant, that declares it, or all alike */
	alternates = (int) below(4);
	world.ncallers = alternates == 0 ? Min(world.nvariants, CALLERS_MAX) : (int) PICK(1, 2);
	for (int i = 0; i < world.ncallers; i++)
	{
		Caller	   *caller = &world.callers[i];
		int64		cycle = world.cycle;

		memset(caller, 0, sizeof(*caller));
		caller->variant = alternates == 0 ? i : -1;
		caller->declares = alternates == 0 ? 1 : (double) PICK(0, 0, 0, 0, 20, 100) / 100;
		caller->every = PICK(0, cycle / 60, cycle / 20, cycle / 7, cycle / 2, cycle, 2 * cycle);
		caller->late = PICK(0, 0, SECOND * 2 / 5, -SECOND * 3 / 2, -40 * SECOND, 3 * SECOND, 70 * SECOND);
		caller->is_uneven = chance(0.5);
		if (chance(0.3))
		{
			caller->stops = world.now + some_time(CYCLES * cycle);
			caller->resumes = caller->stops + some_time(6 * cycle);
		}
		after(some_time(cycle), timer, i);
	}
	for (int i = 0; i < (int) lengthof(acts); i++)
	{
		if (world.rates[i] > 0)
			after(act_after(i), act, i);
	}
	after(MINUTE, watch, 0);
	if (chance(0.2))
		claim(0);
	declare(0);
	if (chance(0.3))
		allow_again(0);
}

/*
 * live - live a world
 */
static void
live(int64 number, bool stops)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "world", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	world_seed = number;
	pg_prng_seed(&prng, (uint64) number);
	ShedlockMakeName(InvalidOid, pstrdup("job"), &world.name);
	start();
	while (world.nevents > 0 && !(stops && world_broken))
	{
		Event		event = world.events[--world.nevents];
		MemoryContext moment = AllocSetContextCreate(context, "moment", ALLOCSET_DEFAULT_SIZES);

		if (event.at > world.end)
			break;
		MemoryContextSwitchTo(moment);
		world.now = Max(world.now, event.at);
		stage_clock = world.now + world.offset;
		ledger_passed();
		event.act(event.arg);
		MemoryContextSwitchTo(context);
		MemoryContextDelete(moment);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

PG_FUNCTION_INFO_V1(live_worlds);
/*
 * live_worlds(first, count, until_broken) - live so many worlds
 *
 * until_broken: no more after one has broken a promise.  Returns a line for each promise: how
 * often it was checked, how often broken, the first world that broke it, and its text.
 */
Datum
live_worlds(PG_FUNCTION_ARGS)
{
	int64		first = PG_GETARG_INT64(0);
	int32		count = PG_GETARG_INT32(1);
	StringInfoData buf;

	promised = 0;
	story = NULL;
	for (int64 i = first; i < first + count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		live(i, false);
		if (PG_GETARG_BOOL(2) && world_broken)
			break;
	}
	initStringInfo(&buf);
	for (int i = 0; i < promised; i++)
		appendStringInfo(&buf, INT64_FORMAT "\t" INT64_FORMAT "\t" INT64_FORMAT "\t%s\n",
						 promises[i].checked, promises[i].broken, promises[i].world, promises[i].what);
	PG_RETURN_TEXT_P(cstring_to_text(buf.data));
}

PG_FUNCTION_INFO_V1(tell_world);
/*
 * tell_world(number) - what happens in a world until it breaks a promise
 */
Datum
tell_world(PG_FUNCTION_ARGS)
{
	promised = 0;
	story = makeStringInfo();
	live(PG_GETARG_INT64(0), true);
	PG_RETURN_TEXT_P(cstring_to_text(story->data));
}

PG_FUNCTION_INFO_V1(previous_tick);
/*
 * previous_tick(schedule, time_zone, at) - the last tick at an instant or before it
 *
 * Returns null if there is none.
 */
Datum
previous_tick(PG_FUNCTION_ARGS)
{
	ShedlockSchedule schedule;
	TimestampTz tick;

	(void) ShedlockParseSchedule(text_to_cstring(PG_GETARG_TEXT_PP(0)),
								 text_to_cstring(PG_GETARG_TEXT_PP(1)), false, &schedule);
	tick = ShedlockPreviousTick(&schedule, PG_GETARG_TIMESTAMPTZ(2));
	if (tick == DT_NOBEGIN)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(tick);
}
