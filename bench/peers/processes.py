"""Processes, and hosts that can be cut off"""
import atexit
import os
import signal
import subprocess
import threading
import time


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
