"""Procrastinate: periodic tasks, and a worker in each replica"""
import asyncio

import procrastinate
from replica import CRON, LEASE, NAMES, NUMBER, SERVER, AsyncContender, Countdown, work


class Procrastinate(AsyncContender):
    def connect(self):
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=SERVER))
        self.wait(self.open())
        for name in NAMES:
            # The sixth field is seconds.
            self.app.periodic(cron=CRON or "* * * * * *")(self.app.task(name=name)(self.job))

        # The documentation has this task for jobs whose worker was killed, once in ten minutes.
        @self.app.periodic(cron="* * * * *")
        @self.app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
        async def retry_stalled_jobs(context, timestamp):
            for job in await self.app.job_manager.get_stalled_jobs(seconds_since_heartbeat=LEASE):
                await self.app.job_manager.retry_job(job)

    async def open(self):
        await self.app.open_async()
        if NUMBER == "0":
            await self.app.schema_manager.apply_schema_async()

    @staticmethod
    def job(timestamp):
        work(timestamp)

    async def serve(self):
        await self.app.run_worker_async(install_signal_handlers=False, update_heartbeat_interval=LEASE / 3,
                                        stalled_worker_timeout=LEASE)

    countdown = None

    def pair(self):
        if not self.countdown:
            self.countdown = Countdown()
            self.none = self.app.task(name="none")(self.countdown.end)
            asyncio.run_coroutine_threadsafe(self.serve(), self.loop)
        self.wait(self.none.batch_defer_async(*[{}] * Countdown.BATCH))
        return self.countdown.wait()
