# The log, the random numbers and the connection, which workers and nemesis of the fault
# checker share.  The checker itself uses none of it.
package Faults;

use strict;
use warnings FATAL => 'all';
use Config;
use DBI;
use DBD::Pg;
use Exporter 'import';
use Getopt::Long;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(options log_to note_line seed_stream chance among between connect_to
  interval is_lost signal_number sleep time declaration %PLANS @CHANGING @FORGOTTEN $POOL $PERMITS);

# The permits that shedlock_acquire_any acquires: their name, and how many there are
our $POOL = 'permit';
our $PERMITS = 3;

# The jobs that have ticks: name, and the versions of its declaration, the first of which is
# declared at the start.  Times are in seconds.
our %PLANS = (
	'plan 1' => [ { every => 1, attempts => 1, backoff => 0.1, catch_up => 'latest' } ],
	'plan 2' => [
		{ every => 3, attempts => 4, backoff => 0.1, catch_up => 'latest' },
		{ every => 2, attempts => 2, backoff => 0.1, catch_up => 'latest' } ],
	'plan 3' => [
		{ every => 1.5, attempts => 2, backoff => 0.2, catch_up => 'all' },
		{ every => 1.5, attempts => 3, backoff => 0.1, catch_up => 'all' } ],
	'plan 4' => [ { every => 2, attempts => 3, backoff => 0, catch_up => 'all', late => 5 } ],
	'plan 5' => [
		{ every => 1, attempts => 2, backoff => 0.1, catch_up => 'latest' },
		{ every => 1.5, attempts => 1, backoff => 0.1, catch_up => 'latest' } ],
	'plan 6' => [
		{ every => 1.5, attempts => 3, backoff => 0.1, catch_up => 'all' },
		{ every => 1, attempts => 2, backoff => 0.1, catch_up => 'latest' } ]);

# Those that are declared in turns, and those that are also forgotten.  The counters of the
# others never begin anew.
our @CHANGING = grep { @{ $PLANS{$_} } > 1 } sort keys %PLANS;
our @FORGOTTEN = ('plan 5', 'plan 6');

my $log;

# Options of the command line, all of the form --name value, required unless they have a
# default.
sub options
{
	my (%options) = @_;

	GetOptions(map { ("$_=s" => \$options{$_}) } keys %options) or exit 2;
	defined $options{$_} or die "$0: --$_ is missing\n" foreach keys %options;
	return \%options;
}

sub log_to
{
	my ($path) = @_;

	open($log, '>>', $path) or die "$path: $!\n";
	return;
}

# Writes a line at once, so that the log has what a killed process did.  Returns the time.
sub note_line
{
	my @fields = @_;
	my $now = time;
	my $line = join("\t", sprintf('%.6f', $now), @fields) . "\n";

	syswrite($log, $line) == length $line or die "log: $!\n";
	return $now;
}

# Each scenario has its own random numbers, so that it stays the same whatever happened in
# the scenarios before it.
sub seed_stream
{
	my ($seed, $stream, $number) = @_;

	srand(($seed * 1000 + $stream) * 100_003 + $number);
	return;
}

sub chance
{
	my ($probability) = @_;

	return rand(1) < $probability;
}

sub among
{
	return $_[ int(rand(@_)) ];
}

sub between
{
	my ($low, $high) = @_;

	return $low + rand($high - $low);
}

# To the microsecond, like the server's times
sub interval
{
	my ($seconds) = @_;

	return sprintf("'%.6f s'", $seconds);
}

# Returns the SQL that declares a job in that way, and what the log says of it.
sub declaration
{
	my ($name, $plan) = @_;
	my $sql = sprintf("shedlock_job('%s', 'every %s', attempts => %d, backoff => %s, catch_up => '%s', max_late => %s)",
		$name, interval($plan->{every}) =~ tr/'//dr, $plan->{attempts}, interval($plan->{backoff}), $plan->{catch_up},
		defined $plan->{late} ? interval($plan->{late}) : 'NULL');

	return ($sql, name => $name, %$plan);
}

sub signal_number
{
	my ($name) = @_;
	my @names = split / /, $Config{sig_name};
	my ($number) = grep { $names[$_] eq $name } 0 .. $#names;

	return $number;
}

# Tries until the server answers again; returns undef after $until.
sub connect_to
{
	my ($connect, $name, $until) = @_;

	while (time < $until)
	{
		my $dbh = eval {
			DBI->connect("dbi:Pg:$connect;application_name='$name';connect_timeout=10", undef, undef,
				{ AutoCommit => 1, RaiseError => 1, PrintError => 0, PrintWarn => 1, pg_server_prepare => 0 });
		};

		return $dbh if $dbh;
		sleep(0.05);
	}
	return;
}

# Returns whether the last error of a handle closed its connection.
sub is_lost
{
	my ($dbh) = @_;

	return $dbh->state =~ /^(?:08|57P0|$)/ || !$dbh->ping;
}

1;
