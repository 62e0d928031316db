# A model of what _shedlock_tick has about a job, and of due(), which decides whether a call
# starts a run: for simulated worlds, and to compare the C function with.
#
# Times are integers, in microseconds since 1970.  A schedule is {cycle, offsets, text}:
# its ticks are the offsets in each cycle since 1970; text is a cron expression in UTC, or
# missing for a period.  The arguments of a call are {schedule, catch_up, max_late,
# attempts, backoff}; without a limit max_late is $forever.
package TickModel;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use List::Util qw(max min);

our @EXPORT = qw($second $minute $hour $day $forever cron period previous_tick next_tick same_schedule
  backoff_after due write_run write_registered write_end write_claim);

our ($second, $minute, $hour, $day) = map { $_ * 1_000_000 } (1, 60, 3600, 86400);
our $forever = 1 << 60;

sub period
{
	my ($length) = @_;

	return { cycle => $length, offsets => [0] };
}

# Returns the schedule "minute * * * *", or "minute hour * * *".  minute may be "*/n".
sub cron
{
	my ($at, $daily) = @_;
	my $step = $at =~ m{^\*/(\d+)$} ? $1 : undef;
	my @minutes = $step ? grep { $_ % $step == 0 } 0 .. 59 : $at;

	return { cycle => defined $daily ? $day : $hour,
		offsets => [ map { ($daily || 0) * $hour + $_ * $minute } @minutes ],
		text => "$at " . (defined $daily ? $daily : '*') . ' * * *' };
}

# Returns the last tick at or before a time.
sub previous_tick
{
	my ($schedule, $at) = @_;
	my $offsets = $schedule->{offsets};
	my $start = $at - $at % $schedule->{cycle};

	$start -= $schedule->{cycle} if $start + $offsets->[0] > $at;
	foreach my $offset (reverse @$offsets)
	{
		return $start + $offset if $start + $offset <= $at;
	}
	die 'a cycle has a first tick';
}

# Returns the first tick after a time.
sub next_tick
{
	my ($schedule, $after) = @_;
	my $start = $after - $after % $schedule->{cycle};

	foreach my $offset (@{ $schedule->{offsets} }, $schedule->{cycle} + $schedule->{offsets}[0])
	{
		return $start + $offset if $start + $offset > $after;
	}
	die 'the next cycle has a tick';
}

# A row that only shedlock_once has written has no schedule.
sub same_schedule
{
	my ($one, $other) = @_;

	return 0 unless $one && $other && defined $one->{text} == defined $other->{text};
	return defined $one->{text} ? $one->{text} eq $other->{text} : $one->{cycle} == $other->{cycle};
}

sub backoff_after
{
	my ($args, $attempt) = @_;

	return min($hour, $args->{backoff} << ($attempt - 1));
}

# Returns ('run', tick, attempt), ('register', tick, 0) or ('none').
sub due
{
	my ($row, $args, $now) = @_;
	my ($schedule, $max_late) = @$args{qw(schedule max_late)};
	my $previous = previous_tick($schedule, $now);

	return $row->{tick} <= $now ? ('run', $row->{tick}, $row->{attempt} + 1) : ('run', $previous, 1) if $row && $row->{again};

	my $new = !$row || !same_schedule($row->{schedule}, $schedule);
	if ($new && (!$row || $previous > $row->{tick}))
	{
		return ('run', $previous, 1)
		  if (!defined $schedule->{text} || $now - $previous < $minute)
		  && $now - $previous <= $max_late;
		return ('register', $previous, 0);
	}

	my $tick = $row->{tick};
	my $left =
		 !$row->{done}
	  && $row->{attempt} < $args->{attempts}
	  && $tick <= $now
	  && $now - $tick <= $max_late;
	# a time that is too far away was computed before the clock was set back
	my $ready =
		 !defined $row->{retry_at}
	  || $now >= $row->{retry_at}
	  || $row->{retry_at} > $now + $hour;

	if ($args->{catch_up} eq 'all' && !$new)
	{
		return $ready ? ('run', $tick, $row->{attempt} + 1) : ('none') if $left;
		my $next = next_tick($schedule, max($tick, $now - $max_late - 1));
		return $next <= $now ? ('run', $next, 1) : ('none');
	}
	if ($previous == $tick)
	{
		return $left && $ready ? ('run', $tick, $row->{attempt} + 1) : ('none');
	}
	return ('run', $previous, 1)
	  if $previous > $tick
	  && $now - $previous <= $max_late;
	return ('none');
}

# The row when a run has begun, whose token this is.
sub write_run
{
	my ($args, $tick, $attempt, $now, $token) = @_;

	# of a run that dies: it writes nothing more
	my $retry_at = $attempt == 1 ? undef : $now + backoff_after($args, $attempt);
	return { tick => $tick, attempt => $attempt, done => 0, again => 0, retry_at => $retry_at, token => $token,
		schedule => $args->{schedule} };
}

sub write_registered
{
	my ($args, $tick) = @_;

	return { tick => $tick, attempt => 0, done => 1, again => 0, retry_at => undef, token => 0,
		schedule => $args->{schedule} };
}

# The row after the end of a run that still has the lock.
sub write_end
{
	my ($row, $run, $outcome, $now) = @_;
	my $schedule = $run->{args}{schedule};
	my $previous = previous_tick($schedule, $now);

	# shedlock_once has claimed a tick meanwhile
	return $row if $row->{token} != $run->{token} || $outcome eq 'died';
	return { %$row, retry_at => $now + backoff_after($run->{args}, $row->{attempt}) } if $outcome eq 'failed';
	$row = { %$row, done => 1 };

	# Ticks that passed during the run.  A run that shedlock_again has allowed may begin
	# when a newer tick has come, which is for the next call.
	@$row{qw(tick attempt)} = ($previous, 0)
	  if $outcome eq 'succeeded'
	  && !$row->{again}
	  && $run->{args}{catch_up} ne 'all'
	  && $previous > max($row->{tick}, $run->{began})
	  && $now - $run->{began} >= next_tick($schedule, $row->{tick}) - $row->{tick};
	return $row;
}

# The row after shedlock_once or, with a period, shedlock_once_every.  The same row if the
# tick was claimed before.
sub write_claim
{
	my ($row, $tick, $period) = @_;

	return $row if $row && $row->{tick} >= $tick && !$row->{again};
	return { tick => max($tick, $row ? $row->{tick} : 0), attempt => 0, done => 1, again => 0, retry_at => undef,
		token => 0, schedule => $row && $row->{schedule} || $period };
}

1;
