# Behind a pooler in transaction mode each statement may meet another server
# process: leases by token and guarded commands do not mind.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } (split(/:/, $ENV{PATH}), '/usr/sbin');
unless ($pgbouncer)
{
	pass('nothing was tried: pgbouncer is not installed');
	done_testing();
	exit;
}

my $node = start_node('main');
my $dir = PostgreSQL::Test::Utils::tempdir_short;
my $port = PostgreSQL::Test::Cluster::get_free_port();

PostgreSQL::Test::Utils::append_to_file("$dir/users.txt", qq("app" ""\n));
PostgreSQL::Test::Utils::append_to_file(
	"$dir/pgbouncer.ini",
	"[databases]\npostgres = host=" . $node->host . ' port=' . $node->port . " dbname=postgres\n"
	  . "[pgbouncer]\nlisten_addr =\nlisten_port = $port\nunix_socket_dir = $dir\nauth_type = trust\n"
	  . "auth_file = $dir/users.txt\npool_mode = transaction\ndefault_pool_size = 3\n"
	  . "server_round_robin = 1\nignore_startup_parameters = extra_float_digits\nlogfile = $dir/log\n");
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; CREATE TABLE done (pid int); GRANT INSERT ON done TO app');
my $pooler;
END { $pooler->kill_kill if $pooler }
$pooler = IPC::Run::start([ $pgbouncer, '-q', "$dir/pgbouncer.ini" ], '<', \undef, '>', '/dev/null', '2>&1');

sub client
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'psql', '-XAtq', '-d', "host=$dir port=$port user=app dbname=postgres" ], '<', \$sql, '>', \$out, '2>', \$err);
	chomp $out;
	return wantarray ? ($out, $err) : $out;
}

my $up;
foreach my $try (1 .. 100)
{
	last if $up = client('SELECT 1') eq '1';
	select(undef, undef, undef, 0.1);
}
ok($up, 'the pooler is up');

# One client, several server processes; the pooler opens them as it needs them.
my @busy = map {
	IPC::Run::start([ 'psql', '-Xq', '-o', '/dev/null', '-c', 'SELECT pg_sleep(1)', "host=$dir port=$port user=app dbname=postgres" ])
} 1 .. 3;
$_->finish foreach @busy;
my $sql = join("\n", ('SELECT pg_backend_pid();') x 6);
my %pids = map { $_ => 1 } split /\n/, client($sql);
cmp_ok(scalar(keys %pids), '>', 1, 'statements of one client meet several server processes');

foreach my $round (1 .. 6)
{
	my ($out, $err) = client("SELECT shedlock_acquire_token('lease', '1 h') AS token \\gset\n"
		  . "SELECT shedlock_extend('lease', '2 h', token => :token);\n"
		  . "BEGIN; SELECT shedlock_assert('lease', :token); COMMIT;\n"
		  . "SELECT shedlock_acquire('lease');\n"
		  . "SELECT shedlock_release('lease', :token);\n");
	is("$out$err", "t\n\nf\nt", "round $round: a lease is extended, asserted and released by its token");
}

# A client who has no token must not be taken for the one that had the process before.
my $token = client("SELECT shedlock_acquire_token('mine', '1 h')");
my $stolen = 0;
foreach my $try (1 .. 6)
{
	$stolen++ if client("BEGIN; SET LOCAL shedlock.require_token = on; SELECT shedlock_release('mine'); COMMIT") =~ /t/;
}
is($stolen, 0, 'with require_token nobody releases what another client took in the same process');
is(client("SELECT shedlock_release('mine', $token)"), 't', 'its token does');

my ($out, $err) = client("CALL shedlock_run('run', 'INSERT INTO done SELECT pg_backend_pid()', '1 min');\n" x 6);
is($err, '', 'guarded commands run');
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT pid) > 1 FROM done"), '6|t', 'in several server processes');
is($node->safe_psql('postgres', 'SELECT outcome, count(*) FROM shedlock_history GROUP BY 1'), 'succeeded|6', 'and all have succeeded');
is($node->safe_psql('postgres', "SELECT count(*) FROM shedlock_locks WHERE name IN ('lease', 'mine', 'run')"), '0', 'nothing is left behind');

$pooler->kill_kill;
undef $pooler;
$node->stop;
done_testing();
