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
git('tag', 'all');

# The scripts of the tree, and a release before it
my @scripts = map { s,^\Q$dir/\E,,r } glob "$dir/sql/shedlock--*.sql";
git('rm', '--quiet', @scripts);
edit('shedlock.control', qr/^default_version = '.*'$/m, "default_version = '0.9'");
mkdir "$dir/sql";
append_to_file("$dir/sql/shedlock--0.9.sql", "-- version 0.9\n");
git('add', '--force', 'sql/shedlock--0.9.sql');
git('commit', '--quiet', '--all', '--message', '0.9.0');
git('tag', 'v0.9.0');
git('rm', '--quiet', 'sql/shedlock--0.9.sql');
git('commit', '--quiet', '--message', 'no script');
git('tag', 'no-script');
git('checkout', '--quiet', 'all', '--', '.');
git('checkout', '--quiet', 'v0.9.0', '--', 'sql/shedlock--0.9.sql');
git('commit', '--quiet', '--message', 'the tree');
git('tag', 'start');

my ($status, $said) = run('make', '-s', '-C', $dir, 'dist');
is($status, 0, 'make dist succeeds') or diag($said);
is(scalar(glob "$dir/shedlock-*.zip") ? 1 : 0, 1, 'make dist writes the bundle');

refuses('another version', qr/versions differ/, sub { edit('META.json', qr/"version": "(\d+)\.\d+/, '"version": "9.99') });
foreach my $file (qw(clients/python/shedlock/__init__.py clients/node/package.json clients/java/pom.xml test/clients/spring/pom.xml))
{
	my ($version) = slurp_file('META.json') =~ /"version": "(.*?)"/;

	refuses("another version in $file", qr/versions differ: .* packages /, sub { edit($file, qr/(?<=[">])\Q$version\E(?=["<])/, '9.99.9') });
}
refuses('invalid JSON', qr/META\.json/, sub { edit('META.json', qr/",\n/, "\"\n") });
refuses('an unknown license', qr/license/, sub { edit('META.json', qr/"license": ".*?"/, '"license": "own"') });
refuses('a missing file', qr/is not there/, sub { git('rm', '--quiet', 'README.md') });
refuses('a changed script of a release', qr/^\+-- changed$/m, sub { edit('sql/shedlock--0.9.sql', qr/\n\z/, "\n-- changed\n") });
refuses('a release without its script', qr/shedlock--0\.9\.sql' .* not .* 'v0\.9\.1'/, sub { git('tag', 'v0.9.1', 'no-script') }, 1);
git('tag', '--delete', 'v0.9.1');
refuses('a script that is in the folder alone', qr/^dist: sql\/shedlock--.* is not committed: git add -f/m,
	sub { edit('Makefile', qr/^UNRELEASED\b.*$/m, 'UNRELEASED ='); git('rm', '--quiet', '--cached', @scripts) });
my ($release, $other) = slurp_file('META.json') =~ /"release_status": "stable"/ ? ('stable', 'unstable') : ('unstable', 'stable');
refuses('half a release', qr/^dist: .* differ about whether/m, sub { edit('META.json', qr/"release_status": "$release"/, qq{"release_status": "$other"}) });
refuses('uncommitted changes', qr/not committed/, sub { edit('README.md', qr/\n\z/, "\nx\n") }, 1);

done_testing();
