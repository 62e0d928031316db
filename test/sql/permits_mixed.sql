-- The callers of a job need not agree on its permits, and the lock of a permit can be that of
-- another job.  A tick has one run at a time all the same.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
SET client_min_messages = error;
\pset format unaligned
\pset tuples_only on

-- Begins a run of a tick that lasts longer than the test.
CREATE FUNCTION pg_temp.begun(job text, permits integer DEFAULT NULL, at_most interval DEFAULT '1 h')
RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN token IS NULL THEN 'not begun' ELSE 'attempt ' || attempt END
	FROM shedlock_run_begin(job, at_most, once_every => '36500 days', attempts => 4, backoff => '0', permits => permits)
$$;
CREATE FUNCTION pg_temp.end_last(job text, outcome text) RETURNS boolean LANGUAGE sql AS $$
	SELECT shedlock_run_end($1, max(token), $2) FROM shedlock_run_log WHERE name = $1
$$;

-- a run with a permit, and callers with more, fewer and none
SELECT pg_temp.begun('mixed some', 40), pg_temp.begun('mixed some', 40), pg_temp.begun('mixed some', 1), pg_temp.begun('mixed some');
SELECT pg_temp.end_last('mixed some', 'failed'), pg_temp.begun('mixed some');
-- a run with none, and callers with some
SELECT pg_temp.begun('mixed some'), pg_temp.begun('mixed some', 3);
-- it is used up for all
SELECT pg_temp.end_last('mixed some', 'succeeded'), pg_temp.begun('mixed some', 3), pg_temp.begun('mixed some');

-- a run that has lost its lock makes way for any caller
SELECT pg_temp.begun('mixed lost', 40, '10 ms');
SELECT pg_sleep(0.02) \gset
SELECT pg_temp.begun('mixed lost'), pg_temp.begun('mixed lost', 40);

-- a pause stops runs with permits, too, whoever holds the lock of the name of the job
SELECT shedlock_acquire('mixed paused'), shedlock_pause('mixed paused') \gset
SELECT token IS NULL AS refused, reason ~ 'paused by' AS because FROM shedlock_run_begin('mixed paused', permits => 3);
SELECT shedlock_resume('mixed paused') \gset
SELECT token IS NULL AS refused FROM shedlock_run_begin('mixed paused', permits => 3);

-- a lost run of the job "mixed same/1" is not given up by the next run of the job "mixed same"
SELECT pg_temp.begun('mixed same/1', at_most => '10 ms');
SELECT pg_sleep(0.02) \gset
SELECT token IS NOT NULL AS begun FROM shedlock_run_begin('mixed same', permits => 1);
SELECT name, outcome, gave_up FROM shedlock_history WHERE name = 'mixed same/1';
SELECT name, runs_lost, gave_up FROM shedlock_stats WHERE name ~ '^mixed same' ORDER BY name;
-- each of them is ended by its own token, under the name of the job or of the lock
SELECT pg_temp.end_last('mixed same', 'succeeded') AS ended, pg_temp.begun('mixed same/1') AS other,
	   shedlock_run_end('mixed same', (SELECT max(token) FROM shedlock_run_log WHERE name = 'mixed same/1')) AS by_other;
SELECT shedlock_run_end('mixed same/1', (SELECT max(token) FROM shedlock_run_log WHERE name = 'mixed same')) AS again,
	   pg_temp.end_last('mixed same/1', 'succeeded') AS other;

-- a run with a permit is not given up by one without that begins for the next tick, before it
-- has failed
CREATE PROCEDURE pg_temp.next_tick(job text) LANGUAGE sql AS $$
	UPDATE shedlock_run_log SET tick = tick - interval '36500 days' WHERE name = job;
	UPDATE shedlock_tick SET tick = tick - interval '36500 days' WHERE name = job;
$$;
SELECT pg_temp.begun('mixed over', 3);
CALL pg_temp.next_tick('mixed over');
SELECT pg_temp.begun('mixed over');
SELECT attempt, outcome, gave_up FROM shedlock_history WHERE name = 'mixed over' ORDER BY token;
SELECT shedlock_run_end('mixed over', min(token), 'failed') FROM shedlock_run_log WHERE name = 'mixed over';
SELECT attempt, outcome, gave_up FROM shedlock_history WHERE name = 'mixed over' ORDER BY token;

-- the same for one that is lost: who has its permit next finds that
SELECT pg_temp.begun('mixed older', 2);
CALL pg_temp.next_tick('mixed older');
SELECT pg_temp.begun('mixed older', 2);
SELECT outcome, gave_up FROM shedlock_history WHERE name = 'mixed older' ORDER BY token LIMIT 1;
UPDATE shedlock SET lock_until = locked_at WHERE token = (SELECT min(token) FROM shedlock_run_log WHERE name = 'mixed older');
SELECT shedlock_run_begin('mixed older', permits => 2) \gset
SELECT outcome, gave_up FROM shedlock_history WHERE name = 'mixed older' ORDER BY token LIMIT 1;
-- and for one that succeeds all the same
SELECT pg_temp.begun('mixed late', 2);
CALL pg_temp.next_tick('mixed late');
SELECT pg_temp.begun('mixed late', 2);
SELECT shedlock_run_end('mixed late', min(token)) FROM shedlock_run_log WHERE name = 'mixed late';
SELECT outcome, gave_up FROM shedlock_run_log WHERE name = 'mixed late' ORDER BY token LIMIT 1;
SELECT name, runs_succeeded, runs_lost, gave_up FROM shedlock_stats WHERE name IN ('mixed late', 'mixed older') ORDER BY name;

-- a later tick that is claimed without a run, or has passed before the job had its new
-- schedule, ends the attempts, too: of a run at work, and of one that has failed
SELECT pg_temp.begun('mixed once', 2), pg_temp.begun('mixed new', 2), pg_temp.begun('mixed once failed'), pg_temp.begun('mixed new failed');
SELECT pg_temp.end_last('mixed once failed', 'failed'), pg_temp.end_last('mixed new failed', 'failed');
UPDATE shedlock_tick SET tick = '1950-01-01' WHERE name ~ '^mixed (once|new)';
SELECT name, shedlock_once_every(name, '36500 days') FROM (VALUES ('mixed once'), ('mixed once failed')) j (name);
SELECT name, token IS NULL AS passed FROM (VALUES ('mixed new'), ('mixed new failed')) j (name), shedlock_run_begin(name, schedule => '0 0 29 2 *', permits => 2);
SELECT pg_temp.end_last('mixed once', 'failed'), pg_temp.end_last('mixed new', 'failed');
SELECT name, outcome, gave_up FROM shedlock_history WHERE name ~ '^mixed (once|new)' ORDER BY name;
SELECT name, runs_failed, gave_up FROM shedlock_stats WHERE name ~ '^mixed (once|new)' ORDER BY name;

-- names that have room for few permits
SELECT rpad('mixed ', 253, 'n') AS long \gset
SELECT count(b.token) FROM generate_series(1, 9) n, shedlock_run_begin(:'long', locked_by => n::text, permits => 9) b;
SELECT count(token) FROM shedlock_run_begin(:'long', permits => 9, locked_by => 'two');
SELECT regexp_replace(left(pg_temp.mask(shedlock_why(:'long')), 70), 'Permit \d', 'Permit N');
SELECT pg_temp.error_of(format('SELECT shedlock_run_begin(%L, permits => 10)', :'long'));
SELECT pg_temp.error_of(format('SELECT _shedlock_cron_call(%L, ''SELECT 1'', permits => 10)', :'long'));
SELECT length(_shedlock_cron_call(:'long', 'SELECT 1', permits => 9)) > 253;

-- the reasons name all permits that are held, and the job that holds one
DO $$ BEGIN FOR n IN 1 .. 12 LOOP PERFORM shedlock_run_begin('mixed why', permits => 1000); END LOOP; END $$;
SELECT count(*) FROM regexp_matches(shedlock_why('mixed why'), 'Permit \d+: It has been held', 'g');
SELECT lock FROM shedlock_run_begin('mixed why', permits => 1000) \gset
SELECT regexp_replace(shedlock_why(:'lock'), E'^.*(  |\n)', '');
SELECT FROM shedlock_run_begin('mixed why/0') \gset
SELECT regexp_replace(shedlock_why('mixed why/0'), E'^.*(  |\n)', '');

SELECT count(*) FROM shedlock_locks WHERE name ~ '^mixed' AND NOT shedlock_force_release(name);
TRUNCATE shedlock, shedlock_tick, shedlock_run_log, shedlock_run_stat;
