# The program or the library with a planted fault: texts of the source are replaced.
package PlantedFault;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(faulty_program faulty_library);

my $root = "$FindBin::RealBin/../..";
my $builds = 0;

# Makes a target in a copy of the tree with changes: a file in src/, a text that it has
# once, and what takes its place.  Returns the copy's folder.
sub build
{
	my ($target, @changes) = @_;
	my $copy = PostgreSQL::Test::Utils::tempdir . '/build' . ++$builds;

	# what "make installcheck" tells its children
	delete local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	mkdir $copy or die "$copy: $!\n";
	# with the times of files, so that only what has changed is compiled
	system("cd '$root' && cp -a --parents Makefile shedlock.control src sql doc/shedlock.1 tools/dev.mk tools/coverage.h '$copy'") == 0
	  or die "$root cannot be copied\n";
	while (my ($file, $old, $new) = splice @changes, 0, 3)
	{
		my $path = "$copy/src/$file";
		my $text = slurp_file($path);

		is(scalar(() = $text =~ /\Q$old\E/g), 1, "$file has \"" . $old =~ s/\s+/ /gr . '"');
		$text =~ s/\Q$old\E/$new/;
		unlink $path;
		append_to_file($path, $text);
	}
	my $said = `make -s -C '$copy' PG_CONFIG=pg_config with_llvm=no $target 2>&1`;
	is($?, 0, 'it can be built') or diag($said);
	return $copy;
}

# Returns the path of the program with changes.
sub faulty_program
{
	my (@changes) = @_;

	return build('src/program/shedlock', @changes) . '/src/program/shedlock';
}

# Returns the lines of postgresql.conf for a server that uses the library with changes.
sub faulty_library
{
	my (@changes) = @_;
	my $dest = build('install DESTDIR=dest', @changes) . '/dest';
	my ($share, $lib, $version) = split /\n/, `pg_config --sharedir --pkglibdir --version`;

	# Debian has a setting of its own before 18
	return "dynamic_library_path = '$dest$lib:\$libdir'\n"
	  . ($version =~ /^PostgreSQL (\d+)/ && $1 >= 18 ? "extension_control_path = '$dest$share:\$system'\n" : "extension_destdir = '$dest'\n");
}

1;
