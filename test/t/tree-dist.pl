# make dist bundles the committed tree, and refuses a tree that PGXN would refuse or that
# changes a script that databases have.

use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'this needs git' if system('git --version >/dev/null 2>&1') != 0;

my $dir = PostgreSQL::Test::Utils::tempdir;
my @git = ('git', '-C', $dir, '-c', 'user.name=test', '-c', 'user.email=test@localhost');

# Runs a command; returns its exit status and output.
sub run
{
	my @command = @_;
	my $pid = open my $out, '-|' // die "fork: $!";

	if ($pid == 0)
	{
		open STDERR, '>&', \*STDOUT;
		exec @command or die "$command[0]: $!";
	}
	my $said = join '', <$out>;
	close $out;
	return ($?, $said);
}

sub git
{
	my ($status, $said) = run(@git, @_);

	$status == 0 or die "git @_: $said";
	return;
}

# Checks that make dist refuses a change of the tree, and gives the reason; then restores
# the tree.
sub refuses
{
	my ($what, $reason, $do, $dont_commit) = @_;

	$do->();
	git('commit', '--quiet', '--all', '--message', $what) unless $dont_commit;
	my ($status, $said) = run('make', '-s', '-C', $dir, 'dist');
	isnt($status, 0, "make dist refuses $what");
	like($said, $reason, "$what: make dist gives the reason");
	git('reset', '--quiet', '--hard', 'start');
	return;
}

# Changes a file of the tree by a regular expression.
sub edit
{
	my ($file, $from, $to) = @_;
	my $text = slurp_file("$dir/$file");

	$text =~ s/$from/$to/ or die "there is no $from in $file";
	open my $out, '>', "$dir/$file" or die "$file: $!";
	print $out $text;
	close $out;
	return;
}

git('init', '--quiet');
run('git', "--git-dir=$dir/.git", '--work-tree=.', 'add', @$_) foreach ['--all'], [ '--force', glob 'sql/shedlock--*.sql' ];
git('commit', '--quiet', '--message', 'all');
git('reset', '--quiet', '--hard');
git('tag', 'start');
git('tag', 'v0.9.0');

my ($status, $said) = run('make', '-s', '-C', $dir, 'dist');
is($status, 0, 'make dist succeeds') or diag($said);
is(scalar(glob "$dir/shedlock-*.zip") ? 1 : 0, 1, 'make dist writes the bundle');

refuses('another version', qr/versions differ/, sub { edit('META.json', qr/"version": "(\d+)\.\d+/, '"version": "9.99') });
refuses('invalid JSON', qr/META\.json/, sub { edit('META.json', qr/",\n/, "\"\n") });
refuses('an unknown license', qr/license/, sub { edit('META.json', qr/"license": ".*?"/, '"license": "own"') });
refuses('a missing file', qr/is not there/, sub { git('rm', '--quiet', 'README.md') });
refuses('a changed script of a release', qr/^\+-- changed$/m,
	sub { edit((glob "$dir/sql/shedlock--*.sql")[0] =~ s,^\Q$dir/\E,,r, qr/\n\z/, "\n-- changed\n") });
refuses('a release without its script', qr/does not exist/,
	sub { git('rm', '--quiet', map { s,^\Q$dir/\E,,r } glob "$dir/sql/shedlock--*.sql"); git('commit', '--quiet', '--message', 'x'); git('tag', 'v0.9.1') }, 1);
git('tag', '--delete', 'v0.9.1');
refuses('uncommitted changes', qr/not committed/, sub { edit('README.md', qr/\n\z/, "\nx\n") }, 1);

done_testing();
