# The fault checker finds each of nine ways to break the protocol, and no violation in
# the intact protocol under the same conditions.  The library is a separate build, see
# src/base/breakage.h.
#
# Debian packages: libdbd-pg-perl

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
plan skip_all => 'this needs a library that can be broken: scripts/test builds it'
  unless $ENV{SHEDLOCK_BREAKABLE} && -e $ENV{SHEDLOCK_BREAKABLE};

my $rounds = 10;
my $node = start_node('main', conf => slurp_file($ENV{SHEDLOCK_BREAKABLE}) . "log_statement = none\n");

# One run of a few seconds, with many clients for few locks
sub short_run
{
	my ($break, $delay, $seconds, $seed, %options) = @_;

	# so that runs do not share tokens
	$node->safe_psql('postgres', qq{
		DROP EXTENSION shedlock;
		CREATE EXTENSION shedlock;
		ALTER DATABASE postgres SET shedlock.break = '$break';
		ALTER DATABASE postgres SET shedlock.break_delay = '$delay ms'});
	return fault_run($node, seconds => $seconds, seed => $seed, names => 2, pace => 0.002, pause => 0.1,
		faults => 'stop_client,kill_client,cancel,terminate', require => 'none', %options);
}

is($node->safe_psql('postgres', "SHOW dynamic_library_path; LOAD 'shedlock'; SHOW shedlock.break")
	  =~ s/.*\n//r, 'none', 'the library can be broken');

foreach my $delay (0, 20)
{
	my $report = short_run('none', $delay, 10, 1000 + $delay);

	is(rules_of($report), 'none', "intact, steps at most $delay ms apart: no violation") or diag($report);
}

# The rule that must find each breakage; other rules may find it, too.  now() is wrong
# only in old transactions, which are rare if many clients wait for one lock.
foreach my $breakage (
	[ 'no_advisory_half', 20, 'two holders' ],
	[ 'transaction_time', 0, 'two holders', names => 6, favour => 'in_transaction' ],
	[ 'no_second_read', 20, 'two holders' ],
	[ 'no_owner_check', 0, 'not the owner' ],
	[ 'tokens_reused', 0, 'token repeated' ],
	[ 'attempts_uncounted', 0, 'too many attempts', favour => 'planned_run' ],
	[ 'success_unwritten', 0, 'used up', favour => 'planned_run' ],
	[ 'ticks_swallowed', 0, 'due but not run', favour => 'planned_run' ],
	[ 'permits_exceeded', 0, 'too many permits', favour => 'permits' ])
{
	my ($break, $delay, $rule, %options) = @$breakage;
	my ($report, $round);

	for ($round = 1; $round <= $rounds; $round++)
	{
		$report = short_run($break, $delay, 5, 100 * $round, %options);
		last if rules_of($report) =~ /\b$rule\b/;
	}
	like(rules_of($report), qr/\b$rule\b/, "$break: found by \"$rule\"") or diag($report);
	note("$break: in round $round: " . rules_of($report));
}

$node->stop;
done_testing();
