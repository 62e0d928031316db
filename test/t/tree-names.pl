# Tests that doc/reference.md has every public name, and no other: functions with their
# arguments, columns, settings, metrics and alerts; options, exit statuses and variables of
# the program.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use HostProgram;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $doc = "$FindBin::RealBin/../../doc";
my $text = slurp_file("$doc/reference.md");
my $node = start_node('main');

sub answer
{
	my ($query) = @_;

	return $node->safe_psql('postgres', "SET search_path = pg_catalog; $query");
}

# Returns the names between backquotes.
sub names_in
{
	my ($cell) = @_;

	return [ sort $cell =~ /`([^`]+)`/g ];
}

# Returns the rows of the first table of a section, as cells.
sub table_of
{
	my ($heading) = @_;
	my ($table) = $text =~ /^#+ \Q$heading\E\n(?:(?!#).*\n)*?((?:\|.*\n)+)/m or die "there is no section \"$heading\" with a table\n";
	my (undef, undef, @rows) = split /\n/, $table;

	return map { [ map { s/^ | $//gr } (split /(?<!\\)\|/)[ 1 .. 2 ] ] } @rows;
}

# Functions and procedures: a call with the arguments that can be left out in brackets
my %call = map { split /\t/, $_, 2 } split /\n/, answer(q{
	SELECT concat_ws(E'\t', proname, concat(CASE prokind WHEN 'p' THEN 'CALL ' END, proname, '(', array_to_string(needed, ', '),
		CASE WHEN optional <> '{}' THEN concat(CASE WHEN needed <> '{}' THEN ' ' END, '[', CASE WHEN needed <> '{}' THEN ', ' END, array_to_string(optional, ', '), ']') END, ')'))
	FROM pg_proc, LATERAL (SELECT (proargnames)[:pronargs - pronargdefaults], (proargnames)[pronargs - pronargdefaults + 1:pronargs]) a (needed, optional)
	WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'shedlock%' AND prokind IN ('f', 'p')});
my $same = $call{shedlock_acquire} =~ s/^shedlock_acquire//r;
my @said = map { s/\(` the same `\)/$same/r =~ s/^`|`$//gr } $text =~ /^\| (`(?:CALL )?shedlock_\w+\(.*?) \|/mg;

is_deeply([ sort @said ], [ sort values %call ], 'functions and procedures, with their arguments');

my %said = map { @$_ } table_of('All other names');
my %real = map { split /\t/, $_, 2 } split /\n/, answer(q{
	SELECT concat_ws(E'\t', concat('columns of `', relname, '`'), string_agg(attname, ' ' ORDER BY attnum))
	FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
	WHERE relnamespace = 'public'::regnamespace AND relname LIKE 'shedlock%' AND relkind IN ('r', 'v') AND attnum > 0 AND NOT attisdropped
	GROUP BY relname
	UNION ALL
	SELECT concat_ws(E'\t', concat('answer of `', proname, '`'), array_to_string((proargnames)[pronargs + 1:], ' '))
	FROM pg_proc
	WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'shedlock%' AND cardinality(proallargtypes) > pronargs});

my $queries = slurp_file("$doc/monitoring/queries.yaml");
my %labels;
foreach my $query ($queries =~ /^(shedlock\w*:\n(?:(?!shedlock).*\n)*)/mg)
{
	my ($prefix) = $query =~ /^(\w+)/;
	my %usage = $query =~ /^    - (\w+):\n +usage: "(\w+)"/mg;

	push @{ $real{metrics} }, map { "${prefix}_$_" } grep { $usage{$_} ne 'LABEL' } keys %usage;
	@labels{ grep { $usage{$_} eq 'LABEL' } keys %usage } = ();
}
my $manual = slurp_file("$doc/shedlock.1");

@real{ map { "variables of $_" } 'the command of `--watch`', 'a command that it runs' } =
  grep { @$_ } map { [/^\.It Ev (SHEDLOCK_\w+)/mg] } $manual =~ /^\.Bl (.*?)^\.El/msg;
$real{'exit statuses of the program'} = [ $manual =~ /^\.It (\d+)$/mg ];
$real{'labels of metrics'} = [ keys %labels ];
$real{alerts} = [ slurp_file("$doc/monitoring/alerts.yaml") =~ /^ +- alert: (\w+)/mg ];
if (my $program = program_path())
{
	my ($help) = run_command([ $program, '--help' ]);

	$real{'options of the program'} = [ $help =~ /^ +(?:-\w, |    )?(--[a-z-]+)/mg ];
}
else
{
	delete $said{'options of the program'};
}
foreach my $kind (sort keys %real)
{
	my @names = ref $real{$kind} ? @{ $real{$kind} } : split / /, $real{$kind};

	is_deeply(names_in($said{$kind} // ''), [ sort @names ], $kind)
	  or diag("| $kind | " . join(', ', map { "`$_`" } @names) . ' |');
}
is_deeply([ grep { !$real{$_} } sort keys %said ], [], 'nothing else');

is_deeply([ sort map { @{ names_in($_->[0]) } } table_of('Settings') ],
	[ split /\n/, answer(q{LOAD 'shedlock'; SELECT name FROM pg_settings WHERE name LIKE 'shedlock.%' ORDER BY name COLLATE "C"}) ], 'settings');

$node->stop;
done_testing();
