# Servers that Patroni keeps, with etcd, on loopback; all end with the test.
package PatroniNode;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use Cwd ();
use HTTP::Tiny;
use IO::Socket::INET;
use JSON::PP;
use POSIX qw(:sys_wait_h);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode ();
use Time::HiRes qw(sleep time);

our @EXPORT = qw(has_patroni start_etcd start_patroni end_patroni_by patroni_pid postmaster_pid signal_etcd patronictl
  members primary follow_primary);

my $parent = $$;
my $http = HTTP::Tiny->new(timeout => 0.5, keep_alive => 0);
my ($dir, $etcd_port, $etcd_pid, $follower_pid, @nodes, %patroni_pid, %rest_port);

# What Patroni 3.0.2 still works with: loop_wait + 2 retry_timeout <= ttl
my %times = (ttl => 10, loop_wait => 1, retry_timeout => 4);

END
{
	if ($$ == $parent)
	{
		local $? = 0;
		my @pids = grep { defined } $follower_pid, values %patroni_pid, $etcd_pid;

		kill 'KILL', @pids;
		waitpid($_, 0) foreach @pids;
		# these data are of no use any more
		my @servers = grep { defined } map { postmaster_pid($_) } @nodes;
		kill 'QUIT', @servers;
		foreach my $try (1 .. 300)
		{
			last unless grep { -e "/proc/$_" } @servers;
			kill 'KILL', @servers if $try == 200;
			sleep(0.1);
		}
	}
}

sub has_patroni
{
	return run_log([ 'patroni', '--version' ]) && run_log([ 'etcd', '--version' ]);
}

# Starts a program whose output goes to a log.  Returns its process ID.
sub spawn
{
	my ($log, @command) = @_;
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		$SIG{$_} = 'DEFAULT' foreach qw(HUP INT QUIT TERM);
		open(STDOUT, '>>', $log) && open(STDERR, '>&', \*STDOUT) && exec(@command);
		POSIX::_exit(127);
	}
	return $pid;
}

#
# etcd
#

sub start_etcd
{
	my ($log) = @_;
	my ($client, $peer) = map { 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;

	$dir = PostgreSQL::Test::Utils::tempdir;
	($etcd_port) = $client =~ /(\d+)$/;
	$etcd_pid = spawn($log, 'etcd', '--name', 'etcd', '--data-dir', "$dir/etcd",
		'--listen-client-urls', $client, '--advertise-client-urls', $client,
		'--listen-peer-urls', $peer, '--initial-advertise-peer-urls', $peer, '--initial-cluster', "etcd=$peer");
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return if $http->get("$client/health")->{success};
		sleep(0.1);
	}
	die 'etcd does not start';
}

sub signal_etcd
{
	my ($name) = @_;

	kill $name, $etcd_pid;
	return;
}

#
# Patroni
#

# Writes the settings of Patroni for a node.  Patroni drops settings of PostgreSQL that
# it does not know, as those of Debian and of the extension, but not from a file.
sub configure
{
	my ($node, $settings) = @_;
	my $name = $node->name;
	my $rest = PostgreSQL::Test::Cluster::get_free_port();
	my $conf = "$dir/$name.conf";

	$rest_port{$name} = $rest;
	append_to_file($conf, join "\n", slurp_file($ENV{TEMP_CONFIG}), 'fsync = off', 'shared_buffers = 32MB', $settings, '');
	append_to_file("$dir/$name.json", encode_json({
		scope => 'shedlock',
		name => $name,
		restapi => { listen => "127.0.0.1:$rest", connect_address => "127.0.0.1:$rest" },
		etcd3 => { host => "127.0.0.1:$etcd_port" },
		bootstrap => {
			dcs => {
				%times,
				synchronous_mode => JSON::PP::true,
				synchronous_mode_strict => JSON::PP::true,
				postgresql => { use_pg_rewind => JSON::PP::true, use_slots => JSON::PP::true } },
			initdb => [ { encoding => 'UTF8' }, { locale => 'C.UTF-8' } ] },
		postgresql => {
			listen => '127.0.0.1:' . $node->port,
			connect_address => '127.0.0.1:' . $node->port,
			data_dir => $node->data_dir,
			bin_dir => `pg_config --bindir` =~ s/\n//r,
			pgpass => "$dir/$name.pgpass",
			custom_conf => $conf,
			authentication => { superuser => { username => 'postgres' }, replication => { username => 'postgres' } },
			parameters => { unix_socket_directories => $node->host },
			pg_hba => [ 'local all all trust', map { "host $_ all 127.0.0.1/32 trust" } 'all', 'replication' ] } }));
	push @nodes, $node;
	return;
}

# Starts Patroni, which creates the node's data if there are none.  The settings, lines of
# postgresql.conf, are read the first time.
sub start_patroni
{
	my ($node, $settings) = @_;

	configure($node, $settings) unless $rest_port{ $node->name };
	$patroni_pid{ $node->name } = spawn($node->logfile, 'patroni', "$dir/" . $node->name . '.json');
	return;
}

sub patroni_pid
{
	my ($node) = @_;

	return $patroni_pid{ $node->name };
}

# Ends Patroni by a signal.
sub end_patroni_by
{
	my ($node, $signal) = @_;
	my $pid = delete $patroni_pid{ $node->name };

	kill $signal, $pid;
	waitpid($pid, 0);
	return;
}

# The process ID of a node's server; undef if it does not run
sub postmaster_pid
{
	my ($node) = @_;
	my $file = $node->data_dir . '/postmaster.pid';
	my ($pid) = -e $file ? slurp_file($file) =~ /^(\d+)/ : ();

	# the file of a server that was killed may name another process
	return $pid && (readlink("/proc/$pid/cwd") // '') eq Cwd::realpath($node->data_dir) ? $pid : undef;
}

# Runs patronictl, and returns what it prints.
sub patronictl
{
	my ($node, @arguments) = @_;
	my ($out, $err) = run_command([ 'patronictl', '-c', "$dir/" . $node->name . '.json', @arguments ]);

	return "$out\n$err";
}

# Asks Patroni something.  Returns undef unless it says yes.
sub rest
{
	my ($node, $path) = @_;
	my $answer = $http->get("http://127.0.0.1:$rest_port{ $node->name }/$path");

	return $answer->{success} ? $answer->{content} : undef;
}

# Returns the members as one of the nodes knows them: "n1 leader running, n2 sync_standby running"
sub members
{
	foreach my $node (@nodes)
	{
		my $cluster = rest($node, 'cluster') or next;

		return join ', ', map { "$_->{name} $_->{role} $_->{state}" } sort { $a->{name} cmp $b->{name} } @{ decode_json($cluster)->{members} };
	}
	return '';
}

#
# Where clients find the primary: as a proxy does, by asking each Patroni
#

# Keeps a file that has the name of the primary.
sub follow_primary
{
	$follower_pid = fork // die "fork: $!";
	return if $follower_pid != 0;
	while (getppid() == $parent)
	{
		my ($found) = grep { defined rest($_, 'primary') } @nodes;

		append_to_file("$dir/primary.new", $found ? $found->name : '');
		rename("$dir/primary.new", "$dir/primary") or last;
		sleep(0.05);
	}
	POSIX::_exit(0);
}

# Returns the primary, or undef if there is none.
sub primary
{
	my $name = -e "$dir/primary" ? slurp_file("$dir/primary") : '';

	return (grep { $_->name eq $name } @nodes)[0];
}

1;
