# The extension's functions and views never call an object of another role that hides a
# name they use, whether it is in the search_path, in pg_temp, in the extension's own
# schema, if others may create objects there, or in another schema of its former name.
# A superuser makes all calls here, because a superuser is worth such a trap.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use HostProgram;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

# A time zone with summer time, so that its changes are looked up
my $has_cron = has_pg_cron();
my $node =
  $has_cron
  ? start_cron_node('main', "cron.use_background_workers = on\ncron.timezone = 'Europe/Berlin'\n")
  : start_node('main');
$node->safe_psql('postgres', 'DROP EXTENSION IF EXISTS shedlock');
$node->safe_psql('postgres', 'CREATE ROLE mallory; CREATE DATABASE probe; CREATE SCHEMA open; GRANT CREATE, USAGE ON SCHEMA open TO mallory');
$node->safe_psql('probe', 'CREATE SCHEMA open; CREATE EXTENSION shedlock SCHEMA open');

# Functions with the extension's names that differ in the type of one argument, or have
# defaults: a call whose arguments do not match exactly would call them.
my $overloads = $node->safe_psql(
	'probe', q{
WITH own AS (
	SELECT p.* FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	WHERE p.pronamespace = 'open'::regnamespace AND p.prorettype <> 'trigger'::regtype),
signatures AS (
	SELECT o.proname, o.prokind, pg_get_function_result(o.oid) AS result, s.types
	FROM own o
	CROSS JOIN LATERAL (
		SELECT array_agg(CASE t.n WHEN i THEN type ELSE t.oid::regtype::text END ORDER BY t.n) AS types
		FROM generate_series(1, o.pronargs) i,
			 unnest('{text,varchar,bigint,integer,text[],name[],regclass,name,interval,timestamp,timestamptz,anyelement}'::text[]) type,
			 unnest(o.proargtypes) WITH ORDINALITY t(oid, n)
		GROUP BY i, type
		UNION
		SELECT array_agg(t.oid::regtype::text ORDER BY t.n)
		FROM generate_series(o.pronargs - o.pronargdefaults, o.pronargs - 1) i, unnest(o.proargtypes) WITH ORDINALITY t(oid, n)
		WHERE t.n <= i GROUP BY i) s)
SELECT DISTINCT format('CREATE %s open.%I(%s) %s LANGUAGE plpgsql AS $f$ BEGIN RAISE ''sprung: %s(%s)''; END $f$;',
	CASE prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, proname, array_to_string(types, ', '),
	CASE WHEN prokind = 'f' THEN 'RETURNS ' || regexp_replace(result, '^TABLE.*', 'SETOF record') END, proname, array_to_string(types, ', '))
FROM signatures s
WHERE array_to_string(s.types, ' ') NOT LIKE '%open.%' AND -- a row of the extension's fits nothing else
NOT EXISTS (
	SELECT FROM own o WHERE o.proname = s.proname AND
	ARRAY(SELECT u::regtype FROM unnest(o.proargtypes) u) = ARRAY(SELECT u::regtype FROM unnest(s.types) u))
});
my $count = () = $overloads =~ /^CREATE/mg;
cmp_ok($count, '>', 500, "$count functions that could be called instead of the extension\'s");
$node->safe_psql('postgres', "SET ROLE mallory; SET client_min_messages = warning;\n$overloads");
$node->safe_psql('postgres', 'CREATE EXTENSION shedlock SCHEMA open');
pass('CREATE EXTENSION succeeds next to these functions');

# A WARNING names a role that can create functions there.
$node->safe_psql('probe', 'CREATE ROLE "Db owner"; CREATE ROLE deputy; GRANT postgres TO deputy; CREATE SCHEMA "My Locks"');
foreach (
	[ 'SCHEMA "My Locks"', '', '' ],
	[ 'SCHEMA "My Locks"', 'GRANT CREATE ON SCHEMA "My Locks" TO deputy', '' ],
	[ 'SCHEMA "My Locks"', 'ALTER SCHEMA "My Locks" OWNER TO deputy', '' ],
	[ 'SCHEMA "My Locks"', 'GRANT USAGE ON SCHEMA "My Locks" TO PUBLIC', '' ],
	[ 'SCHEMA "My Locks"', 'ALTER DATABASE probe OWNER TO "Db owner"', '' ],
	[ 'SCHEMA "My Locks"', 'ALTER SCHEMA "My Locks" OWNER TO mallory; GRANT CREATE ON SCHEMA "My Locks" TO postgres', 'mallory' ],
	[ 'SCHEMA "My Locks"', 'GRANT CREATE ON SCHEMA "My Locks" TO mallory, PUBLIC', 'PUBLIC, mallory' ],
	[ '', '', '' ],
	[ '', 'GRANT CREATE ON SCHEMA public TO PUBLIC', 'PUBLIC' ],
	[ '', 'ALTER DATABASE probe OWNER TO "Db owner"', '"Db owner"' ])
{
	my ($where, $before, $roles) = @$_;
	my ($rc, $stdout, $stderr) = $node->psql('probe', "BEGIN; DROP EXTENSION shedlock; $before; CREATE EXTENSION shedlock $where; ROLLBACK");
	my $schema = $where =~ s/^SCHEMA //r || 'public';

	is($stderr =~ s/^psql:\S+ //r, $roles eq '' ? '' : "WARNING:  schema $schema is not safe for the extension\n"
		  . "DETAIL:  Roles that are not superusers can create functions there, and a superuser could call one of those instead of the extension's: $roles.\n"
		  . 'HINT:  Install the extension into a schema that a superuser owns: CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling.',
		"a WARNING for ${schema}: " . ($before || 'as it is'));
}

# Objects that hide everything in pg_catalog, in the search_path and in pg_temp
my $traps = q{
CREATE SCHEMA trap;
CREATE FUNCTION trap.spring() RETURNS pg_catalog.bool LANGUAGE plpgsql AS $f$ BEGIN RAISE 'sprung'; END $f$;
DO $do$
DECLARE
	p record;
	made integer := 0;
BEGIN
	FOR p IN
		SELECT f.proname, f.proargtypes::oid[] AS types, format_type(f.prorettype, NULL) AS result, f.proretset
		FROM pg_proc f
		WHERE f.pronamespace = 'pg_catalog'::regnamespace AND f.prokind = 'f' AND f.provariadic = 0 AND
			  NOT EXISTS (SELECT FROM unnest(array_append(f.proargtypes::oid[], f.prorettype)) t JOIN pg_type y ON y.oid = t
						  WHERE y.typtype = 'p' AND y.typname NOT IN ('void', 'anyelement', 'anyarray', 'record'))
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION trap.%I(%s) RETURNS %s%s LANGUAGE plpgsql AS $f$ BEGIN RAISE ''sprung: %s''; END $f$',
				p.proname, array_to_string(ARRAY(SELECT format_type(t, NULL) FROM unnest(p.types) WITH ORDINALITY u(t, n) ORDER BY n), ', '),
				CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END, p.result, p.proname);
			made := made + 1;
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
	FOR p IN
		SELECT o.oprname, o.oprleft::regtype AS l, o.oprright::regtype AS r, f.proname AS f
		FROM pg_operator o JOIN pg_proc f ON f.oid = o.oprcode
		WHERE o.oprnamespace = 'pg_catalog'::regnamespace
	LOOP
		BEGIN
			EXECUTE format('CREATE OPERATOR trap.%s (%s RIGHTARG = %s, FUNCTION = trap.%I)', p.oprname,
				CASE WHEN p.l::oid <> 0 THEN format('LEFTARG = %s,', p.l) END, p.r, p.f);
			made := made + 1;
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
	RAISE INFO 'made %', made;
END
$do$;
CREATE DOMAIN trap.text AS pg_catalog.text CHECK (trap.spring());
CREATE DOMAIN trap.interval AS pg_catalog.interval CHECK (trap.spring());
CREATE DOMAIN trap.timestamptz AS pg_catalog.timestamptz CHECK (trap.spring());
CREATE DOMAIN trap.timestamp AS pg_catalog.timestamp CHECK (trap.spring());
CREATE DOMAIN trap.regclass AS pg_catalog.regclass CHECK (trap.spring());
CREATE DOMAIN trap.regtype AS pg_catalog.regtype CHECK (trap.spring());
CREATE DOMAIN trap.name AS pg_catalog.name CHECK (trap.spring());
CREATE DOMAIN trap.date AS pg_catalog.date CHECK (trap.spring());
};
my ($status, $out, $err) = $node->psql('postgres', $traps);
is($status, 0, 'traps are set');
like($err, qr/made [2-9]\d{3}/, 'thousands of traps are set');

# The calls that a superuser may make, with arguments of the exact types
my $t = 'pg_catalog.text';
my $i = 'pg_catalog.interval';

my $tour = qq{
SELECT open.shedlock_acquire('x'::$t, '1 h'::$i, '0'::$i, '1 s'::$i, 'me'::$t);
SELECT open.shedlock_acquire_token('y'::$t, '1 h'::$i, '0'::$i, '1 s'::$i, 'me'::$t);
SELECT open.shedlock_acquire_session('s'::$t, '1 h'::$i, '0'::$i, '1 s'::$i, 'me'::$t);
SELECT * FROM open.shedlock_acquire_any(open.shedlock_permits('p'::$t, 2), 1, '1 h'::$i, '0'::$i, '1 s'::$i, 'me'::$t);
SELECT open.shedlock_extend('x'::$t, NULL::bigint, '1 h'::$i, '0'::$i), open.shedlock_assert('x'::$t, NULL::bigint), open.shedlock_token('x'::$t);
SELECT open.shedlock_once('x'::$t, '2026-01-01'::pg_catalog.timestamptz), open.shedlock_once_every('x'::$t, '1 day'::$i);
SELECT open.shedlock_tick('* * * * *'::$t, 'UTC'::$t), open.shedlock_next_tick('* * * * *'::$t, 'UTC'::$t, pg_catalog.now());
SELECT open.shedlock_job('r'::$t, 'every 1 day from 2026-11-02'::$t, 'Europe/Berlin'::$t, NULL::pg_catalog.int4, NULL::$i, NULL::$t, NULL::$i, NULL::$i, NULL::$i, NULL::$i, NULL::$i, NULL::$t);
SELECT open.shedlock_job('b'::$t, '* * * * *'::$t, 'Europe/Berlin'::$t, 2::pg_catalog.int4,
	'1 min'::$i, 'all'::$t, '1 h'::$i, '5 min'::$i, '1 h'::$i, '2 h'::$i, '1 s'::$i, 'ours'::$t);
CALL open.shedlock_run('r'::$t, 'SELECT'::$t, '1 h'::$i, '0'::$i, 'skip'::$t);
SELECT token FROM open.shedlock_run_begin('b'::$t, '1 h'::$i, '0'::$i, '1 s'::$i, 'me'::$t, 'work'::$t, 'request'::$t) \\gset
SELECT open.shedlock_run_end('b'::$t, :token::pg_catalog.int8, 'failed'::$t, 'oops'::$t, 3::pg_catalog.int4);
SELECT state FROM open.shedlock_next(ARRAY['b'::$t, 'r'::$t], '1 h'::$i, '0'::$i, 'me'::$t, 'another'::$t);
SELECT open.shedlock_why('b'::$t);
SELECT * FROM open.shedlock_jobs;
SELECT * FROM open.shedlock_locks;
SELECT * FROM open.shedlock_history;
SELECT * FROM open.shedlock_stats;
SELECT * FROM open._shedlock_status(), open._shedlock_lock_until('x'::$t, 1::bigint);
SELECT open._shedlock_run_outcome(1::bigint, 'r'::$t, 'running'::$t);
INSERT INTO open.shedlock (name, lock_until, locked_at, locked_by)
	SELECT 'java'::$t, u, u, 'host'::$t FROM pg_catalog.timezone('UTC'::$t, pg_catalog.clock_timestamp()) u;
SELECT open.shedlock_release('x'::$t, NULL::bigint), open.shedlock_release('s'::$t, NULL::bigint);
SELECT open.shedlock_pause('x'::$t, 'infinity'::pg_catalog.timestamptz, 'why'::$t), open.shedlock_resume('x'::$t);
SELECT open.shedlock_force_release('y'::$t), open.shedlock_cancel('y'::$t), open.shedlock_again('y'::$t), open.shedlock_skip('b'::$t, 'why'::$t), open.shedlock_forget('b'::$t), open.shedlock_purge('0'::$i, true), open.shedlock_stats_reset('b'::$t), open.shedlock_stats_reset();
SELECT open.shedlock_cron_schedule('job'::$t, '*/5 1-3 * jan mon'::$t, 'SELECT 1'::$t, 'postgres'::$t, 'postgres'::$t, true, '* * * * *'::$t);
SELECT open.shedlock_cron_schedule('job'::$t, '1 1 1 1 *'::$t, 'SELECT 1'::$t, NULL::$t, NULL::$t, true, NULL::$t), open.shedlock_again('job'::$t);
SELECT open.shedlock_cron_guard('job'::$t, '*/2 * * * *'::$t);
SELECT * FROM open.shedlock_cron_jobs;
SELECT * FROM open.shedlock_problems;
SELECT open.shedlock_tell(n.name, n.problem, n.since, 'begun'::$t) FROM open.shedlock_news() n;
SELECT open.shedlock_cron_unguard('job'::$t);
SELECT open.shedlock_cron_unschedule('job'::$t);
SELECT open.shedlock_adopt('public.old'::pg_catalog.regclass, 'name'::pg_catalog.name, 'lock_until'::pg_catalog.name,
	'locked_at'::pg_catalog.name, 'locked_by'::pg_catalog.name, true);
};
# The functions for pg_cron check for pg_cron first.
$tour =~ s/^SELECT .*shedlock_cron_\w+\(.*\n(?:\t.*\n)*//mg unless $has_cron;
is( join(' ', grep { $tour !~ /\bopen\.$_\b/ && ($has_cron || !/^shedlock_cron_(?!jobs$)/) }
		  split(/\n/, $node->safe_psql('postgres', q{
SELECT p.proname COLLATE "C" FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
WHERE p.pronamespace = 'open'::regnamespace AND p.prorettype <> 'trigger'::regtype AND p.proname NOT LIKE '\\_%'
UNION ALL SELECT relname FROM pg_class WHERE relnamespace = 'open'::regnamespace AND relkind = 'v'}))),
	'', 'all public functions and views are called');
my $prepare = q{
RESET search_path;
DROP VIEW IF EXISTS public.old; DROP TABLE IF EXISTS public.old_before_shedlock;
CREATE TABLE public.old (name varchar(64) PRIMARY KEY, lock_until timestamp(3) NOT NULL, locked_at timestamp(3) NOT NULL, locked_by varchar(255) NOT NULL);
INSERT INTO public.old SELECT 'free', t, t, 'host' FROM timezone('utc', now()) t;
TRUNCATE open.shedlock, open._shedlock_job, open._shedlock_tick, open._shedlock_history;
};
my $temp = q{
CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (trap.spring());
CREATE DOMAIN pg_temp.interval AS pg_catalog.interval CHECK (trap.spring());
CREATE DOMAIN pg_temp.name AS pg_catalog.name CHECK (trap.spring());
CREATE DOMAIN pg_temp.timestamp AS pg_catalog.timestamp CHECK (trap.spring());
CREATE DOMAIN pg_temp.regclass AS pg_catalog.regclass CHECK (trap.spring());
CREATE FUNCTION pg_temp.spring() RETURNS bigint LANGUAGE plpgsql AS $f$ BEGIN RAISE 'sprung'; END $f$;
CREATE TEMP VIEW pg_class AS SELECT pg_temp.spring();
CREATE TEMP VIEW pg_attribute AS SELECT pg_temp.spring();
CREATE TEMP VIEW pg_stat_activity AS SELECT pg_temp.spring();
CREATE TEMP VIEW shedlock AS SELECT pg_temp.spring();
CREATE TEMP VIEW _shedlock_job AS SELECT pg_temp.spring();
CREATE TEMP VIEW _shedlock_tick AS SELECT pg_temp.spring();
CREATE TEMP VIEW _shedlock_history AS SELECT pg_temp.spring();
CREATE TEMP VIEW shedlock_history AS SELECT pg_temp.spring();
CREATE TEMP VIEW shedlock_locks AS SELECT pg_temp.spring();
CREATE TEMP SEQUENCE shedlock_token_seq START 1000000;
};
my %ways = (
	'in the schema of the extension' => '',
	'earlier in search_path' => 'SET search_path = trap, pg_catalog, open;',
	'in pg_temp' => $temp,
	'in pg_temp, which is earlier in search_path' => "$temp SET search_path = pg_temp, trap, pg_catalog, open;");
foreach my $way (sort keys %ways)
{
	# psql continues with the next statement after an error
	($status, $out, $err) = $node->psql('postgres', "$prepare\n$ways{$way}\n$tour", on_error_stop => 0);
	my $errors = join("\n", grep { /ERROR|CONTEXT|sprung/ } split(/\n/, $err));
	is($errors, '', "no trap $way is called");
	like($out, qr/^1\z/m, "all calls were made: $way");
}
like(error_of($node, "SET search_path = trap, pg_catalog; SELECT 'a'::pg_catalog.text = 'b'::pg_catalog.text"), qr/sprung/, 'a trap in the search_path raises an error if it is called');
like(error_of($node, "SELECT open.shedlock_tick('* * * * *', 'UTC'::varchar)"), qr/sprung/, 'a trap in the extension\'s schema raises an error if it is called');

# Row security on the extension's tables applies to roles that query them, not to its
# functions.
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA open TO app; DROP SCHEMA trap CASCADE;'
	  . join('', map { "ALTER TABLE open.$_ ENABLE ROW LEVEL SECURITY; ALTER TABLE open.$_ FORCE ROW LEVEL SECURITY;" } 'shedlock', '_shedlock_job', '_shedlock_tick', '_shedlock_history'));
$node->safe_psql('postgres', "DROP OWNED BY mallory");
foreach my $setting ('on', 'off')
{
	is($node->safe_psql('postgres', "TRUNCATE open.shedlock, open._shedlock_job, open._shedlock_tick, open._shedlock_history; SET ROLE app; SET row_security = $setting;"
			  . "SELECT open.shedlock_acquire('rls'); SELECT open.shedlock_acquire('rls'); SELECT open.shedlock_once('rls', '2026-01-01');"
			  . "SELECT open.shedlock_job('run', 'every 1 day'); CALL open.shedlock_run('run', 'SELECT'); SELECT open.shedlock_job('run', 'every 1 day');"
			  . "SELECT name, last_outcome FROM open.shedlock_jobs; SELECT name, state FROM open.shedlock_locks; SELECT open.shedlock_release('rls')"),
		"t\nf\nt\ncreated\nunchanged\nrun|succeeded\nrls|held\nt", "row security on the tables, row_security = $setting: locks and jobs work as before");
}

# The CALL of a guarded job is text, which the server resolves for each run.  The job
# never runs another role's procedure of that name.
SKIP:
{
	skip 'there is no pg_cron for this PostgreSQL', 4 unless $has_cron;

	$node->safe_psql('postgres', "GRANT CREATE, USAGE ON SCHEMA open TO mallory; SELECT cron.schedule('guarded', '0 0 1 1 *', 'SELECT 1'); "
		  . "SELECT open.shedlock_cron_guard('guarded'), open.shedlock_cron_schedule('scheduled', '0 0 1 1 *', 'SELECT 1')");
	my @calls = split(/\n/, $node->safe_psql('postgres', 'SELECT command FROM cron.job ORDER BY jobname'));
	my @optional = ('lock_at_most_for interval', 'lock_at_least_for interval', 'on_busy text');

	# Returns psql's errors when the jobs run while a procedure with these arguments exists.
	my $run_jobs = sub {
		my @lists = @_;
		my $script = '';
		foreach my $list (@lists)
		{
			# Only a C function can have a parameter of type unknown.
			$script .= $list =~ /unknown/
			  ? "CREATE PROCEDURE open.shedlock_run($list) LANGUAGE internal AS 'anyelement_in';\n"
			  : "SET ROLE mallory; CREATE PROCEDURE open.shedlock_run($list) LANGUAGE plpgsql AS 'BEGIN RAISE ''sprung''; END'; RESET ROLE;\n";
			my $types = join(', ', map { /^\w+ (\w+)/ } split(/, /, $list));
			$script .= join('', map { "$_\n;\n" } @calls) . "DROP PROCEDURE open.shedlock_run($types);\n";
		}
		# Each call of a job that is not declared is a run.
		$node->safe_psql('postgres', 'TRUNCATE open.shedlock, open._shedlock_job, open._shedlock_tick, open._shedlock_history');
		my ($rc, $stdout, $stderr) = $node->psql('postgres', $script, on_error_stop => 0);
		return join("\n", grep { /ERROR|NOTICE/ } split(/\n/, $stderr));
	};
	my (@others, @alike);
	foreach my $type ('text', 'unknown', 'anyelement', 'varchar', 'name', 'interval')
	{
		foreach my $first ('text', $type)
		{
			foreach my $more (0 .. @optional)
			{
				my $list = join ', ', "name $first", "command $type", map { "$_ DEFAULT NULL" } @optional[ 0 .. $more - 1 ];

				push @others, $list if $type ne 'text';
				push @alike, $list if "$first $type" eq 'text text' && $more < @optional;
				push @others, $list =~ s/ DEFAULT NULL//gr if $more > 0;
			}
		}
	}
	my %seen = ();
	@others = grep { !$seen{$_}++ && $_ ne join ', ', 'name text', 'command text', @optional } @others;
	@alike = grep { !$seen{$_}++ } @alike;
	is($run_jobs->(@others), '', scalar(@others) . ' procedures of that name stop no guarded job');
	is($node->safe_psql('postgres', 'SELECT name, outcome, count(*) FROM open.shedlock_history GROUP BY 1, 2 ORDER BY 1'),
		'guarded|succeeded|' . @others . "\nscheduled|succeeded|" . @others, 'all guarded jobs ran');

	# Of two procedures that fit alike the server calls neither.
	push @alike, join ', ', 'name text', 'command text', map({ "$_ DEFAULT NULL" } @optional), 'more text DEFAULT NULL';
	is($run_jobs->(@alike) =~ s/^.*(ERROR:  procedure open.shedlock_run\().*( is not unique)$/$1...$2/mgr,
		join("\n", ('ERROR:  procedure open.shedlock_run(... is not unique') x (2 * @alike)), 'a procedure that fits as well is not called');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM open.shedlock_history'), '0', 'nor is the extension\'s procedure in that case');
	$node->safe_psql('postgres', 'SELECT cron.unschedule(jobid) FROM cron.job; DROP OWNED BY mallory');
}

# A leaky function in the reader's WHERE sees no row that the views hide.
$node->safe_psql('postgres', join('', map { "ALTER TABLE open.$_ NO FORCE ROW LEVEL SECURITY; ALTER TABLE open.$_ DISABLE ROW LEVEL SECURITY;" } 'shedlock', '_shedlock_job', '_shedlock_tick', '_shedlock_history'));
SKIP:
{
	skip 'there is no pg_cron for this PostgreSQL', 13 unless $has_cron;

	$node->safe_psql('postgres', "SELECT open.shedlock_cron_schedule('of app', '0 0 1 1 *', 'SELECT 1', username => 'app'), open.shedlock_job('secret', 'every 1 day'); CALL open.shedlock_run('secret', 'SELECT ''password''');");
	foreach my $query ('SELECT * FROM open.shedlock_history WHERE pg_temp.leak(command)',
		'SELECT * FROM open.shedlock_jobs WHERE coalesce(pg_temp.leak(last_outcome), true) AND coalesce(pg_temp.leak(last_started_at::text), true)',
		'SELECT * FROM open.shedlock_cron_jobs WHERE coalesce(pg_temp.leak(last_outcome), true) AND pg_temp.leak(command)')
	{
		($status, $out, $err) = $node->psql('postgres', "GRANT USAGE ON SCHEMA cron TO app; GRANT SELECT ON cron.job TO app; SET ROLE app;\n"
			  . 'CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RAISE NOTICE \'leaked %\', $1; RETURN true; END $$;' . "\n$query");
		unlike($err, qr/password|succeeded|leaked 20/, "$query: shows nothing that is hidden");
		like($query . $out, qr/history|of app/, "$query: returns the visible rows");
		unlike($err, qr/ERROR/, "$query: raises no error");
	}

	# However the tables are joined: with a strict function an outer join becomes an inner
	# join, so the function can be evaluated before the join.
	foreach my $join ('nestloop', 'hashjoin', 'mergejoin')
	{
		($status, $out, $err) = $node->psql('postgres', "SET ROLE app; SET enable_$join = off;\n"
			  . 'CREATE FUNCTION pg_temp.leak(text) RETURNS boolean STRICT LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RAISE NOTICE \'leaked %\', $1; RETURN true; END $$;'
			  . "\nSELECT 1 FROM open.shedlock_cron_jobs WHERE pg_temp.leak(last_outcome); SELECT job_name FROM open.shedlock_cron_jobs");
		is($out . $err, 'of app', "a function in WHERE sees no run of another role, without $join");
	}
	$node->safe_psql('postgres', "INSERT INTO open._shedlock_tick SELECT 'name ' || i, now(), now(), 'me' FROM generate_series(1, 1000) i;"
		  . "INSERT INTO open._shedlock_history (token, name, command, started_at, outcome, locked_role, locked_by, pid)"
		  . " SELECT 1000000 + i, 'name ' || i % 1000, 'SELECT', now(), 'succeeded', 10, 'me', 1 FROM generate_series(1, 3000) i; ANALYZE open._shedlock_tick, open._shedlock_history");
	is($node->safe_psql('postgres', "BEGIN; SELECT job_name FROM open.shedlock_cron_jobs; SELECT sum(seq_scan) FROM pg_stat_xact_user_tables WHERE relname IN ('shedlock', '_shedlock_tick', '_shedlock_history')"), "of app\n0",
		'shedlock_cron_jobs looks each name up by an index');
	$node->safe_psql('postgres', 'TRUNCATE open._shedlock_tick, open._shedlock_history');
}

# The role that owns the schema renames it, and creates another one of the old name, with
# traps for everything that the extension has in its own schema.
my $planted = $node->safe_psql(
	'postgres', q{
SELECT format('CREATE %s open.%I(%s) %s LANGUAGE plpgsql AS $f$ BEGIN RAISE ''sprung: %s''; END $f$;',
			  CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, p.proname, a.arguments,
			  CASE WHEN p.prokind = 'f' THEN 'RETURNS ' || pg_get_function_result(p.oid) END, p.oid::regprocedure)
FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e',
	 LATERAL (VALUES (pg_get_function_arguments(p.oid)),
			  (concat_ws(', ', nullif(pg_get_function_identity_arguments(p.oid), ''), 'more text'))) a(arguments)
WHERE p.pronamespace = 'open'::regnamespace AND p.prorettype <> 'trigger'::regtype AND
	  concat_ws(' ', pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)) NOT LIKE '%open.%'
UNION ALL
SELECT format('CREATE VIEW open.%I AS SELECT %s FROM (SELECT open.spring()) s;', c.relname,
			  (SELECT string_agg(format('NULL::%s AS %I', format_type(a.atttypid, a.atttypmod), a.attname), ', ' ORDER BY a.attnum)
			   FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))
FROM pg_class c WHERE c.relnamespace = 'open'::regnamespace AND c.relkind IN ('r', 'v')
UNION ALL
SELECT 'CREATE SEQUENCE open.shedlock_token_seq START 1000000;'});
$node->safe_psql('postgres', "DROP SCHEMA IF EXISTS trap CASCADE; GRANT CREATE ON DATABASE postgres TO mallory; ALTER SCHEMA open OWNER TO mallory");
$node->safe_psql('postgres', "SELECT cron.unschedule(jobid) FROM cron.job; SELECT cron.schedule('stored', '0 0 1 1 *', 'CALL open.shedlock_run(''n'', ''SELECT'')')") if $has_cron;
$node->safe_psql('postgres', "SET ROLE mallory; SET client_min_messages = warning;\n"
	  . "ALTER SCHEMA open RENAME TO renamed; CREATE SCHEMA open; GRANT ALL ON SCHEMA open TO PUBLIC;\n"
	  . "CREATE FUNCTION open.spring() RETURNS boolean LANGUAGE plpgsql AS \$f\$ BEGIN RAISE 'sprung'; END \$f\$;\n$planted\n$overloads");
SKIP:
{
	skip 'there is no pg_cron for this PostgreSQL', 3 unless $has_cron;

	# A stored CALL names the schema; no search_path changes that.
	like(error_of($node, "SELECT renamed.shedlock_cron_schedule('new', '0 0 1 1 *', 'SELECT 1')"), qr/^42501: job "new" cannot be guarded/,
		'no superuser can schedule a guarded job in a schema of another role');
	like(error_of($node, "SELECT renamed.shedlock_cron_guard('stored')"), qr/^42501: job "stored" cannot be guarded/, 'no superuser can guard a job in a schema of another role');
	is($node->safe_psql('postgres', 'SELECT job_name, problem FROM renamed.shedlock_cron_jobs'),
		'stored|role "mallory" can replace the schema of shedlock_run in database "postgres", which the job calls as superuser "postgres"',
		'shedlock_cron_jobs names the jobs that call such a schema');
	$node->safe_psql('postgres', 'SELECT cron.unschedule(jobid) FROM cron.job');
}
$node->safe_psql('postgres', 'ALTER SCHEMA renamed OWNER TO postgres');
my $renamed_tour = $tour =~ s/\bopen\./renamed./gr;
($status, $out, $err) = $node->psql('postgres', ($prepare =~ s/\bopen\./renamed./gr) . $renamed_tour, on_error_stop => 0);
is(join("\n", grep { /ERROR|CONTEXT|sprung/ } split(/\n/, $err)), '', 'the extension in a renamed schema calls nothing in the schema of its old name');
like($out, qr/^1\z/m, 'all calls were made: renamed schema');
is($node->safe_psql('postgres', 'SELECT last_value >= 1000000 FROM renamed.shedlock_token_seq'), 'f', 'the tokens come from the extension\'s sequence');
like(error_of($node, "SELECT open.shedlock_token('x')"), qr/sprung/, 'a function trap in the schema of the old name raises an error if it is called');
like(error_of($node, 'SELECT * FROM open.shedlock'), qr/sprung/, 'a relation trap in the schema of the old name raises an error if it is read');
is($node->safe_psql('postgres', q{
SELECT string_agg(p.proname, ' ') FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
WHERE p.pronamespace = 'renamed'::regnamespace AND p.prosrc ~ '\m(open|renamed)\.'}),
	'', 'no function has the name of the schema in its text');

# The rest of the test uses a name that CREATE EXTENSION refuses, and that ends any
# literal it is put into.
my $odd = q{"a'b""c\\".};
$node->safe_psql('postgres', q{ALTER SCHEMA renamed RENAME TO "a'b""c\\"});
($status, $out, $err) = $node->psql('postgres', ($prepare =~ s/\bopen\./$odd/gr) . ($tour =~ s/\bopen\./$odd/gr), on_error_stop => 0);
is(join("\n", grep { /ERROR|CONTEXT|sprung/ } split(/\n/, $err)), '', 'the extension works in a schema with quotes in its name');
like($out, qr/^1\z/m, 'all calls were made: quotes');
$node->safe_psql('postgres', qq{ALTER SCHEMA "a'b""c\\" RENAME TO renamed});

# The schema cannot be renamed while shedlock_adopt resolves names in it.
is($node->safe_psql('postgres', "$prepare BEGIN; SELECT FROM renamed.shedlock_adopt('public.old');"
		  =~ s/\bopen\./renamed./gr
		  . "SELECT mode FROM pg_locks WHERE relation = 'pg_namespace'::regclass AND pid = pg_backend_pid() AND mode = 'ShareLock'; ROLLBACK") =~ s/\A\s+//r,
	'ShareLock', 'shedlock_adopt of a superuser keeps schemas from being renamed');

# What the documentation tells a role with more rights than the owner of the database to run
# calls nothing of the owner's: neither in a database whose search_path has the owner's
# schema in front, nor with the extension in a schema in which others create objects.
my $markdown = join "\n", map { slurp_file($_) } 'README.md', sort glob 'doc/*.md';
my ($path) = $markdown =~ /^```sql owned\n(SET search_path = scheduling;)/m or die 'operations.md sets no path';
my @blocks = $markdown =~ /^```sql\b[^\n]*\n(.*?)^```$/msg;
my ($role, $own_schema) = slurp_file('doc/monitoring.md') =~ /^```sql\n(.*?)^```$/msg;
my %query = slurp_file('doc/monitoring/queries.yaml') =~ /^(\w+):\n  query: \|\n((?:    .*\n)+)/mg;
my ($watcher) = slurp_file('doc/hearing.md') =~ /^```sql\n(CREATE ROLE watcher.*?)^```$/ms or die 'hearing.md has no role';
cmp_ok(@blocks + keys %query, '>', 50, 'texts are found');

# In these a call can fit a trap better than what pg_catalog has, because none there has
# exactly its types.
my %words = map { $_ => 1 } join("\n", slurp_file('doc/timeline.sql'), values %query) =~ /(\w+)\(/g;
my $fitting = sprintf q{
SET search_path = pg_catalog;
DO $do$
DECLARE
	types CONSTANT text[] := '{text,varchar,name,integer,bigint,numeric,float8,interval,timestamptz}';
	made integer := 0;
	f text;
	l text;
	r text;
BEGIN
	FOREACH l IN ARRAY types LOOP
		FOREACH r IN ARRAY types || NULL LOOP
			EXECUTE format('CREATE FUNCTION public.spring_operator(%%s) RETURNS boolean LANGUAGE plpgsql AS $f$ BEGIN RAISE ''sprung: operator''; END $f$', concat_ws(', ', l, r));
			FOREACH f IN ARRAY '{=,<>,<,>,<=,>=,+,-,*,/,||,~~,!~~,~}'::text[] LOOP
				BEGIN
					EXECUTE format('CREATE OPERATOR public.%%s (LEFTARG = %%s, RIGHTARG = %%s, FUNCTION = public.spring_operator)', f, l, r);
					made := made + 1;
				EXCEPTION WHEN OTHERS THEN NULL;
				END;
			END LOOP;
			FOR f IN SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY ('{%s}') LOOP
				BEGIN
					EXECUTE format('CREATE FUNCTION public.%%I(%%s) RETURNS text LANGUAGE plpgsql AS $f$ BEGIN RAISE ''sprung: %%s''; END $f$', f, concat_ws(', ', l, r), f);
					made := made + 1;
				EXCEPTION WHEN OTHERS THEN NULL;
				END;
			END LOOP;
		END LOOP;
	END LOOP;
	RAISE INFO 'made %%', made;
END
$do$;
}, join ',', sort keys %words;
my %schema = (owned => 'scheduling', shared => 'public');
foreach my $dbname (sort keys %schema)
{
	my $schema = $schema{$dbname};

	$node->safe_psql('postgres', "CREATE DATABASE $dbname OWNER mallory");
	$node->safe_psql($dbname, ($schema eq 'public' ? '' : "CREATE SCHEMA $schema; ") . "SET client_min_messages = error; CREATE EXTENSION shedlock SCHEMA $schema");
	$node->psql($dbname, "SET search_path = $schema; SELECT shedlock_job('fails', 'every 1 s'), shedlock_job('late', '* * * * *'); CALL shedlock_run('fails', 'SELECT 1 / 0'); CALL shedlock_run('late', 'SELECT 1');"
		  . "SELECT shedlock_pause('late'), shedlock_acquire_session('late session')", on_error_stop => 0);
	($status, $out, $err) = $node->psql($dbname, $fitting . ($traps =~ s/^CREATE SCHEMA trap;$//mr =~ s/\btrap\./public./gr));
	is($status, 0, "traps are set in public of $dbname");
	like($err, qr/made \d{4}.*made [2-9]\d{3}/s, 'thousands of them');
	$node->safe_psql('postgres', "ALTER DATABASE $dbname SET search_path = public, pg_catalog");
	like(error_of($node, 'SELECT now()', dbname => $dbname), qr/sprung/, 'a trap raises an error if it is called');

	my ($page, $complaint) = run_command([ 'scripts/timeline', '-d', $node->connstr($dbname) ]);
	is($complaint, '', "$dbname: doc/timeline.sql calls no trap");
	ok($page =~ /<title>fails\nfailed.*<\/html>/s, '  and its page is complete');

	$node->psql($dbname, $role, on_error_stop => 0);
	$node->safe_psql($dbname, $own_schema =~ s/^CREATE SCHEMA.*//mr) if $schema ne 'public';
	foreach my $name (sort keys %query)
	{
		($status, $out, $err) = $node->psql($dbname, $query{$name}, extra_params => [ '-U', 'prometheus' ]);
		is($err, '', "$dbname: the query $name calls no trap");
		isnt($out, '', '  and has an answer') if $name ne 'shedlock_lock_held';
	}
  SKIP:
	{
		skip 'this system does not have the program shedlock', 3 if !defined program_path();

		$node->psql($dbname, "SET search_path = $schema; " . $watcher =~ s/ON SCHEMA public/ON SCHEMA $schema/r, on_error_stop => 0);
		my $program = start_program($node, '-d', "dbname=$dbname user=watcher", '--watch', '--', 'sh', '-c', 'echo told $SHEDLOCK_NAME');
		ok($program->await_out(qr/^told fails$/m), "$dbname: a watcher tells a problem");
		ok( eventually(sub { $node->safe_psql($dbname, "SET search_path = $schema; SELECT count(*) = 0 FROM _shedlock_told WHERE NOT begin_told") eq 't' }),
			'  and the server is told of that');
		$program->signal('TERM');
		$program->finish;
		is($program->err, '', '  without calling a trap');
	}
}

# In order, with the path that the manual says; much of it fails, because each text supposes
# other objects.
($status, $out, $err) = $node->psql('owned', "SET statement_timeout = '5 s';\n" . join('', map { "$path\n$_\n" } @blocks), on_error_stop => 0);
is(join("\n", grep { /sprung/ } split(/\n/, $err)), '', 'what people type with the path that the manual says calls no trap');
cmp_ok(scalar(() = $out =~ /^[tf]$/mg), '>', 30, '  and much of it is executed');

$node->stop;
done_testing();
