/*-------------------------------------------------------------------------
 *
 * store.c
 *	  Opening and writing our tables, whichever it is.
 *
 * Rows are written through the table access method, without triggers, rules
 * or privileges of the caller, and without ever waiting unless asked to.  What
 * must hold for them all the same is refused (ShedlockCheckPromises).  A new row
 * is inserted speculatively, as INSERT ... ON CONFLICT does it, so that a row that
 * appeared meanwhile is a conflict and no error.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "breakage.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "rewrite/rewriteHandler.h"
#include "shedlock.h"
#include "storage/lmgr.h"
#include "storage/sinval.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* How many numbers of the sequence may be too small for a token. */
#define TOKEN_TRIES		1000

typedef struct
{
	Oid			type;			/* InvalidOid: after the last one */
	bool		not_null;
} ShedlockColumn;

typedef struct
{
	const char *table;
	const char *checks[3];		/* CHECK constraints, and NULL */
	ShedlockColumn columns[16];
} ShedlockLayout;

#define NOT_NULL(type)	{type, true}
#define NULLABLE(type)	{type, false}
#define NO_MORE			{InvalidOid, false}

/* In the order of the install script. */
static const ShedlockLayout layouts[] = {
	{"shedlock", {"shedlock_name_check", "shedlock_kind_check"}, {
		NOT_NULL(VARCHAROID), NULLABLE(TEXTOID), NOT_NULL(TIMESTAMPOID),
		NOT_NULL(TIMESTAMPOID), NOT_NULL(VARCHAROID), NULLABLE(INT8OID),
		NULLABLE(TIMESTAMPTZOID), NULLABLE(INT4OID), NULLABLE(OIDOID),
		NULLABLE(INT4OID), NULLABLE(TIMESTAMPOID), NULLABLE(INTERVALOID),
		NULLABLE(TIMESTAMPTZOID), NULLABLE(TEXTOID), NULLABLE(TEXTOID), NO_MORE
	}},
	{"shedlock_tick", {NULL}, {
		NOT_NULL(VARCHAROID), NOT_NULL(TIMESTAMPTZOID), NOT_NULL(TIMESTAMPTZOID),
		NOT_NULL(VARCHAROID), NULLABLE(INT8OID), NULLABLE(INTERVALOID), NOT_NULL(BOOLOID), NO_MORE
	}},
	{"shedlock_run_log", {NULL}, {
		NOT_NULL(INT8OID), NOT_NULL(VARCHAROID), NOT_NULL(TEXTOID),
		NULLABLE(TIMESTAMPTZOID), NOT_NULL(TIMESTAMPTZOID), NULLABLE(TIMESTAMPTZOID),
		NOT_NULL(TEXTOID), NULLABLE(TEXTOID), NULLABLE(TEXTOID), NOT_NULL(OIDOID),
		NOT_NULL(VARCHAROID), NOT_NULL(INT4OID), NULLABLE(TEXTOID), NO_MORE
	}},
	{NULL, {NULL}, {NO_MORE}}
};

/*
 * layout_of - what we know of the table of that name
 */
static const ShedlockLayout *
layout_of(const char *table)
{
	const ShedlockLayout *layout = layouts;

	while (layout->table != NULL && strcmp(layout->table, table) != 0)
		layout++;
	return layout;
}

/*
 * ShedlockCheckColumns - are the columns of one of our tables those that we know?
 *
 * We go by their numbers, and rely on their types and on what is never null.
 * Their owner can change all that.  Raises 42804, or 42809 for another kind of
 * table.
 */
void
ShedlockCheckColumns(Relation rel)
{
	const char *table = RelationGetRelationName(rel);
	TupleDesc	desc = RelationGetDescr(rel);
	const ShedlockLayout *layout = layout_of(table);

	/* Nothing else keeps a row through a crash, or is read as we read it. */
	if (rel->rd_rel->relkind != RELKIND_RELATION ||
		rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT ||
		rel->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" of extension \"shedlock\" is not an ordinary, logged table", table)));

	for (int i = 0; OidIsValid(layout->columns[i].type); i++)
	{
		const ShedlockColumn *column = &layout->columns[i];
		bool		same_type = i < desc->natts &&
		TupleDescAttr(desc, i)->atttypid == column->type;

		if (same_type && (TupleDescAttr(desc, i)->attnotnull || !column->not_null))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("table \"%s\" of extension \"shedlock\" was altered", table),
				 same_type ?
				 errdetail("Its column number %d can be null.", i + 1) :
				 errdetail("Its column number %d is not of type %s any more.",
						   i + 1, format_type_be(column->type)),
				 errhint("Columns may be added to it, but none changed or dropped.")));
	}
}

/*
 * came_with_check - did the table come with the CHECK constraint of that name?
 */
static bool
came_with_check(const char *table, const char *conname)
{
	const char *const *check = layout_of(table)->checks;

	while (*check && strcmp(*check, conname) != 0)
		check++;
	return *check != NULL;
}

/*
 * ShedlockCheckPromises - has somebody made the table promise what our writes break?
 *
 * They look at no CHECK constraint, and fire no trigger, of which the server makes
 * some for each foreign key and for each constraint that is deferrable.
 * For a replica identity we ask the server, if anybody can replicate the table.
 * All of it is in the relation's cache.  A trigger of somebody's own is a promise to
 * nobody: it sees what others write.
 *
 * To be called before something new is written, a lock, claim, pause or run, and
 * before locks are forgotten.  What ends or goes on is written in any case, or
 * whoever alters the table while work goes on would cost it its outcome, and strand
 * its lock.
 *
 * Raises 42809; 55000 for the replica identity, and 42P10 for a row filter of a
 * publication.
 */
void
ShedlockCheckPromises(const ShedlockStore *store)
{
	Relation	rel = store->rel;
	const char *table = RelationGetRelationName(rel);
	const TupleConstr *constr = RelationGetDescr(rel)->constr;
	const TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; constr && i < constr->num_check; i++)
	{
		if (!came_with_check(table, constr->check[i].ccname))
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("table \"%s\" of extension \"shedlock\" was altered", table),
					 errdetail("It did not come with the CHECK constraint \"%s\".",
							   constr->check[i].ccname),
					 errhint("Drop that constraint: the extension would not obey it.")));
	}

	for (int i = 0; triggers && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgisinternal)
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("table \"%s\" of extension \"shedlock\" was altered", table),
					 errdetail("Its constraint \"%s\" is deferrable, or a foreign key from or to it.",
							   get_constraint_name(trigger->tgconstraint)),
					 errhint("Drop that constraint: the extension would not obey it.")));
	}

	if (RelationIsLogicallyLogged(rel))
	{
		CheckCmdReplicaIdentity(rel, CMD_UPDATE);
		CheckCmdReplicaIdentity(rel, CMD_DELETE);
	}
}

/*
 * relation_of - OID of a relation in the extension's schema
 */
static Oid
relation_of(Oid nsp, const char *relname)
{
	Oid			relid = get_relname_relid(relname, nsp);

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"%s\" of extension \"shedlock\" does not exist",
						relname)));
	return relid;
}

/*
 * lock_relation, unlock_relation - as LockRelationOid() and its counterpart do
 *
 * For the current subtransaction, as ShedlockTryLock() does it: what a cursor
 * has written must not lose its lock when the cursor fails later.
 */
static void
lock_relation(Oid relid, LOCKMODE lockmode)
{
	ResourceOwner caller = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	LockRelationOid(relid, lockmode);
	CurrentResourceOwner = caller;
}

static void
unlock_relation(Oid relid, LOCKMODE lockmode)
{
	ResourceOwner caller = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	UnlockRelationOid(relid, lockmode);
	CurrentResourceOwner = caller;
}

/*
 * open_relation - open a relation in the extension's schema
 *
 * Whoever had to wait for the lock may have waited for DROP EXTENSION: if the
 * catalogs have changed meanwhile, the name is looked up again.
 */
static Relation
open_relation(Oid nsp, const char *relname, LOCKMODE lockmode)
{
	for (;;)
	{
		uint64		inval_count = SharedInvalidMessageCounter;
		Oid			relid = relation_of(nsp, relname);

		lock_relation(relid, lockmode);
		if (inval_count == SharedInvalidMessageCounter ||
			relation_of(nsp, relname) == relid)
		{
			Relation	rel = table_open(relid, NoLock);

			ShedlockCheckColumns(rel);
			return rel;
		}
		unlock_relation(relid, lockmode);
	}
}

/*
 * open_store - open one of our tables, whose primary key is its first column
 */
static void
open_store(ShedlockStore *store, Oid nsp, const char *table, LOCKMODE lockmode)
{
	store->rel = open_relation(nsp, table, lockmode);
	store->index = NULL;
	store->slot = table_slot_create(store->rel, NULL);
	store->key_is_text = TupleDescAttr(RelationGetDescr(store->rel), 0)->atttypid != INT8OID;
	if (!OidIsValid(primary_key_index(store->rel)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" of extension \"shedlock\" has no primary key", table)));
}

/*
 * ShedlockPrimaryKey - the index of the primary key, which is opened once it is needed
 *
 * It is looked up under the lock on the table, which REINDEX CONCURRENTLY
 * waits for before it drops the one that it has replaced.
 */
Relation
ShedlockPrimaryKey(ShedlockStore *store)
{
	if (store->index == NULL)
	{
		store->index = index_open(primary_key_index(store->rel), AccessShareLock);
		if (store->index->rd_index->indnkeyatts != 1 ||
			store->index->rd_index->indkey.values[0] != 1)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("table \"%s\" of extension \"shedlock\" was altered",
							RelationGetRelationName(store->rel)),
					 errdetail("Its primary key is not its first column.")));
	}
	return store->index;
}

/*
 * ShedlockOpen - open one of our tables for reading and writing
 *
 * Takes RowExclusiveLock on it to the end of the transaction, as any INSERT
 * or UPDATE does.  Raises 42P01 if it is gone; 42804, 42809 or 42704 if it was
 * altered so that we cannot read it.
 */
void
ShedlockOpen(ShedlockStore *store, Oid nsp, const char *table)
{
	open_store(store, nsp, table, RowExclusiveLock);
}

/*
 * ShedlockOpenToRead - the same for reading only
 *
 * With the lock that a query has on the table, from which we may be called:
 * with a stronger one it would deadlock with a REINDEX that has come between.
 */
void
ShedlockOpenToRead(ShedlockStore *store, Oid nsp, const char *table)
{
	open_store(store, nsp, table, AccessShareLock);
}

/*
 * ShedlockOpenForScan - open one of our tables to read all of it
 */
Relation
ShedlockOpenForScan(Oid nsp, const char *table)
{
	return open_relation(nsp, table, AccessShareLock);
}

/*
 * ShedlockClose - close it; the lock stays
 */
void
ShedlockClose(ShedlockStore *store)
{
	ExecDropSingleTupleTableSlot(store->slot);
	if (store->index)
		index_close(store->index, AccessShareLock);
	table_close(store->rel, NoLock);
}

/*
 * ShedlockCloseUnused - close it with its lock: nothing was written
 */
void
ShedlockCloseUnused(ShedlockStore *store)
{
	Oid			relid = RelationGetRelid(store->rel);

	ShedlockClose(store);
	unlock_relation(relid, RowExclusiveLock);
}

/*
 * open_indexes - what ExecInsertIndexTuples() wants to know
 *
 * Range table index 0: there is no range table that could tell it which
 * columns an update changes.  None of ours changes an indexed column.
 */
static ResultRelInfo *
open_indexes(ShedlockStore *store, bool speculative)
{
	ResultRelInfo *relinfo = makeNode(ResultRelInfo);

	InitResultRelInfo(relinfo, store->rel, 0, NULL, 0);
	ExecOpenIndices(relinfo, speculative);
	return relinfo;
}

/*
 * ShedlockNewColumns - start to form a row
 */
void
ShedlockNewColumns(ShedlockStore *store, ShedlockColumns *columns)
{
	Size		natts = (Size) RelationGetDescr(store->rel)->natts;

	columns->values = palloc0(natts * sizeof(Datum));
	columns->nulls = palloc(natts * sizeof(bool));
	memset(columns->nulls, true, natts * sizeof(bool));
	columns->replace = palloc0(natts * sizeof(bool));
}

/*
 * ShedlockSetColumn, ShedlockSetNull, ShedlockSetText - give a column its value
 *
 * str NULL: null.
 */
void
ShedlockSetColumn(ShedlockColumns *columns, int attnum, Datum value)
{
	columns->values[attnum - 1] = value;
	columns->nulls[attnum - 1] = false;
	columns->replace[attnum - 1] = true;
}

void
ShedlockSetNull(ShedlockColumns *columns, int attnum)
{
	columns->nulls[attnum - 1] = true;
	columns->replace[attnum - 1] = true;
}

void
ShedlockSetText(ShedlockColumns *columns, int attnum, const char *str)
{
	if (str)
		ShedlockSetColumn(columns, attnum, CStringGetTextDatum(str));
	else
		ShedlockSetNull(columns, attnum);
}

/*
 * fill_added - give the columns that somebody added to the table their defaults
 *
 * Returns true if there are such columns: their constraints want to be checked.
 */
static bool
fill_added(ShedlockStore *store, const ShedlockColumns *columns, EState *estate)
{
	TupleDesc	desc = RelationGetDescr(store->rel);
	bool		added = false;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Node	   *expr;

		if (columns->replace[i] || att->attisdropped)
			continue;
		added |= att->attnotnull || att->attgenerated;
		expr = att->attgenerated ? NULL : build_column_default(store->rel, i + 1);
		if (expr)
		{
			ExprState  *state = ExecPrepareExpr((Expr *) expr, estate);

			added = true;
			columns->values[i] = ExecEvalExprSwitchContext(state, GetPerTupleExprContext(estate),
														   &columns->nulls[i]);
		}
	}
	return added;
}

/*
 * compute_generated - the values of generated columns that somebody added
 *
 * As for an INSERT: all of them, whatever has changed.
 */
static void
compute_generated(ShedlockStore *store, TupleTableSlot *slot)
{
	TupleConstr *constr = RelationGetDescr(store->rel)->constr;
	ResultRelInfo *relinfo;
	EState	   *estate;

	if (constr == NULL || !constr->has_generated_stored)
		return;
	estate = CreateExecutorState();
	relinfo = makeNode(ResultRelInfo);
	InitResultRelInfo(relinfo, store->rel, 0, NULL, 0);
	ExecComputeStoredGenerated(relinfo, estate, slot, CMD_INSERT);
	FreeExecutorState(estate);
}

/*
 * ShedlockInsert - insert a row without waiting for anybody
 *
 * Returns false if a row with that key is there, committed or not.
 */
bool
ShedlockInsert(ShedlockStore *store, const ShedlockColumns *columns)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *relinfo = open_indexes(store, true);
	bool		added = fill_added(store, columns, estate);
	HeapTuple	tuple = heap_form_tuple(RelationGetDescr(store->rel),
										columns->values, columns->nulls);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(store->rel),
													&TTSOpsHeapTuple);
	uint32		token;
	bool		conflict = false;

	ExecStoreHeapTuple(tuple, slot, false);
	slot->tts_tableOid = RelationGetRelid(store->rel);
	if (added)
	{
		compute_generated(store, slot);
		ExecConstraints(relinfo, slot, estate);
	}

	/*
	 * Other sessions that meet the tuple now wait for the speculative
	 * insertion lock only, not for the whole transaction.
	 */
	token = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());
	table_tuple_insert_speculative(store->rel, slot,
								   GetCurrentCommandId(true), 0, NULL, token);
	list_free(insert_index_tuples(relinfo, slot, estate, false, true, &conflict,
								  UPDATED_NO_INDEX));
	table_tuple_complete_speculative(store->rel, slot, token, !conflict);
	SpeculativeInsertionLockRelease(GetCurrentTransactionId());

	ExecCloseIndices(relinfo);
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);

	/* Make it visible to our next read. */
	CommandCounterIncrement();
	return !conflict;
}

/*
 * check_not_newer - complain if the current command itself has written the row
 *
 * We see it, but the server lets a command change nothing that it has written.
 */
static void
check_not_newer(ShedlockStore *store)
{
	HeapTupleHeader row = ExecFetchSlotHeapTuple(store->slot, false, NULL)->t_data;

	if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row)) &&
		HeapTupleHeaderGetCmin(row) >= GetCurrentCommandId(false))
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
				 errmsg("row of table \"%s\" was already written by the current command",
						RelationGetRelationName(store->rel)),
				 errhint("Call the function in a statement of its own.")));
}

/*
 * lock_unless_free - lock a row for an update, or say at once why not
 *
 * *wait is set if the row is locked: then the update does not wait, though it
 * may.  heap_update() that must not wait takes a lock of its own transaction for
 * another's, hence the lock here.
 *
 * A row that nobody had locked when it was read is spared the lock, which would
 * add 56 bytes to the log of an acquire and its release, 333 before.  If somebody
 * locks it after that, heap_update() returns TM_BeingModified, which is right;
 * but the server itself never calls it so, and asserts that this does not happen.
 * A foreign writer who locks and unlocks one row all the time brings a server with
 * assertions down within a second: that one always takes the lock.
 */
static TM_Result
lock_unless_free(ShedlockStore *store, bool *wait)
{
	TupleTableSlot *slot;
	TM_FailureData failure;
	TM_Result	result;

#ifndef USE_ASSERT_CHECKING
	if (ExecFetchSlotHeapTuple(store->slot, false, NULL)->t_data->t_infomask & HEAP_XMAX_INVALID)
		return TM_Ok;
#endif
	slot = table_slot_create(store->rel, NULL);
	result = table_tuple_lock(store->rel, &store->slot->tts_tid, SnapshotSelf, slot,
							  GetCurrentCommandId(true), LockTupleNoKeyExclusive,
							  LockWaitSkip, 0, &failure);
	ExecDropSingleTupleTableSlot(slot);
	*wait = result == TM_Ok;
	return result == TM_WouldBlock ? TM_BeingModified : result;
}

/*
 * ShedlockUpdate - replace columns of the row that was fetched last
 *
 * The others are filled in.  wait: wait for whoever has the row locked, as
 * UPDATE does; without it TM_BeingModified comes back.  Anything but TM_Ok:
 * nothing was written.
 */
TM_Result
ShedlockUpdate(ShedlockStore *store, ShedlockColumns *columns, bool wait)
{
	TupleDesc	desc = RelationGetDescr(store->rel);
	TupleTableSlot *slot;
	HeapTuple	tuple;
	TM_FailureData failure;
	LockTupleMode lockmode;
	UpdatedIndexes updated = UPDATED_NO_INDEX;
	TM_Result	result = TM_Ok;

	check_not_newer(store);
	if (!wait)
		result = lock_unless_free(store, &wait);
	if (result != TM_Ok)
		return result;
	slot_getallattrs(store->slot);
	for (int i = 0; i < desc->natts; i++)
	{
		if (!columns->replace[i])
		{
			columns->values[i] = store->slot->tts_values[i];
			columns->nulls[i] = store->slot->tts_isnull[i];
		}
	}
	tuple = heap_form_tuple(desc, columns->values, columns->nulls);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
	ExecStoreHeapTuple(tuple, slot, false);
	slot->tts_tableOid = RelationGetRelid(store->rel);
	compute_generated(store, slot);

	result = update_tuple(store->rel, &store->slot->tts_tid, slot,
						  GetCurrentCommandId(true), wait,
						  &failure, &lockmode, &updated);

	if (result == TM_Ok && updated != UPDATED_NO_INDEX)
	{
		EState	   *estate = CreateExecutorState();
		ResultRelInfo *relinfo = open_indexes(store, false);

		/* The key is as it was and the old row is ours: no conflict is left. */
		list_free(insert_index_tuples(relinfo, slot, estate, true, false, NULL,
									  updated));
		ExecCloseIndices(relinfo);
		FreeExecutorState(estate);
		store->place->root = slot->tts_tid;
	}
	if (result == TM_Ok)
	{
		store->place->version = slot->tts_tid;
		CommandCounterIncrement();
	}
	ExecDropSingleTupleTableSlot(slot);
	heap_freetuple(tuple);
	return result;
}

/*
 * ShedlockDelete - delete a row without waiting for anybody
 *
 * Anything but TM_Ok: nothing was deleted.
 */
TM_Result
ShedlockDelete(ShedlockStore *store, ItemPointer tid)
{
	TM_FailureData failure;
	TM_Result	result;

	if (tid == &store->slot->tts_tid)
		check_not_newer(store);
	result = delete_tuple(store->rel, tid, GetCurrentCommandId(true), &failure);
	if (result == TM_Ok)
		CommandCounterIncrement();
	return result;
}

/*
 * ShedlockNextToken - draw a fencing token larger than the lock's last one
 *
 * To be called with the advisory half held exclusively, and to be followed by
 * the write of the row in the same hold: then the tokens of a lock grow in the
 * order of its acquisitions.  Its owner can have given the sequence a CACHE, of
 * which each session has numbers of its own, or have set it back: numbers that
 * are too small are passed over.  Raises 55000 if there is no end of them.
 */
int64
ShedlockNextToken(Oid nsp, const ShedlockRow *last)
{
	Oid			sequence = relation_of(nsp, "shedlock_token_seq");
	int64		token = 0;

	for (int tries = 0; tries < TOKEN_TRIES; tries++)
	{
		token = nextval_internal(sequence, false);
		if (ShedlockBroken(TOKENS_REUSED))
			return (token + 1) / 2;
		if (token > last->token)
			return token;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("sequence \"%s\" of extension \"shedlock\" is behind the tokens of its locks",
					"shedlock_token_seq"),
			 errdetail("It gave " INT64_FORMAT ", and the last token of the lock is " INT64_FORMAT ".",
					   token, last->token),
			 errhint("Set it to the largest token with setval().")));
}
