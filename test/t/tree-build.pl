# The library is built everywhere, the program shedlock where Linux and libpq are.  A build
# outside the tree leaves the tree alone; what make installs, it uninstalls and cleans.

use strict;
use warnings FATAL => 'all';
use Cwd;
use File::Find;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = Cwd::abs_path(PostgreSQL::Test::Utils::tempdir);
my ($source, $build, $dest) = map { "$dir/$_" } qw(source build dest);
my %place = map { $_ => qx{pg_config --$_} =~ s/\n//r } qw(includedir bindir mandir pkglibdir);
my @installed = ("$dest$place{bindir}/shedlock", "$dest$place{mandir}/man1/shedlock.1");

# what "make installcheck" tells its children
delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};

# Runs make in the folder for the build; returns what it said.
sub make
{
	my @command = ('make', '-C', $build, '-f', "$source/Makefile", "VPATH=$source", 'with_llvm=no', "DESTDIR=$dest", @_);
	my $pid = open my $out, '-|' // die "fork: $!";

	if ($pid == 0)
	{
		open STDERR, '>&', \*STDOUT;
		exec @command or die "make: $!";
	}
	my $said = join '', <$out>;
	close $out;
	is($?, 0, "make @_") or diag($said);
	return $said;
}

# Returns the files below a folder.
sub files
{
	my ($top) = @_;
	my @files;

	find({ no_chdir => 1, wanted => sub { push @files, $_ unless -d } }, $top) if -d $top;
	return join "\n", sort @files;
}

mkdir $_ foreach $source, $build;
# make would find in the tree what was built there
system("tar --exclude=./.git --exclude=./tmp_check --exclude=./results --exclude=./log -cf - . | tar -C '$source' -xf - && "
	. "make -s -C '$source' with_llvm=no clean") == 0
  or die "the tree could not be copied";
my $before = files($source);

# Without libpq's headers
like(make('-j2', 'all', 'COPT=-O0', "includedir=$dir/none"),
	qr/^The program shedlock is not built: libpq-fe\.h, of the package libpq-dev, is missing\.$/m,
	'without libpq: make says that the program is not built');
is(-e "$build/shedlock.so", 1, 'without libpq: the library is built');
make('install', "includedir=$dir/none");
is(-e "$dest$place{pkglibdir}/shedlock.so", 1, 'without libpq: the library is installed');
is(join(' ', grep { -e } @installed), '', 'without libpq: neither program nor man page is installed');
make('uninstall', "includedir=$dir/none");
is(files($dest), '', 'without libpq: make uninstall removes all files');

# On another system, and for a packager: what make would do
my $said = make('-B', '-n', 'all', 'PORTNAME=freebsd');
like($said, qr/The program shedlock is not built: it needs Linux\./, 'on another system: make says so');
unlike($said, qr{src/program/\w+\.c}, 'on another system: nothing of the program is compiled');
like($said, qr{src/module\.c}, 'on another system: the library is compiled');
unlike(make('-B', '-n', 'install', 'NO_PROGRAM=it is elsewhere'),
	qr{src/program/\w+\.c|shedlock\.1\b}, 'NO_PROGRAM: neither program nor man page is installed');

SKIP:
{
	skip 'there are no headers of libpq', 9 unless $^O eq 'linux' && -e "$place{includedir}/libpq-fe.h";

	make('-j2', 'all', 'COPT=-O0');
	make('install');
	is(join(' ', grep { -e } @installed), "@installed", 'make install installs the program and its man page');
	my ($version) = slurp_file('shedlock.control') =~ /^default_version = '(.*)'$/m;
	is(qx{'$installed[0]' --version}, "shedlock $version\n", 'the program has the version of the control file');
	make('uninstall');
	is(files($dest), '', 'make uninstall removes all files');
	make('clean');
	is(files($build), '', 'make clean removes all files');
	is(files($source), $before, 'a build outside the tree leaves the tree alone');
}

done_testing();
