/*-------------------------------------------------------------------------
 *
 * supervisor.c
 *	  The process that begins a run of --watch again when one has ended.
 *
 * Whatever ends a run, such as a lease that was lost, ends its process.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program/program.h"

/* From the end of a run to the next; doubled if that was short */
#define NAP_FIRST			USEC_PER_SEC
#define NAP_MAX				(30 * USEC_PER_SEC)

static const int end_signals[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP};

#define END_SIGNALS			(sizeof(end_signals) / sizeof(end_signals[0]))

static volatile sig_atomic_t keeper = 0;	/* process; 0: none */
static volatile sig_atomic_t told = 0;

/*
 * pass_signal - signal handler: note that the program is to end, and pass that on
 */
static void
pass_signal(int number)
{
	int			saved_errno = errno;

	told = 1;
	if (keeper > 0)
		(void) kill((pid_t) keeper, number);
	errno = saved_errno;
}

/*
 * start_keeper - start a process that keeps the lock, and the watcher at work; false if it cannot
 *
 * ends: the signals that end the program, which are blocked, so that none is lost.
 */
static bool
start_keeper(const Options *options, const sigset_t *ends, const sigset_t *unblocked)
{
	pid_t		supervisor = getpid();
	pid_t		pid = fork();

	if (pid == 0)
	{
		for (size_t i = 0; i < END_SIGNALS; i++)
		{
			if (sigismember(ends, end_signals[i]) == 1)
				(void) signal(end_signals[i], SIG_DFL);
		}
		(void) sigprocmask(SIG_SETMASK, unblocked, NULL);
		(void) prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != supervisor)
			_exit(EXIT_NO_RESOURCES);
		exit(KeepRun(options));
	}
	keeper = pid > 0 ? pid : 0;
	if (pid < 0)
		Complain("could not create a process: %s", strerror(errno));
	return pid > 0;
}

/*
 * await_keeper - wait for its end; returns its exit status, or 0
 *
 * The first process of a container gets what a dead keeper has left, and nobody else reaps it.
 */
static int
await_keeper(void)
{
	int			status = 0;
	pid_t		pid;

	do
		pid = waitpid(-1, &status, 0);
	while (pid != keeper && (pid > 0 || errno == EINTR));
	keeper = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/*
 * Supervise - watch until the program is told to end; returns its exit status
 *
 * Only what no later run can do better ends it before: a call that is wrong.
 */
int
Supervise(const Options *options)
{
	struct sigaction action = {.sa_handler = pass_signal};
	struct sigaction old;
	Usec		nap = NAP_FIRST;
	sigset_t	ends;
	sigset_t	unblocked;

	HoldStreams();
	(void) sigemptyset(&ends);
	for (size_t i = 0; i < END_SIGNALS; i++)
	{
		/* what the caller ignores, as nohup(1) does, stays ignored */
		(void) sigaction(end_signals[i], NULL, &old);
		if (old.sa_handler == SIG_IGN)
			continue;
		(void) sigaction(end_signals[i], &action, NULL);
		(void) sigaddset(&ends, end_signals[i]);
	}
	/* What the caller blocks would not arrive. */
	(void) sigemptyset(&unblocked);
	(void) sigprocmask(SIG_SETMASK, &unblocked, NULL);
	(void) signal(SIGCHLD, SIG_DFL);
	while (!told)
	{
		Usec		start = Now();
		int			status = EXIT_NO_RESOURCES;
		bool		begun;

		(void) sigprocmask(SIG_BLOCK, &ends, &unblocked);
		begun = !told && start_keeper(options, &ends, &unblocked);
		(void) sigprocmask(SIG_SETMASK, &unblocked, NULL);
		if (begun)
			status = await_keeper();
		if (status == EXIT_USAGE)
			return status;
		nap = Now() - start > NAP_MAX ? NAP_FIRST : nap;
		for (Usec end = Now() + nap; Now() < end && !told;)
			Nap(NAP_FIRST / 10);
		nap = nap * 2 < NAP_MAX ? nap * 2 : NAP_MAX;
	}
	return EXIT_SUCCESS;
}
