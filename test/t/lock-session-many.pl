# A session with hundreds of session locks: each costs at most a few times what it costs with
# dozens, what is undone is undone in both halves, and the next deadline rules.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main');

# The seconds of the processor that 4,000 locks take, so many held at a time: the kernel
# counts them for the process, so it does not matter how long others have the processor.
# It adds them up when the process leaves the processor, as for a sleep.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION used() RETURNS float LANGUAGE sql AS $$ SELECT pg_sleep(0.0001); SELECT split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::float / 1e9 $$;
CREATE PROCEDURE measure(held int, OUT acquired float, OUT extended float, OUT undone float, OUT released float, OUT reset float)
LANGUAGE plpgsql AS $$
DECLARE
	start float;
	names text[];
BEGIN
	acquired := 0; extended := 0; undone := 0; released := 0; reset := 0;
	FOR batch IN 1..4000 / held LOOP
		SELECT array_agg('many ' || n) INTO names FROM generate_series((batch - 1) * held + 1, batch * held) n;

		start := used();
		PERFORM count(shedlock_acquire_session(name, '1 h')) FROM unnest(names) name;
		COMMIT;
		acquired := acquired + used() - start;

		start := used();
		PERFORM count(shedlock_extend(name)) FROM unnest(names) name;
		COMMIT;
		extended := extended + used() - start;

		start := used();
		BEGIN
			PERFORM count(shedlock_release(name)) FROM unnest(names) name;
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
		END;
		COMMIT;
		undone := undone + used() - start;

		start := used();
		PERFORM count(shedlock_release(name)) FROM unnest(names) name;
		COMMIT;
		released := released + used() - start;

		PERFORM count(shedlock_acquire_session(name, '1 h')) FROM unnest(names) name;
		COMMIT;
		start := used();
		PERFORM pg_advisory_unlock_all();
		COMMIT;
		reset := reset + used() - start;
	END LOOP;
END
$$;
SQL

# Of several turns the best ratio counts: another process can only make it worse, by what
# it leaves in the caches of the processor.  A reset takes so little that these matter; each
# lock would be ten times as much if all others were looked at for each.
my @steps = qw(acquired extended undone released reset);
my %limit = (acquired => 3, extended => 3, undone => 3, released => 3, reset => 6);
my %best;
foreach my $turn (1 .. 5)
{
	my @few = split /\|/, $node->safe_psql('postgres', 'CALL measure(40, 0, 0, 0, 0, 0)');
	my @many = split /\|/, $node->safe_psql('postgres', 'CALL measure(400, 0, 0, 0, 0, 0)');

	note("turn $turn: seconds with 40 held @few, with 400 @many");
	foreach my $i (0 .. $#steps)
	{
		my $ratio = $many[$i] / $few[$i];
		$best{ $steps[$i] } = $ratio unless defined $best{ $steps[$i] } && $best{ $steps[$i] } <= $ratio;
	}
	last unless grep { $best{$_} >= $limit{$_} } @steps;
}
foreach my $step (@steps)
{
	cmp_ok($best{$step}, '<', $limit{$step}, "400 locks are $step in about the time of ten times 40");
}

# Random transactions of one session.  The model knows what it holds after each of them.
my $seed = $ENV{SHEDLOCK_SEED} || 1 + int(rand(2**31 - 1));
diag("SHEDLOCK_SEED=$seed");
srand($seed);
my $session = session($node);
my %held;
my $wrong;

# One statement, and what becomes of the model.
sub step
{
	my ($model) = @_;
	my $name = 'random ' . int(rand(120));
	my $choice = rand;

	if ($choice < 0.5)
	{
		my $limit = $choice < 0.25 ? ", '1 h'" : '';

		$model->{$name} = 1;
		return "SELECT shedlock_acquire_session('$name'$limit);";
	}
	if ($choice < 0.8)
	{
		delete $model->{$name};
		return "SELECT shedlock_release('$name');";
	}
	if ($choice < 0.97)
	{
		return "SELECT shedlock_extend('$name', lock_at_most_for => '2 h');";
	}

	# It has lost its row.  In half of these cases it is acquired again.
	return '' unless $model->{$name};
	my $sql = "SET LOCAL session_replication_role = replica; DELETE FROM shedlock WHERE name = '$name'; RESET session_replication_role;";
	return $sql . (
		rand() < 0.5 ? "SELECT shedlock_acquire_session('$name');" :
		do { delete $model->{$name}; "SELECT shedlock_release('$name');" });
}

# Some statements and savepoints.
sub steps
{
	my ($model, $depth) = @_;
	my $sql = '';

	foreach my $n (1 .. 1 + int(rand(8)))
	{
		if ($depth < 4 && rand() < 0.2)
		{
			my %inner = %$model;
			my $undone = rand() < 0.5;

			$sql .= "SAVEPOINT s$depth;" . steps(\%inner, $depth + 1) . ($undone ? 'ROLLBACK TO' : 'RELEASE') . " s$depth;";
			%$model = %inner unless $undone;
		}
		else
		{
			$sql .= step($model);
		}
	}
	return $sql;
}

foreach my $turn (1 .. 400)
{
	my %model = %held;
	my $undone = rand() < 0.2;
	my $sql = 'SET client_min_messages = error; BEGIN;' . steps(\%model, 0) . ($undone ? 'ROLLBACK' : 'COMMIT');

	ask($session, $sql);
	%held = %model unless $undone;

	my $held = join ' ', sort map { s/random //r } keys %held;
	my ($rows, $halves) = split /\|/, ask($session, <<'SQL');
SELECT (SELECT string_agg(replace(name, 'random ', ''), ' ' ORDER BY replace(name, 'random ', '') COLLATE "C")
		FROM shedlock_locks WHERE name LIKE 'random %' AND state = 'held' AND pid = pg_backend_pid()),
	   (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND objsubid = 21324 AND mode = 'ShareLock')
SQL
	next if ($rows // '') eq $held && $halves == keys %held;
	$wrong = "turn $turn: $sql\nheld by the views: $rows\nadvisory halves: $halves\nexpected: $held";
	last;
}
is($wrong, undef, 'after random transactions the session holds what it should, in both halves');
ask($session, 'DISCARD ALL');
is(ask($session, "SELECT count(*) FROM shedlock_locks WHERE name LIKE 'random %' AND state = 'held'"), '0', 'after a reset it holds nothing');
is(ask($session, "SELECT count(*) FROM pg_locks WHERE objsubid = 21324"), '0', 'nor any advisory half');
$session->quit;

# The limits of 500 locks, of which one is the next each time
$session = session($node);
my $pid = pid_of($session);
ask($session, "SELECT count(*) FROM generate_series(1, 500) n WHERE shedlock_acquire_session('limit ' || n, n % 50 * interval '1 s' + '10 min')");
ask($session, "SELECT shedlock_acquire_session('limit released', '3 s')");
ask($session, "SELECT shedlock_acquire_session('limit extended', '3 s')");
ask($session, "SELECT shedlock_acquire_session('limit shortened', '20 min')");
ask($session, "SELECT shedlock_release('limit released'), shedlock_extend('limit extended', lock_at_most_for => '1 h')");
ask($session, "SELECT count(*) FROM generate_series(1, 500, 7) n WHERE shedlock_release('limit ' || n)");
ask($session, "BEGIN; SAVEPOINT s; SELECT shedlock_extend('limit shortened', lock_at_most_for => '1 s'); ROLLBACK TO s; COMMIT");
ask($session, 'SELECT pg_sleep(3.5)');
is(ask($session, 'SELECT pg_backend_pid()'), $pid, 'limits that were released, extended and rolled back do not end the session');
is(ask($session, "SELECT count(*) FROM pg_locks WHERE pid = $pid AND objsubid = 21324"), 500 - 72 + 2, 'it holds its locks');
ask($session, "SELECT shedlock_extend('limit shortened', lock_at_most_for => '1 s')");
ok(defined await($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid"), 'the next limit ends it, though others are later');
like(last_words($session), qr/DETAIL:  Session lock "limit shortened" has outlived its lock_at_most_for\./, 'and is the one that is named');
is($node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, 500) n WHERE shedlock_acquire('limit ' || n)"), '500', 'all locks are free after its end');
reap($session);

$node->stop;
done_testing();
