#!/usr/bin/perl
# A client that takes one lock after the other until told to stop, whatever
# becomes of the servers; see scripts/test-ha.
#
#	worker.pl lease|session DSN LOG STOPFILE
#
# A line of its log is an answer that it got, with times of one clock:
#	held NAME TOKEN FROM TO     the lock was certainly its own in between
#	tick NAME TICK AT           it claimed that tick
#	error SQLSTATE AT

use strict;
use warnings FATAL => 'all';
use DBI;
use IO::Handle;
use Time::HiRes qw(sleep time);

my ($kind, $dsn, $file, $stop) = @ARGV;
my $at_most = 3;
my @names = map { "job $_" } 1 .. 4;
my $db;

open my $log, '>', $file or die "$file: $!";
$log->autoflush(1);

sub failed
{
	printf $log "error %s %.6f\n", ($db ? $db->state : $DBI::state) || '08000', time;
	$db->disconnect if $db;
	undef $db;
	sleep(0.1);
	return;
}

# The answer of the server; false without one.  Then the connection is of no
# use any more.
sub answer
{
	my ($sql, @values) = @_;
	my $row;

	$db //= DBI->connect("dbi:Pg:$dsn", '', '', { PrintError => 0, RaiseError => 0, AutoCommit => 1 });
	return failed() unless $db;
	$row = $db->selectrow_arrayref($sql, undef, @values) or return failed();
	return $row;
}

# Holds the lock for a while, sometimes to the end of its time as if the holder
# had died.  Returns until when it was certainly held.
sub hold
{
	my ($asked) = @_;
	my $time = rand(1) < 0.1 ? $at_most + 0.5 : rand(0.4);
	my $until = time + $time;
	my $alive = time;

	while (time < $until)
	{
		sleep(0.05);
		last if $kind eq 'session' && !($db && answer('SELECT 1'));
		$alive = time;
	}
	return $alive < $asked + $at_most ? $alive : $asked + $at_most;
}

until (-e $stop)
{
	my $name = $names[ rand @names ];
	my $tick = int(time);
	my $asked = time;
	my ($row, $from, $token);

	if ($kind eq 'lease')
	{
		$row = answer("SELECT shedlock_acquire_token(?, '$at_most s')", $name);
		$token = $row->[0] if $row;
	}
	else
	{
		$row = answer("SELECT shedlock_acquire_session(?, '$at_most s')", $name);
		$row = $row && $row->[0] ? answer('SELECT shedlock_token(?)', $name) : undef;
		$token = $row->[0] if $row;
	}
	$from = time;
	if ($token)
	{
		printf $log "held %s %s %.6f %.6f\n", $name =~ tr/ /_/r, $token, $from, hold($asked);

		# a session lock has gone with its connection
		answer('SELECT shedlock_release(?, ?)', $name, $token) if $kind eq 'lease' || $db;
	}
	$row = answer('SELECT shedlock_once(?, to_timestamp(?))', $name, $tick);
	printf $log "tick %s %s %.6f\n", $name =~ tr/ /_/r, $tick, time if $row && $row->[0];
	sleep(rand(0.05));
}
