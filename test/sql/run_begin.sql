-- Runs whose work is outside the database: shedlock_run_begin, shedlock_run_end.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
CREATE ROLE regress_shedlock_run_a;
CREATE ROLE regress_shedlock_run_b;
CREATE FUNCTION pg_temp.log(job text) RETURNS TABLE (outcome text, ended boolean, message text, exit_code integer, sqlstate text) LANGUAGE sql AS $$
	SELECT outcome, ended_at IS NOT NULL, message, exit_code, sqlstate FROM shedlock_history WHERE name = job ORDER BY token
$$;

-- A run is a lease with an entry in the history; what is no job has no ticks.
SELECT token, num_nulls(tick, attempt, reason, next_at) AS nulls, state
FROM shedlock_run_begin('begin', '1 min', locked_by => 'host', description => 'work', request => 'r1') \gset
SELECT :token > 0 AS token, :nulls AS nulls, :'state' AS state;
SELECT state, kind, remaining <= '1 min' AS remaining, regexp_replace(locked_by, '\d+', 'N') AS locked_by, pid FROM shedlock_locks;
SELECT outcome, ended_at, command, request, tick, attempt, token = :token AS token FROM shedlock_history;
SELECT shedlock_acquire('begin');
SELECT state, pg_temp.mask(reason) AS reason FROM shedlock_run_begin('begin');
\set VERBOSITY terse
CALL shedlock_run('begin', 'SELECT 1', on_busy => 'error');
\set VERBOSITY default

-- The same request has the same answer, from the same role alone.
SELECT token = :token AS token, tick, attempt, state, reason, next_at = (SELECT lock_until AT TIME ZONE 'UTC' FROM shedlock WHERE name = 'begin') AS at_its_end FROM shedlock_run_begin('begin', request => 'r1');
SELECT token, state, pg_temp.mask(reason) AS reason FROM shedlock_run_begin('begin', request => 'r2');
SET shedlock.max_wait = '1 s';
SELECT token = :token AS token, reason FROM shedlock_run_begin('begin', request => 'r1', wait => '1 min');
SELECT pg_temp.error_of($$SELECT shedlock_run_begin('begin', request => 'r2', wait => '1 min')$$);
RESET shedlock.max_wait;
INSERT INTO _shedlock_history (token, name, started_at, ended_at, outcome, locked_role, locked_by, pid)
SELECT nextval('shedlock_token_seq'), 'begin', now(), now(), 'succeeded', current_user::regrole, 'somebody', 1 FROM generate_series(1, 150);
SELECT token = :token AS token, reason FROM shedlock_run_begin('begin', request => 'r1');
DELETE FROM _shedlock_history WHERE locked_by = 'somebody';
SET ROLE regress_shedlock_run_a;
SELECT token, state, pg_temp.mask(reason) AS reason FROM shedlock_run_begin('begin', request => 'r1');
RESET ROLE;
SELECT count(*) FROM shedlock_history;

-- It can be extended and fenced by its token, but is ended in one way only.
SELECT shedlock_extend('begin', :token, '5 min'), shedlock_assert('begin', :token) = :token AS asserted;
SELECT pg_temp.error_of(format('SELECT shedlock_release(%L, %s)', 'begin', :token));
SELECT shedlock_cancel('begin');
SELECT shedlock_token('begin') = :token AS token;

-- The end releases the lock; the same end again is true, another one is not.
SELECT shedlock_run_end('begin', :token, 'failed', 'no space left on device', 28);
SELECT * FROM pg_temp.log('begin');
SELECT count(*) FROM shedlock_locks;
SELECT shedlock_run_end('begin', :token, 'failed'), shedlock_run_end('begin', :token, outcome => 'failed', message => 'other', exit_code => 1);
\set VERBOSITY sqlstate
SELECT shedlock_run_end('begin', :token);
\set VERBOSITY default
SELECT * FROM pg_temp.log('begin');
SELECT token, state, pg_temp.mask(reason) AS reason FROM shedlock_run_begin('begin', request => 'r1');

-- Each outcome
SELECT shedlock_run_end('begin', (shedlock_run_begin('begin')).token, o) FROM unnest('{succeeded, failed, timed out, cancelled}'::text[]) o;
SELECT shedlock_run_end('begin', (shedlock_run_begin('begin')).token, message => repeat('x', 5000));
SELECT outcome, ended, length(message) AS message FROM pg_temp.log('begin');

-- A run that is not ended in time is lost, and its end writes nothing.
SELECT token FROM shedlock_run_begin('lost', request => 'r3') \gset
UPDATE shedlock SET lock_until = '2026-01-01', locked_at = '2026-01-01' WHERE name = 'lost';
SELECT * FROM pg_temp.log('lost');
SELECT state, next_at, pg_temp.mask(reason) AS reason FROM shedlock_run_begin('lost', request => 'r3');
\set VERBOSITY sqlstate
SELECT shedlock_run_end('lost', :token);
SELECT shedlock_extend('lost', :token);
\set VERBOSITY default
SELECT * FROM pg_temp.log('lost');
SELECT token AS next FROM shedlock_run_begin('lost') \gset
\set VERBOSITY sqlstate
SELECT shedlock_run_end('lost', :token);
\set VERBOSITY default
SELECT * FROM pg_temp.log('lost');
SELECT outcome FROM _shedlock_history WHERE token = :token;
-- A forced release cancels it.
\set VERBOSITY sqlstate
SELECT shedlock_force_release('lost');
SELECT shedlock_run_end('lost', :next);
SELECT shedlock_run_end('lost', :next, 'cancelled');
\set VERBOSITY default
SELECT * FROM pg_temp.log('lost');
-- A Java client takes the lock over.
SELECT token FROM shedlock_run_begin('lost') \gset
UPDATE shedlock SET lock_until = locked_at WHERE name = 'lost';
UPDATE shedlock SET lock_until = timezone('UTC', clock_timestamp()) + '1 min', locked_at = timezone('UTC', clock_timestamp()), locked_by = 'java'
WHERE name = 'lost' AND lock_until <= timezone('UTC', clock_timestamp());
SELECT kind FROM shedlock WHERE name = 'lost';
\set VERBOSITY sqlstate
SELECT shedlock_run_end('lost', :token);
\set VERBOSITY default
SELECT outcome FROM shedlock_history WHERE token = :token;

-- Not mine: another token, another role, a lock that is no run of this kind
SELECT token FROM shedlock_run_begin('mine') \gset
\set VERBOSITY sqlstate
SELECT shedlock_run_end('mine', :token + 1000);
SET ROLE regress_shedlock_run_a;
SELECT pg_temp.error_of(format('SELECT shedlock_run_end(%L, %s)', 'mine', :token));
SELECT token AS theirs FROM shedlock_run_begin('theirs', '1 h') \gset
SET ROLE regress_shedlock_run_b;
SELECT pg_temp.error_of(format('SELECT shedlock_run_end(%L, %s)', 'theirs', :theirs));
RESET ROLE;
SELECT shedlock_run_end('theirs', :theirs);
SET ROLE regress_shedlock_run_b;
SELECT shedlock_run_end('theirs', :theirs);
RESET ROLE;
SELECT shedlock_run_end('mine', :theirs);
SELECT shedlock_run_end('mine', :token);
SELECT shedlock_acquire_token('mine') AS token \gset
SELECT pg_temp.error_of(format('SELECT shedlock_run_end(%L, %s)', 'mine', :token));
SELECT shedlock_release('mine');
SELECT shedlock_acquire_session('mine');
SELECT pg_temp.error_of(format('SELECT shedlock_run_end(%L, %s)', 'mine', shedlock_token('mine')));
SELECT shedlock_release('mine');
CALL shedlock_run('mine', 'SELECT shedlock_run_end(''mine'', shedlock_token(''mine''))');
\set VERBOSITY default

-- A rollback undoes the begin, and the end.
SELECT shedlock_job(job, 'every 36500 days') FROM unnest('{undone, waiting}'::text[]) job;
BEGIN;
SELECT token > 0 AS begun FROM shedlock_run_begin('undone');
SAVEPOINT s;
SELECT shedlock_run_end('undone', shedlock_token('undone'));
ROLLBACK TO s;
SELECT outcome FROM shedlock_history WHERE name = 'undone';
ROLLBACK;
SELECT (SELECT count(*) FROM shedlock WHERE name = 'undone'), (SELECT count(*) FROM _shedlock_tick WHERE name = 'undone'),
	   (SELECT count(*) FROM shedlock_history WHERE name = 'undone');
SELECT * FROM pg_temp.my_locks();
BEGIN;
SAVEPOINT s;
SELECT token > 0 AS begun FROM shedlock_run_begin('undone');
ROLLBACK TO s;
SELECT token, attempt FROM shedlock_run_begin('undone') \gset
COMMIT;
BEGIN;
SELECT shedlock_run_end('undone', :token);
ROLLBACK;
SELECT state FROM shedlock_locks WHERE name = 'undone';
SELECT outcome FROM shedlock_history WHERE name = 'undone';
SELECT done FROM _shedlock_tick WHERE name = 'undone';
SELECT shedlock_run_end('undone', :token);
SELECT done FROM _shedlock_tick WHERE name = 'undone';
SELECT token, tick, attempt, pg_temp.mask(reason) AS reason FROM shedlock_run_begin('undone');

-- In a transaction that reads the tables by an older snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1 AS snapshot;
SELECT token FROM shedlock_run_begin('snapshot') \gset
SELECT shedlock_run_end('snapshot', :token);
COMMIT;

-- Only a run that succeeded uses up its tick.
SELECT shedlock_job('tick', 'every 36500 days', attempts => 3, backoff => '0');
SELECT token, tick, attempt FROM shedlock_run_begin('tick') \gset
SELECT :'tick' AS tick, :'attempt' AS attempt, shedlock_run_end('tick', :token, 'timed out');
SELECT token, attempt FROM shedlock_run_begin('tick') \gset
SELECT :'attempt' AS attempt, shedlock_run_end('tick', :token, 'cancelled');
SELECT shedlock_job('tick', 'every 36500 days', attempts => 4, backoff => '0');
SELECT token, attempt FROM shedlock_run_begin('tick') \gset
SELECT :'attempt' AS attempt, shedlock_run_end('tick', :token, 'succeeded');
SELECT attempt, state FROM shedlock_run_begin('tick');

-- The wait is for the lock, but not while the run of the tick is at work.
SELECT shedlock_acquire('waiting', '400 ms'), shedlock_acquire('no job', '1 min');
SELECT state FROM shedlock_run_begin('waiting', '5 min', wait => '1 min');
SELECT state FROM shedlock_run_begin('no job', wait => '10 ms');
SELECT clock_timestamp() AS before \gset
SELECT state, clock_timestamp() - :'before' < '50 s' AS at_once FROM shedlock_run_begin('waiting', wait => '2 min');

-- Bad arguments
SELECT pg_temp.error_of('SELECT shedlock_run_begin(NULL)');
SELECT pg_temp.error_of('SELECT shedlock_run_begin('''')');
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''bad'', ''0'')');
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''bad'', ''1 s'', ''2 s'')');
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''bad'', wait => ''-1 s'')');
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''bad'', locked_by => repeat(''x'', 201))');
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''bad'', request => repeat(''x'', 256))');
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''bad'', request => E''\n'')');
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''bad'', schedule => ''* * * * *'')');
SELECT pg_temp.error_of('CALL shedlock_run(''bad'', ''SELECT 1'', once_every => ''1 day'')');
SELECT pg_temp.error_of('SELECT shedlock_run_end(NULL, 1)');
SELECT pg_temp.error_of('SELECT shedlock_run_end(''bad'', NULL)');
SELECT pg_temp.error_of('SELECT shedlock_run_end(''bad'', 0)');
SELECT pg_temp.error_of('SELECT shedlock_run_end(''bad'', 1, ''ok'')');
SELECT pg_temp.error_of('SELECT shedlock_run_end(''bad'', 1, NULL)');
SELECT shedlock_run_end('bad', 1);
SET default_transaction_read_only = on;
SELECT pg_temp.error_of('SELECT shedlock_run_begin(''bad'')');
SELECT pg_temp.error_of('SELECT shedlock_run_end(''bad'', 1)');
RESET default_transaction_read_only;
SELECT * FROM pg_temp.my_locks();

DROP ROLE regress_shedlock_run_a, regress_shedlock_run_b;
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history;
