# The program keeps its promises whatever a server answers: a sample of what test/hostile
# can do at each step.  SHEDLOCK_SEED in the environment repeats it; SHEDLOCK_ROUNDS=1 does all of it.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use HostProgram;
use IPC::Run qw(run);
use ShedlockNode;
use Test::More;

my $python = '/usr/bin/python3';

plan skip_all => 'this system cannot have the program shedlock' unless program_path();
plan skip_all => 'there is no Python' unless -x $python;

my $seed = $ENV{SHEDLOCK_SEED} || 1 + int(rand(1_000_000));
my $rounds = $ENV{SHEDLOCK_ROUNDS} || 0;
my $slow = slowness(start_node('main'));
my $said = '';

note "SHEDLOCK_SEED=$seed";
ok(run([ $python, 'test/hostile/check', '--rounds', $rounds, '--slow', $slow, $seed, program_path() ], '<', \undef, '>&', \$said),
	"no promise was broken (seed $seed)") or diag($said);
note($said);

done_testing();
