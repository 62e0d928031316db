# Logical replication brings rows of another cluster.  Its session locks and runs count as
# leases, before and after the subscriber takes over, because their holders may be alive
# at the publisher.  The subscriber's own ones are held as ever.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $dbname = 'postgres';
my $tables = 'shedlock, _shedlock_tick, _shedlock_history, _shedlock_stats';
my ($raise) = slurp_file("$FindBin::RealBin/../../doc/operations.md") =~ /(SELECT setval\('shedlock_token_seq', max.*?;)/s;

# Holds a session lock and a run.
sub hold_locks
{
	my ($node, $suffix) = @_;
	my ($holder, $runner) = (session($node), session($node));

	ask($holder, "SELECT shedlock_acquire_session('leader$suffix')");
	$runner->query_until(qr/running/, qq{\\echo running\nCALL shedlock_run('job$suffix', 'SELECT pg_sleep(600)');\n});
	ok(defined await($node, "SELECT count(*) = 2 FROM shedlock_locks WHERE name IN ('leader$suffix', 'job$suffix')"), "the locks$suffix are held");
	return ($holder, $runner);
}

sub states
{
	my ($node, $suffix) = @_;

	return $node->safe_psql($dbname,
		"SELECT string_agg(coalesce(l.state, 'free'), ' ' ORDER BY n.name) FROM unnest(ARRAY['leader$suffix', 'job$suffix']) n(name) LEFT JOIN shedlock_locks l USING (name)");
}

sub acquired
{
	my ($node, $suffix) = @_;

	return $node->safe_psql($dbname, "SELECT shedlock_acquire_session('leader$suffix') || ' ' || shedlock_acquire('job$suffix')");
}

sub timeline
{
	my ($node) = @_;

	return $node->safe_psql($dbname, 'SELECT timeline_id FROM pg_control_checkpoint()');
}

sub replicated
{
	my ($node, $name) = @_;

	return ok(defined await($node, "SELECT count(*) = 1 FROM shedlock WHERE name = '$name'"), "the row of \"$name\" is replicated");
}

# Each returns the subscriber, and sees that the servers have timelines of one number.
my %ways = (
	'CREATE SUBSCRIPTION' => sub {
		my ($publisher) = @_;
		my $subscriber = start_node('subscriber', force_initdb => 1);
		my $url = $publisher->connstr . " dbname=$dbname";

		$publisher->safe_psql($dbname, "CREATE PUBLICATION locks FOR TABLE $tables");
		$subscriber->safe_psql($dbname, "CREATE SUBSCRIPTION locks CONNECTION '$url' PUBLICATION locks");
		ok(defined await($subscriber, q{SELECT count(*) = 4 FROM pg_subscription_rel WHERE srsubstate = 'r'}), 'the tables are copied');
		return $subscriber;
	},
	'pg_createsubscriber' => sub {
		my ($publisher) = @_;
		my $subscriber = PostgreSQL::Test::Cluster->new('converted');

		$publisher->backup('converted');
		$subscriber->init_from_backup($publisher, 'converted', has_streaming => 1);
		$subscriber->start;
		$publisher->wait_for_catchup($subscriber, 'replay', $publisher->lsn('insert'));
		$subscriber->stop;
		# makes a publication for all tables
		ok( PostgreSQL::Test::Utils::run_log(
				[   'pg_createsubscriber', '-D', $subscriber->data_dir, '-P', $publisher->connstr($dbname), '-d', $dbname, '-U', 'postgres',
					'-s', $subscriber->host, '-p', $subscriber->port, '--publication', 'locks', '--subscription', 'locks' ]),
			'pg_createsubscriber succeeds') or BAIL_OUT('pg_createsubscriber failed');
		$subscriber->start;
		return $subscriber;
	});

foreach my $way (sort keys %ways)
{
  SKIP:
	{
		(my $name = "publisher_$way") =~ s/\W+/_/g;
		my $publisher = start_node($name, allows_streaming => 'logical');

		if ($way eq 'pg_createsubscriber' && !-x $publisher->config_data('--bindir') . "/$way")
		{
			$publisher->stop;
			skip "PostgreSQL before 17 has no $way", 1;
		}

		# many tokens: the subscriber's sequence stays behind
		$publisher->safe_psql($dbname, q{SELECT count(*) FROM (SELECT shedlock_acquire('a lock ' || i, '1 ms') FROM generate_series(1, 100) i) l});
		my $lease = $publisher->safe_psql($dbname, q{SELECT shedlock_acquire_token('lease', '1 hour')});
		my @clients = hold_locks($publisher, '');
		my $subscriber = $ways{$way}->($publisher);
		isnt($subscriber->safe_psql($dbname, 'SELECT system_identifier FROM pg_control_system()'),
			$publisher->safe_psql($dbname, 'SELECT system_identifier FROM pg_control_system()'), "$way: the subscriber is another cluster");

		is(states($subscriber, ''), 'lost lost', "$way: the publisher's locks count as leases");
		is(acquired($subscriber, ''), 'false false', "$way: they cannot be acquired");
		is($subscriber->safe_psql($dbname, q{SELECT state FROM shedlock_locks WHERE name = 'lease'}), 'held', "$way: its lease is held");

		# As if the publisher had had a failover of its own
		unless (timeline($publisher) eq timeline($subscriber))
		{
			reap($_) foreach splice @clients;
			$publisher->stop('fast');
			$publisher->set_standby_mode;
			$publisher->start;
			$publisher->promote;
			ok(defined await($publisher, 'SELECT NOT pg_is_in_recovery()'), "$way: the publisher is promoted");
			$publisher->safe_psql($dbname, 'CHECKPOINT');
			$subscriber->safe_psql($dbname, 'CHECKPOINT');
			push @clients, hold_locks($publisher, ' promoted');
			replicated($subscriber, 'leader promoted');
			replicated($subscriber, 'job promoted');
		}
		is(timeline($publisher), timeline($subscriber), "$way: their timelines have the same number");

		# A session lock whose time ends soon; meanwhile there is work
		my $limit = int(5 * slowness($publisher)) . ' s';
		push @clients, session($publisher);
		ask($clients[-1], "SELECT shedlock_acquire_session('limited', '$limit')");

		my $own = session($subscriber);
		is(ask($own, q{SELECT shedlock_acquire_session('own')}), 't', "$way: the subscriber has a session lock of its own");
		push @clients, hold_locks($publisher, ' later');
		replicated($subscriber, 'leader later');
		replicated($subscriber, 'job later');
		foreach my $suffix ('', ($way eq 'pg_createsubscriber' ? ' promoted' : ()), ' later')
		{
			is(states($subscriber, $suffix), 'lost lost', "$way: the publisher's locks$suffix still count as leases")
			  or diag $subscriber->safe_psql($dbname, 'TABLE shedlock');
			is(acquired($subscriber, $suffix), 'false false', "$way: the locks$suffix still cannot be acquired");
		}
		is(states($publisher, ' later'), 'held held', "$way: they are held at the publisher");
		is($subscriber->safe_psql($dbname, q{SELECT outcome FROM shedlock_history WHERE name = 'job later'}), 'lost', "$way: the run is lost");
		is($subscriber->safe_psql($dbname, q{SELECT state, pid IS NOT NULL FROM shedlock_locks WHERE name = 'own'}), 'held|t', "$way: the subscriber's own lock is held");
		is($subscriber->safe_psql($dbname, q{SELECT shedlock_acquire('own')}), 'f', "$way: it cannot be acquired");
		like(ask($own, q{SELECT shedlock_assert('own'), shedlock_extend('own', lock_at_most_for => '1 hour')}), qr/^\d+\|t$/, "$way: its session fences and extends it");
		kill_client($own);
		ok(defined await($subscriber, q{SELECT shedlock_acquire('own')}), "$way: it ends with its session");

		# The subscriber takes over.
		$publisher->safe_psql($dbname, q{SELECT shedlock_once('tick', '2026-01-01 00:00+00')});
		replicated($subscriber, 'limited');
		my $until = $subscriber->safe_psql($dbname, q{SELECT lock_until FROM shedlock WHERE name = 'limited'});
		ok(defined await($subscriber, q{SELECT count(*) = 1 FROM _shedlock_tick WHERE name = 'tick'}), "$way: the tick is replicated");
		$publisher->stop('fast');
		reap($_) foreach @clients;
		$subscriber->safe_psql($dbname, $_) foreach 'ALTER SUBSCRIPTION locks DISABLE', 'ALTER SUBSCRIPTION locks SET (slot_name = NONE)', 'DROP SUBSCRIPTION locks';

		# as the manual says
		my $largest = $subscriber->safe_psql($dbname, 'SELECT max(token) FROM shedlock');
		$subscriber->safe_psql($dbname, $raise);
		cmp_ok($subscriber->safe_psql($dbname, q{SELECT shedlock_acquire_token('a new name')}), '>', $largest, "$way: tokens keep growing");

		is(states($subscriber, ' later'), 'lost lost', "$way: after the takeover the locks count as leases");
		is(acquired($subscriber, ' later'), 'false false', "$way: after the takeover they cannot be acquired");
		is($subscriber->safe_psql($dbname, q{SELECT shedlock_force_release('leader later'), shedlock_force_release('job later')}), 't|t',
			"$way: they can be released by force");
		is(acquired($subscriber, ' later'), 'true true', "$way: then they are free");
		ok(defined await($subscriber, q{SELECT shedlock_acquire_session('limited')}), "$way: a session lock with a limit is free after that time");
		is($subscriber->safe_psql($dbname, "SELECT locked_at >= '$until' FROM shedlock WHERE name = 'limited'"), 't', "$way: and not before");
		is($subscriber->safe_psql($dbname, "SELECT shedlock_extend('lease', token => $lease), shedlock_release('lease', $lease), shedlock_acquire('lease')"),
			't|t|t', "$way: the token of a lease extends and releases it");
		is($subscriber->safe_psql($dbname, q{SELECT shedlock_once('tick', '2026-01-01 00:00+00'), shedlock_once('tick', '2026-01-02 00:00+00')}),
			'f|t', "$way: ticks stay claimed, and the next one can be claimed");
		$subscriber->stop('immediate');
	}
}

done_testing();
