# Servers with shedlock, and clients that hold locks and are killed.
package ShedlockNode;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use File::Basename;
use File::Copy;
use File::Path;
use List::Util qw(max min);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

our @EXPORT = qw(init_node start_node start_standby private_scripts session ask pid_of kill_client reap
  last_words error_of answers await await_after_crash await_second seconds load_per_processor slowness bury terminate);

# The superuser is postgres, whichever user runs the tests.  PostgreSQL's own modules
# delete this variable and use the name of the operating system's user.
$ENV{PGUSER} = 'postgres';

# A signal ends a test like its last line: servers stop, and folders are removed.
my $test = $$;
$SIG{$_} = sub { $$ == $test ? exit 1 : POSIX::_exit(1) } foreach qw(HUP INT QUIT TERM);

# Creates a server's data folder.  Options are those of init().  It is a copy, with the
# system identifier of other servers, unless force_initdb is true.
sub init_node
{
	my ($node, %options) = @_;

	local $ENV{PATH} = dirname(__FILE__) . "/../template:$ENV{PATH}" if $ENV{TEMPLATES} && !$options{force_initdb};
	$node->init(%options, extra => [ '-U', 'postgres', @{ $options{extra} // [] } ]);
	return;
}

# Starts a server with the extension in its database postgres.  Options are
# those of init(), and conf.
sub start_node
{
	my ($name, %options) = @_;
	my $conf = delete $options{conf};
	my $node = PostgreSQL::Test::Cluster->new($name);

	init_node($node, %options);
	$node->append_conf('postgresql.conf', "max_connections = 40\n");
	$node->append_conf('postgresql.conf', $conf) if defined $conf;
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION shedlock');
	return $node;
}

# Starts a synchronous standby.  The primary must allow streaming.
sub start_standby
{
	my ($primary, $name, %options) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name, %options);

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->start;
	$primary->append_conf('postgresql.conf', "synchronous_standby_names = '\"$name\"'\n");
	$primary->reload;
	defined await($primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
	  or BAIL_OUT("standby $name is not synchronous");
	return $standby;
}

# Gives a server a copy of the extension's scripts, for a test that adds its own scripts.
# Returns the folder.
sub private_scripts
{
	my ($node) = @_;
	my $own = PostgreSQL::Test::Utils::tempdir;
	my $share = $node->config_data('--sharedir');
	my $lib = $node->config_data('--pkglibdir');

	# 18 has a path to search; Debian has a folder in front of all before that
	my ($setting, $value) = split /\|/,
	  $node->safe_psql('postgres', q{SELECT name, setting FROM pg_settings WHERE name IN ('extension_destdir', 'extension_control_path')});
	my ($from, $set);
	if ($setting eq 'extension_destdir')
	{
		($from, $set) = ("$value$share", $own);
		mkpath("$own$lib");
		# the same file: a session loads a library once
		symlink("$value$lib/shedlock.so", "$own$lib/shedlock.so") or die "symlink: $!";
	}
	else
	{
		($from, $set) = ($value =~ /^([^:]+)/, "$own$share:\$system");
		$from = $share if $from eq '$system';
	}
	mkpath("$own$share/extension");
	copy($_, "$own$share/extension") or die "copy: $!" foreach glob("$from/extension/shedlock*");
	$node->append_conf('postgresql.conf', "$setting = '$set'\n");
	$node->reload;
	defined await($node, "SELECT current_setting('$setting') = '$set'") or BAIL_OUT("$setting was not read");
	return "$own$share/extension";
}

# Connects a client that stays connected.  It continues after errors, as applications do.
sub session
{
	my ($node, %options) = @_;
	my $dbname = delete $options{dbname} || 'postgres';

	my $session = $node->background_psql($dbname, on_error_stop => 0, %options);

	# each statement has its own time limit, not all of them together
	$session->set_query_timer_restart;
	return bless $session, 'ShedlockNode::Session';
}

# Returns the answer of a session to a query; the stderr is in $session->{heard}.
sub ask
{
	my ($session, $sql) = @_;

	$session->{stderr} = '';
	my $answer = $session->query($sql);
	$session->{heard} = $session->{stderr};
	$session->{stderr} = '';
	return $answer;
}

sub pid_of
{
	my ($session) = @_;

	return ask($session, 'SELECT pg_backend_pid()');
}

# Kills a client like the kernel when memory runs out.
sub kill_client
{
	my ($session) = @_;

	$session->{run}->signal('KILL');
	reap($session);
	return;
}

# Ends a client, whatever the state of its connection.
sub reap
{
	my ($session) = @_;

	eval { $session->{run}->kill_kill(grace => 0); };
	return;
}

# Returns what a client whose server process has ended reads at its next query.
sub last_words
{
	my ($session) = @_;

	# psql may have read it and ended, too
	eval { $session->{run}->pump_nb; };
	if ($session->{stderr} !~ /FATAL/)
	{
		$session->{stdin} .= "SELECT 1;\n";
		eval { $session->{run}->finish; };
	}
	return $session->{stderr};
}

# Returns the error of a query in a session of its own, with its SQLSTATE in front, or
# "no error".
sub error_of
{
	my ($node, $sql, %options) = @_;
	my $dbname = delete $options{dbname} || 'postgres';
	my ($status, $out, $err) = $node->psql($dbname, "\\set VERBOSITY verbose\n$sql", %options);

	return $err =~ /(?:ERROR|FATAL): +(\w{5}: .*)/ ? $1 : 'no error';
}

# Returns whether a query gives this answer now.
sub answers
{
	my ($where, $sql, $expected) = @_;

	return $expected eq
	  ($where->isa('PostgreSQL::Test::Cluster') ? $where->safe_psql('postgres', $sql) : ask($where, $sql));
}

# Waits until a query gives the expected answer.  Returns the seconds that it took, or
# undef if it never did.  A node is asked in one session, because a process for each
# question would take the processor from what is waited for.
sub await
{
	my ($where, $sql, $expected, $limit) = @_;
	my $own = $where->isa('PostgreSQL::Test::Cluster') && session($where);
	my $start = time;
	my $answered;

	$expected = 't' unless defined $expected;
	$limit = $PostgreSQL::Test::Utils::timeout_default unless defined $limit;
	until (($answered = $expected eq ask($own || $where, $sql)) || time - $start > $limit)
	{
		die $own->{heard} if $own && $own->{heard} =~ /ERROR/;
		sleep(min(0.2, 0.02 + (time - $start) / 50));
	}
	my $took = time - $start;

	$own->quit if $own;
	return $answered ? $took : ();
}

# The same while the server comes back: true if a query gives true.  A psql that cannot connect
# ends before it has read the query, which IPC::Run takes for an error.
sub await_after_crash
{
	my ($node, $sql) = @_;
	my $is_true;

	until (defined $is_true)
	{
		$is_true = eval { $node->poll_query_until('postgres', $sql) };
		die $@ if !defined $is_true && $@ !~ /Broken pipe/;
	}
	return $is_true;
}

# Returns the seconds that code takes.
sub seconds(&)
{
	my ($code) = @_;
	my $start = time;

	$code->();
	return time - $start;
}

# Returns how many processes wait for one processor, or use it, in the next 0.2 s.
sub load_per_processor
{
	my $processors = () = slurp_file('/proc/stat') =~ /^cpu\d/mg;
	my ($samples, $running) = (20, 0);

	foreach (1 .. $samples)
	{
		$running += (slurp_file('/proc/loadavg') =~ m{ (\d+)/})[0] - 1;
		sleep(0.01);
	}
	return $running / $samples / $processors;
}

# Waits until a shutdown comes after the second in which the last holder began: a
# shutdown in the same second does not prove that the holder is gone.
sub await_second
{
	my ($node) = @_;

	defined await($node, q{SELECT max(backend_start) + interval '1 s' <= clock_timestamp() FROM shedlock})
	  or die 'the clock stands still';
	return;
}

# Returns how many times slower this machine is now than others, at most six or $most: for
# leases that must last longer than the next statements, and for limits on times.
#
# A few statements alone do not tell: the kernel prefers a process that has slept.
sub slowness
{
	my ($node, $most) = @_;
	my $took = seconds { $node->safe_psql('postgres', 'SELECT 1') foreach 1 .. 5 };

	return min($most // 6, max(1, $took / 0.3, load_per_processor()));
}

# A server that was killed leaves shared memory, which its next start removes.  It does
# not start while its predecessor is a zombie.
sub bury
{
	my ($node) = @_;

	unlink $node->data_dir . '/postmaster.pid';
	PostgreSQL::Test::Utils::run_log([ 'postgres', '--single', '-D', $node->data_dir, 'postgres' ], '<', \undef)
	  or die 'the server that was killed does not start';
	return;
}

sub terminate
{
	my ($node, $pid) = @_;

	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 5000)");
	return;
}

# The end of a session has a time limit of its own, too: else a session that was idle for longer
# than that could not end.
package ShedlockNode::Session;

use parent -norequire, 'PostgreSQL::Test::BackgroundPsql';

sub quit
{
	my ($self) = @_;

	$self->{timeout}->start;
	return $self->SUPER::quit;
}

1;
