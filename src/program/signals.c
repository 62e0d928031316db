/*-------------------------------------------------------------------------
 *
 * signals.c
 *	  The signals that the keeper gets, and the last resort: both act in a handler.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "program/program.h"

/* The signals that the command gets instead of the program */
static const int passed_signals[] = {
	SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGALRM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT
};

#define PASSED_SIGNALS		(sizeof(passed_signals) / sizeof(passed_signals[0]))

/* The signal of the timer: not SIGALRM, because an alarm of the caller outlives an exec */
#define TIMER_SIGNAL		SIGRTMIN

/* For the signal handlers */
static int	guardian_socket;
static volatile sig_atomic_t guardian_pid = 0;	/* 0: none, or reaped */
static volatile sig_atomic_t started = 0;	/* the guardian was */
static volatile sig_atomic_t finished = 0;	/* no process of the command is
											 * left */
static volatile sig_atomic_t told_signal = 0;	/* the first one that tells
												 * the program to end */
static volatile sig_atomic_t told_count = 0;	/* how many did */

static timer_t last_resort;

/*
 * end_at_once - end by a signal, in its handler
 *
 * The first process of a PID namespace ignores it.
 */
static void
end_at_once(int number)
{
	sigset_t	ends;

	(void) sigemptyset(&ends);
	(void) sigaddset(&ends, number);
	(void) signal(number, SIG_DFL);
	(void) raise(number);
	(void) sigprocmask(SIG_UNBLOCK, &ends, NULL);
	_exit(EXIT_SIGNAL + number);
}

/*
 * pass_signal - signal handler: pass a signal on to the guardian
 *
 * Before there is one, only a signal that ends the program counts.  The message waits in
 * the guardian's end of the socket, and wakes the keeper.
 */
static void
pass_signal(int number)
{
	int			saved_errno = errno;
	Message		message = {.kind = ORDER_SIGNAL,.number = number};
	bool		ends = number == SIGTERM || number == SIGINT || number == SIGQUIT;

	if (!started && (number == SIGHUP || number == SIGALRM))
		ends = true;
	if (!started && !ends)
		return;
	if (MayEndAtOnce)
		end_at_once(number);
	if (told_signal == 0 && ends)
		told_signal = number;
	told_count += ends;
	(void) send(guardian_socket, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT);
	errno = saved_errno;
}

/*
 * end_all - signal handler of the timer: the lease is over, and processes may be left
 *
 * Or no run has begun, because a server keeps the program busy.
 *
 * Makes only calls that are allowed in a signal handler.  The same signal from a process
 * counts for nothing.
 */
static void
end_all(int number, siginfo_t *info, void *context)
{
	static const char text[] = "shedlock: the lease is over\n";
	static const char no_server[] = "shedlock: the server does not come to an end\n";

	(void) number;
	(void) context;
	if (info->si_code != SI_TIMER)
		return;
	ShowErrorAgain();
	if (!started)
	{
		WriteError(no_server, sizeof(no_server) - 1);
		_exit(EXIT_NO_SERVER);
	}
	if (guardian_pid > 0)
		(void) kill((pid_t) guardian_pid, SIGKILL);
	if (!finished)
		KillChildren();
	WriteError(text, sizeof(text) - 1);
	_exit(EXIT_LOST);
}

/*
 * PrepareSignals - get what the handlers need, before the first signal is caught
 *
 * guardian: the keeper's socket to it.  Returns false, with errno, if the system refuses a timer.
 */
bool
PrepareSignals(int guardian)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,.sigev_signo = TIMER_SIGNAL};

	guardian_socket = guardian;
	return timer_create(CLOCK_BOOTTIME, &event, &last_resort) == 0;
}

/*
 * CatchSignals - install the handlers; what the caller of the program ignores stays ignored
 */
void
CatchSignals(void)
{
	struct sigaction action = {.sa_flags = SA_RESTART};
	struct sigaction old;
	sigset_t	none;

	(void) sigfillset(&action.sa_mask);
	for (size_t i = 0; i < PASSED_SIGNALS; i++)
	{
		action.sa_handler = pass_signal;
		if (sigaction(passed_signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			(void) sigaction(passed_signals[i], &action, NULL);
	}
	action.sa_flags |= SA_SIGINFO;
	action.sa_sigaction = end_all;
	(void) sigaction(TIMER_SIGNAL, &action, NULL);

	/*
	 * What the caller blocks would not arrive; nor would a status, if it
	 * ignores SIGCHLD.
	 */
	(void) signal(SIGCHLD, SIG_DFL);
	(void) sigemptyset(&none);
	(void) sigprocmask(SIG_SETMASK, &none, NULL);
}

/*
 * SetLastResort - end all processes at that end of a lease
 */
void
SetLastResort(const Lease *lease, Usec end)
{
	Usec		when = LeaseLastResort(lease, end);
	struct itimerspec time = {
		.it_value.tv_sec = when / USEC_PER_SEC,
		.it_value.tv_nsec = when % USEC_PER_SEC * 1000 + 1
	};

	(void) timer_settime(last_resort, TIMER_ABSTIME, &time, NULL);
}

/*
 * NoteIgnored - note the signals that the program's caller ignores
 */
void
NoteIgnored(sigset_t *ignored)
{
	(void) sigemptyset(ignored);
	for (int number = 1; number < NSIG; number++)
	{
		struct sigaction action;

		if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
			(void) sigaddset(ignored, number);
	}
}

/*
 * NoteGuardian - note that the guardian was started
 *
 * pid: 0 if it could not be, or before it is reaped: the last resort must not kill another process.
 */
void
NoteGuardian(pid_t pid)
{
	guardian_pid = pid;
	started = 1;
}

/*
 * NoteFinished - note that no process of the command is left
 */
void
NoteFinished(void)
{
	finished = 1;
}

/*
 * ToldSignal - the first signal that told the program to end; 0: none
 */
int
ToldSignal(void)
{
	return (int) told_signal;
}

/*
 * ToldCount - how many signals told the program to end
 */
int
ToldCount(void)
{
	return (int) told_count;
}
