-- An existing relation with a name of the extension's raises an error whose hint names
-- the remedy: a schema for the extension, which may need quotes.
DROP EXTENSION shedlock;
CREATE TABLE shedlock (
	name varchar(64) NOT NULL PRIMARY KEY,
	lock_until timestamp NOT NULL,
	locked_at timestamp NOT NULL,
	locked_by varchar(255) NOT NULL);
\set SHOW_CONTEXT never
CREATE EXTENSION shedlock;
\echo :LAST_ERROR_SQLSTATE
DROP TABLE shedlock;
CREATE VIEW shedlock AS SELECT 1;
\set VERBOSITY sqlstate
CREATE EXTENSION shedlock;
\set VERBOSITY default
SELECT count(*) FROM pg_extension WHERE extname = 'shedlock';

CREATE SCHEMA "My Locks";
CREATE EXTENSION shedlock SCHEMA "My Locks";
SELECT "My Locks".shedlock_acquire('existing');
SELECT "My Locks".shedlock_acquire('existing');
SELECT "My Locks".shedlock_extend('existing', lock_at_most_for => '2 h');
SELECT name, state FROM "My Locks".shedlock_locks;
SELECT "My Locks".shedlock_release('existing');
SELECT "My Locks".shedlock_acquire_session('existing session');
SELECT "My Locks".shedlock_release('existing session');
SELECT "My Locks".shedlock_once('existing', '2026-01-01');
SELECT "My Locks".shedlock_job('existing run', 'every 36500 days');
CALL "My Locks".shedlock_run('existing run', 'SELECT 1');
SELECT name, outcome FROM "My Locks".shedlock_history;
SELECT "My Locks".shedlock_pause('existing');
SELECT "My Locks".shedlock_resume('existing');
SELECT "My Locks".shedlock_purge('0') > 0 AS purged;
SELECT name FROM "My Locks".shedlock ORDER BY name;
SELECT "My Locks"._shedlock_cron_timezone() IS NOT NULL AS cron;
\set VERBOSITY sqlstate
SELECT "My Locks".shedlock_cron_guard('existing');
\set VERBOSITY default
SELECT * FROM shedlock;
ALTER EXTENSION shedlock SET SCHEMA public;

-- A session with locks still works after the extension was dropped and created again.
SELECT "My Locks".shedlock_acquire('existing'), "My Locks".shedlock_acquire_session('existing session');
DROP EXTENSION shedlock;
DROP SCHEMA "My Locks";
DROP VIEW shedlock;
CREATE EXTENSION shedlock;
SELECT shedlock_release('existing');
SELECT shedlock_release('existing session');
SELECT shedlock_acquire_session('existing session');
SELECT shedlock_acquire('existing');
SELECT shedlock_release('existing'), shedlock_release('existing session');
TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
