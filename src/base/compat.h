/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Differences between PostgreSQL 15 and 19, which no other file knows.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_COMPAT_H
#define SHEDLOCK_COMPAT_H

#include "access/genam.h"
#include "access/tableam.h"
#include "executor/executor.h"
#include "replication/message.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/backend_status.h"
#include "utils/guc_tables.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timeout.h"

/* LockHeldByMe() can also ask for stronger modes since 17. */
#if PG_VERSION_NUM >= 170000
#define lock_held_by_me(tag, mode)	LockHeldByMe(tag, mode, false)
#else
#define lock_held_by_me(tag, mode)	LockHeldByMe(tag, mode)
#endif

/* Since 17 a virtual transaction ID has the number of a process in the process array. */
#if PG_VERSION_NUM >= 170000
#define vxid_get_proc(vxid)		ProcNumberGetProc((vxid).procNumber)
#define vxid_is_backend(v)		((v).procNumber != INVALID_PROC_NUMBER)
#define lock_instance_vxid(lock)	((lock)->vxid)
#else
#define vxid_get_proc(vxid)		BackendIdGetProc((vxid).backendId)
#define vxid_is_backend(v)		((v).backendId != InvalidBackendId)
#define lock_instance_vxid(lock) \
	((VirtualTransactionId) {(lock)->backend, (lock)->lxid})
#endif

/* Has a process not reacted yet?  Without a lock, as SetLatch() itself looks. */
#define latch_is_set(latch)		((latch)->is_set)

/* LogLogicalMessage() can also flush since 17. */
#if PG_VERSION_NUM >= 170000
#define log_empty_message(prefix)	LogLogicalMessage(prefix, "", 0, true, false)
#else
#define log_empty_message(prefix)	LogLogicalMessage(prefix, "", 0, true)
#endif

/* The number of a system cache has a type since 19. */
#if PG_VERSION_NUM >= 190000
typedef SysCacheIdentifier CacheId;
#else
typedef int CacheId;
#endif

/*
 * The bytes of a text that is not stored out of line.  gcc 14 warns of VARSIZE_ANY_EXHDR(),
 * which mixes signed and unsigned numbers.
 */
static inline Size
text_size(void *str)
{
	return VARATT_IS_SHORT(str) ? VARSIZE_SHORT(str) - VARHDRSZ_SHORT : VARSIZE(str) - VARHDRSZ;
}

/* libpq/libpq.h includes headers of GSSAPI, which the server's packages do not bring. */
extern bool pq_check_connection(void);

/* Extensions' wait events have names since 17. */
#if PG_VERSION_NUM >= 170000
#include "utils/wait_event.h"
#define wait_event_named(name)	WaitEventExtensionNew(name)
#else
#include "pgstat.h"
#define wait_event_named(name)	PG_WAIT_EXTENSION
#endif

/* table_tuple_update() says since 16 which kind of index needs an entry. */
#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes UpdatedIndexes;
#define UPDATED_NO_INDEX		TU_None
#define only_summarizing(updated)	((updated) == TU_Summarizing)
#else
typedef bool UpdatedIndexes;
#define UPDATED_NO_INDEX		false
#endif

/* Writes have options since 19. */
#if PG_VERSION_NUM >= 190000
#define insert_index_tuples(relinfo, slot, estate, update, nodup, conflict, updated) \
	ExecInsertIndexTuples(relinfo, estate, \
						  ((update) ? EIIT_IS_UPDATE : 0) | \
						  ((nodup) ? EIIT_NO_DUPE_ERROR : 0) | \
						  (only_summarizing(updated) ? EIIT_ONLY_SUMMARIZING : 0), \
						  slot, NIL, conflict)
#define update_tuple(rel, tid, slot, cid, wait, failure, lockmode, updated) \
	table_tuple_update(rel, tid, slot, cid, 0, SnapshotSelf, InvalidSnapshot, \
					   wait, failure, lockmode, updated)
#define delete_tuple(rel, tid, cid, wait, failure) \
	table_tuple_delete(rel, tid, cid, 0, SnapshotSelf, InvalidSnapshot, wait, failure)
#else
#if PG_VERSION_NUM >= 160000
#define insert_index_tuples(relinfo, slot, estate, update, nodup, conflict, updated) \
	ExecInsertIndexTuples(relinfo, slot, estate, update, nodup, conflict, \
						  NIL, only_summarizing(updated))
#else
#define insert_index_tuples(relinfo, slot, estate, update, nodup, conflict, updated) \
	ExecInsertIndexTuples(relinfo, slot, estate, update, nodup, conflict, NIL)
#endif
#define update_tuple(rel, tid, slot, cid, wait, failure, lockmode, updated) \
	table_tuple_update(rel, tid, slot, cid, SnapshotSelf, InvalidSnapshot, \
					   wait, failure, lockmode, updated)
#define delete_tuple(rel, tid, cid, wait, failure) \
	table_tuple_delete(rel, tid, cid, SnapshotSelf, InvalidSnapshot, wait, \
					   failure, false)
#endif

/* Index scans can be instrumented since 18, and all scans have flags since 19. */
#if PG_VERSION_NUM >= 180000
#define INDEX_SCAN(rel, index, snapshot) rel, index, snapshot, NULL
#else
#define INDEX_SCAN(rel, index, snapshot) rel, index, snapshot
#endif
#if PG_VERSION_NUM >= 190000
#define WITH_FLAGS				, SO_NONE
#else
#define WITH_FLAGS
#endif
#define begin_index_scan(rel, index, snapshot, nkeys) \
	index_beginscan(INDEX_SCAN(rel, index, snapshot), nkeys, 0 WITH_FLAGS)
#define begin_table_scan(rel, snapshot) \
	table_beginscan(rel, snapshot, 0, NULL WITH_FLAGS)
#define begin_tid_range_scan(rel, snapshot, first, last) \
	table_beginscan_tidrange(rel, snapshot, first, last WITH_FLAGS)
#define begin_index_fetch(rel) \
	table_index_fetch_begin(rel WITH_FLAGS)

/* Has RelationGetIndexAttrBitmap() its answer, so that it opens no index? */
#if PG_VERSION_NUM >= 160000
#define index_columns_known(rel)	((rel)->rd_attrsvalid)
#else
#define index_columns_known(rel)	((rel)->rd_indexattr != NULL)
#endif

/* Since 18 the server tells deferrable primary keys apart. */
#if PG_VERSION_NUM >= 180000
#define primary_key_index(rel)	RelationGetPrimaryKeyIndex(rel, false)
#else
#define primary_key_index(rel)	RelationGetPrimaryKeyIndex(rel)
#endif

/* A portal is always run once since 18. */
#if PG_VERSION_NUM >= 180000
#define portal_run(portal, toplevel, dest, qc) \
	PortalRun(portal, FETCH_ALL, toplevel, dest, dest, qc)
#else
#define portal_run(portal, toplevel, dest, qc) \
	PortalRun(portal, FETCH_ALL, toplevel, true, dest, dest, qc)
#endif

/* pgstat_fetch_stat_beentry() was replaced in 16. */
#if PG_VERSION_NUM >= 160000
static inline PgBackendStatus *
backend_status_entry(int i)
{
	LocalPgBackendStatus *entry = pgstat_get_local_beentry_by_index(i);

	return entry ? &entry->backendStatus : NULL;
}
#else
#define backend_status_entry(i)	pgstat_fetch_stat_beentry(i)
#endif

/* transaction_timeout came in 17. */
#if PG_VERSION_NUM >= 170000
#define transaction_ends_by(when) \
	(get_timeout_active(TRANSACTION_TIMEOUT) && \
	 get_timeout_finish_time(TRANSACTION_TIMEOUT) <= (when))
#else
#define transaction_ends_by(when)	false
#endif

/* The table of settings became a hash in 16. */
#if PG_VERSION_NUM >= 160000
#define all_settings(n)			get_guc_variables(n)
#else
static inline struct config_generic **
all_settings(int *n)
{
	*n = GetNumConfigOptions();
	return get_guc_variables();
}
#endif

#endif							/* SHEDLOCK_COMPAT_H */
