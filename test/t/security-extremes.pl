# No argument that one role passes, and no row that was written by hand, makes a view or a
# query of monitoring an error for its readers.  Each interval, time and text argument of
# each public function gets its extremes; then every view, every query of doc/monitoring and
# doc/timeline.sql must have an answer, which a driver in Python can read.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $has_cron = has_pg_cron();
my $node = $has_cron ? start_cron_node('main', "cron.use_background_workers = on\n") : start_node('main');
$node->safe_psql('postgres', 'CREATE EXTENSION shedlock') if $has_cron;

my $output = '';
my $has_driver = eval { IPC::Run::run([ '/usr/bin/python3', '-c', 'import psycopg' ], '<', \undef, '>&', \$output) };
ok($has_driver, 'Python and its library for PostgreSQL are here') or diag $output
  if grep { $_ eq 'python' } split / /, $ENV{SHEDLOCK_CLIENTS} // '';

my %extremes = (
	'interval' => [
		'1 us', '100 years', '1 day -1 us', '-1 us', '0', '106751991 days -2562047783:00:00', '-1 day 48 hours', '106751991 days 2562047783:00:00',
		'1 month -29 days', '36525 days', '2147483647 days', '178000000 years', '-178000000 years' ],
	'timestamp with time zone' => [ 'infinity', '-infinity', '4714-11-24 00:00:00+00 BC', '294276-12-31 23:59:59.999999+00', '0001-01-01 00:00+00', '9999-12-31 23:59:59+00', '20000-01-01' ],
	'text' => [
		'', ' ', 'every 1', 'every 1 s', 'every 100 years', 'every 1 day from 0001-01-01', 'every 1 s from infinity', q{'}, q{"}, '\\', '%s', '$1', '<b>', ':x', "a\tb", "\x{7f}", 'x' x 255, 'x' x 256, 'x' x 5000, "\x{c3}\x{a9}" x 255,
		"\x{e2}\x{80}\x{ae}", "\x{c2}\x{9b}", '-infinity', '106751991 days', 'UTC+2', 'X3', 'posix/UTC', 'Etc/GMT-14', '* * * * *', '0 0 29 2 sun', '59 23 31 12 *', '@yearly', 'null' ]);
$extremes{name} = $extremes{text};

# What a call needs besides the argument with the extreme
my %needed = (
	command => "'SELECT 1'", every => "'1 h'", tick => "'2026-01-01'", after => 'now()', schedule => "'* * * * *'", token => '1', outcome => "'failed'",
	permits => '2', problem => "'slow'", since => 'now()', state => "'begun'", older_than => "'1 h'", old_table => "'old_locks'");

# The public functions and procedures, with the names, types and defaults of their arguments
my %function;
foreach (
	split /\n/,
	$node->safe_psql(
		'postgres', q{
SELECT p.proname, p.prokind, a.name, format_type(t.oid, NULL), a.n > p.pronargs - p.pronargdefaults
FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
	 JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'shedlock'
	 CROSS JOIN LATERAL unnest(p.proargtypes::oid[], p.proargnames[1:p.pronargs]) WITH ORDINALITY a (type, name, n) JOIN pg_type t ON t.oid = a.type
WHERE p.proname NOT LIKE '\_%' ORDER BY p.oid, a.n}))
{
	my ($name, $kind, $argument, $type, $has_default) = split /\|/;

	next if $name =~ /^shedlock_cron/ && !$has_cron;
	$function{$name}{kind} = $kind;
	push @{ $function{$name}{arguments} }, { name => $argument, type => $type, needed => $has_default eq 'f' };
}
cmp_ok(scalar keys %function, '>=', 25, 'the public functions are found');

# Returns a call of a function for a lock or job; one argument has the given literal.
sub call_of
{
	my ($function, $job, $argument, $literal) = @_;
	my @list;

	foreach (@{ $function{$function}{arguments} })
	{
		if ($_->{name} eq $argument) { push @list, "$argument => $literal" }
		elsif ($_->{name} =~ /^(?:name|job_name|job)$/) { push @list, "$_->{name} => '$job'" }
		elsif ($_->{name} eq 'names') { push @list, "names => ARRAY['$job', '$job, too']" }
		elsif ($_->{needed}) { push @list, "$_->{name} => " . ($needed{ $_->{name} } // die "$function needs $_->{name}") }
	}

	return ($function{$function}{kind} eq 'p' ? 'CALL ' : 'SELECT * FROM ') . "$function(" . join(', ', @list) . ')';
}

# Returns the statements for all extremes of the arguments of a function: each for a job
# that is new, and for one that is declared, and has a lease, a tick and a run.
sub calls_of
{
	my ($function) = @_;
	my ($calls, $n) = ('', 0);

	foreach my $argument (@{ $function{$function}{arguments} })
	{
		foreach my $extreme (@{ $extremes{ $argument->{type} } // [] })
		{
			# would end this session
			next if $function eq 'shedlock_acquire_session' && "$argument->{name} $extreme" eq 'lock_at_most_for 1 us';
			my $literal = "'" . $extreme =~ s/'/''/gr . "'";

			$n++;
			$calls .= call_of($function, "$function new $n", $argument->{name}, $literal) . ";\n";
			next if $argument->{name} eq 'wait';
			$calls .= "SELECT shedlock_job('$function old $n', 'every 1 s', attempts => 2);\nCALL shedlock_run('$function old $n', 'SELECT 1');\nSELECT shedlock_acquire('$function old $n');\n"
			  . call_of($function, "$function old $n", $argument->{name}, $literal) . ";\n";
		}
	}
	return $calls;
}

# What is read: text by its title
my %reading = map { $_ => "SELECT * FROM $_" } split /\n/, $node->safe_psql('postgres', q{SELECT relname FROM pg_class WHERE relkind = 'v' AND relname LIKE 'shedlock\_%'});
my $queries = slurp_file('doc/monitoring/queries.yaml');
$reading{"query $1"} = $2 while $queries =~ /^(\w+):\n  query: \|\n((?:    .*\n)+)/mg;
cmp_ok(scalar(grep { /^query/ } keys %reading), '>=', 7, 'the queries of doc/monitoring are found');
delete $reading{shedlock_cron_jobs} if !$has_cron;

my $python = q{
import sys, psycopg
for query in sys.stdin.read().split("\0"):
    with psycopg.connect(sys.argv[1]) as db:
        db.execute(query).fetchall()
};

# Tests that everything can be read.
sub all_is_read
{
	my ($when) = @_;
	my (undef, undef, $wrong) = $node->psql('postgres', "\\set ECHO errors\n" . join(";\n", values %reading), on_error_stop => 0);
	my ($page, $err) = run_command([ 'scripts/timeline', '-d', $node->connstr('postgres') ]);
	$wrong .= "timeline: $err\n" if $? != 0 || $err ne '' || $page !~ /<\/html>/;
	if ($has_driver)
	{
		my $said = '';

		IPC::Run::run([ '/usr/bin/python3', '-c', $python, $node->connstr('postgres') ], '<', \join("\0", values %reading), '>&', \$said)
		  or $wrong .= "psycopg: $said\n";
	}
	is($wrong, '', "everything can be read $when");
	return;
}

$node->safe_psql('postgres', 'CREATE TABLE old_locks (name text PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by text NOT NULL)');
foreach my $purges (0, 1)
{
	my $calls = join '', map { calls_of($_) } grep { $purges == /purge/ } sort keys %function;
	my ($status, $out, $err) = $node->psql('postgres', "SET client_min_messages = error; SET shedlock.max_wait = '100 ms';\n\\set VERBOSITY verbose\n$calls", on_error_stop => 0);
	my @calls = $calls =~ /;\n/g;

	# A bad argument is refused as such, not by an internal error, but for those of pg_cron.
	is(join("\n", grep { /^(?:XX|57P|58)/ && !/^XX000: (?:invalid schedule|role ".*" does not exist)/ } $err =~ /(?:ERROR|FATAL|PANIC): +(\w{5}: .*)/g), '', 'bad arguments are refused in an orderly way');
	cmp_ok(scalar(() = $err =~ /ERROR: +22023/g), '>', $purges ? 5 : 200, 'extremes that are no good are refused, of ' . @calls . ' calls');
	all_is_read($purges ? 'after a purge' : 'after all calls');
}

# Locks in each state; sessions end with their locks.
my $session = session($node);
ask($session, q{SELECT shedlock_acquire_session('for ever'), shedlock_acquire_session('for an hour', '1 h'), shedlock_pause('for ever'), shedlock_pause('for an hour', now() + '1 h'), shedlock_pause('free')});
ask($session, q{BEGIN; SELECT shedlock_acquire('uncommitted')});
all_is_read('while locks are held, paused and uncommitted');
is( $node->safe_psql('postgres', q{SELECT name, paused, paused_until IS NULL, state FROM shedlock_locks WHERE name IN ('for ever', 'for an hour', 'free', 'uncommitted') ORDER BY name}),
	"for an hour|t|f|held\nfor ever|t|t|held\nfree|t|t|paused\nuncommitted|f|t|uncommitted", 'a pause without an end has no time');
$session->quit;

# What earlier versions or superusers may have written
$node->safe_psql(
	'postgres', q{
INSERT INTO shedlock (name, lock_until, locked_at, locked_by, kind, token, paused_until)
SELECT concat('hand ', t, kind), t, t, 'x', kind, 1, u
FROM unnest('{infinity, -infinity, 4714-11-24 BC, 294276-12-31, 0001-01-01, 9999-12-31}'::timestamp[]) t, unnest('{lease, session, run, leased run}'::text[]) kind,
	 unnest('{294276-12-31, infinity}'::timestamptz[]) u
ON CONFLICT DO NOTHING;
INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by, period, token, attempt, done, retry_at, again_at, skipped)
SELECT concat('hand ', t, p, s, z, c), t, t, 'x', p, 1, 1, false, t, CASE WHEN c = 'all' THEN t END, t
FROM unnest('{infinity, -infinity, 4714-11-24 BC, 294276-12-31 23:59:59.999999+00, 0001-01-01, 9999-12-31, 2026-01-01}'::timestamptz[]) t,
	 (SELECT p, NULL, NULL, NULL FROM unnest('{106751991 days -2562047783:00:00, -1 day 48 h, 100 years, 0, -1 h, 1 month, 178000000 years}'::interval[]) p
	  UNION ALL SELECT NULL, s, z, c FROM unnest('{@yearly, * * * * *, every 1, every 1 s, every 178000000 years, nonsense}'::text[]) s, unnest('{UTC, UTC+2, X3, Nowhere}'::text[]) z,
			unnest('{latest, all, none}'::text[]) c) x (p, s, z, c);
-- Each with and without a row of its ticks
INSERT INTO _shedlock_job (name, schedule, time_zone, attempts, backoff, catch_up, max_late, overdue_after, slow_after, lock_at_most_for, since, carried, spent_token, created_at, created_by, declared_at, declared_by, turns)
SELECT concat('hand ', t, CASE WHEN with_tick THEN '' ELSE ' declared ' END, s, z, c), s, z, 3, coalesce(d.n, '1 min'), c, d.n, coalesce(d.n, '0'), d.n, d.n, t, t, 1, t, 'nobody', t, 'nobody', 2147483647
FROM unnest('{infinity, -infinity, 4714-11-24 BC, 294276-12-31 23:59:59.999999+00, 0001-01-01, 9999-12-31, 2026-01-01}'::timestamptz[]) WITH ORDINALITY u (t, i),
	 unnest('{@yearly, * * * * *, every 1, every 1 s, every 178000000 years, nonsense}'::text[]) s, unnest('{UTC, UTC+2, X3, Nowhere}'::text[]) z,
	 unnest('{latest, all, none}'::text[]) WITH ORDINALITY v (c, j), unnest('{true, false}'::boolean[]) with_tick,
	 LATERAL (SELECT ('{178000000 years, -178000000 years, NULL, -1 us}'::interval[])[1 + (i + j) % 4]) d (n);
INSERT INTO _shedlock_history (token, name, command, tick, attempt, started_at, ended_at, outcome, locked_role, locked_by, pid)
SELECT 1000000 + row_number() OVER (), name, '', tick, 1, b, e, o, 10, 'x', 1
FROM (SELECT name, tick FROM _shedlock_tick WHERE name LIKE 'hand%' AND isfinite(tick) AND extract(year FROM tick) BETWEEN 1 AND 9998) k,
	 (VALUES (now() - interval '1 h', now()), (now() - interval '1 min', NULL)) r (b, e), unnest('{failed, running, lost}'::text[]) o;
});
all_is_read('with rows that were written by hand');
is($node->safe_psql('postgres', "SELECT count(*) FROM ($reading{'query shedlock_job'}) q WHERE gave_up IS NULL"), 0, 'whether a job gave up is never unknown');
is($node->safe_psql('postgres', q{SELECT count(*), bool_and(v.problem = 'its schedule cannot be read any more') FROM shedlock_jobs v JOIN _shedlock_job j USING (name) WHERE abs(extract(year FROM j.backoff)) > 100}) =~ /^\d{3,}\|t$/ ? 1 : 0,
	1, 'a job with a duration of millions of years cannot be read');

SKIP:
{
	skip 'there is no pg_cron for this PostgreSQL', 1 unless $has_cron;

	# Jobs of a role that writes its CALL itself
	$node->safe_psql(
		'postgres', q{
SELECT cron.schedule(concat('own ', n), '0 0 1 1 *', format('CALL public.shedlock_run(%L, ''SELECT 1'', lock_at_most_for => %L)', 'hand' || n, p))
FROM unnest('{106751991 days -2562047783:00:00, -1 day 48 h, 100 years, 1 us, 0, -1 h, 1 month, 178000000 years}'::text[]) WITH ORDINALITY u (p, n);
INSERT INTO _shedlock_tick (name, tick, claimed_at, claimed_by) SELECT 'hand' || n, '4714-11-24 BC'::timestamptz, now(), '' FROM generate_series(1, 4) n
UNION ALL SELECT 'hand' || n, '294276-12-31 23:59:59.999999+00', now(), '' FROM generate_series(5, 8) n;
SELECT shedlock_job(z, '@yearly') FROM unnest('{UTC+2, X3, Nowhere}'::text[]) z;
UPDATE _shedlock_job SET time_zone = name WHERE name IN ('UTC+2', 'X3', 'Nowhere');
SELECT cron.schedule(concat('zone ', z), '* * * * *', format('CALL public.shedlock_run(%L, ''SELECT 1'')', z)) FROM unnest('{UTC+2, X3, Nowhere}'::text[]) z;
});
	all_is_read('with calls of jobs that were written by hand');
	foreach my $tick ('4714-11-24 BC', '294276-12-31 23:59:59.999999+00', 'infinity', '-infinity')
	{
		$node->safe_psql('postgres', "UPDATE _shedlock_tick SET tick = '$tick' WHERE name ~ '^hand.\$'");
		all_is_read("with such jobs and tick $tick");
	}
}

done_testing();
