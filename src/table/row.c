/*-------------------------------------------------------------------------
 *
 * row.c
 *	  The durable half: the row of a lock, from columns to struct and back.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "access/heapam.h"
#include "miscadmin.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_COLUMNS(SHEDLOCK_ATTNUM)
};

#define KindGetDatum(kind)		CStringGetTextDatum(shedlock_kind_names[kind])

const char *const shedlock_kind_names[] = {
	[SHEDLOCK_LEASE] = "lease",
	[SHEDLOCK_SESSION] = "session",
	[SHEDLOCK_RUN] = "run",
	[SHEDLOCK_LEASED_RUN] = "leased run",
	[SHEDLOCK_RELEASED] = "released",	/* null in the table */
};

/*
 * DatumGetKind - the kind that a text names
 *
 * A text that only other writers use counts as a lease.
 */
static ShedlockKind
DatumGetKind(Datum d)
{
	text	   *str = DatumGetTextPP(d);
	Size		len = text_size(str);

	for (int i = 0; i < SHEDLOCK_RELEASED; i++)
	{
		if (len == strlen(shedlock_kind_names[i]) && memcmp(VARDATA_ANY(str), shedlock_kind_names[i], len) == 0)
			return (ShedlockKind) i;
	}
	return SHEDLOCK_LEASE;
}

/*
 * ShedlockSlotToRow - set *row to the row of the table shedlock in a slot
 *
 * What the fields point to is palloc'd.
 */
void
ShedlockSlotToRow(TupleTableSlot *slot, ShedlockRow *row)
{
	slot_getallattrs(slot);
	row->found = true;
	SHEDLOCK_COLUMNS(SHEDLOCK_FROM_SLOT);
}

/*
 * ShedlockSlotIsFree - was the lock in a slot released, kept no longer, and not paused?
 *
 * Then it is free, or in use.  For scans: allocates nothing, and reads only the columns that
 * it needs.
 */
bool
ShedlockSlotIsFree(TupleTableSlot *slot, TimestampTz now)
{
	bool		isnull;

	return slot_attisnull(slot, Anum_kind) &&
		DatumGetTimestamp(slot_getattr(slot, Anum_lock_until, &isnull)) <= now &&
		(slot_attisnull(slot, Anum_paused_until) ||
		 DatumGetTimestampTz(slot_getattr(slot, Anum_paused_until, &isnull)) <= now);
}

/*
 * ShedlockReadHeldRow - read the row of a lock again, with its advisory half held
 *
 * As ShedlockReadRow(), which was called before, but reads no WAL: what has changed the row
 * since did so on the current timeline, or replicates a row that counts as a lease.
 */
void
ShedlockReadHeldRow(ShedlockStore *store, char *name, ShedlockRow *row)
{
	Datum		key = CStringGetTextDatum(name);

	memset(row, 0, sizeof(*row));
	if (ShedlockFetch(store, key))
		ShedlockSlotToRow(store->slot, row);
	pfree(DatumGetPointer(key));
}

/*
 * ShedlockReadRow - set *row to the row of a lock, with row->found false if there is none
 *
 * Sees what is committed now.  The row stays in store->slot.
 */
void
ShedlockReadRow(ShedlockStore *store, char *name, ShedlockRow *row)
{
	ShedlockReadHeldRow(store, name, row);
	ShedlockLearnOrigin(store->rel, row);
}

/*
 * ShedlockLookUpRow - read the row of a lock, without writing it later
 *
 * As ShedlockReadRow(); opens and closes the table itself.
 */
void
ShedlockLookUpRow(const ShedlockName *name, ShedlockRow *row)
{
	ShedlockStore store;

	ShedlockOpen(&store, name->nsp, "shedlock", AccessShareLock);
	ShedlockReadRow(&store, name->str, row);
	ShedlockClose(&store, AccessShareLock);
}

/*
 * ShedlockRereadRow - as ShedlockReadHeldRow(), if the row has changed
 *
 * *row must be unchanged since it was read, and no other row was read since.
 */
void
ShedlockRereadRow(ShedlockStore *store, char *name, ShedlockRow *row)
{
	if (!ShedlockIsCurrent(store))
		ShedlockReadHeldRow(store, name, row);
}

static int
compare_tokens(const ListCell *a, const ListCell *b)
{
	int64		a_token = ((ShedlockRow *) lfirst(a))->token;
	int64		b_token = ((ShedlockRow *) lfirst(b))->token;

	return (a_token > b_token) - (a_token < b_token);
}

/*
 * ShedlockRunsOfProcess - the rows of the runs of a process, in the order of their tokens
 *
 * Reads the whole table.  A snapshot says which rows are committed, as in api/status.c.
 */
List *
ShedlockRunsOfProcess(ShedlockStore *store, int pid, TimestampTz backend_start)
{
	TupleTableSlot *slot = store->slot;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = begin_table_scan(store->rel, SnapshotAny);
	List	   *runs = NIL;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		ShedlockRow *row;
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (slot_attisnull(slot, Anum_kind) || slot_attisnull(slot, Anum_pid) ||
			slot_attisnull(slot, Anum_backend_start) ||
			DatumGetInt32(slot_getattr(slot, Anum_pid, &isnull)) != pid ||
			DatumGetTimestampTz(slot_getattr(slot, Anum_backend_start, &isnull)) != backend_start ||
			DatumGetKind(slot_getattr(slot, Anum_kind, &isnull)) != SHEDLOCK_RUN ||
			!table_tuple_satisfies_snapshot(store->rel, slot, snapshot))
			continue;
		row = palloc(sizeof(ShedlockRow));
		ShedlockSlotToRow(slot, row);
		runs = lappend(runs, row);
	}
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	list_sort(runs, compare_tokens);
	return runs;
}

/*
 * ShedlockWriteRow - write the row of a lock, as ShedlockWrite() does
 */
bool
ShedlockWriteRow(ShedlockStore *store, const ShedlockRow *row, bool wait)
{
	int			first = TTS_EMPTY(store->slot) ? Anum_name : Anum_kind;
	ShedlockColumns columns;

	ShedlockNewColumns(store, &columns);

#define WRITE(field, ...) \
	if (Anum_##field >= first) \
	{ \
		SHEDLOCK_TO_COLUMNS(field, __VA_ARGS__) \
	}

	SHEDLOCK_COLUMNS(WRITE);
#undef WRITE

	return ShedlockWrite(store, &columns, wait);
}

/*
 * ShedlockForeignTuple - the row that a foreign acquisition writes, with a token
 *
 * It is a lease of the role that writes it; the extension's other columns are null.
 */
HeapTuple
ShedlockForeignTuple(ShedlockStore *store, HeapTuple tuple, int64 token)
{
	ShedlockColumns columns;

	ShedlockNewColumns(store, &columns);
	for (int attnum = Anum_token; attnum <= Anum_pause_reason; attnum++)
		ShedlockSetNull(&columns, attnum);
	ShedlockSetColumn(&columns, Anum_token, Int64GetDatum(token));
	ShedlockSetColumn(&columns, Anum_kind, KindGetDatum(SHEDLOCK_LEASE));
	ShedlockSetColumn(&columns, Anum_locked_role, ObjectIdGetDatum(GetUserId()));
	return heap_modify_tuple(tuple, RelationGetDescr(store->rel),
							 columns.values, columns.nulls, columns.replace);
}

/*
 * ShedlockShownBy - locked_by as the caller may see it
 *
 * Leaves out the client's address if pg_stat_activity hides it from the caller, and
 * masks control characters, which only foreign writers can store.
 */
const char *
ShedlockShownBy(const ShedlockRow *row)
{
	const char *host = strrchr(row->locked_by, '@');
	const char *token = strrchr(row->locked_by, ' ');
	char	   *shown;

	if (host == NULL || token < host || (!isxdigit((unsigned char) host[1]) && host[1] != ':') ||
		strcspn(host, ".:") > (Size) (token - host) ||
		!OidIsValid(row->locked_role) || ShedlockMaySee(row->locked_role))
		shown = pstrdup(row->locked_by);
	else
		shown = psprintf("%.*s%s", (int) (host - row->locked_by), row->locked_by, token);
	ShedlockMaskText(shown);
	return shown;
}
