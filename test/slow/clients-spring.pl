# A service with Spring Boot has the package of clients/java as a bean, and a lock of ShedLock's on
# the same table.  Of three instances one is killed while it works: each tick has one run that
# succeeds, no two instances work under the lock at once, and the other two end by SIGTERM with
# nothing held.  Maven fetches Spring Boot into the test's folder, and the test is skipped without it.
#
# Programs: default-jdk-headless maven

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use ClientSuite;
use IPC::Run;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep);

my $dir = PostgreSQL::Test::Utils::tempdir;

plan skip_all => 'this needs Maven' if system('mvn --version >/dev/null 2>&1') != 0;
foreach my $step ([ 'clients/java', 'install' ], [ 'test/clients/spring', 'package' ])
{
	my ($project, $goal) = @$step;
	my $copy = "$dir/" . $project =~ s/.*\///r;
	my @maven = (qw(mvn -q -B -ntp), "-Dmaven.repo.local=$dir/m2", '-f', "$copy/pom.xml", $goal);

	system_or_bail('cp', '-R', $project, $copy);
	next if IPC::Run::run(\@maven, '<', \undef, '>&', \my $output);
	plan skip_all => "Maven cannot fetch what it needs: $1" if $output =~ /(Could not (?:transfer|resolve)[^\n]*|[^\n]*Unknown host[^\n]*)/;
	die "$project cannot be built:\n$output";
}

my $node = start_clients_node('spring');
$node->safe_psql('postgres', q{
CREATE ROLE app LOGIN;
GRANT SELECT, INSERT (name, lock_until, locked_at, locked_by), UPDATE (name, lock_until, locked_at, locked_by) ON shedlock TO app;
CREATE TABLE spring_work (tick timestamptz, token bigint, pid bigint);
CREATE TABLE spring_lock (id serial, pid bigint, started timestamptz DEFAULT clock_timestamp(), ended timestamptz);
GRANT ALL ON spring_work, spring_lock, spring_lock_id_seq TO app;
});
my $judge = session($node);

my %instances;
foreach my $number (1 .. 3)
{
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		$ENV{SPRING_DATASOURCE_URL} = 'jdbc:postgresql://127.0.0.1:' . $node->port . '/postgres';
		$ENV{SPRING_DATASOURCE_USERNAME} = 'app';
		open(STDOUT, '>', "$dir/instance-$number.log") && open(STDERR, '>&', \*STDOUT)
		  && exec(qw(java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -jar), "$dir/spring/target/spring-1.jar");
		POSIX::_exit(127);
	}
	$instances{$pid} = $number;
}

# Reports the logs of the instances if something never comes true.
sub comes_true
{
	my ($sql, $claim) = @_;

	ok(defined await($judge, $sql), $claim) or diag(map { "instance $_:\n" . slurp_file("$dir/instance-$_.log") } 1 .. 3);
	return;
}

comes_true('SELECT count(DISTINCT pid) = 3 FROM spring_work', 'three instances run the job');

# the instance that works now, if its run has just begun
my $victim = '';
foreach my $try (1 .. 2000)
{
	$victim = ask($judge, q{SELECT substring(locked_by FROM ' (\d+) #') FROM shedlock_locks
		WHERE name = 'spring' AND state = 'held' AND clock_timestamp() - locked_at < '0.2 s'});
	last if $victim;
	sleep(0.02);
}
ok(delete $instances{$victim}, 'one of them is at work') or diag("it is \"$victim\"");
kill 'KILL', $victim if $victim;
comes_true(q{SELECT count(*) = 1 FROM shedlock_history WHERE name = 'spring' AND outcome = 'lost'}, 'it is killed, and its run is lost');
comes_true(q{SELECT count(*) >= 20 FROM shedlock_history WHERE name = 'spring' AND outcome = 'succeeded'
	AND tick > (SELECT tick FROM shedlock_history WHERE name = 'spring' AND outcome = 'lost')}, 'the job goes on');
comes_true(q{SELECT count(*) >= 5 FROM spring_lock WHERE started > (SELECT started_at + interval '1 s' FROM shedlock_history WHERE name = 'spring' AND outcome = 'lost')},
	'so does the work under the lock');
foreach my $pid (sort keys %instances)
{
	kill 'TERM', $pid;
	waitpid($pid, 0);
	is($? >> 8, 143, "instance $instances{$pid} ends by SIGTERM") or diag(slurp_file("$dir/instance-$instances{$pid}.log"));
}

is(ask($judge, q{SELECT count(*) FROM shedlock_locks WHERE name = 'spring' AND state = 'held'}), '0', 'no run is left');
is(ask($judge, q{SELECT count(*) FILTER (WHERE n <> 1) FROM (SELECT count(*) AS n FROM shedlock_history
	WHERE name = 'spring' AND outcome = 'succeeded' GROUP BY tick) t}), '0', 'each tick has one run that succeeds');
is(ask($judge, q{SELECT (max(tick) - min(tick)) / (count(DISTINCT tick) - 1) FROM shedlock_history
	WHERE name = 'spring' AND outcome = 'succeeded'}), '00:00:01', 'no tick is left out');
is(ask($judge, q{SELECT count(*) FROM shedlock_history h WHERE name = 'spring' AND outcome = 'succeeded'
	AND (SELECT count(*) FROM spring_work w WHERE w.token = h.token AND w.tick = h.tick) <> 1}), '0', 'each run did its work once');
is(ask($judge, q{SELECT attempt FROM shedlock_history WHERE name = 'spring' AND outcome = 'succeeded'
	AND tick = (SELECT tick FROM shedlock_history WHERE name = 'spring' AND outcome = 'lost')}), '2', 'the lost run is repeated');
is(ask($judge, q{SELECT count(*) FROM (SELECT started < max(ended) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS early
	FROM spring_lock) l WHERE early}), '0', 'no two instances work under the lock at once');
$judge->quit;
$node->stop;
done_testing();
