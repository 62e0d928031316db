/**
 * Jobs that run once, and locks, for services with replicas: a client of the PostgreSQL extension
 * shedlock.  All times are in seconds.
 */
import type { ClientConfig } from "pg";

/** Settings of the connections, as `pg` takes them, or a function, for passwords that expire. */
export type Connection = string | ClientConfig | (() => string | ClientConfig | Promise<string | ClientConfig>);

/** Base of this package's errors; by itself: the database has no extension shedlock, or too old a one. */
export class ShedlockError extends Error {}
/** The lock was not acquired: it is held, or paused. */
export class LockHeld extends ShedlockError {}
/** The lock was lost: the work must stop, and does not count. */
export class LockLost extends ShedlockError {}
/** The worker stops: the work must stop, and another replica begins it anew. */
export class WorkerStopped extends ShedlockError {}

/** A lock that is held, and extended until its work has ended. */
export class Lease {
  protected constructor();
  readonly name: string;
  /** For fencing: a bigint, which is larger for each holder than for the one before. */
  readonly token: string;
  /** Is aborted when the work must stop, with LockLost or WorkerStopped as its reason. */
  readonly signal: AbortSignal;
  /** Throws LockLost or WorkerStopped if the work must stop. */
  check(): void;
}

/** A run of a job. */
export class Run extends Lease {
  readonly tick: Date;
  readonly attempt: number;
  /** When it has ended. */
  readonly outcome: "succeeded" | "failed" | "returned" | null;
}

/** A job: its handler and the settings of `shedlock_job`.  Without a schedule it is not declared. */
export interface Job {
  name: string;
  handler(run: Run): unknown;
  schedule?: string;
  timeZone?: string;
  attempts?: number;
  /** Durations as PostgreSQL reads them: "10 min". */
  backoff?: string;
  catchUp?: "latest" | "all";
  maxLate?: string;
  overdueAfter?: string;
  slowAfter?: string;
  lockAtMostFor?: string;
  lockAtLeastFor?: string;
  description?: string;
}

export interface WorkerOptions {
  /** That a run survives its replica; 30. */
  lease?: number;
  /** How many runs may be at work; 4. */
  concurrency?: number;
  /** How long a call waits in the server for a job to come due; 0: the worker sleeps. */
  wait?: number;
  /** How long runs may go on when the worker stops; 20. */
  stopAfter?: number;
  /** Whether it declares its jobs when it starts; true. */
  declare?: boolean;
  /** Logs by default.  A listener must not block. */
  onEvent?(event: "begun" | "ended" | "lost", run: Run): void;
  /** Logs by default. */
  onError?(error: unknown, run: Run | null): void;
}

/** Runs jobs when they are due: each tick once, however many replicas have a worker for it. */
export class Worker {
  constructor(connection: Connection, jobs: Job[], options?: WorkerOptions);
  /** Does as start(), and is fulfilled when the worker has stopped: at SIGTERM, SIGINT or stop(). */
  run(): Promise<void>;
  /**
   * Declares the jobs, and begins to run them.  Fails if the database is away or refuses: for a wrong
   * password, for a wrong schedule.  After its start the worker goes on trying.  One that has been
   * stopped does not start again.
   */
  start(): Promise<void>;
  /**
   * Begins no more runs, lets those at work end for stopAfter, and gives the rest back: these get
   * their sign, and end as "returned" as soon as their handlers do.  It waits for all of it, so a
   * handler must not wait for it.
   */
  stop(): Promise<void>;
}

/**
 * Does work while it holds a lock, by a lease of atMost (30) that is extended meanwhile.  Fails by
 * LockHeld if the lock was not free within wait (0), and by LockLost, before or after the work, if it
 * was lost.
 */
export function lock<T>(
  connection: Connection,
  name: string,
  work: (lease: Lease) => T | Promise<T>,
  options?: { atMost?: number; atLeast?: number; wait?: number },
): Promise<T>;
