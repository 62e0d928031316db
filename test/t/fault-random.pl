# No promise is broken, whatever happens to clients, their sessions and the server: one
# minute of the fault checker, and more on a machine that is too busy for every kind of
# event in a minute.  SHEDLOCK_SEED in the environment repeats the operations and faults
# of an earlier run.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use FaultRun;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

eval { require DBD::Pg; 1 } or plan skip_all => 'this needs the Perl module DBD::Pg';

my $rounds = 4;
my $seed = $ENV{SHEDLOCK_SEED} || 1 + int(rand(1_000_000));
my %never;
my $node = start_node('main', conf => "restart_after_crash = on\nlog_statement = none\n");

foreach my $round (1 .. $rounds)
{
	# so that rounds do not share ticks
	$node->safe_psql('postgres', 'DROP EXTENSION shedlock; CREATE EXTENSION shedlock') if $round > 1;
	my $report = fault_run($node, seconds => 60, seed => $seed);

	note($report);
	is(rules_of($report), 'none', "no promise was broken (seed $seed)")
	  or diag($report =~ s/.*(?=^Violations)//msr);
	$never{$_}++ foreach $report =~ /^Never happened: (.*)/mg;
	last unless grep { $_ == $round } values %never;
	$seed++;
}
is(join(', ', grep { $never{$_} == $rounds } sort keys %never), '', 'every kind of call and of fault has happened');

$node->stop;
done_testing();
