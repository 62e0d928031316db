/* ShedLock's Java clients: the trigger on their writes, and taking over their table */

CREATE FUNCTION _shedlock_row_trigger()
RETURNS trigger
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', '_shedlock_row_trigger';

COMMENT ON FUNCTION _shedlock_row_trigger() IS
'Has writes by ShedLock''s clients, or by hand, keep the rules of both halves';

CREATE TRIGGER shedlock_row
	BEFORE INSERT OR UPDATE OR DELETE ON shedlock
	FOR EACH ROW EXECUTE FUNCTION _shedlock_row_trigger();

COMMENT ON TRIGGER shedlock_row ON shedlock IS
'Has writes by ShedLock''s clients, or by hand, keep the rules of both halves';

-- What depends on the old table would go on with it, and see no lock any more.
CREATE FUNCTION _shedlock_adopt_dependents(old_table regclass)
RETURNS text
LANGUAGE sql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
SELECT string_agg(DISTINCT o.description COLLATE "C", ', ' ORDER BY o.description COLLATE "C")
FROM (
	SELECT CASE WHEN r.rulename = '_RETURN' THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
				ELSE pg_describe_object(d.classid, d.objid, d.objsubid) END
	FROM pg_depend d
		 LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
	WHERE d.deptype = 'n' AND d.classid <> 'pg_attrdef'::regclass AND
		  (d.refclassid = 'pg_class'::regclass AND d.refobjid = old_table OR
		   d.refclassid = 'pg_type'::regclass AND d.refobjid IN (
				SELECT t.oid FROM pg_class c JOIN pg_type t ON t.oid = c.reltype WHERE c.oid = old_table
				UNION ALL
				SELECT t.typarray FROM pg_class c JOIN pg_type t ON t.oid = c.reltype WHERE c.oid = old_table)) AND
		  -- the table's own
		  NOT (d.classid = 'pg_constraint'::regclass AND d.objid IN (
				SELECT c.oid FROM pg_constraint c WHERE c.conrelid = old_table AND c.contype <> 'f')) AND
		  NOT (d.classid = 'pg_class'::regclass AND d.objid IN (
				SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = old_table))
	UNION ALL
	SELECT pg_describe_object('pg_constraint'::regclass, c.oid, 0)
	FROM pg_constraint c WHERE c.conrelid = old_table AND c.contype = 'f'
	UNION ALL
	SELECT pg_describe_object('pg_trigger'::regclass, t.oid, 0)
	FROM pg_trigger t WHERE t.tgrelid = old_table AND NOT t.tgisinternal
	UNION ALL
	SELECT pg_describe_object('pg_rewrite'::regclass, r.oid, 0)
	FROM pg_rewrite r WHERE r.ev_class = old_table
	UNION ALL
	SELECT pg_describe_object('pg_policy'::regclass, p.oid, 0)
	FROM pg_policy p WHERE p.polrelid = old_table
	UNION ALL
	SELECT format('row security of table %s', c.oid::regclass)
	FROM pg_class c WHERE c.oid = old_table AND c.relrowsecurity
	UNION ALL
	SELECT pg_describe_object('pg_publication_rel'::regclass, p.oid, 0)
	FROM pg_publication_rel p WHERE p.prrelid = old_table
	UNION ALL
	SELECT format('table %s', CASE i.inhparent WHEN old_table THEN i.inhrelid ELSE i.inhparent END::regclass)
	FROM pg_inherits i WHERE old_table IN (i.inhparent, i.inhrelid)) o(description)
$$;

COMMENT ON FUNCTION _shedlock_adopt_dependents(regclass) IS
'What would be lost if another relation took the place of this table; NULL when there is nothing';

-- Called with the tables locked, so that nothing of them changes any more.
-- dependents: of _shedlock_adopt_dependents; held: names of locks in our table.
CREATE FUNCTION _shedlock_adopt_check(
	old_table regclass,
	columns name[],
	check_clock boolean,
	dependents text,
	held text[],
	ours regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
-- else CHECK constraints, too, are computed when a query is planned
SET constraint_exclusion = off
AS $$
#variable_conflict use_variable
DECLARE
	documented CONSTANT name[] := '{name,lock_until,locked_at,locked_by}';
	tolerance CONSTANT interval := coalesce(current_setting('shedlock.foreign_clock_tolerance', true), '10min');
	cap CONSTANT interval := coalesce(current_setting('shedlock.max_lock_at_most_for', true), '0');
	utc CONSTANT timestamp := timezone('UTC', clock_timestamp());
	a record;
	found_text text;
	found_at timestamp;
	hours numeric;
BEGIN
	FOR i IN 1..4 LOOP
		SELECT t.attnum, t.atttypid, c.collisdeterministic AS deterministic INTO a
		FROM pg_attribute t LEFT JOIN pg_collation c ON c.oid = t.attcollation
		WHERE t.attrelid = old_table AND t.attname = columns[i] AND t.attnum > 0 AND NOT t.attisdropped;
		IF NOT FOUND THEN
			RAISE EXCEPTION USING
				ERRCODE = 'undefined_column',
				MESSAGE = format('column "%s" of table %s does not exist', columns[i], old_table),
				DETAIL = 'A table of ShedLock has name, lock_until, locked_at and locked_by.',
				HINT = format('If it is named otherwise: %s_column => ''...''.', documented[i]);
		ELSIF a.atttypid = 'timestamptz'::regtype AND i IN (2, 3) THEN
			RAISE EXCEPTION USING
				ERRCODE = 'datatype_mismatch',
				MESSAGE = format('column "%s" of table %s is of type timestamp with time zone', columns[i], old_table),
				DETAIL = 'ShedLock''s usingDbTime() writes it rightly only in sessions whose time zone is UTC.',
				HINT = format('Convert it to UTC first, in the same transaction: ALTER TABLE %1$s ALTER COLUMN %2$I TYPE timestamp USING timezone(''UTC'', %2$I);',
							  old_table, columns[i]);
		ELSIF a.atttypid <> ALL (CASE WHEN i IN (2, 3) THEN '{timestamp}' ELSE '{varchar,text}' END::regtype[]) THEN
			RAISE EXCEPTION USING
				ERRCODE = 'datatype_mismatch',
				MESSAGE = format('column "%s" of table %s is of type %s', columns[i], old_table, a.atttypid::regtype),
				DETAIL = format('ShedLock''s %s is of type %s.', documented[i],
								CASE WHEN i IN (2, 3) THEN 'timestamp without time zone' ELSE 'character varying' END),
				HINT = 'Change its type with ALTER TABLE first, in the same transaction.';
		ELSIF i = 1 AND NOT a.deterministic THEN
			RAISE EXCEPTION USING
				ERRCODE = 'collation_mismatch',
				MESSAGE = format('column "%s" of table %s has a nondeterministic collation', columns[i], old_table),
				DETAIL = 'Locks whose names were equal by it would become different locks.',
				HINT = 'Change its collation with ALTER TABLE first.';
		ELSIF i = 1 AND NOT EXISTS (
			SELECT FROM pg_index x
			WHERE x.indrelid = old_table AND x.indisunique AND x.indisvalid AND x.indimmediate AND
				  x.indpred IS NULL AND x.indnkeyatts = 1 AND x.indkey[0] = a.attnum)
		THEN
			RAISE EXCEPTION USING
				ERRCODE = 'invalid_column_reference',
				MESSAGE = format('column "%s" of table %s is not unique', columns[i], old_table),
				DETAIL = 'ShedLock needs a primary key, or a unique index, of this column alone, that is not deferrable.',
				HINT = format('ALTER TABLE %s ADD PRIMARY KEY (%I);', old_table, columns[i]);
		END IF;
	END LOOP;

	SELECT string_agg(format('"%s"', t.attname), ', ' ORDER BY t.attnum) INTO found_text
	FROM pg_attribute t
	WHERE t.attrelid = old_table AND t.attnum > 0 AND NOT t.attisdropped AND t.attname <> ALL (columns) AND
		  t.attnotnull AND NOT t.atthasdef AND t.attidentity = '';
	IF found_text IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'feature_not_supported',
			MESSAGE = format('table %s has columns that ShedLock cannot fill', old_table),
			DETAIL = format('Neither null nor a default is possible in %s: somebody else writes to this table.', found_text),
			HINT = 'If these columns are not needed, drop them, or their NOT NULL, first.';
	END IF;

	IF dependents IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'dependent_objects_still_exist',
			MESSAGE = format('cannot adopt table %s because other objects depend on it', old_table),
			DETAIL = format('They would stay with the old table, where no lock is taken any more: %s.', dependents),
			HINT = 'Drop them first, in the same transaction, and make those that can refer to a view again after it.';
	END IF;

	-- The planner computes what is constant in these, with the rights of the role
	-- that plans a query; the functions are those of the table's owner.
	SELECT string_agg(o.description COLLATE "C", ', ' ORDER BY o.description COLLATE "C") INTO found_text
	FROM (
		SELECT pg_describe_object('pg_class'::regclass, x.indexrelid, 0)
		FROM pg_index x WHERE x.indrelid = old_table AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL)
		UNION ALL
		SELECT pg_describe_object('pg_statistic_ext'::regclass, x.oid, 0)
		FROM pg_statistic_ext x WHERE x.stxrelid = old_table AND x.stxexprs IS NOT NULL) o(description);
	IF found_text IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'feature_not_supported',
			MESSAGE = format('cannot adopt table %s because it has expressions in indexes or statistics', old_table),
			DETAIL = format('They would be computed with the rights of the role that adopts it: %s.', found_text),
			HINT = 'Drop them first, in the same transaction: ShedLock does not use them.';
	END IF;

	SELECT string_agg(format('"%s"', t.attname), ', ' ORDER BY t.attnum) INTO found_text
	FROM pg_attribute t
	WHERE t.attrelid = old_table AND t.attnum > 0 AND NOT t.attisdropped AND t.attname <> ALL (columns);
	IF found_text IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = format('columns of table %s are not in the view: %s', old_table, found_text),
			DETAIL = 'ShedLock does not use them; they stay in the renamed table.';
	END IF;

	EXECUTE format('SELECT o.%1$I::text FROM ONLY %5$s o WHERE o.%1$I IS NULL OR o.%2$I IS NULL OR o.%3$I IS NULL OR o.%4$I IS NULL LIMIT 1',
				   columns[1], columns[2], columns[3], columns[4], old_table) INTO found_text;
	GET DIAGNOSTICS hours = ROW_COUNT;
	IF hours > 0 THEN
		RAISE EXCEPTION USING
			ERRCODE = 'not_null_violation',
			MESSAGE = format('table %s has a row with a null in a column of ShedLock''s', old_table),
			DETAIL = format('It is that of lock %s.', quote_nullable(found_text)),
			HINT = 'ShedLock never writes nulls: correct or delete that row first.';
	END IF;

	EXECUTE format('SELECT o.%1$I FROM ONLY %3$s o WHERE char_length(o.%1$I) NOT BETWEEN 1 AND 255 OR char_length(o.%2$I) > 255 LIMIT 1',
				   columns[1], columns[4], old_table) INTO found_text;
	IF found_text IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = CASE found_text WHEN '' THEN 'invalid_parameter_value' ELSE 'string_data_right_truncation' END,
			MESSAGE = format('table %s has a row that is too long, or has no name', old_table),
			DETAIL = format('It is that of lock "%s"; %s and %s have at most 255 characters.',
							left(found_text, 60) || CASE WHEN char_length(found_text) > 60 THEN '...' ELSE '' END,
							columns[1], columns[4]),
			HINT = 'Delete that row if it is not used, or have the service use a shorter text.';
	END IF;

	-- Superusers use all names; a table that nobody else writes to has only good ones.
	-- The owner of a table decides who writes to it, and gets the tokens.
	IF coalesce(current_setting('shedlock.role_prefix', true)::boolean, false) THEN
		EXECUTE format($query$
			WITH owner AS (
				SELECT r.oid, r.rolsuper FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE c.oid = $1),
			writer(role) AS (
				SELECT a.grantee
				FROM (
					SELECT x.grantee
					FROM pg_class c, aclexplode(c.relacl) x
					WHERE c.oid = $1 AND x.privilege_type = 'UPDATE'
					UNION
					SELECT x.grantee
					FROM pg_attribute t, aclexplode(t.attacl) x
					WHERE t.attrelid = $1 AND NOT t.attisdropped AND x.privilege_type = 'UPDATE') a
					LEFT JOIN pg_roles r ON r.oid = a.grantee
				WHERE (SELECT w.rolsuper FROM owner w) AND r.rolsuper IS NOT TRUE
				UNION ALL
				SELECT w.oid FROM owner w WHERE NOT w.rolsuper)
			SELECT o.%1$I FROM ONLY %2$s o
			WHERE EXISTS (SELECT FROM writer) AND NOT EXISTS (
				SELECT FROM writer w JOIN pg_roles p ON p.rolname::text = split_part(o.%1$I::text, ':', 1)
				WHERE strpos(o.%1$I::text, ':') > 0 AND (w.role = 0 OR pg_has_role(w.role, p.oid, 'USAGE')))
			LIMIT 1$query$, columns[1], old_table) INTO found_text USING old_table;
		IF found_text IS NOT NULL THEN
			RAISE EXCEPTION USING
				ERRCODE = 'invalid_parameter_value',
				MESSAGE = format('no service could use lock "%s" of table %s any more', found_text, old_table),
				DETAIL = 'With shedlock.role_prefix on, a name begins with a role and a colon; the owner of the table has not the privileges of such a role. If the owner is a superuser, no role that may update the table has them.',
				HINT = 'Have the services use other names first, as in "app:job"; a row that no service uses can be deleted. If the services are trusted with each other''s names, ALTER TABLE ... OWNER TO a superuser first.';
		END IF;
	END IF;

	-- Clients whose wall clock is not UTC are seen by what they wrote.
	EXECUTE format('SELECT o.%1$I, o.%2$I FROM ONLY %3$s o WHERE o.%2$I > $1 ORDER BY 2 DESC LIMIT 1',
				   columns[1], columns[3], old_table) INTO found_text, found_at USING utc + tolerance;
	IF found_text IS NOT NULL THEN
		hours := CASE WHEN isfinite(found_at) THEN round((extract(epoch FROM found_at - utc) / 3600)::numeric, 1) END;
		RAISE EXCEPTION USING
			ERRCODE = 'datetime_field_overflow',
			MESSAGE = format('%s of lock "%s" in table %s is ahead of the current time in UTC', columns[3], found_text, old_table),
			DETAIL = format('It is %s, about %s ahead: a client wrote its local time, or has a wrong clock.',
							found_at, coalesce(trim_scale(hours) || ' hours', 'an infinite time')),
			HINT = 'Let all services use usingDbTime() or forceUtcTimeZone() first. A row that no service uses any more can be deleted.';
	END IF;

	IF cap > '0' THEN
		EXECUTE format('SELECT o.%1$I, o.%2$I FROM ONLY %3$s o WHERE o.%2$I > $1 ORDER BY 2 DESC LIMIT 1',
					   columns[1], columns[2], old_table) INTO found_text, found_at USING utc + cap + tolerance;
		IF found_text IS NOT NULL THEN
			RAISE EXCEPTION USING
				ERRCODE = 'invalid_parameter_value',
				MESSAGE = format('%s of lock "%s" in table %s is too far ahead', columns[2], found_text, old_table),
				DETAIL = format('It is %s; the setting shedlock.max_lock_at_most_for allows %s.', found_at, current_setting('shedlock.max_lock_at_most_for')),
				HINT = 'Wait until its service has released the lock; a row that no service uses can be deleted.';
		END IF;
	END IF;

	EXECUTE format('SELECT o.%1$I, o.%2$I FROM ONLY %3$s o WHERE isfinite(o.%2$I) ORDER BY 2 DESC LIMIT 1',
				   columns[1], columns[3], old_table) INTO found_text, found_at;
	hours := round((extract(epoch FROM utc - found_at) / 3600)::numeric);
	IF check_clock AND hours BETWEEN 1 AND 14 AND
	   abs(extract(epoch FROM utc - found_at) - hours * 3600) <= 120
	THEN
		RAISE EXCEPTION USING
			ERRCODE = 'datetime_field_overflow',
			MESSAGE = format('the most recent %s in table %s looks like local time', columns[3], old_table),
			DETAIL = format('Lock "%s" has %s, which is about %s hours behind the current time in UTC.', found_text, found_at, hours),
			HINT = 'Let all services use usingDbTime() or forceUtcTimeZone(). If they do, that lock was taken so many hours ago by chance: check_clock => false.';
	END IF;

	EXECUTE format('SELECT string_agg(format(''"%%s"'', o.%1$I), '', '' ORDER BY o.%1$I COLLATE "C") FROM ONLY %3$s o WHERE o.%2$I > $1 AND o.%1$I = ANY ($2)',
				   columns[1], columns[2], old_table) INTO found_text USING utc, held;
	IF found_text IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'object_in_use',
			MESSAGE = format('locks are held in both tables: %s', found_text),
			DETAIL = format('They cannot have two holders each in %s.', ours),
			HINT = 'Try again when one holder is done, or use another name in one of the services.';
	END IF;
	EXECUTE format('SELECT string_agg(format(''"%%s"'', o.%1$I), '', '' ORDER BY o.%1$I COLLATE "C") FROM ONLY %2$s o JOIN %3$s s ON s.name = o.%1$I COLLATE "C"',
				   columns[1], old_table, ours) INTO found_text;
	IF found_text IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = format('locks of the same name are one lock from now on: %s', found_text),
			DETAIL = format('They are in %s and in %s.', old_table, ours),
			HINT = 'If different services use the same name for different work, roll back, and rename one of them.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_check(regclass, name[], boolean, text, text[], regclass) IS
'Raises an error if this table of ShedLock''s cannot be taken over';

-- Grants that others gave on have to be given by the same roles, or their
-- REVOKE would miss them.  A role that may not become one of them leaves such
-- grants to the owner.
CREATE FUNCTION _shedlock_adopt_grants(old_table regclass, new_view regclass, columns name[])
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	caller CONSTANT text := current_setting('role');
	may_set_role CONSTANT boolean := current_user = CASE caller WHEN 'none' THEN session_user ELSE caller::name END;
	relation CONSTANT text := new_view::text;
	view_owner oid;
	view_schema oid;
	missing bigint;
	last_missing bigint;
	as_grantor boolean;
	g record;
BEGIN
	SELECT c.relowner, c.relnamespace INTO view_owner, view_schema FROM pg_class c WHERE c.oid = new_view;

	-- what default privileges gave, or the owner has given away
	FOR g IN
		SELECT DISTINCT x.grantee
		FROM pg_class c, aclexplode(c.relacl) x
		WHERE c.oid = new_view AND x.grantee <> view_owner
		UNION
		SELECT c.relowner FROM pg_class c WHERE c.oid = old_table AND c.relacl IS NOT NULL
	LOOP
		EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', relation,
					   CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END);
	END LOOP;

	LOOP
		missing := 0;
		FOR g IN
			WITH acl AS (
				SELECT c.oid AS relid, NULL::name AS column_name, x.*
				FROM pg_class c, aclexplode(c.relacl) x
				UNION ALL
				SELECT a.attrelid, a.attname, x.*
				FROM pg_attribute a, aclexplode(a.attacl) x
				WHERE NOT a.attisdropped)
			SELECT column_name, grantor, grantee, privilege_type, is_grantable
			FROM acl WHERE relid = old_table AND (column_name IS NULL OR column_name = ANY (columns))
			EXCEPT
			SELECT column_name, grantor, grantee, privilege_type, is_grantable
			FROM acl WHERE relid = new_view
		LOOP
			missing := missing + 1;
			as_grantor := g.grantor <> view_owner AND may_set_role AND
				pg_has_role(session_user, g.grantor, 'MEMBER') AND
				has_schema_privilege(g.grantor, view_schema, 'USAGE');

			-- its own grant option may come with one of the next
			CONTINUE WHEN as_grantor AND NOT CASE
				WHEN g.column_name IS NULL THEN has_table_privilege(g.grantor, new_view, g.privilege_type || ' WITH GRANT OPTION')
				ELSE has_column_privilege(g.grantor, new_view, g.column_name, g.privilege_type || ' WITH GRANT OPTION') END;

			IF as_grantor THEN
				PERFORM set_config('role', pg_get_userbyid(g.grantor), true);
			END IF;
			EXECUTE format('GRANT %s%s ON %s TO %s%s', g.privilege_type, ' (' || quote_ident(g.column_name) || ')', relation,
						   CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
						   CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
			IF as_grantor THEN
				PERFORM set_config('role', caller, true);
			END IF;
		END LOOP;

		-- with less each time, or no more to be had
		EXIT WHEN missing = 0 OR missing >= last_missing;
		last_missing := missing;
	END LOOP;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_grants(regclass, regclass, name[]) IS
'Gives a view the privileges of the table whose place it takes';

-- Locks both tables for shedlock_adopt, after it has seen that they can be, and
-- that the caller may do what follows.
CREATE FUNCTION _shedlock_adopt_lock(old_table regclass, columns name[], ours regclass, tokens regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- Our columns are for the extension alone.
	needed CONSTANT text := 'SELECT, INSERT (name, lock_until, locked_at, locked_by), UPDATE (name, lock_until, locked_at, locked_by)';
	relation text;
	r record;
	owner_name text;
BEGIN
	-- A schema is renamed under no lock but ROW EXCLUSIVE on pg_namespace, by the
	-- role that owns it.  What is named for a superuser from here to the end of
	-- the transaction stays what it is.
	IF (SELECT a.rolsuper FROM pg_roles a WHERE a.rolname = current_user) THEN
		LOCK TABLE pg_catalog.pg_namespace IN SHARE MODE;
	END IF;
	relation := old_table::text;

	IF old_table IS NULL OR array_position(columns, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'table and columns must not be null';
	ELSIF (SELECT count(DISTINCT c) FROM unnest(columns) c) < 4 THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'the four columns must be different ones';
	ELSIF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		-- It would read what was there before the clients were made to wait.
		RAISE EXCEPTION USING
			ERRCODE = 'feature_not_supported',
			MESSAGE = format('shedlock_adopt cannot run at isolation level %s', current_setting('transaction_isolation')),
			DETAIL = 'It would not see the locks that were taken last.',
			HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED;';
	END IF;

	SELECT c.relname, c.relkind, c.relowner, c.relnamespace, c.relpersistence, n.nspname INTO r
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.oid = old_table;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = format('table %s does not exist', relation);
	ELSIF old_table = ours THEN
		RAISE EXCEPTION USING
			ERRCODE = 'wrong_object_type',
			MESSAGE = format('table %s is that of the extension', relation),
			DETAIL = 'ShedLock''s clients can work on it as it is.',
			HINT = 'Give the table that your services have used so far.';
	ELSIF r.relkind <> 'r' OR r.relpersistence = 't' THEN
		RAISE EXCEPTION USING
			ERRCODE = 'wrong_object_type',
			MESSAGE = format('%s is not an ordinary table', relation),
			DETAIL = CASE
				WHEN EXISTS (SELECT FROM pg_rewrite w JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
							 WHERE w.ev_class = old_table AND d.refclassid = 'pg_class'::regclass AND d.refobjid = ours)
				THEN format('It is a view on %s, where the locks are already.', ours)
				ELSE format('It is a %s.', CASE r.relkind
					WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'p' THEN 'partitioned table'
					WHEN 'f' THEN 'foreign table' WHEN 'S' THEN 'sequence' WHEN 'r' THEN 'temporary table'
					ELSE 'relation of another kind' END) END,
			HINT = 'Give the table that has the rows; copy them to an ordinary table first if there is none.';
	ELSIF NOT pg_has_role(r.relowner, 'USAGE') THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('must be owner of table %s', relation),
			DETAIL = format('It belongs to role "%s".', pg_get_userbyid(r.relowner)),
			HINT = 'Have its owner, or a superuser, call shedlock_adopt.';
	END IF;

	-- The view reaches the locks with the rights of its owner.
	owner_name := quote_ident(pg_get_userbyid(r.relowner));
	IF NOT pg_has_role((SELECT c.relowner FROM pg_class c WHERE c.oid = ours), 'USAGE') AND
	   NOT (has_table_privilege(r.relowner, ours, 'SELECT') AND
			(SELECT bool_and(has_column_privilege(r.relowner, ours, c, p))
			 FROM unnest('{name,lock_until,locked_at,locked_by}'::text[]) c, unnest('{INSERT,UPDATE}'::text[]) p))
	THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('role %s may not write to table %s', owner_name, ours),
			DETAIL = 'It will own the view that takes the place of the old table.',
			HINT = format('An administrator can GRANT %s ON %s TO %s.', needed, ours, owner_name);
	END IF;
	IF NOT (SELECT bool_and(has_table_privilege(ours, p)) FROM unnest('{SELECT,INSERT,UPDATE}'::text[]) p) THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('role %I may not write to all columns of table %s', current_user, ours),
			DETAIL = 'Each lock that is taken over gets a token.',
			HINT = format('An administrator can call shedlock_adopt, or GRANT SELECT, INSERT, UPDATE ON %s TO %I for as long as it takes.', ours, current_user);
	END IF;
	IF NOT has_sequence_privilege(tokens, 'USAGE') THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('role %I may not draw tokens', current_user),
			DETAIL = 'Each lock that is taken over gets a token.',
			HINT = format('An administrator can GRANT USAGE ON SEQUENCE %s TO %I.',
						  tokens, current_user);
	END IF;

	BEGIN
		EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', relation);
	EXCEPTION WHEN insufficient_privilege THEN
		-- Somebody else moved it while we waited: the name is that of a view now,
		-- whose owner may not lock what is behind it.
		IF old_table::text = relation THEN
			RAISE;
		END IF;
	END;
	EXECUTE format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', ours);
	IF old_table::text <> relation THEN
		RAISE EXCEPTION USING
			ERRCODE = 'object_in_use',
			MESSAGE = format('table %s was renamed or dropped meanwhile', relation),
			HINT = 'Look whether somebody else has moved it.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_lock(regclass, name[], regclass, regclass) IS
'Raises an error if this table cannot be taken over by the caller, and locks it and ours';

CREATE FUNCTION _shedlock_adopt_move(
	old_table regclass,
	columns name[],
	held text[],
	ours regclass,
	tokens regclass,
	OUT rows bigint,
	OUT new_view regclass)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
-- else CHECK constraints, too, are computed when a query is planned
SET constraint_exclusion = off
AS $$
#variable_conflict use_variable
DECLARE
	relation CONSTANT text := old_table::text;
	needed CONSTANT text := 'SELECT, INSERT (name, lock_until, locked_at, locked_by), UPDATE (name, lock_until, locked_at, locked_by)';
	r record;
	owner_name text;
	new_name name;
	view_columns text;
	utc timestamp;
BEGIN
	SELECT c.relname, c.relowner, c.relnamespace, n.nspname INTO r
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.oid = old_table;
	owner_name := quote_ident(pg_get_userbyid(r.relowner));
	new_name := r.relname;
	WHILE octet_length(new_name || '_before_shedlock') > 63 LOOP
		new_name := left(new_name::text, -1);
	END LOOP;
	new_name := new_name || '_before_shedlock';
	IF EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = r.relnamespace AND c.relname = new_name) OR
	   EXISTS (SELECT FROM pg_type t WHERE t.typnamespace = r.relnamespace AND t.typname = new_name)
	THEN
		RAISE EXCEPTION USING
			ERRCODE = 'duplicate_table',
			MESSAGE = format('relation "%s" already exists', new_name),
			DETAIL = format('Table %s would be given that name.', relation),
			HINT = format('Rename or drop %I.%I first.', r.nspname, new_name);
	END IF;

	utc := timezone('UTC', clock_timestamp());
	-- A write that sets the token is left alone by the trigger.  Who took the locks
	-- is not known: their tokens are for the owner of the table that they were in.
	EXECUTE format($q$
		INSERT INTO %6$s AS s (name, lock_until, locked_at, locked_by, token, locked_role)
		SELECT o.%1$I, o.%2$I, o.%3$I, o.%4$I, nextval($4), $3
		FROM (SELECT * FROM ONLY %5$s ORDER BY %3$I, %1$I) o
		ON CONFLICT (name) DO UPDATE
		SET lock_until = EXCLUDED.lock_until, locked_at = EXCLUDED.locked_at, locked_by = EXCLUDED.locked_by,
			token = EXCLUDED.token, kind = 'lease', locked_role = EXCLUDED.locked_role, keep_until = NULL,
			lock_at_most_for = NULL, pid = NULL, backend_start = NULL, timeline = NULL
		WHERE s.name <> ALL ($1) AND (EXCLUDED.lock_until > $2 OR EXCLUDED.lock_until > s.lock_until)$q$,
		columns[1], columns[2], columns[3], columns[4], relation, ours)
		USING held, utc, r.relowner, tokens;
	GET DIAGNOSTICS rows = ROW_COUNT;

	IF NOT (has_table_privilege(r.relowner, ours, 'SELECT') AND
			(SELECT bool_and(has_column_privilege(r.relowner, ours, c, p))
			 FROM unnest('{name,lock_until,locked_at,locked_by}'::text[]) c, unnest('{INSERT,UPDATE}'::text[]) p))
	THEN
		EXECUTE format('GRANT %s ON %s TO %s', needed, ours, owner_name);
	END IF;
	EXECUTE format('ALTER TABLE %s RENAME TO %I', relation, new_name);
	SELECT string_agg(format('s.%I AS %I', ('{name,lock_until,locked_at,locked_by}'::name[])[array_position(columns, a.attname)],
							 a.attname), ', ' ORDER BY a.attnum)
	INTO view_columns
	FROM pg_attribute a
	WHERE a.attrelid = old_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = ANY (columns);
	EXECUTE format('CREATE VIEW %s AS SELECT %s FROM %s s', relation, view_columns, ours);
	EXECUTE format('COMMENT ON VIEW %s IS %L', relation,
				   format('The locks in %s, for ShedLock''s clients; %I was here before', ours, new_name));
	IF r.relowner <> (SELECT c.relowner FROM pg_class c WHERE c.oid = relation::regclass) THEN
		EXECUTE format('ALTER VIEW %s OWNER TO %s', relation, owner_name);
	END IF;
	new_view := relation;
	RAISE LOG USING MESSAGE = format('table %s taken over by role "%s"', relation, current_user);
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_move(regclass, name[], text[], regclass, regclass) IS
'Copies the locks of a table into ours, renames it, and makes the view in its place';

-- While both tables are locked, clients wait at the first one's name.  When it
-- comes free, the server looks that name up again, for statements that are
-- prepared as well, and finds the view.
CREATE FUNCTION shedlock_adopt(
	old_table regclass,
	name_column name DEFAULT 'name',
	lock_until_column name DEFAULT 'lock_until',
	locked_at_column name DEFAULT 'locked_at',
	locked_by_column name DEFAULT 'locked_by',
	check_clock boolean DEFAULT true)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT _shedlock_adopt_lock($1, ARRAY[$2, $3, $4, $5], 'shedlock'::regclass, 'shedlock_token_seq'::regclass);
	SELECT _shedlock_adopt_check($1, ARRAY[$2, $3, $4, $5], $6, _shedlock_adopt_dependents($1),
		ARRAY(SELECT s.name FROM _shedlock_status() s WHERE s.state OPERATOR(pg_catalog.<>) 'paused'),
		'shedlock'::regclass);
	SELECT m.rows
	FROM _shedlock_adopt_move($1, ARRAY[$2, $3, $4, $5],
			ARRAY(SELECT s.name FROM _shedlock_status() s WHERE s.state OPERATOR(pg_catalog.<>) 'paused'),
			'shedlock'::regclass, 'shedlock_token_seq'::regclass) m
		 CROSS JOIN LATERAL _shedlock_adopt_grants($1, m.new_view, ARRAY[$2, $3, $4, $5]) g;
END;

COMMENT ON FUNCTION shedlock_adopt(regclass, name, name, name, name, boolean) IS
'Takes over the locks of a table of ShedLock''s, and puts a view in its place; gives their number';
