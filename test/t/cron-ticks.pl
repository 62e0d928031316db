# pg_cron fires jobs each minute, which run for the ticks of schedules of their own: in a
# time zone of their own, and once more after a run that failed.  A call without a due
# tick writes nothing but pg_cron's own row.

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
query("SELECT shedlock_cron_schedule('zone', '" . schedule_in($zone) . "', 'SELECT 1', '1 min', time_zone => '$zone'),"
	  . "shedlock_cron_schedule('retry', '" . schedule_in($zone) . "', \$\$" . $fails->('retry') . "\$\$, '1 min', time_zone => '$zone', attempts => 3, backoff => '1 s'),"
	  . "shedlock_cron_schedule('once', '" . schedule_in('GMT') . "', \$\$" . $fails->('once') . "\$\$, '1 min'),"
	  . "shedlock_cron_schedule('later', '" . schedule_in('America/New_York') . "', 'SELECT 1', '1 min', time_zone => '$zone')");

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
is(query("SELECT count(*) FROM _shedlock_tick WHERE name = 'later' AND attempt = 0"), '1', 'the first call of a job notes its last tick as past');
is(query("SELECT string_agg(job_name, ' ') FROM shedlock_cron_jobs WHERE overdue"), '', 'no job is overdue');
unlike(slurp_file($node->logfile), qr/lock "later"|"zone" (?:is|was) /, 'calls without a tick write no line to the log');

# "It failed, run it today": the CALL that the NOTICE says where to find
my (undef, undef, $notice) = $node->psql('postgres', "SELECT shedlock_again('once')");
my ($call) = $notice =~ /To run it now, .*: SELECT username, (command FROM .*)$/m;
query(query("SELECT $call"));
is(query("SELECT outcome, tick = '$tick' FROM shedlock_history WHERE name = 'once' ORDER BY token DESC LIMIT 1"), 'succeeded|t', 'a failed run is made up by hand');

$node->stop;
done_testing();
