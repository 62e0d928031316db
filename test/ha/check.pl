#!/usr/bin/perl
# Checks what the workers of scripts/test-ha wrote.
#
#	check.pl holders LOG...     no lock had two holders at once
#	check.pl tokens LOG...      the tokens of a lock grow in the order of its holders
#	check.pl ticks LOG...       no tick was claimed twice
#	check.pl errors LOG...      nothing but lost connections, and servers that do not write
#	check.pl alive TIME LOG...  each worker has held a lock before and after that time
#
# Says how much there was to check; exits with 1, and names them, if there are
# violations.

use strict;
use warnings FATAL => 'all';

my $what = shift;
my $time = $what eq 'alive' ? shift : 0;
my (%holds, %ticks, @errors, %before, %after);
my ($count, @wrong) = (0);

foreach my $file (@ARGV)
{
	open my $log, '<', $file or die "$file: $!";
	($before{$file}, $after{$file}) = (0, 0);
	while (<$log>)
	{
		my ($kind, @words) = split;

		if ($kind eq 'held')
		{
			my ($name, $token, $from, $to) = @words;

			push @{ $holds{$name} }, { token => $token, from => $from, to => $to, line => "$file: $_" };
			$from < $time ? $before{$file}++ : $after{$file}++;
		}
		push @{ $ticks{"$words[0] $words[1]"} }, "$file: $_" if $kind eq 'tick';
		push @errors, [ $words[0], "$file: $_" ] if $kind eq 'error';
	}
}

if ($what eq 'holders' || $what eq 'tokens')
{
	foreach my $holds (values %holds)
	{
		my $last;

		foreach my $hold (sort { $a->{from} <=> $b->{from} } @$holds)
		{
			$count++;
			push @wrong, $last->{line} . $hold->{line}
			  if $last && ($what eq 'holders' ? $hold->{from} < $last->{to} : $hold->{token} <= $last->{token});
			$last = $hold if !$last || $what eq 'tokens' || $hold->{to} > $last->{to};
		}
	}
}
elsif ($what eq 'ticks')
{
	foreach my $claims (values %ticks)
	{
		$count++;
		push @wrong, @$claims if @$claims > 1;
	}
}
elsif ($what eq 'errors')
{
	# 08: no connection; 57P: the server goes down, or comes up; 25006: a standby
	$count = @errors;
	@wrong = map { $_->[1] } grep { $_->[0] !~ /^(08|57P|25006)/ } @errors;
}
else
{
	$count = keys %after;
	@wrong = map { "$_: $before{$_} before, $after{$_} after\n" } grep { !$before{$_} || !$after{$_} } sort keys %after;
}
print "$count\n", @wrong;
exit(@wrong || (!$count && $what ne 'errors') ? 1 : 0);
