# pg_cron's jobs are guarded, and unguarded to their original state, by the roles that
# may do so, and shedlock_cron_jobs shows their state.  The test waits for no tick: jobs are due
# on New Year's Day, or pg_cron looks for them at a port of no server.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Utils;
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

# pg_cron before 1.5 has no cron.timezone, but the server keeps the setting all the same.
my $zone = 'Europe/Berlin';

#
# Scheduling
#
my $id = query("SELECT shedlock_cron_schedule('nightly', '$new_year', 'SELECT 42', '1 hour', '5 min', '1 day')");
my $scheduled_at = qr{ /\* scheduled at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00 \*/\z};
is( job_command('nightly') =~ s/$scheduled_at//r,
	q{CALL "Shed Lock".shedlock_run(name => 'nightly'::pg_catalog.text, command => 'SELECT 42'::pg_catalog.text, }
	  . q{lock_at_most_for => '01:00:00'::pg_catalog.interval, lock_at_least_for => '00:05:00'::pg_catalog.interval, }
	  . q{once_every => '1 day'::pg_catalog.interval, on_busy => 'skip'::pg_catalog.text, }
	  . q{schedule => NULL::pg_catalog.text, time_zone => NULL::pg_catalog.text, catch_up => NULL::pg_catalog.text, }
	  . q{max_late => NULL::pg_catalog.interval, attempts => NULL::pg_catalog.int4, backoff => NULL::pg_catalog.interval)},
	'a guarded job is a CALL with all its arguments');
query(job_command('nightly'));
is(query("SELECT outcome, command FROM shedlock_history WHERE name = 'nightly'"),
	'succeeded|SELECT 42', 'the CALL of a guarded job runs by hand');

is(query("SELECT shedlock_cron_schedule('nightly', '0 5 * * *', 'SELECT 43', '2 hours')"),
	$id, 'scheduling it again replaces it, under the same number');
is( query('SELECT count(*), min(schedule), min(database), bool_and(active) FROM cron.job'),
	'1|0 5 * * *|postgres|t',
	'nothing is left of the old job');
is( query('SELECT lock_name, command, lock_at_most_for, lock_at_least_for, once_every FROM shedlock_cron_jobs'),
	'nightly|SELECT 43|02:00:00||',
	'nothing is left of the old durations');

like(
	notices_of("SELECT shedlock_cron_schedule('nightly', '$new_year', 'SELECT 43', '1 h',"
		  . " database => 'other', active => false)"),
	qr/WARNING:  job "nightly" runs in database "other"\n.*\nHINT:  Create the extension there, too: CREATE EXTENSION shedlock SCHEMA "Shed Lock"/,
	'a job in another database warns that the extension is needed there');
is(query('SELECT jobid, database, active FROM cron.job'), "$id|other|f", 'the job is moved to the other database');
is(notices_of("SELECT shedlock_cron_schedule('nightly', '$new_year', 'SELECT 43', '1 h')"), '',
	'a job with a limit in this database gives no notice');
is(query('SELECT jobid, database, active FROM cron.job'), "$id|postgres|t", 'the job is moved back');

like(
	notices_of("SELECT shedlock_cron_schedule('nightly', '$new_year', 'SELECT 43')"),
	qr/NOTICE:  lock "nightly" has no time limit/,
	'without lock_at_most_for a notice says that there is no limit');

is(query("SELECT shedlock_cron_unschedule('nightly')"), 't', 'a job is unscheduled by its name');
is(query("SELECT shedlock_cron_unschedule('nightly')"), 'f', 'a job is unscheduled once');
is(query('SELECT count(*) FROM cron.job'), '0', 'an unscheduled job is deleted');

# pg_cron 1.6 does not fire these.
foreach ('@yearly', '@annually', " \t\n\@yearly ", '@annually now')
{
	query("SELECT shedlock_cron_schedule('yearly', '$_', 'SELECT 1', '1 h')");
	is(query('SELECT schedule FROM cron.job'), '0 0 1 1 *', "$_ is written as five fields");
	query("SELECT shedlock_cron_schedule('yearly', '0 0 1 1,7 *', 'SELECT 1', '1 h', fire => '$_')");
	is(query('SELECT schedule FROM cron.job'), '0 0 1 1 *', "also as fire");
	query("SELECT shedlock_cron_schedule('yearly', '\@monthly', 'SELECT 1', '1 h'), shedlock_cron_guard('yearly', fire => '$_')");
	is(query('SELECT schedule FROM cron.job'), '0 0 1 1 *', "also as fire of a job that is guarded");
}
foreach ('@Yearly', '@yearlynow', 'x @yearly', '0; 3 * * *')
{
	like(error_of("SELECT shedlock_cron_schedule('yearly', '$_', 'SELECT 1', '1 h')"), qr/22023: invalid schedule: "\Q$_\E"\nDETAIL:  Expected .*\nHINT:  /, "schedule $_ is refused");
}
query("SELECT shedlock_cron_schedule('yearly', '\@monthly', 'SELECT 1', '1 h')");
is(query('SELECT schedule FROM cron.job'), '@monthly', 'other schedules are written unchanged');
query("SELECT shedlock_cron_unschedule('yearly')");

#
# The ticks that a job claims, and what fires it
#

# Returns what a job has of its own, and what pg_cron has.
sub ticks_of
{
	return query("SELECT g.schedule, g.time_zone, g.once_every, g.attempts, g.backoff, g.catch_up, g.max_late, j.schedule"
		  . " FROM cron.job j, _shedlock_guarded_call(j.command) g WHERE jobname = '$_[0]'");
}

my $nine = "'0 9 * * *', 'SELECT 1', '1 h'";
foreach (
	[ '', "0 9 * * *|$zone||||||0 9 * * *", 'without being told to, a job claims the ticks of its own schedule, which fires it' ],
	[ "time_zone => 'America/New_York'", '0 9 * * *|America/New_York||||||* * * * *', 'a job in a time zone of its own is fired each minute' ],
	[ 'attempts => 3', "0 9 * * *|$zone||3||||* * * * *", 'a job with attempts is fired each minute' ],
	[ "catch_up => 'all'", "0 9 * * *|$zone||||all||* * * * *", 'a job that catches up is fired each minute' ],
	[ "max_late => '1 h'", "0 9 * * *|$zone|||||01:00:00|* * * * *", 'a job with max_late is fired each minute' ],
	[ "backoff => '5 min'", "0 9 * * *|$zone|||00:05:00|||0 9 * * *", 'backoff alone changes nothing about that' ],
	[ "attempts => 3, fire => '*/5 * * * *'", "0 9 * * *|$zone||3||||*/5 * * * *", 'fire says when pg_cron fires a job' ],
	[ "fire => '*/5 * * * *'", "0 9 * * *|$zone||||||*/5 * * * *", 'also alone' ],
	[ "once_every => '1 day', attempts => 3", '||1 day|3||||0 9 * * *', 'a job with once_every has the ticks of a period, and is fired by its schedule' ])
{
	my ($given, $ticks, $what) = @$_;

	is(notices_of("SELECT shedlock_cron_schedule('ticks', $nine" . ($given && ", $given") . ')'), '', "no message: $given");
	is(ticks_of('ticks'), $ticks, $what);
}
query("SELECT shedlock_cron_schedule('ticks', $nine, time_zone => 'America/New_York', attempts => 3)");
is(query("SELECT schedule, time_zone, fire, attempts, to_char(next_due AT TIME ZONE 'America/New_York', 'HH24:MI') FROM shedlock_cron_jobs WHERE job_name = 'ticks'"),
	'0 9 * * *|America/New_York|* * * * *|3|09:00', 'shedlock_cron_jobs shows the schedule, what fires the job, and when it is due next');
is(query("SELECT shedlock_cron_unguard('ticks')") . query("SELECT schedule, command FROM cron.job"), 't0 9 * * *|SELECT 1',
	'unguarding restores the schedule, too');

foreach (
	[ '5 9 * * *', "fire => '*/10 * * * *'", qr/:05:00.*, when it is due/, 'fire must have the minutes of the schedule' ],
	[ '0 9 * * *', "fire => '0 10 * * *'", qr/0[78]:00:00.*, when it is due/, 'fire must have its hours' ],
	[ '0 9 * * *', "time_zone => 'America/New_York', fire => '0 15 * * *'", qr/\S+, when it is due/, 'a fixed fire misses the weeks in which only one of two places has summer time' ])
{
	my ($schedule, $given, $at, $what) = @$_;
	like(notices_of("SELECT shedlock_cron_schedule('ticks', '$schedule', 'SELECT 1', '1 h', $given)"),
		qr/WARNING:  pg_cron does not fire job "ticks" at \S+ \S*$at\nDETAIL:  .*\nHINT:  Let the minutes/, $what);
	like(query("SELECT problem FROM shedlock_cron_jobs WHERE job_name = 'ticks'"), qr/^pg_cron does not fire it at /, 'shedlock_cron_jobs shows that');
}
is(notices_of("SELECT shedlock_cron_schedule('ticks', '0 9 * * *', 'SELECT 1', '1 h', time_zone => 'America/New_York', fire => '0 14,15,16 * * *')"), '',
	'a fire that has all the hours is accepted silently');

foreach (
	[ "'\@reboot', 'SELECT 1'", "attempts => 3", '22023: attempts, catch_up and max_late of lock "bad" need a schedule or once_every' ],
	[ "'\@reboot', 'SELECT 1'", "fire => '* * * * *'", '22023: job "bad" cannot have fire' ],
	[ $nine, "once_every => '1 day', time_zone => 'UTC'", '22023: job "bad" cannot have time_zone' ],
	[ $nine, "once_every => '1 day', fire => '* * * * *'", '22023: job "bad" cannot have fire' ],
	[ $nine, "time_zone => 'Mars/Olympus'", '22023: time zone "Mars/Olympus" not recognized' ],
	[ $nine, "fire => 'often'", '22023: invalid schedule: ' ],
	[ $nine, 'attempts => 0', '22023: attempts of lock "bad" must be between 1 and 1000' ],
	[ $nine, "catch_up => 'some'", '22023: invalid value for catch_up: "some"' ])
{
	my ($job, $given, $error) = @$_;
	like(error_of("SELECT shedlock_cron_schedule('bad', $job, $given)"), qr/ERROR:  \Q$error\E/, "with $error");
}
query("SELECT shedlock_cron_schedule('ticks', '\@reboot', 'SELECT 1', '1 h')");
is(ticks_of('ticks'), '|||||||@reboot', 'a job without ticks is guarded without');

# Guarding again changes only what is named.
query("SELECT shedlock_cron_unschedule('ticks'), cron.schedule('ticks', '0 9 * * *', 'SELECT 1')");
my $again = sub { return notices_of("SELECT shedlock_cron_guard('ticks'" . join('', map { ", $_" } @_) . ')') =~ s/^psql:\S+ //r =~ s/\nHINT.*//r; };
query("SELECT shedlock_cron_guard('ticks', '1 h')");
is(ticks_of('ticks'), "0 9 * * *|$zone||||||0 9 * * *", 'a job that is guarded claims the ticks of its own schedule');
is($again->(), '', 'guarding it again changes nothing');
is($again->("time_zone => '$zone', backoff => '2 min'"), 'NOTICE:  job "ticks" now has backoff 00:02:00 instead of none, fire * * * * * instead of 0 9 * * *',
	'a time zone that is named lets it be fired each minute');
is($again->('attempts => 3'), 'NOTICE:  job "ticks" now has attempts 3 instead of none', 'attempts can be added');
is($again->('attempts => 3'), '', 'what it has already gives no notice');
is($again->("fire => '*/15 * * * *'"), 'NOTICE:  job "ticks" now has fire */15 * * * * instead of * * * * *', 'fire can be changed');
is($again->("catch_up => 'all'", "max_late => '30 s'"), 'NOTICE:  job "ticks" now has catch_up all instead of none, max_late 00:00:30 instead of none',
	'what else is named changes, and fire stays');
is($again->("time_zone => 'UTC'"), "NOTICE:  job \"ticks\" now has time_zone UTC instead of $zone", 'the time zone can be changed');
is(ticks_of('ticks'), '0 9 * * *|UTC||3|00:02:00|all|00:00:30|*/15 * * * *', 'all that was named is there');
my $call = job_command('ticks');
is($again->(), '', 'without arguments nothing changes');
is(job_command('ticks'), $call, 'not even the CALL');
query("SELECT shedlock_cron_unguard('ticks')");
is(query('SELECT schedule, command FROM cron.job'), '0 9 * * *|SELECT 1', 'unguarding restores command and schedule');
query("SELECT shedlock_cron_guard('ticks', '1 h', attempts => 3)");
is($again->("once_every => '1 day'"), "NOTICE:  job \"ticks\" now has once_every 1 day instead of none, schedule none instead of 0 9 * * *, "
	  . "time_zone none instead of $zone, fire 0 9 * * * instead of * * * * *", 'a period replaces the schedule, which fires the job again');
like(error_of("SELECT shedlock_cron_guard('ticks', time_zone => 'UTC')"), qr/22023: job "ticks" cannot have time_zone\nDETAIL:  .*periods of 1 day.*\nHINT:  .*shedlock_cron_schedule/,
	'with a period, a job can have no time zone');
query("SELECT shedlock_cron_schedule('ticks', '0 9 * * *', 'SELECT 1', '1 h', time_zone => 'UTC')");
is(query('SELECT once_every, schedule, time_zone FROM shedlock_cron_jobs'), '|0 9 * * *|UTC', 'until it is defined again');
query("SELECT shedlock_cron_unguard('ticks')");
query("SELECT shedlock_cron_guard('ticks', '1 h')");

# A CALL of an older version, or written by hand, has fewer arguments.
query(q{SELECT cron.alter_job(jobid, command => $$CALL "Shed Lock".shedlock_run('ticks', 'SELECT 1', '1 h', on_busy => 'error')$$) FROM cron.job});
is($again->(), "NOTICE:  job \"ticks\" now has schedule 0 9 * * * instead of none, time_zone $zone instead of none", 'a CALL without ticks gets those of its schedule');
like(job_command('ticks'), qr/on_busy => 'error'.*schedule => '0 9 \* \* \*'/, 'and keeps all that it has');
query(q{SELECT cron.alter_job(jobid, schedule => '*/5 * * * *', command => $$CALL "Shed Lock".shedlock_run('ticks', 'SELECT 1', '1 h', schedule => '5 9 * * *')$$) FROM cron.job});
is($again->("attempts => 2"), 'NOTICE:  job "ticks" now has time_zone UTC instead of none, attempts 2 instead of none', 'a schedule in a CALL written by hand stays, and so does what fires it');
query("SELECT shedlock_cron_unguard('ticks')");
is(query('SELECT schedule, command FROM cron.job'), '5 9 * * *|SELECT 1', 'it is restored from the CALL');

# What ends a guard forgets the ticks, else the job would be overdue for ever.
query("GRANT EXECUTE ON FUNCTION shedlock_cron_unschedule TO plain; GRANT USAGE ON SCHEMA \"Shed Lock\" TO other_role");
foreach my $end ('unguard', 'unschedule')
{
	query("SELECT shedlock_cron_schedule('ticks', '* * * * *', 'SELECT 1', '1 h', active => false)");
	query(job_command('ticks'));
	is(query("SELECT name, schedule FROM _shedlock_tick WHERE name = 'ticks'"), 'ticks|* * * * *', 'a job has a schedule');
	query("SELECT shedlock_cron_$end('ticks')");
	is(query("SELECT count(*) FROM _shedlock_tick WHERE name = 'ticks'"), '0', "shedlock_cron_$end forgets it");
}
query("CALL shedlock_run('ticks', 'SELECT 1', once_every => '1 day')");
query("SELECT shedlock_cron_schedule('ticks', '* * * * *', 'SELECT 1', '1 h', database => 'other'), shedlock_cron_unschedule('ticks')");
is(query("SELECT count(*) FROM _shedlock_tick WHERE name = 'ticks'"), '1', 'but not for a job of another database');
query(q{SELECT shedlock_forget('ticks'), shedlock_once_every('claimed', '36500 days'); CALL shedlock_run('ticks', 'SELECT 1', once_every => '36500 days')});

# A job whose CALL has the name of another role's job forgets nothing of that, even if a
# superuser unschedules it.
my @as = map { [ -U => $_ ] } 'plain', 'postgres';
my $make_own = sub { $node->safe_psql('postgres', qq{SELECT cron.schedule('own', '$new_year', \$\$CALL "Shed Lock".shedlock_run('$_[0]', 'SELECT 1')\$\$)}, extra_params => $as[0]) };
my $row = q{SELECT * FROM _shedlock_tick WHERE name = 'ticks'};
my $before = query($row);
foreach my $as (@as)
{
	$make_own->('ticks');
	like(notices_of("SELECT shedlock_cron_unschedule('own')", extra_params => $as),
		qr/WARNING:  ticks and schedule of lock "ticks" are not forgotten\nDETAIL:  .*another role.*\nHINT:  .*shedlock_forget/, "a job of plain, unscheduled by $as->[1], forgets no ticks of another role");
	is(query($row), $before, "nothing of them has changed, $as->[1]");
}

# What it has run itself can be forgotten, but no claim that it has run over.
$node->safe_psql('postgres', q{CALL shedlock_run('plain own', 'SELECT 1', once_every => '36500 days'); CALL shedlock_run('claimed', 'SELECT 1', once_every => '1 min')},
	extra_params => $as[0]);
foreach my $name ('plain own', 'claimed')
{
	$make_own->($name);
	is(notices_of("SELECT shedlock_cron_unschedule('own')", extra_params => $as[0]), '', "a role that may unschedule its job needs no privilege for shedlock_forget: $name");
	is(query("SELECT count(*) FROM shedlock_schedules WHERE name = '$name'"), '0', 'the schedule is forgotten');
	is(query("SELECT shedlock_once_every('$name', '36500 days')"), 'f', 'but no tick can be claimed twice');
}
query('GRANT EXECUTE ON FUNCTION shedlock_forget TO plain');
$make_own->('ticks');
is(notices_of("SELECT shedlock_cron_unschedule('own')"), '', 'a job of a role that may call shedlock_forget is unscheduled');
is(query("SELECT count(*) FROM _shedlock_tick WHERE name = 'ticks'"), '0', 'and its ticks are forgotten');
query('REVOKE EXECUTE ON FUNCTION shedlock_forget FROM plain');
query("CALL shedlock_run('ticks', 'SELECT 1', once_every => '36500 days')");
$before = query($row);
like(notices_of("SELECT _shedlock_cron_forget('ticks', 'postgres')", extra_params => $as[0]), qr/WARNING:  .* not forgotten/, 'a role cannot forget for a role whose privileges it lacks');
is(query($row), $before, 'and changes nothing');
query('REVOKE EXECUTE ON FUNCTION shedlock_cron_unschedule FROM plain');
like(error_of("SELECT _shedlock_cron_forget('ticks', 'other_role')", extra_params => [ '-U', 'other_role' ]),
	qr/42501: permission denied for function shedlock_forget/, 'a role that may not end a guard cannot forget in that way');
query("SELECT shedlock_forget('ticks')");

# shedlock_again: the next call runs the tick once more, if there is one in time.
query("SELECT shedlock_cron_schedule('ticks', '0 9 * * *', 'SELECT 1', '1 h')");
$node->psql('postgres', q{CALL shedlock_run('ticks', 'SELECT 1/0', schedule => '* * * * *')});
my $notice = notices_of("SELECT shedlock_again('ticks')");
like($notice, qr/NOTICE:  pg_cron does not fire job \d+ before \S+ 0[78]:00:00\+00\nDETAIL:  .*\nHINT:  To run it now, .*: SELECT username, command FROM cron.job WHERE jobid = \d+;$/m,
	'for a job that is fired by its own schedule a notice tells where the CALL is') or diag($notice);
my ($by_hand) = $notice =~ /: SELECT username, (.*)$/m;
query(query("SELECT $by_hand"));
is(query("SELECT outcome, command FROM shedlock_history WHERE name = 'ticks' ORDER BY token DESC LIMIT 1"), 'succeeded|SELECT 1', 'that CALL runs the tick once more');
query("SELECT shedlock_cron_guard('ticks', attempts => 2)");
is(notices_of("SELECT shedlock_again('ticks')"), '', 'for a job that is fired each minute there is no notice');
query("SELECT shedlock_cron_unschedule('ticks')");
# a period that does not end within ten minutes
my $period = query("SELECT hours FROM unnest('{24 h,25 h,26 h}'::interval[]) hours WHERE date_bin(hours, clock_timestamp(), 'epoch') = date_bin(hours, clock_timestamp() + '10 min', 'epoch') LIMIT 1");
query("SELECT shedlock_cron_schedule('ticks', '*/5 * * * *', 'SELECT 1', '1 h', once_every => '$period')");
query(job_command('ticks'));
is(notices_of("SELECT shedlock_again('ticks')"), '', 'nor for one that is fired more often than its period');
query("SELECT cron.alter_job(jobid, schedule => '$new_year') FROM cron.job");
like(notices_of("SELECT shedlock_again('ticks')"), qr/does not fire job \d+ before/, 'for one that is not there is');
query('GRANT EXECUTE ON FUNCTION shedlock_again TO plain, other_role');
is(notices_of("SELECT shedlock_again('ticks')", extra_params => [ '-U', $_ ]), '', "a role that cannot see the job gets none: $_") foreach 'plain', 'other_role';
foreach my $argument ("once_every => ''0''", "once_every => ''1 month''", "schedule => ''61 * * * *''")
{
	query("SELECT cron.alter_job(jobid, command => 'CALL shedlock_run(''ticks'', ''SELECT 1'', $argument)') FROM cron.job");
	is(query("SELECT shedlock_again('ticks')"), 't', "a job with an argument that shedlock_run refuses does not stop it: $argument");
}
query("SELECT cron.alter_job(jobid, command => 'CALL shedlock_run(''ticks'', ''SELECT 1'')') FROM cron.job");
is(notices_of("SELECT shedlock_again('ticks')"), '', 'for a job without ticks there is no notice');
query("SELECT shedlock_cron_unschedule('ticks'); REVOKE EXECUTE ON FUNCTION shedlock_again FROM plain, other_role; SELECT cron.unschedule(jobid) FROM cron.job");

# What another role has written into its job is not said in the extension's name, and no
# terminal obeys it.
query("CALL shedlock_run('hostile', 'SELECT 1', once_every => '36500 days')");
my $hostile = $node->safe_psql('postgres', q{SELECT cron.schedule(E'hostile\n\x1b[2J', '0 0 1 1 *', }
	  . q{E'CALL shedlock_run(''hostile'', ''SELECT 1 /*\nHINT:  forged */'', ''1 h'', schedule => ''0 9 * * *'')')}, extra_params => [ '-U', 'plain' ]);
$notice = notices_of("SELECT shedlock_again('hostile')");
like($notice, qr/^psql:\S+ NOTICE:  pg_cron does not fire job $hostile before .*\nDETAIL:  .*\nHINT:  .* WHERE jobid = $hostile;$/, 'shedlock_again tells of a job of another role by its ID');
unlike($notice, qr/forged|\x1b/, 'and shows nothing of it');
query("SELECT cron.alter_job($hostile, schedule => E'0 0 1 1 * \\x1b[2J')");
$notice = notices_of("SELECT shedlock_cron_guard('$hostile', '2 h', fire => '0 0 1 1 *')");
like($notice, qr/^psql:\S+ NOTICE:  job "hostile\?\?\[2J" now has lock_at_most_for 02:00:00 instead of 01:00:00, time_zone UTC instead of none, fire 0 0 1 1 \* instead of 0 0 1 1 \* \?\[2J\n/,
	'shedlock_cron_guard masks what it shows');
unlike($notice, qr/forged|\x1b/, 'in all of its messages');
foreach my $argument ('on_busy', 'time_zone', 'catch_up')
{
	is(query("SELECT name FROM _shedlock_guarded_call(E'CALL shedlock_run(''n'', ''c'', $argument => E''\\x1b'')')"), '', "a CALL with control characters in $argument is not a guarded one");
}
query("SELECT shedlock_forget('hostile'), cron.unschedule(jobid) FROM cron.job");

# Jobs that are not guarded, as pg_cron's own records show them
query("BEGIN; SELECT cron.schedule('bare', '* * * * *', 'SELECT 1'); UPDATE cron.job SET nodeport = 1; COMMIT");
my $bare_state = q{SELECT guarded, lock_name, command, last_outcome, overdue, problem FROM shedlock_cron_jobs WHERE job_name = 'bare'};
is(query($bare_state), 'f||SELECT 1|||unknown: no run of it is recorded, nor when it was scheduled; shedlock_cron_guard records that',
	'nothing is known of a job that never ran');
foreach ([ '80 s', 'succeeded', 'f' ], [ '151 s', 'succeeded', 't' ], [ '151 s', 'running', 'f' ], [ '10 s', 'failed', 'f' ])
{
	my ($age, $status, $overdue) = @$_;
	query("DELETE FROM cron.job_run_details; INSERT INTO cron.job_run_details (jobid, runid, username, status, start_time)"
		  . " SELECT jobid, nextval('cron.runid_seq'), username, '$status', clock_timestamp() - interval '$age' FROM cron.job");
	is(query($bare_state), "f||SELECT 1|$status|$overdue|", "a job that is not guarded, $status, started $age ago");
}
query("GRANT USAGE ON SCHEMA \"Shed Lock\" TO plain; REVOKE SELECT ON cron.job_run_details FROM PUBLIC; UPDATE cron.job SET username = 'plain'");
like($node->safe_psql('postgres', $bare_state, extra_params => [ '-U', 'plain' ]), qr/^f\|\|SELECT 1\|\|\|unknown: /, 'without the privilege to read these the view still works');
query('GRANT SELECT ON cron.job_run_details TO PUBLIC; SELECT cron.unschedule(jobid) FROM cron.job');
query('DELETE FROM cron.job_run_details; TRUNCATE _shedlock_tick');

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
	query("SELECT shedlock_cron_guard($name, '1 hour', once_every => '1 day')");
	$guarded++
	  if query("SELECT count(*) FROM shedlock_cron_jobs WHERE job_name = $name AND lock_name = $name AND command = $command") eq '1';

	# Run it like pg_cron.
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
is(query("SELECT shedlock_cron_guard('report', '1 hour', '1 min', '1 day')"),
	'report', 'guarding returns the name of the lock');
is(notices_of("SELECT shedlock_cron_guard('report', '2 hours')") =~ s/^psql:\S+ //r,
	qq{NOTICE:  job "report" now has lock_at_most_for 02:00:00 instead of 01:00:00\n}
	  . "HINT:  What is not passed stays as it is.  To remove something, define the whole job again with shedlock_cron_schedule, also its database, username and active.  A job without a name must be unguarded and guarded again.",
	'a guarded job can be guarded again, and a notice says what has changed');
is( query("SELECT command, lock_at_most_for, lock_at_least_for, once_every FROM shedlock_cron_jobs"),
	'SELECT 1|02:00:00|00:01:00|1 day',
	'omitted arguments keep their values, and there is no second guard');
is(notices_of("SELECT shedlock_cron_guard('report')"), '', 'without arguments nothing changes');
is(query("SELECT command, lock_at_most_for, lock_at_least_for, once_every FROM shedlock_cron_jobs"),
	'SELECT 1|02:00:00|00:01:00|1 day', 'indeed');
like(notices_of("SELECT shedlock_cron_guard('report', lock_at_least_for => '0', once_every => '12 h')"),
	qr/now has lock_at_least_for 00:00:00 instead of 00:01:00, once_every 12:00:00 instead of 1 day\n/, 'several durations can be changed');
like(error_of("SELECT shedlock_cron_guard('report', lock_at_least_for => '3 h')"),
	qr/lock_at_least_for is longer than lock_at_most_for/, 'new durations are checked against the others');
query("SELECT shedlock_cron_unguard('report'), shedlock_cron_guard('report', once_every => '1 day')");
is(query("SELECT lock_at_most_for, lock_at_least_for, once_every FROM shedlock_cron_jobs"), '||1 day', 'a job unguarded and guarded again has only the new durations');
like(notices_of("SELECT shedlock_cron_guard('report', '1 h')"), qr/lock_at_most_for 01:00:00 instead of none/, 'a missing duration can be added');
is(query("SELECT shedlock_cron_unguard('report')"), 't', 'a job is unguarded');
is(query("SELECT shedlock_cron_unguard('report')"), 'f', 'a job is unguarded once');
is(job_command('report'), 'SELECT 1', 'an unguarded job has its own command');

query(
	q{
SELECT cron.alter_job(jobid, command => $$CALL "Shed Lock".shedlock_run('by hand', 'SELECT 1', on_busy => 'error')$$)
FROM cron.job});
is(query("SELECT shedlock_cron_guard('report', '3 hours')"),
	'by hand', 'a job that was guarded by hand keeps its lock');
like(job_command('report'), qr/name => 'by hand'.*lock_at_most_for => '03:00:00'.*on_busy => 'error'/,
	'a job that was guarded by hand keeps its on_busy');

my $unnamed = query("SELECT cron.schedule('$new_year', 'SELECT 2')");
is(query("SELECT shedlock_cron_guard('$unnamed', '1 hour')"),
	"cron:$unnamed", 'the lock of a job without a name has its number');
is(query("SELECT job_name, lock_name FROM shedlock_cron_jobs WHERE jobid = $unnamed"),
	"|cron:$unnamed", 'shedlock_cron_jobs shows a job without a name');
is(query("SELECT shedlock_cron_unguard('$unnamed')"), 't', 'a job without a name is unguarded by its number');
query("SELECT cron.schedule('$unnamed', '$new_year', 'SELECT 3')");
is(query("SELECT shedlock_cron_guard('$unnamed', '1 hour')"),
	"cron:$unnamed", 'a number that is also a name is read as a number');
query('SELECT cron.unschedule(jobid) FROM cron.job');

#
# Refused
#
my $make = "SELECT shedlock_cron_schedule('x', '$new_year'";

foreach (
	[ "SELECT shedlock_cron_guard('nonesuch')", '42704: job "nonesuch" does not exist' ],
	[ "SELECT shedlock_cron_unguard('77')", '42704: job "77" does not exist' ],
	[ 'SELECT shedlock_cron_guard(NULL)', '22004: job must not be null' ],
	[ "SELECT shedlock_cron_schedule(NULL, '$new_year', 'SELECT 1')", '22004: job name must not be null' ],
	[ "SELECT shedlock_cron_schedule('', '$new_year', 'SELECT 1')", '22023: lock name must not be empty' ],
	[ "SELECT shedlock_cron_schedule('x', NULL, 'SELECT 1')", '22004: schedule must not be null' ],
	[ "SELECT shedlock_cron_schedule('x', 'daily', 'SELECT 1')", '22023: invalid schedule: "daily"' ],
	[ "$make, NULL)", '22004: command must not be null' ],
	[ "$make, '-- later')", '22023: command is empty' ],
	[ "$make, 'SELEC 1')", '42601: syntax error at or near "SELEC"' ],
	[ "$make, 'BEGIN; SELECT 1; COMMIT')", '0A000: BEGIN cannot be used in a guarded command' ],
	[ "$make, 'COPY t FROM STDIN')", '0A000: COPY FROM STDIN cannot be used in a guarded command' ],
	[ "$make, 'SELECT 1', '0')", '22023: lock_at_most_for of lock "x" must be positive' ],
	[ "$make, 'SELECT 1', '1 h', '2 h')", '22023: lock_at_least_for is longer than lock_at_most_for for lock "x"' ],
	[ "$make, 'SELECT 1', once_every => '1 month')", '22023: period of lock "x" must not contain months or years' ])
{
	my ($statement, $error) = @$_;
	like(error_of($statement), qr/ERROR:  \Q$error\E\n/, "with $error");
}
is(query('SELECT count(*) FROM cron.job'), '0', 'no refused call has created a job');

query("SELECT cron.schedule('copies', '$new_year', 'COPY t TO STDOUT')");
like(error_of("SELECT shedlock_cron_guard('copies')"),
	qr/ERROR:  0A000: COPY TO STDOUT cannot/, 'a job with COPY to the client is refused');
is(job_command('copies'), 'COPY t TO STDOUT', 'a refused job stays unchanged');
query("SELECT shedlock_cron_unschedule('copies')");

my $long_name = "SELECT shedlock_cron_schedule(repeat('x', 64), '$new_year', 'SELECT 1', '1 h')";
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
is(notices_of("$make, '1 h')", @as_plain), '', 'a plain role with the GRANT creates its own jobs');
query("SELECT shedlock_cron_schedule('admins', '$new_year', 'SELECT 1', '1 h')");
is(query_as_plain('SELECT job_name, username FROM shedlock_cron_jobs'), 'mine|plain', 'a plain role sees only its own jobs');
is( query('SELECT job_name, username FROM shedlock_cron_jobs ORDER BY job_name'),
	"admins|postgres\nmine|plain",
	'superusers see all jobs');
is(query_as_plain("SELECT shedlock_cron_unguard('mine'), shedlock_cron_guard('mine', '2 h')"),
	't|mine', 'changes them');
is(query("SELECT lock_at_most_for FROM shedlock_cron_jobs WHERE job_name = 'mine'"),
	'02:00:00', 'a plain role guards its job without EXECUTE on cron.alter_job');

like(error_of("SELECT shedlock_cron_guard('admins')", @as_plain),
	qr/42704: job "admins" does not exist/, 'a plain role cannot guard jobs of other roles');
like(error_of("$make, username => 'postgres')", @as_plain), qr/ERROR:  42501: /, 'a plain role cannot create jobs for other roles');
like(error_of("$make, active => false)", @as_plain),
	qr/42501: permission denied for function alter_job/, 'a plain role cannot do what needs cron.alter_job');
is(query("SELECT lock_at_most_for, active FROM shedlock_cron_jobs WHERE job_name = 'mine'"),
	'02:00:00|t', 'a refused change changes nothing');

$unnamed = query_as_plain("SELECT cron.schedule('$new_year', 'SELECT 4')");
like(
	error_of("SELECT shedlock_cron_guard('$unnamed')", @as_plain),
	qr/42501: permission denied to change job "$unnamed"\n.*\nHINT:  .* GRANT EXECUTE ON FUNCTION cron.alter_job TO plain/,
	'changing a job without a name needs cron.alter_job');
query('GRANT EXECUTE ON FUNCTION cron.alter_job TO plain');
is(query_as_plain("SELECT shedlock_cron_guard('$unnamed', '1 h')"),
	"cron:$unnamed", 'a role with EXECUTE on cron.alter_job changes a job without a name');
is(query_as_plain("SELECT shedlock_cron_unschedule('mine')"), 't', 'a plain role unschedules its job');

# Names of jobs are unique for each role, names of locks are unique for all
$make = "SELECT shedlock_cron_schedule('same', '$new_year', 'SELECT 1', '1 h'";
query("$make)");
is(query("SELECT lock_name FROM shedlock_cron_jobs WHERE job_name = 'same'"),
	'same', 'the first job of a name gives it to its lock');
like(notices_of("$make)", @as_plain), qr/NOTICE:  lock of job "same" is named "plain.same"/,
	'a job of the same name of another role, who cannot see the first, gets a lock of its own');
is(notices_of("$make)"), '', 'the first job, scheduled again, keeps its lock');
is(notices_of("$make)", @as_plain), '', 'the second job, scheduled again, keeps its lock');
is(query("SELECT string_agg(lock_name, ' ' ORDER BY lock_name) FROM shedlock_cron_jobs WHERE job_name = 'same'"),
	'plain.same same', 'the two jobs have two locks');
like(
	error_of("SELECT shedlock_cron_guard('same')"),
	qr/42P09: job name "same" is ambiguous\nDETAIL:  .*"postgres".*"plain".*\nHINT:  Pass the ID/,
	'a shared name is ambiguous to guard');
like(error_of("SELECT shedlock_cron_unschedule('same')"),
	qr/42P09: job name "same" is ambiguous/, 'a shared name is ambiguous to unschedule');
query("SELECT shedlock_cron_schedule('same', '0 1 1 1 *', 'SELECT 3', '3 h', username => 'plain')");
is( query("SELECT schedule, command, lock_name, lock_at_most_for FROM shedlock_cron_jobs"
		  . " WHERE username = 'plain' AND job_name = 'same'"),
	'0 1 1 1 *|SELECT 3|plain.same|03:00:00',
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
	is(query('SELECT lock_name FROM shedlock_cron_jobs ORDER BY jobid'), qq{b.c\nc\na."b.c"\n"a.b".c}, "${set}four jobs have four locks");
}
query('SELECT cron.unschedule(jobid) FROM cron.job');

# Locks of tenants begin with their role.
query(q{LOAD 'shedlock'; CREATE ROLE "A b" LOGIN; ALTER SYSTEM SET shedlock.role_prefix = on; SELECT pg_reload_conf()});
$node->poll_query_until('postgres', "SELECT shedlock_token('x') IS NULL AND current_setting('shedlock.role_prefix') = 'on'");
is(notices_of("SELECT shedlock_cron_schedule('same', '$new_year', 'SELECT 1', '1 h')", @as_plain), '', 'with shedlock.role_prefix a plain role schedules a job');
is(notices_of("SELECT shedlock_cron_schedule('same', '$new_year', 'SELECT 1', '1 h', username => 'A b')"), '', 'a superuser schedules a job of the same name for another role');
my $bare = query_as_plain("SELECT cron.schedule('$new_year', 'SELECT 1')");
is(query_as_plain("SELECT shedlock_cron_guard('$bare', '1 h')"), "plain:cron.$bare", 'a lock of a job without a name begins with the role');
is(query_as_plain("SELECT shedlock_cron_guard('$bare', '2 h')"), "plain:cron.$bare", 'a job without a name keeps its lock when it is guarded again');
is(query("SELECT lock_name FROM shedlock_cron_jobs ORDER BY jobid"), "plain:same\nA b:same\nplain:cron.$bare", 'locks begin with the role of the job');
query_as_plain("CALL shedlock_run('plain:same', 'SELECT 1')");
query("UPDATE cron.job SET command = replace(command, 'plain:', 'team_')");
is(query("SELECT shedlock_cron_guard('$bare')"), "plain:cron.$bare", 'a job whose lock has no role gets a lock with its role');
query("UPDATE cron.job SET command = replace(command, 'plain:', 'other_role:')");
is(query("SELECT shedlock_cron_guard('$bare')"), "other_role:cron.$bare", 'a job keeps a lock of another role');

# The CALL of a job can name any lock, but shows no state of other roles' locks.
query(q{SELECT cron.unschedule(jobid) FROM cron.job});
my $forge = sub { query_as_plain(qq{SELECT cron.schedule('$_[0]', '* * * * *', \$\$CALL "Shed Lock".shedlock_run('$_[0]', 'SELECT 1', once_every => '1 day') /* scheduled at 2026-01-01 00:00:00+00 */\$\$)}) };
$forge->($_) foreach 'other_role:claimed', 'plain:claimed', 'plain:once';
query("UPDATE cron.job SET nodeport = 1; SET ROLE other_role; SET application_name = 'secret'; CALL shedlock_run('other_role:claimed', 'SELECT', once_every => '1 day'); SELECT shedlock_acquire('other_role:claimed')");
query("SET application_name = 'mine'; SET ROLE plain; CALL shedlock_run('plain:claimed', 'SELECT', once_every => '1 day'); SET application_name = 'theirs'; SELECT shedlock_once('plain:once', now())");
my $claims = q{SELECT lock_name, tick_claimed IS NOT NULL, regexp_replace(claimed_by, '@.*', ''), lock_state, overdue IS NOT NULL, problem FROM shedlock_cron_jobs ORDER BY lock_name};
my $hidden = 'other_role:claimed|f|||f|unknown: shedlock.role_prefix reserves lock "other_role:claimed" for other roles';
is(query_as_plain($claims), "$hidden\nplain:claimed|t|mine|free|t|\nplain:once|t||free|t|", 'shedlock_cron_jobs hides the claims of other names');
is(query($claims), "other_role:claimed|t|secret|held|t|\nplain:claimed|t|mine|free|t|\nplain:once|t|theirs|free|t|", 'shedlock_cron_jobs shows them to superusers');
is(query("GRANT pg_read_all_stats TO plain; SET ROLE plain; $claims; RESET ROLE; REVOKE pg_read_all_stats FROM plain"), query($claims), 'shedlock_cron_jobs shows them to members of pg_read_all_stats');
is(query("SET shedlock.role_prefix = off; SET ROLE plain; $claims"), query($claims), 'shedlock_cron_jobs shows them without the setting');
query("SELECT shedlock_force_release('other_role:claimed')");
query_as_plain("SELECT shedlock_cron_unguard('other_role:claimed'), shedlock_cron_unguard('plain:claimed')");
is(query("SELECT string_agg(name, ' ' ORDER BY name) FROM shedlock_schedules WHERE name LIKE '%:claimed'"), 'other_role:claimed', 'the end of a guard forgets no ticks of other roles');
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
SELECT "Shed Lock".shedlock_cron_guard('trapped', '1 h');
SELECT * FROM "Shed Lock".shedlock_cron_jobs;
});
is( job_command('trapped') =~ s/$scheduled_at//r,
	q{CALL "Shed Lock".shedlock_run(name => 'trapped'::pg_catalog.text, command => 'SELECT 1'::pg_catalog.text, }
	  . q{lock_at_most_for => '01:00:00'::pg_catalog.interval, lock_at_least_for => NULL::pg_catalog.interval, }
	  . q{once_every => NULL::pg_catalog.interval, on_busy => 'skip'::pg_catalog.text, }
	  . q{schedule => '0 0 1 1 *'::pg_catalog.text, time_zone => '} . $zone . q{'::pg_catalog.text, catch_up => NULL::pg_catalog.text, }
	  . q{max_late => NULL::pg_catalog.interval, attempts => NULL::pg_catalog.int4, backoff => NULL::pg_catalog.interval)},
	'no search_path misleads the functions');
query('DROP SCHEMA evil CASCADE; SELECT cron.unschedule(jobid) FROM cron.job');

#
# shedlock_cron_jobs
#
query(
	q{
SELECT cron.schedule('broken 1', '0 0 1 1 *', $$CALL shedlock_run('x, 'y')$$),
	   cron.schedule('broken 2', '0 0 1 1 *', 'CREATE ASSERTION shedlock_run CHECK (true)'),
	   cron.schedule('broken 3', '0 0 1 1 *', $$CALL shedlock_run('x', 'y', 'no interval')$$),
	   shedlock_cron_schedule('fine', '0 0 1 1 *', 'SELECT 1', '1 h')});
is(query('SELECT job_name FROM shedlock_cron_jobs WHERE guarded'), 'fine', 'the view works with jobs that do not parse');
query('SELECT cron.unschedule(jobid) FROM cron.job');

# Schedules a job that pg_cron does not run during the test.
sub schedule_state
{
	my ($arguments) = @_;
	return query("BEGIN; SELECT shedlock_cron_schedule('state', $arguments); UPDATE cron.job SET nodeport = 1; COMMIT");
}

schedule_state("'* * * * *', 'SELECT 1', '1 h', active => true");
is(query('SELECT last_started, last_outcome, lock_state, overdue, problem FROM shedlock_cron_jobs'),
	'||free|f|', 'a job that was just scheduled is not overdue');

# Moves the scheduling into the past, and returns overdue and problem.
sub scheduled_before
{
	my ($age) = @_;
	return query("UPDATE cron.job SET command = concat(regexp_replace(command, ' /. scheduled at .*', ''), "
		  . "to_char(timezone('UTC', clock_timestamp()) - interval '$age', ' \"/* scheduled at\" YYYY-MM-DD HH24:MI:SS\"+00 */\"'));"
		  . "SELECT overdue, problem FROM shedlock_cron_jobs WHERE job_name = 'state'");
}
is(scheduled_before('80 s'), 'f|', 'a job is not overdue until 90 seconds after it was due');
is(scheduled_before('151 s'), 't|', 'a job that never ran is overdue, counted from its scheduling');
query("SELECT shedlock_cron_guard('state', '2 h')");
is(query('SELECT overdue FROM shedlock_cron_jobs'), 't', 'a job stays overdue when its durations change');
schedule_state("'* * * * *', 'SELECT 1', '1 h'");
is(query('SELECT overdue FROM shedlock_cron_jobs'), 't', 'a job stays overdue when it is scheduled again unchanged');
schedule_state("'*/2 * * * *', 'SELECT 1', '1 h'");
is(query('SELECT overdue FROM shedlock_cron_jobs'), 'f', 'a new schedule counts from now');
scheduled_before('1 h');
query("BEGIN; SELECT shedlock_cron_unguard('state'), shedlock_cron_guard('state', '1 h'); UPDATE cron.job SET nodeport = 1; COMMIT");
is(query('SELECT overdue FROM shedlock_cron_jobs'), 'f', 'a job that is guarded now counts from now');
schedule_state("'* * * * *', 'SELECT 1', '1 h'");
scheduled_before('1 h');
schedule_state("'* * * * *', 'SELECT 1', '1 h', active => false");
schedule_state("'* * * * *', 'SELECT 1', '1 h'");
is(query('SELECT overdue FROM shedlock_cron_jobs'), 'f', 'a job that is activated counts from now');
query("UPDATE cron.job SET command = regexp_replace(command, ' /. scheduled at .*', ''), nodeport = 1");
is(query('SELECT overdue, problem FROM shedlock_cron_jobs'),
	'|unknown: no run of it is recorded, nor when it was scheduled; shedlock_cron_guard records that',
	'overdue is unknown for a job that never ran and was scheduled without shedlock');
query("UPDATE cron.job SET schedule = '\@reboot'");
is(query('SELECT overdue, problem FROM shedlock_cron_jobs'),
	'|unknown: cannot tell when schedule "@reboot" was last due',
	'overdue is unknown for a schedule without a last time');
query("UPDATE cron.job SET schedule = '* * * * *'");
query(job_command('state'));

# Moves the last run into the past, and returns lock_state and overdue.
sub state_after
{
	my ($age) = @_;
	return query(
		"UPDATE _shedlock_history SET started_at = clock_timestamp() - interval '$age' WHERE name = 'state';"
		  . "UPDATE _shedlock_tick SET tick = date_trunc('minute', (SELECT max(started_at) FROM _shedlock_history WHERE name = 'state')) WHERE name = 'state' AND period IS NULL;"
		  . "SELECT lock_state, overdue FROM shedlock_cron_jobs WHERE job_name = 'state'");
}
is(state_after('10 s'), 'free|f', 'a job that has just run is not overdue');
is(state_after('80 s'), 'free|f', 'a job that was due less than 90 seconds ago is not overdue');
is(state_after('151 s'), 'free|t', 'a job that was due earlier is overdue');
scheduled_before('10 s');
is(state_after('151 s'), 'free|f', 'a job that was scheduled after that is not overdue');
scheduled_before('1 h');
is(query("BEGIN; DELETE FROM _shedlock_history; SELECT overdue FROM shedlock_cron_jobs; ROLLBACK"), 't', 'a job with no run in the history is overdue');
query("SELECT shedlock_pause('state', reason => 'tonight not')");
is(state_after('1 h'), 'paused|f', 'a paused job is not overdue');
query("SELECT shedlock_resume('state')");
query("SELECT shedlock_acquire('state', '1 min', '1 min')");
is(state_after('1 h'), 'held|t', 'a job whose lock another holder has is overdue');
query("SELECT shedlock_force_release('state')");
query("CALL shedlock_run('state', 'SELECT 1', '1 h', '1 h')");
is(state_after('1 h'), 'kept|f', 'a job whose lock is kept is not overdue');
query("SELECT shedlock_force_release('state')");
is(state_after('1 h'), 'free|t', 'a job is overdue again after its at-least time');
query("SELECT cron.alter_job(jobid, active => false) FROM cron.job");
is(state_after('1 h'), 'free|f', 'an inactive job is not overdue');
query("SELECT cron.alter_job(jobid, active => true, database => 'other') FROM cron.job");
is(query('SELECT last_started, last_outcome, tick_claimed, lock_state, overdue, problem FROM shedlock_cron_jobs'),
	'|||||unknown: it runs in database "other", and whether it is overdue can be seen only there', 'the state of a job in another database is unknown');
query("SELECT cron.alter_job(jobid, database => 'postgres') FROM cron.job");

# A job can start more often than its period.
query("SELECT shedlock_cron_guard('state', '1 h', once_every => '1 hour')");
scheduled_before('1 day');
query(job_command('state'));
query("UPDATE _shedlock_tick SET tick = date_trunc('hour', clock_timestamp()) WHERE name = 'state'");
is(query('SELECT next_due - tick_claimed FROM shedlock_cron_jobs'),
	'01:00:00', 'shedlock_cron_jobs shows the tick, and when pg_cron next fires for another one');
# the hour that has perhaps begun since then
query("UPDATE _shedlock_tick SET tick = date_trunc('hour', clock_timestamp()) WHERE name = 'state'");
is(state_after('30 min'), 'free|f', 'a job whose tick is claimed is not overdue');
query("UPDATE _shedlock_tick SET tick = tick - interval '2 hours' WHERE name = 'state'");
is(state_after('2 h'), 'free|t', 'a job that has not claimed a tick for too long is overdue');
like(query('SELECT claimed_by FROM shedlock_cron_jobs'), qr/^cron-jobs\.pl@\[local\] #\d+$/, 'shedlock_cron_jobs shows who claimed the tick');

# Any role that can connect can claim a tick, and so prevent the job's run.
query_as_plain(q{SET application_name = 'thief'; SELECT shedlock_once('state', now())});
is(state_after('2 h'), 'free|t', 'a job whose tick was claimed by hand is overdue');
is(query('SELECT claimed_by FROM shedlock_cron_jobs'), 'thief@[local]', 'shedlock_cron_jobs shows the claimant of that tick');
query("UPDATE _shedlock_tick SET token = (SELECT max(token) + 1 FROM _shedlock_history)");
is(state_after('2 h'), 'free|t', 'a job whose tick has a token without a run is overdue');
query("CALL shedlock_run('another', 'SELECT 1'); UPDATE _shedlock_tick SET token = (SELECT max(token) FROM _shedlock_history)");
is(state_after('2 h'), 'free|t', 'a job whose tick has the token of another lock\'s run is overdue');
query("UPDATE _shedlock_tick SET token = (SELECT max(token) FROM _shedlock_history WHERE name = 'state')");
is(state_after('2 h'), 'free|f', 'a job whose tick has the token of its own run is not overdue');
query("UPDATE _shedlock_tick SET tick = tick - interval '2 hours'");
foreach ([ 'app@192.0.2.7', 'app' ], [ 'app@fe80::1%eth0 #7', 'app' ], [ 'app@[local] #7', 'app@[local] #7' ], [ 'ops@example.org', 'ops@example.org' ])
{
	my ($by, $shown) = @$_;
	my $token = $by =~ /( #7)/ && $shown !~ /#7/ ? ' #7' : '';
	query("UPDATE _shedlock_tick SET claimed_by = '$by'; UPDATE cron.job SET username = 'plain'");
	is(query('SELECT claimed_by FROM shedlock_cron_jobs'), $by, "superusers see $by");
	is(query_as_plain('SELECT claimed_by FROM shedlock_cron_jobs'), $shown . $token, 'plain roles see no address');
}
query("UPDATE cron.job SET username = 'postgres'");

my $background = $node->background_psql('postgres');
$background->query_until(qr/^$/, "\\echo\nCALL shedlock_run('state', 'SELECT pg_sleep(600)');\n");
ok( $node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM shedlock_cron_jobs WHERE lock_state = 'held' AND last_outcome = 'running'"),
	'a run in progress is shown');
is(state_after('2 h'), 'held|f', 'a job with a run in progress is not overdue');
query("SELECT shedlock_cancel('state')");
ok( $node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM shedlock_cron_jobs WHERE lock_state = 'free' AND last_outcome = 'cancelled'"),
	'a cancelled run is shown');
$background->{run}->finish;

query(
	q{
BEGIN;
SELECT shedlock_cron_schedule('hidden', '* * * * *', 'SELECT 1', '1 h', username => 'plain');
UPDATE cron.job SET nodeport = 1;
COMMIT});
query(job_command('hidden'));
is( query_as_plain("SELECT last_started, overdue FROM shedlock_cron_jobs WHERE job_name = 'hidden'"),
	'|f', 'a run that is hidden from the reader counts as well');

#
# A superuser's job calls the extension's schema by its name, which the schema's owner
# can give to another schema.
#
query('SELECT cron.unschedule(jobid) FROM cron.job');
query(q{
CREATE ROLE owner_role;
SELECT shedlock_cron_schedule('super', '0 0 1 1 *', 'SELECT 1', '1 h'), shedlock_cron_schedule('of plain', '0 0 1 1 *', 'SELECT 1', '1 h', username => 'plain'),
	   shedlock_cron_schedule('far', '0 0 1 1 *', 'SELECT 1', '1 h', database => 'other'), cron.schedule('bare', '0 0 1 1 *', 'SELECT 1')});
my $problems = q{SELECT job_name, problem FROM shedlock_cron_jobs WHERE guarded AND problem IS NOT NULL ORDER BY job_name};
my $far = 'far|unknown: it runs in database "other", and whether it is overdue can be seen only there';
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
	like(error_of("SELECT shedlock_cron_schedule('new', '$new_year', 'SELECT 1', '1 h')"), $refused, 'no such job can be created');
	like(error_of("SELECT shedlock_cron_schedule('super', '$new_year', 'SELECT 2', '1 h')"), $refused, 'no such job can be replaced');
	like(error_of("SELECT shedlock_cron_guard('bare', '1 h')"), $refused, 'no such job can be guarded');
	like(error_of("SELECT shedlock_cron_guard('super', '2 h')"), $refused, 'no such job can be guarded again');
	is(query("SELECT shedlock_cron_guard('of plain', '2 h')"), 'of plain', 'jobs of other roles can be guarded');
	is(query("SELECT shedlock_cron_schedule('of plain', '$new_year', 'SELECT 1', '1 h', username => 'plain') IS NOT NULL"), 't', 'jobs for other roles can be created');

	# Members can set the roles that they are members of.
	my $member = sub { return qq{$_[0]|role "owner_role" can replace the schema of shedlock_run in database "postgres", which the job calls as role "plain", a member of "$_[1]"\n} };
	foreach my $group ('postgres', 'pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files')
	{
		query("CREATE ROLE between; GRANT $group TO between; GRANT between TO plain");
		like(query("$problems") . "\n", qr/^\Q@{[ $member->('of plain', $group) ]}\E/m, "a member of $group has privileges of superusers");
		like(error_of("SELECT shedlock_cron_schedule('new', '$new_year', 'SELECT 1', '1 h', username => 'plain')"),
			qr/42501: job "new" cannot be guarded.*\nDETAIL:  Role "owner_role" can replace.* as role "plain", a member of "$group"/, "no job can be created for a member of $group");
		like(error_of("SELECT shedlock_cron_guard('of plain', '2 h')"), qr/42501: job "of plain" cannot be guarded/, "no job of a member of $group can be guarded");
		query("GRANT $group TO owner_role");
		unlike(query($problems), qr/plain.*a member of/, 'a member is no problem if the owner is a member, too');
		is(query("SELECT shedlock_cron_guard('of plain', '1 h')"), 'of plain', 'if the owner is a member, too, jobs of a member can be guarded');
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
is(query("SELECT shedlock_cron_guard('super', '1 h')"), 'super', 'jobs in the database of a superuser can be guarded');

query('ALTER DATABASE other OWNER TO owner_role');
is(query($problems), 'far|' . $replace->('owner_role', 'other'), 'in another database the owner of that database counts');
like(error_of("SELECT shedlock_cron_guard('far', '2 h')"), qr/42501: job "far" cannot be guarded/, 'a job in a database of another owner is refused');
query('ALTER DATABASE other OWNER TO postgres');

# Another procedure of that name, with the same arguments in another order
query('CREATE PROCEDURE "Shed Lock".shedlock_run(command text, name text, lock_at_most_for interval, lock_at_least_for interval, once_every interval, on_busy text, schedule text, time_zone text, catch_up text, max_late interval, attempts integer, backoff interval, more text DEFAULT NULL) LANGUAGE sql AS $$$$');
like(error_of(job_command('super')), qr/42725: procedure .* is not unique/, 'a stored CALL can be one of two procedures');
is(query($problems), join("\n", $far, map { "$_|schema \"Shed Lock\" has another shedlock_run: the call can fail as not unique" } 'of plain', 'super'), 'shedlock_cron_jobs shows that the CALL is ambiguous');
query('DROP PROCEDURE "Shed Lock".shedlock_run(text, text, interval, interval, interval, text, text, text, text, interval, integer, interval, text)');

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
query("SELECT shedlock_cron_schedule('guarded', '$new_year', 'SELECT 1', '1 h', username => 'leaver', active => false), "
	  . "cron.schedule_in_database('bare', '$new_year', 'SELECT 1', 'gone'), shedlock_cron_schedule('fine', '$new_year', 'SELECT 1', '1 h')");
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
like(notices_of("SELECT shedlock_cron_unschedule('guarded'), cron.unschedule('bare')"), qr/WARNING:  ticks and schedule of lock "guarded" are not forgotten/, 'an administrator unschedules them, and is told what stays');
ok($node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher' AND backend_start < clock_timestamp() - interval '3 s'"),
	'then the launcher lives');

#
# The time zone of pg_cron's schedules
#
is( query(
		q{
SELECT (_shedlock_cron_due('0 3 * * *', NULL, '2026-11-21 12:00 UTC')).last_due AT TIME ZONE 'UTC',
	   (_shedlock_cron_due('0 3 * * *', NULL, '2026-07-21 12:00 UTC')).last_due AT TIME ZONE 'UTC'}),
	'2026-11-21 02:00:00|2026-07-21 01:00:00',
	'schedules are read in cron.timezone');
is( query_as_plain("SELECT (_shedlock_cron_due('30 2 * * *', NULL, '2026-03-29 12:00 UTC')).last_due AT TIME ZONE 'UTC'"),
	'2026-03-29 01:00:00',
	'plain roles read schedules, too: what the clock skips in spring is due when it does so');

# When summer time begins, two nightly runs are 23 hours apart, and can be within
# one day of UTC.  Here between one and two.
my @at = (
	[ '30 1 * * *', '1 day', '2026-03-01', '2026-03-29 23:30:00' ],
	[ '0 1 * * *', '1 day', '2026-03-01', '2026-03-29 23:00:00' ],
	[ '59 1 * * *', '1 day', '2026-03-01', '2026-03-29 23:59:00' ],
	[ '30 1 * * *', '1 day', '2026-03-30', '2027-03-28 23:30:00' ],
	[ '30 1 * * *', '12 hours', '2026-03-01', '' ],
	[ '59 0 * * *', '1 day', '2026-03-01', '' ],
	[ '0 2 * * *', '1 day', '2026-03-01', '' ],
	[ '0 3 * * *', '1 day', '2026-03-01', '' ],
	[ '30 1,13 * * *', '12 hours', '2026-03-01', '2026-03-29 11:30:00' ],
	[ '30 1 * * thu', '7 days', '2026-03-01', '2026-04-01 23:30:00' ],    # as was the first of 1970
	[ '30 1 * * fri', '7 days', '2026-03-01', '' ],
	[ '30 1,13 * * *', '1 day', '2026-03-01', '' ],
	[ '* * * * *', '1 day', '2026-03-01', '' ],
	[ '*/5 * * * *', '5 min', '2026-03-01', '' ],
	[ '0 * * * *', '1 hour', '2026-03-01', '' ],
	[ '10 seconds', '10 s', '2026-03-01', '' ]);
foreach (@at)
{
	my ($schedule, $every, $at, $lost) = @$_;

	is(query("SELECT _shedlock_cron_lost_tick('$schedule', '$every', '$at') AT TIME ZONE 'UTC'"), $lost,
		"in the year from $at once_every $every loses " . ($lost ? "the run of $lost" : 'no run') . " of $schedule");
}
like(
	notices_of("SELECT shedlock_cron_schedule('summer', '30 1 * * *', 'SELECT 1', '1 h', once_every => '1 day')"),
	qr/WARNING:  job "summer" will be skipped at \S+ \S+\nDETAIL:  Periods of 1 day .*summer time.*\nHINT:  Leave out once_every: /,
	'scheduling such a job gives a warning');
unlike(notices_of("SELECT shedlock_cron_guard('summer', '1 h', once_every => '12 h')"), qr/WARNING/, 'a job that follows the hint gives no warning');
like(
	notices_of("SELECT shedlock_cron_guard('summer', '1 h', once_every => '1 day')"),
	qr/WARNING:  job "summer" will be skipped/,
	'guarding such a job gives a warning');

# Two jobs can have one lock.
query(q{SELECT cron.schedule('twin', schedule, command) FROM cron.job WHERE jobname = 'summer'});
query(q{SELECT shedlock_acquire('summer', '1 h')});
is(query(q{SELECT string_agg(job_name || ' ' || lock_name || ' ' || lock_state, ', ' ORDER BY job_name) FROM shedlock_cron_jobs WHERE job_name IN ('summer', 'twin')}),
	'summer summer held, twin summer held', 'both jobs of a lock show its state');
is(query('SELECT count(*) FROM shedlock_cron_jobs'), query('SELECT count(*) FROM cron.job'), 'each job has one line');

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
  foreach 'job "nightly" scheduled', 'command of job "state" changed', 'job "nightly" unscheduled';

$node->stop;
done_testing();
