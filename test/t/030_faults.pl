# Whatever happens to clients, their sessions and the server, no promise is
# broken: one minute of the fault checker.  SHEDLOCK_SEED in the environment
# gives the operations and faults of an earlier run.

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

my $seed = $ENV{SHEDLOCK_SEED} || 1 + int(rand(1_000_000));
my $node = start_node('main', conf => "restart_after_crash = on\nlog_statement = none\n");
my $report = fault_run($node, seconds => 60, seed => $seed);

note($report);
is(rules_of($report), 'none', "no promise was broken (seed $seed)")
  or diag($report =~ s/.*(?=^Violations)//msr);
is(join(', ', $report =~ /^Never happened: (.*)/mg), '', 'every kind of call and of fault has happened');

$node->stop;
done_testing();
