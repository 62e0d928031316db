# Replicas of a service, each a process with a timer and a connection of its own, that
# compete for one job.
package Replicas;

use strict;
use warnings FATAL => 'all';
use DBI;
use POSIX qw(ceil);
use Time::HiRes qw(sleep time);

# Work leaves a row, whose times are the server's.  The first runs of a job can hang until
# a test kills them.
my $SCHEMA = q{
CREATE TABLE work (
	id bigserial PRIMARY KEY,
	name text NOT NULL,
	tick timestamptz,
	attempt integer,
	replica integer NOT NULL,
	client integer NOT NULL,
	backend integer NOT NULL DEFAULT pg_backend_pid(),
	began timestamptz NOT NULL DEFAULT clock_timestamp(),
	ended timestamptz);

CREATE PROCEDURE work(name text, replica integer, client integer, takes float, hang integer)
LANGUAGE plpgsql AS $$
DECLARE
	this bigint;
	before integer := (SELECT count(*) FROM work w WHERE w.name = $1);
BEGIN
	INSERT INTO work (name, tick, attempt, replica, client)
	VALUES (name, current_setting('shedlock.tick')::timestamptz, current_setting('shedlock.attempt')::integer,
		replica, client)
	RETURNING id INTO this;
	COMMIT;
	PERFORM pg_sleep(CASE WHEN before < hang THEN 600 ELSE takes END);
	UPDATE work SET ended = clock_timestamp() WHERE id = this;
END $$;
};

sub schema
{
	return $SCHEMA;
}

# Starts the replicas.  Options:
#   node                whose connstr() says where to connect
#   name, job           of the job, and what shedlock_job is told besides; without, it has no job
#   attempt             what a replica does when its timer fires
#   log                 file for their calls
#   start, end          times between which timers fire
#   replicas, period    how many, and the seconds between two calls of one
#   offset              function of a replica's number: seconds by which its timer is late
#   takes, hang         seconds of work, and how many runs hang
# and what the attempt needs.
sub start
{
	my ($class, %options) = @_;
	my $self = bless {
		replicas => 6, period => 1, takes => 0.02, hang => 0, parent => $$, processes => {}, failed => [],
		offset => sub { $_[0]->{period} * $_[1] / $_[0]->{replicas} }, %options }, $class;

	if ($self->{job})
	{
		$self->dbh->do("SELECT shedlock_job(?, $self->{job})", undef, $self->{name});
		# the replicas have connections of their own
		(delete $self->{dbh})->disconnect;
	}
	$self->start_replica($_) foreach 0 .. $self->{replicas} - 1;
	return $self;
}

sub start_replica
{
	my ($self, $number) = @_;
	my $process = fork // die "fork: $!";

	if ($process == 0)
	{
		$SIG{TERM} = 'DEFAULT';
		my $ended = eval { $self->_run($number); 1 };
		print STDERR "replica $number: $@" unless $ended;
		POSIX::_exit(!$ended);
	}
	$self->{processes}{$process} = $number;
	return;
}

# Kills a replica like the kernel when memory runs out.  Returns its number.
sub kill_replica
{
	my ($self, $process) = @_;

	kill 'KILL', $process;
	waitpid $process, 0;
	return delete $self->{processes}{$process};
}

# Waits until all replicas have ended, at their time or now.
sub finish
{
	my ($self, $now) = @_;

	kill 'TERM', keys %{ $self->{processes} } if $now;
	foreach my $process (keys %{ $self->{processes} })
	{
		waitpid $process, 0;
		push @{ $self->{failed} }, "replica $self->{processes}{$process} ended with status $?"
		  unless $? == 0 || ($now && $? == POSIX::SIGTERM);
	}
	$self->{processes} = {};
	return;
}

# Returns the errors of calls, and of replicas that ended too early.  A replica that was
# killed has none: its last call has no end.
sub errors
{
	my ($self) = @_;

	return ((grep { $_ ne '' } map { $_->{error} } $self->calls), @{ $self->{failed} });
}

# Returns the calls that the replicas recorded themselves: replica, begin, end and error.
# A call of a replica that was killed has no end.
sub calls
{
	my ($self) = @_;
	my %calls;

	open my $log, '<', $self->{log} or die "$self->{log}: $!";
	while (my $line = <$log>)
	{
		chomp $line;
		my ($replica, $begin, $end, $error) = split /\t/, $line;

		$calls{"$replica $begin"} = { replica => $replica, begin => $begin, end => $end, error => $error || '' };
	}
	return sort { $a->{begin} <=> $b->{begin} } values %calls;
}

# A replica: calls attempt each time its timer fires.
sub _run
{
	my ($self, $number) = @_;
	my $stopped = 0;

	local $SIG{TERM} = sub { $stopped = 1 };
	srand($$);
	open my $log, '>>', $self->{log} or die "$self->{log}: $!";
	$log->autoflush;
	$self->{number} = $number;
	eval { $self->dbh };

	# a timer that is late by a period or more does not fire for what it has missed
	for (my $n = 0;; $n++)
	{
		my $at = $self->{start} + $self->{offset}->($self, $number);

		$n = ceil((time - $at) / $self->{period}) if time - $at >= ($n + 1) * $self->{period};
		$at += $n * $self->{period};
		last if $at >= $self->{end};
		$self->_sleep_until($at, \$stopped);
		last if $stopped || getppid != $self->{parent};

		my $begin = sprintf "%d\t%.6f", $number, time;
		$self->{n} = $n;
		print $log "$begin\n";
		my $error = eval { $self->{attempt}->($self); 1 } ? '' : $@;
		if ($error)
		{
			$error =~ s/\s+/ /g;
			delete @{$self}{qw(dbh client)};
		}
		printf $log "%s\t%.6f\t%s\n", $begin, time, $error;
	}
	return;
}

sub _sleep_until
{
	my ($self, $at, $stopped) = @_;

	while (!$$stopped && (my $left = $at - time) > 0)
	{
		sleep($left);
	}
	return;
}

sub dbh
{
	my ($self) = @_;

	return $self->{dbh} if $self->{dbh};
	my $connstr = $self->{node}->connstr('postgres');

	$connstr =~ s/'//g;
	$connstr =~ s/ /;/g;
	$self->{dbh} = DBI->connect("dbi:Pg:$connstr", 'postgres', '',
		{ AutoCommit => 1, RaiseError => 1, PrintError => 0, PrintWarn => 0, AutoInactiveDestroy => 1 });
	$self->{dbh}->do("SET $_") foreach @{ $self->{settings} || [] };
	return $self->{dbh};
}

sub value
{
	my ($self, $sql, @parameters) = @_;

	return scalar $self->dbh->selectrow_array($sql, undef, @parameters);
}

# Works, outside the database but for the row that it leaves.
sub work
{
	my ($self, $tick, $attempt) = @_;
	my ($id, $before) = $self->dbh->selectrow_array(
		'INSERT INTO work (name, tick, attempt, replica, client) VALUES ($1, $2, $3, $4, $5) '
		  . 'RETURNING id, (SELECT count(*) FROM work WHERE name = $1)',
		undef, $self->{name}, $tick, $attempt, $self->{number}, $$);

	# a server that stops ends this one
	$self->dbh->do('SELECT pg_sleep(600)') if $before < $self->{hang};
	sleep($self->{takes});
	$self->dbh->do('UPDATE work SET ended = clock_timestamp() WHERE id = $1', undef, $id);
	return;
}

# Attempts: by shedlock_run_begin and by CALL shedlock_run
sub run_begin
{
	my ($self) = @_;
	my ($token, $tick, $attempt) = $self->dbh->selectrow_array(
		'SELECT token, tick, attempt FROM shedlock_run_begin($1, $2)', undef, $self->{name}, $self->{lease});

	return unless defined $token;
	$self->work($tick, $attempt);
	$self->value('SELECT shedlock_run_end($1, $2)', $self->{name}, $token) or die "lock lost\n";
	return;
}

sub call_run
{
	my ($self) = @_;
	my $command = sprintf q{CALL work('%s', %d, %d, %f, %d)}, $self->{name}, $self->{number}, $$, $self->{takes}, $self->{hang};

	$self->dbh->do('CALL shedlock_run($1, $2)', undef, $self->{name}, $command);
	return;
}

1;
