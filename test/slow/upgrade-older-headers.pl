# A library built with the headers of an older minor release works with the server: packages
# are built once, and the server is upgraded without them.
#
# The headers are those of the oldest minor release in the package archive, and are unpacked,
# not installed.  The tests that run then are those of what the library reads of the server's
# structures: rows, locks and processes of other sessions, the state of replication.  They
# pass with the server's own headers, so a struct, macro or inline function that has changed
# its meaning fails one of them.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my @regress = qw(acquire_any wait session_lock foreign_writes schedule_due why views history stats run_session existing_relation);
my @isolation = qw(waiter_wakes waiter_gives_up deadlock locks_view locks_moved place_gone permits force_release_ends_session
  prepared_transaction run_cancelled foreign_row_lock foreign_turned_away foreign_first foreign_takeover);
my @files = qw(server-durability server-standby fault-isolated-primary fault-rare-ends);

my $root = "$FindBin::RealBin/../..";
my $dir = PostgreSQL::Test::Utils::tempdir;
my ($major, $minor) = `pg_config --version` =~ /^PostgreSQL (\d+)\.(\d+)/ or plan skip_all => 'the server is no release';
my $package = "postgresql-server-dev-$major";

# what "make installcheck" tells its children
delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
# not built for these tests, which is no fault: t/fault-rare-ends skips what needs it
delete $ENV{SHEDLOCK_FAILMALLOC} unless -e ($ENV{SHEDLOCK_FAILMALLOC} // '');

# Runs commands of apt's with the lists and the cache that scripts/packages.sh makes for an
# ordinary user.  Returns what they print; the rest is in a file.
sub archive
{
	my ($commands) = @_;

	return scalar `WORK= bash -euc '. "$root/scripts/lib.sh"; WORK=$dir; use_cache; with_cache_locked update_lists >&2; $commands' 2>$dir/apt.log`;
}

# The oldest minor release before the server's, and its version in the archive
my $known = archive(qq{apt-cache "\${PRIVATE_APT[@]}" madison $package});
plan skip_all => 'the package archive cannot be asked: ' . slurp_file("$dir/apt.log") =~ s/\s+/ /gr if $? != 0;
my %version = $known =~ /\| $major\.(\d+)(-\S+) \|/g;
my ($oldest) = sort { $a <=> $b } grep { $_ < $minor } keys %version;
plan skip_all => "the package archive has no minor release before $major.$minor" unless defined $oldest;

archive(qq{cd $dir; apt-get "\${PRIVATE_APT[@]}" -qq download $package=$major.$oldest$version{$oldest} >&2; dpkg-deb -x ${package}_*.deb headers});
is($?, 0, "the headers of $major.$oldest are there, for the server $major.$minor") or BAIL_OUT(slurp_file("$dir/apt.log"));

# The build in a copy of the tree.  The compiler lists the headers that it has read.
my $headers = "$dir/headers/usr/include/postgresql/$major/server";
my $flags = '-MMD' . ($ENV{COPT} ? " $ENV{COPT}" : '');
system("cp -a '$root' '$dir/tree'") == 0 or die "$root cannot be copied\n";
my $make = "make -s -C '$dir/tree' PG_CONFIG=pg_config with_llvm=no";
my $said = `$make clean 2>&1 && $make COPT='$flags' includedir_server='$headers' shedlock.so 2>&1`;
is($?, 0, "the library can be built with the headers of $major.$oldest") or BAIL_OUT($said);
my $read = join '', map { slurp_file($_) } glob "$dir/tree/src/*/*.d";
like($read, qr/\Q$headers\E\/postgres\.h/, 'it was built with them');
unlike($read =~ s/\Q$headers\E//gr, qr/\/server\//, 'it was built with no other headers of a server');

# What is installed for the tests, with that library
my ($share, $lib) = split /\n/, `pg_config --sharedir --pkglibdir`;
my $conf = slurp_file($ENV{TEMP_CONFIG});
my ($installed) = $conf =~ /^dynamic_library_path = '(.*?)\Q$lib\E/m or die "$ENV{TEMP_CONFIG} has no library\n";
system("cp -a '$installed' '$dir/dest' && cp '$dir/tree/shedlock.so' '$dir/dest$lib/'") == 0 or die "$installed cannot be copied\n";
$conf =~ s/\Q$installed\E/$dir\/dest/g;
$ENV{TEMP_CONFIG} = "$dir/older.conf";
append_to_file($ENV{TEMP_CONFIG}, $conf);

my $node = start_node('main', conf => "max_prepared_transactions = 20\n", extra => [qw(-E UTF8 --locale=C.UTF-8)]);
my $session = session($node);
my $pid = pid_of($session);
ask($session, "SELECT shedlock_acquire('loaded')");
like(slurp_file("/proc/$pid/maps"), qr/\Q$dir\E\/dest\S*\/shedlock\.so/, "the server $major.$minor loads it");
$session->quit;

# Runs tests by a command; says what has failed.
sub passes
{
	my ($claim, $command) = @_;
	my $heard = `$command 2>&1`;

	is($?, 0, "$claim, with the headers of $major.$oldest") or diag(join "\n", $heard =~ /^((?:.*\bFAILED|not ok|#   (?:Failed|at) |Bail out).*)/mg);
	return;
}

my $check = sprintf "PGHOST='%s' PGPORT=%d LC_ALL=C.UTF-8 $make installcheck TAP_TESTS=", $node->host, $node->port;
passes('regress: ' . join(' ', @regress), "$check REGRESS='@regress' ISOLATION=");
passes('isolation: ' . join(' ', @isolation), "$check REGRESS= ISOLATION='@isolation'");
$node->stop;
passes($_, "timeout -k 10 600 perl test/t/$_.pl") foreach @files;
done_testing();
