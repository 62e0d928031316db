# Listeners of channel "shedlock" hear each event once, when its transaction is committed.
# No event breaks or delays the end of a run: not while another transaction notifies and
# does not end, not if the queue of notifications is full, and not if the commit of the
# notification itself fails.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(time sleep);

eval { require DBD::Pg; 1 } or plan skip_all => 'this needs the Perl module DBD::Pg';

my $limit = $PostgreSQL::Test::Utils::timeout_default;
my $json = JSON::PP->new->utf8->canonical;
my $has_queue_size = `pg_config --version` =~ /PostgreSQL (\d+)/ && $1 >= 17;
my $node = start_node('main',
	allows_streaming => 1,
	conf => "max_prepared_transactions = 5\nautovacuum = off\nrestart_after_crash = on\nmax_connections = 20\n"
	  . ($has_queue_size ? "max_notify_queue_pages = 64\n" : ''));

# A server process that this test has stopped must not outlive it.
my $stopped;
END { kill 'CONT', $stopped if $stopped; }

$node->safe_psql('postgres', 'CREATE ROLE plain LOGIN');

#
# Listeners
#

# Connects to a server, with bytes instead of characters as texts.
sub connection
{
	my ($where, %options) = @_;

	return DBI->connect('dbi:Pg:host=' . $where->host . ';port=' . $where->port . ';dbname=' . ($options{dbname} || 'postgres'),
		'postgres', '', { RaiseError => 1, PrintError => 0, PrintWarn => 0, pg_enable_utf8 => 0, AutoCommit => 1 });
}

my $listener = connection($node);
my $sender = connection($node);
my $client = session($node);
my $marks = 0;
my @all;

$listener->do('LISTEN shedlock');

# Returns the payloads that have come since the last call.  Notifications come in the order
# of their commits, so all of them have come before one that is sent now.
sub payloads
{
	my ($who, $by) = @_;
	my $mark = 'mark ' . ++$marks;
	my $start = time;
	my @payloads;

	$who //= $listener;
	($by // $sender)->do("NOTIFY shedlock, '$mark'");
	for (;;)
	{
		my $notify = $who->pg_notifies;

		die 'no notification arrives' if time - $start > $limit;
		if (!$notify) { sleep 0.005 }
		elsif ($notify->[2] eq $mark) { last }
		else { push @payloads, $notify->[2] }
	}
	push @all, @payloads;
	return @payloads;
}

# Returns an event in the order of its keys, with N for its token and T for each time.
sub shape
{
	my ($payload) = @_;

	return $json->encode($json->decode($payload)) =~ s/("token":)"[1-9]\d*"/$1"N"/r =~ s/"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00"/T/gr;
}

# The events since the last call are those, in that order.
sub told
{
	my ($claim, @expected) = @_;
	my @payloads = payloads();
	my @events = map { $json->decode($_) } @payloads;

	is(join(', ', map { "$_->{event} $_->{name}" } @events), join(', ', @expected), $claim) or diag join "\n", @payloads;
	return @payloads;
}

# The value of a key in an event, as SQL of that type
sub value
{
	my ($payload, $key, $type) = @_;
	my $value = $json->decode($payload)->{$key};

	return defined $value ? "'$value'::$type" : "NULL::$type";
}

# An event of a run has what shedlock_history has of it.
sub as_in_history
{
	my ($payload, $claim) = @_;

	is( $node->safe_psql('postgres',
			'SELECT count(*) FROM shedlock_history WHERE token = ' . value($payload, 'token', 'bigint')
			  . ' AND NOT (tick, attempt, sqlstate, started_at, ended_at, exit_code) IS DISTINCT FROM ('
			  . join(', ',
				map { value($payload, @$_) } [ 'tick', 'timestamptz' ],
				[ 'attempt', 'integer' ],
				[ 'sqlstate', 'text' ],
				[ 'started_at', 'timestamptz' ],
				[ 'ended_at', 'timestamptz' ],
				[ 'exit_code', 'integer' ])
			  . ')'),
		'1', "$claim has the values of the history");
	return;
}

# Begins a run of a session that sleeps until it is ended from outside.
sub begin_sleep
{
	my ($name, $arguments) = @_;
	my $session = session($node);
	my $pid = pid_of($session);

	$session->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('$name', 'SELECT pg_sleep(600)'" . ($arguments // '') . ");\n");
	defined await($client, "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $pid") or BAIL_OUT('the run does not begin');
	return $session;
}

#
# What is told
#

my $run = '"next_attempt_at":null,"sqlstate":%s,"started_at":T,"tick":null,"token":"N","v":1}';
my ($payload, @payloads);

ask($client, q{CALL shedlock_run('failed', $$SELECT 'secret'::int$$)});
($payload) = told('a run that failed', 'failed failed');
is(shape($payload), '{"attempt":null,"attempts":null,"ended_at":T,"event":"failed","exit_code":null,"name":"failed",' . sprintf($run, '"22P02"'),
	'all fields of a run without a tick');
as_in_history($payload, 'a run that failed');

ask($client, q{CALL shedlock_run('slow', 'SELECT pg_sleep(600)', '0.2 s')});
($payload) = told('a run that timed out', 'timed out slow');
as_in_history($payload, 'a run that timed out');

my $sleeper = begin_sleep('cancelled');
ask($client, q{SELECT shedlock_cancel('cancelled')});
ask($sleeper, 'SELECT 1');
($payload) = told('a run that was cancelled', 'cancelled cancelled');
as_in_history($payload, 'a run that was cancelled');
$sleeper->quit;

$sleeper = begin_sleep('forced');
ask($client, q{SELECT shedlock_force_release('forced')});
@payloads = told('a run that was ended by force', 'cancelled forced', 'forced forced');
as_in_history($payloads[0], 'a run that was ended by force');
is(shape($payloads[1]), '{"event":"forced","name":"forced","token":"N","v":1}', 'all fields of a forced release');
is($json->decode($payloads[1])->{token}, $json->decode($payloads[0])->{token}, 'a forced release has the token of the run');
reap($sleeper);

# Ticks
ask($client, q{SELECT shedlock_job('tick', 'every 20000 days', attempts => 2, backoff => '1 h')});
ask($client, q{CALL shedlock_run('tick', $$SELECT 'secret'::int$$)});
($payload) = told('a first attempt', 'failed tick');
like(shape($payload), qr/^{"attempt":1,"attempts":2,.*"next_attempt_at":T,.*"tick":T,/, 'an attempt, its number, their number, and the next one');
as_in_history($payload, 'a first attempt');
is(ask($client, "SELECT retry_at = " . value($payload, 'next_attempt_at', 'timestamptz') . " FROM _shedlock_tick WHERE name = 'tick'"),
	't', 'the next attempt is after the backoff');
ask($client, q{UPDATE _shedlock_tick SET retry_at = now() WHERE name = 'tick'});
ask($client, q{CALL shedlock_run('tick', $$SELECT 'secret'::int$$)});
@payloads = told('the last attempt', 'failed tick', 'gave up tick');
like(shape($_), qr/^{"attempt":2,"attempts":2,.*"next_attempt_at":null,.*"tick":T,/, 'no attempt follows') foreach @payloads;
as_in_history($_, 'a last attempt') foreach @payloads;

# Runs outside the database
foreach my $code (0, 3)
{
	my $token = ask($client, q{SELECT token FROM shedlock_run_begin('program')});

	told('a run begins', ());
	is(ask($client, "SELECT shedlock_run_end('program', $token, 'failed', 'secret', $code)"), 't', "a program ends with exit code $code");
	($payload) = told('  which is told', 'failed program');
	like(shape($payload), qr/"exit_code":$code,.*"sqlstate":null/, '  with its exit code');
	as_in_history($payload, "a program with exit code $code");
	ask($client, "SELECT shedlock_run_end('program', $token, 'failed', 'secret', $code)");
	told('  and not again', ());
}

# A run that is lost before a later tick has a run is told once, and that it gave up once.
ask($client, q{SELECT shedlock_job(name, 'every 1 h', attempts => 3) FROM unnest('{older, claimed, unheard}'::text[]) AS name});
my $tick = q{SELECT token FROM shedlock_run_begin('older')};
my $first = ask($client, $tick);
# as if that run had been for the hour before, and its lease had ended
ask($client, q{UPDATE _shedlock_tick SET tick = tick - interval '1 h' WHERE name = 'older'; UPDATE _shedlock_history SET tick = tick - interval '1 h' WHERE name = 'older'});
ask($client, "UPDATE shedlock SET lock_until = locked_at WHERE token = $first");
is(ask($client, $tick) > $first, 1, 'a run is lost before a later tick has a run');
@payloads = told('  which is told', 'lost older', 'gave up older');
is(value($_, 'token', 'bigint'), "'$first'::bigint", '  told of that one') foreach @payloads;
as_in_history($_, 'a run of an older tick') foreach @payloads;
ask($client, "SELECT shedlock_run_end('older', token) FROM shedlock_history WHERE name = 'older' AND outcome = 'running'");
told('an end that succeeds is not told', ());
is(ask($client, q{SELECT runs_succeeded, runs_failed, runs_lost, gave_up FROM shedlock_stats WHERE name = 'older'}), '1|0|1|1', 'each is counted once');

# A tick that has an attempt left is given up when a later one is claimed without a run.
ask($client, q{SELECT shedlock_run_end('claimed', token, 'failed') FROM shedlock_run_begin('claimed')});
told('a run fails', 'failed claimed');
ask($client, q{UPDATE _shedlock_tick SET tick = '2001-01-01' WHERE name = 'claimed'});
is(ask($client, q{SELECT shedlock_once_every('claimed', '1 h')}), 't', '  a later tick is claimed');
@payloads = told('  and it is given up', 'gave up claimed');
as_in_history($payloads[0], 'a run that is given up');
ask($client, q{SELECT shedlock_run_end('unheard', token, 'failed') FROM shedlock_run_begin('unheard')});
told('one more run fails', 'failed unheard');
ask($client, q{UPDATE _shedlock_tick SET tick = '2001-01-01' WHERE name = 'unheard'});
is($node->safe_psql('postgres', q{SET shedlock.notify = none; SELECT shedlock_once_every('unheard', '1 h')}), 't', '  a later tick is claimed');
told('  and is given up, which is not told with none', ());
is(ask($client, q{SELECT gave_up FROM shedlock_history WHERE name = 'unheard'}), 't', '  but recorded');

# Locks
ask($client, q{SELECT shedlock_pause('paused', '2100-01-01 00:00:00+00', 'secret')});
($payload) = told('a pause', 'paused paused');
is($json->encode($json->decode($payload)), '{"event":"paused","name":"paused","paused_until":"2100-01-01T00:00:00+00:00","token":null,"v":1}', 'all fields of a pause');
ask($client, q{SELECT shedlock_pause('paused')});
($payload) = told('a pause without an end', 'paused paused');
is(shape($payload), '{"event":"paused","name":"paused","paused_until":"infinity","token":null,"v":1}', '  which is infinite');
ask($client, q{SELECT shedlock_resume('paused'), shedlock_resume('paused')});
($payload) = told('a pause that is ended, once', 'resumed paused');
is(shape($payload), '{"event":"resumed","name":"paused","token":null,"v":1}', 'all fields of the end of a pause');
ask($client, q{SELECT shedlock_acquire('lease'), shedlock_force_release('lease'), shedlock_force_release('lease')});
told('a forced release of a lease', 'forced lease');

# Names, with an encoding that has all characters
$node->safe_psql('postgres', "CREATE DATABASE names TEMPLATE template0 ENCODING 'UTF8'");
$node->safe_psql('names', 'CREATE EXTENSION shedlock');
my $named = connection($node, dbname => 'names');
my $reader = connection($node, dbname => 'names');
$reader->do('LISTEN shedlock');
my %names = (
	'quotes' => q{"\'/} . '"' x 251,
	'backslashes' => '\\' x 255,
	'characters of two bytes' => "\xC3\xA4" x 255,
	'characters of four bytes' => "\xF0\x9F\x94\x92" x 255);
foreach my $what (sort keys %names)
{
	my $name = $names{$what};

	$named->do('SELECT shedlock_pause(?), shedlock_resume(?)', undef, $name, $name);
	$named->do('SELECT shedlock_job(?, ?)', undef, $name, 'every 1 day');
	eval { $named->do('CALL shedlock_run(?, ?)', undef, $name, 'SELECT 1 / 0') };
	@payloads = payloads($reader, $named);
	is(scalar @payloads, 4, "a name of $what");
	foreach my $told (@payloads)
	{
		my $heard = $json->decode($told)->{name};

		utf8::encode($heard);
		is($heard, $name, '  arrives unchanged');
		cmp_ok(length $told, '<', 8000, '  in ' . length($told) . ' bytes');
	}
}

# A listener whose encoding does not have the characters of a name
$reader->do("SET client_encoding = 'LATIN1'");
$named->do('SELECT shedlock_pause(?), shedlock_pause(?)', undef, $names{'characters of four bytes'}, 'last');
@payloads = payloads($reader, $named);
is(scalar @payloads, 2, 'a listener with another encoding hears of each name');
$_->disconnect foreach $reader, $named;

#
# When it is told
#

my $start = time;
$sender->do(q{SELECT shedlock_pause('now')});
until ($listener->pg_notifies) { die 'no event' if time - $start > $limit }
cmp_ok(time - $start, '<', slowness($node), 'an event arrives within a second');

ask($client, q{BEGIN; SELECT shedlock_pause('open'); SAVEPOINT s; SELECT shedlock_pause('kept'); RELEASE s});
ask($client, q{SAVEPOINT s; SELECT shedlock_pause('undone'); SAVEPOINT t; SELECT shedlock_pause('undone, too'); RELEASE t; ROLLBACK TO s});
ask($client, q{SAVEPOINT u; SELECT shedlock_pause('undone'); SAVEPOINT v; SELECT shedlock_pause('undone, too'); ROLLBACK TO v; ROLLBACK TO u; SELECT shedlock_pause('end')});
told('nothing before the commit', ());
ask($client, 'COMMIT');
told('at the commit, what no rollback has undone, in its order', 'paused open', 'paused kept', 'paused end');
ask($client, q{BEGIN; SELECT shedlock_pause('open'); ROLLBACK; SELECT 1});
told('nothing after a rollback', ());
ask($client, q{DO 'BEGIN PERFORM shedlock_pause(''open''); COMMIT; PERFORM shedlock_resume(''open''); ROLLBACK; END'});
told('transactions of a DO block', 'paused open');

#
# Lost runs
#

# Ends a client's server process, or all of them by killing one.
my %kill = (
	'was terminated' => sub { terminate($node, shift) },
	'was killed' => sub {
		kill 'KILL', shift;
		sleep 0.01 while $listener->ping > 0;
		reap($client);
		# psql would end before it has read its query
		sleep 0.01 until eval { $listener = connection($node) };
		($sender, $client) = (connection($node), session($node));
		$listener->do('LISTEN shedlock');
	});
foreach my $how (sort keys %kill)
{
	foreach my $next (q{CALL shedlock_run('%s', 'SELECT 1')}, q{SELECT shedlock_run_begin('%s')})
	{
		my $name = "$how, " . ($next =~ /(\w+)\(/)[0];

		ask($client, "SELECT shedlock_job('$name', 'every 1 s')");
		my $session = begin_sleep($name);

		payloads();
		$kill{$how}->(ask($client, "SELECT pid FROM shedlock_locks WHERE name = '$name'"));
		reap($session);
		told("a run whose process $how is not told yet", ());
		# at its next tick
		$start = time;
		until (ask($client, "SELECT count(*) FROM shedlock_history WHERE name = '$name'") > 1)
		{
			BAIL_OUT('no next run begins') if time - $start > $limit;
			ask($client, sprintf($next, $name));
		}
		@payloads = told('  but by the next one', "lost $name", "gave up $name");
		like(shape($payloads[0]), qr/^{"attempt":1,"attempts":1,"ended_at":null,.*"next_attempt_at":null,/, '  with its attempts');
		as_in_history($_, '  a lost run') foreach @payloads;
	}
}

#
# Who is told how much
#

my %notify = (
	none => [],
	failures => [ 'failed %s', 'paused %s' ],
	all => [ 'started %s', 'succeeded %s', 'started %s', 'failed %s', 'paused %s' ]);
foreach my $notify (sort keys %notify)
{
	ask($client, "SET shedlock.notify = '$notify'");
	ask($client, $_) foreach "CALL shedlock_run('$notify', 'SELECT 1')", "CALL shedlock_run('$notify', 'SELECT 1 / 0')", "SELECT shedlock_pause('$notify')";
	told("with $notify", map { sprintf $_, $notify } @{ $notify{$notify} });
}
ask($client, q{SET shedlock.notify = "all"});
ask($client, q{SELECT token FROM shedlock_run_begin('begun')});
ask($client, q{SELECT shedlock_run_end('begun', token) FROM shedlock_history WHERE name = 'begun'});
@payloads = told('with all, a run of a program', 'started begun', 'succeeded begun');
is(shape($payloads[0]), '{"attempt":null,"attempts":null,"ended_at":null,"event":"started","exit_code":null,"name":"begun",' . sprintf($run, 'null'),
	'all fields of a run that has started');
ask($client, q{CALL shedlock_run('outer', $o$CALL shedlock_run('outer', $$CALL shedlock_run('inner', 'SELECT 1 / 0')$$)$o$)});
told('runs within runs', 'started outer', 'started inner', 'failed inner', 'failed outer');
ask($client, 'RESET shedlock.notify');

# A job cannot switch it off.
my $plain = session($node, extra_params => [ '-U', 'plain' ]);
ask($plain, 'SET shedlock.notify = none');
ask($plain, q{CALL shedlock_run('plain', 'SELECT 1 / 0')});
told('a job that has switched events off before the library was loaded', 'failed plain');
ask($plain, q{CALL shedlock_run('plain', 'SET shedlock.notify = none')});
like($plain->{heard}, qr/ERROR:  permission denied to set parameter "shedlock.notify"/, 'a job cannot switch events off');
told('  and fails', 'failed plain');
ask($plain, q{CALL shedlock_run('plain', 'RESET ALL; DISCARD ALL; UNLISTEN *; SELECT 1 / 0')});
told('a job that discards all', 'failed plain');
$plain->quit;

# Whatever a command leaves behind
my @left = (
	'SET ROLE plain',
	'SET SESSION AUTHORIZATION plain',
	'SET default_transaction_read_only = on',
	'SET default_transaction_isolation = serializable; SET default_transaction_deferrable = on',
	'SET transaction_read_only = on',
	q{SET lock_timeout = '1ms'; SET statement_timeout = '1 h'},
	q{SET search_path = ''; SET datestyle = 'German'; SET timezone = 'Asia/Kolkata'; SET intervalstyle = 'sql_standard'},
	'SET synchronous_commit = off');
foreach my $command (@left)
{
	my $session = session($node);

	$command =~ s/'/''/g;
	ask($session, "CALL shedlock_run('left', '$command; SELECT 1 / 0')");
	unlike($session->{heard}, qr/WARNING/, "no WARNING after $command");
	($payload) = told('  but an event', 'failed left');
	like(shape($payload), qr/"ended_at":T.*"sqlstate":"22012","started_at":T/, '  with its times in UTC');
	$session->quit;
}

# What the caller and the command notify and listen to
ask($client, 'LISTEN shedlock; LISTEN own');
my $heard = ask($client, q{CALL shedlock_run('own', 'NOTIFY own, ''first''; LISTEN other; NOTIFY other, ''second''')});
$heard .= ask($client, q{CALL shedlock_run('own', 'SELECT 1 / 0')}) . ask($client, 'SELECT 1');
is(join(', ', $heard =~ /notification "(\w+)" with payload "(\w+|\{"v":1,"event":"failed","name":"own")/g), 'own, first, other, second, shedlock, {"v":1,"event":"failed","name":"own"',
	'a caller and its command can notify and listen');
is(ask($client, q{SELECT string_agg(c, ' ' ORDER BY c) FROM pg_listening_channels() c}), 'other own shedlock', 'a caller still listens to its channels');
ask($client, 'UNLISTEN *');
told('an event of a caller that listens', 'failed own');

# Tenants are not told each other's names.
ask($client, 'SET shedlock.role_prefix = on');
ask($client, q{CALL shedlock_run('plain:run', 'SELECT 1 / 0')});
ask($client, q{SELECT shedlock_pause('plain:run')});
@payloads = payloads();
is($json->encode([ map { exists $_->{name} ? 'name' : $_->{event} } map { $json->decode($_) } @payloads ]), '["failed","paused"]',
	'with shedlock.role_prefix events have no names');
as_in_history($payloads[0], 'such an event');
ask($client, 'RESET shedlock.role_prefix');

#
# What never notifies
#

my $java = q{INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('%1$s', timezone('UTC', now()) + interval '1 hour', timezone('UTC', now()), 'java')
	ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_at = excluded.locked_at, locked_by = excluded.locked_by WHERE shedlock.lock_until <= excluded.locked_at};
my %silent = (
	'acquire, extend, assert and release' => q{SELECT shedlock_acquire('%1$s'), shedlock_extend('%1$s'), shedlock_assert('%1$s'), shedlock_release('%1$s')},
	'a claim of a tick' => q{SELECT shedlock_once('%1$s', now()), shedlock_once_every('%1$s', '1 day')},
	'the statements of ShedLock' => "$java; UPDATE shedlock SET lock_until = timezone('UTC', now()) WHERE name = '%1\$s'",
	'an acquire after a lost run' => q{SELECT shedlock_acquire('%1$s')},
	'a statement of ShedLock after a lost run' => $java,
	'a run that begins' => q{SELECT shedlock_run_begin('%1$s')});
ask($client, 'SET shedlock.notify = \'all\'; SET client_min_messages = error');
foreach my $what (sort keys %silent)
{
	my $sql = sprintf $silent{$what}, $what;

	if ($what =~ /lost run/)
	{
		my $session = begin_sleep($what);
		terminate($node, ask($client, "SELECT pid FROM shedlock_locks WHERE name = '$what'"));
		reap($session);
	}
	payloads();
	ask($client, "BEGIN; $sql; PREPARE TRANSACTION 'silent'");
	is($client->{heard}, '', "$what can be prepared");
	ask($client, "COMMIT PREPARED 'silent'");
	if ($what =~ /lost run/)
	{
		is(ask($client, "SELECT outcome FROM shedlock_history WHERE name = '$what'"), 'lost', '  and settles the run');
	}
	elsif ($what !~ /begins/)
	{
		ask($client, $sql);
	}
	told('  and tells nothing', ());
}

# What is told is not told of a transaction that is prepared.
my $token = ask($client, q{SELECT token FROM shedlock_run_begin('prepared')});
told('a run begins', 'started prepared');
ask($client, qq{BEGIN; SELECT shedlock_run_end('prepared', $token, 'failed'), shedlock_pause('prepared'), shedlock_acquire('lease'), shedlock_force_release('lease');
PREPARE TRANSACTION 'ends'});
is($client->{heard}, '', 'a transaction that ended a run, paused and released by force can be prepared');
ask($client, "COMMIT PREPARED 'ends'");
told('  and tells nothing', ());
is(ask($client, q{SELECT outcome FROM shedlock_history WHERE name = 'prepared'}), 'failed', '  but has ended the run');
ask($client, q{SELECT shedlock_pause('prepared')});
told('the next transaction tells only its own', 'paused prepared');
ask($client, 'RESET shedlock.notify; RESET client_min_messages');

#
# An end that another run follows at once
#

my @racers = map { session($node) } 1 .. 2;
$node->safe_psql('postgres', q{SELECT shedlock_job('race', 'every 3650 days', attempts => 1000, backoff => '0 s')});
my $attempt = "CALL shedlock_run('race', 'SELECT 1 / 0');\n";
$_->query_until(qr/begun/, "\\echo begun\n" . $attempt x 100) foreach @racers;
ask($_, 'SELECT 1') foreach @racers;
$_->quit foreach @racers;
@payloads = map { $json->decode($_) } payloads();
cmp_ok(scalar @payloads, '>=', 100, 'attempts of two callers, each right after the other (' . @payloads . ')');
is(scalar(grep { !$_->{attempts} || !$_->{next_attempt_at} } @payloads), 0, '  each is told with what follows');
is(join(' ', map { $_->{attempt} } sort { $a->{token} <=> $b->{token} } @payloads), join(' ', 1 .. @payloads), '  and none is told twice');

#
# What does not break or delay an end
#

my $warning = 'WARNING:  could not notify listeners of channel "shedlock"';

sub require_standby
{
	my ($names) = @_;

	$node->append_conf('postgresql.conf', "synchronous_standby_names = '$names'\n");
	$node->reload;
	defined await($client, "SELECT current_setting('synchronous_standby_names') = '$names'") or BAIL_OUT('the configuration is not read');
	return;
}

# A statement of the client works, soon, with a warning.
sub works_soon
{
	my ($what, $sql) = @_;
	my $answer;

	cmp_ok(seconds { $answer = ask($client, $sql) }, '<', 1 + slowness($node), "$what comes to its end soon");
	is(scalar(() = $client->{heard} =~ /\Q$warning\E/g), 1, '  with one WARNING');
	return $answer;
}

# All of them, after which nothing is told.
sub all_work
{
	my ($when) = @_;
	my $number = ask($client, q{SELECT token FROM shedlock_run_begin('program')});

	ask($client, q{SELECT shedlock_acquire('lease')});
	works_soon("a run that fails $when", "CALL shedlock_run('behind', 'SELECT 1 / 0')");
	like($client->{heard}, qr/ERROR:  division by zero/, '  and its own error');
	is(ask($client, q{SELECT outcome FROM shedlock_history WHERE name = 'behind' ORDER BY token DESC LIMIT 1}), 'failed', '  and its outcome');
	is(ask($client, q{SELECT count(*) FROM shedlock_locks WHERE name = 'behind' AND state = 'held'}), '0', '  and its lock is free');
	is(works_soon("shedlock_run_end $when", "SELECT shedlock_run_end('program', $number, 'failed')"), 't', '  and its answer');
	works_soon("shedlock_pause $when", q{SELECT shedlock_pause('lease')});
	is(works_soon("shedlock_resume $when", q{SELECT shedlock_resume('lease')}), 't', '  and its answer');
	is(works_soon("shedlock_force_release $when", q{SELECT shedlock_force_release('lease')}), 't', '  and its answer');
	return;
}

# The process of another transaction that notifies waits for a standby, and is stopped.
payloads();
my $other = session($node);
my $pid = pid_of($other);
require_standby('nobody');
# The checkpointer reads the setting, too: a commit that comes before that does not wait.
foreach my $try (1 .. 100)
{
	my $ended = "state = 'idle' AND query LIKE '%try $try%'";

	$other->query_until(qr/begun/, "\\echo begun\nBEGIN; DROP TABLE IF EXISTS written; CREATE TABLE written (); NOTIFY other; COMMIT /* try $try */;\n");
	await($client, "SELECT wait_event = 'SyncRep' OR $ended FROM pg_stat_activity WHERE pid = $pid");
	last unless answers($client, "SELECT $ended FROM pg_stat_activity WHERE pid = $pid", 't');
}
defined await($client, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid") or BAIL_OUT('NOTIFY does not wait for a standby');
kill 'STOP', $pid;
$stopped = $pid;
require_standby('');
is(ask($client, "SELECT mode FROM pg_locks WHERE pid = $pid AND database = 0 AND classid = 'pg_database'::regclass AND granted"), 'AccessExclusiveLock', 'another transaction keeps others from notifying');
ask($client, q{SET lock_timeout = '1 ms'});
all_work('while another transaction notifies');
ask($client, 'RESET lock_timeout');

# While a run tries to notify, its session is cancelled, or ends.
my $watch = q{DO $$ BEGIN WHILE EXISTS (SELECT FROM _shedlock_history WHERE name = '%1$s' AND outcome = 'running') OR NOT EXISTS (SELECT FROM _shedlock_history WHERE name = '%1$s') LOOP END LOOP;
PERFORM %2$s(%3$s); END $$;} . "\n";
foreach my $ends ('pg_cancel_backend', 'pg_terminate_backend')
{
	my $session = session($node);
	my $watcher = session($node);

	$watcher->query_until(qr/begun/, "\\echo begun\n" . sprintf $watch, $ends, $ends, pid_of($session));
	if ($ends =~ /cancel/)
	{
		ask($session, "CALL shedlock_run('$ends', 'SELECT 1 / 0')");
		like($session->{heard}, qr/ERROR:  division by zero/, "a run that is cancelled while it tries to notify keeps its error");
	}
	else
	{
		$session->{run}->pump_nb;
		$session->{stdin} .= "CALL shedlock_run('$ends', 'SELECT 1 / 0');\n";
		$session->{run}->pump_nb;
		defined await($client, 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . ask($watcher, "SELECT pid FROM shedlock_history WHERE name = '$ends'"))
		  or BAIL_OUT('the session does not end');
	}
	is(ask($client, "SELECT outcome FROM shedlock_history WHERE name = '$ends'"), 'failed', "$ends does not undo the end of a run");
	is(ask($client, "SELECT count(*) FROM shedlock_locks WHERE name = '$ends' AND state = 'held'"), '0', '  nor keep its lock');
	reap($session);
	$watcher->quit;
}
kill 'CONT', $pid;
undef $stopped;
ask($other, 'SELECT 1');
told('what could not be told at once is not told later', ());
ask($client, q{CALL shedlock_run('behind', 'SELECT 1 / 0')});
told('the next event is told', 'failed behind');

# One transaction with too many events
ask($client, q{SELECT count(shedlock_acquire('many ' || i)) FROM generate_series(1, 1500) i});
works_soon('a transaction with too many events', q{SELECT count(shedlock_pause('many ' || i)) FROM generate_series(1, 1500) i});
told('  none of which is told', ());

SKIP:
{
	skip('only PostgreSQL 17 and newer have queues so short that they can be filled', 1) if !$has_queue_size;

	# The queue keeps what a listener in a transaction has not read.
	my $slow = connection($node);
	$slow->do('LISTEN fill');
	$slow->begin_work;
	$slow->do('SELECT 1');
	my $fill = q{SELECT count(pg_notify('fill', i || repeat('x', 7000))) FROM generate_series(1, 10) i};

	ask($client, $fill) until ask($client, 'SELECT pg_notification_queue_usage() > 0.5') eq 't';
	all_work('with half a queue');
	told('with half a queue nothing is told', ());
	for (1 .. 100)
	{
		ask($client, $fill);
		last if $client->{heard} =~ /too many notifications in the NOTIFY queue/;
	}
	like($client->{heard}, qr/ERROR:  too many notifications in the NOTIFY queue/, 'the queue is full');
	all_work('with a full queue');
	$slow->rollback;
	$slow->disconnect;
	defined await($client, 'SELECT pg_notification_queue_usage() < 0.1') or BAIL_OUT('the queue is not read');
	told('nothing is told after that', ());
	ask($client, q{CALL shedlock_run('behind', 'SELECT 1 / 0')});
	told('  but the next event', 'failed behind');
}

is(scalar(grep { /secret|SELECT|division/ } @all), 0, 'no event has a command or a message (' . @all . ' events)');

$node->stop;
done_testing();
