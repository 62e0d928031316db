# Counts the runs of a job that is due each second and that six replicas call for, and kills
# the replica at work now and then.  Arguments: folder of the server's socket, port, seconds.
# Prints a table, and the errors of the replicas.
#
# Each contender has three groups of replicas, and all groups run at the same time: timers
# that differ by 100 ms, timers that are evenly spaced, and the same with kills.  A run is for
# the tick that it has claimed, or else for the second of its timer.

use strict;
use warnings FATAL => 'all';
use File::Temp;
use List::Util qw(min sum0);
use POSIX qw(ceil);
use Replicas;
use ShedLockClient;
use Time::HiRes qw(sleep time);

my ($host, $port, $seconds) = @ARGV;
my $pause = min(30, $seconds / 2.5);

# What Replicas and ShedLockClient know of a server
package Server
{
	sub connstr { return "host=$host port=$port dbname=replicas" }
}
my $node = bless {}, 'Server';

# The tick of a contender that knows none is the second that its timer fires for.
sub work_of_timer
{
	my ($replica) = @_;

	$replica->work(POSIX::strftime('%Y-%m-%d %H:%M:%S+00', gmtime($replica->{start} + $replica->{n})), 1);
	return;
}

sub once_every
{
	my ($replica) = @_;

	return unless $replica->value("SELECT shedlock_once_every(\$1, '1 s')", $replica->{name});
	$replica->work($replica->value('SELECT tick FROM _shedlock_tick WHERE name = $1', $replica->{name}), 1);
	return;
}

sub lease
{
	my ($replica) = @_;
	my $token = $replica->value("SELECT shedlock_acquire_token(\$1, '10 s', '0.7 s')", $replica->{name});

	return unless defined $token;
	work_of_timer($replica);
	$replica->value('SELECT shedlock_release($1, $2)', $replica->{name}, $token);
	return;
}

sub shedlock_java
{
	my ($replica) = @_;
	my $client = $replica->{client} //= ShedLockClient->new($node, table => 'peer.shedlock', locked_by => "host $replica->{number}");

	# one connection for lock and work
	$replica->{dbh} = $client->{dbh};
	my $lock = $client->lock($replica->{name}, 10, 0.7) or return;

	work_of_timer($replica);
	$client->unlock($lock);
	return;
}

my $job = "'every 1 s', attempts => 3, backoff => '1 s', catch_up => 'all'";
my @contenders = (
	[ 'shedlock_run_begin', attempt => \&Replicas::run_begin, lease => '10 s', job => $job ],
	[ 'CALL shedlock_run', attempt => \&Replicas::call_run, job => $job, settings => ["client_connection_check_interval = '100ms'"] ],
	[ 'shedlock_once_every', attempt => \&once_every ],
	[ 'lease, at least 0.7 s', attempt => \&lease ],
	[ 'ShedLock\'s SQL, at least 0.7 s', attempt => \&shedlock_java ]);

my $dbh = Replicas::dbh({ node => $node });
my $logs = File::Temp->newdir;
my (@groups, @killed);

$dbh->do('SET client_min_messages = warning');
$dbh->do(Replicas::schema());

# Ticks begin with the second, so timers that differ do not fire at that instant.
my $start = ceil(time) + 2;
foreach my $contender (@contenders)
{
	my ($name, %options) = @$contender;

	my $start_group = sub {
		my ($group, %more) = @_;

		return Replicas->start(
			node => $node, name => "$name, $group", log => "$logs/" . @groups, start => $start, end => $start + $seconds, %options, %more);
	};
	push @groups,
	  { name => $name, kind => 'together', replicas => $start_group->('together', offset => sub { 0.3 + rand 0.1 }) },
	  { name => $name, kind => 'spaced', replicas => $start_group->('spaced') },
	  { name => $name, kind => 'killed', replicas => $start_group->('killed', takes => 0.3), next => $start + 5 };
}

# Kills those at work, and starts them again as a supervisor would.
while (time < $start + $seconds)
{
	foreach my $group (grep { defined $_->{next} && time >= $_->{next} && time < $start + $seconds - $pause / 2 } @groups)
	{
		my ($id, $client) = $dbh->selectrow_array(
			'SELECT id, client FROM work WHERE name = $1 AND ended IS NULL AND began > clock_timestamp() - interval \'0.1 s\'',
			undef, $group->{replicas}{name});

		next unless defined $id;
		my $at = time;
		my $number = $group->{replicas}->kill_replica($client);
		push @killed, { group => $group, id => $id, at => $at };
		$group->{replicas}->start_replica($number);
		$group->{next} = $at + $pause;
	}
	sleep(0.02);
}
$_->{replicas}->finish foreach @groups;
sleep(1);

# Returns the rows of a group's work, in order.
sub rows
{
	my ($group) = @_;

	return @{ $dbh->selectall_arrayref(
		'SELECT id, extract(epoch FROM tick) AS tick, extract(epoch FROM began) AS began, extract(epoch FROM ended) AS ended
			FROM work WHERE name = $1 ORDER BY began',
		{ Slice => {} }, $group->{replicas}{name}) };
}

sub overlaps
{
	my (@rows) = @_;

	return scalar grep { defined $rows[ $_ - 1 ]{ended} && $rows[$_]{began} < $rows[ $_ - 1 ]{ended} } 1 .. $#rows;
}

# Returns how long after its kill each interrupted run was run again, in words.
sub run_again
{
	my ($group) = @_;
	my @rows = rows($group);
	my @interrupted = grep { my $kill = $_; $kill->{group} == $group && grep { $_->{id} == $kill->{id} && !defined $_->{ended} } @rows } @killed;
	my @after;

	foreach my $kill (@interrupted)
	{
		my ($run) = grep { $_->{id} == $kill->{id} } @rows;
		my ($again) = grep { $_->{tick} == $run->{tick} && $_->{began} > $kill->{at} && defined $_->{ended} } @rows;

		push @after, $again->{began} - $kill->{at} if $again;
	}
	@after = sort { $a <=> $b } @after;
	return 'never, of ' . @interrupted unless @after;
	return sprintf '%.2f s (%.2f to %.2f), %d of %d', $after[ $#after / 2 ], $after[0], $after[-1], scalar @after, scalar @interrupted;
}

my @errors;
print "| contender | runs in $seconds ticks | extra | missed | timers evenly spaced: runs a minute | two at once | calls that failed | interrupted run is run again after |\n";
print "|---|--:|--:|--:|--:|--:|--:|---|\n";
foreach my $contender (@contenders)
{
	my ($name) = @$contender;
	my %group = map { $_->{kind} => $_ } grep { $_->{name} eq $name } @groups;
	my %runs;

	# A job has ticks from its declaration on.  A timer that is very late counts for the next tick,
	# and so one after the last can come.
	my @rows = grep { $_->{tick} >= $start && $_->{tick} < $start + $seconds } rows($group{together});
	$runs{ $_->{tick} }++ foreach @rows;
	# neither the first seconds nor the last, for the same reason
	my $spaced = grep { $_->{began} >= $start + 5 && $_->{began} < $start + $seconds - 5 } rows($group{spaced});
	my @failed = map { $_->{replicas}->errors } values %group;
	push @errors, map { "$name: $_\n" } @failed;
	printf "| %s | %d | %d | %d | %.1f | %d | %d | %s |\n", $name, scalar @rows, @rows - keys %runs, $seconds - keys %runs,
	  60 * $spaced / ($seconds - 10), sum0(map { overlaps(rows($_)) } values %group), scalar @failed, run_again($group{killed});
}
print "\n", @errors if @errors;
