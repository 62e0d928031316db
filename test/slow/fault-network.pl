# Measures when a lock is free whose client is cut off from the server: in seconds, by the
# kind of lock, by what happens to the client's host, and by the server's settings.
#
# A server and four hosts with clients, each in its own network namespace, are connected
# by cables, which are cut.  The clients hold a lock of each kind; a session that is not
# cut off tries ten times a second to acquire each of these locks.  The notes at the end
# are the tables of doc/failures.md.  The test runs in a user namespace, so it does not
# touch the machine's network and needs no root.
#
# Two of the hosts also run the program shedlock: its command must end before another
# caller has its lock.
#
# Programs: iproute2 util-linux

use strict;
use warnings FATAL => 'all';
use Test::More;

BEGIN
{
	my @inside = qw(unshare --user --map-current-user --keep-caps --net --);

	if (!$ENV{SHEDLOCK_NETWORK})
	{
		chomp(my $refusal = `@inside unshare --net -- ip link add name shedlock type veth 2>&1`);
		plan skip_all => "no network namespaces here: $refusal" if $? != 0;
		$ENV{SHEDLOCK_NETWORK} = 'own';
		exec(@inside, $^X, $0) or die "exec: $!";
	}
}

use FindBin;
use lib "$FindBin::RealBin/../perl";
use HostProgram ();
use List::Util qw(max);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ProgramFaults;
use ShedlockNode;
use Time::HiRes qw(sleep time);

# Seconds: the duration in the rows; idle_session_timeout; when the lock of the
# waiters is released; how long to watch; how much later than due a lock may be free
my ($own, $idle, $released, $watch, $late) = (10, 8, 12, 34, 10);

# Settings of the server, here of each connection: their column, and their options
my $keepalives = '-c tcp_keepalives_idle=2 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=2';
my $check = '-c client_connection_check_interval=1s';
my %settings = (
	default => [ 'default settings', '' ],
	keepalives => [ '`tcp_keepalives_*`', $keepalives ],
	check => [ '`client_connection_check_interval`', $check ],
	both => [ 'both', "$check $keepalives -c tcp_user_timeout=4000" ],
	timeouts => [ '`idle_*session_timeout`', "-c idle_session_timeout=${idle}s -c idle_in_transaction_session_timeout=${idle}s" ]);

# What happens to the host, its table, and the settings that matter for it
my @ways = (
	[ cable => 'The cable is cut', qw(default keepalives check both timeouts) ],
	[ silence => 'Packets are lost without a sign, as behind a broken router', qw(default keepalives check both timeouts) ],
	[ killed => 'The client is killed, its host lives', qw(default check) ],
	[ restart => 'The host is reset, and is back at once without its connections', qw(default keepalives both) ]);

# What is held, its row, and the statements
my @kinds = (
	[ lease => "lease of $own s", "SELECT shedlock_acquire(NAME, '$own s')" ],
	[ session => 'session lock', "SELECT shedlock_acquire_session(NAME)" ],
	[ session_bounded => "session lock, `lock_at_most_for` $own s", "SELECT shedlock_acquire_session(NAME, '$own s')" ],
	[ session_busy => 'session lock, a statement runs', "SELECT shedlock_acquire_session(NAME)", 'SELECT pg_sleep(600)' ],
	[ run => 'run', "CALL shedlock_run(NAME, 'SELECT pg_sleep(600)')" ],
	[ run_bounded => "run, `lock_at_most_for` $own s", "CALL shedlock_run(NAME, 'SELECT pg_sleep(600)', '$own s')" ],
	[ run_ends => "run, its command ends after $own s", "CALL shedlock_run(NAME, 'SELECT pg_sleep($own)')" ],
	[ fence => 'lease of 2 s, fenced by an open transaction',
		"SELECT shedlock_acquire(NAME, '2 s')", 'BEGIN', "SELECT shedlock_assert(NAME)" ],
	[ waiter => "waiter for a session lock that is released after $released s: from then on; tried from 1 s on",
		"SELECT shedlock_acquire_session(NAME, wait => '1 hour')" ]);

# How many seconds after the event an idle session must have ended: from and to.
# Keepalives detect that a host is cut off, and anything that is sent detects that it was
# reset.  A process that runs a statement notices only with
# client_connection_check_interval.
my %idle_gone = (
	cable => { keepalives => [ 1.9, 12 ], both => [ 1.9, 12 ], timeouts => 'idle' },
	killed => { default => [ 0, 5 ], check => [ 0, 5 ] },
	restart => { keepalives => [ 0, 10 ], both => [ 0, 10 ] });
my %busy_gone = (
	cable => { both => [ 1.9, 14 ] },
	killed => { check => [ 0, 6 ] },
	restart => { both => [ 0, 12 ] });
# The waiter acquires the lock unless the server has noticed that the waiter is gone.
my %waiter_gone = (
	cable => { keepalives => [ 0, 5 ], both => [ 0, 5 ], timeouts => [ $idle - 1, $idle + $late ] },
	killed => { default => [ 0, 5 ], check => [ 0, 5 ] },
	restart => { default => [ 0, 5 ], keepalives => [ 0, 5 ], both => [ 0, 5 ] });
$_->{silence} = $_->{cable} foreach \%idle_gone, \%busy_gone, \%waiter_gone;

# When a lock must be free: from and to; "own" or "idle", counted from its acquire; undef if
# it is held as long as the test watches
sub expected
{
	my ($way, $setting, $kind) = @_;
	my $gone = ($kind eq 'waiter' ? \%waiter_gone : $kind =~ /busy|run/ ? \%busy_gone : \%idle_gone)->{$way}{$setting};

	return 'own' if $kind eq 'lease';
	return $gone unless $kind =~ /bounded|ends/;
	return $gone ? [ 0, $own + $late ] : 'own';
}

#
# Hosts and programs
#

my $dir = PostgreSQL::Test::Utils::tempdir;
# a given port, because the search for a free one uses loopback, which is down
my $node = PostgreSQL::Test::Cluster->new('main', port => 5432);
my (@children, %host, %clients);

END
{
	local $? = 0;
	kill 'KILL', @children;
	waitpid($_, 0) foreach @children;
}

# Returns the beginning of a command that runs on a host, or with undef here.
sub on
{
	my ($host) = @_;

	return defined $host ? ('nsenter', "--net=/proc/$host{$host}/ns/net", '--') : ();
}

sub ip
{
	my ($host, @arguments) = @_;

	system_or_bail(on($host), 'ip', @arguments);
	return;
}

# Starts a program; its output goes to a file.
sub spawn
{
	my ($host, $name, @command) = @_;
	my $pid = fork // die "fork: $!";

	@command = (on($host), @command);
	if ($pid == 0)
	{
		$ENV{PGAPPNAME} = $name;
		open(STDOUT, '>', "$dir/$name.log") && open(STDERR, '>&', \*STDOUT) && exec { $command[0] } @command;
		POSIX::_exit(127);
	}
	push @children, $pid;
	return $pid;
}

# A client on a host, or with undef here
sub client
{
	my ($host, $name, $address, @statements) = @_;

	return spawn($host, $name, qw(psql -XqAt -d postgres -p), $node->port, '-h', $address, map { ('-c', $_) } @statements);
}

# Host number N has 10.77.N.2, and a cable to 10.77.N.1 of the server.  Its namespace
# exists as long as a process in it.
sub host
{
	my ($host, $n) = @_;
	my $net = readlink '/proc/self/ns/net';

	$host{$host} = spawn(undef, $host, 'unshare', '--net', '--', 'sleep', 'infinity');
	sleep(0.05) while (readlink("/proc/$host{$host}/ns/net") // $net) eq $net;
	ip(undef, qw(link add name), "to_$host", qw(type veth peer name eth0 netns), $host{$host});
	ip(undef, qw(addr add), "10.77.$n.1/24", 'dev', "to_$host");
	ip(undef, qw(link set), "to_$host", 'up');
	ip($host, qw(addr add), "10.77.$n.2/24", qw(dev eth0));
	ip($host, qw(link set eth0 up));
	return;
}

# One host loses its cable; for another one, both ends send to an Ethernet address that no
# host has.
sub links
{
	my ($state, @neighbour) = @_;

	ip('cable', qw(link set eth0), $state);
	ip(undef, 'neigh', @neighbour, qw(10.77.2.2 dev to_silence));
	ip('silence', 'neigh', @neighbour, qw(10.77.2.1 dev eth0));
	return;
}

sub cut { return links('down', qw(replace lladdr 02:00:00:00:00:01 nud permanent)) }
sub mend { return links('up', 'del') }

sub update
{
	my ($set, $where) = @_;

	$node->safe_psql('postgres', "UPDATE watched w SET $set WHERE $where");
	return;
}

#
# The locks are held
#
init_node($node);
$node->append_conf('postgresql.conf', "listen_addresses = '0.0.0.0'\nmax_connections = 300\n");
$node->append_conf('pg_hba.conf', 'host all all 10.77.0.0/16 trust');
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION shedlock;
CREATE TABLE watched (name text PRIMARY KEY, way text, setting text, kind text,
	taken timestamptz, since timestamptz, try_from timestamptz, free_at timestamptz)});
POSIX::mkfifo("$dir/gate", 0600) or die "mkfifo: $!";

# All clients wait for the first lock, so that they acquire their locks at the same time.
# Idle clients then wait until the gate opens.
client(undef, 'start', $node->host, 'SELECT pg_advisory_lock(77)', 'SELECT pg_sleep(600)');
defined await($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 77") or die 'no first lock';
foreach my $n (1 .. @ways)
{
	my ($way, undef, @settings) = @{ $ways[ $n - 1 ] };
	my @watched;

	host($way, $n);
	foreach my $setting (@settings)
	{
		local $ENV{PGOPTIONS} = $settings{$setting}[1];
		foreach (@kinds)
		{
			my ($kind, undef, @statements) = @$_;
			my $name = "$way-$setting-$kind";

			push @watched, "('$name', '$way', '$setting', '$kind')";
			push @{ $clients{$way} }, client($way, $name, "10.77.$n.1", map { s/NAME/'$name'/r }
				  'SELECT pg_advisory_lock_shared(77)', @statements, "\\! : <$dir/gate", "SELECT 'released ' || shedlock_release(NAME)");
		}
	}
	$node->safe_psql('postgres', 'INSERT INTO watched VALUES ' . join ', ', @watched);
}
client(undef, 'holder', $node->host, "SELECT shedlock_acquire_session(name) FROM watched WHERE kind = 'waiter'", 'SELECT pg_sleep(600)');
defined await($node, "SELECT count(*) = (SELECT count(*) FROM watched) FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND NOT granted")
  or die 'not all clients connect';

cut();
sleep(1);
mend();
terminate($node, "(SELECT pid FROM pg_stat_activity WHERE application_name = 'start')");
ok(defined await($node, q{
SELECT count(*) = (SELECT count(*) FROM watched)
	AND sum(waiters) = (SELECT count(*) FROM watched WHERE kind = 'waiter')
	AND (SELECT count(*) FROM shedlock_history WHERE outcome = 'running') =
		(SELECT count(*) FROM watched WHERE kind LIKE 'run%')
	AND (SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction') =
		(SELECT count(*) FROM watched WHERE kind = 'fence')
FROM shedlock_locks WHERE state = 'held'}), 'a cut of a second ends no session');
update("taken = (SELECT timezone('UTC', locked_at) FROM shedlock l WHERE l.name = w.name)", 'true');

# The program shedlock, with another caller that waits for its lock
my @programs;
if (HostProgram::program_path())
{
	foreach my $n (1, 2)
	{
		push @programs, map {
			start_beating_program(
				name => "program $ways[ $n - 1 ][0] $_", kind => $_, lease => $own, kill_after => 2, on => [ on($ways[ $n - 1 ][0]) ],
				dbname => "host=10.77.$n.1 port=" . $node->port . ' dbname=postgres')
		} 'plain', 'tree';
	}
	foreach my $p (@programs)
	{
		sleep(0.1) until started($p) || defined ended($p);
		start_other($p, $node->connstr('postgres'));
	}
}

#
# Cut off
#
my $watcher = client(undef, 'watcher', $node->host, qq{
DO \$\$
DECLARE
	over timestamptz := clock_timestamp() + '$watch s';
	one text;
BEGIN
	WHILE clock_timestamp() < over LOOP
		FOR one IN SELECT name FROM watched
			WHERE free_at IS NULL AND clock_timestamp() >= coalesce(try_from, since) LOOP
			IF shedlock_acquire(one, '1 hour') THEN
				UPDATE watched SET free_at = clock_timestamp() WHERE name = one;
			END IF;
		END LOOP;
		COMMIT;
		PERFORM pg_sleep(0.1);
	END LOOP;
END \$\$});
my $start = time;
update('since = clock_timestamp()', "kind <> 'waiter' AND way IN ('cable', 'silence')");
cut();
update('since = clock_timestamp()', "kind <> 'waiter' AND way = 'killed'");
kill 'KILL', @{ $clients{killed} };
update('since = clock_timestamp()', "kind <> 'waiter' AND way = 'restart'");
# Another host gets its address.  No connection is closed, since the cable goes first.
ip(undef, qw(link del to_restart));
kill 'KILL', @{ $clients{restart} };
host('restart', 4);

# The server wakes a waiter at once: the watcher must not be faster than a dead waiter.
sleep(max(0, $start + $released - time));
update("since = clock_timestamp(), try_from = clock_timestamp() + '1 s'", "kind = 'waiter'");
terminate($node, "(SELECT pid FROM pg_stat_activity WHERE application_name = 'holder')");
waitpid($watcher, 0);
is($?, 0, 'the watcher ends without an error');

my @rows;
foreach my $p (@programs)
{
	sleep(0.1) until is_over($p) || time - $start > $PostgreSQL::Test::Utils::timeout_default;
	my $m = measure($p, $node);

	push @rows, [ $p->{name}, map({ sprintf '%.3f', $_ } $m->{last} - $start, $m->{since} - $start, $m->{since} - $m->{last}), $m->{exit}, $m->{outcome} ];
	cmp_ok($m->{since} - $m->{last}, '>', 0, "$p->{name}: no sign of life after another caller has the lock")
	  & is("$m->{exit}, $m->{outcome}", '76, lost', "$p->{name}: exit status and outcome")
	  or diag(slurp_file("$p->{base}.log"));
	ok(!survivors($p), "$p->{name}: no process is left");
}
note("The program; seconds since the cut:\n \n", table_of([ 'name', 'last sign', 'other has it', 'margin', 'exit', 'outcome' ], @rows)) if @rows;

my %measured;
foreach my $row (split /\n/, $node->safe_psql('postgres', q{
SELECT way, setting, kind, round(extract(epoch FROM free_at - since), 1), extract(epoch FROM free_at - taken)
FROM watched ORDER BY way, setting, kind}))
{
	my ($way, $setting, $kind, $seconds, $age) = split /\|/, $row;
	my $expected = expected($way, $setting, $kind);
	my %durations = (own => $own, idle => $idle);
	my ($number, $from, $to) =
	  ref $expected ? ($seconds, @$expected) : $expected ? ($age, $durations{$expected}, $durations{$expected} + $late) : ();
	my $held = ($seconds // '') eq '';

	$measured{"$way/$setting/$kind"} = $held ? '> ' . ($watch - 2 - ($kind eq 'waiter' ? $released : 0)) : $seconds;
	ok(defined $from ? !$held && $number >= $from && $number <= $to : $held,
		"$way, $setting settings, $kind: " . ($held ? 'held' : "free after $seconds s"))
	  or diag('expected: ' . (ref $expected ? "$from to $to" : $expected // 'held'));
}

#
# The link is back: a client either continues its session or learns that it is lost.
#
sub client_says
{
	my ($way, $setting, $words, $claim) = @_;
	my ($try, $said) = (0, '');

	while ($said !~ $words && $try++ < 300)
	{
		sleep(0.1);
		$said = slurp_file("$dir/$way-$setting-session.log");
	}
	like($said, $words, "$way, $setting settings, the link is back: $claim");
	return;
}

mend();
open(my $gate, '+<', "$dir/gate") or die "gate: $!";
foreach my $way ('cable', 'silence')
{
	client_says($way, $_, qr/^released true$/m, 'the client still holds its session lock, and releases it')
	  foreach 'default', 'check';
	client_says($way, $_, qr/server closed the connection|connection to server was lost|could not receive data|terminating connection/,
		'the client learns that its session is lost')
	  foreach 'keepalives', 'both', 'timeouts';
}

foreach (@ways)
{
	my ($way, $title, @settings) = @$_;

	note("$title; seconds until the lock is free:\n \n",
		join(' | ', '| Held by the client', map { $settings{$_}[0] } @settings), " |\n",
		'|---|', '--:|' x @settings, "\n",
		map { my ($kind, $held) = @$_; join(' | ', "| $held", map { $measured{"$way/$_/$kind"} } @settings) . " |\n" } @kinds);
}
my %tcp = map { chomp(my $value = slurp_file("/proc/sys/net/ipv4/tcp_$_")); $_ => $value }
  qw(keepalive_time keepalive_probes keepalive_intvl retries2);
note("By default this kernel probes an idle connection after $tcp{keepalive_time} s, then $tcp{keepalive_probes} times every "
	  . "$tcp{keepalive_intvl} s; it repeats $tcp{retries2} times what was sent (15 times take about 15 minutes).");
$node->stop('immediate');
done_testing();
