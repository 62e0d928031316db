/* Privileges */

-- ALTER DEFAULT PRIVILEGES may have granted privileges on these objects to other
-- roles, or kept them from PUBLIC.  This restores the server's own defaults.
DO $do$
DECLARE
	path CONSTANT text := pg_catalog.current_setting('search_path');
	member record;
	grantee text;
BEGIN
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	FOR member IN
		SELECT o.object, o.acl, quote_ident(pg_get_userbyid(o.owner)) AS owner_name
		FROM pg_extension e
			 JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
			 JOIN (
				SELECT 'pg_class'::regclass AS class, c.oid, c.relacl AS acl, c.relowner AS owner,
					   CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || c.oid::regclass AS object
				FROM pg_class c
				UNION ALL
				SELECT 'pg_proc'::regclass, p.oid, p.proacl, p.proowner, 'ROUTINE ' || p.oid::regprocedure
				FROM pg_proc p) o ON d.classid = o.class AND d.objid = o.oid
		WHERE e.extname = 'shedlock' AND o.acl IS NOT NULL
	LOOP
		FOR grantee IN
			SELECT DISTINCT CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(x.grantee)) END
			FROM aclexplode(member.acl) x
		LOOP
			EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', member.object, grantee);
		END LOOP;
		EXECUTE format('GRANT ALL ON %s TO %s', member.object, member.owner_name);
		IF member.object LIKE 'ROUTINE %' THEN
			EXECUTE format('GRANT EXECUTE ON %s TO PUBLIC', member.object);
		END IF;
	END LOOP;
	PERFORM set_config('search_path', path, true);
END
$do$;

-- Firing the trigger takes no privilege.
REVOKE EXECUTE ON FUNCTION _shedlock_row_trigger() FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_force_release(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_cancel(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_pause(text, timestamptz, text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_resume(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_again(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_skip(text, text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_stats_reset(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_purge(interval, boolean) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_adopt(regclass, name, name, name, name, boolean) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_news() FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_tell(text, text, timestamptz, text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_cron_schedule(text, text, text, text, text, boolean, text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_cron_unschedule(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_cron_guard(text, text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shedlock_cron_unguard(text) FROM PUBLIC;

GRANT SELECT ON shedlock_locks, shedlock_history, shedlock_stats, shedlock_jobs, shedlock_cron_jobs, shedlock_problems TO PUBLIC;
