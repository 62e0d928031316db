# shedlock_next begins a run exactly if shedlock_run_begin begins one of any of its jobs, of the
# same tick and attempt; it is that of the job that has waited longest, by what the tables say; and
# if none begins, the time to come back is the first that any of these calls is told.  No tick has
# two runs that succeed.  So no job starves: whoever waits comes before all that begin to wait later.
#
# Random worlds with some jobs, in which runs end in all ways or never, and administrators allow a
# tick again and pause.  The clock stands still but for its jumps, so that calls can be compared;
# it never stands so shortly before a tick that a call waits for it.  SHEDLOCK_SEED=3141 SHEDLOCK_ROUNDS=1 scripts/test
# tap/run-next-model repeats a world.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use List::Util qw(max min shuffle);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use SkewedClock;
use Test::More;

my $seed = $ENV{SHEDLOCK_SEED} || time % 1_000_000;
my $worlds = $ENV{SHEDLOCK_ROUNDS} || 25;
my $node = with_standing_clock { start_node('main') };
my $session = session($node);
my (%seen, @broken, %again);

note("SHEDLOCK_SEED=$seed SHEDLOCK_ROUNDS=$worlds");
ask($session, "SET client_min_messages = error; SET timezone = 'UTC'");

# Sends a statement that must not fail.
sub say_to
{
	my ($sql) = @_;
	my $answer = ask($session, $sql);

	push @broken, "$sql: $session->{heard}" if $session->{heard} =~ /ERROR/;
	return $answer;
}

sub among
{
	return $_[ int(rand(@_)) ];
}

# Returns rows of fields; times are in seconds.
sub rows
{
	my ($sql) = @_;

	return map { [ split /\|/, $_, -1 ] } split /\n/, say_to($sql);
}

sub array_of
{
	return 'ARRAY[' . join(', ', map { "'$_'" } @_) . ']';
}

# Returns by name since when a job has waited if it is due, for another tick than the last one and
# for that, by the tables.
sub waits
{
	my ($names) = @_;
	my %waits;

	foreach my $row (
		rows(
			qq{SELECT name, extract(epoch FROM t.tick), extract(epoch FROM t.again_at), extract(epoch FROM shedlock_next_tick(schedule, time_zone, greatest(t.tick, since))),
				extract(epoch FROM greatest(t.tick, CASE WHEN retry_at <= clock_timestamp() THEN retry_at END)),
				extract(epoch FROM greatest(declared_at, lock_until AT TIME ZONE 'UTC', paused_until))
			FROM _shedlock_job LEFT JOIN _shedlock_tick t USING (name) LEFT JOIN shedlock USING (name) WHERE name = ANY ($names)}))
	{
		my ($name, $tick, $again, $missed, $open, $free) = @$row;

		$waits{$name} = { tick => $tick, missed => max($again || $missed, $free), open => max($again || $open || 0, $free) };
	}
	return \%waits;
}

# Asks for the next of some jobs, and compares that with calls for each of them, which are rolled
# back.  Returns the run that has begun, or undef.
sub compare
{
	my ($world, @names) = @_;
	my $names = array_of(@names);
	my $waits = waits($names);
	my $fields = 'token, extract(epoch FROM tick), attempt, state, extract(epoch FROM next_at)';

	say_to('BEGIN; SAVEPOINT s');
	my @each = rows("SELECT n, $fields FROM unnest($names) n, shedlock_run_begin(n, '5 min')");
	say_to('ROLLBACK TO s');
	my ($next) = rows("SELECT coalesce(name, ''), $fields FROM shedlock_next($names, '5 min')");
	say_to('COMMIT');
	my ($name, $token, $tick, $attempt, $state, $next_at) = @$next;
	my @due = grep { $_->[1] ne '' } @each;
	my @times = grep { $_ ne '' } map { $_->[5] } grep { $_->[1] eq '' } @each;
	my $told = join '; ', map { join ' ', @$_ } $next, @each;

	if (!@due)
	{
		$seen{"none is due: $state"}++;
		push @broken, "world $world: none is due, but: $told" if $name ne '';

		# what cannot be foreseen is a time after the call
		push @broken, "world $world: another time to come back: $told"
		  if ($next_at eq '') != !@times || @times && abs($next_at - min(@times)) > 1e-5;
	}
	else
	{
		my %since = map { $_->[0] => $_->[2] eq $waits->{ $_->[0] }{tick} ? $waits->{ $_->[0] }{open} : $waits->{ $_->[0] }{missed} } @due;
		my ($same) = grep { $_->[0] eq $name } @due;

		$seen{ @due > 1 ? 'several are due' : 'one is due' }++;
		if (!$same || $tick ne $same->[2] || $attempt ne $same->[3])
		{
			push @broken, "world $world: another run: $told";
		}
		elsif ($since{$name} > min(values %since) + 1e-5)
		{
			push @broken, "world $world: not the job that has waited longest: " . join(', ', map { "$_ $since{$_}" } sort keys %since) . ": $told";
		}
	}
	return $token ne '' ? [ $name, $token ] : undef;
}

foreach my $world ($seed .. $seed + $worlds - 1)
{
	srand($world);
	my @names = map { "world $world job $_" } 1 .. 2 + int(rand(5));
	my @runs;

	foreach my $name (@names)
	{
		say_to(sprintf("SELECT shedlock_job('%s', 'every %d s from 2020-01-01', attempts => %d, backoff => '%s', catch_up => '%s', max_late => %s)",
				$name, among(60, 300, 300, 3600), among(1, 2, 3), among('0', '30 s', '2 min'), among('all', 'latest'), among('NULL', 'NULL', "'10 min'")));
	}
	foreach my $step (1 .. 40)
	{
		my $what = rand;

		if ($what < 0.25) { advance_clock(among(5, 20, 60, 60, 300, 300, 3600)) }
		elsif ($what < 0.65)
		{
			my $run = compare($world, shuffle($names[0], grep { rand() < 0.8 } @names[ 1 .. $#names ]));

			push @runs, $run if $run;
		}
		elsif ($what < 0.86)
		{
			next unless @runs;
			my ($run) = splice @runs, int(rand(@runs)), 1;

			# some never end
			say_to(sprintf("SELECT shedlock_run_end('%s', %s, '%s')", @$run, among('succeeded', 'succeeded', 'failed', 'returned'))) if rand() < 0.9;
		}
		elsif ($what < 0.96) { say_to(sprintf("SELECT shedlock_pause('%s', clock_timestamp() + interval '%s')", among(@names), among('1 min', '10 min', '2 h'))) }
		else
		{
			my $name = among(@names);

			say_to("SELECT shedlock_again('$name')");
			$again{$name} = 1;
		}
	}
	say_to('SELECT count(shedlock_forget(name)) FROM shedlock_jobs');
}

is(join("\n", @broken[ 0 .. min(4, $#broken) ]), '', 'shedlock_next begins what it has to, and is told when to come back');
note(join ', ', map { "$_: $seen{$_}" } sort keys %seen);
if ($worlds >= 25)
{
	cmp_ok($seen{$_} // 0, '>=', 20, "this has happened: $_") foreach 'several are due', 'one is due', 'none is due: not due', 'none is due: held';
}
is(join("\n", grep { !$again{$_} } map { $_->[0] } rows(q{SELECT name FROM _shedlock_history WHERE outcome = 'succeeded' GROUP BY name, tick HAVING count(*) > 1})),
	'', 'no tick has two runs that succeed, unless it was allowed again');

$session->quit;
$node->stop;
done_testing();
