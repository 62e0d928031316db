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
#include "mb/pg_wchar.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/timestamp.h"

/*
 * ShedlockTells - are listeners told of an event that is normal, like success, or of any other?
 */
bool
ShedlockTells(bool is_normal)
{
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
 * add_name - add a name, in ASCII if its characters are known
 *
 * The server ends the connection of a listener whose encoding lacks a character.
 */
static void
add_name(StringInfo payload, const char *name)
{
	int			start = payload->len;
	char	   *utf8;

	add_text(payload, "name", name);
	if (GetDatabaseEncoding() != PG_UTF8)
		return;
	utf8 = pstrdup(payload->data + start);
	payload->len = start;
	for (const char *c = utf8; *c; c += pg_encoding_mblen(PG_UTF8, c))
	{
		pg_wchar	wide = utf8_to_unicode((const unsigned char *) c);

		if (wide < 0x80)
			appendStringInfoChar(payload, *c);
		else if (wide < 0x10000)
			appendStringInfo(payload, "\\u%04x", wide);
		else
			appendStringInfo(payload, "\\u%04x\\u%04x", 0xD800 + ((wide - 0x10000) >> 10),
							 0xDC00 + (wide & 0x3FF));
	}
	pfree(utf8);
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
		add_name(payload, name->str);
	add_text(payload, "token", token == 0 ? NULL : psprintf(INT64_FORMAT, token));
}

/*
 * add_run - add an event of a run, as the history has it, to a list of payloads
 *
 * before: the ticks of the name before another run began, or NULL.  Another attempt at
 * the tick is to come only if none has begun.
 */
static List *
add_run(List *events, const char *event, Oid nsp,
		const ShedlockHistoryRun *run, const ShedlockTick *before)
{
	TimestampTz retry_at = DT_NOEND;
	int			attempts = 0;
	StringInfoData payload;
	ShedlockName name;

	ShedlockMakeName(nsp, run->name, &name);
	if (run->attempt > 0)
	{
		ShedlockJob job;
		ShedlockTick last;

		ShedlockLookUpJob(&name, &job);
		if (before)
			last = *before;
		else
			ShedlockLookUpTick(&name, &last);
		if (last.token == run->token && job.found)
		{
			attempts = job.attempts;
			if (before == NULL && run->outcome != SHEDLOCK_RUNNING)
				retry_at = ShedlockNextAttempt(&last, &job, GetCurrentTimestamp());
		}
	}
	begin_payload(&payload, event, &name, run->token);
	add_time(&payload, "tick", run->tick);
	add_number(&payload, "attempt", run->attempt > 0 ? &run->attempt : NULL);
	add_number(&payload, "attempts", attempts > 0 ? &attempts : NULL);
	add_time(&payload, "next_attempt_at", retry_at == DT_NOEND ? DT_NOBEGIN : retry_at);
	add_text(&payload, "sqlstate", run->sqlstate);
	add_time(&payload, "started_at", run->started_at);
	add_time(&payload, "ended_at", run->ended_at);
	add_number(&payload, "exit_code", run->exit_code);
	appendStringInfoChar(&payload, '}');
	return lappend(events, payload.data);
}

/*
 * ShedlockEndEvents - what to tell of the end of a run; before: as for add_run()
 */
List *
ShedlockEndEvents(Oid nsp, int64 token, const ShedlockTick *before)
{
	List	   *events = NIL;
	ShedlockHistoryRun run;

	if (shedlock_notify == SHEDLOCK_NOTIFY_NONE)
		return NIL;
	ShedlockHistoryRead(nsp, token, &run);
	if (run.outcome <= SHEDLOCK_RUNNING)
		return NIL;
	if (ShedlockTells(run.outcome == SHEDLOCK_SUCCEEDED || run.outcome == SHEDLOCK_RETURNED))
		events = add_run(events, shedlock_outcome_names[run.outcome], nsp, &run, before);
	if (run.gave_up)
		events = add_run(events, "gave up", nsp, &run, before);
	return events;
}

/*
 * ShedlockTell - tell of these events when the transaction commits
 */
void
ShedlockTell(const List *events)
{
	const ListCell *lc;

	foreach(lc, events)
		ShedlockNotifyAtCommit(lfirst(lc));
}

/*
 * ShedlockTellRun - tell an event of a run, other than its end; before: as for add_run()
 */
void
ShedlockTellRun(const char *event, bool is_normal, Oid nsp, int64 token, const ShedlockTick *before)
{
	ShedlockHistoryRun run;

	if (!ShedlockTells(is_normal))
		return;
	ShedlockHistoryRead(nsp, token, &run);
	if (run.token != 0)
		ShedlockTell(add_run(NIL, event, nsp, &run, before));
}

/*
 * ShedlockTellEnd - tell how a run ended; as ShedlockEndEvents()
 */
void
ShedlockTellEnd(Oid nsp, int64 token, const ShedlockTick *before)
{
	ShedlockTell(ShedlockEndEvents(nsp, token, before));
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

	if (!ShedlockTells(false))
		return;
	begin_payload(&payload, event, name, token);
	if (until != DT_NOBEGIN)
		add_time(&payload, "paused_until", until);
	appendStringInfoChar(&payload, '}');
	ShedlockNotifyAtCommit(payload.data);
}
