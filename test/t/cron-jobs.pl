# pg_cron's jobs are guarded, and unguarded to their original state, by the roles that
# may do so, and shedlock_cron_jobs shows their state.  The test waits for no tick: jobs are due
# on New Year's Day, or pg_cron looks for them at a port of no server.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Utils;
use ShedlockNode qw(session ask);
use Test::More;
use Time::HiRes qw(usleep);

# The schema's name must be quoted wherever it is used.
my $node = start_cron_node('cron_jobs', "cron.timezone = 'Europe/Berlin'\n", extra => [ '-E', 'UTF8' ]);
my $new_year = '0 0 1 1 *';

at_second($node);

$node->safe_psql(
	'postgres', q{
CREATE SCHEMA "Shed Lock";
CREATE EXTENSION shedlock SCHEMA "Shed Lock";
GRANT USAGE ON SCHEMA "Shed Lock" TO plain;
ALTER ROLE ALL SET search_path = "Shed Lock", public;
CREATE DATABASE other;
CREATE ROLE other_role LOGIN;
});

# Returns psql's stderr, with SQLSTATEs; the statement must fail.
sub error_of
{
	my ($statement, %options) = @_;
	my ($status, $stdout, $stderr) =
	  $node->psql('postgres', "\\set VERBOSITY verbose\n$statement", on_error_stop => 1, %options);

	isnt($status, 0, "refused: $statement");
	return $stderr;
}

# Returns the notices of a statement that succeeds.
sub notices_of
{
	my ($statement, %options) = @_;
	my ($status, $stdout, $stderr) = $node->psql('postgres', $statement, on_error_stop => 1, %options);

	is($status, 0, "done: $statement");
	return $stderr;
}

sub query
{
	return $node->safe_psql('postgres', $_[0]);
}

sub job_command
{
	return query("SELECT command FROM cron.job WHERE jobname = '$_[0]'");
}

# Returns what a job is declared as.
sub declared
{
	return query("SELECT schedule, time_zone, attempts, catch_up, max_late, created_by FROM shedlock_jobs WHERE name = '$_[0]'");
}

# pg_cron before 1.5 has no cron.timezone, but the server keeps the setting all the same.
my $zone = 'Europe/Berlin';

#
# Scheduling
#
my $id = query("SELECT shedlock_cron_schedule('nightly', '$new_year', 'SELECT 42')");
is(job_command('nightly'), q{CALL "Shed Lock".shedlock_run(name => 'nightly'::pg_catalog.text, command => 'SELECT 42'::pg_catalog.text)},
	'a guarded job is a CALL with its name and its command');
is(declared('nightly'), "$new_year|$zone|1|latest||postgres", 'it is declared, in the time zone of pg_cron');
query("SELECT shedlock_once('nightly', now())");
query("SELECT shedlock_again('nightly')");
query(job_command('nightly'));
is(query("SELECT outcome, command FROM shedlock_history WHERE name = 'nightly'"),
	'succeeded|SELECT 42', 'the CALL of a guarded job runs by hand');
query("SELECT cron.unschedule(jobid) FROM cron.job WHERE jobname IS NULL");

query("SELECT shedlock_job('nightly', '$new_year', '$zone', catch_up => 'all', description => 'kept')");
is(query("SELECT shedlock_cron_schedule('nightly', '0 5 * * *', 'SELECT 43')"),
	$id, 'scheduling it again replaces it, under the same number');
is( query('SELECT count(*), min(schedule), min(database), bool_and(active) FROM cron.job'),
	'1|* * * * *|postgres|t',
	'nothing is left of the old job');
is(declared('nightly'), "0 5 * * *|$zone|1|all||postgres", 'its schedule is declared, and its other settings stay');
query("SELECT shedlock_job('nightly', '0 5 * * *', '$zone')");

like(
	notices_of("SELECT shedlock_cron_schedule('nightly', '$new_year', 'SELECT 43', database => 'other', active => false)"),
	qr/WARNING:  job "nightly" runs in database "other", where it must be declared\n.*\nHINT:  Run there: CREATE EXTENSION IF NOT EXISTS shedlock SCHEMA "Shed Lock"; SELECT "Shed Lock".shedlock_job\('nightly', '0 0 1 1 \*', time_zone => 'Europe\/Berlin'\);$/m,
	'a job in another database warns that it must be declared there, and says how');
is(query('SELECT jobid, database, active FROM cron.job'), "$id|other|f", 'the job is moved to the other database');
is(declared('nightly'), "0 5 * * *|$zone|1|latest||postgres", 'and its declaration here stays as it is');
like(query('SELECT problem FROM shedlock_cron_jobs'), qr/^unknown: it runs in database "other", and how it is doing can be seen only there$/, 'which shedlock_cron_jobs does not take for that of the job');
is(query('SELECT state, schedule FROM shedlock_cron_jobs'), "|$new_year", 'nor its state');
my ($there) = notices_of("SELECT shedlock_cron_schedule('nightly', '$new_year', 'SELECT 43', database => 'other')") =~ /Run there: (.*)$/m;
is($node->safe_psql('other', "CREATE SCHEMA \"Shed Lock\"; $there SELECT name FROM \"Shed Lock\".shedlock_jobs"), "created\nnightly", 'the statements can be run there as they are');
is(notices_of("SELECT shedlock_cron_schedule('nightly', '$new_year', 'SELECT 43')"), '',
	'a job in this database gives no notice');
is(query('SELECT jobid, database, active FROM cron.job'), "$id|postgres|t", 'the job is moved back');

is(query("SELECT shedlock_cron_unschedule('nightly')"), 't', 'a job is unscheduled by its name');
is(query("SELECT shedlock_cron_unschedule('nightly')"), 'f', 'a job is unscheduled once');
is(query('SELECT count(*) FROM cron.job'), '0', 'an unscheduled job is deleted');
is(declared('nightly'), '', 'and forgotten');

# pg_cron 1.6 does not fire these.
foreach ('@yearly', '@annually', " \t\n\@yearly ")
{
	query("SELECT shedlock_cron_schedule('yearly', '$_', 'SELECT 1')");
	is(query('SELECT schedule FROM cron.job'), '0 0 1 1 *', "$_ is written as five fields");
	query("SELECT shedlock_cron_schedule('yearly', '0 0 1 1,7 *', 'SELECT 1', fire => '$_')");
	is(query('SELECT schedule FROM cron.job'), '0 0 1 1 *', "also as fire");
	query("SELECT shedlock_cron_schedule('yearly', '\@monthly', 'SELECT 1'), shedlock_cron_guard('yearly', fire => '$_')");
	is(query('SELECT schedule FROM cron.job'), '0 0 1 1 *', "also as fire of a job that is guarded");
}
foreach ('@Yearly', '@yearlynow', 'x @yearly', '0; 3 * * *', '@reboot')
{
	like(error_of("SELECT shedlock_cron_schedule('yearly', '$_', 'SELECT 1')"), qr/22023: invalid schedule: "\Q$_\E"\nDETAIL:  Expected .*\nHINT:  /, "schedule $_ is refused");
}
query("SELECT shedlock_cron_schedule('yearly', '\@monthly', 'SELECT 1')");
is(query('SELECT schedule FROM cron.job'), '@monthly', 'other schedules are written unchanged');
query("SELECT shedlock_cron_unschedule('yearly')");

#
# Schedules, and what fires a job: see also the regress test cron_fire
#
my $fired = sub { return query("SELECT c.schedule, c.time_zone, j.schedule, c.problem FROM shedlock_cron_jobs c JOIN cron.job j USING (jobid) WHERE c.job_name = 'ticks'") };

is(notices_of("SELECT shedlock_cron_schedule('ticks', '0 9 * * *', 'SELECT 1')"), '', 'no message');
is($fired->(), "0 9 * * *|$zone|0 9 * * *|", 'pg_cron has a copy of the schedule');
query("SELECT shedlock_cron_schedule('ticks', 'every 90 min', 'SELECT 1')");
is($fired->(), 'every 90 min|UTC|* * * * *|', 'a period counts in UTC');
query("SELECT shedlock_cron_schedule('ticks', '0 9 * * *', 'SELECT 1')");
is($fired->(), "0 9 * * *|$zone|0 9 * * *|", 'and a cron expression after it in the time zone of pg_cron again');

# A declaration in an open transaction that commits first
my ($migration, $waits) = map { session($node) } 1, 2;
ask($migration, "BEGIN; SELECT shedlock_job('ticks', '0 3 * * *', '$zone', attempts => 3)");
$waits->query_until(qr/begins/, "\\echo begins\nSELECT shedlock_cron_schedule('ticks', '0 4 * * *', 'SELECT 1');\n");
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%cron_schedule%'}), 'a call waits for the declaration of another session');
ask($migration, 'COMMIT');
$_->quit foreach $waits, $migration;
is($fired->() . query("SELECT attempts FROM shedlock_jobs WHERE name = 'ticks'"), "0 4 * * *|$zone|* * * * *|3", 'and leaves its settings as they are then');
query("SELECT shedlock_job('ticks', '0 9 * * *', '$zone')");
foreach (
	[ "'America/New_York'", qr/^pg_cron does not fire it at \S+ \S+, when it is due/, 'another time zone' ],
	[ "'$zone', attempts => 3", qr/^pg_cron fires it only at its ticks/, 'attempts' ],
	[ "'$zone', catch_up => 'all'", qr/^pg_cron fires it only at its ticks/, 'a backlog' ],
	[ "'$zone', max_late => '1 h'", undef, 'max_late' ])
{
	my ($settings, $problem, $what) = @$_;

	query("SELECT shedlock_job('ticks', '0 9 * * *', '$zone'), shedlock_cron_guard('ticks')");
	query("SELECT shedlock_job('ticks', '0 9 * * *', $settings)");
	my ($call) = query('SELECT problem FROM shedlock_cron_jobs') =~ /; (SELECT .*) corrects that$/;
	like(query('SELECT problem FROM shedlock_cron_jobs'), $problem, "declared with $what, the job has a problem") if $problem;
	query($call // "SELECT shedlock_cron_guard('ticks')");
	is(query('SELECT schedule, fire, problem FROM shedlock_cron_jobs'), '0 9 * * *|* * * * *|', "that call lets pg_cron fire it each minute: $what");
}
query("SELECT shedlock_cron_guard('ticks', '*/15 * * * *')");
is(query('SELECT schedule, fire, problem FROM shedlock_cron_jobs'), '0 9 * * *|*/15 * * * *|', 'fire says when pg_cron fires a job');
query("SELECT shedlock_job('ticks', '0 10 * * *', '$zone')");
is(query('SELECT schedule, fire, problem FROM shedlock_cron_jobs'), '0 10 * * *|*/15 * * * *|', 'a new declaration does not touch pg_cron');
query("SELECT shedlock_cron_guard('ticks')");
is($fired->(), "0 10 * * *|$zone|0 10 * * *|", 'without fire the job has its copy again');

foreach (
	[ '5 9 * * *', '*/10 * * * *', qr/:05:00.*, when it is due/, 'fire must have the minutes of the schedule' ],
	[ '0 9 * * *', '0 10 * * *', qr/0[78]:00:00.*, when it is due/, 'fire must have its hours' ])
{
	my ($schedule, $fire, $at, $what) = @$_;
	like(notices_of("SELECT shedlock_cron_schedule('ticks', '$schedule', 'SELECT 1', fire => '$fire')"),
		qr/WARNING:  pg_cron does not fire job "ticks" at \S+ \S*$at\nDETAIL:  .*\nHINT:  Let the minutes/, $what);
	like(query("SELECT problem FROM shedlock_cron_jobs WHERE job_name = 'ticks'"), qr/^pg_cron does not fire it at /, 'shedlock_cron_jobs shows that');
}
# Sessions cannot set it where pg_cron knows it.
sub set_match_both
{
	my ($value) = @_;

	$node->append_conf('postgresql.conf', "cron.match_dom_and_dow = $value");
	$node->reload;
	return ok($node->poll_query_until('postgres', "SELECT current_setting('cron.match_dom_and_dow', true) = '$value'"), "pg_cron wants both days to match: $value");
}

query("SELECT shedlock_cron_schedule('ticks', '0 9 13 * fri', 'SELECT 1')");
set_match_both('on');
like(query("SELECT problem FROM shedlock_cron_jobs"), qr/^cron.match_dom_and_dow is on/, 'a schedule with both days is a problem if that is turned on');
like(error_of("SELECT shedlock_cron_schedule('ticks', '0 9 13 * sat', 'SELECT 1')"),
	qr/22023: pg_cron does not fire by "0 9 13 \* sat" on each of its days\nDETAIL:  .*\nHINT:  Turn that setting off, or pass fire => '\* \* \* \* \*'\./, 'a schedule with both days is refused where pg_cron wants both to match');
set_match_both('off');

# A period is a schedule.
query("SELECT shedlock_cron_schedule('ticks', 'every 90 min', 'SELECT 1')");
is($fired->(), 'every 90 min|UTC|* * * * *|', 'pg_cron fires a job with a period each minute');
my $before = query('SELECT * FROM cron.job');
like(error_of("SELECT shedlock_cron_unguard('ticks')"), qr/0A000: pg_cron has no schedule like that of job "ticks"\nDETAIL:  It is "every 90 min" in time zone "UTC".\nHINT:  .*cron.alter_job/, 'such a job cannot be unguarded');
is(query('SELECT * FROM cron.job') . declared('ticks'), $before . "every 90 min|UTC|1|latest||postgres", 'and stays as it is');
query("SELECT shedlock_cron_unschedule('ticks')");

# Guarding a job that exists
query("SELECT cron.schedule('ticks', '0 9 * * *', 'SELECT 1'), shedlock_cron_guard('ticks')");
is($fired->(), "0 9 * * *|$zone|0 9 * * *|", 'a job that is guarded is declared with its own schedule');
my $call = job_command('ticks');
is(notices_of("SELECT shedlock_cron_guard('ticks')"), '', 'guarding it again changes nothing');
is(job_command('ticks'), $call, 'not even the CALL');
query("SELECT shedlock_cron_unguard('ticks')");
is(query('SELECT schedule, command FROM cron.job') . declared('ticks'), '0 9 * * *|SELECT 1', 'unguarding restores command and schedule, and forgets the job');
query("SELECT shedlock_job('ticks', '0 9 * * *', 'America/New_York', attempts => 3), shedlock_cron_guard('ticks')");
is($fired->(), '0 9 * * *|America/New_York|* * * * *|', 'a job that is declared before stays as it is declared');
like(error_of("SELECT shedlock_cron_unguard('ticks')"), qr/0A000: .*\nDETAIL:  .* in time zone "America\/New_York"/, 'pg_cron has no such time zone');
query("SELECT shedlock_job('ticks', '5 9 * * *', '$zone', attempts => 3), shedlock_cron_unguard('ticks')");
is(query('SELECT schedule, command FROM cron.job'), '5 9 * * *|SELECT 1', 'unguarding restores the schedule as it is declared');

# A CALL that was written by hand can have other arguments.
my $by_hand = q{CALL "Shed Lock".shedlock_run('ticks', 'SELECT 1', '1 h', on_busy => 'error')};
query("SELECT cron.alter_job(jobid, command => \$\$$by_hand\$\$) FROM cron.job");
like(query('SELECT guarded, problem FROM shedlock_cron_jobs'), qr/^t\|it is not declared, and so runs each time that pg_cron fires it; SELECT shedlock_cron_guard\('\d+'\) corrects that$/, 'a CALL by hand that is not declared is a problem');
query("SELECT shedlock_cron_guard('ticks')");
is(job_command('ticks'), $by_hand, 'which keeps all that it has');
is($fired->(), "5 9 * * *|$zone|5 9 * * *|", 'and is declared');
query("SELECT cron.alter_job(jobid, schedule => '\@reboot') FROM cron.job");
query("SELECT cron.schedule('booted', '\@reboot', \$\$CALL \"Shed Lock\".shedlock_run('booted', 'SELECT 1')\$\$)");
is(query("SELECT problem FROM shedlock_cron_jobs WHERE job_name = 'booted'"), '', 'a job that is fired @reboot is not declared');
query("SELECT cron.unschedule('booted'), shedlock_cron_unschedule('ticks')");

# The job of a guard is not forgotten.
query("SELECT shedlock_cron_schedule('ticks', '0 9 * * *', 'SELECT 1'), cron.schedule('twin', '0 9 * * *', \$\$CALL \"Shed Lock\".shedlock_run('ticks', 'SELECT 2')\$\$)");
like(error_of("SELECT shedlock_forget('ticks')"), qr/55006: job "ticks" is a guarded job of pg_cron\nHINT:  .*shedlock_cron_unguard/, 'a guarded job cannot be forgotten');
is(query("SELECT shedlock_cron_unguard('ticks')") . declared('ticks'), "t0 9 * * *|$zone|1|latest||postgres", 'nor is it by an unguard as long as another job is guarded by its name');
is(query("SELECT shedlock_cron_unguard('twin')") . declared('ticks'), 't', 'the last one forgets it');
query("SELECT cron.unschedule(jobid) FROM cron.job; SELECT shedlock_cron_schedule('ticks', '0 9 * * *', 'SELECT 1', database => 'other'), shedlock_job('ticks', '\@daily'), shedlock_forget('ticks'), cron.unschedule('ticks')");

# What ends a guard forgets the job in the name of its role, even if a superuser ends it.
query("GRANT EXECUTE ON FUNCTION shedlock_cron_unschedule TO plain; GRANT USAGE ON SCHEMA \"Shed Lock\" TO other_role");
my @as = map { [ -U => $_ ] } 'plain', 'postgres';
my $make_own = sub { $node->safe_psql('postgres', qq{SELECT cron.schedule('own', '$new_year', \$\$CALL "Shed Lock".shedlock_run('$_[0]', 'SELECT 1')\$\$)}, extra_params => $as[0]) };
query("SELECT shedlock_job('ticks', '\@daily')");
my $is_declared = declared('ticks');
foreach my $as (@as)
{
	$make_own->('ticks');
	like(notices_of("SELECT shedlock_cron_unschedule('own')", extra_params => $as),
		qr/WARNING:  job "ticks" is not forgotten\nDETAIL:  The role of the pg_cron job may not forget it.\nHINT:  .*shedlock_forget/, "a job of plain, unscheduled by $as->[1], forgets no job of another role");
	is(declared('ticks'), $is_declared, "nothing of it has changed, $as->[1]");
}
$node->safe_psql('postgres', "SELECT shedlock_job('of plain', '\@daily')", extra_params => $as[0]);
query('REVOKE EXECUTE ON FUNCTION shedlock_forget FROM PUBLIC');
$make_own->('of plain');
is(notices_of("SELECT shedlock_cron_unschedule('own')", extra_params => $as[0]) . declared('of plain'), '', 'a role that may unschedule its job needs no privilege for shedlock_forget');
query('GRANT EXECUTE ON FUNCTION shedlock_forget TO PUBLIC');
like(notices_of("SELECT _shedlock_cron_forget('ticks', 'postgres')", extra_params => $as[0]), qr/WARNING:  .* not forgotten/, 'a role cannot forget for a role whose privileges it lacks');
is(declared('ticks'), $is_declared, 'and changes nothing');
query('REVOKE EXECUTE ON FUNCTION shedlock_cron_unschedule FROM plain');
like(error_of("SELECT _shedlock_cron_forget('ticks', 'other_role')", extra_params => [ '-U', 'other_role' ]),
	qr/42501: permission denied for function shedlock_forget/, 'a role that may not end a guard cannot forget in that way');
query("SELECT shedlock_forget('ticks')");

# shedlock_again lets pg_cron fire the jobs of the name soon, unless it does so anyway.  Here the
# test makes their calls: pg_cron would make them first at a full minute.  See also cron-ticks.
my $once = q{SELECT string_agg(concat_ws(' ', username, schedule, active, command), ', ' ORDER BY jobid) FROM cron.job WHERE command LIKE '%once%'};
query("SELECT shedlock_cron_schedule('ticks', '$new_year', \$\$SELECT 'ticks'\$\$, username => 'plain'), shedlock_once('ticks', now()); UPDATE cron.job SET nodeport = 1");
my $ticks_id = query("SELECT jobid FROM cron.job");
query('CREATE ROLE on_call LOGIN; GRANT USAGE ON SCHEMA "Shed Lock" TO on_call; GRANT EXECUTE ON FUNCTION shedlock_again TO on_call');
my $notice = notices_of("SELECT shedlock_again('ticks'), shedlock_again('ticks')", extra_params => [ '-U', 'on_call' ]);
like($notice, qr/^\S+ NOTICE:  pg_cron will fire job $ticks_id once at the next full minute\nDETAIL:  By its schedule it would not be fired before \S+ \S+\.\n/, 'a role that cannot see the job lets it run soon');
is(query($once), qq{plain * * * * * t CALL "Shed Lock"._shedlock_cron_once('$ticks_id'::pg_catalog.int8)}, 'by one job, of the role of that job');
# pg_cron may have fired an earlier job of this name, if a full minute came in between.
my $runs;
my $ran = q{FROM shedlock_history WHERE name = 'ticks' AND command = 'SELECT ''ticks'''};
my $once_call = query("SELECT command FROM cron.job WHERE command LIKE '%once%'");
query("SET ROLE other_role; $once_call");
is(query("SELECT count(*) FROM cron.job") . query("SELECT count(*) $ran"), '20', 'another role that calls it runs and deletes nothing');
$node->safe_psql('postgres', $once_call, extra_params => $as[0]);
is(query("SELECT outcome, locked_role $ran"), 'succeeded|plain', 'its role runs the command of the job');
is(query($once), '', 'and it is deleted');
is(query("SELECT count(*) FROM cron.job WHERE jobid = $ticks_id"), '1', 'not the job');

query("SELECT shedlock_again('ticks'), cron.alter_job($ticks_id, command => 'CALL shedlock_run(''ticks'', ''SELECT 1/0'')')");
is(($node->psql('postgres', $once_call, extra_params => $as[0]))[0], 3, 'a run that fails');
is(query($once), '', 'is deleted, too');

# It stays as long as no run can begin.
query("SELECT shedlock_again('ticks'), shedlock_pause('ticks')");
$runs = query('SELECT count(*) FROM shedlock_history');
$node->safe_psql('postgres', $once_call, extra_params => $as[0]);
is(query('SELECT count(*) FROM shedlock_history') . query($once), "${runs}plain * * * * * t $once_call", 'nothing runs, and it stays, while the lock is paused');
query("SELECT shedlock_resume('ticks')");
is(($node->psql('postgres', $once_call, extra_params => $as[0]))[0], 3, 'the run comes afterwards');
is(query($once), '', 'and it is deleted');

# So does shedlock_resume, if a tick was missed in the pause.
query("SELECT shedlock_job('ticks', '$new_year'), shedlock_pause('ticks', now() + interval '1 h')");
is(notices_of("SELECT shedlock_resume('ticks')"), '', 'the end of a pause without a tick fires nothing');
query("UPDATE _shedlock_job SET since = since - interval '2 years' WHERE name = 'ticks'; UPDATE _shedlock_tick SET tick = tick - interval '2 years' WHERE name = 'ticks'");
query("SELECT shedlock_pause('ticks', now() + interval '1 h')");
like(notices_of("SELECT shedlock_resume('ticks')"), qr/^\S+ NOTICE:  pg_cron will fire job $ticks_id once at the next full minute\n/, 'the end of a pause in which a tick was missed lets the job run soon');
is(query($once), "plain * * * * * t $once_call", 'by one job');
is(($node->psql('postgres', $once_call, extra_params => $as[0]))[0], 3, 'which runs the command');
is(query($once), '', 'and is deleted');

# By a role that may not write by default, and by one that may call shedlock_run no more.
query("SELECT shedlock_again('ticks'), cron.alter_job($ticks_id, command => 'CALL shedlock_run(''ticks'', ''SHOW transaction_read_only'')')");
query('ALTER ROLE plain SET default_transaction_read_only = on');
is(($node->psql('postgres', $once_call, extra_params => $as[0]))[0], 0, 'a role whose transactions are read-only by default runs it');
is(query("SELECT outcome FROM shedlock_history WHERE command LIKE 'SHOW%'"), 'succeeded', 'its command succeeds');
is(query($once), '', 'and it is deleted');
query("ALTER ROLE plain RESET default_transaction_read_only; REVOKE EXECUTE ON PROCEDURE shedlock_run FROM PUBLIC; SELECT shedlock_again('ticks')");
like(($node->psql('postgres', $once_call, extra_params => $as[0]))[2], qr/permission denied for procedure shedlock_run/, 'a role that may not call shedlock_run runs nothing by it');
is(query($once), '', 'and it is deleted');
query('GRANT EXECUTE ON PROCEDURE shedlock_run TO PUBLIC');
query("SELECT shedlock_again('ticks'), cron.unschedule($ticks_id)");
$runs = query('SELECT count(*) FROM shedlock_history');
$node->safe_psql('postgres', $once_call, extra_params => $as[0]);
is(query('SELECT count(*) FROM shedlock_history') . query('SELECT count(*) FROM cron.job'), "${runs}0", 'if the job is gone, nothing runs, and nothing stays');
like(error_of('CALL _shedlock_cron_once(NULL)'), qr/22004: job must not be null/, 'NULL is no job');
like(error_of('BEGIN; CALL _shedlock_cron_once(1)'), qr/25001: /, 'it cannot run in a transaction block');

query("SELECT shedlock_forget('ticks'), shedlock_cron_schedule('ticks', '$new_year', 'SELECT 1', active => false); UPDATE cron.job SET nodeport = 1");
foreach ([ "active => true, schedule => '* * * * *'", 'is fired each minute' ], [ "active => false, schedule => '$new_year'", 'is not active' ], [ "active => true, schedule => '$new_year', command => 'SELECT 1'", 'is not guarded' ],
	[ "command => 'CALL shedlock_run(''tick'', ''SELECT 1'')'", 'has another name' ], [ "database => 'other', command => 'CALL shedlock_run(''ticks'', ''SELECT 1'')'", 'is one of another database' ])
{
	my ($change, $what) = @$_;
	query("SELECT cron.alter_job(jobid, $change) FROM cron.job");
	is(notices_of("SELECT shedlock_again('ticks')") . query($once), '', "no job is fired soon that $what");
}
query("SELECT cron.alter_job(jobid, database => 'postgres', command => 'CALL shedlock_run(''ticks'', ''SELECT 1'', ''1 h'')') FROM cron.job");
$notice = notices_of("SELECT shedlock_again('ticks')");
like($notice, qr/NOTICE:  pg_cron does not fire job \d+ before \S+ \S+\nHINT:  To run it now, execute its command as its role: SELECT username, command FROM cron.job WHERE jobid = \d+;$/m,
	'of a CALL with other arguments a notice tells where it is');
my ($where) = $notice =~ /: SELECT username, (.*)$/m;
query(query("SELECT $where"));
is(query("SELECT outcome FROM shedlock_history WHERE name = 'ticks' ORDER BY token DESC LIMIT 1"), 'succeeded', 'that CALL runs the tick once more');
is(query($once), '', 'and there is no job for it');
query("SELECT cron.unschedule(jobid) FROM cron.job; SELECT shedlock_forget('ticks')");

# What another role has written into its job is not said in the extension's name, and no
# terminal obeys it.
query("SELECT shedlock_job('hostile', '\@daily'), shedlock_once('hostile', now())");
my $hostile = $node->safe_psql('postgres', q{SELECT cron.schedule(E'hostile\n\x1b[2J', '0 0 1 1 *', }
	  . q{E'CALL shedlock_run(''hostile'', ''SELECT 1 /*\nHINT:  forged */'', ''1 h'')')}, extra_params => [ '-U', 'plain' ]);
$notice = notices_of("SELECT shedlock_again('hostile')");
like($notice, qr/^psql:\S+ NOTICE:  pg_cron does not fire job $hostile before .*\nHINT:  .* WHERE jobid = $hostile;$/, 'shedlock_again tells of a job of another role by its ID');
unlike($notice, qr/forged|\x1b/, 'and shows nothing of it');
query("SELECT cron.alter_job($hostile, username => 'plain', database => 'other', command => 'SELECT 1')");
$notice = error_of("SELECT cron.alter_job($hostile, database => 'postgres'), shedlock_cron_guard('$hostile')");
unlike($notice, qr/\x1b/, 'shedlock_cron_guard masks what it shows');
query("SELECT cron.unschedule(jobid) FROM cron.job; SELECT shedlock_forget('hostile')");

# Jobs that are not guarded, as pg_cron's own records show them
query("BEGIN; SELECT cron.schedule('bare', '* * * * *', 'SELECT 1'); UPDATE cron.job SET nodeport = 1; COMMIT");
my $bare_state = q{SELECT guarded, name, command, state, last_outcome, last_duration, overdue, problem FROM shedlock_cron_jobs WHERE job_name = 'bare'};
is(query($bare_state), 'f||SELECT 1|||||', 'nothing is known of a job that never ran');
foreach ([ 'succeeded', "interval '80 s'", '00:01:20' ], [ 'running', 'NULL', '' ])
{
	my ($status, $took, $duration) = @$_;
	query("DELETE FROM cron.job_run_details; INSERT INTO cron.job_run_details (jobid, runid, username, status, start_time, end_time)"
		  . " SELECT jobid, nextval('cron.runid_seq'), username, '$status', now(), now() + $took FROM cron.job");
	is(query($bare_state), "f||SELECT 1||$status|$duration||", "a job that is not guarded, $status");
}
query("GRANT USAGE ON SCHEMA \"Shed Lock\" TO plain; REVOKE SELECT ON cron.job_run_details FROM PUBLIC; UPDATE cron.job SET username = 'plain'");
is($node->safe_psql('postgres', $bare_state, extra_params => [ '-U', 'plain' ]), 'f||SELECT 1|||||', 'without the privilege to read these the view still works');
query('GRANT SELECT ON cron.job_run_details TO PUBLIC; SELECT cron.unschedule(jobid) FROM cron.job');
query('DELETE FROM cron.job_run_details; TRUNCATE _shedlock_tick, _shedlock_job');

#
# Existing jobs are guarded and unguarded
#
my @hostile = (
	[ 'plain', 'VACUUM' ],
	[ q{it's}, q{SELECT 'it''s'} ],
	[ '"double"', 'SELECT "relname" FROM "pg_class" LIMIT 1' ],
	[ "two lines", "SELECT 1;\r\n-- done\n" ],
	[ 'back\\slash\\', q{SELECT E'\\\\n', '\\', $x$\\$x$} ],
	[ "gr\xc3\xbcn", "SELECT '\xe6\x97\xa5' -- \xc3\xbc" ],
	[ '$$', 'SELECT $$a$$' ],
	[ '%s %I', q{SELECT '%L'} ],
	[ ' ', '  SELECT 1  ' ],
	[ q{'); DROP TABLE cron.job; --}, q{SELECT ''');'} ]);
my $quote = sub { my ($text) = @_; $text =~ s/'/''/g; $text =~ s/\\/\\\\/g; return "E'$text'"; };
my $guarded = 0;
my $run = 0;
my $restored = 0;

foreach (@hostile)
{
	my ($name, $command) = map { $quote->($_) } @$_;

	query("SELECT cron.schedule($name, '$new_year', $command)");
	query("SELECT shedlock_cron_guard($name), shedlock_once($name, now())");
	$guarded++
	  if query("SELECT count(*) FROM shedlock_cron_jobs WHERE job_name = $name AND name = $name AND command = $command") eq '1';

	# Run it like pg_cron.
	query("UPDATE _shedlock_tick SET again_at = now() WHERE name = $name");
	query(query("SELECT command FROM cron.job WHERE jobname = $name"));
	$run++ if query("SELECT outcome FROM shedlock_history WHERE name = $name AND command = $command") eq 'succeeded';

	query((query('SHOW server_version_num') < 190000 ? 'SET standard_conforming_strings = off; ' : '') . "SELECT shedlock_cron_unguard($name)");
	$restored++ if query("SELECT count(*) FROM cron.job WHERE jobname = $name AND command = $command") eq '1';
}
is($guarded, scalar @hostile, 'any name and command is guarded and read back');
is($run, scalar @hostile, 'the guarded job runs the command');
is($restored, scalar @hostile, 'unguarding restores the original command');
is(query("SELECT count(*), count(*) FILTER (WHERE guarded) FROM shedlock_cron_jobs"), @hostile . '|0', 'shedlock_cron_jobs shows that a job is not guarded');
query('SELECT cron.unschedule(jobid) FROM cron.job');

query("SELECT cron.schedule('report', '$new_year', 'SELECT 1')");
is(query("SELECT shedlock_cron_guard('report')"), 'report', 'guarding returns the name of the lock');
is(query("SELECT shedlock_cron_unguard('report')"), 't', 'a job is unguarded');
is(query("SELECT shedlock_cron_unguard('report')"), 'f', 'a job is unguarded once');
is(job_command('report'), 'SELECT 1', 'an unguarded job has its own command');

query(
	q{
SELECT cron.alter_job(jobid, command => $$CALL "Shed Lock".shedlock_run('by hand', 'SELECT 1', on_busy => 'error')$$)
FROM cron.job});
is(query("SELECT shedlock_cron_guard('report')"), 'by hand', 'a job that was guarded by hand keeps its lock');

my $unnamed = query("SELECT cron.schedule('$new_year', 'SELECT 2')");
is(query("SELECT shedlock_cron_guard('$unnamed')"),
	"cron:$unnamed", 'the lock of a job without a name has its number');
is(query("SELECT job_name, name FROM shedlock_cron_jobs WHERE jobid = $unnamed"),
	"|cron:$unnamed", 'shedlock_cron_jobs shows a job without a name');
is(query("SELECT shedlock_cron_unguard('$unnamed')"), 't', 'a job without a name is unguarded by its number');
query("SELECT cron.schedule('$unnamed', '$new_year', 'SELECT 3')");
is(query("SELECT shedlock_cron_guard('$unnamed')"),
	"cron:$unnamed", 'a number that is also a name is read as a number');
query('SELECT cron.unschedule(jobid) FROM cron.job');

#
# Refused
#
query('TRUNCATE _shedlock_tick, _shedlock_job');
my $make = "SELECT shedlock_cron_schedule('x', '$new_year'";

foreach (
	[ "SELECT shedlock_cron_guard('nonesuch')", '42704: job "nonesuch" does not exist' ],
	[ "SELECT shedlock_cron_unguard('77')", '42704: job "77" does not exist' ],
	[ 'SELECT shedlock_cron_guard(NULL)', '22004: job must not be null' ],
	[ "SELECT shedlock_cron_schedule(NULL, '$new_year', 'SELECT 1')", '22004: job name must not be null' ],
	[ "SELECT shedlock_cron_schedule('', '$new_year', 'SELECT 1')", '22023: lock name must not be empty' ],
	[ "SELECT shedlock_cron_schedule('x', NULL, 'SELECT 1')", '22004: schedule must not be null' ],
	[ "SELECT shedlock_cron_schedule('x', '$new_year', 'SELECT 1', fire => 'often')", '22023: invalid schedule: "often"' ],
	[ "SELECT shedlock_cron_schedule('x', 'daily', 'SELECT 1')", '22023: invalid schedule: "daily"' ],
	[ "$make, NULL)", '22004: command must not be null' ],
	[ "$make, '-- later')", '22023: command is empty' ],
	[ "$make, 'SELEC 1')", '42601: syntax error at or near "SELEC"' ],
	[ "$make, 'BEGIN; SELECT 1; COMMIT')", '0A000: BEGIN cannot be used in a guarded command' ],
	[ "$make, 'COPY t FROM STDIN')", '0A000: COPY FROM STDIN cannot be used in a guarded command' ],
	[ "$make, 'SELECT 1', username => 'nobody')", '42704: role "nobody" does not exist' ])
{
	my ($statement, $error) = @$_;
	like(error_of($statement), qr/ERROR:  \Q$error\E\n/, "with $error");
}
is(query('SELECT count(*) FROM cron.job'), '0', 'no refused call has created a job');
is(query('SELECT count(*) FROM shedlock_jobs'), '0', 'nor declared one');

query("SELECT cron.schedule('copies', '$new_year', 'COPY t TO STDOUT')");
like(error_of("SELECT shedlock_cron_guard('copies')"),
	qr/ERROR:  0A000: COPY TO STDOUT cannot/, 'a job with COPY to the client is refused');
is(job_command('copies'), 'COPY t TO STDOUT', 'a refused job stays unchanged');
query("SELECT shedlock_cron_unschedule('copies')");

my $long_name = "SELECT shedlock_cron_schedule(repeat('x', 64), '$new_year', 'SELECT 1')";
if (query("SELECT atttypid::regtype FROM pg_attribute WHERE attrelid = 'cron.job'::regclass AND attname = 'jobname'") eq 'name')
{
	like(error_of($long_name), qr/ERROR:  22023: job name is too long/, 'a name that pg_cron would truncate is refused');
}
else
{
	is(notices_of($long_name), '', 'a name that pg_cron does not truncate is accepted');
	query("SELECT shedlock_cron_unschedule(repeat('x', 64))");
}

#
# Several roles
#
my @as_plain = (extra_params => [ '-U', 'plain' ]);
my $functions = 'shedlock_cron_schedule, shedlock_cron_unschedule, shedlock_cron_guard, shedlock_cron_unguard';

sub query_as_plain
{
	return $node->safe_psql('postgres', $_[0], @as_plain);
}

$make = "SELECT shedlock_cron_schedule('mine', '$new_year', 'SELECT 1'";
like(error_of("$make)", @as_plain), qr/42501: permission denied for function shedlock_cron_schedule/,
	'a plain role needs a GRANT');
query("GRANT EXECUTE ON FUNCTION $functions TO plain");
is(notices_of("$make)", @as_plain), '', 'a plain role with the GRANT creates its own jobs');
like(declared('mine'), qr/\|plain$/, 'which are declared in its name');
query("SELECT shedlock_cron_schedule('admins', '$new_year', 'SELECT 1')");
is(query_as_plain('SELECT job_name, username FROM shedlock_cron_jobs'), 'mine|plain', 'a plain role sees only its own jobs');
is( query('SELECT job_name, username FROM shedlock_cron_jobs ORDER BY job_name'),
	"admins|postgres\nmine|plain",
	'superusers see all jobs');
is(query_as_plain("SELECT shedlock_cron_unguard('mine'), shedlock_cron_guard('mine', '*/5 * * * *')"),
	't|mine', 'changes them');
is(query("SELECT fire FROM shedlock_cron_jobs WHERE job_name = 'mine'"),
	'*/5 * * * *', 'a plain role guards its job without EXECUTE on cron.alter_job');

like(error_of("SELECT shedlock_cron_guard('admins')", @as_plain),
	qr/42704: job "admins" does not exist/, 'a plain role cannot guard jobs of other roles');
like(error_of("$make, username => 'postgres')", @as_plain), qr/ERROR:  42501: /, 'a plain role cannot create jobs for other roles');
like(error_of("$make, active => false)", @as_plain),
	qr/42501: permission denied for function alter_job/, 'a plain role cannot do what needs cron.alter_job');
is(query("SELECT fire, active FROM shedlock_cron_jobs WHERE job_name = 'mine'"),
	'*/5 * * * *|t', 'a refused change changes nothing');

$unnamed = query_as_plain("SELECT cron.schedule('$new_year', 'SELECT 4')");
like(
	error_of("SELECT shedlock_cron_guard('$unnamed')", @as_plain),
	qr/42501: permission denied to change job "$unnamed"\n.*\nHINT:  .* GRANT EXECUTE ON FUNCTION cron.alter_job TO plain/,
	'changing a job without a name needs cron.alter_job');
query('GRANT EXECUTE ON FUNCTION cron.alter_job TO plain');
is(query_as_plain("SELECT shedlock_cron_guard('$unnamed')"),
	"cron:$unnamed", 'a role with EXECUTE on cron.alter_job changes a job without a name');
is(query_as_plain("SELECT shedlock_cron_unschedule('mine')"), 't', 'a plain role unschedules its job');

# Names of jobs are unique for each role, names of locks are unique for all
$make = "SELECT shedlock_cron_schedule('same', '$new_year', 'SELECT 1'";
query("$make)");
is(query("SELECT name FROM shedlock_cron_jobs WHERE job_name = 'same'"),
	'same', 'the first job of a name gives it to its lock');
like(notices_of("$make)", @as_plain), qr/NOTICE:  lock of job "same" is named "plain.same"/,
	'a job of the same name of another role, who cannot see the first, gets a lock of its own');
is(notices_of("$make)"), '', 'the first job, scheduled again, keeps its lock');
is(notices_of("$make)", @as_plain), '', 'the second job, scheduled again, keeps its lock');
is(query("SELECT string_agg(name, ' ' ORDER BY name) FROM shedlock_cron_jobs WHERE job_name = 'same'"),
	'plain.same same', 'the two jobs have two locks');
like(
	error_of("SELECT shedlock_cron_guard('same')"),
	qr/42P09: job name "same" is ambiguous\nDETAIL:  .*"postgres".*"plain".*\nHINT:  Pass the ID/,
	'a shared name is ambiguous to guard');
like(error_of("SELECT shedlock_cron_unschedule('same')"),
	qr/42P09: job name "same" is ambiguous/, 'a shared name is ambiguous to unschedule');
query("SELECT shedlock_cron_schedule('same', '0 1 1 1 *', 'SELECT 3', username => 'plain')");
is( query("SELECT schedule, command, name FROM shedlock_cron_jobs"
		  . " WHERE username = 'plain' AND job_name = 'same'"),
	'0 1 1 1 *|SELECT 3|plain.same',
	'a superuser replaces the job of another role');
like(notices_of("$make, username => 'other_role', active => false)"),
	qr/NOTICE:  lock of job "same" is named "other_role.same"/,
	'a superuser creates a job for another role');
is(query("SELECT active FROM cron.job WHERE username = 'other_role'"), 'f', 'a job can be created inactive');

# Roles that may use pg_cron see names of jobs.
query('GRANT USAGE ON SCHEMA "Shed Lock" TO other_role');
is(query_as_plain("SELECT _shedlock_cron_name_is_shared('same', 'nobody'), _shedlock_cron_name_is_shared('none', 'nobody')"), 't|f',
	'a role with USAGE on schema cron learns that a job name is in use');
is(query("SET ROLE other_role; SELECT _shedlock_cron_name_is_shared('same', 'nobody')"), 'f', 'a role without USAGE on schema cron learns nothing');
is(query('SET ROLE other_role; SELECT count(*) FROM shedlock_cron_jobs'), '0', 'a role without USAGE on schema cron sees no jobs, without an error');
query('SELECT cron.unschedule(jobid) FROM cron.job');

# The dot may belong to the role's name or to the job's.
query('CREATE ROLE a LOGIN; CREATE ROLE "a.b" LOGIN');
foreach my $set ('', 'SET quote_all_identifiers = on; ')
{
	query("${set}SELECT shedlock_cron_schedule('b.c', '$new_year', 'SELECT 1'), shedlock_cron_schedule('c', '$new_year', 'SELECT 1'), "
		  . "shedlock_cron_schedule('b.c', '$new_year', 'SELECT 1', username => 'a'), shedlock_cron_schedule('c', '$new_year', 'SELECT 1', username => 'a.b')");
	is(query('SELECT name FROM shedlock_cron_jobs ORDER BY jobid'), qq{b.c\nc\na."b.c"\n"a.b".c}, "${set}four jobs have four locks");
}
query('SELECT cron.unschedule(jobid) FROM cron.job');

# Locks of tenants begin with their role.
query(q{LOAD 'shedlock'; CREATE ROLE "A b" LOGIN; ALTER SYSTEM SET shedlock.role_prefix = on; SELECT pg_reload_conf()});
$node->poll_query_until('postgres', "SELECT shedlock_token('x') IS NULL AND current_setting('shedlock.role_prefix') = 'on'");
is(notices_of("SELECT shedlock_cron_schedule('same', '$new_year', 'SELECT 1')", @as_plain), '', 'with shedlock.role_prefix a plain role schedules a job');
is(notices_of("SELECT shedlock_cron_schedule('same', '$new_year', 'SELECT 1', username => 'A b')"), '', 'a superuser schedules a job of the same name for another role');
my $bare = query_as_plain("SELECT cron.schedule('$new_year', 'SELECT 1')");
is(query_as_plain("SELECT shedlock_cron_guard('$bare')"), "plain:cron.$bare", 'a lock of a job without a name begins with the role');
is(query_as_plain("SELECT shedlock_cron_guard('$bare')"), "plain:cron.$bare", 'a job without a name keeps its lock when it is guarded again');
is(query("SELECT name FROM shedlock_cron_jobs ORDER BY jobid"), "plain:same\nA b:same\nplain:cron.$bare", 'locks begin with the role of the job');
query_as_plain("CALL shedlock_run('plain:same', 'SELECT 1')");
query("UPDATE cron.job SET command = replace(command, 'plain:', 'team_')");
is(query("SELECT shedlock_cron_guard('$bare')"), "plain:cron.$bare", 'a job whose lock has no role gets a lock with its role');
query("UPDATE cron.job SET command = replace(command, 'plain:', 'other_role:')");
like(error_of("SELECT shedlock_cron_guard('$bare')"), qr/42501: permission denied for lock "other_role:cron.$bare"/, 'a job cannot be declared by a name of another role');

# The CALL of a job can name any job, but shows nothing of those of other roles.
query(q{SELECT cron.unschedule(jobid) FROM cron.job});
my $forge = sub { query_as_plain(qq{SELECT cron.schedule('$_[0]', '* * * * *', \$\$CALL "Shed Lock".shedlock_run('$_[0]', 'SELECT 1')\$\$)}) };
$forge->($_) foreach 'other_role:claimed', 'plain:claimed';
query("UPDATE cron.job SET nodeport = 1; SELECT shedlock_job('other_role:claimed', '\@daily', '$zone'), shedlock_once('other_role:claimed', now())");
query("SET ROLE plain; SELECT shedlock_job('plain:claimed', '\@daily', '$zone'), shedlock_once('plain:claimed', now())");
my $claims = q{SELECT name, schedule, last_tick IS NOT NULL, state, problem FROM shedlock_cron_jobs ORDER BY name};
my $hidden = 'other_role:claimed|* * * * *|f||unknown: shedlock.role_prefix reserves lock "other_role:claimed" for other roles';
is(query_as_plain($claims), "$hidden\nplain:claimed|\@daily|t|waiting|", 'shedlock_cron_jobs hides what is known of other names');
is(query_as_plain("SELECT _shedlock_cron_problem('other_role:claimed', '0 0 1 1 *', 1)"), (split /\|/, $hidden)[-1], 'as does the function behind it');
is(query($claims), "other_role:claimed|\@daily|t|waiting|\nplain:claimed|\@daily|t|waiting|", 'shedlock_cron_jobs shows it to superusers');
is(query("GRANT pg_read_all_stats TO plain; SET ROLE plain; $claims; RESET ROLE; REVOKE pg_read_all_stats FROM plain"), query($claims), 'shedlock_cron_jobs shows it to members of pg_read_all_stats');
is(query("SET shedlock.role_prefix = off; SET ROLE plain; $claims"), query($claims), 'shedlock_cron_jobs shows it without the setting');
like(error_of("SELECT shedlock_cron_schedule('x', '\@daily', 'SELECT 1', username => 'other_role')", @as_plain), qr/42501: /, 'a role declares no jobs of other roles');

# Nor if something else is wrong with the call; and what that is has nothing that a terminal obeys.
query("SELECT shedlock_job('other_role:claimed', '\@daily', '$zone', description => 'secret')");
query_as_plain(qq{SELECT cron.schedule('other_role:claimed', '0 0 1 1 *', \$\$CALL "no\nschema".shedlock_run('other_role:claimed', 'SELECT 1')\$\$)});
my $wrong = q{SELECT name, description, message FROM shedlock_problems WHERE problem = 'cron'};
like(query_as_plain($wrong), qr/^cron:\d+\|\|Job \d+ of pg_cron: calls shedlock_run of schema "no\?schema", but[^\n]*$/, 'shedlock_problems hides what is known of other names');
like(query($wrong), qr/^cron:\d+\|\|/, 'nor does it take it for a problem of that name');
is(query('BEGIN; SET ROLE other_role; SELECT shedlock_forget(\'other_role:claimed\'); ROLLBACK'), 't', 'nor does it keep the roles of that name from forgetting it');
query_as_plain("SELECT shedlock_cron_unguard('plain:claimed')");
like(notices_of("SELECT shedlock_cron_unguard('other_role:claimed')"), qr/WARNING:  job "other_role:claimed" is not forgotten/, 'the end of a guard forgets no job of another role');
is(query("SELECT string_agg(name, ' ' ORDER BY name) FROM shedlock_jobs WHERE name LIKE '%:claimed'"), 'other_role:claimed', 'indeed');
query(q{SELECT cron.unschedule(jobid) FROM cron.job; LOAD 'shedlock'; ALTER SYSTEM RESET shedlock.role_prefix; SELECT pg_reload_conf()});
$node->poll_query_until('postgres', "SELECT shedlock_token('x') IS NULL AND current_setting('shedlock.role_prefix') = 'off'");

# A search_path with traps
query(
	q{
CREATE SCHEMA evil;
CREATE FUNCTION evil.quote_literal(text) RETURNS text LANGUAGE sql AS $$SELECT 'hacked'$$;
CREATE FUNCTION evil._shedlock_guarded_call(text) RETURNS text LANGUAGE sql AS $$SELECT 'hacked'$$;
CREATE FUNCTION evil.hacked(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'hacked'; END$$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.hacked);
CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.hacked);
SET search_path = evil, pg_catalog;
SELECT cron.schedule('trapped', '0 0 1 1 *', 'SELECT 1');
SELECT "Shed Lock".shedlock_cron_guard('trapped');
SELECT * FROM "Shed Lock".shedlock_cron_jobs;
});
is( job_command('trapped'),
	q{CALL "Shed Lock".shedlock_run(name => 'trapped'::pg_catalog.text, command => 'SELECT 1'::pg_catalog.text)},
	'no search_path misleads the functions');
query('DROP SCHEMA evil CASCADE; SELECT cron.unschedule(jobid) FROM cron.job');

#
# shedlock_cron_jobs
#
query(
	q{
SELECT cron.schedule('broken 1', '0 0 1 1 *', $$CALL shedlock_run('x, 'y')$$),
	   cron.schedule('broken 2', '0 0 1 1 *', 'CREATE ASSERTION shedlock_run CHECK (true)'),
	   shedlock_cron_schedule('fine', '0 0 1 1 *', 'SELECT 1')});
is(query('SELECT job_name FROM shedlock_cron_jobs WHERE guarded'), 'fine', 'the view works with jobs that do not parse');
query('SELECT cron.unschedule(jobid) FROM cron.job');

# What it shows of a guarded job is what shedlock_jobs shows, by one rule.
query("BEGIN; SELECT shedlock_cron_schedule('state', '* * * * *', 'SELECT 1'); UPDATE cron.job SET nodeport = 1; COMMIT");
my $state = sub { return query("SELECT state, last_outcome, overdue IS NOT NULL, problem FROM shedlock_cron_jobs WHERE job_name = 'state'") };
is($state->(), 'due||f|', 'a job that was just scheduled is not overdue') if query("SELECT state FROM shedlock_jobs") eq 'due';
query("UPDATE _shedlock_job SET created_at = now() - interval '1 h', declared_at = now() - interval '1 h', since = now() - interval '1 h'");
is($state->(), 'due||t|', 'a job that never ran is overdue');
is(query('SELECT c.overdue >= j.overdue FROM shedlock_cron_jobs c JOIN shedlock_jobs j USING (name)'), 't', 'as shedlock_jobs says');
query("SELECT shedlock_pause('state')");
is($state->(), 'paused||f|', 'a paused job is not overdue');
query("SELECT shedlock_resume('state')");
query(job_command('state'));
like($state->(), qr/^(?:waiting|due)\|succeeded\|f\|$/, 'a job that has run is not overdue');
is(query('SELECT (c.schedule, c.time_zone, c.last_tick, c.last_outcome, c.last_started_at, c.last_duration, c.next_due) = (j.schedule, j.time_zone, j.last_tick, j.last_outcome, j.last_started_at, j.last_duration, j.next_due)'
		. ' FROM shedlock_cron_jobs c JOIN shedlock_jobs j USING (name)'), 't', 'the other columns are those of shedlock_jobs, too');

my $background = $node->background_psql('postgres');
$background->query_until(qr/started/, "SELECT shedlock_again('state');\n\\echo started\n" . job_command('state') =~ s/SELECT 1/SELECT pg_sleep(600)/r . ";\n");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM shedlock_cron_jobs WHERE state = 'running' AND last_outcome = 'running'"), 'a run in progress is shown');
query("SELECT shedlock_cancel('state')");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM shedlock_cron_jobs WHERE last_outcome = 'cancelled'"), 'a cancelled run is shown');
$background->{run}->finish;

#
# A superuser's job calls the extension's schema by its name, which the schema's owner
# can give to another schema.
#
query('SELECT cron.unschedule(jobid) FROM cron.job');
query(q{
CREATE ROLE owner_role;
SELECT shedlock_cron_schedule('super', '0 0 1 1 *', 'SELECT 1'), shedlock_cron_schedule('of plain', '0 0 1 1 *', 'SELECT 1', username => 'plain'),
	   shedlock_cron_schedule('far', '0 0 1 1 *', 'SELECT 1', database => 'other'), cron.schedule('bare', '0 0 1 1 *', 'SELECT 1')});
my $problems = q{SELECT job_name, problem FROM shedlock_cron_jobs WHERE guarded AND problem IS NOT NULL ORDER BY job_name};
my $far = 'far|unknown: it runs in database "other", and how it is doing can be seen only there';
my $replace = sub { return qq{role "$_[0]" can replace the schema of shedlock_run in database "$_[1]", which the job calls as superuser "postgres"} };
my $anything = sub { return qq{role "$_[0]" can replace the schema of shedlock_run in database "$_[1]", and so run anything as role "plain"} };
is(query($problems), $far, 'a schema of a superuser is no problem');

foreach ([ 'ALTER SCHEMA "Shed Lock" OWNER TO owner_role', 'of a plain role' ],
	[ 'ALTER SCHEMA "Shed Lock" OWNER TO pg_database_owner; ALTER DATABASE postgres OWNER TO owner_role', 'of the owner of the database' ])
{
	my ($statement, $whose) = @$_;
	my $refused = qr/42501: job "\w+" cannot be guarded because it runs with the privileges of a superuser\nDETAIL:  Role "owner_role" can replace.*\nHINT:  .*ALTER SCHEMA/;

	query($statement);
	is(query($problems), "$far\nof plain|" . $anything->('owner_role', 'postgres') . "\nsuper|" . $replace->('owner_role', 'postgres'),
		"in a schema $whose shedlock_cron_jobs names the jobs whose privileges that role does not have");
	like(error_of("SELECT shedlock_cron_schedule('new', '$new_year', 'SELECT 1')"), $refused, 'no such job can be created');
	like(error_of("SELECT shedlock_cron_schedule('super', '$new_year', 'SELECT 2')"), $refused, 'no such job can be replaced');
	like(error_of("SELECT shedlock_cron_guard('bare')"), $refused, 'no such job can be guarded');
	like(error_of("SELECT shedlock_cron_guard('super')"), $refused, 'no such job can be guarded again');
	is(query("SELECT shedlock_cron_guard('of plain')"), 'of plain', 'jobs of other roles can be guarded');
	is(query("SELECT shedlock_cron_schedule('of plain', '$new_year', 'SELECT 1', username => 'plain') IS NOT NULL"), 't', 'jobs for other roles can be created');

	# Members can set the roles that they are members of.
	my $member = sub { return qq{$_[0]|role "owner_role" can replace the schema of shedlock_run in database "postgres", which the job calls as role "plain", a member of "$_[1]"\n} };
	foreach my $group ('postgres', 'pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files')
	{
		query("CREATE ROLE between; GRANT $group TO between; GRANT between TO plain");
		like(query("$problems") . "\n", qr/^\Q@{[ $member->('of plain', $group) ]}\E/m, "a member of $group has privileges of superusers");
		like(error_of("SELECT shedlock_cron_schedule('new', '$new_year', 'SELECT 1', username => 'plain')"),
			qr/42501: job "new" cannot be guarded.*\nDETAIL:  Role "owner_role" can replace.* as role "plain", a member of "$group"/, "no job can be created for a member of $group");
		like(error_of("SELECT shedlock_cron_guard('of plain')"), qr/42501: job "of plain" cannot be guarded/, "no job of a member of $group can be guarded");
		query("GRANT $group TO owner_role");
		unlike(query($problems), qr/plain.*a member of/, 'a member is no problem if the owner is a member, too');
		is(query("SELECT shedlock_cron_guard('of plain')"), 'of plain', 'if the owner is a member, too, jobs of a member can be guarded');
		is(query("SELECT job_name FROM shedlock_cron_jobs WHERE problem LIKE '% as superuser %'"), $group eq 'postgres' ? '' : 'super', 'jobs of superusers are no problem if the owner is a member of one');
		query("REVOKE $group FROM owner_role; DROP ROLE between");
	}
	query('GRANT plain TO owner_role');
	is(query($problems), "$far\nsuper|" . $replace->('owner_role', 'postgres'), 'the jobs of a role that the owner is a member of are no problem');
	query('REVOKE plain FROM owner_role');
}
is(query("SELECT shedlock_cron_unguard('super')"), 't', 'a job can be unguarded');
query("ALTER DATABASE postgres OWNER TO plain");
is(query($problems), $far, 'the jobs of the owner of the database are no problem there');
query('ALTER DATABASE postgres OWNER TO postgres');
is(query($problems), $far, 'the database of a superuser is no problem');
is(query("SELECT shedlock_cron_guard('super')"), 'super', 'jobs in the database of a superuser can be guarded');

query('ALTER DATABASE other OWNER TO owner_role');
is(query($problems), 'far|' . $replace->('owner_role', 'other'), 'in another database the owner of that database counts');
like(error_of("SELECT shedlock_cron_guard('far')"), qr/42501: job "far" cannot be guarded/, 'a job in a database of another owner is refused');
query('ALTER DATABASE other OWNER TO postgres');

# Another procedure of that name, with the same arguments in another order
query('CREATE PROCEDURE "Shed Lock".shedlock_run(command text, name text, more text DEFAULT NULL) LANGUAGE sql AS $$$$');
like(error_of(job_command('super')), qr/42725: procedure .* is not unique/, 'a stored CALL can be one of two procedures');
is(query($problems), join("\n", $far, map { "$_|schema \"Shed Lock\" has another shedlock_run: the call can fail as not unique" } 'of plain', 'super'), 'shedlock_cron_jobs shows that the CALL is ambiguous');
query('DROP PROCEDURE "Shed Lock".shedlock_run(text, text, text)');

# A stored CALL names the former schema.
query('ALTER SCHEMA "Shed Lock" RENAME TO moved; ALTER ROLE ALL SET search_path = moved, public');
is(query($problems), join("\n", $far, map { qq{$_|calls shedlock_run of schema "Shed Lock", but the extension is in "moved"; shedlock_cron_guard corrects that} } 'of plain', 'super'),
	'shedlock_cron_jobs names jobs that call the former schema');
query("SELECT shedlock_cron_guard('super'), shedlock_cron_guard('of plain')");
is(query($problems), $far, 'shedlock_cron_guard corrects these jobs');
query('ALTER SCHEMA moved RENAME TO "Shed Lock"; ALTER ROLE ALL SET search_path = "Shed Lock", public');
query('SELECT cron.unschedule(jobid) FROM cron.job');

#
# A job whose role or database is gone
#
query('CREATE DATABASE gone');
query('CREATE ROLE leaver LOGIN');
query("SELECT shedlock_cron_schedule('guarded', '$new_year', 'SELECT 1', username => 'leaver', active => false), "
	  . "cron.schedule_in_database('bare', '$new_year', 'SELECT 1', 'gone'), shedlock_cron_schedule('fine', '$new_year', 'SELECT 1')");
my $log_end = -s $node->logfile;
query('DROP DATABASE gone');
query('DROP ROLE leaver');
my $gone = q{SELECT job_name, problem FROM shedlock_cron_jobs WHERE problem LIKE '%gone%' ORDER BY job_name};
is(query($gone), qq{bare|database "gone" is gone: pg_cron cannot start it\n}
	  . q{guarded|role "leaver" is gone: pg_cron's launcher fails at this job each second, and starts no job of any role}, 'shedlock_cron_jobs names the jobs whose role or database is gone');

# pg_cron's launcher reads the jobs again, and fails each time that it begins.
query("SELECT cron.unschedule('fine')");
my $fails = sub { return () = slurp_file($node->logfile, $log_end) =~ /role "leaver" does not exist/g };
my $polls = 10 * $PostgreSQL::Test::Utils::timeout_default;
usleep(100_000) while $fails->() < 3 && $polls-- > 0;
cmp_ok($fails->(), '>=', 3, 'the launcher fails again and again');
like(notices_of("SELECT shedlock_cron_unschedule('guarded'), cron.unschedule('bare')"), qr/WARNING:  job "guarded" is not forgotten/, 'an administrator unschedules them, and is told what stays');
ok($node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher' AND backend_start < clock_timestamp() - interval '3 s'"),
	'then the launcher lives');

# Two jobs can have one name.
query("SELECT shedlock_cron_schedule('summer', '30 1 * * *', 'SELECT 1')");
query(q{SELECT cron.schedule('twin', schedule, command) FROM cron.job WHERE jobname = 'summer'});
query(q{SELECT shedlock_pause('summer')});
is(query(q{SELECT string_agg(job_name || ' ' || name || ' ' || state, ', ' ORDER BY job_name) FROM shedlock_cron_jobs WHERE job_name IN ('summer', 'twin')}),
	'summer summer paused, twin summer paused', 'both jobs of a name show its state');
is(query('SELECT count(*) FROM shedlock_cron_jobs'), query('SELECT count(*) FROM cron.job'), 'each job has one line');

# Their problems are one row of shedlock_problems, whose name and problem are a key.
query(q{SELECT cron.alter_job(jobid, schedule => '0 5 * * *') FROM cron.job WHERE jobname IN ('summer', 'twin')});
like(query(q{SELECT message FROM shedlock_problems WHERE name = 'summer' AND problem = 'cron'}),
	qr/^Job (\d+) of pg_cron: pg_cron does not fire it [^;]+; [^;]+; Job (?!\1)\d+ of pg_cron: pg_cron does not fire it [^;]+; [^;]+$/, 'which has what is wrong with both');
is(query('SELECT count(*) - count(DISTINCT (name, problem)) FROM shedlock_problems'), '0', 'no other problem of a name has two rows');

# The view looks the locks of its jobs up, and reads no others.
query(q{SET session_replication_role = replica;
	INSERT INTO shedlock (name, kind, lock_until, locked_at, locked_by)
	SELECT 'free ' || n, NULL, '2026-01-01', '2026-01-01', 'somebody' FROM generate_series(1, 100000) n});
my $pages = query(q{SELECT pg_relation_size('shedlock') / current_setting('block_size')::int});
my $explain = 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM shedlock_cron_jobs';
# the first time reads catalogs, too
my ($second) = query("$explain; $explain") =~ /.*^(\[.*)/ms;
my ($hit) = $second =~ /"Shared Hit Blocks": (\d+)/;
my ($read) = $second =~ /"Shared Read Blocks": (\d+)/;
cmp_ok($hit + $read, '<', $pages, "it reads fewer pages than the table's $pages");

# Each act of an administrator is logged with the role.
my $acts = slurp_file($node->logfile);
like($acts, qr/LOG:  $_ by role "postgres"$/m, "log: $_")
  foreach 'job "nightly" scheduled', 'command of job "ticks" changed', 'job "nightly" unscheduled';

$node->stop;
done_testing();
