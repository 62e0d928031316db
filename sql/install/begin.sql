-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION shedlock" to load this file. \quit

DO $do$
DECLARE
	path CONSTANT text := pg_catalog.current_setting('search_path');
	roles text;
BEGIN
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	IF to_regclass('@extschema@.shedlock') IS NOT NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'duplicate_table',
			MESSAGE = format('relation "shedlock" already exists in schema %s', '@extschema@'),
			DETAIL = 'The extension keeps its locks in a table of that name.',
			HINT = 'Install the extension into its own schema: CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling.  If the existing table belongs to ShedLock''s Java clients, call shedlock_adopt after that.';
	END IF;

	-- A call is resolved among all functions of that name in the schema: one whose
	-- arguments fit better than those of the extension's function is called instead,
	-- with the rights of the administrator who typed the call.
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
			DETAIL = format('Roles that are not superusers can create functions there, and a superuser could call one of those instead of the extension''s: %s.', roles),
			HINT = 'Install the extension into a schema that a superuser owns: CREATE SCHEMA scheduling; CREATE EXTENSION shedlock SCHEMA scheduling.';
	END IF;
	PERFORM set_config('search_path', path, true);
END
$do$;
