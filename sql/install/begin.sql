-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION shedlock" to load this file. \quit

DO $do$
BEGIN
	IF pg_catalog.to_regclass('@extschema@.shedlock') IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'duplicate_table',
			MESSAGE = pg_catalog.format('relation "shedlock" already exists in schema %s', '@extschema@'),
			DETAIL = 'The extension keeps its locks in a table of that name.',
			HINT = 'Install it into a schema of its own: CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling.  A table of ShedLock''s Java clients is then taken over with shedlock_adopt.';
	END IF;
END
$do$;

-- A call is resolved among all functions of its name in the schema: one whose
-- arguments fit better is called instead of the extension's, with the rights of
-- the administrator that typed the call.
DO $do$
DECLARE
	path CONSTANT text := pg_catalog.current_setting('search_path');
	roles text;
BEGIN
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	SELECT string_agg(DISTINCT coalesce(quote_ident(r.rolname), 'PUBLIC') COLLATE "C", ', ') INTO roles
	FROM pg_namespace n
		 JOIN pg_database d ON d.datname = current_database()
		 CROSS JOIN LATERAL (
			SELECT n.nspowner
			UNION ALL
			SELECT x.grantee FROM aclexplode(n.nspacl) x WHERE x.privilege_type = 'CREATE') g(role)
		 LEFT JOIN pg_roles r ON r.oid = CASE g.role WHEN 'pg_database_owner'::regrole THEN d.datdba ELSE g.role END
	WHERE n.oid = '@extschema@'::regnamespace AND
		  -- a member of a superuser role can become that role
		  NOT EXISTS (SELECT FROM pg_roles s WHERE s.rolsuper AND pg_has_role(r.oid, s.oid, 'MEMBER'));
	IF roles IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = format('schema %s is not safe for the extension', '@extschema@'),
			DETAIL = format('Roles that are no superusers can create functions in it, which a superuser could call instead of those of the extension: %s.', roles),
			HINT = 'Install it into a schema that belongs to a superuser: CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling.';
	END IF;
	PERFORM set_config('search_path', path, true);
END
$do$;
