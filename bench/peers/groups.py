"""Replicas of a tool, all with one job"""
import os
import signal
import subprocess
import sys
import threading
import time

from processes import spawn, tell, tree, wait_for
from stores import psql

HERE = os.path.dirname(os.path.abspath(__file__))
QUICK = bool(os.environ.get("QUICK"))
# Seconds: a lease, with the least that ZooKeeper accepts
LEASE = 4 if QUICK else 10
# What starts a replica: command, and folder
LANGUAGES = {
    "python": lambda: (["/usr/bin/python3", f"{HERE}/python/replica.py"], None),
    "newer_python": lambda: (["env", f"PYTHONPATH={os.environ['NEWER_PYTHON']}/packages:{HERE}/newer_python",
                              f"{os.environ['NEWER_PYTHON']}/bin/python3", f"{HERE}/python/replica.py"], None),
    "node": lambda: ([os.environ["NODE_PROGRAM"], "replica.mjs"], os.environ["NODE"]),
    "java": lambda: (["java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", os.environ["JAVA_PATH"], "Replica"], None),
    "go": lambda: ([os.environ["GO_PROGRAM"]], None),
}


class Group:
    """Replicas of a contender.  Each group has a name and a database of its own."""
    # What could not be measured; errors that replicas have logged; and those that have not ended
    failures, errors, alive = [], [], []

    def __init__(self, contender, phase, **environment):
        self.contender = contender
        self.name = f"{contender.name[:40]}_{phase}"
        self.database = contender.database or self.name
        self.log = f"{os.getcwd()}/{self.name}.lines"
        self.replicas = {}
        self.environment = dict(
            os.environ, GROUP=self.name, DATABASE=self.database, ADDRESS="127.0.0.1", LOG=self.log,
            TICK=str(contender.tick), CRON="", ZONE="UTC", JOBS="1", LEASE=str(LEASE), EVERY="1",
            JITTER="0", TIMES="100000", WORK="0.02", WRITE="no", RATE="no", SKEW="0", **contender.environment)
        self.environment.update(environment)
        open(self.log, "w", encoding="utf-8").close()
        Group.alive.append(self)
        if not contender.database:
            psql(f"CREATE DATABASE {self.name} TEMPLATE peer STRATEGY file_copy")

    def start(self, number, host=None, **environment):
        command, folder = LANGUAGES[self.contender.language]()
        if host:
            command = [*host.on, *command]
            environment["ADDRESS"] = host.address
        replica = spawn(self.name, *command, self.contender.run, str(number), env={**self.environment, **environment},
                        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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
        """Returns what the replicas have logged: tick, number, time, when the tick was due."""
        with open(self.log, encoding="utf-8") as log:
            lines = [line.split() for line in log if line.endswith("\n")]
        return [(line[1], int(line[2]), float(line[3]), due(line)) for line in lines if line[0] == kind]

    def end(self):
        Group.alive.remove(self)
        for replica in self.replicas.values():
            tell(tree(replica.pid), signal.SIGCONT)
            tell(tree(replica.pid), signal.SIGKILL)
        for replica in self.replicas.values():
            replica.wait()
        with open(self.log, encoding="utf-8") as log:
            # The first replica of a group is disturbed, except while runs are counted.
            Group.errors += [f"{self.name}: {line.strip()}" for line in log
                             if line.startswith("error") and (len(self.replicas) == 6 or line.split()[2] != "0")]
        if self.contender.database:
            psql(f"DELETE FROM cron.job WHERE jobname LIKE '{self.name}%'", self.database)
        else:
            psql(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


def due(line):
    """Returns when the tick of a line was due, as far as the tool says it, or the begin of the second."""
    for text in line[4:5] + line[1:2]:
        try:
            # Ticks that are numbers are seconds since 1970; else it is the number of a job.
            if float(text) > 1e9:
                return float(text)
        except ValueError:
            pass
    return float(int(float(line[3])))


def side_by_side(function, contenders, at_once=100):
    """Returns what a function returns for each of the contenders, so many at the same time.

    What fails is tried once more.
    """
    results = {}

    def call(contender):
        failures = []
        while contender not in results and len(failures) < 2:
            try:
                for group in [group for group in Group.alive if group.contender is contender]:
                    group.end()
                results[contender] = function(contender)
            except Exception as error:
                failures.append(f"{function.__name__}, {contender.label}: {error!r}")
                print(failures[-1], file=sys.stderr)
        if contender not in results:
            Group.failures.append(failures[-1])

    contenders = list(contenders)
    for first in range(0, len(contenders), at_once):
        threads = [threading.Thread(target=call, args=(contender,)) for contender in contenders[first:first + at_once]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return results
