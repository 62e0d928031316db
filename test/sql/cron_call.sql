-- The CALL of a guarded job is read back as the server would run it, and a command that
-- cannot be guarded is refused before a job is changed.
SET IntervalStyle = postgres;

CREATE FUNCTION read_back(command text) RETURNS text
LANGUAGE sql AS $$
SELECT concat_ws(' | ', name, command, lock_at_most_for, lock_at_least_for, once_every, on_busy,
	schedule, time_zone, catch_up, max_late, attempts, backoff)
FROM _shedlock_guarded_call($1)
$$;

-- The CALL is recognized however it is written
SELECT read_back($$CALL shedlock_run('n', 'VACUUM')$$);
SELECT read_back($$CALL shedlock_run(name => 'n', command => 'VACUUM', once_every => '1 day')$$);
SELECT read_back($$call Public.SHEDLOCK_RUN ( 'n', 'VACUUM', lock_at_least_for := '1 s' ) ; -- nightly$$);
SELECT read_back($$CALL "Odd ""one".shedlock_run('n', 'c', null, '2 min'::interval, interval '90' minute, 'error'::text)$$);
SELECT read_back($$CALL shedlock_run('n', $c$it's$c$, CAST('1 h' AS interval), interval(1) '1.26 s')$$);
SELECT read_back(E'CALL shedlock_run(''n'', E''a\\\\b\\tc'', on_busy => ''skip'')');
SELECT read_back($$CALL shedlock_run(U&'\0066oo', 'c')$$);
SELECT read_back($$CALL shedlock_run('n', 'c', NULL, NULL, NULL, 'skip', '0 3 * * *', 'Europe/Berlin', 'all', '1 h', 3, '5 min')$$);
SELECT read_back($$CALL shedlock_run('n', 'c', schedule => '@daily', attempts => '3'::integer, backoff => NULL)$$);
SELECT read_back($$CALL shedlock_run('n', 'c', attempts => -1)$$);

-- Any other command is not a guarded call
SELECT command, _shedlock_guarded_call(command) IS NULL AS not_guarded
FROM unnest(ARRAY[
	'VACUUM',
	'SELECT ''shedlock_run''',
	'CALL shedlock_run(''n'')',
	'CALL shedlock_run(''n'', NULL)',
	'CALL shedlock_run(NULL, ''c'')',
	'CALL shedlock_run(''n'', ''c'', now() - now())',
	'CALL shedlock_run(''n'', ''c'' || ''d'')',
	'CALL shedlock_run(''n'', 5)',
	'CALL shedlock_run(''n'', ''c'', ''no interval'')',
	'CALL shedlock_run(''n'', ''c'', ''1 h''::text)',
	'CALL shedlock_run(''n'', ''c''::name)',
	'CALL shedlock_run(''n'', ''c'', name => ''m'')',
	'CALL shedlock_run(''n'', ''c'', unheard_of => ''m'')',
	'CALL shedlock_run(''n'', ''c'', NULL, NULL, NULL, ''skip'', ''more'')',
	'CALL shedlock_run(''n'', ''c'', schedule => ''0 3 * * *'', time_zone => ''Mars/Olympus'')',
	'CALL shedlock_run(''n'', ''c'', attempts => ''many'')',
	'CALL shedlock_run(''n'', ''c'', attempts => 3.5)',
	'CALL shedlock_run(''n'', ''c'', attempts => ''3''::bigint)',
	'CALL shedlock_run(''n'', ''c'', max_late => ''-1 s'')',
	'CALL shedlock_run('''', ''c'')',
	'CALL shedlock_run(E''a\nb'', ''c'')',
	'CALL shedlock_run(''n'', ''c'', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)',
	'CALL shedlock_run(''n'', ''c''); VACUUM',
	'CALL shedlock_run_all(''n'', ''c'')',
	'SELECT shedlock_run(''n'', ''c'')']) AS command;
SELECT _shedlock_guarded_call(NULL) IS NULL AS null_is_none;

-- A command that the server cannot parse is not a guarded call, and raises no error
SELECT command, _shedlock_guarded_call(command) IS NULL AS not_guarded
FROM unnest(ARRAY[
	'CALL shedlock_run(''n'', ''c''',
	'CALL shedlock_run(''n, ''c'')',
	'CALL shedlock_run(''n'', U&''\zzzz'')',
	'CALL shedlock_run(''n'', ''c'', interval ''1'' second(-1))',
	'CALL shedlock_run(''n'', ''c'', ''1 h''::pg_catalog.interval(1, 2, 3))',
	'CALL shedlock_run(''n'', ''c'', ''1 h''::pg_catalog.interval(second))',
	'CALL shedlock_run(''n'', ''c'', ''{1 h}''::interval[])',
	'CREATE ASSERTION shedlock_run CHECK (true)']) AS command;
SELECT _shedlock_guarded_call(repeat('(', 200000) || 'shedlock_run') IS NULL AS too_deep;

-- Names and commands are read back byte for byte, whatever the session's styles
CREATE TABLE round_trip (label text, name text, command text, call text);
INSERT INTO round_trip VALUES
	('plain', 'nightly', 'VACUUM'),
	('quotes', 'it''s', 'SELECT ''it''''s'''),
	('double quotes', '"nightly"', 'SELECT "a" FROM "b"'),
	('newlines', 'two lines', E'SELECT 1;\r\n-- done\n'),
	('backslashes', E'back\\slash', E'SELECT E''\\n'', ''\\'', $x$\\$x$'),
	('multibyte', 'grün–日', 'SELECT ''日'' -- ü'),
	('dollars', '$$', 'SELECT $$a$$'),
	('blanks', '  ', '   SELECT 1   '),
	('formats', '%s', 'SELECT ''%L'', ''%%'''),
	('a guarded call', 'outer', 'CALL shedlock_run(''inner'', ''VACUUM'')');
SET IntervalStyle = sql_standard;
UPDATE round_trip SET call = _shedlock_cron_call(name, command, '1 day 1 min', NULL, '90 min', NULL, NULL, NULL, 'all', '2 h 1 s', 3, '0.5 s', '2026-02-28 23:59:59.9 UTC');
CREATE VIEW not_the_same AS
SELECT r.label, r.call
FROM round_trip r, _shedlock_guarded_call(r.call) g
WHERE (g.name, g.command, g.lock_at_most_for, g.lock_at_least_for, g.once_every, g.on_busy, g.schedule, g.time_zone,
	   g.catch_up, g.max_late, g.attempts, g.backoff, g.schema_name, g.scheduled_at) IS DISTINCT FROM
	  (r.name, r.command, '1 day 1 min'::interval, NULL::interval, '90 min'::interval, 'skip', NULL::text, NULL::text,
	   'all', '2 h 1 s'::interval, 3, '0.5 s'::interval, 'public', '2026-02-28 23:59:59 UTC'::timestamptz);

SELECT * FROM not_the_same;
-- PostgreSQL 19 no longer has non-standard strings.
SELECT count(set_config(name, 'off', false)) AS set FROM pg_settings
WHERE name IN ('standard_conforming_strings', 'escape_string_warning') AND
	  current_setting('server_version_num')::int < 190000 \gset
SELECT * FROM not_the_same;
SELECT _shedlock_cron_call('n', E'SELECT E\'\\n\'', '1 day 1 min', NULL, NULL, 'error', '0 3 * * *', 'Europe/Berlin', 'all', '90 min', 3, '1 min', '2026-11-22 03:10:11+01') AS call;
RESET ALL;

DROP VIEW not_the_same;
DROP TABLE round_trip;
DROP FUNCTION read_back(text);

-- The comment at the end gives the time of the scheduling.  Any other comment gives none.
SET timezone = 'UTC';
SELECT _shedlock_cron_call('n', 'VACUUM', scheduled_at => t) ~ 'scheduled at' AS written, t
FROM unnest('{infinity,4713-01-01 BC,10000-01-01}'::timestamptz[]) t;
SELECT clock_timestamp() - (_shedlock_guarded_call(_shedlock_cron_call('n', 'VACUUM'))).scheduled_at < '1 min' AS now_by_default;
SELECT comment, g.name, g.scheduled_at
FROM unnest(ARRAY[
	' /* scheduled at 2026-11-22 02:10:11+00 */',
	'; -- nightly /* scheduled at 2024-02-29 23:59:59+00 */',
	E'\n/* scheduled at 0001-01-01 00:00:00+00 */',
	'',
	' /* scheduled at 2026-11-22 02:10:11+00 */ ',
	' /* scheduled at 2026-11-22 02:10:11+01 */',
	' /* scheduled at 2026-11-22 02:10:11 */',
	' /* scheduled at 2026-11-22T02:10:11+00 */',
	' /* Scheduled at 2026-11-22 02:10:11+00 */',
	' /* scheduled at 2026-02-29 02:10:11+00 */',
	' /* scheduled at 2026-13-01 02:10:11+00 */',
	' /* scheduled at 2026-00-01 02:10:11+00 */',
	' /* scheduled at 2026-01-00 02:10:11+00 */',
	' /* scheduled at 0000-01-01 02:10:11+00 */',
	' /* scheduled at 2026-11-22 24:00:00+00 */',
	' /* scheduled at 2026-11-22 02:60:00+00 */',
	' /* scheduled at 2026-11-22 02:10:60+00 */',
	' /* scheduled at yesterday */',
	' /* /* scheduled at 2026-11-22 02:10:11+00 */', ' -- scheduled at 2026-11-22 02:10:11+00']) comment,
	_shedlock_guarded_call('CALL shedlock_run(''n'', ''c'')' || comment) g;
SELECT (_shedlock_guarded_call('CALL shedlock_run(''n'', ''/* scheduled at 2026-11-22 02:10:11+00 */'')')).scheduled_at IS NULL AS in_a_literal;
SELECT g.schema_name
FROM unnest(ARRAY['CALL shedlock_run', 'CALL "Odd one".shedlock_run', 'CALL contrib_regression.s.shedlock_run']) call,
	_shedlock_guarded_call(call || '(''n'', ''c'')') g;
RESET timezone;

-- A call that shedlock_run would refuse is refused
\set SHOW_CONTEXT never
SELECT _shedlock_cron_call('n', 'VACUUM') IS NULL AS refused;
SELECT _shedlock_cron_call('n', 'COPY t FROM PROGRAM ''cat''; COPY t TO ''/dev/null''') IS NULL AS refused;
SELECT _shedlock_cron_call('n', '');
SELECT _shedlock_cron_call('n', ' ;; -- nothing');
SELECT _shedlock_cron_call('n', 'SELEC 1');
SELECT _shedlock_cron_call('n', 'SELECT 1; COMMIT');
SELECT _shedlock_cron_call('n', 'START TRANSACTION');
SELECT _shedlock_cron_call('n', 'SAVEPOINT s');
SELECT _shedlock_cron_call('n', 'PREPARE TRANSACTION ''x''');
SELECT _shedlock_cron_call('n', 'COPY t FROM STDIN');
SELECT _shedlock_cron_call('n', 'COPY (SELECT 1) TO STDOUT');
SELECT _shedlock_cron_call(NULL, 'VACUUM');
SELECT _shedlock_cron_call('', 'VACUUM');
SELECT _shedlock_cron_call(repeat('x', 256), 'VACUUM');
SELECT _shedlock_cron_call('n', NULL);
SELECT _shedlock_cron_call('n', 'VACUUM', '0');
SELECT _shedlock_cron_call('n', 'VACUUM', '1 h', '-1 s');
SELECT _shedlock_cron_call('n', 'VACUUM', '1 h', '2 h');
SELECT _shedlock_cron_call('n', 'VACUUM', NULL, '2 h', '1 month');
SELECT _shedlock_cron_call('n', 'VACUUM', once_every => '0 s');
SELECT _shedlock_cron_call('n', 'VACUUM', once_every => '1 day', schedule => '0 3 * * *');
SELECT _shedlock_cron_call('n', 'VACUUM', schedule => '0; 3 * * *');
SELECT _shedlock_cron_call('n', 'VACUUM', schedule => '0 3 * * *', time_zone => 'Mars/Olympus');
SELECT _shedlock_cron_call('n', 'VACUUM', schedule => '0 3 * * *', catch_up => 'some');
SELECT _shedlock_cron_call('n', 'VACUUM', schedule => '0 3 * * *', attempts => 0);
SELECT _shedlock_cron_call('n', 'VACUUM', attempts => 2);
