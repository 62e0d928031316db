import io.shedlock.Shedlock;
import io.shedlock.Shedlock.Job;
import io.shedlock.Shedlock.LockHeld;
import io.shedlock.Shedlock.LockLost;
import io.shedlock.Shedlock.Run;
import io.shedlock.Shedlock.WorkerStopped;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.postgresql.ds.PGSimpleDataSource;

/** A service that works as test/perl/ClientSuite.pm tells it to, with the package of clients/java. */
public class Worker {
    private static final Map<String, String> ENV = System.getenv();

    private static double now() {
        return System.currentTimeMillis() / 1e3;
    }

    private static synchronized void say(Object... words) {
        StringBuilder line = new StringBuilder(String.format("%.6f", now()));
        for (Object word : words) {
            line.append(' ').append(word);
        }
        System.out.println(line);
    }

    private static String line(Throwable error) {
        return String.valueOf(error.getMessage()).trim().replaceAll("\\s+", " ");
    }

    private static Duration seconds(String text) {
        return Duration.ofMillis((long) (Double.parseDouble(text) * 1000));
    }

    private static void pause(double seconds) {
        double end = now() + seconds;
        do {
            try {
                Thread.sleep((long) Math.max(0, (end - now()) * 1000));
            } catch (InterruptedException e) {
                // the work may be one that does not look
            }
        } while (now() < end);
    }

    private static void work(Run run, String kind, double seconds) {
        if (kind.equals("block")) {
            pause(seconds);
        }
        long end = System.nanoTime() + (long) (seconds * 1e9);
        try {
            while (System.nanoTime() < end) {
                if (!kind.equals("blind")) {
                    double at = now();
                    run.check();
                    say("step", run.name, run.token, String.format("%.6f", at));
                }
                if (kind.equals("blind")) {
                    pause(0.1);
                    continue;
                }
                try {
                    Thread.sleep(100);
                } catch (InterruptedException e) {
                    if (!run.mustStop()) {
                        throw new IllegalStateException("interrupted without a sign");
                    }
                }
            }
            run.check();
        } catch (LockLost | WorkerStopped e) {
            say("signed", run.name, run.token, e.getClass().getSimpleName());
            throw e;
        } finally {
            say("done", run.name, run.token);
        }
        if (kind.equals("fail") && run.attempt == 1) {
            throw new IllegalStateException("of the work");
        }
    }

    private static Job job(Map<String, String> settings) {
        String[] work = settings.get("work").split(":");
        Job job = new Job(settings.get("job"), run -> work(run, work[0], Double.parseDouble(work[1])));
        settings.forEach((key, value) -> {
            if (!key.equals("job") && !key.equals("work")) {
                job.set(key, value);
            }
        });
        return job;
    }

    private static void lock(PGSimpleDataSource db, Map<String, String> options) throws Exception {
        String name = options.get("lock");
        Duration wait = seconds(options.getOrDefault("wait", "0"));
        long token;
        try (Shedlock.Lease lease = Shedlock.Lease.hold(db, name, wait, seconds(options.get("lease")), Duration.ZERO)) {
            token = lease.token;
            say("begun", name);
            double end = now() + Double.parseDouble(options.get("seconds"));
            while (now() < end) {
                lease.check();
                say("step", name, lease.token, String.format("%.6f", now()));
                pause(0.1);
            }
        } catch (LockHeld | LockLost e) {
            say(e instanceof LockHeld ? "refused" : "lost", name);
            return;
        }
        say("released", name, token);
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        Map<String, String> now = options;
        Map<String, Map<String, String>> jobs = new LinkedHashMap<>();
        for (String arg : args) {
            String[] pair = arg.split("=", 2);
            if (pair[0].equals("job")) {
                now = jobs.computeIfAbsent(pair[1], name -> new LinkedHashMap<>());
            }
            now.put(pair[0], pair[1]);
        }
        PGSimpleDataSource db = new PGSimpleDataSource();
        db.setServerNames(new String[] {ENV.get("PGHOST")});
        db.setPortNumbers(new int[] {Integer.parseInt(ENV.get("PGPORT"))});
        db.setUser(ENV.get("PGUSER"));
        db.setDatabaseName(ENV.get("PGDATABASE"));
        db.setPassword(ENV.get("PGPASSWORD"));
        db.setApplicationName(ENV.get("PGAPPNAME"));

        try {
            if (options.containsKey("lock")) {
                lock(db, options);
                say("over");
                return;
            }
            Shedlock.Worker worker = new Shedlock.Worker(db)
                    .declare(!"no".equals(options.get("declare")))
                    .lease(seconds(options.getOrDefault("lease", "30")))
                    .concurrency(Integer.parseInt(options.getOrDefault("concurrency", "4")))
                    .waitInServer(seconds(options.getOrDefault("wait", "0")))
                    .stopAfter(seconds(options.getOrDefault("stop_after", "20")))
                    .onEvent((event, run) -> say(event.name().toLowerCase(), run.name, run.token,
                            switch (event) {
                                case BEGUN -> run.attempt + " " + run.tick;
                                case ENDED -> run.outcome();
                                case LOST -> "";
                            }))
                    .onError((error, run) -> say("error", run == null ? "-" : run.name, line(error)));
            jobs.values().forEach(settings -> worker.job(job(settings)));
            // a JVM that a signal ends has another exit status than 0
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                worker.close();
                say("over");
                Runtime.getRuntime().halt(0);
            }));
            worker.start();
        } catch (Exception e) {
            say("failed", line(e));
            Runtime.getRuntime().halt(1);
        }
    }
}
