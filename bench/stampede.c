/*
 * stampede.c - many connections try to acquire one free lock at the same instant
 *
 *	stampede CONNINFO CONNECTIONS ROUNDS
 *
 * One process has all connections.  It sends the same statement on each of
 * them before it reads any answer, and measures until the last answer is there.
 * Each round has every contender in turn, and prints for each of them
 *
 *	contender	winners	milliseconds
 *
 * The winner gives the lock back between the rounds.
 */
#include <poll.h>

#include "client.h"

static const struct
{
	const char *name;
	const char *acquire;
	const char *release;		/* $1: what the winner's acquire answered */
}			contenders[] = {
	{
		"shedlock",
		"SELECT shedlock_acquire_token('stampede', '10 min')",
		"SELECT shedlock_release('stampede', $1)"
	},
	{
		"ShedLock, upsert",
		"INSERT INTO peer.shedlock(name, lock_until, locked_at, locked_by)"
		" VALUES('stampede', timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => 600), timezone('utc', CURRENT_TIMESTAMP), 'host')"
		" ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => 600),"
		" locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'host'"
		" WHERE shedlock.name = 'stampede' AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)",
		"UPDATE peer.shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = 'stampede' AND locked_by = 'host'"
	},
	{
		"pg_try_advisory_lock",
		"SELECT nullif(pg_try_advisory_lock(4711), false)",
		"SELECT pg_advisory_unlock(4711)"
	},
};

#define CONTENDERS (int) (sizeof(contenders) / sizeof(contenders[0]))

static PGconn **dbs;
static struct pollfd *polls;
static int	connections;

/* Is the answer there?  Then it is of no more interest to poll(). */
static bool
arrived(int i)
{
	if (!PQconsumeInput(dbs[i]))
		die("stampede", PQerrorMessage(dbs[i]));
	if (PQisBusy(dbs[i]))
		return false;
	polls[i].fd = -1;
	return true;
}

/* Sends it on all connections; returns the time until the last answer. */
static double
rush(const char *acquire)
{
	double		start = now_ms();
	int			waiting = connections;

	for (int i = 0; i < connections; i++)
	{
		client_send(dbs[i], acquire, NULL);
		polls[i].fd = PQsocket(dbs[i]);
		polls[i].events = POLLIN;
	}
	while (waiting > 0)
	{
		if (poll(polls, (nfds_t) connections, -1) < 0)
			die("poll", "failed");
		for (int i = 0; i < connections; i++)
		{
			if (polls[i].fd >= 0 && polls[i].revents && arrived(i))
				waiting--;
		}
	}
	return now_ms() - start;
}

/* Counts the winners, and has each of them give the lock back. */
static int
settle(int contender, const char *acquire, const char *release)
{
	int			winners = 0;
	int			winner = -1;
	char		answer[256] = "";

	for (int i = 0; i < connections; i++)
	{
		PGresult   *result = client_answer(dbs[i], acquire);
		bool		won = PQresultStatus(result) == PGRES_COMMAND_OK ?
			strcmp(PQcmdTuples(result), "1") == 0 : !PQgetisnull(result, 0, 0);

		if (won)
		{
			winners++;
			winner = i;
			snprintf(answer, sizeof(answer), "%s",
					 PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
		}
		PQclear(result);
	}
	if (winner >= 0)
		PQclear(client_run(dbs[winner], release,
						   strchr(contenders[contender].release, '$') ? answer : NULL));
	return winners;
}

int
main(int argc, char **argv)
{
	char		acquire[CONTENDERS][16];
	char		release[CONTENDERS][16];
	int			rounds;

	if (argc != 4)
		die("usage", "stampede CONNINFO CONNECTIONS ROUNDS");
	connections = atoi(argv[2]);
	rounds = atoi(argv[3]);
	dbs = calloc((size_t) connections, sizeof(*dbs));
	polls = calloc((size_t) connections, sizeof(*polls));

	for (int c = 0; c < CONTENDERS; c++)
	{
		snprintf(acquire[c], sizeof(acquire[c]), "acquire%d", c);
		snprintf(release[c], sizeof(release[c]), "release%d", c);
	}
	for (int i = 0; i < connections; i++)
	{
		dbs[i] = client_connect(argv[1]);
		for (int c = 0; c < CONTENDERS; c++)
		{
			client_prepare(dbs[i], acquire[c], contenders[c].acquire);
			client_prepare(dbs[i], release[c], contenders[c].release);
		}
	}

	/* The first rounds fill caches: the rows, the sessions' plans. */
	for (int round = -5; round < rounds; round++)
	{
		for (int i = 0; i < CONTENDERS; i++)
		{
			int			c = (i + round + 5) % CONTENDERS;
			double		ms = rush(acquire[c]);
			int			winners = settle(c, acquire[c], release[c]);

			if (round >= 0)
				printf("%s\t%d\t%.3f\n", contenders[c].name, winners, ms);
		}
	}
	return 0;
}
