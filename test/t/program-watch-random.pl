# Every problem that lasts is told begun and over, in turn, whatever happens to the watchers, their
# command, their cable and the server: a minute of the fault checker with three watchers.
# SHEDLOCK_SEED in the environment repeats the problems and faults of an earlier run.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use FaultRun;
use HostProgram;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

eval { require DBD::Pg; 1 } or plan skip_all => 'this needs the Perl module DBD::Pg';
plan skip_all => 'this system cannot have the program shedlock' unless program_path();

my $seed = $ENV{SHEDLOCK_SEED} || 1 + int(rand(1_000_000));
my $node = start_node('main', conf => "log_statement = none\nlog_min_error_statement = fatal\n");
my $report = watch_run($node, program => program_path(), seconds => 60, seed => $seed);

note($report);
is(rules_of($report), 'none', "no promise was broken (seed $seed)")
  or diag($report =~ s/.*(?=^Violations)//msr);
like($report, qr/^  $_ +\d+$/m, "this has happened: $_") foreach 'told', 'long problem';

$node->stop;
done_testing();
