/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  Row trigger for foreign writers: ShedLock's clients and manual SQL.
 *
 * The extension's own writes fire no triggers, so that every write that comes
 * here is foreign:
 *
 *	full write		sets the extension's own columns, as pg_restore does: passes
 *	acquisition		raises lock_until under another locked_at or locked_by, or
 *					inserts a row with time on it: gets the advisory half
 *					exclusively to the end of its transaction, and a token,
 *					or is turned away if either half is not free
 *	unlock, extend	another UPDATE with time on it, before or after: passes and
 *					wakes waiters, but does not end a pause; is refused without the
 *					privileges of the role that acquired the lock (I5), unless that is
 *					not known, as after shedlock_adopt
 *	nothing held	another UPDATE: passes, but does not change the owner of a
 *					session lock that is held past its lock_until
 *	DELETE			refused unless the lock is free
 *
 * A write that is turned away leaves the row as it is and affects 0 rows, from
 * which the client concludes that the lock is held.  ShedLock also remembers
 * that a row exists, so an INSERT is not turned away before there is one.
 *
 * The row is locked before the trigger runs.  So the trigger acquires the advisory
 * half against the lock order, and only ever by tries (I14), for 10 ms at most.  An
 * INSERT of a name whose row is not committed waits for it as long as an acquire waits
 * for a foreign row, and so does the write that a run is lost.
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
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* ShedLock's providers read classes 23, 40 and 55 as "exists" or "busy". */
#define ERRCODE_TAKEN_BY_OPEN_TRANSACTION	MAKE_SQLSTATE('S', 'H', '0', '0', '1')

/* A short lease may expire on the way to the server, which takes this long. */
#define ON_THE_WAY_MAX		USECS_PER_SEC

/* How often try_exclusive() tries again, with a millisecond between tries. */
#define EXCLUSIVE_TRIES		10

/*
 * sets_our_columns - does the write set columns that ShedLock does not have?
 *
 * old: NULL for an INSERT, where these columns have their defaults.
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
		old->origin != new->origin ||
		old->paused_until != new->paused_until;
}

/*
 * check_clock - raise an error if the client's clock or time zone is off
 *
 * Such a client would acquire locks that are held, and others would acquire the
 * client's.  A lease that has expired on arrival holds nothing, even if the clock is
 * within the tolerance.
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
			 errhint("Configure ShedLock with usingDbTime(), in a transaction of its own, or with forceUtcTimeZone() and a correct clock.  jOOQ and Exposed have neither: use connectionInitSql = SET TIME ZONE 'UTC'.")));
}

/*
 * check_cap - raise an error if the client locks for longer than is allowed
 *
 * The client's clock may be ahead by the tolerance.
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
 * turn_away - leave the row as it is; returns NULL, which skips the write
 */
static HeapTuple
turn_away(const ShedlockName *name)
{
	if (shedlock_log_locks)
		ereport(LOG,
				(errmsg("foreign acquire of lock \"%s\" refused", name->str)));
	return NULL;
}

/*
 * turn_insert_away - turn an INSERT away, and make sure that there is a row
 *
 * A row that is not committed may be rolled back, and the client, which remembers
 * the row, would never insert it again.  So it gets 100 ms to commit, which is
 * enough for two clients that insert a new name at once; then SH001 is raised.
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
			return turn_away(name);
		if (!TransactionIdIsValid(ShedlockInserter(store, CStringGetTextDatum(name->str))) &&
			ShedlockWriteRow(store, row, false))
			return turn_away(name);
		if (!ShedlockAwaitForeignLock(&tries))
			break;
	}
	ereport(ERROR,
			(errcode(ERRCODE_TAKEN_BY_OPEN_TRANSACTION),
			 errmsg("lock \"%s\" is in use by an open transaction", name->str),
			 errdetail("That transaction is the first to use this name."),
			 errhint("Try again.")));
}

/*
 * acquire - give a token to a foreign acquisition that has the advisory half
 *
 * old: the row before, found or not.  Returns the row to write.  Releases the
 * advisory half, and turns the write away, if the lock is not free.
 */
static HeapTuple
acquire(ShedlockStore *store, const ShedlockName *name, const ShedlockRow *old,
		TimestampTz now, HeapTuple tuple)
{
	if (ShedlockJudge(old, name, now, SHEDLOCK_MINE) != SHEDLOCK_FREE)
	{
		ShedlockUnlock(&name->tag, ExclusiveLock);
		return turn_away(name);
	}
	ShedlockCheckPromises(store);
	if (old->found && SHEDLOCK_IS_RUN(old->kind))
		(void) ShedlockHistoryLost(name->nsp, old);
	ShedlockWakeAtRollback(&name->tag);
	if (shedlock_log_locks)
		ereport(LOG,
				(errmsg("lock \"%s\" acquired by a foreign client", name->str)));
	ShedlockCommitDurably();
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

	if (sets_our_columns(NULL, new))
		return tuple;
	ShedlockCheckText(name->str, "lock name");
	if (new->lock_until <= new->locked_at && new->lock_until <= now)
		return tuple;
	check_clock(new, now);
	check_cap(new, now);

	/*
	 * ON CONFLICT would not update a lease that is held either, but it would
	 * lock the row, or wait for an owner that has changed it in an open
	 * transaction.  The advisory half is not tried, because the owner may
	 * want to extend.
	 */
	ShedlockReadRow(store, name->str, &there);
	if (there.found && ShedlockCountsAsLease(&there) && there.lock_until > now)
		return turn_away(name);

	if (!ShedlockTryLock(&name->tag, ExclusiveLock))
		return turn_insert_away(store, name, new, now);
	ShedlockRereadRow(store, name->str, &there);
	if (!there.found)
		return acquire(store, name, &there, now, tuple);

	/* on_update() draws the token */
	if (ShedlockJudge(&there, name, now, SHEDLOCK_MINE) == SHEDLOCK_FREE)
		return tuple;
	ShedlockUnlock(&name->tag, ExclusiveLock);
	return turn_away(name);
}

/*
 * try_exclusive - acquire the advisory half for an UPDATE
 *
 * The statement may have waited for the row until another acquisition was rolled
 * back.  The server ends that wait some microseconds before it releases the
 * advisory half, so that a single try could fail while nobody holds the lock.
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
 *
 * A row without a token was never acquired, so that manual SQL that puts time on
 * it acquires the lock, even under the same locked_at and locked_by.
 */
static HeapTuple
on_update(ShedlockStore *store, const ShedlockName *name, const ShedlockRow *old,
		  const ShedlockRow *new, HeapTuple tuple)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		same_owner = (old->locked_at == new->locked_at &&
							  strcmp(old->locked_by, new->locked_by) == 0);
	bool		held = old->lock_until > now;
	bool		holds = new->lock_until > now;
	bool		raises = new->lock_until > old->lock_until;

	if (strcmp(old->name, new->name) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot rename lock \"%s\"", name->str),
				 errdetail("Locks are identified by their names.")));

	if (sets_our_columns(old, new))
		return tuple;			/* full write */

	if (raises && (!same_owner || (old->token == 0 && !held && holds)))
	{
		/* acquisition */
		check_cap(new, now);
		ShedlockCheckText(name->str, "lock name");
		if (!same_owner)
			check_clock(new, now);
		return try_exclusive(name) ? acquire(store, name, old, now, tuple) : turn_away(name);
	}

	if (held || holds)
	{
		/* unlock, extend */
		if (OidIsValid(old->locked_role))
			ShedlockCheckRole(old, name);
		if (raises)
		{
			check_cap(new, now);
			ShedlockCommitDurably();
		}
		if (!held && old->paused_until > now)
			return turn_away(name);
		(void) ShedlockTryShare(&name->tag);
		ShedlockWakeLater(&name->tag);
	}
	else if (!same_owner && !ShedlockCountsAsLease(old) &&
			 ShedlockIsHeld(old, name, now))
		return turn_away(name); /* nothing held */
	return tuple;
}

/*
 * on_delete - a DELETE, which keeps acquirers off until its transaction ends
 */
static HeapTuple
on_delete(const ShedlockName *name, const ShedlockRow *old, HeapTuple tuple)
{
	ShedlockState state = SHEDLOCK_IN_USE;

	if (ShedlockTryLock(&name->tag, ExclusiveLock))
		state = ShedlockJudge(old, name, GetCurrentTimestamp(), SHEDLOCK_MINE);
	if (state != SHEDLOCK_FREE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg(state == SHEDLOCK_PAUSED ?
						"cannot delete lock \"%s\" because it is paused" :
						"cannot delete lock \"%s\" because it is in use", name->str),
				 state == SHEDLOCK_PAUSED ?
				 errhint("Use shedlock_resume to end the pause, and shedlock_purge to delete locks.") :
				 errhint("Use shedlock_force_release to end it, and shedlock_purge to delete locks.")));
	if (SHEDLOCK_IS_RUN(old->kind))
		(void) ShedlockHistoryLost(name->nsp, old);
	return tuple;
}

PG_FUNCTION_INFO_V1(_shedlock_row_trigger);
/*
 * _shedlock_row_trigger() - BEFORE INSERT OR UPDATE OR DELETE, for each row
 *
 * Locks: the advisory half, to the end of the transaction: exclusive for an acquisition and a
 * DELETE, share, if it is available, for an unlock or extend.
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

	/* The rest relies on the columns of the extension's own table. */
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

	/* Constraints are checked later, and refuse such a row. */
	if (new.name == NULL || new.name[0] == '\0' || new.locked_by == NULL)
		PG_RETURN_POINTER(result);

	ShedlockMakeName(nsp, row.name, &name);
	ShedlockCheckMayUse(&name);
	ShedlockLearnOrigin(trigger->tg_relation, &row);
	ShedlockOpen(&store, nsp, "shedlock", RowExclusiveLock);
	if (TRIGGER_FIRED_BY_INSERT(event))
		result = on_insert(&store, &name, &new, result);
	else if (TRIGGER_FIRED_BY_UPDATE(event))
		result = on_update(&store, &name, &row, &new, result);
	else
		result = on_delete(&name, &row, result);
	ShedlockClose(&store, NoLock);
	PG_RETURN_POINTER(result);
}
