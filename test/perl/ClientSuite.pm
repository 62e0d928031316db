# The scenarios that the packages of clients/ must live through, the same ones in each language.
#
# Each language has a program test/clients/worker.*, which runs jobs as its arguments say:
#
#	lease=3 concurrency=4 wait=0 stop_after=1 declare=no       options of the worker, in seconds
#	job=NAME work=KIND:SECONDS schedule=... attempts=3 ...     a job; what follows is about it: its
#	                                                           work, and settings of shedlock_job
#	lock=NAME lease=3 wait=5 seconds=4                         instead: holds a lock while it works
#
# KIND is what its handler does: "look" takes steps of 0.1 s, before each of which it asks whether
# it may work; "blind" looks only at its end; "block" blocks its thread or event loop, and then looks for as long;
# "fail" looks, and raises an error, "of the work", at the end of its first attempt.
# The settings of the connection come from PGHOST, PGPORT, PGUSER, PGDATABASE and PGPASSWORD.
# The program says what happens, a line each, with the time in front in seconds:
#
#	begun JOB TOKEN ATTEMPT TICK     ended JOB TOKEN OUTCOME     lost JOB TOKEN     events
#	step JOB TOKEN TIME              the handler may work, as it was told at that time
#	signed JOB TOKEN                 it was told that it must stop
#	done JOB TOKEN                   it comes to its end, by itself or not
#	error JOB TEXT                   or "-" instead of the job
#	released NAME TOKEN              of a lock; refused NAME; lost NAME
#	failed TEXT                      the worker did not start; the exit status is 1
#	over                             it has ended, by SIGTERM for example
#
# Scenarios run side by side, in processes of their own: Perl's tests know one process only, so
# what they say goes to files, and is said again by the first one.
package ClientSuite;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use IPC::Run;
use List::Util qw(max min);
use POSIX ();
use PoolerNode;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(find_clients start_clients_node run_scenarios run_mixed short_scenarios all_scenarios);

my $dir;

# For each language: what shows that it is here, variables of the environment, how to build its
# program, and how to start it; if what shows that it is here gets its libraries by network, too; the
# scenarios that it cannot play, and why; and the program of doc/services.md: its block, its file,
# what comes before and after it there, how it is started, and its exit status
sub languages
{
	$dir //= PostgreSQL::Test::Utils::tempdir;
	my $jdbc = $ENV{CLASSPATH} // '/usr/share/java/postgresql.jar';
	my @forks = (forks => 'its processes inherit no handlers of signals');
	# a small JVM, because many JVMs start for a short time
	my @java = (qw(java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp), "$dir/java:$jdbc");
	return (
		python => {
			needs => [ '/usr/bin/python3', '-c', 'import psycopg' ],
			env => { PYTHONPATH => join(':', 'clients/python', $ENV{PYTHONPATH} // ()), PYTHONDONTWRITEBYTECODE => 1 },
			command => [ '/usr/bin/python3', 'test/clients/worker.py' ],
			shown => {
				block => 'python',
				file => 'service.py',
				before => "def customers():\n    return 'ab'\n\ndef send_invoice(customer, tick):\n    pass\n",
				command => ['/usr/bin/python3'] } },
		node => {
			needs => [ 'node', '-e', 'require("pg")' ],
			env => { NODE_PATH => $ENV{NODE_PATH} // '/usr/share/nodejs' },
			command => [ 'node', 'test/clients/worker.js' ],
			clocks => ['wall'],    # it has none that counts suspension
			without => {@forks},
			shown => {
				block => 'js',
				file => 'service.js',
				before => "const customers = async () => ['a', 'b'];\nconst sendInvoice = async () => {};\n",
				command => ['node'] } },
		java => {
			needs => [ 'javap', '-cp', $jdbc, 'org.postgresql.ds.PGSimpleDataSource' ],
			build => [
				'javac', '-Xlint:all,-path', '-Werror', '-cp', $jdbc, '-d', "$dir/java", 'clients/java/src/main/java/io/shedlock/Shedlock.java',
				'test/clients/Worker.java' ],
			env => {},
			command => [ @java, 'Worker' ],
			clocks => ['wall'],    # as node
			without => {@forks},
			shown => {
				block => 'java',
				file => 'Service.java',
				after => <<'EOF',

class Customers {
    static java.util.List<String> all() {
        return java.util.List.of("a", "b");
    }

    static void sendInvoice(String customer, java.time.Instant tick) {}
}
EOF
				command => \@java,
				status => 143 } },    # of a JVM that SIGTERM ends
		go => {
			is_fetched => 1,
			needs => [qw(env -C clients/go go mod download)],
			env => { PATH => "/usr/local/go/bin:$ENV{PATH}", GOFLAGS => '-modcacherw -buildvcs=false', GOTOOLCHAIN => 'local', CGO_ENABLED => 0 },
			build => [ 'sh', '-c', "cd clients/go && go vet . && go test . && go build -o $dir/worker-go ../../test/clients/worker.go" ],
			command => ["$dir/worker-go"],
			shown => {
				block => 'go',
				file => 'service.go',
				after => "\nfunc customers(context.Context) []string { return []string{\"a\", \"b\"} }\n\nfunc sendInvoice(context.Context, string, any) {}\n",
				command => [ 'sh', '-c', 'cd clients/go && go build -o "$0.out" "$0" && exec "$0.out"' ] },
			without => { suspended => 'Go reads the clocks past libc; its own test moves them', @forks } });
}

# Gets those libraries that are no packages of the system, if there is a network.
sub fetch_libraries
{
	my %languages = languages();

	foreach my $language (grep { $_->{is_fetched} } values %languages)
	{
		local %ENV = (%ENV, %{ $language->{env} // {} });
		eval { IPC::Run::run($language->{needs}, '<', \undef, '>&', \my $output) };
	}
	return;
}

# Returns those of the languages that can be tested here, with their commands.
sub find_clients
{
	my (@wanted) = @_;
	my %languages = languages();
	my @found;

	foreach my $name (grep { $languages{$_} } @wanted)
	{
		my $language = $languages{$name};
		my $output = '';
		local %ENV = (%ENV, %{ $language->{env} // {} });
		my $can = -d "clients/$name" && eval { IPC::Run::run($language->{needs}, '<', \undef, '>&', \$output) };

		ok($can, "$name and its library for PostgreSQL are here") or diag $output
		  if grep { $_ eq $name } split / /, $ENV{SHEDLOCK_CLIENTS} // '';
		if (!$can)
		{
			note("there is no $name, or no library for it");
			next;
		}
		if ($language->{build})
		{
			$output = '';
			ok(IPC::Run::run($language->{build}, '<', \undef, '>&', \$output), "$name: its program is built") or diag $output;
		}
		push @found, { name => $name, %$language };
	}
	return @found;
}

# Starts a server to which clients come by TCP.
sub start_clients_node
{
	my ($name) = @_;

	my $node = start_node($name, conf => "listen_addresses = '127.0.0.1'\nmax_connections = 200\nlog_line_prefix = '%m [%p] %a '\n");
	my $hba = $node->data_dir . '/pg_hba.conf';
	my $rules = slurp_file($hba);

	unlink $hba;
	append_to_file($hba, "host all stranger 127.0.0.1/32 scram-sha-256\n$rules");
	$node->reload;
	return $node;
}

#
# A scenario: its language, server, workers and jobs
#

# Seconds; those of a scenario grow with the slowness of the machine
sub lease { return $_[0]{lease} }

sub job { return join '-', grep { defined } $_[1], @{ $_[0] }{qw(scenario language)} }

# An error counts as a wrong answer.
sub answer
{
	my ($self, $sql) = @_;
	my $out = ask($self->{judge}, $sql);

	return $self->{judge}{heard} =~ /ERROR/ ? $self->{judge}{heard} : $out;
}

# Declares a job whose last tick came long ago, and that nobody has run.
sub make_due
{
	my ($self, $job, $settings) = @_;

	$settings //= 'attempts => 3';
	answer($self, "SELECT shedlock_job('$job', '0 0 1 1 *', 'Asia/Kolkata', $settings)");
	answer($self, "UPDATE _shedlock_job SET since = since - interval '5 years' WHERE name = '$job'");
	return $job;
}

# Starts a worker; arguments as above.  Options: port, host, user, env, on (what the command begins
# with).
sub start_worker
{
	my ($self, $options, @arguments) = @_;
	my $worker = { number => 1 + @{ $self->{workers} }, scenario => $self, restarts => 0 };

	$worker->{log} = "$dir/" . job($self) . "-$worker->{number}.log";
	$worker->{command} = [ @{ $options->{on} // [] }, @{ $self->{command} }, @arguments ];
	$worker->{env} = {
		PGHOST => $options->{host} // '127.0.0.1',
		PGPORT => $options->{port} // $self->{node}->port,
		PGUSER => $options->{user} // 'app',
		PGDATABASE => $options->{dbname} // 'postgres',
		PGPASSWORD => 'of app',
		PGAPPNAME => job($self),
		%{ $self->{env} }, %{ $options->{env} // {} } };
	launch($worker);
	push @{ $self->{workers} }, $worker;
	return $worker;
}

sub launch
{
	my ($worker) = @_;
	my @command = @{ $worker->{command} };

	$worker->{pid} = fork // die "fork: $!";
	return if $worker->{pid};
	%ENV = (%ENV, %{ $worker->{env} });
	open(STDOUT, '>>', $worker->{log}) && open(STDERR, '>&', \*STDOUT) && exec { $command[0] } @command;
	POSIX::_exit(127);
}

# Starts those workers again that have failed, on a machine so slow that the server does not
# answer in time at their start.
sub restart_failed
{
	my ($self) = @_;

	return if $self->{slowness} < 4;
	foreach my $worker (grep { $_->{pid} && said($self, 'failed', $_) > $_->{restarts} } @{ $self->{workers} })
	{
		end_worker($self, $worker, 0);
		$worker->{restarts}++;
		launch($worker);
	}
	return;
}

# What workers have said, each with time, word, job, token and the rest
sub lines
{
	my (@workers) = @_;
	my @lines;

	foreach my $worker (@workers)
	{
		push @lines, map { [ split / /, $_, 5 ] } grep { /^\d+\.\d+ / } split /\n/, slurp_file($worker->{log}) if -e $worker->{log};
	}
	return sort { $a->[0] <=> $b->[0] } @lines;
}

# Those lines of workers, or of all, that begin with some words after the time
sub said
{
	my ($self, $words, @workers) = @_;

	return grep { join(' ', map { $_ // () } @$_[ 1 .. $#$_ ]) =~ /^$words(?: |$)/ } lines(@workers ? @workers : @{ $self->{workers} });
}

# How long to wait for what must come: seconds
sub patience
{
	my ($self) = @_;

	return max($PostgreSQL::Test::Utils::timeout_default, 100 * $self->{slowness});
}

# Waits until something was said, some times; returns the last such line, or fails.
sub hear
{
	my ($self, $words, $count, @workers) = @_;
	my $end = time + patience($self);
	my @heard;

	until ((@heard = said($self, $words, @workers)) >= $count || time > $end)
	{
		sleep(0.05);
		restart_failed($self) unless $words =~ /^failed/;
	}
	ok(@heard >= $count, job($self) . ": it is said: $words") or diag(map { "worker $_->{number}:\n" . slurp_file($_->{log}) } @{ $self->{workers} });
	return $heard[ $count - 1 ] // [ time, 'nothing', '', 0 ];
}

# Ends a worker by a signal, or waits for its end with 0; returns the seconds that it took.
sub end_worker
{
	my ($self, $worker, $signal) = @_;
	my $start = time;

	kill $signal, $worker->{pid};
	kill 'CONT', $worker->{pid};
	until (waitpid($worker->{pid}, POSIX::WNOHANG) != 0)
	{
		kill 'KILL', $worker->{pid} if time - $start > 60;
		sleep(0.02);
	}
	$worker->{status} = $?;
	delete $worker->{pid};
	return time - $start;
}

# Ends all workers; what holds in each scenario: no step of a run after one of the next run, and a
# worker says that a run succeeded if, and only if, the history does.
sub ends_well
{
	my ($self) = @_;
	my (%newest, %ends);
	my $late = '';

	foreach my $worker (grep { $_->{pid} } @{ $self->{workers} })
	{
		end_worker($self, $worker, 'TERM');
		is($worker->{status}, $worker->{wanted} // 0, job($self) . ": worker $worker->{number} ends by SIGTERM") or diag(slurp_file($worker->{log}));
	}
	# as the handler was told: its line may be late
	foreach my $step (sort { $a->[4] <=> $b->[4] } said($self, 'step'))
	{
		my (undef, undef, $job, $token, $at) = @$step;

		$late .= "$job: token $token at $at after $newest{$job}\n" if $token < ($newest{$job} //= $token);
		$newest{$job} = $token;
	}
	is($late, '', job($self) . ': no two runs work at once');
	$ends{"$_->[2] $_->[3]"}++ foreach grep { $_->[4] eq 'succeeded' } said($self, 'ended');
	my $known = answer($self, "SELECT string_agg(name || ' ' || token, ',' ORDER BY token) FROM shedlock_history WHERE outcome = 'succeeded' AND name LIKE '%-$self->{scenario}-$self->{language}'");
	my $told = join ',', map { $_->[0] } sort { $a->[1] <=> $b->[1] } map { [ $_, (split / /)[1] ] } keys %ends;
	is($told, $known, job($self) . ': workers and history agree on what has succeeded') unless $self->{unsure};
	is(join(',', grep { $ends{$_} > 1 } keys %ends), '', job($self) . ': no run ends twice');
	return;
}

# The history's outcomes of a job, in the order of its runs, each with its attempt
sub outcomes
{
	my ($self, $job) = @_;

	return answer($self, "SELECT string_agg(outcome || ' ' || attempt, ', ' ORDER BY token) FROM shedlock_history WHERE name = '$job'");
}

# SQL that counts the workers that wait in the server.
sub waiting
{
	my ($self) = @_;

	return "(SELECT count(*) FROM pg_stat_activity WHERE application_name = '" . job($self) . "' AND state = 'active' AND query LIKE '%shedlock_next%')";
}

# Makes a database in which nothing else happens, and asks there from now on; returns its name.
sub own_database
{
	my ($self) = @_;
	my $dbname = job($self);

	$self->{node}->safe_psql('postgres', "CREATE DATABASE \"$dbname\"");
	$self->{node}->safe_psql($dbname, 'CREATE EXTENSION shedlock');
	$self->{judge} = session($self->{node}, dbname => $dbname);
	return $dbname;
}

# Declares jobs that are due each second, for the first time in so many seconds; returns that
# instant.  Workers that start say the same, but slowly: no tick before a declaration is due.
sub declare_each_second
{
	my ($self, $after, @jobs) = @_;
	my $first = answer($self, qq{SELECT to_char(clock_timestamp() + '$after s', 'YYYY-MM-DD"T"HH24:MI:SSOF')});

	is(answer($self, "SELECT shedlock_job('$_', 'every 1 second from $first', catch_up => 'all')"), 'created', "$_ is declared") foreach @jobs;
	return $first;
}

# Waits for an answer of the server.
sub comes_true
{
	my ($self, $sql, $claim) = @_;
	my $start = time;
	my $is_true;

	until (($is_true = defined await($self->{judge}, $sql, 't', 2)) || time - $start > patience($self))
	{
		restart_failed($self);
	}
	ok($is_true, job($self) . ": $claim") or diag(map { "worker $_->{number}:\n" . slurp_file($_->{log}) } @{ $self->{workers} });
	return $is_true ? time - $start : 0;
}

#
# A proxy, which can be told to cut connections, or by SIGUSR1 to forget them
#

# What a proxy's client has sent since the last answer, if that names a function that is to be
# cut: the first answer to each of those is lost, and the connection with it.
sub forward
{
	my ($from, $to, $is_answer, $state) = @_;
	my $read = sysread($from, my $bytes, 65536);

	return 0 unless $read;
	if (!$is_answer)
	{
		# a statement can come in pieces
		($state->{asked}{$from}) = grep { defined } (grep { index($bytes, "$_(") >= 0 } keys %{ $state->{cut} }), $state->{asked}{$from};
	}
	elsif (my $asked = delete $state->{asked}{$to})
	{
		return 0 if delete $state->{cut}{$asked};
	}
	while (length $bytes)
	{
		my $written = syswrite($to, $bytes) or return 0;

		substr($bytes, 0, $written, '');
	}
	return 1;
}

# Starts a proxy that forwards to the server, but for answers to be cut.
sub start_proxy
{
	my ($self, @cut) = @_;
	my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64, ReuseAddr => 1) or die "listen: $!";
	my $pid = fork // die "fork: $!";

	push @{ $self->{proxies} }, $pid;
	return { port => $listener->sockport, pid => $pid } if $pid;
	$SIG{TERM} = 'DEFAULT';
	be_proxy($listener, $self->{node}->host . '/.s.PGSQL.' . $self->{node}->port, @cut);
	return;
}

sub be_proxy
{
	my ($listener, $socket, @cut) = @_;
	my $select = IO::Select->new($listener);
	my %state = (cut => { map { $_ => 1 } @cut });
	my (%other, %is_server);

	$SIG{PIPE} = 'IGNORE';
	$SIG{USR1} = sub { $select->remove(values %other) };
	while (1)
	{
		foreach my $end ($select->can_read)
		{
			if ($end == $listener)
			{
				my $client = $listener->accept or next;
				my $server = IO::Socket::UNIX->new(Peer => $socket) or next;

				@other{ $client, $server } = ($server, $client);
				$is_server{$server} = 1;
				$select->add($client, $server);
				next;
			}
			my $other = $other{$end} or next;

			next if forward($end, $other, $is_server{$end}, \%state);
			delete @other{ $end, $other };
			delete @{ $state{asked} }{ $end, $other };
			$select->remove($end, $other);
			close $_ foreach $end, $other;
		}
	}
	return;
}

#
# The scenarios
#

# Six workers, six jobs, ten ticks each: sixty runs
sub race
{
	my ($self) = @_;
	my @jobs = map { job($self, $_) } 'a' .. 'f';
	my $names = join ', ', map { "'$_'" } @jobs;
	my $first = declare_each_second($self, 5, @jobs);

	start_worker($self, {}, 'lease=30', map { ("job=$_", "schedule=every 1 second from $first", 'work=look:0.1', 'catch_up=all') } @jobs) foreach 1 .. 6;
	comes_true($self, "SELECT count(*) >= 60 FROM shedlock_history WHERE name IN ($names) AND tick < '$first'::timestamptz + '10 s' AND outcome = 'succeeded'", 'all ticks have a run');
	# one that starts late, too, although the others may leave it no run
	comes_true($self, "SELECT count(*) = 6 FROM pg_stat_activity WHERE application_name = '" . job($self) . "' AND query LIKE '%shedlock_next(%'", 'all workers ask');
	is(answer($self, "SELECT count(*) FROM shedlock_history WHERE name IN ($names) AND tick < '$first'::timestamptz + '10 s'"), 60, job($self) . ': sixty ticks, sixty runs');
	is(answer($self, "SELECT count(*) FROM shedlock_history WHERE name IN ($names) AND started_at < tick"), 0, job($self) . ': no run before its tick');
	like(answer($self, "SELECT DISTINCT claimed_by ~ '^\\S+ \\d+ #\\d+' FROM _shedlock_tick WHERE name IN ($names)"), qr/^t$/, job($self) . ': the server knows which worker');
	return;
}

# The worker that is at work is killed: another one begins the next attempt.
sub killed
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'));
	my @arguments = ('lease=' . lease($self), 'wait=20', 'declare=no', "job=$job");
	my $victim = start_worker($self, {}, @arguments, 'work=look:600');

	hear($self, "begun $job", 1);

	# until it has extended its lease
	sleep(lease($self) / 2);
	start_worker($self, {}, @arguments, 'work=look:' . 2 * lease($self)) foreach 1, 2;
	comes_true($self, 'SELECT ' . waiting($self) . ' = 2', 'the others wait');
	my $end = lease($self) + time;
	end_worker($self, $victim, 'KILL');
	my $begun = hear($self, "begun $job", 2);
	# the machine can have become slower
	cmp_ok($begun->[0], '<', $end + 2 + lease($self) / 2 * slowness($self->{node}), job($self) . ': as soon as the lease has expired');
	hear($self, "ended $job", 1);
	is(outcomes($self, $job), 'lost 1, succeeded 2', job($self) . ': the run is lost, and repeated');
	return;
}

# Neither a call that waits in the server nor a full pool delays the extends of a healthy run.
sub small_pool
{
	my ($self) = @_;
	my ($long, @others) = map { job($self, $_) } 'a' .. 'c';

	# so long that an extend that comes after a call that waits for the next tick is too late
	my $gap = POSIX::ceil(1.5 * lease($self));
	my $pooler = start_pooler($self->{node}, 'transaction', 2, 'listen_addr = 127.0.0.1');
	my @jobs = ("job=$long", 'schedule=every 1 day', 'work=look:' . 6 * lease($self), 'max_late=1 day',
		map { ("job=$_", "schedule=every $gap s", 'work=look:0.5') } @others);

	$self->{pooler} = $pooler;
	start_worker($self, { host => '127.0.0.1', port => $pooler->{port} }, 'lease=' . lease($self), "wait=$_", @jobs) foreach 2 * $gap, 0;
	my $ended = hear($self, "ended $long", 1);
	is(outcomes($self, $long), 'succeeded 1', job($self) . ': the long run keeps its lock');
	is(answer($self, "SELECT max(duration) > make_interval(secs => 6 * " . lease($self) . ") FROM shedlock_history WHERE name = '$long'"), 't', job($self) . ': for several leases');
	cmp_ok(scalar(said($self, "ended $_")), '>=', 3, job($self) . ": meanwhile the others run") foreach @others;
	return;
}

# The answers of begin, extend, end and release are lost, after the server has committed.
sub lost_answer
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'));
	my $lock = job($self, 'lock');
	my $proxy = start_proxy($self, qw(shedlock_next shedlock_extend shedlock_run_end));
	my $its = start_proxy($self, qw(shedlock_extend shedlock_release));
	my $holder = start_worker($self, { port => $its->{port} }, "lock=$lock", 'lease=' . lease($self), 'seconds=' . lease($self));

	start_worker($self, { port => $proxy->{port} }, 'lease=' . lease($self), 'declare=no', "job=$job", 'work=look:' . 2 * lease($self));
	hear($self, "ended $job", 1);
	is(outcomes($self, $job), 'succeeded 1', job($self) . ': one run, which succeeds');
	is(scalar(said($self, "begun $job")), 1, job($self) . ': it begins once');
	cmp_ok(scalar(said($self, 'error')), '>=', 1, job($self) . ': the errors are told');
	hear($self, "released $lock", 1, $holder);
	end_worker($self, $holder, 0);
	return;
}

# Lets no run begin in the database of the scenario until the transaction of the session ends that
# it returns.
sub block_begin
{
	my ($self, $session) = @_;
	my $blocker = $session // session($self->{node}, dbname => job($self));

	ask($blocker, 'BEGIN; LOCK TABLE _shedlock_history IN SHARE MODE');
	return $blocker;
}

# Waits until the only worker has given up a call that is blocked, and asks again; returns the
# process of the first call.
sub await_repeat
{
	my ($self) = @_;
	my $asks = "application_name = '" . job($self) . "' AND query LIKE '%shedlock_next(%' AND (state = 'idle' OR wait_event_type = 'Lock')";

	comes_true($self, "SELECT count(*) = 1 FROM pg_stat_activity WHERE $asks AND state = 'active'", 'the first call takes long');
	my $pid = answer($self, "SELECT pid FROM pg_stat_activity WHERE $asks");
	comes_true($self, "SELECT count(*) > 0 FROM pg_stat_activity WHERE $asks AND pid <> $pid", 'the worker asks again');
	return $pid;
}

# The server begins a run after the worker has given up its call.
sub late_answer
{
	my ($self) = @_;
	# a third of it passes before the repeat, and a second before the next one
	my @worker = ({ dbname => own_database($self) }, 'lease=' . 3 * lease($self), 'declare=no');
	my $job = make_due($self, job($self, 'a'));
	my $blocker = block_begin($self);

	start_worker($self, @worker, "job=$job", 'work=look:0.1');
	await_repeat($self);
	ask($blocker, 'COMMIT');
	hear($self, "ended $job", 1);
	is(outcomes($self, $job), 'succeeded 1', job($self) . ': one run, which succeeds');
	return;
}

# The same after the server was away for longer than a lease.
sub late_after_outage
{
	my ($self) = @_;
	my $dbname = own_database($self);
	my $blocker = session($self->{node}, dbname => $dbname);
	my $job = job($self, 'a');
	# longer than the pause before a repeat, of up to ten seconds, and a third of it
	my $lease = 24 * max(1, $self->{slowness} / 2.5);
	my $its = "application_name = '" . job($self) . "'";

	answer($self, "SELECT shedlock_job('$job', '0 0 1 1 *', attempts => 3)");
	start_worker($self, { dbname => $dbname }, "lease=$lease", 'declare=no', "job=$job", 'work=look:0.1');
	comes_true($self, "SELECT count(*) = 1 FROM pg_stat_activity WHERE $its AND query LIKE '%shedlock_next(%' AND state = 'idle'", 'it asks');
	$self->{node}->safe_psql('postgres', "ALTER DATABASE \"$dbname\" ALLOW_CONNECTIONS false");
	answer($self, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE $its");
	hear($self, 'error', 1);
	sleep(1.2 * $lease);
	make_due($self, $job);
	block_begin($self, $blocker);
	$self->{node}->safe_psql('postgres', "ALTER DATABASE \"$dbname\" ALLOW_CONNECTIONS true");
	await_repeat($self);
	ask($blocker, 'COMMIT');
	hear($self, "ended $job", 1);
	is(outcomes($self, $job), 'succeeded 1', job($self) . ': one run, which succeeds');
	return;
}

# The server goes on with such a call when the worker has been told to stop.
sub late_at_stop
{
	my ($self) = @_;
	my @worker = ({ dbname => own_database($self) }, 'lease=' . 3 * lease($self), 'declare=no');
	my $job = make_due($self, job($self, 'a'));
	my $blocker = block_begin($self);
	my $worker = start_worker($self, @worker, "job=$job", 'work=look:0.1');

	await_repeat($self);
	kill 'TERM', $worker->{pid};
	sleep(1);
	ask($blocker, 'COMMIT');
	end_worker($self, $worker, 0);
	is(outcomes($self, $job), 'returned 1', job($self) . ': its run is given back');
	return;
}

# It does not go on with such a call: the worker does other jobs.
sub stuck_call
{
	my ($self) = @_;
	my @worker = ({ dbname => own_database($self) }, 'lease=' . lease($self), 'declare=no');
	my ($job, $other) = (make_due($self, job($self, 'a')), job($self, 'b'));
	my $blocker = block_begin($self);

	start_worker($self, @worker, map { ("job=$_", 'work=look:0.1') } $job, $other);
	my $pid = await_repeat($self);
	kill 'STOP', $pid;
	make_due($self, $other);
	ask($blocker, 'COMMIT');
	hear($self, "ended $other", 1);
	kill 'CONT', $pid;
	return;
}

# The work ends processes of its own by SIGTERM, as Python's multiprocessing does.
sub forks
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'));

	start_worker($self, {}, 'lease=30', 'declare=no', "job=$job", 'work=fork:0.1');
	hear($self, "ended $job", 1);
	# the worker goes on: that signal was not for it
	answer($self, "SELECT shedlock_again('$job')");
	hear($self, "ended $job", 2);
	return;
}

# An administrator releases the lock by force: the work is told, nothing is reported, and nobody
# runs the tick before an administrator allows it.
sub forced
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'));

	start_worker($self, {}, 'lease=' . lease($self), 'wait=10', 'declare=no', "job=$job", 'work=look:' . 2 * lease($self)) foreach 1, 2;
	hear($self, "step $job", 3);
	is(answer($self, "SELECT shedlock_force_release('$job')"), 't', job($self) . ': the lock is released by force');
	my $released = time;
	my $signed = hear($self, "signed $job", 1);
	cmp_ok($signed->[0] - $released, '<', lease($self) * 0.9, job($self) . ': the work is told before its lease would have expired');
	hear($self, "lost $job", 1);
	sleep(1.5);
	is(outcomes($self, $job), 'cancelled 1', job($self) . ': nobody runs it again');
	is(answer($self, "SELECT shedlock_again('$job')"), 't', job($self) . ': it is allowed again');
	hear($self, "ended $job", 1);
	is(scalar(said($self, "lost $job")), 1, job($self) . ': the sign is given once');
	return;
}

# Three deployments in a row stop a worker at work: no attempt is used up.
sub stop
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'), 'attempts => 1');
	my @arguments = ('lease=60', 'stop_after=0.5', 'declare=no', "job=$job");

	foreach my $time (1 .. 3)
	{
		my $worker = start_worker($self, {}, @arguments, 'work=look:600');

		hear($self, "step $job", 3, $worker);
		my $took = end_worker($self, $worker, $time == 2 ? 'INT' : 'TERM');
		is($worker->{status}, 0, job($self) . ': it ends by itself') or diag(slurp_file($worker->{log}));
		cmp_ok($took, '>=', 0.5, job($self) . ': the run may end for a moment');
		cmp_ok($took, '<', 10 * $self->{slowness}, job($self) . ': then it is given back');
		hear($self, "signed $job", 1, $worker);
		hear($self, "ended $job", 1, $worker);
	}
	is(outcomes($self, $job), 'returned 1, returned 1, returned 1', job($self) . ': three runs are returned');
	start_worker($self, {}, @arguments, 'work=look:0.3');
	hear($self, "ended $job", 4);
	is(outcomes($self, $job), 'returned 1, returned 1, returned 1, succeeded 1', job($self) . ': the attempt is still to come');

	# one that may end in time does
	make_due($self, job($self, 'b'));
	my $worker = start_worker($self, {}, 'stop_after=30', 'declare=no', 'job=' . job($self, 'b'), 'work=look:1');
	hear($self, 'step ' . job($self, 'b'), 1, $worker);
	end_worker($self, $worker, 'TERM');
	is(outcomes($self, job($self, 'b')), 'succeeded 1', job($self) . ': a run may come to its end');
	return;
}

# The work ends while an extend waits in the server, and the worker is to stop meanwhile: it was
# not told, so its success counts.
sub stop_extending
{
	my ($self) = @_;
	my $lease = 4 * lease($self);
	my $job = make_due($self, job($self, 'a'), 'attempts => 1');
	my $blocker = session($self->{node});
	my $worker = start_worker($self, {}, "lease=$lease", 'stop_after=0.2', 'declare=no', "job=$job", 'work=look:' . 0.45 * $lease);

	hear($self, "begun $job", 1);
	ask($blocker, "BEGIN; SELECT FROM shedlock WHERE name = '$job' FOR UPDATE");
	hear($self, "done $job", 1);
	kill 'TERM', $worker->{pid};
	sleep(1);
	ask($blocker, 'COMMIT');
	end_worker($self, $worker, 0);
	is(outcomes($self, $job), 'succeeded 1', job($self) . ': what has ended is not given back');
	return;
}

# The work never ends: the worker does, and what it has begun is lost.
sub never_ends
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'));
	my $worker = start_worker($self, {}, 'lease=' . 3 * lease($self), 'stop_after=0.5', 'declare=no', "job=$job", 'work=blind:600');

	hear($self, "begun $job", 1);
	sleep(1);
	cmp_ok(end_worker($self, $worker, 'TERM'), '<', 6 + 2 * $self->{slowness}, job($self) . ': it ends five seconds after the sign');
	is($worker->{status}, 0, job($self) . ': and ends well') or diag(slurp_file($worker->{log}));
	comes_true($self, "SELECT outcome = 'lost' FROM shedlock_history WHERE name = '$job'", 'the run is lost');
	return;
}

# A worker that waits in the server, or sleeps, stops at once.
sub stop_waiting
{
	my ($self) = @_;

	foreach my $wait (0, 30)
	{
		my $job = job($self, "a$wait");
		my $worker = start_worker($self, {}, "wait=$wait", "job=$job", 'schedule=0 0 1 1 *', 'work=look:1');

		comes_true($self, $wait
			? 'SELECT ' . waiting($self) . ' = 1'
			: "SELECT count(*) = 1 FROM shedlock_jobs WHERE name = '$job'", 'it waits');
		sleep(0.5);
		cmp_ok(end_worker($self, $worker, 'TERM'), '<', 1.5 * $self->{slowness}, job($self) . ": it stops at once, wait $wait");
		is($worker->{status}, 0, job($self) . ': and ends well') or diag(slurp_file($worker->{log}));
	}
	comes_true($self, "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = '" . job($self) . "'", 'no statement is left');
	return;
}

# The worker stands still beyond its lease, while the clocks go on.
sub frozen
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'));
	my @arguments = ('lease=' . lease($self), 'declare=no', "job=$job", 'work=look:' . 2 * lease($self));
	# a call that waits in the server goes on while its worker stands still, and can begin a run
	my $victim = start_worker($self, {}, 'wait=0', @arguments);

	hear($self, "step $job", 5);
	my $other = start_worker($self, {}, 'wait=20', @arguments);
	kill 'STOP', $victim->{pid};
	hear($self, "step $job", 1, $other);
	kill 'CONT', $victim->{pid};
	hear($self, "lost $job", 1, $victim);
	hear($self, "signed $job", 1, $victim);
	hear($self, "ended $job", 1, $other);
	is(outcomes($self, $job), 'lost 1, succeeded 2', job($self) . ': the run is lost, and repeated');
	return;
}

# The worker stands still while it waits, is given a run or a lock, and loses it.
sub frozen_waiting
{
	my ($self) = @_;
	my ($job, $lock) = map { job($self, $_) } 'a', 'lock';
	my @run = ('wait=' . 4 * lease($self), 'lease=' . lease($self), 'declare=no', "job=$job", 'work=look:0.1');
	my @hold = ('wait=' . 4 * lease($self), 'lease=' . lease($self), "lock=$lock", 'seconds=0.1');

	answer($self, "SELECT shedlock_job('$job', '0 0 1 1 *', attempts => 3)");
	answer($self, "SELECT shedlock_acquire('$lock', '1 h')");
	my @frozen = map { start_worker($self, {}, @$_) } \@run, \@hold;
	comes_true($self, "SELECT count(*) = 2 FROM pg_stat_activity WHERE application_name = '" . job($self) . "' AND wait_event_type = 'Extension'", 'they wait');
	foreach my $pid (map { $_->{pid} } @frozen)
	{
		# the server may wait before a worker has sent the end of its statement, without which nothing commits
		sleep(0.01) until slurp_file("/proc/$pid/stat") =~ /\) [SZ] /;
		kill 'STOP', $pid;
	}
	make_due($self, $job);
	answer($self, "SELECT shedlock_force_release('$lock')");
	comes_true($self, "SELECT count(*) = 1 FROM shedlock_history WHERE name = '$job'", 'the server begins a run');
	comes_true($self, "SELECT locked_by LIKE '% $frozen[1]{pid} #%' FROM shedlock_locks WHERE name = '$lock'", 'and gives it the lock');
	my $other = start_worker($self, {}, @run);
	hear($self, "ended $job", 1, $other);
	comes_true($self, "SELECT count(*) = 0 FROM shedlock_locks WHERE name = '$lock' AND state = 'held'", 'both have expired');
	kill 'CONT', $_->{pid} foreach @frozen;
	hear($self, "lost $job", 1, $frozen[0]);
	hear($self, "lost $lock", 1, $frozen[1]);
	end_worker($self, $frozen[1], 0);
	is(scalar(said($self, 'begun', @frozen)), 0, job($self) . ': what was lost is not begun');
	is(outcomes($self, $job), 'lost 1, succeeded 2', job($self) . ': the run is lost, and repeated');
	return;
}

# The host is suspended, or its clock is set forward: the lease is over, as far as the worker knows.
sub suspended
{
	my ($self) = @_;

	foreach my $clock (@{ $self->{clocks} // [ 'boottime', 'wall' ] })
	{
		my $job = make_due($self, job($self, $clock));
		my $file = "$dir/skew-$job";

		append_to_file($file, pack('q', 0));
		my $worker = start_worker($self,
			{ env => { LD_PRELOAD => $ENV{SHEDLOCK_SKEW}, SKEW_FILE => $file, $clock eq 'wall' ? () : (SKEW_BOOTTIME => 1) } },
			'lease=60', 'declare=no', "job=$job", 'work=blind:8');
		hear($self, "begun $job", 1);
		sleep(1);
		open my $skew, '+<', $file or die "$file: $!";
		syswrite $skew, pack('q', 61_000_000);
		close $skew;
		my $moved = time;
		my $lost = hear($self, "lost $job", 1);
		cmp_ok(time - $moved, '<', 3 * $self->{slowness}, job($self) . ": the work is told soon, $clock");
		cmp_ok($lost->[0], '<', hear($self, "done $job", 1)->[0], job($self) . ": while it works, $clock");
		is(scalar(said($self, "ended $job")), 0, job($self) . ": it does not count, $clock");
		answer($self, "SELECT shedlock_force_release('$job')");
	}
	return;
}

# The server ends the connections of a worker again and again.
sub connections_killed
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'));
	my $killed = 0;
	my $end = time + patience($self);

	start_worker($self, {}, 'lease=' . lease($self), "wait=$_", 'declare=no', "job=$job", 'work=look:' . 2 * lease($self)) foreach 5, 0;
	# at its start a worker would give up
	comes_true($self, "SELECT count(*) = 2 FROM pg_stat_activity WHERE application_name = '" . job($self) . "' AND query LIKE '%shedlock_next(%'", 'both have started');
	hear($self, "step $job", 2);
	until (said($self, "done $job") || time > $end)
	{
		$killed += answer($self, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '" . job($self) . "'");
		sleep(0.2);
	}
	note("$killed connections were killed");
	hear($self, "ended $job", 1);
	is(outcomes($self, $job), 'succeeded 1', job($self) . ': one run, which succeeds');
	return;
}

# The server is away: at first, which is an error at the start, and while a run is at work.
sub restarted
{
	my ($self) = @_;
	my $job = job($self, 'a');
	my $node = start_clients_node(job($self));
	my @arguments = ('lease=' . 6 * lease($self), 'wait=5', "job=$job", 'schedule=every 1 day', 'work=look:' . 5 * lease($self));

	$node->safe_psql('postgres', 'CREATE ROLE app LOGIN');
	local @$self{qw(node judge)} = ($node, undef);
	my $port = $node->port;
	$node->stop('immediate');
	my $early = start_worker($self, { port => $port }, @arguments);
	hear($self, 'failed', 1, $early);
	end_worker($self, $early, 0);
	is($early->{status} >> 8, 1, job($self) . ': without a server it does not start');
	$node->start;
	start_worker($self, { port => $port }, @arguments);
	hear($self, "step $job", 5);
	sleep(lease($self));
	$node->stop('fast');
	sleep(4);
	cmp_ok(scalar(said($self, 'error')), '>=', 2, job($self) . ': it tells that the server is away');
	cmp_ok(scalar(said($self, 'error')), '<=', 12, job($self) . ': not all the time');
	$node->start;
	hear($self, "ended $job", 1);
	$self->{judge} = session($node);
	is(outcomes($self, $job), 'succeeded 1', job($self) . ': one run, which succeeds');
	ends_well($self);
	$self->{workers} = [];
	$node->stop;
	return;
}

# A pooler in transaction mode is restarted.
sub pooler_restarted
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'));

	# so few that connections change hands
	my $pooler = start_pooler($self->{node}, 'transaction', 3, 'listen_addr = 127.0.0.1');

	start_worker($self, { port => $pooler->{port} }, 'lease=' . 2 * lease($self), "wait=$_", 'declare=no', "job=$job", 'work=look:' . 3 * lease($self)) foreach 5, 0;
	hear($self, "step $job", 3);

	# until the connection for extends is there
	sleep(lease($self));
	is(scalar(said($self, 'error')), 0, job($self) . ': no error is told before');
	restart_pooler($pooler);
	hear($self, "ended $job", 1);
	is(outcomes($self, $job), 'succeeded 1', job($self) . ': one run, which succeeds');
	$self->{pooler} = $pooler;
	return;
}

# The work fails: its error is recorded, and a worker repeats it after the backoff.
sub fails
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'), "attempts => 3, backoff => '2 s'");

	start_worker($self, {}, 'lease=30', 'declare=no', "job=$job", 'work=fail:0.2') foreach 1, 2;
	hear($self, "ended $job \\d+ succeeded", 1);
	is(outcomes($self, $job), 'failed 1, succeeded 2', job($self) . ': the failed run is repeated');
	like(answer($self, "SELECT message FROM shedlock_history WHERE name = '$job' AND outcome = 'failed'"), qr/of the work/, job($self) . ': the history has its error');
	is(answer($self, "SELECT max(started_at) - min(ended_at) > '1.9 s' FROM shedlock_history WHERE name = '$job'"), 't', job($self) . ': after the backoff');
	hear($self, "error $job .*of the work", 1);
	return;
}

# The way to the server is gone, and the work does not look: its run is lost, and is no success.
sub ignored
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'));
	my $proxy = start_proxy($self);
	my $victim = start_worker($self, { port => $proxy->{port} }, 'lease=' . lease($self), 'declare=no', "job=$job", 'work=blind:' . 3 * lease($self));

	hear($self, "begun $job", 1);
	my $other = start_worker($self, {}, 'lease=' . lease($self), 'wait=20', 'declare=no', "job=$job", 'work=look:' . 2 * lease($self));
	kill 'STOP', $proxy->{pid};
	my $lost = hear($self, "lost $job", 1, $victim);
	hear($self, "begun $job", 1, $other);
	kill 'CONT', $proxy->{pid};
	cmp_ok($lost->[0], '<', hear($self, "done $job", 1, $victim)->[0], job($self) . ': it is told while it works');
	hear($self, "ended $job", 1, $other);
	is(scalar(said($self, "lost $job", $victim)), 1, job($self) . ': it is told once');
	is(scalar(said($self, "ended $job", $victim)), 0, job($self) . ': the first one does not count');
	is(outcomes($self, $job), 'lost 1, succeeded 2', job($self) . ': the run is lost, and repeated');
	return;
}

# Acts of administrators are heard within a second, or two, while a worker waits.
sub heard
{
	my ($self) = @_;
	my $job = job($self, 'a');
	my $count = 0;
	my %acts = (
		resumed => [ "SELECT shedlock_pause('$job'), shedlock_again('$job'), pg_sleep(2)", "SELECT shedlock_resume('$job')" ],
		again => [ 'SELECT 1', "SELECT shedlock_again('$job')" ],
		declared => [ 'SELECT 1', "SELECT shedlock_job('$job', 'every 1 day from ' || to_char(clock_timestamp() - interval '1 s', 'YYYY-MM-DD\"T\"HH24:MI:SSOF'), description => clock_timestamp()::text)" ]);

	start_worker($self, {}, 'wait=30', "job=$job", 'schedule=0 0 1 1 *', 'work=look:0.1');
	comes_true($self, "SELECT count(*) = 1 FROM shedlock_jobs WHERE name = '$job'", 'it is declared');
	foreach my $act (qw(resumed again declared))
	{
		answer($self, $acts{$act}[0]);
		is(scalar(said($self, "begun $job")), $count, job($self) . ": nothing begins before it is $act");
		answer($self, $acts{$act}[1]);
		my $acted = time;
		my $begun = hear($self, "begun $job", ++$count);
		cmp_ok($begun->[0] - $acted, '<', 1 + 0.5 * $self->{slowness}, job($self) . ": $act is heard within a second");
		hear($self, "ended $job", $count);
	}
	return;
}

# Thirty jobs are due at once: each runs once, the one that has waited longest first, four at once.
sub thirty
{
	my ($self) = @_;
	my @jobs = map { job($self, sprintf 'j%02d', $_) } 1 .. 30;

	# declared in reverse order, so that the first has waited longest
	foreach my $n (reverse 1 .. 30)
	{
		my $days = 40 - $n;
		answer($self, "SELECT shedlock_job('$jobs[ $n - 1 ]', to_char(clock_timestamp() - interval '$days minutes', '\"every 1 day from\" YYYY-MM-DD\"T\"HH24:MI:SSOF'))");
		answer($self, "UPDATE _shedlock_job SET since = since - interval '10 days', created_at = created_at - interval '10 days', declared_at = declared_at - interval '10 days' WHERE name = '$jobs[ $n - 1 ]'");
	}
	start_worker($self, {}, 'declare=no', 'concurrency=4', map { ("job=$_", 'work=look:0.3') } reverse @jobs);
	my $last = hear($self, 'ended', 30);
	cmp_ok($last->[0] - (said($self, 'begun'))[0][0], '<', 20 * $self->{slowness}, job($self) . ': the next one begins as soon as one has ended');
	my ($at_work, $most) = (0, 0);
	foreach my $line (lines(@{ $self->{workers} }))
	{
		$at_work += $line->[1] eq 'begun' ? 1 : $line->[1] eq 'done' ? -1 : 0;
		$most = $at_work if $at_work > $most;
	}
	is($most, 4, job($self) . ': four at once');
	is(answer($self, "SELECT string_agg(name, ',' ORDER BY token) FROM shedlock_history WHERE name LIKE 'j__-$self->{scenario}-$self->{language}'"), join(',', @jobs), job($self) . ': each once, the longest due first');
	return;
}

# The handler blocks its thread, or event loop, for longer than a third of the lease.
sub blocks
{
	my ($self) = @_;
	my $job = make_due($self, job($self, 'a'));

	start_worker($self, {}, 'lease=' . lease($self), 'declare=no', "job=$job", 'work=block:' . 0.7 * lease($self));
	hear($self, "ended $job \\d+ succeeded", 1);
	is(outcomes($self, $job), 'succeeded 1', job($self) . ': the run is not lost');
	return;
}

# The job has a lock_at_most_for that is shorter than the work: no extend goes beyond it.
sub limited
{
	my ($self) = @_;
	my $limit = 2.5 * lease($self);
	my $job = make_due($self, job($self, 'a'), "lock_at_most_for => make_interval(secs => $limit)");

	start_worker($self, {}, 'lease=' . lease($self), 'declare=no', "job=$job", 'work=look:600');
	my $begun = hear($self, "begun $job", 1);
	my $signed = hear($self, "signed $job", 1);
	cmp_ok($signed->[0] - $begun->[0], '<', $limit + lease($self) / 9, job($self) . ': the work is told by then');
	cmp_ok($signed->[0] - $begun->[0], '>', $limit - lease($self) / 9, job($self) . ': and not before');
	is(answer($self, "SELECT outcome FROM shedlock_history WHERE name = '$job' ORDER BY token LIMIT 1"), 'timed out', job($self) . ': it has timed out');
	return;
}

# What does not mend itself is an error at the start that says so.
sub refused
{
	my ($self) = @_;
	my $job = job($self, 'a');
	my ($without, $older) = map { "$_-$self->{language}" } qw(without older);
	my %wrong = (
		schedule => [ {}, '0 0 32 1 *', qr/schedule|day of month|cron/i ],
		password => [ { user => 'stranger' }, 'every 1 day', qr/password/ ],
		extension => [ { dbname => $without }, 'every 1 day', qr/extension shedlock/ ],
		'version of the extension' => [ { dbname => $older }, 'every 1 day', qr/extension shedlock/ ]);

	answer($self, qq{CREATE DATABASE "$_"}) foreach $without, $older;
	$self->{node}->safe_psql($older, 'CREATE EXTENSION shedlock; ALTER EXTENSION shedlock DROP FUNCTION shedlock_next; DROP FUNCTION shedlock_next');
	foreach my $what (sort keys %wrong)
	{
		my ($options, $schedule, $words) = @{ $wrong{$what} };
		my $worker = start_worker($self, $options, "job=$job", "schedule=$schedule", 'work=look:1');
		my $line = hear($self, 'failed', 1, $worker);

		like(join(' ', @$line[ 1 .. $#$line ]), $words, job($self) . ": wrong $what");
		end_worker($self, $worker, 0);
		is($worker->{status} >> 8, 1, job($self) . ": wrong $what: exit status");
	}
	return;
}

# The host of the server vanishes without a sign, and another one answers at its address: neither a
# call that waits nor a run at work notices by itself.
sub vanished
{
	my ($self) = @_;
	my ($long, $short) = map { job($self, $_) } 'a', 'b';
	my $socket = $self->{node}->host . '/.s.PGSQL.' . $self->{node}->port;
	my %host;

	my $on = sub { return ('nsenter', "--net=/proc/$host{$_[0]}/ns/net", '--') };
	my $ip = sub { my ($host, @words) = @_; system_or_bail($on->($host), 'ip', @words) };
	my $spawn = sub {
		my (@command) = @_;
		my $pid = fork // die "fork: $!";

		exec(@command) || POSIX::_exit(127) if $pid == 0;
		push @{ $self->{proxies} }, $pid;
		return $pid;
	};
	my $connect = sub {
		my ($server) = @_;

		$ip->('client', qw(link add name eth0 type veth peer name eth0 netns), $host{$server});
		$ip->($_->[0], qw(addr add), "10.77.9.$_->[1]/24", qw(dev eth0)), $ip->($_->[0], qw(link set eth0 up)) foreach [ client => 2 ], [ $server => 1 ];
		my $proxy = $spawn->($on->($server), $^X, '-MClientSuite', '-e', 'ClientSuite::listen_at(@ARGV)', '10.77.9.1', 5432, $socket);
		sleep(1);
		return $proxy;
	};
	my $own = readlink '/proc/self/ns/net';
	foreach my $name (qw(client first second))
	{
		$host{$name} = $spawn->(qw(unshare --net -- sleep infinity));
		sleep(0.05) while (readlink("/proc/$host{$name}/ns/net") // $own) eq $own;
	}
	my $proxy = $connect->('first');
	start_worker($self, { host => '10.77.9.1', port => 5432, on => [ $on->('client') ] }, 'lease=30', 'wait=30',
		"job=$long", 'schedule=every 1 day', 'max_late=1 day', 'work=look:45', "job=$short", 'schedule=every 2 s', 'work=look:0.1');
	hear($self, "ended $short", 1);
	hear($self, "step $long", 1);
	$ip->('client', qw(neigh replace 10.77.9.1 lladdr 02:00:00:00:00:01 nud permanent dev eth0));
	$ip->('first', qw(neigh replace 10.77.9.2 lladdr 02:00:00:00:00:01 nud permanent dev eth0));
	kill 'KILL', $proxy;
	my $vanished = time;
	sleep(5);
	$ip->('client', qw(link del eth0));
	$connect->('second');
	my $count = said($self, "begun $short");
	my $again = hear($self, "begun $short", $count + 1);
	cmp_ok($again->[0] - $vanished, '<', 45, job($self) . ': calls come through again');
	note(sprintf 'after %.1f s', $again->[0] - $vanished);
	hear($self, "ended $long", 1);
	is(outcomes($self, $long), 'succeeded 1', job($self) . ': the run at work keeps its lock');
	return;
}

# What a proxy on another host does, for vanished().
sub listen_at
{
	my ($address, $port, $socket) = @_;

	be_proxy(IO::Socket::INET->new(LocalAddr => $address, LocalPort => $port, Listen => 64, ReuseAddr => 1) // die("listen: $!\n"), $socket);
	return;
}

# Connections fall silent.  The other end's kernel still acknowledges what they send, and answers
# keepalives, so that time limits alone tell.
sub silent
{
	my ($self) = @_;
	my ($long, $short) = map { job($self, $_) } 'a', 'b';
	my $proxy = start_proxy($self);

	start_worker($self, { port => $proxy->{port} }, 'lease=' . 2 * lease($self), 'wait=2',
		"job=$long", 'schedule=every 1 day', 'max_late=1 day', 'work=look:' . 4 * lease($self), "job=$short", 'schedule=every 2 s', 'work=look:0.1');
	hear($self, "ended $short", 1);
	hear($self, "step $long", 1);
	kill 'USR1', $proxy->{pid};
	hear($self, "begun $short", 2 + said($self, "begun $short"));
	hear($self, "ended $long", 1);
	is(outcomes($self, $long), 'succeeded 1', job($self) . ': the run at work keeps its lock');
	return;
}

# A lock for work that is no job
sub locks
{
	my ($self) = @_;
	my $lock = job($self, 'a');
	my @arguments = ("lock=$lock", 'lease=' . lease($self));
	my $first = start_worker($self, {}, @arguments, 'seconds=' . 2 * lease($self));

	hear($self, "step $lock", 2, $first);
	my $second = start_worker($self, {}, @arguments, 'seconds=0.5');
	my $third = start_worker($self, {}, @arguments, 'seconds=600', 'wait=' . 10 * lease($self));
	hear($self, "refused $lock", 1, $second);
	my $free = hear($self, "released $lock", 1, $first);
	my $next = hear($self, "step $lock", 1, $third);
	cmp_ok($next->[0] - $free->[0], '<', lease($self) / 2, job($self) . ': the next holder need not wait for the end of the lease');
	answer($self, "SELECT shedlock_force_release('$lock')");
	my $released = time;
	hear($self, "lost $lock", 1, $third);
	cmp_ok(time - $released, '<', lease($self), job($self) . ': the work is told');
	end_worker($self, $_, 0) foreach $first, $second, $third;
	return;
}

# The program of doc/services.md runs its job.
sub shown
{
	my ($self) = @_;
	my %shown = %{ $self->{shown} };
	my ($file, $address) = ("$dir/$shown{file}", '127.0.0.1:' . $self->{node}->port);
	my ($code, @others) = slurp_file('doc/services.md') =~ /^```$shown{block} service\n(.*?)^```$/msg;
	my $dbname = own_database($self);

	is(scalar @others, 0, job($self) . ': there is one program');
	append_to_file($file, join '', map { $_ // '' } $shown{before}, $code, $shown{after});
	mkdir "$dir/node_modules" and symlink(POSIX::getcwd() . "/clients/node", "$dir/node_modules/shedlock") if $shown{block} eq 'js';
	local $self->{command} = [ @{ $shown{command} }, $file ];
	my $worker = start_worker($self, { env => { DATABASE_URL => "postgresql://app\@$address/$dbname", JDBC_URL => "jdbc:postgresql://$address/$dbname?user=app" } });
	$worker->{wanted} = ($shown{status} // 0) << 8;
	comes_true($self, "SELECT count(*) = 1 FROM shedlock_jobs WHERE name = 'invoices'", 'it declares its job');
	answer($self, "SELECT shedlock_again('invoices')");
	comes_true($self, "SELECT count(*) = 1 FROM shedlock_history WHERE outcome = 'succeeded'", 'it runs it');
	return;
}

my %scenarios = (
	race => \&race, killed => \&killed, small_pool => \&small_pool, lost_answer => \&lost_answer, late_answer => \&late_answer, late_after_outage => \&late_after_outage,
	late_at_stop => \&late_at_stop, stuck_call => \&stuck_call, forks => \&forks, forced => \&forced,
	stop => \&stop, stop_waiting => \&stop_waiting, stop_extending => \&stop_extending, never_ends => \&never_ends, frozen => \&frozen, frozen_waiting => \&frozen_waiting, suspended => \&suspended,
	connections_killed => \&connections_killed, restarted => \&restarted, pooler_restarted => \&pooler_restarted,
	fails => \&fails, ignored => \&ignored, heard => \&heard, thirty => \&thirty, blocks => \&blocks,
	limited => \&limited, refused => \&refused, vanished => \&vanished, silent => \&silent, locks => \&locks, shown => \&shown);

sub short_scenarios { return qw(race killed small_pool lost_answer late_answer frozen_waiting forced stop stop_waiting stop_extending never_ends shown) }

sub all_scenarios { return sort keys %scenarios }

#
# All of them
#

# Why a scenario cannot run here, or nothing
sub missing
{
	my ($scenario) = @_;

	return 'this needs pgbouncer' if $scenario =~ /pool/ && !find_pgbouncer();
	return 'SHEDLOCK_SKEW does not name the library that moves clocks' if $scenario eq 'suspended' && !$ENV{SHEDLOCK_SKEW};
	return "there are no network namespaces: $ENV{SHEDLOCK_NO_NETWORK}" if $scenario eq 'vanished' && !$ENV{SHEDLOCK_NETWORK};
	return;
}

# Runs a scenario in this process, a child; what it says goes to a file.
sub play
{
	my ($node, $language, $scenario, $file) = @_;
	my $self = { %$language, language => $language->{name}, scenario => $scenario, node => $node, workers => [], proxies => [] };
	my $builder = Test::More->builder;

	$builder->reset;
	open(my $out, '>', $file) or die "$file: $!";
	$builder->$_($out) foreach qw(output failure_output todo_output);
	# a worker that cannot connect within a third of its lease does not start
	$self->{slowness} = slowness($node, 12);
	$self->{lease} = sprintf '%.1f', 2.5 * $self->{slowness};
	eval {
		$self->{judge} = session($node);
		$scenarios{$scenario}->($self);
		ends_well($self);
		stop_pooler($self->{pooler}) if $self->{pooler};
		1;
	} or ok(0, job($self) . ": $@");
	kill 'KILL', grep { $_ } @{ $self->{proxies} }, map { $_->{pid} } @{ $self->{workers} };
	close $out;
	return;
}

# Says again what a scenario has said.
sub say_again
{
	my ($file) = @_;
	my $said = 0;

	foreach my $line (split /\n/, slurp_file($file))
	{
		if ($line =~ /^((?:not )?ok) \d+ - (.*)/)
		{
			ok($1 eq 'ok', $2);
			$said++;
		}
		else
		{
			note($line =~ s/^# ?//r) if $line =~ /\S/;
		}
	}
	ok($said, "$file says something");
	return;
}

# Runs scenarios with each language, some of them at once.
sub run_scenarios
{
	my ($node, $at_once, $languages, @names) = @_;
	my (%running, @over);
	my @plays = map { my $scenario = $_; map { [ $_, $scenario ] } @$languages } @names;

	$node->safe_psql('postgres', "CREATE ROLE app LOGIN; SET password_encryption = 'scram-sha-256'; CREATE ROLE stranger LOGIN PASSWORD 'another one'");
	while (@plays || %running)
	{
		if (@plays && keys %running < $at_once)
		{
			my ($language, $scenario) = @{ shift @plays };
			my $file = "$dir/$scenario-$language->{name}";

			if (my $why = $language->{without}{$scenario} // missing($scenario))
			{
				note("$scenario-$language->{name} is skipped: $why");
				next;
			}
			my $pid = fork // die "fork: $!";
			if ($pid == 0)
			{
				eval { play($node, $language, $scenario, $file) };
				POSIX::_exit($@ ? 1 : 0);
			}
			$running{$pid} = [ $file, time ];
			next;
		}
		my $pid = waitpid(-1, 0);
		my ($file, $since) = @{ delete $running{$pid} or next };
		say_again($file);
		note(sprintf '%s took %.1f s', $file =~ s/.*\///r, time - $since);
	}
	return;
}

# Six workers of each language share one job, until those of their language leave: each of its ticks
# has one run.
sub run_mixed
{
	my ($node, $ticks, $languages) = @_;
	my $self = { language => 'all', scenario => 'mixed', node => $node, judge => session($node), workers => [], slowness => slowness($node) };
	my $job = job($self, 'a');
	# so late that all have started
	my $first = declare_each_second($self, 20, $job);
	my $in_time = "name = '$job' AND tick < '$first'::timestamptz + make_interval(secs => $ticks)";

	foreach my $language (@$languages)
	{
		local @$self{qw(command env)} = @$language{qw(command env)};
		push @{ $language->{workers} }, start_worker($self, {}, 'lease=30', "job=$job", "schedule=every 1 second from $first", 'work=look:0.1', 'catch_up=all')
		  foreach 1 .. 6;
	}
	# one language after the other leaves, or the fastest would run all; which one that is, is chance
	foreach my $language (reverse @$languages)
	{
		sleep($ticks / @$languages);
		end_worker($self, $_, 'TERM') foreach $language == $languages->[0] ? () : @{ $language->{workers} };
	}
	comes_true($self, "SELECT count(*) >= $ticks FROM shedlock_history WHERE outcome = 'succeeded' AND $in_time", 'all ticks have a run');
	is(answer($self, "SELECT count(*) FROM shedlock_history WHERE $in_time"), $ticks, "mixed: $ticks ticks, $ticks runs");
	note("mixed: $_->{name} begins " . said($self, "begun $job", @{ $_->{workers} })) foreach @$languages;
	ends_well($self);
	return;
}

1;
