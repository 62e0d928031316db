-- A call that begins no run says in which state the job is, and when to come back.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
CREATE FUNCTION pg_temp.lock_until(lock_name text) RETURNS timestamptz LANGUAGE sql AS $$
	SELECT lock_until AT TIME ZONE 'UTC' FROM shedlock WHERE name = lock_name
$$;
-- The answer to a call, and its next_at: as what it is, if it is known
CREATE FUNCTION pg_temp.ask(name text, known timestamptz DEFAULT NULL, OUT state text, OUT next_at text) LANGUAGE plpgsql AS $$
DECLARE
	before timestamptz := clock_timestamp();
	answer record;
BEGIN
	answer := shedlock_run_begin(name);
	state := answer.state;
	next_at := CASE WHEN answer.state = 'begun' AND answer.next_at = pg_temp.lock_until(name) THEN 'at its end'
		WHEN answer.next_at = known THEN 'as known'
		WHEN answer.next_at BETWEEN before + interval '1 min' AND clock_timestamp() + interval '1 min' THEN 'in a minute'
		WHEN answer.next_at BETWEEN before + interval '1 s' AND clock_timestamp() + interval '1 s' THEN 'in a second'
		ELSE answer.next_at::text END;
	IF answer.token IS NOT NULL <> (answer.state = 'begun') OR answer.reason IS NULL <> (answer.state = 'begun') OR
	   answer.tick IS NOT NULL <> (answer.attempt IS NOT NULL) OR answer.tick IS NOT NULL AND answer.token IS NULL OR answer.next_at <= before THEN
		RAISE 'strange answer: %', answer;
	END IF;
END
$$;
CREATE FUNCTION pg_temp.pass(job text, years integer) RETURNS void LANGUAGE sql AS $$
	UPDATE _shedlock_tick SET tick = tick - years * interval '1 year', claimed_at = claimed_at - years * interval '1 year' WHERE name = job;
	UPDATE _shedlock_job SET since = since - years * interval '1 year' WHERE name = job
$$;
CREATE FUNCTION pg_temp.end_run(job text, outcome text DEFAULT 'succeeded') RETURNS boolean LANGUAGE sql AS $$
	SELECT shedlock_run_end(job, token, outcome) FROM shedlock WHERE name = job
$$;

-- begun; held, by a run whose end may come sooner than that of its lease
SELECT * FROM pg_temp.ask('state');
SELECT * FROM pg_temp.ask('state');
SELECT shedlock_extend('state', token, '20 s') FROM shedlock WHERE name = 'state';
SELECT * FROM pg_temp.ask('state', pg_temp.lock_until('state'));
SELECT pg_temp.end_run('state');
SELECT * FROM pg_temp.ask('state');
SELECT pg_temp.end_run('state');
CREATE TABLE begin_states (state text, next_at text);
CALL shedlock_run('state', 'INSERT INTO begin_states SELECT * FROM pg_temp.ask(''state'')');
CALL shedlock_run('state', $$
	INSERT INTO begin_states SELECT state, CASE WHEN next_at BETWEEN pg_temp.lock_until('state') - interval '10 s' AND pg_temp.lock_until('state') THEN 'by its end' END
	FROM shedlock_run_begin('state')$$, '20 s');
SELECT * FROM begin_states;
DROP TABLE begin_states;

-- held, by a lock: to the end of its lease, a Java client's as well, or of its time; kept
SELECT shedlock_acquire('state lease', '5 min'), shedlock_acquire_session('state session'), shedlock_acquire_session('state limit', '5 min'),
	   shedlock_acquire('state kept', '5 min', '1 min'), shedlock_release('state kept');
INSERT INTO shedlock (name, lock_until, locked_at, locked_by) SELECT 'state java', now + interval '5 min', now, 'java' FROM timezone('UTC', clock_timestamp()) now;
SELECT name, ask.* FROM shedlock, pg_temp.ask(name, pg_temp.lock_until(name)) WHERE name ~ 'state (lease|session|kept|java)' ORDER BY name;
SELECT state, next_at BETWEEN pg_temp.lock_until('state limit') - interval '10 s' AND pg_temp.lock_until('state limit') AS by_its_end
FROM shedlock_run_begin('state limit');

-- paused: to the end of the pause, or for ever
SELECT shedlock_pause('state lease', '2100-01-01'), shedlock_pause('state free', '2100-01-01'), shedlock_pause('state for ever');
SELECT * FROM pg_temp.ask('state lease', '2100-01-01');
SELECT * FROM pg_temp.ask('state free', '2100-01-01');
SELECT * FROM pg_temp.ask('state for ever');

-- claimed, by an open transaction: the lock, the tick, and the request
SELECT shedlock_job('state claimed', 'every 36500 days');
BEGIN;
SELECT state FROM shedlock_run_begin('state open', request => 'r1');
PREPARE TRANSACTION 'regress_shedlock_states';
SELECT * FROM pg_temp.ask('state open');
SELECT state, reason FROM shedlock_run_begin('state open', request => 'r1');
ROLLBACK PREPARED 'regress_shedlock_states';
BEGIN;
SELECT shedlock_once('state claimed', '1960-01-01');
PREPARE TRANSACTION 'regress_shedlock_states';
SELECT * FROM pg_temp.ask('state claimed');
SELECT reason FROM shedlock_run_begin('state claimed');
ROLLBACK PREPARED 'regress_shedlock_states';
SELECT * FROM pg_temp.ask('state claimed');

-- repeated: the request has begun a run before; while that is at work, it is the answer
SELECT shedlock_run_begin('state repeated', request => 'r1') IS NOT NULL AS begun;
SELECT state, next_at = pg_temp.lock_until('state repeated') AS at_its_end FROM shedlock_run_begin('state repeated', request => 'r1');
SELECT pg_temp.end_run('state repeated');
SELECT state, next_at FROM shedlock_run_begin('state repeated', request => 'r1');

-- not due: to the coming tick, which a skip moves; a lock in the way and a pause count
SELECT shedlock_job('due', '@yearly');
SELECT * FROM pg_temp.ask('due', shedlock_next_tick('@yearly'));
SELECT shedlock_skip('due') = shedlock_next_tick('@yearly') AS skipped;
SELECT * FROM pg_temp.ask('due', shedlock_next_tick('@yearly', after => shedlock_next_tick('@yearly')));
SELECT shedlock_again('due');
SELECT * FROM pg_temp.ask('due', shedlock_next_tick('@yearly'));
SELECT shedlock_acquire('due', '5 min');
SELECT * FROM pg_temp.ask('due', shedlock_next_tick('@yearly'));
SELECT pg_temp.pass('due', 1);
SELECT * FROM pg_temp.ask('due', pg_temp.lock_until('due'));
SELECT shedlock_pause('due', '2100-01-01 01:00+00');
SELECT * FROM pg_temp.ask('due', '2100-01-01 01:00+00');
SELECT shedlock_release('due');
SELECT * FROM pg_temp.ask('due', '2100-01-01 01:00+00');
SELECT shedlock_resume('due');
SELECT * FROM pg_temp.ask('due');
SELECT * FROM pg_temp.ask('due');
SELECT pg_temp.end_run('due');
SELECT * FROM pg_temp.ask('due', shedlock_next_tick('@yearly'));
SELECT shedlock_pause('due', '2100-01-01 01:00+00');
SELECT * FROM pg_temp.ask('due', '2100-01-01 01:00+00');
SELECT shedlock_pause('due');
SELECT * FROM pg_temp.ask('due');
SELECT shedlock_resume('due');

-- not due: to the next attempt, or to a tick that comes before it
SELECT shedlock_job('due again', '@yearly', attempts => 3, backoff => '30 min'), pg_temp.pass('due again', 1);
SELECT * FROM pg_temp.ask('due again');
SELECT pg_temp.end_run('due again', 'failed');
SELECT * FROM pg_temp.ask('due again', (SELECT retry_at FROM _shedlock_tick WHERE name = 'due again'));
UPDATE _shedlock_tick SET retry_at = clock_timestamp() WHERE name = 'due again';
SELECT * FROM pg_temp.ask('due again');
SELECT * FROM pg_temp.ask('due again');
UPDATE shedlock SET lock_until = locked_at WHERE name = 'due again';
SELECT * FROM pg_temp.ask('due again', (SELECT retry_at FROM _shedlock_tick WHERE name = 'due again'));
SELECT shedlock_job('due again', '@yearly', attempts => 2, backoff => '30 min');
SELECT * FROM pg_temp.ask('due again', shedlock_next_tick('@yearly'));
SELECT date_trunc('second', clock_timestamp()) - interval '50 min' AS from \gset
SELECT shedlock_job('due sooner', 'every 1 h from ' || to_char(:'from'::timestamptz, 'YYYY-MM-DD HH24:MI:SS'), attempts => 2, backoff => '1 h');
UPDATE _shedlock_job SET since = since - interval '1 h' WHERE name = 'due sooner';
SELECT * FROM pg_temp.ask('due sooner');
SELECT pg_temp.end_run('due sooner', 'failed');
SELECT * FROM pg_temp.ask('due sooner', :'from'::timestamptz + interval '1 h');

-- all: to the time at which the open tick is too late, and the one after it is made up
SELECT shedlock_job('due all', '@yearly', attempts => 3, backoff => '1 h', catch_up => 'all'), pg_temp.pass('due all', 2);
SELECT * FROM pg_temp.ask('due all');
SELECT pg_temp.end_run('due all', 'failed');
SELECT clock_timestamp() - tick + interval '10 min' AS late FROM _shedlock_tick WHERE name = 'due all' \gset
SELECT shedlock_job('due all', '@yearly', attempts => 3, backoff => '1 h', catch_up => 'all', max_late => :'late');
SELECT * FROM pg_temp.ask('due all', (SELECT tick + :'late' + interval '1 us' FROM _shedlock_tick WHERE name = 'due all'));

-- The clock was set back: the last tick is ahead.
SELECT shedlock_job('due ahead', '@yearly'), pg_temp.pass('due ahead', 1);
SELECT * FROM pg_temp.ask('due ahead');
SELECT pg_temp.end_run('due ahead');
UPDATE _shedlock_tick SET tick = '2100-01-01' WHERE name = 'due ahead';
SELECT * FROM pg_temp.ask('due ahead', '2101-01-01');
UPDATE _shedlock_tick SET done = false, attempt = 0 WHERE name = 'due ahead';
SELECT * FROM pg_temp.ask('due ahead', '2100-01-01');

-- A call that comes up to two seconds early waits for its tick; an earlier one is answered
-- at once.
SELECT date_trunc('second', clock_timestamp()) - interval '15 s' AS from \gset
SELECT shedlock_job('early', 'every 20 s from ' || to_char(:'from'::timestamptz, 'YYYY-MM-DD HH24:MI:SS'));
SELECT token, tick = :'from' AS tick FROM shedlock_run_begin('early') \gset
SELECT :'tick' AS tick, shedlock_run_end('early', :token);
SELECT state, next_at - :'from' AS comes_back FROM shedlock_run_begin('early');
SELECT pg_sleep(greatest(0, extract(epoch FROM :'from'::timestamptz + interval '18.4 s' - clock_timestamp())));
SELECT state, tick - :'from' AS tick FROM shedlock_run_begin('early');
SELECT started_at >= tick AS in_time, started_at < tick + interval '1 s' AS at_once FROM shedlock_history WHERE name = 'early' ORDER BY token DESC LIMIT 1;

-- With wait it waits for a tick that comes until then, and for no other one.
SELECT shedlock_job('waiting', 'every 5 s');
SELECT token, tick FROM shedlock_run_begin('waiting') \gset
SELECT shedlock_run_end('waiting', :token);
SELECT state, tick - :'tick' AS tick FROM shedlock_run_begin('waiting', wait => '1 min');
SELECT started_at >= tick AS in_time, started_at < tick + interval '2 s' AS at_once FROM shedlock_history WHERE name = 'waiting' ORDER BY token DESC LIMIT 1;
SELECT clock_timestamp() AS before \gset
SELECT state, next_at = shedlock_next_tick('@yearly') AS next_at FROM shedlock_run_begin('due', wait => '20 s');
SELECT clock_timestamp() - :'before' < interval '15 s' AS at_once;

SELECT shedlock_release('state session'), shedlock_release('state limit');
SELECT * FROM pg_temp.my_locks();
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history;
