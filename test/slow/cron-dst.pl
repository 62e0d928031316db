# pg_cron fires jobs over the nights in which the clock of its time zone changes, by an
# hour in Berlin and by half an hour on Lord Howe Island.
#
# pg_cron fires a bare job at the ticks of its schedule, except at the change.  It does not
# fire for a fixed time that the clock skips, whose tick is the instant of the change.  It
# fires again for a fixed time that the clock repeats, whose tick is the first one.
#
# A guarded job runs once for each tick.  If it is fired on its own schedule, the tick of
# a time that the clock skips has no run, is not made up for in the next night, and is
# overdue.  If it is fired each minute, as in a time zone of its own, it runs at the change; if
# it is fired by another schedule, at the next firing.
#
# The test moves the server's clock from minute to minute.  It needs pg_cron 1.6, which
# Debian has from 13 on: SUITES=slow/cron-dst scripts/test versions/17

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Utils;
use ShedlockNode qw(await);
use SkewedClock;
use Test::More;
use Time::HiRes qw(time);
use Time::Local qw(timegm);

# Each is that of a bare job and of a guarded one.
my @schedules = (
	'*/7 * * * *',
	'30 * * * *',
	'@hourly',
	'* 2 * * *',
	'*/20 1-3 * * *',
	'10-50/20 * 29 3 *',
	'0 2 * * *',
	'15 2 * * *',
	'30 2 * * *',
	'59 2 * * *',
	'0 3 * * *',
	'1 3 * * *',
	'29 1 * * *',
	'30 1 * * *',
	'59 1 * * *',
	'0,30 0-4 * * *',
	'10-50/20 1-3 * * *',
	'@daily',
	'5 0 * * 0',
	'15 2 29 3 *',
	'45 1,2 * oct sun',
	'20 2 1-7 * sun',
	'0-59/15 2,1 * * 6-7');

# Guarded jobs that pg_cron does not fire on their own schedules: schedule, settings, fire, and
# time zone of the ticks if it is not pg_cron's
my %fired_otherwise = (
	'each minute' => [ '30 2 * * *', '', "fire => '* * * * *'" ],
	'twice each minute' => [ '45 1,2 * * *', '', "fire => '* * * * *'" ],
	'by wildcard each minute' => [ '*/20 1-3 * * *', '', "fire => '* * * * *'" ],
	'in UTC' => [ '15 16,1 * * *', '', '', 'UTC' ],
	'latest' => [ '15 2 * * *', ", max_late => '1 day'", '' ],
	'all' => [ '0,15,30 2 * * *', ", catch_up => 'all', max_late => '1 hour'", '' ],
	'each quarter' => [ '15 2 * * *', '', "fire => '*/15 * * * *'" ],
	'late' => [ '15 2 * * *', '', "fire => '40 * * * *'" ]);

# In UTC: a night is longer than "from", up to "to"; the others are local times.  differences:
# ticks at which pg_cron does not fire, and times for which it fires again.  late: when the
# job of that name runs.  later: when the job that runs at a quarter past two is due next.
my @places = (
	{   zone => 'Europe/Berlin',
		nights => [
			{   name => 'March 29',    # from 02:00 to 03:00
				from => '2026-03-28 22:55',
				to => '2026-03-29 01:45',
				differences => q{0 2 * * *: not at 03:00
15 2 * * *: not at 03:00
30 2 * * *: not at 03:00
59 2 * * *: not at 03:00
10-50/20 1-3 * * *: not at 03:00
15 2 29 3 *: not at 03:00
20 2 1-7 * sun: not at 03:00
0-59/15 2,1 * * 6-7: not at 03:00},
				late => '03:40',
				later => '2026-03-30 00:15' },
			{   name => 'October 25',    # from 03:00 to 02:00
				from => '2026-10-24 21:55',
				to => '2026-10-25 02:45',
				differences => q{0 2 * * *: again at 02:00
15 2 * * *: again at 02:15
30 2 * * *: again at 02:30
59 2 * * *: again at 02:59
0,30 0-4 * * *: again at 02:00 02:30
10-50/20 1-3 * * *: again at 02:10 02:30 02:50
45 1,2 * oct sun: again at 02:45
20 2 1-7 * sun: again at 02:20
0-59/15 2,1 * * 6-7: again at 02:00 02:15 02:30 02:45},
				late => '02:40' } ] },
	{   zone => 'Australia/Lord_Howe',
		nights => [
			{   name => 'April 5',    # from 02:00 to 01:30
				from => '2026-04-04 12:55',
				to => '2026-04-04 17:15',
				differences => q{30 1 * * *: again at 01:30
59 1 * * *: again at 01:59
0,30 0-4 * * *: again at 01:30
10-50/20 1-3 * * *: again at 01:30 01:50
0-59/15 2,1 * * 6-7: again at 01:30 01:45},
				late => '02:40' },
			{   name => 'October 4',    # from 02:00 to 02:30
				from => '2026-10-03 13:25',
				to => '2026-10-03 16:45',
				differences => q{0 2 * * *: not at 02:30
15 2 * * *: not at 02:30
20 2 1-7 * sun: not at 02:30},
				late => '02:40',
				later => '2026-10-04 15:15' } ] });

# Returns the seconds since 1970 of a time in UTC.
sub seconds_of
{
	my ($year, $month, $day, $hour, $minute) = $_[0] =~ /^(\d+)-(\d+)-(\d+) (\d+):(\d+)$/;

	return timegm(0, $minute, $hour, $day, $month - 1, $year);
}

# Moves the clock to a time, but not back.
my $ahead;

sub move_to
{
	my ($seconds) = @_;

	return if defined $ahead && time + $ahead > $seconds;
	$ahead = $seconds - time;
	set_clock($ahead);
	return;
}

# Moves the clock to a minute, and waits for the end of the jobs that are fired then.
# pg_cron starts all jobs of a minute together, one of which it fires each minute.
sub pass_minute
{
	my ($node, $launcher, $minute) = @_;

	# it reads the clock once a second, and when it gets a signal
	move_to($minute + 0.01);
	kill 'HUP', $launcher;
	$node->safe_psql('postgres',
		"SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'; SELECT await_jobs(to_timestamp($minute))");
	return;
}

# Starts a server whose pg_cron is in a time zone, and creates the jobs.
sub start_jobs
{
	my ($zone, $from) = @_;

	$ahead = undef;
	my $node = with_skewed_clock
	{
		move_to($from - 30);
		start_cron_node($zone =~ s/.*\///r,
			"timezone = 'UTC'\ncron.timezone = '$zone'\nshedlock.history_keep = '365d'\n");
	};
	skip_before_16($node);
	$node->safe_psql(
		'postgres', q{
CREATE EXTENSION shedlock;
CREATE TABLE done (job text, tick timestamptz DEFAULT current_setting('shedlock.tick')::timestamptz,
	at timestamptz DEFAULT clock_timestamp());
CREATE TABLE schedules (n serial, job text, schedule text, zone text);
CREATE FUNCTION await_jobs(minute timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM cron.job_run_details d JOIN cron.job j USING (jobid)
					  WHERE j.jobname = 'each minute' AND d.status = 'succeeded' AND d.start_time >= minute)
		  OR EXISTS (SELECT FROM cron.job_run_details WHERE status NOT IN ('succeeded', 'failed'))
	LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END
$$;
CREATE FUNCTION fired(job text, low timestamptz, high timestamptz) RETURNS SETOF timestamptz LANGUAGE sql AS $$
	SELECT date_trunc('minute', d.start_time) FROM cron.job_run_details d JOIN cron.job j USING (jobid)
	WHERE j.jobname = job AND date_trunc('minute', d.start_time) > low AND date_trunc('minute', d.start_time) <= high
$$;
CREATE FUNCTION ticks(schedule text, zone text, low timestamptz, high timestamptz) RETURNS SETOF timestamptz LANGUAGE sql AS $$
	WITH RECURSIVE ticks(tick) AS (
		SELECT shedlock_next_tick(schedule, zone, low)
		UNION ALL
		SELECT shedlock_next_tick(schedule, zone, tick) FROM ticks WHERE tick <= high)
	SELECT tick FROM ticks WHERE tick <= high
$$;
SELECT cron.schedule('each minute', '* * * * *', 'SELECT 1')});
	foreach my $schedule (@schedules)
	{
		$node->safe_psql(
			'postgres', qq{
INSERT INTO schedules (job, schedule, zone) VALUES ('$schedule', '$schedule', '$zone');
SELECT cron.schedule('bare $schedule', '$schedule', 'SELECT 1'),
	   cron.schedule('$schedule', '$schedule', \$\$INSERT INTO done VALUES ('$schedule')\$\$);
SELECT shedlock_cron_guard('$schedule')});
	}
	foreach my $job (sort keys %fired_otherwise)
	{
		my ($schedule, $settings, $fire, $own_zone) = @{ $fired_otherwise{$job} };

		$own_zone //= $zone;
		$node->safe_psql(
			'postgres', qq{
INSERT INTO schedules (job, schedule, zone) VALUES ('$job', '$schedule', '$own_zone');
SELECT shedlock_job('$job', '$schedule', '$own_zone'$settings);
SELECT shedlock_cron_schedule('$job', '$schedule', \$\$INSERT INTO done VALUES ('$job')\$\$} . ($fire && ", $fire") . ')');
	}
	return $node;
}

foreach my $place (@places)
{
	my $zone = $place->{zone};
	my $node = start_jobs($zone, seconds_of($place->{nights}[0]{from}));
	my $query = sub { return $node->safe_psql('postgres', $_[0]) };
	my $launchers = "FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher'";

	defined await($node, "SELECT count(*) = 1 $launchers") or BAIL_OUT('pg_cron does not start');
	my $launcher = $query->("SELECT pid $launchers");

	foreach my $night (@{ $place->{nights} })
	{
		my $title = "$zone, $night->{name}";
		my ($from, $to) = map { seconds_of($_) } @$night{qw(from to)};
		my $range = "'$night->{from}', '$night->{to}'";
		my $of_night = "tick > '$night->{from}' AND tick <= '$night->{to}'";
		my $bare = join ', ', map { "'$_'" } @schedules;
		my $start = time;

		for (my $minute = $from; $minute <= $to; $minute += 60)
		{
			pass_minute($node, $launcher, $minute);
		}
		note(sprintf '%s: %d minutes in %.0f s', $title, ($to - $from) / 60, time - $start);

		is( $query->(
				qq{
SELECT s.schedule || d.what || string_agg(to_char(d.at AT TIME ZONE s.zone, 'HH24:MI'), ' ' ORDER BY d.at)
FROM schedules s CROSS JOIN LATERAL (
	(SELECT ': not at ', ticks(s.schedule, s.zone, $range) EXCEPT ALL SELECT ': not at ', fired('bare ' || s.job, $range))
	UNION ALL
	(SELECT ': again at ', fired('bare ' || s.job, $range) EXCEPT ALL SELECT ': again at ', ticks(s.schedule, s.zone, $range))) d(what, at)
WHERE s.job IN ($bare)
GROUP BY s.n, s.schedule, d.what ORDER BY s.n}),
			$night->{differences},
			"$title: pg_cron fires bare jobs at their ticks, except at the change");
		is( $query->(
				qq{
SELECT string_agg(s.job, ', ' ORDER BY s.n)
FROM schedules s
WHERE s.job IN ($bare) AND
	  ARRAY(SELECT fired(s.job, $range) ORDER BY 1) <> ARRAY(SELECT fired('bare ' || s.job, $range) ORDER BY 1)}),
			'',
			"$title: pg_cron fires a guarded job when it fires the bare one");
		is($query->("SELECT count(*) FROM cron.job_run_details WHERE status <> 'succeeded'"), '0', "$title: no job has failed");

		# Both expect what EXCEPT ALL finds only in one of the two: nothing.
		my $runs_for = sub {
			my ($which, $ticks) = @_;
			my $runs = "SELECT tick FROM done WHERE job = s.job AND $of_night";

			return $query->(
				qq{
SELECT s.job, d.what, d.tick
FROM schedules s CROSS JOIN LATERAL (
	(SELECT 'lost', x.* FROM ($ticks EXCEPT ALL $runs) x)
	UNION ALL
	(SELECT 'too often', x.* FROM ($runs EXCEPT ALL ($ticks)) x)) d(what, tick)
WHERE s.job $which ($bare)
ORDER BY s.n, d.tick});
		};
		my $ticks = "SELECT ticks(s.schedule, s.zone, $range)";
		is($runs_for->('IN', "$ticks INTERSECT SELECT fired(s.job, $range)"),
			'', "$title: a guarded job runs once for each tick at which pg_cron fires it");
		is($runs_for->('NOT IN', $ticks), '', "$title: a guarded job that is fired otherwise runs once for each tick");
		is( $query->(
				"SELECT count(*) = (SELECT count(*) FROM done WHERE $of_night), bool_and(outcome = 'succeeded'), bool_and(started_at >= tick),"
				  . " string_agg(DISTINCT name, ', ') FILTER (WHERE started_at >= tick + interval '1 min') FROM shedlock_history WHERE $of_night"),
			't|t|t|late',
			"$title: each run begins in the minute of its tick, except those that are fired late");
		is($query->("SELECT string_agg(to_char(at AT TIME ZONE '$zone', 'HH24:MI'), ' ') FROM done WHERE job = 'late' AND $of_night"),
			$night->{late}, "$title: a run whose tick is missed by pg_cron begins at the next firing");

		my $overdue = "SELECT job_name, overdue IS NOT NULL FROM shedlock_cron_jobs WHERE job_name IN ('15 2 * * *', 'latest') ORDER BY jobid";
		is( $query->($overdue), '15 2 * * *|' . ($night->{later} ? 't' : 'f') . "\nlatest|f",
			"$title: a tick at which pg_cron does not fire is overdue");
		next unless $night->{later};
		pass_minute($node, $launcher, seconds_of($night->{later}));
		is($query->("SELECT tick AT TIME ZONE 'UTC' FROM done WHERE job = '15 2 * * *' AND tick > '$night->{from}'"),
			"$night->{later}:00", "$title: it is not made up for when pg_cron fires for the next tick");
		is($query->($overdue), "15 2 * * *|f\nlatest|f", "$title: it is no longer overdue then");
	}
	$node->stop;
}
done_testing();
