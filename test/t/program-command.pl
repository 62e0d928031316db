# The program shedlock: its exit statuses and options, what the command sees, which signals
# reach it, and what the history has of its run.

use strict;
use warnings FATAL => 'all';
use Fcntl;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use HostProgram;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep time);

plan skip_all => 'this system cannot have the program shedlock' unless program_path();

my $node = start_node('main', allows_streaming => 1);
my $slow = slowness($node);

# The program gives a server two seconds to answer.
$ENV{PGCONNECT_TIMEOUT} = int(2 * $slow);
my $watcher = session($node);
my $files = PostgreSQL::Test::Utils::tempdir;

# A command that the shell understands
sub sh
{
	return ('--', 'sh', '-c', @_);
}

# A command that takes as long as there is no file, which the test makes.
sub until_there
{
	my ($file, $then) = @_;

	return sh("echo ready; until [ -e $file ]; do sleep 0.05; done; " . ($then // ''));
}

sub touch
{
	my ($file) = @_;

	PostgreSQL::Test::Utils::append_to_file($file, '');
	return;
}

# Columns of the last run of a name in the history
sub last_run
{
	my ($name, $columns) = @_;

	return ask($watcher, "SELECT $columns FROM shedlock_history WHERE name = '$name' ORDER BY token DESC LIMIT 1");
}

# Is the lock free, and are all processes of this run gone?
sub nothing_left
{
	my ($run, $name, $what) = @_;

	is(join(' ', $run->processes), '', "$what: no process is left");
	is(ask($watcher, "SELECT count(*) FROM shedlock_locks WHERE name = '$name'"), '0', "$what: the lock is free");
	return;
}

# A call that must be refused before its command is started
sub refused
{
	my ($expected, $pattern, $where, @arguments) = @_;
	my $file = "$files/refused";
	my ($status, $out, $err) = run_program($where, @arguments, '--', 'touch', $file);
	my $what = join(' ', map { ref $_ ? () : length $_ > 60 ? 'a long name' : $_ } @arguments) || 'no option';

	is($status, $expected, "exit status $expected: $what");
	like($err, $pattern, "the message says why: $what");
	ok(!-e $file, "the command is not started: $what");
	unlink $file;
	return;
}

sub start_waiting
{
	my ($name, @arguments) = @_;
	my $run = start_program($node, @arguments);

	ok(defined await($watcher, "SELECT waiters FROM shedlock_locks WHERE name = '$name'", '1'), "$name: the program waits");
	return $run;
}

#
# Calls that are wrong
#

my @named = ('--name', 'wrong');
my $duration = qr/^shedlock: --\S+: ".*" is not a duration such as 30s, 5min, 2h or 1d$/;
refused(64, qr/^shedlock: --name is required$/, undef);
refused(64, $duration, undef, @named, "--lease=$_") foreach '', 'soon', '-5', '5 weeks', 'inf', '1.2.3', '1e3', '5s 5s', '5S';
refused(64, $duration, undef, @named, '--wait=x');
refused(64, $duration, undef, @named, '--at-most=x');
refused(64, $duration, undef, @named, '--kill-after=x');
refused(64, qr/--at-most must be positive/, undef, @named, '--at-most=0');
refused(64, qr/--lease is too short for --kill-after: it must be at least \d+\.\d\d s/, undef, @named, @$_)
  foreach [ '--lease=20s', '--kill-after=10s' ], ['--lease=0'], [ '--lease=500ms', '--kill-after=0' ];
refused(64, qr/"$_" is not a number of bytes from 0 to 4kB/, undef, @named, "--tail=$_") foreach 'x', '-1', '4097', '1.5';
refused(64, qr/is not a number of bytes from 0 to 4kB$/m, undef, @named, "--tail=$_") foreach '5kB', '1k';
refused(64, qr/"256" is not a number from 0 to 255/, undef, @named, '--busy-exit=256');
refused(64, qr/unrecognized option '--nonsense'\nTry "shedlock --help"\.$/, undef, @named, '--nonsense');
refused(64, qr/invalid option -- 'x'\nTry/, undef, @named, '-x');
refused(64, qr/^shedlock: --[a-z-]+ needs --schedule or --once-every$/, undef, @named, $_)
  foreach '--time-zone=UTC', '--attempts=2', '--backoff=1s', '--catch-up=all', '--max-late=1h', '--overdue-after=1h', '--slow-after=1h';
refused(64, qr/^shedlock: --once-every and --schedule exclude each other$/, undef, @named, '--once-every=1h', '--schedule=0 3 * * *');
refused(64, qr/^shedlock: --at-most of a job must be at least 1\.25 s$/, undef, @named, '--once-every=1h', '--at-most=1s');
my ($status, $out, $err) = run_program(undef, @named);
is("$status $err", "64 shedlock: there is no command to run\n", 'without a command');

refused(64, qr/^shedlock: /, $node, @named, @$_)
  foreach ['--schedule=nightly'], [ '--schedule=0 3 * * *', '--time-zone=Moon/Base' ], ['--at-least=2min'], ['--at-least=soon'],
  map { [ '--once-every=1h', $_ ] } '--catch-up=some', '--catch-up=none', '--attempts=0', '--attempts=many', '--backoff=soon', '--max-late=-1s',
  '--overdue-after=0', '--slow-after=0', '--description=' . 'x' x 256, '--time-zone=UTC+2';
refused(64, qr/^shedlock: /, $node, @named, "--once-every=$_") foreach '1 month', '-1h', 'soon', '';
refused(64, qr/^shedlock: invalid schedule: "30 seconds"\n.*\n.*"every 5 min"/, $node, @named, '--schedule=30 seconds');
refused(64, qr/^shedlock: /, $node, '--name', $_) foreach '', 'x' x 256, "\xff";
is(ask($watcher, 'SELECT (SELECT count(*) FROM shedlock_history), (SELECT count(*) FROM shedlock_jobs)'), '0|0', 'a call that is wrong declares no job, and begins no run');

#
# No server
#

my $standby = PostgreSQL::Test::Cluster->new('standby');
$node->backup('standby');
$standby->init_from_backup($node, 'standby', has_streaming => 1);
my $hba = $standby->data_dir . '/pg_hba.conf';
my $rules = slurp_file($hba);
unlink $hba;
append_to_file($hba, "local all locked scram-sha-256\n$rules");
$standby->start;
my $dead = PostgreSQL::Test::Cluster::get_free_port();
$node->safe_psql('postgres', 'CREATE DATABASE empty');
$standby->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'empty')");

@named = ('--name', 'unreachable');
refused(69, qr/^shedlock: .+\n\z/, $node, @named, "--dbname=port=$dead");
refused(69, qr/^shedlock: .+\n\z/, $node, @named, '--dbname=nowhere');
refused(69, qr/No such file or directory; Is the server running.*\?\n\z/, undef, @named, '--dbname=host=/nowhere');
refused(69, qr/database "empty" has no extension shedlock: CREATE EXTENSION shedlock$/, $node, @named, '--dbname=empty');
refused(69, qr/^shedlock: .+\n\z/, $standby, @named);
refused(69, qr/no password supplied; a password file .+ 0600\n\z/, $standby, @named, '--dbname=dbname=postgres user=locked');
refused(69, qr/read-only transaction/, $standby, @named, '--dbname=target_session_attrs=any');
is((run_program($node, "--name=$_", '--dry-run'))[0], 64, 'exit status 64 of --dry-run with ' . (length $_ ? 'a long name' : 'no name')) foreach '', 'n' x 256;
is((run_program($node, @named, "--dbname=$_", '--dry-run'))[0], 69, "exit status 69 of --dry-run in database $_") foreach 'nowhere', 'empty';

# --quiet-for: what was said on this host is not said again.
@named = ({ environment => { TMPDIR => $files } }, '--name=unreachable', "--dbname=port=$dead", '--quiet-for=1h');
my $failed = qr/^shedlock: connection to server .+\n\z/;
my $said = "$files/shedlock-$>";
refused(69, $_, $node, @named) foreach $failed, qr/^\z/, qr/^\z/;
like((run_program($node, @named, '--dry-run'))[2], $failed, '--dry-run says it');
refused(69, qr/database "nowhere" does not exist\n\z/, $node, @named, '--dbname=nowhere');
refused(69, qr/^\z/, $node, @named, '--dbname=nowhere');
is(scalar(() = glob "$said/*"), 2, 'a file for each text');
is(sprintf('%o', (stat $said)[2]), '40700', 'in a folder of the user');
utime time - 3601, time - 3601, glob "$said/*";
refused(69, $_, $node, @named) foreach $failed, qr/^\z/;
utime time - 3601, time - 3601, glob "$said/*";
my @at_once = map { start_program($node, @named, 'true') } 1 .. 8;
is(join('', sort map { $_->finish } @at_once), '69' x 8, 'of eight at once all fail');
is(scalar(grep { length } map { $_->err } @at_once), 1, 'one of them says why');
chmod 0777, $said;
refused(69, $failed, $node, @named);
chmod 0700, $said;
refused(69, $failed, $node, { environment => { TMPDIR => "$files/nowhere" } }, @named[ 1 .. $#named ]) foreach 1, 2;
refused(64, $duration, undef, '--name=wrong', '--quiet-for=soon');

# --dry-run checks what it is given.
@named = ('--name=dry', '--schedule=30 3 * * *', '--time-zone=Europe/Berlin', '--dry-run');
($status, $out, $err) = run_program($node, @named, '--at-least=1s', '--attempts=3', '--backoff=1min', '--max-late=1h', '--catch-up=all',
	'--overdue-after=1h', '--slow-after=2h', '--description=the whole of it', '--', 'true');
is("$status $err", '0 ', '--dry-run of a call that is right');
like($out, qr/^command: \/\S+\/true$/m, 'it shows where the command is');
my $ticks = ask($watcher, q{
SELECT string_agg(to_char(timezone('Europe/Berlin', tick), 'Dy YYYY-MM-DD HH24:MI'), ', ' ORDER BY tick)
FROM (SELECT shedlock_next_tick('30 3 * * *', 'Europe/Berlin', now() + d * interval '1 day') AS tick FROM generate_series(0, 2) d) t});
like($out, qr/^next ticks \(Europe\/Berlin\): \Q$ticks\E$/m, 'it shows the next three ticks in their zone');
is((run_program($node, @named, @$_, '--', 'true'))[0], 64, "exit status 64 of --dry-run with @$_")
  foreach map { [$_] } '--schedule=61 3 * * *', '--time-zone=Moon/Base', '--attempts=0', '--backoff=soon', '--at-least=2h', '--catch-up=some',
  '--once-every=1h', '--max-late=-1s', '--overdue-after=soon', '--slow-after=soon', '--description=' . 'x' x 256;
($status, $out, $err) = run_program($node, '--name=dry', '--once-every=90 s', '--dry-run', 'true');
like($out, qr/^next ticks \(UTC\): (?:[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:[03]0(?:, |$)){3}/m, 'the ticks of a period, with their seconds');
foreach my $case ([ 127, 'no-such-command' ], [ 127, '/no/such' ], [ 126, '/etc/passwd' ], [ 127, '' ])
{
	($status, $out, $err) = run_program($node, @named, '--', $case->[1]);
	is($status, $case->[0], "exit status $case->[0] of --dry-run with the command '$case->[1]'");
	like($err, qr/^shedlock: could not /, 'the message says so');
	like($out, qr/^next ticks/m, 'the ticks are shown all the same');
}
like((run_program($node, @named, '--', '/bin/true'))[1], qr/^command: \/bin\/true$/m, 'a command with its folder');
like((run_program($node, { wrapper => [ 'env', '-u', 'PATH' ] }, @named, '--', 'true'))[1], qr/^command: \/bin\/true$/m, 'a command without PATH');
foreach my $case ([ '2h', '7186.75', 10 ], [ '30s', '20.75', 7.5 ])
{
	my ($at_most, $term, $kill) = @$case;

	like((run_program($node, @named, "--at-most=$at_most", '--', 'true'))[1], qr/^at most: SIGTERM after \Q$term\E s, SIGKILL $kill s later$/m,
		"the end of a job that takes $at_most at most");
}
PostgreSQL::Test::Utils::append_to_file("$files/no-program", '');
is((run_program($node, { environment => { PATH => $files } }, @named, '--', 'no-program'))[0], 126, 'exit status 126 of --dry-run with a file in PATH that cannot be executed');
is((run_program($node, @named, '--time-zone=Moon/Base', '--', 'no-such-command'))[0], 64, 'the call counts more than the command');
is(join('', map { ask($watcher, "SELECT count(*) FROM $_ WHERE name = 'dry'") } '_shedlock_tick', '_shedlock_job', '_shedlock_history'), '000',
	'--dry-run leaves nothing');

@named = ('--name', 'unreachable');
foreach my $lease ([ '--lease=1s' ], [ '--lease=20s', '--kill-after=10s' ])
{
	my ($enough) = (run_program($node, @named, @$lease, '--', 'true'))[2] =~ /it must be at least (.*) s/;
	is((run_program($node, @named, @$lease, "--lease=${enough}s", '--dry-run'))[0], 0, "the lease that the message names is enough: @$lease");
}
$node->safe_psql('empty', 'CREATE ROLE blind LOGIN; REVOKE SELECT ON pg_extension FROM PUBLIC');
refused(69, qr/^shedlock: permission denied for table pg_extension$/, $node, @named, '--dbname=dbname=empty user=blind');

#
# Ways to the server.  The command shows that it runs, and that it has no settings of the
# connection.
#

my ($host, $port) = ($node->host, $node->port);
my $url_host = $host =~ s/([^\w.])/sprintf '%%%02X', ord $1/ger;
my $both = $standby->host . ",$host port=" . $standby->port . ",$port";
PostgreSQL::Test::Utils::append_to_file("$files/services",
	"[here]\nhost=$host\nport=$port\ndbname=postgres\nuser=postgres\nfallback_application_name=served\n[standby]\nhost=" . $standby->host . "\nport=" .
	$standby->port . "\ndbname=postgres\ntarget_session_attrs=any\n");
my %services = (environment => { PGSERVICEFILE => "$files/services", PGAPPNAME => undef });
my %ways = (
	'a name' => [ $node, 'postgres' ],
	'a connection string' => [ undef, "host=$host port=$port dbname=postgres" ],
	'a URI' => [ undef, "postgresql://postgres@/postgres?host=$url_host&port=$port" ],
	'a service' => [ undef, 'service=here', \%services ],
	'a URI with a service' => [ undef, 'postgresql:///postgres?service=here', \%services ],
	'the environment' => [$node],
	'the environment with a service' => [ undef, undef, { environment => { %{ $services{environment} }, PGSERVICE => 'here' } } ],
	'a dead host before the server' => [ undef, "host=$host,$host port=$dead,$port dbname=postgres" ],
	'a standby before the server' => [ undef, "host=$both dbname=postgres" ]);
foreach my $way (sort keys %ways)
{
	my ($where, $dbname, $options) = @{ $ways{$way} };
	my %given = %{ $options->{environment} || {} };
	my $asked = join ' ', map { "$_=" . ($given{$_} // '') } sort qw(PGSERVICE PGPASSWORD PGTARGETSESSIONATTRS);

	($status, $out, $err) = run_program($where, $options ? $options : (), '-n', 'way', defined $dbname ? ('-d', $dbname) : (),
		sh('echo "PGPASSWORD=$PGPASSWORD PGSERVICE=$PGSERVICE PGTARGETSESSIONATTRS=$PGTARGETSESSIONATTRS"'));
	is("$status $out$err", "0 $asked\n", "the server is reached by $way");
}
is(scalar(() = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /\] served LOG:  statement: .*shedlock_run_begin/g),
	3, 'a service may set what the program sets otherwise');
refused(69, qr/read-only/, $node, @$_)
  foreach [ '-n', 'way', '-d', "host=$both target_session_attrs=any" ],
  [ { environment => { PGTARGETSESSIONATTRS => 'any' } }, '-n', 'way', '-d', "host=$both" ],
  [ \%services, '-n', 'way', '-d', 'service=standby' ];
$standby->stop('immediate');

#
# Exit statuses of a command, and its run in the history
#

@named = ('--name', 'status');
my @endings = (
	[ 'true', 0, 'succeeded|0|' ],
	[ 'exit 3', 3, 'failed|3|exit status 3' ],
	[ 'exit 255', 255, 'failed|255|exit status 255' ],
	[ 'echo went wrong >&2; exit 1', 1, 'failed|1|went wrong' ],
	[ 'echo went well >&2', 0, 'succeeded|0|' ],
	[ 'kill -KILL $$', 137, 'failed|137|signal 9 (Killed)' ],
	[ 'kill -TERM $$', 143, 'failed|143|signal 15 (Terminated)' ]);
foreach my $ending (@endings)
{
	my ($command, $expected, $recorded) = @$ending;

	is((run_program($node, @named, sh($command)))[0], $expected, "exit status $expected of: $command");
	is(last_run('status', 'outcome, exit_code, message'), $recorded, "the history has the run of: $command");
}
is(ask($watcher, "SELECT count(*) FROM shedlock_history WHERE name = 'status'"), scalar(@endings), 'each run is in the history once');

PostgreSQL::Test::Utils::append_to_file("$files/plain", "#!/bin/sh\n");
foreach my $case ([ 126, "$files/plain", 'Permission denied' ], [ 126, $files, 'Permission denied' ],
	[ 127, "$files/nothing", 'No such file or directory' ], [ 127, 'no-such-command', 'No such file or directory' ])
{
	my ($expected, $command, $why) = @$case;

	($status, $out, $err) = run_program($node, @named, $command);
	is("$status $err", qq($expected shedlock: could not execute "$command": $why\n), "exit status $expected: $why");
	is(last_run('status', 'outcome, exit_code, message'),
		qq(failed|$expected|shedlock: could not execute "$command": $why), "the history says so: $why");
}

# The system refuses descriptors, before a run begins or afterwards, and then a process or
# a thread.
@named = ('--name', 'resources');
my %lacking;
# also where a container leaves a descriptor open
my $close = 'for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -le 2 ] || eval "exec $fd>&-"; done';
foreach my $descriptors (4 .. 8)
{
	($status, $out, $err) =
	  run_program($node, { wrapper => [ 'bash', '-c', "$close; ulimit -n $descriptors; exec \"\$@\"", 'bash' ] }, @named, 'touch', "$files/refused");
	# libpq 19 does not say that it has no socket
	my $why = $err =~ s/could not connect to the server\n\z/could not create socket: Too many open files\n/r;
	is($status, $why =~ /socket/ ? 69 : 71, "exit status with $descriptors descriptors");
	# what a build for coverage says is no message of the program
	like($why =~ s/^profiling:.*\n//mgr, qr/^shedlock: (?:connection to .*: )?could not [^:]+: Too many open files\n\z/, "the message says why with $descriptors descriptors");
	$lacking{$1}++ if $why =~ /could not ([a-z ]+\w)/;
}
ok(!-e "$files/refused", 'the command is never started');
is(join(', ', sort keys %lacking), 'create a pipe, create socket, open, prepare a run', 'what lacked a descriptor');
is(ask($watcher, "SELECT count(*) FROM shedlock_history WHERE name = 'resources' AND outcome = 'failed' AND exit_code = 71"),
	$lacking{'create a pipe'}, 'only without pipes a run has begun, and failed');
SKIP:
{
	# so that the stack of a thread takes more memory than there may be
	my $memory = 'ulimit -S -s 4194304; ulimit -v 2097152';

	skip 'the stack has a limit', 4 if system('bash', '-c', "($memory) 2>&1") != 0;
	my $run = start_program($node, { wrapper => [ 'bash', '-c', "$memory; exec \"\$@\"", 'bash' ] }, @named, 'sleep', '600');
	is($run->finish, 71, 'exit status 71 without a thread');
	like($run->err, qr/^shedlock: could not create a thread: /, 'the message says why');
	nothing_left($run, 'resources', 'without a thread');
}
SKIP:
{
	skip 'root may have any number of processes', 4 if $> == 0;
	refused(71, qr/^shedlock: could not create a process: /,
		$node, { wrapper => [ 'bash', '-c', 'ulimit -u 1; exec "$@"', 'bash' ] }, @named);
	is(last_run('resources', 'outcome, exit_code'), 'failed|71', 'a run without a process has failed');
}

# A program in a PID namespace of its own, as in a container
SKIP:
{
	my @apart = qw(unshare --user --map-current-user --pid --fork);

	skip 'this system has no namespaces for users', 6 if system("@apart --mount-proc true 2>$files/unshare") != 0;
	refused(71, qr/^shedlock: \/proc does not show this process: is it that of another PID namespace\?$/, $node, { wrapper => \@apart }, '--name=apart');
	ask($watcher, "SELECT shedlock_acquire('apart', '1 h')");
	my $run = start_program($node, { wrapper => [ @apart, '--mount-proc' ] }, '--name=apart', '--wait=1h', 'true');
	ok(defined await($watcher, "SELECT waiters FROM shedlock_locks WHERE name = 'apart'", '1'), 'the program is the first process of a namespace, and waits');
	kill 'TERM', $run->keeper;
	is($run->finish . $run->err, '143', 'TERM ends it, though the system lets no signal of its own end such a process');
	is(ask($watcher, "SELECT shedlock_release('apart'), waiters FROM shedlock_locks WHERE name = 'apart'"), 't|0', 'it does not wait any more');
}

#
# Not run
#

ask($watcher, "SELECT shedlock_acquire('busy', '1 h', locked_by => 'a stranger')");
refused($_->[0], $_->[1], $node, '--name=busy', @{ $_->[2] })
  foreach [ 75, qr/^\z/, [] ], [ 0, qr/^\z/, ['--busy-exit=0'] ], [ 9, qr/^\z/, ['--busy-exit=9'] ],
  [ 76, qr/^\z/, ['--busy-exit=76'] ],
  [ 75, qr/^shedlock: "[^"]*" was not run: It has been held by "a stranger.*" since /, ['--verbose'] ], [ 75, qr/was not run: It has been held/, ['-v'] ];
my $took = seconds { refused(75, qr/^\z/, $node, '--name=busy', '--wait=500ms') };
cmp_ok($took, '>=', 0.5, '--wait: the program waits that long');
ask($watcher, "SELECT shedlock_release('busy')");
ask($watcher, "SELECT shedlock_pause('busy', reason => 'moving house')");
refused(75, qr/^shedlock: "busy" was not run: It was paused by "postgres".*: moving house\.$/, $node, '--name=busy', '-v');
is(last_run('busy', 'count(*) OVER ()'), '', 'a call that is refused leaves no run');

@named = ('--name=daily', '--once-every=20000 days');
($status, $out, $err) = run_program($node, @named, '-v', sh('echo $SHEDLOCK_TICK $SHEDLOCK_ATTEMPT $SHEDLOCK_TOKEN'));
is($status, 0, '--once-every: the first call of a period runs');
my $run_of_day = last_run('daily', q{to_char(tick AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ' ' || attempt || ' ' || token});
is($out, "$run_of_day\n", 'the command knows its tick, its attempt and its token');
like($run_of_day, qr/^....-..-..T00:00:00Z 1 \d+$/, 'the tick is that of the day');
like($err, qr/^shedlock: job "daily" was created\nshedlock: run of "daily" with token \d+ begins\n\z/, '--verbose: the program says that it declares the job, and that a run begins');
refused(75, qr/^shedlock: "daily" was not run: Attempt 1 at tick .*; outcome: succeeded\..*The next tick is/, $node, @named, '-v');

# Other libraries warn, too.
SKIP:
{
	skip 'there is no auto_explain', 2 if error_of($node, "LOAD 'auto_explain'") ne 'no error';
	my $options = join ' ', map { "-c $_" } 'session_preload_libraries=auto_explain', 'auto_explain.log_min_duration=0', 'auto_explain.log_level=warning';
	($status, $out, $err) = run_program($node, { environment => { PGOPTIONS => $options } }, '--name=warned', sh('echo done'));
	is("$status $out", "0 done\n", 'a WARNING that is not about the standby does not keep a command from running');
	like($err, qr/^shedlock: duration: .*\nQuery Text: .*shedlock_run_begin/m, 'the WARNING is shown');
}

# The server can end a run that it cannot log.
my $unlogged = start_program($node, '--name=unlogged', until_there("$files/unlogged"));
my $history = session($node);
$unlogged->await_out(qr/ready/);
ask($history, "BEGIN; SELECT FROM _shedlock_history WHERE name = 'unlogged' FOR UPDATE");
touch("$files/unlogged");
is($unlogged->finish, 0, 'a run that is not logged: the exit status is that of the command');
like($unlogged->err, qr/^shedlock: could not record outcome "succeeded" of the run with token \d+: .* is locked.*\n\z/, 'the message says that it is not logged');
nothing_left($unlogged, 'unlogged', 'a run that is not logged');
$history->quit;

#
# Options of a job
#

# A tick of this minute, of a schedule that is due once a day.
foreach my $try (1 .. 5)
{
	my $tick = ask($watcher, "SELECT date_trunc('minute', now())");
	my $schedule = ask($watcher, "SELECT to_char('$tick'::timestamptz AT TIME ZONE 'Asia/Kolkata', 'FMMI FMHH24 * * *')");

	($status, $out) = run_program($node, "--name=zone$try", "--schedule=$schedule", sh('echo $SHEDLOCK_TICK'));
	is($status, 75, '--schedule: in UTC another time is meant');
	($status, $out) =
	  run_program($node, "--name=zone$try", "--schedule=$schedule", '--time-zone=Asia/Kolkata', sh('echo $SHEDLOCK_TICK'));
	next if $status == 75 && $tick ne ask($watcher, "SELECT date_trunc('minute', now())");
	is($status, 0, '--time-zone: the tick of this minute runs');
	is($out, ask($watcher, qq(SELECT to_char('$tick'::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))) . "\n",
		'SHEDLOCK_TICK is in UTC');
	is(ask($watcher, "SELECT schedule, time_zone FROM shedlock_jobs WHERE name = 'zone$try'"),
		"$schedule|Asia/Kolkata", 'the job has that schedule');
	last;
}

@named = ('--name=attempts', '--once-every=20000 days', '--attempts=2', '--backoff=1 ms');
foreach my $attempt (1, 2)
{
	($status, $out) = run_program($node, @named, sh('echo $SHEDLOCK_ATTEMPT; exit 1'));
	is("$status $out", "1 $attempt\n", "--attempts: attempt $attempt runs");
	is(last_run('attempts', 'attempt, gave_up'), $attempt . '|' . ($attempt == 2 ? 't' : 'f'), "the history has attempt $attempt");
}
refused(75, qr/No attempt is left/, $node, @named, '-v');
@named = ('--name=backoff', '--once-every=20000 days', '--attempts=2', '--backoff=1h');
is((run_program($node, @named, 'false'))[0], 1, '--backoff: the first attempt fails');
refused(75, qr/Attempt 2 of 2 is due at/, $node, @named, '-v');
refused(75, qr/^\z/, $node, '--name=late', '--once-every=20000 days', '--max-late=1 ms');
is((run_program($node, '--name=punctual', '--once-every=1 day', '--max-late=1 day', 'true'))[0], 0, '--max-late: not too late');
is((run_program($node, '--name=missed', '--once-every=20000 days', '--catch-up=all', 'true'))[0], 0, '--catch-up');

# The job is declared by each call that says what it is, and once for all.
sub declared
{
	my ($name, $columns) = @_;

	return ask($watcher, "SELECT $columns FROM shedlock_jobs WHERE name = '$name'");
}

my @whole = ('--name=whole', '--schedule=every 20000 days', '--time-zone=UTC', '--attempts=7', '--backoff=2min', '--catch-up=all',
	'--max-late=30000 days', '--overdue-after=1h', '--slow-after=90 min', '--description=Who, and why', '--at-most=2h');
my $whole = 'schedule, time_zone, attempts, backoff, catch_up, max_late, overdue_after, slow_after, lock_at_most_for, lock_at_least_for, description';
is((run_program($node, @whole, 'true'))[0], 0, 'a call that says all of its job');
is(declared('whole', $whole), 'every 20000 days|UTC|7|00:02:00|all|30000 days|01:00:00|01:30:00|02:00:00||Who, and why', 'it is declared');
is(last_run('whole', 'command'), 'Who, and why', 'the history has the description');
my $when = declared('whole', 'declared_at');
my $xid = ask($watcher, 'SELECT txid_snapshot_xmax(txid_current_snapshot())');
refused(75, qr/outcome: succeeded/, $node, @whole, '-v');
is(declared('whole', 'declared_at'), $when, 'the same call again changes nothing');
is(ask($watcher, 'SELECT txid_snapshot_xmax(txid_current_snapshot())'), $xid, 'and uses no transaction ID');
refused(75, qr/^shedlock: job "whole" was changed\nshedlock: "whole" was not run: /, $node, '--name=whole', '--once-every=20000 days', '-v');
is(declared('whole', $whole), 'every 20000 days|UTC|1|00:01:00|latest||00:05:00||||', 'what a call does not say has its default, and its command is not declared');
ask($watcher, "SELECT shedlock_job('asked', 'every 20000 days', attempts => 2, backoff => '1 ms', description => 'by SQL')");
is((run_program($node, '--name=asked', sh('echo $SHEDLOCK_ATTEMPT; exit 1')))[1], "$_\n", "without a schedule the job is as declared: attempt $_") foreach 1, 2;
refused(75, qr/No attempt is left/, $node, '--name=asked', '--description=another', '-v');
is(declared('asked', 'description'), 'by SQL', 'and stays so');
ask($watcher, "SELECT shedlock_job('asked', '* * * * *')");
is((run_program($node, '--name=asked', 'true'))[0], 0, 'one statement changes it for all hosts');

# A declaration that is refused
$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN');
refused(69, qr/^shedlock: permission denied for job "asked"\n  Role "postgres" has created it\.\n/, $node, '--dbname=user=stranger', '--name=asked', '--once-every=10 s');
is(declared('asked', 'schedule'), '* * * * *', 'the job stays as it is');
my $open = session($node);
ask($open, "BEGIN; SELECT shedlock_job('opened', 'every 20000 days')");
my $run = start_program($node, '--name=opened', '--once-every=20000 days', sh('echo runs'));
ok(defined await($watcher, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%shedlock_job(%opened%'}, '1'),
	'a call waits for the transaction that declares its job');
$run->signal('TERM');
is($run->finish . $run->err, 'signal TERM', 'TERM ends it');
$run = start_program($node, '--name=opened', '--once-every=20000 days', sh('echo runs'));
ok(defined await($watcher, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%shedlock_job(%opened%'}, '1'), 'another one waits');
ask($open, 'COMMIT');
is($run->finish . $run->out, "0runs\n", 'and runs');
$open->quit;

#
# A tick that is near: the program sleeps until then, without a connection.
#

# Starts a program whose first tick comes in some seconds, and returns that.
my $asleep = "application_name = 'asleep'";
sub start_early
{
	my ($early, $seconds, @arguments) = @_;
	my $tick = ask($watcher, qq(SELECT date_trunc('second', clock_timestamp() + interval '$seconds s')));

	return (start_program($node, '--dbname=application_name=asleep', "--name=$early", "--schedule=every 100 days from $tick", @arguments, sh('echo runs; date +%s.%N')), $tick);
}

my $soon = $slow < 4 ? 2 + 3 * $slow : 14;
my ($sleeper, $near) = start_early('sleeper', $soon);
ok(defined await($watcher, "SELECT count(*) FROM shedlock_jobs WHERE name = 'sleeper'", '1'), 'a call comes before its tick');
ok(defined await($watcher, "SELECT count(*) FROM pg_stat_activity WHERE $asleep", '0'), 'it has no connection meanwhile');
cmp_ok(ask($watcher, "SELECT extract(epoch FROM '$near' - clock_timestamp())"), '>', 0, 'its tick has not come');
ok(!$sleeper->has_ended, 'it waits for it');
my ($told_asleep) = start_early('told asleep', 25);
my ($impatient) = start_early('impatient', 25, '--wait=1s');
my ($far) = start_early('far', 60, '-v');
is($impatient->finish, 75, '--wait: not longer than that');
is($far->finish, 75, 'and not for a tick that is half a minute away');
like($far->err, qr/"far" was not run: /, 'which it says');
is($sleeper->finish . $sleeper->err, '0', 'it runs');
cmp_ok(($sleeper->out =~ /^runs\n(.*)/)[0], '>=', ask($watcher, "SELECT extract(epoch FROM '$near'::timestamptz)"), 'not before its tick');
is(last_run('sleeper', q{tick = '} . $near . q{', attempt}), 't|1', 'for that tick');
$told_asleep->signal('TERM');
is($told_asleep->finish . $told_asleep->out . $told_asleep->err, 'signal TERM', 'TERM ends a program that sleeps');
is(last_run('told asleep', 'token'), '', 'no run has begun');

# Two for one tick
my ($first, $tick_of_two) = start_early('two', $soon);
ok(defined await($watcher, "SELECT count(*) FROM shedlock_jobs WHERE name = 'two'", '1'), 'a call comes before its tick');
my $second = start_program($node, '--name=two', '-v', 'true');
is(join(' ', sort map { $_->finish } $first, $second), '0 75', 'of two that sleep until a tick, one runs');
is(ask($watcher, "SELECT count(*), bool_and(tick = '$tick_of_two') FROM shedlock_history WHERE name = 'two'"), '1|t', 'for that tick');

is((run_program($node, '--name=kept', '--at-least=50s', 'true'))[0], 0, '--at-least: the run succeeds');
is(ask($watcher, "SELECT state, remaining > '30 s' FROM shedlock_locks WHERE name = 'kept'"), 'kept|t', 'the lock is kept');
refused(75, qr/is kept until .* by its lock_at_least_for/, $node, '--name=kept', '-v');

# without the token, which the library adds
my $holder = q{regexp_replace(locked_by, ' #\d+$', '')};
$run = start_program($node, '--name=who', 'true', 'two words', 'more');
$run->finish;
my $user = getpwuid $>;
my $machine = (POSIX::uname())[1];
is(last_run('who', "$holder, command"), "$user\@$machine/" . $run->pid . q{|true 'two words' more}, 'the history says who ran what');
run_program($node, '--name=who', '--locked-by=the crew', '--description=stand around', 'true');
is(last_run('who', "$holder, command"), 'the crew|stand around', '--locked-by and --description');

# Any character
my $name = q{it's "100%s" \\ $HOME %n};
($status, $out, $err) = run_program($node, '--name', $name, '--locked-by', "$name by", '--description', "$name does",
	sh('printf "%s\n" "$SHEDLOCK_NAME" "$1" >&2; exit 1', 'sh', $name));
is("$status $err", "1 $name\n$name\n", 'a name with quotes, backslashes and percent signs');
is(last_run($name =~ s/'/''/gr, "$holder, command, message"), "$name by|$name does|$name\n$name", 'the history has it');
is((run_program($node, '--name=bytes', 'true', 'x' x 100_000))[0], 0, 'a long command line');
my @words = ('true', map { "word $_" } 1 .. 60_000);
is((run_program($node, '--name=words', @words))[0], 0, 'a command line of many words');
is(last_run('words', 'command'), substr("true '" . join("' '", @words[ 1 .. $#words ]), 0, 7999) . '...', 'the history has its start');
$took = seconds { run_program(undef, '--name=words', '--dbname=host=/nowhere', @words) };
my $others = seconds { run_program(undef, '--name=words', '--dbname=host=/nowhere', '--description=words', @words) };
cmp_ok($took, '<', 5 * $others + 1, 'a command line of many words is described in no time');

#
# Waiting for the lock
#

# Each waits for a lock of its own, at once.
my @ends = qw(TERM INT QUIT HUP ALRM);
my @waits = ('released', @ends);
ask($watcher, "SELECT shedlock_acquire('wait $_', '1 h')") foreach @waits;
my %waiting = map { $_ => start_waiting("wait $_", "--name=wait $_", '--wait=1h', sh('echo runs')) } @waits;
$waiting{released}->signal($_) foreach qw(USR1 USR2 CONT);
ask($watcher, "SELECT shedlock_release('wait released')");
is($waiting{released}->finish . $waiting{released}->out, "0runs\n", '--wait: the command runs when the lock is released, whatever signals came');
foreach my $signal (@ends)
{
	my $waiter = $waiting{$signal};

	$waiter->signal($signal);
	is($waiter->finish, "signal $signal", "$signal ends a program that waits");
	is($waiter->out . $waiter->err, '', "$signal: it says nothing");
	ask($watcher, "SELECT shedlock_release('wait $signal')");
	nothing_left($waiter, "wait $signal", $signal);
	is(last_run("wait $signal", 'token'), '', "$signal: no run has begun");
}

# A server that accepts the connection for the cancel, and does not answer
ask($watcher, "SELECT shedlock_acquire('unheard', '1 h')");
my $unheard = start_waiting('unheard', '--name=unheard', '--wait=1h', 'true');
kill 'STOP', $node->{_pid};
$unheard->signal('TERM');
is($unheard->finish, 'signal TERM', 'TERM ends a program that waits, whose cancel is not answered');
kill 'CONT', $node->{_pid};
ask($watcher, "SELECT shedlock_release('unheard')");

# A server that accepts the connection, and does not answer the first statement
ask($watcher, 'BEGIN; LOCK pg_extension');
my $early = start_program($node, '--name=early', 'true');
ok(defined await($watcher, "SELECT count(*) FROM pg_locks WHERE relation = 'pg_extension'::regclass AND NOT granted", 1), 'a program waits for its first answer');
$early->signal('TERM');
my $slow_end = seconds { is($early->finish, 'signal TERM', 'TERM ends it') };
cmp_ok($slow_end, '<', 20, 'at once');
ask($watcher, 'ROLLBACK');

# A cancel that arrives when its statement has ended: TERM comes just before the lock is
# released, and the server takes no connection meanwhile.
my $locker = session($node);
ask($watcher, "SELECT shedlock_acquire('too late', '1 h')");
my $too_late = start_waiting('too late', '--name=too late', '--wait=1h', 'true');
kill 'STOP', $node->{_pid};
$too_late->signal('TERM');
sleep(0.2);
$too_late->signal('STOP');
ask($watcher, "SELECT shedlock_release('too late')");
ok(defined await($watcher, "SELECT outcome FROM shedlock_history WHERE name = 'too late'", 'running'), 'its run begins');
ask($locker, 'BEGIN; LOCK TABLE shedlock IN SHARE MODE');
$too_late->signal('CONT');
sleep(0.2);
kill 'CONT', $node->{_pid};
ok(defined await($watcher, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%shedlock_run_end(%too late%' AND wait_event_type = 'Lock'", '1'),
	'its end is not recorded yet');
ask($locker, 'ROLLBACK');
reap($locker);
is($too_late->finish . $too_late->err, 'signal TERM', 'a cancel that comes too late cancels nothing else');
is(last_run('too late', 'outcome, message'), 'returned|the command was not started', 'the run is given back');

#
# Twenty at once
#

my @crowd = map { start_program($node, '--name=crowd', until_there("$files/crowd")) } 1 .. 20;
ok(eventually(sub { (grep { $_->has_ended } @crowd) == 19 }), 'of twenty programs nineteen end while one is at work');
is(join(' ', map { $_->{status} } grep { $_->has_ended } @crowd), join(' ', (75) x 19), 'they say that it is busy');
touch("$files/crowd");
is(join(' ', sort { $a <=> $b } map { $_->finish } @crowd), join(' ', 0, (75) x 19), 'one of twenty has run its command');
is(ask($watcher, "SELECT count(*) FROM shedlock_history WHERE name = 'crowd'"), '1', 'it is the only run');

#
# The times of a run, each at once
#

my $long = 60 * $slow . 's';
ask($watcher, "SELECT shedlock_job(name, 'every 20000 days', attempts => 2, backoff => '1h', lock_at_most_for => '" . 12 * $slow . " s') FROM unnest(ARRAY['limited', 'short']) name");
my %timed = (
	limited => start_program($node, '--name=limited', '--lease=' . 6 * $slow . 's', sh('sleep 600')),
	short => start_program($node, '--name=short', '--lease=1h', sh(q{trap '' TERM; sleep 600 & wait; sleep 600})),
	declared => start_program($node, '--name=declared', '--once-every=20000 days', '--lease=1h', '--at-most=' . 3 * $slow . 's', sh('sleep 600')),
	obeys => start_program($node, '--name=obeys', '--at-most=300ms', sh('sleep 600')),
	ignores => start_program($node, '--name=ignores', '--at-most=' . 0.3 * $slow . 's', '--kill-after=300ms', sh(q{trap '' TERM; sleep 600 & wait; sleep 600})),
	extended => start_program($node, '--name=extended', '--lease=' . 2 * $slow . 's', sh('sleep ' . 3 * $slow . '; exit 3')),
	taken => start_program($node, '--name=taken', '--lease=' . 3 * $slow . 's', sh('echo work >&2; echo ready; sleep 600')));
ok($timed{taken}->await_out(qr/ready/), 'a command is at work');
ask($watcher, "SELECT shedlock_force_release('taken')");

#
# Signals of a run that is at work
#

# without what the shell says when it is told that a sleep was ended
my $traps = 'exec 2>/dev/null; for s in TERM INT QUIT HUP ALRM USR1 USR2 CONT; do trap "echo got $s" $s; done; echo ready; until [ -e %s ]; do sleep 0.05; done; exit 5';
my %at_work;
foreach my $signal (qw(TERM INT QUIT))
{
	$at_work{$signal} = start_program($node, "--name=at work $signal", "--lease=$long", sh(sprintf $traps, "$files/$signal"));
}
foreach my $signal (qw(TERM INT QUIT))
{
	my $worker = $at_work{$signal};

	ok($worker->await_out(qr/ready/), "$signal: the command is at work");
	if ($signal eq 'TERM')
	{
		foreach my $passed (qw(HUP ALRM USR1 USR2 CONT))
		{
			$worker->signal($passed);
			ok($worker->await_out(qr/got $passed\n/), "$passed is passed on to the command");
		}
		is(ask($watcher, "SELECT outcome FROM shedlock_history WHERE name = 'at work TERM'"), 'running', 'it runs all the same');
	}
	$worker->signal($signal);
	ok($worker->await_out(qr/got $signal\n/), "$signal is passed on to the command");
	touch("$files/$signal");
	is($worker->finish, 5, "the exit status is the command's after $signal");
	is(last_run("at work $signal", 'outcome, exit_code'), 'returned|5', "$signal: the run is given back");
	like(last_run("at work $signal", 'message'), qr/^the program got signal \d+ \(/, "$signal: the history says why");
	nothing_left($worker, "at work $signal", $signal);
}

# A run that is given back uses up no attempt: the next caller makes it, at once.
my @given = ('--name=given back', '--once-every=20000 days', "--lease=$long");
foreach my $time (1, 2)
{
	$run = start_program($node, @given, sh('echo $SHEDLOCK_ATTEMPT; exec sleep 600'));
	is($run->await_out(qr/\n/) && $run->out, "1\n", "the first attempt of one is at work, for the $time. time");
	$run->signal('TERM');
	is($run->finish, 143, 'TERM ends it');
}
is(join(' ', run_program($node, @given, sh('echo $SHEDLOCK_ATTEMPT'))), "0 1\n ", 'another caller makes it');
is(ask($watcher, "SELECT string_agg(outcome, ', ' ORDER BY token) FROM shedlock_history WHERE name = 'given back'"), 'returned, returned, succeeded', 'the history has all three');

is((run_program($node, '--name=limits', sh('ulimit -d')))[1], `sh -c 'ulimit -d'`, 'the command has the limits of the caller');

# However many processes the command has left, each is told to end.
my $children = q{$SIG{TERM} = sub { syswrite STDOUT, "told\n"; exit }; for (1 .. 1000) { defined(my $pid = fork) or die $!; next if $pid; sleep 600; exit } };
$run = start_program($node, '--name=many', '--lease=10min', '--kill-after=2min', '--', $^X, '-e', $children);
is($run->finish, 0, 'a command leaves many processes running');
is(scalar(() = $run->out =~ /^told$/mg), 1000, 'each is told to end');

# A stopped command keeps its lock.
my $stopped = start_program($node, '--name=stopped', '--lease=' . 3 * $slow . 's', sh("echo ready; sleep 0.1; until [ -e $files/stopped ]; do sleep 0.05; done"));
ok($stopped->await_out(qr/ready/), 'a command is at work');
$stopped->signal('TSTP');
# A shell whose child is stopped between vfork and exec sleeps until it goes on, as "D".
ok(eventually(sub { join('', $stopped->command_states) =~ /^D*T[DT]*$/ }) || diag($stopped->command_states), 'TSTP stops the command');
my $until = ask($watcher, "SELECT lock_until FROM shedlock_locks WHERE name = 'stopped'");
ok(defined await($watcher, "SELECT lock_until > '$until' FROM shedlock_locks WHERE name = 'stopped'"), 'its lease is extended');
$stopped->signal('CONT');
touch("$files/stopped");
is($stopped->finish, 0, 'CONT lets it go on');

# A service manager sends TERM to all processes.  The command has ended when its guardian hears
# of it, and the guardian when the keeper reads its reports: its session was terminated when it
# extended the lease.
$run = start_program($node, '--name=all told', '--dbname=application_name=told', "--lease=$long", sh('echo $SHEDLOCK_TOKEN; exec sleep 600'));
ok($run->await_out(qr/\n/), 'a command is at work');
chomp(my $token_told = $run->out);
my $told_backend = "FROM pg_stat_activity WHERE application_name = 'told'";
ok(defined await($watcher, "SELECT count(*) $told_backend AND state = 'idle' AND query LIKE '%LISTEN shedlock'", '1'), 'the program LISTENs');
$locker = session($node);
ask($locker, 'BEGIN; LOCK TABLE shedlock IN SHARE MODE');
ask($watcher, qq(SELECT pg_notify('shedlock', '"$token_told"')));
ok(defined await($watcher, "SELECT count(*) $told_backend AND wait_event_type = 'Lock'", '1'), 'its lease is not extended yet');
my $guardian = $run->guardian;
my $is_guardian = sub { my ($state) = @_; return eventually(sub { join('', HostProgram::states($guardian)) eq $state }) };
kill 'STOP', $guardian;
ok($is_guardian->('T'), 'its guardian is stopped');
kill 'TERM', $run->command_processes;
$run->signal('TERM');
sleep(0.2);
kill 'CONT', $guardian;
ok($is_guardian->('Z'), 'its guardian has ended');
ask($watcher, "SELECT pg_terminate_backend(pid) $told_backend");
ask($locker, 'ROLLBACK');
reap($locker);
is($run->finish, 143, 'TERM ends the command and reaches the program');
is(last_run('all told', 'outcome, exit_code, message'), 'returned|143|the program got signal 15 (Terminated)', 'the run is given back');

# An alarm that was set before the program was executed
$run = start_program($node, { before => sub { alarm(3 * $slow) } }, '--name=alarm', sh('exec sleep 600'));
is($run->finish, 142, 'an alarm of the caller ends the command, as without the program');
is(last_run('alarm', 'outcome, exit_code, message'), 'failed|142|signal 14 (Alarm clock)', 'its run has failed');

# The signal of the program's timer, from another process
$run = start_program($node, '--name=no timer', sh('echo ready; sleep 2; exit 3'));
ok($run->await_out(qr/ready/), 'a command is at work');
$run->signal(POSIX::SIGRTMIN());
is($run->finish, 3, 'a real-time signal of another process does not end the lease');

# A command that has left its process group
$run = start_program($node, '--name=moved', "--lease=$long", '--', $^X, '-e', '$| = 1; setpgrp(0, getppid); print "ready\n"; sleep 600');
ok($run->await_out(qr/ready/), 'a command is in the process group of the guardian');
$run->signal('TERM');
is($run->finish, 143, 'TERM reaches it');

# timeout(1) sends a signal to the process, and then to its group: that is one signal.  On a slow
# machine the second one can come so late that it is another one.
my $as_one = 0;

foreach my $try (1 .. 5)
{
	my $told = start_program($node, "--name=told twice $try", sh('trap "sleep 0.5; echo cleaned up; exit 0" TERM; echo begun; sleep 30 & wait'));

	ok($told->await_out(qr/begun/), 'the command has begun');
	kill 'TERM', ($told->keeper) x 2;
	$as_one += $told->finish . ': ' . $told->out eq "0: begun\ncleaned up\n";
	last if $as_one == 3;
}
is($as_one, 3, 'a signal that comes twice at once is one, and the command has time to end: three times of five at most');

# Two signals to end the command within a second kill it.
my $stubborn = start_program($node, '--name=stubborn', '--lease=1h', '--kill-after=20min', sh(q{trap 'echo no' TERM; echo ready; while :; do sleep 0.05; done}));
ok($stubborn->await_out(qr/ready/), 'a command is at work that does not end by TERM');
$stubborn->signal('TERM');
ok($stubborn->await_out(qr/no\n/), 'it has got the first TERM');
sleep(1.2);
ok(!$stubborn->has_ended, 'the first TERM does not kill it');
ok(eventually(sub { $stubborn->signal('TERM'); sleep(0.1); $stubborn->has_ended }), 'two within a second kill it');
is($stubborn->finish, 137, 'its exit status is that of KILL');
is(last_run('stubborn', 'outcome, exit_code'), 'returned|137', 'its run is given back');

is($timed{obeys}->finish, 124, '--at-most: the exit status is 124');
like($timed{obeys}->err, qr/^shedlock: "sh" was ended at --at-most$/m, 'the message says so');
is(last_run('obeys', 'outcome, exit_code, message'), 'timed out|143|signal 15 (Terminated)', 'the history says so');
is($timed{ignores}->finish, 124, '--at-most: the exit status of a command that ignores TERM');
is(last_run('ignores', 'outcome, exit_code, message'), 'timed out|137|signal 9 (Killed)', '--kill-after: it was killed');
is($timed{extended}->finish, 3, 'a run takes longer than its lease');
foreach my $case ([ limited => 'the lock_at_most_for of its job', 143 ], [ short => 'the lock_at_most_for of its job', 137 ], [ declared => '--at-most', 143 ])
{
	my ($limited, $limit, $code) = @$case;

	is($timed{$limited}->finish, 124, "$limited: the exit status of a run that its job limits");
	like($timed{$limited}->err, qr/^shedlock: "sh" was ended at $limit$/m, "$limited: the message says so");
	is(last_run($limited, 'outcome, exit_code, duration < ' . ($limited eq 'declared' ? 3 : 12) * $slow . " * interval '1 s'"), "timed out|$code|t",
		"$limited: it has timed out, and was over in time");
}
is($timed{taken}->finish, 76, 'the exit status is 76 after force_release');
like($timed{taken}->err, qr/^work\n.*shedlock: lock "taken" was lost\n\z/ms, 'the message says so');
is(join(' ', $timed{taken}->processes), '', 'its command is gone');
nothing_left($timed{$_}, $_, $_) foreach qw(obeys ignores extended limited short declared);

#
# What the command leaves running
#

# Its successor looks for the processes as soon as it has the lock.
my $leaving = start_program($node, '--name=leaving', '--lease=' . 20 * $slow . 's',
	sh("MARK=$files; export MARK; " . q{sleep 600 & setsid sleep 600 & (setsid sh -c 'sleep 600 & sleep 600' &) ; nohup sleep 600 >/dev/null 2>&1 & echo ready}));
ok($leaving->await_out(qr/ready/), 'a command leaves processes running');
my $successor = start_program($node, '--name=leaving', '--wait=1h',
	sh(qq(echo looking; grep -lsazFx "MARK=$files" /proc/[0-9]*/environ)));
is($leaving->finish, 0, 'its exit status is that of the command');
like($leaving->err, qr/^shedlock: "sh" has left processes running: they are ended, too$/m, 'the program says so');
$successor->finish;
is($successor->out, "looking\n", 'its successor finds no process');
nothing_left($leaving, 'leaving', 'processes in the background');

($status, $out, $err) = run_program($node, '--name=pipeline', sh('(sleep 0.1; echo last words) & exit 4'));
is("$status $out$err", "4 last words\n", 'what ends by itself within a second is let do so');

# TERM reaches what has left the command's group when the command has ended.
my $away = start_program($node, '--name=away', '--lease=1h', '--kill-after=20min', sh("setsid sh -c 'echo ready; exec sleep 600'; true"));
ok($away->await_out(qr/ready/), 'a process has a session of its own');
$away->signal('TERM');
is($away->finish, 143, 'TERM ends the command, and then that process');
nothing_left($away, 'away', 'TERM');

# The list of the processes is longer than what the program reads of it at once.
my $many = start_program($node, '--name=many', "--lease=$long", '--', $^X, '-e',
	'$| = 1; fork // die or sleep 600 foreach 1 .. 850; print "ready\n"; sleep 600');
ok($many->await_out(qr/ready/), 'a command has 850 processes');
kill 'KILL', $many->guardian;
is($many->finish, 137, 'its guardian is killed');
nothing_left($many, 'many', 'a guardian killed');

# A command that takes its time to die, as one does that waits in the kernel: this test traces
# it, so that it cannot be reaped before this test has waited for it.
SKIP:
{
	my $orphan = start_program($node, '--name=dying', '--lease=' . 3 * $slow . 's', sh('echo ready; exec sleep 600'));

	ok($orphan->await_out(qr/ready/), 'a command is at work');
	my ($dying) = $orphan->command_processes;
	my $traced = eval { require 'syscall.ph'; syscall(SYS_ptrace(), 0x4206, $dying + 0, 0, 0) == 0 };    # PTRACE_SEIZE
	kill 'KILL', $orphan->guardian;
	skip 'this system does not let a process be traced', 3 unless $traced;
	my $until = ask($watcher, "SELECT lock_until FROM shedlock_locks WHERE name = 'dying'");
	ok(defined await($watcher, "SELECT lock_until > '$until'::timestamptz + '" . 3 * $slow . " s' FROM shedlock_locks WHERE name = 'dying'"),
		'the guardian is killed, and the lease is extended until the command is dead');
	waitpid $dying, 0;
	is($orphan->finish, 137, 'the program ends when it is');
	is(last_run('dying', 'outcome, exit_code'), 'failed|137', 'the run has failed');
}

# A child of the program that is not its own, as the first process of a container gets them
my $adopting = start_program($node, { wrapper => [ 'sh', '-c', 'sleep 0.3 & exec "$@"', 'sh' ] }, '--name=adopting', '--lease=' . 3 * $slow . 's', sh('echo ready; sleep 600'));
ok($adopting->await_out(qr/ready/), 'the program has a child that it did not start');
ok(eventually(sub { 1 == split ' ', slurp_file("/proc/$adopting->{pid}/task/$adopting->{pid}/children") }), 'no zombie is left of it');
$adopting->signal('TERM');
is($adopting->finish, 143, 'TERM ends the command');

#
# What the command gets
#

# Everything in the environment stays as it is.
my %stale = (SHEDLOCK_NAME => 'stale', SHEDLOCK_TOKEN => '-1', SHEDLOCK_TICK => 'stale', SHEDLOCK_ATTEMPT => '-1', PGPASSWORD => 'secret');
$run = start_program($node, { environment => \%stale }, '--name=environment', 'env', '-0');
is($run->finish, 0, 'a command shows its environment');
my %seen = map { /(.*?)=(.*)/s } split /\0/, $run->out;
my $token = last_run('environment', 'token');
is_deeply(
	\%seen, {
		%ENV, HOST_PROGRAM => $seen{HOST_PROGRAM}, PGHOST => $host, PGPORT => $port, PGDATABASE => 'postgres',
		PGPASSWORD => 'secret', SHEDLOCK_NAME => 'environment', SHEDLOCK_TOKEN => $token },
	'its environment is that of the program, and nothing in it is stale');

# Signals: nothing is blocked, and what the caller ignores stays ignored.
my @signals = ('--name=signals', '--', 'grep', '-E', '^Sig(Blk|Ign)', '/proc/self/status');
sub ignored
{
	my $bits = 0;

	$bits |= 1 << POSIX->can("SIG$_")->() - 1 foreach @_;
	return sprintf "SigBlk:\t%016x\nSigIgn:\t%016x\n", 0, $bits;
}
my ($none, $hup) = (ignored(), ignored('HUP'));
my $all = sub { POSIX::sigprocmask(POSIX::SIG_SETMASK, POSIX::SigSet->new(map { POSIX->can("SIG$_")->() } qw(TERM ALRM CHLD USR1))) };
is((run_program($node, @signals))[1], $none, 'no signal is blocked or ignored');
is((run_program($node, { before => $all }, @signals))[1],
	$none, 'signals that the caller blocks are not blocked');
is((run_program($node, { wrapper => ['nohup'] }, @signals))[1],
	$hup, 'after nohup HUP stays ignored');
$run = start_program($node, { before => $all }, '--name=signals', sh('echo ready; sleep 600'));
ok($run->await_out(qr/ready/), 'a command is at work, and its caller blocked TERM');
$run->signal('TERM');
is($run->finish, 143, 'TERM ends it');
$run = start_program($node, '--name=signals', '--kill-after=20s', sh('trap "" INT; echo ready; sleep 600'));
ok($run->await_out(qr/ready/), 'a command is at work that ignores INT');
$run->signal($_) foreach qw(INT TERM);
is($run->finish, 143, 'TERM ends it, although it comes right after INT');
is((run_program($node, { before => sub { $SIG{CHLD} = 'IGNORE' } }, '--name=signals', 'false'))[0], 1,
	'the exit status is known if the caller ignores CHLD');
my @unusual = qw(PIPE XFSZ CHLD ALRM USR1);
is((run_program($node, { before => sub { $SIG{$_} = 'IGNORE' foreach @unusual } }, @signals))[1], ignored(@unusual), 'signals that the caller ignores stay ignored');
is((run_program($node, '--name=group', sh('read a b c d group rest </proc/$$/stat; [ $group = $$ ]')))[0], 0, 'the command leads its process group');

# No descriptor of the program reaches the command.
foreach my $options ([], ['--tail=0'])
{
	my $clean = sub { POSIX::close($_) foreach 3 .. 1023 };

	is((run_program($node, { before => $clean }, '--name=descriptors', @$options, sh('ls /proc/self/fd; exit 1')))[1],
		"0\n1\n2\n3\n", "the command has three descriptors, and ls a fourth: @$options");
}

# Standard input
PostgreSQL::Test::Utils::append_to_file("$files/input", "some input\n");
pipe my $reader, my $writer or die "pipe: $!";
syswrite $writer, "from a pipe\n";
close $writer;
is((run_program($node, { stdin => "$files/input" }, '--name=stdin', 'cat'))[1], '', 'the command reads nothing of a file');
is((run_program($node, { stdin => $reader }, '--name=stdin', 'cat'))[1], '', 'nor of a pipe');
is(do { local $/; <$reader> }, "from a pipe\n", 'which is left as it was');
close $reader;

#
# Output
#

# --tail, in databases of three encodings
$node->safe_psql('postgres', "CREATE DATABASE $_ TEMPLATE template0 ENCODING $_ LOCALE 'C'") foreach qw(UTF8 LATIN1);
$node->safe_psql($_, 'CREATE EXTENSION shedlock') foreach qw(utf8 latin1);
sub message_of
{
	my ($dbname, $bytes, @options) = @_;

	run_program($node, '-d', $dbname, '--name=tail', @options, sh("printf '%b' '$bytes' >&2; exit 1"));
	return $node->safe_psql($dbname, "SELECT encode(convert_to(message, 'UTF8'), 'escape') FROM shedlock_history ORDER BY token DESC LIMIT 1");
}
# what convert_to and encode make of a text
my $euro = '\\342\\202\\254';
is(message_of('utf8', '\0342\0202\0254 end\n\n'), "$euro end", 'a message has any character, and no newline at its end');
is(message_of('utf8', '\0342\0202\0254 end', '--tail=0'), 'exit status 1', '--tail=0');
is(message_of('utf8', '1234567890\0342\0202\0254', '--tail=10'), "4567890$euro", '--tail=10');
is(message_of('utf8', '\0342\0202\0254' . '123456789\n', '--tail=10'), '123456789', '--tail=10 and a newline');
is(message_of('utf8', '\0342\0202\0254' . '12345678', '--tail=10'), '12345678', 'a character that is cut is left out');
is(message_of('utf8', '\0342\0202\0254' . 'x' x 4095, '--tail=4kB'), 'x' x 4095, 'the same at the end of 4 kB');
# bytes, and which of them are no characters
my @bytes = ([ 'f0 9d 84 9e  e0 a0 80  ed 9f bf  f0 90 80 80  f4 8f bf bf' ],
	[ 'e0 9f 80  ed a0 80  f0 8f 80 80  f4 90 80 80  c1 80  f5 80 80 80', 'all' ], [ 'e2 82 41', 'e2 82' ], [ 'f0 9d 84', 'all' ]);
foreach my $case (@bytes)
{
	my ($bytes, $wrong) = @$case;
	my @all = split ' ', $bytes;
	my %wrong = map { $_ => 1 } split ' ', ($wrong // '') eq 'all' ? $bytes : $wrong // '';
	my $expected = join '', map { $wrong{$_} ? "\\\\x$_" : hex > 127 ? sprintf '\\%o', hex : chr hex } @all;

	is(message_of('utf8', join '', map { sprintf '\0%o', hex } @all), $expected, "characters of UTF-8: $bytes" . ($wrong ? '' : ', all valid'));
}
is(message_of('utf8', '\0377' x 4, '--tail=10'), '\\\\xff' x 2, '--tail=10 counts what is shown instead of bytes');
is(message_of('latin1', '\0342\0202\0254ab', '--tail=10'), 'ab', 'and leaves out whole characters');
is(message_of('utf8', 'a\0377\0000\0303b'), 'a\\\\xff\\\\x00\\\\xc3b', 'bytes that are no characters');
is(message_of('utf8', '\0244 abc\n'), '\\\\xa4 abc', 'a byte at the start that is no character');
is(message_of('latin1', 'caf\0303\0251 \0377'), 'caf\\\\xc3\\\\xa9 \\\\xff', 'in a database of another encoding, other characters than those of ASCII');
{
	local $ENV{PGCLIENTENCODING} = 'SJIS';
	is(message_of('utf8', '\0342\0202\0254'), $euro, 'the encoding that the user has set does not matter');
}
foreach my $dbname ('utf8', 'latin1')
{
	my $expected = $dbname eq 'utf8' ? $euro : '\\\\xe2\\\\x82\\\\xac';

	is((run_program($node, '-d', $dbname, '--name=bytes', 'true', "caf\xe9", "\xe2\x82\xac"))[0], 0, "$dbname: an argument may have any bytes");
	is($node->safe_psql($dbname, "SELECT encode(convert_to(command, 'UTF8'), 'escape') FROM shedlock_history ORDER BY token DESC LIMIT 1"),
		"true caf\\\\xe9 $expected", "$dbname: the history shows them");
}

# more than the socket holds
is((run_program($node, '-d', 'latin1', '--name=bytes', 'true', ("\xff" x 100_000) x 4))[0], 0, 'a long statement');
like($node->safe_psql('latin1', 'SELECT command FROM shedlock_history ORDER BY token DESC LIMIT 1'), qr/^true (\\xff){2000}/, 'arrives');

# Closed descriptors
foreach my $closed ('>&-', '2>&-', '<&-', '<&- >&- 2>&-')
{
	is((run_program($node, { wrapper => [ 'sh', '-c', qq(exec "\$@" $closed), 'sh' ] }, '--name=closed', '--lease=' . 2 * $slow . 's', sh('echo went wrong >&2; sleep 0.5; exit 3')))[0],
		3, "the program runs with $closed");
	is(last_run('closed', 'outcome, exit_code, message'), 'failed|3|went wrong', "the history has its run with $closed");
}

# A pipe whose reader is gone
pipe $reader, $writer or die "pipe: $!";
close $reader;
is((run_program($node, { stderr => $writer }, '--name=closed', sh('echo went wrong >&2; exit 3')))[0], 3, 'the program runs without a reader');
is(last_run('closed', 'outcome, exit_code, message'), 'failed|3|went wrong', 'the history has its run');
close $writer;

# A file at the limit of its size
open my $log, '>', "$files/log" or die "$files/log: $!";
syswrite $log, 'x' x 1024;
is((run_program($node, { stderr => $log, wrapper => [ 'bash', '-c', 'ulimit -S -f 1; exec "$@"', 'bash' ] }, '--name=limit', '-v', sh('echo went wrong >&2; exit 3')))[0],
	3, 'the program runs with a log that cannot grow');
is(last_run('limit', 'outcome, exit_code, message'), 'failed|3|went wrong', 'the history has its run');
close $log;

sub full_pipe
{
	pipe my $reader, my $writer or die "pipe: $!";
	fcntl $writer, F_SETFL, O_NONBLOCK;
	1 while syswrite $writer, 'x' x 4096;
	1 while syswrite $writer, 'x';
	return ($reader, $writer);
}

# A pipe that is full and does not block, and whose reader comes back
($reader, $writer) = full_pipe();
$run = start_program($node, { stderr => $writer }, '--name=late reader', "--lease=$long",
	sh("echo went wrong >&2; echo ready; until [ -e $files/read ]; do sleep 0.05; done"));
ok($run->await_out(qr/ready/), 'a command has written to a pipe that is full');
sleep(0.2);
my $late = '';
fcntl $reader, F_SETFL, O_NONBLOCK;
ok(eventually(sub { sysread $reader, $late, 65536, length $late; $late =~ /x{4096}went wrong\n\z/ }), 'its reader gets all of it');
touch("$files/read");
is($run->finish, 0, 'the run succeeds');
close $reader;
close $writer;

# A reader that pauses when the command has ended, which a pipe full of output shows
pipe $reader, $writer or die "pipe: $!";
$run = start_program($node, { stderr => $writer }, '--name=pause', "--lease=$long", sh('head -c 100000 /dev/zero >&2'));
close $writer;
sleep(3);
is(length(do { local $/; <$reader> }), 100_000, 'a reader that pauses for three seconds gets all of it');
is($run->finish, 0, 'the run succeeds');
close $reader;

# The lease is over: its keeper is stopped, so that nothing extends it.
pipe $reader, $writer or die "pipe: $!";
$run = start_program($node, { stderr => $writer }, '--name=over', '--lease=' . 6 * $slow . 's', '--kill-after=' . 2 * $slow . 's',
	sh("trap 'head -c 100000 /dev/zero >&2; exit' TERM; echo ready; while :; do sleep 0.05; done"));
close $writer;
ok($run->await_out(qr/ready/), 'a command is at work, and its reader pauses');
my $keeper = $run->keeper;
kill 'STOP', $keeper;
my $seen = time;
ok(eventually(sub { my @there = $run->command_processes; $seen = time if @there; return !@there }), 'it ends with the lease');
sleep(0.2);
kill 'CONT', $keeper;
my $paused = time - $seen;
my $read = do { local $/; <$reader> };
SKIP:
{
	skip sprintf('the reader has paused for %.1f s, and the program waits for one second', $paused), 1 if $paused > 0.9;
	like($read, qr/\A(?:Terminated\s+)?(?:\0{50000}){2}shedlock: lock "over" was lost\n\z/, 'a reader that pauses at the end of the lease gets all of it');
}
is($run->finish, 76, 'the exit status of a lost lock');
close $reader;

# TERM ends such a wait.
($reader, $writer) = full_pipe();
fcntl $writer, F_SETFL, 0;
$run = start_program($node, { stderr => $writer }, '--name=no pause', "--lease=$long", sh("echo went wrong >&2; echo ready; until [ -e $files/pause ]; do sleep 0.05; done"));
ok($run->await_out(qr/ready/), 'a command is at work, and nobody reads its output');
touch("$files/pause");
ok(eventually(sub { !$run->command_processes }), 'it ends');
$run->signal('TERM');
$took = seconds { is($run->finish, 0, 'TERM does not change its exit status') };
cmp_ok($took, '<', 8, 'the program does not wait for its reader any more');
close $reader;
close $writer;

# A pipe that is full, and that nobody reads
($reader, $writer) = full_pipe();
fcntl $writer, F_SETFL, 0;
my @full = ({ stderr => $writer }, '--lease=' . 2 * $slow . 's', '--kill-after=' . 0.5 * $slow . 's');
my %unread = (
	'full' => start_program($node, @full, '--name=full', '-v', sh('echo begun >&2; sleep 0.2; echo went wrong >&2; sleep 600 & sleep ' . 3 * $slow . '; exit 3')),
	'full and lost' => start_program($node, @full, '--name=full and lost', sh('sleep 600')));
if ($ENV{SHEDLOCK_SKEW})
{
	# as if the clock was set back by an hour, whenever the program has looked at it
	PostgreSQL::Test::Utils::append_to_file("$files/ahead", pack('q', 3600 * 1_000_000));
	$unread{'set back'} = start_program($node, { stderr => $writer, environment => { LD_PRELOAD => $ENV{SHEDLOCK_SKEW}, SKEW_FILE => "$files/ahead" } },
		'--name=set back', $full[1], sh('echo went wrong >&2; exit 3'));
}
ok(defined await($watcher, "SELECT count(*) FROM shedlock_locks WHERE name LIKE 'full%' AND state = 'held'", '2'), 'two programs have no reader');
ask($watcher, "SELECT shedlock_force_release('full and lost')");
is($unread{'full and lost'}->finish, 76, 'without a reader: the exit status of a lost lock');
is($unread{full}->finish, 3, 'without a reader: the lock is kept');
is(last_run('full', 'outcome, exit_code, message'), "failed|3|begun\nwent wrong", 'without a reader: the history has the run, and what was not read');
is($unread{'set back'}->finish, 3, 'without a reader: it does not matter that the clock is set back') if $unread{'set back'};
nothing_left($unread{$_}, $_, 'without a reader') foreach sort keys %unread;
close $reader;
close $writer;

#
# Other options
#

($status, $out, $err) = run_program(undef, '--help');
like($out, qr/^Usage:$/m, '--help');
is(join(' ', run_program(undef, '--version')), '0 shedlock ' . ask($watcher, "SELECT extversion FROM pg_extension WHERE extname = 'shedlock'") . "\n ",
	'--version');

ask($watcher, "SELECT shedlock_acquire('dry', '1 h', locked_by => 'a stranger')");
($status, $out, $err) = run_program($node, '--name=dry', '--dry-run', '--lease=60s', '--at-most=2h');
is("$status $err", '0 ', '--dry-run succeeds');
like($out, qr/^lease: 60 s, extended every 10 s\nwithout an extension: SIGTERM after 46\.75 s, SIGKILL after 56\.75 s\nat most: SIGTERM after 7200 s, SIGKILL 10 s later\nIt has been held by "a stranger/,
	'--dry-run shows the times and why the lock is refused');
like((run_program($node, '--name=never', '--dry-run', 'touch', "$files/dry"))[1], qr/^It is free, and was never acquired\.$/m, '--dry-run of a free lock');
ok(!-e "$files/dry", '--dry-run runs no command');
is(join(' ', run_program($node, { stdout => '/dev/full' }, '--name=dry', '--dry-run')),
	"1  shedlock: could not write to standard output: No space left on device\n", '--dry-run: a full device is an error');
is(join(' ', run_program($node, { wrapper => [ 'sh', '-c', 'exec "$@" >&-', 'sh' ] }, '--name=dry', '--dry-run')),
	"1  shedlock: could not write to standard output: Bad file descriptor\n", '--dry-run: a standard output that is closed is an error');
is((run_program($node, { wrapper => [ 'sh', '-c', 'exec "$@" 2>&-', 'sh' ] }, '--name=' . 'n' x 256, '--dry-run'))[0], 64, '--dry-run: a standard error that is closed');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/invalid frontend message/, 'the server does not get what is written to it');
is(ask($watcher, "SELECT count(*) FROM shedlock WHERE name = 'never'"), '0', '--dry-run takes no lock');

#
# Notifications: a reason to extend the lease now, and nothing else
#

# The lease is extended each 30 s.
my $listener = start_program($node, '--name=listener', '--dbname=application_name=listener', '--lease=10min', sh('echo $SHEDLOCK_TOKEN; sleep 600'));
ok($listener->await_out(qr/\n/), 'a run is at work');
chomp(my $told = $listener->out);

# Returns how often the program has sent a statement.
sub times_sent
{
	my ($statement) = @_;

	return scalar(() = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /\] listener LOG:  statement: .*\Q$statement\E/g);
}

sub notify
{
	my ($text) = @_;

	ask($watcher, "SELECT pg_notify('shedlock', '$text')");
	return;
}

sub listens
{
	return await($watcher, q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'listener' AND state = 'idle' AND query LIKE '%LISTEN shedlock'}, '1');
}

ok(defined listens(), 'the program LISTENs');
my $begin = time;
my $usual = sub { return int((time - $begin) / 30) };
notify($_) foreach '', '"', 'x' x 7999, $told, qq({"token":"${told}0"}), qq({"token":"1$told"}), qq({"token":$told});
sleep(0.5);
cmp_ok(times_sent('shedlock_extend'), '<=', $usual->(), 'a notification without the token of the run is no reason');
notify(qq({"v":1,"event":"forced","name":"$told","token":"$told"}));
ok(eventually(sub { times_sent('shedlock_extend') }), 'one with the token makes the program extend its lease');
ok(!$listener->has_ended, 'a notification that is forged ends nothing');

my ($before, $from) = (times_sent('shedlock_extend'), time);
eventually(sub { notify(qq("$told")); times_sent('shedlock_extend') >= $before + 3 });
cmp_ok(times_sent('shedlock_extend') - $before, '>=', 3, 'a flood of them has it extended again and again');
cmp_ok(times_sent('shedlock_extend') - $before, '<=', 2 + (time - $from) + $usual->(), 'but once per second');
is(times_sent('LISTEN'), 1, 'it has sent LISTEN once');
is(ask($watcher, "SELECT count(*) FROM shedlock_history WHERE name = 'listener' AND outcome = 'running'"), '1', 'the run goes on');
ask($watcher, "SELECT shedlock_force_release('listener')");
is($listener->finish, 76, 'a forced release ends it');
nothing_left($listener, 'listener', 'a forced release');

# The session is terminated, and another one takes its place at the next extension.
$listener = start_program($node, '--name=listener', '--dbname=application_name=listener', '--lease=' . 6 * $slow . 's', sh('sleep 600'));
ok(eventually(sub { times_sent('LISTEN') >= 2 }), 'the next run LISTENs');
my $sent = times_sent('LISTEN');
ask($watcher, q{SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'listener'});
ok(eventually(sub { times_sent('LISTEN') > $sent }), 'it LISTENs again after its session was terminated');
ask($watcher, "SELECT shedlock_force_release('listener')");
is($listener->finish, 76, 'a forced release ends it');

#
# A role with settings in the way: short timeouts, other formats, and functions in front of
# the server's
#

$node->safe_psql('postgres', <<'SQL');
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.quote_ident(text) RETURNS text LANGUAGE sql AS 'SELECT 1/0; SELECT $1';
CREATE FUNCTION hostile.quote_ident(name) RETURNS text LANGUAGE sql AS 'SELECT 1/0; SELECT $1::text';
CREATE FUNCTION hostile.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT 1/0; SELECT $1';
CREATE FUNCTION hostile.to_char(timestamp, text) RETURNS text LANGUAGE sql AS 'SELECT 1/0; SELECT $2';
CREATE FUNCTION hostile.timezone(text, timestamptz) RETURNS timestamp LANGUAGE sql AS 'SELECT 1/0; SELECT $2::timestamp';
CREATE FUNCTION hostile.never(name, text) RETURNS boolean LANGUAGE sql AS 'SELECT 1/0; SELECT true';
CREATE FUNCTION hostile.never(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT 1/0; SELECT true';
CREATE FUNCTION hostile.never(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT 1/0; SELECT true';
CREATE OPERATOR hostile.= (LEFTARG = name, RIGHTARG = text, FUNCTION = hostile.never);
CREATE OPERATOR hostile.= (LEFTARG = name, RIGHTARG = name, FUNCTION = hostile.never);
CREATE OPERATOR hostile.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = hostile.never);
CREATE FUNCTION hostile.shedlock_extend(name text, token bigint, lock_at_most_for text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION hostile.shedlock_run_end(name text, token bigint, outcome text, exit_code integer) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE ROLE hampered LOGIN;
GRANT USAGE ON SCHEMA hostile TO hampered;
ALTER ROLE hampered SET search_path = hostile, pg_catalog;
ALTER ROLE hampered SET statement_timeout = '1s';
ALTER ROLE hampered SET lock_timeout = '1s';
ALTER ROLE hampered SET datestyle = 'SQL, DMY';
ALTER ROLE hampered SET timezone = 'Asia/Tokyo';
ALTER ROLE hampered SET intervalstyle = 'sql_standard';
SQL
# PostgreSQL 19 has standard strings only.
$node->safe_psql('postgres', 'ALTER ROLE hampered SET standard_conforming_strings = off') if ask($watcher, 'SHOW server_version_num') < 190000;
ask($watcher, "SELECT shedlock_acquire('hamper\\ed', '1 h')");
my $hampered = start_waiting('hamper\\ed', '--dbname=user=hampered', '--name=hamper\\ed', '--wait=1h', '--once-every=20000 days', '--lease=' . 3 * $slow . 's',
	sh('echo $SHEDLOCK_TICK; sleep ' . $slow));
sleep(1.5);
ok(!$hampered->has_ended, 'a wait does not end by the statement_timeout and lock_timeout of the role');
ask($watcher, "SELECT shedlock_release('hamper\\ed')");
is($hampered->finish . $hampered->err, '0', 'a role with settings in the way: the run succeeds, and no statement fails');
is($hampered->out, last_run('hamper\\ed', q{to_char(tick AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')}) . "\n", 'its tick is right');
is(last_run('hamper\\ed', 'outcome, locked_role'), 'succeeded|hampered', 'the history has the run');

#
# A server that does not let the lease be extended before the command is started, after a
# wait that was longer than a heartbeat
#

$node->safe_psql('postgres', "CREATE DATABASE mean TEMPLATE template0");
$node->safe_psql('mean', <<'SQL');
CREATE EXTENSION shedlock;
CREATE SEQUENCE calls;
CREATE OR REPLACE FUNCTION shedlock_extend(name text, token bigint DEFAULT NULL, lock_at_most_for interval DEFAULT NULL, lock_at_least_for interval DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SET client_min_messages = error AS $$
BEGIN
	IF name = 'refused' AND nextval('calls') > 1 THEN
		PERFORM shedlock_force_release(name);
		RETURN false;
	END IF;
	RAISE 'not now';
END$$;
REVOKE EXECUTE ON FUNCTION shedlock_why FROM PUBLIC;
SQL
($status, $out, $err) = run_program($node, '--name=refused', '--dbname=dbname=mean user=blind', '--dry-run');
is("$status $err", "69 shedlock: permission denied for function shedlock_why\n", '--dry-run: the server refuses');
my $mean = session($node, dbname => 'mean');
ask($mean, "SELECT shedlock_acquire(name, '1 h') FROM unnest(ARRAY['refused', 'told']) name");
my %unconfirmed = map { $_ => start_program($node, "--name=$_", '--dbname=mean', '--lease=' . 6 * $slow . 's', '--kill-after=0', '--wait=1h', 'touch', "$files/refused") } 'refused', 'told';
ok(defined await($mean, 'SELECT sum(waiters) FROM shedlock_locks', '2'), 'two programs wait');
sleep(1.2 * $slow);
ask($mean, "SELECT shedlock_release(name) FROM unnest(ARRAY['refused', 'told']) name");
ok(eventually(sub { $unconfirmed{told}->err =~ /not now/ }), 'the server refuses to extend a lease');
$unconfirmed{told}->signal('TERM');
is($unconfirmed{told}->finish, 'signal TERM', 'TERM ends a program whose lease is not extended');
is($unconfirmed{refused}->finish, 76, 'the exit status of a lock that was lost meanwhile is 76');
like($unconfirmed{refused}->err, qr/^shedlock: not now\n(?:.*\n)*shedlock: the lease could not be extended: "touch" was not started$/m, 'the messages say so');
ok(!-e "$files/refused", 'neither command is started');
is(ask($mean, q{SELECT name, outcome, exit_code, CASE WHEN name = 'told' THEN message END FROM shedlock_history ORDER BY name}),
	"refused|cancelled||\ntold|returned||the command was not started", 'the history says so');
is(ask($mean, 'SELECT count(*) FROM shedlock_locks'), '0', 'the locks are free');
reap($mean);

# The host was suspended when the run had begun.
SKIP:
{
	skip 'there is no library that moves a clock', 3 unless $ENV{SHEDLOCK_SKEW};
	PostgreSQL::Test::Utils::append_to_file("$files/skew", pack('q', 3600 * 1_000_000));
	refused(76, qr/^shedlock: lock "suspended" was lost$/, $node,
		{ environment => { LD_PRELOAD => $ENV{SHEDLOCK_SKEW}, SKEW_FILE => "$files/skew", SKEW_BOOTTIME => 'yes', SKEW_CHILDREN => 'yes' } }, '--name=suspended');
}

#
# A server that closes the connection before its first answer
#

ask($watcher, 'BEGIN; LOCK pg_extension');
$run = start_program($node, '--name=cut', 'true');
my $is_cut = "FROM pg_locks WHERE relation = 'pg_extension'::regclass AND NOT granted";
ok(defined await($watcher, "SELECT count(*) $is_cut", '1'), 'a program waits for its first answer');
kill 'KILL', ask($watcher, "SELECT pid $is_cut");
is($run->finish . $run->err, "69shedlock: the server did not answer\n", 'the program says that the server did not answer');

#
# A server that is started during a wait
#

reap($watcher);
# the server ends, too
$node->stop('immediate', fail_ok => 1);
$run = start_program($node, '--name=no server', '--wait=1h', sh('echo runs'));
ok(eventually(sub { $run->err =~ /\n/ }), 'the program says that there is no server');
ok(!$run->has_ended, 'it waits for one');
$node->start;
is($run->finish . $run->out, "0runs\n", 'the command runs as soon as there is a server');
like($run->err, qr/^shedlock: .*\n\z/, 'the program has said once that there was none');
is($node->safe_psql('postgres', "SELECT outcome FROM shedlock_history WHERE name = 'no server'"), 'succeeded', 'the history has the run');

done_testing();
