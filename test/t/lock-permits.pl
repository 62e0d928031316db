# Sixteen clients and three permits, and overlapping sets of locks: never too many at once,
# judged by what the clients write down while they hold them, and some client always
# acquires.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep);

my $node = start_node('main');
my $judge = session($node);
my @clients = map { session($node) } 1 .. 16;
my $slowness = slowness($node);

# A client writes a visit after the acquire has returned, and ends it before it releases.
ask($judge, <<'SQL');
CREATE TABLE visits (who int, names text[], tokens bigint[], began timestamptz, ended timestamptz);
CREATE TABLE refusals (who int, n int);
CREATE PROCEDURE visit(who int, span interval, names text[], wait interval, wanted int) LANGUAGE plpgsql AS
$$
DECLARE
	until timestamptz := clock_timestamp() + span;
	refused int := 0;
	held text[];
	tokens bigint[];
	began timestamptz;
BEGIN
	WHILE clock_timestamp() < until LOOP
		SELECT array_agg(a.name), array_agg(a.token) INTO held, tokens
		FROM shedlock_acquire_any(names, wanted, wait => wait) a;
		COMMIT;
		IF held IS NULL THEN
			refused := refused + 1;
			PERFORM pg_sleep(0.002);
			CONTINUE;
		END IF;
		began := clock_timestamp();
		PERFORM pg_sleep(0.002);
		INSERT INTO visits VALUES (who, held, tokens, began, clock_timestamp());
		COMMIT;
		PERFORM shedlock_release(h, t) FROM unnest(held, tokens) u(h, t);
		COMMIT;
		PERFORM pg_sleep(0.001 * random());
	END LOOP;
	INSERT INTO refusals VALUES (who, refused);
END
$$;

-- the most visits at one time, for each lock or for all of them together
CREATE FUNCTION most_at_once(OUT of_all bigint, OUT of_a_lock bigint) LANGUAGE sql AS
$$
	SELECT max(of_all), max(of_a_lock)
	FROM (SELECT sum(n) OVER (ORDER BY at, n) AS of_all, sum(n) OVER (PARTITION BY name ORDER BY at, n) AS of_a_lock
		  FROM visits, unnest(names) name, LATERAL (VALUES (began, 1), (ended, -1)) e(at, n)) s
$$;
SQL

# Lets clients visit for some seconds: each is the rest of the arguments of visit().
sub visits
{
	my ($seconds, @calls) = @_;

	ask($judge, 'TRUNCATE visits, refusals');
	$clients[$_]->query_until(qr/asking/, "\\echo asking\nCALL visit($_, '$seconds s', $calls[$_]);\n") foreach 0 .. $#calls;
	ask($clients[$_], 'SELECT 1') foreach 0 .. $#calls;
	is(ask($judge, 'SELECT count(*) FROM refusals'), @calls, 'no client got an error');
	note 'visits, refusals: ' . ask($judge, 'SELECT count(*) FROM visits') . ', ' . ask($judge, 'SELECT sum(n) FROM refusals');
	return;
}

# The longest time without a visit, in seconds
sub longest_gap
{
	return ask($judge, 'SELECT extract(epoch FROM max(began - before)) FROM '
		  . '(SELECT began, lag(began) OVER (ORDER BY began) AS before FROM visits) v');
}

sub at_most_is_one
{
	my ($what) = @_;

	is(ask($judge, 'SELECT of_a_lock FROM most_at_once()'), 1, "$what: no lock was held twice");
	is(ask($judge, 'SELECT count(*) - count(DISTINCT t) FROM visits, unnest(tokens) t'), 0, "$what: each acquisition has a token of its own");
	cmp_ok(longest_gap(), '<', $slowness, "$what: somebody acquires in each second");
	return;
}

#
# Permits: half of the clients wait
#
visits(3, map { "shedlock_permits('import', 3), " . ($_ % 2 ? "'5 s'" : 'NULL') . ', 1' } 0 .. 15);
is(ask($judge, 'SELECT of_all FROM most_at_once()'), 3, 'sixteen clients: at most three permits at once, and all three');
at_most_is_one('permits');
cmp_ok(ask($judge, 'SELECT sum(n) FROM refusals'), '>', 0, 'some were refused');

# Shrinking: who holds the fourth and the fifth keeps them, and the others have three.
ask($clients[15], "SELECT * FROM shedlock_acquire_any(shedlock_permits('import', 5), 5)");
ask($clients[15], "SELECT shedlock_release('import/' || n) FROM generate_series(1, 3) n");
visits(1, map { "shedlock_permits('import', 3), NULL, 1" } 0 .. 7);
is(ask($judge, 'SELECT of_all FROM most_at_once()'), 3, 'three of three permits are used while two more are held');
is(ask($judge, "SELECT count(*) FROM visits WHERE names <@ '{import/4,import/5}'"), 0, 'nobody uses those');
is(ask($clients[15], "SELECT count(shedlock_assert(name)) FROM unnest('{import/4,import/5}'::text[]) name"), 2, 'the other two are still held');

# Growing: where callers differ, the greatest number counts.
ask($clients[15], "SELECT shedlock_release(name) FROM unnest('{import/4,import/5}'::text[]) name");
visits(1, map { "shedlock_permits('import', @{[$_ < 4 ? 3 : 5]}), NULL, 1" } 0 .. 11);
is(ask($judge, 'SELECT of_all FROM most_at_once()'), 5, 'with three and five permits, at most five are held');

#
# Overlapping sets, as many of each as are free
#
my @sets = ('{A,B}', '{B,C}', '{A,C}', '{A,B,C}');
visits(3, map { "'$sets[$_ % 4]', NULL, 3" } 0 .. 7);
at_most_is_one('overlapping sets');
cmp_ok(ask($judge, 'SELECT max(cardinality(names)) FROM visits'), '>', 1, 'some call has acquired several');
visits(3, map { "'$sets[$_ % 4]', '10 s', 3" } 0 .. 7);
at_most_is_one('overlapping sets, with a wait');
is(ask($judge, "SELECT count(*) FROM shedlock_locks WHERE state <> 'free'"), 0, 'nothing is left behind');
is(ask($judge, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid IN (21324, 21325)"), 0, 'in the lock table, neither');

#
# A refusal by session locks costs about what one by leases costs: nothing is looked up in
# the whole lock table for each.
#
ask($judge, <<'SQL');
CREATE FUNCTION best_refusal(prefix text, OUT best interval) LANGUAGE plpgsql AS
$$
DECLARE
	start timestamptz;
BEGIN
	FOR i IN 1..5 LOOP
		start := clock_timestamp();
		ASSERT NOT EXISTS (SELECT FROM shedlock_acquire_any(shedlock_permits(prefix, 1000)));
		best := least(best, clock_timestamp() - start);
	END LOOP;
END
$$;
SQL
ask($clients[2], "SELECT count(shedlock_acquire_session(name)) FROM unnest(shedlock_permits('session', 1000)) name");
ask($clients[2], "SELECT count(*) FROM shedlock_acquire_any(shedlock_permits('lease', 1000), 1000)");
my $times = ask($judge, "SELECT best_refusal('session'), best_refusal('lease')");
is(ask($judge, "SELECT best_refusal('session') < 15 * best_refusal('lease')"), 't', 'a refusal by 1,000 session locks is as quick as one by leases') or diag $times;
note "by session locks, and by leases: $times";

#
# A waiter that is killed after it was woken passes that on
#
my @after;
foreach my $round (1 .. 5)
{
	ask($clients[0], "SELECT * FROM shedlock_acquire_any(shedlock_permits('import', 3), 3)");
	my $doomed = session($node);
	my $pid = pid_of($doomed);
	$doomed->query_until(qr/asking/, "\\echo asking\nSELECT * FROM shedlock_acquire_any(shedlock_permits('import', 3), wait => '5 min');\n");
	await($judge, "SELECT count(*) FROM pg_locks WHERE objsubid = 21325 AND pid = $pid", 3);
	$clients[1]->query_until(qr/asking/, "\\echo asking\nINSERT INTO visits SELECT 1, array_agg(a.name), NULL, clock_timestamp() "
		  . "FROM shedlock_acquire_any(shedlock_permits('import', 3), wait => '5 min') a;\n");
	await($judge, "SELECT count(*) FROM pg_locks WHERE objsubid = 21325", 6);
	ask($judge, 'DELETE FROM visits');
	kill 'STOP', $pid;
	my $freed = ask($clients[0], "SELECT shedlock_release('import/2'), clock_timestamp()") =~ s/.*\|//r;
	kill 'TERM', $pid;
	kill 'CONT', $pid;
	defined await($judge, 'SELECT count(*) FROM visits', 1) or die 'the second waiter does not acquire';
	push @after, ask($judge, "SELECT round(1000 * extract(epoch FROM began - '$freed')) FROM visits");
	reap($doomed);
	ask($clients[1], "SELECT shedlock_release('import/2')");
	ask($clients[0], "SELECT shedlock_release('import/1'), shedlock_release('import/3')");
}
note "after a release, and the end of the first waiter: @after ms";
cmp_ok((sort { $a <=> $b } @after)[2], '<', 200 * $slowness, 'the next waiter acquires at once, in most rounds');

$_->quit foreach @clients, $judge;
$node->stop;
done_testing();
