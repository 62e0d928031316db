"""Oban for Python: workers with a cron expression, which the leader of the replicas evaluates"""
import asyncio
from datetime import datetime

import oban
from oban.schema import install
from replica import CRON, LEASE, NAMES, NUMBER, URL, ZONE, AsyncContender, Countdown, work


async def process(_, job):
    await asyncio.to_thread(work, datetime.fromisoformat(job.meta["cron_at"]).timestamp())


class Oban(AsyncContender):
    def connect(self):
        self.wait(self.open())
        for name in NAMES:
            oban.worker(cron={"expr": CRON or "* * * * *", "timezone": ZONE})(type(name, (), {"process": process}))

    async def open(self):
        pool = await oban.Oban.create_pool(URL)
        if NUMBER == "0":
            await install(pool)
        self.oban = oban.Oban(pool=pool, queues={"default": 10}, lifeline={"rescue_after": LEASE})

    async def serve(self):
        async with self.oban:
            await asyncio.Event().wait()

    countdown = None

    def pair(self):
        if not self.countdown:
            self.countdown = Countdown()

            async def none(_, job):
                self.countdown.end()

            self.none = oban.worker()(type("none", (), {"process": none}))
            asyncio.run_coroutine_threadsafe(self.serve(), self.loop)
        self.wait(self.oban.enqueue_many([self.none.new() for _ in range(Countdown.BATCH)]))
        return self.countdown.wait()
