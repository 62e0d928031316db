# One job walks through all of its fates.  At each step shedlock_locks, shedlock_jobs,
# shedlock_history, shedlock_stats, shedlock_why and the events that a listener hears say
# the same, and overdue, paused and held_for are right.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main', conf => "shedlock.notify = all\nlog_statement = none\n");
my $steps = 0;
my $listener = session($node);
ask($listener, 'LISTEN shedlock');

# What each view says of the job, in the words of the table below
my %views = (
	lock => q{SELECT concat_ws(' ', state, kind, CASE WHEN held_for > '1 day' THEN 'too long' WHEN held_for IS NOT NULL THEN 'now' END)
		FROM shedlock_locks WHERE name = 'job'},
	job => q{SELECT concat_ws(', ', state, last_outcome, attempt || ' of ' || attempts,
			CASE WHEN next_attempt_at <= clock_timestamp() THEN 'attempt due' WHEN next_attempt_at < clock_timestamp() + '1 day' THEN 'attempt later'
				 WHEN next_attempt_at IS NOT NULL THEN 'attempt at ' || next_attempt_at END,
			CASE WHEN overdue > '0' THEN 'overdue' WHEN overdue IS NOT NULL THEN 'overdue by ' || overdue END,
			CASE WHEN paused THEN 'paused' END)
		FROM shedlock_jobs WHERE name = 'job'},
	history => q{SELECT h.outcome || CASE WHEN l.gave_up THEN ', gave up' ELSE '' END FROM shedlock_history h JOIN _shedlock_history l USING (token)
		WHERE h.name = 'job' ORDER BY token DESC LIMIT 1},
	stats => q{SELECT concat_ws(' ', runs_succeeded, runs_failed, runs_timed_out, runs_cancelled, runs_lost, gave_up) FROM shedlock_stats WHERE name = 'job'});

# Returns the events that were sent until now, in the words of the table below.
sub events
{
	my $end = 'step ' . ++$steps;
	my $heard = '';

	$node->safe_psql('postgres', "NOTIFY shedlock, '$end'");
	$heard .= ask($listener, 'SELECT 1') . "\n" until $heard =~ /payload "\Q$end\E"/;
	return join '; ', map {
		my $event = decode_json($_);

		is($event->{v}, 1, "$end: version of the event");
		is($event->{name}, 'job', "$end: name of the event");
		join ' ', $event->{event},
		  join(' of ', grep { defined } @$event{qw(attempt attempts)}) || (),
		  $event->{next_attempt_at} ? 'next' : ();
	} $heard =~ /payload "(\{.*\})" received/g;
}

# Lets the job have a fate, and compares what is seen of it.
sub fate
{
	my ($fate, $act, %expected) = @_;

	ref $act ? $act->() : $node->psql('postgres', $_, on_error_stop => 0) foreach ref $act ? 1 : split /;;/, $act;
	my %seen = map { $_ => $node->safe_psql('postgres', $views{$_}) } keys %views;
	$seen{events} = events();
	is_deeply(\%seen, { map { $_ => $expected{$_} } keys %seen }, $fate)
	  or diag(join "\n", map { "$_: $seen{$_}" } sort keys %seen);
	like($node->safe_psql('postgres', "SELECT replace(shedlock_why('job'), E'\\n', '  ')"), $expected{why}, "$fate: shedlock_why");
	return;
}

# It is overdue as soon as a run is due.
my $declare = q{SELECT shedlock_job('job', '@yearly', attempts => 3, backoff => '1 h', overdue_after => '1 us')};
my $begin = q{SELECT token, reason FROM shedlock_run_begin('job', '1 h')};
my $end = q{SELECT shedlock_run_end('job', (SELECT max(token) FROM _shedlock_history), '%s')};
my $next_tick = q{UPDATE _shedlock_tick SET tick = tick - interval '1 year' WHERE name = 'job'};
my $backoff_over = q{UPDATE _shedlock_tick SET retry_at = clock_timestamp() - interval '2 min' WHERE name = 'job'};
my $expire = q{UPDATE shedlock SET lock_until = timezone('UTC', clock_timestamp()) - interval '2 min' WHERE name = 'job'};
my $free = qr/^It is free, and was last acquired by/;
my $held = qr/^It has been held by .* It ends at .* unless it is extended\./;

fate('unknown', 'SELECT 1',
	lock => '', job => '', history => '', stats => '', events => '',
	why => qr/^It is free, and was never acquired\.  No lock or job has this name: it is new, or misspelled\.$/);
fate('declared', $declare,
	lock => '', job => 'new, 0 of 3', history => '', stats => '', events => '',
	why => qr/never acquired\.  No tick has been run yet\.  The next tick is /);
fate('never called', q{UPDATE _shedlock_job SET since = since - interval '1 year' WHERE name = 'job'},
	lock => '', job => 'due, 0 of 3, overdue', history => '', stats => '', events => '',
	why => qr/never acquired\. .* Attempt 1 of 3 at tick .* is due now\.$/);
fate('running', $begin,
	lock => 'held leased run now', job => 'running, running, 1 of 3', history => 'running', stats => '', events => 'started 1 of 3',
	why => qr/$held  Attempt 1 at tick .*; outcome: running\.$/);
fate('failed, with an attempt left', sprintf($end, 'failed'),
	lock => '', job => 'retrying, failed, 1 of 3, attempt later', history => 'failed', stats => '0 1 0 0 0 0', events => 'failed 1 of 3 next',
	why => qr/$free.*outcome: failed\.  Attempt 2 of 3 is due at /);
fate('the next attempt is late', $backoff_over,
	lock => '', job => 'retrying, failed, 1 of 3, attempt due, overdue', history => 'failed', stats => '0 1 0 0 0 0', events => '',
	why => qr/$free.*outcome: failed\.  Attempt 2 of 3 at tick .* is due now\.$/);
fate('timed out', "$begin;;" . sprintf($end, 'timed out'),
	lock => '', job => 'retrying, timed out, 2 of 3, attempt later', history => 'timed out', stats => '0 1 1 0 0 0', events => 'started 2 of 3; timed out 2 of 3 next',
	why => qr/$free.*outcome: timed out\.  Attempt 3 of 3 is due at /);
fate('the last attempt is running', "$backoff_over;;$begin",
	lock => 'held leased run now', job => 'running, running, 3 of 3', history => 'running', stats => '0 1 1 0 0 0', events => 'started 3 of 3',
	why => qr/$held  Attempt 3 at tick .*; outcome: running\.$/);
fate('failed, gave up', sprintf($end, 'failed'),
	lock => '', job => 'gave up, failed, 3 of 3', history => 'failed, gave up', stats => '0 2 1 0 0 1', events => 'failed 3 of 3; gave up 3 of 3',
	why => qr/$free.*outcome: failed\..*  No attempt is left; the next tick is .*  shedlock_again allows one more attempt\.$/);
fate('again', q{SELECT shedlock_again('job')},
	lock => '', job => 'retrying, failed, 3 of 3, attempt due, overdue', history => 'failed, gave up', stats => '0 2 1 0 0 1', events => '',
	why => qr/$free.*outcome: failed\.  Attempt \d of \d at tick .* is due now\.$/);
fate('succeeded', "$begin;;" . sprintf($end, 'succeeded'),
	lock => '', job => 'waiting, succeeded, 4 of 3', history => 'succeeded', stats => '1 2 1 0 0 1', events => 'started 4 of 3; succeeded 4 of 3',
	why => qr/$free.*outcome: succeeded\.  The next tick is /);
fate('overdue', $next_tick,
	lock => '', job => 'due, succeeded, 4 of 3, overdue', history => 'succeeded', stats => '1 2 1 0 0 1', events => '',
	why => qr/$free.*outcome: succeeded\.  Attempt 1 of 3 at tick .* is due now\.$/);
fate('cancelled', "$begin;;" . sprintf($end, 'cancelled'),
	lock => '', job => 'retrying, cancelled, 1 of 3, attempt later', history => 'cancelled', stats => '1 2 1 1 0 1', events => 'started 1 of 3; cancelled 1 of 3 next',
	why => qr/$free.*outcome: cancelled\.  Attempt 2 of 3 is due at /);
fate('lost, its lease over', "$backoff_over;;$begin;;$expire",
	lock => '', job => 'retrying, lost, 2 of 3, attempt later', history => 'lost', stats => '1 2 1 1 0 1', events => 'started 2 of 3',
	why => qr/$free.*outcome: lost\.  Attempt 3 of 3 is due at /);
fate('lost, told and counted by the next run', "$backoff_over;;$begin",
	lock => 'held leased run now', job => 'running, running, 3 of 3', history => 'running', stats => '1 2 1 1 1 1', events => 'lost 2 of 3; started 3 of 3',
	why => qr/$held  Attempt 3 at tick .*; outcome: running\.$/);
fate('held too long', q{UPDATE shedlock SET locked_at = locked_at - interval '2 days' WHERE name = 'job'},
	lock => 'held leased run too long', job => 'running, running, 3 of 3', history => 'running', stats => '1 2 1 1 1 1', events => '',
	why => qr/$held  Attempt 3 at tick .*; outcome: running\.$/);
fate('held and paused', q{SELECT shedlock_pause('job', 'infinity', 'moving')},
	lock => 'held leased run too long', job => 'running, running, 3 of 3, paused', history => 'running', stats => '1 2 1 1 1 1', events => 'paused',
	why => qr/outcome: running\.$/);
fate('given up while paused', sprintf($end, 'failed'),
	lock => 'paused released', job => 'paused, failed, 3 of 3, paused', history => 'failed, gave up', stats => '1 3 1 1 1 2', events => 'failed 3 of 3; gave up 3 of 3',
	why => qr/^It was paused by "postgres" until shedlock_resume: moving\. .*No attempt is left/);
fate('paused, and a tick has come', $next_tick,
	lock => 'paused released', job => 'paused, failed, 3 of 3, paused', history => 'failed, gave up', stats => '1 3 1 1 1 2', events => '',
	why => qr/^It was paused by "postgres" until shedlock_resume: moving\. .*is due now/);
fate('refused by the pause', $begin,
	lock => 'paused released', job => 'paused, failed, 3 of 3, paused', history => 'failed, gave up', stats => '1 3 1 1 1 2', events => '',
	why => qr/^It was paused by "postgres" until shedlock_resume: moving\. .*is due now/);
fate('resumed', q{SELECT shedlock_resume('job')},
	lock => '', job => 'due, failed, 3 of 3, overdue', history => 'failed, gave up', stats => '1 3 1 1 1 2', events => 'resumed',
	why => qr/$free.*Attempt 1 of 3 at tick .* is due now\.$/);
fate('released by force', "$begin;;SELECT shedlock_force_release('job')",
	lock => '', job => 'waiting, cancelled, 1 of 3', history => 'cancelled', stats => '1 3 1 2 1 2', events => 'started 1 of 3; cancelled 1 of 3; forced',
	why => qr/$free.*outcome: cancelled\.  The next tick is /);
fate('failed before the next tick', "$next_tick;;$begin;;" . sprintf($end, 'failed') . ";;$next_tick",
	lock => '', job => 'due, failed, 1 of 3, overdue', history => 'failed', stats => '1 4 1 2 1 2', events => 'started 1 of 3; failed 1 of 3 next',
	why => qr/$free.*outcome: failed\.  Attempt 1 of 3 at tick .* is due now\.$/);
fate('given up by the run of that tick', "$begin;;" . sprintf($end, 'succeeded'),
	lock => '', job => 'waiting, succeeded, 1 of 3', history => 'succeeded', stats => '2 4 1 2 1 3', events => 'gave up 1 of 3; started 1 of 3; succeeded 1 of 3',
	why => qr/$free.*outcome: succeeded\.  The next tick is /);

# A command in the database, whose process is ended
my $runner;
fate('a command is running', sub {
		$node->safe_psql('postgres', $next_tick);
		$runner = session($node);
		$runner->query_until(qr/running/, q{\echo running
CALL shedlock_run('job', 'SELECT pg_sleep(600)');
});
		ok(defined await($node, q{SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'job' AND state = 'held'}), 'the command runs');
	},
	lock => 'held run now', job => 'running, running, 1 of 3', history => 'running', stats => '2 4 1 2 1 3', events => 'started 1 of 3',
	why => qr/^It has been held by .*Attempt 1 at tick .*; outcome: running\.$/);
fate('lost, its process ended', sub {
		terminate($node, $node->safe_psql('postgres', q{SELECT pid FROM shedlock_locks WHERE name = 'job'}));
		reap($runner);
	},
	lock => '', job => 'retrying, lost, 1 of 3, attempt due, overdue', history => 'lost', stats => '2 4 1 2 1 3', events => '',
	why => qr/$free.*outcome: lost\.  Attempt 2 of 3 at tick .* is due now\.$/);
fate('lost, counted by another acquirer', q{SELECT shedlock_acquire('job')},
	lock => 'held lease now', job => 'retrying, lost, 1 of 3, attempt due', history => 'lost', stats => '2 4 1 2 2 3', events => '',
	why => qr/$held.*outcome: lost\.  Attempt 2 of 3 at tick .* is due now\.$/);
# No acquisition of a lease notifies, and what it has settled is not told later.
fate('its next attempt', "SELECT shedlock_force_release('job');;$begin;;" . sprintf($end, 'succeeded'),
	lock => '', job => 'waiting, succeeded, 2 of 3', history => 'succeeded', stats => '3 4 1 2 2 3', events => 'forced; started 2 of 3; succeeded 2 of 3',
	why => qr/$free.*outcome: succeeded\.  The next tick is /);
fate('forgotten', q{SELECT shedlock_forget('job')},
	lock => '', job => '', history => 'succeeded', stats => '', events => '',
	why => qr/$free.*  Attempt 2 at tick .*; outcome: succeeded\.$/);
fate('purged', q{SELECT shedlock_purge('0', true)},
	lock => '', job => '', history => 'succeeded', stats => '', events => '',
	why => qr/^It is free, and was never acquired\.$/);
fate('reset', q{SELECT shedlock_stats_reset('job')},
	lock => '', job => '', history => 'succeeded', stats => '', events => '',
	why => qr/^It is free, and was never acquired\.$/);

$listener->quit;
$node->stop;
done_testing();
