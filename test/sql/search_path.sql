-- Names are resolved in the extension's own schema, whatever search_path says.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE SCHEMA search_path_trap;
CREATE TABLE search_path_trap.sprung (what text);
CREATE TABLE search_path_trap.shedlock (LIKE shedlock INCLUDING ALL);
CREATE TABLE search_path_trap._shedlock_tick (LIKE _shedlock_tick INCLUDING ALL);
CREATE TABLE search_path_trap._shedlock_history (LIKE _shedlock_history INCLUDING ALL);
CREATE SEQUENCE search_path_trap.shedlock_token_seq START 1000000;
CREATE FUNCTION search_path_trap.spring(what text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO search_path_trap.sprung VALUES (what);
	RETURN true;
END
$$;

-- Traps, found before pg_catalog, for what shedlock's functions and views are made of.
CREATE FUNCTION search_path_trap.clock_timestamp() RETURNS timestamptz
LANGUAGE sql AS $$ SELECT pg_catalog.now() FROM search_path_trap.spring('clock_timestamp') $$;
CREATE FUNCTION search_path_trap.pg_has_role(oid, text) RETURNS boolean
LANGUAGE sql AS $$ SELECT search_path_trap.spring('pg_has_role') $$;
CREATE FUNCTION search_path_trap.texteq(text, text) RETURNS boolean
LANGUAGE sql AS $$ SELECT search_path_trap.spring('texteq') $$;
CREATE FUNCTION search_path_trap.timestampeq(timestamp, timestamp) RETURNS boolean
LANGUAGE sql AS $$ SELECT search_path_trap.spring('timestampeq') $$;
CREATE FUNCTION search_path_trap.nextval(regclass) RETURNS bigint
LANGUAGE sql AS $$ SELECT 1::bigint FROM search_path_trap.spring('nextval') $$;
CREATE FUNCTION search_path_trap._shedlock_status() RETURNS boolean
LANGUAGE sql AS $$ SELECT search_path_trap.spring('_shedlock_status') $$;
CREATE OPERATOR search_path_trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = search_path_trap.texteq);
CREATE OPERATOR search_path_trap.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = search_path_trap.texteq);
CREATE OPERATOR search_path_trap.< (LEFTARG = timestamp, RIGHTARG = timestamp, FUNCTION = search_path_trap.timestampeq);
CREATE DOMAIN search_path_trap.text AS pg_catalog.text CHECK (search_path_trap.spring('text') IS NOT NULL);
CREATE DOMAIN search_path_trap.interval AS pg_catalog.interval CHECK (search_path_trap.spring('interval') IS NOT NULL);

SET search_path = search_path_trap, pg_catalog, public;
SELECT public.shedlock_acquire('path');
SELECT public.shedlock_acquire('path');
SELECT public.shedlock_extend('path', lock_at_most_for => '2 h');
SELECT public.shedlock_assert('path') > 0 AS asserted;
SELECT public.shedlock_token('path') OPERATOR(pg_catalog.<) 1000000 AS token;
SELECT name, state, kind FROM public.shedlock_locks WHERE name OPERATOR(pg_catalog.=) 'path';
SELECT public.shedlock_release('path');
SELECT public.shedlock_acquire_session('path', wait => '1 s');
SELECT public.shedlock_release('path');
SELECT public.shedlock_once('path', '2026-01-01'), public.shedlock_once_every('path', '1 day');
SELECT public.shedlock_job('path run', 'every 36500 days');
CALL public.shedlock_run('path run', 'SELECT 1');
SELECT name, outcome FROM public.shedlock_history WHERE name OPERATOR(pg_catalog.=) 'path run';
SELECT public.shedlock_pause('path paused');
SELECT public.shedlock_resume('path paused');
SELECT public.shedlock_force_release('path');
SELECT public.shedlock_cancel('path');
SELECT (public._shedlock_guarded_call('CALL shedlock_run(''n'', ''c'', ''1 h'')')).name;

SELECT * FROM search_path_trap.sprung;
SELECT pg_catalog.count(*) FROM search_path_trap.shedlock;
SELECT pg_catalog.count(*) FROM search_path_trap._shedlock_tick;
SELECT pg_catalog.count(*) FROM search_path_trap._shedlock_history;
SELECT is_called FROM search_path_trap.shedlock_token_seq;

-- The traps do work.
SELECT 'a'::pg_catalog.text = 'b'::pg_catalog.text AS sprung;

-- An empty search_path works, and so do temporary tables, which come first by default.
SET search_path = '';
SELECT public.shedlock_acquire('path empty');
SELECT name, state FROM public.shedlock_locks WHERE name = 'path empty';
SELECT public.shedlock_release('path empty');
RESET search_path;
CREATE TEMP TABLE shedlock (LIKE public.shedlock INCLUDING ALL);
CREATE TEMP TABLE _shedlock_history (LIKE public._shedlock_history INCLUDING ALL);
SELECT shedlock_acquire('path temp');
CALL shedlock_run('path temp run', 'SELECT 1');
SELECT count(*) FROM pg_temp.shedlock;
SELECT count(*) FROM pg_temp._shedlock_history;
SELECT name FROM public.shedlock WHERE name LIKE 'path temp%' ORDER BY name;
DROP TABLE pg_temp.shedlock, pg_temp._shedlock_history;

SET client_min_messages = warning;
DROP SCHEMA search_path_trap CASCADE;
RESET client_min_messages;
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
