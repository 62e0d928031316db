# Ownership when a pooler gives one server process to several clients in turn.  In
# transaction mode the process proves nothing, and a session lock has no session; in
# session mode the pooler's reset ends the session.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PoolerNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

plan skip_all => 'this needs pgbouncer' unless find_pgbouncer();

my $node = start_node('main');
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN');

# Transaction mode, one server process: each client can do what any other can do.
my $pooler = start_pooler($node, 'transaction', 1);
my $first = pooled_session($node, $pooler);
my $second = pooled_session($node, $pooler);
is(pid_of($first), pid_of($second), 'two clients share one server process');

# A lease without its token belongs to the process.
my $token = ask($first, "SELECT shedlock_acquire_token('lease', '1 h')");
is(ask($second, "SELECT shedlock_extend('lease', lock_at_most_for => '2 h')"), 't', 'without require_token a stranger extends a lease');
is(ask($second, "SELECT shedlock_release('lease')"), 't', 'without require_token a stranger releases a lease');
is(ask($first, "SELECT shedlock_release('lease', $token)"), 'f', 'the release by its owner returns false');
like($first->{heard}, qr/WARNING: +lock "lease" is not held by token \d+\nDETAIL: +It was released/, 'a WARNING tells the owner that the lease was released');

# A role's setting applies to its new connections to the server.
$node->safe_psql('postgres', 'ALTER ROLE app SET shedlock.require_token = on');
terminate($node, pid_of($first));
ok(defined await($first, 'SHOW shedlock.require_token', 'on'), 'the role has require_token');
$token = ask($first, "SELECT shedlock_acquire_token('lease', '1 h')");
foreach my $call ("shedlock_extend('lease', lock_at_most_for => '2 h')", "shedlock_release('lease')", "shedlock_assert('lease')")
{
	is(ask($second, "SELECT $call"), '', "with require_token a stranger is refused $call");
	like($second->{heard}, qr/ERROR: +token of lock "lease" must not be null.*\nHINT: +Pass the token that shedlock_acquire_token returned/s, "the error for $call has a hint");
}
is(ask($second, "SELECT shedlock_release('lease', $token + 1)"), 'f', 'a wrong token does not release the lease');
is(ask($first, "SELECT shedlock_release('lease', $token)"), 't', 'the token releases the lease');

# A session lock belongs to the server process, and so to all clients of the process.
is(ask($first, "SELECT shedlock_acquire_session('leader')"), 't', 'transaction mode: a session lock is acquired');
is(ask($second, "SELECT shedlock_acquire_session('leader')"), 'f', 'the session lock is refused to other clients');
isnt($token = ask($second, "SELECT shedlock_token('leader')"), '', 'any client can read the token of the session lock');
is(ask($second, "SELECT shedlock_release('leader')"), 't', 'any client can release the session lock');
is(ask($first, "SELECT shedlock_acquire_session('leader')"), 't', 'the session lock is acquired again');
kill_client($first);
is(pooled($pooler, "SELECT shedlock_acquire_session('leader')"), 'f', 'a session lock stays with the process when its client dies');
is($node->safe_psql('postgres', "SELECT state, kind FROM shedlock_locks WHERE name = 'leader'"), 'held|session', 'a session lock is held as long as its process lives');
$node->safe_psql('postgres', "SELECT shedlock_force_release('leader')");
ok(defined await($second, "SELECT shedlock_acquire_session('leader')"), 'force_release ends that process and the lock');
ask($second, "SELECT shedlock_release('leader')");

# At its time the server ends the process, whichever client uses it.
is(ask($second, "SELECT shedlock_acquire_session('timed', '5 s')"), 't', 'a session lock with lock_at_most_for is acquired');
my ($out, $err) = pooled($pooler, 'SELECT pg_sleep(60)');
like($err, qr/FATAL: +terminating connection due to administrator command/, 'lock_at_most_for ends the statement of another client');
reap($second);
is($node->safe_psql('postgres', "SELECT shedlock_acquire('timed')"), 't', 'the session lock is free after that');
stop_pooler($pooler);
$node->safe_psql('postgres', 'ALTER ROLE app RESET ALL');

# Several processes: the owner of a session lock may get a different one.
$pooler = start_pooler($node, 'transaction', 2);
$first = pooled_session($node, $pooler);
$second = pooled_session($node, $pooler);
is(ask($first, "SELECT shedlock_acquire_session('lost')"), 't', 'two processes: a session lock is acquired in one');
my $holder = $node->safe_psql('postgres', "SELECT pid FROM shedlock WHERE name = 'lost'");
$token = $node->safe_psql('postgres', "SELECT token FROM shedlock WHERE name = 'lost'");
my $blocker = pooled_session($node, $pooler);
foreach my $try (1 .. 20)
{
	last if ask($blocker, 'BEGIN; SELECT pg_backend_pid()') eq $holder;
	ask($blocker, 'COMMIT');
}
isnt(pid_of($first), $holder, 'another client has that process');
is(ask($first, "SELECT shedlock_release('lost')"), 'f', 'the owner cannot release the session lock from another process');
is(ask($first, "SELECT shedlock_release('lost', $token)"), '', 'the token does not release the session lock from another process');
like($first->{heard}, qr/ERROR: +lock "lost" is held by another session/, 'the error says that another session holds it');
is(ask($first, "BEGIN; SELECT shedlock_assert('lost', $token); COMMIT; SELECT 1"), "$token\n1", 'the token fences from any process');
ask($blocker, 'COMMIT');
reap($_) foreach $first, $second, $blocker;
stop_pooler($pooler);
ok(defined await($node, "SELECT count(*) = 0 FROM shedlock_locks WHERE name = 'lost'"), 'the session lock is free when its process has ended');

# A client that never got a server process has acquired nothing.
$pooler = start_pooler($node, 'transaction', 1, 'query_wait_timeout = 1');
$first = pooled_session($node, $pooler);
ask($first, 'BEGIN; SELECT 1');
($out, $err) = pooled($pooler, "SELECT shedlock_acquire('queued', '1 h')");
like($err, qr/query_wait_timeout/, 'a client times out waiting for a process');
ask($first, 'COMMIT');
is($node->safe_psql('postgres', "SELECT count(*) FROM shedlock WHERE name = 'queued'"), '0', 'a client that timed out holds nothing');
reap($first);
stop_pooler($pooler);

# Session mode, one process: a client that disconnects leaves the process to the next
# one, and the reset between them ends what belonged to the session.
$pooler = start_pooler($node, 'session', 1, 'server_reset_query = DISCARD ALL');
my $waiter = session($node);
my $pid = pooled($pooler, 'SELECT pg_backend_pid()');
is(pooled($pooler, "SELECT shedlock_acquire_session('session'), shedlock_acquire('lease of one', '1 h')"), 't|t',
	'session mode: a client acquires a session lock and a lease, and disconnects');
my $took = seconds { is(ask($waiter, "SELECT shedlock_acquire('session', wait => '60 s')"), 't', 'the session lock is free after the reset') };
cmp_ok($took, '<', 30, 'the reset frees the session lock soon');
ask($waiter, "SELECT shedlock_release('session')");
is(pooled($pooler, 'SELECT pg_backend_pid()'), $pid, 'the next client has the same process');
($out, $err) = pooled($pooler, "SELECT shedlock_release('lease of one')");
is($out, 'f', 'the next client does not own the lease');
like($err, qr/WARNING: +lock "lease of one" is not held by this session\nDETAIL: +This session was reset/, 'a WARNING says that the session was reset');
is(pooled($pooler, "SELECT shedlock_token('lease of one') IS NULL"), 't', 'the next client cannot read the token of the lease');
$token = $node->safe_psql('postgres', "SELECT token FROM shedlock WHERE name = 'lease of one'");
is(pooled($pooler, "SELECT shedlock_release('lease of one', $token)"), 't', 'the token still releases the lease');

# The reset also ends the timer of a session lock, and the kill of a client frees its
# session lock.
is(pooled($pooler, "SELECT shedlock_acquire_session('timer', '5 s')"), 't', 'a client acquires a session lock with lock_at_most_for');
is(pooled($pooler, "SELECT pg_sleep(6), pg_backend_pid()"), "|$pid", 'the limit does not end the next client of its process');
$first = pooled_session($node, $pooler);
ask($first, "SELECT shedlock_acquire_session('killed')");
is(ask($first, "SELECT shedlock_release('killed') AND shedlock_acquire_session('killed')"), 't', 'a client releases a session lock, and acquires it again');
kill_client($first);
ok(defined await($node, "SELECT shedlock_acquire('killed')"), 'the client is killed: the lock is free');
stop_pooler($pooler);

# Without a reset the session continues with the next client, so the session lock does
# not end.
$pooler = start_pooler($node, 'session', 1, 'server_reset_query =');
is(pooled($pooler, "SELECT shedlock_acquire_session('no reset')"), 't', 'without server_reset_query a client acquires a session lock and disconnects');
is(pooled($pooler, "SELECT shedlock_release('no reset')"), 't', 'without server_reset_query the next client owns the session lock');
stop_pooler($pooler);

# Twenty clients that connect and disconnect, over three processes
$node->safe_psql(
	'postgres', q{
TRUNCATE shedlock, _shedlock_history;
CREATE TABLE counters (name text PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 10);
CREATE TABLE taken (id bigserial, name text, token bigint, how text);
INSERT INTO counters SELECT 'job ' || i, 0 FROM generate_series(1, 3) i;
GRANT SELECT, INSERT, UPDATE ON counters, taken TO app;
GRANT SELECT ON shedlock TO app;
GRANT USAGE ON SEQUENCE taken_id_seq TO app;
ALTER ROLE app SET client_min_messages = error;
CREATE PROCEDURE count_up(of_name text, how text) LANGUAGE plpgsql AS $$
DECLARE
	before bigint;
BEGIN
	SELECT n INTO before FROM counters WHERE name = of_name;
	COMMIT;
	PERFORM pg_sleep(random() * 0.004);
	UPDATE counters SET n = before + 1 WHERE name = of_name;
	INSERT INTO taken(name, token, how) SELECT name, token, count_up.how FROM shedlock WHERE name = of_name;
END
$$;
});

# Acquires the lock in one of the forms, counts, and releases it or not.
sub one_visit
{
	my ($killed) = @_;
	my $name = 'job ' . (1 + int(rand(3)));
	my $what = rand;
	my $dbh = pooled_dbh($pooler);

	if ($what < 0.3)
	{
		$dbh->do("CALL shedlock_run('$name', 'CALL count_up(''$name'', ''run'')')");
	}
	elsif ($what < 0.6)
	{
		my ($token) = $dbh->selectrow_array("SELECT shedlock_acquire_token(?, '1 min')", undef, $name);

		return unless $token;
		$dbh->do("CALL count_up('$name', 'lease')");
		$dbh->selectrow_array('SELECT shedlock_release(?' . (rand(1) < 0.5 ? ", $token)" : ')'), undef, $name)
		  or die "an unexpired lease was lost\n";
	}
	elsif (($dbh->selectrow_array('SELECT shedlock_acquire_session(?)', undef, $name))[0])
	{
		$dbh->do("CALL count_up('$name', 'session')");
		return if $killed;
		$dbh->selectrow_array('SELECT shedlock_release(?)', undef, $name) or die "a session lock was lost\n" if $what < 0.85;
	}
	$dbh->disconnect;
	return;
}

SKIP:
{
	eval { require DBD::Pg; 1 } or skip('this needs the Perl module DBD::Pg', 1);

	$pooler = start_pooler($node, 'session', 3, 'server_reset_query = DISCARD ALL');
	is(crowd(20, 15, sub { rand(1) < 0.2 ? killed_client(sub { one_visit(1) }) : one_visit(0) }), '', '20 clients connect and disconnect over three server processes: no error');
	nothing_left($node, 'true');
	note($node->safe_psql('postgres', 'SELECT how, count(*) FROM taken GROUP BY 1 ORDER BY 1'));
	is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT how FROM taken GROUP BY how HAVING count(*) >= 20) t'), '3', 'all three forms were used');
	stop_pooler($pooler);
}

$node->stop;
done_testing();
