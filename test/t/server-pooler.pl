# With a pooler in transaction mode, the statements of one client may run in several
# server processes, and each process runs statements of several clients.  Leases by
# token and guarded commands work all the same, also when clients die.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run;
use PoolerNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

plan skip_all => 'this needs pgbouncer' unless find_pgbouncer();

my $node = start_node('main');
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; CREATE TABLE done (pid int); GRANT INSERT ON done TO app');
my $pooler = start_pooler($node, 'transaction', 3);
my ($out, $err);

# One client, several server processes; the pooler opens them on demand.
my @busy = map {
	IPC::Run::start([ 'psql', '-Xq', '-o', '/dev/null', '-c', 'SELECT pg_sleep(1)', pooled_url($pooler) ])
} 1 .. 3;
$_->finish foreach @busy;
my %pids = map { $_ => 1 } split /\n/, pooled($pooler, join("\n", ('SELECT pg_backend_pid();') x 6));
cmp_ok(scalar(keys %pids), '>', 1, 'statements of one client run in several server processes');

foreach my $round (1 .. 6)
{
	($out, $err) = pooled($pooler, "SELECT shedlock_acquire_token('lease', '1 h') AS token \\gset\n"
		  . "SELECT shedlock_extend('lease', :token, '2 h');\n"
		  . "BEGIN; SELECT shedlock_assert('lease', :token) = :token; COMMIT;\n"
		  . "SELECT shedlock_acquire('lease');\n"
		  . "SELECT shedlock_release('lease', :token);\n");
	is("$out$err", "t\nt\nf\nt", "round $round: a lease is extended, asserted and released by its token");
}

# Settings and statements of a session do not last in a pool; those of a transaction do.
is(pooled($pooler, "BEGIN; SET LOCAL shedlock.default_lock_at_most_for = '10 min'; SELECT shedlock_acquire_token('local') AS token \\gset\nCOMMIT;\n"
		  . "SELECT lock_until - locked_at FROM shedlock_locks WHERE name = 'local'; SELECT shedlock_release('local', :token)"),
	"00:10:00\nt", 'SET LOCAL sets the durations of its transaction');
is(pooled($pooler, "BEGIN; PREPARE p AS SELECT shedlock_acquire_token(\$1, \$2) AS token; EXECUTE p('prepared', '1 min') \\gset\nDEALLOCATE p; COMMIT;\n"
		  . "SELECT shedlock_release('prepared', :token)"),
	't', 'a statement is prepared and executed in one transaction');

($out, $err) = pooled($pooler, "CALL shedlock_run('run', 'INSERT INTO done SELECT pg_backend_pid()', '1 min');\n" x 6);
is($err, '', 'guarded commands run');
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT pid) > 1 FROM done"), '6|t', 'guarded commands run in several server processes');
is($node->safe_psql('postgres', 'SELECT outcome, count(*) FROM shedlock_history GROUP BY 1'), 'succeeded|6', 'all guarded commands have succeeded');

# psql's Ctrl-C goes through the pooler.
my $asker = IPC::Run::start([ 'psql', '-Xq', '-c', "CALL shedlock_run('cancel', 'SELECT pg_sleep(600)')", pooled_url($pooler) ],
	'>', '/dev/null', '2>', \$err);
ok(defined await($node, "SELECT count(*) = 1 FROM shedlock_locks l JOIN pg_stat_activity a USING (pid) WHERE l.name = 'cancel' AND a.wait_event = 'PgSleep'"),
	'a long command runs');
$asker->signal('INT');
$asker->finish;
like($err, qr/canceling statement due to user request/, 'the client cancels the command through the pooler');
ok(defined await($node, "SELECT count(*) = 0 FROM shedlock_locks WHERE name = 'cancel'"), 'the lock of the cancelled run is free');
is($node->safe_psql('postgres', "SELECT outcome FROM shedlock_history WHERE name = 'cancel'"), 'cancelled', 'the history shows the run as cancelled');

# A client that dies in its transaction has acquired nothing.
my $client = pooled_session($node, $pooler);
is(ask($client, "BEGIN; SELECT shedlock_acquire('dead'), shedlock_once('dead', '2026-01-01')"), 't|t', 'a client acquires a lock in a transaction');
is(pooled($pooler, "SELECT shedlock_acquire('dead')"), 'f', 'the uncommitted lock excludes others');
kill_client($client);
ok(defined await($node, "SELECT shedlock_acquire('dead') AND shedlock_once('dead', '2026-01-01')"), 'the client dies: the lock and the tick are free');
$node->safe_psql('postgres', "SELECT shedlock_force_release('dead')");

# A client that dies while its command runs does not end the command.
my $long = 2 * slowness($node);
killed_client(sub {
	my $dbh = pooled_dbh($pooler);

	$dbh->do("CALL shedlock_run('orphan', 'SELECT pg_sleep($long); INSERT INTO done VALUES (-1)')", { pg_async => 1 });
	await($node, "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'orphan'");
});
is(pooled($pooler, "SELECT shedlock_acquire('orphan')"), 'f', 'a run goes on when its client has died');
ok(defined await($node, "SELECT outcome = 'succeeded' FROM shedlock_history WHERE name = 'orphan'"), 'a run whose client has died completes');
is($node->safe_psql('postgres', 'SELECT count(*) FROM done WHERE pid = -1'), '1', 'a run whose client has died runs its command once');
stop_pooler($pooler);

# Twenty clients over three processes: counters that lose an update if two write at once.
$node->safe_psql(
	'postgres', q{
CREATE TABLE counters (name text PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 10);
CREATE TABLE taken (id bigserial, name text, token bigint, how text);
INSERT INTO counters SELECT 'job ' || i, 0 FROM generate_series(1, 3) i;
GRANT SELECT, INSERT, UPDATE ON counters, taken TO app;
GRANT SELECT ON shedlock TO app;
GRANT USAGE ON SEQUENCE taken_id_seq TO app;
CREATE PROCEDURE count_up(of_name text) LANGUAGE plpgsql AS $$
DECLARE
	before bigint;
BEGIN
	SELECT n INTO before FROM counters WHERE name = of_name;
	COMMIT;
	PERFORM pg_sleep(random() * 0.004);
	UPDATE counters SET n = before + 1 WHERE name = of_name;
	INSERT INTO taken(name, token, how) SELECT name, token, 'run' FROM shedlock WHERE name = of_name;
END
$$;
});

sub count_up
{
	my ($dbh, $name, $token) = @_;
	my ($n) = $dbh->selectrow_array('SELECT n FROM counters WHERE name = ?', undef, $name);

	select(undef, undef, undef, rand(0.004));
	$dbh->begin_work;
	$dbh->do('SELECT shedlock_assert(?, ?)', undef, $name, $token) if $token;
	$dbh->do('UPDATE counters SET n = ? WHERE name = ?', undef, $n + 1, $name);
	$dbh->do("INSERT INTO taken(name, token, how) VALUES (?, ?, 'lease')", undef, $name, $token);
	$dbh->commit;
	return;
}

# Ways to die: with a lease, in the transaction of an acquire, in a fence, and while a
# command runs.
sub die_somehow
{
	my ($name) = @_;
	my $way = int(rand(4));
	my $dbh = pooled_dbh($pooler);

	return $dbh->do("CALL shedlock_run('$name', 'CALL count_up(''$name'')')", { pg_async => 1 }) if $way == 3;
	$dbh->begin_work if $way == 1;
	my ($token) = $dbh->selectrow_array("SELECT shedlock_acquire_token(?, '200 ms')", undef, $name);
	return unless $token && $way == 2;
	$dbh->begin_work;
	$dbh->do('SELECT shedlock_assert(?, ?)', undef, $name, $token);
	$dbh->do('UPDATE counters SET n = -1 WHERE name = ?', undef, $name);
	return;
}

my %dbh;
sub one_round
{
	my ($client) = @_;
	my $name = 'job ' . (1 + int(rand(3)));
	my $what = rand;
	my $dbh = $dbh{$$} ||= pooled_dbh($pooler);

	if ($what < 0.05)
	{
		killed_client(sub { die_somehow($name) });
	}
	elsif ($what < 0.4)
	{
		$dbh->do("CALL shedlock_run('$name', 'CALL count_up(''$name'')')");
	}
	elsif (my ($token) = $dbh->selectrow_array("SELECT shedlock_acquire_token(?, '1 min')", undef, $name))
	{
		return unless defined $token;
		count_up($dbh, $name, $token);
		if (rand(1) < 0.3)
		{
			$dbh->selectrow_array("SELECT shedlock_extend(?, ?, '2 min')", undef, $name, $token)
			  or die "an unexpired lease was not extended\n";
			count_up($dbh, $name, $token);
		}
		$dbh->selectrow_array('SELECT shedlock_release(?, ?)', undef, $name, $token) or die "an unexpired lease was lost\n";
	}
	return;
}

SKIP:
{
	eval { require DBD::Pg; 1 } or skip('this needs the Perl module DBD::Pg', 1);

	$node->safe_psql('postgres', "ALTER ROLE app SET client_min_messages = error; ALTER ROLE app SET shedlock.require_token = on");
	$pooler = start_pooler($node, 'transaction', 3);
	# the more slowly, the longer
	my $enough = 'SELECT count(*) = 2 FROM (SELECT how FROM taken GROUP BY how HAVING count(*) >= 50) t';
	my $errors = '';
	foreach (1 .. 10)
	{
		$errors .= crowd(20, 15, \&one_round);
		last if $errors ne '' || answers($node, $enough, 't');
	}
	is($errors, '', '20 clients over three server processes: no error');
	nothing_left($node, "name LIKE 'job %'");
	is($node->safe_psql('postgres', "SELECT (SELECT count(*) FROM taken WHERE how = 'run') = (SELECT count(*) FROM _shedlock_history WHERE name LIKE 'job %')"),
		't', 'each run in the history has counted once');
	note($node->safe_psql('postgres', 'SELECT how, count(*) FROM taken GROUP BY 1 ORDER BY 1'));
	ok(answers($node, $enough, 't'), 'both leases and runs were used');
	stop_pooler($pooler);
	$node->safe_psql('postgres', 'ALTER ROLE app RESET ALL');
}

$node->stop;
done_testing();
