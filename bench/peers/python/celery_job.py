"""Celery with Redis: a worker in each replica, and in the first one beat, too, since there may be no more than one"""
import celery
from celery.schedules import crontab
from replica import ADDRESS, CRON, GROUP, LEASE, LOG, NAMES, NUMBER, ZONE, Contender, wait_for_start, work


class Celery(Contender):
    def connect(self):
        self.app = celery.Celery(GROUP, broker=f"redis://{ADDRESS}:6379/0")
        # A task that is not acknowledged comes again after visibility_timeout.
        self.app.conf.update(
            task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1, timezone=ZONE,
            broker_transport_options={"visibility_timeout": LEASE, "global_keyprefix": f"{GROUP}:"},
            beat_schedule={name: {"task": name, "schedule": crontab.from_string(CRON) if CRON else 1.0} for name in NAMES})
        for name in NAMES:
            self.app.task(name=name, bind=True, ignore_result=True)(self.job)

    @staticmethod
    def job(task):
        work(task.request.id)

    def run(self):
        wait_for_start()
        beat = ["--beat", "--schedule", f"{LOG}.beat"] if NUMBER == "0" else []
        self.app.worker_main(["worker", "--loglevel=WARNING", "--concurrency=1", f"--hostname={NUMBER}@peer", *beat])
