# Which calls start a run of a job with ticks: a model of the rules keeps its promises in
# random worlds, and the library (test/modules/due) decides like the model in every situation
# of them.
#
# The worlds and the promises are those of test/perl/TickWorld.pm.  Without any one clause of
# due(), some promise must be broken.
#
# A world is named by its seed: SHEDLOCK_SEED=3141 SHEDLOCK_ROUNDS=1 scripts/test tap/run-due-model repeats that world,
# SHEDLOCK_ROUNDS=17000 simulates more than usual.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use POSIX qw(strftime);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use TickModel;
use TickWorld;

my $seed = $ENV{SHEDLOCK_SEED} || time % 1_000_000;
my $worlds = $ENV{SHEDLOCK_ROUNDS} || 300;
note("SHEDLOCK_SEED=$seed SHEDLOCK_ROUNDS=$worlds");

plan skip_all => 'SHEDLOCK_DUE does not name the library with the rule: see scripts/test'
  unless $ENV{SHEDLOCK_DUE};
my $node = start_node('main');
$node->safe_psql('postgres', qq{
	CREATE FUNCTION due(last _shedlock_tick, schedule text, period interval, catch_up text, max_late interval, attempts integer,
		at timestamptz, OUT action text, OUT tick timestamptz, OUT attempt integer)
	AS '$ENV{SHEDLOCK_DUE}' LANGUAGE C});

# The situations that are not yet compared with the C function, by what distinguishes them
my %situations;
my ($compared, $batch, @differences) = (0, 20_000);

# Times and durations for PostgreSQL
sub timestamp
{
	my ($at) = @_;

	return defined $at ? strftime('%Y-%m-%d %H:%M:%S', gmtime($at / $second)) . sprintf('.%06d+00', $at % $second) : '\N';
}

sub duration
{
	my ($length) = @_;

	return $length == $forever ? '\N' : sprintf('%d.%06d s', $length / $second, $length % $second);
}

# Another way to write a schedule
sub rewritten
{
	my ($schedule) = @_;
	my $text = $schedule->{text};

	return qq{"period": "@{[ $schedule->{cycle} % $day ? duration($schedule->{cycle}) : $schedule->{cycle} / $day . ' days' ]}"}
	  unless defined $text;
	$text = { '0 * * * *' => '@hourly', '0 0 * * *' => '@daily' }->{$text} || pick($text, $text =~ s/ /  0/r, " $text ")
	  unless $text =~ m{^\*|\*.*\*.*\*.*\*};
	return qq{"schedule": "$text", "time_zone": "UTC"};
}

sub remember
{
	my ($row, $args, $now) = @_;
	my @row = $row
	  ? ((map { defined $row->{$_} ? $row->{$_} - $now : '' } qw(tick retry_at)), @$row{qw(attempt done again)},
		same_schedule($row->{schedule}, $args->{schedule}))
	  : ();

	$situations{ join ' ', @row, @$args{qw(catch_up max_late attempts)}, $now - previous_tick($args->{schedule}, $now),
		next_tick($args->{schedule}, $now) - $now } ||= [ $row, $args, $now ];
	return;
}

# Compares the C function with the model in each situation, and at another time close to
# where its answer may change.
sub compare
{
	my $lines = '';

	foreach my $situation (map { $situations{$_} } sort keys %situations)
	{
		my ($row, $args, $now) = @$situation;
		my $schedule = $args->{schedule};
		my $limit = $args->{max_late} == $forever ? 0 : $args->{max_late};
		my @changes = map { $_, $_ + $minute, $_ + $limit } previous_tick($schedule, $now), $row ? $row->{tick} : ();
		push @changes, $row->{retry_at}, $row->{retry_at} - $hour if $row && defined $row->{retry_at};

		my $last = '\N';
		$last = sprintf('{"name": "job", "claimed_at": "%s", "claimed_by": "model", "token": %d, "tick": "%s", "attempt": %d, '
				. '"done": %s, "again": %s, "retry_at": %s%s}',
			timestamp($now), $row->{token}, timestamp($row->{tick}), $row->{attempt},
			(map { $_ ? 'true' : 'false' } @$row{qw(done again)}),
			defined $row->{retry_at} ? '"' . timestamp($row->{retry_at}) . '"' : 'null',
			$row->{schedule} ? ', ' . rewritten($row->{schedule}) : '')
		  if $row;
		foreach my $at ($now, pick(@changes) + pick(-1, 0, 1))
		{
			my ($action, $tick, $attempt) = due($row, $args, $at);

			$lines .= join("\t", $last, defined $schedule->{text} ? ($schedule->{text}, '\N') : ('\N', duration($schedule->{cycle})),
				$args->{catch_up}, duration($args->{max_late}), $args->{attempts}, timestamp($at),
				$action, timestamp($tick), defined $attempt ? $attempt : '\N') . "\n";
			$compared++;
		}
	}
	%situations = ();

	my $file = PostgreSQL::Test::Utils::tempdir . '/situations';
	append_to_file($file, $lines);
	my $different = $node->safe_psql('postgres', qq{
		SET TimeZone = 'UTC';
		CREATE TEMP TABLE situation (last jsonb, schedule text, period interval, catch_up text, max_late interval,
			attempts integer, at timestamptz, action text, tick timestamptz, attempt integer);
		\\copy situation FROM '$file'
		SELECT s, d
		FROM situation s, due(CASE WHEN last IS NOT NULL THEN jsonb_populate_record(NULL::_shedlock_tick, last) END,
			s.schedule, s.period, s.catch_up, s.max_late, s.attempts, s.at) d
		WHERE (d.action, d.tick, d.attempt) IS DISTINCT FROM (s.action, s.tick, s.attempt)});
	push @differences, split /\n/, $different;
	return;
}

my (%checked, %broken);
foreach my $world ($seed .. $seed + $worlds - 1)
{
	my ($checked, $broken) = live($world, \&due, \&remember);

	$checked{$_} += $checked->{$_} foreach keys %$checked;
	push @{ $broken{$_} }, $world foreach keys %$broken;
	compare() if keys %situations >= $batch || $world == $seed + $worlds - 1;
}
foreach my $promise (sort keys %checked)
{
	is(join(' ', @{ $broken{$promise} || [] }), '', "$promise ($checked{$promise} times)");
}
is(join("\n", grep { defined } @differences[0 .. 9]), '', "the library decides like the model in $compared situations");

# Clauses of due(), and what replaces them
my @clauses = (
	'if $row && $row->{again}' => 'if 0',
	'$row->{tick} <= $now ?' => '1 ?',
	'|| !same_schedule($row->{schedule}, $schedule)' => '',
	'(!$row || $previous > $row->{tick})' => '1',
	'(!defined $schedule->{text} || $now' => '($now',
	'(!defined $schedule->{text} || $now - $previous < $minute)' => '1',
	"\n		  && \$now - \$previous <= \$max_late" => '',
	'!$row->{done}' => '1',
	'&& $row->{attempt} < $args->{attempts}' => '',
	'&& $tick <= $now' => '',
	'&& $now - $tick <= $max_late' => '',
	'!defined $row->{retry_at}' => '1',
	'|| $row->{retry_at} > $now + $hour' => '',
	q{if ($args->{catch_up} eq 'all' && !$new)} => 'if (0)',
	'&& !$new' => '',
	'if $left;' => 'if 0;',
	'if $left;' => 'if $left && $ready;',
	'return $ready ?' => 'return 1 ?',
	'max($tick, $now - $max_late - 1)' => '$now - $max_late - 1',
	'max($tick, $now - $max_late - 1)' => '$tick',
	'$next <= $now ?' => '1 ?',
	'if ($previous == $tick)' => 'if (0)',
	'$left && $ready ?' => '$ready ?',
	'$left && $ready ?' => '$left ?',
	'if $previous > $tick' => 'if 1',
	"\n	  && \$now - \$previous <= \$max_late" => '');

my ($code) = slurp_file($INC{'TickModel.pm'}) =~ /^sub due\n(\{.*?^\})/ms;
while (my ($clause, $left) = splice @clauses, 0, 2)
{
	my @parts = split /\Q$clause\E/, $code, -1;
	my $without = @parts == 2 && eval "package TickModel; our (\$minute, \$hour); sub $parts[0]$left$parts[1]";
	my ($world, $promise) = ($seed);

	BAIL_OUT("due() has no clause $clause") unless $without;
	until ($promise || $world == $seed + 20_000)
	{
		my (undef, $broken) = live($world++, $without, sub { });
		($promise) = sort keys %$broken;
	}
	ok($promise, "without $clause" =~ s/\s+/ /gr . ", world @{[ $world - 1 ]} breaks: " . ($promise || 'nothing'));
}

$node->stop;
done_testing();
