# Each test that waits for pg_cron passes at whichever second its jobs are scheduled: just
# before a full minute, and just after it, when pg_cron may fire for that minute or for the
# next one.
#
# SHEDLOCK_FILES=cron-ticks,cron-libpq runs these files alone, SHEDLOCK_ROUNDS=1 runs each
# once at each second, not three times, and SHEDLOCK_AT_ONCE=2 two of them at a time, not six.

use strict;
use warnings FATAL => 'all';
use File::Basename;
use File::Path;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use CronNode;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'there is no pg_cron for this PostgreSQL' unless has_pg_cron();

my @seconds = (58, 59, 0, 1, 2);
my $rounds = $ENV{SHEDLOCK_ROUNDS} // 3;
my $at_once = $ENV{SHEDLOCK_AT_ONCE} // 6;

# The files that schedule jobs at a second that they are given
my @files = grep { slurp_file($_) =~ /^at_second\(/m } glob 'test/t/*.pl';
my %named = map { $_ => 1 } split /,/, $ENV{SHEDLOCK_FILES} // '';
@files = grep { $named{ basename($_, '.pl') } } @files if %named;
cmp_ok(scalar @files, '>=', keys(%named) || 4, 'there are such files: ' . join(' ', map { basename($_, '.pl') } @files));

# Starts a file.  Returns what is known of it.
sub start_file
{
	my ($file, $second, $round) = @_;
	my $name = basename($file, '.pl') . " at second $second, round $round";
	my $dir = "$PostgreSQL::Test::Utils::tmp_check/" . ($name =~ s/\W+/_/gr);

	mkpath("$dir/tmp_check/log");
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		@ENV{qw(SHEDLOCK_CRON_SECOND TESTDIR TESTDATADIR TESTLOGDIR)} = ($second, $dir, "$dir/tmp_check", "$dir/tmp_check/log");
		open STDOUT, '>', "$dir/said" or die "$dir/said: $!";
		open STDERR, '>&', \*STDOUT or die "stderr: $!";
		exec 'timeout', '-k', 10, 600, 'perl', $file or die "exec: $!";
	}
	return { pid => $pid, name => $name, dir => $dir };
}

sub end_file
{
	my ($run, $status) = @_;
	my $said = slurp_file("$run->{dir}/said");

	is($status, 0, $run->{name}) or diag(join "\n", $said =~ /^(not ok .*(?:\n#.*)*|Bail out.*)/mg);
	note($1) if $said =~ /^1\.\.0 # SKIP (.*)/m;
	rmtree($run->{dir}) if $status == 0;
	return;
}

my @todo;
foreach my $round (1 .. $rounds)
{
	foreach my $second (@seconds)
	{
		push @todo, map { [ $_, $second, $round ] } @files;
	}
}
my %running;
while (@todo || %running)
{
	while (@todo && keys %running < $at_once)
	{
		my $run = start_file(@{ shift @todo });

		$running{ $run->{pid} } = $run;
	}
	my $pid = wait;
	end_file(delete $running{$pid}, $?) if $running{$pid};
}
done_testing();
