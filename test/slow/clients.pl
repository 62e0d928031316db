# The packages of clients/ live through all scenarios of perl/ClientSuite.pm, in all languages.
# Network namespaces of its own, where the system allows them, have hosts that vanish.  Go is tested
# where a version is installed that is new enough for its library, which comes by network.
#
# Debian packages: pgbouncer python3-psycopg node-pg node-split2 node-xtend libpostgresql-jdbc-java
# Programs: iproute2 util-linux python3 default-jdk-headless

use strict;
use warnings FATAL => 'all';
use Test::More;

BEGIN
{
	my @inside = qw(unshare --user --map-current-user --keep-caps --net --);

	if (!$ENV{SHEDLOCK_NETWORK} && !$ENV{SHEDLOCK_NO_NETWORK})
	{
		chomp(my $refusal = `@inside unshare --net -- ip link add name shedlock type veth 2>&1`);
		$ENV{ $? == 0 ? 'SHEDLOCK_NETWORK' : 'SHEDLOCK_NO_NETWORK' } = $refusal || 'own';

		# there is no network inside
		system($^X, '-MClientSuite', '-e', 'ClientSuite::fetch_libraries()') == 0 or die "the libraries: $?\n";
		exec(@inside, 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh', $^X, $0) or die "exec: $!" if $ENV{SHEDLOCK_NETWORK};
	}
}

use FindBin;
use lib "$FindBin::RealBin/../perl";
use ClientSuite;
use PostgreSQL::Test::Utils;

my @clients = find_clients(qw(python node go java));
plan skip_all => 'this needs one of the languages with its library for PostgreSQL' if !@clients;

my $node = start_clients_node('clients');
my @scenarios = $ENV{SHEDLOCK_SCENARIOS} ? split(/,/, $ENV{SHEDLOCK_SCENARIOS}) : (all_scenarios(), 'mixed');

run_scenarios($node, 4, \@clients, grep { $_ ne 'mixed' } @scenarios);
run_mixed($node, 120, \@clients) if grep { $_ eq 'mixed' } @scenarios;
$node->stop;
done_testing();
