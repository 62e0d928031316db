# scripts/harness counts what a test does, and each way to fail as a failure.
use strict;
use warnings FATAL => 'all';
use IPC::Run qw(run);
use PostgreSQL::Test::Utils;
use Test::More;

my $work = PostgreSQL::Test::Utils::tempdir;
my $log = "$work/planted/raises_an_alarm/tmp_check/log";
my $left = "$work/left";

# What a test does, the assertions that count as passed and failed, what is printed
my @planted = (
	passes => 'echo ok 1; echo 1..1', '1 0', qr/All tests successful/,
	fails => 'echo ok 1; echo not ok 2 - twice; echo 1..2', '1 1', qr/^not ok 2 - twice$/m,
	dies => 'echo ok 1; echo 1..1; echo cause >&2; exit 3', '1 1', qr/dies died.*^cause$/ms,
	stops => 'echo 1..2; echo ok 1', '1 1', qr/stops died, or did not run what it planned/,
	has_no_plan => 'echo ok 1', '1 1', qr/has_no_plan died, or did not run what it planned/,
	is_empty => 'exit 0', '0 1', qr/is_empty died, or did not run what it planned/,
	hangs => 'echo ok 1; exec timeout 0.1 sleep 600', '1 1', qr/hangs took too long/,
	bails_out => 'echo ok 1; echo Bail out!; exit 255', '1 1', qr/bails_out died/,
	is_skipped => 'echo "1..0 # SKIP no server"', '0 0', qr{^skip  planted/is_skipped: no server$}m,
	raises_an_alarm => "mkdir -p $log; echo TRAP: broken >$log/a.log; echo ok 1; echo 1..1", '1 1', qr/raised an alarm:\nTRAP: broken/,
	leaves_a_process => "setsid sh -c 'echo \$\$ >$left; exec sleep 600' & until [ -s $left ]; do sleep 0.1; done; echo ok 1; echo 1..1",
	'1 0', qr/All tests successful/);

$ENV{ALARMS} = '^TRAP: ';
while (my ($name, $does, $counts, $says) = splice @planted, 0, 4)
{
	my $said;

	run [ 'scripts/harness', $work, 'planted', $name, '--', 'sh', '-c', $does ], '>&', \$said;
	is(slurp_file("$work/score"), "planted $counts\n", 'a test that ' . $name =~ tr/_/ /r);
	like($said, $says, 'what is printed about it');
	unlink "$work/score" or die "$work/score: $!";
}
my $pid = slurp_file($left);
chomp $pid;
ok(kill('KILL', $pid), 'a process that a test leaves does not keep the harness');

done_testing();
