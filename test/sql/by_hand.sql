-- A row that was edited by hand counts as it is.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse

-- The row of a held lock cannot be deleted.
SELECT shedlock_acquire('by_hand');
DELETE FROM shedlock WHERE name = 'by_hand';
SELECT shedlock_extend('by_hand');
SELECT shedlock_release('by_hand');
SELECT shedlock_acquire('by_hand');

-- A new end counts, whether it is earlier, later or infinite.
UPDATE shedlock SET lock_until = '2026-01-01' WHERE name = 'by_hand';
SELECT shedlock_extend('by_hand', lock_at_most_for => '1 h');
SELECT shedlock_acquire('by_hand');
UPDATE shedlock SET lock_until = 'infinity' WHERE name = 'by_hand';
SELECT shedlock_acquire('by_hand');
SELECT name, state, remaining, lock_until FROM shedlock_locks WHERE name = 'by_hand';
UPDATE shedlock SET locked_at = '-infinity' WHERE name = 'by_hand';
SELECT name, state, held_for FROM shedlock_locks WHERE name = 'by_hand';
SELECT shedlock_extend('by_hand', lock_at_most_for => '1 h');
UPDATE shedlock SET lock_until = '-infinity', locked_at = '-infinity' WHERE name = 'by_hand';
SELECT shedlock_release('by_hand');
SELECT count(*) FROM shedlock_locks WHERE name = 'by_hand';
SELECT shedlock_acquire('by_hand');

-- A statement that edits a row cannot call shedlock's functions for the same row.
\set VERBOSITY default
UPDATE shedlock SET lock_until = lock_until WHERE name = 'by_hand' RETURNING shedlock_extend('by_hand');
\set VERBOSITY sqlstate
UPDATE shedlock SET lock_until = lock_until WHERE name = 'by_hand' RETURNING shedlock_release('by_hand');
UPDATE shedlock SET lock_until = lock_until WHERE name = 'by_hand' RETURNING shedlock_pause('by_hand');
INSERT INTO shedlock VALUES ('by_hand new', NULL, '2026-01-01', '2026-01-01', '') RETURNING shedlock_acquire('by_hand new');
INSERT INTO shedlock VALUES ('by_hand new', NULL, '2026-01-01', '2026-01-01', '') RETURNING shedlock_purge('0');
\set VERBOSITY terse
SELECT shedlock_extend('by_hand', lock_at_most_for => '1 h');

-- A new token counts, and so does a missing one.
UPDATE shedlock SET token = token + 1000000 WHERE name = 'by_hand' RETURNING token - 1000000 AS old, token AS new \gset
\set VERBOSITY sqlstate
SELECT shedlock_release('by_hand', :old);
\set VERBOSITY terse
SELECT shedlock_extend('by_hand', token => :new);
UPDATE shedlock SET token = NULL WHERE name = 'by_hand';
SELECT shedlock_acquire('by_hand');
\set VERBOSITY sqlstate
SELECT shedlock_release('by_hand', :new);
\set VERBOSITY terse
SELECT token, state FROM shedlock_locks WHERE name = 'by_hand';
SELECT shedlock_force_release('by_hand') FROM (SELECT set_config('client_min_messages', 'warning', false)) q;
RESET client_min_messages;

-- A changed process counts: that of another session, and an earlier one with the same ID.
SELECT shedlock_acquire('by_hand process');
UPDATE shedlock SET pid = 0 WHERE name = 'by_hand process';
SELECT shedlock_release('by_hand process');
SELECT shedlock_extend('by_hand process');
SELECT shedlock_token('by_hand process');
UPDATE shedlock SET pid = pg_backend_pid(), backend_start = backend_start - interval '1 day'
WHERE name = 'by_hand process';
SELECT shedlock_release('by_hand process');
SELECT shedlock_acquire('by_hand process');

-- A row without values in the extension's columns counts as a ShedLock client's.
SELECT shedlock_acquire('by_hand');
UPDATE shedlock SET token = NULL, kind = DEFAULT, locked_role = NULL, keep_until = NULL, lock_at_most_for = NULL,
	pid = NULL, backend_start = NULL, origin = NULL, locked_by = 'host' WHERE name = 'by_hand';
SELECT shedlock_acquire('by_hand');
SELECT shedlock_release('by_hand');
SELECT shedlock_release('by_hand', 1);
SELECT name, state, kind, locked_by, token, pid FROM shedlock_locks WHERE name = 'by_hand';
UPDATE shedlock SET lock_until = '2026-01-01' WHERE name = 'by_hand';
SELECT shedlock_acquire('by_hand');
SELECT token > 0 AS token, kind, pid = pg_backend_pid() AS pid FROM shedlock WHERE name = 'by_hand';

-- There are three kinds; null is a lock that was released, and any other kind counts
-- as a lease.
\set VERBOSITY sqlstate
UPDATE shedlock SET kind = 'garbage' WHERE name = 'by_hand';
\set VERBOSITY terse
UPDATE shedlock SET kind = NULL WHERE name = 'by_hand';
SELECT state, kind FROM shedlock_locks WHERE name = 'by_hand';
SELECT shedlock_release('by_hand');
UPDATE shedlock SET kind = 'lease' WHERE name = 'by_hand';
BEGIN;
ALTER TABLE shedlock DROP CONSTRAINT shedlock_kind_check;
UPDATE shedlock SET kind = 'garbage' WHERE name = 'by_hand';
SELECT shedlock_acquire('by_hand');
SELECT state, kind FROM shedlock_locks WHERE name = 'by_hand';
SELECT shedlock_extend('by_hand', lock_at_most_for => '1 h');
SELECT shedlock_release('by_hand');
ROLLBACK;
UPDATE shedlock SET kind = 'session' WHERE name = 'by_hand';
SELECT shedlock_release('by_hand');
SELECT shedlock_acquire('by_hand');
UPDATE shedlock SET kind = 'run' WHERE name = 'by_hand';
SELECT shedlock_release('by_hand');
SELECT shedlock_acquire('by_hand');

-- Edits to a session lock's row count, too.
SELECT shedlock_acquire_session('by_hand session');
UPDATE shedlock SET kind = 'lease', lock_until = '2026-01-01' WHERE name = 'by_hand session';
SELECT shedlock_release('by_hand session');
SELECT shedlock_acquire('by_hand session');
SELECT * FROM pg_temp.my_locks();
SELECT pg_advisory_unlock_all();
SELECT shedlock_acquire_session('by_hand deleted');
DELETE FROM shedlock WHERE name = 'by_hand deleted';
SELECT shedlock_release('by_hand deleted');
SELECT shedlock_token('by_hand deleted');
SELECT pg_advisory_unlock_all();

-- A command can edit the lock and the history of its own run.
CALL shedlock_run('by_hand run', 'DELETE FROM shedlock WHERE name = ''by_hand run''');
CALL shedlock_run('by_hand run', 'UPDATE shedlock SET token = token - 1 WHERE name = ''by_hand run''');
CALL shedlock_run('by_hand run', 'UPDATE shedlock SET kind = NULL, lock_until = locked_at WHERE name = ''by_hand run''');
CALL shedlock_run('by_hand run', 'DELETE FROM _shedlock_history WHERE name = ''by_hand run'' AND outcome = ''running''');
SELECT outcome FROM shedlock_history WHERE name = 'by_hand run' ORDER BY token;
SELECT * FROM pg_temp.my_locks();
SELECT shedlock_acquire('by_hand run');

-- A tick that is set back can be claimed again.
SELECT shedlock_once('by_hand', '2026-01-02');
UPDATE _shedlock_tick SET tick = '2026-01-01' WHERE name = 'by_hand';
SELECT shedlock_once('by_hand', '2026-01-02');
DELETE FROM _shedlock_tick WHERE name = 'by_hand';
SELECT shedlock_once('by_hand', '2026-01-01');

-- A column that an administrator added keeps its value.
ALTER TABLE shedlock ADD note text DEFAULT 'none';
SELECT shedlock_acquire('by_hand column');
UPDATE shedlock SET note = 'mine' WHERE name = 'by_hand column';
SELECT shedlock_extend('by_hand column'), shedlock_release('by_hand column'), shedlock_acquire('by_hand column');
SELECT note FROM shedlock WHERE name = 'by_hand column';
ALTER TABLE shedlock DROP note;
SELECT shedlock_release('by_hand column'), shedlock_acquire('by_hand column');

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
