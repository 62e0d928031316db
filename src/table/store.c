/*-------------------------------------------------------------------------
 *
 * store.c
 *	  Opening our tables, if they are still as we need them.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "base/breakage.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/sinval.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/relcache.h"
#include "utils/resowner.h"

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
