/*-------------------------------------------------------------------------
 *
 * admin.c
 *	  For administrators: ending and cancelling what another session holds, and setting
 *	  counters to zero.
 *
 * EXECUTE is granted only to the owner.  Each act writes a line to the server log, with the
 * role.  A session is ended, or a command cancelled, by the commit: see src/README.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/transam.h"
#include "api/api.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* How long a process may take to give up the advisory half after its release is committed. */
#define ENDING_TRIES		100
#define ENDING_NAP_MS		10

/*
 * find_user - find a transaction that uses the lock, but for this one; or NULL
 *
 * holder: a process whose share does not count, or -1.
 */
static ShedlockHolder *
find_user(const ShedlockName *name, int holder)
{
	ListCell   *lc;

	foreach(lc, ShedlockHolders(&name->tag))
	{
		ShedlockHolder *user = lfirst(lc);

		if (user->pid != MyProcPid && (user->pid != holder || user->exclusive))
			return user;
	}
	return NULL;
}

/*
 * report_in_use - report a transaction that uses the lock, at a level from WARNING on
 *
 * user: as from find_user(); NULL if it has just ended.
 */
static void
report_in_use(const ShedlockName *name, const ShedlockHolder *user, int elevel)
{
	if (user && user->pid == 0)
		ereport(elevel,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lock \"%s\" is in use by a prepared transaction", name->str),
				 errdetail("Its transaction ID is %u.", user->prepared_xid),
				 errhint("Look up its identifier in pg_prepared_xacts, and use COMMIT PREPARED or ROLLBACK PREPARED.")));
	else
		ereport(elevel,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lock \"%s\" is in use by an open transaction", name->str),
				 user ? errdetail("Its process ID is %d.", user->pid) : 0,
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
	ShedlockUse use = {0};

	ShedlockReadUse(&name->tag, &use);
	if (list_member_int(use.pids, row->pid) ||
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
 * check_may_signal - may the caller terminate that process, or cancel its command?
 *
 * The rules are those of pg_terminate_backend() and pg_cancel_backend(), which would send
 * the signal at once.  act: what the caller does.
 */
static void
check_may_signal(int pid, const char *act)
{
	PGPROC	   *proc = BackendPidGetProc(pid);
	bool		of_superuser;

	if (proc == NULL || superuser())
		return;
	of_superuser = !OidIsValid(proc->roleId) || superuser_arg(proc->roleId);
	if (of_superuser ||
		(!has_privs_of_role(GetUserId(), proc->roleId) &&
		 !has_privs_of_role(GetUserId(), ROLE_PG_SIGNAL_BACKEND)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to %s process %d", act, pid),
				 of_superuser ?
				 errdetail("Its role is a superuser, which the caller is not.") :
				 errdetail("The caller has the privileges neither of its role nor of pg_signal_backend.")));
}

/*
 * use_up_tick - use up the tick of a run; ends: record the run as cancelled, too
 *
 * As lost, it would be due again at once.  The tick comes first: where a later run begins in
 * an open transaction, both rows are locked, and only that of the tick is waited for.  The
 * SQLSTATE tells the worker, who may end the run as cancelled later, that its own end came
 * too late (finish.c).
 */
static void
use_up_tick(Oid nsp, const ShedlockRow *run, bool ends)
{
	ShedlockEnding ending = {.outcome = SHEDLOCK_CANCELLED};
	ShedlockName name;

	ShedlockMakeName(nsp, run->name, &name);
	ShedlockCloseTick(&name, run->token);
	ending.sqlstate = unpack_sql_state(ERRCODE_QUERY_CANCELED);
	if (ends && ShedlockHistoryEnd(nsp, run->token, &ending))
		ShedlockTellEnd(nsp, run->token, NULL);
}

/*
 * hold_row - keep a session lock or run from being released before this transaction ends
 *
 * frees: the lock is not kept then, nor are clients of ShedLock to wait for lock_until: it is
 * free as soon as its process is gone.  Returns false if it was released: this waits for a
 * release that is being committed.  Locks: the advisory half in share mode, and the row.
 */
static bool
hold_row(ShedlockStore *store, const ShedlockRow *holder, bool frees)
{
	ShedlockName name;
	ShedlockRow row;
	bool		shared;

	ShedlockMakeName(RelationGetNamespace(store->rel), holder->name, &name);
	shared = ShedlockTryShare(&name.tag);
	do
	{
		ShedlockReadHeldRow(store, name.str, &row);
		if (!row.found || row.token != holder->token || row.kind == SHEDLOCK_RELEASED)
		{
			if (shared)
				ShedlockUnlock(&name.tag, ShareLock);
			return false;
		}
		if (frees)
		{
			row.lock_until = GetCurrentTimestamp();
			row.keep_until = DT_NOBEGIN;
		}
	} while (!ShedlockWriteRow(store, &row, true));
	return true;
}

/*
 * settle_runs - use up the ticks of all runs of the process that holds a lock
 *
 * A signal ends all of them: a command can run another one under a lock of its own.  A
 * caller that fires for such a tick could begin another attempt at once.  ends: the process
 * is to be ended, so its runs are recorded as cancelled, and the lock is free then.  Rows are
 * locked in the order of tokens, so that two callers do not deadlock.  Returns false if the
 * lock was released meanwhile.
 */
static bool
settle_runs(ShedlockStore *store, ShedlockRow *holder, bool ends)
{
	List	   *runs = NIL;
	bool		held = false;
	List	   *still_at_work = NIL;
	ListCell   *lc;

	/*
	 * If this transaction ends the process already, it has settled the runs
	 * of that time.
	 */
	if (!ShedlockIsSignaled(holder->pid, holder->backend_start, SIGTERM))
		runs = ShedlockRunsOfProcess(store, holder->pid, holder->backend_start);
	else if (holder->kind == SHEDLOCK_RUN)
		runs = list_make1(holder);
	if (holder->kind == SHEDLOCK_SESSION)
		held = hold_row(store, holder, ends);
	foreach(lc, runs)
	{
		ShedlockRow *run = lfirst(lc);
		bool		is_this = run->token == holder->token;

		if (!hold_row(store, run, ends && is_this))
			continue;
		held |= is_this;
		still_at_work = lappend(still_at_work, run);
	}
	foreach(lc, held ? still_at_work : NIL)
		use_up_tick(RelationGetNamespace(store->rel), lfirst(lc), ends);
	return held;
}

/*
 * end_holder - terminate the process that holds a session lock or run, at commit
 *
 * Returns false if there is no such process, it is left alone, or it has released the lock
 * by itself.  Then *released is the token of that lock; otherwise it is 0.
 */
static bool
end_holder(ShedlockStore *store, const ShedlockName *name, int64 *released)
{
	ShedlockRow row;
	ShedlockHolder *user;

	*released = 0;
	ShedlockReadRow(store, name->str, &row);
	if (!row.found || ShedlockCountsAsLease(&row) ||
		!ShedlockIsHeld(&row, name, GetCurrentTimestamp()) || !names_its_holder(&row, name))
		return false;
	if (row.pid == MyProcPid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lock \"%s\" is held by this session", name->str),
				 row.kind == SHEDLOCK_RUN ?
				 errhint("It is released when the command of shedlock_run ends.") :
				 errhint("Use shedlock_release.")));
	check_may_signal(row.pid, "terminate");
	if (!settle_runs(store, &row, true))
	{
		*released = row.token;
		return false;
	}
	ShedlockSignalAtCommit(name, row.pid, row.backend_start, SIGTERM);
	ereport(LOG,
			(errmsg("process %d, which held lock \"%s\", terminated by role %s",
					row.pid, name->str, ShedlockActingRole())));
	ereport(NOTICE,
			(errmsg("terminating the session that holds lock \"%s\"", name->str),
			 errdetail("Its process ID is %d.  It is told to end when this transaction commits.", row.pid)));
	user = find_user(name, row.pid);
	if (user)
		report_in_use(name, user, WARNING);
	ShedlockTellLock("forced", name, row.token, DT_NOBEGIN);
	return true;
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

	ShedlockOpen(&store, name->nsp, table, AccessShareLock);
	found = ShedlockFetch(&store, CStringGetTextDatum(name->str)) ||
		TransactionIdIsValid(ShedlockInserter(&store, CStringGetTextDatum(name->str)));
	ShedlockClose(&store, AccessShareLock);
	return found;
}

/*
 * ShedlockWarnIfUnknown - warn if no lock, no tick and no run has that name
 *
 * hint: or NULL.  Returns true if it warned.  Keeps no lock on a table.
 */
bool
ShedlockWarnIfUnknown(const ShedlockName *name, const char *hint)
{
	ShedlockHistoryRun past;

	if (is_in("shedlock", name) || is_in("_shedlock_tick", name) || is_in("_shedlock_job", name))
		return false;
	ShedlockHistoryFind(name, &past);
	if (past.token != 0)
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
 * is_ending - was the lock released, and is its former holder about to give it up?
 *
 * The row is visible before the advisory half is free (I12).
 */
static bool
is_ending(const ShedlockRow *row, const ShedlockName *name)
{
	return row->found && row->kind == SHEDLOCK_RELEASED && row->pid != 0 &&
		find_user(name, row->pid) == NULL;
}

/*
 * take_over - acquire the advisory half, exclusive, to the end of the transaction
 *
 * released: as from end_holder().  Returns false if another caller has acquired the lock since.
 */
static bool
take_over(ShedlockStore *store, const ShedlockName *name, int64 released)
{
	for (int tries = 0; !ShedlockTryLock(&name->tag, ExclusiveLock); tries++)
	{
		ShedlockHolder *user = find_user(name, -1);
		ShedlockRow row;

		ShedlockReadRow(store, name->str, &row);
		if (released != 0 && row.token != released)
			return false;

		/* No user: it has gone since the try was refused. */
		if (tries == ENDING_TRIES || (user && !is_ending(&row, name)))
			report_in_use(name, user, ERROR);
		ShedlockNap(ENDING_NAP_MS);
	}
	ShedlockWakeLater(&name->tag);
	return true;
}

/*
 * free_row - release the lock in its row, and report that
 *
 * Needs the advisory half in exclusive mode, and gives it back if there is nothing to write.
 * released: as from end_holder(); a lock that was acquired since is not touched.  Returns
 * false if the lock was free, even if its row did not say so yet because its session has died.
 */
static bool
free_row(ShedlockStore *store, const ShedlockName *name, int64 released)
{
	ShedlockRow row;
	ShedlockState state;
	const char *holder;
	TimestampTz refused_until;
	bool		is_run;

	do
	{
		TimestampTz now;
		bool		is_lease;

		ShedlockReadHeldRow(store, name->str, &row);
		now = GetCurrentTimestamp();
		is_lease = row.found && ShedlockCountsAsLease(&row);
		if (!row.found || (released != 0 && row.token != released) ||
			(is_lease && row.lock_until <= now))
		{
			ShedlockUnlock(&name->tag, ExclusiveLock);
			return false;
		}
		state = ShedlockJudge(&row, name, now, SHEDLOCK_MINE);
		is_run = SHEDLOCK_IS_RUN(row.kind);
		if (is_run && SHEDLOCK_HAS_HOLDER(state))
			use_up_tick(name->nsp, &row, true);
		else if (is_run && ShedlockHistoryLost(name->nsp, &row))
			ShedlockTellEnd(name->nsp, row.token, NULL);
		holder = row.kind != SHEDLOCK_RELEASED && is_lease ? ShedlockShownBy(&row) : NULL;
		refused_until = state == SHEDLOCK_FREE && row.lock_until > now ? row.lock_until : DT_NOBEGIN;
		ShedlockSetReleased(&row, now, false);
	} while (!ShedlockWriteRow(store, &row, true));

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
	ShedlockTellLock("forced", name, row.token, DT_NOBEGIN);
	return SHEDLOCK_HAS_HOLDER(state) || state == SHEDLOCK_KEPT;
}

PG_FUNCTION_INFO_V1(shedlock_force_release);
/*
 * shedlock_force_release(name) - release a lock of any holder, even a kept one
 *
 * Locks: the advisory half to the end of the transaction, exclusive, or share if a session is
 * to be ended.
 */
Datum
shedlock_force_release(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	ShedlockStore store;
	int64		released;
	bool		forced;

	ShedlockBeginCall(fcinfo, "shedlock_force_release()", &name);
	ShedlockOpen(&store, name.nsp, "shedlock", RowExclusiveLock);
	forced = end_holder(&store, &name, &released) ||
		(take_over(&store, &name, released) && free_row(&store, &name, released));
	ShedlockClose(&store, NoLock);
	if (!forced)
		report_not_held(&name);
	PG_RETURN_BOOL(forced);
}

/*
 * cancel_run - cancel the command of the run in a row, which lives, at commit
 *
 * Returns false, and reports it, if that is not possible.
 */
static bool
cancel_run(const ShedlockName *name, ShedlockRow *run)
{
	ShedlockStore store;
	bool		settled;

	if (run->pid == MyProcPid)
	{
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lock \"%s\" is held by this session", name->str),
				 errhint("A command that raises an error ends its run.")));
		return false;
	}
	if (!names_its_holder(run, name))
		return false;
	check_may_signal(run->pid, "cancel the command of");
	ShedlockOpen(&store, name->nsp, "shedlock", RowExclusiveLock);
	settled = settle_runs(&store, run, false);
	ShedlockClose(&store, NoLock);
	if (!settled)
	{
		report_not_held(name);
		return false;
	}
	ShedlockSignalAtCommit(name, run->pid, run->backend_start, SIGINT);
	ereport(LOG,
			(errmsg("run of lock \"%s\" in process %d canceled by role %s",
					name->str, run->pid, ShedlockActingRole())));
	return true;
}

PG_FUNCTION_INFO_V1(shedlock_cancel);
/*
 * shedlock_cancel(name) - cancel the command of a run when the transaction commits
 *
 * Locks: the advisory half in share mode to the end of the transaction.
 */
Datum
shedlock_cancel(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	ShedlockRow row;
	ShedlockUse use = {0};
	ShedlockState state;
	bool		as_lease;

	ShedlockBeginCall(fcinfo, "shedlock_cancel()", &name);
	ShedlockLookUpRow(&name, &row);
	state = ShedlockJudge(&row, &name, GetCurrentTimestamp(), &use);

	as_lease = row.found && ShedlockCountsAsLease(&row);
	if (state == SHEDLOCK_HELD && row.kind == SHEDLOCK_RUN && !as_lease)
		PG_RETURN_BOOL(cancel_run(&name, &row));

	if (SHEDLOCK_HAS_HOLDER(state))
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" has no command to cancel", name.str),
				 row.kind == SHEDLOCK_LEASED_RUN ?
				 errdetail("It is held by a run whose work is outside the database.") :
				 as_lease ?
				 errdetail("It is held as a lease.") :
				 errdetail("It is held as a session lock."),
				 errhint("Use shedlock_force_release to end it.")));
	else if (state == SHEDLOCK_IN_USE)
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
 * transaction changes.
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
