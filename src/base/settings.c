/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The settings.
 *
 * A setting that is given a value before the library is loaded is a placeholder, and
 * is checked when the library is loaded.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "base/base.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/guc.h"

int			shedlock_notify;
int			shedlock_default_lock_at_most_for;
int			shedlock_default_lock_at_least_for;
int			shedlock_max_lock_at_most_for;
int			shedlock_max_wait;
int			shedlock_history_keep;
int			shedlock_foreign_clock_tolerance;
bool		shedlock_require_token;
bool		shedlock_role_prefix;
bool		shedlock_log_locks;
bool		shedlock_log_skipped_runs;

/* What the command of a run reads about itself: "" outside of a run. */
static char tick_shown[MAXDATELEN + 1];
static char attempt_shown[MAXINT8LEN + 1];

/* The same for parallel workers, to which the server copies the values of settings. */
static char *tick_copied;
static char *attempt_copied;
static bool copying = false;

static const struct config_enum_entry notify_options[] = {
	{"none", SHEDLOCK_NOTIFY_NONE, false},
	{"failures", SHEDLOCK_NOTIFY_FAILURES, false},
	{"all", SHEDLOCK_NOTIFY_ALL, false},
	{NULL, 0, false}
};

/* A setting: a number of seconds, on and off, or one of these options. */
typedef struct
{
	const char *name;
	GucContext	context;
	int		   *number;			/* NULL: it is on or off */
	bool	   *on;
	int			boot_value;
	int			min_value;
	const char *description;
	const char *details;		/* or NULL */
	const struct config_enum_entry *options;	/* NULL: the number is one of
												 * seconds */
} Setting;

static const Setting settings[] = {
	{"shedlock.default_lock_at_most_for", PGC_USERSET, &shedlock_default_lock_at_most_for, NULL, 3600, 1,
	"Sets lock_at_most_for of a lease when the caller gives none.", NULL, NULL},
	{"shedlock.default_lock_at_least_for", PGC_USERSET, &shedlock_default_lock_at_least_for, NULL, 0, 0,
	"Sets lock_at_least_for when the caller gives none.", NULL, NULL},
	{"shedlock.max_lock_at_most_for", PGC_SUSET, &shedlock_max_lock_at_most_for, NULL, 0, 0,
		"Sets the longest lock_at_most_for and lock_at_least_for that callers can give.",
	"0 sets no cap.  A session lock or run without a limit stays without one.", NULL},
	{"shedlock.max_wait", PGC_SUSET, &shedlock_max_wait, NULL, 0, 0,
	"Sets the longest wait that callers can give.", "0 sets no cap.", NULL},
	{"shedlock.history_keep", PGC_SUSET, &shedlock_history_keep, NULL, 30 * 24 * 3600, 0,
	"Sets how long the history of runs is kept.", NULL, NULL},
	{"shedlock.foreign_clock_tolerance", PGC_SUSET, &shedlock_foreign_clock_tolerance, NULL, 600, 1,
	"Sets by how much the clock of a ShedLock client may differ from the server's.", NULL, NULL},
	{"shedlock.require_token", PGC_SUSET, NULL, &shedlock_require_token, false, 0,
		"Refuses to release, extend or assert a lease without its token.",
	"For roles that connect through a pooler: there a session is no proof of ownership.", NULL},
	{"shedlock.role_prefix", PGC_SUSET, NULL, &shedlock_role_prefix, false, 0,
		"Reserves lock names that begin with a role and a colon for roles with its privileges.",
	"All other names are for superusers.", NULL},
	{"shedlock.log_locks", PGC_SUSET, NULL, &shedlock_log_locks, false, 0,
	"Logs each acquire, release, extend and loss of a lock.", NULL, NULL},
	{"shedlock.log_skipped_runs", PGC_SUSET, NULL, &shedlock_log_skipped_runs, true, 0,
	"Logs each run that shedlock_run skips.", NULL, NULL},
	{"shedlock.notify", PGC_SUSET, &shedlock_notify, NULL, SHEDLOCK_NOTIFY_FAILURES, 0,
		"Sets which events listeners of channel \"shedlock\" are told of.",
	"\"failures\" includes what administrators do; \"all\" adds the start and success of runs.", notify_options},
};

/*
 * check_placeholder - raise an error if a client displaced the value of a setting
 *
 * What a client gives when it connects (PGOPTIONS) has precedence over the
 * configuration, the database and the role.  When the setting is defined, the server
 * removes the client's value if the client may not set it; but the displaced value is
 * gone by then, and the built-in default would be left.  A SET displaces nothing.
 */
static void
check_placeholder(const struct config_generic *placeholder)
{
	if ((placeholder->flags & GUC_CUSTOM_PLACEHOLDER) == 0 ||
		placeholder->reset_source != PGC_S_CLIENT ||
		placeholder->reset_scontext != PGC_BACKEND) /* a superuser's */
		return;
	for (int i = 0; i < (int) lengthof(settings); i++)
	{
		const char *name = settings[i].name;

		if (settings[i].context == PGC_SUSET && pg_strcasecmp(placeholder->name, name) == 0 &&
			pg_parameter_aclcheck(name, placeholder->reset_srole, ACL_SET) != ACLCHECK_OK)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied to set parameter \"%s\"", name),
					 errdetail("The client gave it when it connected."),
					 errhint("Remove it from the connection's options, such as PGOPTIONS.")));
	}
}

/*
 * check_copied - check hook: only the extension sets this
 */
static bool
check_copied(char **newval, void **extra, GucSource source)
{
	if (copying || source == PGC_S_DEFAULT || InitializingParallelWorker)
		return true;
	GUC_check_errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM);
	GUC_check_errdetail("shedlock_run sets it for its command.");
	return false;
}

static const char *
show_tick(void)
{
	return IsParallelWorker() ? tick_copied : tick_shown;
}

static const char *
show_attempt(void)
{
	return IsParallelWorker() ? attempt_copied : attempt_shown;
}

/*
 * ShedlockShowAttempt - let the command of a run read its tick and attempt
 *
 * Strings of at most MAXDATELEN or MAXINT8LEN bytes; "" for none.  This process shows
 * them whatever becomes of its transaction; a parallel worker shows what the
 * transaction has set.  failed: the transaction has failed, which undoes what it has set.
 */
void
ShedlockShowAttempt(const char *tick, const char *attempt, bool failed)
{
	strlcpy(tick_shown, tick, sizeof(tick_shown));
	strlcpy(attempt_shown, attempt, sizeof(attempt_shown));
	if (failed)
		return;
	copying = true;
	PG_TRY();
	{
		SetConfigOption("shedlock.tick", tick, PGC_USERSET, PGC_S_SESSION);
		SetConfigOption("shedlock.attempt", attempt, PGC_USERSET, PGC_S_SESSION);
	}
	PG_FINALLY();
	{
		copying = false;
	}
	PG_END_TRY();
}

/*
 * ShedlockDefineSettings - define the settings
 *
 * The caller holds off interrupts.
 */
void
ShedlockDefineSettings(void)
{
	int			n;
	struct config_generic **placeholders = all_settings(&n);

	for (int i = 0; i < n; i++)
		check_placeholder(placeholders[i]);

	for (int i = 0; i < (int) lengthof(settings); i++)
	{
		const Setting *s = &settings[i];

		if (s->options)
			DefineCustomEnumVariable(s->name, s->description, s->details, s->number,
									 s->boot_value, s->options, s->context, 0,
									 NULL, NULL, NULL);
		else if (s->number)
			DefineCustomIntVariable(s->name, s->description, s->details, s->number,
									s->boot_value, s->min_value, INT_MAX, s->context,
									GUC_UNIT_S, NULL, NULL, NULL);
		else
			DefineCustomBoolVariable(s->name, s->description, s->details, s->on,
									 s->boot_value, s->context, 0, NULL, NULL, NULL);
	}
	DefineCustomStringVariable("shedlock.tick",
							   "Shows the command of a run the tick that it is for.", NULL,
							   &tick_copied, "", PGC_USERSET,
							   GUC_NO_RESET_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   check_copied, NULL, show_tick);
	DefineCustomStringVariable("shedlock.attempt",
							   "Shows the command of a run which attempt at its tick it is.", NULL,
							   &attempt_copied, "", PGC_USERSET,
							   GUC_NO_RESET_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   check_copied, NULL, show_attempt);
	MarkGUCPrefixReserved("shedlock");
}
