# A server with pg_cron, and the jobs that must fare alike in both of its
# execution modes.
package CronNode;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use ShedlockNode;
use Test::More;

our @EXPORT = qw(has_pg_cron start_cron_node skip_before_16 prepare_jobs await_minute schedule_jobs await_first_runs check_jobs);

# Jobs of schedule_jobs, with what pg_cron says of their first run
my %jobs = (
	insert => 'succeeded',
	commits => 'succeeded',
	vacuum => 'succeeded',
	fails => 'failed',
	outlives => 'failed',
	busy => 'succeeded',
	plain => 'succeeded',
	elsewhere => 'succeeded');

# Whether there is a pg_cron for this PostgreSQL
sub has_pg_cron
{
	chomp(my $share = `pg_config --sharedir`);
	return -e "$share/extension/pg_cron.control";
}

# Starts a server whose scheduler needs no password.  Jobs are run over its
# socket, so this has to be known before the first job is made.  Options are
# those of new() and init().  Without a pg_cron the test is skipped.
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
	$node->start;
	$node->safe_psql('postgres',
		'CREATE EXTENSION pg_cron; CREATE ROLE plain LOGIN; GRANT USAGE ON SCHEMA cron TO plain');
	return $node;
}

# Schedules in seconds, cron.timezone and a launcher that comes back came with
# 1.5 and 1.6.  To be called before the first test.
sub skip_before_16
{
	my ($node) = @_;
	my $version = $node->safe_psql('postgres', "SELECT extversion FROM pg_extension WHERE extname = 'pg_cron'");
	my ($major, $minor) = $version =~ /^(\d+)\.(\d+)/;

	plan skip_all => "pg_cron $version is older than 1.6" if $major == 1 && $minor < 6;
	return;
}

# Returns with so much left of the minute that all jobs made after this are
# due for the first time at the same instant.
sub await_minute
{
	my $second = time % 60;

	sleep(61 - $second) if $second > 45;
	return;
}

# What the jobs of schedule_jobs need
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
	$node->safe_psql('postgres', "SELECT shedlock_acquire('busy', '1 hour')");
	return;
}

sub schedule_jobs
{
	my ($node) = @_;

	$node->safe_psql(
		'postgres', q{
SELECT shedlock_cron_schedule('insert', '* * * * *', $$INSERT INTO done VALUES ('insert')$$, '1 min'),
	   shedlock_cron_schedule('commits', '* * * * *', 'CALL commits()', '1 min'),
	   shedlock_cron_schedule('vacuum', '* * * * *', 'VACUUM (ANALYZE) done', '1 min'),
	   shedlock_cron_schedule('fails', '* * * * *', $$INSERT INTO done VALUES ('fails'); SELECT 1/0$$, '1 min'),
	   shedlock_cron_schedule('outlives', '* * * * *', 'SELECT pg_sleep(600)', '2 s'),
	   shedlock_cron_schedule('busy', '* * * * *', $$INSERT INTO done VALUES ('busy')$$, '1 min'),
	   shedlock_cron_schedule('plain', '* * * * *', $$INSERT INTO done VALUES ('plain')$$, '1 min', username => 'plain'),
	   shedlock_cron_schedule('elsewhere', '* * * * *', $$INSERT INTO done VALUES ('elsewhere')$$, '1 min', database => 'other');
});
	return;
}

# Waits for the end of the first run of each job of schedule_jobs.
sub await_first_runs
{
	my ($node) = @_;

	$node->poll_query_until(
		'postgres', qq{
SELECT count(DISTINCT j.jobname) = } . keys(%jobs) . qq{
FROM cron.job j JOIN cron.job_run_details d USING (jobid)
WHERE d.status IN ('succeeded', 'failed') AND j.jobname IN ('} . join("', '", keys %jobs) . qq{')})
	  or BAIL_OUT('pg_cron does not run its jobs');
	return;
}

# A line for the first run of a lock's name
sub first_run
{
	my ($node, $database, $name) = @_;

	return $node->safe_psql($database,
		"SELECT outcome, sqlstate, run_role FROM shedlock_history WHERE name = '$name' ORDER BY token LIMIT 1");
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
	is($done->('insert'), 't|postgres', "$mode: and its work is committed");
	is(first_run($node, 'postgres', 'commits'), 'succeeded||postgres',
		"$mode: a procedure that commits runs under the guard");
	is($node->safe_psql('postgres', "SELECT count(*) >= 3 FROM done WHERE job = 'commits'"),
		't', "$mode: with all its commits");
	is(first_run($node, 'postgres', 'vacuum'), 'succeeded||postgres', "$mode: VACUUM runs under the guard");
	is( $node->safe_psql('postgres', "SELECT last_vacuum IS NOT NULL FROM pg_stat_user_tables WHERE relname = 'done'"),
		't',
		"$mode: and has vacuumed");

	is(first_run($node, 'postgres', 'fails'), 'failed|22012|postgres', "$mode: a failed run is in the history");
	like($details->('fails', 'return_message'), qr/^ERROR: +division by zero/,
		"$mode: and pg_cron has the original error");
	is($done->('fails'), 'f|', "$mode: and none of its work is left");

	is(first_run($node, 'postgres', 'outlives'), 'timed out|57014|postgres',
		"$mode: a run that outlives its time is cancelled");
	like($details->('outlives', 'return_message'),
		qr/canceling statement due to lock_at_most_for of lock "outlives"/,
		"$mode: and pg_cron is told why");
	is( $node->safe_psql('postgres',
			"SELECT min(duration) BETWEEN '2 s' AND '30 s' FROM shedlock_history WHERE name = 'outlives'"),
		't',
		"$mode: when its time is over");

	is(first_run($node, 'postgres', 'busy'), '', "$mode: a job whose lock is held by others does not run");
	is($done->('busy'), 'f|', "$mode: and does nothing");

	is(first_run($node, 'postgres', 'plain'), 'succeeded||plain', "$mode: a plain role's job runs as that role");
	is($done->('plain'), 't|plain', "$mode: also its command");

	is(first_run($node, 'other', 'elsewhere'), 'succeeded||postgres',
		"$mode: a job in another database has its history there");
	is($done->('elsewhere', 'other'), 't|postgres', "$mode: and works there");
	is(first_run($node, 'postgres', 'elsewhere'), '', "$mode: not here");
	return;
}

1;
