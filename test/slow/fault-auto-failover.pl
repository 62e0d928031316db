# A failover by pg_auto_failover while clients acquire leases and session locks, and runs
# are in progress.
#
# A monitor and two nodes replicate synchronously.  The primary and its keeper are killed;
# the old primary returns as a standby; a switchover makes it the primary again.  Locks
# and ticks must survive each of these, and the clients' log must show no two holders at
# once.
#
# Debian packages: libdbd-pg-perl postgresql-N-auto-failover pg-auto-failover-cli

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use DBI;
use IPC::Run;
use LockLog;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep time);

my $clients = 10;
my $at_most = 3;    # seconds, of the clients' locks
my $short = 45;     # how long a lease, a session lock and a run last that must outlast the failover

my $dir = PostgreSQL::Test::Utils::tempdir;
my ($monitor, $n1, $n2) = map { PostgreSQL::Test::Cluster->new($_) } 'monitor', 'n1', 'n2';
my @options = qw(--hostname 127.0.0.1 --auth trust --no-ssl --run);
my $monitor_url = 'postgres://autoctl_node@127.0.0.1:' . $monitor->port . '/pg_auto_failover';
my (%keeper, @workers);

chomp(my $bin = `pg_config --bindir`);
@ENV{qw(PG_CONFIG PG_REGRESS_SOCK_DIR HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR)} =
  ("$bin/pg_config", $n1->host, $dir, "$dir/config", "$dir/share", "$dir/run");
$ENV{PGDATABASE} = 'postgres';
# without it pg_autoctl leaves folders in /tmp
mkdir $ENV{XDG_RUNTIME_DIR} or die "$ENV{XDG_RUNTIME_DIR}: $!\n";

# Only some versions of PostgreSQL have a package of the extension.
plan skip_all => 'there is no pg_auto_failover for this PostgreSQL'
  unless grep { -e "$_/pgautofailover.so" } `pg_config --pkglibdir` =~ /(.*)/, slurp_file($ENV{TEMP_CONFIG}) =~ /dynamic_library_path = '([^:]*)/;

#
# Servers
#

# Returns a process and its descendants.  One of them may end meanwhile.
sub family
{
	my ($pid) = @_;
	my $children = eval { slurp_file("/proc/$pid/task/$pid/children") } // '';

	return ($pid, map { family($_) } split / /, $children);
}

END
{
	local $? = 0;
	kill 'KILL', @workers;
	kill 'QUIT', values %keeper;
	waitpid($_, 0) foreach @workers, values %keeper;
}

sub start_keeper
{
	my ($node, @arguments) = @_;
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		open(STDOUT, '>>', $node->logfile) && open(STDERR, '>&', \*STDOUT)
		  && exec('pg_autoctl', @arguments, '--pgdata', $node->data_dir);
		POSIX::_exit(127);
	}
	$keeper{ $node->name } = $pid;
	return;
}

# These settings follow those that pg_auto_failover includes, and override them.
sub init_data
{
	my ($node, @settings) = @_;

	init_node($node, allows_streaming => 1);
	$node->append_conf('postgresql.conf', join "\n", 'shared_buffers = 32MB', 'max_connections = 100', @settings);
	return;
}

sub create_node
{
	my ($node) = @_;

	start_keeper($node, qw(create postgres --name), $node->name, '--pghost', $node->host, '--monitor', $monitor_url,
		qw(--username postgres --dbname postgres --listen 127.0.0.1), @options, '--pgport', $node->port);
	return;
}

# Waits until each node is in the expected state: "n1 primary, n2 secondary".
sub await_states
{
	my ($states) = @_;

	$monitor->poll_query_until('pg_auto_failover',
		"SELECT string_agg(nodename || ' ' || reportedstate, ', ' ORDER BY nodename) FROM pgautofailover.node WHERE reportedstate = goalstate",
		$states)
	  or die "waited for \"$states\"";
	return;
}

# Returns what a query prints, with errors and notices.
sub answer
{
	my ($node, $sql) = @_;
	my (undef, $out, $err) = $node->psql('postgres', $sql);

	return $err . $out;
}

#
# Clients, each of which acquires locks repeatedly
#
# Each line of a client's log is an answer of the server, with times of one clock:
#	held NAME TOKEN FROM TO     the client certainly held the lock in between
#	tick NAME TICK AT           the client claimed that tick
#	error SQLSTATE AT
#

sub work
{
	my ($kind, $log) = @_;
	my $db;
	my $dsn = 'dbi:Pg:host=127.0.0.1,127.0.0.1;port=' . $n1->port . ',' . $n2->port . ';target_session_attrs=read-write;connect_timeout=2';

	# Returns the first value that a statement gives.  Returns false if there is no
	# answer, and closes the connection.
	my $ask = sub {
		my ($sql, @values) = @_;

		$db //= DBI->connect($dsn, 'postgres', '', { PrintError => 0, PrintWarn => 0, AutoCommit => 1 });
		my $row = $db && $db->selectrow_arrayref($sql, undef, @values);
		return $row->[0] if $row;
		printf $log "error %s %.6f\n", ($db ? $db->state : $DBI::state) || '08000', time;
		$db->disconnect if $db;
		undef $db;
		sleep(0.1);
		return;
	};

	until (-e "$dir/stop")
	{
		my $name = 'job_' . int(rand(4));
		my $tick = int(time);
		my $asked = time;
		my $token =
		  $kind eq 'lease' ? $ask->("SELECT shedlock_acquire_token(?, '$at_most s')", $name) :
		  $ask->("SELECT shedlock_acquire_session(?, '$at_most s')", $name) && $ask->('SELECT shedlock_token(?)', $name);

		if ($token)
		{
			my $from = my $alive = time;
			# sometimes until the lock expires, as if the holder had died
			my $until = $from + (rand(1) < 0.1 ? $at_most + 0.5 : rand(0.4));

			while (time < $until)
			{
				sleep(0.05);
				last if $kind eq 'session' && !($db && $ask->('SELECT 1'));
				$alive = time;
			}
			printf $log "held %s %s %.6f %.6f\n", $name, $token, $from, $alive < $asked + $at_most ? $alive : $asked + $at_most;
			# A session lock ends with its connection.
			$ask->('SELECT shedlock_release(?, ?)', $name, $token) if $kind eq 'lease' || $db;
		}
		printf $log "tick %s %s %.6f\n", $name, $tick, time if $ask->('SELECT shedlock_once(?, to_timestamp(?))', $name, $tick);
		sleep(rand(0.05));
	}
	return;
}

# Returns the lines of all logs that begin with these words.
sub logged
{
	my ($words) = @_;

	return grep { /^$words/ } map { split /^/, slurp_file($_) } glob "$dir/client*.log";
}

sub await_locks
{
	my $enough = logged('held') + 5 * $clients;

	foreach (1 .. 600)
	{
		return if logged('held') >= $enough;
		sleep(0.1);
	}
	die 'the clients acquire no locks';
}

#
# A primary and a synchronous standby
#
# pg_autoctl has its monitor listen on all addresses, by an option of the command
# line that no setting overrules.  The monitor gets a postgres that replaces it.
mkdir "$dir/bin";
symlink($_, "$dir/bin/" . (split '/')[-1]) foreach grep { !m{/postgres$} } glob "$bin/*";
append_to_file("$dir/bin/postgres", qq{#!/bin/bash\nexec $bin/postgres "\${@/#"*"/127.0.0.1}"\n});
chmod 0755, "$dir/bin/postgres";
init_data($monitor, map { "pgautofailover.$_" } 'health_check_period = 500', 'health_check_timeout = 500',
	'health_check_max_retries = 1', 'health_check_retry_delay = 200', 'node_considered_unhealthy_timeout = 3000',
	'primary_demote_timeout = 2000', 'startup_grace_period = 1000');
start_keeper($monitor, qw(create monitor --pgctl), "$dir/bin/pg_ctl", @options, '--pgport', $monitor->port);
$monitor->poll_query_until('pg_auto_failover', 'SELECT true FROM pgautofailover.formation') or die 'no monitor';
init_data($n1);
create_node($n1);
await_states('n1 single');
create_node($n2);
await_states('n1 primary, n2 secondary');

$n1->safe_psql('postgres', 'CREATE EXTENSION shedlock; CREATE TABLE probe (i int); CREATE TABLE work (at timestamptz)');
is(answer($n1, "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"), '1', 'the standby is synchronous');
like(answer($n2, "SELECT shedlock_acquire('x')"), qr/cannot execute shedlock_acquire\(\)/, 'the standby acquires no lock');
is(answer($monitor, 'SHOW listen_addresses'), '127.0.0.1', 'the monitor listens on loopback only');
foreach my $client (1 .. $clients)
{
	push @workers, fork // die "fork: $!";
	next if $workers[-1] != 0;
	open(my $log, '>', "$dir/client$client.log") or POSIX::_exit(1);
	$log->autoflush(1);
	srand($$);
	eval { work($client % 3 ? 'lease' : 'session', $log); 1 } or print $log "error $@";
	POSIX::_exit(0);
}
await_locks();

my $token = answer($n1, "SELECT shedlock_acquire_token('lease', '1 hour')");
$n1->safe_psql('postgres', "SELECT shedlock_acquire('short lease', '$short s'), shedlock_acquire('kept', '1 hour', '$short s'),
	shedlock_release('kept'), shedlock_once('once', '2026-01-01')");
my @holders = (session($n1));
ask($holders[0], "SELECT shedlock_acquire_session('short session', '$short s')");
foreach ([ 'short run', "$short s" ], [ 'nightly', '10 min' ])
{
	my ($run, $duration) = @$_;

	push @holders, session($n1);
	ask($holders[-1], "SELECT shedlock_job('$run', 'every 20000 days', lock_at_most_for => '$duration')");
	$holders[-1]->query_until(qr/running/, "\\echo running\nCALL shedlock_run('$run', 'SELECT pg_sleep(600)');\n");
	ok(defined await($n1, "SELECT count(*) = 1 FROM shedlock_history WHERE name = '$run' AND outcome = 'running'"), "$run is in progress");
}

# These must survive the failover exactly.
my $rows = "SELECT name, lock_until, locked_at, token FROM shedlock WHERE name IN ('lease', 'short lease', 'kept', 'short session', 'short run', 'nightly') ORDER BY name";
my $old_rows = answer($n1, $rows);
my $ends = answer($n1, "SELECT 'VALUES ' || string_agg(format('(%L, %L::timestamp)', name, lock_until), ', ') FROM shedlock
	WHERE name IN ('short lease', 'kept', 'short session', 'short run')");

#
# The primary and its keeper are killed
#
my $last_token = answer($n1, 'SELECT max(token) FROM shedlock');
my $killed = time;
kill 'KILL', family($keeper{n1});
waitpid($keeper{n1}, 0);
$n2->poll_query_until('postgres', 'INSERT INTO probe VALUES (1)', 'INSERT 0 1') or die 'no failover';
note(sprintf 'the other node writes after %.1f s', time - $killed);

my %waiters;
foreach my $name ('short lease', 'short session', 'short run', 'kept')
{
	$waiters{$name} = session($n2);
	$waiters{$name}->query_until(qr/waiting/, "\\echo waiting\nSELECT shedlock_acquire('$name', '1 hour', wait => '3 min');\n");
}
my $outcomes = "SELECT string_agg(outcome, ', ' ORDER BY token) FROM shedlock_history WHERE name = 'nightly'";
my $run_again = "CALL shedlock_run('nightly', 'INSERT INTO work VALUES (now())')";
is(answer($n2, $rows), $old_rows, 'leases, session locks and runs are unchanged, their lock_until to the microsecond');
is(answer($n2, "SELECT shedlock_acquire('lease')"), 'f', 'no other session acquires a lease');
is(answer($n2, "SELECT shedlock_extend('lease', $token, '2 hours')"), 't', 'the owner extends its lease by its token');
is(answer($n2, $outcomes), 'lost', 'the run that was cut off is lost');
is(answer($n2, "SELECT state, kind FROM shedlock_locks WHERE name = 'nightly'"), 'lost|run', 'its lock counts as a lease');
is(answer($n2, "SELECT shedlock_acquire('nightly')"), 'f', 'the lock of the run that was cut off excludes others');
is(answer($n2, $run_again), '', 'a call for the tick of that run does nothing');
is(answer($n2, $outcomes), 'lost', 'the tick of that run stays used up');
is(answer($n2, "SELECT shedlock_once('once', '2026-01-01')"), 'f', 'the tick of shedlock_once stays claimed');
like(answer($n2, "SELECT shedlock_force_release('nightly')"), qr/was not stopped.*t$/s, 'an administrator force-releases the lock of the run');
is(answer($n2, $run_again), '', 'a call for its tick still does nothing');
is(answer($n2, "SELECT shedlock_again('nightly')"), 't', 'the administrator allows one more attempt');
is(answer($n2, $run_again), '', 'the command is run again by hand');
is(answer($n2, $outcomes), 'cancelled, succeeded', 'the history shows both runs');
is(answer($n2, 'SELECT count(*) FROM work'), '1', 'the command ran once');
is(answer($n2, "SELECT shedlock_acquire_token('new', '1 hour') > $last_token"), 't', 'tokens keep growing');

#
# The old primary returns as a standby
#
my $start = time;
start_keeper($n1, 'run');
await_states('n1 secondary, n2 primary');
note(sprintf 'the old primary is back as a standby after %.1f s', time - $start);
ok($n1->poll_query_until('postgres', $rows, answer($n2, $rows)), 'the old primary has the rows of the new one');
is(answer($n1, "SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM shedlock_locks WHERE name IN ('lease', 'new')"),
	'lease held, new held', 'the standby\'s views show the locks');
is(answer($n1, $outcomes), 'cancelled, succeeded', 'the standby\'s views show the history');
like(answer($n1, "SELECT shedlock_acquire('x')"), qr/cannot execute shedlock_acquire\(\)/, 'the old primary acquires no lock');

#
# Locks expire
#
foreach my $name (sort keys %waiters)
{
	is(ask($waiters{$name}, 'SELECT 1'), "t\n1", "$name becomes free");
	$waiters{$name}->quit;
}
is(answer($n2, "SELECT string_agg(e.name || ' ' || (s.locked_at - e.lock_until), ', ')
	FROM ($ends) e(name, lock_until) JOIN shedlock s USING (name) WHERE s.locked_at - e.lock_until NOT BETWEEN '0' AND '10 s'"),
	'', 'a lease, a session lock, a run that was cut off and an at-least time end at their time, not before');
note(sprintf 'after the kill %s is free after %.1f s', split /\|/) foreach split /\n/, answer($n2,
	"SELECT name, extract(epoch FROM locked_at AT TIME ZONE 'UTC') - $killed FROM shedlock WHERE name LIKE 'short%' ORDER BY name");

#
# A switchover makes the old primary the primary again
#

# Returns how often a standby has received the last of a primary that was shut down.
# pg_auto_failover tells the old primary to stop, and on a busy machine promotes the other
# node before that has happened.
sub ends_of_wal
{
	my ($node) = @_;

	return scalar(() = join('', map { slurp_file($_) } glob($node->data_dir . '/log/*.log')) =~ /End of WAL reached on timeline/g);
}

$rows = "SELECT name, lock_until, token FROM shedlock WHERE name IN ('lease', 'new', 'kept') ORDER BY name";
$old_rows = answer($n2, $rows);
$last_token = answer($n2, 'SELECT max(token) FROM shedlock');
push @holders, session($n2), session($n2);
ask($holders[-2], "SELECT shedlock_acquire_session('leader')");
$holders[-1]->query_until(qr/running/, "\\echo running\nCALL shedlock_run('planned', 'SELECT pg_sleep(600)');\n");
ok(defined await($n2, "SELECT count(*) = 2 FROM shedlock_locks WHERE state = 'held' AND name IN ('leader', 'planned')"), 'a session lock and a run are held');
await_second($n2);
my $ends_seen = ends_of_wal($n1);
$start = time;
my $switchover = IPC::Run::start([ 'pg_autoctl', 'perform', 'switchover', '--monitor', $monitor_url ]);
$n1->poll_query_until('postgres', 'INSERT INTO probe VALUES (1)', 'INSERT 0 1') or die 'no switchover';
my $writes = time - $start;
if (ends_of_wal($n1) > $ends_seen)
{
	foreach my $name ('leader', 'planned')
	{
		$n1->poll_query_until('postgres', "SELECT shedlock_acquire('$name')") or die "$name is not free";
		note(sprintf 'after the switchover %s is free after %.1f s', $name, time - $start);
	}
	cmp_ok(time - $start, '<', $writes + slowness($n1), 'the old primary has shut down, so that its session lock and run are free at once');
}
else
{
	is(answer($n1, "SELECT shedlock_acquire('leader'), shedlock_acquire('planned')"), 'f|f',
		'the old primary had not shut down before the promotion, so its session lock and run count as leases');
}
$switchover->finish or die 'the switchover failed';
note(sprintf 'the other node writes after %.1f s', $writes);
await_states('n1 primary, n2 secondary');
note(sprintf 'the old primary is the primary again after %.1f s', time - $start);
is(answer($n1, $rows), $old_rows, 'leases are unchanged');
is(answer($n1, "SELECT shedlock_acquire('lease'), shedlock_acquire('kept')"), 'f|f', 'held and kept locks exclude others');
is(answer($n1, "SELECT shedlock_acquire_token('newer', '1 hour') > $last_token"), 't', 'tokens keep growing');
is(answer($n1, "SELECT shedlock_once('once', '2026-01-01')"), 'f', 'ticks stay claimed');
await_locks();

#
# What the clients logged
#
append_to_file("$dir/stop", '');
foreach my $client (1 .. $clients)
{
	my $ended = waitpid(shift @workers, 0) > 0 && $? == 0;
	my @from = map { /^held \S+ \S+ (\S+)/ } split /\n/, slurp_file("$dir/client$client.log");

	ok($ended && (grep { $_ < $killed } @from) && (grep { $_ > $killed } @from),
		"client $client held locks before and after the failover, and ended when told to");
}
my %wrong = (
	holders => [ 'no two clients held one lock at the same time', "held job 1 1.0 2.0\n", "held job 2 1.9 3.0\n" ],
	tokens => [ 'the tokens of a lock grow in the order of its holders', "held job 2 1.0 2.0\n", "held job 1 2.5 3.0\n" ],
	ticks => [ 'no tick was claimed twice', "tick job 60 61.0\n", "tick job 60 62.0\n" ],
	errors => [ 'no error but lost connections and servers that do not write', "error XX000 1.0\n" ]);
foreach my $rule (sort keys %wrong)
{
	my ($claim, @lines) = @{ $wrong{$rule} };

	is_deeply([ violations($rule, logged('')) ], [], $claim);
	is(scalar(() = violations($rule, @lines)), 1, "the check of $rule finds a wrong line");
}
note("$_ lines: " . logged($_)) foreach 'held', 'tick', 'error';
reap($_) foreach @holders;
done_testing();
