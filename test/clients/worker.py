"""A service that works as test/perl/ClientSuite.pm tells it to, with the package of clients/python."""

import multiprocessing
import sys
import threading
import time

import shedlock

options, jobs = {}, []
for argument in sys.argv[1:]:
    key, value = argument.split("=", 1)
    if key == "job":
        jobs.append({"name": value})
    elif jobs:
        jobs[-1][key] = value
    else:
        options[key] = value
printing = threading.Lock()


def say(*words):
    with printing:
        print(f"{time.time():.6f}", *words, flush=True)


def handler(work):
    kind, seconds = work.split(":")

    def handle(run):
        if kind == "block":
            time.sleep(float(seconds))
        if kind == "fork":
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
            child.start()
            time.sleep(0.5)
            child.terminate()
            child.join()
        end = time.monotonic() + float(seconds)
        try:
            while kind != "blind" and time.monotonic() < end:
                at = time.time()
                run.check()
                say("step", run.name, run.token, f"{at:.6f}")
                time.sleep(0.1)
            while kind == "blind" and time.monotonic() < end:
                time.sleep(0.1)
            run.check()
        except (shedlock.LockLost, shedlock.WorkerStopped) as sign:
            say("signed", run.name, run.token, type(sign).__name__)
            raise
        finally:
            say("done", run.name, run.token)
        if kind == "fail" and run.attempt == 1:
            raise ValueError("of the work")

    return handle


def on_event(event, run):
    words = {"begun": (run.attempt, run.tick.isoformat()), "ended": (run.outcome,)}.get(event, ())
    say(event, run.name, run.token, *words)


def on_error(error, run):
    say("error", run.name if run else "-", " ".join(str(error).split()))


def start():
    if "lock" in options:
        seconds = float(options["seconds"])
        with shedlock.lock("", options["lock"], float(options["lease"]), wait=float(options.get("wait", 0))) as lease:
            say("begun", lease.name)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                lease.check()
                say("step", lease.name, lease.token, f"{time.time():.6f}")
                time.sleep(0.1)
        say("released", lease.name, lease.token)
        return
    for job in jobs:
        job["handler"] = handler(job.pop("work"))
        if "attempts" in job:
            job["attempts"] = int(job["attempts"])
    numbers = {key: float(value) for key, value in options.items() if key != "declare"}
    worker = shedlock.Worker(
        "fallback_application_name=secret", [shedlock.Job(**job) for job in jobs],
        declare=options.get("declare") != "no", on_event=on_event, on_error=on_error, **numbers)
    if "secret" in repr(worker):
        raise AssertionError("a log of the worker shows its password")
    worker.run()


try:
    start()
except (shedlock.LockHeld, shedlock.LockLost) as e:
    say("refused" if isinstance(e, shedlock.LockHeld) else "lost", options["lock"])
except Exception as e:
    say("failed", " ".join(str(e).split()))
    sys.exit(1)
say("over")
