-- The CALL of a guarded job is read back as the server would run it, and a command that
-- cannot be guarded is refused before a job is changed.
CREATE FUNCTION read_back(command text) RETURNS text
LANGUAGE sql AS $$
SELECT concat_ws(' | ', name, command, schema_name) FROM _shedlock_guarded_call($1)
$$;

-- The CALL is recognized however it is written, with any other arguments
SELECT read_back($$CALL shedlock_run('n', 'VACUUM')$$);
SELECT read_back($$CALL shedlock_run(command => 'VACUUM', name => 'n')$$);
SELECT read_back($$call Public.SHEDLOCK_RUN ( 'n', 'VACUUM', lock_at_least_for := '1 s' ) ; -- nightly$$);
SELECT read_back($$CALL "Odd ""one".shedlock_run('n'::text, CAST('c' AS pg_catalog.text), now() - now(), on_busy => 'error')$$);
SELECT read_back($$CALL contrib_regression.s.shedlock_run('n', $c$it's$c$)$$);
SELECT read_back(E'CALL shedlock_run(''n'', E''a\\\\b\\tc'', on_busy => ''skip'')');
SELECT read_back($$CALL shedlock_run(U&'\0066oo', 'c')$$);

-- Any other command is not a guarded call
SELECT command, _shedlock_guarded_call(command) IS NULL AS not_guarded
FROM unnest(ARRAY[
	'VACUUM',
	'SELECT ''shedlock_run''',
	'CALL shedlock_run(''n'')',
	'CALL shedlock_run(''n'', NULL)',
	'CALL shedlock_run(NULL, ''c'')',
	'CALL shedlock_run(''n'', ''c'' || ''d'')',
	'CALL shedlock_run(''n'', 5)',
	'CALL shedlock_run(''n'', ''c''::name)',
	'CALL shedlock_run(''n'', ''c''::text[])',
	'CALL shedlock_run(''n'', ''c'', name => ''m'')',
	'CALL shedlock_run('''', ''c'')',
	'CALL shedlock_run(E''a\nb'', ''c'')',
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
UPDATE round_trip SET call = _shedlock_cron_call(name, command);
CREATE VIEW not_the_same AS
SELECT r.label, r.call
FROM round_trip r, _shedlock_guarded_call(r.call) g
WHERE (g.name, g.command, g.schema_name) IS DISTINCT FROM (r.name, r.command, 'public');

SELECT * FROM not_the_same;
-- PostgreSQL 19 no longer has non-standard strings.
SELECT count(set_config(name, 'off', false)) AS set FROM pg_settings
WHERE name IN ('standard_conforming_strings', 'escape_string_warning') AND
	  current_setting('server_version_num')::int < 190000 \gset
SELECT * FROM not_the_same;
SELECT _shedlock_cron_call('n', E'SELECT E\'\\n\'') AS call;
RESET ALL;
DROP VIEW not_the_same;
DROP TABLE round_trip;
DROP FUNCTION read_back(text);

-- The CALL that a job has stays, with what it says besides, but for its schema
SELECT _shedlock_cron_call('n', 'VACUUM', call) AS call
FROM unnest(ARRAY[
	'CALL public.shedlock_run(''n'', ''VACUUM'', ''1 h'') ; -- by hand',
	'CALL shedlock_run(''n'', ''VACUUM'', ''1 h'')',
	'CALL moved.shedlock_run(''n'', ''VACUUM'', ''1 h'')',
	'CALL "Odd one".shedlock_run(''n'', ''VACUUM'', on_busy => ''error'')',
	'call  moved.shedlock_run(''n'', ''VACUUM'', ''1 h'')',
	'CALL public.shedlock_run(''m'', ''VACUUM'', ''1 h'')',
	'VACUUM']) call;

-- No procedure of that name which somebody else puts into the schema is called instead.
\set SHOW_CONTEXT never
CREATE FUNCTION pg_temp.call_beside(arguments text, body text DEFAULT 'AS $x$BEGIN RAISE EXCEPTION ''hijacked''; END$x$') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE PROCEDURE public.shedlock_run(%s) LANGUAGE plpgsql %s', arguments, body);
	EXECUTE _shedlock_cron_call('cron_call', 'SELECT 1');
	RAISE EXCEPTION 'called';
EXCEPTION WHEN others THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END
$$;
SELECT arguments, pg_temp.call_beside(arguments) AS answer
FROM unnest(ARRAY[
	'name text, command text',
	'command text, name text',
	'name text, command text, more text DEFAULT NULL',
	'command text, name text, more int DEFAULT 1, even text DEFAULT NULL',
	'name text, VARIADIC command text[]',
	'name text, command anyelement',
	'name varchar, command name',
	'name unknown_type, command text',
	'name text, command text, OUT x int']) arguments;

-- A call that shedlock_run would refuse is refused
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
