/*
 * A replica of a service that does a job if no other replica does; libpq.
 *
 *	replica once LOCK			tries once
 *	replica keep LOCK			works until the lock is lost
 *	replica race LOCK ROUNDS	tries until it has worked ROUNDS times
 *
 * libpq's environment variables say where the server is.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libpq-fe.h>

static PGconn *db;

/* The state of a round; work returns false once the lock is lost. */
typedef struct
{
	const char *lock;
	char	   *token;
	long		won;
} Round;
typedef bool (*Work) (Round *round);
typedef enum {REFUSED, RAN, LOST} Outcome;

/* Runs a query whose n parameters follow; the caller clears the result. */
static PGresult *
query(const char *text, int n,...)
{
	const char *values[2];
	PGresult   *result;
	va_list		arguments;

	va_start(arguments, n);
	for (int i = 0; i < n; i++)
		values[i] = va_arg(arguments, const char *);
	va_end(arguments);

	result = PQexecParams(db, text, n, NULL, values, NULL, NULL, 0);
	if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
	{
		fputs(PQerrorMessage(db), stderr);
		exit(1);
	}
	return result;
}

static bool
keep_alive(Round *round)
{
	PGresult   *result = query("SELECT shedlock_extend($1, $2, '1 min')", 2,
							   round->lock, round->token);
	bool		alive = PQgetvalue(result, 0, 0)[0] == 't';

	PQclear(result);
	return alive;
}

/* Does the work if no other replica does. */
static Outcome
run_once(Round *round, Work work)
{
	PGresult   *result = query("SELECT shedlock_acquire_token($1, '1 min')", 1, round->lock);
	Outcome		outcome = REFUSED;

	if (!PQgetisnull(result, 0, 0))
	{
		round->token = PQgetvalue(result, 0, 0);
		outcome = work(round) ? RAN : LOST;
		PQclear(query("SELECT shedlock_release($1, $2)", 2, round->lock, round->token));
	}
	PQclear(result);
	return outcome;
}

static bool
work_until_lost(Round *round)
{
	puts("holding");
	do
		usleep(50000);
	while (keep_alive(round));
	return false;
}

/* Loses an update if another replica runs it meanwhile: two statements, on purpose. */
static bool
count(Round *round)
{
	PGresult   *result = query("SELECT value, clock_timestamp() FROM race_counter", 0);
	char		value[24];

	snprintf(value, sizeof(value), "%ld", atol(PQgetvalue(result, 0, 0)) + 1);
	usleep(2000 + rand() % 3000);
	if (round->won % 8 == 0 && !keep_alive(round))
		return false;
	PQclear(query("UPDATE race_counter SET value = $1", 1, value));
	PQclear(query("INSERT INTO race_log (token, started) VALUES ($1, $2)", 2,
				  round->token, PQgetvalue(result, 0, 1)));
	PQclear(result);
	return true;
}

static void
race(Round *round, long rounds)
{
	long		refused = 0;

	while (round->won < rounds)
	{
		switch (run_once(round, count))
		{
			case RAN:
				round->won++;
				break;
			case REFUSED:
				refused++;
				break;
			case LOST:
				fputs("the lock was lost\n", stderr);
				exit(1);
		}
		usleep(4000 + rand() % 16000);
	}
	printf("%ld won, %ld refused\n", round->won, refused);
}

int
main(int argc, char **argv)
{
	static const char *const said[] = {"refused", "ran", "lost"};
	Round		round = {.lock = argc > 2 ? argv[2] : ""};

	setvbuf(stdout, NULL, _IOLBF, 0);
	srand((unsigned) getpid());
	db = PQconnectdb("");
	if (PQstatus(db) != CONNECTION_OK)
	{
		fputs(PQerrorMessage(db), stderr);
		return 1;
	}
	if (argc == 4 && strcmp(argv[1], "race") == 0)
		race(&round, atol(argv[3]));
	else if (argc == 3 && strcmp(argv[1], "keep") == 0)
		puts(said[run_once(&round, work_until_lost)]);
	else if (argc == 3 && strcmp(argv[1], "once") == 0)
		puts(said[run_once(&round, keep_alive)]);
	else
		return 2;
	PQfinish(db);
	return 0;
}
