"""Tests the claims about run_once() in doc/services.md; see test/t/tree-documents.pl."""
import os
import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location

import psycopg

APP, ADMIN = "user=app", ""


def load_run_once():
    spec = spec_from_file_location("readme", os.path.join(os.environ["README_CODE"], "readme.py"))
    module = module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module.run_once


def claim(text, kept):
    print(f"{text}: {'yes' if kept else 'no'}", flush=True)


def ask(query):
    with psycopg.connect(ADMIN, autocommit=True) as db:
        return db.execute(query).fetchone()[0]


run_once = load_run_once()

# The caller that runs works until the other one has returned.
answers, ran, refused = [], [], threading.Event()


def work(keep_alive):
    ran.append(True)
    refused.wait(30)


def call():
    answers.append(run_once(APP, "py", work))
    refused.set()


callers = [threading.Thread(target=call) for _ in range(2)]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
claim("two callers at once: one runs", len(ran) == 1)
claim("the refused caller is told so", sorted(answers) == [False, True])
claim("lock_at_least_for keeps the lock after the work",
      run_once(APP, "py", work) is False and len(ran) == 1)

UNTIL = "SELECT lock_until FROM shedlock WHERE name = 'py-alive'"


def stays_alive(keep_alive):
    before = ask(UNTIL)
    keep_alive()
    claim("keeping alive extends the lock", ask(UNTIL) > before)
    ask("SELECT shedlock_force_release('py-alive')")
    keep_alive()
    claim("keeping alive fails once the lock is lost", False)


try:
    run_once(APP, "py-alive", stays_alive)
except RuntimeError as e:
    claim("keeping alive fails once the lock is lost", str(e) == "lock py-alive was lost")


def is_blind(keep_alive):
    ask("SELECT shedlock_force_release('py-blind')")


try:
    run_once(APP, "py-blind", is_blind)
    claim("work that does not notice the loss is no success", False)
except RuntimeError as e:
    claim("work that does not notice the loss is no success", str(e) == "lock py-blind was lost")


def fails(keep_alive):
    raise ValueError("of the work")


try:
    run_once(APP, "py-fails", fails)
except ValueError as e:
    claim("an error of the work reaches the caller", str(e) == "of the work")
claim("an error of the work releases the lock",
      ask("SELECT kind IS NULL FROM shedlock WHERE name = 'py-fails'"))
