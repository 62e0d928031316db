# A timeline ends with a shutdown checkpoint, as in a planned switchover: its session
# locks and runs are free at once.  If that is not proved, they count as leases.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $dbname = 'postgres';

# Holds a session lock and a run, and one session lock that has an at-least time.
sub hold_locks
{
	my ($node, $suffix) = @_;
	my ($holder, $runner) = (session($node), session($node));

	ask($holder, "SELECT shedlock_acquire_session('leader$suffix'), shedlock_acquire_session('kept$suffix', lock_at_least_for => '1 hour')");
	$runner->query_until(qr/running/, qq{\\echo running\nCALL shedlock_run('job$suffix', 'SELECT pg_sleep(600)');\n});
	ok(defined await($node, "SELECT count(*) = 3 FROM shedlock_locks WHERE name LIKE '%$suffix'"), "the locks$suffix are held");
	return ($holder, $runner);
}

sub start_pair
{
	my ($name, %options) = @_;
	my $primary = start_node("${name}_1", allows_streaming => 1, conf => $options{conf});
	my $standby = start_standby($primary, "${name}_2");

	return ($primary, $standby, hold_locks($primary, ''));
}

# What the views of a new primary say of the locks, and whether they can be acquired
sub states
{
	my ($node, $suffix) = @_;
	my $locks = join ', ', map { "'$_$suffix'" } 'leader', 'kept', 'job';

	return $node->safe_psql($dbname,
		"SELECT string_agg(coalesce(l.state, 'free'), ' ' ORDER BY n.name) FROM unnest(ARRAY[$locks]) n(name) LEFT JOIN shedlock_locks l USING (name)");
}

sub acquired
{
	my ($node, $suffix) = @_;

	return $node->safe_psql($dbname,
		"SELECT shedlock_acquire_session('leader$suffix') || ' ' || shedlock_acquire('kept$suffix') || ' ' || shedlock_acquire('job$suffix')");
}

sub proofs
{
	my ($node) = @_;

	return $node->safe_psql($dbname, 'SELECT count(*) FROM shedlock_timeline');
}

# Writes the WAL into other segments until that of the switch is gone.
sub recycle_wal
{
	my ($node) = @_;
	my $segment = $node->safe_psql($dbname, 'SELECT pg_walfile_name(pg_current_wal_insert_lsn())');
	my $is_gone = "SELECT count(*) = 0 FROM pg_ls_waldir() WHERE right(name, 16) <= right('$segment', 16) AND name ~ '^[0-9A-F]{24}\$'";

	for (my $try = 0; $try < 10 && $node->safe_psql($dbname, $is_gone) ne 't'; $try++)
	{
		$node->safe_psql($dbname, 'SELECT pg_switch_wal()') foreach 1 .. 3;
		$node->safe_psql($dbname, 'CHECKPOINT');
	}
	is($node->safe_psql($dbname, $is_gone), 't', 'the WAL of the switch is gone');
	return;
}

my $small_wal = "min_wal_size = 32MB\nmax_wal_size = 32MB\nwal_keep_size = 0\nwal_recycle = off\n";

#
# A planned switchover
#
{
	my ($primary, $standby, @clients) = start_pair('planned', conf => $small_wal);
	my $started = $primary->safe_psql($dbname, "SELECT shedlock_acquire('lease', '1 hour')");

	ask(session($primary), "SELECT shedlock_acquire_session('later')");
	$primary->stop('fast');
	is($standby->safe_psql($dbname, 'SELECT string_agg(DISTINCT state, \' \') FROM shedlock_locks WHERE kind <> \'lease\''),
		'unknown', 'planned: a standby cannot tell');
	$standby->promote;

	is(states($standby, ''), 'free kept free', 'planned: the locks are free, but for the at-least time')
	  or diag $standby->safe_psql($dbname, 'TABLE shedlock');
	is($standby->safe_psql($dbname, q{SELECT outcome FROM shedlock_history WHERE name = 'job'}), 'lost', 'planned: the run is lost');
	is($standby->safe_psql($dbname, q{SELECT shedlock_why('job') LIKE '%free%'}), 't', 'planned: shedlock_why says so');
	is($standby->safe_psql($dbname, q{SELECT state FROM shedlock_locks WHERE name = 'lease'}), 'held', 'planned: a lease stays');
	is(proofs($standby), '0', 'planned: to look writes nothing');
	is(acquired($standby, ''), 'true false true', 'planned: the locks can be acquired, but for the at-least time');
	is(proofs($standby), '1', 'planned: the acquisition has written down that the timeline ended');
	like(error_of($standby, q{SELECT shedlock_assert('kept', (SELECT token FROM shedlock_locks WHERE name = 'kept'))}),
		qr/^55000/, 'planned: the former holder has lost its lock');
	is($standby->safe_psql($dbname, q{SELECT shedlock_extend('kept', (SELECT token FROM shedlock_locks WHERE name = 'kept'))}),
		'f', 'planned: it cannot be extended');
	is($standby->safe_psql($dbname, q{SELECT shedlock_force_release('kept'), shedlock_acquire('kept')}), 't|t',
		'planned: a lock that is kept can be released by force');

	recycle_wal($standby);
	is($standby->safe_psql($dbname, q{SELECT shedlock_acquire_session('later')}), 't', 'planned: what was proved is remembered');

	my ($holder) = hold_locks($standby, ' anew');
	is(states($standby, ' anew'), 'held held held', 'planned: locks of the new timeline are held');
	is(acquired($standby, ' anew'), 'false false false', 'planned: they cannot be acquired');
	kill_client($holder);
	ok(defined await($standby, "SELECT shedlock_acquire('leader anew')"), 'planned: they end with their session');
	$standby->stop('immediate');
}

#
# Ends that prove nothing
#
foreach my $end ('immediate', 'kill -9', 'none: the old primary lives on')
{
	(my $name = "unproved_$end") =~ s/\W+/_/g;
	my ($primary, $standby, @clients) = start_pair($name);

	$end eq 'immediate' ? $primary->stop('immediate') : $end eq 'kill -9' ? $primary->kill9 : undef;
	$standby->promote;
	is(states($standby, ''), 'lost lost lost', "$end: the locks count as leases");
	is(acquired($standby, ''), 'false false false', "$end: they cannot be acquired");
	is(proofs($standby), '0', "$end: nothing is proved");
	$_->stop('immediate') foreach $standby, $end =~ /none/ ? $primary : ();
	bury($primary) if $end =~ /kill/;
}

#
# The WAL was recycled before a caller asked
#
{
	my ($primary, $standby, @clients) = start_pair('recycled', conf => $small_wal);

	$primary->stop('fast');
	$standby->promote;
	recycle_wal($standby);
	is(states($standby, ''), 'lost lost lost', 'recycled: the locks count as leases');
	is(acquired($standby, ''), 'false false false', 'recycled: they cannot be acquired');
	$standby->stop('immediate');
}

#
# Three timelines: a planned switchover, a crash, a planned switchover
#
{
	my ($first, $second, @clients) = start_pair('three');

	$first->stop('fast');
	$second->promote;
	$second->adjust_conf('postgresql.conf', 'synchronous_standby_names', "''");
	$second->reload;

	# the next servers do not have the WAL of the first end: the proof is in the table
	is($second->safe_psql($dbname, q{SELECT shedlock_acquire('job'), shedlock_release('job')}), 't|t', 'three: the second server proves the first end');
	my $third = start_standby($second, 'three_3');

	push @clients, hold_locks($second, ' second');
	$second->stop('immediate');
	$third->promote;
	my $fourth = start_standby($third, 'three_4');
	push @clients, hold_locks($third, ' third');
	$third->stop('fast');
	$fourth->promote;

	is(states($fourth, ''), 'free kept free', 'three: what the first planned end has left is free');
	is(states($fourth, ' second'), 'lost lost lost', 'three: what the crash has left counts as leases');
	is(states($fourth, ' third'), 'free kept free', 'three: what the last planned end has left is free');
	is(acquired($fourth, ''), 'true false true', 'three: the first can be acquired');
	is(acquired($fourth, ' second'), 'false false false', 'three: the second cannot');
	is(acquired($fourth, ' third'), 'true false true', 'three: the third can');
	is(proofs($fourth), '2', 'three: two timelines are written down');
	$fourth->stop('immediate');
}

#
# Point-in-time recovery, before, at and after a shutdown
#
{
	my $origin = start_node('origin', has_archiving => 1, allows_streaming => 1);

	$origin->backup('base');
	my @clients = hold_locks($origin, '');
	my $before = $origin->safe_psql($dbname, 'SELECT pg_current_wal_insert_lsn()');
	$origin->safe_psql($dbname, 'CREATE TABLE filler AS SELECT 1');
	$origin->stop('fast');
	my ($control) = run_command([ 'pg_controldata', $origin->data_dir ]);
	my ($shutdown) = $control =~ /Latest checkpoint location: +(\S+)/;
	$origin->start;
	my ($holder) = hold_locks($origin, ' after');
	my $after = $origin->safe_psql($dbname, 'SELECT pg_current_wal_insert_lsn()');
	$origin->safe_psql($dbname, 'CREATE TABLE more AS SELECT 1; SELECT pg_switch_wal()');
	$origin->poll_query_until($dbname, "SELECT last_archived_wal IS NOT NULL AND last_archived_wal >= pg_walfile_name('$after') FROM pg_stat_archiver")
	  or BAIL_OUT('the WAL is not archived');

	foreach ([ before => $before, 'lost lost lost' ], [ at => $shutdown, 'free kept free' ], [ after => $after, 'free kept free', 'lost lost lost' ])
	{
		my ($when, $lsn, $states, $states_after) = @$_;
		my $node = PostgreSQL::Test::Cluster->new("recovered_$when");

		$node->init_from_backup($origin, 'base', has_restoring => 1, standby => 0);
		$node->append_conf('postgresql.conf', "recovery_target_lsn = '$lsn'\nrecovery_target_action = promote\narchive_mode = off\n");
		$node->start;
		$node->poll_query_until($dbname, 'SELECT NOT pg_is_in_recovery()') or BAIL_OUT('recovery does not end');
		# the shutdown of a server whose timeline went on does not end that timeline
		is(states($node, ''), $when eq 'after' ? 'lost lost lost' : $states, "recovered $when the shutdown");
		is(states($node, ' after'), $states_after, 'locks of the time after the shutdown') if $states_after;
		$node->stop('immediate');
	}
	$origin->stop('immediate');
}

done_testing();
