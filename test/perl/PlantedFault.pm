# The program, the library or its module for tests with a planted fault: texts of the source are
# replaced.
package PlantedFault;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(faulty_program faulty_library faulty_module);

my $root = "$FindBin::RealBin/../..";
my $builds = 0;

# Returns a new copy of what the Makefile needs, and of more files.
sub copy
{
	my (@more) = @_;
	my $copy = PostgreSQL::Test::Utils::tempdir . '/build' . ++$builds;

	mkdir $copy or die "$copy: $!\n";
	# with the times of files, so that only what has changed is compiled
	system("cd '$root' && cp -a --parents Makefile shedlock.control src sql doc/shedlock.1 tools/dev.mk tools/coverage.h @more '$copy'") == 0
	  or die "$root cannot be copied\n";
	return $copy;
}

# Replaces a text that a file has once.  Whoever has it by another name keeps it.
sub replace
{
	my ($path, $old, $new) = @_;
	my $text = slurp_file($path);
	my $count = () = $text =~ /\Q$old\E/g;

	$text =~ s/\Q$old\E/$new/;
	unlink $path;
	append_to_file($path, $text);
	return $count == 1;
}

# Makes a target in a copy of the tree.  Returns what make says, if it fails.
sub make
{
	my ($copy, $target) = @_;

	# what "make installcheck" tells its children
	delete local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	my $said = `make -s -C '$copy' PG_CONFIG=pg_config with_llvm=no $target 2>&1`;
	return $? == 0 ? '' : $said || 'nothing';
}

# Makes a target in a copy of the tree with changes: a file in src/, a text that it has
# once, and what takes its place.  Returns the copy's folder.
sub build
{
	my ($target, @changes) = @_;
	my $copy = copy();

	while (my ($file, $old, $new) = splice @changes, 0, 3)
	{
		ok(replace("$copy/src/$file", $old, $new), "$file has \"" . $old =~ s/\s+/ /gr . '"');
	}
	is(make($copy, $target), '', 'it can be built');
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

# Returns the path of the module of test/modules/due with one change, or undef.  All of them are
# made in one copy, in which only the file that has changed is compiled.
my $module_copy;
my $modules = 0;

sub faulty_module
{
	my ($file, $old, $new) = @_;

	$module_copy ||= copy('test/modules/due');
	my $source = "$module_copy/src/$file";
	my $object = $source =~ s/c$/o/r;
	my $due = "$module_copy/test/modules/due/due.so";
	my $module = $due =~ s/due\.so$/'faulty' . ++$modules . '.so'/er;

	foreach my $path ($source, $object)
	{
		rename $path, "$path.kept" or die "$path: $!\n";
	}
	link "$source.kept", $source or die "$source: $!\n";
	my $problem = replace($source, $old, $new) ? make($module_copy, 'due') : "$file does not have it once";
	rename $due, $module unless $problem;
	foreach my $path ($source, $object)
	{
		rename "$path.kept", $path or die "$path: $!\n";
	}
	diag($problem) if $problem;
	return $problem ? undef : $module;
}

1;
