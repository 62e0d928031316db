# What doc/monitoring has is tried with Debian's prometheus-postgres-exporter and Prometheus.
#
# A server has a job of each fate.  Prometheus asks the exporter each second; the alerts wait
# for seconds instead of minutes and days.  Those that must fire do, and no others; each
# expression of the dashboard has an answer, and the numbers are right.  A job that fails is
# heard of by NOTIFY, counted and alerted.  At last the exporter is stopped.
#
# The dashboard is generated again and compared, if npm can fetch the library.  Nothing here
# draws it.
#
# Debian packages: prometheus promtool prometheus-postgres-exporter

use strict;
use warnings FATAL => 'all';
use CPAN::Meta::YAML;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use File::Copy;
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep time);

my $root = "$FindBin::RealBin/../..";
my $shipped = "$root/doc/monitoring";
my $dir = PostgreSQL::Test::Utils::tempdir;
my ($alerts, $tests, $expressions) = map { slurp_file("$shipped/$_") } qw(alerts.yaml alerts.test.yaml dashboard.json);
my @panels = @{ decode_json($expressions)->{panels} };
my @choices = grep { $_->{type} eq 'query' } @{ decode_json($expressions)->{templating}{list} };
my $http = HTTP::Tiny->new(timeout => $PostgreSQL::Test::Utils::timeout_default);
my ($node, $prometheus, %child);

plan skip_all => 'this needs the program prometheus-postgres-exporter' unless found('prometheus-postgres-exporter');
plan skip_all => 'this needs the programs prometheus and promtool' unless found('prometheus') && found('promtool');
eval { require DBD::Pg; DBI->import; 1 } or plan skip_all => 'this needs the Perl module DBD::Pg';

sub found
{
	my ($program) = @_;

	return scalar grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

END
{
	local $? = 0;
	kill 'TERM', values %child;
	waitpid($_, 0) foreach values %child;
}

#
# What is shipped
#

# Returns the exit status of a program and what it says.
sub said
{
	my (@command) = @_;
	my $out = '';

	IPC::Run::run(\@command, '<', \undef, '>&', \$out, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return ($? >> 8, $out);
}

sub succeeds
{
	my ($claim, @command) = @_;
	my ($status, $out) = said(@command);

	is($status, 0, $claim) or diag $out;
	return;
}

# Returns those of the words that a text does not have.
sub missing
{
	my ($text, @words) = @_;

	return grep { $text !~ /\b\Q$_\E\b/ } @words;
}

# The metrics that the queries make: one of each column that is not a label
sub metrics
{
	my $queries = CPAN::Meta::YAML->read("$shipped/queries.yaml")->[0];
	my @metrics;

	foreach my $namespace (keys %$queries)
	{
		foreach my $column (@{ $queries->{$namespace}{metrics} })
		{
			my ($name, $is) = %$column;

			push @metrics, "${namespace}_$name" if $is->{usage} ne 'LABEL';
		}
	}
	return @metrics;
}

sub check_files
{
	my @metrics = metrics();
	my %known = map { $_ => 1 } @metrics;
	my @rules = $alerts =~ /^ *- alert: (\w+)$/mg;
	my $manual = slurp_file("$root/doc/monitoring.md");
	my (@unknown, @overlaps, %id, %taken);

	succeeds('promtool takes the configuration', qw(promtool check config), "$shipped/prometheus.yml");
	succeeds('promtool takes the alerts', qw(promtool check rules), "$shipped/alerts.yaml");
	succeeds('the alerts pass their tests', qw(promtool test rules), "$shipped/alerts.test.yaml");
	is_deeply([ missing($tests, @rules) ], [], 'each alert has a test');
	is_deeply([ missing($manual, @rules, @metrics) ], [], 'the manual has each alert and metric');

	push @unknown, grep { !$known{$_} } /\b(shedlock_(?!history|jobs\b|locks|problems|why|again)\w+)/g
	  foreach $alerts =~ s/^ *#.*//mgr, (map { $_->{query} } @choices), map { $_->{expr} } map { @{ $_->{targets} } } @panels;
	is_deeply(\@unknown, [], 'the queries make each metric of the alerts and the dashboard');

	$id{ $_->{id} }++ foreach @panels;
	is(scalar keys %id, scalar @panels, 'the ids of the panels are unique');
	foreach my $panel (@panels)
	{
		my $at = $panel->{gridPos};

		foreach my $x ($at->{x} .. $at->{x} + $at->{w} - 1)
		{
			push @overlaps, $panel->{title}
			  if grep { $taken{"$x,$_"}++ } $at->{y} .. $at->{y} + $at->{h} - 1 or $x > 23;
		}
	}
	is_deeply(\@overlaps, [], 'no panel covers another, or leaves the grid');
	return;
}

# Generates the dashboard, as the head of dashboard.js says.
sub check_generated
{
	my $copy = "$dir/board";

  SKIP:
	{
		skip 'the dashboard is not generated: there is no npm', 2 unless found('node') && found('npm');
		mkdir $copy or die "mkdir: $!";
		copy("$shipped/$_", $copy) or die "copy: $!" foreach qw(dashboard.js package.json package-lock.json);
		# With --prefix npm would not read the configuration of the machine.
		my ($status, $out) = said('env', '-C', $copy, qw(npm ci --ignore-scripts --no-audit --no-fund));
		skip 'the dashboard is not generated: npm cannot fetch the library', 2
		  if $status != 0 && $out =~ /\b(?:ENOTFOUND|EAI_AGAIN|ECONN\w+|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|\w+_CERT_\w+)\b/;
		is($status, 0, 'npm installs the library') or diag $out;
		($status, $out) = said('node', "$copy/dashboard.js");
		is($out, $expressions, 'the dashboard is what its generator makes');
	}
	return;
}

#
# Server, exporter, Prometheus
#

# Starts a program in the background.  Its output goes to a log.
sub spawn
{
	my ($name, @command) = @_;
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		open(STDIN, '<', '/dev/null')
		  && open(STDOUT, '>>', "$PostgreSQL::Test::Utils::log_path/$name.log")
		  && open(STDERR, '>&', \*STDOUT)
		  && exec(@command);
		POSIX::_exit(127);
	}
	$child{$name} = $pid;
	return;
}

# Runs statements in a session that nobody waits for.
sub in_background
{
	my ($name, @statements) = @_;

	spawn($name, 'psql', '-X', '-q', '-d', $node->connstr('postgres'), map { ('-c', $_) } @statements);
	return;
}

sub start_exporter
{
	my ($port) = @_;
	my (undef, $help) = said('prometheus-postgres-exporter', '--help');

	# The manual says for which versions that is.
	my @without = $help =~ /--collector\.bgwriter / ? qw(--no-collector.database --no-collector.bgwriter) : ();

	local $ENV{DATA_SOURCE_NAME} = join ',', map { $node->connstr($_) . ' user=monitoring sslmode=disable' } 'postgres', 'other';
	spawn('exporter', 'prometheus-postgres-exporter', "--web.listen-address=127.0.0.1:$port",
		"--extend.query-path=$shipped/queries.yaml", qw(--disable-default-metrics --disable-settings-metrics), @without);
	return;
}

# Starts Prometheus with the files that are shipped, except that it asks and judges each
# second, and that no alert waits for longer than two.
sub start_prometheus
{
	my ($exporter_port) = @_;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $waits = () = $alerts =~ /^ *for: /mg;

	append_to_file("$dir/alerts.yaml", $alerts =~ s/^( *for:) \w+$/$1 2s/mgr);
	is(scalar(() = slurp_file("$dir/alerts.yaml") =~ /for: 2s$/mg), $waits, 'the alerts wait for two seconds');
	append_to_file("$dir/prometheus.yml",
		slurp_file("$shipped/prometheus.yml") =~ s/_interval: \w+/_interval: 1s/gr =~ s/"localhost:\d+"/"127.0.0.1:$exporter_port"/r);
	$prometheus = "http://127.0.0.1:$port/api/v1";
	spawn('prometheus', 'prometheus', "--config.file=$dir/prometheus.yml", "--storage.tsdb.path=$dir/tsdb",
		"--web.listen-address=127.0.0.1:$port", '--log.level=warn');
	return;
}

# Returns what Prometheus answers, or undef if it does not.
sub api
{
	my ($path, %arguments) = @_;
	my $answer = $http->post_form("$prometheus/$path", \%arguments);

	return $answer->{success} ? decode_json($answer->{content})->{data} : undef;
}

sub api_get
{
	my ($path) = @_;
	my $answer = $http->get("$prometheus/$path");

	return $answer->{success} ? decode_json($answer->{content})->{data} : undef;
}

# Returns the series that an expression gives now: [labels, value].
sub series
{
	my ($expr) = @_;
	my $data = api('query', query => $expr) or return;

	return map { [ $_->{metric}, $_->{value}[1] ] } @{ $data->{result} };
}

# Returns the alerts that fire or are pending: "alert: name".
sub alerts_in
{
	my ($state) = @_;
	my $data = api_get('alerts') or return 'no answer';

	return sort map { join ': ', $_->{labels}{alertname}, $_->{labels}{name} // () } grep { $_->{state} eq $state } @{ $data->{alerts} };
}

# Waits until these alerts fire, and none is pending.
sub fires
{
	my ($claim, @expected) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my @firing;

	@expected = sort @expected;
	until ("@{[ @firing = alerts_in('firing') ]}" eq "@expected" && !alerts_in('pending') || time > $end)
	{
		sleep(0.2);
	}
	is_deeply(\@firing, \@expected, $claim) or diag 'pending: ', join ', ', alerts_in('pending');
	return;
}

# Waits until the alerts were judged again that many times.
sub judged_again
{
	my ($times) = @_;
	my $last = '';

	while ($times >= 0)
	{
		my $group = api_get('rules')->{groups}[0]{lastEvaluation};

		$times-- if $group ne $last;
		$last = $group;
		sleep(0.1);
	}
	return;
}

#
# Fates of jobs
#

# Declares jobs, one attempt a tick if nothing else is said.
sub declare
{
	my ($schedule, $options, @names) = @_;

	$node->safe_psql('postgres', "SELECT shedlock_job('$_', '$schedule'$options)") foreach @names;
	return;
}

# Lets a job look as if it was declared, and last run, long ago.
sub set_back
{
	my ($name, $by) = @_;

	$node->safe_psql('postgres', "UPDATE _shedlock_tick SET tick = tick - interval '$by' WHERE name = '$name';"
		  . "UPDATE _shedlock_job SET since = since - interval '$by', created_at = created_at - interval '$by', "
		  . "declared_at = declared_at - interval '$by' WHERE name = '$name';"
		  . "UPDATE shedlock SET locked_at = locked_at - interval '$by', lock_until = lock_until - interval '$by' WHERE name = '$name'");
	return;
}

# Runs a job to its end.
sub run_job
{
	my ($name, $command, $options) = @_;

	$node->psql('postgres', "CALL shedlock_run('$name', '$command'" . ($options // '') . ')');
	return;
}

# Waits until a lock is held.  "long": lets it look as if it were held for hours.
sub held
{
	my ($name, $long) = @_;

	defined await($node, "SELECT count(*) = 1 FROM shedlock_locks WHERE name = '$name'") or die "$name is not held";
	$node->safe_psql('postgres', "UPDATE shedlock SET locked_at = locked_at - interval '2 hours' WHERE name = '$name'")
	  if $long;
	return;
}

sub make_fates
{
	my $period = 'every 20000 days';

	declare($period, '', 'succeeded', 'not fired', 'paused', 'heard', 'gave up', 'cancelled', 'died');
	run_job($_, 'SELECT 1') foreach 'succeeded', 'not fired', 'paused', 'heard';
	declare($period, ", attempts => 2, backoff => '1 h'", 'failed');
	run_job('failed', 'SELECT 1/0');
	run_job('timed out', 'SELECT pg_sleep(600)', ", '1 s'");
	run_job('gave up', 'SELECT 1/0');

	in_background('cancelled', "CALL shedlock_run('cancelled', 'SELECT pg_sleep(600)')");
	held('cancelled');
	$node->safe_psql('postgres', "SELECT shedlock_cancel('cancelled')");

	# The next run of the name finds it.
	$node->safe_psql('postgres', "SELECT shedlock_run_begin('lost', '1 s')");
	defined await($node, "SELECT outcome = 'lost' FROM shedlock_history WHERE name = 'lost'") or die 'the run is not lost';
	$node->safe_psql('postgres', "SELECT shedlock_run_end('lost', token) FROM shedlock_run_begin('lost', '1 h')");

	# The last attempt is lost, and no call has found that yet.
	$node->safe_psql('postgres', "SELECT shedlock_run_begin('died', '1 s')");
	defined await($node, "SELECT outcome = 'lost' FROM shedlock_history WHERE name = 'died'") or die 'the run is not lost';

	declare($period, ", slow_after => '1 s'", 'slow', 'failed over');
	in_background($_, "CALL shedlock_run('$_', 'SELECT pg_sleep(600)')") foreach 'running', 'held too long', 'slow', 'failed over';
	held($_) foreach 'running', 'slow';
	held($_, 'long') foreach 'held too long', 'failed over';

	# As if it had begun on the primary before this one
	$node->safe_psql('postgres', "UPDATE shedlock SET origin = (1000000000 * random())::integer WHERE name = 'failed over'");
	declare($_, ", overdue_after => '1 day'", 'in turns') foreach ($period, 'every 10000 days') x 2;

	# Neither is held for too long, because leaders hold their locks for weeks.
	in_background('leader', "SELECT shedlock_acquire_session('leader', '1 day')", 'SELECT pg_sleep(600)');
	held('leader', 'long');
	$node->safe_psql('postgres', "SELECT shedlock_acquire('crowd', '1 h')");
	held('crowd', 'long');
	append_to_file("$dir/wait.sql", "SELECT shedlock_acquire('crowd', '1 h', wait => '1 h');\n");
	spawn('crowd', 'pgbench', '-n', '-c', 21, '-t', 1, '-f', "$dir/wait.sql", $node->connstr('postgres'));

	# Late calls run nothing with max_late.
	declare('@yearly', '', 'never called');
	declare('@yearly', ", max_late => '1 min'", 'always late');
	run_job('always late', 'SELECT 1');
	$node->safe_psql('postgres', "SELECT shedlock_pause('paused')");
	$node->safe_psql('postgres', "SELECT shedlock_once_every('claimed', '1 day')");
	set_back($_, '3 years') foreach 'never called', 'always late', 'not fired', 'paused', 'claimed';

	defined await($node, "SELECT waiters = 21 FROM shedlock_locks WHERE name = 'crowd'") or die 'there are too few waiters';
	return;
}

# In the order of the fates above
my @expected = (
	'ShedlockOverdue: not fired',
	'ShedlockPaused: paused',
	'ShedlockRunFailed: failed',
	'ShedlockRunFailed: timed out',
	'ShedlockRunFailed: gave up', 'ShedlockGaveUp: gave up',
	'ShedlockRunFailed: lost',
	'ShedlockGaveUp: died',
	'ShedlockHeldTooLong: held too long', 'ShedlockHeldTooLong: slow',
	'ShedlockGaveUp: failed over',
	'ShedlockJobProblem: in turns',
	'ShedlockWaitersPileUp: crowd',
	'ShedlockOverdue: never called', 'ShedlockNoSuccess: never called',
	'ShedlockOverdue: always late', 'ShedlockNoSuccess: always late');

my %figures = (
	'Runs at work' => 3,
	'Other locks held' => 2,
	'Overdue' => 3,
	'Failures of the last day' => 4,
	'Gave up in the last day' => 1,
	'Paused' => 1);

my %states = (
	'succeeded' => 'idle',
	'cancelled' => 'idle',
	'heard' => 'idle',
	'lost' => 'idle',
	'nightly' => 'idle',
	'not fired' => 'overdue',
	'never called' => 'overdue',
	'always late' => 'overdue',
	'paused' => 'paused',
	'failed' => 'last run failed',
	'timed out' => 'last run failed',
	'gave up' => 'gave up',
	'died' => 'gave up',
	'failed over' => 'gave up',
	'running' => 'at work',
	'held too long' => 'at work',
	'slow' => 'at work',
	'in turns' => 'idle',
	'crowd' => undef,
	'leader' => undef,
	'claimed' => undef);

#
# What is seen of them
#

# Asks the expressions of the dashboard.
sub check_dashboard
{
	my (%figure, %state, @without);

	foreach my $panel (@panels)
	{
		foreach my $target (@{ $panel->{targets} })
		{
			my $expr = $target->{expr} =~ s/\$(?:datname|name)\b/.*/gr =~ s/\$__rate_interval\b/1m/gr;
			my @series = series($expr);

			push @without, "$panel->{title}: $target->{expr}" if !@series || $expr =~ /\$/;
			$figure{ $panel->{title} } = $series[0][1] if $panel->{type} eq 'stat' && @series;
			next if $panel->{type} ne 'state-timeline';
			my $words = $panel->{fieldConfig}{defaults}{mappings}[0]{options};
			$state{ $_->[0]{name} } = $words->{ $_->[1] }{text} foreach @series;
		}
	}
	is_deeply(\@without, [], 'each expression of the dashboard has an answer');
	is_deeply(\%figure, \%figures, 'the figures of the dashboard are right');
	is_deeply({ map { $_ => $state{$_} } keys %states, keys %state }, \%states, 'the timeline shows each job in its state');
	return;
}

# Compares the counters with the view.
sub check_counters
{
	my $sql = join ' UNION ALL ', map {
		my $outcome = $_ =~ tr/_/ /r;
		"SELECT name, '$outcome', runs_$_ FROM shedlock_stats WHERE runs_$_ > 0"
	} qw(succeeded failed timed_out cancelled lost);
	my %counted = map { ("$_->[0]{name}: $_->[0]{outcome}" => $_->[1]) } series('shedlock_runs_total{datname="postgres"} > 0');
	my %is = map { ("$1: $2" => $3) if /(.*)\|(.*)\|(.*)/ } split /\n/, $node->safe_psql('postgres', $sql);

	is_deeply(\%counted, \%is, 'the counters are those of shedlock_stats');
	is($counted{"$_: $_"}, 1, "one run $_") foreach 'succeeded', 'failed', 'timed out', 'cancelled', 'lost';
	is(join("\n", sort map { "$_->[0]{name}|$_->[0]{problem}|" . ($_->[1] > 1e9 || 0) } series('shedlock_problem_since_timestamp_seconds')),
		join("\n", sort split /\n/, $node->safe_psql('postgres', 'SELECT name, problem, (since IS NOT NULL)::integer FROM shedlock_problems')),
		'the problems are those of shedlock_problems');
	is(scalar(series('shedlock_job_overdue_seconds{name="claimed"}')), 0, 'a claim is not run, and never late');
	is(join(' ', sort map { $_->[0]{datname} } series('shedlock_info')), 'other postgres', 'the exporter asks two databases');
	return;
}

# A job fails: its event, its counter, its alert.
sub check_heard
{
	my $listener = DBI->connect('dbi:Pg:' . $node->connstr('postgres') =~ tr/ /;/r, 'monitoring', '', { RaiseError => 1 });
	my (%event, $took);

	$listener->do('LISTEN shedlock');
	set_back('heard', '1 day');
	declare('every 20000 days', '', 'new');
	run_job($_, 'SELECT 1/0') foreach 'heard', 'new';
	my $start = time;
	until (keys %event == 2 || time - $start > $PostgreSQL::Test::Utils::timeout_default)
	{
		my $notify = $listener->pg_notifies or sleep(0.01), next;
		my $said = decode_json($notify->[2]);

		$event{ $said->{name} } = $said if $said->{event} eq 'failed';
	}
	$took = time - $start;
	is($event{heard}{sqlstate}, '22012', 'an event tells of the failure');
	cmp_ok($took, '<', slowness($node), 'it arrives within a second');
	is($node->safe_psql('postgres', "SELECT outcome, sqlstate FROM shedlock_history WHERE token = " . ($event{heard}{token} // 0)),
		'failed|22012', 'its token leads to the history');
	$listener->disconnect;

	# The series of a new job begins with its first failure.
	fires('both failures are alerted', @expected, map { ("ShedlockRunFailed: $_", "ShedlockGaveUp: $_") } 'heard', 'new');
	is((series('shedlock_runs_total{name="heard", outcome="failed"}'))[0][1], 1, 'the failure is counted');
	is((series('increase(shedlock_runs_total{name="heard", outcome="failed"}[5m]) > bool 0'))[0][1], 1, 'the counter has moved');
	return;
}

check_files();
check_generated();

$node = start_node('main');
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', q{
	CREATE SCHEMA scheduling;
	CREATE EXTENSION shedlock SCHEMA scheduling;
	CREATE ROLE monitoring LOGIN;
	GRANT pg_monitor TO monitoring;
	GRANT USAGE ON SCHEMA scheduling TO monitoring;
	ALTER ROLE monitoring IN DATABASE other SET search_path = scheduling;
});
$node->safe_psql('other', $_) foreach "SELECT scheduling.shedlock_job('nightly', 'every 20000 days')", "CALL scheduling.shedlock_run('nightly', 'SELECT 1')";
make_fates();

my $exporter_port = PostgreSQL::Test::Cluster::get_free_port();
start_exporter($exporter_port);
start_prometheus($exporter_port);

fires('the right alerts fire, and no others', @expected);
judged_again(5);
is_deeply([ alerts_in('firing') ], [ sort @expected ], 'so they do five seconds later');
is_deeply([ grep { $_->{health} ne 'ok' } map { @{ $_->{rules} } } @{ api_get('rules')->{groups} } ], [], 'each rule has an answer');
check_counters();
check_dashboard();
check_heard();

my $problems = '';
my $scraped = $http->get("http://127.0.0.1:$exporter_port/metrics")->{content};
IPC::Run::run([qw(promtool check metrics)], '<', \$scraped, '>&', \$problems);
is($problems =~ s/^(?!.*shedlock_).*\n//mgr, '', 'promtool has nothing to say about the metrics');
unlike($scraped, qr/^shedlock_.* NaN$/m, 'none is NaN');

kill 'TERM', $child{exporter};
waitpid(delete $child{exporter}, 0);
# increase() still sees what was given up a minute ago.
fires('without the exporter there is one more alert', 'ShedlockExporterDown', 'ShedlockGaveUp: heard');

done_testing();
