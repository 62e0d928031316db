package io.shedlock;

import java.lang.System.Logger.Level;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.sql.DataSource;

/**
 * Jobs that run once, and locks, for services with replicas: a client of the PostgreSQL extension shedlock.
 *
 * <p>A {@link Worker} asks the database which of its jobs is due, and runs it in a thread; {@link Lease} is for work
 * that is no job. Leases are extended over a connection that nothing else uses.
 */
@SuppressWarnings("serial")
public final class Shedlock {
    private static final System.Logger LOG = System.getLogger("shedlock");
    private static final long SECOND = 1_000_000_000; // all times here are in nanoseconds
    private static final long SLEEP_MAX = 10 * SECOND; // of a worker until it asks again
    private static final long LAST_WORDS = 5 * SECOND; // that runs have after their sign when the worker stops
    private static final String DRIVERS_NAME = "PostgreSQL JDBC Driver"; // of an application without a name
    private static final String ME = who();

    private static final String CHECK = "SELECT 'shedlock_next'::regproc::text";
    private static final String NEXT = """
            SELECT name, token, extract(epoch FROM tick)::float8, attempt,
                extract(epoch FROM next_at - clock_timestamp())::float8
                FROM shedlock_next(?::text[], make_interval(secs => ?), make_interval(secs => ?), ?, ?)""";
    // For how long a lease lasts from when its statement reached the server, which is after it was sent
    private static final String LEFT = """
            SELECT extract(epoch FROM lock_until - statement_timestamp())::float8
                FROM shedlock_locks WHERE name = ? AND token = ?""";
    private static final String EXTEND = "SELECT shedlock_extend(?, ?, make_interval(secs => ?))";
    private static final String END = "SELECT shedlock_run_end(?, ?, ?, ?)";
    private static final String ACQUIRE = """
            SELECT shedlock_acquire_token(?,
                make_interval(secs => ?), make_interval(secs => ?), make_interval(secs => ?), ?)""";
    private static final String RELEASE = "SELECT shedlock_release(?, ?)";

    private Shedlock() {}

    /** Base of this package's errors; by itself: the database has no extension shedlock, or too old a one. */
    public static class ShedlockException extends RuntimeException {
        ShedlockException(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** The lock was not acquired: it is held, or paused. */
    public static final class LockHeld extends ShedlockException {
        LockHeld(String name) {
            super("lock " + name + " is not free", null);
        }
    }

    /** The lock was lost: the work must stop, and does not count. */
    public static final class LockLost extends ShedlockException {
        LockLost(String name) {
            super("lock " + name + " was lost", null);
        }
    }

    /** The worker stops: the work must stop, and another replica begins it anew. */
    public static final class WorkerStopped extends ShedlockException {
        WorkerStopped() {
            super("the worker stops", null);
        }
    }

    /** What happens to a run. */
    public enum Event {
        /** It begins. */
        BEGUN,
        /** Its outcome is recorded. */
        ENDED,
        /** Its lock was lost. */
        LOST
    }

    /** The work of a job. */
    @FunctionalInterface
    public interface Handler {
        /**
         * Does the work, in a thread of its own, which is interrupted when the work must stop.
         *
         * @param run the run
         * @throws Exception if the run has failed
         */
        void run(Run run) throws Exception;
    }

    private enum Reason { STOPPED, LOST }

    /** A lock that is held, and extended until its work has ended. */
    public abstract static sealed class Held permits Run, Lease {
        final String name;
        final long token;
        volatile Thread thread; // that works, and is interrupted
        volatile Reason reason; // to stop
        volatile boolean isOver;
        volatile long[] until;

        private Held(String name, long token) {
            this.name = name;
            this.token = token;
        }

        /**
         * Returns the name of the lock, which is that of its job.
         *
         * @return the name
         */
        public final String name() {
            return name;
        }

        /**
         * Returns the fencing token, which grows from one holder to the next.
         *
         * @return the token
         */
        public final long token() {
            return token;
        }

        /**
         * Throws an exception if the work must stop.
         *
         * @throws LockLost if the lock was lost
         * @throws WorkerStopped if the worker stops
         */
        public final void check() {
            if (reason == Reason.STOPPED) {
                throw new WorkerStopped();
            }
            if (mustStop()) {
                throw new LockLost(name);
            }
        }

        /**
         * Says whether the work must stop.
         *
         * @return whether check() would throw an exception
         */
        public final boolean mustStop() {
            return reason != null || left() <= 0;
        }

        long left() {
            long[] now = now();
            return Math.min(until[0] - now[0], until[1] - now[1]);
        }

        void holdFor(long nanos, long[] since) {
            until = new long[] {since[0] + nanos, since[1] + nanos};
        }

        /** Gives the sign, once; returns whether the reason is a new one. */
        synchronized boolean sign(Reason why) {
            if (reason == why || reason == Reason.LOST) {
                return false;
            }
            if (reason == null && thread != null && !isOver) {
                thread.interrupt();
            }
            reason = why;
            return true;
        }

        synchronized void finish() {
            isOver = true;
            if (thread != null) {
                Thread.interrupted(); // the sign is not for what comes after the work
            }
        }
    }

    /** A run of a job. */
    public static final class Run extends Held {
        private final Instant tick;
        private final int attempt;
        private volatile String outcome;

        private Run(String name, long token, Instant tick, int attempt) {
            super(name, token);
            this.tick = tick;
            this.attempt = attempt;
        }

        /**
         * Returns the time that the schedule gives.
         *
         * @return the tick
         */
        public Instant tick() {
            return tick;
        }

        /**
         * Returns which attempt at its tick the run is.
         *
         * @return the attempt, from 1
         */
        public int attempt() {
            return attempt;
        }

        /**
         * Returns the outcome, once the run has ended.
         *
         * @return "succeeded", "failed", "returned" or null
         */
        public String outcome() {
            return outcome;
        }
    }

    /** A lock for work that is no job, held until it is closed. */
    public static final class Lease extends Held implements AutoCloseable {
        private final Keeper keeper;

        private Lease(String name, long token, Keeper keeper) {
            super(name, token);
            this.keeper = keeper;
        }

        /**
         * Acquires a lock, by a lease of 30 seconds that is extended until close().
         *
         * @param dataSource opens connections
         * @param name of the lock
         * @param wait how long to wait for the lock
         * @return the lease
         * @throws LockHeld if the lock was not free in time
         * @throws SQLException if the database is away, or refuses
         */
        public static Lease hold(DataSource dataSource, String name, Duration wait) throws SQLException {
            return hold(dataSource, name, wait, Duration.ofSeconds(30), Duration.ZERO);
        }

        /**
         * Acquires a lock, by a lease that is extended until close().
         *
         * @param dataSource opens connections
         * @param name of the lock
         * @param wait how long to wait for the lock
         * @param atMost how long the lock survives its holder
         * @param atLeast how long the lock is held even if close() comes before
         * @return the lease
         * @throws LockHeld if the lock was not free in time
         * @throws SQLException if the database is away, or refuses
         */
        public static Lease hold(DataSource dataSource, String name, Duration wait, Duration atMost, Duration atLeast)
                throws SQLException {
            Keeper keeper = new Keeper(dataSource, atMost.toNanos(), (event, held) -> {},
                    (error, held) -> LOG.log(Level.WARNING, "lock " + name, error));
            try {
                Object token = keeper.ask(wait.toNanos(), ACQUIRE, name, seconds(atMost.toNanos()),
                        seconds(atLeast.toNanos()), seconds(wait.toNanos()), ME)[0];
                if (token == null) {
                    throw new LockHeld(name);
                }
                Lease lease = new Lease(name, (Long) token, keeper);
                keeper.findEnd(lease);
                keeper.keep(lease);
                return lease;
            } catch (SQLException | RuntimeException e) {
                keeper.close();
                throw e;
            }
        }

        /**
         * Releases the lock.
         *
         * @throws LockLost if it was lost before
         */
        @Override
        public void close() {
            if (isOver) {
                return;
            }
            finish();
            boolean wasHeld = keeper.end(this, RELEASE);
            keeper.close();
            if (!wasHeld) {
                throw new LockLost(name);
            }
        }
    }

    /** A job: its handler and the settings of shedlock_job. Without a schedule it is not declared. */
    public static final class Job {
        private final String name;
        private final Handler handler;
        private final Map<String, Object> settings = new LinkedHashMap<>();

        /**
         * Makes a job.
         *
         * @param name of the job
         * @param handler does its work
         */
        public Job(String name, Handler handler) {
            this.name = name;
            this.handler = handler;
            set("name", name);
        }

        private Job set(String key, Object value) {
            settings.put(key, value);
            return this;
        }

        /**
         * Sets when it is due.
         *
         * @param schedule such as "0 3 * * *" or "every 10 min"
         * @return this job
         */
        public Job schedule(String schedule) {
            return set("schedule", schedule);
        }

        /**
         * Sets the time zone of the schedule.
         *
         * @param name such as "Europe/Berlin"; the default is UTC
         * @return this job
         */
        public Job timeZone(String name) {
            return set("time_zone", name);
        }

        /**
         * Sets how often a tick is tried.
         *
         * @param count how often
         * @return this job
         */
        public Job attempts(int count) {
            return set("attempts", count);
        }

        /**
         * Sets the pause before the second attempt.
         *
         * @param pause how long
         * @return this job
         */
        public Job backoff(Duration pause) {
            return set("backoff", pause);
        }

        /**
         * Sets which ticks run that nobody ran in time.
         *
         * @param which "latest", "all" or "none"
         * @return this job
         */
        public Job catchUp(String which) {
            return set("catch_up", which);
        }

        /**
         * Sets how late a run may begin.
         *
         * @param late how late
         * @return this job
         */
        public Job maxLate(Duration late) {
            return set("max_late", late);
        }

        /**
         * Sets from when on the job counts as overdue.
         *
         * @param late how late
         * @return this job
         */
        public Job overdueAfter(Duration late) {
            return set("overdue_after", late);
        }

        /**
         * Sets from when on a run counts as slow.
         *
         * @param time how long it takes
         * @return this job
         */
        public Job slowAfter(Duration time) {
            return set("slow_after", time);
        }

        /**
         * Sets how long a run holds its lock at most, however often it is extended.
         *
         * @param time how long
         * @return this job
         */
        public Job lockAtMostFor(Duration time) {
            return set("lock_at_most_for", time);
        }

        /**
         * Sets how long a run holds its lock at least.
         *
         * @param time how long
         * @return this job
         */
        public Job lockAtLeastFor(Duration time) {
            return set("lock_at_least_for", time);
        }

        /**
         * Describes the job.
         *
         * @param text a description
         * @return this job
         */
        public Job description(String text) {
            return set("description", text);
        }
    }

    /** Runs jobs when they are due: each tick once, however many replicas have a worker for it. */
    public static final class Worker implements AutoCloseable {
        private final DataSource dataSource;
        private final Map<String, Job> jobs = new LinkedHashMap<>();
        private final Set<Run> atWork = ConcurrentHashMap.newKeySet();
        private final Semaphore wake = new Semaphore(0);
        private final Thread hook = new Thread(this::close, "shedlock stop");
        private long lease = 30 * SECOND;
        private int concurrency = 4;
        private long wait = 0;
        private long stopAfter = 20 * SECOND;
        private boolean isDeclaring = true;
        private BiConsumer<Event, Run> onEvent =
                (event, run) -> LOG.log(Level.INFO, run.name() + " " + event.name().toLowerCase());
        private BiConsumer<Throwable, Run> onError =
                (error, run) -> LOG.log(Level.ERROR, run == null ? "worker" : run.name(), error);
        private Session asker;
        private Keeper keeper;
        private Thread asking;
        private String request; // that may have begun a run
        private volatile boolean isStopping;

        /**
         * Makes a worker, which starts once.
         *
         * @param dataSource opens connections; a pool would lend out two of its own for as long as the worker works
         */
        public Worker(DataSource dataSource) {
            this.dataSource = dataSource;
        }

        /**
         * Adds a job.
         *
         * @param job the job
         * @return this worker
         */
        public Worker job(Job job) {
            if (jobs.put(job.name, job) != null) {
                throw new IllegalArgumentException("a worker needs jobs with different names");
            }
            return this;
        }

        /**
         * Sets how long a run survives its replica.
         *
         * @param time how long; the default is 30 seconds
         * @return this worker
         */
        public Worker lease(Duration time) {
            lease = time.toNanos();
            return this;
        }

        /**
         * Sets how many runs may be at work.
         *
         * @param count how many; the default is 4
         * @return this worker
         */
        public Worker concurrency(int count) {
            concurrency = count;
            return this;
        }

        /**
         * Sets how long a call waits in the server for a job to come due.
         *
         * @param time how long; the default is zero: the worker sleeps
         * @return this worker
         */
        public Worker waitInServer(Duration time) {
            wait = time.toNanos();
            return this;
        }

        /**
         * Sets how long runs may go on when the worker stops.
         *
         * @param time how long; the default is 20 seconds
         * @return this worker
         */
        public Worker stopAfter(Duration time) {
            stopAfter = time.toNanos();
            return this;
        }

        /**
         * Sets whether the worker declares its jobs when it starts.
         *
         * @param isDeclaring whether it does; the default is true
         * @return this worker
         */
        public Worker declare(boolean isDeclaring) {
            this.isDeclaring = isDeclaring;
            return this;
        }

        /**
         * Sets a listener for what happens to runs.
         *
         * @param listener is told; must not block
         * @return this worker
         */
        public Worker onEvent(BiConsumer<Event, Run> listener) {
            onEvent = listener;
            return this;
        }

        /**
         * Sets a listener for errors.
         *
         * @param listener is told, without a run if the worker has an error; must not block
         * @return this worker
         */
        public Worker onError(BiConsumer<Throwable, Run> listener) {
            onError = listener;
            return this;
        }

        /**
         * Declares the jobs, and begins to run them in threads, until close() or the end of the JVM by a signal.
         *
         * <p>After its start the worker goes on trying if the database is away.
         *
         * @throws SQLException if the database is away or refuses: for a wrong password, for a wrong schedule
         * @throws ShedlockException if the database has no extension shedlock, or too old a one
         */
        public void start() throws SQLException {
            if (jobs.isEmpty() || asking != null) {
                throw new IllegalStateException("a worker needs jobs, and starts once");
            }
            asker = new Session(dataSource, lease);
            keeper = new Keeper(dataSource, lease, (event, held) -> tell(onEvent, event, (Run) held),
                    (error, held) -> tell(onError, error, (Run) held));
            try {
                prepare();
            } catch (SQLException | RuntimeException e) {
                asker.hangUp();
                throw e;
            }
            asking = new Thread(this::ask, "shedlock");
            asking.setDaemon(false); // a program of workers alone lives as long as they do
            asking.start();
            Runtime.getRuntime().addShutdownHook(hook);
        }

        /**
         * Begins no more runs, lets those at work end for the time of stopAfter, and gives the rest back.
         *
         * <p>These are interrupted, and end as "returned" as soon as their handlers do.
         */
        @Override
        public synchronized void close() {
            if (asking == null || isStopping) {
                return;
            }
            isStopping = true;
            wake.release();
            asker.cut();
            boolean isPatient = await(() -> !asking.isAlive(), LAST_WORDS) && await(atWork::isEmpty, stopAfter);
            atWork.forEach(run -> run.sign(Reason.STOPPED));
            isPatient &= await(atWork::isEmpty, LAST_WORDS);
            keeper.close();
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException e) {
                // it is at work
            }
            if (!isPatient) {
                Thread.currentThread().interrupt();
            }
        }

        /** Waits for a condition; returns false if this thread is interrupted meanwhile. */
        private static boolean await(BooleanSupplier condition, long time) {
            long end = System.nanoTime() + time;
            try {
                while (!condition.getAsBoolean() && System.nanoTime() - end < 0) {
                    Thread.sleep(10);
                }
                return true;
            } catch (InterruptedException e) {
                return false;
            }
        }

        private void prepare() throws SQLException {
            try {
                asker.ask(0, CHECK);
            } catch (SQLException e) {
                if (!"42883".equals(e.getSQLState())) {
                    throw e;
                }
                throw new ShedlockException(
                        "the database needs extension shedlock 1.0 or newer, in its search_path", e);
            }
            for (Job job : jobs.values()) {
                if (isDeclaring && job.settings.get("schedule") != null) {
                    String arguments = job.settings.entrySet().stream()
                            .map(e -> e.getKey() + (e.getValue() instanceof Duration ? " => ?::interval" : " => ?"))
                            .collect(Collectors.joining(", "));
                    asker.ask(0, "SELECT shedlock_job(" + arguments + ")", job.settings.values().toArray());
                }
            }
        }

        private void ask() {
            long pause = 0;
            while (!isStopping) {
                long nap = SLEEP_MAX;
                try {
                    nap = atWork.size() < concurrency ? begin(wait) : nap;
                    pause = 0;
                } catch (Throwable e) {
                    if (isStopping) {
                        break;
                    }
                    tell(onError, e, null);
                    nap = pause;
                    pause = Math.min(SLEEP_MAX, 2 * pause + SECOND);
                }
                try {
                    wake.tryAcquire(nap, TimeUnit.NANOSECONDS);
                } catch (InterruptedException e) {
                    // nobody does
                }
                wake.drainPermits();
            }
            try {
                if (request != null) {
                    begin(0);
                }
            } catch (Throwable e) {
                // another replica begins the run when its lease has expired
            }
            asker.hangUp();
        }

        /** Begins a run if one is due; returns how long to sleep. */
        private long begin(long wait) throws SQLException {
            request = request == null ? UUID.randomUUID().toString() : request;
            Object[] row = asker.ask(wait, NEXT, jobs.keySet().toArray(String[]::new), seconds(lease), seconds(wait),
                    ME, request);
            if (row[1] == null) {
                request = null;
                long nap = row[4] == null ? SLEEP_MAX : nanos(row[4]);
                return wait > 0 ? SECOND / 10 : Math.min(SLEEP_MAX, Math.max(SECOND / 10, nap));
            }
            Instant tick = Instant.EPOCH.plus(Math.round((Double) row[2] * 1e6), ChronoUnit.MICROS);
            Run run = new Run((String) row[0], (Long) row[1], tick, (Integer) row[3]);
            asker.findEnd(run);
            request = null;
            atWork.add(run);
            try {
                thread("shedlock " + run.name(), () -> work(run)).start();
            } catch (Throwable e) { // there can be no more threads
                atWork.remove(run);
                throw e;
            }
            return 0;
        }

        private void work(Run run) {
            Throwable error = null;
            run.thread = Thread.currentThread();
            if (isStopping) {
                run.sign(Reason.STOPPED);
            } else {
                try {
                    keeper.keep(run);
                    tell(onEvent, Event.BEGUN, run);
                    jobs.get(run.name).handler.run(run);
                } catch (Throwable e) {
                    error = e;
                }
            }
            run.finish();
            boolean isObedient = error instanceof ShedlockException || error instanceof InterruptedException;
            if (error != null && !(isObedient && run.reason != null)) {
                tell(onError, error, run);
            }
            boolean isReturned = run.reason == Reason.STOPPED;
            run.outcome = isReturned ? "returned" : error == null ? "succeeded" : "failed";
            String message = isReturned || error == null ? null : error.toString().replace("\0", "");
            if (keeper.end(run, END, run.outcome, message)) {
                tell(onEvent, Event.ENDED, run);
            } else {
                run.outcome = null;
            }
            atWork.remove(run);
            wake.release();
            if (atWork.isEmpty()) {
                keeper.hangUp();
            }
        }
    }

    /** A connection that is opened when it is needed, and closed by any error. */
    private static class Session {
        private final DataSource dataSource;
        private final long limit;
        private final ReentrantLock turn = new ReentrantLock(true);
        private volatile CompletableFuture<Connection> opening;
        private volatile Connection db;
        private volatile boolean isCut;
        private long count;

        Session(DataSource dataSource, long lease) {
            this.dataSource = dataSource;
            limit = Math.min(lease / 3, 30 * SECOND);
        }

        /** Opens a connection, in another thread because a driver's limits need not be those that were given. */
        private Connection open() throws SQLException {
            CompletableFuture<Connection> result = new CompletableFuture<>();
            opening = result;
            thread("shedlock open", () -> {
                try {
                    Connection opened = dataSource.getConnection();
                    if (!result.complete(opened)) {
                        opened.close();
                    }
                } catch (Throwable e) {
                    result.completeExceptionally(e);
                }
            }).start();
            try {
                // the first one loads classes
                return result.get(Math.max(limit, 5 * SECOND), TimeUnit.NANOSECONDS);
            } catch (ExecutionException e) {
                throw e.getCause() instanceof SQLException cause ? cause : new SQLException(e.getCause());
            } catch (TimeoutException | InterruptedException | CancellationException e) {
                throw new SQLException("no connection was opened in time", "08001", e);
            } finally {
                result.cancel(false);
            }
        }

        /** Returns a statement's row, or null. It may take longer than others by some time that it waits. */
        Object[] ask(long wait, String statement, Object... args) throws SQLException {
            turn.lock();
            try {
                boolean isNew = db == null;
                db = isNew ? open() : db;
                if (isCut && wait > 0) {
                    throw new SQLException("the worker stops");
                }
                db.setNetworkTimeout(Runnable::run, (int) Math.min(Integer.MAX_VALUE, (wait + limit) / 1_000_000));
                if (isNew) {
                    db.setAutoCommit(true);
                    if (DRIVERS_NAME.equals(db.getClientInfo("ApplicationName"))) {
                        db.setClientInfo("ApplicationName", "shedlock");
                    }
                }
                // the driver would prepare a text that it knows by name, which not every pooler allows
                try (PreparedStatement sent = db.prepareStatement(statement + " /* " + ++count + " */")) {
                    for (int i = 0; i < args.length; i++) {
                        Object arg = args[i] instanceof String[] names ? db.createArrayOf("text", names) : args[i];
                        sent.setObject(i + 1, arg instanceof Duration ? arg.toString() : arg);
                    }
                    return read(sent);
                }
            } catch (Throwable e) {
                abort();
                db = null;
                throw e;
            } finally {
                turn.unlock();
            }
        }

        private static Object[] read(PreparedStatement sent) throws SQLException {
            try (ResultSet rows = sent.executeQuery()) {
                for (SQLWarning note = sent.getWarnings(); note != null; note = note.getNextWarning()) {
                    LOG.log(Level.WARNING, note.getMessage());
                }
                Object[] row = rows.next() ? new Object[rows.getMetaData().getColumnCount()] : null;
                for (int i = 0; row != null && i < row.length; i++) {
                    row[i] = rows.getObject(i + 1);
                }
                return row;
            }
        }

        /** Finds out when a lease ends. */
        void findEnd(Held lease) throws SQLException {
            long[] sent = now();
            Object[] row = ask(0, LEFT, lease.name, lease.token);
            lease.holdFor(row == null ? 0 : nanos(row[0]), sent);
        }

        /** Breaks the connection, from any thread, for good as far as statements are concerned that wait. */
        void cut() {
            isCut = true;
            abort();
        }

        private void abort() {
            CompletableFuture<Connection> unopened = opening;
            Connection broken = db;
            try {
                if (unopened != null) {
                    unopened.cancel(false);
                }
                if (broken != null) {
                    broken.abort(Runnable::run);
                }
            } catch (SQLException e) {
                LOG.log(Level.DEBUG, "a connection", e);
            }
        }

        /** Closes the connection, which a later statement opens again. */
        void hangUp() {
            if (!turn.tryLock()) {
                abort();
                return;
            }
            try {
                if (db != null) {
                    db.close();
                }
            } catch (SQLException e) {
                LOG.log(Level.DEBUG, "a connection", e);
            } finally {
                db = null;
                turn.unlock();
            }
        }
    }

    /** Extends leases until their work has ended, and ends them. */
    private static final class Keeper extends Session {
        private final long length;
        private final BiConsumer<Event, Held> onEvent;
        private final BiConsumer<Throwable, Held> onError;
        // two threads: one that sends, and one that nothing can block
        private final ScheduledThreadPoolExecutor extending = executor("shedlock extend");
        private final ScheduledThreadPoolExecutor watching = executor("shedlock watch");

        Keeper(DataSource dataSource, long length, BiConsumer<Event, Held> onEvent,
                BiConsumer<Throwable, Held> onError) {
            super(dataSource, length);
            this.length = length;
            this.onEvent = onEvent;
            this.onError = onError;
        }

        /** Extends a lease until its work has ended; signs it if the lease ends before. */
        void keep(Held lease) {
            extendAfter(Math.min(length / 3, lease.left() - length / 2), lease);
            watch(lease);
        }

        private void extendAfter(long pause, Held lease) {
            extending.schedule(() -> extend(lease), pause, TimeUnit.NANOSECONDS);
        }

        private void extend(Held lease) {
            if (isDone(lease)) {
                return;
            }
            long pause = length / 3;
            long[] sent = now();
            try {
                if (!(Boolean) ask(0, EXTEND, lease.name, lease.token, seconds(length))[0]) {
                    // it was lost, or cut by the lock_at_most_for of its job, and is left until then
                    findEnd(lease);
                } else if (lease.left() > 0) { // an answer can be too late
                    lease.holdFor(length, sent);
                }
            } catch (Throwable e) {
                pause = length / 10;
                tell(onError, e, lease);
            }
            if (!isDone(lease)) {
                extendAfter(pause, lease);
            }
        }

        private void watch(Held lease) {
            if (!isDone(lease)) {
                // no wait counts the time of a suspension, so the clocks are read again and again
                watching.schedule(() -> watch(lease), Math.min(SECOND, length / 20), TimeUnit.NANOSECONDS);
            }
        }

        /** Ends a lease; returns whether it was held until then. */
        boolean end(Held lease, String statement, Object... args) {
            Object[] all = Stream.concat(Stream.<Object>of(lease.name, lease.token), Stream.of(args)).toArray();
            while (lease.reason != Reason.LOST && lease.left() > 0) {
                try {
                    if ((Boolean) ask(0, statement, all)[0]) {
                        return true;
                    }
                    break;
                } catch (Throwable e) {
                    tell(onError, e, lease);
                    LockSupport.parkNanos(length / 10);
                }
            }
            lose(lease);
            return false;
        }

        private boolean isDone(Held lease) {
            if (!lease.isOver && lease.left() <= 0) {
                lose(lease);
            }
            return lease.isOver || lease.reason == Reason.LOST;
        }

        private void lose(Held lease) {
            if (lease.sign(Reason.LOST)) {
                tell(onEvent, Event.LOST, lease);
            }
        }

        void close() {
            extending.shutdownNow();
            watching.shutdownNow();
            hangUp();
        }
    }

    private static <A, B> void tell(BiConsumer<A, B> listener, A what, B of) {
        try {
            listener.accept(what, of);
        } catch (Throwable e) {
            LOG.log(Level.ERROR, "a listener", e);
        }
    }

    private static Thread thread(String name, Runnable work) {
        Thread result = new Thread(work, name);
        result.setDaemon(true);
        return result;
    }

    private static ScheduledThreadPoolExecutor executor(String name) {
        return new ScheduledThreadPoolExecutor(1, work -> thread(name, work));
    }

    /** Returns the time by a clock that nobody sets, and by that of the wall, which counts suspension. */
    private static long[] now() {
        return new long[] {System.nanoTime(), System.currentTimeMillis() * 1_000_000};
    }

    private static double seconds(long nanos) {
        return nanos / 1e9;
    }

    private static long nanos(Object seconds) {
        return (long) Math.min((Double) seconds * 1e9, Long.MAX_VALUE / 4.0);
    }

    private static String who() {
        String host;
        try {
            host = InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException e) {
            host = "localhost";
        }
        return host + " " + ProcessHandle.current().pid();
    }
}
