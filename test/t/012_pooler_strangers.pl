# Who owns what, when a pooler gives one server process to one client after the
# other: in transaction mode the process proves nothing, and a session lock has
# no session; in session mode the pooler's reset is where a session ends.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PoolerNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

plan skip_all => 'there is no pgbouncer' unless find_pgbouncer();

my $node = start_node('main');
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN');

# Transaction mode, one server process: whatever one client does next, another
# one could do as well.
my $pooler = start_pooler($node, 'transaction', 1);
my $first = pooled_session($node, $pooler);
my $second = pooled_session($node, $pooler);
is(pid_of($first), pid_of($second), 'two clients have one server process');

# A lease without its token is that of the process.
my $token = ask($first, "SELECT shedlock_acquire_token('lease', '1 h')");
is(ask($second, "SELECT shedlock_extend('lease', lock_at_most_for => '2 h')"), 't', 'without require_token a stranger extends a lease');
is(ask($second, "SELECT shedlock_release('lease')"), 't', 'and releases it');
is(ask($first, "SELECT shedlock_release('lease', $token)"), 'f', 'its owner loses it');
like($first->{heard}, qr/WARNING: +lock "lease" is not held by token \d+\nDETAIL: +It was released/, 'and is told so');

# The setting comes with the role's new connections to the server.
$node->safe_psql('postgres', 'ALTER ROLE app SET shedlock.require_token = on');
terminate($node, pid_of($first));
ok(defined await($first, 'SHOW shedlock.require_token', 'on'), 'the role has require_token');
$token = ask($first, "SELECT shedlock_acquire_token('lease', '1 h')");
foreach my $call ("shedlock_extend('lease', lock_at_most_for => '2 h')", "shedlock_release('lease')", "shedlock_assert('lease')")
{
	is(ask($second, "SELECT $call"), '', "with require_token a stranger is refused $call");
	like($second->{heard}, qr/ERROR: +token of lock "lease" must not be null.*\nHINT: +Pass the token that shedlock_acquire_token returned/s, 'with a hint');
}
is(ask($second, "SELECT shedlock_release('lease', $token + 1)"), 'f', 'a wrong token is of no use');
is(ask($first, "SELECT shedlock_release('lease', $token)"), 't', 'the token is');

# A session lock belongs to the server process, and so to all of its clients.
is(ask($first, "SELECT shedlock_acquire_session('leader')"), 't', 'transaction mode: a session lock is taken');
is(ask($second, "SELECT shedlock_acquire_session('leader')"), 'f', 'it excludes other clients');
isnt($token = ask($second, "SELECT shedlock_token('leader')"), '', 'but any of them has its token');
is(ask($second, "SELECT shedlock_release('leader')"), 't', 'and releases it');
is(ask($first, "SELECT shedlock_acquire_session('leader')"), 't', 'taken again');
kill_client($first);
is(pooled($pooler, "SELECT shedlock_acquire_session('leader')"), 'f', 'when its client dies, it stays with the process');
is($node->safe_psql('postgres', "SELECT state, kind FROM shedlock_locks WHERE name = 'leader'"), 'held|session', 'as long as that lives');
$node->safe_psql('postgres', "SELECT shedlock_force_release('leader')");
ok(defined await($second, "SELECT shedlock_acquire_session('leader')"), 'force_release ends that process and the lock');
ask($second, "SELECT shedlock_release('leader')");

# At its time the server ends the process, whoever is in it.
is(ask($second, "SELECT shedlock_acquire_session('timed', '5 s')"), 't', 'one with lock_at_most_for');
my ($out, $err) = pooled($pooler, 'SELECT pg_sleep(60)');
like($err, qr/FATAL: +terminating connection due to administrator command/, 'ends the statement of another client at its time');
reap($second);
is($node->safe_psql('postgres', "SELECT shedlock_acquire('timed')"), 't', 'and is free then');
stop_pooler($pooler);
$node->safe_psql('postgres', 'ALTER ROLE app RESET ALL');

# Several processes: the owner of a session lock may not find its own.
$pooler = start_pooler($node, 'transaction', 2);
$first = pooled_session($node, $pooler);
$second = pooled_session($node, $pooler);
is(ask($first, "SELECT shedlock_acquire_session('lost')"), 't', 'two processes: a session lock is taken in one');
my $holder = $node->safe_psql('postgres', "SELECT pid FROM shedlock WHERE name = 'lost'");
$token = $node->safe_psql('postgres', "SELECT token FROM shedlock WHERE name = 'lost'");
my $blocker = pooled_session($node, $pooler);
foreach my $try (1 .. 20)
{
	last if ask($blocker, 'BEGIN; SELECT pg_backend_pid()') eq $holder;
	ask($blocker, 'COMMIT');
}
isnt(pid_of($first), $holder, 'another client is in that process');
is(ask($first, "SELECT shedlock_release('lost')"), 'f', 'its owner cannot release it');
is(ask($first, "SELECT shedlock_release('lost', $token)"), '', 'nor by its token');
like($first->{heard}, qr/ERROR: +lock "lost" is held by another session/, 'and is told why');
is(ask($first, "BEGIN; SELECT shedlock_assert('lost', $token); COMMIT; SELECT 1"), "$token\n1", 'but the token fences from anywhere');
ask($blocker, 'COMMIT');
reap($_) foreach $first, $second, $blocker;
stop_pooler($pooler);
ok(defined await($node, "SELECT count(*) = 0 FROM shedlock_locks WHERE name = 'lost'"), 'it is free when its process is gone');

# A client that never got a server process has taken nothing.
$pooler = start_pooler($node, 'transaction', 1, 'query_wait_timeout = 1');
$first = pooled_session($node, $pooler);
ask($first, 'BEGIN; SELECT 1');
($out, $err) = pooled($pooler, "SELECT shedlock_acquire('queued', '1 h')");
like($err, qr/query_wait_timeout/, 'a client waits for a process in vain');
ask($first, 'COMMIT');
is($node->safe_psql('postgres', "SELECT count(*) FROM shedlock WHERE name = 'queued'"), '0', 'and holds nothing');
reap($first);
stop_pooler($pooler);

# Session mode, one process: a client that goes away leaves it to the next one,
# and the reset between them ends what was of the session.
$pooler = start_pooler($node, 'session', 1, 'server_reset_query = DISCARD ALL');
my $waiter = session($node);
my $pid = pooled($pooler, 'SELECT pg_backend_pid()');
is(pooled($pooler, "SELECT shedlock_acquire_session('session'), shedlock_acquire('lease of one', '1 h')"), 't|t',
	'session mode: a client takes a session lock and a lease, and goes');
my $took = seconds { is(ask($waiter, "SELECT shedlock_acquire('session', wait => '60 s')"), 't', 'the session lock is free with the reset') };
cmp_ok($took, '<', 30, 'soon');
ask($waiter, "SELECT shedlock_release('session')");
is(pooled($pooler, 'SELECT pg_backend_pid()'), $pid, 'the next client has the same process');
($out, $err) = pooled($pooler, "SELECT shedlock_release('lease of one')");
is($out, 'f', 'which has forgotten the lease');
like($err, qr/WARNING: +lock "lease of one" is not held by this session\nDETAIL: +This session was reset/, 'and says so');
is(pooled($pooler, "SELECT shedlock_token('lease of one') IS NULL"), 't', 'nor does it give its token away');
$token = $node->safe_psql('postgres', "SELECT token FROM shedlock WHERE name = 'lease of one'");
is(pooled($pooler, "SELECT shedlock_release('lease of one', $token)"), 't', 'its token still owns it');

# Neither does the timer of a session lock outlive its client, nor the end of a
# client that is killed.
is(pooled($pooler, "SELECT shedlock_acquire_session('timer', '5 s')"), 't', 'a session lock with lock_at_most_for');
is(pooled($pooler, "SELECT pg_sleep(6), pg_backend_pid()"), "|$pid", 'does not end the next client of its process');
$first = pooled_session($node, $pooler);
ask($first, "SELECT shedlock_acquire_session('killed')");
is(ask($first, "SELECT shedlock_release('killed') AND shedlock_acquire_session('killed')"), 't', 'a client releases a session lock, and takes it again');
kill_client($first);
ok(defined await($node, "SELECT shedlock_acquire('killed')"), 'it is killed, and the lock is free');
stop_pooler($pooler);

# Without a reset a session goes on with the next client: that is not our
# session lock's end.
$pooler = start_pooler($node, 'session', 1, 'server_reset_query =');
is(pooled($pooler, "SELECT shedlock_acquire_session('no reset')"), 't', 'without server_reset_query a client takes a session lock and goes');
is(pooled($pooler, "SELECT shedlock_release('no reset')"), 't', 'the next one has it');
stop_pooler($pooler);

# Twenty clients that come and go, over three processes.
$node->safe_psql(
	'postgres', q{
TRUNCATE shedlock, shedlock_run_log;
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

# Takes the lock in one of the forms, counts, and gives it back or not.
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
		  or die "a living lease was lost\n";
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
	is(crowd(20, 15, sub { rand(1) < 0.2 ? killed_client(sub { one_visit(1) }) : one_visit(0) }), '', '20 clients come and go over three server processes: no error');
	nothing_left($node, 'true');
	note($node->safe_psql('postgres', 'SELECT how, count(*) FROM taken GROUP BY 1 ORDER BY 1'));
	is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT how FROM taken GROUP BY how HAVING count(*) >= 20) t'), '3', 'all three forms were used');
	stop_pooler($pooler);
}

$node->stop;
done_testing();
