# A timeline ends with a shutdown checkpoint, as in a planned switchover: its session
# locks and runs are free at once.  If that is not proved, they count as leases.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run ();
use PlantedFault;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep time);

my $dbname = 'postgres';

# Holds a session lock and a run, and one session lock that has an at-least time.
sub hold_locks
{
	my ($node, $suffix) = @_;
	my ($holder, $runner) = (session($node), session($node));

	ask($holder, "SELECT shedlock_acquire_session('leader$suffix'), shedlock_acquire_session('kept$suffix', lock_at_least_for => '1 hour')");
	$runner->query_until(qr/running/, qq{\\echo running\nCALL shedlock_run('job$suffix', 'SELECT pg_sleep(600)');\n});
	ok(defined await($node, "SELECT count(*) = 3 FROM shedlock_locks WHERE name LIKE '%$suffix'"), "the locks$suffix are held");
	await_second($node);
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

	return $node->safe_psql($dbname, 'SELECT count(*) FROM _shedlock_timeline');
}

# Writes the WAL into other segments until that of the switch is gone.
sub recycle_wal
{
	my ($node) = @_;
	my %small = (min_wal_size => '32MB', max_wal_size => '32MB', wal_keep_size => 0, wal_recycle => 'off');

	# not before: a standby that is slow must still find what it needs
	$node->adjust_conf('postgresql.conf', $_, "'$small{$_}'") foreach keys %small;
	$node->reload;
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

#
# A planned switchover
#
{
	my ($primary, $standby, @clients) = start_pair('planned');
	my $started = $primary->safe_psql($dbname, "SELECT shedlock_acquire('lease', '1 hour')");

	ask(session($primary), "SELECT shedlock_acquire_session('later')");
	await_second($primary);
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
	my ($primary, $standby, @clients) = start_pair('recycled');

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

#
# The old server is started again, and the promoted one subscribes to its locks
#
{
	my ($primary, $standby, @clients) = start_pair('both', conf => "wal_level = logical\n");

	$primary->stop('fast');
	$standby->promote;
	$standby->adjust_conf('postgresql.conf', 'synchronous_standby_names', "''");
	$standby->reload;
	$primary->adjust_conf('postgresql.conf', 'synchronous_standby_names', "''");
	$primary->start;

	$primary->safe_psql($dbname, 'CREATE PUBLICATION locks FOR TABLE shedlock');
	my $connstr = $primary->connstr($dbname) =~ s/'/''/gr;
	$standby->safe_psql($dbname, "CREATE SUBSCRIPTION locks CONNECTION '$connstr' PUBLICATION locks WITH (copy_data = false)");
	push @clients, hold_locks($primary, ' after');
	ok(defined await($standby, q{SELECT count(*) = 3 FROM shedlock WHERE name LIKE '% after'}), 'both: the locks are replicated');
	is(states($standby, ''), 'free kept free', 'both: what the shutdown has left is free');
	is(states($standby, ' after'), 'lost lost lost', 'both: what lives on the old server counts as leases');
	is(acquired($standby, ' after'), 'false false false', 'both: it cannot be acquired');
	is(acquired($standby, ''), 'true false true', 'both: what the shutdown has left can be acquired');
	is(states($standby, ' after'), 'lost lost lost', 'both: nor is it free after the proof was written down');
	$standby->safe_psql($dbname, 'DROP SUBSCRIPTION locks');
	$_->stop('immediate') foreach $primary, $standby;
}

#
# Several sessions acquire the first session locks of a cluster
#
{
	my $node = start_node('first');
	my $states = q{SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM shedlock_locks};

	foreach my $end ('COMMIT', 'ROLLBACK')
	{
		my ($early, $late) = (session($node), session($node));

		$node->safe_psql($dbname, 'DROP EXTENSION IF EXISTS shedlock; CREATE EXTENSION shedlock');
		ask($early, q{BEGIN; SELECT shedlock_acquire_session('early')});
		ask($late, q{SELECT shedlock_acquire_session('late')});
		ask($early, $end);
		ask($late, q{SELECT shedlock_acquire_session('more')});
		my $of_early = $end eq 'COMMIT' ? 'early held, ' : '';
		is(ask($_, $states), "${of_early}late held, more held", "first: $end of the first acquisition") foreach $early, $late;
		is(ask($late, q{SELECT shedlock_release('late')}), 't', "first: $end: the lock belongs to its session");
		kill_client($_) foreach $early, $late;
		ok(defined await($node, 'SELECT count(*) = 0 FROM shedlock_locks'), "first: $end: the locks end with their sessions");
	}

	my $session = session($node);
	foreach my $what ('a new extension', 'the same session and another extension')
	{
		ask($session, q{DROP EXTENSION IF EXISTS shedlock; CREATE EXTENSION shedlock;
			BEGIN; SAVEPOINT s; SELECT shedlock_acquire_session('a'); ROLLBACK TO s; SELECT shedlock_acquire_session('b'); COMMIT});
		is($node->safe_psql($dbname, $states), 'b held', "first: $what: a savepoint was rolled back");
		is(ask($session, $states), 'b held', "first: $what: as the session sees it");
		is(ask($session, q{SELECT shedlock_release('b')}), 't', "first: $what: it can be released");
	}

	# The lock changes hands, and loses its holder, between the two reads of an acquire.
	{
		my $late = start_node('late', conf => faulty_library(
				'lock/acquire.c', qq{#include "postgres.h"\n}, qq{#include "postgres.h"\n#include "utils/fmgrprotos.h"\n#include "utils/guc.h"\n},
				'lock/acquire.c', 'if (!ShedlockTryLock(',
				'if (strcmp(application_name, "late") == 0)
					(void) DirectFunctionCall1(pg_advisory_xact_lock_int8, Int64GetDatum(1));
				 if (!ShedlockTryLock('));
		my ($caller, $gate) = (session($late), session($late));

		ask($caller, q{BEGIN; SELECT shedlock_acquire_session('first'); ROLLBACK; SELECT shedlock_acquire('job'), shedlock_release('job')});
		ask($caller, q{SET application_name = 'late'});
		ask($gate, 'SELECT pg_advisory_lock(1)');
		$caller->query_until(qr/sent/, qq{\\echo sent\nSELECT shedlock_acquire('job');\n});
		ok(defined await($gate, q{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted}), 'first: an acquire has read the row');
		is($late->safe_psql($dbname, q{SELECT shedlock_acquire_session('job')}), 't', 'first: the lock has another holder meanwhile');
		ok(defined await($gate, q{SELECT count(*) = 0 FROM shedlock_locks}), 'first: which is gone');
		ask($gate, 'SELECT pg_advisory_unlock(1)');
		is(ask($caller, q{SELECT shedlock_release('job')}), "t\nt", 'first: so the lock is free');
		$_->quit foreach $caller, $gate;
		$late->stop('immediate');
	}

	# The WAL is read in the middle of a call.
	$node->safe_psql($dbname, q{SELECT shedlock_acquire('c'); UPDATE shedlock SET origin = 0, kind = 'session', lock_until = 'infinity' WHERE name = 'c'});
	is($node->safe_psql($dbname, q{BEGIN; DECLARE c CURSOR FOR SELECT state FROM shedlock_locks; SAVEPOINT s; FETCH ALL FROM c; ROLLBACK TO s; SELECT shedlock_acquire('c'); COMMIT}),
		"lost\nf", 'first: a timeline that never was counts as a lease');
	$session->quit;
	$node->stop('immediate');
}

#
# The shutdown checkpoint ends at the end of a page, and of a segment
#
sub lsn_bytes
{
	my ($lsn) = @_;
	my ($high, $low) = map { hex } split m{/}, $lsn;

	return $high * 2**32 + $low;
}

# Shuts a server down so that its WAL ends at a multiple of that number of bytes.
# Returns whether it does.
sub stop_at
{
	my ($node, $unit) = @_;
	my $is_19 = $node->safe_psql($dbname, q{SELECT current_setting('server_version_num')::int >= 190000}) eq 't';
	my ($page, $checkpoint, $overhead) = (8192, $is_19 ? 128 : 120, 24 + 5 + 24 + 1);
	my $where = 'SELECT pg_current_wal_insert_lsn()';
	my $emit = sub { $node->safe_psql($dbname, "SELECT 1 FROM pg_logical_emit_message(false, '', repeat('x', $_[0]))"); };
	my $left;

	for (my $step = 0; $step < 50; $step++)
	{
		$left = $unit - lsn_bytes($node->safe_psql($dbname, $where)) % $unit;
		last if $left > 1000 && $left < $page - 100;

		# into the last page: other pages have headers of 24 bytes
		$emit->($left <= 1000 ? 1500 : int(($left - $page) / $page) * ($page - 24) + 100);
	}
	$emit->($left - $checkpoint - $overhead);
	$node->stop('fast');
	my ($control) = run_command([ 'pg_controldata', $node->data_dir ]);
	my ($start) = $control =~ /Latest checkpoint location: +(\S+)/;
	return (lsn_bytes($start) + $checkpoint) % $unit == 0;
}

foreach ([ page => 8192 ], [ segment => 16 * 1024 * 1024 ])
{
	my ($what, $unit) = @$_;
	# or the checkpoint after the promotion removes the segment in which the switch is read
	my $primary = start_node("${what}_1", allows_streaming => 1, conf => "wal_keep_size = '64MB'\n");
	my $standby = start_standby($primary, "${what}_2");
	my ($hit, $holder);

	# another process may write something in between
	for (my $try = 1; $try <= 5; $try++)
	{
		$holder = session($primary);
		ask($holder, q{SELECT shedlock_acquire_session('leader')});
		await_second($primary);
		last if $hit = stop_at($primary, $unit);
		reap($holder);
		$primary->start;
	}
	$standby->promote;
	my ($switch) = slurp_file($standby->data_dir . '/pg_wal/00000002.history') =~ /^1\t(\S+)/m;

	diag("$what: the checkpoint was not placed there") unless $hit;
  SKIP:
	{
		skip "the WAL does not end at the end of a $what", 1 unless $hit;
		is(lsn_bytes($switch) % $unit, 0, "$what: the timeline ended at the end of a $what");
	}
	is($standby->safe_psql($dbname, q{SELECT count(*) FROM shedlock_locks}), '0', "$what: the lock is free");
	is($standby->safe_psql($dbname, q{SELECT shedlock_acquire('leader')}), 't', "$what: it can be acquired");
	$standby->stop('immediate');
}

#
# A cascaded standby: it follows the promoted one, and is then promoted itself
#
{
	my ($primary, $standby, @clients) = start_pair('cascade');
	my $last = PostgreSQL::Test::Cluster->new('cascade_3');

	$standby->backup('last');
	$last->init_from_backup($standby, 'last', has_streaming => 1);
	$last->start;
	$primary->stop('fast');
	$standby->promote;
	push @clients, hold_locks($standby, ' second');
	ok(defined await($last, q{SELECT count(*) = 3 FROM shedlock_locks WHERE name LIKE '% second'}), 'cascade: the last server follows');
	is(states($standby, ''), 'free kept free', 'cascade: the locks of the first are free');
	$standby->stop('fast');
	$last->promote;
	is(states($last, ''), 'free kept free', 'cascade: they are free at the last server');
	is(states($last, ' second'), 'free kept free', 'cascade: so are those of the second');
	is(acquired($last, $_), 'true false true', "cascade: the locks$_ can be acquired") foreach '', ' second';
	$last->stop('immediate');
}

#
# pg_rewind makes a standby of the old primary, which then takes over as planned
#
{
	my ($old, $new, @clients) = start_pair('rewind', conf => "wal_log_hints = on\nwal_keep_size = 320MB\n");

	$new->promote;
	push @clients, hold_locks($new, ' second');

	# what the old primary writes after the promotion is undone
	$old->safe_psql($dbname, 'SET synchronous_commit = local; CREATE TABLE undone AS SELECT 1');
	$old->stop('fast');
	$new->safe_psql($dbname, 'CHECKPOINT');
	my $conf = $old->data_dir . '/postgresql.conf';
	my $own = slurp_file($conf);
	ok(PostgreSQL::Test::Utils::run_log([ 'pg_rewind', '--no-sync', '--target-pgdata', $old->data_dir, '--source-server', $new->connstr($dbname) ]), 'rewind: pg_rewind succeeds')
	  or BAIL_OUT('pg_rewind failed');
	PostgreSQL::Test::Utils::append_to_file("$conf.own", $own);
	rename "$conf.own", $conf or BAIL_OUT("$conf: $!");
	$old->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
	$old->enable_streaming($new);
	$old->set_standby_mode;
	$old->start;
	ok(defined await($old, q{SELECT to_regclass('undone') IS NULL AND count(*) = 3 FROM shedlock_locks WHERE name LIKE '% second'}),
		'rewind: the old primary follows');
	$new->stop('fast');
	$old->promote;
	is(states($old, ''), 'lost lost lost', 'rewind: what was acquired before the failover counts as leases');
	is(states($old, ' second'), 'free kept free', 'rewind: what was acquired before the switchover is free');
	is(acquired($old, ' second'), 'true false true', 'rewind: it can be acquired');
	reap($_) foreach @clients;
	$old->stop('immediate');
}

#
# An asynchronous standby that lags: a planned switchover loses nothing, a failover does
#
sub start_asynchronous
{
	my ($name) = @_;
	my $primary = start_node("${name}_1", allows_streaming => 1);
	my $standby = PostgreSQL::Test::Cluster->new("${name}_2");
	my $pid_of_sender = q{SELECT pid FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'async'};

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->start;
	$primary->poll_query_until($dbname, "SELECT count(*) = 1 FROM ($pid_of_sender) p") or BAIL_OUT('the standby does not stream');
	my @clients = hold_locks($primary, '');
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	my $sender = $primary->safe_psql($dbname, $pid_of_sender);
	kill 'STOP', $sender;
	return ($primary, $standby, $sender, @clients);
}

{
	my ($primary, $standby, $sender, @clients) = start_asynchronous('async_planned');
	my $token = $primary->safe_psql($dbname, q{SELECT shedlock_acquire_token('last', '1 hour')});
	my $late = session($primary);

	ask($late, q{SELECT shedlock_acquire_session('late'), shedlock_once('tick', '2026-01-01 00:00+00')});
	await_second($primary);
	is($standby->safe_psql($dbname, q{SELECT count(*) FROM shedlock WHERE name IN ('last', 'late')}), '0', 'asynchronous, planned: the standby lags');

	my $stop = IPC::Run::start([ 'pg_ctl', '-D', $primary->data_dir, '-m', 'fast', '-w', 'stop' ], '<', \undef, '>', \my $said);
	my $begins = time;
	sleep(0.1) until slurp_file($primary->logfile) =~ /LOG: +shutting down/ || time - $begins > $PostgreSQL::Test::Utils::timeout_default;
	ok(-e $primary->data_dir . '/postmaster.pid', 'asynchronous, planned: the shutdown waits for the standby');
	kill 'CONT', $sender;
	ok($stop->finish, 'asynchronous, planned: the primary shuts down');
	$primary->_update_pid(0);
	$standby->promote;
	is(states($standby, ''), 'free kept free', 'asynchronous, planned: the locks are free, but for the at-least time');
	is($standby->safe_psql($dbname, q{SELECT state FROM shedlock_locks WHERE name = 'last'}), 'held', 'asynchronous, planned: the last lease is held');
	is($standby->safe_psql($dbname, "SELECT shedlock_extend('last', token => $token)"), 't', 'asynchronous, planned: its token extends it');
	is($standby->safe_psql($dbname, q{SELECT shedlock_once('tick', '2026-01-01 00:00+00')}), 'f', 'asynchronous, planned: the last tick stays claimed');
	cmp_ok($standby->safe_psql($dbname, q{SELECT shedlock_acquire_token('late')}), '>', $token, 'asynchronous, planned: the last session lock is free, and tokens keep growing');
	reap($_) foreach @clients, $late;
	$standby->stop('immediate');
}

{
	my ($primary, $standby, $sender, @clients) = start_asynchronous('async_failover');

	# more tokens than a sequence logs at once
	my $largest = $primary->safe_psql($dbname, q{SELECT max(shedlock_acquire_token('gone ' || i, '1 hour')) FROM generate_series(1, 100) i});
	$primary->kill9;
	kill 'KILL', $sender;
	$standby->promote;
	is(states($standby, ''), 'lost lost lost', 'asynchronous, failover: what was replicated counts as leases');
	is($standby->safe_psql($dbname, q{SELECT count(*) FROM shedlock WHERE name LIKE 'gone%'}), '0', 'asynchronous, failover: the last acquires are gone');
	cmp_ok($standby->safe_psql($dbname, q{SELECT shedlock_acquire_token('gone 100')}), '<=', $largest, 'asynchronous, failover: a token is given again');
	reap($_) foreach @clients;
	bury($primary);
	$standby->stop('immediate');
}

done_testing();
