# What the workers and the nemesis of the fault checker share: the log, the
# random numbers, the connection.  The checker itself uses none of it.
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
  interval is_lost signal_number sleep time);

my $log;

# Options of the command line, all of the form --name value, that must be there
# unless they have a default.
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

# A line is one write, before anything else happens: what a killed process did
# is in its log.  Returns the time.
sub note_line
{
	my @fields = @_;
	my $now = time;
	my $line = join("\t", sprintf('%.6f', $now), @fields) . "\n";

	syswrite($log, $line) == length $line or die "log: $!\n";
	return $now;
}

# Each scenario has random numbers of its own, so that it is the same one
# whatever became of those before it.
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

# To the microsecond, which is what the server counts in
sub interval
{
	my ($seconds) = @_;

	return sprintf("'%.6f s'", $seconds);
}

sub signal_number
{
	my ($name) = @_;
	my @names = split / /, $Config{sig_name};
	my ($number) = grep { $names[$_] eq $name } 0 .. $#names;

	return $number;
}

# Tries until there is a server again; undef when $until is over.
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

# Has the connection of a handle gone with its last error?
sub is_lost
{
	my ($dbh) = @_;

	return $dbh->state =~ /^(?:08|57P0|$)/ || !$dbh->ping;
}

1;
