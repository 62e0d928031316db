-- What callers can rely on: signatures, properties and privileges of all objects of the
-- extension.  The test fails until a new object is added here.

BEGIN;
SELECT no_plan();

CREATE TEMP VIEW member AS
SELECT d.classid, d.objid
FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'shedlock';

CREATE TEMP VIEW member_function AS
SELECT p.oid AS id, p.*
FROM pg_proc p JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid;

CREATE TEMP VIEW member_relation AS
SELECT c.oid AS id, c.*
FROM pg_class c JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid;

--
-- Extension
--

SELECT is((SELECT (extversion, extrelocatable)::text FROM pg_extension WHERE extname = 'shedlock'),
	'(1.0,f)', 'the version of the extension is that of its interface');

SELECT throws_ok('ALTER EXTENSION shedlock SET SCHEMA pg_temp', '0A000', NULL,
	'the extension cannot be moved to another schema');

SELECT results_eq(
	$$SELECT r::regclass::text COLLATE "default", c COLLATE "default"
	  FROM pg_extension e, unnest(e.extconfig, e.extcondition) u(r, c)
	  WHERE e.extname = 'shedlock' ORDER BY r::regclass::text COLLATE "C"$$,
	$$VALUES ('_shedlock_history', ''), ('_shedlock_job', ''), ('_shedlock_stats', ''), ('_shedlock_tick', ''), ('_shedlock_told', ''), ('shedlock', 'WHERE token <> 0 OR kind IS NULL OR kind <> ''lease'' OR paused_until > ''-infinity'' OR lock_until <= locked_at AND lock_until <= timezone(''UTC'', now())'), ('shedlock_token_seq', '')$$,
	'pg_dump includes the rows of all tables, except leases without token, and the state of the sequence');

--
-- Functions
--

CREATE TEMP TABLE api (name text, arguments text, result text);
INSERT INTO api VALUES
('shedlock_acquire',
 'name text, lock_at_most_for interval DEFAULT NULL::interval, lock_at_least_for interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval, locked_by text DEFAULT NULL::text',
 'boolean'),
('shedlock_acquire_token',
 'name text, lock_at_most_for interval DEFAULT NULL::interval, lock_at_least_for interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval, locked_by text DEFAULT NULL::text',
 'bigint'),
('shedlock_acquire_session',
 'name text, lock_at_most_for interval DEFAULT NULL::interval, lock_at_least_for interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval, locked_by text DEFAULT NULL::text',
 'boolean'),
('shedlock_acquire_any',
 'names text[], count integer DEFAULT 1, lock_at_most_for interval DEFAULT NULL::interval, lock_at_least_for interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval, locked_by text DEFAULT NULL::text',
 'TABLE(name text, token bigint)'),
('shedlock_permits', 'name text, permits integer', 'text[]'),
('shedlock_release', 'name text, token bigint DEFAULT NULL::bigint', 'boolean'),
('shedlock_extend',
 'name text, token bigint DEFAULT NULL::bigint, lock_at_most_for interval DEFAULT NULL::interval, lock_at_least_for interval DEFAULT NULL::interval',
 'boolean'),
('shedlock_assert', 'name text, token bigint DEFAULT NULL::bigint', 'bigint'),
('shedlock_token', 'name text', 'bigint'),
('shedlock_once', 'name text, tick timestamp with time zone', 'boolean'),
('shedlock_once_every', 'name text, every interval', 'boolean'),
('shedlock_tick', 'schedule text, time_zone text DEFAULT ''UTC''::text', 'timestamp with time zone'),
('shedlock_next_tick', 'schedule text, time_zone text DEFAULT ''UTC''::text, after timestamp with time zone DEFAULT clock_timestamp()', 'timestamp with time zone'),
('shedlock_job',
 'name text, schedule text, time_zone text DEFAULT ''UTC''::text, attempts integer DEFAULT 1, backoff interval DEFAULT ''00:01:00''::interval, catch_up text DEFAULT ''latest''::text, max_late interval DEFAULT NULL::interval, overdue_after interval DEFAULT ''00:05:00''::interval, slow_after interval DEFAULT NULL::interval, lock_at_most_for interval DEFAULT NULL::interval, lock_at_least_for interval DEFAULT NULL::interval, description text DEFAULT NULL::text',
 'text'),
('shedlock_run',
 'IN name text, IN command text, IN lock_at_most_for interval DEFAULT NULL::interval, IN lock_at_least_for interval DEFAULT NULL::interval, IN on_busy text DEFAULT ''skip''::text',
 NULL),
('shedlock_run_begin',
 'name text, lease interval DEFAULT NULL::interval, lock_at_least_for interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval, locked_by text DEFAULT NULL::text, description text DEFAULT NULL::text, request text DEFAULT NULL::text, OUT token bigint, OUT tick timestamp with time zone, OUT attempt integer, OUT state text, OUT reason text, OUT next_at timestamp with time zone',
 'record'),
('shedlock_next',
 'names text[], lease interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval, locked_by text DEFAULT NULL::text, request text DEFAULT NULL::text, OUT name text, OUT token bigint, OUT tick timestamp with time zone, OUT attempt integer, OUT state text, OUT reason text, OUT next_at timestamp with time zone',
 'record'),
('shedlock_run_end',
 'name text, token bigint, outcome text DEFAULT ''succeeded''::text, message text DEFAULT NULL::text, exit_code integer DEFAULT NULL::integer',
 'boolean'),
('shedlock_force_release', 'name text', 'boolean'),
('shedlock_cancel', 'name text', 'boolean'),
('shedlock_pause',
 'name text, until timestamp with time zone DEFAULT ''infinity''::timestamp with time zone, reason text DEFAULT NULL::text',
 'void'),
('shedlock_resume', 'name text', 'boolean'),
('shedlock_why', 'name text', 'text'),
('shedlock_again', 'name text', 'boolean'),
('shedlock_skip', 'name text, reason text DEFAULT NULL::text', 'timestamp with time zone'),
('shedlock_forget', 'name text', 'boolean'),
('shedlock_purge', 'older_than interval, ticks boolean DEFAULT false', 'bigint'),
('shedlock_stats_reset', 'name text DEFAULT NULL::text', 'void'),
('shedlock_news',
 'OUT name text, OUT problem text, OUT state text, OUT since timestamp with time zone, OUT message text, OUT description text',
 'SETOF record'),
('shedlock_tell', 'name text, problem text, since timestamp with time zone, state text', 'boolean'),
('shedlock_adopt',
 'old_table regclass, name_column name DEFAULT ''name''::name, lock_until_column name DEFAULT ''lock_until''::name, locked_at_column name DEFAULT ''locked_at''::name, locked_by_column name DEFAULT ''locked_by''::name, check_clock boolean DEFAULT true',
 'bigint'),
('shedlock_cron_schedule',
 'job_name text, schedule text, command text, database text DEFAULT NULL::text, username text DEFAULT NULL::text, active boolean DEFAULT true, fire text DEFAULT NULL::text',
 'bigint'),
('shedlock_cron_unschedule', 'job_name text', 'boolean'),
('shedlock_cron_guard', 'job text, fire text DEFAULT NULL::text', 'text'),
('shedlock_cron_unguard', 'job text', 'boolean');

-- Helpers, which callers must not rely on; all but the trigger can be called by any role.
CREATE TEMP TABLE helper (name text);
INSERT INTO helper VALUES
('_shedlock_adopt_check_columns'), ('_shedlock_adopt_check_names'), ('_shedlock_adopt_check_objects'), ('_shedlock_adopt_check_rows'),
('_shedlock_adopt_check_times'), ('_shedlock_adopt_dependents'), ('_shedlock_adopt_grants'), ('_shedlock_adopt_lock'),
('_shedlock_adopt_move'), ('_shedlock_adopt_table'), ('_shedlock_cron_call'), ('_shedlock_cron_danger'), ('_shedlock_cron_declare'),
('_shedlock_cron_forget'), ('_shedlock_cron_is_readable'), ('_shedlock_cron_job'), ('_shedlock_cron_last_run'), ('_shedlock_cron_lock_name'),
('_shedlock_cron_may_use'), ('_shedlock_cron_name_is_shared'), ('_shedlock_cron_once'), ('_shedlock_cron_own_schedule'), ('_shedlock_cron_problem'),
('_shedlock_cron_put'), ('_shedlock_cron_remove'), ('_shedlock_cron_require'), ('_shedlock_cron_rewrite'), ('_shedlock_cron_rows'),
('_shedlock_cron_timezone'), ('_shedlock_cron_wanted'), ('_shedlock_guarded_call'), ('_shedlock_jobs'), ('_shedlock_lock_until'),
('_shedlock_row_trigger'), ('_shedlock_run_outcome'), ('_shedlock_shown'), ('_shedlock_stats'), ('_shedlock_status');

SELECT set_eq(
	'SELECT proname::text FROM member_function',
	'SELECT name FROM api UNION ALL SELECT name FROM helper',
	'these functions and no others');
SELECT is((SELECT array_agg(proname) FROM member_function WHERE (left(proname, 1) = '_') <> (proname IN (SELECT name FROM helper))), NULL,
	'only names of helpers begin with an underscore');

SELECT is((SELECT count(*) FROM member_function), (SELECT count(DISTINCT proname) FROM member_function),
	'no function is overloaded');

SELECT is(pg_get_function_arguments(f.id), a.arguments, 'arguments of ' || a.name)
FROM api a LEFT JOIN member_function f ON f.proname = a.name;

SELECT is(pg_get_function_result(f.id), a.result, 'result of ' || a.name)
FROM api a LEFT JOIN member_function f ON f.proname = a.name;

SELECT is(f.prokind::text, CASE a.name WHEN 'shedlock_run' THEN 'p' ELSE 'f' END, 'kind of ' || a.name)
FROM api a LEFT JOIN member_function f ON f.proname = a.name;

SELECT is(f.provolatile::text, CASE a.name WHEN 'shedlock_next_tick' THEN 's' WHEN 'shedlock_permits' THEN 'i' ELSE 'v' END, 'volatility of ' || a.name)
FROM api a LEFT JOIN member_function f ON f.proname = a.name;

SELECT is(f.proisstrict, a.name = 'shedlock_permits', 'calls of ' || a.name || ' with nulls')
FROM api a LEFT JOIN member_function f ON f.proname = a.name;

SELECT is(f.proretset, a.name IN ('shedlock_acquire_any', 'shedlock_news'), 'rows of ' || a.name)
FROM api a LEFT JOIN member_function f ON f.proname = a.name;

SELECT is(l.lanname::text, CASE WHEN a.name LIKE 'shedlock_cron%' OR a.name IN ('shedlock_adopt', 'shedlock_news', 'shedlock_tell') THEN 'sql' ELSE 'c' END, 'language of ' || a.name)
FROM api a LEFT JOIN member_function f ON f.proname = a.name LEFT JOIN pg_language l ON l.oid = f.prolang;

SELECT is(f.proparallel::text, CASE f.proname WHEN 'shedlock_permits' THEN 's' ELSE 'u' END, 'parallel safety of ' || f.proname)
FROM member_function f;

SELECT is(f.prosecdef, f.proname IN ('shedlock_news', 'shedlock_tell'), f.proname || ' runs with the privileges of the caller, or of the owner')
FROM member_function f;

SELECT ok(l.lanname = 'c' OR f.prosqlbody IS NOT NULL OR 'search_path=pg_catalog, pg_temp' = ANY (f.proconfig),
	f.proname || ' finds nothing through the caller''s search_path')
FROM member_function f JOIN pg_language l ON l.oid = f.prolang;

-- A procedure with settings of its own could not commit.
SELECT is(f.proconfig, NULL, 'shedlock_run has no settings of its own')
FROM member_function f WHERE f.proname = 'shedlock_run';

--
-- Calls resolve whatever types a driver declares, often none
--

PREPARE p_acquire AS SELECT shedlock_acquire($1, $2, $3, $4, $5);
PREPARE p_acquire_token AS SELECT shedlock_acquire_token($1, $2, $3, $4, $5);
PREPARE p_acquire_session AS SELECT shedlock_acquire_session($1, $2, $3, $4, $5);
PREPARE p_acquire_any AS SELECT shedlock_acquire_any($1, $2, $3, $4, $5, $6);
PREPARE p_permits AS SELECT shedlock_permits($1, $2);
PREPARE p_release AS SELECT shedlock_release($1, $2);
PREPARE p_extend AS SELECT shedlock_extend($1, $2, $3, $4);
PREPARE p_assert AS SELECT shedlock_assert($1, $2);
PREPARE p_token AS SELECT shedlock_token($1);
PREPARE p_once AS SELECT shedlock_once($1, $2);
PREPARE p_once_every AS SELECT shedlock_once_every($1, $2);
PREPARE p_tick AS SELECT shedlock_tick($1, $2);
PREPARE p_next_tick AS SELECT shedlock_next_tick($1, $2, $3);
PREPARE p_job AS SELECT shedlock_job($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);
PREPARE p_run_begin AS SELECT shedlock_run_begin($1, $2, $3, $4, $5, $6, $7);
PREPARE p_next AS SELECT shedlock_next($1, $2, $3, $4, $5);
PREPARE p_run_end AS SELECT shedlock_run_end($1, $2, $3, $4, $5);
PREPARE p_why AS SELECT shedlock_why($1);
PREPARE p_force_release AS SELECT shedlock_force_release($1);
PREPARE p_cancel AS SELECT shedlock_cancel($1);
PREPARE p_pause AS SELECT shedlock_pause($1, $2, $3);
PREPARE p_resume AS SELECT shedlock_resume($1);
PREPARE p_again AS SELECT shedlock_again($1);
PREPARE p_skip AS SELECT shedlock_skip($1, $2);
PREPARE p_forget AS SELECT shedlock_forget($1);
PREPARE p_purge AS SELECT shedlock_purge($1, $2);
PREPARE p_stats_reset AS SELECT shedlock_stats_reset($1);
PREPARE p_news AS SELECT shedlock_news();
PREPARE p_tell AS SELECT shedlock_tell($1, $2, $3, $4);
PREPARE p_adopt AS SELECT shedlock_adopt($1, $2, $3, $4, $5, $6);
PREPARE p_cron_schedule AS SELECT shedlock_cron_schedule($1, $2, $3, $4, $5, $6, $7);
PREPARE p_cron_unschedule AS SELECT shedlock_cron_unschedule($1);
PREPARE p_cron_guard AS SELECT shedlock_cron_guard($1, $2);
PREPARE p_cron_unguard AS SELECT shedlock_cron_unguard($1);

SELECT is((SELECT array_to_string(s.parameter_types::oid[], ' ') FROM pg_prepared_statements s WHERE s.name = 'p_' || substr(a.name, 10)),
		  f.proargtypes::text, a.name || ' resolves with parameters of unknown type')
FROM api a JOIN member_function f ON f.proname = a.name WHERE a.name <> 'shedlock_run';

PREPARE n_acquire AS SELECT shedlock_acquire(name => $1, lock_at_most_for => $2, lock_at_least_for => $3, wait => $4, locked_by => $5);
PREPARE n_acquire_token AS SELECT shedlock_acquire_token(name => $1, lock_at_most_for => $2, lock_at_least_for => $3, wait => $4, locked_by => $5);
PREPARE n_acquire_session AS SELECT shedlock_acquire_session(name => $1, lock_at_most_for => $2, lock_at_least_for => $3, wait => $4, locked_by => $5);
PREPARE n_acquire_any AS SELECT shedlock_acquire_any(names => $1, count => $2, lock_at_most_for => $3, lock_at_least_for => $4,
	wait => $5, locked_by => $6);
PREPARE n_permits AS SELECT shedlock_permits(name => $1, permits => $2);
PREPARE n_release AS SELECT shedlock_release(name => $1, token => $2);
PREPARE n_extend AS SELECT shedlock_extend(name => $1, token => $2, lock_at_most_for => $3, lock_at_least_for => $4);
PREPARE n_assert AS SELECT shedlock_assert(name => $1, token => $2);
PREPARE n_token AS SELECT shedlock_token(name => $1);
PREPARE n_once AS SELECT shedlock_once(name => $1, tick => $2);
PREPARE n_once_every AS SELECT shedlock_once_every(name => $1, every => $2);
PREPARE n_tick AS SELECT shedlock_tick(schedule => $1, time_zone => $2);
PREPARE n_next_tick AS SELECT shedlock_next_tick(schedule => $1, time_zone => $2, after => $3);
PREPARE n_job AS SELECT shedlock_job(name => $1, schedule => $2, time_zone => $3, attempts => $4, backoff => $5, catch_up => $6,
	max_late => $7, overdue_after => $8, slow_after => $9, lock_at_most_for => $10, lock_at_least_for => $11, description => $12);
PREPARE n_run_begin AS SELECT shedlock_run_begin(name => $1, lease => $2, lock_at_least_for => $3, wait => $4, locked_by => $5,
	description => $6, request => $7);
PREPARE n_next AS SELECT shedlock_next(names => $1, lease => $2, wait => $3, locked_by => $4, request => $5);
PREPARE n_run_end AS SELECT shedlock_run_end(name => $1, token => $2, outcome => $3, message => $4, exit_code => $5);
PREPARE n_why AS SELECT shedlock_why(name => $1);
PREPARE n_force_release AS SELECT shedlock_force_release(name => $1);
PREPARE n_cancel AS SELECT shedlock_cancel(name => $1);
PREPARE n_pause AS SELECT shedlock_pause(name => $1, until => $2, reason => $3);
PREPARE n_resume AS SELECT shedlock_resume(name => $1);
PREPARE n_again AS SELECT shedlock_again(name => $1);
PREPARE n_skip AS SELECT shedlock_skip(name => $1, reason => $2);
PREPARE n_forget AS SELECT shedlock_forget(name => $1);
PREPARE n_purge AS SELECT shedlock_purge(older_than => $1, ticks => $2);
PREPARE n_stats_reset AS SELECT shedlock_stats_reset(name => $1);
PREPARE n_news AS SELECT shedlock_news();
PREPARE n_tell AS SELECT shedlock_tell(name => $1, problem => $2, since => $3, state => $4);
PREPARE n_adopt AS SELECT shedlock_adopt(old_table => $1, name_column => $2, lock_until_column => $3,
	locked_at_column => $4, locked_by_column => $5, check_clock => $6);
PREPARE n_cron_schedule AS SELECT shedlock_cron_schedule(job_name => $1, schedule => $2, command => $3, database => $4,
	username => $5, active => $6, fire => $7);
PREPARE n_cron_unschedule AS SELECT shedlock_cron_unschedule(job_name => $1);
PREPARE n_cron_guard AS SELECT shedlock_cron_guard(job => $1, fire => $2);
PREPARE n_cron_unguard AS SELECT shedlock_cron_unguard(job => $1);

SELECT is((SELECT array_to_string(s.parameter_types::oid[], ' ') FROM pg_prepared_statements s WHERE s.name = 'n_' || substr(a.name, 10)),
		  f.proargtypes::text, a.name || ' resolves with named parameters of unknown type')
FROM api a JOIN member_function f ON f.proname = a.name WHERE a.name <> 'shedlock_run';

SELECT is(pg_typeof(shedlock_acquire('resolve')), 'boolean'::regtype, 'the name alone is enough to acquire');
SELECT is(pg_typeof(shedlock_token('resolve')), 'bigint'::regtype, 'the name alone is enough to ask for the token');
SELECT is(shedlock_extend('resolve'), true, 'the name alone is enough to extend');
SELECT is(shedlock_release('resolve'), true, 'the name alone is enough to release');
SELECT is(shedlock_acquire(name => 'resolve', wait => '1 ms', locked_by => 'me'), true,
	'any argument can be left out when others are named');

-- shedlock_run cannot run here; an error that says so proves that the call was resolved.
SELECT throws_ok($$CALL shedlock_run('resolve', 'SELECT 1')$$, '25001', NULL,
	'shedlock_run resolves with name and command');
SELECT throws_ok($$CALL shedlock_run('resolve', 'SELECT 1', '1 min', '1 s', 'skip')$$, '25001', NULL,
	'shedlock_run resolves with arguments of unknown type');
SELECT throws_ok($$CALL shedlock_run(command => 'SELECT 1', name => 'resolve', on_busy => 'skip',
									 lock_at_least_for => '1 s', lock_at_most_for => '1 min')$$, '25001', NULL,
	'shedlock_run resolves with named arguments in any order');

--
-- Relations
--

SELECT results_eq(
	$$SELECT relname::text COLLATE "default", relkind::text COLLATE "default" FROM member_relation WHERE relkind <> 'i' ORDER BY relname::text COLLATE "C"$$,
	$$VALUES ('_shedlock_history', 'r'), ('_shedlock_job', 'r'), ('_shedlock_stats', 'r'), ('_shedlock_tick', 'r'), ('_shedlock_timeline', 'r'), ('_shedlock_told', 'r'),
			 ('shedlock', 'r'), ('shedlock_cron_jobs', 'v'), ('shedlock_history', 'v'), ('shedlock_jobs', 'v'), ('shedlock_locks', 'v'),
			 ('shedlock_problems', 'v'), ('shedlock_stats', 'v'), ('shedlock_token_seq', 'S')$$,
	'these relations and no others');

CREATE FUNCTION pg_temp.columns_of(regclass) RETURNS SETOF text LANGUAGE sql AS $$
SELECT concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NOT NULL' END,
				 'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid))
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum $$;

-- Four columns are those of ShedLock's table for PostgreSQL.
SELECT results_eq($$SELECT pg_temp.columns_of('shedlock')$$,
	ARRAY['name character varying(255) NOT NULL',
		  'kind text DEFAULT ''lease''::text',
		  'lock_until timestamp without time zone NOT NULL',
		  'locked_at timestamp without time zone NOT NULL',
		  'locked_by character varying(255) NOT NULL',
		  'token bigint',
		  'backend_start timestamp with time zone',
		  'pid integer',
		  'locked_role oid',
		  'origin integer',
		  'keep_until timestamp without time zone',
		  'lock_at_most_for interval',
		  'paused_until timestamp with time zone',
		  'paused_by text',
		  'pause_reason text'],
	'columns of shedlock: ShedLock''s four, and the extension''s, which a foreign INSERT can omit');
SELECT results_eq($$SELECT pg_temp.columns_of('_shedlock_job')$$,
	ARRAY['name character varying(255) NOT NULL',
		  'schedule text NOT NULL',
		  'time_zone text NOT NULL',
		  'attempts integer NOT NULL',
		  'backoff interval NOT NULL',
		  'catch_up text NOT NULL',
		  'max_late interval',
		  'overdue_after interval NOT NULL',
		  'slow_after interval',
		  'lock_at_most_for interval',
		  'lock_at_least_for interval',
		  'description text',
		  'since timestamp with time zone NOT NULL',
		  'carried timestamp with time zone',
		  'spent_token bigint',
		  'created_at timestamp with time zone NOT NULL',
		  'created_by text NOT NULL',
		  'declared_at timestamp with time zone NOT NULL',
		  'declared_by text NOT NULL',
		  'turns integer NOT NULL'],
	'columns of _shedlock_job');
SELECT results_eq($$SELECT pg_temp.columns_of('_shedlock_tick')$$,
	ARRAY['name character varying(255) NOT NULL',
		  'tick timestamp with time zone NOT NULL',
		  'claimed_at timestamp with time zone NOT NULL',
		  'claimed_by character varying(255) NOT NULL',
		  'token bigint',
		  'attempt integer NOT NULL DEFAULT 0',
		  'done boolean NOT NULL DEFAULT true',
		  'again_at timestamp with time zone',
		  'retry_at timestamp with time zone',
		  'skipped timestamp with time zone',
		  'gave_up_at timestamp with time zone',
		  'period interval'],
	'columns of _shedlock_tick');
SELECT results_eq($$SELECT pg_temp.columns_of('_shedlock_history')$$,
	ARRAY['token bigint NOT NULL',
		  'name character varying(255) NOT NULL',
		  'command text',
		  'tick timestamp with time zone',
		  'attempt integer',
		  'started_at timestamp with time zone NOT NULL',
		  'ended_at timestamp with time zone',
		  'outcome text NOT NULL',
		  'sqlstate text',
		  'message text',
		  'locked_role oid NOT NULL',
		  'locked_by character varying(255) NOT NULL',
		  'pid integer NOT NULL',
		  'warning text',
		  'exit_code integer',
		  'gave_up boolean NOT NULL DEFAULT false',
		  'request text',
		  'limit_at timestamp with time zone'],
	'columns of _shedlock_history');
SELECT results_eq($$SELECT pg_temp.columns_of('_shedlock_stats')$$,
	ARRAY['name character varying(255) NOT NULL', 'runs_succeeded bigint NOT NULL', 'runs_failed bigint NOT NULL', 'runs_timed_out bigint NOT NULL',
		  'runs_cancelled bigint NOT NULL', 'runs_lost bigint NOT NULL', 'gave_up bigint NOT NULL', 'run_seconds double precision NOT NULL',
		  'last_success_at timestamp with time zone', 'last_failure_at timestamp with time zone', 'stats_since timestamp with time zone NOT NULL'],
	'columns of _shedlock_stats');
SELECT results_eq($$SELECT pg_temp.columns_of('shedlock_stats')$$,
	ARRAY['name character varying(255)', 'runs_succeeded bigint', 'runs_failed bigint', 'runs_timed_out bigint',
		  'runs_cancelled bigint', 'runs_lost bigint', 'gave_up bigint', 'run_seconds double precision',
		  'last_success_at timestamp with time zone', 'last_failure_at timestamp with time zone', 'stats_since timestamp with time zone'],
	'columns of shedlock_stats');
SELECT results_eq($$SELECT pg_temp.columns_of('shedlock_locks')$$,
	ARRAY['name text', 'state text', 'kind text', 'held_for interval', 'remaining interval',
		  'lock_until timestamp with time zone', 'locked_at timestamp with time zone', 'locked_by text',
		  'token bigint', 'waiters integer', 'pid integer', 'application_name text', 'query text',
		  'paused boolean', 'paused_until timestamp with time zone', 'paused_by text', 'pause_reason text', 'locked_role name'],
	'columns of shedlock_locks');
SELECT results_eq($$SELECT pg_temp.columns_of('shedlock_history')$$,
	ARRAY['name character varying(255)', 'token bigint', 'outcome text',
		  'started_at timestamp with time zone', 'ended_at timestamp with time zone', 'duration interval',
		  'tick timestamp with time zone', 'attempt integer', 'gave_up boolean', 'command text', 'sqlstate text',
		  'message text', 'exit_code integer', 'locked_role name', 'locked_by character varying(255)', 'pid integer',
		  'warning text', 'request text'],
	'columns of shedlock_history');
SELECT results_eq($$SELECT pg_temp.columns_of('shedlock_jobs')$$,
	ARRAY['name text', 'schedule text', 'time_zone text', 'state text', 'last_tick timestamp with time zone', 'last_outcome text',
		  'last_started_at timestamp with time zone', 'last_duration interval', 'attempt integer', 'attempts integer',
		  'next_attempt_at timestamp with time zone', 'next_due timestamp with time zone', 'overdue interval', 'paused boolean',
		  'problem text', 'declared_at timestamp with time zone', 'declared_by text', 'description text', 'backoff interval',
		  'catch_up text', 'max_late interval', 'overdue_after interval', 'slow_after interval', 'lock_at_most_for interval',
		  'lock_at_least_for interval', 'created_at timestamp with time zone', 'created_by text'],
	'columns of shedlock_jobs');
SELECT results_eq($$SELECT pg_temp.columns_of('shedlock_cron_jobs')$$,
	ARRAY['jobid bigint', 'job_name text', 'guarded boolean', 'name text', 'schedule text', 'time_zone text', 'fire text',
		  'database text', 'username text', 'active boolean', 'command text', 'state text', 'last_tick timestamp with time zone',
		  'last_outcome text', 'last_started_at timestamp with time zone', 'last_duration interval',
		  'next_due timestamp with time zone', 'overdue interval', 'problem text'],
	'columns of shedlock_cron_jobs');
SELECT results_eq($$SELECT pg_temp.columns_of('_shedlock_told')$$,
	ARRAY['name text NOT NULL', 'problem text NOT NULL', 'since timestamp with time zone NOT NULL', 'message text NOT NULL',
		  'description text', 'begin_told boolean NOT NULL DEFAULT false', 'over_at timestamp with time zone'],
	'columns of _shedlock_told');
SELECT results_eq($$SELECT pg_temp.columns_of('shedlock_problems')$$,
	ARRAY['name text', 'problem text', 'since timestamp with time zone', 'message text', 'description text'],
	'columns of shedlock_problems');

-- Names are compared as bytes, so no change of a locale can break the index.
SELECT is(a.attcollation::regcollation::text, '"C"', 'names in ' || c.relname || ' have no locale')
FROM member_relation c JOIN pg_attribute a ON a.attrelid = c.id AND a.attname = 'name'
WHERE c.relkind = 'r';

SELECT col_is_pk('shedlock', 'name', 'a lock has one row');
SELECT col_is_pk('_shedlock_job', 'name', 'a job is declared once');
SELECT col_is_pk('_shedlock_tick', 'name', 'a job has one row of ticks');
SELECT col_is_pk('_shedlock_history', 'token', 'a run has one row of history');
SELECT col_is_pk('_shedlock_stats', 'name', 'a name has one row of counters');
SELECT col_is_pk('_shedlock_timeline', 'timeline', 'a timeline ended once');
SELECT col_is_pk('_shedlock_told', ARRAY['name', 'problem'], 'a problem is told once');

-- Rows that are updated often need free space in their page, and no index on changed columns.
SELECT is(c.reloptions, ARRAY['fillfactor=' || CASE c.relname WHEN '_shedlock_tick' THEN 50 ELSE 70 END],
	'fillfactor of ' || c.relname)
FROM member_relation c WHERE c.relkind = 'r' AND c.relname <> '_shedlock_timeline';
SELECT results_eq(
	$$SELECT i.indexrelid::regclass::text COLLATE "default", pg_get_indexdef(i.indexrelid, 0, true) ~ '\((name|token|name, token|timeline|started_at|request|name, problem)\)( |$)'
	  FROM pg_index i JOIN member_relation c ON c.id = i.indrelid WHERE c.relkind = 'r' ORDER BY i.indexrelid::regclass::text COLLATE "C"$$,
	$$VALUES ('_shedlock_history_name_idx', true), ('_shedlock_history_pkey', true), ('_shedlock_history_request_idx', true),
			 ('_shedlock_history_started_at_idx', true), ('_shedlock_job_pkey', true), ('_shedlock_stats_pkey', true), ('_shedlock_tick_pkey', true),
			 ('_shedlock_timeline_pkey', true), ('_shedlock_told_pkey', true), ('shedlock_pkey', true)$$,
	'no index has a column that changes while a lock is used');

SELECT throws_ok($$INSERT INTO shedlock (name, lock_until, locked_at, locked_by, kind) VALUES ('x', now(), now(), '', 'x')$$,
	'23514', NULL, 'the kind of a lock is lease, session, run or leased run');

SELECT is(c.reloptions, '{security_barrier=true}', 'the history hides its rows from functions of the reader')
FROM member_relation c WHERE c.relname = 'shedlock_history';

SELECT results_eq(
	$$SELECT seqtypid::regtype::text COLLATE "default", seqstart, seqincrement, seqcache, seqcycle
	  FROM pg_sequence WHERE seqrelid = 'shedlock_token_seq'::regclass$$,
	$$VALUES ('bigint', 1::bigint, 1::bigint, 1::bigint, false)$$,
	'tokens are drawn one at a time and never repeat');

--
-- Comments
--

SELECT isnt(obj_description(e.oid, 'pg_extension'), NULL, 'the extension has a comment')
FROM pg_extension e WHERE e.extname = 'shedlock';

SELECT ok(length(c.description) > 10, pg_describe_object(m.classid, m.objid, 0) || ' has a comment')
FROM member m
	 LEFT JOIN pg_description c ON c.classoid = m.classid AND c.objoid = m.objid AND c.objsubid = 0
-- row types are members since 17
WHERE m.classid <> 'pg_type'::regclass;

SELECT ok(length(col_description(a.attrelid, a.attnum)) > 5,
		  pg_describe_object('pg_class'::regclass, a.attrelid, a.attnum) || ' has a comment')
FROM member_relation r JOIN pg_attribute a ON a.attrelid = r.id
WHERE r.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped;

SELECT ok(obj_description(t.oid, 'pg_trigger') IS NOT NULL, pg_describe_object('pg_trigger'::regclass, t.oid, 0) || ' has a comment')
FROM member_relation r JOIN pg_trigger t ON t.tgrelid = r.id AND NOT t.tgisinternal;

--
-- Privileges
--

CREATE ROLE shedlock_test_app;

SELECT is(has_function_privilege('public', f.id, 'EXECUTE'),
		  coalesce(h.name <> '_shedlock_row_trigger', false) OR f.proname = ANY ('{shedlock_acquire,shedlock_acquire_token,shedlock_acquire_session,shedlock_acquire_any,shedlock_permits,
			shedlock_release,shedlock_extend,shedlock_assert,shedlock_token,shedlock_once,shedlock_once_every,shedlock_tick,shedlock_next_tick,shedlock_job,shedlock_forget,shedlock_run,shedlock_run_begin,shedlock_next,shedlock_run_end,shedlock_why}'),
		  'EXECUTE on ' || f.proname || ' for PUBLIC')
FROM member_function f LEFT JOIN helper h ON h.name = f.proname;

SELECT is(has_table_privilege('public', c.id, p), c.relkind = 'v' AND p = 'SELECT', p || ' on ' || c.relname || ' for PUBLIC')
FROM member_relation c, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) p
WHERE c.relkind IN ('r', 'v');

SELECT is(has_sequence_privilege('public', 'shedlock_token_seq', p), false, p || ' on the tokens for PUBLIC')
FROM unnest('{USAGE,SELECT,UPDATE}'::text[]) p;

SET LOCAL ROLE shedlock_test_app;
SELECT ok(shedlock_acquire('by app'), 'a plain role acquires');
SELECT ok(shedlock_token('by app') > 0, 'a plain role has a token');
SELECT ok(shedlock_extend('by app', lock_at_most_for => '1 min'), 'a plain role extends');
SELECT is(shedlock_assert('by app'), shedlock_token('by app'), 'a plain role asserts');
SELECT ok(shedlock_release('by app'), 'a plain role releases');
SELECT ok(shedlock_once('by app', now()), 'a plain role claims a tick');
SELECT ok(shedlock_acquire_session('by app, session'), 'a plain role acquires a session lock');
SELECT is((SELECT count(*)::integer FROM shedlock_locks WHERE name LIKE 'by app%'), 1, 'a plain role sees the locks');
SELECT lives_ok('SELECT * FROM shedlock_history', 'a plain role reads the history');
SELECT lives_ok('SELECT * FROM shedlock_stats', 'a plain role reads the counters');
SELECT is(shedlock_job('job of app', '@daily'), 'created', 'a plain role declares a job');
SELECT is((SELECT count(*)::integer FROM shedlock_jobs), 1, 'a plain role reads the jobs');
SELECT ok(shedlock_forget('job of app'), 'a plain role forgets its job');
SELECT is_empty('SELECT * FROM shedlock_cron_jobs', 'a plain role reads the jobs of pg_cron');
SELECT is_empty('SELECT * FROM shedlock_problems', 'a plain role reads the problems');
SELECT throws_ok('SELECT * FROM ' || t, '42501', NULL, 'a plain role does not read ' || t)
FROM unnest('{shedlock,_shedlock_job,_shedlock_tick,_shedlock_history,_shedlock_stats,_shedlock_timeline,_shedlock_told,shedlock_token_seq}'::text[]) t;
SELECT throws_ok('SELECT ' || call, '42501', NULL, 'a plain role is refused ' || call)
FROM unnest(ARRAY['shedlock_force_release(''x'')', 'shedlock_cancel(''x'')', 'shedlock_pause(''x'')', 'shedlock_resume(''x'')',
				  'shedlock_again(''x'')', 'shedlock_skip(''x'')', 'shedlock_purge(''1 day'')', 'shedlock_stats_reset()', 'shedlock_news()', 'shedlock_tell(''x'', ''overdue'', now(), ''begun'')', 'shedlock_adopt(''pg_class'')', 'shedlock_cron_schedule(''x'', ''* * * * *'', ''SELECT 1'')',
				  'shedlock_cron_unschedule(''x'')', 'shedlock_cron_guard(''x'')', 'shedlock_cron_unguard(''x'')',
				  'nextval(''shedlock_token_seq'')']) call;
RESET ROLE;

--
-- Settings
--

LOAD 'shedlock';
SELECT results_eq(
	$$SELECT name, vartype, unit, context, boot_val, min_val, max_val
	  FROM pg_settings WHERE name LIKE 'shedlock.%' ORDER BY name COLLATE "C"$$,
	$$VALUES
	  ('shedlock.attempt', 'string', NULL, 'user', '', NULL, NULL),
	  ('shedlock.default_lock_at_least_for', 'integer', 's', 'user', '0', '0', '2147483647'),
	  ('shedlock.default_lock_at_most_for', 'integer', 's', 'user', '3600', '1', '2147483647'),
	  ('shedlock.foreign_clock_tolerance', 'integer', 's', 'superuser', '600', '1', '2147483647'),
	  ('shedlock.history_keep', 'integer', 's', 'superuser', '2592000', '0', '2147483647'),
	  ('shedlock.log_locks', 'bool', NULL, 'superuser', 'off', NULL, NULL),
	  ('shedlock.log_skipped_runs', 'bool', NULL, 'superuser', 'on', NULL, NULL),
	  ('shedlock.max_lock_at_most_for', 'integer', 's', 'superuser', '0', '0', '2147483647'),
	  ('shedlock.max_wait', 'integer', 's', 'superuser', '0', '0', '2147483647'),
	  ('shedlock.notify', 'enum', NULL, 'superuser', 'failures', NULL, NULL),
	  ('shedlock.require_token', 'bool', NULL, 'superuser', 'off', NULL, NULL),
	  ('shedlock.role_prefix', 'bool', NULL, 'superuser', 'off', NULL, NULL),
	  ('shedlock.tick', 'string', NULL, 'user', '', NULL, NULL)$$,
	'settings with their units, contexts, defaults and limits');
SELECT is(current_setting('shedlock.default_lock_at_most_for'), '1h', 'a lease lasts one hour by default');
SELECT is(current_setting('shedlock.history_keep'), '30d', 'history is kept for 30 days by default');
SELECT is(current_setting('shedlock.foreign_clock_tolerance'), '10min', 'foreign clocks may be off by 10 minutes by default');
SELECT throws_ok('SET shedlock.nonsense = 1', '42602', NULL, 'the prefix of the settings is reserved');

SELECT * FROM finish();
ROLLBACK;
