# pg_cron runs guarded jobs over its own connections: each job with the correct result,
# no two runs of a job at once, and no queue of missed ticks.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_cron_node('cron_libpq', '');

prepare_jobs($node);
await_minute();
schedule_jobs($node);

# The first run of each of these jobs takes more than a minute, later ones do not.  A run
# is in the history before its command begins.
sub slow_first
{
	my ($job, $seconds) = @_;
	return "SELECT pg_sleep(CASE WHEN (SELECT count(*) FROM shedlock_history WHERE name = '$job') > 1"
	  . " THEN 0 ELSE $seconds END)";
}

my $moved = slow_first('moved', 90);
my $moved_bare = 'SELECT pg_sleep(90) AS moved_bare';

$node->safe_psql('postgres',
		"SELECT shedlock_cron_schedule('queued', '* * * * *', \$c\$"
	  . slow_first('queued', 150)
	  . "\$c\$, once_every => '1 min'), shedlock_cron_schedule('queued_own', '* * * * *', \$c\$"
	  . slow_first('queued_own', 150)
	  . "\$c\$), cron.schedule('queued_always', '* * * * *', \$c\$CALL shedlock_run('queued_always', \$d\$"
	  . slow_first('queued_always', 150)
	  . "\$d\$)\$c\$), shedlock_cron_schedule('moved', '* * * * *', \$c\$$moved\$c\$),"
	  . " cron.schedule('moved_bare', '* * * * *', '$moved_bare')");

# Runs once by hand, and then never again: no server listens on that port.
$node->safe_psql(
	'postgres', q{
SELECT shedlock_cron_schedule('stuck', '* * * * *', 'SELECT 1'),
	   shedlock_cron_schedule('inactive', '* * * * *', 'SELECT 1', active => false);
UPDATE cron.job SET nodeport = 1 WHERE jobname = 'stuck'});
foreach my $job ('stuck', 'inactive')
{
	$node->safe_psql('postgres',
		$node->safe_psql('postgres', "SELECT command FROM cron.job WHERE jobname = '$job'"));
}

await_first_runs($node);

#
# While the slow jobs run
#
is( $node->safe_psql('postgres', q{
SELECT last_started IS NOT NULL, last_ended IS NULL, last_outcome, lock_state,
	   tick_claimed = date_trunc('minute', last_started), next_due > tick_claimed, overdue
FROM shedlock_jobs WHERE job_name = 'queued'}),
	't|t|running|held|t|t|f', 'shedlock_jobs shows a run in progress');
is( $node->safe_psql('postgres',
		"SELECT lock_state, last_started, overdue FROM shedlock_jobs WHERE job_name = 'busy'"),
	'held||f', 'shedlock_jobs shows a lock with another holder');
is( $node->safe_psql('postgres',
		"SELECT last_outcome, last_message FROM shedlock_jobs WHERE job_name = 'fails'"),
	'failed|division by zero', 'shedlock_jobs shows the outcome of the last run');

# pg_cron forgets the run of an unscheduled job, and the backend continues.
$node->safe_psql(
	'postgres', qq{
SELECT cron.unschedule('moved_bare'), shedlock_cron_unschedule('moved');
SELECT shedlock_cron_schedule('moved', '* * * * *', \$c\$$moved\$c\$), cron.schedule('moved_bare', '* * * * *', '$moved_bare')});
ok( $node->poll_query_until('postgres',
		"SELECT count(*) = 2 FROM pg_stat_activity WHERE query = '$moved_bare'"),
	'without a guard, a job that is unscheduled and scheduled again during a run runs twice at once');
ok( $node->poll_query_until(
		'postgres', q{
SELECT count(*) = 1 FROM cron.job j JOIN cron.job_run_details d USING (jobid)
WHERE j.jobname = 'moved' AND d.status = 'succeeded'}),
	'with the guard, such a job is started at its next tick');
is( $node->safe_psql('postgres', "SELECT count(*), min(outcome) FROM shedlock_history WHERE name = 'moved'"),
	'1|running', 'that tick is skipped, because the run is in progress');

#
# After these runs, pg_cron starts the ticks that it has queued
#
ok( $node->poll_query_until(
		'postgres', q{
SELECT count(*) = 2
FROM (SELECT jobid FROM cron.job j JOIN cron.job_run_details d USING (jobid)
	  WHERE j.jobname IN ('queued', 'queued_always') AND d.status = 'succeeded'
	  GROUP BY jobid HAVING count(*) >= 3) jobs}),
	'pg_cron starts a one-minute job that took 150 seconds three times in that time');
$main::TODO = given_up($node);
is( $node->safe_psql(
		'postgres', q{
SELECT count(*) FILTER (WHERE started_at - previous < '10 s')
FROM (SELECT started_at, lag(ended_at) OVER (ORDER BY token) AS previous
	  FROM shedlock_history WHERE name = 'queued_always' ORDER BY token LIMIT 3) runs}),
	'2', 'without ticks its queued starts run back to back');
foreach my $job ('queued', 'queued_own')
{
	ok( $node->poll_query_until('postgres', "SELECT count(*) >= 2 FROM shedlock_history WHERE name = '$job'"),
		"$job: with ticks the job runs again");
	is( $node->safe_psql(
			'postgres', qq{
SELECT count(DISTINCT tick), max(tick) = min(tick) + '3 min',
	   count(*) FILTER (WHERE started_at - previous < '10 s')
FROM (SELECT tick, started_at, lag(ended_at) OVER (ORDER BY token) AS previous
	  FROM shedlock_history WHERE name = '$job' ORDER BY token LIMIT 2) runs}),
		'2|t|0', "$job: it runs for the tick after its end, not for the queued ones");
}

check_jobs($node, 'libpq');

is( $node->safe_psql(
		'postgres', q{
SELECT count(*) > 1, bool_and(outcome = 'succeeded'), bool_and(started_at >= previous)
FROM (SELECT outcome, started_at, lag(ended_at) OVER (ORDER BY token) AS previous
	  FROM shedlock_history WHERE name = 'moved') runs}),
	't|t|t', 'the job that was scheduled again during a run has run again, after the end of that run');

is( $node->safe_psql(
		'postgres', q{
SELECT string_agg(job_name || '=' || overdue, ' ' ORDER BY job_name)
FROM shedlock_jobs WHERE job_name IN ('inactive', 'insert', 'queued', 'stuck', 'elsewhere')}),
	'inactive=false insert=false queued=false stuck=true',
	'a job that pg_cron fails to start is overdue, and no other job is');

$node->stop;
done_testing();
