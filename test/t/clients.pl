# The packages of clients/ run jobs: each tick once, whichever replica dies, whatever answer is
# lost.  Those scenarios that say most in a minute; slow/clients.pl has all of them, in all languages.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use ClientSuite;
use PostgreSQL::Test::Utils;
use Test::More;

my @clients = find_clients(qw(python node));
plan skip_all => 'this needs Python or Node with its library for PostgreSQL' if !@clients;

my $node = start_clients_node('clients');
run_scenarios($node, 4, \@clients, $ENV{SHEDLOCK_SCENARIOS} ? split(/,/, $ENV{SHEDLOCK_SCENARIOS}) : short_scenarios());
$node->stop;
done_testing();
