# scripts/timeline draws every run with its outcome, ticks, ticks without a run and jobs
# that are overdue, and says what is wrong with jobs now.  Its page is well-formed whatever names and messages contain, and
# shows a role what the views show it.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = start_node('main', allows_streaming => 1);

# Returns the page of a database; arguments are those of the script.
sub page
{
	my ($dbname, @arguments) = @_;
	my ($out, $err) = run_command([ 'scripts/timeline', '-d', $node->connstr($dbname), @arguments ]);

	is($err, '', "scripts/timeline @arguments says nothing else");
	return $out;
}

# Returns what is wrong with a page as XML, or "well-formed".
sub form
{
	my ($page) = @_;
	my @open;

	return 'control character' if $page =~ /[\x00-\x08\x0b\x0c\x0e-\x1f]/;
	$page =~ s/^<!DOCTYPE html>\n//;
	while ($page =~ /\G(?:([^<>&]|&(?:amp|lt|gt|quot);)|<(\/?)(\w+)((?:\s+[\w:-]+="[^"<&]*")*)\s*(\/?)>)/gc)
	{
		next if defined $1;
		if ($2)
		{
			return "</$3> after <@open>" if !@open || pop(@open) ne $3;
		}
		elsif (!$5)
		{
			push @open, $3;
		}
	}
	return 'text: ' . substr($page, pos($page) || 0, 80) if (pos($page) || 0) < length $page;
	return @open ? "open: @open" : 'well-formed';
}

# Returns the titles of bars of a class; a title begins with the name of the job.
sub bars
{
	my ($page, $class) = @_;

	my @titles = $page =~ m{<rect class="bar $class"[^>]*><title>(.*?)</title></rect>}gs;

	return @titles;
}

# Like like(), which would print all of a page
sub has
{
	my ($page, $pattern, $claim) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($page =~ $pattern, $claim);
	return;
}

my $name = q{<script>alert("1")</script> & 'co' that is longer than its column};
my $shown = $name =~ s/&/&amp;/gr =~ s/</&lt;/gr =~ s/>/&gt;/gr =~ s/"/&quot;/gr;
my $message = qq{</title><b> & "quoted"\x01\n]]>};

# Each outcome
$node->safe_psql('postgres', q{CREATE ROLE worker LOGIN; CREATE ROLE stranger LOGIN; CALL shedlock_run('succeeds', 'SELECT 1')});
$node->safe_psql('postgres', q{CALL shedlock_run('of worker', 'SELECT 1')}, extra_params => [ '-U', 'worker' ]);
my $sql = qq{SELECT shedlock_run_end(\$n\$$name\$n\$, token, 'failed', \$m\$$message\$m\$) FROM shedlock_run_begin(\$n\$$name\$n\$)};
is($node->safe_psql('postgres', $sql), 't', 'a run fails');
like(error_of($node, q{CALL shedlock_run('late', 'SELECT pg_sleep(600)', '100 ms')}), qr/^57014/, 'a run times out');
my %session = map { $_ => session($node) } 'cancelled', 'running', 'leased';
$session{$_}->query_until(qr/begun/, "\\echo begun\nCALL shedlock_run('$_', 'SELECT pg_sleep(600)');\n") foreach 'cancelled', 'running';
ok(defined await($node, q{SELECT count(*) = 2 FROM shedlock_history WHERE outcome = 'running' AND name IN ('cancelled', 'running')}), 'two runs begin');
is($node->safe_psql('postgres', q{SELECT shedlock_cancel('cancelled')}), 't', 'a run is cancelled');
ask($session{leased}, q{SELECT token FROM shedlock_run_begin('lost', '100 ms')});
ok(defined await($node, q{SELECT string_agg(outcome, ',' ORDER BY name) = 'cancelled,lost' FROM shedlock_history WHERE name IN ('cancelled', 'lost')}),
	'each outcome is in the history');

# A tick without a run, a run that is overdue, a pause
my $run = q{CALL shedlock_run('with gap', 'SELECT 1')};
$node->safe_psql('postgres', q{SELECT shedlock_job('with gap', 'every 1 s', attempts => 2)});
$node->safe_psql('postgres', $run);
ok(defined await($node, q{SELECT clock_timestamp() > max(tick) + interval '3 s' FROM shedlock_history WHERE name = 'with gap'}), 'ticks pass');
$node->safe_psql('postgres', $run);
$node->safe_psql('postgres', $_) foreach q{SELECT shedlock_job('overdue', '* * * * *')}, q{CALL shedlock_run('overdue', 'SELECT 1')},
  q{UPDATE _shedlock_job SET declared_at = declared_at - interval '2 hours', created_at = created_at - interval '2 hours', since = since - interval '2 hours' WHERE name = 'overdue'},
  q{UPDATE _shedlock_tick SET tick = tick - interval '2 hours' WHERE name = 'overdue'},
  q{UPDATE shedlock SET locked_at = locked_at - interval '2 hours', lock_until = lock_until - interval '2 hours' WHERE name = 'overdue'};

# A run that is given back, a tick that is skipped
$node->safe_psql('postgres', $_) foreach q{SELECT shedlock_job(name, 'every 20000 days') FROM unnest('{returned, skipped}'::text[]) AS name},
  q{SELECT shedlock_run_end('returned', token, 'returned') FROM shedlock_run_begin('returned')}, q{SELECT shedlock_skip('skipped', 'not tonight')};
$node->safe_psql('postgres', q{SELECT shedlock_pause('paused', reason => '<not tonight>')});

# A problem without a run
$node->safe_psql('postgres', $_) foreach q{SELECT shedlock_job('<problem>', '@yearly', description => '<i>Ann</i>')},
  q{UPDATE _shedlock_job SET schedule = '<never>' WHERE name = '<problem>'}, q{SELECT shedlock_pause('<problem>')};

my $page = page('postgres');
my $runs = $node->safe_psql('postgres', 'SELECT count(*) FROM shedlock_history');
is(form($page), 'well-formed', 'the page is well-formed');
ok($page !~ qr/<script|<b>|<i>|\bhref=|\bsrc=|https?:(?!\/\/www\.w3\.org)/, 'the page has no scripts and no links');
has($page, qr/default-src 'none'/, 'the page forbids scripts and links');
is(scalar(bars($page, '(?:ok|failed|late|off|lost|runs)')), $runs, 'every run is drawn');
my %class = ('succeeds' => 'ok', $shown => 'failed', 'late' => 'late', 'cancelled' => 'off', 'lost' => 'lost', 'running' => 'runs');
my %outcome = (ok => 'succeeded', failed => 'failed', late => 'timed out', off => 'cancelled', lost => 'lost', runs => 'running');
foreach my $job (sort keys %class)
{
	my $outcome = $outcome{ $class{$job} };

	is(scalar(grep { /^\Q$job\E\n$outcome\b/ } bars($page, $class{$job})), 1, "a run that is $outcome has its colour");
	has($page, qr/ $outcome: [1-9]/, "runs that are $outcome are counted");
}
is(join('', sort $page =~ m{<text class="sign" x="[\d.]+" y="[\d.]+">(\w)</text>}g), 'BBCCFFLLRRSSTT',
	'outcomes except succeeded have a letter, in the picture and in the list of signs');
foreach my $outcome ('returned', 'skipped')
{
	is(scalar(grep { /^$outcome\n$outcome\n/ } bars($page, 'off')), 1, "what is $outcome is drawn");
	has($page, qr/ $outcome: 1</, "what is $outcome is counted");
}
like((bars($page, 'failed'))[0], qr/\nfailed.*\n&lt;\/title&gt;&lt;b&gt; &amp; &quot;quoted&quot;\?\n\]\]&gt;$/s, 'the message is escaped');
has($page, qr{>&lt;script&gt;alert\(&quot;1&quot;\)&lt;/script&gt; &amp; 'c\.\.\.\n<title>\Q$shown\E}, 'a long name is clipped, and its title has all of it');
has((bars($page, 'lost'))[0], qr/^lost\nlost\nfrom [^\n]+, its end is unknown\n/, 'the end of a lost run is unknown');
my ($width) = page('postgres', '--since', $node->safe_psql('postgres', 'SELECT min(started_at) FROM shedlock_history')) =~ /<rect class="bar lost" x="[\d.]+" y="[\d.]+" width="([\d.]+)"/;
is($width, '3.0', 'a lost run has a short bar');
is_deeply([ sort { $a <=> $b } keys %{ { map { $_ => 1 } $page =~ /<text class="weak mid" x="[\d.]+" y="([\d.]+)">/g } } ],
	[ 16, 54 + 26 * $node->safe_psql('postgres', 'SELECT count(DISTINCT name) + 2 FROM shedlock_history') ], 'the axis has labels above and below the jobs');
is(scalar(grep { $_ < 3 } $page =~ /<rect class="bar [^>]* width="([\d.]+)"/g), 0, 'no bar is too thin');
cmp_ok(scalar(() = $page =~ /<path class="tick" d="M\d+ /g), '>=', 2, 'ticks are drawn');
like(join('', bars($page, 'gap')), qr/^with gap\nno run for tick 20/, 'ticks without a run are drawn, and no others');
like(join('', bars($page, 'overdue')), qr/^overdue\noverdue by (?:01:5|02:)/, 'the job that is overdue is drawn, and no other');
has($page, qr/class="bad">overdue by (?:01:5|02:)\S+\n<title>overdue\nA run of &quot;overdue&quot; is overdue\n/, 'its row says so');
has($page, qr/class="bad">job, paused\n<title>&lt;problem&gt;\nJob &quot;&lt;problem&gt;&quot;: .+\npaused by postgres/, 'a row says what is wrong with a job');
is(scalar(() = $page =~ /class="bad"/g), 2, 'the other rows have no problem');
has($page, qr/>problems now: 2</, 'problems are counted');
has($page, qr{<td>&lt;problem&gt;</td>\n<td>job</td>\n<td>Job &quot;&lt;problem&gt;&quot;: .+</td>\n<td>&lt;i&gt;Ann&lt;/i&gt;</td></tr>}, 'problems are listed');
has($page, qr/>paused until resumed\n<title>paused\npaused by postgres\n&lt;not tonight&gt;</, 'a pause is shown');
ok($page !~ qr/pg_sleep/, 'commands are not shown');

# Options
is(form(page('postgres', '--svg')), 'well-formed', 'the picture alone is well-formed');
has(page('postgres', '--since', '2 h', '--zone=Asia/Kolkata'), qr/ time zone Asia\/Kolkata/, 'the page names the time zone');
is(scalar(bars(page('postgres', '--since', '2001-01-01 00:00', '--until', '2001-01-02 00:00'), '\w+')), 0, 'another range has no runs');
my ($out, $err) = run_command([ 'scripts/timeline', '-d', $node->connstr('postgres'), '--since', 'yesteryear' ]);
like($err, qr/invalid input syntax/, 'a range that is none is an error');
isnt($?, 0, 'the error is in the exit status');

# What others see
my $seen = page('postgres', '-U', 'worker');
is(join('', map { /^(.*)\n/ } bars($seen, '\w+')), 'overdueof worker', 'a role without rights sees its runs only, and what is overdue');
has($seen, qr/sees only the runs of roles/, 'the page says that it does not show all runs');
is(form($seen), 'well-formed', 'its page is well-formed');
$node->safe_psql('postgres', 'GRANT pg_monitor TO stranger');
is(scalar(bars(page('postgres', '-U', 'stranger'), '(?:ok|failed|late|off|lost|runs)')), $runs, 'a monitoring role sees all runs');

# A standby cannot tell whether a run of the primary is at work
my $standby = start_standby($node, 'standby');
$node->wait_for_catchup($standby);
my ($there) = run_command([ 'scripts/timeline', '-d', $standby->connstr('postgres') ]);
is(form($there), 'well-formed', 'a standby draws the page');
has($there, qr/, a standby; .* unknown: [1-9]</s, 'the page says that it is a standby, and of which runs it does not know the outcome');
is(scalar(bars($there, '(?:ok|failed|late|off|lost|runs)')), $runs, 'a standby draws all runs');
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
$node->reload;
$standby->stop;

# No runs, then too many
$node->safe_psql('postgres', 'CREATE DATABASE empty');
$node->safe_psql('empty', 'CREATE SCHEMA "Odd schema"; CREATE EXTENSION shedlock SCHEMA "Odd schema"');
$page = page('empty');
is(form($page), 'well-formed', 'the page of an empty history is well-formed');
has($page, qr/>problems now: 0<(?!.*>Problems now<)/s, 'it says that there is no problem');
has($page, qr/>No runs in this range</, 'it says that there are no runs');
$node->safe_psql('empty', q{SET search_path = "Odd schema"; INSERT INTO _shedlock_history
	(token, name, started_at, ended_at, outcome, locked_role, locked_by, pid)
	SELECT i, 'job ' || i % 50, now() - i * interval '1 s', now(), 'succeeded', 10, '', 0 FROM generate_series(1, 10050) i});
$page = page('empty');
is(scalar(bars($page, 'ok')), 10000, 'the latest 10,000 runs are drawn');
has($page, qr/>50 runs are older .* succeeded: 10050</s, 'the page says that older ones are not, and counts all');

reap($_) foreach values %session;
$node->stop;
done_testing();
