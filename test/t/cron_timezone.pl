# pg_cron's schedules are in cron.timezone, ticks are counted in UTC.  A guarded
# job runs once for each instant that pg_cron fires at, also where summer time
# begins and ends: with a period of half the time between two runs.  The hour
# that is twice in autumn makes pg_cron fire twice, and a guarded job runs once.
# With a period of the whole time the night after summer time has begun is lost,
# of which shedlock_cron_schedule warns.
#
# The server's clock is set to just before each of these instants.

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

# Returns the seconds of a time like 2026-03-28 00:30.
sub seconds_of
{
	my ($year, $month, $day, $hour, $minute) = $_[0] =~ /^(\d+)-(\d+)-(\d+) (\d+):(\d+)$/;

	return timegm(0, $minute, $hour, $day, $month - 1, $year);
}

# In UTC; in Berlin summer time is from March 29 at one to October 25 at one.
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

# Returns what is said at the making of a guarded job.
sub schedule
{
	my ($job, $schedule, $every) = @_;
	my ($status, $out, $err) = $node->psql('postgres',
		"SELECT shedlock_cron_schedule('$job', '$schedule', \$\$INSERT INTO done VALUES ('$job')\$\$, '1 min', once_every => '$every')");

	is($status, 0, "job $job is made");
	return $err;
}

is(schedule('half past one', '30 1 * * *', '12 hours'), '', 'and nothing is said of it');
like(
	schedule('once a day', '30 1 * * *', '1 day'),
	qr/WARNING:  job "once a day" will be skipped at 2026-03-29 23:30:00\+00\n/,
	'and a warning says which run is lost');
is(schedule('half past two', '30 2 * * *', '12 hours'), '', 'and nothing is said of it');
is(schedule('hourly', '30 * * * *', '1 hour'), '', 'and nothing is said of it');
query(q{SELECT cron.schedule('bare', '30 2 * * *', $$INSERT INTO done VALUES ('bare')$$),
	cron.schedule('every minute', '* * * * *', 'SELECT 1')});

# pg_cron starts all jobs of a minute at the same time: when the one of every
# minute has been run, the others have been started.
foreach my $instant (@instants)
{
	set_clock(seconds_of($instant) - 3 - time);
	ok( defined await($node,
			"SELECT count(*) > 0 FROM cron.job_run_details d JOIN cron.job j USING (jobid)"
			  . " WHERE jobname = 'every minute' AND d.status = 'succeeded' AND d.start_time >= '$instant+00'"),
		"it is $instant");
	ok(defined await($node, "SELECT count(*) = 0 FROM cron.job_run_details d WHERE d.status NOT IN ('succeeded', 'failed')"),
		'and all that was started has ended');
}
is(query("SELECT count(*) FROM cron.job_run_details d WHERE d.status <> 'succeeded'"), '0', 'nothing has failed');

# The instants at which a job was started, and has run
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
is(ran('half past one'), $nights, 'and with half the period each night has its run');
is(started('once a day'), $nights, 'with the whole period it fires as often');
is(ran('once a day'), join("\n", @instants[ 0, 2, 6, 9 ]), 'and the run is lost of which the warning was');
is(started('bare'), $later_twice, 'in the hour that is twice it fires twice, in the one that is not it does not');
is(ran('bare'), $later_twice, 'and a bare job is run twice in one night');
is(started('half past two'), $later_twice, 'as is a guarded one started');
is(ran('half past two'), $later, 'which runs once');
is(started('hourly'), join("\n", @instants), 'each hour pg_cron fires');
is(ran('hourly'), join("\n", @instants), 'each hour a job of each hour runs');

is( query(
		q{
SELECT count(*), count(*) FILTER (WHERE h.tick <> date_bin(j.once_every, date_trunc('minute', h.started_at), 'epoch')),
	   count(*) - count(DISTINCT (h.name, h.tick))
FROM shedlock_history h JOIN shedlock_jobs j ON j.lock_name = h.name}),
	'24|0|0', 'each run has claimed the tick of the instant that pg_cron has fired at');
is( query(
		q{
SELECT count(*), count(*) FILTER (WHERE _shedlock_cron_last_due(schedule, start_time) <> date_trunc('minute', start_time))
FROM cron.job_run_details JOIN cron.job USING (jobid) WHERE jobname <> 'every minute'}),
	'31|0', 'and those instants are what shedlock_jobs takes for due');

$node->stop;
done_testing();
