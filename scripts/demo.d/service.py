# A service with ten jobs; the demo starts it three times.
import time

from shedlock import Job, Worker


# show service
def work(run):
    for step in range(10):
        run.check()    # raises LockLost if another replica may run it by now
        time.sleep(0.1)


Worker("", [Job(f"job-{n}", work, "every 4 s", attempts=2, catch_up="all") for n in range(10)], lease=4).run()
