# The launcher of pg_cron is terminated during a run, and restarts.  It does not know that
# run, marks it as failed, and starts the job again during the run: a bare job runs twice
# at once; a guarded job does not, and continues after the end of that run.  Both
# execution modes are tested.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Utils;
use ShedlockNode qw(session ask await terminate);
use Test::More;

my $launcher = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher'";

# A server whose jobs begin and then wait until the test releases them
sub start_working
{
	my ($mode, $conf) = @_;
	my $node = start_cron_node($mode, $conf);

	skip_before_16($node);
	$node->safe_psql(
		'postgres', q{
CREATE EXTENSION shedlock;
CREATE TABLE works (id serial, job text, pid int DEFAULT pg_backend_pid(),
	began timestamptz DEFAULT clock_timestamp(), ended timestamptz);
CREATE PROCEDURE work(of_job text) LANGUAGE plpgsql AS $$
DECLARE
	mine int;
BEGIN
	INSERT INTO works (job) VALUES (of_job) RETURNING id INTO mine;
	COMMIT;
	PERFORM pg_advisory_xact_lock_shared(1);
	UPDATE works SET ended = clock_timestamp() WHERE id = mine;
END
$$;
});
	return $node;
}

sub test_launcher
{
	my ($node, $mode) = @_;
	my $query = sub { return $node->safe_psql('postgres', $_[0]) };
	my $comes = sub { my ($sql, $claim) = @_; return ok(defined await($node, $sql), "$mode: $claim") };

	# Returns how often pg_cron has started a job.
	my $runs = "cron.job_run_details d JOIN cron.job j USING (jobid) WHERE jobname";

	my $gate = session($node);
	ask($gate, 'SELECT pg_advisory_lock(1)');
	$query->(
		q{
SELECT cron.schedule('bare', '1 second', $$CALL work('bare')$$),
	   shedlock_cron_schedule('guarded', '1 second', $$CALL work('guarded')$$),
	   shedlock_cron_schedule('once', 'every 36500 days', $$CALL work('once')$$, fire => '1 second')});
	foreach my $job ('bare', 'guarded', 'once')
	{
		$comes->("SELECT count(*) = 1 FROM works WHERE job = '$job'", "job $job works");
	}
	my $first = $query->('SELECT job, pid FROM works ORDER BY job');

	my $old = $query->($launcher);
	terminate($node, $old);
	$comes->("SELECT count(*) = 1 FROM ($launcher) l WHERE pid <> $old", 'the launcher is terminated, and restarts');
	foreach my $job ('bare', 'guarded', 'once')
	{
		$comes->(
			"SELECT count(*) = 1 FROM $runs = '$job' AND status = 'failed' AND return_message = 'server restarted'",
			"the launcher marks the run of $job as failed");
	}
	is( $query->(
			'SELECT job, pid FROM works w WHERE ended IS NULL AND EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = w.pid)'
			  . " AND began < (SELECT backend_start FROM pg_stat_activity WHERE pid IN ($launcher)) ORDER BY job"),
		$first, "$mode: the runs continue");

	$comes->("SELECT count(*) = 2 FROM works WHERE job = 'bare'", 'the bare job is started again');
	is( $query->(
			"SELECT count(*) FROM works w JOIN pg_stat_activity a USING (pid) WHERE job = 'bare' AND ended IS NULL"),
		'2', "$mode: the bare job runs twice at once");

	foreach my $job ('guarded', 'once')
	{
		$comes->("SELECT count(*) >= 3 FROM $runs = '$job' AND status = 'succeeded'",
			"job $job is started repeatedly, too");
		is($query->("SELECT count(*) FROM works WHERE job = '$job'"), '1', "$mode: job $job runs once");
		is($query->("SELECT count(*), min(outcome) FROM shedlock_history WHERE name = '$job'"),
			'1|running', "$mode: the history shows one run of $job");
	}
	is($query->("SELECT state, last_outcome, overdue IS NOT NULL FROM shedlock_cron_jobs WHERE job_name = 'guarded'"),
		'running|running|f', "$mode: shedlock_cron_jobs shows the run although pg_cron shows it as failed");

	# Release the jobs
	ask($gate, 'SELECT pg_advisory_unlock(1)');
	$comes->("SELECT count(*) >= 3 FROM works WHERE job = 'guarded' AND ended IS NOT NULL",
		'the guarded job runs again after that run has ended');
	is( $query->(
			q{
SELECT bool_and(began >= previous)
FROM (SELECT began, lag(ended) OVER (ORDER BY id) AS previous FROM works WHERE job = 'guarded') w}),
		't', "$mode: runs of the guarded job never overlap");
	is( $query->(
			"SELECT pid, ended IS NOT NULL FROM works WHERE job = 'guarded' ORDER BY id LIMIT 1"),
		($first =~ /guarded\|(\d+)/)[0] . '|t', "$mode: the work of that run is committed");
	is($query->("SELECT outcome FROM shedlock_history WHERE name = 'guarded' ORDER BY token LIMIT 1"),
		'succeeded', "$mode: the history shows that run as succeeded");
	is($query->("SELECT count(*), bool_and(ended IS NOT NULL) FROM works WHERE job = 'once'"),
		'1|t', "$mode: the job of the tick has run once");
	$gate->quit;
	return;
}

my %nodes = (
	libpq => start_working('libpq', ''),
	worker => start_working('worker', "cron.use_background_workers = on\n"));

at_second($nodes{libpq});

foreach my $mode (sort keys %nodes)
{
	test_launcher($nodes{$mode}, $mode);
	$nodes{$mode}->stop;
}
done_testing();
