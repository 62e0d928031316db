/*-------------------------------------------------------------------------
 *
 * deadline.c
 *	  The timers that end what has outlived its lock_at_most_for.
 *
 * A session lock past its time: the process ends itself as by
 * pg_terminate_backend(), so that a dead host frees the lock even while TCP
 * has not noticed.  A run past its time: its command is cancelled as by
 * pg_cancel_backend(), and again each second if it swallows that.
 *
 * Both count on the steady clock (base/process.c), which goes on while the machine is
 * suspended, where the system has such a clock.  The server's own timeouts (utils/timeout.h)
 * will not do.  They are kept as times of day: set back by an hour, a timer that has been set
 * before fires an hour too late, and set forward, any other timeout makes it fire at once.
 * And the server switches them off after each error.  So these are timers of the operating
 * system, which send the signals of the two functions above.
 *
 * Copyright (c) 2026, the shedlock developers
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "session/session.h"
#include "utils/timestamp.h"

/* Signals this process at that time, and each second after it. */
typedef struct DeadlineTimer
{
	int			signo;
	int64		armed_for;		/* DT_NOEND: not armed */
	timer_t		id;
} DeadlineTimer;

static DeadlineTimer timers[] = {
	{.signo = SIGTERM,.armed_for = DT_NOEND},
	{.signo = SIGINT,.armed_for = DT_NOEND}
};
static DeadlineTimer *const session_timer = &timers[0];
static DeadlineTimer *const run_timer = &timers[1];

/* When the next run must end; DT_NOEND if none must. */
static int64 run_deadline = DT_NOEND;

static bool runs_watched = false;
static bool run_deadline_passed = false;

/*
 * create_timers - returns 0, or an error number
 */
static int
create_timers(void)
{
	static int	created = 0;

	for (; created < (int) lengthof(timers); created++)
	{
		struct sigevent event = {0};

		event.sigev_notify = SIGEV_SIGNAL;
		event.sigev_signo = timers[created].signo;
		if (timer_create(SHEDLOCK_STEADY_CLOCK, &event, &timers[created].id) != 0)
			return errno;
	}
	return 0;
}

/*
 * set_timer - to a deadline; a signal that was due is here when this returns
 */
static void
set_timer(DeadlineTimer *timer, int64 deadline)
{
	struct itimerspec spec = {0};

	if (deadline == timer->armed_for)
		return;
	if (deadline != DT_NOEND)
	{
		/* zero would switch it off */
		deadline = Max(deadline, 1);
		spec.it_value.tv_sec = (time_t) (deadline / USECS_PER_SEC);
		spec.it_value.tv_nsec = (long) (deadline % USECS_PER_SEC) * 1000;
		spec.it_interval.tv_sec = 1;
	}
	(void) timer_settime(timer->id, TIMER_ABSTIME, &spec, NULL);
	timer->armed_for = deadline;
}

/*
 * ShedlockDeadlineAt - convert a time of day in the near future to the steady clock
 *
 * DT_NOEND stays DT_NOEND.  Creates the timers here, because a deadline is set
 * where no error can be raised.  Raises 53000 if the system has none to give.
 */
int64
ShedlockDeadlineAt(TimestampTz until)
{
	if (until == DT_NOEND)
		return DT_NOEND;
	errno = create_timers();
	if (errno != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not create a timer for lock_at_most_for: %m")));
	return ShedlockSteadyNow() + (until - GetCurrentTimestamp());
}

/*
 * set_run_timer - to the next deadline of a run, if its command may be cancelled
 */
static void
set_run_timer(void)
{
	int64		armed_for = run_timer->armed_for;

	set_timer(run_timer, runs_watched ? run_deadline : DT_NOEND);

	/* Not before: until the timer was set its signal could still come. */
	if (armed_for != DT_NOEND && ShedlockSteadyNow() >= armed_for)
		run_deadline_passed = true;
}

/*
 * ShedlockSetDeadlines - when the next session lock and the next run must end
 *
 * Both on the steady clock; DT_NOEND: none must.  Runs in transaction callbacks:
 * raises no error (I13).
 */
void
ShedlockSetDeadlines(int64 session, int64 run)
{
	set_timer(session_timer, session);
	run_deadline = run;
	set_run_timer();
}

/*
 * ShedlockWatchRuns - set whether a command runs that may be cancelled
 */
void
ShedlockWatchRuns(bool watch)
{
	runs_watched = watch;
	set_run_timer();
}

/*
 * ShedlockRunDeadline - when the next run of this session must end; DT_NOEND if none must
 */
int64
ShedlockRunDeadline(void)
{
	return run_deadline;
}

/*
 * ShedlockRunDeadlinePassed - has the timer cancelled a run's command?
 */
bool
ShedlockRunDeadlinePassed(void)
{
	return run_deadline_passed;
}

/*
 * ShedlockForgetRunDeadlinePassed - that cancel has been dealt with
 *
 * It may still be pending: the command may have ended at the same instant.
 */
void
ShedlockForgetRunDeadlinePassed(void)
{
	if (run_deadline_passed)
		QueryCancelPending = false;
	run_deadline_passed = false;
}
