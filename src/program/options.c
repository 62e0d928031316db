/*-------------------------------------------------------------------------
 *
 * options.c
 *	  The command line.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <getopt.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program/program.h"

/* The version, which the Makefile defines, as a string */
#define QUOTE(text)			#text
#define VERSION_STRING(version) QUOTE(version)

#define DEFAULT_LEASE		(60 * USEC_PER_SEC)

/* Defaults of --watch; a host that has waited for an hour asks again */
#define WATCH_NAME			"shedlock-watch"
#define WATCH_EVERY			(30 * USEC_PER_SEC)
#define WATCH_AT_MOST		(60 * USEC_PER_SEC)
#define WATCH_WAIT			(3600 * USEC_PER_SEC)

/* How much of the command line --description has by default: the history keeps little more */
#define DESCRIPTION_MAX		8000

/* 1,000 years: sums of such durations do not overflow */
#define DURATION_MAX		(31556952000.0 * 1e6)

static const char help[] =
"shedlock runs a command on one host at a time, and once per tick of a schedule.\n"
"\n"
"Usage:\n"
"  shedlock --name NAME [OPTION]... [--] COMMAND [ARGUMENT]...\n"
"  shedlock --watch [OPTION]... [--] COMMAND [ARGUMENT]...\n"
"\n"
"The lock:\n"
"  -n, --name=NAME          name of lock and job (required without --watch)\n"
"  -d, --dbname=CONNINFO    database, connection string or URI of PostgreSQL\n"
"      --lease=DURATION     how long a host that vanishes blocks the others (60 s)\n"
"      --wait=DURATION      wait that long if the lock is held, or no server answers\n"
"      --at-least=DURATION  keep the lock at least that long\n"
"      --locked-by=TEXT     the holder's name (user@host/PID)\n"
"\n"
"The job, which is declared before it is called; without --schedule it is as declared:\n"
"      --schedule=SCHEDULE  run once per tick of a cron expression, or of \"every 1 day\"\n"
"      --once-every=PERIOD  the same as --schedule \"every PERIOD\"\n"
"      --time-zone=ZONE     of the schedule (UTC)\n"
"      --attempts=N         runs that a tick may have, if they fail (1)\n"
"      --backoff=DURATION   from a run that failed to the next attempt (1 min)\n"
"      --catch-up=WHICH     missed ticks that are made up: latest or all\n"
"      --max-late=DURATION  begin no run more than that after its tick\n"
"      --overdue-after=DURATION\n"
"                           the job is overdue if a due run has not begun for that long (5 min)\n"
"      --slow-after=DURATION\n"
"                           the job is slow if a run of it takes longer\n"
"      --description=TEXT   what the job is; what the history says of the run (the command line)\n"
"\n"
"The command:\n"
"      --at-most=DURATION   end it after that time, with exit status 124; of a job, by then\n"
"      --kill-after=DURATION\n"
"                           from SIGTERM to SIGKILL (10 s, or a quarter of the lease)\n"
"      --tail=BYTES         how much of its standard error the history keeps (4kB)\n"
"\n"
"Watching:\n"
"      --watch              run it for each problem of a job that begins or is over\n"
"      --every=DURATION     look for problems so often (30 s)\n"
"      --alive=COMMAND      what a shell runs after a look at which all was told\n"
"\n"
"      --quiet-for=DURATION say only once in that time that no server can be reached\n"
"      --busy-exit=STATUS   exit status if it is not run (75)\n"
"      --dry-run            check all of this; show the times of the lease, the next ticks,\n"
"                           and what a run would be told\n"
"  -v, --verbose            say why it is not run, as on a terminal, and when a run begins\n"
"      --help               show this help\n"
"      --version            show the version\n"
"\n"
"Exit status: that of the command; 128 + N if signal N ended it; 64 wrong usage;\n"
"69 no server, or it refused the call; 71 no process; 75 not run;\n"
"76 the lock was lost; 124 --at-most; 126 the command cannot be executed;\n"
"127 there is no such command.\n"
"\n"
"The command has SHEDLOCK_NAME, SHEDLOCK_TOKEN, SHEDLOCK_TICK and\n"
"SHEDLOCK_ATTEMPT in its environment.  \"man shedlock\" has the rest.\n";

enum
{
	OPTION_FIRST = UCHAR_MAX + 1,
	OPTION_ALIVE,
	OPTION_AT_LEAST,
	OPTION_AT_MOST,
	OPTION_ATTEMPTS,
	OPTION_BACKOFF,
	OPTION_BUSY_EXIT,
	OPTION_CATCH_UP,
	OPTION_DESCRIPTION,
	OPTION_DRY_RUN,
	OPTION_EVERY,
	OPTION_HELP,
	OPTION_KILL_AFTER,
	OPTION_LEASE,
	OPTION_LOCKED_BY,
	OPTION_MAX_LATE,
	OPTION_ONCE_EVERY,
	OPTION_OVERDUE_AFTER,
	OPTION_QUIET_FOR,
	OPTION_SCHEDULE,
	OPTION_SLOW_AFTER,
	OPTION_TAIL,
	OPTION_TIME_ZONE,
	OPTION_VERSION,
	OPTION_WAIT,
	OPTION_WATCH
};

static const struct option long_options[] = {
	{"alive", required_argument, NULL, OPTION_ALIVE},
	{"at-least", required_argument, NULL, OPTION_AT_LEAST},
	{"at-most", required_argument, NULL, OPTION_AT_MOST},
	{"attempts", required_argument, NULL, OPTION_ATTEMPTS},
	{"backoff", required_argument, NULL, OPTION_BACKOFF},
	{"busy-exit", required_argument, NULL, OPTION_BUSY_EXIT},
	{"catch-up", required_argument, NULL, OPTION_CATCH_UP},
	{"dbname", required_argument, NULL, 'd'},
	{"description", required_argument, NULL, OPTION_DESCRIPTION},
	{"dry-run", no_argument, NULL, OPTION_DRY_RUN},
	{"every", required_argument, NULL, OPTION_EVERY},
	{"help", no_argument, NULL, OPTION_HELP},
	{"kill-after", required_argument, NULL, OPTION_KILL_AFTER},
	{"lease", required_argument, NULL, OPTION_LEASE},
	{"locked-by", required_argument, NULL, OPTION_LOCKED_BY},
	{"max-late", required_argument, NULL, OPTION_MAX_LATE},
	{"name", required_argument, NULL, 'n'},
	{"once-every", required_argument, NULL, OPTION_ONCE_EVERY},
	{"overdue-after", required_argument, NULL, OPTION_OVERDUE_AFTER},
	{"quiet-for", required_argument, NULL, OPTION_QUIET_FOR},
	{"schedule", required_argument, NULL, OPTION_SCHEDULE},
	{"slow-after", required_argument, NULL, OPTION_SLOW_AFTER},
	{"tail", required_argument, NULL, OPTION_TAIL},
	{"time-zone", required_argument, NULL, OPTION_TIME_ZONE},
	{"verbose", no_argument, NULL, 'v'},
	{"version", no_argument, NULL, OPTION_VERSION},
	{"wait", required_argument, NULL, OPTION_WAIT},
	{"watch", no_argument, NULL, OPTION_WATCH},
	{NULL, 0, NULL, 0}
};

/*
 * parse_duration - a number and a unit, as in "90", "1.5 h" or "500ms"; without one: seconds
 *
 * All of them mean the same as an interval of PostgreSQL.
 */
static Usec
parse_duration(const char *option, const char *value)
{
	static const struct
	{
		const char *name;
		double		usec;
	}			units[] = {
		{"", 1e6},
		{"ms", 1e3}, {"msec", 1e3}, {"millisecond", 1e3}, {"milliseconds", 1e3},
		{"s", 1e6}, {"sec", 1e6}, {"secs", 1e6}, {"second", 1e6}, {"seconds", 1e6},
		{"m", 60e6}, {"min", 60e6}, {"mins", 60e6}, {"minute", 60e6}, {"minutes", 60e6},
		{"h", 3600e6}, {"hour", 3600e6}, {"hours", 3600e6},
		{"d", 86400e6}, {"day", 86400e6}, {"days", 86400e6}
	};
	char	   *unit;
	double		number = strtod(value, &unit);

	/* not what else strtod() takes, such as "inf" */
	if (strspn(value, "0123456789.") == (size_t) (unit - value) && unit != value)
	{
		unit += strspn(unit, " ");
		for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		{
			if (strcmp(unit, units[i].name) == 0 && number * units[i].usec <= DURATION_MAX)
				return (Usec) (number * units[i].usec);
		}
	}
	Die(EXIT_USAGE, "--%s: \"%s\" is not a duration such as 30s, 5min, 2h or 1d", option, value);
}

/*
 * parse_status - an exit status
 */
static int
parse_status(const char *option, const char *value)
{
	char	   *end;
	long		number = strtol(value, &end, 10);

	if (strspn(value, "0123456789") != (size_t) (end - value) || end == value || *end != '\0' || number > 255)
		Die(EXIT_USAGE, "--%s: \"%s\" is not a number from 0 to 255", option, value);
	return (int) number;
}

/*
 * parse_size - a number of bytes, as in "4kB" or "512"
 */
static size_t
parse_size(const char *option, const char *value)
{
	size_t		length = strspn(value, "0123456789");
	unsigned long number = strtoul(value, NULL, 10);

	if (strcmp(value + length, "kB") == 0 && number <= TAIL_MAX / 1024)
		number *= 1024;
	else if (strcmp(value + length, "B") != 0 && value[length] != '\0')
		length = 0;
	if (length == 0 || number > TAIL_MAX)
		Die(EXIT_USAGE, "--%s: \"%s\" is not a number of bytes from 0 to 4kB", option, value);
	return number;
}

/*
 * format_text - as sprintf(), into new memory
 */
static char *format_text(const char *format,...) __attribute__((format(printf, 1, 2)));

static char *
format_text(const char *format,...)
{
	char	   *formatted;
	va_list		arguments;
	int			length;

	va_start(arguments, format);
	length = vasprintf(&formatted, format, arguments);
	va_end(arguments);
	if (length < 0)
		Die(EXIT_NO_RESOURCES, "out of memory");
	return formatted;
}

/*
 * default_locked_by - user@host/PID
 */
static const char *
default_locked_by(void)
{
	const struct passwd *user = getpwuid(geteuid());
	char		host[256] = "";

	(void) gethostname(host, sizeof(host) - 1);
	return format_text("%s@%s/%d", user ? user->pw_name : "?", host, (int) getpid());
}

/*
 * default_description - the command line, for people to read, or its start
 */
static const char *
default_description(char *const *command)
{
	static char line[DESCRIPTION_MAX + sizeof("...")];
	size_t		length = 0;

	for (char *const *word = command; *word; word++)
	{
		bool		quoted = word > command && (**word == '\0' || strpbrk(*word, " \t\n\"'\\$`;&|<>()*?"));
		int			added = snprintf(line + length, DESCRIPTION_MAX - length, quoted ? "%s'%s'" : "%s%s",
									 word > command ? " " : "", *word);

		if (added < 0 || (size_t) added >= DESCRIPTION_MAX - length)
		{
			(void) strcat(line, "...");
			break;
		}
		length += (size_t) added;
	}
	return line;
}

/*
 * text_option - what keeps the text of an option that the program passes on; NULL: another option
 */
static const char **
text_option(Options *options, int option)
{
	switch (option)
	{
		case 'd':
			return &options->dbname;
		case 'n':
			return &options->name;
		case OPTION_ALIVE:
			return &options->alive;
		case OPTION_AT_LEAST:
			return &options->at_least;
		case OPTION_ATTEMPTS:
			return &options->attempts;
		case OPTION_BACKOFF:
			return &options->backoff;
		case OPTION_CATCH_UP:
			return &options->catch_up;
		case OPTION_DESCRIPTION:
			return &options->job_description;
		case OPTION_LOCKED_BY:
			return &options->locked_by;
		case OPTION_MAX_LATE:
			return &options->max_late;
		case OPTION_OVERDUE_AFTER:
			return &options->overdue_after;
		case OPTION_SCHEDULE:
			return &options->schedule;
		case OPTION_SLOW_AFTER:
			return &options->slow_after;
		case OPTION_TIME_ZONE:
			return &options->time_zone;
		default:
			return NULL;
	}
}

/*
 * duration_option - the same for a duration
 */
static Usec *
duration_option(Options *options, int option)
{
	switch (option)
	{
		case OPTION_AT_MOST:
			return &options->at_most;
		case OPTION_EVERY:
			return &options->every;
		case OPTION_KILL_AFTER:
			return &options->lease.kill_after;
		case OPTION_LEASE:
			return &options->lease.length;
		case OPTION_QUIET_FOR:
			return &options->quiet_for;
		case OPTION_WAIT:
			return &options->wait;
		default:
			return NULL;
	}
}

/*
 * set_other_option - set what an option of another kind says
 */
static void
set_other_option(Options *options, int option, const char *name, const char *value)
{
	switch (option)
	{
		case 'v':
			options->verbose = true;
			break;
		case OPTION_ONCE_EVERY:
			options->period = value;
			break;
		case OPTION_BUSY_EXIT:
			options->busy_exit = parse_status(name, value);
			break;
		case OPTION_DRY_RUN:
			options->dry_run = true;
			break;
		case OPTION_WATCH:
			options->watch = true;
			break;
		case OPTION_TAIL:
			options->tail = parse_size(name, value);
			break;
		case OPTION_HELP:
			fputs(help, stdout);
			exit(fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
		case OPTION_VERSION:
			puts("shedlock " VERSION_STRING(SHEDLOCK_VERSION));
			exit(fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
		default:
			fputs("Try \"shedlock --help\".\n", stderr);
			exit(EXIT_USAGE);
	}
}

/*
 * read_options - read the options as they are given; exits if one is wrong, or asks for help
 */
static void
read_options(int argc, char **argv, Options *options)
{
	int			option;
	int			index = 0;

	/* "+": what follows the command belongs to it */
	while ((option = getopt_long(argc, argv, "+d:n:v", long_options, &index)) != -1)
	{
		const char *name = long_options[index].name;
		const char **text = text_option(options, option);
		Usec	   *duration = duration_option(options, option);

		if (text)
			*text = optarg;
		else if (duration)
			*duration = parse_duration(name, optarg);
		else
			set_other_option(options, option, name, optarg);
	}
}

/*
 * set_job - set what the options say of the job; exits if they say it of none
 */
static void
set_job(Options *options)
{
	const struct
	{
		const char *name;
		const char *value;
	}			settings[] = {
		{"time-zone", options->time_zone},
		{"attempts", options->attempts},
		{"backoff", options->backoff},
		{"catch-up", options->catch_up},
		{"max-late", options->max_late},
		{"overdue-after", options->overdue_after},
		{"slow-after", options->slow_after}
	};

	if (options->period && options->schedule)
		Die(EXIT_USAGE, "--once-every and --schedule exclude each other");
	if (options->period)
		options->schedule = format_text("every %s", options->period);
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
	{
		if (settings[i].value && options->schedule == NULL)
			Die(EXIT_USAGE, "--%s needs --schedule or --once-every", settings[i].name);
	}
	options->description = options->job_description;
	if (options->description == NULL && options->command)
		options->description = default_description(options->command);
}

/*
 * set_watch - set what --watch makes of the options; exits if they exclude each other
 */
static void
set_watch(Options *options)
{
	if (!options->watch)
	{
		if (options->every != 0 || options->alive)
			Die(EXIT_USAGE, "--%s needs --watch", options->alive ? "alive" : "every");
		return;
	}
	if (options->schedule || options->period)
		Die(EXIT_USAGE, "--watch and --schedule exclude each other");
	if (options->name == NULL)
		options->name = WATCH_NAME;
	if (options->every == 0)
		options->every = WATCH_EVERY;
	if (options->wait < 0)
		options->wait = WATCH_WAIT;
	options->each_at_most = options->at_most == NEVER ? WATCH_AT_MOST : options->at_most;
	options->at_most = NEVER;
}

/*
 * set_lease - set the times of the lease; exits if there are none
 */
static void
set_lease(Options *options)
{
	Usec		shortest;

	if (options->at_most <= 0 || (options->watch && options->each_at_most <= 0))
		Die(EXIT_USAGE, "--at-most must be positive");
	if (options->schedule && options->at_most < RUN_MIN)
		Die(EXIT_USAGE, "--at-most of a job must be at least %.2f s", (double) RUN_MIN / (double) USEC_PER_SEC);
	shortest = MakeLease(&options->lease);
	if (shortest > 0)
		Die(EXIT_USAGE, "--lease is too short for --kill-after: it must be at least %.2f s",
			(double) shortest / (double) USEC_PER_SEC + 0.01);
}

/*
 * ParseOptions - read the command line; exits if it is wrong, or asks for help
 */
void
ParseOptions(int argc, char **argv, Options *options)
{

	*options = (Options)
	{
		.at_most = NEVER,.wait = -1,.busy_exit = EXIT_BUSY,.tail = TAIL_MAX
	};
	options->lease.length = DEFAULT_LEASE;
	options->lease.kill_after = -1;
	read_options(argc, argv, options);
	set_watch(options);
	if (options->name == NULL)
		Die(EXIT_USAGE, "--name is required");
	if (argv[optind])
		options->command = argv + optind;
	else if (!options->dry_run)
		Die(EXIT_USAGE, "there is no command to run");
	set_job(options);
	set_lease(options);
	if (options->dry_run)		/* a person asks */
		options->quiet_for = 0;
	if (options->locked_by == NULL)
		options->locked_by = default_locked_by();
}
