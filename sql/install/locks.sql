/* Locks */

CREATE FUNCTION shedlock_acquire(
	name text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_acquire(text, interval, interval, interval, text) IS
'Acquires a lease; returns false if the lock is not free';

CREATE FUNCTION shedlock_acquire_token(
	name text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_acquire_token(text, interval, interval, interval, text) IS
'Acquires a lease and returns its fencing token; returns NULL if the lock is not free';

CREATE FUNCTION shedlock_acquire_session(
	name text,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_acquire_session(text, interval, interval, interval, text) IS
'Acquires a lock that ends with this session; returns false if the lock is not free';

CREATE FUNCTION shedlock_acquire_any(
	names text[],
	count integer DEFAULT 1,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL,
	wait interval DEFAULT NULL,
	locked_by text DEFAULT NULL)
RETURNS TABLE(name text, token bigint) LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_acquire_any(text[], integer, interval, interval, interval, text) IS
'Acquires leases of some of these locks, as many as are wanted and free; returns their names and fencing tokens';

CREATE FUNCTION shedlock_permits(name text, permits integer)
RETURNS text[] LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_permits(text, integer) IS
'Returns the names of that many permits: name/1, name/2 and so on';

CREATE FUNCTION shedlock_release(name text, token bigint DEFAULT NULL)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_release(text, bigint) IS
'Releases a lock; returns false if the caller no longer held it';

CREATE FUNCTION shedlock_extend(
	name text,
	token bigint DEFAULT NULL,
	lock_at_most_for interval DEFAULT NULL,
	lock_at_least_for interval DEFAULT NULL)
RETURNS boolean LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_extend(text, bigint, interval, interval) IS
'Sets a new end for a held lock, counted from now; returns false if the caller no longer held it, or if the lock_at_most_for of its job lets a run hold it for less than was asked for';

CREATE FUNCTION shedlock_assert(name text, token bigint DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_assert(text, bigint) IS
'Returns the token of a lock that the caller holds, and keeps it from being acquired before this transaction ends; raises an error if the caller does not hold it';

CREATE FUNCTION _shedlock_lock_until(name text, token bigint)
RETURNS timestamptz LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_lock_until(text, bigint) IS
'Returns the end of the lease of a run, for the program shedlock, whose lease can be shorter than it has asked for';

CREATE FUNCTION shedlock_token(name text)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION shedlock_token(text) IS
'Returns the fencing token of the lock if this session holds it, otherwise NULL';
