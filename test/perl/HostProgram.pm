# The program shedlock on a host: starts it, sends signals to it, and reads what it says
# and how it ends.
package HostProgram;

use strict;
use warnings FATAL => 'all';
use Config;
use Exporter 'import';
use POSIX qw(:sys_wait_h);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(program_path start_program run_program eventually);

my @signal_names = split ' ', $Config{sig_name};
my $parent = $$;
my $count = 0;
my $path;
my @started;

# The program in PATH, else that of PostgreSQL's folder; undef if there is none, because
# this system cannot have it
sub program_path
{
	unless (defined $path)
	{
		my $installed = `pg_config --bindir`;

		chomp $installed;
		($path) = grep { -x } map { "$_/shedlock" } (split(/:/, $ENV{PATH}), $installed);
	}
	return $path;
}

# Starts the program.  The options, a hash that may be left out, are
#   environment    further variables; undef removes one
#   stdin          a file or a file handle, instead of /dev/null
#   stdout, stderr the same, instead of files that out() and err() return
#   wrapper        words before the program's, such as those of nohup
#   before         code that the process calls before it becomes the program
# The others are the program's arguments.  Without a node it does not know a server.
sub start_program
{
	my ($node, @arguments) = @_;
	my %options = ref $arguments[0] eq 'HASH' ? %{ shift @arguments } : ();
	my $mark = join('.', $parent, ++$count, time);
	my @program = (@{ $options{wrapper} || [] }, program_path());
	my $files = PostgreSQL::Test::Utils::tempdir;
	my $run = bless { mark => $mark, out => "$files/out", err => "$files/err" }, __PACKAGE__;
	my %environment = (
		($node ? (PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres') : ()),
		HOST_PROGRAM => $mark, %{ $options{environment} || {} });

	$run->{pid} = fork // die "fork: $!";
	if ($run->{pid} == 0)
	{
		# Perl's handlers, and its END blocks, belong to the test.
		eval {
			$SIG{$_} = 'DEFAULT' foreach grep { defined $SIG{$_} } keys %SIG;
			foreach my $variable (keys %environment)
			{
				defined $environment{$variable} ? ($ENV{$variable} = $environment{$variable}) : delete $ENV{$variable};
			}
			_redirect(*STDIN, '<', $options{stdin} // '/dev/null');
			_redirect(*STDOUT, '>', $options{stdout} // $run->{out});
			_redirect(*STDERR, '>', $options{stderr} // $run->{err});
			$options{before}->() if $options{before};
			exec { $program[0] } @program, @arguments;
		};
		POSIX::_exit(99);
	}
	push @started, $run;
	return $run;
}

sub _redirect
{
	my ($handle, $mode, $target) = @_;

	open $handle, ref $target ? "$mode&" : $mode, $target or die "$target: $!";
	return;
}

# Runs the program to its end.  Returns its status, what it wrote to stdout, and what it
# wrote to stderr.
sub run_program
{
	my $run = start_program(@_);
	my $status = $run->finish;

	return ($status, $run->out, $run->err);
}

# Waits until the program has ended.  Returns its exit status, or "signal NAME".  A program
# that does not end is killed: "still running".
sub finish
{
	my ($run) = @_;

	eventually(sub { $run->has_ended }) or $run->kill_all;
	return $run->{status};
}

# Has the program ended?  Its status is in $run->{status}, and the time when that was
# noticed in $run->{ended}.
sub has_ended
{
	my ($run) = @_;

	return 1 if defined $run->{status};
	return 0 if waitpid($run->{pid}, WNOHANG) != $run->{pid};
	$run->{ended} = time;
	$run->{status} = WIFSIGNALED($?) ? "signal $signal_names[WTERMSIG($?)]" : WEXITSTATUS($?);
	return 1;
}

sub pid
{
	my ($run) = @_;

	return $run->{pid};
}

# Sends a signal to the process that the test has started: the keeper.
sub signal
{
	my ($run, $name) = @_;

	kill $name, $run->{pid} unless $run->has_ended;
	return;
}

# What the program has written until now
sub out
{
	my ($run) = @_;

	return _read($run->{out});
}

sub err
{
	my ($run) = @_;

	return _read($run->{err});
}

sub _read
{
	my ($file) = @_;

	return -e $file ? PostgreSQL::Test::Utils::slurp_file($file) : '';
}

# Waits until stdout matches, which it cannot any more once the program has ended.
sub await_out
{
	my ($run, $pattern) = @_;

	eventually(sub { $run->out =~ $pattern || $run->has_ended });
	return $run->out =~ $pattern;
}

# Process IDs of the keeper, the guardian and the command's processes, also daemons: what
# has the environment of the program.  Its mark differs from those of other tests, which may
# run at the same time.
sub processes
{
	my ($run) = @_;

	return grep { _environment($_) =~ /(^|\0)HOST_PROGRAM=\Q$run->{mark}\E(\0|$)/ } map { m{(\d+)} } glob('/proc/[0-9]*');
}

# Process IDs of the command's processes only.
sub command_processes
{
	my ($run) = @_;

	return grep { _environment($_) =~ /(^|\0)SHEDLOCK_TOKEN=/ } $run->processes;
}

# Their states as ps shows them: "T" for a stopped one.
sub command_states
{
	my ($run) = @_;

	return states($run->command_processes);
}

# The same for any processes
sub states
{
	my (@pids) = @_;

	return map { _read_proc("$_/stat") =~ /.*\) (\S)/s ? $1 : () } @pids;
}

# Process ID of the keeper, also if a wrapper has started it.
sub keeper
{
	my ($run) = @_;
	my ($pid) = grep { _read_proc("$_/comm") eq "shedlock\n" } $run->processes;

	return $pid;
}

# Process ID of the guardian, once there is one.
sub guardian
{
	my ($run) = @_;
	my ($pid) = grep { _read_proc("$_/comm") eq "shedlock-guard\n" } $run->processes;

	return $pid;
}

# A process may end meanwhile.
sub _environment
{
	my ($pid) = @_;

	return _read_proc("$pid/environ");
}

sub _read_proc
{
	my ($name) = @_;

	open my $file, '<', "/proc/$name" or return '';
	local $/;
	return <$file> // '';
}

# Kills the program and all that it has started.
sub kill_all
{
	my ($run) = @_;

	while (my @left = $run->processes)
	{
		kill 'KILL', @left;
		sleep(0.01);
	}
	if (!$run->has_ended)
	{
		kill 'KILL', $run->{pid};
		waitpid $run->{pid}, 0;
	}
	$run->{status} = 'still running';
	return;
}

# Waits until code returns true.  Returns false if it does not in the time of a test.
sub eventually
{
	my ($code) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	until ($code->())
	{
		return 0 if time > $end;
		sleep(0.01);
	}
	return 1;
}

# A test that ends early leaves nothing.
END
{
	if ($$ == $parent)
	{
		my $status = $?;

		$_->kill_all foreach grep { !$_->has_ended } @started;
		$? = $status;
	}
}

1;
