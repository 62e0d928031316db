# A cable between a host and the server, for the fault checker: a process that passes on what
# comes from either end.  If it is stopped, the cable is cut.
package Cable;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;

our @EXPORT = qw(start_cable);

# Copies what comes from one end to the other; returns whether both are open.
sub forward
{
	my ($from, $to) = @_;
	my $length = sysread($from, my $data, 65536);

	return 0 unless $length;
	for (my $at = 0; $at < $length;)
	{
		my $written = syswrite($to, $data, $length - $at, $at) or return 0;

		$at += $written;
	}
	return 1;
}

sub accept_client
{
	my ($listener, $socket, $select, $other) = @_;
	my $client = $listener->accept or return;
	my $server = IO::Socket::UNIX->new(Peer => $socket);

	return close $client unless $server;
	@{$other}{ $client, $server } = ($server, $client);
	$select->add($client, $server);
	return;
}

sub be_cable
{
	my ($listener, $socket) = @_;
	my $select = IO::Select->new($listener);
	my %other;

	$SIG{INT} = $SIG{PIPE} = 'IGNORE';
	$SIG{TERM} = 'DEFAULT';
	while (1)
	{
		foreach my $end ($select->can_read)
		{
			if ($end == $listener)
			{
				accept_client($listener, $socket, $select, \%other);
				next;
			}
			my $other = $other{$end} or next;

			next if forward($end, $other);
			delete @other{ $end, $other };
			$select->remove($end, $other);
			close $_ foreach $end, $other;
		}
	}
}

# Starts one to the server of a connection.  Returns its process and its port at 127.0.0.1.
sub start_cable
{
	my ($connect) = @_;
	my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64) or die "listen: $!\n";
	my $pid = fork;

	die "fork: $!\n" unless defined $pid;
	be_cable($listener, "$connect->{host}/.s.PGSQL.$connect->{port}") if $pid == 0;
	return ($pid, $listener->sockport);
}

1;
