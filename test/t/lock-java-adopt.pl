# Services with a table of ShedLock move to the extension while they run.  Their
# statements are ShedLock's own, prepared before the move.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep);

my $node = start_node('main');
my $utc = "timezone('utc', CURRENT_TIMESTAMP)";
my $clock = "date_trunc('milliseconds', timezone('utc', clock_timestamp()))";

# ShedLock's statements in both time modes.  In client time the parameters carry the
# client's time.
my %statements = (
	db => {
		insert => "(varchar, numeric, varchar) AS INSERT INTO shedlock(name, lock_until, locked_at, locked_by) "
		  . "VALUES(\$1, $utc + make_interval(secs => \$2), $utc, \$3) ON CONFLICT (name) DO UPDATE "
		  . "SET lock_until = $utc + make_interval(secs => \$2), locked_at = $utc, locked_by = \$3 "
		  . "WHERE shedlock.name = \$1 AND shedlock.lock_until <= $utc",
		update => "(varchar, numeric, varchar) AS UPDATE shedlock SET lock_until = $utc + make_interval(secs => \$2), "
		  . "locked_at = $utc, locked_by = \$3 WHERE shedlock.name = \$1 AND shedlock.lock_until <= $utc",
		extend => "(varchar, numeric, varchar) AS UPDATE shedlock SET lock_until = $utc + make_interval(secs => \$2) "
		  . "WHERE name = \$1 AND locked_by = \$3 AND lock_until > $utc",
		unlock => "(varchar, numeric, varchar) AS UPDATE shedlock SET lock_until = CASE "
		  . "WHEN locked_at + make_interval(secs => \$2) > $utc THEN locked_at + make_interval(secs => \$2) ELSE $utc END "
		  . "WHERE name = \$1 AND locked_by = \$3" },
	client => {
		insert => '(varchar, timestamp, varchar, timestamp) AS INSERT INTO shedlock(name, lock_until, locked_at, locked_by) '
		  . 'VALUES($1, $2, $4, $3) ON CONFLICT (name) DO UPDATE SET lock_until = $2, locked_at = $4, locked_by = $3 '
		  . 'WHERE shedlock.lock_until <= $4',
		update => '(varchar, timestamp, varchar, timestamp) AS UPDATE shedlock SET lock_until = $2, locked_at = $4, '
		  . 'locked_by = $3 WHERE name = $1 AND lock_until <= $4',
		extend => '(varchar, timestamp, varchar, timestamp) AS UPDATE shedlock SET lock_until = $2 '
		  . 'WHERE name = $1 AND locked_by = $3 AND lock_until > $4',
		unlock => '(varchar, timestamp, varchar) AS UPDATE shedlock SET lock_until = $2 WHERE name = $1 AND locked_by = $3' });

# A service: one session as the role app, and its cache of known rows
sub service
{
	my ($mode, $locked_by) = @_;
	my $session = session($node, extra_params => [ '-U', 'app' ]);

	ask($session, "PREPARE sh_$_ $statements{$mode}{$_}") foreach qw(insert update extend unlock);
	return { session => $session, mode => $mode, by => $locked_by, known => {} };
}

sub call
{
	my ($service, $statement, $name, $seconds) = @_;
	my @arguments = ("'$name'", $seconds, "'$service->{by}'");

	if ($service->{mode} eq 'client')
	{
		$arguments[1] = "($clock + interval '$seconds s')";
		push @arguments, $clock unless $statement eq 'unlock';
	}
	return "EXECUTE sh_$statement(" . join(', ', @arguments) . ");\n\\echo :ROW_COUNT\n";
}

# Returns how many rows a statement of ShedLock found.
sub rows
{
	my ($service, @call) = @_;

	return ask($service->{session}, call($service, @call));
}

# ShedLock's lock(): INSERT unless the row is known, then UPDATE.
sub lock_it
{
	my ($service, $name, $seconds) = @_;

	unless ($service->{known}{$name}++)
	{
		return 1 if rows($service, 'insert', $name, $seconds) eq '1';
	}
	return rows($service, 'update', $name, $seconds) eq '1' ? 1 : 0;
}

sub warm_up
{
	my ($service, @names) = @_;

	foreach my $name (@names)
	{
		# seven times, so that the server changes from custom plans to the generic plan
		lock_it($service, $name, 600) && rows($service, 'unlock', $name, 0) for 1 .. 7;
		$service->{known}{$name} = 1;
	}
	return;
}

#
# An installation of ShedLock, and the extension in another schema
#
$node->safe_psql(
	'postgres', q{
DROP EXTENSION shedlock;
CREATE ROLE app_owner;
CREATE ROLE app LOGIN;
GRANT CREATE ON SCHEMA public TO app_owner;
SET ROLE app_owner;
CREATE TABLE shedlock (
	name varchar(64) NOT NULL PRIMARY KEY,
	lock_until timestamp NOT NULL,
	locked_at timestamp NOT NULL,
	locked_by varchar(255) NOT NULL);
GRANT SELECT, INSERT, UPDATE ON shedlock TO app;});
my ($status, $out, $err) = $node->psql('postgres', 'CREATE EXTENSION shedlock');
like($err, qr/already exists.*HINT: .*CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling\..*shedlock_adopt/s,
	'the hint says how to install next to a table of ShedLock');
$node->safe_psql('postgres', 'CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling');

#
# Locks before, during and after the move
#
my %owner = (db => service('db', 'owner db'), client => service('client', 'owner client'));
my %other = (db => service('db', 'other db'), client => service('client', 'other client'));
foreach my $mode (qw(db client))
{
	warm_up($owner{$mode}, "$mode free");
	ok(lock_it($owner{$mode}, "$mode $_", 600), "before: the owner in $mode time acquires $_") foreach qw(held extended unlocked waiting);
	ok(!lock_it($other{$mode}, "$mode $_", 600), "before: the other in $mode time is refused, and caches $_")
	  foreach qw(held extended unlocked waiting);
	ok(lock_it($other{$mode}, "$mode over", 0.001), 'before: a lock that will expire');
}
my $before = $node->safe_psql('postgres', 'SELECT * FROM shedlock ORDER BY name');

my %blocked = (
	update => service('db', 'blocked update'),
	insert => service('db', 'blocked insert'),
	update_client => service('client', 'blocked update'),
	insert_client => service('client', 'blocked insert'),
	free => service('client', 'blocked free'));
my $mover = session($node);
is(ask($mover, "BEGIN; SELECT scheduling.shedlock_adopt('shedlock')"), '12', 'the move adopts all rows');

# These statements start while the table is locked.  They wait for a table whose name
# is a view when they continue.
my %waiting = (
	update => call($blocked{update}, 'update', 'db held', 600),
	insert => call($blocked{insert}, 'insert', 'db held', 600),
	update_client => call($blocked{update_client}, 'update', 'client held', 600),
	insert_client => call($blocked{insert_client}, 'insert', 'client held', 600),
	free => call($blocked{free}, 'insert', 'db free', 600));
$blocked{$_}{session}->query_until(qr/sent/, "\\echo sent\n$waiting{$_}") foreach sort keys %waiting;

# Drivers and plain statements take a new snapshot after the wait; EXECUTE does not.
my $unlocker = session($node, extra_params => [ '-U', 'app' ]);
$unlocker->query_until(
	qr/sent/, "\\echo sent\nUPDATE shedlock SET lock_until = $utc WHERE name = 'db waiting' AND locked_by = 'owner db';\n\\echo :ROW_COUNT\n");
my $second = session($node);
$second->query_until(qr/sent/, "\\echo sent\nSELECT scheduling.shedlock_adopt('shedlock');\n");
ok( defined await($node, "SELECT count(*) = 7 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'relation'"),
	'services wait while the move is not committed');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE relation = 'scheduling.shedlock'::regclass AND NOT granted"),
	'0', 'no service waits at the new table');
ask($mover, 'COMMIT');
is($mover->{heard}, '', 'the move is committed');
is((split /\n/, ask($blocked{$_}{session}, 'SELECT 0'))[0], $_ eq 'free' ? '1' : '0',
	"during: the waiting service $_ gets " . ($_ eq 'free' ? 'a free lock' : 'no lock that is held'))
  foreach sort keys %waiting;
is((split /\n/, ask($unlocker, 'SELECT 0'))[0], '1', 'during: a waiting unlock finds its row');
is( $node->safe_psql('postgres', "SELECT lock_until <= timezone('utc', now()) FROM scheduling.shedlock WHERE name = 'db waiting'"),
	't', 'the waiting unlock reaches the extension\'s table');
$second->query('SELECT 0');
like($second->{stderr}, qr/ERROR: .*table public\.shedlock was renamed or dropped concurrently|ERROR: .*table shedlock was renamed or dropped concurrently/,
	'a second move at the same time gets an error');
is($node->safe_psql('postgres', "SELECT relname, relkind FROM pg_class WHERE relname LIKE 'shedlock%' AND relnamespace = 'public'::regnamespace AND relkind <> 'i' ORDER BY 1"),
	"shedlock|v\nshedlock_before_shedlock|r", 'the second move does nothing');
is($node->safe_psql('postgres', 'SELECT * FROM shedlock_before_shedlock ORDER BY name'), $before, 'the old table keeps its rows');

foreach my $mode (qw(db client))
{
	my ($owner, $other, $fresh) = ($owner{$mode}, $other{$mode}, service($mode, 'fresh'));

	is(rows($other, 'update', "$mode held", 600), '0', "after: a service in $mode time that knows the row is refused a held lock");
	is(rows($fresh, 'insert', "$mode held", 600), '0', 'a new service is refused a held lock by INSERT');
	is(rows($fresh, 'update', "$mode held", 600), '0', 'a new service is refused a held lock by UPDATE');
	is($node->safe_psql('postgres', "SELECT scheduling.shedlock_acquire('$mode held'), scheduling.shedlock_acquire_session('$mode held')"),
		'f|f', 'the functions refuse a held lock');
	is($node->safe_psql('postgres', "SELECT state, kind, locked_by, token > 0 FROM scheduling.shedlock_locks WHERE name = '$mode held'"),
		"held|lease|owner $mode|t", 'the view shows a held lock');

	is(rows($other, 'extend', "$mode extended", 6000), '0', 'a service that is not the owner cannot extend');
	is(rows($owner, 'extend', "$mode extended", 6000), '1', 'the owner extends a lock from before the move');
	is( $node->safe_psql('postgres', "SELECT lock_until > timezone('utc', now()) + interval '90 min' FROM scheduling.shedlock WHERE name = '$mode extended'"),
		't', 'the extend reaches the extension\'s table');
	is(rows($owner, 'unlock', "$mode unlocked", 0), '1', 'the owner unlocks a lock from before the move');
	ok(lock_it($other, "$mode unlocked", 600), 'another service acquires the unlocked lock by UPDATE');
	is(rows($owner, 'unlock', "$mode unlocked", 0), '0', 'the former owner no longer unlocks it');
	ok(lock_it($owner, "$mode over", 600), 'an expired lock is acquired');
	ok(lock_it($fresh, "$mode new", 600), 'a new lock is acquired');

	my $token = $node->safe_psql('postgres', "SELECT token FROM shedlock JOIN scheduling.shedlock s USING (name) WHERE name = '$mode unlocked'");
	rows($other, 'unlock', "$mode unlocked", 0);
	cmp_ok($node->safe_psql('postgres', "SELECT scheduling.shedlock_acquire_token('$mode unlocked', '1 h')"), '>', $token,
		'shedlock_acquire_token acquires the lock with a larger token');
	is(rows($owner, 'update', "$mode unlocked", 600), '0', 'a service that knows the row is refused that lock');
	$fresh->{session}->quit;
}
is($node->safe_psql('postgres', 'SELECT * FROM shedlock_before_shedlock ORDER BY name'), $before,
	'no prepared statement has written to the old table');
$_->{session}->quit foreach values %owner, values %other, values %blocked;
$_->quit foreach $mover, $second, $unlocker;

#
# A dump has the view with its privileges
#
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'the database is dumped');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, 'restored' ], 'and restored');
is( $node->safe_psql(
		'restored', q{
SET ROLE app;
UPDATE shedlock SET lock_until = timezone('utc', now()) WHERE name = 'db held' AND locked_by = 'owner db' RETURNING name}),
	'db held', 'services continue on the restored database');

#
# The move while services work at full speed, then functions of the extension as well
#
$node->safe_psql(
	'postgres', qq{
CREATE DATABASE race;
\\c race
CREATE SCHEMA scheduling;
CREATE EXTENSION shedlock SCHEMA scheduling;
CREATE TABLE shedlock (name varchar(64) NOT NULL PRIMARY KEY, lock_until timestamp NOT NULL,
	locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL);
CREATE TABLE counter (n integer);
INSERT INTO counter VALUES (0);
CREATE TABLE control (moved boolean, back boolean, stop boolean);
INSERT INTO control VALUES (false, false, false);
CREATE TABLE worked (worker text, before integer, after integer);
CREATE TABLE took (who text PRIMARY KEY);

-- The work loses updates if two workers do it at once.  Each statement commits by
-- itself, and its plan is kept like that of a prepared statement.
CREATE PROCEDURE work(worker text, kind text) LANGUAGE plpgsql AS \$\$
DECLARE
	known boolean := false;
	mine bigint;
	value integer;
	now_utc timestamp;
	was_moved boolean;
	before integer := 0;
	after integer := 0;
BEGIN
	WHILE NOT (SELECT stop OR (back AND kind = 'functions') FROM control) LOOP
		mine := 0;
		was_moved := (SELECT moved FROM control);
		IF kind = 'functions' THEN
			mine := scheduling.shedlock_acquire_token('race', '1 min');
			COMMIT;
		ELSIF kind = 'db' THEN
			IF NOT known THEN
				INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('race', $utc + make_interval(secs => 60.000), $utc, worker)
				ON CONFLICT (name) DO UPDATE SET lock_until = $utc + make_interval(secs => 60.000), locked_at = $utc, locked_by = worker
				WHERE shedlock.name = 'race' AND shedlock.lock_until <= $utc;
				GET DIAGNOSTICS mine = ROW_COUNT;
				COMMIT;
			END IF;
			IF mine = 0 THEN
				UPDATE shedlock SET lock_until = $utc + make_interval(secs => 60.000), locked_at = $utc, locked_by = worker
				WHERE shedlock.name = 'race' AND shedlock.lock_until <= $utc;
				GET DIAGNOSTICS mine = ROW_COUNT;
				COMMIT;
			END IF;
		ELSE
			now_utc := $clock;
			IF NOT known THEN
				INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('race', now_utc + interval '1 min', now_utc, worker)
				ON CONFLICT (name) DO UPDATE SET lock_until = now_utc + interval '1 min', locked_at = now_utc, locked_by = worker
				WHERE shedlock.lock_until <= now_utc;
				GET DIAGNOSTICS mine = ROW_COUNT;
				COMMIT;
			END IF;
			IF mine = 0 THEN
				UPDATE shedlock SET lock_until = now_utc + interval '1 min', locked_at = now_utc, locked_by = worker
				WHERE name = 'race' AND lock_until <= now_utc;
				GET DIAGNOSTICS mine = ROW_COUNT;
				COMMIT;
			END IF;
		END IF;
		-- every tenth time as a newly started service
		known := random() > 0.1;
		CONTINUE WHEN mine IS NULL OR mine = 0;

		value := (SELECT n FROM counter);
		PERFORM pg_sleep(0.001);
		UPDATE counter SET n = value + 1;
		COMMIT;
		IF was_moved THEN after := after + 1; ELSE before := before + 1; END IF;
		IF after = 1 THEN INSERT INTO took VALUES (kind) ON CONFLICT DO NOTHING; COMMIT; END IF;

		IF kind = 'functions' THEN
			PERFORM scheduling.shedlock_release('race', mine);
		ELSIF kind = 'db' THEN
			UPDATE shedlock SET lock_until = CASE WHEN locked_at + make_interval(secs => 0) > $utc
				THEN locked_at + make_interval(secs => 0) ELSE $utc END
			WHERE name = 'race' AND locked_by = worker;
		ELSE
			UPDATE shedlock SET lock_until = greatest(now_utc, $clock) WHERE name = 'race' AND locked_by = worker;
		END IF;
		COMMIT;
	END LOOP;
	INSERT INTO worked VALUES (worker, before, after);
END
\$\$;});

my @workers;

sub start_worker
{
	my ($kind, $number) = @_;
	my $session = session($node, dbname => 'race');

	$session->query_until(qr/sent/, "\\echo sent\nCALL work('$kind $number', '$kind');\n");
	push @workers, $session;
	return;
}

# Drivers prepare statements by the protocol.
my $script = $node->basedir . '/bench.sql';
append_to_file($script,
		"UPDATE shedlock SET lock_until = $utc + make_interval(secs => 60.000), locked_at = $utc, locked_by = 'bench' "
	  . "WHERE shedlock.name = 'bench' AND shedlock.lock_until <= $utc;\n"
	  . "UPDATE shedlock SET lock_until = $utc + make_interval(secs => 60.000) WHERE name = 'bench' AND locked_by = 'bench' AND lock_until > $utc;\n"
	  . "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('bench', $utc + make_interval(secs => 60.000), $utc, 'bench') "
	  . "ON CONFLICT (name) DO UPDATE SET lock_until = $utc + make_interval(secs => 60.000), locked_at = $utc, locked_by = 'bench' "
	  . "WHERE shedlock.name = 'bench' AND shedlock.lock_until <= $utc;\n"
	  . "UPDATE shedlock SET lock_until = $utc WHERE name = 'bench' AND locked_by = 'bench';\n");
start_worker('db', $_), start_worker('client', $_) foreach 1 .. 3;
ok(defined await($node, "SELECT count(*) >= 0 FROM pg_stat_activity WHERE query LIKE 'CALL%'"), 'the services work');
my ($bench_out, $bench_err) = ('', '');
my $bench = IPC::Run::start(
	[ 'pgbench', '-n', '-M', 'prepared', '-c', '2', '-T', '5', '-f', $script, '-h', $node->host, '-p', $node->port, 'race' ],
	'>', \$bench_out, '2>', \$bench_err);
my $watcher = session($node, dbname => 'race');
sleep(1.5);
await($watcher, 'SELECT n > 10 FROM counter');
cmp_ok($node->safe_psql('race', "SELECT scheduling.shedlock_adopt('shedlock')"), '>=', 1, 'the move succeeds while services work');
$node->safe_psql('race', 'UPDATE control SET moved = true');
start_worker('functions', $_) foreach 1 .. 2;
sleep(6);
ok(defined await($watcher, 'SELECT count(*) = 3 FROM took'), 'services in both modes and the functions acquire the lock after the move');
is($node->safe_psql('race', "SELECT locked_by FROM scheduling.shedlock WHERE name = 'bench'"), 'bench', 'prepared statements write to the extension\'s table');

# Back, by the text of doc/java.md, after the clients of the functions have ended
my ($long, $widen, $back) = slurp_file("$FindBin::RealBin/../../doc/java.md") =~ /^```sql back\n(.*?)^```$/msg;
my @functions = splice @workers, -2;
$node->safe_psql('race', 'UPDATE control SET back = true');
foreach my $worker (@functions)
{
	ask($worker, 'SELECT 0');
	is($worker->{heard}, '', 'a client of the functions ends without an error');
	$worker->quit;
}
my $name = 'n' x 65;
$node->safe_psql('race', "SELECT scheduling.shedlock_acquire('$name', '1 h'); CREATE TABLE before_back AS SELECT n FROM counter");
is($node->safe_psql('race', $long), $name, 'doc/java.md finds the names that are too long');
$node->safe_psql('race', $_) foreach $widen, $back;
is($node->safe_psql('race', "SELECT relname, relkind FROM pg_class WHERE relname LIKE 'shedlock%' AND relnamespace = 'public'::regnamespace AND relkind <> 'i'"),
	'shedlock|r', 'doc/java.md goes back while services work');
ok(defined await($watcher, 'SELECT c.n > b.n + 20 FROM counter c, before_back b'), 'the services acquire the lock after that');
is($node->safe_psql('race', "SELECT lock_until > timezone('utc', now()) + interval '30 min' FROM shedlock WHERE name = '$name'"), 't', 'a held lock stays held');
is(error_of($node, 'DROP EXTENSION shedlock', dbname => 'race'), 'no error', 'DROP EXTENSION leaves the services alone');
$node->safe_psql('race', 'UPDATE control SET stop = true');
foreach my $worker (@workers)
{
	ask($worker, 'SELECT 0');
	is($worker->{heard}, '', 'a worker ends without an error');
	$worker->quit;
}
is($node->safe_psql('race', 'SELECT n - (SELECT sum(before + after) FROM worked) FROM counter'), '0', 'no update was lost, so no two holders overlapped');
cmp_ok($node->safe_psql('race', "SELECT sum(before) FROM worked"), '>', 10, 'the lock was acquired many times before the move');
note($node->safe_psql('race', 'SELECT * FROM worked ORDER BY worker'));
ok($bench->finish, 'statements prepared by the protocol continue');
is($bench_err =~ /ERROR|abort/ ? $bench_err : '', '', 'they get no error');

like(slurp_file($node->logfile), qr/LOG:  table \S+ adopted by role "postgres"$/m, 'each move is in the log, with the role');

$node->stop;
done_testing();
