/*-------------------------------------------------------------------------
 *
 * lockfuncs.c
 *	  The SQL functions for locks: acquire, release, extend, assert, token.
 *
 * Each raises 22004 and 22023 for arguments that are not allowed, and the errors
 * of ShedlockBeginCall().
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lock/lock.h"
#include "miscadmin.h"

/*
 * acquire - the body of all three forms
 *
 * Returns the token, or 0 if the lock is not acquired.
 */
static int64
acquire(FunctionCallInfo fcinfo, ShedlockKind kind, const char *call)
{
	ShedlockRequest request = {.kind = kind};
	ShedlockResult result;
	ShedlockStore store;
	Interval   *wait = ShedlockGetInterval(fcinfo, 3, 0);
	bool		acquired;

	ShedlockBeginCall(fcinfo, call, &request.name);

	/* The lock would stay in the session of another role. */
	if (kind == SHEDLOCK_SESSION && InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot execute %s within security-restricted operation", call)));

	request.at_most = ShedlockGetInterval(fcinfo, 1, kind == SHEDLOCK_LEASE ?
										  shedlock_default_lock_at_most_for : 0);
	request.at_least = ShedlockGetInterval(fcinfo, 2, shedlock_default_lock_at_least_for);
	request.locked_by = ShedlockGetText(fcinfo, 4, SHEDLOCK_LOCKED_BY_MAX, "locked_by");
	ShedlockCheckTimes(request.at_most, request.at_least, request.name.str);
	ShedlockCheckDuration(wait, "wait", request.name.str, true,
						  shedlock_max_wait, "shedlock.max_wait");

	if (wait)
		acquired = ShedlockAcquireWait(&request, wait, &result);
	else
	{
		request.brief = true;
		ShedlockOpenToAcquire(&store, request.name.nsp);
		acquired = ShedlockAcquire(&store, &request, &result);
		ShedlockClose(&store);
	}
	if (acquired)
		ShedlockNoticeBlock(&request.name, false);
	return acquired ? result.row.token : 0;
}

PG_FUNCTION_INFO_V1(shedlock_acquire);
/*
 * shedlock_acquire(name, at_most, at_least, wait, locked_by) - acquire a lease
 *
 * Returns true if it was acquired.  Errors while it waits: 55P03, 57014.
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
 *
 * at_most null: no limit.  Error: 42501 within a security-restricted operation.
 */
Datum
shedlock_acquire_session(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire(fcinfo, SHEDLOCK_SESSION, "shedlock_acquire_session()") != 0);
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
