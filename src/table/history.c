/*-------------------------------------------------------------------------
 *
 * history.c
 *	  The history: the row of a run.
 *
 * The transaction that acquires the lock of a run records it as running, and the one that
 * releases the lock records the outcome (I6).  A process that dies writes no tables (I10):
 * its run stays recorded as running until the lock's next acquirer records it as lost.  The
 * view shows it as lost at once (outcome.c).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_HISTORY_COLUMNS(SHEDLOCK_ATTNUM)
};

/* Bytes of a command that are kept. */
#define COMMAND_MAX		8192

const char *const shedlock_outcome_names[] = {
	[SHEDLOCK_NO_RUN] = "no longer in the history",
	[SHEDLOCK_RUNNING] = "running",
	[SHEDLOCK_SUCCEEDED] = "succeeded",
	[SHEDLOCK_FAILED] = "failed",
	[SHEDLOCK_TIMED_OUT] = "timed out",
	[SHEDLOCK_CANCELLED] = "cancelled",
	[SHEDLOCK_RETURNED] = "returned",
	[SHEDLOCK_SKIPPED] = "skipped",
	[SHEDLOCK_RUN_LOST] = "lost",
	[SHEDLOCK_RUN_UNKNOWN] = "unknown",
};

/*
 * ShedlockFindOutcome - the outcome that a text names, of those that are recorded, or
 * SHEDLOCK_NO_RUN
 */
ShedlockOutcome
ShedlockFindOutcome(const char *text)
{
	for (int i = SHEDLOCK_RUNNING; i <= SHEDLOCK_RUN_LOST; i++)
	{
		if (strcmp(text, shedlock_outcome_names[i]) == 0)
			return (ShedlockOutcome) i;
	}
	return SHEDLOCK_NO_RUN;
}

/*
 * ShedlockClip - copy at most max bytes of a text, and its length if it has more
 *
 * to: room for max + SHEDLOCK_CLIP_NOTE bytes.  Allocates nothing and cannot fail.
 */
void
ShedlockClip(char *to, const char *str, int max)
{
	int			len = (int) strlen(str);

	if (len <= max)
		memcpy(to, str, (size_t) len + 1);
	else
		snprintf(to, (size_t) max + SHEDLOCK_CLIP_NOTE, "%.*s... (%d bytes)",
				 pg_mbcliplen(str, len, max), str, len);
}

/*
 * set_clipped - set a column to a text that any role can make as long as it likes
 */
static void
set_clipped(ShedlockColumns *columns, int attnum, const char *str, int max)
{
	char	   *clipped = palloc((Size) max + SHEDLOCK_CLIP_NOTE);

	ShedlockClip(clipped, str, max);
	ShedlockSetColumn(columns, attnum, CStringGetTextDatum(clipped));
}

/*
 * set_text_if_given - set a column to a text; NULL leaves it null in a new row, and
 * unchanged in an update
 */
static void
set_text_if_given(ShedlockColumns *columns, int attnum, const char *str)
{
	if (str)
		ShedlockSetColumn(columns, attnum, CStringGetTextDatum(str));
}

/*
 * insert_run - insert the row of a run, or of what stands for one
 *
 * Errors: 23505 if the token was drawn twice.
 */
static void
insert_run(ShedlockStore *store, const ShedlockColumns *columns, int64 token)
{
	if (!ShedlockInsertNew(store, columns))
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("token " INT64_FORMAT " is in the history already", token),
				 errhint("The sequence shedlock_token_seq was set back.")));
}

/*
 * ShedlockHistoryStart - record a run whose lock was acquired
 *
 * row: as the acquire has written it.  tick: DT_NOBEGIN if the run has none, and attempt 0.
 * command, request: or NULL.  limit: the longest time that it may take, or NULL.  Errors:
 * 23505 if the token was drawn twice; those of ShedlockOpen(), ShedlockCheckPromises() and
 * ShedlockCheckStats().
 */
void
ShedlockHistoryStart(const ShedlockName *name, const ShedlockRow *row,
					 const char *command, TimestampTz tick, int attempt,
					 const char *request, const Interval *limit)
{
	ShedlockStore store;
	ShedlockColumns columns;

	ShedlockOpen(&store, name->nsp, "_shedlock_history", RowExclusiveLock);
	ShedlockCheckPromises(&store);
	ShedlockCheckStats(name->nsp);
	ShedlockNewColumns(&store, &columns);
	ShedlockSetColumn(&columns, Anum_token, Int64GetDatum(row->token));
	ShedlockSetColumn(&columns, Anum_name, CStringGetTextDatum(name->str));
	if (command)
		set_clipped(&columns, Anum_command, command, COMMAND_MAX);
	if (attempt > 0)
	{
		ShedlockSetColumn(&columns, Anum_tick, TimestampTzGetDatum(tick));
		ShedlockSetColumn(&columns, Anum_attempt, Int32GetDatum(attempt));
	}
	ShedlockSetColumn(&columns, Anum_started_at, TimestampTzGetDatum(row->locked_at));
	ShedlockSetColumn(&columns, Anum_outcome, CStringGetTextDatum(shedlock_outcome_names[SHEDLOCK_RUNNING]));
	ShedlockSetColumn(&columns, Anum_locked_role, ObjectIdGetDatum(row->locked_role));
	ShedlockSetColumn(&columns, Anum_locked_by, CStringGetTextDatum(row->locked_by));
	ShedlockSetColumn(&columns, Anum_pid, Int32GetDatum(row->pid));
	ShedlockSetColumn(&columns, Anum_gave_up, BoolGetDatum(false));
	set_text_if_given(&columns, Anum_request, request);
	if (limit)
		ShedlockSetColumn(&columns, Anum_limit_at,
						  TimestampTzGetDatum(ShedlockAddInterval(row->locked_at, limit)));
	insert_run(&store, &columns, row->token);
	ShedlockClose(&store, NoLock);
}

/*
 * ShedlockHistorySkip - record that a tick gets no run
 *
 * reason: or NULL.  Errors: as ShedlockHistoryStart().
 */
void
ShedlockHistorySkip(const ShedlockName *name, TimestampTz tick, const char *reason)
{
	const ShedlockRow none = {.token = 0};
	TimestampTz now = GetCurrentTimestamp();
	int64		token = ShedlockNextToken(name->nsp, &none);
	ShedlockStore store;
	ShedlockColumns columns;

	ShedlockOpen(&store, name->nsp, "_shedlock_history", RowExclusiveLock);
	ShedlockCheckPromises(&store);
	ShedlockNewColumns(&store, &columns);
	ShedlockSetColumn(&columns, Anum_token, Int64GetDatum(token));
	ShedlockSetColumn(&columns, Anum_name, CStringGetTextDatum(name->str));
	ShedlockSetColumn(&columns, Anum_tick, TimestampTzGetDatum(tick));
	ShedlockSetColumn(&columns, Anum_started_at, TimestampTzGetDatum(now));
	ShedlockSetColumn(&columns, Anum_ended_at, TimestampTzGetDatum(now));
	ShedlockSetColumn(&columns, Anum_outcome, CStringGetTextDatum(shedlock_outcome_names[SHEDLOCK_SKIPPED]));
	set_text_if_given(&columns, Anum_message, reason);
	ShedlockSetColumn(&columns, Anum_locked_role, ObjectIdGetDatum(GetUserId()));
	ShedlockSetColumn(&columns, Anum_locked_by, CStringGetTextDatum(ShedlockLockedBy(NULL, token)));
	ShedlockSetColumn(&columns, Anum_pid, Int32GetDatum(MyProcPid));
	ShedlockSetColumn(&columns, Anum_gave_up, BoolGetDatum(false));
	insert_run(&store, &columns, token);
	ShedlockClose(&store, NoLock);
}

/*
 * ShedlockSlotToHistoryRun - what the history has of the run in a slot
 *
 * An outcome that only other writers use counts as a failure.
 */
void
ShedlockSlotToHistoryRun(TupleTableSlot *slot, ShedlockHistoryRun *past)
{
	bool		isnull;
	Datum		d;

	past->token = DatumGetInt64(slot_getattr(slot, Anum_token, &isnull));
	past->name = TextDatumGetCString(slot_getattr(slot, Anum_name, &isnull));
	past->outcome = ShedlockFindOutcome(TextDatumGetCString(slot_getattr(slot, Anum_outcome, &isnull)));
	if (past->outcome == SHEDLOCK_NO_RUN)
		past->outcome = SHEDLOCK_FAILED;
	d = slot_getattr(slot, Anum_sqlstate, &isnull);
	past->sqlstate = isnull ? NULL : TextDatumGetCString(d);
	d = slot_getattr(slot, Anum_message, &isnull);
	past->message = isnull ? NULL : TextDatumGetCString(d);
	d = slot_getattr(slot, Anum_exit_code, &isnull);
	past->exit_code = NULL;
	if (!isnull)
	{
		past->exit_code = palloc(sizeof(int32));
		*past->exit_code = DatumGetInt32(d);
	}
	past->started_at = DatumGetTimestampTz(slot_getattr(slot, Anum_started_at, &isnull));
	d = slot_getattr(slot, Anum_ended_at, &isnull);
	past->ended_at = isnull ? DT_NOBEGIN : DatumGetTimestampTz(d);
	past->gave_up = DatumGetBool(slot_getattr(slot, Anum_gave_up, &isnull));
	past->role = DatumGetObjectId(slot_getattr(slot, Anum_locked_role, &isnull));
	d = slot_getattr(slot, Anum_tick, &isnull);
	past->tick = isnull ? DT_NOBEGIN : DatumGetTimestampTz(d);
	d = slot_getattr(slot, Anum_attempt, &isnull);
	past->attempt = isnull ? 0 : DatumGetInt32(d);
	d = slot_getattr(slot, Anum_limit_at, &isnull);
	past->limit_at = isnull ? DT_NOEND : DatumGetTimestampTz(d);
}

/*
 * set_ending - set the columns that say how a run ended
 *
 * ended_at: DT_NOBEGIN if nobody knows.
 */
static void
set_ending(ShedlockColumns *columns, const ShedlockEnding *ending, TimestampTz ended_at, bool gave_up)
{
	ShedlockSetColumn(columns, Anum_outcome, CStringGetTextDatum(shedlock_outcome_names[ending->outcome]));
	if (ended_at != DT_NOBEGIN)
		ShedlockSetColumn(columns, Anum_ended_at, TimestampTzGetDatum(ended_at));
	set_text_if_given(columns, Anum_sqlstate, ending->sqlstate);
	if (ending->message)
		set_clipped(columns, Anum_message, ending->message, SHEDLOCK_MESSAGE_MAX);
	set_text_if_given(columns, Anum_warning, ending->warning);
	if (ending->exit_code)
		ShedlockSetColumn(columns, Anum_exit_code, Int32GetDatum(*ending->exit_code));
	ShedlockSetColumn(columns, Anum_gave_up, BoolGetDatum(gave_up));
}

/*
 * await_or_report - wait for a foreign writer of the row of a run
 *
 * Returns false, and reports it, after 100 ms.  what: is not recorded then.
 */
static bool
await_or_report(int *tries, int elevel, int64 token, const char *what)
{
	if (ShedlockAwaitForeignLock(tries))
		return true;
	ereport(elevel,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not record %s of the run with token " INT64_FORMAT, what, token),
			 errdetail("Its row in _shedlock_history is locked."),
			 elevel == ERROR ? errhint("Try again.") : 0));
	return false;
}

/*
 * fetch - read what the history has of a run, to write it; false if it has none
 */
static bool
fetch(ShedlockStore *store, int64 token, ShedlockHistoryRun *past)
{
	if (!ShedlockFetch(store, Int64GetDatum(token)))
		return false;
	ShedlockSlotToHistoryRun(store->slot, past);
	return true;
}

/*
 * ended_at - when a run ended; DT_NOBEGIN if it is lost
 */
static TimestampTz
ended_at(const ShedlockHistoryRun *run, const ShedlockEnding *ending)
{
	if (ending->outcome == SHEDLOCK_RUN_LOST)
		return DT_NOBEGIN;
	return ending->unseen ? run->limit_at : GetCurrentTimestamp();
}

/*
 * ShedlockHistoryEnd - record and count the outcome of a run, unless it has one or was pruned
 *
 * Returns true if it was recorded.  If a foreign writer has the row locked for 100 ms, this records
 * nothing, and warns.  For a run without a holder it raises 55P03 then: only the row of the
 * lock tells of that run, and the caller is about to write another one there, or none.
 */
bool
ShedlockHistoryEnd(Oid nsp, int64 token, const ShedlockEnding *ending)
{
	int			elevel = ending->unseen ? ERROR : WARNING;
	const char *what = psprintf("outcome \"%s\"", shedlock_outcome_names[ending->outcome]);
	ShedlockStore store;
	ShedlockHistoryRun past;
	bool		written = false;
	int			tries = 0;

	ShedlockOpen(&store, nsp, "_shedlock_history", RowExclusiveLock);
	while (!written && fetch(&store, token, &past) && past.outcome == SHEDLOCK_RUNNING)
	{
		TimestampTz end = ended_at(&past, ending);
		ShedlockColumns columns;
		bool		none_left;

		none_left = ending->outcome != SHEDLOCK_SUCCEEDED && (ending->gave_up || past.gave_up);
		ShedlockNewColumns(&store, &columns);
		set_ending(&columns, ending, end, none_left);
		written = ShedlockWrite(&store, &columns, false);
		if (written)
			ShedlockCountEnd(nsp, past.name, ending->outcome,
							 end == DT_NOBEGIN ? 0 : end - past.started_at, none_left);
		else if (!await_or_report(&tries, elevel, token, what))
			break;
	}
	ShedlockClose(&store, NoLock);
	return written;
}

/*
 * ShedlockLostOutcome - the outcome of a run that is recorded as running, but has no holder
 *
 * row: its lock.  If its lease lasted as long as the run might take, its time was over.
 */
ShedlockOutcome
ShedlockLostOutcome(const ShedlockHistoryRun *run, const ShedlockRow *row)
{
	return row->token == run->token && row->lock_until >= run->limit_at ?
		SHEDLOCK_TIMED_OUT : SHEDLOCK_RUN_LOST;
}

/*
 * ShedlockHistoryLost - record and count a run without a holder as lost, or timed out
 *
 * row: its lock.  As ShedlockHistoryEnd().  If this returns false, its end was told, too.
 */
bool
ShedlockHistoryLost(Oid nsp, const ShedlockRow *row)
{
	ShedlockEnding ending = {.unseen = true};
	ShedlockHistoryRun run;

	ShedlockHistoryRead(nsp, row->token, &run);
	ending.outcome = ShedlockLostOutcome(&run, row);
	return run.outcome == SHEDLOCK_RUNNING && ShedlockHistoryEnd(nsp, row->token, &ending);
}

/*
 * ShedlockHistoryWarned - record a warning that came after the outcome
 *
 * It is lost if the row is locked or was pruned.
 */
void
ShedlockHistoryWarned(Oid nsp, int64 token, const char *warning)
{
	ShedlockStore store;

	ShedlockOpen(&store, nsp, "_shedlock_history", RowExclusiveLock);
	if (ShedlockFetch(&store, Int64GetDatum(token)))
	{
		ShedlockColumns columns;

		ShedlockNewColumns(&store, &columns);
		set_text_if_given(&columns, Anum_warning, warning);
		(void) ShedlockWrite(&store, &columns, false);
	}
	ShedlockClose(&store, NoLock);
}

/*
 * ShedlockHistoryGaveUp - record that no further attempt follows that run, unless its row was
 * pruned, or says so
 *
 * A run that is recorded as running may succeed yet: its end decides.  Any other is counted,
 * and the function returns true.  Warns, and records nothing, if the row is locked for 100 ms.
 */
bool
ShedlockHistoryGaveUp(const ShedlockName *name, int64 token)
{
	ShedlockStore store;
	ShedlockHistoryRun past;
	bool		written = false;
	bool		is_news = false;
	int			tries = 0;

	ShedlockOpen(&store, name->nsp, "_shedlock_history", RowExclusiveLock);
	while (!written && fetch(&store, token, &past) && !past.gave_up)
	{
		ShedlockColumns columns;

		ShedlockNewColumns(&store, &columns);
		ShedlockSetColumn(&columns, Anum_gave_up, BoolGetDatum(true));
		written = ShedlockWrite(&store, &columns, false);
		if (written)
			is_news = past.outcome != SHEDLOCK_RUNNING;
		else if (!await_or_report(&tries, WARNING, token, "gave_up"))
			break;
	}
	ShedlockClose(&store, NoLock);
	if (is_news)
		ShedlockCountGaveUp(name->nsp, name->str);
	return is_news;
}

/*
 * ShedlockHistoryRead - read what the history has of a run; token 0: nothing, and all is zero
 */
void
ShedlockHistoryRead(Oid nsp, int64 token, ShedlockHistoryRun *past)
{
	ShedlockStore store;

	memset(past, 0, sizeof(*past));
	ShedlockOpen(&store, nsp, "_shedlock_history", AccessShareLock);
	if (ShedlockFetch(&store, Int64GetDatum(token)))
		ShedlockSlotToHistoryRun(store.slot, past);
	ShedlockClose(&store, AccessShareLock);
}
