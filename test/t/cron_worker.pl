# pg_cron runs guarded jobs in background workers the same way as over connections.  In
# this mode its version 1.4 runs one job at a time, and nothing else meanwhile.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_cron_node('cron_worker', "cron.use_background_workers = on\n");

prepare_jobs($node);
await_minute();
schedule_jobs($node);
$node->safe_psql(
	'postgres', q{
SELECT shedlock_cron_schedule('queued', '* * * * *',
	$c$SELECT pg_sleep(CASE WHEN (SELECT count(*) FROM shedlock_history WHERE name = 'queued') > 1 THEN 0 ELSE 125 END)$c$,
	once_every => '1 min')});

# The slow job may be the first of its minute, and delay all others.
ok( $node->poll_query_until('postgres', "SELECT count(*) = 1 FROM shedlock_history WHERE name = 'queued'"),
	'worker: a slow job begins');
await_first_runs($node);
check_jobs($node, 'worker');

ok( $node->poll_query_until(
		'postgres', q{
SELECT count(*) >= 3 FROM cron.job j JOIN cron.job_run_details d USING (jobid)
WHERE j.jobname = 'queued' AND d.status = 'succeeded'}),
	'worker: pg_cron starts a one-minute job that took 125 seconds three times in that time');
is( $node->safe_psql(
		'postgres', q{
SELECT count(*) FROM (SELECT started_at, lag(ended_at) OVER (ORDER BY token) AS previous
	  FROM shedlock_history WHERE name = 'queued') runs
WHERE started_at - previous < '10 s'}),
	'0', 'worker: with once_every none of the ticks that were queued runs back to back');

$node->stop;
done_testing();
