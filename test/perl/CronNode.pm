# A server with pg_cron, and jobs that must have the same results in both of its execution
# modes.
#
# A job that is scheduled just after a full minute may be fired for that minute or for the
# next one, and of two jobs that are scheduled one after the other, one of them may be
# fired a minute earlier.  So no test knows the minute of a run from a clock: it reads the
# tick from the history.  slow/cron-any-second runs the tests at seconds that matter.
#
# The servers' clock can be moved, and hurry() moves it to the end of the minute.  Nothing
# depends on that except the time that the tests take.
package CronNode;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use SkewedClock;
use Test::More;
use Time::HiRes qw(sleep);

our @EXPORT = qw(has_pg_cron start_cron_node skip_before_16 at_second minute_ahead await_minutes
  prepare_jobs schedule_jobs await_first_runs check_jobs given_up);

# Jobs of schedule_jobs, with pg_cron's status of their first run
my %jobs = (
	insert => 'succeeded',
	commits => 'succeeded',
	vacuum => 'succeeded',
	fails => 'failed',
	outlives => 'failed',
	busy => 'succeeded',
	plain => 'succeeded',
	elsewhere => 'succeeded');

# Returns whether pg_cron is available for this PostgreSQL.
sub has_pg_cron
{
	chomp(my $share = `pg_config --sharedir`);
	return -e "$share/extension/pg_cron.control";
}

# Starts a server whose scheduler needs no password.  Jobs run over its socket, so the
# setting is needed before the first job is created.  Options are those of new() and
# init().  Skips the test if pg_cron is not available.
sub start_cron_node
{
	my ($name, $conf, %options) = @_;
	my %host = (own_host => delete $options{own_host});

	plan skip_all => 'there is no pg_cron for this PostgreSQL' unless has_pg_cron();

	my $node = PostgreSQL::Test::Cluster->new($name, %host);
	init_node($node, %options);
	$node->append_conf('postgresql.conf',
			"shared_preload_libraries = 'pg_cron'\n"
		  . "cron.database_name = 'postgres'\n"
		  . "cron.host = '" . $node->host . "'\n"
		  . "max_worker_processes = 30\n"
		  . $conf);
	with_movable_clock { $node->start };
	$node->safe_psql('postgres',
		'CREATE EXTENSION pg_cron; CREATE ROLE plain LOGIN; GRANT USAGE ON SCHEMA cron TO plain');
	return $node;
}

# Seconds in schedules, cron.timezone and a launcher that restarts came with 1.5 and 1.6.
# Call this before the first test.
sub skip_before_16
{
	my ($node) = @_;
	my $version = $node->safe_psql('postgres', "SELECT extversion FROM pg_extension WHERE extname = 'pg_cron'");
	my ($major, $minor) = $version =~ /^(\d+)\.(\d+)/;

	plan skip_all => "pg_cron $version is older than 1.6" if $major == 1 && $minor < 6;
	return;
}

# Call this before the first job is scheduled.  Returns at the second of the minute that
# slow/cron-any-second asks for, otherwise at once.
sub at_second
{
	my ($node) = @_;
	my $second = $ENV{SHEDLOCK_CRON_SECOND};

	return unless defined $second;
	my $left = $node->safe_psql('postgres', "SELECT ($second - extract(second FROM clock_timestamp()) + 60) % 60");
	advance_clock($left) or sleep($left);
	return;
}

# Returns a full minute that is more than a minute ahead, for a job that has one tick: it
# is scheduled before pg_cron fires for that minute.
sub minute_ahead
{
	my ($node) = @_;

	return $node->safe_psql('postgres', "SELECT date_trunc('minute', clock_timestamp()) + interval '2 min'");
}

# Lets the next minute begin in a second, unless that took time from what is going on:
# pg_cron looks at the clock once a second, and gives up a connection that is not there
# within 10 s, and a run may have a limit.
sub hurry
{
	my ($after, @sessions) = @_;
	my $left;

	foreach my $session (@sessions)
	{
		$left = ask(
			$session, qq{
SELECT 59 - s FROM extract(second FROM clock_timestamp()) s
WHERE s BETWEEN $after AND 59
	  AND (current_setting('cron.use_background_workers')::boolean
		   OR NOT EXISTS (SELECT FROM cron.job_run_details WHERE status IN ('starting', 'connecting', 'sending')))
	  AND NOT EXISTS (SELECT FROM shedlock_locks WHERE kind = 'run' AND state = 'held' AND lock_until IS NOT NULL)});
		return if $left eq '';
	}
	advance_clock($left);
	return;
}

# Waits until a query gives true, for as many minutes as that takes.  Others are servers
# with the same clock.  Returns whether it did.
sub await_minutes
{
	my ($node, $sql, @others) = @_;
	my $after = 2 + slowness($node);
	my @sessions = map { session($_) } $node, @others;
	my $answered;

	foreach (1 .. 12 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if $answered = answers($sessions[0], $sql, 't');
		hurry($after, @sessions);
		sleep(0.25);
	}
	$_->quit foreach @sessions;
	return $answered;
}

# The objects that the jobs of schedule_jobs need
sub prepare_jobs
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'CREATE DATABASE other');
	foreach my $database ('postgres', 'other')
	{
		$node->safe_psql(
			$database, q{
CREATE EXTENSION shedlock;
CREATE TABLE done (job text, who name DEFAULT current_user, at timestamptz DEFAULT clock_timestamp());
GRANT INSERT ON done TO plain;
CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..3 LOOP
		INSERT INTO done VALUES ('commits');
		COMMIT;
	END LOOP;
END
$$;
});
	}
	$node->safe_psql('postgres', q{SELECT shedlock_acquire('busy', '1 hour'), shedlock_job('outlives', '* * * * *', lock_at_most_for => '2 s')});
	$node->safe_psql('other', q{SELECT shedlock_job('elsewhere', '* * * * *')});
	return;
}

# Schedules the jobs, and others by a statement, in one transaction: all are fired for the
# first time together.
sub schedule_jobs
{
	my ($node, $others) = @_;

	$node->safe_psql(
		'postgres', q{
BEGIN;
SELECT shedlock_cron_schedule('insert', '* * * * *', $$INSERT INTO done VALUES ('insert')$$),
	   shedlock_cron_schedule('commits', '* * * * *', 'CALL commits()'),
	   shedlock_cron_schedule('vacuum', '* * * * *', 'VACUUM (ANALYZE) done'),
	   shedlock_cron_schedule('fails', '* * * * *', $$INSERT INTO done VALUES ('fails'); SELECT 1/0$$),
	   shedlock_cron_schedule('outlives', '* * * * *', 'SELECT pg_sleep(600)'),
	   shedlock_cron_schedule('busy', '* * * * *', $$INSERT INTO done VALUES ('busy')$$),
	   shedlock_cron_schedule('plain', '* * * * *', $$INSERT INTO done VALUES ('plain')$$, username => 'plain'),
	   shedlock_cron_schedule('elsewhere', '* * * * *', $$INSERT INTO done VALUES ('elsewhere')$$, database => 'other');
} . "$others; COMMIT");
	return;
}

# Waits for the end of the first run of each job of schedule_jobs.
sub await_first_runs
{
	my ($node) = @_;

	await_minutes($node, qq{
SELECT count(DISTINCT j.jobname) = } . keys(%jobs) . qq{
FROM cron.job j JOIN cron.job_run_details d USING (jobid)
WHERE d.status IN ('succeeded', 'failed') AND j.jobname IN ('} . join("', '", keys %jobs) . qq{')})
	  or BAIL_OUT('pg_cron does not run its jobs');
	return;
}

# Returns the reason why what follows is a TODO, or undef.  pg_cron gives up a job whose
# session has not started within 10 s, as happens under LOAD: its tick is lost, and what
# follows is not as expected.
sub given_up
{
	my (@nodes) = @_;

	return unless $ENV{SHEDLOCK_LOAD} && grep { slurp_file($_->logfile) =~ /job startup timeout/ } @nodes;
	return 'pg_cron has given up a job on this slow machine';
}

# Returns a line for the first run of a lock's name.
sub first_run
{
	my ($node, $database, $name) = @_;

	return $node->safe_psql($database,
		"SELECT outcome, sqlstate, locked_role FROM shedlock_history WHERE name = '$name' ORDER BY token LIMIT 1");
}

sub check_jobs
{
	my ($node, $mode) = @_;
	my $details = sub {
		return $node->safe_psql('postgres',
			"SELECT d.$_[1] FROM cron.job j JOIN cron.job_run_details d USING (jobid)"
			  . " WHERE j.jobname = '$_[0]' ORDER BY d.runid LIMIT 1");
	};
	my $done = sub {
		return $node->safe_psql($_[1] // 'postgres',
			"SELECT count(*) > 0, min(who) FROM done WHERE job = '$_[0]'");
	};

	foreach my $job (sort keys %jobs)
	{
		is($details->($job, 'status'), $jobs{$job}, "$mode: pg_cron shows job $job as $jobs{$job}");
	}

	is(first_run($node, 'postgres', 'insert'), 'succeeded||postgres', "$mode: a run is in the history");
	is($done->('insert'), 't|postgres', "$mode: the work of a run is committed");
	is(first_run($node, 'postgres', 'commits'), 'succeeded||postgres',
		"$mode: a procedure that commits runs under the guard");
	is($node->safe_psql('postgres', "SELECT count(*) >= 3 FROM done WHERE job = 'commits'"),
		't', "$mode: a procedure's own commits are kept");
	is(first_run($node, 'postgres', 'vacuum'), 'succeeded||postgres', "$mode: VACUUM runs under the guard");
	is( $node->safe_psql('postgres', "SELECT last_vacuum IS NOT NULL FROM pg_stat_user_tables WHERE relname = 'done'"),
		't',
		"$mode: a guarded VACUUM has vacuumed the table");

	is(first_run($node, 'postgres', 'fails'), 'failed|22012|postgres', "$mode: a failed run is in the history");
	like($details->('fails', 'return_message'), qr/^ERROR: +division by zero/,
		"$mode: pg_cron has the original error of a failed run");
	is($done->('fails'), 'f|', "$mode: the work of a failed run is rolled back");

	is(first_run($node, 'postgres', 'outlives'), 'timed out|57014|postgres',
		"$mode: a run that exceeds its lock_at_most_for is cancelled");
	like($details->('outlives', 'return_message'),
		qr/canceling statement due to lock_at_most_for of lock "outlives"/,
		"$mode: pg_cron has the reason for that");
	is( $node->safe_psql('postgres',
			"SELECT CASE WHEN min(duration) BETWEEN '2 s' AND '5 min' THEN 'so' ELSE min(duration)::text END FROM shedlock_history WHERE name = 'outlives'"),
		'so',
		"$mode: it is cancelled at its lock_at_most_for");

	is(first_run($node, 'postgres', 'busy'), '', "$mode: a job whose lock is held does not run");
	is($done->('busy'), 'f|', "$mode: a skipped job does nothing");

	is(first_run($node, 'postgres', 'plain'), 'succeeded||plain', "$mode: a plain role's job runs as that role");
	is($done->('plain'), 't|plain', "$mode: a plain role's command runs as that role");

	is(first_run($node, 'other', 'elsewhere'), 'succeeded||postgres',
		"$mode: a job in another database has its history there");
	is($done->('elsewhere', 'other'), 't|postgres', "$mode: a job in another database works there");
	is(first_run($node, 'postgres', 'elsewhere'), '', "$mode: a job in another database has no history here");
	return;
}

1;
