# pg_cron's schedules are in cron.timezone, ticks are in UTC.  A guarded job whose period
# is half the time between two runs runs once for each instant at which pg_cron fires,
# also when summer time begins and ends.  In the repeated hour in autumn pg_cron fires
# twice, and a guarded job runs once.  With a period of the whole time the run of the
# night after summer time has begun is lost; shedlock_cron_schedule warns of that.
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

# Returns the messages of creating a guarded job.
sub schedule
{
	my ($job, $schedule, $every) = @_;
	my ($status, $out, $err) = $node->psql('postgres',
		"SELECT shedlock_cron_schedule('$job', '$schedule', \$\$INSERT INTO done VALUES ('$job')\$\$, '1 min', once_every => '$every')");

	is($status, 0, "job $job is created");
	return $err;
}

is(schedule('half past one', '30 1 * * *', '12 hours'), '', 'half the period gives no warning');
like(
	schedule('once a day', '30 1 * * *', '1 day'),
	qr/WARNING:  job "once a day" will be skipped at 2026-03-29 23:30:00\+00\n/,
	'a WARNING names the run that the whole period loses');
is(schedule('half past two', '30 2 * * *', '12 hours'), '', 'a schedule in the repeated hour gives no warning');
is(schedule('hourly', '30 * * * *', '1 hour'), '', 'an hourly schedule gives no warning');
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
is(ran('half past one'), $nights, 'with half the period the job runs once a night');
is(started('once a day'), $nights, 'with the whole period pg_cron fires once a night');
is(ran('once a day'), join("\n", @instants[ 0, 2, 6, 9 ]), 'with the whole period the run named in the WARNING is lost');
is(started('bare'), $later_twice, 'pg_cron fires twice in the repeated hour, and not in the missing one');
is(ran('bare'), $later_twice, 'a bare job runs twice in the night of the repeated hour');
is(started('half past two'), $later_twice, 'a guarded job is started twice in that night');
is(ran('half past two'), $later, 'a guarded job runs once in that night');
is(started('hourly'), join("\n", @instants), 'an hourly job is started each hour');
is(ran('hourly'), join("\n", @instants), 'an hourly job runs each hour');

is( query(
		q{
SELECT count(*), count(*) FILTER (WHERE h.tick <> date_bin(j.once_every, date_trunc('minute', h.started_at), 'epoch')),
	   count(*) - count(DISTINCT (h.name, h.tick))
FROM shedlock_history h JOIN shedlock_cron_jobs j ON j.lock_name = h.name}),
	'24|0|0', 'each run has claimed the tick of the instant at which pg_cron fired');
is( query(
		q{
SELECT count(*), count(*) FILTER (WHERE due.last_due <> date_trunc('minute', start_time))
FROM cron.job_run_details JOIN cron.job USING (jobid), _shedlock_cron_due(schedule, NULL, start_time) due
WHERE jobname <> 'every minute'}),
	'31|2', 'shedlock_cron_jobs regards those instants as due, but a fixed time in the repeated hour once');

$node->stop;
done_testing();
