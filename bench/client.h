/*
 * client.h - what the C programs in this folder share: libpq and a clock
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

/* Milliseconds of a clock that nobody sets. */
static inline double
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec * 1e3 + (double) t.tv_nsec / 1e6;
}

static inline void
die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static inline PGconn *
client_connect(const char *conninfo)
{
	PGconn	   *db = PQconnectdb(conninfo);

	if (PQstatus(db) != CONNECTION_OK)
		die("connect", PQerrorMessage(db));
	return db;
}

static inline void
client_prepare(PGconn *db, const char *name, const char *sql)
{
	PGresult   *result = PQprepare(db, name, sql, 0, NULL);

	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		die(sql, PQerrorMessage(db));
	PQclear(result);
}

/* Has a statement succeeded?  Dies if not. */
static inline PGresult *
checked(PGconn *db, PGresult *result, const char *what)
{
	if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
		die(what, PQerrorMessage(db));
	return result;
}

static inline void
client_send(PGconn *db, const char *name, const char *param)
{
	if (!PQsendQueryPrepared(db, name, param ? 1 : 0, &param, NULL, NULL, 0))
		die(name, PQerrorMessage(db));
}

/* The answer of what was sent; the caller clears it. */
static inline PGresult *
client_answer(PGconn *db, const char *what)
{
	PGresult   *result = checked(db, PQgetResult(db), what);
	PGresult   *end;

	while ((end = PQgetResult(db)) != NULL)
		PQclear(end);
	return result;
}

static inline PGresult *
client_run(PGconn *db, const char *name, const char *param)
{
	client_send(db, name, param);
	return client_answer(db, name);
}

/* The first value of an answer, empty if there is none; clears the answer. */
static inline const char *
client_value(PGresult *result)
{
	static char value[256];

	snprintf(value, sizeof(value), "%s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
	PQclear(result);
	return value;
}
