import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Calendar;
import java.util.Map;
import java.util.TimeZone;
import java.util.concurrent.ThreadLocalRandom;
import org.postgresql.ds.PGSimpleDataSource;

/**
 * A replica of a service that uses ShedLock for Java. It does not call the extension: it sends
  * the statements of ShedLock 7 for PostgreSQL, with its parameters and its row cache.
 *
 * <pre>
 * Replica TIME once LOCK           tries once
 * Replica TIME warm LOCK           the same, with the row in the cache
 * Replica TIME keep LOCK           works until the lock is lost
 * Replica TIME race LOCK ROUNDS    tries until it has worked, or been rejected, ROUNDS times
 * </pre>
 *
 * TIME is db (usingDbTime), utc (forceUtcTimeZone) or local (neither: the zone of the JVM).
 * libpq's environment variables say where the server is.
 */
public class Replica {
    private static final Duration AT_MOST = Duration.ofMinutes(1);
    private static final String UTC_NOW = "timezone('utc', CURRENT_TIMESTAMP)";
    /** The extension's error for a client whose clock or zone is wrong. */
    private static final String WRONG_CLOCK = "22008";
    private static final Map<String, String> ENV = System.getenv();

    /** ShedLock's statements, each with its parameters. */
    private interface Statements {
        int insert(String lock) throws SQLException;

        int update(String lock) throws SQLException;

        int extend(String lock) throws SQLException;

        int unlock(String lock) throws SQLException;
    }

    private final Connection db;
    /** ShedLock's default is the name of the host, which should differ from replica to replica. */
    private final String lockedBy = ENV.getOrDefault("PGAPPNAME", "java") + "-" + ProcessHandle.current().pid();
    private final Statements statements;
    private final TimeZone zone;
    private boolean rowIsKnown;
    private int won;

    private class DbTime implements Statements {
        private final BigDecimal secs = BigDecimal.valueOf(AT_MOST.toMillis()).scaleByPowerOfTen(-3);
        private final BigDecimal atLeastSecs = BigDecimal.ZERO.setScale(3);

        public int insert(String lock) throws SQLException {
            return execute("INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES(?, " + UTC_NOW
                + " + make_interval(secs => ?), " + UTC_NOW + ", ?) ON CONFLICT (name) DO UPDATE SET lock_until = "
                + UTC_NOW + " + make_interval(secs => ?), locked_at = " + UTC_NOW + ", locked_by = ?"
                + " WHERE shedlock.name = ? AND shedlock.lock_until <= " + UTC_NOW,
                lock, secs, lockedBy, secs, lockedBy, lock);
        }

        public int update(String lock) throws SQLException {
            return execute("UPDATE shedlock SET lock_until = " + UTC_NOW + " + make_interval(secs => ?), locked_at = "
                + UTC_NOW + ", locked_by = ? WHERE shedlock.name = ? AND shedlock.lock_until <= " + UTC_NOW,
                secs, lockedBy, lock);
        }

        public int extend(String lock) throws SQLException {
            return execute("UPDATE shedlock SET lock_until = " + UTC_NOW + " + make_interval(secs => ?)"
                + " WHERE name = ? AND locked_by = ? AND lock_until > " + UTC_NOW,
                secs, lock, lockedBy);
        }

        public int unlock(String lock) throws SQLException {
            return execute("UPDATE shedlock SET lock_until = CASE WHEN locked_at + make_interval(secs => ?) > "
                + UTC_NOW + " THEN locked_at + make_interval(secs => ?) ELSE " + UTC_NOW
                + " END WHERE name = ? AND locked_by = ?",
                atLeastSecs, atLeastSecs, lock, lockedBy);
        }
    }

    private class ClientTime implements Statements {
        public int insert(String lock) throws SQLException {
            Instant now = now();
            Instant until = now.plus(AT_MOST);
            return execute("INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES(?, ?, ?, ?)"
                + " ON CONFLICT (name) DO UPDATE SET lock_until = ?, locked_at = ?, locked_by = ?"
                + " WHERE shedlock.lock_until <= ?",
                lock, until, now, lockedBy, until, now, lockedBy, now);
        }

        public int update(String lock) throws SQLException {
            Instant now = now();
            return execute("UPDATE shedlock SET lock_until = ?, locked_at = ?, locked_by = ?"
                + " WHERE name = ? AND lock_until <= ?",
                now.plus(AT_MOST), now, lockedBy, lock, now);
        }

        public int extend(String lock) throws SQLException {
            Instant now = now();
            return execute("UPDATE shedlock SET lock_until = ? WHERE name = ? AND locked_by = ? AND lock_until > ?",
                now.plus(AT_MOST), lock, lockedBy, now);
        }

        public int unlock(String lock) throws SQLException {
            return execute("UPDATE shedlock SET lock_until = ? WHERE name = ? AND locked_by = ?",
                now(), lock, lockedBy);
        }

        private Instant now() {
            return Instant.now().truncatedTo(ChronoUnit.MILLIS);
        }
    }

    private Replica(Connection db, String time) {
        this.db = db;
        zone = time.equals("utc") ? TimeZone.getTimeZone("UTC") : TimeZone.getDefault();
        statements = time.equals("db") ? new DbTime() : new ClientTime();
    }

    private int execute(String sql, Object... parameters) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            for (int i = 0; i < parameters.length; i++) {
                // a timestamp column gets the wall clock of the calendar's zone
                if (parameters[i] instanceof Instant) {
                    statement.setTimestamp(i + 1, Timestamp.from((Instant) parameters[i]), Calendar.getInstance(zone));
                } else {
                    statement.setObject(i + 1, parameters[i]);
                }
            }
            return statement.executeUpdate();
        }
    }

    /** Like ShedLock: an upsert until the row is known, then a plain UPDATE. */
    private boolean lock(String lock) throws SQLException {
        if (!rowIsKnown) {
            boolean taken = statements.insert(lock) > 0;
            rowIsKnown = true;
            if (taken) {
                return true;
            }
        }
        return statements.update(lock) > 0;
    }

    private interface Work {
        void run() throws SQLException, InterruptedException, Lost;
    }

    private static class Lost extends Exception {}

    private boolean runOnce(String lock, Work work) throws SQLException, InterruptedException, Lost {
        if (!lock(lock)) {
            return false;
        }
        try {
            work.run();
        } finally {
            statements.unlock(lock);
        }
        return true;
    }

    private void keepAlive(String lock) throws SQLException, Lost {
        if (statements.extend(lock) == 0) {
            throw new Lost();
        }
    }

    private String once(String lock) throws SQLException, InterruptedException, Lost {
        return runOnce(lock, () -> keepAlive(lock)) ? "ran" : "refused";
    }

    private String keep(String lock) throws SQLException, InterruptedException {
        try {
            runOnce(lock, () -> {
                System.out.println("holding");
                while (true) {
                    Thread.sleep(50);
                    keepAlive(lock);
                }
            });
            return "refused";
        } catch (Lost e) {
            return "lost";
        }
    }

    private String race(String lock, int rounds) throws SQLException, InterruptedException, Lost {
        int refused = 0;
        int rejected = 0;
        while (won + rejected < rounds) {
            // sometimes it acts as a new replica, with an empty cache
            rowIsKnown = (won + refused + rejected) % 10 != 0;
            try {
                if (runOnce(lock, () -> count(lock))) {
                    won++;
                } else {
                    refused++;
                }
            } catch (SQLException e) {
                if (!WRONG_CLOCK.equals(e.getSQLState())) {
                    throw e;
                }
                rejected++;
            }
            Thread.sleep(ThreadLocalRandom.current().nextInt(4, 20));
        }
        return won + " won, " + refused + " refused" + (rejected > 0 ? ", " + rejected + " rejected" : "");
    }

    /** Loses an update if another replica runs it meanwhile: two statements, on purpose. */
    private void count(String lock) throws SQLException, InterruptedException, Lost {
        long value;
        long token;
        String started;
        // the extension gave the lock a token, although the client does not ask for it
        try (PreparedStatement read = db.prepareStatement("SELECT value, clock_timestamp()::text, token"
                + " FROM race_counter, shedlock WHERE name = ?")) {
            read.setString(1, lock);
            try (ResultSet row = read.executeQuery()) {
                row.next();
                value = row.getLong(1);
                started = row.getString(2);
                token = row.getLong(3);
            }
        }
        Thread.sleep(ThreadLocalRandom.current().nextInt(2, 6));
        if (won % 8 == 0) {
            keepAlive(lock);
        }
        execute("UPDATE race_counter SET value = ?", value + 1);
        execute("INSERT INTO race_log (token, started) VALUES (?, ?::timestamptz)", token, started);
    }

    private static Connection connect() throws SQLException {
        PGSimpleDataSource source = new PGSimpleDataSource();
        source.setServerNames(new String[] {ENV.getOrDefault("PGHOST", "localhost")});
        source.setPortNumbers(new int[] {Integer.parseInt(ENV.getOrDefault("PGPORT", "5432"))});
        source.setDatabaseName(ENV.get("PGDATABASE"));
        source.setUser(ENV.get("PGUSER"));
        source.setPassword(ENV.get("PGPASSWORD"));
        source.setApplicationName(ENV.getOrDefault("PGAPPNAME", "java"));
        return source.getConnection();
    }

    public static void main(String[] arguments) throws Exception {
        String lock = arguments[2];
        try (Connection db = connect()) {
            Replica replica = new Replica(db, arguments[0]);
            replica.rowIsKnown = arguments[1].equals("warm");
            switch (arguments[1]) {
                case "once":
                case "warm":
                    System.out.println(replica.once(lock));
                    break;
                case "keep":
                    System.out.println(replica.keep(lock));
                    break;
                case "race":
                    System.out.println(replica.race(lock, Integer.parseInt(arguments[3])));
                    break;
                default:
                    throw new IllegalArgumentException(arguments[1]);
            }
        } catch (SQLException e) {
            // as a service would log it; the driver's message has the server's hint
            System.out.println(e.getSQLState() + " " + e.getMessage().replace('\n', ' '));
            System.exit(1);
        }
    }
}
