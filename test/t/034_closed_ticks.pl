# A run that an administrator has ended has used up its tick, even for callers that fire
# as often as they can.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep);

my $node = start_node('main');
my $call = "CALL shedlock_run('job', '%s', once_every => '1 day', attempts => 1000, backoff => '0');\n";
my $script = PostgreSQL::Test::Utils::tempdir . '/fire.sql';

append_to_file($script, sprintf($call, 'SELECT 1'));

# Begins a run that lasts; returns its session and its token.
sub long_run
{
	my $session = session($node);

	$node->safe_psql('postgres', "SELECT shedlock_forget('job')");
	$session->query_until(qr/begun/, "\\echo begun\n" . sprintf($call, 'SELECT pg_sleep(600)'));
	defined await($node, "SELECT count(*) = 1 FROM shedlock_locks WHERE state = 'held'") or die 'the run has not begun';
	return ($session, $node->safe_psql('postgres', 'SELECT max(token) FROM shedlock_run_log'));
}

sub is_running
{
	my ($token) = @_;

	return $node->safe_psql('postgres', "SELECT outcome = 'running' FROM shedlock_history WHERE token = $token");
}

# A caller has only the moment between the end of the session and the answer to the act.
# It may get an error, because the tick is being closed.
my $more = 0;

foreach (1 .. 3)
{
	my ($session, $token) = long_run();
	my $out;
	my $firing = IPC::Run::start(
		[ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', 4, '-T', 1, '-f', $script, 'postgres' ],
		'<', \undef, '>&', \$out);

	sleep(0.5);
	is($node->safe_psql('postgres', "SELECT shedlock_force_release('job')"), 't', 'shedlock_force_release ends the run');
	$firing->finish;
	$more += $node->safe_psql('postgres', "SELECT count(*) FROM shedlock_run_log WHERE token > $token");
	eval { $session->quit };
}
is($more, 0, 'no attempt follows shedlock_force_release');

# The tick is closed before the command is cancelled: a call that cannot close it cancels
# nothing.
my ($session, $token) = long_run();
my $writer = session($node);

ask($writer, 'BEGIN');
ask($writer, 'SELECT FROM shedlock_tick FOR UPDATE');
like(error_of($node, "SET lock_timeout = '200ms'; SELECT shedlock_cancel('job')"),
	qr/^55P03/, 'shedlock_cancel fails while the row of the tick is locked');
ask($writer, 'ROLLBACK');
sleep(0.5);
is(is_running($token), 't', 'the run continues');
is($node->safe_psql('postgres', "SELECT shedlock_cancel('job')"), 't', 'shedlock_cancel ends it');
ok(defined await($node, "SELECT outcome = 'cancelled' FROM shedlock_history WHERE token = $token"), 'it is cancelled');
is($node->safe_psql('postgres', 'SELECT done FROM shedlock_tick'), 't', 'its tick is used up');
$writer->quit;
$session->quit;

$node->stop;
done_testing();
