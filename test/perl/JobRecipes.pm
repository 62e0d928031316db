# Tests the functions of doc/services.md that run a job of a service.
#
# Replicas in one language call such a function again and again for one job.  Its work is
# steps of 0.1 s: the client notes the time, asks whether it still may work, and tells the
# database of the step.  So the steps show when which replica believed that it may work.
# SQL decides how long the work takes, and whether it raises an error.
package JobRecipes;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use IPC::Run;
use PoolerNode;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep);

our @EXPORT = qw(write_recipe prepare_recipes test_recipe);

my ($node, $judge, @command);

# seconds; the first work of a job takes longer than two leases
my $lease;
my %replicas;

# Writes the block of a language to a file.
sub write_recipe
{
	my ($language, $file) = @_;
	my ($code, @others) = slurp_file('doc/services.md') =~ /^```$language job\n(.*?)^```$/msg;

	is(scalar @others, 0, "there is one recipe in $language");
	append_to_file($file, $code);
	return;
}

# Creates the tables of the steps and the answers, and the functions that clients call.
sub prepare_recipes
{
	($node) = @_;
	$judge = session($node);
	$lease = sprintf('%.1f', 2 * slowness($node));
	my $steps = int(25 * $lease);

	$node->safe_psql('postgres', q{
CREATE ROLE worker LOGIN PASSWORD 'of worker';
CREATE TABLE step (job text, replica text, token bigint, at double precision);
CREATE TABLE told (job text, replica text, answer text, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE wish (job text, what text);

-- The first run of a job is long, unless the test wishes that it raises an error or
-- loses its lock at its end.  That of an "unseen" job waits for the wish.
CREATE FUNCTION work_step(job text, replica text, token bigint, at double precision) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	is_first boolean := NOT EXISTS (SELECT FROM step s WHERE s.job = $1 AND s.token < $3);
	wished text := (SELECT what FROM wish w WHERE w.job = $1 AND what <> 'end');
BEGIN
	INSERT INTO step VALUES ($1, $2, $3, $4);
	IF is_first AND wished = 'raise' THEN
		RETURN 'raise';
	ELSIF is_first AND wished = 'force' THEN
		PERFORM shedlock_force_release($1);
		RETURN 'done';
	END IF;
	IF is_first AND $1 LIKE 'unseen%' THEN
		RETURN 'go on';
	END IF;
	RETURN CASE WHEN (SELECT count(*) FROM step s WHERE s.token = $3) >= CASE WHEN is_first THEN } . $steps . q{ ELSE 10 END THEN 'done' ELSE 'go on' END;
END
$$;

-- Returns whether the replica shall call again.  One whose work failed does not.
CREATE FUNCTION work_told(job text, replica text, answer text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	IF answer <> 'not due' THEN
		INSERT INTO told VALUES ($1, $2, $3);
	END IF;
	RETURN answer NOT LIKE 'raised%' AND NOT EXISTS (SELECT FROM wish w WHERE w.job = $1 AND what = 'end');
END
$$;
});
	return;
}

# Makes the tick of a job due that nobody has run.
sub make_due
{
	my ($job) = @_;

	$node->safe_psql('postgres', qq{
SELECT shedlock_job('$job', '0 0 1 1 *', 'Asia/Kolkata', attempts => 3, backoff => '10 s');
UPDATE _shedlock_job SET since = since - interval '5 years' WHERE name = '$job';
});
	return;
}

# Starts replicas of a job, behind a pooler if one is given.
sub start_replicas
{
	my ($job, $count, $pooler) = @_;

	make_due($job) unless $replicas{$job};
	local @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD PGAPPNAME WORK_HOST WORK_PORT)} = (
		$pooler ? $pooler->{dir} : $node->host,
		$pooler ? $pooler->{port} : $node->port,
		'app', 'postgres', 'of app', $job, $node->host, $node->port);
	foreach (1 .. $count)
	{
		my $number = 1 + @{ $replicas{$job} //= [] };
		my $output = '';

		push @{ $replicas{$job} }, {
			output => \$output,
			run => IPC::Run::start([ 'timeout', '-k', 5, $PostgreSQL::Test::Utils::timeout_default, @command, $job, $lease, $number ],
				'<', \undef, '>&', \$output) };
	}
	return;
}

# An error counts as a wrong answer.
sub answer
{
	my $out = ask($judge, $_[0]);

	return $judge->{heard} =~ /ERROR/ ? $judge->{heard} : $out;
}

sub wish
{
	my ($job, $what) = @_;

	return answer("INSERT INTO wish VALUES ('$job', '$what')");
}

sub is_working
{
	my ($job) = @_;

	ok(defined await($judge, "SELECT count(*) >= 10 FROM step WHERE job = '$job'"), "$job: a replica works");
	return;
}

# The history's outcomes of a job, in the order of its runs
sub outcomes
{
	my ($job) = @_;

	return answer("SELECT string_agg(outcome, ' ' ORDER BY token) FROM shedlock_history WHERE name = '$job'");
}

# Waits until a run has succeeded; ends the replicas.  Whatever happened, no two replicas
# worked at once, and the replica that says that it ran is the one whose run succeeded.
sub ends_well
{
	my ($job) = @_;

	ok(defined await($judge, "SELECT count(*) > 0 FROM told WHERE job = '$job' AND answer = 'ran'"), "$job: a replica says that it ran");
	wish($job, 'end');
	foreach my $replica (@{ delete $replicas{$job} })
	{
		ok($replica->{run}->finish, "$job: a replica comes to its end") or diag(${ $replica->{output} });
	}
	is(answer("SELECT count(*) FROM step a JOIN step b USING (job) WHERE job = '$job' AND a.token < b.token AND a.at > b.at"), '0', "$job: no two replicas work at once");
	is(answer("SELECT count(DISTINCT replica) - count(DISTINCT token) FROM (SELECT DISTINCT token, token || replica AS replica FROM step WHERE job = '$job') s"), '0', "$job: a run is the work of one replica");
	is(answer("SELECT count(*) FROM told WHERE job = '$job' AND answer = 'ran'"), '1', "$job: one replica says that it ran");
	is(answer("SELECT count(*) FROM shedlock_history WHERE name = '$job' AND outcome = 'succeeded'"), '1', "$job: one run has succeeded");
	is(answer("SELECT count(*) FROM shedlock_history WHERE name = '$job' AND outcome = 'succeeded' AND token = (SELECT max(token) FROM step WHERE job = '$job')"), '1', "$job: it is the last one");
	note("$job: " . outcomes($job) . '; ' . answer("SELECT string_agg(answer, ', ' ORDER BY at) FROM told WHERE job = '$job'"));
	return;
}

sub race
{
	my ($job) = @_;

	ends_well($job);
	is(outcomes($job), 'succeeded', "$job: one replica works");
	is(answer("SELECT max(at) - min(at) > 2 * $lease FROM step WHERE job = '$job'"), 't', "$job: the work is longer than the lease");
	like(answer("SELECT claimed_by FROM _shedlock_tick WHERE name = '$job'"), qr/\S+ \d+ #\d+$/, "$job: locked_by names the replica");
	return;
}

# Ends the server processes of the function's connections in the middle of the work.
sub connections_killed
{
	my ($job) = @_;
	my $killed = 0;

	is_working($job);
	while (answer("SELECT count(*) < 40 FROM step WHERE job = '$job'") eq 't')
	{
		$killed += answer("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '$job' AND usename = 'app'");

		# some calls must come through
		sleep(0.05);
	}
	note("$job: $killed connections were killed");
	ends_well($job);
	return;
}

sub pooler_restarted
{
	my ($job, $pooler) = @_;

	is_working($job);
	restart_pooler($pooler);
	ends_well($job);
	return;
}

# The pooler neither answers nor breaks connections.  Another replica has a way to the
# server, so it takes over as soon as the lease has expired.
sub pooler_frozen
{
	my ($job, $pooler) = @_;

	is_working($job);
	start_replicas($job, 1);
	$pooler->{run}->signal('STOP');
	ok(defined await($judge, "SELECT count(DISTINCT replica) = 2 FROM step WHERE job = '$job'"), "$job: another replica takes over");
	$pooler->{run}->signal('CONT');
	ok(defined await($judge, "SELECT count(*) > 0 FROM told WHERE job = '$job' AND replica = '1'"), "$job: the first replica comes back");
	is(answer("SELECT DISTINCT answer FROM told WHERE job = '$job' AND replica = '1'"), 'lost', "$job: the first replica says that it lost the lock");
	ends_well($job);
	return;
}

# Nobody runs a forced tick again before an administrator allows it.
sub run_again
{
	my ($job) = @_;

	is(outcomes($job), 'cancelled', "$job: the run is cancelled");
	sleep(1);
	is(answer("SELECT count(DISTINCT token) FROM step WHERE job = '$job'"), '1', "$job: nobody works meanwhile");
	is(answer("SELECT shedlock_again('$job')"), 't', "$job: it is allowed again");
	ends_well($job);
	return;
}

sub forced
{
	my ($job) = @_;

	is_working($job);
	is(answer("SELECT shedlock_force_release('$job')"), 't', "$job: the lock is released by force");
	my $released = answer('SELECT extract(epoch FROM clock_timestamp())');
	ok(defined await($judge, "SELECT count(*) = 1 FROM told WHERE job = '$job' AND answer = 'lost'"), "$job: the work stops, and the replica says that the lock was lost");
	is(answer("SELECT max(at) - $released < $lease FROM step WHERE job = '$job'"), 't', "$job: before its lease would have expired");
	run_again($job);
	return;
}

# The lock is released by force at the last step of work that never looks.
sub blind
{
	my ($job) = @_;

	is_working($job);
	wish($job, 'force');
	ok(defined await($judge, "SELECT count(*) = 1 FROM told WHERE job = '$job'"), "$job: the work comes to its end");
	is(answer("SELECT answer FROM told WHERE job = '$job'"), 'lost', "$job: the replica says that the lock was lost");
	run_again($job);
	return;
}

sub work_fails
{
	my ($job) = @_;

	is_working($job);
	wish($job, 'raise');
	ends_well($job);
	is(outcomes($job), 'failed succeeded', "$job: the failed run is repeated");
	is(answer("SELECT string_agg(DISTINCT answer, ', ') FROM told WHERE job = '$job'"), 'raised: of the work, ran', "$job: the error of the work reaches the caller");
	like(answer("SELECT message FROM shedlock_history WHERE name = '$job' AND outcome = 'failed'"), qr/of the work/, "$job: the history has the error of the work");
	is(answer("SELECT count(DISTINCT replica) FROM step WHERE job = '$job'"), '2', "$job: another replica repeats it");
	is(answer("SELECT max(started_at) - min(ended_at) >= '10 s' FROM shedlock_history WHERE name = '$job'"), 't', "$job: after the backoff");
	return;
}

# The work fails, and the failure cannot be recorded.
sub work_fails_unseen
{
	my ($job, $pooler) = @_;

	is_working($job);
	stop_pooler($pooler);
	wish($job, 'raise');
	ok(defined await($judge, "SELECT count(*) = 1 FROM told WHERE job = '$job'"), "$job: the work comes to its end");
	is(answer("SELECT answer FROM told WHERE job = '$job'"), 'raised: of the work', "$job: the error of the work reaches the caller");
	start_replicas($job, 1);
	ends_well($job);
	is(outcomes($job), 'lost succeeded', "$job: the run is lost, and repeated");
	return;
}

# Tests the recipe of a language, on the server that was prepared.
sub test_recipe
{
	my ($language, @client) = @_;
	my @tests = (
		[ 'race', \&race ],
		[ 'killed', \&connections_killed ],
		[ 'forced', \&forced ],
		[ 'blind', \&blind ],
		[ 'fails', \&work_fails ]);
	my @pooled = (
		[ 'restarted', \&pooler_restarted, 3 ],
		[ 'frozen', \&pooler_frozen, 1 ],
		[ 'unseen', \&work_fails_unseen, 1 ]);

	@command = @client;
	foreach my $test (@tests)
	{
		my ($what, $code) = @$test;

		start_replicas("$what-$language", 3);
		$code->("$what-$language");
	}
	note('the tests that need pgbouncer are skipped') unless find_pgbouncer();
	foreach my $test (find_pgbouncer() ? @pooled : ())
	{
		my ($what, $code, $count) = @$test;
		my $pooler = start_pooler($node, 'transaction', 4, 'listen_addr = 127.0.0.1');

		start_replicas("$what-$language", $count, $pooler);
		$code->("$what-$language", $pooler);
		stop_pooler($pooler);
	}
	return;
}

1;
