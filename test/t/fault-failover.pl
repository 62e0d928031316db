# The primary dies and its synchronous standby takes over.  What was answered is there
# exactly, tokens keep growing, ticks stay claimed, and the locks of sessions and runs
# stay held until their lock_until.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep);

my $dbname = 'postgres';

#
# During traffic
#

# Each client has its own locks and ticks and shares one more lock with the others.  It
# reports each answer after it got the answer.
my $rounds = 20_000;
my @settings = ('on', 'off', 'local', 'remote_write');

sub script_of
{
	my ($client, $setting) = @_;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/traffic_$setting.sql";
	my $sql = "SET client_min_messages = error;\nSET synchronous_commit = $setting;\n";

	foreach my $i (1 .. $rounds)
	{
		$sql .= qq{
SELECT shedlock_acquire_token('$client $i', '1 hour') AS token \\gset
\\echo acquired '$client $i' :token
SELECT shedlock_extend('$client $i', :token, '2 hours') AS extended \\gset
\\echo extended '$client $i' :extended
SELECT shedlock_once('$client', to_timestamp($i)) AS claimed \\gset
\\echo claimed '$client' :claimed
SELECT shedlock_acquire_token('hot', '1 hour') AS hot \\gset
\\if :{?hot}
\\echo acquired hot :hot
SELECT shedlock_release('hot', :hot) AS released \\gset
\\endif
};
	}
	append_to_file($file, $sql);
	return $file;
}

# Starts a client for each setting; the answers are in ${$client->{said}}.
sub start_traffic
{
	my ($node, @files) = @_;

	return map {
		my ($said, $heard) = ('', '');
		my $run = IPC::Run::start(
			[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($dbname), '-f', $_ ],
			'<', \undef, '>', \$said, '2>', \$heard);
		{ run => $run, said => \$said };
	} @files;
}

sub lines_of
{
	my (@clients) = @_;
	my $lines = 0;

	foreach my $client (@clients)
	{
		$client->{run}->pump_nb;
		$lines += () = ${ $client->{said} } =~ /\n/g;
	}
	return $lines;
}

sub await_lines
{
	my ($lines, @clients) = @_;
	my $tries = $PostgreSQL::Test::Utils::timeout_default * 20;

	sleep(0.05) while (lines_of(@clients) < $lines && $tries-- > 0);
	return;
}

my @files = map { script_of("client $_", $_) } @settings;

my $number = 0;

foreach my $claim ('immediate stop', 'kill -9', 'kill -9 while the standby hangs')
{
	$number++;
	my $primary = start_node("primary_$number", allows_streaming => 1);
	my $standby = start_standby($primary, "standby_$number");
	my @clients = start_traffic($primary, @files);

	await_lines(2000, @clients);
	# the slowest of them, too
	await_lines(100, $_) foreach @clients;
	if ($claim =~ /hangs/)
	{
		# What is not on the standby must not have been answered.
		my $receiver = $standby->safe_psql($dbname, 'SELECT pid FROM pg_stat_wal_receiver');

		kill 'STOP', $receiver;
		ok(defined await($primary, "SELECT count(*) = " . @settings
				  . " FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'"),
			"$claim: clients of every synchronous_commit wait for a standby that hangs");

		# except for what the standby confirmed just before
		my ($lines, $before) = (lines_of(@clients), -1);
		for (my $try = 0; $lines != $before && $try < 10; $try++)
		{
			sleep(1);
			($lines, $before) = (lines_of(@clients), $lines);
		}
		is($lines, $before, "$claim: the clients get no answer");
		$primary->kill9;
		kill 'CONT', $receiver;
	}
	else
	{
		$claim =~ /kill/ ? $primary->kill9 : $primary->stop('immediate');
	}
	eval { $_->{run}->finish; } foreach @clients;
	$standby->promote;

	my (@acquired, %extended, %ticks, $of_settings);
	my $last_token = 0;
	foreach my $client (@clients)
	{
		my $answers = 0;
		foreach (split /\n/, ${ $client->{said} })
		{
			if (/^acquired (.+) (\d+)$/)
			{
				push @acquired, [ $1, $2 ] unless $1 eq 'hot';
				$last_token = $2 if $2 > $last_token;
				$answers++;
			}
			$extended{$1} = 1 if /^extended (.+) t$/;
			$ticks{$1}++ if /^claimed (.+) t$/;
		}
		$of_settings++ if $answers > 20;
	}
	is($of_settings, scalar @settings, "$claim: each client got an answer");
	is(scalar(keys %ticks), scalar @settings, "$claim: each client claimed ticks");

	$standby->safe_psql($dbname,
		'CREATE TABLE answered (name text, token bigint, extended boolean); INSERT INTO answered VALUES '
		  . join(',', map { "('$_->[0]', $_->[1], " . ($extended{ $_->[0] } ? 'true' : 'false') . ')' } @acquired));
	is($standby->safe_psql($dbname, q{
SELECT count(*) FROM answered a LEFT JOIN shedlock_locks l USING (name)
WHERE l.token IS DISTINCT FROM a.token OR l.state <> 'held' OR l.kind <> 'lease'}), '0',
		"$claim: each acquire that was answered is there, with its token (of " . @acquired . ')');
	is($standby->safe_psql($dbname, q{
SELECT count(*) FROM answered JOIN shedlock USING (name)
WHERE extended AND NOT lock_until - locked_at >= '2 hours'}), '0',
		"$claim: each extend that was answered is there (of " . keys(%extended) . ')');
	is($standby->safe_psql($dbname,
			'SELECT ' . join(' OR ', map { "shedlock_once('$_', to_timestamp($ticks{$_}))" } sort keys %ticks)),
		'f', "$claim: each claim that was answered is there (of " . eval { join('+', values %ticks) } . ')');
	is($standby->safe_psql($dbname, "SELECT bool_or(shedlock_acquire(name)) FROM answered"), 'f',
		"$claim: the locks that were answered exclude others");
	cmp_ok($standby->safe_psql($dbname, "SELECT shedlock_acquire_token('new', '1 hour')"), '>', $last_token,
		"$claim: the first new token is above all answered tokens");
	$standby->stop('immediate');
	bury($primary) if $claim =~ /kill/;
}

#
# Held locks stay held exactly as long as before
#
my $primary = start_node('primary', allows_streaming => 1,
	conf => "max_prepared_transactions = 5\n");

# Locks must last longer than the first checks take.
my $slowness = slowness($primary);
my ($least, $limit, $default) = map { int($_ * $slowness) . ' s' } 20, 25, 30;
$primary->append_conf('postgresql.conf', "shedlock.default_lock_at_most_for = '$default'\n");
$primary->restart;
my $standby = start_standby($primary, 'standby');
my $holder = session($primary);
my $dead_holder = session($primary);
my $open = session($primary);

ask($open, "BEGIN; SELECT shedlock_acquire('open', '1 hour')");
$primary->safe_psql($dbname, qq{
SELECT shedlock_acquire('lease', '$least');
SELECT shedlock_acquire('kept', '1 hour', '$least');
SELECT shedlock_release('kept');
SELECT shedlock_once('once', '2026-01-01');
SELECT shedlock_once_every('every', '1 day');
BEGIN;
SELECT shedlock_acquire('prepared', '1 hour');
PREPARE TRANSACTION 'prepared';
});
$primary->safe_psql($dbname, "SELECT shedlock_job('run that ended', 'every 20000 days'); SELECT shedlock_job('limited run', 'every 20000 days');"
	  . "SELECT shedlock_job('run to force', 'every 20000 days', attempts => 2)");
$primary->safe_psql($dbname, "CALL shedlock_run('run that ended', 'SELECT 1', '1 min')");
$primary->safe_psql($dbname, "CALL shedlock_run('kept run', 'SELECT 1', '1 hour', '$least')");
ask($dead_holder, "SELECT shedlock_acquire_session('dead with at-least', '$limit', '$least'), shedlock_acquire_session('dead')");
kill_client($dead_holder);
ok(defined await($primary, "SELECT state = 'kept' FROM shedlock_locks WHERE name = 'dead with at-least'"),
	'the session of a session lock ended before the failover, and its at-least time runs');
ask($holder, "SELECT shedlock_acquire_session('session'), shedlock_acquire_session('session to force'), "
	  . "shedlock_acquire_session('session with at-least', '$least', '$least')");
ask($holder, "SELECT shedlock_acquire_session('limited session', '$limit')");

my @runners;
foreach ([ 'run', 'NULL' ], [ 'limited run', "'$limit'" ], [ 'run to force', 'NULL' ])
{
	my ($name, $at_most) = @$_;
	my $runner = session($primary);

	$runner->query_until(qr/running/,
		"\\echo running\nCALL shedlock_run('$name', 'SELECT pg_sleep(600)', $at_most);\n");
	ok(defined await($primary, "SELECT count(*) = 1 FROM shedlock_history WHERE name = '$name' AND outcome = 'running'"),
		"run \"$name\" goes on");
	push @runners, $runner;
}

my $rows = "SELECT name, lock_until, locked_at, locked_by, token FROM shedlock WHERE name <> 'dead' ORDER BY name";
my $ticks = 'SELECT * FROM _shedlock_tick ORDER BY name';
my $old_rows = $primary->safe_psql($dbname, $rows);
my $old_ticks = $primary->safe_psql($dbname, $ticks);
my $last_token = $primary->safe_psql($dbname, 'SELECT max(token) FROM shedlock');

$primary->stop('immediate');
$standby->promote;
is($standby->safe_psql($dbname, $rows), $old_rows, 'rows of locks are unchanged, with lock_until to the microsecond');
is($standby->safe_psql($dbname, $ticks), $old_ticks, 'ticks are unchanged');
$standby->safe_psql($dbname, 'CREATE TABLE old AS SELECT * FROM shedlock');

# Waiters that start at once
my @names = ('dead', 'dead with at-least', 'kept', 'kept run', 'lease', 'limited run', 'limited session', 'run', 'session',
	'session with at-least');
my %waiters;
foreach my $name (@names)
{
	$waiters{$name} = session($standby);
	$waiters{$name}->query_until(qr/waiting/,
		"\\echo waiting\nSELECT shedlock_acquire('$name', '1 hour', wait => '10 min');\n");
}

is($standby->safe_psql($dbname, "SELECT string_agg(name || ' ' || outcome, ', ' ORDER BY token) FROM shedlock_history"),
	'run that ended succeeded, kept run succeeded, run lost, limited run lost, run to force lost',
	'runs in progress are lost, completed runs are not');
is($standby->safe_psql($dbname, 'SELECT name, runs_succeeded, runs_lost FROM shedlock_stats ORDER BY name'), "kept run|1|0\nrun that ended|1|0",
	'completed runs are counted, others not yet');
is($standby->safe_psql($dbname, "SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM shedlock_locks WHERE kind IN ('run', 'session')"),
	'dead lost, dead with at-least lost, limited run lost, limited session lost, run lost, run to force lost, '
	  . 'session lost, session to force lost, session with at-least lost',
	'locks of sessions and runs are lost, because their holders may be alive');
is($standby->safe_psql($dbname, "SELECT shedlock_acquire('open', '1 hour')"), 't',
	'an uncommitted acquire leaves nothing');

# A prepared transaction survives the failover, with its advisory lock.
is($standby->safe_psql($dbname, "SELECT shedlock_acquire('prepared')"), 'f', 'a prepared acquire still excludes others');
$standby->safe_psql($dbname, "COMMIT PREPARED 'prepared'");
is($standby->safe_psql($dbname, "SELECT state, kind FROM shedlock_locks WHERE name = 'prepared'"), 'held|lease',
	'a prepared acquire can be committed');

# Ticks are not repeated, whatever the outcomes of their runs.
is($standby->safe_psql($dbname, "SELECT shedlock_once('once', '2026-01-01'), shedlock_once_every('every', '1 day')"),
	'f|f', 'ticks stay claimed');
is($standby->safe_psql($dbname, "SELECT shedlock_once('once', '2026-01-02')"), 't', 'the next tick is free');

sub run_again
{
	my ($name) = @_;
	my ($status, $out, $err) = $standby->psql($dbname, "CALL shedlock_run('$name', 'CREATE TABLE IF NOT EXISTS again()', '1 min')");

	return $err =~ s/.*?(ERROR|NOTICE): +//r;
}

# Why a tick of the old primary is not run on the new one
sub not_due
{
	my ($name) = @_;

	return $standby->safe_psql($dbname, "SELECT reason FROM shedlock_run_begin('$name')");
}

like(not_due('run that ended'), qr/^Attempt 1 at tick .*; outcome: succeeded/, 'a tick that was run on the old primary is not due');
like(not_due('limited run'), qr/^Attempt 1 at tick .*; outcome: lost/, 'a tick whose only attempt died is not due');
like(not_due('run to force'), qr/^It has been held by/, 'another attempt waits for the lock, which counts as a lease');
like(run_again('run'), qr/It has been held by/, 'a run whose lock counts as a lease is skipped');
is($standby->safe_psql($dbname, "SELECT shedlock_force_release('run to force'), shedlock_force_release('session to force')"),
	't|t', 'an administrator force-releases the locks of a run and a session');
is($standby->safe_psql($dbname, "SELECT shedlock_acquire('session to force', '1 hour')"), 't', 'the force-released session lock is free at once');
like(not_due('run to force'), qr/^Attempt 1 at tick .*; outcome: cancelled/, 'the tick of the force-released run is used up');
is($standby->safe_psql($dbname, "SELECT shedlock_again('run to force')"), 't', 'an administrator allows one more attempt');
is(run_again('run to force'), '', 'the run is repeated');
like(not_due('run to force'), qr/^Attempt 2 at tick .*; outcome: succeeded/, 'it has succeeded');

# Held until lock_until, and no longer
my $got = 0;
foreach my $name (@names)
{
	$got++ if ask($waiters{$name}, 'SELECT 1') eq "t\n1";
	$waiters{$name}->quit;
}
is($got, scalar @names, 'all locks become free');
is($standby->safe_psql($dbname, qq{
SELECT string_agg(o.name, ', ' ORDER BY o.name)
FROM old o JOIN shedlock s USING (name)
WHERE name IN ('} . join("', '", @names) . q{') AND s.locked_at < o.lock_until}),
	'', 'no lock is free before its lock_until');
is($standby->safe_psql($dbname, qq{
SELECT string_agg(o.name || ' after ' || (s.locked_at - o.lock_until), ', ')
FROM old o JOIN shedlock s USING (name)
WHERE name IN ('} . join("', '", @names) . q{') AND s.locked_at > o.lock_until + interval '10 s' * } . $slowness),
	'', 'each lock is free soon after its lock_until');
is($standby->safe_psql($dbname, q{
SELECT string_agg(o.name, ', ' ORDER BY o.name) FROM old o
WHERE o.name IN ('run', 'session') AND o.lock_until <> o.locked_at + interval '} . $default . q{'}),
	'', 'lock_until is shedlock.default_lock_at_most_for if none was given');
cmp_ok($standby->safe_psql($dbname, 'SELECT min(s.token) FROM shedlock s LEFT JOIN old o USING (name) WHERE s.token IS DISTINCT FROM o.token AND s.name <> \'prepared\''),
	'>', $last_token, 'every token of the new primary is above all of the old one');

reap($_) foreach ($holder, $open, @runners);
$standby->stop('immediate');
done_testing();
