/*-------------------------------------------------------------------------
 *
 * lockfuncs.c
 *	  The SQL functions for locks: acquire, permits, release, extend, assert, token.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "lib/qunique.h"
#include "lock/lock.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

/*
 * get_request - read and check the arguments of an acquire after the names
 *
 * first: lock_at_most_for; then lock_at_least_for, wait and locked_by.  name: for
 * messages, or NULL.  Returns wait, or NULL.
 */
static Interval *
get_request(FunctionCallInfo fcinfo, int first, const char *name, ShedlockRequest *request)
{
	Interval   *wait = ShedlockGetInterval(fcinfo, first + 2, 0);

	request->at_most = ShedlockGetInterval(fcinfo, first, request->kind == SHEDLOCK_LEASE ?
										   shedlock_default_lock_at_most_for : 0);
	request->at_least = ShedlockGetInterval(fcinfo, first + 1,
											shedlock_default_lock_at_least_for);
	request->locked_by = ShedlockGetText(fcinfo, first + 3, SHEDLOCK_LOCKED_BY_MAX, "locked_by");
	ShedlockCheckTimes(request->at_most, request->at_least, name);
	ShedlockCheckDuration(wait, "wait", name, true, shedlock_max_wait, "shedlock.max_wait");
	return wait;
}

/*
 * acquire - the body of the three forms for one lock
 *
 * Returns the token, or 0 if the lock is not acquired.
 */
static int64
acquire(FunctionCallInfo fcinfo, ShedlockKind kind, const char *call)
{
	ShedlockAny any = {.request.kind = kind,.n = 1,.count = 1};
	ShedlockName name;
	Interval   *wait;

	ShedlockBeginCall(fcinfo, call, &name);

	/* The lock would stay in the session of another role. */
	if (kind == SHEDLOCK_SESSION && InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot execute %s within security-restricted operation", call)));
	wait = get_request(fcinfo, 1, name.str, &any.request);
	any.names = &name;
	if (!ShedlockAcquireAny(&any, wait))
		return 0;
	ShedlockNoticeBlock(&name, false);
	return any.tokens[0];
}

PG_FUNCTION_INFO_V1(shedlock_acquire);
/*
 * shedlock_acquire(name, at_most, at_least, wait, locked_by) - acquire a lease
 */
Datum
shedlock_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire(fcinfo, SHEDLOCK_LEASE, "shedlock_acquire()") != 0);
}

PG_FUNCTION_INFO_V1(shedlock_acquire_token);
/*
 * shedlock_acquire_token(same) - as shedlock_acquire, but return the token or null
 */
Datum
shedlock_acquire_token(PG_FUNCTION_ARGS)
{
	int64		token = acquire(fcinfo, SHEDLOCK_LEASE, "shedlock_acquire_token()");

	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

PG_FUNCTION_INFO_V1(shedlock_acquire_session);
/*
 * shedlock_acquire_session(same) - as shedlock_acquire, but for a session lock
 */
Datum
shedlock_acquire_session(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire(fcinfo, SHEDLOCK_SESSION, "shedlock_acquire_session()") != 0);
}

/*
 * compare_names - the order of bytes, for qsort() and bsearch()
 */
static int
compare_names(const void *a, const void *b)
{
	return strcmp(((const ShedlockName *) a)->str, ((const ShedlockName *) b)->str);
}

/*
 * get_count - how many locks are wanted; argument 1
 */
static int
get_count(FunctionCallInfo fcinfo)
{
	int			count;

	ShedlockRefuseNull(PG_ARGISNULL(1), "count", NULL);
	count = PG_GETARG_INT32(1);
	if (count <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("count must be positive")));
	return count;
}

/*
 * put_acquired - return what was acquired, in the order of the caller's names
 *
 * A name that comes more than once is returned for the first of these.
 */
static void
put_acquired(ReturnSetInfo *rsinfo, const ShedlockAny *any, const ShedlockName *names, int n)
{
	for (int i = 0; i < n; i++)
	{
		const ShedlockName *name = bsearch(&names[i], any->names, (size_t) any->n,
										   sizeof(ShedlockName), compare_names);
		int64	   *token = name ? &any->tokens[name - any->names] : NULL;
		Datum		values[2];
		bool		nulls[2] = {false};

		if (token == NULL || *token == 0)
			continue;
		values[0] = CStringGetTextDatum(name->str);
		values[1] = Int64GetDatum(*token);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		ShedlockNoticeBlock(name, false);
		*token = 0;
	}
}

PG_FUNCTION_INFO_V1(shedlock_acquire_any);
/*
 * shedlock_acquire_any(names, count, at_most, at_least, wait, locked_by) - acquire leases
 * of some of several locks
 */
Datum
shedlock_acquire_any(PG_FUNCTION_ARGS)
{
	ShedlockAny any = {.request.kind = SHEDLOCK_LEASE};
	ShedlockName *names;
	Interval   *wait;
	int			n;

	ShedlockCheckMayWrite("shedlock_acquire_any()");
	wait = get_request(fcinfo, 2, NULL, &any.request);
	names = ShedlockGetNames(fcinfo, 0, wait ? SHEDLOCK_WAIT_NAMES_MAX : SHEDLOCK_NAMES_MAX, &n);
	any.names = memcpy(palloc((Size) n * sizeof(ShedlockName)), names,
					   (Size) n * sizeof(ShedlockName));
	qsort(any.names, (size_t) n, sizeof(ShedlockName), compare_names);
	any.n = (int) qunique(any.names, (size_t) n, sizeof(ShedlockName), compare_names);
	any.count = get_count(fcinfo);

	InitMaterializedSRF(fcinfo, 0);
	if (any.n > 0 && ShedlockAcquireAny(&any, wait))
		put_acquired((ReturnSetInfo *) fcinfo->resultinfo, &any, names, n);
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(shedlock_permits);
/*
 * shedlock_permits(name, permits) - the names of that many permits
 *
 * Any name is allowed that a job can have, also one that the caller may not use.
 */
Datum
shedlock_permits(PG_FUNCTION_ARGS)
{
	int			permits = PG_GETARG_INT32(1);
	ShedlockName name;
	Datum	   *elems;

	ShedlockMakeName(ShedlockSchema(fcinfo), text_to_cstring(PG_GETARG_TEXT_PP(0)), &name);
	ShedlockCheckText(name.str, "lock name");
	if (permits <= 0 || permits > SHEDLOCK_NAMES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("permits must be between 1 and %d", SHEDLOCK_NAMES_MAX)));
	elems = palloc((Size) permits * sizeof(Datum));
	for (int i = 0; i < permits; i++)
		elems[i] = CStringGetTextDatum(psprintf("%s/%d", name.str, i + 1));
	PG_RETURN_ARRAYTYPE_P(construct_array(elems, permits, TEXTOID, -1, false, TYPALIGN_INT));
}

PG_FUNCTION_INFO_V1(shedlock_release);
/*
 * shedlock_release(name, token) - see ShedlockRelease()
 */
Datum
shedlock_release(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	int64		token = ShedlockGetToken(fcinfo, 1);

	ShedlockBeginCall(fcinfo, "shedlock_release()", &name);
	PG_RETURN_BOOL(ShedlockRelease(&name, token));
}

PG_FUNCTION_INFO_V1(shedlock_extend);
/*
 * shedlock_extend(name, token, at_most, at_least) - see ShedlockExtend()
 */
Datum
shedlock_extend(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	int64		token = ShedlockGetToken(fcinfo, 1);
	Interval   *at_most = ShedlockGetInterval(fcinfo, 2, 0);
	Interval   *at_least = ShedlockGetInterval(fcinfo, 3, 0);

	ShedlockBeginCall(fcinfo, "shedlock_extend()", &name);
	ShedlockCheckTimes(at_most, at_least, name.str);
	PG_RETURN_BOOL(ShedlockExtend(&name, token, at_most, at_least));
}

PG_FUNCTION_INFO_V1(shedlock_assert);
/*
 * shedlock_assert(name, token) - see ShedlockAssert()
 */
Datum
shedlock_assert(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	int64		token = ShedlockGetToken(fcinfo, 1);

	ShedlockBeginCall(fcinfo, "shedlock_assert()", &name);
	PG_RETURN_INT64(ShedlockAssert(&name, token));
}

PG_FUNCTION_INFO_V1(shedlock_token);
/*
 * shedlock_token(name) - see ShedlockTokenOf(); null for 0
 */
Datum
shedlock_token(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	int64		token;

	ShedlockBeginCall(fcinfo, "shedlock_token()", &name);
	token = ShedlockTokenOf(&name);
	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

PG_FUNCTION_INFO_V1(_shedlock_lock_until);
/*
 * _shedlock_lock_until(name, token) - the end of the lease of that run
 *
 * Null if it does not hold the lock, or for an end that not every driver reads.
 */
Datum
_shedlock_lock_until(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	ShedlockRow row;
	Datum		end;

	ShedlockGetName(fcinfo, 0, &name);
	ShedlockLookUpRow(&name, &row);
	if (PG_ARGISNULL(1) || row.kind != SHEDLOCK_LEASED_RUN || row.token != PG_GETARG_INT64(1))
		PG_RETURN_NULL();
	ShedlockShowTime(row.lock_until, &end, &fcinfo->isnull);
	PG_RETURN_DATUM(end);
}
