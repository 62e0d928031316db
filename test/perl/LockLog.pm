# The rules for what clients log that acquire locks during a failover.
#
# A line is "held NAME TOKEN FROM TO", "tick NAME TICK TIME" or "error SQLSTATE TIME", with
# times of one clock.
package LockLog;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use List::Util qw(max);

our @EXPORT = qw(violations);

# Returns the lines that break a rule.
sub violations
{
	my ($rule, @lines) = @_;
	my (%last, @wrong);

	# 08: no connection; 57P: the server stops or starts; 25006: a standby
	return grep { /^error/ && !/^error (?:08|57P|25006)/ } @lines if $rule eq 'errors';
	return grep { /^(tick \S+ \S+)/ && $last{$1}++ } @lines if $rule eq 'ticks';
	foreach my $hold (sort { $a->[2] <=> $b->[2] } map { /^held (\S+) (\S+) (\S+) (\S+)/ ? [ $1, $2, $3, $4 ] : () } @lines)
	{
		my ($name, $token, $from, $to) = @$hold;
		my $last = $last{$name} // [ 0, 0 ];

		push @wrong, "$name $token $from $to" if $rule eq 'holders' ? $from < $last->[1] : $token <= $last->[0];
		$last{$name} = [ $token, max($to, $last->[1]) ];
	}
	return @wrong;
}

1;
