# What happens to a lock, and to a job, when its role is renamed, dropped, or loses members,
# and when a dump moves it to a cluster with other roles.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main');
$node->safe_psql('postgres', "CREATE ROLE $_ LOGIN") foreach 'worker', 'friend', 'stranger', 'leaver';
$node->safe_psql('postgres', 'GRANT worker TO friend');

sub as
{
	my ($role, $sql, %options) = @_;

	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role ], %options);
}

sub refused
{
	my ($role, $sql) = @_;

	return error_of($node, $sql, extra_params => [ '-U', $role ]);
}

my $denied = qr/^42501: permission denied for lock "lease"/;
my $token = as('worker', "SELECT shedlock_acquire_token('lease', '1 h')");
as('worker', "CALL shedlock_run('run', 'SELECT')");

# Ownership depends on membership at the time of the call.
is(as('friend', "SELECT shedlock_extend('lease', token => $token)"), 't', 'a member extends the lease of its role by the token');
like(refused('stranger', "SELECT shedlock_extend('lease', token => $token)"), $denied, 'a stranger with the token cannot extend the lease');
$node->safe_psql('postgres', 'ALTER ROLE friend NOINHERIT');

# Since PostgreSQL 16 the grant decides whether a member inherits.
$node->safe_psql('postgres', 'REVOKE worker FROM friend; GRANT worker TO friend');
like(refused('friend', "SELECT shedlock_release('lease', $token)"), $denied, 'a member that does not inherit cannot release the lease');
is(as('friend', "SET ROLE worker; SELECT shedlock_extend('lease', token => $token)"), 't', 'a member that does not inherit extends the lease after SET ROLE');
$node->safe_psql('postgres', 'REVOKE worker FROM friend; ALTER ROLE friend INHERIT');
like(refused('friend', "SELECT shedlock_release('lease', $token)"), $denied, 'a former member cannot release the lease');
like(refused('friend', "SELECT shedlock_assert('lease', $token)"), $denied, 'a former member cannot assert the lease');
is(as('friend', 'SELECT count(*) FROM shedlock_history'), '0', 'a former member does not see the runs');

# A job belongs to the role that created it, whoever changes it.  What is declared as it is
# takes no privilege.
my $not_yours = qr/^42501: permission denied for job "job"/;
my $job = "shedlock_job('job', '0 3 * * *', attempts => 2)";
my $log = -s $node->logfile;
$node->safe_psql('postgres', 'GRANT worker TO friend');
is(as('worker', "SELECT $job"), 'created', 'a role creates a job');
is(as('stranger', "SELECT $job"), 'unchanged', 'any role declares it as it is');
like(refused('stranger', "SELECT shedlock_job('job', '0 3 * * *')"), $not_yours, 'a stranger cannot change it');
like(refused('stranger', "SELECT shedlock_forget('job')"), $not_yours, 'a stranger cannot forget it');
is(as('friend', "SELECT shedlock_job('job', '0 4 * * *', attempts => 2)"), 'changed', 'a member of the role changes it');
is($node->safe_psql('postgres', "SELECT shedlock_job('job', '0 4 * * *', attempts => 3)"), 'changed', 'a superuser changes it');
is($node->safe_psql('postgres', "SELECT created_by, declared_by FROM shedlock_jobs WHERE name = 'job'"), 'worker|postgres', 'the row names who created it and who changed it last');
is(as('worker', "SELECT $job"), 'changed', 'the role changes it back');
$node->safe_psql('postgres', 'REVOKE worker FROM friend');
like(refused('friend', "SELECT shedlock_job('job', '\@daily')"), $not_yours, 'a former member cannot change it');
is(as('stranger', "SELECT state FROM shedlock_run_begin('job', '1 h')"), 'not due', 'any role calls it');
is(as('friend', "SELECT shedlock_job('forgotten', '\@daily')") . as('friend', "SELECT shedlock_forget('forgotten')"), 'createdt', 'a role forgets its own job');
is(join("\n", slurp_file($node->logfile, $log) =~ /LOG:  (job ".*)/g), <<~'LINES' =~ s/\n\z//r, 'the log has each change and its role');
	job "job" created by role "worker": schedule "0 3 * * *", time_zone "UTC"
	job "job" changed by role "friend": schedule from "0 3 * * *" to "0 4 * * *"
	job "job" changed by role "postgres": attempts from "2" to "3"
	job "job" changed by role "worker": schedule from "0 4 * * *" to "0 3 * * *", attempts from "3" to "2"
	job "forgotten" created by role "friend": schedule "@daily", time_zone "UTC"
	job "forgotten" forgotten by role "friend"
	LINES
$node->safe_psql('postgres', 'REVOKE EXECUTE ON FUNCTION shedlock_job FROM PUBLIC');
like(refused('stranger', "SELECT $job"), qr/^42501: permission denied for function shedlock_job/, 'without EXECUTE a role declares nothing');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION shedlock_job TO PUBLIC');

# EXECUTE is revoked while a role holds locks
my $session = session($node, extra_params => [ '-U', 'worker' ]);
is(ask($session, "SELECT shedlock_acquire('revoked', '1 h'), shedlock_acquire_session('revoked session')"), 't|t', 'a role acquires locks');
$node->safe_psql('postgres', 'REVOKE EXECUTE ON FUNCTION shedlock_release(text, bigint), shedlock_acquire(text, interval, interval, interval, text) FROM PUBLIC');
ask($session, "SELECT shedlock_release('revoked')");
like($session->{heard}, qr/ERROR: +permission denied for function shedlock_release/, 'without EXECUTE the role cannot release them');
is($node->safe_psql('postgres', "SELECT shedlock_force_release('revoked')"), 't', 'an administrator can force-release them');
$session->quit;
ok(defined await($node, "SELECT shedlock_acquire('revoked session')"), 'a session lock is free when its session ends');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION shedlock_release(text, bigint), shedlock_acquire(text, interval, interval, interval, text) TO PUBLIC');

# A renamed role is the same role.
$node->safe_psql('postgres', 'ALTER ROLE worker RENAME TO renamed');
is(as('renamed', 'SELECT locked_role, outcome FROM shedlock_history'), 'renamed|succeeded', 'a renamed role sees its runs under its new name');
is(as('renamed', "SELECT shedlock_extend('lease', token => $token)"), 't', 'a renamed role owns its lease');
like(refused('renamed', "SELECT shedlock_job('job', '\@daily')"), $not_yours, 'a renamed role cannot change its job, which keeps the name');
is(as('renamed', "SELECT $job"), 'unchanged', 'but declares it as it is');
$node->safe_psql('postgres', 'CREATE ROLE worker LOGIN');
is(as('worker', "SELECT shedlock_job('job', '0 5 * * *')"), 'changed', 'a role that gets the old name can change the job');
like(refused('worker', "SELECT shedlock_release('lease', $token)"), $denied, 'a new role of the old name does not own the lease');
is(as('worker', 'SELECT count(*) FROM shedlock_history'), '0', 'a new role of the old name does not see the runs');

# A ShedLock service whose role changes while it holds a lock: doc/java.md
my ($grant) = slurp_file("$FindBin::RealBin/../../doc/java.md") =~ /^(GRANT SELECT, INSERT \(name, .* ON shedlock TO app;)$/m;
my $utc = "timezone('utc', CURRENT_TIMESTAMP)";
my $lock = "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('%s', $utc + '1 h', $utc, 'host') RETURNING name";
my $unlock = "UPDATE shedlock SET lock_until = $utc WHERE name = '%s' AND locked_by = 'host' RETURNING name";
$node->safe_psql('postgres', "CREATE ROLE app; CREATE ROLE app_monday LOGIN IN ROLE app; CREATE ROLE app_tuesday LOGIN IN ROLE app; $grant");
as('app_monday', sprintf($lock, 'alone'));
$log = -s $node->logfile;
like(refused('app_tuesday', sprintf($unlock, 'alone')), qr/^42501: permission denied for lock "alone"/,
	'a service whose role has changed cannot unlock');
like(slurp_file($node->logfile, $log), qr/DETAIL: .*Role "app_monday" acquired it; role "app_tuesday" does not have its privileges\./,
	'the log names both roles');
$node->safe_psql('postgres', "ALTER ROLE $_ SET role = app") foreach qw(app_monday app_tuesday);
as('app_monday', sprintf($lock, 'as one'));
is(as('app_tuesday', sprintf($unlock, 'as one')), 'as one', 'roles that act as one unlock the locks of each other');
$node->safe_psql('postgres', 'DROP OWNED BY app');

# A role is dropped while it has a lease, a session lock and a run
my $leaver = session($node, extra_params => [ '-U', 'leaver' ]);
my $runner = session($node, extra_params => [ '-U', 'leaver' ]);
$token = ask($leaver, "SELECT shedlock_acquire_token('left', '1 h')");
is(ask($leaver, "SELECT shedlock_job('left job', 'every 1 day')"), 'created', 'a role creates a job');
ask($leaver, "SELECT shedlock_acquire_session('left session')");
$runner->query_until(qr/runs/, "\\echo runs\nCALL shedlock_run('left run', 'SELECT pg_sleep(600)');\n");
ok(defined await($node, "SELECT count(*) = 1 FROM shedlock_locks WHERE name = 'left run'"), 'a role has all kinds of locks');
$node->safe_psql('postgres', 'DROP ROLE leaver');
is(as('stranger', "SELECT attempt FROM shedlock_run_begin('left job', '1 ms')"), '1', 'a job of a dropped role runs');
is(as('stranger', "SELECT shedlock_job('left job', 'every 1 day')"), 'unchanged', 'it is declared as it is');
like(refused('stranger', "SELECT shedlock_job('left job', 'every 2 days')"), qr/^42501: permission denied for job "left job"/, 'a stranger cannot change it');
is($node->safe_psql('postgres', "SELECT created_by FROM shedlock_jobs WHERE name = 'left job'; SELECT shedlock_job('left job', 'every 2 days'), shedlock_forget('left job')"),
	"leaver\nchanged|t", 'a superuser changes it, and forgets it');
is($node->safe_psql('postgres', "SELECT name, state, kind FROM shedlock_locks WHERE name LIKE 'left%' ORDER BY name"),
	"left|held|lease\nleft run|held|run\nleft session|held|session", 'the locks of a dropped role stay held');
is($node->safe_psql('postgres', "SELECT shedlock_acquire('left'), shedlock_acquire('left run'), shedlock_acquire('left session')"), 'f|f|f', 'the locks of a dropped role exclude others');
like($node->safe_psql('postgres', "SELECT locked_role FROM shedlock_history WHERE name = 'left run'"), qr/^unknown \(OID=\d+\)$/, 'the history shows a dropped role as unknown');
like(refused('stranger', "SELECT shedlock_release('left', $token)"), qr/^42501/, 'a stranger with the token cannot release the lease of a dropped role');
is(ask($leaver, "SELECT shedlock_extend('left')"), 't', 'a session of the dropped role extends its lease');
is(ask($leaver, "SELECT shedlock_release('left session')"), 't', 'a session of the dropped role releases its session lock');
is($node->safe_psql('postgres', "SELECT shedlock_release('left', $token)"), 't', 'a superuser releases by token');
is($node->safe_psql('postgres', "SELECT shedlock_cancel('left run')"), 't', 'a superuser cancels the command');
ok(defined await($node, "SELECT outcome = 'cancelled' FROM shedlock_history WHERE name = 'left run'"), 'the cancelled run is recorded');
is($node->safe_psql('postgres', "SELECT count(*) FROM shedlock_locks WHERE name LIKE 'left%'"), '0', 'all locks of the dropped role are free');
reap($_) foreach $leaver, $runner;

# A row written by hand names a process that never acquired the lock.
my $victim = session($node, extra_params => [ '-U', 'friend' ]);
$node->safe_psql('postgres', "CALL shedlock_run('forged', 'SELECT')");
$node->safe_psql('postgres', "UPDATE shedlock SET (kind, pid, backend_start, locked_role) = (SELECT 'run', pid, backend_start, 'worker'::regrole FROM pg_stat_activity WHERE pid = "
	  . pid_of($victim) . ") WHERE name = 'forged'");
is($node->safe_psql('postgres', "SELECT state FROM shedlock_locks WHERE name = 'forged'"), 'held', 'a row names a process that never acquired the lock');
my ($status, $out, $err) = $node->psql('postgres', "SELECT shedlock_cancel('forged')");
is($out, 'f', 'cancel: nothing is cancelled');
like($err, qr/WARNING:  process \d+, named by lock "forged", was neither canceled nor terminated\nDETAIL:  It does not hold the lock, and its role is not a member of the role that acquired it\./, 'cancel: a WARNING says so');
($status, $out, $err) = $node->psql('postgres', "SELECT shedlock_force_release('forged'), shedlock_acquire('forged')");
is($out, 't|t', 'force_release: the lock is free');
like($err, qr/WARNING:  process \d+, named by lock "forged", was neither canceled nor terminated/, 'force_release: a WARNING says that the process was not ended');
is(ask($victim, "SELECT 'here'"), 'here', 'the process is still alive');

# A process that has released its advisory locks in a command counts for its current role.
$node->safe_psql('postgres', 'GRANT worker TO friend');
$runner = session($node, extra_params => [ '-U', 'friend' ]);
$runner->query_until(qr/runs/, "SET ROLE worker;\n\\echo runs\nCALL shedlock_run('bare', 'DO \$\$ BEGIN PERFORM pg_advisory_unlock_all(); PERFORM pg_sleep(600); END \$\$');\n");
ok(defined await($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'friend' AND wait_event = 'PgSleep'"), 'a command has released the advisory lock');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), '0', 'the run has no advisory lock left');
is($node->safe_psql('postgres', "SELECT shedlock_cancel('bare')"), 't', 'the run is cancelled all the same');
ok(defined await($node, "SELECT outcome = 'cancelled' FROM shedlock_history WHERE name = 'bare'"), 'the cancelled run without advisory lock is recorded');
$_->quit foreach $victim, $runner;

# Another cluster, where the role has another OID, and its old OID belongs to another
# role.  The tables store OIDs.
$node->safe_psql('postgres', "SELECT shedlock_force_release('lease'), shedlock_purge('0'); TRUNCATE _shedlock_history");
$token = as('renamed', "SELECT shedlock_acquire_token('lease', '1 h')");
as('renamed', "CALL shedlock_run('run', 'SELECT')");
as('renamed', "SELECT shedlock_job('moved', '0 3 * * *')");
my $number = $node->safe_psql('postgres', "SELECT 'renamed'::regrole::oid");
my $dump = PostgreSQL::Test::Utils::tempdir . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-d', $node->connstr('postgres'), '-f', $dump ], 'pg_dump');
my $other = PostgreSQL::Test::Cluster->new('other');
init_node($other, force_initdb => 1);
$other->start;
$other->safe_psql(
	'postgres', qq{
DO \$\$
DECLARE
	number oid := 0;
BEGIN
	FOR i IN 1..5000 LOOP
		EXECUTE format('CREATE ROLE other_%s LOGIN', i);
		number := format('other_%s', i)::regrole;
		EXIT WHEN number >= $number;
	END LOOP;
END
\$\$});
my $same = $other->safe_psql('postgres', "SELECT rolname FROM pg_roles WHERE oid = $number");
$other->safe_psql('postgres', 'CREATE ROLE renamed LOGIN');
$other->command_ok([ 'pg_restore', '--no-owner', '--exit-on-error', '-d', $other->connstr('postgres'), $dump ], 'pg_restore into another cluster');
is($other->safe_psql('postgres', "SELECT shedlock_acquire('lease')"), 'f', 'another cluster: the lease is held');
like(error_of($other, "SELECT shedlock_release('lease', $token)", extra_params => [ '-U', 'renamed' ]), $denied, 'another cluster: the role of the same name does not own the lease');
SKIP:
{
	skip('no role has that OID', 2) unless $same;
	is($other->safe_psql('postgres', "SELECT count(*) FROM shedlock_history", extra_params => [ '-U', $same ]), '1', 'another cluster: the role with the same OID sees its runs');
	is($other->safe_psql('postgres', "SELECT shedlock_extend('lease', token => $token)", extra_params => [ '-U', $same ]), 't', 'another cluster: the role with the same OID owns the lease by its token');
}
like(error_of($other, "SELECT shedlock_job('moved', '0 4 * * *')", extra_params => [ '-U', 'other_1' ]), qr/^42501: permission denied for job "moved"/, 'another cluster: no other role changes a job');
is($other->safe_psql('postgres', "SELECT shedlock_job('moved', '0 4 * * *')", extra_params => [ '-U', 'renamed' ]), 'changed', 'another cluster: the role of the same name changes its job');
$other->safe_psql('postgres', "UPDATE shedlock SET locked_role = 'renamed'::regrole; UPDATE _shedlock_history SET locked_role = 'renamed'::regrole");
is($other->safe_psql('postgres', "SELECT shedlock_release('lease', $token); SELECT locked_role FROM shedlock_history", extra_params => [ '-U', 'renamed' ]), "t\nrenamed",
	'an administrator can correct the OIDs');

# Default privileges do not change those of the extension.
my $privileges = q{
SELECT string_agg(DISTINCT format('%s: %s of %s%s', pg_describe_object(d.classid, d.objid, 0), x.privilege_type, x.grantee::regrole,
		CASE WHEN x.is_grantable THEN ', grantable' END), E'\n')
FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid
	 LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
	 LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
	 CROSS JOIN aclexplode(CASE WHEN p.oid IS NULL THEN coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's'::"char" ELSE 'r' END, c.relowner))
						   ELSE coalesce(p.proacl, acldefault('f', p.proowner)) END) x
WHERE d.deptype = 'e' AND e.extname = 'shedlock'};
my $meant = $node->safe_psql('postgres', "DROP EXTENSION shedlock; CREATE EXTENSION shedlock; $privileges");
like($meant, qr/^function shedlock_acquire\(.*: EXECUTE of -$/m, 'PUBLIC may execute shedlock_acquire');
unlike($meant, qr/shedlock_force_release\(.* of -$/m, 'PUBLIC may not execute shedlock_force_release');
my %defaults = (
	'which grant' => join('', map { "ALTER DEFAULT PRIVILEGES GRANT ALL ON $_ TO PUBLIC; ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON $_ TO stranger WITH GRANT OPTION;" } 'TABLES', 'SEQUENCES', 'FUNCTIONS'),
	'which revoke' => 'ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM PUBLIC; ALTER DEFAULT PRIVILEGES REVOKE INSERT, SELECT ON TABLES FROM postgres; '
	  . 'ALTER DEFAULT PRIVILEGES REVOKE USAGE ON SEQUENCES FROM postgres;');
foreach my $which (sort keys %defaults)
{
	$node->safe_psql('postgres', qq{CREATE DATABASE "$which"});
	$node->safe_psql($which, "CREATE FUNCTION before() RETURNS void LANGUAGE sql AS ''; $defaults{$which} CREATE FUNCTION after() RETURNS void LANGUAGE sql AS ''");
	is($node->safe_psql($which, "SELECT before.proacl IS DISTINCT FROM after.proacl FROM pg_proc before, pg_proc after WHERE before.proname = 'before' AND after.proname = 'after'"),
		't', "default privileges $which");
	is($node->safe_psql($which, "CREATE EXTENSION shedlock; $privileges"), $meant, 'they do not change the privileges of the extension');
	is($node->safe_psql($which, 'SHOW search_path'), '"$user", public', 'CREATE EXTENSION leaves the search_path unchanged');
}

$node->stop;
$other->stop;
done_testing();
