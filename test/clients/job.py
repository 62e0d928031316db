"""A replica of a service that calls run_job() of doc/services.md; see test/perl/JobRecipes.pm."""
import os
import sys
import time

import psycopg

sys.path.insert(0, os.environ["RECIPES"])
sys.dont_write_bytecode = True
from recipe import LockLost, run_job  # noqa: E402

job, lease, replica = sys.argv[1:]
seen = psycopg.connect(
    host=os.environ["WORK_HOST"], port=os.environ["WORK_PORT"], user="worker",
    client_encoding="UTF8", autocommit=True)


def work(tick, token, check):
    while True:
        at = time.time()
        if not job.startswith("blind"):
            check()
        order = seen.execute("SELECT work_step(%s, %s, %s, %s)", (job, replica, token, at)).fetchone()[0]
        if order == "raise":
            raise ValueError("of the work")
        if order == "done":
            return
        time.sleep(0.1)


go_on = True
while go_on:
    try:
        answer = "ran" if run_job("", job, work, float(lease)) else "not due"
    except LockLost:
        answer = "lost"
    except ValueError as e:
        answer = f"raised: {e}"
    except psycopg.Error as e:
        answer = f"error: {e}"
    go_on = seen.execute("SELECT work_told(%s, %s, %s)", (job, replica, answer)).fetchone()[0]
    time.sleep(0.2)
