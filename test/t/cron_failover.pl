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
use Test::More;
use Time::HiRes qw(sleep time);

my $dbname = 'postgres';

# The lock_at_most_for of the run that is cut off: it ends after the next tick.
my $long = 75;

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
	$pair->{new} = start_standby($pair->{old}, $name,
		$name =~ /same/ ? (own_host => 1, port => $pair->{old}->port) : ());
}

sub on_each
{
	my ($server, $sql) = @_;

	$pairs{$_}{$server}->safe_psql($dbname, $sql) foreach sort keys %pairs;
	return;
}

# Waits as await() does.
sub await_jobs
{
	my @answer = await(@_);

	$main::TODO = given_up(map { values %$_ } values %pairs);
	return $answer[0];
}

# Minutes as pg_cron counts them
sub minute
{
	return int(time / 60);
}

sub await_tick
{
	my ($minute, $seconds) = @_;

	sleep(0.1) while (time < $minute * 60 + $seconds);
	return;
}

#
# The first tick
#
await_minute();
on_each('old', q{
SELECT shedlock_cron_schedule('tick', '* * * * *', $$INSERT INTO done VALUES ('tick' || nextval('began') * 0)$$,
	'1 min', once_every => '1 min'),
	   shedlock_cron_schedule('left', '* * * * *', 'SELECT 1', '1 min')});

# Workers of pg_cron 1.4 run one after the other, so the long run would block all others.
foreach my $name ('other port', 'same port')
{
	$pairs{$name}{old}->safe_psql($dbname, qq{
SELECT shedlock_cron_schedule('long', '* * * * *',
	\$\$SELECT pg_sleep(CASE WHEN (SELECT count(*) FROM shedlock_history WHERE name = 'long') > 1 THEN 0 ELSE 600 END)\$\$,
	'$long s', once_every => '1 min')});
}
my $first = minute() + 1;
foreach my $name (sort keys %pairs)
{
	ok(defined await($pairs{$name}{old}, 'SELECT count(*) = 1 FROM done', 't', 90), "$name: the job ran on the primary");
	next if $name eq 'workers';
	ok(defined await($pairs{$name}{old}, q{SELECT outcome = 'running' FROM shedlock_history WHERE name = 'long'}, 't', 30),
		"$name: another run is in progress");
}

# Two of the primaries are killed
$pairs{'other port'}{old}->kill9;
$pairs{'same port'}{old}->stop('immediate');
$pairs{$_}{new}->promote foreach keys %pairs;
foreach my $name ('other port', 'same port')
{
	is($pairs{$name}{new}->safe_psql($dbname, q{SELECT outcome FROM shedlock_history WHERE name = 'long'}), 'lost',
		"$name: the run that was cut off is lost");
	is($pairs{$name}{new}->safe_psql($dbname, q{SELECT lock_state FROM shedlock_jobs WHERE job_name = 'long'}), 'lost',
		"$name: the lock of that run counts as a lease");
}
cmp_ok(minute(), '==', $first, 'the failover took only the rest of the minute')
  or diag('this machine is too slow for the next checks');

#
# The next tick
#
foreach my $name ('same port', 'workers')
{
	ok( defined await_jobs($pairs{$name}{new}, 'SELECT count(*) = 2 FROM done', 't', 90),
		"$name: the job continues at the promoted server with the next tick");
}
ok(defined await($pairs{'other port'}{new},
		q{SELECT count(*) > 0 FROM cron.job_run_details d JOIN cron.job j USING (jobid)
		  WHERE jobname = 'tick' AND status = 'failed' AND return_message = 'connection failed'}, 't', 90),
	'other port: the promoted server looks for the job at the old one');
is($pairs{'other port'}{new}->safe_psql($dbname, 'SELECT count(*) FROM done'), '1', 'other port: the promoted server runs nothing');
is($pairs{'other port'}{new}->safe_psql($dbname,
		q{UPDATE cron.job SET nodeport = current_setting('port')::int WHERE jobname <> 'left' RETURNING 1}),
	"1\n1", 'other port: an administrator corrects that');
is($pairs{'same port'}{new}->safe_psql($dbname, q{SELECT count(*) FROM shedlock_history WHERE name = 'long'}), '1',
	'same port: the next tick of the run that was cut off is skipped');

# The third old primary is alive, and so is its pg_cron.
my ($old, $new) = @{ $pairs{workers} }{ 'old', 'new' };
await_tick($first + 1, 15);
is($old->safe_psql($dbname, 'SELECT last_value FROM began'), '1',
	'workers: the old primary, which waits for its standby, has begun nothing');
is($new->safe_psql($dbname, 'SELECT count(*) FROM done'), '2', 'workers: the tick was run once');
$old->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
$old->reload;

#
# The tick after that
#
foreach my $name (sort keys %pairs)
{
	my $runs = $name eq 'other port' ? 2 : 3;

	ok(defined await_jobs($pairs{$name}{new}, "SELECT count(*) = $runs FROM done", 't', 120), "$name: the job ran once more");
}
ok(defined await_jobs($old, qq{SELECT count(*) > 0 FROM done WHERE at >= to_timestamp(($first + 2) * 60)}, 't', 90),
	'workers: not promised: an old primary that waits for no standby runs the tick, too');
foreach my $name ('other port', 'same port')
{
	ok( defined await_jobs($pairs{$name}{new},
			q{SELECT count(*) = 2 AND bool_and(outcome IN ('lost', 'succeeded')) FROM shedlock_history WHERE name = 'long'}, 't', 90),
		"$name: the long job runs again");
	is($pairs{$name}{new}->safe_psql($dbname,
			qq{SELECT max(started_at) >= min(started_at) + '$long s' FROM shedlock_history WHERE name = 'long'}),
		't', "$name: the long job starts after the lock_until of the run that was cut off");
}

foreach my $name (sort keys %pairs)
{
	my $ticks = $name eq 'other port' ? "$first, " . ($first + 2) : join(', ', map { $first + $_ } 0 .. 2);

	is($pairs{$name}{new}->safe_psql($dbname,
			q{SELECT string_agg(floor(extract(epoch FROM at) / 60)::text, ', ' ORDER BY at) FROM done}
			  . " WHERE at < to_timestamp(($first + 3) * 60)"),
		$ticks, "$name: each tick was run once in total");
	is($pairs{$name}{new}->safe_psql($dbname,
			q{SELECT count(*) = count(DISTINCT tick), bool_and(outcome = 'succeeded') FROM shedlock_history WHERE name = 'tick'}),
		't|t', "$name: the history shows each tick once");
}

# The job that still names the old server has not run since.
ok(defined await($pairs{'other port'}{new}, q{SELECT overdue FROM shedlock_jobs WHERE job_name = 'left'}, 't', 90),
	'other port: shedlock_jobs shows a job with the old port as overdue');
is($pairs{'other port'}{new}->safe_psql($dbname, q{SELECT overdue FROM shedlock_jobs WHERE job_name = 'tick'}), 'f',
	'other port: shedlock_jobs does not show a corrected job as overdue');

$pairs{$_}{new}->stop('immediate') foreach keys %pairs;
$old->stop('immediate');
bury($pairs{'other port'}{old});
done_testing();
