/*
 * planted.c
 *		Functions with faults, which the servers of scripts/test hard must find.
 *
 * A server that does not notice its fault would not notice one in shedlock.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(planted_assert);
PG_FUNCTION_INFO_V1(planted_freed);
PG_FUNCTION_INFO_V1(planted_unset);
PG_FUNCTION_INFO_V1(planted_overflow);
PG_FUNCTION_INFO_V1(planted_released);

/* An assertion that does not hold. */
Datum
planted_assert(PG_FUNCTION_ARGS)
{
	Assert(PG_NARGS() > 1);
	PG_RETURN_INT32(PG_GETARG_INT32(0));
}

/* Reads memory that was freed. */
Datum
planted_freed(PG_FUNCTION_ARGS)
{
	volatile int32 *number = palloc(sizeof(int32));

	*number = PG_GETARG_INT32(0);
	pfree((void *) number);
	PG_RETURN_INT32(*number);
}

/* Branches on memory that was never written. */
Datum
planted_unset(PG_FUNCTION_ARGS)
{
	volatile int32 *number = palloc(sizeof(int32));

	PG_RETURN_INT32(*number > PG_GETARG_INT32(0) ? 1 : 0);
}

/* Shifts by more bits than an int has, if called with 40. */
Datum
planted_overflow(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(1 << PG_GETARG_INT32(0));
}

/*
 * Reads an entry of a cache after it was released.  It is found unchanged, but
 * for a server that discards its caches whenever it might.
 */
Datum
planted_released(PG_FUNCTION_ARGS)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(INT4OID));
	Form_pg_type type = (Form_pg_type) GETSTRUCT(tuple);
	bool		unchanged;

	ReleaseSysCache(tuple);
	(void) get_rel_name((Oid) PG_GETARG_INT32(0));
	unchanged = namestrcmp(&type->typname, "int4") == 0;
	PG_RETURN_INT32(unchanged ? 1 : 0);
}
