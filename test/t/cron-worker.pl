# pg_cron runs guarded jobs in background workers the same way as over connections.  In
# this mode its version 1.4 runs one job at a time, and nothing else meanwhile.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Utils;
use ShedlockNode qw(session ask);
use Test::More;

my $node = start_cron_node('cron_worker', "cron.use_background_workers = on\n");

prepare_jobs($node);

# The first run of this job takes as long as the gate is closed.
my $gate = session($node);
ask($gate, 'SELECT pg_advisory_lock(1)');
at_second($node);
schedule_jobs($node, q{
SELECT shedlock_cron_schedule('queued', '* * * * *', 'SELECT pg_advisory_xact_lock_shared(1)')});

# The slow job may be the first of its minute, and delay all others.
ok(await_minutes($node, "SELECT count(*) = 1 FROM shedlock_history WHERE name = 'queued'"), 'worker: a slow job begins');
ok(await_minutes($node, "SELECT clock_timestamp() - started_at > '2 min' FROM shedlock_history WHERE name = 'queued'"),
	'worker: it takes more than two minutes');
ask($gate, 'SELECT pg_advisory_unlock(1)');
await_first_runs($node);
check_jobs($node, 'worker');

ok( await_minutes($node, q{
SELECT count(*) >= 3 FROM cron.job j JOIN cron.job_run_details d USING (jobid)
WHERE j.jobname = 'queued' AND d.status = 'succeeded'}),
	'worker: pg_cron starts a one-minute job that took two minutes three times in that time');
ok(await_minutes($node, "SELECT count(*) > 1 FROM shedlock_history WHERE name = 'queued' AND ended_at IS NOT NULL"),
	'worker: it runs again');
is( $node->safe_psql(
		'postgres', q{
SELECT count(*) FILTER (WHERE tick <= previous OR started_at < tick), count(*) - count(DISTINCT tick)
FROM (SELECT tick, started_at, lag(ended_at) OVER (ORDER BY token) AS previous
	  FROM shedlock_history WHERE name = 'queued') runs}),
	'0|0', 'worker: for ticks after its end, one each, and not for those that were queued');

$node->stop;
done_testing();
