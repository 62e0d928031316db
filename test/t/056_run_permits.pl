# Runs with permits under load.  Whatever permits the callers have, and whatever becomes of
# the runs, a tick has one run at a time, and no permit two; a log of their own proves it.
# Runs that end together are counted.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = 8;
my $clients = 12;
my $node = start_node('main', conf => "log_line_prefix = '%m [%p] '\nlog_timezone = 'UTC'\n");

#
# Runs that end together
#
# Each keeps the counters locked for 30 ms, together much longer than a run waits for one
# transaction, which is 100 ms.
my $ends = 20;
my $gate = session($node);

$node->safe_psql('postgres', 'CREATE TABLE kept (seconds float)');
append_to_file("$PostgreSQL::Test::Utils::tmp_check/together.sql", <<"SQL");
SELECT token FROM shedlock_run_begin('together', '10 min', permits => $ends) \\gset
SELECT FROM pg_advisory_xact_lock_shared(7);
BEGIN;
SELECT shedlock_run_end('together', :token);
SELECT extract(epoch FROM clock_timestamp()) AS since \\gset
\\sleep 30 ms
END;
INSERT INTO kept SELECT extract(epoch FROM clock_timestamp()) - :since;
SQL
ask($gate, 'SELECT pg_advisory_lock(7)');
my ($out, $err) = ('', '');
my $bench = IPC::Run::start([ 'pgbench', '-n', '-c', $ends, '-j', 4, '-t', 1, '-f', "$PostgreSQL::Test::Utils::tmp_check/together.sql", $node->connstr('postgres') ], '>', \$out, '2>', \$err);
defined await($gate, "SELECT count(*) = $ends FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted") or BAIL_OUT("the runs do not begin: $err");
ask($gate, 'SELECT pg_advisory_unlock(7)');
ok($bench->finish, "$ends runs end together") or diag $err;
my $warned = () = $err =~ /could not count a run of lock "together"/g;
my $counted = $node->safe_psql('postgres', "SELECT runs_succeeded FROM shedlock_stats WHERE name = 'together'");
my $longest = $node->safe_psql('postgres', 'SELECT max(seconds) FROM kept');

is($node->safe_psql('postgres', "SELECT count(*) FROM shedlock_history WHERE name = 'together' AND outcome = 'succeeded'"), $ends, 'each has its outcome');
is($counted + $warned, $ends, 'each is counted, or a WARNING says that it is not');
# the first is counted, whatever the others wait for
cmp_ok($counted, '>', $longest < 0.1 ? $ends / 2 : 0, "$counted of $ends are counted, of which none keeps the counters for more than $longest s");

#
# A run whose process has died
#
my $run = q{CALL shedlock_run('killed', 'SELECT pg_sleep(%s)', once_every => '20000 days', attempts => 2, backoff => '0', permits => 3, on_busy => 'error')};
my $victim = session($node);
$victim->query_until(qr/begun/, "\\echo begun\n" . sprintf("$run;\n", 600));
my $held = q{FROM shedlock_locks WHERE name LIKE 'killed/_' AND state = 'held'};
defined await($gate, "SELECT count(*) = 1 $held") or BAIL_OUT('no run begins');
ask($gate, "SELECT pg_terminate_backend(pid, 60000) $held");
reap($victim);
ask($gate, sprintf $run, 0);
is(ask($gate, q{SELECT string_agg(concat_ws(' ', outcome, attempt, gave_up), ', ' ORDER BY token) FROM shedlock_history WHERE name = 'killed'}), 'lost 1 f, succeeded 2 f', 'the next attempt follows one that was killed');
is(ask($gate, q{SELECT runs_succeeded, runs_lost, gave_up FROM shedlock_stats WHERE name = 'killed'}), '1|1|0', 'each is counted');
is(ask($gate, q{SELECT count(*) FROM shedlock_locks WHERE name LIKE 'killed%'}), '0', 'no permit is held');

#
# Clients with 2 to 5 permits, whose sessions are killed
#
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE run (id bigserial, pid integer, tick timestamptz, permit integer, permits integer, begun timestamptz, ended timestamptz);
CREATE TABLE killed (pid integer, at timestamptz);
CREATE FUNCTION begin_log(permits integer, tick text, permit integer) RETURNS bigint LANGUAGE sql AS
$$ INSERT INTO run (pid, tick, permit, permits, begun) VALUES (pg_backend_pid(), nullif($2, '')::timestamptz, $3, $1, clock_timestamp()) RETURNING id $$;
CREATE PROCEDURE work(permits integer, ms integer, fails boolean) LANGUAGE plpgsql AS $$
DECLARE
	run_id bigint := begin_log(permits, current_setting('shedlock.tick'), current_setting('shedlock.permit')::integer);
BEGIN
	COMMIT;
	PERFORM pg_sleep(ms / 1000.0);
	UPDATE run SET ended = clock_timestamp() WHERE id = run_id;
	IF fails THEN
		COMMIT;
		RAISE 'failed';
	END IF;
END $$;
CREATE PROCEDURE leased(permits integer, ms integer, outcome text) LANGUAGE plpgsql AS $$
DECLARE
	begun record;
	run_id bigint;
BEGIN
	begun := shedlock_run_begin('job', '10 min', permits => permits, once_every => '250 ms', attempts => 3, backoff => '20 ms', wait => '100 ms');
	COMMIT;
	IF begun.token IS NULL THEN
		RETURN;
	END IF;
	run_id := begin_log(permits, begun.tick::text, begun.permit);
	COMMIT;
	PERFORM pg_sleep(ms / 1000.0);
	UPDATE run SET ended = clock_timestamp() WHERE id = run_id;
	COMMIT;
	PERFORM shedlock_run_end('job', begun.token, outcome);
END $$;
SQL

# Repeats calls until that time, with new sessions after some of them.
sub run_client
{
	my ($until) = @_;

	srand($$);
	while (time < $until)
	{
		my $calls = "SET client_min_messages = error;\n";

		foreach (1 .. 8)
		{
			my $permits = 2 + int rand 4;
			my $ms = 20 + int rand 400;

			$calls .= rand() < 0.7
			  ? "CALL shedlock_run('job', 'CALL work($permits, $ms, " . (rand() < 0.3 ? 'true' : 'false') . ")', once_every => '250 ms', attempts => 3, backoff => '20 ms', permits => $permits);\n"
			  : "CALL leased($permits, $ms, '" . (rand() < 0.5 ? 'succeeded' : 'failed') . "');\n";
		}
		$node->psql('postgres', $calls, on_error_stop => 0);
	}
	return;
}

my $until = time + $seconds;
my @children;
foreach (1 .. $clients)
{
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		run_client($until);
		POSIX::_exit(0);
	}
	push @children, $pid;
}
# A killed session of a command frees its permit.  That of a leased run would keep it.
while (time < $until)
{
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM shedlock_locks WHERE kind = 'run' AND state = 'held' ORDER BY random() LIMIT 1});
	sleep 0.3;
}
my @failed = grep { waitpid($_, 0) != $_ || $? != 0 } @children;
is("@failed", '', 'the clients come to their end');

# Each death has its time in the server's log, before its locks are free.
my @deaths = slurp_file($node->logfile) =~ /^(\S+ \S+ \S+ \[\d+\]) FATAL:  terminating connection/mg;
$node->safe_psql('postgres', join '', map { /^(.*) \[(\d+)\]$/ && "INSERT INTO killed VALUES ($2, '$1');" } @deaths);
$node->safe_psql('postgres', q{UPDATE run SET ended = coalesce((SELECT min(at) FROM killed k WHERE k.pid = run.pid AND at >= begun - interval '1 ms'), 'infinity') WHERE ended IS NULL});

my $runs = $node->safe_psql('postgres', 'SELECT count(*) FROM run');
my $ticks = $node->safe_psql('postgres', 'SELECT count(DISTINCT tick) FROM run');
cmp_ok($ticks, '>', 5, "$runs runs of $ticks ticks, " . @deaths . ' of them killed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM run a JOIN run b ON a.tick = b.tick AND a.id < b.id AND a.begun < b.ended AND b.begun < a.ended'), '0', 'no tick has two runs at once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM run a JOIN run b ON a.permit = b.permit AND a.id < b.id AND a.begun < b.ended AND b.begun < a.ended'), '0', 'no permit has two runs at once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM run WHERE permit NOT BETWEEN 1 AND permits'), '0', 'no run has a permit that its caller does not have');
cmp_ok($node->safe_psql('postgres', 'SELECT max((SELECT count(*) FROM run b WHERE b.begun <= a.begun AND b.ended > a.begun)) FROM run a'), '<=', 5, 'no more runs are at work at once than the greatest number of permits');

# The history says the same.
is($node->safe_psql('postgres', 'SELECT count(*) FROM shedlock_run_log a JOIN shedlock_run_log b ON a.tick = b.tick AND a.token < b.token AND a.ended_at > b.started_at'), '0', 'a run of a tick begins after the one before has ended');
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT FROM shedlock_run_log WHERE tick IS NOT NULL GROUP BY tick, attempt HAVING count(*) > 1) twice'), '0', 'no attempt is made twice');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shedlock_run_log a JOIN shedlock_run_log b ON a.tick = b.tick AND a.token < b.token WHERE a.outcome = 'succeeded' OR a.gave_up}), '0', 'no attempt follows a success, or a run that gave up');
is($node->safe_psql('postgres', 'SELECT count(*) FROM shedlock_run_log a JOIN shedlock_run_log b ON a.token < b.token AND a.tick > b.tick'), '0', 'ticks move forward');
is( $node->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE outcome = 'succeeded') - max(runs_succeeded), count(*) FILTER (WHERE outcome = 'failed') - max(runs_failed),
	count(*) FILTER (WHERE outcome = 'lost') - max(runs_lost), count(*) FILTER (WHERE l.gave_up AND outcome <> 'running') - max(s.gave_up) FROM shedlock_run_log l JOIN shedlock_stats s USING (name) WHERE name = 'job'}),
	'0|0|0|0', 'the counters are those of the history')
  if slurp_file($node->logfile) !~ /could not count a run of lock "job"/;

done_testing();
