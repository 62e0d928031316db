# shedlock --watch: what is told, when, and in which order; with two watchers, of which one is
# killed.  Then its options, its exit statuses, and commands that fail or hang.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use HostProgram;
use IO::Select;
use IO::Socket::UNIX;
use JSON::PP;
use List::Util 'first';
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep time);

plan skip_all => 'this system cannot have the program shedlock' unless program_path();

my $node = start_node('main');
my $slow = slowness($node);
my $jobs = session($node);
my $files = PostgreSQL::Test::Utils::tempdir;

# A command that adds its input to a file, with the time in front.
sub teller
{
	my ($file) = @_;

	return ('--', 'sh', '-c', q{read -r line; printf '%s %s\n' "$(date +%s.%N)" "$line" >>"$0"}, $file);
}

# Returns what was told, in the order of its times: the time, state, problem and name.
sub told
{
	my ($file) = @_;

	return map { my ($time, $json) = /^(\S+) (.*)/; +{ %{ decode_json($json) }, at => $time } } -e $file ? split /\n/, slurp_file($file) : ();
}

# Waits until a change was told; returns its time.
sub is_told
{
	my ($file, $state, $problem, $name) = @_;
	my @tells;

	ok(eventually(sub { @tells = grep { $_->{state} eq $state && $_->{problem} eq $problem && $_->{name} eq $name } told($file) }),
		"$name: $problem, $state, is told");
	return @tells ? $tells[0]{at} : 9e15;
}

sub start_run
{
	my ($name) = @_;

	return ask($jobs, "SELECT token FROM shedlock_run_begin('$name', '1 h')");
}

sub end_run
{
	my ($name, $outcome) = @_;

	return ask($jobs, "SELECT shedlock_run_end(name, token, '$outcome') FROM shedlock WHERE name = '$name'");
}

#
# Problems of four jobs, and their ends; nobody watches them by hand, and there is no Prometheus
#

my $lease = 4 * $slow;
my @watch = ('--watch', '--every', '2s', '--lease', "${lease}s");
my $log = "$files/told";
my @watchers = map { start_program($node, @watch, '-v', teller($log)) } 1 .. 2;
ok(defined await($node, "SELECT state = 'held' AND waiters = 1 FROM shedlock_locks WHERE name = 'shedlock-watch'"), 'one watcher works, the other one waits');

# never called; its replicas are killed; fails three times; hangs
my $start = time;
ask($jobs, "SELECT shedlock_job('uncalled', 'every 1 s', overdue_after => '2 s', description => 'Ann''s')");
ask($jobs, "SELECT shedlock_job('orphaned', 'every 1 s', overdue_after => '2 s')");
ask($jobs, "SELECT shedlock_job('failing', 'every 1 h', attempts => 3, backoff => '0'), shedlock_again('failing')");
ask($jobs, "SELECT shedlock_job('hanging', 'every 1 h', slow_after => '2 s'), shedlock_again('hanging')");
my @replicas = map { start_program($node, '--name', 'orphaned', '--wait', '1h', '--lease', "${lease}s", '--', 'sleep', '600') } 1 .. 2;
ok(defined await($node, "SELECT state = 'held' FROM shedlock_locks WHERE name = 'orphaned'"), 'one of two replicas runs a job');
$_->kill_all foreach @replicas;
start_run('hanging');
my $hangs = time;
foreach (1 .. 3)
{
	start_run('failing');
	end_run('failing', 'failed');
}
my $failed = time;

cmp_ok(is_told($log, 'begun', 'gave up', 'failing') - $failed, '<', 1 * $slow, 'within a second of the failure');
cmp_ok(is_told($log, 'begun', 'overdue', 'uncalled') - $start, '<', 2 + 5 * $slow, 'within overdue_after and five seconds');
my ($working, $waiting) = $watchers[0]->guardian ? @watchers : reverse @watchers;
$working->kill_all;
my $killed = time;
is_told($log, 'begun', 'slow', 'hanging');
cmp_ok(is_told($log, 'begun', 'overdue', 'orphaned') - $killed, '<', $lease + 2 + 5 * $slow, 'by the other watcher, once the lease is over');
is(ask($jobs, q{SELECT string_agg(problem || ' ' || name, ', ' ORDER BY problem, name) FROM shedlock_problems}),
	'gave up failing, gave up orphaned, overdue orphaned, overdue uncalled, slow hanging', 'these are the problems, one of them of the run that is lost');

# mended
ask($jobs, "SELECT shedlock_again('failing')");
foreach my $name (qw(failing orphaned uncalled))
{
	start_run($name);
	end_run($name, 'succeeded');
	ask($jobs, "SELECT shedlock_job('$name', 'every 1 h', overdue_after => '1 h')");
}
ok(eventually(sub { ask($jobs, "SELECT count(*) FROM shedlock_problems WHERE name <> 'hanging'") eq '0' }), 'all but one are mended');
end_run('hanging', 'succeeded');
is_told($log, 'over', @$_) foreach [ 'gave up', 'failing' ], [ 'gave up', 'orphaned' ], [ 'overdue', 'orphaned' ], [ 'overdue', 'uncalled' ], [ 'slow', 'hanging' ];
is(join("\n", map { "$_->{problem} $_->{name} $_->{state}" } sort { "$a->{problem} $a->{name}" cmp "$b->{problem} $b->{name}" || $a->{at} <=> $b->{at} } told($log)), join("\n",
	'gave up failing begun', 'gave up failing over', 'gave up orphaned begun', 'gave up orphaned over', 'overdue orphaned begun', 'overdue orphaned over',
	'overdue uncalled begun', 'overdue uncalled over', 'slow hanging begun', 'slow hanging over'), 'each is told once, and its end');
my ($uncalled) = grep { $_->{name} eq 'uncalled' } told($log);
is_deeply([ sort keys %$uncalled ], [ sort qw(name problem state since message description at) ], 'the JSON has these keys');
is($uncalled->{message} . $uncalled->{description}, qq{A run of "uncalled" is overdue} . "Ann's", 'and these texts');
like($uncalled->{since}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?[+]00:00$/, 'since is a time of ISO 8601');
$waiting->signal('TERM');
is($waiting->finish, 0, 'SIGTERM ends a watcher, with exit status 0');
ok(eventually(sub { !$waiting->processes }), 'nothing of it is left');

# the keeper of the one that was killed may have lived a little longer than its parent
like(ask($jobs, "SELECT string_agg(outcome, ' ' ORDER BY token) FROM shedlock_history WHERE name = 'shedlock-watch'"),
	qr/^(?:lost|returned) returned$/, 'the history has both watchers');
ask($jobs, 'SELECT shedlock_forget(name) FROM shedlock_jobs');

#
# Commands that fail hold up the same name only; those that hang are ended
#

# Makes a problem that stays.
sub break_job
{
	my ($name) = @_;

	return ask($jobs, "SELECT shedlock_job('$name', '\@yearly'); UPDATE _shedlock_job SET schedule = 'never' WHERE name = '$name'");
}

# Process ID of the parent of a process
sub parent
{
	my ($pid) = @_;

	return slurp_file("/proc/$pid/stat") =~ /.*\) \S (\d+)/s ? $1 : 0;
}

# Starts a process that passes on what the server sends in packets of 200 bytes, and breaks the
# first two connections on which that word is sent; returns its ID.
sub start_network
{
	my ($directory, $word) = @_;
	my $socket = '/.s.PGSQL.' . $node->port;
	my $listener = IO::Socket::UNIX->new(Local => $directory . $socket, Listen => 5) or die "socket: $!";
	my $pid = fork // die "fork: $!";

	return $pid if $pid;
	$SIG{CHLD} = $SIG{TERM} = 'DEFAULT';
	while (my $client = $listener->accept)
	{
		next if fork;
		my $server = IO::Socket::UNIX->new(Peer => $node->host . $socket) or POSIX::_exit(1);
		my $both = IO::Select->new($client, $server);
		while (my @ready = $both->can_read)
		{
			foreach my $from (@ready)
			{
				my $is_answer = $from == $server;
				sysread($from, my $data, $is_answer ? 200 : 65536) or POSIX::_exit(0);
				POSIX::_exit(0) if $word && !$is_answer && $data =~ /\b$word\b/ && first { mkdir "$directory/broken $_" } 1, 2;
				syswrite($is_answer ? $client : $server, $data) or POSIX::_exit(0);
				sleep(0.001) if $is_answer;
			}
		}
	}
	POSIX::_exit(0);
}

break_job($_) foreach qw(bad good);
ask($jobs, "SELECT count(*) FROM shedlock_news()");
is(join('', map { (run_program($node, '--watch', '--dry-run', @$_))[0] } [], ['--'], ['true']), '000', '--dry-run needs no command');
my (undef, $would) = run_program($node, '--watch', '--dry-run');
is(join(' ', map { "$_->{state} $_->{problem} $_->{name}" } map { decode_json($_) } grep { /^\{/ } split /\n/, $would), 'begun job bad begun job good', '--dry-run prints what would be told');
is(ask($jobs, 'SELECT count(*) FROM _shedlock_told WHERE begin_told'), '0', 'and tells nothing');
break_job('new');
run_program($node, '--watch', '--dry-run');
is(ask($jobs, q{SELECT count(*) FROM _shedlock_told WHERE name = 'new'}), '0', 'what it sees does not count as seen');
ask($jobs, q{SELECT shedlock_forget('new')});

my $tries = "$files/tries";
my $open = "$files/open";
my $fails = start_program($node, @watch, '--every', '1s', '--alive', "echo alive >>$files/alive", '--',
	'sh', '-c', qq{read -r line; printf '%s %s\\n' "\$(date +%s.%N)" "\$line" >>$tries; [ "\$SHEDLOCK_NAME" != bad ] || [ -e $open ] || exit 3});
is_told($tries, 'begun', 'job', 'good');
ok(eventually(sub { 3 <= grep { $_->{name} eq 'bad' } told($tries) }), 'a command that fails is tried again');
ask($jobs, q{SELECT shedlock_forget(name) FROM unnest('{bad,good}'::text[]) name});
is_told($tries, 'over', 'job', 'good');
is(scalar(grep { $_->{name} eq 'bad' && $_->{state} eq 'over' } told($tries)), 0, 'the end of a problem is not told before its begin');
my @bad = map { $_->{at} } grep { $_->{name} eq 'bad' } told($tries);
cmp_ok($bad[2] - $bad[1], '>', 1.9, 'later and later');
is(-e "$files/alive" ? 'alive' : '', '', '--alive is not run while something is not told');
like($fails->err, qr/^shedlock: "sh" has failed with exit status 3$/m, 'the failure is said');
append_to_file($open, '');
is_told($tries, 'over', 'job', 'bad');
ok(eventually(sub { -e "$files/alive" }), '--alive is run when all is told');
$fails->signal('TERM');
is($fails->finish, 0, 'it ends by SIGTERM');

# Notifications bring looks, and no signs of life.
my $often = start_program($node, @watch, '--every', '1h', '--alive', "echo alive >>$files/signs", teller("$files/often"));
ok(eventually(sub { -e "$files/signs" }), '--alive is run at the first look');
foreach my $name (qw(heard seen))
{
	break_job($name);
	ask($jobs, 'NOTIFY shedlock');
	is_told("$files/often", 'begun', 'job', $name);
}
is(slurp_file("$files/signs"), "alive\n", '--alive is not run at looks that come before its time');
$often->signal('TERM');
is($often->finish, 0, 'it ends by SIGTERM');
ask($jobs, q{SELECT shedlock_forget(name) FROM shedlock_jobs; TRUNCATE _shedlock_told});

break_job('stuck');
my $hung = start_program($node, @watch, '--at-most', '1s', '--kill-after', '500ms', '--', 'sh', '-c', 'trap "" TERM; echo started; sleep 600 & wait; wait');
ok($hung->await_out(qr/started.*started/s), 'a command that hangs is ended, and tried again');
like($hung->err, qr/^shedlock: "sh" was ended by signal 9 \(Killed\)$/m, 'by SIGKILL if it ignores SIGTERM');
$hung->signal('INT');
$hung->signal('INT');
is($hung->finish, 0, 'SIGINT ends it');

# The rest of its process group is ended, too.
my $group = start_program($node, @watch, '--at-most', '1s', '--kill-after', '500ms', '--', 'sh', '-c', '(trap "" TERM; exec sleep 600) & echo "child $!."; wait');
ok($group->await_out(qr/child \d+\..*child/s), 'a command that hangs is ended');
ok(eventually(sub { !-e "/proc/" . ($group->out =~ /child (\d+)/)[0] }), 'with a child that ignores SIGTERM');
$group->signal('TERM');
is($group->finish, 0, 'SIGTERM ends it');

# But not before it has had --kill-after, too.
my $cleaner = start_program($node, @watch, '--at-most', '1s', '--kill-after', 1.4 * $slow . 's', '--', 'sh', '-c',
	qq{(trap "sleep 0.3; echo clean >$files/clean; exit" TERM; while :; do sleep 0.1; done) & echo started; wait});
ok($cleaner->await_out(qr/started/), 'a command starts a process that cleans up when it is told to end');
ok(eventually(sub { -s "$files/clean" }), 'it has the time to do so');
$cleaner->signal('TERM');
is($cleaner->finish, 0, 'SIGTERM ends it');

# A command that is at work has --kill-after to end, whichever signal ends the watcher, also if
# its caller has blocked that.
foreach my $number (qw(TERM HUP))
{
	my $blocks = sub { POSIX::sigprocmask(POSIX::SIG_SETMASK, POSIX::SigSet->new(POSIX::SIGTERM, POSIX::SIGHUP)) };
	my $blocked = start_program($node, { before => $blocks }, @watch, '--at-most', '10min', '--kill-after', '500ms', '--', 'sh', '-c', 'trap "" TERM HUP; echo started; sleep 600 & wait; wait');

	ok($blocked->await_out(qr/started/), 'a command is at work');
	$blocked->signal($number);
	is($blocked->finish, 0, "SIG$number ends the watcher, whose caller has blocked it");
	is(ask($jobs, q{SELECT outcome FROM shedlock_history WHERE name = 'shedlock-watch' ORDER BY token DESC LIMIT 1}), 'returned', 'its run is given back');
}

# A command that is at work when the watcher is told to end comes to its end, and counts.
my $slowly = start_program($node, @watch, '--', 'sh', '-c', "echo started; until [ -e $files/go ]; do sleep 0.05; done; echo done");
ok($slowly->await_out(qr/started/), 'a command is at work');
$slowly->signal('TERM');
sleep(0.3);
append_to_file("$files/go", '');
is($slowly->finish, 0, 'SIGTERM ends the watcher');
like($slowly->out, qr/\Astarted\ndone\n\z/, 'the command has come to its end');
is(ask($jobs, q{SELECT begin_told FROM _shedlock_told WHERE name = 'stuck'}), 't', 'and the server knows');

# What Ctrl-Z signals in a terminal: the process that the user has started, and the keeper
my $stopped = start_program($node, @watch, teller("$files/stopped"));
break_job('before');
is_told("$files/stopped", 'begun', 'job', 'before');
$stopped->signal('STOP');
kill 'TSTP', parent($stopped->guardian);
break_job('behind');
is_told("$files/stopped", 'begun', 'job', 'behind');
$stopped->signal($_) foreach qw(TERM CONT);
is($stopped->finish, 0, 'SIGTERM ends it once it goes on');

# What its caller ignores, as nohup(1) does, stays ignored.
my $ignores = start_program($node, { wrapper => [ 'sh', '-c', 'trap "" HUP; exec "$@"', 'sh' ] }, @watch, teller("$files/ignores"));
ok(eventually(sub { $ignores->guardian }), 'a watcher is at work');
$ignores->signal('HUP');
break_job('ignores');
is_told("$files/ignores", 'begun', 'job', 'ignores');
$ignores->signal('TERM');
is($ignores->finish, 0, 'SIGTERM ends it');

# A command that leaves its process group is ended, too.
break_job('stray');
my $stray = start_program($node, @watch, '--at-most', '1s', '--kill-after', '500ms', '--', 'perl', '-e',
	'$| = 1; setpgrp(0, getpgrp(getppid)); $SIG{TERM} = "IGNORE"; print "started\n"; sleep 600');
ok($stray->await_out(qr/started.*started/s), 'a command that leaves its process group and hangs is ended');
$stray->kill_all;

# What the server does not take note of is told once, and the server is asked later and later.
ask($jobs, 'CREATE ROLE half LOGIN; GRANT EXECUTE ON FUNCTION shedlock_news() TO half');
ask($jobs, q{SELECT shedlock_forget(name) FROM shedlock_jobs; TRUNCATE _shedlock_told});
break_job('noted');
my $half = start_program($node, @watch, '--dbname', 'user=half', teller("$files/half"));
is_told("$files/half", 'begun', 'job', 'noted');
ok(eventually(sub { $half->err =~ /(?:permission denied for function shedlock_tell\n.*){2}/s }), 'the server refuses to take note, and is asked again');
sleep(2);
unlike($half->err, qr/has more to say/, 'not all the time');
ask($jobs, 'GRANT EXECUTE ON FUNCTION shedlock_tell TO half');
ok(defined await($jobs, q{SELECT begin_told FROM _shedlock_told WHERE name = 'noted'}), 'it notes in the end');
is(scalar(told("$files/half")), 1, 'the command was run once');

# An open transaction that has seen the news holds the watcher up, and no session is left behind.
my $reader = session($node);
ask($reader, 'BEGIN');
break_job('unseen');
ask($reader, 'SELECT count(*) FROM shedlock_news()');
ok(eventually(sub { $half->err =~ /canceling statement due to lock timeout/ }), 'a watcher does not wait for ever for an open transaction');
cmp_ok(ask($jobs, q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shedlock' AND query LIKE '%shedlock_news%' AND state = 'active'}), '<', 2,
	'nor do sessions of it');
ask($reader, 'ROLLBACK');
$reader->quit;
is_told("$files/half", 'begun', 'job', 'unseen');
$half->signal('TERM');
is($half->finish, 0, 'SIGTERM ends it');

# More changes that fail than are asked for at once do not hold up another one.
ask($jobs, q{SELECT shedlock_forget(name) FROM shedlock_jobs; TRUNCATE _shedlock_told});
ask($jobs, q{SELECT count(shedlock_job('bad ' || n, '@yearly')) FROM generate_series(1, 120) n; UPDATE _shedlock_job SET schedule = 'never'; SELECT count(*) FROM shedlock_news()});
my $crowd = start_program($node, @watch, '--every', '1s', '--', 'sh', '-c', 'case $SHEDLOCK_NAME in bad*) exit 3;; esac; exec cat >>"$0"', "$files/crowd");
ok(eventually(sub { $crowd->err =~ /failed with exit status 3/ }), 'a command fails');
break_job('good');
ok(eventually(sub { -s "$files/crowd" }), '120 changes that cannot be told do not hold up another one');
ok(defined await($jobs, q{SELECT begin_told FROM _shedlock_told WHERE name = 'good'}), 'which the server notes');
ask($jobs, q{SELECT shedlock_forget(name) FROM shedlock_jobs WHERE name <> 'good'; TRUNCATE _shedlock_told});
ok(eventually(sub { 2 <= (() = slurp_file("$files/crowd") =~ /"good"/g) }), 'nor do those that are no news any more');
$crowd->signal('TERM');
is($crowd->finish, 0, 'SIGTERM ends it');

# More news than the program reads as one answer, on a network with small packets
my $directory = PostgreSQL::Test::Utils::tempdir_short;
my $network = start_network($directory);
ask($jobs, q{SELECT shedlock_forget(name) FROM shedlock_jobs; TRUNCATE _shedlock_told});
ask($jobs, q{SELECT count(shedlock_job('many ' || n, '@yearly', description => repeat('What it is. ', 20))) FROM generate_series(1, 300) n; UPDATE _shedlock_job SET schedule = 'never'});
my $many = start_program($node, { environment => { PGHOST => $directory } }, @watch, 'true');
ok(defined await($jobs, q{SELECT count(*) = 300 FROM _shedlock_told WHERE begin_told}), 'any number of problems is told');
$many->signal('TERM');
is($many->finish, 0, 'SIGTERM ends it');
kill 'TERM', $network;
waitpid $network, 0;

# A connection that breaks as it is to LISTEN has one after it that does, in the watcher and in
# the process that keeps its lock.
$directory = PostgreSQL::Test::Utils::tempdir_short;
$network = start_network($directory, 'LISTEN');
my $again = start_program($node, { environment => { PGHOST => $directory } }, @watch, '--every', '1s', '--dbname', 'application_name=again', 'true');
ok(eventually(sub { 2 <= (() = slurp_file($node->logfile) =~ /\] again LOG:  .*LISTEN shedlock/g) }), 'LISTEN is sent again after the connections broke');
ok(-d "$directory/broken 2", 'which they did');
$again->signal('TERM');
is($again->finish, 0, 'SIGTERM ends it');
kill 'TERM', $network;
waitpid $network, 0;

# As the first process of a container it gets what a dead keeper has left.
SKIP:
{
	my @apart = qw(unshare --user --map-current-user --pid --fork --mount-proc);

	skip 'this system has no namespaces for users', 3 if system("@apart true 2>$files/unshare") != 0;
	my $first = start_program($node, { wrapper => \@apart }, @watch, 'true');
	ok(eventually(sub { $first->guardian }), 'the watcher is the first process of a namespace');
	my $guardian = $first->guardian;
	my ($keeper, $supervisor) = map { parent($_) } $guardian, parent($guardian);
	kill 'KILL', $keeper;
	ok(eventually(sub { !-e "/proc/$guardian" }), 'no zombie is left of a run whose keeper was killed');
	kill 'TERM', $supervisor;
	is($first->finish, 0, 'SIGTERM ends it');
}

#
# Refusals
#

is((run_program($node, @$_))[0], 64, "wrong: @$_") foreach [qw(--watch)], [qw(--watch --schedule @daily -- true)], [qw(--watch --once-every 1h -- true)],
  [qw(--every 1s --name x -- true)], [qw(--alive true --name x -- true)], [qw(--watch --every x -- true)], [qw(--watch --at-most 0 -- true)];
is((run_program($node, '--watch', '--dbname=template1', '--dry-run'))[0], 69, 'exit status 69 of --dry-run in a database without shedlock');
ask($jobs, 'CREATE ROLE watcher LOGIN');
my ($status, undef, $err) = run_program($node, '--watch', '--dbname', 'user=watcher', '--dry-run');
is($status, 69, 'a role without the privilege is refused');
like($err, qr/^shedlock: permission denied for function shedlock_news$/m, 'and told so');
ask($jobs, 'GRANT EXECUTE ON FUNCTION shedlock_news, shedlock_tell TO watcher');
is((run_program($node, '--watch', '--dbname', 'user=watcher', '--dry-run'))[0], 0, 'with the privilege it is not');

$jobs->quit;
$node->stop;
done_testing();
