/* ShedLock's Java clients: the trigger on their writes, and the adoption of their table */

CREATE FUNCTION _shedlock_row_trigger()
RETURNS trigger LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_row_trigger() IS
'Makes writes by ShedLock''s clients, or by hand, obey the locking protocol';

CREATE TRIGGER shedlock_row
	BEFORE INSERT OR UPDATE OR DELETE ON shedlock
	FOR EACH ROW EXECUTE FUNCTION _shedlock_row_trigger();

COMMENT ON TRIGGER shedlock_row ON shedlock IS
'Makes writes by ShedLock''s clients, or by hand, obey the locking protocol';

-- Objects that depend on the old table would refer to it after it is renamed, and
-- see no lock any more.
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
		  -- the table's own constraints and indexes
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
'Returns the objects that would be lost if another relation replaced the table; NULL if there are none';

-- Returns the name of the table.
CREATE FUNCTION _shedlock_adopt_table(old_table regclass, columns name[], lock_table regclass)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	relation text;
	r record;
BEGIN
	-- The owner of a schema renames it under no lock but ROW EXCLUSIVE on
	-- pg_namespace.  For a superuser, names mean the same from here to the end of
	-- the transaction.
	IF (SELECT a.rolsuper FROM pg_roles a WHERE a.rolname = current_user) THEN
		LOCK TABLE pg_catalog.pg_namespace IN SHARE MODE;
	END IF;
	relation := old_table::text;

	IF old_table IS NULL OR array_position(columns, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'table and columns must not be null';
	ELSIF (SELECT count(DISTINCT c) FROM unnest(columns) c) < 4 THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'the four columns must be different';
	ELSIF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		-- Its snapshot would be older than the table lock that makes the clients wait.
		RAISE EXCEPTION USING
			ERRCODE = 'feature_not_supported',
			MESSAGE = format('shedlock_adopt cannot run at isolation level %s', current_setting('transaction_isolation')),
			DETAIL = 'It would not see the locks that were acquired last.',
			HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED;';
	END IF;

	SELECT c.relkind, c.relowner, c.relpersistence INTO r FROM pg_class c WHERE c.oid = old_table;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = format('table %s does not exist', relation);
	ELSIF old_table = lock_table THEN
		RAISE EXCEPTION USING
			ERRCODE = 'wrong_object_type',
			MESSAGE = format('table %s belongs to the extension', relation),
			DETAIL = 'ShedLock''s clients can use it as it is.',
			HINT = 'Pass the table that your services have used so far.';
	ELSIF r.relkind <> 'r' OR r.relpersistence = 't' THEN
		RAISE EXCEPTION USING
			ERRCODE = 'wrong_object_type',
			MESSAGE = format('%s is not an ordinary table', relation),
			DETAIL = CASE
				WHEN EXISTS (SELECT FROM pg_rewrite w JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
							 WHERE w.ev_class = old_table AND d.refclassid = 'pg_class'::regclass AND d.refobjid = lock_table)
				THEN format('It is a view on %s, which already has the locks.', lock_table)
				ELSE format('It is a %s.', CASE r.relkind
					WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'p' THEN 'partitioned table'
					WHEN 'f' THEN 'foreign table' WHEN 'S' THEN 'sequence' WHEN 'r' THEN 'temporary table'
					ELSE 'relation of another kind' END) END,
			HINT = 'Pass the table that stores the rows; if there is none, copy the rows to an ordinary table first.';
	ELSIF NOT pg_has_role(r.relowner, 'USAGE') THEN
		RAISE EXCEPTION USING
			ERRCODE = 'insufficient_privilege',
			MESSAGE = format('must be owner of table %s', relation),
			DETAIL = format('It belongs to role "%s".', pg_get_userbyid(r.relowner)),
			HINT = 'The owner or a superuser can call shedlock_adopt.';
	END IF;
	RETURN relation;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_table(regclass, name[], regclass) IS
'Raises an error unless this is an ordinary table of the caller''s; returns its name';

-- relation: the name of old_table before this waits for a lock
CREATE FUNCTION _shedlock_adopt_lock(old_table regclass, relation text, lock_table regclass, tokens regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	owner oid;
	grants text;
	granted boolean;
BEGIN
	-- The owner of the table and the privileges can change while this waits, so they are
	-- looked at again with both tables locked.
	FOR look IN 1..2 LOOP
		owner := (SELECT c.relowner FROM pg_class c WHERE c.oid = old_table);
		-- The view reaches the locks with the privileges of its owner, and writes
		-- ShedLock's four columns alone.
		grants := format('GRANT SELECT, INSERT (%1$s), UPDATE (%1$s) ON %2$s TO %3$I',
			'name, lock_until, locked_at, locked_by', lock_table, pg_get_userbyid(owner));
		granted := has_table_privilege(owner, lock_table, 'SELECT') AND (
			SELECT bool_and(has_column_privilege(owner, lock_table, c, p))
			FROM unnest('{name,lock_until,locked_at,locked_by}'::text[]) c, unnest('{INSERT,UPDATE}'::text[]) p);
		IF NOT granted AND NOT pg_has_role((SELECT c.relowner FROM pg_class c WHERE c.oid = lock_table), 'USAGE') THEN
			RAISE EXCEPTION USING
				ERRCODE = 'insufficient_privilege',
				MESSAGE = format('role %I cannot write to table %s', pg_get_userbyid(owner), lock_table),
				DETAIL = 'It will own the view that replaces the old table.',
				HINT = format('An administrator can %s.', grants);
		ELSIF NOT (SELECT bool_and(has_table_privilege(lock_table, p)) FROM unnest('{SELECT,INSERT,UPDATE}'::text[]) p) THEN
			RAISE EXCEPTION USING
				ERRCODE = 'insufficient_privilege',
				MESSAGE = format('role %I cannot write to all columns of table %s', current_user, lock_table),
				DETAIL = 'Each adopted lock gets a token.',
				HINT = format('An administrator can call shedlock_adopt, or GRANT SELECT, INSERT, UPDATE ON %s TO %I until the table is adopted.', lock_table, current_user);
		ELSIF NOT has_sequence_privilege(tokens, 'USAGE') THEN
			RAISE EXCEPTION USING
				ERRCODE = 'insufficient_privilege',
				MESSAGE = format('role %I cannot draw tokens', current_user),
				DETAIL = 'Each adopted lock gets a token.',
				HINT = format('An administrator can GRANT USAGE ON SEQUENCE %s TO %I.', tokens, current_user);
		END IF;
		EXIT WHEN look = 2;

		BEGIN
			EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', relation);
		EXCEPTION WHEN insufficient_privilege THEN
			-- Another session adopted the table while this one waited: the name is now
			-- that of a view, whose owner cannot lock the table behind it.
			IF old_table::text = relation THEN
				RAISE;
			END IF;
		END;
		EXECUTE format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', lock_table);
		IF old_table::text <> relation THEN
			RAISE EXCEPTION USING
				ERRCODE = 'object_in_use',
				MESSAGE = format('table %s was renamed or dropped concurrently', relation),
				HINT = 'Check whether another session has adopted it.';
		END IF;
	END LOOP;
	IF NOT granted THEN
		EXECUTE grants;
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_lock(regclass, text, regclass, regclass) IS
'Locks both tables; raises an error if a privilege for the adoption is missing';

-- What follows is called with both tables locked, so that neither changes.
CREATE FUNCTION _shedlock_adopt_check_columns(old_table regclass, columns name[])
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	documented CONSTANT name[] := '{name,lock_until,locked_at,locked_by}';
	a record;
	unfilled text;
BEGIN
	FOR i IN 1..4 LOOP
		SELECT t.attnum, t.atttypid, c.collisdeterministic AS deterministic INTO a
		FROM pg_attribute t LEFT JOIN pg_collation c ON c.oid = t.attcollation
		WHERE t.attrelid = old_table AND t.attname = columns[i] AND t.attnum > 0 AND NOT t.attisdropped;
		IF NOT FOUND THEN
			RAISE EXCEPTION USING
				ERRCODE = 'undefined_column',
				MESSAGE = format('column "%s" of table %s does not exist', columns[i], old_table),
				DETAIL = 'A ShedLock table has the columns name, lock_until, locked_at and locked_by.',
				HINT = format('If the column has another name, pass %s_column => ''...''.', documented[i]);
		ELSIF a.atttypid = 'timestamptz'::regtype AND i IN (2, 3) THEN
			RAISE EXCEPTION USING
				ERRCODE = 'datatype_mismatch',
				MESSAGE = format('column "%s" of table %s is of type timestamp with time zone', columns[i], old_table),
				DETAIL = 'ShedLock''s usingDbTime() writes correct times into it only in sessions whose time zone is UTC.',
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
				DETAIL = 'Names that this collation calls equal would become different locks.',
				HINT = 'Change its collation with ALTER TABLE first.';
		ELSIF i = 1 AND NOT EXISTS (
			SELECT FROM pg_index x
			WHERE x.indrelid = old_table AND x.indisunique AND x.indisvalid AND x.indimmediate AND
				  x.indpred IS NULL AND x.indnkeyatts = 1 AND x.indkey[0] = a.attnum)
		THEN
			RAISE EXCEPTION USING
				ERRCODE = 'invalid_column_reference',
				MESSAGE = format('column "%s" of table %s is not unique', columns[i], old_table),
				DETAIL = 'ShedLock needs a primary key or unique index on this column alone that is not deferrable.',
				HINT = format('ALTER TABLE %s ADD PRIMARY KEY (%I);', old_table, columns[i]);
		END IF;
	END LOOP;

	SELECT string_agg(format('"%s"', t.attname), ', ' ORDER BY t.attnum) INTO unfilled
	FROM pg_attribute t
	WHERE t.attrelid = old_table AND t.attnum > 0 AND NOT t.attisdropped AND t.attname <> ALL (columns) AND
		  t.attnotnull AND NOT t.atthasdef AND t.attidentity = '';
	IF unfilled IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'feature_not_supported',
			MESSAGE = format('table %s has columns that ShedLock cannot fill', old_table),
			DETAIL = format('These are NOT NULL and have no default: %s.  Another program must be writing to the table.', unfilled),
			HINT = 'If these columns are not needed, drop them or their NOT NULL constraints first.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_check_columns(regclass, name[]) IS
'Raises an error unless the table has the columns of a ShedLock table';

CREATE FUNCTION _shedlock_adopt_check_objects(old_table regclass, columns name[], dependents text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	expressions text;
	more text;
BEGIN
	IF dependents IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'dependent_objects_still_exist',
			MESSAGE = format('cannot adopt table %s because other objects depend on it', old_table),
			DETAIL = format('They would stay with the old table, where no lock is acquired any more: %s.', dependents),
			HINT = 'Drop them first, in the same transaction; after the adoption, create those again that can refer to a view.';
	END IF;

	-- The planner evaluates constant parts of these, with the privileges of the role
	-- that plans a query.  Their functions are those of the table's owner.
	SELECT string_agg(o.description COLLATE "C", ', ' ORDER BY o.description COLLATE "C") INTO expressions
	FROM (
		SELECT pg_describe_object('pg_class'::regclass, x.indexrelid, 0)
		FROM pg_index x WHERE x.indrelid = old_table AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL)
		UNION ALL
		SELECT pg_describe_object('pg_statistic_ext'::regclass, x.oid, 0)
		FROM pg_statistic_ext x WHERE x.stxrelid = old_table AND x.stxexprs IS NOT NULL) o(description);
	IF expressions IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'feature_not_supported',
			MESSAGE = format('cannot adopt table %s because it has expressions in indexes or statistics', old_table),
			DETAIL = format('They would be evaluated with the privileges of the role that adopts the table: %s.', expressions),
			HINT = 'Drop them first, in the same transaction: ShedLock does not use them.';
	END IF;

	SELECT string_agg(format('"%s"', t.attname), ', ' ORDER BY t.attnum) INTO more
	FROM pg_attribute t
	WHERE t.attrelid = old_table AND t.attnum > 0 AND NOT t.attisdropped AND t.attname <> ALL (columns);
	IF more IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = format('columns of table %s are not in the view: %s', old_table, more),
			DETAIL = 'ShedLock does not use them; they stay in the renamed table.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_check_objects(regclass, name[], text) IS
'Raises an error if objects depend on the table, or if reading it would run functions of its owner';

CREATE FUNCTION _shedlock_shown(str text)
RETURNS text LANGUAGE C IMMUTABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';

COMMENT ON FUNCTION _shedlock_shown(text) IS
'Returns a text of another table as messages show it, without control and invisible characters';

-- shown: _shedlock_shown
CREATE FUNCTION _shedlock_adopt_check_rows(old_table regclass, columns name[], shown regproc)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
-- otherwise the planner evaluates CHECK constraints, too
SET constraint_exclusion = off
AS $$
DECLARE
	lock_name text;
BEGIN
	-- First, because the messages below, and those of later checks, have names as they are.
	EXECUTE format('SELECT left(%2$s(o.%1$I::text), 60) FROM ONLY %3$s o WHERE %2$s(o.%1$I::text) <> o.%1$I::text LIMIT 1',
				   columns[1], shown, old_table) INTO lock_name;
	IF lock_name IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'invalid_parameter_value',
			MESSAGE = format('table %s has a lock name with control or invisible characters', old_table),
			DETAIL = format('It is "%s", which has a question mark for each byte of these.', lock_name),
			HINT = 'Delete that row if no service uses it, or make the service use another name.';
	END IF;

	EXECUTE format('SELECT quote_nullable(o.%1$I) FROM ONLY %5$s o WHERE o.%1$I IS NULL OR o.%2$I IS NULL OR o.%3$I IS NULL OR o.%4$I IS NULL LIMIT 1',
				   columns[1], columns[2], columns[3], columns[4], old_table) INTO lock_name;
	IF lock_name IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'not_null_violation',
			MESSAGE = format('table %s has a row with a null in one of ShedLock''s columns', old_table),
			DETAIL = format('It is the row of lock %s.', lock_name),
			HINT = 'ShedLock never writes nulls: correct or delete that row first.';
	END IF;

	EXECUTE format('SELECT o.%1$I FROM ONLY %3$s o WHERE char_length(o.%1$I) NOT BETWEEN 1 AND 255 OR char_length(o.%2$I) > 255 LIMIT 1',
				   columns[1], columns[4], old_table) INTO lock_name;
	IF lock_name IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = CASE lock_name WHEN '' THEN 'invalid_parameter_value' ELSE 'string_data_right_truncation' END,
			MESSAGE = format('table %s has a row with an empty name, or a text that is too long', old_table),
			DETAIL = format('It is the row of lock "%s"; %s and %s can have at most 255 characters.',
							left(lock_name, 60) || CASE WHEN char_length(lock_name) > 60 THEN '...' ELSE '' END,
							columns[1], columns[4]),
			HINT = 'Delete that row if no service uses it, or make the service write a shorter text.';
	END IF;

	-- A superuser can use all names, so a table that only superusers write to has no
	-- wrong ones.  The owner of a table decides who writes to it, and gets the tokens.
	IF NOT coalesce(current_setting('shedlock.role_prefix', true)::boolean, false) THEN
		RETURN;
	END IF;
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
		LIMIT 1$query$, columns[1], old_table) INTO lock_name USING old_table;
	IF lock_name IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'invalid_parameter_value',
			MESSAGE = format('no service could use lock "%s" of table %s any more', lock_name, old_table),
			DETAIL = 'With shedlock.role_prefix on, a name begins with a role and a colon.  The owner of the table does not have the privileges of such a role; if the owner is a superuser, no role that can update the table has them.',
			HINT = 'Make the services use other names first, as in "app:job"; a row that no service uses can be deleted.  If the services are trusted with each other''s names, ALTER TABLE ... OWNER TO a superuser first.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_check_rows(regclass, name[], regproc) IS
'Raises an error if the table has a row that cannot become a lock';

-- Clients whose wall clock is not UTC are recognized by what they wrote.
CREATE FUNCTION _shedlock_adopt_check_times(old_table regclass, columns name[], check_clock boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET constraint_exclusion = off
AS $$
DECLARE
	-- $1 limits the times, $2 tells if infinite ones count
	latest CONSTANT text := 'SELECT o.%1$I, o.%2$I FROM ONLY %3$s o WHERE o.%2$I > $1 AND ($2 OR isfinite(o.%2$I)) ORDER BY 2 DESC LIMIT 1';
	tolerance CONSTANT interval := coalesce(current_setting('shedlock.foreign_clock_tolerance', true), '10min');
	cap CONSTANT interval := coalesce(current_setting('shedlock.max_lock_at_most_for', true), '0');
	utc CONSTANT timestamp := timezone('UTC', clock_timestamp());
	lock_name text;
	at timestamp;
	hours numeric;
BEGIN
	EXECUTE format(latest, columns[1], columns[3], old_table) INTO lock_name, at USING utc + tolerance, true;
	IF lock_name IS NOT NULL THEN
		hours := CASE WHEN isfinite(at) THEN round((extract(epoch FROM at - utc) / 3600)::numeric, 1) END;
		RAISE EXCEPTION USING
			ERRCODE = 'datetime_field_overflow',
			MESSAGE = format('%s of lock "%s" in table %s is ahead of the current time in UTC', columns[3], lock_name, old_table),
			DETAIL = format('It is %s, about %s ahead: a client wrote its local time, or has a wrong clock.',
							at, coalesce(trim_scale(hours) || ' hours', 'an infinite time')),
			HINT = 'Make all services use usingDbTime() or forceUtcTimeZone() first.  A row that no service uses can be deleted.';
	END IF;

	IF cap > '0' THEN
		EXECUTE format(latest, columns[1], columns[2], old_table) INTO lock_name, at USING utc + cap + tolerance, true;
		IF lock_name IS NOT NULL THEN
			RAISE EXCEPTION USING
				ERRCODE = 'invalid_parameter_value',
				MESSAGE = format('%s of lock "%s" in table %s is too far ahead', columns[2], lock_name, old_table),
				DETAIL = format('It is %s; the setting shedlock.max_lock_at_most_for allows %s.', at, current_setting('shedlock.max_lock_at_most_for')),
				HINT = 'Wait until the service has released the lock.  A row that no service uses can be deleted.';
		END IF;
	END IF;

	EXECUTE format(latest, columns[1], columns[3], old_table) INTO lock_name, at USING '-infinity'::timestamp, false;
	hours := round((extract(epoch FROM utc - at) / 3600)::numeric);
	IF check_clock AND hours BETWEEN 1 AND 14 AND abs(extract(epoch FROM utc - at) - hours * 3600) <= 120 THEN
		RAISE EXCEPTION USING
			ERRCODE = 'datetime_field_overflow',
			MESSAGE = format('the most recent %s in table %s looks like local time', columns[3], old_table),
			DETAIL = format('Lock "%s" has %s, which is about %s hours behind the current time in UTC.', lock_name, at, hours),
			HINT = 'Make all services use usingDbTime() or forceUtcTimeZone().  If they do, the lock was acquired that many hours ago by chance: pass check_clock => false.';
	END IF;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_check_times(regclass, name[], boolean) IS
'Raises an error if a time in the table does not look like UTC, or exceeds shedlock.max_lock_at_most_for';

-- held: names of locks in lock_table
CREATE FUNCTION _shedlock_adopt_check_names(old_table regclass, columns name[], held text[], lock_table regclass)
RETURNS text[]
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET constraint_exclusion = off
AS $$
DECLARE
	live text;
	common text;
BEGIN
	EXECUTE format($query$
		SELECT string_agg(format('"%%s"', o.%1$I), ', ' ORDER BY o.%1$I COLLATE "C")
			   FILTER (WHERE o.%2$I > timezone('UTC', clock_timestamp()) AND o.%1$I = ANY ($1)),
			   string_agg(format('"%%s"', o.%1$I), ', ' ORDER BY o.%1$I COLLATE "C") FILTER (WHERE s.name IS NOT NULL)
		FROM ONLY %3$s o LEFT JOIN %4$s s ON s.name = o.%1$I COLLATE "C"$query$,
		columns[1], columns[2], old_table, lock_table) INTO live, common USING held;
	IF live IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'object_in_use',
			MESSAGE = format('locks are held in both tables: %s', live),
			DETAIL = format('A lock cannot have two holders in %s.', lock_table),
			HINT = 'Try again after one holder has released the lock, or use another name in one of the services.';
	ELSIF common IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = format('locks with the same name become one lock: %s', common),
			DETAIL = format('They are in both %s and %s.', old_table, lock_table),
			HINT = 'If services use the same name for different work, roll back and rename one of the locks.';
	END IF;
	RETURN held;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_check_names(regclass, name[], text[], regclass) IS
'Returns the names of the held locks; raises an error if one of them is held in the other table, too';

-- A grant must have the same grantor as on the table, or the grantor's REVOKE
-- would miss it.  A caller that cannot become the grantor leaves such grants to the
-- owner.
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

	-- granted by default privileges, or revoked from the owner
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

			-- its grant option may be among those that are still missing
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

		-- as long as each round finds fewer
		EXIT WHEN missing = 0 OR missing >= last_missing;
		last_missing := missing;
	END LOOP;
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_grants(regclass, regclass, name[]) IS
'Grants the privileges on the table on the view that replaces it';

CREATE FUNCTION _shedlock_adopt_move(
	old_table regclass,
	columns name[],
	held text[],
	lock_table regclass,
	tokens regclass,
	OUT rows bigint,
	OUT new_view regclass)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET constraint_exclusion = off
AS $$
DECLARE
	relation CONSTANT text := old_table::text;
	suffix CONSTANT text := '_before_shedlock';
	r record;
	new_name name;
	view_columns text;
BEGIN
	SELECT c.relname, c.relowner, c.relnamespace, n.nspname INTO r
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.oid = old_table;
	new_name := r.relname;
	WHILE octet_length(new_name || suffix) > 63 LOOP
		new_name := left(new_name::text, -1);
	END LOOP;
	new_name := new_name || suffix;
	IF EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = r.relnamespace AND c.relname = new_name) OR
	   EXISTS (SELECT FROM pg_type t WHERE t.typnamespace = r.relnamespace AND t.typname = new_name)
	THEN
		RAISE EXCEPTION USING
			ERRCODE = 'duplicate_table',
			MESSAGE = format('relation "%s" already exists', new_name),
			DETAIL = format('Table %s would get that name.', relation),
			HINT = format('Rename or drop %I.%I first.', r.nspname, new_name);
	END IF;

	-- The trigger passes writes that set the token.  The roles that acquired these
	-- locks are not known: each service may unlock and extend those of its host name, as
	-- before, and only superusers may use their tokens.
	EXECUTE format($q$
		INSERT INTO %6$s AS s (name, lock_until, locked_at, locked_by, token)
		SELECT o.%1$I, o.%2$I, o.%3$I, o.%4$I, nextval($3)
		FROM (SELECT * FROM ONLY %5$s ORDER BY %3$I, %1$I) o
		ON CONFLICT (name) DO UPDATE
		SET lock_until = EXCLUDED.lock_until, locked_at = EXCLUDED.locked_at, locked_by = EXCLUDED.locked_by,
			token = EXCLUDED.token, kind = 'lease', locked_role = NULL, keep_until = NULL,
			lock_at_most_for = NULL, pid = NULL, backend_start = NULL, origin = NULL
		WHERE s.name <> ALL ($1) AND (EXCLUDED.lock_until > $2 OR EXCLUDED.lock_until > s.lock_until)$q$,
		columns[1], columns[2], columns[3], columns[4], relation, lock_table)
		USING held, timezone('UTC', clock_timestamp()), tokens;
	GET DIAGNOSTICS rows = ROW_COUNT;

	EXECUTE format('ALTER TABLE %s RENAME TO %I', relation, new_name);
	SELECT string_agg(format('s.%I AS %I', ('{name,lock_until,locked_at,locked_by}'::name[])[array_position(columns, a.attname)],
							 a.attname), ', ' ORDER BY a.attnum)
	INTO view_columns
	FROM pg_attribute a
	WHERE a.attrelid = old_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = ANY (columns);
	EXECUTE format('CREATE VIEW %s AS SELECT %s FROM %s s', relation, view_columns, lock_table);
	new_view := relation;
	EXECUTE format('COMMENT ON VIEW %s IS %L', relation,
				   format('The locks in %s, for ShedLock''s clients; replaces table %I', lock_table, new_name));
	IF r.relowner <> (SELECT c.relowner FROM pg_class c WHERE c.oid = new_view) THEN
		EXECUTE format('ALTER VIEW %s OWNER TO %I', relation, pg_get_userbyid(r.relowner));
	END IF;
	RAISE LOG USING MESSAGE = format('table %s adopted by role "%s"', relation, current_user);
END
$$;

COMMENT ON FUNCTION _shedlock_adopt_move(regclass, name[], text[], regclass, regclass) IS
'Copies the locks of a table into that of the extension, renames the table, and creates the view in its place';

-- While both tables are locked, clients wait at the name of the old one.  When the
-- lock is released, the server looks that name up again, for prepared statements
-- too, and finds the view.
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
	SELECT _shedlock_adopt_lock($1, t.relation, 'shedlock'::regclass, 'shedlock_token_seq'::regclass)
	FROM _shedlock_adopt_table($1, ARRAY[$2, $3, $4, $5], 'shedlock'::regclass) t(relation);
	SELECT _shedlock_adopt_check_columns($1, ARRAY[$2, $3, $4, $5]);
	SELECT _shedlock_adopt_check_objects($1, ARRAY[$2, $3, $4, $5], _shedlock_adopt_dependents($1));
	SELECT _shedlock_adopt_check_rows($1, ARRAY[$2, $3, $4, $5], '_shedlock_shown(pg_catalog.text)'::regprocedure::pg_catalog.oid::regproc);
	SELECT _shedlock_adopt_check_times($1, ARRAY[$2, $3, $4, $5], $6);
	SELECT m.rows
	FROM _shedlock_adopt_check_names($1, ARRAY[$2, $3, $4, $5],
			ARRAY(SELECT s.name FROM _shedlock_status() s WHERE s.state OPERATOR(pg_catalog.<>) 'paused'),
			'shedlock'::regclass) n(held)
		 CROSS JOIN LATERAL _shedlock_adopt_move($1, ARRAY[$2, $3, $4, $5], n.held, 'shedlock'::regclass, 'shedlock_token_seq'::regclass) m
		 CROSS JOIN LATERAL _shedlock_adopt_grants($1, m.new_view, ARRAY[$2, $3, $4, $5]) g;
END;

COMMENT ON FUNCTION shedlock_adopt(regclass, name, name, name, name, boolean) IS
'Adopts the locks of a ShedLock table, and replaces the table with a view; returns their number';
