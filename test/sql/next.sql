-- shedlock_next begins a run of the job that has waited longest.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
-- A job whose tick came that many minutes ago, that was declared before it, and has not run
CREATE FUNCTION pg_temp.due_since(job text, minutes integer, catch_up text DEFAULT 'latest') RETURNS text LANGUAGE sql AS $$
	DELETE FROM _shedlock_tick WHERE name = job;
	SELECT shedlock_job(job, to_char(clock_timestamp() - make_interval(mins => minutes), '"every 1 day from" YYYY-MM-DD"T"HH24:MI:SS"Z"'), catch_up => catch_up);
	UPDATE _shedlock_job SET since = since - interval '10 days', created_at = created_at - interval '10 days', declared_at = declared_at - interval '10 days' WHERE name = job;
	SELECT job
$$;
CREATE FUNCTION pg_temp.next(VARIADIC names text[]) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(name || ' ' || attempt, state) FROM shedlock_next(names)
$$;
CREATE FUNCTION pg_temp.end_run(job text, outcome text DEFAULT 'succeeded') RETURNS boolean LANGUAGE sql AS $$
	SELECT shedlock_run_end(job, token, outcome) FROM shedlock WHERE name = job
$$;

-- what cannot be asked
SELECT * FROM shedlock_next(NULL);
SELECT * FROM shedlock_next('{}');
SELECT * FROM shedlock_next(ARRAY['next a', NULL]);
SELECT * FROM shedlock_next(ARRAY['next a', '']);
SELECT * FROM shedlock_next((SELECT array_agg('next ' || i) FROM generate_series(1, 1001) i));
SELECT * FROM shedlock_next('{next a}', lease => '0');
SELECT * FROM shedlock_next('{next a}', wait => '-1 s');
SELECT * FROM shedlock_next('{next a}', wait => '2 days');
SELECT * FROM shedlock_next('{next a}', request => '');
BEGIN READ ONLY;
SELECT * FROM shedlock_next('{next a}');
ROLLBACK;

-- jobs that are not declared, also if they are locks or have claimed ticks
SELECT shedlock_acquire('next lock', '1 min'), shedlock_once_every('next claim', '1 day');
SELECT * FROM shedlock_next('{next lock}');
SELECT * FROM shedlock_next('{next lock, next claim}');
SELECT pg_temp.due_since('next a', 60), pg_temp.due_since('next b', 120), pg_temp.due_since('next c', 90);
SELECT pg_temp.next('next lock', 'next b', 'next claim');
SELECT pg_temp.end_run('next b', 'returned');

-- the one that is due since longest, whatever the order of the names; none twice
SELECT pg_temp.next('next a', 'next b', 'next c', 'next b');
SELECT pg_temp.next('next a', 'next b', 'next c');
SELECT pg_temp.next('next a', 'next b', 'next c');
SELECT pg_temp.next('next a', 'next b', 'next c');
SELECT name, pg_temp.end_run(name) FROM unnest(ARRAY['next a', 'next b', 'next c']) name;
SELECT pg_temp.next('next a', 'next b', 'next c');

-- the next call can succeed when the first of them is due
SELECT state, reason LIKE '%The next tick is %' AS says_so, next_at = (SELECT min(next_due) FROM shedlock_jobs WHERE name ~ '^next [abc]') AS at_first_tick, token
FROM shedlock_next('{next a, next b, next c}');

-- a backlog does not starve a job that comes after it
SELECT pg_temp.due_since('next backlog', 5 * 24 * 60, 'all'), pg_temp.due_since('next daily', 10);
SELECT pg_temp.next('next daily', 'next backlog');
SELECT pg_temp.end_run('next backlog');
SELECT pg_temp.next('next daily', 'next backlog');
SELECT pg_temp.end_run('next daily');
SELECT pg_temp.next('next daily', 'next backlog');

-- held by its run; returned; failed and backing off
SELECT state, next_at BETWEEN clock_timestamp() + interval '50 s' AND clock_timestamp() + interval '1 min' AS in_a_minute FROM shedlock_next('{next backlog}');
SELECT pg_temp.end_run('next backlog', 'returned');
SELECT pg_temp.next('next backlog');
SELECT pg_temp.end_run('next backlog');
SELECT shedlock_job('next failed', 'every 20000 days', attempts => 2, backoff => '10 min');
SELECT pg_temp.next('next failed'), pg_temp.end_run('next failed', 'failed');
SELECT state, next_at BETWEEN clock_timestamp() + interval '9 min' AND clock_timestamp() + interval '10 min' AS after_backoff FROM shedlock_next('{next failed}');

-- paused, and the others are not; all for ever
SELECT pg_temp.due_since('next a', 61), pg_temp.due_since('next b', 121);
SELECT shedlock_pause('next b');
UPDATE shedlock SET paused_by = 'somebody' WHERE name = 'next b';
SELECT pg_temp.next('next a', 'next b');
SELECT * FROM shedlock_next('{next b}');
SELECT * FROM shedlock_next('{next missing, next b}');
SELECT state, next_at BETWEEN clock_timestamp() + interval '50 s' AND clock_timestamp() + interval '1 min' AS in_a_minute FROM shedlock_next('{next a, next b}');
SELECT shedlock_resume('next b');
SELECT pg_temp.next('next a', 'next b');
SELECT pg_temp.end_run('next a'), pg_temp.end_run('next b');

-- a lock that is held by hand, and ends first
SELECT pg_temp.due_since('next a', 62), pg_temp.due_since('next b', 122), shedlock_acquire('next a', '5 min'), shedlock_acquire('next b', '4 min');
SELECT state, next_at = (SELECT lock_until AT TIME ZONE 'UTC' FROM shedlock WHERE name = 'next b') AS at_its_end, reason LIKE '%It has been held%' AS says_so FROM shedlock_next('{next a, next b}');
SELECT shedlock_release('next b');
SELECT pg_temp.next('next a', 'next b');
SELECT shedlock_release('next a'), pg_temp.end_run('next b'), pg_temp.next('next a', 'next b'), pg_temp.end_run('next a');

-- the lease is no longer than the run may take
SELECT shedlock_job('next short', 'every 1 day', lock_at_most_for => '20 s', lock_at_least_for => '5 s');
SELECT token IS NOT NULL AS begun FROM shedlock_next('{next short}', '1 min', locked_by => 'next test');
SELECT lock_until - locked_at AS lease, split_part(locked_by, ' #', 1) AS locked_by, keep_until - locked_at AS kept FROM shedlock WHERE name = 'next short';
SELECT command, request FROM shedlock_history WHERE name = 'next short';

-- a request begins one run, and has its answer as long as that lives
SELECT pg_temp.due_since('next a', 63), pg_temp.due_since('next b', 123);
CREATE TEMP TABLE answers AS SELECT * FROM shedlock_next('{next a, next b}', request => 'next 1');
SELECT name, state, a = b AS the_same FROM answers a JOIN shedlock_next('{next a, next b}', request => 'next 1') b USING (name, state);
SELECT state, reason LIKE 'This request began the run with token % of lock "next b"; outcome: running.' AS says_so, name, next_at FROM shedlock_next('{next a}', request => 'next 1');
SELECT state, reason LIKE 'This request began the run with token % of lock "next b"; outcome: running.' AS says_so, next_at FROM shedlock_run_begin('next a', request => 'next 1');
SELECT token = (SELECT token FROM answers) AS the_same, state FROM shedlock_run_begin('next b', request => 'next 1');
SELECT pg_temp.end_run('next b', 'failed');
SELECT state, reason LIKE 'This request began the run with token % of lock "next b"; outcome: failed.' AS says_so FROM shedlock_next('{next a, next b}', wait => '1 min', request => 'next 1');
SELECT name FROM shedlock_next('{next a, next b}', request => 'next 2');
SELECT pg_temp.end_run('next a');

-- a rollback gives the run back
SELECT pg_temp.due_since('next a', 64);
BEGIN;
SELECT pg_temp.next('next a');
ROLLBACK;
BEGIN;
SAVEPOINT before;
SELECT pg_temp.next('next a');
ROLLBACK TO before;
SELECT pg_temp.next('next a');
COMMIT;
SELECT pg_temp.end_run('next a');

-- it waits for a tick, not longer than it was told to, and for no lock_timeout
SELECT shedlock_job('next soon', 'every 1 s');
SET lock_timeout = '1ms';
SELECT name, clock_timestamp() >= tick AS not_before_tick FROM shedlock_next('{next a, next soon}', wait => '10 s');
SELECT pg_temp.end_run('next soon');
DO $$
DECLARE
	before timestamptz := clock_timestamp();
BEGIN
	PERFORM FROM shedlock_next('{next a}', wait => '1.2 s') WHERE token IS NOT NULL;
	IF FOUND OR clock_timestamp() < before + interval '1.2 s' THEN
		RAISE 'it did not wait';
	END IF;
END
$$;
RESET lock_timeout;
SET statement_timeout = '100ms';
SELECT * FROM shedlock_next('{next a}', wait => '1 min');
RESET statement_timeout;

-- names that the role may not use
CREATE ROLE next_role;
GRANT USAGE ON SCHEMA public TO next_role;
ALTER ROLE next_role SET shedlock.role_prefix = on;
SET shedlock.role_prefix = on;
SET ROLE next_role;
SELECT * FROM shedlock_next('{next_role:a, next a}');
SELECT * FROM shedlock_next('{next_role:a}');
SELECT shedlock_job('next_role:a', 'every 1 day');
SELECT name FROM shedlock_next('{next_role:a}');
RESET ROLE;
RESET shedlock.role_prefix;
SELECT pg_temp.end_run('next_role:a'), shedlock_forget('next_role:a');
REVOKE USAGE ON SCHEMA public FROM next_role;
DROP ROLE next_role;

SELECT count(*) FROM shedlock_jobs j, shedlock_forget(j.name) WHERE j.name ~ '^next';
