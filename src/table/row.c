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

/* Columns of shedlock, in the order of the install script. */
enum
{
	Anum_name = 1,
	Anum_kind,
	Anum_lock_until,
	Anum_locked_at,
	Anum_locked_by,
	Anum_token,
	Anum_backend_start,
	Anum_pid,
	Anum_locked_role,
	Anum_timeline,
	Anum_keep_until,
	Anum_lock_at_most_for,
	Anum_paused_until,
	Anum_paused_by,
	Anum_pause_reason
};

static const char *const kind_names[] = {
	[SHEDLOCK_LEASE] = "lease",
	[SHEDLOCK_SESSION] = "session",
	[SHEDLOCK_RUN] = "run",
	[SHEDLOCK_RELEASED] = "released",
};

/*
 * kind_of - the kind by its text, which is null once the lock is given back
 *
 * A text that we never wrote counts as a lease: it is held for its time.
 */
static ShedlockKind
kind_of(const char *str)
{
	if (str == NULL)
		return SHEDLOCK_RELEASED;
	for (int i = 0; i < SHEDLOCK_RELEASED; i++)
	{
		if (strcmp(str, kind_names[i]) == 0)
			return (ShedlockKind) i;
	}
	return SHEDLOCK_LEASE;
}

/*
 * ShedlockKindText - the text of a kind
 */
const char *
ShedlockKindText(ShedlockKind kind)
{
	return kind_names[kind];
}

/*
 * get_text, get_int64 - a column, or the value that stands for null
 */
static char *
get_text(TupleTableSlot *slot, int attnum)
{
	bool		isnull;
	Datum		d = slot_getattr(slot, attnum, &isnull);

	return isnull ? NULL : TextDatumGetCString(d);
}

static int64
get_int64(TupleTableSlot *slot, int attnum, int64 fornull)
{
	bool		isnull;
	Datum		d = slot_getattr(slot, attnum, &isnull);

	return isnull ? fornull : DatumGetInt64(d);
}

static int32
get_int32(TupleTableSlot *slot, int attnum)
{
	bool		isnull;
	Datum		d = slot_getattr(slot, attnum, &isnull);

	return isnull ? 0 : DatumGetInt32(d);
}

/*
 * ShedlockSlotToRow - the columns of a row of the table shedlock
 */
void
ShedlockSlotToRow(TupleTableSlot *slot, ShedlockRow *row)
{
	bool		isnull;
	Datum		d;

	/* once, and not bit by bit */
	slot_getallattrs(slot);

	row->found = true;
	row->name = get_text(slot, Anum_name);
	row->lock_until = get_int64(slot, Anum_lock_until, DT_NOBEGIN);
	row->locked_at = get_int64(slot, Anum_locked_at, DT_NOBEGIN);
	row->locked_by = get_text(slot, Anum_locked_by);
	row->token = get_int64(slot, Anum_token, 0);
	row->kind = kind_of(get_text(slot, Anum_kind));
	row->locked_role = (Oid) get_int32(slot, Anum_locked_role);
	row->keep_until = get_int64(slot, Anum_keep_until, DT_NOBEGIN);
	d = slot_getattr(slot, Anum_lock_at_most_for, &isnull);
	row->at_most = isnull ? NULL : DatumGetIntervalP(datumCopy(d, false, sizeof(Interval)));
	row->pid = get_int32(slot, Anum_pid);
	row->backend_start = get_int64(slot, Anum_backend_start, 0);
	row->timeline = (TimeLineID) get_int32(slot, Anum_timeline);
	row->paused_until = get_int64(slot, Anum_paused_until, DT_NOBEGIN);
	row->paused_by = get_text(slot, Anum_paused_by);
	row->pause_reason = get_text(slot, Anum_pause_reason);
}

/*
 * ShedlockReadRow - read the row of a lock; row->found tells if there is one
 */
void
ShedlockReadRow(ShedlockStore *store, const char *name, ShedlockRow *row)
{
	Datum		key = CStringGetTextDatum(name);

	memset(row, 0, sizeof(*row));
	if (ShedlockFetch(store, key))
		ShedlockSlotToRow(store->slot, row);
	pfree(DatumGetPointer(key));
}

/*
 * ShedlockRereadRow - read it again, after ShedlockReadRow()
 *
 * row must be as that has left it.
 */
void
ShedlockRereadRow(ShedlockStore *store, const char *name, ShedlockRow *row)
{
	if (!ShedlockIsCurrent(store))
		ShedlockReadRow(store, name, row);
}

/*
 * form_row - all columns of ours
 */
static void
form_row(ShedlockStore *store, const ShedlockRow *row, ShedlockColumns *columns)
{
	ShedlockNewColumns(store, columns);

#define SET_UNLESS(isnull, attnum, value) \
	((isnull) ? ShedlockSetNull(columns, attnum) : \
	 ShedlockSetColumn(columns, attnum, value))

	ShedlockSetText(columns, Anum_name, row->name);
	ShedlockSetColumn(columns, Anum_lock_until, TimestampGetDatum(row->lock_until));
	ShedlockSetColumn(columns, Anum_locked_at, TimestampGetDatum(row->locked_at));
	ShedlockSetText(columns, Anum_locked_by, row->locked_by);
	SET_UNLESS(row->token == 0, Anum_token, Int64GetDatum(row->token));
	ShedlockSetText(columns, Anum_kind,
					row->kind == SHEDLOCK_RELEASED ? NULL : kind_names[row->kind]);
	SET_UNLESS(!OidIsValid(row->locked_role), Anum_locked_role,
			   ObjectIdGetDatum(row->locked_role));
	SET_UNLESS(row->keep_until == DT_NOBEGIN, Anum_keep_until,
			   TimestampGetDatum(row->keep_until));
	SET_UNLESS(row->at_most == NULL, Anum_lock_at_most_for,
			   IntervalPGetDatum(row->at_most));
	SET_UNLESS(row->pid == 0, Anum_pid, Int32GetDatum(row->pid));
	SET_UNLESS(row->backend_start == 0, Anum_backend_start,
			   TimestampTzGetDatum(row->backend_start));
	SET_UNLESS(row->timeline == 0, Anum_timeline,
			   Int32GetDatum((int32) row->timeline));
	SET_UNLESS(row->paused_until == DT_NOBEGIN, Anum_paused_until,
			   TimestampTzGetDatum(row->paused_until));
	ShedlockSetText(columns, Anum_paused_by, row->paused_by);
	ShedlockSetText(columns, Anum_pause_reason, row->pause_reason);
#undef SET_UNLESS
}

/*
 * ShedlockInsertRow - insert the row of a lock
 *
 * Returns false if a row of that name is there, committed or not.
 */
bool
ShedlockInsertRow(ShedlockStore *store, const ShedlockRow *row)
{
	ShedlockColumns columns;

	form_row(store, row, &columns);
	return ShedlockInsert(store, &columns);
}

/*
 * ShedlockUpdateRow - write the row of a lock that was read last
 *
 * Columns that somebody added to the table keep their values.
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
 * ShedlockForeignTuple - what a foreign acquisition writes, with our columns
 *
 * It is a lease with a token, held by the role that writes it.
 */
HeapTuple
ShedlockForeignTuple(ShedlockStore *store, HeapTuple tuple, int64 token)
{
	ShedlockColumns columns;

	ShedlockNewColumns(store, &columns);
	for (int attnum = Anum_token; attnum <= Anum_pause_reason; attnum++)
		ShedlockSetNull(&columns, attnum);
	ShedlockSetColumn(&columns, Anum_token, Int64GetDatum(token));
	ShedlockSetText(&columns, Anum_kind, kind_names[SHEDLOCK_LEASE]);
	ShedlockSetColumn(&columns, Anum_locked_role, ObjectIdGetDatum(GetUserId()));
	return heap_modify_tuple(tuple, RelationGetDescr(store->rel),
							 columns.values, columns.nulls, columns.replace);
}

/*
 * ShedlockShownBy - locked_by as the caller may see it
 *
 * Without the client's address for those from whom pg_stat_activity hides it,
 * and with question marks for the control characters of a foreign writer.
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
