# The fault checker finds each of eight ways to break the program.  t/program-random checks the intact
# program.  Two minutes.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use FaultRun;
use PlantedFault;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $root = "$FindBin::RealBin/../..";

eval { require DBD::Pg; 1 } or plan skip_all => 'this needs the Perl module DBD::Pg';
-x "$root/src/program/shedlock" or plan skip_all => 'the program shedlock is not built';

my $rounds = 8;
my $node = start_node('main', conf => "restart_after_crash = on\nlog_statement = none\nlog_min_error_statement = fatal\n");

# The rule that must find each, by which faults, and what the commands do: see
# test/faults/program/child.c.
my @breakages = (
	[ 'the keeper has no timer for the end of the lease', 'outlived its lease', 'stop_guardian', 't',
		'program/signals.c', '(void) timer_settime(last_resort, TIMER_ABSTIME, &time, NULL);', '' ],
	[ 'the guardian ignores the end of the lease', 'outlived its lease', 'stop_keeper', 't',
		'program/guardian.c', '!guardian->lease_over && now >= LeaseStop(guardian->lease, guardian->lease_end)', 'false' ],
	[ 'the lease is thought to last longer', 'two at once', 'cut', 't',
		'program/server.c', "	if (left > run->lease.length)\n		left = run->lease.length;\n", "	left *= 3;\n" ],
	[ 'a lease that its job cuts short is thought to last', 'outlived its lease', 'again', 't',
		'program/server.c', "	if (left > run->lease.length)\n", '' ],
	[ 'daemons are not found', 'outlived its run', 'again', 'dl',
		'program/guardian.c', '(void) prctl(PR_SET_CHILD_SUBREAPER, 1L);', '',
		'program/keeper.c', 'prctl(PR_SET_CHILD_SUBREAPER, 1L) != 0', 'false' ],
	[ 'the outcome is that of a success', 'wrong outcome', 'kill_command', 'b',
		'program/keeper.c', 'status == 0 ? "succeeded" : "failed"', '"succeeded"' ],
	[ 'the exit status does not tell of the loss', 'wrong exit status', 'cut,away', 'b',
		'program/keeper.c', 'return EXIT_LOST;', 'return exit_code(status);' ],
	[ 'a forced release is ignored', 'not ended after a forced release', 'force_release', 't',
		'program/keeper.c', 'tell_guardian(keeper, ORDER_LOST);', '' ]);

foreach my $breakage (@breakages)
{
	my ($claim, $rule, $faults, $does, @changes) = @$breakage;

	subtest $claim => sub {
		# A busy machine ends commands late, too.
		plan skip_all => 'this needs a machine that is not busy'
		  if $rule =~ /forced/ && ($ENV{SHEDLOCK_LOAD} // 0) > 0;
		my $program = faulty_program(@changes);
		my ($report, $round);

		for ($round = 1; $round <= $rounds; $round++)
		{
			# so that runs do not share tokens
			$node->safe_psql('postgres', 'DROP EXTENSION shedlock; CREATE EXTENSION shedlock');
			$report = program_run($node, program => $program, seconds => 8, seed => 100 * $round, hosts => 4, pause => 0.3,
				faults => $faults, favour => $does, require => 'none');
			last if rules_of($report) =~ /\b$rule\b/;
		}
		like(rules_of($report), qr/\b$rule\b/, "found by \"$rule\"") or diag($report);
		note("in round $round: " . rules_of($report));
	};
}

$node->stop;
done_testing();
