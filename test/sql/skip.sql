-- shedlock_skip uses up the coming tick of a job: "not tonight".
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

SET timezone = 'UTC';
SET datestyle = 'ISO';
SET client_min_messages = warning;
CREATE ROLE regress_shedlock_skip;
CREATE FUNCTION pg_temp.years(tick timestamptz) RETURNS numeric
LANGUAGE sql AS $$ SELECT extract(year FROM tick) - extract(year FROM shedlock_tick('@yearly')) $$;
CREATE FUNCTION pg_temp.show(job text) RETURNS TABLE (state text, last_tick numeric, attempt int, next_due numeric)
LANGUAGE sql AS $$ SELECT state, pg_temp.years(last_tick), attempt, pg_temp.years(next_due) FROM shedlock_jobs WHERE name = job $$;
-- why, with the year of each tick counted from this one
CREATE FUNCTION pg_temp.why(job text) RETURNS text
LANGUAGE sql AS $$
	SELECT pg_temp.mask(regexp_replace(replace(replace(w, extract(year FROM now())::text, 'THIS_YEAR'), (extract(year FROM now()) + 1)::text, 'NEXT_YEAR'), '(YEAR-01-01) [0-9:+]* UTC', '\1', 'g'))
	FROM shedlock_why(job) w
$$;

-- The coming tick: the view and shedlock_why show the one after it; said twice it is the same.
SELECT shedlock_job('skip', '@yearly');
SELECT pg_temp.years(shedlock_skip('skip', 'no stocktaking'));
SELECT * FROM pg_temp.show('skip');
SELECT pg_temp.why('skip');
SELECT pg_temp.years(shedlock_skip('skip'));
SELECT name, outcome, pg_temp.years(tick) AS tick, attempt, gave_up, duration, command, message, locked_role = current_role AS locked_role FROM shedlock_history WHERE name = 'skip' ORDER BY started_at;
SELECT * FROM shedlock_stats WHERE name = 'skip';
SELECT state FROM shedlock_run_begin('skip');
SELECT pg_temp.years(next_at) AS next_at FROM shedlock_run_begin('skip');
-- shedlock_again takes it back.
SELECT shedlock_again('skip');
SELECT * FROM pg_temp.show('skip');
SELECT pg_temp.why('skip');

-- The tick that is due and has no run yet; the coming one of a job that has attempts left.
UPDATE _shedlock_job SET since = since - interval '3 years' WHERE name = 'skip';
SELECT pg_temp.years(shedlock_skip('skip'));
SELECT * FROM pg_temp.show('skip');
SELECT pg_temp.why('skip');
CALL shedlock_run('skip', 'SELECT 1');
SELECT count(*) FROM shedlock_history WHERE name = 'skip' AND outcome <> 'skipped';
SELECT shedlock_again('skip');
SELECT * FROM pg_temp.show('skip');
CALL shedlock_run('skip', 'SELECT 1');
SELECT * FROM pg_temp.show('skip');
SELECT shedlock_job('skip retry', 'every 36500 days', attempts => 2, backoff => '0');
SELECT token FROM shedlock_run_begin('skip retry') \gset
SELECT shedlock_run_end('skip retry', :token, 'failed');
SELECT shedlock_skip('skip retry') > now() AS coming;
CALL shedlock_run('skip retry', 'SELECT 1');
SELECT attempt, outcome FROM shedlock_history WHERE name = 'skip retry' ORDER BY token;

-- One of another schedule that is a tick of this one, too, and still to come: only one is remembered.
SELECT shedlock_job('skip far', 'every 36500 days');
CALL shedlock_run('skip far', 'SELECT 1');
SELECT shedlock_skip('skip far') > now() AS coming, shedlock_job('skip far', 'every 36500 h');
SELECT split_part(pg_temp.error_of('SELECT shedlock_skip(''skip far'')'), E'\n', 2);
SELECT shedlock_again('skip far'), shedlock_skip('skip far') > now() AS coming;
-- One of another schedule that is no tick of this one: nobody is told of it any more.
SELECT shedlock_job('skip moved', '@yearly'), shedlock_skip('skip moved') > now() AS coming;
SELECT shedlock_job('skip moved', '@yearly', 'Asia/Tokyo');
SELECT shedlock_why('skip moved') LIKE '%skipped%' AS told;
-- It does not make a run of another tick of one that is repeated.
SELECT shedlock_job('skip repeated', 'every 36500 days');
SELECT shedlock_run_end('skip repeated', token, 'failed') FROM shedlock_run_begin('skip repeated');
SELECT shedlock_again('skip repeated'), shedlock_skip('skip repeated') > now() AS coming;
SELECT shedlock_run_end('skip repeated', token) FROM shedlock_run_begin('skip repeated');
SELECT outcome, gave_up FROM shedlock_history WHERE name = 'skip repeated' AND outcome <> 'skipped' ORDER BY token;

-- Of each missed tick the oldest one; during a run the next one.
SELECT shedlock_job('skip all', '@yearly', catch_up => 'all');
UPDATE _shedlock_job SET since = since - interval '3 years' WHERE name = 'skip all';
SELECT pg_temp.years(shedlock_skip('skip all'));
CALL shedlock_run('skip all', 'SELECT 1');
SELECT pg_temp.years(tick) AS tick, outcome FROM shedlock_history WHERE name = 'skip all' ORDER BY tick;
SELECT shedlock_again('skip all'), token FROM shedlock_run_begin('skip all');
SELECT token FROM shedlock_run_begin('skip all') \gset
SELECT pg_temp.years(shedlock_skip('skip all'));
SELECT state FROM pg_temp.show('skip all');
SELECT shedlock_run_end('skip all', :token);
SELECT * FROM pg_temp.show('skip all');
-- A second one does not pass over a retry that is to come, and what that keeps waiting.
SELECT shedlock_job('skip late', '@yearly', catch_up => 'all', attempts => 2, backoff => '1 hour');
UPDATE _shedlock_job SET since = since - interval '3 years' WHERE name = 'skip late';
SELECT token FROM shedlock_run_begin('skip late') \gset
SELECT shedlock_run_end('skip late', :token, 'failed');
UPDATE _shedlock_tick SET skipped = shedlock_tick('@yearly') WHERE name = 'skip late';
SELECT split_part(pg_temp.error_of('SELECT shedlock_skip(''skip late'')'), E'\n', 2);
SELECT * FROM pg_temp.show('skip late');
-- Nor a run that is at work; what has failed, and waits for a retry, gives up.
SELECT shedlock_job('skip at work', '@yearly', attempts => 2, backoff => '1 hour');
UPDATE _shedlock_job SET since = since - interval '2 years' WHERE name = 'skip at work';
SELECT token FROM shedlock_run_begin('skip at work') \gset
UPDATE _shedlock_tick SET tick = tick - interval '1 year', skipped = tick WHERE name = 'skip at work';
SELECT split_part(pg_temp.error_of('SELECT shedlock_skip(''skip at work'')'), E'\n', 2);
SELECT shedlock_run_end('skip at work', :token, 'failed');
SELECT gave_up FROM shedlock_history WHERE name = 'skip at work';
SELECT pg_temp.years(shedlock_skip('skip at work'));
SELECT outcome, gave_up FROM shedlock_history WHERE name = 'skip at work' AND outcome <> 'skipped';
SELECT gave_up FROM shedlock_stats WHERE name = 'skip at work';
-- What shedlock_again has allowed is skipped like any other one.
SELECT shedlock_job('skip allowed', '@yearly'), shedlock_again('skip allowed');
SELECT pg_temp.years(shedlock_skip('skip allowed'));
SELECT state FROM shedlock_run_begin('skip allowed');
-- It ends that a job gave up.
SELECT shedlock_job('skip gave up', '@yearly');
UPDATE _shedlock_job SET since = since - interval '2 years' WHERE name = 'skip gave up';
CALL shedlock_run('skip gave up', 'SELECT 1 / 0');
UPDATE _shedlock_tick SET tick = tick - interval '1 year' WHERE name = 'skip gave up';
UPDATE _shedlock_history SET tick = tick - interval '1 year' WHERE name = 'skip gave up';
UPDATE _shedlock_job SET max_late = '1 s' WHERE name = 'skip gave up';
SELECT state FROM pg_temp.show('skip gave up');
UPDATE _shedlock_job SET max_late = NULL WHERE name = 'skip gave up';
SELECT pg_temp.years(shedlock_skip('skip gave up'));
SELECT state FROM pg_temp.show('skip gave up');

-- What is skipped is not claimed; what comes before it is.
SELECT shedlock_job('skip claim', '@yearly');
SELECT shedlock_skip('skip claim') \gset
SELECT pg_temp.error_of(format('SELECT shedlock_once(''skip claim'', %L)', :'shedlock_skip'));
SELECT shedlock_again('skip claim');
UPDATE _shedlock_job SET since = since - interval '1 year' WHERE name = 'skip claim';
SELECT shedlock_skip('skip claim') \gset
SELECT shedlock_once('skip claim', :'shedlock_skip'), shedlock_once('skip claim', :'shedlock_skip'::timestamptz - interval '1 day');
-- Another schedule has other ticks.
SELECT shedlock_skip('skip claim') = shedlock_next_tick('@yearly') AS coming;
SELECT shedlock_job('skip claim', '@yearly', 'Asia/Tokyo');
SELECT next_due = shedlock_next_tick('@yearly', 'Asia/Tokyo') AS next_due FROM shedlock_jobs WHERE name = 'skip claim';
SELECT shedlock_skip('skip claim') = shedlock_next_tick('@yearly', 'Asia/Tokyo') AS coming;

-- A rollback undoes it.
BEGIN;
SELECT pg_temp.years(shedlock_skip('skip'));
ROLLBACK;
SELECT * FROM pg_temp.show('skip');
SELECT count(*) FROM shedlock_history WHERE name = 'skip' AND outcome = 'skipped';

-- It is a line of the server's log; said again it is none.
SELECT shedlock_job('skip told', 'every 36500 days');
GRANT EXECUTE ON FUNCTION shedlock_skip(text, text), shedlock_again(text) TO regress_shedlock_skip;
SET SESSION AUTHORIZATION regress_shedlock_skip;
SET client_min_messages = log;
SELECT shedlock_skip('skip told', 'night of the fair');
SELECT shedlock_skip('skip told', 'night of the fair') > now() AS coming;
SELECT shedlock_skip('skip told') > now() AS coming;
SELECT shedlock_again('skip told');
RESET client_min_messages;
RESET SESSION AUTHORIZATION;
REVOKE EXECUTE ON FUNCTION shedlock_skip(text, text), shedlock_again(text) FROM regress_shedlock_skip;
SET client_min_messages = warning;

SELECT pg_temp.error_of('SELECT shedlock_skip(NULL)');
SELECT pg_temp.error_of('SELECT shedlock_skip('''')');
SELECT pg_temp.error_of('SELECT shedlock_skip(''skip nobody'')');
SELECT shedlock_once('skip nobody', '2026-01-01');
SELECT pg_temp.error_of('SELECT shedlock_skip(''skip nobody'')');
SELECT pg_temp.error_of('SELECT shedlock_skip(''skip'', E''a\nb'')');
SELECT pg_temp.error_of('SELECT shedlock_skip(''skip'', repeat(''x'', 1025))');
SELECT shedlock_job('skip never', 'every 1 day from 9999-12-31');
SELECT shedlock_again('skip never');
SELECT shedlock_job('skip gone', '@yearly'), shedlock_again('skip gone'), shedlock_forget('skip gone');
SELECT shedlock_again('skip gone');
SELECT shedlock_skip('skip never');
UPDATE _shedlock_job SET schedule = 'nonsense' WHERE name = 'skip never';
SELECT pg_temp.error_of('SELECT shedlock_skip(''skip never'')');
SELECT shedlock_again('skip never');
SET ROLE regress_shedlock_skip;
SELECT pg_temp.error_of('SELECT shedlock_skip(''skip'')');
RESET ROLE;
BEGIN READ ONLY;
SELECT shedlock_skip('skip');
ROLLBACK;
SELECT * FROM pg_temp.my_locks();

DROP ROLE regress_shedlock_skip;
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history, _shedlock_stats;
