/*-------------------------------------------------------------------------
 *
 * admin.c
 *	  For administrators: ending and cancelling what another session holds, and setting
 *	  counters to zero.
 *
 * EXECUTE is granted only to the owner.  pg_terminate_backend() and
 * pg_cancel_backend() decide whether the caller may end or cancel another
 * session: they are called with the caller's rights.  Each act writes a line to
 * the server log, with the role.
 *
 * Each raises 22004 and 22023 for arguments that are not allowed, and the errors of
 * ShedlockBeginCall().
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "api/api.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* How long a terminated session may take to end. */
#define TERMINATE_WAIT_MS	5000

/* How long a waiter that acquires the lock after that may take to commit. */
#define SUCCESSOR_TRIES		100
#define SUCCESSOR_NAP_MS	10

/* What became of the process that holds a lock, and of the lock */
typedef enum
{
	LEFT_ALONE,					/* or there is none, or it had ended by itself */
	STILL_IN_USE,				/* not ended in time, or fenced */
	ENDED
} HolderFate;

/*
 * report_in_use - report a transaction that uses the lock, at a level from WARNING on
 */
static void
report_in_use(const ShedlockName *name, int elevel)
{
	ShedlockHolder *holder = NULL;
	ListCell   *lc;

	foreach(lc, ShedlockHolders(&name->tag))
	{
		holder = lfirst(lc);
		if (holder->pid != MyProcPid)
			break;
	}
	if (holder && holder->pid == 0)
		ereport(elevel,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lock \"%s\" is in use by a prepared transaction", name->str),
				 errdetail("Its transaction ID is %u.", holder->prepared_xid),
				 errhint("Look up its identifier in pg_prepared_xacts, and use COMMIT PREPARED or ROLLBACK PREPARED.")));
	else
		ereport(elevel,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lock \"%s\" is in use by an open transaction", name->str),
				 holder ? errdetail("Its process ID is %d.", holder->pid) : 0,
				 errhint("Wait for that transaction to end, or terminate it.")));
}

/*
 * names_its_holder - has the process that a living row names acquired the lock?
 *
 * A row that was written by hand can name any process.  One that holds the
 * advisory half has acquired the lock.  A guarded command may have dropped the
 * advisory half, but its process has the role that acquired the lock, or a
 * member of it.  Warns if neither is true.
 */
static bool
names_its_holder(const ShedlockRow *row, const ShedlockName *name)
{
	PGPROC	   *proc = BackendPidGetProc(row->pid);

	if (ShedlockHeldByPid(&name->tag, row->pid) ||
		(proc && OidIsValid(row->locked_role) &&
		 is_member_of_role(proc->roleId, row->locked_role)))
		return true;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("process %d, named by lock \"%s\", was neither canceled nor terminated", row->pid, name->str),
			 errdetail("It does not hold the lock, and its role is not a member of the role that acquired it.")));
	return false;
}

/*
 * close_tick_of - use up the tick of a run that is to be ended
 *
 * A caller that fires for the tick could begin an attempt before the run is logged.
 * Returns false if the run has ended: this may have waited for that.  If it has died
 * meanwhile, its tick stays used up all the same.
 */
static bool
close_tick_of(const ShedlockName *name, int64 token)
{
	ShedlockRow row;

	ShedlockCloseTick(name, token);
	ShedlockLookUpRow(name, &row);
	return row.token == token && ShedlockIsHeld(&row, name, GetCurrentTimestamp());
}

/*
 * end_holder - terminate the process that holds a session lock or run
 *
 * Sets *token to that of the lock, or to 0 if there is no such process, or it is left
 * alone.  Only warns if it does not end in time, as pg_terminate_backend() does: an error
 * would undo that the tick is used up.  Errors: 42501; 55006 if the process is this one.
 */
static HolderFate
end_holder(ShedlockStore *store, const ShedlockName *name, int64 *token)
{
	ShedlockRow row;
	bool		gone;

	ShedlockReadRow(store, name->str, &row);
	*token = 0;
	if (!row.found || ShedlockCountsAsLease(&row) ||
		!ShedlockHolderLives(&row, name, false) || !names_its_holder(&row, name))
		return LEFT_ALONE;
	*token = row.token;

	if (row.pid == MyProcPid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lock \"%s\" is held by this session", name->str),
				 row.kind == SHEDLOCK_RUN ?
				 errhint("It is released when the command of shedlock_run ends.") :
				 errhint("Use shedlock_release.")));
	if (row.kind == SHEDLOCK_RUN && !close_tick_of(name, row.token))
		return LEFT_ALONE;
	gone = DatumGetBool(DirectFunctionCall2(pg_terminate_backend,
											Int32GetDatum(row.pid),
											Int64GetDatum(TERMINATE_WAIT_MS)));
	ereport(LOG,
			(errmsg("process %d, which held lock \"%s\", terminated by role %s",
					row.pid, name->str, ShedlockActingRole())));
	if (!gone)
	{
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("session that holds lock \"%s\" did not end in time", name->str),
				 errdetail("Its process ID is %d; it has been told to end.", row.pid),
				 errhint("Try again.")));
		return STILL_IN_USE;
	}
	ereport(NOTICE,
			(errmsg("terminated the session that held lock \"%s\"", name->str),
			 errdetail("Its process ID was %d.", row.pid)));
	return ENDED;
}

/*
 * is_in - has that table of the extension a row of that name?
 *
 * Keeps no lock on the table: the caller may wait for the advisory half, whose
 * holder may wait for a table.
 */
static bool
is_in(const char *table, const ShedlockName *name)
{
	ShedlockStore store;
	bool		found;

	ShedlockOpen(&store, name->nsp, table);
	found = ShedlockFetch(&store, CStringGetTextDatum(name->str)) ||
		TransactionIdIsValid(ShedlockInserter(&store, name->str));
	ShedlockCloseUnused(&store);
	return found;
}

/*
 * has_run - does the log have a run of that name? The lock can be that of a permit
 */
static bool
has_run(const ShedlockName *name)
{
	ShedlockLogged logged;

	ShedlockHistoryLast(name, &logged);
	return logged.token != 0;
}

/*
 * ShedlockWarnIfUnknown - warn if no lock, no tick and no run has that name
 *
 * hint: or NULL.  Returns true if it warned.  Keeps no lock on a table.
 */
bool
ShedlockWarnIfUnknown(const ShedlockName *name, const char *hint)
{
	if (is_in("shedlock", name) || is_in("shedlock_tick", name) || has_run(name))
		return false;
	ereport(WARNING,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("no lock or job is known by the name \"%s\"", name->str),
			 hint ? errhint("%s", hint) : 0));
	return true;
}

/*
 * report_not_held - tell the caller that there is nothing to end
 */
static void
report_not_held(const ShedlockName *name)
{
	if (!ShedlockWarnIfUnknown(name, NULL))
		ereport(NOTICE,
				(errmsg("lock \"%s\" is not held", name->str)));
}

/*
 * is_successor - has the lock another holder than the one that was to be ended?
 *
 * ended: this call has ended the session that held the lock under that token.  token: as
 * from end_holder().
 */
static bool
is_successor(const ShedlockRow *row, bool ended, int64 token)
{
	return (ended || token != 0) && row->token != token;
}

/*
 * end_run_by_force - log a run as cancelled, and use up its tick
 *
 * As lost, it would be due again at once.  The tick comes first: where a later run begins in
 * an open transaction, both rows are locked, and only that of the tick is waited for.  The
 * SQLSTATE tells the worker, who may end the run as cancelled later, that its own end came
 * too late (finish.c).
 */
static void
end_run_by_force(const ShedlockName *name, int64 token)
{
	ShedlockEnding ending = {.outcome = "cancelled"};

	ending.sqlstate = unpack_sql_state(ERRCODE_QUERY_CANCELED);
	ShedlockCloseTick(name, token);
	ShedlockHistoryEnd(name->nsp, token, &ending);
}

/*
 * take_over - acquire the advisory half, exclusive, to the end of the transaction
 *
 * fate, token: as from end_holder().  A waiter may be acquiring the lock when this call has
 * ended its holder, and gets time to commit: returns false if it has.  Returns false, too, if
 * another transaction uses the lock after that, and sets *fate to STILL_IN_USE; and at once if
 * it is that already.  That is a warning: an error would undo how the run was ended, while its
 * session is gone.  The next run tells of that end, too.  Errors: 55006 if no session was
 * ended.
 */
static bool
take_over(ShedlockStore *store, const ShedlockName *name, HolderFate *fate, int64 token)
{
	bool		ended = *fate == ENDED;
	ShedlockRow row;

	if (*fate == STILL_IN_USE)
		return false;
	for (int tries = 0; !ShedlockTryLock(&name->tag, ExclusiveLock); tries++)
	{
		ShedlockReadRow(store, name->str, &row);
		if (is_successor(&row, ended, token))
			return false;
		if (!ended)
			report_in_use(name, ERROR);
		if (tries == SUCCESSOR_TRIES)
		{
			if (row.kind == SHEDLOCK_RUN)
			{
				end_run_by_force(name, token);
				ShedlockTellEnd(name->nsp, token, NULL);
			}
			report_in_use(name, WARNING);
			*fate = STILL_IN_USE;
			return false;
		}
		ShedlockNap(SUCCESSOR_NAP_MS);
	}
	ShedlockWakeLater(&name->tag);
	return true;
}

/*
 * free_row - release the lock in its row, and report that
 *
 * Needs the advisory half in exclusive mode, and gives it back if there is
 * nothing to write.  ended, token: as for is_successor(), whose lock is not touched.
 * Returns false if the lock was free, even if its row did not say so yet because its
 * session has died.
 */
static bool
free_row(ShedlockStore *store, const ShedlockName *name, bool ended, int64 token)
{
	ShedlockRow row;
	ShedlockVerdict verdict;
	const char *holder;
	TimestampTz refused_until;
	bool		is_run;

	do
	{
		TimestampTz now;
		bool		is_lease;

		ShedlockReadRow(store, name->str, &row);
		now = GetCurrentTimestamp();
		is_lease = row.found && ShedlockCountsAsLease(&row);
		if (!row.found || is_successor(&row, ended, token) ||
			(is_lease && row.lock_until <= now))
		{
			ShedlockUnlock(&name->tag, ExclusiveLock);
			return false;
		}
		verdict = ShedlockJudge(&row, name, now, true);
		is_run = SHEDLOCK_IS_RUN(row.kind);
		if (is_run && (ended || verdict == SHEDLOCK_HELD))
			end_run_by_force(name, row.token);
		else if (is_run)
			ShedlockHistoryLost(name->nsp, row.token);
		holder = row.kind != SHEDLOCK_RELEASED && is_lease ? ShedlockShownBy(&row) : NULL;
		refused_until = verdict == SHEDLOCK_FREE && row.lock_until > now ? row.lock_until : DT_NOBEGIN;
		ShedlockSetReleased(&row, now, false);
	} while (ShedlockUpdateRow(store, &row, true) != TM_Ok);

	if (holder)
		ereport(NOTICE,
				(errmsg("released lock \"%s\" of \"%s\"", name->str, holder),
				 errdetail("Its former holder was not stopped; its next release or extend returns false, and its next assert fails.")));
	if (refused_until != DT_NOBEGIN)
		ereport(NOTICE,
				(errmsg("lock \"%s\" is free for ShedLock's clients, too, from now on", name->str),
				 errdetail("Its holder has died; they were refused until %s.",
						   ShedlockTimeString(refused_until))));
	ereport(LOG,
			(errmsg("lock \"%s\" released by force by role %s, token " INT64_FORMAT,
					name->str, ShedlockActingRole(), row.token)));
	if (is_run)
		ShedlockTellEnd(name->nsp, row.token, NULL);
	ShedlockTellLock("forced", name, row.token, DT_NOBEGIN);
	return verdict == SHEDLOCK_HELD || verdict == SHEDLOCK_KEPT;
}

PG_FUNCTION_INFO_V1(shedlock_force_release);
/*
 * shedlock_force_release(name) - release a lock of any holder, even a kept one
 *
 * Returns false, and reports it, if the lock was free.  Also if its session does not end in
 * time, or a transaction fences the lock after that: then its run is ended all the same.
 * Errors: 42501 if the caller may not end the holder's session, too; 55006 if an open
 * transaction has acquired or fences the lock, and no session was ended.  Locks: the advisory
 * half, exclusive, to the end of the transaction.
 */
Datum
shedlock_force_release(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	ShedlockStore store;
	int64		token;
	HolderFate	fate;
	bool		freed;

	ShedlockBeginCall(fcinfo, "shedlock_force_release()", &name);
	ShedlockOpen(&store, name.nsp, "shedlock");
	fate = end_holder(&store, &name, &token);
	freed = take_over(&store, &name, &fate, token) &&
		free_row(&store, &name, fate == ENDED, token);
	ShedlockClose(&store);
	if (fate == LEFT_ALONE && !freed)
		report_not_held(&name);
	else if (fate == ENDED && !freed)
		ShedlockTellLock("forced", &name, token, DT_NOBEGIN);
	PG_RETURN_BOOL(freed || fate == ENDED);
}

PG_FUNCTION_INFO_V1(shedlock_cancel);
/*
 * shedlock_cancel(name) - cancel the command of a run
 *
 * Returns false, and reports what the lock is, if no command is running.  Errors:
 * 42501 if the caller may not cancel that session, too.
 */
Datum
shedlock_cancel(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	ShedlockRow row;
	bool		as_lease;

	ShedlockBeginCall(fcinfo, "shedlock_cancel()", &name);
	ShedlockLookUpRow(&name, &row);

	as_lease = row.found && ShedlockCountsAsLease(&row);
	if (row.found && row.kind == SHEDLOCK_RUN && !as_lease &&
		ShedlockBackendAlive(row.pid, row.backend_start))
	{
		if (!names_its_holder(&row, &name))
			PG_RETURN_BOOL(false);

		if (!close_tick_of(&name, row.token))
		{
			report_not_held(&name);
			PG_RETURN_BOOL(false);
		}
		if (!DatumGetBool(DirectFunctionCall1(pg_cancel_backend, Int32GetDatum(row.pid))))
			PG_RETURN_BOOL(false);
		ereport(LOG,
				(errmsg("run of lock \"%s\" in process %d canceled by role %s",
						name.str, row.pid, ShedlockActingRole())));
		PG_RETURN_BOOL(true);
	}

	if (ShedlockIsHeld(&row, &name, GetCurrentTimestamp()))
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" has no command to cancel", name.str),
				 row.kind == SHEDLOCK_LEASED_RUN ?
				 errdetail("It is held by a run whose work is outside the database.") :
				 as_lease ?
				 errdetail("It is held as a lease.") :
				 errdetail("It is held as a session lock."),
				 errhint("Use shedlock_force_release to end it.")));
	else if (ShedlockHolders(&name.tag) != NIL)
		ereport(NOTICE,
				(errmsg("lock \"%s\" is in use by an open transaction", name.str)));
	else
		report_not_held(&name);
	PG_RETURN_BOOL(false);
}

PG_FUNCTION_INFO_V1(shedlock_stats_reset);
/*
 * shedlock_stats_reset(name) - set the counters of a name to zero
 *
 * NULL: those of all names that the caller may use, but for those that an open
 * transaction changes.  Errors: 55P03 if an open transaction changes those of the
 * name.
 */
Datum
shedlock_stats_reset(PG_FUNCTION_ARGS)
{
	ShedlockName name = {0};

	if (PG_ARGISNULL(0))
	{
		ShedlockCheckMayWrite("shedlock_stats_reset()");
		name.nsp = ShedlockSchema(fcinfo);
	}
	else
		ShedlockBeginCall(fcinfo, "shedlock_stats_reset()", &name);
	if (ShedlockResetStats(name.nsp, name.str))
		ereport(LOG,
				(name.str ?
				 errmsg("counters of lock \"%s\" reset by role %s", name.str, ShedlockActingRole()) :
				 errmsg("counters of all locks reset by role %s", ShedlockActingRole())));
	PG_RETURN_VOID();
}
