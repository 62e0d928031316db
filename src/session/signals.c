/*-------------------------------------------------------------------------
 *
 * signals.c
 *	  The signals that a transaction sends when it has committed.
 *
 * An administrator's call uses up the tick of a run and ends the run.  The signal cannot be
 * rolled back, so it waits for the commit: if that fails, the run goes on.  It is sent
 * before the transaction's locks are released.  So a run whose row this transaction has
 * locked is still at work then, and the signal does not meet what its session does next.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "session/session.h"
#include "storage/procarray.h"
#include "utils/memutils.h"

/* How long the sessions that this transaction has ended may take, and how often to look. */
#define END_WAIT_US		(5 * USECS_PER_SEC)
#define END_NAP_MS		10

typedef struct Signal
{
	struct Signal *next;
	SubTransactionId subid;		/* subtransaction that sends it */
	int			pid;
	TimestampTz backend_start;
	int			signo;
	bool		settled;		/* it was sent, or the process was gone */
	char		name[FLEXIBLE_ARRAY_MEMBER];	/* of a lock of the process */
} Signal;

/* Those of this transaction, the last one first */
static Signal *signals = NULL;

/*
 * ShedlockSignalAtCommit - signal a process when this transaction has committed
 *
 * name: of a lock that it has.  After SIGTERM the commit also waits for the end of the
 * process.  Nothing is sent if the subtransaction is rolled back, or if another process has
 * the process ID then.  The transaction cannot be prepared.
 */
void
ShedlockSignalAtCommit(const ShedlockName *name, int pid, TimestampTz backend_start, int signo)
{
	Signal	   *signal;

	ShedlockUseSession();
	signal = MemoryContextAllocZero(TopTransactionContext,
									offsetof(Signal, name) + (Size) name->len + 1);
	signal->next = signals;
	signal->subid = GetCurrentSubTransactionId();
	signal->pid = pid;
	signal->backend_start = backend_start;
	signal->signo = signo;
	memcpy(signal->name, name->str, (Size) name->len + 1);
	signals = signal;
}

/*
 * ShedlockIsSignaled - does this transaction send that signal to that process?
 */
bool
ShedlockIsSignaled(int pid, TimestampTz backend_start, int signo)
{
	for (const Signal *signal = signals; signal; signal = signal->next)
	{
		if (signal->pid == pid && signal->backend_start == backend_start &&
			signal->signo == signo)
			return true;
	}
	return false;
}

/*
 * send_signals - send them to the processes that still live, for ShedlockShield()
 *
 * A backend leads a process group, which pg_terminate_backend() signals, too.  A process
 * that is ending may be gone by now.
 */
static void
send_signals(const void *unused)
{
	for (Signal *signal = signals; signal; signal = signal->next)
	{
		if (ShedlockBackendAlive(signal->pid, signal->backend_start))
#ifdef HAVE_SETSID
			(void) kill(-signal->pid, signal->signo);
#else
			(void) kill(signal->pid, signal->signo);
#endif
		signal->settled = true;
	}
}

/*
 * is_there - has a process that was told to end not ended yet?
 *
 * Its locks are gone when it is not in the process array any more.
 */
static bool
is_there(const Signal *signal)
{
	return signal->signo == SIGTERM && BackendPidGetProc(signal->pid) != NULL;
}

/*
 * await_ends - wait for the processes that were told to end, and warn of those that have not;
 * for ShedlockShield()
 *
 * Interrupts are held off during a commit, so that a cancel ends the wait, and nothing else.
 */
static void
await_ends(const void *unused)
{
	int64		end = ShedlockSteadyNow() + END_WAIT_US;

	for (const Signal *signal = signals; signal; signal = signal->next)
	{
		while (signal->settled && is_there(signal) && ShedlockSteadyNow() < end &&
			   !QueryCancelPending && !ProcDiePending)
			(void) ShedlockNap(END_NAP_MS);
		if (!signal->settled)
			ereport(WARNING,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("could not signal the session that holds lock \"%s\"", signal->name),
					 errhint("Try again.")));
		else if (is_there(signal))
			ereport(WARNING,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("session that holds lock \"%s\" did not end in time", signal->name),
					 errdetail("Its process ID is %d; it has been told to end.", signal->pid)));
	}
}

/*
 * ShedlockSignalsCommit - the rows are visible to others: send the signals
 */
void
ShedlockSignalsCommit(void)
{
	if (signals)
		ShedlockShield(send_signals, NULL);
}

/*
 * ShedlockSignalsAwait - the transaction's locks are gone, too: wait for what has to end
 *
 * Forgets the signals.  Their memory lasts until the end of the transaction.
 */
void
ShedlockSignalsAwait(void)
{
	if (signals)
		ShedlockShield(await_ends, NULL);
	signals = NULL;
}

/*
 * ShedlockSignalsPrePrepare - nobody would send the signals at COMMIT PREPARED
 */
void
ShedlockSignalsPrePrepare(void)
{
	if (signals)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has ended or canceled a run, or ended a session")));
}

/*
 * ShedlockSignalsSubCommit - hand the signals of a subtransaction to its parent
 */
void
ShedlockSignalsSubCommit(SubTransactionId subid, SubTransactionId parent)
{
	for (Signal *signal = signals; signal; signal = signal->next)
	{
		if (signal->subid == subid)
			signal->subid = parent;
	}
}

/*
 * ShedlockSignalsSubAbort - drop the signals of a subtransaction; raises no error
 */
void
ShedlockSignalsSubAbort(SubTransactionId subid)
{
	/* Those of its own subtransactions are gone, or its own. */
	while (signals && signals->subid == subid)
		signals = signals->next;
}

/*
 * ShedlockSignalsReset - the transaction is rolled back, and its memory will be freed
 */
void
ShedlockSignalsReset(void)
{
	signals = NULL;
}
