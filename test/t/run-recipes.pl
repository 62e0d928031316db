# Tests the functions in Python and JavaScript of doc/services.md that run a job of a
# service: three replicas on one tick, killed connections, a pooler that restarts or does
# not answer, a forced release, and work that fails.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run;
use JobRecipes;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my %clients = (
	python => [ [ '/usr/bin/python3', '-c', 'import psycopg' ], '/usr/bin/python3', 'test/clients/job.py' ],
	node => [ [ 'node', '-e', 'require("pg")' ], 'node', 'test/clients/job.js' ]);
my $dir = PostgreSQL::Test::Utils::tempdir;
my %command;

$ENV{NODE_PATH} //= '/usr/share/nodejs';
$ENV{RECIPES} = $dir;
foreach my $client (sort keys %clients)
{
	my ($load, @command) = @{ $clients{$client} };
	my $output = '';
	my $can = eval { IPC::Run::run($load, '<', \undef, '>&', \$output) };

	ok($can, "$client and its library for PostgreSQL are here") or diag $output
	  if grep { $_ eq $client } split / /, $ENV{SHEDLOCK_CLIENTS} // '';
	$command{$client} = \@command if $can;
}
plan skip_all => 'this needs Python or Node with its library for PostgreSQL' if !%command;
write_recipe('python', "$dir/recipe.py");
write_recipe('js', "$dir/recipe.js");

my $node = start_node('recipes', conf => "max_connections = 100\n");
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN');
prepare_recipes($node);
test_recipe($_, @{ $command{$_} }) foreach sort keys %command;

$node->stop;
done_testing();
