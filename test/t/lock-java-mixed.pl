# Services that use ShedLock and clients that use the extension's functions work on the
# same counters under the same locks.  No counter is safe without its lock, so: no
# update is lost, tokens grow, and no client gets an error that ShedLock's users would
# not expect.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep time);

eval { require DBD::Pg; 1 } or plan skip_all => 'this needs the Perl module DBD::Pg';
require ShedLockClient;

my $random_seconds = 60;
my $node = start_node('main');

$node->safe_psql(
	'postgres', q{
CREATE TABLE counters (name text PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 10);
-- each worker's own count, and the tokens in the order of their acquisitions
CREATE TABLE tallies (worker text, name text, n bigint NOT NULL, PRIMARY KEY (worker, name));
CREATE TABLE taken (id bigserial, name text, token bigint);
});

# Reads, sleeps and writes: an update is lost if another worker does so at the same time.
sub count_up
{
	my ($client, $worker, $name) = @_;
	my $dbh = $client->{dbh};
	my $n = $client->value('SELECT n FROM counters WHERE name = ?', $name);

	$dbh->do('INSERT INTO taken(name, token) SELECT name, token FROM shedlock WHERE name = ?', undef, $name);
	sleep(rand(0.004));
	$dbh->do('UPDATE counters SET n = ? WHERE name = ?', undef, $n + 1, $name);
	$dbh->do('INSERT INTO tallies VALUES (?, ?, 1) ON CONFLICT (worker, name) DO UPDATE SET n = tallies.n + 1',
		undef, $worker, $name);
	return;
}

# The workers: each tries once to acquire a lock, and returns whether it has counted.
# First those of the library, in both time modes and with both providers ...
sub by_library
{
	my ($client, $worker, $name) = @_;
	my $lock = $client->lock($name, 60, rand(1) < 0.2 ? 0.005 : 0);

	return 0 unless $lock;
	count_up($client, $worker, $name);
	if (rand(1) < 0.3)
	{
		$lock = $client->extend($lock, 60) or die "an unexpired lock was not extended\n";
		count_up($client, $worker, $name);
		$client->unlock($lock);
		return 2;
	}
	$client->unlock($lock);
	return 1;
}

# ... then those of the extension: a lease, a session lock
sub by_lease
{
	my ($client, $worker, $name) = @_;
	my $token = $client->value("SELECT shedlock_acquire_token(?, '1 min')", $name);

	return 0 unless $token;
	count_up($client, $worker, $name);
	die "an unexpired lease was not extended\n" if rand(1) < 0.3 && !$client->value('SELECT shedlock_extend(?)', $name);
	$client->value('SELECT shedlock_release(?, ?)', $name, $token) or die "an unexpired lease was lost\n";
	return 1;
}

sub by_session_lock
{
	my ($client, $worker, $name) = @_;

	return 0 unless $client->value('SELECT shedlock_acquire_session(?, ?)', $name, rand(1) < 0.5 ? undef : '1 min');
	# the lock_until in its row does not count
	$client->{dbh}->do('UPDATE shedlock SET lock_until = locked_at WHERE name = ?', undef, $name) if rand(1) < 0.5;
	count_up($client, $worker, $name);
	$client->value('SELECT shedlock_release(?)', $name) or die "a session lock was lost\n";
	return 1;
}

# More calls of both kinds, for the random calls
sub by_waiting
{
	my ($client, $worker, $name) = @_;

	return 0 unless $client->value("SELECT shedlock_acquire(?, '1 min', NULL, '20 ms')", $name);
	count_up($client, $worker, $name);
	$client->value('SELECT shedlock_release(?)', $name) or die "an unexpired lease was lost\n";
	return 1;
}

sub by_transaction
{
	my ($client, $worker, $name) = @_;
	my $dbh = $client->{dbh};
	my $done = 0;

	$dbh->begin_work;
	if ($client->value(rand(1) < 0.5 ? 'SELECT shedlock_acquire(?)' : 'SELECT shedlock_acquire_session(?)', $name))
	{
		sleep(rand(0.02));
		if (rand(1) < 0.5)
		{
			$dbh->commit;
			count_up($client, $worker, $name);
			$client->value('SELECT shedlock_release(?)', $name) or die "a lock was lost\n";
			return 1;
		}
	}
	$dbh->rollback;
	return 0;
}

sub by_run
{
	my ($client, $worker, $name) = @_;
	my $before = $client->value('SELECT coalesce((SELECT n FROM tallies WHERE worker = ? AND name = ?), 0)', $worker, $name);

	$client->{dbh}->do("CALL shedlock_run('$name', 'CALL count_up(''$worker'', ''$name'')')");
	return $client->value('SELECT coalesce((SELECT n FROM tallies WHERE worker = ? AND name = ?), 0)', $worker, $name) - $before;
}

# A late holder: its lease has expired when it continues, and it counts nothing.
sub by_late_holder
{
	my ($client, $worker, $name) = @_;

	if ($client->{statements} && rand(1) < 0.5)
	{
		my $lock = $client->lock($name, 0.002) or return 0;
		sleep(0.004);
		die "an expired lock was extended\n" if $client->extend($lock, 60);
	}
	elsif ($client->value("SELECT shedlock_acquire(?, '2 ms')", $name))
	{
		sleep(0.004);
		die "an expired lease was released\n" if $client->value('SELECT shedlock_release(?)', $name);
	}
	return 0;
}

sub by_pause
{
	my ($client, $worker, $name) = @_;

	$client->value('SELECT shedlock_pause(?)', $name);
	sleep(rand(0.01));
	$client->value('SELECT shedlock_resume(?)', $name);
	return 0;
}

my %forms = (
	'library, server time' => [ \&by_library, mode => 'db' ],
	'library, server time, JdbcTemplate' => [ \&by_library, mode => 'db', provider => 'template' ],
	'library, client time' => [ \&by_library, mode => 'client' ],
	'library, client time, JdbcTemplate' => [ \&by_library, mode => 'client', provider => 'template' ],
	'lease' => [ \&by_lease ],
	'another lease' => [ \&by_lease ],
	'session lock' => [ \&by_session_lock ],
	'another session lock' => [ \&by_session_lock ]);

# Runs a worker of each form in a process of its own; returns their errors.
sub workers
{
	my ($code) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir;
	my %pids;

	foreach my $worker (sort keys %forms)
	{
		my $pid = fork;

		die "fork: $!" unless defined $pid;
		if ($pid == 0)
		{
			srand($$);
			eval {
				my ($form, %options) = @{ $forms{$worker} };
				my $client = ShedLockClient->new($node, locked_by => $worker, %options);

				# the NOTICE of a skipped run
				$client->{dbh}->do('SET client_min_messages = error');
				$code->($client, $worker, $form);
			};
			PostgreSQL::Test::Utils::append_to_file("$dir/errors", "$worker: $@\n") if $@;
			POSIX::_exit(0);
		}
		$pids{$pid} = $worker;
	}
	waitpid($_, 0) foreach keys %pids;
	return -e "$dir/errors" ? PostgreSQL::Test::Utils::slurp_file("$dir/errors") : '';
}

sub sums_agree
{
	my ($claim) = @_;

	is( $node->safe_psql('postgres',
			'SELECT name, c.n - (SELECT sum(t.n) FROM tallies t WHERE t.name = c.name) FROM counters c WHERE c.n > 0 ORDER BY 1'),
		$node->safe_psql('postgres', 'SELECT name, 0 FROM counters WHERE n > 0 ORDER BY 1'),
		"$claim: no update is lost");
	is( $node->safe_psql('postgres',
			'SELECT count(*) FROM (SELECT token < lag(token) OVER (PARTITION BY name ORDER BY id) AS smaller FROM taken) t WHERE smaller'),
		0,
		"$claim: no holder has a smaller token than the holder before");
	return;
}

# How often a worker counts.  Four workers of each kind race for one lock, whose row
# does not exist yet.
my $rounds = 40;
my $errors;
$node->safe_psql('postgres', "INSERT INTO counters VALUES ('one', 0), ('unprotected', 0)");
$errors = workers(sub {
	my ($client, $worker, $form) = @_;
	my $done = 0;

	while ($done < $rounds)
	{
		my $counted = $form->($client, $worker, 'one');

		$done += $counted;
		sleep(0.001) unless $counted;
	}
});
is($errors, '', 'four services with ShedLock and four clients of the functions: no error');
cmp_ok($node->safe_psql('postgres', "SELECT n FROM counters WHERE name = 'one'"), '>=', 8 * $rounds, 'all workers have counted');
sums_agree('one lock');

# Proof that the counters need their locks
$errors = workers(sub {
	my ($client, $worker) = @_;
	count_up($client, $worker, 'unprotected') foreach 1 .. $rounds;
});
is($errors, '', 'the same without a lock: no error');
cmp_ok($node->safe_psql('postgres', "SELECT n FROM counters WHERE name = 'unprotected'"),
	'<', 8 * $rounds, 'updates are lost without a lock');

# Random calls of all kinds
$node->safe_psql(
	'postgres', q{
TRUNCATE counters, tallies, taken;
INSERT INTO counters SELECT 'job ' || i, 0 FROM generate_series(1, 6) i;
CREATE PROCEDURE count_up(of_worker text, of_name text) LANGUAGE plpgsql AS $$
DECLARE
	before bigint;
BEGIN
	SELECT n INTO before FROM counters WHERE name = of_name;
	INSERT INTO taken(name, token) SELECT name, token FROM shedlock WHERE name = of_name;
	COMMIT;
	PERFORM pg_sleep(random() * 0.004);
	UPDATE counters SET n = before + 1 WHERE name = of_name;
	INSERT INTO tallies VALUES (of_worker, of_name, 1) ON CONFLICT (worker, name) DO UPDATE SET n = tallies.n + 1;
END
$$;
});
my $end = time + $random_seconds;
$errors = workers(sub {
	my ($client, $worker, $form) = @_;
	my @others = $form == \&by_library ? (\&by_late_holder) :
	  (\&by_waiting, \&by_transaction, \&by_run, \&by_late_holder, \&by_pause, \&by_lease, \&by_session_lock);

	while (time < $end)
	{
		my $call = rand(1) < 0.6 ? $form : $others[ rand @others ];

		eval { $call->($client, $worker, 'job ' . (1 + int(rand(6)))); };

		# a name whose first use is in this transaction
		die $@ if $@ && $@ !~ /^LockException: SH001/;
		$client->clear_cache if rand(1) < 0.05;
		sleep(rand(0.005));
	}
});
is($errors, '', 'random calls of both kinds: no error');
note($node->safe_psql('postgres', 'SELECT worker, sum(n) FROM tallies GROUP BY 1 ORDER BY 1'));
is($node->safe_psql('postgres', 'SELECT count(DISTINCT worker) FROM tallies'), 8, 'all workers have counted in the random calls');
sums_agree('random calls');

$node->stop;
done_testing();
