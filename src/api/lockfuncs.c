/*-------------------------------------------------------------------------
 *
 * lockfuncs.c
 *	  The SQL functions for locks: acquire, release, extend, assert, token.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lock/lock.h"
#include "miscadmin.h"

/*
 * make_request - the arguments that all forms of acquire have in common
 */
static void
make_request(FunctionCallInfo fcinfo, ShedlockKind kind, ShedlockRequest *request)
{
	ShedlockGetName(fcinfo, 0, &request->name);
	request->kind = kind;
	request->at_most = ShedlockGetInterval(fcinfo, 1, kind == SHEDLOCK_LEASE ?
										   shedlock_default_lock_at_most_for : 0);
	request->at_least = ShedlockGetInterval(fcinfo, 2, shedlock_default_lock_at_least_for);
	request->locked_by = ShedlockGetText(fcinfo, 4, SHEDLOCK_LOCKED_BY_MAX, "locked_by");
	ShedlockCheckTimes(request->at_most, request->at_least, request->name.str);
}

/*
 * acquire_common - the body of all three forms
 */
static bool
acquire_common(FunctionCallInfo fcinfo, ShedlockKind kind, const char *fname,
			   int64 *token)
{
	ShedlockRequest request;
	ShedlockResult result;
	ShedlockStore store;
	Interval   *wait = ShedlockGetInterval(fcinfo, 3, 0);
	bool		taken;

	PreventCommandIfReadOnly(fname);
	PreventCommandIfParallelMode(fname);

	/*
	 * It would stay in a session that is not the caller's: see
	 * ShedlockCallerOwns().
	 */
	if (kind == SHEDLOCK_SESSION && InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot execute %s within security-restricted operation", fname)));
	make_request(fcinfo, kind, &request);
	ShedlockCheckDuration(wait, "wait", request.name.str, true,
						  shedlock_max_wait, "shedlock.max_wait");

	ShedlockOpen(&store, request.name.nsp, "shedlock");
	taken = wait ? ShedlockAcquireWait(&store, &request, wait, &result) :
		ShedlockAcquire(&store, &request, &result);
	ShedlockClose(&store);
	*token = taken ? result.row.token : 0;
	if (taken)
		ShedlockTellOfBlock(&request.name, false);
	return taken;
}

PG_FUNCTION_INFO_V1(shedlock_acquire);
/*
 * shedlock_acquire(name, at_most, at_least, wait, locked_by) - take a lease
 *
 * Returns true if it was taken.  Errors: 22004, 22023, 25006, 55P03 and 57014
 * when waiting.
 */
Datum
shedlock_acquire(PG_FUNCTION_ARGS)
{
	int64		token;

	PG_RETURN_BOOL(acquire_common(fcinfo, SHEDLOCK_LEASE, "shedlock_acquire()", &token));
}

PG_FUNCTION_INFO_V1(shedlock_acquire_token);
/*
 * shedlock_acquire_token(same) - take a lease
 *
 * Returns its fencing token, null if it was not taken.
 */
Datum
shedlock_acquire_token(PG_FUNCTION_ARGS)
{
	int64		token;

	if (!acquire_common(fcinfo, SHEDLOCK_LEASE, "shedlock_acquire_token()", &token))
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

PG_FUNCTION_INFO_V1(shedlock_acquire_session);
/*
 * shedlock_acquire_session(same) - take a session lock
 *
 * Returns true if it was taken.  at_most null: no limit.
 */
Datum
shedlock_acquire_session(PG_FUNCTION_ARGS)
{
	int64		token;

	PG_RETURN_BOOL(acquire_common(fcinfo, SHEDLOCK_SESSION, "shedlock_acquire_session()", &token));
}

PG_FUNCTION_INFO_V1(shedlock_release);
/*
 * shedlock_release(name, token) - give a lock back
 *
 * Errors: 22004, 22023, 25006; those of ShedlockRelease().
 */
Datum
shedlock_release(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	int64		token = ShedlockGetToken(fcinfo, 1);

	PreventCommandIfReadOnly("shedlock_release()");
	PreventCommandIfParallelMode("shedlock_release()");
	ShedlockGetName(fcinfo, 0, &name);
	PG_RETURN_BOOL(ShedlockRelease(&name, token));
}

PG_FUNCTION_INFO_V1(shedlock_extend);
/*
 * shedlock_extend(name, token, at_most, at_least) - set the end anew
 *
 * Errors: 22004, 22023, 25006; those of ShedlockExtend().
 */
Datum
shedlock_extend(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	int64		token = ShedlockGetToken(fcinfo, 1);
	Interval   *at_most = ShedlockGetInterval(fcinfo, 2, 0);
	Interval   *at_least = ShedlockGetInterval(fcinfo, 3, 0);

	PreventCommandIfReadOnly("shedlock_extend()");
	PreventCommandIfParallelMode("shedlock_extend()");
	ShedlockGetName(fcinfo, 0, &name);
	ShedlockCheckTimes(at_most, at_least, name.str);
	PG_RETURN_BOOL(ShedlockExtend(&name, token, at_most, at_least));
}

PG_FUNCTION_INFO_V1(shedlock_assert);
/*
 * shedlock_assert(name, token) - fence: nobody takes my lock before this
 * transaction ends
 *
 * Returns the lock's token.  Errors: 22004, 22023, 25006; those of
 * ShedlockAssert().
 */
Datum
shedlock_assert(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	int64		token = ShedlockGetToken(fcinfo, 1);

	PreventCommandIfReadOnly("shedlock_assert()");
	PreventCommandIfParallelMode("shedlock_assert()");
	ShedlockGetName(fcinfo, 0, &name);
	PG_RETURN_INT64(ShedlockAssert(&name, token));
}

PG_FUNCTION_INFO_V1(shedlock_token);
/*
 * shedlock_token(name) - fencing token of the lock that this session holds
 *
 * Null if it holds none, or one of a role whose privileges the caller has not.
 */
Datum
shedlock_token(PG_FUNCTION_ARGS)
{
	ShedlockName name;
	int64		token;

	PreventCommandIfReadOnly("shedlock_token()");
	PreventCommandIfParallelMode("shedlock_token()");
	ShedlockGetName(fcinfo, 0, &name);
	token = ShedlockTokenOf(&name);
	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}
