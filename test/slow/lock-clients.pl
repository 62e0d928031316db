# Clients in eight languages use one lock.  Each client of test/clients is tested alone;
# then all clients race for one lock, and their log must show that no two of them held it
# at once.  The Java clients do not call the extension: they send ShedLock's statements,
# in JVMs of three time zones.  Local time other than UTC must be refused.
#
# Debian packages: libpq-dev libdbd-pg-perl python3-psycopg node-pg node-split2 node-xtend
# Programs: gcc libc6-dev python3 golang-go golang-github-lib-pq-dev ruby-pg php-cli php-pgsql default-jdk-headless libpostgresql-jdbc-java

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

# How often each client must win the race
my $rounds = 120;

my $sources = "$FindBin::RealBin/../clients";
my $dir = PostgreSQL::Test::Utils::tempdir;
my $jdbc = '/usr/share/java/postgresql.jar';
my ($include, $lib) = map { chomp(my $path = `pg_config --$_`); $path } qw(includedir libdir);
$ENV{NODE_PATH} //= '/usr/share/nodejs';

# For each language: a command that checks that its packages are here, the command that
# compiles its client, and the command that starts the client
my %languages = (
	python => [ '/usr/bin/python3 -c "import psycopg"', undef, '/usr/bin/python3', "$sources/replica.py" ],
	node => [ q(node -e 'require("pg")'), undef, 'node', "$sources/replica.js" ],
	go => [
		'go version && test -d /usr/share/gocode/src/github.com/lib/pq',
		"GO111MODULE=off GOPATH=/usr/share/gocode CGO_ENABLED=0 GOCACHE=$dir go build -o $dir/replica-go $sources/replica.go",
		"$dir/replica-go" ],
	ruby => [ 'ruby -r pg -e 1', undef, 'ruby', "$sources/replica.rb" ],
	php => [ 'php -m | grep -x pdo_pgsql', undef, 'php', "$sources/replica.php" ],
	perl => [ 'perl -MDBD::Pg -e 1', undef, 'perl', "$sources/replica.pl" ],
	c => [
		'gcc --version',
		"gcc -std=gnu99 -Wall -Wextra -Werror -O1 -I $include -L $lib -o $dir/replica-c $sources/replica.c -lpq",
		"$dir/replica-c" ],
	# a small JVM, because many JVMs start for a short time
	java => [
		"javac -version && test -e $jdbc",
		"javac -Xlint:all,-serial -Werror -cp $jdbc -d $dir $sources/Replica.java",
		qw(java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp), "$dir:$jdbc" ]);
my %zones = (utc => 'UTC', la => 'America/Los_Angeles', berlin => 'Europe/Berlin');

my $node = PostgreSQL::Test::Cluster->new('clients');
my %running;

# Starts a client; its output goes to a file.  The names of Java clients are java-TIME-ZONE.
sub start_client
{
	my ($client, $limit, @arguments) = @_;
	my ($language, $time, $zone) = split /-/, $client;
	my (undef, undef, @command) = @{ $languages{$language} };

	push @command, "-Duser.timezone=$zones{$zone}", 'Replica', $time if $language eq 'java';
	# JDBC does not connect to sockets of the file system.
	local @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD PGAPPNAME)} =
	  ($language eq 'java' ? '127.0.0.1' : $node->host, $node->port, 'app', 'postgres', 'of app', $client);
	$running{$client} = IPC::Run::start([ 'timeout', '-k', 5, $limit, @command, @arguments ], '<', \undef, '>&', "$dir/$client.log");
	return;
}

# Waits for a client; returns the last line of its output.
sub finish_client
{
	my ($client) = @_;

	(delete $running{$client})->finish;
	my ($last) = slurp_file("$dir/$client.log") =~ /(.*)\n\z/;
	return $last // '';
}

# Returns the answer of a client that tries once to acquire the lock.
sub client_says
{
	start_client($_[0], 30, @_[ 1, 2 ]);
	return finish_client($_[0]);
}

# An error counts as a wrong answer.
sub answer
{
	my ($status, $out, $err) = $node->psql('postgres', $_[0]);

	return $status == 0 ? $out : $err;
}

sub is_free
{
	my ($lock, $claim) = @_;

	is(answer("SELECT count(*) FROM shedlock_locks WHERE name = '$lock'"), '0', $claim);
	return;
}

sub client_alone
{
	my ($client) = @_;
	my $lock = "self-$client";

	is(client_says($client, 'once', $lock), 'ran', 'works when the lock is free');
	is_free($lock, 'releases the lock');

	my $token = answer("SELECT shedlock_acquire_token('$lock', '1 h')");
	is(client_says($client, 'once', $lock), 'refused', 'is refused while the lock is held');
	is(answer("SELECT shedlock_release('$lock', $token)"), 't', 'leaves the lock to its holder');

	start_client($client, 30, 'keep', $lock);
	ok(defined await($node, "SELECT count(*) = 1 FROM shedlock_locks WHERE name = '$lock' AND state = 'held'", 't', 15),
		'holds the lock while it works');
	is(answer("SELECT shedlock_acquire('$lock', '1 h')"), 'f', 'others are refused while it works');
	my $until = answer("SELECT lock_until FROM shedlock WHERE name = '$lock'");
	ok(defined await($node, "SELECT lock_until > '$until' FROM shedlock WHERE name = '$lock'", 't', 15), 'extends the lock');
	is(answer("SELECT shedlock_force_release('$lock')"), 't', 'loses the lock to an administrator');
	is(finish_client($client), 'lost', 'notices that the lock is lost');
	is_free($lock, 'leaves a lost lock alone');
	return;
}

# A Java client with the local time of a zone that is not UTC.
sub offender_alone
{
	my ($client) = @_;
	my $lock = "self-$client";
	my $rejected = qr/^22008 .*usingDbTime/;

	like(client_says($client, 'once', $lock), $rejected, 'is rejected when there is no row');
	is_free($lock, 'does not have the lock');

	my $token = answer("SELECT shedlock_acquire_token('$lock', '1 h')");
	like(client_says($client, 'once', $lock), $rejected, 'is rejected while the lock is held');
	# A clock ahead of UTC shows every lease as expired; one behind UTC shows none.
	like(client_says($client, 'warm', $lock), $client =~ /-berlin/ ? $rejected : qr/^refused$/, 'does not acquire the lock by its UPDATE');
	is(answer("SELECT shedlock_release('$lock', $token)"), 't', 'leaves the lock to its holder');

	# expired for a clock that is behind, too
	answer("UPDATE shedlock SET lock_until = lock_until - interval '1 day' WHERE name = '$lock'");
	like(client_says($client, 'warm', $lock), $rejected, 'is rejected with its UPDATE of a free lock');
	is_free($lock, 'does not acquire a free lock');
	return;
}

# JDBC needs TCP.  All other clients use the socket, in a folder closed to other users.
$node->init(extra => [qw(-U postgres -E UTF8 --locale=C.UTF-8)]);
$node->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'\nlog_line_prefix = '%m %a %e '\nmax_connections = 100\n");
unlink $node->data_dir . '/pg_hba.conf';
$node->append_conf('pg_hba.conf', "local all all trust\nhost postgres app 127.0.0.1/32 password\n");
$node->start;
# Role app has the setting that the documentation recommends for pools, and the
# privileges that ShedLock needs.  The view shows rounds that began before an earlier one
# had ended, or whose token is not larger.
answer(q{
CREATE EXTENSION shedlock;
CREATE ROLE app LOGIN PASSWORD 'of app';
ALTER ROLE app SET shedlock.require_token = on;
GRANT SELECT, INSERT, UPDATE ON shedlock TO app;

CREATE TABLE race_counter (value bigint NOT NULL);
INSERT INTO race_counter VALUES (0);
CREATE TABLE race_log (
	client text NOT NULL DEFAULT current_setting('application_name'),
	token bigint NOT NULL,
	started timestamptz NOT NULL,
	ended timestamptz NOT NULL DEFAULT clock_timestamp());
GRANT SELECT, UPDATE ON race_counter TO app;
GRANT INSERT ON race_log TO app;

CREATE VIEW race_fault AS
SELECT * FROM (
	SELECT *, max(ended) OVER earlier AS earlier_ended, max(token) OVER earlier AS earlier_token
	FROM race_log
	WINDOW earlier AS (ORDER BY started, ended ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) r
WHERE started < earlier_ended OR token <= earlier_token;
});

# A release of Debian may lack a package, but not 12.
my (@racers, @offenders);
foreach my $language (sort keys %languages)
{
	my ($here, $compile) = @{ $languages{$language} };
	my @log = (">$dir/$language.log", '2>&1');

  SKIP:
	{
		skip "the packages for $language are not here", 1
		  if system("($here) @log") != 0 && slurp_file('/etc/os-release') !~ /^VERSION_CODENAME=bookworm/m;

		ok(system("($here" . ($compile ? " && $compile" : '') . ") @log") == 0, "$language is ready")
		  or diag(slurp_file("$dir/$language.log")), next;
		push @racers, $language eq 'java' ? (map { ("java-db-$_", "java-utc-$_") } sort keys %zones) : $language;
	}
}
if (grep { /^java/ } @racers)
{
	push @racers, 'java-local-utc';
	@offenders = ('java-local-berlin', 'java-local-la');
}
foreach my $client (@racers, @offenders)
{
	subtest $client => grep({ $_ eq $client } @offenders) ? \&offender_alone : \&client_alone, $client;
}

# The lock is paused until all clients are ready, then the race begins.
cmp_ok(scalar @racers, '>', 1, 'a race of ' . join(' ', @racers, @offenders));
my $all = @racers * $rounds;
my $count = @racers + @offenders;
answer("SELECT shedlock_pause('race', reason => 'not yet')");
# A client ahead of UTC is rejected at each try; one behind UTC mostly sees the lock held.
start_client($_, 60 + $rounds, 'race', 'race', $_ eq 'java-local-berlin' ? $rounds * 10 : $rounds) foreach @racers, @offenders;
ok(defined await($node, "SELECT count(DISTINCT application_name) >= $count FROM pg_stat_activity WHERE usename = 'app'"),
	'all clients are ready');
is(answer('SELECT count(*) FROM race_log'), '0', 'no client acquires the lock while it is paused');
answer("SELECT shedlock_resume('race')");
foreach my $client (@racers, @offenders)
{
	my $wins = grep({ $_ eq $client } @offenders) ? 0 : $rounds;
	my $said = finish_client($client);

	like($said, qr/^$wins won, \d+ refused/, "$client wins $wins times: $said");
	is(answer("SELECT count(*) FROM race_log WHERE client = '$client'"), $wins, "the log has as many rounds of $client");
}
is(answer('SELECT count(*) FROM race_log'), $all, "all $all rounds are in the log");
is(answer('SELECT value FROM race_counter'), $all, 'the counter lost no update');
is(answer('SELECT * FROM race_fault WHERE started < earlier_ended'), '', 'no two rounds overlap');
is(answer('SELECT * FROM race_fault WHERE token <= earlier_token'), '', 'tokens grow in the order of the rounds');
cmp_ok(answer('SELECT count(*) FROM (SELECT client <> lag(client) OVER (ORDER BY started) AS other FROM race_log) r WHERE other'),
	'>', $all / 4, 'the clients took turns');
is(answer('INSERT INTO race_log SELECT client, token + 1, started, ended FROM race_log LIMIT 1; SELECT count(*) > 0 FROM race_fault WHERE started < earlier_ended'),
	't', 'the view would have shown an overlap');
is_deeply([ grep { / (?:ERROR|FATAL|PANIC):  / && !/ 22008 ERROR:  / } split /\n/, slurp_file($node->logfile) ],
	[], 'the server logged no error but the expected ones');

$node->stop;
done_testing();
