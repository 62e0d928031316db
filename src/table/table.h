/*-------------------------------------------------------------------------
 *
 * table.h
 *	  The durable half of a lock, and all else that is in tables.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_TABLE_H
#define SHEDLOCK_TABLE_H

#include "base/base.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

/* Bytes of an error or warning that the history keeps, and of the note that follows. */
#define SHEDLOCK_MESSAGE_MAX	4096
#define SHEDLOCK_CLIP_NOTE		32

/* What the row says about its lock; the text in the table is shedlock.kind. */
typedef enum ShedlockKind
{
	SHEDLOCK_LEASE,
	SHEDLOCK_SESSION,
	SHEDLOCK_RUN,
	SHEDLOCK_LEASED_RUN,		/* its work is outside the database */
	SHEDLOCK_RELEASED
} ShedlockKind;

/* Does a lock of that kind last until its time, whatever becomes of its session? */
#define SHEDLOCK_IS_LEASE(kind) ((kind) == SHEDLOCK_LEASE || (kind) == SHEDLOCK_LEASED_RUN)

/* Is a lock of that kind held by a run, which the history has? */
#define SHEDLOCK_IS_RUN(kind)	((kind) == SHEDLOCK_RUN || (kind) == SHEDLOCK_LEASED_RUN)

/* Does the lock end with the process that acquired it? */
#define SHEDLOCK_IS_OF_PROCESS(kind) ((kind) == SHEDLOCK_SESSION || (kind) == SHEDLOCK_RUN)

/*
 * What became of a run; the texts are in history.c.  The history has those from RUNNING to LOST,
 * and the ones that callers give when they end a run lie from SUCCEEDED to RETURNED.
 */
typedef enum ShedlockOutcome
{
	SHEDLOCK_NO_RUN,
	SHEDLOCK_RUNNING,
	SHEDLOCK_SUCCEEDED,
	SHEDLOCK_FAILED,
	SHEDLOCK_TIMED_OUT,
	SHEDLOCK_CANCELLED,
	SHEDLOCK_RETURNED,			/* its attempt does not count */
	SHEDLOCK_SKIPPED,			/* there was no run: shedlock_skip */
	SHEDLOCK_RUN_LOST,
	SHEDLOCK_RUN_UNKNOWN		/* running according to the history, on a
								 * standby, which has no holders */
} ShedlockOutcome;

/* Is, or may, a run with that outcome be at work? */
#define SHEDLOCK_MAY_RUN(outcome) \
	((outcome) == SHEDLOCK_RUNNING || (outcome) == SHEDLOCK_RUN_UNKNOWN)

/*
 * The columns of each table, in the order of the install script: name, type, and
 * whether the extension relies on NOT NULL.  X says what becomes of a column, as
 * SHEDLOCK_ATTNUM makes an enum of attribute numbers.  The columns of locks, jobs and ticks
 * are named by the fields of their structs, and have in addition the value that stands for
 * null, and how to get the field from a Datum and back.
 */
#define SHEDLOCK_ATTNUM(name, ...)	Anum_##name,

/* For X: sets the field of *row from the slot, which has all attributes; palloc'd. */
#define SHEDLOCK_FROM_SLOT(field, type, not_null, null_value, from_datum, to_datum) \
	row->field = slot->tts_isnull[Anum_##field - 1] ? (null_value) : \
		from_datum(slot->tts_values[Anum_##field - 1]);

/* For X: sets the column of columns from the field of *row. */
#define SHEDLOCK_TO_COLUMNS(field, type, not_null, null_value, from_datum, to_datum) \
	if (!(not_null) && row->field == (null_value)) \
		ShedlockSetNull(&columns, Anum_##field); \
	else \
		ShedlockSetColumn(&columns, Anum_##field, to_datum(row->field));

#define DatumGetIntervalCopy(d) ShedlockCopyInterval(DatumGetIntervalP(d))

#define SHEDLOCK_COLUMNS(X) \
	X(name, VARCHAROID, true, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(kind, TEXTOID, false, SHEDLOCK_RELEASED, DatumGetKind, KindGetDatum) \
	X(lock_until, TIMESTAMPOID, true, DT_NOBEGIN, DatumGetTimestamp, TimestampGetDatum) \
	X(locked_at, TIMESTAMPOID, true, DT_NOBEGIN, DatumGetTimestamp, TimestampGetDatum) \
	X(locked_by, VARCHAROID, true, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(token, INT8OID, false, 0, DatumGetInt64, Int64GetDatum) \
	X(backend_start, TIMESTAMPTZOID, false, 0, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(pid, INT4OID, false, 0, DatumGetInt32, Int32GetDatum) \
	X(locked_role, OIDOID, false, InvalidOid, DatumGetObjectId, ObjectIdGetDatum) \
	X(origin, INT4OID, false, 0, DatumGetUInt32, UInt32GetDatum) \
	X(keep_until, TIMESTAMPOID, false, DT_NOBEGIN, DatumGetTimestamp, TimestampGetDatum) \
	X(at_most, INTERVALOID, false, NULL, DatumGetIntervalCopy, IntervalPGetDatum) \
	X(paused_until, TIMESTAMPTZOID, false, DT_NOBEGIN, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(paused_by, TEXTOID, false, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(pause_reason, TEXTOID, false, NULL, TextDatumGetCString, CStringGetTextDatum)

#define SHEDLOCK_JOB_COLUMNS(X) \
	X(name, VARCHAROID, true, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(schedule_text, TEXTOID, true, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(time_zone, TEXTOID, true, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(attempts, INT4OID, true, 0, DatumGetInt32, Int32GetDatum) \
	X(backoff, INTERVALOID, true, NULL, DatumGetIntervalCopy, IntervalPGetDatum) \
	X(catch_up, TEXTOID, true, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(max_late, INTERVALOID, false, NULL, DatumGetIntervalCopy, IntervalPGetDatum) \
	X(overdue_after, INTERVALOID, true, NULL, DatumGetIntervalCopy, IntervalPGetDatum) \
	X(slow_after, INTERVALOID, false, NULL, DatumGetIntervalCopy, IntervalPGetDatum) \
	X(at_most, INTERVALOID, false, NULL, DatumGetIntervalCopy, IntervalPGetDatum) \
	X(at_least, INTERVALOID, false, NULL, DatumGetIntervalCopy, IntervalPGetDatum) \
	X(description, TEXTOID, false, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(since, TIMESTAMPTZOID, true, DT_NOBEGIN, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(carried, TIMESTAMPTZOID, false, DT_NOBEGIN, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(spent_token, INT8OID, false, 0, DatumGetInt64, Int64GetDatum) \
	X(created_at, TIMESTAMPTZOID, true, DT_NOBEGIN, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(created_by, TEXTOID, true, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(declared_at, TIMESTAMPTZOID, true, DT_NOBEGIN, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(declared_by, TEXTOID, true, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(turns, INT4OID, true, 0, DatumGetInt32, Int32GetDatum)

#define SHEDLOCK_TICK_COLUMNS(X) \
	X(name, VARCHAROID, true, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(tick, TIMESTAMPTZOID, true, DT_NOBEGIN, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(claimed_at, TIMESTAMPTZOID, true, DT_NOBEGIN, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(claimed_by, VARCHAROID, true, NULL, TextDatumGetCString, CStringGetTextDatum) \
	X(token, INT8OID, false, 0, DatumGetInt64, Int64GetDatum) \
	X(attempt, INT4OID, true, 0, DatumGetInt32, Int32GetDatum) \
	X(done, BOOLOID, true, false, DatumGetBool, BoolGetDatum) \
	X(again_at, TIMESTAMPTZOID, false, DT_NOBEGIN, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(retry_at, TIMESTAMPTZOID, false, DT_NOBEGIN, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(skipped, TIMESTAMPTZOID, false, DT_NOBEGIN, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(gave_up_at, TIMESTAMPTZOID, false, DT_NOBEGIN, DatumGetTimestampTz, TimestampTzGetDatum) \
	X(period, INTERVALOID, false, NULL, DatumGetIntervalCopy, IntervalPGetDatum)

#define SHEDLOCK_TIMELINE_COLUMNS(X) \
	X(timeline, TEXTOID, true) \
	X(ended_at, TIMESTAMPTZOID, true)

#define SHEDLOCK_HISTORY_COLUMNS(X) \
	X(token, INT8OID, true) \
	X(name, VARCHAROID, true) \
	X(command, TEXTOID, false) \
	X(tick, TIMESTAMPTZOID, false) \
	X(attempt, INT4OID, false) \
	X(started_at, TIMESTAMPTZOID, true) \
	X(ended_at, TIMESTAMPTZOID, false) \
	X(outcome, TEXTOID, true) \
	X(sqlstate, TEXTOID, false) \
	X(message, TEXTOID, false) \
	X(locked_role, OIDOID, true) \
	X(locked_by, VARCHAROID, true) \
	X(pid, INT4OID, true) \
	X(warning, TEXTOID, false) \
	X(exit_code, INT4OID, false) \
	X(gave_up, BOOLOID, true) \
	X(request, TEXTOID, false) \
	X(limit_at, TIMESTAMPTZOID, false)

#define SHEDLOCK_STATS_COLUMNS(X) \
	X(name, VARCHAROID, true) \
	X(runs_succeeded, INT8OID, true) \
	X(runs_failed, INT8OID, true) \
	X(runs_timed_out, INT8OID, true) \
	X(runs_cancelled, INT8OID, true) \
	X(runs_lost, INT8OID, true) \
	X(gave_up, INT8OID, true) \
	X(run_seconds, FLOAT8OID, true) \
	X(last_success_at, TIMESTAMPTZOID, false) \
	X(last_failure_at, TIMESTAMPTZOID, false) \
	X(stats_since, TIMESTAMPTZOID, true)

/* One row of the table shedlock. */
typedef struct ShedlockRow
{
	bool		found;			/* false: none of the rest is set */
	char	   *name;
	Timestamp	lock_until;		/* UTC */
	Timestamp	locked_at;		/* UTC */
	char	   *locked_by;
	int64		token;			/* 0 if null */
	ShedlockKind kind;
	Oid			locked_role;	/* InvalidOid if null */
	Timestamp	keep_until;		/* UTC; DT_NOBEGIN if null */
	Interval   *at_most;		/* NULL: no limit */
	int			pid;			/* 0 if null */
	TimestampTz backend_start;	/* 0 if null */
	uint32		origin;			/* 0 if null */
	TimestampTz paused_until;	/* DT_NOBEGIN if null */
	char	   *paused_by;		/* or NULL */
	char	   *pause_reason;	/* or NULL */
} ShedlockRow;

/* How a run ended. */
typedef struct ShedlockEnding
{
	ShedlockOutcome outcome;
	const char *sqlstate;		/* or NULL */
	const char *message;		/* or NULL */
	const char *warning;		/* or NULL */
	const int32 *exit_code;		/* or NULL */
	bool		gave_up;		/* no attempt is left */
	bool		unseen;			/* nobody was there: its lock ended before */
} ShedlockEnding;

/* What the history has of a run. */
typedef struct ShedlockHistoryRun
{
	int64		token;			/* 0: the history has none, and all else is
								 * zero */
	char	   *name;
	ShedlockOutcome outcome;
	char	   *sqlstate;		/* or NULL */
	char	   *message;		/* or NULL */
	int32	   *exit_code;		/* or NULL */
	Oid			role;
	TimestampTz started_at;
	TimestampTz ended_at;		/* DT_NOBEGIN if null */
	bool		gave_up;		/* no attempt follows; a running one may
								 * succeed yet */
	TimestampTz tick;			/* DT_NOBEGIN if it has none */
	int			attempt;		/* 0 if it has no tick */
	TimestampTz limit_at;		/* its lease does not last longer; DT_NOEND if
								 * null */
} ShedlockHistoryRun;

/* Where this process last found a row; the row may have moved since. */
typedef struct ShedlockPlace
{
	Oid			relid;
	uint32		hash;			/* of its key */
	ItemPointerData root;		/* what its index entry points to; or invalid */
	ItemPointerData version;	/* what was read or written last */
} ShedlockPlace;

/* An open table of the extension. */
typedef struct ShedlockStore
{
	Relation	rel;
	Relation	index;			/* its primary key; NULL until it is needed */
	Datum		key;			/* of the row to find */
	TupleTableSlot *slot;		/* the row that was fetched last */
	ShedlockPlace *place;		/* of that row */
} ShedlockStore;

/* Columns to be written; the others are null in a new row, unchanged in an old one. */
typedef struct ShedlockColumns
{
	Datum	   *values;
	bool	   *nulls;
	bool	   *replace;
} ShedlockColumns;

/* relation.c */
extern bool shedlock_never_waits;
extern void ShedlockRefuseToWait(void);
extern bool ShedlockAwaitForeignLock(int *tries);
extern void ShedlockLockRelation(Oid relid, LOCKMODE lockmode);
extern void ShedlockUnlockRelation(Oid relid, LOCKMODE lockmode);
extern void ShedlockLockIndexes(Relation rel);
extern void ShedlockLockToast(Relation rel);
extern Relation ShedlockOpenIndex(Oid relid);
extern void ShedlockCloseIndex(Relation index);

/* store.c */
extern int	ShedlockOwnColumns(Relation rel);
extern void ShedlockCheckColumns(Relation rel);
extern void ShedlockLockTables(Oid nsp, const char *const *tables);
extern void ShedlockOpen(ShedlockStore *store, Oid nsp, const char *table, LOCKMODE lockmode);
extern void ShedlockClose(ShedlockStore *store, LOCKMODE lockmode);
extern void ShedlockCheckPromises(const ShedlockStore *store);
extern Relation ShedlockPrimaryKey(ShedlockStore *store);
extern int64 ShedlockNextToken(Oid nsp, const ShedlockRow *last);

/* write.c */
extern void ShedlockNewColumns(ShedlockStore *store, ShedlockColumns *columns);
extern void ShedlockSetColumn(ShedlockColumns *columns, int attnum, Datum value);
extern void ShedlockSetNull(ShedlockColumns *columns, int attnum);
extern bool ShedlockInsertNew(ShedlockStore *store, const ShedlockColumns *columns);
extern bool ShedlockWrite(ShedlockStore *store, ShedlockColumns *columns, bool wait);
extern void ShedlockAwaitInserter(ShedlockStore *store, const ShedlockName *name, int *tries);
extern bool ShedlockDelete(ShedlockStore *store, bool wait);

/* fetch.c */
extern bool ShedlockFetch(ShedlockStore *store, Datum key);
extern void ShedlockRememberPlace(ShedlockStore *store, Datum key, ItemPointer tid);
extern bool ShedlockIsCurrent(ShedlockStore *store);
extern bool ShedlockIsBeingChanged(ShedlockStore *store);
extern TransactionId ShedlockInserter(ShedlockStore *store, Datum key);

/* walend.c */
extern TimestampTz ShedlockTimelineShutdown(TimeLineID timeline);

/* origin.c */
extern uint32 ShedlockOrigin(void);
extern void ShedlockLearnOrigin(Relation locks, const ShedlockRow *row);
extern bool ShedlockOriginIsOver(const ShedlockRow *row);
extern void ShedlockWriteOrigin(Relation locks, const ShedlockRow *old);

/* row.c */
extern const char *const shedlock_kind_names[];
extern void ShedlockReadRow(ShedlockStore *store, char *name, ShedlockRow *row);
extern void ShedlockLookUpRow(const ShedlockName *name, ShedlockRow *row);
extern void ShedlockReadHeldRow(ShedlockStore *store, char *name, ShedlockRow *row);
extern void ShedlockRereadRow(ShedlockStore *store, char *name, ShedlockRow *row);
extern void ShedlockSlotToRow(TupleTableSlot *slot, ShedlockRow *row);
extern bool ShedlockSlotIsFree(TupleTableSlot *slot, TimestampTz now);
extern List *ShedlockRunsOfProcess(ShedlockStore *store, int pid,
								   TimestampTz backend_start);
extern bool ShedlockWriteRow(ShedlockStore *store, const ShedlockRow *row, bool wait);
extern HeapTuple ShedlockForeignTuple(ShedlockStore *store, HeapTuple tuple, int64 token);
extern const char *ShedlockShownBy(const ShedlockRow *row);

/* stats.c */
extern void ShedlockCheckStats(Oid nsp);
extern void ShedlockCountEnd(Oid nsp, const char *name, ShedlockOutcome outcome,
							 int64 duration, bool gave_up);
extern void ShedlockCountGaveUp(Oid nsp, const char *name);
extern void ShedlockShowStats(Oid nsp, Tuplestorestate *stats);
extern bool ShedlockResetStats(Oid nsp, const char *name);

/* history.c */
extern const char *const shedlock_outcome_names[];
extern ShedlockOutcome ShedlockFindOutcome(const char *text);
extern void ShedlockClip(char *to, const char *str, int max);
extern void ShedlockHistoryStart(const ShedlockName *name, const ShedlockRow *row,
								 const char *command, TimestampTz tick, int attempt,
								 const char *request, const Interval *limit);
extern void ShedlockHistorySkip(const ShedlockName *name, TimestampTz tick, const char *reason);
extern bool ShedlockHistoryEnd(Oid nsp, int64 token, const ShedlockEnding *ending);
extern void ShedlockHistoryWarned(Oid nsp, int64 token, const char *warning);
extern bool ShedlockHistoryGaveUp(const ShedlockName *name, int64 token);
extern ShedlockOutcome ShedlockLostOutcome(const ShedlockHistoryRun *run, const ShedlockRow *row);
extern bool ShedlockHistoryLost(Oid nsp, const ShedlockRow *row);
extern void ShedlockHistoryRead(Oid nsp, int64 token, ShedlockHistoryRun *past);
extern void ShedlockSlotToHistoryRun(TupleTableSlot *slot, ShedlockHistoryRun *past);

/* runs.c */
extern void ShedlockHistoryFind(const ShedlockName *name, ShedlockHistoryRun *past);
extern void ShedlockHistoryFindRequest(Oid nsp, const char *request, ShedlockHistoryRun *past);
extern void ShedlockHistoryPrune(Oid nsp);

#endif							/* SHEDLOCK_TABLE_H */
