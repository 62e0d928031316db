# Runs of the fault checker, see test/faults/README.
package FaultRun;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use FindBin;
use IPC::Run ();
use PostgreSQL::Test::Utils ();
use Test::More;

our @EXPORT = qw(fault_run program_run watch_run judge judge_program judge_watch rules_of);

my $faults = "$FindBin::RealBin/../faults";
my $runs = 0;

# Runs workers and nemesis on a node.  Options are those of test/faults/run.  Returns
# the report.
sub fault_run
{
	my ($node, %options) = @_;

	return run_of($node, "$faults/run", %options);
}

# The same for the program shedlock.  Options are those of test/faults/program/run.
sub program_run
{
	my ($node, %options) = @_;

	return run_of($node, "$faults/program/run", child => "$faults/program/child", %options);
}

# The same for the watchers of problems.  Options are those of test/faults/watch/run.
sub watch_run
{
	my ($node, %options) = @_;

	return run_of($node, "$faults/watch/run", %options);
}

sub run_of
{
	my ($node, $program, %options) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir . '/faults' . ++$runs;
	my ($out, $err);

	IPC::Run::run([ $^X, $program, '--connect', 'host=' . $node->host . ';port=' . $node->port . ';dbname=postgres',
			'--data', $node->data_dir, '--serverlog', $node->logfile, '--dir', $dir,
			map { ("--$_", $options{$_}) } sort keys %options ],
		'<', \undef, '>', \$out, '2>', \$err);
	diag($err) if $err ne '';
	return $out;
}

# Returns the checker's report on existing logs.
sub judge
{
	my ($dir, @options) = @_;

	return report_of("$faults/check", @options, $dir);
}

# The same for logs of the program shedlock.
sub judge_program
{
	my ($dir, @options) = @_;

	return report_of("$faults/program/check", @options, $dir);
}

# The same for logs of the watchers.
sub judge_watch
{
	my ($dir, @options) = @_;

	return report_of("$faults/watch/check", @options, $dir);
}

sub report_of
{
	my @command = @_;
	my $out;

	IPC::Run::run([ $^X, @command ], '<', \undef, '>&', \$out);
	return $out;
}

# Returns the rules that a report says were broken.
sub rules_of
{
	my ($report) = @_;
	my ($violations) = $report =~ /^Violations .*\n((?:  .*\n)+)/m;

	return 'no report' unless defined $violations;
	return join ', ', $violations =~ /^  ([a-z ]*[a-z])/mg;
}

1;
