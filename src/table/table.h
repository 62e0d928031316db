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

/* Bytes of an error or warning that the history keeps, and of the note behind it. */
#define SHEDLOCK_MESSAGE_MAX	4096
#define SHEDLOCK_CLIP_NOTE		32

/* What the row says about its lock; the text in the table is shedlock.kind. */
typedef enum ShedlockKind
{
	SHEDLOCK_LEASE,
	SHEDLOCK_SESSION,
	SHEDLOCK_RUN,
	SHEDLOCK_RELEASED
} ShedlockKind;

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
	TimeLineID	timeline;		/* 0 if null */
	TimestampTz paused_until;	/* DT_NOBEGIN if null */
	char	   *paused_by;		/* or NULL */
	char	   *pause_reason;	/* or NULL */
} ShedlockRow;

/* Where a row was last, which need not be true any more. */
typedef struct ShedlockPlace
{
	Oid			relid;
	uint32		hash;			/* of its key */
	ItemPointerData root;		/* where its index entry points to; or invalid */
	ItemPointerData version;	/* what was read or written last */
} ShedlockPlace;

/* One of our tables, open, with what it takes to write to it. */
typedef struct ShedlockStore
{
	Relation	rel;
	Relation	index;			/* its primary key, or NULL */
	bool		key_is_text;	/* else a bigint */
	Datum		key;			/* what is looked for in it */
	TupleTableSlot *slot;		/* what was fetched last */
	ShedlockPlace *place;		/* of the row with the key, once it is fetched */
} ShedlockStore;

/* Columns to be written; what is not set is null, or stays as it is. */
typedef struct ShedlockColumns
{
	Datum	   *values;
	bool	   *nulls;
	bool	   *replace;
} ShedlockColumns;

/* store.c */
extern void ShedlockCheckColumns(Relation rel);
extern void ShedlockOpen(ShedlockStore *store, Oid nsp, const char *table);
extern void ShedlockCheckPromises(const ShedlockStore *store);
extern void ShedlockOpenToRead(ShedlockStore *store, Oid nsp, const char *table);
extern Relation ShedlockOpenForScan(Oid nsp, const char *table);
extern Relation ShedlockPrimaryKey(ShedlockStore *store);
extern void ShedlockClose(ShedlockStore *store);
extern void ShedlockCloseUnused(ShedlockStore *store);
extern int64 ShedlockNextToken(Oid nsp, const ShedlockRow *last);

/* write.c */
extern void ShedlockNewColumns(ShedlockStore *store, ShedlockColumns *columns);
extern void ShedlockSetColumn(ShedlockColumns *columns, int attnum, Datum value);
extern void ShedlockSetNull(ShedlockColumns *columns, int attnum);
extern void ShedlockSetText(ShedlockColumns *columns, int attnum, const char *str);
extern bool ShedlockInsert(ShedlockStore *store, const ShedlockColumns *columns);
extern TM_Result ShedlockUpdate(ShedlockStore *store, ShedlockColumns *columns,
								bool wait);
extern TM_Result ShedlockDelete(ShedlockStore *store, ItemPointer tid);

/* fetch.c */
extern bool ShedlockFetch(ShedlockStore *store, Datum key);
extern bool ShedlockIsCurrent(ShedlockStore *store);
extern bool ShedlockRowIsInProgress(ShedlockStore *store, const char *name);

/* row.c */
extern const char *ShedlockKindText(ShedlockKind kind);
extern void ShedlockReadRow(ShedlockStore *store, const char *name, ShedlockRow *row);
extern void ShedlockRereadRow(ShedlockStore *store, const char *name, ShedlockRow *row);
extern void ShedlockSlotToRow(TupleTableSlot *slot, ShedlockRow *row);
extern bool ShedlockInsertRow(ShedlockStore *store, const ShedlockRow *row);
extern TM_Result ShedlockUpdateRow(ShedlockStore *store, const ShedlockRow *row, bool wait);
extern HeapTuple ShedlockForeignTuple(ShedlockStore *store, HeapTuple tuple, int64 token);
extern const char *ShedlockShownBy(const ShedlockRow *row);

/* history.c */
extern void ShedlockClip(char *to, const char *str, int max);
extern void ShedlockHistoryStart(const ShedlockName *name, const ShedlockRow *row,
								 const char *command, const TimestampTz *tick);
extern void ShedlockHistoryEnd(Oid nsp, int64 token, const char *outcome,
							   const ErrorData *edata, const char *warning);
extern void ShedlockHistoryLost(Oid nsp, int64 token);
extern bool ShedlockHistoryMaySee(Oid nsp, int64 token);
extern char *ShedlockHistoryLogged(Oid nsp, int64 token);
extern void ShedlockHistoryPrune(Oid nsp);

#endif							/* SHEDLOCK_TABLE_H */
