# Six replicas call for one job, with timers that are evenly spaced or fire within 100 ms:
# each tick gets one run, never early, and no two runs overlap.  If the process at work is
# killed, its tick runs again on another replica, as soon as its lock is free and its
# backoff is over.  No call fails, except when the server crashes.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use List::Util qw(max);
use POSIX qw(ceil);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(time);

eval { require DBD::Pg; 1 } or plan skip_all => 'this needs the Perl module DBD::Pg';
require Replicas;

my $ticks = 60;
my $node = start_node('main', conf => "client_connection_check_interval = 200ms\nrestart_after_crash = on\nmax_connections = 60\n");
my $lease = 2 * slowness($node);
my $watcher = session($node);

$node->safe_psql('postgres', Replicas::schema());

# Starts the replicas of a job.
sub replicas
{
	my ($name, %options) = @_;

	return Replicas->start(
		node => $node, name => $name, lease => "$lease s", log => PostgreSQL::Test::Utils::tempdir . '/log', %options);
}

# Returns the runs of a job by the rows of their work, in order: tick, attempt, replica,
# client, began and ended, undef if the work did not end.  Each has the call that ran it.
sub runs_of
{
	my ($name, @calls) = @_;
	my @rows = split /\n/, $node->safe_psql(
		'postgres', "SELECT extract(epoch FROM tick), attempt, replica, client, extract(epoch FROM began),
			extract(epoch FROM ended) FROM work WHERE name = '$name' ORDER BY began");

	return map {
		my %run;

		@run{qw(tick attempt replica client began ended)} = map { $_ eq '' ? undef : $_ } split /\|/, $_, -1;
		($run{call}) = grep { $_->{replica} == $run{replica} && $_->{begin} <= $run{began} && ended_after($_, $run{began}) } @calls;
		\%run
	} @rows;
}

sub ended_after
{
	my ($call, $time) = @_;

	return !defined $call->{end} || $call->{end} >= $time;
}

# Returns the calls that ran nothing.
sub idle
{
	my ($runs, @calls) = @_;
	my %ran = map { $_->{call} => 1 } @$runs;

	return grep { !$ran{$_} } @calls;
}

# Returns whether a replica called in a tick's period while nobody held the lock.  A call
# that runs the job holds it before and after the work, too.  A run that took a period or
# longer has used up what passed meanwhile.
sub called_in
{
	my ($tick, $runs, @calls) = @_;

	foreach my $call (map { $_->{call} } @$runs)
	{
		return 0 if $call->{begin} < $tick && $call->{end} >= $tick && $call->{end} - $call->{begin} >= 1;
	}
	foreach my $call (grep { $_->{begin} >= $tick && $_->{end} < $tick + 1 } idle($runs, @calls))
	{
		return 1 unless grep { $_->{call}{begin} <= $call->{end} && $_->{call}{end} >= $call->{begin} } @$runs;
	}
	return 0;
}

# Returns the calls around a tick, for people to read.
sub around
{
	my ($tick, $runs, @calls) = @_;
	my %run = map { $_->{call} => $_ } @$runs;

	return map { sprintf "  replica %s called %+.3f to %+.3f: %s\n", $_->{replica}, $_->{begin} - $tick, $_->{end} - $tick,
		$run{$_} ? "run for tick $run{$_}{tick}" : 'none' }
	  sort { $a->{begin} <=> $b->{begin} } grep { $_->{end} > $tick - 2 && $_->{begin} < $tick + 2 } @calls;
}

# Checks what holds for each job: none early, never two at once, ticks in order.
sub check_runs
{
	my ($name, $runs) = @_;
	my (@early, @overlaps, @backwards, $before);

	foreach my $run (@$runs)
	{
		push @early, $run->{tick} if $run->{began} < $run->{tick};
		push @overlaps, $run->{tick} if $before && defined $before->{ended} && $run->{began} < $before->{ended};
		push @backwards, $run->{tick} if $before && $run->{tick} < $before->{tick};
		$before = $run;
	}
	is("@early", '', "$name: no run begins before its tick");
	is("@overlaps", '', "$name: no run begins before the end of the previous one");
	is("@backwards", '', "$name: no run is for an older tick than the previous one");
	return;
}

# A tick each second.  Timers fire before the first tick and after the last, too.
my $first = ceil(time) + 2;
my @when = (start => $first - 1, end => $first + $ticks + 1);
my %alive = (
	begin => replicas('begin', @when, attempt => \&Replicas::run_begin, job => "'every 1 s'"),
	call => replicas('call', @when, attempt => \&Replicas::call_run, job => "'every 1 s'"));

# With attempts, a call that comes while the run is at work finds its tick not done.
my @together = (@when, offset => sub { 0.3 + rand 0.1 }, job => "'every 1 s', attempts => 3");
$alive{'begin, together'} = replicas('begin, together', @together, attempt => \&Replicas::run_begin);
$alive{'call, together'} = replicas('call, together', @together, attempt => \&Replicas::call_run);

# Meanwhile processes at work are killed.  Each missed tick is made up, so no newer tick
# ends the attempts of an older one.
my $job = "'every 2 s', catch_up => 'all', attempts => 3, backoff => '1 s'";
my %killed = (
	begin => replicas('begin, killed', @when, hang => 2, attempt => \&Replicas::run_begin, job => $job),
	call => replicas('call, killed', @when, hang => 2, attempt => \&Replicas::call_run, job => $job),
	'gave up' => replicas('gave up', @when, hang => 3, attempt => \&Replicas::call_run, job => $job));

# Kills the process that makes the nth run of a job.  Returns times: its backend still
# lived; it was gone.
sub kill_run
{
	my ($name, $replicas, $nth) = @_;

	defined await($watcher, "SELECT count(*) = $nth FROM work WHERE name = '$name'") or die "$name: there is no run $nth";
	my ($client, $backend) = split /\|/, ask($watcher, "SELECT client, backend FROM work WHERE name = '$name' ORDER BY id DESC LIMIT 1");
	my $alive = time;
	$replicas->kill_replica($client);
	defined await($watcher, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $backend") or die "$name: backend $backend lives";
	return [ $alive, time ];
}

# The lease is first, because it expires.
my %ended = map {
	my ($job, $name) = ($_, $_ eq 'gave up' ? $_ : "$_, killed");
	$job => [ map { kill_run($name, $killed{$job}, $_) } 1 .. ($job eq 'gave up' ? 3 : 2) ]
} 'begin', 'call', 'gave up';
foreach my $name ('begin, killed', 'call, killed', 'gave up')
{
	ok(defined await($watcher, "SELECT count(*) > 3 FROM work WHERE name = '$name' AND ended IS NOT NULL"), "$name: the next ticks run");
}
$_->finish('now') foreach values %killed;

# The jobs whose processes nobody kills
foreach my $name (sort keys %alive)
{
	$alive{$name}->finish;
	my @calls = $alive{$name}->calls;
	my @runs = runs_of($name, @calls);
	my @counted = grep { $_->{tick} >= $first && $_->{tick} < $first + $ticks } @runs;
	my %count;

	check_runs($name, \@runs);
	$count{ int $_->{tick} }++ foreach @counted;
	my @uncalled = grep { !$count{$_} && !called_in($_, \@runs, @calls) } $first .. $first + $ticks - 1;
	note("$name: no timer fired in time for ticks @uncalled") if @uncalled;
	is(scalar(@counted), $ticks - @uncalled, "$name: there is a run for each of $ticks ticks")
	  or diag(map { "no run for tick $_\n" . around($_, \@runs, @calls) } grep { !$count{$_} } $first .. $first + $ticks - 1);
	is(join(' ', grep { $count{$_} > 1 } sort keys %count), '', "$name: no tick has two runs");
	is( $node->safe_psql('postgres', "SELECT string_agg(DISTINCT outcome || ' ' || attempt, ', ') FROM shedlock_history WHERE name = '$name'"),
		'succeeded 1', "$name: the first attempt at each tick has succeeded");
}

# Returns what the history says of the first tick of a job, a list for each attempt.
sub attempts
{
	my ($name) = @_;

	return map { [ split /\|/ ] } split /\n/, $node->safe_psql('postgres', "SELECT attempt, outcome, gave_up, extract(epoch FROM started_at)
		FROM shedlock_history WHERE name = '$name' AND tick = (SELECT min(tick) FROM shedlock_history WHERE name = '$name') ORDER BY token");
}

# Checks that a run began at the first call that could begin it.  Times: it could not begin
# before the first one, and could begin after the second one.
sub check_begun
{
	my ($what, $run, $earliest, $latest, @idle) = @_;
	my @refused = grep { $_->{begin} >= $latest && defined $_->{end} && $_->{end} < $run->{call}{begin} } @idle;

	cmp_ok($run->{began}, '>=', $earliest, "$what does not begin earlier");
	is(scalar(@refused), 0, "$what begins at the next call");
	return;
}

foreach my $job ('begin', 'call')
{
	my $name = "$job, killed";
	my @calls = $killed{$job}->calls;
	my @runs = runs_of($name, @calls);
	my @attempts = attempts($name);
	my @idle = idle(\@runs, @calls);
	my @started = map { $_->[3] } @attempts;

	check_runs($name, \@runs);
	is(join(', ', map { "$_->[0] $_->[1] $_->[2]" } @attempts), '1 lost f, 2 lost f, 3 succeeded f', "$name: the history has each attempt");
	is(join(' ', map { $_->{attempt} } grep { $_->{tick} == $runs[0]{tick} } @runs), '1 2 3', "$name: the work has the attempt's number");
	isnt($runs[1]{client}, $runs[0]{client}, "$name: another replica makes the second attempt");
	isnt($runs[2]{client}, $runs[1]{client}, "$name: another replica makes the third attempt");

	# A lease lasts its time, a lock of a run as long as its backend.  Only the attempts
	# after the second one wait for the backoff, which has doubled by then.
	my @free = $job eq 'begin' ? map { [ $_ + $lease, $_ + $lease ] } @started : @{ $ended{$job} };
	my $backoff = $started[1] + 2;
	check_begun("$name: the second attempt", $runs[1], @{ $free[0] }, @idle);
	check_begun("$name: the third attempt", $runs[2], (map { max($_, $backoff) } @{ $free[1] }), @idle);
	is(join(' ', map { $_->{tick} - $runs[0]{tick} } @runs[ 3 .. 5 ]), '2 4 6', "$name: the missed ticks run after it, in order");
}
foreach my $replicas (values %alive, values %killed)
{
	is(join("\n", $replicas->errors), '', "$replicas->{name}: no call fails");
}
is(join(', ', map { "$_->[0] $_->[1] $_->[2]" } attempts('gave up')), '1 lost f, 2 lost f, 3 lost t', 'no tick has more attempts than it may have');

# The server kills all backends, because one of them was killed.
my $crashed = qr/terminating connection because of crash|server closed the connection|server process exited|no connection to the server|the database system is|could not (connect|receive|send)|connection to server/i;
$watcher->quit;
my $crash = replicas('crash', start => time, end => time + 600, hang => 1, attempt => \&Replicas::call_run, job => $job);
ok(defined await($node, "SELECT count(*) = 1 FROM work WHERE name = 'crash'"), 'crash: a run is in progress');
my $backend = $node->safe_psql('postgres', "SELECT backend FROM work WHERE name = 'crash'");
kill 'KILL', $backend;
ok(await_after_crash($node, "SELECT count(*) > 2 FROM work WHERE name = 'crash' AND ended IS NOT NULL"),
	'crash: the replicas continue after it');
$crash->finish('now');
is(join("\n", grep { !/$crashed/ } $crash->errors), '', 'crash: no call fails for another reason');
is(join(', ', map { "$_->[0] $_->[1] $_->[2]" } attempts('crash')), '1 lost f, 2 succeeded f', 'crash: the interrupted tick runs again');

$node->stop;
done_testing();
