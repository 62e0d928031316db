# A clock that can be moved, for servers started with it.
package SkewedClock;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(with_skewed_clock with_standing_clock with_movable_clock set_clock advance_clock);

my $offset_file;

# Runs code that starts servers with that clock.  Skips the test without the library that
# scripts/test builds from test/faults/skew.c.
sub with_skewed_clock(&)
{
	my ($code) = @_;

	plan skip_all => 'SHEDLOCK_SKEW does not name the library that moves the clock: see scripts/test'
	  unless $ENV{SHEDLOCK_SKEW};
	unless ($offset_file)
	{
		$offset_file = "$PostgreSQL::Test::Utils::tmp_check/skew";
		append_to_file($offset_file, pack('q', 0));
	}
	local $ENV{LD_PRELOAD} = $ENV{SHEDLOCK_SKEW};
	local $ENV{SKEW_FILE} = $offset_file;
	return $code->();
}

# The same with a clock that moves only by advance_clock(), and begins 32 s after a minute.
sub with_standing_clock(&)
{
	my ($code) = @_;

	local $ENV{SKEW_STANDS} = 1;
	return with_skewed_clock { set_clock(time - time % 60 + 32); $code->() };
}

# The same as with_skewed_clock, but without the library the servers have the true clock, which cannot be moved.
sub with_movable_clock(&)
{
	my ($code) = @_;

	return $ENV{SHEDLOCK_SKEW} ? &with_skewed_clock($code) : $code->();
}

# Sets the clock ahead of the true time by a number of seconds.  The file is mapped, so it
# must not be truncated.
sub set_clock
{
	my ($seconds) = @_;

	open my $file, '+<', $offset_file or die "$offset_file: $!";
	syswrite $file, pack('q', $seconds * 1_000_000);
	close $file;
	return;
}

# Moves the clock forward by a number of seconds.  Returns whether it can be moved.
sub advance_clock
{
	my ($seconds) = @_;

	return 0 unless $offset_file;
	set_clock(unpack('q', slurp_file($offset_file)) / 1_000_000 + $seconds);
	return 1;
}

1;
