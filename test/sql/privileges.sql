-- Every role can use locks; only administrators can change those of others, and no role
-- can write the tables.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE ROLE regress_shedlock_alice;
CREATE ROLE regress_shedlock_bob;
CREATE ROLE regress_shedlock_team;
CREATE TABLE privileges_token (token bigint);
GRANT SELECT, INSERT, DELETE ON privileges_token TO PUBLIC;

-- A plain role can acquire, extend, assert, release, claim, run, and declare and forget a job.
SET ROLE regress_shedlock_alice;
SELECT shedlock_acquire('privileges');
SELECT shedlock_extend('privileges'), shedlock_token('privileges') > 0 AS token;
SELECT shedlock_assert('privileges') > 0 AS asserted;
SELECT shedlock_release('privileges');
SELECT shedlock_acquire_session('privileges'), shedlock_release('privileges');
SELECT shedlock_once('privileges', '2026-01-01'), shedlock_once_every('privileges period', '36500 days');
CALL shedlock_run('privileges', 'SELECT current_user');
SELECT shedlock_job('privileges job', '@daily'), shedlock_forget('privileges job');
SELECT name, outcome, locked_role FROM shedlock_history WHERE name LIKE 'privileges%';
SELECT shedlock_acquire('privileges');
SELECT name, state, kind, locked_by ~ '#' AS locked_by FROM shedlock_locks WHERE name LIKE 'privileges%';

-- Every role sees which role acquired a lock; only those to which pg_stat_activity shows
-- the client's address see it here.
SELECT n, pg_temp.error_of(format('SELECT shedlock_acquire(''privileges by'', locked_by => %L)', E'a' || chr(n) || 'b'))
FROM unnest('{1,10,27,31,127,155}'::integer[]) n;
SELECT count(shedlock_acquire('privileges by ' || n, locked_by => by))
FROM unnest('{app@10.1.2.3,app@fe80::1%eth0,app@::1,a@b@10.1.2.3,app@[local],me@home,10.1.2.3,no @ 10.1}'::text[]) WITH ORDINALITY u(by, n);
SELECT regexp_replace(locked_by, '\d+$', 'token') AS locked_by, locked_role FROM shedlock_locks WHERE name LIKE 'privileges by %' ORDER BY name;
RESET ROLE;
SET ROLE regress_shedlock_bob;
SELECT regexp_replace(locked_by, '\d+$', 'token') AS locked_by, locked_role FROM shedlock_locks WHERE name LIKE 'privileges by %' ORDER BY name;

-- The reason of a lost lock names the holder only to roles that may know it.
SELECT pg_temp.error_of('SELECT shedlock_assert(''privileges by 1'', 1)');
RESET ROLE;
GRANT pg_read_all_stats TO regress_shedlock_bob;
SET ROLE regress_shedlock_bob;
SELECT pg_temp.error_of('SELECT shedlock_assert(''privileges by 1'', 1)');
RESET ROLE;
REVOKE pg_read_all_stats FROM regress_shedlock_bob;
SET ROLE regress_shedlock_alice;
SELECT count(shedlock_release(name)) FROM shedlock_locks WHERE name LIKE 'privileges by %';

-- A plain role cannot administer locks or write the tables.
SELECT pg_temp.error_of('SELECT shedlock_force_release(''privileges'')');
SELECT pg_temp.error_of('SELECT shedlock_cancel(''privileges'')');
SELECT pg_temp.error_of('SELECT shedlock_pause(''privileges'')');
SELECT pg_temp.error_of('SELECT shedlock_resume(''privileges'')');
SELECT pg_temp.error_of('SELECT shedlock_again(''privileges'')');
SELECT pg_temp.error_of('SELECT shedlock_skip(''privileges'')');
SELECT pg_temp.error_of('SELECT shedlock_purge(''1 day'')');
SELECT relation, command, pg_temp.error_of(format(command, relation))
FROM unnest('{shedlock,_shedlock_job,_shedlock_tick,_shedlock_history}'::text[]) relation,
	 unnest('{SELECT FROM %s,INSERT INTO %s DEFAULT VALUES,UPDATE %s SET name = name,DELETE FROM %s,TRUNCATE %s,LOCK %s}'::text[]) command;
SELECT pg_temp.error_of('SELECT nextval(''shedlock_token_seq'')');
SELECT pg_temp.error_of('SELECT setval(''shedlock_token_seq'', 1)');
SELECT pg_temp.error_of('DELETE FROM shedlock_history');
SET shedlock.log_locks = on;
SET shedlock.history_keep = 0;

-- A token is of no use to a role that is not a member of the role that acquired the lock.
DELETE FROM privileges_token;
SELECT shedlock_release('privileges');
INSERT INTO privileges_token SELECT shedlock_acquire_token('privileges');
RESET ROLE;
\c -
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
SET ROLE regress_shedlock_bob;
SELECT token FROM privileges_token \gset
SELECT pg_temp.error_of('SELECT shedlock_assert(''privileges'')');
SELECT pg_temp.error_of('SELECT shedlock_assert(''privileges'', ' || :token || ')');
SELECT pg_temp.error_of('SELECT shedlock_extend(''privileges'', token => ' || :token || ')');
SELECT pg_temp.error_of('SELECT shedlock_release(''privileges'', ' || :token || ')');
SELECT shedlock_acquire('privileges');

-- A member's privileges count, not whether it has set the role.
RESET ROLE;
GRANT regress_shedlock_alice TO regress_shedlock_team;
GRANT regress_shedlock_team TO regress_shedlock_bob;
SET ROLE regress_shedlock_bob;
SELECT shedlock_assert('privileges', :token) = :token AS asserted;
SELECT shedlock_extend('privileges', token => :token);
SELECT shedlock_release('privileges', :token);
RESET ROLE;
REVOKE regress_shedlock_team FROM regress_shedlock_bob;

-- In a SECURITY DEFINER function the role of the function's owner counts.
CREATE FUNCTION privileges_acquire(name text) RETURNS bigint
LANGUAGE sql SECURITY DEFINER AS $$ SELECT shedlock_acquire_token(name) $$;
ALTER FUNCTION privileges_acquire(text) OWNER TO regress_shedlock_alice;
SET ROLE regress_shedlock_bob;
SELECT privileges_acquire('privileges') AS token \gset
RESET ROLE;
SELECT locked_role::regrole FROM shedlock WHERE name = 'privileges';
SET ROLE regress_shedlock_bob;
SELECT pg_temp.error_of('SELECT shedlock_release(''privileges'', ' || :token || ')');

-- Without the token the session is the owner as long as its role has those privileges,
-- because one session of a pool can serve several roles.
SELECT function, pg_temp.error_of('SELECT ' || function || '(''privileges'')')
FROM unnest('{shedlock_release,shedlock_extend,shedlock_assert}'::text[]) function;
SELECT shedlock_token('privileges'), shedlock_acquire('privileges');
RESET ROLE;
SELECT shedlock_token('privileges') = :token AS token;
SET ROLE regress_shedlock_alice;
SELECT shedlock_token('privileges') = :token AS token, shedlock_extend('privileges');
SELECT shedlock_assert('privileges') = :token AS token;
SELECT shedlock_release('privileges'), shedlock_acquire_session('privileges');
SET ROLE regress_shedlock_bob;
SELECT function, pg_temp.error_of('SELECT ' || function || '(''privileges'')')
FROM unnest('{shedlock_release,shedlock_extend,shedlock_assert}'::text[]) function;
SELECT shedlock_token('privileges');
RESET ROLE;
GRANT regress_shedlock_alice TO regress_shedlock_bob;
SET ROLE regress_shedlock_bob;
SELECT shedlock_token('privileges') > :token AS token, shedlock_release('privileges');
RESET ROLE;
REVOKE regress_shedlock_alice FROM regress_shedlock_bob;

-- Only members of a run's role and of pg_read_all_stats see the run in the history.
SET ROLE regress_shedlock_bob;
CALL shedlock_run('privileges bob', 'SELECT 1');
SELECT name, locked_role FROM shedlock_history WHERE name LIKE 'privileges%';
SET ROLE regress_shedlock_alice;
SELECT name, locked_role FROM shedlock_history WHERE name LIKE 'privileges%';
RESET ROLE;
GRANT pg_read_all_stats TO regress_shedlock_alice;
SET ROLE regress_shedlock_alice;
SELECT name, locked_role FROM shedlock_history WHERE name LIKE 'privileges%' ORDER BY token;
RESET ROLE;
REVOKE pg_read_all_stats FROM regress_shedlock_alice;

-- Other functions and messages show a run's outcome to the same roles only.
SET timezone = 'UTC';
SET ROLE regress_shedlock_bob;
SELECT shedlock_job('privileges bob', 'every 36500 days');
CALL shedlock_run('privileges bob', 'SELECT 1');
RESET ROLE;
UPDATE _shedlock_tick SET claimed_at = '2026-01-02 03:04:05', claimed_by = 'bob' WHERE name = 'privileges bob';
SELECT max(token) AS token FROM shedlock_history WHERE name = 'privileges bob' \gset
SELECT _shedlock_run_outcome(:token, 'privileges bob', 'running'), _shedlock_run_outcome(:token + 1, 'privileges bob', 'running');
SET ROLE regress_shedlock_bob;
SELECT _shedlock_run_outcome(:token, 'privileges bob', 'running'), _shedlock_run_outcome(:token + 1, 'privileges bob', 'running');
SET client_min_messages = debug1;
CALL shedlock_run('privileges bob', 'SELECT 1');
SET ROLE regress_shedlock_alice;
SELECT _shedlock_run_outcome(:token, 'privileges bob', 'running'), _shedlock_run_outcome(:token + 1, 'privileges bob', 'running');
CALL shedlock_run('privileges bob', 'SELECT 1');
RESET ROLE;
RESET client_min_messages;
RESET timezone;

-- An administrator needs only EXECUTE.
GRANT EXECUTE ON FUNCTION shedlock_force_release(text), shedlock_pause(text, timestamptz, text),
	shedlock_resume(text), shedlock_again(text), shedlock_skip(text, text), shedlock_purge(interval, boolean), shedlock_cancel(text) TO regress_shedlock_bob;
SELECT shedlock_acquire('privileges');
UPDATE shedlock SET locked_by = 'somebody' WHERE name = 'privileges';
SET ROLE regress_shedlock_bob;
SELECT shedlock_pause('privileges', reason => 'not tonight');
SELECT shedlock_force_release('privileges');
SELECT name, state, paused_by, pause_reason FROM shedlock_locks WHERE name = 'privileges';
SELECT shedlock_resume('privileges');
SELECT shedlock_cancel('privileges');
SELECT shedlock_again('privileges');
SELECT shedlock_job('privileges job', '@daily'), shedlock_skip('privileges job') > now() AS skipped, shedlock_again('privileges job');
SELECT shedlock_purge('0') > 0 AS purged;
RESET ROLE;

-- A lock whose role was dropped can still be released, by a superuser with the token.
SET ROLE regress_shedlock_alice;
SELECT shedlock_acquire_token('privileges orphan') AS token \gset
RESET ROLE;
REVOKE EXECUTE ON FUNCTION shedlock_force_release(text), shedlock_pause(text, timestamptz, text),
	shedlock_resume(text), shedlock_again(text), shedlock_skip(text, text), shedlock_purge(interval, boolean), shedlock_cancel(text) FROM regress_shedlock_bob;
DROP FUNCTION privileges_acquire(text);
DROP TABLE privileges_token;
DROP ROLE regress_shedlock_alice, regress_shedlock_team;
SET ROLE regress_shedlock_bob;
SELECT pg_temp.error_of('SELECT shedlock_release(''privileges orphan'', ' || :token || ')');
SELECT name, state FROM shedlock_locks WHERE name LIKE 'privileges%';
RESET ROLE;
SELECT shedlock_release('privileges orphan', :token);
DROP ROLE regress_shedlock_bob;

TRUNCATE shedlock, _shedlock_job, _shedlock_tick, _shedlock_history;
