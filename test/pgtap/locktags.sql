-- Keys, classes and modes of the advisory locks.  They must never change, because libraries
-- of two versions can be in use in one cluster, in old and new sessions.

SELECT no_plan();

CREATE TEMP TABLE pinned (name text, key bigint);
INSERT INTO pinned VALUES
('nightly', 3043134503785307926),
('job', 6812988570718632683),
('acme:import', 1748972683316832438),
('a', -3848465438864589366),
('Zürich 東京 🔒', 1175175429496535441),
(repeat('x', 255), -3303942443734166164);

CREATE FUNCTION pg_temp.modes(lockclass integer, lockname text) RETURNS text LANGUAGE sql AS $$
SELECT string_agg(l.mode, ',' ORDER BY l.mode)
FROM pg_locks l JOIN pinned p ON p.name = lockname
WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.granted AND l.objsubid = lockclass
	  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
	  AND ((l.classid::bigint << 32) | l.objid::bigint) = p.key $$;

BEGIN;
SELECT ok(shedlock_acquire(name, '1 min'), 'acquire ' || left(name, 20)) FROM pinned;
SELECT is((SELECT array_agg((l.classid::bigint << 32) | l.objid::bigint ORDER BY (l.classid::bigint << 32) | l.objid::bigint) FROM pg_locks l
		   WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.objsubid = 21324),
		  (SELECT array_agg(key ORDER BY key) FROM pinned), 'the keys of names have not changed');
SELECT is(pg_temp.modes(21324, name), 'ExclusiveLock', 'an acquirer holds it exclusively: ' || left(name, 20)) FROM pinned;
SELECT is(('x' || left(encode(sha256(convert_to(name, 'UTF8')), 'hex'), 16))::bit(64)::bigint, key, 'SQL computes the same key: ' || left(name, 20)) FROM pinned;
SELECT is((SELECT string_agg(mode, ',') FROM pg_locks
		   WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objsubid = 21326
				 AND classid = 0 AND objid::bigint = pg_backend_pid()),
		  'ShareLock', 'the sentinel of the session has the key of its process');
ROLLBACK;
SELECT is((SELECT count(*)::integer FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objsubid = 21324),
		  0, 'nothing is held after a rollback');

SELECT ok(shedlock_acquire_token('nightly', '1 min') > 0, 'a lease is committed');
SELECT is(pg_temp.modes(21324, 'nightly'), NULL, 'a committed lease has no advisory lock');
BEGIN;
SELECT ok(shedlock_assert('nightly') > 0, 'a lease is asserted');
SELECT is(pg_temp.modes(21324, 'nightly'), 'ShareLock', 'a fence is a share lock');
COMMIT;
SELECT is(pg_temp.modes(21324, 'nightly'), NULL, 'a fence ends with its transaction');
BEGIN;
SELECT ok(shedlock_extend('nightly'), 'a lease is extended');
SELECT is(pg_temp.modes(21324, 'nightly'), 'ShareLock', 'an extend is a fence');
COMMIT;
BEGIN;
SELECT ok(shedlock_release('nightly'), 'a lease is released');
SELECT is(pg_temp.modes(21324, 'nightly'), 'ShareLock', 'a release is a fence until its transaction ends');
COMMIT;

SELECT ok(shedlock_acquire_session('job'), 'a session lock is committed');
SELECT is(pg_temp.modes(21324, 'job'), 'ShareLock', 'a session lock is a share lock');
SELECT ok(shedlock_release('job'), 'a session lock is released');
SELECT is(pg_temp.modes(21324, 'job'), NULL, 'a released session lock has no advisory lock');

BEGIN;
SELECT ok(shedlock_once('acme:import', now()), 'a tick is claimed');
SELECT is(pg_temp.modes(21327, 'acme:import'), 'ExclusiveLock', 'an open claim is an exclusive lock of a class of its own');
SELECT is(pg_temp.modes(21324, 'acme:import'), NULL, 'a claim is no lock');
COMMIT;
SELECT is(pg_temp.modes(21327, 'acme:import'), NULL, 'a committed claim has no advisory lock');

CALL shedlock_run('a', $$CREATE TEMP TABLE during AS SELECT pg_temp.modes(21324, 'a')$$);
SELECT is((SELECT modes FROM during), 'ShareLock', 'a run is a share lock while its command runs');
SELECT is(pg_temp.modes(21324, 'a'), NULL, 'an ended run has no advisory lock');

-- PostgreSQL's own functions have 1 and 2 in this field.
SELECT ok(pg_try_advisory_lock(key), 'the application''s advisory lock of the same key is another lock') FROM pinned WHERE name = 'job';
SELECT ok(shedlock_acquire('job'), 'an application''s advisory lock does not prevent an acquire');
SELECT ok(shedlock_release('job'), 'an application''s advisory lock does not prevent a release');

SELECT lives_ok('SELECT pg_advisory_unlock_all()', 'end');
DELETE FROM shedlock WHERE name IN (SELECT name FROM pinned);
DELETE FROM _shedlock_tick WHERE name IN (SELECT name FROM pinned);
DELETE FROM _shedlock_history WHERE name IN (SELECT name FROM pinned);

SELECT * FROM finish();
