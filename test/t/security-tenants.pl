# Many tenants in one database: with shedlock.role_prefix on, a name is reserved for the
# roles with the privileges of its prefix, in each function and for each statement of
# ShedLock's clients.  The SQL comes from doc/operations.md:
#
#	```sql tenants    each block in a session of its own

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main');
my %as = map { $_ => [ extra_params => [ '-U', $_ ] ] } qw(billing guest reporter_a reporter_b);
my @blocks = slurp_file('doc/operations.md') =~ /^```sql tenants\n(.*?)^```$/msg;

# Names that do not belong to role guest
my @foreign = ('billing:job', 'job', 'nobody:job', 'Guest:job', '"guest":job', ' guest:job', ':job', 'gues', 'guest',
	'guest' . 'x' x 58 . ':job', 'billing:guest:job', 'pg_read_all_stats:job');

# Runs a block of doc/operations.md, and compares its answers with its comments.
sub run_block
{
	my ($number, $what) = @_;
	my ($output, $errors);

	is($node->psql('app', $blocks[$number], stdout => \$output, stderr => \$errors), 0, "doc/operations.md: $what") or diag $errors;
	my @promised = map { $_ eq 'true' ? 't' : 'f' } $blocks[$number] =~ /;\s*-- (true|false)\b/g;
	is_deeply([ grep { /^[tf]$/ } split /\n/, $output ], \@promised, "doc/operations.md: $what: answers") if @promised;
	return;
}

# Returns the errors that a role gets from statements, each of which must fail.
sub errors_of
{
	my ($database, $role, @statements) = @_;
	my $script = join '', "\\set VERBOSITY verbose\nSET client_min_messages = error;\n", map { "$_;\n" } @statements;
	my ($status, $output, $errors) = $node->psql($database, $script, @{ $as{$role} }, on_error_stop => 0);

	return $errors =~ /ERROR: +(\w{5}: .*)/g;
}

# All of the statements fail because of the lock's name.
sub all_refused
{
	my ($database, $name, $what, @statements) = @_;
	my @errors = errors_of($database, 'guest', @statements);

	is_deeply(\@errors, [ (qq(42501: permission denied for lock "$name")) x @statements ], "$what, lock $name");
	return;
}

# A call of each function that takes a lock's name, or names, except for those that only
# build a text with it, one for shedlock_history, which has its own rule, and shedlock_tell, which
# is for watchers alone
sub calls
{
	my ($name) = @_;

	return split /\n/, $node->safe_psql('app', <<~SQL);
		WITH args AS (
			SELECT p.oid, a.name, a.n, a.type
			FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid,
				 unnest(p.proargnames, p.proargtypes::oid[]) WITH ORDINALITY a(name, type, n)
			WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND p.proname NOT IN ('shedlock_permits', 'shedlock_tell', '_shedlock_cron_call', '_shedlock_run_outcome') AND
				  d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'shedlock') AND
				  a.n <= p.pronargs - p.pronargdefaults)
		SELECT format('%s %s(%s)', CASE p.prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT' END, p.proname, string_agg(
				CASE WHEN a.name = 'name' THEN quote_literal(\$q\$$name\$q\$)
					 WHEN a.name = 'names' THEN format('ARRAY[%L]', \$q\$$name\$q\$)
					 WHEN a.type = 'timestamptz'::regtype THEN 'clock_timestamp()'
					 WHEN a.type = 'interval'::regtype THEN quote_literal('1 day')
					 WHEN a.type = 'bigint'::regtype THEN '1'
					 ELSE quote_literal('SELECT 1') END, ', ' ORDER BY a.n))
		FROM args a JOIN pg_proc p ON p.oid = a.oid
		GROUP BY p.oid HAVING bool_or(a.name IN ('name', 'names')) ORDER BY p.proname
		SQL
}

# ShedLock's statements, and a DELETE
sub writes
{
	my ($name) = @_;
	my $utc = "timezone('utc', clock_timestamp())";

	return (
		"INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES (\$q\$$name\$q\$, $utc + '1 min', $utc, 'java')"
		  . " ON CONFLICT (name) DO UPDATE SET lock_until = EXCLUDED.lock_until, locked_at = EXCLUDED.locked_at, locked_by = 'java'"
		  . " WHERE shedlock.lock_until <= $utc",
		"UPDATE shedlock SET lock_until = $utc + '1 min', locked_at = $utc, locked_by = 'java' WHERE name = \$q\$$name\$q\$ AND lock_until <= $utc",
		"UPDATE shedlock SET lock_until = $utc WHERE name = \$q\$$name\$q\$ AND locked_by = 'postgres'",
		"DELETE FROM shedlock WHERE name = \$q\$$name\$q\$");
}

#
# What doc/operations.md says
#
$node->safe_psql('postgres', 'CREATE DATABASE app');
$node->safe_psql('app', 'CREATE EXTENSION shedlock; CREATE ROLE guest LOGIN');
run_block(0, 'the settings, roles and grants of tenants');
run_block(1, 'a tenant and its names');

is($node->safe_psql('app', "SELECT shedlock_token('guest:'); SELECT name, setting FROM pg_settings WHERE name LIKE 'shedlock.%' AND setting <> boot_val ORDER BY name", @{ $as{guest} }),
	"\nshedlock.max_lock_at_most_for|86400\nshedlock.max_wait|300\nshedlock.role_prefix|on", 'the settings are in force');

#
# Caps: a tenant cannot get around them
#
foreach my $statement ("SELECT shedlock_acquire('guest:long', '100 years')", "SELECT shedlock_acquire('guest:long', '25 h')",
	"SELECT shedlock_acquire_session('guest:long', '25 h')", "CALL shedlock_run('guest:long', 'SELECT 1', '25 h')",
	"SELECT shedlock_acquire('guest:long', wait => '301 s')", "SELECT shedlock_acquire_session('guest:long', NULL, '25 h')")
{
	my ($error) = errors_of('app', 'guest', $statement);

	like($error // 'no error', qr/^22023: .* of lock "guest:long" is too long/, "over a cap: $statement");
}
is($node->safe_psql('app', "SET shedlock.default_lock_at_most_for = '1000d'; SET shedlock.default_lock_at_least_for = '25h'; SELECT shedlock_acquire('guest:default');"
		  . "SELECT remaining <= '1 day' FROM shedlock_locks WHERE name = 'guest:default'", @{ $as{guest} }), "t\nt", 'the defaults do not exceed a cap');
$node->safe_psql('app', "GRANT INSERT (name, lock_until, locked_at, locked_by) ON shedlock TO guest");
my ($over) = errors_of('app', 'guest', "INSERT INTO shedlock (name, lock_until, locked_at, locked_by)"
	  . " SELECT 'guest:long', n + '100 years', n, 'host' FROM timezone('UTC', clock_timestamp()) n");
like($over // 'no error', qr/^22023: lock_until of lock "guest:long" is too far ahead/, 'an INSERT does not exceed a cap');

#
# Every function
#
$node->safe_psql('app', 'GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO guest');
cmp_ok(scalar calls('x'), '>=', 15, 'functions that take the name of a lock');
all_refused('app', $_, 'all functions refuse', calls($_)) foreach @foreign;
$node->safe_psql('app', 'REVOKE EXECUTE ON FUNCTION shedlock_purge(interval, boolean) FROM guest');

my ($status, $output, $errors) = $node->psql('app', "SELECT shedlock_once('job', now())", @{ $as{guest} });
like($errors, qr/DETAIL: .* only superusers .*\nHINT: .* "guest:job"\./, 'the error names the privileged roles and a name that works');
(undef, undef, $errors) = $node->psql('app', "SELECT shedlock_once('billing:job', now())", @{ $as{guest} });
like($errors, qr/DETAIL: .* role "billing" .*\nHINT: .* "guest:job"\./, 'the error for the name of another tenant says the same');

is($node->safe_psql('app', q{SELECT shedlock_acquire('guest:a:b'), shedlock_extend('guest:a:b'), shedlock_release('guest:a:b'),
		shedlock_once('guest:', now()), shedlock_acquire_session('guest:session')}, @{ $as{guest} }),
	't|t|t|t|t', 'names that begin with the role belong to it');
is($node->safe_psql('app', "SELECT shedlock_acquire('job'), shedlock_acquire('nobody:job'), shedlock_acquire('billing:job')"),
	't|t|t', 'superusers use all names');
is($node->safe_psql('app', "CREATE ROLE \"Odd one\" LOGIN; SET ROLE \"Odd one\"; SELECT shedlock_acquire('Odd one:job')"), 't',
	'a prefix is the exact name of the role');
like(error_of($node, "SET ROLE \"Odd one\"; SELECT shedlock_acquire('odd one:job')", dbname => 'app'), qr/^42501/,
	'no others');
is($node->safe_psql('app', "ALTER ROLE guest RENAME TO visitor; SELECT shedlock_acquire('guest:late');"
		  . "SELECT shedlock_force_release('guest:late'); ALTER ROLE visitor RENAME TO guest"), "t\nt",
	'the old name of a role is no prefix of it, and superusers clean up');

#
# Jobs
#
is($node->safe_psql('app', "SELECT shedlock_job('guest:nightly', 'every 1 day', lock_at_most_for => '30 days'); SELECT attempt FROM shedlock_run_begin('guest:nightly', '1 h')", @{ $as{guest} }),
	"created\n1", 'a tenant declares a job, and runs it');
is($node->safe_psql('app', "SELECT limit_at - started_at FROM _shedlock_history WHERE name = 'guest:nightly'"), '1 day', 'a run takes no longer than the cap, whatever the job says');
is($node->safe_psql('app', "SELECT shedlock_job('guest:nightly', '\@daily')"), 'changed', 'a superuser changes it');
is($node->safe_psql('app', "SELECT shedlock_forget('guest:nightly')", @{ $as{guest} }), 't', 'the tenant forgets it');
foreach my $name ('billing:job', 'job')
{
	all_refused('app', $name, 'a tenant cannot declare', "SELECT shedlock_job('$name', '\@daily')");
	is($node->safe_psql('app', "SELECT shedlock_job('$name', '\@daily')"), 'created', "a superuser declares job $name");
	all_refused('app', $name, 'a tenant cannot declare it as it is', "SELECT shedlock_job('$name', '\@daily')", "SELECT shedlock_forget('$name')");
	$node->safe_psql('app', "SELECT shedlock_forget('$name')");
}

# The prefix alone decides, whichever role has created the job.
is($node->safe_psql('app', "SELECT shedlock_job('reporting:job', '\@daily')", @{ $as{reporter_a} }), 'created', 'a member of a group role declares a job');
is($node->safe_psql('app', "SELECT shedlock_job('reporting:job', '\@weekly')", @{ $as{reporter_b} }), 'changed', 'another member changes it');
all_refused('app', 'reporting:job', 'no member', "SELECT shedlock_job('reporting:job', '\@weekly')", "SELECT shedlock_forget('reporting:job')");
is(error_of($node, "SET shedlock.role_prefix = off; SET ROLE reporter_b; SELECT shedlock_job('reporting:job', '\@daily')", dbname => 'app'),
	'42501: permission denied for job "reporting:job"', 'without the setting a job belongs to its creator');
is($node->safe_psql('app', "SELECT shedlock_forget('reporting:job')", @{ $as{reporter_b} }), 't', 'another member forgets it');

#
# Roles that share a prefix
#
is($node->safe_psql('app', "SELECT shedlock_acquire('reporting:daily')", @{ $as{reporter_a} }), 't', 'a member of a group role uses its prefix');
is($node->safe_psql('app', "SELECT shedlock_acquire('reporting:daily')", @{ $as{reporter_b} }), 'f', 'another member is refused the same lock');
all_refused('app', 'reporting:daily', 'no member', "SELECT shedlock_acquire('reporting:daily')");
is($node->safe_psql('app', "SET client_min_messages = warning; SELECT shedlock_pause('reporting:daily'), shedlock_resume('reporting:daily'), shedlock_force_release('reporting:daily')",
		@{ $as{reporter_b} }), '|t|t', 'members administer locks of other members');

my $leader = session($node, dbname => 'app', @{ $as{reporter_a} });
is(ask($leader, "SELECT shedlock_acquire_session('reporting:leader')"), 't', 'a session lock under a shared prefix');
like(error_of($node, "SELECT shedlock_force_release('reporting:leader')", dbname => 'app', @{ $as{reporter_b} }), qr/^42501: .*terminate/,
	'another member cannot end that session');
is(ask($leader, "SELECT shedlock_token('reporting:leader') IS NOT NULL"), 't', 'that session still holds the lock');
is($node->safe_psql('app', "SET client_min_messages = warning; SELECT shedlock_force_release('reporting:leader')", @{ $as{reporter_a} }),
	't', 'the role of the session can end it');
reap($leader);

#
# ShedLock's clients, on the table and on the view that shedlock_adopt creates
#
$node->safe_psql('postgres', 'CREATE DATABASE adopted');
$node->safe_psql('adopted', q{
CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL);
GRANT SELECT, INSERT, UPDATE, DELETE ON shedlock TO guest;
CREATE SCHEMA scheduling;
CREATE EXTENSION shedlock SCHEMA scheduling;
ALTER DATABASE adopted SET shedlock.role_prefix = on});
foreach my $name ('job', 'billing:job', 'nobody:job')
{
	$node->safe_psql('adopted', "INSERT INTO shedlock SELECT '$name', n, n, 'host' FROM timezone('UTC', now()) n");
	like(error_of($node, "SELECT scheduling.shedlock_adopt('public.shedlock')", dbname => 'adopted'),
		qr/^22023: no service could use lock "$name" of table public.shedlock any more/, "shedlock_adopt refuses lock $name");
	is(error_of($node, "BEGIN; REVOKE ALL ON shedlock FROM guest; SELECT scheduling.shedlock_adopt('public.shedlock')", dbname => 'adopted'),
		'no error', "shedlock_adopt accepts it if only superusers write to the table, lock $name");
	is(error_of($node, "BEGIN; SET LOCAL shedlock.role_prefix = off; SELECT scheduling.shedlock_adopt('public.shedlock')", dbname => 'adopted'),
		'no error', "shedlock_adopt accepts it without the setting, lock $name");
	$node->safe_psql('adopted', 'DELETE FROM shedlock');
}

# A table's owner can allow any role, or none, to write to it.
$node->safe_psql('adopted', "ALTER TABLE shedlock OWNER TO guest; INSERT INTO shedlock SELECT 'billing:nightly', 'infinity', n, 'x' FROM timezone('UTC', now()) n");
foreach my $before ('SELECT', 'GRANT UPDATE ON shedlock TO billing', 'GRANT UPDATE (name) ON shedlock TO PUBLIC', 'REVOKE ALL ON shedlock FROM guest')
{
	like(error_of($node, "BEGIN; SET ROLE guest; $before; RESET ROLE; SELECT scheduling.shedlock_adopt('public.shedlock')", dbname => 'adopted'),
		qr/^22023: no service could use lock "billing:nightly" of table public.shedlock any more/, "shedlock_adopt refuses a name that the owner of the table could not use: $before");
}
is(error_of($node, "BEGIN; GRANT billing TO guest; SELECT scheduling.shedlock_adopt('public.shedlock')", dbname => 'adopted'), 'no error', 'shedlock_adopt accepts a name that a member of its role can use');
is(error_of($node, "BEGIN; ALTER TABLE shedlock OWNER TO postgres; GRANT UPDATE ON shedlock TO billing; SELECT scheduling.shedlock_adopt('public.shedlock')", dbname => 'adopted'),
	'no error', 'shedlock_adopt checks the writers of a superuser\'s table');
$node->safe_psql('adopted', 'DELETE FROM shedlock; ALTER TABLE shedlock OWNER TO postgres; GRANT SELECT, INSERT, UPDATE, DELETE ON shedlock TO guest');

# shedlock_adopt refuses a lock that exceeds the cap.
my $capped = "BEGIN; SET shedlock.max_lock_at_most_for = '1d'; SET shedlock.foreign_clock_tolerance = '1h';";
foreach my $until ("'infinity'", "n + '25 h 1 min'")
{
	like(error_of($node, "$capped INSERT INTO shedlock SELECT 'guest:long', $until, n, 'x' FROM timezone('UTC', now()) n; SELECT scheduling.shedlock_adopt('public.shedlock')", dbname => 'adopted'),
		qr/^22023: lock_until of lock "guest:long" in table public.shedlock is too far ahead/, "shedlock_adopt refuses a lock over the cap: $until");
	is(error_of($node, "$capped SET shedlock.max_lock_at_most_for = 0; INSERT INTO shedlock SELECT 'guest:long', $until, n, 'x' FROM timezone('UTC', now()) n; SELECT scheduling.shedlock_adopt('public.shedlock')", dbname => 'adopted'),
		'no error', "shedlock_adopt accepts it without a cap: $until");
}
is(error_of($node, "$capped INSERT INTO shedlock SELECT 'guest:long', n + '24 h 59 min', n, 'x' FROM timezone('UTC', now()) n; SELECT scheduling.shedlock_adopt('public.shedlock')", dbname => 'adopted'),
	'no error', 'shedlock_adopt accepts an excess that a client\'s clock explains');
$node->safe_psql('adopted', "INSERT INTO shedlock SELECT 'guest:job', n, n, 'host' FROM timezone('UTC', now()) n");
is($node->safe_psql('adopted', "SELECT scheduling.shedlock_adopt('public.shedlock')"), '1', 'shedlock_adopt adopts names that the service can use');
$node->safe_psql('app', 'GRANT SELECT, INSERT, UPDATE, DELETE ON shedlock TO guest');
foreach my $database ('app', 'adopted')
{
	foreach my $name (@foreign)
	{
		my ($insert, @writes) = writes($name);

		all_refused($database, $name, "$database: an INSERT of a client of ShedLock's", $insert);
		$node->safe_psql($database, "SET search_path = public, scheduling; SELECT shedlock_acquire(\$q\$$name\$q\$, locked_by => 'postgres'), shedlock_force_release(\$q\$$name\$q\$)");
		$node->safe_psql($database, "UPDATE shedlock SET locked_by = 'postgres' WHERE name = \$q\$$name\$q\$");
		all_refused($database, $name, "$database: a client of ShedLock's", $insert, @writes);
	}
	my ($take) = writes('guest:java');
	is($node->safe_psql($database, "$take RETURNING name", @{ $as{guest} }), 'guest:java',
		"$database: a client of ShedLock acquires a lock of its own");
	is($node->safe_psql($database, "UPDATE shedlock SET lock_until = locked_at WHERE name = 'guest:java' RETURNING 1;"
			  . "DELETE FROM shedlock WHERE name = 'guest:java' RETURNING 2", @{ $as{guest} }), "1\n2",
		"$database: a client of ShedLock releases its lock");
}
$node->safe_psql('app', 'REVOKE ALL ON shedlock FROM guest');

#
# Hidden names
#
my $names = "SELECT name FROM shedlock_locks ORDER BY name COLLATE \"C\"";
$node->safe_psql('app', 'TRUNCATE shedlock');
$node->safe_psql('app', "SELECT shedlock_acquire('guest:seen')", @{ $as{guest} });
$node->safe_psql('app', "SELECT shedlock_acquire('billing:seen')", @{ $as{billing} });
$node->safe_psql('app', "SELECT shedlock_acquire('seen'), shedlock_acquire('reporting:seen')");
my $open = session($node, dbname => 'app');
ask($open, "BEGIN; SELECT shedlock_acquire('billing:uncommitted'), shedlock_acquire('guest:uncommitted')");
is($node->safe_psql('app', $names, @{ $as{guest} }), "guest:seen\nguest:uncommitted", 'shedlock_locks hides names of other roles');
is($node->safe_psql('app', $names, @{ $as{reporter_a} }), 'reporting:seen', 'shedlock_locks shows names of a shared prefix');
my $all = "billing:seen\nbilling:uncommitted\nguest:seen\nguest:uncommitted\nreporting:seen\nseen";
is($node->safe_psql('app', $names), $all, 'superusers see all names');
is($node->safe_psql('app', "GRANT pg_read_all_stats TO guest; SET ROLE guest; $names; RESET ROLE; REVOKE pg_read_all_stats FROM guest"), $all,
	'members of pg_read_all_stats see all names');
ask($open, 'ROLLBACK');
$open->quit;
is($node->safe_psql('app', "SET shedlock.role_prefix = off; SET ROLE guest; SELECT count(*), shedlock_acquire('any name') FROM shedlock_locks"),
	'4|t', 'without the setting a role sees and uses all names');

# What a role's session can tell of a name that is not its own: the plan of each view that it
# may read, with what was executed, and the rows that the session has read.
sub told_of
{
	my ($role, $view, $column, $name) = @_;

	return $node->safe_psql('app', "BEGIN; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM $view WHERE $column = '$name';"
		  . q{SELECT relname, seq_scan, seq_tup_read, idx_scan, idx_tup_fetch FROM pg_stat_xact_all_tables WHERE relname LIKE 'shedlock%' ORDER BY relname},
		@{ $as{$role} }) =~ s/\Q$name\E/NAME/gr;
}

$node->safe_psql('app', "SELECT shedlock_job('$_:ran', 'every 1 day'); CALL shedlock_run('$_:ran', 'SELECT 1')", @{ $as{$_} }) foreach 'billing', 'guest';
my %views = map { split /\|/ } split /\n/, $node->safe_psql('app', q{
	SELECT c.oid::regclass, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname IN ('name', 'lock_name')
	WHERE c.relkind = 'v' AND has_table_privilege('guest', c.oid, 'SELECT') AND EXISTS (
		SELECT FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
		WHERE e.extname = 'shedlock' AND d.classid = 'pg_class'::regclass AND d.objid = c.oid)});
cmp_ok(scalar keys %views, '>=', 4, 'views that a tenant may read');
foreach my $view (sort keys %views)
{
	is(told_of('guest', $view, $views{$view}, 'billing:ran'), told_of('guest', $view, $views{$view}, 'billing:xyz'), "$view: a tenant does not learn whether a foreign name has runs");
}
is($node->safe_psql('app', "SELECT name, last_outcome FROM shedlock_jobs; SELECT name, runs_succeeded FROM shedlock_stats", @{ $as{guest} }), "guest:ran|succeeded\nguest:ran|1", 'a tenant sees how its own run ended');
like($node->safe_psql('app', "SELECT shedlock_why('guest:ran')", @{ $as{guest} }), qr/succeeded/, 'shedlock_why says so, too');
is($node->safe_psql('app', "SET ROLE pg_read_all_stats; SELECT name FROM shedlock_history WHERE name LIKE '%:ran' ORDER BY name"), "billing:ran\nguest:ran", 'those that see all read the history');

#
# The statements in doc/operations.md remove a role's rows, except for a lock in an open
# transaction.
#
$node->safe_psql('app', 'TRUNCATE shedlock');
$node->safe_psql('app', q{SET shedlock.role_prefix = off; SET shedlock.max_lock_at_most_for = 0; SET ROLE guest;
DO $$BEGIN
	FOR i IN 1 .. 20000 LOOP
		PERFORM shedlock_acquire('flood ' || i, '100 years');
		IF i % 1000 = 0 THEN COMMIT; END IF;
	END LOOP;
END$$;
RESET ROLE; SELECT shedlock_acquire('of another role')});
my $fencing = session($node, dbname => 'app', @{ $as{guest} });
ask($fencing, "SELECT shedlock_acquire('guest:fenced')");
ask($fencing, "BEGIN; SELECT shedlock_assert('guest:fenced')");
my $taking = session($node, dbname => 'app', @{ $as{guest} });
ask($taking, "BEGIN; SELECT shedlock_acquire('guest:uncommitted')");
my $left = "SELECT string_agg(name, ' ' ORDER BY name COLLATE \"C\"), (SELECT string_agg(name, ' ' ORDER BY name COLLATE \"C\") FROM shedlock_locks) FROM shedlock";
run_block(2, 'a clean-up');
run_block(3, 'the rows of a role are removed');
is($node->safe_psql('app', $left), 'guest:fenced of another role|guest:fenced guest:uncommitted of another role', 'only rows in use are left');
ask($_, 'COMMIT') foreach $fencing, $taking;
run_block(2, 'a clean-up, again');
run_block(3, 'the rows of a role are removed again');
is($node->safe_psql('app', $left), 'of another role|of another role', 'no row of that role is left');
$_->quit foreach $fencing, $taking;

$node->stop;
done_testing();
