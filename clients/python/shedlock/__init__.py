"""Jobs that run once, and locks, for services with replicas: a client of the PostgreSQL extension shedlock.

A Worker asks the database which of its jobs is due, and runs it in a thread; lock() is for work
that is no job.  Leases are extended over a connection that nothing else uses.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Union

import psycopg
from psycopg.conninfo import conninfo_to_dict

__version__ = "1.0.0"
__all__ = ["Job", "Lease", "LockHeld", "LockLost", "Run", "ShedlockError", "Worker", "WorkerStopped", "lock"]

ConnInfo = Union[str, Callable[[], str]]  # a function, for passwords that expire
Interval = Union[timedelta, str, None]

_log = logging.getLogger("shedlock")
_SLEEP_MAX = 10.0  # of a worker until it asks again, in seconds as all times here
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # that counts suspension, if there is one
_LAST_WORDS = 5.0  # that runs have after their sign when the worker stops
_RETRY = 1.0  # of an end, and of the last request, when the worker stops
_DEFAULTS = conninfo_to_dict(
    "fallback_application_name=shedlock target_session_attrs=read-write keepalives=1 keepalives_idle=10"
    " keepalives_interval=5 keepalives_count=3 tcp_user_timeout=25000"
)

_CHECK = "SELECT 'shedlock_next'::regproc"
_NEXT = """SELECT name, token, extract(epoch FROM tick)::float8, attempt,
    extract(epoch FROM next_at - clock_timestamp())::float8, state
    FROM shedlock_next(%s::text[], make_interval(secs => %s), make_interval(secs => %s), %s, %s)"""
# For how long a lease lasts from when its statement reached the server, which is after it was sent
_LEFT = """SELECT extract(epoch FROM lock_until - statement_timestamp())::float8
    FROM shedlock_locks WHERE name = %s AND token = %s"""
_EXTEND = "SELECT shedlock_extend(%s, %s, make_interval(secs => %s))"
_END = "SELECT shedlock_run_end(%s, %s, %s, %s)"
_ACQUIRE = """SELECT shedlock_acquire_token(%s,
    make_interval(secs => %s), make_interval(secs => %s), make_interval(secs => %s), %s)"""
_RELEASE = "SELECT shedlock_release(%s, %s)"


class ShedlockError(Exception):
    """Base of this package's errors; by itself: the database has no extension shedlock, or too old a one."""


class LockHeld(ShedlockError):
    """The lock was not acquired: it is held, or paused."""


class LockLost(ShedlockError):
    """The lock was lost: the work must stop, and does not count."""


class WorkerStopped(ShedlockError):
    """The worker stops: the work must stop, and another replica begins it anew."""


_taken: set[signal.Signals] = set()  # by a worker


def _give_back_signals() -> None:
    """Let a child process be ended by signals, and not end its parent's worker."""
    if _taken:
        signal.set_wakeup_fd(-1)
    for number in _taken:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _taken.clear()


os.register_at_fork(after_in_child=_give_back_signals)


def _now() -> tuple[float, float]:
    return time.clock_gettime(_CLOCK), time.time()


def _who() -> str:
    return f"{socket.gethostname()} {os.getpid()}"


def _tell(listener: Callable[..., object], *args: object) -> None:
    try:
        listener(*args)
    except Exception:
        _log.exception("a listener")


def _describe(error: BaseException) -> str:
    with suppress(Exception):
        return f"{type(error).__name__}: {error}".replace("\0", "").encode(errors="backslashreplace").decode()
    return type(error).__name__


@dataclass(eq=False)
class Lease:
    """A lock that is held, and extended until its work has ended.

    must_stop is set when the work must stop; must_stop.wait(5) is a sleep that ends then.
    """

    name: str
    token: int
    must_stop: threading.Event = field(default_factory=threading.Event, init=False, repr=False)
    _reason: type[ShedlockError] | None = field(default=None, init=False, repr=False)
    _until: tuple[float, ...] = field(default=(0.0,), init=False, repr=False)

    def check(self) -> None:
        """Raise LockLost or WorkerStopped if the work must stop."""
        if self._reason is WorkerStopped:
            raise WorkerStopped("the worker stops")
        if self._left() <= 0:
            raise LockLost(f"lock {self.name} was lost")

    def _left(self) -> float:
        # a clock that was set back does not bring it back
        return 0 if self._reason is LockLost else min(until - now for until, now in zip(self._until, _now()))

    def _sign(self, reason: type[ShedlockError]) -> None:
        self._reason = reason
        self.must_stop.set()


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

    def __init__(self, conninfo: ConnInfo, lease: float) -> None:
        self._conninfo, self._limit = conninfo, min(lease / 3, 30)
        self._db: psycopg.AsyncConnection[Any] | None = None
        self._turn: asyncio.Lock | None = None
        self._cuts = 0

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        given = conninfo_to_dict(self._conninfo() if callable(self._conninfo) else self._conninfo)
        timeout = max(2, math.ceil(self._limit))
        settings: dict[str, Any] = {**_DEFAULTS, "connect_timeout": timeout, **given, "client_encoding": "UTF8"}
        db = await psycopg.AsyncConnection.connect(autocommit=True, prepare_threshold=None, **settings)
        db.add_notice_handler(lambda notice: _log.warning("%s", notice.message_primary))
        return db

    async def ask(self, statement: str, *args: Any, wait: float = 0) -> Any:
        """Return a statement's row.  It may take wait seconds longer than others."""
        self._turn = self._turn or asyncio.Lock()  # before Python 3.10 it needs the loop
        async with self._turn:
            timer, cuts = None, self._cuts
            try:
                self._db = self._db or await self._connect()
                if self._cuts > cuts:
                    raise ConnectionAbortedError("the connection was cut while it was opened")
                timer = asyncio.get_running_loop().call_later(wait + self._limit, self.cut)
                return await (await self._db.execute(statement, args)).fetchone()
            except BaseException:
                self.close()
                raise
            finally:
                if timer:
                    timer.cancel()

    async def find_end(self, lease: Lease) -> None:
        """Find out when a lease ends."""
        sent = _now()
        left = await self.ask(_LEFT, lease.name, lease.token) or (0,)
        lease._until = tuple(clock + left[0] for clock in sent)

    def cut(self) -> None:
        """Break the connection: a statement that waits for the server fails."""
        self._cuts += 1
        if self._db and not self._db.closed:
            with suppress(OSError):
                its = socket.socket(fileno=self._db.fileno())
                try:
                    its.shutdown(socket.SHUT_RDWR)
                finally:
                    its.detach()

    def close(self) -> None:
        if self._db:
            self._db.pgconn.finish()
        self._db = None


class _Keeper(_Session):
    """Extends leases until their work has ended, and ends them."""

    def __init__(self, conninfo: ConnInfo, lease: float, on_error: Any, on_lost: Any) -> None:
        super().__init__(conninfo, lease)
        self._length, self._on_error, self._on_lost = lease, on_error, on_lost

    async def keep(self, lease: Lease, work: asyncio.Future[Any]) -> None:
        """Extend a lease until the work has ended; sign it if the lease ends before."""
        extending = asyncio.ensure_future(self._extend(lease, work))
        while not work.done() and lease._left() > 0:
            # no wait counts the time of a suspension, so the clocks are read again and again
            pause = min(1.0, self._length / 20)
            await asyncio.wait({work, extending}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            self.lose(lease)
        await asyncio.wait({work, extending})

    async def _extend(self, lease: Lease, work: asyncio.Future[Any]) -> None:
        pause = min(self._length / 3, lease._left() - self._length / 2)
        while not (await asyncio.wait({work}, timeout=pause))[0] and lease._left() > 0:
            pause, sent = self._length / 3, _now()
            try:
                if not (await self.ask(_EXTEND, lease.name, lease.token, self._length))[0]:
                    # it was lost, or cut by the lock_at_most_for of its job, and is left until then
                    await self.find_end(lease)
                elif lease._left() > 0:  # an answer can be too late
                    lease._until = tuple(clock + self._length for clock in sent)
            except Exception as error:
                pause = self._length / 10
                _tell(self._on_error, error, lease)

    async def end(self, lease: Lease, statement: str, *args: Any) -> bool:
        """End a lease; return whether it was held until then."""
        is_repeat, pause = False, 0.0
        while lease._left() > 0:
            try:
                # a lock can have been released by a call that had no answer
                if (await self.ask(statement, lease.name, lease.token, *args))[0] or is_repeat:
                    return True
                break
            except Exception as error:
                _tell(self._on_error, error, lease)
                is_repeat = statement == _RELEASE
                if isinstance(error, psycopg.DataError):  # the database's encoding lacks some of it
                    args = tuple(arg and arg.encode("ascii", "replace").decode() for arg in args)
                await asyncio.sleep(pause)  # at first none: it may have been one broken connection
                pause = min(self._length / 10, _RETRY)
        self.lose(lease)
        return False

    def lose(self, lease: Lease) -> None:
        if lease._reason is not LockLost:
            lease._sign(LockLost)
            _tell(self._on_lost, lease)


@dataclass(eq=False)
class Worker:
    """Runs jobs when they are due: each tick once, however many replicas have a worker for it.

    A worker starts once, in the process that it works in: after a fork.  Its listeners must not block.
    """

    conninfo: ConnInfo = field(repr=False)  # it can hold a password
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
        if any(not callable(handler) or inspect.iscoroutinefunction(handler) for handler in self._handlers.values()):
            raise TypeError("a handler must be a function, and not async")
        if not (self.lease > 0 and self.concurrency >= 1 and self.wait >= 0 and self.stop_after >= 0):
            raise ValueError("lease and concurrency must be positive, wait and stop_after not negative")
        self._at_work: dict[Run, asyncio.Future[None]] = {}
        self._request: str | None = None  # that may have begun a run, or may do so until its end
        self._request_end = 0.0
        self._thread: threading.Thread | None = None

    def run(self, signals: bool = True) -> None:
        """Do as start(), and return when the worker has stopped: at SIGTERM, SIGINT or stop().

        Signals are for the main thread.
        """
        self._run(futures.Future(), (signal.SIGTERM, signal.SIGINT) if signals else ())

    def start(self) -> None:
        """Declare the jobs, and begin to run them in threads.

        Raises an error if the database is away or refuses: for a wrong password, for a wrong
        schedule.  After its start the worker goes on trying.
        """
        started: futures.Future[None] = futures.Future()

        def serve() -> None:
            try:
                self._run(started)
            except BaseException as error:
                if started.done():
                    raise
                started.set_exception(error)

        threading.Thread(target=serve, name="shedlock", daemon=True).start()
        started.result()

    def stop(self) -> None:
        """Begin no more runs, let those at work end for stop_after, and give the rest back.

        These get their sign, and end as "returned" as soon as their handlers do.  Waits for all
        of it, unless a handler or a listener calls it, or the worker is in the main thread.
        """
        thread, caller = self._thread, threading.current_thread()
        if thread and thread.is_alive():
            with suppress(RuntimeError):  # it has stopped
                self._loop.call_soon_threadsafe(self._stopping.set)
            if thread not in (caller, threading.main_thread()) and not isinstance(caller, _HandlerThread):
                self._over.wait()

    def _run(self, started: futures.Future[None], signals: Sequence[signal.Signals] = ()) -> None:
        over = threading.Event()
        try:
            asyncio.run(self._serve(started, signals, over))
        finally:
            over.set()

    async def _serve(
        self, started: futures.Future[None], signals: Sequence[signal.Signals], over: threading.Event
    ) -> None:
        if self._thread and self._thread.is_alive():
            raise RuntimeError("the worker has been started")
        self._stopping, self._wake = asyncio.Event(), asyncio.Event()
        self._loop, self._over, self._thread = asyncio.get_running_loop(), over, threading.current_thread()
        self._asker = _Session(self.conninfo, self.lease)
        self._keeper = _Keeper(self.conninfo, self.lease, self.on_error, lambda run: self.on_event("lost", run))
        try:
            for number in signals:
                self._loop.add_signal_handler(number, self._stopping.set)
            _taken.update(signals)
            await self._prepare()
            started.set_result(None)
            asking = asyncio.ensure_future(self._ask())
            await self._stopping.wait()
            self._wake.set()
            self._asker.cut()
            await asyncio.wait({asking}, timeout=_LAST_WORDS)
            if self._at_work:
                await asyncio.wait(set(self._at_work.values()), timeout=self.stop_after)
            for run in self._at_work:
                run._sign(run._reason or WorkerStopped)
            if self._at_work:
                await asyncio.wait(set(self._at_work.values()), timeout=_LAST_WORDS)
        finally:
            _taken.difference_update(signals)
            self._thread = None
            self._asker.close()
            self._keeper.close()

    async def _prepare(self) -> None:
        try:
            await self._asker.ask(_CHECK)
        except psycopg.errors.UndefinedFunction as error:
            raise ShedlockError(
                "the database needs extension shedlock 1.0 or newer, in its search_path, and USAGE on its schema"
            ) from error
        for job in self.jobs:
            given = {name: value for name, value in vars(job).items() if name != "handler" and value is not None}
            if self.declare and job.schedule is not None:
                await self._asker.ask(f"SELECT shedlock_job({' => %s, '.join(given)} => %s)", *given.values())

    async def _ask(self) -> None:
        pause = 0.0
        while not self._stopping.is_set():
            try:
                nap = await self._begin(self.wait) if len(self._at_work) < self.concurrency else _SLEEP_MAX
                pause = 0.0
            except Exception as error:
                if self._stopping.is_set():
                    break
                _tell(self.on_error, error, None)
                self._request_end = _now()[0] + self.wait + self.lease
                nap, pause = pause, min(_SLEEP_MAX, 2 * pause + 1)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), nap)
            self._wake.clear()
        give_up = _now()[0] + _LAST_WORDS
        while self._request and _now()[0] < give_up:
            nap = 0.1
            try:
                await self._begin(0)
            except Exception as error:
                _tell(self.on_error, error, None)
                nap = _RETRY
            if self._request:
                await asyncio.sleep(nap)

    async def _begin(self, wait: float) -> float:
        """Begin a run if one is due; return how long to sleep."""
        if self._request is None:
            self._request, self._request_end = str(uuid.uuid4()), _now()[0] + wait + self.lease
        name, token, tick, attempt, nap, state = await self._asker.ask(
            _NEXT, list(self._handlers), self.lease, wait, _who(), self._request, wait=wait
        )
        if token is None:
            # the server can still be at work on a call that was given up
            if state != "claimed" or _now()[0] > self._request_end:
                self._request = None
            return 0.1 if wait else min(_SLEEP_MAX, max(0.1, _SLEEP_MAX if nap is None else nap))
        run = Run(name, token, datetime.fromtimestamp(tick, timezone.utc), attempt)
        await self._asker.find_end(run)
        self._request = None
        self._at_work[run] = asyncio.ensure_future(self._work(run))
        return 0

    async def _work(self, run: Run) -> None:
        outcome, message = "succeeded", None
        reason: type[ShedlockError] | None = None
        if self._stopping.is_set():
            reason = WorkerStopped
            run._sign(reason)
        elif run._left() > 0:
            _tell(self.on_event, "begun", run)
            work = _start(self._handlers[run.name], run)
            await self._keeper.keep(run, work)
            error, reason = work.result()
            if error:
                outcome, message = "failed", _describe(error)
            if error and not (reason and isinstance(error, (LockLost, WorkerStopped))):
                _tell(self.on_error, error, run)
        else:
            self._keeper.lose(run)
        if reason is WorkerStopped:
            outcome, message = "returned", None
        if await self._keeper.end(run, _END, outcome, message):
            run.outcome = outcome
            _tell(self.on_event, "ended", run)
        del self._at_work[run]  # before it wakes who waits for a place
        self._wake.set()
        if not self._at_work:
            self._keeper.close()


class _HandlerThread(threading.Thread):
    pass


# The error of a handler, and the reason it was told to stop for
_Ending = tuple[Union[BaseException, None], Union[type[ShedlockError], None]]


def _start(handler: Callable[[Run], object], run: Run) -> asyncio.Future[_Ending]:
    """Start a handler in a thread, which does not keep its process; return a future with how it has ended."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[_Ending] = loop.create_future()

    def work() -> None:
        result = None
        try:
            if inspect.isawaitable(handler(run)):
                raise TypeError("the handler returned something to await, and nothing awaits it")
        except BaseException as error:  # also one of sys.exit(): it would end this thread alone
            result = error
        with suppress(RuntimeError):  # the worker has stopped
            loop.call_soon_threadsafe(over.set_result, (result, run._reason))

    try:
        _HandlerThread(target=work, name=f"shedlock {run.name}", daemon=True).start()
    except RuntimeError as error:  # there can be no more threads
        over.set_result((error, None))
    return over


@contextmanager
def lock(conninfo: ConnInfo, name: str, at_most: float = 30, at_least: float = 0, wait: float = 0) -> Iterator[Lease]:
    """Hold a lock during a block, by a lease of at_most seconds that is extended meanwhile.

    Raises LockHeld if the lock was not free within wait seconds, and LockLost, before the block or at its end, if it
    was lost.
    """
    keeper = _Keeper(conninfo, at_most, lambda error, _: _log.warning("lock %s: %s", name, error), lambda _: None)
    loop = asyncio.new_event_loop()

    def serve() -> None:
        loop.run_forever()
        loop.close()

    threading.Thread(target=serve, name=f"shedlock {name}", daemon=True).start()

    def do(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    try:
        (token,) = do(keeper.ask(_ACQUIRE, name, at_most, at_least, wait, _who(), wait=wait))
        if token is None:
            raise LockHeld(f"lock {name} is not free")
        lease, work = Lease(name, token), loop.create_future()
        try:
            do(keeper.find_end(lease))
        except Exception:
            with suppress(Exception):
                do(keeper.ask(_RELEASE, name, token))
            raise
        lease.check()
        keeping = asyncio.run_coroutine_threadsafe(keeper.keep(lease, work), loop)
        try:
            yield lease
        finally:
            loop.call_soon_threadsafe(work.set_result, None)
            keeping.result()
            is_held = do(keeper.end(lease, _RELEASE))
        if not is_held:
            raise LockLost(f"lock {name} was lost")
    finally:
        loop.call_soon_threadsafe(keeper.close)
        loop.call_soon_threadsafe(loop.stop)
