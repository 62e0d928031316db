# Patroni's planned and unplanned events while clients are at work: what becomes of locks,
# ticks and runs, in seconds.
#
# Patroni keeps three servers, which replicate synchronously (synchronous_mode_strict).
# Before each event clients acquire a lock of each kind, and others wait for these.  The
# notes at the end are the rows of a table in doc/failures.md.
#
# Debian packages: libdbd-pg-perl etcd-server patroni python3-psycopg2

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode qw(has_pg_cron);
use DBI;
use DBD::Pg;
use HostProgram qw(start_program);
use IPC::Run;
use List::Util qw(max min);
use LockLog;
use PatroniNode;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep stat time);

# Seconds: the lock_at_most_for of the session lock and of the run that have one, what
# counts for the session lock that has none, that of the clients' locks, the leases, and
# how long etcd stands still: longer than Patroni's ttl
my ($limit, $default, $short, $lease, $stall) = (25, 35, 3, 60, 12);

my $dir = PostgreSQL::Test::Utils::tempdir;
my $parent = $$;
my (@nodes, %at_work, @table);

END
{
	if ($$ == $parent)
	{
		my @pids = map { @$_ } values %at_work;
		local $? = 0;

		kill 'KILL', @pids;
		waitpid($_, 0) foreach @pids;
	}
}

plan skip_all => 'there are no Patroni and etcd' unless has_patroni();
@nodes = map { PostgreSQL::Test::Cluster->new($_) } 'n1', 'n2', 'n3';
$ENV{PGDATABASE} = 'postgres';

#
# Clients
#
# Each writes a log, whose lines have times of one clock:
#	held NAME TOKEN FROM TO     the client certainly held the lock in between
#	alone NAME TOKEN FROM TO    the same, on a server that was cut off meanwhile: not promised
#	has NAME TOKEN AT           it has acquired it
#	tick NAME TICK AT           the client claimed that tick
#	extended AT, refused AT     the answer to an extension
#	wrote SERVER AT             that server, since its start, has confirmed a write
#	error SQLSTATE AT
#

my ($group, $log, $db, $db_node, @left);

# Starts a client, which works until its group is told to stop.
sub client
{
	my ($of, $code) = @_;
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		$SIG{$_} = 'DEFAULT' foreach qw(HUP INT QUIT TERM);
		$group = $of;
		open($log, '>', "$dir/$group.$$.log") or POSIX::_exit(1);
		$log->autoflush(1);
		srand($$);
		eval { $code->(); 1 } or print $log "error $@";
		POSIX::_exit(0);
	}
	push @{ $at_work{$of} }, $pid;
	return;
}

sub stopped
{
	return -e "$dir/$group.stop";
}

# Has a group of clients stop.  Returns whether each came to its end.
sub stop_clients
{
	my ($of) = @_;
	my $good = 1;

	append_to_file("$dir/$of.stop", '');
	foreach my $pid (@{ delete $at_work{$of} })
	{
		$good = 0 unless waitpid($pid, 0) == $pid && $? == 0;
	}
	return $good;
}

# Returns what the logs of a group have.
sub logged
{
	my ($of, $words) = @_;

	return grep { /^$words/ } map { split /^/, slurp_file($_) } glob "$dir/$of.*.log";
}

# Returns the first value that a statement gives; nothing if there is no answer.
# When the primary is another one, it leaves the connection alone, as if a proxy had cut
# it, unless the client stays.
sub answer
{
	my ($sql, $values, %options) = @_;
	my $statement;

	if (!$db)
	{
		$db_node = primary();
		$db = $db_node && DBI->connect('dbi:Pg:host=127.0.0.1;port=' . $db_node->port . ";connect_timeout=2;target_session_attrs=read-write;options=-cshedlock.default_lock_at_most_for=${default}s",
			'postgres', '', { PrintError => 0, PrintWarn => 0, AutoCommit => 1, pg_server_prepare => 0 });
	}
	if ($db && ($statement = $db->prepare($sql, { pg_async => DBD::Pg::PG_ASYNC })) && $statement->execute(@{ $values || [] }))
	{
		my $ready;

		until ($ready = $db->pg_ready)
		{
			my $primary = primary();

			if (stopped() || !$options{stays} && $primary && $primary != $db_node)
			{
				push @left, $db, $statement;
				undef $db;
				return;
			}
			sleep(0.02);
		}
		if ($ready > 0 && $db->pg_result && (my $row = $statement->{NUM_OF_FIELDS} ? $statement->fetch : [ 1 ]))
		{
			return $row->[0] // '';
		}
	}
	printf $log "error %s %.6f\n", ($db ? $db->state : $DBI::state) || '08000', time;
	$db->disconnect if $db;
	undef $db;
	sleep(0.05);
	return;
}

# Holds a lock that this session has acquired until the time or the session ends.
sub hold
{
	my ($name, $until, %options) = @_;
	my $word = $options{cut_off} ? 'alone' : 'held';
	my $token = answer('SELECT shedlock_token(?)', [$name]) or return;
	my $from = my $alive = time;

	print $log "has $name $token $from\n";
	while (!stopped() && $alive < $until && answer('SELECT 1', [], %options))
	{
		$alive = time;
		sleep(0.02);
	}
	printf $log "$word %s %s %.6f %.6f\n", $name, $token, $from, min($alive, $until);
	return;
}

# Holds a session lock once.
sub lead
{
	my ($name, $at_most, %options) = @_;
	my $asked = time;

	answer('SELECT shedlock_acquire_session(?' . ($at_most ? ", '$at_most s'" : '') . ')', [$name]) or die "$name is not free\n";
	hold($name, $asked + ($at_most || 86400), stays => 1, %options);
	return;
}

# Waits for a lock.
sub succeed
{
	my ($name) = @_;

	until (stopped())
	{
		hold($name, time + 86400) if answer("SELECT shedlock_acquire_session(?, wait => '1 min')", [$name]);
	}
	return;
}

# Runs a command that shows in a file until when it was at work.
sub run
{
	my ($file) = @_;

	answer('CALL shedlock_run(' . join(', ', map { "'$_'" } 'run', "CALL show_life(''$file'')", "$limit s") . ')', [], stays => 1);
	return;
}

sub extend
{
	my $token = answer("SELECT shedlock_acquire_token('lease', '$lease s')") or die "the lease is not free\n";

	until (stopped())
	{
		my $extended = answer("SELECT shedlock_extend('lease', ?, '$lease s')", [$token]);

		printf $log "%s %.6f\n", $extended ? 'extended' : 'refused', time if defined $extended;
		sleep(0.1);
	}
	answer("SELECT shedlock_release('lease', ?)", [$token]);
	return;
}

sub tick
{
	until (stopped())
	{
		my $tick = int(time);

		printf $log "tick job %d %.6f\n", $tick, time if answer("SELECT shedlock_once('tick', to_timestamp(?))", [$tick]);
		sleep(0.1 + rand(0.1));
	}
	return;
}

sub write_rows
{
	until (stopped())
	{
		my $server = answer("INSERT INTO probe VALUES (1) RETURNING
			left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || '/' || extract(epoch FROM pg_postmaster_start_time())");

		printf $log "wrote %s %.6f\n", $server, time if $server;
		sleep(0.05);
	}
	return;
}

# Acquires locks and releases them, or sometimes lets them expire.
sub acquire_often
{
	my ($kind) = @_;

	until (stopped())
	{
		my $name = 'job_' . int(rand(3));
		my $asked = time;
		my $until = $asked + (rand(1) < 0.1 ? $short : rand(0.4));

		if ($kind eq 'session')
		{
			hold($name, $until) if answer("SELECT shedlock_acquire_session(?, '$short s')", [$name]);
			# a connection that was lost has released it
			answer('SELECT shedlock_release(?)', [$name]) if $db && answer('SELECT shedlock_token(?)', [$name]);
		}
		elsif (my $token = answer("SELECT shedlock_acquire_token(?, '$short s')", [$name]))
		{
			my $from = time;

			sleep(max(0, $until - $from));
			printf $log "held %s %s %.6f %.6f\n", $name, $token, $from, $until;
			answer('SELECT shedlock_release(?, ?)', [ $name, $token ]);
		}
		sleep(rand(0.05));
	}
	return;
}

#
# Events
#

# Waits until a condition holds.
sub await_that
{
	my ($what, $code) = @_;

	return if HostProgram::eventually($code);
	diag(members());
	die "waited for: $what";
}

# Waits until all nodes run, and the primary has a synchronous standby.
sub await_members
{
	await_that('a primary and two standbys', sub {
		my $members = members();
		my $primary = primary();

		return $primary && $members =~ / leader running/ && $members =~ / sync_standby (?:running|streaming)/ && $members =~ / replica (?:running|streaming)/
		  && answers($primary, 'SELECT count(*) FROM pg_stat_replication', '2');
	});
	return primary();
}

# Returns what the primary answers.
sub ask_primary
{
	my ($sql) = @_;
	my $primary;

	await_that('a primary', sub { $primary = primary() });
	return $primary->safe_psql('postgres', $sql);
}

# Returns who has which lock since then: name and time.  When a server is killed, the
# processes of its clients end one after the other, so that a waiter may acquire a lock
# there, and lose it at once.
sub acquired_since
{
	my ($of, $start) = @_;
	my %lost = map { /^held (\S+ \S+)/ ? ($1 => 1) : () } logged($of, 'held');

	return map { /^has ((\S+) \S+) (\S+)/ && $3 > $start && !$lost{$1} ? ($2, $3) : () } logged($of, 'has');
}

# Returns the times of a log's lines, in order.
sub times_of
{
	my ($of, $words) = @_;
	my @times = sort { $a <=> $b } map { /(\S+)$/ } logged($of, $words);

	return @times;
}

sub longest_gap
{
	my (@times) = @_;

	return max(0, map { $times[$_] - $times[ $_ - 1 ] } 1 .. $#times);
}

# Does something to the primary while clients are at work, and notes what they see.
# Options:
#	clean    the primary shuts down
#	cut_off  the primary lives on, cut off from the others
#	stays    the same server is the primary afterwards, on the same timeline
#	replica  only a replica is touched
#	load     pgbench acquires locks
#	after    mends what was done
sub event
{
	my ($title, $code, %options) = @_;
	my $of = $title =~ s/\W+/_/gr;
	my $primary = await_members();
	my $slowness = slowness($primary);
	my @waited = ('leader', 'bounded', 'run');
	my ($load, %free);

	ask_primary("SELECT shedlock_force_release(name) FROM shedlock_locks WHERE name IN ('leader', 'bounded', 'run', 'lease', 'import', 'host')");

	# the host's command prints signs of life
	my $program = start_program(undef,
		{ environment => { PGHOST => join(',', ('127.0.0.1') x @nodes), PGPORT => join(',', map { $_->port } @nodes), PGUSER => 'postgres' } },
		'-n', 'host', '--lease', "$lease s", '--', $^X, '-MTime::HiRes=time,sleep', '-e',
		'$| = 1; until (-e $ARGV[0]) { printf "alive %.6f\n", time; sleep(0.05) }', "$dir/$of.stop");
	my $token = ask_primary("SELECT token FROM shedlock_run_begin('import', '$lease s')");

	client($of, \&write_rows);
	client($of, \&extend);
	client($of, sub { lead('leader', 0, cut_off => $options{cut_off}) });
	client($of, sub { lead('bounded', $limit) });
	client($of, sub { run("$dir/$of.life") });
	await_that('each lock is held', sub {
		return answers($primary, q{SELECT count(*) FROM shedlock_locks WHERE state = 'held' AND name IN ('leader', 'bounded', 'run', 'lease', 'import', 'host')}, '6')
		  && -e "$dir/$of.life" && times_of($of, 'has') == 2 && times_of($of, 'wrote') && times_of($of, 'extended') && $program->out =~ /alive/;
	});
	my $proofs = ask_primary('SELECT count(*) FROM _shedlock_timeline');
	my %until = split /[|\n]/, ask_primary("SELECT name, extract(epoch FROM lock_until AT TIME ZONE 'UTC') FROM shedlock WHERE name IN ('leader', 'bounded', 'run')");
	foreach my $name (@waited)
	{
		client($of, sub { succeed($name) });
	}
	await_that('clients wait', sub { return answers($primary, 'SELECT sum(waiters) FROM shedlock_locks', '3') });
	my ($server) = (logged($of, 'wrote'))[-1] =~ /^wrote (\S+)/;

	if ($options{load})
	{
		append_to_file("$dir/$of.sql", "SELECT shedlock_acquire('load' || :client_id), shedlock_release('load' || :client_id);\n");
		$load = IPC::Run::start([ qw(pgbench -n -T 600 -c 8 -h), $primary->host, '-p', $primary->port, '-f', "$dir/$of.sql", 'postgres' ],
			'>', "$dir/$of.pgbench", '2>&1');
		await_that('the load', sub { answers($primary, q{SELECT count(*) >= 8 FROM shedlock WHERE name LIKE 'load%'}, 't') });
	}

	#
	# The event
	#
	my $start = time;
	$code->($primary);
	await_that('writes', sub { grep { !/^wrote \Q$server\E / } logged($of, 'wrote') }) unless $options{replica};
	my ($again) = $options{replica} ? $start : sort { $a <=> $b } map { /^wrote (\S+) (\S+)/ && $1 ne $server ? $2 : () } logged($of, 'wrote');
	is(ask_primary("SELECT shedlock_extend('import', $token, '$lease s')"), 't', "$title: a leased run is extended by its token");
	is(ask_primary("SELECT shedlock_run_end('import', $token)"), 't', "$title: a leased run ends");
	# also of a waiter that acquired the lock when the server was killed; no other server is
	# promoted as soon as that
	%until = (%until, split /[|\n]/, ask_primary("SELECT name, extract(epoch FROM lock_until AT TIME ZONE 'UTC') FROM shedlock
		WHERE name IN ('leader', 'bounded', 'run') AND locked_at AT TIME ZONE 'UTC' < to_timestamp($start + 5)"));
	unless ($options{replica})
	{
		await_that('the locks are free', sub { my %now = acquired_since($of, $start); return keys %now == 3 });
	}
	%free = acquired_since($of, $start);
	my $program_lives = !$program->has_ended;
	$load->kill_kill if $load;
	ok(stop_clients($of), "$title: the clients ended when told to");
	$options{after}->($primary) if $options{after};
	$program->finish;

	#
	# What it did
	#
	my @alive = $program->out =~ /alive (\S+)/g;
	my %gap = (
		lease => longest_gap(times_of($of, 'extended')),
		ticks => longest_gap(grep { $_ > $start - 2 } times_of('all', 'tick')),
		program => longest_gap(@alive));
	my $life = (stat("$dir/$of.life"))[9];

	my $promoted = $server =~ s{/.*}{}r ne (logged($of, 'wrote'))[-1] =~ s{^wrote ([^/]*).*}{$1}sr;
	is($promoted ? 'promoted' : 'stays', $options{stays} ? 'stays' : 'promoted', "$title: what becomes of the primary");
	is(ask_primary('SELECT count(*) FROM _shedlock_timeline') - $proofs, $promoted && $options{clean} ? 1 : 0, "$title: whether it has shut down is written down");
	is_deeply([ logged($of, 'refused') ], [], "$title: each extension of the lease was confirmed");
	foreach my $name (@waited)
	{
		if ($options{replica})
		{
			ok(!defined $free{$name} || $name ne 'leader' && $free{$name} >= $until{$name}, "$title: $name is not free");
		}
		elsif ($options{clean})
		{
			cmp_ok($free{$name}, '<=', $again + $slowness, "$title: $name is free as soon as the server writes");
		}
		else
		{
			cmp_ok($free{$name}, '>=', $until{$name}, "$title: $name is not free before its time");
			cmp_ok($free{$name}, '<=', max($again, $until{$name}) + 2 * $slowness, "$title: $name is free at its time");
		}
	}
	cmp_ok($life, '<=', $free{run}, "$title: the run was not at work any more then") unless $options{replica};
	if ($options{cut_off})
	{
		# it may know the old primary only, until its lease is over
		like("$program->{status}", qr/^(?:0|76)$/, "$title: the program ends its run, or its command");
	}
	else
	{
		is("$program_lives $program->{status}", '1 0', "$title: the program goes on, and ends its run") or diag($program->err);
	}
	push @table, [ $title, $again - $start, $gap{lease}, map({ $free{$_} ? $free{$_} - $start : 'held' } @waited), @gap{ 'ticks', 'program' } ];
	return;
}

#
# The cluster
#
my $conf = join "\n", 'max_worker_processes = 20', 'wal_retrieve_retry_interval = 500ms',
  has_pg_cron() ? ("shared_preload_libraries = 'pg_cron'", 'cron.use_background_workers = on', 'cron.database_name = postgres') : ();
start_etcd($nodes[0]->logfile . '.etcd');
start_patroni($_, $conf) foreach @nodes;
follow_primary();
my $first = await_members();
my $slowness = slowness($first);
$_ = int($_ * $slowness) foreach $limit, $default, $lease;
# On a slow machine the locks of a server that was killed last longer than a test waits.
$PostgreSQL::Test::Utils::timeout_default += max($limit, $default);
$first->safe_psql('postgres', q{
CREATE EXTENSION shedlock;
CREATE TABLE probe (i int);
CREATE TABLE done (at timestamptz DEFAULT clock_timestamp());
CREATE PROCEDURE show_life(file text) LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		EXECUTE format('COPY (SELECT 1) TO %L', file);
		PERFORM pg_sleep(0.05);
	END LOOP;
END $$});
$first->safe_psql('postgres', q{CREATE EXTENSION pg_cron;
	SELECT shedlock_job('cron', '* * * * *', lock_at_most_for => '30 s');
	SELECT shedlock_cron_schedule('cron', '* * * * *', 'INSERT INTO done DEFAULT VALUES')}) if has_pg_cron();
client('all', \&tick) foreach 1 .. 3;
client('all', sub { acquire_often('session') }) foreach 1 .. 2;
client('all', sub { acquire_often('lease') }) foreach 1 .. 3;

event('switchover', sub { patronictl($_[0], 'switchover', '--master', $_[0]->name, '--force') }, clean => 1);
event('switchover under load', sub { patronictl($_[0], 'switchover', '--master', $_[0]->name, '--force') }, clean => 1, load => 1);
event('restart', sub { patronictl($_[0], 'restart', 'shedlock', $_[0]->name, '--force') }, clean => 1, stays => 1);
event('reinit of a replica', sub {
	my ($name) = members() =~ /(\w+) replica/;
	my ($replica) = grep { $_->name eq $name } @nodes;
	my $server = postmaster_pid($replica);

	patronictl($_[0], 'reinit', 'shedlock', $name, '--force');
	await_that('the replica starts again', sub { my $pid = postmaster_pid($replica); $pid && $pid != $server });
	await_members();
}, replica => 1, stays => 1);
event('etcd stands still', sub { signal_etcd('STOP'); sleep($stall); signal_etcd('CONT') }, clean => 1);
event('kill -9', sub {
	my $server = postmaster_pid($_[0]);
	end_patroni_by($_[0], 'KILL');
	kill 'KILL', $server;
}, after => sub { start_patroni($_[0]) });
event('cut off', sub { kill 'STOP', patroni_pid($_[0]) }, cut_off => 1, after => sub {
	end_patroni_by($_[0], 'KILL');
	start_patroni($_[0]);
});

my $last = await_members();
if (has_pg_cron())
{
	is($last->safe_psql('postgres', q{SELECT tick FROM shedlock_history WHERE name = 'cron' GROUP BY tick HAVING count(*) > 1}), '',
		'no tick of the job of pg_cron was run twice');
	# a run may be going on
	ok(defined await($last, q{SELECT (SELECT count(*) FROM done) = (SELECT count(*) FROM shedlock_history WHERE name = 'cron' AND outcome = 'succeeded')}),
		'its work was done as often as the history says');
	note('pg_cron: ' . $last->safe_psql('postgres', q{SELECT string_agg(to_char(tick, 'MI') || ' ' || outcome, ', ' ORDER BY tick) FROM shedlock_history WHERE name = 'cron'}));
}
ok(stop_clients('all'), 'the clients ended when told to');
note("$_ lines: " . logged('*', $_)) foreach 'held', 'tick', 'error';
my %wrong = (
	holders => [ 'no two clients held one lock at the same time', "held job 1 1.0 2.0\n", "held job 2 1.9 3.0\n" ],
	tokens => [ 'the tokens of a lock grow in the order of its holders', "held job 2 1.0 2.0\n", "held job 1 2.5 3.0\n" ],
	ticks => [ 'no tick was claimed twice', "tick job 60 61.0\n", "tick job 60 62.0\n" ],
	errors => [ 'no error but lost connections and servers that do not write', "error XX000 1.0\n" ]);
foreach my $rule (sort keys %wrong)
{
	my ($claim, @lines) = @{ $wrong{$rule} };

	is_deeply([ violations($rule, logged('*', '')) ], [], $claim);
	is(scalar(() = violations($rule, @lines)), 1, "the check of $rule finds a wrong line");
}
note("seconds: the server writes again; lease; session lock; session lock, $limit s; run, $limit s; ticks; program");
note('| ' . join(' | ', map { /^[\d.]+$/ ? sprintf '%.1f', $_ : $_ } @$_) . ' |') foreach @table;
done_testing();
