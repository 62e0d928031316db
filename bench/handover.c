/*
 * handover.c - from the end of one holder to the answer of the next
 *
 *	handover CONNINFO lease|session|closed ROUNDS
 *	handover CONNINFO takeover ROUNDS
 *	handover CONNINFO idle SECONDS
 *
 * lease, session: a waiter sleeps, the holder releases; prints the milliseconds
 * from the sending of the release to the waiter's answer.
 * closed: the same, but the holder of a session lock closes its connection.
 * takeover: the client that holds a session lock is idle and is killed with
  * SIGKILL; prints the milliseconds from the kill until another client has the
  * lock, for a waiter, for a client that tries each millisecond, and for one that
  * tries pg_try_advisory_lock each millisecond.
 * idle: a waiter sleeps; prints the CPU time of its server process, in
  * milliseconds a second, and how often a second it wakes up.
 *
 * All times are from one clock.
 */
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "client.h"

static const char *conninfo;
static PGconn *observer;
static PGconn *waiter;

/* Comes back once the server process of the waiter sleeps in its wait. */
static void
await_sleep(void)
{
	char		pid[16];

	snprintf(pid, sizeof(pid), "%d", PQbackendPID(waiter));
	while (strcmp(client_value(client_run(observer, "sleeps", pid)), "t") != 0)
		usleep(1000);
	/* It was seen on its way into the sleep. */
	usleep(2000);
}

/* Waits until both have answered, and notes when the waiter has. */
static double
until_answered(PGconn *holder)
{
	double		at = 0;
	bool		released = false;

	while (at == 0 || !released)
	{
		struct pollfd polls[2] = {{PQsocket(waiter), POLLIN, 0}, {PQsocket(holder), POLLIN, 0}};

		if (at != 0)
			polls[0].fd = -1;
		if (released)
			polls[1].fd = -1;
		if (poll(polls, 2, -1) < 0)
			die("poll", "failed");
		if (polls[0].revents && PQconsumeInput(waiter) && !PQisBusy(waiter))
			at = now_ms();
		if (polls[1].revents && PQconsumeInput(holder) && !PQisBusy(holder))
			released = true;
	}
	return at;
}

static void
expect(const char *answer, const char *wanted, const char *what)
{
	if (wanted ? strcmp(answer, wanted) != 0 : !*answer)
		die(what, "not the answer that was expected");
}

static void
hand_over(bool session, bool closed, int rounds)
{
	PGconn	   *holder = NULL;

	client_prepare(waiter, "wait", session ?
				   "SELECT shedlock_acquire_session('handover', wait => '1 min')" :
				   "SELECT shedlock_acquire('handover', '10 min', wait => '1 min')");
	client_prepare(waiter, "release", "SELECT shedlock_release('handover')");
	for (int round = -3; round < rounds; round++)
	{
		double		start;
		double		end;

		if (holder == NULL)
		{
			holder = client_connect(conninfo);
			client_prepare(holder, "acquire", session ?
						   "SELECT shedlock_acquire_session('handover')" :
						   "SELECT shedlock_acquire('handover', '10 min')");
			client_prepare(holder, "release", "SELECT shedlock_release('handover')");
		}
		expect(client_value(client_run(holder, "acquire", NULL)), "t", "acquire");
		client_send(waiter, "wait", NULL);
		await_sleep();
		start = now_ms();
		if (closed)
		{
			PQfinish(holder);
			holder = NULL;
			expect(client_value(client_answer(waiter, "wait")), "t", "wait");
			end = now_ms();
		}
		else
		{
			client_send(holder, "release", NULL);
			end = until_answered(holder);
			expect(client_value(client_answer(holder, "release")), "t", "release");
			expect(client_value(client_answer(waiter, "wait")), "t", "wait");
		}
		if (round >= 0)
			printf("%.3f\n", end - start);
		expect(client_value(client_run(waiter, "release", NULL)), "t", "release");
	}
}

/* A client of its own that takes a lock, and does nothing more. */
static pid_t
idle_holder(const char *sql)
{
	int			ready[2];
	pid_t		pid;
	char		byte;

	if (pipe(ready) != 0 || (pid = fork()) < 0)
		die("fork", "failed");
	if (pid == 0)
	{
		PGconn	   *db = client_connect(conninfo);
		PGresult   *result = checked(db, PQexec(db, sql), sql);

		expect(client_value(result), "t", sql);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		die("holder", "did not get its lock");
	close(ready[0]);
	return pid;
}

static void
take_over(int rounds)
{
	static const struct
	{
		const char *name;
		const char *holder;
		const char *taker;
		const char *release;
		bool		waits;
	}			contenders[] = {
		{"waiting", "SELECT shedlock_acquire_session('takeover')",
			"SELECT shedlock_acquire_session('takeover', wait => '1 min')",
		"SELECT shedlock_release('takeover')", true},
		{"polling", "SELECT shedlock_acquire_session('takeover')",
			"SELECT shedlock_acquire_session('takeover')",
		"SELECT shedlock_release('takeover')", false},
		{"pg_try_advisory_lock", "SELECT pg_try_advisory_lock(4712)",
			"SELECT pg_try_advisory_lock(4712)",
		"SELECT pg_advisory_unlock(4712)", false},
	};
	char		names[3][2][16];

	for (int c = 0; c < 3; c++)
	{
		snprintf(names[c][0], sizeof(names[c][0]), "take%d", c);
		snprintf(names[c][1], sizeof(names[c][1]), "release%d", c);
		client_prepare(waiter, names[c][0], contenders[c].taker);
		client_prepare(waiter, names[c][1], contenders[c].release);
	}
	for (int round = -1; round < rounds; round++)
	{
		for (int i = 0; i < 3; i++)
		{
			int			c = (i + round + 1) % 3;
			pid_t		pid = idle_holder(contenders[c].holder);
			double		start;
			double		end;

			if (contenders[c].waits)
			{
				client_send(waiter, names[c][0], NULL);
				await_sleep();
			}
			else
				expect(client_value(client_run(waiter, names[c][0], NULL)), "f", "take");
			start = now_ms();
			kill(pid, SIGKILL);
			if (contenders[c].waits)
				expect(client_value(client_answer(waiter, "wait")), "t", "wait");
			else
			{
				while (strcmp(client_value(client_run(waiter, names[c][0], NULL)), "t") != 0)
					usleep(1000);
			}
			end = now_ms();
			waitpid(pid, NULL, 0);
			if (round >= 0)
				printf("%s\t%.3f\n", contenders[c].name, end - start);
			expect(client_value(client_run(waiter, names[c][1], NULL)), "t", "release");
		}
	}
}

/* Nanoseconds on a processor, and how often it got one. */
static void
processor_use(int pid, double *ns, double *times)
{
	char		path[64];
	double		waited;
	FILE	   *file;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	if ((file = fopen(path, "r")) == NULL || fscanf(file, "%lf %lf %lf", ns, &waited, times) != 3)
		die(path, "cannot be read");
	fclose(file);
}

static void
idle(int seconds)
{
	PGconn	   *holder = client_connect(conninfo);
	double		ns[2];
	double		times[2];

	expect(client_value(checked(holder, PQexec(holder, "SELECT shedlock_acquire('idle', '1 hour')"), "acquire")),
		   "t", "acquire");
	client_prepare(waiter, "wait", "SELECT shedlock_acquire('idle', wait => '1 hour')");
	client_send(waiter, "wait", NULL);
	await_sleep();
	processor_use(PQbackendPID(waiter), &ns[0], &times[0]);
	sleep((unsigned) seconds);
	processor_use(PQbackendPID(waiter), &ns[1], &times[1]);
	printf("%.4f\t%.2f\n", (ns[1] - ns[0]) / 1e6 / seconds, (times[1] - times[0]) / seconds);
	checked(holder, PQexec(holder, "SELECT shedlock_release('idle')"), "release");
	expect(client_value(client_answer(waiter, "wait")), "t", "wait");
	PQfinish(holder);
}

int
main(int argc, char **argv)
{
	int			n;

	if (argc != 4)
		die("usage", "handover CONNINFO lease|session|closed|takeover|idle NUMBER");
	conninfo = argv[1];
	n = atoi(argv[3]);
	observer = client_connect(conninfo);
	/* other wait events of this type are the same name's until 16 */
	client_prepare(observer, "sleeps",
				   "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $1");
	waiter = client_connect(conninfo);

	if (strcmp(argv[2], "takeover") == 0)
		take_over(n);
	else if (strcmp(argv[2], "idle") == 0)
		idle(n);
	else
		hand_over(strcmp(argv[2], "lease") != 0, strcmp(argv[2], "closed") == 0, n);
	return 0;
}
