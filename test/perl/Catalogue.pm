# The rows of an extension in the system catalogues, as text, so that two installations
# can be compared.
package Catalogue;

use strict;
use warnings FATAL => 'all';
use Exporter 'import';

our @EXPORT = qw(catalogue_sql differences);

# SQL that creates a function catalogue(extension): a line for each field of each row
# that the extension has in any catalogue.  It reads the list of catalogues from the
# server, so it omits nothing that a later PostgreSQL adds.  References become the names
# of their objects, and stored trees become SQL.  It omits the server's own counters,
# and fields in which an ALTER makes a difference without effect.
sub catalogue_sql
{
	return <<'EOF';
CREATE FUNCTION pg_temp.name_of(class oid, id oid) RETURNS text LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE WHEN id = 0 THEN '-' ELSE (SELECT type || ' ' || identity FROM pg_identify_object(class, id, 0)) END
$$;

CREATE FUNCTION pg_temp.catalogue(extension name) RETURNS SETOF text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	part record;
	fields text;
	line text;
BEGIN
	-- The extension, its members, and what belongs to a member: defaults,
	-- indexes, constraints, triggers, rules, row types and so on
	CREATE TEMP TABLE object ON COMMIT DROP AS
	WITH RECURSIVE object AS (
		SELECT 'pg_extension'::regclass::oid AS classid, oid AS objid, 'e' AS deptype FROM pg_extension WHERE extname = extension
		UNION
		SELECT d.classid, d.objid, 'a'
		FROM object o JOIN pg_depend d ON d.refclassid = o.classid AND d.refobjid = o.objid
		WHERE d.deptype IN ('a', 'i', o.deptype::"char"))
	SELECT DISTINCT classid, objid FROM object;

	-- Each catalogue, how its rows belong to an object, and what distinguishes the
	-- rows of one object
	FOR part IN
		SELECT classid::regclass AS catalogue, format('o.objid = r.oid AND o.classid = %s', classid) AS condition, 'NULL' AS which
		FROM object GROUP BY classid
		UNION ALL
		SELECT catalogue::regclass, format('o.objid = r.%s AND o.classid = %s', key, class::regclass::oid), which
		FROM (VALUES
			('pg_attribute', 'attrelid', 'pg_class', 'r.attname'),
			('pg_index', 'indexrelid', 'pg_class', 'NULL'),
			('pg_inherits', 'inhrelid', 'pg_class', 'r.inhseqno'),
			('pg_sequence', 'seqrelid', 'pg_class', 'NULL'),
			('pg_partitioned_table', 'partrelid', 'pg_class', 'NULL'),
			('pg_foreign_table', 'ftrelid', 'pg_class', 'NULL'),
			('pg_aggregate', 'aggfnoid', 'pg_proc', 'NULL'),
			('pg_enum', 'enumtypid', 'pg_type', 'r.enumlabel'),
			('pg_range', 'rngtypid', 'pg_type', 'NULL')) v (catalogue, key, class, which)
		UNION ALL
		SELECT catalogue::regclass, 'o.objid = r.objoid AND o.classid = r.classoid', 'nullif(r.objsubid, 0)'
		FROM unnest('{pg_description,pg_seclabel,pg_init_privs}'::text[]) catalogue
	LOOP
		SELECT string_agg(format(', (%L, %s::text)', attname, CASE
			WHEN f.is_array THEN format('ARRAY(SELECT pg_temp.name_of(%s, id) FROM unnest(r.%I::oid[]) WITH ORDINALITY u (id, n) ORDER BY n)', f.pktable::oid, attname)
			WHEN f.pktable IS NOT NULL THEN format('pg_temp.name_of(%s, r.%I)', f.pktable::oid, attname)
			-- their order has no meaning; pg_attver is the server's own
			WHEN atttypid = 'aclitem[]'::regtype OR attname IN ('reloptions', 'attoptions')
				THEN format('(SELECT array_agg(x::text ORDER BY x::text COLLATE "C") FROM unnest(r.%I) x WHERE x::text NOT LIKE ''pg\_attver=%%'')', attname)
			ELSE format('r.%I', attname)
			END), '')
		INTO fields
		FROM pg_attribute LEFT JOIN pg_get_catalog_foreign_keys() f ON f.fktable = attrelid AND f.fkcols = ARRAY[attname::text]
		WHERE attrelid = part.catalogue AND attnum > 0 AND NOT attisdropped AND atttypid <> 'pg_node_tree'::regtype
		AND attname NOT IN ('oid', 'objoid', 'classoid', 'relfilenode', 'relpages', 'reltuples', 'relallvisible', 'relallfrozen', 'relfrozenxid', 'relminmxid',
			'atthasmissing', 'attmissingval', 'indcheckxmin', 'extversion');

		fields := fields || CASE part.catalogue::text
			WHEN 'pg_proc' THEN $sql$, ('SQL', CASE WHEN r.prokind <> 'a' THEN pg_get_functiondef(r.oid) END)$sql$
			WHEN 'pg_class' THEN $sql$, ('SQL', CASE WHEN r.relkind IN ('i', 'I') THEN pg_get_indexdef(r.oid) END)$sql$
			WHEN 'pg_constraint' THEN $sql$, ('SQL', pg_get_constraintdef(r.oid))$sql$
			WHEN 'pg_trigger' THEN $sql$, ('SQL', pg_get_triggerdef(r.oid))$sql$
			WHEN 'pg_rewrite' THEN $sql$, ('SQL', pg_get_ruledef(r.oid))$sql$
			WHEN 'pg_attrdef' THEN $sql$, ('SQL', pg_get_expr(r.adbin, r.adrelid))$sql$
			WHEN 'pg_policy' THEN $sql$, ('SQL', concat_ws(' WITH CHECK ', pg_get_expr(r.polqual, r.polrelid), pg_get_expr(r.polwithcheck, r.polrelid)))$sql$
			WHEN 'pg_statistic_ext' THEN $sql$, ('SQL', pg_get_statisticsobjdef(r.oid))$sql$
			ELSE '' END;

		-- a TOAST table has the OID of its table in its name
		FOR line IN EXECUTE format(
			$sql$SELECT regexp_replace(concat_ws(' ', pg_temp.name_of(o.classid, o.objid), %s, '%s', v.key) || ' = ' || coalesce(to_json(v.value)::text, 'NULL'), 'pg_toast_\d+', 'pg_toast_N', 'g')
			FROM %s r JOIN object o ON %s, LATERAL (VALUES %s) v (key, value)$sql$,
			part.which, part.catalogue, part.catalogue, part.condition, substr(fields, 3))
		LOOP
			RETURN NEXT line;
		END LOOP;
	END LOOP;
END $$;
EOF
}

# Returns the lines that only one of two catalogues has, as diff prints them.
sub differences
{
	my ($old, $new) = @_;
	my %count;

	$count{$_}-- foreach split(/\n/, $old);
	$count{$_}++ foreach split(/\n/, $new);
	return join('', map { ($count{$_} < 0 ? '-' : '+') . "$_\n" } grep { $count{$_} } sort keys %count);
}

1;
