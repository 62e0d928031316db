#!/usr/bin/python3
"""Measures what scripts/peers prints; its head says what, and how.

peers.py [--night] [CONTENDER...]: runs in a network namespace of its own, in an empty folder.
--night measures that column alone, under a clock that runs faster.  The environment has

SETTINGS       file with lines for postgresql.conf
UNPACKED       folder with what was unpacked of Debian's packages
NODE           folder with node_modules and the contenders that are written for Node
NODE_PROGRAM   Node itself
JAVA_PATH      class path of the contenders in Java
GO_PROGRAM     program of the contenders in Go
VERSIONS       file with a line "NAME VERSION" for each package that was fetched
SKEW_LIBRARY   library that moves the clock of a program
FAKETIME_LIBRARY  library that lets it run faster
QUICK          if it is set: short times

The caller ends the servers.
"""
import json
import os
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

from contenders import named
from groups import LEASE, QUICK, Group, side_by_side
from processes import Host, said, tell, tree, wait_for
from stores import CHANGES, SERVERS, calls, listens, psql, zookeeper

# Seconds: what is counted; with a clock that is ahead, by how much; how long is waited for another
# process to work; how long calls are counted when nothing is due; how long a snapshot is held
TICKS = 5 if QUICK else 120
TICKS_AHEAD = 5 if QUICK else 60
AHEAD = 20 if QUICK else 90
WATCH = 10 if QUICK else 90
IDLE = 12 if QUICK else 60
SNAPSHOT = 20 if QUICK else 600
# How many contenders are measured at once in a night whose seconds are so much shorter, and in a second one
NIGHT_AT_ONCE, NIGHT_SPEED = ((2, 1), 40) if QUICK else ((6, 2), 20)
# How often the process at work is killed, and how many attempts are refused
KILLS = 1 if QUICK else 3
REFUSED = 100
EVE, NIGHT = "2026-10-24", "2026-10-25"
STARTS = threading.Lock()


def six(contender, phase, ahead=(), **environment):
    """Returns a group of six replicas that are ready, those of `ahead` with a clock that is ahead."""
    group = Group(contender, phase, **environment)
    moved = {"SKEW": str(AHEAD), "LD_PRELOAD": os.environ["SKEW_LIBRARY"], "SKEW_FILE": f"{os.getcwd()}/skew"}
    for number in range(6):
        group.start(number, **moved if number in ahead else {})
    return group


def count_runs(contender, phase="ticks", ticks=TICKS, later=0, **options):
    """Returns the runs for the ticks that are counted, and how long after its tick the first run of each began."""
    ticks = max(ticks, contender.tick * (1 if QUICK else 2))
    # Timers fire for longer than is counted: neither the first calls count nor the ends of the replicas.
    group = six(contender, phase, TIMES=str(later + ticks + 10), JITTER="0.1", **options)
    # Ticks of the database begin with the second.
    start = int(time.time()) + 3.3
    group.go(group.replicas, start)
    time.sleep(max(0, start + later + ticks + 13 - time.time()))
    first = int(start) + 5 + later
    begun = [(due, at) for _, _, at, due in group.lines("begin") if first <= due < first + ticks]
    group.end()
    firsts = {}
    for due, at in begun:
        firsts[due] = min(at, firsts.get(due, at))
    runs = len(begun) if contender.tick == 1 else f"{len(begun)} of {ticks // contender.tick}"
    return runs, [at - due for due, at in firsts.items()]


def clock_ahead(contender):
    # Each of these ticks may have had its run at the begin, when it was due for the clock that is ahead.
    return count_runs(contender, "ahead", TICKS_AHEAD, later=AHEAD, ahead=[5])


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
    return [at for of, number, at, _ in group.lines("begin") if number > 0 and at > since and tick in (None, of)]


def watch(contender):
    return max(WATCH, contender.tick + 10)


def killed(contender):
    """Returns the times until another replica works, and until the interrupted tick is run again."""
    works, again = [], []
    for turn in range(1 if contender.schedules else KILLS):
        group, tick = begin(contender, f"kill{turn}", WORK="600")
        pids = tree(group.replicas[0].pid)
        at = time.time()
        tell(pids, signal.SIGKILL)
        for times, of in (works, None), (again, tick):
            # What has not come once is not waited for again.
            if len(times) == turn and (of is None or contender.ticks):
                found = wait_for(lambda: others(group, at, of), at + watch(contender) - time.time())
                times += [found[0] - at] if found else []
        group.end()
    return [statistics.median(times) if times else None for times in (works, again)]


def vanished(contender):
    host = Host()
    group, _ = begin(contender, "cut", host, WORK="600")
    host.cut()
    # A leader may have stored the next job a moment before.
    at = time.time()
    found = wait_for(lambda: others(group, at), watch(contender))
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
    taken = wait_for(lambda: others(group, at), watch(contender))
    if taken:
        time.sleep(1.5)
        tell(pids, signal.SIGCONT)
        wait_for(answered, 10)
    landed = psql("SELECT count(*) FROM written WHERE replica = 0", group.database) != "0"
    group.end()
    return f"nobody else works within {watch(contender)} s" if not taken else "lands" if landed else "refused"


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


def idle(contender):
    """Returns how many statements a minute six replicas send with 20 jobs that are due once a day, in twelve hours."""
    at = time.gmtime(time.time() + 43200)
    group = six(contender, "idle", CRON=f"{at.tm_min} {at.tm_hour} * * *", JOBS="20", EVERY=str(contender.polls or 1))
    group.go(group.replicas, time.time())
    time.sleep(IDLE / 2)
    before = calls(contender.store, group.database)
    time.sleep(IDLE)
    sent = calls(contender.store, group.database) - before
    group.end()
    return round(sent * 60 / IDLE)


def start_pairs(contender):
    group = Group(contender, "decay", RATE="yes")
    group.start(0)
    group.go([0], time.time())
    return group


def alone(groups):
    """Returns how many pairs each group makes in the same time while the others stand still."""
    def tell_group(group, signal_number):
        tell(tree(group.replicas[0].pid), signal_number)

    counts = {}
    for group in groups.values():
        tell_group(group, signal.SIGSTOP)
    for contender, group in groups.items():
        tell_group(group, signal.SIGCONT)
        # It may have to begin anew what has timed out.
        time.sleep(3)
        since = time.time()
        time.sleep(max(3, SNAPSHOT / 50))
        counts[contender] = sum(int(count) for count, _, at, _ in group.lines("pairs") if since < at <= time.time())
        tell_group(group, signal.SIGSTOP)
    for group in groups.values():
        tell_group(group, signal.SIGCONT)
    return counts


def hold_snapshot(database):
    return subprocess.Popen(
        ["psql", "-Xq", "-h", os.getcwd(), "-U", "postgres", "-d", database,
         "-c", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class; SELECT pg_sleep(86400)"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def decay(contenders):
    """Returns the rates of pairs under a snapshot that was held for so long, divided by those before.

    What fails is tried once more.
    """
    ratios = {}
    for _ in "once", "once more":
        missing = [contender for contender in contenders if contender not in ratios]
        groups = side_by_side(start_pairs, missing)
        if not groups:
            break
        # until programs have read and compiled what they need
        time.sleep(max(6, SNAPSHOT / 10))
        before = alone(groups)
        holders = [hold_snapshot(group.database) for group in groups.values()]
        time.sleep(SNAPSHOT)
        after = alone(groups)
        ratios.update((contender, after[contender] / before[contender]) for contender in groups
                      if before[contender] and after[contender])
        # This drops the database, and ends the session that holds its snapshot.
        for group in groups.values():
            group.end()
        for holder in holders:
            holder.wait()
    Group.failures += [f"decay, {contender.label}: no pairs" for contender in contenders if contender not in ratios]
    return ratios


def night(contender):
    """Returns the runs of a job that is due at 02:30 in the night in which summer time ends in Berlin."""
    def until(clock):
        return time.mktime(time.strptime(f"{NIGHT} {clock}", "%Y-%m-%d %H:%M")) - time.time()

    # Many programs that start at once would take longer than their shorter seconds allow.
    with STARTS:
        # A replica that waits for its turn must not be taken for dead, so these times are longer.
        group = six(contender, "night", CRON="30 2 * * *", ZONE="Europe/Berlin", EVERY="10", LEASE="600", HEARTBEAT="60",
                    CHECK_IN="60000")
    # 02:30 comes at half past midnight and at half past one in UTC, which is the zone of this process.
    if until("00:25") < 0:
        raise RuntimeError("the replicas have started too late")
    group.go(group.replicas, time.time())
    time.sleep(until("01:50"))
    begun = len(group.lines("begin"))
    group.end()
    if not begun:
        raise RuntimeError("no run")
    return begun


def one_night(names):
    """Returns the counts of these contenders, measured under a clock that runs faster."""
    folder = tempfile.mkdtemp(prefix="night", dir=".")
    # The processes that this one starts share its begin, an hour before the first 02:30.
    with open(f"{folder}.log", "ab") as log:
        measured = subprocess.run(
            ["unshare", "--net", "--", "env", f"LD_PRELOAD={os.environ['FAKETIME_LIBRARY']}",
             f"FAKETIME=@{EVE} 23:30:00 x{NIGHT_SPEED}", "FAKETIME_DONT_RESET=1", "TZ=UTC", "NO_FAKE_STAT=1",
             sys.executable, __file__, "--night", *names], cwd=folder, stdout=subprocess.PIPE, stderr=log, check=False)
    # What is as much shorter as the seconds may have come too early.
    with open(f"{folder}.log", encoding="utf-8") as log:
        sys.stderr.writelines(f"by night, which does not count: {line}" for line in log)
    try:
        return json.loads(measured.stdout)
    except ValueError:
        return {}


def nights(names):
    """Returns what one_night() returns, of some at a time.  What fails is tried once more, with fewer beside it."""
    counts = {}
    for at_once in NIGHT_AT_ONCE:
        missing = [name for name in names if name not in counts]
        for first in range(0, len(missing), at_once):
            counts.update(one_night(missing[first:first + at_once]))
    Group.failures += [f"{name}: not measured by night" for name in names if name not in counts]
    return counts


def versions(stores):
    with open(os.environ["VERSIONS"], encoding="utf-8") as lines:
        found = dict(line.split() for line in lines)
    # A client of a server may have its name.
    found.update({
        "redis": said("redis-cli", "--version").split()[1],
        "etcd": re.search(r"etcd Version: (\S+)", said("etcd", "--version"))[1],
        "zookeeper": re.search(r"version: ([0-9.]+)", zookeeper("srvr"))[1] if "zookeeper" in stores else "",
        "kazoo": said("/usr/bin/python3", "-c", "import kazoo.version; print(kazoo.version.__version__)"),
        "pg_cron": psql("SELECT extversion FROM pg_extension WHERE extname = 'pg_cron'", "cron"),
    })
    return found


def seconds(value, contender):
    return f"{value:.2f} s" if value is not None else f"not within {watch(contender)} s"


def start_servers(stores, speed=1):
    said("ip", "link", "set", "lo", "up")
    ports = [SERVERS[store]() for store in stores]
    if not wait_for(lambda: all(map(listens, ports)), 60 * speed):
        sys.exit("a server does not start")


def main():
    arguments = sys.argv[1:]
    by_night = "--night" in arguments[:1]
    wanted = named(arguments[by_night:])
    stores = {"postgres", *(contender.store for contender in wanted)}
    start_servers(stores, NIGHT_SPEED if by_night else 1)
    if by_night:
        counts = side_by_side(night, wanted)
        print(json.dumps({contender.name: count for contender, count in counts.items()}))
        sys.stderr.writelines(f"{error}\n" for error in Group.errors)
        return 0

    with open("skew", "wb") as file:
        file.write(struct.pack("q", AHEAD * 1_000_000))
    usual = [contender for contender in wanted if not contender.only_late]
    # This is counted, and timed, while little else happens.
    changes = {}
    for contender in usual:
        if contender.refused:
            changes.update(side_by_side(refused, [contender]))
    runs = side_by_side(count_runs, usual, 6)
    ahead = side_by_side(clock_ahead, [contender for contender in usual if contender.clock], 12)
    calm = [contender for contender in usual if contender.schedules or contender.polls]
    sent = side_by_side(idle, [contender for contender in calm if contender.store == "postgres"], 6)
    sent.update(side_by_side(idle, [contender for contender in calm if contender.store != "postgres"], 1))
    decays = decay([contender for contender in usual if contender.decays])
    late = side_by_side(late_write, [contender for contender in wanted if contender.late], 12)
    kill = side_by_side(killed, [contender for contender in usual if contender.kill], 12)
    cut = side_by_side(vanished, [contender for contender in usual if contender.kill], 12)
    slept = nights([contender.name for contender in calm if contender.night])

    def times(contender):
        if contender not in runs or not contender.due:
            return ""
        after = runs[contender][1]
        return f"{statistics.median(after):.2f} s, {max(after):.2f} s" if after else "none"

    def with_clock_ahead(contender):
        count, after = ahead[contender]
        early = -statistics.median(after) if after and contender.due else 0
        return f"{count}, {early:.0f} s early" if early > 1 else count

    def row(contender):
        works, again = (seconds(value, contender) for value in kill[contender]) if contender in kill else ("", "")
        return [
            str(runs[contender][0]) if contender in runs else "",
            times(contender),
            works,
            again if contender.ticks else "",
            seconds(cut[contender], contender) if contender in cut else "",
            late.get(contender, ""),
            changes.get(contender, ""),
            sent.get(contender, ""),
            with_clock_ahead(contender) if contender in ahead else "",
            slept.get(contender.name, ""),
            f"{decays[contender]:.2f}" if contender in decays else "",
        ]

    of = versions(stores)
    print(f"| Tool | Runs for {TICKS} ticks | Begin after the tick: median, worst | Killed: another process works after "
          f"| Killed: the interrupted tick runs again after | Host vanished: another one works after "
          f"| Late write | Changes by {REFUSED} refused attempts | Statements a minute, 20 idle jobs "
          f"| Runs for {TICKS_AHEAD} ticks, one clock {AHEAD} s ahead | Runs at 02:30 when summer time ends "
          f"| Rate under a snapshot of {SNAPSHOT // 60} min |")
    print("|---|" + "--:|" * 5 + "---|" + "--:|" * 5)
    for contender in wanted:
        print(f"| {contender.label.format(**of)} | " + " | ".join(map(str, row(contender))) + " |")
    print(f"\nErrors that replicas have logged: {len(Group.errors) or 'none'}\n")
    for error in Group.errors:
        print(f"- {error}")
    for failure in Group.failures:
        print(failure, file=sys.stderr)
    return bool(Group.failures)


if __name__ == "__main__":
    sys.exit(main())
