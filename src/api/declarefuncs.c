/*-------------------------------------------------------------------------
 *
 * declarefuncs.c
 *	  The SQL functions that say what a job is, and what becomes of its ticks.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/api.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(shedlock_job);
/*
 * shedlock_job(name, schedule, time_zone, attempts, backoff, catch_up, max_late, overdue_after,
 * slow_after, lock_at_most_for, lock_at_least_for, description) - declare a job
 *
 * A call in a read-only transaction fails after its arguments were checked: so clients can
 * have them checked.
 */
Datum
shedlock_job(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	ShedlockJob job;

	ShedlockGetName(fcinfo, 0, &name);
	ShedlockGetJob(fcinfo, name.str, &job);
	ShedlockCheckMayWrite("shedlock_job()");
	PG_RETURN_TEXT_P(cstring_to_text(ShedlockDeclare(&name, &job, NULL, NULL)));
}

/*
 * report_no_tick - warn that there is no tick to speak of
 */
static void
report_no_tick(const ShedlockName *name)
{
	ShedlockJob job;

	ShedlockLookUpJob(name, &job);
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 job.found ? errmsg("job \"%s\" has no tick that could be run", name->str) :
			 errmsg("\"%s\" is no job, and no tick of it was claimed", name->str)));
}

PG_FUNCTION_INFO_V1(shedlock_again);
/*
 * shedlock_again(name) - allow the last tick to be claimed or run once more
 */
Datum
shedlock_again(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	TimestampTz tick;
	bool		allowed;

	ShedlockBeginCall(fcinfo, "shedlock_again()", &name);
	allowed = ShedlockAllowTickAgain(&name, &tick);
	if (allowed)
	{
		ereport(LOG,
				(errmsg("one more attempt at tick %s of lock \"%s\" allowed by role %s",
						ShedlockTimeString(tick), name.str, ShedlockActingRole())));
		ShedlockRunSoon(fcinfo, &name);
	}
	else
		report_no_tick(&name);
	PG_RETURN_BOOL(allowed);
}

PG_FUNCTION_INFO_V1(shedlock_skip);
/*
 * shedlock_skip(name, reason) - use up the coming tick of a job, or the one that is due
 *
 * Returns it.  Said twice it changes nothing.
 */
Datum
shedlock_skip(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	ShedlockJob job;
	ShedlockTick before;
	TimestampTz tick;
	char	   *reason;
	bool		is_new;

	ShedlockBeginCall(fcinfo, "shedlock_skip()", &name);
	reason = ShedlockGetText(fcinfo, 1, SHEDLOCK_REASON_MAX, "reason");
	ShedlockLookUpJob(&name, &job);
	if (!job.found)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("job \"%s\" does not exist", name.str),
				 errhint("Declare it with shedlock_job.")));
	is_new = ShedlockSkipTick(&name, &tick, &before);
	if (tick == DT_NOEND)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job \"%s\" has no tick to come", name.str)));
	if (is_new)
	{
		if (before.found && ShedlockGiveUpTick(&name, &before))
			ShedlockTellRun("gave up", false, name.nsp, before.token, &before);
		ShedlockHistorySkip(&name, tick, reason);
		ereport(LOG,
				(errmsg("tick %s of job \"%s\" skipped by role %s%s%s", ShedlockTimeString(tick), name.str,
						ShedlockActingRole(), reason ? ": " : "", reason ? reason : "")));
		ShedlockTellLock("skipped", &name, 0, DT_NOBEGIN);
	}
	PG_RETURN_TIMESTAMPTZ(tick);
}

PG_FUNCTION_INFO_V1(shedlock_forget);
/*
 * shedlock_forget(name) - forget a job that is no more
 *
 * Its counters, too; the state of its ticks stays until it is purged.
 */
Datum
shedlock_forget(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	bool		found;

	ShedlockBeginCall(fcinfo, "shedlock_forget()", &name);
	if (ShedlockGuardedJobs(fcinfo, &name) != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("job \"%s\" is a guarded job of pg_cron", name.str),
				 errhint("End its guard with shedlock_cron_unguard, which forgets it, too.")));
	found = ShedlockForgetJob(&name);
	if (found)
		(void) ShedlockResetStats(name.nsp, name.str);
	else
	{
		ShedlockTick last;

		/* What runs of a job have left keeps them from being run twice. */
		ShedlockLookUpTick(&name, &last);
		if (last.found && last.token == 0)
		{
			if (!is_member_of_role(GetUserId(), ShedlockOwner(fcinfo)))
				ereport(ERROR,
						(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						 errmsg("permission denied to forget the ticks of lock \"%s\"", name.str),
						 errdetail("It is no job: only the owner of the extension and superusers can forget what was claimed.")));
			found = ShedlockForgetTick(&name);
		}
	}
	if (!found)
		report_no_tick(&name);
	PG_RETURN_BOOL(found);
}
