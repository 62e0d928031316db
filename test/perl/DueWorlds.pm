# Random worlds with one job, in the server: the module test/modules/due has them.
package DueWorlds;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';

our @EXPORT = qw(live_worlds tell_world);

# Calls a function of a module, for that many worlds.  One that searches for a tick without end is
# canceled.
sub call_module
{
	my ($node, $module, $worlds, $function, $types, $arguments) = @_;
	my ($said, $error);
	my $limit = 60 + int($worlds / 50);

	# each declaration that changes something is logged
	$node->psql('postgres', qq{
		SET log_min_messages = fatal;
		SET client_min_messages = error;
		SET statement_timeout = '$limit s';
		CREATE FUNCTION pg_temp.$function($types) RETURNS text AS '$module' LANGUAGE C;
		SELECT pg_temp.$function($arguments)}, stdout => \$said, stderr => \$error);
	return $error ? "0\t1\t0\tno error: $error" : $said;
}

# Lives worlds with a module.  Returns for each promise how often it was checked, how often it
# was broken, and by which world first.  With until_broken no more worlds live then.
sub live_worlds
{
	my ($node, $module, $first, $count, $until_broken) = @_;
	my %promises;

	foreach my $line (split /\n/, call_module($node, $module, $count, 'live_worlds', 'bigint, integer, boolean', "$first, $count, $until_broken"))
	{
		my ($checked, $broken, $world, $promise) = split /\t/, $line;

		$promises{$promise} = [ $checked, $broken, $world ] if $promise;
	}
	return \%promises;
}

# Returns what happens in a world until it breaks a promise.
sub tell_world
{
	my ($node, $module, $world) = @_;

	return call_module($node, $module, 1, 'tell_world', 'bigint', $world);
}

1;
