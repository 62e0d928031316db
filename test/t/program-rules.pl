# Each rule of the fault checker for the program finds its violation in logs written by
# hand, in which one thing is wrong, and none when nothing is.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use FaultRun;
use PostgreSQL::Test::Utils;
use Test::More;

my $cases = 0;

# Fields have ~ for blanks; a field that is _ is empty.  The lines of the server's log
# are as they are.
#
# Run 1 fails, and its second attempt succeeds.  The keeper of run 3 is stopped, so it is
# lost; its second attempt succeeds.  Run 5 is force-released, and overlaps with run 6.
my $logs = q{
	run.log: 100 seed 1
	run.log: 120 final processes~of~commands 0
	host-1.log: 100.9 start 1 --name tick-2 --description 1/1 -- 0.4 7 -
	host-1.log: 101.7 end 1 1792
	host-1.log: 101.9 start 2 --name tick-2 --description 1/2 -- 0.4 0 -
	host-1.log: 102.7 end 2 0
	host-1.log: 103.9 start 3 --name tick-2 --description 1/3 -- 5 0 -t
	host-1.log: 107.1 end 3 19456
	host-1.log: 109.1 start 4 --name job-1 --description 1/4 -- 0.2 0 -
	host-1.log: 109.6 end 4 0
	host-2.log: 107.4 start 1 --name tick-2 --description 2/1 --at-most 2 -- 0.2 0 -
	host-2.log: 108.0 end 1 0
	host-2.log: 108.4 start 2 --name job-1 --description 2/2 -- 5 0 -t
	host-2.log: 109.9 end 2 19456
	host-2.log: 110.4 start 3 --name job-1 --description 2/3 -- 1 0 -
	host-2.log: 110.5 end 3 19200
	nemesis.log: 104.2 call 1 stop_keeper id=1/3
	nemesis.log: 104.2 done 1 true
	nemesis.log: 107.0 continued 1
	nemesis.log: 109.0 call 2 force_release name=job-1
	nemesis.log: 109.0 done 2 true
	runs.tsv: 1 tick-2 101.0 101.6 failed 7 T1 1 1/1
	runs.tsv: 2 tick-2 102.0 102.6 succeeded 0 T1 2 1/2
	runs.tsv: 3 tick-2 104.0 107.5 lost _ T2 1 1/3
	runs.tsv: 4 tick-2 107.5 107.9 succeeded 0 T2 2 2/1
	runs.tsv: 5 job-1 108.5 109.0 cancelled _ _ _ 2/2
	runs.tsv: 6 job-1 109.1 109.5 succeeded 0 _ _ 1/4
	children.tsv: 101.1 101.5 _ 101.5 7 main 11 1/1 tick-2 1 T1 1
	children.tsv: 102.1 102.5 _ 102.5 0 main 12 1/2 tick-2 2 T1 2
	children.tsv: 104.1 105.7 105.2 _ _ main 13 1/3 tick-2 3 T2 1
	children.tsv: 107.6 107.8 _ 107.8 0 main 14 2/1 tick-2 4 T2 2
	children.tsv: 108.6 109.7 109.3 _ _ main 15 2/2 job-1 5 _ _
	children.tsv: 109.2 109.4 _ 109.4 0 main 16 1/4 job-1 6 _ _
	server: LOG:  lock "tick-2" acquired by "a #1" until 1970-01-01 00:01:43+00
	server: LOG:  lock "tick-2" acquired by "a #2" until 1970-01-01 00:01:44+00
	server: LOG:  lock "tick-2" acquired by "a #3" until 1970-01-01 00:01:45.9+00
	server: LOG:  lock "tick-2" extended until 1970-01-01 00:01:46+00, token 3
	server: LOG:  lock "tick-2" acquired by "a #4" until 1970-01-01 00:01:49.5+00
	server: LOG:  lock "job-1" acquired by "a #5" until 1970-01-01 00:01:50.5+00
	server: LOG:  lock "job-1" released by force by role "postgres", token 5
	server: LOG:  lock "job-1" acquired by "a #6" until 1970-01-01 00:01:51.1+00
};

# Returns the rules that logs break, and the report.
sub rules
{
	my ($text) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir . '/case' . ++$cases;

	mkdir $dir or die "$dir: $!\n";
	foreach my $line (grep { /\S/ } split /\n/, $text)
	{
		my ($file, $rest) = $line =~ /^\s*([\w.-]+): (.*)/ or die $line;

		$rest = join "\t", map { $_ eq '_' ? '' : tr/~/ /r } split / /, $rest
		  unless $file eq 'server';
		append_to_file("$dir/$file", "$rest\n");
	}
	my $report = judge_program($dir, '--require', 'none', '--serverlog', "$dir/server");
	return (rules_of($report), $report);
}

sub finds
{
	my ($rules, $claim, @changes) = @_;
	my $text = $logs;

	while (my ($old, $new) = splice @changes, 0, 2)
	{
		$text =~ s/\Q$old\E/$new/ or die "the logs have no \"$old\"\n";
	}
	my ($found, $report) = rules($text);
	is($found, $rules, $claim) or diag($report);
	return;
}

finds('none', 'nothing is wrong');
finds('outlived its lease', 'a process lives after the end of its lease', '104.1 105.7', '104.1 106.1');
finds('none', 'it may for as long as the machine is late', '104.1 105.7', '104.1 106.1', 'run.log: 120', "run.log: 106.0 late 0.15\n	run.log: 120");
finds('outlived its lease', 'but no longer', '104.1 105.7', '104.1 106.2', 'run.log: 120', "run.log: 106.0 late 0.15\n	run.log: 120");
finds('none', 'an extension keeps it alive', '104.1 105.7', '104.1 105.95');
finds('outlived its lease, outlived its run, two at once', 'and after the begin of the next one', '104.1 105.7', '104.1 107.7');
finds('outlived its run', 'a process lives after the end of its run', '102.1 102.5', '102.1 102.7');
finds('not ended after a forced release', 'a command goes on after a forced release', '108.6 109.7', '108.6 110.3');
finds('none', 'it may, if its cable is cut', '108.6 109.7', '108.6 110.3',
	'nemesis.log: 109.0 call 2', "nemesis.log: 108.8 call 9 cut host=2\n	nemesis.log: 108.8 done 9 true\n	nemesis.log: 110.4 continued 9\n	nemesis.log: 109.0 call 2");
finds('not ended after a forced release, outlived its lease', 'but not after the end of its lease', '108.6 109.7', '108.6 110.6');
finds('outlived its run, two at once, wrong exit status, wrong outcome', 'only a forced release explains an overlap',
	'released by force', 'looked at');

finds('token order', 'a run began before the one with a smaller token', '4 tick-2 107.5', '4 tick-2 103.9',
	'104.1 105.7', '104.1 103.8', '107.9 succeeded', '108.9 succeeded');
finds('not in the history', 'a command has another attempt', '2 T1 2', '2 T1 1');
finds('not in the history', 'a token that was never drawn', 'job-1 6 _ _', 'job-1 7 _ _', '110.5 end 3', '110.5 end 3',
	'runs.tsv: 6 job-1 109.1 109.5 succeeded 0 _ _ 1/4', '', '109.6 end 4 0', '109.6 end 4 19200');
finds('not in the history, too many attempts', 'an attempt has the wrong number', 'T1 2 1/2', 'T1 3 1/2');
finds('used up, wrong exit status, wrong outcome', 'an attempt follows a success', 'failed 7', 'succeeded 0');
finds('not in the history, tick order, too many attempts', 'a tick follows a newer one', 'lost _ T2 1', 'lost _ T0 1');
finds('wrong exit status, wrong outcome', 'a success of a command that failed', '102.5 0 main', '102.5 1 main', '102.7 end 2 0', '102.7 end 2 256');
finds('wrong outcome', 'a success without an exit code', '102.6 succeeded 0', '102.6 succeeded _');
finds('wrong exit status, wrong outcome', 'cancelled by nobody', '101.6 failed', '101.6 cancelled', '101.7 end 1 1792', '101.7 end 1 0');
finds('none', 'a run is lost whose lease lasts as long as its job allows', '107.5 lost', '107.5 timed~out');
finds('none', 'and its program says so', '107.5 lost', '107.5 timed~out', '107.1 end 3 19456', '107.1 end 3 31744');
finds('wrong exit status, wrong outcome', 'timed out without --at-most', '101.6 failed', '101.6 timed~out');
finds('wrong outcome', 'returned by nobody', '101.6 failed', '101.6 returned', 'runs.tsv: 2 tick-2 102.0 102.6 succeeded 0 T1 2', 'runs.tsv: 2 tick-2 102.0 102.6 succeeded 0 T1 1',
	'tick-2 2 T1 2', 'tick-2 2 T1 1');
my @returned = ('101.6 failed', '101.6 returned', 'nemesis.log: 104.2 call 1', "nemesis.log: 101.2 call 7 tell id=1/1\n	nemesis.log: 101.2 done 7 true\n	nemesis.log: 104.2 call 1");
finds('too many attempts', 'an attempt that was returned counts', @returned);
finds('none', 'it does not', @returned, '102.6 succeeded 0 T1 2', '102.6 succeeded 0 T1 1', 'tick-2 2 T1 2', 'tick-2 2 T1 1');
finds('wrong outcome', 'a run that goes on for ever', '104.0 107.5 lost', '104.0 _ running', '107.1 end 3 19456', '107.1 end 3 9',
	'stop_keeper', 'kill_keeper');
finds('lost for nothing', 'a run is lost, but nothing has disturbed it', 'stop_keeper id=1/3', 'stop_keeper id=9/9');
finds('none', 'but for the disk, which stood still', 'stop_keeper id=1/3', 'stop_keeper id=9/9', 'run.log: 120', "run.log: 107.0 stall 0.5\n	run.log: 120");
finds('lost for nothing', 'but not long enough', 'stop_keeper id=1/3', 'stop_keeper id=9/9', 'run.log: 120', "run.log: 107.0 stall 0.05\n	run.log: 120");
finds('wrong exit status', 'of another command', '101.7 end 1 1792', '101.7 end 1 256');
finds('wrong exit status', 'a success, although the lock was lost', '107.1 end 3 19456', '107.1 end 3 0');
finds('wrong exit status', 'busy, although the command was executed', '107.1 end 3 19456', '107.1 end 3 19200');
finds('wrong exit status', 'no server, although nothing has disturbed it', '110.5 end 3 19200', '110.5 end 3 17664');
finds('wrong exit status', 'killed by nobody', '107.1 end 3 19456', '107.1 end 3 9');
finds('wrong exit status', 'busy with its own run', '110.5 end 3 19200', "110.5 end 3 19200\n	runs.tsv: 7 job-1 110.45 _ lost _ _ _ 2/3\n"
	  . '	server: LOG:  lock "job-1" acquired by "a #7" until 1970-01-01 00:01:52.45+00' . "\n	nemesis.log: 110.4 call 8 hang backend=1\n	nemesis.log: 110.46 done 8 true");
finds('two runs', 'of one program', 'runs.tsv: 6 job-1', "runs.tsv: 7 job-1 113 113.1 succeeded 0 _ _ 1/4\n	runs.tsv: 6 job-1",
	'children.tsv: 109.2', "children.tsv: 113 113.05 _ 113.05 0 main 17 1/4 job-1 7 _ _\n	children.tsv: 109.2",
	'server: LOG:  lock "job-1" acquired by "a #6"', "server: LOG:  lock \"job-1\" acquired by \"a #7\" until 1970-01-01 00:01:55+00\n	server: LOG:  lock \"job-1\" acquired by \"a #6\"");
finds('stuck', 'a program', 'host-1.log: 109.6 end', "host-1.log: 109.5 stuck 4\n	host-1.log: 109.6 end");
finds('left over', 'a process of a command', 'processes~of~commands 0', 'processes~of~commands 1');
finds('harness', 'a host that dies', 'run.log: 120', "run.log: 119 host 1 256\n	run.log: 120");
finds('server', 'an alarm', 'server: LOG:  lock "tick-2" acquired by "a #1"', "server: PANIC:  stuck\n	server: LOG:  lock \"tick-2\" acquired by \"a #1\"");

done_testing();
