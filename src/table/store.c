/*-------------------------------------------------------------------------
 *
 * store.c
 *	  Opens the extension's tables, and refuses what was altered.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/sinval.h"
#include "table/table.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/relcache.h"
#include "utils/syscache.h"

/* How many numbers of the sequence may be too small for a token. */
#define TOKEN_TRIES		1000

typedef struct
{
	Oid			type;			/* InvalidOid: after the last one */
	bool		not_null;
} ShedlockColumn;

/* A relation of the extension, and what is known of it until the server forgets it, too. */
typedef struct
{
	const char *table;
	const char *checks[3];		/* CHECK constraints, and NULL */
	ShedlockColumn columns[32];
	Oid			nsp;
	Oid			relid;			/* InvalidOid: nothing is known */
	bool		has_columns;	/* ShedlockCheckColumns() found no fault */
	bool		obeyed;			/* nor did ShedlockCheckPromises() */
} ShedlockLayout;

#define COLUMN(name, type, not_null, ...)	{type, not_null},

static ShedlockLayout layouts[] = {
	{.table = "shedlock",.columns = {SHEDLOCK_COLUMNS(COLUMN)},
	.checks = {"shedlock_name_check", "shedlock_kind_check"}},
	{.table = "shedlock_token_seq"},
	{.table = "_shedlock_job",.columns = {SHEDLOCK_JOB_COLUMNS(COLUMN)}},
	{.table = "_shedlock_tick",.columns = {SHEDLOCK_TICK_COLUMNS(COLUMN)}},
	{.table = "_shedlock_timeline",.columns = {SHEDLOCK_TIMELINE_COLUMNS(COLUMN)}},
	{.table = "_shedlock_stats",.columns = {SHEDLOCK_STATS_COLUMNS(COLUMN)}},
	{.table = "_shedlock_history",.columns = {SHEDLOCK_HISTORY_COLUMNS(COLUMN)}},
};

/*
 * forget_relation - a relation was altered or dropped; InvalidOid: any may have been
 */
static void
forget_relation(Datum arg, Oid relid)
{
	for (ShedlockLayout *layout = layouts; layout < layouts + lengthof(layouts); layout++)
	{
		if (relid == InvalidOid || layout->relid == relid)
			layout->relid = InvalidOid;
	}
}

/*
 * layout_of - the layout that a relation of the extension must have
 */
static ShedlockLayout *
layout_of(const char *relname)
{
	ShedlockLayout *layout = layouts;

	while (layout < &layouts[lengthof(layouts) - 1] && strcmp(layout->table, relname) != 0)
		layout++;
	return layout;
}

/*
 * is_known - is that table the one of whose layout something is known?
 */
static bool
is_known(const ShedlockLayout *layout, Relation rel)
{
	return SHEDLOCK_CACHES && layout->relid == RelationGetRelid(rel);
}

/*
 * ShedlockOwnColumns - how many columns a table of the extension came with
 */
int
ShedlockOwnColumns(Relation rel)
{
	const ShedlockColumn *columns = layout_of(RelationGetRelationName(rel))->columns;
	int			n = 0;

	while (OidIsValid(columns[n].type))
		n++;
	return n;
}

/*
 * ShedlockCheckColumns - raise an error if a table does not have its columns any more
 *
 * The extension knows columns by their numbers, and relies on their types and NOT
 * NULL, which the table's owner can change.  Errors: 42804; 42809 if the table is of
 * another kind: only ordinary logged tables survive a crash, and fetch.c and write.c
 * know only heaps.
 */
void
ShedlockCheckColumns(Relation rel)
{
	const char *table = RelationGetRelationName(rel);
	TupleDesc	desc = RelationGetDescr(rel);
	ShedlockLayout *layout = layout_of(table);
	const ShedlockColumn *column = layout->columns;

	if (is_known(layout, rel) && layout->has_columns)
		return;
	if (rel->rd_rel->relkind != RELKIND_RELATION ||
		rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT ||
		rel->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" of extension \"shedlock\" is not an ordinary, logged table", table)));

	for (int i = 0; OidIsValid(column->type); i++, column++)
	{
		bool		same_type = i < desc->natts && TupleDescAttr(desc, i)->atttypid == column->type;

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
	layout->has_columns = is_known(layout, rel);
}

static void
refuse(Relation rel, char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("table \"%s\" of extension \"shedlock\" was altered",
					RelationGetRelationName(rel)),
			 errdetail_internal("%s", detail),
			 errhint("Undo that: the extension would not obey it.")));
}

static bool
came_with_check(const ShedlockLayout *layout, const char *conname)
{
	const char *const *check = layout->checks;

	while (*check && strcmp(*check, conname) != 0)
		check++;
	return *check != NULL;
}

/*
 * find_broken_promise - what write.c would not obey, in words; or NULL
 */
static char *
find_broken_promise(Relation rel, const ShedlockLayout *layout)
{
	TupleDesc	desc = RelationGetDescr(rel);
	const TriggerDesc *triggers = rel->trigdesc;

	if (rel->rd_rel->relispartition)
		return pstrdup("It is a partition.");
	for (int i = 0; OidIsValid(layout->columns[i].type); i++)
	{
		if (TupleDescAttr(desc, i)->attnotnull && !layout->columns[i].not_null)
			return psprintf("Its column number %d cannot be null.", i + 1);
	}
	for (int i = 0; desc->constr && i < desc->constr->num_check; i++)
	{
		if (!came_with_check(layout, desc->constr->check[i].ccname))
			return psprintf("It did not come with the CHECK constraint \"%s\".", desc->constr->check[i].ccname);
	}
	for (int i = 0; triggers && i < triggers->numtriggers; i++)
	{
		if (triggers->triggers[i].tgisinternal)
			return psprintf("Its constraint \"%s\" is deferrable, or a foreign key from or to it.",
							get_constraint_name(triggers->triggers[i].tgconstraint));
	}
	return NULL;
}

/*
 * ShedlockCheckPromises - raise an error if write.c would break a constraint
 *
 * A write checks no such constraint and fires no trigger, and the server enforces
 * each foreign key and each deferrable constraint by internal triggers.  A trigger that a
 * user made enforces nothing, and still sees what others write.  The server itself
 * checks the replica identity, if the table can be replicated.  All of that is in the
 * relation cache.
 *
 * Call this before something new is written (a lock, claim, pause or run), and before
 * locks are purged.  What ends or extends something is written in any case: otherwise
 * altering the table during a run would lose its outcome and strand its lock.
 *
 * Errors: 42809; 55000 for the replica identity, and 42P10 for a publication's row
 * filter.
 */
void
ShedlockCheckPromises(const ShedlockStore *store)
{
	Relation	rel = store->rel;
	ShedlockLayout *layout = layout_of(RelationGetRelationName(rel));

	if (!is_known(layout, rel) || !layout->obeyed)
	{
		char	   *broken = find_broken_promise(rel, layout);

		if (broken)
			refuse(rel, broken);
		layout->obeyed = is_known(layout, rel);
	}
	if (RelationIsLogicallyLogged(rel))
	{
		CheckCmdReplicaIdentity(rel, CMD_UPDATE);
		CheckCmdReplicaIdentity(rel, CMD_DELETE);
	}
}

static Oid
relation_of(Oid nsp, const char *relname)
{
	static bool watched = false;
	ShedlockLayout *layout = layout_of(relname);

	if (SHEDLOCK_CACHES && OidIsValid(layout->relid) && layout->nsp == nsp)
		return layout->relid;
	if (!watched)
		CacheRegisterRelcacheCallback(forget_relation, 0);
	watched = true;
	layout->nsp = nsp;
	layout->relid = get_relname_relid(relname, nsp);
	layout->has_columns = layout->obeyed = false;
	if (!OidIsValid(layout->relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"%s\" of extension \"shedlock\" does not exist",
						relname)));
	return layout->relid;
}

/*
 * open_relation - open a table in the extension's schema, and lock it
 *
 * A wait for the lock may be a wait for DROP EXTENSION: if the catalogs have changed
 * meanwhile, the name is looked up again.
 */
static Relation
open_relation(Oid nsp, const char *relname, LOCKMODE lockmode)
{
	Relation	rel;
	Oid			relid;

	for (;;)
	{
		uint64		inval_count = SharedInvalidMessageCounter;

		relid = relation_of(nsp, relname);
		ShedlockLockRelation(relid, lockmode);
		if (inval_count == SharedInvalidMessageCounter ||
			relation_of(nsp, relname) == relid)
			break;
		ShedlockUnlockRelation(relid, lockmode);
	}

	rel = table_open(relid, NoLock);
	ShedlockCheckColumns(rel);
	return rel;
}

/*
 * ShedlockLockTables - lock tables of the extension, and their indexes, before the first
 * write to one of them
 *
 * tables: their names, and NULL.  So a transaction that has written holds no row while it
 * waits for one of these locks.  Errors: those of ShedlockOpen().  Locks: RowExclusiveLock to
 * the end of the transaction.
 */
void
ShedlockLockTables(Oid nsp, const char *const *tables)
{
	for (; *tables; tables++)
	{
		Relation	rel = open_relation(nsp, *tables, RowExclusiveLock);

		ShedlockLockIndexes(rel);
		table_close(rel, NoLock);
	}
}

/*
 * ShedlockPrimaryKey - the index of the primary key, opened at its first use
 *
 * The lock on the table is held when the index is looked up, so that REINDEX
 * CONCURRENTLY does not drop the index meanwhile.
 */
Relation
ShedlockPrimaryKey(ShedlockStore *store)
{
	if (store->index == NULL)
	{
		store->index = ShedlockOpenIndex(primary_key_index(store->rel));
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
 * ShedlockOpen - open a table of the extension, whose primary key is its first column
 *
 * lockmode: RowExclusiveLock for writing, as INSERT and UPDATE take it.  AccessShareLock for
 * reading, which a query that reads the table has already: a stronger one would deadlock with
 * a REINDEX that has queued in between.  Errors: 42P01 if there is no such table; 42804, 42809
 * or 42704 if it was altered so that it cannot be read.  Locks: lockmode, until
 * ShedlockClose().
 */
void
ShedlockOpen(ShedlockStore *store, Oid nsp, const char *table, LOCKMODE lockmode)
{
	store->rel = open_relation(nsp, table, lockmode);
	store->index = NULL;
	if (!OidIsValid(primary_key_index(store->rel)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" of extension \"shedlock\" has no primary key", table)));
	store->slot = table_slot_create(store->rel, NULL);
}

/*
 * ShedlockClose - close a table, and release that lock
 *
 * NoLock: it is kept to the end of the transaction, as after a write it must.  Do not keep it
 * without need: a caller that waits afterwards would keep VACUUM FULL or ALTER TABLE waiting, and
 * these the holder's release.
 */
void
ShedlockClose(ShedlockStore *store, LOCKMODE lockmode)
{
	Oid			relid = RelationGetRelid(store->rel);

	ExecDropSingleTupleTableSlot(store->slot);
	if (store->index)
		ShedlockCloseIndex(store->index);
	table_close(store->rel, NoLock);
	if (lockmode != NoLock)
		ShedlockUnlockRelation(relid, lockmode);
}

/*
 * check_sequence - raise an error if the tokens of a sequence may not grow
 */
static void
check_sequence(Oid sequence)
{
	HeapTuple	tuple = SearchSysCache1(SEQRELID, ObjectIdGetDatum(sequence));
	bool		grows = false;

	if (HeapTupleIsValid(tuple))
	{
		Form_pg_sequence form = (Form_pg_sequence) GETSTRUCT(tuple);

		grows = form->seqcache == 1 && form->seqincrement > 0 && !form->seqcycle &&
			get_rel_persistence(sequence) == RELPERSISTENCE_PERMANENT;
		ReleaseSysCache(tuple);
	}
	if (!grows)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("sequence \"%s\" of extension \"shedlock\" was altered", "shedlock_token_seq"),
				 errdetail("Its numbers may not grow: it is unlogged, or has a CACHE, a CYCLE or a negative INCREMENT."),
				 errhint("Undo that by ALTER SEQUENCE.")));
}

/*
 * ShedlockNextToken - draw a fencing token larger than the lock's last one (I7)
 *
 * The caller holds the advisory half exclusively, and writes the token to the row
 * before it releases that: so the tokens of a lock grow in the order of its
 * acquisitions.  The sequence's owner can have set it back: numbers that are too small are
 * skipped.  Errors: 55000 if there are too many of them; 42809 if it can give a number that is too
 * small for a lock that was purged, as it does from a CACHE, or after a crash if it is unlogged.
 */
int64
ShedlockNextToken(Oid nsp, const ShedlockRow *last)
{
	Oid			sequence = relation_of(nsp, "shedlock_token_seq");
	int64		token = 0;

	check_sequence(sequence);
	for (int tries = 0; tries < TOKEN_TRIES; tries++)
	{
		token = nextval_internal(sequence, false);
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
