# The program keeps its promises, whatever happens to its processes, its command, its cable
# and the server: a minute of the fault checker with hosts that run it.  SHEDLOCK_SEED in
# the environment repeats the commands and faults of an earlier run.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use FaultRun;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $program = "$FindBin::RealBin/../../src/program/shedlock";

eval { require DBD::Pg; 1 } or plan skip_all => 'this needs the Perl module DBD::Pg';
-x $program or plan skip_all => 'the program shedlock is not built';

my $rounds = 4;
my $seed = $ENV{SHEDLOCK_SEED} || 1 + int(rand(1_000_000));
my %never;
my $node = start_node('main', conf => "restart_after_crash = on\nlog_statement = none\nlog_min_error_statement = fatal\n");

foreach my $round (1 .. $rounds)
{
	# so that rounds do not share tokens
	$node->safe_psql('postgres', 'DROP EXTENSION shedlock; CREATE EXTENSION shedlock') if $round > 1;
	my $report = program_run($node, program => $program, seconds => 50, seed => $seed);

	note($report);
	is(rules_of($report), 'none', "no promise was broken (seed $seed)")
	  or diag($report =~ s/.*(?=^Violations)//msr);
	$never{$_}++ foreach $report =~ /^Never happened: (.*)/mg;
	last unless grep { $_ == $round } values %never;
	$seed++;
}
is(join(', ', grep { $never{$_} == $rounds } sort keys %never), '', 'every kind of end and of fault has happened');

$node->stop;
done_testing();
