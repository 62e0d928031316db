package io.shedlock;

import java.lang.System.Logger.Level;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.sql.Types;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;
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
    private static final double SLEEP_MAX = 10; // of a worker until it asks again, in seconds as all times here
    private static final double LAST_WORDS = 5; // that runs have after their sign when the worker stops
    private static final double RETRY = 1; // of an end, and of the last request, when the worker stops
    private static final String NAMELESS = "PostgreSQL JDBC Driver"; // what its driver calls an application
    private static final String ME = who();

    private static final String CHECK = "SELECT 'shedlock_next'::regproc::text";
    private static final String NEXT = """
            SELECT name, token, extract(epoch FROM tick)::float8, attempt,
                extract(epoch FROM next_at - clock_timestamp())::float8, state
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
        private ShedlockException(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** The lock was not acquired: it is held, or paused. */
    public static final class LockHeld extends ShedlockException {
        private LockHeld(String name) {
            super("lock " + name + " is not free", null);
        }
    }

    /** The lock was lost: the work must stop, and does not count. */
    public static final class LockLost extends ShedlockException {
        private LockLost(String name) {
            super("lock " + name + " was lost", null);
        }
    }

    /** The worker stops: the work must stop, and another replica begins it anew. */
    public static final class WorkerStopped extends ShedlockException {
        private WorkerStopped() {
            super("the worker stops", null);
        }
    }

    /** What happens to a run: it begins, its outcome is recorded, its lock was lost. */
    public enum Event { BEGUN, ENDED, LOST }

    private enum Reason { STOPPED, LOST }

    /** A lock that is held, and extended until its work has ended. */
    public abstract static sealed class Held {
        /** The name of the lock, which is that of its job. */
        public final String name;
        /** The fencing token, which grows from one holder to the next. */
        public final long token;

        final CountDownLatch over = new CountDownLatch(1); // the work
        volatile Thread thread; // that does the work, if it is not the caller's
        volatile Reason reason; // to stop
        volatile double[] until;

        private Held(String name, long token) {
            this.name = name;
            this.token = token;
        }

        /** Throws LockLost or WorkerStopped if the work must stop. */
        public final void check() {
            if (reason == Reason.STOPPED) {
                throw new WorkerStopped();
            } else if (left() <= 0) {
                throw new LockLost(name);
            }
        }

        /** Returns whether check() would throw an exception. */
        public final boolean mustStop() {
            return reason != null || left() <= 0;
        }

        final double left() {
            double[] now = now(); // a clock that was set back does not bring back what was lost
            return reason == Reason.LOST ? 0 : Math.min(until[0] - now[0], until[1] - now[1]);
        }

        final void holdFor(double time, double[] since) {
            until = new double[] {since[0] + time, since[1] + time};
        }

        /** Interrupts the work, once; returns whether the reason is a new one. */
        final synchronized boolean sign(Reason why) {
            if (reason == why || reason == Reason.LOST) {
                return false;
            }
            boolean isFirst = reason == null;
            reason = why; // before the work looks
            if (isFirst && thread != null) {
                thread.interrupt();
            }
            return true;
        }

        /** Waits for some time; returns whether the work is over by then. */
        final boolean isOver(double wait) {
            try {
                return over.await(nanos(wait), TimeUnit.NANOSECONDS);
            } catch (InterruptedException e) {
                return false; // nobody interrupts who waits here
            }
        }
    }

    /** A run of a job. */
    public static final class Run extends Held {
        /** The time that the schedule gives. */
        public final Instant tick;
        /** Which attempt at its tick the run is, from 1. */
        public final int attempt;

        private volatile String outcome;
        private Throwable error;
        private Reason told; // when its work ended

        private Run(String name, long token, Instant tick, int attempt) {
            super(name, token);
            this.tick = tick;
            this.attempt = attempt;
        }

        /** Returns "succeeded", "failed" or "returned", once the run has ended. */
        public String outcome() {
            return outcome;
        }
    }

    /** A lock for work that is no job, held until it is closed. */
    public static final class Lease extends Held implements AutoCloseable {
        private CompletableFuture<Boolean> released;

        private Lease(String name, long token) {
            super(name, token);
        }

        /** Acquires a lock as the other method does: at most for 30 seconds, and at least for none. */
        public static Lease hold(DataSource dataSource, String name, Duration wait) throws SQLException {
            return hold(dataSource, name, wait, Duration.ofSeconds(30), Duration.ZERO);
        }

        /**
         * Acquires a lock, by a lease that is extended until close().
         *
         * @param wait how long to wait for the lock
         * @param atMost how long the lock survives its holder
         * @param atLeast how long the lock is held even if close() comes before
         * @throws LockHeld if the lock was not free in time
         * @throws LockLost if this process has stood still until it was lost
         * @throws SQLException if the database is away, or refuses
         */
        public static Lease hold(DataSource dataSource, String name, Duration wait, Duration atMost, Duration atLeast)
                throws SQLException {
            double length = seconds(atMost);
            Session<Lease> keeper = new Session<>(dataSource, length, (event, lease) -> {},
                    (error, lease) -> LOG.log(Level.WARNING, "lock " + name, error));
            Object token = keeper.ask(seconds(wait), ACQUIRE, name, length, seconds(atLeast), seconds(wait), ME)[0];
            if (token == null) {
                keeper.close();
                throw new LockHeld(name);
            }
            Lease lease = new Lease(name, (Long) token);
            try {
                keeper.findEnd(lease);
            } catch (SQLException e) {
                try {
                    keeper.ask(0, RELEASE, name, token);
                } catch (SQLException again) {
                    e.addSuppressed(again);
                }
                keeper.close();
                throw e;
            }
            if (lease.left() <= 0) {
                keeper.close();
                throw new LockLost(name);
            }
            try {
                lease.released = CompletableFuture.supplyAsync(() -> {
                    try {
                        keeper.keep(lease);
                        return keeper.end(lease, RELEASE, name, token);
                    } finally {
                        keeper.close();
                    }
                }, work -> thread("shedlock " + name, work).start());
            } catch (Throwable e) { // there can be no more threads
                keeper.end(lease, RELEASE, name, token);
                keeper.close();
                throw e;
            }
            return lease;
        }

        /** Releases the lock; throws LockLost if it was lost before. */
        @Override
        public void close() {
            over.countDown();
            if (!released.join()) {
                throw new LockLost(name);
            }
        }
    }

    /** The work of a job. */
    @FunctionalInterface
    public interface Handler {
        /** Works in a thread of its own, which is interrupted when it must stop; the run fails by an exception. */
        void run(Run run) throws Exception;
    }

    /** A job: its handler and the settings of shedlock_job. Without a schedule it is not declared. */
    public static final class Job {
        private final String name;
        private final Handler handler;
        private final Map<String, Object> settings = new LinkedHashMap<>();

        /** Makes a job. */
        public Job(String name, Handler handler) {
            this.name = name;
            this.handler = handler;
            set("name", name);
        }

        /** Sets when it is due: "every 10 min", say, or "0 3 * * *" in UTC. */
        public Job schedule(String schedule) {
            return set("schedule", schedule);
        }

        /** Sets when it is due, in a time zone such as "Europe/Berlin". */
        public Job schedule(String schedule, String timeZone) {
            return schedule(schedule).set("time_zone", timeZone);
        }

        /** Sets what an argument of shedlock_job is: "attempts", 3 or "backoff", Duration.ofSeconds(10) or "10 s". */
        public Job set(String argument, Object value) {
            settings.put(argument, value);
            return this;
        }
    }

    /** Runs jobs when they are due: each tick once, however many replicas have a worker for it. */
    public static final class Worker implements AutoCloseable {
        private final DataSource dataSource;
        private final Map<String, Job> jobs = new LinkedHashMap<>();
        private final Set<Run> atWork = ConcurrentHashMap.newKeySet();
        private final Thread hook = new Thread(this::close, "shedlock stop");
        private double lease = 30;
        private int concurrency = 4;
        private double wait = 0;
        private double stopAfter = 20;
        private boolean isDeclaring = true;
        private BiConsumer<Event, Run> onEvent = (event, run) -> LOG.log(Level.INFO, run.name + " " + event);
        private BiConsumer<Throwable, Run> onError =
                (error, run) -> LOG.log(Level.ERROR, run == null ? "worker" : run.name, error);
        private Session<Run> asker;
        private Session<Run> keeper; // of the leases
        private Thread asking;
        private String request; // that may have begun a run, or may do so until its end
        private double requestEnd;

        /** Makes a worker, which starts once, and keeps up to two connections of the data source. */
        public Worker(DataSource dataSource) {
            this.dataSource = dataSource;
        }

        /** Adds a job. */
        public Worker job(Job job) {
            if (job.handler == null) {
                throw new IllegalArgumentException("a job needs a handler");
            }
            if (jobs.put(job.name, job) != null) {
                throw new IllegalArgumentException("a worker needs jobs with different names");
            }
            return this;
        }

        /** Sets how long a run survives its replica; the default is 30 seconds. */
        public Worker lease(Duration time) {
            lease = seconds(time);
            return this;
        }

        /** Sets how many runs may be at work; the default is 4. */
        public Worker concurrency(int count) {
            concurrency = count;
            return this;
        }

        /** Sets how long a call waits in the server for a job to come due; by default the worker sleeps instead. */
        public Worker waitInServer(Duration time) {
            wait = seconds(time);
            return this;
        }

        /** Sets how long runs may go on when the worker stops; the default is 20 seconds. */
        public Worker stopAfter(Duration time) {
            stopAfter = seconds(time);
            return this;
        }

        /** Sets whether the worker declares its jobs when it starts, as it does by default. */
        public Worker declare(boolean isDeclaring) {
            this.isDeclaring = isDeclaring;
            return this;
        }

        /** Sets a listener for what happens to runs, which must not block. */
        public Worker onEvent(BiConsumer<Event, Run> listener) {
            onEvent = listener;
            return this;
        }

        /** Sets a listener for errors, which must not block; its run is null if the worker has the error. */
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
            if (!(lease > 0 && concurrency >= 1 && wait >= 0 && stopAfter >= 0)) {
                throw new IllegalArgumentException(
                        "lease and concurrency must be positive, waitInServer and stopAfter not negative");
            }
            if (jobs.isEmpty() || asking != null) {
                throw new IllegalStateException("a worker needs jobs, and starts once");
            }
            asker = new Session<>(dataSource, lease, onEvent, onError);
            keeper = new Session<>(dataSource, lease, onEvent, onError);
            try {
                asker.ask(0, CHECK);
            } catch (SQLException e) {
                if (!"42883".equals(e.getSQLState())) {
                    throw e;
                }
                throw new ShedlockException(
                        "the database needs extension shedlock 1.0 or newer, in its search_path, "
                                + "and USAGE on its schema",
                        e);
            }
            for (Job job : jobs.values()) {
                if (isDeclaring && job.settings.get("schedule") != null) {
                    String arguments = String.join(" => ?, ", job.settings.keySet()) + " => ?";
                    asker.ask(0, "SELECT shedlock_job(" + arguments + ")", job.settings.values().toArray());
                }
            }
            asking = new Thread(this::ask, "shedlock");
            asking.setDaemon(false); // a program of workers alone lives as long as they do
            Runtime.getRuntime().addShutdownHook(hook);
            asking.start();
        }

        /**
         * Begins no more runs, lets those at work end for the time of stopAfter, and gives the rest back.
         *
         * <p>These are interrupted, and end as "returned" as soon as their handlers do.
         */
        @Override
        public synchronized void close() {
            if (asking == null || asker.isStopped) {
                return;
            }
            asker.stop();
            LockSupport.unpark(asking);
            await(() -> !asking.isAlive(), LAST_WORDS);
            await(atWork::isEmpty, stopAfter);
            atWork.forEach(run -> run.sign(Reason.STOPPED));
            await(atWork::isEmpty, LAST_WORDS);
            keeper.stop();
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException e) {
                // it is at work
            }
        }

        private static void await(BooleanSupplier condition, double time) {
            double end = now()[0] + time;
            while (!condition.getAsBoolean() && now()[0] < end && !Thread.currentThread().isInterrupted()) {
                LockSupport.parkNanos(nanos(0.01));
            }
        }

        private void ask() {
            double pause = 0;
            while (!asker.isStopped) {
                double nap = SLEEP_MAX;
                try {
                    nap = atWork.size() < concurrency ? begin(wait) : nap;
                    pause = 0;
                } catch (Throwable e) {
                    if (asker.isStopped) {
                        break;
                    }
                    tell(onError, e, null);
                    requestEnd = now()[0] + wait + lease;
                    nap = pause;
                    pause = Math.min(SLEEP_MAX, 2 * pause + 1);
                }
                LockSupport.parkNanos(nanos(nap));
            }
            double giveUp = now()[0] + LAST_WORDS;
            while (request != null && now()[0] < giveUp) {
                double nap = 0.1;
                try {
                    begin(0);
                } catch (Throwable e) {
                    tell(onError, e, null);
                    nap = RETRY;
                }
                if (request != null) {
                    LockSupport.parkNanos(nanos(nap));
                }
            }
            asker.close();
        }

        /** Begins a run if one is due; returns how long to sleep. */
        private double begin(double wait) throws SQLException {
            if (request == null) {
                request = UUID.randomUUID().toString();
                requestEnd = now()[0] + wait + lease;
            }
            Object[] row = asker.ask(wait, NEXT, jobs.keySet().toArray(String[]::new), lease, wait, ME, request);
            if (row[1] == null) {
                // the server can still be at work on a call that was given up
                if (!row[5].equals("claimed") || now()[0] > requestEnd) {
                    request = null;
                }
                double nap = row[4] == null ? SLEEP_MAX : (Double) row[4];
                return wait > 0 ? 0.1 : Math.min(SLEEP_MAX, Math.max(0.1, nap));
            }
            Instant tick = Instant.EPOCH.plus(Math.round((Double) row[2] * 1e6), ChronoUnit.MICROS);
            Run run = new Run((String) row[0], (Long) row[1], tick, (Integer) row[3]);
            asker.findEnd(run);
            atWork.add(run);
            try {
                thread("shedlock keep", () -> work(run)).start();
            } catch (Throwable e) { // there can be no more threads
                atWork.remove(run);
                throw e;
            }
            request = null;
            return 0;
        }

        private void work(Run run) {
            run.thread = thread("shedlock " + run.name, () -> {
                try {
                    jobs.get(run.name).handler.run(run);
                } catch (Throwable e) {
                    run.error = e;
                }
                run.told = run.reason;
                run.over.countDown();
            });
            try {
                if (asker.isStopped) {
                    run.sign(Reason.STOPPED);
                    run.told = run.reason;
                } else if (run.left() > 0) {
                    tell(onEvent, Event.BEGUN, run);
                    keep(run);
                } else {
                    keeper.lose(run);
                }
                end(run);
            } finally {
                run.over.countDown();
                atWork.remove(run);
                LockSupport.unpark(asking);
                keeper.closeIf(atWork::isEmpty);
            }
        }

        private void keep(Run run) {
            try {
                keeper.keep(run);
            } catch (Throwable e) { // there can be no more threads
                run.error = e;
            }
        }

        private void end(Run run) {
            Throwable error = run.error;
            boolean isObedient = error instanceof ShedlockException || error instanceof InterruptedException;
            if (error != null && !(isObedient && run.told != null)) {
                tell(onError, error, run);
            }
            String outcome = run.told == Reason.STOPPED ? "returned" : error == null ? "succeeded" : "failed";
            String message = outcome.equals("failed") ? describe(error) : null;
            if (keeper.end(run, END, run.name, run.token, outcome, message)) {
                run.outcome = outcome;
                tell(onEvent, Event.ENDED, run);
            }
        }
    }

    /**
     * A connection that is opened when it is needed, and closed by any error. One of them asks for runs, and may wait
     * in the server; another one, the keeper, extends leases and ends them.
     */
    private static final class Session<L extends Held> {
        private final DataSource dataSource;
        private final double length; // of leases
        private final double limit; // of a statement
        private final BiConsumer<Event, L> onEvent;
        private final BiConsumer<Throwable, L> onError;
        private volatile Connection db;
        private volatile boolean isStopped;
        private long count; // of statements

        Session(DataSource dataSource, double length, BiConsumer<Event, L> onEvent, BiConsumer<Throwable, L> onError)
                throws SQLException {
            this.dataSource = dataSource;
            this.length = length;
            this.limit = Math.min(length / 3, 30);
            this.onEvent = onEvent;
            this.onError = onError;
            try {
                if (dataSource.getLoginTimeout() == 0) {
                    dataSource.setLoginTimeout((int) Math.max(10, limit)); // the first one loads classes
                }
            } catch (UnsupportedOperationException e) {
                LOG.log(Level.WARNING, "connections are opened without a time limit", e);
            }
        }

        /** Returns a statement's row, or null. It may take longer than others by some time that it waits. */
        synchronized Object[] ask(double wait, String statement, Object... args) throws SQLException {
            try {
                Connection used = db;
                boolean isNew = used == null;
                if (isNew) {
                    db = used = dataSource.getConnection();
                }
                if (isStopped && wait > 0) {
                    throw new SQLException("the worker stops");
                }
                used.setNetworkTimeout(Runnable::run, (int) ((wait + limit) * 1000));
                if (isNew) {
                    used.setAutoCommit(true);
                    if (NAMELESS.equals(used.getClientInfo("ApplicationName"))) {
                        used.setClientInfo("ApplicationName", "shedlock");
                    }
                }
                // the driver would prepare a text that it knows by name, which not every pooler allows
                try (PreparedStatement sent = used.prepareStatement(statement + " /* " + ++count + " */")) {
                    for (int i = 0; i < args.length; i++) {
                        Object arg = args[i] instanceof String[] names ? used.createArrayOf("text", names) : args[i];
                        sent.setObject(i + 1, arg, Types.OTHER); // the server knows the type
                    }
                    ResultSet rows = sent.executeQuery();
                    for (SQLWarning note = sent.getWarnings(); note != null; note = note.getNextWarning()) {
                        LOG.log(Level.WARNING, note.getMessage());
                    }
                    Object[] row = rows.next() ? new Object[rows.getMetaData().getColumnCount()] : null;
                    for (int i = 0; row != null && i < row.length; i++) {
                        row[i] = rows.getObject(i + 1);
                    }
                    return row;
                }
            } catch (Throwable e) {
                close();
                throw e;
            }
        }

        /** Finds out when a lease ends. */
        void findEnd(L lease) throws SQLException {
            double[] sent = now();
            Object[] row = ask(0, LEFT, lease.name, lease.token);
            lease.holdFor(row == null ? 0 : (Double) row[0], sent);
        }

        /** Breaks the connection, from any thread: a statement that waits for the server fails. */
        void close() {
            Connection broken = db;
            db = null;
            try {
                if (broken != null) {
                    broken.abort(Runnable::run);
                }
            } catch (SQLException e) {
                LOG.log(Level.DEBUG, "a connection", e);
            }
        }

        /** Breaks the connection if nobody needs it, and no other thread is at it. */
        synchronized void closeIf(BooleanSupplier isUnused) {
            if (isUnused.getAsBoolean()) {
                close();
            }
        }

        /** Does as close(), and from then on nothing waits in the server, and no lease is extended. */
        void stop() {
            isStopped = true;
            close();
        }

        /** Starts the work, and extends its lease until it has ended; signs it if the lease ends before. */
        void keep(L lease) {
            CompletableFuture<Void> extending =
                    CompletableFuture.runAsync(() -> extend(lease), work -> thread("shedlock extend", work).start());
            if (lease.thread != null) {
                lease.thread.start();
            }
            // no wait counts the time of a suspension, so the clocks are read again and again
            while (!lease.isOver(Math.min(1, length / 20))) {
                if (lease.left() <= 0) {
                    lose(lease);
                }
            }
            extending.join();
        }

        private void extend(L lease) {
            double pause = Math.min(length / 3, lease.left() - length / 2);
            while (!lease.isOver(pause) && lease.left() > 0 && !isStopped) {
                pause = length / 3;
                double[] sent = now();
                try {
                    if (!(Boolean) ask(0, EXTEND, lease.name, lease.token, length)[0]) {
                        // it was lost, or cut by the lock_at_most_for of its job, and is left until then
                        findEnd(lease);
                    } else if (lease.left() > 0) { // an answer can be too late
                        lease.holdFor(length, sent);
                    }
                } catch (Throwable e) {
                    pause = length / 10;
                    tell(onError, e, lease);
                }
            }
        }

        /** Ends a lease; returns whether it was held until then. */
        boolean end(L lease, String statement, Object... args) {
            boolean isRepeat = false;
            double pause = 0;
            while (lease.left() > 0) {
                try {
                    // a lock can have been released by a call that had no answer
                    if ((Boolean) ask(0, statement, args)[0] || isRepeat) {
                        return true;
                    }
                    break;
                } catch (Throwable e) {
                    tell(onError, e, lease);
                    isRepeat = statement.equals(RELEASE);
                    Object last = args[args.length - 1];
                    if (last instanceof String && e instanceof SQLException s && "22P05".equals(s.getSQLState())) {
                        // a message, of which the database's encoding lacks some
                        args[args.length - 1] = ((String) last).replaceAll("[^ -~]", "?");
                    }
                    LockSupport.parkNanos(nanos(pause)); // at first not: it may have been one broken connection
                    pause = Math.min(length / 10, RETRY);
                }
            }
            lose(lease);
            return false;
        }

        private void lose(L lease) {
            if (lease.sign(Reason.LOST)) {
                tell(onEvent, Event.LOST, lease);
            }
        }
    }

    private static <A, B> void tell(BiConsumer<A, B> listener, A what, B of) {
        try {
            listener.accept(what, of);
        } catch (Throwable e) {
            LOG.log(Level.ERROR, "a listener", e);
        }
    }

    private static String describe(Throwable error) {
        try {
            return error.toString().replace("\0", "");
        } catch (RuntimeException e) { // of its getMessage(), say
            return error.getClass().getName();
        }
    }

    private static Thread thread(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    /** Returns the time by a clock that nobody sets, and by that of the wall, which counts suspension. */
    private static double[] now() {
        return new double[] {System.nanoTime() / 1e9, System.currentTimeMillis() / 1e3};
    }

    private static double seconds(Duration time) {
        return time.toNanos() / 1e9;
    }

    private static long nanos(double seconds) {
        return (long) (seconds * 1e9);
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
