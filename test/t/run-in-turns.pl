# Two versions of a service that both declare a job, in turns, as in a rollout, while replicas
# call for it.  Each tick of either schedule gets one run that succeeds, and no attempt that is
# left is lost.  No session gets an error, whatever its isolation level.  Each change is a line
# of the log, and the job's problem says that it is declared in turns.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use SkewedClock;
use Test::More;
use Time::HiRes qw(sleep);

my $node = with_movable_clock { start_node('main') };
my $scripts = 0;

# Starts clients of pgbench that repeat scripts, as long as the options say.
sub start_clients
{
	my ($out, $clients, $options, @scripts) = @_;
	my @files = map { PostgreSQL::Test::Utils::tempdir . '/script' . $scripts++ . '.sql' } @scripts;

	append_to_file($files[$_], $scripts[$_]) foreach 0 .. $#scripts;
	return IPC::Run::start([ 'pgbench', '-n', '-D', 'n=0', '-h', $node->host, '-p', $node->port, '-c', $clients, @$options, (map { ('-f', $_) } @files), 'postgres' ],
		'<', \undef, '>&', $out);
}

sub errors_in
{
	my ($out) = @_;

	return join "\n", $out =~ /(?:ERROR|WARNING|FATAL): .*/g;
}

# What the declarers were told
$node->safe_psql('postgres', 'CREATE TABLE told (name text, answer text)');

# A statement in a transaction of each isolation level
sub levels
{
	my ($before, $statement) = @_;

	return map { "${before}BEGIN ISOLATION LEVEL $_;\n$statement;\nCOMMIT;\n" } 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE';
}

#
# Six sessions declare the same jobs first, at once, in the same order.  Half of the jobs have
# two versions.
#
my $out = '';
my $name = q{'new ' || :n};
my $first = start_clients(\$out, 6, [ '-t', 60 ],
	levels("\\set n :n + 1\n", "INSERT INTO told SELECT $name, shedlock_job($name, CASE WHEN :n % 2 = 0 AND :client_id % 2 = 0 THEN 'every 2 h' ELSE 'every 1 h' END)"));
ok($first->finish, 'first declarations: pgbench comes to its end');
is(errors_in($out), '', 'first declarations: no session gets an error');
is( $node->safe_psql('postgres', q{
SELECT count(*), min(created), max(created), bool_and(n % 2 = 0 OR changed = 0) FROM (
	SELECT substr(name, 5)::integer AS n, count(*) FILTER (WHERE answer = 'created') AS created, count(*) FILTER (WHERE answer = 'changed') AS changed
	FROM told GROUP BY name) s}),
	'60|1|1|t', 'first declarations: one creates each job, and the others wait, and compare');

#
# In turns
#
my %version = (
	turns => [ "'*/2 * * * *', attempts => 1000, backoff => '0'", "'1-59/2 * * * *', attempts => 999, backoff => '0'" ],
	periods => [ "'every 1 s', attempts => 1000, backoff => '0'", "'every 2 s', attempts => 999, backoff => '0'" ]);
my $log = -s $node->logfile;
my @declare = map {
	my $job = $_;
	map { levels("\\sleep 3 ms\n", "INSERT INTO told SELECT '$job', shedlock_job('$job', $_)") } @{ $version{$job} }
} sort keys %version;

# A third of the runs outside the database fail, so that attempts follow.
my @work = map {
	(   "SELECT coalesce(token, 0) AS token FROM shedlock_run_begin('$_', '10 min') \\gset\n"
		  . "\\if :token\nSELECT shedlock_run_end('$_', :token, CASE WHEN random() < 0.3 THEN 'failed' ELSE 'succeeded' END);\n\\endif\n",
		"CALL shedlock_run('$_', 'SELECT 1');\n")
} sort keys %version;
my ($declared, $worked) = ('', '');

# A name that is not declared has no ticks.
$node->safe_psql('postgres', join '', map { "SELECT shedlock_job('$_', $version{$_}[0]);" } sort keys %version);
local $ENV{PGOPTIONS} = '-c client_min_messages=warning';
my $declarers = start_clients(\$declared, 4, [ '-T', 3600 ], @declare);
my $workers = start_clients(\$worked, 4, [ '-T', 3600 ], @work);

# A tick each minute, of one version or the other
my $session = session($node);
my $begin = ask($session, "SELECT date_trunc('minute', clock_timestamp()) + interval '1 min'");
foreach (1 .. ($ENV{SHEDLOCK_SKEW} ? 12 : 3))
{
	my $left = ask($session, 'SELECT 60 - extract(second FROM clock_timestamp())');

	advance_clock($left) or sleep($left);
	ok(defined await($session, q{SELECT count(*) = 1 FROM shedlock_history WHERE name = 'turns' AND outcome = 'succeeded' AND tick = date_trunc('minute', clock_timestamp())}),
		'the tick of this minute has a run that succeeds') or last;
	sleep(0.2);
}
ok($_->pumpable, 'the clients are still at work') foreach $declarers, $workers;
$_->signal('TERM') foreach $declarers, $workers;
eval { $_->finish } foreach $declarers, $workers;
is(errors_in($declared), '', 'no session that declares gets an error');
is(errors_in($worked), '', 'no session that works gets an error');

# A client that was stopped may have changed the job, and not have told so.
defined await($session, "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pgbench'") or die 'a client lives';
foreach my $job (sort keys %version)
{
	my $lines = () = slurp_file($node->logfile, $log) =~ /LOG:  job "$job" changed by role "postgres": schedule from "[^"]+" to "[^"]+", attempts from/g;
	my $changes = ask($session, "SELECT count(*) FROM told WHERE name = '$job' AND answer = 'changed'");

	cmp_ok($changes, '>', 30, "$job: it is declared in turns");
	cmp_ok($lines, '>=', $changes, "$job: each change is a line of the log");
	cmp_ok($lines, '<=', $changes + 4, "$job: and nothing else is");
	is(ask($session, "SELECT count(*) FROM told WHERE name = '$job' AND answer = 'created'"), '0', "$job: nobody creates it again");
	like(ask($session, "SELECT problem FROM shedlock_jobs WHERE name = '$job'"), qr/^declared in turns: changed \d+ times, each time within an hour of the last, lately by role "postgres"/, "$job: its problem says so");

	is(ask($session, qq{
SELECT coalesce(string_agg(tick || ': ' || runs, E'\n'), '') FROM (
	SELECT tick, string_agg(attempt || ' ' || outcome, ', ' ORDER BY token) AS runs, max(attempt) = count(*) AS complete,
		   max(token) FILTER (WHERE outcome = 'succeeded') < max(token) OR count(*) FILTER (WHERE outcome = 'succeeded') > 1 AS goes_on
	FROM shedlock_history WHERE name = '$job' GROUP BY tick) s
WHERE goes_on OR NOT complete}), '', "$job: no attempt at a tick is lost, and none follows one that succeeds");
}
is(ask($session, qq{
SELECT count(*), count(DISTINCT tick) FILTER (WHERE extract(minute FROM tick)::integer % 2 = 0) > 0, count(DISTINCT tick) FILTER (WHERE extract(minute FROM tick)::integer % 2 = 1) > 0
FROM shedlock_history WHERE name = 'turns' AND outcome = 'succeeded' AND tick >= '$begin'}),
	ask($session, qq{SELECT count(*) FROM generate_series('$begin'::timestamptz, clock_timestamp(), '1 min')}) . '|t|t', 'turns: each tick of both versions has one run that succeeds');

SKIP:
{
	skip 'the clock cannot be moved', 1 unless advance_clock(3600);
	is(ask($session, "SELECT count(problem) FROM shedlock_jobs WHERE name IN ('turns', 'periods')"), '0', 'an hour after the last change there is no problem any more');
}
$session->quit;

$node->stop;
done_testing();
