# A PgBouncer in front of a server, and its clients.
package PoolerNode;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use File::Temp;
use IPC::Run;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(find_pgbouncer start_pooler stop_pooler restart_pooler pooled pooled_url
  pooled_session pooled_dbh crowd killed_client nothing_left);

my @poolers;

# Debian installs it in a folder that is not in an ordinary user's PATH.
sub find_pgbouncer
{
	my ($found) = grep { -x } map { "$_/pgbouncer" } (split(/:/, $ENV{PATH}), '/usr/sbin');

	return $found;
}

# Starts a pooler for role app in database postgres, with optional further lines of
# configuration.  Returns once it answers.
sub start_pooler
{
	my ($node, $mode, $size, @lines) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short;
	my $pooler = { dir => $dir, port => PostgreSQL::Test::Cluster::get_free_port(), log => "$dir/log" };

	PostgreSQL::Test::Utils::append_to_file("$dir/users.txt", qq("app" ""\n));
	PostgreSQL::Test::Utils::append_to_file(
		"$dir/pgbouncer.ini",
		join("\n",
			'[databases]',
			'postgres = host=' . $node->host . ' port=' . $node->port . ' dbname=postgres',
			'[pgbouncer]',
			'listen_addr =',
			"listen_port = $pooler->{port}",
			"unix_socket_dir = $dir",
			'auth_type = trust',
			"auth_file = $dir/users.txt",
			"pool_mode = $mode",
			"default_pool_size = $size",
			'server_round_robin = 1',
			'ignore_startup_parameters = extra_float_digits',
			"logfile = $dir/log",
			@lines, ''));
	push @poolers, $pooler;
	return run_pooler($pooler);
}

# Returns once the pooler answers.
sub run_pooler
{
	my ($pooler) = @_;
	my $dir = $pooler->{dir};

	$pooler->{run} = IPC::Run::start([ find_pgbouncer(), '-q', "$dir/pgbouncer.ini" ], '<', \undef, '>', '/dev/null', '2>&1');
	foreach my $try (1 .. 300)
	{
		return $pooler if pooled($pooler, 'SELECT 1') eq '1';
		sleep(0.1);
	}
	die "pgbouncer does not answer:\n" . PostgreSQL::Test::Utils::slurp_file($pooler->{log});
}

sub stop_pooler
{
	my ($pooler) = @_;

	$pooler->{run}->kill_kill(grace => 5) if $pooler->{run};
	delete $pooler->{run};
	return;
}

sub restart_pooler
{
	my ($pooler) = @_;

	stop_pooler($pooler);
	return run_pooler($pooler);
}

END { stop_pooler($_) foreach @poolers }

sub pooled_url
{
	my ($pooler) = @_;

	return "host=$pooler->{dir} port=$pooler->{port} user=app dbname=postgres";
}

# Returns stdout and stderr of a client that connects, sends this, and disconnects.  psql
# reads a file, because a pipe could break: psql reads nothing while the pooler does not
# answer.
sub pooled
{
	my ($pooler, $sql, @options) = @_;
	my ($out, $err) = ('', '');
	my $file = File::Temp->new(DIR => $pooler->{dir});

	print $file $sql;
	close $file;
	IPC::Run::run([ 'psql', '-XAtq', @options, '-d', pooled_url($pooler) ], '<', $file->filename, '>', \$out, '2>', \$err);
	chomp $out;
	return wantarray ? ($out, $err) : $out;
}

# A client that stays connected, for ask() and similar functions.
sub pooled_session
{
	my ($node, $pooler) = @_;

	return session($node, extra_params => [ '-d', pooled_url($pooler) ]);
}

# A connection of DBI through the pooler, without statements prepared by the protocol.
sub pooled_dbh
{
	my ($pooler) = @_;
	my $url = pooled_url($pooler);

	require DBI;
	$url =~ s/ /;/g;
	return DBI->connect("dbi:Pg:$url", '', '',
		{ AutoCommit => 1, RaiseError => 1, PrintError => 0, PrintWarn => 0, AutoInactiveDestroy => 1, pg_server_prepare => 0 });
}

# Runs clients in processes of their own for a number of seconds; each client calls the
# code with its number repeatedly.  Returns their errors.
sub crowd
{
	my ($clients, $seconds, $code) = @_;
	my $errors = PostgreSQL::Test::Utils::tempdir . '/errors';
	my $end = time + $seconds;
	my @pids;

	foreach my $client (1 .. $clients)
	{
		my $pid = fork;

		die "fork: $!" unless defined $pid;
		if ($pid == 0)
		{
			srand($$);
			eval { $code->($client) while time < $end; };
			PostgreSQL::Test::Utils::append_to_file($errors, "client $client: $@\n") if $@;
			POSIX::_exit(0);
		}
		push @pids, $pid;
	}
	waitpid($_, 0) foreach @pids;
	return -e $errors ? PostgreSQL::Test::Utils::slurp_file($errors) : '';
}

# Kills a client: the code runs in a process of its own, which cannot disconnect.
sub killed_client
{
	my ($code) = @_;
	my $pid = fork;

	die "fork: $!" unless defined $pid;
	if ($pid == 0)
	{
		eval { $code->(); };
		kill 'KILL', $$;
	}
	waitpid($pid, 0);
	return;
}

# Returns shedlock's advisory locks, except the sentinels, which separate the leases of
# clients that use the same process in turn.
sub left_locks
{
	my ($node) = @_;

	return $node->safe_psql('postgres',
		"SELECT objsubid, mode, count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid IN (21324, 21325, 21327) GROUP BY 1, 2");
}

# Checks that many clients leave no lock held, no lost update, and no token out of order.
# runs: the rows of the log that count.
sub nothing_left
{
	my ($node, $runs) = @_;

	ok(defined await($node, 'SELECT count(*) = 0 FROM shedlock_locks'), 'no lock is held after the clients have ended');
	is(left_locks($node), '', 'no advisory lock is left');
	cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'"), '>=', 1,
		'the server processes still exist');
	is($node->safe_psql('postgres', "SELECT count(*) FROM _shedlock_history WHERE outcome <> 'succeeded' AND $runs"), '0', 'no run was lost, none is running');
	is($node->safe_psql('postgres', 'SELECT c.name, c.n - (SELECT count(*) FROM taken t WHERE t.name = c.name) FROM counters c ORDER BY 1'),
		"job 1|0\njob 2|0\njob 3|0", 'no update of a counter is lost');
	is($node->safe_psql('postgres',
			'SELECT count(*) FROM (SELECT token < lag(token) OVER (PARTITION BY name ORDER BY id) AS smaller FROM taken) t WHERE smaller'),
		'0', 'no holder has a smaller token than the holder before');
	return;
}

1;
