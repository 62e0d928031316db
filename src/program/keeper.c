/*-------------------------------------------------------------------------
 *
 * keeper.c
 *	  The process that the user starts: it keeps the lock, and reports the run.
 *
 * It is the parent of the guardian, and a subreaper as well.  So each of the two can
 * end all processes if the other one is killed or stopped: the guardian when it hears
 * nothing in time, the keeper in a handler of signals.c, because it may be inside libpq.
 *
 * The lease is extended only while the guardian answers; else its command might be at
 * work forever.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program/program.h"

/* From one look at notifications to the next */
#define LISTEN_NAP			USEC_PER_SEC

/*
 * The outcome of a run that gives its tick back, because the program was told to end before
 * the command had done its work: the attempt does not count
 */
#define RETURNED			"returned"

/* How long a server may keep the program busy with nothing, beyond what the call may take */
#define BEGIN_PATIENCE		(300 * USEC_PER_SEC)

/* What the keeper knows */
typedef struct Keeper
{
	const Options *options;
	Server	   *server;
	Run			run;
	Start		start;
	pid_t		guardian;		/* 0: none, or reaped */
	int			socket;			/* to the guardian */
	int			guardian_end;	/* its end, until it is started */
	Usec		listen_at;		/* it looks at no notification before */
} Keeper;

/*
 * prepare - get what a run needs from the system, before there is one
 */
static void
prepare(Keeper *keeper)
{
	const Options *options = keeper->options;
	int			ends[2];

	HoldStreams();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 ||
		!PrepareSignals(ends[0]) ||
		prctl(PR_SET_CHILD_SUBREAPER, 1L) != 0)
		Die(EXIT_NO_RESOURCES, "could not prepare a run: %s", strerror(errno));
	FindChildren();
	keeper->socket = ends[0];
	keeper->guardian_end = ends[1];

	keeper->start = (Start)
	{
		.options = options,.run = &keeper->run,.keeper = ends[1]
	};
	if (options->tail > 0)
	{
		keeper->start.tail = mmap(NULL, sizeof(Tail), PROT_READ | PROT_WRITE,
								  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (keeper->start.tail == MAP_FAILED)
			Die(EXIT_NO_RESOURCES, "could not get memory: %s", strerror(errno));
	}

	/* Output that cannot be written neither ends nor stops the keeper. */
	NoteIgnored(&keeper->start.ignored);
	(void) signal(SIGPIPE, SIG_IGN);
	(void) signal(SIGXFSZ, SIG_IGN);
	(void) signal(SIGTTOU, SIG_IGN);
}

/*
 * start_guardian - start the guardian, which starts the command
 *
 * Signals are blocked meanwhile, because the guardian has the handlers at first.
 */
static bool
start_guardian(Keeper *keeper)
{
	sigset_t	all;
	sigset_t	old;
	pid_t		pid;

	(void) sigfillset(&all);
	(void) sigprocmask(SIG_BLOCK, &all, &old);
	pid = fork();
	if (pid == 0)
	{
		ForgetServer(keeper->server);
		(void) close(keeper->socket);
		Guard(&keeper->start);
	}
	keeper->guardian = pid > 0 ? pid : 0;
	NoteGuardian(keeper->guardian);
	(void) close(keeper->guardian_end);
	keeper->guardian_end = -1;
	(void) sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		Complain("could not create a process: %s", strerror(errno));
	return pid > 0;
}

/*
 * tell_guardian - send an order; the lease is as the run says
 */
static void
tell_guardian(const Keeper *keeper, MessageKind kind)
{
	Message		message = {.kind = kind,.end = keeper->run.end,.ending = keeper->run.at_end};

	(void) send(keeper->socket, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/*
 * extend - extend the lease, if the guardian has heard of the last extension
 *
 * Returns when to try again.
 */
static Usec
extend(Keeper *keeper, Usec answered)
{
	const Lease *lease = &keeper->run.lease;
	Usec		now = Now();

	if (now >= LeaseStop(lease, keeper->run.end))
		return NEVER;
	if (answered != keeper->run.end)
	{
		/* in case there was no memory for the message */
		tell_guardian(keeper, ORDER_EXTENDED);
		return now + RETRY_NAP;
	}
	switch (ExtendRun(keeper->server, &keeper->run))
	{
		case ANSWER_YES:
			SetLastResort(lease, keeper->run.end);
			tell_guardian(keeper, ORDER_EXTENDED);
			return keeper->run.renewed + lease->heartbeat;
		case ANSWER_NO:
			tell_guardian(keeper, ORDER_LOST);
			return NEVER;
		case ANSWER_NONE:
			break;
	}
	return Now() + RETRY_NAP;
}

/*
 * hear - hear whether the lock may have been lost; returns when to extend the lease
 *
 * came: something is there to read.  Anybody can send a notification, and many of them: it
 * is only a reason to ask now.  After one, others are left unread for a while.
 */
static Usec
hear(Keeper *keeper, Usec next, bool came)
{
	Usec		now = Now();
	bool		heard;

	Listen(keeper->server);
	heard = HearsOf(keeper->server, keeper->run.token);
	if (came || heard)
		keeper->listen_at = now + LISTEN_NAP;
	return heard && now < next ? now : next;
}

/*
 * reap_strangers - reap children other than the guardian
 *
 * The first process of a container gets what has lost its parent there.
 */
static void
reap_strangers(const Keeper *keeper)
{
	siginfo_t	child = {0};

	while (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		   child.si_pid != 0 && child.si_pid != keeper->guardian)
	{
		(void) waitpid(child.si_pid, NULL, WNOHANG);
		child.si_pid = 0;
	}
}

/*
 * keep_lock - extend the lease until the guardian reports the end of the command
 *
 * Returns false if the guardian ended without a report.
 */
static bool
keep_lock(Keeper *keeper, Message *report)
{
	Usec		answered = keeper->run.end;
	Usec		next = keeper->run.renewed + keeper->run.lease.heartbeat;
	struct pollfd polls[] = {
		{.fd = keeper->socket,.events = POLLIN},
		{.fd = -1,.events = POLLIN}
	};

	for (;;)
	{
		Usec		wake = next;
		bool		listens = next != NEVER && Now() >= keeper->listen_at;

		/* what came with an answer makes no descriptor readable */
		if (listens)
			wake = next = hear(keeper, next, polls[1].revents != 0);
		else if (next != NEVER && keeper->listen_at < next)
			wake = keeper->listen_at;
		polls[0].revents = polls[1].revents = 0;
		polls[1].fd = listens ? ListeningSocket(keeper->server) : -1;
		if (poll(polls, 2, PollTimeout(wake)) > 0 && polls[0].revents != 0)
		{
			ssize_t		length = recv(keeper->socket, report, sizeof(*report), MSG_DONTWAIT);

			/*
			 * ECONNRESET comes once, and before the reports: the guardian has
			 * ended without reading the last order.
			 */
			if (length < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET))
				continue;
			if (length != sizeof(*report))
				return false;
			if (report->kind == REPORT_ENDED)
				return true;
			answered = report->end;
		}
		if (Now() >= next)
			next = extend(keeper, answered);
		reap_strangers(keeper);
	}
}

/*
 * reap_guardian - the wait status of the guardian, which has ended
 */
static int
reap_guardian(Keeper *keeper)
{
	pid_t		pid = keeper->guardian;
	int			status = 0;

	keeper->guardian = 0;
	NoteGuardian(0);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/*
 * exit_code - what a shell makes of a wait status
 */
static int
exit_code(int status)
{
	return WIFSIGNALED(status) ? EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

/*
 * describe - the message of the history
 */
static char *
describe(const Keeper *keeper, const char *outcome, int status)
{
	char	   *tail = NULL;
	char		reason[80];
	int			told;

	if (strcmp(outcome, "succeeded") == 0)
		return NULL;
	if (keeper->start.tail)
		tail = TailText(keeper->start.tail, keeper->options->tail, !TakesUnicode(keeper->server));
	if (tail)
		return tail;
	told = ToldSignal();
	if (keeper->guardian_end >= 0)
		(void) snprintf(reason, sizeof(reason), "the command was not started");
	else if (strcmp(outcome, RETURNED) == 0 && told != 0)
		(void) snprintf(reason, sizeof(reason), "the program got signal %d (%s)",
						told, strsignal(told));
	else if (WIFSIGNALED(status))
		(void) snprintf(reason, sizeof(reason), "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		(void) snprintf(reason, sizeof(reason), "exit status %d", WEXITSTATUS(status));
	return strdup(reason);
}

/*
 * end_run - tell the server how the run ended; returns false if the lock was lost before
 *
 * Tries as long as the lease lasts, or until a signal tells the program to end.
 */
static bool
end_run(Keeper *keeper, const char *outcome, int status, int code)
{
	char	   *message = describe(keeper, outcome, status);
	int			told_before = ToldCount();
	Answer		answer;

	for (;;)
	{
		answer = EndRun(keeper->server, &keeper->run, outcome, message, code);
		if (answer != ANSWER_NONE || Now() >= keeper->run.end || ToldCount() != told_before)
			break;
		Nap(RETRY_NAP);
	}
	free(message);
	return answer == ANSWER_YES;
}

/*
 * finish - report the run, whose processes are gone; find the exit status of the program
 */
static int
finish(Keeper *keeper, Ending ending, int status)
{
	static const char *const outcomes[] = {
		[ENDING_TIMED_OUT] = "timed out",
		[ENDING_JOB_LIMIT] = "timed out",
		[ENDING_TOLD] = RETURNED,
		[ENDING_LOST] = "lost"
	};
	const char *outcome = outcomes[ending];
	bool		lost = ending == ENDING_LOST;
	int			told;

	/* A server may not let a connect come to its end. */
	NoteFinished();
	SetLastResort(&keeper->run.lease, keeper->run.end + LeasePatience(&keeper->run.lease) + keeper->run.lease.margin);

	/* systemd sends SIGTERM to the command as well, which may end first. */
	told = ToldSignal();
	if (ending == ENDING_NONE && told != 0 && exit_code(status) == EXIT_SIGNAL + told)
		outcome = RETURNED;
	if (outcome == NULL)
		outcome = status == 0 ? "succeeded" : "failed";
	if (!lost)
		lost = !end_run(keeper, outcome, status, exit_code(status));
	Disconnect(keeper->server);

	if (lost)
	{
		Complain("lock \"%s\" was lost", keeper->options->name);
		return EXIT_LOST;
	}
	if (ending == ENDING_TIMED_OUT || ending == ENDING_JOB_LIMIT)
	{
		bool		by_option;

		by_option = ending == ENDING_TIMED_OUT ||
			(keeper->options->schedule && keeper->options->at_most != NEVER);
		Complain("\"%s\" was ended at %s", keeper->options->command[0],
				 by_option ? "--at-most" : "the lock_at_most_for of its job");
		return EXIT_TIMED_OUT;
	}
	return exit_code(status);
}

/*
 * kill_orphans - kill what a dead guardian has left, the children of this process now
 *
 * Extends the lease meanwhile.
 */
static void
kill_orphans(Keeper *keeper)
{
	Usec		next = keeper->run.renewed + keeper->run.lease.heartbeat;

	while (ReapChildren())
	{
		KillOnce();
		if (Now() >= next)
			next = extend(keeper, keeper->run.end);
		Nap(KILL_NAP);
	}
}

/*
 * run_command - start the command, keep the lock, and end the run
 */
static int
run_command(Keeper *keeper)
{
	Message		report;
	int			status;

	SetLastResort(&keeper->run.lease, keeper->run.end);
	if (!start_guardian(keeper))
		return finish(keeper, ENDING_NONE, W_EXITCODE(EXIT_NO_RESOURCES, 0));
	if (keep_lock(keeper, &report))
	{
		(void) reap_guardian(keeper);
		return finish(keeper, report.ending, report.number);
	}
	status = reap_guardian(keeper);
	kill_orphans(keeper);
	if (status == 0)
		status = W_EXITCODE(EXIT_NO_RESOURCES, 0);
	return finish(keeper, ENDING_NONE, status);
}

/*
 * end_early - end the program before the command was started: it was told to, or no run began
 */
static int
end_early(Keeper *keeper, int status)
{
	int			number = ToldSignal();

	if (keeper->run.token != 0)
		(void) end_run(keeper, RETURNED, 0, -1);
	if (status == EXIT_LOST && number == 0)
		Complain("the lease could not be extended: \"%s\" was not started", keeper->options->command[0]);
	Disconnect(keeper->server);
	if (number == 0)
		return status == EXIT_BUSY ? keeper->options->busy_exit : status;
	(void) signal(number, SIG_DFL);
	(void) raise(number);
	return EXIT_SIGNAL + number;
}

/*
 * KeepRun - begin a run, run the command, and end it; returns the exit status of the program
 */
int
KeepRun(const Options *options)
{
	Keeper		keeper = {.options = options};
	int			status;

	prepare(&keeper);
	keeper.server = NewServer(options, keeper.guardian_end);
	CatchSignals();
	SetLastResort(&keeper.run.lease, Now() + (options->wait > 0 ? options->wait : 0) + options->lease.length + BEGIN_PATIENCE);
	status = BeginRun(keeper.server, &keeper.run);
	if (status != 0 || ToldSignal() != 0)
		return end_early(&keeper, status);
	if (options->verbose)
		Complain("run of \"%s\" with token %lld begins", keeper.options->name, (long long) keeper.run.token);
	return run_command(&keeper);
}
