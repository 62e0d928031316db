# Jobs that pg_cron runs every few seconds can be guarded like others.  Each pg_cron
# counts those seconds from its own last start, so two servers do not fire at the same
# instants; the tick of such a job is the clock's period of so many seconds.  One of all
# starts in a period runs, including late ones.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode qw(await error_of);
use Test::More;

my $node = start_cron_node('seconds', '');
skip_before_16($node);

# Its jobs run in the database of the first server.
my $second = start_cron_node('second', '');

sub query
{
	return $node->safe_psql('postgres', $_[0]);
}

# Returns how often a server's pg_cron has started a job and seen its end.
sub starts
{
	my ($server, $job) = @_;

	return $server->safe_psql('postgres',
		"SELECT count(*) FROM cron.job_run_details d JOIN cron.job j USING (jobid)"
		  . " WHERE jobname = '$job' AND status IN ('succeeded', 'failed')");
}

sub await_starts
{
	my ($server, $job, $count) = @_;

	return defined await($server,
		"SELECT count(*) >= $count FROM cron.job_run_details d JOIN cron.job j USING (jobid)"
		  . " WHERE jobname = '$job' AND status IN ('succeeded', 'failed')");
}

# Returns how many runs in the history began before an earlier one had ended.
sub overlaps
{
	my ($lock) = @_;

	return query(
		"SELECT count(*) FROM shedlock_history a JOIN shedlock_history b USING (name)"
		  . " WHERE name = '$lock' AND a.token < b.token AND (a.ended_at IS NULL OR b.started_at < a.ended_at)");
}

at_second($node);

#
# Valid schedules
#
query(
	q{
CREATE EXTENSION shedlock;
CREATE TABLE done (job text, at timestamptz DEFAULT clock_timestamp());
});
foreach my $schedule ('1 second', '1 seconds', '59 seconds')
{
	query("SELECT shedlock_cron_schedule('bounds', '$schedule', 'SELECT 1', active => false)");
	is(query("SELECT schedule, fire FROM shedlock_cron_jobs WHERE job_name = 'bounds'"), 'every ' . $schedule =~ s/seconds?/seconds/r . '|' . $schedule =~ s/^1 seconds/1 second/r, "$schedule is a schedule");
}
foreach my $schedule ('0 seconds', '60 seconds')
{
	like(error_of($node, "SELECT shedlock_cron_schedule('bounds', '$schedule', 'SELECT 1')"),
		qr/^22023: invalid schedule: "$schedule"/, "$schedule is refused");
}
is(query("SELECT schedule FROM shedlock_cron_jobs WHERE job_name = 'bounds'"), 'every 59 seconds', 'a refused schedule changes nothing');

#
# Two servers fire, each at its own seconds
#
my $every = 4;

query(
	qq{
SELECT shedlock_cron_schedule('ticks', '$every seconds', \$\$INSERT INTO done VALUES ('ticks')\$\$),
	   cron.schedule('bare', '$every seconds', \$\$INSERT INTO done VALUES ('bare')\$\$)});
$second->safe_psql(
	'postgres', qq{
SELECT cron.schedule(jobname, '$every seconds', command)
FROM (VALUES ('ticks', \$c\$} . query("SELECT command FROM cron.job WHERE jobname = 'ticks'") . qq{\$c\$),
			 ('bare', \$c\$INSERT INTO done VALUES ('bare')\$c\$)) jobs(jobname, command);
UPDATE cron.job SET nodeport = } . $node->port);

# Meanwhile, on the first server alone: a run that once takes longer than the period and
# ends at the beginning of a tick, because a start in the last quarter of a period counts
# for the next one; and a run that never ends by itself.
my $long = 8;

sub slow_first
{
	my ($job) = @_;

	return "SELECT pg_sleep(CASE WHEN (SELECT count(*) FROM shedlock_history WHERE name = '$job') > 1 THEN 0"
	  . " ELSE extract(epoch FROM date_bin('$long s', clock_timestamp() + '" . 2 * $long . " s', 'epoch') - clock_timestamp()) + 0.3 END)";
}
query(
	"SELECT shedlock_cron_schedule('slow', '$long seconds', \$c\$" . slow_first('slow') . "\$c\$),"
	  . "cron.schedule('slow_always', '$long seconds', \$c\$CALL shedlock_run('slow_always', \$d\$" . slow_first('slow_always') . "\$d\$, '1 min')\$c\$),"
	  . q{shedlock_job('outlives', 'every 1 second', lock_at_most_for => '2 s'), shedlock_cron_schedule('outlives', '1 second', 'SELECT pg_sleep(600)'),
		  shedlock_cron_schedule('once', 'every 36500 days', $$INSERT INTO done VALUES ('once')$$, fire => '1 second')});

foreach my $server ($node, $second)
{
	ok(await_starts($server, $_, 6), $server->name . " has started job $_ six times") foreach 'ticks', 'bare';
}

# The launchers keep running, so one statement counts everything.  A start up to a
# quarter of the period early waits for the coming tick.
is( query(
		q{
SELECT count(*) >= 4, count(*) = count(DISTINCT tick), bool_and(outcome = 'succeeded'),
	   bool_and(started_at >= tick), bool_and(started_at < tick + interval '60 s')
FROM shedlock_history WHERE name = 'ticks' AND ended_at IS NOT NULL}),
	't|t|t|t|t', 'each tick was run once, in its period');
cmp_ok(query("SELECT count(*) FROM done WHERE job = 'ticks'"), '<', starts($node, 'ticks') + starts($second, 'ticks'),
	'only one of the two servers runs each tick');
cmp_ok(
	query(
		qq{
SELECT max(count) FROM (SELECT date_bin('$every s', at, 'epoch'), count(*) FROM done WHERE job = 'bare' GROUP BY 1) ticks}),
	'>', 1, 'without a guard both servers run a tick');

#
# A run that takes longer than the period
#
ok(await_starts($node, $_, 3), "a run that takes longer than the period ends, and two more are started: $_")
  foreach 'slow', 'slow_always';
is(overlaps($_), '0', "runs longer than the period do not overlap: $_") foreach 'slow', 'slow_always';
is( query(
		q{
SELECT started_at - previous < '} . $long / 2 . q{ s'
FROM (SELECT started_at, lag(ended_at) OVER (ORDER BY token) AS previous FROM shedlock_history WHERE name = 'slow_always') runs
WHERE previous IS NOT NULL ORDER BY started_at LIMIT 1}),
	't', 'without ticks the job runs again at once');
ok(defined await($node, "SELECT count(*) > 1 FROM shedlock_history WHERE name = 'slow'"), 'with ticks it runs again');
is( query(
		q{
SELECT count(*) FILTER (WHERE tick <= date_bin('} . $long . q{ s', previous, 'epoch'))
FROM (SELECT tick, lag(ended_at) OVER (ORDER BY token) AS previous FROM shedlock_history WHERE name = 'slow') runs}),
	'0', 'with ticks it runs for one after its end');
is( query(
		q{
SELECT count(*) > 0
FROM cron.job_run_details d JOIN cron.job j USING (jobid),
	 (SELECT token, ended_at, lead(started_at) OVER (ORDER BY token) AS next FROM shedlock_history WHERE name = 'slow'
	  ORDER BY token LIMIT 1) first
WHERE jobname = 'slow' AND d.status = 'succeeded' AND d.start_time > first.ended_at - interval '1 s' AND d.end_time < first.next}),
	't', 'with ticks the queued start is skipped');

#
# The other jobs
#
ok(await_starts($node, 'outlives', 2), 'a job that exceeds its lock_at_most_for is started again');
is( query(
		q{
SELECT count(*) > 1, bool_and(outcome = 'timed out'), bool_and(duration >= '2 s')
FROM shedlock_history WHERE name = 'outlives' AND outcome <> 'running'}),
	't|t|t', 'each of its runs is cancelled at its lock_at_most_for');
is(overlaps('outlives'), '0', 'runs that exceed their lock_at_most_for do not overlap');

ok(await_starts($node, 'once', 5), 'a job is started every second');
is(query("SELECT count(*) FROM done WHERE job = 'once'"), '1', 'a job that is started every second runs once in a longer period');

is( query(
		q{
SELECT string_agg(job_name, ' ' ORDER BY job_name) FILTER (WHERE overdue IS NOT NULL), count(*)
FROM shedlock_cron_jobs WHERE state IS NOT NULL AND job_name <> 'bounds'}),
	'|4', 'no job is overdue');

$second->stop;
$node->stop;
done_testing();
