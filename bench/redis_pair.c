/*
 * redis_pair.c - acquire and release of locks in Redis
 *
 *	redis_pair SOCKET CLIENTS SECONDS
 *
 * As Redis's documentation has it: SET NOT EXISTS with an end, then a script
 * that deletes the key if it still has our value.  Each client is a process,
 * with names of its own among 1,000, and the script is known to the server by
 * its hash.  Prints the pairs a second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAMES 1000

static const char script[] =
"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

static void
die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

static int
redis_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int			s = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (s < 0 || connect(s, (struct sockaddr *) &address, sizeof(address)) != 0)
		die(path, "no connection");
	return s;
}

/* Sends n words as one command; the answer, which has to be a short one. */
static const char *
ask(int s, int n, const char *const *words)
{
	static char buffer[1024];
	size_t		len;
	ssize_t		got;
	int			lines;

	len = (size_t) sprintf(buffer, "*%d\r\n", n);
	for (int i = 0; i < n; i++)
		len += (size_t) sprintf(buffer + len, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
	if (write(s, buffer, len) != (ssize_t) len)
		die(words[0], "could not be sent");
	len = 0;
	do
	{
		got = read(s, buffer + len, sizeof(buffer) - 1 - len);
		if (got <= 0)
			die(words[0], "no answer");
		len += (size_t) got;
		buffer[len] = '\0';
		/* a string has a line for its length before it, if it is not null */
		lines = buffer[0] == '$' && buffer[1] != '-' ? 2 : 1;
		for (char *c = buffer; (c = strstr(c, "\r\n")) != NULL; c += 2)
			lines--;
	} while (lines > 0);
	return buffer;
}

/* One client's pairs. */
static long
pairs(const char *path, int client, int clients, double seconds)
{
	int			s = redis_connect(path);
	char		sha[41];
	char		key[32];
	char		value[32];
	const char *load[] = {"SCRIPT", "LOAD", script};
	const char *acquire[] = {"SET", key, value, "NX", "PX", "600000"};
	const char *release[] = {"EVALSHA", sha, "1", key, value};
	double		end = now() + seconds;
	long		n = 0;

	srandom((unsigned) (client + 1));
	snprintf(sha, sizeof(sha), "%s", strstr(ask(s, 3, load), "\r\n") + 2);
	do
	{
		snprintf(key, sizeof(key), "lock-%ld", random() % (NAMES / clients) * clients + client);
		snprintf(value, sizeof(value), "%d-%ld", client, n);
		if (strncmp(ask(s, 6, acquire), "+OK", 3) != 0)
			die("SET", "refused");
		if (strncmp(ask(s, 5, release), ":1", 2) != 0)
			die("EVALSHA", "did not find its own value");
		n++;
	} while (now() < end);
	return n;
}

int
main(int argc, char **argv)
{
	int			counts[2];
	int			clients;
	double		seconds;
	long		all = 0;

	if (argc != 4 || pipe(counts) != 0)
		die("usage", "redis_pair SOCKET CLIENTS SECONDS");
	clients = atoi(argv[2]);
	seconds = atof(argv[3]);
	for (int client = 0; client < clients; client++)
	{
		pid_t		pid = fork();

		if (pid < 0)
			die("fork", "failed");
		if (pid == 0)
		{
			long		n = pairs(argv[1], client, clients, seconds);

			_exit(write(counts[1], &n, sizeof(n)) == sizeof(n) ? 0 : 1);
		}
	}
	close(counts[1]);
	for (int client = 0; client < clients; client++)
	{
		int			status;
		long		n;

		if (read(counts[0], &n, sizeof(n)) != sizeof(n))
			die("client", "failed");
		all += n;
		if (wait(&status) < 0 || status != 0)
			die("client", "failed");
	}
	printf("%.1f\n", (double) all / seconds);
	return 0;
}
