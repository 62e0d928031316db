# Guarded jobs of pg_cron continue at the promoted standby, each due tick once in total,
# and the run that was cut off holds its lock until its lock_until.  The standby's
# pg_cron must reach its own server: it does with background workers, or if both servers
# have the same port and cron.host; otherwise cron.job names the old primary.  An old
# primary that is alive starts nothing while it waits for its standby, and everything
# once it does not, which is not promised.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode qw(start_standby await bury);
use SkewedClock;
use Test::More;

my $dbname = 'postgres';

# The lock_at_most_for of the run that is cut off: it ends after the next tick.
my $long = 200;

# A server reaches itself at its own socket: for an empty cron.host libpq uses its
# default, here PGHOST of the server.  (allows_streaming and own_host exclude each other.)
my %pairs = (
	'other port' => { old => start_cron_node('old_port', '', allows_streaming => 1) },
	'same port' => { old => start_cron_node('old_same', "cron.host = ''\nwal_level = replica\nmax_wal_senders = 5\n", own_host => 1) },
	'workers' =>
	  { old => start_cron_node('old_workers', "cron.use_background_workers = on\n", allows_streaming => 1) });

foreach my $pair (values %pairs)
{
	my $name = $pair->{old}->name =~ s/old/new/r;

	# shows that a command began although it never committed
	$pair->{old}->safe_psql($dbname, q{
CREATE EXTENSION shedlock;
CREATE TABLE done (job text, port int DEFAULT current_setting('port')::int, at timestamptz DEFAULT clock_timestamp());
CREATE SEQUENCE began;
});
	with_movable_clock
	{
		$pair->{new} = start_standby($pair->{old}, $name,
			$name =~ /same/ ? (own_host => 1, port => $pair->{old}->port) : ());
	};
}

# Returns what a server says of a pair.
sub query
{
	my ($name, $server, $sql) = @_;

	return $pairs{$name}{$server}->safe_psql($dbname, $sql);
}

# Waits for a condition at a promoted server, for as many minutes as that takes.
sub comes
{
	my ($name, $sql, $claim) = @_;
	my $came = await_minutes($pairs{$name}{new}, $sql, $pairs{workers}{old}, map { $_->{new} } values %pairs);

	$main::TODO = given_up(map { values %$_ } values %pairs);
	return ok($came, "$name: $claim");
}

#
# The first tick
#
at_second($pairs{workers}{old});
foreach my $name (sort keys %pairs)
{
	# Workers of pg_cron 1.4 run one after the other, so the long run would block all others.
	my $jobs = $name eq 'workers' ? '' : qq{,
	   shedlock_cron_schedule('long', 'every 1 min',
	\$\$SELECT pg_sleep(CASE WHEN (SELECT count(*) FROM shedlock_history WHERE name = 'long') > 1 THEN 0 ELSE 600 END)\$\$,
	fire => '* * * * *')};

	query($name, 'old', qq{SELECT shedlock_job('long', 'every 1 min', lock_at_most_for => '$long s')}) if $jobs;
	query($name, 'old', q{
SELECT shedlock_job('left', '* * * * *', overdue_after => '90 s'), shedlock_job('tick', 'every 1 min', lock_at_most_for => '10 min');
SELECT shedlock_cron_schedule('tick', 'every 1 min', $$INSERT INTO done VALUES ('tick' || nextval('began') * 0)$$,
	fire => '* * * * *'),
	   shedlock_cron_schedule('left', '* * * * *', 'SELECT 1')} . $jobs);
}
foreach my $name (sort keys %pairs)
{
	my ($old, @others) = map { $pairs{$_}{old} } $name, sort keys %pairs;

	ok(await_minutes($old, 'SELECT count(*) > 0 FROM done', @others), "$name: the job ran on the primary");
	next if $name eq 'workers';
	ok(defined await($old, q{SELECT outcome = 'running' FROM shedlock_history WHERE name = 'long'}), "$name: another run is in progress");
}

# No tick comes in the middle of the failover.
defined await($pairs{workers}{old}, 'SELECT extract(second FROM clock_timestamp()) < 30') or BAIL_OUT('the clock stands still');

# Two of the primaries are killed
$pairs{'other port'}{old}->kill9;
$pairs{'same port'}{old}->stop('immediate');
$pairs{$_}{new}->promote foreach keys %pairs;

# What has run by then
my (%runs, %tick);
foreach my $name (keys %pairs)
{
	$runs{$name} = query($name, 'new', 'SELECT count(*) FROM done');
	$tick{$name} = query($name, 'new', q{SELECT max(tick) FROM shedlock_history WHERE name = 'tick'});
}
my $began = query('workers', 'old', 'SELECT last_value FROM began');
foreach my $name ('other port', 'same port')
{
	is(query($name, 'new', q{SELECT outcome FROM shedlock_history WHERE name = 'long'}), 'lost', "$name: the run that was cut off is lost");
	is(query($name, 'new', q{SELECT state FROM shedlock_locks WHERE name = 'long'}), 'lost', "$name: the lock of that run counts as a lease");
}

#
# The next tick
#
comes($_, "SELECT count(*) > $runs{$_} FROM done", 'the job continues at the promoted server') foreach 'same port', 'workers';
is(query('same port', 'new', q{SELECT count(*) FROM shedlock_history WHERE name = 'long'}), '1',
	'same port: the next tick of the run that was cut off is skipped');
comes('other port', q{
SELECT count(*) > 0 FROM cron.job_run_details d JOIN cron.job j USING (jobid)
WHERE jobname = 'tick' AND status = 'failed' AND return_message = 'connection failed'}, 'the promoted server looks for the job at the old one');
is(query('other port', 'new', 'SELECT count(*) FROM done'), $runs{'other port'}, 'other port: the promoted server runs nothing');
is(query('other port', 'new', q{UPDATE cron.job SET nodeport = current_setting('port')::int WHERE jobname <> 'left' RETURNING 1}),
	"1\n1", 'other port: an administrator corrects that');

# The third old primary is alive, and so is its pg_cron.
my $old = $pairs{workers}{old};
ok(await_minutes($old, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'}, map { $_->{new} } values %pairs),
	'workers: the old primary fires, and waits for its standby');
is(query('workers', 'old', 'SELECT last_value FROM began'), $began, 'workers: it has begun nothing');
is(query('workers', 'old', 'SELECT count(*) FROM done'), $runs{workers}, 'workers: the tick was run once');
$old->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
$old->reload;

#
# The ticks after that
#
foreach my $name (sort keys %pairs)
{
	my $seen = query($name, 'new', 'SELECT count(*) FROM done');

	comes($name, "SELECT count(*) > $seen FROM done", 'the job ran once more');
}
my $later = "FROM shedlock_history WHERE name = 'tick' AND tick > '$tick{workers}' AND outcome = 'succeeded'";
ok(await_minutes($old, "SELECT count(*) > 0 $later", map { $_->{new} } values %pairs), 'workers: an old primary that waits for no standby runs the job, too');
my $twice = query('workers', 'old', "SELECT min(tick) $later");
comes('workers', "SELECT count(*) = 1 $later AND tick = '$twice'", 'not promised: the tick has run at both');
foreach my $name ('other port', 'same port')
{
	comes($name, q{SELECT count(*) >= 2 AND bool_and(outcome IN ('lost', 'succeeded')) FROM shedlock_history WHERE name = 'long'}, 'the long job runs again');
	is(query($name, 'new', qq{SELECT min(started_at) FILTER (WHERE outcome = 'succeeded') >= min(started_at) + '$long s' FROM shedlock_history WHERE name = 'long'}),
		't', "$name: the long job starts after the lock_until of the run that was cut off");
}

foreach my $name (sort keys %pairs)
{
	# a run may be going on
	ok( defined await($pairs{$name}{new}, q{
SELECT count(*) = count(DISTINCT tick) AND bool_and(outcome = 'succeeded') AND count(*) = (SELECT count(*) FROM done)
FROM shedlock_history WHERE name = 'tick'}),
		"$name: each tick was run once in total");
	is(query($name, 'new', qq{SELECT max(tick) - min(tick) = (count(*) - 1) * interval '1 min' FROM shedlock_history WHERE name = 'tick' AND tick > '$tick{$name}'}),
		't', "$name: the promoted server leaves no tick out");
}

# The job that still names the old server has not run since.
comes('other port', q{SELECT overdue IS NOT NULL FROM shedlock_cron_jobs WHERE job_name = 'left'}, 'shedlock_cron_jobs shows a job with the old port as overdue');
is(query('other port', 'new', q{SELECT overdue IS NOT NULL FROM shedlock_cron_jobs WHERE job_name = 'tick'}), 'f',
	'other port: shedlock_cron_jobs does not show a corrected job as overdue');

$pairs{$_}{new}->stop('immediate') foreach keys %pairs;
$old->stop('immediate');
bury($pairs{'other port'}{old});
done_testing();
