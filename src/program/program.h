/*-------------------------------------------------------------------------
 *
 * program.h
 *	  The program shedlock: runs a command under a lock of a PostgreSQL database.
 *
 * Files call only files that come before them in the list below.  src/README has the
 * processes, and the times at which they act.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#ifndef SHEDLOCK_PROGRAM_H
#define SHEDLOCK_PROGRAM_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Exit statuses: those of sysexits.h, timeout(1) and env(1).  76 is of its own. */
#define EXIT_USAGE			64	/* the call is wrong */
#define EXIT_NO_SERVER		69	/* no server answered: the command was not
								 * started */
#define EXIT_NO_RESOURCES	71	/* the system refused a process or a pipe */
#define EXIT_BUSY			75	/* the lock is held or paused, or no tick is
								 * due */
#define EXIT_LOST			76	/* the lock was lost: the command was ended */
#define EXIT_TIMED_OUT		124 /* the command was ended at --at-most */
#define EXIT_NO_EXEC		126 /* the command cannot be executed */
#define EXIT_NO_COMMAND		127 /* the command was not found */
#define EXIT_SIGNAL			128 /* + number: the signal that ended the command */

/*
 * clock.c: microseconds, as durations or as instants of a clock that also counts
 * while the system is suspended
 */
typedef int64_t Usec;

#define USEC_PER_MS			INT64_C(1000)
#define USEC_PER_SEC		INT64_C(1000000)
#define NEVER				INT64_MAX

extern Usec Now(void);
extern void Nap(Usec duration);
extern int	PollTimeout(Usec until);

/* lease.c: the times of a lease */
typedef struct Lease
{
	Usec		length;			/* --lease */
	Usec		kill_after;		/* --kill-after: from SIGTERM to SIGKILL */
	Usec		heartbeat;		/* from one extension to the next */
	Usec		margin;			/* the processes are gone so long before its
								 * end */
} Lease;

/* The shortest time of a run, if that includes the time that the command has to end */
#define RUN_MIN				(1250 * USEC_PER_MS)

/* From an attempt to reach the server that failed to the next */
#define RETRY_NAP			(250 * USEC_PER_MS)

extern Usec MakeLease(Lease *lease);
extern void ShortenLease(Lease *lease, Usec length);
extern Usec LeasePatience(const Lease *lease);
extern Usec LeaseStop(const Lease *lease, Usec end);
extern Usec LeaseKill(const Lease *lease, Usec end);
extern Usec LeaseLastResort(const Lease *lease, Usec end);

/* complain.c: what the program says on standard error */
extern void HoldStreams(void);
extern void HideError(void);
extern void ShowErrorAgain(void);
extern void MaskControls(char *line);
extern void WriteError(const char *data, size_t length);
extern void Complain(const char *format,...) __attribute__((format(printf, 1, 2)));
extern void Die(int status, const char *format,...) __attribute__((format(printf, 2, 3), noreturn));

/* said.c: what was said lately on this host */
extern bool WasSaid(const char *text, Usec lately);

/* tail.c: the end of what the command wrote to standard error */
#define TAIL_MAX			4096	/* bytes: the history keeps no more */

typedef struct Tail
{
	_Atomic size_t total;		/* bytes that the command wrote */
	char		ring[TAIL_MAX];
} Tail;

extern void AppendTail(Tail *tail, const char *data, size_t length);
extern char *PrintableText(const char *bytes, bool ascii);
extern char *TailText(const Tail *tail, size_t length, bool ascii);

/* options.c */
typedef struct Options
{
	const char *dbname;			/* conninfo, or NULL */

	bool		watch;			/* this and the next three: tell the command
								 * of problems */
	Usec		every;			/* from one look at them to the next */
	Usec		each_at_most;	/* how long the command may take for one */
	const char *alive;			/* for sh; or NULL */

	const char *name;
	Lease		lease;
	Usec		at_most;		/* or NEVER */
	Usec		wait;			/* or -1: do not wait */

	/*
	 * Arguments of shedlock_job; NULL: its default, or without schedule no
	 * job
	 */
	const char *schedule;
	const char *time_zone;
	const char *attempts;
	const char *backoff;
	const char *catch_up;
	const char *max_late;
	const char *overdue_after;
	const char *slow_after;
	const char *job_description;
	const char *period;			/* of --once-every, which is a schedule; or
								 * NULL */

	/* Arguments of shedlock_run_begin; NULL: its default */
	const char *at_least;
	const char *locked_by;
	const char *description;

	Usec		quiet_for;		/* or 0 */
	int			busy_exit;
	size_t		tail;			/* bytes of standard error for the history */
	bool		verbose;
	bool		dry_run;
	char	  **command;		/* NULL with dry_run */
} Options;

extern void ParseOptions(int argc, char **argv, Options *options);

/* connection.c: where the lock is */
typedef struct Server Server;

extern Server *NewServer(const Options *options, int wakeup);
extern void Disconnect(Server *server);
extern void ForgetServer(Server *server);
extern bool TakesUnicode(const Server *server);

/* events.c: what the server tells of runs */
extern void Listen(Server *server);
extern int	ListeningSocket(const Server *server);
extern bool HearsOf(Server *server, int64_t token);

/* statement.c: the statements of server.c and dryrun.c */

/* server.c: the job, its lock, its run and its extensions */

/* No run is known, and none begins now: a signal may end the program at once */
extern volatile sig_atomic_t MayEndAtOnce;

/* How a command ends */
typedef enum Ending
{
	ENDING_NONE,				/* by itself */
	ENDING_TIMED_OUT,			/* --at-most */
	ENDING_JOB_LIMIT,			/* the lock_at_most_for of its job */
	ENDING_TOLD,				/* the program got SIGTERM, SIGINT or SIGQUIT */
	ENDING_LOST
} Ending;

typedef struct Run
{
	int64_t		token;			/* 0: none has begun */
	Lease		lease;			/* as asked for, or as long as the job allows */
	Usec		renewed;		/* the lease counts from then */
	Usec		end;			/* of the lease, at the earliest */
	Ending		at_end;			/* of a command that is at work then */
	char		tick[40];		/* ISO 8601, in UTC; empty without a schedule */
	int			attempt;
} Run;

typedef enum Answer
{
	ANSWER_NONE,				/* none, or none that counts: ask again */
	ANSWER_NO,
	ANSWER_YES
} Answer;

extern int	BeginRun(Server *server, Run *run);
extern Answer ExtendRun(Server *server, Run *run);
extern Answer EndRun(Server *server, const Run *run, const char *outcome, const char *message,
					 int exit_code);

/* dryrun.c: what would happen now */
extern int	ShowCall(Server *server);

/* tree.c: the processes below this one */
/* From one round of killing to the next */
#define KILL_NAP			(10 * USEC_PER_MS)

extern void FindChildren(void);
extern void WatchCommand(pid_t pid);
extern bool ReapChildren(void);
extern bool CommandEnded(int *status);
extern void SignalCommand(int number);
extern void SignalDescendants(int number);
extern void KillOnce(void);
extern void KillChildren(void);

/* output.c: standard error of the command */
extern void OpenPipe(Tail *tail);
extern void ConnectOutput(void);
extern void CopyOutput(void);
extern bool OutputCopied(void);
extern void AbandonOutput(void);

/* news.c: what the server has to tell of jobs */
extern int	ShowNews(Server *server);

/* change.c: the commands of --watch */

/* watch.c: the work of --watch, in the place of the command */
extern void Watch(const Options *options) __attribute__((noreturn));

/* guardian.c: the process that watches the command */
typedef enum MessageKind
{
	ORDER_EXTENDED,				/* the lease ends at .end, which means
								 * .ending; answered with them */
	ORDER_LOST,					/* another caller may have the lock */
	ORDER_SIGNAL,				/* the program got signal .number */
	REPORT_EXTENDED,
	REPORT_ENDED				/* all processes are gone: .ending, wait
								 * status .number */
} MessageKind;

typedef struct Message
{
	MessageKind kind;
	Ending		ending;
	int			number;
	Usec		end;
} Message;

/* What the guardian starts the command with */
typedef struct Start
{
	const Options *options;
	const Run  *run;
	Tail	   *tail;			/* in shared memory; NULL: standard error is
								 * the command's own */
	int			keeper;			/* the socket to the keeper */
	sigset_t	ignored;		/* signals that the program's caller ignores */
} Start;

extern void Guard(const Start *start) __attribute__((noreturn));

/* signals.c: the signals of the keeper, and its last resort */
extern bool PrepareSignals(int guardian);
extern void CatchSignals(void);
extern void SetLastResort(const Lease *lease, Usec end);
extern void NoteIgnored(sigset_t *ignored);
extern void NoteGuardian(pid_t pid);
extern void NoteFinished(void);
extern int	ToldSignal(void);
extern int	ToldCount(void);

/* keeper.c: the process that keeps the lock */
extern int	KeepRun(const Options *options);

/* supervisor.c: the process that begins runs of --watch */
extern int	Supervise(const Options *options);

#endif							/* SHEDLOCK_PROGRAM_H */
