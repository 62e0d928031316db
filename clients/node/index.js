// Jobs that run once, and locks, for services with replicas: a client of the PostgreSQL extension
// shedlock.  index.d.ts documents what it exports.
//
// A Worker asks the database which of its jobs is due, and runs it; lock() is for work that is no
// job.  Leases are extended over a connection that nothing else uses.
"use strict";

const { randomUUID } = require("node:crypto");
const os = require("node:os");
const { performance } = require("node:perf_hooks");
const { setTimeout: sleep } = require("node:timers/promises");
const { Client } = require("pg");

const SLEEP_MAX = 10; // of a worker until it asks again, in seconds as all times here
const LAST_WORDS = 5; // that runs have after their sign when the worker stops
const RETRY = 1; // of an end, and of the last request, when the worker stops
const SIGNALS = ["SIGTERM", "SIGINT"];
const DEFAULTS = { fallback_application_name: "shedlock", keepAlive: true, keepAliveInitialDelayMillis: 10_000 };

const CHECK = "SELECT 'shedlock_next'::regproc";
const NEXT = `SELECT name, token::text, extract(epoch FROM tick)::float8 * 1000, attempt,
    extract(epoch FROM next_at - clock_timestamp())::float8, state
    FROM shedlock_next($1::text[], make_interval(secs => $2), make_interval(secs => $3), $4, $5)`;
// For how long a lease lasts from when its statement reached the server, which is after it was sent
const LEFT = `SELECT extract(epoch FROM lock_until - statement_timestamp())::float8
    FROM shedlock_locks WHERE name = $1 AND token = $2`;
const EXTEND = "SELECT shedlock_extend($1, $2, make_interval(secs => $3))";
const END = "SELECT shedlock_run_end($1, $2, $3, $4)";
const ACQUIRE = `SELECT shedlock_acquire_token($1,
    make_interval(secs => $2), make_interval(secs => $3), make_interval(secs => $4), $5)::text`;
const RELEASE = "SELECT shedlock_release($1, $2)";

class ShedlockError extends Error {}
class LockHeld extends ShedlockError {}
class LockLost extends ShedlockError {}
class WorkerStopped extends ShedlockError {}
for (const error of [ShedlockError, LockHeld, LockLost, WorkerStopped]) error.prototype.name = error.name;

// The monotonic clock can stand still while the host is suspended; that of the wall can be set
const now = () => [performance.now() / 1000, Date.now() / 1000];
const who = () => `${os.hostname()} ${process.pid}`;

// Waits until a promise that cannot fail is fulfilled, but no longer than some seconds.
function settle(promise, seconds) {
  let timer;
  const timeout = new Promise((resolve) => (timer = setTimeout(resolve, Math.min(seconds * 1000, 2 ** 31 - 1))));
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}

// The same as a promise, but fails if that takes longer than some seconds.
function within(seconds, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("the settings of the connection take too long")), seconds * 1000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function describe(error) {
  try {
    return String(error).replaceAll("\0", "");
  } catch {
    return "an error that is no text";
  }
}

async function tell(listener, ...args) {
  try {
    await listener(...args);
  } catch (error) {
    console.error("shedlock: a listener:", error);
  }
}

class Lease {
  #controller = new AbortController();
  _until = [0];
  _isLost = false;

  constructor(name, token) {
    this.name = name;
    this.token = token;
  }

  get signal() {
    return this.#controller.signal;
  }

  check() {
    if (this._left() <= 0) throw new LockLost(`lock ${this.name} was lost`);
    this.signal.throwIfAborted();
  }

  _left() {
    if (this._isLost) return 0; // a clock that was set back does not bring it back
    const clocks = now();
    return Math.min(...this._until.map((until, i) => until - clocks[i]));
  }

  _sign(reason) {
    this.#controller.abort(reason);
  }
}

class Run extends Lease {
  outcome = null;

  constructor(name, token, tick, attempt) {
    super(name, token);
    this.tick = new Date(tick);
    this.attempt = attempt;
  }
}

// A connection that is opened when it is needed, and closed by any error
class Session {
  #connection;
  #db;
  #turn = Promise.resolve();
  #closes = 0;

  constructor(connection, lease) {
    if (!(Number.isFinite(lease) && lease > 0)) throw new RangeError("a lease must be a positive number of seconds");
    if (connection?.connect) throw new TypeError("give the settings of connections, not a pool or a client");
    this.#connection = connection;
    this.limit = Math.min(lease / 3, 30);
  }

  async #connect() {
    let given = this.#connection;
    if (typeof given === "function") given = await within(this.limit, given());
    const db = new Client({
      ...DEFAULTS,
      connectionTimeoutMillis: this.limit * 1000,
      ...(typeof given === "string" ? { connectionString: given } : given),
    });
    db.on("error", () => this.#db === db && this.close());
    db.on("notice", ({ message }) => process.emitWarning(message, "ShedlockWarning"));
    try {
      await db.connect();
    } catch (error) {
      db.end().catch(() => {});
      throw error;
    }
    return db;
  }

  async #query(text, values, wait) {
    let timer;
    const closes = this.#closes;
    try {
      this.#db ??= await this.#connect();
      if (this.#closes > closes) throw new Error("the connection was closed while it was opened");
      timer = setTimeout(() => this.close(), (wait + this.limit) * 1000);
      return (await this.#db.query({ text, values, rowMode: "array" })).rows[0];
    } catch (error) {
      this.close();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  // Returns a statement's row.  It may take wait seconds longer than others.
  ask(text, values = [], wait = 0) {
    const turn = this.#turn.then(() => this.#query(text, values, wait));
    this.#turn = turn.catch(() => {});
    return turn;
  }

  // Finds out when a lease ends.
  async findEnd(lease) {
    const sent = now();
    const [left] = (await this.ask(LEFT, [lease.name, lease.token])) ?? [0];
    lease._until = sent.map((clock) => clock + left);
  }

  // A statement that waits for the server fails.
  close() {
    this.#closes++;
    this.#db?.unref(); // a silent host keeps no process
    this.#db?.end().catch(() => {});
    this.#db = undefined;
  }
}

// Extends leases until their work has ended, and ends them
class Keeper extends Session {
  #length;
  #onError;
  #onLost;
  #leaves = new Set(); // for each lease that is kept, what leaves it alone
  #isStopped = false;

  constructor(connection, lease, onError, onLost) {
    super(connection, lease);
    this.#length = lease;
    this.#onError = onError;
    this.#onLost = onLost;
  }

  // Extends a lease until its work has ended; signs it if the lease ends before.
  async keep(lease, work) {
    const third = this.#length / 3;
    let isOver = false;
    let extending;
    const extend = async () => {
      const pause = await this.#extend(lease);
      if (!isOver && !this.#isStopped && lease._left() > 0) timer = setTimeout(start, pause * 1000);
    };
    const start = () => (extending = extend());
    let timer = setTimeout(start, Math.min(third, lease._left() - this.#length / 2) * 1000);
    // no timer counts the time of a suspension, so the clocks are read again and again
    const watch = setInterval(() => lease._left() > 0 || this.lose(lease), Math.min(1, this.#length / 20) * 1000);
    const leave = () => {
      clearTimeout(timer);
      watch.unref(); // work that never ends keeps no process
    };
    this.#leaves.add(leave);
    await work;
    isOver = true;
    clearTimeout(timer);
    await extending;
    clearInterval(watch);
    this.#leaves.delete(leave);
  }

  // Returns how long to wait until the next time.
  async #extend(lease) {
    const sent = now();
    try {
      const [isFull] = await this.ask(EXTEND, [lease.name, lease.token, this.#length]);
      // it was lost, or cut by the lock_at_most_for of its job, and is left until then
      if (!isFull) await this.findEnd(lease);
      // an answer can be too late
      else if (lease._left() > 0) lease._until = sent.map((clock) => clock + this.#length);
      return this.#length / 3;
    } catch (error) {
      tell(this.#onError, error, lease);
      return this.#length / 10;
    }
  }

  // Ends a lease; returns whether it was held until then.
  async end(lease, statement, ...args) {
    let isRepeat = false;
    let pause = 0;
    while (lease._left() > 0) {
      try {
        const [isHeld] = await this.ask(statement, [lease.name, lease.token, ...args]);
        // a lock can have been released by a call that had no answer
        if (isHeld || isRepeat) return true;
        break;
      } catch (error) {
        tell(this.#onError, error, lease);
        isRepeat = statement === RELEASE;
        // the database's encoding lacks some of it
        if (error.code === "22P05") args = args.map((arg) => arg?.replace(/[^ -~]/g, "?"));
        await sleep(pause * 1000); // at first not: it may have been one broken connection
        pause = Math.min(this.#length / 10, RETRY);
      }
    }
    this.lose(lease);
    return false;
  }

  // Extends no lease any more.
  stop() {
    this.#isStopped = true;
    for (const leave of this.#leaves) leave();
    this.close();
  }

  lose(lease) {
    if (lease._isLost) return;
    lease._isLost = true;
    lease._sign(new LockLost(`lock ${lease.name} was lost`));
    tell(this.#onLost, lease);
  }
}

class Worker {
  #jobs;
  #options;
  #asker;
  #keeper;
  #atWork = new Map(); // promises of runs
  #request = null; // that may have begun a run, or may do so until its end
  #isStopping = false;
  #isAwake = false;
  #rouse = () => {};
  #starting;
  #asking;
  #stopped;
  #tellOver;
  #over = new Promise((resolve) => (this.#tellOver = resolve));

  constructor(connection, jobs, options = {}) {
    this.#jobs = new Map(jobs.map((job) => [job.name, job]));
    if (!jobs.length || this.#jobs.size < jobs.length || jobs.some((job) => typeof job.handler !== "function"))
      throw new TypeError("a worker needs jobs, each with another name, and a function as its handler");
    this.#options = {
      ...{ lease: 30, concurrency: 4, wait: 0, stopAfter: 20, declare: true },
      onEvent: (event, run) => console.info(`shedlock: ${run.name} ${event}`),
      onError: (error, run) => console.error(`shedlock: ${run?.name ?? "worker"}:`, error),
      ...Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)),
    };
    const { lease, concurrency, wait, stopAfter, onError, onEvent } = this.#options;
    if (![concurrency, wait, stopAfter].every((n) => typeof n === "number" && n >= 0) || concurrency < 1)
      throw new RangeError("concurrency must be a positive number, wait and stopAfter no negative one");
    this.#asker = new Session(connection, lease);
    this.#keeper = new Keeper(connection, lease, onError, (run) => onEvent("lost", run));
  }

  async run() {
    const stop = () => void this.stop();
    for (const signal of SIGNALS) process.on(signal, stop);
    try {
      await this.start();
      await this.#over;
    } finally {
      for (const signal of SIGNALS) process.off(signal, stop);
    }
  }

  async start() {
    try {
      await (this.#starting ??= this.#prepare());
    } catch (error) {
      this.#starting = undefined;
      this.#asker.close();
      throw error;
    }
    this.#asking ??= this.#ask();
  }

  stop() {
    return (this.#stopped ??= this.#stop());
  }

  async #stop() {
    this.#isStopping = true;
    await this.#starting?.catch(() => {});
    this.#wake();
    this.#asker.close();
    await settle(Promise.resolve(this.#asking), LAST_WORDS);
    await settle(Promise.all(this.#atWork.keys()), this.#options.stopAfter);
    for (const run of this.#atWork.values()) run._sign(new WorkerStopped("the worker stops"));
    await settle(Promise.all(this.#atWork.keys()), LAST_WORDS);
    this.#asker.close();
    this.#keeper.stop();
    this.#tellOver();
  }

  async #prepare() {
    await this.#asker.ask(CHECK).catch((cause) => {
      if (cause.code !== "42883") throw cause;
      throw new ShedlockError(
        "the database needs extension shedlock 1.0 or newer, in its search_path, and USAGE on its schema",
        { cause },
      );
    });
    for (const job of this.#jobs.values()) {
      if (!this.#options.declare || job.schedule == null) continue;
      const given = Object.entries(job).filter(([key, value]) => key !== "handler" && value != null);
      const names = given.map(([key], i) => `${key.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`)} => $${i + 1}`);
      // as JSON an object would be read as some interval
      const values = given.map(([, value]) => String(value));
      await this.#asker.ask(`SELECT shedlock_job(${names})`, values);
    }
  }

  async #ask() {
    let pause = 0;
    while (!this.#isStopping) {
      let nap = SLEEP_MAX;
      try {
        if (this.#atWork.size < this.#options.concurrency) nap = await this.#begin(this.#options.wait);
        pause = 0;
      } catch (error) {
        if (this.#isStopping) break;
        tell(this.#options.onError, error, null);
        if (this.#request) this.#request.end = now()[0] + this.#options.wait + this.#options.lease;
        [nap, pause] = [pause, Math.min(SLEEP_MAX, 2 * pause + 1)];
      }
      if (!this.#isAwake) await settle(new Promise((resolve) => (this.#rouse = resolve)), nap);
      this.#isAwake = false;
    }
    const giveUp = now()[0] + LAST_WORDS;
    while (this.#request && now()[0] < giveUp) {
      let nap = 0.1;
      try {
        await this.#begin(0);
      } catch (error) {
        tell(this.#options.onError, error, null);
        nap = RETRY;
      }
      if (this.#request) await sleep(nap * 1000);
    }
    this.#asker.close();
  }

  #wake() {
    this.#isAwake = true;
    this.#rouse();
  }

  // Begins a run if one is due; returns how long to sleep.
  async #begin(wait) {
    const { lease } = this.#options;
    this.#request ??= { id: randomUUID(), end: now()[0] + wait + lease };
    const values = [[...this.#jobs.keys()], lease, wait, who(), this.#request.id];
    const [name, token, tick, attempt, nap, state] = await this.#asker.ask(NEXT, values, wait);
    if (token === null) {
      // the server can still be at work on a call that was given up
      if (state !== "claimed" || now()[0] > this.#request.end) this.#request = null;
      return wait ? 0.1 : Math.min(SLEEP_MAX, Math.max(0.1, nap ?? SLEEP_MAX));
    }
    const run = new Run(name, token, tick, attempt);
    await this.#asker.findEnd(run);
    this.#request = null;
    const failing = this.#work(run).catch((error) => void tell(this.#options.onError, error, run));
    const work = failing.finally(() => {
      this.#atWork.delete(work);
      if (!this.#atWork.size) this.#keeper.close();
      this.#wake();
    });
    this.#atWork.set(work, run);
    return 0;
  }

  async #work(run) {
    const { onEvent, onError } = this.#options;
    let [outcome, message] = ["succeeded", null];
    let sign; // what the handler was told by its end
    if (this.#isStopping) {
      sign = new WorkerStopped("the worker stops");
      run._sign(sign);
    } else if (run._left() > 0) {
      tell(onEvent, "begun", run);
      const ending = new Promise((resolve) => resolve(this.#jobs.get(run.name).handler(run))).then(
        () => ({ sign: run.signal.reason }),
        (error) => ({ sign: run.signal.reason, failure: { error } }),
      );
      await this.#keeper.keep(run, ending);
      let failure;
      ({ sign, failure } = await ending);
      if (failure) {
        [outcome, message] = ["failed", describe(failure.error)];
        if (!(sign && [LockLost, WorkerStopped].some((c) => failure.error instanceof c))) {
          tell(onError, failure.error, run);
        }
      }
    } else {
      this.#keeper.lose(run);
    }
    if (sign instanceof WorkerStopped) [outcome, message] = ["returned", null];
    if (await this.#keeper.end(run, END, outcome, message)) {
      run.outcome = outcome;
      tell(onEvent, "ended", run);
    }
  }
}

async function lock(connection, name, work, { atMost = 30, atLeast = 0, wait = 0 } = {}) {
  const onError = (error) => process.emitWarning(`lock ${name}: ${error.message}`, "ShedlockWarning");
  const keeper = new Keeper(connection, atMost, onError, () => {});
  try {
    const [token] = await keeper.ask(ACQUIRE, [name, atMost, atLeast, wait, who()], wait);
    if (token === null) throw new LockHeld(`lock ${name} is not free`);
    const lease = new Lease(name, token);
    try {
      await keeper.findEnd(lease);
    } catch (error) {
      await keeper.ask(RELEASE, [name, token]).catch(() => {});
      throw error;
    }
    lease.check();
    const working = new Promise((resolve) => resolve(work(lease)));
    const ending = working.catch(() => {});
    await keeper.keep(lease, ending);
    const isHeld = await keeper.end(lease, RELEASE);
    const result = await working;
    if (!isHeld) throw new LockLost(`lock ${name} was lost`);
    return result;
  } finally {
    keeper.close();
  }
}

module.exports = { LockHeld, LockLost, ShedlockError, Worker, WorkerStopped, lock };
