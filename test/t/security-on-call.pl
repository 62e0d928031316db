# The lists of grants in doc/operations.md, for a role on call and for a monitoring role,
# are complete: an empty role that gets them sees and ends what another role runs, and can
# schedule nothing.  So is the list in doc/hearing.md for a watcher, which does nothing else.  No statement in them is superfluous: without any one of them that is
# not so.  A role with the list for jobs of its own makes and ends them, also after that.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use HostProgram;
use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $has_cron = has_pg_cron();
my $node;

# Returns the statements of the block that creates this role; without pg_cron it omits
# the statements that name pg_cron, as the text says.
sub grants_of
{
	my ($role, $file) = @_;
	my ($list) = slurp_file($file // 'doc/operations.md') =~ /^```sql(?: pg_cron)?\n(CREATE ROLE $role LOGIN;\n.*?)^```$/ms
	  or BAIL_OUT("there is no list for $role");
	my @statements = $list =~ /\G(.*?;)[^;\n]*\n/gs;

	is(join('', map { s/\s//gr } @statements), $list =~ s/--.*//gr =~ s/\s//gr, "the list for $role was read");
	return $has_cron ? @statements : grep { !/\bcron\b/ } @statements;
}

# Returns what a role gets from a statement: its answer, or the error.
sub heard_by
{
	my ($role, $sql) = @_;
	my ($status, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role ]);

	return $status == 0 ? $out : $err;
}

my $worker;

# Another role holds a lease, a session lock and a run.
sub begin_work
{
	$worker = { map { $_ => session($node, extra_params => [ '-U', 'worker' ]) } 'lease', 'session', 'run' };
	ask($worker->{lease}, "SELECT shedlock_acquire('lease', '1 hour')");
	ask($worker->{session}, "SELECT shedlock_acquire_session('session')");
	$worker->{run}->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('run', 'SELECT pg_sleep(600)');\n");
	defined await($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'worker' AND wait_event = 'PgSleep'")
	  or BAIL_OUT('the run does not begin');
	return;
}

sub end_work
{
	reap($_) foreach values %$worker;
	defined await($node, q{SELECT count(pg_terminate_backend(pid)) = 0 FROM pg_stat_activity WHERE usename = 'worker'})
	  or BAIL_OUT('the work does not end');
	$node->safe_psql('postgres', "SELECT shedlock_resume('run'), shedlock_force_release('lease')");
	return;
}

# Answers whether the caller can schedule a job, and schedules none.
my $schedules = q{BEGIN; DO $$ BEGIN
	PERFORM cron.schedule('@reboot', 'SELECT 1');
	SET test.can = 'yes';
EXCEPTION WHEN insufficient_privilege THEN
	SET test.can = 'no';
END $$; SHOW test.can; ROLLBACK};

# pg_cron's own functions that PUBLIC may execute
my $public = q{SELECT string_agg(format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC;', p.oid::regprocedure), ' ') FROM pg_proc p
	WHERE pronamespace = 'cron'::regnamespace AND has_function_privilege('public', p.oid, 'EXECUTE')};

# What a role on call does, in this order, and the expected answers
my @deeds = (
	'sees who holds what' => [ "SELECT string_agg(name || ' ' || kind, ',' ORDER BY name) FROM shedlock_locks WHERE locked_role = 'worker'",
		'lease lease,run run,session session' ],
	'sees the query of a holder' => [ "SELECT query LIKE 'CALL shedlock_run%' FROM shedlock_locks WHERE name = 'run'", 't' ],
	'sees runs that succeeded' => [ "SELECT locked_role, outcome, command FROM shedlock_history WHERE name = 'succeeds' AND outcome <> 'skipped'", 'worker|succeeded|SELECT 1' ],
	'sees runs that failed' => [ "SELECT locked_role, outcome, message FROM shedlock_history WHERE name = 'fails'", 'worker|failed|division by zero' ],
	'sees jobs' => [ "SELECT string_agg(job_name || ' ' || username, ',' ORDER BY job_name) FROM shedlock_cron_jobs", 'fails worker,succeeds worker' ],
	'sees how jobs ended' => [ "SELECT string_agg(last_outcome, ',' ORDER BY job_name) FROM shedlock_cron_jobs", 'failed,succeeded' ],
	'sees jobs that pg_cron did not start' => [ "SELECT return_message FROM cron.job_run_details WHERE username = 'worker' AND status = 'failed'", 'connection failed' ],
	'pauses' => [ "SELECT shedlock_pause('run', reason => 'not tonight')", '' ],
	'sees the reason' => [ "SELECT pause_reason FROM shedlock_locks WHERE name = 'run'", 'not tonight' ],
	'resumes' => [ "SELECT shedlock_resume('run')", 't' ],
	'cancels a run' => [ "SELECT shedlock_cancel('run')", 't' ],
	'ends a session lock' => [ "SELECT shedlock_force_release('session')", 't' ],
	'ends a lease' => [ "SELECT shedlock_force_release('lease')", 't' ],
	'purges' => [ "SELECT shedlock_purge('100 years')", '0' ],
	'skips a tick' => [ "SELECT shedlock_skip('succeeds', 'not tonight') > now()", 't' ],
	'lets it run again' => [ "SET client_min_messages = warning; SELECT shedlock_again('succeeds')", 't' ],
	'schedules nothing' => [ $schedules, 'no' ]);

# Returns which of them a role can do.
sub deeds_of
{
	my ($role) = @_;
	my %can;

	# In these seconds pg_cron might begin what is looked at.
	my $latest = max(5, 60 - 10 * slowness($node));
	defined await($node, "SELECT extract(second FROM clock_timestamp()) < $latest") or die 'the clock stands still' if $has_cron;
	begin_work();
	for (my $i = 0; $i < @deeds; $i += 2)
	{
		my ($deed, ($sql, $expected)) = ($deeds[$i], @{ $deeds[ $i + 1 ] });

		$can{$deed} = heard_by($role, $sql) eq $expected;
	}
	if ($can{'cancels a run'})
	{
		ok(defined await($node, "SELECT outcome = 'cancelled' FROM shedlock_history WHERE name = 'run' ORDER BY token DESC LIMIT 1"),
			"$role: a run that it cancels ends");
	}

	# pg_cron fires that job once a year.
	is($node->safe_psql('postgres', q{WITH once AS (DELETE FROM cron.job WHERE jobname IS NULL RETURNING *) SELECT username, schedule FROM once}),
		$can{'lets it run again'} ? 'worker|* * * * *' : '', "$role: pg_cron fires within a minute what it lets run again")
	  if $has_cron;
	end_work();
	return join ', ', grep { $can{$_} } map { $deeds[ 2 * $_ ] } 0 .. $#deeds / 2;
}

# Returns all except those that match.
sub all_but
{
	my (@but) = @_;
	my @left = map { $deeds[ 2 * $_ ] } 0 .. $#deeds / 2;

	foreach my $but (@but, $has_cron ? () : qr/jobs|schedules/)
	{
		@left = grep { !/$but/ } @left;
	}
	return join ', ', @left;
}

my $acts = qr/pauses|reason|resumes|cancels|ends|purges|skips|again/;

# What a role cannot do without the grant that a statement makes
sub lost_without
{
	my ($statement) = @_;

	return qr/query|runs|jobs ended/ if $statement =~ /pg_read_all_stats|pg_monitor/;
	return qr/cancels|ends a session/ if $statement =~ /pg_signal_backend/;
	return qr/schedules/ if $statement =~ /REVOKE/;
	return $acts if $statement =~ /EXECUTE/;
	return qr/pg_cron/ if $statement =~ /cron\.job_run_details/;
	return qr/sees jobs(?:,|$)|jobs ended/ if $statement =~ /cron\.job\b/;
	return qr/jobs/ if $statement =~ /SCHEMA cron/;
	die "nothing needs $statement";
}

if ($has_cron)
{
	$node = start_cron_node('main', '');
	$node->safe_psql('postgres', 'CREATE EXTENSION shedlock');
}
else
{
	$node = start_node('main');
}
$node->safe_psql('postgres', 'CREATE ROLE worker LOGIN');
my %job = (succeeds => 'SELECT 1', fails => 'SELECT 1/0');
foreach my $name (sort keys %job)
{
	my $call = "CALL shedlock_run('$name', '$job{$name}')";

	$call = $node->safe_psql('postgres',
		"SELECT shedlock_cron_schedule('$name', '0 0 1 1 *', '$job{$name}', username => 'worker') \\g /dev/null\n"
		  . "SELECT command FROM cron.job WHERE jobname = '$name'")
	  if $has_cron;
	heard_by('worker', "SELECT shedlock_job('$name', '0 0 1 1 *')") if !$has_cron;

	# The tick of a job had passed before it was declared.
	$node->safe_psql('postgres', "UPDATE _shedlock_job SET since = since - interval '2 years' WHERE name = '$name'");
	heard_by('worker', $call);
}

$node->safe_psql('postgres', "INSERT INTO cron.job_run_details (jobid, database, username, command, status, return_message)"
	  . " SELECT jobid, database, username, command, 'failed', 'connection failed' FROM cron.job WHERE jobname = 'fails'")
  if $has_cron;

my %never = (on_call => qr/^$/, monitoring => $acts);
my $grant_public = $has_cron ? $node->safe_psql('postgres', $public) : '';
foreach my $role (sort keys %never)
{
	my ($create, @grants) = grants_of($role);

	$node->safe_psql('postgres', "$grant_public $create");
	is(deeds_of($role), 'sees who holds what' . ($has_cron ? ', schedules nothing' : ''), "$role: an empty role sees locks, and nothing else");
	$node->safe_psql('postgres', join ' ', @grants);
	is(deeds_of($role), all_but($never{$role}), "$role: the list is complete");
	foreach my $without (0 .. $#grants)
	{
		$node->safe_psql('postgres', join ' ', "DROP OWNED BY $role; DROP ROLE $role;", $grant_public, $create,
			map { $grants[$_] } grep { $_ != $without } 0 .. $#grants);
		is(deeds_of($role), all_but($never{$role}, lost_without($grants[$without])), "$role: incomplete without " . ($grants[$without] =~ s{\s+}{ }gr));
	}
}

# Where the extension has a schema of its own, PUBLIC has no USAGE on it.
$node->safe_psql('postgres', 'CREATE DATABASE watched; ALTER DATABASE watched SET search_path = scheduling');
$node->safe_psql('watched', 'CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling; GRANT USAGE ON SCHEMA scheduling TO worker');
$node->psql('watched', "SELECT shedlock_job('fails', 'every 20000 days'); CALL shedlock_run('fails', 'SELECT 1 / 0')", extra_params => [ '-U', 'worker' ]);

# Returns the arguments of a watcher.
sub watching
{
	return ('-d', 'dbname=watched user=watcher', '--watch', @_);
}

SKIP:
{
	skip 'this system does not have the program shedlock', 9 unless defined program_path();

	my ($create, @grants) = map { s/ON SCHEMA public/ON SCHEMA scheduling/r } grants_of('watcher', 'doc/hearing.md');
	foreach my $without (0 .. $#grants)
	{
		$node->safe_psql('watched', join ' ', $create, map { $grants[$_] } grep { $_ != $without } 0 .. $#grants);
		is((run_program($node, watching('--dry-run')))[0], 69, 'watcher: incomplete without ' . ($grants[$without] =~ s{\s+}{ }gr));
		$node->safe_psql('watched', 'DROP OWNED BY watcher; DROP ROLE watcher');
	}
	$node->safe_psql('watched', join ' ', $create, @grants);
	my $watcher = start_program($node, watching('--', 'sh', '-c', 'echo "$SHEDLOCK_NAME: $SHEDLOCK_PROBLEM"'));
	ok($watcher->await_out(qr/^fails: gave up$/m), 'watcher: the list is complete: it tells of the job of another role');
	ok(eventually(sub { $node->safe_psql('watched', 'SELECT begin_told FROM _shedlock_told') eq 't' }), '  and the server is told of that');
	$watcher->signal('TERM');
	is($watcher->finish, 0, '  it ends when it is told to') or diag $watcher->err;
	is($node->safe_psql('watched', 'SELECT name FROM shedlock_history', extra_params => [ '-U', 'watcher' ]), 'shedlock-watch', '  it sees no run but its own');
	like(error_of($node, "SELECT shedlock_pause('fails')", dbname => 'watched', extra_params => [ '-U', 'watcher' ]), qr/^42501/, '  and cannot end or pause anything');
	$node->safe_psql('watched', 'REVOKE EXECUTE ON FUNCTION shedlock_tell FROM watcher');
	like(error_of($node, "SELECT shedlock_tell('fails', 'gave up', now(), 'over')", dbname => 'watched', extra_params => [ '-U', 'watcher' ]),
		qr/^42501: permission denied for function shedlock_tell/, '  EXECUTE is the permission to tell');
}

SKIP:
{
	skip 'there is no pg_cron for this PostgreSQL', 2 unless $has_cron;

	$node->safe_psql('postgres', "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA cron FROM PUBLIC; SELECT shedlock_cron_unschedule('succeeds')");
	$node->safe_psql('postgres', join ' ', grants_of('nightly'));
	is( heard_by('nightly', q{SELECT shedlock_cron_schedule('own', '0 0 1 1 *', 'SELECT 1') \g /dev/null
			SELECT created_by, schedule FROM shedlock_jobs WHERE name = 'own';
			SELECT shedlock_cron_unguard('own'), shedlock_cron_guard('own'), shedlock_job('own', '0 0 1 2 *'), shedlock_cron_unschedule('own')}),
		"nightly|0 0 1 1 *\nt|own|changed|t", 'nightly: makes its own jobs, changes and ends them');
	$node->safe_psql('postgres', "SELECT cron.unschedule(jobid) FROM cron.job");

	# It does not forget what another role has run, whatever the name of its own job is.
	$node->safe_psql('postgres', "SELECT shedlock_job('payroll', 'every 36500 days'); CALL shedlock_run('payroll', 'SELECT 1')");
	my $rows = 'SELECT * FROM _shedlock_job; SELECT * FROM _shedlock_tick';
	my $before = $node->safe_psql('postgres', $rows);
	heard_by('nightly', $_) foreach "SELECT _shedlock_cron_forget('payroll', 'nightly')", "SELECT _shedlock_cron_forget('payroll', 'postgres')",
	  "SELECT shedlock_cron_schedule('payroll', '0 0 1 1 *', 'SELECT 1'), shedlock_cron_unguard('payroll'), shedlock_cron_unschedule('payroll')",
	  "SELECT cron.schedule('payroll', '0 0 1 1 *', 'CALL shedlock_run(name => ''payroll''::text, command => ''SELECT 1''::text)')",
	  "SELECT shedlock_cron_guard('payroll')", "SELECT shedlock_cron_unguard('payroll')", "SELECT shedlock_cron_unschedule('payroll')", "SELECT shedlock_forget('payroll')";
	is($node->safe_psql('postgres', $rows), $before, 'nightly: changes and forgets no job or tick of another role');
}

$node->stop;
done_testing();
