-- A lock's name is any text of 1 to 255 characters without control or invisible characters,
-- and exactly that text.
\getenv srcdir PG_ABS_SRCDIR
\set ECHO none
\i :srcdir/helpers.sql

CREATE TEMP TABLE names (n int, name text);
INSERT INTO names VALUES
	(1, 'names'),
	(2, 'Names'),
	(3, ' names'),
	(4, 'names '),
	(5, U&'names\00A0'),
	(6, U&'\3000names'),
	(7, 'na''mes'),
	(8, 'na"mes'),
	(9, 'names''; DROP TABLE shedlock; --'),
	(10, 'na\mes'),
	(11, '$$names$$'),
	(12, '%s %n names'),
	(13, 'tenant:names'),
	(14, U&'n\00E4mes'),
	(15, U&'na\0308mes'),
	(16, U&'\540D\524D'),
	(17, U&'\+01F512'),
	(18, ' '),
	(19, repeat('n', 255)),
	(20, repeat('n', 254) || 'm'),
	(21, repeat(U&'\540D', 255)),
	(22, repeat(U&'\+01F512', 255));

-- No name stands for another one.
SELECT n, shedlock_acquire(name) AS taken, shedlock_acquire(name) AS again FROM names ORDER BY n;
SELECT n, s.name = m.name AS same, s.kind FROM names m JOIN shedlock s USING (name) ORDER BY n;
SELECT n, state FROM names JOIN shedlock_locks USING (name) ORDER BY n;
SELECT n, shedlock_token(name) > 0 AS token, shedlock_extend(name) AS extended,
	   shedlock_release(name) AS released, shedlock_once(name, '2026-01-01') AS once
FROM names ORDER BY n;
SELECT n, shedlock_acquire_session(name) AS session, shedlock_release(name) AS released
FROM names ORDER BY n;

-- Messages show names unchanged.
SELECT pg_temp.error_of(format('SELECT shedlock_assert(%L)', name)) FROM names WHERE n BETWEEN 5 AND 17;

-- Every function refuses a text that is not a name.
CREATE TEMP TABLE calls (n int GENERATED ALWAYS AS IDENTITY, call text);
INSERT INTO calls (call) VALUES
	('shedlock_acquire(%L)'),
	('shedlock_acquire_token(%L)'),
	('shedlock_acquire_session(%L)'),
	('shedlock_acquire_any(ARRAY[%L])'),
	('shedlock_release(%L)'),
	('shedlock_release(%L, 1)'),
	('shedlock_extend(%L)'),
	('shedlock_assert(%L)'),
	('shedlock_token(%L)'),
	('shedlock_once(%L, ''2026-01-01'')'),
	('shedlock_once_every(%L, ''1 day'')'),
	('shedlock_force_release(%L)'),
	('shedlock_cancel(%L)'),
	('shedlock_pause(%L)'),
	('shedlock_resume(%L)'),
	('shedlock_job(%L, ''@daily'')'),
	('shedlock_run_begin(%L)'),
	('shedlock_run_end(%L, 1)'),
	('shedlock_again(%L)'),
	('shedlock_skip(%L)'),
	('shedlock_forget(%L)'),
	('shedlock_why(%L)'),
	('_shedlock_cron_call(%L, ''TABLE x'')');
SELECT call, left(error, 5) AS state, count(*) AS names
FROM calls, unnest(ARRAY['', NULL, repeat('n', 256), repeat(U&'\540D', 256), E'names\n', E'\x7Fnames', U&'na\009Bmes', U&'na\200Bmes']) name,
	 LATERAL pg_temp.error_of('SELECT ' || format(call, name)) error
GROUP BY n, call, left(error, 5) ORDER BY n, state;
SELECT pg_temp.error_of('SELECT shedlock_acquire(NULL)');
SELECT pg_temp.error_of('SELECT shedlock_acquire('''')');
SELECT pg_temp.error_of('SELECT shedlock_acquire(repeat(''n'', 256))');
SELECT pg_temp.error_of(format('SELECT shedlock_acquire(%L)', E'\x1b[2Jnames'));

-- Invisible characters: marks of writing direction, of zero width, separators, and those
-- that Unicode wants ignored where they cannot be shown.
SELECT pg_temp.error_of(format('SELECT shedlock_acquire(%L)', U&'na\202Emes'));
SELECT to_hex(c) AS refused FROM unnest('{128,155,159,160,173,174,776,847,1564,8202,8203,8207,8208,8231,8232,8238,8239,8288,12288,12644,65024,65039,65040,65279,65280,65531,65532,78896,78912,917505,917760,983040}'::int[]) c
WHERE pg_temp.error_of(format('SELECT shedlock_acquire(%L)', 'na' || chr(c) || 'mes')) LIKE '22023 lock name must not contain%' ORDER BY c;
CALL shedlock_run(NULL, 'SELECT 1');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run('', 'SELECT 1');
\echo :LAST_ERROR_SQLSTATE
CALL shedlock_run(repeat('n', 256), 'SELECT 1');
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM shedlock WHERE length(name) NOT BETWEEN 1 AND 255;

-- locked_by is any text, of a limited length.
SELECT shedlock_acquire('names by', locked_by => repeat(U&'\540D', 200));
SELECT pg_temp.error_of('SELECT shedlock_acquire(''names by 2'', locked_by => repeat(''n'', 201))');
SELECT shedlock_acquire('names by 3', locked_by => '');
SELECT length(locked_by) > 202 AS "long", left(locked_by, 2) = ' #' AS empty
FROM shedlock WHERE name LIKE 'names by%' ORDER BY name;

TRUNCATE shedlock, _shedlock_tick, _shedlock_history;
