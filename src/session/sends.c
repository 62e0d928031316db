/*-------------------------------------------------------------------------
 *
 * sends.c
 *	  The notifications and signals that a transaction sends when it commits.
 *
 * NOTIFY must not break or delay the end of a run.  A notification that waits in the
 * server's own queue of the transaction makes PREPARE TRANSACTION fail, and the commit,
 * if the queue of the server is full; and it waits for each other transaction that
 * notifies, which may wait for a standby.  So they wait here, and are handed to the
 * server at the last moment, if it can take them at once.
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
#include "catalog/pg_database.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "session/session.h"
#include "storage/procarray.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

/* How often, with a millisecond in between, a commit tries to be the one that notifies. */
#define NOTIFIER_TRIES	100

/*
 * How full the server's queue, and how many bytes a transaction's events may be.  The
 * smallest queue that can be configured has half a megabyte.
 */
#define USAGE_MAX		0.5
#define BYTES_MAX		(100 * 1024)

/* How long the sessions that this transaction has ended may take, and how often to look. */
#define END_WAIT_US		(5 * USECS_PER_SEC)
#define END_NAP_MS		10

typedef struct Send
{
	struct Send *next;
	SubTransactionId subid;		/* subtransaction that sends it */
	int			pid;			/* of a signal, as the next three */
	TimestampTz backend_start;
	int			signo;
	bool		settled;		/* it was sent, or the process was gone */
	char text[	FLEXIBLE_ARRAY_MEMBER]; /* the payload of a notification, the
										 * name of a lock of the process */
} Send;

/* Those of this transaction, the last one first */
static Send *events = NULL;
static Send *signals = NULL;

/*
 * add_send - add what is to be sent when this transaction commits
 */
static Send *
add_send(Send **list, const char *text)
{
	Size		size = strlen(text) + 1;
	Send	   *send;

	ShedlockUseSession();
	send = MemoryContextAllocZero(TopTransactionContext, offsetof(Send, text) + size);
	send->next = *list;
	send->subid = GetCurrentSubTransactionId();
	memcpy(send->text, text, size);
	*list = send;
	return send;
}

/*
 * ShedlockNotifyAtCommit - send a notification when this transaction commits
 *
 * Nobody hears of it if its subtransaction is rolled back, or the transaction is
 * prepared.
 */
void
ShedlockNotifyAtCommit(const char *payload)
{
	(void) add_send(&events, payload);
}

/*
 * may_notify - can this transaction notify without waiting, and without an error?
 *
 * If it can, it has the lock of the server that lets one transaction notify at a time, which
 * a commit would wait for: PreCommit_Notify().  With it, nobody else fills the queue.
 */
static bool
may_notify(void)
{
	Size		bytes = 0;
	LOCKTAG		tag;

	for (const Send *event = events; event; event = event->next)
		bytes += strlen(event->text) + 1;
	if (bytes > BYTES_MAX)
		return false;
	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, InvalidOid, 0);
	for (int tries = 0; LockAcquire(&tag, AccessExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL; tries++)
	{
		if (tries == NOTIFIER_TRIES)
			return false;
		ShedlockNap(1);
	}
	if (DatumGetFloat8(DirectFunctionCall1(pg_notification_queue_usage, (Datum) 0)) <= USAGE_MAX)
		return true;
	LockRelease(&tag, AccessExclusiveLock, false);
	return false;
}

/*
 * send_events - hand them to the server, in the order in which they came
 */
static void
send_events(const Send *event)
{
	if (event == NULL)
		return;
	send_events(event->next);
	Async_Notify("shedlock", event->text);
}

/*
 * ShedlockEventsPreCommit - send the events, or warn that they are not sent
 *
 * The server calls this before it looks for notifications of the transaction.
 */
void
ShedlockEventsPreCommit(void)
{
	if (events == NULL)
		return;
	if (may_notify())
		send_events(events);
	else
		ereport(WARNING,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("could not notify listeners of channel \"shedlock\""),
				 errdetail("There are too many notifications in the queue, or in this transaction, or other transactions keep notifying.")));
}

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
	Send	   *signal = add_send(&signals, name->str);

	signal->pid = pid;
	signal->backend_start = backend_start;
	signal->signo = signo;
}

/*
 * ShedlockIsSignaled - does this transaction send that signal to that process?
 */
bool
ShedlockIsSignaled(int pid, TimestampTz backend_start, int signo)
{
	for (const Send *signal = signals; signal; signal = signal->next)
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
	for (Send *signal = signals; signal; signal = signal->next)
	{
		if (ShedlockBackendAlive(signal->pid, signal->backend_start))
			(void) kill(-signal->pid, signal->signo);
		signal->settled = true;
	}
}

/*
 * is_there - has a process that was told to end not ended yet?
 *
 * Its locks are gone when it is not in the process array any more.
 */
static bool
is_there(const Send *signal)
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

	for (const Send *signal = signals; signal; signal = signal->next)
	{
		while (signal->settled && is_there(signal) && ShedlockSteadyNow() < end &&
			   !QueryCancelPending && !ProcDiePending)
			(void) ShedlockNap(END_NAP_MS);
		if (!signal->settled)
			ereport(WARNING,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("could not signal the session that holds lock \"%s\"", signal->text),
					 errhint("Try again.")));
		else if (is_there(signal))
			ereport(WARNING,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("session that holds lock \"%s\" did not end in time", signal->text),
					 errdetail("Its process ID is %d; it has been told to end.", signal->pid)));
	}
}

/*
 * ShedlockSendsCommit - the rows are visible to others: send the signals
 *
 * The notifications went before, or were refused.
 */
void
ShedlockSendsCommit(void)
{
	events = NULL;
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
 * hand_over - hand what a subtransaction sends to its parent
 */
static void
hand_over(Send *send, SubTransactionId subid, SubTransactionId parent)
{
	for (; send; send = send->next)
	{
		if (send->subid == subid)
			send->subid = parent;
	}
}

/*
 * ShedlockSendsSubCommit - hand all that a subtransaction sends to its parent
 */
void
ShedlockSendsSubCommit(SubTransactionId subid, SubTransactionId parent)
{
	hand_over(events, subid, parent);
	hand_over(signals, subid, parent);
}

/*
 * ShedlockSendsSubAbort - drop what a subtransaction sends; raises no error
 */
void
ShedlockSendsSubAbort(SubTransactionId subid)
{
	/* Those of its own subtransactions are gone, or its own. */
	while (events && events->subid == subid)
		events = events->next;
	while (signals && signals->subid == subid)
		signals = signals->next;
}

/*
 * ShedlockSendsReset - the transaction is rolled back or prepared, and its memory will be freed
 */
void
ShedlockSendsReset(void)
{
	events = signals = NULL;
}
