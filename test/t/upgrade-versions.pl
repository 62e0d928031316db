# An update by ALTER EXTENSION leads to the same catalogue as a new installation of that
# version, from each version to each later one, and held locks stay held.  The
# comparison finds whatever an upgrade script omits.

use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use Catalogue;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShedlockNode;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
init_node($node);
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE another; CREATE ROLE owner');

# Returns the catalogue with a version of the extension, newly installed, or updated from
# an older version with rows in its tables.  Also checks that the extension can be
# dropped and leaves nothing in its schema.
sub catalogue
{
	my ($version, $older) = @_;
	my $shedlock = '"My Locks".shedlock';
	my @sql = ('SET client_min_messages = warning', 'BEGIN', 'CREATE SCHEMA "My Locks"');

	push @sql, 'CREATE EXTENSION shedlock SCHEMA "My Locks" VERSION ' . (defined $older ? "'$older'" : "'$version'");
	push @sql, "DO \$\$ BEGIN PERFORM ${shedlock}_acquire('held', '1 h'), ${shedlock}_once('tick', '2026-01-01'); END \$\$",
	  "ALTER EXTENSION shedlock UPDATE TO '$version'",
	  "DO \$\$ BEGIN ASSERT ${shedlock}_extend('held', lock_at_most_for => '2 h') AND NOT ${shedlock}_once('tick', '2026-01-01'); END \$\$"
	  if defined $older;
	push @sql, catalogue_sql() . q{SELECT pg_temp.catalogue('shedlock')}, 'DROP EXTENSION shedlock', 'DROP SCHEMA "My Locks"', 'ROLLBACK';
	return $node->safe_psql('postgres', join(";\n", @sql));
}

# Returns what an update breaks, a line for each: a privilege that somebody has granted, which
# pg_dump must see as granted, and a function of the library that is called in another way than
# before.  Sessions that began before the update have the library of the older version.
sub broken
{
	my ($version, $older) = @_;

	return $node->safe_psql('postgres', join(";\n", 'SET client_min_messages = warning', 'BEGIN', 'CREATE SCHEMA "My Locks"',
		qq{CREATE EXTENSION shedlock SCHEMA "My Locks" VERSION '$older'}, q{
CREATE TEMP VIEW member AS
SELECT o.*, i.initprivs
FROM pg_extension e
	 JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
	 JOIN (
		SELECT 'pg_class'::regclass AS class, oid, CASE relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || oid::regclass AS object,
			   relacl AS acl, NULL AS symbol, NULL AS call
		FROM pg_class
		UNION ALL
		SELECT 'pg_proc'::regclass, oid, 'ROUTINE ' || oid::regprocedure, proacl, CASE WHEN probin IS NOT NULL THEN prosrc END,
			   concat_ws(' ', proargtypes, proallargtypes, proargmodes, prorettype, proretset)
		FROM pg_proc) o ON d.classid = o.class AND d.objid = o.oid
	 LEFT JOIN pg_init_privs i ON i.classoid = o.class AND i.objoid = o.oid AND i.objsubid = 0
WHERE e.extname = 'shedlock'}, q{
DO $$
DECLARE
	what text;
BEGIN
	FOR what IN SELECT object FROM member LOOP
		EXECUTE format('GRANT ALL ON %s TO another', what);
	END LOOP;
END $$}, 'CREATE TEMP TABLE old AS SELECT * FROM member', "ALTER EXTENSION shedlock UPDATE TO '$version'", q{
SELECT 'not granted any more: ' || object FROM member JOIN old USING (object) WHERE coalesce(member.acl::text, '') !~ 'another='
UNION ALL
SELECT 'not dumped any more: ' || object FROM member JOIN old USING (object) WHERE member.initprivs::text ~ 'another='
UNION ALL
SELECT 'called in another way: ' || symbol FROM member m
WHERE symbol IN (SELECT symbol FROM old) AND NOT EXISTS (SELECT FROM old WHERE old.symbol = m.symbol AND old.call = m.call)
ORDER BY 1}, 'ROLLBACK'));
}

#
# The versions that scripts install or lead to
#

my $scripts = private_scripts($node);
my ($default) = PostgreSQL::Test::Utils::slurp_file("$scripts/shedlock.control") =~ /^default_version = '(.*)'$/m;
my (%installable, %next);
foreach my $script (glob("$scripts/shedlock--*.sql"))
{
	my ($version, $newer) = $script =~ m{/shedlock--(.+?)(?:--(.+))?\.sql$};

	$installable{$version} = 1 unless defined $newer;
	push @{ $next{$version} }, $newer if defined $newer;
}
my @bases = sort { number($a) <=> number($b) } keys %installable;

sub number
{
	return join('', map { sprintf '%04d', $_ } (shift =~ /(\d+)/g, 0, 0, 0)[ 0 .. 2 ]);
}

# Returns all versions that scripts lead to from the given ones.
sub reached_from
{
	my @todo = @_;
	my %reached;

	while (defined(my $version = shift @todo))
	{
		push @todo, grep { !$reached{$_}++ } @{ $next{$version} || [] };
	}
	return sort keys %reached;
}

$installable{$_} = 1 foreach reached_from(@bases);
ok($installable{$default}, "version $default can be installed");
ok($installable{$_}, "version $_ can be installed, so that its upgrade script can be tested") foreach sort keys %next;
foreach my $older (sort keys %installable)
{
	my @newer = reached_from($older);

	ok($older eq $default || grep({ $_ eq $default } @newer), "version $older can be updated to $default");
	is(differences(catalogue($_), catalogue($_, $older)), '', "$older, updated to $_: as if $_ had been installed") foreach @newer;
	is(broken($_, $older), '', "$older, updated to $_: privileges are kept, and what sessions have loaded is called as before") foreach @newer;
}

#
# A version that pretends to be the next one: its changes, one each, and the difference
# that shows if the upgrade script omits the change
#

my @new = (
	q{CREATE FUNCTION shedlock_new(name text, n integer DEFAULT 1) RETURNS integer LANGUAGE sql AS 'SELECT 1'},
	q{CREATE TYPE shedlock_pair AS (a integer, b text)},
	q{CREATE VIEW shedlock_view AS SELECT 1 AS a},
	q{CREATE INDEX shedlock_index ON _shedlock_tick (claimed_at)},
	q{ALTER TABLE shedlock ADD COLUMN first_new text DEFAULT 'old'});
my @changes = (
	[ q{CREATE FUNCTION shedlock_newer() RETURNS integer LANGUAGE sql AS 'SELECT 1'}, qr/^-function .*shedlock_newer\(\) pg_proc/m ],
	[ q{CREATE OR REPLACE FUNCTION shedlock_new(name text, n integer DEFAULT 2) RETURNS integer LANGUAGE sql AS 'SELECT 1'}, qr/^-.* pg_proc SQL = .*DEFAULT 2/m ],
	[ q{ALTER FUNCTION shedlock_token STABLE}, qr/^-.*shedlock_token.* provolatile = "s"/m ],
	[ q{ALTER FUNCTION shedlock_token PARALLEL SAFE}, qr/^-.*shedlock_token.* proparallel = "s"/m ],
	[ q{ALTER FUNCTION shedlock_token STRICT}, qr/^-.*shedlock_token.* proisstrict/m ],
	[ q{ALTER FUNCTION shedlock_new SET search_path = pg_catalog}, qr/^-.*shedlock_new.* proconfig/m ],
	[ q{COMMENT ON FUNCTION shedlock_token IS 'another'}, qr/^-.*shedlock_token.* description = "another"/m ],
	[ q{REVOKE EXECUTE ON FUNCTION shedlock_new FROM PUBLIC}, qr/^-.*shedlock_new.* proacl = /m ],
	[ q{GRANT EXECUTE ON FUNCTION shedlock_purge TO another}, qr/^-.*shedlock_purge.* proacl = .*another=X/m ],
	[ q{ALTER FUNCTION shedlock_new OWNER TO owner}, qr/^-.*shedlock_new.* proowner = "role owner"/m ],
	[ q{DROP FUNCTION shedlock_resume(text)}, qr/^\+function .*shedlock_resume/m ],
	[ q{DROP VIEW shedlock_stats}, qr/^\+view .*shedlock_stats/m ],
	[ q{ALTER TABLE _shedlock_tick ADD COLUMN new text}, qr/^-table .*_shedlock_tick new pg_attribute/m ],
	[ q{ALTER TABLE shedlock ALTER COLUMN first_new SET DEFAULT 'new'}, qr/^-.* pg_attrdef SQL = "'new'::text"/m ],
	[ q{ALTER TABLE _shedlock_history ALTER COLUMN message SET NOT NULL}, qr/^-.*_shedlock_history message .* attnotnull = "true"/m ],
	[ q{ALTER TABLE shedlock ALTER COLUMN first_new TYPE varchar(300)}, qr/^-.*shedlock first_new .* atttypmod = "304"/m ],
	[ q{ALTER TABLE _shedlock_tick ALTER COLUMN name SET STORAGE EXTERNAL}, qr/^-.*_shedlock_tick name .* attstorage = "e"/m ],
	[ q{ALTER TABLE _shedlock_tick ALTER COLUMN name SET STATISTICS 7}, qr/^-.*_shedlock_tick name .* attstattarget = "7"/m ],
	[ q{ALTER TABLE _shedlock_tick ALTER COLUMN name SET (n_distinct = -1)}, qr/^-.*_shedlock_tick name .* attoptions = .*n_distinct/m ],
	[ q{COMMENT ON COLUMN _shedlock_tick.name IS 'another'}, qr/^-.*_shedlock_tick 1 .* description = "another"/m ],
	[ q{GRANT SELECT (name) ON _shedlock_tick TO another}, qr/^-.*_shedlock_tick name .* attacl = /m ],
	[ q{GRANT SELECT ON _shedlock_tick TO another}, qr/^-.*_shedlock_tick pg_class relacl = .*another=r/m ],
	[ q{ALTER TABLE _shedlock_tick OWNER TO owner}, qr/^-.*_shedlock_tick pg_class relowner = "role owner"/m ],
	[ q{ALTER TABLE _shedlock_tick SET (fillfactor = 33)}, qr/^-.*_shedlock_tick pg_class reloptions = .*fillfactor=33/m ],
	[ q{ALTER TABLE _shedlock_tick SET (toast.autovacuum_enabled = off)}, qr/^-toast table .* reloptions = /m ],
	[ q{ALTER TABLE _shedlock_history SET UNLOGGED}, qr/^-.*_shedlock_history pg_class relpersistence = "u"/m ],
	[ q{ALTER TABLE _shedlock_tick REPLICA IDENTITY FULL}, qr/^-.*_shedlock_tick pg_class relreplident = "f"/m ],
	[ q{ALTER TABLE _shedlock_history ADD CONSTRAINT more CHECK (name <> '')}, qr/^-table constraint more .* pg_constraint SQL = /m ],
	[ q{CREATE UNIQUE INDEX shedlock_more ON _shedlock_tick (tick, name) WHERE token > 0}, qr/^-index .*shedlock_more pg_class SQL = /m ],
	[ q{ALTER INDEX shedlock_index SET (fillfactor = 33)}, qr/^-index .*shedlock_index .* reloptions = /m ],
	[ q{CREATE TRIGGER more BEFORE UPDATE ON _shedlock_tick FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()}, qr/^-trigger more .* SQL = /m ],
	[ q{ALTER TABLE shedlock ENABLE ALWAYS TRIGGER shedlock_row}, qr/^-trigger shedlock_row .* tgenabled = "A"/m ],
	[ q{CREATE RULE more AS ON DELETE TO shedlock_view DO INSTEAD NOTHING}, qr/^-rule more .* SQL = /m ],
	[ q{ALTER TABLE _shedlock_tick ENABLE ROW LEVEL SECURITY}, qr/^-.*_shedlock_tick pg_class relrowsecurity = "true"/m ],
	[ q{CREATE POLICY more ON _shedlock_tick USING (token = 1)}, qr/^-policy more .* SQL = "\(token = 1\)/m ],
	[ q{CREATE STATISTICS more ON name, tick FROM _shedlock_tick}, qr/^-statistics object .*more .* SQL = /m ],
	[ q{CREATE OR REPLACE VIEW shedlock_view AS SELECT 2 AS a}, qr/^-rule .*shedlock_view.* SQL = .*SELECT 2 AS a/m ],
	[ q{ALTER VIEW shedlock_view SET (security_barrier)}, qr/^-view .*shedlock_view .* reloptions = .*security_barrier/m ],
	[ q{ALTER SEQUENCE shedlock_token_seq CACHE 9}, qr/^-sequence .* pg_sequence seqcache = "9"/m ],
	[ q{SELECT pg_catalog.pg_extension_config_dump('_shedlock_tick', 'WHERE true')}, qr/^-extension shedlock pg_extension extcondition = /m ],
	[ q{ALTER TYPE shedlock_pair ADD ATTRIBUTE c date}, qr/^-composite type .*shedlock_pair c pg_attribute/m ],
	[ q{COMMENT ON TYPE shedlock_pair IS 'another'}, qr/^-type .*shedlock_pair .* description = /m ],
	[ q{CREATE TYPE shedlock_enum AS ENUM ('a', 'b')}, qr/^-type .*shedlock_enum b pg_enum/m ],
	[ q{CREATE DOMAIN shedlock_domain AS text CHECK (value <> '')}, qr/^-domain constraint .* SQL = /m ],
	[ q{CREATE OPERATOR ### (FUNCTION = int4mi, LEFTARG = integer, RIGHTARG = integer)}, qr/^-operator .*###.* oprcode = "function /m ],
	[ q{CREATE AGGREGATE shedlock_sum(integer) (SFUNC = int4pl, STYPE = integer)}, qr/^-aggregate .*shedlock_sum.* pg_aggregate aggtransfn = "function /m ],
	[ q{CREATE CAST (shedlock_pair AS integer) WITH INOUT}, qr/^-cast /m ]);

# It is made from the newest version that a single script installs.
my $base = $bases[-1];

# Writes the script that leads to a version.
sub script
{
	my ($name, @sql) = @_;

	PostgreSQL::Test::Utils::append_to_file("$scripts/shedlock--$name.sql", join('', map { "$_;\n" } @sql));
	return;
}

my @all = (@new, map { $_->[0] } @changes);
script("$base.9", PostgreSQL::Test::Utils::slurp_file("$scripts/shedlock--$base.sql"), @all);
script("$base--$base.9", @all);
my $whole = catalogue("$base.9");
is(differences($whole, catalogue("$base.9", $base)), '', 'a complete upgrade script leaves no difference');
cmp_ok(scalar(split /\n/, $whole), '>', 1000, 'the catalogue has something to compare');
foreach my $i (0 .. $#changes)
{
	my ($change, $difference) = @{ $changes[$i] };

	script("$base--$base.9.$i", grep { $_ ne $change } @all);
	like(differences($whole, catalogue("$base.9.$i", $base)), $difference, "omitted: $change");
}

# What the catalogue does not show
script("$base--$base.11",
	'DROP VIEW shedlock_stats', 'CREATE VIEW shedlock_stats AS SELECT 1 AS name', 'GRANT SELECT ON _shedlock_tick TO PUBLIC',
	'DROP FUNCTION shedlock_token(text)', q{CREATE FUNCTION shedlock_token(name text, OUT token bigint, OUT more text) LANGUAGE C AS 'MODULE_PATHNAME', 'shedlock_token'});
is(broken("$base.11", $base), join("\n", 'called in another way: shedlock_token', 'not dumped any more: TABLE "My Locks"._shedlock_tick',
	'not granted any more: ROUTINE "My Locks".shedlock_token(text)', 'not granted any more: TABLE "My Locks".shedlock_stats'),
	'a script that breaks privileges or sessions is found');

# The library finds columns by their numbers.
my @columns = map { "ALTER TABLE shedlock ADD COLUMN $_ integer" } 'a', 'b';
script("$base.10", PostgreSQL::Test::Utils::slurp_file("$scripts/shedlock--$base.sql"), @columns);
script("$base--$base.10", reverse @columns);
like(differences(catalogue("$base.10"), catalogue("$base.10", $base)), qr/^-.*shedlock a pg_attribute attnum = /m, 'columns in another order are a difference');

$node->stop;
done_testing();
