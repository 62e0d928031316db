-- Tokens of a lock grow in the order of its acquisitions.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE TEMP TABLE tokens (n int GENERATED ALWAYS AS IDENTITY, how text, token bigint);
CREATE FUNCTION pg_temp.keep(how text, token bigint) RETURNS void
LANGUAGE sql AS $$ INSERT INTO tokens (how, token) VALUES ($1, $2) $$;

SELECT shedlock_token('token');
SELECT pg_temp.keep('first', shedlock_acquire_token('token'));
SELECT shedlock_release('token');
SELECT pg_temp.keep('released', shedlock_acquire_token('token', '10 ms'));
SELECT pg_sleep(0.05);
SELECT pg_temp.keep('expired', shedlock_acquire_token('token'));
SELECT shedlock_force_release('token') FROM (SELECT set_config('client_min_messages', 'warning', false)) q;
RESET client_min_messages;
BEGIN;
SELECT shedlock_acquire('token');
ROLLBACK;
SELECT pg_temp.keep('rolled back', shedlock_acquire_token('token'));
SELECT shedlock_release('token');
SELECT shedlock_acquire_session('token');
SELECT pg_temp.keep('session', shedlock_token('token'));
SELECT shedlock_release('token');
SELECT shedlock_purge('0') > 0 AS purged;
SELECT pg_temp.keep('purged', shedlock_acquire_token('token'));
SELECT shedlock_release('token');
CALL shedlock_run('token', 'SELECT pg_temp.keep(''run'', shedlock_token(''token''))');
SELECT pg_temp.keep('last', shedlock_acquire_token('token'));
SELECT n, how, token > lag(token) OVER (ORDER BY n) AS grows FROM tokens ORDER BY n;

-- A refused acquire has no token.
SELECT count(*), count(token) FROM tokens;
SELECT shedlock_acquire_token('token') IS NULL AS refused;
SELECT shedlock_token('token') = max(token) AS mine FROM tokens;

-- shedlock_token returns the token in the row, also before the acquire is committed.
BEGIN;
SELECT shedlock_acquire_token('token open') AS token \gset
SELECT shedlock_token('token open') = :token AS mine;
SAVEPOINT s;
SELECT shedlock_release('token open');
SELECT shedlock_token('token open');
ROLLBACK TO s;
SELECT shedlock_token('token open') = :token AS mine;
ROLLBACK;
SELECT shedlock_token('token open');

-- All locks of the database draw from one sequence.
SELECT count(DISTINCT shedlock_acquire_token('token ' || n)) FROM generate_series(1, 100) n;

-- shedlock_token returns only the token of a held lock of this session.
SELECT shedlock_acquire('token short', '10 ms');
SELECT pg_sleep(0.05);
SELECT shedlock_token('token short');
SELECT pg_advisory_unlock_all();
SELECT shedlock_token('token');
SELECT shedlock_acquire_session('token session');
SELECT shedlock_token('token session') > 0 AS mine;
\c -
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql
SELECT shedlock_token('token');
SELECT shedlock_token('token session');

-- shedlock_token and shedlock_cancel keep no lock on the table.
BEGIN;
SELECT shedlock_token('token'), shedlock_cancel('token');
SELECT mode FROM pg_locks WHERE relation = 'shedlock'::regclass AND pid = pg_backend_pid();
COMMIT;

-- With shedlock.require_token a role must give the token of a lease.
SELECT shedlock_acquire_token('token required') AS token \gset
SET shedlock.require_token = on;
SELECT pg_temp.error_of($$SELECT shedlock_release('token required')$$);
SELECT pg_temp.error_of($$SELECT shedlock_extend('token required')$$);
SELECT pg_temp.error_of($$SELECT shedlock_assert('token required')$$);
SELECT pg_temp.error_of($$SELECT shedlock_release('token never')$$);
SELECT shedlock_assert('token required', :token) = :token AS asserted;
SELECT shedlock_extend('token required', token => :token);
SELECT shedlock_release('token required', :token);
SELECT shedlock_acquire_session('token session', wait => '10 s');
SELECT shedlock_assert('token session') > 0 AS asserted;
SELECT shedlock_release('token session');
RESET shedlock.require_token;

-- Tokens grow even if the sequence was set back; if it is far back, the acquire fails.
SELECT shedlock_acquire_token('token back') AS token, shedlock_release('token back') \gset
SELECT setval('shedlock_token_seq', :token - 100) < :token AS back;
SELECT shedlock_acquire_token('token back') > :token AS grows, shedlock_release('token back');
SELECT setval('shedlock_token_seq', :token - 100) < :token AS back;
UPDATE shedlock SET locked_at = clock_timestamp() AT TIME ZONE 'UTC', locked_by = 'java',
	lock_until = clock_timestamp() AT TIME ZONE 'UTC' + '1 h' WHERE name = 'token back' RETURNING token > :token + 1 AS grows;
SELECT shedlock_force_release('token back') FROM (SELECT set_config('client_min_messages', 'warning', false)) q;
RESET client_min_messages;
SELECT setval('shedlock_token_seq', :token + 100000) AS token \gset
SELECT shedlock_acquire('token back'), shedlock_release('token back');
SELECT setval('shedlock_token_seq', :token - 100000) < :token AS far_back;
SELECT regexp_replace(pg_temp.error_of($$SELECT shedlock_acquire('token back')$$), '(gave|is) \d+', '\1 N', 'g') AS error_of;
SELECT state FROM shedlock_locks WHERE name = 'token back';
SELECT setval('shedlock_token_seq', max(token)) > :token AS forward FROM shedlock;
SELECT shedlock_acquire('token back');

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
