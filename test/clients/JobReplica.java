import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Map;
import org.postgresql.ds.PGSimpleDataSource;

/** A replica of a service that uses JobRunner of doc/services.md; see test/perl/JobRecipes.pm. */
public class JobReplica {
    private static final Map<String, String> ENV = System.getenv();

    private static PGSimpleDataSource database(String port, String user) {
        PGSimpleDataSource db = new PGSimpleDataSource();
        db.setServerNames(new String[] {"127.0.0.1"});
        db.setPortNumbers(new int[] {Integer.parseInt(port)});
        db.setDatabaseName("postgres");
        db.setUser(user);
        db.setPassword("of " + user);
        db.setApplicationName(ENV.get("PGAPPNAME"));
        db.setPrepareThreshold(0);
        return db;
    }

    private static Object ask(Connection db, String sql, Object... args) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            for (int i = 0; i < args.length; i++) {
                statement.setObject(i + 1, args[i]);
            }
            ResultSet rows = statement.executeQuery();
            rows.next();
            return rows.getObject(1);
        }
    }

    public static void main(String[] args) throws Exception {
        String name = args[0];
        String replica = args[2];
        Duration lease = Duration.ofMillis((long) (Double.parseDouble(args[1]) * 1000));
        JobRunner.Job job = new JobRunner.Job(name, lease);
        PGSimpleDataSource db = database(ENV.get("PGPORT"), "app");

        try (Connection seen = database(ENV.get("WORK_PORT"), "worker").getConnection()) {
            String answer;
            do {
                try {
                    boolean ran = JobRunner.run(db, job, (tick, token, check) -> {
                        for (;;) {
                            double at = System.currentTimeMillis() / 1000.0;
                            if (!name.startsWith("blind")) {
                                check.check();
                            }
                            Object order = ask(seen, "SELECT work_step(?, ?, ?, ?)", name, replica, token, at);
                            if (order.equals("raise")) {
                                throw new IllegalStateException("of the work");
                            }
                            if (order.equals("done")) {
                                return;
                            }
                            Thread.sleep(100);
                        }
                    });
                    answer = ran ? "ran" : "not due";
                } catch (JobRunner.LockLost e) {
                    answer = "lost";
                } catch (IllegalStateException e) {
                    answer = "raised: " + e.getMessage();
                } catch (SQLException e) {
                    answer = "error: " + e.getMessage();
                }
                Thread.sleep(200);
            } while ((Boolean) ask(seen, "SELECT work_told(?, ?, ?)", name, replica, answer));
        }
    }
}
