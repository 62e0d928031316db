"""Locks and claims of shedlock, by SQL"""
from postgres import Postgres
from replica import TICK, now, work


class OnceEvery(Postgres):
    def attempt(self, tick):
        if self.value("SELECT shedlock_once_every(%(name)s, %(tick)s)"):
            # A timer that is a little early has claimed the coming tick.
            work(self.value("SELECT extract(epoch FROM tick)::float FROM _shedlock_tick WHERE name = %(name)s"))

    def pair(self):
        self.value("SELECT shedlock_once(%(name)s, clock_timestamp())")
        return 1


class Lease(Postgres):
    at_least = "0"

    def acquire(self):
        self.token = self.value(
            "SELECT shedlock_acquire_token(%(name)s, %(lease)s, %(at_least)s)", at_least=self.at_least)
        return self.token is not None

    def release(self):
        self.value("SELECT shedlock_release(%(name)s, %(token)s)", token=self.token)

    def attempt(self, tick):
        if self.acquire():
            work(tick, write_row=self.write)
            self.release()

    def pair(self):
        self.acquire()
        self.release()
        return 1


class LeaseAtLeast(Lease):
    at_least = "0.7 s"


class LeaseExtended(Lease):
    def write(self):
        if not self.value("SELECT shedlock_extend(%(name)s, %(lease)s, token => %(token)s)", token=self.token):
            raise RuntimeError("the lock was lost")
        super().write()


class LeaseFenced(Lease):
    def write(self):
        self.value("""BEGIN; SELECT shedlock_assert(%(name)s, %(token)s);
            INSERT INTO written (replica) VALUES (%(replica)s); COMMIT""", token=self.token)


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
            work(now() // TICK * TICK, write_row=self.write)

    def pair(self):
        self.value("SELECT shedlock_acquire_session(%(name)s)")
        self.value("SELECT shedlock_release(%(name)s)")
        return 1
