# pg_cron runs guarded jobs over its own connections: each job with the correct result,
# no two runs of a job at once, and no queue of missed ticks.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Utils;
use ShedlockNode qw(session ask);
use Test::More;

my $node = start_cron_node('cron_libpq', '');

prepare_jobs($node);

# The first runs of these jobs take as long as the gate is closed.  A run is in the history
# before its command begins.
my $gate = session($node);
my $slow = "'SELECT pg_advisory_xact_lock_shared(1)'";
my $moved_bare = 'SELECT pg_advisory_xact_lock_shared(1) AS moved_bare';

ask($gate, 'SELECT pg_advisory_lock(1)');
at_second($node);
schedule_jobs($node, qq{
SELECT shedlock_cron_schedule('queued', 'every 1 min', $slow),
	   shedlock_cron_schedule('queued_own', '* * * * *', $slow),
	   cron.schedule('queued_always', '* * * * *', \$\$CALL shedlock_run('queued_always', $slow)\$\$),
	   shedlock_cron_schedule('moved', '* * * * *', $slow),
	   cron.schedule('moved_bare', '* * * * *', '$moved_bare')});

# Runs once by hand, and then never again: no server listens on that port.
$node->safe_psql(
	'postgres', q{
BEGIN;
SELECT shedlock_job('stuck', '* * * * *', overdue_after => '90 s'), shedlock_cron_schedule('stuck', '* * * * *', 'SELECT 1');
UPDATE cron.job SET nodeport = 1 WHERE jobname = 'stuck';
COMMIT});
$node->safe_psql('postgres', $node->safe_psql('postgres', "SELECT command FROM cron.job WHERE jobname = 'stuck'"));

await_first_runs($node);

#
# While the slow jobs run
#
is( $node->safe_psql('postgres', q{
SELECT last_started_at IS NOT NULL, last_duration IS NULL, last_outcome, state,
	   last_tick = date_trunc('minute', last_started_at), next_due > last_tick, overdue IS NULL
FROM shedlock_cron_jobs WHERE job_name = 'queued'}),
	't|t|running|running|t|t|t', 'shedlock_cron_jobs shows a run in progress');
is( $node->safe_psql('postgres',
		"SELECT state, last_started_at, overdue FROM shedlock_cron_jobs WHERE job_name = 'busy'"),
	'due||', 'shedlock_cron_jobs shows a job whose lock another holder has as due');
is( $node->safe_psql('postgres',
		"SELECT state, last_outcome FROM shedlock_cron_jobs WHERE job_name = 'fails'"),
	'gave up|failed', 'shedlock_cron_jobs shows the outcome of the last run');

# pg_cron forgets the run of an unscheduled job, and the backend continues.
$node->safe_psql(
	'postgres', qq{
SELECT cron.unschedule('moved_bare'), shedlock_cron_unschedule('moved');
SELECT shedlock_cron_schedule('moved', '* * * * *', $slow), cron.schedule('moved_bare', '* * * * *', '$moved_bare')});
ok( await_minutes($node,
		"SELECT count(*) = 2 FROM pg_stat_activity WHERE query = '$moved_bare'"),
	'without a guard, a job that is unscheduled and scheduled again during a run runs twice at once');
ok( await_minutes(
		$node, q{
SELECT count(*) > 0 FROM cron.job j JOIN cron.job_run_details d USING (jobid)
WHERE j.jobname = 'moved' AND d.status = 'succeeded'}),
	'with the guard, such a job is started at its next tick');
is( $node->safe_psql('postgres', "SELECT count(*), min(outcome) FROM shedlock_history WHERE name = 'moved'"),
	'1|running', 'that tick is skipped, because the run is in progress');

#
# After these runs, pg_cron starts the ticks that it has queued
#
ok(await_minutes($node, "SELECT count(*) = 3 FROM shedlock_history WHERE name LIKE 'queued%' AND clock_timestamp() - started_at > '2 min'"),
	'slow jobs take more than two minutes');
ask($gate, 'SELECT pg_advisory_unlock(1)');
ok( $node->poll_query_until(
		'postgres', q{
SELECT count(*) = 2
FROM (SELECT jobid FROM cron.job j JOIN cron.job_run_details d USING (jobid)
	  WHERE j.jobname IN ('queued', 'queued_always') AND d.status = 'succeeded'
	  GROUP BY jobid HAVING count(*) >= 3) jobs}),
	'pg_cron starts a one-minute job that took two minutes three times in that time');
$main::TODO = given_up($node);
is( $node->safe_psql(
		'postgres', q{
SELECT count(*) FILTER (WHERE started_at - previous < '10 s')
FROM (SELECT started_at, lag(ended_at) OVER (ORDER BY token) AS previous
	  FROM shedlock_history WHERE name = 'queued_always' ORDER BY token LIMIT 3) runs}),
	'2', 'without ticks its queued starts run back to back');
foreach my $job ('queued', 'queued_own')
{
	ok(await_minutes($node, "SELECT count(*) > 1 FROM shedlock_history WHERE name = '$job'"), "$job: with ticks the job runs again");
	is( $node->safe_psql(
			'postgres', qq{
SELECT tick = date_trunc('minute', previous) + interval '1 min', started_at >= tick
FROM (SELECT tick, started_at, lag(ended_at) OVER (ORDER BY token) AS previous
	  FROM shedlock_history WHERE name = '$job' ORDER BY token LIMIT 2) runs
WHERE previous IS NOT NULL}),
		't|t', "$job: it runs for the tick after its end, not for the queued ones");
}

check_jobs($node, 'libpq');

ok(await_minutes($node, "SELECT count(*) > 1 FROM shedlock_history WHERE name = 'moved'"),
	'the job that was scheduled again during a run has run again');
is( $node->safe_psql(
		'postgres', q{
SELECT bool_and(outcome = 'succeeded') FILTER (WHERE outcome <> 'running'), bool_and(started_at >= previous)
FROM (SELECT outcome, started_at, lag(ended_at) OVER (ORDER BY token) AS previous
	  FROM shedlock_history WHERE name = 'moved') runs}),
	't|t', 'it runs after the end of that run');

ok(await_minutes($node, "SELECT overdue IS NOT NULL FROM shedlock_cron_jobs WHERE job_name = 'stuck'"), 'a job that pg_cron fails to start is overdue');
is( $node->safe_psql(
		'postgres', q{
SELECT string_agg(job_name || '=' || (overdue IS NOT NULL), ' ' ORDER BY job_name)
FROM shedlock_cron_jobs WHERE job_name IN ('insert', 'queued', 'stuck', 'elsewhere')}),
	'elsewhere=false insert=false queued=false stuck=true',
	'and no other job is');

$node->stop;
done_testing();
