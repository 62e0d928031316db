"""A connection to PostgreSQL, and what can be done with it alone"""
import psycopg2
from replica import GROUP, LEASE, NUMBER, SERVER, TICK, Contender, work


class Postgres(Contender):
    settings = ""

    def connect(self):
        self.connection = psycopg2.connect(SERVER, options=self.settings)
        self.connection.autocommit = True

    def value(self, statement, **parameters):
        """Returns the first column of the first row, or the count of rows if there are no columns."""
        cursor = self.connection.cursor()
        cursor.execute(statement, {"name": GROUP, "replica": NUMBER, "lease": f"{LEASE} s", "tick": f"{TICK} s",
                                   **parameters})
        return cursor.fetchone()[0] if cursor.description else cursor.rowcount

    def write(self):
        """Writes the row on the connection of the lock."""
        self.value("INSERT INTO written (replica) VALUES (%(replica)s)")


class Advisory(Postgres):
    def attempt(self, tick):
        if self.value("SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0))"):
            work(tick)
            self.value("SELECT pg_advisory_unlock(hashtextextended(%(name)s, 0))")

    def pair(self):
        self.value("SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0))")
        self.value("SELECT pg_advisory_unlock(hashtextextended(%(name)s, 0))")
        return 1


class AdvisoryLeader(Postgres):
    leads = False

    def attempt(self, tick):
        self.leads = self.leads or self.value("SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0))")
        if self.leads:
            self.value("SELECT 1")
            work(tick, write_row=self.write)


class SkipLocked(Postgres):
    """The row of the job, locked by a transaction that is open during the work."""
    LOCK = "SELECT count(*) FROM (SELECT FROM peer.job FOR UPDATE SKIP LOCKED) locked"

    def attempt(self, tick):
        self.value("BEGIN")
        if self.value(self.LOCK):
            work(tick, write_row=self.write)
        self.value("COMMIT")

    def pair(self):
        self.value("BEGIN")
        self.value(self.LOCK)
        self.value("COMMIT")
        return 1


class Insert(Postgres):
    def attempt(self, tick):
        tick = self.value("""WITH inserted AS (
                INSERT INTO peer.tick VALUES (%(name)s, date_bin(%(tick)s, clock_timestamp(), 'epoch'))
                ON CONFLICT DO NOTHING RETURNING tick)
            SELECT extract(epoch FROM max(tick))::float FROM inserted""")
        if tick is not None:
            work(tick)
