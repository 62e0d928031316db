-- A lock is kept for its at-least time, also after its release.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse

SELECT shedlock_acquire('at_least', '1 h', '30 min');
SELECT shedlock_release('at_least');
SELECT kind, lock_until - locked_at AS lasts, keep_until - locked_at AS kept
FROM shedlock WHERE name = 'at_least';
SELECT state, kind, pid FROM shedlock_locks WHERE name = 'at_least';

-- A kept lock is refused to every caller, and has no owner.
SELECT shedlock_acquire('at_least');
SELECT shedlock_acquire_session('at_least');
SELECT shedlock_release('at_least');
SELECT shedlock_extend('at_least', lock_at_most_for => '1 h');
SELECT shedlock_token('at_least');

-- Nor to the transaction that has acquired and released it, which sees why.
BEGIN;
SELECT shedlock_acquire('at_least open', '1 h', '30 min');
SELECT state FROM shedlock_locks WHERE name = 'at_least open';
SELECT shedlock_release('at_least open');
SELECT shedlock_acquire('at_least open');
SELECT state, kind FROM shedlock_locks WHERE name = 'at_least open';
ROLLBACK;
SELECT count(*) FROM shedlock_locks WHERE name = 'at_least open';

-- A lock is free after its at-least time.
SELECT shedlock_acquire('at_least short', '1 h', '3 s');
SELECT shedlock_release('at_least short');
SELECT shedlock_acquire('at_least short');
SELECT pg_sleep(3);
SELECT count(*) FROM shedlock_locks WHERE name = 'at_least short';
SELECT shedlock_acquire('at_least short', '1 h', '0');
SELECT shedlock_release('at_least short');
SELECT shedlock_acquire('at_least short');

-- A release after the at-least time frees the lock at once.
SELECT shedlock_acquire('at_least past', '1 h', '10 ms');
SELECT pg_sleep(0.05);
SELECT shedlock_release('at_least past');
SELECT shedlock_acquire('at_least past');

-- The default applies, unless an argument overrides it.
SET shedlock.default_lock_at_least_for = '10 min';
SELECT shedlock_acquire('at_least default');
SELECT shedlock_release('at_least default');
SELECT shedlock_acquire('at_least default');
SELECT shedlock_acquire('at_least none', '1 h', '0');
SELECT shedlock_release('at_least none');
SELECT shedlock_acquire('at_least none');
SELECT name, lock_until - locked_at AS lasts, keep_until - locked_at AS kept
FROM shedlock WHERE name IN ('at_least default', 'at_least none') ORDER BY name;
RESET shedlock.default_lock_at_least_for;

-- A session lock is kept after its release, and after the end of its session.
SELECT shedlock_acquire_session('at_least session', lock_at_least_for => '1 h');
SELECT shedlock_release('at_least session');
SELECT shedlock_acquire('at_least session');
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_acquire_session('at_least dead', lock_at_least_for => '1 h');
SELECT shedlock_acquire_session('at_least dead short', lock_at_least_for => '1 ms');
\c -
SELECT shedlock_acquire('at_least dead short', wait => '10 s');
SELECT shedlock_acquire('at_least dead');
SELECT state, kind, pid FROM shedlock_locks WHERE name = 'at_least dead';

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
