/*
 * crowd.c - clients that wait in turn for the same locks
 *
 *	crowd CONNINFO CLIENTS NAMES SECONDS ACQUIRE RELEASE
 *
 * Each client waits for the lock of its name ($1, a number; at most 1,000 names), releases
 * it when it has it, and waits again.  Prints the hand-overs a second, and of the server processes the
 * context switches and the milliseconds of CPU a hand-over; then how many clients have
 * overtaken one that had waited for the same name 10 ms longer, a thousand hand-overs.
 */
#include <poll.h>

#include "client.h"

#define SETTLE_MS		3000
#define OVERTAKEN_MS	10

typedef struct Client
{
	PGconn	   *db;
	char		name[16];
	bool		holds;			/* and is releasing */
	double		since;			/* has waited */
} Client;

static Client *clients;
static int	nclients;
static int	names;

/* Context switches and nanoseconds on a processor of all server processes. */
static void
use(double *switches, double *ns)
{
	*switches = *ns = 0;
	for (int i = 0; i < nclients; i++)
	{
		char		line[256];
		FILE	   *file;
		double		n;

		snprintf(line, sizeof(line), "/proc/%d/status", PQbackendPID(clients[i].db));
		if ((file = fopen(line, "r")) == NULL)
			die(line, "cannot be read");
		while (fgets(line, sizeof(line), file))
		{
			if (sscanf(line, "voluntary_ctxt_switches: %lf", &n) == 1 ||
				sscanf(line, "nonvoluntary_ctxt_switches: %lf", &n) == 1)
				*switches += n;
		}
		fclose(file);
		snprintf(line, sizeof(line), "/proc/%d/schedstat", PQbackendPID(clients[i].db));
		if ((file = fopen(line, "r")) == NULL || fscanf(file, "%lf", &n) != 1)
			die(line, "cannot be read");
		*ns += n;
		fclose(file);
	}
}

/* Has this client overtaken another? */
static bool
overtook(int me)
{
	for (int i = me % names; i < nclients; i += names)
	{
		if (i != me && !clients[i].holds && clients[i].since < clients[me].since - OVERTAKEN_MS)
			return true;
	}
	return false;
}

int
main(int argc, char **argv)
{
	struct pollfd *polls;
	double		start;
	double		end;
	double		switches[2];
	double		ns[2];
	long		handed = 0;
	long		overtaken = 0;
	bool		counting = false;

	if (argc != 7)
		die("crowd", "CONNINFO CLIENTS NAMES SECONDS ACQUIRE RELEASE");
	nclients = atoi(argv[2]);
	names = atoi(argv[3]);
	clients = calloc((size_t) nclients, sizeof(Client));
	polls = calloc((size_t) nclients, sizeof(struct pollfd));
	for (int i = 0; i < nclients; i++)
	{
		Client	   *client = &clients[i];

		client->db = client_connect(argv[1]);
		client_prepare(client->db, "acquire", argv[5]);
		client_prepare(client->db, "release", argv[6]);
		/* the last run may have left locks */
		snprintf(client->name, sizeof(client->name), "%ld", (long) getpid() * 1000 + i % names);
		polls[i] = (struct pollfd) {PQsocket(client->db), POLLIN, 0};
	}
	for (int i = 0; i < nclients; i++)
	{
		clients[i].since = now_ms();
		client_send(clients[i].db, "acquire", clients[i].name);
	}

	start = now_ms() + SETTLE_MS;
	end = start + atof(argv[4]) * 1000;
	for (;;)
	{
		if (!counting && now_ms() >= start)
		{
			counting = true;
			use(&switches[0], &ns[0]);
			start = now_ms();
			handed = overtaken = 0;
		}
		if (now_ms() >= end)
			break;
		if (poll(polls, (nfds_t) nclients, 100) < 0)
			die("poll", "failed");
		for (int i = 0; i < nclients; i++)
		{
			Client	   *client = &clients[i];

			if (!polls[i].revents)
				continue;
			if (!PQconsumeInput(client->db))
				die("answer", PQerrorMessage(client->db));
			if (PQisBusy(client->db))
				continue;
			if (strcmp(client_value(client_answer(client->db, "call")), "f") == 0)
				die("acquire or release", "refused");
			client->holds = !client->holds;
			if (client->holds)
			{
				handed++;
				overtaken += overtook(i);
			}
			else
				client->since = now_ms();
			client_send(client->db, client->holds ? "release" : "acquire", client->name);
		}
	}
	end = now_ms();
	use(&switches[1], &ns[1]);
	if (handed == 0)
		die("crowd", "no lock was handed over");
	printf("%.1f\t%.3f\t%.4f\t%.3f\n", (double) handed * 1000 / (end - start),
		   (switches[1] - switches[0]) / (double) handed,
		   (ns[1] - ns[0]) / 1e6 / (double) handed,
		   (double) overtaken * 1000 / (double) handed);
	/* The server ends the waits of those who are gone. */
	return 0;
}
