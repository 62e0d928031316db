"""A replica of a service that does a job if no other replica does; psycopg 3.

    replica.py once LOCK           tries once
    replica.py keep LOCK           works until the lock is lost
    replica.py race LOCK ROUNDS    tries until it has worked ROUNDS times

libpq's environment variables say where the server is.
"""
import random
import sys
import time

import psycopg


class Lost(Exception):
    """The lock was lost: another replica may hold it and do the work."""


def run_once(db, lock, work):
    """Run work(token, keep_alive) if no other replica does; returns whether it ran."""
    token = db.execute("SELECT shedlock_acquire_token(%s, '1 min')", (lock,)).fetchone()[0]
    if token is None:
        return False

    def keep_alive():
        alive = db.execute("SELECT shedlock_extend(%s, %s, '1 min')", (lock, token)).fetchone()[0]
        if not alive:
            raise Lost(lock)

    try:
        work(token, keep_alive)
    finally:
        db.execute("SELECT shedlock_release(%s, %s)", (lock, token))
    return True


def once(db, lock):
    print("ran" if run_once(db, lock, lambda token, keep_alive: keep_alive()) else "refused")


def keep(db, lock):
    def work(token, keep_alive):
        print("holding", flush=True)
        while True:
            time.sleep(0.05)
            keep_alive()

    try:
        run_once(db, lock, work)
        print("refused")
    except Lost:
        print("lost")


def race(db, lock, rounds):
    won = refused = 0

    # Loses an update if another replica runs it meanwhile: two statements, on purpose.
    def work(token, keep_alive):
        value, started = db.execute("SELECT value, clock_timestamp()::text FROM race_counter").fetchone()
        time.sleep(random.uniform(0.002, 0.005))
        if won % 8 == 0:
            keep_alive()
        db.execute("UPDATE race_counter SET value = %s", (value + 1,))
        db.execute("INSERT INTO race_log (token, started) VALUES (%s, %s)", (token, started))

    while won < rounds:
        if run_once(db, lock, work):
            won += 1
        else:
            refused += 1
        time.sleep(random.uniform(0.004, 0.02))
    print(f"{won} won, {refused} refused")


# With a pooler set prepare_threshold=None; there the token proves ownership, not the session.
with psycopg.connect(autocommit=True, prepare_threshold=None) as connection:
    command, name, *rest = sys.argv[1:]
    {"once": once, "keep": keep, "race": race}[command](connection, name, *map(int, rest))
