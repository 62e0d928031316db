/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  Writers who do not know of us: ShedLock's clients, and hands in psql.
 *
 * Our own writes do not fire triggers, so that whatever comes here is foreign.
 * A write that sets our columns is somebody who knows them (pg_restore, an
 * administrator) and passes.  Otherwise:
 *
 *	acquisition		locked_at or locked_by changes and lock_until rises, or a
 *					row is inserted with time on it.  Takes the advisory half
 *					exclusively to the end of its transaction, as our acquire
 *					does, and gets a token; turned away if the lock is not
 *					free by both halves
 *	unlock, extend	lock_until changes alone.  Passes, and wakes waiters
 *	DELETE			refused unless the lock is free
 *
 * Turned away means that the row stays as it is and that the client sees 0
 * rows: it takes the lock for held.  ShedLock remembers that a row exists, so
 * that an INSERT must not be turned away before there is one.
 *
 * The row comes first here, the advisory half second: against the usual order,
 * and therefore only ever by a try.  Only for a row that is not committed yet
 * an INSERT waits, and no longer than our own acquire waits for a foreign one.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "lock/lock.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* Of our own: providers take class 23, 40 and 55 for "exists" or "busy". */
#define ERRCODE_TAKEN_BY_OPEN_TRANSACTION	MAKE_SQLSTATE('S', 'H', '0', '0', '1')

/* A statement may be that long under way, so that a short lease is over. */
#define ON_THE_WAY_MAX		USECS_PER_SEC

/* After the first one, with a millisecond between them. */
#define EXCLUSIVE_TRIES		10

/*
 * sets_our_columns - does the writer know of us?
 *
 * old: NULL for an INSERT, where our columns have their defaults.
 */
static bool
sets_our_columns(const ShedlockRow *old, const ShedlockRow *new)
{
	static const ShedlockRow defaults = {
		.kind = SHEDLOCK_LEASE,
		.keep_until = DT_NOBEGIN,
		.paused_until = DT_NOBEGIN
	};

	if (old == NULL)
		old = &defaults;
	return old->token != new->token || old->kind != new->kind ||
		old->locked_role != new->locked_role ||
		old->keep_until != new->keep_until ||
		old->pid != new->pid || old->backend_start != new->backend_start ||
		old->timeline != new->timeline ||
		old->paused_until != new->paused_until;
}

/*
 * check_clock - complain about a client whose clock, or time zone, is off
 *
 * It would take living locks for free, and others would do so with its own.
 * Within the tolerance, too, a lease that is over when it arrives holds nothing.
 */
static void
check_clock(const ShedlockRow *row, TimestampTz now)
{
	int64		tolerance = shedlock_foreign_clock_tolerance * USECS_PER_SEC;

	if (!TIMESTAMP_NOT_FINITE(row->locked_at) &&
		row->locked_at >= now - tolerance && row->locked_at <= now + tolerance &&
		(row->lock_until > now || row->locked_at >= now - ON_THE_WAY_MAX))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DATETIME_FIELD_OVERFLOW),
			 errmsg("locked_at of lock \"%s\" is not the current time in UTC", row->name),
			 errdetail("The client's clock or time zone is off by more than shedlock.foreign_clock_tolerance, or by more than its lock_at_most_for."),
			 errhint("Let ShedLock take the server's time: usingDbTime(), in a transaction of its own; or forceUtcTimeZone() with a clock that is right.  For jOOQ and Exposed, which have neither: connectionInitSql = SET TIME ZONE 'UTC'.")));
}

/*
 * check_cap - complain about a client that locks for longer than is allowed
 *
 * Its clock may be ahead by the tolerance.
 */
static void
check_cap(const ShedlockRow *row, TimestampTz now)
{
	int64		seconds = (int64) shedlock_max_lock_at_most_for + shedlock_foreign_clock_tolerance;

	if (shedlock_max_lock_at_most_for > 0 &&
		row->lock_until > now + seconds * USECS_PER_SEC)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock_until of lock \"%s\" is too far ahead", row->name),
				 errdetail("The setting %s allows %s.", "shedlock.max_lock_at_most_for",
						   GetConfigOptionByName("shedlock.max_lock_at_most_for", NULL, false))));
}

/*
 * keep_as_is - turn an UPDATE away
 */
static HeapTuple
keep_as_is(const ShedlockName *name)
{
	if (shedlock_log_locks)
		ereport(LOG,
				(errmsg("foreign acquire of lock \"%s\" turned away", name->str)));
	return NULL;
}

/*
 * turn_insert_away - keep a row out, and see to it that there is one
 *
 * Returns NULL.  A row that is not committed yet may go away again, and the
 * client would wait for it for ever: it gets 100 ms to commit, as when two
 * clients come to a new name at once, and SH001 is raised then.
 */
static HeapTuple
turn_insert_away(ShedlockStore *store, const ShedlockName *name, ShedlockRow *row,
				 TimestampTz now)
{
	ShedlockRow there;
	int			tries = 0;

	row->lock_until = row->locked_at = now;
	row->kind = SHEDLOCK_RELEASED;
	for (;;)
	{
		ShedlockReadRow(store, name->str, &there);
		if (there.found)
			return keep_as_is(name);
		if (ShedlockRowIsInProgress(store, name->str))
		{
			if (!ShedlockAwaitForeignLock(&tries))
				break;
		}
		else if (ShedlockInsertRow(store, row))
			return keep_as_is(name);
	}
	ereport(ERROR,
			(errcode(ERRCODE_TAKEN_BY_OPEN_TRANSACTION),
			 errmsg("lock \"%s\" is being taken by an open transaction", name->str),
			 errdetail("It is the first one to use this name."),
			 errhint("Try again.")));
}

/*
 * take - the advisory half and a token for a foreign acquisition
 *
 * old: the row as it is, found or not.  Returns the row to be written.
 */
static HeapTuple
take(ShedlockStore *store, const ShedlockName *name, const ShedlockRow *old,
	 HeapTuple tuple)
{
	ShedlockCheckPromises(store);
	ShedlockWakeLater(&name->tag);
	if (shedlock_log_locks)
		ereport(LOG,
				(errmsg("lock \"%s\" acquired by a foreign client", name->str)));
	return ShedlockForeignTuple(store, tuple, ShedlockNextToken(name->nsp, old));
}

/*
 * on_insert - an INSERT, or the first half of INSERT ... ON CONFLICT
 */
static HeapTuple
on_insert(ShedlockStore *store, const ShedlockName *name, ShedlockRow *new,
		  HeapTuple tuple)
{
	TimestampTz now = GetCurrentTimestamp();
	ShedlockRow there;

	/* A row without time on it holds nothing. */
	if (sets_our_columns(NULL, new) ||
		(new->lock_until <= new->locked_at && new->lock_until <= now))
		return tuple;
	ShedlockCheckText(name->str, "lock name");
	check_clock(new, now);
	check_cap(new, now);

	/*
	 * A lease that is held: the statement's ON CONFLICT would come to the
	 * same, but lock the row, or wait for an owner who has changed it in an
	 * open transaction.  No advisory lock is taken: that owner may want to
	 * extend.
	 */
	ShedlockReadRow(store, name->str, &there);
	if (there.found && ShedlockCountsAsLease(&there) && there.lock_until > now)
		return keep_as_is(name);

	if (!ShedlockTryLock(&name->tag, ExclusiveLock))
		return turn_insert_away(store, name, new, now);
	ShedlockReadRow(store, name->str, &there);
	if (ShedlockJudge(&there, name, now, true) != SHEDLOCK_FREE)
	{
		ShedlockUnlock(&name->tag, ExclusiveLock);
		return keep_as_is(name);
	}

	/* If there is a row, ON CONFLICT updates it, and that draws the token. */
	return there.found ? tuple : take(store, name, &there, tuple);
}

/*
 * try_exclusive - take the advisory half, with a row that is ours
 *
 * We may have waited for the row until another acquisition was rolled back.
 * That wakes us before it lets go of the advisory half, some microseconds
 * later: nobody would have the lock if it turned us away.
 */
static bool
try_exclusive(const ShedlockName *name)
{
	for (int tries = 0; !ShedlockTryLock(&name->tag, ExclusiveLock); tries++)
	{
		if (tries == EXCLUSIVE_TRIES)
			return false;
		ShedlockNap(1);
	}
	return true;
}

/*
 * on_update - an UPDATE, or the second half of INSERT ... ON CONFLICT
 */
static HeapTuple
on_update(ShedlockStore *store, const ShedlockName *name, const ShedlockRow *old,
		  const ShedlockRow *new, HeapTuple tuple)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		same_owner = old->locked_at == new->locked_at &&
	strcmp(old->locked_by, new->locked_by) == 0;

	/* By hand: nobody has taken it, or its token would be there. */
	bool		revives = old->token == 0 && old->lock_until <= now && new->lock_until > now;

	if (strcmp(old->name, new->name) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot rename lock \"%s\"", name->str),
				 errdetail("Whoever uses a lock knows it by its name.")));
	if (sets_our_columns(old, new))
		return tuple;
	if (new->lock_until > old->lock_until)
		check_cap(new, now);
	if ((same_owner && !revives) || new->lock_until <= old->lock_until)
	{
		/*
		 * Nothing was held, and nothing is; but a session lock can have
		 * outlived its lock_until, and keeps its name.
		 */
		if (old->lock_until <= now && new->lock_until <= now)
			return same_owner || ShedlockCountsAsLease(old) ||
				!ShedlockHolderLives(old, name, false) ? tuple : keep_as_is(name);

		/* Nor does an extend that comes too late end a pause. */
		if (old->lock_until <= now && old->paused_until > now)
			return keep_as_is(name);
		(void) ShedlockTryShare(&name->tag);
		ShedlockWakeLater(&name->tag);
		return tuple;
	}

	ShedlockCheckText(name->str, "lock name");
	if (!same_owner)
		check_clock(new, now);
	if (!try_exclusive(name))
		return keep_as_is(name);
	if (ShedlockJudge(old, name, now, true) != SHEDLOCK_FREE)
	{
		ShedlockUnlock(&name->tag, ExclusiveLock);
		return keep_as_is(name);
	}
	if (old->kind == SHEDLOCK_RUN)
		ShedlockHistoryLost(name->nsp, old->token);
	return take(store, name, old, tuple);
}

/*
 * on_delete - refuse it unless the lock is free; hold others off until the end
 */
static HeapTuple
on_delete(const ShedlockName *name, const ShedlockRow *old, HeapTuple tuple)
{
	ShedlockVerdict verdict = SHEDLOCK_BUSY;

	if (ShedlockTryLock(&name->tag, ExclusiveLock))
		verdict = ShedlockJudge(old, name, GetCurrentTimestamp(), true);
	if (verdict == SHEDLOCK_PAUSED)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot delete lock \"%s\" because it is paused", name->str),
				 errhint("Use shedlock_resume to end the pause, and shedlock_purge to forget locks.")));
	if (verdict != SHEDLOCK_FREE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot delete lock \"%s\" because it is in use", name->str),
				 errhint("Use shedlock_force_release to end it, and shedlock_purge to forget locks.")));
	if (old->kind == SHEDLOCK_RUN)
		ShedlockHistoryLost(name->nsp, old->token);
	return tuple;
}

PG_FUNCTION_INFO_V1(_shedlock_row_trigger);
/*
 * _shedlock_row_trigger() - BEFORE INSERT OR UPDATE OR DELETE, for each row
 *
 * Errors: 22008 for a clock that is off, 22023, SH001, 42501, 55006, 0A000 for
 * another name; those of ShedlockOpen() and ShedlockCheckPromises().  Locks: the
 * advisory half, exclusive for an acquisition and a DELETE, share for the rest, to
 * the end of the transaction; never waits.
 */
Datum
_shedlock_row_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	TriggerEvent event;
	Oid			nsp;
	ShedlockName name;
	ShedlockStore store;
	ShedlockRow row;
	ShedlockRow new;
	HeapTuple	result;

	/* Whatever follows relies on the columns of our own table. */
	nsp = ShedlockSchema(fcinfo);
	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		RelationGetRelid(trigger->tg_relation) != get_relname_relid("shedlock", nsp))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("%s must be called by a BEFORE trigger for each row of the extension's own table",
						"_shedlock_row_trigger()")));
	ShedlockCheckColumns(trigger->tg_relation);

	event = trigger->tg_event;
	result = TRIGGER_FIRED_BY_UPDATE(event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
	ShedlockSlotToRow(trigger->tg_trigslot, &row);
	if (TRIGGER_FIRED_BY_UPDATE(event))
		ShedlockSlotToRow(trigger->tg_newslot, &new);
	else
		new = row;

	/* Constraints come after us and will complain. */
	if (new.name == NULL || new.name[0] == '\0' || new.locked_by == NULL)
		PG_RETURN_POINTER(result);

	ShedlockMakeName(nsp, row.name, &name);
	ShedlockCheckMayUse(&name);
	ShedlockOpen(&store, nsp, "shedlock");
	if (TRIGGER_FIRED_BY_INSERT(event))
		result = on_insert(&store, &name, &new, result);
	else if (TRIGGER_FIRED_BY_UPDATE(event))
		result = on_update(&store, &name, &row, &new, result);
	else
		result = on_delete(&name, &row, result);
	ShedlockClose(&store);
	PG_RETURN_POINTER(result);
}
