/*-------------------------------------------------------------------------
 *
 * events.c
 *	  The notifications that a transaction sends when it commits.
 *
 * NOTIFY must not break or delay the end of a run.  A notification that waits in the
 * server's own queue of the transaction makes PREPARE TRANSACTION fail, and the commit,
 * if the queue of the server is full; and it waits for each other transaction that
 * notifies, which may wait for a standby.  So they wait here, and are handed to the
 * server at the last moment, if it can take them at once.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/async.h"
#include "session/session.h"
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

typedef struct Event
{
	struct Event *next;
	SubTransactionId subid;		/* subtransaction that sends it */
	char		payload[FLEXIBLE_ARRAY_MEMBER];
} Event;

/* Those of this transaction, the last one first */
static Event *events = NULL;

/*
 * ShedlockNotifyAtCommit - send a notification when this transaction commits
 *
 * Nobody hears of it if its subtransaction is rolled back, or the transaction is
 * prepared.
 */
void
ShedlockNotifyAtCommit(const char *payload)
{
	Size		size = strlen(payload) + 1;
	Event	   *event;

	ShedlockUseSession();
	event = MemoryContextAlloc(TopTransactionContext, offsetof(Event, payload) + size);
	event->next = events;
	event->subid = GetCurrentSubTransactionId();
	memcpy(event->payload, payload, size);
	events = event;
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

	for (const Event *event = events; event; event = event->next)
		bytes += strlen(event->payload) + 1;
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
send_events(const Event *event)
{
	if (event == NULL)
		return;
	send_events(event->next);
	Async_Notify("shedlock", event->payload);
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
 * ShedlockEventsSubCommit - hand the events of a subtransaction to its parent
 */
void
ShedlockEventsSubCommit(SubTransactionId subid, SubTransactionId parent)
{
	for (Event *event = events; event; event = event->next)
	{
		if (event->subid == subid)
			event->subid = parent;
	}
}

/*
 * ShedlockEventsSubAbort - drop the events of a subtransaction; raises no error
 */
void
ShedlockEventsSubAbort(SubTransactionId subid)
{
	/* Those of its own subtransactions are gone, or its own. */
	while (events && events->subid == subid)
		events = events->next;
}

/*
 * ShedlockEventsReset - the transaction is over, and its memory will be
 */
void
ShedlockEventsReset(void)
{
	events = NULL;
}
