/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The settings.
 *
 * A setting made before the library was loaded is a placeholder until then
 * and is checked when it is loaded.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/base.h"
#include "base/breakage.h"
#include "utils/acl.h"
#include "utils/guc.h"

int			shedlock_default_lock_at_most_for = 3600;
int			shedlock_default_lock_at_least_for = 0;
int			shedlock_max_lock_at_most_for = 0;
int			shedlock_max_wait = 0;
int			shedlock_history_keep = 30 * 24 * 3600;
bool		shedlock_require_token = false;
bool		shedlock_role_prefix = false;
bool		shedlock_log_locks = false;
bool		shedlock_log_skipped_runs = true;
bool		shedlock_synchronous_release = false;
int			shedlock_foreign_clock_tolerance = 600;

/* Settings that only superusers may set. */
static const char *const superuser_settings[] = {
	"shedlock.require_token", "shedlock.log_locks", "shedlock.log_skipped_runs",
	"shedlock.history_keep", "shedlock.foreign_clock_tolerance",
	"shedlock.role_prefix", "shedlock.max_lock_at_most_for", "shedlock.max_wait"
};

/*
 * ShedlockCheckPlaceholders - refuse to be loaded where a client displaced a setting
 *
 * What a client says when it connects (PGOPTIONS) goes before what the
 * configuration, the database and the role say.  When the setting is defined,
 * the server takes the client's value away again, if it may not set it, but
 * what was displaced is gone by then, and the built-in default would be left.
 * A SET in the session displaces nothing.
 */
void
ShedlockCheckPlaceholders(void)
{
	int			n;
	struct config_generic **settings = all_settings(&n);

	for (int i = 0; i < n; i++)
	{
		const struct config_generic *setting = settings[i];

		if ((setting->flags & GUC_CUSTOM_PLACEHOLDER) == 0 ||
			setting->reset_source != PGC_S_CLIENT ||
			setting->reset_scontext != PGC_BACKEND) /* a superuser's */
			continue;
		for (int j = 0; j < (int) lengthof(superuser_settings); j++)
		{
			if (pg_strcasecmp(setting->name, superuser_settings[j]) == 0 &&
				pg_parameter_aclcheck(superuser_settings[j], setting->reset_srole,
									  ACL_SET) != ACLCHECK_OK)
				ereport(ERROR,
						(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						 errmsg("permission denied to set parameter \"%s\"", superuser_settings[j]),
						 errdetail("The client gave it when it connected."),
						 errhint("Connect without it, as in PGOPTIONS.")));
		}
	}
}

/*
 * ShedlockDefineSettings - define them; interrupts are held off
 */
void
ShedlockDefineSettings(void)
{
	DefineCustomIntVariable("shedlock.default_lock_at_most_for",
							"Sets the longest time that a lock is held when the caller names none.",
							NULL,
							&shedlock_default_lock_at_most_for,
							3600, 1, INT_MAX,
							PGC_USERSET, GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomIntVariable("shedlock.default_lock_at_least_for",
							"Sets the shortest time that a lock is held when the caller names none.",
							NULL,
							&shedlock_default_lock_at_least_for,
							0, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomIntVariable("shedlock.max_lock_at_most_for",
							"Sets the longest lock_at_most_for and lock_at_least_for that can be asked for.",
							"0 sets no cap.  A session lock or run without limit stays without limit.",
							&shedlock_max_lock_at_most_for,
							0, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomIntVariable("shedlock.max_wait",
							"Sets the longest wait that can be asked for.",
							"0 sets no cap.",
							&shedlock_max_wait,
							0, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomBoolVariable("shedlock.require_token",
							 "Refuses to release, extend or assert a lease without its token.",
							 "For roles that connect through a pool, where a session is no proof of ownership.",
							 &shedlock_require_token,
							 false,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("shedlock.role_prefix",
							 "Reserves lock names that begin with a role and a colon for the roles with its privileges.",
							 "All other names are for superusers.",
							 &shedlock_role_prefix,
							 false,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("shedlock.log_locks",
							 "Logs each acquire, release, extend and loss of a lock.",
							 NULL,
							 &shedlock_log_locks,
							 false,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("shedlock.log_skipped_runs",
							 "Logs each run that shedlock_run skips.",
							 NULL,
							 &shedlock_log_skipped_runs,
							 true,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("shedlock.history_keep",
							"Sets how long the history of runs is kept.",
							NULL,
							&shedlock_history_keep,
							30 * 24 * 3600, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomBoolVariable("shedlock.synchronous_release",
							 "Makes a release wait for its commit to be on disk.",
							 "A release that is lost in a crash only keeps the lock longer.",
							 &shedlock_synchronous_release,
							 false,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("shedlock.foreign_clock_tolerance",
							"Sets how far the clock of a ShedLock client may be off the server's.",
							NULL,
							&shedlock_foreign_clock_tolerance,
							600, 1, INT_MAX,
							PGC_SUSET, GUC_UNIT_S,
							NULL, NULL, NULL);

	ShedlockDefineBreakage();
	MarkGUCPrefixReserved("shedlock");
}
