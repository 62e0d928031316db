# The fault checker finds each of fourteen ways to break the protocol, and no violation in
# the intact protocol under the same conditions.  Ten minutes at most.
#
# Debian packages: libdbd-pg-perl

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use FaultRun;
use PlantedFault;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

eval { require DBD::Pg; 1 } or plan skip_all => 'this needs the Perl module DBD::Pg';

my $rounds = 10;
my $node = start_node('main', conf => "log_statement = none\n");

# Delays of up to 20 ms between the steps of the protocol, which widen its races
my $nap = 'ShedlockNap((long) pg_prng_uint64_range(&pg_global_prng_state, 1, 20));';
my @include = (qq{#include "postgres.h"\n}, qq{#include "postgres.h"\n#include "common/pg_prng.h"\n});
my @delays = (
	'lock/acquire.c', @include,
	'lock/acquire.c', 'old = *row;', "$nap old = *row;",
	'lock/acquire.c', 'if (!ShedlockTryLock(', "$nap if (!ShedlockTryLock(",
	'lock/owner.c', @include,
	'lock/owner.c', 'owned = owns_lock(call);', "owned = owns_lock(call); $nap");

# Has the server use the library with changes.
sub plant
{
	my (@changes) = @_;
	my $conf = faulty_library(@changes);
	my ($folder) = $conf =~ /'(.*?):/;

	$node->append_conf('postgresql.conf', $conf);
	$node->restart;
	is($node->safe_psql('postgres', "SELECT shedlock_acquire('loaded'), pg_read_file('/proc/self/maps') LIKE '%$folder/shedlock.so%'"),
		't|t', 'it is loaded');
	return;
}

# One run of a few seconds, with many clients for few locks
sub short_run
{
	my ($seconds, $seed, %options) = @_;

	# so that runs do not share tokens
	$node->safe_psql('postgres', 'DROP EXTENSION shedlock; CREATE EXTENSION shedlock');
	return fault_run($node, seconds => $seconds, seed => $seed, names => 2, pace => 0.002, pause => 0.1,
		faults => 'stop_client,kill_client,cancel,terminate', require => 'none', %options);
}

foreach ([ 'the intact protocol' ], [ 'the intact protocol, with delays', @delays ])
{
	my ($claim, @changes) = @$_;

	subtest $claim => sub {
		plant(@changes);
		my $report = short_run(10, 1000 + @changes);
		is(rules_of($report), 'none', 'no violation') or diag($report);
	};
}

# The rule that must find each; other rules may find it, too.  now() is wrong only in old
# transactions, which are rare if many clients wait for one lock.
foreach (
	[ 'the row decides alone', 'two holders', {}, @delays,
		'lock/acquire.c', '!ShedlockTryLock(&name->tag, ExclusiveLock)', 'false' ],
	[ 'the time is that of the transaction', 'two holders', { names => 6, favour => 'in_transaction' },
		'lock/acquire.c', 'now = GetCurrentTimestamp();', 'now = GetCurrentTransactionStartTimestamp();' ],
	[ 'the first read decides', 'two holders', {}, @delays,
		'lock/acquire.c', 'ShedlockJudge(row, &request->name, now, SHEDLOCK_MINE)', 'SHEDLOCK_FREE' ],
	[ 'any owner may change a lock', 'not the owner', {},
		'lock/owner.c', 'ShedlockOpen(&call->store, call->name->nsp, "shedlock", RowExclusiveLock);',
		'ShedlockOpen(&call->store, call->name->nsp, "shedlock", RowExclusiveLock);
		 ShedlockReadRow(&call->store, call->name->str, &call->row);
		 call->token = call->row.token;' ],
	[ 'each token is given twice', 'token repeated', {},
		'table/store.c', "if (token > last->token)\n\t\t\treturn token;", 'return (token + 1) / 2;' ],
	[ 'the begin of a run does not count', 'too many attempts', { favour => 'planned_run' },
		'job/begin.c', 'last->attempt = try->due.attempt;', 'last->attempt = try->due.attempt - 1;' ],
	[ 'a success leaves its tick open', 'used up', { favour => 'planned_run' },
		'job/tick.c', "last->done = true;\n\t\tlast->retry_at = DT_NOBEGIN;", 'last->retry_at = DT_NOBEGIN;' ],
	[ 'a success uses up the ticks that follow', 'due but not run', { favour => 'planned_run' },
		'job/tick.c', 'use_up_passed(last, &job.schedule, now);', 'last->tick = ShedlockNextTick(&job.schedule, now);' ],
	[ 'a run that is returned counts', 'too many attempts', { favour => 'leased_run' },
		'job/tick.c', 'last->attempt--;', '' ],
	[ 'a change loses the tick that is due', 'due but not run', { favour => 'planned_run', faults => 'declare' },
		'job/declare.c', 'job->carried = find_carried(old, &last, now);', 'job->carried = DT_NOBEGIN;' ],
	[ 'a job that was forgotten owes its old tick', 'used up', { favour => 'planned_run', faults => 'forget' },
		'job/declare.c', 'job->spent_token = last.token;', 'job->spent_token = 0;' ],
	[ 'nothing looks for what was skipped', 'skipped', { favour => 'planned_run', faults => 'skip' },
		'job/due.c', 'first.tick != state->skipped', 'true' ],
	[ 'callers are told to come back too late', 'told a wrong time', { favour => 'leased_run' },
		'job/state.c', 'now + LOOK_AGAIN : at;', 'now + LOOK_AGAIN : at + USECS_PER_SEC;' ],
	[ 'there is one permit more', 'too many permits', { favour => 'permits' },
		'api/lockfuncs.c', 'elems = palloc((Size) permits', 'permits++; elems = palloc((Size) permits' ])
{
	my ($claim, $rule, $options, @changes) = @$_;

	subtest $claim => sub {
		my ($report, $round);

		plant(@changes);
		for ($round = 1; $round <= $rounds; $round++)
		{
			$report = short_run(5, 100 * $round, %$options);
			last if rules_of($report) =~ /\b$rule\b/;
		}
		like(rules_of($report), qr/\b$rule\b/, "found by \"$rule\"") or diag($report);
		note("in round $round: " . rules_of($report));
	};
}

$node->stop;
done_testing();
