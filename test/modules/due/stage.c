/*-------------------------------------------------------------------------
 *
 * stage.c
 *	  Stands in for the clock, the tables and the lock table, under the library's rules.
 *
 * The linker puts these functions in the place of those that they are named for ("make due"
 * has the list), so that all of src/job decides and writes as in a server, with neither a
 * server's clock nor its disk.  There is one name, and nobody else.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "stage.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define COLUMNS_MAX		32

/* A table with at most one row. */
typedef struct Table
{
	const char *name;
	Oid			types[COLUMNS_MAX];
	int			natts;
	TupleTableSlot *slot;
	bool		found;
	Datum		values[COLUMNS_MAX];
	bool		nulls[COLUMNS_MAX];
} Table;

#define COLUMN_TYPE(name, type, ...)	type,

static Table tables[] = {
	{"_shedlock_job", {SHEDLOCK_JOB_COLUMNS(COLUMN_TYPE)}},
	{"_shedlock_tick", {SHEDLOCK_TICK_COLUMNS(COLUMN_TYPE)}},
};

TimestampTz stage_clock;
ShedlockRow stage_lock;
static int64 stage_tokens;
static MemoryContext rows = NULL;

/*
 * stage_reset - begin a world: nothing was ever declared, claimed or run
 */
void
stage_reset(TimestampTz now)
{
	if (rows == NULL)
	{
		rows = AllocSetContextCreate(TopMemoryContext, "rows", ALLOCSET_DEFAULT_SIZES);
		for (int i = 0; i < (int) lengthof(tables); i++)
		{
			MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

			while (OidIsValid(tables[i].types[tables[i].natts]))
				tables[i].natts++;
			tables[i].slot = MakeSingleTupleTableSlot(CreateTemplateTupleDesc(tables[i].natts),
													  &TTSOpsVirtual);
			MemoryContextSwitchTo(old);
		}
	}
	MemoryContextReset(rows);
	for (int i = 0; i < (int) lengthof(tables); i++)
		tables[i].found = false;
	memset(&stage_lock, 0, sizeof(stage_lock));
	stage_clock = now;
	stage_tokens = 0;
}

/*
 * The clock
 */
TimestampTz __wrap_GetCurrentTimestamp(void);
TimestampTz
__wrap_GetCurrentTimestamp(void)
{
	return stage_clock;
}

int64		__wrap_ShedlockSteadyNow(void);
int64
__wrap_ShedlockSteadyNow(void)
{
	return stage_clock;
}

bool		__wrap_ShedlockNap(long ms);
bool
__wrap_ShedlockNap(long ms)
{
	stage_clock += ms * 1000;
	return false;
}

/*
 * A search for a tick can be cancelled, because what has a fault may search without end.
 */
TimestampTz __real_ShedlockNextTick(const ShedlockSchedule *schedule, TimestampTz after);
TimestampTz __wrap_ShedlockNextTick(const ShedlockSchedule *schedule, TimestampTz after);
TimestampTz
__wrap_ShedlockNextTick(const ShedlockSchedule *schedule, TimestampTz after)
{
	CHECK_FOR_INTERRUPTS();
	return __real_ShedlockNextTick(schedule, after);
}

/*
 * The tables
 */
static Table *
table_of(const ShedlockStore *store)
{
	return (Table *) store->rel;
}

void		__wrap_ShedlockOpen(ShedlockStore *store, Oid nsp, const char *table, LOCKMODE lockmode);
void
__wrap_ShedlockOpen(ShedlockStore *store, Oid nsp, const char *table, LOCKMODE lockmode)
{
	memset(store, 0, sizeof(*store));
	for (int i = 0; i < (int) lengthof(tables); i++)
	{
		if (strcmp(tables[i].name, table) == 0)
		{
			store->rel = (Relation) &tables[i];
			store->slot = tables[i].slot;
			ExecClearTuple(store->slot);
		}
	}
}

void		__wrap_ShedlockClose(ShedlockStore *store, LOCKMODE lockmode);
void
__wrap_ShedlockClose(ShedlockStore *store, LOCKMODE lockmode)
{
}

void		__wrap_ShedlockCheckPromises(const ShedlockStore *store);
void
__wrap_ShedlockCheckPromises(const ShedlockStore *store)
{
}

bool		__wrap_ShedlockFetch(ShedlockStore *store, Datum key);
bool
__wrap_ShedlockFetch(ShedlockStore *store, Datum key)
{
	Table	   *table = table_of(store);

	ExecClearTuple(store->slot);
	if (!table->found)
		return false;
	memcpy(store->slot->tts_values, table->values, (Size) table->natts * sizeof(Datum));
	memcpy(store->slot->tts_isnull, table->nulls, (Size) table->natts * sizeof(bool));
	ExecStoreVirtualTuple(store->slot);
	return true;
}

bool		__wrap_ShedlockIsCurrent(ShedlockStore *store);
bool
__wrap_ShedlockIsCurrent(ShedlockStore *store)
{
	return !TTS_EMPTY(store->slot);
}

bool		__wrap_ShedlockIsBeingChanged(ShedlockStore *store);
bool
__wrap_ShedlockIsBeingChanged(ShedlockStore *store)
{
	return false;
}

void		__wrap_ShedlockNewColumns(ShedlockStore *store, ShedlockColumns *columns);
void
__wrap_ShedlockNewColumns(ShedlockStore *store, ShedlockColumns *columns)
{
	columns->values = palloc0(COLUMNS_MAX * sizeof(Datum));
	columns->nulls = palloc(COLUMNS_MAX * sizeof(bool));
	columns->replace = palloc0(COLUMNS_MAX * sizeof(bool));
	memset(columns->nulls, true, COLUMNS_MAX * sizeof(bool));
}

bool		__wrap_ShedlockWrite(ShedlockStore *store, ShedlockColumns *columns, bool wait);
bool
__wrap_ShedlockWrite(ShedlockStore *store, ShedlockColumns *columns, bool wait)
{
	Table	   *table = table_of(store);
	MemoryContext old = MemoryContextSwitchTo(rows);

	for (int i = 0; i < table->natts; i++)
	{
		bool		by_reference = table->types[i] == TEXTOID || table->types[i] == VARCHAROID ||
			table->types[i] == INTERVALOID;
		int			length = table->types[i] == INTERVALOID ? (int) sizeof(Interval) : -1;

		if (table->found && !columns->replace[i])
			continue;
		if (table->found && by_reference && !table->nulls[i])
			pfree(DatumGetPointer(table->values[i]));
		table->nulls[i] = columns->nulls[i];
		if (!table->nulls[i])
			table->values[i] = by_reference ? datumCopy(columns->values[i], false, length) :
				columns->values[i];
	}
	table->found = true;
	ExecClearTuple(store->slot);
	MemoryContextSwitchTo(old);
	return true;
}

bool		__wrap_ShedlockDelete(ShedlockStore *store, bool wait);
bool
__wrap_ShedlockDelete(ShedlockStore *store, bool wait)
{
	table_of(store)->found = false;
	ExecClearTuple(store->slot);
	return true;
}

/*
 * The lock
 */
bool		__wrap_ShedlockTryLock(const LOCKTAG *tag, LOCKMODE mode);
bool
__wrap_ShedlockTryLock(const LOCKTAG *tag, LOCKMODE mode)
{
	return true;
}

void		__wrap_ShedlockUnlock(const LOCKTAG *tag, LOCKMODE mode);
void
__wrap_ShedlockUnlock(const LOCKTAG *tag, LOCKMODE mode)
{
}

void		__wrap_ShedlockReadUse(const LOCKTAG *tag, ShedlockUse *use);
void
__wrap_ShedlockReadUse(const LOCKTAG *tag, ShedlockUse *use)
{
	use->known = true;
}

void		__wrap_ShedlockLookUpRow(const ShedlockName *name, ShedlockRow *row);
void
__wrap_ShedlockLookUpRow(const ShedlockName *name, ShedlockRow *row)
{
	*row = stage_lock;
}

bool		__wrap_ShedlockAcquire(ShedlockStore *store, const ShedlockRequest *request,
								   ShedlockResult *result);
bool
__wrap_ShedlockAcquire(ShedlockStore *store, const ShedlockRequest *request, ShedlockResult *result)
{
	result->row = stage_lock;
	result->state = ShedlockJudge(&stage_lock, &request->name, stage_clock, SHEDLOCK_MINE);
	if (result->state != SHEDLOCK_FREE ||
		(request->confirm && !request->confirm(request->confirm_arg)))
		return false;
	stage_lock.found = true;
	stage_lock.kind = request->kind;
	stage_lock.locked_by = "";
	stage_lock.locked_at = stage_clock;
	stage_lock.lock_until = stage_clock + ShedlockIntervalMicroseconds(request->at_most);
	stage_lock.keep_until = DT_NOBEGIN;
	stage_lock.paused_until = DT_NOBEGIN;
	stage_lock.token = ++stage_tokens;
	result->row = stage_lock;
	return true;
}

void		__wrap_ShedlockCommitDurably(void);
void
__wrap_ShedlockCommitDurably(void)
{
}

/*
 * What tells people, and the history
 */
char	   *__wrap_ShedlockLockedBy(const char *given, int64 token);
char *
__wrap_ShedlockLockedBy(const char *given, int64 token)
{
	return pstrdup("");
}

char	   *__wrap_ShedlockTickReason(const ShedlockName *name, const ShedlockTick *last,
									  const ShedlockJob *job, TimestampTz now);
char *
__wrap_ShedlockTickReason(const ShedlockName *name, const ShedlockTick *last,
						  const ShedlockJob *job, TimestampTz now)
{
	return NULL;
}

char	   *__wrap_ShedlockStateReason(const ShedlockRow *row, ShedlockState state);
char *
__wrap_ShedlockStateReason(const ShedlockRow *row, ShedlockState state)
{
	return NULL;
}

void		__wrap_ShedlockReadRun(const ShedlockName *name, int64 token, ShedlockHistoryRun *run);
void
__wrap_ShedlockReadRun(const ShedlockName *name, int64 token, ShedlockHistoryRun *run)
{
	memset(run, 0, sizeof(*run));
}

void		__wrap_ShedlockHistoryStart(const ShedlockName *name, const ShedlockRow *row,
										const char *command, TimestampTz tick, int attempt,
										const char *request, const Interval *limit);
void
__wrap_ShedlockHistoryStart(const ShedlockName *name, const ShedlockRow *row, const char *command,
							TimestampTz tick, int attempt, const char *request,
							const Interval *limit)
{
}

bool		__wrap_ShedlockHistoryGaveUp(const ShedlockName *name, int64 token);
bool
__wrap_ShedlockHistoryGaveUp(const ShedlockName *name, int64 token)
{
	return false;
}

void		__wrap_ShedlockTellRun(const char *event, bool is_normal, Oid nsp, int64 token,
								   const ShedlockTick *before);
void
__wrap_ShedlockTellRun(const char *event, bool is_normal, Oid nsp, int64 token,
					   const ShedlockTick *before)
{
}

void		__wrap_ShedlockTellEnd(Oid nsp, int64 token, const ShedlockTick *before);
void
__wrap_ShedlockTellEnd(Oid nsp, int64 token, const ShedlockTick *before)
{
}
