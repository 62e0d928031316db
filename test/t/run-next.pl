# Replicas that ask shedlock_next which of their jobs is due.  Each tick gets one run, and no
# session an error, whatever its isolation level; a job that is always due starves no other one.
# A call that waits hears within a second of what makes a job due, holds nothing meanwhile, and
# ends with its client.  No run begins of a job that is forgotten, nor two by one request.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run ();
use PoolerNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use SkewedClock;
use Test::More;
use Time::HiRes qw(sleep);

my $node = with_movable_clock { start_node('main') };
my $actor = session($node);
my $scripts = 0;

# Starts clients of pgbench that repeat a script until they are stopped.
sub start_clients
{
	my ($out, $clients, $options, $script) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir . '/script' . $scripts++ . '.sql';

	append_to_file($file, $script);
	local $ENV{PGOPTIONS} = "-c client_min_messages=error $options";
	return IPC::Run::start([ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', $clients, '-T', 3600, '-f', $file, 'postgres' ], '<', \undef, '>&', $out);
}

sub stop_clients
{
	my @clients = @_;

	ok($_->pumpable, 'the clients are still at work') foreach @clients;
	$_->signal('TERM') foreach @clients;
	eval { $_->finish } foreach @clients;
	defined await($actor, "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pgbench'") or die 'a client lives';
	return;
}

sub errors_in
{
	my ($out) = @_;

	return join "\n", $out =~ /(?:ERROR|FATAL|PANIC|pgbench: error): .*/g;
}

# A script that begins a run of one of these jobs and ends it.  Their names are a word and a number.
sub begin_and_end
{
	my ($word, $names, $arguments) = @_;

	return "SELECT coalesce(token, 0) AS token, split_part(name, ' ', 2) AS n FROM shedlock_next(ARRAY(SELECT '$word ' || i FROM unnest(ARRAY[$names]) i), '10 min'$arguments) \\gset\n"
	  . "\\if :token\n\\sleep 5 ms\nSELECT shedlock_run_end('$word ' || :n, :token);\n\\endif\n";
}

# A job with many ticks that nobody has run, and is declared since long ago
sub backlog
{
	my ($name) = @_;

	return "SELECT shedlock_job('$name', 'every 1 s from 2020-01-01', catch_up => 'all', max_late => '20 h', attempts => 3, backoff => '0');\n"
	  . "UPDATE _shedlock_job SET since = since - interval '1 day', created_at = created_at - interval '1 day', declared_at = declared_at - interval '1 day' WHERE name = '$name';\n";
}

#
# Thirty jobs are due at one instant, for six waiters.
#
my $period = $ENV{SHEDLOCK_SKEW} ? 600 : 15;
my $first = ask($actor, qq{SELECT to_char(clock_timestamp() + interval '@{[ 3 + 2 * slowness($node) ]} s', 'YYYY-MM-DD"T"HH24:MI:SS')});

ask($actor, "SELECT shedlock_job('crowd ' || i, 'every $period s from $first', 'UTC', attempts => 3, backoff => '0') FROM generate_series(1, 30) i");
my @out = ('') x 3;
my @level = ('read committed', 'repeatable read', 'serializable');
my @waiters = map {
	start_clients(\$out[$_], 2, '-c default_transaction_isolation=' . $level[$_] =~ s/ /\\ /r,
		begin_and_end('crowd', join(', ', 1 .. 30), ", wait => '20 s'"))
} 0 .. 2;
my $met = 1;
foreach my $round (0 .. 2)
{
	my $tick = "'$first'::timestamptz + interval '$period s' * $round";
	my $left = ask($actor, "SELECT extract(epoch FROM $tick - clock_timestamp()) - 3");

	advance_clock($left) if $round > 0;
	$met &&= defined await($actor, "SELECT count(*) = 30 FROM shedlock_history WHERE name LIKE 'crowd %' AND outcome = 'succeeded' AND tick = $tick") or last;
}
ok($met, 'thirty jobs at once: each has a run of each of three ticks');
stop_clients(@waiters);
is(errors_in($out[$_]), '', "thirty jobs at once: no session gets an error at $level[$_]") foreach 0 .. 2;
is( ask($actor, q{
SELECT count(*), count(DISTINCT (name, tick)), count(DISTINCT tick), bool_and(outcome = 'succeeded' AND attempt = 1) FROM shedlock_history WHERE name LIKE 'crowd %'}),
	'90|90|3|t', 'thirty jobs at once: each tick of each job has one run');
my ($median, $worst, $processes) = split /\|/, ask($actor, q{
SELECT round(1000 * extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY started_at - tick))), round(1000 * extract(epoch FROM max(started_at - tick))), count(DISTINCT pid)
FROM shedlock_history WHERE name LIKE 'crowd %'});
note "six waiters begin runs of thirty jobs: $median ms after the tick, at most $worst ms";
cmp_ok($processes, '>', 1, 'thirty jobs at once: the waiters share them');
cmp_ok($worst, '<', 3000 * slowness($node), 'thirty jobs at once: all begin soon after the tick');
ask($actor, "SELECT count(shedlock_forget(name)) FROM shedlock_jobs WHERE name LIKE 'crowd %'");

#
# Jobs that are always due, 1 to 3, beside jobs that are due each second, 4 to 8
#
my ($fair, $callers, $jobs) = ('', 3, 8);

ask($actor, join '', map { backlog("fair $_") } 1 .. 3);
ask($actor, "SELECT shedlock_job('fair ' || i, 'every 1 s') FROM generate_series(4, 8) i");
my $callers_at_work = start_clients(\$fair, $callers, '', begin_and_end('fair', join(', ', 1 .. $jobs), ''));
my $begin = ask($actor, "SELECT date_trunc('second', clock_timestamp()) + interval '1 s'");
sleep(12);
my $end = ask($actor, "SELECT date_trunc('second', clock_timestamp()) - interval '1 s'");
stop_clients($callers_at_work);
is(errors_in($fair), '', 'always due: no session gets an error');

# A job that has come due is begun after each other one once, and those that callers had chosen
# before it was due.
my $enough = $jobs - 1 + 2 * $callers;
ask($actor, qq{
CREATE TABLE fair AS
SELECT name, tick, started_at, greatest(tick, lag(ended_at) OVER (PARTITION BY name ORDER BY token)) AS due_at
FROM _shedlock_history WHERE name LIKE 'fair %' AND started_at >= '$begin';
ALTER TABLE fair ADD overtaken_by bigint;
UPDATE fair f SET overtaken_by = (SELECT count(*) FROM fair o WHERE o.name <> f.name AND o.started_at > f.due_at AND o.started_at < f.started_at);
CREATE TABLE unfair AS
SELECT i, at FROM generate_series(4, 8) i, generate_series('$begin'::timestamptz, '$end'::timestamptz - interval '1 s', '1 s') at
WHERE NOT EXISTS (SELECT FROM fair WHERE name = 'fair ' || i AND tick = at)
AND (SELECT count(*) FROM fair WHERE name <> 'fair ' || i AND started_at >= at AND started_at < at + interval '1 s') > $enough});
my ($runs, $least, $most) = split /\|/, ask($actor, 'SELECT sum(n), min(n), max(n) FROM (SELECT count(*) AS n FROM fair WHERE substr(name, 6)::integer <= 3 GROUP BY name) s');
note "always due: $runs runs of the backlogs, each job from $least to $most";
is(ask($actor, "SELECT count(*) > 10 FROM fair WHERE substr(name, 6)::integer > 3"), 't', 'always due: the other jobs are run, too');
cmp_ok(ask($actor, 'SELECT count(*) FROM unfair'), '<=', 1, 'always due: each tick has its run whose turn has come before the next one')
  or diag(ask($actor, 'SELECT i, at FROM unfair ORDER BY 2'));
is(ask($actor, 'SELECT count(DISTINCT name) FROM fair'), $jobs, 'always due: each job is run');
cmp_ok(ask($actor, 'SELECT percentile_disc(0.9) WITHIN GROUP (ORDER BY overtaken_by) FROM fair'), '<=', $enough, 'always due: a job waits for each other one once');
is(ask($actor, "SELECT count(*) FROM (SELECT FROM _shedlock_history WHERE name LIKE 'fair %' GROUP BY name, tick HAVING count(*) > 1) s"), '0', 'always due: no tick has two runs');
cmp_ok($least, '>', $most / 2, 'always due: the backlogs have equal shares');
ask($actor, "DROP TABLE fair, unfair; SELECT count(shedlock_forget(name)) FROM shedlock_jobs WHERE name LIKE 'fair %'");

#
# What a waiter hears of
#
my $waiter = session($node);
my $pid = pid_of($waiter);
my $naps = q{wait_event_type = 'Extension' AND query LIKE '%shedlock_next%' AND state = 'active'};

sub begin_to_wait
{
	my ($session, $names, $arguments, $where) = @_;

	$session->query_until(qr/asking/, "\\echo asking\nSELECT 'heard of ' || coalesce(name, state) FROM shedlock_next('{$names}', '10 min', wait => '10 min'$arguments);\n");
	defined await($actor, "SELECT count(*) = 1 FROM pg_stat_activity WHERE $naps AND $where") or die 'nobody waits';
	return;
}

# Declares a job with one tick a day, which came a moment ago, and was run
sub done_job
{
	my ($name) = @_;

	ask($actor, qq{
SELECT shedlock_job('$name', to_char(clock_timestamp() - interval '1 min', '"every 1 day from" YYYY-MM-DD"T"HH24:MI:SS'), 'UTC', attempts => 2, backoff => '0');
SELECT shedlock_run_end('$name', token) FROM shedlock_run_begin('$name') WHERE token IS NOT NULL});
	return;
}

sub due_job
{
	my ($name) = @_;

	ask($actor, qq{SELECT shedlock_job('$name', 'every 1 day', attempts => 2, backoff => '0')});
	return;
}

# Has the waiter wait, acts, and checks how long after that, or after a time, the run begins.
sub hears
{
	my ($claim, $names, $act, $at) = @_;

	begin_to_wait($waiter, $names, '', "pid = $pid");
	$at //= ask($actor, 'SELECT clock_timestamp()');
	ask($actor, $act);
	$waiter->query_until(qr/heard of heard.*\n/, '');
	my ($name, $took) = split /\|/, ask($actor, "SELECT name, extract(epoch FROM started_at - '$at') FROM _shedlock_history WHERE outcome = 'running' AND pid = $pid");
	note "$claim: $took s";
	cmp_ok($took, '<', 1.5 * slowness($node), "$claim: a waiter hears within a second");
	is(ask($actor, "SELECT shedlock_run_end('$name', token) FROM shedlock WHERE name = '$name'"), 't', "$claim: the run is the waiter's");
	return;
}

done_job('heard other');
done_job('heard again');
hears('shedlock_again', 'heard other, heard again', "SELECT shedlock_again('heard again')");

due_job('heard resume');
ask($actor, "SELECT shedlock_pause('heard resume')");
hears('shedlock_resume', 'heard other, heard resume', "SELECT shedlock_resume('heard resume')");

hears('a name that was missing is declared', 'heard other, heard missing', "SELECT shedlock_job('heard missing', 'every 1 day')");

ask($actor, "SELECT shedlock_job('heard change', 'every 1 day from 2100-01-01')");
hears('another schedule is declared', 'heard other, heard change', "SELECT shedlock_job('heard change', 'every 1 day')");

foreach my $outcome ('failed', 'returned')
{
	due_job("heard $outcome");
	is(ask($actor, "SELECT token IS NOT NULL FROM shedlock_run_begin('heard $outcome', '1 h')"), 't', "a run begins that will have $outcome");
	hears("a run has $outcome", "heard other, heard $outcome", "SELECT shedlock_run_end(name, token, '$outcome') FROM shedlock WHERE name = 'heard $outcome'");
}

foreach my $release ('release', 'force_release')
{
	due_job("heard $release");
	is(ask($actor, "SELECT shedlock_acquire('heard $release', '1 h')"), 't', 'a plain lock is acquired');
	hears("shedlock_$release", "heard other, heard $release", "SELECT shedlock_$release('heard $release')");
}

# Nobody acts: the end of a lease is foreseen.
due_job('heard lease');
ask($actor, "SELECT shedlock_acquire('heard lease', '@{[ 3 * slowness($node) ]} s')");
my $ends = ask($actor, "SELECT lock_until AT TIME ZONE 'UTC' FROM shedlock WHERE name = 'heard lease'");
hears('a lease ends', 'heard other, heard lease', 'SELECT 1', $ends);

#
# What a waiter holds, and what ends it
#

# Each session has a sentinel, of class 21326.
my $nothing = "SELECT (SELECT string_agg(locktype, ', ') = 'virtualxid' FROM pg_locks WHERE pid = $pid AND objsubid IS DISTINCT FROM 21326) AND backend_xid IS NULL FROM pg_stat_activity WHERE pid = $pid AND $naps";

sub holds_nothing
{
	my ($claim, $names) = @_;

	begin_to_wait($waiter, $names, '', "pid = $pid");

	# It is not asked of one look alone, because while the waiter looks it holds more.
	ok(defined await($actor, $nothing), "$claim: a waiter holds nothing while it sleeps");
	is(ask($actor, "SELECT count(*) FROM pg_locks WHERE pid = $pid AND locktype = 'transactionid'"), '0', "$claim: a waiter has no transaction ID");
	is(ask($actor, "SELECT pg_cancel_backend($pid)"), 't', "$claim: an administrator cancels the waiter");
	ok(defined await($actor, "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $pid"), "$claim: a cancel ends the wait");
	ask($waiter, 'SELECT 1');
	like($waiter->{heard}, qr/canceling statement due to user request/, "$claim: the waiter is told why");
	return;
}

holds_nothing('nothing due', 'heard other');
due_job('heard held');
ask($actor, "SELECT shedlock_acquire('heard held', '1 h')");
holds_nothing('lock held', 'heard other, heard held');
ask($actor, "SELECT shedlock_release('heard held')");
my $holder = session($node);
ask($holder, "BEGIN; SELECT token FROM shedlock_run_begin('heard held')");
holds_nothing('a run in an open transaction', 'heard other, heard held');
ask($holder, 'ROLLBACK');
is(ask($waiter, "SELECT name FROM shedlock_next('{heard other, heard held}')"), 'heard held', 'after its cancels, the session of the waiter begins a run');
ask($waiter, "SELECT shedlock_run_end(name, token) FROM shedlock WHERE name = 'heard held'");

ask($waiter, "SET statement_timeout = '300ms'; SELECT name FROM shedlock_next('{heard other}', wait => '10 min')");
like($waiter->{heard}, qr/canceling statement due to statement timeout/, 'statement_timeout ends a wait');
ask($waiter, 'RESET statement_timeout');

# A client that is killed while its call sleeps begins no run afterwards.
my ($begun, $slowest) = (0, 0);
foreach my $round (1 .. 5)
{
	my $victim = session($node);
	my $victim_pid = pid_of($victim);

	begin_to_wait($victim, 'heard other, heard again', '', "pid = $victim_pid");
	kill_client($victim);
	ask($actor, "SELECT shedlock_again('heard again')");
	my $took = await($actor, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $victim_pid") // 999;
	$took /= slowness($node);
	$slowest = $took if $took > $slowest;
	$begun += ask($actor, "SELECT count(*) FROM _shedlock_history WHERE pid = $victim_pid");
	ask($actor, "SELECT shedlock_force_release('heard again'), shedlock_again('heard again')");
	ask($actor, "SELECT shedlock_run_end(name, token) FROM shedlock_next('{heard again}')");
}
cmp_ok($slowest, '<', 2, 'a call ends two seconds after its client was killed');
cmp_ok($begun, '<=', 1, 'and begins no run for it');

#
# Forgotten meanwhile
#
due_job('heard gone');
ask($actor, "SELECT shedlock_pause('heard gone')");
begin_to_wait($waiter, 'heard gone, heard never declared', '', "pid = $pid");
ask($actor, "SELECT shedlock_forget('heard gone'), shedlock_resume('heard gone')");
ok(defined await($actor, "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $pid"), 'the last job is forgotten: the wait ends');
ask($waiter, 'SELECT 1');
like($waiter->{heard}, qr/none of these 2 jobs exists/, 'the last job is forgotten: the waiter is told so');

# A call finds several jobs due.  An open transaction has the ticks of those that have waited
# longest: that delays no other one.
my @first = map { "gone $_" } 1 .. 60;
ask($actor, "SELECT shedlock_job('gone ' || i, 'every 1 day'), shedlock_acquire('gone ' || i, '1 h'), shedlock_release('gone ' || i) FROM generate_series(1, 60) i");
ask($actor, "SELECT shedlock_job('gone last', 'every 1 day')");
ask($holder, "BEGIN; SELECT count(shedlock_again('gone ' || i)) FROM generate_series(1, 60) i");
my $slow = seconds { is(ask($actor, "SELECT name FROM shedlock_next('{@{[ join ', ', @first, 'gone last' ]}}')"), 'gone last', 'ticks of other jobs are claimed: the call begins a run') };
cmp_ok($slow, '<', slowness($node), 'ticks of other jobs are claimed: at once');
ask($holder, 'ROLLBACK');
ask($actor, "SELECT shedlock_run_end('gone last', token), shedlock_again('gone last') FROM shedlock WHERE name = 'gone last'");

# Another client has the rows of their locks, for which a call waits 100 ms each.  Meanwhile the
# last job is forgotten, on a machine that is not too slow for that.
splice @first, 20;
ask($holder, "BEGIN; SELECT FROM shedlock WHERE name = ANY ('{@{[ join ', ', @first ]}}') FOR UPDATE");
begin_to_wait($waiter, join(', ', @first, 'gone last'), ", locked_by => 'too late'", "pid = $pid");
ask($actor, "SELECT shedlock_forget('gone last')");
sleep(2.5);
ask($holder, 'COMMIT');
$waiter->query_until(qr/heard of gone.*\n/, '');
is(ask($actor, "SELECT count(*), bool_and(tick IS NOT NULL) FROM _shedlock_history WHERE locked_by LIKE 'too late%'"), '1|t', 'a job is forgotten after it was found due: the run that begins has a tick');

# Three jobs come and go about the tick, and another one stays.
my ($gone, $churned) = ('', '');
ask($actor, "SELECT shedlock_job('churn 0', 'every 1 day from 2100-01-01')");
my $waiting = start_clients(\$gone, 6, '', begin_and_end('churn', '0, 1, 2, 3', ", wait => '3 s'"));
my $churning = start_clients(\$churned, 3, '', "\\set n :client_id + 1\n"
	  . "SELECT shedlock_job('churn ' || :n, 'every 1 s');\n"
	  . "SELECT pg_sleep(1 - extract(epoch FROM clock_timestamp()) % 1 + random() * 0.004);\n"
	  . "SELECT shedlock_forget('churn ' || :n);\n");
sleep(8);
stop_clients($waiting, $churning);
is(errors_in($gone), '', 'jobs come and go: no waiter gets an error');
is(errors_in($churned), '', 'jobs come and go: nobody who declares or forgets gets an error');
is(ask($actor, "SELECT count(*) FROM _shedlock_history WHERE name LIKE 'churn %' AND tick IS NULL"), '0', 'jobs come and go: no run begins that has no tick');
is(ask($actor, "SELECT count(*) > 0 FROM _shedlock_history WHERE name LIKE 'churn %'"), 't', 'jobs come and go: runs have begun');
is(ask($actor, "SELECT count(*) FROM (SELECT FROM _shedlock_history WHERE name LIKE 'churn %' GROUP BY name, tick HAVING count(*) > 1) s"), '0', 'jobs come and go: no tick has two runs');

#
# Behind a pooler
#
SKIP:
{
	skip('this needs pgbouncer', 1) unless find_pgbouncer();
	$node->safe_psql('postgres', 'CREATE ROLE app LOGIN');
	my $pooler = start_pooler($node, 'transaction', 3);

	ask($actor, "SELECT shedlock_job('pooled', to_char(clock_timestamp() + interval '2 s', '\"every 1 day from\" YYYY-MM-DD\"T\"HH24:MI:SS'), 'UTC')");
	my ($answer, $err) = pooled($pooler, join "\n",
		"SELECT coalesce(token, 0) AS token, clock_timestamp() >= tick AS not_before, name FROM shedlock_next('{pooled}', wait => '5 min') \\gset",
		('SELECT 1 WHERE false;') x 3,
		"SELECT :'name', :'not_before', shedlock_run_end(:'name', :token);");
	is("$answer$err", 'pooled|t|t', 'pooler: a waiter begins a run at its tick, and ends it by its token in any server process');

	# Whoever waits for a client that is gone keeps one of three server processes.
	my $client = pooled_session($node, $pooler);
	begin_to_wait($client, 'pooled', '', "usename = 'app'");
	kill_client($client);
	my $took = await($actor, "SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'app' AND $naps");
	cmp_ok($took // 999, '<', 2 * slowness($node), 'pooler: a call ends two seconds after its client was killed');
	ask($actor, "SELECT shedlock_again('pooled')");
	is(pooled($pooler, "SELECT name FROM shedlock_next('{pooled}')"), 'pooled', 'pooler: and begins no run for it');
	stop_pooler($pooler);
}

#
# Requests: each client has its own list of names, and all have the same request for 20 ms.
#
my $asked = '';
ask($actor, join '', map { backlog("asked $_") } 1 .. 4);
ask($actor, 'CREATE TABLE asked (request text, client integer, name text, token bigint, state text)');
my $asking = start_clients(\$asked, 4, '', "\\set n :client_id + 1\n"
	  . "SELECT floor(extract(epoch FROM clock_timestamp()) * 50) AS r \\gset\n"
	  . "INSERT INTO asked SELECT 'request ' || :r, :n, name, token, state FROM shedlock_next(ARRAY(SELECT 'asked ' || i FROM generate_series(1, 4) i WHERE i <> :n), '10 min', wait => '1 s', request => 'request ' || :r);\n"
	  . "SELECT count(shedlock_run_end(name, token)) FROM asked WHERE request = 'request ' || :r AND client = :n AND token IS NOT NULL;\n");
sleep(5);
stop_clients($asking);
is(errors_in($asked), '', 'requests: no session gets an error');
is(ask($actor, q{SELECT count(*) FROM (SELECT FROM _shedlock_history WHERE name LIKE 'asked %' GROUP BY request HAVING count(*) > 1) s}), '0', 'requests: none begins two runs');
is(ask($actor, q{SELECT count(*) FROM (SELECT FROM asked GROUP BY request HAVING count(DISTINCT token) > 1) s}), '0', 'requests: all who are given a run of one are given the same');
is(ask($actor, q{SELECT count(*) > 5 FROM (SELECT FROM asked GROUP BY request HAVING count(DISTINCT client) > 1 AND count(token) > 0) s}), 't', 'requests: several were asked by more than one client');

# A call with the same request began a run while this one waits, and nothing else is due.
due_job('heard request');
ask($holder, "BEGIN; SELECT name FROM shedlock_next('{heard other, heard request}', request => 'twice')");
begin_to_wait($waiter, 'heard request', ", request => 'twice'", "pid = $pid");
ask($holder, 'COMMIT');
my $took = seconds { $waiter->query_until(qr/heard of heard request\n/, '') };
cmp_ok($took, '<', 2 * slowness($node), 'requests: a waiter hears within a second of the run that its request has begun');
is(ask($actor, "SELECT count(*) FROM _shedlock_history WHERE request = 'twice'"), '1', 'requests: that is one run');

$_->quit foreach $waiter, $holder, $actor;
$node->stop;
done_testing();
