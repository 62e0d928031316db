-- Without pg_cron its functions raise an error with a hint, and the view is empty.

-- SQLSTATE, message and hint of the error that a statement raises
CREATE FUNCTION error_of(statement text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS
		state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' ', state, replace(message, current_database(), 'regression'), nullif(hint, ''));
END
$$;

SELECT error_of($$SELECT shedlock_cron_schedule('nightly', '0 3 * * *', 'VACUUM')$$);
SELECT error_of($$SELECT shedlock_cron_unschedule('nightly')$$);
SELECT error_of($$SELECT shedlock_cron_guard('nightly')$$);
SELECT error_of($$SELECT shedlock_cron_unguard('nightly')$$);
SELECT count(*) FROM shedlock_cron_jobs;

-- A relation cron.job that is not pg_cron's is never read, because the functions that
-- it calls would run with the privileges of the reader.
CREATE SCHEMA cron;
CREATE FUNCTION cron.spring() RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'sprung as %', current_user;
END
$$;
CREATE VIEW cron.job AS
SELECT 1::bigint AS jobid, '* * * * *' AS schedule, cron.spring() AS command,
	   current_database()::text AS database, cron.spring() AS username, true AS active,
	   cron.spring() AS jobname;

SELECT count(*) FROM shedlock_cron_jobs;
SELECT error_of($$SELECT shedlock_cron_unschedule('nightly')$$);
SELECT error_of($$SELECT shedlock_cron_guard('1')$$);
SELECT error_of($$SELECT shedlock_forget('1'), shedlock_job('1', '@daily'), shedlock_forget('1')$$);
SELECT error_of($$SELECT _shedlock_cron_name_is_shared('nightly', 'bob')$$);

DROP SCHEMA cron CASCADE;

-- A role that may not use these functions gets that error first.
CREATE ROLE regress_shedlock_plain;
SET ROLE regress_shedlock_plain;
SELECT error_of($$SELECT shedlock_cron_schedule('nightly', '0 3 * * *', 'VACUUM')$$);
SELECT error_of($$SELECT shedlock_cron_unschedule('nightly')$$);
SELECT error_of($$SELECT shedlock_cron_guard('nightly')$$);
SELECT error_of($$SELECT shedlock_cron_unguard('nightly')$$);
RESET ROLE;

DROP ROLE regress_shedlock_plain;
DROP FUNCTION error_of(text);
