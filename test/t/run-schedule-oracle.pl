# The ticks of random schedules are those that test/schedules/oracle.py finds, which shares
# no code with the extension and walks through time minute by minute; of periods, which it
# counts, those with a time from which they count are in each time zone.  Each schedule is
# walked forward by shedlock_next_tick and backward by the previous_tick of
# test/modules/due, and both are asked at other instants, too.
#
# SHEDLOCK_SEED in the environment repeats the schedules.  SHEDLOCK_ROUNDS is how many
# times all time zones are used; a round has 50,000 to 200,000 ticks.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run qw(run);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $python = '/usr/bin/python3';
plan skip_all => 'there is no Python' unless -x $python;
plan skip_all => 'SHEDLOCK_DUE does not name the library with previous_tick: see scripts/test' unless $ENV{SHEDLOCK_DUE};

my $seed = $ENV{SHEDLOCK_SEED} || 1 + int(rand(1_000_000));
my $rounds = $ENV{SHEDLOCK_ROUNDS} || 1;
note "SHEDLOCK_SEED=$seed";
my $file = PostgreSQL::Test::Utils::tempdir . '/ticks';
my $said = '';
ok(run([ $python, 'test/schedules/oracle.py', $seed, $rounds ], '>', $file, '2>', \$said), "the oracle knows the ticks (seed $seed)") or BAIL_OUT($said);

my $node = start_node('main');
$node->safe_psql(
	'postgres', qq{
CREATE FUNCTION previous_tick(schedule text, time_zone text, at timestamptz) RETURNS timestamptz AS '$ENV{SHEDLOCK_DUE}' LANGUAGE C STRICT;
CREATE TABLE oracle (schedule text, zone text, low bigint, high bigint, ticks bigint[], changes bigint[], offsets bigint[]);
\\copy oracle FROM '$file'
});

# The server can have other data of time zones than Python.
my $other = $node->safe_psql(
	'postgres', q{
CREATE TABLE other AS
SELECT zone, low, high FROM oracle GROUP BY zone, low, high, changes, offsets
HAVING EXISTS (
	SELECT FROM unnest(changes, offsets) c(at, seconds), unnest('{0,59}'::integer[]) later
	WHERE timezone(zone, to_timestamp(at + later)) - timezone('UTC', to_timestamp(at + later)) <> make_interval(secs => seconds));
DELETE FROM oracle o USING other WHERE (o.zone, o.low, o.high) = (other.zone, other.low, other.high);
SELECT string_agg(DISTINCT zone, ', ') FROM other});
note "left out because the server has other data of time zones than Python: $other" if $other;

my ($zones, $schedules, $periods, $ticks, $empty) = split /\|/,
  $node->safe_psql('postgres', q{SELECT count(DISTINCT zone), count(*), count(*) FILTER (WHERE schedule LIKE 'every %'), sum(cardinality(ticks)), count(*) FILTER (WHERE ticks = '{}') FROM oracle});
note "$schedules schedules, $periods of them periods, in $zones time zones with $ticks ticks; $empty schedules have none";
cmp_ok($zones, '>=', 15, 'time zones are compared');
cmp_ok($ticks, '>=', 5_000 * $rounds, 'ticks are compared');
cmp_ok($periods, '>=', 60 * $rounds, 'periods are compared');

# Returns the schedules for which a query of theirs differs from the oracle's.
sub different
{
	my ($query) = @_;

	return $node->safe_psql(
		'postgres', qq{
SELECT format('%s, %s, %s to %s: %s differ, the first is %s', schedule, zone, to_timestamp(low) AT TIME ZONE 'UTC',
			  to_timestamp(high) AT TIME ZONE 'UTC', d.count, to_timestamp(d.first) AT TIME ZONE 'UTC')
FROM oracle o, LATERAL ($query) q(found), LATERAL (
	SELECT count(*), min(tick) AS first
	FROM (SELECT * FROM (SELECT unnest(q.found) EXCEPT ALL SELECT unnest(o.ticks)) s
		  UNION ALL (SELECT unnest(o.ticks) EXCEPT ALL SELECT unnest(q.found))) s(tick)) d
WHERE q.found <> o.ticks
ORDER BY cardinality(o.ticks) LIMIT 5});
}

my $walk = q{
WITH RECURSIVE walk(tick) AS (
	SELECT %s UNION ALL
	SELECT %s FROM walk WHERE tick BETWEEN to_timestamp(o.low) AND to_timestamp(o.high))
SELECT coalesce(array_agg(extract(epoch FROM tick)::bigint ORDER BY tick), '{}')
FROM walk WHERE tick BETWEEN to_timestamp(o.low) AND to_timestamp(o.high)};
is( different(
		sprintf $walk,
		q{shedlock_next_tick(o.schedule, o.zone, to_timestamp(o.low) - '1 us'::interval)},
		q{shedlock_next_tick(o.schedule, o.zone, tick)}),
	'',
	"forward, all $ticks ticks are those of the oracle (seed $seed)");
is( different(
		sprintf $walk,
		q{previous_tick(o.schedule, o.zone, to_timestamp(o.high))},
		q{previous_tick(o.schedule, o.zone, tick - '1 us'::interval)}),
	'',
	"backward, all $ticks ticks are those of the oracle (seed $seed)");

# Instants between two ticks of the window
is( $node->safe_psql(
		'postgres', q{
SELECT format('%s, %s, %s', schedule, zone, at AT TIME ZONE 'UTC')
FROM oracle o, LATERAL (
	SELECT tick, lead(tick) OVER (ORDER BY tick) AS next, 1 + 500 / count(*) OVER () AS steps FROM unnest(o.ticks) tick) t,
	 generate_series(1, steps) step, to_timestamp(tick + (next - tick) * step::float8 / (steps + 1)) at
WHERE next IS NOT NULL AND
	  (previous_tick(schedule, zone, at) IS DISTINCT FROM to_timestamp(tick) OR
	   shedlock_next_tick(schedule, zone, at) IS DISTINCT FROM to_timestamp(next))
LIMIT 5}),
	'',
	"between ticks, too, the ticks around are those of the oracle (seed $seed)");

$node->stop;
done_testing();
