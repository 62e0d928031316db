"""Jobs that run once, and locks, for services with replicas: a client of the PostgreSQL extension shedlock.

A Worker asks the database which of its jobs is due, and runs it in a thread; lock() is for work
that is no job.  Leases are extended over a connection that nothing else uses.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import queue
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, Union

import psycopg
from psycopg.conninfo import conninfo_to_dict

__version__ = "1.0.0"
__all__ = ["Job", "Lease", "LockHeld", "LockLost", "Run", "ShedlockError", "Worker", "WorkerStopped", "lock"]

ConnInfo = Union[str, Callable[[], str]]  # a function, for passwords that expire
Interval = Union[timedelta, str, None]

_log = logging.getLogger("shedlock")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SLEEP_MAX = 10.0  # of a worker until it asks again, in seconds as all times here
_LAST_WORDS = 5.0  # that runs have after their sign when the worker stops
_DEFAULTS = conninfo_to_dict(
    "fallback_application_name=shedlock target_session_attrs=read-write keepalives=1 keepalives_idle=10"
    " keepalives_interval=5 keepalives_count=3 tcp_user_timeout=25000"
)
_REFUSED = re.compile("authentication|no password supplied|pg_hba|(role|database) .* does not exist|permission denied")

_FIND = """SELECT quote_ident(n.nspname), e.extversion,
    EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = n.oid AND p.proname = 'shedlock_next')
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'shedlock'"""
# For how long a lease lasts from when its statement reached the server, which is after it was sent
_LEFT = "extract(epoch FROM {0}._shedlock_lock_until(b.name, b.token) - statement_timestamp())::float8"
_NEXT = f"""SELECT b.name, b.token, (extract(epoch FROM b.tick) * 1000000)::int8, b.attempt,
    extract(epoch FROM b.next_at - clock_timestamp())::float8, CASE WHEN b.token IS NOT NULL THEN {_LEFT} END
    FROM {{0}}.shedlock_next(%s::text[], make_interval(secs => %s), make_interval(secs => %s), %s, %s) b"""
_EXTEND = f"""SELECT b.is_full, CASE WHEN b.is_full IS NOT NULL THEN {_LEFT} END
    FROM (SELECT v.name, v.token, {{0}}.shedlock_extend(v.name, v.token, make_interval(secs => %s)) AS is_full
    FROM (VALUES (%s::text, %s::int8)) v(name, token)) b"""
_ACQUIRE = """SELECT b.token, (SELECT extract(epoch FROM l.lock_until - statement_timestamp())::float8
    FROM {0}.shedlock_locks l WHERE l.name = b.name AND l.token = b.token)
    FROM (SELECT v.name, {0}.shedlock_acquire_token(v.name,
    make_interval(secs => %s), make_interval(secs => %s), make_interval(secs => %s), %s) AS token
    FROM (VALUES (%s::text)) v(name)) b"""
_END = "SELECT {0}.shedlock_run_end(%s, %s, %s, %s)"
_RELEASE = "SELECT {0}.shedlock_release(%s, %s)"


class ShedlockError(Exception):
    """Base of this package's errors; by itself: the database has no extension shedlock, or too old a one."""


class LockHeld(ShedlockError):
    """The lock was not acquired: it is held, or paused."""


class LockLost(ShedlockError):
    """The lock was lost: the work must stop, and does not count."""


class WorkerStopped(ShedlockError):
    """The worker stops: the work must stop, and another replica begins it anew."""


def _now() -> tuple[float, float]:
    """Return the time by a clock that counts suspension, if the system has one, and by that of the wall."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic() if boottime is None else time.clock_gettime(boottime)), time.time()


def _call(listener: Callable[..., object], *args: object) -> None:
    try:
        listener(*args)
    except Exception:
        _log.exception("a listener")


@dataclass(eq=False)
class Lease:
    """A lock that is held, and extended until its work has ended.

    must_stop is set when the work must stop; must_stop.wait(5) is a sleep that ends then.
    """

    name: str
    token: int
    must_stop: threading.Event = field(default_factory=threading.Event, init=False, repr=False)
    _reason: type[ShedlockError] | None = field(default=None, init=False, repr=False)
    _until: tuple[float, ...] = field(default=(), init=False, repr=False)
    _due: float = field(default=0, init=False, repr=False)  # when its next statement is
    _end: tuple[Any, ...] | None = field(default=None, init=False, repr=False)  # the statement that ends it
    _is_over: threading.Event = field(default_factory=threading.Event, init=False, repr=False)
    _was_held: bool = field(default=False, init=False, repr=False)  # until its end

    def check(self) -> None:
        """Raise LockLost or WorkerStopped if the work must stop."""
        if self._reason is WorkerStopped:
            raise WorkerStopped("the worker stops")
        if self._reason is LockLost or self._left() <= 0:
            raise LockLost(f"lock {self.name} was lost")

    def _left(self) -> float:
        return min(until - now for until, now in zip(self._until, _now()))


@dataclass(eq=False)
class Run(Lease):
    """A run of a job: its tick, its attempt at it and, when it has ended, its outcome."""

    tick: datetime
    attempt: int
    outcome: str | None = field(default=None, init=False)


@dataclass(frozen=True)
class Job:
    """A job: its handler and the settings of shedlock_job.  Without a schedule it is not declared."""

    name: str
    handler: Callable[[Run], object]
    schedule: str | None = None
    time_zone: str | None = None
    attempts: int | None = None
    backoff: Interval = None
    catch_up: str | None = None
    max_late: Interval = None
    overdue_after: Interval = None
    slow_after: Interval = None
    lock_at_most_for: Interval = None
    lock_at_least_for: Interval = None
    description: str | None = None


class _Session:
    """A connection that is opened when it is needed, and closed by any error."""

    def __init__(self, conninfo: ConnInfo, timeout: float, on_ask: Callable[[], None]) -> None:
        self._conninfo, self._timeout, self._on_ask = conninfo, timeout, on_ask
        self.db: psycopg.Connection[Any] | None = None
        self._socket: socket.socket | None = None
        self._schema = ""
        self._warned: set[str | None] = set()
        self.cut_at = math.inf

    def _connect(self) -> psycopg.Connection[Any]:
        given = conninfo_to_dict(self._conninfo() if callable(self._conninfo) else self._conninfo)
        settings: dict[str, Any] = {
            **_DEFAULTS,
            "connect_timeout": max(2, math.ceil(self._timeout)),
            **given,
            "client_encoding": "UTF8",
        }
        db = psycopg.connect(autocommit=True, prepare_threshold=None, **settings)
        db.add_notice_handler(self._warn)
        self._warned.clear()
        self._socket = socket.socket(fileno=os.dup(db.fileno()))
        return db

    def _warn(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING" and notice.message_primary not in self._warned:
            self._warned.add(notice.message_primary)
            _log.warning("%s", notice.message_primary)

    def _find_schema(self, db: psycopg.Connection[Any]) -> str:
        found = db.execute(_FIND).fetchone()
        if not found or not found[2]:
            version = f"version {found[1]}" if found else "none"
            raise ShedlockError(f'database "{db.info.dbname}" needs extension shedlock 1.0 or newer, and has {version}')
        return str(found[0]).replace("%", "%%")

    def ask(self, statement: str, *args: Any, wait: float = 0) -> Any:
        """Return a statement's row.  It may take wait seconds longer than others."""
        try:
            self.db = self.db or self._connect()
            self.cut_at = time.monotonic() + wait + self._timeout
            self._on_ask()
            self._schema = self._schema or self._find_schema(self.db)
            return self.db.execute(statement.replace("{0}", self._schema), args).fetchone()
        except BaseException:
            self.close()
            raise
        finally:
            self.cut_at = math.inf

    def cut(self) -> None:
        """Break the connection, from any thread: a statement that waits for the server fails."""
        with suppress(AttributeError, OSError):  # it is not open
            self._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]

    def close(self) -> None:
        if self.db is not None and self._socket is not None:
            self.db.close()
            self._socket.close()
        self.db = None


class _Keeper:
    """Extends and ends leases.  Has two threads: one that sends, and one that nothing can block."""

    def __init__(self, conninfo: ConnInfo, length: float, on_error: Any, on_lost: Any) -> None:
        self._length, self._on_error, self._on_lost = length, on_error, on_lost
        self._changed = threading.Condition()
        self._leases: list[Lease] = []
        self._is_closing = False
        self._watched = threading.Event()
        self.me = f"{socket.gethostname()} {os.getpid()}"
        self.asker, self._session = (_Session(conninfo, min(length / 3, 30), self._watched.set) for _ in range(2))
        self._idle_since = 0.0
        for loop in (self._keep, self._watch):
            threading.Thread(target=loop, name=f"shedlock{loop.__name__}", daemon=True).start()

    def close(self) -> None:
        self._is_closing = True
        self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()
        self._watched.set()

    def add(self, lease: Lease, sent: tuple[float, float], left: float | None) -> None:
        lease._until = tuple(clock + (left or 0) for clock in sent)
        lease._due = time.monotonic() + min(self._length / 3, lease._left() - self._length / 2)
        with self._changed:
            self._leases.append(lease)
        self._wake()

    def end(self, lease: Lease, statement: str, *args: Any) -> bool:
        """End a lease; return whether it was held until then."""
        with self._changed:
            lease._end = (statement, lease.name, lease.token, *args)
            lease._due = 0
        self._wake()
        lease._is_over.wait()
        return lease._was_held

    def _settle(self, lease: Lease, was_held: bool) -> None:
        with self._changed:
            if lease not in self._leases:
                return
            self._leases.remove(lease)
            lease._was_held = was_held
        if not was_held:
            lease._reason = LockLost
            lease.must_stop.set()
            _call(self._on_lost, lease)
        lease._is_over.set()

    def _send(self, lease: Lease) -> None:
        """Extend or end a lease.  If that fails, it is tried again after those of others."""
        start, sent, end, pause = time.monotonic(), _now(), lease._end, self._length / 3
        try:
            if lease._left() <= 0:
                self._settle(lease, False)
            elif end:
                self._settle(lease, self._session.ask(*end)[0])
            else:
                # not full: lost, or cut by the lock_at_most_for of its job, and left until then
                is_full, left = self._session.ask(_EXTEND, self._length, lease.name, lease.token)
                left = self._length if is_full else left
                if left is None or lease._left() <= 0:  # an answer can be too late
                    self._settle(lease, False)
                else:
                    lease._until = tuple(clock + left for clock in sent)
        except Exception as error:
            pause = self._length / 10
            _call(self._on_error, error, lease)
        with self._changed:
            if lease._end is end:
                lease._due = start + pause

    def _keep(self) -> None:
        while not self._is_closing:
            with self._changed:
                lease = min(self._leases, key=lambda lease: lease._due, default=None)
                idle = self._idle_since + self._length if self._session.db else math.inf
                nap = (lease._due if lease else idle) - time.monotonic()
                if nap > 0:
                    self._changed.wait(min(nap, threading.TIMEOUT_MAX))
                    continue
            if lease:
                self._send(lease)
                self._idle_since = time.monotonic()
            else:
                self._session.close()
        self._session.close()

    def _watch(self) -> None:
        while self._leases or not self._is_closing:
            now = time.monotonic()
            for session in (self.asker, self._session):
                if session.cut_at <= now:
                    session.cut()
            for lease in list(self._leases):
                if lease._left() <= 0:
                    self._settle(lease, False)
            # no wait counts the time of a suspension, so the clocks are read again and again
            nap = min(self.asker.cut_at, self._session.cut_at) - now
            nap = min(nap, 1.0, self._length / 20) if self._leases else nap
            self._watched.wait(min(max(nap, 0.05), threading.TIMEOUT_MAX))
            self._watched.clear()


@dataclass(eq=False)
class Worker:
    """Runs jobs when they are due: each tick once, however many replicas have a worker for it.

    A worker starts once, in the process that it works in: after a fork.  Its listeners must not block.
    """

    conninfo: ConnInfo
    jobs: Sequence[Job]
    lease: float = 30  # that a run survives its replica, in seconds
    concurrency: int = 4  # how many runs may be at work
    wait: float = 0  # how long a call waits in the server for a job to come due; 0: the worker sleeps
    stop_after: float = 20  # how long runs may go on when the worker stops
    declare: bool = True  # whether it declares its jobs when it starts
    # "begun", "ended" or "lost"
    on_event: Callable[[str, Run], object] = lambda event, run: _log.info("%s %s", run.name, event)
    on_error: Callable[[BaseException, Run | None], object] = lambda error, run: _log.error(
        "%s", run.name if run else "worker", exc_info=error
    )

    def __post_init__(self) -> None:
        self._handlers = {job.name: job.handler for job in self.jobs}
        if not self.jobs or len(self._handlers) < len(self.jobs):
            raise ValueError("a worker needs jobs, each with another name")
        self._to_declare = [job for job in self.jobs if self.declare and job.schedule]
        self._asking = threading.Thread(target=self._ask, name="shedlock_ask", daemon=True)
        self._request = str(uuid.uuid4())
        self._is_unanswered = self._is_last = False
        self._at_work: set[Run] = set()
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._is_stopping = False
        self._over: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()  # safe in signal handlers
        self._pid = 0  # that it was started in

    def start(self) -> None:
        """Declare the jobs, and begin to run them in threads.

        Raises what does not mend itself: a wrong schedule or password, a missing extension.  If the
        database is away, the worker goes on trying.
        """
        self._keeper = _Keeper(self.conninfo, self.lease, self.on_error, partial(self.on_event, "lost"))
        try:
            self._prepare()
        except Exception as error:
            _call(self.on_error, error, None)
            if not _may_mend(error):
                self._keeper.close()
                raise
        self._pid = os.getpid()
        self._asking.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Begin no more runs, let those at work end for stop_after, and give the rest back.

        These get their sign, and end as "returned" as soon as their handlers do.
        """
        if self._pid != os.getpid():
            return
        self._is_stopping = True
        self._wake.set()
        for _ in range(50):  # what it asks may be on its way
            if self._asking.is_alive():
                if not self._is_last:
                    self._keeper.asker.cut()
                self._asking.join(0.1)
        with self._changed:
            self._changed.wait_for(lambda: not self._at_work, self.stop_after)
            for run in list(self._at_work):
                run._reason = run._reason or WorkerStopped
                run.must_stop.set()
            self._changed.wait_for(lambda: not self._at_work, _LAST_WORDS)
        self._keeper.close()
        atexit.unregister(self.stop)
        self._over.put(None)

    def run(self, signals: bool = True) -> None:
        """Start, and stop at SIGTERM, SIGINT or stop(); signals are for the main thread."""
        numbers = (signal.SIGTERM, signal.SIGINT) if signals else ()
        before = [(number, signal.signal(number, lambda *_: self._over.put(None))) for number in numbers]
        try:
            self.start()
            # a signal that another thread received does not end a wait of this one
            while self._over.empty():
                time.sleep(0.2)
            error = self._over.get()
        finally:
            for number, handler in before:
                signal.signal(number, handler)
            self.stop()
        if error:
            raise error

    def _prepare(self) -> None:
        self._keeper.asker.ask("SELECT")
        while self._to_declare:
            values = {f.name: getattr(self._to_declare[0], f.name) for f in fields(Job) if f.name != "handler"}
            given = {name: value for name, value in values.items() if value is not None}
            arguments = ", ".join(f"{name} => %s" for name in given)
            self._keeper.asker.ask(f"SELECT {{0}}.shedlock_job({arguments})", *given.values())
            del self._to_declare[0]

    def _ask(self) -> None:
        failures = 0
        while not self._is_stopping:
            nap: float | None = None
            try:
                if self._to_declare:
                    self._prepare()
                if len(self._at_work) < self.concurrency:
                    nap = self._begin(self.wait)
                failures = 0
            except Exception as error:
                if self._is_stopping:
                    break
                _call(self.on_error, error, None)
                if self._to_declare and not _may_mend(error):
                    self._over.put(error)
                    break
                nap = min(_SLEEP_MAX, 2.0**failures - 1)
                failures += 1
            self._wake.wait(nap)
            self._wake.clear()
        self._is_last = True
        if self._is_unanswered:  # a run may have begun
            with suppress(Exception):
                self._begin(0)
        self._keeper.asker.close()

    def _begin(self, wait: float) -> float:
        """Begin a run if one is due; return how long to sleep."""
        sent = _now()
        self._is_unanswered = True
        name, token, tick, attempt, nap, left = self._keeper.asker.ask(
            _NEXT, list(self._handlers), self.lease, wait, self._keeper.me, self._request, wait=wait
        )
        self._is_unanswered = False
        self._request = str(uuid.uuid4())
        if token is None:
            return 0.1 if wait else min(_SLEEP_MAX, max(0.1, _SLEEP_MAX if nap is None else nap))
        run = Run(name, token, _EPOCH + timedelta(microseconds=tick), attempt)
        self._keeper.add(run, sent, left)
        if not self._is_stopping and run._left() > 0:
            self._at_work.add(run)
            try:
                threading.Thread(target=self._work, args=(run,), name=f"shedlock {name}", daemon=True).start()
                return 0
            except RuntimeError as error:  # there can be no more threads
                self._at_work.discard(run)
                _call(self.on_error, error, run)
        self._end(run, "returned")
        return _SLEEP_MAX

    def _work(self, run: Run) -> None:
        outcome, message = "succeeded", None
        _call(self.on_event, "begun", run)
        try:
            self._handlers[run.name](run)
        except BaseException as error:  # also one of sys.exit(): it would end this thread alone
            outcome, message = "failed", f"{type(error).__name__}: {error}".replace("\0", "")
            if not run.must_stop.is_set() or not isinstance(error, (LockLost, WorkerStopped)):
                _call(self.on_error, error, run)
        self._end(run, *(("returned",) if run._reason is WorkerStopped else (outcome, message)))
        with self._changed:
            self._at_work.discard(run)
            self._changed.notify()
        self._wake.set()

    def _end(self, run: Run, outcome: str, message: str | None = None) -> None:
        if self._keeper.end(run, _END, outcome, message):
            run.outcome = outcome
            _call(self.on_event, "ended", run)


def _may_mend(error: Exception) -> bool:
    if isinstance(error, psycopg.OperationalError):
        return not _REFUSED.search(str(error))
    return isinstance(error, psycopg.errors.ReadOnlySqlTransaction)  # before a failover is complete


@contextmanager
def lock(conninfo: ConnInfo, name: str, at_most: float = 30, at_least: float = 0, wait: float = 0) -> Iterator[Lease]:
    """Hold a lock during a block, by a lease of at_most seconds that is extended meanwhile.

    Raises LockHeld if the lock was not free within wait seconds, and LockLost at the end of the block if it was lost.
    """
    keeper = _Keeper(conninfo, at_most, lambda error, _: _log.warning("lock %s: %s", name, error), lambda _: None)
    try:
        sent = _now()
        token, left = keeper.asker.ask(_ACQUIRE, at_most, at_least, wait, keeper.me, name, wait=wait)
        keeper.asker.close()
        if token is None:
            raise LockHeld(f"lock {name} is not free")
        lease = Lease(name, token)
        keeper.add(lease, sent, left)
        try:
            yield lease
        except BaseException:
            keeper.end(lease, _RELEASE)
            raise
        if not keeper.end(lease, _RELEASE):
            raise LockLost(f"lock {name} was lost")
    finally:
        keeper.asker.close()
        keeper.close()
