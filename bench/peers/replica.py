#!/usr/bin/python3
"""A replica of a service with a timer: replica.py CONTENDER NUMBER

It connects, prints "ready", and reads from standard input when its timer first fires.
The environment has

GROUP               name of the job, and of its lock
ADDRESS             where all servers are
LOG                 file for lines of kind, tick, replica, time and text
EVERY, JITTER       seconds between two calls of the timer, and by how much it may be late
TIMES               how often it fires
TICK, LEASE, WORK   seconds
WRITE               "yes": a row is written at the end of the work
"""
import base64
import http.client
import json
import os
import random
import subprocess
import sys
import time

import psycopg2

CONTENDER, NUMBER = sys.argv[1:]
GROUP, ADDRESS, LOG = (os.environ[name] for name in ("GROUP", "ADDRESS", "LOG"))
EVERY, JITTER, TICK, LEASE, WORK = (float(os.environ[name]) for name in ("EVERY", "JITTER", "TICK", "LEASE", "WORK"))
TIMES = int(os.environ["TIMES"])
WRITE = os.environ["WRITE"] == "yes"
ATTEMPTS = "attempts => 3, backoff => '1 s', catch_up => 'all'"
INSERT = f"INSERT INTO written (name, replica) VALUES ('{GROUP}', {NUMBER})"


def log(kind, tick, text=""):
    """Appends a line by one write, so that lines of processes do not mix."""
    with open(LOG, "ab", 0) as file:
        file.write(f"{kind} {tick} {NUMBER} {time.time():.4f} {text}\n".encode())


class Contender:
    """A job without a lock.  Subclasses have attempt(), which acquires, works and releases."""

    def connect(self):
        """Opens the connections, so that the first call of the timer has them."""

    def write(self):
        self.data.cursor().execute(INSERT)

    def work(self, tick):
        log("begin", tick)
        time.sleep(WORK)
        if WRITE:
            try:
                self.write()
                log("wrote", tick)
            except Exception as error:
                log("refused", tick, " ".join(str(error).split())[:100])
        log("end", tick)

    def run(self):
        for n in range(TIMES):
            at = start + n * EVERY + random.uniform(0, JITTER)
            if at + EVERY < time.time() and EVERY > 0:
                continue
            time.sleep(max(0, at - time.time()))
            try:
                self.attempt(int(at / TICK))
            except Exception as error:
                log("error", n, " ".join(str(error).split())[:200])


class Postgres(Contender):
    settings = ""

    def connect(self):
        self.connection = psycopg2.connect(
            host=ADDRESS, port=5432, user="postgres", dbname="postgres", options=self.settings)
        self.connection.autocommit = True

    def value(self, statement, **parameters):
        """Returns the first column of the first row, or the count of rows if there are no columns."""
        cursor = self.connection.cursor()
        cursor.execute(statement, dict(parameters, name=GROUP, replica=NUMBER, lease=f"{LEASE} s", tick=f"{TICK} s"))
        return cursor.fetchone()[0] if cursor.description else cursor.rowcount


# shedlock


class OnceEvery(Postgres):
    def attempt(self, tick):
        if self.value("SELECT shedlock_once_every(%(name)s, %(tick)s)"):
            # A timer that is a little early has claimed the coming tick.
            self.work(self.value("SELECT extract(epoch FROM tick) FROM _shedlock_tick WHERE name = %(name)s"))


class Lease(Postgres):
    at_least = "0"

    def attempt(self, tick):
        self.token = self.value(
            "SELECT shedlock_acquire_token(%(name)s, %(lease)s, %(at_least)s)", at_least=self.at_least)
        if self.token is not None:
            self.work(tick)
            self.value("SELECT shedlock_release(%(name)s, %(token)s)", token=self.token)


class LeaseAtLeast(Lease):
    at_least = "0.7 s"


class LeaseExtended(Lease):
    def write(self):
        if not self.value("SELECT shedlock_extend(%(name)s, %(lease)s, token => %(token)s)", token=self.token):
            raise RuntimeError("the lock was lost")
        super().write()


class LeaseFenced(Lease):
    def write(self):
        self.value(f"BEGIN; SELECT shedlock_assert(%(name)s, %(token)s); {INSERT}; COMMIT", token=self.token)


class Session(Postgres):
    """A leader, which works on the connection that has the lock; the others wait for it."""
    leads = False

    def attempt(self, tick):
        if self.leads:
            self.leads = self.value("SELECT shedlock_extend(%(name)s)")
        else:
            self.leads = self.value("SELECT shedlock_acquire_session(%(name)s, %(lease)s, wait => '20 s')")
        if self.leads:
            # The wait may have been long.
            self.work(int(time.time() / TICK))

    def write(self):
        self.value(INSERT)


class Job(Postgres):
    def connect(self):
        super().connect()
        self.value(f"SELECT shedlock_job(%(name)s, 'every ' || %(tick)s, {ATTEMPTS})")


class RunBegin(Job):
    def attempt(self, tick):
        cursor = self.connection.cursor()
        cursor.execute("SELECT token, extract(epoch FROM tick) FROM shedlock_run_begin(%s, %s)", (GROUP, f"{LEASE} s"))
        self.token, tick = cursor.fetchone()
        if self.token is not None:
            self.work(tick)
            self.value("SELECT shedlock_run_end(%(name)s, %(token)s)", token=self.token)

    write = LeaseExtended.write


class CallRun(Job):
    """The work is the procedure work of peers.py, in the server."""
    settings = "-c client_connection_check_interval=100ms"

    def attempt(self, tick):
        self.value(
            "CALL shedlock_run(%(name)s, %(command)s, %(lease)s)", command=f"CALL work('{LOG}', {NUMBER}, {WORK})")


class Program(Contender):
    """The program shedlock, as a line of crontab starts it."""
    COMMAND = """
        line() { echo "$1 $(date -d "$SHEDLOCK_TICK" +%s) $NUMBER $(date +%s.%N)" >>"$LOG"; }
        line begin
        sleep "$WORK"
        [ "$WRITE" != yes ] || { psql -X -q -d "$DATA" -c "$INSERT" && line wrote || line refused; }
        line end"""

    def attempt(self, tick):
        server = f"host={ADDRESS} port=5432 user=postgres dbname=postgres"
        done = subprocess.run(
            ["shedlock", "--dbname", server, "--name", GROUP, "--lease", f"{LEASE}s", "--once-every", f"{TICK} s",
             "--attempts", "3", "--backoff", "1 s", "--catch-up", "all", "--", "sh", "-c", self.COMMAND],
            env=dict(os.environ, NUMBER=NUMBER, INSERT=INSERT, DATA=server), stderr=subprocess.PIPE, check=False)
        if done.returncode not in (0, 75):
            log("error", tick, " ".join(done.stderr.decode().split())[:200])


# PostgreSQL


class ShedLock(Postgres):
    """The statements of ShedLock's JDBC provider with usingDbTime(), and its memory of rows that exist."""
    NOW = "timezone('utc', CURRENT_TIMESTAMP)"
    UPDATE = f"lock_until = {NOW} + %(lease)s, locked_at = {NOW}, locked_by = 'host ' || %(replica)s"
    inserted = False

    def attempt(self, tick):
        acquired = 0
        if not self.inserted:
            acquired = self.value(f"""INSERT INTO peer.shedlock
                VALUES (%(name)s, {self.NOW} + %(lease)s, {self.NOW}, 'host ' || %(replica)s)
                ON CONFLICT (name) DO UPDATE SET {self.UPDATE}
                WHERE peer.shedlock.name = %(name)s AND peer.shedlock.lock_until <= {self.NOW}""")
            self.inserted = True
        if not acquired:
            acquired = self.value(f"""UPDATE peer.shedlock SET {self.UPDATE}
                WHERE name = %(name)s AND lock_until <= {self.NOW}""")
        if acquired:
            self.work(tick)
            self.value(f"""UPDATE peer.shedlock SET lock_until = greatest(locked_at + interval '0.7 s', {self.NOW})
                WHERE name = %(name)s AND locked_by = 'host ' || %(replica)s""")


class Advisory(Postgres):
    def attempt(self, tick):
        if self.value("SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0))"):
            self.work(tick)
            self.value("SELECT pg_advisory_unlock(hashtextextended(%(name)s, 0))")


class AdvisoryLeader(Postgres):
    leads = False

    def attempt(self, tick):
        self.leads = self.leads or self.value("SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0))")
        if self.leads:
            self.value("SELECT 1")
            self.work(tick)

    write = Session.write


class SkipLocked(Postgres):
    """The row of the job, locked by a transaction that is open during the work."""

    def attempt(self, tick):
        self.value("BEGIN")
        self.value("SELECT count(*) FROM (SELECT FROM peer.job WHERE name = %(name)s FOR UPDATE SKIP LOCKED) locked") \
            and self.work(tick)
        self.value("COMMIT")

    write = Session.write


class Insert(Postgres):
    def attempt(self, tick):
        tick = self.value("""WITH inserted AS (
                INSERT INTO peer.tick VALUES (%(name)s, date_bin(%(tick)s, clock_timestamp(), 'epoch'))
                ON CONFLICT DO NOTHING RETURNING tick)
            SELECT extract(epoch FROM max(tick)) FROM inserted""")
        if tick is not None:
            self.work(tick)


class APScheduler(Contender):
    def run(self):
        from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
        from apscheduler.schedulers.background import BackgroundScheduler

        store = SQLAlchemyJobStore(url=f"postgresql+psycopg2://postgres@{ADDRESS}/postgres", tablename=f"aps_{GROUP}")
        scheduler = BackgroundScheduler(timezone="UTC", jobstores={"default": store})
        time.sleep(max(0, start - time.time()))
        # The first one makes the table.
        time.sleep(0.15 * int(NUMBER))
        scheduler.start()
        scheduler.add_job("replica:aps_job", "interval", seconds=TICK, id="job", replace_existing=True, max_instances=1)
        time.sleep(max(0, start + TIMES * EVERY - time.time()))
        scheduler.shutdown(wait=False)


def aps_job():
    contender.work(int(time.time() / TICK))


# Other servers


class Redis(Contender):
    DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

    def connect(self):
        import redis

        self.redis = redis.Redis(host=ADDRESS)
        self.redis.ping()

    def attempt(self, tick):
        value = f"{NUMBER} {tick} {time.time()}"
        if self.redis.set(GROUP, value, nx=True, px=int(LEASE * 1000)):
            self.work(tick)
            self.redis.eval(self.DELETE, 1, GROUP, value)


class Etcd(Contender):
    """A lease and a key that is created if it is not there, as the Python client etcd3 does it, by etcd's JSON."""

    def connect(self):
        self.http = http.client.HTTPConnection(ADDRESS, 2379)

    def post(self, path, **body):
        self.http.request("POST", f"/v3/{path}", json.dumps(body))
        return json.load(self.http.getresponse())

    def attempt(self, tick):
        lease = self.post("lease/grant", TTL=str(int(LEASE)))["ID"]
        key = base64.b64encode(GROUP.encode()).decode()
        if self.post("kv/txn", compare=[{"key": key, "target": "CREATE", "create_revision": "0"}],
                     success=[{"request_put": {"key": key, "value": key, "lease": lease}}]).get("succeeded"):
            self.work(tick)
        self.post("lease/revoke", ID=lease)


class EtcdctlLock(Contender):
    """etcdctl lock starts this program again as the leader."""

    def run(self):
        subprocess.run(["etcdctl", "--endpoints", f"{ADDRESS}:2379", "lock", "--ttl", str(int(LEASE)), GROUP,
                        sys.executable, __file__, "Leader", NUMBER],
                       env=dict(os.environ, ETCDCTL_API="3", START=str(start)), check=False)


class Leader(Contender):
    attempt = Contender.work


class ZooKeeper(Contender):
    """kazoo's lock: an ephemeral sequential node."""

    def connect(self):
        from kazoo.client import KazooClient

        self.client = KazooClient(hosts=f"{ADDRESS}:2181", timeout=LEASE)
        self.client.start()
        self.lock = self.client.Lock(f"/{GROUP}", NUMBER)

    def attempt(self, tick):
        if self.lock.acquire(blocking=False):
            self.work(tick)
            self.lock.release()


class ZooKeeperLeader(ZooKeeper):
    leads = False

    def attempt(self, tick):
        self.leads = self.leads and self.client.connected or self.lock.acquire(blocking=False)
        if self.leads:
            self.work(tick)


if __name__ == "__main__":
    # what APScheduler looks up by its name
    sys.modules["replica"] = sys.modules["__main__"]
    contender = globals()[CONTENDER]()
    contender.connect()
    if WRITE:
        contender.data = psycopg2.connect(host=ADDRESS, user="postgres", dbname="postgres")
        contender.data.autocommit = True
    print("ready", flush=True)
    # etcdctl passes no input on
    start = float(os.environ.get("START") or sys.stdin.readline())
    contender.run()
