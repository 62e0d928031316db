import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.Scanner;
import java.util.concurrent.Callable;
import java.util.stream.IntStream;

/** A replica of a service, for what lives in Java: Replica TOOL NUMBER.  python/replica.py has the protocol. */
public class Replica {
    public interface Tool {
        /** Connects, calls awaitStart(), and starts its threads, or calls rate() if RATE is set. */
        void run() throws Exception;
    }

    static final String GROUP = System.getenv("GROUP");
    static final String CRON = System.getenv("CRON");
    static final String ZONE = System.getenv("ZONE");
    static final int TICK = Integer.parseInt(System.getenv("TICK"));
    static final int LEASE = Integer.parseInt(System.getenv("LEASE"));
    static final boolean RATE = System.getenv("RATE").equals("yes");
    static final String URL = "jdbc:postgresql://" + System.getenv("ADDRESS") + ":5432/" + System.getenv("DATABASE");
    /** What the six replicas of a tool share */
    static final List<String> NAMES = System.getenv("JOBS").equals("1")
            ? List.of(GROUP)
            : IntStream.range(0, Integer.parseInt(System.getenv("JOBS"))).mapToObj(n -> GROUP + "_" + n).toList();

    static String number;
    private static final PrintStream out = System.out;
    private static Connection data;
    private static double start;

    public static void main(String[] arguments) throws Exception {
        // The caller reads "ready" there, and nothing else.
        System.setOut(System.err);
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        number = arguments[1];
        if (System.getenv("WRITE").equals("yes")) {
            data = connect();
        }
        try {
            ((Tool) Class.forName(arguments[0]).getConstructor().newInstance()).run();
            sleep(end() + 2 - now());
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            log("error", "-", error.toString());
            System.exit(1);
        }
    }

    static Connection connect() throws SQLException {
        return DriverManager.getConnection(URL, "postgres", "");
    }

    /** A pool of connections with the settings that HikariCP has by itself. */
    static HikariDataSource pool() {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(URL);
        config.setUsername("postgres");
        return new HikariDataSource(config);
    }

    static void awaitStart() {
        out.println("ready");
        out.flush();
        start = new Scanner(System.in).useLocale(Locale.ROOT).nextDouble();
        sleep(start - now());
    }

    /** Returns an expression whose first field is the second, for a job that is due as CRON or TICK say. */
    static String cron() {
        return !CRON.isEmpty() ? "0 " + CRON : TICK == 1 ? "* * * * * *" : "*/" + TICK + " * * * * *";
    }

    static double now() {
        Instant now = Instant.now();
        return now.getEpochSecond() + now.getNano() / 1e9 - Integer.parseInt(System.getenv("SKEW"));
    }

    private static double end() {
        return start + Double.parseDouble(System.getenv("TIMES")) * Double.parseDouble(System.getenv("EVERY"));
    }

    static void sleep(double seconds) {
        try {
            Thread.sleep(Math.max(0, (long) (seconds * 1000)));
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    /** Appends a line by one write, so that lines of processes do not mix. */
    static void log(String kind, Object tick, String text) {
        String line = String.format(Locale.ROOT, "%s %s %s %.4f %s\n", kind, tick, number, now(), text.replaceAll("\\s+", " "));
        try {
            Files.writeString(Path.of(System.getenv("LOG")), line, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The job.  The tick is when it was due, in seconds since 1970. */
    static void work(Object tick) {
        work(tick, () -> { });
    }

    /** The same job, which first does what throws an exception if its lock is lost. */
    static void work(Object tick, Runnable check) {
        log("begin", tick, "");
        sleep(Double.parseDouble(System.getenv("WORK")));
        if (data != null) {
            try (var statement = data.createStatement()) {
                check.run();
                statement.executeUpdate("INSERT INTO written (replica) VALUES (" + number + ")");
                log("wrote", tick, "");
            } catch (SQLException | RuntimeException error) {
                log("refused", tick, error.getMessage());
            }
        }
        log("end", tick, "");
    }

    /** Says every half a second how many pairs of acquire and release, or jobs, there were. */
    static void rate(Callable<Integer> pair) throws Exception {
        double told = now();
        for (int count = 0; now() < end(); ) {
            count += pair.call();
            if (now() >= told + 0.5) {
                log("pairs", count, "");
                count = 0;
                told = now();
            }
        }
    }
}
