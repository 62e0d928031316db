/*-------------------------------------------------------------------------
 *
 * finish.c
 *	  Ends a run: releases its lock, records its outcome, and reports it later.
 *
 * A run that succeeds ends in the last transaction of its command, in a subtransaction that
 * waits for nothing.  Where that fails or does not fit, and if the command has failed, the run
 * ends in a transaction of its own: see src/README.
 *
 * The command may have left any role, search_path and default_transaction_*
 * behind.  Writes do not depend on them (write.c).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "job/job.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Of so many ends, the first one of a process prunes the history: many end one run only. */
#define PRUNE_EVERY		16

/* The least time that the end of a run waits for a lock, whatever limits the run has. */
#define WAIT_MIN_MS		1000

/* How often an end is tried again while the server's lock table is full. */
#define FULL_TRIES		50
#define FULL_NAP_MS		100

/* A limit of its waits: none of them. */
#define NO_WAIT			(-1)

/*
 * lock_tables - lock what the end of a run writes to, before it writes anything
 *
 * So it never keeps others from a row while it waits for a table.  Where nothing may wait,
 * write.c tries each lock when it is needed: that costs less, and a refusal undoes the end.
 */
static void
lock_tables(Oid nsp, bool has_tick)
{
	const char *tables[6];
	int			n = 0;

	if (shedlock_never_waits)
		return;
	tables[n++] = "shedlock";
	if (has_tick)
	{
		tables[n++] = "_shedlock_job";
		tables[n++] = "_shedlock_tick";
	}
	tables[n++] = "_shedlock_history";
	tables[n++] = "_shedlock_stats";
	tables[n] = NULL;
	ShedlockLockTables(nsp, tables);
}

/*
 * release_run - write that the lock is released, unless it was lost
 *
 * Waits for a foreign row lock as an UPDATE does.  Where nothing may wait, a lost lock is
 * an error.
 */
static void
release_run(void *arg)
{
	ShedlockRun *run = arg;
	const ShedlockName *name = &run->request.name;
	ShedlockHolding *holding = ShedlockFindHolding(name, run->token);
	bool		written = false;
	ShedlockStore store;
	ShedlockRow row;

	ShedlockOpen(&store, name->nsp, "shedlock", RowExclusiveLock);
	(void) ShedlockTryShare(&name->tag);
	for (bool wait = false; !written; wait = true)
	{
		ShedlockReadHeldRow(&store, name->str, &row);
		if (!row.found || row.token != run->token || row.kind != SHEDLOCK_RUN)
		{
			ereport(shedlock_never_waits ? ERROR : WARNING,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("lock \"%s\" was lost while its command ran", name->str)));
			break;
		}
		ShedlockSetReleased(&row, GetCurrentTimestamp(), true);
		written = ShedlockWriteRow(&store, &row, wait);
	}
	ShedlockClose(&store, NoLock);
	if (holding)
		ShedlockReleaseHolding(holding);
}

/*
 * end_run - release the lock, settle the tick, and record the outcome
 *
 * What is to be told is read here: once the lock is free, another run may begin.
 */
static void
end_run(void *arg)
{
	ShedlockRun *run = arg;
	const ShedlockName *name = &run->request.name;
	ShedlockEnding ending = {.outcome = run->outcome};

	lock_tables(name->nsp, run->attempt > 0);
	release_run(run);
	if (run->attempt > 0)
		ending.gave_up = ShedlockEndTick(name, run->token, run->outcome);
	if (run->error)
	{
		ending.sqlstate = unpack_sql_state(run->error->sqlerrcode);
		ending.message = run->error->message;
	}
	if (run->warning[0] != '\0')
		ending.warning = run->warning;
	ShedlockHistoryEnd(name->nsp, run->token, &ending);
	run->events = ShedlockTells(run->outcome == SHEDLOCK_SUCCEEDED) ?
		ShedlockEndEvents(name->nsp, run->token, NULL) : NIL;
}

/*
 * end_unrecorded - release the lock and settle the tick
 */
static void
end_unrecorded(void *arg)
{
	ShedlockRun *run = arg;

	release_run(run);
	(void) ShedlockEndTick(&run->request.name, run->token, run->outcome);
}

/*
 * finish_command - do what the commit would do of the command's work
 *
 * Deferred triggers and the queries of new cursors WITH HOLD can fail, and assert the lock.
 */
static void
finish_command(void)
{
	ConstraintsSetStmt all_immediate = {.type = T_ConstraintsSetStmt};

	AfterTriggerSetState(&all_immediate);
	(void) PreCommit_Portals(false);
}

/*
 * why_not_in_command - why the run must end in a transaction of its own, or NULL
 */
static const char *
why_not_in_command(const ShedlockHolding *holding)
{
	if (holding == NULL)
		return "The lock was lost.";
	if (XactReadOnly)
		return "The transaction of the command is read-only.";
	if (IsolationUsesXactSnapshot())
		return "The transaction of the command has an isolation level other than read committed.";

	/* The end must not wait for the standby again. */
	if (!ShedlockCommitIsSafe())
		return "The wait for the synchronous standby was canceled.";
	return NULL;
}

/*
 * try_in_command - take a step in a subtransaction that waits for nothing
 *
 * Values that are stored out of line need an active snapshot.  Returns NULL, or the error
 * that undid it.
 */
static ErrorData *
try_in_command(void (*step) (void *arg), void *arg)
{
	ErrorData  *failure;

	/* A cancel that comes now is for the transaction. */
	HOLD_CANCEL_INTERRUPTS();
	shedlock_never_waits = true;
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		failure = ShedlockTrySubtransaction(step, arg);
		PopActiveSnapshot();
	}
	PG_FINALLY();
	{
		shedlock_never_waits = false;
	}
	PG_END_TRY();
	RESUME_CANCEL_INTERRUPTS();
	return failure;
}

/*
 * ShedlockEndInCommand - end a run in the open transaction of its command, if possible
 *
 * Call this before the commit of a command that has succeeded.  Sets run->end_written: the
 * run has ended if the transaction commits, and is as before if it does not.  Errors: those
 * of deferred triggers and cursors.
 */
void
ShedlockEndInCommand(ShedlockRun *run)
{
	ShedlockHolding *holding;
	ErrorData  *failure;
	const char *why_not;

	finish_command();
	holding = ShedlockFindHolding(&run->request.name, run->token);
	if (holding)
		ShedlockRetakeHolding(holding);
	why_not = why_not_in_command(holding);
	if (why_not == NULL)
	{
		run->deadline = holding->state.deadline;
		run->outcome = SHEDLOCK_SUCCEEDED;
		failure = try_in_command(end_run, run);
		why_not = failure ? failure->message : NULL;
	}
	run->end_written = why_not == NULL;
	run->warned = false;
	if (why_not)
		ereport(DEBUG1,
				(errmsg_internal("run of lock \"%s\" ends in a transaction of its own",
								 run->request.name.str),
				 errdetail_internal("%s", why_not)));
}

/*
 * record_warning - record what the commit of the command has warned of
 */
static void
record_warning(void *arg)
{
	const ShedlockRun *run = arg;

	ShedlockHistoryWarned(run->request.name.nsp, run->token, run->warning);
}

/*
 * prune_is_due - does this end of a run prune the history?
 */
static bool
prune_is_due(void)
{
	static unsigned ended = 0;

	return ended++ % PRUNE_EVERY == 0;
}

/*
 * prune_history - keep the history short
 */
static void
prune_history(void *nsp)
{
	ShedlockHistoryPrune(*(Oid *) nsp);
}

/*
 * report_not_pruned - warn that the history was not pruned, if it was not
 */
static void
report_not_pruned(const ErrorData *failure)
{
	if (failure)
		ereport(WARNING,
				(errcode(failure->sqlerrcode),
				 errmsg("could not prune the history of runs: %s", failure->message)));
}

/*
 * tell_end - tell listeners of the end
 *
 * In a transaction of its own, because the end must not wait for others that notify, nor
 * fail with the notification.
 */
static void
tell_end(void *arg)
{
	const ShedlockRun *run = arg;

	ShedlockCommitLocally();
	ShedlockTell(run->events);
}

/*
 * try_step - one of the above in the current transaction
 *
 * commit: commit it, and start another one.
 * Values that are stored out of line need an active snapshot.  A run whose wait
 * for the standby was cancelled does not begin another wait.  Returns the error
 * that the step failed with, or NULL.  An error ends the holdoff of cancels, so that is
 * restored.  From here on everything may wait.
 */
static ErrorData *
try_step(void (*step) (void *arg), void *arg, bool commit)
{
	MemoryContext context = CurrentMemoryContext;
	uint32		holdoff = QueryCancelHoldoffCount;
	ErrorData  *volatile failure = NULL;

	PG_TRY();
	{
		XactReadOnly = false;
		XactIsoLevel = XACT_READ_COMMITTED;
		PushActiveSnapshot(GetTransactionSnapshot());
		if (!ShedlockCommitIsSafe())
			ShedlockCommitLocally();
		step(arg);
		PopActiveSnapshot();
		if (commit)
			ShedlockCommitAndStart();
	}
	PG_CATCH();
	{
		QueryCancelHoldoffCount = holdoff;
		shedlock_never_waits = false;
		failure = ShedlockTakeError(context);
	}
	PG_END_TRY();
	shedlock_never_waits = false;
	return failure;
}

/*
 * wait_limit - how long the end of a run may wait for a lock, in milliseconds; 0: no limit
 *
 * statement_timeout, and the rest of its lock_at_most_for, or of that of a run around it.
 */
static int
wait_limit(void)
{
	int64		limit = StatementTimeout > 0 ? StatementTimeout : INT_MAX;
	int64		deadline = ShedlockRunDeadline();

	if (deadline != DT_NOEND)
		limit = Min(limit, (deadline - ShedlockSteadyNow()) / 1000);
	return limit == INT_MAX ? 0 : (int) Max(limit, WAIT_MIN_MS);
}

/*
 * try_end - one of the ways to end a run, in a transaction of its own
 *
 * limit: of its waits for locks, in milliseconds; 0: there is none; or NO_WAIT.
 * While the server's lock table is full, this tries again.  As try_step() otherwise.
 */
static ErrorData *
try_end(ShedlockRun *run, void (*step) (void *arg), int limit)
{
	ErrorData  *failure;
	int			tries = 0;

	LockTimeout = Max(limit, 0);
	do
	{
		if (tries > 0)
			ShedlockNap(FULL_NAP_MS);
		shedlock_never_waits = limit == NO_WAIT;
		failure = try_step(step, run, true);
	} while (failure && failure->sqlerrcode == ERRCODE_OUT_OF_MEMORY && tries++ < FULL_TRIES);
	LockTimeout = 0;

	/* The caller has set no lock_timeout. */
	if (failure && failure->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		failure->message =
			pstrdup("another transaction has a table or row of extension \"shedlock\" locked for too long");
	return failure;
}

/*
 * end_alone - end a run in a transaction of its own, as completely as possible
 *
 * What was canceled while it waited is tried again without a wait: the call of an
 * administrator who cancels a run locks the row of its tick, and sends the cancel when that is
 * free.  A command that has ended by then has the outcome that it had.
 * Returns whether it is recorded.  *failure: why its lock is not released, or NULL.
 */
static bool
end_alone(ShedlockRun *run, ErrorData **failure)
{
	*failure = try_end(run, end_run, wait_limit());
	if (*failure == NULL)
		return true;
	if ((*failure)->sqlerrcode == ERRCODE_QUERY_CANCELED && try_end(run, end_run, NO_WAIT) == NULL)
	{
		*failure = NULL;
		return true;
	}
	ereport(WARNING,
			(errcode((*failure)->sqlerrcode),
			 errmsg("could not record outcome \"%s\" of lock \"%s\": %s",
					shedlock_outcome_names[run->outcome], run->request.name.str, (*failure)->message)));
	if (run->attempt > 0)
		*failure = try_end(run, end_unrecorded, NO_WAIT);
	if (*failure)
		*failure = try_end(run, release_run, 0);
	return false;
}

/*
 * ShedlockEndRun - end a run whose command has ended, or do what follows if it has ended
 *
 * Expects a transaction that has just been started, and leaves one that may have pruned
 * the history.  Holds off cancels and timeouts, because a cancel that comes after the command
 * must not strand the lock: they end only a wait for another transaction.  src/README says what
 * is written if not all can be.  Reports failures as WARNINGs.
 */
void
ShedlockEndRun(ShedlockRun *run)
{
	const char *name = run->request.name.str;
	uint32		holdoff = QueryCancelHoldoffCount;
	int			lock_timeout = LockTimeout;
	ErrorData  *failure = NULL;
	ErrorData  *unrecorded = NULL;
	ErrorData  *untold = NULL;
	bool		recorded = true;

	disable_timeout(STATEMENT_TIMEOUT, false);

	/* That of the command is not for its end. */
	LockTimeout = 0;
	HOLD_CANCEL_INTERRUPTS();
	if (!run->ended)
		recorded = end_alone(run, &failure);
	else if (run->warned)
		unrecorded = try_step(record_warning, run, true);
	if (recorded && run->events != NIL)
		untold = try_step(tell_end, run, true);
	QueryCancelHoldoffCount = holdoff;
	LockTimeout = lock_timeout;

	if (unrecorded)
		ereport(WARNING,
				(errcode(unrecorded->sqlerrcode),
				 errmsg("could not record a warning of the run of lock \"%s\": %s",
						name, unrecorded->message)));
	if (untold)
		ereport(WARNING,
				(errcode(untold->sqlerrcode),
				 errmsg("could not notify listeners of outcome \"%s\" of lock \"%s\": %s",
						shedlock_outcome_names[run->outcome], name, untold->message)));
	if (failure)
		ereport(WARNING,
				(errcode(failure->sqlerrcode),
				 errmsg("could not release lock \"%s\": %s", name, failure->message),
				 errhint("It stays held until this session ends, or until it calls shedlock_run with that name again.")));
	/* The CALL commits at its end, unless it raises an error. */
	else if (recorded && prune_is_due())
		report_not_pruned(try_step(prune_history, &run->request.name.nsp, run->error != NULL));
}

/*
 * ended_before - has that run been ended with that outcome, or another one?
 *
 * The answer to the first call may have been lost on its way to the client, so the same end
 * again is true.  Ends with a SQLSTATE are not those of callers; nor is one at exactly limit_at,
 * which is recorded of a run that nobody has ended.  A token of another name counts as unknown.
 */
static bool
ended_before(const ShedlockName *name, int64 token, ShedlockOutcome outcome, bool *same)
{
	ShedlockHistoryRun past;

	ShedlockHistoryRead(name->nsp, token, &past);
	if (past.outcome <= SHEDLOCK_RUNNING || past.outcome == SHEDLOCK_RUN_LOST ||
		strcmp(past.name, name->str) != 0 || !has_privs_of_role(GetUserId(), past.role))
		return false;
	*same = past.sqlstate == NULL && past.outcome == outcome && past.ended_at != past.limit_at;
	if (*same)
		ShedlockCommitDurablyAgain();
	else
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("run of lock \"%s\" with token " INT64_FORMAT " has ended already",
						name->str, token),
				 errdetail("Its outcome is \"%s\".", shedlock_outcome_names[past.outcome])));
	return true;
}

/*
 * ShedlockEndLeasedRun - end a run whose work is outside the database
 *
 * Releases its lock, settles its tick, and records its outcome, in this transaction, which
 * may prune the history, too.  ending->gave_up is found here.  Returns true if it was the
 * caller's and held, or was ended with this outcome before; else false, after a WARNING,
 * with nothing written.  Errors: those of ShedlockReleaseLeasedRun().
 */
bool
ShedlockEndLeasedRun(const ShedlockName *name, int64 token, ShedlockEnding *ending)
{
	Oid			nsp = name->nsp;
	bool		same;

	if (ended_before(name, token, ending->outcome, &same))
		return same;
	if (!ShedlockReleaseLeasedRun(name, token, ending->outcome != SHEDLOCK_RETURNED))
	{
		/* The release waits for a session that has sent the same end before. */
		if (ended_before(name, token, ending->outcome, &same))
			return same;
		ShedlockReportLoss(name, token);
		return false;
	}
	ending->gave_up = ShedlockEndTick(name, token, ending->outcome);
	ShedlockHistoryEnd(nsp, token, ending);
	ShedlockTellEnd(nsp, token, NULL);
	if (prune_is_due())
		report_not_pruned(try_in_command(prune_history, &nsp));
	ShedlockCommitDurably();
	return true;
}
