/*
 * child.c - the command that the hosts of the fault checker run
 *
 *	child FILE ID SECONDS STATUS FLAGS
 *
 * It works for SECONDS and ends with STATUS.  Each of its processes appends a line of
 * fixed width to FILE, and then writes instants of CLOCK_REALTIME into that line:
 *
 *	first	when it began
 *	last	its last sign of life, every few milliseconds
 *	told	when it first got SIGTERM, SIGINT or SIGQUIT
 *	ended	when it ended by itself; with its exit status
 *
 * So the line is right whenever the process is killed: a sign of life is written after
 * its instant.
 *
 * FLAGS:
 *	t	it goes on when it is told to end, and so do its other processes
 *	b	it has a process in the background
 *	d	it has a daemon, with a session of its own
 *	l	these two go on for 3 s more than itself
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIGN_OF_LIFE	3		/* ms */
#define LEFT_FOR		3.0		/* s */
#define TOLD_STATUS		3

/* Offsets in a line; an instant has 17 characters */
enum
{
	FIRST = 0,
	LAST = 18,
	TOLD = 36,
	ENDED = 54,
	STATUS = 72
};

static const char *name;
static int	file;				/* to write at a place */
static off_t line;
static volatile sig_atomic_t told = 0;

static double
now(void)
{
	struct timespec time;

	(void) clock_gettime(CLOCK_REALTIME, &time);
	return (double) time.tv_sec + (double) time.tv_nsec / 1e9;
}

static void
write_at(off_t place, const char *text)
{
	size_t		length = strlen(text);

	if (pwrite(file, text, length, line + place) != (ssize_t) length)
		_exit(99);
}

static void
write_instant(off_t place, double instant)
{
	char		text[32];

	(void) snprintf(text, sizeof(text), "%17.6f", instant);
	write_at(place, text);
}

static void
on_signal(int number)
{
	(void) number;
	told = 1;
}

static const char *
variable(const char *of)
{
	const char *value = getenv(of);

	return value ? value : "";
}

/*
 * begin - append the line of this process
 */
static void
begin(const char *role, const char *id)
{
	char		text[400];
	double		instant = now();
	int			length;
	int			end = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);

	length = snprintf(text, sizeof(text), "%17.6f\t%17.6f\t%17s\t%17s\t%3s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n",
					  instant, instant, "", "", "", role, (int) getpid(), id, variable("SHEDLOCK_NAME"),
					  variable("SHEDLOCK_TOKEN"), variable("SHEDLOCK_TICK"), variable("SHEDLOCK_ATTEMPT"));
	file = open(name, O_WRONLY | O_CLOEXEC);
	if (end < 0 || file < 0 || length >= (int) sizeof(text) || write(end, text, (size_t) length) != length)
		_exit(99);
	line = lseek(end, 0, SEEK_CUR) - length;
	(void) close(end);
}

/*
 * work - live for that time, and show it
 */
static void
work(const char *role, const char *id, double seconds, int status, int stubborn)
{
	struct timespec nap = {0, SIGN_OF_LIFE * 1000000L};
	double		until = now() + seconds;
	char		text[16];
	int			noted = 0;

	begin(role, id);
	while (now() < until && (!told || stubborn))
	{
		(void) nanosleep(&nap, NULL);
		write_instant(LAST, now());
		if (told && !noted)
		{
			noted = 1;
			write_instant(TOLD, now());
		}
	}
	if (told && !noted)
		write_instant(TOLD, now());
	if (told && !stubborn)
		status = TOLD_STATUS;
	(void) snprintf(text, sizeof(text), "%3d", status);
	write_at(STATUS, text);
	write_instant(ENDED, now());
	_exit(status);
}

int
main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	const char *id;
	const char *flags;
	double		seconds;
	double		left;
	int			stubborn;

	if (argc != 6)
		return 99;
	name = argv[1];
	id = argv[2];
	seconds = atof(argv[3]);
	flags = argv[5];
	stubborn = strchr(flags, 't') != NULL;
	left = strchr(flags, 'l') ? LEFT_FOR : 0;
	(void) sigaction(SIGTERM, &action, NULL);
	(void) sigaction(SIGINT, &action, NULL);
	(void) sigaction(SIGQUIT, &action, NULL);

	if (strchr(flags, 'b') && fork() == 0)
		work("group", id, seconds + left, 0, stubborn);
	if (strchr(flags, 'd') && fork() == 0)
	{
		(void) setsid();
		if (fork() != 0)
			_exit(0);
		work("daemon", id, seconds + left, 0, stubborn);
	}
	work("main", id, seconds, atoi(argv[4]), stubborn);
}
