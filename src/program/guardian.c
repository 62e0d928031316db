/*-------------------------------------------------------------------------
 *
 * guardian.c
 *	  The process that starts the command, watches it, and ends it in time.
 *
 * It never talks to the server, so no server can delay it.  It looks at its clock
 * whenever it wakes; a timer on the same clock, which counts suspensions, wakes it.
 * Once it has told the command to end because the lease was not extended, no extension
 * counts, and none is answered, so that the keeper sends no more.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "program/program.h"

/*
 * A second signal to end the command kills it, if it comes so soon.  If it comes sooner
 * still, it is the same one: timeout(1) sends it to the process, and then to its group.
 */
#define IMPATIENCE			(1 * USEC_PER_SEC)
#define SAME_SIGNAL			(USEC_PER_SEC / 5)

/* How long what the command has left running may take to end by itself, as the "tee" of a pipe does */
#define LEFTOVER_PATIENCE	(1 * USEC_PER_SEC)

/*
 * How long a reader of the command's output may pause at its end; shorter if the program
 * was told to end, or the lock is lost.
 */
#define OUTPUT_PATIENCE		(10 * USEC_PER_SEC)
#define OUTPUT_HASTE		(1 * USEC_PER_SEC)

/* How long the output is read even if the lease is at its end: its reader may be there */
#define OUTPUT_LEAST		(50 * USEC_PER_MS)

/* How long the guardian does not look at anything else meanwhile */
#define OUTPUT_NAP			(2 * USEC_PER_MS)

/* What the guardian knows */
typedef struct Guardian
{
	const Start *start;
	const Lease *lease;
	int			timer;			/* timerfd of CLOCK_BOOTTIME */
	int			children;		/* signalfd of SIGCHLD */
	bool		alone;			/* the keeper is gone */
	bool		command_ended;	/* that was noticed */
	bool		lease_over;		/* no extension counts any more */
	Usec		lease_end;
	Ending		at_end;			/* what the end of the lease means */
	Ending		ending;

	/* When it is time for something; NEVER: not yet, or not any more */
	Usec		at_most_at;		/* the command has had its time */
	Usec		leftovers_at;	/* what it has left running has had its time */
	Usec		kill_at;		/* the processes were told to end, and are
								 * killed */
	Usec		told_at;		/* when a signal last told them to end */
	int			told_by;		/* that signal */
} Guardian;

/*
 * set_number - set a variable of the environment to a number
 */
static void
set_number(const char *variable, long long number)
{
	char		digits[24];

	(void) snprintf(digits, sizeof(digits), "%lld", number);
	(void) setenv(variable, digits, 1);
}

/*
 * set_environment - tell the command of its run
 */
static void
set_environment(const Start *start)
{
	const Run  *run = start->run;

	(void) setenv("SHEDLOCK_NAME", start->options->name, 1);
	set_number("SHEDLOCK_TOKEN", run->token);
	if (run->attempt > 0)
	{
		(void) setenv("SHEDLOCK_TICK", run->tick, 1);
		set_number("SHEDLOCK_ATTEMPT", run->attempt);
	}
	else
	{
		(void) unsetenv("SHEDLOCK_TICK");
		(void) unsetenv("SHEDLOCK_ATTEMPT");
	}
}

/*
 * execute - become the command
 *
 * It reads no standard input: in a process group of its own it would be stopped by a
 * terminal.  Signals that the caller of the program ignores stay ignored, as after any exec.
 */
static void
__attribute__((noreturn))
execute(const Start *start, pid_t guardian)
{
	char	  **command = start->options->command;
	int			null;
	int			problem;
	sigset_t	none;

	/* The leader of a process group that signals reach as a whole */
	(void) setpgid(0, 0);
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != guardian)
		_exit(EXIT_NO_RESOURCES);

	null = open("/dev/null", O_RDONLY);
	if (null < 0)
	{
		Complain("could not open \"/dev/null\": %s", strerror(errno));
		_exit(EXIT_NO_RESOURCES);
	}
	if (null > 0)
	{
		(void) dup2(null, STDIN_FILENO);
		(void) close(null);
	}
	ConnectOutput();

	set_environment(start);
	for (int number = 1; number < NSIG; number++)
		(void) signal(number, sigismember(&start->ignored, number) == 1 ? SIG_IGN : SIG_DFL);
	(void) sigemptyset(&none);
	(void) sigprocmask(SIG_SETMASK, &none, NULL);
	if (start->options->watch)
		Watch(start->options);
	(void) execvp(command[0], command);
	problem = errno;
	(void) signal(SIGPIPE, SIG_IGN);
	(void) signal(SIGXFSZ, SIG_IGN);
	Complain("could not execute \"%s\": %s", command[0], strerror(problem));
	_exit(problem == ENOENT ? EXIT_NO_COMMAND : EXIT_NO_EXEC);
}

/*
 * start_command - start the command
 */
static void
start_command(const Start *start)
{
	pid_t		guardian = getpid();
	pid_t		pid;

	if (start->tail)
		OpenPipe(start->tail);
	pid = fork();
	if (pid < 0)
		Die(EXIT_NO_RESOURCES, "could not create a process: %s", strerror(errno));
	if (pid == 0)
		execute(start, guardian);
	(void) setpgid(pid, pid);
	WatchCommand(pid);
	CopyOutput();
}

/*
 * stop - tell the processes to end, and set the time after which they are killed
 *
 * A command that is at work decides about the processes it has started.
 */
static void
stop(Guardian *guardian, int number)
{
	int			status;

	guardian->at_most_at = NEVER;
	guardian->leftovers_at = NEVER;
	if (guardian->kill_at == NEVER)
		guardian->kill_at = Now() + guardian->lease->kill_after;
	if (CommandEnded(&status))
	{
		SignalDescendants(number);
		SignalDescendants(SIGCONT);
	}
	else
	{
		SignalCommand(number);
		SignalCommand(SIGCONT);
	}
}

/*
 * end_command - end the command for that reason
 */
static void
end_command(Guardian *guardian, Ending ending)
{
	guardian->ending = ending;
	stop(guardian, SIGTERM);
}

/*
 * end_lease - end the command for that reason, before the lease ends
 *
 * What was told to end before, and is let do so, has ended for that reason.
 */
static void
end_lease(Guardian *guardian, Ending ending)
{
	Usec		latest = LeaseKill(guardian->lease, guardian->lease_end);

	guardian->lease_over = true;
	if (ending == ENDING_JOB_LIMIT && guardian->ending != ENDING_NONE)
		ending = guardian->ending;
	end_command(guardian, ending);
	if (latest < guardian->kill_at)
		guardian->kill_at = latest;
}

/*
 * pass_signal - pass a signal of the program on to the command
 */
static void
pass_signal(Guardian *guardian, int number)
{
	Usec		now = Now();
	bool		ends = number == SIGTERM || number == SIGINT || number == SIGQUIT;
	int			status;

	/* A watcher ends by it, too. */
	if (!ends && !(number == SIGHUP && guardian->start->options->watch))
	{
		SignalCommand(number);
		return;
	}
	if (guardian->ending == ENDING_NONE && !CommandEnded(&status))
		guardian->ending = ENDING_TOLD;
	if (guardian->told_by != 0 && now - guardian->told_at < SAME_SIGNAL)
	{
		if (number == guardian->told_by)
			return;
	}
	else if (guardian->told_by != 0 && now - guardian->told_at < IMPATIENCE)
		guardian->kill_at = now;
	guardian->told_at = now;
	guardian->told_by = number;
	stop(guardian, number);
}

/*
 * report - tell the keeper; if it does not listen any more, it is stopped or gone
 */
static void
report(const Guardian *guardian, const Message *message)
{
	(void) send(guardian->start->keeper, message, sizeof(*message), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/*
 * obey - do what the keeper says
 */
static void
obey(Guardian *guardian)
{
	Message		message;
	ssize_t		length = recv(guardian->start->keeper, &message, sizeof(message), MSG_DONTWAIT);

	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (length != sizeof(message))
	{
		/* Nobody extends the lease now. */
		guardian->alone = true;
		if (guardian->ending != ENDING_LOST)
			end_lease(guardian, ENDING_LOST);
		return;
	}
	switch (message.kind)
	{
		case ORDER_EXTENDED:
			if (guardian->lease_over)
				break;
			guardian->lease_end = message.end;
			guardian->at_end = message.ending;
			message.kind = REPORT_EXTENDED;
			report(guardian, &message);
			break;
		case ORDER_LOST:
			if (guardian->ending != ENDING_LOST)
				end_lease(guardian, ENDING_LOST);
			break;
		case ORDER_SIGNAL:
			pass_signal(guardian, message.number);
			break;
		default:
			break;
	}
}

/*
 * act - do what it is time for
 *
 * This comes before any message, so that an extension that comes too late does not
 * count.  A process may take its time to die, in the kernel: the lease is extended
 * meanwhile.
 */
static void
act(Guardian *guardian)
{
	Usec		now = Now();

	if (!guardian->lease_over && now >= LeaseStop(guardian->lease, guardian->lease_end))
		end_lease(guardian, guardian->at_end);
	if (now >= guardian->at_most_at)
		end_command(guardian, ENDING_TIMED_OUT);
	if (now >= guardian->leftovers_at)
	{
		Complain("\"%s\" has left processes running: they are ended, too",
				 guardian->start->options->command[0]);
		stop(guardian, SIGTERM);
	}
	if (now >= guardian->kill_at)
	{
		KillOnce();
		guardian->kill_at = now + KILL_NAP;
	}
}

/*
 * next_time - when it is time for something again
 */
static Usec
next_time(const Guardian *guardian)
{
	Usec		next = NEVER;

	if (!guardian->lease_over)
		next = LeaseStop(guardian->lease, guardian->lease_end);
	if (guardian->at_most_at < next)
		next = guardian->at_most_at;
	if (guardian->leftovers_at < next)
		next = guardian->leftovers_at;
	if (guardian->kill_at < next)
		next = guardian->kill_at;
	return next;
}

/*
 * set_timer - wake at that instant
 */
static void
set_timer(int timer, Usec when)
{
	struct itimerspec time = {
		.it_value.tv_sec = when / USEC_PER_SEC,
		.it_value.tv_nsec = when % USEC_PER_SEC * 1000 + 1
	};

	(void) timerfd_settime(timer, TFD_TIMER_ABSTIME, &time, NULL);
}

/*
 * notice_end - the command has ended, but processes are left
 */
static void
notice_end(Guardian *guardian)
{
	int			status;

	if (!guardian->command_ended && CommandEnded(&status))
	{
		guardian->command_ended = true;
		guardian->at_most_at = NEVER;
		if (guardian->kill_at == NEVER)
			guardian->leftovers_at = Now() + LEFTOVER_PATIENCE;
		else
			stop(guardian, SIGTERM);
	}
}

/*
 * watch - watch the command until all its processes are gone
 */
static void
watch(Guardian *guardian)
{
	while (ReapChildren())
	{
		struct pollfd polls[] = {
			{.fd = guardian->timer,.events = POLLIN},
			{.fd = guardian->children,.events = POLLIN},
			{.fd = guardian->alone ? -1 : guardian->start->keeper,.events = POLLIN}
		};
		struct signalfd_siginfo ignored;
		Usec		next;

		notice_end(guardian);
		next = next_time(guardian);
		set_timer(guardian->timer, next);
		if (poll(polls, 3, PollTimeout(next)) < 0)
			continue;

		/* A command that has ended is not judged by what comes later. */
		if (!ReapChildren())
			break;
		notice_end(guardian);
		act(guardian);
		if (polls[1].revents)
			(void) !read(guardian->children, &ignored, sizeof(ignored));
		if (polls[2].revents)
			obey(guardian);
	}
}

/*
 * finish_output - wait until all is copied that the processes have written
 *
 * The lock is held meanwhile, so that the history has the end of it.
 */
static void
finish_output(Guardian *guardian)
{
	Usec		start = Now();

	while (!OutputCopied())
	{
		bool		hurry = guardian->ending != ENDING_NONE || guardian->told_by != 0;
		Usec		now = Now();

		if (now - start >= (hurry ? OUTPUT_HASTE : OUTPUT_PATIENCE) ||
			(now - start >= OUTPUT_LEAST && now >= LeaseKill(guardian->lease, guardian->lease_end)))
		{
			Complain("the end of the output of \"%s\" is lost: nobody reads it",
					 guardian->start->options->command[0]);
			AbandonOutput();
			break;
		}
		if (!guardian->alone)
			obey(guardian);
		Nap(OUTPUT_NAP);
	}
}

/*
 * open_descriptors - what the guardian waits for
 */
static void
open_descriptors(Guardian *guardian)
{
	sigset_t	child;

	(void) sigemptyset(&child);
	(void) sigaddset(&child, SIGCHLD);
	guardian->children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	guardian->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (guardian->children < 0 || guardian->timer < 0)
		Die(EXIT_NO_RESOURCES, "could not watch the command: %s", strerror(errno));
}

/*
 * leave_signals_to_keeper - block all signals; the keeper gets them, and passes them on
 *
 * The handlers of the keeper must not run in the command's process, before it is the
 * command.
 */
static void
leave_signals_to_keeper(void)
{
	sigset_t	all;

	(void) sigfillset(&all);
	(void) sigprocmask(SIG_SETMASK, &all, NULL);
	for (int number = 1; number < NSIG; number++)
	{
		struct sigaction action;

		if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			(void) signal(number, SIG_DFL);
	}
}

/*
 * Guard - the life of the guardian
 *
 * It leaves the keeper's process group, because a terminal sends signals to all of it.
 */
void
Guard(const Start *start)
{
	const Options *options = start->options;
	Guardian	guardian = {.start = start,.lease = &start->run->lease};
	Message		ended = {.kind = REPORT_ENDED};

	(void) setpgid(0, 0);
	(void) prctl(PR_SET_NAME, "shedlock-guard");
	(void) prctl(PR_SET_CHILD_SUBREAPER, 1L);
	FindChildren();
	leave_signals_to_keeper();
	open_descriptors(&guardian);
	guardian.lease_end = start->run->end;
	guardian.at_end = start->run->at_end;
	guardian.kill_at = NEVER;
	guardian.leftovers_at = NEVER;
	guardian.at_most_at = options->at_most == NEVER ? NEVER : Now() + options->at_most;

	/* The system may have stood still since the lease began. */
	if (Now() >= LeaseStop(guardian.lease, guardian.lease_end))
		guardian.ending = ENDING_LOST;
	else
	{
		start_command(start);
		watch(&guardian);
		finish_output(&guardian);
	}

	(void) CommandEnded(&ended.number);
	ended.ending = guardian.ending;
	report(&guardian, &ended);
	_exit(EXIT_SUCCESS);
}
