# A replica of a service that does a job if no other replica does; DBD::Pg.
#
#	replica.pl once LOCK           tries once
#	replica.pl keep LOCK           works until the lock is lost
#	replica.pl race LOCK ROUNDS    tries until it has worked ROUNDS times
#
# libpq's environment variables say where the server is.
use strict;
use warnings FATAL => 'all';
use DBI;
use Time::HiRes qw(sleep);

$| = 1;
my $db = DBI->connect('dbi:Pg:', '', '', { RaiseError => 1, PrintError => 0, PrintWarn => 0 });

sub row
{
	my ($query, @values) = @_;
	return $db->selectrow_array($query, undef, @values);
}

# Runs $work->($token, $keep_alive) if no other replica does; returns whether it ran.
sub run_once
{
	my ($lock, $work) = @_;
	my ($token) = row("SELECT shedlock_acquire_token(?, '1 min')", $lock);
	return 0 unless defined $token;

	my $keep_alive = sub {
		my ($alive) = row("SELECT shedlock_extend(?, ?, '1 min')", $lock, $token);
		die "lost\n" unless $alive;
	};
	my $done = eval { $work->($token, $keep_alive); 1 };
	my $error = $@;
	row("SELECT shedlock_release(?, ?)", $lock, $token);
	die $error unless $done;
	return 1;
}

sub once
{
	my ($lock) = @_;
	return run_once($lock, sub { $_[1]->() }) ? 'ran' : 'refused';
}

sub keep
{
	my ($lock) = @_;
	my $work = sub {
		my ($token, $keep_alive) = @_;
		print "holding\n";
		while (1)
		{
			sleep 0.05;
			$keep_alive->();
		}
	};
	return 'refused' if eval { run_once($lock, $work); 1 };
	die $@ if $@ ne "lost\n";
	return 'lost';
}

sub race
{
	my ($lock, $rounds) = @_;
	my ($won, $refused) = (0, 0);

	# Loses an update if another replica runs it meanwhile: two statements, on purpose.
	my $work = sub {
		my ($token, $keep_alive) = @_;
		my ($value, $started) = row('SELECT value, clock_timestamp()::text FROM race_counter');
		sleep 0.002 + rand 0.003;
		$keep_alive->() if $won % 8 == 0;
		$db->do('UPDATE race_counter SET value = ?', undef, $value + 1);
		$db->do('INSERT INTO race_log (token, started) VALUES (?, ?)', undef, $token, $started);
	};
	while ($won < $rounds)
	{
		run_once($lock, $work) ? $won++ : $refused++;
		sleep 0.004 + rand 0.016;
	}
	return "$won won, $refused refused";
}

my ($command, @arguments) = @ARGV;
print +{ once => \&once, keep => \&keep, race => \&race }->{$command}->(@arguments), "\n";
