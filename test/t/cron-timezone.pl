# pg_cron's schedules are in cron.timezone, and so are those of the jobs that it guards.  A
# guarded job runs once for each instant at which pg_cron fires, also when summer time begins
# and ends.  In the repeated hour in autumn pg_cron fires twice, and a guarded job runs once.
#
# The test sets the server's clock to just before each of these instants.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Utils;
use ShedlockNode qw(await);
use SkewedClock;
use Test::More;
use Time::Local qw(timegm);

# Returns the seconds since 1970 of a time like 2026-03-28 00:30.
sub seconds_of
{
	my ($year, $month, $day, $hour, $minute) = $_[0] =~ /^(\d+)-(\d+)-(\d+) (\d+):(\d+)$/;

	return timegm(0, $minute, $hour, $day, $month - 1, $year);
}

# In UTC; Berlin has summer time from March 29, one o'clock, to October 25, one o'clock.
my @instants = (
	'2026-03-28 00:30',    # 01:30
	'2026-03-28 01:30',    # 02:30
	'2026-03-29 00:30',    # 01:30, and there is no 02:30
	'2026-03-29 01:30',    # 03:30
	'2026-03-29 23:30',    # 01:30
	'2026-03-30 00:30',    # 02:30
	'2026-10-24 23:30',    # 01:30
	'2026-10-25 00:30',    # 02:30
	'2026-10-25 01:30',    # 02:30 again
	'2026-10-26 00:30',    # 01:30
	'2026-10-26 01:30');   # 02:30
my $node = with_skewed_clock
{
	set_clock(seconds_of('2026-03-28 00:20') - time);
	start_cron_node('timezone', "cron.timezone = 'Europe/Berlin'\nshedlock.history_keep = '365d'\n");
};
skip_before_16($node);

sub query
{
	return $node->safe_psql('postgres', $_[0]);
}

query(
	q{
CREATE EXTENSION shedlock;
CREATE TABLE done (job text, at timestamptz DEFAULT clock_timestamp())});

foreach ([ 'half past one', '30 1 * * *' ], [ 'half past two', '30 2 * * *' ], [ 'hourly', '30 * * * *' ])
{
	my ($job, $schedule) = @$_;

	query("SELECT shedlock_cron_schedule('$job', '$schedule', \$\$INSERT INTO done VALUES ('$job')\$\$)");
}
is(query("SELECT string_agg(DISTINCT time_zone, ' ') FROM shedlock_jobs"), 'Europe/Berlin', 'the jobs are declared in the time zone of pg_cron');
query(q{SELECT cron.schedule('bare', '30 2 * * *', $$INSERT INTO done VALUES ('bare')$$),
	cron.schedule('every minute', '* * * * *', 'SELECT 1')});

# pg_cron starts all jobs of a minute at the same time: when the job of every minute has
# run, the others have started.
foreach my $instant (@instants)
{
	set_clock(seconds_of($instant) - 3 - time);
	ok( defined await($node,
			"SELECT count(*) > 0 FROM cron.job_run_details d JOIN cron.job j USING (jobid)"
			  . " WHERE jobname = 'every minute' AND d.status = 'succeeded' AND d.start_time >= '$instant+00'"),
		"it is $instant");
	ok(defined await($node, "SELECT count(*) = 0 FROM cron.job_run_details d WHERE d.status NOT IN ('succeeded', 'failed')"),
		'all started jobs have ended');
}
is(query("SELECT count(*) FROM cron.job_run_details d WHERE d.status <> 'succeeded'"), '0', 'no job has failed');

# The instants at which a job was started, and at which it ran
sub started
{
	return query("SELECT to_char(date_trunc('minute', d.start_time) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')"
		  . " FROM cron.job_run_details d JOIN cron.job j USING (jobid) WHERE jobname = '$_[0]' ORDER BY 1");
}

sub ran
{
	return query("SELECT to_char(date_trunc('minute', at) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')"
		  . " FROM done WHERE job = '$_[0]' ORDER BY 1");
}

my $nights = join("\n", @instants[ 0, 2, 4, 6, 9 ]);
my $later = join("\n", @instants[ 1, 5, 7, 10 ]);
my $later_twice = join("\n", @instants[ 1, 5, 7, 8, 10 ]);

is(started('half past one'), $nights, 'pg_cron fires once a night');
is(ran('half past one'), $nights, 'the job runs once a night');
is(started('bare'), $later_twice, 'pg_cron fires twice in the repeated hour, and not in the missing one');
is(ran('bare'), $later_twice, 'a bare job runs twice in the night of the repeated hour');
is(started('half past two'), $later_twice, 'a guarded job is started twice in that night');
is(ran('half past two'), $later, 'a guarded job runs once in that night');
is(started('hourly'), join("\n", @instants), 'an hourly job is started each hour');
is(ran('hourly'), join("\n", @instants), 'an hourly job runs each hour');

is(query("SELECT count(*), count(*) FILTER (WHERE tick <> date_trunc('minute', started_at)), count(*) - count(DISTINCT (name, tick)) FROM shedlock_history"),
	'20|0|0', 'each run has claimed the tick of the instant at which pg_cron fired');

$node->stop;
done_testing();
