# Simulated worlds with one job, callers whose timers are exact, early, late, irregular or
# stopped, a clock that is set back, and an administrator; and what shedlock promises about
# such a job.
package TickWorld;

use strict;
use warnings FATAL => 'all';
use feature 'current_sub';
use Exporter 'import';
use List::Util qw(max min);
use TickModel;

our @EXPORT = qw(live pick);

# The world
my $w;

sub pick
{
	return $_[rand @_];
}

sub chance
{
	my ($probability) = @_;

	return rand() < $probability;
}

# A random duration.  In half of the worlds all times are whole seconds, so that limits
# are reached exactly.
sub between
{
	my ($least, $most) = @_;
	my $some = int($least + rand($most - $least));

	return $w->{whole} ? $some - $some % $second : $some;
}

sub clock
{
	return $w->{now} + $w->{offset};
}

# Has code called after a time.
sub after
{
	my ($delay, $code) = @_;
	my $at = $w->{now} + max(0, $delay);
	my $events = $w->{events};
	my $place = 0;

	$place++ while $place < @$events && $events->[$place]{at} <= $at;
	splice @$events, $place, 0, { at => $at, code => $code };
	return;
}

#
# The promises
#
# A ledger of what has happened decides whether they are kept.  It knows neither due() nor
# the row of _shedlock_tick.  It has the last tick that was begun, claimed or registered, or
# that a successful run used up; the schedule and token of the last run; and for each tick
# the number of runs that have begun, since shedlock_again if that was called, and whether
# it is closed.
#

sub promise
{
	my ($kept, $promise) = @_;

	$w->{checked}{$promise}++;
	$w->{broken}{$promise}++ unless $kept;
	return;
}

sub is_new
{
	my ($args) = @_;

	return !same_schedule($w->{ledger}{schedule}, $args->{schedule});
}

sub in_time
{
	my ($args, $tick) = @_;

	return clock() - $tick <= $args->{max_late};
}

# Can the last tick have another attempt, now or after the backoff?
sub is_open
{
	my ($args) = @_;
	my $ledger = $w->{ledger};
	my $last = $ledger->{last};

	return !$ledger->{closed}{$last} && $ledger->{begun}{$last} < $args->{attempts} && $last <= clock() && in_time($args, $last);
}

# Is the backoff over?  It is an hour at most, so a longer one is of another clock.
sub backoff_is_over
{
	my $until = $w->{ledger}{backoff_until};

	return clock() >= $until || $until > clock() + $hour;
}

sub check_run
{
	my ($args, $tick) = @_;
	my $ledger = $w->{ledger};
	my ($last, $schedule) = ($ledger->{last}, $args->{schedule});
	my $first = !$ledger->{begun}{$tick};

	promise(clock() >= $tick, 'no run begins before its tick');
	promise(!$w->{run}, 'a job has one run at a time');
	if ($ledger->{again})
	{
		promise($tick == ($last <= clock() ? $last : previous_tick($schedule, clock())), 'shedlock_again: the last tick runs');
		return;
	}
	promise(!defined $last || $tick >= $last, 'ticks run in order');
	promise(!$ledger->{closed}{$tick}, 'no run for a tick that is closed');
	promise(($ledger->{begun}{$tick} || 0) < $args->{attempts}, 'a tick has as many runs as attempts');
	promise(in_time($args, $tick), 'no run begins later than max_late');
	promise($first || backoff_is_over(), 'no run in the backoff');
	if (is_new($args) && $first)
	{
		promise(!defined $schedule->{text} || clock() - $tick < $minute, 'another schedule: no run for what is past');
	}
	if ($args->{catch_up} ne 'all' || is_new($args))
	{
		promise($tick == previous_tick($schedule, clock()), 'the newest tick runs');
	}
	elsif ($first)
	{
		my $left_out = previous_tick($schedule, $tick - 1);

		promise($left_out <= $last || !in_time($args, $left_out), 'all: no tick is left out');
		promise(!is_open($args), 'all: an older tick uses up its attempts first');
	}
	return;
}

sub check_registered
{
	my ($args, $tick) = @_;
	my $ledger = $w->{ledger};

	promise(!$ledger->{again}, 'shedlock_again: the next call runs');
	promise(is_new($args), 'only another schedule registers');
	promise($tick == previous_tick($args->{schedule}, clock()), 'what is registered is the last tick');
	promise(!defined $ledger->{last} || $tick > $ledger->{last}, 'ticks are registered in order');
	promise(!in_time($args, $tick) || defined $args->{schedule}{text} && clock() - $tick >= $minute,
		'another schedule: what is not past runs');
	return;
}

# A call has found the lock free, and did nothing.
sub check_none
{
	my ($args) = @_;
	my $ledger = $w->{ledger};
	my $last = $ledger->{last};
	my $tick = previous_tick($args->{schedule}, clock());

	promise(!$ledger->{again}, 'shedlock_again: the next call runs');
	promise(defined $last, 'the first call runs or registers');
	return if $ledger->{again} || !defined $last;

	promise($tick <= $last, 'another schedule registers or runs') if is_new($args);
	if ($args->{catch_up} eq 'all' && !is_new($args))
	{
		my $oldest = next_tick($args->{schedule}, max($last, clock() - $args->{max_late} - 1));

		promise(is_open($args) || $oldest > clock(), 'all: each tick runs');
	}
	elsif ($tick > $last)
	{
		promise(!in_time($args, $tick), 'a tick that is called for runs');
	}
	if ($tick == $last || $args->{catch_up} eq 'all' && !is_new($args))
	{
		promise(!is_open($args) || !backoff_is_over(), 'a tick that is open runs again after the backoff');
	}
	return;
}

sub note_run
{
	my ($run) = @_;
	my $ledger = $w->{ledger};
	my $tick = $run->{tick};

	if ($ledger->{again})
	{
		# if the clock was set back, it also ends what was after that tick
		if ($tick < $ledger->{last})
		{
			delete @{ $ledger->{$_} }{ grep { $_ >= $tick } keys %{ $ledger->{$_} } } foreach qw(begun closed);
		}
		delete $ledger->{closed}{$tick};
		$ledger->{again} = 0;
	}
	my $attempt = ++$ledger->{begun}{$tick};
	$ledger->{last} = $tick;
	$ledger->{schedule} = $run->{args}{schedule};
	$ledger->{token} = $run->{token};
	$ledger->{backoff_until} = $attempt == 1 ? 0 : clock() + backoff_after($run->{args}, $attempt);
	return;
}

sub note_end
{
	my ($run, $outcome) = @_;
	my $ledger = $w->{ledger};
	my ($args, $tick) = @$run{qw(args tick)};

	return if $ledger->{token} != $run->{token} || $outcome eq 'died';
	if ($outcome eq 'failed')
	{
		$ledger->{backoff_until} = clock() + backoff_after($args, $ledger->{begun}{$tick});
		return;
	}
	close_tick($tick);
	return if $outcome ne 'succeeded' || $args->{catch_up} eq 'all' || $ledger->{again};
	my $passed = previous_tick($args->{schedule}, clock());
	close_tick($passed)
	  if $passed > max($tick, $run->{began}) && clock() - $run->{began} >= next_tick($args->{schedule}, $tick) - $tick;
	return;
}

sub close_tick
{
	my ($tick) = @_;
	my $ledger = $w->{ledger};

	$ledger->{closed}{$tick} = 1;
	$ledger->{begun}{$tick} ||= 0;
	$ledger->{last} = $tick if !defined $ledger->{last} || $tick > $ledger->{last};
	return;
}

#
# What happens in a world
#

sub look
{
	my ($args) = @_;
	my $row = $w->{row};
	my @decision = $w->{due}->($row, $args, clock());

	$w->{watch}->($row, $args, clock());
	check_none($args) if $decision[0] eq 'none' && is_free();
	return @decision;
}

sub is_free
{
	return !$w->{lock} && clock() >= $w->{paused_until};
}

# A call of shedlock_run or shedlock_run_begin
sub call
{
	my ($caller) = @_;
	my $args = $caller->{args};
	my $now = clock();
	my ($previous, $next) = (previous_tick($args->{schedule}, $now), next_tick($args->{schedule}, $now));
	my $early = min(30 * $second, int(($next - $previous) / 4));

	if ($next - $now < $early && $caller->{may_sleep}
		&& !($args->{catch_up} eq 'all' && ($w->{due}->($w->{row}, $args, $now))[0] eq 'run'))
	{
		my $end = $w->{now} + 30 * $second;

		return after($next - $now, sub {
			my $rest = min($next - clock(), $end - $w->{now});
			return $rest > 0 ? after($rest, __SUB__) : decide($caller);
		});
	}
	return decide($caller);
}

sub decide
{
	my ($caller) = @_;

	return if (look($caller->{args}))[0] eq 'none' || !is_free();
	return after(chance(0.8) ? 0 : pick(1, 1000, $second, $minute), sub { take($caller) });
}

sub take
{
	my ($caller) = @_;
	my $args = $caller->{args};

	return unless is_free();
	my ($action, $tick, $attempt) = look($args);
	if ($action eq 'register')
	{
		check_registered($args, $tick);
		$w->{row} = write_registered($args, $tick);
		$w->{ledger}{schedule} = $args->{schedule};
		$w->{ledger}{token} = 0;
		close_tick($tick);
	}
	elsif ($action eq 'run')
	{
		my $run = { args => $args, tick => $tick, began => clock(), token => ++$w->{tokens} };

		check_run($args, $tick);
		$w->{row} = write_run($args, $tick, $attempt, clock(), $run->{token});
		$w->{lock} = $w->{run} = $run;
		note_run($run);
		begin_work($run);
	}
	return;
}

sub begin_work
{
	my ($run) = @_;
	my $distance = $w->{distance};
	my $takes = pick(0, between(0, $second), between(0, $distance / 8), between(0, $distance), $distance,
		between($distance, 3 * $distance));
	my $outcome = pick(@{ $w->{outcomes} });

	after($takes, sub { end_run($run, $outcome) });
	# of a lease that has expired, whose worker goes on
	after($takes + between(0, $distance), sub { end_run($run, 'succeeded') }) if $outcome eq 'died';
	return;
}

sub end_run
{
	my ($run, $outcome) = @_;

	return unless $w->{lock} && $w->{lock} == $run;
	$w->{row} = write_end($w->{row}, $run, $outcome, clock());
	$w->{lock} = $w->{run} = undef;
	note_end($run, $outcome);
	return;
}

sub again
{
	return unless $w->{row};
	$w->{row} = { %{ $w->{row} }, again => 1 };
	$w->{ledger}{again} = 1;
	return;
}

sub claim
{
	my $period = chance(0.3) && period(pick($minute, $hour));
	my $tick = $period ? previous_tick($period, clock() + 15 * $second) : clock() + between(-$w->{distance}, $minute);
	my $row = write_claim($w->{row}, $tick, $period);

	return if $w->{row} && $row == $w->{row};
	$w->{row} = $row;
	$w->{ledger}{again} = 0;
	$w->{ledger}{token} = 0;
	$w->{ledger}{schedule} ||= $period;
	close_tick($row->{tick});
	return;
}

# Sets the clock back, in some worlds for a while only.
sub set_clock_back
{
	my $by = between($second, pick($minute, 2 * $hour, 3 * $w->{distance}));

	$w->{offset} -= $by;
	after(between(0, 5 * $w->{distance}), sub { $w->{offset} += $by }) if chance(0.5);
	return;
}

sub random_arguments
{
	my ($schedule) = @_;
	my $distance = $w->{distance};

	return { schedule => $schedule, catch_up => pick('latest', 'all'),
		max_late => pick($forever, $forever, 30 * $second, $minute, 2 * $minute, int($distance / 2), $distance, 3 * $distance),
		attempts => pick(1, 1, 2, 3, 5),
		backoff => pick($second, 10 * $second, $minute, int($distance / 4), 20 * $minute) };
}

sub random_schedule
{
	return pick(
		sub { period(pick(7, 10, 40, 60, 90, 300, 3600, 7 * 3600, 86400) * $second) },
		sub { cron('*/' . pick(1, 2, 5, 7, 15, 25, 40)) },
		sub { cron(int rand 60) },
		sub { cron(int rand 60, int rand 24) })->();
}

# Has a caller call as its timer fires.
sub start_timer
{
	my ($caller) = @_;
	my $distance = $w->{distance};
	my $off = pick(0, 0, -2 * $second, 3 * $second, 70 * $second, int($distance / 3), -int($distance / 8));
	my $jitter = pick(0, 0, $second, 30 * $second, int($distance / 4));
	my $rate = pick(undef, undef, max($second, between($distance / 10, $distance)), max($second, int($distance / 4)));
	my ($stops, $resumes) = chance(0.3) ? (between(0, $w->{length}), between($distance, 6 * $distance)) : (-1, 0);
	my $start = $w->{now};

	after(between(0, $distance), sub {
		my $passed = $w->{now} - $start;

		call($caller) unless $passed >= $stops && $passed < $stops + $resumes;
		my $wait = (defined $rate ? $rate : next_tick($caller->{args}{schedule}, $w->{now} - $off) + $off - $w->{now}) +
		  int(rand($jitter) - $jitter / 2);
		after(max($wait, int($distance / 20), $second), __SUB__) if $passed < $w->{length};
	});
	return;
}

# Lives a world, in which due decides, and watch is called with the arguments of each
# decision.  Returns how often each promise was checked, and how often it was broken.
sub live
{
	my ($seed, $due, $watch) = @_;

	srand($seed);
	my $schedule = random_schedule();
	my $distance = @{ $schedule->{offsets} } > 1 ? $schedule->{offsets}[1] : $schedule->{cycle};
	my $start = 1_767_225_600 * $second + int(rand 365) * $day;

	$w = { due => $due, watch => $watch, checked => {}, broken => {}, whole => chance(0.5), now => $start,
		offset => 0, distance => $distance, length => int(8 + rand 16) * $distance, events => [], lock => undef, run => undef, row => undef, paused_until => 0, tokens => 0,
		outcomes => pick(['succeeded'], [qw(succeeded failed)], [qw(failed died)], [qw(succeeded failed cancelled died)]),
		ledger => { begun => {}, closed => {}, again => 0, backoff_until => 0, token => 0 } };
	$w->{now} += between(0, 5 * $distance);
	my $args = random_arguments($schedule);
	foreach (1 .. pick(1, 2, 2, 4))
	{
		my $caller = { args => $args, may_sleep => chance(0.9) };

		$caller->{args} = random_arguments($schedule) if chance(0.1);
		start_timer($caller);
		push @{ $w->{callers} }, $caller;
	}

	# A new version of the service, in one caller after the other
	if (chance(0.3))
	{
		my $new = random_arguments(chance(0.5) ? random_schedule() : $schedule);

		foreach my $caller (@{ $w->{callers} })
		{
			after(between($w->{length} / 4, $w->{length} / 2), sub { $caller->{args} = $new });
		}
	}
	my %acts = (
		again => \&again,
		claim => \&claim,
		set_clock_back => \&set_clock_back,
		# shedlock_cancel or shedlock_force_release
		cancel => sub { end_run($w->{lock}, 'cancelled') if $w->{lock} },
		pause => sub { $w->{paused_until} = clock() + between(0, 4 * $distance) });
	foreach my $act (sort keys %acts)
	{
		next unless chance(0.4);
		after(between(0, $w->{length}), $acts{$act}) foreach 1 .. pick(1, 1, 3);
	}

	while (my $event = shift @{ $w->{events} })
	{
		$w->{now} = $event->{at};
		$event->{code}->();
	}
	return @$w{qw(checked broken)};
}

1;
