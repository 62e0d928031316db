# Which calls start a run of a job, what they are told of when to come back, and when a job is
# overdue: the library keeps its promises in random worlds, in which jobs are declared, changed
# and forgotten, and calls, runs, administrators and the clock do what they can.
#
# The worlds live in the server, in the module test/modules/due: all of src/job decides in
# them, with a clock and tables that are simulated, and a ledger that shares no code with it
# checks the promises.  slow/run-found.pl shows that they break without any one clause.
#
# A world is named by its number: SHEDLOCK_SEED=3141 SHEDLOCK_ROUNDS=1 scripts/test
# tap/run-due-model repeats that world, and tells what happens in it if it breaks a promise.
# SHEDLOCK_ROUNDS=100000 lives more worlds than usual.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use DueWorlds;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $seed = $ENV{SHEDLOCK_SEED} || time % 1_000_000;
my $worlds = $ENV{SHEDLOCK_ROUNDS} || 5_000;
note("SHEDLOCK_SEED=$seed SHEDLOCK_ROUNDS=$worlds");

plan skip_all => 'SHEDLOCK_DUE does not name the module with the worlds: see scripts/test'
  unless $ENV{SHEDLOCK_DUE};
my $node = start_node('main');

my $promises = live_worlds($node, $ENV{SHEDLOCK_DUE}, $seed, $worlds, 'false');
foreach my $promise (sort keys %$promises)
{
	my ($checked, $broken, $world) = @{ $promises->{$promise} };

	is($broken, 0, "$promise ($checked times)")
	  or diag("world $world:\n", tell_world($node, $ENV{SHEDLOCK_DUE}, $world));
}
cmp_ok(scalar(keys %$promises), '>=', 39, 'each promise was checked') if $worlds >= 1_000;

$node->stop;
done_testing();
