"""The rows of the table: each tool, used as its documentation says"""
import re
import sys


class Contender:
    """A row.  run is what the replica of its language starts, store where its state is."""

    def __init__(self, label, language, run, store="postgres", **options):
        self.label, self.language, self.run, self.store = label, language, run, store
        # What the replica gets beside what all get
        self.environment = options.pop("environment", {})
        # It has jobs with a schedule, and a timer of its own; it knows for which tick a run is.
        self.schedules = options.pop("schedules", False)
        self.ticks = options.pop("ticks", self.schedules)
        # When its ticks are due is known: the tool says it, or they begin with the second.
        self.due = options.pop("due", self.schedules)
        # How often its job is due, in seconds: the least that it accepts, or keeps to, if that is more than one
        self.tick = options.pop("tick", 1)
        # How often it calls if it has jobs, but no timer of its own, in seconds
        self.polls = options.pop("polls", None)
        # What is measured beside the runs: killed holders, late writes, attempts that are refused, a rate
        # of pairs; or nothing but a late write
        self.kill = options.pop("kill", True)
        self.late = options.pop("late", self.kill)
        self.refused = options.pop("refused", not self.schedules)
        self.decays = options.pop("decays", False)
        self.only_late = options.pop("only_late", False)
        # The clock of its processes can be set; it can run faster, and its schedules have a time zone.
        self.clock = options.pop("clock", True)
        self.night = options.pop("night", self.clock)
        # The database that all groups use; a row of the README's table, too
        self.database = options.pop("database", None)
        self.in_readme = options.pop("in_readme", False)
        assert not options
        self.name = re.sub(r"\W+", "_", f"{run}_{'_'.join(self.environment.values())}".lower()).strip("_")


SCHEDULER = {"schedules": True, "decays": True}

CONTENDERS = [
    Contender("shedlock, `shedlock_once_every`", "python", "shedlock_lock.OnceEvery", ticks=True, decays=True),
    Contender("shedlock, `CALL shedlock_run` of a job with `attempts`, `client_connection_check_interval` 100 ms",
              "python", "shedlock_run.CallRun", ticks=True, late=False, decays=True, in_readme=True),
    Contender("shedlock, `shedlock_run_begin` of this job", "python", "shedlock_run.RunBegin", ticks=True, polls=10,
              decays=True),
    Contender("shedlock, its package for Python, with this job", "python", "shedlock_run.Package", schedules=True, in_readme=True),
    Contender("shedlock, its program, with this job", "python", "shedlock_run.Program", ticks=True),
    Contender("shedlock and pg_cron {pg_cron} (once a minute)", "python", "shedlock_run.PgCron", schedules=True,
              tick=60, kill=False, database="cron", clock=False),
    Contender("shedlock, session lock for which the others wait", "python", "shedlock_lock.Session", refused=False,
              decays=True),
    Contender("shedlock, lease with *lock at least for* 0.7 s", "python", "shedlock_lock.LeaseAtLeast"),
    Contender("shedlock, lease without *lock at least for*", "python", "shedlock_lock.Lease", decays=True),
    Contender("shedlock, lease, `shedlock_extend` before the write", "python", "shedlock_lock.LeaseExtended",
              only_late=True),
    Contender("shedlock, lease, `shedlock_assert` in the transaction of the write", "python",
              "shedlock_lock.LeaseFenced", only_late=True),
    Contender("ShedLock {shedlock-spring} in Spring Boot {spring-boot}, *lock at least for* 0.7 s", "java", "SpringShedLock",
              environment={"TABLE": "peer.shedlock"}, in_readme=True, decays=True, schedules=True, ticks=False),
    Contender("the same, on the table of shedlock", "java", "SpringShedLock", environment={"TABLE": "shedlock"},
              decays=True, schedules=True, ticks=False),
    Contender("ShedLock {shedlock-spring}, `LockExtender` before the write", "java", "SpringShedLock",
              environment={"TABLE": "peer.shedlock", "EXTEND": "yes"}, schedules=True, ticks=False, only_late=True),
    Contender("`pg_try_advisory_lock`, once a tick", "python", "postgres.Advisory", decays=True, in_readme=True),
    Contender("`pg_try_advisory_lock`, held by a leader", "python", "postgres.AdvisoryLeader"),
    Contender("`FOR UPDATE SKIP LOCKED` of the job's row", "python", "postgres.SkipLocked", decays=True),
    Contender("`INSERT` of the tick, `ON CONFLICT DO NOTHING`", "python", "postgres.Insert", ticks=True),
    Contender("Quartz {quartz}, JDBC store, check-in each 7.5 s, its default", "java", "Quartz",
              environment={"CHECK_IN": "7500"}, in_readme=True, **SCHEDULER),
    Contender("the same, check-in each second", "java", "Quartz", environment={"CHECK_IN": "1000"}, schedules=True),
    Contender("db-scheduler {db-scheduler}, heartbeat each 5 min, its default (once in 2 s)", "java", "DbScheduler",
              environment={"HEARTBEAT": "300"}, tick=2, **SCHEDULER),
    Contender("db-scheduler {db-scheduler}, heartbeat each second (once in 2 s)", "java", "DbScheduler",
              environment={"HEARTBEAT": "1"}, in_readme=True, tick=2, schedules=True),
    Contender("JobRunr {jobrunr}, poll each 5 s (once in 5 s)", "java", "JobRunr", tick=5, **SCHEDULER),
    Contender("River {river}, `JobTimeout` and `RescueStuckJobsAfter` 10 s", "go", "river", night=False,
              in_readme=True, **SCHEDULER),
    Contender("pg-boss {pg-boss}, sent by timers with `singletonSeconds`", "node", "pgboss.mjs", **SCHEDULER),
    Contender("graphile-worker {graphile-worker}, cron (once a minute)", "node", "graphile.mjs", tick=60,
              night=False, **SCHEDULER),
    Contender("Procrastinate {procrastinate}", "python", "procrastinate_job.Procrastinate", night=False, **SCHEDULER),
    Contender("APScheduler {apscheduler}, an alpha version", "python", "apscheduler_job.APScheduler", **SCHEDULER),
    # Its leader would be late in a night that is so much shorter.
    Contender("Oban for Python {oban} (once a minute)", "newer_python", "oban_job.Oban", tick=60, night=False,
              **SCHEDULER),
    Contender("Celery {celery}, one beat, in a worker, with Redis {redis}", "python", "celery_job.Celery", "redis",
              schedules=True, due=False),
    Contender("BullMQ {bullmq}, every 1,000 ms", "node", "bullmq.mjs", "redis", schedules=True),
    Contender("Redis {redis}, `SET NX PX` and delete", "python", "redis_lock.Redis", "redis", in_readme=True),
    Contender("redlock {redlock}", "node", "redlock.mjs", "redis"),
    Contender("etcd {etcd}, lease and key", "python", "etcd_lock.Etcd", "etcd"),
    Contender("etcd {etcd}, `etcdctl lock` as leader", "python", "etcd_lock.EtcdctlLock", "etcd", refused=False),
    Contender("ZooKeeper {zookeeper} with kazoo {kazoo}, lock", "python", "zookeeper_lock.ZooKeeper", "zookeeper"),
    Contender("ZooKeeper {zookeeper} with kazoo {kazoo}, leader", "python", "zookeeper_lock.ZooKeeperLeader", "zookeeper",
              refused=False),
]


def named(names):
    """Returns the contenders of these names, or all if there is none."""
    unknown = set(names) - {contender.name for contender in CONTENDERS}
    if unknown:
        sys.exit(f"there is no {', '.join(unknown)}; --list prints the names")
    return [contender for contender in CONTENDERS if not names or contender.name in names]


# contenders.py names|languages [NAME...]: the names of contenders, or what they are written in
if __name__ == "__main__":
    chosen = named(sys.argv[2:])
    print("\n".join(dict.fromkeys(contender.language if sys.argv[1] == "languages" else contender.name for contender in chosen)))
