-- shedlock_why says what an acquire or a run would be answered.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
SET client_min_messages = error;
CREATE ROLE regress_shedlock_why;
\pset format unaligned
\pset tuples_only on

CREATE FUNCTION pg_temp.why(job text) RETURNS text LANGUAGE sql AS $$ SELECT pg_temp.mask(shedlock_why(job)) $$;

-- free, held, kept, paused
SELECT shedlock_why('why');
SELECT shedlock_acquire('why', locked_by => 'somebody') \gset
SELECT pg_temp.why('why');
SELECT shedlock_release('why') \gset
SELECT pg_temp.why('why');
-- expired while this transaction fences it
SELECT shedlock_acquire_token('why') AS token \gset
BEGIN;
SELECT shedlock_assert('why', :token) \gset
UPDATE shedlock SET lock_until = locked_at WHERE name = 'why';
SELECT pg_temp.why('why');
ROLLBACK;
SELECT shedlock_release('why', :token) \gset
SELECT shedlock_acquire('why', '2 h', '1 h'), shedlock_release('why') \gset
UPDATE shedlock SET locked_by = 'somebody', keep_until = '2100-01-01', lock_until = '2100-01-01' WHERE name = 'why';
SELECT shedlock_why('why');
SELECT shedlock_pause('why paused', '2100-01-01', 'not tonight') \gset
UPDATE shedlock SET paused_by = 'the boss' WHERE name = 'why paused';
SELECT shedlock_why('why paused');
SELECT shedlock_resume('why paused') \gset
SELECT shedlock_why('why paused');
SELECT shedlock_acquire_session('why session') \gset
UPDATE shedlock SET locked_by = 'somebody', locked_at = '2026-01-02 03:04:05' WHERE name = 'why session';
SELECT shedlock_why('why session');
-- Its process is one of another server.
UPDATE shedlock SET origin = origin # 1000000, lock_until = '2100-01-01' WHERE name = 'why session';
SELECT shedlock_why('why session');
UPDATE shedlock SET origin = origin # 1000000 WHERE name = 'why session';
-- After its holder has died, the row still refuses ShedLock's clients, which read it alone.
SELECT pg_advisory_unlock_all() \gset
SELECT pg_temp.why('why session');
SET client_min_messages = notice;
\set VERBOSITY terse
SELECT shedlock_force_release('why session');
\set VERBOSITY default
SET client_min_messages = error;
SELECT pg_temp.why('why session');
SELECT shedlock_acquire_session('why limit', '1 h') \gset
SELECT pg_temp.why('why limit');
SELECT shedlock_release('why limit') \gset
BEGIN;
SELECT shedlock_acquire('why open') \gset
SELECT shedlock_why('why open');
ROLLBACK;
SELECT shedlock_why('why open');

-- ticks that are claimed
SELECT shedlock_once('why once', '2026-01-01') \gset
UPDATE _shedlock_tick SET claimed_by = 'somebody', claimed_at = '2026-01-02 03:04:05' WHERE name = 'why once';
SELECT shedlock_why('why once');
SELECT shedlock_again('why once') \gset
SELECT shedlock_why('why once');
SELECT shedlock_once_every('why every', '36500 days') \gset
UPDATE _shedlock_tick SET claimed_by = 'somebody', claimed_at = '2026-01-02 03:04:05' WHERE name = 'why every';
SELECT shedlock_why('why every');
UPDATE _shedlock_tick SET tick = '1800-01-01' WHERE name = 'why every';
SELECT shedlock_why('why every');

-- runs: of a new job, not due, due, at work, attempts, given up
SELECT shedlock_job('why run', '@yearly', attempts => 2, backoff => '1 h') \gset
SELECT pg_temp.why('why run');
UPDATE _shedlock_job SET since = since - interval '1 year' WHERE name = 'why run';
SELECT pg_temp.why('why run');
CALL shedlock_run('why run', 'SELECT 1');
SELECT pg_temp.why('why run');
UPDATE _shedlock_tick SET tick = tick - interval '1 year' WHERE name = 'why run';
SELECT pg_temp.why('why run');
\set VERBOSITY terse
CALL shedlock_run('why run', 'SELECT 1 / 0');
SELECT pg_temp.why('why run');
UPDATE _shedlock_tick SET retry_at = clock_timestamp() WHERE name = 'why run';
SELECT pg_temp.why('why run');
SELECT token FROM shedlock_run_begin('why run') \gset
SELECT pg_temp.why('why run');
-- a tick that had no run in time
SELECT shedlock_job('why late', '@yearly', max_late => '1 s') \gset
SELECT pg_temp.why('why late');
UPDATE _shedlock_job SET since = since - interval '1 year' WHERE name = 'why late';
SELECT pg_temp.why('why late');
SELECT shedlock_skip('why late') \gset
SELECT pg_temp.why('why late');
-- also one of the schedule before; and after one whose attempts have failed
SELECT shedlock_job('why carried', '@yearly', max_late => '1 s') \gset
UPDATE _shedlock_job SET carried = '2020-01-01' WHERE name = 'why carried';
SELECT pg_temp.why('why carried');
SELECT shedlock_job('why both', '@yearly') \gset
UPDATE _shedlock_job SET since = since - interval '2 years' WHERE name = 'why both';
CALL shedlock_run('why both', 'SELECT 1 / 0');
SELECT pg_temp.why('why both');
UPDATE _shedlock_tick SET tick = tick - interval '1 year' WHERE name = 'why both';
SELECT shedlock_job('why both', '@yearly', max_late => '1 s') \gset
SELECT pg_temp.why('why both');
-- other roles see no address, if there is one
SET ROLE regress_shedlock_why;
SELECT replace(pg_temp.why('why run'), '@ADDRESS', '');
RESET ROLE;
SELECT shedlock_run_end('why run', :token, 'failed') \gset
SELECT pg_temp.why('why run');
SET ROLE regress_shedlock_why;
SELECT replace(pg_temp.why('why run'), '@ADDRESS', '');
RESET ROLE;
SELECT shedlock_again('why run') \gset
SELECT pg_temp.why('why run');
-- the message of a run without ticks, too, in one line, and not for others
SELECT token FROM shedlock_run_begin('why error') \gset
SELECT shedlock_run_end('why error', :token, 'failed', E'no space\nleft ' || repeat('x', 500)) \gset
SELECT pg_temp.why('why error');
SET ROLE regress_shedlock_why;
SELECT replace(pg_temp.why('why error'), '@ADDRESS', '');
RESET ROLE;
CALL shedlock_run('why run', 'SELECT 1');
SELECT pg_temp.why('why run');
-- ticks that are skipped: the coming one, and the last one
SELECT shedlock_skip('why run', 'stocktaking') \gset
SELECT pg_temp.why('why run');
UPDATE _shedlock_tick SET tick = tick - interval '1 year', skipped = skipped - interval '1 year' WHERE name = 'why run';
SELECT pg_temp.why('why run');
SELECT shedlock_skip('why run') \gset
SELECT regexp_replace(pg_temp.why('why run'), '@[^ "]+"', '@ADDRESS"');
SELECT shedlock_again('why run'), shedlock_again('why run') \gset
SELECT regexp_replace(pg_temp.why('why run'), '@[^ "]+"', '@ADDRESS"');
-- a run that gave its attempt back
SELECT token FROM shedlock_run_begin('why run') \gset
SELECT shedlock_run_end('why run', :token, 'returned') \gset
SELECT pg_temp.why('why run');
CALL shedlock_run('why run', 'SELECT 1');
CREATE TABLE why (reason text);
CALL shedlock_run('why plain', 'INSERT INTO why SELECT pg_temp.why(''why plain'')');
SELECT * FROM why;
DROP TABLE why;

-- A run at work, and a claim of a later tick
SELECT shedlock_job('why claimed', 'every 1 hour'), shedlock_job('why long', 'every 36500 days'), shedlock_job('why dead', 'every 36500 days') \gset
SELECT token FROM shedlock_run_begin('why claimed') \gset
SELECT shedlock_once('why claimed', clock_timestamp() + interval '1 s') \gset
SELECT pg_temp.why('why claimed');
SELECT shedlock_run_end('why claimed', :token) \gset

-- A tick that passed during a run
SELECT token FROM shedlock_run_begin('why long') \gset
UPDATE _shedlock_tick SET tick = tick - interval '36500 days', claimed_at = claimed_at - interval '36500 days' WHERE name = 'why long';
SELECT shedlock_run_end('why long', :token) \gset
SELECT pg_temp.why('why long');

-- The only attempt has died: that is told before the next acquirer logs it
SELECT token FROM shedlock_run_begin('why dead') \gset
UPDATE shedlock SET lock_until = locked_at WHERE name = 'why dead';
SELECT pg_temp.why('why dead');

-- A job of which a tick was due is forgotten, and declared again
SELECT shedlock_forget('why dead') \gset
SELECT pg_temp.why('why dead');
SELECT shedlock_job('why dead', '@yearly') \gset
SELECT pg_temp.why('why dead');

-- Rows that were written by hand
UPDATE _shedlock_job SET schedule = 'nonsense' WHERE name = 'why run';
SELECT pg_temp.why('why run');
UPDATE _shedlock_job SET schedule = '@yearly' WHERE name = 'why run';
UPDATE _shedlock_tick SET tick = 'infinity' WHERE name = 'why run';
SELECT pg_temp.why('why run');
UPDATE _shedlock_tick SET tick = '-infinity' WHERE name = 'why run';
SELECT pg_temp.why('why run') ~ 'is due now' AS due;

\pset format aligned
\pset tuples_only off
SELECT pg_temp.error_of('SELECT shedlock_why(NULL)');
SELECT pg_temp.error_of('SELECT shedlock_why('''')');
SELECT pg_temp.error_of('SELECT shedlock_why(repeat(''x'', 256))');
SET shedlock.role_prefix = on;
SET ROLE regress_shedlock_why;
SELECT pg_temp.error_of('SELECT shedlock_why(''why'')');
RESET ROLE;
RESET shedlock.role_prefix;
-- It works in a read-only transaction.
BEGIN READ ONLY;
SELECT shedlock_why('why') LIKE 'It was last held%' AS kept;
COMMIT;
SELECT * FROM pg_temp.my_locks();

DROP ROLE regress_shedlock_why;
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history;
