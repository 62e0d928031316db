/*-------------------------------------------------------------------------
 *
 * declare.c
 *	  Declares jobs, and forgets them.
 *
 * What is declared again as it is changes nothing, and takes neither a lock on the row nor a
 * transaction ID.  A change locks the row as an UPDATE does, and nothing else: no tick and no
 * advisory lock.  Until it commits, calls go by what was declared before.
 *
 * No declaration writes the state of the ticks, which a run at work may be about to write: see
 * src/README for what it says instead.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "job/job.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_JOB_COLUMNS(SHEDLOCK_ATTNUM)
};

/*
 * Who declares a job and calls it in one go, as a crontab does with its program, may do so a
 * moment after the tick.
 */
#define FRESH_MAX		USECS_PER_MINUTE

/* Changes that come sooner after each other are counted. */
#define TURN_MAX		USECS_PER_HOUR

/*
 * add_change - say that a setting changes, if its texts differ
 *
 * before, after: NULL for none.
 */
static void
add_change(StringInfo changes, const char *setting, const char *before, const char *after)
{
	if (before == after || (before && after && strcmp(before, after) == 0))
		return;
	appendStringInfo(changes, "%s%s", changes->len > 0 ? ", " : "", setting);
	if (before)
		appendStringInfo(changes, " from \"%s\"", before);
	if (after)
		appendStringInfo(changes, " to \"%s\"", after);
	else
		appendStringInfoString(changes, " to null");
}

/*
 * duration_text - a duration, so that durations of one length have one text; NULL for none
 */
static const char *
duration_text(const Interval *span)
{
	Interval	whole = {0};

	if (span == NULL)
		return NULL;
	whole.time = ShedlockIntervalMicroseconds(span);
	whole.day = (int32) (whole.time / USECS_PER_DAY);
	whole.time %= USECS_PER_DAY;
	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&whole)));
}

/*
 * changes_schedule - is a job declared with another schedule than before?
 */
static bool
changes_schedule(const ShedlockJob *old, const ShedlockJob *job)
{
	return !old->is_readable || !ShedlockSameSchedule(&old->schedule, &job->schedule);
}

/*
 * counts_ahead - do ticks count only from a time on that is to come?
 *
 * The clock was set back after the job was declared.
 */
static bool
counts_ahead(const ShedlockJob *job, TimestampTz now)
{
	return job->since > now + FRESH_MAX;
}

/*
 * find_changes - what a declaration changes, for people to read; "" for nothing
 */
static const char *
find_changes(const ShedlockJob *old, const ShedlockJob *job)
{
	StringInfoData changes;

	initStringInfo(&changes);
	if (changes_schedule(old, job))
	{
		add_change(&changes, "schedule", old->schedule_text, job->schedule_text);
		add_change(&changes, "time_zone", old->time_zone, job->time_zone);
	}
	add_change(&changes, "attempts", psprintf("%d", old->attempts), psprintf("%d", job->attempts));
	add_change(&changes, "backoff", duration_text(old->backoff), duration_text(job->backoff));
	add_change(&changes, "catch_up", old->catch_up, job->catch_up);
	add_change(&changes, "max_late", duration_text(old->max_late), duration_text(job->max_late));
	add_change(&changes, "overdue_after", duration_text(old->overdue_after),
			   duration_text(job->overdue_after));
	add_change(&changes, "slow_after", duration_text(old->slow_after),
			   duration_text(job->slow_after));
	add_change(&changes, "lock_at_most_for", duration_text(old->at_most),
			   duration_text(job->at_most));
	add_change(&changes, "lock_at_least_for", duration_text(old->at_least),
			   duration_text(job->at_least));
	add_change(&changes, "description", old->description, job->description);
	if (changes.len == 0 && !old->is_readable)
		appendStringInfoString(&changes, "what could not be read");
	if (counts_ahead(old, GetCurrentTimestamp()))
		appendStringInfo(&changes, "%sits ticks counted only after %s", changes.len > 0 ? ", " : "",
						 ShedlockTimeString(old->since));
	return changes.data;
}

/*
 * count_from - set the time after which ticks of a schedule count that is new
 *
 * Of periods the current one counts, unless it is too late for it, or a run or claim of the
 * name began in it; and after another schedule unless one began less than a period ago.  Whoever
 * says from when on periods count names their begins, as with a cron expression.
 */
static void
count_from(ShedlockJob *job, const ShedlockJob *old, const ShedlockTick *last, TimestampTz now)
{
	TimestampTz begin;

	if (job->schedule.period == 0 || job->schedule.has_from)
	{
		job->since = now - FRESH_MAX;
		return;
	}
	begin = ShedlockPreviousTick(&job->schedule, now);
	if (TIMESTAMP_NOT_FINITE(begin) || now > ShedlockLastTime(begin, job) ||
		last->claimed_at >= (old->found ? now - job->schedule.period + 1 : begin))
		job->since = now;
	else
		job->since = begin - 1;
}

/*
 * find_carried - the tick of the schedule before that is due, and was not begun
 *
 * Of a backlog it is the last one.  One of the future was due before the clock was set back.
 */
static TimestampTz
find_carried(const ShedlockJob *old, const ShedlockTick *last, TimestampTz now)
{
	TimestampTz tick;

	if (old->is_readable)
	{
		tick = ShedlockPreviousTick(&old->schedule, now);
		if (tick > Max(ShedlockOpenTick(last, old), old->since) &&
			tick != last->skipped && now <= ShedlockLastTime(tick, old))
			return tick;
	}
	return old->carried <= now ? old->carried : DT_NOBEGIN;
}

/*
 * find_dropped - the last tick that would still have been run, if it is not the one that is
 * carried; DT_NOBEGIN for none
 *
 * It may have attempts left.
 */
static TimestampTz
find_dropped(const ShedlockJob *old, const ShedlockTick *last, TimestampTz carried, TimestampTz now)
{
	bool		is_new = carried != old->carried;
	TimestampTz tick;

	if (!old->is_readable || !old->catch_up_all)
		return DT_NOBEGIN;
	tick = ShedlockPreviousTick(&old->schedule, is_new ? carried - 1 : now);
	if (tick == last->skipped && tick != DT_NOBEGIN)
		tick = ShedlockPreviousTick(&old->schedule, tick - 1);
	if (tick > Max(old->since, ShedlockOpenTick(last, old)) && ShedlockLastTime(tick, old) >= now)
		return tick;

	/* A tick that is carried ends the attempts at those before it. */
	return is_new && !TIMESTAMP_IS_NOEND(ShedlockNextAttempt(last, old, now)) ?
		ShedlockOpenTick(last, old) : DT_NOBEGIN;
}

/*
 * fill_in - set what a declaration says of itself and of its ticks
 *
 * Returns the last tick that gets no further run because the schedule changes; DT_NOBEGIN for none.
 */
static TimestampTz
fill_in(const ShedlockName *name, ShedlockJob *job, const ShedlockJob *old)
{
	TimestampTz now = GetCurrentTimestamp();
	ShedlockTick last;

	job->name = name->str;
	job->declared_at = now;
	job->declared_by = GetUserNameFromId(GetUserId(), false);
	job->created_at = old->found ? old->created_at : now;
	job->created_by = old->found ? old->created_by : job->declared_by;
	job->turns = old->found && now - old->declared_at < TURN_MAX ? old->turns + 1 : 0;
	job->since = old->since;
	job->carried = old->found ? old->carried : DT_NOBEGIN;
	job->spent_token = old->spent_token;
	if (old->found && !changes_schedule(old, job) && !counts_ahead(old, now))
		return DT_NOBEGIN;
	ShedlockLookUpTick(name, &last);
	count_from(job, old, &last, now);
	if (!old->found)
	{
		job->spent_token = last.token;
		return DT_NOBEGIN;
	}
	job->carried = find_carried(old, &last, now);
	return find_dropped(old, &last, job->carried, now);
}

/*
 * write_job - write a declaration to the row that the store read last, or insert it
 *
 * As ShedlockWrite(), which waits for a row lock here.
 */
static bool
write_job(ShedlockStore *store, const ShedlockJob *row)
{
	ShedlockColumns columns;

	ShedlockNewColumns(store, &columns);
	SHEDLOCK_JOB_COLUMNS(SHEDLOCK_TO_COLUMNS);
	return ShedlockWrite(store, &columns, true);
}

/*
 * ShedlockMayChange - may the caller change a job, or forget it?
 *
 * With role_prefix, a role that may use the name may.  Otherwise a role needs the privileges of the
 * role that created the job; if that is gone, only superusers may.
 */
bool
ShedlockMayChange(const ShedlockJob *job)
{
	Oid			creator;

	if (shedlock_role_prefix)
		return true;
	creator = get_role_oid(job->created_by, true);
	return OidIsValid(creator) ? has_privs_of_role(GetUserId(), creator) : superuser();
}

/*
 * check_may_change - raise an error unless the caller may change a job
 *
 * Errors: 42501.
 */
static void
check_may_change(const ShedlockName *name, const ShedlockJob *job)
{
	if (!ShedlockMayChange(job))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for job \"%s\"", name->str),
				 errdetail("Role \"%s\" has created it.", job->created_by),
				 errhint("Only a role that has the privileges of that role, or a superuser, can change or forget it.")));
}

/*
 * ShedlockDeclare - declare a job
 *
 * job: its settings, which are checked; the rest is set here.  change: NULL, or it sets them by
 * what is declared so far, again if that has changed meanwhile.  Returns "created", "changed" or
 * "unchanged".  Of two first declarations the second waits for the first, and is compared with
 * it.  Errors: 42501; those of ShedlockCheckPromises() and ShedlockAwaitInserter().  Locks: the
 * row, if it is written; waits for a row lock as an UPDATE does.
 */
const char *
ShedlockDeclare(const ShedlockName *name, ShedlockJob *job,
				void (*change) (const ShedlockJob *old, void *arg, ShedlockJob *job), void *arg)
{
	ShedlockStore store;
	ShedlockJob old;
	const char *changes;
	TimestampTz dropped;
	bool		written = false;
	int			tries = 0;

	ShedlockOpen(&store, name->nsp, "_shedlock_job", RowExclusiveLock);
	ShedlockCheckPromises(&store);
	while (!written)
	{
		ShedlockReadJob(&store, name, &old);
		if (change)
			change(&old, arg, job);
		changes = old.found ? find_changes(&old, job) : NULL;
		if (changes && changes[0] == '\0')
		{
			ShedlockClose(&store, RowExclusiveLock);
			return "unchanged";
		}
		if (old.found)
			check_may_change(name, &old);
		dropped = fill_in(name, job, &old);
		written = write_job(&store, job);
		if (!written && !old.found)
			ShedlockAwaitInserter(&store, name, &tries);
	}
	ShedlockClose(&store, NoLock);
	if (changes)
		ereport(LOG,
				(errmsg("job \"%s\" changed by role %s: %s", name->str, ShedlockActingRole(), changes)));
	else
		ereport(LOG,
				(errmsg("job \"%s\" created by role %s: schedule \"%s\", time_zone \"%s\"", name->str,
						ShedlockActingRole(), job->schedule_text, job->time_zone)));
	if (dropped != DT_NOBEGIN)
		ereport(WARNING,
				(errmsg("ticks of job \"%s\" up to %s get no further run", name->str, ShedlockTimeString(dropped)),
				 errdetail("When its schedule changes, the last tick that is due is still run, and none before it.")));
	ShedlockCommitDurably();
	return changes ? "changed" : "created";
}

/*
 * ShedlockForgetJob - delete a declaration
 *
 * The state of its ticks stays, so that none of them is run twice if the job is declared again.
 * Returns false if the name has no job.  Errors: 42501.  Waits for a row lock as a DELETE does.
 */
bool
ShedlockForgetJob(const ShedlockName *name)
{
	ShedlockStore store;
	ShedlockJob job;

	ShedlockOpen(&store, name->nsp, "_shedlock_job", RowExclusiveLock);
	do
	{
		CHECK_FOR_INTERRUPTS();
		ShedlockReadJob(&store, name, &job);
		if (job.found)
			check_may_change(name, &job);
	} while (job.found && !ShedlockDelete(&store, true));
	ShedlockClose(&store, NoLock);
	if (job.found)
		ereport(LOG,
				(errmsg("job \"%s\" forgotten by role %s", name->str, ShedlockActingRole())));
	return job.found;
}
