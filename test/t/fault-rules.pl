# Each rule of the fault checker finds its violation in a log written by hand, and finds
# none when the one wrong field is corrected.  Effects of a late client are not
# violations: see "However late" below.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use FaultRun;
use PostgreSQL::Test::Utils;
use Test::More;

my $cases = 0;

# A line is one of
#
#	WORKER TIME KIND KEY=VALUE... -> ANSWER KEY=VALUE...
#	nemesis TIME KIND KEY=VALUE... -> ANSWER NAME,TOKEN,KIND,UNTIL...
#	run TIME WHAT FIELDS...
#	FILE: FIELDS...		of a table or of the server's log
#
# Fields have _ for blanks; a field that is _ alone is empty.  An answer comes 10 ms after its call unless it has
# "after=SECONDS", and a worker has one connection unless it has "connection=", which is
# the ID of the process, too.  "run TIME alive ASKED PID,PID" lists the processes that
# are alive.
sub write_logs
{
	my ($text) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir . '/case' . ++$cases;
	my (%files, %numbers);

	foreach my $line (grep { /\S/ } split /\n/, $text)
	{
		$line =~ s/^\s+//;
		if ($line =~ /^(\w+): (.*)/)
		{
			push @{ $files{$1} }, join("\t", map { $_ eq '_' ? '' : tr/_/ /r } split / /, $2);
			next;
		}
		my ($call, $answer) = split / -> ?/, $line;
		my ($who, $time, $kind, @about) = split / /, $call;

		# kinds and keys have theirs
		@about = map { s/^\w+=\K(.*)/$1 =~ tr{_}{ }r/er } map { /=/ ? $_ : tr/_/ /r } @about;
		if ($who eq 'run')
		{
			push @{ $files{'run.log'} }, join("\t", $time, $kind, @about);
			next;
		}
		my $file = $who eq 'nemesis' ? 'nemesis.log' : "worker-$who.0.log";
		my ($after) = map { /^after=(.*)/ } @about;
		my ($connection) = map { /^connection=(.*)/ } @about;
		my $number = ++$numbers{$file};

		@about = grep { !/^(?:after|connection)=/ } @about;
		unshift @about, 'transaction=0' unless $who eq 'nemesis' || grep { /^transaction=/ } @about;
		$connection //= "$who.0.1";
		push @{ $files{$file} }, join("\t", $time, 'connection', $connection, $connection)
		  unless grep { /\tconnection\t\Q$connection\E\t/ } @{ $files{$file} || [] };
		unshift @about, "connection=$connection" unless $who eq 'nemesis';
		push @{ $files{$file} }, join("\t", $time, 'call', $number, $kind, @about);
		next unless length($answer // '');
		my ($what, @rest) = split / /, $answer;
		push @{ $files{$file} }, map { join("\t", $time, 'row', map { tr/_/ /r } split /,/) } grep { /,/ } @rest;
		push @{ $files{$file} },
		  join("\t", sprintf('%.3f', $time + ($after // 0.01)), 'done', $number, $what, map { tr/_/ /r } grep { !/,/ } @rest);
	}
	mkdir $dir or die "$dir: $!\n";
	append_to_file("$dir/$_" . (/\./ || $_ eq 'server' ? '' : '.tsv'), join('', map { "$_\n" } @{ $files{$_} })) foreach keys %files;
	append_to_file("$dir/server", '');
	return $dir;
}

# Checks that a log breaks the rule, and breaks none when it is corrected.
sub finds
{
	my ($rule, $claim, $log, $wrong, $right) = @_;

	subtest "$rule: $claim" => sub {
		my $dir = write_logs($log);
		my $report = judge($dir, '--require', 'none', '--serverlog', "$dir/server");

		is(rules_of($report), $rule, 'found') or diag($report);
		ok((my $mended = $log) =~ s/\Q$wrong\E/$right/, "the log has \"$wrong\"");
		$dir = write_logs($mended);
		$report = judge($dir, '--require', 'none', '--serverlog', "$dir/server");
		is(rules_of($report), 'none', "not found with \"$right\"") or diag($report);
	};
	return;
}

finds('two holders', 'a lease is acquired while another one is held', q{
	0 1.0 acquire name=a most=1 -> true token=1
	1 1.9 acquire name=a most=1 -> true token=2
}, '1 1.9', '1 2.1');

finds('two holders', 'not reentrant', q{
	0 1.0 acquire name=a most=1 -> true token=1
	0 1.5 acquire name=a most=1 -> true token=2
}, '1.5 acquire name=a most=1 -> true token=2', '1.5 acquire name=a most=1 -> false');

finds('two holders', 'an extend keeps the lock held', q{
	0 1.0 acquire name=a most=1 -> true token=1
	0 1.5 extend name=a token=1 most=2 -> true
	1 3.0 acquire name=a most=1 -> true token=2
}, 'most=2', 'most=1');

finds('two holders', 'an extend that was rolled back leaves the lock held by its acquire', q{
	0 1.0 acquire name=a most=3 -> true token=1
	0 1.2 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.3 extend transaction=1 name=a token=1 most=1 -> true
	0 1.4 rollback transaction=1 -> ok
	1 3.0 acquire name=a most=1 -> true token=2
}, 'rollback', 'commit');

finds('two holders', 'a release that was rolled back leaves the lock held', q{
	0 1.0 acquire name=a most=3 -> true token=1
	0 1.2 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.3 savepoint transaction=1 -> ok
	0 1.4 release transaction=1 name=a token=1 -> true
	0 1.5 rollback_to transaction=1 -> ok
	0 1.6 commit transaction=1 -> ok
	1 2.0 acquire name=a most=1 -> true token=2
}, '0 1.5 rollback_to transaction=1 -> ok', '');

finds('two holders', 'an open transaction holds the lock, however short the lease', q{
	0 1.0 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.1 acquire transaction=1 name=a most=0.1 -> true token=1
	1 1.5 acquire name=a most=1 -> true token=2
	0 2.0 commit transaction=1 -> ok
}, '0 2.0 commit', '0 1.4 commit');

finds('two holders', 'a transaction that is rolled back later holds the lock', q{
	0 1.0 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.1 acquire transaction=1 name=a most=0.1 -> true token=1
	1 1.5 acquire name=a most=1 -> true token=2
	0 2.0 rollback transaction=1 -> ok
}, '0 2.0 rollback', '0 1.4 rollback');

finds('two holders', 'a fence outlasts its lease', q{
	0 1.0 acquire name=a most=1 -> true token=1
	0 1.5 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.6 assert transaction=1 name=a token=1 -> ok
	1 2.5 acquire name=a most=1 -> true token=2
	0 3.0 commit transaction=1 -> ok
}, '1 2.5', '1 3.0');

finds('two holders', 'a session lock lasts while its session answers', q{
	0 1.0 acquire_session name=a -> true token=1
	1 5.0 acquire name=a most=1 -> true token=2
	0 6.0 probe -> ok
}, '0 6.0 probe -> ok', '0 6.0 probe -> lost state=57P01');

finds('two holders', 'a session lock lasts until its session is reset', q{
	0 1.0 acquire_session name=a -> true token=1
	0 5.0 probe -> ok
	1 5.5 acquire name=a most=1 -> true token=2
	0 6.0 probe -> ok
}, '0 5.0 probe', '0 5.0 discard');

finds('two holders', 'a run holds its lock while it shows signs of life', q{
	0 1.0 run name=a work=1 after=2 -> true
	1 1.5 acquire name=a most=0.1 -> true token=2
	work: a 1 0.0/1 7 1.2
	work: a 1 0.0/1 7 1.8
}, '7 1.8', '7 1.4');

finds('two holders', 'an at-least time is kept after the release', q{
	0 1.0 acquire name=a most=2 least=1 -> true token=1
	0 1.5 release name=a token=1 -> true
	1 1.8 acquire name=a most=1 -> true token=2
}, ' least=1', '');

finds('two holders', 'a force-release ends the at-least time', q{
	0 1.0 acquire name=a most=2 -> true token=1
	nemesis 1.2 force_release name=a -> false
	1 1.8 acquire name=a most=1 -> true token=2
}, '-> false', '-> true');

finds('token repeated', 'two names have the same token', q{
	0 1.0 acquire name=a most=1 -> true token=1
	1 1.0 acquire name=b most=1 -> true token=1
}, 'name=b most=1 -> true token=1', 'name=b most=1 -> true token=2');

finds('token order', 'a later acquisition has a smaller token', q{
	0 1.0 acquire name=a most=1 -> true token=2
	1 2.5 acquire name=a most=1 -> true token=1
}, 'token=2', 'token=0');

finds('write out of token order', 'two writes with tokens in the wrong order', q{
	fenced: 1 a 2 0.0/1
	fenced: 2 a 1 1.0/1
}, '1 a 2', '3 a 2');

finds('tick claimed twice', 'two claims in the table of claims', q{
	0 0.9 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.0 once name=t transaction=1 -> true tick=1
	0 1.1 claimed transaction=1 -> ok
	1 1.2 once name=t -> true tick=1
	claims: t 1 0.0/3
}, 'once name=t -> true tick=1', 'once name=t -> true tick=2');

finds('tick claimed twice', 'two claims without a purge between them', q{
	0 1.0 once name=t -> true tick=1
	nemesis 2.0 purge age=5 -> true
	1 3.0 once name=t -> true tick=1
}, 'age=5', 'age=0.5');

finds('not the owner', 'a release by a client that never held the lock', q{
	0 1.0 acquire name=a most=2 -> true token=1
	1 1.5 release name=a -> true
}, '1.5 release name=a -> true', '1.5 release name=a -> false');

finds('not the owner', 'a lease has expired', q{
	0 1.0 acquire name=a most=1 -> true token=1
	0 2.5 extend name=a token=1 -> true
}, '2.5', '1.5');

finds('not the owner', 'the session was another one', q{
	0 1.0 acquire name=a most=5 -> true token=1
	0 2.0 release name=a connection=0.0.2 -> true
}, 'release name=a', 'release name=a token=1');

finds('not the owner', 'another client has acquired the lock since', q{
	0 1.0 acquire_session name=a -> true token=1
	nemesis 1.1 force_release name=a -> true
	1 1.5 acquire name=a most=1 -> true token=2
	0 2.0 assert name=a -> ok
}, 'assert name=a -> ok', 'assert name=a -> error state=55000');

finds('owner refused', 'an unexpired lease is not extended', q{
	0 1.0 acquire name=a most=2 -> true token=1
	0 1.5 extend name=a token=1 most=1 -> false
}, '0 1.5', '0 3.5');

finds('owner refused', 'an assert of a held session lock fails', q{
	0 1.0 acquire_session name=a -> true token=1
	0 1.5 assert name=a -> error state=55000
	0 2.0 release name=a -> true
}, 'assert name=a -> error state=55000', 'assert name=a -> ok');

finds('refused for nothing', 'the holder has released it', q{
	0 1.0 acquire name=a most=9 -> true token=1
	0 1.5 release name=a token=1 -> true
	1 1.6 acquire name=a most=1 -> false
}, '1 1.6', '1 1.505');

finds('refused for nothing', 'no crash can have lost the release', q{
	0 1.0 acquire name=a most=9 -> true token=1
	0 1.5 release name=a token=1 -> true
	2 2.0 acquire name=b most=0.1 -> true token=2
	nemesis 3.0 kill_backend worker=1 -> true
	1 3.6 acquire name=a most=1 -> false
}, '2 2.0', '2 3.2');

finds('refused for nothing', 'the holder is dead', q{
	0 1.0 acquire_session name=a -> true token=1
	0 1.5 probe ->
	run 2.0 reaped 0 0 9
	run 2.3 alive 2.2 1.0.1
	1 2.4 acquire name=a most=1 -> false
}, 'alive 2.2 1.0.1', 'alive 2.2 0.0.1,1.0.1');

finds('refused for nothing', 'the acquire was rolled back', q{
	0 1.0 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.1 acquire transaction=1 name=a most=9 -> true token=1
	0 1.2 rollback transaction=1 -> ok
	1 1.6 acquire name=a most=1 -> false
}, 'rollback', 'commit');

finds('refused for nothing', 'a fence ends with its transaction', q{
	0 1.0 acquire name=a most=1 -> true token=1
	0 1.1 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.2 assert transaction=1 name=a token=1 -> ok
	1 3.5 acquire name=a most=1 -> false
	0 3.0 rollback transaction=1 -> ok
}, '1 3.5', '1 2.5');

finds('starved', 'a lock that no client acquires', q{
	0 1 acquire_session name=a -> true token=1
	1 2 acquire name=a most=1 -> false
	1 8 acquire name=a most=1 -> false
	1 14 acquire name=a most=1 -> false
	1 20 acquire name=a most=1 -> false
	1 26 acquire name=a most=1 -> false
	1 40 acquire name=a most=1 -> false
}, '1 40', '1 30');

my $refused_often = join "\n", map { '1 ' . (2 + $_ / 10) . ' acquire name=a most=1 -> false' } 1 .. 99;

finds('starved', 'a worker that never acquires a lock', "
	0 1 acquire name=a most=90 -> true token=1
	$refused_often
	1 13 acquire name=a most=1 -> false
	1 25 probe -> ok
", '1 25', '1 15');

finds('taken while paused', 'an acquire during a pause', q{
	nemesis 1.0 pause name=a length=2 -> true
	0 1.5 acquire name=a most=1 -> true token=1
}, '0 1.5', '0 3.1');

finds('deleted while held', 'the row of an unexpired lease', q{
	0 1.0 acquire name=a most=2 -> true token=1
	nemesis 1.5 delete_row name=a -> true
}, 'delete_row name=a -> true', 'delete_row name=a -> error state=55006');

finds('not in the table', 'a lease is missing after a crash', q{
	0 1.0 acquire name=a most=9 -> true token=5
	nemesis 1.5 restart -> true
	nemesis 2.0 look -> ok a,5,released,1.5
}, 'released,1.5', 'lease,10');

finds('not in the table', 'the last token is missing', q{
	0 1.0 acquire name=a most=0.1 -> true token=5
	nemesis 1.5 restart -> true
	nemesis 2.0 look -> ok a,4,lease,1.5
}, 'a,4', 'a,5');

finds('not in the table', 'the row is missing', q{
	0 1.0 acquire name=a most=0.1 -> true token=5
	nemesis 1.5 purge age=0 -> false
	nemesis 2.0 look -> ok
}, 'age=0 -> false', 'age=0 -> true');

finds('refused but wrote', 'a refused acquire has a transaction ID', q{
	0 0.5 acquire name=a most=9 -> true token=1
	1 1.0 begin transaction=1 level=SERIALIZABLE -> ok
	1 1.1 traces transaction=1 -> ok seen=none
	1 1.2 acquire transaction=1 name=a most=1 -> false
	1 1.3 traces transaction=1 -> ok seen=700
	1 1.4 rollback transaction=1 -> ok
}, 'seen=700', 'seen=none');

finds('waited too long', 'by the server\'s clock', q{
	0 0.5 acquire name=a most=90 -> true token=1
	1 1.0 acquire name=a most=1 wait=0.5 after=9 -> false took=8.9
}, 'took=8.9', 'took=0.5');

finds('unexpected error', 'a call gets it', q{
	0 1.0 acquire name=a most=1 -> error state=40001
}, '40001', '57014');

finds('unexpected error', 'the nemesis gets it', q{
	nemesis 1.0 purge age=0 -> error state=XX000
}, 'XX000', '55P03');

finds('held by the dead', 'a dead session holds an advisory lock', q{
	run 1.0 final advisory_locks 1
}, 'locks 1', 'locks 0');

finds('server', 'a crash that the nemesis did not cause', q{
	server: LOG:__server_process_(PID_1)_was_terminated_by_signal_11:_Segmentation_fault
}, 'signal_11', 'signal_9');

finds('harness', 'a worker that failed', q{
	run 1.0 reaped 0 0 512
}, '0 0 512', '0 0 9');

#
# Permits
#

my $ANY = 'acquire_any name=p permits=2 most=9 count';

finds('two holders', 'a permit is acquired while it is held', "
	0 1.0 $ANY=1 -> true locks=p/1:1
	1 1.5 $ANY=1 -> true locks=p/1:2
", 'p/1:2', 'p/2:2');

finds('two holders', 'a permit is acquired by its name', "
	0 1.0 $ANY=1 -> true locks=p/2:1
	1 1.5 acquire name=p/2 most=9 -> true token=2
", 'name=p/2', 'name=p/1');

finds('too many permits', 'by whatever names; a fence is not one more', "
	0 1.0 $ANY=2 -> true locks=p/1:1;p/2:2
	0 1.1 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.2 assert transaction=1 name=p/2 token=2 -> ok
	0 1.3 commit transaction=1 -> ok
	1 1.5 acquire name=p/3 most=9 -> true token=3
", 'most=9', 'most=0.5');

finds('too many permits', 'a short fence does not end what it fences', "
	0 1.0 $ANY=2 -> true locks=p/1:1;p/2:2
	0 1.1 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.2 assert transaction=1 name=p/2 token=2 -> ok
	0 1.3 commit transaction=1 -> ok
	0 1.6 release name=p/2 token=2 -> true
	1 1.5 acquire name=p/3 most=9 -> true token=3
", '1 1.5', '1 1.65');

finds('wrong permits', 'there are fewer', "
	0 1.0 $ANY=1 -> true locks=p/3:1
", 'p/3', 'p/2');

finds('wrong permits', 'more than were wanted', "
	0 1.0 $ANY=1 -> true locks=p/1:1;p/2:2
", ';p/2:2', '');

finds('wrong permits', 'the same one twice', "
	0 1.0 $ANY=2 -> true locks=p/2:1;p/2:2
", 'p/2:1', 'p/1:1');

finds('refused for nothing', 'one permit was free', "
	0 1.0 $ANY=1 -> true locks=p/1:1
	1 1.5 $ANY=1 -> false
", '=1 -> true locks=p/1:1', '=2 -> true locks=p/1:1;p/2:2');

finds('refused for nothing', 'two were wanted, and one of two free ones acquired', "
	0 1.0 $ANY=2 -> true locks=p/1:1
", '=2', '=1');

#
# Runs of ticks.  A run is a line of the history: token, name, tick, begin, attempt, end, outcome,
# whether it gave up, request, call.
#

my $PLAN = 'every=2 attempts=3 backoff=0.1 catch_up=latest';
my $JOB = "run 0.6 declared 0.5 name=p result=created $PLAN";
my $ALL = $JOB =~ s/latest/all/r;
my $LATE = "$ALL late=3";
my $ONCE = $JOB =~ s/attempts=3/attempts=1/r;
my $CALL = 'planned_run name=p';
my $BEGIN = 'run_begin name=p most=1';

finds('two holders', 'a run outside the database holds its lock as long as its lease lasts', "
	$JOB
	0 2.0 $BEGIN -> true token=1 tick=2 attempt=1
	1 2.9 $BEGIN -> true token=2 tick=2 attempt=2
	runs: 1 p 2 2.001 1 _ running 0 _ 0.0/1
	runs: 2 p 2 3.055 2 _ running 0 _ 1.0/1
", '1 2.9', '1 3.05');

finds('not the owner', 'a late end is true', "
	$JOB
	0 2.0 $BEGIN -> true token=1 tick=2 attempt=1
	0 3.5 run_end name=p token=1 outcome=succeeded -> true
	runs: 1 p 2 2.001 1 3.501 succeeded 0 _ 0.0/1
", '0 3.5', '0 2.5');

finds('owner refused', 'an end in time is false', "
	$JOB
	0 2.0 $BEGIN -> true token=1 tick=2 attempt=1
	0 2.5 run_end name=p token=1 outcome=succeeded -> false
	runs: 1 p 2 2.001 1 _ running 0 _ 0.0/1
", '0 2.5', '0 3.5');

finds('second end', 'the same end again is false', "
	$JOB
	0 2.0 $BEGIN -> true token=1 tick=2 attempt=1
	0 2.5 run_end name=p token=1 outcome=succeeded -> true
	0 2.6 run_end name=p token=1 outcome=succeeded -> false
	runs: 1 p 2 2.001 1 2.501 succeeded 0 _ 0.0/1
", '-> false', '-> true');

finds('second end', 'another end is true', "
	$JOB
	0 2.0 $BEGIN -> true token=1 tick=2 attempt=1
	0 2.5 run_end name=p token=1 outcome=succeeded -> true
	0 2.6 run_end name=p token=1 outcome=failed -> true
	runs: 1 p 2 2.001 1 2.501 succeeded 0 _ 0.0/1
", 'outcome=failed', 'outcome=succeeded');

finds('two runs of a request', 'it is answered with another token', "
	$JOB
	0 2.0 $BEGIN request=r -> true token=1 tick=2 attempt=1
	0 2.1 $BEGIN request=r -> true token=2 tick=2 attempt=1
	runs: 1 p 2 2.001 1 _ running 0 r 0.0/1
", 'true token=2', 'true token=1');

finds('two runs of a request', 'the history has two', "
	$JOB
	runs: 1 p 2 2.001 1 _ running 1 r 0.0/1
	runs: 2 p 4 4.001 1 _ running 0 r 0.0/2
", '4.001 1 _ running 0 r', '4.001 1 _ running 0 q');

finds('not the owner', 'a repeated request has its token after the lease', "
	$JOB
	0 2.0 $BEGIN request=r -> true token=1 tick=2 attempt=1
	0 3.5 $BEGIN request=r -> true token=1 tick=2 attempt=1
	runs: 1 p 2 2.001 1 _ running 0 r 0.0/1
", '0 3.5', '0 2.5');

finds('not in the history', 'a run outside the database', "
	$JOB
	0 2.0 $BEGIN -> true token=1 tick=2 attempt=2
	runs: 1 p 2 2.001 1 _ running 0 _ 0.0/1
", 'attempt=2', 'attempt=1');

finds('not in the history', 'a guarded command', "
	$JOB
	0 2.0 $CALL after=0.5 -> true
	work: p 1 0.0/1 7 2.1 2 2
	runs: 1 p 2 2.05 1 2.4 succeeded 0 _ 0.0/1
", '2.1 2 2', '2.1 2 1');

finds('before its tick', 'a run of a tick', "
	$JOB
	0 1.6 $CALL after=0.9 -> true
	runs: 1 p 2 1.9 1 2.4 succeeded 0 _ 0.0/1
", '2 1.9 1', '2 2.0 1');

finds('too many attempts', 'the first is not counted as that', "
	$JOB
	0 2.0 $CALL -> error state=22012
	runs: 1 p 2 2.001 2 2.005 failed 0 _ 0.0/1
", '2.001 2', '2.001 1');

finds('too many attempts', 'a begin was not counted', "
	$JOB
	0 2.0 $CALL -> error state=22012
	0 2.3 $CALL -> error state=22012
	runs: 1 p 2 2.001 1 2.005 failed 0 _ 0.0/1
	runs: 2 p 2 2.301 1 2.305 failed 0 _ 0.0/2
", '2.301 1', '2.301 2');

finds('too many attempts, too many runs', 'shedlock_again alone allows one more', "
	$ONCE
	0 2.0 $CALL -> error state=22012
	nemesis 2.1 again name=p -> false
	0 2.6 $CALL -> error state=22012
	runs: 1 p 2 2.001 1 2.005 failed 1 _ 0.0/1
	runs: 2 p 2 2.601 2 2.605 failed 1 _ 0.0/2
", 'again name=p -> false', 'again name=p -> true');

finds('used up', 'a run after the success', "
	$JOB
	0 2.0 $CALL after=0.2 -> error state=22012
	0 2.4 $CALL -> error state=22012
	runs: 1 p 2 2.001 1 2.105 succeeded 0 _ 0.0/1
	runs: 2 p 2 2.401 2 2.405 failed 0 _ 0.0/2
", '2.105 succeeded', '2.105 failed');

finds('used up', 'a run after its cancellation by an administrator', "
	$JOB
	0 2.0 $CALL after=0.2 -> error state=57014
	nemesis 2.1 cancel_run name=p -> true
	0 2.5 $CALL -> error state=22012
	runs: 1 p 2 2.001 1 2.105 cancelled 0 _ 0.0/1
	runs: 2 p 2 2.501 2 2.505 failed 0 _ 0.0/2
", 'cancel_run name=p -> true', 'cancel_run name=p -> false');

finds('before its backoff', 'the second attempt', "
	$JOB
	0 2.0 $CALL -> error state=22012
	0 2.3 $CALL -> error state=22012
	work: p 1 0.0/1 7 2.25 2 1
	runs: 1 p 2 2.001 1 2.26 failed 0 _ 0.0/1
	runs: 2 p 2 2.301 2 2.305 failed 0 _ 0.0/2
", '7 2.25', '7 2.2');

finds('before its backoff', 'the attempt after the second one that died', "
	$JOB
	0 2.0 $CALL -> lost
	0 2.3 $CALL -> lost
	0 2.4 $CALL -> lost
	run 9.0 alive 8.9 1.0.1
	runs: 1 p 2 2.001 1 _ running 0 _ 0.0/1
	runs: 2 p 2 2.301 2 _ running 0 _ 0.0/2
	runs: 3 p 2 2.401 3 _ running 0 _ 0.0/3
", '3 p 2 2.401', '3 p 2 2.501');

finds('tick order', 'backwards', "
	$JOB
	0 4.0 $CALL -> true
	runs: 1 p 4 4.001 1 4.005 succeeded 0 _ 0.0/1
	runs: 2 p 2 4.101 1 4.105 succeeded 0 _ 0.0/1
", '2 p 2 4.101', '2 p 6 6.101');

finds('tick order', 'an older tick, although the call came after a newer one', "
	$JOB
	0 4.1 $CALL -> true
	runs: 1 p 2 4.101 1 4.105 succeeded 0 _ 0.0/1
", 'latest', 'all');

finds('tick order', 'a missed tick has no run', "
	$ALL
	0 2.0 $CALL -> true
	0 6.0 $CALL -> true
	runs: 1 p 2 2.001 1 2.005 succeeded 0 _ 0.0/1
	runs: 2 p 6 6.001 1 6.005 succeeded 0 _ 0.0/2
", '2 p 6', '2 p 4');

finds('tick order', 'a missed tick was not too late', "
	$LATE
	0 2.0 $CALL -> true
	0 6.0 $CALL -> true
	runs: 1 p 2 2.001 1 2.005 succeeded 0 _ 0.0/1
	runs: 2 p 6 6.901 1 6.905 succeeded 0 _ 0.0/2
", '6.901', '7.001');

finds('tick order', 'a tick was too late', "
	$LATE
	0 5.1 $CALL -> true
	runs: 1 p 2 5.101 1 5.105 succeeded 0 _ 0.0/1
", '0 5.1', '0 4.9');

finds('given up silently', 'a newer tick ends the attempts of an older one', "
	$JOB
	0 2.0 $CALL -> error state=22012
	0 4.0 $CALL -> true
	runs: 1 p 2 2.001 1 2.005 failed 0 _ 0.0/1
	runs: 2 p 4 4.001 1 4.005 succeeded 0 _ 0.0/2
", '2.005 failed 0', '2.005 failed 1');

finds('wrong outcome', 'its caller has ended it with another', "
	$JOB
	0 2.0 $BEGIN -> true token=1 tick=2 attempt=1
	0 2.1 run_end name=p token=1 outcome=failed -> true
	runs: 1 p 2 2.001 1 2.105 succeeded 0 _ 0.0/1
", '2.105 succeeded', '2.105 failed');

finds('end apart from work', 'a success without the last write', "
	$JOB
	0 2.0 $CALL after=0.2 -> true
	runs: 1 p 2 2.001 1 2.105 succeeded 0 _ 0.0/1
	done: 2 0.0/2
", 'done: 2', 'done: 1');

finds('end apart from work', 'the last write of a run that is lost', "
	$JOB
	0 2.0 $CALL after=0.2 -> lost
	runs: 1 p 2 2.001 1 _ lost 0 _ 0.0/1
	done: 1 0.0/1
", '_ lost', '2.1 succeeded');

finds('end apart from work', 'an administrator is in the way', "
	$JOB
	0 2.0 $CALL after=0.2 -> error state=57P01
	nemesis 2.1 again name=q -> true
	runs: 1 p 2 2.001 1 _ lost 0 _ 0.0/1
	done: 1 0.0/1
", 'again name=q', 'again name=p');

finds('outlived its limit', 'a session', q{
	0 1.0 acquire_session name=a most=1 -> true token=1
	0 4.5 begin level=SERIALIZABLE -> ok
}, 'most=1', 'most=2');

finds('outlived its limit', 'a session that has extended its lock', q{
	0 1.0 acquire_session name=a most=1 -> true token=1
	0 1.5 extend name=a token=1 most=2 -> true
	0 6.0 begin level=SERIALIZABLE -> ok
}, 'token=1 most=2', 'token=1 most=3');

finds('outlived its limit', 'a command', "
	$JOB
	0 2.0 $CALL most=1 after=5 -> error state=57014
	work: p 1 0.0/1 7 5.5 2 1
	runs: 1 p 2 2.001 1 5.6 timed_out 0 _ 0.0/1
", '7 5.5', '7 4.5');

finds('counted wrong', 'a run that was counted twice', q{
	ended: p succeeded 3
	counted: p succeeded 4
}, 'counted: p succeeded 4', 'counted: p succeeded 3');

finds('counted wrong', 'a run that was not counted', q{
	ended: p lost 1
	ended: p timed_out 2
	counted: p timed_out 2
}, 'ended: p lost 1', '');

finds('counted wrong', 'a tick that was given up, counted for another name', q{
	ended: p gave_up 1
	counted: q gave_up 1
}, 'counted: q', 'counted: p');

finds('due but not run', 'the first tick', "
	$JOB
	0 2.1 $CALL -> true
", '-> true', '-> error state=57014');

finds('due but not run', 'the next tick', "
	$JOB
	0 2.1 $CALL -> true
	0 4.1 $CALL -> true
	runs: 1 p 2 2.101 1 2.105 succeeded 0 _ 0.0/1
", '0 4.1', '0 3.1');

finds('due but not run', 'a call that is early counts for the coming tick', "
	$JOB
	0 2.1 $CALL -> true
	0 3.6 $CALL after=0.5 -> true
	runs: 1 p 2 2.101 1 2.105 succeeded 0 _ 0.0/1
", '0 3.6 planned_run', '0 3.4 planned_run');

finds('due but not run', 'the next attempt, after its backoff', "
	$JOB
	0 2.1 $CALL -> error state=22012
	0 2.3 run_begin name=p most=1 -> false state=not_due
	runs: 1 p 2 2.101 1 2.105 failed 0 _ 0.0/1
", '0 2.3', '0 2.2');

finds('due but not run', 'the second attempt after a death, at once', "
	$JOB
	0 2.1 $CALL -> lost
	run 2.2 alive 2.15 1.0.1
	1 2.21 $CALL -> true
	runs: 1 p 2 2.101 1 _ running 0 _ 0.0/1
", 'run 2.2 alive 2.15', 'run 2.4 alive 2.35');

finds('due but not run', 'unless the session was ended for another lock', "
	$JOB
	0 2.0 acquire_session name=a -> true
	0 2.1 $CALL after=0.1 -> lost
	nemesis 2.15 force_release name=b -> true
	run 2.2 alive 2.18 1.0.1
	1 2.3 $CALL -> true
	runs: 1 p 2 2.101 1 2.16 cancelled 0 _ 0.0/2
", 'name=b', 'name=a');

finds('due but not run', 'a missed tick', "
	$ALL
	0 2.1 $CALL -> true
	0 6.1 $CALL -> true
	0 6.2 $CALL -> true
	runs: 1 p 2 2.101 1 2.105 succeeded 0 _ 0.0/1
	runs: 2 p 4 6.101 1 6.105 succeeded 0 _ 0.0/2
", '0 6.2 planned_run', '0 6.2 probe');

finds('due but not run', 'only a run that took a period uses up what passed meanwhile', "
	$JOB
	0 2.0 $CALL after=2.15 -> true
	0 4.2 $CALL -> true
	runs: 1 p 2 2.2 1 4.15 succeeded 0 _ 0.0/1
", '2 2.2 1', '2 2.1 1');

finds('due but not run', 'the lock was free', "
	$JOB
	0 2.1 acquire name=p most=1 -> true token=1
	0 2.5 release name=p token=1 -> true
	1 2.6 $CALL -> true
", '1 2.6', '1 2.4');

finds('two holders', 'one call makes several runs', "
	$ALL
	0 2.0 $CALL after=3 -> true
	1 4.5 acquire name=p most=0.1 -> true token=3
	work: p 1 0.0/1 7 2.1 2 1
	work: p 2 0.0/1 7 4.1 4 1
	work: p 2 0.0/1 7 4.8 4 1
	runs: 1 p 2 2.05 1 2.4 succeeded 0 _ 0.0/1
	runs: 2 p 4 4.05 1 4.9 succeeded 0 _ 0.0/1
", '7 4.8', '7 4.4');

finds('no tick of its job', 'it was forgotten', "
	$JOB
	nemesis 1.0 forget name=p -> true
	0 2.0 $CALL -> true
	runs: 1 p 2 2.001 1 2.005 succeeded 0 _ 0.0/1
", 'nemesis 1.0', 'nemesis 3.0');

finds('no tick of its job', 'no schedule has it', "
	$JOB
	0 3.0 $CALL -> true
	runs: 1 p 3 3.001 1 3.005 succeeded 0 _ 0.0/1
", '1 p 3 3.001', '1 p 2 3.001');

finds('no tick of its job', 'it is one of a schedule that was declared later', "
	$JOB
	nemesis 3.5 declare name=p every=3 attempts=3 backoff=0.1 catch_up=latest -> true result=changed
	0 3.0 $CALL -> true
	runs: 1 p 3 3.001 1 3.005 succeeded 0 _ 0.0/1
", 'nemesis 3.5', 'nemesis 1.0');

finds('too many attempts', 'a run that was returned does not count', "
	$JOB
	0 2.0 $BEGIN -> true token=1 tick=2 attempt=1
	0 2.1 run_end name=p token=1 outcome=returned after=0.05 -> lost
	0 2.2 $BEGIN connection=8 -> true token=2 tick=2 attempt=2
	runs: 1 p 2 2.001 1 2.105 returned 0 _ 0.0/1
	runs: 2 p 2 2.201 2 _ running 0 _ 0.0/3
", '2.105 returned', '2.105 failed');

finds('too many attempts, too many runs', 'only what was declared until it began', "
	$ONCE
	0 2.0 $CALL -> error state=22012
	nemesis 2.7 declare name=p $PLAN -> true result=changed
	0 2.6 $CALL -> error state=22012
	runs: 1 p 2 2.001 1 2.005 failed 1 _ 0.0/1
	runs: 2 p 2 2.601 2 2.605 failed 1 _ 0.0/2
", 'nemesis 2.7', 'nemesis 2.1');

finds('too many runs', 'shedlock_again allows one', "
	$ONCE
	0 2.0 $CALL -> error state=22012
	nemesis 2.0 again name=q -> true
	nemesis 2.1 again name=p after=0.8 -> true
	0 2.3 $CALL -> error state=22012
	0 2.6 $CALL -> error state=22012
	runs: 1 p 2 2.001 1 2.005 failed 1 _ 0.0/1
	runs: 2 p 2 2.301 2 2.305 failed 1 _ 0.0/2
	runs: 3 p 2 2.601 3 2.605 failed 1 _ 0.0/3
", 'again name=q', 'again name=p');

finds('before its backoff, tick order, too many attempts, too many runs', 'unless what shedlock_again had allowed was returned', "
	$ONCE
	0 2.0 $CALL -> error state=22012
	nemesis 4.05 again name=p -> true
	0 4.1 $BEGIN -> true token=2 tick=2 attempt=2
	0 4.2 run_end name=p token=2 outcome=returned after=0.05 -> lost
	0 4.3 $BEGIN connection=8 -> true token=3 tick=2 attempt=2
	runs: 1 p 2 2.001 1 2.005 failed 1 _ 0.0/1
	runs: 2 p 2 4.105 2 4.205 failed 0 _ 0.0/2
	runs: 3 p 2 4.305 2 _ running 0 _ 0.0/4
", '4.205 failed', '4.205 returned');

finds('used up', 'a job that was forgotten owes its old tick nothing', "
	$JOB
	0 2.0 $CALL -> error state=22012
	nemesis 2.1 forget name=p -> true
	nemesis 2.2 declare name=p $PLAN -> true result=created
	nemesis 2.3 again name=q -> true
	0 2.6 $CALL -> true
	runs: 1 p 2 2.001 1 2.005 failed 1 _ 0.0/1
	runs: 2 p 2 2.601 2 2.605 succeeded 0 _ 0.0/2
", 'again name=q', 'again name=p');

finds('tick order', 'backwards after it was forgotten', "
	$JOB
	0 4.0 $CALL -> true
	nemesis 4.1 forget name=p -> true
	nemesis 4.2 purge age=9 -> false
	nemesis 4.3 declare name=p $PLAN -> true result=created
	0 5.0 $CALL -> true
	runs: 1 p 4 4.001 1 4.005 succeeded 0 _ 0.0/1
	runs: 2 p 2 5.001 1 5.005 succeeded 0 _ 0.0/2
", 'age=9 -> false', 'age=0.01 -> true');

finds('skipped', 'a tick that was skipped has a run', "
	$JOB
	nemesis 1.5 skip name=p -> true tick=2
	nemesis 1.7 again name=q -> true
	0 2.0 $CALL -> true
	runs: 1 p 2 2.001 1 2.005 succeeded 0 _ 0.0/1
", 'again name=q', 'again name=p');

finds('declared wrongly', 'the same again changes nothing', "
	$JOB
	0 1.0 declare name=p $PLAN -> true result=changed
", 'true result=changed', 'false result=unchanged');

finds('declared wrongly', 'a change is one', "
	$JOB
	0 1.0 declare name=p $PLAN late=1 -> false result=unchanged
", 'false result=unchanged', 'true result=changed');

finds('declared wrongly', 'it was forgotten', "
	$JOB
	nemesis 0.8 forget name=p -> true
	0 1.0 declare name=p $PLAN -> false result=unchanged
", 'false result=unchanged', 'true result=created');

finds('declared wrongly', 'there was a job to forget', "
	$JOB
	nemesis 0.8 forget name=p -> false
", '-> false', '-> true');

finds('told a wrong time', 'a run began before', "
	$JOB
	0 2.0 $CALL -> true
	0 2.5 $BEGIN -> false state=not_due next=6
	0 4.0 $CALL -> true
	runs: 1 p 2 2.001 1 2.005 succeeded 0 _ 0.0/1
	runs: 2 p 4 4.001 1 4.005 succeeded 0 _ 0.0/3
", 'next=6', 'next=4');

finds('told a wrong time', 'it has passed', "
	$JOB
	0 2.0 $CALL -> true
	0 2.5 $BEGIN -> false state=not_due next=2
	runs: 1 p 2 2.001 1 2.005 succeeded 0 _ 0.0/1
", 'next=2', 'next=4');

finds('counted wrong', 'a job that was forgotten has no more than its runs', "
	$JOB
	nemesis 0.8 forget name=p -> true
	ended: p succeeded 3
	counted: p succeeded 4
", 'counted: p succeeded 4', 'counted: p succeeded 2');

finds('due but not run', 'the period in which it was declared', "
	run 2.6 declared 2.5 name=p result=created $PLAN
	0 2.9 $CALL -> true
", 'catch_up=latest', 'catch_up=latest late=9');

finds('due but not run', 'a change loses no tick that was due', "
	$JOB
	0 2.0 $CALL after=1.9 -> true
	nemesis 4.5 declare name=p $PLAN attempts=9 every=3 -> true result=changed
	0 4.7 $CALL -> true
	runs: 1 p 2 2.001 1 2.005 succeeded 0 _ 0.0/1
", '1 p 2 2.001 1 2.005', '1 p 4 4.001 1 4.005');

finds('due but not run', 'a change drops no attempt that is left', "
	$JOB
	0 4.0 $CALL -> error state=22012
	nemesis 4.15 declare name=p $PLAN attempts=2 every=3 -> true result=changed
	0 4.2 $CALL -> true
	runs: 1 p 4 4.001 1 4.005 failed 0 _ 0.0/1
", 'attempts=2', 'attempts=1');

finds('due but not run', 'a change ends no backoff of an older tick', "
	$ALL
	0 4.1 $CALL -> error state=22012
	nemesis 4.15 declare name=p $PLAN attempts=4 catch_up=all -> true result=changed
	0 4.4 $CALL -> true
	runs: 1 p 2 4.101 1 4.105 failed 0 _ 0.0/1
", '0 4.4', '0 4.18');

finds('due but not run', 'a tick that was not skipped', "
	$JOB
	nemesis 1.5 skip name=p -> true tick=4
	0 2.1 $CALL -> true
", 'tick=4', 'tick=2');

#
# A call for the next of several jobs, of which "o" was never declared
#
my $NEXT = 'next names=o;p most=1';

finds('two holders', 'the next of several jobs is run as long as its lease lasts', "
	$JOB
	0 2.0 $NEXT -> true name=p token=1 tick=2 attempt=1
	1 2.9 $BEGIN -> true token=2 tick=2 attempt=2
	runs: 1 p 2 2.001 1 _ running 0 _ 0.0/1
	runs: 2 p 2 3.055 2 _ running 0 _ 1.0/1
", '1 2.9', '1 3.05');

finds('two runs of a request', 'it is answered with a run of another job', "
	$JOB
	run 0.6 declared 0.5 name=q result=created $PLAN
	0 2.0 next names=p;q most=1 request=r -> true name=p token=1 tick=2 attempt=1
	0 2.1 next names=p;q most=1 request=r -> true name=p token=2 tick=2 attempt=1
	runs: 1 p 2 2.001 1 _ running 0 r 0.0/1
", 'true name=p token=2', 'true name=p token=1');

finds('no tick of its job', 'a run that nobody asked for', "
	$JOB
	0 2.0 next names=o;q most=1 -> true name=p token=1 tick=2 attempt=1
	runs: 1 p 2 2.001 1 _ running 0 _ 0.0/1
", 'names=o;q', 'names=o;p');

finds('no tick of its job', 'a run without a tick', "
	$JOB
	0 2.0 $NEXT -> true name=p token=1
	runs: 1 p _ 2.001 _ _ running 0 _ 0.0/1
", 'next names=o;p', 'run_begin name=p');

finds('due but not run', 'one of several jobs', "
	$JOB
	0 2.1 $NEXT -> false state=not_due
", 'names=o;p', 'names=o;q');

finds('due but not run', 'one of several jobs, while another one is held', "
	$JOB
	0 2.1 $NEXT -> false state=held
", 'names=o;p', 'names=o;q');

finds('told a wrong time', 'a run of one of several jobs began before', "
	$JOB
	0 2.0 $CALL -> true
	0 2.5 $NEXT -> false state=not_due next=6
	0 4.0 $CALL -> true
	runs: 1 p 2 2.001 1 2.005 succeeded 0 _ 0.0/1
	runs: 2 p 4 4.001 1 4.005 succeeded 0 _ 0.0/3
", 'next=6', 'next=4');

#
# However late
#
# A client may be suspended for any time between the log line of a call and its sending,
# and between an answer and its log line, and the machine may be slow.  None of that is
# a violation.  The same log with a real fault is one.
#

finds('two holders', 'a client that disconnects late may have lost its session before', q{
	0 1.0 acquire_session name=a most=1 -> true token=1
	0 1.5 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.6 extend transaction=1 name=a token=1 most=9 -> true
	0 2.1 rollback transaction=1 after=0.5 -> ok
	1 2.3 acquire name=a most=1 -> true token=2
	0 2.7 probe -> ok
}, '2.7 probe', '2.7 disconnect');

finds('two holders', 'an answer is read after the lease has expired', q{
	0 1.0 acquire name=a most=1 after=0.5 -> true token=1
	1 1.9 acquire name=a most=1 -> true token=2
}, 'after=0.5', 'after=3');

finds('two holders', 'an extend counts from its sending', q{
	0 1.0 acquire name=a most=1 -> true token=1
	0 1.5 extend name=a token=1 most=2 after=0.8 -> true
	1 3.4 acquire name=a most=1 -> true token=2
}, '1 3.4', '1 3.6');

finds('two holders', 'a transaction was terminated while its client slept', q{
	0 1.0 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.1 acquire transaction=1 name=a most=0.1 -> true token=1
	1 1.5 acquire name=a most=1 -> true token=2
	0 2.0 commit transaction=1 -> ok
}, 'commit transaction=1 -> ok', 'commit transaction=1 -> lost state=57P01');

finds('two holders', 'a transaction with a fence was terminated while its client slept', q{
	0 1.0 acquire name=a most=1 -> true token=1
	0 1.5 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.6 assert transaction=1 name=a token=1 -> ok
	1 2.5 acquire name=a most=1 -> true token=2
	0 3.0 rollback transaction=1 -> ok
}, 'rollback transaction=1 -> ok', 'rollback transaction=1 -> lost state=57P01');

finds('two holders', 'a force_release may take effect at its sending', q{
	0 1.0 acquire name=a most=9 -> true token=1
	nemesis 1.5 force_release name=a after=2 -> true
	1 1.4 acquire name=a most=1 -> true token=2
}, '1 1.4', '1 1.6');

finds('token order', 'the answer to the first was read after the second was sent', q{
	0 1.0 acquire name=a most=1 after=0.5 -> true token=2
	1 2.5 acquire name=a most=1 -> true token=1
}, 'after=0.5', 'after=2');

finds('tick claimed twice', 'a claim is older than its line', q{
	0 0.9 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.0 once name=t transaction=1 -> true tick=1
	0 3.0 claimed transaction=1 -> ok
	0 3.1 commit transaction=1 -> ok
	nemesis 3.2 purge age=2.5 -> true
	1 3.5 once name=t -> true tick=1
	claims: t 1 0.0/3
}, 'age=2.5', 'age=2');

finds('tick claimed twice', 'the first call was executed last', q{
	0 1.0 once name=t after=0.5 -> true tick=1
	1 1.6 once name=t -> true tick=1
	nemesis 2.5 purge age=0.5 -> true
}, 'after=0.5', 'after=3');

finds('not the owner', 'the lease ends at most after its answer', q{
	0 1.0 acquire name=a most=1 after=0.5 -> true token=1
	0 3.5 extend name=a token=1 -> true
}, 'after=0.5', 'after=2');

finds('not the owner', 'the answer to the next acquire is late', q{
	0 1.0 acquire_session name=a -> true token=1
	nemesis 1.1 force_release name=a -> true
	1 1.5 acquire name=a most=1 after=0.1 -> true token=2
	0 2.0 assert name=a -> ok
}, 'after=0.1', 'after=1');

finds('not the owner', 'an acquire counts until its rollback', q{
	0 1.0 acquire name=a most=1 -> true token=1
	0 1.5 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.6 extend transaction=1 name=a token=1 most=5 -> true
	0 2.9 rollback transaction=1 -> ok
	0 3.0 assert name=a token=1 -> ok
}, "0 2.9 rollback transaction=1 -> ok\n\t0 3.0 assert", "0 3.0 assert transaction=1");

finds('not the owner', 'a killed client had another connection, which ended before', q{
	0 0.5 probe -> ok
	0 0.6 probe connection=0.0.2 -> lost
	0 1.0 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.1 acquire transaction=1 name=a most=9 -> true token=1
	run 1.3 alive 1.2 1.0.1
	0 2.0 assert transaction=1 name=a token=1 -> ok
	run 2.1 reaped 0 0 9
	run 2.5 alive 2.4 1.0.1
}, 'alive 1.2 1.0.1', 'alive 1.2 0.0.1,1.0.1');

finds('owner refused', 'the answer is read after the lease has expired', q{
	0 1.0 acquire name=a most=2 -> true token=1
	0 2.5 extend name=a token=1 most=1 after=0.1 -> false
}, 'after=0.1', 'after=1');

finds('owner refused', 'an acquire counts until its rollback', q{
	0 1.0 acquire name=a most=9 -> true token=1
	0 1.5 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.6 extend transaction=1 name=a token=1 most=0.1 -> true
	0 2.0 rollback transaction=1 -> ok
	0 2.1 extend name=a token=1 most=1 -> false
}, "0 2.0 rollback transaction=1 -> ok\n\t0 2.1 extend", "0 2.1 extend transaction=1");

finds('owner refused', 'a force_release may take effect at its sending', q{
	0 1.0 acquire name=a most=9 -> true token=1
	0 1.5 extend name=a token=1 most=1 -> false
	nemesis 1.6 force_release name=a after=1 -> true
}, 'nemesis 1.6', 'nemesis 1.4');

finds('refused for nothing', 'the release may have been late', q{
	0 1.0 acquire name=a most=9 -> true token=1
	0 1.5 release name=a token=1 after=0.1 -> true
	1 1.7 acquire name=a most=1 -> false
}, 'after=0.1', 'after=0.3');

finds('refused for nothing', 'DISCARD ALL may have been late', q{
	0 1.0 acquire_session name=a -> true token=1
	0 1.5 discard after=0.1 -> ok
	1 1.7 acquire name=a most=1 -> false
}, 'after=0.1', 'after=0.3');

finds('refused for nothing', 'the end of the dead process was not seen yet', q{
	0 1.0 acquire_session name=a -> true token=1
	0 1.5 disconnect -> ok
	run 2.3 alive 2.2 1.0.1
	1 2.4 acquire name=a most=1 -> false
}, 'run 2.3', 'run 9.0');

finds('refused for nothing', 'a look from before the connection proves nothing', q{
	run 0.9 alive 0.8 1.0.1
	0 0.7 acquire_session name=a -> true token=1
	0 1.5 disconnect -> ok
	run 9.0 alive 2.2 1.0.1
	1 2.4 acquire name=a most=1 -> false
}, '0 0.7', '0 1.0');

finds('refused for nothing', 'a wait continues without its client', q{
	0 1.0 acquire name=a most=1 wait=5 -> lost
	run 3.0 alive 2.9 1.0.1
	1 4.5 acquire name=a most=1 -> false
}, 'run 3.0 alive 2.9', 'run 4.0 alive 3.9');

finds('refused for nothing', 'a transaction continues without its client', q{
	0 1.0 acquire name=a most=0.5 -> true token=1
	0 1.1 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.2 assert transaction=1 name=a token=1 -> ok
	run 1.3 reaped 0 0 9
	run 3.0 alive 2.9 1.0.1
	1 3.5 acquire name=a most=1 -> false
}, 'run 3.0 alive 2.9', 'run 4.0 alive 3.9');

finds('refused for nothing', 'a transaction of a killed client lasts as long as its own connection', q{
	0 0.5 probe -> ok
	0 0.6 probe connection=0.0.2 -> lost
	0 1.0 begin transaction=1 level=SERIALIZABLE -> ok
	0 1.1 acquire transaction=1 name=a most=9 -> true token=1
	run 1.2 reaped 0 0 9
	run 1.4 alive 1.3 1.0.1
	1 1.6 acquire name=a most=1 -> false
	run 1.8 alive 1.7 1.0.1
}, 'alive 1.3 1.0.1', 'alive 1.3 0.0.1,1.0.1');

finds('refused for nothing', 'a run continues without its client', q{
	0 1.0 run name=a work=0.1 ->
	run 1.3 reaped 0 0 9
	run 3.0 alive 2.9 1.0.1
	1 3.5 acquire name=a most=1 -> false
}, 'run 3.0 alive 2.9', 'run 4.0 alive 3.9');

finds('refused for nothing', 'a transaction of the nemesis continues without it', q{
	nemesis 1.0 delete_row name=a -> lost
	run 3.0 alive 2.9 1.0.1
	1 3.5 acquire name=a most=1 -> false
}, 'run 3.0 alive 2.9', 'run 4.0 alive 3.9');

finds('refused for nothing', 'a server that is shutting down loses what it answers', q{
	0 1.0 acquire name=a most=9 -> true token=1
	nemesis 1.4 kill_backend worker=1 after=0.05 -> true
	0 1.5 release name=a token=1 -> true
	1 3.6 acquire name=a most=1 -> false
}, 'after=0.05', 'after=1');

finds('starved', 'the holder was alive, as its later line shows', q{
	0 1 acquire_session name=a -> true token=1
	1 2 acquire name=a most=1 -> false
	1 8 acquire name=a most=1 -> false
	1 14 acquire name=a most=1 -> false
	1 20 acquire name=a most=1 -> false
	1 26 acquire name=a most=1 -> false
	1 40 acquire name=a most=1 -> false
	0 41 probe -> lost
}, '41 probe -> lost', '41 probe -> ok');

finds('starved', 'it may have acquired the lock at any time until its answer', q{
	0 1 acquire_session name=a after=0.01 -> true token=1
	1 2 acquire name=a most=1 -> false
	1 8 acquire name=a most=1 -> false
	1 14 acquire name=a most=1 -> false
	1 20 acquire name=a most=1 -> false
	1 26 acquire name=a most=1 -> false
	1 40 acquire name=a most=1 -> false
}, 'after=0.01', 'after=30');

finds('starved', 'the machine was suspended', q{
	0 1 acquire_session name=a -> true token=1
	1 2 acquire name=a most=1 -> false
	2 8 acquire name=a most=1 -> false
	3 14 acquire name=a most=1 -> false
	4 20 acquire name=a most=1 -> false
	5 26 acquire name=a most=1 -> false
	6 40 acquire name=a most=1 -> false
}, q{2 8 acquire name=a most=1 -> false
	3 14 acquire name=a most=1 -> false
	4 20 acquire name=a most=1 -> false
	5 26 acquire name=a most=1 -> false}, q{2 2 acquire name=a most=1 after=38 -> false
	3 3 acquire name=a most=1 after=37 -> false
	4 4 acquire name=a most=1 after=36 -> false
	5 4 acquire name=a most=1 after=36 -> false});

finds('starved', 'a worker that is too slow to ask often', "
	0 1 acquire name=a most=90 -> true token=1
	$refused_often
	1 24 acquire name=a most=1 -> false
	1 25 probe -> ok
", '1 24 acquire name=a most=1 -> false', '1 24 probe -> ok');

finds('waited too long', 'all workers waited that long', q{
	0 0.5 acquire name=a most=90 -> true token=1
	1 1.0 acquire name=a most=1 wait=0.5 after=9 -> false took=8.9
	2 3.0 probe after=1 -> ok
}, 'after=1', 'after=5');

finds('taken while paused', 'the pause may have been late', q{
	nemesis 1.0 pause name=a length=2 after=0.1 -> true
	0 1.5 acquire name=a most=1 -> true token=1
}, 'after=0.1', 'after=0.6');

finds('taken while paused', 'the acquire may have been earlier', q{
	nemesis 1.0 pause name=a length=2 -> true
	0 1.5 acquire name=a most=1 after=1 -> true token=1
}, 'after=1', 'after=2');

finds('taken while paused', 'a resume may take effect at its sending', q{
	nemesis 1.0 pause name=a length=2 -> true
	nemesis 1.6 resume name=a after=1 -> true
	0 1.5 acquire name=a most=1 -> true token=1
}, 'nemesis 1.6', 'nemesis 1.4');

finds('deleted while held', 'the lease had expired when the answer came', q{
	0 1.0 acquire name=a most=2 -> true token=1
	nemesis 1.5 delete_row name=a after=1 -> true
}, 'after=1', 'after=2');

finds('deleted while held', 'the lock was acquired after the deletion', q{
	0 1.0 acquire name=a most=2 after=0.1 -> true token=1
	nemesis 1.5 delete_row name=a -> true
}, 'after=0.1', 'after=1');

finds('deleted while held', 'a client that disconnects late may have lost its session before', q{
	0 1.0 acquire_session name=a -> true token=1
	nemesis 1.5 delete_row name=a -> true
	0 2.0 probe -> ok
}, '2.0 probe', '2.0 disconnect');

finds('not in the table', 'the row was deleted before the answer to its client', q{
	0 1.0 acquire name=a most=0.1 after=2 -> true token=5
	nemesis 0.5 delete_row name=a -> true
	nemesis 4.0 look -> ok
}, 'nemesis 0.5', 'nemesis 2.0');

finds('not in the table', 'the lease was extended after the look', q{
	0 1.0 acquire name=a most=2 -> true token=5
	nemesis 2.5 look after=1.5 -> ok a,5,lease,2.4
	0 2.9 extend name=a token=5 most=3 -> true
}, 'lease,2.4', 'lease,3.0');

finds('not in the table', 'an extension was committed before the look', q{
	0 1.0 acquire name=a most=2 -> true token=5
	0 2.9 extend name=a token=5 most=3 after=0.1 -> true
	nemesis 3.2 look -> ok a,5,lease,3.0
}, 'after=0.1', 'after=0.5');

finds('harness', 'a nemesis that was ended before it had begun', q{
	run 1.0 nemesis 512
}, 'nemesis 512', 'nemesis 15');

like(judge(write_logs('0 1.0 acquire name=a most=1 -> true token=1')), qr/^Never happened: acquire false$/m,
	'a kind of call that never happened is named');

done_testing();
