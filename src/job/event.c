/*-------------------------------------------------------------------------
 *
 * event.c
 *	  Tells listeners what became of a run or a lock.
 *
 * The payload is a JSON object.  Anybody may LISTEN, so it has neither commands nor
 * messages; and with shedlock.role_prefix it has no name, which other tenants must not
 * see.  Its length is bounded by that of a name.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "job/job.h"
#include "lib/stringinfo.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/timestamp.h"

/*
 * ShedlockTells - are listeners told of such an event?
 */
bool
ShedlockTells(const char *event)
{
	bool		is_normal = strcmp(event, "started") == 0 || strcmp(event, "succeeded") == 0;

	return shedlock_notify == SHEDLOCK_NOTIFY_ALL ||
		(shedlock_notify == SHEDLOCK_NOTIFY_FAILURES && !is_normal);
}

/*
 * add_text - add a text; NULL is null
 */
static void
add_text(StringInfo payload, const char *key, const char *value)
{
	appendStringInfo(payload, ",\"%s\":", key);
	if (value)
		escape_json(payload, value);
	else
		appendStringInfoString(payload, "null");
}

/*
 * add_number - add a number; NULL is null
 */
static void
add_number(StringInfo payload, const char *key, const int32 *value)
{
	if (value)
		appendStringInfo(payload, ",\"%s\":%d", key, *value);
	else
		add_text(payload, key, NULL);
}

/*
 * add_time - add a time, in UTC; DT_NOBEGIN is null
 */
static void
add_time(StringInfo payload, const char *key, TimestampTz when)
{
	const int	utc = 0;
	char		buf[MAXDATELEN + 1];

	add_text(payload, key, when == DT_NOBEGIN ? NULL :
			 JsonEncodeDateTime(buf, TimestampTzGetDatum(when), TIMESTAMPTZOID, &utc));
}

/*
 * begin_payload - begin an object
 *
 * The token is a string, because JavaScript rounds large numbers.  0 is null.
 */
static void
begin_payload(StringInfo payload, const char *event, const ShedlockName *name, int64 token)
{
	initStringInfo(payload);
	appendStringInfoString(payload, "{\"v\":1");
	add_text(payload, "event", event);
	if (!shedlock_role_prefix)
		add_text(payload, "name", name->str);
	add_text(payload, "token", token == 0 ? NULL : psprintf(INT64_FORMAT, token));
}

/*
 * end_payload - end the object, and send it when the transaction commits
 */
static void
end_payload(StringInfo payload)
{
	appendStringInfoChar(payload, '}');
	ShedlockNotifyAtCommit(payload->data);
	pfree(payload->data);
}

/*
 * tell_run - tell of a run, as the log has it
 */
static void
tell_run(const char *event, const ShedlockName *name, const ShedlockLogged *run)
{
	TimestampTz retry_at = DT_NOEND;
	int			attempts = 0;
	StringInfoData payload;
	ShedlockTick last;

	if (!ShedlockTells(event))
		return;
	ShedlockLookUpTick(name, &last);
	if (last.found && last.token == run->token && last.has_plan)
	{
		attempts = last.plan.attempts;
		if (strcmp(run->outcome, "running") != 0)
			retry_at = ShedlockNextAttempt(&last, &last.plan, GetCurrentTimestamp());
	}
	begin_payload(&payload, event, name, run->token);
	add_time(&payload, "tick", run->tick);
	add_number(&payload, "attempt", run->attempt > 0 ? &run->attempt : NULL);
	add_number(&payload, "attempts", attempts > 0 ? &attempts : NULL);
	add_time(&payload, "next_attempt_at", retry_at == DT_NOEND ? DT_NOBEGIN : retry_at);
	add_text(&payload, "sqlstate", run->sqlstate);
	add_time(&payload, "started_at", run->started_at);
	add_time(&payload, "ended_at", run->ended_at);
	add_number(&payload, "exit_code", run->exit_code);
	end_payload(&payload);
}

/*
 * ShedlockTellBegin - tell that a run has begun
 */
void
ShedlockTellBegin(const ShedlockName *name, int64 token)
{
	ShedlockLogged run;

	if (!ShedlockTells("started"))
		return;
	ShedlockHistoryRead(name->nsp, token, &run);
	if (run.token != 0)
		tell_run("started", name, &run);
}

/*
 * ShedlockTellEnd - tell how a run ended, and whether no attempt follows
 *
 * Tells nothing of a run that is not logged, or is still at work according to the log.
 */
void
ShedlockTellEnd(const ShedlockName *name, int64 token)
{
	ShedlockLogged run;

	if (shedlock_notify == SHEDLOCK_NOTIFY_NONE)
		return;
	ShedlockHistoryRead(name->nsp, token, &run);
	if (run.token == 0 || strcmp(run.outcome, "running") == 0)
		return;
	tell_run(run.outcome, name, &run);
	if (run.gave_up)
		tell_run("gave up", name, &run);
}

/*
 * ShedlockTellGaveUp - tell that no attempt follows a run whose end was told before
 */
void
ShedlockTellGaveUp(const ShedlockName *name, int64 token)
{
	ShedlockLogged run;

	if (!ShedlockTells("gave up"))
		return;
	ShedlockHistoryRead(name->nsp, token, &run);
	if (run.token != 0)
		tell_run("gave up", name, &run);
}

/*
 * ShedlockTellLock - tell what an administrator did to a lock
 *
 * token: of its last acquisition, or 0.  until: end of a pause, or DT_NOBEGIN.
 */
void
ShedlockTellLock(const char *event, const ShedlockName *name, int64 token,
				 TimestampTz until)
{
	StringInfoData payload;

	if (!ShedlockTells(event))
		return;
	begin_payload(&payload, event, name, token);
	if (until != DT_NOBEGIN)
		add_time(&payload, "paused_until", until);
	end_payload(&payload);
}
