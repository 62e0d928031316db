# pg_cron runs guarded jobs over connections of its own: each job as it should
# be, none beside itself, and no queue of ticks that were missed meanwhile.

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

# The first run of each of these takes longer than a minute, the later ones do
# not.  A run is in the history before its command begins.
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
	  . "\$c\$, once_every => '1 min'), shedlock_cron_schedule('queued_always', '* * * * *', \$c\$"
	  . slow_first('queued_always', 150)
	  . "\$c\$), shedlock_cron_schedule('moved', '* * * * *', \$c\$$moved\$c\$),"
	  . " cron.schedule('moved_bare', '* * * * *', '$moved_bare')");

# Run once by hand, and then never again: nothing listens on that port.
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
# While the slow ones run
#
is( $node->safe_psql('postgres', q{
SELECT last_started IS NOT NULL, last_ended IS NULL, last_outcome, lock_state,
	   tick_claimed = date_trunc('minute', last_started), next_tick - tick_claimed, overdue
FROM shedlock_jobs WHERE job_name = 'queued'}),
	't|t|running|held|t|00:01:00|f', 'shedlock_jobs shows a run that goes on');
is( $node->safe_psql('postgres',
		"SELECT lock_state, last_started, overdue FROM shedlock_jobs WHERE job_name = 'busy'"),
	'held||f', 'and a lock that others hold');
is( $node->safe_psql('postgres',
		"SELECT last_outcome, last_message FROM shedlock_jobs WHERE job_name = 'fails'"),
	'failed|division by zero', 'and how the last run ended');

# pg_cron forgets the run of a job that is unscheduled, and the backend runs on.
$node->safe_psql(
	'postgres', qq{
SELECT cron.unschedule('moved_bare'), shedlock_cron_unschedule('moved');
SELECT shedlock_cron_schedule('moved', '* * * * *', \$c\$$moved\$c\$), cron.schedule('moved_bare', '* * * * *', '$moved_bare')});
ok( $node->poll_query_until('postgres',
		"SELECT count(*) = 2 FROM pg_stat_activity WHERE query = '$moved_bare'"),
	'without a guard, a job that is unscheduled and scheduled again in mid run runs beside itself');
ok( $node->poll_query_until(
		'postgres', q{
SELECT count(*) = 1 FROM cron.job j JOIN cron.job_run_details d USING (jobid)
WHERE j.jobname = 'moved' AND d.status = 'succeeded'}),
	'with the guard, its next tick comes');
is( $node->safe_psql('postgres', "SELECT count(*), min(outcome) FROM shedlock_history WHERE name = 'moved'"),
	'1|running', 'and is skipped, as the run goes on');

#
# When they are done, the ticks that pg_cron has queued meanwhile are run
#
ok( $node->poll_query_until(
		'postgres', q{
SELECT count(*) = 2
FROM (SELECT jobid FROM cron.job j JOIN cron.job_run_details d USING (jobid)
	  WHERE j.jobname IN ('queued', 'queued_always') AND d.status = 'succeeded'
	  GROUP BY jobid HAVING count(*) >= 3) jobs}),
	'pg_cron starts a one-minute job that took 150 seconds three times in that time');
is( $node->safe_psql(
		'postgres', q{
SELECT count(*), count(*) FILTER (WHERE started_at - previous < '10 s')
FROM (SELECT started_at, lag(ended_at) OVER (ORDER BY token) AS previous
	  FROM shedlock_history WHERE name = 'queued_always') runs}),
	'3|2', 'without once_every its queued ticks run back to back');
ok( $node->poll_query_until('postgres', "SELECT count(*) = 2 FROM shedlock_history WHERE name = 'queued'"),
	'with once_every it runs again');
is( $node->safe_psql(
		'postgres', q{
SELECT count(DISTINCT tick), max(tick) = min(tick) + '3 min',
	   count(*) FILTER (WHERE started_at - previous < '10 s')
FROM (SELECT tick, started_at, lag(ended_at) OVER (ORDER BY token) AS previous
	  FROM shedlock_history WHERE name = 'queued') runs}),
	'2|t|0', 'but for the tick after its end, and not for those that were queued meanwhile');

check_jobs($node, 'libpq');

is( $node->safe_psql(
		'postgres', q{
SELECT count(*) > 1, bool_and(outcome = 'succeeded'), bool_and(started_at >= previous)
FROM (SELECT outcome, started_at, lag(ended_at) OVER (ORDER BY token) AS previous
	  FROM shedlock_history WHERE name = 'moved') runs}),
	't|t|t', 'the job that was scheduled again in mid run has run again, after the end of that run');

is( $node->safe_psql(
		'postgres', q{
SELECT string_agg(job_name || '=' || overdue, ' ' ORDER BY job_name)
FROM shedlock_jobs WHERE job_name IN ('inactive', 'insert', 'queued', 'stuck', 'elsewhere')}),
	'inactive=false insert=false queued=false stuck=true',
	'a job that pg_cron fails to start is overdue, and only that one');

$node->stop;
done_testing();
