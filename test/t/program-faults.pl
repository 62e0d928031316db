# Whatever happens to the program shedlock, to its server or to what is between them: the
# command's processes are gone before another caller has the lock.
#
# In each situation another caller waits for the lock.  The margin is the time from the
# last sign of life of any process of the command to the instant at which the other caller
# has the lock.  doc/hosts.md has the table in words.
#
# No process ends another one in time on a machine that wakes none: a margin that is
# negative counts only if a process that sleeps meanwhile wakes in time.

use strict;
use warnings FATAL => 'all';
use DBI;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use HostProgram ();
use PoolerNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ProgramFaults;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep time);

plan skip_all => 'this system cannot have the program' unless HostProgram::program_path();

my $limit = $PostgreSQL::Test::Utils::timeout_default;
my @situations;
my %watch;

#
# Situations
#

# Adds a situation.  Keys: title, kind (of command), steps; length (of the lease), short or
# another; exit and outcome, the expected ones; margin, "none" if no margin is promised;
# options, env, dbname and node, of the program; extra, further checks.
sub situation
{
	my ($title, %s) = @_;

	push @situations, { title => $title, kind => 'plain', length => 'short', exit => 76, outcome => 'lost', margin => 'kept', %s };
	return;
}

# A step is a condition and an action; the next step follows when the condition is true.
# The conditions get the situation, with the time of the last step as {at}.
sub at_once { return 1 }

sub after
{
	my ($seconds) = @_;

	return sub { time - $_[0]{at} > $seconds };
}

# The lease was extended twice since the last step.
sub extended
{
	my ($s) = @_;
	my $now = end_of_lease($s) or return;

	$s->{seen} //= [ $now, 0 ];
	@{ $s->{seen} } = ($now, $s->{seen}[1] + 1) if $now ne $s->{seen}[0];
	return $s->{seen}[1] >= 2;
}

sub program_ended { return defined ended($_[0]{p}) }
sub is_dead { my ($s, $who) = @_; return !grep { $_ == $who->($s->{p}) } survivors($s->{p}) }

# Sends a signal to processes of the situation.
sub signals
{
	my ($signal, @whose) = @_;

	return sub {
		my ($s) = @_;
		kill $signal, map { $_->($s->{p}) } @whose;
	};
}

sub finish { my ($s) = @_; return end_command($s->{p}) }

# Steps of a situation in which the command continues, and ends by itself
sub continues { return ([ \&extended, \&finish ]) }

#
# The life of a situation
#

sub connection
{
	my ($node) = @_;

	return DBI->connect('dbi:Pg:host=' . $node->host . ';port=' . $node->port . ';dbname=postgres', 'postgres', '',
		{ RaiseError => 1, PrintError => 0 });
}

sub disconnect
{
	my ($node) = @_;
	my $watch = delete $watch{ $node->name };

	$watch->{dbh}->disconnect if $watch;
	return;
}

# Returns when a lease ends.  Those of all locks are read together, ten times a second.
sub end_of_lease
{
	my ($s) = @_;
	my $watch = $watch{ $s->{node}->name } //= { dbh => connection($s->{node}), at => 0 };

	if (time - $watch->{at} > 0.1)
	{
		$watch->{until} = { map { @$_ } @{ $watch->{dbh}->selectall_arrayref('SELECT name, lock_until FROM shedlock') } };
		$watch->{at} = time;
	}
	return $watch->{until}{ $s->{p}{name} };
}

my $number = 0;

sub start
{
	my ($s, $node, $lengths) = @_;
	my ($lease, $kill_after) = @{ $lengths->{ $s->{length} } };

	$s->{node} //= $node;
	$s->{name} = sprintf 'fault %02d', ++$number;
	$s->{p} = start_beating_program(
		name => $s->{name}, kind => $s->{kind}, dbname => $s->{dbname} // $s->{node}->connstr('postgres'),
		lease => $lease, kill_after => $kill_after, options => $s->{options},
		env => { PGCONNECT_TIMEOUT => int($lengths->{connect}), %{ $s->{env} // {} } });
	return;
}

# Waits until a condition is true for all these situations.
sub await_all
{
	my ($what, $condition, @those) = @_;
	my $start = time;

	while (my @missing = grep { !$condition->($_) } @those)
	{
		if (time - $start > $limit)
		{
			foreach my $s (@missing)
			{
				diag("$s->{title}, $s->{kind}: not $what");
				diag(slurp_file($_)) foreach glob("$s->{p}{base}.log");
			}
			return 0;
		}
		sleep(0.02);
	}
	return 1;
}

# Another caller waits for the lock from now on.
sub compete
{
	my ($s) = @_;

	return start_other($s->{p}, ($s->{other_node} // $s->{node})->connstr('postgres'));
}

# Starts programs, a few at a time, until all their commands are at work and others wait.
sub start_all
{
	my ($node, $lengths, @those) = @_;

	while (my @few = splice @those, 0, 8)
	{
		start($_, $node, $lengths) foreach @few;
		await_all('started', sub { started($_[0]{p}) || defined ended($_[0]{p}) }, @few);
		foreach my $s (@few)
		{
			guardian_of($s->{p}) if started($s->{p});
			compete($s) unless $s->{alone};
		}
	}
	return;
}

# Does what it is time for; returns whether the situation is over.
sub proceed
{
	my ($s) = @_;

	$s->{at} //= time;
	return 1 if program_ended($s) && !defined last_sign($s->{p});
	while (@{ $s->{steps} } && $s->{steps}[0][0]->($s))
	{
		my $step = shift @{ $s->{steps} };

		$s->{fault} //= time;
		$step->[1]->($s);
		$s->{at} = time;
		delete $s->{seen};
	}
	return !@{ $s->{steps} } && is_over($s->{p}) && (!survivors($s->{p}) || $s->{leaves});
}

# Checks how a situation ended.
sub check
{
	my ($s) = @_;
	my $m = measure($s->{p}, $s->{other_node} // $s->{node});
	my $title = "$s->{title}, $s->{kind} command";

	if (!defined $m->{last})
	{
		fail("$title: the command was started");
		diag(slurp_file("$s->{p}{base}.log"));
		return;
	}
	$s->{fault} //= $s->{at};
	$s->{measured} = [ $s->{title}, $s->{kind}, map({ sprintf '%.3f', $_ } $m->{last} - $s->{fault}, $m->{since} - $s->{fault}, $m->{since} - $m->{last}),
		$m->{exit}, $m->{outcome} ];
	my $ok = 1;
	if ($s->{margin} eq 'kept')
	{
		my $margin = $m->{since} - $m->{last};
		my $late = lateness($m->{since} - 2, $m->{since});

	  SKIP:
		{
			skip(sprintf('%s: a sleep of 5 ms ended %.3f s late, and the margin is %.3f s', $title, $late, $margin), 1)
			  if $late > 0.05 && $margin <= 0 && $margin > -5 * $late;
			$ok &= cmp_ok($margin, '>', 0, "$title: no sign of life after another caller has the lock");
		}
	}

	# After half of the margin the keeper waits no longer for a guardian that has killed the command.
	# Several processes have to wake until then, one after the other, each of them a little late.
	my $is_late = $s->{kind} ne 'plain' && $s->{exit} == 124 && $m->{exit} eq '76' &&
	  (lateness($m->{last}, $m->{since}) > 0.02 || load_per_processor() > 2);
	$ok &= is("$m->{exit}, $m->{outcome}", ($is_late ? 76 : $s->{exit}) . ", $s->{outcome}", "$title: exit status and outcome");
	$ok &= is($m->{tokens}, $m->{token}, "$title: the command was started once, with the token of its run") unless $s->{no_history};
	$s->{extra}->($s, $title) if $s->{extra};
	diag("$s->{name}:\n", slurp_file("$s->{p}{base}.log")) unless $ok;
	return;
}

# Lets all happen at once, and checks it.
sub happen
{
	my (@those) = @_;

	await_all('over', \&proceed, @those);
	check($_) foreach @those;
	return;
}

# Returns the situations that were added last.
sub added { my $from = $_[0]; my @added = @situations[ $from .. $#situations ]; return @added }

#
# One server that is well
#

my $node = start_node('main', conf => "max_connections = 200\nlog_statement = none\n");
# twelve, because a program that cannot connect in time does not start its command
my $slow = slowness($node, 12);
my %lengths = (short => [ 3 * $slow, $slow ], late => [ 6 * $slow, $slow ], long => [ 9 * $slow, 2 * $slow ],
	outage => [ 20 * $slow, 4 * $slow ], minute => [ 60 * $slow, $slow ], connect => 2 * $slow);
my $over = 3 * $slow + 1;

start_witness();
note("a lease of $lengths{short}[0] s, or $lengths{long}[0] s where the command continues");
$node->safe_psql('postgres', q{
CREATE ROLE app LOGIN;
ALTER ROLE app SET log_statement = 'all';
CREATE ROLE hasty_1 LOGIN;
ALTER ROLE hasty_1 SET statement_timeout = '1ms';
ALTER ROLE hasty_1 SET lock_timeout = '1ms';
CREATE ROLE hasty_100 LOGIN;
ALTER ROLE hasty_100 SET statement_timeout = '100ms';
ALTER ROLE hasty_100 SET lock_timeout = '1ms';
CREATE ROLE idle LOGIN;
ALTER ROLE idle SET idle_session_timeout = '} . int(200 * $slow) . "ms'");

# Where the program reports the end, its lease outlasts a busy server.
foreach my $kind ('plain', 'tree')
{
	situation('keeper stopped', kind => $kind,
		steps => [ [ \&at_once, signals(STOP => \&keeper_of) ], [ after($over), signals(CONT => \&keeper_of) ] ]);
	situation('keeper killed', kind => $kind, exit => 137, steps => [ [ \&at_once, signals(KILL => \&keeper_of) ] ]);
	situation('guardian stopped', kind => $kind, steps => [ [ \&at_once, signals(STOP => \&guardian_of) ] ]);
	situation('guardian killed', kind => $kind, length => 'minute', exit => 137, outcome => 'failed', steps => [ [ \&at_once, signals(KILL => \&guardian_of) ] ]);
	situation('command killed', kind => $kind, length => 'minute', exit => 137, outcome => 'failed', steps => [ [ \&at_once, signals(KILL => \&command_of) ] ]);
	situation('command stopped, keeper killed', kind => $kind, exit => 137,
		steps => [ [ \&at_once, signals(STOP => \&processes_of) ], [ after(0.2), signals(KILL => \&keeper_of) ] ]);
	situation('command stopped, guardian stopped', kind => $kind,
		steps => [ [ \&at_once, signals(STOP => \&processes_of) ], [ after(0.2), signals(STOP => \&guardian_of) ] ]);
	force_released('force-released', '', kind => $kind, length => 'minute', dbname => logged('heard'), extra => \&ends_at_once);
}

# Adds a situation in which an administrator releases the lock, with settings.
sub force_released
{
	my ($title, $settings, %s) = @_;

	situation($title, margin => 'none', outcome => 'cancelled',
		steps => [ [ \&at_once, sub { $node->safe_psql('postgres', "$settings SELECT shedlock_force_release('$_[0]{p}{name}')") } ] ], %s);
	return;
}

# From the instant at which the lock was free.  A tree ends kill_after later.
sub ends_at_once
{
	my ($s, $title) = @_;

	cmp_ok(-$s->{measured}[4], '<', $slow + ($s->{kind} eq 'tree' ? $lengths{minute}[1] : 0), "$title: the program hears of it, and ends the command at once");
	return;
}

sub ends_soon
{
	my ($s, $title) = @_;

	cmp_ok($s->{measured}[2], '<', $lengths{short}[0], "$title: ended after the next heartbeat");
	return;
}

# Returns a conninfo; the server logs all statements of this role.
sub logged
{
	my ($application) = @_;

	return $node->connstr('postgres') . " user=app application_name=$application";
}

# Returns how often a program has sent a statement.
sub times_sent
{
	my ($application, $statement) = @_;

	return scalar(() = slurp_file($node->logfile) =~ /\] \Q$application\E LOG:  statement: .*\Q$statement\E/g);
}

force_released('force-released, nobody is told', 'SET shedlock.notify = none;', extra => \&ends_soon);

# The lease is cut short, although it is extended, at a time that is no multiple of its length.
situation('run as long as its job allows', kind => $_, length => 'long', exit => 124, outcome => 'timed out', steps => [],
	options => [ '--once-every', '20000 days', '--at-most', 1.6 * $lengths{long}[0] . 's' ])
  foreach 'plain', 'stubborn', 'tree';

situation('keeper stopped', kind => 'stubborn', steps => [ [ \&at_once, signals(STOP => \&keeper_of) ], [ after($over), signals(CONT => \&keeper_of) ] ]);
situation('command stopped and continued', length => 'long', exit => 0, outcome => 'succeeded',
	steps => [ [ \&at_once, signals(STOP => \&processes_of) ], [ \&extended, signals(CONT => \&processes_of) ], continues() ]);
situation('keeper and guardian killed', exit => 137, steps => [ [ \&at_once, signals(KILL => \&keeper_of, \&guardian_of) ] ]);

# No process is left that could end these: service managers can.
situation('keeper and guardian killed', kind => 'tree', exit => 137, margin => 'none', leaves => 1,
	steps => [ [ \&at_once, signals(KILL => \&keeper_of, \&guardian_of) ] ],
	extra => sub {
		my ($s, $title) = @_;
		ok(is_dead($s, \&command_of), "$title: the command itself is dead");
		kill 'KILL', survivors($s->{p});
	});

# A process that does not run cannot end another one; the token is what is left.
sub resumed
{
	my ($s, $title) = @_;

	note(sprintf '%s: %.3f s from the resumption to the last sign', $title, last_sign($s->{p}) - $s->{resumed});
	return;
}

situation('keeper and guardian stopped, continued', margin => 'none', extra => \&resumed,
	steps => [ [ \&at_once, signals(STOP => \&keeper_of, \&guardian_of) ],
		[ after($over), sub { $_[0]{resumed} = time; signals(CONT => \&guardian_of, \&keeper_of)->($_[0]) } ] ]);
situation('all processes stopped, continued', kind => $_, margin => 'none', extra => \&resumed,
	steps => [ [ \&at_once, signals(STOP => \&keeper_of, \&guardian_of, \&processes_of) ],
		[ after($over), sub { $_[0]{resumed} = time; signals(CONT => \&processes_of, \&guardian_of, \&keeper_of)->($_[0]) } ] ])
  foreach 'plain', 'tree';

situation('its session terminated', length => 'long', exit => 0, outcome => 'succeeded',
	dbname => $node->connstr('postgres') . ' application_name=victim',
	steps => [ [ \&at_once, sub { $node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'") } ], continues() ]);
situation('paused', length => 'long', exit => 0, outcome => 'succeeded',
	steps => [ [ \&at_once, sub { $node->safe_psql('postgres', "SELECT shedlock_pause('$_[0]{name}')") } ],
		[ \&extended, sub { $node->safe_psql('postgres', "SELECT shedlock_resume('$_[0]{name}')") } ], continues() ]);
situation("timeouts of $_ ms set for its role", length => 'long', exit => 0, outcome => 'succeeded',
	dbname => $node->connstr('postgres') . " user=hasty_$_", options => [ '--wait', "${limit}s" ], steps => [ continues() ])
  foreach 1, 100;
situation('idle_session_timeout', length => 'long', exit => 0, outcome => 'succeeded',
	dbname => $node->connstr('postgres') . ' user=idle', steps => [ continues() ]);

# Packets are lost without a sign, as with a cable that is cut.
foreach my $kind ('plain', 'stubborn', 'tree')
{
	my ($conninfo, $proxy) = start_proxy($node, 'pass');

	situation('cut off', kind => $kind, dbname => $conninfo, steps => [ [ \&at_once, sub { kill 'USR1', $proxy } ] ]);
}

# The lease counts from the sending, not from the answer.
my ($late_conninfo, $late_proxy) = start_proxy($node, 'pass', 0.7 * $slow);

situation('answers are late, cut off', kind => 'stubborn', length => 'late', dbname => $late_conninfo . ' connect_timeout=' . int(2 + 2 * $slow),
	steps => [ [ \&extended, sub { kill 'USR1', $late_proxy } ] ]);

# The answer of shedlock_run_begin is lost.
situation("connection lost, $_->[1]", length => 'long', exit => 0, outcome => 'succeeded',
	dbname => (start_proxy($node, $_->[0]))[0], steps => [ continues() ])
  foreach [ cut => 'run begins' ], [ cut_after => 'run has begun' ];

# The server refuses LISTEN.
situation('LISTEN refused', length => 'long', exit => 0, outcome => 'succeeded',
	dbname => (start_proxy($node, 'deaf'))[0] . ' user=app application_name=refused', steps => [ continues() ]);

# The host was suspended: its clock is ahead.
sub clock_file
{
	my ($name) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir . "/$name";

	append_to_file($file, pack('q', 0));
	return $file;
}

sub suspend
{
	my ($s) = @_;

	open my $file, '+<', $s->{env}{SKEW_FILE} or die "$s->{env}{SKEW_FILE}: $!";
	syswrite $file, pack('q', 3600 * 1_000_000);
	close $file;
	# On a busy machine the next extension may have come before the clock was moved.
	$s->{lease} = $node->safe_psql('postgres', "SELECT token, lock_until FROM shedlock WHERE name = '$s->{name}'");
	return;
}

if ($ENV{SHEDLOCK_SKEW})
{
	my %env = (LD_PRELOAD => $ENV{SHEDLOCK_SKEW}, SKEW_BOOTTIME => 'yes');
	my $not_extended = sub {
		my ($s) = @_;
		$s->{lease_at_end} = $node->safe_psql('postgres', "SELECT token, lock_until FROM shedlock WHERE name = '$s->{name}'");
		return;
	};
	my $same = sub {
		my ($s, $title) = @_;

	  SKIP:
		{
			skip("$title: another caller had the lock when this test looked", 1)
			  if $s->{lease_at_end} =~ s/\|.*//r ne $s->{lease} =~ s/\|.*//r;
			is($s->{lease_at_end}, $s->{lease}, "$title: the lease is not extended");
		}
	};

	foreach my $kind ('plain', 'tree')
	{
		# Just after an extension, so that none is on its way.
		situation('host suspended', kind => $kind, length => 'late', env => { %env, SKEW_FILE => clock_file("short_$kind") },
			steps => [ [ \&extended, \&suspend ], [ \&program_ended, $not_extended ] ], extra => $same);

		# Any message wakes the guardian, which ends the command long before the lease ends
		# on the server.
		situation('host suspended, a signal comes', kind => $kind, length => 'minute', env => { %env, SKEW_FILE => clock_file("minute_$kind") },
			steps => [
				[ \&at_once, \&suspend ],
				[ \&at_once, signals(USR1 => \&keeper_of) ],
				[ \&program_ended, sub { $not_extended->($_[0]); $node->safe_psql('postgres', "SELECT shedlock_force_release('$_[0]{p}{name}')") } ] ],
			outcome => 'cancelled', extra => $same);
	}
}

# A pooler in transaction mode
my $pooler = find_pgbouncer() ? start_pooler($node, 'transaction', 5) : undef;

situation('PgBouncer restarted', length => 'long', exit => 0, outcome => 'succeeded', dbname => pooled_url($pooler),
	steps => [ [ \&extended, sub { restart_pooler($pooler) } ], continues() ])
  if $pooler;
force_released('force-released, behind PgBouncer', '', dbname => pooled_url($pooler) . ' application_name=pooled', extra => \&ends_soon)
  if $pooler;

start_all($node, \%lengths, @situations);
happen(@situations);

# A session that LISTENs is no session for a pool.
cmp_ok(times_sent('heard', 'LISTEN shedlock'), '>=', 2, 'connections of their own LISTEN');
cmp_ok(times_sent('refused', 'SELECT 1/0'), '>=', 1, 'a LISTEN was refused');
cmp_ok(times_sent('refused', 'SELECT 1/0'), '<', times_sent('refused', 'shedlock_extend'), 'it is not sent again by the same connection');
SKIP:
{
	skip 'there is no pgbouncer', 2 unless $pooler;
	cmp_ok(times_sent('pooled', 'shedlock_extend'), '>=', 1, 'the lease is extended behind PgBouncer');
	is(times_sent('pooled', 'LISTEN'), 0, 'no LISTEN is sent behind PgBouncer');
}

# The statement that begins the run is still at work when its connection is lost.
my $from = @situations;
situation('connection lost, run begins slowly', length => 'outage', exit => 0, outcome => 'succeeded', alone => 1,
	dbname => (start_proxy($node, 'cut'))[0], steps => [ continues() ]);
my $slowly = $situations[-1];
my $locker = connection($node);
$locker->begin_work;
$locker->do('LOCK TABLE _shedlock_history IN SHARE MODE');
start($slowly, $node, \%lengths);
ok(defined await($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'relation' AND query LIKE '%shedlock_run_begin%'}),
	'a statement begins a run, and waits');
ok(!started($slowly->{p}), 'the command is not started yet');
sleep(2 * $slow);
$locker->rollback;
$locker->disconnect;
await_all('started', sub { started($_[0]{p}) || defined ended($_[0]{p}) }, $slowly);
compete($slowly);
happen($slowly);

stop_pooler($pooler) if $pooler;
disconnect($node);
$node->stop;

#
# A server that is away
#

# Stops all processes of a server, or continues them.
sub freeze
{
	my ($server, $signal) = @_;
	my $postmaster = $server->{_pid};

	kill $signal, $postmaster;
	kill $signal, grep { (eval { slurp_file("/proc/$_/stat") } // '') =~ /\) . $postmaster / } map { m,(\d+)$, } glob('/proc/[0-9]*');
	return;
}

my $away = start_node('away', conf => "max_connections = 100\n");

# This one sees all of it.
$from = @situations;
situation('server restarted, away and stopped for less than the lease', length => 'outage', exit => 0, outcome => 'succeeded', alone => 1,
	steps => [ continues() ]);
my $patient = $situations[-1];
start_all($away, \%lengths, $patient);
$away->restart;

foreach my $way ('away', 'stopped')
{
	$from = @situations;
	situation("server $way for longer than the lease", kind => $_, alone => 1, steps => []) foreach 'plain', 'stubborn', 'tree';
	my @those = added($from);

	start_all($away, \%lengths, @those);
	$_->{fault} = time foreach @those;
	$way eq 'away' ? $away->stop('immediate') : freeze($away, 'STOP');

	# It is back as soon as no extension counts any more.
	await_all('told to end', sub { told_to_end($_[0]{p}) }, @those);
	$way eq 'away' ? $away->start : freeze($away, 'CONT');
	compete($_) foreach @those;
	happen(@those);
}
compete($patient);
happen($patient);
disconnect($away);
$away->stop;

#
# A primary and its standbys
#

my $primary = start_node('primary', allows_streaming => 1, conf => "max_connections = 100\n");
my %standby;

$primary->backup('copy');
foreach my $name ('gone', 'synchronous', 'asynchronous')
{
	$standby{$name} = PostgreSQL::Test::Cluster->new($name);
	$standby{$name}->init_from_backup($primary, 'copy', has_streaming => 1);
	$standby{$name}->start;
}
$primary->append_conf('postgresql.conf', "synchronous_standby_names = '2 (gone, synchronous)'\n");
$primary->reload;
defined await($primary, "SELECT count(*) = 2 FROM pg_stat_replication WHERE sync_state = 'sync'") or BAIL_OUT('no synchronous standbys');

# Cuts a standby off from its primary.
sub cut_off
{
	my ($node) = @_;

	$node->append_conf('postgresql.conf', "primary_conninfo = ''\n");
	$node->reload;
	defined await($node, 'SELECT count(*) = 0 FROM pg_stat_wal_receiver') or BAIL_OUT('the standby is not cut off');
	return;
}

sub either
{
	my (@nodes) = @_;

	return 'dbname=postgres host=' . join(',', map { $_->host } @nodes) . ' port=' . join(',', map { $_->port } @nodes);
}

cut_off($standby{asynchronous});
$from = @situations;
situation('primary fails, synchronous standby promoted', length => 'outage', exit => 0,
	outcome => 'succeeded', alone => 1, node => $standby{synchronous}, dbname => either($primary, $standby{synchronous}), steps => [ continues() ]);
situation('primary fails, asynchronous standby promoted', kind => $_, length => 'outage', outcome => '', alone => 1, margin => 'none', no_history => 1,
	node => $standby{asynchronous}, dbname => either($primary, $standby{asynchronous}), steps => [])
  foreach 'plain', 'tree';
my @failover = added($from);

$from = @situations;
situation('synchronous standby gone', kind => $_, alone => 1, other_node => $standby{gone}, steps => []) foreach 'plain', 'stubborn', 'tree';
my @alone = added($from);

start_all($primary, \%lengths, @failover, @alone);
$_->{fault} = time foreach @alone;
cut_off($standby{gone});
$standby{gone}->promote;
compete($_) foreach @alone;
happen(@alone);

$_->{fault} = time foreach @failover;
$primary->kill9;
$standby{$_}->promote foreach 'synchronous', 'asynchronous';
# With asynchronous replication tokens may repeat: a program would extend the lock of another
# caller that got its token.
$standby{asynchronous}->safe_psql('postgres', "SELECT count(shedlock_acquire_token('burnt ' || i, '1 s')) FROM generate_series(1, 100) i");
compete($_) foreach @failover;
happen(@failover);
disconnect($standby{synchronous});
$_->stop foreach values %standby;
bury($primary);

note("seconds since the fault:\n \n",
	table_of([ 'situation', 'command', 'last sign', 'other has it', 'margin', 'exit', 'outcome' ], map { $_->{measured} // () } @situations));
stop_processes();
done_testing();
