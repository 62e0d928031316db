"""APScheduler 4: a schedule in PostgreSQL, and a scheduler that also works in each replica"""
import asyncio

from apscheduler import AsyncScheduler, current_job
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.asyncpg import AsyncpgEventBroker
from apscheduler.triggers.cron import CronTrigger
from replica import ADDRESS, CRON, DATABASE, LEASE, NAMES, ZONE, AsyncContender, Countdown, work
from sqlalchemy.ext.asyncio import create_async_engine

countdown = Countdown()


# They are stored by their names.
def job():
    work(current_job.get().scheduled_fire_time.timestamp())


def none():
    countdown.end()


class APScheduler(AsyncContender):
    @staticmethod
    def scheduler():
        engine = create_async_engine(f"postgresql+asyncpg://postgres@{ADDRESS}:5432/{DATABASE}")
        # The clean-up, by default once in 15 minutes, gives up jobs whose lease is over.  Until then the task
        # counts as running.
        return AsyncScheduler(SQLAlchemyDataStore(engine), AsyncpgEventBroker.from_async_sqla_engine(engine),
                              lease_duration=LEASE, cleanup_interval=LEASE)

    def connect(self):
        self.wait(self.make_tables())

    async def make_tables(self):
        async with self.scheduler():
            pass

    async def serve(self):
        async with self.scheduler() as scheduler:
            for name in NAMES:
                trigger = CronTrigger.from_crontab(CRON, timezone=ZONE) if CRON else CronTrigger(second="*")
                await scheduler.add_schedule(job, trigger, id=name)
            await scheduler.run_until_stopped()

    working = None

    def pair(self):
        if not self.working:
            self.working = self.scheduler()
            self.wait(self.start_working())
        self.wait(self.add_jobs())
        return countdown.wait()

    async def start_working(self):
        started = asyncio.Event()

        async def serve():
            async with self.working:
                await self.working.start_in_background()
                started.set()
                await asyncio.Event().wait()

        self.task = asyncio.create_task(serve())
        await started.wait()

    async def add_jobs(self):
        for _ in range(Countdown.BATCH):
            await self.working.add_job(none)
