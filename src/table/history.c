/*-------------------------------------------------------------------------
 *
 * history.c
 *	  The log of runs.
 *
 * The transaction that acquires the lock of a run logs it as running, and the one that
 * releases the lock logs the outcome (I6).  A process that dies writes no tables (I10):
 * its run stays logged as running until the lock's next acquirer logs it as lost.  The
 * view shows it as lost at once (finish.c).
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "common/pg_prng.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_RUN_LOG_COLUMNS(SHEDLOCK_ATTNUM)
};

/*
 * A call removes at most PRUNE_MAX of the oldest runs, and stops after KEPT_MAX that stay.
 * It then looks at RANDOM_PAGES.
 */
#define PRUNE_MAX		100
#define KEPT_MAX		16
#define RANDOM_PAGES	4

typedef struct
{
	ShedlockStore *store;
	TimestampTz limit;			/* a run that began before that is old */
	Relation	name_index;		/* NULL until an old run is met */
	TupleTableSlot *newer;
	int			kept;			/* old runs that stay */
	int			removed;		/* the others, or they are locked */
} Pruning;

/* Bytes of a command that are kept. */
#define COMMAND_MAX		8192

/* Runs of a name among which a request, or the next run with a tick, is found */
#define RUNS_MAX		100

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
 * set_text - set a column to a text; NULL leaves it null
 */
static void
set_text(ShedlockColumns *columns, int attnum, const char *str)
{
	if (str)
		ShedlockSetColumn(columns, attnum, CStringGetTextDatum(str));
}

/*
 * ShedlockHistoryStart - log a run whose lock was acquired
 *
 * name: of the job.  row: as the acquire has written it.  tick: DT_NOBEGIN if the run has
 * none, and attempt 0.  permit: or 0.  command, request: or NULL.  Errors: 23505 if the
 * token was drawn twice; those of ShedlockOpen(), ShedlockCheckPromises() and
 * ShedlockCheckStats().
 */
void
ShedlockHistoryStart(const ShedlockName *name, const ShedlockRow *row,
					 const char *command, TimestampTz tick, int attempt,
					 int permit, const char *request)
{
	ShedlockStore store;
	ShedlockColumns columns;

	ShedlockOpen(&store, name->nsp, "shedlock_run_log");
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
	ShedlockSetColumn(&columns, Anum_outcome, CStringGetTextDatum("running"));
	ShedlockSetColumn(&columns, Anum_run_role, ObjectIdGetDatum(row->locked_role));
	ShedlockSetColumn(&columns, Anum_locked_by, CStringGetTextDatum(row->locked_by));
	ShedlockSetColumn(&columns, Anum_pid, Int32GetDatum(row->pid));
	ShedlockSetColumn(&columns, Anum_gave_up, BoolGetDatum(false));
	set_text(&columns, Anum_request, request);
	if (permit > 0)
		ShedlockSetColumn(&columns, Anum_permit, Int32GetDatum(permit));

	if (!ShedlockInsertNew(&store, &columns))
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("token " INT64_FORMAT " is in the history already", row->token),
				 errhint("The sequence shedlock_token_seq was set back.")));
	ShedlockClose(&store);
}

/*
 * outcome_of - the logged outcome of the run that was fetched last
 */
static char *
outcome_of(ShedlockStore *store)
{
	bool		isnull;

	return TextDatumGetCString(slot_getattr(store->slot, Anum_outcome, &isnull));
}

/*
 * set_ending - set the columns that say how a run ended
 */
static void
set_ending(ShedlockColumns *columns, const ShedlockEnding *ending)
{
	ShedlockSetColumn(columns, Anum_outcome, CStringGetTextDatum(ending->outcome));
	if (strcmp(ending->outcome, "lost") != 0)
		ShedlockSetColumn(columns, Anum_ended_at, TimestampTzGetDatum(GetCurrentTimestamp()));
	set_text(columns, Anum_sqlstate, ending->sqlstate);
	if (ending->message)
		set_clipped(columns, Anum_message, ending->message, SHEDLOCK_MESSAGE_MAX);
	set_text(columns, Anum_warning, ending->warning);
	if (ending->exit_code)
		ShedlockSetColumn(columns, Anum_exit_code, Int32GetDatum(*ending->exit_code));
	if (ending->gave_up)
		ShedlockSetColumn(columns, Anum_gave_up, BoolGetDatum(true));
}

/*
 * count_end - count the run that was fetched last
 */
static void
count_end(ShedlockStore *store, Oid nsp, const ShedlockEnding *ending)
{
	bool		isnull;
	char	   *name = TextDatumGetCString(slot_getattr(store->slot, Anum_name, &isnull));
	Datum		started_at = slot_getattr(store->slot, Anum_started_at, &isnull);

	ShedlockCountEnd(nsp, name, ending->outcome, DatumGetTimestampTz(started_at),
					 ending->gave_up);
}

/*
 * ShedlockHistoryEnd - log and count the outcome of a run, unless it has one or was pruned
 *
 * Warns, and logs nothing, if a foreign writer has the row locked for 100 ms.
 */
void
ShedlockHistoryEnd(Oid nsp, int64 token, const ShedlockEnding *ending)
{
	ShedlockStore store;
	int			tries = 0;

	ShedlockOpen(&store, nsp, "shedlock_run_log");
	while (ShedlockFetch(&store, Int64GetDatum(token)) &&
		   strcmp(outcome_of(&store), "running") == 0)
	{
		ShedlockColumns columns;

		ShedlockNewColumns(&store, &columns);
		set_ending(&columns, ending);
		if (ShedlockUpdate(&store, &columns, false) == TM_Ok)
		{
			count_end(&store, nsp, ending);
			break;
		}
		if (!ShedlockAwaitForeignLock(&tries))
		{
			ereport(WARNING,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not log outcome \"%s\" of the run with token " INT64_FORMAT,
							ending->outcome, token),
					 errdetail("Its row in shedlock_run_log is locked.")));
			break;
		}
	}
	ShedlockClose(&store);
}

/*
 * ShedlockHistoryWarned - log a warning that came after the outcome
 *
 * It is lost if the row is locked or was pruned.
 */
void
ShedlockHistoryWarned(Oid nsp, int64 token, const char *warning)
{
	ShedlockStore store;

	ShedlockOpen(&store, nsp, "shedlock_run_log");
	if (ShedlockFetch(&store, Int64GetDatum(token)))
	{
		ShedlockColumns columns;

		ShedlockNewColumns(&store, &columns);
		set_text(&columns, Anum_warning, warning);
		(void) ShedlockUpdate(&store, &columns, false);
	}
	ShedlockClose(&store);
}

/*
 * gave_up - does the log say that no further attempt follows the run fetched last?
 */
static bool
gave_up(ShedlockStore *store)
{
	bool		isnull;

	return DatumGetBool(slot_getattr(store->slot, Anum_gave_up, &isnull));
}

/*
 * ShedlockHistoryGaveUp - log and count that no further attempt follows that run, unless
 * its row is locked, was pruned, or says so
 *
 * Returns true if it did not say so before.
 */
bool
ShedlockHistoryGaveUp(const ShedlockName *name, int64 token)
{
	ShedlockStore store;
	bool		is_news = false;

	ShedlockOpen(&store, name->nsp, "shedlock_run_log");
	if (ShedlockFetch(&store, Int64GetDatum(token)) && !gave_up(&store))
	{
		ShedlockColumns columns;

		ShedlockNewColumns(&store, &columns);
		ShedlockSetColumn(&columns, Anum_gave_up, BoolGetDatum(true));
		is_news = ShedlockUpdate(&store, &columns, false) == TM_Ok;
	}
	ShedlockClose(&store);
	if (is_news)
		ShedlockCountGaveUp(name->nsp, name->str);
	return is_news;
}

/*
 * ShedlockHistoryLost - log that a run without a holder is lost
 */
void
ShedlockHistoryLost(Oid nsp, int64 token)
{
	const ShedlockEnding lost = {.outcome = "lost"};

	ShedlockHistoryEnd(nsp, token, &lost);
}

/*
 * slot_to_logged - what the log says of the run in a slot
 */
static void
slot_to_logged(TupleTableSlot *slot, ShedlockLogged *logged)
{
	bool		isnull;
	Datum		d;

	logged->token = DatumGetInt64(slot_getattr(slot, Anum_token, &isnull));
	logged->name = TextDatumGetCString(slot_getattr(slot, Anum_name, &isnull));
	logged->outcome = TextDatumGetCString(slot_getattr(slot, Anum_outcome, &isnull));
	d = slot_getattr(slot, Anum_sqlstate, &isnull);
	logged->sqlstate = isnull ? NULL : TextDatumGetCString(d);
	d = slot_getattr(slot, Anum_exit_code, &isnull);
	logged->exit_code = isnull ? NULL : palloc(sizeof(int32));
	if (!isnull)
		*logged->exit_code = DatumGetInt32(d);
	logged->started_at = DatumGetTimestampTz(slot_getattr(slot, Anum_started_at, &isnull));
	d = slot_getattr(slot, Anum_ended_at, &isnull);
	logged->ended_at = isnull ? DT_NOBEGIN : DatumGetTimestampTz(d);
	logged->gave_up = DatumGetBool(slot_getattr(slot, Anum_gave_up, &isnull));
	logged->role = DatumGetObjectId(slot_getattr(slot, Anum_run_role, &isnull));
	d = slot_getattr(slot, Anum_tick, &isnull);
	logged->tick = isnull ? DT_NOBEGIN : DatumGetTimestampTz(d);
	d = slot_getattr(slot, Anum_attempt, &isnull);
	logged->attempt = isnull ? 0 : DatumGetInt32(d);
	d = slot_getattr(slot, Anum_permit, &isnull);
	logged->permit = isnull ? 0 : DatumGetInt32(d);
}

/*
 * ShedlockHistoryRead - read what the log says of a run; token 0: nothing, and all is zero
 */
void
ShedlockHistoryRead(Oid nsp, int64 token, ShedlockLogged *logged)
{
	ShedlockStore store;

	memset(logged, 0, sizeof(*logged));
	ShedlockOpenToRead(&store, nsp, "shedlock_run_log");
	if (ShedlockFetch(&store, Int64GetDatum(token)))
		slot_to_logged(store.slot, logged);
	ShedlockClose(&store);
}

/*
 * ShedlockHistoryMaySee - does the view show this run to the caller?
 */
bool
ShedlockHistoryMaySee(Oid nsp, int64 token)
{
	ShedlockLogged logged;

	ShedlockHistoryRead(nsp, token, &logged);
	return ShedlockMaySee(logged.token != 0 ? logged.role : InvalidOid);
}

/*
 * open_name_index - open the index of names and tokens
 *
 * By its columns: the table's owner can have replaced it by one of another name.
 */
static Relation
open_name_index(Relation rel)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Form_pg_index form = index->rd_index;

		if (index->rd_rel->relam == BTREE_AM_OID && form->indisvalid &&
			form->indnkeyatts >= 2 && form->indkey.values[0] == Anum_name &&
			form->indkey.values[1] == Anum_token &&
			RelationGetIndexPredicate(index) == NIL)
			return index;
		index_close(index, AccessShareLock);
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("table \"%s\" of extension \"shedlock\" has no index of name and token",
					RelationGetRelationName(rel))));
}

/*
 * is_request - did the caller's role begin the run in a slot by that request?
 */
static bool
is_request(TupleTableSlot *slot, const char *request)
{
	bool		isnull;
	Datum		d = slot_getattr(slot, Anum_request, &isnull);

	return !isnull && strcmp(TextDatumGetCString(d), request) == 0 &&
		DatumGetObjectId(slot_getattr(slot, Anum_run_role, &isnull)) == GetUserId();
}

/*
 * find_run - find the last run of a name that was begun by a request; NULL: by any
 *
 * Looks at the last max runs of the name.
 */
static void
find_run(const ShedlockName *name, const char *request, int max, ShedlockLogged *logged)
{
	ShedlockStore store;
	Relation	index;
	ScanKeyData key;
	IndexScanDesc scan;

	memset(logged, 0, sizeof(*logged));
	ShedlockOpenToRead(&store, name->nsp, "shedlock_run_log");
	index = open_name_index(store.rel);
	ScanKeyEntryInitialize(&key, 0, 1, BTEqualStrategyNumber, InvalidOid,
						   index->rd_indcollation[0], F_TEXTEQ,
						   CStringGetTextDatum(name->str));
	scan = begin_index_scan(store.rel, index, SnapshotSelf, 1);
	index_rescan(scan, &key, 1, NULL, 0);
	for (int i = 0; i < max && logged->token == 0 &&
		 index_getnext_slot(scan, BackwardScanDirection, store.slot); i++)
	{
		if (request == NULL || is_request(store.slot, request))
			slot_to_logged(store.slot, logged);
	}
	index_endscan(scan);
	index_close(index, AccessShareLock);
	ShedlockClose(&store);
}

/*
 * ShedlockHistoryFindRequest - find the run that the caller's role began by a request
 *
 * Looks at the last RUNS_MAX runs of the name: the answer to a request is
 * lost only moments before the request is made again.
 */
void
ShedlockHistoryFindRequest(const ShedlockName *name, const char *request,
						   ShedlockLogged *logged)
{
	find_run(name, request, RUNS_MAX, logged);
}

/*
 * ShedlockHistoryLast - read what the log says of the last run of a name
 */
void
ShedlockHistoryLast(const ShedlockName *name, ShedlockLogged *logged)
{
	find_run(name, NULL, 1, logged);
}

/*
 * begin_newer_scan - begin a scan of the runs of a name with later tokens, the next one first
 */
static IndexScanDesc
begin_newer_scan(ShedlockStore *store, Relation name_index, Datum name, Datum token)
{
	ScanKeyData keys[2];
	IndexScanDesc scan;

	ScanKeyEntryInitialize(&keys[0], 0, 1, BTEqualStrategyNumber, InvalidOid,
						   name_index->rd_indcollation[0], F_TEXTEQ, name);
	ScanKeyEntryInitialize(&keys[1], 0, 2, BTGreaterStrategyNumber, InvalidOid,
						   InvalidOid, F_INT8GT, token);
	scan = begin_index_scan(store->rel, name_index, SnapshotSelf, 2);
	index_rescan(scan, keys, 2, NULL, 0);
	return scan;
}

/*
 * ShedlockHistoryNext - read what the log says of the next run of a name that has a tick
 *
 * Looks at RUNS_MAX runs, among those without a tick.
 */
void
ShedlockHistoryNext(const ShedlockName *name, int64 token, ShedlockLogged *logged)
{
	ShedlockStore store;
	Relation	index;
	IndexScanDesc scan;

	memset(logged, 0, sizeof(*logged));
	ShedlockOpenToRead(&store, name->nsp, "shedlock_run_log");
	index = open_name_index(store.rel);
	scan = begin_newer_scan(&store, index, CStringGetTextDatum(name->str), Int64GetDatum(token));
	for (int i = 0; i < RUNS_MAX && logged->token == 0 &&
		 index_getnext_slot(scan, ForwardScanDirection, store.slot); i++)
	{
		if (!slot_attisnull(store.slot, Anum_tick))
			slot_to_logged(store.slot, logged);
	}
	index_endscan(scan);
	index_close(index, AccessShareLock);
	ShedlockClose(&store);
}

/*
 * is_last_run - is there no newer run of the name in the store's slot?
 */
static bool
is_last_run(ShedlockStore *store, Relation name_index, TupleTableSlot *slot)
{
	bool		isnull;
	IndexScanDesc scan;
	bool		newer;

	scan = begin_newer_scan(store, name_index, slot_getattr(store->slot, Anum_name, &isnull),
							slot_getattr(store->slot, Anum_token, &isnull));
	newer = index_getnext_slot(scan, ForwardScanDirection, slot);
	index_endscan(scan);
	return !newer;
}

/*
 * may_be_at_work - may the run in the store's slot be at work, though it is not the last
 * of its name?
 *
 * Only runs with permits can be at work together.
 */
static bool
may_be_at_work(ShedlockStore *store)
{
	return !slot_attisnull(store->slot, Anum_permit) &&
		strcmp(outcome_of(store), "running") == 0;
}

/*
 * prune_run - remove the run in the store's slot if it is old, has ended, and is not its
 * name's last
 *
 * Returns false if it is not old.
 */
static bool
prune_run(Pruning *pruning)
{
	ShedlockStore *store = pruning->store;
	ItemPointerData tid = store->slot->tts_tid;
	bool		isnull;

	if (DatumGetTimestampTz(slot_getattr(store->slot, Anum_started_at, &isnull)) >= pruning->limit)
		return false;
	if (pruning->name_index == NULL)
	{
		pruning->name_index = open_name_index(store->rel);
		pruning->newer = table_slot_create(store->rel, NULL);
	}
	if (may_be_at_work(store) || is_last_run(store, pruning->name_index, pruning->newer))
		pruning->kept++;
	else
	{
		(void) ShedlockDelete(store, &tid);
		pruning->removed++;
	}
	return true;
}

/*
 * prune_front - prune the oldest runs, in the order of their tokens
 */
static void
prune_front(Pruning *pruning)
{
	ShedlockStore *store = pruning->store;
	IndexScanDesc scan;

	scan = begin_index_scan(store->rel, ShedlockPrimaryKey(store), SnapshotSelf, 0);
	index_rescan(scan, NULL, 0, NULL, 0);
	while (pruning->removed < PRUNE_MAX && pruning->kept < KEPT_MAX &&
		   index_getnext_slot(scan, ForwardScanDirection, store->slot) &&
		   prune_run(pruning))
		;
	index_endscan(scan);
}

/*
 * prune_random_page - prune the runs on a random page of the table
 */
static void
prune_random_page(Pruning *pruning)
{
	ShedlockStore *store = pruning->store;
	BlockNumber npages = RelationGetNumberOfBlocks(store->rel);
	uint64		page = pg_prng_uint64_range(&pg_global_prng_state, 0, npages - 1);
	ItemPointerData first = {{(uint16) (page >> 16), (uint16) page}, FirstOffsetNumber};
	ItemPointerData last = first;
	TableScanDesc scan;

	last.ip_posid = MaxOffsetNumber;
	scan = begin_tid_range_scan(store->rel, SnapshotSelf, &first, &last);
	while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection, store->slot))
		(void) prune_run(pruning);
	table_endscan(scan);
}

/*
 * ShedlockHistoryPrune - remove runs older than shedlock.history_keep
 *
 * The last run of each name stays: it tells when a job last ran.  So does a run that is
 * at work.
 *
 * Each call removes some, the oldest first.  The last runs of jobs that no longer exist
 * gather at the front, where each call meets them first, and a process may call this
 * only once.  So a call that meets KEPT_MAX of them also looks at some random pages: it
 * reads no more however many runs there are, and each old run is found in time.  A
 * random token instead of a page would not do, because leases draw from the same
 * sequence, and most tokens lie in the gaps.
 */
void
ShedlockHistoryPrune(Oid nsp)
{
	ShedlockStore store;
	Pruning		pruning = {.store = &store};

	ShedlockOpen(&store, nsp, "shedlock_run_log");
	pruning.limit = GetCurrentTimestamp() - shedlock_history_keep * USECS_PER_SEC;
	prune_front(&pruning);
	for (int i = 0; pruning.kept >= KEPT_MAX && i < RANDOM_PAGES; i++)
		prune_random_page(&pruning);
	if (pruning.name_index)
	{
		ExecDropSingleTupleTableSlot(pruning.newer);
		index_close(pruning.name_index, AccessShareLock);
	}
	ShedlockClose(&store);
}
