"""Jobs of shedlock: by SQL, by CALL, by pg_cron, by the program and by the package for Python"""
import os
import subprocess

import shedlock
from postgres import Postgres
from replica import CRON, GROUP, LEASE, LOG, NAMES, NUMBER, SERVER, TICK, WORK, ZONE, Contender, failed, log, \
    sleep_until_end, wait_for_start, work, write
from shedlock_lock import LeaseExtended

ATTEMPTS = {"attempts": 3, "backoff": "1 s", "catch_up": "all"}
SCHEDULE = CRON or f"every {TICK} s"
# The work as a procedure in the server, which is in the database
CALL = f"CALL work('{LOG}', {NUMBER}, {WORK})"


class Job(Postgres):
    def connect(self):
        super().connect()
        for name in NAMES:
            self.value("SELECT shedlock_job(%(name)s, %(schedule)s, %(zone)s, attempts => %(attempts)s, "
                       "backoff => %(backoff)s, catch_up => %(catch_up)s)",
                       name=name, schedule=SCHEDULE, zone=ZONE, **ATTEMPTS)


class RunBegin(Job):
    def begin(self, name):
        cursor = self.connection.cursor()
        cursor.execute("SELECT token, extract(epoch FROM tick)::float FROM shedlock_run_begin(%s, %s)", (name, f"{LEASE} s"))
        self.token, tick = cursor.fetchone()
        return tick

    def end(self, name):
        self.value("SELECT shedlock_run_end(%(name)s, %(token)s)", name=name, token=self.token)

    def attempt(self, tick):
        for name in NAMES:
            tick = self.begin(name)
            if self.token is not None:
                work(tick, write_row=self.write)
                self.end(name)

    def pair(self):
        self.begin("another name, without a schedule")
        self.end("another name, without a schedule")
        return 1

    write = LeaseExtended.write


class CallRun(Job):
    """The work is the procedure work of stores.py, in the server."""
    settings = "-c client_connection_check_interval=100ms"

    def attempt(self, tick):
        self.value("CALL shedlock_run(%(name)s, %(command)s, %(lease)s)", command=CALL)

    def pair(self):
        self.value("CALL shedlock_run('another name, without a schedule', 'SELECT 1', %(lease)s)")
        return 1


class PgCron(Postgres):
    """pg_cron fires in the server; the first replica schedules, and none has to live.  The least schedule is a minute."""

    def run(self):
        if NUMBER == "0":
            for name in NAMES:
                self.value("SELECT shedlock_cron_schedule(%(name)s, %(schedule)s, %(command)s)",
                           name=name, schedule=CRON or "* * * * *", command=CALL)
        sleep_until_end()


class Program(Contender):
    """The program shedlock, as a line of crontab starts it."""
    COMMAND = """
        line() { echo "$1 $(date -d "$SHEDLOCK_TICK" +%s) $NUMBER $(date +%s.%N)" >>"$LOG"; }
        line begin
        sleep "$WORK"
        [ "$WRITE" != yes ] || { psql -X -q -d "$SERVER" -c "INSERT INTO written (replica) VALUES ($NUMBER)" &&
            line wrote || line refused; }
        line end"""

    def attempt(self, tick):
        done = subprocess.run(
            ["shedlock", "--dbname", SERVER, "--name", GROUP, "--lease", f"{LEASE}s", "--once-every", f"{TICK} s",
             "--attempts", "3", "--backoff", "1 s", "--catch-up", "all", "--", "sh", "-c", self.COMMAND],
            env=dict(os.environ, NUMBER=NUMBER, SERVER=SERVER), stderr=subprocess.PIPE, check=False)
        if done.returncode not in (0, 75):
            log("error", tick, " ".join(done.stderr.decode().split())[:200])


class Package(Contender):
    """The package for Python, as its README has it."""

    def connect(self):
        self.worker = shedlock.Worker(
            SERVER, [shedlock.Job(name, self.handle, schedule=SCHEDULE, time_zone=ZONE, **ATTEMPTS) for name in NAMES],
            lease=LEASE, on_error=lambda error, run: failed("-", error))

    @staticmethod
    def handle(run):
        def write_row():
            run.check()
            write()

        work(run.tick.timestamp(), write_row=write_row)

    def run(self):
        wait_for_start()
        self.worker.start()
        sleep_until_end()
