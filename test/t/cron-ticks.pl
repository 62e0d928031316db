# pg_cron fires jobs each minute, which run for the ticks of schedules of their own: in a
# time zone of their own, and once more after a run that failed.  A call without a due
# tick writes nothing but pg_cron's own row.  What shedlock_again allows runs within a minute.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_cron_node('cron_ticks', '');

sub query
{
	return $node->safe_psql('postgres', $_[0]);
}

query('CREATE EXTENSION shedlock');
at_second($node);

# A schedule with one tick a day, at that minute in a time zone
my $tick = minute_ahead($node);
sub schedule_in
{
	return query("SELECT to_char(timestamptz '$tick' AT TIME ZONE '$_[0]', 'FMMI FMHH24 * * *')");
}

# India is five and a half hours ahead, so that no minute or hour is that of pg_cron.
my $zone = 'Asia/Kolkata';
my $fails = sub { "SELECT 1 / (SELECT count(*) - 1 FROM shedlock_history WHERE name = '$_[0]')" };
my $india = schedule_in($zone);
my $gmt = schedule_in('GMT');
my $new_york = schedule_in('America/New_York');
query("SELECT shedlock_job('zone', '$india', '$zone'), shedlock_job('retry', '$india', '$zone', attempts => 3, backoff => '1 s'),"
	  . "shedlock_job('later', '$new_york', '$zone')");
query("SELECT shedlock_cron_schedule('zone', '$india', 'SELECT 1'),"
	  . "shedlock_cron_schedule('retry', '$india', \$\$" . $fails->('retry') . "\$\$),"
	  . "shedlock_cron_schedule('once', '$gmt', \$\$" . $fails->('once') . "\$\$),"
	  . "shedlock_cron_schedule('later', '$new_york', 'SELECT 1')");

ok( await_minutes($node, "SELECT count(*) = 2 FROM shedlock_history WHERE name = 'retry' AND ended_at IS NOT NULL"),
	'a job that failed runs again');
is(query("SELECT attempt, outcome, tick = '$tick' FROM shedlock_history WHERE name = 'retry' ORDER BY token"), "1|failed|t\n2|succeeded|t",
	'both runs are for the tick of its time zone');
is(query("SELECT max(started_at) - min(ended_at) < interval '2 min' FROM shedlock_history WHERE name = 'retry'"), 't', 'within two minutes');

# One more call of each
my $calls = query("SELECT count(*) FROM cron.job_run_details");
ok( await_minutes($node, "SELECT count(*) >= $calls + 3 FROM cron.job_run_details WHERE status = 'succeeded'"),
	'pg_cron fires the jobs each minute');
is(query('SELECT name, count(*), max(outcome) FROM shedlock_history GROUP BY name ORDER BY name'), "once|1|failed\nretry|2|succeeded\nzone|1|succeeded",
	'each tick has run, and no call without a tick');
is(query("SELECT bool_and(started_at BETWEEN '$tick' AND timestamptz '$tick' + interval '50 s') FROM shedlock_history WHERE attempt = 1"), 't', 'at its time');
is(query("SELECT count(*) FROM cron.job_run_details d JOIN cron.job USING (jobid) WHERE jobname = 'once'"), '1', 'a job without these arguments is fired by its own schedule');
is(query("SELECT state, last_tick FROM shedlock_jobs WHERE name = 'later'"), 'new|', 'the call of a job that is not due notes nothing');
is(query("SELECT string_agg(job_name, ' ') FROM shedlock_cron_jobs WHERE overdue IS NOT NULL OR problem IS NOT NULL"), '', 'no job is overdue, or has a problem');
unlike(slurp_file($node->logfile), qr/lock "later"|"zone" (?:is|was) /, 'calls without a tick write no line to the log');

# "It failed, run it today", says a role that is neither the owner of the job nor a superuser,
# of a job that pg_cron fires once a day.
query('CREATE ROLE on_call LOGIN; GRANT EXECUTE ON FUNCTION shedlock_again TO on_call');
my (undef, undef, $notice) = $node->psql('postgres', "SELECT shedlock_again('once'), shedlock_again('once'), shedlock_again('retry')", extra_params => [ '-U', 'on_call' ]);
my ($id) = query("SELECT jobid FROM cron.job WHERE jobname = 'once'");
like($notice, qr/^\S+ NOTICE:  pg_cron will fire job $id once at the next full minute\nDETAIL:  .* before .*\n\S+ NOTICE:  .* job $id .*\nDETAIL:  .*$/, 'a NOTICE says that it is fired soon, not of the job that is fired each minute');
is(query('SELECT count(*) FROM cron.job'), '5', 'there is a job for that');
is(query("SELECT schedule, username, command FROM cron.job WHERE jobname IS NULL"), "* * * * *|postgres|CALL public._shedlock_cron_once('$id'::pg_catalog.int8)", 'of the same role');
ok(await_minutes($node, "SELECT count(*) = 2 FROM shedlock_history WHERE name = 'once' AND ended_at IS NOT NULL"), 'it runs within a minute');
is(query("SELECT outcome, tick = '$tick' FROM shedlock_history WHERE name = 'once' ORDER BY token DESC LIMIT 1"), 'succeeded|t', 'for the tick that had failed');
is(query('SELECT count(*) FROM cron.job'), '4', 'nothing is left of it');

$node->stop;
done_testing();
