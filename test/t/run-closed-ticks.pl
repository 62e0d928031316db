# Callers that fire as often as they can run each tick once, and get no error, whatever the
# moment at which the last run ends.  A run that an administrator has ended has used up its
# tick.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run ();
use POSIX qw(ceil);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep);

my $node = start_node('main');
my $call = "CALL shedlock_run('job', '%s');\n";
my $scripts = 0;

$node->safe_psql('postgres', "SELECT shedlock_job('job', 'every 20000 days', attempts => 1000, backoff => '0')");

# Writes a script of pgbench, and returns its file.
sub script
{
	my ($statements) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir . '/fire' . ++$scripts . '.sql';

	append_to_file($file, $statements);
	return $file;
}

# Starts clients that repeat scripts, given by their files, for some seconds.
sub start_firing
{
	my ($out, $seconds, @scripts) = @_;

	return IPC::Run::start(
		[ 'pgbench', '-n', '-D', 'n=0', '-h', $node->host, '-p', $node->port, '-c', 6, '-T', $seconds, (map { ('-f', $_) } @scripts), 'postgres' ],
		'<', \undef, '>&', $out);
}

# Runs outside the database, and runs of commands, of one job after the other.  Whoever
# runs one is overtaken by those that do not: so all clients call for the same job at once.
my $jobs = 60;
my $next = "\\set n (:n + 1) % $jobs\n";

sub begin_and_end
{
	my ($name) = @_;

	return script("${next}SELECT coalesce(token, 0) AS token FROM shedlock_run_begin('$name ' || :n, '10 min') \\gset\n"
		  . "\\if :token\nSELECT shedlock_run_end('$name ' || :n, :token);\n\\endif\n");
}

sub call
{
	my ($name) = @_;

	return script("${next}CALL shedlock_run('$name ' || :n, 'SELECT 1');\n");
}

sub declare
{
	my ($name, $job) = @_;

	return "SELECT shedlock_job('$name ' || n, $job) FROM generate_series(0, $jobs - 1) n";
}

# A tick whose run is at work is due again as far as its row says, because that run may
# have died.  It is not due if that run ends between the read of that row and the
# acquire of the lock, nor if another version of the job is declared then.
my $job = "'every 1 s', attempts => 3";
my %jobs = (
	commands => [ call('commands') ],
	both => [ begin_and_end('both'), call('both') ],
	versions => [
		begin_and_end('versions'), call('versions'),
		script(declare('versions', "'every 2 s', attempts => 3, max_late => '1 ms'") . ";\n" . declare('versions', $job) . ";\n") ]);

foreach my $name (sort keys %jobs)
{
	my $out;

	$node->safe_psql('postgres', declare($name, $job));
	local $ENV{PGOPTIONS} = '-c client_min_messages=warning';
	ok(start_firing(\$out, ceil(2 * slowness($node)), @{ $jobs{$name} })->finish, "$name: pgbench comes to its end");
	is(join("\n", $out =~ /(?:ERROR|WARNING|FATAL): .*/g), '', "$name: no call fails");
	is($node->safe_psql('postgres', "SELECT DISTINCT outcome, attempt FROM shedlock_history WHERE name LIKE '$name %'"),
		'succeeded|1', "$name: the first attempt at each tick has succeeded");
	is($node->safe_psql('postgres', "SELECT count(*) - count(DISTINCT (name, tick)), count(*) >= $jobs FROM shedlock_history WHERE name LIKE '$name %'"),
		'0|t', "$name: no tick has two runs");
}

# Begins a run that lasts; returns its session and its token.
sub long_run
{
	my $session = session($node);

	$node->safe_psql('postgres', "SELECT shedlock_again('job')");
	$session->query_until(qr/begun/, "\\echo begun\n" . sprintf($call, 'SELECT pg_sleep(600)'));
	defined await($node, "SELECT count(*) = 1 FROM shedlock_locks WHERE state = 'held'") or die 'the run has not begun';
	return ($session, $node->safe_psql('postgres', 'SELECT max(token) FROM _shedlock_history'));
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
	my $firing = start_firing(\$out, 1, script(sprintf($call, 'SELECT 1')));

	sleep(0.5);
	is($node->safe_psql('postgres', "SELECT shedlock_force_release('job')"), 't', 'shedlock_force_release ends the run');
	$firing->finish;
	$more += $node->safe_psql('postgres', "SELECT count(*) FROM _shedlock_history WHERE token > $token");
	eval { $session->quit };
}
is($more, 0, 'no attempt follows shedlock_force_release');

# The tick is closed before the command is cancelled: a call that cannot close it cancels
# nothing.
my ($session, $token) = long_run();
my $writer = session($node);

ask($writer, 'BEGIN');
ask($writer, "SELECT FROM _shedlock_tick WHERE name = 'job' FOR UPDATE");
like(error_of($node, "SET lock_timeout = '200ms'; SELECT shedlock_cancel('job')"),
	qr/^55P03/, 'shedlock_cancel fails while the row of the tick is locked');
ask($writer, 'ROLLBACK');
sleep(0.5);
is(is_running($token), 't', 'the run continues');
is($node->safe_psql('postgres', "SELECT shedlock_cancel('job')"), 't', 'shedlock_cancel ends it');
ok(defined await($node, "SELECT outcome = 'cancelled' FROM shedlock_history WHERE token = $token"), 'it is cancelled');
is($node->safe_psql('postgres', "SELECT done FROM _shedlock_tick WHERE name = 'job'"), 't', 'its tick is used up');
$session->quit;

# While shedlock_force_release waits for the row of the tick, the run dies.  It has the row of
# the lock by then: nobody acquires the lock before the tick is used up.
my $forcer = session($node);
my $successor = session($node);
foreach my $acquire ('shedlock_acquire', 'shedlock_acquire_session')
{
	($session, $token) = long_run();
	ask($writer, 'BEGIN');
	ask($writer, "SELECT FROM _shedlock_tick WHERE name = 'job' FOR UPDATE");
	$forcer->query_until(qr/begun/, "\\echo begun\nSELECT shedlock_force_release('job');\n");
	ok(defined await($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'force_release'"),
		'shedlock_force_release waits');
	terminate($node, $node->safe_psql('postgres', "SELECT pid FROM _shedlock_history WHERE token = $token"));
	is(ask($successor, "SELECT $acquire('job', '1 h')"), 'f', "the run has died, and $acquire is refused");
	ask($writer, 'ROLLBACK');
	is(ask($forcer, 'SELECT 1'), "t\n1", 'shedlock_force_release ends the run all the same');
	is($node->safe_psql('postgres', "SELECT outcome FROM shedlock_history WHERE token = $token"), 'cancelled', 'it is cancelled');
	is($node->safe_psql('postgres', "SELECT done FROM _shedlock_tick WHERE name = 'job'"), 't', 'its tick is used up');
	is(ask($successor, "SELECT $acquire('job', '1 h')"), 't', "its lock is free: $acquire");
	ask($successor, "SELECT shedlock_release('job')");
	eval { $session->quit };
}
$_->quit foreach $forcer, $successor, $writer;

$node->stop;
done_testing();
