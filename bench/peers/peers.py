#!/usr/bin/python3
"""Measures what scripts/peers prints; its head says what, and how.

peers.py [CONTENDER...]: runs in a network namespace of its own, in an empty folder.  The
environment has

SETTINGS       file with lines for postgresql.conf
UNPACKED       folder with what was unpacked of Debian's packages
NODE           folder that has node_modules
NODE_PROGRAM   Node itself
QUICK          if it is set: short times

The caller ends the servers.
"""
import atexit
import http.client
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
QUICK = bool(os.environ.get("QUICK"))
# Seconds: what is counted; a lease, with the least that ZooKeeper accepts; how long is
# waited for another process to work
TICKS = 5 if QUICK else 120
LEASE = 4 if QUICK else 10
WATCH = 10 if QUICK else 90
# How often the process at work is killed, and how many attempts are refused
KILLS = 1 if QUICK else 3
REFUSED = 100


class Contender:
    """A row of the table.  replica is its class in replica.py, or its function in replica.mjs."""

    def __init__(self, label, replica, store, late=True, refused=True, only_late=False, ticks=False, minutes=False):
        self.label = label
        self.replica = replica
        self.store = store
        # What is measured: a late write, refused attempts; or nothing but a late write
        self.late = late
        self.refused = refused
        self.only_late = only_late
        # It knows for which tick a run is; its ticks are minutes.
        self.ticks = ticks
        self.minutes = minutes
        self.node = replica.islower()
        self.name = re.sub(r"\W+", "_", label.lower()).strip("_")


CONTENDERS = [
    Contender("shedlock, `shedlock_once_every`", "OnceEvery", "postgres", ticks=True),
    Contender("shedlock, `CALL shedlock_run` of a job with `attempts`", "CallRun", "postgres",
              late=False, ticks=True),
    Contender("shedlock, `shedlock_run_begin` with these", "RunBegin", "postgres", ticks=True),
    Contender("shedlock, the program with these", "Program", "postgres", ticks=True),
    Contender("shedlock, session lock for which the others wait", "Session", "postgres", refused=False),
    Contender("shedlock, lease with *lock at least for* 0.7 s", "LeaseAtLeast", "postgres"),
    Contender("shedlock, lease without *lock at least for*", "Lease", "postgres"),
    Contender("shedlock, lease, `shedlock_extend` before the write", "LeaseExtended", "postgres", only_late=True),
    Contender("shedlock, lease, `shedlock_assert` in the transaction of the write", "LeaseFenced", "postgres",
              only_late=True),
    Contender("ShedLock 7.9's statements, *lock at least for* 0.7 s", "ShedLock", "postgres"),
    Contender("`pg_try_advisory_lock`, once a tick", "Advisory", "postgres"),
    Contender("`pg_try_advisory_lock`, held by a leader", "AdvisoryLeader", "postgres"),
    Contender("`FOR UPDATE SKIP LOCKED` of the job's row", "SkipLocked", "postgres"),
    Contender("`INSERT` of the tick, `ON CONFLICT DO NOTHING`", "Insert", "postgres", ticks=True),
    Contender("Redis {redis}, `SET NX PX` and delete", "Redis", "redis"),
    Contender("redlock {redlock}", "redlock", "redis", late=False),
    Contender("etcd {etcd}, lease and key", "Etcd", "etcd"),
    Contender("etcd {etcd}, `etcdctl lock` as leader", "EtcdctlLock", "etcd", refused=False),
    Contender("ZooKeeper {zookeeper} with kazoo {kazoo}, lock", "ZooKeeper", "zookeeper"),
    Contender("ZooKeeper {zookeeper} with kazoo {kazoo}, leader", "ZooKeeperLeader", "zookeeper", refused=False),
    Contender("APScheduler {apscheduler}, SQLAlchemy store", "APScheduler", "postgres", late=False, refused=False),
    Contender("pg-boss {pg-boss}, `singletonSeconds`", "pgboss", "postgres", late=False, refused=False, ticks=True),
    Contender("BullMQ {bullmq}, every 1,000 ms", "bullmq", "redis", late=False, refused=False, ticks=True),
    Contender("graphile-worker {graphile-worker}, cron (once a minute)", "graphile", "postgres",
              late=False, refused=False, ticks=True, minutes=True),
]

#
# Processes
#


def spawn(name, *command, **options):
    """Starts a program whose output goes to a log."""
    with open(f"{name}.log", "ab") as log:
        options.setdefault("stdout", log)
        return subprocess.Popen(command, stderr=log, **options)


def children():
    """Returns the child processes of each process."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
                found.setdefault(int(stat.read().rpartition(")")[2].split()[1]), []).append(int(pid))
        except OSError:
            pass
    return found


def tree(pid):
    """Returns a process and all that it has started, parents first."""
    found, pids = children(), [pid]
    for parent in pids:
        pids += found.get(parent, [])
    return pids


def tell(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def wait_for(condition, seconds):
    """Returns what the condition is as soon as it is true, or its last value."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.005)
    return value


#
# Servers
#


def psql(statement):
    return said("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", os.getcwd(), "-U", "postgres", "-c", statement)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def etcd(path):
    connection = http.client.HTTPConnection("127.0.0.1", 2379)
    connection.request("GET", path)
    return connection.getresponse().read().decode()


def zookeeper(word):
    with socket.create_connection(("127.0.0.1", 2181)) as connection:
        connection.sendall(word.encode())
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


def start_redis():
    # Debian's redis-tools has the server's program by another name.
    spawn("redis", "redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--appendonly", "yes",
          executable=shutil.which("redis-check-rdb"))
    return 6379


def start_postgres():
    said("initdb", "-D", "main", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
    with open("main/postgresql.conf", "a", encoding="utf-8") as conf, open(os.environ["SETTINGS"], encoding="utf-8") as more:
        conf.write(f"""{more.read()}
listen_addresses = '0.0.0.0'
unix_socket_directories = '{os.getcwd()}'
max_connections = 500
""")
    with open("main/pg_hba.conf", "a", encoding="utf-8") as hba:
        hba.write("host all all 10.77.0.0/16 trust\n")
    said("pg_ctl", "-D", "main", "-l", "postgres.log", "-w", "start")
    atexit.register(said, "pg_ctl", "-D", "main", "-m", "immediate", "stop")
    psql("""
        CREATE EXTENSION shedlock;
        CREATE SCHEMA peer;
        CREATE TABLE peer.shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL,
            locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL);
        CREATE TABLE peer.job (name text PRIMARY KEY);
        CREATE TABLE peer.tick (name text, tick timestamptz, PRIMARY KEY (name, tick));
        CREATE TABLE written (id bigserial, name text, replica integer);
        CREATE FUNCTION line(log text, replica integer, kind text) RETURNS void LANGUAGE plpgsql AS $$
        BEGIN
            EXECUTE format('COPY (SELECT %L) TO PROGRAM %L', format('%s %s %s %s', kind,
                extract(epoch FROM current_setting('shedlock.tick')::timestamptz), replica,
                extract(epoch FROM clock_timestamp())), 'cat >>' || log);
        END $$;
        CREATE PROCEDURE work(log text, replica integer, takes float) LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM line(log, replica, 'begin');
            PERFORM pg_sleep(takes);
            PERFORM line(log, replica, 'end');
        END $$""")
    return 5432


def start_etcd():
    spawn("etcd", "etcd", "--data-dir", "etcd", "--listen-client-urls", "http://0.0.0.0:2379",
          "--advertise-client-urls", "http://127.0.0.1:2379")
    return 2379


def start_zookeeper():
    # The JAR names its libraries by where they are installed.
    jars = next(folder for folder in (f"{os.environ['UNPACKED']}/usr/share/java", "/usr/share/java")
                if os.path.exists(f"{folder}/zookeeper.jar"))
    os.mkdir("zookeeper")
    with open("zoo.cfg", "w", encoding="utf-8") as conf:
        conf.write(f"tickTime=2000\ndataDir={os.getcwd()}/zookeeper\nclientPort=2181\nadmin.enableServer=false\n"
                   "4lw.commands.whitelist=srvr\n")
    spawn("zookeeper", "java", "-Xmx256m", "-cp", f"{jars}/zookeeper.jar:{jars}/*",
          "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg")
    return 2181


SERVERS = {"postgres": start_postgres, "redis": start_redis, "etcd": start_etcd, "zookeeper": start_zookeeper}
# How many changes a store has made
CHANGES = {
    "postgres": lambda: int(psql("SELECT pg_snapshot_xmax(pg_current_snapshot())")),
    "redis": lambda: int(re.search(r"^rdb_changes_since_last_save:(\d+)", said("redis-cli", "info"), re.M)[1]),
    "etcd": lambda: int(float(re.search(r"^etcd_server_proposals_committed_total (\S+)", etcd("/metrics"), re.M)[1])),
    "zookeeper": lambda: int(re.search(r"^Zxid: (\S+)", zookeeper("srvr"), re.M)[1], 16),
}

#
# A host that can be cut off
#


class Host:
    """A network namespace with a cable to the servers."""
    count = 0
    lock = threading.Lock()

    def __init__(self):
        with Host.lock:
            Host.count += 1
            number = Host.count
        self.address = f"10.77.{number}.1"
        own = os.readlink("/proc/self/ns/net")
        self.process = spawn("host", "unshare", "--net", "--", "sleep", "infinity")
        atexit.register(self.process.kill)
        wait_for(lambda: os.readlink(f"/proc/{self.process.pid}/ns/net") != own, 10)
        said("ip", "link", "add", "name", f"to{number}", "type", "veth",
             "peer", "name", "eth0", "netns", str(self.process.pid))
        said("ip", "addr", "add", f"{self.address}/24", "dev", f"to{number}")
        said("ip", "link", "set", f"to{number}", "up")
        said(*self.on, "ip", "addr", "add", f"10.77.{number}.2/24", "dev", "eth0")
        said(*self.on, "ip", "link", "set", "eth0", "up")

    @property
    def on(self):
        return "nsenter", f"--net=/proc/{self.process.pid}/ns/net", "--"

    def cut(self):
        said(*self.on, "ip", "link", "set", "eth0", "down")


#
# Replicas
#


class Group:
    """Replicas of a contender, all with one job."""
    errors = []

    def __init__(self, contender, phase, **environment):
        self.contender = contender
        self.name = f"{contender.name[:40]}_{phase}"
        self.log = f"{os.getcwd()}/{self.name}.lines"
        self.replicas = {}
        self.environment = dict(
            os.environ, GROUP=self.name, ADDRESS="127.0.0.1", LOG=self.log, TICK="60" if contender.minutes else "1",
            LEASE=str(LEASE), EVERY="1", JITTER="0", TIMES="100000", WORK="0.02", WRITE="no")
        self.environment.update(environment)
        open(self.log, "w", encoding="utf-8").close()
        if contender.node and contender.store == "postgres":
            psql(f"CREATE DATABASE {self.name}")
        elif contender.replica == "SkipLocked":
            psql(f"INSERT INTO peer.job VALUES ('{self.name}')")

    def start(self, number, host=None, **environment):
        command = ["/usr/bin/python3", f"{HERE}/replica.py"]
        if self.contender.node:
            command = [os.environ["NODE_PROGRAM"], f"{HERE}/replica.mjs"]
        if host:
            command = [*host.on, *command]
            environment["ADDRESS"] = host.address
        replica = spawn(self.name, *command, self.contender.replica, str(number),
                        env={**self.environment, **environment}, cwd=os.environ["NODE"] if self.contender.node else None,
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.replicas[number] = replica
        if replica.stdout.readline() != b"ready\n":
            raise RuntimeError(f"a replica did not start: see {self.name}.log")

    def go(self, numbers, start):
        for number in numbers:
            self.replicas[number].stdin.write(f"{start}\n".encode())
            self.replicas[number].stdin.flush()

    def first_works(self):
        self.go([0], time.time())
        if not wait_for(lambda: self.lines("begin"), 70):
            self.end()
            raise RuntimeError("nobody began to work")

    def lines(self, kind):
        """Returns what the replicas have logged: tick, number, time."""
        with open(self.log, encoding="utf-8") as log:
            lines = [line.split() for line in log if line.endswith("\n")]
        return [(line[1], int(line[2]), float(line[3])) for line in lines if line[0] == kind]

    def end(self):
        for replica in self.replicas.values():
            tell(tree(replica.pid), signal.SIGCONT)
            tell(tree(replica.pid), signal.SIGKILL)
        for replica in self.replicas.values():
            replica.wait()
        with open(self.log, encoding="utf-8") as log:
            # The first replica of a group is disturbed, except while runs are counted.
            Group.errors += [f"{self.name}: {line.strip()}" for line in log
                             if line.startswith("error") and (len(self.replicas) == 6 or line.split()[2] != "0")]


def side_by_side(function, contenders):
    """Returns what a function returns for each of the contenders, all at the same time."""
    results = {}

    def call(contender):
        try:
            results[contender] = function(contender)
        except Exception as error:
            Group.errors.append(f"{function.__name__}, {contender.label}: {error!r}")

    threads = [threading.Thread(target=call, args=(contender,)) for contender in contenders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


#
# Measures
#


def count_runs(contenders):
    # Timers fire for longer than is counted: neither the first calls count nor the ends of the replicas.
    groups = {contender: Group(contender, "ticks", TIMES=str(TICKS + 10), JITTER="0.1") for contender in contenders}
    for number in range(6):
        side_by_side(lambda contender: groups[contender].start(number), contenders)
    # Ticks of the database begin with the second.
    start = int(time.time()) + 3.3
    for group in groups.values():
        group.go(group.replicas, start)
    time.sleep(max(0, start + TICKS + 13 - time.time()))
    for group in groups.values():
        group.end()
    first = int(start) + 5
    counts = {}
    for contender, group in groups.items():
        begun = [tick for tick, _, at in group.lines("begin") if first <= second(tick, at) < first + TICKS]
        counts[contender] = f"{len(begun)} of {len(set(begun))}" if contender.minutes else f"{len(begun)}"
    return counts


def second(tick, at):
    """Returns the second that a run is for, or if its tick has another name, the time of its begin."""
    try:
        return float(tick)
    except ValueError:
        return at


def begin(contender, phase, host=None, **environment):
    """Returns a group whose replica 0 is at work, and two others that try five times a second, and the tick."""
    group = Group(contender, phase, EVERY="0.2")
    group.start(0, host, **environment)
    for number in 1, 2:
        group.start(number)
    group.first_works()
    group.go([1, 2], time.time())
    time.sleep(0.4)
    return group, group.lines("begin")[0][0]


def others(group, since, tick=None):
    return [at for of, number, at in group.lines("begin") if number > 0 and at > since and tick in (None, of)]


def killed(contender):
    """Returns the times until another replica works, and until the interrupted tick is run again."""
    works, again = [], []
    for turn in range(1 if contender.node else KILLS):
        group, tick = begin(contender, f"kill{turn}", WORK="600")
        pids = tree(group.replicas[0].pid)
        at = time.time()
        tell(pids, signal.SIGKILL)
        for times, of in (works, None), (again, tick):
            # What has not come once is not waited for again.
            if len(times) == turn and (of is None or contender.ticks):
                found = wait_for(lambda: others(group, at, of), at + WATCH - time.time())
                times += [found[0] - at] if found else []
        group.end()
    return [statistics.median(times) if times else None for times in (works, again)]


def vanished(contender):
    host = Host()
    group, _ = begin(contender, "cut", host, WORK="600")
    at = time.time()
    host.cut()
    found = wait_for(lambda: others(group, at), WATCH)
    group.end()
    return found[0] - at if found else None


def late_write(contender):
    """Returns what becomes of the write of a holder that was stopped while another one worked."""
    def answered():
        return [line for kind in ("wrote", "refused") for line in group.lines(kind) if line[1] == 0]

    group, _ = begin(contender, "late", WORK="3", WRITE="yes")
    at = time.time()
    pids = tree(group.replicas[0].pid)
    tell(pids, signal.SIGSTOP)
    if answered():
        group.end()
        raise RuntimeError("the write was early")
    taken = wait_for(lambda: others(group, at), 3 * LEASE)
    if taken:
        time.sleep(1.5)
        tell(pids, signal.SIGCONT)
        wait_for(answered, 10)
    group.end()
    if not taken:
        return "nobody else works"
    return "lands" if psql(f"SELECT count(*) FROM written WHERE name = '{group.name}' AND replica = 0") != "0" else "refused"


def refused(contender):
    """Returns how many changes a hundred refused attempts make in the store."""
    group = Group(contender, "refused", TICK="86400", LEASE="3600", EVERY="0", TIMES=str(REFUSED))
    group.start(0, WORK="600")
    group.start(1)
    group.first_works()
    time.sleep(0.5)
    before = CHANGES[contender.store]()
    group.go([1], time.time())
    group.replicas[1].wait()
    changes = CHANGES[contender.store]() - before
    begun = len(group.lines("begin"))
    group.end()
    if begun > 1:
        raise RuntimeError("an attempt was not refused")
    return changes


def versions():
    found = {
        "redis": said("redis-cli", "--version").split()[1],
        "etcd": re.search(r"etcd Version: (\S+)", said("etcd", "--version"))[1],
        "zookeeper": re.search(r"version: ([0-9.]+)", zookeeper("srvr"))[1],
    }
    for module, name in ("kazoo", "kazoo.version.__version__"), ("apscheduler", "apscheduler.version"):
        found[module] = said("/usr/bin/python3", "-c", f"import kazoo.version, apscheduler; print({name})")
    for module in "redlock", "pg-boss", "bullmq", "graphile-worker":
        with open(f"{os.environ['NODE']}/node_modules/{module}/package.json", encoding="utf-8") as package:
            found[module] = json.load(package)["version"].lstrip("v")
    return found


def seconds(value):
    return f"{value:.2f} s" if value is not None else f"not within {WATCH} s"


def main():
    said("ip", "link", "set", "lo", "up")
    wanted = [contender for contender in CONTENDERS if not sys.argv[1:] or contender.replica in sys.argv[1:]]
    ports = [start() for start in SERVERS.values()]
    if not wait_for(lambda: all(map(listens, ports)), 60):
        sys.exit("a server does not start")
    usual = [contender for contender in wanted if not contender.only_late]
    # This is counted while nothing else happens.
    changes = {}
    for contender in filter(lambda contender: contender.refused, usual):
        changes.update(side_by_side(refused, [contender]))
    late = side_by_side(late_write, [contender for contender in wanted if contender.late])
    runs = count_runs(usual)
    kill = side_by_side(killed, usual)
    cut = side_by_side(vanished, usual)

    of = versions()
    print(f"| Tool | Runs for {TICKS} ticks | Killed: another process works after "
          f"| Killed: the interrupted tick runs again after | Host vanished: another one works after "
          f"| Late write | Changes by {REFUSED} refused attempts |")
    print("|---|--:|--:|--:|--:|---|--:|")
    for contender in wanted:
        works, again = map(seconds, kill[contender]) if contender in kill else ("", "")
        vanish = seconds(cut[contender]) if contender in cut else ""
        cells = [runs.get(contender, ""), works, again if contender.ticks else "", vanish, late.get(contender, ""),
                 str(changes.get(contender, ""))]
        print(f"| {contender.label.format(**of)} | " + " | ".join(cells) + " |")
    for error in Group.errors:
        print(error, file=sys.stderr)
    return bool(Group.errors)


if __name__ == "__main__":
    sys.exit(main())
