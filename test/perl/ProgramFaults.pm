# The program shedlock with a command that shows when it was alive, and a proxy that
# disturbs its connection.
#
# The command and each of its daemons write CLOCK_REALTIME into a file of their own every
# few milliseconds.  So does the server when another caller acquires the lock: it is the
# clock of the same host.
package ProgramFaults;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use HostProgram ();
use IO::Select;
use IO::Socket::UNIX;
use List::Util qw(max);
use POSIX qw(:sys_wait_h);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(start_beating_program keeper_of guardian_of processes_of command_of started last_sign end_command
  told_to_end ended survivors start_other is_over measure stop_processes start_proxy
  start_witness lateness table_of);

my (@children, @programs, %status);
my $dir;

# Kinds of commands: how many processes there are, besides the command itself
my %others = (plain => 0, stubborn => 0, tree => 3);

# A plain command ends at SIGTERM; the other ones only note it.  A tree has a process in the
# background, a daemon (with a session of its own, and no parent), and a daemon of that.
my $beat = <<'BEAT';
use strict;
use POSIX ();
use Time::HiRes qw(clock_gettime CLOCK_REALTIME);
my ($base, $kind, $children) = @ARGV;

sub beat
{
	my ($who) = @_;

	open my $file, '+>', "$base.new.$who" or die "$base: $!";
	syswrite $file, sprintf("%010d %.6f\n", $$, clock_gettime(CLOCK_REALTIME));
	rename "$base.new.$who", "$base.beat.$who" or die "$base: $!";
	until (-e "$base.stop")
	{
		select(undef, undef, undef, 0.005);
		sysseek($file, 0, 0);
		syswrite $file, sprintf("%010d %.6f\n", $$, clock_gettime(CLOCK_REALTIME));
	}
	POSIX::_exit(0);
}

sub daemon
{
	my (@who) = @_;

	return if fork;
	POSIX::setsid();
	POSIX::_exit(0) if fork;
	my $who = shift @who;
	daemon(@who) if @who;
	beat($who);
}

open my $started, '>>', "$base.started" or die "$base: $!";
syswrite $started, "$ENV{SHEDLOCK_TOKEN}\n";
$SIG{USR1} = 'IGNORE';
$SIG{TERM} = sub { open my $told, '>', "$base.told" } if $kind ne 'plain';
if ($kind eq 'tree')
{
	fork or beat('background');
	daemon('daemon', 'daemon_of_daemon');
	select(undef, undef, undef, 0.005) while (() = glob("$base.beat.*")) < $children;
}
beat('command');
BEAT

END
{
	local $? = $?;
	stop_processes();
}

# Ends what was started here, also what a program has left running.
sub stop_processes
{
	foreach my $p (@programs)
	{
		kill 'KILL', alive($p, $p->{guardian} // ()), survivors($p);
	}
	kill 'KILL', grep { !defined $status{$_} } @children;
	waitpid($_, 0) foreach grep { !defined $status{$_} } @children;
	$status{$_} //= 0 foreach @children;
	return;
}

# Takes note of a child.  Its process ID may have been that of an earlier one.
sub adopt
{
	my ($pid) = @_;

	push @children, $pid;
	delete $status{$pid};
	return;
}

# Starts a program; what it writes goes to a file.
sub spawn_process
{
	my ($log, $env, @command) = @_;
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		@ENV{ keys %$env } = values %$env;
		open(STDOUT, '>', $log) && open(STDERR, '>&', \*STDOUT) && exec { $command[0] } @command;
		POSIX::_exit(127);
	}
	adopt($pid);
	return $pid;
}

# Starts the program with a command whose processes write beats.  Keys: name, dbname, lease,
# kill_after (s), kind; optional: options, env, and on, the
# start of a command line.
sub start_beating_program
{
	my (%p) = @_;

	$dir //= PostgreSQL::Test::Utils::tempdir;
	$p{base} = "$dir/" . ($p{name} =~ s/\W+/_/gr);
	append_to_file("$dir/beat", $beat) unless -e "$dir/beat";
	$p{pid} = spawn_process(
		"$p{base}.log", $p{env} // {},
		@{ $p{on} // [] }, HostProgram::program_path(), '--name', $p{name}, '--dbname', $p{dbname},
		'--lease', "$p{lease}s", '--kill-after', "$p{kill_after}s", @{ $p{options} // [] },
		'--', $^X, "$dir/beat", $p{base}, $p{kind}, $others{ $p{kind} });
	push @programs, \%p;
	return \%p;
}

# Returns what the processes have written: their names, and each one's ID and time.
sub beats
{
	my ($p) = @_;

	return map { /\.beat\.(\w+)$/ => [ split ' ', slurp_file($_) ] } glob("$p->{base}.beat.*");
}

# Returns whether all processes of the command are at work.
sub started
{
	my ($p) = @_;
	my %beats = beats($p);

	return keys %beats == 1 + $others{ $p->{kind} };
}

sub last_sign
{
	my ($p) = @_;
	my %beats = beats($p);

	return max(map { $_->[1] } values %beats);
}

# Returns the process IDs of the command and of what it has started.
sub processes_of
{
	my ($p) = @_;
	my %beats = beats($p);

	return map { $_->[0] + 0 } values %beats;
}

# Returns those of the processes that are still there, and are no zombies.  Their process IDs
# may be those of others by now, which do not have the program's file in their command lines.
sub alive
{
	my ($p, @pids) = @_;

	return grep { (eval { slurp_file("/proc/$_/cmdline") } // '') =~ /\0\Q$p->{base}\E\0/ } @pids;
}

sub survivors
{
	my ($p) = @_;

	return alive($p, processes_of($p));
}

sub keeper_of { return $_[0]{pid} }

sub command_of
{
	my ($p) = @_;
	my %beats = beats($p);

	return $beats{command}[0] + 0;
}

# Returns the process ID of the guardian, the parent of the command.
sub guardian_of
{
	my ($p) = @_;

	return $p->{guardian} //= (slurp_file('/proc/' . command_of($p) . '/stat') =~ /\) . (\d+)/)[0];
}

# Tells the command to end with status 0.
sub end_command
{
	my ($p) = @_;

	append_to_file("$p->{base}.stop", '');
	return;
}

# Returns whether the command has got SIGTERM, or has ended.
sub told_to_end
{
	my ($p) = @_;

	return -e "$p->{base}.told" || !survivors($p);
}

# Returns the wait status of a process of ours, or undef if it has not ended.  Who keeps it
# asks no more, because another child may have that process ID by then.
sub waited
{
	my ($pid) = @_;

	$status{$pid} = $? if !defined $status{$pid} && waitpid($pid, WNOHANG) == $pid;
	return $status{$pid};
}

# Returns the exit status of the program as a shell has it, or undef.
sub ended
{
	my ($p) = @_;
	my $wait = $p->{wait} //= waited($p->{pid});

	return unless defined $wait;
	return $wait & 127 ? 128 + ($wait & 127) : $wait >> 8;
}

# Another caller waits for the lock.
sub start_other
{
	my ($p, $connstr) = @_;

	$p->{other} = spawn_process("$p->{base}.other", {}, 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $connstr, '-c',
		"SELECT shedlock_acquire_token('$p->{name}', '1 hour', wait => '1 hour')");
	return;
}

# Starts a process that sleeps and notes when it wakes late: no process of the program
# wakes sooner on this machine.
my $witness;

sub start_witness
{
	$witness = PostgreSQL::Test::Utils::tempdir . '/witness';
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		my $before = time;

		open my $file, '>', $witness or POSIX::_exit(1);
		for (;;)
		{
			sleep(0.005);
			my $now = time;
			syswrite $file, sprintf("%.6f %.6f\n", $before, $now - $before - 0.005) if $now - $before > 0.02;
			$before = $now;
		}
	}
	adopt($pid);
	return;
}

# Returns how many seconds it was late in that time.
sub lateness
{
	my ($from, $to) = @_;
	my @late = map { my ($at, $late) = split ' '; $at + $late > $from && $at < $to ? $late : () } split /\n/, slurp_file($witness);

	return max(0, @late);
}

# Returns whether the program has ended, and the other caller has the lock.
sub is_over
{
	my ($p) = @_;

	return defined ended($p) && $p->{other} && defined($p->{other_wait} //= waited($p->{other}));
}

# Returns what became of it, as a server knows it now: last, the last sign of life; since,
# when the other caller got the lock (both in seconds); exit; outcome and token of its
# runs; tokens, those with which the command was started.
sub measure
{
	my ($p, $node) = @_;
	my ($since, $outcome, $token) = split /\|/, $node->safe_psql('postgres', qq{
SELECT extract(epoch FROM timezone('UTC', locked_at)), string_agg(outcome, ', '), string_agg(h.token::text, ', ')
FROM shedlock l LEFT JOIN shedlock_history h ON h.name = '$p->{name}' WHERE l.name = '$p->{name}' GROUP BY locked_at}), -1;
	my $tokens = -e "$p->{base}.started" ? slurp_file("$p->{base}.started") : '';

	return { last => last_sign($p), since => $since, exit => ended($p) // 'none', outcome => $outcome, token => $token,
		tokens => join(', ', split /\n/, $tokens) };
}

# Starts a proxy in front of a server's socket; returns a conninfo.  mode:
#   pass       passes all on, the answers after a delay (s).  SIGUSR1: nothing any more,
#              after the next answer
#   cut        closes the first connection that begins a run, as soon as the statement is
#              passed on
#   cut_after  the same, once the server has answered
#   deaf       passes all on, but a division by zero instead of LISTEN
sub start_proxy
{
	my ($node, $mode, $delay) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir_short;
	my $listener = IO::Socket::UNIX->new(Local => "$folder/.s.PGSQL.5432", Listen => 20) or die "$folder: $!";
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		eval { proxy($listener, $node->host . '/.s.PGSQL.' . $node->port, $mode, $delay // 0); };
		warn $@ if $@;
		POSIX::_exit(1);
	}
	adopt($pid);
	return ("host=$folder port=5432 dbname=postgres", $pid);
}

sub proxy
{
	my ($listener, $server, $mode, $delay) = @_;
	my $select = IO::Select->new($listener);
	my ($told, $swallows, %peer, %is_server, @late, $cut) = (0, 0);

	local $SIG{USR1} = sub { $told = 1 };
	local $SIG{PIPE} = 'IGNORE';
	my $close = sub {
		my ($socket) = @_;
		foreach my $end (grep { defined } $socket, delete $peer{$socket})
		{
			$select->remove($end);
			delete $peer{$end};
			close $end;
		}
	};
	for (;;)
	{
		my $wait = @late ? max(0, $late[0][0] - time) : 1;

		foreach my $ready ($select->can_read($wait))
		{
			if ($ready == $listener)
			{
				my $client = $listener->accept or next;

				$select->add($client);
				next if $swallows;
				my $end = IO::Socket::UNIX->new(Peer => $server);
				if (!$end) { $close->($client); next; }
				$select->add($end);
				@peer{ $client, $end } = ($end, $client);
				$is_server{$end} = 1;
				next;
			}
			next unless $select->exists($ready);
			my $length = sysread $ready, my $data, 65536;
			if (!$length)
			{
				if ($swallows) { $select->remove($ready); }
				else { $close->($ready); }
				next;
			}
			next if $swallows || !$peer{$ready};
			if ($is_server{$ready})
			{
				if (defined $cut && $cut == $ready) { $close->($ready); }
				else { push @late, [ time + $delay, $peer{$ready}, $data ]; }
				next;
			}
			$data =~ s{LISTEN shedlock}{SELECT 1/0     } if $mode eq 'deaf';
			syswrite $peer{$ready}, $data;
			if ($mode =~ /^cut/ && $data =~ /shedlock_run_begin/)
			{
				if ($mode eq 'cut') { $close->($ready); }
				else { $cut = $peer{$ready}; }
				$mode = 'pass';
			}
		}
		while (@late && $late[0][0] <= time)
		{
			my (undef, $to, $data) = @{ shift @late };

			syswrite $to, $data if !$swallows && defined fileno $to;
			$swallows = $told;
		}
	}
	return;
}

# Returns lines of a table with columns that are aligned.
sub table_of
{
	my (@rows) = @_;
	my @width;

	foreach my $row (@rows)
	{
		$width[$_] = max($width[$_] // 0, length $row->[$_]) foreach 0 .. $#$row;
	}
	return map { my $row = $_; join('  ', map { sprintf "%-*s", $width[$_], $row->[$_] } 0 .. $#$row) =~ s/ +$//r . "\n" } @rows;
}

1;
