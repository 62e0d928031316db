-- shedlock_forget forgets a job that is no more.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
\set VERBOSITY terse
CREATE ROLE regress_shedlock_forget;

SELECT shedlock_forget('forget');
SELECT shedlock_job('forget', 'every 36500 days');
CALL shedlock_run('forget', 'SELECT 1');
SELECT name FROM shedlock_jobs;
SELECT shedlock_forget('forget');
SELECT shedlock_forget('forget');
SELECT name FROM shedlock_jobs;
-- Its counters are gone; the history, the lock, and the state of its ticks stay.
SELECT name FROM shedlock_stats WHERE name = 'forget';
SELECT outcome FROM shedlock_history WHERE name = 'forget';
SELECT count(*) FROM shedlock WHERE name = 'forget';
SELECT count(*) FROM _shedlock_tick WHERE name = 'forget';
-- Nobody declares it: a run of it has no tick.  Who declares it again makes the tick run no second time.
SELECT tick, shedlock_run_end('forget', token) FROM shedlock_run_begin('forget');
SELECT shedlock_job('forget', 'every 36500 days');
CALL shedlock_run('forget', 'SELECT 2');
SELECT count(tick), count(*) FROM shedlock_history WHERE name = 'forget';
-- shedlock_again of before does not count.
SELECT shedlock_again('forget'), shedlock_forget('forget'), shedlock_job('forget', 'every 36500 days');
CALL shedlock_run('forget', 'SELECT 2');
SELECT count(tick), count(*) FROM shedlock_history WHERE name = 'forget';
SELECT shedlock_again('forget');
CALL shedlock_run('forget', 'SELECT 2');
SELECT count(tick), count(*) FROM shedlock_history WHERE name = 'forget';

-- A rollback undoes it.
BEGIN;
SELECT shedlock_forget('forget');
ROLLBACK;
SELECT name FROM shedlock_jobs;

-- A run at work goes on to its end, which uses its tick up.
SELECT shedlock_job('forget run', 'every 36500 days', attempts => 3, backoff => '0');
SELECT token FROM shedlock_run_begin('forget run') \gset
SELECT shedlock_forget('forget run');
SELECT shedlock_run_end('forget run', :token, 'failed');
SELECT outcome, attempt, gave_up FROM shedlock_history WHERE name = 'forget run';
SELECT shedlock_job('forget run', 'every 36500 days', attempts => 3, backoff => '0');
CALL shedlock_run('forget run', 'SELECT 1');
-- ... also if the job is declared again meanwhile
SELECT shedlock_again('forget run');
SELECT token FROM shedlock_run_begin('forget run') \gset
SELECT shedlock_forget('forget run'), shedlock_job('forget run', 'every 36500 days', attempts => 9, backoff => '0');
SELECT shedlock_run_end('forget run', :token, 'failed');
CALL shedlock_run('forget run', 'SELECT 1');
SELECT attempt, outcome FROM shedlock_history WHERE name = 'forget run' ORDER BY token;
-- A tick of its former life does not give up when a later one is run.
SELECT shedlock_job('forget late', '@yearly', attempts => 3, backoff => '1 h');
UPDATE _shedlock_job SET since = since - interval '2 years' WHERE name = 'forget late';
CALL shedlock_run('forget late', 'SELECT 1 / 0');
UPDATE _shedlock_tick SET tick = tick - interval '1 year' WHERE name = 'forget late';
SELECT shedlock_forget('forget late'), shedlock_job('forget late', '@yearly', attempts => 3, backoff => '1 h');
UPDATE _shedlock_job SET since = since - interval '2 years' WHERE name = 'forget late';
CALL shedlock_run('forget late', 'SELECT 1');
SELECT runs_succeeded, gave_up FROM shedlock_stats WHERE name = 'forget late';
-- Nor when a later one is claimed.
SELECT shedlock_again('forget late');
CALL shedlock_run('forget late', 'SELECT 1 / 0');
UPDATE _shedlock_tick SET tick = tick - interval '1 year' WHERE name = 'forget late';
SELECT done, shedlock_forget(name) FROM _shedlock_tick WHERE name = 'forget late';
SELECT shedlock_once('forget late', shedlock_tick('@yearly'));
SELECT count(*) FROM shedlock_stats WHERE name = 'forget late';

-- What only claims made can be forgotten by the owner of the extension and by superusers, and then claimed again.
SELECT shedlock_once('forget claim', '2026-01-01');
SET ROLE regress_shedlock_forget;
SELECT pg_temp.error_of('SELECT shedlock_forget(''forget claim'')');
SELECT shedlock_forget('forget nothing');
SELECT shedlock_job('forget mine', '@daily'), shedlock_once('forget mine', '2026-01-01');
SELECT shedlock_forget('forget mine');
RESET ROLE;
SELECT shedlock_forget('forget claim');
SELECT shedlock_once('forget claim', '2026-01-01');
BEGIN;
SELECT shedlock_once('forget new', '2026-01-01');
SELECT shedlock_forget('forget new');
SELECT shedlock_once('forget new', '2026-01-01');
COMMIT;
SELECT shedlock_once('forget new', '2026-01-01');
-- What runs of a job left is not forgotten by a second call, whoever makes it.
SET ROLE regress_shedlock_forget;
SELECT shedlock_job('forget twice', 'every 36500 days');
CALL shedlock_run('forget twice', 'SELECT 1');
SELECT shedlock_forget('forget twice');
SELECT shedlock_forget('forget twice');
RESET ROLE;
SELECT shedlock_forget('forget twice');
SELECT shedlock_job('forget twice', 'every 36500 days');
CALL shedlock_run('forget twice', 'SELECT 1');
SELECT count(*) FROM shedlock_history WHERE name = 'forget twice';

SELECT pg_temp.error_of('SELECT shedlock_forget(NULL)');
SELECT pg_temp.error_of('SELECT shedlock_forget('''')');
SET default_transaction_read_only = on;
SELECT pg_temp.error_of('SELECT shedlock_forget(''forget'')');
RESET default_transaction_read_only;
SELECT * FROM pg_temp.my_locks();

DROP ROLE regress_shedlock_forget;
TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history, _shedlock_stats;
