# Each rule of the fault checker for the watchers finds its violation in logs written by hand,
# in which one thing is wrong, and none when nothing is.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use FaultRun;
use PostgreSQL::Test::Utils;
use Test::More;

my $cases = 0;

# "a" has a problem from 102 to 112, told at once and over at once.  "b" has one from 110 to 140,
# during which the command fails for a time.  A watcher is killed at 120.
my @polls = map
{
	my $at = 100 + $_ / 10;

	join "\t", 'run.log:', $at, 'poll', $at, $at >= 102 && $at <= 112 ? 'a/slow' : (), $at >= 110 && $at <= 140 ? 'b/slow' : ();
} 0 .. 600;
my $logs = join("\n", @polls) . q{
run.log:	100	seed	1
run.log:	120	act	kill
run.log:	120.1	over	kill
run.log:	160	final	watchers	0
told.log:	102.5	try	1	a	slow	begun	S1
told.log:	102.6	told	1	a	slow	begun	S1
told.log:	110.5	try	2	b	slow	begun	S2
told.log:	112.5	try	3	a	slow	over	S1
told.log:	112.6	told	3	a	slow	over	S1
told.log:	113.5	try	4	b	slow	begun	S2
told.log:	113.6	told	4	b	slow	begun	S2
told.log:	140.5	try	5	b	slow	over	S2
told.log:	140.6	told	5	b	slow	over	S2
};

sub finds
{
	my ($rules, $claim, @changes) = @_;
	my $text = $logs;
	my $dir = PostgreSQL::Test::Utils::tempdir . '/case' . ++$cases;

	while (my ($old, $new) = splice @changes, 0, 2)
	{
		ok($text =~ s/$old/$new/g, "the logs have \"$old\"");
	}
	mkdir $dir or die "$dir: $!\n";
	my %files = (server => '');
	$files{$1} .= "$2\n" while $text =~ /^([\w.]+):\t(.*)/mg;
	append_to_file("$dir/$_", join "\n", (sort { ($a =~ /([\d.]+)/)[0] <=> ($b =~ /([\d.]+)/)[0] } split /\n/, $files{$_}), '') foreach keys %files;
	my $report = judge_watch($dir, '--serverlog', "$dir/server");
	is(rules_of($report), $rules, $claim) or diag($report);
	return;
}

# Lines of one change: when it was tried, and told; as what; how long the command took to start
sub change
{
	my ($try, $told, $what, $starting) = @_;

	return join '', map { "told.log:\t$_->[0]\t$_->[1]\t9" . ($what =~ s/ /\t/gr =~ s/^/\t/r) . "\t" . ($starting // 0) . "\n" } [ $try, 'try' ], [ $told, 'told' ];
}

# Others that are told all the time
sub others
{
	my ($starting) = @_;

	return map { change($_, $_ + 0.1, 'd slow begun S5', $starting) . change($_ + 2, $_ + 2.1, 'd slow over S5', $starting) } 103, 107, 111;
}

finds('none', 'nothing is wrong');
finds('not told', 'a long problem', qr/.*\tb\tslow.*\n/, '');
finds('not told', 'an undisturbed problem', qr/told.*\ta\tslow.*\n/, '');
finds('not told', 'others were told quickly meanwhile', qr/told.*\ta\tslow.*\n/, '', qr/\z/, join '', others(0));
finds('none', 'others were told slowly meanwhile', qr/told.*\ta\tslow.*\n/, '', qr/\z/, join '', others(1.5));
finds('end not told', 'a problem that is over', qr/.*\ta\tslow\tover.*\n/, '');
finds('not told, order', 'the end of what has not begun', qr/.*\ta\tslow\tbegun.*\n/, '');
finds('order', 'the end of another problem', qr/over\tS1/, "over\tS3");
finds('told twice', 'undisturbed', qr/\z/, change(105, 105.1, 'a slow begun S1'));
finds('none', 'the watcher was killed after it was told', qr/\z/, change(119.5, 119.6, 'c slow begun S4') . change(122, 122.1, 'c slow begun S4') . change(123, 123.1, 'c slow over S4'));
finds('told of nothing', 'for seconds', qr/\z/, change(150, 150.1, 'c slow begun S4') . change(155, 155.1, 'c slow over S4'));
finds('none', 'for an instant', qr/\z/, change(150, 150.1, 'c slow begun S4') . change(151, 151.1, 'c slow over S4'));
finds('none', 'the end was told late, but known in time', qr/\z/,
	change(150, 150.1, 'c slow begun S4') . "told.log:\t151\ttry\t8\tc\tslow\tover\tS4\n" . change(158, 158.1, 'c slow over S4'));
finds('none', 'a command that hung held it up', qr/\z/,
	change(150, 150.1, 'c slow begun S4') . "told.log:\t151\ttry\t8\td\tslow\tbegun\tS5\n" . change(155, 155.1, 'c slow over S4'));
finds('none', 'other changes were told slowly meanwhile', qr/\z/,
	change(150, 150.1, 'c slow begun S4') . join('', map { change($_, $_ + 0.7, 'd slow begun S5') . change($_ + 0.8, $_ + 1.4, 'd slow over S5') } 151, 152.5) . change(155, 155.1, 'c slow over S4'));
finds('none', 'nobody polled any more', qr/\z/, change(158, 158.1, 'c slow begun S4') . change(165, 165.1, 'c slow over S4'));
finds('exit status', 'of a watcher that nobody has told to end', qr/\z/, "run.log:\t150\tended\t1\t256\n");
finds('left over', 'processes at the end', qr/watchers\t0/, "watchers\t1");
finds('server', 'an assertion failed', qr/\z/, "server:\tTRAP: failed\n");

done_testing();
