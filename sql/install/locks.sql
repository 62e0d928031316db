/* Locks */

CREATE FUNCTION shedlock_acquire(
	name text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_acquire';

COMMENT ON FUNCTION shedlock_acquire(text, interval, interval, interval, text) IS
'Takes a lease; false when the lock is not free';

CREATE FUNCTION shedlock_acquire_token(
	name text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_acquire_token';

COMMENT ON FUNCTION shedlock_acquire_token(text, interval, interval, interval, text) IS
'Takes a lease and gives its fencing token; NULL when the lock is not free';

CREATE FUNCTION shedlock_acquire_session(
	name text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_acquire_session';

COMMENT ON FUNCTION shedlock_acquire_session(text, interval, interval, interval, text) IS
'Takes a lock that is gone in the moment this session is gone; false when the lock is not free';

CREATE FUNCTION shedlock_release(name text, token bigint DEFAULT NULL)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_release';

COMMENT ON FUNCTION shedlock_release(text, bigint) IS
'Gives a lock back; false when it was no longer held';

CREATE FUNCTION shedlock_extend(
	name text,
	token bigint DEFAULT NULL,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_extend';

COMMENT ON FUNCTION shedlock_extend(text, bigint, interval, interval) IS
'Sets the end of a held lock anew, counted from now; false when it was no longer held';

CREATE FUNCTION shedlock_assert(name text, token bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_assert';

COMMENT ON FUNCTION shedlock_assert(text, bigint) IS
'Token of the lock; raises an error unless it is held, and holds everybody else off until this transaction ends';

CREATE FUNCTION shedlock_token(name text)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'shedlock_token';

COMMENT ON FUNCTION shedlock_token(text) IS
'Fencing token of the lock that this session holds; NULL when it holds none';
