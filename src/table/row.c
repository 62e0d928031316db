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

#include "miscadmin.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/timestamp.h"

enum
{
	Anum_none,
	SHEDLOCK_COLUMNS(SHEDLOCK_ATTNUM)
};

#define DatumGetIntervalCopy(d) DatumGetIntervalP(datumCopy(d, false, sizeof(Interval)))
#define KindGetDatum(kind)		CStringGetTextDatum(kind_names[kind])

static const char *const kind_names[] = {
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
	char	   *str = TextDatumGetCString(d);

	for (int i = 0; i < SHEDLOCK_RELEASED; i++)
	{
		if (strcmp(str, kind_names[i]) == 0)
			return (ShedlockKind) i;
	}
	return SHEDLOCK_LEASE;
}

/*
 * ShedlockKindText - the name of a kind
 */
const char *
ShedlockKindText(ShedlockKind kind)
{
	return kind_names[kind];
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

#define READ(field, type, not_null, null_value, from_datum, to_datum) \
	row->field = slot->tts_isnull[Anum_##field - 1] ? (null_value) : \
		from_datum(slot->tts_values[Anum_##field - 1]);

	SHEDLOCK_COLUMNS(READ)
#undef READ
}

/*
 * ShedlockSlotIsFree - was the lock in a slot released, kept no longer, and not paused?
 *
 * Then it is free, whatever the advisory half says.  For scans: allocates nothing, and
 * reads only the columns that it needs.
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
 * read_row - as ShedlockReadRow(), but learns nothing
 */
static inline void
read_row(ShedlockStore *store, const char *name, ShedlockRow *row)
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
ShedlockReadRow(ShedlockStore *store, const char *name, ShedlockRow *row)
{
	read_row(store, name, row);
	ShedlockLearnOrigin(store->rel, row);
}

/*
 * ShedlockLookUpRow - read the row of a lock that is not to be written
 *
 * As ShedlockReadRow(); opens and closes the table itself.
 */
void
ShedlockLookUpRow(const ShedlockName *name, ShedlockRow *row)
{
	ShedlockStore store;

	ShedlockOpenToRead(&store, name->nsp, "shedlock");
	ShedlockReadRow(&store, name->str, row);
	ShedlockClose(&store);
}

/*
 * ShedlockRereadRow - read the row again if it has changed
 *
 * *row must be unchanged since ShedlockReadRow().  For callers with the advisory half:
 * reads no WAL, because who has changed the row since did so on the current timeline, or
 * replicates a row that counts as a lease.
 */
void
ShedlockRereadRow(ShedlockStore *store, const char *name, ShedlockRow *row)
{
	if (!ShedlockIsCurrent(store))
		read_row(store, name, row);
}

/*
 * form_row - set all columns of the extension
 */
static void
form_row(ShedlockStore *store, const ShedlockRow *row, ShedlockColumns *columns)
{
	ShedlockNewColumns(store, columns);

#define WRITE(field, type, not_null, null_value, from_datum, to_datum) \
	if (!(not_null) && row->field == (null_value)) \
		ShedlockSetNull(columns, Anum_##field); \
	else \
		ShedlockSetColumn(columns, Anum_##field, to_datum(row->field));

	SHEDLOCK_COLUMNS(WRITE)
#undef WRITE
}

/*
 * ShedlockInsertRow - insert the row of a lock, as ShedlockInsert() does
 */
bool
ShedlockInsertRow(ShedlockStore *store, const ShedlockRow *row)
{
	ShedlockColumns columns;

	form_row(store, row, &columns);
	return ShedlockInsert(store, &columns);
}

/*
 * ShedlockUpdateRow - update the row that was read last, as ShedlockUpdate() does
 */
TM_Result
ShedlockUpdateRow(ShedlockStore *store, const ShedlockRow *row, bool wait)
{
	ShedlockColumns columns;

	form_row(store, row, &columns);
	columns.replace[Anum_name - 1] = false;
	return ShedlockUpdate(store, &columns, wait);
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
