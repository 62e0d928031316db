#!/usr/bin/python3
"""A replica of a service: replica.py FILE.CLASS NUMBER

It connects, prints "ready", and reads from standard input when it shall begin to call or to
schedule.  The environment has

GROUP, DATABASE     name of the job and of its lock, and the database
ADDRESS             where all servers are
LOG                 file for lines of kind, tick, replica, time, and when the tick was due or a text
EVERY, JITTER       seconds between two calls, and by how much a call may be late, for tools that
                    have no schedule of their own
TIMES               how often EVERY passes before the replica ends
TICK                seconds: the job is due whenever they divide the time since 1970
CRON, ZONE          if CRON is not empty, the job is due by this expression in this time zone instead
JOBS                number of jobs, all with this schedule
LEASE, WORK         seconds; how long a dead holder is waited for, where that can be set, and the work
WRITE               "yes": a row is written to the database at the end of the work
RATE                "yes": no schedule; pairs of acquire and release, or jobs, one after another
SKEW                seconds by which the clock of this process is ahead

Replicas in other languages do the same: node/replica.mjs, go/replica.go, java/Replica.java.
"""
import asyncio
import importlib
import os
import random
import sys
import threading
import time

import psycopg2

CONTENDER, NUMBER = sys.argv[1:] if len(sys.argv) > 1 else (None, os.environ["NUMBER"])
GROUP, DATABASE, ADDRESS, LOG, CRON, ZONE = (
    os.environ[name] for name in ("GROUP", "DATABASE", "ADDRESS", "LOG", "CRON", "ZONE"))
EVERY, JITTER, TICK, LEASE, WORK, SKEW = (
    float(os.environ[name]) for name in ("EVERY", "JITTER", "TICK", "LEASE", "WORK", "SKEW"))
TIMES, JOBS = int(os.environ["TIMES"]), int(os.environ["JOBS"])
WRITE, RATE = os.environ["WRITE"] == "yes", os.environ["RATE"] == "yes"
# What the six replicas of a tool share
NAMES = [GROUP] if JOBS == 1 else [f"{GROUP} {n}" for n in range(JOBS)]
SERVER = f"host={ADDRESS} port=5432 user=postgres dbname={DATABASE}"
URL = f"postgresql://postgres@{ADDRESS}:5432/{DATABASE}"


def now():
    return time.time() - SKEW


def log(kind, tick, text=""):
    """Appends a line by one write, so that lines of processes do not mix."""
    with open(LOG, "ab", 0) as file:
        file.write(f"{kind} {str(tick).replace(' ', 'T')} {NUMBER} {now():.4f} {text}\n".encode())


def failed(tick, error):
    log("error", tick, " ".join(f"{type(error).__name__} {error}".split())[:200])


def write():
    """Writes the row, on a connection that was opened before the work."""
    data.cursor().execute("INSERT INTO written (replica) VALUES (%s)", (NUMBER,))


def begin(tick, due=""):
    log("begin", tick, due)


def end(tick, write_row=write):
    if WRITE:
        try:
            write_row()
            log("wrote", tick)
        except Exception as error:
            log("refused", tick, " ".join(str(error).split())[:100])
    log("end", tick)


def work(tick, due="", write_row=write):
    """The job.  due is when the tick was due, seconds since 1970, if the tool says that and tick does not."""
    begin(tick, due)
    time.sleep(WORK)
    end(tick, write_row)


class Contender:
    """A tool.  Subclasses have attempt(), which acquires, works and releases, or a run() of their own."""

    def connect(self):
        """Opens the connections and makes the tables, before the first call."""

    def attempt(self, tick):
        raise NotImplementedError

    def pair(self):
        """Acquires and releases, or works off one job or more; returns how many."""
        raise NotImplementedError

    def run(self):
        for n in range(TIMES):
            at = start + n * EVERY + random.uniform(0, JITTER)
            if at + EVERY < now() and EVERY > 0:
                continue
            time.sleep(max(0, at - now()))
            try:
                self.attempt(int(at // TICK * TICK))
            except Exception as error:
                failed(n, error)

    def rate(self):
        """Says every half a second how many pairs there were."""
        count, told = 0, time.monotonic()
        while now() < start + TIMES * EVERY:
            count += self.pair()
            if time.monotonic() >= told + 0.5:
                log("pairs", count)
                count, told = 0, time.monotonic()


class AsyncContender(Contender):
    """A tool that lives in an event loop, which a thread of its own has."""
    loop = None

    def wait(self, coroutine):
        """Returns what the coroutine returns in the event loop."""
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.loop.run_forever, daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def serve(self):
        """Schedules and works, until the replica is killed."""
        raise NotImplementedError

    def run(self):
        wait_for_start()
        self.wait(self.serve())


class Countdown:
    """Lets the thread that sends jobs wait for the end of as many."""
    BATCH = 10

    def __init__(self):
        self.ended = threading.Semaphore(0)

    def end(self):
        self.ended.release()

    def wait(self):
        for _ in range(self.BATCH):
            self.ended.acquire()
        return self.BATCH


def open_data():
    """Opens the connection for write()."""
    global data
    data = psycopg2.connect(SERVER)
    data.autocommit = True


def wait_for_start():
    time.sleep(max(0, start - now()))


def sleep_until_end():
    time.sleep(max(0, start + TIMES * EVERY - now()))


if __name__ == "__main__":
    # what the files of contenders import, and what tools look up by its name
    sys.modules["replica"] = sys.modules["__main__"]
    file, _, name = CONTENDER.partition(".")
    contender = getattr(importlib.import_module(file), name)()
    contender.connect()
    if WRITE:
        open_data()
    print("ready", flush=True)
    # etcdctl passes no input on
    start = float(os.environ.get("START") or sys.stdin.readline())
    contender.rate() if RATE else contender.run()
